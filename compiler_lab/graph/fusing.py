"""The fusing backend: two rewrites on a captured graph, and a report of what they did; and a pair of inner compilers that note what they get.

In: what a backend is given, ``(gm, example_inputs)``: a torch-level graph with parameters as placeholders, and real tensors. It serves
``compiler_lab.compile`` and ``torch.compile`` alike. Out: a callable; ``reports`` has a ``Fused`` for each graph.
Always holds: results differ from eager by rounding only; batch norm in training is left alone; parameters are read at each call.
PyTorch's counterparts: the passes of ``torch/_inductor/fx_passes``, which run below autograd; a backend of one's own is described in
``torch/_dynamo/backends/common.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx as fx

from ..core.artifact import Decision
from ..core.fx import GraphArtifact, describe
from ..core.report import Report
from ..core.schema import nbytes
from .diff import GraphDiff, diff_graphs
from .fusions import fold_batch_norm, fuse_silu
from .interpreters import CALLS, Calls, op_histogram
from .values import with_values

GraphPass = Callable[[GraphArtifact], GraphArtifact]
PASSES: tuple[GraphPass, ...] = (fold_batch_norm, fuse_silu)
"""Folding first: what it leaves between convolution and sigmoid is the convolution itself."""


@dataclass(frozen=True, repr=False)
class Fused(Report):
    """One graph through the backend: ``before`` and ``after`` as graphs, the difference that each pass made, and the decisions of all."""

    before: GraphArtifact
    after: GraphArtifact
    diffs: tuple[tuple[str, GraphDiff], ...]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.after.decisions if d.kind == "rewrite")

    @property
    def rewrites(self) -> Counter[str]:
        """How often each pattern was replaced, by its name."""
        return Counter(str(d.facts["pattern"]) for d in self.decisions if d.outcome == "replaced")

    @property
    def refused(self) -> tuple[Decision, ...]:
        return tuple(d for d in self.decisions if d.outcome == "refused")

    @property
    def operators(self) -> tuple[Calls, Calls]:
        """Histograms of the operators, before and after."""
        return op_histogram(self.before), op_histogram(self.after)

    @property
    def shapes(self) -> tuple[tuple[str, str], ...]:
        """Each call of the graph as it came, with the shape and dtype of its result."""
        return tuple((n.name, describe(n.meta["val"])) for n in self.before.graph.nodes if n.op in CALLS)

    def text(self) -> str:
        was, now = self.operators
        rewrites = [f"{count} x {name}" for name, count in sorted(self.rewrites.items())] or ["nothing rewritten"]
        refused = [f"refused at {d.subject[0]}: {d.reason}" + (f": {d.facts['why']}" if "why" in d.facts else "") for d in self.refused]
        parts = ["rewrites:", *rewrites, *refused, "", f"before: {was.text()}", "", f"after: {now.text()}", "", "shapes:"]
        return "\n".join([*parts, *(f"{name}: {value}" for name, value in self.shapes), *(f"\n{name}: {d.text()}" for name, d in self.diffs if d)])


def run_passes(graph: GraphArtifact, passes: Sequence[GraphPass] = PASSES) -> Fused:
    """``graph`` through ``passes``, with what each of them changed. Any function from a graph to a graph is a pass."""
    first, diffs = graph, list[tuple[str, GraphDiff]]()
    for one in passes:
        after = one(graph)
        diffs.append((getattr(one, "__name__", type(one).__name__), diff_graphs(graph, after)))
        graph = after
    return Fused(first, graph, tuple(diffs))


class FusionBackend:
    """A backend: ``compile(model, backend=FusionBackend())``, and ``torch.compile`` with the same object.

    inner: the backend that gets the rewritten graph, for example ``aot_autograd(...)``, or ``lambda gm, args: compile(gm)`` for the whole
    pipeline; by default the graph is run as it is.
    passes: functions from a ``GraphArtifact`` to one of the same inputs.
    """

    def __init__(self, inner: Callable[[fx.GraphModule, Any], Callable[..., Any]] | None = None, passes: Sequence[GraphPass] = PASSES) -> None:
        self.inner, self.passes, self.reports = inner, tuple(passes), list[Fused]()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        report = run_passes(with_values(gm, *example_inputs), self.passes)
        self.reports.append(report)
        module = fx.GraphModule(report.after.module, report.after.graph)
        return self.inner(module, example_inputs) if self.inner is not None else module.forward


# --------------------------------------------------------------------------------------------------- forward and backward


@dataclass(frozen=True)
class Half:
    """A forward or backward graph as an inner compiler got it: ``calls`` of functions; ``inputs`` (name, value) in order."""

    module: fx.GraphModule
    calls: int
    inputs: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(module: fx.GraphModule) -> Half:
        nodes = list(module.graph.nodes)
        inputs = tuple((n.name, n.meta.get("val")) for n in nodes if n.op == "placeholder")
        return Half(module, sum(n.op == "call_function" for n in nodes), inputs)


class Halves(Report):
    """Two inner compilers for ``aot_autograd``, ours or torch's, that note the graphs and run them as they are::

        seen = Halves()
        compile(model, backend=aot_autograd(seen.forward, seen.backward))(x).sum().backward()
        seen.counts, seen.saved

    The first graph of each kind since ``clear()`` is what the properties speak of.
    """

    def __init__(self) -> None:
        self.graphs: dict[str, list[Half]] = {"forward": [], "backward": []}

    def forward(self, gm: fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Any]:
        return self._note("forward", gm)

    def backward(self, gm: fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], Any]:
        return self._note("backward", gm)

    def _note(self, kind: str, gm: fx.GraphModule) -> Callable[[list[Any]], Any]:
        self.graphs[kind].append(Half.of(gm))

        def run(args: list[Any]) -> Any:
            return gm(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def clear(self) -> None:
        for graphs in self.graphs.values():
            graphs.clear()

    @property
    def counts(self) -> tuple[int, int]:
        """Calls in the forward and in the backward graph; 0 where there is none."""
        forward, backward = (graphs[0].calls if graphs else 0 for graphs in self.graphs.values())
        return forward, backward

    @property
    def saved(self) -> tuple[str, ...]:
        """What the backward is given from the forward, in order, by the names of the forward's nodes."""
        return tuple(name for name, _ in self._saved())

    @property
    def saved_bytes(self) -> int:
        return sum(nbytes(value) for _, value in self._saved())

    def _saved(self) -> list[tuple[str, Any]]:
        backward = self.graphs["backward"]
        return [(n, v) for n, v in backward[0].inputs if not n.startswith("tangents")] if backward else []

    def text(self) -> str:
        saved = (f"  {name}: {describe(value)}" for name, value in self._saved())
        forward, backward = self.counts
        return "\n".join([f"{forward} calls forward, {backward} backward; {self.saved_bytes} bytes saved", *saved])
