"""What tells calls apart for which capture has failed: one that is like an earlier one is not tried again.

In: the arguments of a call. Out: a hashable value. Always holds: nothing of the program's is kept alive or run: no ``__eq__``, ``__str__``,
``__class__`` or torch function of an argument, under whatever modes there are.
PyTorch's counterpart: none; ``torch/_dynamo/convert_frame.py`` marks the code object as one to skip.
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.modes import active_modes
from .guards import GLOBALS

PLAIN = (type(None), bool, int, float, str)


def signature(locals: dict[str, Any]) -> Any:
    """Kinds, shapes and plain values of the arguments, and the modes that are active."""
    return active_modes(), tuple((name, describe(value)) for name, value in locals.items() if name != GLOBALS)


def describe(value: Any, depth: int = 4) -> Any:
    kind = type(value)
    name = kind.__qualname__
    if issubclass(kind, torch.Tensor):
        with torch._C.DisableTorchFunction():
            sizes = tuple(value.shape) if not value.is_nested else ()
            return (name, value.dtype, str(value.device), value.requires_grad, sizes)
    if kind in PLAIN:
        return (name, value)
    if issubclass(kind, torch.nn.Module):
        return (name, object.__getattribute__(value, "__dict__").get("training"))
    if depth and kind in (list, tuple):
        return (name, len(value), *(describe(v, depth - 1) for v in value[:16]))
    if depth and kind is dict:
        return (name, len(value), *((describe(k, 0), describe(v, depth - 1)) for k, v in list(value.items())[:16]))
    return name
