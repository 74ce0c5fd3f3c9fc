"""Rows of random numbers by counter: each element from the seed and its own position, so in any loop and again in any other.

In: the builder, the seed's view, the operator's number in its graph. Out: views of new buffers.
PyTorch's counterpart: ``inductor_random`` in ``torch/_inductor/lowering.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.philox import KEPT_BITS, STREAM
from . import ops
from .body import Body, Number, Value, apply
from .builder import Builder
from .index import Index
from .ir import TensorView
from .symbols import row_major

KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {"rand": (ops.rand, ops.rand64), "randn": (ops.randn, ops.randn64)}


def drawn(b: Builder, op: Callable[..., Any], seed: TensorView, number: int, finish: Callable[[Value], Value], *limits: Number) -> TensorView:
    """``op`` of the seed and of each element's position."""
    size = tuple(b.val.shape)

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        position = body.index_value(Index.affine(point, row_major(size))) + number * STREAM
        return finish(apply(op, body.load(seed, [Index()] * len(seed.size)), position, *limits))

    return b.loop(b.like(b.val), build)


def random(b: Builder, seed: TensorView, number: int, size: Sequence[int], kind: str, dtype: torch.dtype) -> TensorView:
    bits = KEPT_BITS.get(dtype) if kind == "rand" else None
    kept = (lambda v: v) if bits is None else (lambda v: apply(ops.floor, v * 2**bits) * 2.0**-bits)
    return drawn(b, KINDS[kind][dtype == torch.float64], seed, number, kept)


def random_int(b: Builder, seed: TensorView, number: int, size: Sequence[int], low: int, high: int, dtype: torch.dtype) -> TensorView:
    return drawn(b, ops.randint64, seed, number, lambda v: v, low, high)


RANDOM: dict[str, Callable[..., Any]] = {
    "compiler_lab.random.default": random,
    "compiler_lab.random_int.default": random_int,
}
"""Operator name -> row."""
