"""Text of values: ``str``, ``repr``, ``format`` and f-strings, and the methods of strings that take iterables.

In: values. Out: the text that Python makes of them. Always holds: the ``__str__``, ``__repr__`` and ``__format__`` of users' classes run in
the interpreter, in the order in which Python calls them; text that depends on an address or on the order of a set is refused.
PyTorch's counterpart: ``torch/_dynamo/variables/{constant,builtin}.py`` and ``FORMAT_VALUE`` in ``symbolic_convert.py``.
Left out: the text of tensors, which is their data.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .base import Args, Constant, Kwargs, NotConstant, Raised, Value
from .classes import ClassValue
from .containers import DictValue, SequenceValue, SetValue
from .lookup import bind, class_attribute, find_in_class, is_library_module
from .objects import EnumValue, ExceptionValue, ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer

RECURSIVE_REPR = dataclasses._recursive_repr(lambda self: "").__code__  # type: ignore[attr-defined]
BASE_EXCEPTION_TEXT = (BaseException.__str__, BaseException.__repr__, KeyError.__str__)
BRACKETS: dict[type[Any], tuple[str, str, str]] = {list: ("[", "]", "[...]"), tuple: ("(", ")", "(...)")}


def text_of(t: Tracer, value: Value, name: str) -> str:
    """``str(value)`` or ``repr(value)``; ``name`` is ``__str__`` or ``__repr__``."""
    if isinstance(value, Constant) and isinstance(value.value, enum.Enum) and _is_users(type(value.value), name):
        value = EnumValue(type(value.value), value.value)
    if isinstance(value, ExceptionValue):
        found = _own(t, value, name)
        return _exception_text(t, value, name) if found is None else found
    if isinstance(value, ObjectValue):
        found = _own(t, value, name)
        if found is None and name == "__str__":
            found = _own(t, value, "__repr__")
        if found is None:
            raise t.refuse("identity", f"the text of {value.describe()}")
        return found
    if isinstance(value, ClassValue):
        return repr(value.real)
    if isinstance(value, SequenceValue) and hasattr(value.cls, "_fields"):
        return str(t.constant(class_attribute(t, value, value.cls, name if _is_users(value.cls, name) else "__repr__").call(t, [], {})))
    known = t.maybe_constant(value, settle=True)
    if not isinstance(known, NotConstant) and not _unordered(value):
        return str(known) if name == "__str__" else repr(known)
    return _container_text(t, value)


def _is_users(cls: type[Any], name: str) -> bool:
    """Is the method one of a user's class, in Python?"""
    found = find_in_class(cls, name)
    return found is not None and isinstance(found[1], types.FunctionType) and not is_library_module(found[0].__module__)


def _own(t: Tracer, value: ObjectValue, name: str) -> str | None:
    """What the class's own method gives; None where it is ``object``'s or a built-in exception's."""
    found = find_in_class(value.cls, name)
    if (
        found is None
        or found[1] is getattr(object, name)
        or found[1] in BASE_EXCEPTION_TEXT
        or (found[0].__module__ == "builtins" and isinstance(value, ExceptionValue))
    ):
        return None
    owner, method = found
    if isinstance(method, types.FunctionType) and method.__code__ is RECURSIVE_REPR:
        method = method.__wrapped__  # type: ignore[attr-defined]  # a dataclass's: what wraps it looks only for an object inside itself
        if any(frame.code is method.__code__ and next(iter(frame.locals.values()), None) is value for frame in t.frames):
            return "..."
    result = bind(t, value, value.cls, owner, name, method).call(t, [], {})
    text = t.constant(result)
    if not isinstance(text, str):
        raise Raised(t.exception(TypeError, f"{name} returned non-string (type {type(text).__name__})"))
    return text


def _exception_text(t: Tracer, value: ExceptionValue, name: str) -> str:
    """As the methods of the built-in exceptions; those that have fields of their own are refused."""
    builtin = next(c for c in value.cls.__mro__ if c.__module__ == "builtins")
    fields = find_in_class(value.cls, name)
    assert fields is not None
    if fields[0] not in (BaseException, KeyError, AttributeError, NameError) and fields[1] not in BASE_EXCEPTION_TEXT:
        raise t.refuse("exception", f"the text of a {builtin.__name__}")
    parts = [text_of(t, a, "__repr__") for a in value.args]
    if name == "__repr__":
        return f"{value.cls.__name__}({', '.join(parts)})"
    if len(parts) == 1:
        return parts[0] if issubclass(value.cls, KeyError) else text_of(t, value.args[0], "__str__")
    return f"({', '.join(parts)})" if parts else ""


def _unordered(value: Value) -> bool:
    """Does a set of several elements take part? The order of its text is not fixed."""
    if isinstance(value, SetValue):
        return len(value.entries) > 1
    if isinstance(value, DictValue):
        return any(_unordered(part) for pair in value.pairs() for part in pair)
    return isinstance(value, SequenceValue) and any(map(_unordered, value.values()))


