"""Guards as plain data: each compile's tree of values with its checks, and the timeline of recompiles with the check that failed; and the answer
to "would this call fit?".

In: a trace: its steps "guard" (items of kind "source", and the checks below them) and "recompile". Out: ``guards_data``; ``answer`` for the widget.
Always holds: the same of a loaded trace, and of one of the real stack, but for costs and answers: those need the live tree and its frame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from ..core.artifact import Item, Plain
from ..core.provenance import own_location
from .breaks_data import said
from .trace import Step, Trace, source_files

NOT_LIVE = "a saved trace holds the checks, not what they look at: compile the function again to try inputs"


def guards_data(trace: Trace, graph: int | None = None, costs: bool = False) -> dict[str, Plain]:
    """trees: [{"graph", "function", "nodes": [{"id", "path", "label", "up" (place in nodes, -1 at a root), "checks"}], "relations": [check],
    "inputs": [{"name", "held"}], "nanoseconds" (the whole check, or None)}]
    check: {"id", "kind", "text", "why", "line" (place in "lines", -1 for none), "nanoseconds" (None where not measured), "missed": [recompiles]}
    recompiles: [{"number" (0: the limit was reached), "function", "graph", "caller", "failures": [{"source", "kind", "expected", "got", "line",
    "advice", "check" (id), "tree" (place in trees; -1 for unknown)}]}]. ``costs``: measures each check on the frame of the compile; it takes a moment.
    """
    files = trace._sources or source_files(i for s in trace.steps if s.name in ("guard", "recompile") for i in s.after.items())
    lines: dict[str, int] = {}
    steps = [s for s in trace.steps if s.name == "guard" and graph in (None, s.graph)]
    trees = [_tree(step, lines, files, _spent(step) if costs else {}) for step in steps]
    points = [p for s in trace.steps for p in _points(s, lines, files)]
    for n, point in enumerate(points):
        for failure in point["failures"]:
            _place(failure, n, [(k, t) for k, t in enumerate(trees) if t["graph"] < point["graph"] or not point["number"]])
    return {"title": trace.title, "trees": trees, "recompiles": points, "lines": list(lines), "measured": costs and any(t["nanoseconds"] for t in trees)}


def _tree(step: Step, lines: dict[str, int], files: dict[str, list[str]], spent: Mapping[str, float]) -> dict[str, Any]:
    items = step.after.items()
    places = {i.id: n for n, i in enumerate([i for i in items if i.kind == "source"])}
    nodes: list[dict[str, Any]] = []
    relations: list[dict[str, Any]] = []
    paths = {i.id: i.text for i in items if i.kind == "source"}
    for item in items:
        if item.kind == "source":
            up = places.get(item.parents[0], -1) if item.parents else -1
            above = paths[item.parents[0]] if up >= 0 else ""
            nodes.append({"id": item.id, "path": item.text, "label": item.text.removeprefix(above) or item.text, "up": up, "checks": []})
            continue
        one = {"id": item.id, "kind": item.kind, "text": _words(item), "why": str(item.facts.get("why", "")), "missed": []}
        one |= {"line": _line(item, lines, files), "nanoseconds": spent.get(item.id)}
        own = len(item.parents) == 1 and item.parents[0] in places and item.id.startswith(item.parents[0] + ":")
        (nodes[places[item.parents[0]]]["checks"] if own else relations).append(one)
    inputs = [
        {"name": m[1], "held": "; ".join(c["text"] for c in n["checks"])} for n in nodes if n["up"] < 0 and (m := re.fullmatch(r"L\['(\w+)'\]", n["path"]))
    ]
    function = _function(step)
    whole = next((v for k, v in spent.items() if k.endswith("/check")), None)
    return {"graph": step.graph, "function": function, "nodes": nodes, "relations": relations, "inputs": inputs, "nanoseconds": whole}


def _words(item: Item) -> str:
    """The check without its kind, where the rest says it."""
    return item.text.replace(": ", " ", 1) if item.kind == "equals" else item.text.removeprefix(f"{item.kind}: ")


def _line(item: Item, lines: dict[str, int], files: dict[str, list[str]]) -> int:
    where = item.location
    return -1 if where is None else lines.setdefault(said(where, files), len(lines))


def _function(step: Step) -> str:
    """The frame's name, from the bytecode of the capture that the guards came with."""
    items = step.before.items() if step.before is not None else ()
    return next((i.stack[-1].function for i in items if i.kind == "instruction" and i.stack), "")


