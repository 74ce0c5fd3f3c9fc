"""Is the code of a graph module the code of its graph? An edit that ``recompile()`` did not follow would run the old program.

In: a ``torch.fx.GraphModule``, or what a backend gave back for one. Out: the first line of the code that runs and is not the graph's, or an error.
Always holds: nothing is recompiled here; what is out of date is said, not mended, since only its author knows which of both was meant.
PyTorch leaves this to the reader: ``torch/fx/graph_module.py`` (recompile) writes the code, and nothing compares it later.
Left out: closures are looked into one level deep; a stale module that is reached in another way raises when it is run.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, TypeVar

import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .errors import BackendFailed

C = TypeVar("C")
WHY = "FX runs generated code, not the graph: an edit is seen only after recompile()"
HINT = "call gm.recompile() after the last edit of gm.graph"


def old_line(module: fx.GraphModule) -> str:
    """``''`` where the code of ``module`` belongs to its graph, otherwise where they part: what runs, and what the graph says."""
    if isinstance(module, _LazyGraphModule) and module._needs_recompile():
        return ""  # its code is generated when it is first run
    runs, says = (_lines(code) for code in (module._code, module._graph.python_code("self").src))
    return next((f"it runs `{a}` where the graph says `{b}`" for a, b in zip_longest(runs, says, fillvalue="") if a != b), "")


def _lines(code: str) -> list[str]:
    """Statements of generated code, without those that only mark a profile and without the ends of lifetimes (`x = None`)."""
    lines = (line.strip().partition(";  ")[0] for line in code.splitlines())
    return [line for line in lines if line and not line.startswith("_rf")]


def handed_back(result: C, module: fx.GraphModule) -> C:
    """``result``, which a backend gave for ``module``, a graph of its own to edit.

    Raises ``BackendFailed`` where it is code from before an edit. A module that was left stale and is not in sight in ``result`` raises
    that when it is run, until it is recompiled; a result that reads the graph and not the code (an ``Interpreter``) is none of this.
    """
    for one in _in_sight(result):
        owner = one if isinstance(one, fx.GraphModule) else one.__self__
        if old := old_line(owner):
            raise _stale(old)
    method: Any = result
    if _is_generated(method) and method.__func__ is not type(method.__self__).forward:
        raise _stale("its forward was taken before the module was recompiled")
    if old := old_line(module):
        cls: Any = type(module)
        cls.forward = functools.partialmethod(_refuse, old)  # FX makes a class for each module; recompile() puts the new code here
    return result


def _in_sight(result: Any) -> Iterator[Any]:
    """Graph modules and their forwards that calling ``result`` calls."""
    while isinstance(result, functools.partial):
        result = result.func
    if isinstance(result, fx.GraphModule) or _is_generated(result):
        yield result
    for cell in getattr(result, "__closure__", None) or ():
        held = cell.cell_contents if _is_filled(cell) else None
        if _is_generated(held):
            yield held


def _is_filled(cell: types.CellType) -> bool:
    return cell != types.CellType()  # against an empty one only emptiness is compared, never the contents


def _is_generated(value: Any) -> bool:
    """A bound ``forward`` that FX generated: not one that somebody wrote and put in its place."""
    made = isinstance(value, types.MethodType) and isinstance(value.__self__, fx.GraphModule)
    return made and "eval_with_key" in value.__func__.__code__.co_filename


def _refuse(module: fx.GraphModule, old: str, *args: Any, **kwargs: Any) -> Any:
    raise _stale(old)


def _stale(old: str) -> BackendFailed:
    return BackendFailed(f"the graph was edited and its module was not recompiled: {old}", why=WHY, hint=HINT)
