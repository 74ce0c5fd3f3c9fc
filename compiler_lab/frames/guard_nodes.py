"""Guards as nodes and relations, and their reading in words: the values that guards look at, what holds between them, what fails first.

In: a tree of ``Node``s with their leaves, ``Relation``s over several of them, and the locals of a call. Out: the first ``Failure``.
Always holds: nothing here calls the C++ tree; what it says is what ``guards.GuardTree`` has installed there.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``get_guard_fail_reason``), by evaluating the text of the guards.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from ..core.memory import are_kin
from ..core.provenance import Stack
from .failure import Failure
from .guard_table import RELATIONS, Leaf, tensor_differences
from .shape_guards import holds, numbers_text

Access = tuple[tuple[str, Any], ...]  # (C++ accessor, its key), from the parent on


class Node:
    """A value that guards look at. ``text`` is its path, ``label`` the last step of it; ``read`` takes the parent's value, ``access`` is how C++ does."""

    def __init__(self, text: str, label: str, read: Callable[[Any], Any], manager: Any, parent: Node | None, access: Access = ()) -> None:
        self.text, self.label, self.read, self.manager, self.parent = text, label, read, manager, parent
        self.access = access
        self.leaves: list[Leaf] = []
        self.namespace: Any = None  # the manager of the instance's __dict__
        self.children: dict[Any, Node] = {}

    def value(self, locals: Any) -> Any:
        """This node's value for a call; raises what its reading raises."""
        return locals if self.parent is None else self.read(self.parent.value(locals))


@dataclass(frozen=True, eq=False)
class Relation:
    """A guard over several nodes (or none): ``nodes`` and ``facts`` are what ``RELATIONS`` rows compare."""

    kind: str
    nodes: tuple[Node, ...]
    facts: Any
    text: str
    stack: Stack


def nodes_of(node: Node) -> list[Node]:
    return [node, *(n for child in node.children.values() for n in nodes_of(child))]


def first_failure(node: Node, value: Any) -> Failure | None:
    for leaf in node.leaves:
        if not leaf.row.holds(value, leaf.facts):
            expected, got = leaf.row.expected(leaf.facts), leaf.row.got(value)
            if leaf.kind == "tensor" and isinstance(value, torch.Tensor) and (parts := tensor_differences(value, leaf.facts)):
                expected, got = f"{parts[0][0]} {parts[0][1]}", parts[0][2]
                values = (leaf.facts.size, tuple(value.size())) if parts[0][0] == "size" else None
                return Failure(leaf.kind, node.text, expected, got, leaf.stack, values)
            return Failure(leaf.kind, node.text, expected, got, leaf.stack)
    for child in node.children.values():
        try:
            below = child.read(value)
        except Exception as error:  # noqa: BLE001 - a path that cannot be followed fails the check, whatever the reading raises
            stack = next((leaf.stack for n in nodes_of(child) for leaf in n.leaves), ())
            return Failure("missing", child.text, "a value", f"none: {type(error).__name__}: {error}", stack)
        if (failure := first_failure(child, below)) is not None:
            return failure
    return None


Span = tuple[Node, int | None, bool]  # a tensor's node, the bytes from its first to past its last element (None: they vary), whether it is written


def is_open(node: Node) -> bool:
    """Does the guard of this tensor leave sizes or strides open?"""
    return any(leaf.kind == "tensor" and (None in leaf.facts.size or None in leaf.facts.stride) for leaf in node.leaves)


def extent(value: torch.Tensor) -> int:
    """Bytes from the first to past the last element; 0 for an empty tensor."""
    if not value.numel():
        return 0
    return (1 + sum((n - 1) * abs(s) for n, s in zip(value.shape, value.stride(), strict=True))) * value.element_size()


def overlap(spans: tuple[Span, ...], value: Callable[[Node], Any]) -> tuple[Node, Node] | None:
    """Two tensors whose memory overlaps, one of them written; None where there are none. One sweep over the addresses in order."""
    tensors = [value(node) for node, _, _ in spans]
    sizes = [extent(tensor) if size is None else size for tensor, (_, size, _) in zip(tensors, spans, strict=True)]
    placed = sorted(((address := tensor.data_ptr()), address + sizes[n], n) for n, tensor in enumerate(tensors) if sizes[n])
    reach: dict[bool, tuple[int, int]] = {}  # written or not -> (furthest end so far, whose)
    for start, end, number in placed:
        node, _, written = spans[number]
        for other_written in (True, False) if written else (True,):
            if other_written in reach and start < reach[other_written][0]:
                return spans[reach[other_written][1]][0], node
        reach[written] = max(reach.get(written, (0, 0)), (end, number))
    return None


