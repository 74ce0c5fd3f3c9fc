"""The main job: a small GPT trains on the kernels that are shown. Beside it an MLP and a convolution net, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import compiler_lab
from compiler_lab.demo import tiny_gpt, train
from compiler_lab.observe.trace import Trace
from compiler_lab.scheduling.ir import ExternGroup, LoopGroup

LIBRARY = {
    "aten.mm.default",
    "aten.addmm.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
}


def record(model: nn.Module, *args: Any) -> Trace:
    trace = Trace("recorded")
    out = compiler_lab.compile(model, fullgraph=True, observe=trace.append)(*args)
    (out if out.ndim == 0 else out.square().mean()).backward()
    return trace


def externs(trace: Trace, part: str) -> set[str]:
    groups = trace.stage("schedule", part).groups  # type: ignore[attr-defined]
    return {str(g.node.target) for g in groups if isinstance(g, ExternGroup)}


def in_kernels(trace: Trace, part: str) -> set[str]:
    groups = trace.stage("schedule", part).groups  # type: ignore[attr-defined]
    return {n.origin.split(".")[0] for g in groups if isinstance(g, LoopGroup) for n in g.nodes}


def distance(got: list[Tensor], want: list[Tensor]) -> float:
    """Relative distance of all tensors together."""
    over = sum(((g.double() - w) ** 2).sum() for g, w in zip(got, want, strict=True))
    return float((over / sum((w**2).sum() for w in want)) ** 0.5)


def gradients(model: nn.Module, step: Callable[..., Tensor], batch: tuple[Tensor, ...]) -> list[Tensor]:
    model.zero_grad(set_to_none=True)
    out = step(*batch)
    (out if out.ndim == 0 else out.square().mean()).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


class Seeing(TorchDispatchMode):
    """A mode under which compiled code runs, as torch lets a mode say."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextmanager
def ops_seen() -> Generator[list[str]]:
    """Names of every aten operator that runs in the block, in this thread."""
    seen: list[str] = []

    class Log(Seeing):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Log():
        yield seen


class TestGPT:
    def test_only_library_calls_are_extern_and_all_else_is_ours(self) -> None:
        model, data = tiny_gpt()
        trace = record(model, *next(data))
        assert len(trace.graphs) == 1, "the forward is one graph"
        assert externs(trace, "forward") | externs(trace, "backward") == LIBRARY
        forward, backward = in_kernels(trace, "forward"), in_kernels(trace, "backward")
        norms, softmax, gelu, loss = {"mean", "rsqrt", "sub", "mul"}, {"amax", "exp", "sum", "log"}, {"erf"}, {"gather", "neg", "where", "div"}
        assert norms | softmax | gelu | loss | {"add"} <= forward
        assert {"mean", "mul", "sub", "sum", "add", "where", "eq", "cat"} <= backward

    def test_loss_follows_eager_over_200_steps_and_gradients_are_as_exact(self) -> None:
        errors: dict[int, tuple[float, float]] = {}

        def compare(number: int, model: nn.Module) -> None:
            if number not in (1, 50, 200):
                return
            got = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            batch = batches[number - 1]
            exact = gradients(double := copy.deepcopy(model).double(), double, batch)
            plain = gradients(single := copy.deepcopy(model), single, batch)
            errors[number] = distance(got, exact), distance(plain, exact)

        model, data = tiny_gpt()
        batches = [next(data) for _ in range(200)]
        compiled = train(model, compiler_lab.compile(model, fullgraph=True), iter(batches), 200, compare)
        eager_model, _ = tiny_gpt()
        eager = train(eager_model, eager_model, iter(batches), 200)
        worst = max(abs(c - e) for c, e in zip(compiled, eager, strict=True))
        print(f"largest difference of the loss over 200 steps: {worst:.2e}; gradient errors (compiled, eager): {errors}")
        assert worst <= 2e-5
        for number, (ours, eagers) in errors.items():
            assert ours <= 1.25 * eagers, f"step {number}: {ours:.2e} from float64, eager {eagers:.2e}"

    def test_nothing_runs_outside_the_kernels_and_the_library_calls(self) -> None:
        model, data = tiny_gpt()
        step = compiler_lab.compile(model, fullgraph=True, options={"wrapper": "python"})  # whose calls a dispatch mode sees
        batch = next(data)
        step(*batch).backward()
        with ops_seen() as forward:
            loss = step(*batch)
        storage = {
            "aten.empty_strided.default",
            "aten.empty.memory_format",
            "aten.as_strided.default",
            "aten.detach.default",
            "aten.view.default",
            "aten.view.dtype",
        }
        out = {name.replace(".default", ".out") for name in LIBRARY}
        assert set(forward) <= LIBRARY | storage | out, sorted(set(forward) - LIBRARY - storage - out)
        assert loss.ndim == 0


