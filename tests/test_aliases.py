"""Outputs that are views, of results and of inputs: to the caller they are what the program's own are."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab.aot.ir import JointSpec, OutputSpec, ViewStep
from compiler_lab.aot.joint import joint
from compiler_lab.core.errors import InvalidIR

from .aot_programs import call, randn, set_grad, traced

MADE = torch.arange(6.0).reshape(2, 3)


def no_grad_view(x: Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        view = y[0]
    return view, y.sum()


def no_grad_part(x: Tensor) -> Any:
    with torch.no_grad():
        return x.unbind(0)[1], x[0]


def written(x: Tensor) -> Any:
    y = x * 2
    row = y[1]
    row.mul_(3)
    return row


def written_base(x: Tensor) -> Any:
    y = x * 2
    row, column = y[1], y[:, 0]
    y.add_(1)
    column.mul_(x[:, 1])
    return row, column


def linear(x: Tensor) -> Any:
    """With a bias it ends with a view, without in memory of its own."""
    w = x.detach() + 0.5
    return F.linear(x.view(1, 2, 3), w, x.new_ones(2)), F.linear(x.view(1, 2, 3), w)


def through_list(x: Tensor) -> Any:
    q, k, v = torch.cat([x, x * 2, x * 3], 1).chunk(3, 1)
    return q, k, v, (q * k).sum()


def deep(x: Tensor) -> Any:
    y = x * x
    a = y.t().unsqueeze(0)
    b = a[0].expand(2, 3, 2)
    return a, b, y.detach()[0], y.diagonal(), y.unfold(0, 2, 1), y.movedim(0, 1), y.narrow(1, 1, 2)


def complex_views(x: Tensor) -> Any:
    z = torch.complex(x, x * 2)
    return torch.view_as_real(z), z.real, z.conj(), z.imag


def written_input(x: Tensor, state: Tensor) -> Any:
    state.add_(1)
    return state[0], state.view(-1), state, state.detach(), x * state


PROGRAMS: dict[str, Callable[..., Any]] = {
    "view": lambda x: (x * 2).view(-1),
    "part of unbind": lambda x: (x * 2).unbind(0)[0],
    "unbind": lambda x: (x * 2).unbind(0),
    "part of split": lambda x: (x * 2).split(1)[1],
    "chunk": lambda x: (x * 2).chunk(2),
    "select": lambda x: (x * 2)[1],
    "with its base": lambda x: (lambda y: (y, y[1]))(x * 2),
    "base behind": lambda x: (lambda y: (y[1], y))(x * 2),
    "the same view twice": lambda x: (lambda v: (v, v))((x * 2)[1]),
    "two equal views": lambda x: (lambda y: (y[1], y[1]))(x * 2),
    "detached": lambda x: (x * 2).detach(),
    "detached with its base": lambda x: (lambda y: (y, y.detach(), y.detach()[0]))(x * 2),
    "detached part": lambda x: (x * 2)[1].detach(),
    "expand": lambda x: (x * 2).expand(3, 2, 3),
    "transpose": lambda x: (x * 2).t(),
    "unbind of input": lambda x: x.unbind(0),
    "part of unbind of input": lambda x: x.unbind(0)[1],
    "part of detached input": lambda x: x.detach()[1],
    "several of input": lambda x: (x[0], x.t(), x, x.view(-1), x.detach()),
    "another dtype of input": lambda x: (x.detach().view(torch.int32), x.sum()),
    "another dtype": lambda x: (lambda y: (y.view(torch.int16), y))((x * 2).detach()),
    "as_strided": lambda x: (lambda y: (y.as_strided((2,), (2,), 1), y))(x * 2),
    "no grad view": no_grad_view,
    "no grad views of input": no_grad_part,
    "written": written,
    "written base": written_base,
    "linear": linear,
    "qkv": through_list,
    "deep": deep,
    "complex": complex_views,
    "written input": lambda x: written_input(x, x.detach().clone()),
}  # fmt: skip


def outputs_of(fn: Callable[..., Any], grad: bool) -> tuple[Tensor, list[Tensor]]:
    x = MADE.clone().requires_grad_(grad)
    result = fn(x)
    return x, list(result) if isinstance(result, (tuple, list)) else [result]


def facts(outputs: list[Tensor]) -> list[Any]:
    memory: dict[Any, int] = {}
    told: list[Any] = []
    for t in outputs:
        number = memory.setdefault(t.untyped_storage()._cdata, len(memory))
        base = next((i for i, o in enumerate(outputs) if t._base is o), -1)
        told.append((t._is_view(), t.storage_offset(), t.shape, t.stride(), t.dtype, t.requires_grad, t.is_leaf, t.untyped_storage().nbytes(), number, base))
    return told


def change(t: Tensor, factor: Any) -> str:
    version = t._version
    try:
        t.mul_(factor)
    except RuntimeError as error:
        return str(error)
    return f"version + {t._version - version}"


def compiled(fn: Callable[..., Any], backend: str) -> Callable[..., Any]:
    compiler_lab.reset()
    return compiler_lab.compile(fn, backend=backend, fullgraph=True)


BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "lab"])


@BACKENDS
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_are_what_the_programs_own_are(name: str, grad: bool, backend: str) -> None:
    """What they are, what the caller may do to each, and what the others and the gradients are then."""
    program = PROGRAMS[name]
    ours = compiled(program, backend)
    count = len(outputs_of(program, grad)[1])
    for changed in range(-1, count):
        results: list[Any] = []
        for fn in (program, ours):
            x, outputs = outputs_of(fn, grad)
            told: list[Any] = [facts(outputs)]
            if changed >= 0:
                told.append(change(outputs[changed], 3))
                told += [t.detach().resolve_conj().tolist() for t in outputs] + [[t.requires_grad for t in outputs], x.tolist()]
            losses = [t.abs().square().sum() for t in outputs if t.requires_grad and t is not x]
            if losses:
                try:
                    torch.stack(losses).sum().backward()
                    told.append(x.grad)
                except RuntimeError as error:
                    told.append(str(error)[:60])
            results.append(told)
        expected, got = results
        if expected and isinstance(expected[-1], Tensor):
            torch.testing.assert_close(got.pop(), expected.pop())
        assert got == expected, f"output {changed} changed"


class Reversed(torch.autograd.Function):
    """A view with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -grads[0]


