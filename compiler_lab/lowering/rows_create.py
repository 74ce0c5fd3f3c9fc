"""Rows that make or copy tensors: constants, ranges, conversions, and what is put together out of several tensors.

In: the builder and the call's own arguments. Out: views of new buffers.
Always holds: no address outside a source is formed, also where its value is not used: a source that covers part of a dimension is
read at a position wrapped into it, and dimensions are walked in blocks so that the wrapping disappears.
PyTorch does this in ``torch/_inductor/lowering.py`` (cat, constant_pad_nd, slice_scatter, gather, arange).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from . import ops
from .body import Body, Number, Value, apply, where
from .builder import Builder, Decline, broadcast, dense
from .index import Index
from .ir import TensorView
from .rows_view import bounds, narrow, wrap
from .sizes import Size, common_block
from .symbols import row_major
from .types import opmath

Segment = tuple[int, TensorView | Number]  # length along the dimension; what stands there


def segments(b: Builder, dim: int, parts: Sequence[Segment]) -> TensorView:
    """One node that lays ``parts`` end to end along ``dim``, walked in blocks of their greatest common length."""
    parts = [p for p in parts if p[0]]
    spec = b.like(b.val)
    ends = [sum(n for n, _ in parts[: i + 1]) for i in range(len(parts))]
    block = common_block(*(n for n, _ in parts))

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        def one(number: int) -> Value:
            length, source = parts[number]
            if not isinstance(source, TensorView):
                return body.constant(source, spec.dtype)
            local = (point[dim] - (ends[number] - length)) % length
            return body.load(source, (*point[:dim], local, *point[dim + 1 :])).to(spec.dtype)

        value = one(len(parts) - 1)
        at = body.index_value(point[dim] // block) if len(parts) > 1 else None
        for number in range(len(parts) - 2, -1, -1):
            assert at is not None
            value = where(at < ends[number] // block, one(number), value)
        return value

    return b.loop(spec, build, split={dim: block})


def cat(b: Builder, tensors: Sequence[TensorView], dim: int = 0) -> TensorView:
    parts = [t for t in tensors if t.size != (0,)]  # aten skips the legacy empty tensor
    d = wrap(dim, len(b.val.shape))
    return segments(b, d, [(t.size[d], t) for t in parts])


def stack(b: Builder, tensors: Sequence[TensorView], dim: int = 0) -> TensorView:
    d = dim % len(b.val.shape)
    lift = lambda t: TensorView(t.buffer, (*t.size[:d], 1, *t.size[d:]), (*t.stride[:d], 0, *t.stride[d:]), t.offset, t.dtype)
    return segments(b, d, [(1, lift(t)) for t in tensors])


def constant_pad(b: Builder, self: TensorView, pad: Sequence[int], value: Number = 0) -> TensorView:
    """Pads the last dimensions, or crops where a pad is negative; several padded dimensions at once are one node."""
    size = tuple(b.val.shape)
    before = [0] * len(size)
    for i in range(len(pad) // 2):
        d = len(size) - 1 - i
        before[d] = pad[2 * i]
        left, right = min(pad[2 * i], 0), min(pad[2 * i + 1], 0)
        self = narrow(self, d, -left, self.size[d] + left + right)
    if 0 in self.size:
        return full(b, value)
    before = [max(n, 0) for n in before]
    padded = [d for d in range(len(size)) if size[d] != self.size[d]]
    if len(padded) == 1 or not padded:
        d = padded[0] if padded else 0
        return segments(b, d, [(before[d], value), (self.size[d], self), (size[d] - before[d] - self.size[d], value)]) if size else b.copy(self, b.like(b.val))
    spec = b.like(b.val)

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        inside = [c for d in padded for c in in_range(body, point[d], before[d], before[d] + self.size[d], size[d])]
        local = [(point[d] - before[d]) % self.size[d] if d in padded else point[d] for d in range(len(size))]
        return where(both(inside), body.load(self, local), value)

    return b.loop(spec, build)


def in_range(body: Body, at: Index, start: int, end: int, n: int) -> list[Value]:
    """Conditions for ``start <= at < end``, without those that always hold."""
    position = body.index_value(at)
    return ([position >= start] if start > 0 else []) + ([position < end] if end < n else [])


def both(conditions: Sequence[Value]) -> Value:
    result = conditions[0]
    for c in conditions[1:]:
        result = apply(ops.logical_and, result, c)
    return result


def place(b: Builder, background: TensorView | Number, source: TensorView, dim: int, start: int, length: int, step: int) -> TensorView:
    """``background`` with ``source`` (of ``length`` along ``dim``) at ``start``, ``start + step``, ..."""
    size = tuple(b.val.shape)
    n = size[dim]
    part = lambda first, count: narrow(background, dim, first, count) if isinstance(background, TensorView) else background
    if step == 1 or length <= 1:
        return segments(b, dim, [(start, part(0, start)), (length, source), (n - start - length, part(start + length, n - start - length))])
    spec = b.like(b.val)

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        shifted = point[dim] - start
        conditions = [*in_range(body, point[dim], start, start + (length - 1) * step + 1, n), apply(ops.eq, body.index_value(shifted % step), 0)]
        inside = body.load(source, (*point[:dim], (shifted // step) % length, *point[dim + 1 :])).to(spec.dtype)
        outside = body.load(background, point).to(spec.dtype) if isinstance(background, TensorView) else background
        return where(both(conditions), inside, outside)

    return b.loop(spec, build)


def slice_scatter(b: Builder, self: TensorView, src: TensorView, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> TensorView:
    d = wrap(dim, len(self.size))
    first, length = bounds(self.size[d], start, end, step)
    source = broadcast(src, (*self.size[:d], length, *self.size[d + 1 :]))
    return place(b, self, source, d, first, length, step) if length else b.copy(self, b.like(b.val))


def slice_backward(b: Builder, grad_output: TensorView, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> TensorView:
    d = wrap(dim, len(input_sizes))
    first, length = bounds(input_sizes[d], start, end, step)
    return place(b, 0, grad_output, d, first, length, step)


def lifted(view: TensorView, dim: int) -> TensorView:
    """``view`` with a dimension of size 1 put in at ``dim``."""
    return TensorView(view.buffer, (*view.size[:dim], 1, *view.size[dim:]), (*view.stride[:dim], 0, *view.stride[dim:]), view.offset, view.dtype)


def select_scatter(b: Builder, self: TensorView, src: TensorView, dim: int, index: int) -> TensorView:
    d = wrap(dim, len(self.size))
    return place(b, self, lifted(src, d), d, index % self.size[d], 1, 1)


def select_backward(b: Builder, grad_output: TensorView, input_sizes: Sequence[int], dim: int, index: int) -> TensorView:
    d = wrap(dim, len(input_sizes))
    return place(b, 0, lifted(grad_output, d), d, index % input_sizes[d], 1, 1)


def repeat(b: Builder, self: TensorView, repeats: Sequence[int]) -> TensorView:
    lead = len(repeats) - len(self.size)
    size = (1,) * lead + self.size
    source = broadcast(self, size)
    split = {d: size[d] for d in range(len(size)) if size[d] != b.val.shape[d]}
    return b.loop(b.like(b.val), lambda body, point: body.load(source, [p % n for p, n in zip(point, size, strict=True)]), split=split)


def flip(b: Builder, self: TensorView, dims: Sequence[int]) -> TensorView:
    turned = {wrap(d, len(self.size)) for d in dims}
    mirror = lambda d, p: Index.of(self.size[d] - 1) - p if d in turned and self.size[d] > 1 else p
    return b.loop(b.like(b.val), lambda body, point: body.load(self, [mirror(d, p) for d, p in enumerate(point)]))


def roll(b: Builder, self: TensorView, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorView:
    """One dimension is two segments; several are read at places that wrap around; without dimensions the elements are one line."""
    flat = not dims
    n = math.prod(self.size)
    moved = {0: shifts[0]} if flat else dict[int, int]()
    for d, shift in zip(dims, shifts, strict=False):
        moved[wrap(d, len(self.size))] = moved.get(wrap(d, len(self.size)), 0) + shift
    if len(moved) == 1 and not flat:
        ((d, shift),) = moved.items()
        cut = -shift % self.size[d]
        return segments(b, d, [(self.size[d] - cut, narrow(self, d, cut, self.size[d] - cut)), (cut, narrow(self, d, 0, cut))])

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        if not flat:
            return body.load(self, [(p + -moved[d] % self.size[d]) % self.size[d] if d in moved else p for d, p in enumerate(point)])
        place = (Index.affine(point, row_major(self.size)) + -shifts[0] % n) % n
        return body.load(self, unravel(place, self.size))

    return b.loop(b.like(b.val), build)


def unravel(place: Index, size: Sequence[int]) -> list[Index]:
    """The point of ``size`` with this number in row-major order."""
    found: list[Index] = []
    for n in reversed(size):
        found.insert(0, place % n)
        place = place // n
    return found


def on_diagonal(b: Builder, background: TensorView | Number, src: TensorView, size: Sequence[int], offset: int, dim1: int, dim2: int) -> TensorView:
    """``src``, whose last dimension runs along the diagonal, over ``background``."""
    i, j = wrap(dim1, len(size)), wrap(dim2, len(size))

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        old = body.load(background, point) if isinstance(background, TensorView) else body.constant(background, b.val.dtype)
        if not src.size[-1]:
            return old
        hit = apply(ops.eq, body.index_value(point[j]), body.index_value(point[i] + offset))
        along = (point[i] + min(offset, 0)) % src.size[-1]
        return where(hit, body.load(src, (*(p for d, p in enumerate(point) if d not in (i, j)), along)).to(b.val.dtype), old)

    return b.loop(b.like(b.val), build)


def diagonal_scatter(b: Builder, self: TensorView, src: TensorView, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorView:
    return on_diagonal(b, self, src, self.size, offset, dim1, dim2)


def diagonal_backward(b: Builder, grad_output: TensorView, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> TensorView:
    return on_diagonal(b, 0, grad_output, input_sizes, offset, dim1, dim2)


def as_strided_scatter(
    b: Builder, self: TensorView, src: TensorView, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> TensorView:
    """Elements at any strides of a copy of ``self``, in memory laid out as it is; both are written as a line."""
    spec, source = b.fresh((math.prod(self.size),), self.dtype), b.node.args[0]
    assert isinstance(source, fx.Node)
    val = source.meta["val"]
    start = val.storage_offset() if storage_offset is None else storage_offset
    end = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    alike = all(n == 1 or s == t for n, s, t in zip(self.size, self.stride, val.stride(), strict=True))
    if val.storage_offset() or not alike or not dense(self.size, tuple(val.stride())) or not 0 <= start <= end < spec.numel or not apart(size, stride):
        raise Decline("as_strided of another layout")
    line = TensorView(self.buffer, spec.size, (1,), self.offset, self.dtype)
    target = lambda body, point: ((Index.affine(point, stride, start),), {})
    value = lambda body, point: body.load(src, point).to(self.dtype)
    made = b.scatter(spec, lambda body, point: body.load(line, point), size, range(len(size)), target, value, "set")
    return replace(made, size=self.size, stride=tuple(val.stride()))


def spread(b: Builder, view: TensorView, stride: Sequence[int]) -> TensorView:
    """A copy whose elements lie ``stride`` apart in memory of its own, zeros between them: some of aten's calls keep the gaps of what they copy.
    The strides are numbers, and no two elements meet (``apart``)."""
    spec = b.fresh((1 + sum((n - 1) * s for n, s in zip(view.size, stride, strict=True)),), view.dtype)
    target = lambda body, point: ((Index.affine(point, stride, 0),), {})
    between = lambda body, _: body.constant(0, view.dtype)
    made = b.scatter(spec, between, view.size, range(len(view.size)), target, lambda body, point: body.load(view, point), "set")
    return replace(made, size=view.size, stride=tuple(stride))


def apart(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether no two points have one address: each stride steps over all that the smaller ones reach."""
    reach = 0
    for s, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def triangle(upper: bool) -> Callable[..., TensorView]:
    """triu keeps columns from ``row + diagonal`` on, tril those up to it."""

    def row(b: Builder, self: TensorView, diagonal: int = 0) -> TensorView:
        def build(body: Body, point: tuple[Index, ...]) -> Value:
            column, border = body.index_value(point[-1]), body.index_value(point[-2] + diagonal)
            return where(column >= border if upper else column <= border, body.load(self, point), 0)

        return b.loop(b.like(b.val), build)

    return row


