"""``nn.Module`` instances: called by inlining ``forward``, their parameters and buffers become inputs of the graph.

In: an existing module. Out: attribute reads through ``__dict__``, the class and the three tables. Always holds: the module's type is
guarded, every attribute that was read is guarded where it is, hooks of the backward are absent and guarded to stay so. ``__setattr__`` and
``__delattr__`` of ``nn.Module`` are rows here, which say in which table a name is; registering under a new name is left to Python.
PyTorch's counterpart: ``torch/_dynamo/variables/nn_module.py`` (``UnspecializedNNModuleVariable``).
"""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as module_globals
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Raised, Value, is_none
from .containers import DictValue
from .lookup import lookup
from .objects import ObjectValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer

TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
STATELESS = tuple(f"torch.nn.modules.{name}" for name in ("loss", "activation", "dropout", "flatten", "pooling", "padding", "distance", "linear"))
GLOBAL_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")


class ModuleInstance(ObjectValue):
    """One existing ``nn.Module``."""

    def __init__(self, real: torch.nn.Module, source: Source) -> None:
        super().__init__(type(real), real, source)
        self.hooked: bool | None = None
        self.tables: dict[tuple[str, str], Value] = {}  # read from a table that nobody else has looked at

    def describe(self) -> str:
        return f"module {self.cls.__name__}"

    def missing(self, t: Tracer, name: str) -> Value:
        hook = lookup(t, self.cls, "__getattr__")
        if hook is not None and hook[1] is torch.nn.Module.__getattr__ and self.source is not None:
            for table in TABLES:
                entries = self.real.__dict__.get(table, {})
                if (changed := t.known.get(id(entries))) is not None:
                    found = changed.find(t, Constant(name)) if isinstance(changed, DictValue) else None
                    if found is not None:
                        return found
                elif name in entries:
                    self.guard_no_key(t, name)
                    if (table, name) not in self.tables:
                        self.tables[table, name] = t.wrap(entries[name], Source("dict_item", name, Source("attr", table, self.source)))
                    return self.tables[table, name]
            if name not in self.removed:
                t.guard("no_attr", self.source, name, why="the program met its absence")
            raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))
        return super().missing(t, name)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = lookup(t, self.cls, "__call__")
        if found is None or found[1] is not torch.nn.Module.__call__:
            return super().call(t, args, kwargs)
        caller, t.module = t.module, t.module if self.source is None else self.source.module
        try:
            if self._has_hooks(t):
                return super().call(t, args, kwargs)  # torch's own Python around forward, which runs them
            return self.get(t, "forward").call(t, args, kwargs)
        finally:
            t.module = caller

    def _has_hooks(self, t: Tracer) -> bool:
        """Forward hooks, which are followed like other code; none otherwise, which is guarded. Raises for hooks of the backward."""
        if t.changed and any(id(t.known.get(id(self.real.__dict__.get(name)))) in t.changed or name in self.written for name in HOOKS):
            raise t.refuse("module-hooks", f"{self.describe()} gets hooks in the frame")
        if self.hooked is not None or self.source is None:
            return bool(self.hooked)
        if isinstance(self.real, torch.jit.ScriptModule):
            raise t.refuse("unknown-callable", "a scripted module")
        if isinstance(self.real, LazyModuleMixin) and any(map(is_lazy, self.real.__dict__["_parameters"].values())):
            raise t.refuse("module-created", f"{self.describe()} makes its parameters at its first call")
        owners = [(name, self.real.__dict__.get(name), self.source) for name in HOOKS]
        owners += [(name, getattr(module_globals, name), Source("constant", module_globals)) for name in GLOBAL_HOOKS]
        present = [name for name, hooks, _ in owners if hooks]
        if any("backward" in name for name in present):
            raise t.refuse("module-hooks", f"{self.describe()} is called with {', '.join(present)}")
        for name, hooks, owner in owners:
            if not hooks:
                t.guard("empty", Source("attr", name, owner), None, why="a hook would run")
        self.hooked = bool(present)
        return self.hooked

    def table(self, t: Tracer, name: str) -> DictValue:
        """``_parameters``, ``_buffers`` or ``_modules``, to be changed."""
        found = self.instance_attribute(t, name)
        if not isinstance(found, DictValue):
            raise t.refuse("attribute", f"{self.describe()} without {name}")
        return found

    def holds(self, t: Tracer, table: str, name: str) -> bool:
        """Whether ``table`` has this name, guarded."""
        entries = self.real.__dict__.get(table)
        if entries is None or self.source is None or table in self.written:
            raise t.refuse("attribute", f"setting {name!r} of {self.describe()}")
        if isinstance(known := t.known.get(id(entries)), DictValue):
            return known.contains(t, Constant(name))
        t.guard("has_key" if name in entries else "no_key", Source("attr", table, self.source), name, why="an attribute is set, which depends on the tables")
        return name in entries

    def truth(self, t: Tracer) -> bool:
        found = self.dunder(t, "__len__")
        return True if found is None else found.truth(t)


