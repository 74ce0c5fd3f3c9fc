"""The pipeline: one list of named steps in order, and ``Capturing``, which hangs it behind the frame hook.

In: a captured graph and its arguments. Out: a callable that runs it. This is the only module that imports every stage; ``session.compile``
imports it at the first capture. No stage knows of another, and none knows that it is observed: the runner here times each step and hands
``Step``s to the observer. PyTorch's counterpart: ``torch/_inductor/compile_fx.py``.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

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
from .core.clock import Clock, Span, now, spent
from .core.errors import InvalidIR, UnknownOption, Unsupported
from .core.fakes import bring_dynamo
from .core.fx import GraphArtifact, boxed, fork
from .core.modes import below_modes
from .core.options import Options
from .core.recompiled import handed_back
from .frames.attempts import interpret, interpret_piece
from .frames.capture import Capture, broken, shots_of
from .frames.concrete import by_size, is_symbolic, refused
from .frames.convert import Captured, unseen
from .frames.frame import FrameInput
from .frames.ir import Break, CapturedGraph, Specialization
from .frames.reasons import CaptureUnsupported
from .frames.recompiles import Recompile, Recompiled
from .frames.shapes import SizeHistory
from .graph.passes import eliminate_common_subexpressions, eliminate_dead_code, simplify_views
from .lowering.ir import TensorView
from .lowering.lower import lower
from .observe.trace import Step
from .runtime import portable
from .runtime.build import build_many
from .runtime.program import Program
from .runtime.raising import raising
from .runtime.trial import calls_custom, on_trial, watched
from .runtime.variants import by_condition
from .scheduling.artifact import Schedule
from .scheduling.fusion import schedule
from .tuning import by_measurement

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


def loop_steps(
    free: Collection[int] = (),
    layouts: Mapping[str, Sequence[int]] = MappingProxyType({}),
    hints: Mapping[str, int] | None = None,
    lent: Collection[str] = (),
) -> tuple[Pass, ...]:
    """``free``: outputs that may lie as they come; ``layouts``: how inputs lie that were free in the forward; ``hints``: sizes at hand other than
    those of the capture; ``lent``: inputs of a backward that its forward was given too."""
    return (
        Pass("lower", lambda g, o: lower(g, hints, free=free, layouts=layouts, choose=by_measurement(o) if o.max_autotune else None, lent=lent)),
        # Lowering never inlines; which buffers never reach memory is decided here, and written down.
        Pass("schedule", lambda p, o: schedule(p, o)),
    )


STEPS: tuple[str, ...] = ("capture", "joint", *dict.fromkeys(p.name for p in (*JOINT_STEPS, *loop_steps())), "plan memory", "generate", "build", "guard")
"""The name of every step, in the order in which a trace has them."""


def begins(observe: Observer | None) -> Callable[[str, str], Any]:
    """Told of (name, part) as a step begins: the observer's ``begin``, where it has one (``progress.py``)."""
    return getattr(observe, "begin", _nobody)


def _nobody(name: str, part: str) -> None: ...


class Runner:
    """Runs steps, times them, checks artifacts at the boundaries when asked to, and tells the observer."""

    def __init__(self, options: Options, observe: Observer | None, graph: int = 0, refuse: Callable[[Unsupported], None] = lambda error: None) -> None:
        self.options, self.observe, self.graph, self.refuse = options, observe, graph, refuse
        self.begin = begins(observe)
        self.compiles = 1  # of this graph: it is compiled again for other sizes
        self.made: portable.Compiled | None = None  # by the last backend that has a form as data

    def step(self, name: str, before: Artifact | None, run: Callable[[], Any], part: str = "") -> Any:
        mark = before.fingerprint() if self.options.check and before is not None else ""
        self.begin(name, part)
        start = now()
        after = run()
        seconds = now() - start
        if self.options.check:
            after.check()
            if before is not None and before.fingerprint() != mark:
                raise InvalidIR(f"the step {name!r} changed its input", why="a stage is a function from a value to a value")
        self.tell(name, before, after, start, seconds, part=part)
        return after

    def tell(
        self,
        name: str,
        before: Artifact | None,
        after: Artifact,
        start: float | None = None,
        seconds: float = 0.0,
        spans: tuple[Span, ...] = (),
        part: str = "",
    ) -> None:
        """``start`` None: now, for what takes no time."""
        if self.observe is not None:
            began, compile = now() if start is None else start, f"{self.graph}.{self.compiles}"
            self.observe(Step(name, before, after, seconds, part, self.graph, began, compile, spans))

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
    run.tell("plan memory", planned, planned.plan, part=part)  # the schedule's own work: it is weighed with the order of kernels
    return run.step("generate", planned, lambda: generate(planned, run.options), part)


