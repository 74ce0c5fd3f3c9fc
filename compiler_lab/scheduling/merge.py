"""Whether two groups can be one loop, and the group they then are.

In: two ``Draft``s, groups being built. Out: their union over one space, or the id of the reason against it.
Always holds: in a draft, a member that reads what another makes reads it at the point where it is made, or at a point of the same
row in a later sweep; the map from the one's space to the other's is one to one.
PyTorch's counterpart: ``torch/_inductor/scheduler.py`` (can_fuse_vertical, can_fuse_horizontal). Left out: tiling two loop orders
into one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..lowering.index import Index, Var
from ..lowering.sizes import hint
from .respace import Level, Member, Space, chain, is_indirect, keeps_products, moved, numel, renamed, solve, tidy

FEW_ROWS, LONG_ROW = 8, 16384
"""Below so many rows of more elements than this, sweeping again would leave cores idle and read memory again."""
SMALL_COLUMNS = 32768
"""Elements up to which columns, walked across, stay in cache between sweeps."""

Alignment = tuple[dict[Var, Index], Level]


@dataclass(frozen=True)
class Draft:
    """A group being built: members in program order over ``space``."""

    slot: int  # the smallest position of its members
    space: Space
    members: tuple[Member, ...]

    @property
    def reduces(self) -> bool:
        return bool(self.space.inner)

    @cached_property
    def by_name(self) -> Mapping[str, Member]:
        return {m.name: m for m in self.members}

    @cached_property
    def accesses(self) -> Mapping[str, tuple[tuple[Index, Member], ...]]:
        """Buffer -> every (index, member) that touches it, distinct indices only."""
        found: dict[str, dict[Index, Member]] = {}
        for m in self.members:
            for buffer, index in (*m.reads, (m.name, m.store)):
                found.setdefault(buffer, {}).setdefault(index, m)
        return {b: tuple(d.items()) for b, d in found.items()}


def merge(a: Draft, b: Draft, single_reader: Mapping[str, bool]) -> Draft | str:
    """One draft of both, or why not. ``single_reader``: buffers with one reader that are no outputs."""
    if a.reduces and b.reduces:
        if a.space.numel != b.space.numel or numel(a.space.outer) != numel(b.space.outer):
            return "reduction boundary" if _depends(a, b) else "different size"
        orders = [(a, b)] if len(a.space.variables) >= len(b.space.variables) else [(b, a)]
    elif a.reduces or b.reduces:
        orders = [(a, b) if a.reduces else (b, a)]
        base, other = orders[0]
        if other.space.numel not in (base.space.numel, numel(base.space.outer)):
            return _size_reason(a, b)
    else:
        if a.space.numel != b.space.numel:
            return _size_reason(a, b)
        orders = [(a, b), (b, a)] if len(a.space.variables) > len(b.space.variables) else [(b, a), (a, b)]
    reason = "loop order"
    for base, other in orders:
        result = _onto(base, other, single_reader)
        if isinstance(result, Draft):
            return result
        if result != "loop order":
            reason = result
    return reason


def _depends(a: Draft, b: Draft) -> bool:
    return any(buffer in a.by_name for m in b.members for buffer, _ in m.reads) or any(buffer in b.by_name for m in a.members for buffer, _ in m.reads)


def _size_reason(a: Draft, b: Draft) -> str:
    early, late = (a, b) if a.slot <= b.slot else (b, a)
    if not _depends(a, b):
        return "different size"
    if early.reduces:
        return "reduction boundary"
    return "broadcast" if hint(late.space.numel) > hint(early.space.numel) else "different size"


def _onto(base: Draft, other: Draft, single_reader: Mapping[str, bool]) -> Draft | str:
    """``other`` placed into the space of ``base``."""
    reason = "loop order"
    for mapping, level in alignments(base, other):
        guests = moved(other.members, mapping)
        if level == "outer":
            guests = tuple(replace(m, level="outer") for m in guests)
        problem = conflict(base, guests) or _walks_across(base, other, guests, level, single_reader)
        if problem is None:
            draft = Draft(min(base.slot, other.slot), base.space, tuple(sorted((*base.members, *guests), key=lambda m: m.position)))
            if any(chain(i, draft.space.variables) is None and not i.is_affine for m in guests for i in m.indices()):
                space, members = tidy(draft.space, draft.members)
                draft = Draft(draft.slot, space, members)
                if not sound(draft):
                    continue
            if sweeps_too_much(draft) or not keeps_products(draft.space, draft.members):
                return "reduction boundary"
            return draft
        reason = problem
    return reason


def alignments(base: Draft, other: Draft) -> Iterator[Alignment]:
    """Maps of the other's variables into the base's space, the most natural first; each is one to one onto the space or its rows."""
    seen: list[dict[Var, Index]] = []
    for mapping, level in _candidates(base, other):
        if mapping not in seen:
            seen.append(mapping)
            yield mapping, level


def _candidates(base: Draft, other: Draft) -> Iterator[Alignment]:
    ours, theirs = base.space, other.space
    levels: list[tuple[Level, tuple[Var, ...]]] = []
    if theirs.numel == numel(ours.outer) and base.reduces and not other.reduces:
        levels.append(("outer", ours.outer))
    if theirs.numel == ours.numel:
        levels.append(("full", ours.variables))
    for level, target in levels:
        if _sizes(theirs.variables) == _sizes(target) and (not other.reduces or _sizes(theirs.inner) == _sizes(ours.inner)):
            yield renamed(theirs.variables, target), level
        for mine, its in _links(base, other):
            if chain(mine, target) is None:
                continue
            mapping = solve(its, theirs.variables, mine)
            if mapping is not None and _respects(mapping, base, other):
                yield mapping, level
        if level == "full" and base.reduces and not other.reduces:
            for mapping in _by_rows(base, other):
                yield mapping, level


def _sizes(variables: tuple[Var, ...]) -> tuple[int, ...]:
    return tuple(v.size for v in variables)


def _links(base: Draft, other: Draft) -> list[tuple[Index, Index]]:
    """Pairs of indices at which both touch one buffer; those of buffers that one makes and the other reads first."""
    made = [b for b in base.accesses if b in other.accesses and (b in base.by_name or b in other.by_name)]
    shared = [b for b in base.accesses if b in other.accesses and b not in made]
    return [(i, j) for b in made + shared for i, _ in base.accesses[b][:3] for j, _ in other.accesses[b][:3]][:12]


def _respects(mapping: dict[Var, Index], base: Draft, other: Draft) -> bool:
    """Inner variables stay inner: what is reduced over is the same."""
    if not other.reduces:
        return True
    inner = frozenset(base.space.inner)
    ordered = any(m.traits.ordered for m in (*base.members, *other.members))
    if ordered and flat(other.space.inner).substitute(mapping) != flat(base.space.inner):
        return False
    return all(not (mapping[v].variables() & inner) for v in other.space.outer) and all(mapping[v].variables() <= inner for v in other.space.inner)


def flat(variables: tuple[Var, ...]) -> Index:
    """The number of a point in row-major order."""
    result, step = Index(), 1
    for v in reversed(variables):
        result, step = result + Index.of(v) * step, step * v.size
    return result


def _by_rows(base: Draft, other: Draft) -> Iterator[dict[Var, Index]]:
    """The other reads a result per row at an index over some of its variables: those are the row, the rest run along it, in order."""
    for mine, its in _links(base, other):
        row = tuple(v for v in other.space.variables if v in its.variables())
        rest = tuple(v for v in other.space.variables if v not in row)
        if chain(mine, base.space.outer) is None or numel(row) != numel(base.space.outer):
            continue
        first, second = solve(its, row, mine), solve(flat(rest), rest, flat(base.space.inner))
        if first is not None and second is not None:
            yield first | second


def conflict(base: Draft, guests: tuple[Member, ...]) -> str | None:
    """Why some value would be read where it is not made, after ``guests`` have joined ``base``; None where all is well."""
    theirs = {m.name: m for m in guests}
    for readers, made in ((guests, base.by_name), (base.members, theirs)):
        for m in readers:
            for buffer, index in m.reads:
                if buffer in made and where_read(made[buffer], m, index, base.space) is None:
                    return "indirect access" if is_indirect(index) else "loop order"
    return None


def sound(draft: Draft) -> bool:
    """Whether it can be shown of every value the draft makes that it is read where it may be; another form of the indices may hide it."""
    made = draft.by_name
    return all(where_read(made[b], m, i, draft.space) is not None for m in draft.members for b, i in m.reads if b in made)


def where_read(producer: Member, reader: Member, index: Index, space: Space) -> str | None:
    """ "here" (at the point where it is made), "row" (elsewhere in the same row, so in a later sweep), or None (another row)."""
    if index == producer.store and (producer.per_row or reader.level == "full"):
        return "here"
    if producer.per_row or not space.inner or not producer.stored:
        return None
    point = solve(producer.store, space.variables, index)
    return "row" if point is not None and all(point[v] == Index.of(v) for v in space.outer) else None


def _walks_across(base: Draft, other: Draft, guests: tuple[Member, ...], level: Level, single_reader: Mapping[str, bool]) -> str | None:
    """Whether joining makes loops that walked along memory walk across it: only worth it for a value that then needs no memory at all."""
    along, last = _contiguous(base), other.space.variables[-1:]
    if level == "outer" or other.reduces or along is None or not last:
        return None
    if not any(m.store.coefficient(last[0]) == 1 != n.store.coefficient(along) for m, n in zip(other.members, guests, strict=True)):
        return None
    (alone, *more) = other.members
    vanishes = not more and single_reader.get(alone.name, False) and any(alone.name == b for m in base.members for b, _ in m.reads)
    return None if vanishes and not alone.traits.expensive else "loop order"


def _contiguous(base: Draft) -> Var | None:
    """The variable along which most of what the base touches over its full space lies in a row."""
    votes = dict.fromkeys(base.space.variables, 0)
    indices = [i for m in base.members for _, i in (*m.reads, ("", m.store))]
    for index in indices:
        if all(index.coefficient(v) != 0 for v in votes):
            for v in votes:
                votes[v] += index.coefficient(v) == 1
    best = max(votes.values(), default=0)
    return next((v for v in reversed(base.space.variables) if votes[v] == best), None) if best else None


def earliest(members: tuple[Member, ...], space: Space) -> dict[str, int]:
    """The first sweep in which each member can run; a member per row that reduces nothing runs before the sweep of its number."""
    by_name = {m.name: m for m in members}
    at: dict[str, int] = {}
    for m in members:
        sweep = 0
        for buffer, index in m.reads:
            p = by_name.get(buffer)
            if p is not None:
                later = p.traits.reduction or (not p.per_row and where_read(p, m, index, space) != "here")
                sweep = max(sweep, at[buffer] + later)
        at[m.name] = sweep
    return at


def sweeps_too_much(draft: Draft) -> bool:
    """Whether the draft has several sweeps over what does not stay in cache between them, or over too few rows for all cores."""
    if not draft.reduces:
        return False
    at = earliest(draft.members, draft.space)
    if not any(at[m.name] for m in draft.members if m.level == "full"):
        return False
    rows, row = hint(numel(draft.space.outer)), hint(numel(draft.space.inner))
    if rows < FEW_ROWS and row > LONG_ROW:
        return True
    return walks_columns(draft) and rows * row > SMALL_COLUMNS


def walks_columns(draft: Draft) -> bool:
    """Whether memory is contiguous along the last outer variable rather than along the last inner one."""
    if not draft.space.outer:
        return False
    last, inner = draft.space.outer[-1], draft.space.inner[-1]
    if last.size == 1:
        return False
    indices = [i for m in draft.members if m.level == "full" for _, i in (*m.reads, *([] if m.per_row else [("", m.store)]))]
    return sum(i.coefficient(last) == 1 for i in indices if i.coefficient(inner) != 0) > sum(i.coefficient(inner) == 1 for i in indices)
