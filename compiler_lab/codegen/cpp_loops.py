"""Loop nests: where statements stand, which loop is vector code, which is shared by threads.

In: statements with the variables they depend on. Out: lines. Always holds: a statement stands inside exactly the loops whose variables it
needs (as far as collapsed loops allow), so what is invariant is computed outside; the innermost loop carries ``omp simd``; every
loop, pragma and declaration stands on a line of its own, whose parents are the nodes that need it.
PyTorch's counterpart: ``LoopNest`` in ``torch/_inductor/codegen/cpp.py``. Rows are in ``cpp_rows.py``, columns in ``cpp_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from ..lowering.index import Var
from ..lowering.sizes import is_number
from ..scheduling.ir import LoopGroup
from .cpp_body import Bodies, PhaseCode, Statement
from .cpp_reduce import Reduction, Tile, numel, proper
from .emit import Emitter

Mode = Literal["serial", "outer", "inner"]

THREADS = 64
"""At least so many iterations are shared out; with fewer, threads share the next loop inside."""
LONG = 4096
"""A loop of so many elements is worth sharing between threads by itself."""
STACK_BYTES = 256 * 1024
"""Scratch beyond this is allocated."""


@dataclass
class SerialCode:
    """A serial kernel's statements: ``first`` fills the buffer, ``steps`` stand in its steps, ``state`` declares what these carry."""

    first: list[Statement] = field(default_factory=list[Statement])
    steps: list[Statement] = field(default_factory=list[Statement])
    state: list[str] = field(default_factory=list[str])


@dataclass
class KernelCode:
    """One kernel being written. ``mode``: which loops threads share: those over outer, those over inner, none.

    A pointwise kernel is a list of ``pieces``: loop variables and statements; the other shapes have ``phases``.
    """

    e: Emitter
    group: LoopGroup
    bodies: Bodies
    mode: Mode
    phases: list[PhaseCode] = field(default_factory=list[PhaseCode])
    pieces: list[tuple[tuple[Var, ...], list[Statement]]] = field(default_factory=list[tuple[tuple[Var, ...], list[Statement]]])
    serial: SerialCode = field(default_factory=SerialCode)

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(self.bodies.ids[n.name] for n in self.group.nodes)

    @property
    def statements(self) -> list[Statement]:
        swept = [s for p in self.phases for s in (*p.sweep, *p.after)] + [s for _, statements in self.pieces for s in statements]
        return [*swept, *self.serial.first, *self.serial.steps]


def place(statements: Sequence[Statement], order: Sequence[Var], allowed: Sequence[int] | None = None) -> list[list[Statement]]:
    """Statements by depth: 0 outside the loops of ``order``, k just inside the k-th; rounded up to ``allowed`` depths."""
    levels: list[list[Statement]] = [[] for _ in range(len(order) + 1)]
    for s in statements:
        depth = max((d for d, v in enumerate(order, 1) if v.name in s.variables), default=0)
        if allowed is not None:
            depth = min(d for d in allowed if d >= depth)
        levels[depth].append(s)
    return levels


def emit(e: Emitter, statements: Iterable[Statement]) -> None:
    for s in statements:
        e.line(s.text, s.parents, s.stack)


def parents_of(statements: Iterable[Statement], reductions: Iterable[Reduction] = ()) -> tuple[str, ...]:
    found = dict.fromkeys(p for s in statements for p in s.parents)
    return tuple(found | dict.fromkeys(p for r in reductions for p in r.parents))


def flags(statements: Iterable[Statement]) -> str:
    """The clause that joins the error flags which threads and lanes set."""
    names = sorted({s.flag for s in statements if s.flag})
    return f" reduction(|:{', '.join(names)})" if names else ""


def loop(variable: str, stop: int | str, start: int | str = 0, step: int = 1) -> str:
    advance = f"{variable}++" if step == 1 else f"{variable} += {step}"
    return f"for (int64_t {variable} = {start}; {variable} < {stop}; {advance})" + " {"


def nest(e: Emitter, stack: ExitStack, variables: Sequence[Var], levels: Sequence[list[Statement]], parents: tuple[str, ...]) -> None:
    """Opens a loop over each variable, with the statements of ``levels[k]`` just inside the k-th."""
    for v, level in zip(variables, levels, strict=True):
        stack.enter_context(e.block(loop(v.name, v.size), parents))
        emit(e, level)


def plain_sweep(e: Emitter, statements: Sequence[Statement], variables: Sequence[Var], parallel: bool) -> None:
    """Loops over all of ``variables`` without a reduction, the last one that a statement needs as vector code."""
    order, parents, clause = proper(variables), parents_of(statements), flags(statements)
    needed = frozenset[str]().union(*(s.variables for s in statements))
    while order and order[-1].name not in needed:
        order = order[:-1]
    if not order:
        return emit(e, statements)
    *rest, last = order
    few = numel(rest)
    split = parallel and bool(rest) and is_number(few) and few < THREADS and (not is_number(last.size) or last.size >= LONG)
    collapse = parallel and not split and bool(rest)
    levels = place(statements, order, (0, len(rest), len(order)) if collapse else None)
    emit(e, levels[0])
    with ExitStack() as stack:
        if split:
            e.line(f"#pragma omp parallel{clause}", parents)
            stack.enter_context(e.block("{"))
        elif collapse:
            e.line(f"#pragma omp parallel for{f' collapse({len(rest)})' if len(rest) > 1 else ''}{clause}", parents)
        nest(e, stack, rest, levels[1 : len(order)], parents)
        innermost = parents_of(levels[-1])
        e.line(
            f"#pragma omp {'for simd nowait' if split else 'parallel for simd' if parallel and not rest else 'simd'}{flags(levels[-1]) if not split else ''}",
            innermost,
        )
        with e.block(loop(last.name, last.size), innermost):
            emit(e, levels[-1])


def open_blocks(e: Emitter, stack: ExitStack, t: Tile, levels: Sequence[list[Statement]], parents: tuple[str, ...]) -> None:
    """The loops outside a block: over ``outside``, then over blocks of ``split`` as ``[base, end)``."""
    nest(e, stack, t.outside, levels, parents)
    if t.split is not None:
        size = t.split.size
        stack.enter_context(e.block(loop("base", size, step=t.step), parents))
        end = f"base + {t.step}" if size % t.step == 0 else f"base + {t.step} < {size} ? base + {t.step} : {size}"
        e.line(f"const int64_t end = {end};", parents)


def block_bounds(t: Tile, v: Var) -> tuple[str, str]:
    """First and last-plus-one value of ``v`` within a block."""
    return ("base", "end") if v == t.split else ("0", str(v.size))