class ModuleGroup(Value):
    """A ``nn.ModuleList`` made in the frame, of modules that exist: what a slice of another one gives, to be iterated."""

    def __init__(self, parts: list[Value]) -> None:
        self.parts = parts

    def python_type(self) -> type[torch.nn.Module]:
        return torch.nn.ModuleList

    def iterate(self, t: Tracer) -> Iterator[Value]:
        return iter(list(self.parts))

    def length(self, t: Tracer) -> int:
        return len(self.parts)

    def truth(self, t: Tracer) -> bool:
        return bool(self.parts)

    def item(self, t: Tracer, key: Value) -> Value:
        at = t.constant(key)
        if not isinstance(at, (int, slice)) or (isinstance(at, int) and not -len(self.parts) <= at < len(self.parts)):
            raise t.refuse("attribute", f"item {at!r} of {self.describe()}")
        return self.parts[at] if isinstance(at, int) else ModuleGroup(self.parts[at])


def make_module(t: Tracer, cls: type[torch.nn.Module], args: Args, kwargs: Kwargs) -> Value:
    """A module of torch's own without parameters, buffers and submodules, such as a loss: an object with the attributes that its constructor sets."""
    given = [*args, *kwargs.values()]
    if cls.__module__ not in STATELESS or "device" in inspect.signature(cls.__init__).parameters or not t.is_constant(*given):  # for its parameters
        raise t.refuse("module-created", cls.__name__)
    real: list[torch.nn.Module] = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        t.fold(lambda *a, **k: real.append(cls(*a, **k)), [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
    held = real[0].__dict__
    if shown or any(v is not None for table in TABLES for v in held[table].values()):
        raise t.refuse("module-created", cls.__name__)
    made = ObjectValue(cls)
    made.attributes = _attributes(t, real[0])
    return made


def initialize(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``nn.Module.__init__`` of a user's module that is made in the frame."""
    made = args[0]
    if type(made) is not ObjectValue or len(args) > 1 or kwargs or made.real is not None or getattr(made.cls, "call_super_init", False):
        raise t.refuse("module-created", made.describe())
    made.attributes.update(_attributes(t, torch.nn.Module()))
    return NONE


def _attributes(t: Tracer, real: torch.nn.Module) -> dict[str, Value]:
    return {name: DictValue({}, OrderedDict) if type(v) is OrderedDict and not v else t.lift(v) for name, v in real.__dict__.items()}


def _set_on_made(t: Tracer, module: ObjectValue, name: str, value: Value) -> None:
    """A plain attribute of a module that is made in the frame; it holds no parameters, buffers and modules."""
    tables = [table for n in TABLES if isinstance(table := module.attributes.get(n), DictValue)]
    held = len(tables) < len(TABLES) or any(table.contains(t, Constant(name)) for table in tables)
    owned = isinstance(value, TensorValue) and (issubclass(value.python_type(), torch.nn.Parameter) or hasattr(value.real_tensor, "_is_buffer"))
    if held or owned or is_module(value):
        raise t.refuse("module-created", f"{name!r} of {module.describe()} is set to {value.describe()}")
    module.default_set(t, name, value)


def is_module(value: Value) -> bool:
    """A module, existing or made in the frame."""
    return isinstance(value, (ObjectValue, ModuleGroup)) and issubclass(value.python_type(), torch.nn.Module)


def make_group(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``nn.ModuleList(modules)``. Raises where it would hold anything but modules that exist."""
    parts = [*args, *kwargs.values()]
    found = [v for p in parts for v in p.iterate(t)]
    hooks = "_global_module_registration_hooks"
    if not all(isinstance(v, ModuleInstance) for v in found) or len(parts) > 1 or getattr(module_globals, hooks):
        raise t.refuse("module-created", "ModuleList")
    t.guard("length", Source("attr", hooks, Source("constant", module_globals)), 0, why="a hook would run")
    return ModuleGroup(found)


def set_attribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``nn.Module.__setattr__``: a plain attribute, or another tensor or None under the name of a buffer or parameter."""
    module, name, value = args[0], t.constant(args[1]), args[2]
    if type(module) is ObjectValue and module.real is None:
        _set_on_made(t, module, name, value)
        return NONE
    if not isinstance(module, ModuleInstance) or is_module(value) or module.holds(t, "_modules", name):
        raise t.refuse("attribute", f"setting {name!r} of {module.describe()}")
    parameter = isinstance(value, TensorValue) and issubclass(value.python_type(), torch.nn.Parameter)
    if module.holds(t, "_parameters", name):
        if not parameter and not is_none(value):
            raise Raised(t.exception(TypeError, f"cannot assign a value as parameter '{name}' (torch.nn.Parameter or None expected)"))
        _plainly(t, module, name, "register_parameter")
        module.table(t, "_parameters").set_item(t, Constant(name), value)
    elif parameter or (isinstance(value, TensorValue) and hasattr(value.real_tensor, "_is_buffer")):
        raise t.refuse("module-created", f"{name!r} becomes a parameter or buffer of {module.describe()}")
    elif module.holds(t, "_buffers", name):
        if not isinstance(value, TensorValue) and not is_none(value):
            raise t.refuse("attribute", f"setting the buffer {name!r} of {module.describe()} to {value.describe()}")
        _plainly(t, module, name, "register_buffer")
        module.table(t, "_buffers").set_item(t, Constant(name), value)
    else:
        module.default_set(t, name, value)
    return NONE


def _plainly(t: Tracer, module: ModuleInstance, name: str, method: str) -> None:
    """Refuse where registering runs code of its own, or the table is not where the name is found."""
    if getattr(module.cls, method) is not getattr(torch.nn.Module, method) or method in module.real.__dict__ or name in module.real.__dict__:
        raise t.refuse("attribute", f"setting {name!r} of {module.describe()}")
    t.guard("no_key", Source("attr", "__dict__", module.source), name, why="the name is in a table")
    for hooks in ("_global_parameter_registration_hooks", "_global_buffer_registration_hooks"):
        if getattr(module_globals, hooks):
            raise t.refuse("module-hooks", f"torch has {hooks}")
        t.guard("length", Source("attr", hooks, Source("constant", module_globals)), 0, why="a hook would run")


def delete_attribute(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``nn.Module.__delattr__`` of a plain attribute."""
    module, name = args[0], t.constant(args[1])
    if not isinstance(module, ModuleInstance) or any(module.holds(t, table, name) for table in TABLES):
        raise t.refuse("attribute", f"deleting {name!r} of {module.describe()}")
    module.default_delete(t, name)
    return NONE
