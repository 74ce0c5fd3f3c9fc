"""Plain Python data as values made inside the frame: what a folded call gave, and exceptions it raised.

In: constants, containers of them, classes, functions, modules. Out: values without source. Always holds: anything else is refused.
PyTorch's counterpart: ``torch/_dynamo/variables/builder.py`` (``SourcelessBuilder``).
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from .base import NONE, Constant, Value
from .containers import DictValue, SequenceValue, SetValue, SliceValue
from .objects import ExceptionValue

if TYPE_CHECKING:
    from ..tracer import Tracer

CONSTANT_TYPES: frozenset[type[Any]] = frozenset(
    {
        bool, int, float, complex, str, bytes, range, type(None), type(...), type(NotImplemented), types.CodeType,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo,
    }
)  # fmt: skip
REAL_TYPES = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType, types.UnionType)


def is_constant_type(value: Any) -> bool:
    return type(value) in CONSTANT_TYPES or isinstance(value, enum.Enum)


def lift(t: Tracer, value: Any) -> Value:
    if value is None:
        return NONE
    if is_constant_type(value):
        return Constant(value)
    if type(value) in (list, tuple, torch.Size):
        return SequenceValue([lift(t, v) for v in value], type(value))
    if type(value) is dict:
        return DictValue({k: (lift(t, k), lift(t, v)) for k, v in value.items()})
    if type(value) in (set, frozenset):
        return SetValue({k: lift(t, k) for k in value}, type(value))
    if type(value) is slice:
        return SliceValue(lift(t, value.start), lift(t, value.stop), lift(t, value.step))
    if isinstance(value, REAL_TYPES):
        return t.wrap(value, None)
    raise t.refuse("unknown-value", f"a result of type {type(value).__name__}")


def raised_from(t: Tracer, error: Exception) -> ExceptionValue:
    """The exception of a folded call, as the program sees it."""
    return ExceptionValue(type(error), [lift(t, a) for a in error.args])
