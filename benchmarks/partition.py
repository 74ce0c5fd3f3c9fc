"""What our cut keeps for the backward beside what torch's keeps of the same joint graph, for models of a suite.

usage: python benchmarks/partition.py --suite FILE [--models REGEX] [--what saved,flow,memory,time] [--json FILE]

saved   each model is captured and decomposed, and the same joint graph is given to our partitioner (cost models "bytes" and "torch") and to
        ``torch._functorch.partitioners.min_cut_rematerialization_partition``. Bytes: what the backward is given, a view counted as what it
        views, each once; inputs (parameters among them) beside the rest. Computed again: flops by the formulas of ``torch.utils.flop_counter``,
        and elements touched by everything else. Banned: values of ours computed again that torch's rules forbid.
flow    seconds of our maximum flow and of ``networkx.minimum_cut`` on the network of a GPT-2 of 12 layers, best of seven each, taking turns
time    milliseconds of a training step, the same two and eager and our kernels ("lab"), medians of rounds that take turns
memory  the most bytes alive at once while a training step runs, ours ("aot_eager_decomp") beside ``torch.compile`` with
        "aot_eager_decomp_partition", counted by ``torch.profiler``

FILE is a module with ``MODELS`` (name -> size -> (module, keyword arguments)) and ``nn_models()`` (name -> () -> (module, arguments)).
What it gave is in ``partition.md`` beside this file.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor, nn

import compiler_lab
from compiler_lab.aot.bans import is_free
from compiler_lab.aot.flops import element_ops, flops
from compiler_lab.aot.flow import solve
from compiler_lab.aot.ir import FlowNetwork, JointGraph
from compiler_lab.aot.partition import Partition, partition
from compiler_lab.core.options import Options
from compiler_lab.core.schema import base_of, nbytes
from compiler_lab.observe.trace import Step

TWENTY = (
    "bert roberta distilbert albert electra gpt2 gpt-neox opt bloom llama mistral qwen2 t5 bart vit convnext nn-mlp nn-resnet18 nn-unet "
    "nn-transformer-encoder nn-mha nn-nanogpt nn-vae nn-moe"
).split()
Model = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


def models(suite: Path, wanted: str | None) -> dict[str, Model]:
    """Models by name, made anew at each call with the same random weights."""
    transformers: Any = importlib.import_module("transformers")  # asked for by the suite: no part of the development environment

    transformers.logging.set_verbosity_error()
    spec = importlib.util.spec_from_file_location("suite", suite)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    import sys

    sys.path.insert(0, str(suite.parent))
    spec.loader.exec_module(module)

    def of_transformers(make: Any) -> Model:
        def made() -> Any:
            torch.manual_seed(0)
            model, kwargs = make("tiny")
            return model.train(), (), kwargs

        return made

    def plain(name: str) -> Model:
        def made() -> Any:
            torch.manual_seed(0)
            model, args = module.nn_models()[name]()
            return model.train(), args, {}

        return made

    every = {n: of_transformers(m) for n, m in module.MODELS.items()} | {n: plain(n) for n in module.nn_models()}
    return {n: m for n, m in every.items() if (re.search(wanted, n) if wanted else n in TWENTY)}


def partitions(model: Model) -> list[Partition]:
    """Of each graph of the model that has a backward."""
    found: list[Partition] = []

    def watch(step: Step) -> None:
        if step.name == "partition" and isinstance(step.after, Partition) and step.after.backward is not None:
            found.append(step.after)

    module, args, kwargs = model()
    compiler_lab.compile(module, backend="aot_eager_decomp", observe=watch)(*args, **kwargs)
    return found


# ------------------------------------------------------------------------------------------------------------- what is kept


def of_torch(joint: JointGraph) -> tuple[list[str], list[str], set[str]]:
    """(saved, computed again, forbidden to compute again) of torch's partitioner, by name."""
    from torch._functorch import partitioners

    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in joint.graph.nodes:
        new = copies[node] = graph.node_copy(node, copies.__getitem__)
        new.name, val = node.name, node.meta.get("val")
        new.meta = {} if node.op == "output" else {"val": val}
        if isinstance(val, Tensor):
            new.meta["tensor_meta"] = val.shape  # only asked for: without it a node counts as a tuple
    banned: set[str] = set()
    solve_min_cut = partitioners.solve_min_cut

    def noting(*args: Any, **kwargs: Any) -> Any:
        saved, refused = solve_min_cut(*args, **kwargs)
        banned.update(n.name for n in refused)
        return saved, refused

    partitioners.solve_min_cut = noting
    try:
        inputs = [p.meta["val"] for p in joint.placeholders]
        halves = partitioners.min_cut_rematerialization_partition(fx.GraphModule(joint.module, graph), inputs, num_fwd_outputs=joint.spec.forward_outputs)
    finally:
        partitioners.solve_min_cut = solve_min_cut
    forward, backward = (half.graph for half in halves)
    results: Any = forward.output_node().args[0]
    known = {n.name for n in forward.nodes}
    return [n.name for n in results[joint.spec.forward_outputs :]], [n.name for n in backward.nodes if n.op == "call_function" and n.name in known], banned