def full(b: Builder, value: Number) -> TensorView:
    spec = b.like(b.val)
    if isinstance(value, float) and not math.isfinite(value) and not spec.dtype.is_floating_point:
        raise Decline("not a number")
    return b.loop(spec, lambda body, _: body.constant(value, spec.dtype))


def fill(b: Builder, self: TensorView, value: TensorView | Number) -> TensorView:
    if not isinstance(value, TensorView):
        return full(b, value)
    return b.copy(broadcast(value, tuple(b.val.shape)), b.like(b.val))


def arange(b: Builder, start: Number, end: Number | None = None, step: Number = 1, **_: Any) -> TensorView:
    """``start + i * step``, in float64 for floating results (aten too counts in double)."""
    first = 0 if end is None else start
    spec = b.like(b.val)
    if not spec.dtype.is_floating_point and not all(isinstance(v, (int, Size)) for v in (first, step)):
        raise Decline("fractional range")
    if not spec.dtype.is_floating_point:
        return b.loop(spec, lambda body, point: body.index_value(point[0] * step + first, torch.int64))  # type: ignore[operator]
    return b.loop(spec, lambda body, point: body.index_value(point[0], torch.int64).to(torch.float64) * step + first)


def iota(b: Builder, length: int, *, start: int, step: int, dtype: torch.dtype, device: Any, requires_grad: bool) -> TensorView:
    return arange(b, start, start + length * step, step)


