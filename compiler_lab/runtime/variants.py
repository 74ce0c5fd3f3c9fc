"""Programs with symbolic sizes that hold under conditions: a call is given to the first one whose conditions hold at its sizes.

In: a built program, and ways to make one for other sizes and to do without. Out: a callable with the program's signature.
Always holds: no program runs at sizes that it was not made for. A program without conditions is called as it is, which costs nothing: that its
symbols are in their ranges is guarded where the graph is entered. Where the table is full, or the graph cannot be made for the sizes at hand,
its operators run one by one.
PyTorch's counterpart: none; there a condition of lowering is a guard, and a call that fails it captures the program again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import Unsupported
from ..lowering.symbols import SizeSource

if TYPE_CHECKING:
    from .program import Program

Flat = Callable[..., Any]


def reader(sources: Sequence[SizeSource]) -> Callable[[Sequence[Any]], dict[str, int]]:
    """The symbols of a call, by name."""

    def read(args: Sequence[Any]) -> dict[str, int]:
        values: dict[str, int] = {}
        for source in sources:
            values[source.symbol.name] = source.read(args, values)
        return values

    return read


def by_condition(first: Program, again: Callable[[dict[str, int]], Program], plain: Flat, limit: int) -> Flat:
    """``first.call``, where it has conditions with the check of them and with other programs for other sizes, ``limit`` in all.

    again: makes the program for sizes at hand. plain: the graph, operator by operator; takes its arguments as ``first.call`` does."""
    if not first.kernels.conditions:
        return first.call
    read, boxed = reader(first.kernels.schedule.program.sizes), getattr(first.call, "_boxed_call", False)
    table: list[tuple[Callable[[dict[str, int]], bool], Flat]] = [(_holds(first), first.call)]
    lock = threading.RLock()

    def fitting(values: dict[str, int]) -> Flat | None:
        return next((run for holds, run in table if holds(values)), None)

    def later(values: dict[str, int]) -> Flat:
        with lock:
            if (found := fitting(values)) is not None:
                return found
            if len(table) >= limit:
                warnings.warn(
                    f"one graph was made for {limit} kinds of sizes, the limit; at other sizes its operators run one by one. "
                    "Pass options={'recompile_limit': N} to allow more.",
                    stacklevel=4,
                )
                table.append((lambda values: True, plain))
                return plain
            try:
                made = again(values)
                table.append((_holds(made), made.call))
                return made.call
            except Unsupported:
                table.append((lambda later, these=dict(values): later == these, plain))
                return plain

    def call(*args: Any) -> Any:
        values = read(args[0] if boxed else args)
        return (fitting(values) or later(values))(*args)

    call._boxed_call = boxed  # type: ignore[attr-defined]
    return call


def _holds(program: Program) -> Callable[[dict[str, int]], bool]:
    conditions = program.kernels.conditions
    return lambda values: all(c.holds(values) for c in conditions)