def kept_bytes(joint: JointGraph, saved: Iterable[str]) -> tuple[int, int]:
    """(of inputs, of everything else): what the saved values are views of, each once."""
    by_name = {n.name: n for n in joint.graph.nodes}
    bases = dict.fromkeys(base_of(by_name[name]) for name in saved)
    inputs = [n for n in bases if n.op == "placeholder"]
    return sum(nbytes(n.meta["val"]) for n in inputs), sum(nbytes(n.meta["val"]) for n in bases if n.op != "placeholder")


def again(joint: JointGraph, names: Iterable[str]) -> tuple[int, int]:
    """(flops, elements touched where there is no formula) of computing ``names`` once more."""
    nodes = repeated(joint, names)
    return sum(map(flops, nodes)), sum(element_ops(n) for n in nodes if not flops(n))


def repeated(joint: JointGraph, names: Iterable[str]) -> list[fx.Node]:
    """The operators among ``names`` that cost something: no views, no constants."""
    by_name = {n.name: n for n in joint.graph.nodes}
    return [n for name in names if (n := by_name[name]).op == "call_function" and not is_free(n)]


def saved_row(name: str, parts: list[Partition]) -> dict[str, Any]:
    """Sums over the graphs of one model."""
    row: dict[str, Any] = {"model": name, "graphs": len(parts)}

    def add(key: str, amount: int) -> None:
        row[key] = row.get(key, 0) + amount

    for part in parts:
        joint = part.joint
        saved, repeats, banned = of_torch(joint)
        ours = {"ours": part, "torch_model": partition(joint, Options(cost_model="torch"))}
        found = {who: ([s.removesuffix("_read") for s in p.saved], list(p.recomputed)) for who, p in ours.items()} | {"torch": (saved, repeats)}
        for who, (kept, once_more) in found.items():
            for key, amount in zip(("inputs", "saved", "flops", "elements"), (*kept_bytes(joint, kept), *again(joint, once_more)), strict=True):
                add(f"{who}_{key}", amount)
            add(f"{who}_banned", len(banned & {n.name for n in repeated(joint, once_more)}))
    return row


SAVED = """| model | inputs kept: ours, torch | other bytes kept: ours, torch | flops again: ours, torch | elements again: ours, torch | banned again |
|---|---|---|---|---|---|"""


def saved_line(r: dict[str, Any]) -> str:
    pair = lambda key: f"{r['ours_' + key]:,}, {r['torch_' + key]:,}"
    return f"| {r['model']} | {pair('inputs')} | {pair('saved')} | {pair('flops')} | {pair('elements')} | {r['ours_banned']} |"


# ------------------------------------------------------------------------------------------------------------- the flow


def gpt2() -> Any:
    transformers: Any = importlib.import_module("transformers")

    config = transformers.GPT2Config(vocab_size=128, n_embd=32, n_layer=12, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config).train()
    return model, (), {"input_ids": torch.arange(32).reshape(2, 16), "use_cache": False}


def by_networkx(network: FlowNetwork) -> float:
    import networkx as nx

    graph: Any = nx.DiGraph()
    for e in network.edges:
        graph.add_edge(e.source, e.target, capacity=e.capacity)
    start = time.perf_counter()
    value, _ = nx.minimum_cut(graph, "source", "sink")
    seconds = time.perf_counter() - start
    assert network.solution is not None and value == network.solution.value
    return seconds


def flow_row() -> dict[str, Any]:
    """Of the largest graph of a GPT-2 of twelve layers. Building a graph for networkx is not counted; building ours is."""
    part = max(partitions(gpt2), key=lambda p: len(p.joint.graph.nodes))
    assert part.network is not None
    network, best = part.network, dict[str, float]()
    for _ in range(7):
        start = time.perf_counter()
        solve(network)
        best["ours"] = min(best.get("ours", 1e9), time.perf_counter() - start)
        best["networkx"] = min(best.get("networkx", 1e9), by_networkx(network))
    sizes = {"nodes": len(part.joint.graph.nodes), "edges": len(network.edges)}
    return {**sizes, "ours_ms": best["ours"] * 1e3, "networkx_ms": best["networkx"] * 1e3, "ratio": best["networkx"] / best["ours"]}


