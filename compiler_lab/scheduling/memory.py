"""The memory plan: where intermediates lie, so that buffers alive at different times share bytes.

In: a ``Schedule``. Out: a ``MemoryPlan``.
Always holds: buffers alive at the same time do not overlap, but for one that is written over another, in place (``in_place.py``); offsets are multiples
of 64. Only buffers that stay inside the program are placed: no inputs, outputs, results of aten calls that allocate for themselves, nor anything
such a call's result may alias.
Method: a buffer that can be written over one that dies takes its bytes; a row of such buffers is placed as one. Rows lie in one arena, which is kept between
calls (``places.py``), over what an aten call allocated, in the memory of results of the program, which is idle until they are written and is then
allocated earlier, or on their own. What pays is found by trying: the lowest peak is taken, the plainest plan of equals. Where sizes are symbolic
all is in the arena, and nothing is written in place.
PyTorch's counterpart: ``torch/_inductor/codegen/memory_planning.py`` and ``wrapper.py`` (reuse).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.artifact import Decision
from ..lowering.ir import BufferSpec, TensorView
from ..lowering.program import LoopProgram, reads, written
from ..lowering.sizes import hint, is_number
from .artifact import MemoryPlan, Schedule
from .in_place import pairs
from .ir import FRESH, OUT_VARIANTS, ExternGroup, Group, Slot
from .order import group_reads, group_writes, held, lifetimes
from .places import aligned, blocks, gap, search

Spans = Mapping[str, tuple[int, int]]

APART = 2048
"""Bytes that an allocation of its own must save: it takes half a microsecond, in which a kernel moves about as many."""

KEPT = 8
"""So many bytes of the arena, which is there when they are not needed too, weigh as much as one of the peak."""

LARGE = 1 << 20
"""Buffers of so many bytes stay in the arena: fresh memory of that size is often given back to the system, and each of its pages is a fault again."""


def plan_memory(schedule: Schedule) -> MemoryPlan:
    """Slots for the intermediates of ``schedule``, with a decision for every buffer that is written."""
    return plan_groups(schedule.stage, schedule.program, schedule.groups)


def plan_groups(stage: str, program: LoopProgram, groups: tuple[Group, ...]) -> MemoryPlan:
    """The plan of groups that are not a schedule yet; ``stage`` is the schedule's."""
    spans = lifetimes(groups)
    excluded = dict(_excluded(program, groups))
    wanted = [(spec, i) for i, group in enumerate(groups) for spec in group_writes(group)]
    placed = [spec for spec, _ in sorted((w for w in wanted if w[0].name not in excluded), key=lambda w: (-w[0].cost, w[1]))]
    if is_number(*(s.nbytes for s in placed)):
        found = _best(program, groups, placed, spans, excluded)
    else:
        found = Layout(*blocks(placed, spans), {}, 0)
    slots = sorted(found.slots, key=lambda s: (s.first, hint(s.offset)))
    by_name = {s.buffer.name: s for s in slots}
    decisions: list[Decision] = []
    for spec, i in wanted:
        outcome, reason, facts = _reuse(by_name.get(spec.name), slots, excluded.get(spec.name, "on its own"), found.over.get(spec.name))
        decisions.append(Decision("reuse", (f"{stage}/{groups[i].name}/{spec.name}",), outcome, reason, {"bytes": spec.cost, **facts}))
    outputs = _outputs(program)
    return MemoryPlan(
        stage=f"{stage}.memory",
        slots=tuple(slots),
        arena_bytes=found.arena,
        peak_bytes=hint(found.arena) + outside(program, groups, slots),
        bound_bytes=outside(program, groups, ()),
        eager_bytes=eager_peak(program),
        groups=groups,
        over=found.over,
        results=outputs,
        held=held(program),
        decisions=tuple(decisions),
    )


def _outputs(program: LoopProgram) -> frozenset[str]:
    return frozenset(o.buffer for o in program.outputs if isinstance(o, TensorView))


def _excluded(program: LoopProgram, groups: tuple[Group, ...]) -> Iterator[tuple[str, str]]:
    """(buffer, reason) for what the arena may not hold; later reasons win."""
    for group in groups:
        if _allocates(group):
            yield from ((spec.name, "allocates itself") for spec in group_writes(group))
    for group in groups:
        if isinstance(group, ExternGroup):
            yield from ((buffer, "aliased") for buffer in group.node.aliases)
    yield from ((buffer, "output") for buffer in sorted(_outputs(program)))


