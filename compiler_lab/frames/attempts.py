"""The captures of one frame: whole, or up to the instruction that has to be Python's; with symbolic sizes, or with those of the call.

In: ``FrameInput``, the code and what its names hold. Out: ``Specialization``: graph, guards, and the recipe of the result.
Always holds: the frame is captured whole, or up to the instruction that ``stop`` names, or ``CaptureUnsupported`` says at which
instruction and line it cannot be; nothing that the program could see has changed either way; each attempt begins from the frame as the call
made it, with an interpreter of its own, which holds nothing of the program's when it has ended.
PyTorch's counterpart: ``torch/_dynamo/convert_frame.py`` around ``symbolic_convert.py``, which goes on in the same run of the interpreter; here
the frame is captured again, up to the instruction in question, so that what the failed instruction did to values is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any, TypeVar

from ..core.modes import active_modes, outside_inference
from ..core.provenance import Location, Stack
from .aliases import check_aliases
from .frame import FrameInput
from .interpreter import Frame, Interpreter
from .ir import Break, Recipe, Source, Specialization
from .points import before_call, resumable
from .reasons import CaptureUnsupported
from .result import Results, close, specialization
from .shapes import SYMBOLIC_REASONS, Shapes, SizeHistory
from .stops import Stopped, leave_modes, stop_of
from .values.base import Constant, Lazy, Raised
from .values.containers import DictValue
from .values.functions import Cell

T = TypeVar("T", bound=Interpreter)
NOTHING = Recipe("constant", None)


class Stopping(Interpreter):
    """Stops the top frame before the step ``limit``, to say why with ``found``."""

    def __init__(self, shapes: Shapes, limit: int, found: Break) -> None:
        super().__init__(shapes)
        self.limit, self.found = limit, found
        self.stopped: Specialization | None = None

    def reached(self, frame: Frame) -> None:
        if frame is not self.top or self.steps > self.limit:
            raise self.refuse("internal-error", "a second capture of the frame took another way")
        definition = definition_of(frame.code)
        results = Results(self)
        stop = stop_of(results, frame, self.found)
        check_aliases(self, definition)
        leave_modes(frame)
        self.stopped = close(results, NOTHING, stop, definition)
        raise Stopped


class Surveying(Stopping):
    """Notes the last step before ``end`` at which the top frame's state can be put together."""

    def __init__(self, shapes: Shapes, end: int, found: Break) -> None:
        super().__init__(shapes, 0, found)
        self.end = end
        self.best = -1

    def reached(self, frame: Frame) -> None:
        if frame is not self.top:
            return
        if self.steps >= self.end:
            raise Stopped
        try:
            stop_of(Results(self), frame, self.found)
            check_aliases(self, ())
            self.best = self.steps
        except CaptureUnsupported:  # not here
            pass


def interpret(frame: FrameInput, history: SizeHistory | None = None, make: Callable[[Shapes], Interpreter] | None = None) -> Specialization:
    """Capture one frame whole; ``history`` is what earlier captures of the same compiled function saw of its sizes; ``make``: an interpreter
    of one's own.

    Raises ``CaptureUnsupported`` (its ``as_break()`` is the ``Break``) where that is not possible."""
    return _symbolic_or_not(frame, history, lambda symbols: _run(make(symbols()), frame) if make else _whole(frame, symbols()))


def interpret_piece(frame: FrameInput, history: SizeHistory | None = None) -> Specialization:
    """Capture one frame up to the first instruction that has to be Python's: ``stop`` then says where Python goes on.

    Raises ``CaptureUnsupported`` where there is no place to stop, or where the program itself raises."""
    return _symbolic_or_not(frame, history, lambda symbols: _piece(frame, symbols))


def _symbolic_or_not(frame: FrameInput, history: SizeHistory | None, capture: Callable[[Callable[[], Shapes]], Specialization]) -> Specialization:
    """What cannot be captured with symbolic sizes is captured with those of this call, now and later."""
    history = history or SizeHistory()
    place = (frame.code.co_filename, frame.code.co_qualname, frame.code.co_firstlineno)
    made: list[Shapes] = []

    def symbols() -> Shapes:
        made.append(Shapes(history, place))
        return made[-1]

    found = None
    try:
        found = capture(symbols)
        failed = found.stop is not None and found.stop.found.reason in SYMBOLIC_REASONS
    except CaptureUnsupported as error:
        failed = error.reason in SYMBOLIC_REASONS
        if not failed or not made[-1].optional:
            raise
    if found is not None and not (failed and made[-1].optional):
        return found
    plain = capture(lambda: Shapes(SizeHistory(dynamic=False), place))
    if found is not None and found.stop is not None and plain.stop is not None and plain.stop.at == found.stop.at:
        return found  # sizes are not what it failed on
    history.static.add(place)
    return plain


