"""Our decompositions, as rows: what fuses better open, written in the operators that loops are made of.

In: an operator's arguments (tensors). Out: its results, by plain aten operators; ``NotImplemented`` where a row does not apply, and
the operator stays as it is.
Always holds: half precision is computed in float32; variances are taken in two passes, around the mean; backwards of norms and of
softmax are one reduction for each sum they need and one pointwise expression over them; an index out of range still fails.
PyTorch's counterpart: ``torch/_decomp/decompositions.py``. Formulas are derived from the operators' definitions; the sums are those of
``aten/src/ATen/native/cpu``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from .pooling_rows import POOLS

aten = torch.ops.aten

HALVES = (torch.float16, torch.bfloat16)


def wide(x: Tensor) -> Tensor:
    """Half precision as float32, everything else as it is."""
    return aten._to_copy.default(x, dtype=torch.float32) if x.dtype in HALVES else x


# -- softmax ------------------------------------------------------------------------------------------------------------------


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    if x.numel() == 0:
        return NotImplemented
    x = wide(x)
    e = torch.exp(x - torch.amax(x, dim, True))
    return e / torch.sum(e, dim, True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    if x.numel() == 0:
        return NotImplemented
    x = wide(x)
    shifted = x - torch.amax(x, dim, True)
    return shifted - torch.log(torch.sum(torch.exp(shifted), dim, True))


def softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    grad, output = wide(grad), wide(output)
    return (grad - torch.sum(grad * output, dim, True)) * output


def log_softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    grad, output = wide(grad), wide(output)
    return grad - torch.exp(output) * torch.sum(grad, dim, True)


# -- norms --------------------------------------------------------------------------------------------------------------------


def moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """(variance, mean) with their dimensions kept, in x's own dtype: aten's layer and group norm do not widen, its ``var`` does."""
    mean = torch.mean(x, dims, True)
    centered = x - mean
    return torch.mean(centered * centered, dims, True), mean


def wide_moments(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """(variance, mean) as aten's batch norm has them on CPU, accumulated in double."""
    return torch.var_mean(x, dims, correction=0, keepdim=True)


