"""Operators on values: arithmetic, comparison, identity, as rows of (Python function, method names).

In: an operator's symbol and values. Out: a graph node where a tensor takes part, a folded constant, a new container, or an inlined
``__add__`` of a user's class. PyTorch's counterpart: ``torch/_dynamo/variables/builtin.py`` (binary handlers).
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Constant, NotConstant, Opaque, Raised, Value
from .classes import ClassValue
from .containers import DequeValue, DictValue, DictView, SequenceValue, SetValue, entries_of, same_or_equal
from .lookup import find_in_class
from .objects import ObjectValue
from .strings import percent
from .symbolic import apply, arithmetic, compare_symbolic, is_number, is_symbolic, settled
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer


@dataclass(frozen=True)
class Binary:
    """``function`` on plain values, ``inplace`` its augmented form, ``name`` of the method without underscores."""

    function: Callable[[Any, Any], Any]
    inplace: Callable[[Any, Any], Any]
    name: str


BINARY: dict[str, Binary] = {
    "+": Binary(operator.add, operator.iadd, "add"),
    "-": Binary(operator.sub, operator.isub, "sub"),
    "*": Binary(operator.mul, operator.imul, "mul"),
    "/": Binary(operator.truediv, operator.itruediv, "truediv"),
    "//": Binary(operator.floordiv, operator.ifloordiv, "floordiv"),
    "%": Binary(operator.mod, operator.imod, "mod"),
    "**": Binary(operator.pow, operator.ipow, "pow"),
    "@": Binary(operator.matmul, operator.imatmul, "matmul"),
    "&": Binary(operator.and_, operator.iand, "and"),
    "|": Binary(operator.or_, operator.ior, "or"),
    "^": Binary(operator.xor, operator.ixor, "xor"),
    "<<": Binary(operator.lshift, operator.ilshift, "lshift"),
    ">>": Binary(operator.rshift, operator.irshift, "rshift"),
}
COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "==": (operator.eq, "__eq__", "__eq__"),
    "!=": (operator.ne, "__ne__", "__ne__"),
    "<": (operator.lt, "__lt__", "__gt__"),
    "<=": (operator.le, "__le__", "__ge__"),
    ">": (operator.gt, "__gt__", "__lt__"),
    ">=": (operator.ge, "__ge__", "__le__"),
}
UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
BOUND = ("MethodValue", "BoundBuiltin", "TensorMethod", "PureMethod")  # Python makes a new object at each read
SMALL = range(-5, 257)  # CPython keeps one object for each of these ints


def binary(t: Tracer, symbol: str, a: Value, b: Value) -> Value:
    """``a symbol b``; a symbol that ends in ``=`` is the augmented form."""
    inplace = symbol.endswith("=")
    symbol = symbol.rstrip("=")
    row = BINARY[symbol]
    if symbol == "%" and isinstance(a, Constant) and isinstance(a.value, str) and not isinstance(b, TensorValue):
        return percent(t, a, b)
    if isinstance(a, ObjectValue) or isinstance(b, ObjectValue):
        return _on_objects(t, row, inplace, a, b)
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        other = b if isinstance(a, TensorValue) else a
        if isinstance(other, Constant) and isinstance(other.value, (str, bytes)):
            raise t.refuse("tensor-to-python", "a tensor is formatted into text")
        return t.op(row.inplace if inplace and isinstance(a, TensorValue) else row.function, [a, b])
    if isinstance(a, SetValue) and isinstance(b, (SetValue, DictView)) and symbol in "&|-^":
        return _on_sets(t, symbol, inplace, a, b)
    if isinstance(a, DictView) and a.kind == "keys" and symbol in "&|-^":
        return _on_sets(t, symbol, False, SetValue(entries_of(t, a)), b)
    if isinstance(a, DictValue) and isinstance(b, DictValue) and symbol == "|":
        a.look()
        target = a if inplace else DictValue(dict(a.entries), a.cls)
        return target.METHODS["update"](t, target, [b], {}) and target
    if isinstance(a, SequenceValue) or isinstance(b, SequenceValue):
        found = _on_sequences(t, symbol, inplace, a, b)
        if found is not None:
            return found
    if symbol == "|" and (isinstance(a, ClassValue) or isinstance(b, ClassValue)):
        return t.fold(row.function, [_class_or_none(t, a), _class_or_none(t, b)])
    if symbol not in "+*" and not (t.is_constant(a) and t.is_constant(b)) and _is_plain(a) and _is_plain(b):
        raise Raised(t.exception(TypeError, _unsupported(symbol, inplace, a, b)))
    if is_symbolic(a, b) and (found := arithmetic(t, row.function, [a, b])) is not None:
        return found
    return t.fold(row.inplace if inplace else row.function, [t.constant(a), t.constant(b)])


def _class_or_none(t: Tracer, value: Value) -> Any:
    """A part of ``int | None``."""
    return value.real if isinstance(value, (ClassValue, Opaque)) else t.constant(value)


def _is_plain(value: Value) -> bool:
    """A container of Python's own, or a constant: has none of this operator beyond those that are modelled."""
    return type(value) in (SequenceValue, DictValue, SetValue) or isinstance(value, Constant)


