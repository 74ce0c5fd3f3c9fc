"""Computing cheap values again where they are read, so that they need no memory at all.

In: the drafts fusion arrived at. Out: drafts in which a cheap pointwise value that was stored for other groups stands in each of its
readers instead, and the decisions.
Always holds: no expensive op and no reduction is repeated; the bytes moved do not rise; inputs kept alive longer weigh hardly more than
the buffer that is saved. What is repeated reads only buffers made before its new group runs, so no cycle arises.
PyTorch's counterpart: the inlining that ``torch/_inductor/lowering.py`` does before scheduling (``Pointwise`` read without ``realize``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.artifact import Decision
from ..core.options import Options
from ..lowering.index import Index
from ..lowering.program import LoopProgram, written
from ..lowering.sizes import hint
from .merge import Draft, where_read
from .repeat import Chain, inline, place
from .respace import Member, keeps_products, numel

MOST_NODES, MOST_WORK = 6, 24
"""Size of what is repeated for one value: loop nodes and scalar operations."""


class Recompute:
    """One pass, last nodes first. ``drafts`` by slot; ``readers``: buffer -> positions of the nodes that read it; ``near``: buffer -> slots of drafts
    that touch it, or once did."""

    def __init__(self, drafts: tuple[Draft, ...], readers: Mapping[str, list[int]], outputs: frozenset[str], program: LoopProgram, options: Options) -> None:
        self.drafts = {d.slot: d for d in drafts}
        self.readers, self.outputs, self.program, self.options = readers, outputs, program, options
        self.loops = {m.position for d in drafts for m in d.members}
        self.near: dict[str, set[int]] = {}
        for draft in drafts:
            self._near(draft.slot, draft)
        self.made = frozenset(spec.name for node in program.nodes for spec in written(node))

    def _near(self, slot: int, draft: Draft) -> None:
        for buffer in draft.accesses:
            self.near.setdefault(buffer, set()).add(slot)

    def run(self) -> tuple[Decision, ...]:
        decisions: list[Decision] = []
        candidates = sorted(((m.position, slot) for slot, d in self.drafts.items() for m in d.members), reverse=True)
        for position, slot in candidates:
            draft = self.drafts.get(slot)
            member = next((m for m in draft.members if m.position == position and m.stored), None) if draft else None
            if draft is None or member is None or not self._wanted_elsewhere(draft, member):
                continue
            reason, facts = self.consider(draft, member)
            outcome = "accepted" if reason == "cheaper than memory" else "refused"
            decisions.append(Decision("recompute", (f"{self.program.stage}/{member.name}",), outcome, reason, facts))
        return tuple(decisions)

    def _wanted_elsewhere(self, draft: Draft, member: Member) -> bool:
        """Stored only for loops that read it where it is not made."""
        if member.traits.reduction or member.name in self.outputs or not draft.space.numel:
            return False
        readers = self.readers.get(member.name, [])
        return all(p in self.loops for p in readers) and bool(self.homes(draft, member))

    def reading(self, buffer: str) -> list[int]:
        """Slots of the drafts that read the buffer, its own among them, and have no copy of the value."""
        near = ((slot, self.drafts[slot]) for slot in sorted(self.near.get(buffer, ())) if slot in self.drafts)
        return [slot for slot, d in near if buffer in d.accesses and _loads(d, buffer) and not _has_copy(d, buffer)]

    def homes(self, draft: Draft, member: Member) -> list[int]:
        """Slots of the drafts in which the value would be computed again: others that read it, and its own where that reads it at another point."""
        return [
            slot for slot in self.reading(member.name) if any(self._elsewhere(draft, member, slot, m, i) for m, i in _loads(self.drafts[slot], member.name))
        ]

    def _elsewhere(self, draft: Draft, member: Member, slot: int, reader: Member, index: Index) -> bool:
        return slot != draft.slot or where_read(member, reader, index, draft.space) != "here"

    def consider(self, draft: Draft, member: Member) -> tuple[str, dict[str, int]]:
        """(reason, facts); does it where the reason is "cheaper than memory"."""
        chain = self.chain(draft, member)
        if chain is None:
            return "expensive", {}
        size, homes = self.program.buffers, self.homes(draft, member)
        repeated: dict[int, Draft] = {}
        extra = sum(size[b].cost for b in chain.inputs if b in draft.by_name and not self._stored(draft, draft.by_name[b]))
        for slot in homes:
            target = self.drafts[slot]
            result = place(chain, draft, target) if slot != draft.slot else "loop order"
            if not isinstance(result, str):
                extra += sum(size[b].cost for b in chain.inputs if b not in target.accesses)
            else:
                result = inline(chain, draft, target, lambda m, i, slot=slot: self._elsewhere(draft, member, slot, m, i))
                points = sum(hint(numel(target.space.outer if m.level == "outer" else target.space.variables)) for m, _ in _loads(target, member.name))
                extra += sum(min(size[b].cost, points * size[b].dtype.itemsize) for b in chain.inputs)
            if isinstance(result, str):
                return result, {}
            if not keeps_products(result.space, result.members):
                return "broadcast", {}
            if len(result.members) > self.options.max_fused_nodes:
                return "too large", {}
            repeated[slot] = result
        saved = member.node.output.cost * (1 + len(homes))
        facts = {"bytes_saved": saved, "bytes_read": extra, "readers": len(homes)}
        if extra > saved:
            return "more traffic", facts
        held = sum(size[b].cost for b in chain.inputs if not self._lives_on(b, homes))
        if held > member.node.output.cost * 1.25:
            return "memory would rise", facts
        self.drafts.update(repeated)
        for slot, result in repeated.items():
            self._near(slot, result)
        self._clear(draft, member)
        return "cheaper than memory", facts

    def _lives_on(self, buffer: str, homes: list[int]) -> bool:
        """Whether a buffer lives as long as the new readers run in any case: it is no intermediate, or is read as late."""
        last = max(self.readers.get(buffer, [0]))
        return buffer not in self.made or buffer in self.outputs or last >= max(self.drafts[slot].members[-1].position for slot in homes)

    def chain(self, draft: Draft, member: Member) -> Chain | None:
        """The member with what must be repeated for it; None where that is expensive, long, or reads other points of its group."""
        wanted, inputs, work = {member.name: member}, set[str](), 0
        queue = [member]
        while queue:
            m = queue.pop()
            work += m.traits.work
            if m.traits.expensive or m.traits.reduction or len(wanted) > MOST_NODES or work > MOST_WORK:
                return None
            for buffer, index in m.reads:
                p = draft.by_name.get(buffer)
                if p is None or self._stored(draft, p):
                    inputs.add(buffer)
                elif p.per_row and not p.level == m.level == "outer":
                    inputs.add(buffer)
                elif index != p.store:
                    return None
                elif buffer not in wanted:
                    wanted[buffer] = p
                    queue.append(p)
        return Chain(tuple(sorted(wanted.values(), key=lambda m: m.position)), frozenset(inputs))

    def _stored(self, draft: Draft, p: Member) -> bool:
        """Whether a buffer of the draft is in memory in any case."""
        return p.stored and (p.name in self.outputs or self._read_outside(draft.slot, p.name))

    def _clear(self, draft: Draft, member: Member) -> None:
        """Takes the member, and what only it read, out of its old group."""
        draft = self.drafts[draft.slot]
        members = list(draft.members)
        gone = [member.name]
        while gone:
            name = gone.pop()
            here = {b for m in members for b, _ in m.reads}
            victim = next((m for m in members if m.name == name), None)
            if victim is None or name in here or name in self.outputs or self._read_outside(draft.slot, name):
                continue
            members.remove(victim)
            gone += [b for b, _ in victim.reads if b in draft.by_name]
        if members:
            self.drafts[draft.slot] = replace(draft, members=tuple(members))
        else:
            del self.drafts[draft.slot]

    def _read_outside(self, slot: int, name: str) -> bool:
        """Whether another group loads the buffer from memory."""
        return any(p not in self.loops for p in self.readers.get(name, [])) or any(s != slot for s in self.reading(name))


def _loads(draft: Draft, buffer: str) -> list[tuple[Member, Index]]:
    return [(m, i) for m in draft.members for b, i in m.reads if b == buffer]


def _has_copy(draft: Draft, buffer: str) -> bool:
    return buffer in draft.by_name and not draft.by_name[buffer].stored


def recompute(
    drafts: tuple[Draft, ...], readers: Mapping[str, list[int]], outputs: frozenset[str], program: LoopProgram, options: Options
) -> tuple[tuple[Draft, ...], tuple[Decision, ...]]:
    """The drafts after the pass, in order, and a decision for each value considered."""
    if not options.fusion:
        return drafts, ()
    state = Recompute(drafts, readers, outputs, program, options)
    decisions = state.run()
    return tuple(d for _, d in sorted(state.drafts.items())), decisions
