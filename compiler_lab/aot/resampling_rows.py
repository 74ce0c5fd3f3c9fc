"""Rows that take averages of windows, and the backwards of upsampling and padding: what reads a place several times, and its transpose.

In: an operator's arguments (tensors). Out: its results, by plain aten operators; ``NotImplemented`` where a row does not apply.
Always holds: windows are views of a padded input, so an average is one reduction; a backward adds along one dimension after the other, in
order, so its sums are the same on every run; half precision is summed in float32.
PyTorch's counterpart: ``torch/_decomp/decompositions.py`` and the pooling of ``torch/_inductor/lowering.py``. The formulas are those of
``aten/src/ATen/native/UpSample.h`` and ``Pool.h``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)
CUBIC = -0.75
"""The free parameter of the cubic kernel, as aten chose it."""


def wide(x: Tensor) -> Tensor:
    return aten._to_copy.default(x, dtype=torch.float32) if x.dtype in HALVES else x


# -- averages of windows ------------------------------------------------------------------------------------------------------


def windows(n: int, kernel: int, stride: int, pad: int, ceil_mode: bool) -> int:
    """How many windows a dimension of ``n`` has; with ``ceil_mode`` a last one that begins inside, but ends outside."""
    found = (n + 2 * pad - kernel + (stride - 1 if ceil_mode else 0)) // stride + 1
    return found - 1 if ceil_mode and (found - 1) * stride >= n + pad else found


def each(values: Sequence[int], dims: int) -> list[int]:
    return list(values) * dims if len(values) == 1 else list(values)


def covered(n: int, count: int, kernel: int, stride: int, pad: int, include_pad: bool, like: Tensor) -> Tensor:
    """Elements of each window that count."""
    start = torch.arange(count, device=like.device) * stride - pad
    end = torch.clamp(start + kernel, max=n + pad)
    return end - start if include_pad else torch.clamp(end, max=n) - torch.clamp(start, min=0)


def divisor(x: Tensor, sizes: Sequence[tuple[int, int, int, int, int]], include_pad: bool, override: int | None, ceil_mode: bool) -> Any:
    """What sums of windows are divided by: a number, or a tensor where windows differ."""
    if override is not None:
        return override
    if not ceil_mode and (include_pad or not any(pad for *_, pad in sizes)):
        return math.prod(kernel for _, _, kernel, _, _ in sizes)
    total: Tensor | None = None
    for n, count, kernel, stride, pad in sizes:
        along = covered(n, count, kernel, stride, pad, include_pad, x)
        total = along if total is None else total.unsqueeze(-1) * along
    assert total is not None
    return total.to(wide(x).dtype)


def layout(x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool) -> list[tuple[int, int, int, int, int]]:
    """For each of the last dimensions: size, number of windows, kernel, stride, padding."""
    dims = 2 if len(kernel) == 1 else len(kernel)
    kernel, padding = each(kernel, dims), each(padding, dims)
    stride = each(stride, dims) if stride else kernel
    return [(n, windows(n, k, s, p, ceil_mode), k, s, p) for n, k, s, p in zip(x.shape[-dims:], kernel, stride, padding, strict=True)]


def avg_pool(dims: int) -> Callable[..., Any]:
    def row(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if x.numel() == 0 or not x.dtype.is_floating_point:
            return NotImplemented
        sizes = layout(x, each(kernel, dims), stride and each(stride, dims), each(padding, dims), ceil_mode)
        after = [max((count - 1) * s + k - n - p, 0) for n, count, k, s, p in sizes]
        pads = [v for (_, _, _, _, p), a in zip(reversed(sizes), reversed(after), strict=True) for v in (p, a)]
        seen = aten.constant_pad_nd.default(wide(x), pads, 0) if any(pads) else wide(x)
        for d, (_, count, k, s, _) in enumerate(sizes):
            at = x.dim() - dims + d
            seen = seen.unfold(at, k, s)
            seen = seen.narrow(at, 0, count) if seen.shape[at] != count else seen
        total = torch.sum(seen, list(range(-dims, 0)))
        return total / divisor(x, sizes, count_include_pad, divisor_override, ceil_mode)

    return row


def avg_pool_backward(dims: int) -> Callable[..., Any]:
    """Each element gets its share of every window that it lies in: gradients set apart by the stride, then summed over windows of the kernel."""

    def row(
        grad: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        if x.numel() == 0 or not x.dtype.is_floating_point:
            return NotImplemented
        sizes = layout(x, each(kernel, dims), stride and each(stride, dims), each(padding, dims), ceil_mode)
        share = wide(grad) / divisor(x, sizes, count_include_pad, divisor_override, ceil_mode)
        for d, (n, count, k, s, p) in enumerate(sizes):
            at = x.dim() - dims + d
            if s > 1:
                spread = [*share.shape]
                spread[at] = (count - 1) * s + 1
                zeros = aten.full.default(spread, 0, dtype=share.dtype, device=share.device, pin_memory=False)
                share = aten.slice_scatter.default(zeros, share, at, 0, spread[at], s)
            # the window that ends at an element begins k - 1 before it; the first p elements are padding
            reach = share.shape[at] + k - 1
            outside = max(n + p - reach, 0)
            share = aten.constant_pad_nd.default(share, [0, 0] * (share.dim() - 1 - at) + [k - 1, k - 1 + outside], 0)
            share = torch.sum(share.unfold(at, k, 1), -1).narrow(at, p, n)
        return share

    return row


# -- upsampling ---------------------------------------------------------------------------------------------------------------

Tap = tuple[Tensor, Tensor | None]  # for each output place: an input place, and its weight


def add_along(grad: Tensor, dim: int, index: Tensor, size: int) -> Tensor:
    """The transpose of reading ``index`` along ``dim``."""
    shape = [*grad.shape]
    shape[dim] = size
    zeros = aten.full.default(shape, 0, dtype=grad.dtype, device=grad.device, pin_memory=False)
    return aten.index_put.default(zeros, [None] * dim + [index], grad, True)


def transposed(grad: Tensor, input_size: Sequence[int], taps: Callable[[int, int, int], Sequence[Tap]]) -> Tensor:
    """Along each dimension after the second, every tap's share goes back to where it was read; ``taps(dimension, in, out)``."""
    result = wide(grad)
    for d in range(2, grad.dim()):
        parts: list[Tensor] = []
        for index, weight in taps(d - 2, input_size[d], grad.shape[d]):
            share = result if weight is None else result * weight.to(result.dtype).view([-1] + [1] * (grad.dim() - 1 - d))
            parts.append(add_along(share, d, index, input_size[d]))
        result = sum(parts[1:], parts[0])
    return result


