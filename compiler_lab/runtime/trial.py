"""Compiled programs that call operators of the user's: trusted once their schemas have been seen to be true.

In: a compiled program, the captured graph that it was made from, and whether calls are watched always. Out: a callable like it.
Always holds: an operator that writes, aliases or draws without saying so never runs in compiled code whose other parts rely on its word.
The first call runs the captured graph itself, operator by operator as eager does, and watches the operators: its result is right whatever
they do, nothing runs twice, and no random number is drawn twice. If all told the truth, later calls run the compiled program; if one lied,
the captured graph runs from then on and the lie is reported. A backward has no captured graph: its first run is watched, and a lie raises.
PyTorch's counterpart: none; there schemas are trusted. Left out: an operator that tells the truth at the first call only, unless every call
is watched (``options={"check": True}``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch.fx as fx

from ..core.errors import Unsupported
from ..core.honesty import SchemaReport, Watch
from ..core.provenance import own_location, stack_of
from ..core.schema import is_custom

Run = Callable[..., Any]


def calls_custom(graph: fx.Graph) -> bool:
    """Whether an operator of ``graph`` did not come with torch."""
    return any(is_custom(n.target) for n in graph.nodes)


def watched(run: Run, always: bool) -> Run:
    """``run``, whose first call (or every call) raises ``Mismatch`` where an operator lies."""
    current = [run]

    def under_watch(*args: Any) -> Any:
        with Watch(strict=True):
            result = run(*args)
        if not always:
            current[0] = run
        return result

    current[0] = under_watch
    return functools.wraps(run, assigned=())(lambda *args: current[0](*args))  # a boxed function stays one


def on_trial(compiled: Run, captured: Run, graphs: Iterable[fx.Graph], refuse: Callable[[Unsupported], None]) -> Run:
    """``compiled``, or ``captured`` where the first call shows that an operator lies; ``refuse`` is then told.

    graphs: where the operators stand, for the user's line."""
    places = {n.target: own_location(stack_of(n)) for graph in graphs for n in graph.nodes if is_custom(n.target)}
    current: list[Run] = []

    def first(*args: Any) -> Any:
        with Watch() as watch:
            result = captured(*args)
        current[0] = captured if watch.found else compiled
        for op, report in watch.found.items():
            refuse(refusal(report, places.get(op) or next(iter(places.values()), None)))
        return result

    current.append(first)
    return lambda *args: current[0](*args)


def refusal(report: SchemaReport, where: Any) -> Unsupported:
    """Why a graph with this operator is left to eager."""
    lies = "; ".join(f.what for f in report.lies)
    hint = f"declare it as {report.truth}" if report.truth != str(report.op._schema) else ""
    return Unsupported(f"{report.op} does not do what its schema says: {lies}", reason=report.lies[0].reason, where=where, hint=hint)
