"""The joint graph: what it computes, where its nodes come from, what it says of inputs and outputs, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_lab.aot.fake import ALIKE, DIRECT, Fakes
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.joint import REASONS, joint
from compiler_lab.aot.layouts import LAYOUTS
from compiler_lab.aot.tracer import laid_out_alike
from compiler_lab.core.errors import Unsupported

from .aot_programs import CORPUS, assert_same, call, eager, execute, gpt, gpt_args, mlp, mlp_args, randn, set_grad, traced, whole

aten = torch.ops.aten


@pytest.mark.parametrize("name", CORPUS)
def test_computes_what_eager_autograd_computes(name: str) -> None:
    program, make = CORPUS[name]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        args = make(dtype)
        graph = joint(traced(program), *args)
        graph.check()
        assert_same(eager(program, args, graph), execute(graph, args), tolerance)


@pytest.mark.parametrize("name", CORPUS)
def test_every_node_comes_from_a_line_of_the_program(name: str) -> None:
    program, make = CORPUS[name]
    module = traced(program)
    ids = {f"frames/{n.name}" for n in module.graph.nodes}
    for item in joint(module, *make(torch.float64)).items():
        assert item.parents and set(item.parents) <= ids, f"{item.id} comes from {item.parents}"
        assert item.location is not None and item.location.file == program.__code__.co_filename, f"{item.id} has no line"


def lines(graph: JointGraph, operator_name: str) -> list[str]:
    return [n.meta["parents"][0] for n in graph.graph.nodes if str(n.target) == operator_name]


def test_backward_nodes_belong_to_the_line_whose_gradient_they_compute() -> None:
    def program(x: Any, w: Any) -> Any:
        a = torch.sin(x)
        b = torch.exp(w)
        return (a * b).sum()

    graph = joint(traced(program), randn(3, grad=True), randn(3, grad=True))
    assert lines(graph, "aten.cos.default") == ["frames/sin"]
    assert lines(graph, "aten.expand.default") == ["frames/sum_1"]
    assert lines(graph, "aten.mul.Tensor") == ["frames/mul", "frames/mul", "frames/mul", "frames/exp", "frames/sin"]


def test_a_sum_of_gradients_belongs_to_the_value_it_is_the_gradient_of() -> None:
    def program(x: Any, w: Any) -> Any:
        a = torch.tanh(x)
        return torch.sin(a) + torch.cos(a) + w, torch.exp(w)

    graph = joint(traced(program), randn(3, grad=True), randn(3, grad=True))
    forward, backward = lines(graph, "aten.add.Tensor")[:2], lines(graph, "aten.add.Tensor")[2:]
    assert forward == ["frames/add", "frames/add_1"]
    assert sorted(backward) == ["frames/tanh", "frames/w"]


def test_agrees_with_make_fx_on_what_is_recorded() -> None:
    """The same operators in the same numbers, but for the detaches that make_fx keeps."""
    args = gpt_args(torch.float32)
    graph = joint(traced(gpt), *args)

    def both(args: list[Tensor], tangents: list[Tensor]) -> Any:
        outputs = gpt(*args)
        return outputs, torch.autograd.grad(outputs, [a for a in args if a.requires_grad], tangents, allow_unused=True)

    oracle = make_fx(both, tracing_mode="fake")(args, [torch.ones(()), torch.ones(2, 6, 11)])

    def count(module: fx.Graph) -> dict[str, int]:
        names = [str(n.target) for n in module.nodes if n.op == "call_function"]
        return {n: names.count(n) for n in sorted(set(names)) if n not in ("aten.detach.default", "<built-in function getitem>")}

    assert count(graph.graph) == count(oracle.graph)


def test_inference_mode_and_no_grad_record_the_same() -> None:
    module, args = traced(mlp), mlp_args(torch.float32)
    with torch.no_grad():
        plain = joint(module, *args)
    with torch.inference_mode():
        inference = joint(module, *args)
        born_in_inference = joint(module, *(a.clone() for a in args))
    assert plain.text() == inference.text() == born_in_inference.text()
    assert plain.spec.tangents == () and not any(plain.spec.needs_grad)
    assert plain.decisions[-1].reason == "no-grad-mode"
    assert joint(module, *args, grad_enabled=False).text() == plain.text()


def test_takes_recorded_values_and_user_arguments() -> None:
    class Source:
        def __init__(self, kind: str, base: Any = None) -> None:
            self.kind, self.base = kind, base

    args = mlp_args(torch.float32)
    by_args = joint(traced(mlp), *args)
    module = traced(mlp)
    for node, recorded in zip((n for n in module.graph.nodes if n.op == "placeholder"), by_args.placeholders, strict=False):
        node.meta["val"] = recorded.meta["val"].clone().requires_grad_(node.name != "x")
    assert joint(module).text() == by_args.text()
    root = Source("local")
    from compiler_lab.core.fx import GraphArtifact

    captured = type("Captured", (GraphArtifact,), {"inputs": (root, *(Source("attr", root) for _ in args[1:]))})(module, "frames")
    assert joint(captured, args[0]).text() == by_args.text()
    with pytest.raises(Unsupported) as caught:
        joint(captured, *args[:2])
    assert caught.value.reason == "missing-arguments"


def test_outputs_are_told_apart() -> None:
    def program(x: Any, w: Any) -> Any:
        y = x * w
        return y, x, x[1:].t(), y, 3, None, w.detach(), y.sum().detach()

    args = [randn(3, 4), randn(3, 4, grad=True)]
    spec = joint(traced(program), *args).spec
    assert [o.kind for o in spec.outputs] == ["tensor", "input", "view", "same", "constant", "constant", "view", "tensor"]
    assert not spec.outputs[6].requires_grad
    assert spec.text().split("\n") == [
        "view 0 = aten.slice.Tensor(input 0, 0, 1, 9223372036854775807)",
        "view 1 = aten.t.default(view 0)",
        "view 2 = aten.detach.default(input 1)",
        "output 2 = view 1",
        "output 6 = view 2",
    ]
    assert spec.tangents == (0,) and spec.needs_grad == (False, True)


def test_mutations_are_found_through_views_and_not_by_reading() -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        b.view(-1)[1:].mul_(2)
        c.t().add(a)
        return a.detach() + 1

    graph = joint(traced(program), randn(2, 2), randn(2, 2), randn(2, 2))
    assert graph.spec.mutations == (1,)
    assert [d.subject for d in graph.decisions if d.kind == "mutation"] == [("frames/b",)]
    assert {d.reason for d in graph.decisions} <= set(REASONS)


def test_an_input_no_output_depends_on_has_no_gradient() -> None:
    def program(x: Any, w: Any) -> Any:
        return x * 2

    graph = joint(traced(program), randn(2, grad=True), randn(2, grad=True))
    assert graph.spec.needs_grad == (True, False) and len(graph.outputs) == 3 and graph.outputs[2] is None


def in_place_on_leaf(x: Any) -> Any:
    return x.mul_(2)


def takes_grad(x: Any, w: Any) -> Any:
    x.add_(w)
    return x * 2


def two_parts(x: Any) -> Any:
    return call(x, torch.unsafe_chunk, x * 2, 2)


def item(x: Any) -> Any:
    return x * x.sum().item()


def reshaped_input(x: Any) -> Any:
    x.t_()
    return x * 2


def part_of_input(x: Any) -> Any:
    return call(x, torch.unsafe_chunk, x, 2)[0]


def resized(x: Any) -> Any:
    return (x * 2).resize_(1)


def spoiled(x: Any) -> Any:
    y = torch.exp(x)
    y.add_(1)
    return y


def own_leaf(x: Any) -> Any:
    return call(x, lambda: torch.ones(3, requires_grad=True)), x * 2


REFUSED: list[tuple[Callable[..., Any], Callable[[], list[Tensor]], str]] = [
    (in_place_on_leaf, lambda: [randn(2, grad=True)], "trace-failed"),
    (takes_grad, lambda: [randn(5).unfold(0, 2, 1), randn(2, grad=True)], "mutation-requires-grad"),
    (two_parts, lambda: [randn(2, 2)], "outputs-alias"),
    (item, lambda: [randn(2)], "trace-failed"),
    (reshaped_input, lambda: [randn(2, 3)], "metadata-mutation"),
    (part_of_input, lambda: [randn(2, 2)], "view-of-input"),
    (resized, lambda: [randn(2)], "storage-change"),
    (spoiled, lambda: [randn(2, grad=True)], "backward-failed"),
    (own_leaf, lambda: [randn(2)], "leaf-output"),
]


@pytest.mark.parametrize(("program", "make", "reason"), REFUSED, ids=[p.__name__ for p, _, _ in REFUSED])
def test_refuses_with_reason_and_line(program: Callable[..., Any], make: Callable[[], list[Tensor]], reason: str) -> None:
    with pytest.raises(Unsupported) as caught:
        joint(traced(program), *make())
    assert caught.value.reason == reason
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_refuses_a_parameter_that_is_no_input() -> None:
    def program(x: Any) -> Any:
        return torch.nn.functional.linear(x, call(x, lambda: weight))

    weight = torch.nn.Parameter(randn(3, 4))
    with pytest.raises(Unsupported) as caught:
        joint(traced(program), randn(2, 4))
    assert caught.value.reason == "unlifted-parameter"
    with torch.no_grad():
        graph = joint(traced(program), randn(2, 4))
    assert [n.op for n in graph.graph.nodes].count("get_attr") == 1


def test_constants_made_in_the_program() -> None:
    def program(x: Any) -> Any:
        return x + call(x, torch.tensor, [1.0, 2.0]) * call(x, torch.tensor, 3.0)

    args = [randn(2, grad=True)]
    graph = joint(traced(program), *args)
    assert_same(eager(program, args, graph), execute(graph, args), 1e-12)


def test_grad_mode_of_the_program_is_left_where_it_was() -> None:
    def program(x: Any) -> Any:
        set_grad(x, False)
        return x * 2

    joint(traced(program), randn(2, grad=True))
    assert torch.is_grad_enabled()


def test_each_operator_runs_once_and_half_of_them_without_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes the trace fast: no operator is run to look at it again, and common ones skip the cache of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    args, module, calls = gpt_args(torch.float32), traced(gpt), list[Any]()
    joint(module, *args)
    dispatch = FakeTensorMode.dispatch
    monkeypatch.setattr(FakeTensorMode, "dispatch", lambda mode, func, *rest: (calls.append(func), dispatch(mode, func, *rest))[1])
    graph = joint(module, *args)
    recorded = [n.target for n in graph.graph.nodes if isinstance(n.target, OpOverload)]
    through_the_mode = [c for c in calls if c in recorded]
    assert all(through_the_mode.count(op) <= recorded.count(op) for op in set(through_the_mode))
    assert 0 < len(through_the_mode) < len(recorded) / 2


def laid_out(shape: tuple[int, ...], how: str) -> Tensor:
    x, order = torch.randn(shape, dtype=torch.float64), [*range(1, len(shape)), 0]
    if how == "rotated":
        return x.permute(order).contiguous().permute([order.index(i) for i in range(len(shape))])
    if how == "padded":
        return torch.cat([x, x], -1)[..., ::2]
    return x.to(memory_format=torch.channels_last) if how == "channels_last" else x


LAYOUT_CASES: dict[OpOverload, tuple[int, Callable[..., list[Any]]]] = {
    aten.log_sigmoid_forward.default: (1, lambda x: [x]),
    aten._log_softmax_backward_data.default: (2, lambda g, y: [g, y, 1, torch.float64]),
    aten.native_batch_norm.default: (1, lambda x: [x, None, None, torch.zeros(4).double(), torch.ones(4).double(), True, 0.1, 1e-5]),
    aten.native_batch_norm_backward.default: (2, lambda g, x: [g, x, None, None, None, *torch.ones(2, 4).double(), True, 1e-5, [True, True, True]]),
    aten.roll.default: (1, lambda x: [x, [1], [0]]),
    aten.channel_shuffle.default: (1, lambda x: [x, 2]),
    aten.max_unpool2d.default: (1, lambda x: [x, torch.arange(x.numel() // 8).view(1, 1, 4, 5).expand(x.shape).contiguous(), [8, 10]]),
    aten.replication_pad2d_backward.default: (
        2,
        lambda g, x: [torch.nn.functional.pad(g, (1, 1, 1, 1)).to(memory_format=torch.preserve_format), x, [1, 1, 1, 1]],
    ),
}


@pytest.mark.parametrize("op", LAYOUTS, ids=str)
def test_recorded_layouts_are_those_of_eager(op: OpOverload) -> None:
    """Where fake tensors are wrong; on every way to lay out the arguments that matter."""
    count, make = LAYOUT_CASES[op]
    for hows in itertools.product(("contiguous", "rotated", "padded", "channels_last"), repeat=count):
        args = make(*(laid_out((2, 4, 4, 5), how) for how in hows))
        tensors = [a for a in args if isinstance(a, Tensor)]

        def program(*given: Any, args: list[Any] = args) -> Any:
            left = iter(given)
            return op(*(next(left) if isinstance(a, Tensor) else a for a in args))

        graph = joint(whole(program, len(tensors)), *tensors)
        assert_same(eager(program, tensors, graph), execute(graph, tensors), 1e-12)
        recorded = [o.meta["val"] for o in graph.outputs[len(graph.spec.mutations) : graph.spec.forward_outputs] if o is not None]
        real = [o for o in eager(program, tensors, graph).outputs if o is not None]
        assert all(laid_out_alike(a, b) for a, b in zip(recorded, real, strict=True)), hows


DIRECT_CASES: dict[str, list[Any]] = {
    "transpose": [0, 1], "permute": [[1, 0]], "view": [[4, 2, 3]], "unsqueeze": [1], "squeeze": [0], "expand": [[2, 4, 6]], "slice": [1, 1, 5, 2],
    "select": [1, 2], "threshold_backward": [0.5], "pow": [3],
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(DIRECT | ALIKE, key=str), ids=str)
def test_the_short_way_gives_what_fake_tensors_give(op: OpOverload) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    fakes, tensors = Fakes(mode), [a.name for a in op._schema.arguments if str(a.type) == "Tensor"]
    layouts: list[Tensor] = [
        torch.ones(4, 6),
        torch.ones(6, 4).t(),
        torch.ones(4, 12)[:, ::2],
        torch.ones(1, 6).expand(4, 6),
        torch.ones(0, 6),
        *([torch.ones(1, 6)[:, :1]] if op in ALIKE else []),
    ]
    for first, second, dtype in itertools.product(layouts, layouts, (torch.float32, torch.float64, torch.int64)):
        operands = [first.to(dtype), second.to(torch.float32 if dtype is torch.int64 else dtype)][: len(tensors)]
        if op in (aten.mm.default, aten.bmm.default):
            operands = [operands[0], operands[1].t()] if op is aten.mm.default else [o[None] for o in (operands[0], operands[1].t())]
        for extra in ([], [2], [0.5]):
            more = DIRECT_CASES.get(op._opname, extra if op._opname in ("add", "mul", "sub", "div") else [])
            values = [mode.from_tensor(o) for o in (operands[:1] if extra and op._opname in ("add", "mul", "sub", "div") else operands)]
            outcomes: list[Any] = []
            runs: tuple[Callable[..., Any], ...] = (fakes.run, mode.dispatch)
            for run in runs:
                try:
                    out: Any = run(op, (), (*values, *more), {})
                    outcomes.append((out.dtype, out.shape, out.stride(), out.storage_offset(), out.device, out.requires_grad))
                except (RuntimeError, IndexError, ValueError):
                    outcomes.append("refused")
            assert outcomes[0] == outcomes[1], (operands, more)


@pytest.mark.parametrize("name", ["_unique", "_unique2", "unique_consecutive", "nonzero", "bincount"])
def test_a_size_that_depends_on_the_data_is_not_taken_from_the_example(name: str) -> None:
    """Even where a fake kernel of torch knows some size: that of ``_unique`` did in torch 2.11."""
    operator = getattr(torch.ops.aten, name).default

    def program(x: Tensor) -> Any:
        out = operator(x)
        return (out[0] if isinstance(out, tuple) else out) * 2

    with pytest.raises(Unsupported) as caught:
        joint(traced(program), torch.tensor([1, 1, 2]))
    assert caught.value.reason == "trace-failed"
