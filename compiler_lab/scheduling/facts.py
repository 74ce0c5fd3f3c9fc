"""What a kernel does, as plain facts: its loops, the memory it touches and the operations it computes.

In: a ``LoopGroup`` and the buffers of its program. Out: ``kernel_facts``, JSON-able. Always holds: everything is read from the loop IR, never from text;
sizes that vary stand at the sizes at hand; an index is written as ``[const, [[coefficient, atom], ...]]``, an atom being a variable's name or
``["div" | "mod", index, by]``.
PyTorch's counterpart: ``torch/_inductor/dependencies.py`` (MemoryDep) and the flop counts of ``scheduler.py``. Left out: caches and the memory of extern calls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.fx as fx

from ..lowering import ops
from ..lowering.index import Div, Index, Var
from ..lowering.ir import BufferSpec, LoopNode, SerialNode
from ..lowering.sizes import hint
from .ir import LoopGroup

FEW = 1 << 14  # points that are counted one by one where no rule counts the elements


def kernel_facts(group: LoopGroup, buffers: Mapping[str, BufferSpec]) -> dict[str, Any]:
    """{"loops": [{"name", "size", "role"}], "lane": name of the variable that is walked by lanes, "accesses", "operations"}.

    ``accesses``: see ``_access``; values that stay inside the kernel are none. ``operations``: scalar operations and steps of reductions, each counted as one
    (an ``exp`` too) as often as it runs; loads, stores, conversions and index arithmetic are none."""
    steps = "in order" if group.serial is not None else "swept"
    loops = [{"name": v.name, "size": hint(v.size), "role": role} for found, role in ((group.outer, "outer"), (group.inner, steps)) for v in found]
    across = group.inner if group.shape in ("row", "flat") and group.inner else group.outer
    accesses = [a for node in group.nodes for a in _accesses(node, group, buffers)]
    counts = {n.name: sum(any(m.name == n.name for m in p.nodes) for p in group.phases) or 1 for n in group.nodes}
    operations = sum(counts[n.name] * operations_of(n) for n in group.nodes)
    return {"loops": loops, "lane": across[-1].name if across else "", "accesses": accesses, "operations": operations}


def _accesses(node: LoopNode | SerialNode, group: LoopGroup, buffers: Mapping[str, BufferSpec]) -> Iterator[dict[str, Any]]:
    if isinstance(node, SerialNode):
        if node.start is not None:
            yield from _accesses(node.start, group, buffers)
        variables = (*node.outer, *node.steps)
    else:
        variables = (*node.outer, *node.inner)
    for n in node.body.nodes:
        name = n.target.__name__ if n.op == "call_function" else ""
        if name in ("load", "store", "scatter") and n.args[0] not in group.internal:
            spec = node.output if n.args[0] == node.name else buffers[n.args[0]]
            yield _access(
                node, "read" if name == "load" else "write", spec, n.args[1], node.outer if name == "store" and isinstance(node, LoopNode) else variables
            )


def _access(node: LoopNode | SerialNode, kind: str, spec: BufferSpec, index: Index, variables: tuple[Var, ...]) -> dict[str, Any]:
    """``index``: as text; ``tree``: to be evaluated; ``variables``: {name: size} of those in it; ``strides``: elements by which a step of each loop moves it,
    None where that is not one number; ``elements``: how many are touched in all, ``exact`` or at most; ``bytes``: those elements'."""
    own = [v for v in variables if hint(v.size) > 1]
    loaded = any(v.name.startswith("%") for v in index.variables())
    strides = {v.name: None if (c := index.coefficient(v)) is None or (loaded and not c) else hint(c) for v in own}
    count, exact = distinct(index, own)
    total = hint(spec.nbytes) // spec.dtype.itemsize
    count = min(count, total)
    return {
        "node": node.name, "kind": kind, "buffer": spec.name, "index": str(index), "tree": tree(index), "strides": strides,
        "variables": {v.name: hint(v.size) for v in sorted(index.variables())}, "pattern": pattern(index, own), "size": [hint(n) for n in spec.size],
        "stride": [hint(n) for n in spec.stride], "total": total, "item": spec.dtype.itemsize, "elements": count, "exact": exact,
        "bytes": count * spec.dtype.itemsize,
    }  # fmt: skip


def tree(index: Index) -> list[Any]:
    """The expression as plain data."""
    atom = lambda a: a.name if isinstance(a, Var) else ["div" if isinstance(a, Div) else "mod", tree(a.index), hint(a.by)]
    return [hint(index.const), [[hint(c), atom(a)] for a, c in index.terms]]


def pattern(index: Index, variables: Iterable[Var]) -> str:
    """How the fastest loop moves through memory."""
    if any(v.name.startswith("%") for v in index.variables()):
        return "gather"
    own = list(variables)
    step = index.coefficient(own[-1]) if own else 0
    if step is None:
        return "folded"
    return {0: "broadcast", 1: "contiguous"}.get(hint(step), "strided")


def distinct(index: Index, variables: Iterable[Var]) -> tuple[int, bool]:
    """(elements touched over all points, whether exactly so many)."""
    own = [v for v in variables if v in index.variables()]
    sizes = [hint(v.size) for v in own]
    points = math.prod(sizes)
    if any(v.name.startswith("%") for v in index.variables()):
        return math.prod(hint(v.size) for v in variables), False
    if index.is_affine:
        reach, apart = 0, True
        for step, n in sorted((abs(hint(index.coefficient(v) or 0)), n) for v, n in zip(own, sizes, strict=True)):
            apart, reach = apart and step > reach, reach + step * (n - 1)
        if apart:
            return points, True
    if points <= FEW:
        places = (dict(zip((v.name for v in own), at, strict=True)) for at in itertools.product(*map(range, sizes)))
        return len({index.evaluate(lambda v, at=at: at[v.name]) for at in places}), True
    low, high = index.range()
    return min(points, hint(high) - hint(low) + 1), False


def operations_of(node: LoopNode | SerialNode) -> int:
    """Scalar operations of one pass over a node's loops."""
    points = lambda variables: math.prod(hint(v.size) for v in variables)
    if isinstance(node, SerialNode):
        once = sum(_scalar(n) or _combines(n) for n in node.body.nodes)
        return once * points((*node.outer, *node.steps)) + (operations_of(node.start) if node.start is not None else 0)
    reduced: set[fx.Node] = set()
    total = 0
    for n in node.body.nodes:
        if n.op != "call_function":
            continue
        after = any(a in reduced for a in n.all_input_nodes)
        if after or n.target is ops.reduce:
            reduced.add(n)
        if _scalar(n) or n.target is ops.reduce:
            total += points(node.outer) * (1 if after else points(node.inner))
    return total


def _scalar(n: fx.Node) -> bool:
    return n.op == "call_function" and n.target.__name__ in ops.SCALAR  # type: ignore[union-attr]


def _combines(n: fx.Node) -> bool:
    return n.target is ops.scan or (n.target is ops.scatter and n.args[3] != "set")
