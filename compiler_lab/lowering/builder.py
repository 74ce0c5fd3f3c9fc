"""What rows build with: loops, reductions, copies and extern calls for the aten node at hand.

In: a row's wish ("for each point of this size, this formula"). Out: nodes appended to the program, and ``TensorView``s of them.
Always holds: a loop's variables run in the order of the output's memory, widest stride first, without those of size 1; a buffer has
the strides of the fake value it stands for where these are dense, else row-major ones; nodes name the aten node as parent.
A row need not care whether sizes are numbers: it may add, multiply, divide and compare them as ints, and what it decides by a size that varies is
recorded as a condition of the program. It does well not to ask more than it must: ``range(n)``, ``math.gcd(n, m)``, ``n / 2`` and ``[0] * n`` fix the
size they are given (``sizes.common_block`` is the ``gcd`` that does not). A value is a tensor or a ``SizedTensor``: ``is_tensor`` tells both.
PyTorch's counterpart: ``torch/_inductor/lowering.py`` (make_pointwise, make_reduction, fallback_handler).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import own_location, stack_of
from ..core.strides import is_dense
from .body import Body, Decline, Value, indirect_point
from .index import Index, Var
from .ir import BufferSpec, ExternNode, LoopNode, Node, ReduceKind, ScanKind, ScatterMode, SerialNode, TensorView
from .program import written
from .sizes import Size, hint, is_number, same
from .symbols import is_tensor, row_major

Build = Callable[[Body, tuple[Index, ...]], Value]


def whole(spec: BufferSpec) -> TensorView:
    return TensorView(spec.name, spec.size, spec.stride, 0, spec.dtype)


def broadcast(view: TensorView, size: Sequence[int]) -> TensorView:
    """``view`` expanded to ``size``: stride 0 where it repeats. Raises ``InvalidIR`` where it does not expand to it."""
    lead = len(size) - len(view.size)
    if any(n != m and n != 1 for n, m in zip(view.size, size[lead:], strict=True)):
        raise InvalidIR(f"a view of {view.buffer} of size {list(view.size)} does not expand to {list(size)}")
    stride = [0] * lead + [s if n == m else 0 for n, s, m in zip(view.size, view.stride, size[lead:], strict=True)]
    return TensorView(view.buffer, tuple(size), tuple(stride), view.offset, view.dtype)


OF_NOTHING: Mapping[ReduceKind, int | bool] = {"sum": 0, "prod": 1, "any": False, "all": True}
"""What a reduction gives without elements; the others have none to give."""


class Builder:
    """One lowering under way. ``node`` is the aten node being lowered, ``val`` its fake value."""

    def __init__(self, stage: str, taken: frozenset[str]) -> None:
        self.stage, self.taken = stage, taken
        self.nodes: list[Node] = []
        self.bases: dict[str, int] = {}  # storage offset of a buffer's first element, where it is not 0
        self.relaid: set[str] = set()  # buffers whose strides were chosen here, not by aten
        self.node: fx.Node
        self.parents: tuple[str, ...] = ()
        self._count = self._mark = 0

    def rewind(self, nodes: int) -> None:
        """Takes back what a row made before it declined: all but the first ``nodes``, and their names."""
        self.relaid.difference_update(spec.name for node in self.nodes[nodes:] for spec in written(node))
        del self.nodes[nodes:]
        self._count = self._mark

    def enter(self, node: fx.Node) -> None:
        self._mark = self._count
        self.node, self.parents, self.stack = node, (f"{self.stage}/{node.name}",), stack_of(node)

    @property
    def val(self) -> Any:
        return self.node.meta["val"]

    @property
    def device(self) -> torch.device:
        """Where the node's value lives."""
        values = self.val if isinstance(self.val, (tuple, list)) else (self.val,)
        return next(v.device for v in values if is_tensor(v))

    @property
    def origin(self) -> str:
        """The operator's short name: ``gelu``."""
        return str(self.node.target).split(".")[-2] if "." in str(self.node.target) else str(self.node.target)

    def name(self) -> str:
        """The next free buffer name."""
        name = f"buf{self._count}"
        self._count += 1
        return self.name() if name in self.taken else name

    def like(self, val: Any) -> BufferSpec:
        """A new buffer for ``val``: its strides where dense, row-major otherwise."""
        size, stride = known_size(val.shape, self.node), tuple(val.stride())
        return BufferSpec(self.name(), size, stride if dense(size, stride) else row_major(size), val.dtype, val.device)

    def following(self, val: Any, operands: Sequence[TensorView]) -> BufferSpec:
        """``like``, but where an operand of this size has strides that were chosen here, with those."""
        spec = self.like(val)
        for view in operands:
            if view.buffer in self.relaid and view.size == spec.size and dense(view.size, view.stride):
                self.relaid.add(spec.name)
                return replace(spec, stride=view.stride)
        return spec

    def fresh(self, size: Sequence[int], dtype: torch.dtype) -> BufferSpec:
        """A new row-major buffer on the device of the node's value."""
        return BufferSpec(self.name(), tuple(size), row_major(size), dtype, self.device)

    def loop(self, spec: BufferSpec, build: Build, *, origin: str = "", split: Mapping[int, int] | None = None) -> TensorView:
        """A pointwise node: ``build(body, point)`` for each point of ``spec.size``.

        ``split[dim] = n`` walks dimension ``dim`` with two variables, blocks of ``n``, so that ``point[dim] // n`` and ``% n`` are plain.
        """
        outer, point = _variables("i", spec.size, range(len(spec.size)), spec.stride, split or {})
        body = Body(self.parents, self.stack)
        value = build(body, point).to(spec.dtype)
        body.store(spec.name, whole(spec).index(point), value)
        self.nodes.append(LoopNode(spec.name, spec, outer, (), body.graph, self.parents, self.stack, origin or self.origin))
        return whole(spec)

    def reduction(
        self,
        spec: BufferSpec,
        kind: ReduceKind,
        size: Sequence[int],
        dims: Sequence[int],
        build: Build,
        *,
        finish: Callable[[Value], Value] = lambda v: v,
        order: TensorView | None = None,
        origin: str = "",
    ) -> TensorView:
        """Reduces ``build(body, point)`` over ``dims`` of ``size`` into ``spec``, whose dimensions are the kept ones (all, of size 1, with keepdim).

        ``order``: a view whose strides order the reduced variables; logical order without it (what argmax counts in).
        ``finish`` is applied to the result. Without a point to reduce over but one, the node is pointwise.
        """
        kept = [d for d in range(len(size)) if d not in dims]
        where = list(range(len(size))) if len(spec.size) == len(size) else kept
        stride = dict(zip(where, spec.stride, strict=True))
        outer, out_point = _variables("i", size, kept, [stride[d] for d in kept], {})
        inner, in_point = _variables("r", size, list(dims), [order.stride[d] for d in dims] if order else None, {})
        points = dict(zip(kept, out_point, strict=True)) | dict(zip(dims, in_point, strict=True))
        body = Body(self.parents, self.stack)
        value = build(body, tuple(points[d] for d in range(len(size))))
        if any(v.size == 0 for v in inner):  # of nothing: the formula has told the dtype
            body, inner = Body(self.parents, self.stack), ()
            value = body.constant(OF_NOTHING[kind], value.dtype)
        elif inner:
            value = body.reduce(kind, value)
        elif kind in ("argmax", "argmin"):
            value = body.constant(0, torch.int64)
        value = finish(value).to(spec.dtype)
        body.store(spec.name, Index.affine(out_point, [stride[d] for d in kept]), value)
        self.nodes.append(LoopNode(spec.name, spec, outer, inner, body.graph, self.parents, self.stack, origin or self.origin))
        return whole(spec)

    def scan(self, view: TensorView, dim: int, kind: ScanKind, spec: BufferSpec, build: Build, *, origin: str = "") -> TensorView:
        """At each point of ``view.size``: ``build`` of it and of the points before it along ``dim``, taken together."""
        kept = [d for d in range(len(view.size)) if d != dim]
        outer, out_point = _variables("i", view.size, kept, [spec.stride[d] for d in kept], {})
        steps, at = _variables("q", view.size, [dim], None, {})
        points = dict(zip(kept, out_point, strict=True)) | {dim: at[0]}
        point = tuple(points[d] for d in range(len(view.size)))
        body = Body(self.parents, self.stack)
        body.store(spec.name, whole(spec).index(point), body.scan(kind, build(body, point)).to(spec.dtype))
        self.nodes.append(SerialNode(spec.name, spec, outer, steps, body.graph, self.parents, self.stack, origin or self.origin))
        return whole(spec)

    def scatter(
        self,
        spec: BufferSpec,
        start: Build,
        size: Sequence[int],
        apart: Sequence[int],
        target: Callable[[Body, tuple[Index, ...]], tuple[tuple[Index, ...], Mapping[int, Value]]],
        value: Build,
        mode: ScatterMode,
    ) -> TensorView:
        """``start`` at each point of ``spec``, and then, for each point of ``size`` in row-major order, ``value`` taken in at ``target``.

        ``target`` gives a point of ``spec`` and positions for some of its dimensions. ``apart``: dimensions of ``size`` whose points never
        meet in one element. Numbers may be written; in "sum" and the like the buffer's dtype is what is computed in, as in aten.
        """
        self.loop(spec, start)
        first = self.nodes.pop()
        assert isinstance(first, LoopNode)
        ordered = [d for d in range(len(size)) if d not in apart]
        outer, apart_point = _variables("j", size, apart, None, {})
        steps, ordered_point = _variables("q", size, ordered, None, {})
        points = dict(zip(apart, apart_point, strict=True)) | dict(zip(ordered, ordered_point, strict=True))
        point = tuple(points[d] for d in range(len(size)))
        body = Body(self.parents, self.stack)
        at, positions = target(body, point)
        index = whole(spec).index(indirect_point(spec.size, at, positions))
        body.scatter(spec.name, index, value(body, point).to(spec.dtype), mode, tuple(positions.values()))
        self.nodes.append(SerialNode(spec.name, spec, outer, steps, body.graph, self.parents, self.stack, self.origin, first))
        return whole(spec)

    def copy(self, view: TensorView, spec: BufferSpec, origin: str = "") -> TensorView:
        """``view`` written into the new buffer ``spec`` (of the same size), converted to its dtype."""
        return self.loop(spec, lambda body, point: body.load(view, point), origin=origin)

    def extern(
        self, target: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], layout: Callable[[Sequence[int]], tuple[int, ...]] | None = None
    ) -> Any:
        """One aten call; gives the views (and plain values) it returns, in the shape of the node's value.

        layout: the strides that results of four dimensions come in, from their size, where these are not the fake value's."""
        val, name = self.val, self.name()
        single = not isinstance(val, (tuple, list))
        values: list[Any] = [val] if single else list(val)
        if any(isinstance(v, (tuple, list, torch.SymInt, torch.SymFloat)) for v in values) or (single and not is_tensor(val) and val is not None):
            raise Unsupported(
                f"{target} returns {type(val).__name__}, which no buffer holds",
                reason="extern result",
                where=own_location(self.stack),
                hint="keep this call outside the compiled program",
            )
        if single and val is None:
            single, values = False, []
        if target in FROM_THE_BEGINNING:
            self._check_place(target, args[0])
        specs = tuple(self._extern_spec(name if single else f"{name}_{i}", v, layout) if is_tensor(v) else None for i, v in enumerate(values))
        self.nodes.append(ExternNode(name, target, args, dict(kwargs), specs, single, self.parents, self.stack, _aliases(target, args)))
        results = tuple(whole(s) if s is not None else v for s, v in zip(specs, values, strict=True))
        return results[0] if single else results

    def _check_place(self, target: torch._ops.OpOverload, view: TensorView) -> None:
        """Raises Unsupported where ``view`` will not begin where its tensor begins in the memory of the trace."""
        source = self.node.args[0]
        assert isinstance(source, fx.Node)
        if self.bases.get(view.buffer, 0) + view.offset != source.meta["val"].storage_offset():
            what, why = f"{target} of a tensor that begins elsewhere in its memory", "its offset is counted from where the memory begins"
            raise Unsupported(what, reason="as_strided of another layout", where=own_location(self.stack), why=why)

    def _extern_spec(self, name: str, val: Any, layout: Callable[[Sequence[int]], tuple[int, ...]] | None) -> BufferSpec:
        if not same(val.storage_offset(), 0):
            self.bases[name] = val.storage_offset()
        size, stride = known_size(val.shape, self.node), known_size(val.stride(), self.node)
        if layout is not None and len(size) == 4:
            self.relaid.add(name)
            stride = layout(size)
        return BufferSpec(name, size, stride, val.dtype, val.device)