def places(n: int, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(n, device=like.device).to(dtype)


def nearest_backward(exact: bool) -> Callable[..., Any]:
    def row(grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None) -> Any:
        def taps(d: int, n: int, m: int) -> Sequence[Tap]:
            given = scale_of(scales, d)
            ratio = n / m if not given else 1 / given
            at = places(m, grad)  # in float32 whatever the dtype, as in aten
            return [(torch.clamp(((at + 0.5 if exact else at) * ratio).to(torch.int64), max=n - 1), None)]

        return NotImplemented if grad.numel() == 0 else transposed(grad, input_size, taps)

    return row


def scale_of(scales: Sequence[float | None], dim: int) -> float | None:
    """The scale that the caller named for a dimension; a call that names none may leave them all out."""
    return scales[dim] if dim < len(scales) else None


def sources(n: int, m: int, align: bool, scale: float | None, grad: Tensor) -> Tensor:
    """Where each of ``m`` output places lies in the input."""
    at = places(m, grad, wide(grad).dtype)
    if align:
        return at * ((n - 1) / (m - 1) if m > 1 else 0.0)
    return (at + 0.5) * (1 / scale if scale else n / m) - 0.5


def linear_backward(grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
    def taps(d: int, n: int, m: int) -> Sequence[Tap]:
        at = torch.clamp(sources(n, m, align_corners, scale_of(scales, d), grad), min=0)
        low = torch.clamp(at.to(torch.int64), max=n - 1)
        part = torch.clamp(at - low, 0, 1)
        return [(low, 1 - part), (torch.clamp(low + 1, max=n - 1), part)]

    return NotImplemented if grad.numel() == 0 else transposed(grad, input_size, taps)


def cubic_backward(grad: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
    def near(t: Tensor) -> Tensor:
        return ((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC

    def taps(d: int, n: int, m: int) -> Sequence[Tap]:
        at = sources(n, m, align_corners, scale_of(scales, d), grad)
        low = torch.floor(at)
        part = at - low
        weights = (far(part + 1), near(part), near(1 - part), far(2 - part))
        return [(torch.clamp(low.to(torch.int64) + k - 1, 0, n - 1), w) for k, w in enumerate(weights)]

    return NotImplemented if grad.numel() == 0 else transposed(grad, input_size, taps)


# -- padding, and places in order ---------------------------------------------------------------------------------------------


def replication_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Any:
    if grad.numel() == 0:
        return NotImplemented
    for i in range(len(padding) // 2):
        d = x.dim() - 1 - i
        index = torch.clamp(torch.arange(grad.shape[d], device=grad.device) - padding[2 * i], 0, x.shape[d] - 1)
        grad = add_along(grad, d, index, x.shape[d])
    return grad


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    if x.numel() == 0:
        return NotImplemented
    return aten.index_put.default(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate).view(x.shape)


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    """The n-th place that the mask marks takes the n-th element."""
    if x.numel() == 0 or source.numel() == 0:
        return NotImplemented
    x, mask = torch.broadcast_tensors(x, mask)
    chosen = mask.reshape(-1)
    number = torch.where(chosen, torch.cumsum(chosen, 0) - 1, 0)
    return torch.where(mask, aten.index.Tensor(source.reshape(-1), [number]).view(x.shape), x)


def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    if x.numel() == 0 or x.dim() == 0 or source.numel() == 0:
        return NotImplemented
    at = index.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())]).expand(source.shape)
    return aten.scatter_reduce.two(x, dim, at, source, reduce, include_self=include_self)


def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    if not others:
        return NotImplemented
    along = torch.sum(grad * v, others, True)
    return (grad - v * (along / (norms * norms))) * (g / norms), along / norms


RESAMPLING: dict[OpOverload, Callable[..., Any]] = {
    aten.avg_pool2d.default: avg_pool(2),
    aten.avg_pool3d.default: avg_pool(3),
    aten.avg_pool2d_backward.default: avg_pool_backward(2),
    aten.avg_pool3d_backward.default: avg_pool_backward(3),
    **{getattr(aten, f"upsample_nearest{n}d_backward").default: nearest_backward(False) for n in (1, 2, 3)},
    **{getattr(aten, f"_upsample_nearest_exact{n}d_backward").default: nearest_backward(True) for n in (1, 2, 3)},
    **{getattr(aten, f"upsample_{kind}_backward").default: linear_backward for kind in ("linear1d", "bilinear2d", "trilinear3d")},
    aten.upsample_bicubic2d_backward.default: cubic_backward,
    **{getattr(aten, f"replication_pad{n}d_backward").default: replication_backward for n in (1, 2, 3)},
    aten.put.default: put,
    aten.masked_scatter.default: masked_scatter,
    aten.index_reduce.default: index_reduce,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
}
"""Operator -> row."""
