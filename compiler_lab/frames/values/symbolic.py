"""Ints, floats and bools that depend on sizes: torch's ``SymInt``, ``SymFloat`` and ``SymBool`` as values of the program.

In: sizes and strides of tensors, int arguments, and arithmetic on them. Out: values whose graph node is made only when something needs it.
Always holds: arithmetic that ``ShapeEnv`` computes as Python does stays symbolic, everything else *settles* the value: it is a constant from
then on, with a guard and the line that needed it. A float is passed on and computed with, but decides nothing before it is settled, since
sympy rearranges floats and Python does not.
PyTorch's counterpart: ``torch/_dynamo/variables/tensor.py`` (``SymNodeVariable``). Left out: bit operations, float arguments as symbols.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ...core.sizes import SYMBOLIC
from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Leaf, Value

if TYPE_CHECKING:
    from ..tracer import Tracer

TYPES: dict[type[Any], type[Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
CHECK_IS_SIZE: Any = torch._check_is_size  # pyright: ignore[reportDeprecated]
Made = Callable[["Tracer"], fx.Node]


class SymbolicValue(Value):
    """``sym`` over the symbols of the capture; ``make`` gives its node. ``exact``: sympy and Python agree on its value (all ints and bools,
    floats that are one operation on ints)."""

    def __init__(self, sym: Any, make: Made, source: Source | None = None, *, exact: bool = True) -> None:
        self.sym, self.source, self.exact = sym, source, exact
        self._make = make
        self._node: fx.Node | None = None
        self.first: Any = None  # the placeholder, of an int from outside
        self._settled: Constant | None = None

    def python_type(self) -> type[Any]:
        return TYPES[type(self.sym)]

    def describe(self) -> str:
        return f"the {self.python_type().__name__} {self.sym}, which depends on sizes"

    def plain(self, leaf: Leaf) -> Any:
        return self._settled.value if self._settled is not None else leaf(self)

    def node(self, t: Tracer) -> Any:
        """Its graph node; the number itself where it has become a constant."""
        if (found := self.constant(t)) is not None:
            return found.value
        if self._node is None:
            self._node = self._make(t)
        return self._node

    def constant(self, t: Tracer) -> Constant | None:
        """The constant that it is by now, if it is."""
        if self._settled is None and (known := t.shapes.known(self.sym)) is not None:
            self._settled = Constant(known)
        return self._settled

    def settle(self, t: Tracer) -> Constant:
        """Its value at capture, guarded: from now on a constant."""
        if (found := self.constant(t)) is None:
            found = self._settled = Constant(t.shapes.settle(t, self.sym))
        return found

    def get(self, t: Tracer, name: str) -> Value:
        return super().get(t, name) if name == "__class__" else self.settle(t).get(t, name)

    def item(self, t: Tracer, key: Value) -> Value:
        return self.settle(t).item(t, key)

    def contains(self, t: Tracer, value: Value) -> bool:
        return self.settle(t).contains(t, value)

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return self.settle(t).iterate(t)

    def length(self, t: Tracer) -> int:
        return self.settle(t).length(t)

    def truth(self, t: Tracer) -> bool:
        if self.constant(t) is None and isinstance(self.sym, torch.SymInt):
            return t.shapes.decide(t, self.sym != 0)
        return self.settle(t).truth(t)

    def changing(self, t: Tracer) -> None:
        """Numbers do not change."""


def symbolic(t: Tracer, value: Any, make: Made, *, exact: bool = True) -> Value:
    """A number that a function gave: a constant, or a value that depends on sizes. ``make`` appends its node."""
    if not isinstance(value, SYMBOLIC):
        return Constant(value)
    stack = t.stack()

    def at_its_line(t: Tracer) -> fx.Node:
        node = make(t)
        node.meta["stack"] = stack
        return node

    return SymbolicValue(value, at_its_line, exact=exact)


def size_of(t: Tracer, owner: Any, what: str, dim: int) -> Value:
    """``owner.size(dim)`` or ``owner.stride(dim)``; one value and at most one node for each."""
    found = getattr(owner.fake, what)(dim)
    if isinstance(found, int):
        return Constant(found)
    dim %= owner.fake.dim()
    key = (owner, what, dim)
    if (known := t.shapes.read.get(key)) is None:
        node = owner.node
        known = t.shapes.read[key] = symbolic(t, found, lambda t: t.append("call_method", what, (node, dim), found))
    return known


def sizes_of(t: Tracer, owner: Any, what: str) -> list[Any]:
    return [size_of(t, owner, what, i) for i in range(owner.fake.dim())]


# arithmetic


def is_symbolic(*values: Value) -> bool:
    return any(isinstance(v, SymbolicValue) for v in values)


def is_number(value: Value) -> bool:
    return isinstance(value, SymbolicValue) or (isinstance(value, Constant) and isinstance(value.value, (int, float, complex)))


def settled(t: Tracer, values: Sequence[Value]) -> list[Value]:
    """The values, those that depend on sizes settled."""
    return [v.settle(t) if isinstance(v, SymbolicValue) else v for v in values]


def _number(t: Tracer, value: Value) -> Any:
    """What ``ShapeEnv`` computes with: a symbol or an int; None for what is neither."""
    if isinstance(value, SymbolicValue):
        return value.sym if value.constant(t) is None else value.settle(t).value
    return value.value if isinstance(value, Constant) and type(value.value) in (int, float) else None


def apply(t: Tracer, function: Callable[..., Any], on_symbols: Callable[..., Any], args: Args) -> Value | None:
    """``function(*args)``, whose form for symbols is ``on_symbols``; None where an argument is no number."""
    numbers = [_number(t, a) for a in args]
    if any(n is None for n in numbers):
        return None
    found = on_symbols(*numbers)
    t.note_guards()
    exact = not isinstance(found, torch.SymFloat) or not any(isinstance(n, torch.SymFloat) for n in numbers)
    operands = list(args)
    return symbolic(t, found, lambda t: t.append("call_function", function, tuple(_operand(t, a) for a in operands), found), exact=exact)


def _operand(t: Tracer, value: Value) -> Any:
    return value.node(t) if isinstance(value, SymbolicValue) else t.constant(value)


def arithmetic(t: Tracer, function: Callable[[Any, Any], Any], args: Args) -> Value | None:
    """A binary operator on numbers, one of which depends on sizes; None: settle them and compute with constants."""
    a, b = (_number(t, v) for v in args)
    if a is None or b is None or isinstance(a, torch.SymBool) or isinstance(b, torch.SymBool) or function not in ARITHMETIC:
        return None
    floats = isinstance(a, (float, torch.SymFloat)) or isinstance(b, (float, torch.SymFloat))
    if function is operator.pow and not (type(b) is int and b >= 0) and not (type(b) is float and isinstance(a, torch.SymInt) and a.node.expr.is_positive):
        return None
    if function in (operator.floordiv, operator.mod):
        if floats or (isinstance(b, int) and b <= 0) or (isinstance(b, torch.SymInt) and not t.shapes.decide(t, b > 0)):
            return None
    if function is operator.truediv and (isinstance(b, torch.SymFloat) or not t.shapes.decide(t, b != 0)):
        return None
    return apply(t, function, function, args)


def compare_symbolic(t: Tracer, function: Callable[[Any, Any], Any], args: Args) -> Value:
    """A comparison of which one side depends on sizes. Ints are compared symbolically, everything else is settled first."""
    if all(isinstance(_number(t, v), (int, torch.SymInt)) for v in args) and (found := apply(t, function, function, args)) is not None:
        return found
    return t.fold(function, [t.constant(v) for v in args])


def to_int(t: Tracer, args: Args, function: Callable[..., Any] = int) -> Value | None:
    """``int``, ``math.floor``, ``math.ceil`` or ``math.trunc`` of a number that depends on sizes; None: settle it."""
    value = args[0]
    if len(args) != 1 or not isinstance(value, SymbolicValue) or isinstance(value.sym, torch.SymBool):
        return None
    if isinstance(value.sym, torch.SymInt):
        return value
    return apply(t, function, math.trunc if function is int else function, args) if value.exact else None


def to_float(t: Tracer, args: Args) -> Value | None:
    value = args[0]
    if len(args) != 1 or not isinstance(value, SymbolicValue) or isinstance(value.sym, torch.SymBool):
        return None
    return value if isinstance(value.sym, torch.SymFloat) else apply(t, float, torch.sym_float, args)


def square_root(t: Tracer, args: Args) -> Value | None:
    value = args[0]
    positive = isinstance(value, SymbolicValue) and isinstance(value.sym, torch.SymInt) and t.shapes.decide(t, value.sym >= 0)
    return apply(t, math.sqrt, torch._sym_sqrt, args) if positive else None  # type: ignore[attr-defined]


def magnitude(t: Tracer, args: Args) -> Value | None:
    value = args[0]
    return apply(t, abs, abs, args) if isinstance(value, SymbolicValue) and isinstance(value.sym, torch.SymInt) else None


def check(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``torch._check``: a guard where sizes decide, a node of the graph where data does."""
    value = args[0]
    if not isinstance(value, SymbolicValue) or not t.shapes.of_data(value.sym):
        if not value.truth(t):
            raise t.refuse("op-error", "torch._check does not hold")
        return NONE
    if len(args) > 1 or kwargs:
        raise t.refuse("op-argument", "a message of torch._check")
    torch._check(value.sym)
    t.append("call_function", torch._check, (value.node(t),), None)
    return NONE


