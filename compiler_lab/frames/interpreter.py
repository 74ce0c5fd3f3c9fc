"""A symbolic interpreter of CPython bytecode: runs a whole frame on values, without running the user's tensor work.

In: ``FrameInput``, the code and what its names hold. Out: ``Specialization``: graph, guards, and the recipe of the result.
Always holds: the frame is captured whole or ``CaptureUnsupported`` says at which instruction and line it is not; nothing that the
program could see has changed either way. PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py``.
Left out: capture of a part of a frame.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch as functorch  # type: ignore[attr-defined]
from torch.jit._trace import is_tracing

from ..core.modes import outside_inference
from ..core.provenance import Location, Stack
from .code import read_code
from .frame import FrameInput
from .ir import Source, Specialization
from .opcodes_control import OPCODES, Exit
from .reasons import CaptureUnsupported
from .result import specialization
from .shapes import Shapes, SizeHistory
from .tracer import MAX_DEPTH, MAX_STEPS, Tracer
from .values.base import NONE, NULL, Args, BoundBuiltin, Constant, Kwargs, Lazy, Raised, Slot, Value, force
from .values.contexts import TorchMode
from .values.functions import GENERATOR, Cell, FunctionValue, GeneratorRun, Scope, bind_arguments
from .values.iterators import make

if TYPE_CHECKING:
    from .code import Inst


class Frame:
    """One activation: locals and cells by name, the value stack, and where it is."""

    def __init__(self, t: Interpreter, code: CodeType, scope: Scope, locals: dict[str, Slot], cells: list[Cell]) -> None:
        self.t, self.code, self.scope, self.locals = t, code, scope, locals
        self.info = read_code(code)
        self.cells = dict(zip(code.co_freevars, cells, strict=False))
        self.stack: list[Value] = []
        self.keywords: tuple[str, ...] = ()
        self.pc = self.at = 0
        self.outer: Stack = ()
        self.result: Value = NONE
        self.started = False

    def location(self) -> Location:
        return self.info.locations[self.at]

    def call_stack(self) -> Stack:
        return (*self.outer, self.location())

    def instruction(self) -> str:
        return self.info.instructions[self.at].text

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def take(self, count: int) -> list[Value]:
        """The top ``count`` values, lowest first, popped."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def jump(self, inst: Inst) -> None:
        self.pc = inst.target

    def load(self, name: str) -> Value:
        slot = self.locals.get(name)
        if slot is None:
            raise Raised(self.t.exception(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"))
        return force(slot)

    def super_arguments(self) -> tuple[Value, Value]:
        """What ``super()`` without arguments uses: the ``__class__`` cell and the first argument."""
        cell, name = self.cells.get("__class__"), self.code.co_varnames[0]
        first = self.locals.get(name) or (self.cells[name].slot if name in self.cells else None)
        if cell is None or cell.slot is None or first is None:
            raise self.t.refuse("unknown-callable", "super() without a class")
        return force(cell.slot), force(first)

    def run(self) -> Exit:
        """Execute until the frame returns or yields; ``result`` is what it gave."""
        t, instructions = self.t, self.info.instructions
        while True:
            self.at = self.pc
            inst = instructions[self.pc]
            self.pc += 1
            t.steps += 1
            handler = OPCODES.get(inst.name)
            if handler is None:
                raise t.refuse("unsupported-instruction", inst.name)
            if t.steps > MAX_STEPS:
                raise t.refuse("loop-limit", f"{MAX_STEPS} instructions")
            try:
                done = handler(self, t, inst)
            except Raised as raised:
                self.unwind(raised)
                continue
            if done is not None:
                return done

    def catches(self) -> bool:
        """Would the program itself see an exception that is raised here?"""
        row = self.info.handler(self.at)
        if row is None or row.kind == "finally":
            return False
        manager = self.stack[row.depth - 1] if row.kind == "with" else None
        return not (isinstance(manager, BoundBuiltin) and isinstance(manager.owner, TorchMode))

    def unwind(self, raised: Raised) -> None:
        """Go to the handler of the exception table, or let the exception leave the frame."""
        row = self.info.handler(self.at)
        if row is None:
            raise raised
        del self.stack[row.depth :]
        if row.lasti:
            self.push(Constant(self.at))
        self.push(raised.exception)
        self.pc = row.target

    def resume(self, sent: Value) -> tuple[bool, Value]:
        """Run a generator to its next yield: (True, value), or (False, result) at its end."""
        t = self.t
        self.outer = t.stack()
        t.frames.append(self)
        try:
            if self.started:
                self.push(sent)
            self.started = True
            return self.run() is Exit.YIELD, self.result
        except Raised as raised:
            if getattr(raised.exception, "cls", None) is StopIteration:
                raise t.refuse("generator", "a generator raises StopIteration") from raised
            raise
        finally:
            t.frames.pop()


class Interpreter(Tracer):
    """A tracer that can call Python functions: by running their frames."""

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        if len(self.frames) >= MAX_DEPTH:
            raise self.refuse("recursion", f"{MAX_DEPTH} calls deep")
        frame = Frame(self, function.code, function.scope, bind_arguments(self, function, args, kwargs), function.cells)
        if function.code.co_flags & GENERATOR:
            return make(GeneratorRun(self, frame))
        return self.run_frame(frame)

    def run_frame(self, frame: Frame) -> Value:
        frame.outer = self.stack()
        self.frames.append(frame)
        try:
            frame.run()
        finally:
            self.frames.pop()
        return frame.result


def interpret(frame: FrameInput, history: SizeHistory | None = None) -> Specialization:
    """Capture one frame whole; ``history`` is what earlier captures of the same compiled function saw of its sizes. What cannot be
    captured with symbolic sizes is captured with these. Raises ``CaptureUnsupported`` (its ``as_break()`` is the ``Break``) where that is not possible."""
    history = history or SizeHistory()
    place = (frame.code.co_filename, frame.code.co_qualname, frame.code.co_firstlineno)
    shapes = Shapes(history, place)
    try:
        return _interpret(frame, shapes)
    except CaptureUnsupported as error:
        if not shapes.symbolic or shapes.marked or shapes.lost or error.reason == "raise":
            raise
    found = _interpret(frame, Shapes(SizeHistory(dynamic=False), place))
    history.static.add(place)
    return found


def _interpret(frame: FrameInput, shapes: Shapes) -> Specialization:
    definition = (Location(frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name),)
    t = Interpreter(shapes)
    before = t.modes()
    try:
        check_modes(frame.code, definition)
        with outside_inference():
            result = t.run_frame(top_frame(t, frame))
            if t.modes() != before:
                raise CaptureUnsupported("side-effect", "a mode of torch's is left changed", definition)
            return specialization(t, result, definition)
    except Raised as raised:
        raise CaptureUnsupported("raise", raised.exception.describe(), t.last[0] or definition, t.last[1]) from raised
    except RecursionError as error:
        raise CaptureUnsupported("recursion", "", definition) from error


def top_frame(t: Interpreter, frame: FrameInput) -> Frame:
    """The frame whose names are the sources of everything."""
    scope = t.top_scope(frame.globals, frame.builtins)
    free = frame.code.co_freevars
    locals: dict[str, Any] = {k: Lazy(t, v, Source("local", k)) for k, v in frame.locals.items() if k not in free}
    cells = [Cell(Lazy(t, frame.locals[k], Source("closure", k)) if k in frame.locals else None, existing=True) for k in free]
    return Frame(t, frame.code, scope, locals, cells)


def check_modes(code: CodeType, definition: Stack) -> None:
    """Refuse to capture under what changes the meaning of every operation, and frames that are no plain calls."""
    if code.co_flags & (0x20 | 0x80 | 0x100 | 0x200):
        raise CaptureUnsupported("generator", code.co_name, definition)
    active = {
        "a torch function mode": torch._C._len_torch_function_stack() > 0,
        "a dispatch mode": torch._C._len_torch_dispatch_stack() > 0,
        "a functorch transform": functorch.peek_interpreter_stack() is not None,
        "jit tracing": is_tracing(),
    }
    for what, on in active.items():
        if on:
            raise CaptureUnsupported("mode", what, definition)


__all__ = ["NULL", "Frame", "Interpreter", "interpret"]
