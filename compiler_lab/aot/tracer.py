"""The tracer below autograd: a dispatch mode that runs aten operators on fake tensors and records each as an FX node.

In: torch calls made on fake tensors while the mode is on. Out: an ``fx.Graph`` of ``OpOverload`` nodes with meta "val", "stack" and
"parents". Composite operators open above the mode, autograd included, so what is recorded is what a backend would be asked to run.
Always holds: a tensor seen once has one node for as long as the trace lives (the tracer keeps it alive, so an ``id`` is never
reused); an in-place operator's result replaces the node of the tensor it wrote; ``detach`` and ``alias`` are the same memory and
the same value, hence the same node; ``meta["val"]`` is a snapshot without autograd history.
Each operator runs once, on fake tensors, without a second mode on the stack (``fake.py``). Symbolic sizes among the arguments are nodes
(``numbers.py``); what an operator asks about them becomes a guard of their ``ShapeEnv``.
PyTorch's counterpart: ``torch/fx/experimental/proxy_tensor.py`` (``make_fx``). Left out: higher-order operators, tensor subclasses.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..core.errors import Unsupported
from ..core.higher_order import Region, checkpointed
from ..core.provenance import Stack, own_location
from ..core.sizes import SYMBOLIC, decided, depends, hint, note, same
from ..core.strides import is_dense
from .fake import Fakes
from .layouts import LAYOUTS, relaid
from .numbers import Numbers
from .schemas import written_args

aten = torch.ops.aten

Table = Mapping[OpOverload, Callable[..., Any]]

SAME_VALUE = frozenset({aten.detach.default, aten.alias.default, aten.detach_.default})
"""Operators whose result is their argument's memory and value: they leave no node."""

METADATA = {
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.as_strided_.default: aten.as_strided.default,
    aten.swapaxes_.default: aten.transpose.int,
    aten.swapdims_.default: aten.transpose.int,
}
"""In-place changes of a tensor's shape: recorded as the view they are, which the tensor is from then on."""


