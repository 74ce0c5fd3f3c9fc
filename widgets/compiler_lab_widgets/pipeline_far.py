"""What a large pipeline view leaves out of its HTML: long panes as compressed data, which the script draws when they are opened.

In: panes as the view comes to them, in order. Out: for each the HTML that stands in its place, which says how much it is and how to see it without script;
``panes``, all of them for the script (``pipeline_view.js``). A trace of up to ``LARGE`` characters has none: its HTML is complete.
Always holds: what the HTML has and what is packed are together everything; the first ``WHOLE`` lines of a large trace are HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .frame import count, esc, more

LARGE = 2_000_000  # characters of HTML, as ``size`` guesses them, above which long panes are packed
WHOLE = 1_500  # lines of a large trace that are HTML
SHORT = 24  # lines of a pane that is HTML in any case


class Far:
    def __init__(self, steps: Iterable[Mapping[str, Any]]) -> None:
        self.large = sum(map(size, steps)) > LARGE
        self.left = WHOLE
        self.panes: list[dict[str, Any]] = []

    def near(self, lines: int) -> bool:
        """Whether a pane of so many lines is HTML; asked once for each, in order."""
        if not self.large or lines <= SHORT:
            return True
        fits = lines <= self.left
        self.left -= lines if fits else 0
        return fits

    def pane(self, said: str, css: str, step: Mapping[str, Any], pane: dict[str, Any]) -> str:
        """A closed pane, and the sentence for readers without script. ``said`` is HTML."""
        number = len(self.panes)
        self.panes.append(pane)
        name, part = step["name"], step["part"]
        call = f"trace.stage({name!r}{f', {part!r}' if part else ''}).text()"
        told = (
            f"Left out of this page for its size, and drawn here by its script. Without script: <code>{esc(call)}</code>, or <code>{esc(command(step))}</code>."
        )
        return more(said, f"<p>{told}</p>", f"{css} clab-far").replace("<details ", f'<details data-far="{number}" ', 1)

    def note(self) -> str:
        """What the reader of a large trace is told first."""
        if not self.panes:
            return ""
        return f"<p>This trace is large: {count(len(self.panes), 'long pane')} are closed at first, and drawn when they are opened.</p>"


def size(step: Mapping[str, Any]) -> int:
    """About how many characters of HTML a step is: what is said, and the tags around it."""
    lines = sum(len(i["text"]) + 70 for i in step["items"]) + sum(len(line) + 30 for line in step["removed"])
    return lines + len(step["text"] or "") + 140 * len(step["decisions"])


def command(step: Mapping[str, Any]) -> str:
    name = step["name"] if step["name"].isidentifier() else f'"{step["name"]}"'
    return f"compiler-lab show FILE --stage {name} --format text"


def lines(items: Sequence[Mapping[str, Any]], paint: str, depths: Sequence[int] = ()) -> dict[str, Any]:
    """Lines as columns: runs of numbers [first, how many], texts, which are new, how deep each stands, which instructions are vector arithmetic."""
    runs: list[list[int]] = []
    for item in items:
        if runs and sum(runs[-1]) == item["n"]:
            runs[-1][1] += 1
        else:
            runs.append([item["n"], 1])
    made: dict[str, Any] = {"kind": "lines", "paint": paint, "n": runs, "text": [i["text"] for i in items], "new": [k for k, i in enumerate(items) if i["new"]]}
    if paint == "assembly":
        made["vector"] = [k for k, i in enumerate(items) if i["facts"].get("vector")]
    return made | ({"depth": list(depths)} if any(depths) else {})
