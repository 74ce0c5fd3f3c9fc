"""Sweeps over rows in cases: where a condition on the place has one outcome for all lanes of a block, neither it nor the untaken side is computed.

In: a phase of a row kernel whose bodies compare places along its lanes, ``r0 >= x1 + 1`` for a causal mask. Out: a ``Case`` for each way in which the
comparisons can come out; blocks in which none holds throughout, the ones that the mask's edge crosses, keep the comparisons.
Always holds: each element is computed by the same operations, in the same lane, so results are those without cases, bit for bit; a value that no
longer depends on the place is computed once for the row.
PyTorch's counterpart: none in ``torch/_inductor``; FlexAttention's block masks (``torch/nn/attention/flex_attention.py``) skip blocks by the same argument.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch.fx as fx

from ..lowering import ops
from ..lowering.index import Index, Var
from ..lowering.sizes import at_most
from ..scheduling.ir import Phase
from .cpp_body import Bodies, Case, NodeCode, PhaseCode, Scope, Statement
from .cpp_reduce import proper

MOST_TEXT = 240
"""Statements of a sweep and its cases together."""
NAME = re.compile(r"\bt\d+\b")


def in_cases(b: Bodies, phase: Phase) -> PhaseCode:
    """The phase's code with its cases; none where they would be too many, or where there are no more lanes than one block has."""
    before, b.open = dict(b.stored), {}
    code, inner = b.phase(phase), proper(b.group.inner)
    if phase.space == "outer" or b.column or not inner or at_most(inner[-1].size, code.tile.width) or (b.shared and not code.reductions):
        return code
    after = b.stored
    for when, decided in _outcomes(b.open, inner[-1], code.tile.width, MOST_TEXT // max(len(code.sweep), 1)):
        b.stored, b.decided = dict(before), decided
        code.cases.append(_case(b, phase, when))
    b.stored, b.decided = after, {}
    return code


def _case(b: Bodies, phase: Phase, when: str) -> Case:
    scope, values = Scope(), list[str]()
    for node in phase.nodes:
        made = NodeCode(b, node, scope, outer=False)
        if (reduce := next((n for n in node.body.nodes if n.target is ops.reduce), None)) is None:
            made.store()
        else:
            values.append(made.value(reduce.args[1]).text)  # type: ignore[arg-type]
    for s in scope.statements:
        if s.flag:  # an error of this case: not one of a row that the case does not occur in
            s.variables |= {proper(b.group.inner)[-1].name}
    return Case(when, _used(scope.statements, values), values)


def _outcomes(comparisons: Mapping[fx.Node, Index], lane: Var, width: int, most: int) -> Iterator[tuple[str, Mapping[fx.Node, bool]]]:
    """(C++ condition, outcomes) for each way in which ``comparisons``, of places that differ by these, can come out the same for ``width`` lanes from ``at``.

    Comparisons that change along ``lane`` alone or beside outer variables (``r0 >= x1 + 1``: a causal mask) are told apart by the place where they do.
    Nothing where there would be ``most`` cases or more."""
    sides: dict[Index, dict[fx.Node, bool]] = {}
    for n, index in comparisons.items():
        if (turn := _turn(n, index, lane)) is not None:
            sides.setdefault(turn[0], {})[n] = turn[1]
    if not sides or 2 ** len(sides) >= most:
        return
    for chosen in itertools.product((True, False), repeat=len(sides)):
        tests = (_all_lanes(d, lane, width, up) for d, up in zip(sides, chosen, strict=True))
        yield " && ".join(tests), {n: up == above for nodes, up in zip(sides.values(), chosen, strict=True) for n, above in nodes.items()}


def _all_lanes(d: Index, lane: Var, width: int, up: bool) -> str:
    """Whether ``d``, which grows, is at least 0 in the first of the lanes, or below it in the last."""
    bound = d if up else d + (d.coefficient(lane) or 0) * (width - 1)
    return f"{bound.text(lambda v: 'at' if v == lane else v.name, '/')} {'>=' if up else '<'} 0".replace("+ -1*", "- ").replace("+ -", "- ")


def _turn(n: fx.Node, index: Index, lane: Var) -> tuple[Index, bool] | None:
    """(d, above): the comparison ``n`` holds where ``d >= 0``, or with ``above`` False where not; ``d`` grows with ``lane``."""
    if n.target in (ops.eq, ops.ne) or any(v.name.startswith("%") for v in index.variables()):
        return None
    d, above = index if n.target in (ops.lt, ops.ge) else index - 1, n.target in (ops.ge, ops.gt)
    slope = d.coefficient(lane)
    if slope is None or not (at_most(1, slope) or at_most(slope, -1)):
        return None
    return (d, above) if at_most(1, slope) else (d * -1 - 1, not above)


def _used(statements: Sequence[Statement], values: Iterable[str]) -> list[Statement]:
    """Without what is computed for nothing, now that a condition is decided."""
    kept, names = list[Statement](), {name for text in values for name in NAME.findall(text)}
    for s in reversed(statements):
        if not s.defines or s.defines in names:
            kept.append(s)
            names.update(NAME.findall(s.text))
    return kept[::-1]
