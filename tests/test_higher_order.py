"""Functions that become graphs inside the graph: ``autograd.Function``, checkpoint, cond and while_loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

import compiler_lab
from compiler_lab.frames.capture import capture

from .torch_surface import BACKENDS, same

WEIGHT = torch.randn(8, 8, requires_grad=True)
LINEAR = nn.Linear(8, 8)
CALLS: list[int] = []


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)


def one_leaf() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)


def no_leaf() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 8), torch.randn(8, 8)


class Exp(torch.autograd.Function):
    """A gradient that is twice the real one, and a plain number as argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        y = (x * k).exp()
        ctx.save_for_backward(y)
        ctx.k = k
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (y,) = ctx.saved_tensors
        return g * y * ctx.k * 2, None


class Several(torch.autograd.Function):
    """Several outputs, one not differentiable; ``setup_context``; gradients only where they are needed."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x @ w, x > 0, x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w = inputs
        ctx.save_for_backward(x, w)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, _: Any, h: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w = ctx.saved_tensors
        grads = []
        grads.append(g @ w.t() + h * x.cos() if ctx.needs_input_grad[0] else None)
        grads.append(x.t() @ g * 3 if ctx.needs_input_grad[1] else None)
        return tuple(grads)


class Free(torch.autograd.Function):
    """A tensor that is no argument, an intermediate result kept as an attribute, one output that is an argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.mid = x @ WEIGHT
        ctx.save_for_backward(x)
        ctx.mode = torch.is_grad_enabled()
        return ctx.mid.relu() + y, 3, None

    @staticmethod
    def backward(ctx: Any, g: Tensor, *rest: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        assert not ctx.mode
        return (g * (ctx.mid > 0) + x * 0.1) @ WEIGHT.t(), g


class Untold(torch.autograd.Function):
    """Its backward tells the world."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        CALLS.append(1)
        return g * 5


def exp(x: Tensor, w: Tensor) -> Any:
    return Exp.apply(x, 0.5).sum() + w.sum()


def several(x: Tensor, w: Tensor) -> Any:
    a, b, c = Several.apply(x, w)
    return a * 2, b, c.relu()


def free(x: Tensor, w: Tensor) -> Any:
    with torch.no_grad():
        quiet = Exp.apply(x, 0.5)
    return quiet, Free.apply(x, w), Free.apply(x, x)[0]


def detached(x: Tensor, w: Tensor) -> Any:
    return Exp.apply(x.detach(), 0.5) @ w


def block(x: Tensor, w: Tensor) -> Any:
    return F.dropout((x @ w).relu(), 0.3) @ w, x.sin()


def checkpointed(x: Tensor, w: Tensor) -> Any:
    a, b = checkpoint(block, x, w, use_reentrant=False)
    return a + b, torch.rand(2)


def checkpointed_module(x: Tensor, w: Tensor) -> Any:
    return checkpoint(lambda q: [LINEAR(q).tanh(), 3, w], x, use_reentrant=False, preserve_rng_state=False)


def nested(x: Tensor, w: Tensor) -> Any:
    def inside(a: Tensor) -> Tensor:
        return Exp.apply(a, 0.1) @ w

    return checkpoint(lambda a: inside(a) + checkpoint(inside, a, use_reentrant=False), x, use_reentrant=False)


CAPTURED: list[Callable[..., Any]] = [exp, several, free, detached, checkpointed, checkpointed_module, nested]


@pytest.mark.parametrize("args", [pair, one_leaf, no_leaf])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", CAPTURED)
def test_functions_of_the_program_become_graphs(fn: Callable[..., Any], backend: str, args: Any) -> None:
    counts = same(fn, args, backend)
    assert counts["graphs"] == 1 and not counts["breaks"]


def cond(x: Tensor, w: Tensor) -> Any:
    first = torch.cond(x.sum() > 0, lambda a: a @ w, lambda a: (a * 2) @ w + 1, (x,))
    return first, torch.cond(x.sum() < 0, lambda: (x.sin(), x.cos() * WEIGHT), lambda: (x.cos(), x.sin()))


def while_loop(x: Tensor, w: Tensor) -> Any:
    low = w.detach()
    return torch.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a @ low * 0.1), (torch.tensor(0), x.detach()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [cond, while_loop])
def test_decisions_by_data_are_nodes_in_eager_and_refused_below(fn: Callable[..., Any], backend: str) -> None:
    counts = same(fn, pair, backend)
    assert counts["break_reasons"] == ([] if backend == "eager" else ["higher-order-operator"])


def changes_in_a_branch(x: Tensor, w: Tensor) -> Any:
    seen: list[int] = []
    try:
        return torch.cond(x.sum() > 0, lambda a: (seen.append(1), a + 1)[1], lambda a: a - 1, (x,)), len(seen)
    except Exception as error:  # noqa: BLE001 - torch refuses it in its own way
        return type(error).__name__, x * 2


def other_shapes(x: Tensor, w: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a[:2] * 1, lambda a: a * 1, (x,))


def changes_in_the_backward(x: Tensor, w: Tensor) -> Any:
    return Untold.apply(x)


def reentrant(x: Tensor, w: Tensor) -> Any:
    return checkpoint(block, x, w, use_reentrant=True)


def written_inside(x: Tensor, w: Tensor) -> Any:
    y = x * 1
    return checkpoint(lambda a: (y.mul_(2), a + 1)[1], x, use_reentrant=False), y


@pytest.mark.parametrize(("fn", "reason"), [(changes_in_a_branch, "higher-order"), (changes_in_the_backward, "higher-order"), (reentrant, "autograd-api")])
def test_what_does_more_than_compute_is_refused(fn: Callable[..., Any], reason: str) -> None:
    del CALLS[:]
    assert reason in same(fn, no_leaf if fn is reentrant else pair)["break_reasons"]
    assert len(CALLS) == (4 if fn is changes_in_the_backward else 0)


@pytest.mark.parametrize("fn", [other_shapes, written_inside])
def test_what_is_no_function_of_tensors_is_refused(fn: Callable[..., Any]) -> None:
    assert [b.reason for b in capture(fn, *pair()).breaks] == ["higher-order"]


def test_the_gradient_of_the_gradient() -> None:
    """Of a function it is that of its backward; of one that may be differentiated once, torch's own error."""
    x, w = pair()
    for fn, fails in ((exp, False), (several, True)):
        compiled: Any = compiler_lab.compile(fn, backend="eager", fullgraph=True)
        found: list[Any] = []
        for run in (fn, compiled):
            out = run(x, w)
            out = out[0] if isinstance(out, tuple) else out
            (g,) = torch.autograd.grad(out.pow(2).sum(), x, create_graph=True)
            if fails:
                with pytest.raises(RuntimeError, match="once_differentiable"):
                    g.sum().backward()
            else:
                found.append(torch.autograd.grad(g.sum(), x)[0])
        assert fails or torch.allclose(*found)


def test_saved_tensors_are_checked() -> None:
    """Changed after ``save_for_backward``, they make the backward an error, as in eager; kept as an attribute, they do not."""
    compiled: Any = compiler_lab.compile(several, backend="eager", fullgraph=True)
    x, w = pair()
    leaf, y = x, x * 1
    out = compiled(y, w)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out[0].sum().backward()
    assert leaf.grad is None


def test_a_global_that_a_backward_reads_is_guarded() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return x * scale[0]

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return g * scale[1]

    scale = [2.0, 3.0]
    compiled: Any = compiler_lab.compile(lambda x: Scaled.apply(x), backend="aot_eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    for expected in (3.0, 7.0):
        scale[1] = expected
        (g,) = torch.autograd.grad(compiled(x).sum(), x)
        assert torch.equal(g, torch.full((2,), expected))


def test_graphs_inside_are_shown() -> None:
    c = capture(several, *pair())
    c.check()
    text = c.graphs[0].text()
    assert "    forward:" in text and "    backward:" in text and ".cos(" in text
    assert "0x" not in text
