"""The scheduler's decisions step by step, as plain data: which loops it looked at together, what it answered, and the bytes that its groups move.

In: a trace with steps "schedule" and, before them, "lower". Out: ``fusion_data``, plain data for the fusion view.
Always holds: every pair that the schedule's decisions name is one step; a step that joins two groups says how many bytes all kernels move after it, counted
here from what each loop reads and makes, every buffer once for each kernel that reads or writes it, at its full size. Accepted pairs stand in the order
in which groups grew, by round; a refused one stands where it was asked first, with the last answer it got.
PyTorch's counterpart: ``torch/_inductor/scheduler.py`` (``fuse_nodes``, ``WhyNoFuse``), which only logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.artifact import Artifact, Decision, Item, Plain
from .trace import Trace


def fusion_data(trace: Trace) -> dict[str, Plain]:
    """{"title", "programs": [{"name", "loops", "steps", "before", "kernels", "after", "again"}]}.

    ``loops``: {"name", "what", "kind", "line", "reads", "makes", "kernel"}, in order of the program; ``kernel`` is that of the end.
    ``steps``: {"left", "right" (places in ``loops``), "outcome", "reason", "kind", "saved", "joins", "moved", "kernels"}: ``saved`` is the decision's own
    figure for the two alone, ``moved`` the bytes that all kernels move after the step. ``before``: bytes moved when every loop is a kernel.
    ``kernels``: {"name", "what", "moved"} of the schedule, ``after`` their sum; ``again``: decisions to compute a value again in its readers."""
    programs: list[Plain] = []
    several = len(trace.graphs) > 1
    for step in trace.steps:
        if step.name != "schedule":
            continue
        lower = next((s.after for s in reversed(trace.steps) if s.name == "lower" and s.part == step.part and s.graph == step.graph), step.before)
        name = ", ".join([*([f"graph {step.graph}"] if several else []), step.part or "all"])
        programs.append({"name": name, **_program(lower, step.after)})
    return {"title": f"Fusion in {trace.title}", "programs": programs}


def _program(lower: Artifact | None, schedule: Artifact) -> dict[str, Plain]:
    groups = [i for i in schedule.items() if i.id.count("/") == 1]
    dropped = {d.subject[0] for d in schedule.decisions if d.kind == "drop"}
    found = [i for i in lower.items() if "outputs" in i.facts and i.id not in dropped] if lower is not None else []
    kernel = {parent: group for group in reversed(groups) for parent in group.parents}
    sizes: dict[str, int] = {}
    for item in found:
        if len(item.facts["outputs"]) == 1:
            sizes.update(dict.fromkeys(item.facts["outputs"], item.facts.get("bytes", 0)))
    for group in groups:
        sizes.update(group.facts.get("bytes", {}))
    loops = [_loop(item, kernel.get(item.id)) for item in found]
    place = {item.id: k for k, item in enumerate(found)}
    place |= {f"{item.id.rpartition('/')[0]}/{name}": k for k, item in enumerate(found) for name in item.facts["outputs"]}
    units = Units(loops, sizes, [name for group in groups for name in group.facts.get("results", group.facts.get("writes", []))])
    before = units.moved
    pairs = [d for d in schedule.decisions if d.kind == "fuse" and len(d.subject) == 2 and all(s in place for s in d.subject)]
    ordered = sorted(pairs, key=lambda d: d.facts.get("round", 1) if d.outcome == "accepted" else 1)
    steps = [_step(d, place, units) for d in ordered]
    moved = [int(sum(g.facts.get("bytes", {}).values())) for g in groups]
    kernels = [{"name": g.id.rpartition("/")[2], "what": g.text, "moved": n} for g, n in zip(groups, moved, strict=True)]
    again = [
        {"loop": place[d.subject[0]], "outcome": d.outcome, "reason": d.reason, "saved": d.facts.get("bytes_saved", 0)}
        for d in schedule.decisions
        if d.kind == "recompute" and d.subject[0] in place
    ]
    return {"loops": loops, "steps": steps, "before": before, "kernels": kernels, "after": sum(moved), "again": again}


def _loop(item: Item, kernel: Item | None) -> dict[str, Plain]:
    return {
        "name": item.id.rpartition("/")[2],
        "what": str(item.facts.get("origin") or item.kind),
        "kind": item.kind,
        "line": item.location.text() if item.location else "",
        "reads": list(item.facts.get("inputs", [])),
        "makes": list(item.facts["outputs"]),
        "kernel": kernel.id.rpartition("/")[2] if kernel else "",
    }


def _step(d: Decision, place: Mapping[str, int], units: Units) -> dict[str, Plain]:
    left, right = (place[s] for s in d.subject)
    joins = d.outcome == "accepted" and units.join(left, right)
    return {
        "left": left, "right": right, "outcome": d.outcome, "reason": d.reason, "kind": d.facts.get("kind", ""), "saved": d.facts.get("bytes_saved", 0),
        "joins": joins, "moved": units.moved, "kernels": units.count,
    }  # fmt: skip


class Units:
    """Groups of loops as they grow, and the bytes that they move: ``moved`` is kept up to date by ``join``, which looks at the two joined only."""

    def __init__(self, loops: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], results: Iterable[str]) -> None:
        self.loops, self.sizes, self.results = loops, sizes, frozenset(results)
        self.readers: dict[str, set[int]] = {}
        for k, loop in enumerate(loops):
            for buffer in loop["reads"]:
                self.readers.setdefault(buffer, set()).add(k)
        self.unit = list(range(len(loops)))
        self.members = {k: {k} for k in self.unit}
        self.costs = {k: self.cost({k}) for k in self.unit}
        self.moved, self.count = sum(self.costs.values()), len(loops)

    def cost(self, members: set[int]) -> int:
        """Bytes that one kernel of these loops moves: what it reads from others, and what others or the caller need of what it makes."""
        made = {b for k in members for b in self.loops[k]["makes"]}
        read = {b for k in members for b in self.loops[k]["reads"]} - made
        stored = {b for b in made if b in self.results or self.readers.get(b, set()) - members}
        return sum(self.sizes.get(b, 0) for b in read | stored)

    def join(self, a: int, b: int) -> bool:
        """Whether the two were apart; they are one afterwards."""
        i, j = sorted((self.unit[a], self.unit[b]))
        if i == j:
            return False
        both = self.members[i] | self.members.pop(j)
        for k in both:
            self.unit[k] = i
        self.members[i] = both
        cost = self.cost(both)
        self.moved += cost - self.costs[i] - self.costs.pop(j)
        self.costs[i] = cost
        self.count -= 1
        return True
