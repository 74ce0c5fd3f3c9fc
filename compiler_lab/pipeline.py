"""The pipeline: one list of named steps in order, and ``compile``, which hangs it behind the frame hook.

In: a Python callable. Out: a callable that runs it on compiled graphs. This is the only module that imports every stage;
no stage knows of another, and none knows that it is observed: the runner here times each step and hands ``Step``s to the
observer. PyTorch's counterpart: ``torch/_inductor/compile_fx.py`` and ``torch/_dynamo/eval_frame.py``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from .aot.decompose import decompose
from .aot.functionalize import functionalize
from .aot.ir import JointGraph
from .aot.joint import joint
from .aot.partition import Partition, partition
from .codegen.artifact import Kernels
from .codegen.cpp import generate
from .core.artifact import Artifact
from .core.errors import InvalidIR, UnknownOption, Unsupported
from .core.fx import GraphArtifact, boxed, fork
from .core.modes import below_modes
from .core.options import Options
from .core.recompiled import handed_back
from .core.sizes import DYNAMIC
from .frames.attempts import interpret, interpret_piece
from .frames.capture import Capture
from .frames.concrete import by_size, is_symbolic, refused
from .frames.convert import Captured, Stats, unseen
from .frames.entry import CompiledFunction, compile_function
from .frames.ir import CapturedGraph
from .frames.module import compile_module
from .frames.shapes import SizeHistory
from .graph.passes import eliminate_common_subexpressions, eliminate_dead_code, simplify_views
from .lowering.ir import TensorView
from .lowering.lower import lower
from .observe.trace import Step, Trace
from .runtime.autograd import bind
from .runtime.build import build_many
from .runtime.raising import in_order
from .runtime.trial import calls_custom, on_trial, watched
from .scheduling.artifact import Schedule
from .scheduling.fusion import schedule

Observer = Callable[[Step], None]
Compiled = Callable[..., Any]


@dataclass(frozen=True)
class Pass:
    """A named step: ``run(artifact, options)`` gives the next artifact and leaves the one it was given alone."""

    name: str
    run: Callable[[Any, Options], Any]


JOINT_STEPS: tuple[Pass, ...] = (
    # In-place ops and views go first: every pass after this one may assume that a value never changes.
    Pass("functionalize", lambda g, o: functionalize(g)),
    # Dead code before decomposition: what nobody reads is not worth opening.
    Pass("eliminate dead code", lambda g, o: eliminate_dead_code(g)),
    # Opened before the partition: a piece of an operator can be recomputed where the whole could not.
    # Beside operators of the user's random ones stay eager's: the first call of such a graph is eager's own (``runtime/trial.py``).
    Pass("decompose", lambda g, o: decompose(g, o.decompositions, by_counter=not o.fallback_random and not calls_custom(g.graph))),
    Pass("simplify views", lambda g, o: simplify_views(g)),
    # After decomposition, which opens the same operator into the same pieces in forward and backward.
    Pass("eliminate common subexpressions", lambda g, o: eliminate_common_subexpressions(g)),
    Pass("eliminate dead code", lambda g, o: eliminate_dead_code(g)),
    # Last on the joint graph: what crosses the cut is final.
    Pass("partition", lambda g, o: partition(g, o)),
)

EAGER_JOINT_STEPS = tuple(p for p in JOINT_STEPS if p.name in ("functionalize", "eliminate dead code", "partition"))

# Backends that run aten's operators run its random ones too: their numbers are eager's.
ATEN_JOINT_STEPS = tuple(replace(p, run=lambda g, o: decompose(g, o.decompositions)) if p.name == "decompose" else p for p in JOINT_STEPS)


def loop_steps(free: Collection[int] = (), layouts: Mapping[str, Sequence[int]] = MappingProxyType({})) -> tuple[Pass, ...]:
    """``free``: outputs that may lie as they come; ``layouts``: how inputs lie that were free in the forward."""
    return (
        Pass("lower", lambda g, o: lower(g, free=free, layouts=layouts)),
        # Lowering never inlines; which buffers never reach memory is decided here, and written down.
        Pass("schedule", lambda p, o: schedule(p, o)),
    )


STEPS: tuple[str, ...] = ("capture", "joint", *dict.fromkeys(p.name for p in (*JOINT_STEPS, *loop_steps())), "plan memory", "generate", "build", "guard")
"""The name of every step, in the order in which a trace has them."""


class Runner:
    """Runs steps, times them, checks artifacts at the boundaries when asked to, and tells the observer."""

    def __init__(self, options: Options, observe: Observer | None, graph: int = 0, refuse: Callable[[Unsupported], None] = lambda error: None) -> None:
        self.options, self.observe, self.graph, self.refuse = options, observe, graph, refuse
        self.spent = 0.0  # seconds of the steps so far

    def step(self, name: str, before: Artifact | None, run: Callable[[], Any], part: str = "") -> Any:
        mark = before.fingerprint() if self.options.check and before is not None else ""
        start = time.perf_counter()
        after = run()
        seconds = time.perf_counter() - start
        if self.options.check:
            after.check()
            if before is not None and before.fingerprint() != mark:
                raise InvalidIR(f"the step {name!r} changed its input", why="a stage is a function from a value to a value")
        self.tell(Step(name, before, after, seconds, part, self.graph))
        return after

    def tell(self, step: Step) -> None:
        self.spent += step.seconds
        if self.observe is not None:
            self.observe(step)

    def passes(self, steps: tuple[Pass, ...], artifact: Any, part: str = "") -> Any:
        for one in steps:
            artifact = self.step(one.name, artifact, lambda one=one, a=artifact: one.run(a, self.options), part)
        return artifact


def to_partition(graph: GraphArtifact, args: list[Tensor], run: Runner, steps: tuple[Pass, ...]) -> Partition:
    """Captured graph -> joint graph -> ... -> partition."""
    traced: JointGraph = run.step("joint", graph, lambda: joint(graph, *args))
    with below_modes():
        return run.passes(steps, traced)


def to_kernels(half: GraphArtifact, run: Runner, part: str, steps: tuple[Pass, ...]) -> Kernels:
    """Aten graph -> loops -> schedule with its memory plan -> C++."""
    planned: Schedule = run.passes(steps, half, part)
    run.tell(Step("plan memory", planned, planned.plan, 0.0, part, run.graph))
    return run.step("generate", planned, lambda: generate(planned, run.options), part)


def eager_backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
    """The captured graph, run as it is."""
    return graph.module.forward


def aot_backend(graph: CapturedGraph, args: list[Tensor], run: Runner, steps: tuple[Pass, ...]) -> Compiled:
    """Everything up to the partition; forward and backward are run by aten."""
    part = to_partition(graph, args, run, steps)
    backward = boxed(part.backward.module) if part.backward is not None else None
    return bound(graph, part, part.forward.module.forward, backward, run)


def bound(graph: CapturedGraph, part: Partition, forward: Compiled, backward: Compiled | None, run: Runner) -> Compiled:
    """The two halves as one callable, which raises where the program does and trusts operators of the user's once they have been seen to be honest."""
    custom = [half.graph for half in (part.forward, part.backward) if half is not None and calls_custom(half.graph)]
    if custom and run.options.check:
        forward = watched(forward, always=True)
    if custom and backward is not None:
        backward = watched(backward, always=run.options.check)
    compiled = in_order(part.forward, bind(part.spec, len(part.saved), forward, backward, part.tangents), graph.module.forward)
    return on_trial(compiled, graph.module.forward, custom, run.refuse) if custom else compiled


