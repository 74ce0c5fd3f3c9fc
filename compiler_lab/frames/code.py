"""Code objects, read once: instructions with their handlers, jump targets, exception table and source positions.

In: a code object. Out: ``CodeInfo``. Always holds: nothing here keeps a frame or a function alive.
PyTorch's counterpart: ``torch/_dynamo/bytecode_transformation.py`` (``cleaned_instructions``).
"""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.instr import InstrLocation

from ..core.provenance import Location


@dataclass(frozen=True)
class Inst:
    """One instruction. ``target`` is the index of the instruction a jump goes to, or -1."""

    name: str
    arg: int
    value: Any
    text: str
    target: int


@dataclass(frozen=True)
class Handler:
    """One row of the exception table: instructions [start, end) unwind to ``target`` with ``depth`` stack entries."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool
    kind: str  # "code" of the program's (except, finally), "with" leaves it to a manager, "cleanup" lets the exception go on


class CodeInfo:
    """``instructions``, ``handlers`` and ``locations`` (one per instruction) of ``code``."""

    def __init__(self, code: CodeType, file: str) -> None:
        raw = list(dis.get_instructions(code))
        index = {i.offset: n for n, i in enumerate(raw)}
        jumps = {*dis.hasjrel, *dis.hasjabs}
        self.instructions = tuple(Inst(i.opname, i.arg or 0, i.argval, _text(i), index[i.argval] if i.opcode in jumps else -1) for i in raw)
        self.handlers = tuple(
            Handler(index[e.start], index.get(e.end, len(raw)), index[e.target], e.depth, e.lasti, _kind(raw[index[e.target] :]))
            for e in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        )
        self.locations = tuple(_location(i.positions, code, file) for i in raw)
        self.locals = (*code.co_varnames, *(c for c in code.co_cellvars if c not in code.co_varnames), *code.co_freevars)

    def handler(self, at: int) -> Handler | None:
        return next((h for h in self.handlers if h.start <= at < h.end), None)


def _kind(rest: list[dis.Instruction]) -> str:
    """What a handler is, by its first instructions: a clause of the program's begins with PUSH_EXC_INFO; the others only raise again."""
    names = [inst.opname for inst in rest[:2]]
    return "with" if names == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"] else "code" if names[0] == "PUSH_EXC_INFO" else "cleanup"


def _text(inst: dis.Instruction) -> str:
    """As dis names it, without addresses."""
    return inst.opname if "0x" in inst.argrepr else f"{inst.opname} {inst.argrepr}".rstrip()


def _location(positions: dis.Positions | None, code: CodeType, file: str) -> Location:
    line, end_line, column, end_column = positions if positions is not None else (None, None, None, None)
    return Location(file, line or code.co_firstlineno, code.co_name, column or 0, end_line or 0, end_column or 0)


WIDE = 128  # columns from here on: bytecode 0.19 writes them into one byte, which CPython takes for the start of another entry


def body_of(code: CodeType) -> list[Any]:
    """``code`` as instructions to be assembled again, with its exception table and stack depths.

    Where a line is very wide the columns are left out: the table of lines would come out longer than the code, and who traces would write
    past the end of an array."""
    items: list[Any] = list(Bytecode.from_code(code, conserve_exception_block_stackdepth=True))
    for item in items:
        if isinstance(item, Instr) and (where := item.location) is not None and max(where.col_offset or 0, where.end_col_offset or 0) >= WIDE:
            item.location = InstrLocation(where.lineno, None, None, None)
    return items


@functools.lru_cache(maxsize=4096)
def _read(code: CodeType, file: str) -> CodeInfo:
    return CodeInfo(code, file)


def read_code(code: CodeType) -> CodeInfo:
    """The CodeInfo of ``code``; equal code of another file is another one."""
    return _read(code, code.co_filename)
