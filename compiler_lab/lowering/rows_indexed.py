"""Rows of elements that are chosen at run time: gather, index and scatter, and what is put together out of them.

In: the builder and the call's own arguments. Out: views of new buffers.
Always holds: each position is checked, and an error is raised for one that is out of range, as aten raises it; nothing is read or written
outside a buffer whatever the positions are. Scatters write in the order of their positions, so that of several values for one element
the last stays, and sums are the same on every run.
PyTorch does this in ``torch/_inductor/lowering.py`` (index_impl, index_put_impl_, scatter_reduce_) with atomics where threads meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import ops
from .body import Body, Number, Value, apply, where
from .builder import Builder, Decline, broadcast
from .index import Index
from .ir import BufferSpec, ScatterMode, TensorView
from .rows_view import wrap
from .types import opmath

POSITIONS = (torch.int64, torch.int32)
Point = tuple[Index, ...]


def line(view: TensorView) -> TensorView:
    """A scalar as a line of one element."""
    return view if view.size else replace(view, size=(1,), stride=(1,))


def as_value(b: Builder, view: TensorView) -> TensorView:
    """A buffer made for ``line``s, with the dimensions of the node's value."""
    size = tuple(b.val.shape)
    return view if view.size == size else replace(view, size=size, stride=())


def result_spec(b: Builder, size: Sequence[int]) -> BufferSpec:
    return b.like(b.val) if tuple(b.val.shape) == tuple(size) else b.fresh(size, b.val.dtype)


def gather(b: Builder, self: TensorView, dim: int, index: TensorView, *, sparse_grad: bool = False) -> TensorView:
    source, at = line(self), line(index)
    d = wrap(dim, len(source.size))

    def build(body: Body, point: Point) -> Value:
        return body.load_at(source, point, {d: body.indirect(body.load(at, point), source.size[d], False)})

    return as_value(b, b.loop(result_spec(b, at.size), build))


@dataclass(frozen=True)
class Chosen:
    """``self[indices]``: which dimensions are indexed, by views of one shape, and where that shape stands in the result's."""

    used: Mapping[int, TensorView]
    shape: tuple[int, ...]
    start: int
    size: tuple[int, ...]  # of the result

    def positions(self, body: Body, point: Point, size: Sequence[int], clamped: bool = False) -> dict[int, Value]:
        at = point[self.start : self.start + len(self.shape)]
        found = {d: body.load(i, at).to(torch.int64) for d, i in self.used.items()}
        limited = lambda v, n: apply(ops.minimum, apply(ops.maximum, v, -n), n - 1) if clamped else v
        return {d: body.indirect(limited(v, size[d]), size[d], True) for d, v in found.items()}

    def rest(self, point: Point, dims: int) -> Point:
        """A point of ``self``: places from the point of the result, zero where ``positions`` stand."""
        others = iter((*point[: self.start], *point[self.start + len(self.shape) :]))
        return tuple(Index() if d in self.used else next(others) for d in range(dims))

    @property
    def apart(self) -> tuple[int, ...]:
        """Dimensions of the result that no index decides."""
        return tuple(d for d in range(len(self.size)) if not self.start <= d < self.start + len(self.shape))


def chosen(self: TensorView, indices: Sequence[TensorView | None]) -> Chosen:
    """Advanced indexing by tensors of integers; aten puts their shape first where they are not next to one another."""
    used = {d: i for d, i in enumerate(indices) if i is not None}
    if not used or any(i.dtype not in POSITIONS for i in used.values()):
        raise Decline("mask")
    shape = tuple(torch.broadcast_shapes(*(i.size for i in used.values())))
    dims = sorted(used)
    together = dims[-1] - dims[0] == len(dims) - 1
    start = dims[0] if together else 0
    others = [n for d, n in enumerate(self.size) if d not in used]
    size = (*others[:start], *shape, *others[start:])
    return Chosen({d: broadcast(i, shape) for d, i in used.items()}, shape, start, size)


def index_tensor(b: Builder, self: TensorView, indices: Sequence[TensorView | None]) -> TensorView:
    found = chosen(self, indices)

    def build(body: Body, point: Point) -> Value:
        return body.load_at(self, found.rest(point, len(self.size)), found.positions(body, point, self.size))

    return b.loop(b.like(b.val), build)


