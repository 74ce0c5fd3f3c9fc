"""Graph breaks as plain data: each place once, with the code around it, the reason, what to write instead, and the graphs it cost.

In: a trace: items of kind "break" of its captures, and of the steps "break" (frames, or graphs, that Python runs). Out: ``breaks_data``.
Always holds: two breaks at one line of one function for one reason are one, met twice.
"""

from __future__ import annotations

from typing import Any

from ..core.artifact import Item, Plain
from ..core.provenance import Location, is_library, shown_name
from .trace import Step, Trace, source_files

AROUND = 3


def breaks_data(trace: Trace) -> dict[str, Plain]:
    """breaks: [{"reason", "what", "why", "hint", "instruction", "before", "after" (programs: what breaks, what does not), "place", "function",
    "first", "line", "lines" (the code around it), "stack" (outermost first), "met" (times), "cut" (pairs of graphs that are one without it: graph
    number before, after or None), "whole" (it leaves all of a frame to Python)}], in the order in which they were met; "graphs": how many were made."""
    files = trace._sources or source_files(i for s in trace.steps if s.name in ("capture", "break") for i in s.after.items() if i.kind == "break")
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, step in enumerate(trace.steps):
        for item in step.after.items() if step.name in ("capture", "break") else ():
            if item.kind == "break":
                where = item.location or Location("", 0, "")
                key = (where.file, where.line, where.function, item.facts.get("reason", item.text))
                one = made.setdefault(key, {**_break(item, where, files), "met": 0, "cut": [], "whole": step.name == "break"})
                one["met"] += 1
                if step.name == "capture":
                    one["cut"].append([step.graph, _next(trace.steps[index + 1 :])])
    return {"title": trace.title, "breaks": list(made.values()), "graphs": len(trace.graphs)}


def _next(steps: list[Step]) -> int | None:
    """The graph that goes on behind a break."""
    return next((s.graph for s in steps if s.name == "capture"), None)


def _break(item: Item, where: Location, files: dict[str, list[str]]) -> dict[str, Any]:
    facts, text = item.facts, files.get(where.file, [])
    first = max(where.line - AROUND, 1)
    words = {name: str(facts.get(name, "")) for name in ("reason", "what", "why", "hint", "instruction", "before", "after")}
    words["what"] = words["what"] or item.text
    stack = [said(s, files) for s in item.stack if not is_library(s.file)]
    place = place_of(where) if where.line else "no line of yours"
    return {
        **words,
        "place": place,
        "function": where.function,
        "first": first,
        "line": where.line,
        "lines": text[first - 1 : where.line + AROUND],
        "stack": stack,
    }


def place_of(where: Location) -> str:
    """ "file.py:12", from a trace of any machine."""
    return f"{shown_name(where.file)}:{where.line}"


def said(where: Location, files: dict[str, list[str]]) -> str:
    """A location in words: ``Location.text``, but out of the sources that the trace carries."""
    lines = files.get(where.file, [])
    text = lines[where.line - 1].strip() if 0 < where.line <= len(lines) else ""
    return f"{place_of(where)}{f' in {where.function}' if where.function else ''}{f': {text}' if text else ''}"
