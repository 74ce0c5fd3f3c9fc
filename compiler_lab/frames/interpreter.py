"""A symbolic interpreter of CPython bytecode: runs frames on values, without running the user's tensor work.

In: a ``Frame``, one activation: code, and values for its names. Out: ``Frame.result``; what was done to tensors is in the tracer's graph.
Always holds: an instruction does what CPython's does, on values, or ``CaptureUnsupported`` leaves ``run`` in the middle of it;
an exception of the program's is ``Raised`` and goes to the handler that the exception table has for it.
PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py``. Which captures are made of a frame is in ``attempts.py``.
"""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from ..core.provenance import Location, Stack
from .code import read_code
from .opcodes_control import OPCODES, Exit
from .shapes import Shapes
from .tracer import MAX_DEPTH, MAX_STEPS, Tracer
from .values.base import NONE, NULL, Args, BoundBuiltin, Constant, Kwargs, Lazy, Raised, Slot, Value, force
from .values.contexts import TorchMode
from .values.exceptions import set_context
from .values.functions import GENERATOR, Cell, FunctionValue, GeneratorRun, Scope, bind_arguments
from .values.iterators import IteratorValue, make
from .values.objects import ExceptionValue

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
        self.began = 0  # the step of the whole capture at which the present instruction began
        self.given: tuple[Lazy, ...] = ()  # what a captured frame was called with
        self.outer: Stack = ()
        self.result: Value = NONE
        self.started = False
        self.handling: list[Value] = []  # of a suspended generator: the exceptions that it handles

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
            raise self.unbound(name)
        return force(slot)

    def unbound(self, name: str) -> Raised:
        return Raised(self.t.exception(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"))

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
            if t.steps >= t.limit:
                t.reached(self)
            self.began = t.steps
            t.steps += 1
            inst = instructions[self.pc]
            self.pc += 1
            handler = OPCODES.get(inst.name)
            if handler is None:
                raise t.refuse("unsupported-instruction", inst.name)
            try:
                done = handler(self, t, inst)
            except Raised as raised:
                if not raised.settled:
                    raised.settled = True
                    set_context(t, raised.exception)
                self.unwind(raised)
                raised.__traceback__ = None  # its frames hold the program's values, and it may be held by one of them
                continue
            if done is not None:
                return done

    def catches(self) -> bool:
        """Would code of the program's run when an exception is raised here: an except or finally clause, or a manager of its own?"""
        at = self.at
        while (row := self.info.handler(at)) is not None:
            manager = self.stack[row.depth - 1] if row.kind == "with" else None
            if row.kind != "cleanup" and not (isinstance(manager, BoundBuiltin) and isinstance(manager.owner, TorchMode)):
                return True
            at = row.target
        return False

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

    def resume(self, sent: Value, error: ExceptionValue | None = None) -> tuple[bool, Value]:
        """Run a generator to its next yield, with a value or an exception: (True, value), or (False, result) at its end."""
        t = self.t
        self.outer = t.stack()
        t.frames.append(self)
        below = len(t.exceptions)
        t.exceptions += self.handling
        try:
            if error is not None and not self.throw(error):
                return True, self.result
            if self.started and error is None:
                self.push(sent)
            self.started = True
            return self.run() is Exit.YIELD, self.result
        except Raised as raised:
            found = raised.exception
            if isinstance(found, ExceptionValue) and issubclass(found.cls, StopIteration):
                stopped = t.exception(RuntimeError, "generator raised StopIteration")
                stopped.chain.update(__context__=found, __cause__=found, __suppress_context__=Constant(True))
                raised = Raised(stopped)
                raised.settled = True
                raise raised from None
            raise
        finally:
            self.handling = t.exceptions[below:]
            del t.exceptions[below:]
            t.frames.pop()

    def throw(self, error: ExceptionValue) -> bool:
        """Raise ``error`` at the yield where the frame is suspended; False when an inner generator took it and has yielded again."""
        after = self.info.instructions[self.pc]
        inner = self.stack[-1].run if after.name == "RESUME" and after.arg & 3 == 2 and isinstance(self.stack[-1], IteratorValue) else None
        try:
            if isinstance(inner, GeneratorRun):
                if not issubclass(error.cls, GeneratorExit):
                    self.result = inner.throw(error)
                    return False
                inner.close()
            raised = Raised(error)
        except StopIteration:
            self.pc += 1  # the jump back to SEND, which finds the inner one at its end
            self.push(NONE)
            return True
        except Raised as other:
            raised = other
        set_context(self.t, raised.exception)
        raised.settled = True
        self.unwind(raised)
        return True

    def protected(self) -> bool:
        """Is the place where the frame is suspended inside a ``try`` or ``with`` of the program's?"""
        row = self.info.handler(self.at)
        while row is not None and self.info.instructions[row.target].name in ("CLEANUP_THROW", "CALL_INTRINSIC_1"):
            row = self.info.handler(row.target)
        return row is not None


class Interpreter(Tracer):
    """A tracer that can call Python functions: by running their frames. ``top`` is the frame that is captured."""

    limit = MAX_STEPS

    def __init__(self, shapes: Shapes | None = None) -> None:
        super().__init__(shapes)
        self.top: Frame | None = None
        self.before = self.modes()

    def reached(self, frame: Frame) -> None:
        """Called before each instruction from step ``limit`` on."""
        raise self.refuse("loop-limit", f"{MAX_STEPS} instructions")

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


__all__ = ["NULL", "Frame", "Interpreter"]
