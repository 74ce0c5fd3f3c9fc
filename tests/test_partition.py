"""Joint graph in, partition out: what is kept, why, and that forward then backward are the joint graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._decomp
import torch.fx as fx
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compiler_lab.aot.flow import solve
from compiler_lab.aot.ir import INFINITE, JointGraph
from compiler_lab.aot.partition import Partition, partition
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import parents_of
from compiler_lab.core.schema import base_of, is_view, nbytes

from .partition_programs import DEFAULT, MIN_CUT, PROGRAMS, TORCH, assert_partition, chain, gelu_sum, joint_of, names, outcome, programs, rand

EVERY = pytest.mark.parametrize("options", [MIN_CUT, TORCH, DEFAULT], ids=["bytes", "torch", "default"])


# ------------------------------------------------------------------------------------------------------- known facts


def test_gelu_is_kept_by_default_and_computed_again_by_min_cut() -> None:
    joint = joint_of(gelu_sum, rand(8, 16), rand(8, 16))
    assert partition(joint, DEFAULT).saved == ("primals_1", "primals_2", "gelu")
    for options in (MIN_CUT, TORCH):
        part = partition(joint, options)
        assert part.saved == ("primals_1", "primals_2")
        assert part.recomputed == ("gelu",)
        assert outcome(part, "gelu") == ("recomputed", "cheaper")
        assert outcome(part, "primals_1") == ("saved", "input")


def test_the_numbers_of_a_min_cut() -> None:
    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)), TORCH)
    assert part.network is not None and part.network.solution is not None
    assert part.network.solution.value == 2 * int(8 * 16 * 4 * 1.1)  # both inputs are one step from the backward, and in memory
    assert part.saved_bytes == 2 * 8 * 16 * 4
    assert sum(amount for _, amount in part.network.solution.paths) == part.network.solution.value


def most_bytes(graph: fx.Graph) -> int:
    """The most bytes alive at once while ``graph`` runs and drops each value after its last reader; inputs are not counted."""
    own = lambda n: n.op == "call_function" and not is_view(n)
    last = {base_of(read): node for node in graph.nodes for read in node.all_input_nodes}
    alive = most = 0
    for node in graph.nodes:
        alive += nbytes(node.meta["val"]) if own(node) else 0
        most = max(most, alive)
        alive -= sum(nbytes(n.meta["val"]) for n in {base_of(r) for r in node.all_input_nodes} if last[n] is node and own(n))
    return most


def test_a_derivative_that_needs_no_tangent_is_computed_where_what_it_reads_is_at_hand() -> None:
    """At the end of the forward it would keep the input of each of the five alive until then."""

    def five(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(5):
            x = F.gelu(x @ w)
        return x

    part = assert_partition(joint_of(five, rand(8, 64), rand(64, 64), table=torch._decomp.core_aten_decompositions()), MIN_CUT)
    one, inputs = 8 * 64 * 4, (8 + 64) * 64 * 4
    kept = part.saved_bytes - inputs + one  # and the output
    assert kept == 10 * one and most_bytes(part.forward.graph) <= kept + 2 * one


@pytest.mark.parametrize("options", [MIN_CUT, TORCH], ids=["bytes", "torch"])
def test_gelu_between_two_linears_is_kept_since_mm_reads_it_in_the_backward(options: Options) -> None:
    def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)

    joint = joint_of(mlp, rand(4, 8, grad=False), rand(16, 8), rand(16), rand(8, 16), rand(8))
    part = assert_partition(joint, options)
    assert outcome(part, "gelu") == ("saved", "materialized")
    assert outcome(part, "addmm") == ("saved", "matmul")


def test_text() -> None:
    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)))
    assert part.text() == (
        "forward:\n"
        "  primals_1: f32[8, 16] = placeholder\n"
        "  primals_2: f32[8, 16] = placeholder\n"
        "  gelu: f32[8, 16] = aten.gelu.default(primals_1)\n"
        "  mul: f32[8, 16] = aten.mul.Tensor(gelu, primals_2)\n"
        "  sum_1: f32[] = aten.sum.default(mul)\n"
        "  return (sum_1, primals_1, primals_2)\n"
        "backward:\n"
        "  primals_1: f32[8, 16] = placeholder\n"
        "  primals_2: f32[8, 16] = placeholder\n"
        "  tangents_1: f32[] = placeholder\n"
        "  expand: f32[8, 16]{0, 0} = aten.expand.default(tangents_1, [8, 16])\n"
        "  gelu: f32[8, 16] = aten.gelu.default(primals_1)\n"
        "  mul_1: f32[8, 16] = aten.mul.Tensor(expand, gelu)\n"
        "  mul_2: f32[8, 16] = aten.mul.Tensor(expand, primals_2)\n"
        "  gelu_backward: f32[8, 16] = aten.gelu_backward.default(mul_2, primals_1)\n"
        "  return (gelu_backward, mul_1)\n"
        "saved: primals_1 (512 bytes), primals_2 (512 bytes)\n"
        "recomputed: gelu (512 bytes)"
    )


# ------------------------------------------------------------------------------------------------------------- programs


@EVERY
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_then_backward_are_the_joint_graph(name: str, options: Options) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    assert_partition(joint, options)


@EVERY
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_once_decomposed(name: str, options: Options) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes), table=torch._decomp.core_aten_decompositions())
    assert_partition(joint, options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_min_cut_never_keeps_more_bytes_of_intermediates(name: str) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    intermediates: Callable[[Partition], int] = lambda p: sum(
        nbytes(n.meta["val"]) for n in p.forward.graph.nodes if n.name in p.saved and n.op != "placeholder"
    )
    assert intermediates(partition(joint, MIN_CUT)) <= intermediates(partition(joint, DEFAULT))


@given(programs(), st.sampled_from([MIN_CUT, TORCH, DEFAULT]), st.lists(st.booleans(), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_random_programs(f: Callable[..., Any], options: Options, grads: list[bool]) -> None:
    joint = joint_of(f, *(rand(4, 4, grad=g, dtype=torch.float64) for g in grads))
    assert_partition(joint, options)


@given(programs())
@settings(max_examples=25, deadline=None)
def test_no_other_choice_of_saved_values_is_cheaper(f: Callable[..., Any]) -> None:
    """By brute force over the network: every set of nodes that may be cut and that cuts, on graphs small enough."""
    part = partition(joint_of(f, rand(4, 4), rand(4, 4), rand(4, 4)))
    assert part.network is not None and part.network.solution is not None
    finite = [e for e in part.network.edges if 0 < e.capacity < INFINITE][:12]
    value = part.network.solution.value
    for size in range(4):
        for chosen in itertools.combinations(finite, size):
            if sum(e.capacity for e in chosen) < value:
                rest = tuple(replace(e, capacity=0.0) if e in chosen else e for e in part.network.edges)
                with suppress(InvalidIR):  # a path is left that nothing can cut
                    assert solve(replace(part.network, edges=rest)).value > 0, "not cut yet"


@EVERY
def test_views_are_made_again_not_kept(options: Options) -> None:
    joint = joint_of(lambda x, w: x.exp().view(2, 8).t() * w, rand(16), rand(8, 2))
    part = assert_partition(joint, options)
    assert not {"view", "t"} & set(part.saved)
    assert outcome(part, "view") == ("recomputed", "view")


def test_an_output_is_in_memory_anyway() -> None:
    """The backward of tanh reads its result, which is returned: keeping it costs nothing, so it is not computed twice."""
    joint = joint_of(lambda x: torch.tanh(x + 1).view(-1), rand(8, 8))
    part = assert_partition(joint, MIN_CUT)
    assert part.saved == ("tanh",) and outcome(part, "tanh") == ("saved", "output") and part.recomputed == ()
    assert part.network is not None and part.network.solution is not None and part.network.solution.value == 0


def test_a_small_mask_is_kept_in_place_of_a_large_value() -> None:
    """The backward of relu(mm) needs only where it is positive: a byte for an element, not four."""
    joint = joint_of(lambda x, w: torch.where(x @ w > 0, 1.0, 0.5) * x, rand(8, 8), rand(8, 8, grad=False))
    part = partition(joint)
    assert part.saved == ("gt",) and outcome(part, "gt") == ("saved", "cut")


def test_what_only_the_backward_needs_is_computed_there_or_kept_if_smaller() -> None:
    joint = joint_of(chain, rand(16))
    part = assert_partition(joint, MIN_CUT)
    assert part.saved == ("primals_1",)
    assert part.recomputed == ("cos", "cos_1", "cos_2", "cos_3", "cos_4")


def test_a_gradient_that_no_tangent_reaches() -> None:
    joint = joint_of(lambda a: a.sum() + 1, rand(4))
    graph = joint.graph
    (last,) = [n for n in graph.nodes if n.op == "output"]
    primal = joint.placeholders[0]
    last.args = ((last.args[0][0], primal),)  # as if d/da were a itself
    for options in (MIN_CUT, DEFAULT):
        part = partition(joint, options)
        part.check()
        assert part.saved == ("primals_1",)
        a = torch.randn(4)
        assert torch.equal(part.run(a, torch.ones(()))[1], a)


# ------------------------------------------------------------------------------------------------------------- mutation


@EVERY
def test_of_an_overwritten_input_the_value_read_is_kept(options: Options) -> None:
    """x's new value is returned as an update; the gradient of x * w with respect to w is the old one."""
    joint = joint_of(lambda x, w: (x + 1, x * w), rand(4, grad=False), rand(4), updates=(0,))
    part = assert_partition(joint, options)
    assert part.saved == ("primals_1_read",)
    assert outcome(part, "primals_1") == ("saved", "mutated_input")
    x, w = torch.ones(4), torch.ones(4)
    new, _, kept = part.forward.run(x, w)
    x.copy_(new)
    assert part.backward is not None
    assert torch.equal(part.backward.run(kept, torch.ones(4))[1], torch.ones(4))


