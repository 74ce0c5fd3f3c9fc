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
            where.setdefault((graph, item.id), []).append(number)
        for item in items:
            key = (number, item.id)
            result.items[key] = item
            found = [(p, _nearest(where.get((graph, p), []), number, p == item.id)) for p in (item.id, *item.parents)]
            result.parents[key] = tuple(dict.fromkeys((n, p) for p, n in found if n is not None))
        for item in items:
            _lines(result, (number, item.id))
    return result


def _nearest(numbers: list[int], below: int, strictly: bool) -> int | None:
    """The latest artifact up to ``below`` (before it, when ``strictly``)."""
    return next((n for n in reversed(numbers) if n < below or (n == below and not strictly)), None)


def _lines(result: Lineage, key: Key) -> frozenset[SourceLine]:
    if key not in result.lines:
        location = result.items[key].location
        own: frozenset[SourceLine] = frozenset() if location is None else frozenset({(location.file, location.line)})
        result.lines[key] = own  # before the parents are asked: an item may name itself
        kept = {p for p in result.parents[key] if p[1] == key[1]}
        parents = [p for p in result.parents[key] if p not in kept] or list(kept)
        if not own or len(parents) > 1:
            result.lines[key] = own.union(*(_lines(result, p) for p in parents))
    return result.lines[key]
