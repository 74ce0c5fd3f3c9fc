"""Sources read, written and spoken: the value at a source, the steps that lead there, and the Python expression for it.

In: a ``Source`` and the frame it belongs to. Out: values, ``Step`` paths for the guard tree and the assembler, text.
Always holds: the guards, the explanation and the replacement code follow the same steps, so they cannot mean different values.
Where PyTorch does this: ``torch/_dynamo/source.py``. Left out: sources that compute (``len(x)``, ``x.size(0)``): guards say those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CellType, ModuleType
from typing import Any, Literal

import torch

from ..core.errors import InvalidIR
from .ir import Source

StepKind = Literal["local", "global", "builtin", "constant", "attr", "instance_attr", "namespace", "list_item", "tuple_item", "item", "dict_item", "type_attr"]
ABSENT: Any = object()
"""In place of what a class does not define."""
MODULE_TABLES = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, eq=False)
class Step:
    """One reading: ``kind`` names the accessor (a row of READ), ``key`` what it reads. A path starts with one of the first four kinds."""

    kind: StepKind
    key: Any

    @property
    def identity(self) -> tuple[str, Any]:
        """Equal for steps that read the same: constants and unusual keys by identity, since 1 == True == 1.0."""
        plain = isinstance(self.key, (str, int)) and self.kind != "constant"
        return (self.kind, (type(self.key), self.key) if plain else id(self.key))


READ: dict[str, Callable[[Any, Any], Any]] = {
    "attr": getattr,
    "instance_attr": lambda value, key: object.__getattribute__(value, "__dict__")[key],
    "namespace": lambda value, key: object.__getattribute__(value, "__dict__"),
    "list_item": lambda value, key: list.__getitem__(value, key),
    "tuple_item": lambda value, key: tuple.__getitem__(value, key),
    "item": lambda value, key: value[key],
    "dict_item": lambda value, key: inner_item(value, key),
    "type_attr": lambda value, key: getattr(type(value), key),
}


def inner_item(value: Any, key: Any) -> Any:
    """The item of a dict, list or tuple, past what its class overrides; ``__missing__`` is not asked. Raises KeyError or IndexError."""
    if not isinstance(value, dict):
        base: Any = list if isinstance(value, list) else tuple
        return base.__getitem__(value, key)
    if not dict.__contains__(value, key):
        raise KeyError(key)
    return dict.__getitem__(value, key)


def read(step: Step, value: Any) -> Any:
    """The value one step further; raises whatever the reading raises."""
    return READ[step.kind](value, step.key)


def resolve(
    source: Source,
    locals: Mapping[str, Any],
    globals: Mapping[str, Any],
    closure: Mapping[str, CellType] | None = None,
    builtins: Mapping[str, Any] | None = None,
) -> Any:
    """The value at ``source``. ``closure``: cells by name, for free variables that ``locals`` does not hold opened.

    Raises KeyError, AttributeError, IndexError or TypeError where the path does not exist, as the reading itself does.
    """
    kind, key = source.kind, source.key
    if source.base is not None:
        base = resolve(source.base, locals, globals, closure, builtins)
        return read(step_of(source, base), base)
    if kind == "constant":
        return key
    if kind == "global":
        name = root_name(source)
        return globals[name] if name in globals or builtins is None else builtins[name]
    if kind == "closure" and key not in locals and closure is not None:
        return closure[key].cell_contents
    if kind in ("local", "closure"):
        return locals[key]
    raise InvalidIR(f"source {source.text()} has no base", why="only locals, globals, closure cells and constants are roots")


def root_name(source: Source) -> str:
    """The name at a root; a global's key is the one-element tuple of it."""
    return source.key[0] if isinstance(source.key, tuple) else source.key


def step_of(source: Source, base: Any) -> Step:
    """The accessor that reads ``source`` from its base's present value, chosen by that value's kind."""
    kind, key = source.kind, source.key
    if kind == "attr" and key == "__dict__" and isinstance(base, (torch.nn.Module, ModuleType)) and _plain_lookup(base):
        return Step("namespace", key)
    if kind == "attr":
        return Step("instance_attr" if _in_instance_dict(base, key) else "attr", key)
    if kind == "item":
        return Step("list_item" if isinstance(base, list) else "tuple_item" if isinstance(base, tuple) else "item", key)
    if kind == "dict_item":
        return Step("dict_item" if isinstance(base, dict) and type(base).__getitem__ is dict.__getitem__ else "item", key)
    if kind == "inner_item":
        return Step("dict_item" if isinstance(base, dict) else "list_item" if isinstance(base, list) else "tuple_item", key)
    if kind == "type_attr":
        return Step("type_attr", key)
    raise InvalidIR(f"source kind {kind!r} cannot follow {source.base.text() if source.base else 'nothing'}")


def _plain_lookup(base: Any) -> bool:
    """Its class looks attributes up as ``object`` (or ``ModuleType``) does."""
    return type(base).__getattribute__ in (object.__getattribute__, ModuleType.__getattribute__)


def _in_instance_dict(base: Any, key: str) -> bool:
    """True where reading a module's attribute is reading its __dict__: it is there and no data descriptor of the class comes first."""
    if not isinstance(base, torch.nn.Module) or not _plain_lookup(base):
        return False
    on_class = getattr(type(base), key, None)
    return key in base.__dict__ and not hasattr(type(on_class), "__set__")


def module_table(owner: Any, name: str) -> str | None:
    """Which of a module's dicts ``owner.name`` is read from by ``nn.Module.__getattr__``; None where something else is read."""
    if not isinstance(owner, torch.nn.Module) or type(owner).__getattr__ is not torch.nn.Module.__getattr__:
        return None
    if name in owner.__dict__ or hasattr(type(owner), name):
        return None
    return next((table for table in MODULE_TABLES if name in owner.__dict__.get(table, ())), None)


def canonical(source: Source, locals: Mapping[str, Any], globals: Mapping[str, Any], builtins: Mapping[str, Any] | None = None) -> Source:
    """``source`` with a module's parameters, buffers and submodules reached through their dicts, not through ``__getattr__``.

    ``self.fc`` becomes ``self._modules['fc']``: the C++ tree and the replacement code then read it without calling Python.
    """
    if source.base is None:
        return source
    base = canonical(source.base, locals, globals, builtins)
    if source.kind == "attr":
        table = module_table(resolve(base, locals, globals, None, builtins), source.key)
        if table is not None:
            return Source("dict_item", source.key, Source("attr", table, base))
    return source if base is source.base else Source(source.kind, source.key, base)


def expression(source: Source) -> str:
    """The source as Python a reader could type: ``self._modules['fc']._parameters['weight']``."""
    if source.base is None:
        if source.kind == "constant":
            return getattr(source.key, "__name__", None) or type(source.key).__name__
        return root_name(source)
    base = expression(source.base)
    if source.kind == "attr":
        return f"{base}.{source.key}"
    if source.kind == "type_attr":
        return f"type({base}).{source.key}"
    key = source.key
    return f"{base}[{key!r}]" if isinstance(key, (str, int, float, bool, tuple, type(None))) else f"{base}[{type(key).__name__}]"


def has(value: Any, name: str) -> bool:
    """Whether the attribute can be read, as guards ask."""
    try:
        getattr(value, name)
    except Exception:  # noqa: BLE001 - as in C++: an attribute whose reading raises anything counts as absent
        return False
    return True
