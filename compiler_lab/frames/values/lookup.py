"""Attribute lookup through classes as Python does it, on values: the walk over the MRO, descriptors, and the guards for both.

In: a class and a name. Out: what the lookup gives, bound as its descriptor says. Always holds: descriptors run only when they are Python
functions (inlined) or known; what was read is guarded: the identity of a class attribute of a user's class, the absence of one.
PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py``.
"""

from __future__ import annotations

import collections
import enum
import functools
import sys
import types
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

import torch

from ...core.provenance import is_library
from ..ir import Source
from ..sources import ABSENT
from .base import Raised, Value

if TYPE_CHECKING:
    from ..tracer import Tracer

SLOT_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)
C_METHODS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)
OTHER_METHODS = ("__new__", "__init__", "__doc__", "__repr__", "__str__", "__format__", "__getnewargs__", "__class__")
TUPLE_METHODS = ("__getattr__", *(n for n in dir(tuple) if n not in OTHER_METHODS))
TUPLE_FIELD = type(collections.namedtuple("Pair", "left")("").__class__.left)  # type: ignore[attr-defined]
KNOWN_METACLASSES = (type, ABCMeta, enum.EnumMeta, type(torch.nn.Parameter), type(torch.Tensor))


@functools.cache
def is_library_module(name: str) -> bool:
    """Modules that nobody patches while a program runs: torch, the standard library, builtins."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return name.partition(".")[0] == "torch" or (module is not None and name != "__main__" and (file is None or is_library(file)))


def find_in_class(cls: type[Any], name: str) -> tuple[type[Any], Any] | None:
    """(the class that has it, the raw attribute): Python's walk over the MRO, without calling descriptors."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base, base.__dict__[name]
    return None


@functools.cache
def is_named(cls: type[Any]) -> bool:
    """A named tuple that reads, iterates and compares as tuples do: whose class has methods beside those, but overrides none."""
    fields = getattr(cls, "_fields", None)
    if not issubclass(cls, tuple) or not isinstance(fields, tuple):
        return False
    as_tuple = all(found[0] in (tuple, object) for name in TUPLE_METHODS if (found := find_in_class(cls, name)) is not None)
    return as_tuple and all(isinstance(getattr(cls, name, None), TUPLE_FIELD) for name in fields)


def lookup(t: Tracer, cls: type[Any], name: str) -> tuple[type[Any], Any] | None:
    """``find_in_class`` for the program: guards that no class of the user's in front of the one that has ``name`` gains it later.

    What a user's class itself has is guarded where it is read (``attribute_source``)."""
    for base in cls.__mro__:
        if name in base.__dict__:
            if is_library_module(base.__module__):
                t.trust(base, name, base.__dict__[name])
            return base, base.__dict__[name]
        if not is_library_module(base.__module__):
            t.guard("absent", Source("constant", base), name, why="another class was looked at in its place")
        else:
            t.trust(base, name, ABSENT)
    return None


def attribute_source(cls: type[Any], owner: type[Any], name: str, attribute: Any) -> Source | None:
    """How to reach, from ``cls``, the attribute that ``owner`` defines; None for what libraries define, which is taken as fixed."""
    if is_library_module(owner.__module__) and not isinstance(attribute, (int, float, str, list, dict, set)):
        return None
    if hasattr(type(attribute), "__get__") and not isinstance(attribute, (types.FunctionType, property, staticmethod, classmethod, *C_METHODS, *SLOT_TYPES)):
        return Source("dict_item", name, Source("attr", "__dict__", Source("constant", owner)))  # getattr would run the descriptor
    found = find_in_class(cls, name)  # super() sees another one than the class does
    return Source("attr", name, Source("constant", cls if found is not None and found[0] is owner else owner))


def has_data_descriptor(attribute: Any) -> bool:
    return hasattr(type(attribute), "__set__") or isinstance(attribute, property)


def bind(t: Tracer, obj: Value, cls: type[Any], owner: type[Any], name: str, attribute: Any) -> Value:
    """What ``obj.name`` gives when the class lookup found ``attribute`` in ``owner``."""
    from .functions import MethodValue
    from .objects import ObjectValue

    source = attribute_source(cls, owner, name, attribute)
    if t.classes and (written := class_written(t, cls, name)) is not None:
        return written
    if isinstance(attribute, (types.FunctionType, *C_METHODS)):
        return MethodValue(t.wrap(attribute, source), obj)
    if isinstance(attribute, staticmethod):
        return t.wrap(attribute.__func__, source)
    if isinstance(attribute, classmethod):
        return MethodValue(t.wrap(attribute.__func__, Source("attr", "__func__", source) if source else None), t.wrap(cls, None))
    if isinstance(attribute, property) and isinstance(attribute.fget, types.FunctionType):
        return t.wrap(attribute.fget, Source("attr", "fget", source) if source else None).call(t, [obj], {})
    if isinstance(attribute, SLOT_TYPES) and isinstance(obj, ObjectValue):
        return obj.slot(t, name, attribute)
    if isinstance(attribute, functools.cached_property) and isinstance(obj, ObjectValue):
        value = t.wrap(attribute.func, Source("attr", "func", source) if source else None).call(t, [obj], {})
        obj.store(t, name, value)
        return value
    if hasattr(type(attribute), "__get__"):
        if isinstance(method := getattr(type(attribute), "__get__"), types.FunctionType):  # noqa: B009 - a descriptor's class, not the descriptor
            return MethodValue(t.wrap(method, None), t.wrap(attribute, source)).call(t, [obj, t.wrap(cls, None)], {})
        raise t.refuse("attribute", f"{name!r} of {obj.describe()} is a {type(attribute).__name__}")
    return t.wrap(attribute, source)


def class_written(t: Tracer, cls: type[Any], name: str) -> Value | None:
    """What the frame has set as attribute ``name`` of ``cls`` or of the class that it inherits it from."""
    passed: list[type[Any]] = []
    for base in cls.__mro__:
        if name in (written := t.classes.get(base, {})):
            for other in passed:
                t.guard("absent", Source("constant", other), name, why="a class that it inherits from was looked at in its place")
            return written[name]
        if name in base.__dict__:
            return None
        passed.append(base)
    return None


def class_attribute(t: Tracer, obj: Value, cls: type[Any], name: str) -> Value:
    """The class half of attribute lookup alone; AttributeError where there is none."""
    found = lookup(t, cls, name)
    if found is None:
        raise Raised(t.exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'"))
    return bind(t, obj, cls, found[0], name, found[1])
