"""What each step and each leaf of a guard tree costs, measured on the C++ side.

In: a tree and the locals of a call that passes. Out: the tree's items, each with the fact ``nanoseconds``.
How it is measured: a root of its own is built around each piece, once with it and once without; the difference of the two checks, each the
least of several rounds, is the piece. So a leaf's figure is its own work, an accessor's is reading the value one step further, and their
sum is close to the whole check, whose figure is the first item. Always holds: nothing is measured unless somebody asks.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``profile_guard_manager``), for a whole tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch.autograd import forward_ad

from ..core.artifact import Item
from .guard_nodes import Access, Node, Relation, gained, nodes_of, overlap
from .hook import GuardRoot, Root
from .shape_guards import checker

if TYPE_CHECKING:
    from .guards import GuardTree

Piece = Callable[[GuardRoot], Any]  # installs something on an empty root


def costs(tree: GuardTree, locals: dict[str, Any], repeats: int, rounds: int) -> tuple[Item, ...]:
    """The items of ``tree``, each with its nanoseconds, behind one for the whole check. Raises what reading a value raises."""
    clock = _Clock(locals, repeats, rounds)
    spent: dict[str, float] = {}
    for node in nodes_of(tree.top):
        value = node.value(locals)
        at = ("globals_dict", {"value": value}), ("dict_getitem", "value")
        if node.parent is not None:
            spent[_id(tree, node.text)] = clock.difference(*_reading(node, locals))
        for n, leaf in enumerate(node.leaves):
            install = lambda root, leaf=leaf, at=at, value=value: leaf.row.install(root, _follow(root, at), leaf.facts, "", value)
            spent[_id(tree, f"{node.text}:{n}")] = clock.difference(lambda root, at=at: _follow(root, at), install)
    for n, relation in enumerate(tree.relations):
        spent[_id(tree, f"{relation.kind}:{n}")] = clock.difference(lambda root: None, lambda root, r=relation: RELATIONS[r.kind](root, r))
    whole = Item(_id(tree, "check"), "check", "the whole check", (), (), {"nanoseconds": clock.least(tree.root)})
    return (whole, *(replace(i, facts={**i.facts, "nanoseconds": spent[i.id]}) for i in tree.items()))


def _id(tree: GuardTree, text: str) -> str:
    return f"{tree.stage}/{text}"


def _reading(node: Node, locals: dict[str, Any]) -> tuple[Piece, Piece]:
    """A root that reads what ``node`` starts from, and one that reads the node too."""
    if node.access[0][0] in ("framelocals", "globals_dict"):
        return lambda root: None, lambda root: _follow(root, node.access)
    assert node.parent is not None
    start: Access = (("globals_dict", {"value": node.parent.value(locals)}), ("dict_getitem", "value"))
    return lambda root: _follow(root, start), lambda root: _follow(root, (*start, *node.access))


def _follow(root: Root, access: Access) -> Any:
    manager = root.manager
    for accessor, key in access:
        manager = root.step(manager, accessor, key, "")
    return manager


class _Clock:
    """Times checks of roots on one dict of locals."""

    def __init__(self, locals: dict[str, Any], repeats: int, rounds: int) -> None:
        self.locals, self.repeats, self.rounds = locals, range(repeats), range(rounds)

    def least(self, root: Root) -> float:
        """Nanoseconds of one check: the least of the rounds, since whatever else the machine does only adds."""
        check, locals, best = root.check, self.locals, float("inf")
        for _ in self.rounds:
            start = time.perf_counter_ns()
            for _ in self.repeats:
                check(locals)
            best = min(best, (time.perf_counter_ns() - start) / len(self.repeats))
        return best

    def difference(self, without: Piece, with_it: Piece) -> float:
        """What the piece adds; where noise is larger than the piece, 0."""
        roots = GuardRoot(), GuardRoot()
        without(roots[0])
        with_it(roots[1])
        return round(max(self.least(roots[1]) - self.least(roots[0]), 0.0), 1)


def _global_state(root: Root, relation: Relation) -> None:
    root.leaf(root.manager, "torch_function_mode_stack", [], text="")
    root.leaf(root.manager, "default_device", text="")
    root.leaf(_follow(root, (("globals_dict", vars(forward_ad)), ("dict_getitem", "_current_level"))), "equals_match", -1, text="")
    root.global_state("")


def _alive(root: Root, relation: Relation) -> None:
    root.leaf(_follow(root, (("globals_dict", relation.facts), ("dict_getitem", "alive"))), "true_match", text="")


def _together(root: Root, relation: Relation) -> None:
    """The reading of the values is the nodes' cost; this is the comparison."""
    stand_in = object()
    managers = [_follow(root, (("globals_dict", {"value": stand_in}), ("dict_getitem", "value"))) for _ in relation.nodes]
    for other in managers[1:]:
        root.same_object(managers[0], other, "")


RELATIONS: dict[str, Callable[[GuardRoot, Relation], None]] = {
    "global_state": _global_state,
    "alive": _alive,
    "aliased": _together,
    "not_aliased": _together,
    "absent": lambda root, r: root.leaf(root.manager, "epilogue_lambda", lambda _: gained(r.facts) is None, text=""),
    "shape": lambda root, r: root.leaf(root.manager, "epilogue_lambda", checker([(r.facts, r.nodes)]), text=""),
    "shared": lambda root, r: root.leaf(root.manager, "epilogue_lambda", lambda locals: r.facts.holds([n.value(locals) for n in r.nodes]), text=""),
    "disjoint": lambda root, r: root.leaf(root.manager, "epilogue_lambda", lambda locals: overlap(r.facts, lambda node: node.value(locals)) is None, text=""),
}
