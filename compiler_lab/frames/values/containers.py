"""Lists, tuples, named tuples, sizes, dicts, sets and slices, made inside the frame or read from outside.

In: parts that are values, or ``Lazy`` ones nobody looked at yet. Out: the same operations as Python's, on values.
Always holds: the length, keys or elements of an existing container are guarded, as they were when the frame began, once they are looked at;
what only adds to it guards nothing. An existing container remembers its ``start``; ``effects.py`` compares.
PyTorch's counterpart: ``torch/_dynamo/variables/{lists,dicts}.py``.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..ir import Source
from .base import NONE, Leaf, NotConstant, PureMethod, Raised, Slot, Value, force, is_none

if TYPE_CHECKING:
    from ..tracer import Tracer


class SliceValue(Value):
    def __init__(self, start: Value, stop: Value, step: Value) -> None:
        self.start, self.stop, self.step = start, stop, step

    def python_type(self) -> type[Any]:
        return slice

    def plain(self, leaf: Leaf) -> Any:
        return slice(self.start.plain(leaf), self.stop.plain(leaf), self.step.plain(leaf))

    def get(self, t: Tracer, name: str) -> Value:
        if name == "indices":
            return PureMethod(t.constant(self).indices)
        return getattr(self, name) if name in ("start", "stop", "step") else super().get(t, name)


class SequenceValue(Value):
    """A list or a tuple; ``cls`` is list, tuple, torch.Size, a named tuple or one of torch's result types."""

    def __init__(self, items: list[Any], cls: type[Any] = list, source: Source | None = None) -> None:
        self.slots: list[Slot] = items
        self.cls, self.source = cls, source
        self.METHODS = methods.LIST if issubclass(cls, list) else methods.TUPLE

    @property
    def items(self) -> list[Slot]:
        """The parts, for reading and for changes that depend on what is there."""
        return self.slots

    def grow(self, t: Tracer, added: list[Value]) -> None:
        """Put values at the end, whatever is there."""
        self.changing(t)
        self.slots.extend(added)

    def python_type(self) -> type[Any]:
        return self.cls

    def values(self) -> list[Value]:
        return [force(i) for i in self.items]

    def plain(self, leaf: Leaf) -> Any:
        parts = [v.plain(leaf) for v in self.values()]
        return self.make(parts)

    def make(self, parts: list[Any]) -> Any:
        """A real container of this class from real parts."""
        if self.cls in (list, tuple):
            return self.cls(parts)
        if self.cls is torch.Size:
            return torch.Size(parts) if all(type(p) is int for p in parts) else tuple(parts)
        return self.cls(*parts) if hasattr(self.cls, "_fields") else tuple(parts)

    def get(self, t: Tracer, name: str) -> Value:
        fields = getattr(self.cls, "_fields", None) or (getattr(self.cls, "__match_args__", ()) if self.cls.__module__ == "torch.return_types" else ())
        if name in fields:
            return force(self.items[fields.index(name)])
        if name not in self.METHODS and name != "__class__" and hasattr(self.cls, "_fields"):
            from .lookup import class_attribute

            return class_attribute(t, self, self.cls, name)
        return super().get(t, name)

    def item(self, t: Tracer, key: Value) -> Value:
        index = as_index(t, key)
        try:
            found = self.items[index] if issubclass(self.cls, list) else tuple(self.items)[index]
        except (IndexError, TypeError, ValueError) as error:
            raise Raised(t.exception(type(error), str(error))) from error
        if isinstance(index, slice):
            return SequenceValue(list(found), self.cls if self.cls in (list, torch.Size) else tuple)
        return force(found)

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        self._list(t)
        index = as_index(t, key)
        if isinstance(index, slice):
            new = list(value.iterate(t))
            try:
                self.items[index] = new
            except ValueError as error:
                raise Raised(t.exception(ValueError, str(error))) from error
            return
        if not -len(self.items) <= index < len(self.items):
            raise Raised(t.exception(IndexError, "list assignment index out of range"))
        self.items[index] = value

    def delete_item(self, t: Tracer, key: Value) -> None:
        self._list(t)
        index = t.constant(key)
        if not isinstance(index, slice) and not -len(self.items) <= index < len(self.items):
            raise Raised(t.exception(IndexError, "list assignment index out of range"))
        del self.items[index]

    def _list(self, t: Tracer) -> None:
        self.changing(t)
        if not issubclass(self.cls, (list, deque)):
            raise Raised(t.exception(TypeError, f"'{self.cls.__name__}' object does not support item assignment"))

    def contains(self, t: Tracer, value: Value) -> bool:
        return any(same_or_equal(t, v, value) for v in self.values())

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return _live(self.items)

    def length(self, t: Tracer) -> int:
        return len(self.items)

    def truth(self, t: Tracer) -> bool:
        return bool(self.items)