# ------------------------------------------------------------------------------------------------------------- memory of a step


def peak_bytes(step: Callable[[], Any]) -> int:
    """The most bytes allocated at once during ``step``, beyond what was allocated before it, by the events of the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    alive = most = 0
    inner: Any = profiler.profiler
    for event in sorted((e for e in inner.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "ours": lambda m: compiler_lab.compile(m, backend="aot_eager_decomp"),
    "torch": lambda m: torch.compile(m, backend="aot_eager_decomp_partition"),
    "eager": lambda m: m,
}


def memory_row(name: str, model: Model) -> dict[str, Any]:
    """Of the third training step (forward, loss, backward; gradients are None before it), ours beside torch's with the same kind of cut."""
    row: dict[str, Any] = {"model": name}
    for who, compiled in WAYS.items():
        torch._dynamo.reset()
        module, args, kwargs = model()
        call = compiled(module)

        def step(call: Any = call, args: Any = args, kwargs: Any = kwargs) -> None:
            loss_of(call(*args, **kwargs)).backward()

        for _ in range(2):
            step()
            module.zero_grad(set_to_none=True)
        row[who] = peak_bytes(step)
    return row


def loss_of(out: Any) -> Tensor:
    """The model's own loss, or the mean of everything that it gives."""
    if isinstance(loss := getattr(out, "loss", None), Tensor):
        return loss
    values = out if isinstance(out, (tuple, list)) else list(out.values()) if isinstance(out, dict) else [out]
    return torch.stack([v.float().mean() for v in values if isinstance(v, Tensor) and v.requires_grad]).sum()


def time_row(name: str, model: Model) -> dict[str, Any]:
    """Of a training step, after three that are not counted."""
    steps: dict[str, Callable[..., None]] = {}
    torch._dynamo.reset()
    for who, compiled in {**WAYS, "lab": compiler_lab.compile}.items():
        module, args, kwargs = model()
        call = compiled(module)

        def step(module: nn.Module = module, call: Any = call, args: Any = args, kwargs: Any = kwargs) -> None:
            loss_of(call(*args, **kwargs)).backward()
            module.zero_grad(set_to_none=True)

        steps[who] = step
    times: dict[str, list[float]] = {who: [] for who in steps}
    for turn in range(3 + 15):
        for who, step in steps.items():
            start = time.perf_counter()
            step()
            if turn >= 3:
                times[who].append((time.perf_counter() - start) * 1e3)
    return {"model": name} | {who: statistics.median(found) for who, found in times.items()}


TIME = """| model | step ms: ours, aten | torch.compile, aten | eager | ours, kernels | ours / torch |
|---|---|---|---|---|---|"""


def time_line(r: dict[str, Any]) -> str:
    return f"| {r['model']} | {r['ours']:.2f} | {r['torch']:.2f} | {r['eager']:.2f} | {r['lab']:.2f} | {r['ours'] / r['torch']:.2f} |"


MEMORY = """| model | most bytes at once: ours | torch.compile | eager | ours / torch |
|---|---|---|---|---|"""


def memory_line(r: dict[str, Any]) -> str:
    return f"| {r['model']} | {r['ours']:,} | {r['torch']:,} | {r['eager']:,} | {r['ours'] / r['torch']:.2f} |"


Row = dict[str, Any]
TABLES: dict[str, tuple[str, Callable[[str, Model], Row], Callable[[Row], str]]] = {
    "saved": (SAVED, lambda name, model: saved_row(name, partitions(model)), saved_line),
    "memory": (MEMORY, memory_row, memory_line),
    "time": (TIME, time_row, time_line),
}
"""By name: the head of the table, a model's row, and the row as text."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--models")
    parser.add_argument("--what", default="saved,flow,memory")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    told: dict[str, Any] = {}
    for what, (head, row, line) in TABLES.items():
        if what in asked.what:
            print(head)
            told[what] = []
            for name, model in models(asked.suite, asked.models).items():
                told[what].append(row(name, model))
                print(line(told[what][-1]), flush=True)
            print()
    if "flow" in asked.what:
        told["flow"] = f = flow_row()
        sizes = f"{f['nodes']} nodes, {f['edges']} edges"
        print(f"maximum flow of a GPT-2 of 12 layers ({sizes}): ours {f['ours_ms']:.1f} ms, networkx {f['networkx_ms']:.1f} ms, {f['ratio']:.1f} times ours")
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
