"""Matrix products: a template, ``product.h``, for the sums, and generated loops over each block of them for what is made of its elements.

In: a group of shape "product". Out: threads take blocks of rows and strips of columns; when a block's sums are done they lie in the first-level cache,
and the group's other nodes run over them, vector code along the columns. Always holds: a sum is read by the element that it belongs to, once.
PyTorch's counterpart: ``CppGemmTemplate`` and its epilogue nodes in ``torch/_inductor/codegen/cpp_gemm_template.py``.
"""

from __future__ import annotations

from ..core.errors import InvalidIR
from ..lowering import ops
from ..lowering.product import Operand, operands
from .cpp_loops import KernelCode, emit, flags, loop
from .emit import Emitter

HEADER = "lab_product.h"


def product(k: KernelCode) -> None:
    """The whole kernel's loops."""
    node = next((n for n in k.group.nodes if any(b.target is ops.reduce for b in n.body.nodes)), None)
    found = operands(node.body, k.group.outer, k.group.inner) if node is not None else None
    reductions = [r for p in k.phases for r in p.reductions]
    if found is None or len(reductions) != 1:
        raise InvalidIR(f"{k.group.name} is no matrix product")
    e, statements, (total,) = k.e, [s for p in k.phases for s in p.after], reductions
    rows, columns = found.rows, found.columns
    if k.mode == "outer":
        e.line(f"#pragma omp parallel for collapse(2){flags(statements)}", k.parents)
    with e.block(f"for (int64_t strip = 0; strip < {columns.size}; strip += PRODUCT_COLUMNS) {{", k.parents):
        with e.block(f"for (int64_t block = 0; block < {rows.size}; block += PRODUCT_BLOCK) {{", k.parents):
            e.line("alignas(64) float sums[PRODUCT_BLOCK * PRODUCT_COLUMNS];", total.parents, total.stack)
            _count(e, "rows", "PRODUCT_BLOCK", f"{rows.size} - block", total.parents)
            _count(e, "columns", "PRODUCT_COLUMNS", f"{columns.size} - strip", total.parents)
            left, right = _operand(k, found.left, "block"), _operand(k, found.right, "strip")
            e.line(f"product_block({left}, {right}, {found.depth.size}, rows, columns, sums);{total.comment}", total.parents, total.stack)
            with e.block(loop("row", "rows"), k.parents):
                e.line(f"const int64_t {rows.name} = block + row;", k.parents)
                e.line(f"#pragma omp simd{flags(statements)}", k.parents)
                with e.block(loop("lane", "columns"), k.parents):
                    e.line(f"const int64_t {columns.name} = strip + lane;", k.parents)
                    e.line(f"const {total.total_type} {total.total} = sums[row * PRODUCT_COLUMNS + lane];{total.comment}", total.parents, total.stack)
                    emit(e, statements)


def _count(e: Emitter, name: str, most: str, left: str, parents: tuple[str, ...]) -> None:
    e.line(f"const int64_t {name} = {left} < {most} ? {left} : {most};", parents)


def _operand(k: KernelCode, o: Operand, first: str) -> str:
    """Where the block or strip begins, and its strides."""
    start = f" + {o.start}" if o.start else ""
    strides = f"{o.along}, {o.step}" if first == "block" else f"{o.step}, {o.along}"
    return f"{k.bodies.names[o.buffer]}{start} + {o.along}*{first}, {strides}"
