"""Joint graph in, partition out: what is kept, why, and that forward then backward are the joint graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
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
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_lab.aot.bans import REASONS, Split, ban
from compiler_lab.aot.flow import solve
from compiler_lab.aot.ir import INFINITE, JointGraph, JointSpec, OutputSpec
from compiler_lab.aot.partition import Partition, partition
from compiler_lab.core.artifact import Decision
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import Location, parents_of, stack_of
from compiler_lab.core.schema import nbytes

HERE = (Location(__file__, 1, "f"),)
MIN_CUT, TORCH, DEFAULT = Options(), Options(cost_model="torch"), Options(partitioner="default")
EVERY = pytest.mark.parametrize("options", [MIN_CUT, TORCH, DEFAULT], ids=["bytes", "torch", "default"])


def joint_of(f: Callable[..., Any], *primals: Tensor, updates: Sequence[int] = (), table: Any = None) -> JointGraph:
    """The joint graph of ``f`` by make_fx: ``f`` returns (new values of the inputs in ``updates``..., outputs...)."""
    flat: Callable[[Any], tuple[Any, ...]] = lambda r: r if isinstance(r, tuple) else (r,)
    count = len(updates)
    example = flat(f(*primals))[count:]
    differentiable = [i for i, o in enumerate(example) if o.requires_grad]
    needs = tuple(p.requires_grad for p in primals)

    def both(*args: Tensor) -> tuple[Any, ...]:
        ins, tangents = args[: len(primals)], args[len(primals) :]
        outs = flat(f(*ins))
        if not tangents:
            return outs
        wanted = [p for p, n in zip(ins, needs, strict=True) if n]
        grads = iter(torch.autograd.grad([outs[count + i] for i in differentiable], wanted, tangents, allow_unused=True))
        return (*outs, *(next(grads) if n else None for n in needs))

    tangents = [torch.ones_like(example[i]) for i in differentiable]
    module = make_fx(both, decomposition_table=table, tracing_mode="fake")(*primals, *tangents)
    names = [f"primals_{i + 1}" for i in range(len(primals))] + [f"tangents_{i + 1}" for i in range(len(tangents))]
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    named = iter(names)
    for node in module.graph.nodes:
        new = graph.placeholder(next(named)) if node.op == "placeholder" else graph.node_copy(node, mapping.__getitem__)
        mapping[node] = new
        new.meta = ({} if node.op == "output" else {"val": node.meta.get("val")}) | {"stack": HERE, "parents": (f"frames/{node.name}",)}
    spec = JointSpec(len(primals), tuple(OutputSpec("tensor", i in differentiable) for i in range(len(example))), tuple(updates), needs, tuple(differentiable))
    joint = JointGraph(fx.GraphModule(module, graph), spec)
    joint.check()
    return joint


def rand(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def outcome(part: Partition, name: str) -> tuple[str, str]:
    (found,) = [d for d in part.decisions if d.kind == "save" and d.subject == (f"{part.joint.stage}/{name}",)]
    return found.outcome, found.reason


def names(graph: GraphArtifact | None) -> list[str]:
    return [n.name for n in graph.graph.nodes] if graph is not None else []


def verify(joint: JointGraph, options: Options, inputs: Sequence[Tensor] = ()) -> Partition:
    """Whatever the program: the invariants of the module docstring, and bitwise the same numbers as the joint graph."""
    text = joint.text()
    part = partition(joint, options)
    part.check()
    assert joint.text() == text and partition(joint, options).text() == part.text()
    results: list[tuple[Tensor | None, ...]] = []
    for run in (joint.run, part.run):
        torch.manual_seed(0)
        results.append(tuple(run(*(inputs or inputs_for(joint)))))
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
    known = {joint.id(n) for n in joint.graph.nodes}
    for graph in (part.forward, part.backward):
        for node in graph.graph.nodes if graph is not None else ():
            assert set(parents_of(node)) <= known and parents_of(node) and stack_of(node) == HERE
    assert all(d.reason in REASONS for d in part.decisions)
    return part


def inputs_for(joint: JointGraph) -> list[Tensor]:
    torch.manual_seed(1)
    made = []
    for p in joint.placeholders:
        val = p.meta["val"]
        made.append(torch.empty_strided(val.shape, val.stride(), dtype=val.dtype).normal_())
    return made


def gelu_sum(a: Tensor, w: Tensor) -> Tensor:
    return (F.gelu(a) * w).sum()


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


@pytest.mark.parametrize("options", [MIN_CUT, TORCH], ids=["bytes", "torch"])
def test_gelu_between_two_linears_is_kept_since_mm_reads_it_in_the_backward(options: Options) -> None:
    def mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)

    joint = joint_of(mlp, rand(4, 8, grad=False), rand(16, 8), rand(16), rand(8, 16), rand(8))
    part = verify(joint, options)
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


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b).sigmoid()


def conv(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w)).mean((2, 3))


def two_outputs(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    c = (a * b).exp()
    return c.sum(0), (c @ b.t()).tanh()


def chain(a: Tensor) -> Tensor:
    for _ in range(6):
        a = a.cos()
    return a


def cross_entropy(x: Tensor, w: Tensor) -> Tensor:
    return F.cross_entropy(x @ w, torch.arange(5) % 3)


def linear_in_one(a: Tensor, b: Tensor) -> Tensor:
    return a.sum() + b.exp().sum()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).relu()


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "gelu_sum": (gelu_sum, [(8, 16), (8, 16)]),
    "softmax_attention": (softmax_attention, [(2, 4, 8), (2, 4, 8), (2, 4, 8)]),
    "norm": (norm, [(4, 8), (8,), (8,)]),
    "conv": (conv, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "two_outputs": (two_outputs, [(4, 8), (4, 8)]),
    "chain": (chain, [(16,)]),
    "cross_entropy": (cross_entropy, [(5, 4), (4, 3)]),
    "linear_in_one": (linear_in_one, [(4,), (3,)]),
    "attention": (attention, [(1, 2, 4, 8)] * 3),
    "dropout": (lambda x, w: torch.native_dropout(x @ w, 0.5, True)[0].relu() * 2, [(4, 4), (4, 4)]),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 2, 1]), w).exp(), [(4, 8)]),
    "mask": (lambda x: torch.where(x > 0, x, x * 0.1), [(32,)]),
    "max_pool": (lambda x: F.max_pool2d(x.exp(), 2), [(1, 1, 4, 4)]),
}  # fmt: skip


@EVERY
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_then_backward_are_the_joint_graph(name: str, options: Options) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    verify(joint, options)


@EVERY
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_once_decomposed(name: str, options: Options) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes), table=torch._decomp.core_aten_decompositions())
    verify(joint, options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_min_cut_never_keeps_more_bytes_of_intermediates(name: str) -> None:
    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    intermediates: Callable[[Partition], int] = lambda p: sum(
        nbytes(n.meta["val"]) for n in p.forward.graph.nodes if n.name in p.saved and n.op != "placeholder"
    )
    assert intermediates(partition(joint, MIN_CUT)) <= intermediates(partition(joint, DEFAULT))


# Operators of two square matrices: pointwise, products, reductions, views, random numbers.
STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a.sin(),
    lambda a, b: a.exp(),
    lambda a, b: b.sigmoid(),
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: torch.tanh(a @ b),
    lambda a, b: a.t() - b,
    lambda a, b: a.mean(0, keepdim=True).expand(4, 4) * b,
    lambda a, b: torch.softmax(a, 1),
    lambda a, b: a * (torch.rand(4, 4) > 0.5),
    lambda a, b: torch.where(a > b, a, b.detach()),
)


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Any]:
    """A random straight-line program over three square matrices."""
    steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
    returned = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True))

    def f(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for step, i, j in steps:
            values.append(step(values[i % len(values)], values[j % len(values)]))
        made = values[len(inputs) :]
        return tuple(made[i % len(made)] * 1.5 for i in returned)

    return f


@given(programs(), st.sampled_from([MIN_CUT, TORCH, DEFAULT]), st.lists(st.booleans(), min_size=3, max_size=3))
@settings(max_examples=60, deadline=None)
def test_random_programs(f: Callable[..., Any], options: Options, grads: list[bool]) -> None:
    joint = joint_of(f, *(rand(4, 4, grad=g, dtype=torch.float64) for g in grads))
    verify(joint, options)


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


# ----------------------------------------------------------------------------------------- against torch's own partitioner


def torch_saved(joint: JointGraph, inputs: Sequence[Tensor], partitioner: Callable[..., Any]) -> int:
    """Bytes that torch's own min-cut keeps of the same joint graph."""
    outs = joint.spec.forward_outputs
    fwd, _ = partitioner(joint.module, inputs, num_fwd_outputs=outs)
    (results,) = fwd.graph.output_node().args
    return sum(nbytes(n.meta["val"]) for n in results[outs:])


