"""Which forward values may not be computed again in the backward: rules as rows, each with a reason of its own.

In: a forward node and what is known about the split (``Split``). Out: the first row that applies, as a ``Decision``.
Always holds: a rule only forbids recomputing. Whether the value is then saved, or nothing that needs it is, is the minimum
cut's answer. Values that are free to compute again (views, constants made from nothing) are never banned.
PyTorch's counterpart: ``torch/_functorch/partitioners.py``, ``should_ban_recomputation`` and ``get_default_op_list``. Two rules about
more than one node and what reads it are in ``chains.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from ..core.artifact import Decision
from ..core.schema import is_number, is_random, is_view, nbytes, op_name, overload

REASONS: dict[str, str] = {
    # saved
    "must_save": "its checkpoint policy is MUST_SAVE",
    "prefer_save": "its checkpoint policy is PREFER_SAVE",
    "boundary": "a checkpointed region ends with it and the next one begins with it: it is saved between the two",
    "matmul": "a matrix product: doing it twice costs far more than reading it back",
    "convolution": "a convolution: doing it twice costs far more than reading it back",
    "attention": "attention: doing it twice costs far more than reading it back",
    "random": "it draws random numbers: a second run would draw others",
    "unfusible": "not among the operators that are computed inside the kernel that reads them",
    "materialized": "the backward writes it to memory anyway, for a reader that cannot be fused with it",
    "far": "what it reads is read before, too, and something that cannot be fused lies between: both could not share a kernel",
    "chain": "a long chain of operators passes through it: all of the chain would run twice",
    "reduction": "its result is at least four times smaller than what it is computed from",
    "input": "an input of the graph: it is in memory already",
    "output": "an output of the graph: the forward writes it to memory in any case",
    "mutated_input": "the program overwrites this input, so a copy of what the forward read is kept",
    "cut": "saving it is the cheapest way to reach everything behind it: it lies on the minimum cut",
    "read": "the backward reads it and this partitioner saves whatever the backward reads",
    # recomputed
    "view": "a view: it costs nothing to make again from what it is a view of",
    "constant": "made from no input: it costs nothing to make again",
    "cheaper": "computing it again from saved values costs fewer saved bytes than keeping it",
    "must_recompute": "its checkpoint policy is MUST_RECOMPUTE",
    "prefer_recompute": "its checkpoint policy is PREFER_RECOMPUTE, and computing it again keeps fewer bytes",
    "budget": "the memory budget leaves no room for it, and computing it again costs least",
    # the budget
    "best": "no plan within the memory budget computes less again",
    "bounded": "the search ended early: no plan within the memory budget computes less again than the bound",
    # neither
    "unread": "the backward reads neither it nor what only it leads to",
}

MATMUL = frozenset(
    f"aten.{n}"
    for n in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "matmul", "_scaled_mm", "_int_mm", "_addmm_activation")
)
CONVOLUTION = frozenset(f"aten.{n}" for n in ("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "convolution_backward"))

# Beside what torch tags as pointwise: what loops absorb. Our lowering makes loops of more (flip, roll, padding, triangles), but what is
# worth computing twice is judged as PyTorch's partitioner judges it, so that nothing is computed again here that is not there.
FUSIBLE = frozenset(
    f"aten.{n}"
    for n in (
        "sum", "mean", "amax", "max", "min", "var", "std", "var_mean", "any", "argmax", "_to_copy", "clone", "lift_fresh_copy", "full", "full_like",
        "zeros", "zeros_like", "ones", "new_zeros", "empty", "empty_like", "scalar_tensor", "arange", "triu", "where", "gather", "index", "gelu",
        "gelu_backward", "native_dropout_backward", "threshold_backward", "masked_fill",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """Where nodes of a joint graph may stand: ``forward`` must run there; ``tangents`` depend on a tangent, so cannot.

    ``far``, ``chains``: see ``chains.py``. ``policies``: what the program or the caller wants of a node (``policy.py``)."""

    stage: str
    forward: Set[fx.Node]
    tangents: Set[fx.Node]
    far: Set[fx.Node] = frozenset()
    chains: Set[fx.Node] = frozenset()
    policies: Mapping[fx.Node, CheckpointPolicy] = field(default_factory=dict[fx.Node, CheckpointPolicy])
    boundaries: Set[fx.Node] = frozenset()  # ends of checkpointed regions that another one begins with


def is_fusible(node: fx.Node) -> bool:
    """Our own kernels can hold it, together with what it reads and what reads it; a number is in no memory at all."""
    op = overload(node)
    return is_number(node) or is_view(node) or op_name(node) in FUSIBLE or op_name(node) == "getitem" or (op is not None and torch.Tag.pointwise in op.tags)


def can_fuse(producer: fx.Node, consumer: fx.Node) -> bool:
    """``consumer`` can take ``producer``'s value without its going through memory (anything can be written into a cat)."""
    return op_name(consumer) == "aten.cat" or (is_fusible(producer) and is_fusible(consumer))