def to_programs(kernels: Mapping[str, Kernels], run: Runner) -> dict[str, Program]:
    """C++ -> programs, by part; all are built at once, so their times overlap."""
    run.begin("build", " and ".join(kernels))
    clocks = {part: Clock() for part in kernels} if run.observe is not None else {}
    programs = dict(zip(kernels, build_many(list(kernels.values()), run.options, list(clocks.values())), strict=True))
    for part, program in programs.items():
        if run.options.check:
            program.check()
        if part in clocks:
            run.tell("build", kernels[part], program, *clocks[part].told(), part=part)
    return programs


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
    compiled = portable.compose(part.spec, len(part.saved), forward, backward, part.tangents, raising(part.forward), graph.module.forward)
    return on_trial(compiled, graph.module.forward, custom, run.refuse) if custom else compiled


def lab_backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
    """All of it: forward and backward are C++ kernels, both built at once."""
    part = to_partition(graph, args, run, JOINT_STEPS)
    outputs = len(part.forward.outputs)
    saved = range(outputs - len(part.saved), outputs)
    with below_modes():
        kernels = {"forward": to_kernels(part.forward, run, "forward", loop_steps(free=saved))}
        if part.backward is not None:
            first = kernels["forward"].schedule.program
            views = zip(part.backward.placeholders, (first.outputs[i] for i in saved), strict=False)
            kept = {node.name: view for node, view in views if isinstance(view, TensorView)}
            given = {*(s.name for s in first.inputs), *first.constants, *(o.buffer for o in first.outputs[: saved.start] if isinstance(o, TensorView))}
            lent = [name for name, view in kept.items() if view.buffer in given]
            layouts = {name: view.stride for name, view in kept.items()}
            kernels["backward"] = to_kernels(part.backward, run, "backward", loop_steps(layouts=layouts, lent=lent))
        programs = to_programs(kernels, run)
    backward = programs.get("backward")
    if not is_symbolic(graph.module) and not any(calls_custom(half.graph) for half in (part.forward, part.backward) if half is not None):
        run.made = portable.Compiled(part.spec, len(part.saved), programs["forward"], backward, part.tangents, raising(part.forward), graph.module)
    halves = {"forward": part.forward, "backward": part.backward}
    calls = {name: by_condition(program, *other_sizes(halves[name], name, run), run.options.recompile_limit) for name, program in programs.items()}
    return bound(graph, part, calls["forward"], calls.get("backward"), run)


def other_sizes(half: Any, part: str, run: Runner) -> tuple[Callable[[dict[str, int]], Program], Compiled]:
    """How ``half`` is made into a program for other sizes than those at hand now, and the callable that needs no program."""

    def again(hints: dict[str, int]) -> Program:
        run.compiles += 1
        with unseen(), below_modes():
            kernels = to_kernels(half, run, part, loop_steps(hints=hints))
            return to_programs({part: kernels}, run)[part]

    return again, boxed(half.module) if part == "backward" else half.module.forward


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
            run.compiles += begun
            return backend(CapturedGraph(module, tuple(graph.inputs[i] for i in kept), decisions), tensors, run)

        begun = False  # the first set of sizes belongs to the compile under way
        made = by_size(graph.module, args, one, run.options.recompile_limit, unseen)
        begun = True
        run.made = None  # what one set of sizes was compiled to is not the whole
        return made

    return compiled


Find = Callable[[CapturedGraph, list[Tensor], Runner], Compiled]

