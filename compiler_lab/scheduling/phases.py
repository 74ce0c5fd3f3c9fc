"""From a draft to a kernel: in which sweep each node stands, what is kept between sweeps, and how the loop is walked.

In: a ``Draft`` and the buffers others need of it. Out: a ``LoopGroup`` with bodies over its variables.
Always holds: a value is made before it is read, in the same phase or in an earlier one that keeps it; what is cheap and needed in
several sweeps is made again in each, what is expensive waits in a scratch row, what is stored anyway is read back.
PyTorch's counterpart: ``torch/_inductor/codegen/simd.py`` (generate_node_schedule: DisableReduction, EnableReduction).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..core.artifact import Decision
from ..lowering.index import Var
from .ir import LoopGroup, Phase, Shape
from .merge import Draft, earliest, sound, walks_columns, where_read
from .respace import Member, Space, keeps_products, rewrite, tidy

LONG_CHAIN = 16
"""Scalar operations up to which a value is computed again rather than kept."""


@dataclass
class Placement:
    """``sweeps[name]``: the sweeps (or for a per-row node, the gap) it stands in; ``forced``: stored only to be read at other points."""

    sweeps: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    kept: dict[str, Literal["memory", "row"]] = field(default_factory=dict[str, Literal["memory", "row"]])
    forced: set[str] = field(default_factory=set[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])


def build_group(draft: Draft, needed: frozenset[str], stage: str) -> tuple[LoopGroup, tuple[Decision, ...]]:
    """``needed``: buffers of the draft that other groups or the program's outputs read. The name of the group is given later."""
    written = frozenset(m.name for m in draft.members) - needed
    if draft.space.numel:
        tidied = Draft(draft.slot, *tidy(draft.space, draft.members, unwritten=written if needed else frozenset()))
        draft = tidied if sound(tidied) and keeps_products(tidied.space, tidied.members) else draft
    space, members = draft.space, draft.members
    at = earliest(members, space)
    shape = shape_of(draft, at)
    if shape == "row" and not space.outer:
        space = Space((Var("x0", 1),), space.inner)
    place = placement(members, space, at, needed)
    group = LoopGroup(
        name="",
        outer=space.outer,
        inner=space.inner,
        phases=phases_of(members, space, place),
        internal=written - place.forced,
        kept={m.name: place.kept[m.name] for m in members if m.name in place.kept},
        shape=shape,
    )
    decisions = (Decision("keep", (f"{stage}/{m.name}",), _outcome(place, m.name), place.reasons[m.name]) for m in members if m.name in place.reasons)
    return group, tuple(decisions)


def _outcome(place: Placement, name: str) -> str:
    return place.kept.get(name, "again")


def shape_of(draft: Draft, at: dict[str, int]) -> Shape:
    if not draft.reduces:
        return "pointwise"
    if not draft.space.outer:
        single = not any(at[m.name] for m in draft.members if m.level == "full")
        return "flat" if single else "row"
    if any(m.traits.product for m in draft.members):
        return "product"
    return "column" if walks_columns(draft) else "row"


def placement(members: tuple[Member, ...], space: Space, at: dict[str, int], needed: frozenset[str]) -> Placement:
    """Consumers first: each tells its producers in which sweeps it wants their values."""
    by_name = {m.name: m for m in members}
    place = Placement()
    wanted: dict[str, set[int]] = {}
    work = _chain_work(members)
    for m in reversed(members):
        sweeps = {at[m.name]} if m.per_row else wanted.get(m.name) or {at[m.name]}
        if len(sweeps) > 1 and not m.per_row:
            sweeps = _keep(m, sweeps, place, stored=m.name in needed, cheap=not m.traits.expensive and work[m.name] <= LONG_CHAIN)
        place.sweeps[m.name] = sweeps
        for buffer, index in m.reads:
            p = by_name.get(buffer)
            if p is None or p.per_row:
                continue
            if where_read(p, m, index, space) == "here":
                wanted.setdefault(buffer, set()).update(sweeps)
            else:
                wanted.setdefault(buffer, set()).add(at[buffer])
                place.kept[buffer] = "memory"
                if buffer not in needed:
                    place.forced.add(buffer)
                    place.reasons[buffer] = "read at other points"
    return place


def _keep(m: Member, sweeps: set[int], place: Placement, stored: bool, cheap: bool) -> set[int]:
    """Records how a value wanted in several sweeps is had in all of them; the sweeps in which it is made."""
    if stored or m.name in place.forced:
        place.kept[m.name] = "memory"
        place.reasons.setdefault(m.name, "stored anyway")
    elif cheap or not m.stored:
        place.reasons[m.name] = "computed again"
        return sweeps
    else:
        place.kept[m.name] = "row"
        place.reasons[m.name] = "kept in a row"
    return {min(sweeps)}


def _chain_work(members: tuple[Member, ...]) -> dict[str, int]:
    """Scalar operations behind each full pointwise value, back to loads and per-row values."""
    by_name = {m.name: m for m in members}
    work: dict[str, int] = {}
    for m in members:
        behind = {b for b, _ in m.reads if b in by_name and not by_name[b].per_row and not by_name[b].traits.expensive}
        work[m.name] = m.traits.work + sum(work[b] for b in behind)
    return work


def phases_of(members: tuple[Member, ...], space: Space, place: Placement) -> tuple[Phase, ...]:
    nodes = {m.name: rewrite(m, space) for m in members}
    if not space.inner:
        return (Phase("outer", tuple(nodes[m.name] for m in members)),)
    last = max(max(s) for s in place.sweeps.values())
    phases: list[Phase] = []
    for sweep in range(last + 1):
        for kind in ("outer", "full"):
            here = tuple(nodes[m.name] for m in members if m.level == kind and sweep in place.sweeps[m.name])
            if here:
                phases.append(Phase(kind, here))
    return tuple(phases)
