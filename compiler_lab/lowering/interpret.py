"""The evaluator: what a loop node and an extern call mean, computed with torch on whole iteration spaces.

In: a node and ``env``, buffer name -> tensor laid out as its ``BufferSpec``. Out: the buffers it writes.
Always holds: this is the reference that generated code is compared with; each scalar op is the torch function of
``ops.SCALAR``, each reduction torch's own, so an unfused program computes what eager computes.
PyTorch's counterpart: ``torch/_inductor/ops_handler.py`` has handlers, but none that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.errors import InvalidIR, Mismatch
from . import ops
from .index import Index, Var
from .ir import BufferSpec, ExternNode, LoopNode, TensorView


def view_tensor(view: TensorView, env: Mapping[str, Tensor]) -> Tensor:
    """The window of ``env[view.buffer]`` that ``view`` says; the tensor itself where that is all of it."""
    base = env[view.buffer]
    if view.offset == 0 and tuple(base.shape) == view.size and base.stride() == view.stride:
        return base
    return base.as_strided(view.size, view.stride, base.storage_offset() + view.offset)


def evaluate_extern(node: ExternNode, env: Mapping[str, Tensor]) -> tuple[Tensor | None, ...]:
    """Calls the operator; results are copied where their strides are not those of ``node.outputs``."""

    def real(arg: Any) -> Any:
        if isinstance(arg, TensorView):
            return view_tensor(arg, env)
        return type(arg)(map(real, arg)) if isinstance(arg, (tuple, list)) else arg

    result = node.target(*map(real, node.args), **{k: real(v) for k, v in node.kwargs.items()})
    if result is None:  # an assertion
        return ()
    flat: tuple[Any, ...] = (result,) if node.single else tuple(t for r in result for t in (r if isinstance(r, (tuple, list)) else (r,)))
    return tuple(_in_layout(node.name, spec, value) for spec, value in zip(node.outputs, flat, strict=True))


def _in_layout(name: str, spec: BufferSpec | None, value: Any) -> Tensor | None:
    if spec is None or value is None:
        return None
    if tuple(value.shape) != spec.size or value.dtype != spec.dtype:
        raise Mismatch(f"{name} gave {value.dtype}{list(value.shape)}, its spec says {spec.dtype}{list(spec.size)}")
    if value.stride() == spec.stride:
        return value
    return torch.empty_strided(spec.size, spec.stride, dtype=spec.dtype, device=spec.device).copy_(value)


class Loop:
    """One evaluation of a body: variables are dimensions, in the order outer, inner; values broadcast over them."""

    def __init__(self, node: LoopNode, env: Mapping[str, Tensor]) -> None:
        self.node, self.env, self.device = node, env, node.output.device
        self.variables = node.outer + node.inner
        self.shape = tuple(v.size for v in self.variables)
        self.output = torch.empty_strided(node.output.size, node.output.stride, dtype=node.output.dtype, device=self.device)

    def grid(self, var: Var) -> Tensor:
        dim = self.variables.index(var)
        return torch.arange(var.size, device=self.device).reshape([-1 if d == dim else 1 for d in range(len(self.variables))])

    def address(self, index: Index, values: tuple[Tensor, ...] = ()) -> Tensor:
        number: Any = index.evaluate(lambda v: values[int(v.name[1:])] if v.name.startswith("%") else self.grid(v))  # type: ignore[arg-type,return-value]
        return torch.as_tensor(number, device=self.device)

    def window(self, base: Tensor, index: Index, variables: tuple[Var, ...]) -> Tensor | None:
        """The strided view that an affine index walks; None where it is not affine or walks backwards."""
        strides = [index.coefficient(v) for v in variables]
        if not index.is_affine or any(s is None or s < 0 for s in strides) or any(v.name.startswith("%") for v in index.variables()):
            return None
        return base.as_strided([v.size for v in variables], [s for s in strides if s is not None], base.storage_offset() + index.const)

    def load(self, buffer: str, index: Index, *indirect: Tensor) -> Tensor:
        base = self.env[buffer]
        if (view := self.window(base, index, self.variables)) is not None:
            return view
        return flat(base)[self.address(index, indirect)]

    def store(self, buffer: str, index: Index, value: Tensor) -> None:
        outer = tuple(v.size for v in self.node.outer)
        value = value.expand(outer + (1,) * len(self.node.inner)).reshape(outer) if self.node.inner else value.expand(outer)
        if (view := self.window(self.output, index, self.node.outer)) is not None:
            view.copy_(value)
        else:
            address = self.address(index).expand(self.shape[: len(outer)] + (1,) * len(self.node.inner)).reshape(outer)
            flat(self.output)[address] = value

    def reduce(self, kind: str, value: Tensor) -> Tensor:
        value = value.expand(self.shape)
        outer = len(self.node.outer)
        dims = tuple(range(outer, len(self.shape)))
        if kind in REDUCE_DIMS:
            return REDUCE_DIMS[kind](value, dims)
        flat = REDUCE_FLAT[kind](value.reshape((*self.shape[:outer], -1)))
        return flat.reshape(self.shape[:outer] + (1,) * len(dims))

    def index_value(self, index: Index, dtype: torch.dtype, *indirect: Tensor) -> Tensor:
        return self.address(index, indirect).to(dtype)

    def indirect(self, value: Tensor, size: int, wrap: bool) -> Tensor:
        if wrap:
            value = torch.where(value < 0, value + size, value)
        if bool(((value < 0) | (value >= size)).any()):
            raise IndexError(f"index out of range in {self.node.name}: not in [0, {size})")
        return value

    def constant(self, value: float | bool, dtype: torch.dtype) -> Tensor:
        return torch.tensor(value, dtype=dtype, device=self.device)

    def to_dtype(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        return value.to(dtype)


def flat(base: Tensor) -> Tensor:
    """All of a tensor's memory from its first element on, as one dimension."""
    extent = base.untyped_storage().nbytes() // base.itemsize - base.storage_offset()
    return base.as_strided((extent,), (1,), base.storage_offset())


REDUCE_DIMS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "sum": lambda v, dims: torch.sum(v, dims, keepdim=True, dtype=v.dtype),
    "max": lambda v, dims: torch.amax(v, dims, keepdim=True),
    "min": lambda v, dims: torch.amin(v, dims, keepdim=True),
    "any": lambda v, dims: torch.any(v, dims, keepdim=True),
    "all": lambda v, dims: torch.all(v, dims, keepdim=True),
}
REDUCE_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "prod": lambda v: torch.prod(v, -1, dtype=v.dtype),
    "argmax": lambda v: torch.argmax(v, -1),
    "argmin": lambda v: torch.argmin(v, -1),
}


def evaluate_node(node: LoopNode, env: Mapping[str, Tensor]) -> Tensor:
    """The buffer ``node`` writes. Raises IndexError where an indirect index is out of range."""
    loop = Loop(node, env)
    evaluate_body(node.name, loop, node.body)
    return loop.output


def evaluate_body(where: str, loop: Loop, body: fx.Graph) -> None:
    """Each statement of ``body``, its structural ops by ``loop``."""
    values: dict[fx.Node, Tensor] = {}
    for n in body.nodes:
        if n.op != "call_function":
            continue
        args = [values[a] if isinstance(a, fx.Node) else a for a in n.args]
        name = n.target.__name__
        if name in ops.SCALAR:
            values[n] = ops.SCALAR[name](*args)
        elif n.target in ops.STRUCTURAL:
            values[n] = getattr(loop, name)(*args)
        else:
            raise InvalidIR(f"{where}: {name} is not in the vocabulary")
