"""Max-flow and min-cut against networkx on random networks, and against every cut of small ones."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from collections.abc import Iterator, Sequence
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
@settings(max_examples=200, deadline=None)
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


def every_side(inner: Sequence[str]) -> list[set[str]]:
    return [{"source", *chosen} for size in range(len(inner) + 1) for chosen in itertools.combinations(inner, size)]


def assert_smallest(net: FlowNetwork, sides: Sequence[set[str]]) -> None:
    """Of all cuts the solution is the smallest, and of equal ones the nearest to the sink; where none is finite there is none."""
    capacities = [cut_capacity(net, side) for side in sides]
    if min(capacities) == INFINITE:
        with pytest.raises(InvalidIR):
            solve(net)
        return
    solution = solve(net)
    verify(net, solution)
    assert solution.value == min(capacities)
    known = {n for e in net.edges for n in (e.source, e.target)}
    assert all(side & known <= solution.source_side for side, capacity in zip(sides, capacities, strict=True) if capacity == solution.value)


@given(networks(most=5))
@settings(max_examples=150, deadline=None)
def test_no_cut_of_a_small_network_is_smaller(net: FlowNetwork) -> None:
    assert_smallest(net, every_side(sorted({n for e in net.edges for n in (e.source, e.target)} - {"source", "sink"})))


def random_network(seed: int) -> FlowNetwork:
    """Up to 14 inner nodes; capacities from few values, so that there are ties, and some that may not be cut."""
    rng = random.Random(seed)
    names = ["source", "sink", *(f"n{i}" for i in range(rng.randint(0, 14)))]
    capacity = lambda: INFINITE if rng.random() < 0.1 else float(rng.randint(0, rng.choice((2, 9, 4096))))
    return network(*((rng.choice(names), rng.choice(names), capacity()) for _ in range(rng.randint(0, 4 * len(names)))))


def test_a_thousand_random_networks_have_networkx_cut() -> None:
    unbounded = 0
    for seed in range(1000):
        net = random_network(seed)
        try:
            value, (side, _) = nx.minimum_cut(oracle(net), "source", "sink")
        except nx.NetworkXUnbounded:
            unbounded += 1
            with pytest.raises(InvalidIR, match="minimum cut is infinite"):
                solve(net)
            continue
        solution = solve(net)
        verify(net, solution)
        assert solution.value == value and solution.source_side <= side | {"source"}
    assert 0 < unbounded < 500


def every_network(inner: int, capacities: tuple[float, ...]) -> Iterator[FlowNetwork]:
    """All networks over so many inner nodes, each edge absent or of one of the capacities; up to the names of the inner nodes.

    Edges into the source, out of the sink and from a node to itself carry nothing, and are left out."""
    names = [f"n{i}" for i in range(inner)]
    places = [("source", "sink"), *(("source", n) for n in names), *((n, "sink") for n in names), *itertools.permutations(names, 2)]
    order = {p: i for i, p in enumerate(places)}
    swaps = [
        [order[a if a in ("source", "sink") else turn[a], b if b in ("source", "sink") else turn[b]] for a, b in places]
        for turn in (dict(zip(names, p, strict=True)) for p in itertools.permutations(names))
    ]
    for chosen in itertools.product((0.0, *capacities), repeat=len(places)):
        if all(chosen <= tuple(chosen[i] for i in swap) for swap in swaps[1:]):  # the first of those that differ in names alone
            yield network(*((a, b, c) for (a, b), c in zip(places, chosen, strict=True) if c))


@pytest.mark.parametrize(("inner", "capacities", "count"), [(0, (1, 2, 3), 4), (1, (1, 2, 3), 64), (2, (1, 3), 1134), (3, (1,), 1504), (1, (1, INFINITE), 27)])
def test_every_small_network_against_every_cut(inner: int, capacities: tuple[float, ...], count: int) -> None:
    sides, seen = every_side([f"n{i}" for i in range(inner)]), 0
    for net in every_network(inner, capacities):
        seen += 1
        assert_smallest(net, sides)
    assert seen == count


def test_every_acyclic_network_of_four_inner_nodes_against_every_cut() -> None:
    """Each edge absent or of capacity 1; an edge from the source to the sink would only add to every cut."""
    names = ["n0", "n1", "n2", "n3"]
    places = [*(("source", n) for n in names), *((n, "sink") for n in names), *itertools.combinations(names, 2)]
    sides = [{"source", *chosen} for size in range(5) for chosen in itertools.combinations(names, size)]
    crossing = [sum(1 << i for i, (a, b) in enumerate(places) if a in side and b not in side) for side in sides]
    edges = [FlowEdge(a, b, 1.0) for a, b in places]
    for chosen in range(1 << len(places)):
        solution = solve(FlowNetwork(tuple(e for i, e in enumerate(edges) if chosen >> i & 1)))
        assert solution.value == min((chosen & mask).bit_count() for mask in crossing)


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


# ------------------------------------------------------------------------------------------------------------- drawing

TEXTBOOK = network(("source", "a", 3), ("a", "b", 2), ("b", "sink", 3), ("a", "sink", 1), ("source", "b", 1), ("b", "c", INFINITE))
SOLVED = replace(TEXTBOOK, solution=solve(TEXTBOOK))


def test_text_of_a_network() -> None:
    assert TEXTBOOK.text() == "5 nodes, 6 edges\nnot solved"
    assert SOLVED.text() == (
        "5 nodes, 6 edges\n"
        "flow of 4 bytes\n"
        "path 1: 1 bytes: source -> a -> sink\n"
        "path 2: 1 bytes: source -> b -> sink\n"
        "path 3: 2 bytes: source -> a -> b -> sink\n"
        "cut: b -> sink: 3 bytes\n"
        "cut: a -> sink: 1 bytes"
    )


def test_each_step_of_the_flow_can_be_drawn() -> None:
    assert '"source" -> "a" [label="0 / 3"]' in SOLVED.dot(0) and "CUT" not in SOLVED.dot(2)
    assert '"source" -> "b" [label="1 / 1" style="bold"]' in SOLVED.dot(2)
    assert '"b" -> "sink" [label="3 / 3 CUT" style="dashed,bold"]' in SOLVED.dot() and '"b" -> "c" [label="0 / any"]' in SOLVED.dot()


def test_flow_that_is_taken_back_is_drawn_as_taken_back() -> None:
    net = network(("source", "a", 1), ("a", "b", 1), ("b", "sink", 1), ("source", "x", 1), ("x", "b", 1), ("a", "z", 1), ("z", "w", 1), ("w", "sink", 1))
    solved = replace(net, solution=solve(net))
    totals = {name: 0 for name in ("a", "b", "x", "z", "w")}
    for a, b, flow in re.findall(r'"(\w+)" -> "(\w+)" \[label="(\d+) /', solved.dot()):
        for name, sign in ((a, -1), (b, 1)):
            if name in totals:
                totals[name] += sign * int(flow)
    assert set(totals.values()) == {0}, "what flows into a node flows out of it"


@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz")
def test_the_drawing_takes_its_colours_from_the_page_and_says_what_it_shows() -> None:
    svg = SOLVED.svg()
    assert svg is not None and "black" not in svg and "currentColor" in svg and 'aria-label="5 nodes, 6 edges, flow of 4 bytes"' in svg
    assert svg.count('class="edge"') == 6 and "3 / 3 CUT" in svg


def test_what_is_too_large_to_draw_is_told() -> None:
    large = chain_network(600)
    assert large.svg() is None and "edges: drawn" in large._repr_mimebundle_()["text/html"]
    shown = SOLVED._repr_mimebundle_()
    assert shown["text/plain"] == SOLVED.text() and "source → a → b → sink" in shown["text/html"] and "<script" not in shown["text/html"]
