"""The joint graph cut in two: a forward, a backward, and the values that are kept from one to the other.

In: a ``JointGraph`` without mutating operators, and ``Options`` (``partitioner``, ``cost_model``). Out: a ``Partition``.
Always holds: forward then backward compute what the joint graph computes; what does not depend on a tangent and is part of
an output runs in the forward; random operators run once; views are not kept but made again from what they view; of an input
that the program overwrites a copy is kept, never the input; every node names its node of the joint graph as parent.

Two partitioners. "default" keeps whatever forward value the backward reads. "min_cut" asks a minimum cut which values to keep
so that everything else can be computed again: each node is split into NAME_in -> NAME_out with what keeping it costs, reading is
an edge of infinite capacity, a banned node (``bans.py``) hangs on the source and what the backward must compute on the sink.
Costs by name: "bytes" counts bytes, except of what is in memory anyway (inputs that the program does not overwrite, outputs); "torch"
is PyTorch's guess: bytes times 1.1 to the distance from the backward, doubled where nothing writes the value to memory anyway.

PyTorch's counterpart: ``torch/_functorch/partitioners.py``. Left out: activation checkpointing marks, memory budgets, symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR, Unsupported
from ..core.fx import GraphArtifact, format_arg, target_name
from ..core.options import Options
from ..core.provenance import inherit, own_location, stack_of
from ..core.schema import base_of, is_random, is_view, must_run, mutates, nbytes, op_name
from .bans import Split, ban, can_fuse, is_free, is_tensors
from .flow import SINK, SOURCE, solve
from .ir import INFINITE, FlowEdge, FlowNetwork, JointGraph, JointSpec


@dataclass(frozen=True, repr=False, eq=False)
class Partition(Artifact):
    """Forward and backward of a joint graph. ``saved`` names forward nodes, in the order the backward takes them."""

    joint: JointGraph
    forward: GraphArtifact
    backward: GraphArtifact | None
    saved: tuple[str, ...]
    spec: JointSpec
    network: FlowNetwork | None = None
    decisions: tuple[Decision, ...] = ()
    stage: str = "aot.partition"

    @property
    def saved_bytes(self) -> int:
        """Bytes of what is kept, inputs of the graph included."""
        values = {n.name: n.meta["val"] for n in self.forward.graph.nodes if n.name in self.saved}
        return sum(nbytes(values[name]) for name in self.saved)

    @property
    def recomputed(self) -> tuple[str, ...]:
        """Names of the nodes that run in the forward and again in the backward, in the backward's order."""
        return () if self.backward is None else tuple(n.name for n in self.backward.graph.nodes if n.meta.get("recomputed"))

    @property
    def tangents(self) -> tuple[torch.Tensor, ...]:
        """The example tangents the backward was made for: their shapes, strides and dtypes."""
        return () if self.backward is None else tuple(p.meta["val"] for p in self.backward.placeholders[len(self.saved) :])

    def text(self) -> str:
        values = {n.name: nbytes(n.meta["val"]) for n in self.forward.graph.nodes if "val" in n.meta}
        listed = lambda names: ", ".join(f"{n} ({values[n]} bytes)" for n in names) or "nothing"
        lines = ["forward:", *("  " + line for line in self.forward.text().split("\n"))]
        if self.backward is not None:
            lines += ["backward:", *("  " + line for line in self.backward.text().split("\n"))]
        return "\n".join([*lines, f"saved: {listed(self.saved)}", f"recomputed: {listed(self.recomputed)}"])

    def items(self) -> tuple[Item, ...]:
        return self.forward.items() + (self.backward.items() if self.backward is not None else ())

    def check(self) -> None:
        """Both graphs are well formed, keep the calling convention, and hold the joint graph's operators on its operands."""
        self.forward.check()
        names = {n.name for n in self.forward.graph.nodes}
        _require([p.name for p in self.forward.placeholders], [p.name for p in self.joint.placeholders[: self.spec.primals]], "forward inputs")
        if missing := [s for s in self.saved if s not in names]:
            raise InvalidIR(f"{self.stage}: saved value {missing[0]} is not computed in the forward")
        _require([getattr(o, "name", o) for o in self.forward.outputs[self.spec.forward_outputs :]], list(self.saved), "saved outputs")
        _same_operators(self.joint, self.forward)
        if self.backward is None:
            return
        self.backward.check()
        tangents = [p.name for p in self.joint.placeholders[self.spec.primals :]]
        _require([p.name for p in self.backward.placeholders], [*self.saved, *tangents], "backward inputs")
        _require(len(self.backward.outputs), self.spec.primals, "number of gradients")
        _same_operators(self.joint, self.backward)
        for node in self.backward.graph.nodes:
            if node.name in names and node.op == "call_function" and is_random(node):
                raise InvalidIR(f"{self.backward.id(node)} draws random numbers a second time", where=own_location(stack_of(node)))

    def run(self, *primals_and_tangents: Any) -> tuple[Any, ...]:
        """What the joint graph returns: (updates..., outputs..., gradients...), by running the forward, then the backward."""
        primals, tangents = primals_and_tangents[: self.spec.primals], primals_and_tangents[self.spec.primals :]
        results = tuple(self.forward.run(*primals))
        outputs, kept = results[: self.spec.forward_outputs], results[self.spec.forward_outputs :]
        if self.backward is None:
            return outputs + (None,) * (len(self.joint.outputs) - len(outputs))
        return outputs + tuple(self.backward.run(*kept, *tangents))


