"""Existing objects as values, with the guards that make them what they were at capture.

In: an object and the source it was read from (None: taken as fixed, a library's). Out: a value of the right kind.
Always holds: a kind that is not modelled becomes ``Opaque``, which can only be passed on.
PyTorch's counterpart: ``torch/_dynamo/variables/builder.py`` (``VariableBuilder``).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..ir import Source
from . import subclasses
from .base import Constant, Lazy, NotConstant, Opaque, Unread, Value
from .builtins import BuiltinValue
from .classes import ClassValue, ModuleValue, WeakReference
from .containers import DequeValue, ExistingDict, ExistingList, ExistingSet, SequenceValue, SetValue, SliceValue
from .contexts import existing_autocast
from .functions import FunctionValue, MethodValue, PartialValue
from .lift import CONSTANT_TYPES, lift
from .lookup import is_named
from .modules import ModuleInstance
from .objects import EnumValue, ObjectValue
from .stdlib import CachedFunction

if TYPE_CHECKING:
    from ..tracer import Tracer

KEY_TYPES = (str, int, float, tuple, type(None), enum.Enum, type, types.FunctionType, torch.dtype)
Wrapper = Callable[["Tracer", Any, Any], Value]
BUILTIN_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType)
OPS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def wrap(t: Tracer, real: Any, source: Source | None) -> Value:
    row = BY_TYPE.get(type(real))
    if row is not None:
        return row(t, real, source)
    for kind, row in BY_INSTANCE:
        if issubclass(type(real), kind):  # ``isinstance`` would read ``__class__``, which the program may see
            return row(t, real, source)
    return _object(t, real, source)


def _constant(t: Tracer, real: Any, source: Source | None) -> Value:
    if source is None:
        return Constant(real)
    if not isinstance(real, (bool, type(None))):
        t.unread.append(made := Unread(t, real, source))
        return made
    t.guard(str(real).lower(), source, real, why="its value was used")
    return Constant(real, source)


def _integer(t: Tracer, real: int, source: Source | None) -> Value:
    return t.integer(real, source) if source is not None and t.shapes.number(real, source) else _constant(t, real, source)


def _singleton(t: Tracer, real: Any, source: Source | None) -> Value:
    t.guard("id", source, None, why="its value was used")
    return Constant(real, source)


def _tensor(t: Tracer, real: torch.Tensor, source: Source | None) -> Value:
    if source is None:
        raise t.refuse("unknown-value", "a tensor that a library keeps")
    return t.placeholder(real, source)


def _list(t: Tracer, real: list[Any], source: Source | None) -> Value:
    t.guard("type", source, type(real).__name__)
    return ExistingList(t, real, [Lazy(t, v, Source("item", i, source) if source else None) for i, v in enumerate(real)], source)


def _deque(t: Tracer, real: deque[Any], source: Source | None) -> Value:
    t.guard("type", source, type(real).__name__)
    t.guard("length", source, len(real), why="its length was used")
    t.guard("equals" if real.maxlen is not None else "none", Source("attr", "maxlen", source) if source else None, real.maxlen)
    return DequeValue([Lazy(t, v, Source("item", i, source) if source else None) for i, v in enumerate(real)], real.maxlen, real, source)


def _sequence(t: Tracer, real: Any, source: Source | None) -> Value:
    t.guard("type", source, type(real).__name__)
    t.guard("length", source, len(real), why="its length was used")
    items = [Lazy(t, v, Source("item", i, source) if source else None) for i, v in enumerate(real)]
    return SequenceValue(items, type(real), source)


def _dict(t: Tracer, real: Any, source: Source | None) -> Value:
    if any(isinstance(type(k).__hash__, types.FunctionType) and not dataclasses.is_dataclass(k) for k in real):
        return _opaque(t, real, source)  # looking a key up runs the program's code
    t.guard("type", source, type(real).__name__)
    entries = {k: (as_key(t, k), Lazy(t, v, Source("dict_item", k, source) if source else None)) for k, v in real.items()}
    made = ExistingDict(t, real, entries, source)
    if isinstance(real, defaultdict):
        made.factory = t.wrap(real.default_factory, Source("attr", "default_factory", source) if source else None)
    return made


def as_key(t: Tracer, key: Any) -> Value:
    """A key of an existing dict."""
    return lift(t, key) if isinstance(key, KEY_TYPES) else Opaque(key, None)


def _set(t: Tracer, real: Any, source: Source | None) -> Value:
    if not all(type(v) in CONSTANT_TYPES or (isinstance(v, type) and isinstance(real, frozenset)) for v in real):
        return _opaque(t, real, source)
    if isinstance(real, set):
        t.guard("type", source, type(real).__name__)
        return ExistingSet(t, real, {v: lift(t, v) for v in real}, source)
    t.guard("elements", source, tuple(real), why="its elements were used")
    return SetValue({v: lift(t, v) for v in real}, type(real), source)


def _slice(t: Tracer, real: slice, source: Source | None) -> Value:
    value = lift(t, real)
    if not isinstance(value, SliceValue) or isinstance(t.maybe_constant(value), NotConstant):
        return _opaque(t, real, source)
    t.guard("equals", source, real, why="its value was used")
    return value


def _function(t: Tracer, real: types.FunctionType, source: Source | None) -> Value:
    root = source
    while root is not None and root.base is not None:
        root = root.base
    if root is not None and root.kind in ("local", "closure") and source is not None:
        t.guard("type", source, "function")
        t.guard("id", Source("attr", "__code__", source), None, why="this code was inlined")
    else:
        t.guard("id", source, None, why="this function was called or passed on")
    if isinstance(inner := real.__dict__.get("_torchdynamo_inline"), types.FunctionType):  # compiled by itself: part of this graph here
        return _function(t, inner, Source("attr", "_torchdynamo_inline", source) if source else None)
    return FunctionValue.existing(t, real, source)


def _method(t: Tracer, real: types.MethodType, source: Source | None) -> Value:
    if source is None:
        source = Source("constant", real)
    t.guard("type", source, "method")
    return MethodValue(t.wrap(real.__func__, Source("attr", "__func__", source)), t.wrap(real.__self__, Source("attr", "__self__", source)), source)


def _partial(t: Tracer, real: functools.partial[Any], source: Source | None) -> Value:
    source = source or Source("constant", real)
    t.guard("type", source, "partial")
    args, keywords = (t.wrap(getattr(real, n), Source("attr", n, source)) for n in ("args", "keywords"))
    pairs = keywords.pairs() if isinstance(keywords, ExistingDict) else []
    return PartialValue(t.wrap(real.func, Source("attr", "func", source)), list(args.iterate(t)), {t.constant(k): v for k, v in pairs}, source)


def _builtin(t: Tracer, real: Any, source: Source | None) -> Value:
    t.guard("id", source, None, why="this function was called or passed on")
    return BuiltinValue(real, source)


def _cached(t: Tracer, real: Any, source: Source | None) -> Value:
    t.guard("id", source, None, why="this function was called or passed on")
    return CachedFunction(real, source)


def _class(t: Tracer, real: type[Any], source: Source | None) -> Value:
    t.guard("id", source, None, why="this class was used")
    return ClassValue(real, source)


def _alias(t: Tracer, real: types.GenericAlias, source: Source | None) -> Value:
    """``list[int]``: its calls are calls of ``list``."""
    return t.wrap(real.__origin__, Source("attr", "__origin__", source) if source else None)


def _module(t: Tracer, real: types.ModuleType, source: Source | None) -> Value:
    t.guard("id", source, None, why="this module was used")
    return ModuleValue(real, source)


def _nn_module(t: Tracer, real: torch.nn.Module, source: Source | None) -> Value:
    source = source or Source("constant", real)
    t.guard("type", source, type(real).__name__, why="its class says what a call does")
    return ModuleInstance(real, source)


def _weak(t: Tracer, real: weakref.ref[Any], source: Source | None) -> Value:
    t.guard("type", source, "ref")
    return WeakReference(real, source or Source("constant", real))


def _opaque(t: Tracer, real: Any, source: Source | None) -> Value:
    t.guard("type", source, type(real).__name__)
    return Opaque(real, source)


def _object(t: Tracer, real: Any, source: Source | None) -> Value:
    """An instance of a Python class is looked into; one of a C type is opaque."""
    if issubclass(type(real), tuple) and (is_named(type(real)) or type(real).__module__ == "torch.return_types"):
        return _sequence(t, real, source)
    cls = type(real)
    plain = cls.__flags__ & (1 << 9) and not issubclass(cls, (dict, list, tuple, set, frozenset, str, int, float, bytes, type, types.ModuleType, BaseException))
    held = subclasses.base_of(cls) is not None and not isinstance(cls.__getattribute__, types.FunctionType)  # which guards would call
    if not plain and not held:
        return _opaque(t, real, source)
    source = source or Source("constant", real)
    t.guard("type", source, cls.__name__, why="its class says what its attributes mean")
    if held:
        return subclasses.existing(t, real, source)
    return EnumValue(cls, real, source) if issubclass(cls, enum.Enum) else ObjectValue(cls, real, source)


BY_TYPE: dict[type[Any], Wrapper] = {
    **{kind: _constant for kind in CONSTANT_TYPES},
    **{kind: _singleton for kind in (types.CodeType, torch.finfo, torch.iinfo)},
    **{kind: _sequence for kind in (tuple, torch.Size)},
    **{kind: _dict for kind in (dict, OrderedDict, defaultdict)},
    list: _list,
    deque: _deque,
    **{kind: _set for kind in (set, frozenset)},
    **{kind: _builtin for kind in BUILTIN_TYPES},
    functools._lru_cache_wrapper: _cached,
    int: _integer,
    slice: _slice,
    weakref.ref: _weak,
    types.GenericAlias: _alias,
    types.FunctionType: _function,
    types.MethodType: _method,
    functools.partial: _partial,
}
BY_INSTANCE: tuple[tuple[Any, Wrapper], ...] = (
    (torch.Tensor, _tensor),
    (torch.nn.Module, _nn_module),
    (torch.autocast, existing_autocast),
    (enum.Enum, _singleton),
    (type, _class),
    (types.ModuleType, _module),
    (OPS, _builtin),
)
