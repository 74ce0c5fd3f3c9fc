"""Max-flow and min-cut against networkx on random networks, and against every cut of small ones."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_lab.aot.flow import solve
from compiler_lab.aot.ir import INFINITE, FlowEdge, FlowNetwork, FlowSolution
from compiler_lab.core.errors import InvalidIR


def network(*edges: tuple[str, str, float]) -> FlowNetwork:
    return FlowNetwork(tuple(FlowEdge(*e) for e in edges))


def oracle(net: FlowNetwork) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for e in net.edges:
        before = graph.edges[e.source, e.target]["capacity"] if graph.has_edge(e.source, e.target) else 0.0
        graph.add_edge(e.source, e.target, capacity=before + e.capacity)
    return graph


def cut_capacity(net: FlowNetwork, side: set[str]) -> float:
    return sum(e.capacity for e in net.edges if e.source in side and e.target not in side)


def verify(net: FlowNetwork, solution: FlowSolution) -> None:
    """What makes a solution a proof: paths replay within capacities, add up to the cut, and the cut separates."""
    room: dict[tuple[str, str], float] = {}
    for e in net.edges:
        room[e.source, e.target] = room.get((e.source, e.target), 0) + e.capacity
    for path, amount in solution.paths:
        assert path[0] == "source" and path[-1] == "sink" and amount > 0
        for pair in itertools.pairwise(path):
            assert room[pair] >= amount
            room[pair] -= amount
            back = (pair[1], pair[0])
            room[back] = room.get(back, 0) + amount
    assert sum(amount for _, amount in solution.paths) == solution.value == cut_capacity(net, set(solution.source_side))
    assert "source" in solution.source_side and "sink" not in solution.source_side
    assert sum(e.capacity for e in solution.cut) == solution.value


@st.composite
def networks(draw: st.DrawFn, most: int = 9) -> FlowNetwork:
    names = ["source", "sink", *(f"n{i}" for i in range(draw(st.integers(0, most))))]
    capacity = st.one_of(st.integers(0, 12).map(float), st.just(INFINITE))
    return network(*draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names), capacity), max_size=4 * most)))


@given(networks())
@settings(max_examples=700, deadline=None)
def test_agrees_with_networkx(net: FlowNetwork) -> None:
    graph = oracle(net)
    try:
        value, (side, _) = nx.minimum_cut(graph, "source", "sink")
    except nx.NetworkXUnbounded:
        with pytest.raises(InvalidIR, match="minimum cut is infinite"):
            solve(net)
        return
    solution = solve(net)
    verify(net, solution)
    assert solution.value == value
    known = {n for e in net.edges for n in (e.source, e.target)} | {"source"}
    assert solution.source_side == side & known  # both return the minimum cut nearest the sink
    assert solve(net) == solution


@given(networks(most=5))
@settings(max_examples=300, deadline=None)
def test_no_cut_of_a_small_network_is_smaller(net: FlowNetwork) -> None:
    inner = sorted({n for e in net.edges for n in (e.source, e.target)} - {"source", "sink"})
    sides = [{"source", *chosen} for size in range(len(inner) + 1) for chosen in itertools.combinations(inner, size)]
    smallest = min(cut_capacity(net, side) for side in sides)
    if smallest == INFINITE:
        with pytest.raises(InvalidIR):
            solve(net)
        return
    solution = solve(net)
    assert solution.value == smallest
    assert all(side <= solution.source_side for side in sides if cut_capacity(net, side) == smallest)  # nearest the sink


def test_paths_come_in_order_shortest_first() -> None:
    net = network(("source", "a", 3), ("a", "b", 2), ("b", "sink", 3), ("a", "sink", 1), ("source", "b", 1))
    solution = solve(net)
    assert solution.paths == ((("source", "a", "sink"), 1.0), (("source", "b", "sink"), 1.0), (("source", "a", "b", "sink"), 2.0))
    assert solution.value == 4.0
    assert replace(net, solution=solution).solution == solution


def test_flow_is_taken_back_through_a_reverse_arc() -> None:
    """The textbook case: the only shortest path uses the middle edge, which the second path must undo."""
    net = network(
        ("source", "a", 1), ("a", "b", 1), ("b", "sink", 1), ("source", "x", 1), ("x", "y", 1), ("y", "b", 1), ("a", "z", 1), ("z", "w", 1), ("w", "sink", 1)
    )
    solution = solve(net)
    verify(net, solution)
    assert solution.value == 2.0
    assert ("b", "a") in {pair for path, _ in solution.paths for pair in itertools.pairwise(path)}


def test_infinite_cut_names_the_path() -> None:
    with pytest.raises(InvalidIR, match="source -> mm_in -> mm_out -> sink"):
        solve(network(("source", "mm_in", INFINITE), ("mm_in", "mm_out", INFINITE), ("mm_out", "sink", INFINITE)))


@pytest.mark.parametrize("capacity", [-1.0, float("nan")])
def test_a_capacity_is_a_number_of_bytes(capacity: float) -> None:
    with pytest.raises(InvalidIR, match="source -> a has capacity"):
        solve(network(("source", "a", capacity)))


def test_empty_network() -> None:
    assert solve(FlowNetwork()) == FlowSolution(0.0, (), frozenset({"source"}), ())


def chain_network(size: int) -> FlowNetwork:
    """Shaped like a partition's: split nodes in a chain with skips, some banned, each feeding the backward."""
    rng = random.Random(0)
    edges: list[tuple[str, str, float]] = []
    for i in range(size):
        edges.append((f"v{i}_in", f"v{i}_out", float(rng.randint(1, 4096))))
        edges += [(f"v{j}_out", f"v{i}_in", INFINITE) for j in {max(0, i - rng.randint(1, 12)) for _ in range(2)} if j < i]
        edges += [("source", f"v{i}_in", INFINITE)] if rng.random() < 0.3 or i == 0 else []
        edges += [(f"v{i}_out", "sink", INFINITE)] if rng.random() < 0.3 else []
    return network(*edges)


def test_a_large_chain_has_networkx_cut() -> None:
    net = chain_network(3000)
    value, _ = nx.minimum_cut(oracle(net), "source", "sink")
    assert solve(net).value == value