def _batch_norm(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[OpOverload, Sequence[Any], Mapping[str, Any]]:
    """``native_batch_norm`` updates the running statistics without saying so; the legit overloads say so."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if not training:
        return aten._native_batch_norm_legit_no_training.default, (x, weight, bias, mean, var, momentum, eps), kwargs
    if mean is None:
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, training, momentum, eps), kwargs
    return aten._native_batch_norm_legit.default, args, kwargs


def _constant(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[OpOverload, Sequence[Any], Mapping[str, Any]]:
    """``torch.tensor(...)`` in the program: a number is a fill, anything larger a copy of a constant of the graph."""
    (value,) = args
    if value.dim() == 0 and not value.is_complex():
        with _disable_current_modes():
            return aten.full.default, ([], value.item()), {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    return aten.lift_fresh_copy.default, args, kwargs


RECORDED_AS: dict[OpOverload, Callable[..., tuple[OpOverload, Sequence[Any], Mapping[str, Any]]]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.lift_fresh.default: _constant,
}
"""Operators written down as another one that computes the same and whose schema tells the whole truth."""

UNMODELLED = frozenset(
    {aten.set_.source_Tensor, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset, aten.set_.default, aten.resize_.default,
     aten.resize_as_.default, aten.set_.source_Tensor_storage_offset}
)  # fmt: skip
"""Operators that change what memory a tensor stands on: no value semantics exists for them."""

SIZED_BY_DATA = frozenset(
    {aten._unique.default, aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default, aten.nonzero.default,
     aten.masked_select.default, aten.bincount.default}
)  # fmt: skip
"""Operators whose results have a size that depends on the data whatever their arguments are (indexing is tagged so for masks alone)."""


@dataclass(frozen=True, eq=False)
class View:
    """How a tensor came to stand on another's memory: ``op(source, *args, **kwargs)`` in this grad mode; ``getitem`` takes one of several.

    The source is the view that it was then, or the tensor that is no view."""

    op: Any
    source: View | Tensor
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grad_enabled: bool


def root(view: View) -> Tensor:
    """The tensor at the other end: no view that the tracer knows of."""
    while isinstance(view.source, View):
        view = view.source
    return view.source


class Tracer(TorchDispatchMode):
    """Records into ``graph``. ``origin`` is the provenance (parents, stack) that new nodes get; ``table`` opens operators."""

    def __init__(self, fake_mode: Any, table: Table | None = None) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.fakes = Fakes(fake_mode)
        self.table: Table = table or {}
        self.graph = fx.Graph()
        self.attributes: dict[str, Tensor] = {}
        self.origin: Callable[[], tuple[tuple[str, ...], Stack]] = lambda: ((), ())
        self.marks: dict[str, object] = {}  # of the nodes that are made now, see ``core.provenance.MARKS``
        self.regions: dict[Region, int] = {}
        self.written: dict[Any, set[int]] = {}  # storage that a recorded operator wrote to -> ids of the tensors it wrote, or that it took views of to write
        self.views: dict[int, View] = {}  # by id of the tensor
        self.env = getattr(fake_mode, "shape_env", None)
        self.numbers = Numbers(self._number)
        self._nodes: dict[int, fx.Node] = {}
        self._constants: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # -- values and nodes -------------------------------------------------------------------------------------------------

    def bind(self, value: Tensor, node: fx.Node) -> None:
        """From now on ``value`` is ``node``."""
        self._nodes[id(value)] = node
        self._alive.append(value)
        if self.env is not None:
            self.numbers.offer(value, node)

    def node(self, value: Tensor) -> fx.Node:
        """The node of a tensor; a real tensor (``torch.tensor(...)`` in the program) becomes a constant of the graph."""
        found = self._nodes.get(id(value))
        return self._nodes[id(self.constant(value))] if found is None else found

    def knows(self, value: Tensor) -> bool:
        return id(value) in self._nodes

    def finish(self, node: fx.Node, val: Any) -> fx.Node:
        """Gives ``node`` its value and the current origin."""
        node.meta["val"] = val
        node.meta["parents"], node.meta["stack"] = self.origin()
        if self.marks:
            node.meta.update(self.marks)
        return node

    def snapshot(self, value: Tensor) -> Tensor:
        """The same metadata without history, and with no tie to later in-place changes of shape."""
        return self.fakes.snapshot(value)

    def placeholder(self, name: str, value: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        if isinstance(value, SYMBOLIC):
            return self.numbers.bind(value, self.finish(node, value))
        self.bind(value, node)
        return self.finish(node, self.snapshot(value))

    def _number(self, target: Any, args: tuple[Any, ...], value: Any) -> fx.Node:
        return self.finish(self.graph.create_node("call_function", target, args, name=getattr(target, "_opname", None)), value)

    def constant(self, value: Tensor) -> Tensor:
        """The fake tensor of a real one, which becomes an attribute of the graph (once)."""
        known = self._constants.get(id(value))
        if known is not None:
            return known
        if type(value) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise self.unsupported("a tensor that the trace has not seen made", "unknown-tensor", f"a {type(value).__name__} that is no input of the graph")
        if value.requires_grad and torch.is_grad_enabled():
            raise self.unsupported("a parameter that is no input of the graph", "unlifted-parameter", "its gradient would be lost", "pass parameters as inputs")
        with _disable_current_modes():
            fake = self.snapshot(self.fake_mode.from_tensor(value, static_shapes=True))
        name = next(n for i in count() if (n := f"constant_{i}") not in self.attributes)
        self.attributes[name] = value
        self._alive.append(value)
        self._constants[id(value)] = fake
        self.bind(fake, self.finish(self.graph.create_node("get_attr", name, name=name), self.snapshot(fake)))
        return fake

    def constants(self) -> tuple[Tensor, ...]:
        """The fake tensors that stand for constants."""
        return tuple(self._constants.values())

    def unsupported(self, what: str, reason: str, why: str = "", hint: str = "") -> Unsupported:
        return Unsupported(what, reason=reason, where=own_location(self.origin()[1]), why=why, hint=hint)

    # -- recording --------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            raise self.unsupported(f"the higher-order operator {func}", "higher-order-operator")
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        if func.namespace == "prim":
            return self.fake_mode.dispatch(func, types, args, kwargs)
        rule = self.table.get(func)
        if rule is not None:
            with self:
                result = rule(*args, **kwargs)
            if result is not NotImplemented:
                return result
        elif _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        if func in UNMODELLED:
            raise self.unsupported(f"{func} changes what memory a tensor stands on", "storage-change")
        if func in SIZED_BY_DATA and not getattr(self.env, "allow_dynamic_output_shape_ops", False):
            # also where a fake kernel of torch has some size for it (that of ``_unique`` in torch 2.11): it would be taken for that of every call
            raise self.unsupported(f"{func} gives a size that depends on the data", "trace-failed")
        return self._record(func, types, args, kwargs)

    def _record(self, func: OpOverload, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func is aten.detach.default:
            out = self.snapshot(args[0])
            self.bind(out, self.node(args[0]))
            self._note_view(func, args, kwargs, out)
            return out
        if func is not aten.lift_fresh.default:
            args, kwargs = self._fake(tuple(args)), self._fake(kwargs)
        out = self.fakes.run(func, types, args, kwargs)
        if func in SAME_VALUE:
            self.bind(out, self.node(args[0]))
            self._note_view(func, args, kwargs, out)
            return out
        if func in LAYOUTS:
            with self.fake_mode:
                out = relaid(func, args, out)
        if self.env is not None:
            note(self.env, self.origin()[1])
        if not isinstance(out, (Tensor, list, tuple)) and func._schema.returns and not isinstance(out, SYMBOLIC):
            return out  # a plain number: nothing to record
        target, args, kwargs = RECORDED_AS[func](args, kwargs) if func in RECORDED_AS else (METADATA.get(func, func), args, kwargs)
        node = self.graph.create_node("call_function", target, self._lower(args), self._lower(kwargs), name=target._opname)
        self._note_writes(target, args, kwargs)
        if (region := checkpointed.get()) is not None:
            self.marks = {"recompute": region.policy(func, args, kwargs, out), "ac_graph_id": self.regions.setdefault(region, len(self.regions))}
        self._bind(node, out)
        if region is not None:
            self.marks = {}
        if _gives_views(target):
            self._note_view(target, args, kwargs, out)
        return out

    def _bind(self, node: fx.Node, out: Any) -> None:
        if out is None:
            self.finish(node, None)
            return
        if isinstance(out, Tensor):
            self.finish(node, self.snapshot(out))
            self.bind(out, node)
            return
        if isinstance(out, SYMBOLIC):
            self.numbers.bind(out, self.finish(node, out))
            return
        vals = [self.snapshot(o) if isinstance(o, Tensor) else o for o in out]
        self.finish(node, type(out)(vals) if type(out) in (list, tuple) else tuple(vals))
        for i, (o, val) in enumerate(zip(out, vals, strict=True)):
            if isinstance(o, Tensor):
                item = self.graph.create_node("call_function", operator.getitem, (node, i), name="getitem")
                self.bind(o, self.finish(item, val))

    def _fake(self, a: Any) -> Any:
        """Arguments with constants in place of real tensors."""
        if isinstance(a, Tensor):
            return a if self.knows(a) else self.constant(a)
        if type(a) is tuple or type(a) is list:
            return type(a)(map(self._fake, a))
        return {k: self._fake(v) for k, v in a.items()} if type(a) is dict else a

    def _lower(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return self.node(a)
        if type(a) is tuple or type(a) is list:
            return type(a)(map(self._lower, a))
        if type(a) is dict:
            return {k: self._lower(v) for k, v in a.items()}
        return self.numbers.node(a) if self.env is not None else a

    def _note_writes(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not target._schema.is_mutable:
            return
        for tensor in written_args(target, args, kwargs):
            view = self.views.get(id(tensor))
            self.written.setdefault(storage_of(tensor), set()).add(id(tensor if view is None else root(view)))

    def _note_view(self, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """Remembers how ``out`` was made; what changes its own shape in place is a view of what it was, or stays no view."""
        source: View | Tensor = self.views.get(id(args[0])) or args[0]
        if source is out:
            return
        made = View(target, source, tuple(args[1:]), kwargs, torch.is_grad_enabled())
        if isinstance(out, Tensor):
            self.views[id(out)] = made
        else:
            self.views.update((id(o), View(operator.getitem, made, (i,), {}, made.grad_enabled)) for i, o in enumerate(out))

    # -- the end ----------------------------------------------------------------------------------------------------------

    def module(self) -> fx.GraphModule:
        """The graph, without the tuple elements that nobody reads, as a module that holds the constants."""
        for node in reversed(self.graph.nodes):
            if node.target is operator.getitem and not node.users:
                self.graph.erase_node(node)
        root = torch.nn.Module()
        for name, value in self.attributes.items():
            root.register_buffer(name, value)
        return _LazyGraphModule(root, self.graph)


def storage_of(value: Tensor) -> Any:
    """What two tensors have in common when they share memory (compared by identity; the tensors must be alive)."""
    return value.untyped_storage()._cdata


def laid_out_alike(a: Tensor, b: Tensor) -> bool:
    """Equal strides, wherever a stride is used: in dimensions of more than one element. Of symbolic sizes, whatever they are."""
    if not (depends(a) or depends(b)):
        return a.shape == b.shape and (a.numel() == 0 or all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)))
    return same(a.shape, b.shape) and all(same(s, t) or same(n, 1) for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def has_overlap(value: Tensor, repeats: bool = True) -> bool:
    """True where two elements may share memory: sorted by stride, a dimension does not step over all that is inside it.

    repeats: dimensions that are expanded count, too."""
    inside = 0
    for size, stride in sorted(zip(value.shape, value.stride(), strict=True), key=lambda d: hint(d[1])):
        if decided(stride <= inside) and decided(size != 1) and (repeats or decided(stride != 0)):
            return decided(value.numel() > 0)
        inside += (size - 1) * stride
    return False


def restride(emit: Callable[..., Any], value: Any, like: Tensor) -> Any:
    """A copy of ``value`` with the strides of ``like``, which has no overlap: contiguous in the order of its strides; gaps are zero.

    ``emit(op, *args, **kwargs)`` gives the operator's result; values are what it takes and gives, tensors or nodes.
    """
    if not is_dense(like.shape, like.stride()):
        size, stride = list(like.shape), list(like.stride())
        memory = emit(aten.full.default, [storage_length(like)], 0, dtype=like.dtype, device=like.device, pin_memory=False)
        return emit(aten.as_strided.default, emit(aten.as_strided_scatter.default, memory, value, size, stride, 0), size, stride, 0)
    order = sorted(range(like.dim()), key=lambda d: (-hint(like.stride(d)), d))
    if order == list(range(like.dim())):
        return emit(aten.clone.default, value, memory_format=torch.contiguous_format)
    turned = emit(aten.clone.default, emit(aten.permute.default, value, order), memory_format=torch.contiguous_format)
    return emit(aten.permute.default, turned, [order.index(d) for d in range(like.dim())])


def storage_length(value: Tensor) -> int:
    """Elements from the first to past the last one."""
    return 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if decided(value.numel() != 0) else 0


@cache
def _gives_views(op: OpOverload) -> bool:
    """An operator of torch's own whose results are views of its first argument. A library's may be anything: its result is taken as it is."""
    schema = op._schema
    return op.namespace == "aten" and not schema.is_mutable and any(r.alias_info is not None for r in schema.returns)


@cache
def _is_composite(func: OpOverload) -> bool:
    """True for what opens above every backend; it reaches a mode only where autograd keys are off.

    Some operators (``silu_backward``) have a composite form besides a kernel: that they reached the mode means the kernel is meant.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(func.name(), torch.DispatchKey.CompositeImplicitAutograd) and not has(func.name(), torch.DispatchKey.CPU)
