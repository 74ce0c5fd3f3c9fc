"""One frame, converted: interpreted, given to the backend, guarded and assembled; or left to Python with a reason.

In: a ``FrameInput``. Out: an ``Entry``, or None with a ``Break`` recorded. Always holds: an entry accepts the frame it was made from;
an exception leaves nothing half made; the random number generators are where they were.
A frame whose capture stops goes on in ``pieces.py``; each piece of it is converted here in its turn.
Where PyTorch does this: ``torch/_dynamo/convert_frame.py``.
"""

from __future__ import annotations

import logging
import random
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
import torch.fx as fx
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from ..core.clock import now
from ..core.errors import BackendFailed, ConstraintViolated, GraphBroken, InvalidIR, LabError, Unsupported
from ..core.modes import modes_kept, sets_mode
from ..core.options import Options
from ..core.provenance import Location, own_location
from .assemble import assemble
from .entries import Entry, Stats
from .frame import FrameInput
from .guards import GuardTree
from .ir import Break, CapturedGraph, Specialization
from .pieces import Pieces
from .points import work_follows
from .reasons import CaptureUnsupported
from .recompiles import Timeline
from .sources import resolve
from .values.symbolic import SYMBOLIC

Interpret = Callable[[FrameInput], Specialization]
Backend = Callable[[CapturedGraph, list[Any]], Callable[..., Any]]
OnEvent = Callable[[str, Any], None]

# with these the program itself is about to raise: Python does it, with the user's own traceback, even under fullgraph
RAISING = ("raise", "op-error", "bad-call")


@dataclass(frozen=True)
class Captured:
    """The payload of a "captured" event: what was made of a frame, for those who watch."""

    frame: FrameInput
    specialization: Specialization
    tree: GuardTree
    before: CodeType
    after: CodeType
    seconds: float
    guarding: float  # when its graph was compiled, and what is left, guards and code, began: of the clock of ``core/clock.py``
    compiled: Callable[..., Any] | None = None  # what ``after`` calls, for a function of its own that was captured to its end


class Converter:
    """How the frames of one compiled function are converted. ``breaks`` lists what was left to Python, each place once."""

    def __init__(self, interpret: Interpret, backend: Backend, *, fullgraph: bool, options: Options, timeline: Timeline, stats: Stats) -> None:
        self.interpret, self.backend, self.fullgraph, self.options, self.stats = interpret, backend, fullgraph, options, stats
        self.timeline, self.on_event = timeline, timeline.on_event
        self.pieces = Pieces(self)
        self.breaks: list[Break] = []
        self.last: Break | None = None
        self._seen = Stats()

    def frame(self, frame: FrameInput, *, hooked: bool) -> Entry | None:
        """An entry for ``frame``; None when it is left to Python, or when it is ``hooked`` and holds no tensor work.

        Raises ``GraphBroken`` under fullgraph, ``BackendFailed`` (and any ``LabError`` of the backend but ``Unsupported``)."""
        start, handled = now(), sys.exc_info()[1]
        try:
            with _same_randomness(), _unlogged():
                made = self._frame(frame, hooked)
        except Unsupported as error:
            self.broken(_break(error, frame), self.pieces.root(frame.code), error)
            _let_go(error, handled)
            return None
        except _FromBackend as error:
            raise error.error from error.error.__cause__
        except ConstraintViolated:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of capture must not be the user's: Python runs the frame
            self.broken(_internal(error, frame), self.pieces.root(frame.code), error)
            _let_go(error, handled)
            return None
        if made is None:
            return None
        specialization, entry, compiled, guarding = made
        whole = compiled if not hooked and specialization.stop is None and self.pieces.root(frame.code) is frame.code else None
        self.on_event("captured", Captured(frame, specialization, entry.tree, frame.code, entry.code, now() - start, guarding, whole))
        return entry

    def _frame(self, frame: FrameInput, hooked: bool) -> tuple[Specialization, Entry, Callable[..., Any] | None, float] | None:
        with _modes_aside():
            specialization = self.interpret(frame)
            calls = [n for n in specialization.graph.graph.nodes if n.op.startswith("call")]
            work = any(not isinstance(n.meta["val"], SYMBOLIC) for n in calls)
            if (stop := specialization.stop) is not None:
                stop = self.pieces.begun(frame.code, stop)
                specialization = replace(specialization, stop=stop)
                if self.fullgraph or not (work or work_follows(frame.code, stop.at)):
                    raise stopped(stop.found)
            elif hooked and not work:
                return None
            compiled = self._compile(specialization, frame) if work else specialization.graph.module.forward if calls else None
        guarding = now()
        specialization = with_late_guards(specialization)
        root = self.pieces.root(frame.code)
        pause = None
        if stop is not None:
            if root is frame.code or not stop.found.instruction.startswith("FOR_ITER"):  # a loop that a break has left is gone on with: no break of its own
                self.broken(stop.found, root)
            pause = self.pieces.pause(frame.code, stop)
        tree = GuardTree(specialization.guards, frame, hooked=hooked)
        code = assemble(specialization, compiled, frame, pause, piece=root is not frame.code)
        if (failure := tree.explain(frame.locals)) is not None or not tree.check(frame.locals):
            raise InvalidIR("the guards reject the very frame they were made from", why=failure.text() if failure else "only the C++ check fails")
        return specialization, Entry(tree, code, work, specialization.retried), compiled, guarding

    def _compile(self, specialization: Specialization, frame: FrameInput) -> Callable[..., Any]:
        cells = dict(zip(frame.code.co_freevars, frame.closure, strict=False))
        inputs = [resolve(s, frame.locals, frame.globals, cells, frame.builtins) for s in specialization.graph.inputs]
        try:
            compiled = self.backend(specialization.graph, inputs)
        except Unsupported:
            raise
        except LabError as error:
            raise _FromBackend(error) from error
        except Exception as error:
            failed = BackendFailed(
                f"the backend raised {type(error).__name__}: {error}", where=own_location(_first_line(frame)), hint="see the exception it came from"
            )
            failed.__cause__ = error
            raise _FromBackend(failed) from error
        if not callable(compiled):
            raise _FromBackend(
                BackendFailed(f"the backend returned {type(compiled).__name__}, which cannot be called", hint="return a function of the graph's inputs")
            )
        self.stats.graphs += 1
        run = compiled.forward if isinstance(compiled, fx.GraphModule) else compiled
        return modes_kept(run) if sets_mode(specialization.graph.graph) else run

    def broken(self, found: Break, code: CodeType, error: BaseException | None = None) -> None:
        """Records that ``code`` is left to Python. Raises ``GraphBroken`` under fullgraph, unless the program itself is about to raise."""
        self.last = found
        if self._seen.meet(found, code):
            self.breaks.append(found)
        if self.stats.meet(found, code):
            self.on_event("break", found)
        if self.fullgraph and found.reason not in RAISING:
            raise graph_broken(found, code) from error

    def refused(self, code: CodeType, error: Unsupported) -> None:
        """Records that a graph made of ``code`` is left to eager after all, and says so to the user, once. Raises ``GraphBroken`` under fullgraph."""
        stack, before = (error.where,) if error.where else (Location(code.co_filename, code.co_firstlineno, code.co_name),), len(self.breaks)
        self.broken(Break(error.reason, error.what, "", stack, error.hint), self.pieces.root(code), error)
        if len(self.breaks) > before:
            warnings.warn(str(error), stacklevel=2)

    def reset(self) -> None:
        """Forgets the breaks that were met, and the pieces of frames."""
        self.pieces.clear()
        self.timeline.points.clear()
        self.breaks.clear()
        self._seen.clear()
        self.last = None


