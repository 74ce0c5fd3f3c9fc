"""The memory plan: no two buffers that live at the same time share bytes, and little more than the bound is used."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_lab.core.errors import InvalidIR
from compiler_lab.core.options import Options
from compiler_lab.lowering.ir import BufferSpec, LoopNode, TensorView
from compiler_lab.lowering.program import LoopProgram, reads
from compiler_lab.scheduling import places
from compiler_lab.scheduling.artifact import Schedule
from compiler_lab.scheduling.fusion import schedule
from compiler_lab.scheduling.ir import OUT_VARIANTS, ExternGroup, LoopGroup, Slot
from compiler_lab.scheduling.memory import outside, plan_memory
from compiler_lab.scheduling.order import group_reads, group_writes, lifetimes, weight_of

from .loops import Builder, expanded, permuted, random_program

MM = torch.ops.aten.mm.default
UNFUSED = Options(fusion=False)


def alive_at(s: Schedule) -> list[set[str]]:
    """For each group the buffers that must be in memory while it runs, by walking the groups backwards."""
    outputs = {o.buffer for o in s.program.outputs if isinstance(o, TensorView)}
    wanted, result = set(outputs), list[set[str]]()
    for group in reversed(s.groups):
        made = {spec.name for spec in group_writes(group)}
        result.append(wanted | made | group_reads(group))
        wanted = (wanted - made) | group_reads(group)
    return result[::-1]


@settings(max_examples=120)
@given(st.integers(0, 10**6), st.sampled_from([8, 20]), st.booleans())
def test_what_lives_at_the_same_time_does_not_overlap(seed: int, length: int, fusion: bool) -> None:
    program, _ = random_program(seed, length)
    s = schedule(program, Options(fusion=fusion))
    s.plan.check()
    where = {x.buffer.name: (x.host, x.offset, x.nbytes) for x in s.plan.slots}
    specs = program.buffers
    for group, names in zip(s.groups, alive_at(s), strict=True):
        made = {spec.name for spec in group_writes(group)}
        for a, b in itertools.combinations(sorted(names - {i.name for i in program.inputs}), 2):
            (host, start, size), (other, begin, room) = (where.get(n, (n, 0, specs[n].nbytes)) for n in (a, b))
            if host == other and start < begin + room and begin < start + size and specs[a].nbytes and specs[b].nbytes:
                assert (s.plan.over.get(a) == b and a in made) or (s.plan.over.get(b) == a and b in made)
    assert s.plan.arena_bytes <= s.plan.peak_bytes
    assert plan_memory(s) == s.plan


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans())
def test_only_intermediates_that_we_may_place_are_in_the_arena(seed: int, fusion: bool) -> None:
    program, _ = random_program(seed, 16)
    s = schedule(program, Options(fusion=fusion))
    outputs = {o.buffer for o in program.outputs if isinstance(o, TensorView)}
    own = {x.name for g in s.groups if isinstance(g, ExternGroup) and g.node.target not in OUT_VARIANTS for x in group_writes(g)}
    written = {x.name for g in s.groups for x in group_writes(g)}
    assert {x.buffer.name for x in s.plan.slots} == written - outputs - own
    decided = [d.subject[0].rpartition("/")[2] for d in s.plan.decisions]
    assert sorted(decided) == sorted(written)


# (first group, last group, bytes / 64) of what these leave in their arenas: with the largest placed first, holes of a tenth to a fifth remain
LIVES = {
    "attention": ((0, 5, 16), (1, 2, 64), (2, 3, 192), (3, 7, 192), (4, 5, 64), (5, 6, 128), (6, 7, 128), (7, 8, 64), (8, 9, 64)),
    "its backward": ((0, 4, 64), (3, 8, 64), (4, 5, 128), (5, 7, 128), (6, 8, 64), (7, 8, 64), (8, 10, 192)),
    "the backward of a vision transformer": (
        (0, 1, 1), (1, 4, 1), (2, 6, 4), (6, 16, 68), (7, 9, 136), (9, 11, 136), (10, 16, 68), (12, 24, 68), (13, 15, 68), (17, 22, 68), (19, 22, 68),
        (21, 22, 68), (22, 24, 68), (24, 34, 68), (25, 27, 136), (27, 29, 136), (28, 34, 68), (30, 42, 68), (31, 33, 68), (35, 40, 68), (37, 40, 68),
        (39, 40, 68), (40, 42, 68), (42, 45, 68),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*LIVES, *range(20)])
def test_the_search_is_near_the_bound_where_largest_first_is_not(name: str | int) -> None:
    choose = random.Random(name)
    lives = LIVES[name] if isinstance(name, str) else [(first, first + choose.randrange(1, 6), choose.choice((1, 4, 8, 16, 24, 64))) for first in range(24)]
    specs = sorted((BufferSpec(f"b{i}", (64 * n,), (1,), torch.uint8) for i, (_, _, n) in enumerate(lives)), key=lambda s: -s.nbytes)
    spans = {f"b{i}": (first, last) for i, (first, last, _) in enumerate(lives)}
    order = [Slot(s, 0, s.nbytes, *spans[s.name]) for s in specs]
    slots, arena = places.search(order)
    plain = places.in_gaps(order)[1]
    bound = places.peak_of(slots)
    assert {s.buffer.name for s in slots} == spans.keys() and arena == max(s.offset + s.nbytes for s in slots)
    for a, b in itertools.combinations(slots, 2):
        assert a.last < b.first or b.last < a.first or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    assert bound <= arena <= min(plain, 1.1 * bound)
    assert plain > 1.1 * bound or isinstance(name, int)


@pytest.mark.parametrize(("number", "a", "b"), [(0, (0, 1, 10), (0, 2, 7)), (1, (0, 2, 1), (4, 5, 9)), (2, (0, 9, 4), (0, 0, 3)), (3, (3, 9, 1), (0, 8, 2))])
def test_orders_of_the_search(number: int, a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
    """By bytes times life, by life, by bytes, by last use; (first group, last group, bytes) of two buffers, and which of them comes first."""
    first, second = (Slot(BufferSpec("b", (n,), (1,), torch.uint8), 0, n, start, end) for start, end, n in (a, b))
    order = sorted((first, second), key=places.ORDERS[number])
    assert order == ([second, first] if number == 0 else [first, second])


def chain(length: int) -> LoopProgram:
    """exp, mm, exp, mm ...: nothing fuses, each value is read once."""
    b = Builder()
    x = w = b.input(16, 16)
    for _ in range(length):
        x = b.extern(MM, (b.loop("exp", (x,)), w), (16, 16))
    return b.program(b.loop("neg", (x,)))


def test_a_chain_needs_two_buffers_however_long_it_is() -> None:
    for length in (2, 9):
        plan = schedule(chain(length)).plan
        assert (plan.arena_bytes, plan.peak_bytes, plan.bound_bytes, plan.eager_bytes) == (1024, 2048, 2048, 2048)
        reasons = [d.reason for d in plan.decisions]
        assert (reasons.count("first in its bytes"), reasons.count("in place")) == (1, length), "each exp but the first, and the result, over what mm made"
        assert reasons.count("inside a result") + reasons.count("bytes of the dead") == len(reasons) - length - 1


def test_fusion_needs_less_memory_than_op_by_op() -> None:
    b = Builder()
    x = b.input(64, 64)
    h = b.extern(MM, (x, x), (64, 64))
    for _ in range(5):
        h = b.loop("sigmoid", (h, x))
    program = b.program(b.extern(MM, (h, x), (64, 64)))
    fused, alone = schedule(program).plan, schedule(program, UNFUSED).plan
    assert fused.eager_bytes == alone.eager_bytes == 2 * 64 * 64 * 4
    assert fused.peak_bytes == alone.peak_bytes == 2 * 64 * 64 * 4
    assert fused.arena_bytes == alone.arena_bytes == 64 * 64 * 4, "sigmoids in place"
    wide = Builder()
    y = wide.input(64, 64)
    parts = [wide.loop("exp", (wide.loop("abs", (y,)),)) for _ in range(6)]
    program = wide.program(wide.loop("neg", parts))
    assert schedule(program).plan.arena_bytes == 0
    assert schedule(program, UNFUSED).plan.arena_bytes <= schedule(program, UNFUSED).plan.eager_bytes == 7 * 64 * 64 * 4


def test_groups_run_in_the_order_that_peaks_lower() -> None:
    """Program order makes every large value before it shrinks any; the schedule shrinks each as it comes."""
    b = Builder()
    x = b.input(64, 64)
    large = [b.extern(MM, (x, x), (64, 64)) for _ in range(4)]
    small = [b.loop("exp", (v,), (1,)) for v in large]
    program = b.program(b.loop("neg", small))
    s = schedule(program, UNFUSED)
    s.check()
    assert s.plan.bound_bytes < 2 * 64 * 64 * 4
    assert s.plan.eager_bytes > 4 * 64 * 64 * 4
    arg = torch.randn(64, 64)
    torch.testing.assert_close(s.run(arg), program.run(arg))


def test_results_that_a_call_allocates_or_may_alias_stay_outside() -> None:
    b = Builder()
    x = b.input(8, 8)
    h = b.loop("exp", (x,))
    m = b.extern(MM, (h, h), (8, 8))
    v = b.extern(torch.ops.aten.sin.default, (m,), (8, 8))
    program = b.program(b.loop("neg", (b.extern(MM, (v, m), (8, 8)),)))
    (aliased,) = [n for n in program.nodes if n.name == v.buffer]
    assert not isinstance(aliased, LoopNode)
    program = replace(program, nodes=tuple(replace(aliased, aliases=(m.buffer,)) if n is aliased else n for n in program.nodes))
    plan = schedule(program).plan
    assert {d.subject[0].rpartition("/")[2]: d.reason for d in plan.decisions if d.reason in ("aliased", "allocates itself")} == {
        m.buffer: "aliased",
        v.buffer: "allocates itself",
    }
    assert {x.buffer.name for x in plan.slots}.isdisjoint({m.buffer, v.buffer})
    assert plan.peak_bytes > plan.arena_bytes


def wide() -> Schedule:
    """Three matrices alive at once, of which the last is a result: two places in the arena."""
    b = Builder()
    x = b.input(16, 16)
    a, c = b.extern(MM, (x, x), (16, 16)), b.extern(MM, (x, x), (16, 16))
    d = b.extern(MM, (a, c), (16, 16))
    return schedule(b.program(b.extern(MM, (d, b.extern(MM, (a, d), (16, 16))), (16, 16))))


def test_check_finds_overlap_and_wrong_lifetimes() -> None:
    plan = wide().plan
    plan.check()
    first, second = next((a, b) for a in plan.slots for b in plan.slots if a.host == b.host == "" and a is not b and a.first <= b.last and b.first <= a.last)
    moved = replace(plan, slots=tuple(replace(x, offset=first.offset) if x is second else x for x in plan.slots))
    with pytest.raises(InvalidIR, match="same bytes"):
        moved.check()
    shortened = tuple(replace(x, last=x.first) for x in plan.slots)
    assert shortened != plan.slots
    with pytest.raises(InvalidIR, match="lives from"):
        replace(plan, slots=shortened).check()
    with pytest.raises(InvalidIR, match="aligned"):
        replace(plan, slots=tuple(replace(x, offset=x.offset + 4) for x in plan.slots)).check()


# ---- in place: what may be, and plans that say so where it may not ----

COMBINED: dict[str, tuple[Callable[[Builder, TensorView], TensorView], bool]] = {
    "the same element": (lambda b, v: b.loop("exp", (v,)), True),
    "twice": (lambda b, v: b.loop("neg", (v, v)), True),
    "after a sweep over its row": (lambda b, v: b.loop("neg", (v, expanded(b.loop("copy", (v,), (1,), "max"), (16, 16)))), True),
    "another element": (lambda b, v: b.loop("exp", (permuted(v, (1, 0)),)), False),
    "two elements": (lambda b, v: b.loop("neg", (v, permuted(v, (1, 0)))), False),
    "a sum of elements": (lambda b, v: b.loop("exp", (v,), (1,)), False),
    "another layout": (lambda b, v: b.loop("exp", (v,), stride=(1, 16)), False),
}


def over_a_product(make: Callable[[Builder, TensorView], TensorView]) -> tuple[Schedule, str]:
    b = Builder()
    x = b.input(16, 16)
    product = b.extern(MM, (x, x), (16, 16))
    return schedule(b.program(make(b, product))), product.buffer


@pytest.mark.parametrize("name", COMBINED)
def test_a_kernel_writes_over_what_it_reads_at_the_same_points_only(name: str) -> None:
    make, allowed = COMBINED[name]
    s, product = over_a_product(make)
    s.check()
    (result,) = (o.buffer for o in s.program.outputs if isinstance(o, TensorView))
    assert (s.plan.over.get(result) == product) == allowed
    if not allowed and s.program.buffers[result].nbytes == s.program.buffers[product].nbytes:
        (slot,) = (x for x in s.plan.slots if x.buffer.name == product)
        wrong = replace(s.plan, over={result: product}, slots=(replace(slot, offset=0, nbytes=slot.buffer.nbytes, host=result),))
        with pytest.raises(InvalidIR, match="read at other points"):
            wrong.check()


def test_what_is_read_again_after_the_write_is_not_written_over() -> None:
    """A kernel that stores a row in one sweep and reads the product once more in the next."""
    s, product = over_a_product(lambda b, v: b.loop("neg", (v, expanded(b.loop("copy", (v,), (1,), "max"), (16, 16)))))
    (group,) = (g for g in s.groups if isinstance(g, LoopGroup))
    last = group.phases[-1]
    assert any(b == product for n in last.nodes for b, _ in n.reads())
    swapped = replace(group, phases=(last, *group.phases[:-1]))
    wrong = replace(s.plan, groups=tuple(swapped if g is group else g for g in s.groups))
    with pytest.raises(InvalidIR, match=r"before .* reads that"):
        wrong.check()


def test_check_finds_a_host_in_use_and_a_wrong_claim_of_writing_in_place() -> None:
    plan = schedule(chain(3)).plan
    alone = next(x for x in plan.slots if x.buffer.name not in (*plan.over, *plan.over.values()))
    other = next(x for x in plan.slots if (x.host, x.offset) != (alone.host, alone.offset))
    with pytest.raises(InvalidIR, match="lies elsewhere"):
        replace(plan, over={**plan.over, alone.buffer.name: other.buffer.name}).check()
    with pytest.raises(InvalidIR, match="has no memory of its own"):
        replace(plan, slots=tuple(replace(x, host=other.buffer.name, offset=0) if x is alone else x for x in plan.slots)).check()
    last = next(x for x in plan.slots if plan.over.get(x.host) == x.buffer.name)
    with pytest.raises(InvalidIR, match="while that is in use"):
        replace(plan, slots=(last,), over={}).check()
    (made, read) = next((m, r) for m, r in plan.over.items() if any(x.buffer.name == m for x in plan.slots))
    with pytest.raises(InvalidIR, match="same bytes"):
        replace(plan, over={m: r for m, r in plan.over.items() if m != made}).check()
    assert read


def test_eager_peak_counts_each_result_until_its_last_reader() -> None:
    b = Builder()
    x = b.input(16)
    a = b.loop("exp", (x,))
    c = b.loop("exp", (a,))
    d = b.loop("exp", (a, c))
    program = b.program(b.loop("exp", (d,)))
    assert schedule(program).plan.eager_bytes == 3 * 64
    assert all(reads(n) for n in program.nodes)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_what_an_order_holds(seed: int) -> None:
    """Group by group, with inputs that are let go after their last reader and results that are kept."""
    program, _ = random_program(seed, 12)
    groups = schedule(program, Options(fusion=seed % 2 == 0)).groups
    outputs = frozenset(o.buffer for o in program.outputs if isinstance(o, TensorView))
    sizes, own = {s.name: s.cost for g in groups for s in group_writes(g)}, {s.name: s.cost for s in program.inputs}
    spans, last = lifetimes(groups), {b: i for i, g in enumerate(groups) for b in group_reads(g)}
    lives = {name: (first, len(groups) if name in outputs else end) for name, (first, end) in spans.items()} | {name: (0, last.get(name, 0)) for name in own}
    alive = [sum((sizes | own)[name] for name, (first, end) in lives.items() if first <= i <= end) for i in range(len(groups))]
    most, total = weight_of(groups, sizes, own, outputs)
    kept = sum(sizes[name] for name in outputs if name in sizes)
    assert (most, total) == (max(alive, default=sum(own.values())), sum(alive) + kept if groups else sum(own.values()))


def test_an_input_that_nobody_reads_counts_until_the_first_group() -> None:
    b = Builder()
    read, _ = b.input(64), b.input(4096)
    program = replace(b.program(b.loop("neg", [read])), stage="lowering.backward")
    s = schedule(program)
    used, unread = (i.cost for i in program.inputs)
    assert outside(program, s.groups, s.plan.slots) == used + unread + used
