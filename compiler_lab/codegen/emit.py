"""Writing source text line by line, each line with what it comes from.

In: text, parents and stacks. Out: ``Line``s, numbered from 1. Always holds: one call of ``line`` is one line of the file, so line
tables, vectorisation reports and lineage agree. PyTorch's counterpart: ``IndentedBuffer`` in ``torch/_inductor/utils.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from ..core.provenance import Stack
from .ir import Line


class Emitter:
    """An append-only list of lines with an indentation level. ``before``: lines of the file that stand before the first."""

    def __init__(self, indent: str = "  ", before: int = 0) -> None:
        self.lines: list[Line] = []
        self.indent, self.depth, self.before = indent, 0, before

    def line(self, text: str = "", parents: Iterable[str] = (), stack: Stack = ()) -> None:
        self.lines.append(Line(self.before + len(self.lines) + 1, (self.indent * self.depth + text).rstrip(), tuple(dict.fromkeys(parents)), stack))

    @contextmanager
    def block(self, head: str, parents: Iterable[str] = (), end: str = "}") -> Generator[None]:
        """``head`` and, one level deeper, what is written inside; then ``end`` (nothing for Python)."""
        self.line(head, parents)
        self.depth += 1
        yield
        self.depth -= 1
        if end:
            self.line(end)

    def text(self) -> str:
        return "".join(line.text + "\n" for line in self.lines)
