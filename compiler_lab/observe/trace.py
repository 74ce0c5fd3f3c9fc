"""A trace: the steps of a compile in order, as a value that can be looked at, saved and opened on another machine.

In: ``Step``s, handed to ``Trace.append`` (so ``compile(fn, observe=trace.append)`` records). Out: the same as plain data
(``to_json``), as a file (``save``/``load``: a zip with one ``trace.json``), and as one HTML page (``to_html``).
Always holds: appending stores references only, so recording costs nothing but memory; time lives on the step and never in an
artifact; a loaded trace answers the same questions as a live one, except that it cannot run.
Left out: code objects and tensors are never saved.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import platform
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.artifact import Artifact, Decision, Item, Plain
from ..core.clock import Span
from ..core.collecting import uncollected
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import Location, is_library
from .sources import lines_of

if TYPE_CHECKING:
    from .view import View

ABOUT_FRAMES = ("film", "break", "recompile")
"""Steps that tell of a frame and make no graph."""
FORMAT, VERSION = "compiler-lab-trace", 1
# What zipfile and json say of files that are truncated, foreign, encrypted, packed in a way unknown here, or nested without end.
DAMAGE = (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class Step:
    """One step of one compile: ``name`` of the pipeline step, its input and output, and what it cost.

    ``part`` is "forward" or "backward" after the partition, "" before it. ``graph`` numbers the captured graphs of a recording.
    ``start``: when it began, on a clock that only grows, the same for all steps of a trace; None where nobody looked. ``parent``: the compile that it
    was part of, by a name that no other compile of the trace has: a graph is compiled again for other sizes. ``spans``: what it did, with times.
    """

    name: str
    before: Artifact | None
    after: Artifact
    seconds: float
    part: str = ""
    graph: int = 0
    start: float | None = None
    parent: str = ""
    spans: tuple[Span, ...] = ()


class LoadedArtifact(Artifact):
    """An artifact out of a saved trace: plain data that answers everything but ``run``."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.type, self.stage = _str(data["type"]), _str(data["stage"])
        self._text = _str(data["text"])
        self._items = tuple(map(_item, _list(data["items"])))
        self.decisions = tuple(map(_decision, _list(data["decisions"])))
        self._more = dict(data.get("more", {}))

    def text(self) -> str:
        return self._text

    def items(self) -> tuple[Item, ...]:
        return self._items

    def more(self) -> Mapping[str, Plain]:
        return self._more

    def check(self) -> None:
        seen: set[str] = set()
        for item in self._items:
            if item.id in seen:
                raise InvalidIR(f"{item.id} stands twice in {self.stage}")
            seen.add(item.id)

    def run(self, *args: Any) -> Any:
        raise Unsupported(
            "a saved trace cannot run", reason="saved-trace", why="it holds text and facts, not code", hint="compile the function again to run it"
        )

    def to_json(self) -> dict[str, Plain]:
        return {**super().to_json(), "type": self.type}


