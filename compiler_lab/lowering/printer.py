"""Loops as text: canonical, deterministic, meant to be read.

In: nodes, views and bodies of a ``LoopProgram``. Out: strings; one line per statement.
Always holds: equal programs print equally; there are no addresses. Temporaries are numbered in body order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.fx import SHORT, describe, format_arg
from .index import Index
from .ir import BufferSpec, ExternNode, LoopNode, Node, Output, SerialNode, TensorView
from .sizes import Condition, same
from .symbols import SizeSource, row_major


def dtype_text(dtype: torch.dtype) -> str:
    return SHORT.get(dtype, str(dtype).removeprefix("torch."))


def spec_text(spec: BufferSpec | TensorView) -> str:
    """``f32[4, 8]``, with ``{strides}`` where it is not contiguous."""
    plain = all(same(n, 1) or same(s, t) for n, s, t in zip(spec.size, spec.stride, row_major(spec.size), strict=True))
    strides = "" if plain else f"{{{', '.join(map(str, spec.stride))}}}"
    return f"{dtype_text(spec.dtype)}[{', '.join(map(str, spec.size))}]{strides}"


def view_text(view: TensorView, buffers: Mapping[str, BufferSpec]) -> str:
    """The buffer's name where the view is all of it, otherwise ``buf3.view([4, 8], {1, 4}, 2)``: size, strides, offset."""
    spec = buffers.get(view.buffer)
    if spec is not None and (view.size, view.stride, view.offset) == (spec.size, spec.stride, 0):
        return view.buffer
    offset = f", {view.offset}" if view.offset else ""
    return f"{view.buffer}.view([{', '.join(map(str, view.size))}], {{{', '.join(map(str, view.stride))}}}{offset})"


def op_name(node: fx.Node) -> str:
    """The vocabulary's name of a body statement."""
    return node.target if isinstance(node.target, str) else node.target.__name__


def statements(body: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """Each statement of a body with its text."""
    names: dict[fx.Node, str] = {}

    def one(arg: Any) -> str:
        if isinstance(arg, fx.Node):
            return names[arg]
        if isinstance(arg, torch.dtype):
            return dtype_text(arg)
        return str(arg) if isinstance(arg, (str, Index)) else repr(arg)

    for node in body.nodes:
        if node.op != "call_function":
            continue
        call = f"{op_name(node)}({', '.join(map(one, node.args))})"
        if op_name(node) in ("store", "scatter"):
            yield node, call
        else:
            names[node] = f"tmp{len(names)}"
            yield node, f"{names[node]}: {dtype_text(node.meta['dtype'])} = {call}"


def loop_head(node: LoopNode) -> str:
    """``buf3: f32[4] = sum for i0 in 4, reduce r0 in 8``."""
    ranges = [f"{v.name} in {v.size}" for v in node.outer]
    inner = [f"{v.name} in {v.size}" for v in node.inner]
    loops = (" for " + ", ".join(ranges) if ranges else "") + (" over " + ", ".join(inner) if inner else "")
    return f"{node.name}: {spec_text(node.output)} = {node.origin or 'loop'}{loops}"


def serial_head(node: SerialNode) -> str:
    """``buf3: f32[4, 8] = cumsum for i0 in 4, in order q0 in 8``."""
    ranges = [f"{v.name} in {v.size}" for v in node.outer]
    steps = [f"{v.name} in {v.size}" for v in node.steps]
    loops = (" for " + ", ".join(ranges) if ranges else "") + (", in order " + ", ".join(steps) if steps else "")
    return f"{node.name}: {spec_text(node.output)} = {node.origin or node.kind}{loops}"


def serial_lines(node: SerialNode) -> Iterator[str]:
    """What fills the buffer first, then the body."""
    if node.start is not None:
        yield loop_head(node.start).replace(f"= {node.start.origin}", "= first", 1) + ":"
        yield from (f"  {text}" for _, text in statements(node.start.body))
    yield from (text for _, text in statements(node.body))


def extern_text(node: ExternNode, buffers: Mapping[str, BufferSpec]) -> str:
    def one(arg: Any) -> str:
        if isinstance(arg, TensorView):
            return view_text(arg, buffers)
        if isinstance(arg, (tuple, list)):
            return f"[{', '.join(map(one, arg))}]"
        return format_arg(arg)

    args = [one(a) for a in node.args] + [f"{k}={one(v)}" for k, v in node.kwargs.items()]
    outputs = ", ".join("None" if s is None else f"{s.name}: {spec_text(s)}" for s in node.outputs)
    return f"{outputs} = {node.target}({', '.join(args)})"


def node_text(node: Node, buffers: Mapping[str, BufferSpec]) -> str:
    if isinstance(node, ExternNode):
        return extern_text(node, buffers)
    if isinstance(node, SerialNode):
        return "\n".join([serial_head(node) + ":", *(f"  {text}" for text in serial_lines(node))])
    return "\n".join([loop_head(node) + ":", *(f"  {text}" for _, text in statements(node.body))])


def size_lines(sizes: Sequence[SizeSource], conditions: Sequence[Condition], inputs: Sequence[BufferSpec], numbers: Mapping[int, Any]) -> list[str]:
    """Where each symbol comes from, and what must hold of them; nothing where all sizes are numbers."""
    names = [s.name for s in inputs]
    for position in sorted(numbers):
        names.insert(position, f"number{position}")
    lines = [f"{s.symbol.name} = {s.text(names[s.position])}  # {s.symbol.hint} at hand, at least {s.symbol.low}" for s in sizes]
    return lines + [f"where {c.text}" for c in conditions]


def program_text(
    inputs: tuple[BufferSpec, ...], constants: Mapping[str, Tensor], nodes: tuple[Node, ...], outputs: tuple[Output, ...], buffers: Mapping[str, BufferSpec]
) -> str:
    lines = [f"{s.name}: {spec_text(s)} = input" for s in inputs]
    lines += [f"{name}: {describe(value)} = constant" for name, value in constants.items()]
    lines += [node_text(node, buffers) for node in nodes]
    results = [view_text(o, buffers) if isinstance(o, TensorView) else repr(o) for o in outputs]
    return "\n".join([*lines, f"return ({', '.join(results)}{',' if len(results) == 1 else ''})"])
