"""In which order groups run: dependencies first, then little memory.

In: nodes or groups. Out: dependencies by position, and one order of the groups.
Always holds: the order is topological, a function of the program alone, and never peaks higher than program order does. Calls that
draw random numbers keep their order among themselves.
PyTorch's counterpart: ``torch/_inductor/memory.py`` (topological_sort_lpmf).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch

from ..lowering.ir import BufferSpec, ExternNode, Node, TensorView
from ..lowering.program import LoopProgram, reads, written
from .ir import ExternGroup, Group


def is_random(node: Node) -> bool:
    return isinstance(node, ExternNode) and torch.Tag.nondeterministic_seeded in node.target.tags


def dependencies(nodes: Sequence[tuple[int, Node]]) -> dict[int, frozenset[int]]:
    """Position -> positions that must run before it: makers of what it reads, and for a random call the random call before it."""
    maker: dict[str, int] = {}
    needs: dict[int, frozenset[int]] = {}
    random: int | None = None
    for position, node in nodes:
        found = {maker[b] for b in reads(node) if b in maker}
        if is_random(node):
            found |= {random} if random is not None else set()
            random = position
        needs[position] = frozenset(found)
        maker.update((spec.name, position) for spec in written(node))
    return needs


def group_reads(group: Group) -> frozenset[str]:
    """Buffers a group needs from before it."""
    if isinstance(group, ExternGroup):
        return reads(group.node)
    own = {n.name for n in group.nodes}
    return frozenset(b for n in group.nodes for b, _ in n.reads() if b not in own)


def group_writes(group: Group) -> tuple[BufferSpec, ...]:
    """Buffers a group leaves in memory."""
    if isinstance(group, ExternGroup):
        return written(group.node)
    return tuple(n.output for n in group.nodes if n.name not in group.internal)


def lifetimes(groups: Sequence[Group]) -> dict[str, tuple[int, int]]:
    """Buffer -> (group that writes it, last group that reads it), for everything groups write."""
    spans: dict[str, tuple[int, int]] = {}
    for i, group in enumerate(groups):
        for b in group_reads(group):
            if b in spans:
                spans[b] = (spans[b][0], i)
        spans.update((spec.name, (i, i)) for spec in group_writes(group))
    return spans


def peak(groups: Sequence[Group], sizes: dict[str, int], to_the_end: frozenset[str] = frozenset()) -> int:
    """Most bytes alive at once; ``sizes`` says which buffers count and how much, ``to_the_end`` which are never let go."""
    change = [0] * (len(groups) + 1)
    for b, (first, last) in lifetimes(groups).items():
        last = len(groups) - 1 if b in to_the_end else last
        change[first] += sizes.get(b, 0)
        change[last + 1] -= sizes.get(b, 0)
    most = now = 0
    for delta in change:
        now += delta
        most = max(most, now)
    return most


def held(program: LoopProgram) -> dict[str, int]:
    """Bytes of the inputs that nobody but a backward holds: each is there from the start to its last reader. A forward's are its caller's."""
    return {s.name: s.cost for s in program.inputs if s.name not in program.lent} if program.stage.endswith("backward") else {}


def order(program: LoopProgram, groups: Sequence[Group]) -> list[Group]:
    """Topological by first position, greedily by bytes, or either with what only adds bytes put off until it is needed: whichever peaks lowest, then
    holds least at the average; program order where they are equal. What a backward alone holds counts until its last reader."""
    outputs = frozenset(o.buffer for o in program.outputs if isinstance(o, TensorView))
    sizes = {spec.name: spec.cost for g in groups for spec in group_writes(g)}
    own = held(program)
    needs = _needs(groups)
    plain = _by_position(needs)
    thrifty = _by_bytes(groups, needs, {name: size for name, size in sizes.items() if name not in outputs})
    ways = [plain, thrifty, *(_put_off(groups, needs, way, sizes, outputs) for way in (plain, thrifty))]
    best = min(ways, key=lambda way: weight_of([groups[i] for i in way], sizes, own, outputs))
    return [groups[i] for i in best]


def weight_of(groups: Sequence[Group], sizes: Mapping[str, int], own: Mapping[str, int], outputs: frozenset[str]) -> tuple[int, int]:
    """(most bytes alive at once, the sum over all groups)."""
    last = {b: i for i, g in enumerate(groups) for b in group_reads(g)}
    change = [sum(own.values()), *([0] * len(groups))]
    for i, g in enumerate(groups):
        for spec in group_writes(g):
            change[i] += sizes[spec.name]
            if spec.name not in outputs:
                change[last.get(spec.name, i) + 1] -= sizes[spec.name]
    for b, size in own.items():
        change[last.get(b, 0) + 1 if groups else 0] -= size
    alive = list(itertools.accumulate(change))
    return max(alive), sum(alive)


def _put_off(groups: Sequence[Group], needs: list[set[int]], way: Sequence[int], sizes: Mapping[str, int], outputs: frozenset[str]) -> list[int]:
    """``way``, each group that makes more than it is the last to read right before the first that needs it."""
    place = {i: at for at, i in enumerate(way)}
    last = {b: i for i in way for b in group_reads(groups[i])}
    users: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for b in before:
            users[b].append(i)
    anchor = dict(place)
    for i in reversed(way):
        dies = sum(sizes.get(b, 0) for b in group_reads(groups[i]) if last[b] == i and b not in outputs)
        if users[i] and sum(sizes[s.name] for s in group_writes(groups[i])) > dies:
            anchor[i] = min(anchor[u] for u in users[i])
    return sorted(way, key=lambda i: (anchor[i], place[i]))


def _needs(groups: Sequence[Group]) -> list[set[int]]:
    maker = {spec.name: i for i, g in enumerate(groups) for spec in group_writes(g)}
    needs = [{maker[b] for b in group_reads(g) if b in maker} - {i} for i, g in enumerate(groups)]
    random = [i for i, g in enumerate(groups) if isinstance(g, ExternGroup) and is_random(g.node)]
    for a, b in itertools.pairwise(random):
        needs[b].add(a)
    return needs


def _by_position(needs: list[set[int]]) -> list[int]:
    """The first ready group each time."""
    return _schedule(needs, lambda ready, _: min(ready))


def _by_bytes(groups: Sequence[Group], needs: list[set[int]], sizes: dict[str, int]) -> list[int]:
    """The ready group that adds the fewest bytes, net of what it is the last to read."""
    inputs = [group_reads(g) & sizes.keys() for g in groups]
    adds = [sum(sizes.get(s.name, 0) for s in group_writes(g)) for g in groups]

    left: dict[str, int] = {}
    for names in inputs:
        for b in names:
            left[b] = left.get(b, 0) + 1

    def pick(ready: set[int], done: int | None) -> int:
        if done is not None:
            for b in inputs[done]:
                left[b] -= 1
        return min(ready, key=lambda i: (adds[i] - sum(sizes[b] for b in inputs[i] if left[b] == 1), i))

    return _schedule(needs, pick)


def _schedule(needs: list[set[int]], pick: Callable[[set[int], int | None], int]) -> list[int]:
    waiting = [len(n) for n in needs]
    users: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for b in before:
            users[b].append(i)
    ready = {i for i, n in enumerate(waiting) if n == 0}
    result: list[int] = []
    while ready:
        i = pick(ready, result[-1] if result else None)
        ready.remove(i)
        result.append(i)
        for u in users[i]:
            waiting[u] -= 1
            if waiting[u] == 0:
                ready.add(u)
    return result
