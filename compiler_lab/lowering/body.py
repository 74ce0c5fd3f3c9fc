"""Writing loop bodies: values with operators, so that a row reads like the formula it is.

In: what a row function says, ``x * 0.5 * (apply(ops.erf, x * M_SQRT1_2) + 1)``. Out: the body's ``fx.Graph``.
Always holds: every node has dtype, stack and parents; operands of an op have one dtype (numbers become constants of it); a load,
constant or op written twice stands once.
PyTorch's counterpart: ``torch/_inductor/virtualized.py`` (OpsValue) and ``loop_body.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..core.errors import InvalidIR
from ..core.provenance import Stack
from . import ops
from .index import Index, Var
from .ir import TensorView
from .reals import Real
from .sizes import Size

Number = int | float | bool


class Decline(Exception):
    """A row does not cover this case: the call stays with aten, for ``reason`` (an id of ``lower.REASONS``)."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar of a body: what one of its nodes computes."""

    body: Body
    node: fx.Node
    dtype: torch.dtype

    # fmt: off
    def __add__(self, other: Value | Number) -> Value: return apply(ops.add, self, other)
    def __radd__(self, other: Number) -> Value: return apply(ops.add, other, self)
    def __sub__(self, other: Value | Number) -> Value: return apply(ops.sub, self, other)
    def __rsub__(self, other: Number) -> Value: return apply(ops.sub, other, self)
    def __mul__(self, other: Value | Number) -> Value: return apply(ops.mul, self, other)
    def __rmul__(self, other: Number) -> Value: return apply(ops.mul, other, self)
    def __truediv__(self, other: Value | Number) -> Value: return apply(ops.truediv, self, other)
    def __rtruediv__(self, other: Number) -> Value: return apply(ops.truediv, other, self)
    def __neg__(self) -> Value: return apply(ops.neg, self)
    def __lt__(self, other: Value | Number) -> Value: return apply(ops.lt, self, other)
    def __le__(self, other: Value | Number) -> Value: return apply(ops.le, self, other)
    def __gt__(self, other: Value | Number) -> Value: return apply(ops.gt, self, other)
    def __ge__(self, other: Value | Number) -> Value: return apply(ops.ge, self, other)
    # fmt: on

    def to(self, dtype: torch.dtype) -> Value:
        return self if dtype == self.dtype else self.body.emit(ops.to_dtype, (self.node, dtype), dtype)


def apply(fn: Callable[..., Any], *operands: Value | Number) -> Value:
    """``fn`` (a scalar op) on values of one dtype; numbers become constants of that dtype."""
    first = 1 if fn is ops.where else 0  # the condition is bool whatever the rest is
    peer = next((o for o in operands[first:] if isinstance(o, Value)), None)
    if peer is None:
        raise InvalidIR(f"ops.{fn.__name__} needs at least one value of the body")
    values = [o if isinstance(o, Value) else peer.body.constant(o, peer.dtype) for o in operands]
    if any(v.dtype != peer.dtype for v in values[first:]) or (first and values[0].dtype != torch.bool):
        raise InvalidIR(f"ops.{fn.__name__} on {', '.join(str(v.dtype) for v in values)}")
    dtype = torch.bool if fn.__name__ in ops.BOOLEAN else ops.RANDOM.get(fn.__name__, peer.dtype)
    return peer.body.emit(fn, tuple(v.node for v in values), dtype)


def where(condition: Value, a: Value | Number, b: Value | Number, dtype: torch.dtype | None = None) -> Value:
    """``a`` where ``condition`` holds, else ``b``; ``dtype`` is needed where both are numbers."""
    if dtype is not None and not isinstance(a, Value):
        a = condition.body.constant(a, dtype)
    return apply(ops.where, condition, a, b)


