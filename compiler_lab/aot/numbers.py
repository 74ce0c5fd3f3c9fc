"""Numbers that depend on sizes, as nodes of a graph under construction: sizes that are read from tensors, and arithmetic on them.

In: symbolic numbers, wherever operators are given them, and nodes that have them. Out: the node of a number, made when it is first asked for.
An int is told by its expression: two that are equal for all sizes have one node, and one that nobody has made yet is put together from its
parts. A float is told by the operation that made it, as long as that is known, since expressions of floats are rearranged and floats are not.
Always holds: a symbol is read from the first tensor or int that had it; what a node computes is what its value says, for all sizes.
The form of the nodes is that of ``make_fx``: ``aten.sym_size.int``, ``operator.mul``, ``torch.sym_max`` and so on.
PyTorch's counterpart: ``_build_proxy_for_sym_expr`` in ``torch/fx/experimental/proxy_tensor.py``. Left out: bools.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.errors import Unsupported
from ..core.sizes import DYNAMIC, SYMBOLIC

aten = torch.ops.aten

Create = Callable[[Any, tuple[Any, ...], Any], fx.Node]  # (target, args, value) -> node

BY_NAME: dict[str, Callable[..., Any]] = {
    "add": operator.add, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod, "python_mod": operator.mod,
    "int_truediv": operator.truediv, "truediv": operator.truediv, "pow_by_natural": operator.pow, "pow": operator.pow, "minimum": torch.sym_min,
    "maximum": torch.sym_max,
}  # fmt: skip
"""Torch's name of what an expression does -> the function that does it."""


@cache
def functions() -> dict[Any, Callable[..., Any]]:
    """The class of an expression -> the function of numbers; sympy is imported here."""
    import sympy
    from torch.utils._sympy import functions as f
    from torch.utils._sympy.interp import handlers

    named = {kind: BY_NAME[name] for kind, name in handlers().items() if name in BY_NAME}
    rounding = {f.CeilToInt: math.ceil, f.FloorToInt: math.floor, f.TruncToInt: math.trunc, sympy.ceiling: math.ceil, sympy.floor: math.floor}
    return {**named, **rounding, f.ToFloat: torch.sym_float, getattr(f, "OpaqueUnaryFn_sqrt"): getattr(torch, "_sym_sqrt")}  # noqa: B009 (not annotated)


class Numbers:
    """Of one graph. ``create(target, args, value)`` appends a node to it."""

    def __init__(self, create: Create) -> None:
        self.create = create
        self.known: dict[Any, fx.Node] = {}  # by expression
        self.values: dict[fx.Node, Any] = {}
        self.reads: dict[Any, tuple[Any, fx.Node, int, Any]] = {}  # a symbol -> the operator that reads it, of which tensor and dimension, and its value
        self.made: dict[int, tuple[Any, fx.Node]] = {}  # floats, by id of what torch knows them by (which is kept alive)

    def bind(self, value: Any, node: fx.Node) -> fx.Node:
        """``node`` has this value."""
        if isinstance(value, SYMBOLIC):
            self.values[node] = value
            if isinstance(value, torch.SymInt):
                for expr in (value.node.expr, value.node._expr):
                    self.known.setdefault(expr, node)
            else:
                self.made[id(value.node)] = (value.node, node)
        return node

    def offer(self, value: Tensor, node: fx.Node) -> None:
        """The symbols among the sizes and strides of a tensor can be read from ``node``."""
        for op, numbers in ((aten.sym_size.int, value.shape), (aten.sym_stride.int, value.stride())):
            for i, n in enumerate(numbers):
                if isinstance(n, torch.SymInt):
                    for expr in (n.node.expr, n.node._expr):
                        if expr.is_Symbol:
                            self.reads.setdefault(expr, (op, node, i, n))

    def node(self, value: Any) -> Any:
        """The node of a number; the number itself where it does not depend on sizes any more. Raises ``Unsupported`` (``DYNAMIC``) where no way
        leads to it."""
        if not isinstance(value, SYMBOLIC):
            return value
        if (found := self.made.get(id(value.node))) is not None:
            return found[1]
        for expr in (value.node.expr, value.node._expr):
            if isinstance(value, torch.SymBool):
                if expr in (True, False):
                    return bool(expr)
            elif expr in self.known or all(s in self.known or s in self.reads for s in expr.free_symbols):
                return self.of(expr)
        raise Unsupported(f"the number {value}", reason=DYNAMIC, why="nothing in the graph has it")

    def of(self, expr: Any) -> Any:
        """The node of an expression over symbols that can be read; a plain number for one without."""
        if expr.is_number:
            return int(expr) if expr.is_integer else float(expr)
        if (known := self.known.get(expr)) is not None:
            return known
        if expr.is_Symbol:
            op, node, i, value = self.reads[expr]
            made = self.bind(value, self.create(op, (node, i), value))
        elif expr.is_Add:
            made = self.chain(operator.add, sorted(expr.args, key=_is_negative), expr)
        elif expr.is_Mul or len(expr.args) > 2:
            made = self.chain(functions()[expr.func], expr.args, expr)
        elif expr.func in functions() and not (expr.is_Pow and not expr.exp.is_nonnegative):
            made = self.call(functions()[expr.func], [self.of(a) for a in expr.args])
        else:
            raise Unsupported(f"the number {expr}", reason=DYNAMIC, why=f"{expr.func.__name__} has no form as a node")
        self.known[expr] = made
        return made

    def chain(self, function: Callable[..., Any], parts: Sequence[Any], expr: Any) -> Any:
        """``function`` of two, and of the result and the next one; a negative term is subtracted."""
        if len(parts) > 2 and not expr.is_integer:
            raise Unsupported(f"the number {expr}", reason=DYNAMIC, why="floats are not computed in the order of an expression")
        done = self.of(parts[0])
        for part in parts[1:]:
            negative = function is operator.add and _is_negative(part)
            done = self.call(operator.sub, [done, self.of(-part)]) if negative else self.call(function, [done, self.of(part)])
        return done

    def call(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """A node for ``function(*args)``, args being nodes and numbers; the number where they are all numbers."""
        value = function(*(self.values[a] if isinstance(a, fx.Node) else a for a in args))
        return self.result(function, tuple(args), value)

    def result(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any) -> Any:
        """A node for a call whose value is known, unless there is one."""
        if not isinstance(value, SYMBOLIC):
            return value
        if isinstance(value, torch.SymInt) and (known := self.known.get(value.node.expr)) is not None:
            return known
        if isinstance(value, torch.SymInt) and value.node.expr.is_number:
            return int(value.node.expr)
        return self.bind(value, self.create(function, args, value))


def _is_negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0] < 0)
