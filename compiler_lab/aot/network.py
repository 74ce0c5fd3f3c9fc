"""Which values to keep, as a minimum cut: each node is split into NAME_in -> NAME_out with what keeping it costs.

In: ``Parts``, the name of a cost model, and what it costs to lift a ban (``weights``). Out: a ``FlowNetwork`` with its solution, and the
values on the cut. Reading is an edge of infinite capacity; what the backward must compute hangs on the sink, a banned node
(``bans.py``) on the source; a value that may not be kept has no finite edge.
Costs by name: "bytes" counts bytes, except of what is in memory anyway: an output counts nothing, an input that the program does not
overwrite counts half, for its owner may let it go; "torch" is PyTorch's guess: bytes times 1.1 to the distance from the backward, doubled
where nothing writes the value to memory anyway.
A ban that has a price is a finite edge from the source: cut, the node is computed again and the price paid. So one cut minimizes bytes
kept plus prices paid, which is what a memory budget asks (``budget.py``).
PyTorch's counterpart: ``solve_min_cut`` in ``torch/_functorch/partitioners.py``, which knows no prices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from ..core.artifact import Decision
from ..core.schema import is_random, nbytes
from .bans import ban, can_fuse
from .chains import chain_ends, far_readers
from .flow import SINK, SOURCE, solve
from .ir import INFINITE, FlowEdge, FlowNetwork
from .parts import Parts, ancestors, saveable

Cost = Callable[[fx.Node], int]


def _bytes_cost(parts: Parts) -> Cost:
    inputs = frozenset(parts.primals) - parts.overwritten

    def cost(node: fx.Node) -> int:
        size = nbytes(node.meta["val"])
        return 0 if node in parts.returned else (size + 1) // 2 if node in inputs else size

    return cost


def _torch_cost(parts: Parts) -> Cost:
    distance: dict[fx.Node, int] = {}
    for node in reversed(parts.nodes):
        if node not in parts.split.forward:
            distance[node] = 0
        else:
            distance[node] = min((distance[u] + 1 for u in node.users if u.op != "output"), default=100)

    def cost(node: fx.Node) -> int:
        size = int(nbytes(node.meta["val"]) * 1.1 ** max(min(distance[node], 100), 1))
        materialized = node.op == "placeholder" or not all(can_fuse(node, u) for u in node.users if u.op != "output")
        return size if materialized else 2 * size

    return cost


COST_MODELS: dict[str, Callable[[Parts], Cost]] = {"bytes": _bytes_cost, "torch": _torch_cost}


@dataclass(frozen=True)
class Cut:
    """A solved network and the values on its cut, in the joint graph's order."""

    network: FlowNetwork
    saved: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Weights:
    """Bytes count ``bytes`` times; lifting the ban of a node costs ``bans[node]`` (a node that is not in it is not lifted), which is its price
    ``price`` times, or nothing where it is paid already."""

    bytes: int = 1
    bans: Mapping[fx.Node, float] = field(default_factory=dict[fx.Node, float])
    price: int = 0


@dataclass(frozen=True)
class Problem:
    """Everything about a cut that does not depend on prices: what the backward could be computed from, costs, bans."""

    parts: Parts
    cost_model: str
    wanted: tuple[fx.Node, ...]
    cost: Mapping[fx.Node, float]  # of keeping it; INFINITE where that may not be
    bans: Mapping[fx.Node, Decision]

    @staticmethod
    def of(parts: Parts, cost_model: str) -> Problem:
        cost, tangents = COST_MODELS[cost_model](parts), parts.split.tangents
        wanted = parts.sorted(ancestors(parts.roots))
        kept = {n: cost(n) if may_keep(n, parts) else INFINITE for n in wanted if n not in tangents}
        return Problem(parts, cost_model, tuple(wanted), kept, _bans(parts, [n for n in wanted if n not in tangents]))

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of each node's value, by name."""
        return {n.name: nbytes(n.meta["val"]) for n in self.wanted}

    def network(self, weights: Weights) -> FlowNetwork:
        """The min-cut problem as a plain graph."""
        edges: list[FlowEdge] = []
        inside = set(self.wanted)
        roots = set(self.parts.roots)
        for node in self.wanted:
            if node in self.parts.split.tangents:
                edges.append(FlowEdge(f"{node.name}_in", SINK, INFINITE))
                continue
            if node in roots:  # a gradient that no tangent reaches must be at hand in the backward
                edges.append(FlowEdge(f"{node.name}_out", SINK, INFINITE))
            if node.op == "placeholder" or node in self.bans:
                edges.append(FlowEdge(SOURCE, f"{node.name}_in", weights.bans.get(node, INFINITE)))
            edges.append(FlowEdge(f"{node.name}_in", f"{node.name}_out", self.cost[node] * weights.bytes))
            edges += [FlowEdge(f"{node.name}_out", f"{user.name}_in", INFINITE) for user in node.users if user in inside]
        facts = {"cost_model": self.cost_model, "bytes": self.sizes, "bans": {n.name: d.reason for n, d in self.bans.items()}}
        facts |= {"weights": [weights.bytes, weights.price]}
        return FlowNetwork(tuple(edges), None, facts)

    def cut(self, weights: Weights = Weights()) -> Cut:
        """The cheapest choice. Raises ``InvalidIR`` where some value may neither be kept nor computed again."""
        network = self.network(weights)
        solution = solve(network)
        crossed = {e.source.removesuffix("_in") for e in solution.cut if e.source != SOURCE}
        reached = ancestors(self.parts.roots, lambda n: n.name in crossed)  # of what the cut crosses, what the backward truly reads
        return Cut(replace(network, solution=solution), tuple(n for n in self.wanted if n.name in crossed and n in reached))


def _bans(parts: Parts, wanted: Sequence[fx.Node]) -> dict[fx.Node, Decision]:
    forward = [n for n in parts.nodes if n in parts.split.forward]
    split = replace(parts.split, far=far_readers(forward))
    split = replace(split, chains=chain_ends(forward, {n for n in forward if ban(n, split) is not None}))
    return {n: banned for n in wanted if (banned := ban(n, split)) is not None}


def may_keep(node: fx.Node, parts: Parts) -> bool:
    return saveable(node) and parts.split.policies.get(node) is not CheckpointPolicy.MUST_RECOMPUTE


def read_by_backward(parts: Parts) -> list[fx.Node]:
    """The "default" partitioner: the forward values at which a walk back from the gradients stops, and that may be kept."""
    again = lambda n: parts.split.policies.get(n) is CheckpointPolicy.PREFER_RECOMPUTE and not is_random(n)
    stop: Callable[[fx.Node], bool] = lambda n: n in parts.split.forward and may_keep(n, parts) and not again(n)
    return parts.sorted(n for n in ancestors(parts.roots, stop) if stop(n))
