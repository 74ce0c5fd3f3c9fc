"""The memory of small models, by what torch's allocator gives out: near what must live at once, and no more than eager takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, scaled_dot_product_attention, silu, softmax

import compiler_lab
from compiler_lab.lowering import interpret
from compiler_lab.lowering.ir import BufferSpec, TensorView
from compiler_lab.runtime import native
from compiler_lab.runtime.program import Program
from compiler_lab.scheduling.artifact import Schedule
from compiler_lab.scheduling.ir import OUT_VARIANTS, ExternGroup
from compiler_lab.scheduling.order import group_reads, group_writes


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 16))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Attention(nn.Module):
    """Written out, so that scores are intermediates."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(4, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        return self.out((softmax(q @ k.transpose(-1, -2) / 3, -1) @ v).transpose(1, 2).reshape(4, 16, 32))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out, self.up, self.down = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            q, k, v = self.qkv(self.first(x)).view(4, 32, 3, 4, 8).permute(2, 0, 3, 1, 4)
            x = x + self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(4, 32, 32))
            x = x + self.down(gelu(self.up(self.second(x))))
        return x


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.norms[0](self.a(x)))
        return self.c((x + relu(self.norms[1](self.b(x)))).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.Conv2d(24, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = relu(self.a(x))
        deep = nn.functional.interpolate(relu(self.b(first)), scale_factor=2.0)
        return self.c(torch.cat([first, deep], 1))


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
        self.norms = nn.ModuleList([nn.LayerNorm(64), nn.RMSNorm(64), nn.GroupNorm(4, 64), nn.LayerNorm(64)])

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + silu(norm(layer(x)))
        return x


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (MLP, (64, 32)),
    "attention": (Attention, (4, 16, 32)),
    "block": (Block, (4, 32, 32)),
    "convolutions": (Convolutions, (4, 3, 32, 32)),
    "unet": (UNet, (2, 3, 32, 32)),
    "norms": (Norms, (64, 64)),
}


def peak_bytes(step: Callable[[], Any]) -> int:
    """The most bytes that torch's allocator has given out at once during ``step``, beyond those before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events: Any = profiler.profiler
    alive = most = 0
    for event in sorted((e for e in events.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


def must_live(s: Schedule) -> int:
    """The largest sum of what must live at once, walking the groups backwards; an aten call's own workspace is part of it."""
    specs = s.program.buffers
    written = {spec.name for g in s.groups for spec in group_writes(g)}
    alive = {o.buffer for o in s.program.outputs if isinstance(o, TensorView)} & written
    most = 0
    for group in reversed(s.groups):
        made = {spec.name for spec in group_writes(group)}
        now = sum(specs[n].nbytes for n in alive | made | (group_reads(group) & written))
        most, alive = max(most, now + workspace(group, specs)), (alive - made) | (group_reads(group) & written)
    return most


def workspace(group: Any, specs: Any) -> int:
    """Bytes that aten takes in the call beside its results."""
    if not isinstance(group, ExternGroup) or group.node.target in OUT_VARIANTS:
        return 0
    inputs = {name: zeros(specs[name]) for name in group_reads(group)}
    kept: list[Any] = []
    with torch.no_grad():
        return peak_bytes(lambda: kept.extend(interpret.evaluate_extern(group.node, inputs))) - sum(t.untyped_storage().nbytes() for t in kept if t is not None)


def zeros(spec: BufferSpec) -> Tensor:
    return torch.zeros(spec.nbytes // spec.dtype.itemsize + 1, dtype=spec.dtype).as_strided(spec.size, spec.stride)


def step_of(module: nn.Module, call: Callable[..., Tensor], x: Tensor, train: bool) -> Callable[[], None]:
    def step() -> None:
        with torch.set_grad_enabled(train):
            result = call(x)
            if train:
                result.square().mean().backward()

    module.zero_grad(set_to_none=True)
    return step


@pytest.mark.parametrize("train", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_takes_little_more_than_must_live_at_once_and_no_more_than_eager(name: str, train: bool) -> None:
    make, size = MODELS[name]
    torch.manual_seed(0)
    module, x = make().train(train), torch.randn(size)
    programs: list[Program] = []
    call = compiler_lab.compile(module, options={"check": True}, observe=lambda s: programs.append(s.after) if isinstance(s.after, Program) else None)
    native.release()
    for _ in range(2):
        step_of(module, call, x, train)()
    kept = native.pooled()
    step = step_of(module, call, x, train)
    ours = kept + peak_bytes(step)
    eager = peak_bytes(step_of(module, module, x, train))
    assert native.pooled() == kept == (0 if train else programs[0].kernels.schedule.plan.arena_bytes), "a backward lets the arena go"
    assert ours <= eager
    for program in programs:
        schedule = program.kernels.schedule
        inputs = [zeros(s) for s in schedule.program.inputs]
        native.release()
        with torch.no_grad():
            taken = peak_bytes(lambda p=program, i=inputs: p(*i))
        assert taken <= 1.1 * must_live(schedule) + 64, f"{schedule.stage}: {schedule.plan.text()}"
