"""Rules that forbid computing a value again, and what the program or the caller wants of a value: checkpoint policies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import compiler_lab
from compiler_lab.aot.bans import CONVOLUTION, FUSIBLE, MATMUL, Split, ban
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.partition import Partition, partition
from compiler_lab.aot.policy import Policy
from compiler_lab.core.artifact import Decision
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.options import Options
from compiler_lab.core.schema import nbytes, op_name
from compiler_lab.observe.trace import Step

from .partition_programs import DEFAULT, MIN_CUT, TORCH, assert_partition, attention, gelu_sum, joint_of, names, outcome, rand

EVERY = pytest.mark.parametrize("options", [MIN_CUT, TORCH, DEFAULT], ids=["bytes", "torch", "default"])
MUST_SAVE, PREFER_SAVE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE
MUST_RECOMPUTE, PREFER_RECOMPUTE = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE


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
        (lambda a: a.exp().sum(1).exp(), [(4, 5)], "sum_1", "reduction"),
        (lambda a: a.exp().sum(1).exp(), [(5, 4)], "sum_1", None),
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


NEVER_TRACED = {"aten.__and__", "aten.__or__", "aten._unsafe_view", "aten.broadcast_tensors", "aten.sum_to_size", "aten.type_as"}
"""Written in other operators where they are traced, or a view here."""


def test_what_torch_computes_again_may_be_computed_again() -> None:
    from torch._functorch.partitioners import get_default_op_list

    ops = {
        f"aten.{p._qualified_op_name.removeprefix('aten::')}": p for p in get_default_op_list().recomputable_ops if isinstance(p, torch._ops.OpOverloadPacket)
    }

    def known(packet: torch._ops.OpOverloadPacket) -> bool:
        """Its tags or its schema say that it may."""
        overloads = [getattr(packet, name) for name in packet.overloads()]
        return any(torch.Tag.pointwise in o.tags or any(r.alias_info is not None and not r.alias_info.is_write for r in o._schema.returns) for o in overloads)

    listed = {name for name, packet in ops.items() if packet._qualified_op_name.startswith("aten::") and not known(packet)}
    assert listed - FUSIBLE <= NEVER_TRACED
    assert FUSIBLE <= ops.keys()


PRODUCTS = {
    "mm": "ij,jk->ik", "bmm": "bij,bjk->bik", "mv": "ij,j->i", "dot": "i,i->", "vdot": "i,i->", "matmul": "ij,jk->ik", "linear": "ij,kj->ik",
    "addmm": "ij,jk->ik", "baddbmm": "bij,bjk->bik", "addbmm": "bij,bjk->ik", "addmv": "ij,j->i", "_addmm_activation": "ij,jk->ik", "_int_mm": "ij,jk->ik",
    "_scaled_mm": "ij,jk->ik",
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices(name: str) -> None:
    """An operator that computes the product is in the table."""
    size = dict(zip("bijk", (2, 32, 16, 8), strict=True))
    a, b = (torch.randint(0, 3, [size[c] for c in part]) for part in PRODUCTS[name].partition("->")[0].split(","))
    want, op = torch.einsum(PRODUCTS[name], a, b), getattr(torch.ops.aten, name)
    if name == "_scaled_mm":
        one, eighth = torch.ones(()), torch.float8_e4m3fn
        got = op(a.to(eighth), b.t().contiguous().t().to(eighth), one, one, out_dtype=torch.float32)
    elif name == "_int_mm":
        got = op(a.to(torch.int8), b.to(torch.int8))
    else:
        got = op(*([torch.zeros(want.shape)] if "add" in name else []), a.float(), b.float())
    torch.testing.assert_close(got.long(), want)
    assert f"aten.{name}" in MATMUL
    assert {n.removeprefix("aten.") for n in MATMUL} == PRODUCTS.keys()


def test_every_convolution_of_torchs_flop_counter_is_in_the_table() -> None:
    from torch.utils.flop_counter import flop_registry

    counted = {f"aten.{op._qualified_op_name.removeprefix('aten::')}" for op in flop_registry if isinstance(op, torch._ops.OpOverloadPacket)}
    assert {n for n in counted if "conv" in n} - {"aten._slow_conv2d_forward"} <= CONVOLUTION
    assert CONVOLUTION == {n for n in CONVOLUTION if hasattr(torch.ops.aten, n.removeprefix("aten."))} and "aten.convolution_overrideable" in CONVOLUTION


def test_random_numbers_are_drawn_once() -> None:
    joint = joint_of(lambda x: (x.exp() * torch.rand(8)).sin(), rand(8))
    for options in (MIN_CUT, TORCH, DEFAULT):
        part = assert_partition(joint, options)
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


# ------------------------------------------------------------------------------------------------------------- policies


def mlp(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return (torch.relu(x @ v) @ w).sigmoid().sum()


def mlp_joint() -> JointGraph:
    return joint_of(mlp, rand(16, 4), rand(4, 32), rand(32, 4))


def policy_of(part: Partition, name: str) -> tuple[str, str]:
    (found,) = [d for d in part.decisions if d.kind == "policy" and d.subject == (f"{part.joint.stage}/{name}",)]
    return found.outcome, found.reason


@EVERY
def test_must_recompute_goes_before_every_rule(options: Options) -> None:
    part = assert_partition(mlp_joint(), options, policy={"mm": MUST_RECOMPUTE, "relu": MUST_RECOMPUTE})
    assert not {"mm", "relu"} & set(part.saved) and {"mm", "relu"} <= set(part.recomputed)
    assert policy_of(part, "mm") == ("honoured", "must_recompute") and outcome(part, "mm") == ("recomputed", "must_recompute")


@EVERY
def test_must_save_is_not_computed_again(options: Options) -> None:
    f = lambda a, w: (a.exp().sin() * w).sum()
    assert "sin" in partition(joint_of(f, rand(8), rand(8)), MIN_CUT).recomputed
    part = assert_partition(joint_of(f, rand(8), rand(8)), options, policy=lambda n: MUST_SAVE if op_name(n) == "aten.sin" else None)
    assert "sin" in part.saved and policy_of(part, "sin")[0] == "honoured"
    if options is not DEFAULT:
        assert outcome(part, "sin") == ("saved", "must_save")


def test_prefer_recompute_lets_the_cut_choose() -> None:
    """Of all that may be computed again, the one small value in the middle is kept: fewer bytes than computing all of it again."""

    def narrow(x: Tensor, v: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return ((x * y) @ v @ w).exp().sum()

    joint = joint_of(narrow, rand(64, 32), rand(32, 1), rand(1, 32), rand(64, 32))
    wish: Policy = lambda n: PREFER_RECOMPUTE
    part = assert_partition(joint, MIN_CUT, policy=wish)
    assert "mm_1" in part.recomputed and policy_of(part, "mm_1") == ("honoured", "prefer_recompute")
    all_again = assert_partition(joint, MIN_CUT, policy=lambda n: MUST_RECOMPUTE)
    assert part.saved_bytes <= all_again.saved_bytes and set(part.recomputed) <= set(all_again.recomputed)
    assert all(s.startswith("primals") for s in all_again.saved)


def test_prefer_recompute_of_random_numbers_is_overridden_and_says_why() -> None:
    joint = joint_of(lambda x: (x.exp() * torch.rand(8)).sin(), rand(8))
    for options in (MIN_CUT, DEFAULT):
        part = assert_partition(joint, options, policy=lambda n: PREFER_RECOMPUTE)
        assert "rand" in part.saved and "rand" not in part.recomputed and policy_of(part, "rand")[0] == "overridden"


def test_prefer_save_yields_to_the_budget_only() -> None:
    f = lambda a, w: (a.exp().sin() * w).sum()
    joint = joint_of(f, rand(8), rand(8))
    wish: Policy = {"sin": PREFER_SAVE}
    part = assert_partition(joint, MIN_CUT, policy=wish)
    assert policy_of(part, "sin") == ("honoured", "prefer_save")
    part = assert_partition(joint, Options(activation_memory_budget=0.0), policy=wish)
    assert policy_of(part, "sin") == ("overridden", "budget") and outcome(part, "sin") == ("recomputed", "budget")
    part = assert_partition(joint, Options(activation_memory_budget=0.0), policy={"sin": MUST_SAVE})
    assert policy_of(part, "sin") == ("honoured", "must_save")


def test_a_policy_for_what_the_backward_does_not_read_is_idle() -> None:
    part = assert_partition(joint_of(lambda a: a.exp().sum(), rand(8)), MIN_CUT, policy={"sum_1": MUST_RECOMPUTE})
    assert policy_of(part, "sum_1") == ("idle", "unread")


def test_results_of_one_operator_have_its_policy() -> None:
    joint = joint_of(lambda x, w, b: F.layer_norm(x, (8,), w, b).sigmoid(), rand(4, 8), rand(8), rand(8))
    part = assert_partition(joint, MIN_CUT, policy={"native_layer_norm": MUST_RECOMPUTE})
    assert set(part.saved) <= {"primals_1", "primals_2", "primals_3", "sigmoid"} and "native_layer_norm" in part.recomputed


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"nowhere": MUST_SAVE}, "policy_subject"),
        ({"primals_1": MUST_SAVE}, "policy_subject"),
        ({"mul_1": MUST_RECOMPUTE}, "policy_subject"),
        ({"gelu": CheckpointPolicy.MUST_CPU_OFFLOAD}, "cpu_offload"),
        ({"gelu": CheckpointPolicy.PREFER_CPU_OFFLOAD}, "cpu_offload"),
    ],
)
def test_policies_that_cannot_be_kept_are_refused(policy: Policy, reason: str) -> None:
    with pytest.raises(Unsupported) as caught:
        partition(joint_of(gelu_sum, rand(8, 16), rand(8, 16)), MIN_CUT, policy)
    assert caught.value.reason == reason


def marked(joint: JointGraph, marks: dict[str, tuple[CheckpointPolicy, int]]) -> JointGraph:
    """As torch's selective checkpointing marks nodes: policy, number of the region."""
    for node in joint.graph.nodes:
        if node.name in marks:
            node.meta["recompute"], node.meta["ac_graph_id"] = marks[node.name]
    return joint


