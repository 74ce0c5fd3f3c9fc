"""What operator schemas tell functionalization: what a call writes, and which operator computes the same without writing.

In: an ``OpOverload``. Its schema annotates arguments and results: ``(a!)`` is written to, ``(a)`` shares memory.
PyTorch's counterpart: ``torchgen/gen_functionalization_type.py`` and ``torchgen/native_function_generation.py``, which make the
functional twins that are looked up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload, OpOverloadPacket

from ..core.schema import bound, written_names

aten = torch.ops.aten

NAMED_TWINS: dict[OpOverload, OpOverload] = {
    aten.normal_.default: aten.normal_functional.default,
    aten.__iand__.Tensor: aten.bitwise_and.Tensor,
    aten.__iand__.Scalar: aten.bitwise_and.Scalar,
    aten.__ior__.Tensor: aten.bitwise_or.Tensor,
    aten.__ior__.Scalar: aten.bitwise_or.Scalar,
    aten.__ixor__.Tensor: aten.bitwise_xor.Tensor,
    aten.__ixor__.Scalar: aten.bitwise_xor.Scalar,
    aten.__ilshift__.Tensor: aten.bitwise_left_shift.Tensor,
    aten.__ilshift__.Scalar: aten.bitwise_left_shift.Tensor_Scalar,
    aten.__irshift__.Tensor: aten.bitwise_right_shift.Tensor,
    aten.__irshift__.Scalar: aten.bitwise_right_shift.Tensor_Scalar,
}
"""Twins that the rule of names does not find."""


TOLD_BY_OUT = ("dtype", "layout", "device", "pin_memory")
"""Arguments of the functional form of a factory that the tensor written into says."""


@cache
def functional_twin(op: OpOverload) -> OpOverload | None:
    """The operator that returns what ``op`` writes: of the same name without ``_`` (or with ``_functional``), and the same arguments.

    An argument that is only written (``out``) is not among them; a factory's has dtype and device of its own (``TOLD_BY_OUT``) instead.
    """
    if op in NAMED_TWINS:
        return NAMED_TWINS[op]
    namespace = getattr(torch.ops, op.namespace)
    name = op._opname
    outs = {a.name for a in op._schema.arguments if a.is_out}
    wanted = sorted((a.name, str(a.type)) for a in op._schema.arguments if a.name not in outs)
    for candidate in dict.fromkeys((name.removesuffix("_"), name, f"{name}_functional", f"{name.removesuffix('_')}_functional")):
        packet = getattr(namespace, candidate, None)
        if not isinstance(packet, OpOverloadPacket):
            continue
        overloads = sorted(packet.overloads(), key=lambda o: o != op._overloadname)
        for overload in (getattr(packet, o) for o in overloads):
            if overload._schema.is_mutable:
                continue
            mine = [(a.name, str(a.type)) for a in overload._schema.arguments]
            if sorted(mine) == wanted or (outs and sorted(a for a in mine if a[0] not in TOLD_BY_OUT) == wanted):
                return overload
    return None


def call_of(op: OpOverload, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a call of ``op``, without those that are as by default."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    needed = 0
    for a in op._schema.arguments:
        if a.name not in arguments:
            continue
        value, by_default = arguments[a.name], a.has_default_value() and _plainly_equal(arguments[a.name], a.default_value)
        if a.kwarg_only:
            kwargs.update({} if by_default else {a.name: value})
        else:
            args.append(value)
            needed = needed if by_default else len(args)
    return args[:needed], kwargs


def _plainly_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, (list, tuple, fx.Node)) and a == b


def written_args(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The tensors that ``op`` says it writes to, lists of them flattened."""
    arguments = bound(op, args, kwargs)
    for name in written_names(op):
        value = arguments[name]
        yield from value if isinstance(value, (list, tuple)) else () if value is None else (value,)
