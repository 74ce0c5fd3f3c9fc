"""Where each microsecond of a compiled call goes, layer by layer, beside eager's whole call.

usage: python benchmarks/calls.py [--rounds 15] [--only NAME]

Each layer is called by itself with what the layer above gives it, all layers and eager taking turns; a layer's own cost is the best of its
times minus that of the layer it calls:
 bind       the user's arguments are bound by Python, the entry used last is looked up, the dictionary for the guards is made
 guards     the C++ check of the guard tree
 code       the replacement code: reads inputs from where the guards found them, calls the graph, makes effects, gives the result
 autograd   grad mode, autocast, the check whether a gradient is wanted, write-backs
 wrapper    the generated C function: operators of aten, allocation, kernels
 python     no layer: the same calls by the wrapper in Python, ``options={"wrapper": "python"}``, which the function in C stands for
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import compiler_lab
from compiler_lab import pipeline
from compiler_lab.frames.guards import GLOBALS


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(24))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def tiny(x: Any) -> Any:
    return x + 1


def chain(x: Any, y: Any) -> Any:
    return torch.tanh(x * y).sum() + x.mean()


deep = Deep()


def deep_call(x: Any) -> Any:
    return deep(x)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "tiny": (tiny, (torch.randn(8),)),
    "chain": (chain, (torch.randn(64, 64), torch.randn(64, 64))),
    "deep": (deep_call, (torch.randn(2, 8),)),
}


def layers(fn: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """From the outside in, each as a call without arguments."""
    given: list[Any] = []
    steps: list[Any] = []
    bound: list[Any] = []

    def keeping(graph: Any, inputs: list[Any], run: Any) -> Any:
        given[:] = inputs
        bound[:] = [lab(graph, inputs, run)]
        return bound[0]

    lab = pipeline.BACKENDS["lab"]
    pipeline.BACKENDS["kept"] = keeping
    try:
        compiler_lab.compile(fn, backend="kept", options={"wrapper": "python"}, observe=steps.append)(*args)
        in_python = next(s.after for s in steps if s.name == "build")
        steps.clear()
        compiled = compiler_lab.compile(fn, backend="kept", observe=steps.append)
        compiled(*args)
    finally:
        del pipeline.BACKENDS["kept"]
    own = compiled._compiled_function
    check, run = own._box[0]
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    scope: dict[str, Any] = {GLOBALS: fn.__globals__, **dict(zip(names, args, strict=True))}
    program = next(s.after for s in steps if s.name == "build")
    return {
        "eager": lambda: fn(*args),
        "bind": lambda: compiled(*args),
        "guards": lambda: check(scope),
        "code": lambda: run(*args),
        "autograd": lambda: bound[0](*given),
        "wrapper": lambda: program.call(*given),
        "python": lambda: in_python.call(*given),
        "nothing": lambda: None,
    }


def microseconds(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def measure(fn: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> dict[str, float]:
    """Each layer's own microseconds, eager's and the compiled call's."""
    with torch.no_grad():
        calls = layers(fn, args)
        count = max(200, int(60_000 / microseconds(calls["eager"], 200)))
        at = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for name, call in calls.items():
                at[name] = min(at[name], microseconds(call, count))
    at = {name: us - at["nothing"] for name, us in at.items()}
    return {
        "eager": at["eager"],
        "call": at["bind"],
        "bind": at["bind"] - at["guards"] - at["code"],
        "guards": at["guards"],
        "code": at["code"] - at["autograd"],
        "autograd": at["autograd"] - at["wrapper"],
        "wrapper": at["wrapper"],
        "python": at["python"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    for n, name in enumerate([options.only] if options.only else CASES):
        found = measure(*CASES[name], options.rounds)
        if n == 0:
            print("| case | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
        print(f"| {name} | " + " | ".join(f"{us:.2f}" for us in found.values()) + " |")


if __name__ == "__main__":
    main()
