"""Torch's modes as context managers and decorators: grad mode, inference mode, autocast.

In: their calls, and existing instances. Out: nodes where a mode changes; fakes run under that mode from there on.
Always holds: capture itself never runs in inference mode, which would hide operators from the fakes: ``t.inference`` says whether the program
is in it, ``t.grad`` what ``torch.is_grad_enabled()`` says there; grad mode and autocast are followed for real; the modes after the frame
are those before it, or the frame is refused.
PyTorch's counterpart: ``torch/_dynamo/variables/ctx_manager.py``. Left out: modes that would warn, users' torch function and dispatch modes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx
from torch.amp.autocast_mode import is_autocast_available

from ...core.modes import enter_autocast, enter_inference, exit_autocast, exit_inference
from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Raised, Value, is_none
from .builtins import Handler
from .functions import GENERATOR, FunctionValue
from .lift import raised_from

if TYPE_CHECKING:
    from ..tracer import Tracer


def set_grad_mode(t: Tracer, enabled: bool) -> None:
    """Change the mode, in the graph and for the fakes; nothing when it is that already."""
    if t.grad != enabled:
        _node(t, torch._C._set_grad_enabled, enabled)
        follow(t, enabled, t.inference)


def follow(t: Tracer, grad: bool, inference: bool) -> None:
    """The program is in these modes from here on; fakes run as they do there."""
    t.grad, t.inference = grad, inference
    torch._C._set_grad_enabled(grad and not inference)


def _node(t: Tracer, target: Callable[..., Any], *args: Any) -> fx.Node:
    node = t.graph.call_function(target, args)
    node.meta.update(val=None, stack=t.stack(), parents=())
    return node


def _leave(t: Tracer, target: Callable[..., Any], entered: fx.Node | None) -> None:
    """The node that ends a mode; where nothing was done in it, neither node is there."""
    if entered is not None and entered is next(iter(reversed(t.graph.nodes))):
        t.graph.erase_node(entered)
    else:
        _node(t, target, entered)


class TorchMode(Value):
    """An instance of one of torch's modes, of which a ``with`` block, a decorator or a call makes use."""

    def __init__(self, cls: type[Any], source: Source | None = None) -> None:
        self.cls, self.source, self.active = cls, source, False
        self.METHODS = {"__enter__": _enter, "__exit__": _exit, "clone": _clone}

    def python_type(self) -> type[Any]:
        return self.cls

    def enter(self, t: Tracer) -> Value:
        raise NotImplementedError

    def exit(self, t: Tracer) -> Value:
        raise NotImplementedError

    def again(self, t: Tracer) -> TorchMode:
        """The instance that a call of the decorated function enters."""
        raise NotImplementedError

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """As a decorator."""
        function = args[0]
        if not isinstance(function, FunctionValue) or function.code.co_flags & GENERATOR:
            raise t.refuse("context-manager", f"{self.cls.__name__} decorates {function.describe()}")
        return t.wrap(decorate, None).call(t, [self, function], {})


