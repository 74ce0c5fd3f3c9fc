"""``explain``: what capture made of a call: graphs, breaks, guards, recompiles, and the share of the work that is inside compiled regions.

In: a function and the arguments of a call. Out: ``Explanation``. Always holds: the share counts one thing in one unit on both sides:
operators as torch's dispatcher meets them, each with the user's line that asked for it.
How it is measured: the call that compiles runs under a dispatch mode, which counts every operator and the time that it takes; operators of
a captured graph are inside, and have the line of their node; all others have the line that Python is at. A second call, with nothing in the
way, gives the share of its time that was spent in the graphs' code. So the function runs twice.
PyTorch's counterpart: ``torch._dynamo.explain``, which counts graphs and breaks.
"""

from __future__ import annotations

import contextlib
import html
import linecache
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch.utils._python_dispatch import TorchDispatchMode

from .core.options import Options
from .core.provenance import Location, own_location, stack_of
from .frames.attempts import interpret_piece
from .frames.convert import Captured, Stats
from .frames.entry import CompiledFunction, compile_function
from .frames.frame import FrameInput
from .frames.ir import Break, CapturedGraph, Specialization
from .frames.module import OptimizedModule
from .frames.recompiles import Recompile, calling_line
from .frames.shapes import SizeHistory


@dataclass(frozen=True)
class LineShare:
    """Operators that one line of the program asks for, ``inside`` graphs and ``outside``, and the seconds that each of both took."""

    location: Location
    inside: int = 0
    outside: int = 0
    inside_seconds: float = 0.0
    outside_seconds: float = 0.0

    def text(self) -> str:
        return f"{self.inside:5d} inside {self.outside:5d} outside  {self.location.text()}"


@dataclass(frozen=True)
class Explanation:
    """What ``explain`` found. ``seconds`` of the second call, and ``inside_seconds`` of these in graphs; ``lines`` in the program's order."""

    graphs: tuple[CapturedGraph, ...]
    breaks: tuple[Break, ...]
    guards: tuple[str, ...]
    recompiles: tuple[Recompile, ...] = ()
    lines: tuple[LineShare, ...] = ()
    seconds: float = 0.0
    inside_seconds: float = 0.0

    @property
    def operators(self) -> tuple[int, ...]:
        """Calls in each graph."""
        return tuple(sum(n.op.startswith("call") for n in g.graph.nodes) for g in self.graphs)

    @property
    def share_of_operators(self) -> float:
        """Of all operators of one call, the part inside graphs; 1.0 where there are none."""
        inside = sum(line.inside for line in self.lines)
        return inside / total if (total := inside + sum(line.outside for line in self.lines)) else 1.0

    @property
    def share_of_time(self) -> float:
        """Of the time of one call that compiles nothing, the part inside graphs."""
        return self.inside_seconds / self.seconds if self.seconds else 1.0

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """For people; everything but the shares of time is the same at each run."""
        inside, outside = sum(line.inside for line in self.lines), sum(line.outside for line in self.lines)
        parts = [
            f"{len(self.graphs)} graphs, {len(self.breaks)} breaks, {sum(self.operators)} operators",
            f"inside graphs: {inside} of {inside + outside} operators that were run ({self.share_of_operators:.0%}; counted by a dispatch mode),"
            f" {self.share_of_time:.0%} of the time ({self.inside_seconds * 1e3:.3g} of {self.seconds * 1e3:.3g} ms in a second call)",
            *(f"  {line.text()}" for line in self.lines),
        ]
        for found in self.breaks:
            parts += [f"break: {found.reason}: {found.what}", *around(found), *([f"  do: {found.hint}"] if found.hint else [])]
        parts += [f"{len(self.guards)} guards", *(f"  {g}" for g in self.guards)]
        return "\n".join([*parts, *(r.text() for r in self.recompiles)])

    def _repr_html_(self) -> str:
        return f"<section><strong>Explanation</strong><pre>{html.escape(self.text())}</pre></section>"


