"""Whether arguments of a call that writes stand on the same elements, and whether its functional form may then be told the old ones.

In: the metadata of tensors on one piece of memory. Out: yes or no.
Always holds: no is said only where it was computed. PyTorch's counterpart: ``aten/src/ATen/MemoryOverlap.cpp``, which most kernels ask and
some do not; what those give for arguments that overlap depends on the order in which they read and write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..core.sizes import depends
from .schemas import functional_twin
from .tracer import laid_out_alike, storage_length

aten = torch.ops.aten

LIMIT = 1 << 20  # elements of a tensor that are compared one by one; larger ones that interleave are taken to overlap

ELEMENTWISE = frozenset({aten.copy_.default, aten.masked_fill_.Tensor, aten.floor_divide_.Tensor})
"""Operators that read each element where they write it, without the tag that says so."""


def overlapping(a: Tensor, b: Tensor, distance: Any = None) -> bool:
    """Two views of the same memory have an element in common. distance: bytes from the first element of ``a`` to that of ``b``, where their
    offsets do not tell."""
    if not a.numel() or not b.numel():
        return False
    if distance is None:
        distance = b.storage_offset() * b.itemsize - a.storage_offset() * a.itemsize
    if distance >= storage_length(a) * a.itemsize or -distance >= storage_length(b) * b.itemsize:
        return False
    if depends((a, b, distance)) or a.itemsize != b.itemsize or distance % a.itemsize or max(a.numel(), b.numel()) > LIMIT:
        return True
    return bool(torch.isin(_places(a, 0), _places(b, distance // a.itemsize)).any())


def _places(t: Tensor, start: int) -> Tensor:
    """The position of each element in the memory; that of the first is ``start``."""
    place = torch.tensor([start], device="cpu")
    for size, stride in zip(t.shape, t.stride(), strict=True):
        place = (place[:, None] + torch.arange(size, device="cpu") * stride).reshape(-1)
    return place


def in_step(op: OpOverload, written: Tensor, read: Tensor, name: str, positions: Sequence[int]) -> bool:
    """``op`` may write ``written`` and read ``read`` (its argument ``name``) in the same elements: it reads each where it writes it.

    positions: in the lists that the two stand in, 0 outside lists."""
    same = written.storage_offset() == read.storage_offset() and written.dtype == read.dtype and laid_out_alike(written, read)
    if not same or positions[0] != positions[1]:
        return False
    twin = functional_twin(op)
    pointwise = torch.Tag.pointwise in op.tags or (twin is not None and torch.Tag.pointwise in twin.tags)
    in_place = name == "self" and hasattr(aten, f"{op._opname}_")  # out=self is what the operator in place does
    return pointwise or in_place or op in ELEMENTWISE or op._opname.startswith("_foreach")
