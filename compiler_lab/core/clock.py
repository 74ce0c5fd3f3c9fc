"""Time inside a step: what a long step did, one thing after another or side by side.

In: names, where something long begins and ends. Out: ``Span``s, which the step carries (``observe/trace.py``).
Always holds: nobody who is not watched has a ``Clock``: with None, ``spent`` asks no time and keeps nothing. Times are of one monotonic clock, ``now``.
PyTorch's counterpart: ``dynamo_timed`` and ``ChromiumEventLogger`` in ``torch/_dynamo/utils.py``.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

now = time.perf_counter
_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True)
class Span:
    """``start`` in seconds since the step that it belongs to began."""

    name: str
    start: float
    seconds: float


class Clock:
    """What one step does: a span for the whole, and spans inside it."""

    def __init__(self) -> None:
        self._made: list[tuple[float, float, str]] = []

    @contextmanager
    def span(self, name: str) -> Generator[None]:
        start = now()
        try:
            yield
        finally:
            self._made.append((start, start - now(), name))

    def told(self) -> tuple[float, float, tuple[Span, ...]]:
        """(start, seconds, spans) of the step, which is the first span; what holds another one stands before it."""
        (start, length, _), *inner = sorted(self._made)
        return start, -length, tuple(Span(name, at - start, -long) for at, long, name in inner)


def spent(clock: Clock | None, name: str) -> AbstractContextManager[None]:
    """The block's time, where somebody has a clock."""
    return _NOTHING if clock is None else clock.span(name)
