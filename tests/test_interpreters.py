"""Interpreters see every node and change nothing; what they find is what a plain run finds; a transformer is a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.fx.passes.shape_prop import ShapeProp

import compiler_lab
from compiler_lab import count_calls, find_nonfinite, op_histogram, propagate_shapes, symbolic_trace, time_nodes, transform
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.provenance import stack_of

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
aten: Any = torch.ops.aten


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l1, self.l2 = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.l2(torch.relu(self.l1(x))) + 1.0


# --------------------------------------------------------------------------------------------------------------- counting


def test_calls_that_are_made_are_those_of_the_graph() -> None:
    model = Mlp()
    graph = symbolic_trace(model, X)
    counted, written = count_calls(graph, X), op_histogram(graph)
    assert counted.kinds == written.kinds == Counter({"call_module": 2, "call_function": 2})
    assert counted.operators == written.operators == Counter({"l1": 1, "l2": 1, "torch.relu": 1, "operator.add": 1})
    torch.testing.assert_close(counted.result, model(X), rtol=0, atol=0)
    assert counted.text() == "4 calls\n    1  l1\n    1  l2\n    1  operator.add\n    1  torch.relu"


def test_a_subclass_of_torchs_interpreter_runs_our_graphs() -> None:
    class Counting(fx.Interpreter):
        calls: Counter[str] = Counter()

        def run_node(self, n: fx.Node) -> Any:
            self.calls[n.op] += n.op.startswith("call")
            return super().run_node(n)

    model = Mlp()
    for graph in (symbolic_trace(model, X), compiler_lab.capture(model, X).graphs[0]):
        Counting.calls = Counter()
        args = [X] if len(graph.placeholders) == 1 else [X, model.l1.weight, model.l1.bias, model.l2.weight, model.l2.bias]
        Counting(graph.module).run(*args)
        assert +Counting.calls == op_histogram(graph).kinds


# ----------------------------------------------------------------------------------------------------------------- timing


def test_times_of_nodes() -> None:
    def f(x: Tensor) -> Tensor:
        y = x + torch.rand(5, 6)
        y.add_(1)
        return x.mul_(2) + y

    x = X.clone()
    graph = symbolic_trace(f, x)
    state = torch.get_rng_state()
    times = time_nodes(graph, x, repeats=4)
    assert torch.equal(x, X) and torch.equal(state, torch.get_rng_state())
    assert [t.id for t in times.nodes] == [f"fx/{n.name}" for n in graph.graph.nodes if n.op.startswith("call")]
    assert all(t.seconds > 0 for t in times.nodes) and sum(t.share for t in times.nodes) == pytest.approx(1) and times.repeats == 4
    assert times.total == pytest.approx(sum(t.seconds for t in times.nodes))
    assert [t.seconds for t in times.slowest(2)] == sorted((t.seconds for t in times.nodes), reverse=True)[:2]
    assert "medians of 4 runs" in times.text() and "x.mul_(2)" in times.text() and "<pre>" in times._repr_mimebundle_()["text/html"]


# ------------------------------------------------------------------------------------------------------- NaN and infinity


def log_of_difference(x: Tensor) -> Tensor:
    y = x - x[0]
    z = torch.log(y)
    return z.sin() + 1


def test_the_first_node_that_makes_one_is_found_with_its_inputs() -> None:
    for graph in (symbolic_trace(log_of_difference, X), compiler_lab.capture(log_of_difference, X).graphs[0]):
        report = find_nonfinite(graph, X)
        found = report.found
        assert found is not None and found.id == f"{graph.stage}/log" and found.what == "NaN and infinity" and found.first == (0, 0)
        assert found.location is not None and found.location.source == "z = torch.log(y)"
        (y,) = found.inputs
        assert y.name == "sub" and y.at == 0.0 and y.low == pytest.approx(float((X - X[0]).min()))
        bad = ~torch.log(X - X[0]).isfinite()
        assert (found.count, found.size) == (int(bad.sum()), 30) and report.ran == 3 and report.result is None
        assert f"log makes NaN and infinity from finite inputs: {found.count} of 30 elements, the first at [0, 0]" in report.text()


def _masked(x: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(x > 0, float("-inf")), -1)


def _written(x: Tensor) -> Tensor:
    y = x.clone()
    y.div_(0)
    return x


def _written_out(x: Tensor) -> Tensor:
    y = x.clone()
    torch.div(x, 0, out=y)
    return x + 1


def _through_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[0].fill_(0).log_()
    return y


def _overflow(x: Tensor) -> Tensor:
    return (x.abs() + 100).exp()


@pytest.mark.parametrize(
    ("f", "node"),
    [
        (_masked, None),
        (_written, "div_"),
        (_written_out, "div"),
        (_through_a_view, "log_"),
        (_overflow, "exp"),
        (lambda x: x + 1, None),
        (lambda x: x.int() + 1, None),
    ],
)
def test_who_is_to_blame(f: Callable[..., Any], node: str | None) -> None:
    graph = symbolic_trace(f, X)
    x = X.clone()
    report = find_nonfinite(graph, x)
    assert torch.equal(x, X) and (report.found.id if report.found else None) == (f"fx/{node}" if node else None)
    if node is None:
        torch.testing.assert_close(report.result, f(X))
        assert report.text() == f"no node makes NaN or infinity from finite inputs; {report.ran} ran"


def test_what_came_bad_is_not_blamed() -> None:
    graph = symbolic_trace(lambda x, y: x * 2 + y.log(), X, X)
    report = find_nonfinite(graph, X * float("nan"), X.abs())
    assert report.found is None and report.given == ("x",)
    report = find_nonfinite(graph, X * float("nan"), X.abs() * 0)
    assert report.found is not None and report.found.id == "fx/log"


def test_a_module_with_a_bad_weight_is_not_blamed() -> None:
    model = Mlp()
    with torch.no_grad():
        model.l1.weight[0, 0] = float("inf")
    assert find_nonfinite(symbolic_trace(model, X), X).found is None
    with torch.no_grad():
        model.l1.weight[0, 0] = 3e38
    found = find_nonfinite(symbolic_trace(model, X), X * 1e5).found
    assert found is not None and found.id == "fx/l1"


def test_a_backward_is_hunted_too() -> None:
    x = torch.zeros(3, requires_grad=True)
    graph = compiler_lab.capture(lambda x: torch.sqrt(x), x).graphs[0]
    part = compiler_lab.partition(compiler_lab.functionalize(compiler_lab.joint(graph, x)))
    assert part.backward is not None
    saved = part.forward.run(x)[1:]
    report = find_nonfinite(part.backward, *saved, torch.ones(3))
    assert report.found is not None and report.found.what == "infinity" and report.found.id.startswith("aot.backward/div")


# ----------------------------------------------------------------------------------------------------------------- shapes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.bn(self.conv(x)).relu()
        y = y.permute(0, 2, 3, 1).flatten(1, 2).mean(1)
        return self.head(y.double()), self.conv.weight.argmax()


def test_shapes_are_those_of_shapeprop() -> None:
    model, x = Net(), torch.randn(2, 3, 8, 8)
    graph = propagate_shapes(symbolic_trace(model), x)
    graph.check()
    assert all(not b.any() for n, b in model.bn.named_buffers() if n != "running_var")
    oracle = fx.symbolic_trace(model)
    ShapeProp(oracle).propagate(x)
    compared = 0
    for ours, theirs in zip(graph.graph.nodes, oracle.graph.nodes, strict=True):
        meta = theirs.meta.get("tensor_meta")
        if meta is not None and ours.op != "output":
            val = ours.meta["val"]
            assert (val.shape, val.dtype, val.stride()) == (meta.shape, meta.dtype, meta.stride), ours
            compared += 1
    assert compared == len(graph.graph.nodes) - 1


def test_values_stay_what_they_were_when_the_node_ran() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y.unsqueeze_(0)
        return y.t_() if y.dim() == 2 else y + 1  # pyright: ignore[reportUnknownVariableType]

    with pytest.raises(Unsupported, match="control flow"):
        symbolic_trace(f, X)
    graph = symbolic_trace(lambda x: x.clone().unsqueeze_(0) + 1, X)
    assert "clone: f32[5, 6] = .clone(x)" in graph.text() and "unsqueeze_: f32[1, 5, 6]" in graph.text()


def test_what_depends_on_data_has_no_shape() -> None:
    def f(x: Tensor) -> Tensor:
        return x.nonzero() + 1

    with pytest.raises(Unsupported, match=r"nonzero has no shape before it has run(.|\n)*return x.nonzero\(\) \+ 1"):
        symbolic_trace(f, X)


def test_gradients_are_known_to_be_wanted() -> None:
    graph = symbolic_trace(lambda x: x * 2, X.clone().requires_grad_())
    assert [n.meta["val"].requires_grad for n in graph.graph.nodes if n.op != "output"] == [True, True]


# ---------------------------------------------------------------------------------------------------------- transformers


class ToGelu(fx.Transformer):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(F.gelu if target is torch.relu else target, args, kwargs)


class DoubleTanh(fx.Transformer):
    """One call becomes two."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().call_function(target, args, kwargs)
        return super().call_function(torch.tanh, (value,), {}) if target is torch.relu else value


