"""Strides: what they say of how the elements of a tensor lie in memory.

In: sizes and strides, in elements. Out: strides, or an answer. Always holds: a dimension of size 1 has no say.
PyTorch's counterpart: ``c10/core/TensorImpl.cpp`` (compute_contiguous, compute_non_overlapping_and_dense).
"""

from __future__ import annotations

from collections.abc import Sequence


def contiguous_stride(size: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, as aten computes them: a dimension of size 0 counts as 1."""
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """The elements fill their memory without gaps or overlap, in some order of the dimensions; without elements they do."""
    expected = 1
    for step, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n != 1):
        if step != expected:
            return 0 in size
        expected *= n
    return True
