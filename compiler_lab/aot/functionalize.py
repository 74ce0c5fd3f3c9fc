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
from itertools import count
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..core.artifact import Decision
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import inherit, own_location, stack_of
from ..core.schema import base_of, bound, is_number, is_view, written_names
from ..core.sizes import composed, decided, same
from ..core.strides import is_dense
from .fills import FILLS, conform
from .ir import JointGraph
from .numbers import Numbers
from .overlap import in_step, overlapping
from .schemas import call_of, functional_twin
from .tracer import has_overlap, laid_out_alike, restride, storage_length
from .twins import copying_twin
from .view_rows import COVERS, PARTS, PLACED, WRITE, viewable

aten = torch.ops.aten

REASONS = {
    "in-place": "the operator writes to its argument: its functional twin gives a new value instead",
    "copied-arguments": "the operator writes and has no functional form: it is run on copies of what it writes, which are the new values",
    "scattered": "the write goes through a view: the new value is put back into what it is a view of",
    "replayed": "what this is a view of has been written to since: the view is made again from the new value",
    "placed": "a view of memory rather than of values: what it is taken of is copied into the layout that it had",
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
        self.taken = {n.name for n in joint.graph.nodes}
        self.suffixes: dict[str, count[int]] = {}
        self.numbers = Numbers(lambda target, args, val: self.node(target, args, {}, val))
        self.fake_mode = next((v.fake_mode for n in joint.graph.nodes if hasattr(v := n.meta.get("val"), "fake_mode")), nullcontext())

    def run(self) -> JointGraph:
        for node in self.joint.graph.nodes:
            self.old = node
            if node.op == "output":
                self.output(node)
            elif node.op in ("placeholder", "get_attr"):
                new = self.stamp(self.graph.create_node(node.op, node.target, name=node.name), node.meta["val"])
                if not is_number(node):
                    self.env[node] = self.fresh(new, node.meta["val"])
                    self.numbers.offer(node.meta["val"], new)
                else:
                    self.numbers.bind(node.meta["val"], new)
            elif is_number(node):
                self.number(node)
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
        """Numbers among the arguments are given as they are, and become nodes."""
        if val is None:
            fake_args, fake_kwargs = fx.map_arg((tuple(args), dict(kwargs)), lambda n: n.meta["val"])
            with self.fake_mode, composed(self.joint.spec.symbolic):
                val = self.computed(op, fake_args, fake_kwargs)
        lowered, named = (tuple(args), dict(kwargs)) if not self.joint.spec.symbolic else self.lowered((tuple(args), dict(kwargs)))
        stem = getattr(op, "_opname", None) or op.__name__
        return self.stamp(self.graph.create_node("call_function", op, lowered, named, name=name or self.name(stem)), val)

    def computed(self, op: Any, args: Any, kwargs: Any) -> Any:
        """``op`` on fake tensors; those of this graph know no data, which those of the trace may have done (of a constant of one element)."""
        from torch._subclasses.fake_tensor import DynamicOutputShapeException

        try:
            return op(*args, **kwargs)
        except DynamicOutputShapeException as error:
            raise self.unsupported(f"{op} gives a size that depends on the data", "trace-failed") from error

    def lowered(self, a: Any) -> Any:
        if isinstance(a, (tuple, list)):
            return (list if isinstance(a, list) else tuple)(map(self.lowered, a))
        return {k: self.lowered(v) for k, v in a.items()} if isinstance(a, dict) else self.numbers.node(a)

    def name(self, stem: str) -> str:
        """A name that no node of the graph that came in has: what is untouched keeps its own."""
        name = next(n for i in self.suffixes.setdefault(stem, count()) if (n := f"{stem}_{i}" if i else stem) not in self.taken)
        self.taken.add(name)
        return name

    def decide(self, outcome: str, reason: str, **facts: Any) -> None:
        self.decisions.append(Decision("functionalize", (self.joint.id(self.old),), outcome, reason, facts))

    def unsupported(self, what: str, reason: str, why: str = "") -> Unsupported:
        return Unsupported(what, reason=reason, where=own_location(stack_of(self.old)), why=why)

    def number(self, old: fx.Node) -> None:
        """It is the same whatever has been written since; unless arithmetic has given it already, it is computed as before."""
        args, kwargs = self.now((old.args, old.kwargs))
        self.numbers.bind(old.meta["val"], self.node(old.target, args, kwargs, old.meta["val"], old.name))

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
                view.node = self.made(view.op, view.parent, view.args, view.kwargs or {})
                self.decide("replayed", "replayed", view=view.node.name)
            view.version = view.base.version
        return view.node

    def made(self, op: OpOverload, source: View, args: Sequence[Any], kwargs: Mapping[str, Any], recorded: Any = None, name: str = "") -> fx.Node:
        """``op`` of the present value of ``source``, which may be laid out differently now from when the program took the view."""
        parent = self.placed(source, op) if op in PLACED else self.read(source)
        if op is aten.as_strided.default:
            size, stride, offset = args
            if source.base.version:
                self.within(source, op, size, stride, offset)
            args = (size, stride, offset + parent.meta["val"].storage_offset())
        elif recorded is None and op in (aten.view.default, aten._unsafe_view.default) and not viewable(parent.meta["val"], args[0]):
            parent = self.emit(aten.clone.default, parent, memory_format=torch.contiguous_format)
        return self.node(op, (parent, *args), kwargs, recorded, name)

    def placed(self, view: View, op: OpOverload) -> fx.Node:
        """The value of ``view``, laid out as in the trace."""
        node, like = self.read(view), view.like
        val = node.meta["val"]
        if _same_layout(val, like) and val.storage_offset() in (0, 0 if view.base.version else like.storage_offset()):
            return node
        if has_overlap(like):
            raise self.unsupported(f"{op} of memory that was written to and is laid out differently now", "as-strided-layout")
        self.decide("copied", "placed")
        return restride(self.emit, node, like)

    def within(self, view: View, op: OpOverload, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
        """Raises ``Unsupported`` where ``as_strided`` reaches past the elements of ``view``, into memory that no value here stands for."""
        reach = storage_length(torch.empty_strided(tuple(size), tuple(stride), device="meta"))
        if offset < 0 or offset + reach > view.like.numel() or not is_dense(view.like.shape, view.like.stride()):
            raise self.unsupported(f"{op} of memory that was written to, past the elements of what it is taken of", "as-strided-layout")

    def now(self, old: Any) -> Any:
        """Arguments of the old graph as arguments of the new one, read now; numbers as they are."""
        return fx.map_arg(old, lambda n: n.meta["val"] if is_number(n) else self.read(self.view_of(n)))

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
        tensors = [n for n in before if not is_number(n)]
        return old.meta["val"] if all(_same_place(a.meta["val"], b.meta["val"]) for a, b in zip(new, tensors, strict=True)) else None

    def view(self, old: fx.Node, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> View:
        source = old.args[0]
        if not isinstance(source, fx.Node) or not isinstance(old.meta["val"], Tensor):
            raise self.unsupported(f"{op}, which gives several views", "view")
        parent, rest, recorded = self.view_of(source), tuple(args[1:]), self.known(old, args, kwargs)
        if op is aten.as_strided.default:
            return self.strided(old, parent, *rest)
        node = self.made(op, parent, rest, kwargs, recorded, old.name)
        return View(parent.base, node, parent.base.version, old.meta["val"], parent, op, rest, kwargs)

    def strided(self, old: fx.Node, source: View, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> View:
        """``as_strided`` sees through views to the memory: it is taken of the whole of what has this dtype, its offset counted from there."""
        root, start = source, source.like.storage_offset() if offset is None else offset
        while root.parent is not None and root.parent.like.dtype == source.like.dtype:
            root = root.parent
        args = (size, stride, start - root.like.storage_offset())
        if offset is None and not root.base.version and _same_layout(source.node.meta["val"], source.like):
            # no offset is written down: inputs of later calls may begin elsewhere in their memory
            node = self.node(aten.as_strided.default, (source.node, size, stride), {}, old.meta["val"], old.name)
        else:
            node = self.made(aten.as_strided.default, root, args, {}, None, old.name)
        return View(root.base, node, root.base.version, old.meta["val"], root, aten.as_strided.default, args, {})

    def parts(self, old: fx.Node, op: OpOverload) -> Many:
        """``split`` and ``unbind``: one view for each result, so that each can be made again alone."""
        parent = self.view_of(old.args[0])  # pyright: ignore[reportArgumentType]
        args, kwargs = self.now((old.args, old.kwargs))
        whole = self.node(op, args, kwargs, self.known(old, args, kwargs), old.name)
        views: dict[int, View] = {}
        for i, (single, rest) in enumerate(PARTS[op](parent.like, *args[1:], **kwargs)):
            val = whole.meta["val"][i]
            part = self.node(operator.getitem, (whole, i), {}, val, self.name("getitem"))
            views[i] = View(parent.base, part, parent.base.version, val, parent, single, rest)
        return Many(whole, views)

    # -- writing ----------------------------------------------------------------------------------------------------------

    def mutate(self, old: fx.Node, op: OpOverload) -> View | Many | None:
        """The functional twin of ``op``, its results written to the arguments they belong to."""
        arguments, written, returns = bound(op, old.args, old.kwargs), written_names(op), op._schema.returns
        fresh = [i for i, r in enumerate(returns) if r.alias_info is None]
        self.apart(op, arguments, written)
        if op in FILLS:
            results: list[Any] = [FILLS[op](self.emit, self.view_of(old.args[0]).like, *self.now(old.args[1:]))]  # pyright: ignore[reportArgumentType]
        else:
            results = self.twin(op, arguments, written)
        recorded = old.meta["val"] if len(returns) != 1 else (old.meta["val"],)
        again = dict(zip(written, [v for v, r in zip(recorded or (), returns, strict=True) if r.alias_info is not None], strict=False))
        for name, value in zip(written, results[len(fresh) :], strict=True):
            self.resize(arguments[name], again.get(name))
            self.store(arguments[name], value)
        self.decide("opened", "in-place")
        views = {i: self.fresh(n, n.meta["val"]) for i, n in zip(fresh, results, strict=False)}
        for i, name in zip([i for i in range(len(returns)) if i not in views], written, strict=False):
            views[i] = self.view_of(arguments[name])
        return (views[0] if len(returns) == 1 else Many(None, views)) if returns else None

    def resize(self, target: Any, after: Any) -> None:
        """``out`` without elements gets memory of the result's size."""
        if isinstance(target, fx.Node) and isinstance(after, Tensor) and not same(after.shape, (view := self.view_of(target)).like.shape):
            if decided(view.like.numel() != 0):
                raise self.unsupported(f"{self.old.target} changes the size of a tensor that has elements", "storage-change")
            self.env[target] = self.fresh(view.node, after)

    def twin(self, op: OpOverload, arguments: Mapping[str, Any], written: Sequence[str]) -> list[Any]:
        """Results of the functional twin: fresh ones first, then one for each written argument."""
        found = functional_twin(op)
        if found is None:
            if any(arguments[name] is None for name in written):
                raise self.unsupported(f"{op} may write to nothing", "no-functional-twin")
            found = copying_twin(op)
            self.decide("wrapped", "copied-arguments", twin=str(found))
        like = self.view_of(arguments[written[0]]).like if isinstance(arguments[written[0]], fx.Node) else None
        if like is not None and arguments.get("dtype", like) is None:
            arguments = {**arguments, "dtype": like.dtype}  # eager computes in the dtype of ``out`` where the call names none
        args, kwargs = call_of(found, arguments)
        told = [a.name for a in found._schema.arguments if a.name not in arguments]
        if told:  # a factory
            assert like is not None
            kwargs = {**kwargs, **{k: v for k, v in (("dtype", like.dtype), ("device", like.device), ("pin_memory", False)) if k in told}}
        new = self.node(found, self.now(args), self.now(kwargs), None)
        if len(found._schema.returns) == 1:
            if like is not None and new.meta["val"].dtype != like.dtype and not converts(op):
                raise self.unsupported(f"{op} into another dtype than its result's", "out-dtype", "eager computes some operators in the dtype of out")
            return [new]
        return [self.node(operator.getitem, (new, i), {}, v, self.name("getitem")) for i, v in enumerate(new.meta["val"])]

    def apart(self, op: OpOverload, arguments: Mapping[str, Any], written: Sequence[str]) -> None:
        """Raises ``Unsupported`` where what is written shares elements with another argument: the values that a functional form is given do not."""
        found: list[tuple[str, int, View]] = []
        for name, value in arguments.items():
            nodes: list[fx.Node] = []
            fx.map_arg(value, nodes.append)
            found += [(name, i, self.view_of(n)) for i, n in enumerate(nodes) if not is_number(n)]
        for name, i, target in found if len(found) > 1 else ():
            for other, j, view in found if name in written else ():
                if view.base is not target.base or (name, i) == (other, j) or not overlapping(target.like, view.like):
                    continue
                if other in written or not in_step(op, target.like, view.like, other, (i, j)):
                    raise self.unsupported(f"{op} writes to {name}, which shares elements with another of its arguments", "aliased-arguments")

    def store(self, target: Any, value: Any) -> None:
        """``target`` (a node of the old graph, or a list of them, or None) now has ``value``."""
        if isinstance(target, (list, tuple)):
            for i, t in enumerate(target):
                self.store(t, self.node(operator.getitem, (value, i), {}, value.meta["val"][i], self.name("getitem")))
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
            if view.op is aten.as_strided.default:
                self.within(view.parent, view.op, *view.args)
                old = self.placed(view.parent, view.op)
            else:
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
        is_tensor: Callable[[Any], bool] = lambda a: isinstance(a, fx.Node) and not is_number(a)
        returned = [self.read(self.view_of(a)) if is_tensor(a) else self.lowered(self.now(a)) for a in self.joint.outputs]
        recorded = [self.view_of(a).like if is_tensor(a) else None for a in self.joint.outputs]
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


def converts(op: OpOverload) -> bool:
    """Whether an operator computes in a dtype of its own and converts the result to that of ``out``, or of what it writes in place."""
    return torch.Tag.pointwise in op.tags or op is aten.cat.out or not any(a.is_out for a in op._schema.arguments)


def _same_layout(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and laid_out_alike(a, b)
    return not isinstance(a, Tensor) and not isinstance(b, Tensor)


def _same_place(a: Any, b: Any) -> bool:
    return _same_layout(a, b) and (not isinstance(a, Tensor) or same(a.storage_offset(), b.storage_offset()))
