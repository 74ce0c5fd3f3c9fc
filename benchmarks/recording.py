"""What recording a compile costs, of our stack and of the real one; and that it costs nothing where nobody records.

usage: python benchmarks/recording.py [--rounds N] [--stack lab|torch|both] [--only NAME] [--cold]

Each model's training step is compiled again and again in one process, off and on taking turns, so that a machine that is busy slows both alike; the
ratio is that of the medians. --cold: C++ is compiled each time, as in a first compile; otherwise what was built is found on disk in every round but the
first, which is not counted: of what is left, Python, recording is the larger share. Captured functions that our stack keeps on disk are used by neither: a
recording compiles. The real stack compiles with the settings that a recording has (no results of earlier compiles, both halves at once), off and on alike;
what it logged is made into a trace when the block has ended, which is told apart ("reading").

 off, on    seconds of a compile and its first call, medians
 quarter    half the distance between the quartiles of both, over the median of off: what one figure can be trusted for
 calls      Python functions that were called, with recording over without, by the profiler, of one warm compile each: what no noise touches
 hot        a compiled call that was recorded over one that was not, by medians of rounds of 20, on one thread
 asked      how often artifacts were asked for items or text, or a clock was made, during a compile and a call that nobody records
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn as nn
from torch import Tensor

import compiler_lab
from compiler_lab import pipeline
from compiler_lab.core.artifact import Artifact
from compiler_lab.core.clock import Clock
from compiler_lab.observe.torch_reference import torch_recording
from compiler_lab.observe.trace import Trace

Model = tuple[nn.Module, Tensor]


def mlp() -> Model:
    layers = [m for _ in range(3) for m in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(64, 8)), torch.randn(16, 64)


def transformer() -> Model:
    return nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), torch.randn(4, 32, 64)


def convolutions() -> Model:
    blocks = [m for i, o in ((3, 16), (16, 32), (32, 32)) for m in (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(512, 10)), torch.randn(4, 3, 32, 32)


MODELS: dict[str, Callable[[], Model]] = {"mlp": mlp, "transformer block": transformer, "conv net": convolutions}
Around = contextlib.AbstractContextManager[Any]
Once = Callable[[nn.Module, Tensor, bool, Around], tuple[float, float]]
"""(seconds to compile, seconds to read what was logged) of a model, recorded or not; the first of both goes on inside of what it is given."""


def ours(options: Any) -> Once:
    def once(model: nn.Module, x: Tensor, record: bool, around: Around) -> tuple[float, float]:
        trace = Trace()
        compiler_lab.reset()
        with around:
            start = time.perf_counter()
            compiler_lab.compile(model, observe=trace.append if record else None, options=options())(x).sum().backward()
            seconds = time.perf_counter() - start
        assert bool(trace.steps) == record
        return seconds, 0.0

    return once


def torchs(cold: bool) -> Once:
    return lambda model, x, record, around: _torchs(model, x, record, around, cold)


def _torchs(model: nn.Module, x: Tensor, record: bool, around: Around, cold: bool) -> tuple[float, float]:
    import torch._functorch.config
    import torch._inductor.config
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    trace = Trace()
    with contextlib.ExitStack() as stack:
        if cold:
            stack.enter_context(fresh_cache())
        if record:
            stack.enter_context(torch_recording(trace))
        else:
            stack.enter_context(torch._inductor.config.patch({"fx_graph_cache": False}))
            stack.enter_context(torch._functorch.config.patch({"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True}))
        with around:
            start = time.perf_counter()
            torch.compile(model)(x).sum().backward()
            end = time.perf_counter()
    reading = time.perf_counter() - end
    assert bool(trace.steps) == record
    return end - start, reading if record else 0.0


def calls(once: Once, model: nn.Module, x: Tensor, record: bool) -> int:
    profile = cProfile.Profile()
    once(model, x, record, profile)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def measured(once: Once, make: Callable[[], Model], rounds: int, cold: bool) -> str:
    """A row of the table."""
    torch.manual_seed(0)
    model, x = make()
    taken: dict[bool, list[float]] = {False: [], True: []}
    read: list[float] = []
    once(model, x, False, contextlib.nullcontext())  # imports, and what is found on disk from now on
    for n in range(rounds):
        for record in (False, True) if n % 2 else (True, False):
            seconds, reading = once(model, x, record, contextlib.nullcontext())
            taken[record].append(seconds)
            read += [reading] if record else []
    off, on = (statistics.median(taken[r]) for r in (False, True))
    quartiles = [statistics.quantiles(taken[r], n=4) for r in (False, True)]
    trust = statistics.mean((q[2] - q[0]) / 2 for q in quartiles) / off
    counted = "" if cold else f"{calls(once, model, x, True) / calls(once, model, x, False):.4f}"
    return f"{off:.3f} | {on:.3f} | {on / off:.3f} | {trust:.3f} | {statistics.median(read):.3f} | {counted}"


# ---- nothing when off ----


def subclasses(of: type) -> Iterator[type]:
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


@contextlib.contextmanager
def counting() -> Generator[list[str]]:
    """What artifacts are asked inside the block, and the clocks that are made."""
    asked: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (asked.append(name), function(*args, **kwargs))[1]

    with contextlib.ExitStack() as stack:
        for kind in {Artifact, *subclasses(Artifact)}:
            for name in ("items", "text", "to_json", "fingerprint"):
                if name in vars(kind):
                    stack.enter_context(mock.patch.object(kind, name, noting(f"{kind.__name__}.{name}", vars(kind)[name])))
        stack.enter_context(mock.patch.object(pipeline, "Clock", lambda: asked.append("Clock") or Clock()))
        yield asked


def nothing(make: Callable[[], Model]) -> str:
    """A row: calls recorded over not, and what was asked where nobody recorded."""
    torch.set_num_threads(1)
    model, x = make()
    made = [compiler_lab.compile(model, observe=observe, options={"entries": False}) for observe in (None, Trace().append)]
    with counting() as asked:
        made[0](x)
    made[1](x)
    times: list[list[float]] = [[], []]
    for _ in range(15):
        for kept, compiled in zip(times, made, strict=True):
            start = time.perf_counter()
            for _ in range(20):
                compiled(x)
            kept.append(time.perf_counter() - start)
    off, on = map(statistics.median, times)
    return f"{on / off:.3f} | {len(asked)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--stack", default="both", choices=("lab", "torch", "both"))
    parser.add_argument("--only", default="")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    chosen = {name: make for name, make in MODELS.items() if args.only in name}
    with tempfile.TemporaryDirectory() as folder:
        fresh = lambda: tempfile.mkdtemp(dir=folder) if args.cold else folder
        options = lambda: {"cache_dir": fresh(), "entries": False}
        for stack, once in (("lab", ours(options)), ("torch", torchs(args.cold))):
            if args.stack in (stack, "both"):
                print(f"\n| {stack} | off s | on s | on / off | quarter | reading s | calls |\n|---|---|---|---|---|---|---|")
                for name, make in chosen.items():
                    print(f"| {name} | {measured(once, make, args.rounds, args.cold)} |", flush=True)
    if args.stack != "torch" and not args.cold:
        print("\n| nobody records | hot | asked |\n|---|---|---|")
        for name, make in chosen.items():
            print(f"| {name} | {nothing(make)} |", flush=True)


if __name__ == "__main__":
    main()
