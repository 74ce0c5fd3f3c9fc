"""One picture of a trace: plain data, and the view that draws it.

In: a ``Trace`` (live or loaded, of our stack or of the real one), or one artifact. Out: ``View``, which prints as text, shows itself in a notebook, is
saved as one page, and, where a view has something to step, slide or ask, becomes a widget by ``live()``.
Always holds: a view sees plain data only; each row of ``VIEWS`` names a function of this package that makes the data and a module of
``compiler_lab_widgets`` that draws it (``render(data)``) and says it (``text(data)``).
PyTorch's counterpart: none; ``TORCH_TRACE`` with tlparse makes pages of logs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.artifact import Artifact, Plain
from ..core.collecting import uncollected
from ..core.errors import UnknownOption
from ..core.report import Report
from .trace import Step, Trace


@dataclass(frozen=True)
class Source:
    """``data``: "module:function" under ``observe``, called with the trace and the options; ``values``: what the widget remembers, with first values;
    ``answer``: "module:function" under ``observe``, called with the trace and a question of the widget's; ``pair``: a second trace can stand beside it."""

    title: str
    data: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: str = ""
    pair: bool = False


PLAIN = 200_000  # characters of text/plain
VIEWS: dict[str, Source] = {
    "pipeline": Source("Every step, with linked lines", "html:view_data"),
    "graph": Source("A graph that folds, and the difference of two", "graph_data:graph_data", {"selected": "", "overlay": ""}),
    "film": Source("The capture, instruction by instruction", "film_data:film_data", {"position": 0, "film": 0}),
    "guards": Source("Guards and recompiles", "guards_data:guards_data", {"tree": 0, "values": {}}, "guards_data:answer"),
    "breaks": Source("Graph breaks", "breaks_data:breaks_data"),
    "fusion": Source("Loops become kernels, decision by decision", "fusion_data:fusion_data", {"program": 0, "position": 0, "left": 0, "right": 0}),
    "cut": Source(
        "What is saved: the minimum cut, path by path",
        "cut_data:cut_data",
        {"program": 0, "position": -1, "node": "", "budget": -1.0, "must_save": [], "must_recompute": [], "around": ""},
        "cut_data:answer",
    ),
    "memory": Source("Where buffers live, and how long", "memory_data:memory_data", {"program": 0, "buffer": "", "kernel": ""}),
    "kernel": Source("A kernel's loops, code, memory and roofline", "kernel_data:kernel_data", {"kernel": 0, "access": 0, "point": {}}),
    "compare": Source("Two compiles, stage by stage", "compare_data:compare_data", {"stage": 0, "differences": False}, pair=True),
    "time": Source("Where time goes", "time_data:time_data", {"zoom": [], "focus": []}, pair=True),
}


def beside(name: str, other: Trace | None) -> dict[str, Trace]:
    """The option of the view ``name`` that sets ``other`` beside the trace."""
    return {"other": other} if other is not None and VIEWS[name].pair else {}


@dataclass(frozen=True, repr=False)
class View(Report):
    """``name``: a row of ``VIEWS``. ``data``: plain, as the row's function made it."""

    name: str
    data: Mapping[str, Plain]
    answer: Callable[[Any], Any] | None = None

    @uncollected()
    def text(self) -> str:
        return _drawing(self.name).text(self.data)

    @uncollected()
    def html(self) -> str:
        """A fragment that needs no network, no kernel and no script to be read."""
        return _drawing(self.name).render(self.data)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": _bounded(self.text(), self.name), "text/html": self.html()}

    def static(self) -> View:
        return self

    def live(self) -> Any:
        """The view as a widget, whose values other widgets can link to; ``static()`` of it is this view. Where widgets are not installed it is this
        view itself, after a line that says what to install."""
        try:
            from compiler_lab_widgets.live import live
        except ImportError as error:
            print(f"live views need {error.name}: pip install anywidget; this is the static one")
            return self
        made: Any = live(self.name, self.html(), VIEWS[self.name].values, self.answer, self.text())
        made.static = self.static
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one page that needs no network."""
        from .html import document, write_whole

        write_whole(path, document(str(self.data.get("title", self.name)), self.html()))


@uncollected()
def view(of: Trace | Artifact, name: str = "pipeline", **options: Any) -> View:
    """``name`` is a row of ``VIEWS``; ``options`` are those of its data function. Raises ``UnknownOption`` for another name."""
    if name not in VIEWS:
        raise UnknownOption(f"no view {name!r}", hint=f"views: {', '.join(VIEWS)}")
    trace = of if isinstance(of, Trace) else Trace(of.stage, [Step(of.stage.split(".")[-1], None, of, 0.0)])
    source = VIEWS[name]
    answer = _function(source.answer) if source.answer else None
    return View(name, _function(source.data)(trace, **options), None if answer is None else lambda question: answer(trace, question))


def _bounded(text: str, name: str) -> str:
    """What a notebook keeps beside the picture: whole lines of the text, up to ``PLAIN`` characters, and how to see the rest."""
    if len(text) <= PLAIN:
        return text
    kept = text[: text.rfind("\n", 0, PLAIN) + 1 or PLAIN]
    left = text.count("\n") + 1 - kept.count("\n")
    return f"{kept}... {left:,} more lines; all of them: print(trace.view({name!r}).text()), or compiler-lab show FILE --view {name} --format text"


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


def _drawing(name: str) -> Any:
    return importlib.import_module(f"compiler_lab_widgets.{name}_view")
