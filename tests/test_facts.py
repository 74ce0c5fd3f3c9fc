"""Facts about graphs ahead of time, each held on torch's own stack and on ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_lab
from compiler_lab.aot.decompose import decompose, rows_of
from compiler_lab.aot.decomposition_rows import NEVER
from compiler_lab.aot.functionalize import functionalize
from compiler_lab.aot.joint import joint
from compiler_lab.core.options import Options
from compiler_lab.graph.passes import eliminate_dead_code

from .aot_programs import Program, randn, traced, whole


def operators(graph: fx.Graph) -> list[str]:
    """``["t", "addmm"]``: the operators that are called, in order."""
    return [n.target._schema.name.split("::")[1] for n in graph.nodes if isinstance(n.target, torch._ops.OpOverload)]


def torchs_halves(program: Program, args: Sequence[Tensor], decompositions: Any = None) -> tuple[fx.Graph, fx.Graph | None]:
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import default_partition

    seen: list[fx.Graph] = []

    def keep(gm: fx.GraphModule, example_inputs: Any) -> Any:
        seen.append(gm.graph)
        return make_boxed_func(gm.forward)

    results = aot_function(program, fw_compiler=keep, bw_compiler=keep, partition_fn=default_partition, decompositions=decompositions)(*args)
    for result in results if isinstance(results, tuple) else (results,):
        if result.requires_grad:
            result.sum().backward()
            return seen[0], seen[1]
    return seen[0], None


def our_halves(program: Program, args: Sequence[Tensor], table: Any = None) -> tuple[fx.Graph, fx.Graph | None]:
    pure = functionalize(joint(whole(program, len(args)), *args))
    graph = eliminate_dead_code(decompose(pure, table) if table else pure)
    part = compiler_lab.partition(graph, Options(partitioner="default"))
    return part.forward.graph, None if part.backward is None else part.backward.graph


STACKS: dict[str, Callable[..., tuple[fx.Graph, fx.Graph | None]]] = {"torch": torchs_halves, "ours": our_halves}
CORE: dict[str, Callable[[], Any]] = {"torch": core_aten_decompositions, "ours": lambda: "core"}


@cache
def inductors() -> Any:
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


@pytest.mark.parametrize("stack", STACKS)
def test_linear_and_gelu_are_three_operators_forward_and_seven_backward(stack: str) -> None:
    args = [randn(2, 4), randn(4, 4, grad=True), randn(4, grad=True)]
    forward, backward = STACKS[stack](lambda x, w, b: F.gelu(F.linear(x, w, b)), args)
    assert backward is not None
    assert operators(forward) == ["t", "addmm", "gelu"]
    assert sorted(operators(backward)) == sorted(["gelu_backward", "t", "mm", "t", "sum", "view", "t"])


@pytest.mark.parametrize("stack", STACKS)
def test_core_aten_keeps_gelu_and_opens_its_backward(stack: str) -> None:
    forward, backward = STACKS[stack](lambda x: F.gelu(x), [randn(3, 4, grad=True)], CORE[stack]())
    assert backward is not None
    assert operators(forward) == ["gelu"]
    names = Counter(operators(backward))
    assert "gelu_backward" not in names and names["erf"] == 1 and names["exp"] == 1 and names["mul"] >= 5 and names["add"] == 2


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (4,), w, b)


@pytest.mark.parametrize("stack", STACKS)
def test_core_aten_keeps_layer_norm(stack: str) -> None:
    forward, _ = STACKS[stack](layer_norm, [randn(3, 4), randn(4), randn(4)], CORE[stack]())
    assert operators(forward) == ["native_layer_norm"]


def test_inductors_table_opens_layer_norm_and_so_does_ours() -> None:
    """Its row takes variance and mean in one operator, ours in two passes of means: what is around them is the same."""
    args = [randn(3, 4, dtype=torch.float32), randn(4, dtype=torch.float32), randn(4, dtype=torch.float32)]
    theirs, _ = torchs_halves(layer_norm, args, inductors())
    ours, _ = our_halves(layer_norm, args, "inductor-like")
    assert [n for n in operators(theirs)] == ["var_mean", "add", "rsqrt", "sub", "mul", "mul", "add"]
    assert [n for n in operators(ours)] == ["mean", "sub", "mul", "mean", "add", "rsqrt", "sub", "mul", "mul", "add"]


def test_core_aten_has_about_a_thousand_rows_and_ours_are_those_but_library_calls() -> None:
    theirs = {op for op in core_aten_decompositions() if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten"}
    ours = set(rows_of("core"))
    assert 900 < len(core_aten_decompositions()) < 1_100  # 956 in torch 2.13, 1,009 in 2.11; other libraries add a few of their own
    assert theirs - ours == {op for op in theirs if op._opname in NEVER}
    assert {op for op in ours if op.namespace != "aten"} >= {torch.ops.prims.convert_element_type.default}
    assert len(rows_of("none")) == 0


def test_functionalized_names() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y.add_(1)
        return y

    x = torch.randn(4)
    plain, pure = make_fx(program)(x), make_fx(torch.func.functionalize(program))(x)  # pyright: ignore[reportPrivateImportUsage]
    assert operators(plain.graph) == ["clone", "add_"] and operators(pure.graph) == ["clone", "add"]
    before = joint(traced(program), x)
    assert operators(before.graph) == ["clone", "add_"] and operators(functionalize(before).graph) == ["clone", "add"]


def test_mutation_and_view_as_the_seeds_of_the_pass_tell_it() -> None:
    """``x.add_(1); x.view(-1)``: the write becomes a value, the view is of that value, the value is copied back."""

    def program(x: Any) -> Any:
        x.add_(1)
        return x.view(-1) * 2

    after = functionalize(joint(traced(program), torch.randn(2, 3)))
    add, view, mul = (n for n in after.graph.nodes if n.op == "call_function")
    assert [str(n.target) for n in (add, view, mul)] == ["aten.add.Tensor", "aten.view.default", "aten.mul.Tensor"]
    assert view.args[0] is add and after.outputs == (add, mul, None) and after.spec.mutations == (0,)


@pytest.mark.parametrize("stack", STACKS)
def test_batch_norms_new_statistics_lead_the_outputs(stack: str) -> None:
    net = nn.BatchNorm2d(4)

    def program(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, count: Tensor) -> Tensor:
        names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        return torch.func.functional_call(net, dict(zip(names, (weight, bias, mean, var, count), strict=True)), (x,))

    args = [torch.randn(2, 4, 3, 3), *(p.detach().clone().requires_grad_() for p in net.parameters()), *(b.clone() for b in net.buffers())]
    forward, _ = STACKS[stack](program, args)
    assert operators(forward)[:2] == ["add", "_native_batch_norm_legit_functional"]
    returned: Any = forward.output_node().args[0]
    norm = next(n for n in forward.nodes if "batch_norm" in n.name)
    assert [n.args for n in returned[:2]] == [(norm, 3), (norm, 4)] and returned[2].target is torch.ops.aten.add.Tensor
