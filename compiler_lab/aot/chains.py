"""Rules about where a value stands among others: read near and far, and at the end of a long chain.

In: the nodes that must run in the forward, in order, and what is banned already. Out: sets of nodes that had better not be computed again.
Both guard against a cut near the source, behind which a long stretch of the program would run twice although each step of it is cheap.
PyTorch's counterpart: ``ban_recompute_used_far_apart`` and ``ban_recompute_long_fusible_chains`` in ``torch/_functorch/partitioners.py``.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence

import torch.fx as fx

from .bans import can_fuse

LONGEST = 100  # forward nodes from the first to the last of a chain that may be computed again as one


def far_readers(forward: Sequence[fx.Node]) -> set[fx.Node]:
    """Readers of a value that is read before, too, with something between the two that cannot be fused.

    Computed again in the backward, near and far reader would not share a kernel, so the value would be read twice after all."""
    order = {n: i for i, n in enumerate(forward)}
    far: set[fx.Node] = set()
    for node in forward:
        readers = [u for u in node.users if u in order]
        if len(readers) > 1:
            wall = _first_unfusible(readers, order)
            far.update(u for u in readers if order[u] > wall and can_fuse(node, u))
    return far


def _first_unfusible(starts: Sequence[fx.Node], order: Mapping[fx.Node, int]) -> int:
    """Place of the first node behind ``starts`` that cannot be fused with what it reads of them; that of the last of them if there is none."""
    last = max(order[n] for n in starts)
    front = sorted(order[n] for n in starts)
    by_place = {order[n]: n for n in starts}
    wall = last
    while front and front[0] < wall:
        node = by_place[heapq.heappop(front)]
        for user in node.users:
            place = order.get(user, last + 1)
            if place > last:
                continue
            if not can_fuse(node, user):
                wall = min(wall, place)
            elif place not in by_place:
                by_place[place] = user
                heapq.heappush(front, place)
    return wall


def chain_ends(forward: Sequence[fx.Node], banned: Container[fx.Node]) -> set[fx.Node]:
    """Where a chain of fusible nodes has run for more than ``LONGEST`` and all of it passes through one node."""
    order = {n: i for i, n in enumerate(forward)}
    seen, ends = set[int](), set[fx.Node]()
    for start in range(len(forward)):
        front = [start] if start not in seen else []
        while front:
            place = heapq.heappop(front)
            if place in seen:
                continue
            seen.add(place)
            if place > start + LONGEST and not front:
                ends.add(forward[place])
                break
            for user in forward[place].users:
                if user in order and user not in banned and can_fuse(forward[place], user):
                    heapq.heappush(front, order[user])
    return ends
