"""The five questions every artifact answers, and what the base class derives from them.

* What is it?                        ``text()``: canonical and deterministic; no addresses, times or set order
* What is it made of, from what?     ``items()``: ids qualified by stage, ``aot.joint/mm_1``, ``codegen.forward/k0:L12``
* Why this way?                      ``decisions``: reasons out of a closed catalogue
* Is it well formed?                 ``check()`` raises ``InvalidIR`` naming the item; run at every stage boundary
* What does it compute?              ``run(*args)`` at every level, interpreted where it is not yet code

Derived once, here: ``repr``, the notebook's MIME bundle, ``fingerprint`` and JSON. Everything an ``Item`` or a ``Decision``
holds is plain data (str, int, float, bool, None, and lists and dicts of these), so a saved trace opens anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import html
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .provenance import Location, Stack, own_location

Plain = Any  # JSON-able: str | int | float | bool | None | list[Plain] | dict[str, Plain]


@dataclass(frozen=True)
class Item:
    """One element of an artifact. ``kind`` names what it is in the stage's words ("call_function", "reduction", "line")."""

    id: str
    kind: str
    text: str
    parents: tuple[str, ...] = ()
    stack: Stack = ()
    facts: Mapping[str, Plain] = field(default_factory=dict[str, Plain])

    @property
    def location(self) -> Location | None:
        return own_location(self.stack)


@dataclass(frozen=True)
class Decision:
    """Why this way: ``subject`` (item ids) got ``outcome`` for ``reason`` (an id from the stage's catalogue)."""

    kind: str  # "fuse", "save", "guard", "reuse", "break", ...
    subject: tuple[str, ...]
    outcome: str  # "accepted" | "refused" | a stage's own word
    reason: str
    facts: Mapping[str, Plain] = field(default_factory=dict[str, Plain])


class Artifact(ABC):
    """Base of every inspectable value. Subclasses set ``stage`` and answer the five questions."""

    stage: str = ""
    decisions: tuple[Decision, ...] = ()

    @abstractmethod
    def text(self) -> str: ...

    @abstractmethod
    def items(self) -> tuple[Item, ...]: ...

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def run(self, *args: Any) -> Any: ...

    def more(self) -> Mapping[str, Plain]:
        """What takes a while to know: asked for when a trace is saved, and by the view that shows it."""
        return {}

    def __repr__(self) -> str:
        return self.text()

    def fingerprint(self) -> str:
        """SHA-256 of the canonical text: equal text, equal artifact."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def to_json(self) -> dict[str, Plain]:
        """{"type", "stage", "text", "items": [...], "decisions": [...]}, and "more" where there is any; all plain data."""
        more = dict(self.more())
        return {
            "type": type(self).__name__,
            "stage": self.stage,
            "text": self.text(),
            "items": [{**vars(i), "facts": dict(i.facts), "stack": tuple(map(_plain, i.stack))} for i in self.items()],
            "decisions": [{**vars(d), "facts": dict(d.facts)} for d in self.decisions],
            **({"more": more} if more else {}),
        }

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": artifact_html(self)}


@functools.lru_cache(65536)
def _plain(location: Location) -> dict[str, Plain]:
    """A location as plain data; many items share one, and a large trace has a hundred thousand of them."""
    return dict(vars(location))


def artifact_html(artifact: Artifact) -> str:
    """Self-contained HTML without script: the text, then items and decisions as tables in <details>."""
    esc = html.escape
    items = [(i.id, i.kind, i.text, i.location.text() if i.location else "") for i in artifact.items()]
    decisions = [(d.kind, ", ".join(d.subject), d.outcome, d.reason) for d in artifact.decisions]

    def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
        if not rows:
            return ""
        row = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{esc(c)}</{tag}>" for c in cells) + "</tr>"
        body = "".join(row(r, "td") for r in rows)
        return f"<details><summary>{esc(title)} ({len(rows)})</summary><table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table></details>"

    return (
        f"<section><strong>{esc(type(artifact).__name__)}</strong> <code>{esc(artifact.stage)}</code><pre>{esc(artifact.text())}</pre>"
        + table("Items", ("id", "kind", "text", "your line"), items)
        + table("Decisions", ("kind", "subject", "outcome", "reason"), decisions)
        + "</section>"
    )