def lab_backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
    """All of it: forward and backward are C++ kernels, both built at once."""
    if is_symbolic(graph.module):
        raise Unsupported("symbolic sizes", reason=DYNAMIC, why="lowering knows numbers only")
    part = to_partition(graph, args, run, JOINT_STEPS)
    outputs = len(part.forward.outputs)
    saved = range(outputs - len(part.saved), outputs)
    with below_modes():
        kernels = {"forward": to_kernels(part.forward, run, "forward", loop_steps(free=saved))}
        if part.backward is not None:
            kept = zip(part.backward.placeholders, (kernels["forward"].schedule.program.outputs[i] for i in saved), strict=False)
            layouts = {node.name: view.stride for node, view in kept if isinstance(view, TensorView)}
            kernels["backward"] = to_kernels(part.backward, run, "backward", loop_steps(layouts=layouts))
        start = time.perf_counter()
        programs = dict(zip(kernels, build_many(list(kernels.values()), run.options), strict=True))
    seconds = time.perf_counter() - start
    size = sum(len(k.source) for k in kernels.values())
    for name, program in programs.items():  # built side by side: each has the share of the time that its source has of the text
        run.tell(Step("build", kernels[name], program, seconds * len(kernels[name].source) / size, name, run.graph))
    backward = programs["backward"].call if "backward" in programs else None
    return bound(graph, part, programs["forward"].call, backward, run)