REGIONS: dict[str, dict[str, tuple[CheckpointPolicy, int]]] = {
    "all of one region": dict.fromkeys(("mm", "relu", "mm_1", "sigmoid"), (MUST_RECOMPUTE, 1)),
    "two regions": {"mm": (MUST_RECOMPUTE, 1), "relu": (MUST_RECOMPUTE, 1), "mm_1": (MUST_RECOMPUTE, 2), "sigmoid": (MUST_RECOMPUTE, 2)},
    "products saved": {"mm": (MUST_SAVE, 1), "relu": (MUST_RECOMPUTE, 1), "mm_1": (MUST_SAVE, 1), "sigmoid": (MUST_RECOMPUTE, 1)},
}


@pytest.mark.parametrize("region", REGIONS)
def test_marks_of_the_program_mean_what_they_mean_to_torch(region: str) -> None:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    part = assert_partition(marked(mlp_joint(), REGIONS[region]), TORCH)
    if region == "two regions":
        assert outcome(part, "relu") == ("saved", "boundary")
    twin = marked(mlp_joint(), REGIONS[region])
    forward, backward = min_cut_rematerialization_partition(twin.module, [p.meta["val"] for p in twin.placeholders], num_fwd_outputs=1)
    results: Any = forward.graph.output_node().args[0]
    of_operators: Callable[[Any], set[str]] = lambda nodes: {n.name for n in nodes if n.name in REGIONS[region]}
    assert {s for s in part.saved if not s.startswith("primals")} == of_operators(results[1:])
    assert set(part.recomputed) & REGIONS[region].keys() == of_operators(n for n in backward.graph.nodes if n.op == "call_function")


