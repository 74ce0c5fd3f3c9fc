"""The memory plan: intermediates in one arena, placed so that buffers alive at different times share bytes.

In: a ``Schedule``. Out: a ``MemoryPlan``.
Always holds: offsets are multiples of 64; buffers alive at the same time do not overlap. Only buffers that stay inside the program are
placed: no inputs, outputs, results of aten calls that allocate for themselves, nor anything such a call's result may alias.
Method: one after another, each into the smallest gap that those already placed leave free while it lives, else after them. In which order decides
how many holes are left: largest first comes within a tenth of the bound for most graphs, and where it misses it, other orders are tried, and
each again with the buffer first that lay highest, until one is ``NEAR`` the bound or ``TRIES`` is used up (largest first alone missed it by 10 to 27 in the
hundred for 15 of 127 halves of the models of the suite; the search misses it by at most 9).
Where sizes are symbolic the arena is a row of blocks, each as large as the first buffer in it; a buffer joins the smallest block that is free while
it lives and that is known to be large enough in every call. Offsets are then sums of blocks.
PyTorch's counterpart: ``torch/_inductor/codegen/memory_planning.py`` and ``wrapper.py`` (reuse). Left out: writing in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.artifact import Decision
from ..lowering.ir import BufferSpec, TensorView
from ..lowering.program import LoopProgram, reads, written
from ..lowering.sizes import at_most, hint, is_number
from .artifact import MemoryPlan, Schedule
from .ir import OUT_VARIANTS, ExternGroup, Group, Slot
from .order import group_writes, lifetimes, peak

ALIGN = 64
NEAR = 1 / 16
"""A placement that misses the bound by no more than this is taken."""

MOVES = 8
TRIES = 100_000
"""Pairs of buffers that a search may look at: 27 placements of 60 buffers, one of 300."""

ORDERS: tuple[Callable[[Slot], Any], ...] = (
    lambda s: -s.nbytes * (s.last - s.first + 1),
    lambda s: (s.first - s.last, -s.nbytes),
    lambda s: -s.nbytes,
    lambda s: (-s.last, -s.nbytes),
)
"""Bytes times life, length of life, bytes, last use."""


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def plan_memory(schedule: Schedule) -> MemoryPlan:
    """Slots for the intermediates of ``schedule``, with a decision for every buffer that is written."""
    return plan_groups(schedule.stage, schedule.program, schedule.groups)


def plan_groups(stage: str, program: LoopProgram, groups: tuple[Group, ...]) -> MemoryPlan:
    """The plan of groups that are not a schedule yet; ``stage`` is the schedule's."""
    spans = lifetimes(groups)
    excluded = dict(_excluded(program, groups))
    wanted = [(spec, i) for i, group in enumerate(groups) for spec in group_writes(group)]
    placed = [spec for spec, _ in sorted((w for w in wanted if w[0].name not in excluded), key=lambda w: (-w[0].cost, w[1]))]
    slots, arena = (search if is_number(*(s.nbytes for s in placed)) else _blocks)(placed, spans)
    slots.sort(key=lambda s: (s.first, hint(s.offset)))
    by_name = {s.buffer.name: s for s in slots}
    decisions: list[Decision] = []
    for spec, i in wanted:
        outcome, reason, facts = _reuse(by_name.get(spec.name), slots, excluded.get(spec.name, ""))
        decisions.append(Decision("reuse", (f"{stage}/{groups[i].name}/{spec.name}",), outcome, reason, {"bytes": spec.cost, **facts}))
    own = {s.name: s.cost for g in groups for s in group_writes(g) if excluded.get(s.name) in ("allocates itself", "aliased")}
    return MemoryPlan(
        stage=f"{stage}.memory",
        slots=tuple(slots),
        arena_bytes=arena,
        peak_bytes=hint(arena) + peak(groups, own),
        bound_bytes=peak(groups, {s.buffer.name: hint(aligned(s.buffer.nbytes)) for s in slots}),
        eager_bytes=eager_peak(program),
        groups=groups,
        decisions=tuple(decisions),
    )


def _excluded(program: LoopProgram, groups: tuple[Group, ...]) -> Iterator[tuple[str, str]]:
    """(buffer, reason) for what the arena may not hold; later reasons win."""
    for group in groups:
        if isinstance(group, ExternGroup) and group.node.target not in OUT_VARIANTS:
            yield from ((spec.name, "allocates itself") for spec in written(group.node))
    for group in groups:
        if isinstance(group, ExternGroup):
            yield from ((buffer, "aliased") for buffer in group.node.aliases)
    yield from ((o.buffer, "output") for o in program.outputs if isinstance(o, TensorView))


