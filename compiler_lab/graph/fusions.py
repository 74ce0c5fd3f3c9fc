"""The rewrites that this stage knows: SiLU, and batch norm folded into the convolution before it. Rows of patterns.

In: any graph. Out: the same class, with a decision for each match. Always holds: what ``rewrite.py`` promises; results differ from before by
rounding only.

Batch norm in evaluation is one affine map for each channel, and a convolution is linear in its weight, so with ``s = gamma / sqrt(var + eps)``::

    bn(W * x + b) = (s W) * x + (b - mean) s + beta

``s W`` and ``(b - mean) s + beta`` are computed **in the graph**, from the same inputs as before: an optimizer's step or a changed buffer is
seen by the next call, and gradients reach all of them. In training the statistics are the batch's own and the identity does not hold; it is
refused there. Reduced precision is computed in float32 and rounded once, as batch norm itself does.
PyTorch's counterparts: ``torch/nn/utils/fusion.py`` (new parameters, computed once), ``torch/_inductor/fx_passes/freezing_patterns.py``.
Left out: calls of modules (trace with ``capture``, where there are none); statistics or weights of another device than the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..core.fx import GraphArtifact
from .patterns import Condition, Match, Pattern
from .rewrite import replace_pattern
from .values import tensor_of

aten = torch.ops.aten
G = TypeVar("G", bound=GraphArtifact)
LOW = (torch.bfloat16, torch.float16)

# ------------------------------------------------------------------------------------------------------------------ SiLU


def _floats(match: Match) -> bool:
    x = match.tensor("x")
    return x is not None and x.is_floating_point()


SILU = Pattern(
    "silu",
    lambda x: x * torch.sigmoid(x),
    lambda x: F.silu(x),
    (Condition("floating", _floats, "SiLU is defined for floating point numbers, and sigmoid takes integers, too"),),
)


def fuse_silu(graph: G) -> G:
    """``x * sigmoid(x)`` in either order and any spelling becomes ``silu(x)``: one operator, and one value to save for backward, not three."""
    return replace_pattern(graph, SILU)


# ------------------------------------------------------------------------------------------------ convolution, batch norm


def _evaluates(match: Match) -> bool:
    return match.operands.get("training", False) is False and match.tensor("mean") is not None and match.tensor("var") is not None


def _has_batch(match: Match) -> bool:
    out, weight = match.nodes[_convolution(match)].meta["val"], match.tensor("w")
    return weight is not None and out.dim() == weight.dim()


def _one_dtype(match: Match) -> bool:
    out, whole = match.nodes[_convolution(match)].meta["val"], match.root.meta["val"]
    used = [t for name in ("x", "w", "b") if (t := match.tensor(name)) is not None]
    own = [t for name in ("mean", "var", "gamma", "beta") if (t := match.tensor(name)) is not None]
    wide = {torch.float32, out.dtype} if out.dtype in LOW else {out.dtype}
    return {t.dtype for t in (*used, whole)} == {out.dtype} and {t.dtype for t in own} <= wide


def _each_channel(match: Match) -> bool:
    channels = match.nodes[_convolution(match)].meta["val"].shape[1]
    return all(str(tuple(t.shape)) == f"({channels},)" for name in ("mean", "var", "gamma", "beta") if (t := match.tensor(name)) is not None)


def _convolution(match: Match) -> str:
    return next(name for name in match.nodes if name.startswith("conv"))


CONDITIONS = (
    Condition("evaluation", _evaluates, "in training the statistics are those of the batch, so the scale depends on the input"),
    Condition(
        "batched", _has_batch, "without a batch dimension (a 2d convolution whose output is not 4-D) batch norm takes another dimension for the channels"
    ),
    Condition("one dtype", _one_dtype, "input, weight, bias and result have different dtypes: something casts between the two"),
    Condition("one number a channel", _each_channel, "statistics, scale or shift are not one number for each output channel"),
)


def _wide(value: Any) -> Any:
    """Reduced precision in float32."""
    known = tensor_of(value.node) if isinstance(value, fx.Proxy) else None
    return value.to(torch.float32) if known is not None and known.dtype in LOW else value


def folded(w: Any, b: Any, mean: Any, var: Any, gamma: Any, beta: Any, eps: Any, transposed: bool = False, groups: int = 1) -> tuple[Any, Any]:
    """W' and b', as expressions of the operands (proxies; ``b``, ``gamma`` and ``beta`` may be None), of the dtype of ``w``.

    ``w`` has the output channels in dimension 0; transposed, in dimension 1, those of one group of ``groups`` after another.
    """
    known = w.node.meta["val"]
    mean, var, gamma, beta = map(_wide, (mean, var, gamma, beta))
    scale = torch.rsqrt(var + eps)
    scale = scale if gamma is None else scale * gamma
    shift = -(mean * scale) if b is None else (_wide(b) - mean) * scale
    shift = shift if beta is None else shift + beta
    if transposed and groups > 1:
        inputs, outputs = known.shape[0] // groups, known.shape[1]
        factor = scale.reshape(groups, 1, outputs).expand(groups, inputs, outputs).reshape(known.shape[0], outputs)
    else:
        factor = scale.unsqueeze(0 if transposed else -1)
    for _ in range(known.dim() - 2):
        factor = factor.unsqueeze(-1)
    weight = _wide(w) * factor
    return (weight.to(known.dtype), shift.to(known.dtype)) if known.dtype in LOW else (weight, shift)


def _torch_pattern(name: str) -> Pattern:
    """``torch.convNd`` and ``F.batch_norm``, as captured graphs have them."""
    conv = getattr(torch, name)
    return Pattern(
        f"{name} + batch_norm",
        lambda x, w, b, stride, padding, dilation, groups, mean, var, gamma, beta, training, momentum, eps: F.batch_norm(
            conv(x, w, b, stride, padding, dilation, groups), mean, var, gamma, beta, training, momentum, eps
        ),
        lambda x, w, b, stride, padding, dilation, groups, mean, var, gamma, beta, training, momentum, eps: conv(
            x, *folded(w, b, mean, var, gamma, beta, eps), stride, padding, dilation, groups
        ),
        CONDITIONS,
    )


def _torch_transposed(name: str) -> Pattern:
    conv = getattr(torch, name)
    return Pattern(
        f"{name} + batch_norm",
        lambda x, w, b, stride, padding, extra, groups, dilation, mean, var, gamma, beta, training, momentum, eps: F.batch_norm(
            conv(x, w, b, stride, padding, extra, groups, dilation), mean, var, gamma, beta, training, momentum, eps
        ),
        lambda x, w, b, stride, padding, extra, groups, dilation, mean, var, gamma, beta, training, momentum, eps: conv(
            x, *folded(w, b, mean, var, gamma, beta, eps, True, groups), stride, padding, extra, groups, dilation
        ),
        CONDITIONS,
    )


TORCH_FOLDS = (*map(_torch_pattern, ("conv1d", "conv2d", "conv3d")), *map(_torch_transposed, ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")))
"""For graphs of torch's functions."""


