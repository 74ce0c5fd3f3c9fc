"""Where a thing comes from: source locations and parents, carried by every item of every artifact.

In: frames, code objects and FX nodes. Out: ``Location`` tuples in ``node.meta["stack"]`` (outermost call first) and
qualified parent ids in ``node.meta["parents"]`` (for example ``"aot.joint/mm_1"``).
Always holds: a node that came out of a stage has both keys; ``own_location`` is the innermost line that is the user's.
PyTorch's counterpart: ``torch/fx/traceback.py`` (``preserve_node_meta``, ``from_node``), which drops provenance of nodes
whose meta is empty and leaves placeholders and backward nodes without any; hence keys of our own.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass

import torch.fx as fx


@dataclass(frozen=True, order=True)
class Location:
    """One source position. ``line`` is 1-based, ``column`` 0-based; ``end_line``/``end_column`` 0 when unknown."""

    file: str
    line: int
    function: str = ""
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    @property
    def source(self) -> str:
        """The stripped text of the line, or '' when no source is at hand (``exec``, a deleted file)."""
        return linecache.getline(self.file, self.line).strip()

    def text(self) -> str:
        name = shown_name(self.file)
        inside = f" in {self.function}" if self.function else ""
        source = self.source
        return f"{name}:{self.line}{inside}" + (f": {source}" if source else " (source not available)")


Stack = tuple[Location, ...]

# what Jupyter's kernel, IPython in a terminal and Colab call the file of a cell
CELL = re.compile(r"ipykernel_\d+[/\\]|ipython-input")


def shown_name(file: str) -> str:
    """A file's name as people know it, from a trace of any machine; a cell's own is a number that means nothing to them."""
    return "notebook cell" if CELL.search(file) else re.split(r"[/\\]", file)[-1]


@functools.cache
def _library_roots() -> tuple[str, ...]:
    import torch

    paths = {sysconfig.get_paths()["stdlib"], os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__))}
    return tuple(os.path.join(p, "") for p in paths)


DEMO = os.path.join(os.path.dirname(os.path.dirname(__file__)), "demo.py")


@functools.lru_cache(4096)
def is_library(file: str) -> bool:
    """True for files of torch, of the standard library and of this package, but for its demonstration program: never "the user's line"."""
    return file.startswith(_library_roots()) and file != DEMO


def own_location(stack: Iterable[Location]) -> Location | None:
    """The innermost location outside libraries; the innermost of all when every one is a library's."""
    stack = tuple(stack)
    for location in reversed(stack):
        if not is_library(location.file):
            return location
    return stack[-1] if stack else None


def stack_of(node: fx.Node) -> Stack:
    return node.meta.get("stack", ())


def parents_of(node: fx.Node) -> tuple[str, ...]:
    return node.meta.get("parents", ())


MARKS = ("recompute", "ac_graph_id")
"""What activation checkpointing says of a node, in PyTorch's own keys: its ``CheckpointPolicy``, and the number of the checkpointed region."""


def marks_of(node: fx.Node) -> dict[str, object]:
    return {key: node.meta[key] for key in MARKS if key in node.meta}


def inherit(node: fx.Node, stage: str, *origins: fx.Node) -> fx.Node:
    """Give ``node`` the stack of the first origin that has one, the marks of the first, and all ``origins`` (items of ``stage``) as parents."""
    node.meta.update(marks_of(origins[0]) if origins else {})
    node.meta["parents"] = tuple(dict.fromkeys(f"{stage}/{o.name}" for o in origins))
    node.meta["stack"] = next((s for o in origins if (s := stack_of(o))), ())
    return node
