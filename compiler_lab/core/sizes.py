"""Sizes that are symbols: questions about torch's ``SymInt``, ``SymFloat`` and ``SymBool`` that assume nothing.

In: ints, or symbolic numbers over a ``ShapeEnv``; tensors with such sizes. Out: plain answers.
Always holds: nothing here adds a guard but ``decided``, which says so: a comparison by an ``if`` is an assumption about all later calls.
PyTorch's counterpart: ``torch/fx/experimental/symbolic_shapes.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .provenance import Stack

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
UNKNOWN = 4096  # what a size that depends on data is taken to be, where a plan needs a number

DYNAMIC = "dynamic shapes"
"""The reason of an ``Unsupported`` that stages give for symbolic sizes which they do not model: the graph can be compiled for numbers instead."""


def depends(value: Any) -> bool:
    """Is ``value`` a symbolic number, a tensor with a symbolic size or stride, or a tuple or list that holds one?"""
    if isinstance(value, Tensor):
        return value._has_symbolic_sizes_strides
    return any(map(depends, value)) if isinstance(value, (tuple, list)) else isinstance(value, SYMBOLIC)


def plain(n: Any) -> Any:
    """The number, or the expression that it is: what compares without an assumption. Of several, a tuple."""
    if isinstance(n, (tuple, list)):
        return tuple(map(plain, n))
    return n.node.expr if isinstance(n, SYMBOLIC) else n


def written(n: Any) -> str:
    """As it was recorded: the text of a symbol stays what it is when its size is learned later."""
    return str(getattr(n.node, "_expr", n)) if isinstance(n, SYMBOLIC) else str(n)


def hint(n: Any) -> int:
    """The size at the first call, for plans that are right whatever it is."""
    if type(n) is not torch.SymInt:
        return n
    known = n.node.hint
    return UNKNOWN if known is None else int(known)


def same(a: Any, b: Any) -> bool:
    """The numbers, or all of two sequences of them, are known to be equal for all sizes; False where that is not known."""
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is not torch.SymInt and type(b) is not torch.SymInt:
        return a == b
    if plain(a) == plain(b):
        return True
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(a == b)


def decided(condition: Any) -> bool:
    """Which way it goes at the first call. That it goes the same way later becomes a guard, unless it goes that way for all sizes."""
    return bool(condition)


def composed(symbolic: bool) -> AbstractContextManager[Any]:
    """In here operators that C++ composes for numbers only are composed in Python, where sizes are symbols."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher() if symbolic else nullcontext()


def environment(values: Sequence[Any]) -> Any:
    """The ``ShapeEnv`` of the first symbolic number in ``values``; None where there is none."""
    for value in values:
        parts = (*value.shape, *value.stride()) if isinstance(value, Tensor) else value if isinstance(value, (tuple, list)) else (value,)
        found = environment(parts) if parts is value else next((n.node.shape_env for n in parts if isinstance(n, SYMBOLIC)), None)
        if found is not None:
            return found
    return None


def note(env: Any, stack: Stack) -> None:
    """The guards that ``env`` has been given since the last time are this line's (``lines`` is capture's list of them)."""
    lines: list[Stack] | None = getattr(env, "lines", None)
    if lines is not None and len(env.guards) > len(lines):
        lines += [stack] * (len(env.guards) - len(lines))
