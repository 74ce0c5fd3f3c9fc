"""Memory of models: what must live at once, what our programs take, and a step of ours beside torch.compile's and eager's.

usage: python benchmarks/memory.py --suite FILE [--models REGEX] [--what infer,train] [--torch]

All figures are bytes that torch's allocator has given out beyond those before, by the events of the profiler; parameters, inputs and gradients of the
step before are not in them.
 needed   of each half (forward, backward), the largest sum of what must live at once in it: results, intermediates, results of aten's calls and
          what its convolutions and attention take beside them
 program  what a call of that half takes at most, its arena included;  ratio: program / needed, the worst half of those that need a page
 ours     what a later step takes at most, the arena that is kept between steps (kept) included
 torch    the same of torch.compile (with --torch: it takes a while);  eager: of the model as it is
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from partition import Model, loss_of, models, peak_bytes

import compiler_lab
from compiler_lab.lowering.interpret import evaluate_extern
from compiler_lab.lowering.ir import BufferSpec, TensorView
from compiler_lab.runtime import native
from compiler_lab.runtime.build import build
from compiler_lab.runtime.program import Program
from compiler_lab.scheduling.artifact import Schedule
from compiler_lab.scheduling.ir import FRESH, ExternGroup, Group
from compiler_lab.scheduling.order import group_reads, group_writes, lifetimes

PAGE = 4096


def needed(schedule: Schedule) -> int:
    """The largest sum of what must live at once, in bytes: everything that groups write, from then to its last use, results to the end, and what an
    aten call takes beside its results."""
    outputs = {o.buffer for o in schedule.program.outputs if isinstance(o, TensorView)}
    spans, last = lifetimes(schedule.groups), len(schedule.groups) - 1
    alive = [workspace(g, schedule.program.buffers) for g in schedule.groups]
    for spec in (s for g in schedule.groups for s in group_writes(g)):
        for i in range(spans[spec.name][0], (last if spec.name in outputs else spans[spec.name][1]) + 1):
            alive[i] += spec.nbytes
    return max(alive, default=0)


def workspace(group: Group, buffers: Mapping[str, BufferSpec]) -> int:
    """Of a convolution or an attention call."""
    if not isinstance(group, ExternGroup) or group.node.target not in FRESH:
        return 0
    inputs = {name: zeros(buffers[name]) for name in group_reads(group)}
    kept: list[Any] = []
    with torch.no_grad():
        most = peak_bytes(lambda: kept.extend(evaluate_extern(group.node, inputs)))
    return most - sum(t.untyped_storage().nbytes() for t in kept if t is not None)


def zeros(spec: BufferSpec) -> torch.Tensor:
    return torch.zeros(spec.nbytes // spec.dtype.itemsize + 1, dtype=spec.dtype).as_strided(spec.size, spec.stride)


def first_call(program: Program) -> int:
    """Peak of a call that makes its arena."""
    fresh = build(program.kernels)  # one in Python has an arena of its own
    native.release()
    inputs = [zeros(s) for s in program.kernels.schedule.program.inputs]
    with torch.no_grad():
        return peak_bytes(lambda: fresh(*inputs))


def step_of(call: Callable[..., Any], args: Any, kwargs: Any, train: bool) -> None:
    if train:
        loss_of(call(*args, **kwargs)).backward()
        return
    with torch.no_grad():
        call(*args, **kwargs)


def step_peak(model: Model, compiled: Callable[[Any], Any], train: bool) -> int:
    """Of the third step."""
    module, args, kwargs = model()
    module.train(train)
    if not train:
        kwargs.pop("return_loss", None)
    call = compiled(module)
    native.release()
    for _ in range(2):
        step_of(call, args, kwargs, train)
        module.zero_grad(set_to_none=True)
    return native.pooled() + peak_bytes(lambda: step_of(call, args, kwargs, train))


def row(model: Model, train: bool, with_torch: bool) -> dict[str, Any]:
    programs: list[Program] = []
    steps: Callable[[Any], None] = lambda s: programs.append(s.after) if s.name == "build" else None
    ours = step_peak(model, lambda m: compiler_lab.compile(m, observe=steps), train)
    kept = native.pooled() + sum(p.kernels.schedule.plan.arena_bytes for p in programs if p.language != "C")
    ours += kept - native.pooled()
    halves = [(needed(p.kernels.schedule), first_call(p)) for p in programs]
    found = {
        "needed": max(n for n, _ in halves),
        "program": max(p for _, p in halves),
        "ratio": round(max([p / n for n, p in halves if n >= PAGE], default=1.0), 3),
        "ours": ours,
        "kept": kept,
        "eager": step_peak(model, lambda m: m, train),
    }
    if with_torch:
        torch._dynamo.reset()
        found["torch"] = step_peak(model, torch.compile, train)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--models")
    parser.add_argument("--what", default="infer,train")
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    first = True
    for name, model in models(options.suite, options.models).items():
        for what in options.what.split(","):
            compiler_lab.reset()
            found = row(model, what == "train", options.torch)
            if first:
                print("| model | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
                first = False
            print(f"| {name}, {what} | " + " | ".join(map(str, found.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
