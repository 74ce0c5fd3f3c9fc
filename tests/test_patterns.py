"""Patterns are found in every spelling and order; what is rewritten computes the same; what is refused says why."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.subgraph_rewriter import replace_pattern as torchs_replace_pattern

import compiler_lab
from compiler_lab import Condition, Pattern, find_pattern, fuse_silu, replace_pattern, symbolic_trace
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.provenance import parents_of, stack_of
from compiler_lab.graph.effects import draws, writes
from compiler_lab.graph.rewrite import REASONS
from compiler_lab.graph.spellings import OPERATIONS, read

aten: Any = torch.ops.aten
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


def swish(x: Any) -> Any:
    return x * torch.sigmoid(x)


def silu(x: Any) -> Any:
    return F.silu(x)


def captured(f: Callable[..., Any], *args: Any) -> GraphArtifact:
    return compiler_lab.capture(f, *args).graphs[0]


def pure(f: Callable[..., Any], *args: Any) -> GraphArtifact:
    return compiler_lab.functionalize(compiler_lab.joint(captured(f, *args), *args))


def outcomes(graph: GraphArtifact) -> list[tuple[str, str]]:
    found = [d for d in graph.decisions if d.kind == "rewrite"]
    assert all(d.reason in REASONS for d in found)
    return [(d.outcome, d.reason) for d in found]


def targets(graph: GraphArtifact) -> list[Any]:
    return [n.target for n in graph.graph.nodes if n.op.startswith("call")]


def same_run(before: GraphArtifact, after: GraphArtifact, *args: Any, exact: bool = False) -> None:
    """Equal results, and equal changes of the arguments; the generated code does what the graph says."""
    after.check()
    first, second, third = ([a.clone() for a in args] for _ in range(3))
    want, got, code = before.run(*first), after.run(*second), after.module(*third)
    tolerance = (0.0, 0.0) if exact else (None, None)
    torch.testing.assert_close([got, second, code, third], [want, first, want, first], rtol=tolerance[0], atol=tolerance[1])


# --------------------------------------------------------------------------------------------------- spellings and orders


SPELLINGS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: x * torch.sigmoid(x),
    lambda x: torch.sigmoid(x) * x,
    lambda x: x.mul(x.sigmoid()),
    lambda x: x.sigmoid().mul(other=x),
    lambda x: torch.mul(torch.special.expit(x), other=x),
    lambda x: torch.multiply(input=x, other=F.sigmoid(x)),
    lambda x: aten.mul.Tensor(aten.sigmoid.default(x), x),
    lambda x: aten.mul.Tensor(self=x, other=torch.sigmoid(input=x)),
)


@pytest.mark.parametrize("f", SPELLINGS)
@pytest.mark.parametrize("trace", [captured, lambda f, x: symbolic_trace(f, x), pure], ids=["captured", "symbolic", "aten"])
def test_one_pattern_finds_every_spelling(f: Callable[..., Any], trace: Callable[..., GraphArtifact]) -> None:
    graph = trace(f, X)
    text = graph.text()
    after = replace_pattern(graph, swish, silu)
    assert outcomes(after) == [("replaced", "match")] and graph.text() == text
    assert targets(after) in ([F.silu], [aten.silu.default])
    same_run(graph, after, X)
    (new,) = (n for n in after.graph.nodes if n.op == "call_function")
    assert stack_of(new) and set(parents_of(new)) == {graph.id(n) for n in graph.graph.nodes if n.op.startswith("call")}


@pytest.mark.parametrize(("f", "torchs", "ours"), [(SPELLINGS[0], 1, 1), (SPELLINGS[1], 0, 1), (SPELLINGS[2], 0, 1)])
def test_torchs_rewriter_is_structural(f: Callable[..., Any], torchs: int, ours: int) -> None:
    assert len(torchs_replace_pattern(fx.symbolic_trace(f), swish, silu)) == torchs
    assert len(find_pattern(symbolic_trace(f, X), swish)) == ours


def test_torchs_rewriter_moves_a_read_past_a_write_and_ours_does_not() -> None:
    def f(x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        x.add_(1)
        return x * s

    module = fx.symbolic_trace(f)
    assert len(torchs_replace_pattern(module, swish, silu)) == 1
    assert not torch.allclose(module(X.clone()), f(X.clone()))
    graph = symbolic_trace(f, X)
    after = replace_pattern(graph, swish, silu)
    assert outcomes(after) == [("refused", "write_between")] and after.decisions[-1].facts["writer"] == "fx/add_"
    same_run(graph, after, X, exact=True)


COMMUTING = [
    *((f, True) for f in (operator.add, operator.mul, operator.eq, operator.ne, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.logaddexp)),
    *((f, True) for f in (torch.logical_and, torch.logical_or, torch.logical_xor, torch.add, torch.mul, aten.add.Tensor, aten.mul.Tensor, aten.eq.Tensor)),
    *((f, False) for f in (operator.sub, operator.truediv, operator.pow, operator.matmul, torch.atan2, torch.lt, torch.sub)),
    (lambda a, b: torch.add(a, b, alpha=1), True),
    (lambda a, b: torch.add(a, b, alpha=2), False),
    (lambda a, b: a.add(b, alpha=3), False),
]


@pytest.mark.parametrize(("f", "commutes"), COMMUTING)
def test_which_operators_commute(f: Callable[..., Any], commutes: bool) -> None:
    graph = symbolic_trace(lambda x: f(x.exp(), x.neg()), X)
    found = find_pattern(graph, lambda x: f(torch.neg(x), torch.exp(x)))
    assert [m.exchanged for m in found] == ([True] if commutes else [])
    assert len(find_pattern(graph, lambda x: f(torch.exp(x), torch.neg(x)))) == 1
    if commutes:
        torch.testing.assert_close(f(X.exp(), X.neg()), f(X.neg(), X.exp()), rtol=0, atol=0)


@pytest.mark.parametrize("f", [operator.and_, operator.or_, operator.xor, torch.bitwise_and])
def test_bitwise_operators_commute(f: Callable[..., Any]) -> None:
    graph = symbolic_trace(lambda x: f(x + 1, x.neg()), X.int())
    assert [m.exchanged for m in find_pattern(graph, lambda x: f(torch.neg(x), x + 1))] == [True]


def test_lists_do_not_commute() -> None:
    def f(x: Tensor) -> Any:
        return x.reshape(x.shape[1:] + x.shape[:1])

    graph = symbolic_trace(f, torch.randn(2, 3))
    (add,) = (n for n in graph.graph.nodes if n.target is operator.add)
    call = read(add)
    assert call is not None and len(call.orders()) == 1


@pytest.mark.parametrize("row", [r for r in OPERATIONS if r.commutes is not None], ids=lambda r: r.name)
def test_every_commuting_row_commutes(row: Any) -> None:
    """Every spelling of a row gives the same, in both orders."""
    numbers = torch.tensor([3, -1, 0, 7, 2]), torch.tensor([5, -2, 0, -7, 2])
    a, b = (v if "bitwise" in row.name else v.double() for v in numbers)
    calls = [getattr(Tensor, t[1:]) if isinstance(t, str) else t for t in row.spellings if ".Scalar" not in str(t)]
    results = [call(*order) for call in calls for order in ((a, b), (b, a))]
    assert len(results) > 4 and all(torch.equal(r, results[0]) for r in results)


def test_wildcards() -> None:
    f = lambda x, y: (x.exp() - y.exp(), x.exp() - x.exp(), x.exp() - 1)
    graph = symbolic_trace(f, X, X)
    assert len(find_pattern(graph, lambda a, b: a - b)) == 3
    assert len(find_pattern(graph, lambda a: a - a)) == 0  # two calls of exp, as written
    assert len(find_pattern(graph, lambda a: torch.exp(a) - torch.exp(a))) == 1
    assert [m.operands["b"] for m in find_pattern(graph, lambda a, b: torch.exp(a) - b)][-1] == 1
    assert len(find_pattern(graph, lambda a: a - 1)) == 1 and not find_pattern(graph, lambda a: a - 1.0)
    assert find_pattern(graph, lambda a: a - 1)[0].text() == "<lambda> at sub_2: a = exp_4"


def test_a_pattern_is_one_call_of_calls() -> None:
    for wrong in (lambda x: x, lambda x: (x + 1, x + 2)):
        with pytest.raises(Unsupported, match="not one call of calls"):
            replace_pattern(symbolic_trace(swish, X), wrong, silu)
    with pytest.raises(Unsupported, match="different parameters"):
        Pattern("two", lambda x, y: x + y, lambda x: x)


# ---------------------------------------------------------------------------------------------------------------- refusals


def _returned_too(x: Tensor) -> Any:
    s = torch.sigmoid(x)
    return x * s, s


def _dropped(x: Tensor) -> Any:
    d = F.dropout(x, 0.5)
    return d + d


FLOATS = Condition("floats", lambda m: m.value("x").is_floating_point(), "only floats")
REFUSALS: dict[str, tuple[Callable[..., Any], Pattern, str, dict[str, Any]]] = {
    "read elsewhere": (_returned_too, Pattern("silu", swish, silu), "used_elsewhere", {"value": "fx/sigmoid", "by": ["fx/output"]}),
    "condition": (lambda x: (y := x.int()) * y.sigmoid(), Pattern("silu", swish, silu, (FLOATS,)), "condition", {"condition": "floats", "why": "only floats"}),
    "overlap": (lambda x: x.neg().neg().neg(), Pattern("neg", lambda x: x.neg().neg(), lambda x: x * 1), "overlap", {}),
    "writes": (lambda x: x.clone().add_(1) * 2, Pattern("add", lambda x: x.add_(1) * 2, lambda x: x + x), "writes", {"node": "fx/add_"}),
    "random": (_dropped, Pattern("drop", lambda x, p: (d := F.dropout(x, p)) + d, lambda x, p: x + p), "writes", {"node": "fx/dropout"}),
    "dtype": (swish, Pattern("cast", swish, lambda x: F.silu(x).double()), "other_value", {}),
    "shape": (swish, Pattern("sum", swish, lambda x: F.silu(x).sum(0)), "other_value", {}),
    "strides": (
        lambda x: (x.t() + 1).sigmoid(),
        Pattern("order", lambda x: torch.sigmoid(x + 1), lambda x: torch.sigmoid(x + 1).contiguous()),
        "other_value",
        {},
    ),
    "alias": (lambda x: x + 0, Pattern("zero", lambda x: x + 0, lambda x: x), "aliases", {"operand": "x"}),
    "view": (lambda x: x.view(16) + 0, Pattern("zero", lambda x: x.view(16) + 0, lambda x: x.view(16)), "aliases", {"operand": "x"}),
    "a plain value": (swish, Pattern("one", swish, lambda x: 1), "other_value", {}),
    "fails": (swish, Pattern("mm", swish, lambda x: x @ x.sum(0, keepdim=True)), "fails", {}),
    "in place": (swish, Pattern("in", swish, lambda x: x.mul_(2)), "writes", {}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    f, pattern, reason, facts = REFUSALS[name]
    graph = symbolic_trace(f, X)
    after = replace_pattern(graph, pattern)
    found = [o for o in outcomes(after) if o[0] == "refused"]
    assert found == [("refused", reason)]
    (decision,) = (d for d in after.decisions if d.outcome == "refused")
    assert facts.items() <= decision.facts.items()
    if name != "overlap":
        assert after.text() == graph.text()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    want = graph.run(X.clone())
    torch.set_rng_state(state)
    torch.testing.assert_close(after.run(X.clone()), want, rtol=0, atol=0)


def test_an_alias_that_nobody_sees_is_allowed_below_autograd() -> None:
    zero = Pattern("zero", lambda x: x + 0, lambda x: x)
    inner = replace_pattern(pure(lambda x: (x + 0).exp(), X), zero)
    assert outcomes(inner) == [("replaced", "match")] and targets(inner) == [aten.exp.default]
    for returned in (lambda x: x + 0, lambda x: (x + 0).view(16)):
        assert outcomes(replace_pattern(pure(returned, X), zero)) == [("refused", "aliases")]


def test_a_replacement_without_an_overload_is_refused_below_autograd() -> None:
    graph = pure(swish, X)
    assert outcomes(replace_pattern(graph, swish, lambda x: F.hardswish(x))) == [("refused", "not_aten")]
    assert outcomes(replace_pattern(symbolic_trace(swish, X), swish, lambda x: F.hardswish(x))) == [("replaced", "match")]


def test_matches_in_a_row() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.sigmoid(x) * x
        return x

    for graph in (symbolic_trace(f, X), pure(f, X)):
        after = replace_pattern(graph, swish, silu)
        assert outcomes(after) == [("replaced", "match")] * 3 and len(targets(after)) == 3
        same_run(graph, after, X)


def test_a_backward_that_reads_the_sigmoid_keeps_it() -> None:
    graph = pure(swish, X.clone().requires_grad_())
    assert outcomes(fuse_silu(graph)) == [("refused", "used_elsewhere")]


def test_without_values_nothing_is_claimed() -> None:
    assert outcomes(replace_pattern(symbolic_trace(swish), swish, silu)) == [("refused", "unknown")]


def test_sizes_that_are_symbols() -> None:
    seen: list[GraphArtifact] = []

    def backend(gm: fx.GraphModule, args: Any) -> Any:
        graph = GraphArtifact(gm, "frames")
        seen.append(fuse_silu(graph))
        return seen[-1].module.forward

    compiled = compiler_lab.compile(SPELLINGS[1], backend=backend, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(compiled(x), swish(x))
    assert len(seen) == 1 and outcomes(seen[0]) == [("replaced", "match")]


# ----------------------------------------------------------------------------------------------------------------- effects


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: x.add_(1), True),
        (lambda x: x.add(1), False),
        (lambda x: torch.add(x, 1, out=x), True),
        (lambda x: torch.relu_(x), True),
        (lambda x: F.relu(x, inplace=True), True),
        (lambda x: F.relu(x, True), True),
        (lambda x: F.relu(x), False),
        (lambda x: F.batch_norm(x, x, x, training=True), True),
        (lambda x: F.batch_norm(x, x, x), False),
        (lambda x: F.batch_norm(x, None, None, training=True), False),
        (lambda x: torch.batch_norm(x, None, None, x, x, True, 0.1, 1e-5, True), True),
        (lambda x: torch.batch_norm(x, None, None, x, x, False, 0.1, 1e-5, True), False),
        (lambda x: F.embedding(x, x), False),
        (lambda x: F.embedding(x, x, max_norm=1.0), True),
        (lambda x: aten.add_.Tensor(x, 1), True),
        (lambda x: aten.add.Tensor(x, 1), False),
        (lambda x: x.backward(), True),
        (lambda x: torch.linalg.norm(x), False),
    ],
)
def test_what_writes(f: Callable[..., Any], expected: bool) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = X
    proxy = fx.Proxy(x, fx.proxy.GraphAppendingTracer(graph))  # pyright: ignore[reportAttributeAccessIssue]
    f(proxy)
    assert writes(list(graph.nodes)[-1]) is expected


def test_what_nobody_can_see_into_is_taken_to_write() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert writes(graph.call_function(operator.iadd, (x, 1))) and writes(graph.call_function(operator.setitem, (x, 0, 1)))
    assert writes(graph.call_function(compiler_lab.compile, (x,))) and writes(graph.call_function(torch._C._set_grad_enabled, (True,)))
    assert writes(graph.call_method("append", (x, 1)))  # of a list, for all that is known
    assert not writes(x) and draws(graph.call_function(torch.rand, (3,))) and draws(graph.call_method("bernoulli", (x,))) and not draws(x)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (torch.nn.Linear(2, 2), False),
        (torch.nn.ReLU(), False),
        (torch.nn.ReLU(inplace=True), True),
        (torch.nn.BatchNorm1d(2), True),
        (torch.nn.BatchNorm1d(2).eval(), False),
        (torch.nn.Embedding(2, 2, max_norm=1.0), True),
    ],
)
def test_which_modules_write(module: torch.nn.Module, expected: bool) -> None:
    graph = fx.symbolic_trace(torch.nn.Sequential(module)).graph
    assert [writes(n) for n in graph.nodes if n.op == "call_module"] == [expected]


@pytest.mark.parametrize(("between", "allowed"), [(torch.nn.Linear(4, 4), True), (torch.nn.ReLU(inplace=True), False)])
def test_a_module_between_the_first_call_and_the_last(between: torch.nn.Module, allowed: bool) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.between = between

        def forward(self, x: Tensor) -> Any:
            s = torch.sigmoid(x)
            return self.between(x), x * s

    graph = symbolic_trace(Two(), X)
    after = fuse_silu(graph)
    assert outcomes(after) == [("replaced", "match") if allowed else ("refused", "write_between")]
    same_run(graph, after, X)


# -------------------------------------------------------------------------------------------------------- random programs

FUSED = Pattern("a * b + c", lambda a, b, c: a * b + c, lambda a, b, c: torch.add(c, b * a))
STEPS: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    lambda a, b: a * b,
    lambda a, b: torch.mul(b, a),
    lambda a, b: a + b,
    lambda a, b: b.add(a),
    lambda a, b: a - b,
    lambda a, b: (a * 2).add(b),
    lambda a, b: torch.mul(a, b) + 1,
    lambda a, b: (product := a * b, a.add_(b), product + b)[-1],
    lambda a, b: a.add_(b),
    lambda a, b: a.t(),
)


@st.composite
def integer_programs(draw: st.DrawFn) -> Callable[..., Any]:
    """Sums and products of integers, exact whatever the order, with writes and views in between."""
    steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=14))
    returned = draw(st.lists(st.integers(0, 9), min_size=1, max_size=2))

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values = [x, y]
        for step, i, j in steps:
            values.append(step(values[-1 - i % len(values)], values[-1 - j % len(values)]))
        return tuple(values[-1 - i % len(values)] for i in returned)

    return f


@given(integer_programs())
@settings(max_examples=60, deadline=None)
def test_random_programs_compute_the_same(f: Callable[..., Any]) -> None:
    x, y = torch.arange(1, 10).view(3, 3), torch.arange(9, 18).view(3, 3)
    try:
        f(x.clone(), y.clone())
    except RuntimeError:  # shapes that do not fit, or a tensor written over itself: no program
        return
    graph = symbolic_trace(f, x, y)
    after = replace_pattern(graph, FUSED)
    same_run(graph, after, x, y, exact=True)


@given(st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=6), st.booleans())
@settings(max_examples=30, deadline=None)
def test_chains_of_spellings(parts: list[Callable[..., Any]], below: bool) -> None:
    def f(x: Tensor) -> Tensor:
        for part in parts:
            x = part(x)
        return x

    graph = pure(f, X) if below else symbolic_trace(f, X)
    after = fuse_silu(graph)
    assert outcomes(after) == [("replaced", "match")] * len(parts)
    same_run(graph, after, X)
