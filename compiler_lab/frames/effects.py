"""What the frame changed outside itself: from the noted changes to ``Effect``s, and the guards that keep different objects different.

In: the changed values (``Tracer.changed``) and the recipes of what they hold now. Out: effects in an order in which nobody can tell them from
the program's own, and guards. Always holds: only the last state of each object is made, since nothing between the graph and the return
can look (user code that would see a change, such as ``__setattr__``, has run in the interpreter); the order of keys and of attributes is
the one the program would have left; where an object is changed, every object of its type that was looked at is guarded to be another one.
PyTorch's counterpart: ``torch/_dynamo/side_effects.py``.
Left out: ``__del__`` of what a change drops, which runs when the frame returns; other threads that watch.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .ir import Effect, Guard, Recipe, Source
from .recipes import constant
from .values.base import Value
from .values.classes import ClassValue
from .values.containers import DequeValue, ExistingDict, ExistingList, ExistingSet
from .values.functions import Cell, FunctionValue, Scope
from .values.modules import ModuleInstance
from .values.namespace import NamespaceValue
from .values.objects import EnumValue, ObjectValue
from .values.subclasses import ContainerObject, ExistingHeldDict, ExistingHeldList

if TYPE_CHECKING:
    from .result import Results
    from .tracer import Tracer

Changes = Iterator[Effect]


def _list(results: Results, value: ExistingList | DequeValue, target: Recipe) -> Changes:
    start, now = value.start, value.slots
    kept = len(now) >= len(start) and all(a is b for a, b in zip(start, now, strict=False))
    other = [i for i, (a, b) in enumerate(zip(start, now, strict=False)) if a is not b]
    unbounded = not isinstance(value, DequeValue) or value.maxlen is None
    if kept and unbounded:
        if added := now[len(start) :]:
            extend = list.extend if isinstance(value, ExistingList) else deque.extend
            yield Effect("call", constant(extend), None, Recipe("tuple", None, (target, Recipe("tuple", None, results.recipes(added)))))
    elif len(now) == len(start) and len(other) == 1:
        yield _set_item(list, value.real, target, constant(other[0]), results.recipe(now[other[0]]))
    else:
        yield Effect("contents", target, None, Recipe("tuple", None, results.recipes(now)))


def _dict(results: Results, value: ExistingDict, target: Recipe) -> Changes:
    if value.moved:
        pairs = [Recipe("tuple", None, results.recipes(entry)) for entry in value.entries.values()]
        yield Effect("contents", target, None, Recipe("tuple", None, tuple(pairs)))
        return
    base: Any = OrderedDict if isinstance(value.real, OrderedDict) else dict
    for key in value.removed.values():
        part = results.recipe(key)
        exact = type(value.real) in EXACT
        yield Effect("delete_item", target, part) if exact else Effect("call", constant(base.__delitem__), None, Recipe("tuple", None, (target, part)))
    for at, (key, slot) in value.entries.items():
        if at in value.removed or at not in value.start or value.start[at][1] is not slot:
            yield _set_item(base, value.real, target, results.recipe(key), results.recipe(slot))


EXACT = (list, deque, dict, OrderedDict, defaultdict)


def _set_item(base: Any, real: Any, target: Recipe, key: Recipe, part: Recipe) -> Effect:
    """By the built-in type's own method: a subclass may have another one."""
    if type(real) in EXACT:
        return Effect("item", target, key, part)
    return Effect("call", constant(base.__setitem__), None, Recipe("tuple", None, (target, key, part)))


def _set(results: Results, value: ExistingSet, target: Recipe) -> Changes:
    for method, element in value.steps:
        yield Effect("call", constant(method), None, Recipe("tuple", None, (target, results.recipe(element))))


def _object(results: Results, value: ObjectValue, target: Recipe) -> Changes:
    place = Recipe("source", Source("attr", "__dict__", value.source))
    for name in value.removed:
        yield Effect("delete_item", place, constant(name)) if value.hidden(name) else Effect("delete_attribute", target, name)
    for name, now in value.written.items():
        part = results.recipe(now)
        yield Effect("item", place, constant(name), part) if value.hidden(name) else Effect("attribute", target, name, part)


def _function(results: Results, value: FunctionValue, target: Recipe) -> Changes:
    for name, now in value.attributes.items():
        yield Effect("attribute", target, name, results.recipe(now))


def _class(results: Results, value: ClassValue, target: Recipe) -> Changes:
    for name, now in results.t.classes[value.real].items():
        yield Effect("call", constant(type.__setattr__), None, Recipe("tuple", None, (target, constant(name), results.recipe(now))))