class ExistingList(SequenceValue):
    """A list from outside: its length is guarded once the program looks at it."""

    CHANGES = True

    def __init__(self, t: Tracer, real: Any, items: list[Any], source: Source | None) -> None:
        super().__init__(items, type(real), source)
        self.t, self.real, self.start = t, real, tuple(items)

    @property
    def items(self) -> list[Slot]:
        self.t.guard("length", self.source, len(self.start), why="its length was used")
        return self.slots


class DequeValue(SequenceValue):
    """A ``collections.deque``; ``maxlen`` is None where it has no bound. ``real`` and ``start`` are set for one from outside."""

    CHANGES = True

    def __init__(self, items: list[Any], maxlen: int | None, real: Any = None, source: Source | None = None) -> None:
        super().__init__(items, deque, source)
        self.maxlen, self.real, self.start = maxlen, real, tuple(items)
        self.METHODS = methods.DEQUE
        self.bound()

    def bound(self) -> None:
        """Drop what is too much on the left."""
        if self.maxlen is not None and len(self.slots) > self.maxlen:
            del self.slots[: len(self.slots) - self.maxlen]

    def grow(self, t: Tracer, added: list[Value]) -> None:
        super().grow(t, added)
        self.bound()

    def plain(self, leaf: Leaf) -> Any:
        return leaf(self)

    def get(self, t: Tracer, name: str) -> Value:
        return t.lift(self.maxlen) if name == "maxlen" else super().get(t, name)

    def item(self, t: Tracer, key: Value) -> Value:
        if isinstance(t.constant(key), slice):
            raise Raised(t.exception(TypeError, "sequence index must be integer, not 'slice'"))
        return super().item(t, key)

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        if isinstance(t.constant(key), slice):
            raise Raised(t.exception(TypeError, "sequence index must be integer, not 'slice'"))
        super().set_item(t, key, value)


def _live(items: list[Slot]) -> Iterator[Value]:
    index = 0
    while index < len(items):  # a list may grow while it is iterated
        yield force(items[index])
        index += 1


def as_index(t: Tracer, key: Value) -> Any:
    """The plain index or slice; of a user's object, what its ``__index__`` gives."""
    hook = getattr(key, "dunder", None)
    return t.constant((hook(t, "__index__") if hook is not None else None) or key)


def same_or_equal(t: Tracer, a: Value, b: Value) -> bool:
    """``a is b or a == b``, as ``in`` and ``index`` compare."""
    from .operators import compare

    return a is b or compare(t, "==", a, b).truth(t)


def key_of(t: Tracer, value: Value) -> Hashable:
    """What stands for ``value`` as a dict key or set element: the constant, or the object itself where equality is identity."""
    found = t.maybe_constant(value, settle=True)
    if not isinstance(found, NotConstant):
        if isinstance(found, (list, dict, set, slice)):
            raise Raised(t.exception(TypeError, f"unhashable type: '{type(found).__name__}'"))
        if type(found) is tuple:
            t.fold(lambda: hash(found) and None, [])
        return found
    if isinstance(value, SequenceValue) and value.cls is tuple:
        return tuple(key_of(t, v) for v in value.values())
    cls = value.python_type()
    if cls.__hash__ not in (object.__hash__, torch.Tensor.__hash__, type.__hash__):
        from .hashing import user_key

        return user_key(t, value)
    real = getattr(value, "real", None)
    if real is None and value.source is not None and cls.__hash__ is object.__hash__:
        raise t.refuse("unknown-value", f"{value.describe()} as a key")
    t.guard("id", value.source, None, why="it is a key, which is found by identity")
    return value if real is None else real


def element_of(t: Tracer, value: Value) -> Hashable:
    """``key_of`` an element of a set. Of modules that a library notes as visited it only matters that they are different ones."""
    real, cls = getattr(value, "real", None), value.python_type()
    if not isinstance(real, torch.nn.Module) or cls.__hash__ is not object.__hash__ or not t.in_library():
        return key_of(t, value)
    t.visited.setdefault(cls, t.stack())
    return real