def masked_index(b: Builder, self: TensorView, mask: TensorView, indices: Sequence[TensorView | None], fill: Number) -> TensorView:
    """As ``index_tensor`` where the mask holds; positions that are out of range become the nearest that is not."""
    found = chosen(self, indices)
    kept = broadcast(mask, found.size)

    def build(body: Body, point: Point) -> Value:
        value = body.load_at(self, found.rest(point, len(self.size)), found.positions(body, point, self.size, clamped=True))
        return where(body.load(kept, point), value, fill)

    return b.loop(b.like(b.val), build)


def index_put(b: Builder, self: TensorView, indices: Sequence[TensorView | None], values: TensorView, accumulate: bool = False, *_: Any) -> TensorView:
    masks = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(masks) == 1 and masks[0][1].dtype == torch.bool and all(n == 1 for n in values.size):
        return put_masked(b, self, *masks[0], values, accumulate)
    found = chosen(self, indices)
    return put(b, self, found, broadcast(values, found.size), "sum" if accumulate else "set")


def put_masked(b: Builder, self: TensorView, dim: int, mask: TensorView, value: TensorView, accumulate: bool) -> TensorView:
    """One number wherever the mask holds."""

    def build(body: Body, point: Point) -> Value:
        old, new = body.load(self, point), body.load(value, [Index()] * len(value.size))
        if accumulate:
            new = (old.to(opmath(self.dtype)) + new.to(opmath(self.dtype))).to(self.dtype)
        return where(body.load(mask, point[dim : dim + len(mask.size)]), new, old)

    if accumulate and self.dtype == torch.bool:
        raise Decline("mask")
    return b.loop(b.like(b.val), build)


def put(b: Builder, self: TensorView, found: Chosen, values: TensorView, mode: ScatterMode, mask: TensorView | None = None) -> TensorView:
    """``self`` with ``values`` taken in at the chosen elements. With a mask 0 where it does not hold, and positions as in ``masked_index``."""

    def target(body: Body, point: Point) -> tuple[Point, dict[int, Value]]:
        return found.rest(point, len(self.size)), found.positions(body, point, self.size, mask is not None)

    def value(body: Body, point: Point) -> Value:
        return body.load(values, point) if mask is None else where(body.load(mask, point), body.load(values, point), 0)

    return b.scatter(b.like(b.val), lambda body, point: body.load(self, point), found.size, found.apart, target, value, mode)


def masked_put(b: Builder, self: TensorView, mask: TensorView, indices: Sequence[TensorView | None], values: TensorView) -> TensorView:
    found = chosen(self, indices)
    return put(b, self, found, broadcast(values, found.size), "sum", broadcast(mask, found.size))


# -- scatter ------------------------------------------------------------------------------------------------------------------


def scatter(mode: ScatterMode) -> Callable[..., TensorView]:
    """scatter, scatter_add: of one position per line along ``dim`` compared (what cross entropy's backward does), otherwise written in order."""

    def row(b: Builder, self: TensorView, dim: int, index: TensorView, src: TensorView | Number) -> TensorView:
        d = wrap(dim, len(self.size))
        if mode == "set" and self.size and index.size == (*self.size[:d], 1, *self.size[d + 1 :]):
            return scatter_one(b, self, d, index, src)
        return scattered(b, self, d, index, src, mode)

    return row


def scatter_one(b: Builder, self: TensorView, d: int, index: TensorView, src: TensorView | Number) -> TensorView:
    def build(body: Body, point: Point) -> Value:
        at = (*point[:d], Index(), *point[d + 1 :])
        hit = apply(ops.eq, body.index_value(point[d]), body.indirect(body.load(index, at), self.size[d], False))
        return where(hit, body.load(src, at) if isinstance(src, TensorView) else src, body.load(self, point))

    return b.loop(b.like(b.val), build)


def scattered(
    b: Builder,
    self: TensorView | Number,
    dim: int,
    index: TensorView,
    src: TensorView | Number,
    mode: ScatterMode,
    spec: BufferSpec | None = None,
    start: Callable[[Body, Point], Value] | None = None,
) -> TensorView:
    """Lines along ``dim`` are apart from one another; along each the values are taken in one after another."""
    size = tuple(b.val.shape) or (1,)
    spec = spec or result_spec(b, size)
    at, source = line(index), line(src) if isinstance(src, TensorView) else src
    apart = tuple(d for d in range(len(size)) if d != dim)
    background = line(self) if isinstance(self, TensorView) else self

    def first(body: Body, point: Point) -> Value:
        return body.load(background, point) if isinstance(background, TensorView) else body.constant(background, spec.dtype)

    def target(body: Body, point: Point) -> tuple[Point, dict[int, Value]]:
        return point, {dim: body.indirect(body.load(at, point), size[dim], False)}

    def value(body: Body, point: Point) -> Value:
        return body.load(source, point) if isinstance(source, TensorView) else body.constant(source, spec.dtype)

    return as_value(b, b.scatter(spec, start or first, at.size, apart, target, value, mode))


