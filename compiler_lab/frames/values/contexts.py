"""Grad mode as a context manager: ``no_grad``, ``enable_grad``, ``set_grad_enabled``.

In: their calls. Out: ``torch._C._set_grad_enabled`` nodes where the mode changes; fakes run under that mode from there on.
Always holds: the mode after the frame is the one before it, or the frame is refused.
PyTorch's counterpart: ``torch/_dynamo/variables/ctx_manager.py``. Left out: autocast, inference mode, users' torch modes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .base import NONE, Args, Constant, Kwargs, Value
from .builtins import Handler

if TYPE_CHECKING:
    from ..tracer import Tracer


def set_grad_mode(t: Tracer, enabled: bool) -> None:
    """Change the mode, in the graph and for the fakes; nothing when it is that already."""
    if torch.is_grad_enabled() != enabled:
        torch._C._set_grad_enabled(enabled)
        t.node("call_function", torch._C._set_grad_enabled, [Constant(enabled)], {}, None)


class GradMode(Value):
    """An instance of one of torch's grad mode classes."""

    def __init__(self, cls: type[Any], enabled: bool) -> None:
        self.cls, self.enabled = cls, enabled
        self.previous = torch.is_grad_enabled()
        self.METHODS = {"__enter__": _enter, "__exit__": _exit, "clone": _clone}

    def python_type(self) -> type[Any]:
        return self.cls


def _enter(t: Tracer, mode: GradMode, args: Args, kwargs: Kwargs) -> Value:
    if mode.cls is not torch.set_grad_enabled:
        mode.previous = torch.is_grad_enabled()
    set_grad_mode(t, mode.enabled)
    return NONE


def _exit(t: Tracer, mode: GradMode, args: Args, kwargs: Kwargs) -> Value:
    set_grad_mode(t, mode.previous)
    return NONE


def _clone(t: Tracer, mode: GradMode, args: Args, kwargs: Kwargs) -> Value:
    return GradMode(mode.cls, mode.enabled)


def _mode(t: Tracer, cls: type[Any], enabled: bool, args: Args) -> Value:
    if args:
        raise t.refuse("context-manager", f"{cls.__name__} decorates a function inside the frame")
    return GradMode(cls, enabled)


def _no_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _mode(t, torch.no_grad, False, args)


def _enable_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _mode(t, torch.enable_grad, True, args)


def _set_grad_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    mode = GradMode(torch.set_grad_enabled, bool(t.constant(kwargs.get("mode") or args[0])))
    set_grad_mode(t, mode.enabled)
    return mode


def _refused(name: str) -> Handler:
    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise t.refuse("context-manager", name)

    return row


CONTEXTS: dict[type[Any], Handler] = {
    torch.no_grad: _no_grad,
    torch.enable_grad: _enable_grad,
    torch.set_grad_enabled: _set_grad_enabled,
    torch.inference_mode: _refused("torch.inference_mode"),
    torch.autocast: _refused("torch.autocast"),
}
