"""Re-expressing loops over another iteration space: solving indices for variables, splitting, ordering and merging dimensions.

In: loop nodes with bodies over variables of their own. Out: ``Member``s, the same nodes with every index over a group's variables,
and at the end new bodies (``rewrite``); the nodes that came in are left alone.
Always holds: each point of the group's space (or of its outer part) stands for one point of the member's own; where the member is ``stored``
this is one to one, so it writes each element of its buffer once.
Of symbolic sizes only what is known counts; an order of loops goes by the sizes at hand.
PyTorch's counterpart: ``torch/_inductor/sizevars.py`` (simplify_loops) and ``loop_body.py``. Left out: negative strides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch.fx as fx

from ..lowering import ops
from ..lowering.index import Div, Index, Mod, Var
from ..lowering.ir import LoopNode
from ..lowering.product import is_product, operands
from ..lowering.sizes import at_most, hint

Level = Literal["full", "outer"]


@dataclass(frozen=True)
class Space:
    """An iteration space: ``outer`` x ``inner``. ``inner`` is empty unless something is reduced over it."""

    outer: tuple[Var, ...]
    inner: tuple[Var, ...]

    @property
    def variables(self) -> tuple[Var, ...]:
        return self.outer + self.inner

    @property
    def numel(self) -> int:
        return numel(self.variables)


@dataclass(frozen=True)
class Traits:
    """What fusion asks about a node, worked out once. ``work``: scalar operations of the body."""

    reduction: bool
    ordered: bool  # argmax, argmin: the result is a position in the inner loops' own order
    expensive: bool  # has an op of ops.EXPENSIVE, or a gather
    work: int
    product: bool  # a matrix product, which a template computes


@dataclass(frozen=True)
class Member:
    """A node as it stands in a group: ``reads``, ``store`` and ``others`` (numbers made of indices) are its body's indices, in body order,
    over the group's variables."""

    node: LoopNode
    position: int
    traits: Traits
    level: Level
    reads: tuple[tuple[str, Index], ...]
    store: Index
    others: tuple[Index, ...]
    stored: bool = True

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def per_row(self) -> bool:
        """One value for each outer point."""
        return self.traits.reduction or self.level == "outer"

    def indices(self) -> Iterator[Index]:
        yield from (index for _, index in self.reads)
        yield from self.others
        yield self.store


def moved(members: Iterable[Member], mapping: Mapping[Var, Index]) -> tuple[Member, ...]:
    """The members over another space, given their present variables there."""
    if all(Index.of(v) == i for v, i in mapping.items()):
        return tuple(members)
    known: dict[Index, Index] = {}

    def move(index: Index) -> Index:
        if index not in known:
            known[index] = index.substitute(mapping)
        return known[index]

    return tuple(replace(m, reads=tuple((b, move(i)) for b, i in m.reads), store=move(m.store), others=tuple(move(i) for i in m.others)) for m in members)


def numel(variables: Iterable[Var]) -> int:
    return math.prod(v.size for v in variables)


def is_indirect(index: Index) -> bool:
    return any(v.name.startswith("%") for v in index.variables())


def calls(node: LoopNode) -> list[fx.Node]:
    return list(node.body.nodes)


def traits_of(node: LoopNode) -> Traits:
    body = calls(node)
    names = [n.target.__name__ for n in body]  # type: ignore[union-attr]
    kinds = [n.args[0] for n in body if n.target is ops.reduce]
    return Traits(
        reduction=bool(node.inner),
        ordered=any(k in ("argmax", "argmin") for k in kinds),
        expensive=any(name in ops.EXPENSIVE or name == "indirect" for name in names),
        work=sum(name in ops.SCALAR for name in names),
        product=is_product(node),
    )


