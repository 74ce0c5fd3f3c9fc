"""A buffer is read, then updated in place: the backward must see the value that was read, here and on the real stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import compiler_lab
from compiler_lab.aot.partition import Partition
from compiler_lab.core.provenance import parents_of
from compiler_lab.observe.trace import Step

Program = Callable[[Tensor, Tensor], Tensor]


def pointwise(x: Tensor, buffer: Tensor) -> Tensor:
    y = (buffer * 2).sin() * x
    buffer.add_(1)
    return y.sum()


def through_a_view(x: Tensor, buffer: Tensor) -> Tensor:
    y = (buffer.view(2, 4).t().exp() * x.view(2, 4).t()).cos()
    buffer[2:5] = 3.0
    return y.sum()


def twice(x: Tensor, buffer: Tensor) -> Tensor:
    a = buffer.tanh() * x
    buffer.mul_(0.5)
    b = buffer.tanh() * x
    buffer.zero_()
    return (a * b).sum()


def step(program: Program, call: Program) -> tuple[Tensor, Tensor]:
    """(gradient of x, the buffer afterwards)."""
    torch.manual_seed(0)
    x, buffer = torch.randn(8, requires_grad=True), torch.randn(8)
    call(x, buffer).backward()
    assert x.grad is not None
    return x.grad, buffer


PROGRAMS = [pointwise, through_a_view, twice]


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp", "lab"])
@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_backward_sees_what_was_read(program: Program, budget: float, backend: str) -> None:
    got = step(program, compiler_lab.compile(program, backend=backend, fullgraph=True, options={"activation_memory_budget": budget}))
    torch.testing.assert_close(got, step(program, program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_real_partitioner_keeps_the_buffer_itself(program: Program) -> None:
    """Run by aten, autograd notices that what was kept has changed since; nothing is computed, where eager computes."""
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(program, torch.compile(program, backend="aot_eager_decomp_partition"))


def test_the_real_stack_gives_a_wrong_gradient() -> None:
    """Built by inductor, nothing notices: the gradient is that of the new value. If this fails, torch has been mended."""
    torch._dynamo.reset()
    (gradient, buffer), (right, after) = step(pointwise, torch.compile(pointwise)), step(pointwise, pointwise)
    torch.testing.assert_close(buffer, after)
    assert not torch.allclose(gradient, right)
    torch.testing.assert_close(gradient, (buffer * 2).sin())


READS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda v, b: v * b.sin(),
    lambda v, b: v + b.exp() * v,
    lambda v, b: (v * b.view(2, 2, 4).transpose(0, 1).reshape(4, 4)).tanh(),
    lambda v, b: v @ b.sigmoid(),
    lambda v, b: v * b[1:2].cos(),
)
WRITES: tuple[Callable[[Tensor], Any], ...] = (lambda b: b.add_(1), lambda b: b[0].mul_(2), lambda b: b.t().tanh_(), lambda b: b.copy_(b.flip(0)))


@given(st.lists(st.sampled_from([*READS, *WRITES]), min_size=2, max_size=7), st.sampled_from([1.0, 0.4, 0.0]), st.sampled_from(["bytes", "torch"]))
@settings(max_examples=25, deadline=None)
def test_what_is_later_written_is_never_read_again(steps: list[Callable[..., Any]], budget: float, costs: str) -> None:
    def program(x: Tensor, buffer: Tensor) -> Tensor:
        value = x * 1.5
        for one in steps:
            if one in READS:
                value = one(value, buffer)
            else:
                one(buffer)
        return value.sum()

    found: list[Partition] = []

    def watch(told: Step) -> None:
        if isinstance(told.after, Partition):
            found.append(told.after)

    def run(call: Program) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        x, buffer = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        call(x, buffer).backward()
        assert x.grad is not None
        return x.grad, buffer

    options = {"activation_memory_budget": budget, "cost_model": costs}
    torch.testing.assert_close(run(compiler_lab.compile(program, backend="aot_eager_decomp", options=options, observe=watch)), run(program))
    for part in found:
        overwritten = {part.joint.placeholders[i].name for i in part.spec.mutations}
        assert part.backward is not None and not overwritten & {p.name for p in part.backward.placeholders}
        kept = {p.name: p for p in part.forward.graph.nodes if p.name in part.saved}
        assert all(kept[name].op == "call_function" for name in part.saved if parents_of(kept[name])[0].split("/")[1] in overwritten)
