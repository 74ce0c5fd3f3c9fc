"""Loops cut where a condition on the place changes: ``cat``, ``pad``, ``roll`` and masks become plain loops over pieces.

In: a pointwise ``LoopGroup`` whose bodies compare an index with a constant (``i < 700``) or divide one. Out: pieces of its iteration
space; in each of them the comparison has one outcome, the untaken branch is not even loaded, and the division is gone.
Always holds: the pieces cover each point once; a piece that has lost its conditions is walked by as few loops as its indices allow.
PyTorch's counterpart: none in ``torch/_inductor`` (it masks; ``cat`` may be split into views of the output, ``ConcatKernel``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
import torch.fx as fx

from ..lowering import ops
from ..lowering.index import Div, Index, Mod, Var
from ..lowering.sizes import at_most, is_number
from ..scheduling.ir import LoopGroup
from .cpp_reduce import numel

MOST_PIECES = 16
MOST_CUTS = 7
"""Cuts along one variable: one that would need more keeps its condition in the loop."""
WORTH_CUTTING = 4096
"""A smaller loop stays whole: each piece repeats the statements."""

COMPARISONS = frozenset((ops.lt, ops.le, ops.gt, ops.ge, ops.eq, ops.ne))
PLACES = (torch.int64, torch.int32)
"""What numbers of the place are counted in."""

Mapped = Mapping[Var, Index]


def outcome(op: str, low: int, high: int) -> bool | None:
    """Of ``a op b`` with ``low <= a - b <= high``; None where it depends."""
    if op in ("lt", "ge"):
        known = True if at_most(high, -1) else False if at_most(0, low) else None
    elif op in ("gt", "le"):
        known = True if at_most(1, low) else False if at_most(high, 0) else None
    elif op in ("eq", "ne"):
        known = True if low == high == 0 else False if at_most(1, low) or at_most(high, -1) else None
    else:
        return None
    return known if known is None or op in ("lt", "gt", "eq") else not known


def difference(n: fx.Node) -> Index | None:
    """``a - b`` of a comparison of integers that are numbers of the place, or constants; None where it is not one."""
    if n.target not in COMPARISONS:
        return None
    sides = [_place(a) for a in n.args if isinstance(a, fx.Node)]
    return sides[0] - sides[1] if len(sides) == 2 and sides[0] is not None and sides[1] is not None else None


def _place(n: fx.Node) -> Index | None:
    if n.meta["dtype"] not in PLACES:
        return None
    if n.target is ops.index_value:
        return n.args[0]  # type: ignore[return-value]
    return Index.of(int(n.args[0])) if n.target is ops.constant else None  # type: ignore[arg-type]


def sum_of_places(op: str, operands: Sequence[Index | None], dtype: torch.dtype) -> Index | None:
    """The sum, difference or multiple of integers that follow from the place."""
    if len(operands) != 2:
        return None
    a, b = operands
    if a is None or b is None:
        return None
    if op in ("add", "sub"):
        return within(a + b if op == "add" else a - b, dtype)
    if op == "mul" and not (a.terms and b.terms):
        return within(a * b.const if a.terms else b * a.const, dtype)
    return None


def within(place: Index | None, dtype: torch.dtype) -> Index | None:
    """``place`` if ``dtype`` holds it; an integer that wraps is no place."""
    if place is None or dtype not in PLACES:
        return None
    low, high = place.range()
    info = torch.iinfo(dtype)
    return place if at_most(info.min, low) and at_most(high, info.max) else None


def by_conditions(group: LoopGroup) -> tuple[Mapped, ...]:
    """For each piece the group's variables over its own: ``{x0: x0, x1: 700 + x1}``, where ``x1`` now runs over fewer values."""
    whole: Mapped = {v: Index.of(v) for v in group.outer}
    if not _worth_cutting(group.outer):
        return (whole,)
    cuts = (c for phase in group.phases for node in phase.nodes for n in node.body.nodes for c in _condition_cuts(n))
    return _cut(whole, group.outer, cuts)


