"""``copy.copy`` and ``copy.deepcopy`` on values.

In: a value. Out: its copy, with the sharing inside kept. Always holds: what Python's ``copy`` treats as atomic stays the same object; the user's
``__copy__`` and ``__deepcopy__`` run in the interpreter; classes that say themselves how they are taken apart are refused.
PyTorch's counterpart: ``torch/_dynamo/polyfills/copy.py``. Left out: tensors, whose copies are eager's.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from .base import Args, Constant, Kwargs, Unread, Value
from .classes import ClassValue
from .containers import DictValue, SequenceValue, SetValue, SliceValue, key_of
from .functions import FunctionValue
from .lookup import bind, find_in_class
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer

TAKES_ITSELF_APART = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
ATOMIC = (Constant, Unread, FunctionValue, ClassValue, SliceValue)


def shallow(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``copy.copy(value)``."""
    value = args[0]
    if type(value) in ATOMIC or (isinstance(value, SequenceValue) and value.cls is tuple):
        return value
    if isinstance(value, (SequenceValue, DictValue, SetValue)) and "copy" in value.METHODS:
        return value if isinstance(value, SetValue) and value.cls is frozenset else value.METHODS["copy"](t, value, [], {})
    if type(value) is ObjectValue:
        return _user(t, value, "__copy__", []) or _instance(t, value)
    raise t.refuse("unknown-callable", f"copy.copy of {value.describe()}")


def deep(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``copy.deepcopy(value)``."""
    if len(args) > 1 or kwargs:
        raise t.refuse("unknown-callable", "copy.deepcopy with a memo")
    return _deep(t, args[0], {})


def _deep(t: Tracer, value: Value, memo: dict[int, Value]) -> Value:
    if type(value) in ATOMIC:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, SequenceValue):
        return _sequence(t, value, memo)
    if isinstance(value, DictValue) and "copy" in value.METHODS:
        made = memo[id(value)] = value.METHODS["copy"](t, value, [], {})
        assert isinstance(made, DictValue)
        pairs = made.pairs()
        made.entries.clear()
        for key, part in pairs:
            copied = _deep(t, key, memo)
            made.entries[key_of(t, copied)] = (copied, _deep(t, part, memo))
        return made
    if isinstance(value, SetValue):
        parts = [_deep(t, v, memo) for v in value.entries.values()]
        return memo.setdefault(id(value), SetValue({key_of(t, v): v for v in parts}, value.cls))
    if type(value) is ObjectValue:
        if find_in_class(value.cls, "__deepcopy__") is not None:
            raise t.refuse("unknown-callable", f"copy.deepcopy of {value.describe()}, which defines __deepcopy__")
        made = memo[id(value)] = _instance(t, value)
        for name, part in list(made.attributes.items()):
            made.attributes[name] = _deep(t, part, memo)
        return made
    raise t.refuse("unknown-callable", f"copy.deepcopy of {value.describe()}")


def _sequence(t: Tracer, value: SequenceValue, memo: dict[int, Value]) -> Value:
    if "copy" in value.METHODS:
        made = memo[id(value)] = value.METHODS["copy"](t, value, [], {})
        assert isinstance(made, SequenceValue)
        made.items[:] = [_deep(t, v, memo) for v in value.values()]
        return made
    if value.cls is not tuple:
        raise t.refuse("unknown-callable", f"copy.deepcopy of {value.describe()}")
    parts = [_deep(t, v, memo) for v in value.values()]
    changed = any(a is not b for a, b in zip(parts, value.values(), strict=True))
    return memo.setdefault(id(value), SequenceValue(parts, tuple) if changed else value)


def _user(t: Tracer, value: ObjectValue, name: str, args: list[Value]) -> Value | None:
    found = find_in_class(value.cls, name)
    return None if found is None else bind(t, value, value.cls, found[0], name, found[1]).call(t, args, {})


def _instance(t: Tracer, value: ObjectValue) -> ObjectValue:
    """A new object with the same attributes, as ``object.__reduce_ex__`` takes it apart and puts it together."""
    owners = [find_in_class(value.cls, n) for n in TAKES_ITSELF_APART]
    slots = any(isinstance(a, types.MemberDescriptorType) for c in value.cls.__mro__ for a in c.__dict__.values())
    if slots or any(o is not None and o[0] is not object for o in owners) or value.real is not None or value.cls is object:
        raise t.refuse("unknown-callable", f"a copy of {value.describe()}")
    made = ObjectValue(value.cls)
    made.attributes = dict(value.attributes)
    return made
