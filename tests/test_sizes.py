"""Sizes that vary: their arithmetic and what it knows, and programs that are lowered, scheduled and built once for all sizes."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import compiler_lab
from compiler_lab.codegen.artifact import Kernels
from compiler_lab.codegen.cpp import generate
from compiler_lab.core.errors import InvalidIR, Mismatch, Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.lowering.index import Index, Var
from compiler_lab.lowering.lower import lower
from compiler_lab.lowering.sizes import Conditions, Size, at_most, common_block, hint, plain, range_of, recorded_by, same, symbol, value_at
from compiler_lab.lowering.symbols import Reader, SizedTensor, sources, symbols_in
from compiler_lab.runtime.build import build
from compiler_lab.scheduling.fusion import schedule

F = torch.nn.functional
NAMES = {"floordiv": operator.floordiv, "mod": operator.mod}

# ---- arithmetic -------------------------------------------------------------------------------------------------------------------


def number(n: Any, values: dict[str, int]) -> int:
    return value_at(n, values)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_arithmetic_is_that_of_ints(seed: int) -> None:
    """Each size is made along with the ints that it stands for; ranges, texts and what is known of two of them agree with the ints."""
    choose = random.Random(seed)
    hints = {n: choose.randint(2, 9) for n in ("s0", "s1", "s2")}
    calls = [hints, *({n: choose.randint(2, 12) for n in hints} for _ in range(4))]
    pool: list[Any] = [symbol(n, h) for n, h in hints.items()] + [1, 2, 3, 4, 7, -2]
    for _ in range(12):
        a, b, op = choose.choice(pool), choose.choice(pool), choose.choice([operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod])
        if op in (operator.floordiv, operator.mod) and range_of(b)[0] <= 0:
            continue
        made: Any = op(a, b)
        for values in calls:
            expected = op(number(a, values), number(b, values))
            low, high = range_of(made)
            assert number(made, values) == expected and low <= expected <= high
            assert eval(plain(made), dict(NAMES), dict(values)) == expected
        assert hint(made) == number(made, hints)
        if len(str(made)) < 120:
            pool.append(made)
    for _ in range(8):
        a, b = choose.choice(pool), choose.choice(pool)
        for values in calls:
            assert not same(a, b) or number(a, values) == number(b, values)
            assert not at_most(a, b) or number(a, values) <= number(b, values)
        assert not same(a, b) or hash(a) == hash(b)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_decided_holds_wherever_the_conditions_hold(seed: int) -> None:
    choose = random.Random(seed)
    hints = {n: choose.randint(2, 6) for n in ("s0", "s1")}
    calls = [{"s0": a, "s1": b} for a in range(2, 9) for b in range(2, 9)]
    s0, s1 = symbol("s0", hints["s0"]), symbol("s1", hints["s1"])
    pool: list[Any] = [s0, s1, s0 * s1, s0 + 3, s1 * 2 - 1, s0 // 2, (s0 + s1) % 3, 5, 12]
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
        a, b, log = choose.choice(pool), choose.choice(pool), Conditions()
        with recorded_by(log):
            answer = compare(a, b)
        assert answer == compare(number(a, hints), number(b, hints))
        for values in calls:
            if all(c.holds(values) for c in log.recorded):
                assert compare(number(a, values), number(b, values)) == answer
            assert all(eval(c.text, dict(NAMES), dict(values)) == c.holds(values) for c in log.recorded)


S0, S1 = symbol("s0", 8), symbol("s1", 5)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (S0 * S1 // S1, "s0"),
        (S0 * 32 % 8, "0"),
        ((S0 * S1 - 1) // (S0 * S1), "0"),
        (-1 % S0, "s0 - 1"),
        ((S0 * 64 + 63) // 64, "s0"),
        (4 * (S0 // 4), "s0 - mod(s0, 4)"),
        ((4 * S0) // 8, "floordiv(s0, 2)"),
        ((S0 + 2) * (S0 - 2) - S0 * S0, "-4"),
        (max(S0 * S1, S1), "s0*s1"),
        (common_block(4 * S0, 6), "2"),
    ],
)
def test_forms(made: int, text: str) -> None:
    assert plain(made) == text


@pytest.mark.parametrize(
    ("question", "conditions"),
    [
        (lambda: S0 * S1 >= S1 and S0 != 1 and S0 * 4 != 6 and S0 - S0 % 4 >= 0, []),
        (lambda: S0 < 16, ["s0 <= 15"]),
        (lambda: (S0 >= 4, S0 >= 3, S0 > 1, S0 != 2), ["s0 >= 4"]),
        (lambda: S0 == S1, ["s0 != s1"]),
        (lambda: bool(S0 - 2), ["s0 != 2"]),
        (lambda: list(range(S1)), ["s1 == 5"]),
        (lambda: S0 / 2, ["s0 == 8"]),
        (lambda: (f"{S0}", hint(S0), S0 in (1, 0)), []),
    ],
)  # fmt: skip
def test_conditions(question: Callable[[], Any], conditions: list[str]) -> None:
    log = Conditions()
    with recorded_by(log):
        question()
    assert [c.text for c in log.recorded] == conditions


def test_what_cannot_be_known_is_not_guessed() -> None:
    with pytest.raises(Unsupported, match="depends on the call"):
        bool(S0 < S1)
    assert S0 != S1  # not known to be equal
    log = Conditions(exact=True)
    with recorded_by(log):
        assert S0 != S1 and not log.recorded


def test_torchs_expressions_become_sizes() -> None:
    """Random arithmetic of SymInts: what it is read as has the value of torch's expression."""
    choose = random.Random(0)
    context = StatelessSymbolicContext([DimDynamic.DYNAMIC] * 3)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.empty(7, 12, 9), symbolic_context=context)
    shape: list[Any] = list(fake.shape)
    symbols = [n.node.expr for n in shape]
    for _ in range(60):
        pool: list[Any] = [*shape, 2, 3, 5]
        for _ in range(6):
            op = choose.choice([operator.add, operator.mul, operator.floordiv, operator.mod, torch.sym_max])
            by_number = op in (operator.floordiv, operator.mod)
            pool.append(op(choose.choice(pool), choose.choice((2, 3, 4)) if by_number else choose.choice(pool)))
        reader, log = Reader({}), Conditions()
        with recorded_by(log):
            read = [reader.number(n) for n in pool]
        for made, n in zip(read, pool, strict=True):
            assert hint(made) == (int(n.node.hint) if isinstance(n, torch.SymInt) else n)
        named = {s: plain(n) for s, n in reader.known.items()}
        for sizes in ([4, 4, 4], [31, 2, 8]):
            of = dict(zip(symbols, sizes, strict=True))
            values = {name: of[s] for s, name in named.items()}
            if all(c.holds(values) for c in log.recorded):
                for made, n in zip(read, pool, strict=True):
                    assert number(made, values) == int(n.node.expr.xreplace(of) if isinstance(n, torch.SymInt) else n)


