"""The film of a capture as plain data: what each instruction found, and what it changed.

In: a trace with steps "film" (``compile(..., options={"film": True})``). Out: ``film_data``: texts once each, and for every shot only what differs
from the one before it in the same call. Always holds: replayed from its first shot on, the data gives back the facts of the film's own items.
Left out: values; the film has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.artifact import Item, Plain
from ..core.provenance import Location, shown_name
from .trace import Trace, source_files

MOST, LEAST = 2000, 100  # steps of all films together; of a long one among others
ROOM = 300_000  # characters of texts, after which further films are left out of the page
HOW = "record the compile with options={'film': True}, or inspect(fn, ..., film=True)"


def film_data(trace: Trace, graph: int | None = None, full: bool = False) -> dict[str, Plain]:
    """The films of a trace, or that of one ``graph``. What has more than ``MOST`` steps is shown in larger ones, unless ``full``.

    films: [{"graph", "function", "broke", "instructions" (how many were executed), "grain" (what a step is, where it is not one of them),
    "texts": [str], "places": [{"name", "function", "first", "lines"}], "shots": [shot]}]
    shot: [depth, place, line, instruction, entries of the stack that stay, [pushed], [[local, value or -1 for gone]], [nodes], [guards]]; numbers
    but the first three and the stack's count are places in ``texts``. left: graphs whose films are too many for one page. how: what to do where there are none.
    """
    steps = [s for s in trace.steps if s.name == "film" and graph in (None, s.graph)]
    films = [(g, items) for g, a in ((s.graph, s.after) for s in steps) if (items := [i for i in a.items() if i.kind == "instruction"])]
    total = sum(len(items) for _, items in films) or 1
    files = trace._sources or source_files(i for _, items in films for i in items)
    most = lambda items: len(items) if full else max(MOST * len(items) // total, LEAST)
    made: list[dict[str, Any]] = []
    left: list[int] = []
    room = ROOM
    for number, items in films:
        if room > 0 or full or graph is not None:
            made.append(_film(number, items, files, most(items)))
            room -= sum(map(len, made[-1]["texts"]))
        else:
            left.append(number)
    return {"title": trace.title, "films": made, "left": left, "how": HOW}


@dataclass
class _Shot:
    """An instruction, or several of a line: the state before the first, and all that was added."""

    text: str
    where: Location
    facts: Mapping[str, Any]
    nodes: list[str]
    guards: list[str]
    count: int = 1

    @property
    def depth(self) -> int:
        return int(self.facts["depth"])

    def join(self, other: _Shot) -> None:
        self.nodes += other.nodes
        self.guards += other.guards
        self.count += other.count


def _coarser(items: list[Item], most: int) -> tuple[list[_Shot], str]:
    """At most ``most`` steps where that can be: of a line instead of an instruction, then without the deepest calls."""
    shots = [_Shot(i.text, i.stack[-1], i.facts, list(i.facts["nodes"]), list(i.facts["guards"])) for i in items]
    if len(shots) <= most:
        return shots, ""
    joined: list[_Shot] = []
    for shot in shots:
        if joined and (joined[-1].where, joined[-1].depth) == (shot.where, shot.depth):
            joined[-1].join(shot)
        else:
            joined.append(shot)
    deepest, said = max(s.depth for s in joined), "This film is long: each step is a line of the program."
    while len(joined) > most and deepest:
        deepest -= 1
        kept: list[_Shot] = []
        for shot in joined:
            if shot.depth > deepest and kept:
                kept[-1].join(shot)
            else:
                kept.append(shot)
        joined, said = kept, f"This film is long: each step is a line of the program, with all that was called from it below {deepest + 1} calls."
    for shot in joined:
        shot.text = f"{shot.count:,} instructions from {shot.text}" if shot.count > 1 else shot.text
    return joined, f"{said} view('film', full=True) has every instruction."


class _Texts:
    """Each text once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def all(self, texts: Sequence[str]) -> list[int]:
        return list(map(self, texts))


def _film(graph: int, items: list[Item], files: dict[str, list[str]], most: int) -> dict[str, Plain]:
    film, grain = _coarser(items, most)
    texts, places, last = _Texts(), _places(film, files), dict[int, tuple[list[str], dict[str, str]]]()
    number = {(p["file"], p["function"]): n for n, p in enumerate(places)}
    shots: list[list[Any]] = []
    for shot in film:
        depth, where, stack, names = shot.depth, shot.where, list(shot.facts["stack"]), dict(shot.facts["locals"])
        old_stack, old_names = last.get(depth, ([], {}))
        kept = next((k for k, (a, b) in enumerate(zip(old_stack, stack, strict=False)) if a != b), min(len(old_stack), len(stack)))
        changed = [[texts(name), texts(value)] for name, value in names.items() if old_names.get(name) != value]
        gone = [[texts(name), -1] for name in old_names if name not in names]
        head = [depth, number[where.file, where.function], where.line, texts(shot.text), kept, texts.all(stack[kept:]), changed + gone]
        shots.append([*head, texts.all(shot.nodes), texts.all(shot.guards)])
        last = {d: state for d, state in last.items() if d < depth} | {depth: (stack, names)}
    broke = next((str(i.facts["break"]) for i in items if i.facts["break"]), "")
    shown = [{k: v for k, v in p.items() if k != "file"} for p in places]
    head = {"graph": graph, "function": places[0]["function"], "broke": broke, "instructions": len(items), "grain": grain}
    return {**head, "texts": list(texts.numbers), "places": shown, "shots": shots}


def _places(film: list[_Shot], files: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The functions that the film passes through, each with its lines as far as they are known."""
    lines: dict[tuple[str, str], list[int]] = {}
    for shot in film:
        lines.setdefault((shot.where.file, shot.where.function), []).append(shot.where.line)
    found: list[dict[str, Any]] = []
    for (file, function), numbers in lines.items():
        first, last, text = min(numbers), max(numbers), files.get(file, [])
        found.append(
            {"file": file, "name": shown_name(file), "function": function, "first": first, "lines": text[first - 1 : last] if len(text) >= last else []}
        )
    return found
