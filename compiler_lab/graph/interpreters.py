"""Interpreters: a graph run node by node, with something watched at each: calls, time, the first NaN. And a ``Transformer`` as a pass.

In: a graph (an artifact or a bare ``GraphModule``) and real arguments. Out: a report with ``text()``; ``transform`` gives a graph.
Always holds: the result of the program is what it would have been; the graph is not changed; each run works on copies of the arguments, so
that a program which writes to them can run again.
PyTorch's counterpart: ``torch/fx/interpreter.py``, whose classes do the work here: a watcher is one overridden ``run_node``.
Left out: what a program does to parameters and buffers it does here too, once for each run.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.fx as fx
from torch.utils._pytree import tree_leaves, tree_map

from ..core.artifact import Decision
from ..core.fx import GraphArtifact, describe, node_text, target_name
from ..core.provenance import Location, own_location, parents_of, stack_of
from ..core.report import Report
from .values import Graph, editable, layout, module_of, value_of

CALLS = ("call_function", "call_method", "call_module")


def _id(graph: Graph, node: fx.Node) -> str:
    return graph.id(node) if isinstance(graph, GraphArtifact) else node.name


def _clones(args: Any) -> Any:
    return tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, args)


# --------------------------------------------------------------------------------------------------------------- counting


@dataclass(frozen=True, repr=False)
class Calls(Report):
    """How often each operator is called: ``operators`` by name, ``kinds`` by opcode of FX; ``result`` where the graph was run."""

    operators: Counter[str]
    kinds: Counter[str]
    result: Any = None

    def text(self) -> str:
        rows = sorted(self.operators.items(), key=lambda r: (-r[1], r[0]))
        return "\n".join([f"{sum(self.operators.values())} calls", *(f"{count:5d}  {name}" for name, count in rows)])


def _tell(nodes: Iterator[fx.Node], result: Any = None) -> Calls:
    calls = [n for n in nodes if n.op in CALLS]
    return Calls(Counter(target_name(n) for n in calls), Counter(n.op for n in calls), result)


def op_histogram(graph: Graph) -> Calls:
    """The operators of ``graph`` as written, nothing run."""
    return _tell(iter(module_of(graph).graph.nodes))


class _Counting(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> Any:
        self.seen.append(n)
        return super().run_node(n)


def count_calls(graph: Graph, *args: Any) -> Calls:
    """Runs ``graph`` once and counts the calls that were made. FX has no control flow: the counts are those of ``op_histogram``."""
    run = _Counting(module_of(graph))
    result = run.run(*_clones(args))
    return _tell(iter(run.seen), result)


# ----------------------------------------------------------------------------------------------------------------- timing


@dataclass(frozen=True)
class NodeTime:
    """``seconds``: the median over the runs; ``share``: of the sum over all nodes."""

    id: str
    target: str
    seconds: float
    share: float
    location: Location | None


@dataclass(frozen=True, repr=False)
class Timings(Report):
    """Seconds of each call of a graph, in the graph's order; ``total`` is their sum."""

    nodes: tuple[NodeTime, ...]
    total: float
    repeats: int

    def slowest(self, n: int = 5) -> tuple[NodeTime, ...]:
        return tuple(sorted(self.nodes, key=lambda t: -t.seconds)[:n])

    def text(self) -> str:
        width = max((len(t.id) for t in self.nodes), default=0)
        rows = [
            f"{t.seconds * 1e6:10.1f} us {t.share:6.1%}  {t.id:<{width}}  {t.target}" + (f"  {t.location.text()}" if t.location else "") for t in self.nodes
        ]
        return "\n".join([f"{self.total * 1e6:.1f} us in {len(self.nodes)} calls, medians of {self.repeats} runs", *rows])


class _Timing(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, wait: bool) -> None:
        super().__init__(module)
        self.wait, self.runs = wait, dict[fx.Node, list[float]]()

    def run_node(self, n: fx.Node) -> Any:
        start = time.perf_counter()
        result = super().run_node(n)
        if self.wait:
            torch.cuda.synchronize()
        if n.op in CALLS:
            self.runs.setdefault(n, []).append(time.perf_counter() - start)
        return result


