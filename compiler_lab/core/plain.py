"""Values as plain data and back, and what tells one piece of a program from another: for what is kept between processes.

In: constants of a program, torch's own values, and things that have a name in a module (functions, classes, modules, operators). Out: nests of
tuples that ``marshal`` writes, and the values again; ``print_of`` a function, class or code object, equal only for equal content.
Always holds: nothing is pickled and no object of the program's is copied; what is reached by its name is that very object, in both processes,
or ``NotPlain``; reading data back imports nothing but modules of this package and calls nothing of the program's.
PyTorch's counterpart: ``torch/_dynamo/package.py`` and ``torch/_inductor/codecache.py`` (``FxGraphCachePickler``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from .provenance import is_library

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(...))
C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType)
NAMED = (types.FunctionType, type, *C_FUNCTIONS)
OWN = __name__.partition(".")[0]
LARGEST = 1 << 20
"""Bytes of a tensor that is kept as data."""


class NotPlain(Exception):
    """``reason``: one of ``REASONS``; ``what`` could not be written, or is not here."""

    def __init__(self, reason: str, what: str) -> None:
        self.reason, self.what = reason, what
        super().__init__(f"{REASONS[reason]}: {what}")


REASONS = {
    "unnamed": "an object that no module has under its name",
    "value": "a value that has no form as data",
    "code": "functions that are made in the frame",
    "warning": "warnings that name their line",
    "break": "a frame that goes on in Python",
    "guard": "a guard that only holds for an object of this process",
    "symbolic": "sizes that vary",
    "custom": "operators that are watched",
    "backend": "no kernels of this compiler's",
    "process": "something that may be another thing in another process",
    "moved": "something by that name is another thing here",
}


def encode(value: Any) -> Any:
    """``value`` as atoms and tuples. Raises ``NotPlain``."""
    kind = type(value)
    if kind in ATOMS:
        return value
    row = ROWS.get(kind)
    if row is not None:
        return (kind.__name__, row[0](value))
    if isinstance(value, (types.ModuleType, *NAMED)):
        return ("name", *name_of(value))
    raise NotPlain("value", f"a {kind.__module__}.{kind.__qualname__}")


def decode(data: Any) -> Any:
    """What ``encode`` was given. Raises ``NotPlain`` where a name leads nowhere."""
    if type(data) is not tuple:
        return data
    tag, *rest = data
    return named(*rest) if tag == "name" else READ[tag](rest[0])


def _parts(value: Any) -> tuple[Any, ...]:
    return tuple(map(encode, value))


def _pairs(value: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple((encode(k), encode(x)) for k, x in value.items())


def _decoded(data: Any) -> list[Any]:
    return [decode(d) for d in data]


def _operator(name: str) -> Any:
    """``aten.mm.default``, or the packet ``aten.mm``."""
    if name.startswith(f"{OWN}."):
        importlib.import_module(f"{OWN}.core.philox")  # which defines them
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise NotPlain("moved", name)
    return found


def _tensor(value: torch.Tensor) -> Any:
    if (
        value.layout is not torch.strided
        or value.device.type != "cpu"
        or value.requires_grad
        or value.nbytes > LARGEST
        or 0 in value.stride()
        or value.is_conj()
        or value.is_neg()
    ):
        raise NotPlain("value", "a tensor that is large, expanded, differentiated or not plain")
    dense = torch.empty(value.shape, dtype=value.dtype).copy_(value)
    return str(value.dtype), tuple(value.shape), value.stride(), bytes(dense.reshape(-1).view(torch.uint8).numpy()) if value.numel() else b""


def _tensor_from(data: Any) -> torch.Tensor:
    dtype, size, stride, raw = data
    kind = getattr(torch, dtype.partition(".")[2])
    dense = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(kind).view(size) if raw else torch.empty(size, dtype=kind)
    return torch.empty_strided(size, stride, dtype=kind).copy_(dense)


ROWS: dict[type[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (_parts, lambda d: tuple(_decoded(d))),
    list: (_parts, _decoded),
    immutable_list: (_parts, _decoded),  # in arguments that come from a graph
    immutable_dict: (lambda v: _pairs(v), lambda d: {decode(k): decode(x) for k, x in d}),
    torch.Size: (tuple, torch.Size),
    set: (lambda v: _parts(sorted(v, key=repr)), lambda d: set(_decoded(d))),
    frozenset: (lambda v: _parts(sorted(v, key=repr)), lambda d: frozenset(_decoded(d))),
    dict: (lambda v: _pairs(v), lambda d: {decode(k): decode(x) for k, x in d}),
    slice: (lambda v: _parts((v.start, v.stop, v.step)), lambda d: slice(*_decoded(d))),
    range: (lambda v: (v.start, v.stop, v.step), lambda d: range(*d)),
    torch.dtype: (str, lambda d: getattr(torch, d.partition(".")[2])),
    torch.layout: (str, lambda d: getattr(torch, d.partition(".")[2])),
    torch.memory_format: (str, lambda d: getattr(torch, d.partition(".")[2])),
    torch.device: (str, torch.device),
    torch._ops.OpOverload: (str, _operator),
    torch._ops.OpOverloadPacket: (lambda v: str(v._qualified_op_name).replace("::", "."), _operator),
    torch.Tensor: (_tensor, _tensor_from),
}
READ = {kind.__name__: row[1] for kind, row in ROWS.items()}


def name_of(value: Any) -> tuple[str, str]:
    """(module, name in it); '' for the module itself. Raises ``NotPlain`` where the name gives something else."""
    for module, name in _names(value):
        try:
            here = named(module, name)
        except NotPlain:
            continue
        if here is value or (isinstance(value, types.BuiltinFunctionType) and type(here) is type(value) and here == value):  # a class method is bound anew
            return module, name
    raise NotPlain("unnamed", f"{type(value).__name__} {getattr(value, '__qualname__', '')}")


def _names(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, types.ModuleType):
        yield value.__name__, ""
        return
    module = getattr(value, "__module__", None) or ""
    yield module, value.__qualname__
    yield module, value.__name__  # a function of torch that C++ defines is at home in a class that torch hides
    for owner in (getattr(value, "__objclass__", None), getattr(value, "__self__", None)):
        if isinstance(owner, type):
            yield owner.__module__, f"{owner.__qualname__}.{value.__name__}"
    yield from (("types", name) for name, one in vars(types).items() if one is value)


def named(module: str, name: str) -> Any:
    """What ``module`` has under the dotted ``name``. Raises ``NotPlain``."""
    found: Any = sys.modules.get(module)
    if found is None and module.partition(".")[0] == OWN:
        found = importlib.import_module(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    if found is None:
        raise NotPlain("moved", f"{module}.{name}")
    return found


# ------------------------------------------------------------------------------------------------------------- prints


def print_of(value: Any) -> Any:
    """Plain data that says what a thing is, equal only for things that mean the same to code that reads them; for what is no code, its kind."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if (row := PRINTS.get(kind)) is not None:
        return row(value)
    if isinstance(value, type):
        return class_print(value)
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__)
    try:
        return encode(value)
    except NotPlain:
        return ("a", kind.__module__, kind.__qualname__, getattr(value, "__qualname__", ""))


