"""What the program or the caller wants kept or computed again: ``torch.utils.checkpoint.CheckpointPolicy`` by node.

In: a joint graph taken apart, whose nodes may carry ``meta["recompute"]`` and ``meta["ac_graph_id"]`` (set where the program calls
``torch.utils.checkpoint``; the number of the checkpointed region), and a ``Policy`` of the caller's, which goes before the marks.
Out: ``Parts`` whose ``split`` knows the policies. What they mean to the cut:
MUST_SAVE         never computed again: saved if the backward needs it at all
PREFER_SAVE       not computed again, unless the memory budget wants it
MUST_RECOMPUTE    never saved: computed again if the backward needs it at all
PREFER_RECOMPUTE  no rule forbids computing it again; which values are kept is the cut's choice, so that fewest bytes are
Always holds: only what runs in the forward has a policy; results of an operator of several results have the operator's. A region
whose last value begins the next one keeps that value, else the second could not be computed without the first.
PyTorch's counterpart: ``cleanup_recompute_tags`` in ``torch/_functorch/partitioners.py``; there PREFER_RECOMPUTE is MUST_RECOMPUTE, and
PREFER_SAVE is nothing. Left out: offloading to the CPU (refused).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from ..core.errors import Unsupported
from ..core.provenance import own_location, stack_of
from ..core.schema import is_random, op_name
from .bans import is_free
from .ir import JointGraph
from .parts import Parts

Policy = Mapping[str, CheckpointPolicy] | Callable[[fx.Node], CheckpointPolicy | None]
"""By name of a node, or a function of a node that gives None where it has no wish."""

RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def with_policies(parts: Parts, policy: Policy | None) -> Parts:
    """``parts`` with the policies of the program, and of the caller where it has one.

    Raises ``Unsupported`` for a name that is no node, for a policy about what does not run in the forward (``policy_subject``), for
    offloading (``cpu_offload``), and for MUST_RECOMPUTE of an operator that draws random numbers (``random_policy``).
    """
    marked: dict[fx.Node, CheckpointPolicy] = {n: n.meta["recompute"] for n in parts.nodes if n in parts.split.forward and "recompute" in n.meta}
    marked = {n: p for n, p in marked.items() if n.op == "call_function"}
    boundaries = {n for n in marked if _ends_region(n, marked)}
    marked |= dict.fromkeys(boundaries, CheckpointPolicy.MUST_SAVE)
    if policy is not None:
        wanted = _asked(parts, policy)
        marked |= wanted
        boundaries -= wanted.keys()
    if not marked:
        return parts
    for node, wish in marked.items():
        if wish in (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD):
            raise _refused(parts.joint, node, f"{wish.name}: saved values stay on their device", "cpu_offload")
        if wish is CheckpointPolicy.MUST_RECOMPUTE and is_random(_maker(node)):
            raise _refused(parts.joint, node, "MUST_RECOMPUTE of an operator that draws random numbers: a second run would draw others", "random_policy")
    for node in parts.nodes:
        if op_name(node) == "getitem" and node.args[0] in marked:
            marked.setdefault(node, marked[node.args[0]])
    known = {n: p for n, p in marked.items() if not is_free(n)}
    return replace(parts, split=replace(parts.split, policies=known, boundaries=frozenset(boundaries)))


def _maker(node: fx.Node) -> fx.Node:
    """The operator that gives the value: of one result of several, the one that gives them all."""
    return node.args[0] if op_name(node) == "getitem" and isinstance(node.args[0], fx.Node) else node


def with_wishes(parts: Parts, policy: Policy | None, must_save: Iterable[str], must_recompute: Iterable[str]) -> dict[str, CheckpointPolicy]:
    """``policy`` as a mapping, with what is to be kept and what is to be computed again by name of a node (or by its id), which go before it.

    Raises ``Unsupported`` for a name that is no node of the forward (``policy_subject``), one that stands in both (``policy_conflict``), and one that is
    to be kept although it costs nothing to make again (``policy_free``).
    """
    stage = f"{parts.joint.stage}/"
    keep, again = ([n.removeprefix(stage) for n in ([names] if isinstance(names, str) else names)] for names in (must_save, must_recompute))
    if both := sorted(set(keep) & set(again)):
        raise Unsupported(f"{both[0]} is to be saved and to be computed again", reason="policy_conflict", hint="name it in one of the two")
    wishes = dict.fromkeys(keep, CheckpointPolicy.MUST_SAVE) | dict.fromkeys(again, CheckpointPolicy.MUST_RECOMPUTE)
    for node, wish in _asked(parts, wishes).items():
        if wish is CheckpointPolicy.MUST_SAVE and is_free(node):
            raise _refused(parts.joint, node, "MUST_SAVE of a view or a constant: it is made again for nothing; name what it is a view of", "policy_free")
    known = {} if policy is None else {n.name: wish for n, wish in _asked(parts, policy).items()}
    return known | wishes


def _ends_region(node: fx.Node, marked: Mapping[fx.Node, CheckpointPolicy]) -> bool:
    """It is to be computed again, and so is a reader of it in a later region."""
    mine = node.meta.get("ac_graph_id")
    if mine is None or marked[node] not in RECOMPUTE:
        return False
    return any(marked.get(u) in RECOMPUTE and u.meta.get("ac_graph_id", mine) > mine for u in node.users)


def _asked(parts: Parts, policy: Policy) -> dict[fx.Node, CheckpointPolicy]:
    if callable(policy):
        wishes = {n: policy(n) for n in parts.nodes if n.op == "call_function" and n in parts.split.forward}
        return {n: wish for n, wish in wishes.items() if wish is not None}
    by_name = {n.name: n for n in parts.nodes}
    wanted: dict[fx.Node, CheckpointPolicy] = {}
    for name, wish in policy.items():
        node = by_name.get(name)
        if node is None:
            raise Unsupported(f"a policy for {name}, which is no node of {parts.joint.stage}", reason="policy_subject", hint="names are those of text()")
        if node.op != "call_function" or node not in parts.split.forward:
            what = "is an input" if node.op == "placeholder" else "does not run in the forward"
            raise _refused(parts.joint, node, f"a policy for what {what}", "policy_subject")
        wanted[node] = wish
    return wanted


def _refused(joint: JointGraph, node: fx.Node, what: str, reason: str) -> Unsupported:
    return Unsupported(f"{joint.id(node)}: {what}", reason=reason, where=own_location(stack_of(node)))
