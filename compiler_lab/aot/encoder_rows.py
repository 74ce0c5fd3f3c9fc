"""What ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call whole in evaluation, opened into what it is made of.

In: the arguments of ``aten._transformer_encoder_layer_fwd`` or ``aten._native_multi_head_attention``. Out: the results by plain aten operators;
``NotImplemented`` for masks, which they read in three ways, and for what is empty.
Always holds: every intermediate has the layer's dtype where eager's has it; the products and the attention are calls of the library.
PyTorch's counterpart: ``aten/src/ATen/native/transformers/transformer.cpp``; Inductor calls it whole, and cannot fuse or plan what is inside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from .decomposition_rows import layer_norm

aten = torch.ops.aten


def opens(x: Tensor) -> bool:
    return x.dim() == 3 and x.numel() > 0 and x.device.type == "cpu"


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    flat = aten.addmm.default(bias, x.reshape(-1, x.shape[-1]), weight.t())
    return flat.view(*x.shape[:-1], weight.shape[0])


def narrowed(y: Tensor, dtype: torch.dtype) -> Tensor:
    """What a row computed wide, as eager leaves it in memory."""
    return y if y.dtype == dtype else aten._to_copy.default(y, dtype=dtype)


def normed(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return narrowed(layer_norm(x, [x.shape[-1]], weight, bias, eps)[0], x.dtype)


def attended(x: Tensor, heads: int, weight: Tensor, bias: Tensor) -> Tensor:
    batch, length, width = x.shape
    query, key, value = linear(x, weight, bias).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
    found = aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value)[0]
    return found.transpose(1, 2).reshape(batch, length, width)


def encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    weight_1: Tensor,
    bias_1: Tensor,
    weight_2: Tensor,
    bias_2: Tensor,
    up_weight: Tensor,
    up_bias: Tensor,
    down_weight: Tensor,
    down_bias: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    if mask is not None or not opens(x):
        return NotImplemented
    y = normed(x, weight_1, bias_1, eps) if norm_first else x
    x = x + linear(attended(y, heads, qkv_weight, qkv_bias), out_weight, out_bias)
    x = x if norm_first else normed(x, weight_1, bias_1, eps)
    y = linear(normed(x, weight_2, bias_2, eps) if norm_first else x, up_weight, up_bias)
    y = narrowed(aten.gelu.default(y) if use_gelu else aten.relu.default(y), x.dtype)
    x = x + linear(y, down_weight, down_bias)
    return x if norm_first else normed(x, weight_2, bias_2, eps)


def self_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """Of a tensor with itself, without its weights, in whose place aten leaves nothing."""
    if need_weights or mask is not None or key is not query or value is not query or not opens(query):
        return NotImplemented
    return linear(attended(query, heads, qkv_weight, qkv_bias), out_weight, out_bias), query.new_empty(0)


ENCODER: dict[OpOverload, Any] = {aten._transformer_encoder_layer_fwd.default: encoder_layer, aten._native_multi_head_attention.default: self_attention}
