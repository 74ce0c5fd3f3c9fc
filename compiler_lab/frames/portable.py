"""A captured frame as plain data, and back in another process: its key, its guards, its replacement code.

In: what capture made of a function that it captured to its end. Out: atoms and tuples for ``marshal``; from them, for a frame of another
process, an ``Entry`` whose guards hold for that frame. Always holds: everything that decided what was captured is in the key, in a guard, or
among what is ``trusted`` (what libraries define, which guards take as fixed inside one process: here its content is compared). An
object that a guard compares by identity is the same one where a module has it under its name, or a function or class of equal content;
what has no such form is refused (``core.plain.NotPlain``). Nothing of the program's runs that its own guards would not run.
PyTorch's counterpart: ``torch/_dynamo/package.py``. Left out: frames that go on in Python, functions that are made in the frame, warnings.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..core.modes import modes_kept, sets_mode
from ..core.plain import NotPlain, class_print, code_print, decode, encode, print_of
from .entries import Entry
from .frame import FrameInput
from .guard_table import LEAVES, TensorFacts
from .guards import GLOBALS, GuardTree
from .hook import surface
from .ir import Guard, Number, SizeRelation, Source, Specialization
from .python_guards import PythonRoot
from .sources import ABSENT, resolve

WRITTEN = frozenset({*LEAVES, "aliased", "not_aliased", "absent", "disjoint", "shape"})
"""Kinds of guards whose facts are sources, names, texts and plain values; another kind is not kept."""
CALLED = ("compiled",)


def key_of_code(code: types.CodeType) -> str:
    """Equal for functions that do the same, wherever they stand."""
    return code_print(code)


def state_of() -> tuple[Any, ...]:
    """torch's state as the guard on it compares it, as data: grad mode, autocast, default dtype, threads, determinism, modes."""
    from torch.autograd import forward_ad
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils import _device

    state = surface().guards.GlobalStateGuard()
    if _get_current_function_mode_stack() or _device.CURRENT_DEVICE is not None or not hasattr(state, "__getstate__"):
        raise NotPlain("guard", "torch's state has modes")
    return str(state.__getstate__()), forward_ad._current_level, torch.is_inference_mode_enabled()


# -------------------------------------------------------------------------------------------------------------- write


def pack(specialization: Specialization, frame: FrameInput, code: types.CodeType, compiled: Callable[..., Any]) -> dict[str, Any]:
    """Raises ``NotPlain`` where something has no form as data."""
    if specialization.stop is not None:
        raise NotPlain("break", frame.code.co_qualname)
    if specialization.before:
        raise NotPlain("warning", frame.code.co_qualname)
    if specialization.late is not None:
        raise NotPlain("symbolic", frame.code.co_qualname)
    if specialization.process:
        raise NotPlain("process", specialization.process)
    guards = [g for g in specialization.guards if g.kind != "global_state"]
    if other := next((g.kind for g in guards if g.kind not in WRITTEN), ""):
        raise NotPlain("guard", other)
    write = _Writer(guards, frame)
    roots = {id(s.key): s.key for g in guards for s in _sources(g) if s.kind == "constant"}
    return {
        "code": code.replace(co_consts=()),
        "constants": tuple(CALLED if c is compiled else ("data", write.value(c)) for c in code.co_consts),
        "guards": tuple((g.kind, write.source(g.source), write.expected(g), _proof(g, frame)) for g in guards),
        "roots": tuple((write.value(k), print_of(k)) for k in roots.values()),
        "trusted": tuple((encode(owner), name, _print(value)) for owner, name, value in specialization.trusted),
        "retried": specialization.retried,
        "modes": sets_mode(specialization.graph.graph),
    }


def _sources(guard: Guard) -> Iterator[Source]:
    """Every source that a guard reads, with those it is reached through."""
    found: list[Source | None] = [guard.source]
    if isinstance(guard.expected, SizeRelation):
        found += [n.source for n in guard.expected.numbers]
    elif isinstance(guard.expected, Source):
        found.append(guard.expected)
    elif guard.kind == "disjoint":
        found += [s for part in guard.expected for s in part]
    elif isinstance(guard.expected, tuple):
        found += [s for s in guard.expected if isinstance(s, Source)]
    for source in found:
        while source is not None:
            yield source
            source = source.base


class _Writer:
    """Writes sources and constants. A class that no module names is written as what it is of: the type of a guarded value, or a base of that."""

    def __init__(self, guards: Sequence[Guard], frame: FrameInput) -> None:
        self.places: dict[int, tuple[Source, int]] = {}  # id of a class -> the value it is a class of, and where in that one's MRO
        for guard in guards:
            if guard.kind == "type" and guard.source is not None and all(s.kind != "constant" for s in _sources(guard)):
                for n, cls in enumerate(type(_value(guard.source, frame)).__mro__):
                    self.places.setdefault(id(cls), (guard.source, n))

    def value(self, value: Any) -> Any:
        if isinstance(value, types.CodeType):
            raise NotPlain("code", value.co_qualname)
        try:
            return encode(value)
        except NotPlain:
            if id(value) not in self.places:
                raise
            source, n = self.places[id(value)]
            return ("class of", self.source(source), n)

    def source(self, source: Source | None) -> Any:
        return source and (source.kind, self.value(source.key), self.source(source.base))

    def expected(self, guard: Guard) -> Any:
        value = guard.expected
        if isinstance(value, SizeRelation):
            return ("relation", value.code, tuple((n.name, self.source(n.source), n.what, n.dim) for n in value.numbers))
        if isinstance(value, Source):
            return ("source", self.source(value))
        if guard.kind == "disjoint":
            return ("disjoint", *(tuple(map(self.source, part)) for part in value))
        if isinstance(value, tuple) and any(isinstance(v, Source) for v in value):
            return ("sources", tuple(map(self.source, value)))
        return ("data", None if guard.kind in ("id", "type") else encode(value))