def _container_text(t: Tracer, value: Value) -> str:
    if isinstance(value, SequenceValue) and value.cls in BRACKETS:
        first, last, _ = BRACKETS[value.cls]
        parts = [text_of(t, v, "__repr__") for v in value.values()]
        return f"{first}{', '.join(parts)}{',' if value.cls is tuple and len(parts) == 1 else ''}{last}"
    if isinstance(value, DictValue) and value.cls is dict:
        return "{" + ", ".join(f"{text_of(t, k, '__repr__')}: {text_of(t, v, '__repr__')}" for k, v in value.pairs()) + "}"
    if isinstance(value, SetValue):
        raise t.refuse("unknown-value", "the text of a set, whose order is not fixed")
    return repr(t.constant(value))


def format_value(t: Tracer, value: Value, convert: Callable[[Any], Any] | None, spec: str = "") -> str:
    """What an f-string makes of a value: ``convert`` is str, repr, ascii or None, then ``format`` with ``spec``."""
    if convert is None:
        return _formatted(t, value, spec)
    text = text_of(t, value, "__str__" if convert is str else "__repr__")
    return format(text.encode("ascii", "backslashreplace").decode() if convert is ascii else text, spec)


def _formatted(t: Tracer, value: Value, spec: str) -> str:
    if isinstance(value, (ObjectValue, SequenceValue, DictValue)):
        found = find_in_class(value.python_type(), "__format__")
        if isinstance(value, ObjectValue) and found is not None and isinstance(found[1], types.FunctionType):
            return str(t.constant(bind(t, value, value.cls, found[0], "__format__", found[1]).call(t, [Constant(spec)], {})))
        if spec:
            raise Raised(t.exception(TypeError, f"unsupported format string passed to {value.python_type().__name__}.__format__"))
        return text_of(t, value, "__str__")
    return str(t.constant(t.fold(format, [t.constant(value), spec])))


def to_text(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``str(...)``."""
    if len(args) > 1 or kwargs:
        return t.fold(str, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
    return Constant(text_of(t, args[0], "__str__") if args else "")


def to_repr(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``repr(value)``."""
    return Constant(text_of(t, args[0], "__repr__"))


def to_ascii(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``ascii(value)``."""
    return Constant(format_value(t, args[0], ascii))


def to_format(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``format(value, spec)``."""
    return Constant(format_value(t, args[0], None, str(t.constant(args[1])) if len(args) > 1 else ""))


# methods of strings


class Shown:
    """Stands for a value that has no plain form while ``str.format`` and ``%`` ask for its text."""

    def __init__(self, t: Tracer, value: Value) -> None:
        object.__setattr__(self, "value", (t, value))

    def __getattribute__(self, name: str) -> Any:
        raise _inside(self)[0].refuse("attribute", f"{name!r} in a format string")

    def __str__(self) -> str:
        return text_of(*_inside(self), "__str__")

    def __repr__(self) -> str:
        return text_of(*_inside(self), "__repr__")

    def __format__(self, spec: str) -> str:
        return format_value(*_inside(self), None, spec)


class ShownPart(Shown):
    """One that ``str.format`` may ask for an item."""

    def __getitem__(self, key: Any) -> Any:
        raise _inside(self)[0].refuse("unknown-value", "a subscript in a format string")


def _inside(stand_in: Shown) -> tuple[Tracer, Value]:
    return object.__getattribute__(stand_in, "value")


def shown(t: Tracer, value: Value, cls: type[Shown] = ShownPart) -> Any:
    """The plain value, or something that has its text."""
    known = t.maybe_constant(value, settle=True)
    if not isinstance(known, NotConstant) and not _unordered(value):
        return known
    if isinstance(value, SequenceValue) and issubclass(value.cls, tuple):
        return tuple(shown(t, v, cls) for v in value.values())
    if isinstance(value, DictValue) and value.cls is dict:
        return {t.constant(k): shown(t, v, cls) for k, v in value.pairs()}
    if isinstance(value, (ObjectValue, SequenceValue, DictValue)):
        return cls(t, value)
    return t.constant(value)


def join(t: Tracer, method: Callable[..., Any], args: Args) -> Value:
    """``sep.join(iterable)``, whose parts must be known."""
    return t.fold(method, [[t.constant(v) for v in args[0].iterate(t)]])


def percent(t: Tracer, template: Value, value: Value) -> Value:
    """``template % value``."""
    if isinstance(value, ObjectValue) and not value.lacks("__getitem__"):
        raise t.refuse("unknown-value", f"{value.describe()} as the values of a format")
    return t.fold(lambda a, b: a % b, [t.constant(template), shown(t, value, Shown)])


def call_method(t: Tracer, method: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """A method of a constant."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if isinstance(owner, (str, bytes)) and name == "join" and len(args) == 1 and not kwargs:
        return join(t, method, args)
    if isinstance(owner, str) and name in ("format", "format_map"):
        return t.fold(method, [shown(t, a) for a in args], {k: shown(t, v) for k, v in kwargs.items()})
    return t.fold(method, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
