"""What every symbolic value is: a Python object that the interpreter can work with without having it.

A ``Value`` with a ``source`` existed before the frame: reading it installs guards, changing it is noted and made after the graph has run
(``effects.py``). A value without one was made inside the frame. The default of every operation is to refuse; a kind of value overrides
what it models.
PyTorch's counterpart: ``torch/_dynamo/variables/base.py``.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ir import Source

if TYPE_CHECKING:
    from ..tracer import Tracer

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]
Leaf = Callable[["Value"], Any]
Method = Callable[["Tracer", Any, Args, Kwargs], "Value"]


class NotConstant(Exception):
    """The value has no plain Python counterpart at capture time."""


class Raised(Exception):
    """The interpreted program raised ``exception`` (a Value)."""

    settled = False  # its context is that of the place where it was raised first

    def __init__(self, exception: Value) -> None:
        self.exception = exception
        exception.raised = True
        super().__init__(exception.describe())


class Value:
    """Base of all kinds. ``METHODS`` are the rows of methods that the kind models, by name."""

    source: Source | None = None
    raised = False  # of an exception: it has been under way, so it has a traceback
    CHANGES = False  # whether one that existed before the frame may be changed: it has a row in ``effects.py``, and is one value by identity
    METHODS: Mapping[str, Method] = {}

    def python_type(self) -> type[Any]:
        raise NotConstant

    def describe(self) -> str:
        try:
            return f"a {self.python_type().__name__}"
        except NotConstant:
            return f"a {type(self).__name__.removesuffix('Value').lower()}"

    def plain(self, leaf: Leaf) -> Any:
        """The value as plain Python data, with ``leaf(part)`` in place of each part that has no such form."""
        return leaf(self)

    def get(self, t: Tracer, name: str) -> Value:
        if name in self.METHODS:
            return BoundBuiltin(self, name)
        if name == "__class__":
            return t.lift(self.python_type())
        if self._lacks(name):
            raise Raised(t.exception(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'"))
        raise t.refuse("attribute", f"{name!r} of {self.describe()}")

    def _lacks(self, name: str) -> bool:
        """An object of Python's own without a ``__dict__`` has what its class has."""
        try:
            cls = self.python_type()
        except NotConstant:
            return False
        return cls.__dictoffset__ == 0 and cls.__module__ in ("builtins", "collections", "itertools") and self.lacks(name)

    def lacks(self, name: str) -> bool:
        """Is this an object of a class that has no method ``name``?"""
        try:
            cls = self.python_type()
        except NotConstant:
            return False
        return not any(name in c.__dict__ for c in cls.__mro__)

    def _without(self, t: Tracer, method: str, text: str, reason: str, detail: str) -> Exception:
        """A TypeError of the program where the object's class has no such method; a refusal where only the row is missing."""
        if self.lacks(method):
            return Raised(t.exception(TypeError, text.format(self.python_type().__name__)))
        return t.refuse(reason, f"{detail} {self.describe()}".strip())

    def set(self, t: Tracer, name: str, value: Value) -> None:
        raise t.refuse("attribute", f"setting {name!r} of {self.describe()}")

    def delete(self, t: Tracer, name: str) -> None:
        raise t.refuse("attribute", f"deleting {name!r} of {self.describe()}")

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise self._without(t, "__call__", "'{}' object is not callable", "unknown-callable", "")

    def item(self, t: Tracer, key: Value) -> Value:
        raise self._without(t, "__getitem__", "'{}' object is not subscriptable", "unknown-value", "subscript of")

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        raise self._without(t, "__setitem__", "'{}' object does not support item assignment", "unknown-value", "item assignment to")

    def delete_item(self, t: Tracer, key: Value) -> None:
        raise self._without(t, "__delitem__", "'{}' object doesn't support item deletion", "unknown-value", "item deletion of")

    def contains(self, t: Tracer, value: Value) -> bool:
        raise self._without(t, "__iter__", "argument of type '{}' is not iterable", "unknown-value", "'in' on")

    def iterate(self, t: Tracer) -> Iterator[Value]:
        raise self._without(t, "__iter__", "'{}' object is not iterable", "unknown-value", "iteration over")

    def length(self, t: Tracer) -> int:
        raise self._without(t, "__len__", "object of type '{}' has no len()", "unknown-value", "len() of")

    def truth(self, t: Tracer) -> bool:
        return True

    def changing(self, t: Tracer) -> None:
        """Called before a mutation: that of something that existed before the frame is made again after the graph has run."""
        if t.subgraphs:
            t.subgraphs[-1].changing(self)
        if self.source is not None:
            if not self.CHANGES:
                raise t.refuse("side-effect", f"{self.source.text()}, {self.describe()}")
            t.change(self)


class Null(Value):
    """The NULL that CPython pushes below a callable, or leaves in an unset local."""


