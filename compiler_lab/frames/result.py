"""The end of a capture: recipes of what is needed afterwards, the graph's outputs, and the checks that span all inputs.

In: the value that the frame returned. Out: ``Specialization``. Always holds: the graph returns exactly the tensors that the recipes need;
the same object twice is built once.
PyTorch's counterpart: ``torch/_dynamo/codegen.py`` and the end of ``output_graph.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from ..core.provenance import Stack
from .aliases import check_aliases, memory_guards
from .effects import effects_of, guard_aliases, place
from .ir import CapturedGraph, Effect, Guard, Recipe, Specialization, Stop
from .reasons import CaptureUnsupported
from .recipes import RECIPES, Part, Row, constant, is_fillable
from .tracer import Tracer
from .values.base import Constant, Lazy, PureMethod, Unread, Value
from .values.functions import Cell, CellValue
from .values.symbolic import SymbolicValue
from .values.tensor import TensorValue


class Results:
    """Writes recipes for values: of one capture, all at once, so that an object that appears twice is built once.

    ``recipes = Results(t).close(roots)``: one recipe for each root (values, lazy slots, cells), in order. Afterwards ``outputs`` are the
    graph's, by position of their first appearance; ``shared`` and ``effects`` are the specialization's. Raises ``CaptureUnsupported``
    ("return-value", "side-effect") for what cannot be put together again.
    """

    def __init__(self, t: Tracer) -> None:
        self.t = t
        self.outputs: list[TensorValue | SymbolicValue] = []
        self.shared: list[Recipe] = []
        self.effects: tuple[Effect, ...] = ()
        self._number: dict[int, int] = {}  # id of a value -> graph output or shared object
        self._fills: list[Effect] = []
        self._later: list[tuple[Recipe, Any, Row]] = []  # built empty, to be filled
        self._surveying = True
        self._uses: dict[int, int] = {}
        self._path: list[Any] = []  # values whose parts are being visited
        self._cyclic: set[int] = set()

    def close(self, roots: Iterable[Part]) -> list[Recipe]:
        roots = list(roots)
        for root in roots:
            self.recipe(root)
        effects_of(self)
        self._surveying = False
        made = [self.recipe(root) for root in roots]
        effects = effects_of(self)
        for target, value, row in self._later:  # grows while it is read
            assert row.fill is not None
            self._fills += row.fill(target, value, self.recipes(row.parts(value)))
        self.effects = (*self._fills, *effects)
        return made

    def recipes(self, values: Iterable[Part]) -> tuple[Recipe, ...]:
        return tuple(map(self.recipe, values))

    def recipe(self, value: Part) -> Recipe:
        """The recipe of one value. In the survey only counts how often each is needed, and finds those that hold themselves."""
        if isinstance(value, CellValue):
            value = value.cell
        if isinstance(value, Lazy):
            if value.value is None:
                return constant(value.real) if value.source is None else Recipe("source", value.source)
            value = value.value
        plain = self._plain(value)
        if plain is not None:
            return plain
        row = RECIPES.get(type(value))
        if row is None:
            raise self.refuse(value.describe())
        if self._surveying:
            return self._survey(value, row)
        return self._build(value, row)

    def uses(self, value: Value) -> int:
        """How often it is held."""
        return self._uses[id(value)]

    def refuse(self, what: str) -> CaptureUnsupported:
        return CaptureUnsupported("return-value", what, self.t.stack() or self.t.last[0])

    def _plain(self, value: Value | Cell) -> Recipe | None:
        """For what existed before the frame, constants and tensors."""
        if isinstance(value, Cell):
            return None if value.real is None else place(value)
        if isinstance(value, SymbolicValue):
            value = value.constant(self.t) or value
        if isinstance(value, Unread):
            return Recipe("source", value.source)
        if isinstance(value, Constant):
            same = value.source is None or value.value is None or isinstance(value.value, (bool, enum.Enum))
            return constant(value.value) if same else Recipe("source", value.source)
        if value.source is not None:
            return Recipe("source", value.source)
        if isinstance(value, (TensorValue, SymbolicValue)):
            if id(value) not in self._number and not self._surveying:
                self._number[id(value)] = len(self.outputs)
                self.outputs.append(value)
            return Recipe("output", self._number.get(id(value), 0))
        real = getattr(value, "real", None)
        return None if real is None or isinstance(value, PureMethod) else constant(real)

    def _survey(self, value: Value | Cell, row: Row) -> Recipe:
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        if any(v is value for v in self._path):
            start = next(i for i, v in enumerate(self._path) if v is value)
            self._cyclic |= {id(v) for v in self._path[start:] if is_fillable(v)}
        elif self._uses[id(value)] == 1:
            self._path.append(value)
            for part in row.parts(value):
                self.recipe(part)
            self._path.pop()
        return constant(None)

    def _build(self, value: Value | Cell, row: Row) -> Recipe:
        if id(value) in self._number:
            return Recipe("shared", self._number[id(value)])
        if any(v is value for v in self._path):
            raise self.refuse(f"{value.describe()} that holds itself")
        if id(value) in self._cyclic and row.empty is not None and row.fill is not None:
            target = self._share(value, row.empty(self, value))
            self._later.append((target, value, row))
            return target
        self._path.append(value)
        parts = self.recipes(row.parts(value))
        self._path.pop()
        made = row.make(self, value, parts)
        if self._uses[id(value)] == 1 and not row.late(value):
            return made
        target = self._share(value, made)
        if row.after is not None:
            self._fills += row.after(target, value, parts)
        return target

    def _share(self, value: Any, made: Recipe) -> Recipe:
        self._number[id(value)] = len(self.shared)
        self.shared.append(made)
        return Recipe("shared", self._number[id(value)])


def specialization(t: Tracer, value: Value, definition: Stack) -> Specialization:
    """Close the graph over what the recipe of the frame's result needs."""
    results = Results(t)
    (recipe,) = results.close([value])
    check_aliases(t, definition)
    return close(results, recipe, None, definition)


