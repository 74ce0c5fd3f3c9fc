"""How a graph folds: the tree of groups over its nodes, by module, by repeated block, and by stretch where neither says anything.

In: nodes in order, each with "op", "value", "kind", "inputs", "module". Out: a tree: {"label", "kind", "members": [node number or group]}, kinds
"module" (one call of an ``nn.Module``), "repeat" (equal neighbours; "times" says how many), "part" (one of them) and "stretch" (neighbours, so that no
group has more than ``MOST`` members).
Always holds: every node stands once in the tree. The members of a group are neighbours in one order of the nodes in which each reads only earlier
ones; so a folded group never reads what it is read by, and a layout of any state has layers. Parameters stand in the group of their first reader.
PyTorch's counterpart: none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST = 70  # members of one group
STRETCH = 24
PERIOD = 200  # nodes of the longest repeated block that is looked for where there are no modules
LEAST = 4  # nodes that a repetition of single nodes must have to be worth folding


@dataclass
class Group:
    label: str
    kind: str
    members: list[int | Group] = field(default_factory=list["int | Group"])
    times: int = 0

    def plain(self) -> dict[str, Any]:
        members = [m if isinstance(m, int) else m.plain() for m in self.members]
        return {"label": self.label, "kind": self.kind, "members": members} | ({"times": self.times} if self.times else {})


def fold(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The root of the tree: a group of kind "graph"."""
    order, path = _order(nodes)
    root = Group("", "graph")
    open_groups: list[tuple[str, Group]] = []
    for k in order:
        words = path[k].split(".") if path[k] else []
        same = 0
        while same < min(len(open_groups), len(words)) and open_groups[same][0] == words[same]:
            same += 1
        del open_groups[same:]
        for depth in range(same, len(words)):
            group = Group(".".join(words[: depth + 1]), "module")
            (open_groups[-1][1] if open_groups else root).members.append(group)
            open_groups.append((words[depth], group))
        (open_groups[-1][1] if open_groups else root).members.append(k)
    _tidy(root)
    _signed(root, nodes)
    _tidy(root)
    return root.plain()


def _order(nodes: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """An order in which parameters stand right before their first reader, and the module path of each node there."""
    path = [str(n["module"]) for n in nodes]
    first: dict[int, int] = {}
    for k, node in enumerate(nodes):
        for i in node["inputs"]:
            first.setdefault(i, k)
    carried: dict[int, list[int]] = {}
    moved: set[int] = set()
    for k, node in enumerate(nodes):
        if node["kind"] in ("placeholder", "get_attr") and path[k] and k in first and not node["inputs"]:
            carried.setdefault(first[k], []).append(k)
            moved.add(k)
            path[k] = path[first[k]]
    order: list[int] = []
    for k in range(len(nodes)):
        if k not in moved:
            order += [*carried.get(k, ()), k]
    return order, path


def _tidy(group: Group) -> None:
    """A group of one member is that member."""
    for at, member in enumerate(group.members):
        if isinstance(member, Group):
            _tidy(member)
            if len(member.members) == 1:
                inner = member.members[0]
                group.members[at] = inner


def _signed(group: Group, nodes: Sequence[Mapping[str, Any]]) -> Any:
    """Folds repetitions and long rows inside of ``group``, from the leaves up; gives what makes two groups equal."""
    node_sign: Callable[[int], Any] = lambda k: (nodes[k]["op"], nodes[k]["value"], nodes[k].get("mark", ""))
    signs = [node_sign(m) if isinstance(m, int) else _signed(m, nodes) for m in group.members]
    whole = hash((group.kind, tuple(signs)))
    numbers = {s: i for i, s in enumerate(dict.fromkeys(signs))}
    members = _repeats(group.members, [numbers[s] for s in signs], grouped=any(isinstance(m, Group) for m in group.members))
    for member in members:
        if isinstance(member, Group):
            member.members = _stretches(member.members, nodes)
    group.members = _stretches(members, nodes)
    return whole


def _repeats(members: list[int | Group], signs: list[int], grouped: bool) -> list[int | Group]:
    """Rows of equal blocks become one group each: at each place the block that covers most; a block of one member is that member."""
    longest = min(PERIOD, len(members) // 2)
    runs = {p: _run_lengths(signs, p) for p in range(1, longest + 1)}
    result: list[int | Group] = []
    at = 0
    while at < len(members):
        best, times = 0, 0
        for period in range(1, min(longest, (len(members) - at) // 2) + 1):
            found = runs[period][at] // period + 1 if at < len(runs[period]) else 1
            if found > 1 and period * found > best * times:
                best, times = period, found
        block = members[at : at + best]
        worth = times > 1 and (any(isinstance(m, Group) for m in block) or (best * times >= LEAST and (best > 1 or not grouped)))
        if not worth:
            result.append(members[at])
            at += 1
            continue
        parts = [members[at + t * best : at + (t + 1) * best] for t in range(times)]
        said = block[0].label if isinstance(block[0], Group) else f"{best} nodes"
        result.append(Group(said, "repeat", [p[0] if best == 1 else Group(f"{t + 1} of {times}", "part", p) for t, p in enumerate(parts)], times))
        at += best * times
    return result


def _run_lengths(signs: Sequence[int], period: int) -> list[int]:
    """At each place: how many of the members from there on equal the one a period later."""
    lengths = [0] * max(len(signs) - period, 0)
    run = 0
    for k in range(len(lengths) - 1, -1, -1):
        run = run + 1 if signs[k] == signs[k + period] else 0
        lengths[k] = run
    return lengths


def _stretches(members: list[int | Group], nodes: Sequence[Mapping[str, Any]]) -> list[int | Group]:
    """Where there are more than ``MOST`` members, neighbours in groups of ``STRETCH``, and these again: of a tangled graph nearly every two groups
    have an edge, so that few boxes beside each other are what can be read, and drawn at once."""
    while len(members) > MOST:
        members = [_stretch(members[k : k + STRETCH], nodes) for k in range(0, len(members), STRETCH)]
    return members


def _stretch(members: list[int | Group], nodes: Sequence[Mapping[str, Any]]) -> int | Group:
    if len(members) == 1:
        return members[0]
    first, last = members[0], members[-1]
    while isinstance(first, Group):
        first = first.members[0]
    while isinstance(last, Group):
        last = last.members[-1]
    return Group(f"{nodes[first]['name']} to {nodes[last]['name']}", "stretch", members)
