"""Maximum flow and minimum cut on a plain graph: what the partitioner asks which values to save.

In: a ``FlowNetwork``: directed edges with capacities >= 0, some of them ``INFINITE``, between the nodes "source" and "sink".
Out: a ``FlowSolution``: the augmenting paths in the order they were found (so that a cut can be watched coming about), the
value of the flow, and the minimum cut that proves it maximal.
Always holds: the paths' amounts, the flow's value and the cut's capacity are the same number; equal networks give equal
solutions (edges are visited in an order that they alone decide); of all minimum cuts the one nearest the sink is returned, which for a
partition means: of two equally cheap choices, the one that recomputes less.
Method: Dinic's algorithm (levels by breadth-first search from the sink, which also finds the arcs that lead nearer to it; then a
blocking flow along these, each of which is given up once). Inside, nodes are ints and each edge sits next to its reverse (``arc ^ 1``).
PyTorch asks ``networkx.minimum_cut`` instead (``torch/_functorch/partitioners.py``, ``solve_min_cut``); it is the oracle in
our tests. Left out: lower bounds, costs, and decomposition of the flow other than into the paths found.
"""

from __future__ import annotations

from ..core.errors import InvalidIR
from .ir import INFINITE, FlowEdge, FlowNetwork, FlowSolution

SOURCE, SINK = "source", "sink"


class _Residual:
    """The residual graph: arc ``2 * i`` is edge i, ``2 * i + 1`` its reverse; ``room`` is what each can still take, ``into[n]`` lead to node n."""

    def __init__(self, edges: tuple[FlowEdge, ...]) -> None:
        capacities = [e.capacity for e in edges]
        if not all(c >= 0 for c in capacities):  # NaN too
            wrong = next(e for e in edges if not e.capacity >= 0)
            raise InvalidIR(f"edge {wrong.source} -> {wrong.target} has capacity {wrong.capacity}", why="a capacity is a number of bytes, 0 or more")
        self.names = tuple(dict.fromkeys((SOURCE, SINK, *(n for e in edges for n in (e.source, e.target)))))
        index = {name: i for i, name in enumerate(self.names)}
        tails, heads = [index[e.source] for e in edges], [index[e.target] for e in edges]
        self.head, self.tail = [0] * (2 * len(edges)), [0] * (2 * len(edges))  # the nodes an arc leads to, and from
        self.head[0::2], self.head[1::2] = heads, tails
        self.tail[0::2], self.tail[1::2] = tails, heads
        self.room: list[float] = [0.0] * len(self.head)
        self.room[0::2] = capacities
        self.into: list[list[int]] = [[] for _ in self.names]
        for arc, node in enumerate(self.head):
            self.into[node].append(arc)
        # the arcs that lead from a node one step nearer to the sink: the first, and what comes behind each; lists of ints, which no collector walks
        self.first, self.then = [-1] * len(self.names), [-1] * len(self.head)

    def levels(self) -> list[int]:
        """Distance of each node to the sink along arcs that have room; -1 where there is no way, or none as short as the source's."""
        level = [-1] * len(self.names)
        self.first = first = [-1] * len(self.names)
        then = self.then
        level[1] = distance = 0
        front, tail, room, into = [1], self.tail, self.room, self.into
        while front and level[0] < 0:
            distance += 1
            behind: list[int] = []
            for node in front:
                for arc in into[node]:
                    if room[arc] > 0:
                        before = tail[arc]
                        if level[before] < 0:
                            level[before] = distance
                            behind.append(before)
                        elif level[before] != distance:
                            continue
                        then[arc] = first[before]
                        first[before] = arc
            front = behind
        return level

    def blocking_flow(self, found: list[tuple[tuple[str, ...], float]]) -> None:
        """Push along shortest paths until none is left, adding each to ``found``."""
        head, tail, room, first, then = self.head, self.tail, self.room, self.first, self.then
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
                node = tail[path[full]]  # back to where the first full arc starts
                del path[full:]
                continue
            arc = first[node]
            while arc >= 0 and room[arc] <= 0:
                arc = then[arc]
            first[node] = arc
            if arc >= 0:
                path.append(arc)
                node = head[arc]
            elif path:
                arc = path.pop()
                node = tail[arc]
                first[node] = then[arc]
            else:
                return


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
        graph.blocking_flow(paths)
    source_side = frozenset(name for name, distance in zip(graph.names, level, strict=True) if distance < 0)
    cut = tuple(e for e in network.edges if e.source in source_side and e.target not in source_side)
    return FlowSolution(float(sum(e.capacity for e in cut)), tuple(paths), source_side, cut)