def _whole(frame: FrameInput, shapes: Shapes) -> Specialization:
    with _done(Interpreter(shapes)) as t:
        return _run(t, frame)


def _piece(frame: FrameInput, symbols: Callable[[], Shapes]) -> Specialization:
    with _done(Interpreter(symbols())) as t:
        try:
            return _run(t, frame)
        except CaptureUnsupported as error:
            if t.top is None or error.reason == "raise" or not resumable(frame.code):
                raise
            end = t.top.began - before_call(t.top.info, t.top.at)
            if (stopped := _stopped(frame, symbols, end, error.as_break())) is None:
                raise
            return stopped


def _stopped(frame: FrameInput, symbols: Callable[[], Shapes], end: int, found: Break) -> Specialization | None:
    """The frame captured again (capture is deterministic) up to step ``end``, or to the last one before it where the state can be put together."""
    with suppress(CaptureUnsupported), _done(Stopping(symbols(), end, found)) as t:
        return _run(t, frame)
    with _done(Surveying(symbols(), end, found)) as survey:
        with suppress(CaptureUnsupported):
            _run(survey, frame)
        best = survey.best
    if best < 0:
        return None
    with _done(Stopping(symbols(), best, found)) as t:
        return _run(t, frame)


@contextmanager
def _done(t: T) -> Generator[T]:
    """Its values hold the program's, and it and its values hold each other: what the program drops is to be freed at once."""
    try:
        yield t
    finally:
        vars(t).clear()


def _run(t: Interpreter, frame: FrameInput) -> Specialization:
    definition = definition_of(frame.code)
    try:
        check_modes(frame.code, definition)
        t.top = top_frame(t, frame)
        with outside_inference(), _quiet_fakes():
            result = t.run_frame(t.top)
            if t.modes() != t.before:
                raise CaptureUnsupported("side-effect", "a mode of torch's is left changed", definition)
            return specialization(t, result, definition)
    except Stopped as stopped:
        if isinstance(t, Stopping) and t.stopped is not None:
            return t.stopped
        raise CaptureUnsupported("loop-limit", "the survey has ended", definition) from stopped
    except Raised as raised:
        raise CaptureUnsupported("raise", raised.exception.describe(), t.last[0] or definition, t.last[1]) from raised
    except RecursionError as error:
        raise CaptureUnsupported("recursion", "", definition) from error


@contextmanager
def _quiet_fakes() -> Generator[None]:
    """An operator that raises on fakes is an error of the program's own, which Python will raise: torch's log of it is not for the user."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def definition_of(code: CodeType) -> Stack:
    return (Location(code.co_filename, code.co_firstlineno, code.co_name),)


def top_frame(t: Interpreter, frame: FrameInput) -> Frame:
    """The frame whose names are the sources of everything."""
    scope = t.top_scope(frame.globals, frame.builtins)
    free = frame.code.co_freevars
    locals: dict[str, Any] = {k: Lazy(t, v, Source("local", k)) for k, v in frame.locals.items() if k not in free}
    if frame.code.co_flags & 0x08 and (name := rest_of(frame.code)) in locals:
        locals[name] = keyword_arguments(t, frame.locals[name], Source("local", name))
    cells = [Cell.existing(t, c, Source("closure", k), k, None) for k, c in zip(free, frame.closure, strict=True)]
    top = Frame(t, frame.code, scope, locals, cells)
    top.given = tuple(slot for slot in locals.values() if isinstance(slot, Lazy))
    return top


def rest_of(code: CodeType) -> str:
    """The name of ``**kwargs``."""
    return code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)]


def keyword_arguments(t: Interpreter, real: dict[str, Any], source: Source) -> DictValue:
    """The dict that the call made for ``**kwargs``: nobody else has it, so it may change; its keys are what the call passed."""
    t.guard("type", source, "dict")
    t.guard("dict_keys", source, tuple(real), why="the call's keywords were bound")
    return DictValue({k: (Constant(k), Lazy(t, v, Source("dict_item", k, source))) for k, v in real.items()})


def check_modes(code: CodeType, definition: Stack) -> None:
    """Refuse to capture under what changes the meaning of every operation, and frames that are no plain calls."""
    if code.co_flags & (0x20 | 0x80 | 0x100 | 0x200):
        raise CaptureUnsupported("generator", code.co_name, definition)
    for what in active_modes():
        raise CaptureUnsupported("mode", what, definition)