@dataclass
class Trace:
    """Steps in the order in which they happened, under a title."""

    title: str = "trace"
    steps: list[Step] = field(default_factory=list[Step])
    _sources: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _environment: dict[str, str] = field(default_factory=dict[str, str])

    def append(self, step: Step) -> None:
        self.steps.append(step)

    @property
    def environment(self) -> dict[str, str]:
        """Versions and machine the trace was recorded with."""
        return self._environment or {"python": platform.python_version(), "torch": str(torch.__version__), "machine": platform.machine()}

    @property
    def graphs(self) -> tuple[int, ...]:
        """Numbers of the compiles in which something was made."""
        return tuple(sorted({s.graph for s in self.steps if s.name not in ABOUT_FRAMES}))

    @property
    def seconds(self) -> float:
        """That all steps took; what went on side by side counts once."""
        return seconds_of(self.steps)

    @property
    def zero(self) -> float:
        """When the first step began; every ``start`` of a saved trace counts from there."""
        return min((s.start for s in self.steps if s.start is not None), default=0.0)

    def artifacts(self) -> tuple[Artifact, ...]:
        """Every artifact once, in order of first appearance."""
        found: dict[int, Artifact] = {}
        for step in self.steps:
            for artifact in (step.before, step.after):
                if artifact is not None:
                    found.setdefault(id(artifact), artifact)
        return tuple(found.values())

    def stage(self, name: str, part: str = "", graph: int | None = None) -> Artifact:
        """The last result of the step ``name``; raises ``KeyError`` with the steps there are."""
        for step in reversed(self.steps):
            if step.name == name and step.part == part and (graph is None or step.graph == graph):
                return step.after
        known = sorted({f"{s.name} {s.part}".strip() for s in self.steps})
        raise KeyError(f"no step {name!r} {part}in this trace; there are: {', '.join(known) or 'none'}")

    def view(self, name: str = "pipeline", **options: Any) -> View:
        """One picture of this trace: see ``observe.view``."""
        from .view import view

        return view(self, name, **options)

    def to_html(self, path: str | os.PathLike[str], other: Trace | None = None) -> None:
        """Writes one page with every view that applies to this trace, and with ``other`` the two side by side; it needs no network and no kernel."""
        from .page import save_report

        save_report(self, path, other)

    def text(self) -> str:
        """Each step's result under a heading."""
        return "\n\n".join(f"== {s.name}{f' ({s.part})' if s.part else ''}, graph {s.graph}, {s.seconds * 1e3:.1f} ms\n{s.after.text()}" for s in self.steps)

    def __repr__(self) -> str:
        return f"Trace({self.title!r}, {len(self.steps)} steps, {len(self.graphs)} graphs)"

    @uncollected()
    def to_json(self) -> dict[str, Plain]:
        """{"format", "version", "title", "environment", "sources", "artifacts", "steps"}: see ``VERSION``."""
        artifacts = self.artifacts()
        number = {id(a): i for i, a in enumerate(artifacts)}
        data = [a.to_json() for a in artifacts]
        zero = self.zero
        steps = [
            {
                "name": s.name,
                "before": None if s.before is None else number[id(s.before)],
                "after": number[id(s.after)],
                "seconds": s.seconds,
                "part": s.part,
                "graph": s.graph,
                "start": None if s.start is None else s.start - zero,
                "parent": s.parent,
                "spans": [[p.name, p.start, p.seconds] for p in s.spans],
            }
            for s in self.steps
        ]
        sources = self._sources or source_files(i for a in artifacts for i in a.items())
        head = {"format": FORMAT, "version": VERSION, "title": self.title, "environment": self.environment}
        return {**head, "sources": sources, "artifacts": data, "steps": steps}

    @staticmethod
    @uncollected()
    def from_json(data: Mapping[str, Any]) -> Trace:
        """Raises ``InvalidIR`` where ``data`` is not a trace of this version."""
        if data.get("format") != FORMAT:
            raise InvalidIR("this is not a trace of compiler_lab", hint="open a file written by Trace.save or --json")
        if data.get("version") != VERSION:
            raise InvalidIR(
                f"this trace has version {data.get('version')}, this is version {VERSION}", hint="record it again, or open it with the release that wrote it"
            )
        try:
            artifacts = [LoadedArtifact(a) for a in data["artifacts"]]
            steps = [
                Step(
                    _str(s["name"]),
                    None if s["before"] is None else artifacts[s["before"]],
                    artifacts[s["after"]],
                    float(s["seconds"]),
                    _str(s["part"]),
                    int(s["graph"]),
                    *_times(s),
                )
                for s in data["steps"]
            ]
            sources = {file: [_str(line) for line in _list(lines)] for file, lines in data["sources"].items()}
            return Trace(_str(data["title"]), steps, sources, {k: _str(v) for k, v in data["environment"].items()})
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InvalidIR("this trace is damaged", why=f"{type(error).__name__}: {error}", hint="record it again") from error

    @uncollected()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a zip with one ``trace.json``; a file that is there is replaced only when the new one is whole."""
        target = Path(path)
        partial = target.with_name(target.name + ".part")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("trace.json", json.dumps(self.to_json()))
        partial.replace(target)

    @staticmethod
    @uncollected()
    def load(path: str | os.PathLike[str]) -> Trace:
        """Reads what ``save`` wrote, or bare JSON. Raises ``InvalidIR`` for anything else, ``FileNotFoundError`` for nothing."""
        raw = Path(path).read_bytes()
        try:
            if zipfile.is_zipfile(whole := io.BytesIO(raw)):
                with zipfile.ZipFile(whole) as archive:
                    raw = archive.read("trace.json")
            data = json.loads(raw)
        except DAMAGE as error:
            raise InvalidIR(f"{Path(path).name} is not a trace", why=str(error), hint="open a file written by Trace.save or --json") from error
        if not isinstance(data, dict):
            raise InvalidIR(f"{Path(path).name} is not a trace", hint="open a file written by Trace.save or --json")
        return Trace.from_json(data)

    @staticmethod
    def from_torch_trace(path: str | os.PathLike[str]) -> Trace:
        """The trace of a job that ran with ``TORCH_TRACE`` set: see ``torch_trace.open_torch_trace``."""
        from .torch_trace import open_torch_trace

        return open_torch_trace(path)


def seconds_of(steps: Iterable[Step]) -> float:
    """Together; what went on side by side counts once."""
    total, until = 0.0, -math.inf
    for step in sorted(steps, key=lambda s: -math.inf if s.start is None else s.start):
        if step.start is None:
            total += step.seconds
        elif (end := step.start + step.seconds) > until:
            total += end - max(step.start, until)
            until = end
    return total


def source_files(items: Iterable[Item]) -> dict[str, list[str]]:
    """file name -> its lines, for each of the user's files that an item points to; files without source, or written again since, are left out."""
    files = sorted({location.file for item in items for location in item.stack if not is_library(location.file)})
    return {f: [line.rstrip("\n") for line in lines] for f in files if (lines := lines_of(f))}


def _times(data: Mapping[str, Any]) -> tuple[float | None, str, tuple[Span, ...]]:
    """Start, parent and spans of a step; files of older releases have none."""
    start = data.get("start")
    spans = (Span(_str(name), float(at), float(seconds)) for name, at, seconds in _list(data.get("spans", ())))
    return None if start is None else float(start), _str(data.get("parent", "")), tuple(spans)


def _item(data: Mapping[str, Any]) -> Item:
    stack = tuple(map(_location, data["stack"]))
    return Item(_str(data["id"]), _str(data["kind"]), _str(data["text"]), tuple(map(_str, _list(data["parents"]))), stack, dict(data["facts"]))


def _location(data: Mapping[str, Any]) -> Location:
    return _place(*map(data.__getitem__, ("file", "line", "function", "column", "end_line", "end_column")))


@functools.lru_cache(65536)  # a stack's places are those of thousands of other items
def _place(file: Any, line: Any, function: Any, column: Any, end_line: Any, end_column: Any) -> Location:
    return Location(_str(file), int(line), _str(function), int(column), int(end_line), int(end_column))


def _decision(data: Mapping[str, Any]) -> Decision:
    subject = tuple(map(_str, _list(data["subject"])))
    return Decision(_str(data["kind"]), subject, _str(data["outcome"]), _str(data["reason"]), dict(data["facts"]))


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} stands where a text should")
    return value


def _list(value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{value!r:.60} stands where a list should")
    return value