def nan_to_num(b: Builder, self: TensorView, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> TensorView:
    """Infinities become the largest numbers of the tensor's own dtype, half precision included."""
    spec = b.like(b.val)
    if not spec.dtype.is_floating_point:
        return b.copy(self, spec)
    limit = torch.finfo(spec.dtype)

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        x = body.load(self, point).to(opmath(spec.dtype))
        high = where(apply(ops.eq, x, math.inf), limit.max if posinf is None else posinf, x)
        low = where(apply(ops.eq, x, -math.inf), limit.min if neginf is None else neginf, high)
        return where(apply(ops.isnan, x), 0.0 if nan is None else nan, low)

    return b.loop(spec, build)


def eye(b: Builder, n: int, m: int | None = None, **_: Any) -> TensorView:
    spec = b.like(b.val)
    return b.loop(spec, lambda body, point: apply(ops.eq, body.index_value(point[0]), body.index_value(point[1])).to(spec.dtype))


def convert(b: Builder, self: TensorView, *_: Any, **options: Any) -> TensorView:
    """clone, _to_copy and the like: dtype and memory format are those of the fake value."""
    source = b.node.args[0]
    if isinstance(source, fx.Node) and source.meta["val"].device != b.val.device:
        raise Decline("device")
    preserving = options.get("memory_format") in (None, torch.preserve_format)
    return b.copy(self, b.following(b.val, [self]) if preserving else b.like(b.val))


def copy(b: Builder, self: TensorView, src: TensorView, non_blocking: bool = False) -> TensorView:
    return b.copy(broadcast(src, self.size), b.like(b.val))


def number(value: Number) -> Callable[..., TensorView]:
    return lambda b, *_, **options: full(b, value)


UNWRITTEN = (
    "empty.memory_format", "empty_like.default", "empty_strided.default", "empty_permuted.default", "new_empty.default", "new_empty_strided.default",
)  # fmt: skip
"""What eager leaves as it finds it: zeros here, which fuse with what is put over them."""

CREATE: dict[str, Callable[..., Any]] = {
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.constant_pad_nd.default": constant_pad,
    "aten.slice_scatter.default": slice_scatter,
    "aten.slice_backward.default": slice_backward,
    "aten.select_scatter.default": select_scatter,
    "aten.select_backward.default": select_backward,
    "aten.repeat.default": repeat,
    "aten.flip.default": flip,
    "aten.roll.default": roll,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.diagonal_backward.default": diagonal_backward,
    "aten.as_strided_scatter.default": as_strided_scatter,
    "aten.tril.default": triangle(False),
    "aten.triu.default": triangle(True),
    "aten.full.default": lambda b, size, fill_value, **_: full(b, fill_value),
    "aten.full_like.default": lambda b, self, fill_value, **_: full(b, fill_value),
    "aten.new_full.default": lambda b, self, size, fill_value, **_: full(b, fill_value),
    "aten.scalar_tensor.default": lambda b, s, **_: full(b, s),
    **{f"aten.{name}.default": number(0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{name}.default": number(1) for name in ("ones", "ones_like", "new_ones")},
    **{f"aten.{name}": number(0) for name in UNWRITTEN},
    "aten.fill.Scalar": fill,
    "aten.fill.Tensor": fill,
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "aten.nan_to_num.default": nan_to_num,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    "aten.clone.default": convert,
    "aten._to_copy.default": convert,
    "aten.lift_fresh_copy.default": convert,
    "aten.copy.default": copy,
    "prims.iota.default": iota,
    "prims.convert_element_type.default": convert,
}
"""Operator name -> row."""
