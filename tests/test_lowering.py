"""Lowering: what stays with aten, whole programs against eager, and the artifact itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compiler_lab.core.errors import InvalidIR, Mismatch, Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.lowering import ops
from compiler_lab.lowering.index import Index
from compiler_lab.lowering.ir import ExternNode, LoopNode
from compiler_lab.lowering.lower import ELEMENTWISE, ROWS, lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.lowering.table import lowering_table

from .lowering_cases import assert_as_aten, assert_same, aten, call_graph, op_of, reasons, traced

# ---- what stays with aten ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("aten.mm.default", (torch.randn(3, 4), torch.randn(5, 4).t()), "library call"),
        ("aten.addmm.default", (torch.randn(5), torch.randn(3, 4), torch.randn(4, 5)), "library call"),
        ("aten.bmm.default", (torch.randn(2, 3, 4), torch.randn(2, 4, 5)), "library call"),
        ("aten.convolution.default", (torch.randn(1, 2, 5), torch.randn(3, 2, 3), None, [1], [0], [1], False, [0], 1), "library call"),
        ("aten.digamma.default", (torch.randn(3, 4),), "no row"),
        ("aten.sort.default", (torch.randn(3, 4),), "library call"),
        ("aten.topk.default", (torch.randn(3, 4), 2), "library call"),
        ("aten.native_layer_norm.default", (torch.randn(3, 4), [4], torch.ones(4), None, 1e-5), "no row"),
        ("aten.add.Tensor", (torch.randn(3, dtype=torch.complex64), torch.randn(3)), "dtype"),
        ("aten.logsumexp.default", (torch.randn(0, 3), [0]), "empty"),
        ("aten.view_as_real.default", (torch.randn(3, dtype=torch.complex64),), "no row"),
        ("aten.where.Scalar", (torch.tensor([True, False]), 1.0, 2.0), "no row"),
    ],
)  # fmt: skip
def test_calls_without_a_row_stay_with_aten(name: str, args: tuple[Any, ...], reason: str) -> None:
    program = assert_as_aten(op_of(name), *args, rtol=1e-6, atol=1e-6)
    assert reasons(program) == [reason]
    (node,) = program.nodes
    assert isinstance(node, ExternNode) and str(node.target) == name
    assert [d.outcome for d in program.decisions] == ["extern"]


def test_an_unknown_view_names_the_buffer_it_shares() -> None:
    program = assert_as_aten(aten.view_as_real.default, torch.randn(3, dtype=torch.complex64))
    (node,) = program.nodes
    assert isinstance(node, ExternNode)
    assert node.aliases == ("x0",)


def test_mutation_is_refused() -> None:
    with pytest.raises(Unsupported, match="writes its argument") as caught:
        lower(traced(lambda x: x.add_(1), torch.randn(3)))
    assert caught.value.reason == "mutation" and "functionalize" in caught.value.hint


# ---- whole programs ---------------------------------------------------------------------------------------------------------------


def block(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, g: Tensor, beta: Tensor, wq: Tensor) -> Tensor:
    h = torch.nn.functional.layer_norm(x, (x.shape[-1],), g, beta)
    q, k, v = (h @ wq).chunk(3, -1)
    heads = [t.view(t.shape[0], t.shape[1], 2, -1).transpose(1, 2) for t in (q, k, v)]
    attended = torch.nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True).transpose(1, 2).reshape(x.shape)
    x = x + attended
    return x + torch.nn.functional.gelu(torch.nn.functional.linear(x, w1, b1)) @ w2


def block_inputs() -> tuple[Tensor, ...]:
    t, d = 6, 8
    return torch.randn(2, t, d), torch.randn(4 * d, d), torch.randn(4 * d), torch.randn(4 * d, d), torch.randn(d), torch.randn(d), torch.randn(d, 3 * d)


def train(*args: Tensor) -> list[Tensor]:
    leaves = [a.detach().requires_grad_() for a in args]
    out = block(*leaves)
    loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), torch.arange(12) % 8)
    return [loss, *torch.autograd.grad(loss, leaves)]


def core_table() -> Any:
    from torch._decomp import core_aten_decompositions, get_decompositions

    table = {**core_aten_decompositions(), **get_decompositions([aten.native_layer_norm, aten.native_layer_norm_backward])}
    del table[aten._scaled_dot_product_flash_attention_for_cpu.default]  # it leaves the logsumexp that the backward reads undefined
    return table


def test_a_training_step_of_a_gpt_block_leaves_only_library_calls() -> None:
    args = block_inputs()
    graph = traced(train, *args, decompositions=core_table())
    program = lower(graph)
    program.check()
    left = {str(n.target) for n in program.nodes if isinstance(n, ExternNode)}
    attention = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert left <= {"aten.mm.default", "aten.addmm.default", "aten.bmm.default", f"{attention}.default", f"{attention}_backward.default"}
    for got, want in zip(program.run(*args), train(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()
    ids = {f"aot.forward/{n.name}" for n in graph.graph.nodes}
    for item in program.items():
        assert item.parents and set(item.parents) <= ids
    assert len({item.id for item in program.items()}) == len(program.items())


UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.relu,
    torch.exp,
    torch.sigmoid,
    lambda x: x.transpose(0, 1),
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x.amax(0, keepdim=True),
    lambda x: x[1:],
    lambda x: x.reshape(-1, 2) if x.numel() % 2 == 0 else x,
    lambda x: x.to(torch.float64),
    lambda x: (x > 0).to(x.dtype),
    lambda x: torch.softmax(x, 0),
    lambda x: x.flip(0),
    lambda x: torch.nn.functional.pad(x, [1, 2]),
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 2)]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12), st.booleans())
def test_random_programs_equal_eager(steps: list[tuple[int, int, int]], strided: bool) -> None:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        made = [x, y]
        for op, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            if op % 2 == 0 and 0 not in a.shape:
                made.append(UNARY[(op // 2) % len(UNARY)](a))
            elif all(n == m or 1 in (n, m) for n, m in zip(a.shape, b.shape, strict=True)):
                made.append(BINARY[(op // 2) % len(BINARY)](a, b))
        return tuple(m for m in made[2:] if 0 not in m.shape)

    x, y = torch.randn(4, 6), torch.randn(6, 4).t() if strided else torch.randn(4, 6)
    graph = traced(run, x, y)
    program = lower(graph)
    program.check()
    for got, want in zip(program.run(x, y), run(x, y), strict=True):
        assert_same(got, want, program.text(), rtol=3e-6, atol=1e-6)


# ---- the artifact -----------------------------------------------------------------------------------------------------------------


def add_program() -> LoopProgram:
    return assert_as_aten(aten.add.Tensor, torch.randn(4, 6), torch.randn(6))


def test_text_reads_as_loops() -> None:
    assert add_program().text() == (
        "x0: f32[4, 6] = input\n"
        "x1: f32[6] = input\n"
        "buf0: f32[4, 6] = add for i0 in 4, i1 in 6:\n"
        "  tmp0: f32 = load(x0, 6*i0 + i1)\n"
        "  tmp1: f32 = load(x1, i1)\n"
        "  tmp2: f32 = add(tmp0, tmp1)\n"
        "  store(buf0, 6*i0 + i1, tmp2)\n"
        "return (buf0,)"
    )
    assert [i.id for i in add_program().items()] == ["lowering.forward/buf0", *(f"lowering.forward/buf0:{n}" for n in range(4))]


def test_stage_follows_the_graphs() -> None:
    graph, _ = call_graph(aten.neg.default, torch.randn(3))
    for stage, expected in (
        ("aot.forward", "lowering.forward"),
        ("aot.backward", "lowering.backward"),
        ("aot.decomposed", "lowering.decomposed"),
        ("frames", "lowering.frames"),
    ):
        assert lower(GraphArtifact(graph.module, stage)).stage == expected


def damage(program: LoopProgram, change: Callable[[fx.Graph], None]) -> None:
    (node,) = program.nodes
    assert isinstance(node, LoopNode)
    change(node.body)


def set_index(target: Any, index: Index) -> Callable[[fx.Graph], None]:
    def change(body: fx.Graph) -> None:
        n = next(n for n in body.nodes if n.target is target)
        n.args = (n.args[0], index, *n.args[2:])

    return change


def first(body: fx.Graph, target: Any) -> fx.Node:
    return next(n for n in body.nodes if n.target is target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_index(ops.load, Index((), 24)), "outside its 24 elements"),
        (set_index(ops.load, Index((), -1)), "outside its 24 elements"),
        (set_index(ops.store, Index((), 24)), "outside its 24 elements"),
        (lambda body: body.erase_node(first(body, ops.store)), "0 stores"),
        (lambda body: first(body, ops.load).meta.pop("dtype"), "has no dtype"),
        (lambda body: first(body, ops.load).update_arg(0, "nowhere"), "not defined"),
        (lambda body: first(body, ops.load).meta.update(dtype=torch.int64), "holds torch.float32"),
        (lambda body: first(body, ops.add).meta.update(dtype=torch.float64), "holds torch.float32"),
        (lambda body: first(body, ops.store).update_arg(0, "x0"), "not to its own buffer"),
    ],
)
def test_check_names_what_is_wrong(change: Callable[[fx.Graph], Any], message: str) -> None:
    program = add_program()
    damage(program, change)
    with pytest.raises(InvalidIR, match=message):
        program.check()


def test_run_refuses_other_layouts() -> None:
    program = add_program()
    with pytest.raises(Mismatch, match="input x0"):
        program.run(torch.randn(6, 4).t(), torch.randn(6))
    with pytest.raises(Mismatch, match="takes 2 inputs"):
        program.run(torch.randn(4, 6))


def test_outputs_have_eagers_strides_and_identity() -> None:
    x = torch.randn(3, 4)
    program = lower(traced(lambda a: (a, a.t(), (a + 1).t(), a.new_tensor(3)), x))
    program.check()
    same, turned, moved, _ = program.run(x)
    assert same is x and turned.data_ptr() == x.data_ptr()
    assert (turned.stride(), moved.stride()) == ((1, 4), (1, 4))


def test_constants_are_buffers() -> None:
    table = torch.randn(3)
    program = lower(traced(lambda x: x * table + table, torch.randn(3), mode="real"))
    program.check()
    assert len(program.constants) == 1 and program.buffers.keys() >= program.constants.keys()
    x = torch.randn(3)
    assert torch.equal(program.run(x)[0], x * table + table)


def test_names_of_inputs_are_left_alone() -> None:
    graph, inputs = call_graph(aten.neg.default, torch.randn(3))
    next(iter(graph.graph.nodes)).name = "buf0"
    program = lower(graph)
    program.check()
    assert [n.name for n in program.nodes] == ["buf1"]
    assert torch.equal(program.run(*inputs)[0], -inputs[0])


def test_importing_and_lowering_stay_light() -> None:
    code = (
        "import sys, torch, torch.fx as fx\n"
        "before = set(sys.modules)\n"
        "from compiler_lab.lowering.lower import lower\n"
        "from compiler_lab.core.fx import GraphArtifact\n"
        "g = fx.Graph(); x = g.placeholder('x'); y = g.call_function(torch.ops.aten.gelu.default, (x,)); g.output((y,))\n"
        "for n in g.nodes: n.meta.update(val=torch.randn(3, 4), stack=(), parents=())\n"
        "p = lower(GraphArtifact(fx.GraphModule(torch.nn.Module(), g), 'aot.forward')); p.check(); p.run(torch.randn(3, 4)); p.text()\n"
        "new = {m.split('.')[0] + '.' + m.split('.')[1] if '.' in m else m for m in set(sys.modules) - before}\n"
        "print(sorted(m for m in new if m in ('sympy', 'torch._dynamo', 'torch._inductor', 'numpy')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


def test_the_table_counts_what_the_decisions_say() -> None:
    program = lower(traced(lambda x: (x.cumsum(0) @ x.t().contiguous()).digamma().sort().values + x.new_ones(()), torch.randn(4, 4)))
    table = lowering_table(program)
    table.check()
    rows = {r.operator: r for r in table.rows}
    ways = {
        op: (rows[op].way, rows[op].calls) for op in ("aten.cumsum.default", "aten.mm.default", "aten.digamma.default", "aten.sort.default", "aten.t.default")
    }
    assert ways == {
        "aten.cumsum.default": ("scan", 1), "aten.mm.default": ("library", 1), "aten.digamma.default": ("fallback", 1), "aten.sort.default": ("library", 1),
        "aten.t.default": ("view", 1),
    }  # fmt: skip
    assert rows["aten.digamma.default"].fallbacks == {"no row": 1} and "fallback: 1 operators, 1 calls" in table.text()
    assert {*ROWS, *ELEMENTWISE} <= {r.operator for r in lowering_table().rows} and lowering_table().text() == lowering_table().text()
