"""Times of the real compiler's phases, from the begin and end events of its log.

In: events {"name", "ph": "B" or "E", "ts": microseconds, "tid"}. Out: seconds by name, and phases as items.
Always holds: an event that never ended has no time. PyTorch's counterpart: ``torch/_dynamo/utils.py`` (``ChromiumEventLogger``) writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.artifact import Item

PHASES: dict[str, tuple[str, ...]] = {  # our step -> torch's phases that are it
    "capture": ("bytecode_tracing",),
    "joint": ("aot_trace_joint_graph",),
    "partition": ("min_cut_rematerialization_partition",),
    "post grad": ("_recursive_post_grad_passes",),
    "lower": ("GraphLowering.run",),
    "schedule": ("Scheduler.__init__",),
    "generate": ("Scheduler.codegen", "PythonWrapperCodegen.generate"),
    "build": ("async_compile.wait",),
    "guard": ("build_guards",),
}


@dataclass(frozen=True)
class Phase:
    """``start`` and ``end`` in seconds from the first event; ``depth``: how many phases it stands in."""

    name: str
    start: float
    end: float
    depth: int


@dataclass
class Clock:
    """Phases that have ended, in order of their ends."""

    phases: list[Phase] = field(default_factory=list[Phase])
    _open: dict[Any, list[tuple[str, float]]] = field(default_factory=dict[Any, list[tuple[str, float]]])
    _zero: float | None = None

    def take(self, event: Mapping[str, Any]) -> None:
        now = float(event["ts"]) / 1e6
        if self._zero is None:
            self._zero = now
        stack = self._open.setdefault(event.get("tid"), [])
        if event["ph"] == "B":
            stack.append((event["name"], now))
        elif event["ph"] == "E" and any(name == event["name"] for name, _ in stack):
            while stack:
                name, start = stack.pop()
                if name == event["name"]:
                    self.phases.append(Phase(name, start - self._zero, now - self._zero, len(stack)))
                    break

    @property
    def zero(self) -> float | None:
        """Of what ``start`` and ``end`` of the phases are counted from, in seconds of torch's own clock; None where nothing was told."""
        return self._zero

    def spent(self, step: str) -> tuple[float | None, float]:
        """(when it began, by torch's own clock, seconds) of one of ``PHASES``; the beginning is None where torch did not tell of it."""
        found = [p for p in self.phases if p.name in PHASES[step]]
        began = None if self._zero is None or not found else self._zero + min(p.start for p in found)
        return began, math.fsum(p.end - p.start for p in found)


def phase_items(clock: Clock) -> tuple[Item, ...]:
    """In order of their starts. A phase's parent is the one it stands in; times are facts, since the item is about them."""
    found: list[Item] = []
    above: list[tuple[Item, float]] = []
    for n, p in enumerate(sorted(clock.phases, key=lambda p: (p.start, -p.end, p.depth))):
        while above and above[-1][1] < p.end:
            above.pop()
        parents = (above[-1][0].id,) if above else ()
        facts = {"start": p.start, "seconds": p.end - p.start, "depth": len(above), "name": p.name}
        item = Item(f"torch.phases/{n}", "phase", p.name, parents, (), facts)
        found.append(item)
        above.append((item, p.end))
    return tuple(found)


def phase_text(items: Iterable[Item]) -> str:
    return "\n".join("  " * int(i.facts["depth"]) + i.text for i in items)
