"""What functionalization knows of view operators, as rows: how to write through one, and what one part of a many-valued one is.

``WRITE[op]`` gives the new value of a view's base, from the base's old value, the view's arguments and the new value of the view.
Rows whose view covers the whole base (``COVERS``) do not look at the old value. ``PARTS[op]`` says which single view each result of
``split`` or ``unbind`` is, so that one of them can be made again or written through by itself.
PyTorch's counterpart: ``aten/src/ATen/FunctionalInverses.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload

from ..core.sizes import composed, depends, same

aten = torch.ops.aten

Emit = Callable[..., fx.Node]
WriteRow = Callable[[Emit, fx.Node, Tensor, Sequence[Any], fx.Node], "fx.Node | None"]


def _reshaped(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return reshape(emit, new, base.shape)


def _dtype(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    """Bits are read as another dtype in the order of the last dimension, where the sizes differ."""
    if base.dtype.itemsize != new.meta["val"].dtype.itemsize:
        new = emit(aten.clone.default, new, memory_format=torch.contiguous_format)
    return emit(aten.view.dtype, new, base.dtype)


def _real(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.view_as_complex.default, emit(aten.clone.default, new, memory_format=torch.contiguous_format))


def _complex(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.view_as_real.default, emit(aten.clone.default, new) if new.meta["val"].is_conj() else new)


def _conj(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten._conj_physical.default, new)


def _neg(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.neg.default, new)


def _t(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.t.default, new)


def _transpose(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.transpose.int, new, *args)


def _permute(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    dims = [d % len(args[0]) for d in args[0]]
    return emit(aten.permute.default, new, [dims.index(i) for i in range(len(dims))])


def _expand(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node | None:
    """Where nothing is repeated; otherwise one element stands for many, and eager refuses to write as well."""
    return reshape(emit, new, base.shape) if same(base.numel(), new.meta["val"].numel()) else None


def _slice(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.slice_scatter.default, old, new, *args)


def _select(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.select_scatter.default, old, new, *args)


def _diagonal(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    return emit(aten.diagonal_scatter.default, old, new, *args)


def _as_strided(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node:
    """The offset is counted from the base's first element."""
    size, stride, offset = args
    return emit(aten.as_strided_scatter.default, old, new, size, stride, offset + old.meta["val"].storage_offset())


def _unfold(emit: Emit, old: fx.Node, base: Tensor, args: Sequence[Any], new: fx.Node) -> fx.Node | None:
    """The first elements of all windows are a slice of the base, so are the second ones, and so on; windows that overlap are refused."""
    dim, size, step = args
    if size > step or not base.dim():
        return None
    count = new.meta["val"].shape[dim % base.dim()]  # there is one dimension more, the last
    for i in range(size):
        old = emit(aten.slice_scatter.default, old, emit(aten.select.int, new, -1, i), dim, i, i + (count - 1) * step + 1, step)
    return old


COVERS: dict[OpOverload, WriteRow] = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.view.dtype: _dtype,
    aten.view_as_real.default: _real,
    aten.view_as_complex.default: _complex,
    aten._conj.default: _conj,
    aten._neg_view.default: _neg,
    aten.t.default: _t,
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten.expand.default: _expand,
}

WRITE: dict[OpOverload, WriteRow] = {
    **COVERS,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.diagonal.default: _diagonal,
    aten.as_strided.default: _as_strided,
    aten.unfold.default: _unfold,
}

PLACED: frozenset[OpOverload] = frozenset({aten.as_strided.default, aten._reshape_alias.default, aten.view.dtype, aten.view_as_complex.default})
"""Views of memory rather than of values: what they are taken of has to lie as it lay in the trace."""


def _split(base: Tensor, size: int, dim: int = 0) -> list[tuple[OpOverload, tuple[Any, ...]]]:
    length = base.shape[dim]
    count = max(1, -(-length // size)) if size else 1
    return [(aten.slice.Tensor, (dim, i * size, torch.sym_min((i + 1) * size, length))) for i in range(count)]


def _split_with_sizes(base: Tensor, sizes: Sequence[int], dim: int = 0) -> list[tuple[OpOverload, tuple[Any, ...]]]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [(aten.slice.Tensor, (dim, end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def _unbind(base: Tensor, dim: int = 0) -> list[tuple[OpOverload, tuple[Any, ...]]]:
    return [(aten.select.int, (dim, i)) for i in range(base.shape[dim])]


PARTS: dict[OpOverload, Callable[..., list[tuple[OpOverload, tuple[Any, ...]]]]] = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.unbind.int: _unbind,
}


def reshape(emit: Emit, node: fx.Node, shape: Sequence[int]) -> fx.Node:
    """``node`` under another shape: a view where its strides allow one, else a copy."""
    if same(node.meta["val"].shape, tuple(shape)):
        return node
    if not viewable(node.meta["val"], shape):
        node = emit(aten.clone.default, node, memory_format=torch.contiguous_format)
    return emit(aten.view.default, node, list(shape))


def viewable(value: Tensor, shape: Sequence[int]) -> bool:
    """Whether ``value.view(shape)`` is possible without a copy: asked of an empty tensor with the same strides."""
    mode: Any = getattr(value, "fake_mode", None)
    try:
        if depends((value, shape)) and mode is not None:
            with mode, composed(True):
                aten.view.default(value, shape)
            return True
        torch.empty_strided(value.shape, value.stride(), device="meta").view(shape)
    except RuntimeError:
        return False
    return True