class NoClones(fx.Transformer):
    """A call becomes none."""

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return args[0] if target == "clone" else super().call_method(target, args, kwargs)


class ToDouble(fx.Transformer):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_method("double", args, {}) if target is torch.relu else super().call_function(target, args, kwargs)


def body(x: Tensor) -> Tensor:
    y = torch.relu(x.clone())
    return torch.tanh(y) + torch.relu(y.clone()) * 2


@pytest.mark.parametrize(
    ("transformer", "expected", "decisions"),
    [
        (ToGelu, lambda x: (y := F.gelu(x)).tanh() + F.gelu(y) * 2, [("relu", "replaced"), ("relu_1", "replaced")]),
        (DoubleTanh, lambda x: (y := x.relu().tanh()).tanh() + y.relu().tanh() * 2, [("relu", "replaced"), ("relu_1", "replaced")]),
        (NoClones, body, [("clone", "removed"), ("clone_1", "removed")]),
        (ToDouble, lambda x: (y := x.double()).tanh() + y.double() * 2, [("relu", "replaced"), ("relu_1", "replaced")]),
    ],
)
def test_a_transformer_is_a_pass(transformer: type[fx.Transformer], expected: Callable[..., Any], decisions: list[tuple[str, str]]) -> None:
    for trace in (lambda f: symbolic_trace(f, X), lambda f: compiler_lab.capture(f, X).graphs[0]):
        graph = trace(body)
        text = graph.text()
        after = transform(graph, transformer)
        after.check()
        assert graph.text() == text
        got = after.run(X)
        torch.testing.assert_close(got[0] if isinstance(got, tuple) else got, expected(X))
        torch.testing.assert_close(after.module(X), got)
        assert [(d.subject[0].split("/")[1], d.outcome) for d in after.decisions if d.kind == "transform"] == decisions
        names = [n.name for n in after.graph.nodes]
        assert len(set(names)) == len(names)
        kept = {n.name: n.target for n in graph.graph.nodes} | {}
        assert all(n.target == kept[n.name] or n.name not in kept for n in after.graph.nodes if n.name in ("tanh", "add"))
        fresh = propagate_shapes(after, X)  # the values that it carried are those of the graph that it made
        assert fresh.text() == after.text()
        assert all(stack_of(n) for n in after.graph.nodes)


def test_a_transformer_that_changes_nothing_gives_the_same_graph() -> None:
    for graph in (symbolic_trace(Mlp(), X), compiler_lab.capture(body, X).graphs[0], _joint()):
        after = transform(graph, fx.Transformer)
        assert after.text() == graph.text() and after.decisions == graph.decisions
        assert [i.parents for i in after.items()] == [i.parents for i in graph.items()]


def _joint() -> GraphArtifact:
    x = X.clone().requires_grad_()
    return compiler_lab.joint(compiler_lab.capture(body, x).graphs[0], x)
