"""Rows of max pooling: each window written out, and its backward.

In: the builder and the call's own arguments. Out: views of new buffers.
Always holds: of equal elements the first is taken, of several NaN the last, and a window of nothing but -inf gives its first element's place, as in
aten's kernels; no element outside of the image is read or written. A backward adds in the order of the windows, as aten does.
A window's loads, comparisons and selections stand in one body, so that loops over the results are vector loops where channels, or columns that are
next to one another, lie side by side. What is selected is a place relative to the window's begin, in 32 bits; the begin is added once.
PyTorch does this in ``torch/_inductor/lowering.py`` (max_pool2d_with_indices, also for windows of up to 25 elements) and
``aten/src/ATen/native/cpu/MaxPoolKernel.cpp``. Left out: larger windows, and dilated ones that lie between the elements of the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import ops
from .body import Body, Value, apply, where
from .builder import Builder, Decline
from .index import Index
from .ir import TensorView
from .rows_create import both
from .sizes import at_most, is_number, same
from .types import opmath

Point = tuple[Index, ...]

MOST = 25
"""Elements of a window that are written out."""


@dataclass(frozen=True)
class Along:
    """Windows along one dimension of ``size`` elements: ``count`` of them, ``kernel`` elements each, ``dilation`` apart; the i-th begins at
    ``i * stride - pad``."""

    size: int
    count: int
    kernel: int
    stride: int
    pad: int
    dilation: int

    def at(self, window: Index, k: int) -> Index:
        return window * self.stride + (k * self.dilation - self.pad)

    def inside(self, body: Body, window: Index, k: int) -> list[Value]:
        """Conditions for the k-th element to be one of the image, without those that always hold."""
        first = k * self.dilation - self.pad
        last, position = (self.count - 1) * self.stride + first, body.index_value(self.at(window, k))
        return ([position >= 0] if first < 0 else []) + ([] if at_most(last + 1, self.size) else [position < self.size])

    def first(self, body: Body, window: Index, k: int) -> list[Value] | None:
        """Conditions for the k-th element, where it is one of the image, to be the window's first that is; None where it never is."""
        if k == 0:
            return []
        return [body.index_value(self.at(window, k - 1)) < 0] if (k - 1) * self.dilation < self.pad else None

    @property
    def reaches(self) -> bool:
        """Whether each window is known to have an element of the image; without dilation aten has seen to that."""
        if self.dilation == 1 or not is_number(self.count, self.size):
            return self.dilation == 1
        starts = (i * self.stride - self.pad for i in range(self.count))
        return all(any(0 <= start + k * self.dilation < self.size for k in range(self.kernel)) for start in starts)


def windows(
    size: Sequence[int], counts: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], dilation: Sequence[int]
) -> list[Along]:
    """Down and across."""
    each = lambda values: list(values) * 2 if len(values) == 1 else list(values)
    return [Along(*row) for row in zip(size[-2:], counts[-2:], each(kernel), each(stride or kernel), each(pad), each(dilation), strict=True)]


def max_pool(
    b: Builder,
    self: TensorView,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[TensorView, TensorView]:
    values, places = b.val
    down, across = windows(self.size, values.shape, kernel, stride, padding, dilation)
    if down.kernel * across.kernel > MOST or not (down.reaches and across.reaches):
        raise Decline("window")

    def value(body: Body, point: Point) -> Value:
        return chosen(body, self, point, down, across)[0]

    def place(body: Body, point: Point) -> Value:
        begin = down.at(point[-2], 0) * across.size + across.at(point[-1], 0)
        return chosen(body, self, point, down, across)[1].to(torch.int64) + body.index_value(begin)

    return b.loop(b.like(values), value, origin=f"{b.origin}.values"), b.loop(b.like(places), place, origin=f"{b.origin}.indices")


def chosen(body: Body, view: TensorView, point: Point, down: Along, across: Along) -> tuple[Value, Value]:
    """The value of the window at ``point``, and its place relative to where the window begins."""
    *lead, y, x = point
    farthest = (down.kernel * down.dilation + 1) * across.size + across.kernel * across.dilation
    narrow = torch.int32 if at_most(farthest, 2**31 - 1) else torch.int64
    best = place = None
    for i, j in itertools.product(range(down.kernel), range(across.kernel)):
        inside = [*down.inside(body, y, i), *across.inside(body, x, j)]
        row, column = down.at(y, i), across.at(x, j)
        value = body.load(view, (*lead, *((row % down.size, column % across.size) if inside else (row, column)))).to(opmath(view.dtype))
        here = body.constant(i * down.dilation * across.size + j * across.dilation, narrow)
        floating = value.dtype.is_floating_point
        if best is None or place is None:
            lowest = float("-inf") if floating else torch.iinfo(value.dtype).min
            best, place = where(both(inside), value, lowest) if inside else value, here
            continue
        taken = value > best
        if floating:
            taken = apply(ops.logical_or, taken, apply(ops.isnan, value))
        above, before = down.first(body, y, i), across.first(body, x, j)
        if above is not None and before is not None:
            taken = apply(ops.logical_or, taken, both([*above, *before]))
        if inside:
            taken = both([*inside, taken])
        best, place = where(taken, value, best), where(taken, here, place)
    assert best is not None and place is not None
    return best, place


def max_pool_backward(b: Builder, grad: TensorView, self: TensorView, *rest: Any) -> TensorView:
    """Each gradient added where its maximum was: images are apart from one another, and the place is a number of the whole image.

    Half precision is added in itself, as aten does."""
    places: TensorView = rest[-1]
    spec = b.like(b.val)
    *lead, height, width = spec.size
    *steps, down, across = spec.stride
    if not same(down, width * across) or same(spec.numel, 0):
        raise Decline("window")
    flat = replace(spec, size=(*lead, height * width), stride=(*steps, across))

    def target(body: Body, point: Point) -> tuple[Point, Mapping[int, Value]]:
        return (*point[:-2], Index()), {len(lead): body.indirect(body.load(places, point), height * width, False)}

    b.scatter(
        flat,
        lambda body, point: body.constant(0, spec.dtype),
        places.size,
        range(len(lead)),
        target,
        lambda body, point: body.load(grad, point),
        "sum",
    )
    return TensorView(spec.name, spec.size, spec.stride, 0, spec.dtype)


POOLING: dict[str, Callable[..., Any]] = {
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward,
}
"""Operator name -> row."""
