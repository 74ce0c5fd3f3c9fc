"""Rows of matrix products as loops, where a template of ours is to compute them instead of the library.

In: a call of ``mm`` or ``addmm``. Out: a reduction over the common size, which the scheduler recognises (``product.py``) and fuses with the
elementwise loops that follow, and for ``addmm`` such a loop for the bias. Whether a call is lowered so is not decided here: ``lower(choose=)`` is
asked, and says what it went by. Always holds: float32 on the CPU, sizes that are numbers.
PyTorch does this in ``torch/_inductor/kernel/mm.py`` (tuned_mm, CppGemmTemplate). Left out: batches, other dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .builder import Builder, broadcast
from .ir import TensorView
from .sizes import is_number

LEAST = 16
"""Sizes below which nothing is asked: such a product is a few steps of a register tile at most."""


@dataclass(frozen=True)
class Product:
    """``rows`` x ``depth`` times ``depth`` x ``columns``, with the strides of both in elements. ``bias``: the strides of what is added, if anything is.
    ``followed``: an elementwise operator alone reads the result."""

    rows: int
    columns: int
    depth: int
    left: tuple[int, int]
    right: tuple[int, int]
    bias: tuple[int, ...] | None
    followed: bool


@dataclass(frozen=True)
class Choice:
    """``ours``: loops, otherwise the library's call; ``facts`` are shown with the decision."""

    ours: bool
    facts: Mapping[str, float] = field(default_factory=dict[str, float])


Choose = Callable[[Product], Choice]


def product_of(name: str, args: Any, kwargs: Any, followed: bool) -> Product | None:
    """The product that the call makes; None where it is none that loops are made for."""
    if not all(isinstance(a, TensorView) and a.dtype == torch.float32 for a in args):
        return None
    left, right = args[-2:]
    (rows, depth), columns = left.size, right.size[1]
    numbers = (rows, depth, columns, *left.stride, *right.stride)
    if not is_number(*numbers) or rows < 1 or columns < LEAST or depth < LEAST or not all(is_number(v) for v in kwargs.values()):
        return None
    bias = broadcast(args[0], (rows, columns)).stride if len(args) == 3 else None
    return Product(rows, columns, depth, left.stride, right.stride, bias, followed)


def mm(b: Builder, left: TensorView, right: TensorView) -> TensorView:
    size = (left.size[0], right.size[1], left.size[1])
    return b.reduction(b.like(b.val), "sum", size, (2,), lambda body, at: body.load(left, (at[0], at[2])) * body.load(right, (at[2], at[1])))


def addmm(b: Builder, bias: TensorView, left: TensorView, right: TensorView, *, beta: float = 1, alpha: float = 1) -> TensorView:
    """``beta * bias + alpha * (left @ right)``; with ``beta`` 0 the bias is not read, as in aten."""
    product = mm(b, left, right)
    added = broadcast(bias, product.size)

    def build(body: Any, at: Any) -> Any:
        scaled = body.load(product, at) if alpha == 1 else body.load(product, at) * alpha
        if beta == 0:
            return scaled
        return scaled + (body.load(added, at) if beta == 1 else body.load(added, at) * beta)

    return b.loop(b.like(b.val), build)


PRODUCTS: dict[str, Callable[..., TensorView]] = {"aten.mm.default": mm, "aten.addmm.default": addmm}
"""Operator name -> row."""
