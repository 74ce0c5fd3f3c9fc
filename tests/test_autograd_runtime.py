"""A partition made callable behaves as eager does: gradients, saved tensors, errors, aliases, write-backs."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import compiler_lab
from compiler_lab.aot.functionalize import functionalize
from compiler_lab.aot.ir import JointSpec, OutputSpec, ViewStep
from compiler_lab.aot.joint import joint
from compiler_lab.aot.partition import partition
from compiler_lab.core.fx import boxed
from compiler_lab.core.options import Options
from compiler_lab.graph.passes import eliminate_common_subexpressions, eliminate_dead_code, fold_constants, simplify_views
from compiler_lab.runtime.autograd import bind

from .conftest import run_threads
from .partition_programs import joint_of, programs, rand

DEFAULT = Options(partitioner="default")
EVERY = pytest.mark.parametrize("options", [Options(), DEFAULT], ids=["min_cut", "default"])


def bound(f: Callable[..., Any], *args: Tensor, options: Options = DEFAULT, updates: tuple[int, ...] = (), layouts: bool = True) -> Callable[..., Any]:
    """``f`` compiled as far as a partition run by aten."""
    part = partition(joint_of(f, *args, updates=updates), options)
    part.check()
    backward = part.backward.module.forward if part.backward is not None else None
    return bind(part.spec, len(part.saved), part.forward.module.forward, backward, part.tangents if layouts else ())


def leaves(*args: Tensor) -> list[Tensor]:
    return [a.detach().clone().requires_grad_(a.requires_grad) for a in args]


def tree(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b) and a.dtype == b.dtype and a.shape == b.shape)


def product(a: Tensor, b: Tensor) -> Tensor:
    return (a.exp() * b).sum()


def pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return a.sin() * b, (a @ b).exp()


# -------------------------------------------------------------------------------------------------------- gradients


@EVERY
@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (product, [(4, 4), (4, 4)]),
        (pair, [(4, 4), (4, 4)]),
        (lambda x, w, b: F.gelu(F.linear(x, w, b)).sum(1), [(3, 4), (5, 4), (5,)]),
        (lambda x, w: F.layer_norm(x, (4,), w), [(3, 4), (4,)]),
        (lambda x: x.t().exp(), [(3, 4)]),
        (lambda x, w: F.conv2d(x, w).relu().mean(), [(1, 2, 5, 5), (3, 2, 3, 3)]),
    ],
)
def test_values_and_gradients_are_eagers(f: Callable[..., Any], shapes: list[tuple[int, ...]], options: Options) -> None:
    args = [rand(*s) for s in shapes]
    ours, theirs = leaves(*args), leaves(*args)
    got, expected = tree(bound(f, *args, options=options)(*ours)), tree(f(*theirs))
    assert len(got) == len(expected)
    assert all(same(g, e) and g.requires_grad and g.stride() == e.stride() for g, e in zip(got, expected, strict=True))
    tangents = [torch.randn_like(e) for e in expected]
    torch.autograd.backward(got, tangents)
    torch.autograd.backward(expected, tangents)
    assert all(same(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


@given(programs(), st.sampled_from([Options(), DEFAULT]), st.lists(st.booleans(), min_size=3, max_size=3), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_random_programs(f: Callable[..., Any], options: Options, grads: list[bool], used: int) -> None:
    args = [rand(4, 4, grad=g, dtype=torch.float64) for g in grads]
    ours, theirs = leaves(*args), leaves(*args)
    call = bound(f, *args, options=options)
    results: list[tuple[Any, ...]] = []
    for run, inputs in ((call, ours), (f, theirs)):
        torch.manual_seed(0)
        results.append(tree(run(*inputs)))
    got, expected = results
    assert all(torch.allclose(g, e) and g.requires_grad == e.requires_grad for g, e in zip(got, expected, strict=True))
    chosen = [i for i, e in enumerate(expected) if e.requires_grad and used >> i & 1]  # the other outputs get no tangent
    if chosen:
        for results_of in (got, expected):
            torch.stack([results_of[i].sin().sum() for i in chosen]).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        zero = a.grad is not None and b.grad is None and not a.grad.any()  # an input that only an unused output reads
        assert zero or (a.grad is None) == (b.grad is None)
        assert a.grad is None or b.grad is None or torch.allclose(a.grad, b.grad, equal_nan=True)


@EVERY
@pytest.mark.parametrize("used", [0, 1])
def test_an_output_without_a_tangent_counts_as_zeros(used: int, options: Options) -> None:
    args = (rand(4, 4), rand(4, 4))
    ours, theirs = leaves(*args), leaves(*args)
    bound(pair, *args, options=options)(*ours)[used].sum().backward()
    pair(*theirs)[used].sum().backward()
    assert all(same(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_gradients_accumulate() -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    call = bound(product, a, b)
    call(a, b)[0].backward()
    assert a.grad is not None
    once = a.grad.clone()
    call(a, b)[0].backward()
    assert torch.equal(a.grad, once * 2)


def test_gradients_have_memory_of_their_own() -> None:
    """Both gradients of a sum are the tangent; what accumulates in .grad is neither it nor the other."""
    a, b = leaves(rand(4), rand(4))
    tangent = torch.ones(4)
    bound(lambda a, b: a + b, rand(4), rand(4))(a, b)[0].backward(tangent)
    assert a.grad is not None and b.grad is not None
    assert len({a.grad.data_ptr(), b.grad.data_ptr(), tangent.data_ptr()}) == 3


def test_only_what_is_asked_for() -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    call = bound(product, a, b)
    (only,) = torch.autograd.grad(call(a, b)[0], [b])
    assert torch.equal(only, a.exp())
    a.requires_grad_(False)
    call(a, b)[0].backward()
    assert a.grad is None and b.grad is not None


@pytest.mark.parametrize("layouts", [True, False], ids=["layouts", "learned"])
@pytest.mark.parametrize("make", [lambda o: o.sum(), lambda o: o.t().contiguous().exp().sum(), lambda o: (o * o.flip(0)).sum(), lambda o: o[::2].sum()])
def test_a_tangent_comes_in_any_layout(make: Callable[[Tensor], Tensor], layouts: bool) -> None:
    """A sum's tangent is an expanded scalar; the backward reshapes it, which only its own layout allows."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        return (x.view(2, 8) @ w).view(4, 4)

    args = (rand(4, 4), rand(8, 8))
    ours, theirs = leaves(*args), leaves(*args)
    make(bound(f, *args, layouts=layouts)(*ours)[0]).backward()
    make(f(*theirs)).backward()
    assert all(same(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_a_sparse_tangent() -> None:
    (w,) = leaves(rand(6, 3))
    call = bound(lambda w: w * 2, rand(6, 3))
    F.embedding(torch.tensor([1, 4, 1]), call(w)[0], sparse=True).sum().backward()
    expected = torch.zeros(6, 3)
    expected[1], expected[4] = 4.0, 2.0
    assert w.grad is not None and torch.equal(w.grad, expected)


# -------------------------------------------------------------------------------------------------------- saved tensors


@EVERY
def test_twice_without_retain_graph_is_torchs_own_error(options: Options) -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    (out,) = bound(product, a, b, options=options)(a, b)
    out.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        out.backward()


def test_retain_graph() -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    (out,) = bound(product, a, b)(a, b)
    out.backward(retain_graph=True)
    assert b.grad is not None
    once = b.grad.clone()
    out.backward()
    assert torch.equal(b.grad, once * 2)


def test_changing_a_kept_input_in_place_is_torchs_own_error() -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    c = b * 1
    (out,) = bound(product, a, b)(a, c)
    c.data.add_(0)  # hidden from autograd, in eager as here
    with torch.no_grad():
        c.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_changing_a_kept_output_in_place_is_torchs_own_error() -> None:
    (a,) = leaves(rand(4))
    (out,) = bound(lambda a: a.exp(), rand(4))(a)
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_an_output_that_is_not_kept_may_be_changed_in_place() -> None:
    ours, theirs = leaves(*(args := (rand(4), rand(4)))), leaves(*args)
    for run, (a, b) in ((lambda a, b: bound(lambda a, b: a * b, *args)(a, b)[0], ours), (lambda a, b: a * b, theirs)):
        out = run(a, b)
        out.mul_(3)
        out.sum().backward()
    assert all(same(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_saved_tensor_hooks_see_what_is_kept() -> None:
    packed: list[Tensor] = []
    a, b = leaves(rand(4, 4), rand(4, 4))
    call = bound(product, a, b)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t * 1, lambda t: t):
        (out,) = call(a, b)
    out.backward()
    assert len(packed) == 2 and b.grad is not None and torch.equal(b.grad, a.exp())  # exp(a), b


def test_kept_values_are_freed_by_the_backward() -> None:
    import gc
    import weakref

    alive: list[Any] = []

    def forward(a: Tensor) -> tuple[Tensor, Tensor]:
        kept = a.exp()
        alive.append(weakref.ref(kept))
        return kept * 2, kept

    spec = JointSpec(1, (OutputSpec("tensor", True),), (), (True,), (0,))
    (a,) = leaves(rand(4))
    (out,) = bind(spec, 1, forward, lambda kept, t: (kept * t * 2,))(a)
    out.sum().backward()
    gc.collect()
    assert out.grad_fn is not None and alive[0]() is None


def layers(x: Tensor, w: Tensor, depth: int) -> Tensor:
    for _ in range(depth):
        x = torch.tanh(x @ w)
    return x.sum()


class Living(TorchDispatchMode):
    """How many of the tensors that ``kept`` refers to are alive when each product of two matrices runs."""

    def __init__(self, kept: list[Any]) -> None:
        super().__init__()
        self.kept, self.counts = kept, list[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._opname == "mm":
            self.counts.append(sum(k() is not None for k in self.kept))
        return func(*args, **(kwargs or {}))


def seen(fn: Callable[..., Any], backend: Any) -> Any:
    """Compiled so that a dispatch mode sees the calls of aten: by the wrapper in Python, which frees where the one in C does."""
    return compiler_lab.compile(fn, backend=backend, options={"wrapper": "python"} if backend == "lab" else None)


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("retain", [False, True], ids=["once", "retained"])
@pytest.mark.parametrize("depth", [6, 40])
@pytest.mark.parametrize("backend", ["python", "aot_eager", "lab", "inner"])
def test_kept_values_are_freed_while_the_backward_runs(backend: str, depth: int, retain: bool) -> None:
    """Each after its last use, as in eager, however many the backward takes; what is kept for another time stays."""
    compiler_lab.reset()
    inner = compiler_lab.aot_autograd(lambda gm, _: boxed(gm))
    call = layers if backend == "python" else seen(layers, inner if backend == "inner" else backend)
    x, w = leaves(rand(8, 8), rand(8, 8))
    call(x, w, depth)
    kept: list[Any] = []

    def pack(t: Tensor) -> Tensor:
        if t is x or t is w:
            return t
        made = t.clone()
        kept.append(weakref.ref(made.untyped_storage()))
        return made

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call(x, w, depth)
    assert len(kept) >= depth - 1
    with Living(kept) as living:
        out.backward(retain_graph=retain)
    if retain:
        assert living.counts[-1] == len(kept) and all(k() is not None for k in kept)
    else:
        assert living.counts[-1] <= 1 and len(set(living.counts)) >= 5, living.counts


BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", "lab"])
BOXED = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Whether this torch can hand over tangents in a list: before, a tuple holds them until the backward returns."""


@pytest.mark.usefixtures("unhooked")
@BACKENDS
def test_a_tangent_is_freed_after_its_last_use(backend: str) -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        return x @ w @ w @ w

    compiler_lab.reset()
    call = seen(chain, backend)
    x, w = leaves(rand(8, 8), rand(8, 8))
    call(x, w).sum().backward()
    kept: list[Any] = []
    out = call(x, w)
    out.register_hook(lambda g: kept.append(weakref.ref(g.untyped_storage())))
    with Living(kept) as living:
        out.exp().sum().backward()
    assert living.counts == [1, 1, *([0] * 4 if BOXED else [1] * 4)]
    tangent = torch.ones(8, 8)
    call(x, w).backward(tangent)
    assert torch.equal(tangent, torch.ones(8, 8))


@pytest.mark.usefixtures("unhooked")
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a")
@BACKENDS
def test_under_compiled_autograd(backend: str) -> None:
    """It asks nodes for what they hold and exchanges that for fake tensors; it must find no reason to stop in the middle, and leave nothing fake."""
    from torch._dynamo import compiled_autograd

    def wanted(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ w).tanh(), (x + 1).exp()

    compiler_lab.reset()
    call = compiler_lab.compile(wanted, backend=backend)
    x, w = leaves(rand(4, 4), rand(4, 4))
    expected = torch.autograd.grad([o.square().sum() for o in wanted(x, w)], [x, w])
    enabled: Any = getattr(compiled_autograd, "_enable")  # noqa: B009 (private)
    for compiled in (True, False, True):
        x.grad = w.grad = None
        with enabled(lambda gm: gm) if compiled else contextlib.nullcontext():
            a, b = call(x, w)
            (a.square().sum() + b.square().sum()).backward()
        for found, truth in zip((x.grad, w.grad), expected, strict=True):
            assert type(found) is Tensor and torch.allclose(found, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("unhooked")
@BACKENDS
def test_a_node_called_by_hand_takes_tangents_one_by_one(backend: str) -> None:
    compiler_lab.reset()
    a, b = leaves(rand(4, 4), rand(4, 4))
    out = compiler_lab.compile(lambda a, b: a.exp() * b, backend=backend)(a, b)
    node: Any = out.grad_fn
    found = node.apply(torch.ones(4, 4))
    expected = torch.autograd.grad(out, [a, b], torch.ones(4, 4))
    assert node.name() == "CompiledFunctionBackward" and all(any(torch.equal(f, e) for f in found) for e in expected)


# -------------------------------------------------------------------------------------------------------- modes


def counting(calls: list[str], name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        assert not torch.is_grad_enabled()
        calls.append(name)
        return f(*args)

    return run


SPEC = JointSpec(1, (OutputSpec("tensor", True),), (), (True,), (0,))


def test_without_grad_only_the_forward_runs() -> None:
    calls: list[str] = []
    call = bind(SPEC, 1, counting(calls, "forward", lambda a: (a * 2, a)), counting(calls, "backward", lambda s, t: (t * 2,)))
    (a,) = leaves(rand(4))
    with torch.no_grad():
        (out,) = call(a)
    assert not out.requires_grad and out.grad_fn is None
    (out,) = call(a.detach())
    assert not out.requires_grad
    with torch.inference_mode():
        (out,) = call(a)
        assert out.is_inference()
    (out,) = call(a)
    assert out.grad_fn is not None
    out.sum().backward()
    assert calls == ["forward"] * 4 + ["backward"] and torch.is_grad_enabled()
    assert a.grad is not None and torch.equal(a.grad, torch.full((4,), 2.0))


def test_a_program_without_backward_records_nothing() -> None:
    calls: list[str] = []
    call = bind(JointSpec(1, (OutputSpec("tensor"),)), 0, counting(calls, "forward", lambda a: (a * 2,)), None)
    (a,) = leaves(rand(4))
    assert not call(a)[0].requires_grad and torch.is_grad_enabled()


def test_grad_mode_comes_back_after_an_error() -> None:
    def fail(*args: Any) -> Any:
        raise ValueError("no")

    (a,) = leaves(rand(4))
    for call in (bind(SPEC, 0, fail, fail), bind(JointSpec(1, ()), 0, fail, None)):
        with pytest.raises(ValueError):
            call(a)
        assert torch.is_grad_enabled()


def test_autocast_does_not_cast_a_second_time() -> None:
    args = (rand(4, 4), rand(4, 4))
    a, b = leaves(*args)
    call = bound(lambda a, b: a @ b, *args)
    with torch.autocast("cpu", torch.bfloat16):
        (out,) = call(a, b)
        assert out.dtype == torch.float32
        out.sum().backward()
        with torch.no_grad():
            assert call(a, b)[0].dtype == torch.float32
    assert a.grad is not None and a.grad.dtype == torch.float32 and torch.equal(a.grad, torch.ones(4, 4) @ b.t())


def test_second_derivatives_say_what_to_do() -> None:
    a, b = leaves(rand(4, 4), rand(4, 4))
    (out,) = bound(product, a, b)(a, b)
    (grad,) = torch.autograd.grad(out, [a], create_graph=True)
    assert torch.equal(grad, a.exp() * b)
    with pytest.raises(RuntimeError, match=r"gradient of its gradient.*uncompiled"):
        grad.sum().backward()


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_create_graph_that_nobody_follows_is_fine() -> None:
    ours, theirs = leaves(*(args := (rand(4, 4), rand(4, 4)))), leaves(*args)
    bound(product, *args)(*ours)[0].backward(create_graph=True)
    product(*theirs).backward()
    assert all(same(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_gradient_penalty_is_an_error_and_not_a_wrong_gradient() -> None:
    """The tangent does not require grad here, but the gradient depends on the input all the same."""
    (a,) = leaves(rand(4))
    (out,) = bound(lambda a: a.pow(3).sum(), rand(4))(a)
    (grad,) = torch.autograd.grad(out, [a], create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of its gradient"):
        (out + grad.pow(2).sum()).backward()


@pytest.mark.parametrize("before", [lambda a: a, lambda a: a.exp()], ids=["leaf", "intermediate"])
@pytest.mark.parametrize("allow_unused", [True, False])
def test_asked_for_one_leaf_second_derivatives_are_not_called_unused(before: Callable[[Tensor], Tensor], allow_unused: bool) -> None:
    (a,) = leaves(rand(4))
    (out,) = bound(lambda a: a.tanh().sum(), rand(4))(before(a))
    (grad,) = torch.autograd.grad(out, [a], create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of its gradient"):
        torch.autograd.grad(grad.sum(), [a], allow_unused=allow_unused)


# -------------------------------------------------------------------------------------------------------- outputs and inputs


def test_integer_outputs_are_not_differentiable() -> None:
    args = (rand(4, 4),)
    (a,) = leaves(*args)
    values, places = bound(lambda a: tuple(a.max(1)), *args)(a)
    assert values.requires_grad and not places.requires_grad and places.dtype == torch.int64
    values.sum().backward()
    assert a.grad is not None and torch.equal(a.grad, F.one_hot(a.argmax(1), 4).float())


def test_aliases_and_constants_are_put_together_at_the_call() -> None:
    outputs = (
        OutputSpec("tensor", True),
        OutputSpec("input", True, 0),
        OutputSpec("view", True, 0),
        OutputSpec("same", True, 0),
        OutputSpec("constant", constant=7),
        OutputSpec("view", False, 1),
    )
    slice_, detach = torch.ops.aten.slice.Tensor, torch.ops.aten.detach.default
    views = (ViewStep(slice_, ("input", 0), (0, 1, 9, 2)), ViewStep(detach, ("input", 0)))
    spec = JointSpec(1, outputs, (), (True,), (0,), views=views)
    call = bind(spec, 0, lambda a: (a * 2, None, None, None, None, None), lambda t: (t * 2,))
    (whole,) = leaves(rand(6))
    a = whole[2:]  # the same graph serves a base anywhere in its storage
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            out, itself, view, again, seven, cut = call(a)
            eager = a[1::2]
        assert itself is a and again is out and seven == 7
        assert torch.equal(view, eager) and view.data_ptr() == eager.data_ptr() and view.requires_grad == eager.requires_grad
        assert out.requires_grad == mode and not cut.requires_grad and cut.data_ptr() == a.data_ptr()
    out, _, view, *_ = call(a)
    (out.sum() + 10 * view.sum()).backward()
    assert whole.grad is not None and torch.equal(whole.grad, torch.tensor([0.0, 0.0, 2.0, 12.0, 2.0, 12.0]))


@EVERY
def test_overwritten_inputs_are_written_back(options: Options) -> None:
    """Running statistics: read, used for the output, and replaced; the gradient uses what was read."""

    def f(running: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return running * 0.9 + x.detach() * 0.1, running * x * x

    args = (rand(4, grad=False), rand(4))
    ours, theirs = leaves(*args), leaves(*args)
    call = bound(f, *args, options=options, updates=(0,))
    version = ours[0]._version
    (out,) = call(*ours)
    new, expected = f(*theirs)
    assert torch.equal(ours[0], new) and ours[0]._version > version and not ours[0].requires_grad
    assert torch.equal(out, expected)
    out.sum().backward()
    expected.sum().backward()
    assert same(ours[1].grad, theirs[1].grad)


def test_inputs_are_written_back_without_grad_too() -> None:
    call = bound(lambda p, g: (p - g, g * 2), rand(4, grad=False), rand(4, grad=False), updates=(0,))
    p = torch.nn.Parameter(torch.ones(4))  # an optimizer's step
    with torch.no_grad():
        call(p, torch.ones(4))
    assert torch.equal(p, torch.zeros(4)) and p.is_leaf


def test_an_overwritten_input_that_another_program_kept_is_torchs_own_error() -> None:
    (w,) = leaves(rand(4))
    x = torch.ones(4)
    (kept,) = bound(lambda x, w: x * w, rand(4, grad=False), rand(4))(x, w)
    bound(lambda x: (x + 1, x * 2), rand(4, grad=False), updates=(0,))(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def swap(x: Tensor, y: Tensor) -> Tensor:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return old * 2


def inplace_views(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = x * w
    y[0].mul_(2)
    y.t().add_(x)
    return y, y.sum() * w


def mutate_and_return(x: Tensor, w: Tensor) -> tuple[Any, ...]:
    out = (x + 2) * w
    x.add_(1)
    return out, x, x.view(-1), x[1:], out, 3, w.t(), x.sum() * w


def batch_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, w, b, training=True))


@EVERY
@pytest.mark.parametrize(
    ("f", "make"),
    [
        (swap, lambda: (rand(4, grad=False), rand(4, grad=False))),
        (inplace_views, lambda: (rand(4, 4), rand(4, 4))),
        (mutate_and_return, lambda: (rand(4, 4, grad=False), rand(4, 4))),
        (mutate_and_return, lambda: (rand(4, 4, grad=False), rand(4, 4, grad=False))),
        (batch_norm, lambda: (rand(3, 4, 5), rand(4), rand(4), torch.zeros(4), torch.ones(4))),
    ],
)
def test_mutation_and_aliases_from_the_program_to_the_call(f: Callable[..., Any], make: Callable[[], tuple[Tensor, ...]], options: Options) -> None:
    """Traced, made pure, cleaned up, partitioned, bound: values, what shares memory with what, inputs afterwards, gradients."""
    torch.manual_seed(0)
    args = make()
    ours, theirs = leaves(*args), leaves(*args)
    graph = functionalize(joint(fx.symbolic_trace(f), *args))
    for one in (eliminate_dead_code, simplify_views, eliminate_common_subexpressions, fold_constants):
        graph = one(graph)
    part = partition(graph, options)
    part.check()
    backward = part.backward.module.forward if part.backward is not None else None
    call = bind(part.spec, len(part.saved), part.forward.module.forward, backward, part.tangents)
    for _ in range(2):
        got, expected = call(*ours), tree(f(*theirs))
        seen = [[*outs, *ins] for outs, ins in ((got, ours), (expected, theirs))]
        assert all(torch.allclose(g, e) and g.requires_grad == e.requires_grad if isinstance(e, Tensor) else g == e for g, e in zip(*seen, strict=True))
        assert shared(seen[0]) == shared(seen[1])
        for outs in (got, expected):
            losses = [o.sin().sum() for o in outs if isinstance(o, Tensor) and o.requires_grad]
            if losses:
                torch.stack(losses).sum().backward()
        assert all((a.grad is None) == (b.grad is None) for a, b in zip(ours, theirs, strict=True))
        assert all(b.grad is None or (a.grad is not None and torch.allclose(a.grad, b.grad)) for a, b in zip(ours, theirs, strict=True))


def shared(values: list[Any]) -> list[tuple[int, int]]:
    places = [(i, v.untyped_storage().data_ptr()) for i, v in enumerate(values) if isinstance(v, Tensor)]
    return [(i, next(j for j, q in places if q == p)) for i, p in places]


def test_calls_from_many_threads() -> None:
    args = (rand(4, 4), rand(4, 4))
    call = bound(pair, *args, layouts=False)

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            a, b = (torch.randn(4, 4, generator=generator).requires_grad_() for _ in range(2))
            c, d = leaves(a, b)
            call(a, b)[1].sum().backward()
            pair(c, d)[1].sum().backward()
            assert same(a.grad, c.grad) and same(b.grad, d.grad)

    run_threads([partial(work, i) for i in range(4)])
