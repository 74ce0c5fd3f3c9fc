"""The memory budget: what 0 and 1 mean, that the plan fits and is the best, and the curve from one to the other."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compiler_lab.aot.bans import FIRM
from compiler_lab.aot.budget import curve_of, plan_for
from compiler_lab.aot.flops import element_ops, flops, price
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.network import Problem, Weights
from compiler_lab.aot.partition import budget_curve, partition
from compiler_lab.aot.parts import take_apart
from compiler_lab.core.errors import UnknownOption
from compiler_lab.core.options import Options

from .partition_programs import MIN_CUT, PROGRAMS, assert_partition, joint_of, programs, rand

BUDGETS = (0.0, 0.3, 0.75)


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    for w in weights:
        x = torch.tanh(x @ w)
    return x.sum()


def layers_joint() -> JointGraph:
    return joint_of(layers, rand(16, 8, grad=False), rand(8, 64), rand(64, 8), rand(8, 32), rand(32, 8))


def test_one_is_what_the_minimum_cut_keeps() -> None:
    joint = layers_joint()
    assert partition(joint, Options(activation_memory_budget=1.0)).text() == partition(joint, MIN_CUT).text()


def test_zero_keeps_inputs_only() -> None:
    part = assert_partition(layers_joint(), Options(activation_memory_budget=0.0))
    assert all(s.startswith("primals") for s in part.saved) and {"mm", "mm_1", "mm_2"} <= set(part.recomputed)


def test_zero_draws_no_random_number_twice() -> None:
    joint = joint_of(lambda x, w: (torch.rand(8) * (x @ w).exp()).sin().sum(), rand(8, 8), rand(8, 8))
    part = assert_partition(joint, Options(activation_memory_budget=0.0))
    assert "rand" in part.saved and "mm" in part.recomputed


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_numbers_for_every_budget(name: str, budget: float) -> None:
    f, shapes = PROGRAMS[name]
    part = assert_partition(joint_of(f, *(rand(*s) for s in shapes)), Options(activation_memory_budget=budget))
    (told,) = [d for d in part.decisions if d.kind == "budget"]
    assert told.reason == "best" and told.facts["bound"] == told.facts["flops"]


def best_by_force(problem: Problem, budget: float) -> int:
    """The least that any set of lifted bans pays, of those with which the bytes fit."""
    liftable = [n for n, d in problem.bans.items() if d.reason not in FIRM]
    kept: Callable[[Any], int] = lambda lifted: int(sum(problem.cost[n] for n in problem.cut(Weights(1, dict.fromkeys(lifted, 0))).saved))
    high, low = kept(()), kept(liftable)
    limit = low + math.floor((high - low) * Fraction(budget))
    sets = itertools.chain.from_iterable(itertools.combinations(liftable, n) for n in range(len(liftable) + 1))
    return min(sum(map(price, lifted)) for lifted in sets if kept(lifted) <= limit)


@given(programs(), st.sampled_from(BUDGETS))
@settings(max_examples=40, deadline=None)
def test_no_set_of_lifted_bans_that_fits_is_cheaper(f: Callable[..., Any], budget: float) -> None:
    problem = Problem.of(take_apart(joint_of(f, rand(4, 4), rand(4, 4), rand(4, 4))), "bytes")
    if len([d for d in problem.bans.values() if d.reason not in FIRM]) > 8:
        return
    plan = plan_for(problem, budget)
    assert plan.flops == plan.bound == best_by_force(problem, budget)


def test_layers_of_different_sizes_by_force() -> None:
    problem = Problem.of(take_apart(layers_joint()), "bytes")
    for percent in range(0, 101, 10):
        plan = plan_for(problem, percent / 100)
        assert plan.flops == plan.bound == best_by_force(problem, percent / 100)


def test_more_memory_never_costs_more() -> None:
    problem = Problem.of(take_apart(layers_joint()), "bytes")
    plans = [plan_for(problem, percent / 100) for percent in range(0, 101, 10)]
    assert all(a.flops >= b.flops for a, b in itertools.pairwise(plans)) and plans[0].flops > 0 == plans[-1].flops
    assert len({p.flops for p in plans}) > 3


def test_the_curve_is_convex_and_each_corner_is_the_plan_of_its_budget() -> None:
    joint = layers_joint()
    curve = budget_curve(joint)
    json.dumps([asdict(p) for p in curve])
    assert curve[0].budget == 1.0 and curve[0].flops == 0 and curve[-1].budget == 0.0 and len(curve) > 3
    slopes = [Fraction(b.flops - a.flops, a.bytes - b.bytes) for a, b in itertools.pairwise(curve)]
    assert slopes == sorted(slopes) and all(s > 0 for s in slopes)
    for point in curve:
        (told,) = [d for d in partition(joint, Options(activation_memory_budget=point.budget)).decisions if d.kind == "budget"] or [None]
        if told is not None:
            assert told.facts["flops"] <= point.flops
    assert budget_curve(joint_of(lambda a: a * 2, rand(4, grad=False))) == ()
    assert curve == curve_of(Problem.of(take_apart(joint), "bytes"))


def test_what_a_node_costs() -> None:
    joint = joint_of(lambda x, w: (x @ w).exp().sum(), rand(4, 8), rand(8, 2))
    nodes = {n.name: n for n in joint.graph.nodes}
    assert (flops(nodes["mm"]), flops(nodes["exp"])) == (2 * 4 * 8 * 2, 0)
    assert (element_ops(nodes["exp"]), element_ops(nodes["sum_1"]), element_ops(nodes["primals_1"])) == (8, 8, 0)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), "half"])
def test_a_budget_is_a_number_from_0_to_1(value: Any) -> None:
    with pytest.raises(UnknownOption, match="activation_memory_budget"):
        Options.of(None, {"activation_memory_budget": value})
    assert Options.of(None, {"activation_memory_budget": 0}).activation_memory_budget == 0


def test_the_default_partitioner_has_no_budget() -> None:
    with pytest.raises(UnknownOption, match="min_cut"):
        partition(layers_joint(), Options(partitioner="default", activation_memory_budget=0.5))
