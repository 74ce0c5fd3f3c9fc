"""Instructions of ``match`` statements, and what they ask of a subject; a part of the opcode table.

In and out: as in ``opcodes.py``. Always holds: a class says by CPython's own flags whether its instances match as sequences or mappings.
PyTorch's counterpart: ``torch/_dynamo/symbolic_convert.py`` (``MATCH_*``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .opcodes import OPCODES, Exit, row
from .values.base import NONE, Constant, NotConstant, Raised, Value
from .values.builtins import classes_of, is_attribute_error, is_subclass, type_of
from .values.classes import ClassValue
from .values.containers import DictValue, SequenceValue

if TYPE_CHECKING:
    from .code import Inst
    from .interpreter import Frame
    from .tracer import Tracer

SEQUENCE, MAPPING = 1 << 5, 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
MATCH_THEMSELVES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@row("GET_LEN")
def get_len(f: Frame, t: Tracer, i: Inst) -> None:
    f.push(Constant(f.stack[-1].length(t)))


@row("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(f: Frame, t: Tracer, i: Inst) -> None:
    flag = SEQUENCE if i.name == "MATCH_SEQUENCE" else MAPPING
    f.push(Constant(bool(type_of(t, f.stack[-1]).__flags__ & flag)))


@row("MATCH_KEYS")
def match_keys(f: Frame, t: Tracer, i: Inst) -> None:
    subject, keys = f.stack[-2], f.stack[-1]
    if not isinstance(subject, DictValue):
        raise t.refuse("unknown-value", f"a match of the keys of {subject.describe()}")
    found = [subject.find(t, k) for k in keys.iterate(t)]
    known = [v for v in found if v is not None]
    f.push(SequenceValue(list(known), tuple) if len(known) == len(found) else NONE)


@row("MATCH_CLASS")
def match_class(f: Frame, t: Tracer, i: Inst) -> None:
    subject, cls, names = f.take(3)
    if not isinstance(cls, ClassValue):
        raise Raised(t.exception(TypeError, "called match pattern must be a class"))
    found = _attributes(t, subject, cls, i.arg, list(t.constant(names)))
    f.push(NONE if found is None else SequenceValue(list(found), tuple))


def _attributes(t: Tracer, subject: Value, cls: ClassValue, count: int, names: list[str]) -> list[Value] | None:
    """What the patterns inside ``cls(...)`` are matched with; None where the subject does not match."""
    if not is_subclass(t, subject, type_of(t, subject), classes_of(t, cls)):
        return None
    found: list[Value] = []
    by_place = _match_args(t, cls) if count else []
    if by_place is None and count == 1:
        found = [subject]
    elif by_place is None or count > len(by_place) or set(by_place[:count]) & set(names):
        raise t.refuse("unknown-value", f"a match of {cls.describe()} with these patterns")
    else:
        names = [*by_place[:count], *names]
    try:
        return [*found, *(subject.get(t, name) for name in names)]
    except Raised as raised:
        if is_attribute_error(raised):
            return None
        raise


def _match_args(t: Tracer, cls: ClassValue) -> list[str] | None:
    """``cls.__match_args__``; None where a single positional pattern matches the object itself."""
    if not hasattr(cls.real, "__match_args__"):
        if issubclass(cls.real, MATCH_THEMSELVES):
            return None
        return []
    names = t.maybe_constant(cls.get(t, "__match_args__"))
    if isinstance(names, NotConstant):
        raise t.refuse("unknown-value", f"__match_args__ of {cls.describe()}")
    return list(names)


__all__ = ["OPCODES", "Exit", "row"]
