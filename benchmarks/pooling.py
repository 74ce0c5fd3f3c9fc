"""Max pooling: aten's time over ours, for planes and for channels last; printed, never asserted.

usage: python benchmarks/pooling.py [--rounds 15]

values      forward, nothing kept
with places forward that gives the places too
backward    of the gradient alone, aten's backward beside ours; both under the same autograd
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab

CASES: tuple[tuple[tuple[int, int, int, int], int, int, int], ...] = (
    ((4, 64, 56, 56), 2, 2, 0),
    ((4, 64, 112, 112), 3, 2, 1),
    ((2, 16, 28, 28), 3, 1, 1),
    ((1, 8, 224, 224), 5, 2, 2),
)
"""Shape, kernel, stride, padding."""


def ratio(aten: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> float:
    best = [float("inf")] * 2
    for _ in range(rounds + 1):
        for i, call in enumerate((aten, ours)):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best[0] / best[1]


def ratios(shape: tuple[int, ...], windows: tuple[int, int, int], layout: torch.memory_format, rounds: int) -> tuple[float, float, float]:
    def values(x: Tensor) -> Tensor:
        return F.max_pool2d(x, *windows)

    def places(x: Tensor) -> Any:
        return F.max_pool2d(x, *windows, return_indices=True)

    x = torch.randn(*shape).to(memory_format=layout)
    forward = [(fn, compiler_lab.compile(fn)) for fn in (values, places)]
    plain, with_places = (ratio(lambda fn=fn: fn(x), lambda c=compiled: c(x), rounds) for fn, compiled in forward)
    x.requires_grad_()
    outs = values(x), compiler_lab.compile(lambda x: values(x))(x)
    tangent = torch.randn_like(outs[0])
    theirs, ours = (lambda y=y: torch.autograd.grad(y, x, tangent, retain_graph=True) for y in outs)
    return plain, with_places, ratio(theirs, ours, rounds)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=15)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    print("| | layout | values | with places | backward |\n|---|---|---|---|---|")
    for shape, *windows in CASES:
        kernel, stride, pad = windows
        for name, layout in (("planes", torch.contiguous_format), ("channels last", torch.channels_last)):
            found = ratios(shape, (kernel, stride, pad), layout, given.rounds)
            print(f"| {' x '.join(map(str, shape))}, {kernel} by {stride}, padding {pad} | {name} | {' | '.join(f'{r:.2f}' for r in found)} |", flush=True)


if __name__ == "__main__":
    main()
