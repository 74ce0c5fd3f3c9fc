"""Graph in, graph out: the same values, the same aliases, fewer nodes, and a decision for each change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_lab import capture, symbolic_trace
from compiler_lab.aot.ir import JointGraph
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.provenance import parents_of, stack_of
from compiler_lab.frames.ir import CapturedGraph, Source
from compiler_lab.graph.passes import REASONS, eliminate_common_subexpressions, eliminate_dead_code, fold_constants, simplify_views

from .partition_programs import HERE, joint_of, programs, rand

aten = torch.ops.aten
G = TypeVar("G", bound=GraphArtifact)
PASSES: tuple[Callable[[GraphArtifact], GraphArtifact], ...] = (eliminate_dead_code, eliminate_common_subexpressions, fold_constants, simplify_views)


def graph_of(f: Callable[..., Any], *args: Tensor) -> GraphArtifact:
    """``f`` as make_fx records it."""
    module = make_fx(f, tracing_mode="fake")(*args)
    for node in module.graph.nodes:
        node.meta = ({} if node.op == "output" else {"val": node.meta.get("val")}) | {"stack": HERE, "parents": (f"frames/{node.name}",)}
    return GraphArtifact(module, "aot.forward")


def ops(graph: GraphArtifact) -> list[str]:
    return [n.name for n in graph.graph.nodes if n.op in ("call_function", "get_attr")]


def told(graph: GraphArtifact) -> list[tuple[str, str, str]]:
    return [(d.subject[0].split("/")[-1], d.outcome, d.reason) for d in graph.decisions]


def sharing(values: Sequence[Any]) -> list[list[int]]:
    """Which outputs share memory with which."""
    places = [v.untyped_storage().data_ptr() if isinstance(v, Tensor) else None for v in values]
    return [[j for j, q in enumerate(places) if p == q and p is not None] for p in places]


def outcome(graph: GraphArtifact, inputs: Sequence[Tensor]) -> tuple[tuple[Any, ...], Tensor]:
    torch.manual_seed(0)
    results = graph.run(*(i.clone() for i in inputs))
    return (tuple(results) if isinstance(results, (tuple, list)) else (results,)), torch.get_rng_state()


def assert_pass(one: Callable[[G], G], graph: G, inputs: Sequence[Tensor]) -> G:
    """Run a pass and hold it to what the module docstring promises."""
    text, decisions = graph.text(), graph.decisions
    after = one(graph)
    after.check()
    assert graph.text() == text and graph.decisions == decisions
    assert type(after) is type(graph) and after.stage == graph.stage and one(graph).text() == after.text()
    assert [p.name for p in after.placeholders] == [p.name for p in graph.placeholders]
    (expected, state), (got, state_after) = outcome(graph, inputs), outcome(after, inputs)
    assert torch.equal(state, state_after), "random numbers were drawn differently"
    assert len(got) == len(expected) and sharing(got) == sharing(expected)
    for a, b in zip(got, expected, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype if isinstance(b, Tensor) else a == b
    assert torch.is_tensor(got[0]) is torch.is_tensor(after.module(*(i.clone() for i in inputs))[0])  # the generated forward is up to date
    new = after.decisions[len(decisions) :]
    assert all(d.reason in REASONS and d.subject[0] in {graph.id(n) for n in graph.graph.nodes} for d in new)
    known = {p for n in graph.graph.nodes for p in parents_of(n)}
    assert all(parents_of(n) and set(parents_of(n)) <= known and stack_of(n) == HERE for n in after.graph.nodes)
    return after


X, Y = torch.randn(4, 4), torch.randn(4, 4)


# ------------------------------------------------------------------------------------------------------------- dead code


def test_dead_code() -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor]:
        x.exp().sin()
        return (x * 2,)

    after = assert_pass(eliminate_dead_code, graph_of(f, X, Y), [X, Y])
    assert ops(after) == ["mul"]
    assert told(after) == [("exp", "removed", "unread"), ("sin", "removed", "unread")]
    assert len(after.placeholders) == 2
    assert after.text() == "x_1: f32[4, 4] = placeholder\ny_1: f32[4, 4] = placeholder\nmul: f32[4, 4] = aten.mul.Tensor(x_1, 2)\nreturn (mul,)"


def test_dead_code_keeps_effects() -> None:
    def f(x: Tensor) -> tuple[Tensor]:
        torch.rand(3)
        x.view(16).add_(1)
        aten._assert_async.msg(torch.ones(()).bool(), "no")
        return (x * 2,)

    graph = graph_of(f, X)
    kept = ops(assert_pass(eliminate_dead_code, graph, [X]))
    assert {"rand", "view", "add_", "_assert_async"} <= set(kept)


def test_dead_code_keeps_what_it_cannot_see_into() -> None:
    def shout(x: Tensor) -> Tensor:
        return x

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(shout, (x,))
    graph.call_method("add_", (x, 1))
    graph.output((x,))
    for node in graph.nodes:
        node.meta = {"val": X, "stack": HERE, "parents": ("source/x",)}
    captured = CapturedGraph(fx.GraphModule(torch.nn.Module(), graph), (Source("local", "x"),))
    after = assert_pass(eliminate_dead_code, captured, [X])
    assert ops(after) == ["shout"] and "add_" in after.text() and after.inputs == captured.inputs


# ------------------------------------------------------------------------------------------------- common subexpressions


def test_common_subexpressions() -> None:
    after = assert_pass(eliminate_common_subexpressions, graph_of(lambda x, y: (x.exp() * y + x.exp().sin(), (x * 2.0).sum()), X, Y), [X, Y])
    assert told(after) == [("exp_1", "merged", "duplicate")]
    exp = next(n for n in after.graph.nodes if n.name == "exp")
    assert len(exp.users) == 2 and parents_of(exp) == ("frames/exp", "frames/exp_1")
    assert after.decisions[0].facts == {"into": "aot.forward/exp"}


def test_chains_of_duplicates_collapse() -> None:
    after = assert_pass(eliminate_common_subexpressions, graph_of(lambda x: (x.exp().sin() + x.exp().sin(),), X), [X])
    assert ops(after) == ["exp", "sin", "add"]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (torch.rand(4, 4) + torch.rand(4, 4) + x,),
        lambda x: (x * 2 + x * 2.0 + x * True,),
        lambda x: (torch.atan2(x, torch.full((), 0.0)) + torch.atan2(x, torch.full((), -0.0)),),
        lambda x: (x.sum(0) + x.sum(1),),
    ],
    ids=["random", "number types", "signed zeros", "arguments"],
)
def test_what_is_not_the_same_is_not_merged(f: Callable[..., Any]) -> None:
    graph = graph_of(f, X)
    assert ops(assert_pass(eliminate_common_subexpressions, graph, [X])) == ops(graph)


@pytest.mark.parametrize(
    "f",
    [lambda x: (x.exp(), x.exp()), lambda x: (x.exp().view(16), x.exp().t()), lambda x: (x.clone(), x.clone())],
    ids=["outputs", "views of them", "copies"],
)
def test_two_outputs_stay_two(f: Callable[..., Any]) -> None:
    after = assert_pass(eliminate_common_subexpressions, graph_of(f, X), [X])
    assert [d[1:] for d in told(after)] == [("kept", "both_returned")]


def test_a_returned_value_and_an_inner_one_are_merged() -> None:
    for f in (lambda x: (x.exp(), x.exp().sin()), lambda x: (x.exp().sin(), x.exp())):
        after = assert_pass(eliminate_common_subexpressions, graph_of(f, X), [X])
        assert ops(after) == ["exp", "sin"]


@pytest.mark.parametrize("one", [eliminate_common_subexpressions, fold_constants, simplify_views])
def test_a_graph_that_writes_is_left_alone(one: Callable[[GraphArtifact], GraphArtifact]) -> None:
    graph = graph_of(lambda x: (x.clone().add_(1) + x.view(4, 4).clone(), x.view(16)), X)
    after = assert_pass(one, graph, [X])
    assert after.text() == graph.text() and told(after) == [("add_", "refused", "writes")]


# ------------------------------------------------------------------------------------------------------------- constants


def test_constants() -> None:
    after = assert_pass(fold_constants, graph_of(lambda x: (x * (torch.full((4,), 3.0) * 2 + 1).view(4, 1).neg(),), X), [X])
    assert (
        "neg: f32[4, 1] = aten.full.default([4, 1], -7.0, dtype=torch.float32, layout=torch.strided, device=device(type='cpu'), pin_memory=False)"
        in after.text()
    )
    assert ops(eliminate_dead_code(after)) == ["neg", "mul_1"]
    assert ("neg", "folded", "constant") in told(after)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x + torch.rand(4).ceil(),),
        lambda x: (x + torch.arange(4).float(),),
        lambda x: (x + torch.full((4,), float("nan")).neg(),),
        lambda x: (x + torch.ones(1, 4).expand(4, 4),),
        lambda x: (x[0, 0] + torch.ones(100, 100).neg(),),
        lambda x: (torch.ones(4) * 1j * 2,),
    ],
    ids=["random", "not uniform", "nan", "expanded", "large", "complex"],
)
def test_what_is_not_folded(f: Callable[..., Any]) -> None:
    graph = graph_of(f, X)
    torch.manual_seed(0)
    after = fold_constants(graph)
    assert after.text() == graph.text()


NUMBERS = [(v, t) for t in (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool) for v in (-0.0, 0.1, 7, True)]


@pytest.mark.parametrize(("value", "dtype"), [*NUMBERS, (float("inf"), torch.float32), (-float("inf"), torch.float16)])
def test_a_folded_number_is_the_number(value: Any, dtype: torch.dtype) -> None:
    graph = graph_of(lambda x: (torch.full((3,), value, dtype=dtype).clone(), x), X)
    after = assert_pass(fold_constants, graph, [X])
    (a, _), (b, _) = graph.run(X), after.run(X)
    assert torch.equal(a, b) and (not dtype.is_floating_point or torch.equal(a.signbit(), b.signbit()))
    assert ("clone", "folded", "constant") in told(after)


# ----------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: (x.view(4, 4).exp(),), ["exp"]),
        (lambda x: (x.expand(4, 4).exp(),), ["exp"]),
        (lambda x: (aten.permute.default(x, [0, 1]).exp(),), ["exp"]),
        (lambda x: (x.t().t().exp(),), ["t", "exp"]),
        (lambda x: (x.view(16).view(2, 8).exp(),), ["view", "view_1", "exp"]),
        (lambda x: (aten.slice.Tensor(x, 0, 0, 9).exp(),), ["exp"]),
        (lambda x: (aten.alias.default(x).exp(),), ["exp"]),
        (lambda x: (x.clone().exp(),), ["exp"]),
        (lambda x: (aten._to_copy.default(x, dtype=torch.float32).exp(),), ["exp"]),
        (lambda x: (aten.transpose.int(aten.permute.default(x.view(2, 2, 4), [2, 0, 1]), 0, -1).exp(),), ["view", "permute", "transpose", "exp"]),
        (lambda x: (x[:1].expand(2, 1, 4).expand(3, 2, 5 - 1, 4).exp(),), ["slice_1", "expand", "expand_1", "exp"]),
    ],
)
def test_views(f: Callable[..., Any], expected: list[str]) -> None:
    graph = graph_of(f, X)
    after = assert_pass(simplify_views, graph, [X])
    assert ops(after) == expected
    assert after.decisions
    assert len(ops(eliminate_dead_code(after))) < len(ops(graph))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.clone(),),
        lambda x: (x.clone().view(16),),
        lambda x: (x.view(4, 4),),
        lambda x: (x.exp().view(4, 4),),
        lambda x: (x.t().clone(memory_format=torch.contiguous_format).exp(),),
        lambda x: (aten._to_copy.default(x, dtype=torch.float64).exp(),),
        lambda x: (x[1:3].exp() + x[:2].exp(),),
    ],
)
def test_what_changes_something_stays(f: Callable[..., Any]) -> None:
    graph = graph_of(f, X)
    after = assert_pass(simplify_views, graph, [X])
    assert after.text() == graph.text() and not after.decisions


def test_a_view_under_another_dtype_is_no_view_of_places() -> None:
    after = assert_pass(simplify_views, graph_of(lambda x: (x.view(torch.int32).view(16) + 1,), X), [X])
    assert ops(after) == ["view", "view_1", "add"] and "view: i32[4, 4]" in after.text()


# ------------------------------------------------------------------------------------------------------------- all of them

VIEWS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a.t(),
    lambda a: a.view(a.shape) if a.is_contiguous() else a,
    lambda a: a.reshape(16).view(2, 8).view(4, 4) if a.is_contiguous() else a.t(),
    lambda a: a.clone(),
    lambda a: a.clone(memory_format=torch.contiguous_format),
    lambda a: aten.permute.default(a, [1, 0]),
    lambda a: a.expand(4, 4),
    lambda a: aten.slice.Tensor(a, 1, 0, 4),
    lambda a: aten._to_copy.default(a, dtype=torch.float64),
    lambda a: a[:1].expand(4, 4),
    lambda a: torch.full((4, 4), 2.0, dtype=torch.float64).neg(),
    lambda a: torch.zeros(4, 4, dtype=torch.float64).t(),
    lambda a: a.flip(0),
    lambda a: a.exp().clamp(max=9),
    lambda a: a + torch.rand(4, 4, dtype=torch.float64),
)


@st.composite
def alias_programs(draw: st.DrawFn) -> Callable[..., Any]:
    """Programs full of views, copies and repetitions, any of whose values may be returned."""
    steps = draw(st.lists(st.tuples(st.sampled_from(VIEWS), st.integers(0, 20)), min_size=1, max_size=10))
    returned = draw(st.lists(st.integers(0, 20), min_size=1, max_size=4))

    def f(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for step, i in steps:
            values.append(step(values[i % len(values)]))
        return tuple(values[i % len(values)] for i in returned)

    return f


@given(alias_programs(), st.permutations(PASSES))
@settings(max_examples=80, deadline=None)
def test_random_aliases_through_all_passes(f: Callable[..., Any], passes: Sequence[Callable[[GraphArtifact], GraphArtifact]]) -> None:
    inputs = [torch.randn(4, 4, dtype=torch.float64) for _ in range(2)]
    graph = graph_of(f, *inputs)
    for one in passes:
        graph = assert_pass(one, graph, inputs)


@given(programs(), st.permutations(PASSES))
@settings(max_examples=30, deadline=None)
def test_random_joint_graphs_through_all_passes(f: Callable[..., Any], passes: Sequence[Callable[[GraphArtifact], GraphArtifact]]) -> None:
    joint = joint_of(f, rand(4, 4, dtype=torch.float64), rand(4, 4, dtype=torch.float64), rand(4, 4, grad=False, dtype=torch.float64))
    inputs = [torch.randn(p.meta["val"].shape, dtype=torch.float64) for p in joint.placeholders]
    for one in passes:
        after = assert_pass(one, joint, inputs)
        assert isinstance(after, JointGraph) and after.spec == joint.spec and after.state == joint.state
        joint = after


# ----------------------------------------------------------------------------------------------------- torch-level graphs


def _repeats(x: Tensor) -> Any:
    torch.exp(x).sin()  # nobody reads it
    x.t().neg()
    return torch.relu(x) + torch.relu(x), x.sum(0) + x.sum(0), x.sum(1)


def test_dead_code_and_common_subexpressions_above_autograd() -> None:
    graph = capture(_repeats, X).graphs[0]
    dead = eliminate_dead_code(graph)
    assert [d.subject[0].split("/")[1] for d in dead.decisions] == ["exp", "sin", "t", "neg"]
    after = eliminate_common_subexpressions(dead)
    after.check()
    assert [d.reason for d in after.decisions[4:]] == ["duplicate", "duplicate"]
    torch.testing.assert_close(after.run(X), graph.run(X), rtol=0, atol=0)


KEPT: dict[str, Callable[[Tensor], Any]] = {
    "draws": lambda x: (torch.rand(3), x + 1)[1],
    "draws, as a method": lambda x: (x.bernoulli(0.5), x + 1)[1],
    "may raise on its indices": lambda x: (x[x.long()], x + 1)[1],
    "may divide by zero": lambda x: (x.int() // x.int(), x + 1)[1],
    "gathers": lambda x: (torch.gather(x, 0, x.long()), x + 1)[1],
    "writes": lambda x: (x.add_(1), x + 1)[1],
    "writes out": lambda x: (torch.add(x, 1, out=x), x + 1)[1],
    "asserts": lambda x: (torch._assert(True, "no"), x + 1)[1],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_dead_above_autograd(name: str) -> None:
    graph = symbolic_trace(KEPT[name], torch.ones(4, 4))
    after = eliminate_dead_code(graph)
    assert after.text() == graph.text() and not after.decisions


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: (x.exp(), x.exp()), "both_returned"),
        (lambda x: (x.exp().t(), x.exp().view(16)), "both_returned"),
        (lambda x: (x.exp().chunk(2)[0], torch.flatten(x.exp())), "both_returned"),
        (lambda x: torch.rand(4) + torch.rand(4) + x, ""),
        (lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5), ""),
        (lambda x: (y := x.exp(), y.add_(1), x.exp())[2], "writes"),
    ],
)
def test_what_is_not_merged_above_autograd(f: Callable[..., Any], expected: str) -> None:
    for graph in (symbolic_trace(f, X), capture(f, X).graphs[0]):
        after = eliminate_common_subexpressions(graph)
        assert after.text() == graph.text() and [d.reason for d in after.decisions] == ([expected] if expected else [])


@given(alias_programs(), st.permutations(PASSES))
@settings(max_examples=40, deadline=None)
def test_random_aliases_above_autograd(f: Callable[..., Any], passes: Sequence[Callable[[GraphArtifact], GraphArtifact]]) -> None:
    inputs = [torch.randn(4, 4, dtype=torch.float64) for _ in range(2)]
    graph = after = capture(f, *inputs).graphs[0]
    for one in passes:
        after = one(after)
        after.check()
        (want, state), (got, state_after) = outcome(graph, inputs), outcome(after, inputs)
        assert torch.equal(state, state_after) and sharing(got) == sharing(want)
        assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(got, want, strict=True))
