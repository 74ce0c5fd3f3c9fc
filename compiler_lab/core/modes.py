"""Torch's modes inside a graph: what stands there for inference mode, and the caller's modes kept when a graph fails between two nodes.

Grad mode is set by ``torch._C._set_grad_enabled``, autocast entered and left by ``torch.amp._enter_autocast`` and ``_exit_autocast``, torch's
own. Inference mode is a C++ guard whose end must come in order: an error that leaves a graph between the two nodes would end it when the
error's traceback is collected, in the middle of something else. So ``enter_inference`` writes the guard down, and ``kept`` ends it.
PyTorch's counterpart: ``torch/autograd/grad_mode.py`` (``_enter_inference_mode``) and ``torch/amp/autocast_mode.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.fx as fx
import torch.fx.node
from torch._C import _functorch as functorch  # type: ignore[attr-defined]
from torch.amp.autocast_mode import _enter_autocast as enter_autocast  # pyright: ignore[reportPrivateUsage]
from torch.amp.autocast_mode import _exit_autocast as exit_autocast  # pyright: ignore[reportPrivateUsage]
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

DEVICES = ("cpu", "cuda")  # whose autocast is followed

_entered: ContextVar[list[Any] | None] = ContextVar("entered", default=None)


def enter_inference(enabled: bool) -> Any:
    """Inference mode on or off, with the grad mode that belongs to it; gives what ``exit_inference`` takes."""
    guard = torch._C._InferenceMode(enabled)  # pyright: ignore[reportAttributeAccessIssue]
    guard.__enter__()
    if (guards := _entered.get()) is not None:
        guards.append(guard)
    return guard


def exit_inference(guard: Any) -> None:
    """The modes before ``enter_inference``."""
    if (guards := _entered.get()) is not None and guard in guards:
        guards.remove(guard)
    guard.__exit__(None, None, None)


torch.fx.node.has_side_effect(enter_inference)  # no pass may take them for dead
torch.fx.node.has_side_effect(exit_inference)

SETTERS = (torch._C._set_grad_enabled, enter_autocast, exit_autocast, enter_inference, exit_inference)
"""Targets of nodes that change a mode."""


def sets_mode(graph: fx.Graph) -> bool:
    return any(n.target in SETTERS for n in graph.nodes if n.op == "call_function")


def active_modes() -> tuple[str, ...]:
    """What is on that changes the meaning of every operation, in words."""
    found = {
        "a torch function mode": torch._C._len_torch_function_stack() > 0,
        "a dispatch mode": torch._C._len_torch_dispatch_stack() > 0,
        "a functorch transform": functorch.peek_interpreter_stack() is not None,
        "forward-mode differentiation": forward_ad._current_level >= 0,  # pyright: ignore[reportPrivateUsage]
        "jit tracing": is_tracing(),
    }
    return tuple(what for what, on in found.items() if on)


@contextmanager
def kept() -> Generator[None]:
    """Grad mode, autocast and inference mode are as before when the block fails; where it does not, what it changed stays."""
    guards: list[Any] = []
    token = _entered.set(guards)
    grad, cast = torch.is_grad_enabled(), autocast_state()
    try:
        yield
    except BaseException:
        for guard in reversed(guards):
            guard.__exit__(None, None, None)
        _set_autocast(cast)
        torch._C._set_grad_enabled(grad)
        raise
    finally:
        _entered.reset(token)


def modes_kept(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, whose graph changes modes: an error in between leaves the caller's modes as they were."""

    def run_kept(*inputs: Any) -> Any:
        with kept():
            return run(*inputs)

    return run_kept


@contextmanager
def outside_inference() -> Generator[None]:
    """Inference mode off, with the grad mode that there is; all modes as before at the end.

    Inference mode switches off the keys above which composite operators open; a trace is to be the same with and without."""
    grad, cast = torch.is_grad_enabled(), autocast_state()
    with torch.inference_mode(False):
        torch._C._set_grad_enabled(grad)
        try:
            yield
        finally:
            _set_autocast(cast)


@contextmanager
def no_autocast() -> Generator[None]:
    """Autocast off; a region that enters it again has it."""
    before = autocast_state()
    if not torch._C._is_any_autocast_enabled():
        yield
        return
    for device in DEVICES:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        _set_autocast(before)


@contextmanager
def below_modes() -> Generator[None]:
    """Where aten graphs are worked on: their operators are cast already, and inference mode is the business of the run."""
    with outside_inference(), no_autocast():
        yield


@contextmanager
def no_autocast_cache() -> Generator[None]:
    """A cast is made each time: one that was kept belongs to other tensors, and to another grad mode."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def autocast_state() -> tuple[Any, ...]:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    state = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES)
    return depth, torch.is_autocast_cache_enabled(), state


def _set_autocast(before: tuple[Any, ...]) -> None:
    depth, cached, state = before
    while torch.autocast_decrement_nesting() >= depth:
        pass
    torch.autocast_increment_nesting()
    if not depth:
        torch.clear_autocast_cache()
    for device, enabled, dtype in state:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cached)