def _spent(step: Step) -> dict[str, float]:
    """Nanoseconds by id; empty where the tree is a saved one, or its frame has changed since."""
    tree: Any = step.after
    frame = getattr(step.before, "frame", None)
    if frame is None or not hasattr(tree, "costs") or not tree.check(frame.locals):
        return {}
    return {i.id: i.facts["nanoseconds"] for i in tree.costs(frame.locals)}


def _points(step: Step, lines: dict[str, int], files: dict[str, list[str]]) -> list[dict[str, Any]]:
    """A recompile of ours is a step of its own; the real stack's are decisions of the capture that followed."""
    if step.name == "capture":
        told = [d for d in step.after.decisions if d.kind == "recompile"]
        words = [{"source": "", "kind": "", "expected": d.reason, "got": "", "line": -1, "advice": "", "values": None} for d in told]
        return [{"number": step.graph + 1, "function": told[0].subject[0], "graph": step.graph, "caller": "", "failures": words}] if told else []
    if step.name != "recompile":
        return []
    items = step.after.items()
    head = items[0]
    caller = said(head.stack[-1], files) if head.stack else ""
    failures = [{**{k: i.facts[k] for k in ("source", "kind", "expected", "got", "advice", "values")}, "line": _line(i, lines, files)} for i in items[1:]]
    return [{"number": head.facts["number"], "function": head.facts["function"], "graph": step.graph, "caller": caller, "failures": failures}]


def _place(failure: dict[str, Any], point: int, trees: list[tuple[int, dict[str, Any]]]) -> None:
    """Finds the check that failed, in the latest tree that has it with what it expected."""
    failure |= {"tree": -1, "check": ""}
    for number, tree in reversed(trees):
        one = find_check(tree, failure["source"], failure["kind"], failure["expected"], failure.get("values"))
        if one is not None and point not in one["missed"] and (failure["tree"] < 0):
            one["missed"].append(point)
            failure |= {"tree": number, "check": one["id"]}


def find_check(tree: Mapping[str, Any], source: str, kind: str, expected: str, values: Any = None) -> dict[str, Any] | None:
    """The check of a tree that a failure names: by the value it looks at, its kind, and what it expects."""
    sizes = None if values is None else "[" + ", ".join("?" if n is None else str(n) for n in values[0]) + "]"
    below = [c for n in tree["nodes"] if n["path"] == source for c in n["checks"]]
    if kind == "missing":
        below = [c for n in tree["nodes"] if n["path"].startswith(source) for c in n["checks"]]
    named = [c for c in (*below, *tree["relations"]) if c["kind"] == kind or kind == "missing"]
    if sizes is not None:
        return next((c for c in named if sizes in c["text"]), None)
    exact = [c for c in named if expected in c["text"] or c["text"] in expected]
    return next(iter(exact or named), None)


def answer(trace: Trace, question: Mapping[str, Any]) -> dict[str, Plain]:
    """What the guards of a compile say to a call. question: {"tree": its place among the trees, "values": {argument: Python expression}}.

    An expression sees the frame's arguments by name, its globals, and ``torch``; what is not given stays as at the compile.
    The answer: {"fits": bool, "text", and where it does not: "check" (id), "line", "advice"}, or {"error": text}.
    """
    step = [s for s in trace.steps if s.name == "guard"][int(question["tree"])]
    tree: Any = step.after
    frame = getattr(step.before, "frame", None)
    if frame is None or not hasattr(tree, "explain"):
        return {"error": NOT_LIVE}
    locals = dict(frame.locals)
    for name, expression in question.get("values", {}).items():
        if not str(expression).strip():
            continue
        if name not in frame.locals:
            return {"error": f"{name} is no argument of {frame.code.co_name}"}
        try:
            locals[name] = eval(str(expression), {"torch": torch, **frame.globals}, dict(frame.locals))
        except Exception as error:  # noqa: BLE001 - whatever the person wrote is told to them
            return {"error": f"{name}: {type(error).__name__}: {error}"}
    failure = tree.explain(locals)
    if failure is None:
        return {"fits": True, "text": "Every guard holds: this call runs the compiled code as it is."}
    data = _tree(step, {}, {}, {})
    found = find_check(data, failure.source, failure.kind, failure.expected, failure.values)
    where = own_location(failure.stack)
    line = said(where, trace._sources or source_files(tree.items())) if where is not None else ""
    text = f"{failure.source}: expected {failure.expected}; got {failure.got}."
    return {"fits": False, "text": text, "check": found["id"] if found else "", "line": line, "advice": failure.advice}