def check_is_size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``torch._check_is_size``: always a node, since it warns that it is deprecated."""
    value = args[0]
    if not isinstance(value, SymbolicValue) or len(args) > 1 or kwargs:
        raise t.refuse("op-argument", "torch._check_is_size of what does not depend on sizes or data")
    torch._check(value.sym >= 0)
    t.note_guards()
    t.append("call_function", CHECK_IS_SIZE, (value.node(t),), None)
    return NONE


def extreme(t: Tracer, values: Sequence[Value], largest: bool) -> Value | None:
    """``max`` or ``min`` of ints, without asking which it is; None: compare them one by one."""
    if not is_symbolic(*values) or not all(isinstance(_number(t, v), (int, torch.SymInt)) for v in values):
        return None
    function = torch.sym_max if largest else torch.sym_min
    best = values[0]
    for value in values[1:]:
        found = apply(t, function, function, [best, value])
        assert found is not None
        best = found
    return best


ARITHMETIC = frozenset({operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow})
CONVERSIONS: dict[Any, Callable[[Tracer, Args], Value | None]] = {
    int: to_int,
    float: to_float,
    operator.index: to_int,
    math.floor: lambda t, args: to_int(t, args, math.floor),
    math.ceil: lambda t, args: to_int(t, args, math.ceil),
    math.trunc: lambda t, args: to_int(t, args, math.trunc),
    math.sqrt: square_root,
    abs: magnitude,
}


def convert(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """A row of CONVERSIONS on a number that depends on sizes; None where there is none, or where it must be settled."""
    row = CONVERSIONS.get(function) if args and is_symbolic(args[0]) and not kwargs else None
    return None if row is None else row(t, args)
