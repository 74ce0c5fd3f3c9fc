"""Notebooks as pages: what a widget showed stands there without its kernel, and the page asks for nothing from outside.

In: a notebook, executed or to be. Out: ``static`` (a copy without the widgets that have a static form), ``StaticViews`` (the same as a preprocessor of
nbconvert, for any format: ``--HTMLExporter.preprocessors=compiler_lab.export.StaticViews``), ``export`` (one HTML page).
Always holds: a widget gives way only to a form of its own: the HTML beside it in its output, the HTML that a view keeps in its state, what an ``Output``
caught, or that of its children, tabs with their titles. Widgets of others stay as they are. Why at all: nbconvert prefers a widget to the HTML beside it
whenever the notebook holds the widget's state, and needs the network to draw it.
PyTorch has no counterpart.
"""

from __future__ import annotations

import copy
import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor, Preprocessor

from .core.errors import LabError
from .observe.html import write_whole

VIEW, STATE = "application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json"
REFERENCE = "IPY_MODEL_"
TEMPLATE_ASKS = ("require_js", "mathjax", "mermaid_js", "mermaid_layout_elk_js", "jupyter_widgets_base")  # of the network, in nbconvert's own template
NOTHING = "data:,//"  # what follows it in an address is a comment

Notebook = Any  # nbformat's NotebookNode
Output = Any
States = Mapping[str, Any]


def static(notebook: Notebook) -> Notebook:
    """A copy in which each widget that has a static form is that form; the state of widgets goes with the last of them."""
    made = copy.deepcopy(notebook)
    states: States = made.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    left = False
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for output in cell.outputs for one in _static(output, states)]
            left = left or any(VIEW in output.get("data", {}) for output in cell.outputs)
    if not left:
        made.metadata.pop("widgets", None)
    return made


def _static(output: Output, states: States) -> list[Output]:
    data = output.get("data", {})
    if VIEW not in data:
        return [output]
    if "text/html" in data:
        del data[VIEW]
        return [output]
    return _shown(data[VIEW].get("model_id", ""), states) or [output]


def _shown(model: str, states: States) -> list[Output]:
    """What a widget's model shows, as outputs without widgets; nothing where it has no such form."""
    state = states.get(model, {}).get("state", {})
    if "outputs" in state:
        caught = [nbformat.from_dict(output) for output in state["outputs"]]
        return [one for output in caught for one in _static(output, states)]
    if "_esm" in state and 'class="clab' in str(state.get("html")):
        return [_html(state["html"])]
    found: list[Output] = []
    for k, child in enumerate(state.get("children", ())):
        inside = _shown(str(child).removeprefix(REFERENCE), states)
        title = _title(state, k)
        found += [_html(f"<p><strong>{html.escape(title)}</strong></p>"), *inside] if title and inside else inside
    return found


def _title(state: Mapping[str, Any], k: int) -> str:
    titles = state.get("titles") or ()
    return str(titles[k]) if k < len(titles) and titles[k] else ""


def _html(text: str) -> Output:
    return nbformat.v4.new_output("display_data", data={"text/html": text})


class StaticViews(Preprocessor):
    """``static`` for nbconvert."""

    def preprocess(self, nb: Notebook, resources: Any) -> tuple[Notebook, Any]:
        return static(nb), resources


def export(path: str | os.PathLike[str], out: str | os.PathLike[str], execute: bool = False) -> None:
    """Writes a notebook as one page that needs no network; with ``execute`` its cells are run first, in its folder, and the file stays as it is."""
    try:
        notebook: Notebook = nbformat.read(Path(path), as_version=4)
    except (ValueError, KeyError, AttributeError) as error:  # what nbformat raises for what is no notebook
        raise LabError(f"{Path(path).name} is not a notebook", why=str(error).split("\n", 1)[0]) from error
    if execute:
        runner = ExecutePreprocessor(timeout=None, kernel_name=notebook.metadata.get("kernelspec", {}).get("name", "python3"))
        runner.preprocess(notebook, {"metadata": {"path": str(Path(path).resolve().parent)}})
    exporter = HTMLExporter(**{f"{name}_url": NOTHING for name in TEMPLATE_ASKS})
    text, _ = exporter.from_notebook_node(static(notebook), {"metadata": {"name": Path(path).stem}})
    write_whole(out, text)
