"""Mutants that no test can tell from the project, each with its proof. A key is the file and the altered line, without the space around it."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[tuple[str, str], str] = {
    ("scheduling/order.py", "adds = [sum(sizes.get(s.name, 1) for s in group_writes(g)) for g in groups]"): (
        "What is missing is an output, which counts nothing: one byte more or less decides only between groups that differ by less than one element."
    ),
}
