"""Calling a class: builtin types, exceptions, named tuples and instances of users' classes.

In: a class and arguments. Out: a value of that class. Always holds: constructors run by inlining ``__new__`` and ``__init__``, or by a
row here; a class made by an unknown metaclass is refused. PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py``.
"""

from __future__ import annotations

import functools
import itertools
import random
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from . import iterators, stdlib, strings, subclasses
from .base import NONE, Args, Constant, Kwargs, Raised, Value
from .builtins import TYPE_OF, Handler
from .classes import ClassValue
from .containers import DequeValue, DictValue, SequenceValue, SetValue, SliceValue, entries_of
from .contexts import CONTEXTS
from .functions import MethodValue, PartialValue
from .lookup import KNOWN_METACLASSES, bind, is_library_module, lookup
from .modules import make_group, make_module
from .objects import ExceptionValue, ObjectValue, SuperValue
from .symbolic import convert
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer


def construct(t: Tracer, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    real = cls.real
    row = CONSTRUCTORS.get(real)
    if hasattr(real, "__del__"):
        raise t.refuse("unknown-callable", f"{real.__name__}, whose __del__ runs when its objects are dropped")
    if row is not None:
        return row(t, args, kwargs)
    if issubclass(real, torch.nn.Module) and is_library_module(real.__module__):
        return make_module(t, real, args, kwargs)
    if issubclass(real, (torch.nn.Parameter, torch.Tensor)):
        raise t.refuse("module-created" if real is not torch.Tensor else "op-refused", real.__name__)
    if real.__module__.partition(".")[0] == "numpy":
        raise t.refuse("numpy", real.__name__)
    if issubclass(real, random.Random):
        raise t.refuse("random", real.__name__)
    if real in FOLDED:
        return t.fold(real, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
    if type(real) not in KNOWN_METACLASSES and not _called_as_type(t, real):
        raise t.refuse("unknown-callable", f"{cls.describe()}, which has the metaclass {type(real).__name__}")
    if issubclass(real, BaseException):
        return _exception(t, cls, args, kwargs)
    if hasattr(real, "__members__"):
        return t.fold(real, [t.constant(a) for a in args])
    return _instance(t, cls, args, kwargs)


def _called_as_type(t: Tracer, real: type[Any]) -> bool:
    """Whether calling the class is ``type.__call__``, whatever else its metaclass defines."""
    found = lookup(t, type(real), "__call__")
    return found is not None and found[0] is type


def _instance(t: Tracer, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """``cls.__new__(cls, ...)`` then ``__init__``."""
    real = cls.real
    new = lookup(t, real, "__new__")
    init = lookup(t, real, "__init__")
    assert new is not None and init is not None
    if isinstance(new[1], staticmethod) and isinstance(new[1].__func__, types.FunctionType):
        made = bind(t, cls, real, new[0], "__new__", new[1]).call(t, [cls, *args], kwargs)
    elif new[0] is object and real.__flags__ & (1 << 9):
        if real.__flags__ & (1 << 20):  # abstract: object.__new__ says so
            t.fold(lambda: object.__new__(real) and None, [])
        made = ObjectValue(real)
    elif new[0] in (dict, list) and subclasses.base_of(real) is not None:
        made = subclasses.make(real)
    else:
        raise t.refuse("unknown-callable", f"{cls.describe()}, which is made in C")
    if issubclass(made.python_type(), real) and isinstance(init[1], types.FunctionType):
        bind(t, made, real, init[0], "__init__", init[1]).call(t, args, kwargs)
    elif isinstance(made, subclasses.ContainerObject) and issubclass(made.cls, real):
        subclasses.call_held(t, init[1], made, args, kwargs)
    elif init[0] is object and (args or kwargs) and new[0] is object:
        raise t.refuse("bad-call", f"{real.__name__}() takes no arguments")
    return made


def _exception(t: Tracer, cls: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    if (new := lookup(t, cls.real, "__new__")) is not None and isinstance(new[1], staticmethod):
        raise t.refuse("exception", f"{cls.real.__name__} defines __new__")
    made = ExceptionValue(cls.real, args)
    init = lookup(t, cls.real, "__init__")
    if init is not None and isinstance(init[1], types.FunctionType):
        bind(t, made, cls.real, init[0], "__init__", init[1]).call(t, args, kwargs)
    elif kwargs:
        raise t.refuse("exception", f"{cls.real.__name__} with keyword arguments")
    return made


def _list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SequenceValue(list(args[0].iterate(t)) if args else [], list)


def _tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args and isinstance(args[0], SequenceValue) and args[0].cls is tuple:
        return args[0]
    return SequenceValue(list(args[0].iterate(t)) if args else [], tuple)


def _size(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.fold(torch.Size, [[t.constant(v) for v in args[0].iterate(t)]] if args else [])


def _dict(cls: type[Any]) -> Handler:
    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue({}, cls)
        made.METHODS["update"](t, made, args, kwargs)
        return made

    return row


def _default_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({}, defaultdict, None, args[0] if args else NONE)
    made.METHODS["update"](t, made, args[1:], kwargs)
    return made


def _deque(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bound = kwargs.get("maxlen") or (args[1] if len(args) > 1 else NONE)
    iterable = args[0] if args else kwargs.get("iterable")
    return DequeValue(list(iterable.iterate(t)) if iterable is not None else [], t.constant(bound))


def _set(cls: type[Any]) -> Handler:
    return lambda t, args, kwargs: SetValue(entries_of(t, args[0]) if args else {}, cls)


def _slice(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    start, stop, step = (NONE, *args, NONE) if len(args) == 1 else (*args, NONE)[:3]
    return SliceValue(start, stop, step)


NO_NUMBER = {
    int: "int() argument must be a string, a bytes-like object or a real number, not '{}'",
    float: "float() argument must be a string or a real number, not '{}'",
    complex: "complex() first argument must be a string or a number, not '{}'",
}


def _number(cls: type[Any]) -> Handler:
    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if args and isinstance(args[0], ObjectValue):
            for name in (f"__{cls.__name__}__", "__index__"):
                found = args[0].dunder(t, name)
                if found is not None:
                    return t.fold(cls, [t.constant(found)]) if name == "__index__" else found
            raise Raised(t.exception(TypeError, NO_NUMBER[cls].format(args[0].cls.__name__)))
        if args and isinstance(args[0], TensorValue) and t.shapes.history.scalars and not kwargs:
            return row(t, [args[0].get(t, "item").call(t, [], {})], {})
        if (found := convert(t, cls, args, kwargs)) is not None:
            return found
        return t.fold(cls, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})

    return row


def _bool(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(args[0].truth(t) if args else False)


def _partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    inner = args[0]
    if isinstance(inner, PartialValue):
        return PartialValue(inner.function, [*inner.args, *args[1:]], {**inner.kwargs, **kwargs})
    return PartialValue(inner, list(args[1:]), dict(kwargs))


def _super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        cls, obj = args
    else:
        cls, obj = t.frames[-1].super_arguments()
    if not isinstance(cls, ClassValue):
        raise t.refuse("unknown-callable", "super() of something that is not a class")
    return SuperValue(cls.real, obj)


def _object(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ObjectValue(object)


CONSTRUCTORS: dict[type[Any], Handler] = {
    list: _list,
    tuple: _tuple,
    torch.Size: _size,
    dict: _dict(dict),
    OrderedDict: _dict(OrderedDict),
    defaultdict: _default_dict,
    deque: _deque,
    set: _set(set),
    frozenset: _set(frozenset),
    slice: _slice,
    int: _number(int),
    float: _number(float),
    complex: _number(complex),
    bool: _bool,
    str: strings.to_text,
    type: TYPE_OF,
    object: _object,
    super: _super,
    enumerate: iterators.enumerate_values,
    zip: iterators.zip_values,
    map: iterators.map_values,
    filter: iterators.filter_values,
    reversed: iterators.reversed_values,
    functools.partial: _partial,
    types.MethodType: lambda t, args, kwargs: MethodValue(args[0], args[1]),
    itertools.chain: iterators.chain,
    itertools.islice: iterators.islice,
    itertools.product: iterators.product,
    itertools.combinations: iterators.combinations,
    itertools.permutations: iterators.permutations,
    itertools.pairwise: iterators.pairwise,
    itertools.count: iterators.count,
    itertools.repeat: iterators.repeat,
    itertools.accumulate: iterators.accumulate,
    itertools.starmap: iterators.starmap,
    itertools.zip_longest: iterators.zip_longest,
    torch.nn.ModuleList: make_group,
    **stdlib.CLASSES,
    **CONTEXTS,
}
FOLDED: frozenset[type[Any]] = frozenset({range, bytes, torch.device, torch.finfo, torch.iinfo})
