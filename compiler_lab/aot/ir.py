"""What ahead-of-time autograd gives: the joint graph with its calling convention, and the partition of it.

A joint graph takes ``(primals..., tangents...)`` and returns ``(updates..., outputs..., gradients...)``:

* ``primals_N``   the captured graph's inputs in order; ``tangents_N`` one for each output that requires grad
* updates        the new value of each input the program mutates, in the order of ``spec.mutations``
* outputs        the program's outputs in order (None stands where an output is an alias or a constant, see ``OutputSpec``), then
                 hidden ones: memory that the program returns views of, and not itself, new values of inputs that have a gradient, and
                 numbers that views are made with
* gradients      one for each primal in order, None where it requires none

The same graph is "joint" as traced, "pure" once functionalized, "decomposed" once opened; ``state`` tells. The forward graph
of a ``Partition`` takes the primals and returns ``(updates..., outputs..., saved...)``; the backward one takes
``(saved..., tangents...)`` and returns one value for each primal (None where it requires no grad).

Where sizes are symbols (``spec.symbolic``), some primals are numbers, and so may outputs and saved values be; a number has no tangent, and its gradient
is None.

An output that is a view is no result of the graph: the graph gives the memory, ``spec.views`` says with which of the program's own view
operators the output is made from it. They run where the program was called, outside of the function that autograd sees, so that
what they give has the history, the version counter and the errors that the program's own views have.

PyTorch's counterpart: ``torch/_functorch/aot_autograd.py`` (ViewAndMutationMeta) and ``partitioners.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch.fx as fx

from ..core.artifact import Decision
from ..core.errors import InvalidIR
from ..core.fx import GraphArtifact, format_arg

State = Literal["joint", "pure", "decomposed"]


@dataclass(frozen=True)
class GraphNumber:
    """In the place of an argument: the number that the graph returns as this output."""

    output: int

    def __repr__(self) -> str:
        return f"output {self.output}"


@dataclass(frozen=True)
class ViewStep:
    """A view operator of the program: ``op(source, *args, **kwargs)``, in the grad mode it ran in.

    source: an input after the program's updates, an output that the graph returns, or an earlier step (by number); ``op`` is an
    ``OpOverload``, or ``operator.getitem`` for one of the views that the step before gives.
    """

    op: Any
    source: tuple[Literal["input", "output", "step"], int]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    grad_enabled: bool = True

    def text(self) -> str:
        kind, index = self.source
        given = [f"{'view' if kind == 'step' else kind} {index}", *map(format_arg, self.args), *(f"{k}={format_arg(v)}" for k, v in self.kwargs.items())]
        name = "getitem" if self.op is operator.getitem else str(self.op)
        return f"{name}({', '.join(given)}){'' if self.grad_enabled else ' without grad mode'}"


@dataclass(frozen=True)
class OutputSpec:
    """One output of the program.

    tensor    a graph output, fresh memory
    number    a graph output that is an int, a float or a bool
    input     the input ``base`` itself is returned
    view      what step ``base`` of ``JointSpec.views`` gives
    same      the same tensor object as output number ``base``
    constant  the plain value ``constant``
    """

    kind: Literal["tensor", "number", "input", "view", "same", "constant"]
    requires_grad: bool = False
    base: int = -1
    constant: Any = None
    is_view: bool = False  # of a "tensor": the program's own is a view, of memory that nobody else sees, which may not be changed in place


@dataclass(frozen=True)
class JointSpec:
    """The calling convention of a joint graph and of everything made from it."""

    primals: int
    outputs: tuple[OutputSpec, ...]  # the program's, then ``hidden`` of kind "tensor" or "number"
    mutations: tuple[int, ...] = ()  # primal indices, in the order their updates are returned
    needs_grad: tuple[bool, ...] = ()  # per primal: a gradient is computed for it
    tangents: tuple[int, ...] = ()  # output indices, in the order of the tangents
    grad_enabled: bool = True  # the grad mode the program is entered with; it may switch it on inside
    inference: bool = False  # the program enters inference mode: what it makes are inference tensors
    views: tuple[ViewStep, ...] = ()
    hidden: int = 0
    rewrites: tuple[tuple[int, int], ...] = ()  # (primal, output): the primal becomes this value, with its gradient, before views are made
    shared: tuple[int, ...] = ()  # primals on the memory of others that are overwritten: they may have another value after the call, too
    symbolic: bool = False  # sizes are symbols: layouts are those of each call
    numbers: tuple[int, ...] = ()  # primal indices of those that are no tensors

    @property
    def forward_outputs(self) -> int:
        """How many values the forward returns before the saved ones: updates, then one per output, hidden ones too."""
        return len(self.mutations) + len(self.outputs)

    @property
    def overwritten(self) -> tuple[int, ...]:
        """The primals that have another value after the call, or may have."""
        return (*self.mutations, *(i for i, _ in self.rewrites), *self.shared)

    @property
    def visible(self) -> int:
        """How many outputs the program has."""
        return len(self.outputs) - self.hidden

    def text(self) -> str:
        """What is made of the graph's results, one thing a line; "" where there is nothing to make."""
        made = [f"input {i} shares memory with one that is written" for i in self.shared]
        made += [f"input {i} = output {k}" for i, k in self.rewrites]
        made += [f"view {k} = {step.text()}" for k, step in enumerate(self.views)]
        return "\n".join([*made, *(f"output {i} = view {o.base}" for i, o in enumerate(self.outputs) if o.kind == "view")])

    def check(self, stage: str) -> None:
        """Every number names something that there is, and that is made before it is read."""
        sizes = {"input": self.primals, "output": len(self.outputs)}
        for k, step in enumerate(self.views):
            kind, index = step.source
            if not 0 <= index < sizes.get(kind, k) or (kind == "output" and self.outputs[index].kind != "tensor"):
                raise InvalidIR(f"{stage}: view {k} is one of {kind} {index}, which is not there")
        for i, out in enumerate(self.outputs):
            known = {"tensor": 1, "number": 1, "constant": 1, "input": self.primals, "same": i, "view": len(self.views)}[out.kind]
            if out.kind not in ("tensor", "number", "constant") and not 0 <= out.base < known:
                raise InvalidIR(f"{stage}: output {i} is {out.kind} {out.base}, which is not there")
            if i >= self.visible and out.kind not in ("tensor", "number"):
                raise InvalidIR(f"{stage}: the hidden output {i} is no graph output")
        if any(not 0 <= i < self.primals for i in self.shared):
            raise InvalidIR(f"{stage}: an input that shares memory is not there")
        if any(not 0 <= i < self.primals or not self.visible <= k < len(self.outputs) for i, k in self.rewrites):
            raise InvalidIR(f"{stage}: an input is overwritten with what is no hidden output")
        wrong = [i for i in self.tangents if self.outputs[i].kind != "tensor" or not self.outputs[i].requires_grad]
        if wrong:
            raise InvalidIR(f"{stage}: output {wrong[0]} has a tangent and is not differentiable")


