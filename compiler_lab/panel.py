"""What the JupyterLab extension asks a kernel: which compiles it recorded, and one of them as a picture.

In: the session of this process. Out: plain data, and a ``View``. The extension evaluates these as silent expressions, so nothing that a program can
see changes: no name, no output, no number of a cell. Always holds: everything here can be had without the extension, by ``session.traces()``.
PyTorch has no counterpart.
"""

from __future__ import annotations

from . import session
from .core.artifact import Plain
from .core.errors import UnknownOption
from .observe.view import View


class Listing(dict[str, Plain]):
    """{"stats": ``session.stats()``, "traces": [{"number", "title", "steps", "graphs", "seconds"}], the last first}."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        return {"application/json": dict(self)}


def listing() -> Listing:
    """The compiles that this process recorded."""
    rows: list[Plain] = [
        {"number": number, "title": t.title, "steps": len(t.steps), "graphs": len(t.graphs), "seconds": t.seconds}
        for number, t in reversed(session.traces().items())
    ]
    return Listing(stats=session.stats(), traces=rows)


def picture(number: int, view: str = "pipeline") -> View:
    """A view of the trace with this number. Raises ``UnknownOption`` where it is gone."""
    found = session.traces()
    if number not in found:
        raise UnknownOption(f"trace {number} is no longer kept", hint="run the cell again with %%compile_inspect --trace NAME to keep it")
    return found[number].view(view)
