"""A guard that failed, in words.

In: the leaf of a guard tree and the value that came. Out: ``Failure``. Always holds: plain data; nothing of the program is kept.
PyTorch's counterpart: ``GuardDebugInfo`` (``torch/csrc/dynamo/guards.h``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.provenance import Stack, own_location


@dataclass(frozen=True)
class Failure:
    """The first guard that fails: ``source`` as the tree writes it, what was ``expected``, what came, and the line that assumed it.

    ``values``: both once more as plain data, where there is any: the sizes of a tensor."""

    kind: str
    source: str
    expected: str
    got: str
    stack: Stack = ()
    values: tuple[Any, Any] | None = None

    def text(self) -> str:
        where = own_location(self.stack)
        return f"{self.source}: expected {self.expected}; got {self.got}" + (f"  (assumed at {where.text()})" if where else "")

    @property
    def advice(self) -> str:
        """What to write so that it need not fail."""
        from .recompiles import avoid

        return avoid(self)
