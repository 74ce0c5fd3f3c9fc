"""The minimum cut as plain data: the network with its flow, path by path, what is saved and what is computed again, and what a memory budget would change.

In: a trace with steps "partition". Out: ``cut_data``, plain data for the min-cut view; ``answer``, which cuts again for the widget.
Always holds: every number is the partition's own; a saved trace gives the same. The network is that of the item of kind "network" of a partition, the
stops are what its ``more()`` tells. A trace of the real stack has no network: its log tells only what was saved.
PyTorch's counterpart: ``visualize_min_cut_graph`` in ``torch/_functorch/partitioners.py``, which draws no flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.artifact import Artifact, Item, Plain
from ..core.errors import LabError, Unsupported
from .torch_trace import CHOSEN
from .trace import Step, Trace

NOT_LIVE = "a saved trace holds the cut, not the graph: compile the function again to cut it differently"


def cut_data(trace: Trace, graph: int | None = None) -> dict[str, Plain]:
    """{"title", "programs": [program]}, one for each partition. program:

    "name"; "graph"; "why" there is no network ("torch", "default", "forward": nothing is kept) or "".
    "saved", "recomputed": [{"name", "bytes" (None where the log does not tell), "reason", "line"}].
    "network": None, or {"cost_model", "budget", "weights", "value", "nodes", "edges", "paths", "left_out", "cut", "source_side"} as in
    ``aot/flow_record.py``, where a node is {"name", "what", "line", "bytes", "ban", "unkept", "input", "fate"}.
    "stops": [{"budget", "counted", "bytes", "operations", "saved", "lifted"}], from the minimum cut to the fewest bytes; nodes by number.
    "wishes": [[node, outcome, reason]], what became of what the program or the caller wanted kept or computed again."""
    steps = _steps(trace, graph)
    if not steps:
        raise Unsupported("no graph here is cut in two", reason="no-partition", why="this trace has no partition", hint="a graph is cut where it is trained")
    return {"title": f"The minimum cut of {trace.title}", "programs": [_program(s.before, s.after, s.graph, len(trace.graphs) > 1) for s in steps]}


def _steps(trace: Trace, graph: int | None = None) -> list[Step]:
    return [s for s in trace.steps if s.name == "partition" and graph in (None, s.graph)]


def _program(joint: Artifact | None, cut: Artifact, graph: int, several: bool) -> dict[str, Plain]:
    items = cut.items()
    about = {i.id: i for i in (joint.items() if joint is not None else items)}
    network = next((i for i in items if i.kind == "network"), None)
    backward = any(i.id.startswith("aot.backward/") for i in items)
    told = [d for d in cut.decisions if d.kind == "save"]
    why = "" if network is not None else "forward" if not backward else "torch" if any(d.reason == CHOSEN for d in told) or not told else "default"
    fate = lambda outcome: [
        {"name": _name(d.subject[0]), "bytes": d.facts.get("bytes"), "reason": d.reason, "line": _line(about.get(d.subject[0]))}
        for d in told
        if d.outcome == outcome
    ]
    return {
        "name": f"graph {graph}" if several else "the joint graph",
        "graph": graph,
        "why": why,
        "saved": fate("saved"),
        "recomputed": fate("recomputed"),
        "network": None if network is None else _network(network, about),
        "stops": [] if network is None else _stops(cut.more().get("stops", []), network.facts["bytes"]),
        "wishes": [[_name(d.subject[0]), d.outcome, d.reason, str(d.facts.get("policy", ""))] for d in cut.decisions if d.kind == "policy"],
    }


def _network(item: Item, about: Mapping[str, Item]) -> dict[str, Plain]:
    facts = item.facts
    bans, unkept = dict(facts["bans"]), dict(facts["unkept"])
    inputs, saved, again = set(facts["inputs"]), set(facts["saved"]), set(facts["recomputed"])
    nodes: list[Plain] = []
    for k, (name, size) in enumerate(zip(facts["nodes"], facts["bytes"], strict=True)):
        one = about.get(f"{facts['stage']}/{name}")
        what = "input" if k in inputs else str(one.facts.get("target", one.kind)) if one is not None else ""
        fate = "saved" if k in saved else "recomputed" if k in again else ""
        nodes.append({"name": name, "what": what, "line": _line(one), "bytes": size, "ban": bans.get(k, ""), "unkept": unkept.get(k, "")})
        nodes[-1] |= {"input": k in inputs, "fate": fate}
    kept = ("cost_model", "budget", "weights", "value", "edges", "paths", "left_out", "cut", "source_side")
    return {**{key: facts[key] for key in kept}, "nodes": nodes}


def _stops(stops: Sequence[Any], sizes: Sequence[int]) -> list[Plain]:
    return [
        {"budget": budget, "counted": counted, "bytes": sum(sizes[k] for k in saved), "operations": more, "saved": list(saved), "lifted": list(lifted)}
        for budget, counted, more, saved, lifted in stops
    ]


def _name(id: str) -> str:
    return id.rpartition("/")[2]


def _line(item: Item | None) -> str:
    return item.location.text() if item is not None and item.location is not None else ""


def answer(trace: Trace, question: Mapping[str, Any]) -> dict[str, Plain]:
    """Cuts again. question: {"program": its place, "budget": from 0 to 1, or below 0 for the recorded one, "must_save", "must_recompute": [name],
    "around": the name of a node to draw the neighbourhood of, or ""}.

    The answer: {"html": the program drawn again, "program": what the script is given of it, "said": what became of the wishes}, or {"error": text}."""
    from compiler_lab_widgets.cut_view import packed, section

    number = int(question["program"])
    step = _steps(trace)[number]
    part: Any = step.after
    if not hasattr(part, "recut"):
        return {"error": NOT_LIVE}
    budget = float(question.get("budget", -1))
    try:
        made = part.recut(None if budget < 0 else budget, question.get("must_save", ()), question.get("must_recompute", ()))
    except LabError as error:
        return {"error": str(error)}
    program = _program(step.before, made, step.graph, len(trace.graphs) > 1)
    around = str(question.get("around", ""))
    return {"html": section(program, number, around), "program": packed(program, around), "said": _said(program, part)}


def _said(program: Mapping[str, Any], before: Any) -> str:
    """In words: bytes before and after, and each wish that could not be met as it stands."""
    size = sum(s["bytes"] or 0 for s in program["saved"])
    wishes = [
        f"{name}: {outcome}" + (", the backward reads neither it nor what only it leads to" if reason == "unread" else "")
        for name, outcome, reason, _ in program["wishes"]
    ]
    return (
        f"Cut again: {len(program['saved'])} values of {size:,} bytes are saved, {before.saved_bytes:,} bytes before" + "".join(f"; {w}" for w in wishes) + "."
    )