def test_indices_simplify_by_what_is_known() -> None:
    x, y = Var("x", S0), Var("y", S1)
    index = Index.of(x) * S1 + y
    assert index // S1 == Index.of(x) and index % S1 == Index.of(y)
    assert index.range() == (0, S0 * S1 - 1)
    assert str(Index.of(x) // 4) == "((x) // 4)" and str((Index.of(x) - S1) % S0) == "(mod(x + (-s1), s0))"


# ---- programs ---------------------------------------------------------------------------------------------------------------------

W, B = torch.randn(16, 16), torch.randn(16)
Make = Callable[[int, int], tuple[Tensor, ...]]


def rows(n: int, m: int) -> tuple[Tensor, ...]:
    return (torch.randn(n, m),)


PROGRAMS: dict[str, tuple[Callable[..., Any], Make]] = {
    "linear": (lambda x, w, b: torch.relu(x @ w + b), lambda n, m: (torch.randn(n, 16), W, B)),
    "softmax and sums": (lambda x: (torch.softmax(x, -1), x.sum(0), x.mean()), rows),
    "layer norm": (lambda x: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5), rows),
    "column softmax": (lambda x: torch.softmax(x, 0), rows),
    "batch norm": (
        lambda x: (x - x.mean((0, 2), keepdim=True)) * torch.rsqrt(x.var((0, 2), keepdim=True) + 1e-5),
        lambda n, m: (torch.randn(n, 3, m),),
    ),
    "cat": (lambda x, y: (torch.cat([x, y * 2]), torch.cat([x, x + 1, y[:1]])), lambda n, m: (torch.randn(n, 5), torch.randn(m, 5))),
    "heads": (lambda x: x.view(x.shape[0], -1, 4).transpose(1, 2).reshape(x.shape[0], -1) + 1, lambda n, m: (torch.randn(n, 8 * m),)),
    "slices": (lambda x: (x[1:, :-1] * 2, x[:, 0] + x[:, -1], x.flip(1)), rows),
    "pad and roll": (lambda x: (F.pad(x, (1, 2)), x.roll(1, 0)), rows),
    "transpose": (lambda x: (x.t().contiguous() + 1, x.t() * x.t()), rows),
    "positions": (lambda x: torch.where(torch.arange(x.shape[1]) <= torch.arange(x.shape[0])[:, None], x, -1.0) / x.shape[0] + x.shape[1], rows),
    "embedding": (lambda i, w: (F.embedding(i, w) * 2, w.gather(1, i[:, :1])), lambda n, m: (torch.randint(0, 7, (n, m)), torch.randn(n + 20, 9))),
    "attention": (lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v, lambda n, m: tuple(torch.randn(n, 2, m, 16) for _ in "qkv")),
    "cross entropy": (F.cross_entropy, lambda n, m: (torch.randn(n, 10), torch.randint(0, 10, (n,)))),
    "repeat and largest": (lambda x: (x.repeat(2, 3), x.argmax(1), x.amax(0)), rows),
}  # fmt: skip
CONDITIONS = {"slices": ["s1 >= 3"], "repeat and largest": ["s1 <= 2147483647"], "cat": []}
SIZES = [(3, 2), (17, 33), (64, 5), (2, 70), (5, 5), (300, 200)]


