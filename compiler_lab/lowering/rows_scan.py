"""Rows of cumulative operators: at each point what a line holds up to there, taken together.

In: the builder and the call's own arguments. Out: views of new buffers.
Always holds: float32 is carried in float64 and half precision in float32, as in aten's kernels; cummax and cummin give the last of equals.
PyTorch does this in ``torch/_inductor/lowering.py`` (cumsum, associative scans on GPUs) and ``aten/src/ATen/native/cpu/ReduceOpsKernel.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .builder import Builder, Decline
from .ir import BufferSpec, ScanKind, TensorView
from .rows_view import wrap

Dtype = torch.dtype | None


def carried(dtype: torch.dtype) -> torch.dtype:
    """What a running total is kept in."""
    return {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32}.get(dtype, dtype)


def scanned(b: Builder, self: TensorView, dim: int, kind: ScanKind, spec: BufferSpec, carry: torch.dtype, origin: str = "") -> TensorView:
    d = wrap(dim, len(self.size))
    build = lambda body, point: body.load(self, point).to(spec.dtype if kind in ("sum", "prod") else self.dtype).to(carry)
    if not self.size or self.size[d] == 1:
        if kind in ("argmax", "argmin"):
            return b.loop(spec, lambda body, _: body.constant(0, torch.int64), origin=origin)
        begins = kind == "sum" and self.size and carry.is_floating_point  # a total begins with 0, which makes 0 of -0
        return b.loop(spec, (lambda body, point: build(body, point) + 0.0) if begins else build, origin=origin)
    return b.scan(self, d, kind, spec, build, origin=origin)


def total(kind: ScanKind) -> Callable[..., TensorView]:
    def row(b: Builder, self: TensorView, dim: int, *, dtype: Dtype = None) -> TensorView:
        return scanned(b, self, dim, kind, b.like(b.val), carried(b.val.dtype))

    return row


def logcumsumexp(b: Builder, self: TensorView, dim: int) -> TensorView:
    if not self.dtype.is_floating_point:
        raise Decline("dtype")
    return scanned(b, self, dim, "logsumexp", b.like(b.val), carried(self.dtype))


def extreme(kind: ScanKind, arg: ScanKind) -> Callable[..., tuple[TensorView, TensorView]]:
    def row(b: Builder, self: TensorView, dim: int) -> tuple[TensorView, TensorView]:
        carry = torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype
        values = scanned(b, self, dim, kind, b.like(b.val[0]), carry, f"{b.origin}.values")
        return values, scanned(b, self, dim, arg, b.like(b.val[1]), carry, f"{b.origin}.indices")

    return row


SCANS: dict[str, Callable[..., Any]] = {
    "aten.cumsum.default": total("sum"),
    "aten.cumprod.default": total("prod"),
    "aten.logcumsumexp.default": logcumsumexp,
    "aten.cummax.default": extreme("max", "argmax"),
    "aten.cummin.default": extreme("min", "argmin"),
}
"""Operator name -> row."""
