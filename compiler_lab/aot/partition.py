"""The joint graph cut in two: a forward, a backward, and the values that are kept from one to the other.

In: a ``JointGraph`` without mutating operators, ``Options`` (``partitioner``, ``cost_model``, ``activation_memory_budget``) and perhaps a
policy. Out: a ``Partition``. Always holds: forward then backward compute what the joint graph computes; what does not depend on a tangent
and is part of an output runs in the forward; random operators run once; views are not kept but made again from what they view; of an
input that the program overwrites a copy is kept, never the input; numbers that depend on sizes are kept as numbers; every node names its
node of the joint graph as parent.

Two partitioners. "default" keeps whatever forward value the backward reads. "min_cut" asks a minimum cut which values to keep so that
everything else can be computed again. The parts, each a module: ``parts.py`` takes the joint graph apart, ``policy.py`` reads what the
program wants, ``bans.py`` says what may not be computed again, ``network.py`` states the cut and ``flow.py`` solves it, ``budget.py``
lifts bans where memory is short, ``emit.py`` builds the two graphs, ``flow_record.py`` keeps the solved network with a trace.

PyTorch's counterpart: ``torch/_functorch/partitioners.py``. Left out: offloading to the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from ..core.artifact import Artifact, Decision, Item, Plain
from ..core.errors import InvalidIR, UnknownOption, Unsupported
from ..core.fx import GraphArtifact, format_arg, target_name
from ..core.options import Options
from ..core.provenance import own_location, stack_of
from ..core.schema import is_number, is_random, is_view, nbytes, op_name
from .bans import is_free, is_tensors
from .budget import BudgetPoint, Plan, curve_of, plan_for
from .emit import emit_backward, emit_forward
from .flow_record import record, stops
from .ir import FlowNetwork, JointGraph, JointSpec
from .network import Problem, read_by_backward
from .parts import Parts, ancestors, take_apart
from .policy import RECOMPUTE, Policy, with_policies, with_wishes

DEFAULTS = Options()


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
    options: Options = DEFAULTS
    policy: Policy | None = None

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
        nodes = [*self.forward.graph.nodes, *(self.backward.graph.nodes if self.backward is not None else ())]
        values = {n.name: nbytes(n.meta["val"]) for n in nodes if "val" in n.meta}
        listed = lambda names: ", ".join(f"{n} ({values[n]} bytes)" for n in names) or "nothing"
        lines = ["forward:", *("  " + line for line in self.forward.text().split("\n"))]
        if self.backward is not None:
            lines += ["backward:", *("  " + line for line in self.backward.text().split("\n"))]
        return "\n".join(filter(None, [*lines, f"saved: {listed(self.saved)}", f"recomputed: {listed(self.recomputed)}", self.spec.text()]))

    def items(self) -> tuple[Item, ...]:
        """The nodes of both graphs, then the solved network, where a minimum cut chose: ``flow_record.record`` is what its facts hold."""
        return self.forward.items() + (self.backward.items() if self.backward is not None else ()) + self._network_items

    @functools.cached_property
    def _network_items(self) -> tuple[Item, ...]:
        network = self.network
        if network is None or network.solution is None:
            return ()
        problem = Problem.of(self._parts, self.options.cost_model)
        kept = {d.subject[0] for d in self.decisions if d.kind == "save" and d.outcome == "saved"}
        saved = [n for n in problem.wanted if self.joint.id(n) in kept]
        facts = record(problem, network, saved, self.recomputed, self.options.activation_memory_budget)
        unit = "bytes" if facts["weights"] == [1, 0] else "weighed"
        paths, cut = len(network.solution.paths), len(facts["cut"])
        text = f"network of {len(facts['nodes'])} nodes: flow {facts['value']:,} {unit} by {paths} paths, cut through {cut} edges"
        return (Item(f"{self.stage}/network", "network", text, tuple(f"{self.forward.stage}/{name}" for name in self.saved), (), facts),)

    @property
    def _parts(self) -> Parts:
        return with_policies(take_apart(self.joint), self.policy)

    def more(self) -> Mapping[str, Plain]:
        """The stops of the memory budget: ``flow_record.stops``; empty where no minimum cut chose."""
        return self._stops

    @functools.cached_property
    def _stops(self) -> dict[str, Plain]:
        if not self._network_items:
            return {}
        names = self._network_items[0].facts["nodes"]
        return {"stops": stops(budget_curve(self.joint, self.options, self.policy), names)}

    def recut(self, budget: float | None = None, must_save: Iterable[str] = (), must_recompute: Iterable[str] = ()) -> Partition:
        """The same joint graph cut again, with another memory budget (from 0 to 1), and with values that are named.

        must_save: never computed again, so saved if the backward needs them at all. must_recompute: never saved. Names are those of ``text()``, or ids;
        what the program and the caller wanted before still holds of others. Raises ``UnknownOption`` for a budget that is none, and ``Unsupported`` for a
        name that is no node of the forward, one in both lists, a view that is to be saved, a random operator that is to run again.
        """
        if budget is not None and not 0 <= budget <= 1:
            raise UnknownOption(f"a memory budget of {budget}", hint="a number from 0 (keep as little as can be) to 1 (compute as little again as can be)")
        if self.backward is None:
            raise Unsupported(f"{self.joint.stage} has no backward", reason="no_backward", why="there is nothing to keep values for")
        wishes = with_wishes(self._parts, self.policy, must_save, must_recompute)
        options = self.options if budget is None else replace(self.options, activation_memory_budget=float(budget))
        return partition(self.joint, options, wishes)

    def check(self) -> None:
        """Both graphs are well formed, keep the calling convention, and hold the joint graph's operators on its operands."""
        self.forward.check()
        self.spec.check(self.stage)
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


