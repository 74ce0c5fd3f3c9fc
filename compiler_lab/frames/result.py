"""The end of a capture: the recipe of the result, the graph's outputs, and the checks that span all inputs.

In: the value that the frame returned. Out: ``Specialization``. Always holds: the graph returns exactly the tensors that the recipe needs;
the same tensor object twice is one output; inputs that share memory are not changed.
PyTorch's counterpart: ``torch/_dynamo/codegen.py`` and the end of ``output_graph.py``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..core.provenance import Stack
from .ir import CapturedGraph, Guard, Recipe, Specialization, Stop
from .reasons import CaptureUnsupported
from .tracer import Tracer
from .values.base import Constant, Value
from .values.containers import DictValue, SequenceValue, SetValue, SliceValue
from .values.functions import FunctionValue
from .values.objects import ClassValue, ExceptionValue, ObjectValue
from .values.symbolic import SymbolicValue
from .values.tensor import TensorValue


class Results:
    """Collects graph outputs while the recipe is written."""

    def __init__(self, t: Tracer) -> None:
        self.t = t
        self.outputs: dict[int, tuple[int, TensorValue | SymbolicValue]] = {}
        self.seen: set[int] = set()

    def recipe(self, value: Value) -> Recipe:
        if isinstance(value, TensorValue):
            return self._tensor(value)
        if isinstance(value, SymbolicValue):
            return self._number(value)
        if value.source is not None and not isinstance(value, Constant):
            return Recipe("source", value.source)
        if isinstance(value, Constant):
            return Recipe("constant", value.value)
        if isinstance(value, ClassValue) or (isinstance(value, FunctionValue) and value.real is not None):
            return Recipe("constant", value.real)
        self._once(value)
        if isinstance(value, SequenceValue):
            return self._sequence(value)
        if isinstance(value, DictValue):
            return self._dict(value)
        if isinstance(value, SetValue):
            parts = tuple(map(self.recipe, value.entries.values()))
            return Recipe("set", None, parts) if value.cls is set else Recipe("call", frozenset, (Recipe("tuple", None, parts),))
        if isinstance(value, SliceValue):
            return Recipe("slice", None, tuple(map(self.recipe, (value.start, value.stop, value.step))))
        if type(value) is ObjectValue:
            return self._object(value)
        raise self.refuse(value.describe())

    def refuse(self, what: str) -> CaptureUnsupported:
        return CaptureUnsupported("return-value", what, self.t.last[0])

    def _once(self, value: Value) -> None:
        """A mutable object that appears twice must stay one object, which a recipe cannot say."""
        shared = not (isinstance(value, SequenceValue) and value.cls is not list)
        if id(value) in self.seen and shared:
            raise self.refuse(f"{value.describe()} appears twice in the result")
        self.seen.add(id(value))

    def _tensor(self, value: TensorValue | SymbolicValue) -> Recipe:
        if value.source is not None:
            return Recipe("source", value.source)
        index, _ = self.outputs.setdefault(id(value), (len(self.outputs), value))
        return Recipe("output", index)

    def _number(self, value: SymbolicValue) -> Recipe:
        if (known := value.constant(self.t)) is not None:
            return Recipe("constant", known.value)
        return self._tensor(value)

    def _sequence(self, value: SequenceValue) -> Recipe:
        parts = tuple(map(self.recipe, value.values()))
        if value.cls in (list, tuple):
            return Recipe("list" if value.cls is list else "tuple", None, parts)
        if hasattr(value.cls, "_fields"):
            return Recipe("call", value.cls._make, (Recipe("tuple", None, parts),))  # type: ignore[attr-defined]
        return Recipe("call", value.cls, (Recipe("tuple", None, parts),))

    def _dict(self, value: DictValue) -> Recipe:
        pairs = value.pairs()
        keys = tuple(self.t.maybe_constant(k) for k, _ in pairs)
        if not self.t.is_constant(*[k for k, _ in pairs]):
            raise self.refuse("a dict whose keys are no constants")
        parts = tuple(self.recipe(v) for _, v in pairs)
        made = Recipe("dict", keys, parts)
        return made if value.cls is dict else Recipe("call", value.cls, (made,))

    def _object(self, value: ObjectValue) -> Recipe:
        if isinstance(value, ExceptionValue) or value.real is not None or value.cls is object:
            raise self.refuse(value.describe())
        names = tuple(value.attributes)
        parts = tuple(self.recipe(v) for v in value.attributes.values())
        return Recipe("call", rebuild, (Recipe("constant", value.cls), Recipe("constant", names), *parts))


def rebuild(cls: type[Any], names: tuple[str, ...], *parts: Any) -> Any:
    """An instance of ``cls`` with these attributes, as its ``__init__`` left it."""
    made = object.__new__(cls)
    for name, part in zip(names, parts, strict=False):
        object.__setattr__(made, name, part)
    return made


def specialization(t: Tracer, value: Value, definition: Stack) -> Specialization:
    """Close the graph over what the recipe of the frame's result needs."""
    results = Results(t)
    recipe = results.recipe(value)
    check_aliases(t, definition)
    return close(results, recipe, None, definition)


