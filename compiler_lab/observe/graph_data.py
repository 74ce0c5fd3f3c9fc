"""A graph of a trace as plain data: nodes, edges, what is known of each, and how they fold.

In: a ``Trace`` (live or loaded, of our stack or of the real one). Out: ``graph_data``: the nodes of one step's graph in order, with the facts that the
artifact has for each, what was decided about it, and the tree of groups (``graph_fold``) in which they fold; with ``against``, both graphs
as one, each node marked (``graph_marks``). FX graphs, loop programs and schedules are graphs; so is what a capture had up to a break.
Always holds: node k reads only nodes before it, but for those that a difference of two graphs adds; every number is the artifact's own.
PyTorch's counterpart: ``torch/fx/passes/graph_drawer.py``, which draws all nodes at once.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.artifact import Artifact, Item, Plain
from ..core.errors import UnknownOption, Unsupported
from ..core.provenance import Location, is_library, shown_name
from .graph_fold import fold
from .graph_marks import merged
from .trace import Step, Trace

Node = dict[str, Any]
VALUE = re.compile(r"\b(\w+)\[([^\]]*)\]")


def graph_data(
    trace: Trace,
    stage: str = "",
    part: str = "",
    graph: int | None = None,
    against: str = "",
    against_part: str = "",
    times: Mapping[str, float] | None = None,
    overlay: str = "",
) -> dict[str, Plain]:
    """The graph after the step ``stage`` (the last of that name; the first step with a graph by default), or its difference from ``against``'s.

    times: item id -> seconds, for example ``{t.id: t.seconds for t in time_nodes(...).nodes}``. overlay: "bytes", "fate" or "time", shown at first.

    nodes: [{"id", "name", "op", "kind", "value", "bytes" (None where sizes are symbols), "inputs" [index], "module", "text", "line", "parents" [id],
            "decisions" [[kind, outcome, reason]], "fate" ("saved", "recomputed" or ""), "seconds" (None), "mark" ("", "+", "-", "~"), "was"}]
    tree:  see ``graph_fold.fold``; counts: {mark: how many}, of a difference; stopped: [[what, where]], the breaks that end a captured graph.
    Raises ``UnknownOption`` for a step that is not there or holds no graph.
    """
    step = _step(trace, stage, part, graph)
    nodes = _nodes(_items(step.after, part))
    ways = _ways(trace, step)
    _explain(trace, step, nodes, ways)
    for node in nodes:
        node["seconds"] = None if times is None else times.get(node["id"])
    counts: dict[str, int] = {}
    before: Step | None = None
    if against:
        before = _step(trace, against, against_part or (part if _has(trace, against, part) else ""), step.graph)
        first = trace.steps.index(before) if before in trace.steps else 0
        old = _nodes(_items(before.after, against_part or part))
        _explain(trace, before, old, ways)
        _later(trace, before, step, old, ways)
        nodes, counts = merged(old, nodes, _origins([s.after for s in trace.steps[first:]], step.after, old))
    return {
        "title": trace.title,
        "stage": step.name,
        "part": part,
        "graph": step.graph,
        "against": before.name if before is not None else "",
        "stopped": [[b.facts.get("what", b.reason), ", ".join(b.subject)] for b in step.after.decisions if b.kind == "break"],
        "overlay": overlay,
        "nodes": nodes,
        "tree": fold(nodes),
        "counts": counts,
        "stages": [f"{s.name} {s.part}".strip() for s in trace.steps if s.graph == step.graph and _items(s.after, s.part)],
    }


# ------------------------------------------------------------------------------------------------------------- which graph


def _step(trace: Trace, stage: str, part: str, graph: int | None) -> Step:
    for step in trace.steps if not stage else reversed(trace.steps):
        found = stage in ("", step.name) and (step.part in ("", part) or not stage) and graph in (None, step.graph)
        if found and _items(step.after, part):
            return step
    known = dict.fromkeys(f"{s.name} {s.part}".strip() for s in trace.steps if _items(s.after, s.part))
    if not known:
        raise Unsupported("this trace has no graph", reason="no-graph", why="nothing was captured", hint="see its graph breaks")
    raise UnknownOption(f"no graph of step {f'{stage} {part}'.strip()!r} in this trace", hint=f"steps with graphs: {', '.join(known)}")


def _has(trace: Trace, stage: str, part: str) -> bool:
    return any(s.name == stage and s.part == part for s in trace.steps)


def _items(artifact: Artifact, part: str) -> list[Item]:
    """The items that are nodes of a graph; of a partition those of ``part``, the forward by default."""
    found = [i for i in artifact.items() if "target" in i.facts or "outputs" in i.facts or "writes" in i.facts]
    halves = {i.id.split("/")[0].rpartition(".")[2] for i in found}
    if halves >= {"forward", "backward"}:
        found = [i for i in found if i.id.split("/")[0].endswith(part or "forward")]
    return found


def _nodes(items: Sequence[Item]) -> list[Node]:
    if items and "target" not in items[0].facts:
        return _loop_nodes(items)
    number = {item.id: k for k, item in enumerate(items)}
    return [
        _node(i, str(i.facts["name"]), str(i.facts["target"]), str(i.facts.get("value", "")), [number[n] for n in i.facts["inputs"] if n in number])
        for i in items
    ]


def _node(item: Item, name: str, op: str, value: str, inputs: list[int]) -> Node:
    if item.kind in ("placeholder", "output"):
        op = item.kind
    module = str(item.facts.get("module", ""))
    return {"id": item.id, "name": name, "op": op, "kind": item.kind, "value": value, "bytes": value_bytes(value), "inputs": inputs, "module": module} | {
        "text": item.text, "line": _line(item), "parents": list(item.parents), "decisions": [], "fate": "", "seconds": None, "mark": "", "was": ""
    }  # fmt: skip


def _loop_nodes(items: Sequence[Item]) -> list[Node]:
    """Loops and groups: edges go through the buffers; those that none of them writes are inputs."""
    made: dict[str, int] = {}
    nodes: list[Node] = []
    for item in items:
        reads = item.facts.get("inputs", item.facts.get("reads", ()))
        for buffer in reads:
            if buffer not in made:
                made[buffer] = len(nodes)
                nodes.append(_node(Item(f"{item.id.rpartition('/')[0]}/{buffer}", "placeholder", f"{buffer} = input"), buffer, "input", "", []))
        outputs: Any = item.facts.get("outputs", item.facts.get("writes", ()))
        value = ", ".join(f"{b}: {outputs[b]}" if isinstance(outputs, Mapping) else b for b in outputs)
        node = _node(item, item.id.rpartition("/")[2], item.kind, value, [made[b] for b in reads])
        node["bytes"] = item.facts.get("bytes")
        for buffer in outputs:
            made[buffer] = len(nodes)
        nodes.append(node)
    return nodes


def value_bytes(value: str) -> int | None:
    """Bytes of the tensors in a value as ``describe`` writes it, each as if it were dense; None where a size is a symbol."""
    total = 0
    for dtype, sizes in VALUE.findall(value):
        parts = [s.strip() for s in sizes.split(",") if s.strip()]
        word = re.fullmatch(r"([a-z]+?)(\d+)(?:_\w+)?", dtype)
        if not all(p.isdigit() for p in parts):
            return None
        bits = int(word[2]) if word else 8
        total += math.prod(map(int, parts)) * bits // 8
    return total


def _line(item: Item) -> list[Any] | None:
    """[file, line, text] of the user's."""
    location = item.location
    if location is None:
        return None
    return [shown_name(location.file), location.line, _source(location)]


