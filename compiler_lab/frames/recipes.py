"""How each kind of value that was made inside the frame is put together again: one row each.

In: a value, and the recipes of what it holds. Out: a ``Recipe``; for one that holds itself, an empty one and the effects that fill it.
Always holds: what Python gives for the recipe cannot be told from what the program itself would have made; a kind without a row is refused.
PyTorch's counterpart: ``reconstruct`` of the classes in ``torch/_dynamo/variables``. Left out: suspended generators, exceptions that have
been raised (their traceback is Python's).
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ir import Effect, Recipe, Source
from .rebuild import refill
from .values.base import BoundBuiltin, PureMethod, Slot
from .values.containers import DequeValue, DictValue, DictView, SequenceValue, SetValue, SliceValue
from .values.functions import Cell, FunctionValue, MethodValue, PartialValue, Scope
from .values.iterators import IteratorValue
from .values.namespace import NamespaceValue
from .values.objects import ExceptionValue, ObjectValue, SuperValue
from .values.subclasses import ContainerObject, HeldDict, HeldList
from .values.tensor import TensorMethod

if TYPE_CHECKING:
    from .result import Results

Part = Slot | Cell
Parts = tuple[Recipe, ...]


@dataclass(frozen=True)
class Row:
    """``parts`` of a value, in order; ``make`` it from their recipes. What can hold itself is made ``empty`` and then filled."""

    parts: Callable[[Any], list[Part]]
    make: Callable[[Results, Any, Parts], Recipe]
    empty: Callable[[Results, Any], Recipe] | None = None
    fill: Callable[[Recipe, Any, Parts], Iterator[Effect]] | None = None
    after: Callable[[Recipe, Any, Parts], Iterator[Effect]] | None = None  # what ``make`` cannot say, for values that are ``late``
    late: Callable[[Any], bool] = lambda value: False


def constant(value: Any) -> Recipe:
    return Recipe("constant", value)


def call(function: Callable[..., Any], *parts: Recipe) -> Recipe:
    return Recipe("call", function, parts)


# containers


def _sequence(results: Results, value: SequenceValue, parts: Parts) -> Recipe:
    if value.cls in (list, tuple):
        return Recipe("list" if value.cls is list else "tuple", None, parts)
    if hasattr(value.cls, "_fields"):
        return call(value.cls._make, Recipe("tuple", None, parts))  # type: ignore[attr-defined]
    return call(value.cls, Recipe("tuple", None, parts))


def _deque(results: Results, value: DequeValue, parts: Parts) -> Recipe:
    return call(deque, Recipe("tuple", None, parts), constant(value.maxlen))


def _contents(target: Recipe, value: SequenceValue, parts: Parts) -> Iterator[Effect]:
    yield Effect("contents", target, None, Recipe("tuple", None, parts))


def _dict_parts(value: DictValue) -> list[Part]:
    if value.cls is defaultdict:
        return [value.factory, *_dict_parts(DictValue(value.entries))]
    return [*(k for k, _ in value.entries.values()), *(v for _, v in value.entries.values())]


def _plain_dict(parts: Parts) -> Recipe:
    """A dict from the recipes of its keys, then of its values."""
    keys, values = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    if all(k.kind == "constant" for k in keys):
        return Recipe("dict", tuple(k.value for k in keys), values)
    return call(dict, call(zip, Recipe("tuple", None, keys), Recipe("tuple", None, values)))


def _dict(results: Results, value: DictValue, parts: Parts) -> Recipe:
    if value.cls is defaultdict:
        return call(defaultdict, parts[0], _plain_dict(parts[1:]))
    return _plain_dict(parts) if value.cls is dict else call(value.cls, _plain_dict(parts))


def _empty_dict(results: Results, value: DictValue) -> Recipe:
    return Recipe("dict", ()) if value.cls is dict else call(value.cls)


def _fill_dict(target: Recipe, value: DictValue, parts: Parts) -> Iterator[Effect]:
    if value.cls is defaultdict:
        yield Effect("attribute", target, "default_factory", parts[0])
    yield Effect("contents", target, None, _plain_dict(parts[value.cls is defaultdict :]))


def _set(results: Results, value: SetValue, parts: Parts) -> Recipe:
    return Recipe("set", None, parts) if value.cls is set else call(frozenset, Recipe("tuple", None, parts))


def _view(results: Results, value: DictView, parts: Parts) -> Recipe:
    return call(getattr(OrderedDict if value.owner.cls is OrderedDict else dict, value.kind), *parts)


# functions


def _function_parts(value: FunctionValue) -> list[Part]:
    noted = [value.annotations] if value.annotations is not None else []
    return [*value.cells, *value.defaults, *value.kwdefaults.values(), *value.attributes.values(), *noted]


def _function(results: Results, value: FunctionValue, parts: Parts) -> Recipe:
    cells, defaults = parts[: len(value.cells)], parts[len(value.cells) :][: len(value.defaults)]
    pieces = (namespace(value.scope), constant(value.name), Recipe("tuple", None, defaults) if defaults else constant(None))
    return Recipe("function", value.code, (*pieces, Recipe("tuple", None, cells) if cells else constant(None)))


def _function_after(target: Recipe, value: FunctionValue, parts: Parts) -> Iterator[Effect]:
    rest = list(parts[len(value.cells) + len(value.defaults) :])
    if value.kwdefaults:
        yield Effect("attribute", target, "__kwdefaults__", Recipe("dict", tuple(value.kwdefaults), tuple(rest[: len(value.kwdefaults)])))
    rest = rest[len(value.kwdefaults) :]
    for name, part in zip(value.attributes, rest, strict=False):
        yield Effect("attribute", target, name, part)
    if value.annotations is not None:
        yield Effect("attribute", target, "__annotations__", rest[-1])


def namespace(scope: Scope) -> Recipe:
    """The globals dict of a function's scope."""
    if scope.base is None:
        return call(globals)
    module = isinstance(scope.base.key, types.ModuleType)
    return Recipe("source", Source("attr", "__dict__", scope.base) if module else scope.base)


