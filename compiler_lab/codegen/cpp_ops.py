"""What a scalar op is in C++: a row for each op, text over operand names.

In: an op of ``lowering/ops.py``, the dtype of its operands and their C++ texts. Out: a C++ expression of the compute type of its result.
Ops that are functions come from ``math_table``; the rest are the expressions below. Always holds: the expression gives what aten
gives, NaN, infinities, signed zeros and wrap-around included; float16 and bfloat16 compute in float and round once for each op, as aten does.
PyTorch's counterpart: ``CppOverrides`` in ``torch/_inductor/codegen/cpp.py``. Left out: complex numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import torch

from ..core.errors import Unsupported
from .math_table import COMPUTE, LOAD, STORE, function

EXPRESSIONS: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "truediv": "{0} / {1}", "neg": "-{0}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}", "bitwise_not": "~{0}",
    "where": "{0} ? {1} : {2}",
    # no short circuit: branches keep loops from becoming vector code
    "logical_and": "({0} != 0) & ({1} != 0)", "logical_or": "({0} != 0) | ({1} != 0)", "logical_xor": "({0} != 0) != ({1} != 0)", "logical_not": "{0} == 0",
}  # fmt: skip

FLOAT: dict[str, str] = {"reciprocal": "1 / {0}"}
"""Rows for floating point only."""

BOOL: dict[str, str] = {"bitwise_not": "!{0}", "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_xor": "{0} != {1}", "logical_not": "!{0}"}
"""Rows that differ for bool."""

INTEGER: dict[str, str] = {"signbit": "{0} < 0", "isnan": "false", "isinf": "false", "floor": "{0}", "ceil": "{0}", "trunc": "{0}", "round": "{0}"}
"""Rows for integers and bool, where the functions of ``math_table`` are for floating point."""

EXACT = frozenset({"neg", "abs", "relu", "maximum", "minimum", "where", "sign", "floor", "ceil", "trunc", "round", "copysign"})
"""Ops whose result on half-precision operands needs no rounding."""

DIVISIONS = frozenset({"floordiv", "trunc_div", "remainder", "fmod"})
"""Ops that raise on integers where the divisor is zero."""


def expression(op: str, dtype: torch.dtype, result: torch.dtype, operands: Sequence[str]) -> str:
    """``op`` on ``operands`` of ``dtype`` (the values', for ``where``), of compute type ``COMPUTE[result]``."""
    text = _row(op, dtype).format(*operands) if function(op, dtype) is None else f"{function(op, dtype)}({', '.join(operands)})"
    return text if op in EXACT else rounded(text, result)


def _row(op: str, dtype: torch.dtype) -> str:
    tables = [FLOAT] if dtype.is_floating_point else [BOOL, INTEGER] if dtype == torch.bool else [INTEGER]
    for table in (*tables, EXPRESSIONS):
        if op in table:
            return table[op]
    raise Unsupported(f"no C++ for {op} on {dtype}", reason="codegen.op", why="the table of C++ expressions has no row for it")


def rounded(text: str, dtype: torch.dtype) -> str:
    """A float expression rounded to half precision, where ``dtype`` is one; otherwise itself."""
    if dtype == torch.bfloat16:
        return f"round_bf16({text})"
    return f"{LOAD[dtype]}({STORE[dtype]}({text}))" if dtype in LOAD else text


def conversion(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """``Tensor.to(target)``."""
    return rounded(f"lab_cast<{COMPUTE[target]}>({text})" if COMPUTE[source] != COMPUTE[target] else text, target)


def compute_type(dtype: torch.dtype) -> str:
    """The C++ type of a value of ``dtype``. Raises ``Unsupported`` for dtypes that kernels do not model."""
    if dtype not in COMPUTE:
        raise Unsupported(f"no C++ type for {dtype}", reason="codegen.dtype")
    return COMPUTE[dtype]


def literal(value: float | int | bool, dtype: torch.dtype) -> str:
    """A constant of exactly ``COMPUTE[dtype]``, rounded to ``dtype``, in the shortest digits that give it back."""
    ctype = compute_type(dtype)
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        number = int(torch.tensor(value, dtype=dtype).item())
        return "INT64_MIN" if number == -(2**63) else f"{ctype}({number})"
    number = float(torch.tensor(value, dtype=dtype).item())
    if math.isnan(number):
        return f"{ctype}(LAB_NAN)"
    if math.isinf(number):
        return f"{ctype}({'-' if number < 0 else ''}LAB_INF)"
    return repr(number) if ctype == "double" else f"{_shortest(number)}f"


def _shortest(number: float) -> str:
    """The shortest decimal that reads back as this float32."""
    for digits in range(6, 10):
        text = f"{number:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", number):
            break
    return text if any(c in text for c in ".e") else f"{text}.0"  # pyright: ignore[reportPossiblyUnboundVariable]
