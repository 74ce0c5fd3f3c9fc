"""Instances of users' subclasses of ``dict``, ``OrderedDict``, ``defaultdict`` and ``list``: an object around a container of the built-in kind.

In: an instance, existing or made in the frame. Out: attribute lookup as for every object; the C methods that it inherits act on ``inner``.
Always holds: what the class overrides is called where Python calls it and nowhere else: a row here says of each C method whether it goes past
the overrides (``dict.update``) or through them (``OrderedDict.update``); reading and writing from outside goes past them (``inner_item``).
PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py`` (``UserDefinedDictVariable``, ``UserDefinedListVariable``).
Left out: subclasses of ``set``, ``deque``, ``str`` and numbers, those of ``tuple`` that are no named tuples, and C methods without a row.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..ir import Source
from . import containers
from .base import NONE, Args, BoundBuiltin, Constant, Kwargs, Lazy, Method, Raised, Value, force, is_none
from .containers import DictValue, ExistingDict, ExistingList, SequenceValue, pairs_of, same_or_equal
from .lookup import find_in_class
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer

BASES: tuple[type[Any], ...] = (OrderedDict, dict, list)
HEAP_TYPE = 1 << 9


def base_of(cls: type[Any]) -> type[Any] | None:
    """The built-in container that an instance of ``cls`` is, where ``cls`` is a Python class above one of ``BASES``."""
    if not cls.__flags__ & HEAP_TYPE or cls is defaultdict:
        return None
    return next((base for base in BASES if issubclass(cls, base)), None)


class Held:
    """The items of an object, whose type is the object's; an existing one's ``source`` is the object's own."""

    owner: ContainerObject

    def python_type(self) -> type[Any]:
        return self.owner.cls


class HeldDict(Held, DictValue):
    """Of an object that was made in the frame."""


class HeldList(Held, SequenceValue):
    """Of an object that was made in the frame."""


class ExistingHeldDict(Held, ExistingDict):
    """Of an object that existed before the frame."""


class ExistingHeldList(Held, ExistingList):
    """Of an object that existed before the frame."""


Inner = HeldDict | HeldList | ExistingHeldDict | ExistingHeldList


class ContainerObject(ObjectValue):
    """An instance of a subclass of one of ``BASES``; ``inner`` holds its items, and is a container of ``base``."""

    def __init__(self, cls: type[Any], inner: Inner, base: type[Any], real: Any = None, source: Source | None = None) -> None:
        super().__init__(cls, real, source)
        self.inner, self.base = inner, base
        inner.owner, inner.cls = self, base

    def _getattribute(self) -> tuple[type[Any], Any] | None:
        own = super()._getattribute()
        return None if own is not None and own[0] in (defaultdict, dict, list) else own  # which are ``object``'s

    def overrides(self, *names: str) -> bool:
        """Whether the class has one of these methods from elsewhere than the built-in types."""
        return any(found[0] not in (OrderedDict, defaultdict, dict, list, object) for n in names if (found := find_in_class(self.cls, n)))

    def plain_pairs(self) -> list[tuple[Value, Value]] | None:
        """The items as C reads them past the overrides, where iteration is that of ``dict`` itself; None where it asks the class."""
        found = find_in_class(self.cls, "__iter__")
        return self.inner.pairs() if isinstance(self.inner, DictValue) and found is not None and found[0] is dict else None


def make(cls: type[Any]) -> ContainerObject:
    """``cls.__new__(cls)`` by the built-in type: empty."""
    base = base_of(cls)
    assert base is not None
    made = ContainerObject(cls, HeldList([], list) if base is list else HeldDict({}, base), base)
    if issubclass(cls, defaultdict):
        made.attributes["default_factory"] = NONE
    return made


def existing(t: Tracer, real: Any, source: Source) -> ContainerObject:
    """``real`` with its items, read past whatever its class overrides."""
    from .wrap import as_key

    base = base_of(type(real))
    assert base is not None
    if base is list:
        inner: Inner = ExistingHeldList(t, real, [Lazy(t, v, Source("inner_item", i, source)) for i, v in enumerate(list.__iter__(real))], source)
    else:
        items = OrderedDict.items(real) if base is OrderedDict else dict.items(real)
        inner = ExistingHeldDict(t, real, {k: (as_key(t, k), Lazy(t, v, Source("inner_item", k, source))) for k, v in items}, source)
        inner.METHODS = containers.methods.ORDERED if base is OrderedDict else containers.methods.DICT
    return ContainerObject(type(real), inner, base, real, source)


