"""Where slots may lie: gaps in one region of bytes, and a search for the order that leaves the fewest holes.

In: slots without an offset, with the time they live. Out: the same with offsets, and the bytes they take together.
Method: one after another, each into the smallest gap that those already placed leave free while it lives, else after them. In which order decides
how many holes are left: largest first comes within a tenth of the bound for most graphs, and where it misses it, other orders are tried, and
each again with the buffer first that lay highest, until one is ``NEAR`` the bound or ``TRIES`` is used up (largest first alone missed it by 10 to 27 in the
hundred for 15 of 127 halves of the models of the suite; the search misses it by at most 9).
Where sizes are symbolic the arena is a row of blocks, each as large as the first buffer in it; a buffer joins the smallest block that is free while
it lives and that is known to be large enough in every call. Offsets are then sums of blocks.
PyTorch's counterpart: ``torch/_inductor/codegen/memory_planning.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..lowering.ir import BufferSpec
from ..lowering.sizes import at_most
from .ir import Slot

ALIGN = 64
NEAR = 1 / 16
"""A placement that misses the bound by no more than this is taken."""

MOVES = 8
TRIES = 100_000
"""Pairs of buffers that a search may look at: 27 placements of 60 buffers, one of 300."""

ORDERS: tuple[Callable[[Slot], Any], ...] = (
    lambda s: -s.nbytes * (s.last - s.first + 1),
    lambda s: (s.first - s.last, -s.nbytes),
    lambda s: -s.nbytes,
    lambda s: (-s.last, -s.nbytes),
)
"""Bytes times life, length of life, bytes, last use."""


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def search(order: Iterable[Slot]) -> tuple[list[Slot], int]:
    """(slots, bytes of the arena): the best of several placements; ``order`` begins with the largest."""
    order = list(order)
    near = peak_of(order) * (1 + NEAR)
    best = in_gaps(order)
    tries = TRIES // max(len(order), 1) ** 2
    for key in ORDERS:
        order.sort(key=key)
        for _ in range(MOVES):
            if best[1] <= near or tries <= 0:
                return best
            tries -= 1
            found = in_gaps(order)
            best = min(best, found, key=lambda f: f[1])
            highest = next(i for i, s in enumerate(found[0]) if s.offset + s.nbytes == found[1])
            if highest == 0:
                break
            order.insert(0, order.pop(highest))
    return best


def peak_of(slots: Sequence[Slot]) -> int:
    """Most bytes of ``slots`` alive at once, below which no arena for them can be."""
    change = [0] * (max((s.last for s in slots), default=0) + 2)
    for s in slots:
        change[s.first] += s.nbytes
        change[s.last + 1] -= s.nbytes
    return max(itertools.accumulate(change))


def in_gaps(order: Sequence[Slot]) -> tuple[list[Slot], int]:
    """``order``, each slot in the smallest gap that is there while it lives, and where the highest ends."""
    slots: list[Slot] = []
    for s in order:
        slots.append(replace(s, offset=gap(slots, s)[0]))
    return slots, max((s.offset + s.nbytes for s in slots), default=0)


def gap(placed: Iterable[Slot], slot: Slot) -> tuple[int, int]:
    """(offset, bytes left over) of the smallest gap among those of ``placed`` that live while ``slot`` does; past them, with -1, where there is none."""
    end, best = 0, (0, -1)
    for s in sorted((s for s in placed if s.first <= slot.last and slot.first <= s.last), key=lambda s: s.offset):
        left = s.offset - end - slot.nbytes
        if left >= 0 and (best[1] < 0 or left < best[1]):
            best = end, left
        end = max(end, -(-(s.offset + s.nbytes) // ALIGN) * ALIGN)
    return best if best[1] >= 0 else (end, -1)


def blocks(specs: Sequence[BufferSpec], spans: Mapping[str, tuple[int, int]]) -> tuple[list[Slot], int]:
    """As ``in_gaps``, for sizes that are known only in relation to each other."""
    rows: list[list[BufferSpec]] = []
    for spec in specs:
        first, last = spans[spec.name]
        free = [b for b in rows if at_most(spec.nbytes, b[0].nbytes) and all(last < spans[o.name][0] or spans[o.name][1] < first for o in b)]
        if free:
            min(free, key=lambda b: b[0].cost).append(spec)
        else:
            rows.append([spec])
    slots: list[Slot] = []
    end = 0
    for row in rows:
        size = aligned(row[0].nbytes)
        slots += [Slot(spec, end, size, *spans[spec.name]) for spec in row]
        end = end + size
    return slots, end