REDUCE: dict[str, ScatterMode] = {"add": "sum", "multiply": "prod", "sum": "sum", "mean": "sum", "prod": "prod", "amax": "max", "amin": "min"}


def scatter_reduce(
    b: Builder, self: TensorView, dim: int, index: TensorView, src: TensorView | Number, reduce: str, *, include_self: bool = True
) -> TensorView:
    d, mode = wrap(dim, len(self.size)), REDUCE[reduce]
    if self.dtype == torch.bool and mode == "sum":
        raise Decline("bool")
    size, whole = tuple(b.val.shape) or (1,), line(self)
    start = None
    if not include_self:
        touched = line(scattered(b, False, d, index, True, "set", b.fresh(size, torch.bool)))
        identity = _identity(mode, self.dtype)
        start = lambda body, point: where(body.load(touched, point), identity, body.load(whole, point))
    if reduce != "mean":
        return scattered(b, self, d, index, src, mode, start=start)
    total = line(scattered(b, self, d, index, src, mode, b.fresh(size, self.dtype), start))
    counts = line(scattered(b, 1 if include_self else 0, d, index, 1, "sum", b.fresh(size, torch.int64)))

    def mean(body: Body, point: Point) -> Value:
        n = apply(ops.maximum, body.load(counts, point), 1)
        value = body.load(total, point).to(opmath(self.dtype))
        return apply(ops.truediv if self.dtype.is_floating_point else ops.floordiv, value, n.to(value.dtype))

    return as_value(b, b.loop(result_spec(b, size), mean))


def _identity(mode: ScatterMode, dtype: torch.dtype) -> Number:
    """What taken in with a value gives the value."""
    if mode in ("sum", "prod"):
        return 0 if mode == "sum" else 1
    if dtype.is_floating_point:
        return float("-inf") if mode == "max" else float("inf")
    if dtype == torch.bool:
        return mode == "min"
    return torch.iinfo(dtype).min if mode == "max" else torch.iinfo(dtype).max


def embedding(b: Builder, weight: TensorView, indices: TensorView, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> TensorView:
    """Rows of ``weight``; the rest of the arguments is for the gradient."""
    dims = len(indices.size)

    def build(body: Body, point: Point) -> Value:
        row = body.indirect(body.load(indices, point[:dims]), weight.size[0], False)
        return body.load_at(weight, (Index(), point[-1]), {0: row})

    return b.loop(b.like(b.val), build)


def embedding_backward(b: Builder, grad_output: TensorView, indices: TensorView, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> TensorView:
    """Each row of the gradient added to the row of the weight that it was read from; nothing for the row that pads."""
    if scale_grad_by_freq:
        raise Decline("no row")
    dims = len(indices.size)

    def target(body: Body, point: Point) -> tuple[Point, dict[int, Value]]:
        return (Index(), point[-1]), {0: body.indirect(body.load(indices, point[:dims]), num_weights, False)}

    def value(body: Body, point: Point) -> Value:
        grad = body.load(grad_output, point)
        return grad if padding_idx < 0 else where(apply(ops.eq, body.load(indices, point[:dims]), padding_idx), 0, grad)

    return b.scatter(b.like(b.val), lambda body, _: body.constant(0, b.val.dtype), grad_output.size, (dims,), target, value, "sum")


INDEXED: dict[str, Callable[..., Any]] = {
    "aten.gather.default": gather,
    "aten.index.Tensor": index_tensor,
    "aten._unsafe_index.Tensor": index_tensor,
    "aten._unsafe_masked_index.default": masked_index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
    "aten._unsafe_masked_index_put_accumulate.default": masked_put,
    "aten.scatter.value": scatter("set"),
    "aten.scatter.src": scatter("set"),
    "aten.scatter_add.default": scatter("sum"),
    "aten.scatter.reduce": lambda b, self, dim, index, src, *, reduce: scatter_reduce(b, self, dim, index, src, reduce),
    "aten.scatter.value_reduce": lambda b, self, dim, index, value, *, reduce: scatter_reduce(b, self, dim, index, value, reduce),
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.embedding.default": embedding,
    "aten.embedding_dense_backward.default": embedding_backward,
}
"""Operator name -> row."""
