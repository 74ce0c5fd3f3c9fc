"""A joint graph taken apart: which of its nodes must run in the forward, which depend on a tangent, which are inputs and outputs.

In: a ``JointGraph`` without mutating operators. Out: ``Parts``, which every part of the partitioner reads and none changes.
Always holds: what an output is made of and every effect before the backward began are in ``split.forward``; no node is both there and
behind a tangent; a node in neither may run on either side, and runs in the backward alone.
PyTorch's counterpart: ``classify_nodes`` in ``torch/_functorch/partitioners.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..core.errors import InvalidIR
from ..core.provenance import own_location, stack_of
from ..core.schema import base_of, is_number, must_run, mutates, op_name
from .bans import Split, is_free
from .ir import JointGraph


@dataclass(frozen=True)
class Parts:
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
        return frozenset(self.primals[i] for i in self.joint.spec.overwritten)

    @property
    def returned(self) -> frozenset[fx.Node]:
        """What the program's outputs are, or are views of: the forward writes it to memory whatever the backward wants."""
        return frozenset(base_of(o) for o in self.outputs[len(self.joint.spec.mutations) :] if isinstance(o, fx.Node))

    def sorted(self, nodes: Iterable[fx.Node]) -> list[fx.Node]:
        return sorted(set(nodes), key=self.order.__getitem__)


def ancestors(roots: Iterable[Any], stop: Callable[[fx.Node], bool] = lambda n: False) -> set[fx.Node]:
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


def take_apart(joint: JointGraph) -> Parts:
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
    return Parts(joint, nodes, order, placeholders[: spec.primals], outputs, gradients, Split(joint.stage, forward, tangents))


def _forward_set(joint: JointGraph, nodes: Sequence[fx.Node], primals: Iterable[fx.Node], outputs: Iterable[Any], tangents: set[fx.Node]) -> set[fx.Node]:
    """What must run in the forward: inputs, what outputs are made of, and every effect that came before the backward began."""
    began = next((i for i, n in enumerate(nodes) if n in tangents and n.op == "call_function"), len(nodes))
    effects = [n for n in nodes[:began] if must_run(n) and n not in tangents]
    forward = {*primals, *ancestors([*outputs, *effects])}
    numbers = [n for n in nodes if is_number(n) and n not in tangents]  # kept as they are, rather than the tensors that they are read from
    forward |= ancestors(numbers)
    for node in nodes:  # the other results of an operator of several results come with it
        if op_name(node) == "getitem" and node.args[0] in forward:
            forward.add(node)
    return forward


def saveable(node: fx.Node) -> bool:
    return is_number(node) or (isinstance(node.meta["val"], torch.Tensor) and not is_free(node))
