"""Iterators: Python's own, running over values. ``enumerate``, ``zip``, ``map`` and generators stay lazy, in step with their consumer.

In: iterables. Out: ``IteratorValue`` around a Python iterator of values. PyTorch's counterpart: ``torch/_dynamo/variables/iter.py``.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import NONE, Args, Constant, Kwargs, Method, NotConstant, Opaque, Raised, Value, force, is_none
from .containers import DictValue, DictView, ExistingDict, SequenceValue, SetValue
from .functions import GeneratorRun
from .objects import ExceptionValue, ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer


class Steps:
    """An iterator that counts."""

    def __init__(self, run: Iterator[Value]) -> None:
        self.run, self.taken = run, 0

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        found = next(self.run)
        self.taken += 1
        return found


@dataclass(frozen=True)
class Origin:
    """How to have the iterator as it is now, in Python: ``function(*values, first + steps.taken)``; without ``steps``, ``function(*values)``."""

    function: Callable[..., Any]
    values: tuple[Value, ...]
    steps: Steps | None = None
    first: int = 0


class IteratorValue(Value):
    """A Python iterator of values; ``cls`` is the type that the program sees."""

    origin: Origin | None = None

    def __init__(self, run: Iterator[Value], cls: type[Any]) -> None:
        self.run, self.cls = run, cls
        self.METHODS = GENERATOR_METHODS if cls is types.GeneratorType else ITERATOR_METHODS

    def python_type(self) -> type[Any]:
        return self.cls

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return self.run

    def contains(self, t: Tracer, value: Value) -> bool:
        from .containers import same_or_equal

        return any(same_or_equal(t, v, value) for v in self.run)


def make(run: Iterator[Value], cls: type[Any] = types.GeneratorType) -> IteratorValue:
    return IteratorValue(run, cls)


def _next_method(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    return next_value(t, [it], kwargs)


def _iter_method(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    return it


def _send(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    run = _generator(t, it)
    return _given(t, run, lambda: run.send(args[0]))


def _close(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    _generator(t, it).close()
    return NONE


def _throw(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    """``throw(error)`` or ``throw(type, error, traceback)``."""
    from .exceptions import made

    run = _generator(t, it)
    given = args[1] if len(args) > 1 and not is_none(args[1]) else args[0]
    if len(args) > 1 and not isinstance(given, ExceptionValue) and not is_none(args[1]):
        given = args[0].call(t, [args[1]], {})
    return _given(t, run, lambda: run.throw(made(t, given)))


def _generator(t: Tracer, it: IteratorValue) -> GeneratorRun:
    if not isinstance(it.run, GeneratorRun):
        raise t.refuse("generator", f"a method of {it.describe()}")
    return it.run


def _given(t: Tracer, run: GeneratorRun, step: Callable[[], Value]) -> Value:
    was = run.finished
    try:
        return step()
    except StopIteration:
        raise Raised(_stopped(t, run, was)) from None


def _stopped(t: Tracer, run: Iterator[Value], was: bool = False) -> Value:
    """The StopIteration of an iterator at its end; a generator's carries what it returned, the first time."""
    carried = [run.result] if isinstance(run, GeneratorRun) and not is_none(run.result) and not was else []
    return t.exception(StopIteration, *carried)


ITERATOR_METHODS: dict[str, Method] = {"__next__": _next_method, "__iter__": _iter_method}
GENERATOR_METHODS: dict[str, Method] = {**ITERATOR_METHODS, "send": _send, "close": _close, "throw": _throw}