def standardized(x: Tensor, variance: Tensor, mean: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """((x - mean) * rstd, rstd)."""
    rstd = torch.rsqrt(variance + eps)
    return (x - mean) * rstd, rstd


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * wide(weight)
    return x if bias is None else x + wide(bias)


def shaped(vector: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    return None if vector is None else vector.view(shape)


def layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    if x.numel() == 0:
        return NotImplemented
    dims = list(range(x.dim() - len(shape), x.dim()))
    variance, mean = moments(wide(x), dims)
    y, rstd = standardized(wide(x), variance, mean, eps)
    return affine(y, weight, bias), mean, rstd


def norm_input_gradient(grad: Tensor, y: Tensor, rstd: Tensor, dims: list[int]) -> Tensor:
    """The gradient through ``y = (x - mean) * rstd``: what of ``grad`` is neither along ones nor along y, times rstd."""
    along_y = torch.mean(grad * y, dims, True)
    return (grad - torch.mean(grad, dims, True) - y * along_y) * rstd


def layer_norm_backward(
    grad: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Sequence[bool]
) -> Any:
    if x.numel() == 0:
        return NotImplemented
    outer, dims = list(range(x.dim() - len(shape))), list(range(x.dim() - len(shape), x.dim()))
    grad, x = wide(grad), wide(x)
    y = (x - mean) * rstd
    over = (lambda t: torch.sum(t, outer)) if outer else (lambda t: t)
    dx = norm_input_gradient(affine(grad, weight, None), y, rstd, dims) if mask[0] else None
    return dx, over(grad * y) if mask[1] and weight is not None else None, over(grad) if mask[2] and bias is not None else None


def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hw: int, group: int, eps: float) -> Any:
    if x.numel() == 0:
        return NotImplemented
    rows = wide(x).reshape(n, group, -1)
    variance, mean = moments(rows, [2])
    y, rstd = standardized(rows, variance, mean, eps)
    shape = [1, c] + [1] * (x.dim() - 2)
    return affine(y.view(x.shape), shaped(weight, shape), shaped(bias, shape)), mean.view(n, group), rstd.view(n, group)


def group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, n: int, c: int, hw: int, group: int, mask: Sequence[bool]
) -> Any:
    if x.numel() == 0:
        return NotImplemented
    shape, whole = (n, group, c // group, hw), x.shape
    grad, x = wide(grad).reshape(shape), wide(x).reshape(shape)
    rstd = wide(rstd).view(n, group, 1, 1)
    y = (x - wide(mean).view(n, group, 1, 1)) * rstd
    weighted = affine(grad, shaped(weight, [1, group, c // group, 1]), None)
    dx = norm_input_gradient(weighted, y, rstd, [2, 3]).view(whole) if mask[0] else None
    dw = torch.sum(grad * y, [0, 3]).view(c) if mask[1] else None
    return dx, dw, torch.sum(grad, [0, 3]).view(c) if mask[2] else None


def channels(x: Tensor) -> tuple[list[int], list[int], float]:
    """(the dimensions that are not the channel's, the shape of a channel vector against x, how many elements a channel has)."""
    c = x.shape[1]
    return [0, *range(2, x.dim())], [1, c] + [1] * (x.dim() - 2), x.numel() / max(c, 1)


def batch_norm_eval(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float) -> Any:
    _, shape, _ = channels(x)
    y = (wide(x) - wide(mean).view(shape)) * torch.rsqrt(wide(var) + eps).view(shape)
    nothing = torch.empty([0], dtype=x.dtype, device=x.device)
    return affine(y, shaped(weight, shape), shaped(bias, shape)), nothing, nothing


def batch_norm_train(x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float) -> Any:
    if x.numel() == 0 or not training:
        return NotImplemented
    dims, shape, _ = channels(x)
    variance, mean = wide_moments(wide(x), dims)
    y, rstd = standardized(wide(x), variance, mean, eps)
    return affine(y, shaped(weight, shape), shaped(bias, shape)), mean.view(-1), rstd.view(-1)


def batch_norm_functional(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, old_mean: Tensor, old_var: Tensor, training: bool, momentum: float, eps: float
) -> Any:
    """Also gives the new running statistics: the variance without bias, as the running one is."""
    dims, shape, count = channels(x)
    if not training or count < 2:
        return NotImplemented
    var, mean = wide_moments(wide(x), dims)
    y, rstd = standardized(wide(x), var, mean, eps)
    new_mean = mean.view(-1) * momentum + old_mean * (1 - momentum)
    new_var = var.view(-1) * (momentum * (count / (count - 1))) + old_var * (1 - momentum)
    return affine(y, shaped(weight, shape), shaped(bias, shape)), mean.view(-1), rstd.view(-1), new_mean, new_var


def batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Any, old_mean: Any, old_var: Any, mean: Any, rstd: Any, train: bool, eps: float, mask: Sequence[bool]
) -> Any:
    dims, shape, count = channels(x)
    if x.numel() == 0:
        return NotImplemented
    if not train:
        mean, rstd = wide(old_mean), torch.rsqrt(wide(old_var) + eps)
    grad, x = wide(grad), wide(x)
    y = (x - mean.view(shape)) * rstd.view(shape)
    db, dw = torch.sum(grad, dims), torch.sum(grad * y, dims)
    scale = (rstd if weight is None else rstd * wide(weight)).view(shape)
    centred = grad - (db * (1 / count)).view(shape) - y * (dw * (1 / count)).view(shape) if train else grad
    return centred * scale if mask[0] else None, dw if mask[1] else None, db if mask[2] else None


# -- activations --------------------------------------------------------------------------------------------------------------

ROOT_HALF = math.sqrt(0.5)
GELU_SCALE = math.sqrt(2.0 / math.pi)
GELU_CUBE = 0.044715


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    x = wide(x)
    if approximate == "tanh":
        return x * 0.5 * (torch.tanh((x + x * x * x * GELU_CUBE) * GELU_SCALE) + 1)
    return x * 0.5 * (torch.erf(x * ROOT_HALF) + 1)


def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    grad, x = wide(grad), wide(x)
    if approximate == "none":
        density = torch.exp(x * x * -0.5) * (ROOT_HALF / math.sqrt(math.pi))
        return grad * ((torch.erf(x * ROOT_HALF) + 1) * 0.5 + x * density)
    square = x * x
    t = torch.tanh((x + square * x * GELU_CUBE) * GELU_SCALE)
    slope = x * 0.5 * (1 - t * t) * ((square * (3 * GELU_CUBE) + 1) * GELU_SCALE)
    return grad * ((t + 1) * 0.5 + slope)


def silu(x: Tensor) -> Tensor:
    x = wide(x)
    return x * torch.sigmoid(x)


def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    grad, x = wide(grad), wide(x)
    s = torch.sigmoid(x)
    return grad * s * (x * (1 - s) + 1)


def sigmoid_backward(grad: Tensor, y: Tensor) -> Any:
    return grad * (1 - y) * y if not y.is_complex() else NotImplemented


def tanh_backward(grad: Tensor, y: Tensor) -> Any:
    return grad * (1 - y * y) if not y.is_complex() else NotImplemented


def threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    return torch.where(x <= threshold, 0, grad)


# -- losses -------------------------------------------------------------------------------------------------------------------


def reduced(loss: Tensor, reduction: int) -> Tensor:
    """0: as it is, 1: the mean, 2: the sum."""
    return loss if reduction == 0 else torch.mean(loss) if reduction == 1 else torch.sum(loss)


def mse_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    difference = x - target
    return reduced(difference * difference, reduction)


def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Tensor:
    return (x - target) * (2.0 / x.numel() if reduction == 1 else 2.0) * grad


def class_weights(weight: Tensor | None, target: Tensor) -> Tensor | None:
    return None if weight is None else aten.index.Tensor(weight, [target])


def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Any:
    """The score of each target, negated and weighted; nothing where the target is to be ignored."""
    if x.numel() == 0:
        return NotImplemented
    dim = 0 if x.dim() == 1 else 1
    counted = target != ignore_index
    safe = torch.where(counted, target, 0)
    picked = -torch.gather(x, dim, safe.unsqueeze(dim)).squeeze(dim)
    weights = class_weights(weight, safe)
    loss = torch.where(counted, picked if weights is None else picked * weights, 0)
    if reduction == 0:
        return loss, torch.full([], 0.0, dtype=x.dtype, device=x.device)
    total = torch.sum(counted if weights is None else torch.where(counted, weights, 0)).to(x.dtype)
    return torch.sum(loss) / total if reduction == 1 else torch.sum(loss), total


def nll_loss_backward(grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, total: Tensor) -> Any:
    """Pointwise: each element asks whether its class is the target."""
    dim = 0 if x.dim() == 1 else 1
    counted = target != ignore_index
    weights = class_weights(weight, torch.where(counted, target, 0))
    scaled = -(grad / total) if reduction == 1 else -grad
    scaled = torch.where(counted, scaled if weights is None else scaled * weights, 0).unsqueeze(dim)
    classes = torch.arange(x.shape[dim], device=x.device).view([-1] + [1] * (x.dim() - 1 - dim))
    return torch.where(classes == target.unsqueeze(dim), scaled, 0)


# -- copies -------------------------------------------------------------------------------------------------------------------


def along(index: Tensor, dim: int, size: Sequence[int]) -> Tensor:
    """Places along ``dim`` for each element of ``size``. Unlike those of ``index`` they are not counted from the end where they are negative: an error."""
    index = index if index.dtype == torch.int64 else aten._to_copy.default(index, dtype=torch.int64)
    return index.reshape([-1 if d == dim else 1 for d in range(len(size))]).expand(size)


def index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    if x.dim() == 0:
        return NotImplemented
    dim %= x.dim()
    return aten.gather.default(x, dim, along(index, dim, [*x.shape[:dim], index.numel(), *x.shape[dim + 1 :]]))


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Any:
    if x.dim() == 0 or source.dim() != x.dim():
        return NotImplemented
    dim %= x.dim()
    return aten.scatter_add.default(x, dim, along(index, dim, source.shape), source if alpha == 1 else source * alpha)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    if x.dim() == 0 or source.dim() != x.dim():
        return NotImplemented
    dim %= x.dim()
    return aten.scatter.src(x, dim, along(index, dim, source.shape), source)


def index_fill(x: Tensor, dim: int, index: Tensor, value: Tensor | float) -> Any:
    """One value at every index: torch's own row writes a copy in place, in one of its releases, where strides differ."""
    if x.dim() == 0:
        return NotImplemented
    filled = value if isinstance(value, Tensor) else torch.scalar_tensor(value, dtype=x.dtype, device=x.device)
    return aten.index_put.default(x, [*[None] * (dim % x.dim()), index], filled)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """One tensor several times over is a copy of an expanded view: it can be computed again with what it is made of, which a cat cannot."""
    x = tensors[0]
    if len(tensors) < 2 or any(t is not x for t in tensors) or x.numel() == 0:
        return NotImplemented
    dim %= x.dim()
    times = [*x.shape[:dim], len(tensors), *x.shape[dim:]]
    whole = [*x.shape[:dim], len(tensors) * x.shape[dim], *x.shape[dim + 1 :]]
    return torch.clone(x.unsqueeze(dim).expand(times), memory_format=torch.contiguous_format).view(whole)


# -- fills --------------------------------------------------------------------------------------------------------------------


def filled(size: Sequence[int], value: Any, dtype: Any, device: Any, layout: Any) -> Any:
    if layout not in (None, torch.strided):
        return NotImplemented
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return aten.full.default(list(size), value, dtype=dtype, device=torch.device("cpu") if device is None else device, pin_memory=False)


def fill_of(value: float) -> Callable[..., Any]:
    """``zeros``, ``ones``, ``new_zeros``, ...: the last two are told dtype and device by a tensor."""

    def row(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        return filled(size, value, dtype, device, layout)

    return row


def new_fill_of(value: float) -> Callable[..., Any]:
    def row(x: Tensor, size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        return filled(size, value, x.dtype if dtype is None else dtype, x.device if device is None else device, layout)

    return row


def fill_like(value: float) -> Callable[..., Any]:
    def row(x: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None) -> Any:
        return filled(x.shape, value, x.dtype if dtype is None else dtype, x.device if device is None else device, layout)

    return row


ROWS: dict[OpOverload, Callable[..., Any]] = {
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten._softmax_backward_data.default: softmax_backward,
    aten._log_softmax_backward_data.default: log_softmax_backward,
    aten.native_layer_norm.default: layer_norm,
    aten.native_layer_norm_backward.default: layer_norm_backward,
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_backward,
    aten._native_batch_norm_legit_functional.default: batch_norm_functional,
    aten._native_batch_norm_legit.no_stats: batch_norm_train,
    aten._native_batch_norm_legit_no_training.default: batch_norm_eval,
    aten.native_batch_norm_backward.default: batch_norm_backward,
    aten.gelu.default: gelu,
    aten.gelu_backward.default: gelu_backward,
    aten.silu.default: silu,
    aten.silu_backward.default: silu_backward,
    aten.sigmoid_backward.default: sigmoid_backward,
    aten.tanh_backward.default: tanh_backward,
    aten.threshold_backward.default: threshold_backward,
    aten.mse_loss.default: mse_loss,
    aten.mse_loss_backward.default: mse_loss_backward,
    aten.nll_loss_forward.default: nll_loss,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_forward.default: nll_loss,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten.cat.default: cat,
    aten.index_select.default: index_select,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
    aten.zeros.default: fill_of(0),
    aten.ones.default: fill_of(1),
    aten.new_zeros.default: new_fill_of(0),
    aten.new_ones.default: new_fill_of(1),
    aten.zeros_like.default: fill_like(0),
    aten.ones_like.default: fill_like(1),
    **POOLS,
}

TORCH_ROWS: tuple[str, ...] = (
    "celu", "log_sigmoid_forward", "log_sigmoid_backward", "logit", "logit_backward", "_prelu_kernel", "_prelu_kernel_backward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward", "binary_cross_entropy", "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "soft_margin_loss_backward", "glu", "glu_backward", "logaddexp", "logaddexp2",
    "heaviside", "sinc", "deg2rad", "rad2deg", "special_entr", "special_xlog1py", "aminmax", "addr", "_safe_softmax", "rsub",
    "trace", "isneginf", "isposinf", "pixel_shuffle", "pixel_unshuffle",
    "_euclidean_dist", "_fused_rms_norm_backward", "_weight_norm_interface", "adaptive_max_pool2d", "adaptive_max_pool3d", "affine_grid_generator",
    "block_diag", "channel_shuffle", "col2im", "diag_embed", "dist", "grid_sampler_2d", "hann_window", "im2col",
    "isin", "lcm", "linalg_cross", "linspace", "logspace", "max_unpool2d", "max_unpool3d", "multi_margin_loss",
    "multilabel_margin_loss_forward", "mvlgamma", "nansum", "native_dropout_backward", "norm", "reflection_pad1d", "reflection_pad1d_backward",
    "reflection_pad2d", "reflection_pad2d_backward", "reflection_pad3d", "reflection_pad3d_backward", "renorm", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "rot90", "round", "rrelu_with_noise_backward", "special_log_ndtr", "take", "tril_indices", "triu_indices", "unfold_backward",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_adaptive_avg_pool2d", "_chunk_cat",
    "_native_batch_norm_legit_functional", "unfold_copy", "diagonal_copy", "view_copy", "as_strided_copy", "expand_copy", "narrow_copy", "permute_copy",
    "split_with_sizes_copy", "t_copy", "transpose_copy", "unbind_copy", "unsqueeze_copy", "alias_copy", "squeeze_copy", "special_entr",
)  # fmt: skip
"""Operators opened by torch's own row, by name."""

NEVER: frozenset[str] = frozenset(
    ("mm", "addmm", "bmm", "baddbmm", "addbmm", "addmv", "mv", "dot", "vdot", "linear", "matmul", "convolution", "convolution_backward", "embedding",
     "embedding_dense_backward", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
     "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention", "native_dropout", "bernoulli")
)  # fmt: skip
"""Operators that no table opens: library calls, and what draws random numbers in eager's order."""
