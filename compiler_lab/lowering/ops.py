"""The vocabulary of loop bodies: one body, many handlers.

A body is an ``fx.Graph`` over the functions below. Structural ones (``load``, ``store``, ``reduce``, ``index_value``, ``indirect``,
``constant``, ``to_dtype``) mean nothing without a handler; scalar ones are rows of ``SCALAR``: each function here is the
op's executable spec, on tensors of one dtype. Handlers: the evaluator (``interpret.py``), the printer, C++ (``codegen/cpp.py``)
and later Triton, each a table keyed by the same names.

Semantics are aten's: ``maximum``/``minimum``/``relu`` hand NaN on, ``relu(-0.0)`` is ``-0.0``, ``floordiv`` and ``remainder`` take the
divisor's sign, ``trunc_div`` and ``fmod`` the dividend's, ``round`` goes to even. Comparisons and ``logical_*`` give bool.
PyTorch's counterpart: ``torch/_inductor/ops_handler.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..core.philox import rand, rand64, randint64, randn, randn64
from .index import Index


def _structural(name: str) -> NoReturn:
    raise TypeError(f"ops.{name} has no meaning outside a handler")


def load(buffer: str, index: Index, *indirect: Any) -> Any:
    """The element of ``buffer`` at ``index``; ``Var("%0", n)`` in the index stands for ``indirect[0]``."""
    _structural("load")


def store(buffer: str, index: Index, value: Any) -> Any:
    """Writes ``value`` to ``buffer`` at ``index``."""
    _structural("store")


def reduce(kind: str, value: Any) -> Any:
    """``value`` reduced over the node's inner variables: sum, prod, max, min, argmax, argmin, any, all."""
    _structural("reduce")


def scan(kind: str, value: Any) -> Any:
    """``value`` and those of the steps before it, taken together: sum, prod, logsumexp, max, min, argmax, argmin (the last of equals)."""
    _structural("scan")


def scatter(buffer: str, index: Index, value: Any, mode: str, *indirect: Any) -> Any:
    """Puts ``value`` at ``index`` of ``buffer``: ``set`` writes over what is there, sum, prod, max and min take it together with that."""
    _structural("scatter")


def index_value(index: Index, dtype: torch.dtype, *indirect: Any) -> Any:
    """The index itself as a number of ``dtype``; ``Var("%0", n)`` in it stands for ``indirect[0]``."""
    _structural("index_value")


def indirect(value: Any, size: int, wrap: bool) -> Any:
    """An int64 ``value`` checked to lie in ``[0, size)``, after adding ``size`` to negative ones if ``wrap``; else an IndexError."""
    _structural("indirect")


def constant(value: int | float | bool, dtype: torch.dtype) -> Any:
    _structural("constant")


def to_dtype(value: Any, dtype: torch.dtype) -> Any:
    """C-style conversion, as ``Tensor.to``: to bool is ``!= 0``."""
    _structural("to_dtype")


STRUCTURAL: tuple[Callable[..., Any], ...] = (load, store, reduce, scan, scatter, index_value, indirect, constant, to_dtype)