class JointGraph(GraphArtifact):
    """Forward and backward in one graph; ``stage`` is "aot.joint", "aot.pure" or "aot.decomposed"."""

    def __init__(self, module: fx.GraphModule, spec: JointSpec, state: State = "joint", decisions: tuple[Decision, ...] = ()) -> None:
        super().__init__(module, f"aot.{state}", decisions)
        self.spec, self.state = spec, state

    def text(self) -> str:
        return "\n".join(filter(None, (super().text(), self.spec.text())))

    def check(self) -> None:
        super().check()
        self.spec.check(self.stage)


@dataclass(frozen=True)
class FlowEdge:
    """``source -> target`` with ``capacity`` in bytes (``INFINITE`` where it may not be cut)."""

    source: str
    target: str
    capacity: float


@dataclass(frozen=True)
class FlowSolution:
    """A maximum flow: augmenting paths in order (nodes, bytes pushed), its value, and the minimum cut it proves."""

    value: float
    paths: tuple[tuple[tuple[str, ...], float], ...]
    source_side: frozenset[str]
    cut: tuple[FlowEdge, ...]


@dataclass(frozen=True)
class FlowNetwork:
    """The min-cut problem as a plain graph: each FX node split into NAME_in -> NAME_out, from "source" to "sink"."""

    edges: tuple[FlowEdge, ...] = ()
    solution: FlowSolution | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def text(self) -> str:
        from .flow_drawing import network_text

        return network_text(self)

    def dot(self, paths: int | None = None) -> str:
        """DOT, after the first ``paths`` augmenting paths."""
        from .flow_drawing import network_dot

        return network_dot(self, paths)

    def svg(self, paths: int | None = None) -> str | None:
        """An SVG element, after the first ``paths`` augmenting paths; None without Graphviz, and for what is too large to be laid out."""
        from .flow_drawing import network_svg

        return network_svg(self, paths)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from .flow_drawing import network_html

        return {"text/plain": self.text(), "text/html": network_html(self)}


INFINITE = float("inf")
