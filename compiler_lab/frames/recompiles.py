"""Recompiles: why a call fitted no entry, in words, with the user's lines, and what would have avoided it.

In: the first failing guard of each entry (``guards.Failure``) and the call. Out: ``Recompile``, one point of a function's timeline.
Always holds: plain data, so that a timeline keeps none of the program's objects; a row of ``ADVICE`` for each kind of guard.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``get_and_maybe_log_recompilation_reasons``), which logs and gives no advice.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol

from ..core.artifact import Artifact, Item
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import Location, is_library
from .failure import Failure


@dataclass(frozen=True)
class Recompile:
    """A call that fitted none of the entries. ``number`` is the compile that it caused (the first compile is number 1); 0 where the limit
    was reached and Python ran the call. ``failures``: the first failing guard of each entry, the entry used last first."""

    function: str
    number: int
    caller: Location | None
    failures: tuple[Failure, ...]

    @property
    def advice(self) -> tuple[str, ...]:
        """What would have avoided it, each thing once."""
        return tuple(dict.fromkeys(avoid(f) for f in self.failures))

    def text(self) -> str:
        head = f"compile {self.number} of {self.function}" if self.number else f"{self.function} is run by Python from now on where no entry fits"
        lines = [head + (f", for the call at {self.caller.text()}" if self.caller else "")]
        lines += [f"  entry {n}: {f.text()}" for n, f in enumerate(self.failures)]
        return "\n".join([*lines, *(f"  do: {a}" for a in self.advice)])


class Recompiled(Artifact):
    """One point of a timeline, for a trace: an item for the call ("recompile"), and one for each guard that failed ("failure"), its child."""

    stage = "frames.recompile"

    def __init__(self, point: Recompile) -> None:
        self.point = point

    def text(self) -> str:
        return self.point.text()

    def items(self) -> tuple[Item, ...]:
        point, ident = self.point, f"{self.stage}/{self.point.number}"
        head = Item(
            ident, "recompile", point.text().split("\n")[0], (), (point.caller,) if point.caller else (), {"function": point.function, "number": point.number}
        )
        facts = (
            {"kind": f.kind, "source": f.source, "expected": f.expected, "got": f.got, "advice": avoid(f), "values": _plain(f.values)} for f in point.failures
        )
        failed = (Item(f"{ident}:{n}", "failure", f.text(), (ident,), f.stack, found) for n, (f, found) in enumerate(zip(point.failures, facts, strict=True)))
        return (head, *failed)

    def check(self) -> None:
        if not self.point.failures:
            raise InvalidIR(f"{self.stage}: a call that fits no entry fails a guard of each")

    def run(self, *args: Any) -> Any:
        raise Unsupported("a recompile cannot run", reason="recompile", why="it says why a call fitted nothing", hint="run what was compiled")


def _plain(values: tuple[Any, Any] | None) -> Any:
    return None if values is None else [[None if n is None else str(n) if not isinstance(n, int) else n for n in side] for side in values]


def calling_line() -> Location | None:
    """The user's line that runs now: the innermost Python frame that is no library's and not generated."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_library(code.co_filename) and not code.co_filename.startswith("<compiled"):
            return Location(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


class Explained(Protocol):
    """An entry, as far as its guards can say why they fail."""

    @property
    def tree(self) -> Any: ...


class Timeline:
    """The recompiles of one compiled function, and of the frames and pieces of frames below it, in the order in which they happened."""

    def __init__(self, on_event: Callable[[str, Any], None]) -> None:
        self.on_event = on_event
        self.points: list[Recompile] = []

    def recompiled(self, code: CodeType, number: int, entries: Sequence[Explained], locals: dict[str, Any]) -> Recompile:
        """None of ``entries`` fitted the call that runs now, with these ``locals``: its line is read from the Python stack."""
        failures = tuple(f for e in entries if (f := e.tree.explain(locals)) is not None)
        found = Recompile(code.co_qualname, number, calling_line(), failures)
        self.points.append(found)
        self.on_event("recompile", found)
        return found

    def limit(self, code: CodeType, count: int, entries: Sequence[Explained], locals: dict[str, Any]) -> None:
        """As ``recompiled``, but nothing will be compiled: Python runs what fits no entry, from now on, and a warning says so once."""
        found = self.recompiled(code, 0, entries, locals)
        reasons = "\n".join(found.text().splitlines()[1:])
        where = found.caller or Location(code.co_filename, code.co_firstlineno)
        warnings.warn_explicit(
            f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{code.co_firstlineno}) was compiled {count} times, the limit; calls that fit no"
            f" entry run in Python from now on. Why none fits this call:\n{reasons}\nPass options={{'recompile_limit': N}} to allow more.",
            UserWarning,
            where.file,
            where.line,
        )


