"""Points in the middle of a frame: which there are, what is bound there and lies on the stack, and which come next.

In: a code object and an instruction of it. Out: ``Point``s, and what of the frame's state is still needed at one.
Always holds: a point is counted without EXTENDED_ARG, so that it is the same in code that was assembled again; what is not sure to be dead is
live; the value stack is CPython's, slot for slot, with its NULLs, known without running anything.
Where PyTorch does this: ``torch/_dynamo/bytecode_analysis.py`` and ``resume_execution.py``. The code that goes on at a point is ``resume.py``'s.
"""

from __future__ import annotations

import dis
import functools
import sys
from dataclasses import dataclass
from types import CodeType

from .code import CodeInfo, Inst, read_code

OPTIMIZED = 0x1
GENERATORS = 0x20 | 0x80 | 0x100 | 0x200
BEFORE_CALL = ("KW_NAMES", "PRECALL")  # these and the CALL that follows are one instruction: the names of keywords are nowhere in the frame
METHOD_LOADS = ("LOAD_METHOD", "LOAD_ATTR", "LOAD_SUPER_ATTR")
READS = ("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")
CELL_READS = ("LOAD_DEREF", "DELETE_DEREF")
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS")
JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
LOOKS_AT_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "inspect"})
# what may do tensor work: without any of these, the rest of a frame is not worth a graph
WORK = ("BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE", "COMPARE_OP", "CALL", "CALL_FUNCTION_EX", "UNARY_NEGATIVE", "UNARY_INVERT")
PYTHON_311 = sys.version_info < (3, 12)


@dataclass(frozen=True)
class Point:
    """Where a frame is, before instruction number ``at`` (EXTENDED_ARG is not counted): which ``locals`` are bound and travel, and which slots
    of the value stack are NULL. The state at a point is a list: the locals, then the stack without its NULLs."""

    at: int
    locals: tuple[str, ...]
    nulls: tuple[bool, ...]

    def slots(self) -> tuple[str, ...]:
        """Names for the values of the stack, which no identifier can be."""
        return tuple(f".stack{n}" for n, null in enumerate(self.nulls) if not null)


def resumable(code: CodeType) -> bool:
    """Can a frame of ``code`` be left and gone on with elsewhere?"""
    if code.co_flags & GENERATORS or not code.co_flags & OPTIMIZED or code.co_varnames[:1] == (".0",):
        return False
    names = [i.name for i in read_code(code).instructions]
    body = names.index("RESUME") if "RESUME" in names else 0
    looks_for_self = "__class__" in code.co_freevars and "super" in code.co_names
    return "MAKE_CELL" not in names[body:] and not (PYTHON_311 and looks_for_self and code.co_varnames[:1] and code.co_varnames[0] in code.co_cellvars)


@functools.lru_cache(maxsize=256)
def live(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each instruction of ``read_code(code)``, the locals that it or a later one may read, exception handlers included."""
    always = frozenset(code.co_varnames if LOOKS_AT_LOCALS & set(code.co_names) else ())
    if "super" in code.co_names and "__class__" in code.co_freevars:
        always |= {*code.co_varnames[:1]}
    return _read_later(code, READS, "STORE_FAST", always)


@functools.lru_cache(maxsize=256)
def live_cells(code: CodeType) -> tuple[frozenset[str], ...]:
    """The same for cells, as far as the frame itself reads them."""
    return _read_later(code, CELL_READS, "STORE_DEREF", frozenset())


@functools.lru_cache(maxsize=256)
def unbound_later(code: CodeType) -> frozenset[str]:
    """The frame's own cells that it may read after they were deleted, by itself or by a function in it."""
    instructions = read_code(code).instructions
    within = frozenset[str]().union(*(_deleted(c) for c in code.co_consts if isinstance(c, CodeType)))
    read = {i.value for i in instructions if i.name in CELL_READS}
    own = {i.value for n, i in enumerate(instructions) if i.name == "DELETE_DEREF" and i.value in live_cells(code)[n + 1]}
    return frozenset(code.co_cellvars) & (own | (within & read))


def _deleted(code: CodeType) -> frozenset[str]:
    own = frozenset(i.value for i in read_code(code).instructions if i.name == "DELETE_DEREF")
    return own.union(*(_deleted(c) for c in code.co_consts if isinstance(c, CodeType)))


def _read_later(code: CodeType, reads: tuple[str, ...], store: str, always: frozenset[str]) -> tuple[frozenset[str], ...]:
    info = read_code(code)
    found = [always] * len(info.instructions)
    follows = [successors(info, n) for n in range(len(info.instructions))]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(found))):
            inst = info.instructions[n]
            after = frozenset[str]().union(*(found[s] for s in follows[n]))
            now = always | (after | {inst.value} if inst.name in reads else after - {inst.value} if inst.name == store else after)
            if now != found[n]:
                found[n], changed = now, True
    return tuple(found)


