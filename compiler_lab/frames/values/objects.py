"""Instances, exceptions, enum members and ``super``: attributes and operators as Python looks them up, on values.

In: an instance with attributes, and a name. Out: what the lookup gives (``lookup.py`` walks the classes). Always holds: the type of an
instance is guarded, and the absence of an attribute that was looked for. What is set on an existing object is noted, read back by
everything that asks later, and made after the graph has run.
PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py``.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Raised, Value
from .classes import ClassValue
from .lookup import attribute_source, bind, class_written, find_in_class, has_data_descriptor, is_library_module, lookup

if TYPE_CHECKING:
    from ..tracer import Tracer

MISSING = {
    "__getitem__": "'{}' object is not subscriptable",
    "__setitem__": "'{}' object does not support item assignment",
    "__delitem__": "'{}' object doesn't support item deletion",
    "__iter__": "'{}' object is not iterable",
    "__len__": "object of type '{}' has no len()",
}


class ObjectValue(Value):
    """An instance of a Python class: an existing one (``real``, with a source) or one made in the frame (``attributes``)."""

    CHANGES = True

    def __init__(self, cls: type[Any], real: Any = None, source: Source | None = None) -> None:
        self.cls, self.real, self.source = cls, real, source
        self.attributes: dict[str, Value] = {}  # read or set so far
        self.written: dict[str, Value] = {}  # set on an existing object, in the order in which new ones came
        self.removed: dict[str, None] = {}  # attributes of an existing object that were deleted at some time
        self.space: Value | None = None

    def python_type(self) -> type[Any]:
        return self.cls

    def instance_attribute(self, t: Tracer, name: str) -> Value | None:
        """From the instance's own ``__dict__``, or None."""
        if name in self.attributes:
            return self.attributes[name]
        if self.real is None or name in self.removed or name not in getattr(self.real, "__dict__", ()):
            return None
        self.attributes[name] = t.wrap(self.real.__dict__[name], self.member(name))
        return self.attributes[name]

    def slot(self, t: Tracer, name: str, attribute: Any) -> Value:
        """A ``__slots__`` member, or one of the few C attributes every object has."""
        if name == "__class__":
            return t.wrap(self.cls, None)
        if name == "__dict__":
            return self.namespace(t)
        if not isinstance(attribute, types.MemberDescriptorType):
            raise t.refuse("attribute", f"{name!r} of {self.describe()}")
        if self.real is not None and name not in self.attributes and name not in self.removed and hasattr(self.real, name):
            self.attributes[name] = t.wrap(getattr(self.real, name), self._member(name))
        if name not in self.attributes:
            raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))
        return self.attributes[name]

    def namespace(self, t: Tracer) -> Value:
        """The ``__dict__``, which is the same thing as the attributes."""
        from .namespace import NamespaceValue

        if self.space is None:
            if self.real is not None and id(self.real.__dict__) in t.known:
                raise t.refuse("attribute", f"the __dict__ of {self.describe()}, which was reached as a dict of its own before")
            self.space = NamespaceValue(t, self, self._member("__dict__"))
            if self.real is not None:
                t.known[id(self.real.__dict__)] = self.space
        return self.space

    def store(self, t: Tracer, name: str, value: Value) -> None:
        """Set an attribute, past every descriptor."""
        self.changing(t)
        self.attributes[name] = value
        if self.real is not None:
            self.written[name] = value

    def remove(self, t: Tracer, name: str) -> bool:
        """Delete an attribute, past every descriptor; False where there is none."""
        held = self.real is not None and name not in self.removed and name in _own_names(self.real)
        there = held or name in self.attributes
        if self.real is not None and name not in self.removed:  # even if the frame has set it: what is to be deleted depends on it
            if not hasattr(self.real, "__dict__") and held:
                t.wrap(getattr(self.real, name), self._member(name))  # a slot: that it can be read is what is guarded
            elif not hasattr(self.real, "__dict__"):
                t.guard("no_attr", self.source, name, why="the attribute is deleted")
            else:
                t.guard("has_key" if held else "no_key", self._member("__dict__"), name, why="the attribute is deleted")
        if there:
            self.changing(t)
            self.attributes.pop(name, None)
            self.written.pop(name, None)
            if self.real is not None and name in _own_names(self.real):
                self.removed[name] = None
        return there

    def hidden(self, name: str) -> bool:
        """Whether a data descriptor of the class stands before what the ``__dict__`` holds under this name."""
        found = find_in_class(self.cls, name)
        return found is not None and has_data_descriptor(found[1]) and not isinstance(found[1], types.MemberDescriptorType)

    def member(self, name: str) -> Source | None:
        """How to read what the ``__dict__`` holds."""
        if self.source is not None and self.hidden(name):
            return Source("dict_item", name, Source("attr", "__dict__", self.source))
        return self._member(name)

    def _member(self, name: str) -> Source | None:
        """From the instance's own ``__dict__``, past a ``__getattribute__`` of its class."""
        if self.source is None:
            return None
        if name != "__dict__" and self._getattribute() is not None:
            return Source("dict_item", name, Source("attr", "__dict__", self.source))
        return Source("attr", name, self.source)

    def _getattribute(self) -> tuple[type[Any], Any] | None:
        """The class's own way of reading attributes, if it has one."""
        own = find_in_class(self.cls, "__getattribute__")
        return None if own is None or own[0] is object or issubclass(self.cls, BaseException) else own

    def get(self, t: Tracer, name: str) -> Value:
        own = lookup(t, self.cls, "__getattribute__")
        if own is None or self._getattribute() is None:
            return self.default_get(t, name)
        if not isinstance(own[1], types.FunctionType):
            raise t.refuse("attribute", f"{self.cls.__name__} defines __getattribute__")
        try:
            return bind(t, self, self.cls, own[0], "__getattribute__", own[1]).call(t, [Constant(name)], {})
        except Raised as raised:
            hook = lookup(t, self.cls, "__getattr__")
            if hook is None or not isinstance(hook[1], types.FunctionType) or not issubclass(raised.exception.python_type(), AttributeError):
                raise
            return bind(t, self, self.cls, hook[0], "__getattr__", hook[1]).call(t, [Constant(name)], {})

    def default_get(self, t: Tracer, name: str) -> Value:
        """``object.__getattribute__``, then ``__getattr__``, which ``get`` sees to where the class has a ``__getattribute__`` of its own."""
        found = lookup(t, self.cls, name)
        if found is not None and has_data_descriptor(found[1]):
            return bind(t, self, self.cls, found[0], name, found[1])
        value = self.instance_attribute(t, name)
        if value is not None:
            return value
        if t.classes and (written := class_written(t, self.cls, name)) is not None:
            return written
        if found is not None:
            self.guard_no_key(t, name)
            return bind(t, self, self.cls, found[0], name, found[1])
        if self._getattribute() is None:
            return self.missing(t, name)
        self.guard_no_key(t, name)
        raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))

    def guard_no_key(self, t: Tracer, name: str) -> None:
        """The instance itself has no such attribute, and must not gain it."""
        if self.source is not None and name not in self.removed and hasattr(self.real, "__dict__"):
            t.guard("no_key", self._member("__dict__"), name, why="what its class says was used")

    def missing(self, t: Tracer, name: str) -> Value:
        hook = lookup(t, self.cls, "__getattr__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            self.guard_no_key(t, name)
            return bind(t, self, self.cls, hook[0], "__getattr__", hook[1]).call(t, [Constant(name)], {})
        if name not in self.removed:
            t.guard("no_attr", self.source, name, why="the program met its absence")
        raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))

    def set(self, t: Tracer, name: str, value: Value) -> None:
        hook = lookup(t, self.cls, "__setattr__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            bind(t, self, self.cls, hook[0], "__setattr__", hook[1]).call(t, [Constant(name), value], {})
            return
        self.default_set(t, name, value)

    def default_set(self, t: Tracer, name: str, value: Value) -> None:
        """``object.__setattr__``."""
        if not self._descriptor(t, name, "__set__", "fset", "setter", [value]):
            self.store(t, name, value)

    def _descriptor(self, t: Tracer, name: str, method: str, function: str, word: str, args: list[Value]) -> bool:
        """Let a data descriptor of the class set or delete; False where there is none, or it is a slot."""
        found = lookup(t, self.cls, name)
        if found is None or not (isinstance(found[1], property) or hasattr(type(found[1]), "__set__") or hasattr(type(found[1]), "__delete__")):
            if not self.cls.__dictoffset__:
                raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))
            return False
        owner, attribute = found
        if isinstance(attribute, types.MemberDescriptorType):
            return False
        source = attribute_source(self.cls, owner, name, attribute)
        if isinstance(attribute, property):
            if not isinstance(getattr(attribute, function), types.FunctionType):
                raise Raised(t.exception(AttributeError, f"property '{name}' of '{self.cls.__name__}' object has no {word}"))
            t.wrap(getattr(attribute, function), Source("attr", function, source) if source else None).call(t, [self, *args], {})
            return True
        hook = getattr(type(attribute), method, None)
        if not isinstance(hook, types.FunctionType):
            raise t.refuse("attribute", f"setting {name!r} of {self.describe()}")
        t.wrap(hook, None).call(t, [t.wrap(attribute, source), self, *args], {})
        return True

    def delete(self, t: Tracer, name: str) -> None:
        hook = lookup(t, self.cls, "__delattr__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            bind(t, self, self.cls, hook[0], "__delattr__", hook[1]).call(t, [Constant(name)], {})
            return
        self.default_delete(t, name)

    def default_delete(self, t: Tracer, name: str) -> None:
        """``object.__delattr__``."""
        if not self._descriptor(t, name, "__delete__", "fdel", "deleter", []) and not self.remove(t, name):
            found = find_in_class(self.cls, name)
            slot = found is not None and isinstance(found[1], types.MemberDescriptorType)
            raise Raised(t.exception(AttributeError, name if slot else f"'{self.cls.__name__}' object has no attribute '{name}'"))

    def dunder(self, t: Tracer, name: str, *args: Value) -> Value | None:
        """``type(self).name(self, *args)``, or None where the class has no such method."""
        found = lookup(t, self.cls, name)
        if found is None or found[1] is None:
            return None
        return bind(t, self, self.cls, found[0], name, found[1]).call(t, list(args), {})

    def default_dunder(self, t: Tracer, name: str, *args: Value) -> Value | None:
        """``dunder``, but None where the class only has what ``object`` has."""
        found = lookup(t, self.cls, name)
        return None if found is None or found[0] in (object, BaseException) else self.dunder(t, name, *args)

    def _need(self, t: Tracer, name: str, *args: Value) -> Value:
        found = self.dunder(t, name, *args)
        if found is None:
            raise Raised(t.exception(TypeError, MISSING[name].format(self.cls.__name__)))
        return found

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = lookup(t, self.cls, "__call__")
        if found is None:
            raise Raised(t.exception(TypeError, f"'{self.cls.__name__}' object is not callable"))
        return bind(t, self, self.cls, found[0], "__call__", found[1]).call(t, args, kwargs)

    def item(self, t: Tracer, key: Value) -> Value:
        return self._need(t, "__getitem__", key)

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        self._need(t, "__setitem__", key, value)

    def delete_item(self, t: Tracer, key: Value) -> None:
        self._need(t, "__delitem__", key)

    def contains(self, t: Tracer, value: Value) -> bool:
        found = self.dunder(t, "__contains__", value)
        if found is not None:
            return found.truth(t)
        from .containers import same_or_equal

        if find_in_class(self.cls, "__iter__") is None and find_in_class(self.cls, "__getitem__") is None:
            raise Raised(t.exception(TypeError, f"argument of type '{self.cls.__name__}' is not iterable"))
        return any(same_or_equal(t, v, value) for v in self.iterate(t))

    def iterate(self, t: Tracer) -> Iterator[Value]:
        if find_in_class(self.cls, "__iter__") is None and find_in_class(self.cls, "__getitem__") is not None:
            return self._items(t)
        found = self._need(t, "__iter__")
        return self._steps(t, found) if found is self or isinstance(found, ObjectValue) else found.iterate(t)

    def _items(self, t: Tracer) -> Iterator[Value]:
        """The old way: from item 0 to the first IndexError."""
        for at in itertools.count():
            try:
                yield self.item(t, Constant(at))
            except Raised as raised:
                if isinstance(raised.exception, ExceptionValue) and issubclass(raised.exception.cls, IndexError):
                    return
                raise

    def _steps(self, t: Tracer, iterator: Value) -> Iterator[Value]:
        while True:
            try:
                yield iterator.get(t, "__next__").call(t, [], {})
            except Raised as raised:
                if isinstance(raised.exception, ExceptionValue) and issubclass(raised.exception.cls, StopIteration):
                    return
                raise

    def length(self, t: Tracer) -> int:
        return self._checked(t, len, "__len__", self._need(t, "__len__"))

    def truth(self, t: Tracer) -> bool:
        if (found := self.dunder(t, "__bool__")) is not None:
            return self._checked(t, bool, "__bool__", found)
        found = self.dunder(t, "__len__")
        return True if found is None else self._checked(t, len, "__len__", found) > 0

    def _checked(self, t: Tracer, function: Any, method: str, found: Value) -> Any:
        """What ``function`` makes of what ``method`` has returned, which may be nothing that it takes."""
        from .containers import as_index

        answer = t.constant(found) if method == "__bool__" else as_index(t, found)
        return t.constant(t.fold(function, [type("object", (), {method: lambda _: answer})()]))


def _own_names(real: Any) -> set[str]:
    """The attributes that an object holds itself: in its ``__dict__`` and its slots."""
    slots = {n for c in type(real).__mro__ for n, a in c.__dict__.items() if isinstance(a, types.MemberDescriptorType) and hasattr(real, n)}
    return slots | set(getattr(real, "__dict__", ()))


class ExceptionValue(ObjectValue):
    """An exception that the program made or met."""

    def __init__(self, cls: type[BaseException], args: Args) -> None:
        super().__init__(cls)
        self.args = list(args)
        self.chain: dict[str, Value] = {}  # context and cause, once it has been raised

    def default_get(self, t: Tracer, name: str) -> Value:
        if name == "args":
            from .containers import SequenceValue

            return SequenceValue(list(self.args), tuple)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else NONE
        if name in exceptions.CHAIN:
            return exceptions.chained(self, name)
        if name in ("with_traceback", "add_note"):
            raise t.refuse("exception", name)
        return self.attributes[name] if name in self.attributes else super().default_get(t, name)

    def default_set(self, t: Tracer, name: str, value: Value) -> None:
        if name == "__traceback__" and isinstance(value, exceptions.Traceback):
            return  # contextlib puts back the one it was raised with
        if name in (*exceptions.CHAIN, "args") or find_in_class(self.cls, name) is not None:
            raise t.refuse("exception", f"setting {name!r} of {self.describe()}")
        super().default_set(t, name, value)


class EnumValue(ObjectValue):
    """An enum member, when its methods or properties are looked at."""

    def instance_attribute(self, t: Tracer, name: str) -> Value | None:
        return t.lift(self.real.__dict__[name]) if name in self.real.__dict__ else None

    def store(self, t: Tracer, name: str, value: Value) -> None:
        raise t.refuse("side-effect", f"setting {name!r} of an enum member")

    def default_get(self, t: Tracer, name: str) -> Value:
        return t.lift(getattr(self.real, name)) if name in ("name", "value") else super().default_get(t, name)


class SuperValue(Value):
    """``super()``: lookup behind ``cls`` in the MRO of ``obj``'s class."""

    def __init__(self, cls: type[Any], obj: Value) -> None:
        self.cls, self.obj = cls, obj

    def get(self, t: Tracer, name: str) -> Value:
        start = self.obj.real if isinstance(self.obj, ClassValue) else self.obj.python_type()
        mro = start.__mro__
        for base in mro[mro.index(self.cls) + 1 :]:
            if name in base.__dict__:
                attribute = base.__dict__[name]
                if isinstance(attribute, types.BuiltinFunctionType) and name == "__new__":
                    return t.wrap(attribute, None)
                if isinstance(attribute, types.FunctionType) and isinstance(self.obj, ClassValue):
                    return t.wrap(attribute, attribute_source(base, base, name, attribute))
                return bind(t, self.obj, start, base, name, attribute)
            if not is_library_module(base.__module__):
                t.guard("absent", Source("constant", base), name, why="another class was looked at in its place")
        raise Raised(t.exception(AttributeError, f"'super' object has no attribute '{name}'"))


from . import exceptions  # noqa: E402 - it needs the classes above
