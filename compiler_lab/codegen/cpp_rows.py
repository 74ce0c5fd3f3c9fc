"""Row and flat kernels: sweeps over ``inner``, vector code along its last variable, reductions in lanes.

A row of the outer space is worked on by one thread, sweep after sweep while it lies in the cache ("outer" mode). Where there are few
rows, threads share each sweep instead ("inner" mode): every block of a reduction leaves its value in an array of parts.
PyTorch's counterpart: ``CppVecKernel`` in ``torch/_inductor/codegen/cpp.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..lowering.index import Index, Var
from ..lowering.sizes import at_most, same
from .cpp_body import NO_MEMORY, PhaseCode, Statement
from .cpp_loops import STACK_BYTES, KernelCode, block_bounds, emit, flags, loop, nest, open_blocks, parents_of, place, plain_sweep
from .cpp_ops import compute_type
from .cpp_reduce import Reduction, Tile, numel, proper
from .emit import Emitter


def rows(k: KernelCode) -> None:
    """The whole kernel's loops."""
    e, outer = k.e, proper(k.group.outer)
    heap = on_heap(k)
    with ExitStack() as stack:
        if k.mode == "outer" and heap:
            e.line(f"#pragma omp parallel reduction(|:{', '.join(sorted({NO_MEMORY, *(s.flag for s in k.statements if s.flag)}))})", k.parents)
            stack.enter_context(e.block("{"))
            _scratch(k, heap=True)
            e.line(f"#pragma omp for{f' collapse({len(outer)})' if len(outer) > 1 else ''}", k.parents)
        else:
            if heap:
                _scratch(k, heap=True)
            if k.mode == "outer":
                e.line(f"#pragma omp parallel for{f' collapse({len(outer)})' if len(outer) > 1 else ''}{flags(k.statements)}", k.parents)
        nest(e, stack, outer, [[] for _ in outer], k.parents)
        if not heap:
            _scratch(k, heap=False)
        elif k.mode == "outer":
            e.line(f"if ({NO_MEMORY}) continue;", k.parents)
        for phase in k.phases:
            _phase(k, phase)


def _phase(k: KernelCode, phase: PhaseCode) -> None:
    empty = numel(k.group.inner) == 0
    if phase.reductions or phase.cases:
        reduce_sweep(k, phase, empty)
    elif not empty:
        plain_sweep(k.e, phase.sweep, k.group.inner, k.mode == "inner")
    emit(k.e, phase.after)


def reduce_sweep(k: KernelCode, phase: PhaseCode, empty: bool) -> None:
    """One sweep with reductions, or in cases: totals are declared, lanes filled and folded block by block."""
    e, inner, reductions = k.e, proper(k.group.inner), phase.reductions
    t = phase.tile
    shared = k.mode == "inner" and not t.single
    allowed = _depths(t, len(inner)) if shared else None
    levels, cases = place(phase.sweep, inner, allowed), list[list[Statement]]()
    for case in phase.cases:
        *around, lanes = place(case.sweep, inner, allowed)
        levels[:-1] = [a + b for a, b in zip(levels[:-1], around, strict=True)]
        cases.append(lanes)
    if not empty:
        emit(e, levels[0])
    for r in reductions:
        lines(e, r, r.declare_total())
    if empty:
        return
    if shared:
        _declare_parts(e, reductions, t.blocks)
    parents = parents_of(phase.sweep, reductions)
    depth = len(t.outside)
    with ExitStack() as stack:
        if shared:
            collapse = depth + (t.split is not None)
            e.line(f"#pragma omp parallel for{f' collapse({collapse})' if collapse > 1 else ''}{flags(phase.sweep)}", parents)
        open_blocks(e, stack, t, levels[1 : depth + 1], parents)
        for r in reductions:
            lines(e, r, r.declare(r.lanes, r.lane_type, t.width))
        _block(k, phase, t, levels[depth + 1 :], cases)
        for r in reductions:
            lines(e, r, _leave_part(r, t) if shared else (r.merge(t.width),))
    if shared:
        _fold_parts(e, reductions, t.blocks)


def _depths(t: Tile, depth: int) -> tuple[int, ...]:
    """Where statements may stand when the loops outside a block are collapsed: not between those."""
    first = len(t.outside) + (1 if t.split and t.outside else 0)
    return (0, *range(max(first, 1), depth + 1))


def _block(k: KernelCode, phase: PhaseCode, t: Tile, levels: Sequence[list[Statement]], cases: Sequence[list[Statement]]) -> None:
    """The loops of one block; the last one in groups of ``width`` lanes."""
    e = k.e
    variables = (*((t.split,) if t.split else ()), *t.inside)
    with ExitStack() as stack:
        for v, level in zip(variables[:-1], levels, strict=False):
            start, stop = block_bounds(t, v)
            stack.enter_context(e.block(loop(v.name, stop, start), parents_of(phase.sweep, phase.reductions)))
            emit(e, level)
        innermost = levels[-1] if variables else []
        if not variables:
            return _steps(k, phase, [], "0")
        last = variables[-1]
        _lane_loops(k, phase, t, last, innermost, cases)


