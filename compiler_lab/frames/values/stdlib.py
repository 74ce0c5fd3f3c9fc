"""The standard library's tools that are written in C, on values: the rest of ``itertools``, ``operator`` and ``functools``.

In: values. Out: what the tool gives. Always holds: what is lazy in Python is lazy here and calls the user's functions in the same order;
a use that no row knows is refused. PyTorch's counterpart: ``torch/_dynamo/polyfills/{itertools,operator,functools}.py``.
Left out: ``functools.lru_cache``, whose memory outlives the frame, but of functions that are said to be constant.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir import Source
from . import copying
from .base import NONE, Args, Constant, Kwargs, Raised, Value, is_none
from .containers import SequenceValue, same_or_equal
from .exceptions import Traceback
from .functions import FunctionValue
from .iterators import make, tuples
from .operators import Ordered

if TYPE_CHECKING:
    from ..tracer import Tracer

Handler = Callable[["Tracer", Args, Kwargs], Value]
DISPATCHER = functools.singledispatch(lambda value: value).__code__  # type: ignore[attr-defined]

# itertools


def _take_while(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make(itertools.takewhile(lambda v: args[0].call(t, [v], {}).truth(t), args[1].iterate(t)), itertools.takewhile)


def _drop_while(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make(itertools.dropwhile(lambda v: args[0].call(t, [v], {}).truth(t), args[1].iterate(t)), itertools.dropwhile)


def _filter_false(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    keep = (lambda v: v.truth(t)) if is_none(args[0]) else (lambda v: args[0].call(t, [v], {}).truth(t))
    return make(itertools.filterfalse(keep, args[1].iterate(t)), itertools.filterfalse)


def _compress(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    data, selectors = _named(args, kwargs, "data", "selectors")
    return make((d for d, s in zip(data.iterate(t), selectors.iterate(t), strict=False) if s.truth(t)), itertools.compress)


def _cycle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make(itertools.cycle(args[0].iterate(t)), itertools.cycle)


def _combinations_with_replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    iterable, size = _named(args, kwargs, "iterable", "r")
    cls = itertools.combinations_with_replacement
    return tuples(cls(list(iterable.iterate(t)), t.constant(size)), cls)


def _group_by(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    key = kwargs.get("key") or (args[1] if len(args) > 1 else NONE)
    rank = Rank(t, key)
    groups = itertools.groupby(args[0].iterate(t), rank)
    return make((SequenceValue([k.value, make(g, itertools._grouper)], tuple) for k, g in groups), itertools.groupby)  # type: ignore[attr-defined]


class Rank:
    """A key function for Python's own ``groupby``, which compares what it gives with ``==``."""

    def __init__(self, t: Tracer, key: Value, value: Value = NONE) -> None:
        self.t, self.key, self.value = t, key, value

    def __call__(self, value: Value) -> Rank:
        return Rank(self.t, self.key, value if is_none(self.key) else self.key.call(self.t, [value], {}))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rank) and same_or_equal(self.t, self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


def _tee(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    count = t.constant(args[1]) if len(args) > 1 else 2
    return SequenceValue([make(run, itertools._tee) for run in itertools.tee(args[0].iterate(t), count)], tuple)  # type: ignore[attr-defined]


def _named(args: Args, kwargs: Kwargs, *names: str) -> list[Value]:
    return [*args, *(kwargs[n] for n in names[len(args) :])]


# operator


def _delete_item(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    args[0].delete_item(t, args[1])
    return NONE


def _count_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(sum(same_or_equal(t, v, args[1]) for v in args[0].iterate(t)))


def _index_of(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for at, v in enumerate(args[0].iterate(t)):
        if same_or_equal(t, v, args[1]):
            return Constant(at)
    raise Raised(t.exception(ValueError, "sequence.index(x): x not in sequence"))


class Getter(Value):
    """``itemgetter(...)``, ``attrgetter(...)`` or ``methodcaller(...)``: ``read`` on one object."""

    def __init__(self, cls: type[Any], read: Callable[[Value], Value]) -> None:
        self.cls, self.read = cls, read

    def python_type(self) -> type[Any]:
        return self.cls

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 1 or kwargs:
            raise Raised(t.exception(TypeError, f"{self.cls.__name__} expected 1 argument, got {len(args)}"))
        return self.read(args[0])


def _several(reads: list[Callable[[Value], Value]], value: Value) -> Value:
    return reads[0](value) if len(reads) == 1 else SequenceValue([read(value) for read in reads], tuple)


def _item_getter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    reads = [lambda v, k=k: v.item(t, k) for k in args]
    return Getter(operator.itemgetter, lambda v: _several(reads, v))


def attribute_path(t: Tracer, value: Value, path: str) -> Value:
    for name in path.split("."):
        value = value.get(t, name)
    return value


def _attr_getter(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    paths: list[str] = [t.constant(a) for a in args]
    reads = [lambda v, p=p: attribute_path(t, v, p) for p in paths]
    return Getter(operator.attrgetter, lambda v: _several(reads, v))


def _method_caller(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Getter(operator.methodcaller, lambda v: v.get(t, t.constant(args[0])).call(t, args[1:], kwargs))


# sys


def _exc_info(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not t.exceptions:
        return SequenceValue([NONE] * 3, tuple)
    return SequenceValue([t.wrap(t.exceptions[-1].python_type(), None), t.exceptions[-1], Traceback()], tuple)


# functools


class Ordering(Value):
    """``functools.cmp_to_key(function)``; ``sorted`` and its kin know it."""

    def __init__(self, function: Value) -> None:
        self.function = function

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return Ordered(self.function, args[0])


class CachedFunction(Value):
    """A function under ``functools.lru_cache``. What it gives is known only where it is said to be the same at each call."""

    def __init__(self, real: Any, source: Source | None) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type[Any]:
        return type(self.real)

    def describe(self) -> str:
        return f"cached function {getattr(self.real, '__qualname__', '')}".rstrip()

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not getattr(self.real.__wrapped__, "_dynamo_marked_constant", False):  # by ``torch.compiler.assume_constant_result``
            raise t.refuse("unknown-callable", f"{self.describe()}, which remembers earlier calls")
        t.process = f"what {self.describe()} gives"
        return t.fold(self.real, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})

    def get(self, t: Tracer, name: str) -> Value:
        if name in ("__wrapped__", "__name__", "__qualname__", "__module__", "__doc__"):
            return t.wrap(getattr(self.real, name), Source("attr", name, self.source or Source("constant", self.real)))
        raise t.refuse("attribute", f"{name!r} of {self.describe()}")


def update_wrapper(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``functools.update_wrapper(wrapper, wrapped)`` of a function made in the frame."""
    wrapper, wrapped = _named(args, kwargs, "wrapper", "wrapped")
    if not isinstance(wrapper, FunctionValue) or wrapper.real is not None or len(args) + len(kwargs) > 2:
        raise t.refuse("unknown-callable", "functools.wraps of a function from outside")
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        if isinstance(wrapped, FunctionValue):
            wrapper.attributes[name] = wrapped.get(t, name)
    if isinstance(wrapped, FunctionValue):
        wrapper.attributes.update(wrapped.extra(t))
    wrapper.attributes["__wrapped__"] = wrapped
    return wrapper


def dispatched(t: Tracer, real: types.FunctionType, args: Args, kwargs: Kwargs) -> Value | None:
    """A call of a ``functools.singledispatch`` function; None for any other function."""
    if real.__code__ is not DISPATCHER:
        return None
    if not args:
        raise t.refuse("bad-call", f"{real.__name__} needs a positional argument")
    chosen = real.dispatch(args[0].python_type())  # type: ignore[attr-defined]
    dispatch, place = _free(real, "dispatch", Source("constant", real))
    registry, place = _free(dispatch, "registry", place)
    t.guard("dict_keys", place, tuple(registry), why="it says which function is called")
    key = next(k for k, f in registry.items() if f is chosen)
    return t.wrap(chosen, Source("dict_item", key, place)).call(t, args, kwargs)


def _free(function: types.FunctionType, name: str, source: Source) -> tuple[Any, Source]:
    """What a free variable of ``function`` holds, and where."""
    at = function.__code__.co_freevars.index(name)
    assert function.__closure__ is not None
    return function.__closure__[at].cell_contents, Source("attr", "cell_contents", Source("item", at, Source("attr", "__closure__", source)))


# class methods of built-in types


def class_method(t: Tracer, real: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """``int.from_bytes`` and its like, which are pure; None for anything else."""
    owner: Any = getattr(real, "__self__", None)
    if not isinstance(real, types.BuiltinFunctionType) or type(owner) is not type or owner not in (int, float, bytes, str) or real.__name__ == "__new__":
        return None
    return t.fold(real, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})


CLASSES: dict[type[Any], Handler] = {
    itertools.takewhile: _take_while,
    itertools.dropwhile: _drop_while,
    itertools.filterfalse: _filter_false,
    itertools.compress: _compress,
    itertools.cycle: _cycle,
    itertools.combinations_with_replacement: _combinations_with_replacement,
    itertools.groupby: _group_by,
    operator.itemgetter: _item_getter,
    operator.attrgetter: _attr_getter,
    operator.methodcaller: _method_caller,
}
FUNCTIONS: dict[Any, Handler] = {
    itertools.tee: _tee,
    sys.exc_info: _exc_info,
    operator.delitem: _delete_item,
    operator.countOf: _count_of,
    operator.indexOf: _index_of,
    operator.call: lambda t, args, kwargs: args[0].call(t, args[1:], kwargs),
    functools.cmp_to_key: lambda t, args, kwargs: Ordering(*args, **kwargs),
}
PYTHON: dict[Any, Handler] = {
    copy.copy: copying.shallow,
    copy.deepcopy: copying.deep,
    functools.update_wrapper: update_wrapper,
}
