"""How work grows with the graph, counted and not timed: of a graph four times as long, about four times the work.

The programs are those of ``benchmarks/growth.py``, which has the seconds."""

from __future__ import annotations

import functools
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

import compiler_lab
from compiler_lab.aot.partition import Partition
from compiler_lab.codegen.cpp import generate
from compiler_lab.core.modes import below_modes
from compiler_lab.core.options import Options
from compiler_lab.lowering.lower import lower
from compiler_lab.pipeline import JOINT_STEPS, Runner
from compiler_lab.scheduling import merge, respace
from compiler_lab.scheduling.fusion import Fuser, live_nodes, schedule
from compiler_lab.scheduling.ir import LoopGroup
from compiler_lab.scheduling.reach import Reach

SHORT, LONG = 120, 480
MOST = 5.0
"""Work for ``LONG`` over work for ``SHORT``: 4 where it is linear, 16 where it is quadratic."""


@functools.cache
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("growth_benchmark", Path(__file__).parents[1] / "benchmarks" / "growth.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def partitioned(family: str, nodes: int) -> Partition:
    make, each = benchmark().FAMILIES[family]
    fn, args = make(round(nodes / each))
    traced = compiler_lab.joint(compiler_lab.capture(fn, *args).graphs[0])
    with below_modes():
        return Runner(Options(), None).passes(JOINT_STEPS, traced)


def work(family: str, nodes: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the stages did for a program of about ``nodes`` nodes, by what was counted."""
    count: dict[str, int] = dict.fromkeys(("loops", "pairs", "considered", "steps", "solved", "merged"), 0)

    def counted(name: str, fn: object) -> object:
        def call(*args: object) -> object:
            count[name] += 1
            return fn(*args)  # type: ignore[operator]

        return call

    part = partitioned(family, nodes)
    with below_modes(), monkeypatch.context() as patch:
        patch.setattr(merge, "solve", counted("solved", respace.solve))
        patch.setattr("compiler_lab.scheduling.fusion.merge", counted("merged", merge.merge))
        for half in (part.forward, part.backward):
            if half is None:
                continue
            program = lower(half)
            fuser = Fuser(program, live_nodes(program)[0], Options())
            fuser.fuse()
            count["loops"] += len(program.nodes)
            count["pairs"] += len(fuser.outcome)
            count["considered"] += fuser.considered
            count["steps"] += fuser.reach.steps
    return count


@pytest.mark.parametrize("family", ("chain", "blocks", "outputs", "views"))
def test_the_work_of_fusion_grows_as_the_graph_does(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = work(family, SHORT, monkeypatch), work(family, LONG, monkeypatch)
    grown = {name: long[name] / max(short[name], 1) for name in short}
    assert 3 < grown["loops"] < MOST, grown
    assert max(grown.values()) < MOST * 1.25, (short, long)
    assert long["considered"] <= 24 * long["loops"] and long["steps"] <= 24 * long["loops"], long


class TestReach:
    @pytest.mark.parametrize("seed", range(40))
    def test_it_agrees_with_paths_in_the_contracted_graph(self, seed: int) -> None:
        choose = random.Random(seed)
        n = choose.choice([6, 12, 30])
        needs = {p: {choose.randrange(max(p - 9, 0), p) for _ in range(choose.choice([0, 1, 1, 2, 3]))} if p else set[int]() for p in range(n)}
        graph: nx.DiGraph[int] = nx.DiGraph([(i, p) for p, before in needs.items() for i in before])
        graph.add_nodes_from(needs)
        reach = Reach(needs)
        for _ in range(4 * n):
            p, q = choose.sample(range(n), 2)
            i, j = reach.unit(p), reach.unit(q)
            if i == j:
                continue
            third = any(nx.has_path(graph, a, k) and nx.has_path(graph, k, b) for a, b in ((i, j), (j, i)) for k in graph if k not in (a, b))
            assert reach.apart(p, q) == third
            if not third and choose.random() < 0.6:
                assert reach.join(i, j) == min(i, j) == reach.unit(p) == reach.unit(q)
                graph = nx.contracted_nodes(graph, min(i, j), max(i, j), self_loops=False, copy=True)
            assert sorted(reach.before) == sorted(graph) == sorted(reach.after)
            assert all(reach.rank[a] < reach.rank[b] for a, b in graph.edges)


def test_a_long_chain_becomes_kernels_of_the_most_that_are_allowed() -> None:
    """No stage recurses along the graph, whose chains are longer than Python's stack, and no kernel is longer than ``max_fused_nodes``."""
    part = partitioned("chain", 2400)
    most = Options().max_fused_nodes
    assert part.backward is not None
    with below_modes():
        assert len(lower(part.backward).nodes) > 2000
        made = schedule(lower(part.forward))
        sizes = [len(g.nodes) for g in made.groups if isinstance(g, LoopGroup)]
        assert sum(sizes) > 1000 and max(sizes) <= most and len(sizes) <= 2.5 * sum(sizes) / most
        assert len(generate(made).kernels) == len(sizes)
