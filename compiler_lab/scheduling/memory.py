"""The memory plan: intermediates in one arena, placed so that buffers alive at different times share bytes.

In: a ``Schedule``. Out: a ``MemoryPlan``.
Always holds: offsets are multiples of 64; buffers alive at the same time do not overlap. Only buffers that stay inside the program are
placed: no inputs, outputs, results of aten calls that allocate for themselves, nor anything such a call's result may alias.
Method: best fit in order of the groups: the smallest free block that is large enough, else the free block at the end grown, else new.
PyTorch's counterpart: ``torch/_inductor/codegen/memory_planning.py`` and ``wrapper.py`` (reuse). Left out: writing in place.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.artifact import Decision
from ..lowering.ir import BufferSpec, TensorView
from ..lowering.program import LoopProgram, reads, written
from .artifact import MemoryPlan, Schedule
from .ir import OUT_VARIANTS, ExternGroup, Group, Slot
from .order import group_writes, lifetimes, peak

ALIGN = 64


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def plan_memory(schedule: Schedule) -> MemoryPlan:
    """Slots for the intermediates of ``schedule``, with a decision for every buffer that is written."""
    return plan_groups(schedule.stage, schedule.program, schedule.groups)


def plan_groups(stage: str, program: LoopProgram, groups: tuple[Group, ...]) -> MemoryPlan:
    """The plan of groups that are not a schedule yet; ``stage`` is the schedule's."""
    spans = lifetimes(groups)
    excluded = dict(_excluded(program, groups))
    arena = Arena()
    slots: list[Slot] = []
    decisions: list[Decision] = []
    ending: dict[int, list[Slot]] = {}
    for i, group in enumerate(groups):
        for spec in sorted(group_writes(group), key=lambda s: -s.nbytes):
            subject = (f"{stage}/{group.name}/{spec.name}",)
            if spec.name in excluded:
                decisions.append(Decision("reuse", subject, "refused", excluded[spec.name], {"bytes": spec.nbytes}))
                continue
            offset, reused = arena.take(aligned(spec.nbytes))
            slot = Slot(spec, offset, aligned(spec.nbytes), *spans[spec.name])
            slots.append(slot)
            ending.setdefault(slot.last, []).append(slot)
            facts = {"bytes": spec.nbytes, "offset": offset, "first": slot.first, "last": slot.last}
            decisions.append(Decision("reuse", subject, "accepted" if reused else "refused", "fits a free block" if reused else "no free block", facts))
        for slot in ending.get(i, ()):
            arena.give(slot.offset, slot.nbytes)
    own = {s.name: s.nbytes for g in groups for s in group_writes(g) if excluded.get(s.name) in ("allocates itself", "aliased")}
    return MemoryPlan(
        stage=f"{stage}.memory",
        slots=tuple(slots),
        arena_bytes=arena.size,
        peak_bytes=arena.size + peak(groups, own),
        bound_bytes=peak(groups, {s.buffer.name: s.nbytes for s in slots}),
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


class Arena:
    """Free blocks by offset, neighbours joined."""

    def __init__(self) -> None:
        self.size = 0
        self.free: list[tuple[int, int]] = []  # (offset, nbytes), ascending

    def take(self, nbytes: int) -> tuple[int, bool]:
        """(offset, whether all of it was there before)."""
        if nbytes == 0:
            return 0, True
        fitting = [(size, offset) for offset, size in self.free if size >= nbytes]
        if fitting:
            size, offset = min(fitting)
            self.free.remove((offset, size))
            if size > nbytes:
                self.free = sorted([*self.free, (offset + nbytes, size - nbytes)])
            return offset, True
        offset = self.size
        if self.free and sum(self.free[-1]) == self.size:
            offset, _ = self.free.pop()
        self.size = offset + nbytes
        return offset, False

    def give(self, offset: int, nbytes: int) -> None:
        if nbytes == 0:
            return
        joined: list[tuple[int, int]] = []
        for start, size in sorted([*self.free, (offset, nbytes)]):
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((start, size))
        self.free = joined


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
        most = max(most, sum(s.nbytes for s in alive.values()))
        alive = {name: s for name, s in alive.items() if last.get(name, i) > i}
    return most
