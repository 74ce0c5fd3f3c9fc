"""Maximum flow and minimum cut on a plain graph: what the partitioner asks which values to save.

In: a ``FlowNetwork``: directed edges with capacities >= 0, some of them ``INFINITE``, between the nodes "source" and "sink".
Out: a ``FlowSolution``: the augmenting paths in the order they were found (so that a cut can be watched coming about), the
value of the flow, and the minimum cut that proves it maximal.
Always holds: the paths' amounts, the flow's value and the cut's capacity are the same number; equal networks give equal
solutions (edges are visited in the order given); of all minimum cuts the one nearest the sink is returned, which for a
partition means: of two equally cheap choices, the one that recomputes less.
Method: Dinic's algorithm (levels by breadth-first search from the sink, then a blocking flow along shortest paths with a
pointer per node that only moves forward). Inside, nodes are ints and each edge sits next to its reverse (``arc ^ 1``).
PyTorch asks ``networkx.minimum_cut`` instead (``torch/_functorch/partitioners.py``, ``solve_min_cut``); it is the oracle in
our tests. Left out: lower bounds, costs, and decomposition of the flow other than into the paths found.
"""

from __future__ import annotations

from collections import deque

from ..core.errors import InvalidIR
from .ir import INFINITE, FlowEdge, FlowNetwork, FlowSolution

SOURCE, SINK = "source", "sink"


class _Residual:
    """The residual graph: arc ``2 * i`` is edge i, ``2 * i + 1`` its reverse; ``room`` is what each can still take."""

    def __init__(self, edges: tuple[FlowEdge, ...]) -> None:
        index: dict[str, int] = {SOURCE: 0, SINK: 1}
        self.head: list[int] = []  # the node an arc leads to
        self.room: list[float] = []
        self.arcs: list[list[int]] = [[], []]  # arcs that leave a node
        for number, edge in enumerate(edges):
            if not edge.capacity >= 0:  # NaN too
                raise InvalidIR(f"edge {edge.source} -> {edge.target} has capacity {edge.capacity}", why="a capacity is a number of bytes, 0 or more")
            ends: list[int] = []
            for name in (edge.source, edge.target):
                if name not in index:
                    index[name] = len(index)
                    self.arcs.append([])
                ends.append(index[name])
            self.head += (ends[1], ends[0])
            self.room += (edge.capacity, 0.0)
            self.arcs[ends[0]].append(2 * number)
            self.arcs[ends[1]].append(2 * number + 1)
        self.names = tuple(index)

    def levels(self) -> list[int]:
        """Distance of each node to the sink along arcs that have room; -1 where there is no way."""
        level = [-1] * len(self.names)
        level[1] = 0
        queue = deque([1])
        head, room = self.head, self.room
        while queue:
            node = queue.popleft()
            for arc in self.arcs[node]:
                before = head[arc]
                if level[before] < 0 and room[arc ^ 1] > 0:
                    level[before] = level[node] + 1
                    queue.append(before)
        return level

    def blocking_flow(self, level: list[int], found: list[tuple[tuple[str, ...], float]]) -> None:
        """Push along shortest paths until none is left, adding each to ``found``."""
        head, room, arcs = self.head, self.room, self.arcs
        cursor = [0] * len(self.names)
        path: list[int] = []  # arcs from the source to `node`
        node = 0
        while True:
            if node == 1:
                amount = min(room[a] for a in path)
                names = (SOURCE, *(self.names[head[a]] for a in path))
                if amount == INFINITE:
                    raise _unbounded(names)
                found.append((names, amount))
                full = len(path)
                for i, a in enumerate(path):
                    room[a] -= amount
                    room[a ^ 1] += amount
                    if room[a] == 0 and i < full:
                        full = i
                node = head[path[full] ^ 1]  # back to where the first full arc starts
                del path[full:]
                continue
            mine = arcs[node]
            while cursor[node] < len(mine):
                arc = mine[cursor[node]]
                if room[arc] > 0 and level[head[arc]] == level[node] - 1:
                    path.append(arc)
                    node = head[arc]
                    break
                cursor[node] += 1
            else:
                if not path:
                    return
                node = head[path.pop() ^ 1]
                cursor[node] += 1


def _unbounded(path: tuple[str, ...]) -> InvalidIR:
    return InvalidIR(
        "the minimum cut is infinite: no edge of this path may be cut",
        why=" -> ".join(path),
        hint="a value on the path that may neither be recomputed (source -> NAME_in) nor saved (NAME_in -> NAME_out) needs one of the two allowed",
    )


def solve(network: FlowNetwork) -> FlowSolution:
    """The maximum flow from "source" to "sink" and the minimum cut nearest the sink.

    O(nodes**2 * edges) at worst, near linear on the networks of a partition. Parallel edges add up. Raises ``InvalidIR`` for a
    capacity below 0 and for a network without a finite cut (the error shows the path that cannot be cut).
    """
    graph = _Residual(network.edges)
    paths: list[tuple[tuple[str, ...], float]] = []
    while (level := graph.levels())[0] >= 0:
        graph.blocking_flow(level, paths)
    source_side = frozenset(name for name, distance in zip(graph.names, level, strict=True) if distance < 0)
    cut = tuple(e for e in network.edges if e.source in source_side and e.target not in source_side)
    return FlowSolution(float(sum(e.capacity for e in cut)), tuple(paths), source_side, cut)
