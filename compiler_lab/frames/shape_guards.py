"""Guards between sizes: one function that is generated for all of them, and each by itself for the explanation.

In: ``SizeRelation``s and the nodes of the guard tree that hold their tensors and ints. Out: a check of a call's locals, and the first
relation that fails, with the numbers that came. Always holds: both evaluate the same text; tensors were checked before (a tensor guard
leaves sizes open, it does not leave the rank open); an int is exactly an ``int``: a bool would compute as one and print as another.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``SHAPE_ENV``), which compiles C++ for it; ours is Python in one epilogue of the tree, so
that no compiler runs. Left out: nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .ir import Number, SizeRelation


class Place(Protocol):
    """A node of the guard tree."""

    def value(self, locals: Any) -> Any: ...


Placed = tuple[SizeRelation, tuple[Place, ...]]  # a relation, and where the tensor or int of each of its numbers is
SPACE: dict[str, Any] = {"math": math, "torch": torch}  # what the text of a relation may use: ``torch.sym_float(n)``, ``torch.sym_max(n, m)``


def read_number(number: Number, value: Any) -> Any:
    return value if number.what == "value" else getattr(value, number.what)(number.dim)


def is_number(number: Number, value: Any) -> bool:
    return number.what != "value" or type(value) is int


def rename(code: str, names: dict[str, str]) -> str:
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), code)


def holds(relation: SizeRelation, values: Sequence[Any]) -> bool:
    """Does it hold for these tensors and ints, one for each of its numbers? Where it cannot be computed it does not, as in C++."""
    if any(not is_number(n, v) for n, v in zip(relation.numbers, values, strict=True)):
        return False
    space = {n.name: read_number(n, v) for n, v in zip(relation.numbers, values, strict=True)}
    try:
        return bool(eval(relation.code, {**SPACE, **space}))
    except ArithmeticError:
        return False


def numbers_text(relation: SizeRelation, values: Sequence[Any]) -> str:
    """The numbers that came: ``L['x'].size(0) = 1``, or ``L['n'] is a bool``."""
    pairs = zip(relation.numbers, values, strict=True)
    return ", ".join(f"{n.text()} = {read_number(n, v)}" if is_number(n, v) else f"{n.text()} is a {type(v).__name__}" for n, v in pairs)


def checker(placed: Sequence[Placed]) -> Callable[[Any], bool]:
    """One function for all relations: each tensor is found once, each number read once, the first relation that fails ends it."""
    places: dict[Place, str] = {}
    numbers: dict[tuple[Place, str, int], str] = {}
    lines: list[str] = []
    space: dict[str, Any] = dict(SPACE)
    for relation, nodes in placed:
        names: dict[str, str] = {}
        for number, node in zip(relation.numbers, nodes, strict=True):
            if node not in places:
                places[node] = f"v{len(places)}"
                root = number.source.base is None and number.source.kind in ("local", "closure")
                space[f"read_{places[node]}"] = node.value
                lines.append(f"{places[node]} = {f'L[{number.source.key!r}]' if root else f'read_{places[node]}(L)'}")
            key = (node, number.what, number.dim)
            if key not in numbers:
                numbers[key] = f"n{len(numbers)}"
                if number.what == "value":
                    lines.append(f"if type({places[node]}) is not int: return False")
                lines.append(f"{numbers[key]} = {places[node]}" + ("" if number.what == "value" else f".{number.what}({number.dim})"))
            names[number.name] = numbers[key]
        lines.append(f"if not ({rename(relation.code, names)}): return False")
    exec("def check(L):\n" + "".join(f"    {line}\n" for line in [*lines, "return True"]), space)
    return space["check"]