def _aten_pattern(name: str, norm: Callable[..., Any]) -> Pattern:
    """``aten.convolution`` and ``norm(conv, mean, ...)``, what batch norm is in an aten graph."""
    conv = aten.convolution.default
    return Pattern(
        name,
        lambda x, w, b, stride, padding, dilation, transposed, extra, groups, mean, var, gamma, beta, momentum, eps, shape: norm(
            conv(x, w, b, stride, padding, dilation, transposed, extra, groups), mean, var, gamma, beta, momentum, eps, shape
        ),
        lambda x, w, b, stride, padding, dilation, transposed, extra, groups, mean, var, gamma, beta, momentum, eps, shape: conv(
            x, *folded(w, b, mean, var, gamma, beta, eps, transposed, groups), stride, padding, dilation, transposed, extra, groups
        ),
        (*CONDITIONS, *ATEN_CONDITIONS),
    )


def _aten_spelled(match: Match) -> bool:
    plain = not (match.operands["transposed"] and match.operands["groups"] > 1)
    return plain and match.nodes[_convolution(match)].meta["val"].dtype not in LOW


def _along_channels(match: Match) -> bool:
    shape, out = match.operands["shape"], match.nodes[_convolution(match)].meta["val"]
    return shape is None or [str(n) for n in shape] == [str(n) for n in (1, out.shape[1], *(1,) * (out.dim() - 2))]


ATEN_CONDITIONS = (
    Condition("spelled in aten", _aten_spelled, "reduced precision and groups of a transposed convolution are folded in graphs of torch's functions only"),
    Condition("along channels", _along_channels, "the normalization is not along dimension 1"),
)


def _whole(conv: Any, mean: Any, var: Any, gamma: Any, beta: Any, momentum: Any, eps: Any, shape: Any) -> Any:
    return aten._native_batch_norm_legit_no_training.default(conv, gamma, beta, mean, var, momentum, eps)[0]


def _viewed(affine: bool) -> Callable[..., Any]:
    """Batch norm as our decompositions open it: every vector viewed as [1, C, 1, 1]."""

    def norm(conv: Any, mean: Any, var: Any, gamma: Any, beta: Any, momentum: Any, eps: Any, shape: Any) -> Any:
        view = aten.view.default
        normal = (conv - view(mean, shape)) * view(torch.rsqrt(var + eps), shape)
        return normal * view(gamma, shape) + view(beta, shape) if affine else normal

    return norm


def _unsqueezed(rank: int, affine: bool) -> Callable[..., Any]:
    """Batch norm as Inductor opens it for a tensor of ``rank`` dimensions."""

    def wide(value: Any) -> Any:
        for _ in range(rank - 2):
            value = aten.unsqueeze.default(value, -1)
        return value

    def norm(conv: Any, mean: Any, var: Any, gamma: Any, beta: Any, momentum: Any, eps: Any, shape: Any) -> Any:
        inverse = aten.mul.Tensor(torch.reciprocal(torch.sqrt(var + eps)), 1)
        normal = (conv - wide(mean)) * wide(inverse)
        return normal * wide(gamma) + wide(beta) if affine else normal

    return norm


POST_GRAD_FOLDS = tuple(
    _aten_pattern(f"convolution + opened batch_norm, {rank - 2}d" + ("" if affine else ", no scale"), _unsqueezed(rank, affine))
    for affine in (True, False)
    for rank in (4, 3, 5)
)
"""For the graphs that Inductor's own passes leave: ``PostGradPass(*POST_GRAD_FOLDS)``."""
ATEN_FOLDS = (
    _aten_pattern("convolution + batch_norm", _whole),
    _aten_pattern("convolution + opened batch_norm", _viewed(True)),
    _aten_pattern("convolution + opened batch_norm, no scale", _viewed(False)),
)
"""For our aten graphs, decomposed or not."""


def fold_batch_norm(graph: G) -> G:
    """Batch norm in evaluation becomes part of the convolution before it: 1d, 2d, 3d, transposed, with groups, with or without bias, scale and
    shift. Works on captured graphs and on aten graphs; a decision for each pair, with the condition that failed where it was refused."""
    calls = {n.target for n in graph.graph.nodes if n.op == "call_function"}
    for pattern in ATEN_FOLDS if aten.convolution.default in calls else TORCH_FOLDS:
        graph = replace_pattern(graph, pattern)
    return graph
