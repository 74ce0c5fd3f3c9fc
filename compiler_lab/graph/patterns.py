"""Patterns: Python functions that are looked for in a graph, in every spelling and every order of operands that mean the same.

In: a ``Pattern`` (two Python functions and conditions) and a graph. Out: ``Match``es, in the order of the graph.
The pattern's function is traced; its parameters stand for anything, the same thing wherever a parameter is used twice. A call in the graph fits
a call of the pattern when ``spellings.read`` reads the same operation from both and the arguments fit, as they stand or, where the operation
commutes, exchanged: so ``x * sigmoid(x)`` is found where the program says ``torch.sigmoid(x).mul(x)``.
Always holds: what is found is the pattern with its parameters replaced; whether it may be rewritten is another question (``rewrite.py``).
PyTorch's counterparts: ``torch/fx/passes/utils/matcher_utils.py`` (one spelling, one order) and ``torch/_inductor/pattern_matcher.py``.
Left out: patterns with several results; chains regrouped (``(a + b) + c`` is not ``a + (b + c)``: floating point is not associative).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..core.errors import Unsupported
from ..core.fx import format_arg
from .spellings import Call, key_of, read
from .symbolic import symbolic_trace
from .values import Graph, module_of


@dataclass(frozen=True)
class Match:
    """Where a pattern was found. ``root`` is the node that gives its result; ``operands`` what stands for each parameter, a node or a plain
    value; ``nodes`` the graph's node for each call of the pattern, by the name it has there (``sigmoid``, ``mul``), in the graph's order;
    ``exchanged``: somewhere two operands stand the other way round."""

    pattern: Pattern
    root: fx.Node
    operands: Mapping[str, Any]
    nodes: Mapping[str, fx.Node]
    exchanged: bool = False

    def value(self, name: str) -> Any:
        """What is known of an operand or of a node of the pattern: a fake tensor, a plain value, or None."""
        found = self.nodes[name] if name in self.nodes else self.operands[name]
        return found.meta.get("val") if isinstance(found, fx.Node) else found

    def tensor(self, name: str) -> torch.Tensor | None:
        value = self.value(name)
        return value if isinstance(value, torch.Tensor) else None

    def text(self) -> str:
        operands = ", ".join(f"{k} = {format_arg(v)}" for k, v in self.operands.items())
        return f"{self.pattern.name} at {self.root.name}: {operands}" + (" (operands exchanged)" if self.exchanged else "")


@dataclass(frozen=True)
class Condition:
    """What must hold of a match before it is rewritten; ``why`` completes "refused, since ..."."""

    name: str
    holds: Callable[[Match], bool]
    why: str


@dataclass(frozen=True)
class Pattern:
    """``pattern`` is looked for, ``replacement`` takes its place, where all ``conditions`` hold.

    Both are Python functions of the same parameters. The replacement is run on proxies of the operands (plain values come as they are),
    so it may branch on plain values, and on what is known of a proxy: ``proxy.node.meta["val"]``.
    """

    name: str
    pattern: Callable[..., Any]
    replacement: Callable[..., Any]
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.result, fx.Node) or self.result.op == "placeholder":
            raise Unsupported(f"the pattern {self.name!r} is not one call of calls", reason="pattern", hint="return the one value that is to be replaced")
        if len(inspect.signature(self.replacement).parameters) != len(self.parameters):
            raise Unsupported(f"the pattern {self.name!r} and its replacement have different parameters", reason="pattern")

    @functools.cached_property
    def graph(self) -> fx.Graph:
        return symbolic_trace(self.pattern).graph

    @property
    def result(self) -> Any:
        return self.graph.output_node().args[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(str(n.target) for n in self.graph.nodes if n.op == "placeholder")

    @functools.cached_property
    def calls(self) -> Mapping[fx.Node, Call]:
        return {n: call for n in self.graph.nodes if (call := read(n)) is not None}


Binding = dict[fx.Node, Any]  # of the pattern's nodes


def _same(a: Any, b: Any) -> bool:
    """Plain values of one meaning: 1, 1.0 and True are three, and so are 0.0 and -0.0; tuples and lists are alike."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and (a is b or repr(a) == repr(b))


