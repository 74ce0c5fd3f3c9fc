"""A finding that is no artifact: something measured or counted, which prints itself and shows itself in a notebook.

Subclasses are frozen dataclasses with ``text()``. What holds of an artifact's text (no addresses, times, set order) holds of a report's but
for the times that it is there to show.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import Any


class Report(ABC):
    """Base of findings: ``repr`` and the notebook's views follow from ``text()``."""

    @abstractmethod
    def text(self) -> str: ...

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        page = f"<section><strong>{type(self).__name__}</strong><pre>{html.escape(self.text())}</pre></section>"
        return {"text/plain": self.text(), "text/html": page}