@functools.lru_cache(4096)
def _source(location: Location) -> str:
    return "" if is_library(location.file) else location.source


# --------------------------------------------------------------------------------------------------- what is known of nodes


Ways = dict[str, list[str]]  # item id -> the ids that it was made of, over all steps of its graph


def _ways(trace: Trace, step: Step) -> Ways:
    seen: set[int] = set()
    ways: Ways = {}
    for one in trace.steps:
        if one.graph != step.graph or id(one.after) in seen:
            continue
        seen.add(id(one.after))
        for item in one.after.items():
            ways.setdefault(item.id, []).extend(p for p in item.parents if p not in ways.get(item.id, ()))
    return ways


def _explain(trace: Trace, step: Step, nodes: list[Node], ways: Ways) -> None:
    """Modules of nodes whose ancestors have one, decisions about each node, and what the partition made of it."""
    steps = [s for s in trace.steps if s.graph == step.graph]
    modules = {i.id: str(i.facts["module"]) for s in steps if s.name == "capture" for i in s.after.items() if i.facts.get("module")}
    about: dict[str, dict[tuple[str, str, str], None]] = {}
    for decision in (d for s in steps for d in s.after.decisions):
        for subject in decision.subject:
            about.setdefault(subject, {})[decision.kind, decision.outcome, decision.reason] = None
    told = {s: d.outcome for one in steps for d in one.after.decisions if d.kind == "save" and d.outcome in ("saved", "recomputed") for s in d.subject}
    fates = _fates(told, ways)
    for node in nodes:
        ids = list(_ancestors(node["id"], ways))
        node["module"] = node["module"] or next((modules[i] for i in ids if i in modules), "")
        node["decisions"] = [list(d) for d in about.get(node["id"], ())]
        kept = [told[p] for p in node["parents"] if p in told and p.rpartition("/")[2] == node["name"]]  # in a half: the node that was split off
        node["fate"] = fates.get(node["id"]) or next(iter(kept), "")


def _later(trace: Trace, before: Step, last: Step, old: Sequence[Node], ways: Ways) -> None:
    """Adds to the nodes of a first graph what the steps after it, up to ``last``, decided about what was made of them: why they went."""
    place = {n["id"]: n for n in old}
    between = trace.steps[trace.steps.index(before) + 1 : trace.steps.index(last) + 1] if before in trace.steps and last in trace.steps else []
    for step in between:
        for decision in step.after.decisions:
            said = [decision.kind, decision.outcome, decision.reason]
            for one in {o for s in decision.subject for o in (s, *_ancestors(s, ways)) if o in place}:
                if said not in place[one]["decisions"]:
                    place[one]["decisions"].append(said)


def _fates(told: Mapping[str, str], ways: Ways) -> dict[str, str]:
    """What the partition saved or recomputes, and what these nodes were made of: "saved" wins, since one kept result is enough to say so."""
    fates: dict[str, str] = {}
    for subject, outcome in sorted(told.items(), key=lambda t: t[1] != "saved"):
        for one in (subject, *_ancestors(subject, ways)):
            fates.setdefault(one, outcome)
    return fates


def _ancestors(start: str, ways: Ways) -> Iterable[str]:
    found: dict[str, None] = {}
    queue = list(ways.get(start, ()))
    for one in queue:
        if one not in found:
            found[one] = None
            queue += ways.get(one, ())
    return found


def _origins(artifacts: Sequence[Artifact], last: Artifact, old: Sequence[Node]) -> dict[str, list[str]]:
    """Of each item of ``last``: the nodes of the first graph that it was made of, in one step or several."""
    known = {n["id"] for n in old}
    of: dict[str, list[str]] = {i: [i] for i in known}
    for artifact in artifacts[1:]:
        for item in artifact.items():
            found = [o for p in item.parents for o in of.get(p, ())]
            if item.id not in known and found:
                of[item.id] = list(dict.fromkeys(found))
        if artifact is last:
            break
    return of
