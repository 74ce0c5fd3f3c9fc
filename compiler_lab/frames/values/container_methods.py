"""Methods of lists, tuples, dicts and sets: one row each.

In: the container, arguments. Out: what Python's method gives, on values. Always holds: every change of a container goes through
``changing``, so that one from outside is noted.
PyTorch's counterpart: ``torch/_dynamo/variables/{lists,dicts}.py`` (``call_method``).
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from .base import NONE, Args, Constant, Kwargs, Method, Raised, Value, force
from .containers import DequeValue, DictValue, DictView, ExistingDict, SequenceValue, SetValue, entries_of, key_of, pairs_of, same_or_equal

if TYPE_CHECKING:
    from ..tracer import Tracer


# list and tuple methods


def _append(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.grow(t, [args[0]])
    return NONE


def _extend(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.grow(t, list(args[0].iterate(t)))
    return NONE


def _insert(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    if isinstance(s, DequeValue) and len(s.items) == s.maxlen:
        raise Raised(t.exception(IndexError, "deque already at its maximum size"))
    s.items.insert(t.constant(args[0]), args[1])
    return NONE


def _pop(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    at = t.constant(args[0]) if args else -1
    if not -len(s.items) <= at < len(s.items):
        raise Raised(t.exception(IndexError, "pop from empty list" if not s.items else "pop index out of range"))
    return force(s.items.pop(at))


def _remove(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    for at, v in enumerate(s.values()):
        if same_or_equal(t, v, args[0]):
            del s.items[at]
            return NONE
    raise Raised(t.exception(ValueError, "list.remove(x): x not in list"))


def _clear(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.items.clear()
    return NONE


def _reverse(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.items.reverse()
    return NONE


def _sort(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    from .iterators import sorted_values

    s.changing(t)
    s.items[:] = sorted_values(t, s.values(), kwargs)
    return NONE


def _position(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    for at, v in enumerate(s.values()):
        if same_or_equal(t, v, args[0]):
            return Constant(at)
    raise Raised(t.exception(ValueError, "tuple.index(x): x not in tuple" if s.cls is tuple else f"{args[0].describe()} is not in {s.cls.__name__}"))


def _append_left(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.items.insert(0, args[0])
    if s.maxlen is not None and len(s.items) > s.maxlen:
        s.items.pop()
    return NONE


def _extend_left(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    for value in list(args[0].iterate(t)):
        _append_left(t, s, [value], {})
    return NONE


def _pop_left(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    if not s.items:
        raise Raised(t.exception(IndexError, "pop from an empty deque"))
    s.changing(t)
    return force(s.items.pop(0))


def _pop_right(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    if not s.items:
        raise Raised(t.exception(IndexError, "pop from an empty deque"))
    return _pop(t, s, [], {})


def _rotate(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    if s.items:
        by = t.constant(args[0] if args else Constant(1)) % len(s.items)
        s.items[:] = [*s.items[len(s.items) - by :], *s.items[: len(s.items) - by]]
    return NONE


def _copy_deque(t: Tracer, s: DequeValue, args: Args, kwargs: Kwargs) -> Value:
    return DequeValue(list(s.items), s.maxlen)


def _count(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    return Constant(sum(same_or_equal(t, v, args[0]) for v in s.values()))


def _copy_list(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    return SequenceValue(list(s.items), s.cls)


def _numel(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    from .operators import binary

    if not t.is_constant(s):
        return functools.reduce(lambda a, b: binary(t, "*", a, b), s.values(), Constant(1))
    return t.fold(torch.Size.numel, [s.make(t.constant(SequenceValue(s.items, list)))])


def _length(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    return Constant(s.length(t))


def _item(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    return s.item(t, args[0])


def _set_item(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    s.set_item(t, args[0], args[1])
    return NONE


def _delete_item(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    s.delete_item(t, args[0])
    return NONE


def _has(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    return Constant(s.contains(t, args[0]))


# dict methods


def _view(kind: str) -> Method:
    return lambda t, d, args, kwargs: DictView(d, kind)


def _dict_get(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    return d.find(t, args[0]) or (args[1] if len(args) > 1 else NONE)


def _dict_pop(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.changing(t)
    found = d.find(t, args[0])
    if found is not None:
        d.delete_item(t, args[0])
    elif len(args) < 2:
        raise Raised(t.exception(KeyError, t.maybe_constant(args[0])))
    return found or args[1]


def _setdefault(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    found = d.find(t, args[0])
    if found is None:
        d.set_item(t, args[0], found := args[1] if len(args) > 1 else NONE)
    return found


def _update(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.changing(t)
    for other in args:
        for key, value in pairs_of(t, other):
            d.set_item(t, key, value)
    for name, value in kwargs.items():
        d.set_item(t, Constant(name), value)
    return NONE


def _copy_dict(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.look()
    return DictValue(dict(d.entries), d.cls, None, d.factory)


def _clear_dict(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.clear(t)
    return NONE


def _pop_item(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.look()
    if not d.entries:
        raise Raised(t.exception(KeyError, f"{'dictionary' if d.cls is OrderedDict else 'popitem(): dictionary'} is empty"))
    last = t.constant(kwargs.get("last") or (args[0] if args else Constant(True)))
    key, value = d.pairs()[-1 if last else 0]
    d.delete_item(t, key)
    return SequenceValue([key, value], tuple)


def _move_to_end(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.changing(t)
    d.look()
    at, last = key_of(t, args[0]), t.constant(kwargs.get("last") or (args[1] if len(args) > 1 else Constant(True)))
    if at not in d.entries:
        raise Raised(t.exception(KeyError, t.maybe_constant(args[0])))
    moved = d.entries.pop(at)
    rest = {} if last else dict(d.entries)
    if not last:
        d.entries.clear()
    d.entries[at] = moved
    d.entries.update(rest)
    if isinstance(d, ExistingDict):
        d.moved = True
    return NONE


# set methods


def _add(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    s.put(t, args[0])
    return NONE


def _discard(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    s.drop(t, args[0])
    return NONE


def _set_remove(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    if not s.contains(t, args[0]):
        raise Raised(t.exception(KeyError, t.maybe_constant(args[0])))
    s.drop(t, args[0])
    return NONE


def _set_update(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    for other in args:
        for v in entries_of(t, other).values():
            s.put(t, v)
    return NONE


def _union(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    merged = dict(s.entries)
    for other in args:
        merged = {**entries_of(t, other), **merged}
    return SetValue(merged, s.cls)


def _intersection(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    others = [entries_of(t, o) for o in args]
    return SetValue({k: v for k, v in s.entries.items() if all(k in o for o in others)}, s.cls)


def _difference(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    others = [entries_of(t, o) for o in args]
    return SetValue({k: v for k, v in s.entries.items() if not any(k in o for o in others)}, s.cls)


def _issubset(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    return Constant(set(s.entries) <= set(entries_of(t, args[0])))


def _issuperset(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    return Constant(set(s.entries) >= set(entries_of(t, args[0])))


def _symmetric_difference(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    other = entries_of(t, args[0])
    return SetValue({k: v for k, v in {**s.entries, **other}.items() if (k in s.entries) != (k in other)}, s.cls)


def _is_disjoint(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    return Constant(not set(s.entries) & set(entries_of(t, args[0])))


def _set_pop(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    if not s.entries:
        raise Raised(t.exception(KeyError, "pop from an empty set"))
    if len(s.entries) > 1:
        raise t.refuse("unknown-value", "pop from a set of several elements, whose order is not fixed")
    (found,) = s.entries.values()
    s.drop(t, found)
    return found


def _set_clear(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    for value in list(s.entries.values()):
        s.drop(t, value)
    return NONE


def _copy_set(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    return SetValue(dict(s.entries), s.cls)


TUPLE: dict[str, Method] = {"index": _position, "count": _count, "numel": _numel, "__len__": _length, "__getitem__": _item, "__contains__": _has}
LIST: dict[str, Method] = {
    **{k: v for k, v in TUPLE.items() if k != "numel"},
    **{"append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "remove": _remove, "clear": _clear},
    **{"reverse": _reverse, "sort": _sort, "copy": _copy_list, "__setitem__": _set_item, "__delitem__": _delete_item},
}
DICT: dict[str, Method] = {
    **{"keys": _view("keys"), "values": _view("values"), "items": _view("items"), "get": _dict_get, "pop": _dict_pop, "setdefault": _setdefault},
    **{"update": _update, "copy": _copy_dict, "clear": _clear_dict, "popitem": _pop_item},
    **{"__len__": _length, "__getitem__": _item, "__contains__": _has, "__setitem__": _set_item, "__delitem__": _delete_item},
}
ORDERED: dict[str, Method] = {**DICT, "move_to_end": _move_to_end}
DEQUE: dict[str, Method] = {
    **{k: v for k, v in LIST.items() if k not in ("sort",)},
    **{"appendleft": _append_left, "extendleft": _extend_left, "popleft": _pop_left, "pop": _pop_right, "rotate": _rotate, "copy": _copy_deque},
}
SET: dict[str, Method] = {
    **{
        "add": _add,
        "discard": _discard,
        "remove": _set_remove,
        "update": _set_update,
        "union": _union,
        "intersection": _intersection,
        "difference": _difference,
    },
    **{"symmetric_difference": _symmetric_difference, "isdisjoint": _is_disjoint, "pop": _set_pop, "clear": _set_clear},
    **{"issubset": _issubset, "issuperset": _issuperset, "copy": _copy_set, "__len__": _length, "__contains__": _has},
}
FROZEN: dict[str, Method] = {k: v for k, v in SET.items() if hasattr(frozenset, k)}
