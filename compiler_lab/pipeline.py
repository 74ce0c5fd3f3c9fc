"""The pipeline: one list of named steps in order, and ``compile``, which hangs it behind the frame hook.

In: a Python callable. Out: a callable that runs it on compiled graphs. This is the only module that imports every stage;
no stage knows of another, and none knows that it is observed: the runner here times each step and hands ``Step``s to the
observer. PyTorch's counterpart: ``torch/_inductor/compile_fx.py`` and ``torch/_dynamo/eval_frame.py``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .aot.decompose import decompose
from .aot.functionalize import functionalize
from .aot.ir import JointGraph
from .aot.joint import joint
from .aot.partition import Partition, partition
from .codegen.cpp import generate
from .core.artifact import Artifact
from .core.errors import InvalidIR
from .core.options import Options
from .frames.ir import CapturedGraph
from .graph.passes import eliminate_common_subexpressions, eliminate_dead_code, simplify_views
from .lowering.lower import lower
from .observe.trace import Step
from .runtime.autograd import bind
from .runtime.build import build_many
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
    Pass("decompose", lambda g, o: decompose(g, o.decompositions)),
    Pass("simplify views", lambda g, o: simplify_views(g)),
    # After decomposition, which opens the same operator into the same pieces in forward and backward.
    Pass("eliminate common subexpressions", lambda g, o: eliminate_common_subexpressions(g)),
    Pass("eliminate dead code", lambda g, o: eliminate_dead_code(g)),
    # Last on the joint graph: what crosses the cut is final.
    Pass("partition", lambda g, o: partition(g, o)),
)

EAGER_JOINT_STEPS = tuple(p for p in JOINT_STEPS if p.name in ("functionalize", "eliminate dead code", "partition"))
DECOMPOSED_JOINT_STEPS = JOINT_STEPS

KERNEL_STEPS: tuple[Pass, ...] = (
    Pass("lower", lambda g, o: lower(g)),
    # Lowering never inlines; which buffers never reach memory is decided here, and written down.
    Pass("schedule", lambda p, o: schedule(p, o)),
    Pass("generate", lambda s, o: generate(s)),
)


class Runner:
    """Runs steps, times them, checks artifacts at the boundaries when asked to, and tells the observer."""

    def __init__(self, options: Options, observe: Observer | None, graph: int = 0) -> None:
        self.options, self.observe, self.graph = options, observe, graph

    def step(self, name: str, before: Artifact | None, run: Callable[[], Any], part: str = "") -> Any:
        mark = before.fingerprint() if self.options.check and before is not None else ""
        start = time.perf_counter()
        after = run()
        seconds = time.perf_counter() - start
        if self.options.check:
            after.check()
            if before is not None and before.fingerprint() != mark:
                raise InvalidIR(f"the step {name!r} changed its input", why="a stage is a function from a value to a value")
        if self.observe is not None:
            self.observe(Step(name, before, after, seconds, part, self.graph))
        return after

    def passes(self, steps: tuple[Pass, ...], artifact: Any, part: str = "") -> Any:
        for one in steps:
            artifact = self.step(one.name, artifact, lambda one=one, a=artifact: one.run(a, self.options), part)
        return artifact


def to_partition(graph: Artifact, args: list[Tensor], run: Runner, steps: tuple[Pass, ...]) -> Partition:
    """Captured graph -> joint graph -> ... -> partition."""
    traced: JointGraph = run.step("joint", graph, lambda: joint(graph, *args))
    return run.passes(steps, traced)


def eager_backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
    """The captured graph, run as it is."""
    return graph.module.forward


def aot_backend(steps: tuple[Pass, ...]) -> Callable[[CapturedGraph, list[Tensor], Runner], Compiled]:
    """Everything up to the partition; forward and backward are run by aten."""

    def backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
        part = to_partition(graph, args, run, steps)
        backward = part.backward.module.forward if part.backward is not None else None
        return bind(part.spec, len(part.saved), part.forward.module.forward, backward)

    return backend


def lab_backend(graph: CapturedGraph, args: list[Tensor], run: Runner) -> Compiled:
    """All of it: forward and backward are C++ kernels, both built at once."""
    part = to_partition(graph, args, run, JOINT_STEPS)
    halves = {"forward": part.forward, **({"backward": part.backward} if part.backward is not None else {})}
    kernels = {name: run.passes(KERNEL_STEPS, half, name) for name, half in halves.items()}
    start = time.perf_counter()
    programs = dict(zip(kernels, build_many(list(kernels.values()), run.options), strict=True))
    seconds = time.perf_counter() - start
    for name, program in programs.items():
        if run.observe is not None:
            run.observe(Step("build", kernels[name], program, seconds, name, run.graph))
    return bind(part.spec, len(part.saved), programs["forward"].call, programs["backward"].call if "backward" in programs else None)


_recording: ContextVar[Observer | None] = ContextVar("recording", default=None)


@contextlib.contextmanager
def recording(observe: Observer) -> Iterator[None]:
    """Every compile that happens inside the block and has no observer of its own is recorded by ``observe``."""
    token = _recording.set(observe)
    try:
        yield
    finally:
        _recording.reset(token)