# ------------------------------------------------------------------------------------------------------------- checkpointed programs


def block(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ v) @ w


def save_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return MUST_SAVE if op is torch.ops.aten.mm.default else PREFER_RECOMPUTE


CONTEXTS = functools.partial(create_selective_checkpoint_contexts, save_products)


def plain(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x.sin(), v, w, use_reentrant=False).cos().sum()  # pyright: ignore[reportOptionalMemberAccess]


def selective(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return checkpoint(block, x.sin(), v, w, use_reentrant=False, context_fn=CONTEXTS).cos().sum()  # pyright: ignore[reportOptionalMemberAccess]


def with_dropout(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return checkpoint(lambda a: F.dropout(torch.relu(a @ v), 0.5) @ w, x, use_reentrant=False).cos().sum()  # pyright: ignore[reportOptionalMemberAccess]


CHECKPOINTED: list[tuple[Callable[..., Tensor], set[str], set[str]]] = [
    (plain, {"aten.mm", "aten.relu"}, set()),
    (selective, set(), {"aten.mm"}),
    (with_dropout, {"aten.mm", "aten.relu"}, {"aten.bernoulli", "aten.native_dropout", "aten.rand"}),
]


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp", "lab"])
@pytest.mark.parametrize(("program", "again", "once"), CHECKPOINTED, ids=[p.__name__ for p, _, _ in CHECKPOINTED])
def test_a_checkpointed_program(program: Callable[..., Tensor], again: set[str], once: set[str], backend: str) -> None:
    found: list[Partition] = []

    def run(call: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(0)
        args = [torch.randn(*s, requires_grad=True) for s in ((16, 8), (8, 64), (64, 8))]
        out = call(*args)
        out.backward()
        return [out.detach(), *(a.grad for a in args if a.grad is not None)]

    def watch(step: Step) -> None:
        if isinstance(step.after, Partition):
            found.append(step.after)

    options = {"decompositions": "core", "fallback_random": True}
    got = run(compiler_lab.compile(program, backend=backend, fullgraph=True, observe=watch, options=options))
    torch.testing.assert_close(got, run(program), rtol=1e-4, atol=1e-4)
    (part,) = found
    part.check()
    assert part.backward is not None
    repeated = {op_name(n) for n in part.backward.graph.nodes if n.meta.get("recomputed")}
    assert again <= repeated and not once & repeated, part.text()


def test_contexts_of_the_programs_own_are_refused() -> None:
    def program(x: Tensor) -> Tensor:
        return checkpoint(torch.sin, x, use_reentrant=False, context_fn=lambda: (nullcontext(), nullcontext())).sum()  # pyright: ignore[reportOptionalMemberAccess]

    x = torch.randn(4, requires_grad=True)
    torch.testing.assert_close(compiler_lab.compile(program, backend="aot_eager")(x), program(x))
