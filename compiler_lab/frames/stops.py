"""The state of a frame that stops before it ends: what Python needs to go on, as recipes.

In: a symbolic frame before an instruction. Out: ``Stop`` and a closed graph, or a refusal where a value has no recipe.
Always holds: the value stack is CPython's, slot for slot; only locals that the rest of the frame may read are built; inside an ``except``
block there is no place to stop, for the exception that is handled is the thread's and not the frame's; nor where a cell of the frame's own
may be read unbound, which in the code that goes on, where it is a free variable, would be another exception.
PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py`` (``create_call_resume_at``) and the ``reconstruct`` methods of its variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .ir import Break, Recipe, Source, Stop
from .points import before_call, live, live_cells, unbound_later
from .reasons import CaptureUnsupported
from .values.base import NULL, BoundBuiltin, Constant, Lazy, Opaque, force
from .values.builtins import BuiltinValue
from .values.contexts import AutocastMode, GradMode, InferenceMode, TorchMode
from .values.functions import Cell

if TYPE_CHECKING:
    from .interpreter import Frame
    from .recipes import Part
    from .result import Results


class Stopped(Exception):
    """The frame has come to where it is to stop."""


def can_stop(frame: Frame) -> bool:
    """Is there a state here that Python can be given? Not before the frame's cells are made, and not within a call's instructions."""
    made = all(name in frame.cells for name in frame.code.co_cellvars)
    return made and not frame.t.exceptions and before_call(frame.info, frame.at) == 0


def stop_of(results: Results, frame: Frame, found: Break) -> Stop:
    """The state before instruction ``frame.at``. Raises ``CaptureUnsupported`` for a value that cannot be put together."""
    if not can_stop(frame):
        raise CaptureUnsupported("exception", "an exception is being handled", frame.call_stack(), frame.instruction())
    if frame.t.modes() != frame.t.before and not modes_of(frame):
        raise CaptureUnsupported("context-manager", "a mode of torch's is on", frame.call_stack(), frame.instruction())
    if unbound := _unbound(frame):
        raise CaptureUnsupported("exception", f"{unbound[0]!r} may be read while it is unbound", frame.call_stack(), frame.instruction())
    names, passed_on = live(frame.code)[frame.at], _passed_on(frame)
    locals = [n for n in frame.code.co_varnames if n in names and frame.locals.get(n) is not None]
    slots = [*(v for v in frame.stack if v is not NULL), *(frame.locals[n] for n in locals), *(frame.cells[n] for n in frame.code.co_cellvars)]
    known = [_known(frame, passed_on, s) for s in slots]
    made = iter(results.close([s for s, k in zip(slots, known, strict=True) if k is None]))
    recipes = iter([next(made) if k is None else k for k in known])
    stack = tuple(None if v is NULL else next(recipes) for v in frame.stack)
    return Stop(frame.at, stack, tuple((n, next(recipes)) for n in locals), tuple((n, next(recipes)) for n in frame.code.co_cellvars), found)


def _unbound(frame: Frame) -> list[str]:
    """The frame's own cells that the rest of it may read unbound."""
    read, later = live_cells(frame.code)[frame.at], unbound_later(frame.code)
    return [n for n in frame.code.co_cellvars if n in later or (n in read and frame.cells[n].slot is None)]


def _passed_on(frame: Frame) -> dict[int, Lazy]:
    """Values, by id, that were loaded for the present instruction and for nothing else: which ones they are is not for capture to know.

    One that came through another instruction (``max(1, x)``, ``x or y``, a call) was looked at there."""
    found: dict[int, Lazy] = {}
    loads = _loads(frame)
    for slot in frame.given:
        if slot.source is None or frame.locals.get(slot.source.key) is not slot:
            continue  # the name has another value by now
        if isinstance(slot.value, (Constant, BuiltinValue, Opaque)) and slot.reads == loads.count(slot.source.key):
            found[id(slot.value)] = slot
            frame.t.forget(slot.source)
    return found


def _loads(frame: Frame) -> list[str]:
    """The locals that the loads just before the present instruction name."""
    names: list[str] = []
    for inst in reversed(frame.info.instructions[: frame.at]):
        if inst.name == "LOAD_FAST":
            names.append(inst.value)
        elif inst.name not in ("LOAD_CONST", "LOAD_GLOBAL", "PUSH_NULL", "KW_NAMES", "PRECALL", "EXTENDED_ARG", "NOP"):
            break
    return names


def _known(frame: Frame, passed_on: dict[int, Lazy], slot: Part) -> Recipe | None:
    """The recipe where it is not that of the value."""
    if isinstance(slot, Cell):
        return None
    value = force(slot) if not isinstance(slot, Lazy) or slot.value is not None else slot
    if (lazy := passed_on.get(id(value))) is not None and lazy.source is not None:
        return Recipe("source", lazy.source)
    if isinstance(value, BoundBuiltin) and isinstance(value.owner, TorchMode) and value.name == "__exit__":
        return _entered(value.owner)
    return _builtin(frame, value) if isinstance(value, BuiltinValue) and value.source is None else None


def modes_of(frame: Frame) -> list[TorchMode]:
    """Torch's modes whose ``with`` blocks the frame is in, outermost first."""
    return [v.owner for v in frame.stack if isinstance(v, BoundBuiltin) and isinstance(v.owner, TorchMode) and v.name == "__exit__"]


def leave_modes(frame: Frame) -> None:
    """The graph ends with the modes that the frame began with; Python enters those that the frame is in again."""
    for mode in reversed(modes_of(frame)):
        mode.exit(frame.t)
    if frame.t.modes() != frame.t.before:
        raise CaptureUnsupported("context-manager", "a mode of torch's is on", frame.call_stack(), frame.instruction())


def _entered(mode: TorchMode) -> Recipe:
    """The bound ``__exit__`` of a mode that is entered when this is built: the stack is built in order, and so are the modes entered."""
    constants = lambda *values: tuple(Recipe("constant", v) for v in values)
    if isinstance(mode, GradMode):
        return Recipe("call", enter_grad_mode, constants(mode.cls, mode.enabled, mode.previous))
    if isinstance(mode, InferenceMode):
        return Recipe("call", enter, constants(torch.inference_mode, mode.enabled))
    if isinstance(mode, AutocastMode) and mode.source is None:
        return Recipe("call", enter, constants(torch.autocast, mode.real.device, mode.real.fast_dtype, mode.real._enabled, mode.real._cache_enabled))
    raise CaptureUnsupported("context-manager", f"a break inside {mode.cls.__name__}")


def enter(cls: type[Any], *args: Any) -> Any:
    mode = cls(*args)
    mode.__enter__()
    return mode.__exit__


def enter_grad_mode(cls: type[Any], enabled: bool, previous: bool) -> Any:
    """As ``enter``; ``set_grad_enabled`` has taken the mode to restore when it was made, which may have been earlier."""
    mode: Any = object.__new__(cls)
    mode.prev = previous
    if cls is torch.set_grad_enabled:
        mode.mode = enabled
    torch._C._set_grad_enabled(enabled)
    return mode.__exit__


def _builtin(frame: Frame, value: BuiltinValue) -> Recipe:
    """A built-in function by its name, which may have been given another meaning by the next call."""
    name = next((n for n, v in frame.scope.read.items() if v is value and n not in frame.scope.names), None)
    return Recipe("constant", value.real) if name is None else Recipe("source", Source("global", name))