@pytest.mark.parametrize("name", ["gelu_sum", "norm", "two_outputs", "chain", "cross_entropy", "softmax_attention", "conv"])
def test_torch_cost_model_keeps_no_more_than_torch(name: str) -> None:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    f, shapes = PROGRAMS[name]
    joint = joint_of(f, *(rand(*s) for s in shapes))
    ours = partition(joint, TORCH).saved_bytes
    assert ours <= torch_saved(joint, inputs_for(joint), min_cut_rematerialization_partition)


# ------------------------------------------------------------------------------------------------------------- rules


def split_of(joint: JointGraph) -> Split:
    tangents = set(joint.placeholders[joint.spec.primals :])
    for node in joint.graph.nodes:
        if any(i in tangents for i in node.all_input_nodes):
            tangents.add(node)
    return Split(joint.stage, {n for n in joint.graph.nodes if n not in tangents}, tangents)


@pytest.mark.parametrize(
    ("f", "shapes", "node", "reason"),
    [
        (lambda a, b: (a @ b).exp(), [(4, 4), (4, 4)], "mm", "matmul"),
        (lambda a, b: F.conv2d(a, b).exp(), [(1, 1, 4, 4), (1, 1, 2, 2)], "convolution", "convolution"),
        (attention, [(1, 2, 4, 8)] * 3, "_scaled_dot_product_flash_attention_for_cpu", "attention"),
        (lambda a: a * torch.rand(4), [(4,)], "rand", "random"),
        (lambda a: F.embedding(torch.tensor([1]), a).exp(), [(4, 8)], "embedding", "unfusible"),
        (lambda a, b: a.exp() @ b, [(4, 4), (4, 4)], "exp", "materialized"),
        (lambda a: a.exp().sum().exp(), [(64,)], "sum_1", "reduction"),
        (lambda a: a.exp(), [(4,)], "exp", None),
        (lambda a: a.t().exp(), [(4, 4)], "t", None),
        (lambda a: a * torch.ones(4), [(4,)], "ones", None),
    ],
)
def test_ban(f: Callable[..., Any], shapes: list[tuple[int, ...]], node: str, reason: str | None) -> None:
    joint = joint_of(f, *(rand(*s) for s in shapes))
    (found,) = [n for n in joint.graph.nodes if n.name == node]
    got = ban(found, split_of(joint))
    assert got == (reason and Decision("ban", (f"aot.joint/{node}",), "refused", reason, {"bytes": nbytes(found.meta["val"])}))


