"""Methods of lists, tuples, dicts and sets: one row each.

In: the container, arguments. Out: what Python's method gives, on values. Always holds: a container from outside is not changed.
PyTorch's counterpart: ``torch/_dynamo/variables/{lists,dicts}.py`` (``call_method``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from .base import NONE, Args, Constant, Kwargs, Method, Raised, Value, force
from .containers import DictValue, DictView, SequenceValue, SetValue, entries_of, key_of, pairs_of, same_or_equal

if TYPE_CHECKING:
    from ..tracer import Tracer


# list and tuple methods


def _append(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.items.append(args[0])
    return NONE


def _extend(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.items.extend(list(args[0].iterate(t)))
    return NONE


def _insert(t: Tracer, s: SequenceValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
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


def _has(t: Tracer, s: Any, args: Args, kwargs: Kwargs) -> Value:
    return Constant(s.contains(t, args[0]))


# dict methods


def _view(kind: str) -> Method:
    return lambda t, d, args, kwargs: DictView(d, kind)


def _dict_get(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    found = d.find(t, args[0])
    if found is None:
        d.look()
    return found or (args[1] if len(args) > 1 else NONE)


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
    return DictValue(dict(d.entries), d.cls)


def _clear_dict(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.changing(t)
    d.entries.clear()
    return NONE


def _move_to_end(t: Tracer, d: DictValue, args: Args, kwargs: Kwargs) -> Value:
    d.changing(t)
    at = key_of(t, args[0])
    if kwargs or len(args) > 1 or at not in d.entries:
        raise t.refuse("unknown-value", "this use of move_to_end")
    d.entries[at] = d.entries.pop(at)
    return NONE


# set methods


def _add(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.entries.setdefault(key_of(t, args[0]), args[0])
    return NONE


def _discard(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    s.entries.pop(key_of(t, args[0]), None)
    return NONE


def _set_update(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    s.changing(t)
    for other in args:
        for key, v in entries_of(t, other).items():
            s.entries.setdefault(key, v)
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


def _copy_set(t: Tracer, s: SetValue, args: Args, kwargs: Kwargs) -> Value:
    return SetValue(dict(s.entries), s.cls)


TUPLE: dict[str, Method] = {"index": _position, "count": _count, "numel": _numel, "__len__": _length, "__getitem__": _item, "__contains__": _has}
LIST: dict[str, Method] = {
    **{k: v for k, v in TUPLE.items() if k != "numel"},
    **{"append": _append, "extend": _extend, "insert": _insert, "pop": _pop, "remove": _remove, "clear": _clear},
    **{"reverse": _reverse, "sort": _sort, "copy": _copy_list},
}
DICT: dict[str, Method] = {
    **{"keys": _view("keys"), "values": _view("values"), "items": _view("items"), "get": _dict_get, "pop": _dict_pop, "setdefault": _setdefault},
    **{"update": _update, "copy": _copy_dict, "clear": _clear_dict, "move_to_end": _move_to_end},
    **{"__len__": _length, "__getitem__": _item, "__contains__": _has},
}
SET: dict[str, Method] = {
    **{"add": _add, "discard": _discard, "update": _set_update, "union": _union, "intersection": _intersection, "difference": _difference},
    **{"issubset": _issubset, "issuperset": _issuperset, "copy": _copy_set, "__len__": _length, "__contains__": _has},
}
