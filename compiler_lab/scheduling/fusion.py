"""Scheduling: which loops share a kernel, in which order kernels run, and where buffers live.

In: a ``LoopProgram``. Out: a ``Schedule``: groups in order, each loop re-expressed over its group's space, with a ``Decision`` for
every pair that was considered, and the memory plan attached.
Always holds: the schedule computes what the program computes; it is a function of the program alone; no pair is tried unless the two
share a buffer or stand near each other with equal spaces, so the work grows with the number of reads.
Method: greedy, pairs in order of the bytes they save (as PyTorch does it, ``torch/_inductor/scheduler.py: fuse_nodes``); then cheap values
that are still stored for others are computed again in their readers (``recompute.py``). Left out: benchmarking fusions, tiling.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..core.artifact import Decision
from ..core.options import Options
from ..lowering.index import Index
from ..lowering.ir import ExternNode, LoopNode, Node, SerialNode, TensorView
from ..lowering.program import LoopProgram, reads, written
from ..lowering.sizes import Conditions, hint, recorded_by
from .artifact import Schedule
from .ir import ExternGroup, Group, LoopGroup
from .memory import plan_groups
from .merge import Draft, merge
from .order import dependencies, order
from .phases import build_group
from .reach import Reach
from .recompute import recompute
from .respace import member_of

NEIGHBOURS = 3  # readers of one buffer, and loops of one space, are paired with this many of those that follow
SMALL_BYTES = 16384  # kernels that write less than this are joined even if they share nothing
FAR = 48  # positions apart from which a horizontal fusion is asked to save more than it keeps alive


@dataclass(frozen=True)
class Pair:
    """Two loop nodes that share a buffer, or an equal space; ``saved`` bytes of traffic if they become one kernel."""

    kind: str  # "vertical" | "horizontal"
    first: str
    second: str
    saved: int


def schedule(program: LoopProgram, options: Options = Options()) -> Schedule:  # noqa: B008
    """Groups, their order and the memory plan. Raises nothing of its own: what cannot be fused runs alone.

    Symbolic sizes are equal where they are known to be; costs are weighed at the sizes at hand, which only the speed depends on."""
    log = Conditions(program.conditions, exact=True) if program.sizes else None
    with recorded_by(log):
        nodes, dropped = live_nodes(program)
        fuser = Fuser(program, nodes, options)
        fuser.fuse()
        drafts, again = recompute(tuple(fuser.drafts()), fuser.readers, fuser.outputs, program, options)
        made = _assemble(program, nodes, drafts, (*dropped, *fuser.decisions(), *again))
    return replace(made, conditions=(*program.conditions, *log.recorded)) if log else made


def live_nodes(program: LoopProgram) -> tuple[tuple[tuple[int, Node], ...], tuple[Decision, ...]]:
    """(position, node) of every node whose result is read or returned; extern calls always stay."""
    wanted = {o.buffer for o in program.outputs if isinstance(o, TensorView)}
    kept: list[tuple[int, Node]] = []
    dropped: list[Decision] = []
    for position, node in reversed(list(enumerate(program.nodes))):
        if not isinstance(node, ExternNode) and node.name not in wanted:
            dropped.append(Decision("drop", (program.id(node),), "dropped", "no reader", {"bytes": node.output.cost}))
            continue
        wanted |= reads(node)
        kept.append((position, node))
    return tuple(reversed(kept)), tuple(reversed(dropped))


class Fuser:
    """The greedy search. ``units``: position of the first node -> draft, or None for an extern call; ``considered`` counts pairs, round by round."""

    def __init__(self, program: LoopProgram, nodes: tuple[tuple[int, Node], ...], options: Options) -> None:
        self.program, self.nodes, self.options = program, nodes, options
        self.outputs = frozenset(o.buffer for o in program.outputs if isinstance(o, TensorView))
        self.position = {spec.name: p for p, n in nodes for spec in written(n)}
        self.ids = {spec.name: program.id(n) for _, n in nodes for spec in written(n)}
        self.loops = {n.name: n for _, n in nodes if isinstance(n, LoopNode)}
        self.serial = frozenset(n.name for _, n in nodes if isinstance(n, SerialNode))
        self.inputs = {p: reads(n) for p, n in nodes}
        self.readers: dict[str, list[int]] = {}
        for p, _ in nodes:
            for buffer in sorted(self.inputs[p]):
                self.readers.setdefault(buffer, []).append(p)
        self.single_reader = {b: len(self.readers.get(b, ())) == 1 and b not in self.outputs for b in self.loops}
        self.units: dict[int, Draft | None] = {}
        for p, n in nodes:
            if isinstance(n, LoopNode):
                space, member = member_of(n, p)
                self.units[p] = Draft(p, space, (member,))
            else:
                self.units[p] = None
        self.reach = Reach(dependencies(nodes))
        self.considered = 0
        self.outcome: dict[Pair, Decision] = {}
        self.tried: dict[tuple[int, int], tuple[Draft, Draft, str]] = {}

    def drafts(self) -> Iterator[Draft]:
        return (d for _, d in sorted(self.units.items()) if d is not None)

    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self.outcome.values())

    def fuse(self) -> None:
        """Rounds over all pairs, best first, until a round joins nothing: a pair refused once may fit after others have joined."""
        pairs = sorted(self.pairs(), key=lambda p: (-p.saved, p.kind != "vertical", self.position[p.first], self.position[p.second]))
        for pair in pairs:
            self.outcome[pair] = self._decision(pair, "refused", "fusion is off", 0)
        changed, turn = self.options.fusion, 0
        while changed:
            changed, turn = False, turn + 1
            for pair in pairs:
                if self.outcome[pair].outcome == "accepted":
                    continue
                reason, joined = self.consider(pair)
                self.outcome[pair] = self._decision(pair, "accepted" if joined else "refused", reason, turn)
                changed |= joined
        for pair in pairs:  # joined by way of others
            a, b = self.reach.unit(self.position[pair.first]), self.reach.unit(self.position[pair.second])
            if a == b and self.outcome[pair].outcome == "refused":
                self.outcome[pair] = self._decision(pair, "accepted", "same space", turn)

    def _decision(self, pair: Pair, outcome: str, reason: str, turn: int) -> Decision:
        """``turn``: the round of the last answer; accepted pairs, by round and then as they stand, are the order in which groups grew."""
        subject = (self.ids[pair.first], self.ids[pair.second])
        return Decision("fuse", subject, outcome, reason, {"bytes_saved": pair.saved, "kind": pair.kind, "round": turn})

    def pairs(self) -> Iterator[Pair]:
        """Producer and consumer, readers of one buffer near each other, and loops of one space near each other; each pair once."""
        seen: set[tuple[str, str]] = set()

        def fresh(kind: str, a: str, b: str) -> Iterator[Pair]:
            if a != b and (a, b) not in seen:
                seen.add((a, b))
                yield Pair(kind, a, b, self._saved(a, b))

        for p, n in self.nodes:
            name = n.name if isinstance(n, LoopNode) else next((s.name for s in written(n)), "")
            for buffer in sorted(self.inputs[p], key=lambda b: (self.position.get(b, -1), b)):
                if buffer in self.position and name and (buffer in self.loops or name in self.loops):
                    yield from fresh("vertical", buffer, name)
        at = {self.position[name]: name for name in self.loops}
        for _, near in sorted(self.readers.items()):
            loops = [at[p] for p in near if p in at]
            for i, a in enumerate(loops):
                for b in loops[i + 1 : i + 1 + NEIGHBOURS]:
                    yield from fresh("horizontal", a, b)
        alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
        for draft in self.drafts():
            sizes = (tuple(v.size for v in draft.space.outer), tuple(v.size for v in draft.space.inner))
            alike.setdefault(sizes, []).append(draft.members[0].name)
        for names in alike.values():
            for a, b in itertools.pairwise(names):
                yield from fresh("horizontal", a, b)

    def _saved(self, a: str, b: str) -> int:
        """Bytes not moved if both are one kernel: what both read, once; what the one makes and the other reads, and its store if nobody else reads it."""
        if a not in self.loops or b not in self.loops:
            return self.program.buffers[a].cost
        ours, theirs = self.inputs[self.position[a]], self.inputs[self.position[b]]
        saved = sum(self.program.buffers[x].cost for x in ours & theirs)
        if a in theirs:
            saved += self.program.buffers[a].cost * (2 if self.single_reader[a] else 1)
        return saved

    def consider(self, pair: Pair) -> tuple[str, bool]:
        """(reason, joined): whether the groups of the two can be one now; makes them one if so."""
        self.considered += 1
        p, q = self.position[pair.first], self.position[pair.second]
        i, j = self.reach.unit(p), self.reach.unit(q)
        a, b = self.units[i], self.units[j]
        if a is None or b is None:
            serial = pair.first in self.serial or pair.second in self.serial
            return "in order" if serial else "extern", False
        if i == j:
            return "same space", True
        if not (a.space.numel and b.space.numel):
            return "empty", False
        if len(a.members) + len(b.members) > self.options.max_fused_nodes:
            return "too large", False
        if self.reach.apart(p, q):
            return "would make a cycle", False
        known = self.tried.get((i, j))
        if known is not None and known[0] is a and known[1] is b:
            return known[2], False
        result = merge(a, b, self.single_reader)
        reason = result if isinstance(result, str) else self.worth(pair, a, b, result)
        if isinstance(result, str) or reason not in ("same space", "same rows", "small kernels"):
            self.tried[i, j] = (a, b, reason)
            return reason, False
        self.join(i, j, result)
        return reason, True

    def worth(self, pair: Pair, a: Draft, b: Draft, joined: Draft) -> str:
        """Why the merge pays, or why it does not."""
        made = {m.name for m in a.members}
        rows = "same rows" if a.reduces != b.reduces and a.space.numel != b.space.numel else "same space"
        if any(buffer in made for m in b.members for buffer, _ in m.reads) or any(buffer in b.by_name for m in a.members for buffer, _ in m.reads):
            return rows
        stored = sum(m.node.output.cost for d in (a, b) for m in d.members)
        shared = self._shared(a, b, joined)
        if shared * 8 < hint(joined.space.numel):
            return "small kernels" if stored <= SMALL_BYTES else "no shared data"
        far = abs(a.members[-1].position - b.members[0].position) > FAR
        return "memory would rise" if far and stored > shared else rows

    def _shared(self, a: Draft, b: Draft, joined: Draft) -> int:
        """Bytes of buffers that members of both read at one and the same index."""
        sides: list[set[tuple[str, Index]]] = [{(x, i) for m in joined.members if m.name in d.by_name for x, i in m.reads} for d in (a, b)]
        return sum(self.program.buffers[x].cost for x in {x for x, _ in sides[0] & sides[1]})

    def join(self, i: int, j: int, draft: Draft) -> None:
        keep = self.reach.join(i, j)
        del self.units[j if keep == i else i]
        self.units[keep] = replace(draft, slot=keep)


def _assemble(program: LoopProgram, nodes: tuple[tuple[int, Node], ...], drafts: tuple[Draft, ...], decisions: tuple[Decision, ...]) -> Schedule:
    outputs = frozenset(o.buffer for o in program.outputs if isinstance(o, TensorView))
    outside: dict[str, set[int]] = {}
    for draft in drafts:
        for m in draft.members:
            for buffer, _ in m.reads:
                if buffer not in draft.by_name or draft.by_name[buffer].stored:
                    outside.setdefault(buffer, set()).add(draft.slot)
    for p, n in nodes:
        if not isinstance(n, LoopNode):
            for buffer in reads(n):
                outside.setdefault(buffer, set()).add(p)
    units: list[tuple[int, Group]] = []
    kept: list[Decision] = []
    for draft in drafts:
        needed = frozenset(m.name for m in draft.members if m.stored and (m.name in outputs or outside.get(m.name, set()) - {draft.slot}))
        group, why = build_group(draft, needed, program.stage)
        units.append((draft.slot, group))
        kept += why
    units += [(p, ExternGroup("", n)) for p, n in nodes if isinstance(n, ExternNode)]
    units += [(p, LoopGroup("", n.outer, n.steps, (), frozenset(), {}, "serial", n)) for p, n in nodes if isinstance(n, SerialNode)]
    groups = _named(order(program, [g for _, g in sorted(units, key=lambda u: u[0])]))
    stage = "scheduling" + program.stage.removeprefix("lowering")
    plan = plan_groups(stage, program, groups)
    return Schedule(stage=stage, program=program, groups=groups, plan=plan, decisions=(*decisions, *kept, *plan.decisions))


def _named(groups: list[Group]) -> tuple[Group, ...]:
    named: list[Group] = []
    kernels = externs = 0
    for group in groups:
        if isinstance(group, LoopGroup):
            named.append(replace(group, name=f"k{kernels}"))
            kernels += 1
        else:
            named.append(replace(group, name=f"e{externs}"))
            externs += 1
    return tuple(named)