def _cell(results: Results, value: Cell, target: Recipe) -> Changes:
    yield Effect("delete_cell", target) if value.slot is None else Effect("cell", target, None, results.recipe(value.slot))


def _scope(results: Results, value: Scope, target: Recipe) -> Changes:
    """The frame's own globals, a module's attributes, or the items of a namespace that belongs to no module."""
    kind = "global" if value.base is None else "attribute" if isinstance(value.base.key, types.ModuleType) else "item"
    delete: Any = f"delete_{kind}"
    for name in value.removed:
        yield Effect(delete, target, constant(name) if kind == "item" else name)
    for name, now in value.written.items():
        yield Effect(kind, target, constant(name) if kind == "item" else name, results.recipe(now))


EFFECTS: dict[type[Any], Callable[[Any, Any, Recipe], Changes]] = {
    ExistingList: _list,
    ExistingHeldList: _list,
    ExistingHeldDict: _dict,
    ContainerObject: _object,
    DequeValue: _list,
    ExistingDict: _dict,
    ExistingSet: _set,
    ObjectValue: _object,
    ModuleInstance: _object,
    FunctionValue: _function,
    ClassValue: _class,
    Cell: _cell,
    Scope: _scope,
}


def effects_of(results: Results) -> tuple[Effect, ...]:
    """The effects, object by object in the order of the first change. Raises ``CaptureUnsupported`` for a kind without a row."""
    made: list[Effect] = []
    for value, stack in results.t.changed.values():
        row = EFFECTS.get(type(value))
        if row is None:
            raise results.t.refuse("side-effect", value.describe() if isinstance(value, Value) else "globals")
        made += [Effect(e.kind, e.target, e.key, e.value, stack) for e in row(results, value, place(value))]
    return tuple(made)


def place(value: Value | Cell | Scope) -> Recipe:
    """How to reach a changed object."""
    if isinstance(value, Cell):
        return Recipe("source", value.source) if value.name is None else Recipe("cell", value.name)
    if isinstance(value, Scope):
        return constant(None) if value.base is None else Recipe("source", value.base)
    if isinstance(value, (ClassValue, FunctionValue)) and value.source is None:
        return constant(value.real)
    return Recipe("source", value.source)


def guard_aliases(t: Tracer) -> tuple[Guard, ...]:
    """For each type of which an object was changed, or noted as visited: all objects of it that were looked at are different ones, as they were."""
    made: list[Guard] = []
    kinds: dict[Any, Any] = dict(t.visited)
    for value, stack in t.changed.values():
        if isinstance(value, Value):
            kinds.setdefault(_kind(value), stack)
        elif isinstance(value, Cell):
            _same_functions(t)
    for kind, stack in kinds.items():
        sources = [v.source for v in t.known.values() if v.source is not None and _kind(v) is kind]
        moving = [s for s in sources if not _fixed(s)]
        if len(sources) > 1 and moving:
            made.append(Guard("not_aliased", sources[0], tuple(sources[1:]), stack, "an object of this type is changed, or was noted as visited"))
    _separate(t)
    return tuple(made)


def _kind(value: Value) -> Any:
    return dict if isinstance(value, NamespaceValue) else value.python_type()


def _fixed(source: Source) -> bool:
    return source.kind == "constant" and source.base is None


def _same_functions(t: Tracer) -> None:
    """A cell is changed: every function whose cells were looked at must have the same cells."""
    for value in list(t.known.values()):
        if isinstance(value, FunctionValue) and value.cells and value.source is not None:
            t.guard("id", value.source, None, why="a variable of an enclosing function is changed, which it may share")


def _separate(t: Tracer) -> None:
    """Refuse where what has a ``__dict__`` was changed, and that was also reached as a dict of its own; or the other way round."""
    for value in t.known.values():
        if isinstance(value, ObjectValue) and not isinstance(value, EnumValue):
            own = object.__getattribute__(value.real, "__dict__") if value.cls.__dictoffset__ and value.real is not None else None
            other = t.known.get(id(own))
            if isinstance(other, ExistingDict) and (id(value) in t.changed or id(other) in t.changed):
                raise t.refuse("side-effect", f"{value.describe()} and its __dict__")
    for value, _ in t.changed.values():
        if isinstance(value, ExistingDict) and (id(value.real) in t.scopes or _of_module(value.real)):
            raise t.refuse("side-effect", "globals, changed as a dict")
        if isinstance(value, Scope) and id(value.names) in t.known:
            raise t.refuse("side-effect", "globals, which were reached as a dict too")


def _of_module(names: dict[Any, Any]) -> bool:
    return getattr(sys.modules.get(str(names.get("__name__"))), "__dict__", None) is names
