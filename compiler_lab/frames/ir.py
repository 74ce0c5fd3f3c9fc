"""What capture gives: sources, guards, the result recipe, and the captured graphs.

A ``Source`` says how to reach a value again from a call's arguments; guards and graph inputs are made of sources. A
``Recipe`` says how the frame's result is put together from graph outputs, sources and constants. All of it is plain data, so it
can be printed, compared and saved. PyTorch's counterpart: ``torch/_dynamo/{source,guards,output_graph}.py``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch.fx as fx

from ..core.artifact import Decision
from ..core.fx import GraphArtifact
from ..core.provenance import Stack

SourceKind = Literal["local", "global", "closure", "attr", "item", "dict_item", "inner_item", "type_attr", "constant"]


@dataclass(frozen=True)
class Source:
    """A path to a value. ``base`` is None for the roots: a local (argument), a global of the frame's function, a closure cell.

    attr      ``getattr(base, key)``; item: ``base[key]`` of list or tuple; dict_item: ``base[key]`` of a dict
    inner_item ``base[key]`` of an instance of a subclass of list or dict, by the built-in type's own method
    global    key is (name,) of the top frame's module; of another module: attr of a "constant" source holding the module
    """

    kind: SourceKind
    key: Any
    base: Source | None = None

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.kind, id(self.key) if self.kind == "constant" else self.key, self.base))

    def __hash__(self) -> int:  # sources are looked up all the time, and long ones would be hashed to their roots each time
        return self._hash

    def __eq__(self, other: object) -> bool:
        """The same path; constants are the same object, whatever their own ``==`` says."""
        if self is other:
            return True
        if not isinstance(other, Source) or self.kind != other.kind:
            return False
        return (self.key is other.key or (self.kind != "constant" and self.key == other.key)) and self.base == other.base

    def text(self) -> str:
        return self._text

    @functools.cached_property
    def module(self) -> str:
        """What holds it, as a path of ``nn.Module``s: ``blocks.1.proj`` of this module, and of its parameters and buffers; "" of the module compiled."""
        words = re.findall(r"\w+", re.split(r"\._(?:parameters|buffers)\b", self._text)[0])
        return ".".join(w for w in words[1:] if w not in ("self", "_modules", "__dict__"))

    @functools.cached_property
    def _text(self) -> str:
        if self.base is None:
            named = getattr(self.key, "__qualname__", None) or getattr(self.key, "__name__", None) or f"a {type(self.key).__name__}"
            return f"K[{named}]" if self.kind == "constant" else f"{ {'local': 'L', 'global': 'G', 'closure': 'C'}[self.kind] }[{self.key!r}]"
        if self.kind in ("attr", "type_attr"):
            return f"{self.base.text()}.{self.key}"
        return f"{self.base.text()}[{self.key!r}]"


@dataclass(frozen=True)
class Number:
    """A number that inputs hold: the size or stride of dimension ``dim`` of the tensor at ``source``, or the int there ("value").
    ``name`` stands for it in a relation."""

    name: str
    source: Source
    what: Literal["size", "stride", "value"]
    dim: int = 0

    def text(self) -> str:
        return self.source.text() if self.what == "value" else f"{self.source.text()}.{self.what}({self.dim})"


@dataclass(frozen=True)
class SizeRelation:
    """What holds between numbers: a Python expression over their names."""

    code: str
    numbers: tuple[Number, ...]

    def text(self) -> str:
        """The expression over what the user can read: ``L['x'].size(0) >= 2``."""
        texts = {n.name: n.text() for n in self.numbers}
        return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: texts.get(m[0], m[0]), self.code)


@dataclass(frozen=True)
class Guard:
    """One assumption. ``kind`` is a row of the guard table ("tensor", "place", "type", "id", "equals", "length", "dict_keys", "no_attr", "no_key", "has_key",
    "none", "true", "false", "not_aliased", "aliased", "shared", "disjoint", "shape", "global_state"); ``expected`` is what must hold (for "shape" a
    ``SizeRelation``); ``stack`` is the line that assumed it."""

    kind: str
    source: Source | None
    expected: Any
    stack: Stack = ()
    why: str = ""

    def text(self) -> str:
        if isinstance(self.expected, SizeRelation):
            return f"{self.kind}: {self.expected.text()}"
        subject = self.source.text() if self.source is not None else "the process"
        return f"{subject}: {self.kind} {self.expected!r}" if isinstance(self.expected, (str, int, float, tuple)) else f"{subject}: {self.kind}"


@dataclass(frozen=True)
class Recipe:
    """How to build a value after the graph has run.

    output    graph output number ``value``;  source: the value at ``value`` (a Source);  constant: ``value`` itself
    tuple / list / dict / set / slice / call: ``parts`` built first; for dict, keys are ``value``; for call, ``value`` is the callable
    shared    object number ``value`` of ``Specialization.shared``: built once, so that it stays one object wherever it appears
    cell      a new closure cell that holds ``parts[0]``, empty without parts; with a ``value``: the frame's own cell of that free variable
    function  a new function: ``value`` is its code, ``parts`` are (globals, name, defaults, closure), as ``types.FunctionType`` takes them
    """

    kind: Literal["output", "source", "constant", "tuple", "list", "dict", "set", "slice", "call", "shared", "cell", "function"]
    value: Any = None
    parts: tuple[Recipe, ...] = ()


class CapturedGraph(GraphArtifact):
    """A torch-level FX graph taken from a frame. ``inputs[i]`` is the source of placeholder i."""

    def __init__(self, module: fx.GraphModule, inputs: tuple[Source, ...], decisions: tuple[Decision, ...] = ()) -> None:
        super().__init__(module, "frames", decisions)
        self.inputs = inputs


@dataclass(frozen=True)
class Break:
    """Why a frame was left to Python: ``reason`` is an id of the catalogue; ``instruction`` as dis prints it; the user's line."""

    reason: str
    what: str
    instruction: str
    stack: Stack
    hint: str = ""


