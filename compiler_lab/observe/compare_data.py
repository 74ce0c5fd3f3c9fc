"""Two traces of one function, stage by stage: ours beside the real compiler's, or two compiles of one stack.

In: two traces, live or loaded. Out: ``compare_data``, plain data for the compare view; ``Both``, what ``inspect(..., stack="both")`` gives.
Always holds: every count is of items, decisions and seconds of the traces, so it can be read back; lines stand in one row where both compilers have the same
operator, size and place in the order; what a trace does not have is None, and is said to be absent. PyTorch's counterpart: none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.artifact import Artifact, Item, Plain
from ..core.errors import UnknownOption
from ..core.provenance import shown_name
from ..core.report import Report
from .trace import Step, Trace, seconds_of
from .view import View, view

LIMITS, ROWS = (300, 200, 100, 50, 25), 2000  # rows of one stage: the most that keep all stages together below ROWS; the rest is counted and said
COMPUTES = ("call_function", "call_method", "call_module")
CODE = ("line", "triton")
Count = tuple[str, str]  # (what, unit): the unit is "" for a number of things, else "bytes" or "seconds"


@dataclass(frozen=True)
class Stage:
    """``steps``: the last of these in a trace is what is compared; seconds are of all. ``halves``: forward and backward are apart. ``pairs``: lines that
    do not correspond but stand at the same place share a row."""

    name: str
    title: str
    steps: tuple[str, ...]
    counts: Callable[[Artifact], dict[Count, int]]
    lines: Callable[[Artifact], list[Item]]
    key: Callable[[Item], str]
    halves: bool = False
    pairs: bool = True


def compare_data(trace: Trace, other: Trace | None = None) -> dict[str, Plain]:
    """``trace`` on the left, ``other`` on the right. Raises ``UnknownOption`` without ``other``.

    sides:  [{"name", "title", "environment", "graphs", "seconds"}]
    stages: [{"name", "title", "graph", "part", "present": [bool, bool], "counts": [count], "rows": [row], "same", "left_out"}]
    count:  {"what", "unit", "values": [left, right]}, None where a side has not got the stage; totals: the same over the whole trace
    row:    {"left": line, "right": line, "same"}; line: {"text", "line"} with the user's line as "f.py:3" or "", or None
    """
    if other is None:
        raise UnknownOption("compare needs a second trace", hint='view(trace, "compare", other=record_torch(f, x)), or inspect(f, x, stack="both")')
    pair = (trace, other)
    names = _names(pair)
    sides = [
        {"name": n, "title": t.title, "environment": t.environment, "graphs": len(t.graphs), "seconds": t.seconds} for n, t in zip(names, pair, strict=True)
    ]
    stages: list[dict[str, Plain]] = []
    for place in range(max(len(t.graphs) for t in pair)):
        chosen = [[s for s in t.steps if place < len(t.graphs) and s.graph == t.graphs[place]] for t in pair]
        for part in ("", "forward", "backward"):
            for stage in STAGES:
                if stage.halves == bool(part):
                    stages += _stage(stage, part, place, chosen)
    limit = next((n for n in LIMITS if sum(min(len(s["rows"]), n) for s in stages) <= ROWS), LIMITS[-1])
    for one in stages:
        one["left_out"] = max(len(one["rows"]) - limit, 0)
        one["rows"] = one["rows"][:limit]
    totals = _totals(stages)
    same = names == ("lab", "torch")
    return {"title": f"{trace.title}: {names[0]} against {names[1]}", "sides": sides, "stages": stages, "totals": totals, "lab_and_torch": same}


def _names(pair: tuple[Trace, Trace]) -> tuple[str, str]:
    left, right = ("torch" if t.environment.get("stack") == "torch.compile" else "lab" for t in pair)
    return (left, right) if left != right else (f"{left}, first", f"{right}, second")


def _stage(stage: Stage, part: str, place: int, chosen: Sequence[Sequence[Step]]) -> list[dict[str, Plain]]:
    """The stage of both sides, or nothing where neither has it."""
    steps = [[s for s in side if s.name in stage.steps and s.part == part] for side in chosen]
    if not any(steps):
        return []
    last = [side[-1].after if side else None for side in steps]
    counted = [None if a is None else stage.counts(a) for a in last]
    what = list(dict.fromkeys(k for c in counted if c is not None for k in c))
    counts: list[dict[str, Plain]] = [{"what": w, "unit": u, "values": [None if c is None else c.get((w, u), 0) for c in counted]} for w, u in what]
    counts.append({"what": "seconds", "unit": "seconds", "values": [seconds_of(side) if side else None for side in steps]})
    lines = [[] if a is None else stage.lines(a) for a in last]
    rows = list(_rows(lines[0], lines[1], stage))
    head = {"name": stage.name, "title": stage.title, "part": part, "graph": place, "present": [a is not None for a in last]}
    return [{**head, "counts": counts, "rows": rows, "same": sum(bool(r["same"]) for r in rows)}]


def _rows(left: Sequence[Item], right: Sequence[Item], stage: Stage) -> Iterable[dict[str, Plain]]:
    keys = [list(map(stage.key, side)) for side in (left, right)]
    blocks = difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes() if max(map(len, keys)) <= 4000 else _in_order(*keys)
    for tag, a, b, c, d in blocks:
        if tag == "replace" and not stage.pairs:
            yield from ({"left": _line(i), "right": None, "same": False} for i in left[a:b])
            yield from ({"left": None, "right": _line(i), "same": False} for i in right[c:d])
            continue
        for k in range(max(b - a, d - c)):
            one = _line(left[a + k]) if a + k < b else None
            two = _line(right[c + k]) if c + k < d else None
            yield {"left": one, "right": two, "same": tag == "equal"}


def _in_order(left: list[str], right: list[str]) -> list[tuple[str, int, int, int, int]]:
    """Of very long lists: what stands at the same place. The exact comparison grows with the product of both lengths."""
    shared = min(len(left), len(right))
    found = [("equal" if left[k] == right[k] else "replace", k, k + 1, k, k + 1) for k in range(shared)]
    return [*found, ("replace", shared, len(left), shared, len(right))]


def _line(item: Item) -> dict[str, Plain]:
    place = item.location
    return {"text": item.text, "line": "" if place is None else f"{shown_name(place.file)}:{place.line}"}


def _totals(stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Plain]]:
    """Over all graphs and halves; a side that has the stage nowhere has None."""
    found: dict[tuple[str, str, str], list[int | float | None]] = {}
    for stage in stages:
        for c in stage["counts"]:
            sums = found.setdefault((stage["title"] if c["what"] == "seconds" else "", c["what"], c["unit"]), [None, None])
            if stage["name"] in TOTALS.get(c["what"], (stage["name"],)):
                for side, value in enumerate(c["values"]):
                    sums[side] = sums[side] if value is None else (sums[side] or 0) + value
    rows = [{"what": what, "unit": unit, "values": v} for (_, what, unit), v in found.items() if what in TOTALS]
    spent = [[value for (_, what, _), v in found.items() if what == "seconds" and (value := v[side]) is not None] for side in (0, 1)]
    return [*rows, {"what": "seconds in these stages", "unit": "seconds", "values": [sum(s) if s else None for s in spent]}]


TOTALS: dict[str, tuple[str, ...]] = {  # what is summed, and over which stages
    "nodes captured": ("capture",),
    "graph breaks": ("capture",),
    "compiles after the first": ("capture",),
    "checks": ("guard",),
    "tensors saved": ("partition",),
    "bytes saved": ("partition",),
    "nodes recomputed": ("partition",),
    "loops": ("lower",),
    "kernels": ("generate",),
    "library calls": ("schedule",),
    "lines of kernels": ("generate",),
}


# ---- what is counted, and which lines are shown ----


def _count(artifact: Artifact, keep: Callable[[Item], bool]) -> int:
    return sum(map(keep, artifact.items()))


def _capture(a: Artifact) -> dict[Count, int]:
    decided = lambda kind: sum(d.kind == kind for d in a.decisions)
    return {
        ("nodes captured", ""): _count(a, lambda i: i.kind in COMPUTES), ("inputs", ""): _count(a, lambda i: i.kind == "placeholder"),
        ("graph breaks", ""): decided("break"), ("compiles after the first", ""): decided("recompile"),
        ("instructions", ""): _count(a, lambda i: i.kind == "instruction"),
    }  # fmt: skip


def _guard(a: Artifact) -> dict[Count, int]:
    return {("checks", ""): _count(a, lambda i: i.kind != "source"), ("values looked at", ""): _count(a, lambda i: i.kind == "source")}


def _nodes(a: Artifact) -> dict[Count, int]:
    return {("nodes", ""): _count(a, lambda i: i.kind in COMPUTES)}


def _partition(a: Artifact) -> dict[Count, int]:
    saved = [d for d in a.decisions if (d.kind, d.outcome) == ("save", "saved")]
    half = lambda name: _count(a, lambda i: i.kind in COMPUTES and i.id.startswith(f"aot.{name}/"))
    return {
        ("nodes in the forward", ""): half("forward"), ("nodes in the backward", ""): half("backward"), ("tensors saved", ""): len(saved),
        ("bytes saved", "bytes"): sum(int(d.facts.get("bytes", 0)) for d in saved), ("nodes recomputed", ""): len(_recomputed(a)),
    }  # fmt: skip


def _recomputed(a: Artifact) -> set[str]:
    """Names that both halves compute."""
    of = lambda half: {i.id.partition("/")[2] for i in a.items() if i.kind in COMPUTES and i.id.startswith(f"aot.{half}/")}
    return of("forward") & of("backward")


def _lower(a: Artifact) -> dict[Count, int]:
    top = [i for i in a.items() if ":" not in i.id]
    calls = sum(i.kind == "extern" for i in top)
    return {("loops", ""): len(top) - calls, ("library calls", ""): calls, ("statements", ""): len(a.items()) - len(top)}


def _schedule(a: Artifact) -> dict[Count, int]:
    groups = [i for i in a.items() if i.id.count("/") == 1]
    fused = lambda outcome: sum(d.kind == "fuse" and d.outcome == outcome for d in a.decisions)
    calls = sum(i.kind == "extern" for i in groups)
    internal = sum(len(i.facts.get("internal", ())) for i in groups)
    return {
        ("groups of loops", ""): len(groups) - calls, ("library calls", ""): calls, ("pairs fused", ""): fused("accepted"),
        ("pairs refused", ""): fused("refused"), ("buffers that never reach memory", ""): internal,
    }  # fmt: skip


def _generate(a: Artifact) -> dict[Count, int]:
    return {
        ("kernels", ""): _count(a, lambda i: i.kind == "kernel"), ("lines of kernels", ""): _count(a, _in_kernel),
        ("lines of the wrapper", ""): _count(a, lambda i: i.kind == "wrapper"),
    }  # fmt: skip


def _build(a: Artifact) -> dict[Count, int]:
    return {("kernels built", ""): _count(a, lambda i: i.kind == "kernel"), ("instructions", ""): _count(a, lambda i: i.kind == "assembly")}


def _in_kernel(i: Item) -> bool:
    return i.kind in CODE and "/source:" not in i.id


def _of_graph(a: Artifact) -> list[Item]:
    return [i for i in a.items() if i.kind in (*COMPUTES, "placeholder", "output", "get_attr")]


def _of_guards(a: Artifact) -> list[Item]:
    """Checks by the value they look at, so that both trees have one order."""
    owner = {i.id: i.text for i in a.items()}
    checks = [i for i in a.items() if i.kind != "source"]
    named = [(owner.get(i.parents[0], "") if i.parents else "", i) for i in checks]
    said = lambda source, i: replace(i, text=f"{source}: {i.text}" if source else i.text, facts={**i.facts, "source": source})
    return [said(source, i) for source, i in sorted(named, key=lambda pair: pair[0])]


def _of_code(a: Artifact) -> list[Item]:
    return [i for i in a.items() if _in_kernel(i)]


def _of_loops(a: Artifact) -> list[Item]:
    return [i for i in a.items() if ":" not in i.id]


def _of_groups(a: Artifact) -> list[Item]:
    """Each kernel or call and, indented, what it holds."""
    return [i if i.id.count("/") == 1 else replace(i, text=f"    {i.text}") for i in a.items()]


def _of_build(a: Artifact) -> list[Item]:
    return [i for i in a.items() if i.kind == "kernel"]


def _operator(i: Item) -> str:
    """The same operator on the same sizes: ``+`` is ``torch.add`` to neither, but names of nodes do not count."""
    return f"{i.kind} {i.facts.get('target') if i.kind in COMPUTES else ''} {i.facts.get('value', '')}"


def _looked_at(i: Item) -> str:
    return str(i.facts.get("source", ""))


def _loop(i: Item) -> str:
    sizes = sorted(str(s) for s in dict(i.facts.get("outputs", {})).values())
    return f"{i.kind} {sizes}" if sizes else re.sub(r"\w+", "", i.text)


def _group(i: Item) -> str:
    """A kernel or call, or what it holds: by the value that is made."""
    if i.id.count("/") == 1:
        return f"group {i.kind == 'extern'}"
    value = re.search(r": (\S+\[[^\]]*\])", i.text)
    return f"{value[1] if value else i.text} {i.kind == 'reduction'}"


def _text(i: Item) -> str:
    return i.text.strip()


JOINT = ("joint", "functionalize", "eliminate dead code", "decompose", "simplify views", "eliminate common subexpressions")
STAGES: tuple[Stage, ...] = (
    Stage("capture", "Capture", ("capture",), _capture, _of_graph, _operator),
    Stage("guard", "Guards", ("guard",), _guard, _of_guards, _looked_at, pairs=False),
    Stage("joint", "Joint graph", JOINT, _nodes, _of_graph, _operator),
    Stage("partition", "Partition", ("partition",), _partition, _of_graph, _operator),
    Stage("lower", "Loops before fusion", ("lower",), _lower, _of_loops, _loop, halves=True),
    Stage("schedule", "Loops after fusion", ("schedule",), _schedule, _of_groups, _group, halves=True),
    Stage("generate", "Generated kernels", ("generate",), _generate, _of_code, _text, halves=True),
    Stage("build", "Built kernels", ("build",), _build, _of_build, _text, halves=True),
)


@dataclass(frozen=True, repr=False)
class Both(Report):
    """Traces of one call by both compilers. In a notebook it is the compare view."""

    lab: Trace
    torch: Trace

    @property
    def traces(self) -> tuple[Trace, Trace]:
        return self.lab, self.torch

    def view(self, name: str = "compare") -> View:
        """ "compare" or "time": the views that set one trace beside the other."""
        return view(self.lab, name, other=self.torch)

    def text(self) -> str:
        return self.view().text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.view()._repr_mimebundle_()
