"""Lineage: from any item of a trace to the user's lines it comes from, and from a line to every item made of it.

In: a ``Trace`` (live or loaded). Out: ``Lineage``, two maps over (artifact number, item id).
Always holds: a parent's id is looked for in earlier artifacts, nearest first; an item whose id an earlier artifact holds (a pass
that keeps a graph's stage keeps ids) comes from that one too. An item's lines are its own; of one that several others share (a load
that two statements use) or that has none of its own, its parents' too.
PyTorch's counterpart: the provenance tracking of ``torch/_inductor/debug.py``, which covers FX nodes and kernels, not statements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.artifact import Item
from .trace import Trace

Key = tuple[int, str]  # (number of the artifact in Trace.artifacts(), item id)
SourceLine = tuple[str, int]  # (file, line)


@dataclass
class Lineage:
    """``parents`` and ``lines`` of every item; ``items_of`` is the way back."""

    items: dict[Key, Item] = field(default_factory=dict[Key, Item])
    parents: dict[Key, tuple[Key, ...]] = field(default_factory=dict[Key, tuple[Key, ...]])
    lines: dict[Key, frozenset[SourceLine]] = field(default_factory=dict[Key, frozenset[SourceLine]])

    def items_of(self, file: str, line: int) -> tuple[Key, ...]:
        """Every item that maps to the line, in order of the trace."""
        return tuple(k for k, lines in self.lines.items() if (file, line) in lines)

    def ancestors(self, key: Key) -> tuple[Key, ...]:
        """``key``'s parents, theirs, and so on; each once, nearest first."""
        found: dict[Key, None] = {}
        queue = list(self.parents[key])
        while queue:
            one = queue.pop(0)
            if one not in found:
                found[one] = None
                queue += self.parents[one]
        return tuple(found)


def lineage(trace: Trace) -> Lineage:
    """The lineage of every item in ``trace``. Graphs of one recording are kept apart: parents are found within their own graph."""
    result = Lineage()
    graph_of = {id(step.after): step.graph for step in trace.steps} | {id(step.before): step.graph for step in trace.steps if step.before is not None}
    where: dict[tuple[int, str], list[int]] = {}  # (graph, item id) -> artifacts that hold it, in order
    for number, artifact in enumerate(trace.artifacts()):
        graph = graph_of[id(artifact)]
        items = artifact.items()
        for item in items:
            holders = where.setdefault((graph, item.id), [])  # none comes after ``number``: the last is the nearest
            if not holders or holders[-1] != number:
                holders.append(number)
        for item in items:
            key = (number, item.id)
            result.items[key] = item
            own = where[(graph, item.id)]
            found = [(own[-2], item.id)] if len(own) > 1 else []
            for parent in item.parents:
                held = where.get((graph, parent)) if parent != item.id else None
                if held is not None:
                    found.append((held[-1], parent))
            result.parents[key] = tuple(dict.fromkeys(found)) if len(found) > 1 else tuple(found)
        for item in items:
            _lines(result, (number, item.id))
    return result


def _lines(result: Lineage, key: Key) -> frozenset[SourceLine]:
    if key not in result.lines:
        location = result.items[key].location
        own: frozenset[SourceLine] = frozenset() if location is None else frozenset({(location.file, location.line)})
        result.lines[key] = own  # before the parents are asked: an item may name itself
        every = result.parents[key]
        parents = [p for p in every if p[1] != key[1]] or every  # what it was in the step before counts where nothing else is known
        if not own or len(parents) > 1:
            found = {line for p in parents for line in _lines(result, p)}
            result.lines[key] = own if found <= own else own | found
    return result.lines[key]
