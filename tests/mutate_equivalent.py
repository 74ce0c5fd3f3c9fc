"""Mutants that no test can tell from the project, each with its proof. A key is the file and the altered line, without the space around it."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[tuple[str, str], str] = {
    ("scheduling/order.py", "adds = [sum(sizes.get(s.name, 1) for s in group_writes(g)) for g in groups]"): (
        "What is missing is an output, which counts nothing: one byte more or less decides only between groups that differ by less than one element."
    ),
    ("scheduling/respace.py", "return sorted(variables, key=lambda v: -hint(strides[v] or -1))"): (
        "Reached only where no stride is 0 or None, so what follows `or` is never taken."
    ),
    ("scheduling/fusion.py", "alike.setdefault(sizes, []).append(draft.members[-1].name)"): (
        "Pairs are made before anything has joined: every draft has one member, the first and the last."
    ),
    (
        "scheduling/merge.py",
        "vanishes = not more and single_reader.get(alone.name, True) and any(alone.name == b for m in base.members for b, _ in m.reads)",
    ): "Every member of a draft is a loop, and the mapping has every loop: the default is never taken.",
}