@dataclass(frozen=True)
class _Choice:
    """What to keep, and what led to it."""

    saved: tuple[fx.Node, ...]
    bans: Mapping[fx.Node, Decision] = field(default_factory=dict[fx.Node, Decision])
    network: FlowNetwork | None = None
    plan: Plan | None = None


def _choose(parts: Parts, options: Options) -> _Choice:
    if options.partitioner == "default":
        if options.activation_memory_budget != 1:
            raise UnknownOption("a memory budget with the default partitioner", hint='partitioner="min_cut" has one')
        return _Choice(tuple(read_by_backward(parts)))
    problem = Problem.of(parts, options.cost_model)
    if options.activation_memory_budget == 1:
        cut = problem.cut()
        return _Choice(cut.saved, problem.bans, cut.network)
    plan = plan_for(problem, options.activation_memory_budget)
    return _Choice(plan.cut.saved, problem.bans, plan.cut.network, plan)


def partition(joint: JointGraph, options: Options = DEFAULTS, policy: Policy | None = None) -> Partition:
    """Cut ``joint`` in two. A joint graph without tangents has no backward; its forward saves nothing.

    policy: what must, or preferably should, be saved or computed again: a mapping from node names to ``CheckpointPolicy``, or a function
    of a node; it goes before what the program says by ``torch.utils.checkpoint`` (``policy.py`` says what each policy means).
    Raises ``InvalidIR`` where the graph still mutates (functionalize it first) or does not keep its spec, and ``Unsupported``
    where the backward reads a Python number that the forward computes from a tensor's values, or a policy cannot be kept.
    """
    parts = with_policies(take_apart(joint), policy)
    if not joint.spec.tangents:
        forward, _ = emit_forward(parts, ())
        return Partition(joint, forward, None, (), joint.spec, options=options, policy=policy)
    for node in parts.sorted(ancestors(parts.roots) & parts.split.forward):
        if not is_tensors(node.meta["val"]) and not is_number(node):
            raise Unsupported(f"{joint.id(node)} is a number that the backward reads", reason="saved_number", where=own_location(stack_of(node)))
    choice = _choose(parts, options)
    forward, names = emit_forward(parts, choice.saved)
    backward = emit_backward(parts, choice.saved, names)
    again = {n.name for n in backward.graph.nodes if n.meta.get("recomputed")}
    decisions = _explain(parts, choice, [n for n in parts.nodes if n.name in again], options)
    return Partition(joint, forward, backward, names, joint.spec, choice.network, decisions, options=options, policy=policy)


def budget_curve(joint: JointGraph, options: Options = DEFAULTS, policy: Policy | None = None) -> tuple[BudgetPoint, ...]:
    """Bytes kept against the price of computing again: the corners of the best there is, from the minimum cut to the fewest bytes.

    ``options.cost_model`` says what a byte is; ``partition`` with a point's ``budget`` as ``activation_memory_budget`` gives its plan.
    Empty for a joint graph without tangents.
    """
    parts = with_policies(take_apart(joint), policy)
    return curve_of(Problem.of(parts, options.cost_model)) if joint.spec.tangents else ()


# ------------------------------------------------------------------------------------------------------------------- why


def _explain(parts: Parts, choice: _Choice, again: Sequence[fx.Node], options: Options) -> tuple[Decision, ...]:
    """The bans, what became of each value that the backward reads, of each policy, and of the budget."""
    policies, bans = parts.split.policies, choice.bans

    def why_saved(node: fx.Node) -> str:
        if node.op == "placeholder":
            return "mutated_input" if node in parts.overwritten else "input"
        producer = node.args[0] if op_name(node) == "getitem" and node.args[0] in bans else node
        if isinstance(producer, fx.Node) and producer in bans:
            return bans[producer].reason
        return "output" if node in parts.returned else "cut" if options.partitioner == "min_cut" else "read"

    def why_again(node: fx.Node) -> str:
        if is_free(node):
            return "view" if is_view(node) else "constant"
        if policies.get(node) in RECOMPUTE:
            return policies[node].name.lower()
        return "budget" if node in bans else "cheaper"

    told = lambda n, outcome, why: Decision("save", (parts.joint.id(n),), outcome, why, {"bytes": nbytes(n.meta["val"])})
    kept = [told(n, "saved", why_saved(n)) for n in choice.saved]
    repeated = [told(n, "recomputed", why_again(n)) for n in again]
    became = {d.subject[0]: d for d in (*kept, *repeated)}
    kept_policies = [_policy(parts, n, became.get(parts.joint.id(n))) for n in parts.sorted(policies)]
    return (*bans.values(), *kept, *repeated, *kept_policies, *_budget(parts, choice.plan, options))


def _policy(parts: Parts, node: fx.Node, became: Decision | None) -> Decision:
    wish = parts.split.policies[node]
    facts = {"policy": wish.name}
    if became is None:
        return Decision("policy", (parts.joint.id(node),), "idle", "unread", facts)
    honoured = became.outcome == ("recomputed" if wish in RECOMPUTE else "saved")
    return Decision("policy", (parts.joint.id(node),), "honoured" if honoured else "overridden", became.reason, facts)


def _budget(parts: Parts, plan: Plan | None, options: Options) -> tuple[Decision, ...]:
    if plan is None:
        return ()
    facts = {"budget": options.activation_memory_budget, "bytes": plan.bytes, "flops": plan.flops, "bound": plan.bound}
    return (Decision("budget", (parts.joint.stage,), "planned", "best" if plan.bound == plan.flops else "bounded", facts),)
