"""The film of a capture: every instruction that was executed symbolically, with what was there and what it added.

In: a frame. Out: ``Film``, one ``Shot`` per instruction, those of inlined calls too; also where capture ended with a break.
Always holds: text only, no value of the program is kept; what had not been looked at is not looked at here. It costs nothing when nobody
asks: ``Filming`` is an interpreter whose step limit is 0, so that the check that every interpreter makes before an instruction calls it.
PyTorch's counterpart: ``TORCH_LOGS=trace_bytecode``, which prints the stack at each instruction.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR
from ..core.fx import describe, node_text
from ..core.provenance import Location
from .interpreter import MAX_STEPS, NULL, Frame, Interpreter
from .ir import Break
from .shapes import Shapes
from .values.base import Constant, Lazy, Slot, Unread
from .values.containers import SequenceValue
from .values.tensor import TensorValue


@dataclass(frozen=True)
class Shot:
    """One instruction: ``stack`` (lowest first) and ``locals`` as they were before it, ``nodes`` and ``guards`` that it added.

    ``depth`` is 0 in the frame that is captured, 1 in what it calls; ``broke`` says why capture ended here, or is empty."""

    depth: int
    location: Location
    instruction: str
    stack: tuple[str, ...]
    locals: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    broke: str = ""

    def text(self) -> str:
        pad = "  " * self.depth
        lines = [f"{pad}{self.location.function}:{self.location.line}  {self.instruction:<32} [{', '.join(self.stack)}]".rstrip()]
        lines += [f"{pad}    guard {g}" for g in self.guards] + [f"{pad}    node  {n}" for n in self.nodes]
        return "\n".join([*lines, *([f"{pad}    break {self.broke}"] if self.broke else [])])


class Film(Artifact):
    """``frames``: the shots in order. ``run(*args)`` is what the capture computes."""

    stage = "frames.film"

    def __init__(self, frames: tuple[Shot, ...], run: Callable[..., Any], breaks: tuple[Break, ...] = ()) -> None:
        self.frames, self._run = frames, run
        self.decisions = tuple(Decision("break", (f"{self.stage}/{len(frames) - 1}",), "left to Python", b.reason, {"what": b.what}) for b in breaks)

    def text(self) -> str:
        return "\n".join(shot.text() for shot in self.frames)

    def items(self) -> tuple[Item, ...]:
        """One item per line of the program that was reached ("line"), and one per shot, whose parent is its line."""
        lines = dict.fromkeys((shot.location.file, shot.location.line, shot.location.function) for shot in self.frames)
        ids = {key: f"{self.stage}/line_{n}" for n, key in enumerate(lines)}
        items = [Item(ids[key], "line", Location(*key).text(), (), (Location(*key),)) for key in lines]
        for n, shot in enumerate(self.frames):
            where = shot.location
            facts = {"depth": shot.depth, "stack": list(shot.stack), "locals": dict(shot.locals), "nodes": list(shot.nodes), "guards": list(shot.guards)}
            parent = ids[where.file, where.line, where.function]
            items.append(Item(f"{self.stage}/{n}", "instruction", shot.instruction, (parent,), (where,), {**facts, "break": shot.broke}))
        return tuple(items)

    def check(self) -> None:
        for n, (before, shot) in enumerate(zip(self.frames, self.frames[1:], strict=False)):
            if shot.depth > before.depth + 1:
                raise InvalidIR(f"{self.stage}/{n + 1} is two calls deeper than what ran before it")
            if before.broke:
                raise InvalidIR(f"{self.stage}/{n} ended the capture, and something follows")

    def run(self, *args: Any) -> Any:
        return self._run(*args)


class Filming(Interpreter):
    """An interpreter that notes each instruction before it is executed, and what it has added when the next one comes."""

    limit = 0

    def __init__(self, shapes: Shapes) -> None:
        super().__init__(shapes)
        self.shots: list[Shot] = []
        self.noted: set[fx.Node] = set()
        self.guarded = 0

    def reached(self, frame: Frame) -> None:
        if self.steps >= MAX_STEPS:
            super().reached(frame)
        self.finish()
        names = {**frame.locals, **{name: cell.slot for name, cell in frame.cells.items()}}
        locals = tuple((name, text_of(slot)) for name, slot in names.items() if slot is not None)
        stack = tuple(map(text_of, frame.stack))
        self.shots.append(Shot(len(self.frames) - 1, frame.location(), frame.instruction(), stack, locals))

    def finish(self, broke: str = "") -> None:
        """Completes the last shot; what was there before the first instruction counts for it."""
        if not self.shots:
            return
        nodes, guards = self._new_nodes(), tuple(g.text() for g in itertools.islice(self.guards.values(), self.guarded, None))
        self.guarded += len(guards)
        if nodes or guards or broke:
            last = self.shots[-1]
            self.shots[-1] = replace(last, nodes=last.nodes + nodes, guards=last.guards + guards, broke=broke)

    def _new_nodes(self) -> tuple[str, ...]:
        if len(self.graph.nodes) == len(self.noted):
            return ()
        new = [n for n in self.graph.nodes if n not in self.noted]
        self.noted.update(new)
        return tuple(map(node_text, new))


def text_of(slot: Slot, depth: int = 2) -> str:
    """A value in few words, without looking at what the program has not looked at."""
    if isinstance(slot, Lazy):
        return text_of(slot.value, depth) if slot.value is not None else f"({slot.source.text()})" if slot.source is not None else "(not looked at)"
    if slot is NULL:
        return "NULL"
    if isinstance(slot, TensorValue):
        return f"{slot.node.name}: {describe(slot.fake)}"
    if isinstance(slot, Unread):
        return _plain(repr(slot.held))
    if isinstance(slot, Constant):
        return _plain(repr(slot.value) if not isinstance(slot.value, torch.dtype) else str(slot.value))
    if isinstance(slot, SequenceValue) and depth:
        parts = [text_of(part, depth - 1) for part in slot.items[:4]] + ["..."] * (len(slot.items) > 4)
        return f"{slot.cls.__name__}({', '.join(parts)})"
    return _plain(slot.describe())


def _plain(text: str) -> str:
    text = re.sub(r" at 0x[0-9a-f]+|, file \"[^\"]*\"", "", text)
    return text if len(text) <= 80 else text[:77] + "..."