def sized(backend: Callable[[CapturedGraph, list[Tensor], Runner], Compiled]) -> Callable[[CapturedGraph, list[Tensor], Runner], Compiled]:
    """``backend``, which may refuse a graph with symbolic sizes (``Unsupported``): it is then compiled once for each set of sizes that it meets."""

    def compiled(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
        try:
            return backend(graph, args, run)
        except Unsupported as error:
            if not is_symbolic(graph.module):
                raise
            decisions = (*graph.decisions, refused(graph.module, error))

        def one(module: fx.GraphModule, tensors: list[Tensor], kept: list[int]) -> Compiled:
            return backend(CapturedGraph(module, tuple(graph.inputs[i] for i in kept), decisions), tensors, run)

        return by_size(graph.module, args, one, run.options.recompile_limit, unseen)

    return compiled


BACKENDS: dict[str, Callable[[CapturedGraph, list[Tensor], Runner], Compiled]] = {
    "eager": eager_backend,
    "aot_eager": sized(functools.partial(aot_backend, steps=EAGER_JOINT_STEPS)),
    "aot_eager_decomp": sized(functools.partial(aot_backend, steps=ATEN_JOINT_STEPS)),
    "lab": sized(lab_backend),
}


def find_backend(backend: str | Callable[..., Any]) -> Callable[[CapturedGraph, list[Tensor], Runner], Compiled]:
    """A built-in backend, a registered one, or a callable ``(gm, example_inputs)``, which gets a graph of its own to edit."""
    if isinstance(backend, str) and backend in BACKENDS:
        return BACKENDS[backend]
    if isinstance(backend, str):
        from .backends import registered

        backend = registered(backend)
    elif not callable(backend):
        raise UnknownOption(f"backend={backend!r} is neither a name nor callable", hint="give a name of list_backends() or (gm, example_inputs) -> callable")
    users = backend

    def run_users(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
        module = fork(graph.module, graph.stage)
        return handed_back(users(module, args), module)

    return run_users


@dataclass
class Recording:
    """An observer for compiles that have none of their own; ``compiled`` says that something was compiled, or wrapped to be."""

    observe: Observer
    graphs: Iterator[int] = field(default_factory=itertools.count)
    compiled: bool = False


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextlib.contextmanager
def recording(observe: Observer) -> Generator[Recording]:
    """Every compile that happens inside the block and has no observer of its own is recorded by ``observe``."""
    record = Recording(observe)
    token = _recording.set(record)
    try:
        yield record
    finally:
        _recording.reset(token)


class Session:
    """What ``stats()`` and ``reset()`` speak of: counts since the last reset, and every compiled function that is alive."""

    def __init__(self) -> None:
        self.stats = Stats()
        self.compiled: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()


_session = Session()


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    backend: str | Callable[..., Any] = "lab",
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    observe: Observer | None = None,
) -> Any:
    """``fn`` compiled, with ``torch.compile``'s meaning; without ``fn``, a decorator. Nothing happens before the first call.

    fn: a function, method, callable or ``nn.Module`` (the result is then a module around it).
    backend: "lab" (C++ kernels), "aot_eager_decomp", "aot_eager", "eager", a registered name, or ``(gm, example_inputs) -> callable``.
    mode, options: see ``core.options``.
    dynamic: None, sizes are compiled as they come, and a size or int that differs at a later call is symbolic from then on; True, all sizes
    and int arguments are symbolic from the first call; False, never. 0 and 1 are always compiled by themselves. Where a stage does not model
    symbolic sizes (those of "lab" from lowering on do not yet), a symbolic graph is compiled once for each set of sizes that it meets.
    fullgraph: what cannot be captured whole raises ``GraphBroken`` instead of being left to Python.
    observe: called with a ``Step`` after each step, for example ``Trace().append``.
    Raises ``UnknownOption`` for a backend, mode or option that does not exist.
    """
    settings = Options.of(mode, options)
    find = find_backend(backend)
    if dynamic not in (None, True, False):
        raise UnknownOption(f"dynamic={dynamic!r}", hint="one of: None, True, False")
    if fn is None:
        again = dict(backend=backend, mode=mode, dynamic=dynamic, fullgraph=fullgraph, options=options, disable=disable, observe=observe)
        return functools.partial(compile, **again)
    if disable:
        return fn
    if (record := _recording.get()) is not None:
        record.compiled = True
    one = functools.partial(_compile_one, find=find, settings=settings, fullgraph=fullgraph, observe=observe, dynamic=dynamic)
    return compile_module(fn, one) if isinstance(fn, torch.nn.Module) else one(fn).function


def _compile_one(
    fn: Callable[..., Any],
    find: Callable[[CapturedGraph, list[Tensor], Runner], Compiled],
    settings: Options,
    fullgraph: bool,
    observe: Observer | None,
    dynamic: bool | None = None,
) -> CompiledFunction:
    history = SizeHistory(dynamic, settings.capture_scalar_outputs, settings.capture_dynamic_output_shape_ops)
    graphs = itertools.count()  # numbers the graphs of this function, unless a recording numbers them
    runner: list[Runner] = []

    def backend(graph: CapturedGraph, args: list[Tensor]) -> Compiled:
        return find(graph, args, runner[-1])

    def begin(frame: Any) -> Any:
        """Interprets a frame; the runner that is made here serves the backend, which is called next, under the same lock."""
        record = _recording.get() if observe is None else None
        watcher = record.observe if record else observe
        start = time.perf_counter()
        specialization = interpret(frame, history) if fullgraph else interpret_piece(frame, history)
        breaks = () if specialization.stop is None else (specialization.stop.found,)
        seconds = time.perf_counter() - start
        refuse = functools.partial(compiled.converter.refused, frame.code)
        runner[:] = [Runner(settings, watcher, next(record.graphs if record else graphs), refuse)]
        runner[-1].tell(Step("capture", None, Capture(frame, specialization, breaks), seconds, "", runner[-1].graph))
        return specialization

    def told(kind: str, payload: Any) -> None:
        if kind == "captured" and isinstance(payload, Captured) and runner:
            run = runner[-1]
            own = max(payload.seconds - run.spent, 0.0)  # the rest of the whole conversion: guards, and the code that replaces the frame
            run.tell(Step("guard", Capture(payload.frame, payload.specialization), payload.tree, own, "", run.graph))
        if kind == "reset":
            history.clear()

    compiled = compile_function(fn, backend, interpret=begin, fullgraph=fullgraph, options=settings, on_event=told, stats=_session.stats)
    _session.compiled.add(compiled)
    return compiled


def reset() -> None:
    """Forgets everything compiled and counted; functions compiled before compile again when they are called."""
    for compiled in list(_session.compiled):
        compiled.reset()
    _session.stats.clear()


def stats() -> dict[str, Any]:
    """{"graphs": compiled since the last reset, "breaks": places left to Python, each once, "break_reasons": their ids, most frequent first}."""
    found = _session.stats
    reasons = sorted(found.break_reasons, key=lambda r: (-found.break_reasons[r], r))
    return {"graphs": found.graphs, "breaks": found.breaks, "break_reasons": reasons}


def inspect(fn: Callable[..., Any], *args: Any, backend: str | Callable[..., Any] = "lab", fullgraph: bool = False, **kwargs: Any) -> Trace:
    """Compiles one call of ``fn``, makes it, and gives the trace of every step."""
    trace = Trace(getattr(fn, "__qualname__", type(fn).__name__))
    compile(fn, backend=backend, fullgraph=fullgraph, observe=trace.append)(*args, **kwargs)
    return trace


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """``fn``, never captured, nor anything it calls; usable as a decorator. ``torch.compiler.disable``'s meaning."""
    return torch.compiler.disable(fn, recursive=recursive)


def mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Says that these dimensions of ``t`` vary: they are symbolic from the first compile. A program that allows one size only
    raises ``ConstraintViolated`` at its first call, naming the line."""
    _mark(t, "_dynamo_dynamic_indices", index)


def mark_static(t: Tensor, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Says that these dimensions of ``t`` (all, by default) are compiled as they come, even when they are seen to vary."""
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else index)


def _mark(t: Tensor, attribute: str, index: Any) -> None:
    wanted = {index} if isinstance(index, int) else set(index)
    wrong = [i for i in wanted if not 0 <= i < t.dim()]
    if wrong:
        raise UnknownOption(f"dimension {wrong[0]} of a tensor with {t.dim()} dimensions", hint=f"0 to {t.dim() - 1}")
    setattr(t, attribute, getattr(t, attribute, set()) | wanted)