def with_body(member: Member, body: fx.Graph) -> Member:
    """The member with another body, over the variables the body's indices are over."""
    reads: list[tuple[str, Index]] = []
    others: list[Index] = []
    store = member.store
    node = replace(member.node, body=body)
    for n in calls(node):
        if n.target is ops.load:
            reads.append((str(n.args[0]), n.args[1]))  # type: ignore[arg-type]
        elif n.target is ops.store:
            store = n.args[1]
        else:
            others += [a for a in n.args if isinstance(a, Index)]
    return replace(member, node=node, traits=traits_of(node), reads=tuple(reads), store=store, others=tuple(others))


def member_of(node: LoopNode, position: int) -> tuple[Space, Member]:
    """The node alone in a space of its own, with the fewest dimensions its indices allow."""
    member = with_body(Member(node, position, traits_of(node), "full", (), Index(), ()), node.body)
    space = Space(node.outer, node.inner)
    if space.numel:
        space, (member,) = tidy(space, (member,))
    return space, member


def chain(index: Index, variables: Iterable[Var]) -> list[tuple[Var, int]] | None:
    """(variable, stride), smallest stride first, where each stride steps over all of the smaller ones: a number that can be read back
    digit by digit. None where the index is not of that form."""
    wanted = [v for v in variables if v.size != 1]
    coefficients = dict(index.terms)
    if len(coefficients) != len(wanted) or any(v not in coefficients or not at_most(1, coefficients[v]) for v in wanted):
        return None
    digits = sorted(((v, coefficients[v]) for v in wanted), key=lambda t: hint(t[1]))
    for (v, s), (_, following) in itertools.pairwise(digits):
        if following % s or not at_most(v.size * s, following):
            return None
    return digits