def test_a_copy_of_an_overwritten_input_is_not_free() -> None:
    """x + 1 could be made again from the old x, but that would have to be copied: keeping the sum is as cheap, and done."""
    joint = joint_of(lambda x, w: (x * 3, (x + 1) * w), rand(4, grad=False), rand(4), updates=(0,))
    assert assert_partition(joint, MIN_CUT).saved == ("add",)


@EVERY
def test_updates_that_read_each_other_are_copied(options: Options) -> None:
    joint = joint_of(lambda x, y: (y, x, x * 2), rand(4, grad=False), rand(4, grad=False), updates=(0, 1))
    part = partition(joint, options)
    x, y = torch.zeros(4), torch.ones(4)
    new_x, new_y, _ = part.forward.run(x, y)
    x.copy_(new_x)
    y.copy_(new_y)
    assert torch.equal(x, torch.ones(4)) and torch.equal(y, torch.zeros(4))
    part.check()


def test_an_output_that_views_an_overwritten_input_is_copied() -> None:
    joint = joint_of(lambda x: (x + 1, x.view(2, 2)), rand(4, grad=False), updates=(0,))
    part = partition(joint)
    x = torch.zeros(4)
    new, out = part.forward.run(x)
    x.copy_(new)
    assert torch.equal(out, torch.zeros(2, 2))
    part.check()