def _proof(guard: Guard, frame: FrameInput) -> Any:
    """What is compared before the guard is made anew from the value that another process has there."""
    row = PROOFS.get(guard.kind)
    return None if row is None or guard.source is None else row(_value(guard.source, frame))


def _value(source: Source, frame: FrameInput) -> Any:
    cells = dict(zip(frame.code.co_freevars, frame.closure, strict=False))
    return resolve(source, frame.locals, frame.globals, cells, frame.builtins)


def _identity(value: Any) -> Any:
    """Tells an object from all others that could stand in its place; a function or class that no module names, by what it says."""
    if isinstance(value, enum.Enum):
        return ("enum", class_print(type(value)), value._name_, print_of(value._value_))
    try:
        return ("data", encode(value), print_of(value))
    except NotPlain:
        if isinstance(value, (types.FunctionType, types.CodeType, type)) or type(value).__name__ == "_lru_cache_wrapper":
            return ("print", print_of(value))
        raise NotPlain("guard", f"a {type(value).__module__}.{type(value).__qualname__} compared by identity") from None


def _tensor(value: torch.Tensor) -> Any:
    if any(name.startswith("_dynamo_") for name in value.__dict__):
        raise NotPlain("symbolic", "a tensor whose sizes are marked")
    facts = TensorFacts.of(value)
    return (class_print(facts.type), str(facts.dtype), str(facts.device), facts.requires_grad, tuple(facts.size), tuple(facts.stride), facts.keys)


PROOFS: dict[str, Callable[[Any], Any]] = {"id": _identity, "type": lambda value: class_print(type(value)), "tensor": _tensor}

# --------------------------------------------------------------------------------------------------------------- read


def unpack(data: dict[str, Any], frame: FrameInput, compiled: Callable[[], Callable[..., Any]]) -> Entry | None:
    """The entry for ``frame``; None where a guard does not hold for it. ``compiled`` gives what the code calls; it is asked last.

    Raises ``NotPlain`` where something that was there is not here."""
    read = _Reader(frame)
    if any(print_of(read.value(root)) != was for root, was in data["roots"]) or any(_changed(*item) for item in data["trusted"]):
        return None
    guards = tuple(Guard(kind, read.source(source), read.expected(expected), ()) for kind, source, expected, _ in data["guards"])
    for guard, (*_, proof) in zip(guards, data["guards"], strict=True):
        if proof is not None and not _proved(guard, proof, frame):
            return None
    tree = GuardTree((Guard("global_state", None, None), *guards), frame, root=PythonRoot({GLOBALS: frame.globals, **frame.locals}))
    if not tree.check(frame.locals):
        return None
    run = compiled()
    run = modes_kept(run) if data["modes"] else run
    constants = tuple(run if c == CALLED else read.value(c[1]) for c in data["constants"])
    code = frame.code
    place = dict(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)
    return Entry(tree, data["code"].replace(co_consts=constants, **place), True, data["retried"])


def _changed(owner: Any, name: str, was: Any) -> bool:
    """Is what a library has under ``name`` another thing than it was?"""
    space = decode(owner)
    return _print(space.__dict__.get(name, ABSENT) if isinstance(space, type) else getattr(space, name, ABSENT)) != was


def _print(value: Any) -> Any:
    return () if value is ABSENT else print_of(value)


def _proved(guard: Guard, proof: Any, frame: FrameInput) -> bool:
    assert guard.source is not None
    value = _value(guard.source, frame)
    if guard.kind == "id" and proof[0] == "data" and proof[1] == proof[2] and not isinstance(proof[1], tuple):
        return type(value) is type(proof[1]) and value == proof[1]
    if guard.kind == "tensor" and not isinstance(value, torch.Tensor):
        return False
    try:
        now = PROOFS[guard.kind](value)
    except NotPlain:
        return False
    if guard.kind != "tensor":
        return now == proof
    opened = zip((*guard.expected[4], *guard.expected[5]), (*now[4], *now[5]), strict=False)
    sizes = len(guard.expected[4]) == len(now[4]) and all(w is None or w == h for w, h in opened)
    return sizes and now[:4] == proof[:4] and now[6] == proof[6]


class _Reader:
    """The other way: what ``_Writer`` wrote, for a frame of this process."""

    def __init__(self, frame: FrameInput) -> None:
        self.frame = frame

    def value(self, data: Any) -> Any:
        if type(data) is tuple and data and data[0] == "class of":
            source = self.source(data[1])
            assert source is not None
            return type(_value(source, self.frame)).__mro__[data[2]]
        return decode(data)

    def source(self, data: Any) -> Source | None:
        return data and Source(data[0], self.value(data[1]), self.source(data[2]))

    def expected(self, data: Any) -> Any:
        kind, *rest = data
        if kind == "relation":
            return SizeRelation(rest[0], tuple(Number(name, self.source(source), what, dim) for name, source, what, dim in rest[1]))  # type: ignore[arg-type]
        if kind == "source":
            return self.source(rest[0])
        if kind == "disjoint":
            return tuple(tuple(map(self.source, part)) for part in rest)
        return tuple(map(self.source, rest[0])) if kind == "sources" else decode(rest[0])