def time_nodes(graph: Graph, *args: Any, repeats: int = 10) -> Timings:
    """Runs ``graph`` once to warm up and ``repeats`` times on the clock; random numbers are drawn as if it had not run.

    The time of a node holds the interpreter's own cost for it, a few microseconds; on a GPU each node is waited for.
    """
    wait = any(t.is_cuda for t in tree_leaves(args) if isinstance(t, torch.Tensor))
    run = _Timing(module_of(graph), wait)
    with torch.random.fork_rng(None if wait else []):
        run.run(*_clones(args))
        run.runs.clear()
        for _ in range(repeats):
            run.run(*_clones(args))
    seconds = {n: median(runs) for n, runs in run.runs.items()}
    total = sum(seconds.values())
    rows = (NodeTime(_id(graph, n), target_name(n), s, s / total if total else 0.0, own_location(stack_of(n))) for n, s in seconds.items())
    return Timings(tuple(rows), total, repeats)


# ------------------------------------------------------------------------------------------------------- NaN and infinity


@dataclass(frozen=True)
class InputSeen:
    """An input of the node that was found, as it was before the node ran. ``at``: its element where the first bad one is, if it has that shape."""

    name: str
    value: str
    low: float | None = None
    high: float | None = None
    at: float | None = None

    def text(self) -> str:
        span = "" if self.low is None else f", from {self.low:g} to {self.high:g}"
        return f"{self.name}: {self.value}{span}" + ("" if self.at is None else f", there {self.at:g}")


@dataclass(frozen=True)
class BadNode:
    """The first node that makes NaN or infinity from finite inputs: ``count`` elements of ``size``, the first at index ``first``."""

    id: str
    node: str
    what: str  # "NaN", "infinity", "NaN and infinity"
    count: int
    size: int
    first: tuple[int, ...]
    inputs: tuple[InputSeen, ...]
    location: Location | None

    def text(self) -> str:
        where = [f"  where: {self.location.text()}"] if self.location else []
        head = [
            f"{self.id} makes {self.what} from finite inputs: {self.count} of {self.size} elements, the first at {list(self.first)}",
            f"  node:  {self.node}",
        ]
        return "\n".join([*head, *where, *(f"  input: {i.text()}" for i in self.inputs)])


@dataclass(frozen=True, repr=False)
class NonFinite(Report):
    """``found``: the node, or None; ``ran``: nodes up to there; ``given``: arguments of the graph that were not finite to begin with."""

    found: BadNode | None
    ran: int
    given: tuple[str, ...] = ()
    result: Any = None

    def text(self) -> str:
        given = [f"not finite when it came: {name}" for name in self.given]
        return "\n".join([*given, self.found.text() if self.found else f"no node makes NaN or infinity from finite inputs; {self.ran} ran"])


class _Stop(Exception):
    """The hunter has found what it looks for."""


def _bad(value: Any) -> torch.Tensor | None:
    """The first tensor in ``value`` with an element that is not finite; of a number that is not finite, that number."""
    for one in tree_leaves(value):
        if isinstance(one, (float, complex)):
            one = torch.tensor(one)
        if isinstance(one, torch.Tensor) and one.layout is torch.strided and (one.is_floating_point() or one.is_complex()) and not one.isfinite().all():
            return one
    return None


class _Hunter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, graph: Graph) -> None:
        super().__init__(module)
        self.over, self.extra_traceback = graph, False
        self.ran, self.given, self.found = 0, list[str](), None

    def run_node(self, n: fx.Node) -> Any:
        if n.op not in CALLS:
            value = super().run_node(n)
            if n.op == "placeholder" and _bad(value) is not None:
                self.given.append(n.name)
            return value
        self.ran += 1
        args = self.fetch_args_kwargs_from_env(n)
        held = tuple(self.fetch_attr(str(n.target)).state_dict().values()) if n.op == "call_module" else ()
        clean = _bad((args, held)) is None
        before = [(i.name, snap) for i in n.all_input_nodes if (snap := _clones(self.env[i])) is not None] if clean else []
        value = super().run_node(n)
        bad = (_bad(value) if _bad(value) is not None else _bad((args, held))) if clean else None  # a node may also write it into what it was given
        if bad is not None:
            self.found = self.seen(n, bad, before)
            raise _Stop
        return value

    def seen(self, n: fx.Node, bad: torch.Tensor, before: list[tuple[str, Any]]) -> BadNode:
        wrong = ~bad.isfinite()
        first = tuple(int(i) for i in wrong.nonzero()[0])
        kinds = [name for name, has in (("NaN", bad.isnan().any()), ("infinity", bad.isinf().any())) if has]
        inputs = tuple(_input(name, value, bad.shape, first) for name, value in before)
        count, size = int(wrong.sum()), bad.numel()
        return BadNode(_id(self.over, n), node_text(n), " and ".join(kinds), count, size, first, inputs, own_location(stack_of(n)))


