"""Strides: what they say of how the elements of a tensor lie in memory.

In: sizes and strides, in elements. Out: strides, or an answer. Always holds: a dimension of size 1 has no say. Of symbolic sizes nothing is assumed
where the answer is the same for all of them; elsewhere it is decided, with a guard.
PyTorch's counterpart: ``c10/core/TensorImpl.cpp`` (compute_contiguous, compute_non_overlapping_and_dense).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .sizes import decided, hint, same


def contiguous_stride(size: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, as aten computes them: a dimension of size 0 counts as 1."""
    strides: list[int] = []
    step: Any = 1
    n: Any
    for n in reversed(size):
        strides.append(step)
        step = step * torch.sym_max(n, 1) if type(n) is torch.SymInt else step * max(n, 1)
    return tuple(reversed(strides))


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """The elements fill their memory without gaps or overlap, in some order of the dimensions; without elements they do."""
    expected = 1
    if any(type(n) is not int for n in (*size, *stride)):
        return _is_dense(size, stride)
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n != 1):
        if step != expected:
            return 0 in size
        expected *= n
    return True


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Of symbolic sizes: in the order that the strides have at the first call. Dense in one order of the dimensions is dense."""
    expected = 1
    for step, n in sorted(zip(stride, size, strict=True), key=lambda pair: (hint(pair[0]), hint(pair[1]))):
        if not same(step, expected):
            if decided(n == 1):
                continue
            if decided(step != expected):
                return any(decided(n == 0) for n in size)
        expected *= n
    return True
