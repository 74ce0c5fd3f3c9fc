"""Rows of arithmetic: one value for each element, as formulas over ``Value``s.

In: ``Value``s where tensors stood and plain numbers where numbers stood, under aten's own argument names. Out: the result's value.
Always holds: operands arrive in the dtype the op computes in (``rule``), so a row is only its formula; what aten would raise for
(an integer division by zero) is declined and stays with aten.
PyTorch does this in ``torch/_inductor/lowering.py`` (register_pointwise) and ``aten/src/ATen/native/cpu/{Unary,Binary}OpsKernel.cpp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from . import ops
from .body import Decline, Number, Value, apply, where


@dataclass(frozen=True)
class Pointwise:
    """A row. ``rule`` tells the dtype ``fn`` computes in:

    promote   what the operands promote to (half precision computes in float32)
    float     the same, integers become the default dtype
    self      the dtype of the first tensor; the others are converted to it
    bool      bool

    ``raw``: positions of tensors that keep their own dtype. ``exact``: numbers are not rounded to a half precision dtype first.
    """

    fn: Callable[..., Value]
    rule: Literal["promote", "float", "self", "bool"] = "promote"
    raw: frozenset[int] = frozenset()
    exact: bool = False


def unary(op: Callable[..., Any]) -> Callable[[Value], Value]:
    return lambda self: apply(op, self)


def binary(op: Callable[..., Any]) -> Callable[[Any, Any], Value]:
    return lambda self, other: apply(op, self, other)


def for_integers(op: Callable[..., Any]) -> Callable[[Value], Value]:
    """Rounding ops leave integers as they are."""
    return lambda self: apply(op, self) if self.dtype.is_floating_point else self


def scaled(value: Any, alpha: Number) -> Any:
    return value if alpha == 1 else value * alpha


def add(self: Any, other: Any, alpha: Number = 1) -> Value:
    if isinstance(self, Value) and self.dtype == torch.bool:
        return apply(ops.logical_or, self, other)
    return apply(ops.add, self, scaled(other, alpha))


def sub(self: Any, other: Any, alpha: Number = 1) -> Value:
    return apply(ops.sub, self, scaled(other, alpha))


def rsub(self: Value, other: Any, alpha: Number = 1) -> Value:
    return apply(ops.sub, other, scaled(self, alpha))


def mul(self: Any, other: Any) -> Value:
    boolean = isinstance(self, Value) and self.dtype == torch.bool
    return apply(ops.logical_and if boolean else ops.mul, self, other)


def integer_division(op: Callable[..., Any], self: Value, other: Any) -> Value:
    """Integer quotients and remainders; a divisor of 0 raises, as in aten."""
    if self.dtype == torch.bool or (not isinstance(other, Value) and other == 0):
        raise Decline("integer division")
    if not isinstance(other, Value) and other == -1 and self.dtype != torch.uint8:  # the smallest integer has no quotient by -1: C++ traps where aten wraps
        return -self if op in (ops.floordiv, ops.trunc_div) else self * 0
    return apply(op, self, other)


def divided(op: Callable[..., Any]) -> Callable[[Any, Any], Value]:
    def row(self: Any, other: Any) -> Value:
        if not isinstance(self, Value):
            self = other.body.constant(self, other.dtype)
        return apply(op, self, other) if self.dtype.is_floating_point else integer_division(op, self, other)

    return row


def div_mode(self: Value, other: Any, *, rounding_mode: str | None) -> Value:
    if rounding_mode is None:
        return apply(ops.truediv, self, other)
    return divided(ops.floordiv if rounding_mode == "floor" else ops.trunc_div)(self, other)


def pow_scalar(self: Value, exponent: Number) -> Value:
    """aten's own special cases; other integer powers of integers are multiplied out."""
    if exponent in (0, 1, 2, 3):
        return (self * 0 + 1 if not self.dtype.is_floating_point else _one(self)) if exponent == 0 else _product(self, int(exponent))
    if not self.dtype.is_floating_point:
        if self.dtype == torch.bool or exponent < 0:
            raise Decline("integer power")
        return _product(self, int(exponent)) if exponent <= 16 else apply(ops.pow, self, exponent)
    special: dict[float, Callable[[], Value]] = {
        0.5: lambda: apply(ops.sqrt, self),
        -0.5: lambda: apply(ops.rsqrt, self),
        -1: lambda: apply(ops.reciprocal, self),
        -2: lambda: apply(ops.reciprocal, self * self),
    }
    return special[exponent]() if exponent in special else apply(ops.pow, self, exponent)


def _one(self: Value) -> Value:
    return self.body.constant(1, self.dtype)


