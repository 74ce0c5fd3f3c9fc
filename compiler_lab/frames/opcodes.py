"""What each bytecode instruction does to a symbolic frame: one row each, for CPython 3.11 and 3.12.

In: a frame, the tracer and the instruction. Out: the changed stack; an ``Exit`` when the frame returns or yields.
Always holds: the stack layout is CPython's, except that a method is pushed bound, above a NULL. An instruction without a row is refused.
PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py`` (the methods named like instructions).
The rows that jump, call and unwind are in ``opcodes_control.py``. Left out: class bodies, coroutines, writing globals.
"""

from __future__ import annotations

import enum
import importlib
import opcode
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .values.base import NONE, NULL, Constant, Raised, Slot, Value
from .values.classes import ClassValue
from .values.containers import DictValue, SequenceValue, SetValue, SliceValue, key_of, pairs_of
from .values.functions import Cell, CellValue
from .values.objects import SuperValue
from .values.operators import binary, compare, identical, unary
from .values.strings import format_value

if TYPE_CHECKING:
    from .code import Inst
    from .interpreter import Frame
    from .tracer import Tracer


class Exit(enum.Enum):
    RETURN = 1
    YIELD = 2


Row = Callable[["Frame", "Tracer", "Inst"], "Exit | None"]
OPCODES: dict[str, Row] = {}
SYMBOLS: tuple[str, ...] = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]
CONVERSIONS: tuple[Callable[[Any], Any] | None, ...] = (None, str, repr, ascii)


def row(*names: str) -> Callable[[Row], Row]:
    """Enter a function in the table under the names of its instructions."""

    def enter(function: Row) -> Row:
        OPCODES.update(dict.fromkeys(names, function))
        return function

    return enter


# the stack


@row("NOP", "RESUME", "PRECALL", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "ASYNC_GEN_WRAP", "SETUP_ANNOTATIONS")
def nothing(f: Frame, t: Tracer, i: Inst) -> None:
    pass


@row("POP_TOP")
def pop_top(f: Frame, t: Tracer, i: Inst) -> None:
    f.pop()


