"""Two states of a graph beside each other: what a pass made of each line, and why.

In: a graph artifact and what a pass made of it (its nodes name their parents in the first). Out: ``SideBySide``, rows in the order of both.
Always holds: every node of both graphs stands in one row; a node stands beside its last parent, or below it where the parent has several
children. Marks: ``  `` the same line, ``~`` another one, ``+`` added below, ``-`` gone.
PyTorch's counterpart: none; ``TORCH_LOGS="aot_joint_graph,aot_graphs"`` prints both, one after the other.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

import torch.fx as fx

from ..core.fx import GraphArtifact, node_text
from ..core.provenance import parents_of
from ..core.report import Report


@dataclass(frozen=True)
class Row:
    """One line of each graph, or of one of them; ``why`` holds the reasons that the pass gives for the line on the left."""

    left: str
    right: str
    why: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        return " " if self.left == self.right else "~" if self.left and self.right else "+" if self.right else "-"


@dataclass(frozen=True, repr=False)
class SideBySide(Report):
    """``text()`` is two aligned columns; in a notebook it is a table."""

    titles: tuple[str, str]
    rows: tuple[Row, ...]

    def text(self, width: int = 60) -> str:
        """Columns at most ``width`` wide, longer lines broken; reasons stand to the right."""
        wide = [
            min(width, max(map(len, column))) for column in ([self.titles[0], *(r.left for r in self.rows)], [self.titles[1], *(r.right for r in self.rows)])
        ]
        lines = [f"  {self.titles[0]:<{wide[0]}} | {self.titles[1]:<{wide[1]}}".rstrip()]
        lines.append(f"  {'-' * wide[0]}-+-{'-' * wide[1]}")
        for row in self.rows:
            left, right = (textwrap.wrap(t, w, subsequent_indent="    ") or [""] for t, w in zip((row.left, row.right), wide, strict=True))
            for i in range(max(len(left), len(right))):
                cells = [column[i] if i < len(column) else "" for column in (left, right)]
                why = f"  # {', '.join(row.why)}" if row.why and not i else ""
                lines.append(f"{' ' if i else row.mark} {cells[0]:<{wide[0]}} | {cells[1]:<{wide[1]}}{why}".rstrip())
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        head = "".join(f"<th>{html.escape(t)}</th>" for t in ("", *self.titles, "why"))
        cells = [(r.mark, r.left, r.right, ", ".join(r.why)) for r in self.rows]
        body = "".join("<tr>" + "".join(f"<td style='text-align:left'><code>{html.escape(c)}</code></td>" for c in row) + "</tr>" for row in cells)
        return {"text/plain": self.text(), "text/html": f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"}


def side_by_side(before: GraphArtifact, after: GraphArtifact) -> SideBySide:
    """``after`` beside ``before``, which it was made from in one step."""
    old, new = list(before.graph.nodes), list(after.graph.nodes)
    place = {before.id(n): i for i, n in enumerate(old)}
    children: list[list[fx.Node]] = [[] for _ in old]
    at = 0
    for node in new:
        at = max([at, *(place[p] for p in parents_of(node) if p in place)])  # a node that was moved stands where it is now
        children[at].append(node)
    why: dict[str, list[str]] = {}
    for decision in after.decisions:
        for subject in decision.subject:
            why.setdefault(subject, []).append(decision.reason)
    rows: list[Row] = []
    for node, made in zip(old, children, strict=True):
        left, rights = node_text(node), [node_text(n) for n in made]
        reasons = tuple(dict.fromkeys(why.get(before.id(node), ())))
        first = rights.index(left) if left in rights else 0
        rows += [Row("", r) for r in rights[:first]]
        rows.append(Row(left, rights[first] if rights else "", reasons))
        rows += [Row("", r) for r in rights[first + 1 :]]
    return SideBySide((before.stage, after.stage), tuple(rows))
