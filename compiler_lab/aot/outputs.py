"""What each output of a traced program is: a result of the graph, an input, a view that is made again at run time, a plain value.

In: the tracer after the forward, the inputs (tensors and numbers), the program's outputs. Out: an ``OutputSpec`` for each, and ``ViewStep``s.
Always holds: an output that shares memory with an input or with another output is made by the view operators that the program itself made
it with (the tracer saw them), on the input, or on the memory they stand on; the graph returns that memory, hidden where the program does
not. So it has in common with the program's own what the caller can see: layout, history, errors of in-place changes, later changes of
either. That this is so is tried here, on fake tensors: where the operators give another tensor (a view that an ``autograd.Function`` made
has that function's gradient, not theirs) the output is taken as a result of its own, or refused where others would see its changes.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/collect_metadata_analysis.py`` (OutputType) and ``gen_alias_from_base``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.sizes import SYMBOLIC, plain
from .ir import GraphNumber, OutputSpec, ViewStep
from .tracer import Tracer, View, root, storage_of

OUTPUT_REASONS = {
    "returned": "the program returns this input itself",
    "view-of-input": "the program returns a view of this input: it is made again from the input, at run time",
    "view-of-result": "the program returns a view of what it computed: the graph gives the memory, and the view is made from it at run time",
    "view-of-its-own": "the view operators alone would not give this tensor again, and no other output shares its memory: the graph gives it as it is",
    "same-object": "the program returns the same tensor twice",
    "plain-value": "the program returns a plain value",
    "number": "the program returns a number that depends on sizes: the graph gives it",
}


def places_of(output: fx.Node, count: int) -> list[fx.Node]:
    """The node of each output; the output node for a plain value."""
    (args,) = output.args
    nodes = list(args) if isinstance(args, (tuple, list)) else [args] * count
    return [n if isinstance(n, fx.Node) else output for n in nodes]


class Outputs:
    """``specs``, one for each of ``values``: the program's outputs, then ``hidden`` tensors that views among them are made from with ``steps``.

    decide(kind, node, outcome, reason, **facts) and unsupported(node, what, reason, why) are the trace's own.
    """

    def __init__(
        self,
        tracer: Tracer,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        places: Sequence[fx.Node],
        decide: Callable[..., None],
        unsupported: Callable[..., Exception],
    ) -> None:
        self.tracer, self.inputs, self.places, self.decide, self.unsupported = tracer, inputs, places, decide, unsupported
        self.values = list(outputs)
        self.steps: list[ViewStep] = []
        self.number: dict[View, int] = {}
        self.sizes: dict[Any, GraphNumber] = {}  # by expression: numbers that views are made with
        self.made: dict[View, Any] = {}
        self.hidden = 0
        self.first: dict[int, int] = {}
        self.found: dict[int, OutputSpec] = {}
        memory: dict[Any, list[int]] = {}
        input_memory = {storage_of(t) for t in inputs if isinstance(t, Tensor)}
        for i, value in enumerate(outputs):
            if (spec := self.plain(i, value)) is not None:
                self.found[i] = spec
            else:
                memory.setdefault(storage_of(value), []).append(i)
        for storage, members in memory.items():
            self.found |= self.of_input(members) if storage in input_memory else self.fresh(members)
        self.specs = [self.found[i] for i in range(len(self.values))]

    def plain(self, i: int, value: Any) -> OutputSpec | None:
        """What needs no look at memory: a value that is no tensor, an input, the same tensor as before."""
        place = self.places[i]
        if isinstance(value := self.settled(value), SYMBOLIC):
            self.decide("output", place, "number", "number", number=i)
            return OutputSpec("number")
        if not isinstance(value, Tensor):
            self.decide("output", place, "constant", "plain-value", number=i)
            return OutputSpec("constant", constant=value)
        if value.layout != torch.strided:
            raise self.unsupported(place, "an output is not strided", "output-layout")
        first = self.first.setdefault(id(value), i)
        if first != i:
            self.decide("output", place, "same", "same-object", number=i, base=first)
            return OutputSpec("same", value.requires_grad, first)
        for k, tensor in enumerate(self.inputs):
            if value is tensor:
                self.decide("output", place, "input", "returned", number=i, base=k)
                return OutputSpec("input", value.requires_grad, k)
        return None

    def settled(self, value: Any) -> Any:
        """``value``, or the number that a symbol was found to be."""
        return value if not isinstance(value, SYMBOLIC) or isinstance(node := self.tracer.numbers.node(value), fx.Node) else node

    def of_input(self, members: Sequence[int]) -> dict[int, OutputSpec]:
        numbers = {id(t): k for k, t in enumerate(self.inputs)}
        found: dict[int, OutputSpec] = {}
        for i in members:
            view = self.tracer.views.get(id(self.values[i]))
            base = numbers.get(id(root(view))) if view is not None else None
            if view is None or base is None or not self.fits(view, self.values[i]):
                why = "a change of either would not be seen in the other, or it would have another gradient"
                raise self.unsupported(self.places[i], "an output stands on an input's memory and is not made by view operators alone", "view-of-input", why)
            self.decide("output", self.places[i], "view", "view-of-input", number=i, base=base)
            found[i] = OutputSpec("view", self.values[i].requires_grad, self.step(view, ("input", base)))
        return found

    def fresh(self, members: Sequence[int]) -> dict[int, OutputSpec]:
        """Outputs on one piece of memory that the program made."""
        views = {i: self.tracer.views.get(id(self.values[i])) for i in members}
        roots = {id(r): r for i, v in views.items() for r in [self.values[i] if v is None else root(v)]}
        (base,) = roots.values() if len(roots) == 1 else (self.values[members[0]],)
        if len(roots) > 1 or not all(v is None or self.fits(v, self.values[i]) for i, v in views.items()):
            if len(members) > 1:
                why = f"outputs {members[0]} and {members[1]} would no longer see each other's later changes"
                raise self.unsupported(self.places[members[1]], "two outputs share memory and are not made by view operators alone", "outputs-alias", why)
            base, views = self.values[members[0]], {members[0]: None}
            self.decide("output", self.places[members[0]], "result", "view-of-its-own", number=members[0])
        elif len(members) == 1 and is_detached(self.values[members[0]], base):
            base, views = self.values[members[0]], {members[0]: None}
        number = next((i for i, v in views.items() if v is None), len(self.values))
        needs_grad = base.requires_grad and (number < len(self.values) or any(map(tied, (self.values[i] for i in members))))
        if (base.requires_grad and base.grad_fn is None) or any(storage_of(base) == storage_of(c) for c in self.tracer.constants()):
            raise self.unsupported(self.places[members[0]], "an output is a leaf made inside the graph, or a constant of it", "leaf-output")
        found = {number: OutputSpec("tensor", needs_grad, is_view=base._is_view())}
        if number == len(self.values):
            self.values.append(base)
            self.hidden += 1
        for i, view in views.items():
            if view is not None:
                self.decide("output", self.places[i], "view", "view-of-result", number=i, base=number)
                found[i] = OutputSpec("view", self.values[i].requires_grad, self.step(view, ("output", number)))
        return found

    def hide(self, value: Tensor) -> int:
        """One more hidden output; its number."""
        self.values.append(value)
        self.specs.append(OutputSpec("tensor", value.requires_grad))
        self.hidden += 1
        return len(self.values) - 1

    def step(self, view: View, base: tuple[Any, int]) -> int:
        """The number of the step that makes ``view``, after those that make its source."""
        if view not in self.number:
            source = base if isinstance(view.source, Tensor) else ("step", self.step(view.source, base))
            self.number[view] = len(self.steps)
            args, kwargs = self.without_symbols(view.args), self.without_symbols(dict(view.kwargs))
            self.steps.append(ViewStep(view.op, source, args, kwargs, view.grad_enabled))
        return self.number[view]

    def without_symbols(self, a: Any) -> Any:
        """Arguments with numbers of the graph, which are hidden outputs, in the place of symbols."""
        if isinstance(a, (tuple, list)):
            return type(a)(map(self.without_symbols, a)) if type(a) in (tuple, list) else tuple(map(self.without_symbols, a))
        if isinstance(a, dict):
            return {k: self.without_symbols(v) for k, v in a.items()}
        if not isinstance(a := self.settled(a), SYMBOLIC):
            return a
        if plain(a) not in self.sizes:
            self.sizes[plain(a)] = GraphNumber(len(self.values))
            self.found[len(self.values)] = OutputSpec("number")
            self.values.append(a)
            self.hidden += 1
        return self.sizes[plain(a)]

    def fits(self, view: View, value: Tensor) -> bool:
        """Whether the operators, run now that the program has ended, give what the program has."""
        enabled = torch.is_grad_enabled()
        try:
            return looks_like(self.make(view), value)
        except RuntimeError:  # what it stands on has another shape by now
            return False
        finally:
            torch._C._set_grad_enabled(enabled)

    def make(self, view: View) -> Any:
        if view not in self.made:
            source = view.source if isinstance(view.source, Tensor) else self.make(view.source)
            torch._C._set_grad_enabled(view.grad_enabled)
            self.made[view] = view.op(source, *view.args, **view.kwargs)
        return self.made[view]


def seen_through(tracer: Tracer, value: Tensor) -> bool:
    """Whether ``as_strided``, which counts from where the memory begins, was used on ``value`` or a view of it."""
    return any(v.op is torch.ops.aten.as_strided.default and root(v) is value for v in tracer.views.values())


def is_detached(value: Tensor, base: Tensor) -> bool:
    """``base`` without history: as a result of the graph it is that by itself."""
    return not value.requires_grad and not value._is_view() and laid_out(value) == laid_out(base)


def laid_out(value: Tensor) -> tuple[Any, ...]:
    return storage_of(value), value.dtype, plain(value.shape), plain(value.stride()), plain(value.storage_offset()), value.is_conj(), value.is_neg()


def looks_like(a: Tensor, b: Tensor) -> bool:
    """Layout and history: the same gradient or none, and the same answer to a change in place."""
    history = lambda t: (t.requires_grad, t._is_view(), t.is_leaf, creation(t))
    return laid_out(a) == laid_out(b) and history(a) == history(b)


def creation(value: Tensor) -> Any:
    """Where a view comes from, which decides what becomes of a change in place; None where it is no view, or nothing is differentiated."""
    base = value._base
    return None if base is None or not base.requires_grad else getattr(torch._C, "_autograd")._get_creation_meta(value)  # noqa: B009


def tied(value: Tensor) -> bool:
    """Whether a gradient, or an error, of ``value`` depends on what autograd knows of the memory it stands on."""
    return value.requires_grad or creation(value) is not None