def next_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``next(iterator[, default])``."""
    it = args[0]
    if isinstance(it, ObjectValue):
        try:
            return _next_of(t, it)
        except Raised as raised:
            if len(args) > 1 and _is_stop(raised):
                return args[1]
            raise
    if isinstance(it, Opaque):
        raise t.refuse("generator" if isinstance(it.real, types.GeneratorType) else "unknown-value", f"next() of {it.describe()}, which exists already")
    if not isinstance(it, IteratorValue):
        raise Raised(t.exception(TypeError, f"'{it.python_type().__name__}' object is not an iterator"))
    was = isinstance(it.run, GeneratorRun) and it.run.finished
    found = next(it.run, None)
    if found is not None:
        return found
    if len(args) > 1:
        return args[1]
    raise Raised(_stopped(t, it.run, was))


def _next_of(t: Tracer, it: ObjectValue) -> Value:
    found = it.dunder(t, "__next__")
    if found is None:
        raise Raised(t.exception(TypeError, f"'{it.cls.__name__}' object is not an iterator"))
    return found


def _is_stop(raised: Raised) -> bool:
    return isinstance(raised.exception, ExceptionValue) and issubclass(raised.exception.cls, StopIteration)


def step(t: Tracer, it: Value) -> Value | None:
    """The next value of an iterator; None at its end."""
    if not isinstance(it, ObjectValue):
        return next(it.iterate(t), None)
    try:
        return _next_of(t, it)
    except Raised as raised:
        if _is_stop(raised):
            return None
        raise


def iter_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``iter(iterable)``."""
    if len(args) > 1:
        return make(_until(t, args[0], args[1]), type(iter(int, 1)))
    value = args[0]
    if isinstance(value, IteratorValue):
        return value
    if isinstance(value, ObjectValue) and (found := value.dunder(t, "__iter__")) is not None:
        if found.lacks("__next__"):
            raise Raised(t.exception(TypeError, f"iter() returned non-iterator of type '{found.python_type().__name__}'"))
        return found
    steps = Steps(iter(value.iterate(t)))
    made = make(steps, kind_of(value))
    if isinstance(value, (SequenceValue, Constant)) and kind_of(value) in INDEXED:
        made.origin = Origin(at_index, (value,), steps)
    elif type(value) in (DictView, DictValue, ExistingDict):
        made.origin = Origin(after, (value,), steps)
    return made


INDEXED = tuple(type(iter(v)) for v in ([], (), range(0), ""))


def at_index(values: Any, index: int) -> Iterator[Any]:
    made: Any = iter(values)
    made.__setstate__(index)
    return made


def after(values: Any, count: int) -> Iterator[Any]:
    made = iter(values)
    for _ in range(count):
        next(made)
    return made


def kind_of(value: Value) -> type[Any]:
    """The type of the iterator that ``iter`` gives."""
    try:
        cls = value.python_type()
    except NotConstant:
        cls = list
    if isinstance(value, DictView):
        return type(iter(getattr({}, value.kind)()))
    return type(iter(cls())) if cls in (list, tuple, dict, set, frozenset, str, bytes) else type(iter(range(0))) if cls is range else type(iter([]))


def _until(t: Tracer, function: Value, sentinel: Value) -> Iterator[Value]:
    """``iter(function, sentinel)``."""
    from .containers import same_or_equal

    while not same_or_equal(t, value := function.call(t, [], {}), sentinel):
        yield value


def enumerate_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = t.constant(t.fold(operator.index, [t.constant(kwargs.get("start") or (args[1] if len(args) > 1 else Constant(0)))]))
    inner = iter_value(t, args[:1], {})
    steps = Steps(SequenceValue([Constant(i), v], tuple) for i, v in zip(itertools.count(start), _rest(t, inner)))
    made = make(steps, enumerate)
    made.origin = Origin(enumerate, (inner,), steps, start)
    return made


def _rest(t: Tracer, it: Value) -> Iterator[Value]:
    """What is left of an iterator, whose ``__iter__`` is not asked again."""
    while (value := step(t, it)) is not None:
        yield value


def zip_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = t.constant(kwargs.get("strict", Constant(False)))
    inner = tuple(iter_value(t, [a], {}) for a in args)
    runs = [_rest(t, it) for it in inner]

    def steps() -> Iterator[Value]:
        try:
            for parts in zip(*runs, strict=strict):
                yield SequenceValue(list(parts), tuple)
        except ValueError as error:
            raise Raised(t.exception(ValueError, str(error))) from error

    made = make(steps(), zip)
    if not strict:
        made.origin = Origin(zip, inner)
    return made


def map_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, runs = args[0], [a.iterate(t) for a in args[1:]]
    return make((function.call(t, list(parts), {}) for parts in zip(*runs, strict=False)), map)


def filter_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, run = args[0], args[1].iterate(t)
    keep = (lambda v: v.truth(t)) if is_none(function) else (lambda v: function.call(t, [v], {}).truth(t))
    return make((v for v in run if keep(v)), filter)