def test_a_graph_that_still_mutates_is_refused() -> None:
    joint = joint_of(lambda a: (a * 2).add_(1) * 2, rand(4))
    with pytest.raises(InvalidIR, match=r"aot\.joint/add_ writes into its argument") as caught:
        partition(joint)
    assert "functionalize" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- shape of the result


def test_without_tangents_there_is_no_backward() -> None:
    joint = joint_of(lambda a, b: a * b, rand(4, grad=False), rand(4, grad=False))
    part = assert_partition(joint, MIN_CUT)
    assert part.backward is None and part.saved == () and part.network is None
    assert "backward" not in part.text()


def test_recomputed_nodes_stand_before_their_first_reader_and_are_marked() -> None:
    joint = joint_of(lambda a, b: (a.exp().sin() * b.exp().cos()).sum(), rand(8), rand(8))
    part = partition(joint)
    assert part.backward is not None
    order = names(part.backward)
    assert set(part.recomputed) == {"exp", "sin", "exp_1", "cos"}
    for node in part.backward.graph.nodes:
        if node.meta.get("recomputed"):
            assert order[order.index(node.name) + 1] in {u.name for u in node.users} | set(part.recomputed)
            assert parents_of(node) == (f"aot.joint/{node.name}",)
    assert order.index("sin") < order.index("mul_1") < order.index("exp_1") < order.index("cos") < order.index("mul_2"), "not all of them first"


def test_items_and_json_are_plain() -> None:
    import json

    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)))
    told = json.loads(json.dumps(part.to_json()))
    ids = [i["id"] for i in told["items"]]
    assert len(ids) == len(set(ids)) and "aot.backward/gelu" in ids and "aot.forward/gelu" in ids
    assert part.network is not None
    json.dumps(part.network.facts)


def test_spec_and_graph_must_agree() -> None:
    joint = joint_of(gelu_sum, rand(8, 16), rand(8, 16))
    with pytest.raises(InvalidIR, match="takes 3 inputs"):
        partition(JointGraph(joint.module, replace(joint.spec, primals=3)))
    with pytest.raises(InvalidIR, match="returns 3 values"):
        partition(JointGraph(joint.module, replace(joint.spec, outputs=joint.spec.outputs * 2)))


def test_a_number_read_by_the_backward_is_unsupported() -> None:
    joint = joint_of(gelu_sum, rand(8, 16), rand(8, 16))
    next(n for n in joint.graph.nodes if n.name == "gelu").meta["val"] = 3
    with pytest.raises(Unsupported) as caught:
        partition(joint)
    assert caught.value.reason == "saved_number"


def _swap(part: Partition) -> None:
    assert part.backward is not None
    node = next(n for n in part.backward.graph.nodes if n.name == "mul_1")
    node.args = node.args[::-1]


def _rename(part: Partition) -> None:
    next(n for n in part.forward.graph.nodes if n.name == "gelu").target = torch.ops.aten.relu.default


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (_swap, "aot.backward/mul_1 reads"),
        (_rename, "aot.forward/gelu is no node"),
    ],
)
def test_check_finds_damage(edit: Callable[[Partition], Any], message: str) -> None:
    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)))
    part.check()
    edit(part)
    for half in (part.forward, part.backward):
        assert half is not None
        half.module.recompile()
    with pytest.raises(InvalidIR, match=message):
        part.check()


def test_check_finds_a_saved_value_that_is_not_computed() -> None:
    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)))
    with pytest.raises(InvalidIR, match="saved value nowhere"):
        replace(part, saved=(*part.saved, "nowhere")).check()