def traced(fn: Callable[..., Any], args: tuple[Any, ...]) -> GraphArtifact:
    keep = ("_softmax", "_log_softmax")
    table: dict[Any, Any] = {op: rule for op, rule in core_aten_decompositions().items() if not any(name in str(op) for name in keep)}

    def flat(*args: Any) -> tuple[Any, ...]:
        out = fn(*args)
        return out if isinstance(out, tuple) else (out,)

    module = make_fx(flat, tracing_mode="symbolic", decomposition_table=table)(*args)
    module.graph.eliminate_dead_code()
    for node in module.graph.nodes:
        node.meta.update(stack=(), parents=())
    return GraphArtifact(module, "aot.forward")


def compiled(fn: Callable[..., Any], args: tuple[Any, ...]) -> Kernels:
    kernels = generate(schedule(lower(traced(fn, args))))
    for artifact in (kernels.schedule.program, kernels.schedule, kernels.schedule.plan, kernels):
        artifact.check()
    return kernels


def assert_equal(found: tuple[Any, ...], fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    expected = fn(*args)
    torch.testing.assert_close(found, expected if isinstance(expected, tuple) else (expected,), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_is_made_once_for_all_sizes(name: str) -> None:
    """Built for one set of sizes, right at others: loops, schedule and C++; where a condition does not hold they say so."""
    torch.manual_seed(0)
    fn, make = PROGRAMS[name]
    kernels = compiled(fn, make(8, 6))
    assert [c.text for c in kernels.conditions] == CONDITIONS.get(name, [])
    program = build(kernels)
    for n, m in [(8, 6), *SIZES]:
        args = make(n, m)
        if name == "slices" and m < 3:
            for stage in (program, kernels.schedule, kernels.schedule.program):
                with pytest.raises(Mismatch, match="s1 >= 3, called with s0 = 3, s1 = 2"):
                    stage.run(*args)
            continue
        assert_equal(program(*args), fn, args)
    for stage in (kernels.schedule.program, kernels.schedule):
        args = make(17, 33)
        assert_equal(stage.run(*args), fn, args)


@pytest.mark.parametrize("name", ["softmax and sums", "cat", "attention"])
def test_the_schedule_is_that_of_numbers(name: str) -> None:
    """What fuses at one set of sizes fuses for all, and texts are the same on each run."""
    fn, make = PROGRAMS[name]
    program = lower(traced(fn, make(8, 6)))
    made, static = schedule(program), schedule(program.at(program.hints()))
    assert [getattr(g, "shape", "extern") for g in made.groups] == [getattr(g, "shape", "extern") for g in static.groups]
    again = generate(schedule(lower(traced(fn, make(8, 6)))))
    assert again.text() == generate(made).text()


def test_conditions_are_decisions_with_the_call_that_asked() -> None:
    fn, make = PROGRAMS["slices"]
    program = lower(traced(fn, make(8, 6)))
    (decided,) = [d for d in program.decisions if d.kind == "size"]
    assert (decided.outcome, decided.reason) == ("s1 >= 3", "size")
    assert decided.subject[0].startswith("aot.forward/")
    assert "where s1 >= 3" in program.text()


def test_other_hints_give_code_for_other_sizes() -> None:
    """Where a condition fails, lowering the same graph for the sizes at hand gives a program that is right there."""
    fn, make = PROGRAMS["slices"]
    graph, args = traced(fn, make(8, 6)), make(9, 2)
    other = lower(graph, {"s0": 9, "s1": 2})
    assert "s1 >= 3" not in [c.text for c in other.conditions]
    assert_equal(other.run(*args), fn, args)


def test_the_memory_plan_reuses_what_is_known_to_fit() -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.sin(x @ w)
        return x

    kernels = compiled(chain, (torch.randn(8, 16), W))
    plan = kernels.schedule.plan
    assert len({str(s.offset) for s in plan.slots}) == 2 < len(plan.slots)
    (slot, *rest) = plan.slots
    with pytest.raises(InvalidIR, match="live at the same time"):
        replace(plan, slots=(slot, *(replace(s, offset=slot.offset) for s in rest))).check()


@pytest.mark.parametrize("fn", [lambda x: x.nonzero(), lambda x: x[x > 0]], ids=["nonzero", "mask"])
def test_sizes_that_depend_on_data_are_refused(fn: Callable[..., Any]) -> None:
    graph = make_fx(lambda x: (fn(x) + 1,), tracing_mode="symbolic")(torch.randn(4, 5))
    for node in graph.graph.nodes:
        node.meta.update(stack=(), parents=())
    with pytest.raises(Unsupported) as caught:
        lower(GraphArtifact(graph, "aot.forward"))
    assert caught.value.reason == "dynamic shapes"


def test_addresses_past_two_to_the_31(tmp_path: Path) -> None:
    """A view that reaches over 3 * 2^30 elements of a sparse file: few of its pages are ever there."""
    step = 2**30 + 7
    line = torch.from_file(str(tmp_path / "sparse"), shared=True, size=3 * step + 64, dtype=torch.uint8)
    view = line.as_strided((4, 8), (step, 1))
    view.copy_(torch.arange(32, dtype=torch.uint8).reshape(4, 8))
    steps: list[Any] = []
    compiled = compiler_lab.compile(lambda x: (x + 1, x.sum(1), x[1:].flip(0).max(0).values), observe=steps.append)
    for found, expected in zip(compiled(view), (view + 1, view.sum(1), view[1:].flip(0).max(0).values), strict=True):
        assert torch.equal(found, expected)
    source = next(s.after.source for s in steps if s.name == "generate")
    assert str(step) in source and "int32_t x" not in source


def test_numbers_of_a_static_graph_stay_ints() -> None:
    fn, make = PROGRAMS["softmax and sums"]
    program = lower(traced(fn, make(8, 6)))
    static = program.at({"s0": 4, "s1": 6})
    assert not static.sizes and all(type(n) is int for s in static.buffers.values() for n in (*s.size, *s.stride))
    assert any(isinstance(n, Size) for s in program.buffers.values() for n in s.size)


def test_a_float_that_depends_on_sizes_is_pythons() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * (x.shape[1] / 3) + 1 / x.shape[0] - x.shape[1] ** 0.5

    program = build(compiled(scaled, (torch.randn(8, 6, dtype=torch.float64),)))
    for n, m in SIZES:
        x = torch.randn(n, m, dtype=torch.float64)
        assert torch.equal(program(x)[0], scaled(x))


def test_a_size_that_inputs_show_in_a_sum_is_told_from_the_others() -> None:
    a, b = symbol("s0", 3), symbol("s1", 4)
    found = sources([SizedTensor((a, a + 2 * b + 1), (1, 1), 0, torch.float32, torch.device("cpu"), torch.strided)], symbols_in([b]))
    values: dict[str, int] = {}
    for source in found:
        values[source.symbol.name] = source.read([torch.empty(5, 20)], values)
    assert values == {"s0": 5, "s1": 7} and found[1].text("x") == "(x.size(1) - (s0 + 1)) // 2"
    with pytest.raises(Mismatch, match="multiple of 2"):
        found[1].read([torch.empty(5, 21)], values)
    with pytest.raises(Unsupported, match="no input shows the size s0"):
        sources([], symbols_in([a]))


def written_in_the_middle(x: Tensor) -> tuple[Tensor, Tensor]:
    x[1:-1, :].mul_(3)
    y = x.transpose(0, 1)
    return y.tensor_split(2, 1)[1], y


@pytest.mark.parametrize(
    ("fn", "shape"), [(lambda x: x + x[2::3], (4,)), (written_in_the_middle, (4, 40))], ids=["a slice of one is repeated", "a loop over nothing"]
)
def test_sizes_that_come_out_as_one_or_nothing(fn: Callable[[Tensor], Any], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    again = x.clone()
    torch.testing.assert_close(compiler_lab.compile(fn, fullgraph=True, dynamic=True, options={"check": True})(x), fn(again))
    torch.testing.assert_close(x, again)
