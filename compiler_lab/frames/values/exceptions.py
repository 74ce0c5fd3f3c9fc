"""Exceptions on their way: their context and cause, and the errors of calls whose arguments do not fit.

In: an exception that is raised. Out: the same with ``__context__`` and ``__cause__`` as Python sets them. Always holds: an exception that has
been raised has a traceback, which is Python's alone: nothing reads it here. PyTorch's counterpart: ``ExceptionVals`` and
``_raise_exception_variable`` in ``torch/_dynamo``. Left out: exception groups, tracebacks.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .base import NONE, Args, Constant, Kwargs, Raised, Value, is_none
from .classes import ClassValue
from .objects import ExceptionValue

if TYPE_CHECKING:
    from ..tracer import Tracer
    from .functions import FunctionValue

CHAIN = ("__context__", "__cause__", "__suppress_context__", "__traceback__")
FIELDS = (OSError, ImportError, SyntaxError, UnicodeError, SystemExit, StopIteration, BaseExceptionGroup)  # their constructors do more than keep the arguments


class Traceback(Value):
    """Where an exception came from: nothing looks into it."""


def chained(error: ExceptionValue, name: str) -> Value:
    """``error.__context__`` and its like."""
    return error.chain.get(name) or (Constant(False) if name == "__suppress_context__" else Traceback() if name == "__traceback__" else NONE)


def set_context(t: Tracer, error: Value) -> None:
    """An exception raised while another is handled has it as context; a cycle is cut, as CPython cuts it."""
    handled = t.exceptions[-1] if t.exceptions else None
    if handled is None or handled is error or not isinstance(error, ExceptionValue):
        return
    link = handled
    while isinstance(link, ExceptionValue) and isinstance(after := link.chain.get("__context__"), ExceptionValue):
        if after is error:
            del link.chain["__context__"]
            break
        link = after
    error.chain["__context__"] = handled


def made(t: Tracer, value: Value) -> ExceptionValue:
    """What ``raise value`` raises."""
    if isinstance(value, ClassValue) and issubclass(value.real, BaseException):
        value = value.call(t, [], {})
    if isinstance(value, ExceptionValue):
        return value
    if value.source is not None or not hasattr(value, "cls"):
        raise t.refuse("exception", f"raising {value.describe()}")
    raise Raised(t.exception(TypeError, "exceptions must derive from BaseException"))


def raise_from(t: Tracer, error: ExceptionValue, cause: Value) -> None:
    """``raise error from cause``."""
    error.chain["__cause__"] = NONE if is_none(cause) else made(t, cause)
    error.chain["__suppress_context__"] = Constant(True)


def initialize(t: Tracer, error: ExceptionValue, owner: type[Any], args: Args, kwargs: Kwargs) -> Value:
    """``Exception.__init__(error, ...)``."""
    if kwargs or issubclass(owner, FIELDS):
        raise t.refuse("exception", f"{owner.__name__}.__init__ of {error.describe()}")
    error.args = list(args)
    return NONE


def misfit(t: Tracer, f: FunctionValue, args: Args, kwargs: Kwargs) -> Exception:
    """The TypeError of a call whose arguments do not fit: Python itself words it, for a function with the same signature."""
    code = f.code
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    if not all(n.isidentifier() for n in names):
        return t.refuse("bad-call", f.name)
    positional, only = names[: code.co_argcount], names[code.co_argcount :]
    first = code.co_argcount - len(f.defaults)
    parts = [n + "=None" * (i >= first) for i, n in enumerate(positional)]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    if code.co_flags & 0x04:
        parts.append("*_rest")
    elif only:
        parts.append("*")
    parts += [n + "=None" * (n in f.kwdefaults) for n in only] + ["**_more"] * bool(code.co_flags & 0x08)
    space: dict[str, Any] = {}
    exec(f"def stand_in({', '.join(parts)}): pass", space)
    stand_in: types.FunctionType = space["stand_in"]
    stand_in.__qualname__ = code.co_qualname if f.real is None else f.real.__qualname__
    try:
        stand_in(*[None] * len(args), **dict.fromkeys(kwargs))
    except TypeError as error:
        return Raised(t.exception(TypeError, str(error)))
    return t.refuse("bad-call", f.name)
