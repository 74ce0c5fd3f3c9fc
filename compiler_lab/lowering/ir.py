"""The loop IR: what lowering gives and scheduling takes.

A ``LoopProgram`` is a list of nodes in topological order over named buffers. A node is a ``LoopNode`` (pointwise or reduction: one body,
one buffer written), a ``SerialNode`` (a scan or a scatter: its steps run in order) or an ``ExternNode`` (one aten call). Views are no
nodes: they are ``TensorView``s, strides and an offset over a buffer, so a view costs nothing. Lowering never inlines: each aten op keeps
a buffer of its own until the scheduler fuses it, with a decision.

A body is a small ``torch.fx.Graph`` whose ``call_function`` targets are the functions of ``ops`` (the vocabulary). Each
body node has ``meta["dtype"]``, ``meta["stack"]`` and ``meta["parents"]`` (ids of the aten node). It holds:

* ``ops.load(buffer, index, *indirect)``  ``index`` an ``Index`` over the node's variables; ``Var("%0", n)`` in it stands for
  ``indirect[0]``, a value that ``ops.indirect(value, size)`` has checked and wrapped
* scalar ops (``ops.add``, ``ops.exp``, ...) on operands of one dtype; ``ops.to_dtype`` is the only conversion
* for a reduction exactly one ``ops.reduce(kind, value)`` over the node's ``inner`` variables; ops after it see the result
* exactly one ``ops.store(buffer, index, value)``, last, to the node's own buffer
* in a ``SerialNode`` either one ``ops.scan(kind, value)`` and a store, or one ``ops.scatter(buffer, index, value, mode, *indirect)``, last

PyTorch's counterpart: ``torch/_inductor/ir.py`` (Pointwise, Reduction, ExternKernel, TensorBox) and ``loop_body.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.fx as fx

from ..core.provenance import Stack
from .index import Index, Var
from .sizes import hint, same

ReduceKind = Literal["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"]
ScanKind = Literal["sum", "prod", "logsumexp", "max", "min", "argmax", "argmin"]
ScatterMode = Literal["set", "sum", "prod", "max", "min"]


@dataclass(frozen=True)
class BufferSpec:
    """Named memory. ``size`` and ``stride`` in elements; dense (no gaps, no overlap) unless it is a graph input.

    Here and below, an ``int`` that counts elements or bytes may be a ``Size`` (``sizes.py``)."""

    name: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def numel(self) -> int:
        return math.prod(self.size)

    @property
    def nbytes(self) -> int:
        """Bytes from the first to past the last element."""
        if same(self.numel, 0):
            return 0
        return (1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))) * self.dtype.itemsize

    @property
    def cost(self) -> int:
        """``nbytes`` at the sizes at hand: what decisions weigh."""
        return hint(self.nbytes)


@dataclass(frozen=True)
class TensorView:
    """A strided window onto a buffer: what an aten value is after lowering. Offset and strides in elements."""

    buffer: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def index(self, variables: tuple[Var | Index | int, ...]) -> Index:
        return Index.affine(variables, self.stride, self.offset)


@dataclass(frozen=True)
class LoopNode:
    """Pointwise (``inner`` empty) or reduction over ``inner``. Writes ``output``, one element for each point of ``outer``."""

    name: str  # the buffer it writes: "buf3"
    output: BufferSpec
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    body: fx.Graph
    parents: tuple[str, ...]
    stack: Stack
    origin: str = ""  # what it computes, in aten's words: "gelu", "var_mean.mean"

    @property
    def is_reduction(self) -> bool:
        return bool(self.inner) or any(n.target.__name__ == "reduce" for n in self.body.nodes if n.op == "call_function")

    def reads(self) -> tuple[tuple[str, Index], ...]:
        """(buffer, index) of each load, in body order."""
        return tuple((n.args[0], n.args[1]) for n in self.body.nodes if n.op == "call_function" and n.target.__name__ == "load")

    def store_index(self) -> Index:
        (store,) = (n for n in self.body.nodes if n.op == "call_function" and n.target.__name__ == "store")
        return store.args[1]


@dataclass(frozen=True)
class SerialNode:
    """A loop over ``outer`` x ``steps`` whose steps run one after another, in row-major order, so that its result is the same on every run.

    A scan stores at each point what it has taken in so far. A scatter writes ``start`` first, a pointwise node of the same buffer, and
    then writes at positions that are known at run time. Points of ``outer`` touch different elements: threads may share them.
    """

    name: str
    output: BufferSpec
    outer: tuple[Var, ...]
    steps: tuple[Var, ...]
    body: fx.Graph
    parents: tuple[str, ...]
    stack: Stack
    origin: str = ""
    start: LoopNode | None = None

    def reads(self) -> tuple[tuple[str, Index], ...]:
        """(buffer, index) of each load, those of ``start`` first."""
        own = tuple((n.args[0], n.args[1]) for n in self.body.nodes if n.op == "call_function" and n.target.__name__ == "load")
        return (*(self.start.reads() if self.start is not None else ()), *own)

    @property
    def kind(self) -> str:
        return "scan" if self.start is None else "scatter"


@dataclass(frozen=True)
class ExternNode:
    """One call of an aten operator. ``args``/``kwargs`` hold ``TensorView``s where tensors stood, nested as in the call.

    ``outputs``: one spec for each tensor the operator returns, None for an undefined one. ``single`` tells whether the
    operator returns a bare tensor. ``aliases``: buffers its outputs may share memory with (never planned for reuse).
    """

    name: str
    target: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[BufferSpec | None, ...]
    single: bool
    parents: tuple[str, ...]
    stack: Stack
    aliases: tuple[str, ...] = ()


Node = LoopNode | SerialNode | ExternNode
Output = TensorView | int | float | bool | None
