"""Writing in place: a kernel's result in the bytes of a buffer that the kernel reads for the last time.

In: a ``LoopGroup``, a buffer that it reads and one that it writes. Out: whether the second may lie in the bytes of the first.
Always holds for a pair: same dtype and bytes, so that each element is replaced by one element and the compiler sees accesses of one type. The
kernel reads each element at the very point where it writes it, before it writes it, and never after: each load has the store's index, and stands
in an earlier sweep, or in the same sweep in the same node or an earlier one. So threads, lanes, tiles and tails, which share out points, never meet.
PyTorch's counterpart: ``SchedulerNode.allocate`` in ``torch/_inductor/scheduler.py``, whose loads may differ where strides of one are known to be less.
Left out: scans and scatters, results of reductions, elements of different dtypes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from ..lowering.ir import BufferSpec
from ..lowering.program import LoopProgram
from .ir import Group, LoopGroup
from .order import group_reads, group_writes
from .respace import chain


def overwrites(group: LoopGroup, read: BufferSpec, made: BufferSpec) -> bool:
    """True where ``group`` may write ``made`` into the bytes of ``read``, which nobody reads after it."""
    if group.serial is not None or read.dtype != made.dtype or read.nbytes != made.nbytes or not made.nbytes:
        return False
    stores = [(p, i) for p, phase in enumerate(group.phases) for i, node in enumerate(phase.nodes) if node.name == made.name]
    if len(stores) != 1:
        return False
    (at,) = stores
    writer = group.phases[at[0]].nodes[at[1]]
    index = writer.store_index()
    if writer.inner or chain(index, writer.outer) is None:
        return False
    loads = [((p, i), x) for p, phase in enumerate(group.phases) for i, node in enumerate(phase.nodes) for b, x in node.reads() if b == read.name]
    return all(place <= at and x == index for place, x in loads)


def pairs(
    program: LoopProgram, groups: Sequence[Group], spans: Mapping[str, tuple[int, int]], placed: Container[str], given: Container[str]
) -> Iterator[tuple[str, str]]:
    """(written, read) for each buffer that is written over another one: each buffer once. ``placed``: what the plan places; ``given``: what aten's calls
    allocate for this program alone, and that a placed buffer may take over; a result of the program only takes the place of what is placed."""
    buffers = program.buffers
    for i, group in enumerate(groups):
        if not isinstance(group, LoopGroup):
            continue
        dying = [b for b in sorted(group_reads(group)) if b in spans and spans[b][1] == i and (b in given or b in placed)]
        for made in sorted(group_writes(group), key=lambda s: -s.cost):
            fit = [b for b in dying if (b in placed or made.name in placed) and overwrites(group, buffers[b], made)]
            if fit:
                best = min(fit, key=lambda b: b in placed)  # what aten allocated leaves the arena to others
                dying.remove(best)
                yield made.name, best
