"""What decomposition opened, into what: a table for reading.

In: a ``JointGraph`` in state "decomposed". Out: ``Openings``, one row for each operator of the pure graph and what became of it.
Always holds: rows are in the order in which operators first occur; counts are of nodes that something reads.
PyTorch's counterpart: none; which decomposition ran is seen only in the graph that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.errors import InvalidIR
from ..core.fx import target_name
from ..core.provenance import parents_of
from ..core.report import Report
from .ir import JointGraph


@dataclass(frozen=True)
class Opening:
    """``count`` calls of ``operator`` had ``outcome`` ("opened" or "kept") for ``reason``; ``into``: operator -> how many, of all these calls."""

    operator: str
    count: int
    outcome: str
    reason: str
    into: Mapping[str, int]

    def text(self) -> str:
        parts = f" -> {', '.join(f'{n} {op}' for op, n in self.into.items())}" if self.outcome == "opened" else ""
        return f"{self.outcome:<6} {self.count:>3} {self.operator}{parts} ({self.reason})"


@dataclass(frozen=True, repr=False)
class Openings(Report):
    """``table`` is the name of the table of decompositions; ``openings["aten.gelu.default"]`` are an operator's rows."""

    table: str
    rows: tuple[Opening, ...]

    def __getitem__(self, operator: str) -> tuple[Opening, ...]:
        return tuple(r for r in self.rows if r.operator == operator)

    def text(self) -> str:
        opened = sum(r.count for r in self.rows if r.outcome == "opened")
        kept = sum(r.count for r in self.rows) - opened
        return "\n".join([f"table {self.table}: {opened} calls opened, {kept} kept", *(r.text() for r in self.rows)])


def openings(graph: JointGraph) -> Openings:
    """The table for a decomposed graph. Raises ``InvalidIR`` for one in another state."""
    if graph.state != "decomposed":
        raise InvalidIR(f"openings are of a graph in state 'decomposed', this one is '{graph.state}'", hint="decompose it first")
    children: dict[str, Counter[str]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.users:
            for parent in parents_of(node):
                children.setdefault(parent, Counter())[target_name(node)] += 1
    counts: Counter[tuple[str, str, str]] = Counter()
    into: dict[tuple[str, str, str], Counter[str]] = {}
    table = ""
    for decision in graph.decisions:
        if decision.outcome in ("opened", "kept"):
            key = (decision.facts["target"], decision.outcome, decision.reason)
            table = decision.facts["table"]
            counts[key] += 1
            into.setdefault(key, Counter()).update(children.get(decision.subject[0], {}))
    return Openings(
        table, tuple(Opening(op, n, outcome, reason, dict(sorted(into[op, outcome, reason].items()))) for (op, outcome, reason), n in counts.items())
    )