def search(specs: Sequence[BufferSpec], spans: Mapping[str, tuple[int, int]]) -> tuple[list[Slot], int]:
    """(slots, bytes of the arena): the best of several placements; ``specs`` come largest first."""
    order = [Slot(spec, 0, aligned(spec.nbytes), *spans[spec.name]) for spec in specs]
    near = peak_of(order) * (1 + NEAR)
    best = in_gaps(order)
    tries = TRIES // max(len(specs), 1) ** 2
    for key in ORDERS:
        order.sort(key=key)
        for _ in range(MOVES):
            if best[1] <= near or tries <= 0:
                return best
            tries -= 1
            found = in_gaps(order)
            best = min(best, found, key=lambda f: f[1])
            highest = next(i for i, s in enumerate(found[0]) if s.offset + s.nbytes == found[1])
            if highest == 0:
                break
            order.insert(0, order.pop(highest))
    return best


def peak_of(slots: Sequence[Slot]) -> int:
    """Most bytes of ``slots`` alive at once, below which no arena for them can be."""
    change = [0] * (max((s.last for s in slots), default=0) + 2)
    for s in slots:
        change[s.first] += s.nbytes
        change[s.last + 1] -= s.nbytes
    return max(itertools.accumulate(change))


def in_gaps(order: Sequence[Slot]) -> tuple[list[Slot], int]:
    """``order``, each slot in the smallest gap that is there while it lives, and where the highest ends."""
    slots: list[Slot] = []
    for s in order:
        slots.append(Slot(s.buffer, _gap(slots, s.first, s.last, s.nbytes), s.nbytes, s.first, s.last))
    return slots, max((s.offset + s.nbytes for s in slots), default=0)


def _blocks(specs: Sequence[BufferSpec], spans: Mapping[str, tuple[int, int]]) -> tuple[list[Slot], int]:
    """As ``in_gaps``, for sizes that are known only in relation to each other."""
    blocks: list[list[BufferSpec]] = []
    for spec in specs:
        first, last = spans[spec.name]
        free = [b for b in blocks if at_most(spec.nbytes, b[0].nbytes) and all(last < spans[o.name][0] or spans[o.name][1] < first for o in b)]
        if free:
            min(free, key=lambda b: b[0].cost).append(spec)
        else:
            blocks.append([spec])
    slots: list[Slot] = []
    end = 0
    for block in blocks:
        size = aligned(block[0].nbytes)
        slots += [Slot(spec, end, size, *spans[spec.name]) for spec in block]
        end = end + size
    return slots, end


def _gap(placed: list[Slot], first: int, last: int, nbytes: int) -> int:
    """The offset of the smallest gap of ``nbytes`` among the slots that live at some time in [first, last]; past them where there is none."""
    end, best = 0, (0, -1)
    for slot in sorted((s for s in placed if s.first <= last and first <= s.last), key=lambda s: s.offset):
        size = slot.offset - end
        if size >= nbytes and (best[1] < 0 or size < best[0]):
            best = size, end
        end = max(end, slot.offset + slot.nbytes)
    return best[1] if best[1] >= 0 else end


def _reuse(slot: Slot | None, slots: list[Slot], excluded: str) -> tuple[str, str, dict[str, Any]]:
    """(outcome, reason, facts): whether a buffer lies in bytes that another had before it."""
    if slot is None:
        return "refused", excluded, {}
    before = [s.buffer.name for s in slots if s.last < slot.first and _overlap(s, slot)]
    facts = {"offset": hint(slot.offset), "first": slot.first, "last": slot.last, "after": before}
    return ("accepted", "bytes of the dead", facts) if before else ("refused", "first in its bytes", facts)


def _overlap(a: Slot, b: Slot) -> bool:
    """Have they bytes in common, at the sizes at hand? Blocks are the same or apart at all sizes."""
    return hint(a.offset) < hint(b.offset + b.nbytes) and hint(b.offset) < hint(a.offset + a.nbytes)


def eager_peak(program: LoopProgram) -> int:
    """Most bytes alive at once if every node of the program ran by itself and each result were freed after its last reader."""
    outputs = {o.buffer for o in program.outputs if isinstance(o, TensorView)}
    last: dict[str, int] = {}
    for i, node in enumerate(program.nodes):
        last.update((b, i) for b in reads(node))
    alive: dict[str, BufferSpec] = {}
    most = 0
    for i, node in enumerate(program.nodes):
        alive.update((s.name, s) for s in written(node) if s.name not in outputs)
        most = max(most, sum(s.cost for s in alive.values()))
        alive = {name: s for name, s in alive.items() if last.get(name, i) > i}
    return most