@row("PUSH_NULL")
def push_null(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(NULL)


@row("RETURN_GENERATOR")
def return_generator(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(NONE)  # the POP_TOP that follows takes it


@row("COPY")
def copy(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(f.stack[-i.arg])


@row("SWAP")
def swap(f: Frame, t: Tracer, i: Inst) -> None:
    f.stack[-1], f.stack[-i.arg] = f.stack[-i.arg], f.stack[-1]


@row("LOAD_CONST")
def load_const(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(t.lift(f.code.co_consts[i.arg]))


@row("RETURN_CONST")
def return_const(f: Frame, t: Tracer, i: Inst) -> Exit:
    f.result = t.lift(f.code.co_consts[i.arg])
    return Exit.RETURN


@row("RETURN_VALUE")
def return_value(f: Frame, t: Tracer, i: Inst) -> Exit:
    f.result = f.pop()
    return Exit.RETURN


@row("YIELD_VALUE")
def yield_value(f: Frame, t: Tracer, i: Inst) -> Exit:
    f.result = f.pop()
    return Exit.YIELD


# names


@row("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(f.load(i.value))


@row("STORE_FAST")
def store_fast(f: Frame, t: Tracer, i: Inst) -> None:
    value = f.pop()
    if isinstance(value, CellValue):
        f.cells[i.value] = value.cell
    elif value is NULL:
        f.locals.pop(i.value, None)
        f.cells.pop(i.value, None)
    else:
        f.locals[i.value] = value


@row("DELETE_FAST")
def delete_fast(f: Frame, t: Tracer, i: Inst) -> None:
    if f.locals.get(i.value) is None:
        f.load(i.value)
    del f.locals[i.value]


@row("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(f: Frame, t: Tracer, i: Inst) -> None:
    cell = f.cells.pop(i.value, None)
    slot = f.locals.pop(i.value, None)
    f.push(CellValue(cell) if cell is not None else NULL if slot is None else slot if isinstance(slot, Value) else slot.force())


@row("LOAD_GLOBAL", "LOAD_NAME")
def load_global(f: Frame, t: Tracer, i: Inst) -> None:
    if i.arg & 1 and i.name == "LOAD_GLOBAL":
        f.push(NULL)
    f.push(f.scope.load(i.value))


@row("STORE_GLOBAL")
def store_global(f: Frame, t: Tracer, i: Inst) -> None:
    f.scope.store(i.value, f.pop())


@row("DELETE_GLOBAL")
def delete_global(f: Frame, t: Tracer, i: Inst) -> None:
    f.scope.delete(i.value)


@row("MAKE_CELL")
def make_cell(f: Frame, t: Tracer, i: Inst) -> None:
    f.cells[i.value] = Cell(f.locals.pop(i.value, None))


@row("LOAD_CLOSURE")
def load_closure(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(CellValue(f.cells[i.value]))


@row("LOAD_DEREF")
def load_deref(f: Frame, t: Tracer, i: Inst) -> None:
    slot: Slot | None = f.cells[i.value].slot
    if slot is None and f.cells[i.value].real is not None:
        raise t.refuse("raise", f"the variable {i.value} of an enclosing function has no value")  # no guard could say so
    if slot is None and i.value in f.code.co_cellvars:
        raise f.unbound(i.value)
    if slot is None:
        raise Raised(t.exception(NameError, f"cannot access free variable '{i.value}' where it is not associated with a value in enclosing scope"))
    f.push(slot if isinstance(slot, Value) else slot.force())


@row("STORE_DEREF")
def store_deref(f: Frame, t: Tracer, i: Inst) -> None:
    f.cells[i.value].write(t, f.pop())


@row("DELETE_DEREF")
def delete_deref(f: Frame, t: Tracer, i: Inst) -> None:
    cell = f.cells[i.value]
    if cell.slot is None:
        raise t.refuse("raise", f"the variable {i.value} is deleted, which has no value")
    cell.write(t, None)


@row("IMPORT_NAME")
def import_name(f: Frame, t: Tracer, i: Inst) -> None:
    names, level = t.constant(f.pop()), t.constant(f.pop())
    package = str(f.scope.names.get("__package__") or "")
    base = ".".join(package.split(".")[: len(package.split(".")) - level + 1]) if level else ""
    full = f"{base}.{i.value}".strip(".") if level else i.value
    if f.scope.library and full.partition(".")[0] == "torch":
        importlib.import_module(full)  # torch loads parts of itself on first use; that is not the program's doing
    found = sys.modules.get(full if names or level else full.partition(".")[0])
    if found is None or sys.modules.get(full) is None:
        raise t.refuse("import", full)
    f.push(t.wrap(found, None))


@row("IMPORT_FROM")
def import_from(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(f.stack[-1].get(t, i.value))


# attributes and items


@row("LOAD_ATTR")
def load_attr(f: Frame, t: Tracer, i: Inst) -> None:
    owner = f.pop()
    if sys.version_info >= (3, 12) and i.arg & 1:
        f.push(NULL)
    f.push(owner.get(t, i.value))


@row("LOAD_METHOD")
def load_method(f: Frame, t: Tracer, i: Inst) -> None:
    owner = f.pop()
    f.push(NULL)
    f.push(owner.get(t, i.value))


@row("LOAD_SUPER_ATTR")
def load_super_attr(f: Frame, t: Tracer, i: Inst) -> None:
    function, cls, owner = f.take(3)
    if i.arg & 1:
        f.push(NULL)
    known = isinstance(cls, ClassValue) and isinstance(function, ClassValue) and function.real is super
    made = SuperValue(cls.real, owner) if known and isinstance(cls, ClassValue) else function.call(t, [cls, owner] if i.arg & 2 else [], {})
    f.push(made.get(t, i.value))


@row("STORE_ATTR")
def store_attr(f: Frame, t: Tracer, i: Inst) -> None:
    value, owner = f.take(2)
    owner.set(t, i.value, value)


@row("DELETE_ATTR")
def delete_attr(f: Frame, t: Tracer, i: Inst) -> None:
    f.pop().delete(t, i.value)


@row("BINARY_SUBSCR")
def binary_subscr(f: Frame, t: Tracer, i: Inst) -> None:
    owner, key = f.take(2)
    f.push(owner.item(t, key))


@row("STORE_SUBSCR")
def store_subscr(f: Frame, t: Tracer, i: Inst) -> None:
    value, owner, key = f.take(3)
    owner.set_item(t, key, value)


@row("DELETE_SUBSCR")
def delete_subscr(f: Frame, t: Tracer, i: Inst) -> None:
    owner, key = f.take(2)
    owner.delete_item(t, key)


@row("BINARY_SLICE")
def binary_slice(f: Frame, t: Tracer, i: Inst) -> None:
    owner, start, stop = f.take(3)
    f.push(owner.item(t, SliceValue(start, stop, NONE)))


@row("STORE_SLICE")
def store_slice(f: Frame, t: Tracer, i: Inst) -> None:
    value, owner, start, stop = f.take(4)
    owner.set_item(t, SliceValue(start, stop, NONE), value)


# operators


@row("BINARY_OP")
def binary_op(f: Frame, t: Tracer, i: Inst) -> None:
    a, b = f.take(2)
    f.push(binary(t, SYMBOLS[i.arg], a, b))


@row("COMPARE_OP")
def compare_op(f: Frame, t: Tracer, i: Inst) -> None:
    a, b = f.take(2)
    f.push(compare(t, i.value, a, b))


@row("IS_OP")
def is_op(f: Frame, t: Tracer, i: Inst) -> None:
    a, b = f.take(2)
    f.push(Constant(identical(t, a, b) != bool(i.arg)))


@row("CONTAINS_OP")
def contains_op(f: Frame, t: Tracer, i: Inst) -> None:
    value, container = f.take(2)
    f.push(Constant(container.contains(t, value) != bool(i.arg)))


@row("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "UNARY_NOT")
def unary_op(f: Frame, t: Tracer, i: Inst) -> None:
    symbol = {"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~", "UNARY_NOT": "not"}[i.name]
    f.push(unary(t, symbol, f.pop()))


@row("CALL_INTRINSIC_1")
def call_intrinsic(f: Frame, t: Tracer, i: Inst) -> None:
    if i.arg == 5:
        f.push(unary(t, "+", f.pop()))
    elif i.arg == 6:
        list_to_tuple(f, t, i)
    elif i.arg != 3:  # 3 turns a StopIteration that leaves a generator into RuntimeError; resume() refuses it
        raise t.refuse("unsupported-instruction", f"CALL_INTRINSIC_1 {i.arg}")


# containers


@row("BUILD_TUPLE")
def build_tuple(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(SequenceValue(f.take(i.arg), tuple))


@row("BUILD_LIST")
def build_list(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(SequenceValue(f.take(i.arg), list))


@row("BUILD_SET")
def build_set(f: Frame, t: Tracer, i: Inst) -> None:
    made = SetValue({})
    for value in f.take(i.arg):
        made.entries.setdefault(key_of(t, value), value)  # of equal elements the first stays
    f.push(made)


@row("BUILD_MAP")
def build_map(f: Frame, t: Tracer, i: Inst) -> None:
    flat = f.take(2 * i.arg)
    made = DictValue({})
    for key, value in zip(flat[::2], flat[1::2], strict=False):
        made.set_item(t, key, value)
    f.push(made)


@row("BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, t: Tracer, i: Inst) -> None:
    keys = list(f.pop().iterate(t))
    f.push(DictValue({key_of(t, k): (k, v) for k, v in zip(keys, f.take(i.arg), strict=False)}))


@row("BUILD_SLICE")
def build_slice(f: Frame, t: Tracer, i: Inst) -> None:
    start, stop, step = (*f.take(i.arg), NONE)[:3]
    f.push(SliceValue(start, stop, step))


@row("BUILD_STRING")
def build_string(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(Constant("".join(t.constant(v) for v in f.take(i.arg))))


@row("FORMAT_VALUE")
def format_op(f: Frame, t: Tracer, i: Inst) -> None:
    spec = t.constant(f.pop()) if i.arg & 4 else ""
    f.push(Constant(format_value(t, f.pop(), CONVERSIONS[i.arg & 3], spec)))


@row("LIST_APPEND", "SET_ADD")
def list_append(f: Frame, t: Tracer, i: Inst) -> None:
    value = f.pop()
    made = f.stack[-i.arg]
    made.METHODS["append" if i.name == "LIST_APPEND" else "add"](t, made, [value], {})


@row("MAP_ADD")
def map_add(f: Frame, t: Tracer, i: Inst) -> None:
    key, value = f.take(2)
    f.stack[-i.arg].set_item(t, key, value)


@row("LIST_EXTEND")
def list_extend(f: Frame, t: Tracer, i: Inst) -> None:
    value = f.pop()
    if value.lacks("__iter__") and value.lacks("__getitem__"):
        raise Raised(t.exception(TypeError, f"Value after * must be an iterable, not {value.python_type().__name__}"))
    made = f.stack[-i.arg]
    made.METHODS["extend"](t, made, [value], {})


@row("SET_UPDATE", "DICT_UPDATE")
def update(f: Frame, t: Tracer, i: Inst) -> None:
    value = f.pop()
    made = f.stack[-i.arg]
    made.METHODS["update"](t, made, [value], {})


@row("DICT_MERGE")
def dict_merge(f: Frame, t: Tracer, i: Inst) -> None:
    value = f.pop()
    made = f.stack[-i.arg]
    for key, part in pairs_of(t, value):
        if made.contains(t, key):
            raise t.refuse("bad-call", f"the keyword argument {key.describe()} comes twice")
        made.set_item(t, key, part)


@row("LIST_TO_TUPLE")
def list_to_tuple(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(SequenceValue(list(f.pop().iterate(t)), tuple))


def unpacked(t: Tracer, value: Value) -> Iterator[Value]:
    if value.lacks("__iter__") and value.lacks("__getitem__"):
        raise Raised(t.exception(TypeError, f"cannot unpack non-iterable {value.python_type().__name__} object"))
    return value.iterate(t)


@row("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, t: Tracer, i: Inst) -> None:
    run = unpacked(t, f.pop())
    values = [v for _, v in zip(range(i.arg), run, strict=False)]
    if len(values) < i.arg:
        raise Raised(t.exception(ValueError, f"not enough values to unpack (expected {i.arg}, got {len(values)})"))
    if next(run, None) is not None:
        raise Raised(t.exception(ValueError, f"too many values to unpack (expected {i.arg})"))
    f.stack.extend(values[::-1])


@row("UNPACK_EX")
def unpack_ex(f: Frame, t: Tracer, i: Inst) -> None:
    values, before, after = list(unpacked(t, f.pop())), i.arg & 0xFF, i.arg >> 8
    if len(values) < before + after:
        raise Raised(t.exception(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(values)})"))
    end = len(values) - after
    f.stack.extend([*values[:before], SequenceValue(values[before:end], list), *values[end:]][::-1])