def by_divisions(piece: Mapped, used: Iterable[Index]) -> tuple[Mapped, ...]:
    """``piece`` cut where a division in the indices it needs comes to its next value."""
    variables = tuple(dict.fromkeys(v for i in piece.values() for v in i.variables()))
    if not _worth_cutting(variables):
        return (piece,)
    return _cut(piece, variables, (c for index in used for atom, _ in index.terms for c in _division_cuts(atom)))


def _worth_cutting(variables: Iterable[Var]) -> bool:
    """A loop whose size varies is written for large sizes."""
    points = numel(variables)
    return not is_number(points) or points >= WORTH_CUTTING


def _cut(piece: Mapped, variables: Sequence[Var], cuts: Iterable[tuple[Var, int]]) -> tuple[Mapped, ...]:
    found: dict[Var, set[int]] = {}
    for var, at in cuts:
        found.setdefault(var, set()).add(at)
    edges = {v: [0, *sorted(c), v.size] for v, c in found.items() if len(c) <= MOST_CUTS}
    count = 1
    for e in edges.values():
        count *= len(e) - 1
    if count > MOST_PIECES:
        return (piece,)
    spans = [[*itertools.pairwise(edges.get(v, [0, v.size]))] for v in variables]
    moves = ({v: Index.of(Var(v.name, hi - lo)) + lo for v, (lo, hi) in zip(variables, chosen, strict=True)} for chosen in itertools.product(*spans))
    return tuple({v: i.substitute(move) for v, i in piece.items()} for move in moves)


def _condition_cuts(n: fx.Node) -> Iterator[tuple[Var, int]]:
    """(variable, value) where the comparison ``n`` changes its outcome as the variable grows."""
    index = difference(n)
    if index is not None and (line := _line(index)):
        var, slope, start = line
        op: str = n.target.__name__  # type: ignore[union-attr]
        yield from ((var, k) for k in _near(-start, slope, var) if outcome(op, *(slope * k + start,) * 2) != outcome(op, *(slope * (k - 1) + start,) * 2))


def _division_cuts(atom: Var | Div | Mod) -> Iterator[tuple[Var, int]]:
    if not isinstance(atom, Var) and (line := _line(atom.index)):
        var, slope, start = line
        if not is_number(slope, start, var.size, atom.by):
            return
        first, last = start // atom.by, (slope * (var.size - 1) + start) // atom.by
        if slope > 0 and last - first <= MOST_CUTS:
            yield from ((var, -(-(q * atom.by - start) // slope)) for q in range(first + 1, last + 1))


def _line(index: Index) -> tuple[Var, int, int] | None:
    """(variable, slope, start) of an index over one variable."""
    if len(index.terms) != 1 or not isinstance(index.terms[0][0], Var) or index.terms[0][0].name.startswith("%"):
        return None
    return index.terms[0][0], index.terms[0][1], index.const


def _near(rise: int, slope: int, var: Var) -> Iterator[int]:
    """Values of ``var`` about where ``slope * var`` reaches ``rise``."""
    if is_number(slope) and (is_number(rise) or abs(slope) == 1):
        middle = rise // slope if is_number(rise) else rise * slope
        yield from (middle + k for k in range(-1, 3) if at_most(1, middle + k) and at_most(middle + k + 1, var.size))


def merged(variables: Sequence[Var], indices: Sequence[Index]) -> Mapped:
    """Each variable over fewer: neighbours that every index walks as one become one."""
    groups = [[v] for v in variables if v.size != 1]
    for left in range(len(groups) - 2, -1, -1):
        outer, inner = groups[left][-1], groups[left + 1][0]
        steps = [(i.coefficient(outer), i.coefficient(inner)) for i in indices]
        if all(a is not None and b is not None and a == b * inner.size for a, b in steps):
            groups[left : left + 2] = [groups[left] + groups[left + 1]]
    found: dict[Var, Index] = {v: Index.of(v) for v in variables}
    for group in groups:
        if len(group) > 1:
            rest = Index.of(Var(group[0].name, numel(group)))
            for v in reversed(group[1:]):
                found[v] = rest % v.size
                rest = rest // v.size
            found[group[0]] = rest
    return found
