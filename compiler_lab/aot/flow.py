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

from ..core.errors import InvalidIR
from .ir import INFINITE, FlowEdge, FlowNetwork, FlowSolution

SOURCE, SINK = "source", "sink"


class _Residual:
    """The residual graph: arc ``2 * i`` is edge i, ``2 * i + 1`` its reverse; ``room`` is what each can still take, ``arcs[n]`` leave node n."""

    def __init__(self, edges: tuple[FlowEdge, ...]) -> None:
        capacities = [e.capacity for e in edges]
        if not all(c >= 0 for c in capacities):  # NaN too
            wrong = next(e for e in edges if not e.capacity >= 0)
            raise InvalidIR(f"edge {wrong.source} -> {wrong.target} has capacity {wrong.capacity}", why="a capacity is a number of bytes, 0 or more")
        self.names = tuple(dict.fromkeys((SOURCE, SINK, *(n for e in edges for n in (e.source, e.target)))))
        index = {name: i for i, name in enumerate(self.names)}
        self.head = [0] * (2 * len(edges))  # the node an arc leads to
        self.head[0::2], self.head[1::2] = [index[e.target] for e in edges], [index[e.source] for e in edges]
        self.room: list[float] = [0.0] * len(self.head)
        self.room[0::2] = capacities
        self.arcs: list[list[int]] = [[] for _ in self.names]
        for arc, node in enumerate(self.head):
            self.arcs[node].append(arc ^ 1)

    def levels(self) -> list[int]:
        """Distance of each node to the sink along arcs that have room; -1 where there is no way, or none as short as the source's."""
        level = [-1] * len(self.names)
        level[1] = distance = 0
        front, head, room, arcs = [1], self.head, self.room, self.arcs
        while front and level[0] < 0:
            distance += 1
            behind: list[int] = []
            for node in front:
                for arc in arcs[node]:
                    before = head[arc]
                    if level[before] < 0 and room[arc ^ 1] > 0:
                        level[before] = distance
                        behind.append(before)
            front = behind
        return level

    def blocking_flow(self, level: list[int], found: list[tuple[tuple[str, ...], float]]) -> None:
        """Push along shortest paths until none is left, adding each to ``found``."""
        head, room, arcs = self.head, self.room, self.arcs
        cursor = [0] * len(arcs)
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
            leaving, here, below = arcs[node], cursor[node], level[node] - 1
            while here < len(leaving) and (level[head[leaving[here]]] != below or room[leaving[here]] <= 0):
                here += 1
            cursor[node] = here
            if here < len(leaving):
                path.append(leaving[here])
                node = head[leaving[here]]
            elif path:
                node = head[path.pop() ^ 1]
                cursor[node] += 1
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
        graph.blocking_flow(level, paths)
    source_side = frozenset(name for name, distance in zip(graph.names, level, strict=True) if distance < 0)
    cut = tuple(e for e in network.edges if e.source in source_side and e.target not in source_side)
    return FlowSolution(float(sum(e.capacity for e in cut)), tuple(paths), source_side, cut)