def _unsupported(symbol: str, inplace: bool, a: Value, b: Value) -> str:
    shown = "** or pow()" if symbol == "**" and not inplace else symbol + "=" * inplace
    return f"unsupported operand type(s) for {shown}: '{a.python_type().__name__}' and '{b.python_type().__name__}'"


def _on_sequences(t: Tracer, symbol: str, inplace: bool, a: Value, b: Value) -> Value | None:
    """Concatenation and repetition; None where it is neither."""
    if isinstance(b, DequeValue) or (isinstance(a, DequeValue) and not (inplace and symbol == "+")):
        raise t.refuse("unknown-value", f"{symbol} of deques")
    if symbol == "+" and isinstance(a, SequenceValue):
        if inplace and a.cls in (list, deque):
            a.grow(t, list(b.iterate(t)))
            return a
        if isinstance(b, SequenceValue) and (a.cls is list) == (b.cls is list):
            sizes = [s.cls for s in (a, b) if s.cls.__name__ == "Size"]
            return (
                t.lift(t.constant(a) + t.constant(b))
                if sizes and t.is_constant(a, b)
                else SequenceValue([*a.items, *b.items], list if a.cls is list else tuple)
            )
    if symbol == "*":
        sequence, count = (a, b) if isinstance(a, SequenceValue) else (b, a)
        times = t.maybe_constant(count, settle=True)
        if isinstance(sequence, SequenceValue) and isinstance(times, int):
            if inplace and sequence is a and sequence.cls is list:
                sequence.changing(t)
                sequence.items[:] = sequence.items * times
                return sequence
            return SequenceValue(sequence.items * times, sequence.cls if sequence.cls in (list, tuple) else tuple)
    return None


def _on_sets(t: Tracer, symbol: str, inplace: bool, a: SetValue, b: Value) -> Value:
    if inplace:
        a.changing(t)
    x, y = a.entries, entries_of(t, b)
    merged = {
        "&": lambda: {k: v for k, v in x.items() if k in y},
        "|": lambda: {**y, **x},
        "-": lambda: {k: v for k, v in x.items() if k not in y},
        "^": lambda: {k: v for k, v in {**x, **y}.items() if (k in x) != (k in y)},
    }[symbol]()
    if inplace and a.cls is set:
        a.entries.clear()
        a.entries.update(merged)
        return a
    return SetValue(merged, a.cls)


def _is_not_implemented(value: Value | None) -> bool:
    return value is None or (isinstance(value, Constant) and value.value is NotImplemented)


