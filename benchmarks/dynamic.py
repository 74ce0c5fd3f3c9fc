"""Code for symbolic sizes against code for the numbers, at the same sizes: printed, never asserted.

usage: python benchmarks/dynamic.py [--index]

For each program and size: microseconds of a call of the program compiled with ``dynamic=False`` and with ``dynamic=True`` (which was made at another
size), both timed in turns in one run, and their ratio; then the seconds that each compile took. The last lines say what that advises.
--index: the loops of programs whose indices divide, with 64-bit and with 32-bit loop variables, in one run.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor

import compiler_lab
from compiler_lab.codegen.artifact import Kernels
from compiler_lab.runtime.build import build

F = torch.nn.functional
W, B = torch.randn(256, 256), torch.randn(256)
Args = tuple[Tensor, ...]

PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, int], Args]]] = {
    "pointwise": (lambda x: F.gelu(x * 1.5 + 1), lambda n, m: (torch.randn(n, m),)),
    "softmax": (lambda x: torch.softmax(x, -1), lambda n, m: (torch.randn(n, m),)),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), lambda n, m: (torch.randn(n, m),)),
    "sum of rows": (lambda x: x.sum(-1), lambda n, m: (torch.randn(n, m),)),
    "sum of columns": (lambda x: x.sum(0), lambda n, m: (torch.randn(n, m),)),
    "transpose": (lambda x: (x.t() + 1).contiguous(), lambda n, m: (torch.randn(n, m),)),
    "cat": (lambda x, y: torch.cat([x, y.relu()], 1), lambda n, m: (torch.randn(n, m), torch.randn(n, m // 2))),
    "linear": (lambda x, w, b: torch.relu(x @ w + b), lambda n, m: (torch.randn(n, 256), W, B)),
}  # fmt: skip
SIZES = [(8, 64), (64, 256), (512, 512), (2048, 1024)]
ROUNDS, AT_LEAST = 15, 2e-3


def turns(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of one call of each, the best of rounds in which all take their turn."""
    numbers: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        numbers[name] = max(1, int(AT_LEAST / max(time.perf_counter() - start, 1e-7)))
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(numbers[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / numbers[name])
    return best


def first_call(compiled: Callable[..., Any], args: Args) -> float:
    start = time.perf_counter()
    compiled(*args)
    return time.perf_counter() - start


def sizes() -> None:
    ratios: list[float] = []
    for dynamic in (False, True):  # what the first compile of a process loads is nobody's
        compiler_lab.compile(lambda x: x + 1, dynamic=dynamic)(torch.randn(3, 5))
    print(f"{'program':16}{'size':>12}{'numbers us':>12}{'symbols us':>12}{'ratio':>8}")
    seconds: dict[str, tuple[float, float]] = {}
    for name, (fn, make) in PROGRAMS.items():
        dynamic = compiler_lab.compile(fn, dynamic=True)
        made = first_call(dynamic, make(24, 40))
        static_seconds = 0.0
        for n, m in SIZES:
            args, static = make(n, m), compiler_lab.compile(fn, dynamic=False)
            static_seconds += first_call(static, args)
            best = turns({"numbers": lambda static=static, args=args: static(*args), "symbols": lambda dynamic=dynamic, args=args: dynamic(*args)})
            ratios.append(best["symbols"] / best["numbers"])
            print(f"{name:16}{f'{n} x {m}':>12}{best['numbers'] * 1e6:12.1f}{best['symbols'] * 1e6:12.1f}{ratios[-1]:8.2f}")
        seconds[name] = static_seconds / len(SIZES), made
    print("\nseconds of a first call: numbers (each size), symbols (once for all)")
    for name, (each, once) in seconds.items():
        print(f"{name:16}{each:12.2f}{once:12.2f}")
    worth = geometric_mean(once / each for each, once in seconds.values())
    print(f"\ncalls with symbols take {geometric_mean(ratios):.2f} times as long (from {min(ratios):.2f} to {max(ratios):.2f}); a compile {worth:.2f} times.")
    print(f"advice: compile for symbols what meets {math.floor(worth) + 1} sizes or more, and for numbers what meets fewer, or one all day.")


# ---- 32-bit loop variables ----

INDEXED: dict[str, tuple[Callable[..., Any], Args]] = {
    "affine": (lambda x: x.t() * 2 + x.t(), (torch.randn(1500, 1500),)),
    "repeat": (lambda x: x.repeat(1, 37) * 2, (torch.randn(2000, 27),)),
    "roll and view": (lambda x: x.roll(3).view(-1, 7) + 1, (torch.randn(300, 700),)),
}


def narrow(kernels: Kernels) -> Kernels:
    """The kernels with 32-bit loop variables and index temporaries."""
    return replace(kernels, source=re.sub(r"\bint64_t (?=[a-z]\w* = )", "int32_t ", kernels.source))


def index() -> None:
    for name, (fn, args) in INDEXED.items():
        steps: list[Any] = []
        compiler_lab.compile(fn, observe=steps.append)(*args)
        kernels: Kernels = next(s.after for s in steps if s.name == "generate")
        wide, thin = build(kernels), build(narrow(kernels))
        assert kernels.source != narrow(kernels).source and torch.equal(wide(*args)[0], thin(*args)[0])
        best = turns({"64": lambda wide=wide, args=args: wide(*args), "32": lambda thin=thin, args=args: thin(*args)})
        print(f"{name:16}64-bit {best['64'] * 1e6:9.1f} us   32-bit {best['32'] * 1e6:9.1f} us   ratio {best['32'] / best['64']:.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    index() if "--index" in sys.argv else sizes()
