"""The evaluator of what runs in order: scans and scatters, on whole iteration spaces.

In: a ``SerialNode`` and ``env``, buffer name -> tensor. Out: the buffer it writes.
Always holds: of several values that a scatter sets in one place the last in row-major order stays.
PyTorch's counterpart: none that runs; eager's own kernels are ``aten/src/ATen/native/cpu/{Scatter,Index,ReduceOps}Kernel.cpp``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .interpret import Loop, evaluate_body, evaluate_node, flat
from .ir import LoopNode, SerialNode

SCANS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda v: torch.cumsum(v, -1, dtype=v.dtype),
    "prod": lambda v: torch.cumprod(v, -1, dtype=v.dtype),
    "logsumexp": lambda v: torch.logcumsumexp(v, -1),
    "max": lambda v: torch.cummax(v, -1).values,
    "min": lambda v: torch.cummin(v, -1).values,
    "argmax": lambda v: torch.cummax(v, -1).indices,
    "argmin": lambda v: torch.cummin(v, -1).indices,
}

COMBINE: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sum": lambda out, at, v: out.index_put_((at,), v, accumulate=True) if out.dtype != torch.bool else _marked(out, at, v),
    "prod": lambda out, at, v: out.scatter_reduce_(0, at, v, "prod"),
    "max": lambda out, at, v: out.scatter_reduce_(0, at, v, "amax"),
    "min": lambda out, at, v: out.scatter_reduce_(0, at, v, "amin"),
}


def _marked(out: Tensor, at: Tensor, value: Tensor) -> Tensor:
    out[at[value]] = True
    return out


class _Serial(Loop):
    def __init__(self, node: SerialNode, env: Mapping[str, Tensor]) -> None:
        whole = LoopNode(node.name, node.output, node.outer + node.steps, (), node.body, node.parents, node.stack)
        super().__init__(whole, env)
        self.kept = tuple(v.size for v in node.outer)
        if node.start is not None:
            self.output = evaluate_node(node.start, env)

    def scan(self, kind: str, value: Tensor) -> Tensor:
        lines = value.expand(self.shape).reshape((*self.kept, math.prod(self.shape[len(self.kept) :])))
        return SCANS[kind](lines).reshape(self.shape)

    def scatter(self, buffer: str, index: Any, value: Tensor, mode: str, *positions: Tensor) -> None:
        at, value = self.address(index, positions).expand(self.shape).reshape(-1), value.expand(self.shape).reshape(-1)
        out = flat(self.output)
        if mode != "set":
            COMBINE[mode](out, at, value)
            return
        order = torch.argsort(at, stable=True)
        at, value = at[order], value[order]
        last = torch.cat([at[1:] != at[:-1], torch.ones(at[:1].shape, dtype=torch.bool)])
        out[at[last]] = value[last]


def evaluate_serial(node: SerialNode, env: Mapping[str, Tensor]) -> Tensor:
    """The buffer ``node`` writes. Raises IndexError where a position is out of range."""
    loop = _Serial(node, env)
    evaluate_body(node.name, loop, node.body)
    return loop.output


__all__ = ["evaluate_serial"]
