"""Iterators: Python's own, running over values. ``enumerate``, ``zip``, ``map`` and generators stay lazy, in step with their consumer.

In: iterables. Out: ``IteratorValue`` around a Python iterator of values. PyTorch's counterpart: ``torch/_dynamo/variables/iter.py``.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .base import NONE, Args, Constant, Kwargs, Method, Raised, Value
from .containers import DictView, SequenceValue, SetValue
from .functions import GeneratorRun

if TYPE_CHECKING:
    from ..tracer import Tracer


class IteratorValue(Value):
    """A Python iterator of values; ``cls`` is the type that the program sees."""

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
    assert isinstance(it.run, GeneratorRun)
    try:
        return it.run.send(args[0])
    except StopIteration:
        raise Raised(t.exception(StopIteration)) from None


def _close(t: Tracer, it: IteratorValue, args: Args, kwargs: Kwargs) -> Value:
    assert isinstance(it.run, GeneratorRun)
    if not it.run.finished and it.run.frame.started:
        raise t.refuse("generator", "closing a suspended generator")
    it.run.finished = True
    return NONE


ITERATOR_METHODS: dict[str, Method] = {"__next__": _next_method, "__iter__": _iter_method}
GENERATOR_METHODS: dict[str, Method] = {**ITERATOR_METHODS, "send": _send, "close": _close}


def next_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``next(iterator[, default])``."""
    it = args[0]
    if not isinstance(it, IteratorValue):
        return it.get(t, "__next__").call(t, [], {})
    found = next(it.run, None)
    if found is not None:
        return found
    if len(args) > 1:
        return args[1]
    raise Raised(t.exception(StopIteration, *([it.run.result] if isinstance(it.run, GeneratorRun) and it.run.result is not NONE else [])))


def iter_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``iter(iterable)``."""
    if len(args) > 1:
        raise t.refuse("unknown-callable", "iter with a sentinel")
    if isinstance(args[0], IteratorValue):
        return args[0]
    kinds = {list: type(iter([])), tuple: type(iter(())), range: type(iter(range(0)))}
    try:
        cls = kinds.get(args[0].python_type(), type(iter([])))
    except Exception as error:
        raise t.refuse("unknown-value", f"iter of {args[0].describe()}") from error
    return make(args[0].iterate(t), cls)


def enumerate_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start = t.constant(kwargs.get("start") or (args[1] if len(args) > 1 else Constant(0)))
    run = args[0].iterate(t)
    return make((SequenceValue([Constant(i), v], tuple) for i, v in zip(itertools.count(start), _each(run))), enumerate)


def _each(run: Iterator[Value]) -> Iterator[Value]:
    yield from run


def zip_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    strict = t.constant(kwargs.get("strict", Constant(False)))
    runs = [a.iterate(t) for a in args]

    def steps() -> Iterator[Value]:
        try:
            for parts in zip(*runs, strict=strict):
                yield SequenceValue(list(parts), tuple)
        except ValueError as error:
            raise Raised(t.exception(ValueError, str(error))) from error

    return make(steps(), zip)


def map_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, runs = args[0], [a.iterate(t) for a in args[1:]]
    return make((function.call(t, list(parts), {}) for parts in zip(*runs, strict=False)), map)


def filter_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    function, run = args[0], args[1].iterate(t)
    keep = (lambda v: v.truth(t)) if function is NONE else (lambda v: function.call(t, [v], {}).truth(t))
    return make((v for v in run if keep(v)), filter)


def reversed_values(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if not isinstance(value, (SequenceValue, Constant, DictView)):
        found = value.dunder(t, "__reversed__") if hasattr(value, "dunder") else None  # type: ignore[attr-defined]
        if found is None:
            raise t.refuse("unknown-callable", f"reversed of {value.describe()}")
        return found
    return make(iter(list(value.iterate(t))[::-1]), reversed)


def sorted_values(t: Tracer, values: list[Value], kwargs: Kwargs) -> list[Value]:
    """As ``sorted``; every comparison must be decidable."""
    from .operators import compare

    key, reverse = kwargs.get("key", NONE), t.constant(kwargs.get("reverse", Constant(False)))
    keys = [v if key is NONE else key.call(t, [v], {}) for v in values]

    def order(i: int, j: int) -> int:
        if compare(t, "<", keys[i], keys[j]).truth(t):
            return -1
        return 1 if compare(t, "<", keys[j], keys[i]).truth(t) else 0

    return [values[i] for i in sorted(range(len(values)), key=functools.cmp_to_key(order), reverse=reverse)]


def sorted_list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = list(args[0].entries.values()) if isinstance(args[0], SetValue) else list(args[0].iterate(t))
    return SequenceValue(sorted_values(t, found, kwargs), list)


# itertools


def _tuples(parts: Iterator[tuple[Value, ...]], cls: type[Any]) -> Value:
    return make((SequenceValue(list(p), tuple) for p in parts), cls)


def chain(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((v for a in args for v in a.iterate(t)), itertools.chain)


def chain_from(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((v for a in args[0].iterate(t) for v in a.iterate(t)), itertools.chain)


def islice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make(itertools.islice(args[0].iterate(t), *[t.constant(a) for a in args[1:]]), itertools.islice)


def product(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    repeat = t.constant(kwargs.get("repeat", Constant(1)))
    return _tuples(itertools.product(*[list(a.iterate(t)) for a in args], repeat=repeat), itertools.product)


def combinations(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _tuples(itertools.combinations(list(args[0].iterate(t)), t.constant(args[1])), itertools.combinations)


def permutations(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    size = t.constant(args[1]) if len(args) > 1 else None
    return _tuples(itertools.permutations(list(args[0].iterate(t)), size), itertools.permutations)


def pairwise(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _tuples(itertools.pairwise(args[0].iterate(t)), itertools.pairwise)


def count(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((Constant(v) for v in itertools.count(*[t.constant(a) for a in args])), itertools.count)


def repeat(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    times = kwargs.get("times") or (args[1] if len(args) > 1 else None)
    return make(itertools.repeat(args[0]) if times is None else itertools.repeat(args[0], t.constant(times)), itertools.repeat)


def accumulate(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    from .operators import binary

    function = args[1] if len(args) > 1 else kwargs.get("func", NONE)
    step = (lambda a, b: binary(t, "+", a, b)) if function is NONE else (lambda a, b: function.call(t, [a, b], {}))
    initial = kwargs.get("initial", NONE)
    return make(itertools.accumulate(args[0].iterate(t), step, initial=None if initial is NONE else initial), itertools.accumulate)


def starmap(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return make((args[0].call(t, list(v.iterate(t)), {}) for v in args[1].iterate(t)), itertools.starmap)


def zip_longest(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    fill = kwargs.get("fillvalue", NONE)
    return _tuples(itertools.zip_longest(*[a.iterate(t) for a in args], fillvalue=fill), itertools.zip_longest)
