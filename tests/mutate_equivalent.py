"""Mutants that no test can tell from the project, each with its proof. A key is the file, a line, and the line altered, without the space around them."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[tuple[str, str, str], str] = {
    (
        "scheduling/order.py",
        "adds = [sum(sizes.get(s.name, 0) for s in group_writes(g)) for g in groups]",
        "adds = [sum(sizes.get(s.name, 1) for s in group_writes(g)) for g in groups]",
    ): "What is missing is an output, which counts nothing: one byte more or less decides only between groups that differ by less than one element.",
    (
        "scheduling/respace.py",
        "return sorted(variables, key=lambda v: -hint(strides[v] or 0))",
        "return sorted(variables, key=lambda v: -hint(strides[v] or -1))",
    ): "Reached only where no stride is 0 or None, so what follows `or` is never taken.",
    (
        "scheduling/fusion.py",
        "alike.setdefault(sizes, []).append(draft.members[0].name)",
        "alike.setdefault(sizes, []).append(draft.members[-1].name)",
    ): "Pairs are made before anything has joined: every draft has one member, the first and the last.",
    (
        "scheduling/merge.py",
        "vanishes = not more and single_reader.get(alone.name, False) and any(alone.name == b for m in base.members for b, _ in m.reads)",
        "vanishes = not more and single_reader.get(alone.name, True) and any(alone.name == b for m in base.members for b, _ in m.reads)",
    ): "Every member of a draft is a loop, and the mapping has every loop: the default is never taken.",
    (
        "lowering/index.py",
        "return Index() if same(value.size, 1) else Index(((value, 1),))",
        "return Index() if same(1, value.size) else Index(((value, 1),))",
    ): "Equality has no order.",
    (
        "lowering/index.py",
        "mod, c = Mod(atom.index, atom.by), total.get(atom, 0)",
        "mod, c = Mod(atom.index, atom.by), total.get(atom, 1)",
    ): "The atom is one of those of the total: the default is never taken.",
    ("lowering/index.py", "if same(by, 1):", "if False:"): "A shortcut: every coefficient is a multiple of 1, so the rest is 0 without it, too.",
    ("lowering/index.py", "if c < 0:", "if c < 1:"): "No term has the coefficient 0.",
}
