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
    (
        "lowering/index.py",
        "coarse = Index(tuple((a, c // g) for (a, c), m in zip(self.terms, multiples, strict=True) if m), self.const // g if number else 0)",
        "coarse = Index(tuple((a, c // g) for (a, c), m in zip(self.terms, multiples, strict=True) if m), self.const // g if True else 0)",
    ): "Where sizes are symbols the constant is in the fine part, taken only if known to lie in [0, g): so does the constant, and its part is 0.",
    (
        "lowering/index.py",
        "candidates = [c for c in dict.fromkeys(coefficients) if not same(c, 1) and at_most(1, c) and same(by % c, 0)]",
        "candidates = [c for c in dict.fromkeys(coefficients) if not same(c, 1) and at_most(1, c) and same(0, by % c)]",
    ): "Equality has no order.",
    (
        "frames/guard_table.py",
        'root.leaf(node, "lambda", lambda value, expected=expected: exact(value, expected), text=text)',
        'root.leaf(node, "lambda", lambda value, expected=expected: exact(expected, value), text=text)',
    ): "Equality has no order: types are compared first, and then it asks the same of both.",
    ("lowering/product.py", "buffer, index = load.args[:2]", "buffer, index = load.args[:3]"): (
        "Only loads that go through a value have a third argument; the value is loaded as well, and a body of more than two loads is no product."
    ),
    (
        "lowering/rows_product.py",
        "scaled = body.load(product, at) if alpha == 1 else body.load(product, at) * alpha",
        "scaled = body.load(product, at) if False else body.load(product, at) * alpha",
    ): "A number times 1 is the number.",
    (
        "codegen/math.h",
        "return a < 1.0f ? small : __builtin_copysignf(large, x);",
        "return a < 1.001f ? small : __builtin_copysignf(large, x);",
    ): "Both forms are as exact as is promised from 1 to 1.001.",
    (
        "aot/pooling_rows.py",
        "return Windows(count, 0, n, max(-(-(i + 1) * n // count) - i * n // count for i in range(count)), per=count)",
        "return Windows(count, 1, n, max(-(-(i + 1) * n // count) - i * n // count for i in range(count)), per=count)",
    ): "Where windows are of several lengths (per > 1) they begin by their number alone: start is not read.",
    (
        "scheduling/places.py",
        "if highest == 0:",
        "if highest == -1:",
    ): "A shortcut: to move the first one to the front changes nothing, so every further try finds the same.",
    (
        "lowering/rows_pooling.py",
        "if not same(down, width * across) or same(spec.numel, 0):",
        "if not same(down, width * across) and same(spec.numel, 0):",
    ): "A gradient is row-major or channels last here: rows follow each other in both, and nothing is looped over where there are no elements.",
    (
        "lowering/rows_pooling.py",
        "farthest = (down.kernel * down.dilation + 1) * across.size + across.kernel * across.dilation",
        "farthest = (down.kernel * down.dilation + 1) * across.size + across.kernel + across.dilation",
    ): "The first part alone is more than any place in a window, which ends within its last row's image row.",
    (
        "lowering/rows_pooling.py",
        "narrow = torch.int32 if at_most(farthest, 2**31 - 1) else torch.int64",
        "narrow = torch.int32 if at_most(farthest, 2**30 - 1) else torch.int64",
    ): "Wider numbers hold the same places.",
    (
        "lowering/rows_pooling.py",
        "if down.kernel * across.kernel > MOST or not (down.reaches and across.reaches):",
        "if down.kernel * across.kernel >= MOST or not (down.reaches and across.reaches):",
    ): "Whether loops or aten compute a window of so many elements: the values are the same.",
}
