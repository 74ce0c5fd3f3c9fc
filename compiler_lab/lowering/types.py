"""Type promotion, as ``torch.result_type`` does it, on what lowering has: views and Python numbers.

In: operands of one aten call. Out: the dtype aten computes in ("common"), and the one our loops compute in ("opmath").
Always holds: tensors with dimensions outrank 0-dim tensors, which outrank Python numbers, unless the lower rank is of a higher
category (bool < integer < floating).
PyTorch does this in ``aten/src/ATen/TensorIterator.cpp`` and ``torch/_prims_common`` (elementwise_dtypes). Left out: complex.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .ir import TensorView
from .sizes import Size

LOOP_DTYPES = frozenset(
    {
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    }
)  # fmt: skip
"""What loops are made for; everything else stays with aten."""

REDUCED = frozenset({torch.float16, torch.bfloat16})


def category(dtype: torch.dtype) -> int:
    """0 for bool, 1 for integers, 2 for floating point."""
    return 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def number_dtype(value: int | float | bool) -> torch.dtype:
    return torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, (int, Size)) else torch.get_default_dtype()


def result_type(operands: Iterable[TensorView | int | float | bool]) -> torch.dtype:
    """The dtype aten promotes ``operands`` to."""
    ranks: list[torch.dtype | None] = [None, None, None]  # tensors with dimensions, 0-dim tensors, numbers
    for operand in operands:
        rank = 2 if not isinstance(operand, TensorView) else 0 if operand.size else 1
        dtype = operand.dtype if isinstance(operand, TensorView) else number_dtype(operand)
        before = ranks[rank]
        ranks[rank] = dtype if before is None else torch.promote_types(before, dtype)
    result: torch.dtype | None = None
    for dtype in ranks:
        if dtype is not None and (result is None or category(dtype) > category(result)):
            result = dtype
    assert result is not None, "an op without operands has no result type"
    return result


def opmath(dtype: torch.dtype) -> torch.dtype:
    """Half precision computes in float32."""
    return torch.float32 if dtype in REDUCED else dtype


def floating(dtype: torch.dtype) -> torch.dtype:
    """What exp, true division and the like give: integers become the default dtype."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def round_number(value: float, dtype: torch.dtype) -> float:
    """``value`` as a tensor of ``dtype`` would hold it: what aten compares a half precision tensor with."""
    return torch.tensor(value, dtype=dtype).item() if dtype in REDUCED and isinstance(value, float) else value
