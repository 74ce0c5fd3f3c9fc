"""Where time goes: phases of each compile, one inside the other, on one axis; and the kernels of a call that was measured.

In: a trace of either stack, live or loaded, with another to set beside it or without. Out: ``time_data``, plain data for the time view.
Our phases are the steps with their spans, the real compiler's are those of its own log (``torch_phases.py``); a compile is a phase that holds its steps.
Always holds: seconds are the trace's own; a phase's own time is its seconds without those of the phases inside it, side by side counted once, so that own
times of what follows one another add up to the whole. Idle time between compiles is cut out of the axis, and each cut says how much.
PyTorch's counterpart: ``chromium_events`` of ``TORCH_TRACE``, which tlparse hands to Perfetto; ``torch.profiler`` for the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.artifact import Item, Plain
from ..core.errors import Unsupported
from .torch_phases import PHASES
from .trace import ABOUT_FRAMES, Step, Trace

SAME = 1e-6  # seconds: torch's clock tells microseconds, and what begins when another one ends does not overlap
IDLE = 0.02  # of all busy time: a longer pause between compiles is cut to this
OURS = {theirs: step for step, names in PHASES.items() for theirs in names}
PROFILE = "profile"  # the step of a measured call


Row = dict[str, Any]


@dataclass
class Phase:
    """``start`` counts from the beginning of the trace. ``step``: the name of our step that it is, or that torch's phase corresponds to."""

    name: str
    start: float
    seconds: float
    step: str = ""
    part: str = ""
    inside: list[Phase] = field(default_factory=list["Phase"])

    @property
    def end(self) -> float:
        return self.start + self.seconds


def time_data(trace: Trace, other: Trace | None = None) -> dict[str, Plain]:
    """Raises ``Unsupported`` where the trace has neither phases nor a measured call.

    sides:  [{"name", "title", "known", "seconds", "length", "lanes", "phases": [phase], "cuts": [cut]}], of ``trace`` and, if there is one, of ``other``;
            "known" is False where the trace was saved without beginnings: its steps then stand one after another. "length": of the axis, in seconds
    phase:  {"name", "step", "part", "start", "at", "seconds", "own", "share", "depth", "lane", "parent"}: "at" is "start" on the axis without the cuts,
            "share" of the side's seconds, "depth" the phases that it stands in, "lane" its row, "parent" a place in the list or -1
    cut:    {"at", "start", "seconds"}: idle time that the axis leaves out
    steps:  [{"name", "seconds": [of each side]}], where there are two sides; None where a side has no such step
    calls:  [call], see ``_call``
    """
    traces = [trace] if other is None else [trace, other]
    sides = [_side(t, name) for t, name in zip(traces, _names(traces), strict=True)]
    calls = [_call(step) for t in traces for step in t.steps if step.name == PROFILE]
    if not calls and not any(side["phases"] for side in sides):
        raise Unsupported("nothing in this trace took time that was told", reason="no-times", hint="record a compile: inspect(f, x)")
    return {"title": f"Time of {trace.title}", "sides": sides, "steps": _beside(sides), "calls": calls}


def _names(traces: Sequence[Trace]) -> list[str]:
    found = ["torch" if t.environment.get("stack") == "torch.compile" else "lab" for t in traces]
    return found if len(set(found)) == len(found) else [f"{name}, {place}" for name, place in zip(found, ("first", "second"), strict=True)]


# ---- phases ----


def _side(trace: Trace, name: str) -> Row:
    steps = [s for s in trace.steps if s.name != PROFILE]
    known = all(s.start is not None for s in steps)
    found = _torch_phases(steps, trace.zero) if any(s.name == "phases" for s in steps) else _lab_phases(steps if known else _end_to_end(steps), trace.zero)
    roots = sorted(found, key=lambda p: p.start)
    busy = _covered(roots)
    cuts = _cuts(roots, IDLE * busy)
    rows: list[Row] = []
    for root in roots:
        _list(root, -1, 0, rows)
    _lanes(rows)
    for row in rows:
        row["at"] = row["start"] - roots[0].start - math.fsum(c["seconds"] for c in cuts if c["start"] < row["start"])
        row["share"] = row["seconds"] / busy if busy else 0.0
    length = max((r["at"] + r["seconds"] for r in rows), default=0.0)
    lanes = max((r["lane"] + 1 for r in rows), default=0)
    return {"name": name, "title": trace.title, "known": known, "seconds": busy, "length": length, "lanes": lanes, "phases": rows, "cuts": cuts}


def _end_to_end(steps: Sequence[Step]) -> list[Step]:
    """Steps of a file without beginnings, one after another, each compile its graph's."""
    found: list[Step] = []
    at = 0.0
    for s in steps:
        found.append(Step(s.name, s.before, s.after, s.seconds, s.part, s.graph, at, str(s.graph)))
        at += s.seconds
    return found


def _lab_phases(steps: Sequence[Step], zero: float) -> list[Phase]:
    """A phase for each compile, which holds its steps."""
    compiles: dict[str, list[Step]] = {}
    for s in steps:
        compiles.setdefault(s.parent, []).append(s)
    made: list[Phase] = []
    for own in compiles.values():
        inside = [_step(s, zero) for s in own if s.seconds > 0.0]
        if inside:
            start = min(p.start for p in inside)
            made.append(Phase(_compile_name(own), start, max(p.end for p in inside) - start, "compile", "", inside))
    return made


def _step(step: Step, zero: float) -> Phase:
    start = (step.start or 0.0) - zero
    name = "capture, left to Python" if step.name == "break" else step.name
    return Phase(name, start, step.seconds, step.name, step.part, _nested([Phase(s.name, start + s.start, s.seconds, "", step.part) for s in step.spans]))


