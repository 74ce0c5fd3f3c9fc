"""Python's builtin functions on values: one row each.

In: values. Out: what the builtin gives. Always holds: a row computes what Python would, or refuses.
PyTorch's counterpart: ``torch/_dynamo/variables/builtin.py``.
"""

from __future__ import annotations

import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..ir import Source
from . import hashing, iterators, stdlib, strings
from .base import NONE, Args, BoundBuiltin, Constant, Kwargs, NotConstant, Opaque, PureMethod, Raised, Value, is_none
from .classes import ClassValue
from .containers import DictValue, SequenceValue, SetValue
from .functions import FunctionValue, MethodValue, PartialValue
from .lookup import is_named, lookup
from .objects import ExceptionValue, ObjectValue
from .operators import BINARY, COMPARE, UNARY, binary, compare, identical, unary
from .symbolic import convert, extreme
from .tensor import TensorMethod, TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer

Handler = Callable[["Tracer", Args, Kwargs], Value]


class BuiltinValue(Value):
    """A C function, method descriptor or torch operator."""

    def __init__(self, real: Any, source: Source | None = None) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type[Any]:
        return type(self.real)

    def describe(self) -> str:
        return f"builtin {getattr(self.real, '__qualname__', None) or getattr(self.real, '__name__', self.real)}"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        from ..torch_calls import call_builtin

        return call_builtin(t, self.real, args, kwargs)

    def get(self, t: Tracer, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return t.lift(getattr(self.real, name, None))
        if isinstance(self.real, torch._ops.OpOverloadPacket) and name in self.real.overloads():
            return t.wrap(getattr(self.real, name), None)
        if not hasattr(self.real, name):
            raise Raised(t.exception(AttributeError, f"'{type(self.real).__name__}' object has no attribute '{name}'"))
        return super().get(t, name)


def _length(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[0].size(t) if isinstance(args[0], TensorValue) else Constant(args[0].length(t))


def classes_of(t: Tracer, value: Value) -> tuple[type[Any], ...]:
    """The classes that isinstance or issubclass is asked about."""
    if isinstance(value, SequenceValue):
        return tuple(c for v in value.values() for c in classes_of(t, v))
    if isinstance(value, ClassValue):
        return (value.real,)
    if isinstance(value, Opaque) and isinstance(value.real, types.UnionType):
        return tuple(type(None) if c is None else c for c in value.real.__args__)
    origin = getattr(getattr(value, "real", None), "__origin__", None)
    if type(getattr(value, "real", None)).__module__ == "typing" and isinstance(origin, type):
        return (origin,)
    raise t.refuse("unknown-value", f"isinstance with {value.describe()}")


def _isinstance(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(is_subclass(t, args[0], type_of(t, args[0]), classes_of(t, args[1])))


def _issubclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ClassValue):
        raise Raised(t.exception(TypeError, "issubclass() arg 1 must be a class"))
    return Constant(is_subclass(t, args[0], args[0].real, classes_of(t, args[1])))


def is_subclass(t: Tracer, value: Value, cls: type[Any], classes: tuple[type[Any], ...]) -> bool:
    for other in classes:
        if isinstance(value, TensorValue) and type(other) is type(torch.FloatTensor):
            if value.fake.device.type != "cpu":
                raise t.refuse("unknown-value", f"isinstance with the legacy type {other.__name__}")
            if isinstance(torch.empty(0, dtype=value.fake.dtype), other):  # torch looks at dtype and device
                return True
            continue
        if getattr(other, "_is_protocol", False):
            raise t.refuse("unknown-value", f"isinstance with the protocol {other.__name__}")
    return issubclass(cls, classes)


def type_of(t: Tracer, value: Value) -> type[Any]:
    try:
        return value.python_type()
    except NotConstant:
        raise t.refuse("unknown-value", f"the type of {value.describe()}") from None


def _type(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise t.refuse("unknown-callable", "a class is made inside the frame")
    return t.wrap(type_of(t, args[0]), None)


def is_attribute_error(raised: Raised) -> bool:
    return isinstance(raised.exception, ExceptionValue) and issubclass(raised.exception.cls, AttributeError)


def _getattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        return args[0].get(t, t.constant(args[1]))
    except Raised as raised:
        if len(args) > 2 and is_attribute_error(raised):
            return args[2]
        raise


def _hasattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = t.constant(args[1])
    if isinstance(args[0], TensorValue) and not hasattr(torch.Tensor, name):
        return Constant(args[0].has_extra(name))
    try:
        args[0].get(t, name)
    except Raised as raised:
        if is_attribute_error(raised):
            return Constant(False)
        raise
    return Constant(True)


def _setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].set(t, t.constant(args[1]), args[2])
    return NONE


def _delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delete(t, t.constant(args[1]))
    return NONE


def is_callable(t: Tracer, value: Value) -> bool:
    if isinstance(value, (FunctionValue, MethodValue, PartialValue, BuiltinValue, ClassValue, BoundBuiltin, PureMethod, TensorMethod)):
        return True
    return lookup(t, type_of(t, value), "__call__") is not None


def _sum(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start") or (args[1] if len(args) > 1 else Constant(0))
    numbers: list[Any] = []  # in a row at the start: Python 3.12 sums floats with more care than repeated addition
    whole = isinstance(args[0], SetValue) and all(isinstance(v, Constant) and type(v.value) is int for v in args[0].entries.values())  # in any order
    for value in args[0].entries.values() if whole and isinstance(args[0], SetValue) else args[0].iterate(t):
        if isinstance(value, Constant) and isinstance(total, Constant):
            numbers.append(value.value)
            continue
        if numbers:
            total, numbers = t.fold(sum, [numbers, t.constant(total)]), []
        total = binary(t, "+", total, value)
    return t.fold(sum, [numbers, t.constant(total)]) if numbers else total


def _all(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(all(v.truth(t) for v in args[0].iterate(t)))


def _any(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(any(v.truth(t) for v in args[0].iterate(t)))


def _extreme(symbol: str) -> Handler:
    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) > 1:
            values = list(args)
        else:
            values = list(args[0].entries.values()) if isinstance(args[0], SetValue) else list(args[0].iterate(t))
        if not values:
            if "default" in kwargs:
                return kwargs["default"]
            return t.fold(max if symbol == ">" else min, [()])
        key = kwargs.get("key", NONE)
        if is_none(key) and (found := extreme(t, values, symbol == ">")) is not None:
            return found
        rank = (lambda v: v) if is_none(key) else (lambda v: key.call(t, [v], {}))
        best, best_rank = values[0], rank(values[0])
        for value in values[1:]:
            if compare(t, symbol, new := rank(value), best_rank).truth(t):
                best, best_rank = value, new
        return best

    return row


def _numeric(function: Callable[..., Any], name: str) -> Handler:
    """``abs``, ``round`` and their like: the method of a user's class, or folded."""

    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        values = [*args, *kwargs.values()]
        if isinstance(args[0], TensorValue):
            return t.op(function, args, kwargs)
        if isinstance(args[0], ObjectValue):
            found = args[0].dunder(t, name, *values[1:])
            if found is not None:
                return found
            raise t.refuse("bad-call", f"{function.__name__} of {args[0].describe()}")
        if (found := convert(t, function, args, kwargs)) is not None:
            return found
        return t.fold(function, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})

    return row


def _pow(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    values = [*args, *(kwargs[n] for n in ("base", "exp", "mod")[len(args) :] if n in kwargs)]
    if len(values) == 3 and isinstance(values[0], ObjectValue):
        found = values[0].dunder(t, "__pow__", *values[1:])
        return found if found is not None else NONE
    return binary(t, "**", *values) if len(values) == 2 else t.fold(pow, [t.constant(a) for a in values])


def _divmod(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if any(isinstance(a, ObjectValue) for a in args):
        found = args[0].dunder(t, "__divmod__", args[1]) if isinstance(args[0], ObjectValue) else None
        if found is None or (isinstance(found, Constant) and found.value is NotImplemented):
            raise t.refuse("bad-call", f"divmod of {args[0].describe()} and {args[1].describe()}")
        return found
    if t.is_constant(*args):
        return t.fold(divmod, [t.constant(a) for a in args])
    return SequenceValue([binary(t, "//", *args), binary(t, "%", *args)], tuple)


def _index(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``operator.index``."""
    if isinstance(args[0], ObjectValue):
        found = args[0].dunder(t, "__index__")
        if found is None:
            raise Raised(t.exception(TypeError, f"'{args[0].cls.__name__}' object cannot be interpreted as an integer"))
        return found
    return t.fold(operator.index, [t.constant(args[0])])


def _vars(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1:
        raise t.refuse("unknown-callable", "vars() of the frame")
    try:
        return args[0].get(t, "__dict__")
    except Raised as raised:
        if is_attribute_error(raised):
            raise Raised(t.exception(TypeError, "vars() argument must have __dict__ attribute")) from raised
        raise


def _reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    run = args[1].iterate(t)
    total = args[2] if len(args) > 2 else next(run, None)
    if total is None:
        raise Raised(t.exception(TypeError, "reduce() of empty iterable with no initial value"))
    for value in run:
        total = args[0].call(t, [total, value], {})
    return total


def _binary_row(symbol: str) -> Handler:
    return lambda t, args, kwargs: binary(t, symbol, args[0], args[1])


def _compare_row(symbol: str) -> Handler:
    return lambda t, args, kwargs: compare(t, symbol, args[0], args[1])


def _unary_row(symbol: str) -> Handler:
    return lambda t, args, kwargs: unary(t, symbol, args[0])


def _object_setattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise t.refuse("attribute", "object.__setattr__")
    args[0].default_set(t, t.constant(args[1]), args[2])
    return NONE


def _object_delattr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise t.refuse("attribute", "object.__delattr__")
    args[0].default_delete(t, t.constant(args[1]))
    return NONE


def _object_getattribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise t.refuse("attribute", "object.__getattribute__")
    return args[0].default_get(t, t.constant(args[1]))


def _object_init(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1 or kwargs:
        raise t.refuse("bad-call", "object.__init__ with arguments")
    return NONE


def _object_eq(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(True) if identical(t, args[0], args[1]) else Constant(NotImplemented)


def _object_ne(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ObjectValue):
        raise t.refuse("unknown-callable", "object.__ne__")
    found = args[0].dunder(t, "__eq__", args[1])
    return found if found is None or (isinstance(found, Constant) and found.value is NotImplemented) else Constant(not found.truth(t))  # type: ignore[return-value]


def _nothing(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return NONE


def _object_new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ClassValue):
        raise t.refuse("bad-call", "object.__new__")
    return ObjectValue(args[0].real)


def _tuple_new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ClassValue):
        raise t.refuse("bad-call", "tuple.__new__")
    if args[0].real is not tuple and not is_named(args[0].real):
        raise t.refuse("unknown-callable", f"tuple.__new__ of {args[0].describe()}")
    return SequenceValue(list(args[1].iterate(t)) if len(args) > 1 else [], args[0].real)


def _from_keys(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({})
    for key in args[0].iterate(t):
        made.set_item(t, key, args[1] if len(args) > 1 else NONE)
    return made


def _chain_from(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return iterators.chain_from(t, args, kwargs)


BUILTINS: dict[Any, Handler] = {
    **{r.function: _binary_row(s) for s, r in BINARY.items()},
    **{r.inplace: _binary_row(s + "=") for s, r in BINARY.items()},
    **{r[0]: _compare_row(s) for s, r in COMPARE.items()},
    **{r[0]: _unary_row(s) for s, r in UNARY.items()},
    operator.inv: _unary_row("~"),
    len: _length,
    isinstance: _isinstance,
    issubclass: _issubclass,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    callable: lambda t, args, kwargs: Constant(is_callable(t, args[0])),
    sum: _sum,
    all: _all,
    any: _any,
    min: _extreme("<"),
    max: _extreme(">"),
    abs: _numeric(abs, "__abs__"),
    operator.abs: _numeric(abs, "__abs__"),
    round: _numeric(round, "__round__"),
    pow: _pow,
    divmod: _divmod,
    operator.index: _index,
    hash: hashing.to_hash,
    id: hashing.to_id,
    vars: _vars,
    **stdlib.FUNCTIONS,
    repr: strings.to_repr,
    ascii: strings.to_ascii,
    format: strings.to_format,
    iter: iterators.iter_value,
    next: iterators.next_value,
    sorted: iterators.sorted_list,
    functools.reduce: _reduce,
    itertools.chain.from_iterable: _chain_from,
    dict.fromkeys: _from_keys,
    operator.not_: lambda t, args, kwargs: Constant(not args[0].truth(t)),
    operator.truth: lambda t, args, kwargs: Constant(args[0].truth(t)),
    operator.is_: lambda t, args, kwargs: Constant(identical(t, args[0], args[1])),
    operator.is_not: lambda t, args, kwargs: Constant(not identical(t, args[0], args[1])),
    operator.getitem: lambda t, args, kwargs: args[0].item(t, args[1]),
    operator.setitem: lambda t, args, kwargs: args[0].set_item(t, args[1], args[2]) or NONE,
    operator.contains: lambda t, args, kwargs: Constant(args[0].contains(t, args[1])),
    object.__setattr__: _object_setattr,
    object.__delattr__: _object_delattr,
    object.__getattribute__: _object_getattribute,
    object.__init__: _object_init,
    object.__eq__: _object_eq,
    object.__ne__: _object_ne,
    object.__init_subclass__: _nothing,
    object.__new__: _object_new,
    tuple.__new__: _tuple_new,
}
TYPE_OF: Handler = _type
