"""Takes mutation out of a joint graph: in-place operators become functional ones, views of what was written are made again.

In: a ``JointGraph`` in state "joint". Out: one in state "pure" that computes the same; its ``spec`` is unchanged.
Always holds: no operator's schema mutates; the updates are the final values of the mutated inputs; outputs are fresh memory, laid
out as recorded; parents name nodes of the graph that came in.
How: every tensor is a ``View`` of a ``Base``: the memory a tensor was made in, with its current value. A write to a view is
scattered up to the base, which gets a new value and a new version; a view whose version is behind is made again when it is read.
The functional twin of an operator is found by its schema. PyTorch's counterpart: ``aten/src/ATen/FunctionalTensorWrapper.cpp`` and
``FunctionalStorageImpl.cpp``, at dispatch time there. Left out: writes through views in no row of ``view_rows.WRITE``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..core.artifact import Decision
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import inherit, own_location, stack_of
from ..core.schema import base_of, is_view
from .ir import JointGraph
from .schemas import bound, call_of, functional_twin, written_names
from .tracer import has_overlap, laid_out_alike, restride
from .view_rows import COVERS, PARTS, WRITE, viewable

aten = torch.ops.aten

REASONS = {
    "in-place": "the operator writes to its argument: its functional twin gives a new value instead",
    "scattered": "the write goes through a view: the new value is put back into what it is a view of",
    "replayed": "what this is a view of has been written to since: the view is made again from the new value",
    "layout": "the functional result is laid out differently from what the program returns: it is copied into that layout",
    "own-memory": "the value is an input's or another output's as well: an output has memory of its own",
}


def functionalize(joint: JointGraph) -> JointGraph:
    """The pure form of ``joint``. Raises ``Unsupported`` naming the operator it has no rule for."""
    if joint.state != "joint":
        raise InvalidIR(f"functionalize takes a graph in state 'joint', this one is '{joint.state}'")
    with torch.inference_mode(False), torch.no_grad():
        return _Functionalizer(joint).run()


@dataclass(eq=False)
class Base:
    """A piece of memory: its present value, and how often it has been written to."""

    value: fx.Node
    version: int = 0


@dataclass(eq=False)
class View:
    """A tensor: ``op(parent, *args)`` (or, without parent, all of ``base``); ``node`` is its value as of ``version``."""

    base: Base
    node: fx.Node
    version: int
    like: Tensor
    parent: View | None = None
    op: OpOverload | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None


@dataclass(eq=False)
class Many:
    """The result of an operator with several: the node, and a view for each that has been asked for or aliases something."""

    node: fx.Node | None
    views: dict[int, View]


class _Functionalizer:
    def __init__(self, joint: JointGraph) -> None:
        self.joint = joint
        self.graph = fx.Graph()
        self.env: dict[fx.Node, View | Many | None] = {}
        self.old: fx.Node = joint.graph.output_node()
        self.decisions: list[Decision] = []
        self.fake_mode = next((v.fake_mode for n in joint.graph.nodes if hasattr(v := n.meta.get("val"), "fake_mode")), nullcontext())

    def run(self) -> JointGraph:
        for node in self.joint.graph.nodes:
            self.old = node
            if node.op == "output":
                self.output(node)
            elif node.op in ("placeholder", "get_attr"):
                new = self.graph.create_node(node.op, node.target, name=node.name)
                self.env[node] = self.fresh(self.stamp(new, node.meta["val"]), node.meta["val"])
            elif node.target is operator.getitem:
                self.env[node] = self.element(*node.args)
            else:
                self.env[node] = self.call(node)
        result = JointGraph(_LazyGraphModule(self.joint.module, self.graph), self.joint.spec, "pure", tuple(self.decisions))
        for node in result.graph.nodes:
            if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
                raise InvalidIR(f"{result.id(node)} still mutates: {node.target}")
        return result

    # -- nodes ------------------------------------------------------------------------------------------------------------

    def stamp(self, new: fx.Node, val: Any) -> fx.Node:
        new.meta["val"] = val
        return inherit(new, self.joint.stage, self.old)

    def emit(self, op: OpOverload, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node; its value is computed on fake tensors."""
        return self.node(op, args, kwargs, None)

    def node(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], val: Any, name: str = "") -> fx.Node:
        if val is None:
            fake_args, fake_kwargs = fx.map_arg((tuple(args), dict(kwargs)), lambda n: n.meta["val"])
            with self.fake_mode:
                val = op(*fake_args, **fake_kwargs)
        return self.stamp(self.graph.create_node("call_function", op, tuple(args), dict(kwargs), name=name or op._opname), val)

    def decide(self, outcome: str, reason: str, **facts: Any) -> None:
        self.decisions.append(Decision("functionalize", (self.joint.id(self.old),), outcome, reason, facts))

    def unsupported(self, what: str, reason: str, why: str = "") -> Unsupported:
        return Unsupported(what, reason=reason, where=own_location(stack_of(self.old)), why=why)

    # -- reading ----------------------------------------------------------------------------------------------------------

    def fresh(self, node: fx.Node, like: Tensor) -> View:
        """New memory with the value of ``node``; eager lays it out as ``like`` is."""
        return View(Base(node), node, 0, like)

    def view_of(self, old: fx.Node) -> View:
        found = self.env[old]
        if not isinstance(found, View):
            raise InvalidIR(f"{self.joint.id(old)} is used as a tensor and is none")
        return found

    def read(self, view: View) -> fx.Node:
        """The node of the view's present value."""
        if view.version != view.base.version:
            if view.parent is None or view.op is None:
                view.node = view.base.value
            else:
                parent = self.read(view.parent)
                view.node = self.apply(view.op, parent, view.args, view.kwargs or {})
                self.decide("replayed", "replayed", view=view.node.name)
            view.version = view.base.version
        return view.node

    def apply(self, op: OpOverload, parent: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Node:
        if op in (aten.view.default, aten._unsafe_view.default) and not viewable(parent.meta["val"], args[0]):
            parent = self.emit(aten.clone.default, parent, memory_format=torch.contiguous_format)
        return self.emit(op, parent, *args, **kwargs)

    def now(self, old: Any) -> Any:
        """Arguments of the old graph as arguments of the new one, read now."""
        return fx.map_arg(old, lambda n: self.read(self.view_of(n)))

    def element(self, source: fx.Node, index: int) -> View | None:
        found = self.env[source]
        if not isinstance(found, Many):
            return None
        if index not in found.views:
            if found.node is None:
                raise InvalidIR(f"{self.joint.id(self.old)} reads a result that {source.name} has not")
            val = found.node.meta["val"][index]
            found.views[index] = self.fresh(self.node(operator.getitem, (found.node, index), {}, val, self.old.name), self.old.meta["val"])
        return found.views[index]

    # -- operators --------------------------------------------------------------------------------------------------------

    def call(self, old: fx.Node) -> View | Many | None:
        op = old.target
        if not isinstance(op, OpOverload):
            raise self.unsupported(f"{op} in a joint graph", "not-an-operator")
        if op._schema.is_mutable:
            return self.mutate(old, op)
        if op in PARTS:
            return self.parts(old, op)
        args, kwargs = self.now((old.args, old.kwargs))
        if is_view(old):
            return self.view(old, op, args, kwargs)
        new = self.node(op, args, kwargs, self.known(old, args, kwargs), old.name)
        return self.fresh(new, old.meta["val"]) if isinstance(new.meta["val"], Tensor) else Many(new, {})

    def known(self, old: fx.Node, args: Any, kwargs: Any) -> Any:
        """The recorded value, where every argument is still laid out as recorded; None where it has to be computed anew."""
        new: list[fx.Node] = []
        fx.map_arg((args, kwargs), new.append)
        before: list[fx.Node] = []
        fx.map_arg((old.args, old.kwargs), before.append)
        same = all(_same_layout(a.meta["val"], b.meta["val"]) for a, b in zip(new, before, strict=True))
        return old.meta["val"] if same else None

    def view(self, old: fx.Node, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> View:
        source = old.args[0]
        if not isinstance(source, fx.Node) or not isinstance(old.meta["val"], Tensor):
            raise self.unsupported(f"{op}, which gives several views", "view")
        parent, rest = self.view_of(source), tuple(args[1:])
        if op is aten.as_strided.default:
            parent, rest = self.root(parent, rest)
        recorded = self.known(old, args, kwargs) if parent is self.view_of(source) else None
        node = (
            self.node(op, (self.read(parent), *rest), kwargs, recorded, old.name) if recorded is not None else self.apply(op, self.read(parent), rest, kwargs)
        )
        return View(parent.base, node, parent.base.version, old.meta["val"], parent, op, rest, kwargs)

    def root(self, view: View, args: tuple[Any, ...]) -> tuple[View, tuple[Any, ...]]:
        """``as_strided`` sees through views to the memory: it is taken of the whole base, which has to be laid out as recorded."""
        size, stride, *offset = args
        start = offset[0] if offset and offset[0] is not None else view.like.storage_offset()
        while view.parent is not None:
            view = view.parent
        if view.base.version and (view.like.storage_offset() or not _same_layout(self.read(view).meta["val"], view.like)):
            raise self.unsupported("as_strided of memory that was written to and is laid out differently now", "as-strided-layout")
        return view, (size, stride, start)

    def parts(self, old: fx.Node, op: OpOverload) -> Many:
        """``split`` and ``unbind``: one view for each result, so that each can be made again alone."""
        parent = self.view_of(old.args[0])  # pyright: ignore[reportArgumentType]
        args, kwargs = self.now((old.args, old.kwargs))
        whole = self.node(op, args, kwargs, self.known(old, args, kwargs), old.name)
        views: dict[int, View] = {}
        for i, (single, rest) in enumerate(PARTS[op](parent.like, *args[1:], **kwargs)):
            val = whole.meta["val"][i]
            part = self.node(operator.getitem, (whole, i), {}, val, "getitem")
            views[i] = View(parent.base, part, parent.base.version, val, parent, single, rest)
        return Many(whole, views)

    # -- writing ----------------------------------------------------------------------------------------------------------

    def mutate(self, old: fx.Node, op: OpOverload) -> View | Many | None:
        """The functional twin of ``op``, its results written to the arguments they belong to."""
        arguments = bound(op, old.args, old.kwargs)
        written = written_names(op)
        fresh_returns = [i for i, r in enumerate(op._schema.returns) if r.alias_info is None]
        if op in FILLS:
            results: list[Any] = [FILLS[op](self.emit, self.view_of(old.args[0]).like, *self.now(old.args[1:]))]  # pyright: ignore[reportArgumentType]
        else:
            results = self.twin(op, arguments, written)
        for name, value in zip(written, results[len(fresh_returns) :], strict=True):
            self.store(arguments[name], value)
        self.decide("opened", "in-place")
        if len(op._schema.returns) == 1 and not fresh_returns:
            return self.env[arguments[written[0]]] if isinstance(arguments[written[0]], fx.Node) else None
        views = {i: self.fresh(n, n.meta["val"]) for i, n in zip(fresh_returns, results, strict=False)}
        for i, name in zip([i for i in range(len(op._schema.returns)) if i not in views], written, strict=False):
            views[i] = self.view_of(arguments[name])
        return views[0] if len(op._schema.returns) == 1 else Many(None, views)

    def twin(self, op: OpOverload, arguments: Mapping[str, Any], written: Sequence[str]) -> list[Any]:
        """Results of the functional twin: fresh ones first, then one for each written argument."""
        found = functional_twin(op)
        if found is None:
            raise self.unsupported(f"{op} writes to {', '.join(written)} and has no functional twin", "no-functional-twin")
        args, kwargs = call_of(found, arguments)
        new = self.node(found, self.now(args), self.now(kwargs), None)
        if len(found._schema.returns) == 1:
            return [new]
        return [self.node(operator.getitem, (new, i), {}, v, "getitem") for i, v in enumerate(new.meta["val"])]

    def store(self, target: Any, value: Any) -> None:
        """``target`` (a node of the old graph, or a list of them, or None) now has ``value``."""
        if isinstance(target, (list, tuple)):
            for i, t in enumerate(target):
                self.store(t, self.node(operator.getitem, (value, i), {}, value.meta["val"][i], "getitem"))
        elif target is not None:
            view = self.view_of(target)
            self.write(view, conform(self.emit, value, view.like))

    def write(self, view: View, value: fx.Node) -> None:
        if view.parent is None or view.op is None:
            view.base.value = value
            view.base.version += 1
        else:
            row = WRITE.get(view.op)
            if row is None:
                raise self.unsupported(f"a write through a view made by {view.op}", "write-through-view", "there is no rule that puts the value back")
            old = view.parent.node if view.op in COVERS else self.read(view.parent)
            scattered = row(self.emit, old, view.parent.like, view.args, value)
            if scattered is None:
                raise self.unsupported(f"a write through {view.op} of memory that it repeats or reinterprets", "write-through-view")
            self.decide("scattered", "scattered", into=scattered.name)
            self.write(view.parent, scattered)
        if view.parent is None or _same_layout(value.meta["val"], view.like):
            view.node, view.version = value, view.base.version

    # -- the end ----------------------------------------------------------------------------------------------------------

    def output(self, old: fx.Node) -> None:
        spec, taken = self.joint.spec, set[fx.Node]()
        returned = [None if a is None else self.read(self.view_of(a)) for a in self.joint.outputs]
        recorded = [None if a is None else self.view_of(a).like for a in self.joint.outputs]
        count = len(spec.mutations)
        for i, (node, like) in enumerate(zip(returned, recorded, strict=True)):
            if node is None or like is None:
                continue
            self.old = self.joint.outputs[i]
            root = base_of(node)
            if i < count:
                # the updates are copied back one after the other: none may still be read from an input that has been overwritten
                if root.op == "placeholder":
                    returned[i] = self.emit(aten.clone.default, node)
            elif i < spec.forward_outputs:
                returned[i] = self.own(node, like, root.op in ("placeholder", "get_attr") or root in taken)
                taken.add(root)
        self.old = old
        out = self.graph.output(tuple(returned))
        inherit(out, self.joint.stage, old)

    def own(self, node: fx.Node, like: Tensor, shared: bool) -> fx.Node:
        """An output: memory of its own, laid out as recorded."""
        if shared:
            self.decide("copied", "own-memory")
            node = self.emit(aten.clone.default, node)
        if not laid_out_alike(node.meta["val"], like) and not has_overlap(like):
            self.decide("copied", "layout")
            node = restride(self.emit, node, like)
        return node


def conform(emit: Callable[..., fx.Node], node: fx.Node, like: Tensor) -> fx.Node:
    """A functional result as an in-place operator would have stored it: of the written tensor's dtype and shape."""
    val = node.meta["val"]
    if val.dtype != like.dtype:
        node = emit(aten._to_copy.default, node, dtype=like.dtype)
    return node if val.shape == like.shape else emit(aten.expand.default, node, list(like.shape))


# -- fills: what a whole new value needs nothing of the old one for -----------------------------------------------------------


def _fill(emit: Callable[..., fx.Node], like: Tensor, value: Any) -> fx.Node:
    if isinstance(value, fx.Node):
        return emit(aten.expand.default, conform(emit, value, value.meta["val"].to(like.dtype)), list(like.shape))
    return emit(aten.full.default, list(like.shape), value, dtype=like.dtype, device=like.device, pin_memory=False)


def _zero(emit: Callable[..., fx.Node], like: Tensor) -> fx.Node:
    return _fill(emit, like, 0)


def _copy(emit: Callable[..., fx.Node], like: Tensor, source: fx.Node, non_blocking: bool = False) -> fx.Node:
    if source.meta["val"].device != like.device:
        return emit(aten._to_copy.default, source, dtype=like.dtype, device=like.device)
    return conform(emit, source, like)


FILLS: dict[OpOverload, Callable[..., fx.Node]] = {
    aten.fill_.Scalar: _fill,
    aten.fill_.Tensor: _fill,
    aten.zero_.default: _zero,
    aten.copy_.default: _copy,
}


def _same_layout(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and laid_out_alike(a, b)
    return not isinstance(a, Tensor) and not isinstance(b, Tensor)