@dataclass(frozen=True)
class Effect:
    """One change of an object that other code can see, made after the graph has run, in the order of ``Specialization.effects``.

    attribute / delete_attribute   ``target.key = value``, past any ``__setattr__`` (what that did is in the effects already)
    item / delete_item             ``target[key] = value`` by the built-in type's own method; ``key`` is a Recipe
    contents                       the whole contents of a list, dict or deque become those of ``value``
    global / delete_global         the global ``key`` of the frame's own namespace (``target`` is the constant None; elsewhere: attribute or item)
    cell / delete_cell             the contents of the closure cell ``target``
    call                           ``target(*value)``, for what has no form above; ``target`` is a constant, ``value`` a tuple
    """

    kind: Literal["attribute", "delete_attribute", "item", "delete_item", "contents", "global", "delete_global", "cell", "delete_cell", "call"]
    target: Recipe
    key: Any = None
    value: Recipe | None = None
    stack: Stack = ()


@dataclass(frozen=True)
class Stop:
    """Where capture ended before the frame did: Python executes instruction ``at`` (an index into ``read_code(code).instructions``) next,
    with this value stack (lowest first; None is CPython's NULL), these locals and cells; a name that is missing is unbound. ``found`` says why."""

    at: int
    stack: tuple[Recipe | None, ...]
    locals: tuple[tuple[str, Recipe], ...]
    cells: tuple[tuple[str, Recipe], ...]
    found: Break


@dataclass
class Specialization:
    """Facts of one captured frame that the wrapper needs: filled by the interpreter, read by assembly and guards. ``late`` gives the guards on
    symbolic sizes once more, with those that whatever compiles the graph has come to need.

    The replacement code builds ``before`` (calls whose results are dropped: warnings), runs the graph, builds ``shared`` in order, makes
    ``effects`` in order, and then returns ``result``, or goes on at ``stop``. ``retried``: where the graph raises, Python runs the frame from its start."""

    graph: CapturedGraph
    guards: tuple[Guard, ...]
    result: Recipe
    shared: tuple[Recipe, ...] = ()
    effects: tuple[Effect, ...] = ()
    before: tuple[Recipe, ...] = ()
    stop: Stop | None = None
    retried: bool = False
    late: Callable[[], tuple[Guard, ...]] | None = None
    trusted: tuple[tuple[Any, str, Any], ...] = ()  # (class or module of a library, name, what it was, or ABSENT): taken as fixed, without a guard
    process: str = ""  # what of it may be another thing in another process
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