def reversed_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, ObjectValue):
        found = value.dunder(t, "__reversed__")
        if found is None:
            raise t.refuse("unknown-callable", f"reversed of {value.describe()}")
        return found
    if isinstance(value, (SetValue, IteratorValue)) or (isinstance(value, Constant) and not hasattr(value.value, "__getitem__")):
        raise Raised(t.exception(TypeError, f"'{value.python_type().__name__}' object is not reversible"))
    if isinstance(value, SequenceValue):
        return make(_backwards(value), type(reversed([])) if value.cls is list else reversed)
    if not isinstance(value, (Constant, DictView, DictValue)):
        raise t.refuse("unknown-callable", f"reversed of {value.describe()}")
    return make(iter(list(value.iterate(t))[::-1]), type(reversed({})) if isinstance(value, DictValue) else reversed)


def _backwards(value: SequenceValue) -> Iterator[Value]:
    """From the end as it is now; the list may shrink meanwhile."""
    for at in reversed(range(len(value.items))):
        if at >= len(value.items):
            return
        yield force(value.items[at])


def sorted_values(t: Tracer, values: list[Value], kwargs: Kwargs) -> list[Value]:
    """As ``sorted``; every comparison must be decidable."""
    from .operators import compare

    key, reverse = kwargs.get("key", NONE), t.constant(kwargs.get("reverse", Constant(False)))
    keys = [v if is_none(key) else key.call(t, [v], {}) for v in values]

    class Ranked:
        """Python's own sort asks this one for ``<``, as often and in the order in which it asks the values themselves."""

        def __init__(self, at: int) -> None:
            self.at = at

        def __lt__(self, other: Ranked) -> bool:
            return compare(t, "<", keys[self.at], keys[other.at]).truth(t)

    return [values[r.at] for r in sorted(map(Ranked, range(len(values))), reverse=bool(reverse))]


def sorted_list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = list(args[0].entries.values()) if isinstance(args[0], SetValue) else list(args[0].iterate(t))
    return SequenceValue(sorted_values(t, found, kwargs), list)


# itertools


def tuples(parts: Iterator[tuple[Value, ...]], cls: type[Any]) -> Value:
    return make((SequenceValue(list(p), tuple) for p in parts), cls)


def chain(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((v for a in args for v in a.iterate(t)), itertools.chain)


def chain_from(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((v for a in args[0].iterate(t) for v in a.iterate(t)), itertools.chain)


def islice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bounds = [t.constant(a) for a in args[1:]]
    t.fold(lambda: itertools.islice((), *bounds) and None, [])  # its errors
    return make(itertools.islice(args[0].iterate(t), *bounds), itertools.islice)


def product(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    repeat = t.constant(kwargs.get("repeat", Constant(1)))
    return tuples(itertools.product(*[list(a.iterate(t)) for a in args], repeat=repeat), itertools.product)


def combinations(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tuples(itertools.combinations(list(args[0].iterate(t)), t.constant(args[1])), itertools.combinations)


def permutations(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    size = t.constant(args[1]) if len(args) > 1 else None
    return tuples(itertools.permutations(list(args[0].iterate(t)), size), itertools.permutations)


def pairwise(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return tuples(itertools.pairwise(args[0].iterate(t)), itertools.pairwise)


def count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given, named = [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()}
    t.fold(lambda *a, **k: next(itertools.count(*a, **k)), given, named)  # what it raises, the program raises
    return make((Constant(v) for v in itertools.count(*given, **named)), itertools.count)


def repeat(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    times = kwargs.get("times") or (args[1] if len(args) > 1 else None)
    return make(itertools.repeat(args[0]) if times is None else itertools.repeat(args[0], t.constant(times)), itertools.repeat)


def accumulate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    from .operators import binary

    function = args[1] if len(args) > 1 else kwargs.get("func", NONE)
    step = (lambda a, b: binary(t, "+", a, b)) if is_none(function) else (lambda a, b: function.call(t, [a, b], {}))
    initial = kwargs.get("initial", NONE)
    return make(itertools.accumulate(args[0].iterate(t), step, initial=None if is_none(initial) else initial), itertools.accumulate)


def starmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((args[0].call(t, list(v.iterate(t)), {}) for v in args[1].iterate(t)), itertools.starmap)


def zip_longest(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fill = kwargs.get("fillvalue", NONE)
    return tuples(itertools.zip_longest(*[a.iterate(t) for a in args], fillvalue=fill), itertools.zip_longest)
