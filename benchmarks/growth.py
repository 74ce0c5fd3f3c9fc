"""How cost grows with the graph: seconds of each stage at 100 to 10,000 nodes, the exponents, a table and a plot.

usage: python benchmarks/growth.py [--family REGEX] [--sizes 100,300,1000,3000,10000] [--build N] [--json FILE] [--write]

A family is a program of any length. Its size is the number of nodes of its joint graph, forward and backward. Seconds are of the processor
(``time.process_time``), so that other work on the machine weighs less; those of g++ are its own, user and system. The parts of a schedule are
timed where ``scheduling/fusion.py`` calls them. An exponent is the slope of the line through log seconds over log nodes, for sizes from 1,000 on (for
g++ from 300 on): what a stage costs once hides the rest below. Seconds below a tenth give no exponent.

``--build``: programs of up to about N nodes are compiled by g++ as well. ``--json``: results are added to those in FILE, which is read first, so that
families can be measured one at a time. ``--write`` writes ``growth.md`` and ``growth.svg`` beside this file; needs matplotlib.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import re
import resource
import tempfile
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import compiler_lab
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.partition import Partition
from compiler_lab.core.artifact import Artifact
from compiler_lab.core.modes import below_modes
from compiler_lab.core.options import Options
from compiler_lab.lowering.ir import TensorView
from compiler_lab.pipeline import JOINT_STEPS, Runner, loop_steps, to_kernels
from compiler_lab.runtime.build import build
from compiler_lab.scheduling import fusion

Program = tuple[Callable[..., Any], tuple[Any, ...]]

SIZES = (100, 300, 1000, 3000, 10000)
FROM = 1000
"""Nodes from which exponents are fitted."""

PARTS = {"recompute": "recompute", "build_group": "phases", "order": "order", "plan_groups": "memory plan"}
"""Functions that ``fusion.schedule`` calls -> the name of the part of the schedule they are; "fuse" is ``Fuser``, from its start to its end."""

STAGES: dict[str, tuple[str, ...]] = {
    "capture": ("capture",),
    "joint": ("joint",),
    "graph passes": tuple(dict.fromkeys(p.name for p in JOINT_STEPS if p.name != "partition")),
    "partition": ("partition",),
    "lower": ("lower",),
    "fuse": ("fuse",),
    "recompute": ("recompute",),
    "phases, order": ("phases", "order", "schedule, rest"),
    "memory plan": ("memory plan",),
    "generate": ("generate",),
    "g++": ("g++",),
}
"""What is shown as one -> what the clock tells apart. The wrapper in C and in Python is a part of "generate"."""


def chain(length: int) -> Program:
    """Pointwise, each result read twice: by the next step and by one three steps on."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        last = [x, y, x]
        for i in range(length):
            last = [*last[1:], (torch.sigmoid, torch.relu, torch.tanh)[i % 3](last[-1]) + last[0]]
        return last[-1]

    return fn, (torch.randn(16, 16, requires_grad=True), torch.randn(16, 16))