def _lane_loops(k: KernelCode, phase: PhaseCode, t: Tile, last: Var, statements: list[Statement], cases: Sequence[list[Statement]]) -> None:
    e, w = k.e, t.width
    parents = parents_of(statements, phase.reductions)
    start, stop = block_bounds(t, last)
    if w == last.size:
        e.line(f"#pragma omp simd{flags(statements)}", parents)
        with e.block(loop(last.name, stop), parents):
            _steps(k, phase, statements, last.name)
        return
    with e.block(f"for (int64_t at = {start}; at + {w} <= {stop}; at += {w}) {{", parents):
        for case, body in zip(phase.cases, cases, strict=True):
            with e.block(f"if ({case.when}) {{", parents):
                _lanes(k, phase, f"{last.name} = at", str(w), body, case.values)
                e.line("continue;", parents)
        _lanes(k, phase, f"{last.name} = at", str(w), statements)
    if last.size % w:
        left = str(last.size % w) if start == "0" else f"({stop} - {start}) % {w}"
        begin = f"{last.size - last.size % w}" if start == "0" else f"{stop} - {left}"
        _lanes(k, phase, f"{last.name} = {begin}", left, statements, comment="  // what is left")


def _lanes(k: KernelCode, phase: PhaseCode, begin: str, count: str, statements: list[Statement], values: Sequence[str] = (), comment: str = "") -> None:
    """One group of ``count`` lanes; ``begin``: the last variable and its value in the first of them, ``r0 = at``."""
    parents = parents_of(statements, phase.reductions)
    k.e.line(f"#pragma omp simd{flags(statements)}", parents)
    with k.e.block(loop("lane", count) + comment, parents):
        k.e.line(f"const int64_t {begin} + lane;", parents)
        _steps(k, phase, statements, "lane", values)


def _steps(k: KernelCode, phase: PhaseCode, statements: list[Statement], lane: str, values: Sequence[str] = ()) -> None:
    emit(k.e, statements)
    for r, value in zip(phase.reductions, values or [r.value for r in phase.reductions], strict=True):
        lines(k.e, r, (r.step(lane, linear(k.group.inner), value),))


def linear(variables: Sequence[Var]) -> str:
    """The row-major number of the element at hand."""
    index = Index()
    for v in variables:
        index = index * v.size + Index.of(v)
    return str(index)


def lines(e: Emitter, r: Reduction, texts: Sequence[str]) -> None:
    for text in texts:
        e.line(text + r.comment, r.parents, r.stack)


def _declare_parts(e: Emitter, reductions: Sequence[Reduction], n: int) -> None:
    for r in reductions:
        names = [(f"parts{r.number}", r.total_type)] + ([(f"parts{r.number}_at", r.places)] if r.is_arg else [])
        for name, ctype in names:
            if at_most(n * 8, STACK_BYTES // 4):
                lines(e, r, (f"{ctype} {name}[{n}];",))
            else:
                lines(e, r, (f"Scratch<{ctype}> {name}_memory({n});", f"if (!{name}_memory.data) return 2;", f"{ctype}* {name} = {name}_memory.data;"))


def _leave_part(r: Reduction, t: Tile) -> tuple[str, ...]:
    part, n, w = f"parts{r.number}", t.block_index(), t.width
    if not r.is_arg:
        return (f"{part}[{n}] = fold_{r.kind}<{w}>({r.lanes});",)
    return (
        f"{r.total_type} best{r.number} = {r.start(r.total_type)};",
        f"int64_t best{r.number}_at = -1;",
        f"merge_{r.kind}(best{r.number}, best{r.number}_at, {r.lanes}, {r.lanes}_at, {w});",
        f"{part}[{n}] = best{r.number};",
        f"{part}_at[{n}] = {r.places}(best{r.number}_at);",
    )


def _fold_parts(e: Emitter, reductions: Sequence[Reduction], n: int) -> None:
    for r in reductions:
        part = f"parts{r.number}"
        if r.is_arg:
            lines(e, r, (f"merge_{r.kind}({r.total}, {r.total}_at, {part}, {part}_at, {n});",))
        elif r.kind == "sum":
            lines(e, r, (f"{r.total} = pairwise_sum({part}, {n});",))
        else:
            with e.block(loop("k", n), r.parents):
                lines(e, r, (r.combine(r.total, f"{part}[k]"),))


def on_heap(k: KernelCode) -> bool:
    """Whether scratch rows are allocated: they are large, or all threads work on one."""
    nbytes = sum(numel(k.group.inner) * n.output.dtype.itemsize for n in k.group.nodes if n.name in k.bodies.rows)
    return not at_most(nbytes, STACK_BYTES) or (k.mode == "inner" and not same(nbytes, 0))


def _scratch(k: KernelCode, heap: bool) -> None:
    """The scratch rows of one outer point, on the stack or allocated."""
    for n in k.group.nodes:
        if n.name not in k.bodies.rows:
            continue
        name, ctype, size = k.bodies.rows[n.name], compute_type(n.output.dtype), max(numel(k.group.inner), 1)
        parents = (k.bodies.ids[n.name],)
        if not heap:
            k.e.line(f"alignas(64) {ctype} {name}[{size}];", parents, n.stack)
            continue
        k.e.line(f"Scratch<{ctype}> {name}_memory({size});", parents, n.stack)
        k.e.line(f"{NO_MEMORY} |= !{name}_memory.data;" if k.mode == "outer" else f"if (!{name}_memory.data) return 2;", parents, n.stack)
        k.e.line(f"{ctype}* __restrict__ {name} = {name}_memory.data;", parents, n.stack)