class DictValue(Value):
    """A dict; ``entries`` maps ``key_of(key)`` to (key, value). ``cls`` is dict, OrderedDict or defaultdict (with its ``factory``)."""

    def __init__(self, entries: dict[Any, tuple[Value, Any]], cls: type[Any] = dict, source: Source | None = None, factory: Value = NONE) -> None:
        self.entries: dict[Any, tuple[Value, Slot]] = entries
        self.cls, self.source, self.factory = cls, source, factory
        self.METHODS = methods.ORDERED if cls is OrderedDict else methods.DICT

    def python_type(self) -> type[Any]:
        return self.cls

    def plain(self, leaf: Leaf) -> Any:
        self.look()
        if self.cls is not dict and self.cls is not OrderedDict:
            return leaf(self)
        return self.cls((k.plain(leaf), force(v).plain(leaf)) for k, v in self.entries.values())

    def look(self) -> None:
        """The keys matter from here on (a dict from outside installs its guard by itself)."""

    def asked(self, at: Hashable) -> None:
        """Whether there is this one key matters from here on."""

    def get(self, t: Tracer, name: str) -> Value:
        return self.factory if name == "default_factory" and self.cls is defaultdict else super().get(t, name)

    def item(self, t: Tracer, key: Value) -> Value:
        found = self.find(t, key)
        if found is None and self.cls is defaultdict and not is_none(self.factory):
            self.set_item(t, key, found := self.factory.call(t, [], {}))
        if found is None:
            raise Raised(t.exception(KeyError, t.maybe_constant(key)))
        return found

    def find(self, t: Tracer, key: Value) -> Value | None:
        at = key_of(t, key)
        if at not in self.entries:
            self.asked(at)
            return None
        return force(self.entries[at][1])

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        self.changing(t)
        at = key_of(t, key)
        self.entries[at] = (self.entries[at][0] if at in self.entries else key, value)

    def delete_item(self, t: Tracer, key: Value) -> None:
        self.changing(t)
        at = key_of(t, key)
        self.asked(at)
        if self.entries.pop(at, None) is None:
            raise Raised(t.exception(KeyError, t.maybe_constant(key)))

    def clear(self, t: Tracer) -> None:
        self.changing(t)
        self.look()
        self.entries.clear()

    def contains(self, t: Tracer, value: Value) -> bool:
        at = key_of(t, value)
        self.asked(at)
        return at in self.entries

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return (k for k, _ in self.steps(t))

    def steps(self, t: Tracer) -> Iterator[tuple[Value, Slot]]:
        """The entries, while nobody adds or deletes some."""
        self.look()
        keys = list(self.entries)
        count = len(keys)
        for key in keys:
            if len(self.entries) != count:
                raise Raised(t.exception(RuntimeError, f"{'OrderedDict mutated' if self.cls is OrderedDict else 'dictionary changed size'} during iteration"))
            if key not in self.entries:
                raise t.refuse("unknown-value", "iteration over a dict while its keys are replaced")
            yield self.entries[key]
        if len(self.entries) != count:
            raise Raised(t.exception(RuntimeError, f"{'OrderedDict mutated' if self.cls is OrderedDict else 'dictionary changed size'} during iteration"))

    def pairs(self) -> list[tuple[Value, Value]]:
        self.look()
        return [(k, force(v)) for k, v in self.entries.values()]

    def length(self, t: Tracer) -> int:
        self.look()
        return len(self.entries)

    def truth(self, t: Tracer) -> bool:
        return self.length(t) > 0


class ExistingDict(DictValue):
    """A dict from outside: its keys are guarded once the program looks at all of them.

    ``removed`` are keys of the start that were deleted at some time; ``moved``: the order is not what deleting and setting keys gives."""

    CHANGES = True

    def __init__(self, t: Tracer, real: Any, entries: dict[Any, tuple[Value, Any]], source: Source | None) -> None:
        super().__init__(entries, type(real), source)
        self.t, self.real, self.start = t, real, dict(entries)
        self.removed: dict[Hashable, Value] = {}
        self.moved = False

    def look(self) -> None:
        self.t.guard("dict_keys", self.source, tuple(self.start), why="the program looked at the keys")

    def asked(self, at: Hashable) -> None:
        if at in self.entries and (at not in self.start or self.entries[at] is not self.start[at]):
            return  # the frame itself has set it
        self._held(at)

    def _held(self, at: Hashable) -> None:
        """Whether this key was there at the start matters from here on."""
        if at in self.removed:
            return
        if type(at) in (str, int):
            self.t.guard("has_key" if at in self.start else "no_key", self.source, at, why="the program asked for this key")
        else:
            self.look()

    def delete_item(self, t: Tracer, key: Value) -> None:
        super().delete_item(t, key)
        self._held(at := key_of(t, key))  # even if the frame has set it: what is to be deleted depends on it
        if at in self.start:
            self.removed[at] = self.start[at][0]

    def clear(self, t: Tracer) -> None:
        super().clear(t)
        self.removed.update({at: key for at, (key, _) in self.start.items()})