def successors(info: CodeInfo, at: int) -> list[int]:
    """The instructions that can come after ``at``, its exception handler among them."""
    inst, handler = info.instructions[at], info.handler(at)
    after = [] if inst.name in (*ENDS, *JUMPS) else [at + 1]
    return after + ([inst.target] if inst.target >= 0 else []) + ([handler.target] if handler else [])


def ordinal(info: CodeInfo, at: int) -> int:
    """The number of instruction ``at`` when EXTENDED_ARG is not counted: the same in code that was assembled again."""
    return sum(i.name != "EXTENDED_ARG" for i in info.instructions[:at])


def index(info: CodeInfo, number: int) -> int:
    """The instruction with this number; the reverse of ``ordinal``."""
    counted = [n for n, i in enumerate(info.instructions) if i.name != "EXTENDED_ARG"]
    return counted[number]


def before_call(info: CodeInfo, at: int) -> int:
    """How many instructions before ``at`` belong to it."""
    back = 0
    while info.instructions[at].name in ("CALL", *BEFORE_CALL) and info.instructions[at - back - 1].name in (*BEFORE_CALL, "EXTENDED_ARG"):
        back += 1
    return back


def work_follows(code: CodeType, at: int) -> bool:
    """May tensor work come after instruction ``at``?"""
    info, seen = read_code(code), set[int]()
    at += next(n for n, i in enumerate(info.instructions[at:]) if i.name not in (*BEFORE_CALL, "EXTENDED_ARG"))
    todo = successors(info, at)
    while todo:
        if (n := todo.pop()) not in seen:
            seen.add(n)
            if info.instructions[n].name in WORK:
                return True
            todo += successors(info, n)
    return False


def protected(code: CodeType, point: Point) -> bool:
    """Would an exception at ``point`` be seen by a handler of the frame?"""
    info = read_code(code)
    return info.handler(index(info, point.at)) is not None


def ends_of(info: CodeInfo, at: int) -> list[tuple[int, bool]]:
    """(instruction that comes next, whether by a jump) for each way that instruction ``at`` can end but by an exception."""
    inst = info.instructions[at]
    if inst.name in ENDS:
        return []
    ends = [] if inst.name in JUMPS else [(at + 1, False)]
    if inst.target >= 0:
        skipped = inst.name == "FOR_ITER" and info.instructions[inst.target].name == "END_FOR"
        ends.append((inst.target + skipped, True))
    return ends


def point_after(code: CodeType, point: Point, inst: Inst, where: int, taken: bool) -> Point:
    """The point that ``inst`` leads to from ``point``."""
    bound = set(point.locals)
    nulls = _nulls(point.nulls, inst, taken)
    if inst.name == "LOAD_FAST_AND_CLEAR":
        nulls = (*point.nulls, inst.value not in bound)
    if inst.name == "STORE_FAST" and not point.nulls[-1]:
        bound.add(inst.value)
    elif inst.name in ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
        bound.discard(inst.value)
    info = read_code(code)
    names = tuple(n for n in code.co_varnames if n in bound and n in live(code)[where])
    return Point(ordinal(info, where), names, nulls)


def _nulls(nulls: tuple[bool, ...], inst: Inst, taken: bool) -> tuple[bool, ...]:
    """Which slots are NULL after ``inst``: only calls take NULLs, only loads for a call put them there."""
    if inst.name == "SWAP":
        swapped = list(nulls)
        swapped[-1], swapped[-inst.arg] = swapped[-inst.arg], swapped[-1]
        return tuple(swapped)
    if inst.name == "COPY":
        return (*nulls, nulls[-inst.arg])
    depth = len(nulls) + dis.stack_effect(dis.opmap[inst.name], inst.arg if dis.opmap[inst.name] >= dis.HAVE_ARGUMENT else None, jump=taken)
    if inst.name == "CALL":
        depth = len(nulls) - inst.arg - 1  # 3.11 counts some of it at PRECALL
    elif inst.name == "FOR_ITER" and taken:
        depth = len(nulls) - 1
    taken_off = {"CALL": inst.arg + 2, "CALL_FUNCTION_EX": 3 + (inst.arg & 1)}.get(inst.name, 0)
    kept = nulls[: len(nulls) - taken_off][:depth]
    added = [False] * (depth - len(kept))
    if inst.name == "PUSH_NULL":
        added = [True]
    elif inst.name == "LOAD_GLOBAL" and inst.arg & 1:
        added = [True, False]
    elif _loads_method(inst.name, inst.arg):
        below = len(nulls) - (3 if inst.name == "LOAD_SUPER_ATTR" else 1)
        kept, added = nulls[:below], [True, False]
    return (*kept, *added)


def _loads_method(name: str, arg: int) -> bool:
    return name == "LOAD_METHOD" or (not PYTHON_311 and name in METHOD_LOADS and bool(arg & 1))
