"""What code generation gives and the runtime takes: C++ source with a line map, and the wrapper that calls it.

PyTorch's counterpart: the output code of ``torch/_inductor/codegen/{cpp,wrapper}.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

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


ERRORS = {1: "index out of range", 2: "out of memory", 3: "integer division by zero"}