def decorate(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decorate_context(*args: Any, **kwargs: Any) -> Any:
        with mode.clone():
            return function(*args, **kwargs)

    return decorate_context


def _enter(t: Tracer, mode: TorchMode, args: Args, kwargs: Kwargs) -> Value:
    if mode.active and not isinstance(mode, GradMode):
        raise t.refuse("context-manager", f"one {mode.cls.__name__} is entered twice")
    mode.active = True
    return mode.enter(t)


def _exit(t: Tracer, mode: TorchMode, args: Args, kwargs: Kwargs) -> Value:
    mode.active = False
    return mode.exit(t)


def _clone(t: Tracer, mode: TorchMode, args: Args, kwargs: Kwargs) -> Value:
    return mode.again(t)


class GradMode(TorchMode):
    """``no_grad``, ``enable_grad``, ``set_grad_enabled``."""

    def __init__(self, cls: type[Any], enabled: bool, previous: bool) -> None:
        super().__init__(cls)
        self.enabled, self.previous = enabled, previous

    def enter(self, t: Tracer) -> Value:
        if self.cls is not torch.set_grad_enabled:
            self.previous = t.grad
        set_grad_mode(t, self.enabled)
        return NONE

    def exit(self, t: Tracer) -> Value:
        set_grad_mode(t, self.previous)
        return NONE

    def again(self, t: Tracer) -> TorchMode:
        previous = t.grad
        if self.cls is torch.set_grad_enabled:
            set_grad_mode(t, self.enabled)
        return GradMode(self.cls, self.enabled, previous)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if self.cls is torch.set_grad_enabled:
            set_grad_mode(t, self.previous)
        return super().call(t, args, kwargs)


class InferenceMode(TorchMode):
    """``inference_mode``: also the tensors that are made are others, which only the graph, when it runs, makes so."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(torch.inference_mode)
        self.enabled = enabled
        self.previous = (False, False)
        self.node: fx.Node | None = None

    def enter(self, t: Tracer) -> Value:
        self.previous = (t.grad, t.inference)
        self.node = _node(t, enter_inference, self.enabled)
        follow(t, not self.enabled, self.enabled)
        return NONE

    def exit(self, t: Tracer) -> Value:
        _leave(t, exit_inference, self.node)
        follow(t, *self.previous)
        return NONE

    def again(self, t: Tracer) -> TorchMode:
        return InferenceMode(self.enabled)


class AutocastMode(TorchMode):
    """``autocast``. ``real`` is a private instance, entered and left to have the fakes cast as the program's tensors are."""

    def __init__(self, cls: type[Any], real: torch.autocast, source: Source | None = None) -> None:
        super().__init__(cls, source)
        self.real = real
        self.node: fx.Node | None = None

    def enter(self, t: Tracer) -> Value:
        self.real.__enter__()
        self.node = _node(t, enter_autocast, self.real.device, self.real.fast_dtype, self.real._enabled, self.real._cache_enabled)
        return self

    def exit(self, t: Tracer) -> Value:
        self.real.__exit__(None, None, None)
        _leave(t, exit_autocast, self.node)
        return Constant(False)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        self.METHODS = {**self.METHODS, "clone": lambda t, mode, args, kwargs: mode}
        return super().call(t, args, kwargs)


def _decorated(t: Tracer, mode: TorchMode, args: Args) -> Value:
    return mode.call(t, args, {}) if args and not is_none(args[0]) else mode


def _no_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _decorated(t, GradMode(torch.no_grad, False, t.grad), args)


def _enable_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _decorated(t, GradMode(torch.enable_grad, True, t.grad), args)


def _set_grad_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    mode = GradMode(torch.set_grad_enabled, switch(t, [*args, *kwargs.values()]), t.grad)
    set_grad_mode(t, mode.enabled)
    return mode


def switch(t: Tracer, args: Args) -> bool:
    """The one argument of a mode: torch takes a bool and nothing that is merely true."""
    if len(args) != 1 or type(enabled := t.constant(args[0])) is not bool:
        raise t.refuse("bad-call", "a mode is set to something that is no bool")
    return enabled


def _inference_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = [*args, *kwargs.values()]
    if given and isinstance(given[0], FunctionValue):
        return InferenceMode(True).call(t, given, {})
    return InferenceMode(switch(t, given) if given else True)


def _autocast(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("device_type", "dtype", "enabled", "cache_enabled"), map(t.constant, args), strict=False)) | {k: t.constant(v) for k, v in kwargs.items()}
    return AutocastMode(torch.autocast, _make_autocast(t, **given))


def _make_autocast(t: Tracer, device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> torch.autocast:
    """The instance; what its constructor raises, the program raises. Its warnings are the program's output: refused."""
    try:
        wanted = torch.get_autocast_dtype(device_type) if dtype is None else dtype
        if enabled and is_autocast_available(device_type) and (device_type != "cpu" or wanted not in (torch.bfloat16, torch.float16)):
            if device_type != "cuda" or torch.cuda.amp.common.amp_definitely_not_available():
                raise t.refuse("output", f"autocast for {device_type} in {wanted} may warn")
        return torch.autocast(device_type, dtype, enabled, cache_enabled)
    except (RuntimeError, ValueError, TypeError) as error:
        raise Raised(raised_from(t, error)) from error


def existing_autocast(t: Tracer, real: torch.autocast, source: Source | None) -> Value:
    """An instance from outside, such as the one a decorator made."""
    if not type(real).__module__.startswith("torch."):
        raise t.refuse("context-manager", f"{type(real).__name__}, a class of its own")
    source = source or Source("constant", real)
    t.guard("type", source, type(real).__name__, why="its class says what entering it does")
    for name in ("device", "fast_dtype", "_enabled", "_cache_enabled"):
        t.constant(t.wrap(getattr(real, name), Source("attr", name, source)))
    private = torch.autocast(real.device, real.fast_dtype, False, real._cache_enabled)
    private._enabled = real._enabled
    return AutocastMode(type(real), private, source)


def _annotation(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Annotation(torch.profiler.record_function)


class Annotation(TorchMode):
    """``record_function``: a name for a profiler to show, of which the program sees nothing."""

    def enter(self, t: Tracer) -> Value:
        return self

    def exit(self, t: Tracer) -> Value:
        return NONE

    def again(self, t: Tracer) -> TorchMode:
        return self


CONTEXTS: dict[type[Any], Handler] = {
    torch.no_grad: _no_grad,
    torch.enable_grad: _enable_grad,
    torch.set_grad_enabled: _set_grad_enabled,
    torch.inference_mode: _inference_mode,
    torch.autocast: _autocast,
    torch.profiler.record_function: _annotation,
}