def with_late_guards(made: Specialization) -> Specialization:
    """``made``, after the compile of its graph: what that assumed about sizes is guarded, too."""
    if made.late is None:
        return made
    known = {g.expected for g in made.guards if g.kind == "shape"}
    return replace(made, guards=(*made.guards, *(g for g in made.late() if g.expected not in known)))


class _FromBackend(Exception):
    """Carries a backend's error past the nets for errors of capture."""

    def __init__(self, error: LabError) -> None:
        self.error = error
        super().__init__(str(error))


def graph_broken(found: Break, code: CodeType) -> GraphBroken:
    """The error that fullgraph=True makes of a break."""
    at = f" (at {found.instruction})" if found.instruction else ""
    hint, leave = found.hint or "change that line", "pass fullgraph=False to leave the function to Python"
    return GraphBroken(
        f"{code.co_qualname} cannot be captured as one graph: {found.what}",
        where=own_location(found.stack),
        why=f"reason: {found.reason}{at}",
        hint=f"{leave}, or {hint}" if "\n" in hint else f"{hint}; or {leave}",  # lines of code stand at the end
    )


def stopped(found: Break) -> CaptureUnsupported:
    """The error for a capture that stopped, where it is not to go on in pieces."""
    error = CaptureUnsupported(found.reason, "", found.stack, found.instruction)
    error.what = found.what
    return error


def _break(error: Unsupported, frame: FrameInput) -> Break:
    if isinstance(error, CaptureUnsupported):
        found = error.as_break()
        return found if found.stack else Break(found.reason, found.what, found.instruction, _first_line(frame), found.hint)
    return Break(error.reason, error.what, "", (error.where,) if error.where else _first_line(frame), error.hint)


def _internal(error: Exception, frame: FrameInput) -> Break:
    return CaptureUnsupported("internal-error", f"{type(error).__name__}: {error}", _first_line(frame)).as_break()


def _first_line(frame: FrameInput) -> tuple[Location, ...]:
    return (Location(frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name),)


def _modes_aside() -> AbstractContextManager[Any]:
    """Capture's own operators must not reach the user's dispatch modes, where those allow compiled code; others are left for capture to refuse."""
    modes = _get_current_dispatch_mode_stack() if torch._C._len_torch_dispatch_stack() else []
    return nullcontext() if not modes or any(m._should_skip_dynamo() for m in modes) else _disable_current_modes()


def _let_go(error: BaseException | None, handled: BaseException | None) -> None:
    """The frames that ``error`` came through hold the program's values, and it is done with. ``handled`` is the program's own."""
    if error is not None and error is not handled and error.__traceback__ is not None:
        error.__traceback__ = None
        _let_go(error.__cause__, handled)
        _let_go(error.__context__, handled)


@contextmanager
def unseen() -> Generator[None]:
    """In here things are compiled: the program's random state and its dispatch modes are left as they are."""
    with _same_randomness(), _unlogged(), _modes_aside():
        yield


@contextmanager
def _unlogged() -> Generator[None]:
    """torch logs each operation that fails on fake tensors as an error; what is meant to fail fails once more in Python, without a log."""
    thread, logger = threading.get_ident(), logging.getLogger("torch._subclasses.fake_tensor")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


@contextmanager
def _same_randomness() -> Generator[None]:
    """Capture must not be seen by a program that draws random numbers."""
    state = random.getstate()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    forked = torch.random.fork_rng(devices=devices)
    with torch._C.DisableTorchFunction():  # it makes devices, which the program's function modes would see
        forked.__enter__()
    try:
        yield
    finally:
        with torch._C.DisableTorchFunction():
            forked.__exit__(None, None, None)
        random.setstate(state)