class Body:
    """The body of one loop node, under construction."""

    def __init__(self, parents: tuple[str, ...], stack: Stack) -> None:
        self.graph = fx.Graph()
        self.parents, self.stack = parents, stack
        self._known: dict[tuple[Any, ...], Value] = {}

    def emit(self, fn: Callable[..., Any], args: tuple[Any, ...], dtype: torch.dtype) -> Value:
        """The value of ``fn(*args)``, a new node unless the body has it already."""
        key = (fn, *((type(a), repr(a)) if isinstance(a, (int, float)) else a for a in args))  # repr tells 0.0 from -0.0
        found = self._known.get(key)
        if found is None:
            node = self.graph.call_function(fn, args)
            node.meta.update(dtype=dtype, stack=self.stack, parents=self.parents)
            found = self._known[key] = Value(self, node, dtype)
        return found

    def constant(self, value: Number, dtype: torch.dtype) -> Value:
        if isinstance(value, Size):
            return self.index_value(Index.of(value)).to(dtype)  # type: ignore[arg-type]
        if isinstance(value, Real):
            return self.emit(ops.constant, (value, torch.float64), torch.float64).to(dtype)
        plain = float(value) if dtype.is_floating_point else bool(value) if dtype == torch.bool else _integer(int(value), dtype)
        return self.emit(ops.constant, (plain, dtype), dtype)

    def load(self, view: TensorView, point: Sequence[Index | Var | int]) -> Value:
        """The element of ``view`` at ``point`` (one index per dimension)."""
        return self.emit(ops.load, (view.buffer, view.index(tuple(point))), view.dtype)

    def load_at(self, view: TensorView, point: Sequence[Index], positions: Mapping[int, Value]) -> Value:
        """As ``load``, but at ``positions[d]`` (a value from ``indirect``) in dimension ``d``."""
        at = indirect_point(view.size, point, positions)
        return self.emit(ops.load, (view.buffer, view.index(at), *(p.node for p in positions.values())), view.dtype)

    def indirect(self, value: Value, size: int, wrap: bool) -> Value:
        return self.emit(ops.indirect, (value.to(torch.int64).node, size, wrap), torch.int64)

    def index_value(self, index: Index, dtype: torch.dtype = torch.int64) -> Value:
        return self.emit(ops.index_value, (index, dtype), dtype)

    def reduce(self, kind: str, value: Value) -> Value:
        dtype = torch.int64 if kind in ("argmax", "argmin") else value.dtype
        return self.emit(ops.reduce, (kind, value.node), dtype)

    def scan(self, kind: str, value: Value) -> Value:
        return self.emit(ops.scan, (kind, value.node), torch.int64 if kind in ("argmax", "argmin") else value.dtype)

    def scatter(self, buffer: str, index: Index, value: Value, mode: str, positions: Sequence[Value]) -> None:
        """``Var("%0", n)`` in ``index`` stands for ``positions[0]``, and so on."""
        self.emit(ops.scatter, (buffer, index, value.node, mode, *(p.node for p in positions)), value.dtype)

    def store(self, buffer: str, index: Index, value: Value) -> None:
        self.emit(ops.store, (buffer, index, value.node), value.dtype)


def indirect_point(size: Sequence[int], point: Sequence[Index], positions: Mapping[int, Any]) -> tuple[Index | Var, ...]:
    """``point`` with the n-th of ``positions``' dimensions as the variable ``%n``."""
    names = {d: f"%{n}" for n, d in enumerate(positions)}
    return tuple(Var(names[d], size[d]) if d in names else p for d, p in enumerate(point))


def _integer(value: int, dtype: torch.dtype) -> int:
    """``value`` as ``dtype`` holds it: uint8 wraps negative numbers, as aten does; what does not fit stays with aten, which raises."""
    limit = torch.iinfo(dtype)
    if dtype == torch.uint8 and -limit.max <= value < 0:
        return value + limit.max + 1
    if not limit.min <= value <= limit.max:
        raise Decline("number out of range")
    return value