def test_stats_are_not_taken_at_their_word() -> None:
    """A backend that counts, and a dispatch mode that sees every operator: none runs outside a compiled graph."""
    inside = [0]
    graphs = [0]

    def counting(gm: torch.fx.GraphModule, args: list[Tensor]) -> Callable[..., Any]:
        graphs[0] += 1

        def call(*args: Tensor) -> Any:
            inside[0] += 1
            try:
                return gm.forward(*args)
            finally:
                inside[0] -= 1

        return call

    outside: list[str] = []

    class Watch(Seeing):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not inside[0]:
                outside.append(str(func))
            return func(*args, **(kwargs or {}))

    model, data = tiny_gpt()
    compiler_lab.reset()
    step = compiler_lab.compile(model, backend=counting, fullgraph=True)
    batch = next(data)
    step(*batch)
    with Watch():
        step(*batch)
        step(*batch)
    assert outside == []
    stats = compiler_lab.stats()
    assert graphs == [2] and stats["graphs"] == 2 and stats["breaks"] == 0, "one graph, compiled once more for calls under the mode"


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)), torch.randn(16, 32)


def conv_net() -> tuple[nn.Module, Tensor]:
    layer = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(layer(3, 8), layer(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)), torch.randn(6, 3, 12, 12)


@pytest.mark.parametrize("make", [mlp, conv_net])
def test_training_equals_eager_gradients_and_buffers_included(make: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    compiler_lab.reset()
    model, x = make()
    twin = copy.deepcopy(model)
    step = compiler_lab.compile(model, fullgraph=True)
    for _ in range(3):
        got, want = gradients(model, step, (x,)), gradients(twin, twin, (x,))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()), rtol=1e-5, atol=1e-6)
    assert compiler_lab.stats()["breaks"] == 0


def test_evaluation_of_the_conv_net_reads_the_running_statistics() -> None:
    model, x = conv_net()
    for _ in range(3):
        model(x * 3 + 1)
    model.eval()
    before = copy.deepcopy(dict(model.named_buffers()))
    with torch.no_grad():
        torch.testing.assert_close(compiler_lab.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(model.named_buffers()), before)


def kernels(fn: Callable[..., Any], *args: Tensor) -> Trace:
    trace = Trace("kernels")
    with torch.no_grad():
        torch.testing.assert_close(compiler_lab.compile(fn, fullgraph=True, observe=trace.append)(*args), fn(*args), rtol=1e-4, atol=1e-5)
    return trace


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x, w: (F.gelu(x) * w).sum(), (torch.randn(64, 128), torch.randn(64, 128))),
        (lambda x, b, s: torch.relu(x + b) * s, (torch.randn(64, 128), torch.randn(128), torch.randn(128))),
        (lambda x: torch.softmax(x, -1), (torch.randn(64, 128),)),
        (lambda x, w, b: F.layer_norm(x, (128,), w, b), (torch.randn(64, 128), torch.randn(128), torch.randn(128))),
    ],
    ids=["gelu(x)*w then sum", "relu(x+b)*s", "softmax", "layer_norm"],
)
def test_one_kernel_with_vector_instructions(fn: Callable[..., Any], args: tuple[Tensor, ...]) -> None:
    from compiler_lab.runtime.program import vector_instructions

    trace = kernels(fn, *args)
    groups = trace.stage("schedule", "forward").groups  # type: ignore[attr-defined]
    assert [type(g) for g in groups] == [LoopGroup]
    program: Any = trace.stage("build", "forward")
    assert vector_instructions(program, program.kernels.kernels[0].name)
