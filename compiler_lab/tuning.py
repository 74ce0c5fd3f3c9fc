"""Measuring which of two ways is faster, where ``mode="max-autotune"`` asks for it: matrix products by a template of ours or by the library.

In: a ``Product``. Out: a ``Choice`` with the microseconds it went by. Both ways are whole programs, made by the stages and called as users call them:
the product, its bias, and one elementwise operator if one follows, else one beside it, so that both ways have a kernel and are called from C. They
take turns on data of their own. What was measured is kept in the cache folder, for this processor, number of threads, compiler and torch: a later
process does not measure again.
PyTorch's counterpart: ``torch/_inductor/select_algorithm.py`` (AlgorithmSelectorCache). Left out: other operators; several templates.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import torch
import torch.fx as fx
from torch import Tensor

from .codegen.cpp import generate
from .core.fx import GraphArtifact
from .core.options import Options
from .lowering.lower import lower
from .lowering.rows_product import LEAST, Choice, Choose, Product
from .runtime.build import build_many
from .runtime.cache import key_of, open_cache
from .runtime.program import Program
from .runtime.toolchain import cpu_features, find_toolchain, headers
from .scheduling.fusion import schedule

ROUNDS, SECONDS = 11, 0.002
"""Of each way: rounds, and the least time that a round takes."""
CLEARLY = 0.97
"""The template is taken where it needs at most this part of the library's time."""
LIBRARY, TEMPLATE = "library us", "template us"


def by_measurement(options: Options) -> Choose:
    """What ``lower(choose=)`` is given. Each product is measured once."""
    known: dict[Product, Choice] = {}

    def choose(product: Product) -> Choice:
        if product not in known:
            known[product] = _choice(_kept(product, options))
        return known[product]

    return choose


def _choice(times: dict[str, float]) -> Choice:
    return Choice(times[TEMPLATE] <= CLEARLY * times[LIBRARY], {name: round(us, 2) for name, us in times.items()})


def _kept(product: Product, options: Options) -> dict[str, float]:
    cache = open_cache(options.cache_dir, options.cache_megabytes)
    tools = find_toolchain(options.cxx, options.cache_dir)
    machine = (torch.__version__, str(torch.get_num_threads()), tools.path, tools.version, *tools.flags, cpu_features(), *headers().values())
    key = key_of(["product", json.dumps(asdict(product)), *machine])
    for path, data in cache.entries(key):
        cache.used(path)
        return json.loads(data)
    times = measure(product, options)
    cache.keep(key, json.dumps(times).encode())
    return times


def measure(product: Product, options: Options) -> dict[str, float]:
    """Microseconds of a call each way, of the fastest of rounds that take turns: what else the machine does only adds to a round."""
    ways = {LIBRARY: False, TEMPLATE: True}
    graph, args = _graph(product)
    kernels = [generate(schedule(lower(graph, choose=lambda _, ours=ours: Choice(ours)), options), options) for ours in ways.values()]
    programs = build_many(kernels, options)
    with torch.no_grad():
        times = [_seconds(program, args, 1) for program in programs for _ in range(2)][1::2]  # the first call of each makes its arena
        count = max(1, int(SECONDS / min(times)))
        rounds = [[_seconds(program, args, count) for program in programs] for _ in range(ROUNDS)]
    return {name: 1e6 * min(r[i] for r in rounds) for i, name in enumerate(ways)}


def _seconds(program: Program, args: list[Tensor], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        program(*args)
    return (time.perf_counter() - start) / count


def _graph(p: Product) -> tuple[GraphArtifact, list[Tensor]]:
    """The product with what is added to it and what follows it, and arguments that lie as the call's do."""
    shapes = {"left": ((p.rows, p.depth), p.left), "right": ((p.depth, p.columns), p.right)}
    if p.bias is not None:
        shapes = {"bias": ((p.rows, p.columns), p.bias), **shapes}
    args = {name: _filled(size, stride) for name, (size, stride) in shapes.items()}
    graph, result = fx.Graph(), torch.empty(p.rows, p.columns)
    inputs = [_described(graph.placeholder(name), value) for name, value in args.items()]
    relu = torch.ops.aten.relu.default
    outputs = [_described(graph.call_function(torch.ops.aten.mm.default if p.bias is None else torch.ops.aten.addmm.default, tuple(inputs)), result)]
    if p.followed:
        outputs = [_described(graph.call_function(relu, tuple(outputs)), result)]
    else:
        args["beside"] = torch.randn(LEAST)
        outputs.append(_described(graph.call_function(relu, (_described(graph.placeholder("beside"), args["beside"]),)), args["beside"]))
    graph.output(tuple(outputs))
    return GraphArtifact(fx.GraphModule(torch.nn.Module(), graph), "aot.product"), list(args.values())


def _filled(size: tuple[int, int], stride: tuple[int, ...]) -> Tensor:
    memory = torch.randn(1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)))
    return memory.as_strided(size, stride)


def _described(node: fx.Node, value: Tensor) -> fx.Node:
    node.meta.update(val=value, stack=(), parents=())
    return node
