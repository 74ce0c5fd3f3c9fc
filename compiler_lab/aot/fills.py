"""Fills: in-place operators whose result needs nothing of the old value, and the shape and dtype that a stored value gets.

In: ``emit(op, *args, **kwargs)``, which makes a node, what is written (its metadata), and the call's other arguments. Out: the node of
the new value. PyTorch's counterpart: the kernels of ``fill_`` and ``copy_`` in ``aten/src/ATen/native/Fill.cpp`` and ``Copy.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload

from ..core.sizes import same

aten = torch.ops.aten


def conform(emit: Callable[..., fx.Node], node: fx.Node, like: Tensor) -> fx.Node:
    """A functional result as an in-place operator would have stored it: of the written tensor's dtype and shape."""
    val = node.meta["val"]
    if val.dtype != like.dtype:
        node = emit(aten._to_copy.default, node, dtype=like.dtype)
    return node if same(val.shape, like.shape) else emit(aten.expand.default, node, list(like.shape))


def _fill(emit: Callable[..., fx.Node], like: Tensor, value: Any) -> fx.Node:
    if isinstance(value, fx.Node):
        return emit(aten.expand.default, conform(emit, value, value.meta["val"].to(like.dtype)), list(like.shape))
    return emit(aten.full.default, list(like.shape), value, dtype=like.dtype, device=like.device, pin_memory=False)


def _zero(emit: Callable[..., fx.Node], like: Tensor) -> fx.Node:
    return _fill(emit, like, 0)


def _copy(emit: Callable[..., fx.Node], like: Tensor, source: fx.Node, non_blocking: bool = False) -> fx.Node:
    if source.meta["val"].device != like.device:
        return emit(aten._to_copy.default, source, dtype=like.dtype, device=like.device)
    return conform(emit, source, like)


FILLS: dict[OpOverload, Callable[..., fx.Node]] = {
    aten.fill_.Scalar: _fill,
    aten.fill_.Tensor: _fill,
    aten.zero_.default: _zero,
    aten.copy_.default: _copy,
}