def is_free(node: fx.Node) -> bool:
    """Costs nothing to make again: a view, an attribute and its copy, a constant that is made from nothing but sizes and not drawn at random."""
    if node.op == "get_attr" or is_view(node) or op_name(node) == "aten.lift_fresh_copy":
        return True
    return node.op == "call_function" and all(map(is_number, node.all_input_nodes)) and not is_random(node) and not is_number(node)


def _must_save(node: fx.Node, split: Split) -> bool:
    return split.policies.get(node) is CheckpointPolicy.MUST_SAVE and node not in split.boundaries


def _boundary(node: fx.Node, split: Split) -> bool:
    return node in split.boundaries


def _prefer_save(node: fx.Node, split: Split) -> bool:
    return split.policies.get(node) is CheckpointPolicy.PREFER_SAVE


def _matmul(node: fx.Node, split: Split) -> bool:
    return op_name(node) in MATMUL


def _convolution(node: fx.Node, split: Split) -> bool:
    return op_name(node) in CONVOLUTION


def _attention(node: fx.Node, split: Split) -> bool:
    return "attention" in op_name(node)


def _random(node: fx.Node, split: Split) -> bool:
    return is_random(node)


def _unfusible(node: fx.Node, split: Split) -> bool:
    return not is_fusible(node)


def _materialized(node: fx.Node, split: Split) -> bool:
    """Some reader in the backward, behind views alone, cannot be fused with it."""
    front, seen = [node], {node}
    while front:
        current = front.pop()
        for user in current.users:
            if user.op != "output" and user not in split.forward and not is_view(user) and not can_fuse(current, user):
                return True
            if user not in seen and (is_view(user) or op_name(user) == "getitem"):
                seen.add(user)
                front.append(user)
    return False


def _far(node: fx.Node, split: Split) -> bool:
    return node in split.far


def _chain(node: fx.Node, split: Split) -> bool:
    return node in split.chains


def _reduction(node: fx.Node, split: Split) -> bool:
    return nbytes(node.meta["val"]) * 4 < sum(nbytes(i.meta["val"]) for i in node.all_input_nodes)


Rule = Callable[[fx.Node, Split], bool]
FIRM = frozenset({"must_save", "boundary", "random"})
"""Bans that no memory budget lifts."""

RULES: tuple[tuple[str, Rule], ...] = (
    ("must_save", _must_save),
    ("boundary", _boundary),
    ("prefer_save", _prefer_save),
    ("random", _random),
    ("matmul", _matmul),
    ("convolution", _convolution),
    ("attention", _attention),
    ("unfusible", _unfusible),
    ("materialized", _materialized),
    ("reduction", _reduction),
    ("far", _far),
    ("chain", _chain),
)


def is_tensors(value: object) -> bool:
    """A tensor, or a tuple or list of tensors and Nones: what an operator of several results gives."""
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and all(v is None or isinstance(v, torch.Tensor) for v in value))


def ban(node: fx.Node, split: Split) -> Decision | None:
    """Why ``node`` may not be computed again, or None where it may.

    Only operators that must run in the forward are banned: one that may run in the backward alone would not run twice there. A policy
    to recompute lifts every ban but the firm ones.
    """
    if node.op != "call_function" or node not in split.forward or is_free(node) or op_name(node) == "getitem" or not is_tensors(node.meta["val"]):
        return None
    again = split.policies.get(node) in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
    for reason, rule in RULES:
        if (not again or reason in FIRM) and rule(node, split):
            return Decision("ban", (f"{split.stage}/{node.name}",), "refused", reason, {"bytes": nbytes(node.meta["val"])})
    return None
