"""The two graphs of a partition, built out of the nodes of the joint graph.

In: ``Parts`` and the values to keep. Out: the forward and the backward as ``GraphArtifact``s. Always holds: names are the joint graph's,
and every node has the node that it copies as parent; of an input that the program overwrites a copy is kept, never the input; what the
forward computes for the backward alone stands just after what it reads, and what is computed again just before its first reader, so that
neither makes anything live long.
PyTorch's counterpart: ``_extract_fwd_bwd_modules`` in ``torch/_functorch/partitioners.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..core.artifact import Decision
from ..core.errors import InvalidIR
from ..core.fx import GraphArtifact
from ..core.provenance import inherit
from ..core.schema import base_of, must_run
from .ir import JointGraph
from .parts import Parts, ancestors


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


def _copy_name(parts: Parts, node: fx.Node, suffix: str) -> str:
    taken = {n.name for n in parts.nodes}
    name = f"{node.name}_{suffix}"
    while name in taken:
        name += "_"
    return name


def emit_forward(parts: Parts, saved: Sequence[fx.Node]) -> tuple[GraphArtifact, tuple[str, ...]]:
    """The forward graph and the names of the saved values in it (a saved input that is overwritten goes by its copy's name)."""
    emit, overwritten = _Emitter(parts.joint, "aot.forward"), parts.overwritten
    for primal in parts.primals:
        emit.placeholder(primal, primal.name)
    kept: dict[fx.Node, fx.Node] = {p: emit.clone(p, _copy_name(parts, p, "read")) for p in saved if p in overwritten}
    needed = ancestors([*parts.outputs, *saved, *(n for n in parts.split.forward if must_run(n))])
    for node in _soon(parts, needed):
        if node.op != "placeholder":
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


def _soon(parts: Parts, needed: set[fx.Node]) -> list[fx.Node]:
    """``needed`` in the joint graph's order, but what no output and no effect is made of just after the last value that it reads.

    In the joint graph a derivative that depends on no tangent (gelu's, of its input) stands behind the whole forward, and what it reads would
    live that long. Constants that only such values read go with the first of them.
    """
    program = ancestors([*parts.outputs, *(n for n in needed if must_run(n))])
    place = {n: parts.order[n] for n in needed}
    late = [n for n in parts.nodes if n in needed and n not in program and n.op == "call_function"]
    constants = dict[fx.Node, None]()
    for node in late:
        if reads := [place[i] for i in node.all_input_nodes if i not in constants]:
            place[node] = max(reads)
        else:
            constants[node] = None
    for node in reversed(constants):
        place[node] = min((place[u] for u in node.users if u in needed), default=place[node])
    return sorted(needed, key=lambda n: (place[n], parts.order[n]))


def emit_backward(parts: Parts, saved: Sequence[fx.Node], names: Sequence[str]) -> GraphArtifact:
    """The backward graph; what is computed again stands just before its first reader, so that it does not live long."""
    emit = _Emitter(parts.joint, "aot.backward")
    for node, name in zip(saved, names, strict=True):
        emit.placeholder(node, name)
    for tangent in parts.joint.placeholders[len(parts.primals) :]:
        emit.placeholder(tangent, tangent.name)
    done: Callable[[fx.Node], bool] = lambda n: n in emit.of
    needed = ancestors(parts.roots, done)
    readers = [n for n in parts.nodes if n in needed and n in parts.split.tangents]
    for node in [*readers, *parts.roots]:
        for again in parts.sorted(n for n in ancestors([node], done) if not done(n)):
            if again.op == "placeholder":
                raise InvalidIR(f"{parts.joint.id(again)} is read by the backward but was not saved")
            new = emit.copy(again)
            if again in parts.split.forward and again.op == "call_function":
                new.meta["recomputed"] = True
    return emit.finish(emit.of[g] if isinstance(g, fx.Node) else g for g in parts.gradients)