def _compile_name(steps: Sequence[Step]) -> str:
    """ "compile of f, graph 2", with what it is compiled again for."""
    function = next((i.stack[-1].function for s in steps if s.name in ("capture", "break") for i in s.after.items() if i.stack), "")
    again = next((", compiled again" for s in steps if s.name == "recompile"), "")
    sizes = "" if any(s.name in ("capture", "break") for s in steps) or not steps[0].parent else ", for other sizes"
    return f"compile{f' of {function}' if function else ''}, graph {steps[0].graph}{again}{sizes}"


def _torch_phases(steps: Sequence[Step], zero: float) -> list[Phase]:
    """The phases of torch's own log, of each compile; what stands in none is a compile."""
    made: list[Phase] = []
    for s in steps:
        if s.name != "phases":
            continue
        begin = 0.0 if s.start is None else s.start - zero
        found: dict[str, Phase] = {}
        for i in s.after.items():
            name = str(i.facts["name"])
            phase = found[i.id] = Phase(name, begin + float(i.facts["start"]), float(i.facts["seconds"]), OURS.get(name, ""))
            above = next((found[p] for p in i.parents if p in found), None)
            if above is not None:
                above.inside.append(phase)
            else:
                phase.name, phase.step = f"{phase.name}, graph {s.graph}", phase.step or "compile"
                made.append(phase)
    return made


def _nested(phases: Iterable[Phase]) -> list[Phase]:
    """By containment: what one thread did."""
    roots: list[Phase] = []
    above: list[Phase] = []
    for p in sorted(phases, key=lambda p: (p.start, -p.seconds)):
        while above and above[-1].end < p.end:
            above.pop()
        (above[-1].inside if above else roots).append(p)
        above.append(p)
    return roots


def _covered(phases: Iterable[Phase]) -> float:
    """Seconds in which at least one of them goes on."""
    total, until = 0.0, -math.inf
    for p in sorted(phases, key=lambda p: p.start):
        total += max(p.end - max(p.start, until), 0.0)
        until = max(until, p.end)
    return total


def _list(phase: Phase, parent: int, depth: int, rows: list[Row]) -> None:
    """``phase`` and what is inside it, in order."""
    place = len(rows)
    own = max(phase.seconds - _covered(phase.inside), 0.0)
    times = {"start": phase.start, "seconds": phase.seconds, "own": own}
    rows.append({"name": phase.name, "step": phase.step, "part": phase.part, **times, "depth": depth, "parent": parent})
    for one in sorted(phase.inside, key=lambda p: (p.start, -p.seconds)):
        _list(one, place, depth + 1, rows)


def _lanes(rows: Sequence[Row]) -> None:
    """A row of the picture for each phase: below the one it stands in, and below what goes on at the same time."""
    taken: list[list[tuple[float, float]]] = []
    for row in rows:
        lane = 0 if row["parent"] < 0 else rows[row["parent"]]["lane"] + 1
        start, end = row["start"], row["start"] + row["seconds"]
        while lane < len(taken) and any(a < end - SAME and start < b - SAME for a, b in taken[lane]):
            lane += 1
        while lane >= len(taken):
            taken.append([])
        taken[lane].append((start, end))
        row["lane"] = lane


def _cuts(roots: Sequence[Phase], most: float) -> list[Row]:
    """What the axis leaves out of the pauses between compiles, so that none is longer than ``most``."""
    found: list[Row] = []
    first = until = roots[0].start if roots else 0.0
    left_out = 0.0
    for root in roots:
        if (idle := root.start - until) > most:
            found.append({"at": until + most - first - left_out, "start": until + most, "seconds": idle - most})
            left_out += idle - most
        until = max(until, root.end)
    return found


def _beside(sides: Sequence[Row]) -> list[dict[str, Plain]]:
    """Seconds of each of our steps and of what corresponds to it in the other stack."""
    if len(sides) < 2:
        return []
    totals: list[dict[str, float]] = []
    for side in sides:
        found: dict[str, list[Phase]] = {}
        for p in side["phases"]:
            if p["step"]:
                found.setdefault(str(p["step"]), []).append(Phase("", p["start"], p["seconds"]))
        totals.append({step: _covered(phases) for step, phases in found.items()})
    names = dict.fromkeys(step for total in totals for step in total)
    return [{"name": name, "seconds": [total.get(name) for total in totals]} for name in names if name not in ABOUT_FRAMES]


# ---- calls ----


def _call(step: Step) -> dict[str, Plain]:
    """{"name", "repeats", "seconds", "kernels", "outside", "timer", "language", "backward", "programs"}; "kernels": the sum of the kernels' seconds,
    "outside": the whole call without them. programs: [{"name", "seconds", "kernels": [{"name", "kind", "what", "line", "seconds", "bytes", "rate"}]}]"""
    items = step.after.items()
    (call,) = (i for i in items if i.kind == "measured call")
    programs: list[Row] = [
        {"name": p.text, "seconds": p.facts["seconds"], "kernels": [_kernel(i) for i in items if p.id in i.parents]} for p in items if p.kind == "program"
    ]
    total = sum(k["seconds"] for p in programs for k in p["kernels"])
    whole = call.facts["seconds"]
    head = {name: call.facts[name] for name in ("repeats", "timer", "language", "backward")}
    return {"name": call.text, **head, "seconds": whole, "kernels": total, "outside": whole - total, "programs": programs}


def _kernel(item: Item) -> dict[str, Plain]:
    seconds, size = item.facts["seconds"], item.facts["bytes"]
    return {
        "name": item.id.rpartition("/")[2], "kind": item.kind, "what": item.text, "line": item.location.text() if item.location else "",
        "seconds": seconds, "bytes": size, "rate": size / seconds / 1e9 if seconds > 0.0 else None,
    }  # fmt: skip
