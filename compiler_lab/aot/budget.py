"""A memory budget: which bans to lift, so that what is kept fits, at least cost of computing again.

In: a ``Problem`` (``network.py``) and a budget from 0 to 1. Out: a ``Plan``. 1 keeps what the minimum cut keeps; 0 keeps the fewest
bytes there are when everything may be computed again but what draws random numbers or must be saved (so inputs, and what is in memory
anyway); between, the limit lies as far between the two. Prices are ``flops.price`` of the nodes whose ban is lifted; what no rule
forbids to compute again is free, as it is for the minimum cut.
How: bytes and prices weighed together are one minimum cut, so the lower convex hull of all plans is found by cuts alone (each new
weight is the slope between two plans that are known). A limit between two plans of the hull is a knapsack: the line between them is
a bound, and branching on one ban at a time (lifted, or not) closes the gap, up to ``MOST_CUTS`` cuts; then the best plan found is
given, with the bound beside it.
PyTorch's counterpart: ``choose_saved_values_set`` in ``torch/_functorch/partitioners.py`` and ``torch/_functorch/_activation_checkpointing``,
which choose by a knapsack over banned values as if they were independent and cut afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import torch.fx as fx

from .bans import FIRM
from .flops import price
from .network import Cut, Problem, Weights
from .parts import ancestors

MOST_CUTS = 256


@dataclass(frozen=True)
class Plan:
    """A cut, what it keeps (in the units of the cost model) and what it pays for bans lifted; no plan that fits pays less than ``bound``."""

    cut: Cut
    lifted: frozenset[fx.Node]
    bytes: int
    flops: int
    bound: int = 0


@dataclass(frozen=True)
class BudgetPoint:
    """One plan of the curve, in plain data. ``budget`` is the least that allows it; ``flops`` what it pays more than the minimum cut."""

    budget: float
    bytes: int
    flops: int
    saved: tuple[str, ...]
    lifted: tuple[str, ...]


@dataclass
class _Search:
    """Cuts of one problem, of which some bans are decided: ``kept`` are not lifted, ``paid`` are, at a price that is spent already."""

    problem: Problem
    prices: Mapping[fx.Node, int]
    cuts: int = 0
    best: Plan | None = None
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.prices.values()) + 1

    def plan(self, bytes_weight: int, price_weight: int | None, kept: frozenset[fx.Node] = frozenset(), paid: frozenset[fx.Node] = frozenset()) -> Plan:
        """The plan that minimizes bytes times their weight plus prices times theirs (None: no ban but the paid ones is lifted)."""
        self.cuts += 1
        weighted = {} if price_weight is None else {n: p * price_weight for n, p in self.prices.items() if n not in kept}
        cut = self.problem.cut(Weights(bytes_weight, weighted | dict.fromkeys(paid, 0), price_weight or 0))
        saved = set(cut.saved)
        lifted = frozenset(n for n in ancestors(self.problem.parts.roots, saved.__contains__) if n in self.prices and n not in saved)
        return Plan(cut, lifted, sum(int(self.problem.cost[n]) for n in saved), sum(self.prices[n] for n in lifted))

    def hull(self, high: Plan, low: Plan) -> Iterator[Plan]:
        """The plans on the lower convex hull strictly between two of its points, from more bytes to fewer."""
        if low.bytes >= high.bytes or low.flops <= high.flops:
            return
        middle = self.plan(*_slope(high, low))
        if _worth(middle, high, low) < _worth(high, high, low):
            yield from self.hull(high, middle)
            yield middle
            yield from self.hull(middle, low)

    def within(self, limit: int, kept: frozenset[fx.Node] = frozenset(), paid: frozenset[fx.Node] = frozenset()) -> int:
        """Looks for a better plan that keeps at most ``limit`` among those that the decisions allow; gives a lower bound of what they pay.

        The paid bans are counted whether they are used or not: who does not use them is found in the other branch."""
        spent = sum(self.prices[n] for n in paid)
        high, low = self.plan(1, None, kept, paid), self.plan(self.total, 1, kept, paid)
        if high.bytes <= limit:
            self.keep(high)
            return spent
        if low.bytes > limit:
            return self.total
        self.keep(low)
        while True:
            above, below = self.owed(high, paid), self.owed(low, paid)
            middle = self.plan(*_slope(above, below), kept, paid)
            owed = self.owed(middle, paid)
            if _worth(owed, above, below) >= _worth(above, above, below):
                break
            if middle.bytes <= limit:
                self.keep(middle)
                low = middle
            else:
                high = middle
        bound = spent + math.ceil(above.flops + Fraction((below.flops - above.flops) * (above.bytes - limit), above.bytes - below.bytes))
        open_ = [n for n in low.lifted - high.lifted if n not in kept and n not in paid]
        if self.best is None or bound >= self.best.flops or not open_ or self.cuts >= MOST_CUTS:
            return bound
        chosen = max(open_, key=lambda n: (self.prices[n], n.name))
        return max(bound, min(self.within(limit, kept | {chosen}, paid), self.within(limit, kept, paid | {chosen})))

    def owed(self, plan: Plan, paid: frozenset[fx.Node]) -> Plan:
        return replace(plan, flops=sum(self.prices[n] for n in plan.lifted - paid))

    def keep(self, plan: Plan) -> None:
        if self.best is None or (plan.flops, plan.bytes) < (self.best.flops, self.best.bytes):
            self.best = plan


def _slope(high: Plan, low: Plan) -> tuple[int, int]:
    """Weights of bytes and prices for which the two plans are worth the same."""
    return low.flops - high.flops, high.bytes - low.bytes


def _worth(plan: Plan, high: Plan, low: Plan) -> int:
    of_bytes, of_price = _slope(high, low)
    return plan.bytes * of_bytes + plan.flops * of_price


def _search(problem: Problem) -> _Search:
    return _Search(problem, {n: price(n) for n, banned in problem.bans.items() if banned.reason not in FIRM})


def plan_for(problem: Problem, budget: float) -> Plan:
    """The plan for a budget from 0 to 1; its ``bound`` says how far from the best it can be (equal to ``flops``: it is the best)."""
    search = _search(problem)
    high, low = search.plan(1, None), search.plan(search.total, 1)
    limit = low.bytes + math.floor((high.bytes - low.bytes) * Fraction(budget))
    bound = search.within(limit)
    assert search.best is not None  # the fewest bytes fit
    return replace(search.best, bound=min(bound, search.best.flops))


def curve_of(problem: Problem) -> tuple[BudgetPoint, ...]:
    """The lower convex hull of (bytes kept, price of computing again), from the minimum cut's plan to the fewest bytes."""
    search = _search(problem)
    high, low = search.plan(1, None), search.plan(search.total, 1)
    plans = [high, *search.hull(high, low)] + ([low] if low.bytes < high.bytes else [])
    part = lambda p: _least_budget(p.bytes - low.bytes, high.bytes - low.bytes)
    name = lambda nodes: tuple(n.name for n in problem.parts.sorted(nodes))
    return tuple(BudgetPoint(part(p), p.bytes, p.flops, name(p.cut.saved), name(p.lifted)) for p in plans)


def _least_budget(part: int, span: int) -> float:
    """The first number whose share of ``span`` is not below ``part``."""
    found = part / span if span else 1.0
    return found if Fraction(found) * span >= part else math.nextafter(found, 1.0)