NULL = Null()


class Constant(Value):
    """An immutable plain value: number, string, None, dtype, device, enum member, range."""

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value, self.source = value, source

    def python_type(self) -> type[Any]:
        return type(self.value)

    def describe(self) -> str:
        return f"{self.value!r}" if len(repr(self.value)) < 60 else super().describe()

    def plain(self, leaf: Leaf) -> Any:
        return self.value

    def get(self, t: Tracer, name: str) -> Value:
        if isinstance(self.value, enum.Enum) and not _is_builtins(type(self.value), name):
            from .objects import EnumValue

            return EnumValue(type(self.value), self.value).get(t, name)
        found = getattr(self.value, name, None)
        return PureMethod(found) if isinstance(found, PURE_METHODS) else t.fold(getattr, [self.value, name])

    def item(self, t: Tracer, key: Value) -> Value:
        from .containers import as_index

        return t.fold(lambda a, b: a[b], [self.value, as_index(t, key)])

    def contains(self, t: Tracer, value: Value) -> bool:
        return bool(t.constant(t.fold(lambda a, b: b in a, [self.value, t.constant(value)])))

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return iter([t.lift(v) for v in t.constant_items(self.value)])

    def length(self, t: Tracer) -> int:
        return int(t.constant(t.fold(len, [self.value])))

    def truth(self, t: Tracer) -> bool:
        return bool(self.value)


class Unread(Constant):
    """A constant that existed before the frame, by which nothing was decided yet: guarded by its type, and by its value once somebody asks for
    ``value``. One that is only passed on, kept or returned is read from its source at each call."""

    def __init__(self, t: Tracer, held: Any, source: Source) -> None:
        self.t, self.held, self.source, self.stack = t, held, source, t.stack()

    def __getattr__(self, name: str) -> Any:
        if name != "value":
            raise AttributeError(name)
        self.t.guard("equals", self.source, self.held, why="its value was used")
        self.value = self.held
        return self.held

    @property
    def read(self) -> bool:
        return "value" in self.__dict__

    def python_type(self) -> type[Any]:
        return type(self.held)


def _is_builtins(cls: type[Any], name: str) -> bool:
    """Is it ``str.upper`` or its like, of an enum whose members are strings or numbers?"""
    owner = next((c for c in cls.__mro__ if name in c.__dict__), object)
    return owner in (str, int, float, bytes)


NONE = Constant(None)


def is_none(value: Value | None) -> bool:
    """One that came from outside is another value than ``NONE``: it knows its source. What is unread is of another type, whatever its value."""
    return isinstance(value, Constant) and not isinstance(value, Unread) and value.value is None


PURE_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)


class PureMethod(Value):
    """A method of a constant, such as ``"-".join``: pure, so it is folded when its arguments are constants."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def python_type(self) -> type[Any]:
        return type(self.real)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        from .strings import call_method

        return call_method(t, self.real, args, kwargs)


ONE_KEY = frozenset({"pop", "setdefault", "remove", "discard"})  # methods that look a key up more than once here, and once in Python


class BoundBuiltin(Value):
    """A modelled method taken from its owner: ``items.append``."""

    def __init__(self, owner: Value, name: str) -> None:
        self.owner, self.name = owner, name

    def describe(self) -> str:
        return f"{self.name} of {self.owner.describe()}"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if self.name not in ONE_KEY:
            return self.owner.METHODS[self.name](t, self.owner, args, kwargs)
        before, t.keys = t.keys, {}
        try:
            return self.owner.METHODS[self.name](t, self.owner, args, kwargs)
        finally:
            t.keys = before


class Opaque(Value):
    """An existing object of a kind that is not modelled: it can be passed on, compared with None and returned, nothing else."""

    def __init__(self, real: Any, source: Source | None) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type[Any]:
        return type(self.real)

    def get(self, t: Tracer, name: str) -> Value:
        raise t.refuse(self._reason("attribute"), f"{name!r} of {self.describe()}")

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise t.refuse(self._reason("unknown-callable"), self.describe())

    def truth(self, t: Tracer) -> bool:
        raise t.refuse(self._reason("unknown-value"), f"truth of {self.describe()}")

    def _reason(self, reason: str) -> str:
        return "numpy" if type(self.real).__module__.partition(".")[0] == "numpy" else reason


class Lazy:
    """An existing object that the program has not looked at yet: no guards until ``force``."""

    def __init__(self, t: Tracer, real: Any, source: Source | None) -> None:
        self.t, self.real, self.source = t, real, source
        self.value: Value | None = None
        self.reads = 0

    def force(self) -> Value:
        self.reads += 1
        if self.value is None:
            self.value = self.t.wrap(self.real, self.source)
        return self.value


Slot = Value | Lazy


def force(slot: Slot) -> Value:
    return slot.force() if isinstance(slot, Lazy) else slot
