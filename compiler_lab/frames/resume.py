"""Code for the middle of a frame: a function that goes on at an instruction, and one that runs that instruction alone.

In: a code object and a ``Point`` in it, the state that a frame has just before an instruction. Out: code objects that hold no object of ours.
``resumed`` takes the state as arguments and has the rest of the body: capture reads it, and Python can run it. ``step`` takes the state as a
list, which it empties, runs the instruction as the original would, and gives ``Next`` with the state after it.
Always holds: the whole body is kept as it is, with its exception table and its stack depths; a ``with`` block's bound ``__exit__`` travels on
the value stack; cells become free variables of the new code, so that they stay the same cells; an exception goes to the handler that the
original has for the instruction, and from there on Python runs the rest; only live locals travel.
Where PyTorch does this: ``torch/_dynamo/resume_execution.py``. Left out: generators, class bodies, code whose cells are made anew inside
a comprehension.
"""

from __future__ import annotations

import dis
import functools
import sys
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
from bytecode.flags import CompilerFlags
from bytecode.instr import CellVar, FreeVar, InstrLocation, TryBegin, TryEnd

from .code import CodeInfo, Inst, read_code

OPTIMIZED, NEWLOCALS, GENERATORS = 0x1, 0x2, 0x20 | 0x80 | 0x100 | 0x200
PROLOGUE = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR")
BEFORE_CALL = ("KW_NAMES", "PRECALL")  # these and the CALL that follows are one instruction: the names of keywords are nowhere in the frame
METHOD_LOADS = ("LOAD_METHOD", "LOAD_ATTR", "LOAD_SUPER_ATTR")
READS = ("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")
MOVES = ("STORE_FAST", "POP_TOP", "NOP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "FOR_ITER")
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS")
JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
LOOKS_AT_LOCALS = frozenset({"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "inspect"})
# what may do tensor work: without any of these, the rest of a frame is not worth a graph
WORK = ("BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE", "COMPARE_OP", "CALL", "CALL_FUNCTION_EX", "UNARY_NEGATIVE", "UNARY_INVERT")
ERROR = ".error"
PYTHON_311 = sys.version_info < (3, 12)


class Next(tuple[Any, Any]):
    """What a piece of a frame returns instead of the frame's result: (where to go on, the state there)."""

    __slots__ = ()


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
    info = read_code(code)
    always = frozenset(code.co_varnames if LOOKS_AT_LOCALS & set(code.co_names) else ())
    if "super" in code.co_names and "__class__" in code.co_freevars:
        always |= {*code.co_varnames[:1]}
    found = [always] * len(info.instructions)
    follows = [successors(info, n) for n in range(len(info.instructions))]
    changed = True
    while changed:
        changed = False
        for n in reversed(range(len(found))):
            inst = info.instructions[n]
            after = frozenset[str]().union(*(found[s] for s in follows[n]))
            now = always | (after | {inst.value} if inst.name in READS else after - {inst.value} if inst.name == "STORE_FAST" else after)
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


@dataclass(frozen=True)
class Resumed:
    """A function that goes on at ``point``: ``code`` takes the locals and then the stack; instruction n of the original is its n + ``shift``."""

    point: Point
    code: CodeType
    shift: int

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.point.locals, *self.point.slots())


def resumed(code: CodeType, point: Point) -> Resumed:
    """The rest of ``code`` from ``point`` on, as a function of its state."""
    names = (*point.locals, *point.slots())
    writer = _Writer(code, point)
    writer.push_stack()
    start = Label()
    writer.emit("JUMP_FORWARD", start)
    shift = sum(isinstance(i, Instr) for i in writer.out)
    writer.body({point.at: start})
    line = read_code(code).locations[index(read_code(code), point.at)].line
    return Resumed(point, writer.assemble(list(names), f"{code.co_qualname} (resumed at line {line})"), shift)


def rest(code: CodeType, point: Point) -> CodeType:
    """The same for Python to run: the state comes in a list, which is emptied, so that nothing is kept longer than the frame itself keeps it."""
    writer = _Writer(code, point)
    argument = writer.take_state()
    writer.push_stack()
    start = Label()
    writer.emit("JUMP_FORWARD", start)
    writer.body({point.at: start})
    return writer.assemble([argument], code.co_qualname)


def protected(code: CodeType, point: Point) -> bool:
    """Would an exception at ``point`` be seen by a handler of the frame?"""
    info = read_code(code)
    return info.handler(index(info, point.at)) is not None


def failing(code: CodeType, point: Point) -> CodeType:
    """What the frame does when an exception is raised at ``point``, for Python to run; the exception is the last item of the state."""
    info = read_code(code)
    handler = info.handler(index(info, point.at))
    assert handler is not None
    writer = _Writer(code, point)
    argument = writer.take_state(ERROR)
    writer.push_stack()
    begin = TryBegin(Label(), handler.lasti, handler.depth)
    writer.emit("LOAD_FAST", ERROR)
    writer.emit("DELETE_FAST", ERROR)
    writer.out.append(begin)
    writer.emit("RAISE_VARARGS", 1)
    writer.out.append(TryEnd(begin))
    writer.body({ordinal(info, handler.target): begin.target})  # type: ignore[dict-item]
    return writer.assemble([argument], code.co_qualname)


def step(code: CodeType, point: Point) -> tuple[CodeType, tuple[Point, ...]]:
    """The instruction at ``point`` for Python to run, with the moves that follow it, and the points where that can end; the code gives
    ``Next((number of the point, state))``."""
    writer = _Writer(code, point)
    argument = writer.take_state()
    writer.push_stack()
    info = read_code(code)
    writer.run(index(info, point.at), point, set())
    if writer.handlers:
        writer.body(writer.handlers)
    return writer.assemble([argument], code.co_qualname), tuple(writer.ends)


def _ends(info: CodeInfo, at: int) -> list[tuple[int, bool]]:
    """(instruction that comes next, whether by a jump) for each way that instruction ``at`` can end but by an exception."""
    inst = info.instructions[at]
    if inst.name in ENDS:
        return []
    ends = [] if inst.name in JUMPS else [(at + 1, False)]
    if inst.target >= 0:
        skipped = inst.name == "FOR_ITER" and info.instructions[inst.target].name == "END_FOR"
        ends.append((inst.target + skipped, True))
    return ends


def _after(code: CodeType, point: Point, inst: Inst, where: int, taken: bool) -> Point:
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


def _bound(original: Instr) -> list[Instr]:
    """The instruction, with a method loaded bound, above a NULL: whether a slot is NULL is then known without running it."""
    where, arg = original.location, original.arg
    if original.name == "LOAD_METHOD":
        loaded = Instr("LOAD_ATTR", arg, location=where)
    elif original.name in METHOD_LOADS and isinstance(arg, tuple) and arg[0] is True and not PYTHON_311:
        loaded = Instr(original.name, (False, *arg[1:]), location=where)  # type: ignore[arg-type]
    else:
        return [original]
    return [loaded, Instr("PUSH_NULL", location=where), Instr("SWAP", 2, location=where)]


def _jump(original: Instr, target: Label) -> Instr:
    """The jump, forward to ``target``: the code after the instruction is laid out anew."""
    name = original.name.replace("_BACKWARD_IF_", "_FORWARD_IF_")
    return Instr("JUMP_FORWARD" if name in JUMPS else name, target, location=original.location)


class _Writer:
    """Assembles new code from the instructions of ``code``."""

    def __init__(self, code: CodeType, point: Point) -> None:
        self.code, self.point = code, point
        source = Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
        self.items: list[Any] = [self._moved(i) for i in source]
        self.originals = [i for i in self.items if isinstance(i, Instr)]
        self.where = self.originals[point.at].location
        self.line = InstrLocation(self.where.lineno if self.where and self.where.lineno else code.co_firstlineno, None, None, None)
        self.free = (*code.co_cellvars, *code.co_freevars)
        self.out: list[Any] = []
        self.ends: list[Point] = []
        self.handlers: dict[int, Label] = {}  # by number of their first instruction
        if self.free:
            self.emit("COPY_FREE_VARS", len(self.free))
        self.emit("RESUME", 0)

    def _moved(self, item: Any) -> Any:
        """Cells are free variables now, and the prologue has been run."""
        if not isinstance(item, Instr):
            return item
        if item.name in PROLOGUE:
            return Instr("NOP", location=item.location)
        if isinstance(item.arg, CellVar):
            return Instr(item.name, FreeVar(item.arg.name), location=item.location)
        return item

    def emit(self, name: str, *arg: Any) -> None:
        self.out.append(Instr(name, *arg, location=self.line))

    def call(self, count: int) -> None:
        if PYTHON_311:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def take_state(self, *more: str) -> str:
        """From the list that is the only argument to locals; gives the argument's name, the first local's, for ``super()`` looks at that slot."""
        names = (*self.point.locals, *self.point.slots(), *more)
        argument = self.code.co_varnames[0] if self.code.co_argcount and self.code.co_varnames[0] not in self.free else ".state"
        self.emit("LOAD_FAST", argument)
        self.emit("UNPACK_SEQUENCE", len(names))
        self.emit("PUSH_NULL")
        self.emit("LOAD_FAST", argument)
        self.emit("LOAD_ATTR", "clear" if PYTHON_311 else (False, "clear"))
        self.call(0)
        self.emit("POP_TOP")
        self.emit("DELETE_FAST", argument)
        for name in names:
            self.emit("STORE_FAST", name)
        return argument

    def push_stack(self) -> None:
        for n, null in enumerate(self.point.nulls):
            if null:
                self.emit("PUSH_NULL")
            else:
                self.emit("LOAD_FAST", f".stack{n}")
                self.emit("DELETE_FAST", f".stack{n}")

    def run(self, at: int, point: Point, seen: set[int]) -> None:
        """The instruction ``at``, whatever it is; then what only moves values, or ends a loop's round; then return the state."""
        info = read_code(self.code)
        seen.add(at)
        first = ordinal(info, at)
        while info.instructions[at].name in (*BEFORE_CALL, "EXTENDED_ARG"):
            at += 1
        inst, handler, jumped = info.instructions[at], info.handler(at), Label()
        begin = None
        if handler:
            label = self.handlers.setdefault(ordinal(info, handler.target), Label())
            begin = TryBegin(label, handler.lasti, handler.depth)
            self.out.append(begin)
        for original in self.originals[first : ordinal(info, at) + 1]:
            self.out += _bound(original.copy()) if inst.target < 0 else [_jump(original, jumped)]
        if begin:
            self.out.append(TryEnd(begin))
        for where, taken in _ends(info, at):
            if taken:
                self.out.append(jumped)
                if inst.name == "FOR_ITER" and not PYTHON_311:
                    self.emit("END_FOR")  # jumped over by the interpreter itself
            after = _after(self.code, point, inst, where, taken)
            if info.instructions[where].name in MOVES and where not in seen:
                self.run(where, after, {*seen})
            else:
                self.leave(after)

    def leave(self, end: Point) -> None:
        """Pack the state and return it."""
        number = len(self.ends)
        self.ends.append(end)
        for n in reversed(range(len(end.nulls))):
            self.emit("STORE_FAST", f".stack{n}")
        self.emit("PUSH_NULL")
        self.emit("LOAD_CONST", Next)
        self.emit("LOAD_CONST", number)
        for name in (*end.locals, *end.slots()):
            self.emit("LOAD_FAST", name)
        self.emit("BUILD_LIST", len(end.locals) + len(end.slots()))
        self.emit("BUILD_TUPLE", 2)
        self.call(1)
        self.emit("RETURN_VALUE")

    def body(self, targets: dict[int, Label]) -> None:
        """The whole original body, with labels before the instructions that have these numbers."""
        number = 0
        for item in self.items:
            if isinstance(item, Instr):
                if number in targets:
                    self.out.append(targets[number])
                number += 1
            self.out.append(item)

    def assemble(self, arguments: list[str], qualname: str) -> CodeType:
        code = self.code
        new = Bytecode(self.out)
        new.name, new.qualname, new.filename, new.first_lineno = code.co_name, qualname, code.co_filename, code.co_firstlineno
        new.argcount, new.argnames, new.freevars = len(arguments), arguments, list(self.free)
        new.flags = CompilerFlags(OPTIMIZED | NEWLOCALS)
        size = max(code.co_stacksize, len(self.point.nulls)) + len(self.point.locals) + len(self.point.nulls) + 8
        return new.to_code(stacksize=size, compute_exception_stack_depths=False)