BACKENDS: dict[str, Find] = {
    "eager": eager_backend,
    "aot_eager": sized(functools.partial(aot_backend, steps=EAGER_JOINT_STEPS)),
    "aot_eager_decomp": sized(functools.partial(aot_backend, steps=ATEN_JOINT_STEPS)),
    "lab": sized(lab_backend),
}


def find_backend(backend: str | Callable[..., Any]) -> Find:
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
        run.begin(f"backend {getattr(users, '__name__', type(users).__name__)}", "")
        return handed_back(users(module, args), module)

    return run_users


class Capturing:
    """How the frames of one compiled function are captured and compiled; a runner for each.

    watch: gives the observer of a compile, and its number there; refused: see ``Converter.refused``; keep: is told of each function that was
    captured whole, with what was made of its graph."""

    def __init__(
        self,
        find: Find,
        settings: Options,
        fullgraph: bool,
        dynamic: bool | None,
        watch: Callable[[], tuple[Observer | None, int]],
        refused: Callable[[], Callable[..., None]],
        keep: Callable[[Captured, portable.Compiled | None], None] | None = None,
    ) -> None:
        self.find, self.settings, self.fullgraph, self.watch, self.refused, self.keep = find, settings, fullgraph, watch, refused, keep
        self.history = SizeHistory(dynamic, settings.capture_scalar_outputs, settings.capture_dynamic_output_shape_ops)
        self.runner: Runner | None = None
        self.seen: Callable[[], Capture | None] = lambda: None  # the last capture, while somebody who watches has it
        self.missed: list[Recompiled] = []  # why what is compiled next is

    def backend(self, graph: CapturedGraph, args: list[Tensor]) -> Compiled:
        assert self.runner is not None
        return self.find(graph, args, self.runner)

    def begin(self, frame: FrameInput) -> Specialization:
        """Interprets a frame; the runner that is made here serves the backend, which is called next, under the same lock."""
        observe, number = self.watch()
        run = self.runner = Runner(self.settings, observe, number, functools.partial(self.refused(), frame.code))
        for point in self.missed:
            run.tell("recompile", None, point)
        self.missed.clear()
        shots = shots_of(frame, self.history) if self.settings.film and observe is not None else None
        run.begin("capture", "")
        clock = Clock() if observe is not None else None
        try:
            with spent(clock, "capture"):
                if clock is not None:
                    bring_dynamo(clock)  # now, for its seconds to be told apart
                specialization = interpret(frame, self.history) if self.fullgraph else interpret_piece(frame, self.history)
        except CaptureUnsupported as error:
            if clock is not None:
                self._told_of("break", Capture(frame, None, (broken(frame, error),), shots), clock)
            raise
        breaks = () if specialization.stop is None else (specialization.stop.found,)
        if clock is not None:
            self._told_of("capture", Capture(frame, specialization, breaks, shots), clock)
        return specialization

    def _told_of(self, name: str, seen: Capture, clock: Clock) -> None:
        run = self.runner
        assert run is not None
        self.seen = weakref.ref(seen)
        run.tell(name, None, seen, *clock.told())
        if seen.film is not None:
            run.tell("film", seen, seen.film)

    def told(self, kind: str, payload: Any) -> None:
        run = self.runner
        if kind == "captured" and isinstance(payload, Captured) and run is not None:
            run.tell("guard", Capture(payload.frame, payload.specialization), payload.tree, payload.guarding, now() - payload.guarding)
            if self.keep is not None:
                self.keep(payload, run.made)
        if isinstance(payload, Break) and (seen := self.seen()) is not None and run is not None and payload not in seen.breaks:  # a later stage's
            run.tell("break", None, Capture(seen.frame, None, (payload,)))
        if isinstance(payload, Recompile):
            self._recompiled(Recompiled(payload))
        if kind == "reset":
            self.history.clear()

    def _recompiled(self, point: Recompiled) -> None:
        """Noted for whoever watches the compile that follows; where the limit is reached none does."""
        if point.point.number:
            self.missed.append(point)
        elif self.runner is not None:
            self.runner.tell("recompile", None, point)
