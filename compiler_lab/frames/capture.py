"""``capture``: one function, what was seen of it. The artifact of the whole ``frames`` stage.

In: a function, method or module, and the arguments of one call, which is not made. Out: ``Capture``: the graph, the guards, the recipe of
the result, the bytecode it was read from, and the break if the frame is left to Python. Always holds: capturing changes nothing.
PyTorch's counterpart: ``torch._dynamo.export`` and ``torch._dynamo.explain``.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
import io
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR
from ..core.provenance import Location
from .assemble import assemble
from .attempts import interpret
from .film import Film, Filming, Shot
from .frame import FrameInput
from .ir import Break, CapturedGraph, Effect, Guard, Recipe, Source, Specialization
from .reasons import REASONS, REWRITES, CaptureUnsupported
from .shapes import Shapes, SizeHistory
from .values.modules import HOOKS


class Capture(Artifact):
    """What capture saw of one frame: ``graphs`` (one, or none when it was left to Python), ``guards``, ``breaks``; ``film`` when asked for."""

    stage = "frames"

    def __init__(self, frame: FrameInput, specialization: Specialization | None, breaks: tuple[Break, ...] = (), shots: tuple[Shot, ...] | None = None) -> None:
        self.film = Film(shots, self.run, breaks) if shots is not None else None
        self.frame, self.specialization, self.breaks = frame, specialization, breaks

    @functools.cached_property
    def decisions(self) -> tuple[Decision, ...]:  # pyright: ignore[reportIncompatibleVariableOverride] - made when somebody asks
        guards = (Decision("guard", (_guard_id(i),), "installed", g.kind, {"text": g.text(), "why": g.why}) for i, g in enumerate(self.guards))
        breaks = (
            Decision("break", (self.frame.code.co_name,), "left to Python", b.reason, {"instruction": b.instruction, "what": b.what}) for b in self.breaks
        )
        return (*guards, *breaks)

    @property
    def graphs(self) -> tuple[CapturedGraph, ...]:
        return (self.specialization.graph,) if self.specialization else ()

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self.specialization.guards if self.specialization else ()

    def bytecode(self) -> str:
        """The frame's instructions as dis prints them, without addresses."""
        out = io.StringIO()
        dis.dis(self.frame.code, file=out, depth=0)
        return _plain(out.getvalue()).rstrip()

    def text(self) -> str:
        parts = [f"bytecode of {self.frame.code.co_name}:", self.bytecode()]
        if self.specialization is not None:
            parts += ["", "guards:", *(f"  {g.text()}" for g in self.guards)]
            parts += ["", "graph:", self.specialization.graph.text(), ""]
            parts += [f"made[{i}]: {recipe_text(r)}" for i, r in enumerate(self.specialization.shared)]
            parts += [f"effect: {effect_text(e)}" for e in self.specialization.effects]
            parts += [f"result: {recipe_text(self.specialization.result)}"]
        for b in self.breaks:
            parts += ["", f"break: {b.reason}: {b.what}", f"  at: {b.instruction}", *(f"  {s.text()}" for s in b.stack)]
        return "\n".join(parts)

    def items(self) -> tuple[Item, ...]:
        guards = tuple(Item(f"frames/{_guard_id(i)}", "guard", g.text(), (), g.stack, {"kind": g.kind, "why": g.why}) for i, g in enumerate(self.guards))
        return (*self._instructions(), *guards, *self._breaks(), *(i for g in self.graphs for i in g.items()))

    def _breaks(self) -> Iterator[Item]:
        """Why Python goes on, each with the words of the catalogue; ``stack`` is the symbolic call stack, nested frames included."""
        for n, b in enumerate(self.breaks):
            facts = {"reason": b.reason, "what": b.what, "instruction": b.instruction, "hint": b.hint, "function": self.frame.code.co_qualname}
            before, after = REWRITES.get(b.reason, ("", ""))
            words = {"why": REASONS[b.reason].why if b.reason in REASONS else "", "before": before, "after": after}
            yield Item(f"frames/break_{n}", "break", f"{b.reason}: {b.what}", (), b.stack, {**facts, **words, "graph": self.specialization is not None})

    def _instructions(self) -> Iterator[Item]:
        """The bytecode, each instruction with the line it was compiled from."""
        code = self.frame.code
        for one in dis.get_instructions(code):
            line = (one.positions.lineno if one.positions else None) or code.co_firstlineno
            text = f"{one.offset:>4} {one.opname:<24} {_plain(one.argrepr)}".rstrip()
            yield Item(f"frames/instruction_{one.offset}", "instruction", text, (), (Location(code.co_filename, line, code.co_name),))

    def check(self) -> None:
        if self.specialization is None and not self.breaks:
            raise InvalidIR("frames: a capture has a graph or a break")
        for graph in self.graphs:
            graph.check()
            if len(graph.inputs) != len(graph.placeholders):
                raise InvalidIR("frames: every placeholder needs a source")

    def run(self, *args: Any) -> Any:
        """The captured program on the arguments of the call, in order (of a module or method: without self); no guards are checked."""
        if self.specialization is None:
            raise CaptureUnsupported(self.breaks[0].reason, self.breaks[0].what, self.breaks[0].stack, self.breaks[0].instruction)
        code = self.frame.code
        names = code.co_varnames[: code.co_argcount]
        bound = dict(self.frame.locals)
        bound.update(zip(names[len(names) - len(args) :], args, strict=False) if len(args) <= len(names) else ())
        frame = FrameInput(code, bound, self.frame.globals, self.frame.builtins, self.frame.closure)
        return perform(self.specialization, self.graphs[0].run, frame)


def _plain(text: str) -> str:
    """What dis prints, without addresses and files."""
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r'file "[^"]*", ', "", text))


