"""Each kernel of a trace as plain data: its loops, its accesses, its code down to the machine, and where it stands under the roofline.

In: a trace with steps "schedule" and, after them, "generate" and "build". Out: ``kernel_data``, plain data for the kernel view.
Always holds: figures are the schedule's own facts; nothing is measured and no compiler is asked unless an option says so; of a line without counterpart the
reason is told. PyTorch's counterpart: none; ``TORCH_LOGS=output_code`` prints the code alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.artifact import Artifact, Item, Plain
from ..core.errors import CodegenFailed
from .html import view_data
from .trace import Trace

PANES = (("schedule", "Loops"), ("generate", "Generated code"), ("build", "Machine code"))
NOT_ASKED = "not asked for: kernel_data(trace, remarks=True) compiles once more for the compiler's remarks"


def kernel_data(trace: Trace, roofline: bool = False, remarks: bool = False) -> dict[str, Plain]:
    """{"title", "environment", "sources", "up", "src", "kernels", "ceilings"}; ``sources``, ``up``, ``src`` as in ``view_data``.

    ``kernels``: {"name", "program", "what", "shape", "loops", "lane", "accesses", "operations", "moved", "touched", "intensity", "recorded", "panes",
    "bodies", "vector", "remarks", "remarks_why"}. ``moved``: bytes of each buffer once at its full size, as the schedule tells; ``touched``: bytes of the
    elements that are read and written, each buffer's once a direction; ``intensity``: operations for a byte touched. ``recorded``: whether the trace tells
    loops and accesses. ``panes``: {"title", "step", "items", "lost": [{"src", "why", "names"}]}. ``ceilings``: {"bytes_per_second",
    "operations_per_second"} of this machine, measured now with as many threads as torch uses, or None without ``roofline``."""
    data: dict[str, Any] = view_data(trace)
    several = len(trace.graphs) > 1
    kernels: list[Plain] = []
    for step, artifact in zip(data["steps"], [s.after for s in trace.steps if s.name not in ("film", "break", "recompile")], strict=True):
        if step["name"] != "schedule":
            continue
        chain = {s["name"]: s for s in data["steps"] if (s["part"], s["graph"]) == (step["part"], step["graph"])}
        built = next((s.after for s in reversed(trace.steps) if s.name == "build" and (s.part, s.graph) == (step["part"], step["graph"])), None)
        said, why = _remarks(built) if remarks else ([], NOT_ASKED)
        program = ", ".join([*([f"graph {step['graph']}"] if several else []), step["part"] or "all"])
        groups = [i for i in artifact.items() if i.id.count("/") == 1 and i.kind != "extern"]
        panes = [_panes(g, chain, data["up"]) for g in groups]
        owners = _owners(groups, panes)
        for group, found in zip(groups, panes, strict=True):
            kernels.append({"program": program, **_kernel(group, found, owners, chain, said, why)})
    return {
        "title": f"Kernels of {trace.title}", "environment": data["environment"], "sources": data["sources"], "up": data["up"], "src": data["src"],
        "kernels": kernels, "ceilings": ceilings() if roofline else None,
    }  # fmt: skip


def _panes(group: Item, chain: Mapping[str, Any], up: list[list[int]]) -> list[dict[str, Any]]:
    """The items of the kernel in each step: its own id and those below it, then what the kernel items made of that hold."""
    parent, found = -1, list[dict[str, Any]]()
    for name, title in PANES:
        step = chain.get(name)
        items: list[dict[str, Any]] = step["items"] if step else []
        own = next((i for i in items if (i["id"] == group.id if name == "schedule" else i["kind"] == "kernel" and parent in up[i["n"]])), None)
        parent = own["n"] if own else -1
        below = [i for i in items if own and (i["id"] == own["id"] or i["id"].startswith((f"{own['id']}/", f"{own['id']}:")))]
        lines = below if name == "schedule" else [i for i in below if i["kind"] != "kernel"]
        found.append({"title": title, "step": step["index"] if step else -1, "items": lines})
    return found


def _owners(groups: list[Item], panes: list[list[dict[str, Any]]]) -> list[dict[int, list[str]]]:
    """For each pane, the names of the kernels that have something of a source line there."""
    owners: list[dict[int, list[str]]] = [{} for _ in PANES]
    for group, found in zip(groups, panes, strict=True):
        for owner, pane in zip(owners, found, strict=True):
            for line in sorted({s for i in pane["items"] for s in i["src"]}):
                owner.setdefault(line, []).append(_name(group.id))
    return owners


def _kernel(
    group: Item, panes: list[dict[str, Any]], owners: list[dict[int, list[str]]], chain: Mapping[str, Any], said: list[dict[str, Any]], why: str
) -> dict[str, Plain]:
    facts, name = group.facts, _name(group.id)
    for pane, owner in zip(panes, owners, strict=True):
        step = next((s for s in chain.values() if s["index"] == pane["step"]), None)
        here = {s for i in pane["items"] for s in i["src"]}
        lost = {one["src"]: {"src": one["src"], "why": one["why"], "names": []} for one in (step["lost"] if step else [])}
        lost |= {line: {"src": line, "why": "kernel", "names": names} for line, names in owner.items()}
        pane["lost"] = [one for line, one in sorted(lost.items()) if line not in here]
    accesses: list[dict[str, Any]] = facts.get("accesses", [])
    touched: dict[tuple[str, str], int] = {}
    for a in accesses:
        touched[a["buffer"], a["kind"]] = max(touched.get((a["buffer"], a["kind"]), 0), a["bytes"])
    total, operations = sum(touched.values()), facts.get("operations", 0)
    machine = panes[2]["items"]
    return {
        "name": name, "what": group.text, "shape": facts.get("shape", group.kind), "loops": list(facts.get("loops", [])), "lane": facts.get("lane", ""),
        "accesses": accesses, "operations": operations, "moved": sum(facts.get("bytes", {}).values()), "touched": total,
        "intensity": operations / total if total else None, "recorded": "accesses" in facts, "panes": panes, "bodies": _bodies(group, chain),
        "vector": sum(bool(i["facts"].get("vector")) for i in machine), "remarks": [r for r in said if r["kernel"] == name], "remarks_why": why,
    }  # fmt: skip


def _bodies(group: Item, chain: Mapping[str, Any]) -> list[str]:
    """The statements of the loops that the kernel holds, as lowering wrote them."""
    lower = chain.get("lower")
    return [i["text"] for i in (lower["items"] if lower else []) if any(i["id"] == p or i["id"].startswith((f"{p}:", f"{p}/")) for p in group.parents)]


def _remarks(built: Artifact | None) -> tuple[list[dict[str, Any]], str]:
    """The compiler's remarks on the innermost loops, or why there are none."""
    loops: Callable[[], Artifact] | None = getattr(built, "loops", None)
    if loops is None:
        return [], "not recorded: only a trace of this process, with kernels in C++, can ask the compiler again"
    try:
        return [{"line": i.facts["source_line"], "said": i.text, "kernel": i.facts["kernel"]} for i in loops().items()], ""
    except CodegenFailed as error:
        return [], error.what


def _name(ident: str) -> str:
    return ident.rpartition("/")[2]


def ceilings(megabytes: int = 64, side: int = 1024) -> dict[str, Plain]:
    """What this machine reaches now: bytes a second of a copy (read and written), operations a second of a product in float32. The best of five."""
    import torch

    source = torch.ones(megabytes * 250_000)
    target, square = torch.empty_like(source), torch.ones(side, side)

    def best(work: Callable[[], object]) -> float:
        work()
        times = list[float]()
        for _ in range(5):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return min(times)

    copied, product = best(lambda: target.copy_(source)), best(lambda: square @ square)
    return {"bytes_per_second": 2 * source.nbytes / copied, "operations_per_second": 2 * side**3 / product}