def call_held(t: Tracer, real: Any, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """A C method of a built-in container, of an instance of a subclass. Raises ``CaptureUnsupported`` for one without a row."""
    row = ROWS.get(real)
    if row is None or not issubclass(value.cls, real.__objclass__):
        raise t.refuse("unknown-callable", f"{real.__objclass__.__name__}.{real.__name__} of {value.describe()}")
    return row(t, value, args, kwargs)


def _past(name: str) -> Method:
    """The method of the built-in type, which asks nothing of the class."""
    return lambda t, value, args, kwargs: BoundBuiltin(value.inner, name).call(t, args, kwargs)


def _past_unless(name: str, *asked: str) -> Method:
    """As ``_past``, for a method that would call these if the class had them."""

    def row(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
        if value.overrides(*asked):
            raise t.refuse("unknown-callable", f"{name} of {value.describe()}, which overrides {' or '.join(asked)}")
        return BoundBuiltin(value.inner, name).call(t, args, kwargs)

    return row


def _item(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``dict.__getitem__``, which asks a subclass for ``__missing__``."""
    assert isinstance(value.inner, DictValue)
    found = value.inner.find(t, args[0])
    if found is None:
        found = value.dunder(t, "__missing__", args[0])
    if found is None:
        raise Raised(t.exception(KeyError, t.maybe_constant(args[0])))
    return found


def _attribute(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    return value.default_get(t, t.constant(args[0]))


def _missing(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``defaultdict.__missing__``, which stores through the class."""
    factory = value.slot(t, "default_factory", defaultdict.__dict__["default_factory"])
    if is_none(factory):
        raise Raised(t.exception(KeyError, t.maybe_constant(args[0])))
    value.set_item(t, args[0], made := factory.call(t, [], {}))
    return made


def _iterator(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .iterators import Steps
    from .iterators import make as make_iterator

    return make_iterator(Steps(value.inner.iterate(t)), type(iter(value.base())))


def _reversed(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .iterators import reversed_values

    return reversed_values(t, [_copy(value)], {})


def _copy(value: ContainerObject) -> Value:
    """A container of the built-in kind with the same items."""
    if isinstance(value.inner, SequenceValue):
        return SequenceValue(list(value.inner.items), list)
    value.inner.look()
    return DictValue(dict(value.inner.entries), value.base)


def _plain_copy(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``list.copy`` and ``dict.copy``, which give no subclass."""
    made = _copy(value)
    return DictValue(made.entries) if isinstance(made, DictValue) else made


def _init_dict(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1:
        raise Raised(t.exception(TypeError, f"dict expected at most 1 argument, got {len(args)}"))
    return value.inner.METHODS["update"](t, value.inner, args, kwargs)


def _init_default(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .builtins import is_callable

    if args and not is_none(args[0]) and not is_callable(t, args[0]):
        raise Raised(t.exception(TypeError, "first argument must be callable or None"))
    value.store(t, "default_factory", args[0] if args else NONE)
    return _init_dict(t, value, args[1:], kwargs)


def _pairs_through(t: Tracer, value: ContainerObject) -> Iterator[tuple[Value, Value]]:
    """(key, value) pairs as C reads them from a dict whose iteration is not ``dict``'s own: by ``keys`` and ``[]``."""
    for key in value.get(t, "keys").call(t, [], {}).iterate(t):
        yield key, value.item(t, key)


def _update_through(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``OrderedDict.update``: each item is set through the class."""
    if len(args) > 1:
        raise t.refuse("bad-call", f"update of {value.describe()} with several arguments")
    for other in args:
        for key, part in _pairs_through(t, other) if isinstance(other, ContainerObject) and other.base is not list else pairs_of(t, other):
            value.set_item(t, key, part)
    for name, part in kwargs.items():
        value.set_item(t, Constant(name), part)
    return NONE


def _default_through(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``OrderedDict.setdefault``: asks, reads and sets through the class."""
    key, default = [*args, *(kwargs[n] for n in ("key", "default")[len(args) :] if n in kwargs), NONE][:2]
    if value.contains(t, key):
        return value.item(t, key)
    value.set_item(t, key, default)
    return default


def _init_list(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 1 or kwargs:
        raise t.refuse("bad-call", "list.__init__")
    value.inner.METHODS["clear"](t, value.inner, [], {})
    return value.inner.METHODS["extend"](t, value.inner, args, {}) if args else NONE


def _same(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    """``__eq__`` of the built-in type, which looks at the items of another one past its overrides."""
    other = args[0]
    found = other.inner if isinstance(other, ContainerObject) else other
    if not issubclass(found.python_type(), list if value.base is list else dict):
        return Constant(NotImplemented)
    if isinstance(value.inner, SequenceValue) and isinstance(found, SequenceValue):
        mine, theirs = value.inner.values(), found.values()
        return Constant(len(mine) == len(theirs) and all(same_or_equal(t, a, b) for a, b in zip(mine, theirs, strict=True)))
    if not isinstance(value.inner, DictValue) or not isinstance(found, DictValue):
        raise t.refuse("unknown-value", f"equality of {value.describe()} and {other.describe()}")
    mine, theirs = value.inner.pairs(), found.pairs()
    if len(mine) != len(theirs) or {*value.inner.entries} != {*found.entries}:
        return Constant(False)
    alike = all(same_or_equal(t, part, force(found.entries[at][1])) for at, (_, part) in zip(value.inner.entries, mine, strict=True))
    ordered = value.base is OrderedDict and found.cls is OrderedDict
    return Constant(alike and (not ordered or [*value.inner.entries] == [*found.entries]))


def _different(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    found = _same(t, value, args, kwargs)
    return found if isinstance(found, Constant) and found.value is NotImplemented else Constant(not found.truth(t))


def _concatenated(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .operators import binary

    other = args[0]
    if isinstance(other, ContainerObject) and other.base is not list:
        raise t.refuse("unknown-value", f"{value.describe()} + {other.describe()}")
    return binary(t, "+", _copy(value), _copy(other) if isinstance(other, ContainerObject) else other)


def _extended(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    value.inner.METHODS["extend"](t, value.inner, args, {})
    return value


def _repeated(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .operators import binary

    return binary(t, "*", _copy(value), args[0])


def _text(t: Tracer, value: ContainerObject, args: Args, kwargs: Kwargs) -> Value:
    from .strings import text_of

    return Constant(text_of(t, _plain_copy(t, value, args, kwargs), "__repr__"))


PAST: dict[type[Any], tuple[str, ...]] = {
    dict: (
        *("keys", "values", "items", "get", "setdefault", "pop", "popitem", "update", "clear"),
        *("__len__", "__contains__", "__setitem__", "__delitem__"),
    ),
    OrderedDict: ("keys", "values", "items", "clear", "move_to_end", "__setitem__", "__delitem__"),
    list: (
        *("append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort", "index", "count"),
        *("__len__", "__getitem__", "__contains__", "__setitem__", "__delitem__"),
    ),
}
THROUGH = ("__contains__", "__getitem__", "__delitem__", "__missing__")  # what C may ask an OrderedDict's subclass for
ROWS: dict[Any, Method] = {
    **{getattr(base, name): _past(name) for base, names in PAST.items() for name in names},
    **{base.__iter__: _iterator for base in BASES},
    **{base.__reversed__: _reversed for base in BASES},
    **{base.__eq__: _same for base in BASES},
    **{base.__ne__: _different for base in BASES},
    dict.__getattribute__: _attribute,
    defaultdict.__getattribute__: _attribute,
    list.__getattribute__: _attribute,
    dict.__getitem__: _item,
    dict.__init__: _init_dict,
    dict.copy: _plain_copy,
    dict.__repr__: _text,
    OrderedDict.__init__: _update_through,
    OrderedDict.update: _update_through,
    OrderedDict.setdefault: _default_through,
    OrderedDict.pop: _past_unless("pop", *THROUGH),
    OrderedDict.popitem: _past_unless("popitem", *THROUGH),
    defaultdict.__init__: _init_default,
    defaultdict.__missing__: _missing,
    list.__init__: _init_list,
    list.copy: _plain_copy,
    list.__repr__: _text,
    list.__add__: _concatenated,
    list.__iadd__: _extended,
    list.__mul__: _repeated,
    list.__rmul__: _repeated,
}


def new(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``dict.__new__(cls, ...)`` and ``list.__new__(cls, ...)``: empty, whatever is given beside the class."""
    from .classes import ClassValue

    if not args or not isinstance(args[0], ClassValue):
        raise t.refuse("bad-call", "__new__ of a built-in container")
    real = args[0].real
    if real in (dict, OrderedDict):
        return DictValue({}, real)
    if real is list:
        return SequenceValue([], list)
    if base_of(real) is None:
        raise t.refuse("unknown-callable", f"__new__ of {args[0].describe()}")
    return make(real)