def _method(results: Results, value: MethodValue, parts: Parts) -> Recipe:
    if isinstance(value.function, FunctionValue):
        return call(types.MethodType, *parts)
    kind: Any = type(getattr(value.function, "real", None))
    if not hasattr(kind, "__get__"):
        raise results.refuse(value.describe())
    return call(kind.__get__, *parts)


def _bound(results: Results, value: BoundBuiltin | TensorMethod, parts: Parts) -> Recipe:
    """``items.append``, where the owner's class itself has the method."""
    cls = value.owner.python_type()
    if not hasattr(cls, value.name) or (isinstance(value, BoundBuiltin) and cls.__module__ not in ("builtins", "collections")):
        raise results.refuse(value.describe())
    return call(getattr, *parts, constant(value.name))


def _partial(results: Results, value: PartialValue, parts: Parts) -> Recipe:
    count = 1 + len(value.args)
    return call(make_partial, *parts[:1], Recipe("tuple", None, parts[1:count]), Recipe("dict", tuple(value.kwargs), parts[count:]))


def make_partial(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> functools.partial[Any]:
    return functools.partial(function, *args, **kwargs)


# objects


def _object_parts(value: ObjectValue) -> list[Part]:
    return list(value.attributes.values())


def _object(results: Results, value: ObjectValue, parts: Parts) -> Recipe:
    if value.cls is object:
        return call(object)
    shown = [(name, part) for name, part in zip(value.attributes, parts, strict=True) if not value.hidden(name)]
    return call(rebuild, constant(value.cls), constant(tuple(n for n, _ in shown)), *(p for _, p in shown))


def _empty_object(results: Results, value: ObjectValue) -> Recipe:
    return call(rebuild, constant(value.cls), constant(()))


def _fill_object(target: Recipe, value: ObjectValue, parts: Parts) -> Iterator[Effect]:
    for name, part in zip(value.attributes, parts, strict=True):
        yield Effect("item", call(vars, target), constant(name), part) if value.hidden(name) else Effect("attribute", target, name, part)


def _object_after(target: Recipe, value: ObjectValue, parts: Parts) -> Iterator[Effect]:
    for name, part in zip(value.attributes, parts, strict=True):
        if value.hidden(name):
            yield Effect("item", call(vars, target), constant(name), part)


def rebuild(cls: type[Any], names: tuple[str, ...], *parts: Any) -> Any:
    """An instance of ``cls`` with these attributes, as its ``__init__`` left it."""
    made = object.__new__(cls)
    for name, part in zip(names, parts, strict=False):
        object.__setattr__(made, name, part)
    return made


def _held_parts(value: ContainerObject) -> list[Part]:
    return [*_items(value), *value.attributes.values()]


def _items(value: ContainerObject) -> list[Part]:
    return list(value.inner.slots) if isinstance(value.inner, SequenceValue) else _dict_parts(value.inner)


def _contents_of(value: ContainerObject, parts: Parts) -> tuple[Recipe, Parts]:
    """Its items, as a tuple or dict of the built-in kind, and the recipes of its attributes."""
    count = len(_items(value))
    return Recipe("tuple", None, parts[:count]) if isinstance(value.inner, SequenceValue) else _plain_dict(parts[:count]), parts[count:]


def _held(results: Results, value: ContainerObject, parts: Parts) -> Recipe:
    contents, attributes = _contents_of(value, parts)
    shown = [(name, part) for name, part in zip(value.attributes, attributes, strict=True) if not value.hidden(name)]
    return call(rebuild_held, constant(value.cls), contents, constant(tuple(n for n, _ in shown)), *(p for _, p in shown))


def _empty_held(results: Results, value: ContainerObject) -> Recipe:
    return call(rebuild_held, constant(value.cls), Recipe("tuple"), constant(()))


def _fill_held(target: Recipe, value: ContainerObject, parts: Parts) -> Iterator[Effect]:
    contents, attributes = _contents_of(value, parts)
    yield Effect("contents", target, None, contents)
    yield from _fill_object(target, value, attributes)


def _held_after(target: Recipe, value: ContainerObject, parts: Parts) -> Iterator[Effect]:
    yield from _object_after(target, value, _contents_of(value, parts)[1])


def rebuild_held(cls: type[Any], contents: Any, names: tuple[str, ...], *parts: Any) -> Any:
    """An instance of a subclass of a built-in container with these items and attributes, past its ``__new__``, ``__init__`` and overrides."""
    base: Any = list if issubclass(cls, list) else dict
    made = base.__new__(cls)
    refill(made, contents)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _exception_parts(value: ExceptionValue) -> list[Part]:
    return [*value.args, *value.attributes.values()]


def _exception(results: Results, value: ExceptionValue, parts: Parts) -> Recipe:
    if value.raised or value.chain:
        raise results.refuse(f"{value.describe()} that was raised")
    count = len(value.args)
    return call(make_exception, constant(value.cls), Recipe("tuple", None, parts[:count]), constant(tuple(value.attributes)), *parts[count:])


def make_exception(cls: type[BaseException], args: tuple[Any, ...], names: tuple[str, ...], *parts: Any) -> BaseException:
    """An exception as its constructor left it; ``__new__`` keeps the arguments, whatever ``__init__`` is."""
    made = cls.__new__(cls, *args)
    BaseException.__init__(made, *args)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _iterator(results: Results, value: IteratorValue, parts: Parts) -> Recipe:
    """At the place where it is. Built inline and once only: what is shared is built before the effects, which may move what it runs over."""
    if value.origin is None or results.uses(value) > 1:
        raise results.refuse(value.describe() if value.origin is None else f"{value.describe()} that is held twice")
    taken = () if value.origin.steps is None else (constant(value.origin.first + value.origin.steps.taken),)
    return call(value.origin.function, *parts, *taken)


def _cell(results: Results, value: Cell, parts: Parts) -> Recipe:
    return Recipe("cell", None, parts)


def _fill_cell(target: Recipe, value: Cell, parts: Parts) -> Iterator[Effect]:
    yield Effect("cell", target, None, parts[0])


RECIPES: dict[type[Any], Row] = {
    SequenceValue: Row(lambda v: list(v.slots), _sequence, lambda r, v: Recipe("list"), _contents),
    DequeValue: Row(lambda v: list(v.slots), _deque, lambda r, v: call(deque, Recipe("tuple"), constant(v.maxlen)), _contents),
    DictValue: Row(_dict_parts, _dict, _empty_dict, _fill_dict),
    SetValue: Row(lambda v: list(v.entries.values()), _set),
    SliceValue: Row(lambda v: [v.start, v.stop, v.step], lambda r, v, parts: Recipe("slice", None, parts)),
    DictView: Row(lambda v: [v.owner], _view),
    NamespaceValue: Row(lambda v: [v.owner], lambda r, v, parts: call(vars, *parts)),
    FunctionValue: Row(_function_parts, _function, after=_function_after, late=lambda v: bool(v.kwdefaults or v.attributes or v.annotations)),
    MethodValue: Row(lambda v: [v.function, v.owner], _method),
    BoundBuiltin: Row(lambda v: [v.owner], _bound),
    TensorMethod: Row(lambda v: [v.owner], _bound),
    PureMethod: Row(lambda v: [], lambda r, v, parts: constant(v.real)),
    PartialValue: Row(lambda v: [v.function, *v.args, *v.kwargs.values()], _partial),
    SuperValue: Row(lambda v: [v.obj], lambda r, v, parts: call(super, constant(v.cls), *parts)),
    ObjectValue: Row(_object_parts, _object, _empty_object, _fill_object, _object_after, lambda v: any(map(v.hidden, v.attributes))),
    ContainerObject: Row(_held_parts, _held, _empty_held, _fill_held, _held_after, lambda v: any(map(v.hidden, v.attributes))),
    HeldDict: Row(lambda v: [v.owner], lambda r, v, parts: parts[0]),
    HeldList: Row(lambda v: [v.owner], lambda r, v, parts: parts[0]),
    ExceptionValue: Row(_exception_parts, _exception),
    IteratorValue: Row(lambda v: [] if v.origin is None else list(v.origin.values), _iterator),
    Cell: Row(lambda v: [] if v.slot is None else [v.slot], _cell, lambda r, v: Recipe("cell"), _fill_cell),
}


def is_fillable(value: Any) -> bool:
    """Can one hold itself? Of the sequences only lists can, which have no class of their own here."""
    row = RECIPES.get(type(value))
    return row is not None and row.empty is not None and not (type(value) is SequenceValue and value.cls is not list)
