"""Symbolic sizes through the stages of autograd: one compile serves all sizes, equal to Python in outputs, gradients and what became of the inputs."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab.aot.ir import GraphNumber, JointGraph
from compiler_lab.core.errors import ConstraintViolated
from compiler_lab.core.options import Options
from compiler_lab.core.sizes import hint
from compiler_lab.core.sizes import same as same_sizes
from compiler_lab.core.strides import is_dense
from compiler_lab.observe.trace import Step

from . import size_programs
from .conftest import same
from .corpus import CORPUS

BACKENDS = ["aot_eager", "aot_eager_decomp"]
Program = Callable[..., Any]


def resized(value: Any, sizes: dict[int, int]) -> Any:
    """A tensor of the same kind, whose dimensions have other sizes."""
    if not isinstance(value, Tensor):
        return value
    shape = [sizes.get(n, n) for n in value.shape]
    if value.dtype.is_floating_point:
        return torch.randn(shape, dtype=value.dtype).requires_grad_(value.requires_grad)
    low, high = (int(value.min()), int(value.max()) + 1) if value.numel() else (0, 1)
    return torch.randint(low, high, shape, dtype=value.dtype)


def open_sizes(fn: Program, args: Sequence[Any]) -> set[int]:
    """Sizes of the arguments that no parameter or buffer has."""
    held = {n for t in (*fn.parameters(), *fn.buffers()) for n in t.shape} if isinstance(fn, nn.Module) else set[int]()
    return {n for a in args if isinstance(a, Tensor) for n in a.shape if n > 1} - held


def outcome(fn: Program, args: Sequence[Any]) -> Any:
    """Outputs, gradients, arguments and buffers after the call; or what it raises."""
    args = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args]
    leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad] + (list(fn.parameters()) if isinstance(fn, nn.Module) else [])
    try:
        out = fn(*args)
        given = [t for t in tree_leaves(out) if isinstance(t, Tensor) and t.requires_grad]
        loss: Any = sum((t.double().square().sum() for t in given), torch.zeros(()))
        gradients: Any = torch.autograd.grad(loss, leaves, allow_unused=True) if given and leaves else ()
    except Exception as error:  # noqa: BLE001 - what a program raises is a result
        return type(error)
    buffers = [b.clone() for b in fn.buffers()] if isinstance(fn, nn.Module) else []
    return out, [None if g is None else g.contiguous() for g in gradients], [a.detach() if isinstance(a, Tensor) else a for a in args], buffers


def assert_compiled_once(fn: Program, calls: Sequence[Sequence[Any]], backend: str, graphs: int = 1) -> list[Step]:
    """Holds each call equal to Python's, and gives the steps of the compiles, of which there are ``graphs``, all symbolic."""
    steps: list[Step] = []
    compiler_lab.reset()
    other = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
    compiled = compiler_lab.compile(other, backend=backend, dynamic=True, fullgraph=True, observe=steps.append)
    for args in calls:
        want = outcome(fn, args)
        same(outcome(compiled, args), want, rtol=1e-4, atol=1e-4)
    joints = [s.after for s in steps if isinstance(s.after, JointGraph) and s.name == "joint"]
    assert compiler_lab.stats()["graphs"] == len(joints) == graphs and all(j.spec.symbolic for j in joints)
    return steps


@pytest.mark.parametrize(("name", "backend"), [(name, BACKENDS[i % 2]) for i, name in enumerate(CORPUS)])  # each backend on every other one
def test_corpus(name: str, backend: str) -> None:
    fn, args = CORPUS[name]()
    sizes = open_sizes(fn, args)
    fixed = {"layer_norm_residual": {48}, "embedding_norm": {24}}.get(name, set())  # the program names this size
    calls = [[resized(a, {n: n + more for n in sizes - fixed}) for a in args] for more in (0, 1, 5, 2)]
    for step in assert_compiled_once(fn, calls, backend):
        step.after.check()
        assert step.after.text() == step.after.text()


# what is hard about sizes


def size_as_number(x: Tensor) -> Any:
    n = x.shape[0]
    return x * n, x / math.sqrt(n), x + n / 2, x * (n * 0.1 + 1), x.sum() / x.numel(), n * 3, n / 7, int(n / 2), torch.ones(n) * n


