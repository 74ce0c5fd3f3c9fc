"""A solved network as plain data, small enough to be kept with a trace: numbers in place of names.

In: the ``FlowNetwork`` of a cut, its ``Problem``, what is kept and what is computed again. Out: the facts of one item (``record``), and the stops of the
budget (``stops``). Vertices have numbers: 0 is the source, 1 the sink, 2 + 2k the "in" half of node k, 3 + 2k its "out" half.
Always holds: the flow of each edge is what all paths together push through it; no more than ``MOST_STEPS`` vertices of paths are told, the first
paths first, and what is left out is counted. Infinite capacities are None.
PyTorch's counterpart: none; its partitioner throws the network away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch.fx as fx

from ..core.artifact import Plain
from ..core.schema import is_view
from .bans import is_free, is_tensors
from .budget import BudgetPoint
from .ir import INFINITE, FlowNetwork
from .network import Problem

MOST_STEPS = 20_000


def record(problem: Problem, network: FlowNetwork, saved: Iterable[fx.Node], again: Iterable[str], budget: float) -> dict[str, Plain]:
    """{"stage", "cost_model", "budget", "weights": [of a byte, of an operation], "value", "nodes": [name], "bytes", "edges": [[tail, head, capacity, flow]],
    "paths": [[amount, vertices between source and sink...]], "left_out": [paths, flow], "cut": [edge], "source_side": [vertex], "bans": [[node, reason]],
    "unkept": [[node, why]], "inputs", "saved", "recomputed": [node]}; nodes, edges and vertices by number."""
    solution = network.solution
    assert solution is not None
    names = [n.name for n in problem.wanted]
    place = {name: k for k, name in enumerate(names)}
    vertex = {"source": 0, "sink": 1} | {f"{name}_{half}": 2 + 2 * k + side for k, name in enumerate(names) for side, half in enumerate(("in", "out"))}
    number = {(e.source, e.target): i for i, e in enumerate(network.edges)}
    flow = flows(network)
    room = itertools.accumulate(len(path) for path, _ in solution.paths)
    told = [([vertex[v] for v in path[1:-1]], amount) for (path, amount), steps in zip(solution.paths, room, strict=True) if steps <= MOST_STEPS]
    rest = solution.paths[len(told) :]
    return {
        "stage": problem.parts.joint.stage,
        "cost_model": problem.cost_model,
        "budget": budget,
        "weights": network.facts["weights"],
        "value": _whole(solution.value),
        "nodes": names,
        "bytes": [network.facts["bytes"][name] for name in names],
        "edges": [
            [vertex[e.source], vertex[e.target], None if e.capacity == INFINITE else _whole(e.capacity), _whole(flow.get((e.source, e.target), 0))]
            for e in network.edges
        ],
        "paths": [[_whole(amount), *steps] for steps, amount in told],
        "left_out": [len(rest), _whole(sum(amount for _, amount in rest))],
        "cut": [number[e.source, e.target] for e in solution.cut],
        "source_side": sorted(vertex[v] for v in solution.source_side),
        "bans": [[place[n.name], d.reason] for n, d in problem.bans.items()],
        "unkept": [[k, why] for k, n in enumerate(problem.wanted) if (why := _why_unkept(problem, n))],
        "inputs": [k for k, n in enumerate(problem.wanted) if n.op == "placeholder" and n not in problem.parts.split.tangents],
        "saved": [place[n.name] for n in saved],
        "recomputed": [place[name] for name in again if name in place],
    }


def flows(network: FlowNetwork) -> dict[tuple[str, str], float]:
    """What all paths together push from one vertex to another; what is pushed against a flow takes it back."""
    flow: dict[tuple[str, str], float] = {}
    for path, amount in network.solution.paths if network.solution is not None else ():
        for tail, head in itertools.pairwise(path):
            back = min(flow.get((head, tail), 0), amount)
            flow[head, tail] = flow.get((head, tail), 0) - back
            flow[tail, head] = flow.get((tail, head), 0) + amount - back
    return flow


def _why_unkept(problem: Problem, node: fx.Node) -> str:
    """Why the value has no finite edge, or ""."""
    if problem.cost.get(node, 0) != INFINITE:
        return ""
    if is_free(node):
        return "view" if is_view(node) else "constant"
    return "several" if is_tensors(node.meta["val"]) and isinstance(node.meta["val"], (tuple, list)) else "must_recompute"


def stops(curve: Sequence[BudgetPoint], names: Sequence[str]) -> list[Plain]:
    """[[budget, bytes counted, operations more, [kept nodes], [nodes whose ban is lifted]]]; nodes by their place in ``names``."""
    place = {name: k for k, name in enumerate(names)}
    return [[p.budget, p.bytes, p.flops, [place[n] for n in p.saved], [place[n] for n in p.lifted]] for p in curve]


def _whole(value: Any) -> Any:
    return int(value) if value == int(value) else value