def _require(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise InvalidIR(f"aot.partition: {what} are {found}, not {expected}")


def _same_operators(joint: JointGraph, part: GraphArtifact) -> None:
    """Each operator of ``part`` is the joint graph's of that name, on operands of the same names; copies of inputs may be new."""
    known = {n.name: n for n in joint.graph.nodes}
    copies = {n.name: n.args[0].name for n in part.graph.nodes if n.meta.get("kept_copy") and isinstance(n.args[0], fx.Node)}
    copies |= {p.name: p.meta["copy_of"] for p in part.placeholders if "copy_of" in p.meta}
    for node in part.graph.nodes:
        if node.op in ("placeholder", "output") or node.name in copies:
            continue
        twin = known.get(node.name)
        if twin is None or (twin.op, target_name(twin)) != (node.op, target_name(node)):
            raise InvalidIR(f"{part.id(node)} is no node of {joint.stage}")
        rename: Callable[[fx.Node], Any] = lambda n: _Named(copies.get(n.name, n.name))
        plain: Callable[[fx.Node], Any] = lambda n: _Named(n.name)
        ours, theirs = fx.map_arg((node.args, node.kwargs), rename), fx.map_arg((twin.args, twin.kwargs), plain)
        if format_arg(ours) != format_arg(theirs):
            raise InvalidIR(f"{part.id(node)} reads {format_arg(ours)}, but in {joint.stage} it reads {format_arg(theirs)}")


class _Named(str):
    """A node's name where its node stood, printed bare."""

    def __repr__(self) -> str:
        return str(self)


# ---------------------------------------------------------------------------------------------- where nodes may stand


@dataclass(frozen=True)
class _Parts:
    """A joint graph taken apart; ``order`` gives each node its place in it."""

    joint: JointGraph
    nodes: tuple[fx.Node, ...]
    order: Mapping[fx.Node, int]
    primals: tuple[fx.Node, ...]
    outputs: tuple[Any, ...]  # updates, then outputs
    gradients: tuple[Any, ...]
    split: Split

    @property
    def roots(self) -> tuple[fx.Node, ...]:
        """The gradients that are nodes, each once."""
        return tuple(dict.fromkeys(g for g in self.gradients if isinstance(g, fx.Node)))

    @property
    def overwritten(self) -> frozenset[fx.Node]:
        """The inputs whose memory holds another value once the forward has ended."""
        return frozenset(self.primals[i] for i in self.joint.spec.mutations)

    @property
    def returned(self) -> frozenset[fx.Node]:
        """What the program's outputs are, or are views of: the forward writes it to memory whatever the backward wants."""
        return frozenset(base_of(o) for o in self.outputs[len(self.joint.spec.mutations) :] if isinstance(o, fx.Node))

    def sorted(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        return sorted(set(nodes), key=self.order.__getitem__)


def _ancestors(roots: Iterable[Any], stop: Callable[[fx.Node], bool] = lambda n: False) -> set[fx.Node]:
    """``roots`` and everything they are computed from; a node for which ``stop`` holds is in, what it reads is not."""
    found = {r for r in roots if isinstance(r, fx.Node)}
    front = list(found)
    while front:
        node = front.pop()
        if not stop(node):
            new = [i for i in node.all_input_nodes if i not in found]
            found.update(new)
            front += new
    return found


def _take_apart(joint: JointGraph) -> _Parts:
    nodes, spec = tuple(joint.graph.nodes), joint.spec
    for node in nodes:
        if mutates(node):
            raise InvalidIR(f"{joint.id(node)} writes into its argument", where=own_location(stack_of(node)), hint="call functionalize(joint) before partition")
    placeholders = joint.placeholders
    if len(placeholders) != spec.primals + len(spec.tangents):
        raise InvalidIR(f"{joint.stage} takes {len(placeholders)} inputs, its spec says {spec.primals} primals and {len(spec.tangents)} tangents")
    outputs, gradients = joint.outputs[: spec.forward_outputs], joint.outputs[spec.forward_outputs :]
    if len(gradients) not in (0, spec.primals) or len(outputs) != spec.forward_outputs:
        expected = f"{spec.forward_outputs} and a gradient for each of {spec.primals} primals"
        raise InvalidIR(f"{joint.stage} returns {len(joint.outputs)} values, its spec says {expected}")
    tangents = set(placeholders[spec.primals :])
    for node in nodes:
        if any(i in tangents for i in node.all_input_nodes):
            tangents.add(node)
    tangents.discard(joint.graph.output_node())
    forward = _forward_set(joint, nodes, placeholders[: spec.primals], outputs, tangents)
    if wrong := next((n for n in nodes if n in forward and n in tangents), None):
        raise InvalidIR(f"{joint.id(wrong)} is part of an output but depends on a tangent")
    order = {n: i for i, n in enumerate(nodes)}
    return _Parts(joint, nodes, order, placeholders[: spec.primals], outputs, gradients, Split(joint.stage, forward, tangents))


def _forward_set(joint: JointGraph, nodes: Sequence[fx.Node], primals: Iterable[fx.Node], outputs: Iterable[Any], tangents: set[fx.Node]) -> set[fx.Node]:
    """What must run in the forward: inputs, what outputs are made of, and every effect that came before the backward began."""
    began = next((i for i, n in enumerate(nodes) if n in tangents and n.op == "call_function"), len(nodes))
    effects = [n for n in nodes[:began] if must_run(n) and n not in tangents]
    forward = {*primals, *_ancestors([*outputs, *effects])}
    for node in nodes:  # the other results of an operator of several results come with it
        if op_name(node) == "getitem" and node.args[0] in forward:
            forward.add(node)
    return forward


def _saveable(node: fx.Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor) and not is_free(node)


# --------------------------------------------------------------------------------------------------- which values to keep


def _read_by_backward(parts: _Parts) -> set[fx.Node]:
    """ "default": the forward values at which a walk back from the gradients stops."""
    stop: Callable[[fx.Node], bool] = lambda n: n in parts.split.forward and _saveable(n)
    return {n for n in _ancestors(parts.roots, stop) if stop(n)}


def _bytes_cost(parts: _Parts) -> Callable[[fx.Node], float]:
    free = (frozenset(parts.primals) - parts.overwritten) | parts.returned
    return lambda node: 0.0 if node in free else float(nbytes(node.meta["val"]))


def _torch_cost(parts: _Parts) -> Callable[[fx.Node], float]:
    distance: dict[fx.Node, int] = {}
    for node in reversed(parts.nodes):
        if node not in parts.split.forward:
            distance[node] = 0
        else:
            distance[node] = min((distance[u] + 1 for u in node.users if u.op != "output"), default=100)

    def cost(node: fx.Node) -> float:
        size = int(nbytes(node.meta["val"]) * 1.1 ** max(min(distance[node], 100), 1))
        materialized = node.op == "placeholder" or not all(can_fuse(node, u) for u in node.users if u.op != "output")
        return float(size if materialized else 2 * size)

    return cost


DEFAULTS = Options()
COST_MODELS: dict[str, Callable[[_Parts], Callable[[fx.Node], float]]] = {"bytes": _bytes_cost, "torch": _torch_cost}


def build_network(parts: _Parts, cost_model: str) -> tuple[FlowNetwork, dict[fx.Node, Decision]]:
    """The min-cut problem over what the backward could be computed from, and the bans that went into it."""
    cost, split = COST_MODELS[cost_model](parts), parts.split
    edges: list[FlowEdge] = []
    bans: dict[fx.Node, Decision] = {}
    wanted = parts.sorted(_ancestors(parts.roots))
    inside = set(wanted)
    for node in wanted:
        if node in split.tangents:
            edges.append(FlowEdge(f"{node.name}_in", SINK, INFINITE))
            continue
        if node in parts.roots:  # a gradient that no tangent reaches must be at hand in the backward
            edges.append(FlowEdge(f"{node.name}_out", SINK, INFINITE))
        if (banned := ban(node, split)) is not None:
            bans[node] = banned
        if node.op == "placeholder" or banned is not None:
            edges.append(FlowEdge(SOURCE, f"{node.name}_in", INFINITE))
        edges.append(FlowEdge(f"{node.name}_in", f"{node.name}_out", cost(node) if _saveable(node) else INFINITE))
        edges += [FlowEdge(f"{node.name}_out", f"{user.name}_in", INFINITE) for user in node.users if user in inside]
    facts = {"cost_model": cost_model, "bytes": {n.name: nbytes(n.meta["val"]) for n in wanted}, "bans": {n.name: d.reason for n, d in bans.items()}}
    return FlowNetwork(tuple(edges), None, facts), bans


def _min_cut(parts: _Parts, options: Options) -> tuple[set[fx.Node], FlowNetwork, dict[fx.Node, Decision]]:
    network, bans = build_network(parts, options.cost_model)
    solution = solve(network)
    crossed = {e.source.removesuffix("_in") for e in solution.cut}
    return {n for n in parts.nodes if n.name in crossed}, replace(network, solution=solution), bans


# --------------------------------------------------------------------------------------------------------- the two graphs


class _Emitter:
    """Builds one of the two graphs out of nodes of the joint graph; names are the joint graph's."""

    def __init__(self, joint: JointGraph, stage: str) -> None:
        self.joint, self.stage, self.graph = joint, stage, fx.Graph()
        self.of: dict[fx.Node, fx.Node] = {}

    def _like(self, new: fx.Node, node: fx.Node, name: str) -> fx.Node:
        new.name = name
        new.meta = dict(node.meta)
        return inherit(new, self.joint.stage, node)

    def placeholder(self, node: fx.Node, name: str) -> None:
        self.of[node] = self._like(self.graph.placeholder(name), node, name)
        if name != node.name:
            self.of[node].meta["copy_of"] = node.name

    def copy(self, node: fx.Node) -> fx.Node:
        self.of[node] = self._like(self.graph.node_copy(node, self.of.__getitem__), node, node.name)
        return self.of[node]

    def clone(self, node: fx.Node, name: str) -> fx.Node:
        """A copy of ``node``'s value in memory of its own."""
        new = self._like(self.graph.call_function(torch.ops.aten.clone.default, (self.of[node],)), node, name)
        new.meta["kept_copy"] = True
        with torch.no_grad():
            new.meta["val"] = torch.ops.aten.clone.default(node.meta["val"])
        return new

    def finish(self, outputs: Iterable[Any], decisions: tuple[Decision, ...] = ()) -> GraphArtifact:
        out = self.graph.output(tuple(outputs))
        inherit(out, self.joint.stage, self.joint.graph.output_node())
        return GraphArtifact(fx.GraphModule(self.joint.module, self.graph), self.stage, decisions)


def _copy_name(parts: _Parts, node: fx.Node, suffix: str) -> str:
    taken = {n.name for n in parts.nodes}
    name = f"{node.name}_{suffix}"
    while name in taken:
        name += "_"
    return name


def _emit_forward(parts: _Parts, saved: Sequence[fx.Node]) -> tuple[GraphArtifact, tuple[str, ...]]:
    """The forward graph and the names of the saved values in it (a saved input that is overwritten goes by its copy's name)."""
    emit, overwritten = _Emitter(parts.joint, "aot.forward"), parts.overwritten
    for primal in parts.primals:
        emit.placeholder(primal, primal.name)
    kept: dict[fx.Node, fx.Node] = {p: emit.clone(p, _copy_name(parts, p, "read")) for p in saved if p in overwritten}
    needed = _ancestors([*parts.outputs, *saved, *(n for n in parts.split.forward if must_run(n))])
    for node in parts.nodes:
        if node in needed and node.op != "placeholder":
            emit.copy(node)
    outputs: list[Any] = []
    for place, out in enumerate(parts.outputs):
        home = parts.primals[parts.joint.spec.mutations[place]] if place < len(parts.joint.spec.mutations) else None
        if isinstance(out, fx.Node) and base_of(out) in overwritten and out is not home:  # writing back must not change what is still to be read
            copied = emit.clone(out, _copy_name(parts, out, f"out_{place}"))
            outputs.append(copied)
        else:
            outputs.append(emit.of[out] if isinstance(out, fx.Node) else out)
    names = tuple(kept[n].name if n in kept else n.name for n in saved)
    return emit.finish([*outputs, *(kept.get(n) or emit.of[n] for n in saved)]), names


def _emit_backward(parts: _Parts, saved: Sequence[fx.Node], names: Sequence[str]) -> GraphArtifact:
    """The backward graph; what is computed again stands just before its first reader, so that it does not live long."""
    emit = _Emitter(parts.joint, "aot.backward")
    for node, name in zip(saved, names, strict=True):
        emit.placeholder(node, name)
    for tangent in parts.joint.placeholders[len(parts.primals) :]:
        emit.placeholder(tangent, tangent.name)
    done: Callable[[fx.Node], bool] = lambda n: n in emit.of
    needed = _ancestors(parts.roots, done)
    readers = [n for n in parts.nodes if n in needed and n in parts.split.tangents]
    for node in [*readers, *parts.roots]:
        for again in parts.sorted(n for n in _ancestors([node], done) if not done(n)):
            if again.op == "placeholder":
                raise InvalidIR(f"{parts.joint.id(again)} is read by the backward but was not saved")
            new = emit.copy(again)
            if again in parts.split.forward and again.op == "call_function":
                new.meta["recomputed"] = True
    return emit.finish(emit.of[g] if isinstance(g, fx.Node) else g for g in parts.gradients)


def _explain(parts: _Parts, saved: Sequence[fx.Node], again: Iterable[fx.Node], bans: Mapping[fx.Node, Decision], cheapest: bool) -> tuple[Decision, ...]:
    def why_saved(node: fx.Node) -> str:
        if node.op == "placeholder":
            return "mutated_input" if node in parts.overwritten else "input"
        producer = node.args[0] if op_name(node) == "getitem" and node.args[0] in bans else node
        if isinstance(producer, fx.Node) and producer in bans:
            return bans[producer].reason
        return "output" if node in parts.returned else "cut" if cheapest else "read"

    def why_again(node: fx.Node) -> str:
        return "view" if is_view(node) else "constant" if is_free(node) else "cheaper"

    told = lambda n, outcome, why: Decision("save", (parts.joint.id(n),), outcome, why, {"bytes": nbytes(n.meta["val"])})
    return (*bans.values(), *(told(n, "saved", why_saved(n)) for n in saved), *(told(n, "recomputed", why_again(n)) for n in again))


def partition(joint: JointGraph, options: Options = DEFAULTS) -> Partition:
    """Cut ``joint`` in two. A joint graph without tangents has no backward; its forward saves nothing.

    Raises ``InvalidIR`` where the graph still mutates (functionalize it first) or does not keep its spec, and ``Unsupported``
    where the backward reads a Python number that the forward computes from a tensor's values.
    """
    parts = _take_apart(joint)
    if not joint.spec.tangents:
        forward, _ = _emit_forward(parts, ())
        return Partition(joint, forward, None, (), joint.spec)
    for node in parts.sorted(_ancestors(parts.roots) & parts.split.forward):
        if not is_tensors(node.meta["val"]):
            raise Unsupported(f"{joint.id(node)} is a number that the backward reads", reason="saved_number", where=own_location(stack_of(node)))
    network, bans = None, dict[fx.Node, Decision]()
    if options.partitioner == "min_cut":
        chosen, network, bans = _min_cut(parts, options)
    else:
        chosen = _read_by_backward(parts)
    reached = _ancestors(parts.roots, lambda n: n in chosen)  # of what the cut crosses, what the backward truly reads
    saved = parts.sorted(reached & chosen)
    forward, names = _emit_forward(parts, saved)
    backward = _emit_backward(parts, saved, names)
    again = {n.name for n in backward.graph.nodes if n.meta.get("recomputed")}
    decisions = _explain(parts, saved, [n for n in parts.nodes if n.name in again], bans, options.partitioner == "min_cut")
    return Partition(joint, forward, backward, names, joint.spec, network, decisions)
