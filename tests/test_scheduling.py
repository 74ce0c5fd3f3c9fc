"""Scheduling: what is fused and why, over which loops, in which phases; and that a schedule computes what its program does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compiler_lab.aot.joint import joint
from compiler_lab.core.errors import InvalidIR
from compiler_lab.core.options import Options
from compiler_lab.lowering.index import Index, Var
from compiler_lab.lowering.lower import lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.pipeline import JOINT_STEPS
from compiler_lab.scheduling.artifact import Schedule
from compiler_lab.scheduling.fusion import schedule
from compiler_lab.scheduling.ir import LoopGroup
from compiler_lab.scheduling.reasons import REASONS
from compiler_lab.scheduling.respace import solve

from .aot_programs import traced
from .loops import Builder, contiguous, expanded, permuted, random_program


def kernels(s: Schedule) -> tuple[LoopGroup, ...]:
    return tuple(g for g in s.groups if isinstance(g, LoopGroup))


def reasons(s: Schedule, kind: str = "fuse") -> set[tuple[str, str]]:
    return {(d.outcome, d.reason) for d in s.decisions if d.kind == kind}


def agrees(program: LoopProgram, args: tuple[Tensor, ...], options: Options = Options()) -> Schedule:  # noqa: B008
    s = schedule(program, options)
    s.check()
    torch.testing.assert_close(s.run(*args), program.run(*args), equal_nan=True)
    return s


class TestEveryProgram:
    @settings(max_examples=120)
    @given(st.integers(0, 10**6), st.sampled_from([3, 8, 14, 22]))
    def test_a_schedule_computes_what_its_program_does(self, seed: int, length: int) -> None:
        program, args = random_program(seed, length)
        s = agrees(program, args)
        assert s.text() == schedule(program).text()
        assert s.decisions == schedule(program).decisions

    @settings(max_examples=30)
    @given(st.integers(0, 10**6))
    def test_without_fusion_each_live_loop_is_a_kernel(self, seed: int) -> None:
        program, args = random_program(seed)
        s = agrees(program, args, Options(fusion=False))
        assert all(len(k.nodes) == 1 for k in kernels(s))
        assert reasons(s) <= {("refused", "fusion is off")}

    @settings(max_examples=30)
    @given(st.integers(0, 10**6), st.integers(1, 4))
    def test_no_kernel_holds_more_nodes_than_allowed(self, seed: int, most: int) -> None:
        program, args = random_program(seed, 16)
        assert all(len(k.nodes) <= most for k in kernels(agrees(program, args, Options(max_fused_nodes=most))))

    @settings(max_examples=40)
    @given(st.integers(0, 10**6))
    def test_decisions_have_catalogued_reasons_and_items_have_parents(self, seed: int) -> None:
        program, _ = random_program(seed, 16)
        before = program.text()
        s = schedule(program)
        assert program.text() == before
        lowered = {i.id for i in program.items()}
        ours = {i.id for i in s.items()}
        for d in s.decisions:
            assert d.reason in REASONS
            assert set(d.subject) <= lowered | ours
        pairs = [d.subject for d in s.decisions if d.kind == "fuse"]
        assert len(set(pairs)) == len(pairs)
        for item in s.items():
            assert item.parents
            assert set(item.parents) <= lowered


def test_pairs_considered_grow_with_the_reads() -> None:
    b = Builder()
    x, w = b.input(512, 128), b.input(128, 128)
    for _ in range(46):
        h = b.loop("exp", (b.loop("relu", (x,)),))
        mean = expanded(b.loop("copy", (h,), (1,)), (512, 128))
        y = b.loop("neg", (h, mean))
        b.loop("sigmoid", (y, x))
        z = b.loop("abs", (y, x))
        rows = b.loop("exp", (z,), (1,), "max")
        u = b.loop("sigmoid", (z, expanded(rows, (512, 128))))
        v = b.loop("neg", (u, h))
        x = b.extern(torch.ops.aten.mm.default, (b.loop("relu", (v, x)), w), (512, 128))
    program = b.program(x)
    s = schedule(program)
    s.check()
    considered = [d for d in s.decisions if d.kind == "fuse"]
    assert len(program.nodes) >= 500
    assert len(considered) < 8 * sum(len(getattr(n, "reads", tuple)()) + 2 for n in program.nodes)


class TestWhatIsFused:
    def test_a_pointwise_chain_over_contiguous_memory_is_one_loop(self) -> None:
        b = Builder()
        x, y = b.input(5, 7), b.input(5, 7)
        s = agrees(b.program(b.loop("exp", (b.loop("relu", (x, y)), y))), (torch.randn(5, 7), torch.randn(5, 7)))
        (k,) = kernels(s)
        assert (k.shape, k.outer, k.inner) == ("pointwise", (Var("x0", 35),), ())
        assert k.internal == {"buf0"}
        assert s.plan.arena_bytes == 0

    def test_a_broadcast_operand_keeps_its_dimension(self) -> None:
        b = Builder()
        x, bias, scale = b.input(5, 7), b.input(7), b.input(7)
        s = agrees(
            b.program(b.loop("neg", (b.loop("relu", (x, expanded(bias, (5, 7)))), expanded(scale, (5, 7))))),
            (torch.randn(5, 7), torch.randn(7), torch.randn(7)),
        )
        (k,) = kernels(s)
        assert (k.shape, k.outer) == ("pointwise", (Var("x0", 5), Var("x1", 7)))

    def test_a_view_that_regroups_dimensions_is_the_same_space(self) -> None:
        b = Builder()
        x = b.input(2, 3, 4)
        h = b.loop("relu", (x,))
        flat = type(h)(h.buffer, (6, 4), (4, 1), 0, h.dtype)
        rows = b.loop("copy", (flat,), (1,))
        s = agrees(b.program(rows), (torch.randn(2, 3, 4),))
        (k,) = kernels(s)
        assert (k.shape, k.outer, k.inner) == ("row", (Var("x0", 6),), (Var("r0", 4),))

    def test_a_permuted_consumer_splits_the_loops_of_its_producer(self) -> None:
        b = Builder()
        x = b.input(6, 8)  # (batch * time, heads * width)
        h = b.loop("exp", (x,))
        heads = type(h)(h.buffer, (2, 4, 3, 2), (24, 2, 8, 1), 0, h.dtype)
        s = agrees(b.program(b.loop("copy", (heads,))), (torch.randn(6, 8),))
        (k,) = kernels(s)
        assert [v.size for v in k.outer] == [2, 4, 3, 2]
        assert all(i.is_affine for n in k.nodes for _, i in n.reads())

    def test_softmax_over_rows(self, golden: Callable[[str, str], None]) -> None:
        b = Builder()
        x = b.input(4, 6)
        top = b.loop("copy", (x,), (1,), "max")
        e = b.loop("exp", (b.loop("neg", (x, expanded(top, (4, 6)))),))
        total = b.loop("copy", (e,), (1,))
        s = agrees(b.program(b.loop("neg", (e, expanded(total, (4, 6))))), (torch.randn(4, 6),))
        (k,) = kernels(s)
        assert [p.space for p in k.phases] == ["full", "full", "full"]
        assert dict(k.kept) == {"buf2": "row"}
        assert k.internal == {"buf0", "buf1", "buf2", "buf3"}
        golden("schedule_softmax.txt", s.text())

    def test_a_cheap_value_is_computed_again_and_a_stored_one_is_read_back(self) -> None:
        b = Builder()
        x = b.input(4, 6)
        h, kept = b.loop("neg", (x,)), b.loop("abs", (x,))
        total = expanded(b.loop("copy", (h, kept), (1,)), (4, 6))
        s = agrees(b.program(kept, b.loop("relu", (h, kept, total))), (torch.randn(4, 6),))
        (k,) = kernels(s)
        assert [[n.name for n in p.nodes] for p in k.phases] == [["buf0", "buf1", "buf2"], ["buf0", "buf3"]]
        assert dict(k.kept) == {"buf1": "memory"}
        assert reasons(s, "keep") == {("again", "computed again"), ("memory", "stored anyway")}

    def test_values_per_row_run_between_the_sweeps(self) -> None:
        b = Builder()
        x = b.input(4, 6)
        total = b.loop("exp", (b.loop("copy", (x,), (1,)),))
        s = agrees(b.program(b.loop("neg", (x, expanded(total, (4, 6))))), (torch.randn(4, 6),))
        (k,) = kernels(s)
        assert [p.space for p in k.phases] == ["full", "outer", "full"]
        assert ("accepted", "same rows") in reasons(s)

    def gathered(self, op: str) -> Schedule:
        """A value per row and column, its row sums, and one element of each row."""
        b = Builder()
        x, positions = b.input(4, 6), b.input(4, dtype=torch.int64)
        top = expanded(b.loop("copy", (x,), (1,), "max"), (4, 6))
        h = b.loop(op, (x, top))
        total = b.loop("exp", (h,), (1,))
        at = b.gather(h, positions)
        program = b.program(b.loop("copy", (at, type(at)(total.buffer, (4,), (1,), 0, at.dtype))))
        return agrees(program, (torch.randn(4, 6), torch.tensor([0, 5, 2, -1])))

    def test_a_gather_along_the_row_reads_back_what_the_kernel_stored(self) -> None:
        s = self.gathered("exp")
        (k,) = kernels(s)
        assert k.kept["buf1"] == "memory"
        assert "buf1" not in k.internal
        assert ("memory", "read at other points") in reasons(s, "keep")

    def test_a_gather_of_a_cheap_value_computes_the_one_element(self) -> None:
        s = self.gathered("neg")
        (k,) = kernels(s)
        assert "buf1" in k.internal and not k.kept
        (gather,) = [n for n in k.nodes if n.origin == "gather"]
        assert [b for b, _ in gather.reads()] == ["in1", "in0", "buf0"]
        assert ("accepted", "cheaper than memory") in reasons(s, "recompute")

    def test_a_value_read_at_several_points_is_written_into_each_reader(self) -> None:
        b = Builder()
        x = b.input(6, 6)
        h = b.loop("neg", (x,))
        s = agrees(b.program(b.loop("relu", (h, permuted(h, (1, 0))))), (torch.randn(6, 6),))
        (k,) = kernels(s)
        (node,) = k.nodes
        assert [(b, str(i)) for b, i in node.reads()] == [("in0", "6*x0 + x1"), ("in0", "x0 + 6*x1")]

    def test_column_sums_fuse_with_what_makes_them(self) -> None:
        b = Builder()
        x, y = b.input(8, 4), b.input(8, 4)
        h = b.loop("exp", (x, y))
        s = agrees(b.program(h, b.loop("copy", (h,), (0,)), b.loop("neg", (h,), (0,), "max")), (torch.randn(8, 4), torch.randn(8, 4)))
        (k,) = kernels(s)
        assert (k.shape, k.outer, k.inner) == ("column", (Var("x0", 4),), (Var("r0", 8),))

    def test_a_whole_reduction_is_flat_and_a_small_one_swept_again_is_a_row(self) -> None:
        b = Builder()
        x = b.input(4, 6)
        h = b.loop("exp", (x,))
        total = b.loop("copy", (h,), (0, 1))
        s = agrees(b.program(total), (torch.randn(4, 6),))
        assert [(k.shape, k.outer) for k in kernels(s)] == [("flat", ())]
        divided = b.loop("neg", (h, expanded(total, (4, 6))))
        s = agrees(b.program(divided), (torch.randn(4, 6),))
        assert [(k.shape, k.outer) for k in kernels(s)] == [("row", (Var("x0", 1),))]

    def test_a_cheap_broadcast_value_is_computed_in_its_readers(self) -> None:
        b = Builder()
        x, w = b.input(5, 7), b.input(7)
        shift = b.loop("neg", (w,))
        s = agrees(
            b.program(b.loop("exp", (x, expanded(shift, (5, 7)))), b.loop("copy", (x, expanded(shift, (5, 7))), (1,))), (torch.randn(5, 7), torch.randn(7))
        )
        assert ("accepted", "cheaper than memory") in reasons(s, "recompute")
        holders = [k for k in kernels(s) if any(n.name == "buf0" for n in k.nodes)]
        assert holders and all("buf0" in k.internal for k in holders)

    def test_an_expensive_broadcast_value_is_stored(self) -> None:
        b = Builder()
        x, w = b.input(5, 7), b.input(7)
        shift = b.loop("exp", (w,))
        s = agrees(b.program(b.loop("neg", (x, expanded(shift, (5, 7))))), (torch.randn(5, 7), torch.randn(7)))
        assert len(kernels(s)) == 2
        assert ("refused", "broadcast") in reasons(s)
        assert ("refused", "expensive") in reasons(s, "recompute")

    def test_rows_and_columns_of_one_value_are_two_kernels(self) -> None:
        b = Builder()
        h = b.loop("exp", (b.input(8, 4),))
        s = agrees(b.program(b.loop("copy", (h,), (0,)), b.loop("copy", (h,), (1,))), (torch.randn(8, 4),))
        assert sorted(k.shape for k in kernels(s)) == ["column", "row"]

    def test_a_transposed_read_joins_only_a_cheap_value_that_needs_no_memory(self) -> None:
        for op, readers, expected in (("neg", 1, 1), ("exp", 1, 2), ("neg", 2, 2)):
            b = Builder()
            x, y = b.input(5, 7), b.input(7, 5)
            h = b.loop(op, (b.loop("exp", (b.loop("abs", (x,)),)) if readers == 2 else x,))
            s = agrees(b.program(b.loop("neg", (permuted(h, (1, 0)), y)), *([h] if readers == 2 else [])), (torch.randn(5, 7), torch.randn(7, 5)))
            assert len(kernels(s)) == expected, (op, readers)
            assert expected == 1 or ("refused", "loop order") in reasons(s)

    def test_argmax_keeps_the_order_of_its_own_loop(self) -> None:
        b = Builder()
        x = b.input(3, 4, 5)
        h = b.loop("neg", (x,))
        over = permuted(h, (2, 1, 0))
        s = agrees(b.program(h, b.loop("copy", (over,), (1, 2), "argmax")), (torch.randn(3, 4, 5),))
        assert s.run(torch.ones(3, 4, 5))[1].eq(0).all()

    def test_an_extern_call_between_two_loops_keeps_them_apart(self) -> None:
        b = Builder()
        x = b.input(4, 4)
        h = b.loop("relu", (x,))
        m = b.extern(torch.ops.aten.mm.default, (h, h), (4, 4))
        s = agrees(b.program(b.loop("neg", (m, h))), (torch.randn(4, 4),))
        assert [g.name for g in s.groups] == ["k0", "e0", "k1"]
        assert {("refused", "extern"), ("refused", "would make a cycle")} <= reasons(s)

    def test_what_nobody_reads_is_dropped(self) -> None:
        b = Builder()
        x = b.input(4, 4)
        b.loop("exp", (b.loop("relu", (x,)),))
        s = agrees(b.program(b.loop("neg", (x,))), (torch.randn(4, 4),))
        assert [d.subject for d in s.decisions if d.kind == "drop"] == [("lowering.forward/buf0",), ("lowering.forward/buf1",)]
        assert [n.name for k in kernels(s) for n in k.nodes] == ["buf2"]

    def test_loops_without_points_run_alone(self) -> None:
        b = Builder()
        x = b.input(0, 4)
        h = b.loop("relu", (x,))
        s = agrees(b.program(b.loop("exp", (h,)), b.loop("copy", (h,), (0,))), (torch.empty(0, 4),))
        assert len(kernels(s)) == 3
        assert ("refused", "empty") in reasons(s)

    def test_long_rows_are_not_swept_again_when_there_are_few(self) -> None:
        b = Builder()
        x = b.input(2, 40000)
        total = expanded(b.loop("copy", (x,), (1,)), (2, 40000))
        s = agrees(b.program(b.loop("exp", (x, total))), (torch.randn(2, 40000),))
        assert len(kernels(s)) == 2
        assert ("refused", "reduction boundary") in reasons(s)

    def test_random_calls_keep_their_order(self) -> None:
        b = Builder()
        x = b.input(64, 64)
        first = b.extern(torch.ops.aten.bernoulli.default, (x,), (64, 64))
        second = b.extern(torch.ops.aten.bernoulli.default, (b.loop("sigmoid", (first,)),), (64, 64))
        third = b.extern(torch.ops.aten.bernoulli.default, (x,), (64, 64))
        program = b.program(b.loop("neg", (third,), (1,)), b.loop("neg", (second, first)))
        s, arg = schedule(program), torch.rand(64, 64)
        results: list[Any] = []
        for p in (program, s):
            torch.manual_seed(3)
            results.append(p.run(arg))
        torch.testing.assert_close(results[0], results[1])


def halves(f: Callable[..., Any], *args: Tensor) -> tuple[Schedule, Schedule | None]:
    """Forward and backward of ``f`` through every step before this one, scheduled, checked and compared with the loops they come from."""
    artifact: Any = joint(traced(f), *args)
    for step in JOINT_STEPS:
        artifact = step.run(artifact, Options())

    def scheduled(graph: Any) -> Schedule:
        program = lower(graph)
        generator = torch.Generator().manual_seed(0)
        inputs = [torch.randint(0, 3, i.size) if not i.dtype.is_floating_point else torch.rand(i.size, generator=generator) for i in program.inputs]
        values = [v.to(i.dtype).as_strided(i.size, i.stride) if i.numel == v.numel() else v for v, i in zip(inputs, program.inputs, strict=True)]
        return agrees(program, tuple(values))

    return scheduled(artifact.forward), scheduled(artifact.backward) if artifact.backward is not None else None


def rand(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape).requires_grad_(grad)


NAMED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]], list[str], list[str]]] = {
    # name: function, arguments, shapes of the forward's kernels, shapes of the backward's
    "relu(x + b) * s": (
        lambda x, b, s: torch.relu(x + b) * s,
        lambda: (rand(33, 40, grad=False), rand(40, grad=False), rand(40, grad=False)),
        ["pointwise"],
        [],
    ),
    "gelu(x) * w, sum": (lambda x, w: (F.gelu(x) * w).sum(), lambda: (rand(40, 37), rand(40, 37)), ["flat"], ["pointwise"]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (rand(19, 71),), ["row"], ["row"]),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), lambda: (rand(19, 71),), ["row"], ["row"]),
    "softmax of columns": (lambda x: torch.softmax(x, 0), lambda: (rand(19, 24, grad=False),), ["column"], []),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (48,), w, b), lambda: (rand(6, 5, 48), rand(48), rand(48)), ["row"], ["column", "row"]),
    "layer_norm of a sum": (lambda x, r, w: F.layer_norm(x + r, (48,), w), lambda: (rand(30, 48), rand(30, 48), rand(48)), ["row"], ["column", "row"]),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (rand(9, 53), torch.randint(0, 53, (9,))), ["flat", "row"], ["flat", "row"]),
    "chain then row sums": (lambda x: (torch.tanh(x * 2) + x).sum(1), lambda: (rand(12, 30, grad=False),), ["row"], []),
    "bias gradient": (lambda x, b: torch.relu(x + b), lambda: (rand(20, 30), rand(30)), ["pointwise"], ["column"]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda: (rand(4, 3, 8, 8), rand(3), rand(3)), ["row"], ["row"]),
    "attention scores": (
        lambda s: torch.softmax(s.masked_fill(torch.ones_like(s).triu(1) > 0, -1e30) * 0.5, -1),
        lambda: (rand(2, 7, 7, grad=False),),
        ["row"],
        [],
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_kernels_of_named_programs(name: str) -> None:
    f, make, expected_forward, expected_backward = NAMED[name]
    forward, backward = halves(f, *make())
    assert sorted(k.shape for k in kernels(forward)) == expected_forward
    assert sorted(k.shape for k in kernels(backward)) == expected_backward if backward is not None else not expected_backward
    assert all(isinstance(g, LoopGroup) for g in forward.groups)


def test_cross_entropy_never_stores_the_log_probabilities() -> None:
    forward, _ = halves(lambda x, t: F.cross_entropy(x, t), rand(9, 53, grad=False), torch.randint(0, 53, (9,)))
    assert max(n.output.numel for k in kernels(forward) for n in k.nodes if n.name not in k.internal) <= 9


class TestCheck:
    def group(self) -> tuple[Schedule, LoopGroup]:
        b = Builder()
        x = b.input(4, 6)
        top = expanded(b.loop("copy", (x,), (1,), "max"), (4, 6))
        s = schedule(b.program(b.loop("exp", (x, top))))
        (k,) = kernels(s)
        return s, k

    def test_reading_a_reduction_before_its_sweep_ends(self) -> None:
        s, k = self.group()
        (first, second) = k.phases
        merged = replace(first, nodes=first.nodes + second.nodes)
        with pytest.raises(InvalidIR, match="buf1 reads buf0"):
            replace(s, groups=(replace(k, phases=(merged,)),)).check()

    def test_reading_before_writing(self) -> None:
        s, k = self.group()
        with pytest.raises(InvalidIR, match="buf1 reads buf0"):
            replace(s, groups=(replace(k, phases=tuple(reversed(k.phases))),)).check()

    def test_an_output_that_is_not_stored(self) -> None:
        s, k = self.group()
        with pytest.raises(InvalidIR, match="output 0 is buf1"):
            replace(s, groups=(replace(k, internal=frozenset({"buf0", "buf1"})),)).check()

    def test_variables_of_another_group(self) -> None:
        s, k = self.group()
        with pytest.raises(InvalidIR, match="other variables"):
            replace(s, groups=(replace(k, outer=(Var("y", 4),)),)).check()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_an_index_is_solved_for_its_variables(sizes: list[int], rng: Any) -> None:
    """Solving the address of a permuted tensor for its dimensions, and putting them back, is the identity at every point."""
    order = list(range(len(sizes)))
    rng.shuffle(order)
    stride = [0] * len(sizes)
    for d, s in zip(order, contiguous(tuple(sizes[d] for d in order)), strict=True):
        stride[d] = s
    variables = tuple(Var(f"i{d}", n) for d, n in enumerate(sizes))
    point = Var("p", torch.Size(sizes).numel())
    index = Index.affine(variables, stride, 3)
    solution = solve(index, variables, Index.of(point) + 3)
    assert solution is not None
    seen: set[tuple[int, ...]] = set()
    for p in range(point.size):
        values = {v: solution[v].evaluate(lambda _, p=p: p) for v in variables}
        assert index.evaluate(values.__getitem__) == p + 3
        seen.add(tuple(values.values()))
    assert len(seen) == point.size


A, B, P = Var("a", 4), Var("b", 3), Var("p", 12)
UNSOLVED = {
    # index over (A, B), value over P
    "a variable is missing": (Index.of(A), Index()),
    "a variable is divided": (Index.of(A) * 3 + Index.of(B) // 2, Index.of(P)),
    "a stride is negative": (Index.of(A) * 3 - B, Index.of(P)),
    "strides that do not divide": (Index.of(A) * 5 + Index.of(B) * 2, Index.of(P)),
    "strides that overlap": (Index.of(A) * 2 + B, Index.of(P)),
    "values between": (Index.of(A) * 6 + Index.of(B) * 2, Index.of(P)),
    "values below": (Index.of(A) * 3 + B + 1, Index.of(P)),
    "values above": (Index.of(A) * 3 + B, Index.of(P) + 1),
    "digits that are too large": (Index.of(A) * 4 + B, Index.of(P)),
}


@pytest.mark.parametrize("name", UNSOLVED)
def test_an_index_that_is_not_solved(name: str) -> None:
    index, value = UNSOLVED[name]
    assert solve(index, (A, B), value) is None


def test_the_points_of_a_part_are_solved() -> None:
    third = Index.of(Var("q", 4)) * 3 + 1
    assert solve(Index.of(A) * 3 + B, (A, B), third) == {A: Index.of(Var("q", 4)), B: Index((), 1)}
    assert solve(Index.of(A) * 6 + Index.of(B) * 2 + 5, (A, B), Index.of(P) * 2 + 5) == {A: Index.of(P) // 3, B: Index.of(P) % 3}
    assert solve(Index((), 7), (), Index((), 7)) == {}
    assert solve(Index((), 7), (), Index((), 8)) is None