def _input(name: str, value: Any, shape: torch.Size, first: tuple[int, ...]) -> InputSeen:
    if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
        return InputSeen(name, describe(value))
    value = value.detach()
    low, high = (float(v) for v in value.double().aminmax())
    return InputSeen(name, describe(value), low, high, float(value[first]) if value.shape == shape else None)


def find_nonfinite(graph: Graph, *args: Any) -> NonFinite:
    """Runs ``graph`` and stops at the first call whose inputs are all finite and whose result is not.

    Inputs are tensors, numbers written in the call (so a mask filled with ``-inf`` is nobody's fault), and what a called module holds. A
    node that writes the value into one of its inputs is found as well. Works on graphs of every stage, a backward included.
    """
    run = _Hunter(module_of(graph), graph)
    result = None
    with contextlib.suppress(_Stop):
        result = run.run(*_clones(args))
    return NonFinite(run.found, run.ran, tuple(run.given), result)


# ---------------------------------------------------------------------------------------------------------- transformers


class _Carrier:
    """Watches a transformer: which nodes it makes for which, so that they inherit lines, parents and, where nothing changed, names and values."""

    def __init__(self, source: GraphArtifact, run: fx.Transformer) -> None:
        self.source, self.inner, self.made = source, run.run_node, run.new_graph
        self.pairs: list[tuple[fx.Node, fx.Node]] = []  # new node, the one it was made for
        self.decisions: list[Decision] = []

    def run_node(self, n: fx.Node) -> Any:
        count = len(self.made.nodes)
        value = self.inner(n)
        new = list(self.made.nodes)[count:]
        same = [(o.op, o.target) for o in new] == [(n.op, n.target)]
        for one in new:
            one.meta |= {"stack": stack_of(n), "parents": parents_of(n) if same else (self.source.id(n),)}
            _revalue(one, n)
            self.pairs.append((one, n))
        if not same and n.op != "output":
            facts = {"was": target_name(n), "is": [target_name(o) for o in new]}
            self.decisions.append(Decision("transform", (self.source.id(n),), "replaced" if new else "removed", "transformer", facts))
        return value

    def name(self) -> None:
        """What is the same call keeps its name, and with it its id; the others keep clear of these names."""
        kept = {new: old.name for new, old in self.pairs if (new.op, new.target) == (old.op, old.target)}
        taken = set(kept.values())
        for new, _ in self.pairs:
            name, stem, count = kept.get(new, new.name), new.name.rstrip("0123456789").rstrip("_"), 1
            while new not in kept and name in taken:
                name, count = f"{stem}_{count}", count + 1
            new.name = name
            taken.add(name)


def transform(graph: Graph, transformer: type[fx.Transformer]) -> GraphArtifact:
    """``graph`` through a subclass of ``torch.fx.Transformer``: one overridden method is a pass::

        class ToGelu(fx.Transformer):
            def call_function(self, target, args, kwargs):
                return super().call_function(F.gelu if target is torch.relu else target, args, kwargs)

        after = transform(graph, ToGelu)

    The transformer makes the graph anew; here its nodes keep lines and parents, those that it left alone their names too, and those that it
    changed get their values. There is a decision for each node that became another. ``graph`` is not changed.
    """
    source = editable(graph)
    run = transformer(source.module)
    carrier = _Carrier(source, run)
    run.run_node = carrier.run_node
    made = run.transform().graph
    carrier.name()
    made.output_node().meta.update(source.graph.output_node().meta)
    return GraphArtifact(fx.GraphModule(source.module, made), source.stage, (*source.decisions, *carrier.decisions))


def _revalue(new: fx.Node, old: fx.Node) -> None:
    """The value of a node that a transformer made: the old one where it is the same call of the same values, its own otherwise."""
    pairs = zip(new.all_input_nodes, old.all_input_nodes, strict=False)
    same = (new.op, new.target) == (old.op, old.target) and all(layout(a.meta.get("val")) == layout(b.meta.get("val")) for a, b in pairs)
    value = old.meta.get("val", NotImplemented) if same or new.op not in ("call_function", "call_method") else value_of(new)
    if value is not NotImplemented and new.op != "output":
        new.meta["val"] = value


REASONS = {"transformer": "a method of the transformer gave another node for it"}
