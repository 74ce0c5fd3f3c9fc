"""Instructions that decide where a frame goes next: jumps, loops, calls, ``with`` and exceptions; the other half of the opcode table.

In and out: as in ``opcodes.py``, whose table these rows complete. Always holds: only a constant decides a jump; a call is a value's.
PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py``. Left out: throwing into generators, exception groups.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

from .opcodes_match import OPCODES, Exit, row
from .values.base import NONE, NULL, Constant, Raised, Slot
from .values.builtins import classes_of
from .values.classes import ClassValue
from .values.containers import DictValue, pairs_of
from .values.exceptions import Traceback, made, raise_from
from .values.functions import CellValue, FunctionValue, GeneratorRun
from .values.iterators import IteratorValue, iter_value, step
from .values.operators import identical

if TYPE_CHECKING:
    from .code import Inst
    from .interpreter import Frame
    from .tracer import Tracer


# jumps and loops


@row("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(f: Frame, t: Tracer, i: Inst) -> None:
    f.jump(i)


@row("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def jump_if_true(f: Frame, t: Tracer, i: Inst) -> None:
    if f.pop().truth(t):
        f.jump(i)


@row("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def jump_if_false(f: Frame, t: Tracer, i: Inst) -> None:
    if not f.pop().truth(t):
        f.jump(i)


@row("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def jump_if_none(f: Frame, t: Tracer, i: Inst) -> None:
    if identical(t, f.pop(), NONE):
        f.jump(i)


@row("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def jump_if_not_none(f: Frame, t: Tracer, i: Inst) -> None:
    if not identical(t, f.pop(), NONE):
        f.jump(i)


@row("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(f: Frame, t: Tracer, i: Inst) -> None:
    if f.stack[-1].truth(t) == (i.name == "JUMP_IF_TRUE_OR_POP"):
        f.jump(i)
    else:
        f.pop()


@row("GET_ITER")
def get_iter(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(iter_value(t, [f.pop()], {}))


@row("FOR_ITER")
def for_iter(f: Frame, t: Tracer, i: Inst) -> None:
    iterator = f.stack[-1]
    found = step(t, iterator)
    if found is not None:
        f.push(found)
        return
    f.pop()
    f.jump(i)
    f.pc += f.info.instructions[f.pc].name == "END_FOR"  # 3.12: its pops are done here


@row("GET_YIELD_FROM_ITER")
def get_yield_from_iter(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(iter_value(t, [f.pop()], {}))


@row("SEND")
def send(f: Frame, t: Tracer, i: Inst) -> None:
    value, receiver = f.pop(), f.stack[-1]
    if not isinstance(receiver, IteratorValue):
        raise t.refuse("generator", f"yield from {receiver.describe()}")
    run = receiver.run
    try:
        f.push(run.send(value) if isinstance(run, GeneratorRun) else next(run))
        return
    except StopIteration:
        result = run.result if isinstance(run, GeneratorRun) else NONE
    if sys.version_info < (3, 12):
        f.pop()
    f.push(result)
    f.jump(i)


@row("END_SEND")
def end_send(f: Frame, t: Tracer, i: Inst) -> None:
    del f.stack[-2]


# calls


@row("KW_NAMES")
def kw_names(f: Frame, t: Tracer, i: Inst) -> None:
    f.keywords = f.code.co_consts[i.arg]


@row("CALL")
def call(f: Frame, t: Tracer, i: Inst) -> None:
    names, f.keywords = f.keywords, ()
    below, function, *args = f.take(i.arg + 2)
    if below is not NULL:
        function, args = below, [function, *args]
    count = len(args) - len(names)
    f.push(function.call(t, args[:count], dict(zip(names, args[count:], strict=False))))


@row("CALL_FUNCTION_EX")
def call_function_ex(f: Frame, t: Tracer, i: Inst) -> None:
    kwargs = {t.constant(k): v for k, v in pairs_of(t, f.pop())} if i.arg & 1 else {}
    given = f.pop()
    _, function = f.take(2)
    if given.lacks("__iter__"):
        name = ".".join(str(t.constant(function.get(t, part))) for part in ("__module__", "__qualname__"))
        raise Raised(t.exception(TypeError, f"{name}() argument after * must be an iterable, not {given.python_type().__name__}"))
    args = list(given.iterate(t))
    f.push(function.call(t, args, kwargs))


@row("MAKE_FUNCTION")
def make_function(f: Frame, t: Tracer, i: Inst) -> None:
    code = t.constant(f.pop())
    assert isinstance(code, types.CodeType)
    cells = [v.cell for v in f.pop().iterate(t) if isinstance(v, CellValue)] if i.arg & 8 else []
    notes = list(f.pop().iterate(t)) if i.arg & 4 else []
    kwdefaults: dict[str, Slot] = {t.constant(k): v for k, v in pairs_of(t, f.pop())} if i.arg & 2 else {}
    defaults: list[Slot] = list(f.pop().iterate(t)) if i.arg & 1 else []
    made = FunctionValue(code, f.scope, code.co_name, defaults, kwdefaults, cells)
    if notes:
        made.annotations = DictValue({t.constant(k): (k, v) for k, v in zip(notes[::2], notes[1::2], strict=True)})
    f.push(made)


# with statements and exceptions


@row("BEFORE_WITH")
def before_with(f: Frame, t: Tracer, i: Inst) -> None:
    manager = f.pop()
    if not hasattr(manager, "cls"):
        raise t.refuse("context-manager", manager.describe())
    f.push(manager.get(t, "__exit__"))
    f.push(manager.get(t, "__enter__").call(t, [], {}))


@row("WITH_EXCEPT_START")
def with_except_start(f: Frame, t: Tracer, i: Inst) -> None:
    error = f.stack[-1]
    f.push(f.stack[-4].call(t, [t.wrap(error.python_type(), None), error, Traceback()], {}))


@row("LOAD_ASSERTION_ERROR")
def load_assertion_error(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(ClassValue(AssertionError))


@row("RAISE_VARARGS")
def raise_varargs(f: Frame, t: Tracer, i: Inst) -> None:
    parts = f.take(i.arg)
    if not parts and not t.exceptions:
        raise Raised(t.exception(RuntimeError, "No active exception to reraise"))
    error = made(t, parts[0] if parts else t.exceptions[-1])
    if len(parts) == 2:
        raise_from(t, error, parts[1])
    t.last = (t.stack(), f.instruction())
    raised = Raised(error)
    raised.settled = not parts
    raise raised


@row("PUSH_EXC_INFO")
def push_exc_info(f: Frame, t: Tracer, i: Inst) -> None:
    error = f.pop()
    t.exceptions.append(error)
    f.push(NONE)
    f.push(error)


@row("POP_EXCEPT")
def pop_except(f: Frame, t: Tracer, i: Inst) -> None:
    f.pop()
    t.exceptions.pop()


@row("CHECK_EXC_MATCH")
def check_exc_match(f: Frame, t: Tracer, i: Inst) -> None:
    kinds = classes_of(t, f.pop())
    f.push(Constant(issubclass(f.stack[-1].python_type(), kinds)))


@row("RERAISE")
def reraise(f: Frame, t: Tracer, i: Inst) -> None:
    raised = Raised(f.pop())
    raised.settled = True
    raise raised


@row("CLEANUP_THROW")
def cleanup_throw(f: Frame, t: Tracer, i: Inst) -> None:
    raise t.refuse("generator", "an exception thrown into a generator")


__all__ = ["OPCODES", "Exit"]