def close(results: Results, recipe: Recipe, stop: Stop | None, definition: Stack) -> Specialization:
    """The capture is over: the graph returns what the recipes need."""
    t = results.t
    if any(g.suspended_inside() for g in t.generators):
        raise CaptureUnsupported("generator", "one is left suspended inside try or with, whose end Python runs when it is dropped", definition)
    output = t.graph.output(tuple(v.node(t) if isinstance(v, SymbolicValue) else v.node for _, v in results.outputs.values()))
    output.meta.update(stack=definition, parents=())
    module = fx.GraphModule(torch.nn.Module(), t.graph)
    sources = tuple(v.source for v in t.inputs if v.source is not None)
    graph = CapturedGraph(module, sources, tuple(t.decisions))
    notes = {
        "mutated_inputs": tuple(i for i, v in enumerate(t.inputs) if id(v) in t.mutated),
        "operations": sum(n.op in ("call_function", "call_method") for n in t.graph.nodes),
        "instructions": t.steps,
    }
    return Specialization(graph, guards_of(t), recipe, stop=stop, before=tuple(t.warned), notes=notes)


def guards_of(t: Tracer) -> tuple[Guard, ...]:
    """All guards; where inputs are changed, also that no other input reaches their memory, which ``check_aliases`` saw at capture."""
    changed = tuple(v.source for v in t.inputs if id(v) in t.mutated)
    others = tuple(v.source for v in t.inputs if isinstance(v, TensorValue) and id(v) not in t.mutated)
    guards = (*t.guards.values(), *t.shapes.guards())
    if not changed or not (others or changed[1:]):
        return guards
    stack = next(iter(t.mutated.values())).node.meta["stack"]
    return (*guards, Guard("disjoint", None, (changed, others), stack, "inputs are changed"))


def check_aliases(t: Tracer, definition: Stack) -> None:
    """Refuse inputs that share memory when one of them is changed."""
    spans: dict[int, list[tuple[int, int, TensorValue]]] = {}
    for value in t.inputs:
        real = value.real_tensor if isinstance(value, TensorValue) else None
        if not isinstance(value, TensorValue) or real is None or not real.numel():
            continue
        first = int(real.storage_offset()) * real.element_size()
        last = first + (sum((int(n) - 1) * s for n, s in zip(real.shape, real.stride(), strict=True)) + 1) * real.element_size()
        spans.setdefault(real.untyped_storage()._cdata, []).append((first, last, value))
    for group in spans.values():
        for at, (first, last, value) in enumerate(group):
            for first_other, last_other, other in group[:at]:
                if first < last_other and first_other < last and (id(value) in t.mutated or id(other) in t.mutated):
                    raise CaptureUnsupported("aliased-inputs", f"{value.node.name} and {other.node.name}", definition)
