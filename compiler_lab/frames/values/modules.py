"""``nn.Module`` instances: called by inlining ``forward``, their parameters and buffers become inputs of the graph.

In: an existing module. Out: attribute reads through ``__dict__``, the class and the three tables. Always holds: the module's type is
guarded, every attribute that was read is guarded where it is, hooks of the backward are absent and guarded to stay so; a module is never changed.
PyTorch's counterpart: ``torch/_dynamo/variables/nn_module.py`` (``UnspecializedNNModuleVariable``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as module_globals
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from ..ir import Source
from .base import Args, Kwargs, Raised, Value
from .objects import ObjectValue, lookup

if TYPE_CHECKING:
    from ..tracer import Tracer

TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = ("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks", "_global_forward_pre_hooks")


class ModuleInstance(ObjectValue):
    """One existing ``nn.Module``."""

    def __init__(self, real: torch.nn.Module, source: Source) -> None:
        super().__init__(type(real), real, source)
        self.hooked: bool | None = None

    def describe(self) -> str:
        return f"module {self.cls.__name__}"

    def missing(self, t: Tracer, name: str) -> Value:
        hook = lookup(t, self.cls, "__getattr__")
        if hook is not None and hook[1] is torch.nn.Module.__getattr__ and self.source is not None:
            for table in TABLES:
                entries = self.real.__dict__.get(table, {})
                if name in entries:
                    self.guard_no_key(t, name)
                    source = Source("dict_item", name, Source("attr", table, self.source))
                    self.attributes[name] = t.wrap(entries[name], source)
                    return self.attributes[name]
            t.guard("no_attr", self.source, name, why="the program met its absence")
            raise Raised(t.exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'"))
        return super().missing(t, name)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = lookup(t, self.cls, "__call__")
        if found is None or found[1] is not torch.nn.Module.__call__:
            return super().call(t, args, kwargs)
        if self._has_hooks(t):
            return super().call(t, args, kwargs)  # torch's own Python around forward, which runs them
        return self.get(t, "forward").call(t, args, kwargs)

    def _has_hooks(self, t: Tracer) -> bool:
        """Forward hooks, which are followed like other code; none otherwise, which is guarded. Raises for hooks of the backward."""
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

    def set(self, t: Tracer, name: str, value: Value) -> None:
        raise t.refuse("side-effect", f"setting {name!r} of {self.describe()}")

    def truth(self, t: Tracer) -> bool:
        found = self.dunder(t, "__len__")
        return True if found is None else found.truth(t)
