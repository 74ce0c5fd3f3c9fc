"""Tiles for transposed reads: a pointwise loop that stores along one variable and loads along another.

In: the variables and statements of a pointwise sweep. Out: the sweep by tiles: each tile of a transposed operand is read along its own rows
and turned into a small buffer, from which the statements take it along theirs. Always holds: each cache line of the operand is read once.
PyTorch's counterpart: ``CppTile2DKernel`` in ``torch/_inductor/codegen/cpp.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..lowering.index import Index, Var
from ..lowering.sizes import is_number
from .cpp_body import Load, Statement
from .cpp_loops import emit, flags, loop, nest, parents_of, place
from .cpp_reduce import numel, proper
from .emit import Emitter

ROWS, COLUMNS = 16, 64
"""A tile: so many rows of the store, each of so many elements."""
WORTH_TILING = 4096

HELPERS: dict[str, str] = {
    "turn8": """\
#if defined(__AVX__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LAB_TURN8 1
typedef float lab_v8 __attribute__((vector_size(32)));
static inline void turn8(float* to, int64_t step, const float* from, int64_t stride) {  // an 8 x 8 block, transposed in registers
  lab_v8 r[8], u[8], v[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) __builtin_memcpy(&r[k], from + k * stride, 32);
#pragma GCC unroll 8
  for (int k = 0; k < 8; k += 2) {
    u[k] = __builtin_shufflevector(r[k], r[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    u[k + 1] = __builtin_shufflevector(r[k], r[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 8; k += 4) {
    v[k] = __builtin_shufflevector(u[k], u[k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    v[k + 1] = __builtin_shufflevector(u[k], u[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    v[k + 2] = __builtin_shufflevector(u[k + 1], u[k + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    v[k + 3] = __builtin_shufflevector(u[k + 1], u[k + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; k++) {
    r[k] = __builtin_shufflevector(v[k], v[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[k + 4] = __builtin_shufflevector(v[k], v[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 8; k++) __builtin_memcpy(to + k * step, &r[k], 32);
}
#endif
#endif""",
    "load_tile": f"""\
template <class T> static inline void load_tile(T* tile, const T* from, int64_t stride, int64_t rows, int64_t columns) {{
#ifdef LAB_TURN8
  if (sizeof(T) == 4 && rows == {ROWS} && columns % 8 == 0) {{
    for (int64_t c = 0; c < columns; c += 8)
      for (int64_t r = 0; r < {ROWS}; r += 8) turn8((float*)tile + r * {COLUMNS} + c, {COLUMNS}, (const float*)from + c * stride + r, stride);
    return;
  }}
#endif
  for (int64_t c = 0; c < columns; c++)
    for (int64_t r = 0; r < rows; r++) tile[r * {COLUMNS} + c] = from[c * stride + r];
}}""",
}
"""Written where ``load_tile`` is called."""


def transposed(variables: Sequence[Var], statements: Sequence[Statement]) -> Var | None:
    """The variable along which most of the strided loads are contiguous, if tiles are worth it."""
    order = proper(variables)
    if len(order) < 2 or _large(numel(order)) < WORTH_TILING:
        return None
    votes = Counter(v for s in statements if s.load for v in order[:-1] if _turns(s.load, v, order[-1]))
    best = max(votes, key=lambda v: votes[v], default=None)
    return best if best is not None and _large(best.size) >= 8 and _large(order[-1].size) >= 8 else None


def _turns(load: Load, across: Var, along: Var) -> bool:
    index = load.index
    if any(v.name.startswith("%") for v in index.variables()) or not index.is_affine:
        return False
    return index.coefficient(across) == 1 and _large(index.coefficient(along) or 0) >= 8


def _large(n: int) -> int:
    """A size that varies counts as large: tiles are right for small ones too."""
    return n if is_number(n) else WORTH_TILING


def tiled_sweep(e: Emitter, statements: Sequence[Statement], variables: Sequence[Var], across: Var, parallel: bool) -> None:
    """``plain_sweep`` by tiles over ``across`` and the last variable."""
    order = proper(variables)
    rest, along = [v for v in order[:-1] if v != across], order[-1]
    parents, n = parents_of(statements), len(rest)
    tiles: list[tuple[Statement, Load]] = []
    turned: list[Statement] = []
    for s in statements:
        if s.load and _turns(s.load, across, along):
            place_ = f"tile{len(tiles)}[{COLUMNS}*({across.name} - {across.name}_tile) + {along.name} - {along.name}_tile]"
            turned.append(replace(s, text=s.text.replace(s.load.element, place_, 1)))
            tiles.append((s, s.load))
        else:
            turned.append(s)
    levels = place(turned, (*rest, across, along), (0, n, n + 1, n + 2))
    emit(e, levels[0] if n else [])
    with ExitStack() as stack:
        if parallel:
            e.line(f"#pragma omp parallel for collapse({n + 2}){flags(statements)}", parents)
        nest(e, stack, rest, [[] for _ in rest], parents)
        for v, step in ((across, ROWS), (along, COLUMNS)):
            stack.enter_context(e.block(loop(f"{v.name}_tile", v.size, step=step), parents))
        for v, step in ((across, ROWS), (along, COLUMNS)):
            whole = f"{v.name}_tile + {step}"
            e.line(f"const int64_t {v.name}_end = {whole if v.size % step == 0 else f'{whole} < {v.size} ? {whole} : {v.size}'};", parents)
        emit(e, levels[n])
        for number, (s, load) in enumerate(tiles):
            start = load.index.substitute({v: Index.of(Var(f"{v.name}_tile", v.size)) for v in (across, along)})
            e.line(f"alignas(64) {load.ctype} tile{number}[{ROWS * COLUMNS}];", s.parents, s.stack)
            extent = f"{across.name}_end - {across.name}_tile, {along.name}_end - {along.name}_tile"
            e.line(f"load_tile(tile{number}, {load.pointer} + {start}, {load.index.coefficient(along)}, {extent});", s.parents, s.stack)
        stack.enter_context(e.block(loop(across.name, f"{across.name}_end", f"{across.name}_tile"), parents))
        emit(e, levels[n + 1])
        innermost = parents_of(levels[n + 2])
        e.line(f"#pragma omp simd{flags(levels[n + 2])}", innermost)
        with e.block(loop(along.name, f"{along.name}_end", f"{along.name}_tile"), innermost):
            emit(e, levels[n + 2])
