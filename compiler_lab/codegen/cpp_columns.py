"""Column kernels: the last outer variable is contiguous, so lanes lie along it and each lane reduces its own column.

A strip of columns is worked on by one thread, sweep after sweep ("outer" mode). Where there are few strips, threads share blocks of
rows instead ("inner" mode) and each block leaves its lanes in an array of parts. Values of an outer point live in arrays over the strip.
PyTorch's counterpart: ``CppTile2DKernel`` and outer-loop vectorisation in ``torch/_inductor/codegen/cpp.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..lowering.index import Var
from ..lowering.sizes import at_most, hint, is_number
from ..scheduling.ir import LoopGroup
from .cpp_body import NO_MEMORY, PhaseCode, Statement
from .cpp_loops import STACK_BYTES, KernelCode, block_bounds, emit, flags, loop, nest, open_blocks, parents_of, place
from .cpp_ops import compute_type
from .cpp_reduce import Reduction, Tile, numel, proper
from .cpp_rows import linear, lines

STRIP = 512
"""Columns in a strip: long enough runs of memory, short enough that accumulators stay in the first-level cache."""


def strip_width(k: KernelCode) -> int:
    """How many columns are worked on together."""
    return k.group.outer[-1].size if k.mode == "inner" else _width(k.group)


def strips(group: LoopGroup) -> int:
    """How many strips there are for threads to share."""
    return -(-hint(group.outer[-1].size) // _width(group))


def _width(group: LoopGroup) -> int:
    """A kernel with several sweeps keeps its strip in the second-level cache."""
    columns, wide = group.outer[-1].size, STRIP
    if sum(p.space == "full" for p in group.phases) > 1:
        while wide > 16 and wide * hint(numel(group.inner)) > 2**16:
            wide //= 2
    return max(min(columns, wide), 1) if is_number(columns) else wide


def columns(k: KernelCode) -> None:
    """The whole kernel's loops."""
    e, (*rest, last) = k.e, k.group.outer
    outer, width = proper(rest), strip_width(k)
    heap = bool(k.bodies.rows)
    strips = not is_number(last.size) or width < last.size
    collapse = len(outer) + strips
    with ExitStack() as stack:
        if k.mode == "outer":
            clause = flags(k.statements) if not heap else f" reduction(|:{', '.join(sorted({NO_MEMORY, *(s.flag for s in k.statements if s.flag)}))})"
            e.line(f"#pragma omp parallel for{f' collapse({collapse})' if collapse > 1 else ''}{clause}", k.parents)
        nest(e, stack, outer, [[] for _ in outer], k.parents)
        count = str(width)
        if strips:
            stack.enter_context(e.block(loop("strip", last.size, step=width), k.parents))
            if last.size % width:
                count = "count"
                e.line(f"const int64_t count = strip + {width} < {last.size} ? {width} : {last.size} - strip;", k.parents)
        lane = _Lanes(k, last, count, width, strips)
        lane.arrays()
        for phase in k.phases:
            lane.phase(phase)