def around(found: Break, reach: int = 2) -> list[str]:
    """The code around a break, its line marked."""
    where = own_location(found.stack)
    if where is None or not where.source:
        return [f"  {where.text()}"] if where else []
    first = max(where.line - reach, 1)
    texts = [linecache.getline(where.file, n).rstrip() for n in range(first, where.line + reach + 1)]
    return [f"  {where.text()}", *(f"  {'>' if n == where.line else ' '} {n:4d}  {text}".rstrip() for n, text in enumerate(texts, first) if text)]


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Calls ``fn`` twice, captured and run eagerly, and says what capture made of it.

    What is compiled already (a function or module of ``compile``) is captured anew, and its own recompiles so far come first.
    Raises what the call raises.
    """
    earlier = _recompiles(fn)
    target = fn._orig_mod if isinstance(fn, OptimizedModule) else fn
    watch = _Watch()
    compiled = compile_function(
        target.forward if isinstance(target, torch.nn.Module) else target,
        watch.backend, interpret=watch.interpret, options=Options(), on_event=watch.told, stats=Stats(),
    )  # fmt: skip
    with watch.counting():
        compiled(*args, **kwargs)
    watch.inside_seconds = watch.converting = 0.0
    start = time.perf_counter()
    compiled(*args, **kwargs)
    seconds = time.perf_counter() - start - watch.converting
    lines = tuple(LineShare(location, *watch.lines[location]) for location in sorted(watch.lines))
    timeline = (*earlier, *compiled.recompiles)
    return Explanation(tuple(watch.graphs), compiled.breaks, tuple(dict.fromkeys(watch.guards)), timeline, lines, seconds, watch.inside_seconds)


def _recompiles(fn: Any) -> tuple[Recompile, ...]:
    compiled = fn._compiled if isinstance(fn, OptimizedModule) else getattr(fn, "_compiled_function", None)
    return tuple(compiled.recompiles) if isinstance(compiled, CompiledFunction) else ()


class _Watch:
    """Stands in for the pipeline: captures, runs graphs eagerly, and notes what happens."""

    def __init__(self) -> None:
        self.history = SizeHistory()
        self.graphs: list[CapturedGraph] = []
        self.guards: list[str] = []
        self.lines: dict[Location, list[Any]] = {}  # inside, outside, seconds inside, seconds outside
        self.node: fx.Node | None = None  # of a graph, while it runs
        self.mode: _Counter | None = None
        self.inside_seconds = self.converting = 0.0

    def interpret(self, frame: FrameInput) -> Specialization:
        start = time.perf_counter()
        try:
            return interpret_piece(frame, self.history)
        except BaseException:
            self.converting += time.perf_counter() - start
            raise

    def told(self, kind: str, payload: Any) -> None:
        if isinstance(payload, Captured):
            self.converting += payload.seconds
            self.guards += [g.text() for g in payload.specialization.guards]

    def backend(self, graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        forward, counted = graph.module.forward, _Nodes(self, graph.module)

        def run(*inputs: Any) -> Any:
            if self.mode is not None:
                try:
                    return counted.run(*inputs)
                finally:
                    self.node = None
            start = time.perf_counter()
            try:
                return forward(*inputs)
            finally:
                self.inside_seconds += time.perf_counter() - start

        return run

    @contextlib.contextmanager
    def counting(self) -> Generator[None]:
        self.mode = _Counter(self)
        try:
            with self.mode:
                yield
        finally:
            self.mode = None

    def count(self, seconds: float) -> None:
        """One operator has run."""
        inside = self.node is not None
        where = own_location(stack_of(self.node)) if self.node is not None else calling_line()
        if where is not None:
            row = self.lines.setdefault(Location(where.file, where.line, where.function), [0, 0, 0.0, 0.0])
            row[0 if inside else 1] += 1
            row[2 if inside else 3] += seconds


class _Nodes(fx.Interpreter):
    """Runs a graph node by node, and says which."""

    def __init__(self, watch: _Watch, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.watch = watch

    def run_node(self, n: fx.Node) -> Any:
        self.watch.node = n
        return super().run_node(n)


class _Counter(TorchDispatchMode):
    """Counts operators; capture does not mind it."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        start = time.perf_counter()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.watch.count(time.perf_counter() - start)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
