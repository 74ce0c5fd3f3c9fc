"""Loop programs made by hand and at random, for the tests of scheduling and code generation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from compiler_lab.codegen import cpp, cpp_columns, cpp_loops, cpp_pieces, cpp_reduce, cpp_rows, cpp_tiles
from compiler_lab.lowering import ops
from compiler_lab.lowering.index import Index, Var
from compiler_lab.lowering.ir import BufferSpec, ExternNode, LoopNode, Node, Output, TensorView
from compiler_lab.lowering.program import LoopProgram, reads

F32 = torch.float32
Size = tuple[int, ...]

THRESHOLDS: list[tuple[Any, str, tuple[int, int]]] = [
    (cpp, "WORTH_THREADS", (1, 32768)), (cpp, "THREADS", (2, 64)), (cpp, "FEW_ROWS", (2, 16)), (cpp, "LONG", (2, 4096)), (cpp_loops, "THREADS", (2, 64)),
    (cpp_loops, "LONG", (2, 4096)), (cpp_pieces, "WORTH_CUTTING", (1, 4096)), (cpp_tiles, "WORTH_TILING", (1, 4096)), (cpp_reduce, "SMALL", (2, 64)),
    (cpp_columns, "STRIP", (3, 512)), (cpp_rows, "STACK_BYTES", (16, 2**18)), (cpp_columns, "STACK_BYTES", (16, 2**18)),
]  # fmt: skip
"""What decides how a loop is walked, with a value at which small programs take the way of large ones."""


def contiguous(size: Size) -> Size:
    return tuple(math.prod(size[i + 1 :]) for i in range(len(size)))


def view(spec: BufferSpec) -> TensorView:
    return TensorView(spec.name, spec.size, spec.stride, 0, spec.dtype)


def permuted(v: TensorView, dims: Sequence[int]) -> TensorView:
    return TensorView(v.buffer, tuple(v.size[d] for d in dims), tuple(v.stride[d] for d in dims), v.offset, v.dtype)


def expanded(v: TensorView, size: Size) -> TensorView:
    """Broadcast as aten does it."""
    pad = len(size) - len(v.size)
    stride = (0,) * pad + tuple(0 if a == 1 and b != 1 else s for a, b, s in zip(v.size, size[pad:], v.stride, strict=True))
    return TensorView(v.buffer, size, stride, v.offset, v.dtype)


class Builder:
    """Collects inputs and nodes; every method gives the view of what it made."""

    def __init__(self) -> None:
        self.inputs: list[BufferSpec] = []
        self.nodes: list[Node] = []

    def input(self, *size: int, stride: Size | None = None, dtype: torch.dtype = F32) -> TensorView:
        spec = BufferSpec(f"in{len(self.inputs)}", size, stride or contiguous(size), dtype)
        self.inputs.append(spec)
        return view(spec)

    def _name(self) -> str:
        return f"buf{len(self.nodes)}"

    def loop(self, op: str, operands: Sequence[TensorView], reduce: Size = (), kind: str = "sum", stride: Size | None = None) -> TensorView:
        """``op`` applied to operands of one size, then reduced over the dimensions ``reduce`` (which stay, with size 1)."""
        size = operands[0].size
        variables = tuple(Var(f"i{d}", n) for d, n in enumerate(size))
        outer = tuple(v for d, v in enumerate(variables) if d not in reduce)
        inner = tuple(v for d, v in enumerate(variables) if d in reduce)
        out_size = tuple(1 if d in reduce else n for d, n in enumerate(size))
        out = BufferSpec(self._name(), out_size, stride or contiguous(out_size), torch.int64 if kind.startswith("arg") and reduce else F32)
        body = Body(out.name)
        value = body.op(op, *(body.load(v, variables) for v in operands))
        if reduce:
            value = body.call(ops.reduce, kind, value, dtype=out.dtype)
        at = [Index() if d in reduce else v for d, v in enumerate(variables)]
        return self._add(body, out, outer, inner, at, value, f"{op}.{kind}" if reduce else op)

    def gather(self, source: TensorView, positions: TensorView) -> TensorView:
        """source[r, positions[r]] for each row."""
        rows, columns = source.size
        r = Var("i0", rows)
        out = BufferSpec(self._name(), (rows,), (1,), F32)
        body = Body(out.name)
        at = body.call(ops.indirect, body.load(positions, (r,)), columns, True, dtype=torch.int64)
        value = body.call(ops.load, source.buffer, source.index((r, Var("%0", columns))), at, dtype=F32)
        return self._add(body, out, (r,), (), [r], value, "gather")

    def _add(self, body: Body, out: BufferSpec, outer: tuple[Var, ...], inner: tuple[Var, ...], at: Sequence[Any], value: fx.Node, origin: str) -> TensorView:
        body.call(ops.store, out.name, Index.affine(at, out.stride), value, dtype=out.dtype)
        self.nodes.append(LoopNode(out.name, out, outer, inner, body.graph, (f"aot.forward/{out.name}",), (), origin))
        return view(out)

    def extern(self, target: torch._ops.OpOverload, operands: Sequence[TensorView], size: Size) -> TensorView:
        out = BufferSpec(self._name(), size, contiguous(size), F32)
        self.nodes.append(ExternNode(out.name, target, tuple(operands), {}, (out,), True, (f"aot.forward/{out.name}",), ()))
        return view(out)

    def program(self, *outputs: Output) -> LoopProgram:
        made = LoopProgram(stage="lowering.forward", inputs=tuple(self.inputs), constants={}, nodes=tuple(self.nodes), outputs=outputs)
        made.check()
        return made


class Body:
    def __init__(self, name: str) -> None:
        self.graph, self.name = fx.Graph(), name

    def call(self, target: Any, *args: Any, dtype: torch.dtype) -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta = {"dtype": dtype, "stack": (), "parents": (f"aot.forward/{self.name}",)}
        return node

    def load(self, v: TensorView, variables: tuple[Var, ...]) -> fx.Node:
        return self.call(ops.load, v.buffer, v.index(variables), dtype=v.dtype)

    def op(self, name: str, *values: fx.Node) -> fx.Node:
        """A scalar op over as many operands as there are: one is transformed, more are added up first."""
        value = values[0]
        for other in values[1:]:
            value = self.call(ops.add, value, other, dtype=F32)
        return value if name == "copy" else self.call(ops.SCALAR[name], value, dtype=F32)


SIZES: tuple[Size, ...] = ((4, 6), (4, 6), (4, 6), (6, 4), (24,), (2, 2, 6), (2, 3, 4), (4,), (6,), (), (1, 6), (4, 1))
UNARY = ("neg", "relu", "exp", "sigmoid", "abs", "copy")


def candidates(pool: list[TensorView], size: Size) -> list[TensorView]:
    """Every view of the pool that reads as ``size``: as it is, transposed, reshaped where it is contiguous, or broadcast."""
    found: list[TensorView] = []
    for v in pool:
        if v.size == size:
            found.append(v)
        if v.size == tuple(reversed(size)) and len(size) > 1:
            found.append(permuted(v, tuple(reversed(range(len(size))))))
        if v.size != size and math.prod(v.size) == math.prod(size) and v.stride == contiguous(v.size):
            found.append(TensorView(v.buffer, size, contiguous(size), v.offset, v.dtype))
        if len(v.size) <= len(size) and v.size != size and all(a in (1, b) for a, b in zip(v.size[::-1], size[::-1], strict=False)):
            found.append(expanded(v, size))
    return [v for v in found if v.dtype == F32]


def random_program(seed: int, length: int = 12) -> tuple[LoopProgram, tuple[Tensor, ...]]:
    """A program of ``length`` nodes with broadcast, transposed and reshaped reads, reductions, gathers and calls; and inputs for it."""
    choose = random.Random(seed)
    b = Builder()
    pool = [b.input(4, 6), b.input(24), b.input(6), b.input(4, 6, stride=(1, 4)), b.input(4, 6, stride=(12, 2))]
    positions = b.input(4, dtype=torch.int64)
    while len(b.nodes) < length:
        recent = pool[-6:] if choose.random() < 0.7 else pool
        size = choose.choice(SIZES)
        operands = candidates(recent, size)
        if not operands:
            continue
        picked = choose.sample(operands, min(len(operands), choose.randint(1, 3)))
        draw = choose.random()
        if draw < 0.3 and size:
            dims = choose.choice([(len(size) - 1,), (0,), tuple(range(len(size)))])
            made = b.loop(choose.choice(UNARY), picked, dims, choose.choice(("sum", "max", "sum", "min", "argmax" if len(dims) == 1 else "sum")))
        elif draw < 0.37 and size == (4, 6):
            made = b.gather(picked[0], positions)
        elif draw < 0.42 and size == (4, 6):
            made = b.extern(torch.ops.aten.sin.default, picked[:1], size)
        elif draw < 0.47 and size == (4, 6):
            made = b.extern(torch.ops.aten.mm.default, (picked[0], permuted(picked[-1], (1, 0))), (4, 4))
        else:
            turned = size[::-1]
            stride = contiguous(turned)[::-1] if choose.random() < 0.2 else None
            made = b.loop(choose.choice(UNARY), picked, stride=stride)
        pool.append(made)
    read = {buffer for n in b.nodes for buffer in reads(n)}
    outputs = [v for v in pool[5:] if choose.random() < (0.1 if v.buffer in read else 0.8)] or [pool[-1]]
    generator = torch.Generator().manual_seed(seed)
    args: list[Tensor] = []
    for spec in b.inputs:
        storage = torch.randn(sum((n - 1) * s for n, s in zip(spec.size, spec.stride, strict=True)) + 1, generator=generator)
        args.append(torch.randint(-4, 4, spec.size, generator=generator) if spec.dtype == torch.int64 else storage.as_strided(spec.size, spec.stride))
    return b.program(*outputs), tuple(args)
