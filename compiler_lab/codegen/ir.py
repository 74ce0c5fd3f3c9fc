"""What code generation gives and the runtime takes: C++ source with a line map, and the wrapper that calls it.

PyTorch's counterpart: the output code of ``torch/_inductor/codegen/{cpp,wrapper}.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core.artifact import Decision
from ..core.provenance import Stack


@dataclass(frozen=True)
class Line:
    """One line of generated source, 1-based. ``parents``: ids of the loop nodes it comes from; empty for braces and includes."""

    number: int
    text: str
    parents: tuple[str, ...] = ()
    stack: Stack = ()


@dataclass(frozen=True)
class Kernel:
    """One exported C function ``int NAME(void* const* args)``: returns 0, or the error code of ``ERRORS``.

    ``args``: buffer names in pointer order (inputs, then buffers written); ``sizes``: the symbols whose values follow them, each in the place of a
    pointer. ``first``/``last``: its lines in the source.
    """

    name: str
    args: tuple[str, ...]
    first: int
    last: int
    nodes: tuple[str, ...]
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallCode:
    """The wrapper in C, which stands after the kernels in the same translation unit, and what it is bound to when the unit is loaded.

    symbols: functions of torch that it calls, beside those that ``call.h`` needs; one that a torch lacks is called through Python.
    constants: buffers whose tensors it is given;  layouts: (size, stride, dtype) of the memory it asks for, the arena's first.
    python: the text of ``make(ops, torch)``, which gives the functions in Python that it may call: the first gives views of the arena.
    boxed: takes one list of its inputs, which it empties.  decisions: for each extern call, whether it is made in C.
    """

    source: str
    lines: tuple[Line, ...]
    symbols: tuple[str, ...]
    constants: tuple[str, ...]
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    python: str
    boxed: bool
    decisions: tuple[Decision, ...]


ERRORS = {1: "index out of range", 2: "out of memory", 3: "integer division by zero"}
