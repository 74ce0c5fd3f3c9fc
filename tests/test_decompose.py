"""Decomposition: every row computes what its operator computes, as accurately, with the same dtype, shape and layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from compiler_lab.aot.decompose import REASONS, decompose, rows_of
from compiler_lab.aot.decomposition_rows import NEVER, ROWS, TORCH_ROWS
from compiler_lab.aot.functionalize import functionalize
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.joint import joint
from compiler_lab.aot.openings import openings
from compiler_lab.aot.partition import partition
from compiler_lab.aot.tracer import laid_out_alike
from compiler_lab.core.errors import InvalidIR, UnknownOption
from compiler_lab.graph.passes import eliminate_dead_code

from .aot_programs import CORPUS, Program, Result, assert_same, eager, execute, randn, traced, whole

aten = torch.ops.aten
TABLES: tuple[Literal["inductor-like", "core", "none"], ...] = ("inductor-like", "core", "none")


def opened(graph: JointGraph, table: Literal["inductor-like", "core", "none"] = "inductor-like") -> JointGraph:
    """Decomposed; what it was made of is as it was, parents are nodes of it, values are what running the node gives."""
    text = graph.text()
    result = decompose(graph, table)
    assert graph.text() == text
    result.check()
    assert result.state == "decomposed" and result.spec == graph.spec
    ids = {f"aot.pure/{n.name}" for n in graph.graph.nodes}
    assert all(i.parents and set(i.parents) <= ids for i in result.items())
    assert {d.reason for d in result.decisions} <= set(REASONS)
    assert not [n for n in result.graph.nodes if isinstance(n.target, OpOverload) and n.target.namespace != "aten"]
    for new, old in zip(result.outputs, graph.outputs, strict=True):
        if new is not None:
            a, b = new.meta["val"], old.meta["val"]
            assert a.dtype == b.dtype and a.shape == b.shape and laid_out_alike(a, b)
    return result


def targets(graph: JointGraph) -> list[str]:
    return [str(n.target).removeprefix("aten.") for n in graph.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CORPUS)
def test_decomposed_graphs_compute_what_eager_computes(name: str, table: Literal["inductor-like", "core", "none"]) -> None:
    program, make = CORPUS[name]
    args = make(torch.float64)
    graph = opened(functionalize(joint(traced(program), *args)), table)
    assert_same(eager(program, args, graph), execute(graph, args), 1e-11)


def error(result: Result, truth: Result) -> float:
    """The error of the worst output or gradient, in parts of its size; both root mean square, which depends little on chance."""
    worst = 0.0
    for a, b in zip((*result.outputs, *result.gradients, *result.inputs), (*truth.outputs, *truth.gradients, *truth.inputs), strict=True):
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point() and a.numel():
            worst = max(worst, ((a.detach().double() - b.detach()).square().mean().sqrt() / b.detach().square().mean().sqrt().clamp_min(1e-30)).item())
    return worst


@pytest.mark.parametrize("name", [n for n in CORPUS if n != "dropout"])
def test_float32_is_as_close_to_float64_as_eager_is(name: str) -> None:
    program, make = CORPUS[name]
    args = make(torch.float32)
    exact = [a.detach().double().requires_grad_(a.requires_grad) if a.is_floating_point() else a for a in args]
    graph = opened(functionalize(joint(traced(program), *args)))
    truth = eager(program, exact, joint(traced(program), *exact))
    ours, eagers = error(execute(graph, args), truth), error(eager(program, args, graph), truth)
    assert ours <= 2 * eagers + 1e-7, f"{ours:.1e} against {eagers:.1e}"


# -- row by row ---------------------------------------------------------------------------------------------------------------


def x(*shape: int) -> Tensor:
    return randn(*shape, grad=True)


EDGES = torch.tensor([0.0, -0.0, 1e-300, -1e-8, 1.0, -1.0, 5.0, -5.0, 30.0, -30.0, 800.0, -800.0, math.inf, -math.inf, math.nan], dtype=torch.float64)
LABELS = torch.tensor([0, 2, 1, 4, 2])


def losses_of(**options: Any) -> Program:
    return lambda scores, labels, *weight: F.cross_entropy(scores, labels, *weight, **options)


def losses_of_torch(a: Tensor, b: Tensor) -> Tensor:
    p, q = torch.sigmoid(a), torch.sigmoid(b)
    total = F.smooth_l1_loss(a, b) + F.huber_loss(a, b, delta=0.7) + F.binary_cross_entropy(p, q)
    return total + F.binary_cross_entropy_with_logits(a, q) + F.soft_margin_loss(a, b.detach().sign())


def pointwise_of_torch(a: Tensor, b: Tensor) -> Tensor:
    total = F.celu(a) + F.logsigmoid(b) + torch.logit(torch.sigmoid(a), 1e-6) + torch.logaddexp(a, b) + F.prelu(a, b[:, 0].abs().mean())
    total = total + F.glu(torch.cat([a, b], 0), 0) + torch.special.entr(a.abs()) + torch.special.xlog1py(a, b.abs()) + torch.sinc(a)
    total = total + a.index_copy(0, torch.tensor([1, 0]), b[:2])
    return total + torch.index_select(a, 0, torch.tensor([2, 0, 1])) + torch.rad2deg(a) + torch.deg2rad(b) + torch.addr(a, a[:, 0], b[0]) + torch.rsub(a, b)


def tied(*shape: int) -> Tensor:
    """Few values, so that windows hold their maximum several times over; with infinities and NaN."""
    a = torch.randint(-2, 3, shape).double()
    flat = a.view(-1)
    flat[::7], flat[3::11], flat[1::13] = -math.inf, math.nan, math.inf
    return a.requires_grad_()


def pools(dims: int, lead: tuple[int, ...], size: tuple[int, ...], *args: Any, channels_last: bool = False) -> tuple[Program, list[Tensor]]:
    """A maximum over windows; in the second half of the images there is nothing larger than -inf."""
    a = tied(*lead, *size)
    with torch.no_grad():
        a[..., size[-1] // 2 :] = -math.inf
    pool = F.max_pool2d if dims == 2 else F.max_pool3d
    return lambda a: pool(a.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d) if channels_last else a, *args), [a]


def cases() -> dict[str, tuple[Program, list[Tensor]]]:
    return {
        "softmax": (lambda a: F.softmax(a, 1), [x(3, 4, 5)]),
        "softmax_first": (lambda a: F.softmax(a, 0), [x(3, 4)]),
        "softmax_scalar": (lambda a: F.softmax(a, 0), [x()]),
        "softmax_empty": (lambda a: F.softmax(a, 0), [x(0, 3)]),
        "softmax_edges": (lambda a: F.softmax(a.view(5, 3), 1), [EDGES.clone()]),
        "softmax_transposed": (lambda a: F.softmax(a.t(), 1), [x(3, 4)]),
        "log_softmax": (lambda a: F.log_softmax(a, -1), [x(3, 4)]),
        "log_softmax_far": (lambda a: F.log_softmax(a * 1000, -1), [x(3, 4)]),
        "layer_norm": (lambda a, w, b: F.layer_norm(a, (5,), w, b), [x(3, 4, 5), x(5), x(5)]),
        "layer_norm_two": (lambda a, w: F.layer_norm(a, (4, 5), w, None, 1e-3), [x(3, 4, 5), x(4, 5)]),
        "layer_norm_plain": (lambda a: F.layer_norm(a, (5,)), [x(3, 5)]),
        "layer_norm_one_row": (lambda a, w, b: F.layer_norm(a, (5,), w, b), [x(5), x(5), x(5)]),
        "layer_norm_transposed": (lambda a, w, b: F.layer_norm(a.transpose(1, 2), (5,), w, b), [x(3, 5, 4), x(5), x(5)]),
        "layer_norm_offset": (lambda a: F.layer_norm(a + 1e6, (50,)), [x(3, 50)]),
        "layer_norm_statistics": (lambda a: torch.native_layer_norm(a, (5,), None, None, 1e-5), [x(3, 4, 5)]),
        "group_norm": (lambda a, w, b: F.group_norm(a, 2, w, b), [x(3, 4, 5, 2), x(4), x(4)]),
        "group_norm_flat": (lambda a: F.group_norm(a, 2), [x(3, 4)]),
        "batch_norm": (lambda a, w, b: F.batch_norm(a, None, None, w, b, True), [x(3, 4, 5), x(4), x(4)]),
        "batch_norm_flat": (lambda a: F.batch_norm(a, None, None, None, None, True), [x(6, 4)]),
        "batch_norm_updates": (lambda a, m, v: F.batch_norm(a, m, v, None, None, True, 0.3), [x(6, 4), randn(4), randn(4).abs()]),
        "batch_norm_eval": (lambda a, m, v, w: F.batch_norm(a, m, v, w, None, False), [x(3, 4, 5), randn(4), randn(4).abs(), x(4)]),
        "instance_norm": (lambda a, w, b: F.instance_norm(a, None, None, w, b), [x(3, 4, 5, 2), x(4), x(4)]),
        "gelu": (lambda a: F.gelu(a), [EDGES.clone().requires_grad_()]),
        "gelu_tanh": (lambda a: F.gelu(a, approximate="tanh"), [EDGES.clone().requires_grad_()]),
        "silu": (lambda a: F.silu(a), [EDGES[:-3].clone().requires_grad_()]),
        "sigmoid": (lambda a: torch.sigmoid(a), [EDGES.clone().requires_grad_()]),
        "tanh": (lambda a: torch.tanh(a), [EDGES.clone().requires_grad_()]),
        "relu": (lambda a: torch.relu(a), [EDGES.clone().requires_grad_()]),
        "threshold": (lambda a: F.threshold(a, 0.5, -2.0), [EDGES.clone().requires_grad_()]),
        "index_fill": (lambda a: a.t().index_fill(-1, torch.tensor([2, 0]), 1.5), [x(3, 4)]),
        "index_fill_tensor": (lambda a: a.index_fill(0, torch.tensor([1, -1]), a.detach().mean()), [x(3, 4)]),
        "mse": (lambda a, b: F.mse_loss(a, b), [x(3, 4), x(3, 4)]),
        "mse_sum": (lambda a, b: F.mse_loss(a, b, reduction="sum"), [x(3, 4), randn(3, 4)]),
        "mse_none": (lambda a, b: F.mse_loss(a, b, reduction="none"), [x(3, 4), x(3, 4)]),
        "cross_entropy": (losses_of(), [x(5, 6), LABELS]),
        "cross_entropy_ignored": (losses_of(ignore_index=2), [x(5, 6), LABELS]),
        "cross_entropy_masked": (losses_of(ignore_index=-100), [x(3, 6), torch.tensor([1, -100, 5])]),
        "cross_entropy_all_ignored": (losses_of(ignore_index=-100), [x(2, 6), torch.tensor([-100, -100])]),
        "cross_entropy_weighted": (losses_of(), [x(5, 6), LABELS, randn(6).abs()]),
        "cross_entropy_sum": (losses_of(reduction="sum", ignore_index=1), [x(5, 6), LABELS, randn(6).abs()]),
        "cross_entropy_none": (losses_of(reduction="none", ignore_index=1), [x(5, 6), LABELS, randn(6).abs()]),
        "cross_entropy_smooth": (losses_of(label_smoothing=0.2), [x(5, 6), LABELS]),
        "cross_entropy_one": (losses_of(), [x(6), torch.tensor(3)]),
        "cross_entropy_images": (losses_of(ignore_index=1), [x(2, 6, 3, 4), torch.randint(0, 6, (2, 3, 4)), randn(6).abs()]),
        "cross_entropy_images_none": (losses_of(reduction="none"), [x(2, 6, 3, 4), torch.randint(0, 6, (2, 3, 4))]),
        "cross_entropy_lines": (losses_of(), [x(2, 6, 3), torch.randint(0, 6, (2, 3))]),
        "pool": pools(2, (2, 3), (8, 9), 2),
        "pool_padded": pools(2, (2, 3), (8, 9), 3, 2, 1),
        "pool_uneven": pools(2, (3,), (9, 7), (3, 2), (2, 3), (1, 0), (2, 1), True),
        "pool_wide": pools(2, (1, 1), (5, 300), 3, 2, 1),
        "pool_wide_dilated": pools(2, (1, 1), (7, 300), (2, 3), (1, 2), (1, 1), (3, 2)),
        "pool_large_window": pools(2, (1, 1), (20, 40), (17, 19), 3),
        "pool_one": pools(2, (1, 2), (1, 1), 3, 1, 1),
        "pool_narrow": pools(2, (1, 2), (40, 2), (15, 5), 2, (7, 2)),
        "pool_nothing": pools(2, (0, 2), (4, 4), 2),
        "pool_channels_last": pools(2, (2, 3), (8, 9), 3, 2, 1, channels_last=True),
        "pool_positions": (lambda a: F.max_pool2d_with_indices(a, (2, 2)), [tied(2, 4, 6)]),
        "pool_3d": pools(3, (2, 2), (4, 6, 5), 2),
        "pool_3d_wide": pools(3, (1,), (4, 20, 30), (2, 3, 2), 2, 1, (1, 2, 1), True),
        "pool_3d_channels_last": pools(3, (2, 3), (4, 6, 5), 2, channels_last=True),
        "pool_lines": (lambda a: F.max_pool1d(a, 3, 2, 1), [tied(2, 3, 400)]),
        "pool_adaptive": (lambda a: F.adaptive_max_pool2d(a, (3, 4)), [tied(2, 2, 9, 12)]),
        "pool_adaptive_uneven": (lambda a: F.adaptive_max_pool2d(a, (4, 5)), [tied(2, 2, 9, 7)]),
        "pool_adaptive_3d": (lambda a: F.adaptive_max_pool3d(a, (2, 3, 2)), [tied(2, 5, 6, 7)]),
        "cat_of_one": (lambda a: torch.cat([a, a, a], -1) + torch.cat([a.exp(), a.exp()], 0)[:3].repeat(1, 3), [x(3, 4)]),
        "cat_of_two": (lambda a, b: torch.cat([a, b, a], 1), [x(3, 4), x(3, 2)]),
        "fills": (lambda a: torch.zeros(3) + torch.ones(3) + a.new_zeros(3) + a.new_ones(3, dtype=torch.float32), [x(3)]),
        "fills_like": (lambda a: (torch.zeros_like(a.t()), torch.ones_like(a) * a), [x(3, 4)]),
        "layouts": (lambda a: (torch.relu(a.t()), F.silu(a.t()), F.softmax(a.t(), 0)), [x(3, 4)]),
        "torch_losses": (losses_of_torch, [x(3, 4), x(3, 4)]),
        "torch_pointwise": (pointwise_of_torch, [x(3, 4), x(3, 4)]),
    }  # fmt: skip


with torch.random.fork_rng():
    torch.manual_seed(0)
    CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_a_row(name: str) -> None:
    program, args = CASES[name]
    graph = opened(functionalize(joint(whole(program, len(args)), *args)))
    expected = eager(program, args, graph)
    assert_same(expected, execute(graph, args), 1e-11 if name != "layer_norm_offset" else 1e-8)
    for before, after in zip(expected.outputs, execute(graph, args).outputs, strict=True):
        told = ~before.isnan()  # the sign of NaN is nobody's
        assert torch.equal(torch.signbit(before)[told], torch.signbit(after)[told])


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, (_, args) in CASES.items()
        if all(a.is_floating_point() for a in args) and n not in ("torch_losses", "torch_pointwise", "softmax_edges", "layer_norm_offset")
    ],
)
def test_a_row_in_half_precision(name: str) -> None:
    """Within what rounding to bfloat16 leaves open, and of the dtypes that eager gives."""
    program, args = CASES[name]
    low = [a.detach().clamp(-30, 30).nan_to_num().to(torch.bfloat16).requires_grad_(a.requires_grad) for a in args]
    graph = opened(functionalize(joint(whole(program, len(low)), *low)))
    expected, found = eager(program, low, graph), execute(graph, low)
    for a, b in zip((*expected.outputs, *expected.gradients), (*found.outputs, *found.gradients), strict=True):
        if isinstance(a, Tensor):
            assert isinstance(b, Tensor) and b.dtype == a.dtype
            torch.testing.assert_close(b, a.detach(), rtol=0.05, atol=0.05)


def test_every_row_of_ours_is_opened_by_a_case() -> None:
    seen: set[str] = set()
    for program, args in CASES.values():
        graph = functionalize(joint(whole(program, len(args)), *args))
        result = decompose(graph)
        named = {f"aot.pure/{n.name}": str(n.target) for n in graph.graph.nodes}
        seen |= {named[d.subject[0]] for d in result.decisions if d.reason == "own-row"}
    assert {str(op) for op in ROWS} - seen == set()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, torch.uint8) for n in ("pool_padded", "pool_wide", "pool_3d_wide", "pool_adaptive_uneven", "pool_lines")]
    + [("pool_large_window", torch.int16), ("pool_positions", torch.int64)],
)
def test_pooling_keeps_positions_in_few_bits_and_nothing_that_was_pooled(name: str, dtype: torch.dtype) -> None:
    """But where the program returns the positions, which are then in memory anyway."""
    program, args = CASES[name]
    part = partition(eliminate_dead_code(opened(functionalize(joint(whole(program, len(args)), *args)))))
    saved = {n.meta["val"] for n in part.forward.graph.nodes if n.name in part.saved}
    assert [v.dtype for v in saved] == [dtype]


def test_a_class_out_of_range_still_fails() -> None:
    def program(scores: Any, labels: Any) -> Any:
        return F.cross_entropy(scores, labels)

    graph = opened(functionalize(joint(traced(program), x(2, 3), torch.tensor([0, 1]))))
    with pytest.raises((IndexError, RuntimeError)):
        execute(graph, [randn(2, 3), torch.tensor([0, 3])])


def test_what_opens_and_what_stays() -> None:
    program, make = CORPUS["gpt"]
    result = opened(functionalize(joint(traced(program), *make(torch.float32))))
    names = set(targets(result))
    assert not names & {"native_layer_norm.default", "native_layer_norm_backward.default", "_log_softmax.default", "nll_loss_forward.default",
                        "nll_loss_backward.default", "gelu.default", "gelu_backward.default", "scatter.value"}  # fmt: skip
    assert names >= {"addmm.default", "embedding.default", "embedding_dense_backward.default", "_scaled_dot_product_flash_attention_for_cpu.default"} - {
        "addmm.default"
    }
    kept = {d.subject[0].split("/")[1]: d.reason for d in result.decisions if d.outcome == "kept"}
    assert {kept[n] for n in kept if n.startswith(("mm", "embedding", "_scaled"))} == {"library"}
    for table in TABLES:
        assert not [op for op in rows_of(table) if op._opname in NEVER]
    assert all(getattr(aten, name, None) is not None for name in TORCH_ROWS)


def test_backward_of_layer_norm_is_one_reduction_for_each_sum() -> None:
    program, args = CASES["layer_norm"]
    names = targets(opened(functionalize(joint(whole(program, len(args)), *args))))
    assert sorted(n for n in names if n.startswith(("sum", "mean", "var"))) == ["mean.dim"] * 4 + ["sum.dim_IntList"] * 2


def test_a_result_laid_out_differently_is_copied_into_place() -> None:
    program, args = CASES["layer_norm_transposed"]
    result = opened(functionalize(joint(whole(program, len(args)), *args)))
    assert "layout" in {d.reason for d in result.decisions}


def test_new_nodes_come_from_the_node_that_was_opened_and_its_line() -> None:
    def program(a: Any) -> Any:
        return F.silu(a)

    before = functionalize(joint(traced(program), randn(3)))
    result = opened(before)
    assert [(str(n.target), n.meta["parents"]) for n in result.graph.nodes if n.op == "call_function"] == [
        ("aten.sigmoid.default", ("aot.pure/silu",)),
        ("aten.mul.Tensor", ("aot.pure/silu",)),
    ]
    (old,) = (n for n in before.graph.nodes if n.name == "silu")
    assert all(n.meta["stack"] == old.meta["stack"] for n in result.graph.nodes if n.op == "call_function")
    assert [(d.outcome, d.reason) for d in result.decisions] == [("opened", "own-row")]


def test_none_opens_nothing_and_says_so() -> None:
    program, make = CORPUS["mlp"]
    graph = functionalize(joint(traced(program), *make(torch.float32)))
    result = opened(graph, "none")
    assert targets(result) == targets(graph)
    assert {d.outcome for d in result.decisions} == {"kept"}


def test_refuses_the_wrong_state_and_unknown_tables() -> None:
    program: Callable[..., Any] = CASES["relu"][0]
    before = joint(whole(program, 1), randn(3))
    with pytest.raises(InvalidIR):
        decompose(before)
    with pytest.raises(UnknownOption):
        decompose(functionalize(before), "all")  # pyright: ignore[reportArgumentType]


def test_what_opened_what_can_be_read() -> None:
    program, make = CORPUS["mlp"]
    graph = functionalize(joint(traced(program), *make(torch.float32)))
    found = {table: openings(decompose(graph, table)) for table in TABLES}
    assert {t: (o["aten.gelu.default"][0].outcome, o["aten.gelu_backward.default"][0].outcome) for t, o in found.items()} == {
        "inductor-like": ("opened", "opened"),
        "core": ("kept", "opened"),
        "none": ("kept", "kept"),
    }
    (gelu,) = found["inductor-like"]["aten.gelu.default"]
    assert gelu.text() == "opened   1 aten.gelu.default -> 1 aten.add.Tensor, 1 aten.erf.default, 3 aten.mul.Tensor (own-row)"
    for table, report in found.items():
        assert report.table == table and sum(r.count for r in report.rows) == len([t for t in targets(graph) if "getitem" not in t])
        assert report.text().splitlines()[0] == f"table {table}: {sum(r.count for r in report.rows if r.outcome == 'opened')} calls opened, " + (
            f"{sum(r.count for r in report.rows if r.outcome == 'kept')} kept"
        )
    with pytest.raises(InvalidIR):
        openings(graph)


@pytest.mark.parametrize("name", CORPUS)
def test_openings_account_for_every_node_that_is_read(name: str) -> None:
    program, make = CORPUS[name]
    result = decompose(functionalize(joint(traced(program), *make(torch.float32))))
    opened_ids = {s for d in result.decisions if d.outcome == "opened" for s in d.subject}
    nodes = [n for n in result.graph.nodes if n.op == "call_function" and n.users and opened_ids & set(n.meta["parents"])]
    assert sum(sum(r.into.values()) for r in openings(result).rows if r.outcome == "opened") == len(nodes)
