"""The memory plan as plain data: which bytes each buffer has while which kernels run, and how many bytes live at each moment.

In: a trace with steps "schedule" and "plan memory" and, before them, "lower". Out: ``memory_data``, plain data for the memory view.
Always holds: the greatest value of each curve is the plan's own figure (peak, bound, op by op); times are places in the order of kernels, both ends included;
a result lives to the end. Inputs have bytes as in the plan's figures: only those that nobody but a backward holds, from the start to their last reader.
PyTorch's counterpart: none; ``torch/_inductor/codegen/memory_planning.py`` logs its pools.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.artifact import Artifact, Item, Plain
from .trace import Trace

FIGURES = ("peak", "bound", "eager", "arena")
Lives = Mapping[str, tuple[int, int]]


def memory_data(trace: Trace) -> dict[str, Plain]:
    """{"title", "programs": [{"name", "kernels", "buffers", "inputs", "figures", "curves"}]}, a program for each schedule with a plan.

    ``kernels``: {"name", "what", "line", "reads", "writes"} in order. ``buffers``: {"name", "what", "bytes", "first", "last", "place", "host", "offset",
    "reserved", "over", "after", "reason", "line", "result"}: ``place`` is "arena", "inside" (of ``host``) or "own"; ``reserved`` the bytes its slot has.
    ``inputs``: {"name", "readers", "last", "bytes"}, "bytes" 0 where they do not count.
    ``figures``: peak, bound, eager, arena in bytes. ``curves``: "ours" and "bound" by kernel, "eager" by operator."""
    programs: list[Plain] = []
    several = len(trace.graphs) > 1
    last = lambda name, step: next((s.after for s in reversed(trace.steps) if s.name == name and s.part == step.part and s.graph == step.graph), None)
    for step in trace.steps:
        if step.name != "schedule" or (plan := last("plan memory", step)) is None:
            continue
        name = ", ".join([*([f"graph {step.graph}"] if several else []), step.part or "all"])
        programs.append({"name": name, **_program(last("lower", step), step.after, plan)})
    return {"title": f"Memory of {trace.title}", "programs": programs}


def _program(lower: Artifact | None, schedule: Artifact, plan: Artifact) -> dict[str, Plain]:
    groups = [i for i in schedule.items() if i.id.count("/") == 1]
    made = {i.id.rpartition("/")[2]: i for i in schedule.items() if i.id.count("/") == 2}
    slots = {i.id.rpartition("/")[2]: i.facts for i in plan.items() if i.kind == "slot"}
    why = {d.subject[0].rpartition("/")[2]: d for d in plan.decisions if d.kind == "reuse"}
    sizes: dict[str, int] = {name: size for g in groups for name, size in g.facts.get("bytes", {}).items()}
    results = {name for g in groups for name in g.facts.get("results", [])}
    spans = _spans([(g.facts["reads"], g.facts["writes"]) for g in groups], results)
    buffers = [_buffer(name, made.get(name), sizes, spans[name], slots.get(name), why.get(name), name in results) for g in groups for name in g.facts["writes"]]
    readers: dict[str, list[int]] = {}
    for i, g in enumerate(groups):
        for name in g.facts["reads"]:
            readers.setdefault(name, []).append(i)
    lives = _outside(spans, slots)
    own = next((i.facts for i in plan.items() if i.kind == "figures"), None)
    held: Mapping[str, int] = own["held"] if own is not None else {}
    sizes = {**sizes, **held}
    given = {name: (0, found[-1] if (found := readers.get(name)) else 0) for name in held}
    arena = own["arena"] if own is not None else max((s["offset"] + s["bytes"] for s in slots.values() if not s["host"]), default=0)
    curves = {
        "ours": [arena + n for n in _alive({**lives, **given}, sizes, len(groups))],
        "bound": _alive({**spans, **given}, sizes, len(groups)),
        "eager": _op_by_op(lower, sizes, results, held),
    }
    tops = {"peak": max(curves["ours"], default=0), "bound": max(curves["bound"], default=0), "eager": max(curves["eager"], default=0), "arena": arena}
    return {
        "kernels": [_kernel(g) for g in groups],
        "buffers": buffers,
        "inputs": [
            {"name": name, "readers": found, "last": found[-1], "bytes": held.get(name, 0)} for name, found in readers.items() if name not in spans
        ],
        "figures": {name: own[name] for name in FIGURES} if own is not None else tops,  # a file of an older release has no figures
        "curves": curves,
    }  # fmt: skip


def _kernel(g: Item) -> dict[str, Plain]:
    line = g.location.text() if g.location else ""
    return {"name": g.id.rpartition("/")[2], "what": g.text, "line": line, "reads": list(g.facts["reads"]), "writes": list(g.facts["writes"])}


def _buffer(name: str, item: Item | None, sizes: Mapping[str, int], span: tuple[int, int], slot: Any, why: Any, result: bool) -> dict[str, Plain]:
    facts = why.facts if why is not None else {}
    host = slot["host"] if slot else ""
    return {
        "name": name, "what": str(item.facts.get("origin", item.kind)) if item else "", "bytes": sizes.get(name, 0), "first": span[0], "last": span[1],
        "place": "own" if not slot else "inside" if host else "arena", "host": host, "offset": slot["offset"] if slot else 0,
        "reserved": slot["bytes"] if slot else sizes.get(name, 0), "over": facts.get("over", ""), "after": list(facts.get("after", [])),
        "reason": why.reason if why is not None else "", "line": item.location.text() if item and item.location else "", "result": result,
    }  # fmt: skip


def _spans(steps: Sequence[tuple[Iterable[str], Iterable[str]]], results: Iterable[str]) -> dict[str, tuple[int, int]]:
    """From where each buffer is written to its last reader; results live to the end."""
    first = {name: i for i, (_, writes) in enumerate(steps) for name in writes}
    last = {**first, **{name: i for i, (reads, _) in enumerate(steps) for name in reads if name in first}}
    return {name: (i, len(steps) - 1 if name in results else last[name]) for name, i in first.items()}  # fmt: skip


def _outside(spans: Lives, slots: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """What is not in the arena; what lies in another buffer's memory keeps that alive."""
    lives = {name: span for name, span in spans.items() if name not in slots}
    for slot in slots.values():
        if slot["host"] in lives:
            first, last = lives[slot["host"]]
            lives[slot["host"]] = min(first, slot["first"]), max(last, slot["last"])
    return lives


def _alive(lives: Lives, sizes: Mapping[str, int], steps: int) -> list[int]:
    change = [0] * (steps + 1)
    for name, (first, last) in lives.items():
        change[first] += sizes.get(name, 0)
        change[last + 1] -= sizes.get(name, 0)
    return list(itertools.accumulate(change))[:steps]


def _op_by_op(lower: Artifact | None, sizes: Mapping[str, int], results: Iterable[str], held: Iterable[str]) -> list[int]:
    """Bytes alive at each operator if every one ran by itself."""
    nodes = [i for i in lower.items() if "outputs" in i.facts] if lower is not None else []
    own = {name: i.facts.get("bytes", 0) for i in nodes if len(i.facts["outputs"]) == 1 for name in i.facts["outputs"]}
    spans = _spans([(i.facts["inputs"], i.facts["outputs"]) for i in nodes], results)
    last = {name: k for k, i in enumerate(nodes) for name in i.facts["inputs"]}
    return _alive({**spans, **{name: (0, last.get(name, 0)) for name in held}}, {**own, **sizes}, len(nodes))
