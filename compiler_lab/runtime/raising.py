"""A graph that raises on its data: in the program's words, and what the program wrote before the operator that raises stays written.

In: the forward of a partition, the callable made of the partition, and the captured graph as a callable. Out: a callable with the
same meaning that raises as the program does.
Always holds: a call that does not raise costs nothing more (a generator's state is read where the graph draws from it). The forward
writes its inputs back at the end; one that raises has changed none, so the captured graph, whose operators stand in the program's order,
is run from the start: it writes what the program would have written and raises where the program would have raised.
PyTorch's counterpart: none; what was written before the error is lost under AOTAutograd. Left out: devices other than the CPU that draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from ..core.fx import GraphArtifact
from ..core.schema import is_random, may_raise

ON_DATA = (RuntimeError, IndexError, ValueError)
"""What operators of aten raise."""


Raising = Literal["never", "raises", "raises and draws"]


def raising(forward: GraphArtifact) -> Raising:
    """Whether ``forward`` may raise on its data, and then whether it draws random numbers."""
    nodes = forward.graph.nodes
    if not any(may_raise(n) for n in nodes):
        return "never"
    return "raises and draws" if any(is_random(n) for n in nodes) else "raises"


def in_order(kind: Raising, compiled: Callable[..., Any], captured: Callable[..., Any]) -> Callable[..., Any]:
    """``compiled``; where it raises, ``captured`` runs in its place. Only for programs that may raise."""
    if kind == "never":
        return compiled
    draws = kind == "raises and draws"

    def call(*primals: Any) -> Any:
        state = torch.get_rng_state() if draws else None
        try:
            return compiled(*primals)
        except ON_DATA:
            if state is not None:
                torch.set_rng_state(state)
        return captured(*primals)

    return call
