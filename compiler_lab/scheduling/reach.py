"""Which units run before which, while units become one: what is asked of two before they are joined.

In: for each unit the units it needs. Out: whether a path through a third leads from one to the other, so that one kernel of both would need
itself; and which unit a position belongs to.
Always holds: ``rank`` is a topological order of the units there are; answers depend on the graph alone.
Method: a path only climbs in rank, so it is looked for between the ranks of the two, from both ends, an edge of each by turns, until one end has no
more; joining two moves what that end has reached out of the way (after Pearce and Kelly, "A dynamic topological sort algorithm for directed
acyclic graphs", 2006). So the work is twice that of the end with less behind it; sets of all that each unit needs would take the square of their
number.
PyTorch's counterpart: ``torch/_inductor/scheduler.py`` (``ancestors``: sets of names, will_fusion_create_cycle).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

GAP = 1 << 96
"""Between the ranks of two neighbours, at first."""


@dataclass(frozen=True)
class Found:
    """What a search came to: a unit ``between`` the two, or all that one end has reached; ``down``: the end that runs first, what it is needed by."""

    between: int | None
    down: bool
    units: tuple[int, ...] = ()


class Reach:
    """Units under the smallest of their positions. ``steps`` counts the edges that searches looked at."""

    def __init__(self, needs: Mapping[int, Iterable[int]]) -> None:
        """``needs``: position -> positions before it, in an order in which each stands after what it needs."""
        self.owner = {p: p for p in needs}
        self.before: dict[int, set[int]] = {p: set(n) for p, n in needs.items()}
        self.after: dict[int, set[int]] = {p: set() for p in needs}
        for p, found in self.before.items():
            for i in found:
                self.after[i].add(p)
        line = [-1, *needs, -2]
        self.right = dict(itertools.pairwise(line))  # by rank; -1 and -2 are the ends
        self.left = {v: u for u, v in self.right.items()}
        self.rank = {p: n * GAP for n, p in enumerate(line)}
        self.between: dict[tuple[int, int], int] = {}
        self.steps = 0

    def unit(self, position: int) -> int:
        """The unit that ``position`` belongs to."""
        root = position
        while self.owner[root] != root:
            root = self.owner[root]
        while self.owner[position] != root:
            self.owner[position], position = root, self.owner[position]
        return root

    def apart(self, p: int, q: int) -> bool:
        """Whether a third unit must run between those of the positions ``p`` and ``q``.

        Paths stay when units are joined, so a unit that was found between two answers for them as long as it is none of them."""
        i, j = self.unit(p), self.unit(q)
        known = self.between.get((p, q))
        if known is None or self.unit(known) in (i, j):
            known = self._search(i, j).between
            if known is not None:
                self.between[p, q] = known
        return known is not None

    def join(self, i: int, j: int) -> int:
        """Makes two units one that are not ``apart``; its name."""
        keep, gone = min(i, j), max(i, j)
        first, last = sorted((i, j), key=self.rank.__getitem__)
        found = self._search(i, j)
        units = sorted(found.units, key=self.rank.__getitem__)
        for u in units:
            self._unlink(u)
        if found.down:  # what needs the first goes behind the last, where the two then are
            self._put(last, units, self.right[last])
        else:
            self._put(self.left[first], units, first)
        place = last if found.down else first
        if place == gone:
            self._unlink(keep)
            beside = self.left[gone], self.right[gone]
            self.rank[keep] = self.rank[gone]
            self._link(beside[0], keep)
            self._link(keep, beside[1])
        else:
            self._unlink(gone)
        del self.left[gone], self.right[gone], self.rank[gone]
        for near, back in ((self.before, self.after), (self.after, self.before)):
            for u in near[gone]:
                back[u].discard(gone)
                back[u].add(keep)
            near[keep] |= near.pop(gone)
        for near in (self.before, self.after):
            near[keep] -= {keep, gone}
        self.owner[gone] = keep
        return keep

    def _search(self, i: int, j: int) -> Found:
        first, last = sorted((i, j), key=self.rank.__getitem__)
        low, high = self.rank[first], self.rank[last]
        down, up = {first: None}, {last: None}
        ends = ((self._walk(first, self.after, down, low, high), down, up), (self._walk(last, self.before, up, low, high), up, down))
        while True:
            for walk, mine, others in ends:
                edge = next(walk, None)
                if edge is None:
                    return Found(None, mine is down, tuple(mine)[1:])
                self.steps += 1
                u, v = edge
                if v in others and {u, v} != {first, last}:
                    return Found(u if v in (first, last) else v, mine is down)

    def _walk(self, start: int, near: Mapping[int, set[int]], seen: dict[int, None], low: int, high: int) -> Iterator[tuple[int, int]]:
        """Edges from ``start`` on, through units with ranks between the two; these join ``seen``."""
        left = [start]
        while left:
            u = left.pop()
            for v in near[u]:
                yield u, v
                if v not in seen and low < self.rank[v] < high:
                    seen[v] = None
                    left.append(v)

    def _link(self, a: int, b: int) -> None:
        self.right[a], self.left[b] = b, a

    def _unlink(self, u: int) -> None:
        self._link(self.left[u], self.right[u])

    def _put(self, a: int, units: list[int], b: int) -> None:
        """``units`` in their order between the neighbours ``a`` and ``b``."""
        line = [a, *units, b]
        for u, v in itertools.pairwise(line):
            self._link(u, v)
        step = (self.rank[b] - self.rank[a]) // (len(units) + 1)
        for n, u in enumerate(units, 1):
            self.rank[u] = self.rank[a] + n * step
        if step == 0:
            self._spread()

    def _spread(self) -> None:
        """Ranks anew, for there is no room between two of them."""
        u, n = -1, 0
        while u != -2:
            self.rank[u] = n * GAP
            u, n = self.right[u], n + 1
        self.rank[u] = n * GAP
