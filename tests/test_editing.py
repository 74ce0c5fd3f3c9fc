"""FX as the currency: two ways in, edits by hand, code that is out of date, and the difference of two graphs; beside torch where torch does it."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab import aot_autograd, diff_graphs, editing, symbolic_trace
from compiler_lab.core.errors import BackendFailed, InvalidIR, Unsupported
from compiler_lab.core.fx import GraphArtifact, fork
from compiler_lab.core.recompiled import old_line

from .corpus import CORPUS

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Swish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.lin(x)
        return y * torch.sigmoid(y) + self.lin.bias.sum()


def act(x: Tensor) -> Tensor:
    return torch.relu(x) * 2


# ------------------------------------------------------------------------------------------------------------ two ways in


def test_symbolic_trace_is_torchs_with_lines_and_shapes() -> None:
    model = Swish()
    graph = symbolic_trace(model, X)
    graph.check()
    assert [(n.op, n.target, n.name) for n in graph.graph.nodes] == [(n.op, n.target, n.name) for n in fx.symbolic_trace(model).graph.nodes]
    assert [n.op for n in graph.graph.nodes] == [
        "placeholder",
        "call_module",
        "call_function",
        "call_function",
        "get_attr",
        "call_method",
        "call_function",
        "output",
    ]
    torch.testing.assert_close(graph.run(X), model(X), rtol=0, atol=0)
    lines = {i.id: i.location.source for i in graph.items() if i.location}
    assert lines["fx/sigmoid"] == lines["fx/sum_1"] == "return y * torch.sigmoid(y) + self.lin.bias.sum()" and lines["fx/lin"] == "y = self.lin(x)"
    assert "lin_bias: f32[4] = self.lin.bias" in graph.text()


def test_capture_gives_the_same_artifact_with_modules_opened() -> None:
    model = Swish()
    graph = compiler_lab.capture(model, X).graphs[0]
    assert isinstance(graph, GraphArtifact) and not any(n.op in ("call_module", "get_attr") for n in graph.graph.nodes)
    assert any(n.op == "call_module" for n in symbolic_trace(model, X).graph.nodes)


def test_without_examples_check_asks_for_them() -> None:
    graph = symbolic_trace(act)
    with pytest.raises(InvalidIR, match=r"fx/x has no val(.|\n)*propagate_shapes"):
        graph.check()
    compiler_lab.propagate_shapes(graph, X).check()


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def test_the_limits_of_a_proxy() -> None:
    with pytest.raises(Unsupported, match=r"control flow(.|\n)*test_editing.py:\d+ in branch: if x.sum\(\) > 0:"):
        symbolic_trace(branch, X)

    def loops(x: Tensor) -> Tensor:
        for i in range(3):
            x = x + i
        return x

    assert sum(n.target is operator.add for n in symbolic_trace(loops, X).graph.nodes) == 3

    def baked(x: Tensor) -> Tensor:
        return x * float(np.random.rand())

    graph = symbolic_trace(baked, X)
    assert torch.equal(graph.run(X), graph.run(X))


def pinned(x: Tensor, up: bool) -> Tensor:
    return x + 1 if up else x - 1


def test_concrete_args_pin_a_branch_and_assert_it() -> None:
    graph = symbolic_trace(pinned, X, True, concrete_args={"up": True})
    graph.check()
    assert torch.equal(graph.run(X, True), X + 1)
    with pytest.raises(AssertionError, match="up has been specialized"):
        graph.run(X, False)


# ---------------------------------------------------------------------------------------------------------------- editing


def test_an_edit_by_hand_works_on_torchs_module() -> None:
    """The discipline of FX itself: insert after, replace all uses, erase, lint, recompile."""

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.lin(x)
            return y * torch.sigmoid(y)

    model = Plain()
    gm = fx.symbolic_trace(model)
    assert [n.op for n in gm.graph.nodes] == ["placeholder", "call_module", "call_function", "call_function", "output"]
    mine = symbolic_trace(model, X)
    with editing(mine) as edit:
        swap(edit.graph)
    swap(gm.graph)
    gm.graph.lint()
    gm.recompile()
    after = edit.result
    after.check()
    assert [n.target for n in after.graph.nodes] == [n.target for n in gm.graph.nodes] == ["x", "lin", F.silu, "output"]
    torch.testing.assert_close([after.run(X), after.module(X), gm(X)], [model(X)] * 3)
    assert "silu: f32[3, 4] = torch.nn.functional.silu(lin)" in after.text() and "sigmoid" in mine.text()
    (new,) = (i for i in after.items() if i.id == "fx/silu")
    assert new.parents == ("fx/sigmoid", "fx/mul") and new.location is not None and new.location.source == "return y * torch.sigmoid(y)"
    assert [(d.subject, d.outcome) for d in after.decisions] == [(("fx/sigmoid",), "erased"), (("fx/mul",), "erased"), (("fx/silu",), "added")]


def swap(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is operator.mul:
            y, sigmoid = node.args
            with graph.inserting_after(node):
                silu = graph.call_function(F.silu, (y,))
            node.replace_all_uses_with(silu)
            graph.erase_node(node)
            graph.erase_node(sigmoid)


def test_a_malformed_edit_is_named() -> None:
    graph = symbolic_trace(act, X)
    with pytest.raises(InvalidIR, match="the edited graph is malformed"), editing(graph) as edit:
        relu, mul = (n for n in edit.graph.nodes if n.op == "call_function")
        mul.append(relu)  # moved behind its user
    graph.check()


def test_edited_values_are_new() -> None:
    with editing(symbolic_trace(act, X)) as edit:
        relu = next(n for n in edit.graph.nodes if n.target is torch.relu)
        with edit.graph.inserting_after(relu):
            total = edit.graph.call_method("sum", (relu, 0))
        relu.replace_all_uses_with(total, delete_user_cb=lambda user: user is not total)
    assert "mul: f32[4] = operator.mul(sum_1, 2)" in edit.result.text()
    edit.result.check()


# --------------------------------------------------------------------------------------------------------- code out of date


def edit_only(gm: fx.GraphModule) -> fx.GraphModule:
    for node in gm.graph.nodes:
        if node.target in (torch.relu, torch.ops.aten.relu.default):
            node.target = torch.sigmoid if node.target is torch.relu else torch.ops.aten.sigmoid.default
    return gm


def test_the_trap_itself() -> None:
    gm = fx.symbolic_trace(act)
    assert old_line(gm) == ""
    edit_only(gm)
    torch.testing.assert_close(gm(X), act(X))  # the old program runs, silently
    assert old_line(gm) == "it runs `relu = torch.relu(x)` where the graph says `relu = torch.sigmoid(x)`"
    gm.recompile()
    torch.testing.assert_close(gm(X), torch.sigmoid(X) * 2)
    assert old_line(gm) == ""


def test_check_of_an_artifact_sees_it() -> None:
    graph = symbolic_trace(act, X)
    graph.check()
    edit_only(graph.module)
    assert not torch.equal(graph.run(X), graph.module(X))  # the interpreter reads the graph, the module runs its code
    with pytest.raises(InvalidIR, match=r"not recompiled(.|\n)*torch.relu(.|\n)*gm.recompile\(\)"):
        graph.check()
    graph.module.recompile()
    graph.check()


def closure(gm: fx.GraphModule, args: Any) -> Any:
    run = edit_only(gm).forward
    return lambda *inputs: run(*inputs)


def late(gm: fx.GraphModule, args: Any) -> Any:
    edit_only(gm)
    return lambda *inputs: gm(*inputs)


def taken_early(gm: fx.GraphModule, args: Any) -> Any:
    old = gm.forward
    edit_only(gm).recompile()
    return old


STALE: dict[str, Callable[[fx.GraphModule, Any], Any]] = {
    "module": lambda gm, a: edit_only(gm),
    "forward": lambda gm, a: edit_only(gm).forward,
    "partial": lambda gm, a: functools.partial(edit_only(gm).forward),
    "a copy": lambda gm, a: edit_only(fork(gm, "mine")),
    "closure": closure,
    "at run time": late,
    "taken early": taken_early,
}


def recompiled(gm: fx.GraphModule, args: Any) -> Any:
    edit_only(gm).recompile()
    return gm


FRESH: dict[str, Callable[[fx.GraphModule, Any], Any]] = {
    "recompiled": recompiled,
    "interpreter": lambda gm, a: fx.Interpreter(edit_only(gm)).run,
    "a module of its own": lambda gm, a: fx.GraphModule(edit_only(gm), gm.graph).forward,
    "recompiled at the end": lambda gm, a: (edit_only(gm), gm.recompile(), gm.forward)[-1],
}


@pytest.mark.parametrize("name", STALE)
@pytest.mark.parametrize("below", [False, True], ids=["backend", "inner compiler"])
def test_a_backend_that_forgot_recompile_is_told(name: str, below: bool) -> None:
    backend = aot_autograd(STALE[name]) if below else STALE[name]
    with pytest.raises(BackendFailed, match=r"(?s)was not recompiled.*recompile\(\)"):
        compiler_lab.compile(act, backend=backend, fullgraph=True)(X)


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("below", [False, True], ids=["backend", "inner compiler"])
def test_what_runs_the_edited_graph_is_let_through(name: str, below: bool) -> None:
    backend = aot_autograd(FRESH[name]) if below else FRESH[name]
    torch.testing.assert_close(compiler_lab.compile(act, backend=backend)(X), torch.sigmoid(X) * 2)


@pytest.mark.parametrize("looked", [False, True])
def test_torch_compile_runs_the_old_program_if_somebody_has_looked_at_it(looked: bool) -> None:
    """There a graph's code is written when it is first asked for: an edit before that is seen, an edit after it is not."""

    def backend(gm: fx.GraphModule, args: Any) -> Any:
        assert not looked or "relu" in gm.code
        return edit_only(gm)

    torch._dynamo.reset()
    try:
        torch.testing.assert_close(torch.compile(act, backend=backend)(X), act(X) if looked else torch.sigmoid(X) * 2)
    finally:
        torch._dynamo.reset()


