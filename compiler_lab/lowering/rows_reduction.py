"""Rows of reductions: kept dimensions outside, reduced ones inside, one accumulator for each kept point.

In: the builder and the call's own arguments. Out: views of the buffers that hold the results, keepdim respected.
Always holds: half precision accumulates in float32 and integers in int64, as aten does; what aten refuses (the maximum of nothing)
is declined and raises there. Variance is two-pass: the mean, then the sum of squared deviations; softmax is maximum, sum of
exponentials, then a pointwise node, and the scheduler puts the sweeps back into one kernel.
PyTorch does this in ``torch/_inductor/lowering.py`` (make_reduction, var_mean_helper_) and ``aten/src/ATen/native/ReduceOps.cpp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from . import ops
from .body import Body, Number, Value, apply, where
from .builder import Builder, Decline, broadcast, count
from .index import Index
from .ir import BufferSpec, ReduceKind, TensorView
from .rows_view import wrap
from .types import opmath

Dims = int | Sequence[int] | None


def reduced(self: TensorView, dim: Dims) -> tuple[int, ...]:
    """The dimensions to reduce over: all of them for None or []."""
    listed = [dim] if isinstance(dim, int) else list(dim or ())
    dims = sorted({wrap(d, len(self.size)) for d in listed}) if listed else range(len(self.size))
    return tuple(d for d in dims if d < len(self.size))


def keepdim_size(size: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(1 if d in dims else n for d, n in enumerate(size))


def simple(
    b: Builder,
    kind: ReduceKind,
    self: TensorView,
    dims: Sequence[int],
    spec: BufferSpec,
    *,
    dtype: torch.dtype,
    before: Callable[[Value], Value] = lambda v: v,
    finish: Callable[[Value], Value] = lambda v: v,
    origin: str = "",
) -> TensorView:
    """``self`` converted to ``dtype``, mapped by ``before``, reduced by ``kind``, mapped by ``finish``."""
    if kind in ("max", "min", "argmax", "argmin") and count(self.size, dims) == 0:
        raise Decline("empty")
    ordered = None if kind in ("argmax", "argmin") else self
    build = lambda body, point: before(body.load(self, point).to(dtype))
    return b.reduction(spec, kind, self.size, dims, build, finish=finish, order=ordered, origin=origin)


def sum_dims(b: Builder, self: TensorView, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorView:
    return simple(b, "sum", self, reduced(self, dim), b.like(b.val), dtype=opmath(b.val.dtype))


def sum_all(b: Builder, self: TensorView, *, dtype: torch.dtype | None = None) -> TensorView:
    return sum_dims(b, self)


def mean_dims(b: Builder, self: TensorView, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorView:
    dims = reduced(self, dim)
    n = count(self.size, dims)
    return simple(b, "sum", self, dims, b.like(b.val), dtype=opmath(b.val.dtype), finish=lambda v: v / n)


def mean_all(b: Builder, self: TensorView, *, dtype: torch.dtype | None = None) -> TensorView:
    return mean_dims(b, self)


def prod_dim(b: Builder, self: TensorView, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorView:
    return simple(b, "prod", self, reduced(self, dim), b.like(b.val), dtype=opmath(b.val.dtype))


def prod_all(b: Builder, self: TensorView, *, dtype: torch.dtype | None = None) -> TensorView:
    return prod_dim(b, self)


def extreme(kind: ReduceKind) -> Callable[..., TensorView]:
    """amax and amin: on bool they are any and all."""

    def row(b: Builder, self: TensorView, dim: Dims = None, keepdim: bool = False) -> TensorView:
        boolean: ReduceKind = "any" if kind == "max" else "all"
        on_bool = self.dtype == torch.bool
        if on_bool and count(self.size, reduced(self, dim)) == 0:
            raise Decline("empty")
        return simple(b, boolean if on_bool else kind, self, reduced(self, dim), b.like(b.val), dtype=opmath(self.dtype))

    return row


def extreme_with_index(kind: ReduceKind, arg: ReduceKind) -> Callable[..., tuple[TensorView, TensorView]]:
    """max and min along a dimension: values, and the index of the first of them (NaN counts as the extreme)."""

    def row(b: Builder, self: TensorView, dim: int, keepdim: bool = False) -> tuple[TensorView, TensorView]:
        dims, compute = reduced(self, dim), torch.uint8 if self.dtype == torch.bool else opmath(self.dtype)
        values = simple(b, kind, self, dims, b.like(b.val[0]), dtype=compute, origin=f"{b.origin}.values")
        indices = simple(b, arg, self, dims, b.like(b.val[1]), dtype=compute, origin=f"{b.origin}.indices")
        return values, indices

    return row


def arg_extreme(kind: ReduceKind) -> Callable[..., TensorView]:
    def row(b: Builder, self: TensorView, dim: int | None = None, keepdim: bool = False) -> TensorView:
        return simple(b, kind, self, reduced(self, dim), b.like(b.val), dtype=torch.uint8 if self.dtype == torch.bool else opmath(self.dtype))

    return row


def truth(kind: ReduceKind) -> Callable[..., TensorView]:
    def row(b: Builder, self: TensorView, dim: Dims = None, keepdim: bool = False) -> TensorView:
        if not isinstance(dim, int) and dim is not None and not dim and self.size:
            raise Decline("no dimensions")
        return simple(b, kind, self, reduced(self, dim), b.like(b.val), dtype=torch.bool)

    return row


def count_nonzero(b: Builder, self: TensorView, dim: Dims = None) -> TensorView:
    nonzero = lambda v: v.to(torch.bool).to(torch.int64)
    return simple(b, "sum", self, reduced(self, dim), b.like(b.val), dtype=self.dtype, before=nonzero)


def two_pass(
    b: Builder, self: TensorView, dims: tuple[int, ...], mean: BufferSpec, out: BufferSpec, correction: Number, root: bool
) -> tuple[TensorView, TensorView]:
    """(variance or its root, mean): the mean first, then the squared deviations from it, in double as aten's WelfordOps are on CPU:
    a square of a float32 leaves its range long before the deviation does."""
    n, dtype = count(self.size, dims), torch.float64
    name = "std" if root else "var"
    mean_view = simple(b, "sum", self, dims, mean, dtype=dtype, finish=lambda v: v / n, origin=f"{name}.mean")
    kept_stride = dict(
        zip([d for d in range(len(self.size)) if d not in dims] if len(mean.size) < len(self.size) else range(len(self.size)), mean.stride, strict=True)
    )
    center = TensorView(mean.name, self.size, tuple(0 if d in dims else kept_stride[d] for d in range(len(self.size))), 0, mean.dtype)

    def deviation(body: Body, point: tuple[Index, ...]) -> Value:
        d = body.load(self, point).to(dtype) - body.load(center, point).to(dtype)
        return d * d

    def finish(v: Value) -> Value:
        variance = v / max(n - correction, 0)
        return apply(ops.sqrt, variance) if root else variance

    return b.reduction(out, "sum", self.size, dims, deviation, finish=finish, order=self, origin=name), mean_view


def variance(root: bool, with_mean: bool) -> Callable[..., Any]:
    """The row of var, std, var_mean or std_mean; ``correction`` is taken off the count (1 where it is None)."""

    def row(b: Builder, self: TensorView, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False) -> Any:
        dims, off = reduced(self, dim), 1 if correction is None else int(correction) if int(correction) == correction else correction
        if not self.dtype.is_floating_point:
            raise Decline("dtype")
        if with_mean and self.dtype == torch.float64:
            return two_pass(b, self, dims, b.like(b.val[1]), b.like(b.val[0]), off, root)
        exact = b.fresh(keepdim_size(self.size, dims), torch.float64)  # deviations from a rounded mean would be wrong
        out, mean = two_pass(b, self, dims, exact, b.like(b.val[0] if with_mean else b.val), off, root)
        return (out, b.copy(shaped(mean, tuple(b.val[1].shape)), b.like(b.val[1]))) if with_mean else out

    return row


def shaped(view: TensorView, size: tuple[int, ...]) -> TensorView:
    """A keepdim view with its size-1 dimensions as ``size`` has them."""
    strides = [s for n, s in zip(view.size, view.stride, strict=True) if n != 1]
    return replace(view, size=size, stride=tuple(strides.pop(0) if n != 1 else 1 for n in size))


def logsumexp(b: Builder, self: TensorView, dim: Dims, keepdim: bool = False) -> TensorView:
    dims, dtype = reduced(self, dim), opmath(b.val.dtype)
    if not self.dtype.is_floating_point:
        raise Decline("dtype")
    peak = broadcast(simple(b, "max", self, dims, b.fresh(keepdim_size(self.size, dims), dtype), dtype=dtype, origin="logsumexp.max"), self.size)
    finite = lambda v: where(apply(ops.eq, apply(ops.abs, v), math.inf), 0, v)

    def exponential(body: Body, point: tuple[Index, ...]) -> Value:
        return apply(ops.exp, body.load(self, point).to(dtype) - finite(body.load(peak, point)))

    total_spec = b.fresh(keepdim_size(self.size, dims), dtype)
    total = b.reduction(total_spec, "sum", self.size, dims, exponential, order=self, origin="logsumexp.sum")
    out = b.like(b.val)
    peak_out, total_out = shaped(replace(peak, size=total.size, stride=total.stride), out.size), shaped(total, out.size)
    return b.loop(out, lambda body, point: apply(ops.log, body.load(total_out, point)) + finite(body.load(peak_out, point)))


def softmax(log: bool) -> Callable[..., TensorView]:
    def row(b: Builder, self: TensorView, dim: int, half_to_float: bool) -> TensorView:
        if not self.dtype.is_floating_point:
            raise Decline("dtype")
        dims, dtype = reduced(self, dim), opmath(self.dtype)
        kept = keepdim_size(self.size, dims)
        peak = broadcast(simple(b, "max", self, dims, b.fresh(kept, dtype), dtype=dtype, origin=f"{b.origin}.max"), self.size)

        def centered(body: Body, point: tuple[Index, ...]) -> Value:
            return body.load(self, point).to(dtype) - body.load(peak, point)

        exponential = lambda body, point: apply(ops.exp, centered(body, point))
        # softmax reads the exponentials twice, so they are a loop of their own, which the scheduler keeps in a row; log_softmax reads them once
        weights = None if log else b.loop(b.fresh(self.size, dtype), exponential, origin=f"{b.origin}.exp")
        summand = exponential if weights is None else lambda body, point: body.load(weights, point)
        total = broadcast(b.reduction(b.fresh(kept, dtype), "sum", self.size, dims, summand, order=self, origin=f"{b.origin}.sum"), self.size)
        if weights is None:
            return b.loop(b.like(b.val), lambda body, point: centered(body, point) - apply(ops.log, body.load(total, point)))
        return b.loop(b.like(b.val), lambda body, point: body.load(weights, point) / body.load(total, point))

    return row


def softmax_backward(log: bool) -> Callable[..., TensorView]:
    """softmax: ``(grad - sum(grad * output)) * output``; log_softmax: ``grad - exp(output) * sum(grad)``."""

    def row(b: Builder, grad_output: TensorView, output: TensorView, dim: int, input_dtype: torch.dtype) -> TensorView:
        dims, dtype = reduced(output, dim), opmath(output.dtype)

        def product(body: Body, point: tuple[Index, ...]) -> Value:
            grad = body.load(grad_output, point).to(dtype)
            return grad if log else grad * body.load(output, point).to(dtype)

        spec = b.fresh(keepdim_size(output.size, dims), dtype)
        total = broadcast(b.reduction(spec, "sum", output.size, dims, product, order=output, origin=f"{b.origin}.sum"), output.size)

        def gradient(body: Body, point: tuple[Index, ...]) -> Value:
            grad, out, whole_sum = body.load(grad_output, point).to(dtype), body.load(output, point).to(dtype), body.load(total, point)
            return grad - apply(ops.exp, out) * whole_sum if log else (grad - whole_sum) * out

        return b.loop(b.like(b.val), gradient)

    return row


def vector_norm(b: Builder, self: TensorView, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorView:
    """The p-th root of the sum of p-th powers; 0 counts, infinities are the extremes, 1 and 2 need no power."""
    dims, compute = reduced(self, dim), opmath(dtype or self.dtype)
    if not self.dtype.is_floating_point:
        raise Decline("dtype")
    absolute = lambda v: apply(ops.abs, v)
    if math.isinf(ord):
        return simple(b, "max" if ord > 0 else "min", self, dims, b.like(b.val), dtype=compute, before=absolute)
    steps: dict[float, tuple[Callable[[Value], Value], Callable[[Value], Value]]] = {
        0: (lambda v: apply(ops.ne, v, 0).to(compute), lambda v: v),
        1: (absolute, lambda v: v),
        2: (lambda v: v * v, lambda v: apply(ops.sqrt, v)),
    }
    general = (lambda v: apply(ops.pow, absolute(v), ord), lambda v: apply(ops.pow, v, 1 / ord))
    before, finish = steps.get(ord, general)
    return simple(b, "sum", self, dims, b.like(b.val), dtype=compute, before=before, finish=finish)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "aten.sum.default": sum_all,
    "aten.sum.dim_IntList": sum_dims,
    "aten.mean.default": mean_all,
    "aten.mean.dim": mean_dims,
    "aten.prod.default": prod_all,
    "aten.prod.dim_int": prod_dim,
    "aten.amax.default": extreme("max"),
    "aten.amin.default": extreme("min"),
    "aten.max.default": extreme("max"),
    "aten.min.default": extreme("min"),
    "aten.max.dim": extreme_with_index("max", "argmax"),
    "aten.min.dim": extreme_with_index("min", "argmin"),
    "aten.argmax.default": arg_extreme("argmax"),
    "aten.argmin.default": arg_extreme("argmin"),
    **{f"aten.any.{kind}": truth("any") for kind in ("default", "dim", "dims")},
    **{f"aten.all.{kind}": truth("all") for kind in ("default", "dim", "dims")},
    "aten.count_nonzero.default": count_nonzero,
    "aten.count_nonzero.dim_IntList": count_nonzero,
    "aten.var.correction": variance(False, False),
    "aten.std.correction": variance(True, False),
    "aten.var_mean.correction": variance(False, True),
    "aten.std_mean.correction": variance(True, True),
    "aten.logsumexp.default": logsumexp,
    "aten._softmax.default": softmax(False),
    "aten._log_softmax.default": softmax(True),
    "aten._softmax_backward_data.default": softmax_backward(False),
    "aten._log_softmax_backward_data.default": softmax_backward(True),
    "aten.linalg_vector_norm.default": vector_norm,
}
"""Operator name -> row."""