OF_A_FUNCTION: dict[str, Callable[[Tensor], Any]] = {
    "of an input": lambda x: Reversed.apply(x),
    "of a result": lambda x: Reversed.apply(x * 2),
    "part of it": lambda x: Reversed.apply(x * 2)[0],
    "with what it is of": lambda x: (lambda y: (y, Reversed.apply(y)))(x * 2),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("name", OF_A_FUNCTION)
def test_a_view_that_a_function_made_has_the_functions_gradient(name: str, backend: str) -> None:
    """Made again by its view operator it would have that operator's; a change in place would go round the function and is refused."""
    program = OF_A_FUNCTION[name]
    compiler_lab.reset()
    told: list[Any] = []
    for fn in (program, compiler_lab.compile(program, backend=backend)):
        x, outputs = outputs_of(fn, True)
        torch.stack([(t * (i + 2)).sum() for i, t in enumerate(outputs)]).sum().backward()
        with pytest.raises(RuntimeError, match=r"is a view and is being modified inplace\. This view was created inside a custom Function"):
            outputs[-1].add_(1)
        told.append((x.grad, [t._is_view() for t in outputs]))
    torch.testing.assert_close(*told)


def kept_linear(x: Tensor) -> Any:
    """The backward reads the product, of which the first output is another shape."""
    y = F.linear(x.view(1, 2, 3), MADE + 1)
    return y, y * y


@BACKENDS
def test_a_change_of_what_the_backward_reads_is_noticed_through_any_output(backend: str) -> None:
    ours = compiled(kept_linear, backend)
    for fn in (kept_linear, ours):
        _, (y, z) = outputs_of(fn, True)
        assert not y._is_view()
        z.sum().backward(retain_graph=True)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
    _, (y, _) = outputs_of(compiled(kept_linear, backend), False)
    assert y.detach_() is y


@BACKENDS
@pytest.mark.parametrize("program", [kept_linear, through_list, lambda x: (lambda y: (y[0], y * y))(x.exp())])
def test_outputs_and_what_is_kept_are_freed_together(program: Callable[..., Any], backend: str) -> None:
    ours = compiled(program, backend)
    _, outputs = outputs_of(ours, True)
    functions = [t.grad_fn for t in outputs]
    functions = [f if hasattr(f, "saved_tensors") else f.next_functions[0][0] for f in functions if f is not None]  # the graph's own behind a view's
    alive = {weakref.ref(f) for f in functions}
    del outputs, functions
    assert [a() for a in alive] == [None]


def test_the_steps_of_views_are_shared_and_told() -> None:
    def program(x: Any, state: Any) -> Any:
        parts = call(x, torch.unbind, x * 2)
        set_grad(x, False)
        flat = state.view(-1)
        set_grad(x, True)
        return parts[0], parts[1][1:], flat, (x + 1).detach()

    graph = joint(traced(program), randn(2, 3, grad=True), randn(2, 2))
    graph.check()
    assert graph.spec.text().split("\n") == [
        "view 0 = aten.unbind.int(output 4)",
        "view 1 = getitem(view 0, 0)",
        "view 2 = getitem(view 0, 1)",
        "view 3 = aten.slice.Tensor(view 2, 0, 1, 9223372036854775807)",
        "view 4 = aten.view.default(input 1, [-1]) without grad mode",
        "output 0 = view 1",
        "output 1 = view 3",
        "output 2 = view 4",
    ]
    assert graph.spec.text() in graph.text() and (graph.spec.visible, graph.spec.tangents) == (4, (4,))
    assert [(d.subject[0], d.reason) for d in graph.decisions if d.kind == "output"] == [
        ("frames/getitem", "view-of-result"), ("frames/getitem_2", "view-of-result"), ("frames/view", "view-of-input")]  # fmt: skip


@pytest.mark.parametrize(
    ("views", "outputs"),
    [
        ((ViewStep(torch.ops.aten.t.default, ("input", 1)),), (OutputSpec("view", base=0),)),
        ((ViewStep(torch.ops.aten.t.default, ("step", 0)),), (OutputSpec("view", base=0),)),
        ((ViewStep(torch.ops.aten.t.default, ("output", 0)),), (OutputSpec("view", base=0),)),
        ((), (OutputSpec("view", base=0),)),
        ((), (OutputSpec("same", base=0),)),
        ((), (OutputSpec("tensor"),)),
    ],
)
def test_a_spec_that_names_what_is_not_there_is_found(views: tuple[ViewStep, ...], outputs: tuple[OutputSpec, ...]) -> None:
    spec = JointSpec(1, outputs, tangents=(0,) if outputs[0].kind == "tensor" else (), views=views)
    with pytest.raises(InvalidIR):
        spec.check("aot.joint")
