"""Capture time per graph node, ours over Dynamo's, on the same models in one process, taking turns.

usage: python benchmarks/capture.py [--rounds 9] [--only NAME] [--profile NAME]

One round captures the model anew with each: ``compiler_lab.compile`` and ``torch.compile``, both with a backend that gives back the graph's own
``forward``, from the first call to its end, minus the median of later calls. Rounds take turns, the first two are not counted, and the median
of the others is divided by the number of calls in the graph. Below 1 is better than Dynamo. ``--profile NAME`` prints where our time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import compiler_lab


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + x)


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    layers = [layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(*layers).eval(), (torch.randn(2, 16),)


def transformer() -> tuple[nn.Module, tuple[Any, ...]]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).train(), (torch.randn(2, 16, 64),)


def residual() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Block(8) for _ in range(8)), nn.Flatten(), nn.Linear(512, 10)).eval(), (torch.randn(1, 3, 8, 8),)


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    transformers: Any = importlib.import_module("transformers")  # asked for by name: no part of the development environment
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, vocab_size=100)
    return transformers.BertModel(config).eval(), (torch.arange(12).reshape(1, 12),)


MODELS = {"mlp": mlp, "transformer": transformer, "residual": residual, "bert": bert}


class Counting:
    """A backend that gives the graph back and counts its calls."""

    def __init__(self) -> None:
        self.graphs = self.nodes = 0

    def __call__(self, graph: Any, inputs: list[Any]) -> Any:
        self.graphs += 1
        self.nodes += sum(n.op.startswith("call") for n in graph.graph.nodes)
        return graph.forward


def ours(model: nn.Module, backend: Counting) -> Callable[..., Any]:
    return compiler_lab.compile(model, backend=backend)


def dynamos(model: nn.Module, backend: Counting) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(model, backend=backend)


def first_call(compile: Callable[[nn.Module, Counting], Callable[..., Any]], model: nn.Module, args: tuple[Any, ...]) -> tuple[float, Counting]:
    """Seconds of the first call beyond a later one."""
    backend = Counting()
    compiled = compile(model, backend)
    times: list[float] = []
    with torch.no_grad():
        for _ in range(4):
            start = time.perf_counter()
            compiled(*args)
            times.append(time.perf_counter() - start)
    return times[0] - statistics.median(times[1:]), backend


def compare(name: str, rounds: int) -> None:
    model, args = MODELS[name]()
    seconds: dict[str, list[float]] = {"ours": [], "Dynamo": []}
    counts: dict[str, Counting] = {}
    for turn in range(rounds + 2):
        for who, compile in (("ours", ours), ("Dynamo", dynamos)):
            taken, counts[who] = first_call(compile, model, args)
            if turn >= 2:
                seconds[who].append(taken)
    per_node = {who: statistics.median(seconds[who]) / max(counts[who].nodes, 1) for who in seconds}
    text = "  ".join(f"{who}: {counts[who].graphs} graphs, {counts[who].nodes} nodes, {per_node[who] * 1e6:.0f} us a node" for who in seconds)
    print(f"{name:12s} {text}  ratio {per_node['ours'] / per_node['Dynamo']:.2f}", flush=True)


def profile(name: str) -> None:
    model, args = MODELS[name]()
    first_call(ours, model, args)
    with cProfile.Profile() as profiler:
        first_call(ours, model, args)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--profile", choices=MODELS)
    asked = parser.parse_args()
    if asked.profile:
        profile(asked.profile)
    for model in [] if asked.profile else [asked.only] if asked.only else MODELS:
        compare(model, asked.rounds)