class Block(nn.Module):
    """Attention of one head and an MLP, each with layer norm and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


def blocks(length: int) -> Program:
    """Equal layers of a transformer."""
    return nn.Sequential(*(Block(16) for _ in range(length))), (torch.randn(2, 8, 16),)


def outputs(length: int) -> Program:
    """Many results that do not need each other, of eight sizes."""

    def fn(*xs: Tensor) -> list[Tensor]:
        return [torch.sin(xs[i % 8]) * (i + 1) for i in range(length)]

    return fn, tuple(torch.randn(8, 8 + i, requires_grad=i % 2 == 0) for i in range(8))


def views(length: int) -> Program:
    """Cut, turned, flipped, padded and put together again."""

    def fn(x: Tensor) -> Tensor:
        for i in range(length):
            a, b = x.split(8, dim=i % 2)
            x = torch.cat([b.t().reshape(a.shape) * 0.5, a + 1], dim=i % 2)
            x = torch.nn.functional.pad(x[1:, :-1], (1, 0, 0, 1)) if i % 4 == 3 else x.t()
        return x

    return fn, (torch.randn(16, 16, requires_grad=True),)


FAMILIES: dict[str, tuple[Callable[[int], Program], float]] = {
    "chain": (chain, 4.0),
    "blocks": (blocks, 125.0),
    "outputs": (outputs, 4.2),
    "views": (views, 18.0),
}
"""Name -> (program of a length, nodes of its joint graph for each step)."""


class Clock:
    """Seconds by name. ``call``: ``fn``, timed; what is timed within it is not counted again."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner = 0.0

    def call(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outside, self.inner = self.inner, 0.0
        start = time.process_time()
        try:
            return fn(*args, **kwargs)
        finally:
            spent = time.process_time() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self.inner
            self.inner = outside + spent


@contextlib.contextmanager
def parts_timed(clock: Clock) -> Generator[None]:
    """``fusion.schedule`` tells the clock of its parts."""
    kept = {name: getattr(fusion, name) for name in PARTS}

    class Timed(fusion.Fuser):
        def __init__(self, *args: Any) -> None:
            clock.call("fuse", super().__init__, *args)

        def fuse(self) -> None:
            clock.call("fuse", super().fuse)

    fuser, fusion.Fuser = fusion.Fuser, Timed
    for name, fn in kept.items():
        setattr(fusion, name, partial(clock.call, PARTS[name], fn))
    try:
        yield
    finally:
        fusion.Fuser = fuser
        for name, fn in kept.items():
            setattr(fusion, name, fn)


class Timed(Runner):
    """Runs the pipeline's steps by the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Options(), None)
        self.clock = clock

    def step(self, name: str, before: Artifact | None, run: Callable[[], Any], part: str = "") -> Any:
        return self.clock.call({"schedule": "schedule, rest"}.get(name, name), run)


def measure(make: Callable[[int], Program], length: int, most_built: int) -> tuple[dict[str, float], dict[str, int]]:
    """(seconds by stage, counts): a program of ``length`` steps through all stages."""
    fn, args = make(length)
    clock = Clock()
    run = Timed(clock)
    gc.collect()
    gc.disable()  # a collection of the youngest walks what the whole graph holds every so often, in whichever stage it falls
    graph = clock.call("capture", compiler_lab.capture, fn, *args).graphs[0]
    traced: JointGraph = clock.call("joint", compiler_lab.joint, graph)
    nodes = len(traced.graph.nodes)
    with below_modes(), parts_timed(clock):
        part: Partition = run.passes(JOINT_STEPS, traced)
        outs = len(part.forward.outputs)
        saved = range(outs - len(part.saved), outs)
        halves = {"forward": to_kernels(part.forward, run, "forward", loop_steps(free=saved))}
        if part.backward is not None:
            kept = zip(part.backward.placeholders, (halves["forward"].schedule.program.outputs[i] for i in saved), strict=False)
            layouts = {n.name: v.stride for n, v in kept if isinstance(v, TensorView)}
            halves["backward"] = to_kernels(part.backward, run, "backward", loop_steps(layouts=layouts))
    gc.enable()
    if nodes <= most_built:
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            for kernels in halves.values():
                clock.call("build, rest", build, kernels, Options(cache_dir=folder))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        clock.seconds["g++"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    loops = sum(len(k.schedule.program.nodes) for k in halves.values())
    return clock.seconds, {"nodes": nodes, "loops": loops, "kernels": sum(len(k.kernels) for k in halves.values())}


Results = dict[str, list[dict[str, Any]]]
"""Family -> one row for each size: "nodes", "loops", "kernels", and seconds by stage."""


def row(seconds: dict[str, float], counts: dict[str, int]) -> dict[str, Any]:
    return counts | {stage: sum(seconds[p] for p in parts if p in seconds) for stage, parts in STAGES.items() if any(p in seconds for p in parts)}


def exponent(rows: list[dict[str, Any]], stage: str) -> float | None:
    """Least squares through the logs; None without two sizes whose seconds can be told from none."""
    least = 300 if stage == "g++" else FROM
    points = [(math.log(r["nodes"]), math.log(r[stage])) for r in rows if r.get(stage, 0) >= 0.1 and r["nodes"] >= 0.9 * least]
    if len(points) < 2:
        return None
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def table(results: Results) -> str:
    lines: list[str] = []
    for family, rows in results.items():
        lines += [f"## {family}", "", (FAMILIES[family][0].__doc__ or "").strip(), ""]
        lines += [f"| | {' | '.join(format(r['nodes'], ',') for r in rows)} | exponent |", "|---" * (len(rows) + 2) + "|"]
        for stage in STAGES:
            found = exponent(rows, stage)
            cells = [f"{r[stage]:.2f}" if stage in r else "" for r in rows]
            lines.append(f"| {stage} | {' | '.join(cells)} | {'' if found is None else f'{found:.2f}'} |")
        for count in ("loops", "kernels"):
            lines.append(f"| *{count}* | {' | '.join(format(r[count], ',') for r in rows)} | |")
        lines.append("")
    return "\n".join(lines)


COLOURS = ("#4e79a7", "#f28e2b", "#76b7b2", "#9c755f", "#59a14f", "#e15759", "#b07aa1", "#ff9da7", "#edc948", "#1f1f1f", "#bab0ac")


def draw(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"})
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True)
    for axes, (family, rows) in zip(grid.flat, results.items(), strict=False):
        for stage, colour in zip(STAGES, COLOURS, strict=True):
            shown = [(r["nodes"], r[stage]) for r in rows if r.get(stage, 0) >= 0.01]
            axes.plot(*zip(*shown, strict=True), color=colour, marker="o", markersize=2.5, linewidth=1.2, label=stage)
        axes.plot([100, 10000], [0.05, 5], color="#888888", linestyle=":", linewidth=1, label="as the graph")
        axes.plot([100, 10000], [0.01, 100], color="#cccccc", linestyle=":", linewidth=1, label="as its square")
        axes.set(title=family, xscale="log", yscale="log", xlim=(70, 14000), ylim=(0.01, 100))
        axes.grid(True, which="major", linewidth=0.4, color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[1]:
        axes.set_xlabel("nodes of the joint graph")
    for axes in grid[:, 0]:
        axes.set_ylabel("seconds")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=7, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--family", default="")
    arguments.add_argument("--sizes", default=",".join(map(str, SIZES)))
    arguments.add_argument("--build", type=int, default=0)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    results: Results = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    chosen = [family for family in FAMILIES if given.sizes and re.search(given.family, family)]
    if chosen:
        measure(chain, 3, 0)  # imports
    for family in chosen:
        make, each = FAMILIES[family]
        for n in map(int, given.sizes.split(",")):
            found = row(*measure(make, max(1, round(n / each)), given.build))
            rows = {r["nodes"]: r for r in results.get(family, [])} | {found["nodes"]: found}
            results[family] = [rows[nodes] for nodes in sorted(rows)]
            if given.json:
                given.json.write_text(json.dumps(results, indent=1))
    results = {family: results[family] for family in FAMILIES if family in results}
    print(table(results))
    if given.write:
        here = Path(__file__).parent
        head, _, _ = (here / "growth.md").read_text().partition("\n## ")
        (here / "growth.md").write_text(f"{head}\n{table(results)}".rstrip() + "\n")
        draw(results, here / "growth.svg")


if __name__ == "__main__":
    main()