def _on_objects(t: Tracer, row: Binary, inplace: bool, a: Value, b: Value) -> Value:
    """Methods of users' classes, as Python tries them; a reflected method that would come first is refused."""
    left, right = a.python_type(), b.python_type()
    if isinstance(a, ObjectValue) and inplace:
        found = a.dunder(t, f"__i{row.name}__", b)
        if not _is_not_implemented(found):
            return found  # type: ignore[return-value]
    if isinstance(a, TensorValue):
        raise t.refuse("op-argument", f"{b.describe()} with a tensor")
    reflected = f"__r{row.name}__"
    own = find_in_class(right, reflected) if isinstance(b, ObjectValue) and left is not right else None
    first = own is not None and issubclass(right, left) and own != find_in_class(left, reflected)  # a subclass that defines it anew comes first
    found = b.dunder(t, reflected, a) if first and isinstance(b, ObjectValue) else None
    if _is_not_implemented(found) and isinstance(a, ObjectValue):
        found = a.dunder(t, f"__{row.name}__", b)
    if _is_not_implemented(found) and not first and own is not None and isinstance(b, ObjectValue):
        found = b.dunder(t, reflected, a)
    if _is_not_implemented(found):
        symbol = next(s for s, r in BINARY.items() if r is row)
        raise Raised(t.exception(TypeError, _unsupported(symbol, inplace, a, b)))
    return found  # type: ignore[return-value]


class Ordered(Value):
    """One value under the comparison function of ``functools.cmp_to_key``."""

    def __init__(self, function: Value, value: Value) -> None:
        self.function, self.value = function, value

    def compared(self, t: Tracer, symbol: str, other: Value) -> Value:
        if not isinstance(other, Ordered):
            raise Raised(t.exception(TypeError, "other argument must be K instance"))
        return compare(t, symbol, self.function.call(t, [self.value, other.value], {}), Constant(0))


def unary(t: Tracer, symbol: str, value: Value) -> Value:
    """``-value``, ``+value``, ``~value`` or ``not value``."""
    if symbol == "not":
        return Constant(not value.truth(t))
    function, name = UNARY[symbol]
    if isinstance(value, TensorValue):
        return t.op(function, [value])
    if isinstance(value, ObjectValue):
        found = value.dunder(t, name)
        if found is None:
            raise Raised(t.exception(TypeError, f"bad operand type for unary {symbol}: '{value.cls.__name__}'"))
        return found
    if symbol == "~" and isinstance(value, Constant) and isinstance(value.value, bool):
        raise t.refuse("output", "~ of a bool, which warns on newer Pythons")
    if is_symbolic(value) and value.python_type() is not bool and symbol != "~" and (found := apply(t, function, function, [value])) is not None:
        return found
    return t.fold(function, [t.constant(value)])


def compare(t: Tracer, symbol: str, a: Value, b: Value) -> Value:
    """``a symbol b`` for the six comparisons."""
    function, name, reflected = COMPARE[symbol]
    if isinstance(a, Ordered):
        return a.compared(t, symbol, b)
    if isinstance(a, TensorValue) or isinstance(b, TensorValue):
        if isinstance(a, ObjectValue) or isinstance(b, ObjectValue):
            raise t.refuse("op-argument", "a comparison of a tensor with an object")
        return t.op(function, [a, b])
    if isinstance(a, ObjectValue) or isinstance(b, ObjectValue):
        return _compare_objects(t, symbol, name, reflected, a, b)
    if is_symbolic(a, b) and (is_number(a) and is_number(b)):
        return compare_symbolic(t, function, [a, b])
    a, b = _as_set(t, a, b), _as_set(t, b, a)
    x, y = t.maybe_constant(a), t.maybe_constant(b)
    if not isinstance(x, NotConstant) and not isinstance(y, NotConstant):
        return t.fold(function, [x, y])
    if symbol in ("==", "!="):
        return Constant(_equal(t, a, b) == (symbol == "=="))
    if isinstance(a, SetValue) and isinstance(b, SetValue):
        return Constant(function(set(a.entries), set(b.entries)))
    raise t.refuse("unknown-value", f"{a.describe()} {symbol} {b.describe()}")