def views_out(x: Tensor) -> Any:
    n = x.shape[0]
    y = x * 2
    return x[: n // 2], y[n // 2 :], y.view(-1), y.t(), x.t()[1:], y[None].expand(3, n, 4), y.unflatten(1, (2, -1)), x.narrow(0, 1, n - 1)


def in_place(x: Tensor, y: Tensor) -> Any:
    n = y.shape[0]
    with torch.no_grad():
        y[: n // 2] += 1
        y.t()[0].mul_(n)
    z = x * y
    z[n // 2 :] = 0.5
    z[:, 1].add_(n)
    z.view(-1)[: n - 1].zero_()
    return z, y.sum()


def written_input(x: Tensor, y: Tensor) -> Any:
    y.mul_(y.shape[0])
    return x * y.sum(0), y[1:]


def normalised(x: Tensor) -> Any:
    return F.layer_norm(x, x.shape[1:]), F.batch_norm(x, None, None, training=True), x.var(0), x.std(), F.group_norm(x[None, :, None], 1), F.normalize(x)


def losses(x: Tensor) -> Any:
    t = torch.arange(x.shape[0]) % 4
    return F.cross_entropy(x, t), F.mse_loss(x, x.detach() * 2), F.nll_loss(x, t, reduction="none"), F.smooth_l1_loss(x, torch.zeros_like(x))


def attention(x: Tensor) -> Any:
    q = x[None, None]
    return F.scaled_dot_product_attention(q, q * 2, q + 1), F.scaled_dot_product_attention(q, q, q, is_causal=True)


def shapes_made(x: Tensor) -> Any:
    n, m = x.shape
    return torch.cat([x, x[1:]]), torch.stack([x, x]), x.repeat(2, 1), F.pad(x, (1, 2)), x.reshape(2, -1), torch.zeros(n, m) + x, torch.eye(n) @ x, x.tril()


def gathered(x: Tensor) -> Any:
    i = torch.arange(x.shape[0]).flip(0)
    return x[i], x.gather(0, i[:, None].expand(-1, 2)), x.index_add(0, i, x), F.embedding(i, x), x.scatter(0, i[:, None], 1.0), x.roll(1, 0), x.sort(0)[0]


def pooled(x: Tensor) -> Any:
    y = x[None, None]
    return F.avg_pool2d(y, 2), F.max_pool2d(y, 2), F.adaptive_avg_pool2d(y, 1), F.conv2d(y, torch.ones(2, 1, 2, 2)), F.interpolate(y, scale_factor=2)


def chunks(x: Tensor) -> Any:
    a, b = x.chunk(2, 1)
    c, d = x.t().split([1, 3])
    return a * b, c + d, torch.cat([p * 2 for p in x.unbind(1)])


HARD = [size_as_number, views_out, in_place, written_input, normalised, losses, attention, shapes_made, gathered, pooled, chunks]


@pytest.mark.parametrize(("fn", "backend"), [(fn, BACKENDS[(i + 1) % 2]) for i, fn in enumerate(HARD)], ids=lambda v: getattr(v, "__name__", v))
def test_one_compile_serves_all_sizes(fn: Program, backend: str) -> None:
    second = fn.__code__.co_argcount == 2
    calls = [(torch.randn(n, 4).abs().requires_grad_(), *((torch.randn(n, 4),) if second else ())) for n in (6, 4, 10, 100)]
    assert_compiled_once(fn, calls, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_depends_on_a_size_is_compiled_again_or_is_right(backend: str) -> None:
    def broadcast(x: Tensor, y: Tensor) -> Any:
        return (x + y).softmax(0) * x.shape[0]

    calls: list[Any] = [(torch.randn(n, 4, requires_grad=True), torch.randn(m, 4)) for n, m in [(5, 5), (5, 1), (1, 5), (1, 1), (3, 3), (0, 0), (0, 1), (7, 1)]]
    steps = assert_compiled_once(broadcast, calls[:1] + calls[4:5], backend)
    guards = steps[-1].after.text()
    assert "L['x'].size(0) == L['y'].size(0)" in guards or "L['y'].size(0) == L['x'].size(0)" in guards
    compiled = compiler_lab.compile(broadcast, backend=backend, dynamic=True)
    for args in calls:
        same(outcome(compiled, args), outcome(broadcast, args), rtol=1e-4, atol=1e-4)

    def equal(x: Tensor) -> Any:
        return x @ x.t() if x.shape[0] != x.shape[1] else x @ x

    strided = torch.randn(12, 12)
    tensors = [torch.randn(3, 5), torch.randn(4, 4), strided[:6, :5], strided[:7, ::2], strided.t()[:5, :4], torch.randn(1, 4).expand(3, 4), torch.randn(9, 2)]
    compiled = compiler_lab.compile(equal, backend=backend, dynamic=True)
    for x in tensors:
        torch.testing.assert_close(compiled(x), equal(x))


def test_guards_that_the_compile_needs_are_kept() -> None:
    """A backend that assumes something of a size is asked again where that does not hold."""
    seen: list[int] = []

    def small_only(gm: fx.GraphModule, args: list[Any]) -> Any:
        (node,) = gm.graph.find_nodes(op="placeholder")
        seen.append(10 if bool(node.meta["val"].shape[0] < 10) else 100)
        return gm.forward

    compiled = compiler_lab.compile(lambda x: x + 1, backend=small_only, dynamic=True)
    for n in (5, 7, 20, 9, 30):
        compiled(torch.randn(n))
    assert seen == [10, 100]
    first, second = sorted(compiled._compiled_function.entries, key=lambda e: e.tree.check({"x": torch.randn(50)}))
    assert "L['x'].size(0) < 10" in first.tree.text() and "L['x'].size(0) >= 10" in second.tree.text()
    failure = first.tree.explain({"x": torch.randn(50)})
    assert failure is not None and failure.expected == "L['x'].size(0) < 10" and "lambda x" in failure.text()

    def fixed(gm: fx.GraphModule, args: list[Any]) -> Any:
        int(gm.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0])
        return gm.forward

    x = torch.randn(5)
    compiler_lab.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolated, match="marked dynamic"):
        compiler_lab.compile(lambda x: x + 1, backend=fixed)(x)


# the form of the graphs


def captured(fn: Program, *args: Any) -> fx.GraphModule:
    found: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, _: list[Any]) -> Any:
        found.append(gm)
        return gm.forward

    compiler_lab.compile(fn, backend=keep, dynamic=True, fullgraph=True)(*args)
    return found[0]


def operators(graph: fx.Graph) -> Counter[str]:
    graph.eliminate_dead_code()
    skipped = ("detach", "alias")
    return Counter(n.target.__name__ for n in graph.nodes if n.op == "call_function" and not n.target.__name__.startswith(skipped))  # type: ignore[union-attr]


FORMS: dict[str, Program] = {
    "mean": lambda x: x.mean(0) * x.shape[0],
    "cat": lambda x: torch.cat([x, x]).view(-1) * 2,
    "product": lambda x: (x @ x.t()).softmax(-1) / x.shape[1],
    "slice": lambda x: x[x.shape[0] // 2 :].sin(),
    "expand": lambda x: x.sum(0).expand(x.shape) + torch.ones(x.shape[0], 1),
    "number": lambda x: x * (x.shape[0] * 2 + x.shape[1]),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_graph_is_that_of_make_fx(name: str) -> None:
    fn = FORMS[name]

    def both(x: Tensor, tangent: Tensor) -> Any:
        out = fn(x)
        return out, torch.autograd.grad(out, x, tangent)

    x = torch.randn(6, 4, requires_grad=True)
    ours = compiler_lab.joint(captured(fn, x))
    ours.check()
    theirs = make_fx(both, tracing_mode="symbolic")(x, torch.randn_like(fn(x)))
    mine, other = operators(ours.graph), operators(theirs.graph)
    numbers = {"add", "mul", "sub", "floordiv", "sym_size.int", "sym_numel.default", "sym_stride.int"}
    assert {k: v for k, v in mine.items() if k not in numbers} == {k: v for k, v in other.items() if k not in numbers}
    assert sum(mine[k] for k in numbers) <= sum(other[k] for k in numbers)
    assert all(n.meta["parents"] and n.meta["stack"] for n in ours.graph.nodes if n.op == "call_function")


@pytest.mark.parametrize("name", ["gpt_block", "conv_net_training", "in_place_on_intermediate", "views_out", "rotary"])
def test_symbols_cost_no_operator(name: str) -> None:
    """The tensor operators of the pure graph are those of the same program with numbers: no copy comes in because something is not known."""
    fn, args = CORPUS[name]()
    pure = [compiler_lab.functionalize(compiler_lab.joint(gm)) for gm in (captured(fn, *args), captured_static(fn, *args))]
    counts = [Counter(str(n.target) for n in g.graph.nodes if n.op == "call_function" and not isinstance(n.meta["val"], torch.SymInt)) for g in pure]
    assert counts[0] == counts[1]


def test_artifacts_run_on_other_sizes() -> None:
    def fn(x: Tensor, w: Tensor, k: int) -> Any:
        y = (x @ w).tanh()
        return y * k, y[x.shape[0] // 2 :], k + x.shape[0], torch.cat([y, y]).sum() / y.numel()

    compiler_lab.reset()
    gm = captured(fn, torch.randn(5, 4), torch.randn(4, 3, requires_grad=True), 7)
    joint = compiler_lab.joint(gm)
    assert joint.spec.numbers == (2,) and [o.kind for o in joint.spec.outputs] == ["tensor", "view", "number", "tensor", "tensor", "number"]
    assert isinstance(joint.spec.views[0].args[1], GraphNumber) and "output 5" in joint.spec.text()
    pure = compiler_lab.functionalize(joint)
    opened = compiler_lab.decompose(pure)
    part = compiler_lab.partition(opened)
    for artifact in (joint, pure, opened, part):
        artifact.check()
        for n in (8, 2, 3):
            x, w = torch.randn(n, 4), torch.randn(4, 3, requires_grad=True)
            want = fn(x, w, n + 1)
            tangents = [torch.randn_like(want[0]), torch.randn_like(want[3]), torch.randn(n, 3)]
            got = artifact.run(x, w.detach(), n + 1, *tangents)
            same((got[0], got[2], got[3], got[5]), (want[0].detach(), want[2], want[3].detach(), n // 2), rtol=1e-5, atol=1e-6)
            y = (x @ w).tanh()
            gradient = torch.autograd.grad((want[0], want[3], y), w, tangents)[0]
            same(got[6 : 6 + 3], (None, gradient, None), rtol=1e-5, atol=1e-6)
    assert part.backward is not None and {type(p.meta["val"]) for p in part.backward.placeholders} == {torch.SymInt, type(joint.placeholders[0].meta["val"])}


@pytest.mark.parametrize("partitioner", ["min_cut", "default"])
def test_of_what_is_read_for_its_size_the_size_is_kept(partitioner: Any) -> None:
    gm = captured(lambda x: x.mean(0) * x.shape[0] + x.sum(), torch.randn(6, 4, requires_grad=True))
    part = compiler_lab.partition(compiler_lab.functionalize(compiler_lab.joint(gm)), Options(partitioner=partitioner))
    assert part.backward is not None and part.saved and part.saved_bytes == 8 * len(part.saved) <= 16
    assert all(isinstance(p.meta["val"], torch.SymInt) for p in part.backward.placeholders[: len(part.saved)])


def test_plans_do_not_depend_on_the_sizes_of_the_first_call_where_they_need_not() -> None:
    """The partition's costs are those of the first call, and no decision becomes a guard."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w).sin().sum() + F.layer_norm(x, x.shape[1:]).sum()

    gm = captured(fn, torch.randn(6, 4, requires_grad=True), torch.randn(4, 8, requires_grad=True))
    env = next(n.meta["val"].fake_mode.shape_env for n in gm.graph.nodes if n.op == "placeholder")
    before = list(env.guards)
    joint = compiler_lab.joint(gm)
    for budget in (1.0, 0.5, 0.0):
        part = compiler_lab.partition(compiler_lab.decompose(compiler_lab.functionalize(joint)), Options(activation_memory_budget=budget))
        assert part.saved_bytes > 0
    assert env.guards == before


def test_questions_about_sizes() -> None:
    gm = captured(lambda x, y: x @ y, torch.randn(6, 4), torch.randn(4, 8))
    x, y = (n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder")
    n, m, env = x.shape[0], x.shape[1], x.fake_mode.shape_env
    before = len(env.guards)
    assert same_sizes(m, y.shape[0]) and not same_sizes(n, m) and same_sizes((2 * n, 3), (n + n, 3)) and not same_sizes((n,), (n, n))
    assert (hint(n), hint(3), hint(n * m)) == (6, 3, 24)
    assert is_dense((n, m), (m, 1)) and is_dense((n, m), (1, n)) and is_dense((n - 1, m), (m, 1)) and not is_dense((n, m), (0, 1))
    assert len(env.guards) == before
    assert not is_dense((n, m), (2 * m, 1))


# refusals, and the way around them


def test_what_is_refused_is_compiled_by_size() -> None:
    """The reason is a decision of the graph; the results are right."""

    def program(x: Tensor) -> Tensor:
        return (x * (x.shape[0] * 0.1 * 10 * 3)).sin()

    def refusing(x: Tensor) -> Tensor:
        y = x.clone()
        y[: x.shape[0] // 2].copy_(y[x.shape[0] - x.shape[0] // 2 :])
        return y

    for fn, backend, reason in ((program, "lab", None), (refusing, "aot_eager", "aliased-arguments")):
        steps: list[Step] = []
        compiled = compiler_lab.compile(fn, backend=backend, dynamic=True, observe=steps.append)
        for n in (4, 6, 9):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x), fn(x))
        joints = [s for s in steps if s.name == "joint"]
        found = [d for s in joints if s.before is not None for d in s.before.decisions if d.kind == "sizes"]
        symbolic = [s for s in joints if isinstance(s.after, JointGraph) and s.after.spec.symbolic]
        assert (len(symbolic) == 1 and not found) or [d.facts["reason"] for d in found][:1] == [reason or "dynamic shapes"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_from_data(backend: str) -> None:
    def scaled(x: Tensor, i: Tensor) -> Any:
        return x * i.item() + x.shape[0], torch.zeros(3) + i.item()

    def found(x: Tensor, i: Tensor) -> Any:
        at = (x + i).nonzero()
        return at, at.shape[0], x[x > 0] * 2

    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    for fn in (scaled, found):
        compiled = compiler_lab.compile(fn, backend=backend, fullgraph=True, options=options)
        for n, k in [(5, 2), (5, 3), (6, 4), (7, 0)]:
            x, i = torch.randn(n, 3), torch.tensor(k)
            same(compiled(x, i), fn(x, i))


# random programs


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_over_shapes(seed: int) -> None:
    draw = random.Random(seed)
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(size_programs.program(draw, draw.randint(1, 4)), space)
    fn = space["program"]
    compiled = compiler_lab.compile(fn, backend=draw.choice(BACKENDS), dynamic=draw.choice([None, True]))
    for _ in range(4):
        n, m, k = draw.choice([2, 3, 4, 5, 6, 9, 1, 0]), draw.choice([4, 4, 5, 3, 1]), draw.randint(0, 9)
        args = (torch.randn(n, m, requires_grad=True), torch.randn(m, 3, requires_grad=True), k)
        want, got = outcome(fn, args), outcome(compiled, args)
        assert type(got) is type(want)
        if isinstance(want, tuple):
            plain: Callable[[Any], Any] = lambda v: [t.clone(memory_format=torch.contiguous_format) if isinstance(t, Tensor) else t for t in tree_leaves(v)]
            same(plain(got), plain(want), rtol=1e-4, atol=1e-4)


def test_spec_of_a_graph_without_symbols() -> None:
    spec = compiler_lab.joint(captured_static(lambda x: x * 2, torch.randn(3))).spec
    assert not spec.symbolic and spec.numbers == ()


def captured_static(fn: Program, *args: Any) -> fx.GraphModule:
    found: list[Any] = []
    compiler_lab.compile(fn, backend=lambda gm, _: found.append(gm) or gm.forward, dynamic=False)(*args)
    return found[0]


def test_joint_graph_is_made_of_what_capture_recorded() -> None:
    """Arguments of other sizes than those of the capture change nothing."""
    gm = captured(lambda x: x.sin() * x.shape[0], torch.randn(5, 2, requires_grad=True))
    texts = {compiler_lab.joint(gm, *args).text() for args in ((), (torch.randn(9, 3, requires_grad=True),))}
    assert len(texts) == 1
    assert isinstance(compiler_lab.joint(gm), JointGraph)
