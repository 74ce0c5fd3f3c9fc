"""The figures of the README: eager, torch.compile and compiler_lab side by side, in one run.

usage: python benchmarks/run.py [--only REGEX] [--rounds N] [--no-torch] [--json FILE]

calls   median milliseconds of one call (training cases: forward, loss, backward), the three measured in turn, round by round, so that a
        machine that is busy slows all alike; ratios are medians of the rounds' ratios
first   seconds until the first call has returned, in a fresh process with empty caches; the clock starts after ``import torch``
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from compiler_lab.demo import tiny_gpt

Case = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], bool]]  # callable, arguments, trained


def _tiny() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return lambda x: x + 1, (torch.randn(8),), False


def _chain() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return lambda x, y: torch.tanh(x * y).sum() + x.mean(), (torch.randn(64, 64), torch.randn(64, 64)), False


def _pointwise() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return lambda x, b, s: torch.relu(x + b) * s, (torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)), False


def _gelu_sum() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return lambda x, w: (F.gelu(x) * w).sum(), (torch.randn(2048, 1024), torch.randn(2048, 1024)), False


def _softmax() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return lambda x: torch.softmax(x, -1), (torch.randn(2048, 2048),), False


def _layer_norm() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    x, w = torch.randn(4096, 1024), torch.randn(1024)
    return lambda x, r, w, b: F.layer_norm(x + r, (1024,), w, b), (x, torch.randn_like(x), w, w.clone()), False


def _mlp() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)), (torch.randn(4, 32),), True


def _gpt() -> tuple[Callable[..., Any], tuple[Any, ...], bool]:
    model, data = tiny_gpt()
    return model, next(data), True


CASES: dict[str, Case] = {
    "x + 1 on 8 floats": _tiny,
    "tanh(x * y).sum() + x.mean(), 64 x 64": _chain,
    "relu(x + b) * s, 4096 x 1024": _pointwise,
    "(gelu(x) * w).sum(), 2048 x 1024": _gelu_sum,
    "softmax, 2048 x 2048": _softmax,
    "layer_norm(x + r), 4096 x 1024": _layer_norm,
    "small MLP, training": _mlp,
    "small GPT, training": _gpt,
}


def compilers(with_torch: bool) -> dict[str, Callable[..., Any]]:
    import compiler_lab

    found: dict[str, Callable[..., Any]] = {"eager": lambda f: f}
    if with_torch:
        found["torch.compile"] = torch.compile
    return {**found, "compiler_lab": compiler_lab.compile}


def caller(fn: Callable[..., Any], args: tuple[Any, ...], trained: bool) -> Callable[[], Any]:
    def inference() -> Any:
        with torch.no_grad():
            return fn(*args)

    def training() -> Any:
        out: Tensor = fn(*args)
        return (out if out.ndim == 0 else out.square().mean()).backward()

    return training if trained else inference


def measure(case: Case, rounds: int, with_torch: bool) -> dict[str, list[float]]:
    """who -> seconds per call, one figure a round."""
    calls: dict[str, Callable[[], Any]] = {}
    for who, compiler in compilers(with_torch).items():
        torch.manual_seed(0)
        fn, args, trained = case()
        calls[who] = caller(compiler(fn), args, trained)
        calls[who]()
        calls[who]()
    start = time.perf_counter()
    calls["eager"]()
    repeat = max(1, int(0.02 / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            times[who].append((time.perf_counter() - start) / repeat)
    return times


def first_call(name: str, who: str) -> float:
    """Seconds of the first call in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, XDG_CACHE_HOME=cache, HOME=cache, TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor", TRITON_CACHE_DIR=f"{cache}/triton")
        done = subprocess.run([sys.executable, __file__, "--first", name, who], capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"{who} failed on {name}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


def _first(name: str, who: str) -> None:
    torch.manual_seed(0)
    fn, args, trained = CASES[name]()
    start = time.perf_counter()
    if who == "torch.compile":
        compiled = torch.compile(fn)
    else:
        import compiler_lab

        compiled = compiler_lab.compile(fn)
    caller(compiled, args, trained)()
    print(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-first", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        return _first(*options.first)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.rounds} rounds\n")
    print("| case | eager ms | torch.compile ms | compiler_lab ms | eager / lab | torch.compile / lab | first call s, torch.compile | first call s, lab |")
    print("|---|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for name, case in CASES.items():
        if not re.search(options.only, name):
            continue
        times = measure(case, options.rounds, not options.no_torch)
        row: dict[str, Any] = {"case": name, **{who: statistics.median(t) * 1e3 for who, t in times.items()}}
        for who in ("eager", "torch.compile"):
            if who in times:
                row[f"{who} / lab"] = statistics.median(a / b for a, b in zip(times[who], times["compiler_lab"], strict=True))
        if not options.no_first:
            row |= {f"first {who}": first_call(name, who) for who in ("torch.compile", "compiler_lab") if who in times}
        keys = ("eager", "torch.compile", "compiler_lab", "eager / lab", "torch.compile / lab", "first torch.compile", "first compiler_lab")
        cells = (f"{row[k]:.3f}" if k in ("eager", "torch.compile", "compiler_lab") and k in row else f"{row[k]:.2f}" if k in row else "-" for k in keys)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        rows.append(row)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"torch": str(torch.__version__), "threads": torch.get_num_threads(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
