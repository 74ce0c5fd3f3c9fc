"""``inspect.signature`` of functions that exist, as far as programs ask for names.

In: a function or method. Out: its parameters by name. Always holds: the code that says them is guarded, and that nothing stands before it
(``__wrapped__``, ``__signature__``); what a parameter itself says (kind, default, annotation) is refused.
PyTorch's counterpart: ``SourcelessBuilder`` of ``inspect.Signature`` in ``torch/_dynamo/variables/user_defined.py``.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from ..ir import Source
from .base import Args, Constant, Kwargs, Opaque, Value
from .containers import DictValue
from .functions import FunctionValue, MethodValue

if TYPE_CHECKING:
    from ..tracer import Tracer


class Parameters(DictValue):
    """``Signature.parameters``, which nobody can change."""

    def __init__(self, signature: inspect.Signature) -> None:
        super().__init__({name: (Constant(name), Opaque(p, None)) for name, p in signature.parameters.items()})
        self.METHODS = {name: row for name, row in self.METHODS.items() if hasattr(types.MappingProxyType, name) and name != "copy"}

    def python_type(self) -> type[Any]:
        return types.MappingProxyType

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        raise t.refuse("unknown-value", "item assignment to the parameters of a signature")

    def delete_item(self, t: Tracer, key: Value) -> None:
        raise t.refuse("unknown-value", "item deletion of the parameters of a signature")


class SignatureValue(Value):
    def __init__(self, real: inspect.Signature) -> None:
        self.signature = real

    def python_type(self) -> type[Any]:
        return inspect.Signature

    def get(self, t: Tracer, name: str) -> Value:
        return Parameters(self.signature) if name == "parameters" else super().get(t, name)


def signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``inspect.signature(function)``. Raises ``CaptureUnsupported`` for what is no Python function of before the frame."""
    value = args[0] if len(args) == 1 and not kwargs else None
    function = value.function if isinstance(value, MethodValue) else value
    while isinstance(function, FunctionValue) and function.real is not None and "__wrapped__" in function.real.__dict__ and not function.attributes:
        _stays(t, function, "__signature__")
        function = function.get(t, "__wrapped__")
    if not isinstance(function, FunctionValue) or function.real is None or function.attributes:
        raise t.refuse("unknown-callable", f"inspect.signature of {args[0].describe() if args else 'nothing'}")
    _stays(t, function, "__signature__")
    _stays(t, function, "__wrapped__")
    if function.source is not None:
        t.guard("id", Source("attr", "__code__", function.source), None, why="its parameters were asked for")
    return SignatureValue(inspect.signature(types.MethodType(function.real, "any") if isinstance(value, MethodValue) else function.real))


def _stays(t: Tracer, function: FunctionValue, name: str) -> None:
    """The function has no such attribute, which would say another signature."""
    assert function.real is not None
    if name in function.real.__dict__:
        raise t.refuse("unknown-callable", f"inspect.signature of {function.describe()}, which has {name}")
    t.guard("no_attr", function.source, name, why="the signature of the function was asked for")
