"""How a value is computed again in another group: placed there as a node of its own, or written into the body of each reader.

In: a chain of cheap values of one draft, and a draft that reads the last of them. Out: the reading draft, which then loads only what the
chain loads; or the reason against it.
Always holds: what is placed is ``stored=False`` and has one index in its group; what is written into a body stands at the index of the
load it replaces, operands known only at run time included (the gather of a row of log_softmax computes one element of it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch.fx as fx

from ..lowering import ops
from ..lowering.index import Index, Var
from .merge import Draft, sound
from .respace import Member, emit, is_indirect, moved, solve, statements, with_body


@dataclass(frozen=True)
class Chain:
    """A value and the internal values of its group behind it, in order; ``inputs`` are buffers that are loaded."""

    members: tuple[Member, ...]
    inputs: frozenset[str]

    @property
    def last(self) -> Member:
        return self.members[-1]

    def at(self, source: Draft, index: Index) -> dict[Var, Index] | None:
        """The point of the source's space at which the value at ``index`` is made."""
        return solve(self.last.store, source.space.variables if self.last.level == "full" else source.space.outer, index)


def place(chain: Chain, source: Draft, target: Draft) -> Draft | str:
    """The target with the chain in it as nodes, at the one index at which the target reads its value."""
    (index, *others) = {i for m in target.members for b, i in m.reads if b == chain.last.name}
    if is_indirect(index):
        return "indirect access"
    mapping = chain.at(source, index)
    if others or mapping is None:
        return "loop order"
    added: list[Member] = []
    for m in moved(chain.members, mapping):
        copy = replace(m, stored=False)
        rows_only = target.reduces and all(v in target.space.outer for i in copy.indices() for v in i.variables() if not v.name.startswith("%"))
        copy = replace(copy, level="outer" if rows_only else "full")
        present = target.by_name.get(m.name)
        if present is not None and present.store != copy.store:
            return "loop order"
        if present is None:
            added.append(copy)
    if not any(m.name == chain.last.name and m.store == index for m in added):
        return "loop order"
    return replace(target, members=tuple(sorted((*target.members, *added), key=lambda m: m.position)))


def inline(chain: Chain, source: Draft, target: Draft, elsewhere: Callable[[Member, Index], bool]) -> Draft | str:
    """The target with the chain written into the bodies of its readers, for the loads that are ``elsewhere``."""
    members: list[Member] = []
    for m in target.members:
        if any(b == chain.last.name and elsewhere(m, i) for b, i in m.reads):
            body = _inlined(chain, source, m, elsewhere)
            if body is None:
                return "loop order"
            m = with_body(m, body)
        members.append(m)
    result = replace(target, members=tuple(members))
    return result if sound(result) else "loop order"


def _inlined(chain: Chain, source: Draft, reader: Member, elsewhere: Callable[[Member, Index], bool]) -> fx.Graph | None:
    body = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for n, args in statements(reader):
        if n.target is ops.load and args[0] == chain.last.name and elsewhere(reader, args[1]):
            mapping = chain.at(source, args[1])
            if mapping is None:
                return None
            made[n] = _value(body, chain, mapping, [made[a] for a in args[2:]])
        else:
            emit(body, n, args, made)
    return body


def _value(body: fx.Graph, chain: Chain, mapping: dict[Var, Index], operands: list[fx.Node]) -> fx.Node:
    """Adds the whole chain to ``body`` at one point; the value its last member would store."""
    values: dict[str, fx.Node] = {}
    for m in moved(chain.members, mapping):
        made: dict[fx.Node, fx.Node] = {}
        for n, args in statements(m):
            if n.target is ops.store:
                values[m.name] = made[args[2]]
            elif n.target is ops.load and args[0] in values:
                made[n] = values[args[0]]
            else:
                emit(body, n, [*args, *_run_time(args, operands)], made)
    return values[chain.last.name]


def _run_time(args: list[Any], operands: list[fx.Node]) -> list[fx.Node]:
    """The operands a load, or a number made of an index, needs for the ``%`` variables."""
    return operands if len(args) == 2 and any(isinstance(a, Index) and is_indirect(a) for a in args) else []
