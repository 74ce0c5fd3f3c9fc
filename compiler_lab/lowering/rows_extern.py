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

from .builder import Builder, Decline
from .ir import BufferSpec, TensorView

Numbers = Sequence[int]


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


def convolution(
    b: Builder,
    input: TensorView,
    weight: TensorView,
    bias: TensorView | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
) -> TensorView:
    if transposed or b.device.type != "cpu":
        raise Decline("library call")
    args = (in_layout(b, input), in_layout(b, weight), bias, stride, padding, dilation, transposed, output_padding, groups)
    return b.extern(torch.ops.aten.convolution.default, args, {}, layout=channels_last)


def convolution_backward(
    b: Builder,
    grad_output: TensorView,
    input: TensorView,
    weight: TensorView,
    bias_sizes: Numbers | None,
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    transposed: bool,
    output_padding: Numbers,
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    if transposed or b.device.type != "cpu":
        raise Decline("library call")
    tensors = tuple(in_layout(b, t) for t in (grad_output, input, weight))
    args = (*tensors, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask)
    return b.extern(torch.ops.aten.convolution_backward.default, args, {}, layout=channels_last)


EXTERNS: dict[str, Callable[..., Any]] = {
    "aten.convolution.default": convolution,
    "aten.convolution_backward.default": convolution_backward,
}
"""Operator name -> row."""
