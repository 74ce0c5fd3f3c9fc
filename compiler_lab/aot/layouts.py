"""Layouts that fake tensors get wrong: what eager on the CPU gives, as rows.

In: an operator's arguments and its fake result. Out: the fake result with the strides that the kernel really gives.
Everything after the trace builds on recorded strides (views, ``as_strided``, what the user sees), so they have to be eager's. Each row was
found by running the operator on permuted, padded and channels-last inputs beside its fake twin; a test runs them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten


def suggested(x: Tensor) -> torch.memory_format:
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(x)


def contiguous(args: Sequence[Any]) -> torch.memory_format:
    return torch.contiguous_format


def suggested_by(position: int) -> Callable[[Sequence[Any]], torch.memory_format]:
    """Channels last where that argument is, contiguous otherwise."""

    def row(args: Sequence[Any]) -> torch.memory_format:
        return suggested(args[position])

    return row


def _roll(args: Sequence[Any]) -> torch.memory_format:
    """Without dimensions it rolls a flat copy."""
    return suggested(args[0]) if len(args) > 2 and args[2] else torch.contiguous_format


LAYOUTS: dict[OpOverload, Callable[[Sequence[Any]], torch.memory_format]] = {
    aten.log_sigmoid_forward.default: contiguous,
    aten._log_softmax_backward_data.default: contiguous,
    aten.native_batch_norm.default: suggested_by(0),
    aten.native_batch_norm_backward.default: suggested_by(1),
    aten.roll.default: _roll,
    aten.channel_shuffle.default: suggested_by(0),
    aten.max_unpool2d.default: suggested_by(0),
    aten.replication_pad2d_backward.default: suggested_by(1),
}


def relaid(func: OpOverload, args: Sequence[Any], result: Any) -> Any:
    """``result`` in the layout of its row (of several, all that have the shape of the first). Called under the fake mode."""
    results = (result,) if isinstance(result, Tensor) else result
    if results[0] is None or results[0].device.type != "cpu":
        return result
    layout, shape = LAYOUTS[func](args), results[0].shape
    fitting = [torch.empty_like(r, memory_format=layout) if r is not None and r.shape == shape else r for r in results]
    return fitting[0] if isinstance(result, Tensor) else tuple(fitting)
