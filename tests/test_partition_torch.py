"""The cut beside torch's own on the same joint graph: bytes kept, what is computed again, and what its rules forbid."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._decomp
from hypothesis import Phase, given, settings

from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.network import Problem
from compiler_lab.aot.partition import partition
from compiler_lab.aot.parts import take_apart
from compiler_lab.core.schema import base_of

from .partition_programs import MIN_CUT, PROGRAMS, TORCH, joint_of, programs, rand


def _benchmark() -> Any:
    """``benchmarks/partition.py``, which asks torch's partitioner and counts."""
    spec = importlib.util.spec_from_file_location("partition_benchmark", Path(__file__).parents[1] / "benchmarks" / "partition.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = _benchmark()
TRACED: Any = {torch.ops.aten.detach.default: torch.ops.aten.alias.default}  # our own traces hold no detach, and torch's rules do not know it


def assert_no_worse(joint: JointGraph) -> None:
    """By our own count of bytes no more is kept, no flops more, and nothing is computed again that torch forbids; no more elements at equal bytes."""
    part = partition(joint, MIN_CUT)
    saved, again, banned = BENCHMARK.of_torch(joint)
    assert part.network is not None and part.network.solution is not None
    cost = Problem.of(take_apart(joint), "bytes").cost
    torchs = sum(cost[base_of(n)] for n in joint.graph.nodes if n.name in saved)
    of_ours, of_torch = BENCHMARK.again(joint, part.recomputed), BENCHMARK.again(joint, again)
    assert part.network.solution.value <= torchs and of_ours[0] <= of_torch[0]
    assert of_ours[1] <= of_torch[1] or part.network.solution.value < torchs
    assert not banned & {n.name for n in BENCHMARK.repeated(joint, part.recomputed)}


@pytest.mark.parametrize("opened", [False, True], ids=["as traced", "decomposed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_more_is_kept_and_nothing_forbidden_is_computed_again(name: str, opened: bool) -> None:
    f, shapes = PROGRAMS[name]
    assert_no_worse(joint_of(f, *(rand(*s) for s in shapes), table=TRACED | (torch._decomp.core_aten_decompositions() if opened else {})))


@given(programs())
@settings(max_examples=15, deadline=None, phases=[Phase.generate])
def test_of_random_programs_neither(f: Callable[..., Any]) -> None:
    assert_no_worse(joint_of(f, rand(4, 4), rand(4, 4), rand(4, 4), table=TRACED))


@pytest.mark.parametrize("name", ["gelu_sum", "norm", "two_outputs", "chain", "cross_entropy", "softmax_attention", "conv"])
def test_torchs_costs_keep_no_more_than_torch(name: str) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    saved, _, _ = BENCHMARK.of_torch(joint)
    assert sum(BENCHMARK.kept_bytes(joint, partition(joint, TORCH).saved)) <= sum(BENCHMARK.kept_bytes(joint, saved))
