"""Which C function computes a scalar op: rows keyed by op name and the C type it computes in, all defined in ``lab_math.h``.

In: an op name of ``lowering/ops.py`` and a dtype. Out: the C name of a function of as many scalars of ``compute_type(dtype)``;
None for ops that are plain C++ expressions (``a + b``, ``a < b``, ``c ? a : b``), which the generator writes itself.
Always holds: every name is a branch-free inline function of ``math.h`` (or a libm function with a vector variant) that gives
what eager gives for NaN, infinities, signed zeros and denormals.

``vm_*`` are the mathematical functions, ``_f32``/``_f64`` by type. Templates over any arithmetic type, called without arguments:
``lab_max``, ``lab_min`` (NaN goes through), ``lab_relu`` (NaN and -0.0 stay), ``lab_abs``, ``lab_sign``, ``lab_floordiv``, ``lab_mod`` (sign of
the divisor), ``lab_truncdiv``, ``lab_fmod`` (sign of the dividend), ``lab_ipow``. Integer division never traps: by zero it gives 0,
which the caller must have ruled out, because eager raises. ``lab_cast<T>(x)`` is ``Tensor.to`` (to bool is ``!= 0``).
Half precision is stored as ``uint16_t`` and computed in float: ``lab_ld_bf16``, ``lab_st_bf16``, ``lab_ld_f16``, ``lab_st_f16``.
``LAB_INF``, ``LAB_NAN`` are float constants that convert to double exactly. ``VECTOR_CALLS`` are the names that reach libm.

PyTorch's counterpart: the op overrides of ``torch/_inductor/codegen/cpp.py`` on ``at::vec``.
"""

from __future__ import annotations

import torch

COMPUTE: dict[torch.dtype, str] = {
    torch.float32: "float", torch.float64: "double", torch.bfloat16: "float", torch.float16: "float", torch.bool: "bool",
    torch.int64: "int64_t", torch.int32: "int32_t", torch.int16: "int16_t", torch.int8: "int8_t", torch.uint8: "uint8_t",
}  # fmt: skip
"""The C type in which an element of a dtype is computed."""

STORAGE: dict[torch.dtype, str] = {**COMPUTE, torch.bfloat16: "uint16_t", torch.float16: "uint16_t"}
"""The C type of an element in memory."""

LOAD: dict[torch.dtype, str] = {torch.bfloat16: "lab_ld_bf16", torch.float16: "lab_ld_f16"}
STORE: dict[torch.dtype, str] = {torch.bfloat16: "lab_st_bf16", torch.float16: "lab_st_f16"}
"""Conversions between storage and compute type, where they differ."""

ANY: dict[str, str] = {
    "maximum": "lab_max", "minimum": "lab_min", "relu": "lab_relu", "abs": "lab_abs", "sign": "lab_sign",
    "floordiv": "lab_floordiv", "remainder": "lab_mod", "trunc_div": "lab_truncdiv", "fmod": "lab_fmod",
}  # fmt: skip
"""Templates: the same name for every type."""

FLOAT = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "sigmoid", "floor", "ceil", "trunc", "round", "signbit", "isnan", "isinf", "pow", "atan2",
    "hypot", "copysign", "nextafter",
)  # fmt: skip
"""Ops on floating point only: ``vm_<op>_f32`` and ``vm_<op>_f64``."""

INTEGERS = ("int64_t", "int32_t", "int16_t", "int8_t", "uint8_t")

FUNCTIONS: dict[tuple[str, str], str] = {
    **{(op, ctype): name for op, name in ANY.items() for ctype in dict.fromkeys(COMPUTE.values())},
    **{(op, ctype): f"vm_{op}_{suffix}" for op in FLOAT for ctype, suffix in (("float", "f32"), ("double", "f64"))},
    **{(op, "int64_t"): f"lab_{op}" for op in ("rand", "rand64", "randn", "randn64", "randint64")},
    **{(op, ctype): f"lab_{op}" for op in ("shift_left", "shift_right") for ctype in INTEGERS},
    **{("pow", ctype): "lab_ipow" for ctype in INTEGERS},
}

VECTOR_CALLS = (
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "erfc",
    "log2",
    "log10",
    "pow",
    "atan2",
    "hypot",
    "lgamma",
)
"""Ops that call libm, through its vector variants where glibc has them; the others are polynomials or single instructions."""


def compute_type(dtype: torch.dtype) -> str:
    return COMPUTE[dtype]


def function(op: str, dtype: torch.dtype) -> str | None:
    """The C function for ``op`` on operands of ``dtype``; None where the op is a C++ expression."""
    return FUNCTIONS.get((op, COMPUTE[dtype]))
