"""``symbolic_trace``: a program run on proxies, as an artifact that knows the user's lines and, given examples, its shapes.

In: a function or module, and example arguments. Out: a ``GraphArtifact`` of stage "fx". Modules of ``torch.nn`` stay calls of modules, the
attributes that the program reads are nodes.
Always holds: it is torch's own tracer, so it follows one path: a branch on a proxy raises ``Unsupported`` with the line, loops unroll, and
whatever is not torch runs now and is a constant of the graph, and ``x += y`` on a proxy is recorded as ``x = x + y``. ``capture``
reads the program instead of running it and has none of these limits.
PyTorch's counterpart: ``torch/fx/_symbolic_trace.py``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
import torch.fx as fx
from torch.fx.proxy import TraceError

from ..core.errors import Unsupported
from ..core.fx import GraphArtifact
from ..core.provenance import Location, Stack, is_library
from .values import STAGE, propagate_shapes


class LineTracer(fx.Tracer):
    """torch's tracer, whose nodes know the lines that made them."""

    def __init__(self, start: CodeType | None) -> None:
        super().__init__()
        self.start = () if start is None else (Location(start.co_filename, start.co_firstlineno, start.co_name),)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta |= {"stack": self.stack() or self.start, "parents": ()}
        return node

    def stack(self) -> Stack:
        """The lines between the traced program and this call, outermost first, without those of FX."""
        found: list[Location] = []
        frame = sys._getframe(1)
        while frame is not None and frame.f_code is not fx.Tracer.trace.__code__:
            code = frame.f_code
            if "torch/fx/" not in code.co_filename and code.co_filename != __file__:
                found.append(Location(code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return tuple(reversed(found)) if any(not is_library(f.file) for f in found) else ()


def symbolic_trace(root: torch.nn.Module | Callable[..., Any], *args: Any, concrete_args: Mapping[str, Any] | None = None) -> GraphArtifact:
    """``root`` as torch's proxy tracer records it.

    args: examples of the arguments, in order (one for each placeholder); with them every node has its shape, without them ``check()``
    asks for them.
    concrete_args: arguments pinned to a value, by name: they decide branches. The graph keeps them as inputs and asserts the value.
    Raises ``Unsupported`` with the line where the program needs the value of a proxy (a branch, an iteration).
    """
    function = root.forward if isinstance(root, torch.nn.Module) else root
    tracer = LineTracer(getattr(inspect.unwrap(function), "__code__", None))
    try:
        graph = tracer.trace(root, dict(concrete_args) if concrete_args is not None else None)
    except TraceError as error:
        hint = "capture(f, x) reads the program and breaks the graph there; concrete_args pins an argument; torch.where has both sides"
        raise Unsupported(str(error), reason="proxy-value", where=_line(error), why="a proxy stands for every value and has none", hint=hint) from error
    module = fx.GraphModule(tracer.root, graph, getattr(root, "__name__", type(root).__name__))
    return propagate_shapes(module, *args) if args else GraphArtifact(module, STAGE)


def _line(error: BaseException) -> Location | None:
    """The innermost line of the program itself that ``error`` came through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_library(code.co_filename):
            found = Location(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    return found
