"""Inputs that share memory: the ones of which any is written become views of one base, so that a write to one is a write to the others.

In: the inputs of a trace, real or fake. Out: ``Group``s of those that have elements in common, and, for a group, the tensors that the
program gets in their place.
Always holds: a tensor of the program has the layout that the input has, and has an element in common with another where the inputs do; all are
made by operators that autograd sees, of the inputs as they were at entry, so an element that two inputs share has its gradient once, in one
of them. Only inputs that are written themselves are written back: the others see it through their memory.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/input_output_analysis.py`` (create_synthetic_base_metadata) and
``runtime_wrappers.py`` (merge_view_inputs), which make the base at each call and pass it in the inputs' place; here it is made in the graph,
and the calling convention stays as it was. Left out: inputs of several dtypes; inputs with a history that are not views of one tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.memory import are_kin
from ..core.sizes import plain, same
from ..core.strides import contiguous_stride, is_dense
from .overlap import overlapping
from .tracer import has_overlap, laid_out_alike, storage_length

aten = torch.ops.aten

BASE_REASONS = {
    "one-of-them": "one of the inputs holds every element that there is from the first to the last: the base is a copy of it",
    "made-up": "no input does: the base is a row of all memory from the first element to the last, put together from the inputs",
}


WINDOWS = "an input has several elements in one place, and not by expansion alone"
OPEN = "their sizes are symbols, so where they lie to each other differs from call to call"


@dataclass(frozen=True)
class Group:
    """Inputs with elements in common.

    members: their numbers, in order; offsets: in elements, of the first element of each from the first of all; length: elements from there to
    past the last. refused: why they cannot be views of one base, "" where they can. kin: autograd knows them as views of one tensor."""

    members: tuple[int, ...]
    offsets: tuple[int, ...]
    length: int = field(compare=False)
    refused: str = ""
    kin: bool = False

    def base(self, leaves: Sequence[Tensor]) -> tuple[Tensor, str]:
        """The base of ``leaves``, the group's inputs in order, and its row of ``BASE_REASONS``."""
        placed = list(zip(leaves, self.offsets, strict=True))
        whole = next((t for t, at in placed if not at and same(t.numel(), self.length) and is_dense(t.shape, t.stride())), None)
        return (self._row(placed), "made-up") if whole is None else (whole.clone(), "one-of-them")

    def views(self, base: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
        """What stands for ``leaves``."""
        if len(leaves) == 1 and laid_out_alike(base, leaves[0]):
            return [base]
        return [_view(base, t, at) for t, at in zip(leaves, self.offsets, strict=True)]

    def _row(self, placed: Sequence[tuple[Tensor, int]]) -> Tensor:
        row = placed[0][0].new_zeros(self.length)
        for t, at in placed:
            for d in [d for d, (n, s) in enumerate(zip(t.shape, t.stride(), strict=True)) if n > 1 and s == 0]:
                t = t.narrow(d, 0, 1)  # the same elements, again and again
            _view(row, t, at).copy_(t)  # not as_strided_scatter, whose gradient for what is written into holds the wrong elements
        return row


def _view(base: Tensor, like: Tensor, at: int) -> Tensor:
    if not at and laid_out_alike(base, like) and plain(base.stride()) == plain(like.stride()):
        return aten.alias.default(base)
    if base.is_contiguous() and plain(like.stride()) == plain(contiguous_stride(like.shape)):
        part = _flat(base)[at : at + like.numel()]
        return part if like.dim() == 1 else part.view(like.shape)
    if base.is_contiguous() and like.dim() == 1 and like.stride(0):
        return _flat(base)[at : at + storage_length(like) : like.stride(0)]
    return base.as_strided(like.shape, like.stride(), at)


def _flat(t: Tensor) -> Tensor:
    return t if t.dim() == 1 else t.view(-1)


def groups_of(values: Sequence[Any]) -> tuple[Group, ...]:
    """Groups of the tensors among ``values`` that have elements in common; one that is linked to another only through a third is in its group."""
    found: list[set[int]] = []
    for i, j in _pairs(values):
        touched = [g for g in found if i in g or j in g]
        found = [*(g for g in found if g not in touched), {i, j}.union(*touched)]
    return tuple(sorted((_group(tuple(sorted(g)), values) for g in found), key=lambda g: g.members))


def lone(number: int, value: Tensor) -> Group:
    """A group of one: an input that the program writes to with history stands for its base, too, which autograd lets a program write to."""
    return Group((number,), (0,), storage_length(value), WINDOWS if has_overlap(value, repeats=False) else "", kin=True)


def place(value: Tensor) -> tuple[Any, int]:
    """The memory and the byte in it where ``value`` begins: of real tensors the address counts, of fake ones the storage that they share."""
    if type(value) in (Tensor, torch.nn.Parameter, torch.nn.Buffer) and value.device.type != "meta":
        return value.device, value.data_ptr()
    return value.untyped_storage()._cdata, int(value.storage_offset()) * value.itemsize


def _pairs(values: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Of one sweep over the memory in order."""
    by_memory: dict[Any, list[tuple[int, int, int]]] = {}
    for i, v in enumerate(values):
        if isinstance(v, Tensor) and v.layout == torch.strided and v.numel():
            memory, start = place(v)
            by_memory.setdefault(memory, []).append((start, start + storage_length(v) * v.itemsize, i))
    for spans in by_memory.values():
        open: list[tuple[int, int, int]] = []
        for start, end, i in sorted(spans):
            open = [other for other in open if other[1] > start]
            for first, _, j in open:
                if overlapping(values[j], values[i], start - first):
                    yield j, i
            open.append((start, end, i))


def _group(members: tuple[int, ...], values: Sequence[Any]) -> Group:
    tensors: list[Tensor] = [values[i] for i in members]
    starts = [place(t)[1] for t in tensors]
    size, lowest = tensors[0].itemsize, min(starts)
    offsets = tuple((start - lowest) // size for start in starts)
    length = max(at + storage_length(t) for at, t in zip(offsets, tensors, strict=True))
    return Group(members, offsets, length, _refused(tensors, [start - lowest for start in starts]), are_kin(tensors))


def _refused(tensors: Sequence[Tensor], starts: Sequence[int]) -> str:
    if len({t.dtype for t in tensors}) > 1 or any(start % tensors[0].itemsize for start in starts):
        return "they are of several dtypes, or begin in the middle of each other's elements"
    if any(has_overlap(t, repeats=False) for t in tensors):
        return WINDOWS
    if any(t.requires_grad for t in tensors) and not (are_kin(tensors) and all(t.requires_grad for t in tensors)):
        return "they have a history, and are not all views of one tensor that may be written to"
    return ""
