"""A view as a widget: the same HTML and script, with values that Python sees and a function that answers.

In: the view's HTML, its values, a function of a question. Out: an anywidget, which ipywidgets links and ``interact`` moves like any other.
Always holds: what is static stays static: the widget shows what ``text/html`` shows, and more only where Python must compute; an error in the function
is an answer ``{"error": text}``, never silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anywidget
import traitlets

from .frame import script

TRAITS: dict[type, type[traitlets.TraitType[Any, Any]]] = {
    bool: traitlets.Bool, int: traitlets.Int, float: traitlets.Float, str: traitlets.Unicode, list: traitlets.List, dict: traitlets.Dict,
}  # fmt: skip


def live(name: str, html: str, values: Mapping[str, Any], answer: Callable[[Any], Any] | None = None, text: str = "") -> anywidget.AnyWidget:
    """The widget. ``values``: name -> first value (bool, int, float, str, list or dict), each a synchronised trait of the widget.
    ``html`` and ``text`` stand in the output beside the widget: they are what is shown where its kernel is gone, or was never there."""
    traits = {n: TRAITS[type(v)](v).tag(sync=True) for n, v in values.items()}
    fields: dict[str, Any] = {"_esm": f"{script(name)}\nexport default widget(start);\n", "html": traitlets.Unicode().tag(sync=True), **traits}
    fields["_repr_mimebundle_"] = lambda widget, **wanted: _beside(anywidget.AnyWidget._repr_mimebundle_(widget, **wanted), html, text or name)
    made: Any = type(f"Live{name.title()}", (anywidget.AnyWidget,), fields)(html=html)
    made.on_msg(lambda widget, content, buffers: _reply(widget, content, answer))
    return made


def _beside(bundle: Any, html: str, text: str) -> Any:
    """The widget's MIME bundle with the static form in it."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    return {**data, "text/plain": text, "text/html": html}, metadata


def _reply(widget: Any, content: Mapping[str, Any], answer: Callable[[Any], Any] | None) -> None:
    try:
        found = answer(content["question"]) if answer is not None else {"error": "nobody answers this view"}
    except Exception as error:  # noqa: BLE001 - whatever went wrong is shown where the question was asked
        found = {"error": f"{type(error).__name__}: {error}"}
    widget.send({"to": content["number"], "answer": found})