class DictView(Value):
    """``d.keys()``, ``d.values()`` or ``d.items()``."""

    def __init__(self, owner: DictValue, kind: str) -> None:
        self.owner, self.kind = owner, kind

    def python_type(self) -> type[Any]:
        return type(getattr({}, self.kind)())

    def iterate(self, t: Tracer) -> Iterator[Value]:
        if self.kind == "keys":
            return self.owner.iterate(t)
        steps = self.owner.steps(t)
        return (force(v) for _, v in steps) if self.kind == "values" else (SequenceValue([k, force(v)], tuple) for k, v in steps)

    def length(self, t: Tracer) -> int:
        return self.owner.length(t)

    def truth(self, t: Tracer) -> bool:
        return self.owner.truth(t)

    def contains(self, t: Tracer, value: Value) -> bool:
        return self.owner.contains(t, value) if self.kind == "keys" else any(same_or_equal(t, v, value) for v in self.iterate(t))


class SetValue(Value):
    """A set or frozenset: ``entries`` maps ``element_of(element)`` to the element. Its order is never relied upon."""

    def __init__(self, entries: dict[Any, Value], cls: type[Any] = set, source: Source | None = None) -> None:
        self.entries, self.cls, self.source = entries, cls, source
        self.METHODS = methods.SET if cls is set else methods.FROZEN

    def python_type(self) -> type[Any]:
        return self.cls

    def plain(self, leaf: Leaf) -> Any:
        return self.cls(v.plain(leaf) for v in self.entries.values())

    def contains(self, t: Tracer, value: Value) -> bool:
        return element_of(t, value) in self.entries

    def iterate(self, t: Tracer) -> Iterator[Value]:
        if len(self.entries) > 1:
            raise t.refuse("unknown-value", "iteration over a set, whose order is not fixed; sort it")
        return iter(list(self.entries.values()))

    def length(self, t: Tracer) -> int:
        return len(self.entries)

    def truth(self, t: Tracer) -> bool:
        return bool(self.entries)

    def put(self, t: Tracer, value: Value) -> None:
        self.changing(t)
        self.entries.setdefault(element_of(t, value), value)

    def drop(self, t: Tracer, value: Value) -> None:
        self.changing(t)
        self.entries.pop(element_of(t, value), None)


class ExistingSet(SetValue):
    """A set from outside: its elements are guarded once the program looks at them. ``steps``: (``set`` method, element) as they were made."""

    CHANGES = True

    def __init__(self, t: Tracer, real: set[Any], entries: dict[Any, Value], source: Source | None) -> None:
        self.inside = entries
        super().__init__(entries, type(real), source)
        self.t, self.real, self.start = t, real, tuple(real)
        self.steps: list[tuple[Any, Value]] = []

    @property
    def entries(self) -> dict[Any, Value]:
        self.t.guard("elements", self.source, self.start, why="its elements were used")
        return self.inside

    @entries.setter
    def entries(self, entries: dict[Any, Value]) -> None:
        self.inside = entries

    def changing(self, t: Tracer) -> None:
        raise t.refuse("side-effect", f"{self.describe()} is changed by more than adding and removing single elements")

    def put(self, t: Tracer, value: Value) -> None:
        t.change(self)
        self.inside.setdefault(element_of(t, value), value)
        self.steps.append((set.add, value))

    def drop(self, t: Tracer, value: Value) -> None:
        t.change(self)
        self.inside.pop(element_of(t, value), None)
        self.steps.append((set.discard, value))


def entries_of(t: Tracer, value: Value) -> dict[Any, Value]:
    """Distinct elements of an iterable, by key, as a set takes them."""
    found = value.entries.values() if isinstance(value, SetValue) else value.iterate(t)
    result: dict[Any, Value] = {}
    for v in found:
        result.setdefault(key_of(t, v), v)
    return result


def pairs_of(t: Tracer, value: Value) -> list[tuple[Value, Value]]:
    """(key, value) pairs of a dict, or of an iterable of pairs."""
    if isinstance(value, DictValue):
        return value.pairs()
    if (plain := getattr(value, "plain_pairs", None)) is not None and (found := plain()) is not None:
        return found
    hook = getattr(value, "dunder", None)
    if hook is not None and (keys := hook(t, "keys")) is not None:  # a mapping of the user's
        return [(k, value.item(t, k)) for k in keys.iterate(t)]
    pairs: list[tuple[Value, Value]] = []
    for at, pair in enumerate(value.iterate(t)):
        if pair.lacks("__iter__") and pair.lacks("__getitem__"):
            raise Raised(t.exception(TypeError, f"cannot convert dictionary update sequence element #{at} to a sequence"))
        parts = list(pair.iterate(t))
        if len(parts) != 2:
            raise Raised(t.exception(ValueError, f"dictionary update sequence element #{at} has length {len(parts)}; 2 is required"))
        pairs.append((parts[0], parts[1]))
    return pairs


from . import container_methods as methods  # noqa: E402 - its rows need the classes above
