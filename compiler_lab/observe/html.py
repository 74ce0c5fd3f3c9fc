"""A trace as HTML: what the views need, and the one-file page.

In: a ``Trace``. Out: ``view_data`` (plain data: every item numbered, with numbered parents and source lines), ``fragment`` (what a
notebook shows) and ``page`` (a file of its own). Always holds: no external address, complete without script.
The drawing itself is in ``compiler_lab_widgets``, which sees plain data only.
"""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from ..core.artifact import Artifact, Plain
from .lineage import Lineage, lineage
from .trace import Trace


def view_data(trace: Trace) -> dict[str, Plain]:
    """{"title", "environment", "sources", "steps"}, JSON-able.

    sources: [{"file", "name", "first", "lines": [text], "numbers": [source line number]}], the lines around what the trace uses.
    steps:   [{"name", "part", "graph", "seconds", "changed", "stage", "type", "text", "items", "decisions"}]
    items:   [{"n", "id", "kind", "text", "up": [parent n], "src": [source line number], "where", "facts"}]
    """
    links = lineage(trace)
    data = trace.to_json()
    number = {key: n for n, key in enumerate(links.items)}
    sources, line_number = _sources(links, data["sources"])
    order = {id(a): i for i, a in enumerate(trace.artifacts())}
    steps: list[dict[str, Plain]] = []
    for step, plain in zip(trace.steps, data["steps"], strict=True):
        artifact = order[id(step.after)]
        body = data["artifacts"][artifact]
        items = [_item(links, number, line_number, artifact, item) for item in step.after.items()]
        steps.append(
            {
                **{k: plain[k] for k in ("name", "part", "graph", "seconds")},
                "changed": step.before is None or step.before.text() != step.after.text(),
                **{k: body[k] for k in ("stage", "type", "text", "decisions")},
                "items": items,
            }
        )
    return {"title": trace.title, "environment": data["environment"], "sources": sources, "steps": steps}


def _item(links: Lineage, number: dict[Any, int], line_number: dict[Any, int], artifact: int, item: Any) -> dict[str, Plain]:
    key = (artifact, item.id)
    src = sorted(line_number[line] for line in links.lines[key] if line in line_number)
    where = item.location.text() if item.location else ""
    up = [number[p] for p in links.parents[key]]
    return {"n": number[key], "id": item.id, "kind": item.kind, "text": item.text, "up": up, "src": src, "where": where, "facts": dict(item.facts)}


def _sources(links: Lineage, files: dict[str, list[str]]) -> tuple[list[dict[str, Plain]], dict[tuple[str, int], int]]:
    """The stretch of each file from the first to the last line used (three lines around), its lines numbered across files."""
    used: dict[str, set[int]] = {}
    for lines in links.lines.values():
        for file, line in lines:
            used.setdefault(file, set()).add(line)
    sources: list[dict[str, Plain]] = []
    numbers: dict[tuple[str, int], int] = {}
    for file in sorted(f for f in used if f in files):
        first, last = max(min(used[file]) - 3, 1), min(max(used[file]) + 3, len(files[file]))
        for line in range(first, last + 1):
            numbers[(file, line)] = len(numbers)
        span = [numbers[(file, line)] for line in range(first, last + 1)]
        sources.append({"file": file, "name": _display_name(file), "first": first, "lines": files[file][first - 1 : last], "numbers": span})
    return sources, numbers


def _display_name(file: str) -> str:
    return "notebook cell" if "ipykernel" in file or file.startswith("<ipython") else os.path.basename(file)


def fragment(trace: Trace) -> str:
    """The pipeline view of ``trace`` as self-contained HTML, for a notebook's output cell."""
    from compiler_lab_widgets.pipeline_view import render

    return render(view_data(trace))


def page(trace: Trace) -> str:
    """``fragment`` as a whole document."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(trace.title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body style="margin:0">{fragment(trace)}</body></html>\n'


def save_page(trace: Trace, path: str | os.PathLike[str]) -> None:
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    partial.write_text(page(trace), encoding="utf-8")
    partial.replace(target)


def bundle(artifact: Artifact | Trace) -> dict[str, str]:
    """text/plain and text/html, for ``display(..., raw=True)``."""
    return {"text/plain": artifact.text(), "text/html": fragment(artifact) if isinstance(artifact, Trace) else artifact._repr_mimebundle_()["text/html"]}