def _function_print(f: types.FunctionType) -> Any:
    shape = (len(f.__defaults__ or ()), tuple(f.__kwdefaults__ or ()), len(f.__closure__ or ()))
    return ("function", f.__module__, f.__qualname__, shape, code_print(f.__code__))


def class_print(cls: type[Any]) -> Any:
    """Names of the classes it inherits from; of those that are the user's also what they define."""
    return ("class", *((c.__module__, c.__qualname__, () if _is_librarys(c) else _definitions(c)) for c in cls.__mro__))


def _definitions(cls: type[Any]) -> Any:
    return tuple((name, print_of(value)) for name, value in sorted(vars(cls).items()) if type(value) in ATOMS or type(value) in PRINTS)


def _is_librarys(cls: type[Any]) -> bool:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return cls.__module__ != "__main__" and cls.__module__ in sys.modules and (file is None or is_library(file))


@functools.lru_cache(maxsize=4096)
def code_print(code: types.CodeType) -> str:
    """A hash of what the code does: names, constants and instructions, without where it stands."""
    digest = hashlib.sha256()
    _feed(digest.update, code)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: Any) -> None:
    if isinstance(value, types.CodeType):
        parts: Any = (
            value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags, value.co_names, value.co_varnames, value.co_cellvars,
            value.co_freevars, value.co_name, value.co_qualname, value.co_code, value.co_exceptiontable, value.co_consts,
        )  # fmt: skip
        update(b"code")
        _feed(update, parts)
    elif isinstance(value, (tuple, frozenset)):
        items = value if isinstance(value, tuple) else sorted(value, key=lambda v: (type(v).__name__, repr(v)))
        update(f"{type(value).__name__}{len(items)}".encode())
        for item in items:
            _feed(update, item)
    else:
        text = value if isinstance(value, bytes) else repr(value).encode()
        update(f"{type(value).__name__}{len(text)}:".encode() + text)


PRINTS: dict[type[Any], Callable[[Any], Any]] = {
    types.FunctionType: _function_print,
    types.CodeType: lambda c: ("code", code_print(c)),
    staticmethod: lambda v: ("static", print_of(v.__func__)),
    classmethod: lambda v: ("class", print_of(v.__func__)),
    property: lambda v: ("property", *map(print_of, (v.fget, v.fset, v.fdel))),
    functools._lru_cache_wrapper: lambda v: ("cached", print_of(v.__wrapped__)),
    functools.partial: lambda v: ("partial", print_of(v.func), *map(print_of, v.args), *((k, print_of(x)) for k, x in v.keywords.items())),
    operator.attrgetter: lambda v: ("attrgetter", repr(v)),
}
