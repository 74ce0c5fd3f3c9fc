"""What equal layers cost to compile: seconds of each stage for 1, 4 and 12 layers of a transformer, forward and backward.

usage: python benchmarks/layers.py [--layers 1,4,12] [--width 64]

Each count is compiled in the same process, into an empty cache. Of the kernels those are counted that are compiled by themselves: the
others call one of them (codegen/cpp_same.py).
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch import nn

import compiler_lab
from compiler_lab.codegen.artifact import Kernels


def stages(layers: int, width: int) -> tuple[dict[str, float], int, int]:
    """(seconds by stage, kernels, kernels that are compiled by themselves)."""
    block = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(block, layers)
    trace = compiler_lab.Trace(f"{layers} layers")
    with tempfile.TemporaryDirectory() as folder:
        compiled = compiler_lab.compile(model, observe=trace.append, options={"cache_dir": folder})
        compiled(torch.randn(2, 16, width)).sum().backward()
    seconds: dict[str, float] = {}
    kernels = reused = 0
    for step in trace.steps:
        seconds[step.name] = seconds.get(step.name, 0.0) + step.seconds
        if step.name == "generate":
            assert isinstance(step.after, Kernels)
            kernels += len(step.after.kernels)
            reused += sum(d.kind == "reuse" for d in step.after.decisions)
    return seconds, kernels, kernels - reused


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--layers", default="1,4,12")
    arguments.add_argument("--width", type=int, default=64)
    given = arguments.parse_args()
    stages(1, given.width)  # imports, and the compiler's own first start
    rows = {int(n): stages(int(n), given.width) for n in given.layers.split(",")}
    print(f"{'seconds':34s}" + "".join(f"{n:>10d}" for n in rows))
    for name in next(iter(rows.values()))[0]:
        print(f"{name:34s}" + "".join(f"{seconds[name]:10.2f}" for seconds, _, _ in rows.values()))
    print(f"{'kernels':34s}" + "".join(f"{kernels:10d}" for _, kernels, _ in rows.values()))
    print(f"{'compiled by themselves':34s}" + "".join(f"{own:10d}" for _, _, own in rows.values()))


if __name__ == "__main__":
    main()