class _Search:
    """One pattern in one graph. Calls are read when they are met: most of a graph cannot be part of a match."""

    def __init__(self, pattern: Pattern, graph: fx.Graph) -> None:
        self.pattern, self.calls = pattern, dict[fx.Node, Call | None]()
        self.place = {n: i for i, n in enumerate(graph.nodes)}

    def call(self, node: fx.Node) -> Call | None:
        if node not in self.calls:
            self.calls[node] = read(node)
        return self.calls[node]

    def fit(self, part: Any, found: Any, bound: Binding) -> Iterator[Binding]:
        """The ways in which ``found`` can stand for ``part`` of the pattern, given what is ``bound``."""
        if isinstance(part, (tuple, list)) and isinstance(found, (tuple, list)):
            if len(part) == len(found):
                yield from self.fit_all(tuple(part), tuple(found), bound)
        elif not isinstance(part, fx.Node):
            if not isinstance(found, fx.Node) and _same(part, found):
                yield bound
        elif part in bound:
            if bound[part] is found or (not isinstance(found, fx.Node) and not isinstance(bound[part], fx.Node) and _same(bound[part], found)):
                yield bound
        elif part.op == "placeholder":
            yield {**bound, part: found}
        elif isinstance(found, fx.Node) and key_of(found) == self.pattern.calls[part].key and (call := self.call(found)) is not None:
            for order in call.orders():
                yield from self.fit_all(tuple(self.pattern.calls[part].arguments.values()), order, {**bound, part: found})

    def fit_all(self, parts: tuple[Any, ...], found: tuple[Any, ...], bound: Binding) -> Iterator[Binding]:
        if not parts:
            yield bound
        elif len(parts) == len(found):
            for one in self.fit(parts[0], found[0], bound):
                yield from self.fit_all(parts[1:], found[1:], one)

    def at(self, root: fx.Node) -> Iterator[Match]:
        """Every way in which the pattern gives ``root``; operands as they stand come first."""
        for bound in self.fit(self.pattern.result, root, {}):
            operands = {str(p.target): bound.get(p) for p in self.pattern.graph.nodes if p.op == "placeholder"}
            inner = sorted((p for p in bound if p.op != "placeholder"), key=lambda p: self.place[bound[p]])
            exchanged = any(self.exchanged(p, bound) for p in inner)
            yield Match(self.pattern, root, operands, {p.name: bound[p] for p in inner}, exchanged)

    def exchanged(self, part: fx.Node, bound: Binding) -> bool:
        call = self.call(bound[part])
        wanted, given = self.pattern.calls[part].arguments.values(), call.arguments.values() if call is not None else ()
        return any(isinstance(p, fx.Node) and bound.get(p) is not g for p, g in zip(wanted, given, strict=True) if isinstance(g, fx.Node))


def search(graph: fx.Graph, pattern: Pattern) -> Iterator[tuple[Match, ...]]:
    """For each node that the pattern can give, in order, the ways in which it does."""
    one = _Search(pattern, graph)
    key = pattern.calls[pattern.result].key
    for node in graph.nodes:
        if key_of(node) == key and (found := tuple(one.at(node))):
            yield found


def find_pattern(graph: Graph, pattern: Pattern | Callable[..., Any]) -> tuple[Match, ...]:
    """Where ``pattern`` stands in ``graph``, one match a node, whether it may be rewritten or not."""
    one = pattern if isinstance(pattern, Pattern) else Pattern(getattr(pattern, "__name__", "pattern"), pattern, pattern)
    return tuple(found[0] for found in search(module_of(graph).graph, one))