def close(results: Results, recipe: Recipe, stop: Stop | None, definition: Stack) -> Specialization:
    """The capture is over: the graph returns what the recipes need."""
    t = results.t
    if any(g.suspended_inside() for g in t.generators):
        raise CaptureUnsupported("generator", "one is left suspended inside try or with, whose end Python runs when it is dropped", definition)
    output = t.graph.output(tuple(v.node(t) if isinstance(v, SymbolicValue) else v.node for v in results.outputs))
    output.meta.update(stack=definition, parents=())
    module = fx.GraphModule(torch.nn.Module(), t.graph)
    sources = tuple(v.source for v in t.inputs if v.source is not None)
    graph = CapturedGraph(module, sources, tuple(t.decisions))
    notes = {
        "mutated_inputs": tuple(i for i, v in enumerate(t.inputs) if id(v) in t.mutated),
        "operations": sum(n.op in ("call_function", "call_method") for n in t.graph.nodes),
        "instructions": t.steps,
    }
    late = t.shapes.guards if t.shapes.symbolic else None
    made = (recipe, tuple(results.shared), results.effects, tuple(t.warned), stop, t.retried, late, tuple(t.trusted.values()), t.process)
    return Specialization(graph, guards_of(t), *made, notes)


def guards_of(t: Tracer) -> tuple[Guard, ...]:
    """All guards."""
    different = guard_aliases(t)
    for v in t.unread:
        if not v.read and ("equals", v.source, None) not in t.guards:
            t.guards[("type", v.source, None)] = Guard("type", v.source, type(v.held).__name__, v.stack, "it is passed on as it is")
    t.note_guards()
    return (*t.guards.values(), *different, *t.shapes.guards(), *memory_guards(t))