def test_random_numbers_are_drawn_once() -> None:
    joint = joint_of(lambda x: (x.exp() * torch.rand(8)).sin(), rand(8))
    for options in (MIN_CUT, TORCH, DEFAULT):
        part = verify(joint, options)
        assert "rand" in names(part.forward) and "rand" not in (set(names(part.backward)) - set(part.saved))


def test_an_unread_draw_still_moves_the_generator() -> None:
    def f(x: Tensor) -> Tensor:
        torch.rand(3)
        return x.exp()

    joint = joint_of(f, rand(8))
    part = partition(joint)
    assert "rand" in names(part.forward) and "rand" not in names(part.backward)


def test_a_draw_of_the_backward_stays_in_the_backward() -> None:
    class Noise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0].neg() * torch.rand(8)

    part = partition(joint_of(lambda x: Noise.apply(x), rand(8)))
    assert "rand" not in names(part.forward) and "rand" in names(part.backward) and part.saved == ()


@EVERY
def test_views_are_made_again_not_kept(options: Options) -> None:
    joint = joint_of(lambda x, w: x.exp().view(2, 8).t() * w, rand(16), rand(8, 2))
    part = verify(joint, options)
    assert not {"view", "t"} & set(part.saved)
    assert outcome(part, "view") == ("recomputed", "view")


def test_an_output_is_in_memory_anyway() -> None:
    """The backward of tanh reads its result, which is returned: keeping it costs nothing, so it is not computed twice."""
    joint = joint_of(lambda x: torch.tanh(x + 1).view(-1), rand(8, 8))
    part = verify(joint, MIN_CUT)
    assert part.saved == ("tanh",) and outcome(part, "tanh") == ("saved", "output") and part.recomputed == ()
    assert part.network is not None and part.network.solution is not None and part.network.solution.value == 0


def test_a_small_mask_is_kept_in_place_of_a_large_value() -> None:
    """The backward of relu(mm) needs only where it is positive: a byte for an element, not four."""
    joint = joint_of(lambda x, w: torch.where(x @ w > 0, 1.0, 0.5) * x, rand(8, 8), rand(8, 8, grad=False))
    part = partition(joint)
    assert part.saved == ("gt",) and outcome(part, "gt") == ("saved", "cut")


def test_what_only_the_backward_needs_is_computed_there_or_kept_if_smaller() -> None:
    joint = joint_of(chain, rand(16))
    part = verify(joint, MIN_CUT)
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
    part = verify(joint, options)
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
    assert verify(joint, MIN_CUT).saved == ("add",)


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
    part = verify(joint, MIN_CUT)
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
    with pytest.raises(InvalidIR, match=message):
        part.check()


def test_check_finds_a_saved_value_that_is_not_computed() -> None:
    part = partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)))
    with pytest.raises(InvalidIR, match="saved value nowhere"):
        replace(part, saved=(*part.saved, "nowhere")).check()
