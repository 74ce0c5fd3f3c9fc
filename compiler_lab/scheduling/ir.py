"""What scheduling gives and code generation takes: fused groups in order, and where each buffer lives.

A ``LoopGroup`` is one kernel: several loop nodes re-expressed over one iteration space, ``outer`` x ``inner``. Its ``phases``
run one after another for each point of ``outer``: a "full" phase is one sweep over ``inner`` (pointwise nodes over the full space
and reductions into a scalar per outer point), an "outer" phase is scalar code between sweeps. With ``inner`` empty there
are only outer phases. Example, softmax over rows: full(max), full(sub, exp, sum), full(div).

A value made in a full phase and read in a later one is in ``kept``: "memory" (its buffer is written anyway and read back) or
"row" (a scratch row, local to the thread); what is cheap is recomputed instead: the node stands again in the later phase.
A buffer that no other group and no output needs is in ``internal`` and is never stored.

How a node stands in a group: its ``outer`` and ``inner`` are the group's variables. A pointwise node over the full space has ``outer``
= the group's outer + inner and no inner; a reduction has the group's outer and inner; a node of an outer phase only the group's outer.
A load of a buffer that the group itself makes is one of three: at the producer's own store index, the value at this point (of this
phase, kept, or a result per outer point); at another index with the same outer point, a read back from memory of what an earlier
phase stored (a gather along the row; the buffer is then in ``kept`` as "memory"); nothing else occurs. A node may stand in several
phases (recomputed), and, as ``internal``, in a group whose buffer another group stores: then its store index may name one
element at many points, and is never executed.

PyTorch's counterpart: ``torch/_inductor/scheduler.py`` (FusedSchedulerNode) and ``memory.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from ..lowering.index import Var
from ..lowering.ir import BufferSpec, ExternNode, LoopNode, SerialNode

Shape = Literal["pointwise", "row", "column", "flat", "product", "serial"]

OUT_VARIANTS: Mapping[torch._ops.OpOverload, torch._ops.OpOverload] = {
    torch.ops.aten.mm.default: torch.ops.aten.mm.out,
    torch.ops.aten.addmm.default: torch.ops.aten.addmm.out,
    torch.ops.aten.bmm.default: torch.ops.aten.bmm.out,
    torch.ops.aten.baddbmm.default: torch.ops.aten.baddbmm.out,
}
"""Extern calls that can write into memory they are given, so that the plan places their output; all others allocate for themselves."""

FRESH: frozenset[torch._ops.OpOverload] = frozenset({
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
})  # fmt: skip
"""Extern calls whose results are new memory whatever they are given, so that a kernel may write over them. Others may give back an argument without
their schema saying so, as ``native_dropout`` does where it drops nothing."""


@dataclass(frozen=True)
class Phase:
    """``nodes`` in order; their bodies' indices are over the group's variables (outer only, when ``space`` is "outer")."""

    space: Literal["full", "outer"]
    nodes: tuple[LoopNode, ...]


@dataclass(frozen=True)
class LoopGroup:
    """One kernel. ``shape`` tells how it is best walked:

    pointwise  no reduction; ``inner`` is empty
    row        ``inner`` is contiguous in memory: parallel over outer, vector over inner
    column     ``outer``'s last variable is contiguous: vector over it, accumulators in an array
    flat       ``outer`` is empty: the whole tensor is reduced in one sweep, parallel over chunks of inner

    product    one matrix product, by a template in blocks of rows and strips of columns, and what is made of each of its elements
    serial     one ``SerialNode``, alone: ``inner`` are its steps, which run in order; parallel and vector over outer

    A small tensor that is reduced whole and swept again is a "row" group with one outer variable of size 1.
    """

    name: str  # "k0"
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    phases: tuple[Phase, ...]
    internal: frozenset[str]
    kept: Mapping[str, Literal["memory", "row"]]
    shape: Shape

    serial: SerialNode | None = None

    @property
    def nodes(self) -> tuple[LoopNode | SerialNode, ...]:
        """Every node once, in order of first appearance."""
        if self.serial is not None:
            return (self.serial,)
        return tuple({n.name: n for p in self.phases for n in p.nodes}.values())


@dataclass(frozen=True)
class ExternGroup:
    """One aten call, as it is."""

    name: str  # "e0"
    node: ExternNode


Group = LoopGroup | ExternGroup


@dataclass(frozen=True)
class Slot:
    """Where an intermediate buffer lives: bytes [offset, offset + nbytes) of the arena, from group ``first`` to group ``last``.

    ``host``: another buffer in whose memory it lies instead: a result of the program that is not written yet, or one of an aten call that it is
    written over. Where sizes are symbolic so are ``offset`` and ``nbytes``: they are computed once for each call."""

    buffer: BufferSpec
    offset: int
    nbytes: int
    first: int
    last: int
    host: str = ""
