"""Replacement code: loads the graph's inputs, calls the compiled function, builds the frame's result.

In: a ``Specialization``, the compiled function (a constant of the new code) and the frame. Out: a code object that can stand in for the
frame's own: same arguments and free variables, same first line.
Always holds: argument counts, flags for ``*args`` and ``**kwargs``, and ``co_freevars`` equal the original's (a frame is filled by
position, so anything else reads wrong slots). How values are put together is in ``rebuild.py``.
Where PyTorch does this: ``torch/_dynamo/output_graph.py`` and ``bytecode_transformation.py``. Left out: resume functions (a frame that
cannot be captured whole is left to Python).
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.flags import CompilerFlags

from ..core.errors import InvalidIR
from .frame import FrameInput
from .ir import Specialization
from .rebuild import Writer, recipes_of

KEPT_FLAGS = 0x4 | 0x8  # CO_VARARGS, CO_VARKEYWORDS
OPTIMIZED = 0x1 | 0x2  # CO_OPTIMIZED, CO_NEWLOCALS: locals in fast slots


def assemble(specialization: Specialization, compiled: Callable[..., Any] | None, frame: FrameInput) -> CodeType:
    """The code that replaces ``frame.code``. ``compiled(*inputs)`` gives a tuple or list with one value per graph output.

    ``compiled`` is None for a graph without operations, which needs no call. Raises ``InvalidIR`` for a recipe that names an output
    the graph does not have.
    """
    return _Assembler(specialization, compiled, frame).code()


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

    def code(self) -> CodeType:
        writer, specialization = self.writer, self.specialization
        inputs = specialization.graph.inputs if self.compiled else ()
        writer.plan(inputs, recipes_of(specialization))
        if self.compiled is not None:
            writer.call(self.compiled, [lambda s=s: writer.load(s) for s in inputs])
            writer.outputs(len(specialization.graph.outputs))
        writer.change(specialization.shared, specialization.effects, [specialization.result])
        writer.build(specialization.result)
        writer.emit("RETURN_VALUE")
        return self._code()

    def _code(self) -> CodeType:
        original, line = self.frame.code, self.writer.line
        prologue = [Instr("COPY_FREE_VARS", len(original.co_freevars), lineno=line)] if original.co_freevars else []
        new = Bytecode([*prologue, Instr("RESUME", 0, lineno=line), *self.writer.body, *self._room()])
        new.name, new.qualname, new.filename, new.first_lineno = original.co_name, original.co_qualname, original.co_filename, line
        new.argcount, new.posonlyargcount, new.kwonlyargcount = original.co_argcount, original.co_posonlyargcount, original.co_kwonlyargcount
        flags = original.co_flags & KEPT_FLAGS
        count = original.co_argcount + original.co_kwonlyargcount + bool(flags & 0x4) + bool(flags & 0x8)
        new.argnames = list(original.co_varnames[:count])
        new.freevars = list(original.co_freevars)
        new.flags = CompilerFlags(OPTIMIZED | flags)
        code = new.to_code()
        if code.co_freevars != original.co_freevars or code.co_varnames[:count] != original.co_varnames[:count]:
            raise InvalidIR(f"replacement code of {original.co_qualname} has another layout", why="frames are filled by position")
        return code

    def _room(self) -> list[Instr]:
        """Never executed: a local for each cell of the original. The hook copies arguments and cells into a frame of ours by position,
        and does not look whether that has as many slots."""
        line = self.writer.line
        stores = [Instr("STORE_FAST", f"{self.writer.prefix}room{n}", lineno=line) for n in range(len(self.frame.code.co_cellvars))]
        return [Instr("LOAD_CONST", None, lineno=line), *(i for s in stores for i in (Instr("COPY", 1, lineno=line), s)), Instr("RETURN_VALUE", lineno=line)]
