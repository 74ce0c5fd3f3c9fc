"""Rows for the backwards of max pooling: what is kept of a position is where in its window it lies.

In: the arguments of the operator (tensors). Out: its result; ``NotImplemented`` where there is nothing to pool, and for images of three
dimensions with channels last, where aten gives a window of nothing but -inf a position outside of it.
The forward of max pooling gives the position of each maximum in its image, in 64 bits. A window is small and where it begins is known, so
the distance from there fits eight bits, and the position is made from it again. Neither reads a gradient, so the partition may compute the
distance in the forward and keep that; where the program returns the positions they are in memory anyway and it keeps them. The operator
also takes what was pooled, of which it reads no more than the shape: it is given one number, expanded, in its place.
Always holds: the positions that reach the operator are those that it was given, whatever was pooled (NaN, ties, padding, dilation).
PyTorch's counterpart: ``_low_memory_max_pool_with_offsets`` in ``torch/_inductor/inductor_prims.py``, for windows of up to 25 elements; it
opens the forward. Left out: max unpooling and fractional pooling, whose windows are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


@dataclass(frozen=True)
class Windows:
    """Along one dimension: ``count`` windows; the i-th begins at ``start + i * step // per`` (before the image where there is padding) and
    has ``kernel`` elements, each ``dilation`` after the one before it."""

    count: int
    start: int
    step: int
    kernel: int
    dilation: int = 1
    per: int = 1

    def begins(self, unit: int, device: torch.device) -> Tensor:
        """Where each begins, in elements of the image: ``unit`` of them lie between two neighbours of this dimension."""
        if self.per > 1:
            return aten.arange.start_step(0, self.count * self.step, self.step, device=device).div(self.per, rounding_mode="trunc") * unit
        start, step = self.start * unit, self.step * unit
        return aten.arange.start_step(start, start + self.count * step, step, device=device)


def max_pool_backward(op: OpOverload, dims: int) -> Callable[..., Any]:
    def each(values: Sequence[int]) -> list[int]:
        return list(values) * dims if len(values) == 1 else list(values)

    def row(
        grad: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool, at: Tensor
    ) -> Any:
        if at.numel() == 0 or (dims == 3 and not plain(x)):
            return NotImplemented
        along = zip(at.shape[-dims:], each(kernel), each(stride or kernel), each(padding), each(dilation), strict=True)
        windows = [Windows(count, -p, s, k, d) for count, k, s, p, d in along]
        return op(grad, shaped_as(x), kernel, stride, padding, dilation, ceil_mode, by_distance(at, x.shape[-dims:], windows))

    return row


def adaptive_max_pool_backward(op: OpOverload, dims: int) -> Callable[..., Any]:
    def row(grad: Tensor, x: Tensor, at: Tensor) -> Any:
        if at.numel() == 0:
            return NotImplemented
        sizes = x.shape[-dims:]
        return op(grad, shaped_as(x), by_distance(at, sizes, [adaptive(n, count) for n, count in zip(sizes, at.shape[-dims:], strict=True)]))

    return row


def adaptive(n: int, count: int) -> Windows:
    """``count`` windows over ``n`` elements, the i-th from ``i * n / count`` rounded down to ``(i + 1) * n / count`` rounded up."""
    if n % count == 0:
        return Windows(count, 0, n // count, n // count)
    return Windows(count, 0, n, max(-(-(i + 1) * n // count) - i * n // count for i in range(count)), per=count)


def shaped_as(x: Tensor) -> Tensor:
    """A stand-in for ``x`` where no more than its shape is read; ``x`` itself where the result takes its layout from it."""
    return aten.full.default([], 0, dtype=x.dtype, device=x.device, pin_memory=False).expand(x.shape) if plain(x) else x


def plain(x: Tensor) -> bool:
    """Aten reads it, and lays out what it makes of it, without channels last."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(x) is torch.contiguous_format


def by_distance(at: Tensor, sizes: Sequence[int], windows: Sequence[Windows]) -> Tensor:
    """``at``, made again from a value of as few bits as it takes.

    The distance from a window's begin is a sum over dimensions: how many elements of the window, times the distance of two. Where that does
    not fit eight bits, for rows of the image are long, it is counted in rows of the window in place of them.
    """
    units = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
    begin = reduce(lambda outer, inner: outer.unsqueeze(-1) + inner, (w.begins(unit, at.device) for w, unit in zip(windows, units, strict=True)))
    steps = [w.dilation * unit for w, unit in zip(windows, units, strict=True)]
    spans = [sum((w.kernel - 1) * step for w, step in zip(windows[d:], steps[d:], strict=True)) + 1 for d in range(len(sizes))]
    rows = [math.prod(w.kernel for w in windows[d + 1 : -1]) * spans[-1] for d in range(len(sizes) - 1)]
    apart = all(step >= span for step, span in zip(steps, spans[1:], strict=False))  # one row of a window does not reach into the next
    if spans[0] > EIGHT_BITS >= rows[0] * windows[0].kernel and apart:
        small = aten._to_copy.default(reweighed(at - begin, steps, rows), dtype=torch.uint8)
        return reweighed(aten._to_copy.default(small, dtype=torch.int64), rows, steps) + begin
    narrow = torch.uint8 if spans[0] <= EIGHT_BITS else torch.int16 if spans[0] <= 2**15 else torch.int32 if spans[0] <= 2**31 else torch.int64
    return aten._to_copy.default(aten._to_copy.default(at - begin, dtype=narrow), dtype=torch.int64) + begin


EIGHT_BITS = 256


def reweighed(number: Tensor, weights: Sequence[int], others: Sequence[int]) -> Tensor:
    """``number``, a sum of digits times ``weights`` (descending) and a rest, with the weights replaced by ``others``."""
    result = rest = number
    for weight, other in zip(weights, others, strict=False):
        digit = rest.div(weight, rounding_mode="trunc")  # and not floor_divide, which no partitioner takes for pointwise
        rest = rest - digit * weight
        result = result + digit * (other - weight)
    return result


POOLS: dict[OpOverload, Callable[..., Any]] = {
    aten.max_pool2d_with_indices_backward.default: max_pool_backward(aten.max_pool2d_with_indices_backward.default, 2),
    aten.max_pool3d_with_indices_backward.default: max_pool_backward(aten.max_pool3d_with_indices_backward.default, 3),
    aten.adaptive_max_pool2d_backward.default: adaptive_max_pool_backward(aten.adaptive_max_pool2d_backward.default, 2),
    aten.adaptive_max_pool3d_backward.default: adaptive_max_pool_backward(aten.adaptive_max_pool3d_backward.default, 3),
}
"""Rows that end in the operator itself: within them it is not opened again."""
