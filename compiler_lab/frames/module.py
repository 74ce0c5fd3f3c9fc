"""A compiled ``nn.Module``: a module around the module, whose call runs the compiled ``forward``.

In: a module and a way to compile a function. Out: ``OptimizedModule``. Always holds: it looks like the module (attributes, parameters,
mode, hooks of its own), with torch's own name for the wrapped one, ``_orig_mod``, so state dicts are exchangeable with torch.compile's.
Where PyTorch does this: ``torch/_dynamo/eval_frame.py`` (``OptimizedModule``). Left out: hooks of the backward (the call
is then Python's, with a recorded reason); pickling keeps the module and drops what was compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.nn.modules import module as torch_module

from .entry import CompiledFunction

CompileFunction = Callable[[Callable[..., Any]], CompiledFunction]
OWN = ("_orig_mod", "_compile", "_compiled", "_compiled_call", "_forward_of")


class OptimizedModule(torch.nn.Module):
    """``module`` with its forward compiled. Reading and setting attributes goes to ``module`` (``_orig_mod``)."""

    def __init__(self, module: torch.nn.Module, compile_function: CompileFunction) -> None:
        super().__init__()
        self._orig_mod = module
        self._compile = compile_function
        self._compiled: CompiledFunction | None = None
        self._compiled_call: CompiledFunction | None = None
        self._forward_of: tuple[Any, Any] = (None, None)
        _ = self._compiled_forward  # there from the start, so that a function that calls this module can take its forward into its own graph

    @property
    def _compiled_forward(self) -> CompiledFunction:
        """The compiled forward; made anew when the module has been given another one."""
        module = self._modules["_orig_mod"]
        assert module is not None
        now = (type(module).forward, module.__dict__.get("forward"))
        before = self.__dict__["_forward_of"]
        compiled = self.__dict__["_compiled"]
        if compiled is None or now[0] is not before[0] or now[1] is not before[1]:
            compiled = self.__dict__["_compiled"] = self.__dict__["_compile"](module.forward)
            self.__dict__["_forward_of"] = now
        return compiled

    @property
    def _compiled_around(self) -> CompiledFunction:
        """The compiled code around forward, torch's own, which runs the module's hooks."""
        if self.__dict__["_compiled_call"] is None:
            self.__dict__["_compiled_call"] = self.__dict__["_compile"](cast(Any, self._modules["_orig_mod"])._call_impl)
        return self.__dict__["_compiled_call"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"] or torch._C._get_tracing_state():
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)  # hooks of all modules run once, around the module itself

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        module = self._modules["_orig_mod"]
        assert module is not None
        own = module.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"] or torch_module._has_any_global_hook():
            plain = type(module).__call__ is torch.nn.Module.__call__
            return self._compiled_around.function(*args, **kwargs) if plain else module(*args, **kwargs)
        return self._compiled_forward.function(*args, **kwargs)

    # torch declares a plain attribute; a property keeps one mode for both
    @property
    def training(self) -> bool:
        return self._modules["_orig_mod"].training if "_modules" in self.__dict__ and "_orig_mod" in self._modules else True  # type: ignore[union-attr]

    @training.setter
    def training(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if "_modules" in self.__dict__ and (module := self._modules.get("_orig_mod")) is not None:
            module.training = value

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or "_orig_mod" not in modules:
            return super().__getattr__(name)
        return getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN[1:]:
            self.__dict__[name] = value
        elif name == "_orig_mod" or hasattr(type(self), name) or "_orig_mod" not in self.__dict__.get("_modules", {}):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        return OptimizedModule(copy.deepcopy(self._orig_mod, memo), self.__dict__["_compile"])

    def __reduce__(self) -> Any:
        return (_same, (self._orig_mod,))


def _same(module: torch.nn.Module) -> torch.nn.Module:
    return module


def compile_module(module: torch.nn.Module, compile_function: CompileFunction) -> OptimizedModule:
    """``module`` with its forward compiled by ``compile_function(forward)``; a compiled module (ours or torch's) from its original."""
    inner = module._modules.get("_orig_mod") if type(module).__name__ == "OptimizedModule" else None
    return OptimizedModule(inner if inner is not None else module, compile_function)