def _product(self: Value, times: int) -> Value:
    """``self`` to the power ``times``, by squaring; 2 and 3 as aten multiplies them."""
    if times == 1:
        return self
    half = _product(self, times // 2)
    return half * half * self if times % 2 else half * half


def pow_tensor(self: Any, exponent: Any) -> Value:
    dtype = self.dtype if isinstance(self, Value) else exponent.dtype
    if dtype == torch.bool:
        raise Decline("integer power")
    if not isinstance(self, Value) and self == 1:
        return _one(exponent)
    return apply(ops.pow, self, exponent)


def clamp(self: Value, min: Any = None, max: Any = None) -> Value:
    low = self if min is None else apply(ops.maximum, self, min)
    return low if max is None else apply(ops.minimum, low, max)


def clamp_max(self: Value, max: Any) -> Value:
    return apply(ops.minimum, self, max)


def extreme(op: Callable[..., Any], on_bool: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    return lambda self, other: apply(on_bool if self.dtype == torch.bool else op, self, other)


def fmax(self: Value, other: Value) -> Value:
    return where(apply(ops.isnan, self), other, where(apply(ops.isnan, other), self, apply(ops.maximum, self, other)))


def fmin(self: Value, other: Value) -> Value:
    return where(apply(ops.isnan, self), other, where(apply(ops.isnan, other), self, apply(ops.minimum, self, other)))


def absolute(self: Value) -> Value:
    return self if self.dtype in (torch.uint8, torch.bool) else apply(ops.abs, self)


def sign(self: Value) -> Value:
    return self if self.dtype == torch.bool else apply(ops.sign, self)


def of_floats(op: Callable[..., Any]) -> Callable[[Value], Value]:
    """isnan and isinf: never true of integers."""
    return lambda self: apply(op, self) if self.dtype.is_floating_point else self.body.constant(False, torch.bool)


def isfinite(self: Value) -> Value:
    if not self.dtype.is_floating_point:
        return self.body.constant(True, torch.bool)
    return apply(ops.abs, self) < float("inf")


def select(condition: Value, self: Any, other: Any) -> Value:
    condition = condition.to(torch.bool)
    if isinstance(self, Value) or isinstance(other, Value):
        return where(condition, self, other)
    raise Decline("where of numbers")


def masked_fill(self: Value, mask: Value, value: Any) -> Value:
    return where(mask.to(torch.bool), value, self)


def addcmul(self: Value, tensor1: Value, tensor2: Value, *, value: Number = 1) -> Value:
    return self + scaled(tensor1, value) * tensor2


def addcdiv(self: Value, tensor1: Value, tensor2: Value, *, value: Number = 1) -> Value:
    if not self.dtype.is_floating_point:
        raise Decline("integer division")
    return self + scaled(tensor1, value) / tensor2


def lerp(self: Value, end: Value, weight: Any) -> Value:
    near, far = self + (end - self) * weight, end - (end - self) * (1 - weight)
    if isinstance(weight, Value):
        return where(apply(ops.abs, weight) < 0.5, near, far)
    return near if abs(weight) < 0.5 else far


def xlogy(self: Any, other: Any) -> Value:
    peer = self if isinstance(self, Value) else other
    a, b = (v if isinstance(v, Value) else peer.body.constant(v, peer.dtype) for v in (self, other))
    product = where(apply(ops.eq, a, 0), 0, a * apply(ops.log, b))
    return where(apply(ops.isnan, b), float("nan"), product)


def shift(op: Callable[..., Any]) -> Callable[[Value, Any], Value]:
    """Python's << and >>, which multiply floating point by powers of two."""

    def row(self: Value, other: Any) -> Value:
        if self.dtype.is_floating_point or self.dtype == torch.bool:
            raise Decline("dtype")
        return apply(op, self, other)

    return row


def angle(self: Value) -> Value:
    """Of real numbers: pi below zero; NaN stays."""
    return where(self < 0, math.pi, where(apply(ops.isnan, self), self, 0))


def frac(self: Value) -> Value:
    return self - apply(ops.trunc, self)


RAW_FIRST, RAW_SECOND = frozenset({0}), frozenset({1})

FLOAT_UNARY = (
    ops.exp, ops.exp2, ops.expm1, ops.log, ops.log2, ops.log10, ops.log1p, ops.sqrt, ops.rsqrt, ops.reciprocal, ops.sin, ops.cos, ops.tan,
    ops.asin, ops.acos, ops.atan, ops.sinh, ops.cosh, ops.tanh, ops.asinh, ops.acosh, ops.atanh, ops.erf, ops.erfc,
    ops.erfinv, ops.lgamma, ops.sigmoid,
)  # fmt: skip
SHIFTS = {"left": ops.shift_left, "right": ops.shift_right}
COMPARISONS = (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge)
BITWISE = (ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor)
LOGICAL = (ops.logical_and, ops.logical_or, ops.logical_xor)

POINTWISE: dict[str, Pointwise] = {
    **{f"aten.{op.__name__}.default": Pointwise(unary(op), "float") for op in FLOAT_UNARY},
    **{f"aten.{op.__name__}.{kind}": Pointwise(binary(op)) for op in COMPARISONS for kind in ("Tensor", "Scalar")},
    **{f"aten.{op.__name__}.{kind}": Pointwise(binary(op)) for op in BITWISE for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"aten.{op.__name__}.default": Pointwise(binary(op), "bool") for op in LOGICAL},
    **{f"aten.{op.__name__}.default": Pointwise(for_integers(op)) for op in (ops.floor, ops.ceil, ops.trunc, ops.round)},
    **{f"aten.add.{kind}": Pointwise(add, exact=True) for kind in ("Tensor", "Scalar")},
    **{f"aten.sub.{kind}": Pointwise(sub, exact=True) for kind in ("Tensor", "Scalar")},
    **{f"aten.rsub.{kind}": Pointwise(rsub, exact=True) for kind in ("Tensor", "Scalar")},
    **{f"aten.mul.{kind}": Pointwise(mul, exact=True) for kind in ("Tensor", "Scalar")},
    **{f"aten.div.{kind}": Pointwise(binary(ops.truediv), "float", exact=True) for kind in ("Tensor", "Scalar")},
    **{f"aten.remainder.{kind}": Pointwise(divided(ops.remainder)) for kind in ("Tensor", "Scalar")},
    **{f"aten.fmod.{kind}": Pointwise(divided(ops.fmod)) for kind in ("Tensor", "Scalar")},
    **{f"aten.where.{kind}": Pointwise(select, raw=RAW_FIRST) for kind in ("self", "ScalarSelf", "ScalarOther")},
    **{f"aten.masked_fill.{kind}": Pointwise(masked_fill, "self", RAW_SECOND) for kind in ("Tensor", "Scalar")},
    **{f"aten.lerp.{kind}": Pointwise(lerp) for kind in ("Tensor", "Scalar")},
    **{f"aten.clamp.{kind}": Pointwise(clamp) for kind in ("default", "Tensor")},
    **{f"aten.clamp_min.{kind}": Pointwise(clamp) for kind in ("default", "Tensor")},
    **{f"aten.clamp_max.{kind}": Pointwise(clamp_max) for kind in ("default", "Tensor")},
    **{f"aten.pow.{kind}": Pointwise(pow_tensor) for kind in ("Tensor_Tensor", "Scalar")},
    **{f"aten.xlogy.{kind}": Pointwise(xlogy, "float") for kind in ("Tensor", "Scalar_Self", "Scalar_Other")},
    "aten.pow.Tensor_Scalar": Pointwise(pow_scalar),
    "aten.div.Tensor_mode": Pointwise(div_mode),
    "aten.div.Scalar_mode": Pointwise(div_mode),
    "aten.floor_divide.default": Pointwise(divided(ops.floordiv)),
    "aten.floor_divide.Scalar": Pointwise(divided(ops.floordiv)),
    "aten.atan2.default": Pointwise(binary(ops.atan2), "float"),
    "aten.hypot.default": Pointwise(binary(ops.hypot)),
    "aten.copysign.Tensor": Pointwise(binary(ops.copysign), "float"),
    "aten.copysign.Scalar": Pointwise(binary(ops.copysign), "float"),
    "aten.maximum.default": Pointwise(extreme(ops.maximum, ops.logical_or)),
    "aten.minimum.default": Pointwise(extreme(ops.minimum, ops.logical_and)),
    "aten.fmax.default": Pointwise(fmax),
    "aten.fmin.default": Pointwise(fmin),
    "aten.neg.default": Pointwise(unary(ops.neg)),
    "aten.abs.default": Pointwise(absolute),
    "aten.sign.default": Pointwise(sign),
    "aten.sgn.default": Pointwise(sign),
    "aten.relu.default": Pointwise(unary(ops.relu)),
    "aten.frac.default": Pointwise(frac),
    **{f"aten.bitwise_{way}_shift.{kind}": Pointwise(binary(op)) for way, op in SHIFTS.items() for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")},
    **{f"aten.__{way[0]}shift__.{kind}": Pointwise(shift(op)) for way, op in SHIFTS.items() for kind in ("Tensor", "Scalar")},
    "aten.signbit.default": Pointwise(lambda self: apply(ops.signbit, self) if self.dtype != torch.bool else self.body.constant(False, torch.bool)),
    "aten.nextafter.default": Pointwise(binary(ops.nextafter)),
    "aten.ldexp.Tensor": Pointwise(lambda self, other: self * apply(ops.exp2, other), "float"),
    "aten.angle.default": Pointwise(angle, "float"),
    "aten.remainder.Scalar_Tensor": Pointwise(divided(ops.remainder)),
    "aten.logical_not.default": Pointwise(unary(ops.logical_not), "bool"),
    "aten.bitwise_not.default": Pointwise(lambda self: apply(ops.logical_not if self.dtype == torch.bool else ops.bitwise_not, self)),
    "aten.isnan.default": Pointwise(of_floats(ops.isnan)),
    "aten.isinf.default": Pointwise(of_floats(ops.isinf)),
    "aten.isfinite.default": Pointwise(isfinite),
    "aten.addcmul.default": Pointwise(addcmul),
    "aten.addcdiv.default": Pointwise(addcdiv),
}
"""Operator name -> row."""
