"""Rows of activations and their backwards: the formulas of ``aten/src/ATen/native/cpu/Activation.cpp``, NaN and edges included.

In: ``Value``s and numbers under aten's argument names. Out: the result's value.
Always holds: each formula is evaluated in the order aten evaluates it, so results agree to the last bit but for fused multiply-adds;
comparisons are written the way round that sends NaN where aten's vector code sends it (its scalar code differs in a few backwards).
"""

from __future__ import annotations

import math

from . import ops
from .body import Number, Value, apply, where
from .rows_pointwise import Pointwise, clamp

ROOT_HALF = math.sqrt(0.5)
GELU_SCALE = math.sqrt(2.0) * (2.0 / math.sqrt(math.pi)) * 0.5
GELU_CUBE = 0.044715


def logistic(self: Value) -> Value:
    return 1 / (apply(ops.exp, -self) + 1)


def gelu(self: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        return self * 0.5 * (apply(ops.erf, self * ROOT_HALF) + 1)
    inner = (self + self * self * self * GELU_CUBE) * GELU_SCALE
    return self * 0.5 * (apply(ops.tanh, inner) + 1)


def gelu_backward(grad_output: Value, self: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        cdf = (apply(ops.erf, self * ROOT_HALF) + 1) * 0.5
        pdf = apply(ops.exp, self * self * -0.5) * ((2.0 / math.sqrt(math.pi)) * ROOT_HALF * 0.5)
        return grad_output * (cdf + self * pdf)
    square = self * self
    tanh = apply(ops.tanh, (self + square * self * GELU_CUBE) * GELU_SCALE)
    left, right = self * 0.5, tanh + 1
    right_derivative = left * (1 - tanh * tanh) * ((square * (3 * GELU_CUBE) + 1) * GELU_SCALE)
    return grad_output * (right * 0.5 + right_derivative)


def silu(self: Value) -> Value:
    return self / (apply(ops.exp, -self) + 1)


def silu_backward(grad_output: Value, self: Value) -> Value:
    sigmoid = logistic(self)
    return grad_output * sigmoid * (self * (1 - sigmoid) + 1)


def sigmoid_backward(grad_output: Value, output: Value) -> Value:
    return grad_output * (1 - output) * output


def tanh_backward(grad_output: Value, output: Value) -> Value:
    return grad_output * (1 - output * output)


def threshold(self: Value, threshold: Number, value: Number) -> Value:
    return where(self <= threshold, value, self)


def threshold_backward(grad_output: Value, self: Value, threshold: Number) -> Value:
    return where(self <= threshold, 0, grad_output)


def leaky_relu(self: Value, negative_slope: Number = 0.01) -> Value:
    return where(self > 0, self, self * negative_slope)


def leaky_relu_backward(grad_output: Value, self: Value, negative_slope: Number, self_is_result: bool) -> Value:
    return where(self > 0, grad_output, grad_output * negative_slope)


def elu(self: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    return where(self < 0, apply(ops.expm1, self * input_scale) * (alpha * scale), self * scale)


def elu_backward(grad_output: Value, alpha: Number, scale: Number, input_scale: Number, is_result: bool, self_or_result: Value) -> Value:
    x, slope = self_or_result, alpha * scale
    if is_result:
        negative = grad_output * input_scale * (x + slope)
    else:
        negative = grad_output * (input_scale * slope) * apply(ops.exp, x * input_scale)
    return where(x > 0, grad_output * scale, negative)


def hardtanh(self: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    return clamp(self, min_val, max_val)


def hardtanh_backward(grad_output: Value, self: Value, min_val: Number, max_val: Number) -> Value:
    return where(apply(ops.logical_and, self > min_val, self < max_val), grad_output, 0)


def hardswish(self: Value) -> Value:
    return self * clamp(self + 3, 0, 6) / 6


def hardswish_backward(grad_output: Value, self: Value) -> Value:
    return where(self <= -3, 0, where(self >= 3, grad_output, grad_output * (self / 3 + 0.5)))


def hardsigmoid(self: Value) -> Value:
    return clamp(self + 3, 0, 6) / 6


def hardsigmoid_backward(grad_output: Value, self: Value) -> Value:
    return where(apply(ops.logical_and, self > -3, self < 3), grad_output * (1 / 6), 0)


def softplus(self: Value, beta: Number = 1, threshold: Number = 20) -> Value:
    scaled = self * beta
    return where(scaled > threshold, self, apply(ops.log1p, apply(ops.exp, scaled)) / beta)


def softplus_backward(grad_output: Value, self: Value, beta: Number, threshold: Number) -> Value:
    scaled = self * beta
    z = apply(ops.exp, scaled)
    return where(scaled > threshold, grad_output, grad_output * z / (z + 1))


def mish(self: Value) -> Value:
    return self * apply(ops.tanh, apply(ops.log1p, apply(ops.exp, self)))


def mish_backward(grad_output: Value, self: Value) -> Value:
    sigmoid = logistic(self)
    tanh = apply(ops.tanh, apply(ops.log1p, apply(ops.exp, self)))
    return grad_output * (tanh + self * sigmoid * (1 - tanh * tanh))


def hardshrink(self: Value, lambd: Number = 0.5) -> Value:
    return where(apply(ops.logical_and, self >= -lambd, self <= lambd), 0, self)


def softshrink(self: Value, lambd: Number = 0.5) -> Value:
    return where(self > lambd, self - lambd, where(self < -lambd, self + lambd, where(apply(ops.isnan, self), self, 0)))


def shrink_backward(grad_out: Value, self: Value, lambd: Number) -> Value:
    return where(apply(ops.logical_or, self < -lambd, self > lambd), grad_out, 0)


ACTIVATIONS: dict[str, Pointwise] = {
    "aten.gelu.default": Pointwise(gelu, "self"),
    "aten.gelu_backward.default": Pointwise(gelu_backward, "self"),
    "aten.silu.default": Pointwise(silu, "self"),
    "aten.silu_backward.default": Pointwise(silu_backward, "self"),
    "aten.sigmoid_backward.default": Pointwise(sigmoid_backward, "self"),
    "aten.tanh_backward.default": Pointwise(tanh_backward, "self"),
    "aten.threshold.default": Pointwise(threshold, "self"),
    "aten.threshold_backward.default": Pointwise(threshold_backward, "self"),
    "aten.leaky_relu.default": Pointwise(leaky_relu, "self"),
    "aten.leaky_relu_backward.default": Pointwise(leaky_relu_backward, "self"),
    "aten.elu.default": Pointwise(elu, "self"),
    "aten.elu_backward.default": Pointwise(elu_backward, "self"),
    "aten.hardtanh.default": Pointwise(hardtanh, "self"),
    "aten.hardtanh_backward.default": Pointwise(hardtanh_backward, "self"),
    "aten.hardswish.default": Pointwise(hardswish, "self"),
    "aten.hardswish_backward.default": Pointwise(hardswish_backward, "self"),
    "aten.hardsigmoid.default": Pointwise(hardsigmoid, "self"),
    "aten.hardsigmoid_backward.default": Pointwise(hardsigmoid_backward, "self"),
    "aten.softplus.default": Pointwise(softplus, "self"),
    "aten.softplus_backward.default": Pointwise(softplus_backward, "self"),
    "aten.mish.default": Pointwise(mish, "self"),
    "aten.mish_backward.default": Pointwise(mish_backward, "self"),
    "aten.hardshrink.default": Pointwise(hardshrink, "self"),
    "aten.hardshrink_backward.default": Pointwise(shrink_backward, "self"),
    "aten.softshrink.default": Pointwise(softshrink, "self"),
    "aten.softshrink_backward.default": Pointwise(shrink_backward, "self"),
}
"""Operator name -> row."""
