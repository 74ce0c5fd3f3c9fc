"""Rows of views: an aten view of a strided buffer is again strided, so it is a ``TensorView`` and costs nothing.

In: the builder and the call's own arguments. Out: views of the same buffer; a copy only where strides cannot express the shape.
Always holds: strides are computed from the source's, never taken from the fake value.
PyTorch does this in ``aten/src/ATen/native/TensorShape.cpp`` and ``TensorUtils.cpp`` (computeStride).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from .builder import Builder, Decline, broadcast, whole
from .ir import TensorView
from .sizes import at_most, is_number


def wrap(dim: int, dims: int) -> int:
    return dim % max(dims, 1)


def reshape_stride(size: Sequence[int], stride: Sequence[int], new: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements, in the same order, seen as ``new``; None where no strides express that.

    Dimensions are merged into runs that one stride walks; each new dimension must be a factor of a run.
    """
    runs: list[tuple[int, int]] = []  # (elements, stride), outermost first
    for n, s in zip(size, stride, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * s:
            runs[-1] = (runs[-1][0] * n, s)
        else:
            runs.append((n, s))
    result: list[int] = []
    left, step = runs.pop() if runs else (1, 1)
    for n in reversed(new):
        if left == 1 and n != 1:
            left, step = runs.pop()
        if left % n:
            return None
        result.append(step)
        left, step = left // n, step * n
    return tuple(reversed(result))


def view(b: Builder, self: TensorView, size: Any) -> TensorView:
    new = tuple(b.val.shape)
    if 0 in new:
        return TensorView(self.buffer, new, tuple(b.val.stride()), self.offset, self.dtype)
    stride = reshape_stride(self.size, self.stride, new)
    if stride is not None:
        return replace(self, size=new, stride=stride)
    copied = b.copy(self, b.fresh(self.size, self.dtype))
    contiguous = reshape_stride(copied.size, copied.stride, new)
    assert contiguous is not None, "a row-major buffer has every shape"
    return replace(copied, size=new, stride=contiguous)


def view_dtype(b: Builder, self: TensorView, dtype: torch.dtype) -> TensorView:
    if dtype != self.dtype:
        raise Decline("bit cast")
    return self


def same(b: Builder, self: TensorView) -> TensorView:
    return self


def expand(b: Builder, self: TensorView, size: Any, *, implicit: bool = False) -> TensorView:
    return broadcast(self, tuple(b.val.shape))


def permute(b: Builder, self: TensorView, dims: Sequence[int]) -> TensorView:
    order = [wrap(d, len(self.size)) for d in dims]
    return replace(self, size=tuple(self.size[d] for d in order), stride=tuple(self.stride[d] for d in order))


def transpose(b: Builder, self: TensorView, dim0: int, dim1: int) -> TensorView:
    order = list(range(len(self.size)))
    if order:
        i, j = wrap(dim0, len(order)), wrap(dim1, len(order))
        order[i], order[j] = order[j], order[i]
    return permute(b, self, order)


def t(b: Builder, self: TensorView) -> TensorView:
    return permute(b, self, range(len(self.size))[::-1])


def unsqueeze(b: Builder, self: TensorView, dim: int) -> TensorView:
    d = dim % (len(self.size) + 1)
    step = self.size[d] * self.stride[d] if d < len(self.size) else 1
    return replace(self, size=(*self.size[:d], 1, *self.size[d:]), stride=(*self.stride[:d], step, *self.stride[d:]))


def squeeze(b: Builder, self: TensorView, dim: int | Sequence[int] | None = None) -> TensorView:
    dims = range(len(self.size)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d for d in (wrap(d, len(self.size)) for d in dims) if self.size and self.size[d] == 1}
    kept = [d for d in range(len(self.size)) if d not in gone]
    return permute(b, self, kept)


def narrow(self: TensorView, dim: int, start: int, length: int, step: int = 1) -> TensorView:
    """``length`` elements of dimension ``dim``, from ``start``, each ``step`` apart."""
    size, stride = list(self.size), list(self.stride)
    offset = self.offset + start * stride[dim]
    size[dim], stride[dim] = length, stride[dim] * step
    return TensorView(self.buffer, tuple(size), tuple(stride), offset, self.dtype)


def bounds(n: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """(start, length) of the slice ``start:end:step`` of a dimension of ``n``."""
    if is_number(n, start or 0, end or 0):
        first, last, _ = slice(start, end, step).indices(n)
    else:
        first, last = clamped(start or 0, n), n if end is None else clamped(end, n)
    return first, max(0, -(-(last - first) // step))


def clamped(i: int, n: int) -> int:
    """A border of a slice as a number in [0, n]; a negative one counts from the end."""
    i = i + n if i < 0 else i
    return n if at_most(n, i) else max(0, min(i, n))


def slice_tensor(b: Builder, self: TensorView, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> TensorView:
    d = wrap(dim, len(self.size))
    return narrow(self, d, *bounds(self.size[d], start, end, step), step)


def select(b: Builder, self: TensorView, dim: int, index: int) -> TensorView:
    d = wrap(dim, len(self.size))
    picked = narrow(self, d, index % self.size[d], 1)
    return replace(picked, size=picked.size[:d] + picked.size[d + 1 :], stride=picked.stride[:d] + picked.stride[d + 1 :])


def split(b: Builder, self: TensorView, split_size: int, dim: int = 0) -> tuple[TensorView, ...]:
    d = wrap(dim, len(self.size))
    n = self.size[d]
    starts = [i * split_size for i in range(len(b.val))]
    return tuple(narrow(self, d, s, min(split_size, n - s)) for s in starts)


def split_with_sizes(b: Builder, self: TensorView, split_sizes: Sequence[int], dim: int = 0) -> tuple[TensorView, ...]:
    d = wrap(dim, len(self.size))
    return tuple(narrow(self, d, sum(split_sizes[:i]), n) for i, n in enumerate(split_sizes))


def unbind(b: Builder, self: TensorView, dim: int = 0) -> tuple[TensorView, ...]:
    return tuple(select(b, self, dim, i) for i in range(self.size[wrap(dim, len(self.size))]))


def diagonal(b: Builder, self: TensorView, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorView:
    i, j = wrap(dim1, len(self.size)), wrap(dim2, len(self.size))
    length = max(0, min(self.size[i] + min(offset, 0), self.size[j] - max(offset, 0)))
    start = self.offset + (max(-offset, 0) * self.stride[i] + max(offset, 0) * self.stride[j] if length else 0)
    rest = [d for d in range(len(self.size)) if d not in (i, j)]
    size, stride = (*(self.size[d] for d in rest), length), (*(self.stride[d] for d in rest), self.stride[i] + self.stride[j])
    return TensorView(self.buffer, size, stride, start, self.dtype)


def unfold(b: Builder, self: TensorView, dimension: int, size: int, step: int) -> TensorView:
    if not self.size:
        raise Decline("unfold of a scalar")
    d = wrap(dimension, len(self.size))
    windows = narrow(self, d, 0, (self.size[d] - size) // step + 1, step)
    return replace(windows, size=(*windows.size, size), stride=(*windows.stride, self.stride[d]))


def as_strided(b: Builder, self: TensorView, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> TensorView:
    """Offsets count from the storage's start, which for a graph input lies before its first element."""
    source = b.node.args[0]
    assert isinstance(source, torch.fx.Node)
    val = source.meta["val"]
    base = b.bases.get(self.buffer, 0)
    if base + self.offset != val.storage_offset() or any(n != 1 and s != t for n, s, t in zip(self.size, self.stride, val.stride(), strict=True)):
        raise Decline("as_strided of another layout")
    offset = val.storage_offset() if storage_offset is None else storage_offset
    return TensorView(self.buffer, tuple(size), tuple(stride), offset - base, self.dtype)


def lift(b: Builder, self: TensorView) -> TensorView:
    """A constant's own fresh copy."""
    return b.copy(self, b.like(b.val))


VIEWS: dict[str, Callable[..., Any]] = {
    "aten.view.default": view,
    "aten.view.dtype": view_dtype,
    "aten._unsafe_view.default": view,
    "aten.reshape.default": view,
    "aten._reshape_alias.default": lambda b, self, size, stride: view(b, self, size),
    "aten.alias.default": same,
    "aten.detach.default": same,
    "aten.lift.default": same,
    "aten.expand.default": expand,
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": t,
    "aten.unsqueeze.default": unsqueeze,
    "aten.squeeze.default": squeeze,
    "aten.squeeze.dim": squeeze,
    "aten.squeeze.dims": squeeze,
    "aten.slice.Tensor": slice_tensor,
    "aten.select.int": select,
    "aten.split.Tensor": split,
    "aten.unsafe_split.Tensor": split,
    "aten.split_with_sizes.default": split_with_sizes,
    "aten.unsafe_split_with_sizes.default": split_with_sizes,
    "aten.unbind.int": unbind,
    "aten.diagonal.default": diagonal,
    "aten.unfold.default": unfold,
    "aten.as_strided.default": as_strided,
}
"""Operator name -> row."""

__all__ = ["VIEWS", "bounds", "lift", "narrow", "reshape_stride", "same", "whole", "wrap"]