def _guard_id(index: int) -> str:
    return f"guard_{index}"


def recipe_text(recipe: Recipe) -> str:
    """The recipe as an expression over outputs ``out[i]``, shared objects ``made[i]`` and sources."""
    parts = [recipe_text(p) for p in recipe.parts]
    inner = ", ".join(parts)
    match recipe.kind:
        case "output":
            return f"out[{recipe.value}]"
        case "shared":
            return f"made[{recipe.value}]"
        case "source":
            return recipe.value.text()
        case "constant":
            return getattr(recipe.value, "__qualname__", None) or _plain(repr(recipe.value))
        case "dict":
            return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(recipe.value, parts, strict=False)) + "}"
        case "call":
            return f"{getattr(recipe.value, '__qualname__', recipe.value)}({inner})"
        case "function":
            return f"function {recipe.value.co_qualname}({inner})"
        case "cell" if recipe.value is not None:
            return f"cell {recipe.value}"
        case "tuple":
            return f"({inner}{',' if len(parts) == 1 else ''})"
        case "list":
            return f"[{inner}]"
        case kind:
            return f"{kind}({inner})"


def effect_text(effect: Effect) -> str:
    """The effect as a statement."""
    target, value = recipe_text(effect.target), "" if effect.value is None else recipe_text(effect.value)
    match effect.kind:
        case "attribute" | "delete_attribute":
            place = f"{target}.{effect.key}"
        case "item" | "delete_item":
            place = f"{target}[{recipe_text(effect.key)}]"
        case "contents":
            place = f"{target}[:]"
        case "global" | "delete_global":
            place = f"globals()[{effect.key!r}]"
        case "cell" | "delete_cell":
            place = f"{target}.cell_contents"
        case "call":
            return f"{target}{value}"
    return f"del {place}" if effect.kind.startswith("delete") else f"{place} = {value}"


def read(source: Source, frame: FrameInput) -> Any:
    """The value that a source names in a frame. Raises what reading it raises."""
    from .sources import resolve

    closure = dict(zip(frame.code.co_freevars, frame.closure, strict=False))
    return resolve(source, frame.locals, frame.globals, closure, frame.builtins)


def perform(specialization: Specialization, graph: Callable[..., Any], frame: FrameInput) -> Any:
    """What the replacement code does with ``frame`` when ``graph`` is the compiled function: its effects are made, its result is returned."""
    code, locals = assemble(specialization, graph, frame), frame.locals
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    rest = locals[names[count + only]] if code.co_flags & inspect.CO_VARARGS else ()
    extra = locals[names[count + only + bool(code.co_flags & inspect.CO_VARARGS)]] if code.co_flags & inspect.CO_VARKEYWORDS else {}
    function = types.FunctionType(code, frame.globals, code.co_name, None, frame.closure)
    return function(*(locals[n] for n in names[:count]), *rest, **{n: locals[n] for n in names[count : count + only]}, **extra)


def frame_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> FrameInput:
    """The frame that ``fn(*args, **kwargs)`` would start. Raises TypeError where the arguments do not fit, as the call does."""
    target: Any = fn
    if isinstance(fn, torch.nn.Module):
        target = cast(Any, fn)._call_impl if any(getattr(fn, name) for name in HOOKS) else fn.forward
    if isinstance(target, types.MethodType):
        args, target = (target.__self__, *args), target.__func__
    if not isinstance(target, types.FunctionType):
        raise CaptureUnsupported("no-frame", f"{type(target).__name__}", ())
    bound = inspect.signature(target, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    code = target.__code__
    cells = target.__closure__ or ()
    free: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=False):
        try:
            free[name] = cell.cell_contents
        except ValueError:  # an empty cell: the name is unbound
            continue
    builtins = target.__globals__.get("__builtins__", {})
    return FrameInput(code, {**bound.arguments, **free}, target.__globals__, builtins if isinstance(builtins, dict) else vars(builtins), cells)


def capture(fn: Callable[..., Any], *args: Any, film: bool = False, **kwargs: Any) -> Capture:
    """Capture one call of ``fn`` without making it. ``film``: record every instruction, in ``Capture.film``.

    Returns a ``Capture``; what capture cannot model is a ``Break`` in it, not an exception. Raises ``CaptureUnsupported`` for what has no
    Python frame, TypeError where the arguments do not fit.
    """
    frame = frame_of(fn, args, kwargs)
    shots = shots_of(frame) if film else None
    try:
        return Capture(frame, interpret(frame), (), shots)
    except CaptureUnsupported as error:
        return Capture(frame, None, (broken(frame, error),), shots)


def broken(frame: FrameInput, error: CaptureUnsupported) -> Break:
    """What ``error`` makes of the frame; a place it always has."""
    where = error.stack or (Location(frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_name),)
    return Break(error.reason, error.what, error.instruction, where, error.hint)


def shots_of(frame: FrameInput, history: SizeHistory | None = None) -> tuple[Shot, ...]:
    """The frame interpreted once more, for its film: to its end, or to what stops it. Capture is deterministic, and ``history`` is left as it is."""
    filmed: list[Filming] = []  # a capture that cannot have symbolic sizes is made a second time, without: the last film counts
    broke = ""

    def filming(shapes: Shapes) -> Filming:
        filmed.append(Filming(shapes))
        return filmed[-1]

    try:
        interpret(frame, copy.deepcopy(history), filming)
    except CaptureUnsupported as error:
        broke = f"{error.reason}: {error.what}"
    for film in filmed[-1:]:
        film.finish(broke)
    shots = tuple(filmed[-1].shots) if filmed else ()
    for film in filmed:  # their values hold the program's
        vars(film).clear()
    return shots
