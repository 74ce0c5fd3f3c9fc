"""What compiled frames are known by: an entry of a function's cache, and the counts that ``stats()`` reports.

In: a guard tree and replacement code; breaks that were met. Out: ``Entry``, ``Stats``. Always holds: importing this brings nothing of capture.
PyTorch's counterpart: ``torch/_dynamo/types.py`` (``GuardedCode``) and ``torch/_dynamo/utils.py`` (counters).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..core.provenance import own_location

if TYPE_CHECKING:
    from .guards import GuardTree
    from .ir import Break


@dataclass
class Stats:
    """What ``stats()`` reports: graphs handed to a backend; breaks, each (code, reason, line) once; how often each reason."""

    graphs: int = 0
    breaks: int = 0
    break_reasons: dict[str, int] = field(default_factory=dict[str, int])
    _seen: set[tuple[Any, ...]] = field(default_factory=set[tuple[Any, ...]], repr=False)

    def meet(self, found: Break, code: CodeType) -> bool:
        """Counts ``found`` unless it was met before; True when it is new."""
        where = own_location(found.stack)
        key = (where.file, where.function, where.line, found.reason) if where else (code.co_filename, code.co_qualname, code.co_firstlineno, found.reason)
        if key in self._seen:
            return False
        self._seen.add(key)
        self.breaks += 1
        self.break_reasons[found.reason] = self.break_reasons.get(found.reason, 0) + 1
        return True

    def clear(self) -> None:
        self.graphs = self.breaks = 0
        self.break_reasons.clear()
        self._seen.clear()


@dataclass(frozen=True, eq=False)
class Entry:
    """A captured frame: ``tree`` says when ``code`` may run in its place."""

    tree: GuardTree
    code: CodeType
    graph: bool = True  # whether it holds tensor work
    retried: bool = False  # of a piece: where it raises, Python runs the rest of the frame from where the piece begins

    def function(self, fn: FunctionType) -> FunctionType:
        """``code`` as a plain function in ``fn``'s place."""
        return FunctionType(self.code, fn.__globals__, fn.__name__, None, fn.__closure__)
