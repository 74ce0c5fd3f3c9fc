"""What the parts cost: printed, never asserted.

usage: python benchmarks/stages.py

hot path   a compiled ``x + 1`` over the plain call, backend "eager" (guards and wrapper only)
bind       autograd around a partition over a bare ``torch.autograd.Function`` that does the same
lower      seconds for a chain of 510 aten nodes
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import compiler_lab
from compiler_lab.aot.ir import JointSpec, OutputSpec
from compiler_lab.runtime.autograd import bind


def best(call: Callable[[], Any]) -> float:
    """Seconds of one call, the best of nine rounds of 500."""
    return min(timeit.repeat(call, number=500, repeat=9)) / 500


def hot_path() -> float:
    plus = lambda x: x + 1
    compiled, x = compiler_lab.compile(plus, backend="eager"), torch.randn(8)
    compiled(x)
    return best(lambda: compiled(x)) / best(lambda: plus(x))


class Plain(torch.autograd.Function):
    """What ``bind`` has to do at the least: save one tensor, give one output."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a.view(4)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


def bind_over_function() -> float:
    spec = JointSpec(1, (OutputSpec("tensor", True),), needs_grad=(True,), tangents=(0,))
    call = bind(spec, 1, lambda a: (a.view(4), a), lambda saved, tangent: (tangent * 2,))
    a = torch.randn(4, requires_grad=True)
    return best(lambda: call(a)) / best(lambda: Plain.apply(a))


def lowering_seconds() -> float:
    def chain(x: Tensor) -> Tensor:
        for _ in range(170):
            x = torch.relu(x * 1.01) + 1
        return x

    graph = compiler_lab.joint(compiler_lab.capture(chain, torch.randn(8, 8)).graphs[0])
    rounds: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        compiler_lab.lower(compiler_lab.partition(graph).forward)
        rounds.append(time.perf_counter() - start)
    return min(rounds)


if __name__ == "__main__":
    print(
        f"hot path: {hot_path():.2f} of a plain call\nbind: {bind_over_function():.2f} of a bare Function\nlower: {lowering_seconds():.2f} s with its partition"
    )