# fmt: off
def add(a: Tensor, b: Tensor) -> Tensor: return torch.add(a, b)
def sub(a: Tensor, b: Tensor) -> Tensor: return torch.sub(a, b)
def mul(a: Tensor, b: Tensor) -> Tensor: return torch.mul(a, b)
def truediv(a: Tensor, b: Tensor) -> Tensor: return torch.div(a, b)
def floordiv(a: Tensor, b: Tensor) -> Tensor: return torch.div(a, b, rounding_mode="floor")
def trunc_div(a: Tensor, b: Tensor) -> Tensor: return torch.div(a, b, rounding_mode="trunc")
def remainder(a: Tensor, b: Tensor) -> Tensor: return torch.remainder(a, b)
def fmod(a: Tensor, b: Tensor) -> Tensor: return torch.fmod(a, b)
def pow(a: Tensor, b: Tensor) -> Tensor: return torch.pow(a, b)
def atan2(a: Tensor, b: Tensor) -> Tensor: return torch.atan2(a, b)
def hypot(a: Tensor, b: Tensor) -> Tensor: return torch.hypot(a, b)
def copysign(a: Tensor, b: Tensor) -> Tensor: return torch.copysign(a, b)
def maximum(a: Tensor, b: Tensor) -> Tensor: return torch.maximum(a, b)
def minimum(a: Tensor, b: Tensor) -> Tensor: return torch.minimum(a, b)
def eq(a: Tensor, b: Tensor) -> Tensor: return torch.eq(a, b)
def ne(a: Tensor, b: Tensor) -> Tensor: return torch.ne(a, b)
def lt(a: Tensor, b: Tensor) -> Tensor: return torch.lt(a, b)
def le(a: Tensor, b: Tensor) -> Tensor: return torch.le(a, b)
def gt(a: Tensor, b: Tensor) -> Tensor: return torch.gt(a, b)
def ge(a: Tensor, b: Tensor) -> Tensor: return torch.ge(a, b)
def logical_and(a: Tensor, b: Tensor) -> Tensor: return torch.logical_and(a, b)
def logical_or(a: Tensor, b: Tensor) -> Tensor: return torch.logical_or(a, b)
def logical_xor(a: Tensor, b: Tensor) -> Tensor: return torch.logical_xor(a, b)
def bitwise_and(a: Tensor, b: Tensor) -> Tensor: return torch.bitwise_and(a, b)
def bitwise_or(a: Tensor, b: Tensor) -> Tensor: return torch.bitwise_or(a, b)
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor: return torch.bitwise_xor(a, b)
def shift_left(a: Tensor, b: Tensor) -> Tensor: return torch.bitwise_left_shift(a, b)
def shift_right(a: Tensor, b: Tensor) -> Tensor: return torch.bitwise_right_shift(a, b)
def nextafter(a: Tensor, b: Tensor) -> Tensor: return torch.nextafter(a, b)
def where(c: Tensor, a: Tensor, b: Tensor) -> Tensor: return torch.where(c, a, b)
def neg(a: Tensor) -> Tensor: return torch.neg(a)
def abs(a: Tensor) -> Tensor: return torch.abs(a)
def sign(a: Tensor) -> Tensor: return torch.sign(a)
def reciprocal(a: Tensor) -> Tensor: return torch.reciprocal(a)
def relu(a: Tensor) -> Tensor: return torch.relu(a)
def exp(a: Tensor) -> Tensor: return torch.exp(a)
def exp2(a: Tensor) -> Tensor: return torch.exp2(a)
def expm1(a: Tensor) -> Tensor: return torch.expm1(a)
def log(a: Tensor) -> Tensor: return torch.log(a)
def log2(a: Tensor) -> Tensor: return torch.log2(a)
def log10(a: Tensor) -> Tensor: return torch.log10(a)
def log1p(a: Tensor) -> Tensor: return torch.log1p(a)
def sqrt(a: Tensor) -> Tensor: return torch.sqrt(a)
def rsqrt(a: Tensor) -> Tensor: return torch.rsqrt(a)
def sin(a: Tensor) -> Tensor: return torch.sin(a)
def cos(a: Tensor) -> Tensor: return torch.cos(a)
def tan(a: Tensor) -> Tensor: return torch.tan(a)
def asin(a: Tensor) -> Tensor: return torch.asin(a)
def acos(a: Tensor) -> Tensor: return torch.acos(a)
def atan(a: Tensor) -> Tensor: return torch.atan(a)
def sinh(a: Tensor) -> Tensor: return torch.sinh(a)
def cosh(a: Tensor) -> Tensor: return torch.cosh(a)
def tanh(a: Tensor) -> Tensor: return torch.tanh(a)
def asinh(a: Tensor) -> Tensor: return torch.asinh(a)
def acosh(a: Tensor) -> Tensor: return torch.acosh(a)
def atanh(a: Tensor) -> Tensor: return torch.atanh(a)
def erf(a: Tensor) -> Tensor: return torch.erf(a)
def erfc(a: Tensor) -> Tensor: return torch.erfc(a)
def erfinv(a: Tensor) -> Tensor: return torch.erfinv(a)
def lgamma(a: Tensor) -> Tensor: return torch.lgamma(a)
def sigmoid(a: Tensor) -> Tensor: return torch.sigmoid(a)
def floor(a: Tensor) -> Tensor: return torch.floor(a)
def ceil(a: Tensor) -> Tensor: return torch.ceil(a)
def trunc(a: Tensor) -> Tensor: return torch.trunc(a)
def round(a: Tensor) -> Tensor: return torch.round(a)
def signbit(a: Tensor) -> Tensor: return torch.signbit(a)
def isnan(a: Tensor) -> Tensor: return torch.isnan(a)
def isinf(a: Tensor) -> Tensor: return torch.isinf(a)
def logical_not(a: Tensor) -> Tensor: return torch.logical_not(a)
def bitwise_not(a: Tensor) -> Tensor: return torch.bitwise_not(a)
# fmt: on

RANDOM: dict[str, torch.dtype] = {
    "rand": torch.float32, "rand64": torch.float64, "randn": torch.float32, "randn64": torch.float64, "randint64": torch.int64,
}  # fmt: skip
"""Random numbers of a seed and a position, int64 all of their operands (``core/philox.py``), and what they give."""

BOOLEAN = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "signbit"})
"""Ops whose result is bool whatever their operands are."""

SCALAR: dict[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (
        rand, rand64, randn, randn64, randint64,
        add, sub, mul, truediv, floordiv, trunc_div, remainder, fmod, pow, atan2, hypot, copysign, maximum, minimum, eq, ne, lt, le, gt, ge,
        logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right, nextafter,
        where, neg, abs, sign, reciprocal, relu, exp, exp2, expm1,
        log, log2, log10, log1p, sqrt, rsqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, erfinv,
        lgamma, sigmoid, floor, ceil, trunc, round, signbit, isnan, isinf, logical_not, bitwise_not,
    )
}  # fmt: skip

EXPENSIVE = frozenset(
    {"pow", "atan2", "hypot", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
     "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "sigmoid", *RANDOM}
)  # fmt: skip
"""Ops that cost several multiplications: what is not recomputed across phases, and what makes small loops worth a thread."""
