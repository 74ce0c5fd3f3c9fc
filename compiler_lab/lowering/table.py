"""The table of lowering, to be read: which operators are rows, which are meant to stay with a library, which fall back, and how often each occurs.

In: loop programs, or none. Out: a ``LoweringTable``, one row for each operator of ours, for each library call, and for each operator that fell
back in the programs. Always holds: calls and fallbacks are counted from the programs' own decisions.
PyTorch's counterpart: ``torch._inductor.lowering.lowerings`` and ``fallbacks``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.artifact import Artifact, Item
from ..core.errors import InvalidIR
from .lower import LIBRARY
from .program import LoopProgram
from .rows_activation import ACTIVATIONS
from .rows_create import CREATE
from .rows_indexed import INDEXED
from .rows_pointwise import POINTWISE
from .rows_pooling import POOLING
from .rows_random import RANDOM
from .rows_reduction import REDUCTIONS
from .rows_scan import SCANS
from .rows_view import VIEWS

WAYS: Mapping[str, str] = {
    "view": "strides and an offset over a buffer that is there already",
    "pointwise": "one formula for each element",
    "made": "a constant, a copy, or several tensors put together",
    "indexed": "elements chosen at run time",
    "reduction": "one accumulator for each kept point",
    "scan": "what a line holds up to each point",
    "random": "numbers by counter",
    "library": "an aten kernel that loops would not reach",
    "fallback": "no row: the call stays with aten",
}


@dataclass(frozen=True)
class Row:
    """``calls`` in the programs, ``fallbacks`` among them by reason."""

    operator: str
    way: str
    calls: int
    fallbacks: Mapping[str, int]


@dataclass(frozen=True, repr=False, kw_only=True)
class LoweringTable(Artifact):
    """Rows by way, then by how often they are called, then by name."""

    rows: tuple[Row, ...]
    stage: str = "lowering.table"

    def text(self) -> str:
        lines: list[str] = []
        for way, what in WAYS.items():
            rows = [r for r in self.rows if r.way == way]
            lines += [f"{way}: {len(rows)} operators, {sum(r.calls for r in rows)} calls  # {what}"] if rows else []
            lines += [f"  {r.operator}{f'  {r.calls}' if r.calls else ''}{_fell(r)}" for r in rows]
        return "\n".join(lines)

    def items(self) -> tuple[Item, ...]:
        return tuple(Item(f"{self.stage}/{r.operator}", r.way, r.operator, facts={"calls": r.calls, "fallbacks": dict(r.fallbacks)}) for r in self.rows)

    def check(self) -> None:
        seen: set[str] = set()
        for r in self.rows:
            if r.operator in seen or r.way not in WAYS or sum(r.fallbacks.values()) > r.calls:
                raise InvalidIR(f"{self.stage}/{r.operator} stands twice, in no known way, or falls back more often than it is called")
            seen.add(r.operator)

    def run(self, *args: object) -> tuple[Row, ...]:
        """A table computes nothing; it answers with its rows."""
        return self.rows


def _fell(row: Row) -> str:
    if row.way in ("library", "fallback") or not row.fallbacks:
        return ""
    return f"  (to aten: {', '.join(f'{why} {n}' for why, n in sorted(row.fallbacks.items()))})"


def lowering_table(*programs: LoopProgram) -> LoweringTable:
    """Every operator that lowering knows, and how often each occurs in ``programs``."""
    ways = {
        "view": VIEWS,
        "pointwise": {**POINTWISE, **ACTIVATIONS},
        "made": CREATE,
        "indexed": {**INDEXED, **POOLING},
        "reduction": REDUCTIONS,
        "scan": SCANS,
        "random": RANDOM,
    }
    known = {op: way for way, table in ways.items() for op in table} | dict.fromkeys(LIBRARY, "library")
    calls, fell = Counter[str](), dict[str, Counter[str]]()
    for program in programs:
        for d in program.decisions:
            op = str(d.facts["target"])
            if d.outcome == "copy" and d.reason == "layout" and known.get(op) != "view":
                continue  # of an output, beside the decision about its call
            calls[op] += 1
            if d.outcome == "extern":
                fell.setdefault(op, Counter())[d.reason] += 1
    order = list(WAYS)
    rows = (Row(op, known.get(op, "fallback"), calls[op], dict(fell.get(op, {}))) for op in {*known, *calls})
    return LoweringTable(rows=tuple(sorted(rows, key=lambda r: (order.index(r.way), -r.calls, r.operator))))