class _Lanes:
    """One strip: loops over its lanes, and the arrays over them. ``count`` is the text of how many lanes there are, at most ``width``."""

    def __init__(self, k: KernelCode, last: Var, count: str, width: int, strips: bool) -> None:
        self.k, self.e, self.last, self.count, self.width, self.strips = k, k.e, last, count, width, strips

    def arrays(self) -> None:
        """What outlives a phase: values of the outer points, and scratch."""
        b = self.k.bodies
        for n in self.k.group.nodes:
            parents, ctype = (b.ids[n.name],), compute_type(n.output.dtype)
            if n.name in b.crossing:
                self.e.line(f"alignas(64) {ctype} {b.array(n.name)}[{self.width}];", parents, n.stack)
            if n.name in b.rows:
                size, name = max(numel(self.k.group.inner), 1) * self.width, b.rows[n.name]
                self.e.line(f"Scratch<{ctype}> {name}_memory({size});", parents, n.stack)
                self.e.line(f"{NO_MEMORY} |= !{name}_memory.data;", parents, n.stack)
                self.e.line(f"{ctype}* __restrict__ {name} = {name}_memory.data;", parents, n.stack)
        if b.rows:
            self.e.line(f"if ({NO_MEMORY}) {'continue' if self.k.mode == 'outer' else 'return 2'};", self.k.parents)

    def loop(self, statements: Sequence[Statement], steps: Sequence[tuple[Reduction, str]] = (), parents: tuple[str, ...] = ()) -> None:
        """A vector loop over the lanes."""
        parents = tuple(dict.fromkeys((*parents_of(statements, [r for r, _ in steps]), *parents)))
        self.e.line(f"#pragma omp simd{flags(statements)}", parents)
        with self.e.block(loop("lane", self.count), parents):
            if any(self.last.name in s.variables for s in statements):
                self.e.line(f"const int64_t {self.last.name} = {'strip + ' if self.strips else ''}lane;", parents)
            emit(self.e, statements)
            for r, text in steps:
                lines(self.e, r, (text,))

    def phase(self, phase: PhaseCode) -> None:
        empty = numel(self.k.group.inner) == 0
        if phase.reductions:
            self.reduce(phase, empty)
        elif not empty and phase.sweep:
            inner = proper(self.k.group.inner)
            shared = self.k.mode == "inner" and bool(inner)
            levels = place(phase.sweep, (*inner, self.last), (0, len(inner), len(inner) + 1) if shared else None)
            emit(self.e, levels[0])
            with ExitStack() as stack:
                if shared:
                    self.e.line(f"#pragma omp parallel for{f' collapse({len(inner)})' if len(inner) > 1 else ''}{flags(phase.sweep)}", parents_of(phase.sweep))
                nest(self.e, stack, inner, levels[1:-1], parents_of(phase.sweep))
                self.loop(levels[-1])
        if phase.after:
            self.loop(phase.after)

    def reduce(self, phase: PhaseCode, empty: bool) -> None:
        """One sweep with reductions: each block of rows adds to the lanes, which then go into the totals."""
        inner = proper(self.k.group.inner)
        t = phase.tile
        shared = self.k.mode == "inner" and not t.single
        first = len(t.outside) + (1 if t.split and t.outside else 0)
        levels = place(phase.sweep, (*inner, self.last), (0, *range(max(first, 1), len(inner) + 2)) if shared else None)
        if not empty:
            emit(self.e, levels[0])
        for r in phase.reductions:
            if not r.single:
                lines(self.e, r, r.declare(r.total, r.total_type, self.width))
        if empty:
            return
        if shared:
            self.declare_parts(phase.reductions, t.blocks)
        parents = parents_of(phase.sweep, phase.reductions)
        with ExitStack() as stack:
            if shared:
                collapse = len(t.outside) + (t.split is not None)
                self.e.line(f"#pragma omp parallel for{f' collapse({collapse})' if collapse > 1 else ''}{flags(phase.sweep)}", parents)
            open_blocks(self.e, stack, t, levels[1 : len(t.outside) + 1], parents)
            for r in phase.reductions:
                lines(self.e, r, r.declare(r.lanes, r.lane_type, self.width))
            self.block(phase, t, levels[len(t.outside) + 1 :])
            if not t.single:
                self.loop([], [(r, text) for r in phase.reductions for text in (self.leave_part(r, t) if shared else (self.merge(r, r.lanes, "lane"),))])
        if shared:
            with self.e.block(loop("part", t.blocks), parents):
                self.loop([], [(r, self.merge(r, f"parts{r.number}", f"part * {self.width} + lane")) for r in phase.reductions])

    def block(self, phase: PhaseCode, t: Tile, levels: Sequence[list[Statement]]) -> None:
        variables = (*((t.split,) if t.split else ()), *t.inside)
        parents = parents_of(phase.sweep, phase.reductions)
        with ExitStack() as stack:
            for v, level in zip(variables, levels, strict=False):
                start, stop = block_bounds(t, v)
                stack.enter_context(self.e.block(loop(v.name, stop, start), parents))
                emit(self.e, level)
            self.loop(levels[-1], [(r, r.step("lane", linear(self.k.group.inner), r.value)) for r in phase.reductions])

    def merge(self, r: Reduction, source: str, index: str) -> str:
        if r.is_arg:
            return f"merge_{r.kind}({r.total}[lane], {r.total}_at[lane], {source} + {index}, {source}_at + {index}, 1);"
        return r.combine(f"{r.total}[lane]", f"{source}[{index}]")

    def declare_parts(self, reductions: Sequence[Reduction], n: int) -> None:
        for r in reductions:
            for name, ctype in [(f"parts{r.number}", r.lane_type)] + ([(f"parts{r.number}_at", r.places)] if r.is_arg else []):
                if at_most(n * self.width * 8, STACK_BYTES // 2):
                    lines(self.e, r, (f"{ctype} {name}[{n * self.width}];",))
                else:
                    size = n * self.width
                    lines(
                        self.e, r, (f"Scratch<{ctype}> {name}_memory({size});", f"if (!{name}_memory.data) return 2;", f"{ctype}* {name} = {name}_memory.data;")
                    )

    def leave_part(self, r: Reduction, t: Tile) -> tuple[str, ...]:
        place_ = f"({t.block_index()}) * {self.width} + lane"
        texts = (f"parts{r.number}[{place_}] = {r.lanes}[lane];",)
        return (*texts, f"parts{r.number}_at[{place_}] = {r.lanes}_at[lane];") if r.is_arg else texts