def test_a_pass_of_the_pipeline_that_forgot_recompile_is_told() -> None:
    from compiler_lab.core.options import Options
    from compiler_lab.pipeline import Pass, Runner

    def forgetful(graph: GraphArtifact, options: Options) -> GraphArtifact:
        return GraphArtifact(edit_only(fork(graph.module, graph.stage)), graph.stage)

    run = Runner(Options(check=True), None)
    with pytest.raises(InvalidIR, match="not recompiled"):
        run.passes((Pass("forgetful", forgetful),), symbolic_trace(act, X))


@pytest.mark.parametrize("name", list(CORPUS)[::6])
def test_no_graph_of_ours_is_out_of_date(name: str) -> None:
    fn, args = CORPUS[name]()
    trace = compiler_lab.inspect(fn, *args, backend="aot_eager_decomp")
    graphs = [s.after for s in trace.steps if isinstance(s.after, GraphArtifact)]
    assert graphs and [old_line(g.module) for g in graphs] == [""] * len(graphs)


# ------------------------------------------------------------------------------------------------------------- difference


def test_a_graph_and_its_copy_do_not_differ() -> None:
    graph = compiler_lab.capture(Swish(), X).graphs[0]
    for other in (graph, GraphArtifact(copy.deepcopy(graph.module), graph.stage)):
        diff = diff_graphs(graph, other)
        assert not diff and diff.text() == f"{len(graph.graph.nodes)} kept"


