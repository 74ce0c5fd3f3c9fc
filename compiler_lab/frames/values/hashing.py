"""Hashes and keys: ``hash(value)``, and what stands for an object with ``__hash__`` and ``__eq__`` of its own in a dict or set.

In: values. Out: hashes, and keys for real dicts. Always holds: Python's own dict decides which keys are compared and in which order, so the
user's methods run as often and in the order in which plain Python calls them; a hash that is an address is refused.
PyTorch's counterpart: ``HashableTracker`` in ``torch/_dynamo/variables/dicts.py``.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .base import Args, Constant, Kwargs, NotConstant, Raised, Value
from .containers import DictValue, SequenceValue, SetValue
from .lookup import bind, find_in_class
from .objects import ExceptionValue, ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer

PLAIN = (int, float, complex, str, bytes, bool, range)


class UserKey:
    """A user's object as a key, made for one operation: its hash was computed once, and its ``__eq__`` runs once for each key that Python's
    dict compares it with, however many look-ups the operation takes here."""

    def __init__(self, t: Tracer, value: Value, number: int) -> None:
        self.t, self.value, self.number = t, value, number
        self.made, self.answers = t.steps, dict[int, tuple[object, bool]]()  # the other key is kept, so that its id stays its own

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UserKey) and other.value is self.value:
            return True
        newer, older = (other, self) if isinstance(other, UserKey) and other.made > self.made else (self, other)
        if id(older) not in newer.answers:
            newer.answers[id(older)] = older, self._asked(other)
        return newer.answers[id(older)][1]

    def _asked(self, other: object) -> bool:
        from .operators import compare

        with without_effects(self.t, "__eq__", self.value):
            return compare(self.t, "==", self.value, other.value if isinstance(other, UserKey) else _back(self.t, other)).truth(self.t)


@contextmanager
def without_effects(t: Tracer, name: str, value: Value) -> Generator[None]:
    """A dict or set that is handed out is made again behind the graph, and asks its keys again."""
    before = t.changes
    yield
    if t.changes != before:
        raise t.refuse("side-effect", f"{name} of {value.describe()}, a key, changes something")


def _back(t: Tracer, key: object) -> Value:
    if isinstance(key, Value):
        return key
    if isinstance(key, tuple):
        return SequenceValue([k.value if isinstance(k, UserKey) else _back(t, k) for k in key], tuple)
    return t.lift(key)


def user_key(t: Tracer, value: Value) -> Hashable:
    """The key of an object whose class says what its hash is."""
    real = getattr(value, "real", None)
    if isinstance(real, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        return real
    if t.keys is None:
        return UserKey(t, value, number_of(t, value))
    if id(value) not in t.keys:
        t.keys[id(value)] = UserKey(t, value, number_of(t, value))
    return t.keys[id(value)]


def number_of(t: Tracer, value: Value) -> int:
    """``hash(value)``. Raises TypeError in the program where there is none; addresses are refused."""
    if isinstance(value, ObjectValue):
        return _own(t, value)
    if isinstance(value, SequenceValue) and issubclass(value.cls, tuple):
        return hash(tuple(Known(number_of(t, v)) for v in value.values()))
    if isinstance(value, (SequenceValue, DictValue)) or (isinstance(value, SetValue) and value.cls is set):
        raise Raised(t.exception(TypeError, f"unhashable type: '{value.python_type().__name__}'"))
    found = t.maybe_constant(value, settle=True)
    if isinstance(found, NotConstant) or not (isinstance(found, (*PLAIN, frozenset)) or type(found).__hash__ is enum.Enum.__hash__):
        raise t.refuse("identity", f"hash of {value.describe()}")
    return int(t.constant(t.fold(hash, [found])))


def _own(t: Tracer, value: ObjectValue) -> int:
    found = find_in_class(value.cls, "__hash__")
    if found is None or found[1] is None:
        raise Raised(t.exception(TypeError, f"unhashable type: '{value.cls.__name__}'"))
    if isinstance(value, ExceptionValue) or not isinstance(found[1], types.FunctionType):
        raise t.refuse("identity", f"hash of {value.describe()}")
    with without_effects(t, "__hash__", value):
        number = t.constant(bind(t, value, value.cls, found[0], "__hash__", found[1]).call(t, [], {}))
    if not isinstance(number, int):
        raise Raised(t.exception(TypeError, "__hash__ method should return an integer"))
    return hash(Known(number))


class Known:
    """Has this hash, as a class whose ``__hash__`` returns it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number


def to_hash(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``hash(value)``."""
    return Constant(number_of(t, args[0]))


def to_id(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``id(value)``."""
    raise t.refuse("identity", f"id of {args[0].describe()}")