def _as_set(t: Tracer, value: Value, other: Value) -> Value:
    """Keys and items of a dict compare with sets and with each other as sets do."""
    alike = isinstance(other, SetValue) or (isinstance(other, DictView) and other.kind != "values")
    return SetValue(entries_of(t, value)) if isinstance(value, DictView) and value.kind != "values" and alike else value


def _equal(t: Tracer, a: Value, b: Value) -> bool:
    if isinstance(a, SequenceValue) and isinstance(b, SequenceValue):
        alike = (issubclass(a.cls, list), a.cls is deque) == (issubclass(b.cls, list), b.cls is deque) and len(a.items) == len(b.items)
        return alike and all(same_or_equal(t, x, y) for x, y in zip(a.values(), b.values(), strict=False))
    if isinstance(a, DictValue) and isinstance(b, DictValue):
        if a.length(t) != b.length(t) or {*a.entries} != {*b.entries} or (a.cls is not dict and b.cls is not dict):
            if a.cls is not dict and b.cls is not dict:
                raise t.refuse("unknown-value", "equality of ordered dicts")
            return False
        return all(same_or_equal(t, v, b.item(t, k)) for k, v in a.pairs())
    if isinstance(a, SetValue) and isinstance(b, SetValue):
        return set(a.entries) == set(b.entries)
    return identical(t, a, b)


def _compare_objects(t: Tracer, symbol: str, name: str, reflected: str, a: Value, b: Value) -> Value:
    asked = [(a, b, name), (b, a, reflected)]
    left, right = a.python_type(), b.python_type()
    for one, other, method in asked[::-1] if left is not right and issubclass(right, left) else asked:
        if isinstance(one, ObjectValue):
            found = one.default_dunder(t, method, other)
            if not _is_not_implemented(found):
                return found  # type: ignore[return-value]
    if symbol == "==":
        return Constant(identical(t, a, b))
    if symbol == "!=":
        return Constant(not compare(t, "==", a, b).truth(t))
    raise Raised(t.exception(TypeError, f"'{symbol}' not supported between instances of '{a.python_type().__name__}' and '{b.python_type().__name__}'"))


def identical(t: Tracer, a: Value, b: Value) -> bool:
    """``a is b``, guarded where both existed before the frame."""
    if a is b:
        return True
    if is_symbolic(a, b):
        if not (is_number(a) and is_number(b)):
            return False
        a, b = settled(t, [a, b])
    if isinstance(a, Constant) and isinstance(b, Constant):
        return a.python_type() is b.python_type() and _same_constant(t, a.value, b.value)
    if isinstance(a, Constant) or isinstance(b, Constant):
        return False  # an Opaque or a tensor is never None, a bool or a number: its type is guarded
    if isinstance(a, Opaque) or isinstance(b, Opaque):
        raise t.refuse("identity", f"{a.describe()} is {b.describe()}")
    x, y = _real(a), _real(b)
    if x is None or y is None:
        if type(a) is type(b) and (type(a).__name__ in BOUND or (a.source is not None and b.source is not None)):
            raise t.refuse("identity", f"{a.describe()} is {b.describe()}")
        return False
    same = x is y
    if a.source is not None and b.source is not None and a.source != b.source:
        t.guard("aliased" if same else "not_aliased", a.source, b.source, why="the program asked whether they are one object")
    else:
        t.guard("id", a.source, None, why="the program asked for its identity")
        t.guard("id", b.source, None, why="the program asked for its identity")
    return same


def _real(value: Value) -> Any:
    return value.real_tensor if isinstance(value, TensorValue) else getattr(value, "real", None)


def _same_constant(t: Tracer, x: Any, y: Any) -> bool:
    if x is y and (x is None or isinstance(x, (bool, type(...), type(NotImplemented))) or type(x).__module__ == "torch" or (type(x) is int and x in SMALL)):
        return True
    if x != y:
        return False
    if hasattr(type(x), "__members__") or type(x).__module__ == "torch":
        return x is y
    raise t.refuse("identity", f"{x!r} is {y!r}")