@dataclass(frozen=True)
class Sharing:
    """How tensors lie in memory that they share: the byte at which each begins, counted from the first; kin: see ``core.memory.are_kin``."""

    starts: tuple[int, ...]
    kin: bool

    def holds(self, tensors: list[Any]) -> bool:
        first = tensors[0].data_ptr()
        return all(t.data_ptr() - first == start for t, start in zip(tensors, self.starts, strict=True)) and are_kin(tensors) == self.kin

    def text(self) -> str:
        bytes = ", ".join(map(str, self.starts[:-1]))
        return f"begin at bytes {bytes} and {self.starts[-1]} of memory that they share, {'' if self.kin else 'not '}as views of one tensor"

    def got(self, tensors: list[Any]) -> str:
        """The same of other tensors."""
        first = min(t.data_ptr() for t in tensors)
        if len({t.untyped_storage().data_ptr() for t in tensors}) > 1:
            return "are on memory of their own"
        return Sharing(tuple(t.data_ptr() - first for t in tensors), are_kin(tensors)).text().replace("begin", "they begin", 1)


def gained(classes: tuple[tuple[weakref.ref[Any], tuple[str, ...]], ...]) -> str | None:
    """The first of these names that its class has by now; None where there is none. A class that is gone has everything."""
    for ref, names in classes:
        if (cls := ref()) is None:
            return "its end"
        own = cls.__dict__
        for name in names:
            if name in own:
                return name
    return None


def related(relation: Relation, values: list[Any]) -> bool:
    distinct = len({id(v) for v in values})
    return distinct == len(values) if relation.kind == "not_aliased" else distinct == 1


def relation_failure(relation: Relation, locals: Any) -> Failure | None:
    if relation.kind == "alive":
        return None if relation.facts["alive"] else Failure("alive", "identities", "every object compared by identity to exist", "one is gone", relation.stack)
    if relation.kind == "global_state":
        changes = state_changes(relation.facts)
        return Failure("global_state", "torch's state", "the state at capture", ", ".join(changes), relation.stack) if changes else None
    if relation.kind == "absent":
        name = gained(relation.facts)
        return None if name is None else Failure("absent", relation.text.removesuffix(" of its own"), "none", f"a class that has {name}", relation.stack)
    if relation.kind == "shared":
        tensors = [n.value(locals) for n in relation.nodes]
        where = " and ".join(n.text for n in relation.nodes)
        return None if relation.facts.holds(tensors) else Failure("shared", where, relation.text, relation.facts.got(tensors), relation.stack)
    if relation.kind == "disjoint":
        pair = overlap(relation.facts, lambda node: node.value(locals))
        return pair and Failure("disjoint", f"{pair[0].text} and {pair[1].text}", RELATIONS["disjoint"], "memory that both reach", relation.stack)
    if relation.kind == "shape":
        return _sizes_failure(relation, [n.value(locals) for n in relation.nodes])
    if related(relation, [n.value(locals) for n in relation.nodes]):
        return None
    names = " and ".join(n.text for n in relation.nodes)
    return Failure(relation.kind, names, RELATIONS[relation.kind], "the same object" if relation.kind == "not_aliased" else "different ones", relation.stack)


def _sizes_failure(relation: Relation, values: list[Any]) -> Failure | None:
    if holds(relation.facts, values):
        return None
    where = ", ".join(dict.fromkeys(n.text for n in relation.nodes))
    return Failure("shape", where, relation.text, numbers_text(relation.facts, values), relation.stack)


def state_changes(facts: dict[str, Any]) -> list[str]:
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils import _device

    now = {
        "modes": [type(m) for m in _get_current_function_mode_stack()],
        "device": _device.CURRENT_DEVICE,
        "level": forward_ad._current_level,
        "inference": torch.is_inference_mode_enabled(),
    }
    words = {"modes": "torch function modes", "device": "the default device", "level": "level of forward-mode differentiation", "inference": "inference mode"}
    changed = [] if facts["state"].check() else [f"another {facts['state'].reason().strip() or 'state'}"]
    return changed + [f"other {words[k]}" for k in now if k in facts and now[k] != facts[k]]