FROM_THE_BEGINNING = frozenset({torch.ops.aten.as_strided_scatter.default, torch.ops.aten.as_strided_copy.default})
"""Operators that count an offset from the beginning of the memory that their first argument is in: it may not be a part of an arena."""


def dense(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Are they known to fill their memory without gaps or overlap?"""
    if is_number(*size, *stride):
        return is_dense(size, stride)
    expected = 1
    for step, n in sorted(((s, n) for n, s in zip(size, stride, strict=True) if not same(n, 1)), key=lambda t: (hint(t[0]), hint(t[1]))):
        if not same(step, expected):
            return False
        expected *= n
    return True


def known_size(size: Sequence[Any], node: fx.Node) -> tuple[int, ...]:
    """``size`` as ints. Raises Unsupported for one that depends on data."""
    if not all(type(n) is int or isinstance(n, Size) for n in size):
        raise Unsupported(
            f"{node.name} has a symbolic size {list(size)}", reason="dynamic shapes", where=own_location(stack_of(node)), hint="compile with dynamic=False"
        )
    return tuple(size)


def _variables(
    prefix: str, size: Sequence[int], dims: Sequence[int], stride: Sequence[int] | None, split: Mapping[int, int]
) -> tuple[tuple[Var, ...], tuple[Index, ...]]:
    """Variables for ``dims`` of ``size``, widest stride first, and each dimension's position in terms of them."""
    pieces: list[tuple[int, int, int]] = []  # (dimension, extent, stride inside the dimension)
    for d in dims:
        block = split.get(d, size[d])
        pieces += [(d, size[d], 1)] if same(block, size[d]) else [(d, size[d] // block, block), (d, block, 1)]
    step = dict(zip(dims, stride, strict=True)) if stride is not None else {}
    order = sorted((p for p in pieces if not same(p[1], 1)), key=lambda p: -hint(step.get(p[0], 0) * p[2]))
    variables = tuple(Var(f"{prefix}{i}", extent) for i, (_, extent, _) in enumerate(order))
    point = {d: Index() for d in dims}
    for var, (d, _, scale) in zip(variables, order, strict=True):
        point[d] = point[d] + Index.of(var) * scale
    return variables, tuple(point[d] for d in dims)


def _aliases(target: torch._ops.OpOverload, args: tuple[Any, ...]) -> tuple[str, ...]:
    """Buffers that outputs may share memory with, by the schema's alias annotations; and those that have to begin where their memory does."""
    schema = target._schema
    if target in FROM_THE_BEGINNING:
        return (args[0].buffer,)
    if not any(r.alias_info is not None for r in schema.returns):
        return ()
    shared = [v for a, v in zip(schema.arguments, args, strict=False) if a.alias_info is not None]
    flat = [w for v in shared for w in (v if isinstance(v, (tuple, list)) else (v,))]
    return tuple(dict.fromkeys(w.buffer for w in flat if isinstance(w, TensorView)))


def count(size: Sequence[int], dims: Sequence[int]) -> int:
    """How many elements a reduction over ``dims`` takes in."""
    return math.prod(size[d] for d in dims)


__all__ = ["Build", "Builder", "Decline", "broadcast", "count", "known_size", "whole"]