def avoid(failure: Failure) -> str:
    """What to write so that this guard need not fail."""
    return ADVICE[failure.kind](failure)


def _tensor(failure: Failure) -> str:
    what, _, _ = failure.expected.partition(" ")
    if what == "size" and failure.values is not None:
        want, have = failure.values
        if len(want) == len(have):
            dims = ", ".join(str(d) for d, (a, b) in enumerate(zip(want, have, strict=True)) if a is not None and a != b)
            return f"mark_dynamic({_name(failure)}, {dims}) before the first call, or compile(dynamic=True)"
        return f"pass {_name(failure)} with the same number of dimensions, or compile one function for each"
    return {
        "dtype": f"convert {_name(failure)} to one dtype before the call",
        "device": f"move {_name(failure)} to one device before the call",
        "requires_grad": f"give {_name(failure)} the same requires_grad at each call",
        "stride": f"pass {_name(failure)}.contiguous()",
    }.get(what, f"pass {_name(failure)} as the same kind of tensor at each call")


def _value(failure: Failure) -> str:
    name = _name(failure)
    if "." in name:
        return f"{name} changes between calls: keep it in a tensor (a buffer of the module), or change it outside of what is compiled"
    kind = failure.got.rpartition("(")[2].rstrip(")")
    if kind == "float":
        return f"pass {name} as a tensor: each float is a constant of the graph"
    if kind == "int":
        return f"pass {name} as a tensor, or compile(dynamic=True): each int is a constant of the graph"
    return f"pass few different values of {name}: each is a constant of the graph"


def _identity(failure: Failure) -> str:
    if "<lambda>" in failure.expected or "<lambda>" in failure.got or failure.source.endswith(".__code__"):
        return f"define the function in {_name(failure)} once, outside: another function is another program"
    return f"make what {_name(failure)} holds once, outside, and use the same object at each call"


def _state(failure: Failure) -> str:
    return "call it under the same grad mode, autocast and other settings of torch, or compile one function for each"


def _same(words: str) -> Callable[[Failure], str]:
    return lambda failure: words.format(name=_name(failure))


ADVICE: dict[str, Callable[[Failure], str]] = {
    "place": lambda f: f"pass {_name(f)}.clone(), or tensors that begin at the same place in their memory",
    "tensor": _tensor,
    "equals": _value,
    "none": _same("pass {name} at each call, or never: None or not decides which way the program goes"),
    "true": _same("{name} decides which way the program goes: compile one function for True and one for False"),
    "false": _same("{name} decides which way the program goes: compile one function for True and one for False"),
    "id": _identity,
    "type": _same("pass {name} with the same type at each call"),
    "length": _same("give {name} the same number of elements at each call, or stack them into one tensor"),
    "empty": _same("leave {name} as it was when the module was compiled: hooks are added before the first call"),
    "elements": _same("make {name} once, outside, and leave it as it is"),
    "dict_keys": _same("give {name} the same keys, in the same order, at each call"),
    "no_attr": _same("set the attributes of {name} before the first call"),
    "no_key": _same("set the attributes of {name} before the first call"),
    "has_key": _same("give {name} the same keys at each call"),
    "missing": _same("give {name} the same contents at each call"),
    "aliased": _same("pass the same tensor in both places at each call, or never"),
    "not_aliased": _same("pass different tensors at each call"),
    "absent": _same("give classes their methods and attributes before the first call"),
    "shape": _same("0, 1 and sizes that take another branch are programs of their own: pad {name}, or write the line for any size"),
    "shared": _same("pass tensors that share memory in the same way at each call, or clone() them"),
    "disjoint": _same("pass tensors that share no memory, or clone() one of them"),
    "alive": _same("keep the objects that the program compares by identity, instead of making them anew"),
    "global_state": _state,
}


def _name(failure: Failure) -> str:
    """The source as the user writes it: ``x``, ``self.step``, ``config['rate']``."""
    text = re.sub(r"\b[LGC]\['([^']*)'\]", r"\1", failure.source)
    return re.sub(r"\.__dict__|\.__code__|\.(?:_modules|_parameters|_buffers)\['([^']*)'\]", lambda m: f".{m[1]}" if m[1] else "", text)
