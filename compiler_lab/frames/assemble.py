"""Replacement code: loads the graph's inputs, calls the compiled function, builds the frame's result.

In: a ``Specialization``, the compiled function (a constant of the new code) and the frame. Out: a code object that can stand in for the
frame's own: same arguments and free variables, same first line.
Always holds: argument counts, flags for ``*args`` and ``**kwargs``, and ``co_freevars`` equal the original's (a frame is filled by
position, so anything else reads wrong slots). How values are put together is in ``rebuild.py``. Where capture stopped before the frame
did, the code hands its state over (``pieces.py``) and keeps nothing of it.
Where PyTorch does this: ``torch/_dynamo/output_graph.py`` and ``bytecode_transformation.py``.
"""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
from bytecode.flags import CompilerFlags
from bytecode.instr import FreeVar, TryBegin, TryEnd

from ..core.errors import InvalidIR, LabError
from .code import body_of, read_code
from .frame import FrameInput
from .ir import Specialization, Stop
from .pieces import Pause, go_on
from .rebuild import Writer, recipes_of, results_of
from .resume import PROLOGUE, Next

KEPT_FLAGS = 0x4 | 0x8  # CO_VARARGS, CO_VARKEYWORDS
OPTIMIZED = 0x1 | 0x2  # CO_OPTIMIZED, CO_NEWLOCALS: locals in fast slots


def assemble(
    specialization: Specialization, compiled: Callable[..., Any] | None, frame: FrameInput, pause: Pause | None = None, piece: bool = False
) -> CodeType:
    """The code that replaces ``frame.code``. ``compiled(*inputs)`` gives a tuple or list with one value per graph output.

    ``pause`` is where a capture that has a ``stop`` goes on: the code of a ``piece`` gives it back, other code runs the rest of the frame.
    ``compiled`` is None for a graph without operations, which needs no call. Raises ``InvalidIR`` for a recipe that names an output
    the graph does not have.
    """
    return _Assembler(specialization, compiled, frame).code(pause, piece)


def bytecode_text(code: CodeType) -> str:
    """The bytecode as dis prints it, without addresses and offsets; nested code objects follow."""
    lines = [f"{code.co_qualname}({', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])})"]
    line = 0
    for i in dis.get_instructions(code):
        now = (i.positions.lineno if i.positions else None) or 0
        mark = f"{now:>5}" if now and now != line else " " * 5
        line = now or line
        argument = i.argrepr or ("" if i.arg is None else str(i.arg))
        lines.append(re.sub(r" at 0x[0-9a-fA-F]+", "", f"{mark}  {i.opname} {argument}").rstrip())
    nested = [bytecode_text(c) for c in code.co_consts if isinstance(c, CodeType)]
    return "\n".join(lines) + "".join("\n\n" + n for n in nested)


