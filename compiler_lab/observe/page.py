"""The report of a trace: every view that applies to it, in one file that needs no network.

In: a trace, and perhaps another to compare it with. Out: ``views_of`` (the views, and what is left out with its reason), ``report`` (a whole
document). Always holds: sections with links that work without script and become tabs with it; what does not apply to the trace is named at the
end. A view says that it does not apply by raising ``Unsupported``. The drawing is in ``compiler_lab_widgets/report_view.py``.
"""

from __future__ import annotations

import os

from ..core.errors import Unsupported
from .html import document, write_whole
from .trace import Trace
from .view import VIEWS, View, beside, view

Shown = tuple[dict[str, View], dict[str, str]]  # name -> view, and title -> why it is not there


def views_of(trace: Trace, other: Trace | None = None) -> Shown:
    """The views that apply to ``trace``, in the order of ``VIEWS``; the compare view only with ``other``."""
    found: dict[str, View] = {}
    missing: dict[str, str] = {}
    for name, source in VIEWS.items():
        if name == "compare" and other is None:
            missing[source.title] = "it needs a second trace"
            continue
        try:
            found[name] = view(trace, name, **beside(name, other))
        except Unsupported as error:
            missing[source.title] = error.what
    return found, missing


def report(trace: Trace, other: Trace | None = None) -> str:
    """A whole document with every view."""
    from compiler_lab_widgets.report_view import render

    found, missing = views_of(trace, other)
    graphs, steps = len(trace.graphs), len(trace.steps)
    head = f"{graphs} graph{'' if graphs == 1 else 's'}, {steps} step{'' if steps == 1 else 's'}; {', '.join(f'{k} {v}' for k, v in trace.environment.items())}"
    sections = [{"name": name, "title": VIEWS[name].title, "html": one.html()} for name, one in found.items()]
    return document(trace.title, render({"title": trace.title, "head": head, "sections": sections, "missing": missing}))


def save_report(trace: Trace, path: str | os.PathLike[str], other: Trace | None = None) -> None:
    write_whole(path, report(trace, other))
