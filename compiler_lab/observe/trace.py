"""A trace: the steps of a compile in order, as a value that can be looked at, saved and opened on another machine.

In: ``Step``s, handed to ``Trace.append`` (so ``compile(fn, observe=trace.append)`` records). Out: JSON-able data and back.
Always holds: time lives on the step and never in an artifact; a loaded trace answers the same questions as a live one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.artifact import Artifact


@dataclass(frozen=True)
class Step:
    """One step of one compile: ``name`` of the pipeline step, its input and output, and what it cost.

    ``part`` is "forward" or "backward" after the partition, "" before it. ``graph`` numbers the captured graphs of a recording.
    """

    name: str
    before: Artifact | None
    after: Artifact
    seconds: float
    part: str = ""
    graph: int = 0