class _Assembler:
    def __init__(self, specialization: Specialization, compiled: Callable[..., Any] | None, frame: FrameInput) -> None:
        self.frame, self.compiled, self.specialization = frame, compiled, specialization
        self.writer = Writer(frame, frame.code.co_firstlineno)
        self.call = range(0)  # the instructions that run the graph

    def code(self, pause: Pause | None, piece: bool) -> CodeType:
        writer, specialization = self.writer, self.specialization
        if piece:
            writer.line = read_code(self.frame.code).locations[0].line  # where it goes on
        inputs = specialization.graph.inputs if self.compiled else ()
        writer.plan(inputs, recipes_of(specialization))
        for recipe in specialization.before:
            writer.build(recipe)
            writer.emit("POP_TOP")
        if self.compiled is not None:
            first = len(writer.body)
            writer.call(self.compiled, [lambda s=s: writer.load(s) for s in inputs])
            self.call = range(first, len(writer.body))
            writer.outputs(len(specialization.graph.outputs))
        stop = specialization.stop
        writer.change(specialization.shared, specialization.effects, results_of(specialization))
        if stop is None or pause is None:
            writer.build(specialization.result)
        elif piece:
            writer.call(Next, [lambda: self._next(stop, pause)])
        else:
            writer.line = read_code(self.frame.code).locations[stop.at].line
            writer.call(
                go_on, [lambda: writer.constant(pause), lambda: writer.call(globals, []), lambda: self._cells(stop), lambda: self._state(stop, last=True)]
            )
        writer.emit("RETURN_VALUE")
        return self._code(specialization.retried and self.compiled is not None and not piece)

    def _next(self, stop: Stop, pause: Pause) -> None:
        self.writer.constant(pause)
        self._state(stop)
        self.writer.emit("BUILD_TUPLE", 2)

    def _state(self, stop: Stop, last: bool = False) -> None:
        """The locals, then the value stack without its NULLs, as a list. After the ``last`` thing that is built, the frame's own locals go."""
        recipes = [*(r for _, r in stop.locals), *(r for r in stop.stack if r is not None)]
        for recipe in recipes:
            self.writer.build(recipe)
        self.writer.emit("BUILD_LIST", len(recipes))
        if last:
            stored = dict.fromkeys(str(i.arg) for i in self.writer.body if i.name == "STORE_FAST")
            for name in (*argument_names(self.frame.code), *stored):
                self.writer.emit("DELETE_FAST", name)

    def _cells(self, stop: Stop) -> None:
        """The cells of the rest of the frame: its own, then those it was given."""
        code = self.frame.code
        for _, recipe in stop.cells:
            self.writer.build(recipe)
        for name in code.co_freevars:
            self.writer.emit("LOAD_CLOSURE", FreeVar(name))
        self.writer.emit("BUILD_TUPLE", len(code.co_cellvars) + len(code.co_freevars))

    def _code(self, again: bool) -> CodeType:
        original, line = self.frame.code, self.frame.code.co_firstlineno
        prologue = [Instr("COPY_FREE_VARS", len(original.co_freevars), lineno=line)] if original.co_freevars else []
        start = [*prologue, Instr("RESUME", 0, lineno=line)]
        new = self._named(Bytecode([*start, *self.writer.body, *self._room()]))
        code = new.to_code()
        if again:
            size = max(code.co_stacksize, original.co_stacksize + 3)
            code = self._named(Bytecode([*start, *self._guarded()])).to_code(stacksize=size, compute_exception_stack_depths=False)
        if code.co_freevars != original.co_freevars or code.co_varnames[: len(argument_names(original))] != argument_names(original):
            raise InvalidIR(f"replacement code of {original.co_qualname} has another layout", why="frames are filled by position")
        return code

    def _named(self, new: Bytecode) -> Bytecode:
        original, line = self.frame.code, self.frame.code.co_firstlineno
        new.name, new.qualname, new.filename, new.first_lineno = original.co_name, original.co_qualname, original.co_filename, line
        new.argcount, new.posonlyargcount, new.kwonlyargcount = original.co_argcount, original.co_posonlyargcount, original.co_kwonlyargcount
        flags = original.co_flags & KEPT_FLAGS
        new.argnames = list(argument_names(original))
        new.freevars = list(original.co_freevars)
        new.flags = CompilerFlags(OPTIMIZED | flags)
        return new

    def _guarded(self) -> list[Any]:
        """The body, with the frame's own code behind it: where the graph raises, that runs from its start, and no cell has been made."""
        writer, call, failed = self.writer, self.call, TryBegin(Label(), False, 0)
        body: list[Any] = [*writer.body[: call.start], failed, *writer.body[call.start : call.stop], TryEnd(failed), *writer.body[call.stop :]]
        return [*body, *again(self.frame.code, failed.target, writer.line)]

    def _room(self) -> list[Instr]:
        """Never executed: a local for each cell of the original. The hook copies arguments and cells into a frame of ours by position,
        and does not look whether that has as many slots."""
        line = self.writer.line
        stores = [Instr("STORE_FAST", f"{self.writer.prefix}room{n}", lineno=line) for n in range(len(self.frame.code.co_cellvars))]
        return [Instr("LOAD_CONST", 0, lineno=line), *(i for s in stores for i in (Instr("COPY", 1, lineno=line), s)), Instr("RETURN_VALUE", lineno=line)]


def again(code: CodeType, target: Any, line: int) -> list[Any]:
    """A handler at ``target`` that drops an exception and runs ``code``, unless it is one of this package's own, or no error at all."""
    goes_on, begins, cleanup = Label(), Label(), TryBegin(Label(), True, 1)
    if_true, if_false = ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE") if sys.version_info < (3, 12) else ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")

    def emit(name: str, *arg: Any) -> Instr:
        return Instr(name, *arg, lineno=line)

    handler = [
        *(emit("LOAD_CONST", LabError), emit("CHECK_EXC_MATCH"), emit(if_true, goes_on)),
        *(emit("LOAD_CONST", Exception), emit("CHECK_EXC_MATCH"), emit(if_false, goes_on)),
        *(emit("POP_TOP"), emit("POP_EXCEPT"), emit("JUMP_FORWARD", begins)),
    ]
    body = [emit("NOP") if isinstance(i, Instr) and i.name in PROLOGUE else i for i in body_of(code)]
    raising = [cleanup, goes_on, emit("RERAISE", 0), TryEnd(cleanup), cleanup.target, emit("COPY", 3), emit("POP_EXCEPT"), emit("RERAISE", 1)]
    return [target, emit("PUSH_EXC_INFO"), *handler, *raising, begins, *body]


def argument_names(code: CodeType) -> tuple[str, ...]:
    """The parameters of ``code``, ``*args`` and ``**kwargs`` among them."""
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4) + bool(code.co_flags & 0x8)]
