"""Rewriting by pattern: every match is replaced or refused, with the reason; values, aliases and effects stay what they were.

In: any graph and a ``Pattern``. Out: a new artifact of the same class and stage, and a ``Decision`` for each match. New nodes have the
line of the node whose place they take, and the matched nodes as parents.
Always holds: a match is replaced only where the program cannot tell but by rounding: no value of its inside is read elsewhere, nothing is
written between its first call and its last, the new value has the old one's dtype, shape, strides and device, and shares memory with nothing
the old one did not share it with. Of an aten graph the replacement is spelled in aten overloads.
That the replacement computes what the pattern computes is the author's claim; ``conditions`` say when.
PyTorch's counterparts: ``torch/fx/subgraph_rewriter.py`` (replace_pattern) and ``torch/_inductor/pattern_matcher.py`` (register_replacement).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch.fx as fx
from torch.fx.proxy import GraphAppendingTracer

from ..core.artifact import Decision
from ..core.fx import GraphArtifact, format_arg
from ..core.provenance import stack_of
from ..core.schema import is_view, overload
from .effects import draws, writes
from .passes import returned_by, to_edit, with_graph
from .patterns import Condition, Match, Pattern, search
from .spellings import respell
from .values import layout, share_memory, value_of

G = TypeVar("G", bound=GraphArtifact)

REASONS = {
    "match": "the graph computes the pattern here",
    "used_elsewhere": "a value inside the match is read outside it, so it has to be computed all the same",
    "overlap": "a part of it was replaced by an earlier match",
    "writes": "a call of the match writes to memory or draws random numbers",
    "write_between": "a call between the first and the last of the match may write to what they read",
    "condition": "a condition of the pattern does not hold",
    "other_value": "the replacement gives another dtype, shape, layout or device than the pattern gave",
    "aliases": "the replacement shares memory with an operand where the pattern gave memory of its own",
    "not_aten": "the graph is one of aten overloads, and a call of the replacement has none",
    "unknown": "a value has no shape and dtype yet",
    "fails": "the replacement cannot be computed from these operands",
}


class _Refused(Exception):
    def __init__(self, reason: str, **facts: Any) -> None:
        self.reason, self.facts = reason, facts


class _Rewriter:
    """One pattern through one graph, which is edited."""

    def __init__(self, graph: fx.Graph, pattern: Pattern, stage: str) -> None:
        self.graph, self.pattern, self.stage = graph, pattern, stage
        self.became: dict[fx.Node, Any] = {}  # a replaced node -> what stands for it
        self.gone: set[fx.Node] = set()
        self.new: set[fx.Node] = set()
        self.order = list(graph.nodes)
        self.place = {n: i for i, n in enumerate(self.order)}
        self.writers = [i for i, n in enumerate(self.order) if writes(n)]
        self.aten = all(overload(n) is not None or getattr(n.target, "__name__", "") == "getitem" for n in self.order if n.op.startswith("call"))
        self.returned = returned_by(graph) if self.aten and not self.writers else None

    def id(self, node: fx.Node) -> str:
        return f"{self.stage}/{node.name}"

    def ids(self, nodes: Iterable[fx.Node]) -> tuple[str, ...]:
        return tuple(map(self.id, nodes))

    def decide(self, match: Match) -> Decision:
        facts = {"pattern": self.pattern.name, "operands": {k: format_arg(v) for k, v in match.operands.items()}, "exchanged": match.exchanged}
        subject = self.ids((match.root, *(n for n in match.nodes.values() if n is not match.root)))
        try:
            self.allow(match)
            made = self.build(match)
        except _Refused as refused:
            return Decision("rewrite", subject, "refused", refused.reason, facts | refused.facts)
        self.take(match, made[-1])
        return Decision("rewrite", subject, "replaced", "match", facts | {"into": list(self.ids(n for n in made if n in self.new))})

    def allow(self, match: Match) -> None:
        """Raises ``_Refused`` where the match must stay."""
        nodes = tuple(match.nodes.values())
        if any("val" not in n.meta for n in (*nodes, *(v for v in match.operands.values() if isinstance(v, fx.Node)))):
            raise _Refused("unknown")
        if any(n in self.gone for n in nodes):
            raise _Refused("overlap")
        for condition in self.pattern.conditions:
            if not condition.holds(match):
                raise _Refused("condition", condition=condition.name, why=condition.why)
        for inner in nodes:
            outside = [u for u in inner.users if u not in nodes]
            if inner is not match.root and outside:
                raise _Refused("used_elsewhere", value=self.id(inner), by=list(self.ids(outside)))
        if bad := next((n for n in nodes if writes(n) or draws(n)), None):
            raise _Refused("writes", node=self.id(bad))
        first, last = (self.place[n] for n in (nodes[0], match.root))
        if between := next((i for i in self.writers if first < i < last), None):
            raise _Refused("write_between", writer=self.id(self.order[between]))

    def build(self, match: Match) -> list[fx.Node]:
        """The replacement's nodes before the root, the one that gives the value last; nothing is left behind where it is refused."""
        before, tracer = match.root.prev, GraphAppendingTracer(self.graph)
        operands = {k: self.became.get(v, v) if isinstance(v, fx.Node) else v for k, v in match.operands.items()}
        with self.graph.inserting_before(match.root):
            result = self.pattern.replacement(*(fx.Proxy(v, tracer) if isinstance(v, fx.Node) else v for v in operands.values()))
        made = list[fx.Node]()
        while (node := before.next if not made else made[-1].next) is not match.root:
            made.append(node)
        try:
            if not isinstance(result, fx.Proxy):
                raise _Refused("other_value", old=type(match.root.meta["val"]).__name__, new=type(result).__name__)
            for node in made:
                self.finish(node, match)
            self.compare(result.node, match, operands)
        except _Refused:
            for node in reversed(made):
                self.graph.erase_node(node)
            raise
        self.new.update(made)
        return [*(n for n in made if n is not result.node), result.node]

    def finish(self, node: fx.Node, match: Match) -> None:
        if self.aten and not respell(node):
            raise _Refused("not_aten", call=str(node.target))
        if writes(node):
            raise _Refused("writes", node=str(node.target))
        try:
            value = value_of(node)
        except (RuntimeError, TypeError, ValueError) as error:
            raise _Refused("fails", error=str(error).partition("\n")[0]) from error
        node.meta = {"stack": stack_of(match.root), "parents": self.ids(match.nodes.values()), "val": value}

    def compare(self, new: fx.Node, match: Match, operands: dict[str, Any]) -> None:
        """The new value beside the old: alike in all but elements, and no alias that was none."""
        old, value = match.root.meta["val"], new.meta["val"]
        if layout(old) != layout(value):
            raise _Refused("other_value", old=repr(layout(old)), new=repr(layout(value)))
        kept = self.returned is not None and match.root not in self.returned
        for operand in operands.values():
            shared = isinstance(operand, fx.Node) and share_memory(operand.meta["val"], value)
            if shared and not share_memory(operand.meta["val"], old) and not kept:
                raise _Refused("aliases", operand=operand.name)

    def take(self, match: Match, new: fx.Node) -> None:
        """``new`` in the place of the root; what computed only for it goes."""
        match.root.replace_all_uses_with(new)
        self.became[match.root] = new
        for old in reversed(tuple(match.nodes.values())):
            self.gone.add(old)
            self.graph.erase_node(old)
        if self.returned is not None and match.root in self.returned:
            self.returned.update((new, *(new.all_input_nodes if is_view(new) else ())))


