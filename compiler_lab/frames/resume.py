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

from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
from bytecode.flags import CompilerFlags
from bytecode.instr import CellVar, FreeVar, InstrLocation, TryBegin, TryEnd

from .code import body_of, read_code
from .points import BEFORE_CALL, JUMPS, METHOD_LOADS, OPTIMIZED, PYTHON_311, Point, ends_of, index, ordinal, point_after

NEWLOCALS = 0x2
PROLOGUE = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR")
MOVES = ("STORE_FAST", "POP_TOP", "NOP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "FOR_ITER")
ERROR = ".error"


class Next(tuple[Any, Any]):
    """What a piece of a frame returns instead of the frame's result: (where to go on, the state there)."""

    __slots__ = ()


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
        self.items: list[Any] = [self._moved(i) for i in body_of(code)]
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
        for where, taken in ends_of(info, at):
            if taken:
                self.out.append(jumped)
                if inst.name == "FOR_ITER" and not PYTHON_311:
                    self.emit("END_FOR")  # jumped over by the interpreter itself
            after = point_after(self.code, point, inst, where, taken)
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