def solve(index: Index, variables: Sequence[Var], value: Index) -> dict[Var, Index] | None:
    """The variables for which ``index`` has the given ``value``, where they can be read off; None where they cannot, or leave their range."""
    digits = chain(index, variables)
    if digits is None:
        return None
    rest = value - index.const
    solution = {v: Index() for v in variables}
    if (rest % digits[0][1] if digits else rest) != Index():
        return None
    for k, (v, stride) in enumerate(digits):
        digit = rest // stride
        if k + 1 < len(digits):
            digit = digit % (digits[k + 1][1] // stride)
        low, high = digit.range()
        if not at_most(0, low) or not at_most(high + 1, v.size):
            return None
        solution[v] = digit
    return solution


def renamed(old: Sequence[Var], new: Sequence[Var]) -> dict[Var, Index]:
    return {a: Index.of(b) for a, b in zip(old, new, strict=True)}


def tidy(space: Space, members: tuple[Member, ...], unwritten: frozenset[str] = frozenset()) -> tuple[Space, tuple[Member, ...]]:
    """The same members over the fewest loops: variables split where an index divides them, ordered by stride, and merged; named x0.., r0..

    The last variable is the one along which memory is contiguous, where there is one. ``unwritten`` buffers have no say in the order.
    """
    outer, inner = list(space.outer), list(space.inner)
    for _ in range(8):
        cut = next((c for m in members for i in m.indices() if (c := _cut(i))), None)
        if cut is None or cut[0] not in space.variables:
            break
        var, by = cut
        high, low = Var(f"{var.name}h", var.size // by), Var(f"{var.name}l", by)
        members = moved(members, {var: Index.of(high) * by + low})
        for side in (outer, inner):
            if var in side:
                side[side.index(var) : side.index(var) + 1] = [high, low]
        space = Space(tuple(outer), tuple(inner))
    ordered = any(m.traits.ordered for m in members)
    outer = _sorted(outer, [m.store for m in members if m.name not in unwritten] or [m.store for m in members if m.stored])
    if not ordered:
        inner = _sorted(inner, [i for m in members if not m.per_row or m.traits.reduction for _, i in m.reads] + [m.store for m in members if not m.per_row])
    indices = list(dict.fromkeys(i for m in members for i in m.indices()))
    outer, mapping = _merged(outer, indices, "x")
    inner, more = _merged(inner, indices, "r")
    if space.inner and not inner:
        inner = [Var("r0", 1)]
    mapping |= more
    return Space(tuple(outer), tuple(inner)), moved(members, mapping)


def _cut(index: Index) -> tuple[Var, int] | None:
    """A variable that the index divides, and by what, where splitting it there leaves no division."""
    for atom, _ in index.terms:
        if isinstance(atom, (Div, Mod)):
            inside = atom.index
            if len(inside.terms) == 1 and inside.const == 0 and inside.terms[0][1] == 1:
                (only, _) = inside.terms[0]
                if isinstance(only, Var) and only.size % atom.by == 0 and at_most(2, atom.by) and at_most(atom.by + 1, only.size):
                    return only, atom.by
            if found := _cut(inside):
                return found
    return None


def _sorted(variables: list[Var], references: Iterable[Index]) -> list[Var]:
    """Variables by falling stride in the first reference that strides in all of them; as they are where there is none."""
    variables = [v for v in variables if v.size != 1]
    for index in references:
        strides = {v: index.coefficient(v) for v in variables}
        if all(strides.values()):
            return sorted(variables, key=lambda v: -hint(strides[v] or 0))
    return variables


def _merged(variables: list[Var], indices: list[Index], prefix: str) -> tuple[list[Var], dict[Var, Index]]:
    """Neighbours that every index walks as one are made one. Gives the new variables, named ``prefix0``.., and the old ones over them."""
    groups = [[v] for v in variables]
    for left in range(len(groups) - 2, -1, -1):
        size = numel(groups[left + 1])
        a, b = groups[left][0], groups[left + 1][-1]
        if all(_walks_as_one(i, a, groups[left + 1], b, size) for i in indices):
            groups[left : left + 2] = [groups[left] + groups[left + 1]]
    result: list[Var] = []
    mapping: dict[Var, Index] = {}
    for number, group in enumerate(groups):
        new = Var(f"{prefix}{number}", numel(group))
        result.append(new)
        rest = Index.of(new)
        for v in reversed(group[1:]):
            mapping[v] = rest % v.size
            rest = rest // v.size
        mapping[group[0]] = rest
    return result, mapping


def _walks_as_one(index: Index, a: Var, group: list[Var], last: Var, size: int) -> bool:
    stride, step = index.coefficient(a), index.coefficient(last)
    return stride is not None and step is not None and stride == step * size and all(index.coefficient(v) is not None for v in group)


def statements(member: Member) -> Iterator[tuple[fx.Node, list[Any]]]:
    """Each call of the member's body with its arguments, indices over the group's variables."""
    reads, others = iter(member.reads), iter(member.others)
    for n in calls(member.node):
        args: list[Any] = list(n.args)
        if n.target is ops.load:
            args[1] = next(reads)[1]
        elif n.target is ops.store:
            args[1] = member.store
        else:
            args = [next(others) if isinstance(a, Index) else a for a in args]
        yield n, args


def emit(body: fx.Graph, n: fx.Node, args: list[Any], made: dict[fx.Node, fx.Node]) -> None:
    """Adds ``n`` to ``body``; it keeps dtype, parents and stack. ``made``: old nodes -> new ones; other arguments stand as they are."""
    made[n] = body.call_function(n.target, tuple(made.get(a, a) if isinstance(a, fx.Node) else a for a in args))  # type: ignore[arg-type]
    made[n].meta = dict(n.meta)


def rewrite(member: Member, space: Space) -> LoopNode:
    """The node over the group's variables: a new body with every index re-expressed."""
    full = member.level == "full"
    inner = space.inner if member.traits.reduction else ()
    outer = space.outer if inner or not full else space.variables
    body = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for n, args in statements(member):
        emit(body, n, args, made)
    return replace(member.node, outer=outer, inner=inner, body=body)


def keeps_products(space: Space, members: Sequence[Member]) -> bool:
    """Whether each matrix product among them stands alone over its rows, columns and depth, so that a template can still compute it."""
    found = [m for m in members if m.traits.product]
    if not found:
        return True
    alone = len(found) == 1 and all(m.per_row for m in members) and sum(m.traits.reduction for m in members) == 1
    return alone and operands(rewrite(found[0], space).body, space.outer, space.inner) is not None
