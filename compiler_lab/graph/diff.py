"""What changed between two graphs: removed, added, changed and rewired nodes, each with its identity.

In: two graphs, for example before and after a pass, or of two stages. Out: ``GraphDiff``, a report.
Nodes are one where they have one id (a pass keeps the stage, and with it the ids of what it leaves alone); where ids differ, a node is the one
that it has as only parent, if no other node has; placeholders and the output that are left are paired in order. ``changed``: another operator,
value or constant; ``rewired``: the same call of other nodes.
Always holds: the same two graphs give the same text; a graph and its copy have no difference.
Left out: that nodes of equal dependencies stand in another order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import torch.fx as fx

from ..core.fx import describe, format_arg, node_text, target_name
from ..core.provenance import parents_of
from ..core.report import Report
from .values import STAGE, Graph, module_of, reads

SIGNS = {"removed": "-", "added": "+", "changed": "~", "rewired": ">"}


@dataclass(frozen=True)
class Change:
    """One node. ``id`` after the change (before, of one that was removed); ``made_of``: the removed nodes that an added one stands for."""

    kind: Literal["removed", "added", "changed", "rewired"]
    id: str
    before: str = ""
    after: str = ""
    made_of: tuple[str, ...] = ()

    def text(self) -> str:
        lines = {"removed": [f"- {self.before}"], "added": [f"+ {self.after}"]}.get(self.kind, [f"- {self.before}", f"{SIGNS[self.kind]} {self.after}"])
        return "\n".join(lines) + (f"    from {', '.join(self.made_of)}" if self.made_of else "")


@dataclass(frozen=True, repr=False)
class GraphDiff(Report):
    """``changes`` in the order of the graphs; ``kept``: how many nodes are as they were."""

    changes: tuple[Change, ...]
    kept: int

    def of(self, kind: str) -> tuple[Change, ...]:
        return tuple(c for c in self.changes if c.kind == kind)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def text(self) -> str:
        counts = Counter(c.kind for c in self.changes)
        head = ", ".join([*(f"{counts[k]} {k}" for k in SIGNS if counts[k]), f"{self.kept} kept"])
        return "\n".join([head, *(c.text() for c in self.changes)])


def _id(graph: Graph, node: fx.Node) -> str:
    return f"{getattr(graph, 'stage', STAGE)}/{node.name}"


def _pairs(before: Graph, after: Graph) -> dict[fx.Node, fx.Node]:
    """Nodes of ``after`` -> the same node of ``before``."""
    old = {_id(before, n): n for n in module_of(before).graph.nodes}
    new = list(module_of(after).graph.nodes)
    same = {n: o for n in new if (o := old.get(_id(after, n))) is not None and o.op == n.op}
    free = {i: o for i, o in old.items() if o not in set(same.values())}
    parents = {n: [free[p] for p in parents_of(n) if p in free] for n in new if n not in same}
    asked = Counter(p for ps in parents.values() for p in ps)
    same |= {n: ps[0] for n, ps in parents.items() if len(ps) == 1 and asked[ps[0]] == 1 and ps[0].op == n.op}
    taken = set(same.values())
    for op in ("placeholder", "output"):
        left = [[n for n in nodes if n.op == op and n not in known] for nodes, known in ((new, same), (old.values(), taken))]
        if len(left[0]) == len(left[1]):
            same |= dict(zip(*left, strict=True))
    return same


def _facts(node: fx.Node, names: dict[fx.Node, str]) -> tuple[Any, list[str]]:
    """What a node is, nodes left out of its arguments; and what it reads, by the names of the first graph."""
    plain = format_arg(fx.map_arg([node.args, dict(node.kwargs)], lambda n: slice(0)))
    value = describe(node.meta["val"]) if "val" in node.meta else ""
    target = "" if node.op in ("placeholder", "output") else target_name(node)
    return (node.op, target, value, plain), [names.get(n, n.name) for n in reads(node)]


def diff_graphs(before: Graph, after: Graph) -> GraphDiff:
    """The difference of any two graphs; of a pass's input and output it says what the pass did."""
    same = _pairs(before, after)
    names = {n: o.name for n, o in same.items()}
    old_nodes, changes, kept = list(module_of(before).graph.nodes), list[Change](), 0
    survivors = set(same.values())
    place = {n: i for i, n in enumerate(old_nodes)}
    gone = {_id(before, n): i for n, i in place.items() if n not in survivors}
    reached = 0

    def removed_before(end: int) -> None:
        """The nodes that went, up to place ``end`` of the first graph."""
        nonlocal reached
        here = (old for old in old_nodes[reached:end] if old not in survivors)
        changes.extend(Change("removed", _id(before, old), before=node_text(old)) for old in here)
        reached = max(reached, end)

    for node in module_of(after).graph.nodes:
        old = same.get(node)
        if old is None:
            made_of = tuple(p for p in parents_of(node) if p in gone)
            removed_before(max((gone[p] + 1 for p in made_of), default=0))
            changes.append(Change("added", _id(after, node), after=node_text(node), made_of=made_of))
            continue
        removed_before(place[old])
        (is_now, reads), (was, read) = _facts(node, names), _facts(old, {})
        if is_now == was and reads == read:
            kept += 1
        else:
            changes.append(Change("rewired" if is_now == was else "changed", _id(after, node), node_text(old), node_text(node)))
    removed_before(len(old_nodes))
    return GraphDiff(tuple(changes), kept)