def rewrite(graph: fx.Graph, pattern: Pattern, stage: str) -> list[Decision]:
    """Rewrites ``graph`` itself; nodes are named ``stage/name`` in the decisions. For who has a bare graph of values, such as a pass of torch's."""
    matches, decisions = list(search(graph, pattern)), list[Decision]()
    if not matches:
        return decisions
    run = _Rewriter(graph, pattern, stage)
    for found in matches:
        tried: list[Decision] = []
        for match in found:
            tried.append(run.decide(match))
            if tried[-1].outcome == "replaced":
                break
        decisions.append(tried[-1] if tried[-1].outcome == "replaced" else tried[0])
    return decisions


def replace_pattern(
    graph: G,
    pattern: Pattern | Callable[..., Any],
    replacement: Callable[..., Any] | None = None,
    *conditions: Condition,
) -> G:
    """``graph`` with every match of ``pattern`` replaced that may be, and a decision for each match.

    pattern: a ``Pattern``; or, as torch's function of this name takes them, two Python functions of the same parameters, and conditions.
    Matches are tried in the graph's order, and where a node matches in several ways, until one of them may be replaced.
    Raises ``Unsupported`` for a pattern that is not one call of calls.
    """
    if not isinstance(pattern, Pattern):
        pattern = Pattern(getattr(pattern, "__name__", "pattern"), pattern, replacement or pattern, conditions)
    edited = to_edit(graph)
    return with_graph(graph, edited, rewrite(edited, pattern, graph.stage))


class PostGradPass:
    """Patterns as a pass over the graphs that Inductor compiles, after its own passes: a value for ``post_grad_custom_post_pass``::

        with torch._inductor.config.patch(post_grad_custom_post_pass=PostGradPass(*POST_GRAD_FOLDS)):
            torch.compile(model)(x)

    It edits the graph it is called with, as such passes do; ``decisions`` has what was replaced and refused, call by call. Graphs there are
    aten graphs after Inductor's decompositions: a pattern must be written in these. What it compiles with such a pass, Inductor does not cache.
    """

    def __init__(self, *patterns: Pattern) -> None:
        self.patterns, self.decisions = patterns, list[Decision]()

    def __call__(self, graph: fx.Graph) -> None:
        for pattern in self.patterns:
            self.decisions += rewrite(graph, pattern, "post_grad")
        graph.lint()