# ---- numbers: the arena, results of aten, results of the program ----


@dataclass(frozen=True)
class Layout:
    """One way to place everything. ``over``: as in ``MemoryPlan``; ``cost``: most bytes at once, what a backward is given among them."""

    slots: list[Slot]
    arena: int
    over: Mapping[str, str]
    cost: int


@dataclass(frozen=True)
class Row:
    """Buffers that are written one over the other, as one slot."""

    members: tuple[BufferSpec, ...]
    slot: Slot

    def slots(self, at: Slot, spans: Spans) -> Iterator[Slot]:
        """A slot for each member, in the place of ``at``; the first of a row on its own is its memory, and needs none."""
        return (Slot(spec, at.offset, at.nbytes, *spans[spec.name], at.host) for spec in self.members if spec.name != at.host)


def _best(program: LoopProgram, groups: Sequence[Group], placed: Sequence[BufferSpec], spans: Spans, excluded: Mapping[str, str]) -> Layout:
    """The layout that costs least, the plainest of equals.

    Tried are: all in the arena or over results of aten; also over results of the program; also inside of these. Then the largest rows are taken out of
    the arena, one, two, four and so on up to all, as long as that could pay."""
    inner = {spec.name for spec in placed}
    given = {s.name for g in groups if isinstance(g, ExternGroup) and g.node.target in FRESH for s in group_writes(g) if excluded[s.name] == "allocates itself"}
    over = dict(pairs(program, groups, spans, inner, given))
    late = [s for g in groups if not _allocates(g) for s in group_writes(g) if excluded.get(s.name) == "output"]
    each = APART // 4 if program.stage.endswith("backward") else APART  # a call under autograd takes tens of microseconds whatever it does

    def laid(ends: bool, inside: bool, apart: int = 0) -> Layout:
        chosen = {made: read for made, read in over.items() if ends or made in inner}
        rows = list(_rows(placed, chosen, spans))
        found = {row.members[0].name: row.slot for row in rows if row.slot.host}
        moved = _inside([row.slot for row in rows if not row.slot.host], list(found.values()), late, spans) if inside else []
        found.update((s.buffer.name, s) for s in moved)
        free = [row.slot for row in rows if row.members[0].name not in found]
        own = [replace(s, host=s.buffer.name) for s in [s for s in free if s.nbytes < LARGE][:apart]]
        gone = {s.host for s in own}
        slots, arena = search(replace(s, nbytes=aligned(s.nbytes)) for s in free if s.buffer.name not in gone)
        found.update((s.buffer.name, s) for s in (*_back(moved, slots, arena), *own, *slots))
        slots = [slot for row in rows for slot in row.slots(found[row.members[0].name], spans)]
        most = arena + outside(program, groups, slots)
        return Layout(slots, arena, chosen, most + arena // KEPT + each * len(own))

    best = min((laid(*way) for way in ((False, False), (True, False), (True, True))), key=lambda way: way.cost)
    floor = outside(program, groups, ())
    for apart in (*(1 << i for i in range(len(placed).bit_length())), len(placed)):
        if each * apart < best.cost - floor:
            best = min(best, laid(True, False, apart), laid(True, True, apart), key=lambda way: way.cost)
    return best


def _allocates(group: Group) -> bool:
    """Whether it is an aten call that cannot be given the memory of its results."""
    return isinstance(group, ExternGroup) and group.node.target not in OUT_VARIANTS


def _rows(placed: Sequence[BufferSpec], over: dict[str, str], spans: Spans) -> Iterator[Row]:
    """Takes out of ``over`` a result of the program at the end of a row that begins over a result of aten."""
    specs, after = {s.name: s for s in placed}, {read: made for made, read in over.items()}
    for spec in placed:
        below = over.get(spec.name, "")
        if below in specs:
            continue
        members = [spec]
        while (then := after.get(members[-1].name, "")) in specs:
            members.append(specs[then])
        if below and then:
            del over[then]
        yield Row(tuple(members), Slot(spec, 0, spec.nbytes, spans[spec.name][0], spans[members[-1].name][1], below or then))


def _inside(rows: Iterable[Slot], hosted: Collection[Slot], late: Sequence[BufferSpec], spans: Spans) -> list[Slot]:
    """Those of ``rows`` that find room in a result that is written after them: each in the smallest gap, the largest and then the latest first, for
    what is written last has its place already."""
    found, inside = list[Slot](), {spec.name: [s for s in hosted if s.host == spec.name] for spec in late}
    for row in sorted(rows, key=lambda s: (-s.nbytes, -s.last)):
        best: tuple[int, Slot] | None = None
        for spec in late:
            if row.last >= spans[spec.name][0] or spec.nbytes < row.nbytes or spec.dtype != row.buffer.dtype:
                continue
            offset, left = gap(inside[spec.name], row)
            left = spec.nbytes - offset - row.nbytes if left < 0 else left
            if left >= 0 and (best is None or left < best[0]):
                best = left, replace(row, offset=offset, host=spec.name)
        if best is not None:
            inside[best[1].host].append(best[1])
            found.append(best[1])
    return found


def _back(moved: Sequence[Slot], laid: list[Slot], arena: int) -> list[Slot]:
    """Those of ``moved`` for which the arena has no room as it is; the others are added to ``laid``."""
    left: list[Slot] = []
    for slot in moved:
        at_home = replace(slot, nbytes=aligned(slot.nbytes), host="")
        at_home = replace(at_home, offset=gap(laid, at_home)[0])
        (laid if at_home.offset + at_home.nbytes <= arena else left).append(at_home if at_home.offset + at_home.nbytes <= arena else slot)
    return left


# ---- figures and reasons ----


def outside(program: LoopProgram, groups: Sequence[Group], slots: Sequence[Slot]) -> int:
    """Most bytes at once of what is not in the arena: results, results of aten's calls, and what a backward alone holds."""
    spans, outputs = lifetimes(groups), _outputs(program)
    home = {s.buffer.name for s in slots}
    lives = {
        s.name: (spans[s.name][0], len(groups) - 1 if s.name in outputs else spans[s.name][1]) for g in groups for s in group_writes(g) if s.name not in home
    }
    for s in slots:  # what is in another buffer's memory keeps that alive
        if s.host:
            first, last = lives[s.host]
            lives[s.host] = min(first, s.first), max(last, s.last)
    sizes = {s.name: s.cost for g in groups for s in group_writes(g)}
    own, last = held(program), {b: i for i, g in enumerate(groups) for b in group_reads(g)}
    sizes |= own
    lives |= {name: (0, last.get(name, 0)) for name in own}
    change = [0] * (len(groups) + 2)
    for name, (first, last) in lives.items():
        change[first] += sizes[name]
        change[last + 1] -= sizes[name]
    return max(itertools.accumulate(change), default=0)


def _reuse(slot: Slot | None, slots: list[Slot], excluded: str, over: str | None) -> tuple[str, str, dict[str, Any]]:
    """(outcome, reason, facts): whether a buffer lies in bytes that another had before it."""
    if over is not None:
        return "accepted", "in place", {"over": over}
    if slot is None:
        return "refused", excluded, {}
    before = [s.buffer.name for s in slots if s.last < slot.first and s.host == slot.host and _overlap(s, slot)]
    facts = {"offset": hint(slot.offset), "first": slot.first, "last": slot.last, "after": before}
    if slot.host:
        return "accepted", "inside a result", {**facts, "host": slot.host}
    return ("accepted", "bytes of the dead", facts) if before else ("refused", "first in its bytes", facts)


def _overlap(a: Slot, b: Slot) -> bool:
    """Have they bytes in common, at the sizes at hand? Blocks are the same or apart at all sizes."""
    return hint(a.offset) < hint(b.offset + b.nbytes) and hint(b.offset) < hint(a.offset + a.nbytes)


def eager_peak(program: LoopProgram) -> int:
    """Most bytes alive at once if every node of the program ran by itself and each result, and what a backward alone holds, were freed after its last
    reader."""
    last = dict.fromkeys(_outputs(program), len(program.nodes))
    for i, node in enumerate(program.nodes):
        last.update((b, i) for b in reads(node) if last.get(b, 0) < i)
    change = [0] * (len(program.nodes) + 2)
    for i, node in enumerate(program.nodes):
        for s in written(node):
            change[i] += s.cost
            change[last.get(s.name, i) + 1] -= s.cost
    for name, size in held(program).items():
        change[0] += size
        change[last.get(name, 0) + 1] -= size
    return max(itertools.accumulate(change))
