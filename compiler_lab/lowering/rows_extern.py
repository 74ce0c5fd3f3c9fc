"""Rows of extern calls that are asked for in a layout of ours: convolutions on channels-last memory.

In: the builder and the call's own arguments. Out: one extern call whose tensors lie so that the library need not reorder them, and the views
of what it returns. Buffers made for this are in ``Builder.relaid``: loops that follow keep their layout (``Builder.following``), so that a
chain of convolutions and elementwise operators is reordered where it begins and where it ends.
Always holds: sizes and values are aten's; the layout is the program's own again where the graph returns a value.
PyTorch does this in ``torch/_inductor/graph.py`` (decide_layout_opt). Left out: transposed, one- and three-dimensional convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from .builder import Builder, Decline
from .ir import BufferSpec, TensorView


def channels_last(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of (N, C, H, W) with the channels of a pixel side by side."""
    _, c, h, w = size
    return (h * w * c, 1, w * c, c)


def in_layout(b: Builder, view: TensorView) -> TensorView:
    """``view``, or a copy of it, channels last. Raises ``Decline`` where that has no meaning of its own."""
    if len(view.size) != 4 or 0 in view.size or view.dtype not in (torch.float32, torch.bfloat16):
        raise Decline("library call")
    stride = channels_last(view.size)
    if view.stride == stride:
        return view
    spec = BufferSpec(b.name(), view.size, stride, view.dtype, b.device)
    b.relaid.add(spec.name)
    return b.copy(view, spec, "channels_last")


def channels_last_call(op: OpOverload, tensors: int) -> Callable[..., Any]:
    """Of a convolution or its backward: first its tensors, then bias or its sizes, stride, padding, dilation, transposed and so on."""

    def row(b: Builder, *args: Any) -> Any:
        transposed = args[tensors + 4]
        if transposed or b.device.type != "cpu":
            raise Decline("library call")
        return b.extern(op, (*(in_layout(b, t) for t in args[:tensors]), *args[tensors:]), {}, layout=channels_last)

    return row


EXTERNS: dict[str, Callable[..., Any]] = {
    str(op): channels_last_call(op, tensors) for op, tensors in ((torch.ops.aten.convolution.default, 2), (torch.ops.aten.convolution_backward.default, 3))
}
"""Operator name -> row."""