def test_the_difference_of_a_pass() -> None:
    graph = symbolic_trace(lambda x: (x * torch.sigmoid(x)).exp(), X)
    diff = diff_graphs(graph, compiler_lab.fuse_silu(graph))
    assert diff.text() == "\n".join(
        [
            "2 removed, 1 added, 1 rewired, 2 kept",
            "- sigmoid: f32[3, 4] = torch.sigmoid(x)",
            "- mul: f32[3, 4] = operator.mul(x, sigmoid)",
            "+ silu: f32[3, 4] = torch.nn.functional.silu(x, inplace=False)    from fx/sigmoid, fx/mul",
            "- exp: f32[3, 4] = .exp(mul)",
            "> exp: f32[3, 4] = .exp(silu)",
        ]
    )
    assert [c.id for c in diff.of("added")] == ["fx/silu"] and diff.of("added")[0].made_of == ("fx/sigmoid", "fx/mul")


def test_the_difference_of_two_stages() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y.add_(1)
        return y.exp()

    joint = compiler_lab.joint(compiler_lab.capture(f, X).graphs[0], X)
    pure = compiler_lab.functionalize(joint)
    diff = diff_graphs(joint, pure)
    assert [(c.kind, c.before, c.after) for c in diff.changes] == [
        ("changed", "add_: f32[3, 4] = aten.add_.Tensor(clone, 1)", "add: f32[3, 4] = aten.add.Tensor(clone, 1)")
    ]
    assert diff.kept == len(joint.graph.nodes) - 1


@pytest.mark.parametrize("change", ["constant", "target", "operand"])
def test_what_changed_in_a_node(change: str) -> None:
    graph = symbolic_trace(lambda x, y: (x.exp(), torch.add(x.neg(), 2)), X, X)
    with editing(graph) as edit:
        add = next(n for n in edit.graph.nodes if n.target is torch.add)
        if change == "constant":
            add.args = (add.args[0], 3)
        elif change == "target":
            add.target = torch.sub
        else:
            add.args = (next(n for n in edit.graph.nodes if n.target == "exp"), 2)
    diff = diff_graphs(graph, edit.result)
    assert [c.kind for c in diff.changes] == ["rewired" if change == "operand" else "changed"]
    assert diff.text() == diff_graphs(graph, edit.result).text()


@pytest.mark.parametrize("name", list(CORPUS)[::9])
def test_differences_along_the_pipeline(name: str) -> None:
    """Of each step: nodes kept, changed and rewired are in both graphs, removed and added ones in one; all are accounted for."""
    fn, args = CORPUS[name]()
    for step in compiler_lab.inspect(fn, *args, backend="aot_eager_decomp").steps:
        if isinstance(step.before, GraphArtifact) and isinstance(step.after, GraphArtifact):
            diff = diff_graphs(step.before, step.after)
            both = diff.kept + len(diff.of("changed")) + len(diff.of("rewired"))
            assert both + len(diff.of("removed")) == len(step.before.graph.nodes) and both + len(diff.of("added")) == len(step.after.graph.nodes)
