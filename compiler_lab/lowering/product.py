"""Reductions that are matrix products: what a template computes instead of loops over single elements.

In: a node over its own variables or a group's. Out: its two operands, told apart by the variables they depend on. Always holds: a node that is one
when it is lowered stays one whatever joins it, for a merge that would take that away is refused (``alone``): walked by plain loops it would be slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx as fx

from . import ops
from .index import Index, Var
from .ir import LoopNode
from .sizes import is_number


@dataclass(frozen=True)
class Operand:
    """Element (``at``) of a buffer: ``start + along * (row or column) + step * depth``, strides in elements."""

    buffer: str
    start: int
    along: int
    step: int


@dataclass(frozen=True)
class Operands:
    """``rows`` and ``columns`` are the outer variables, ``depth`` the inner one."""

    rows: Var
    columns: Var
    depth: Var
    left: Operand
    right: Operand


def operands(body: fx.Graph, outer: Sequence[Var], inner: Sequence[Var]) -> Operands | None:
    """Of a sum of products of two loads, of which one has no column and the other no row; None for every other body."""
    sums = [n for n in body.nodes if n.target is ops.reduce]
    if len(outer) != 2 or len(inner) != 1 or len(sums) != 1 or sums[0].args[0] != "sum" or not is_number(*(v.size for v in (*outer, *inner))):
        return None
    value = sums[0].args[1]
    if not isinstance(value, fx.Node) or value.target is not ops.mul or value.meta["dtype"] != torch.float32:
        return None
    loads = [a for a in value.args if isinstance(a, fx.Node) and a.target is ops.load]
    if len(loads) != 2 or len([n for n in body.nodes if n.target is ops.load]) != 2:
        return None
    rows, columns = outer
    (depth,) = inner
    for a, b in (loads, loads[::-1]):
        left, right = _operand(a, rows, columns, depth), _operand(b, columns, rows, depth)
        if left and right:
            return Operands(rows, columns, depth, left, right)
    return None


def _operand(load: fx.Node, along: Var, other: Var, depth: Var) -> Operand | None:
    buffer, index = load.args[:2]
    assert isinstance(buffer, str) and isinstance(index, Index)
    if not index.is_affine or index.coefficient(other) != 0 or any(v.name.startswith("%") for v in index.variables()):
        return None
    a, d = index.coefficient(along), index.coefficient(depth)
    return Operand(buffer, index.const, a, d) if a and d and is_number(a, d, index.const) else None


def is_product(node: LoopNode) -> bool:
    return operands(node.body, node.outer, node.inner) is not None
