"""What ahead-of-time autograd gives: the joint graph with its calling convention, and the partition of it.

A joint graph takes ``(primals..., tangents...)`` and returns ``(updates..., outputs..., gradients...)``:

* ``primals_N``   the captured graph's inputs in order; ``tangents_N`` one for each output that requires grad
* updates        the new value of each input the program mutates, in the order of ``spec.mutations``
* outputs        the program's outputs in order (None stands where an output is an alias or a constant, see ``OutputSpec``)
* gradients      one for each primal in order, None where it requires none

The same graph is "joint" as traced, "pure" once functionalized, "decomposed" once opened; ``state`` tells. The forward graph
of a ``Partition`` takes the primals and returns ``(updates..., outputs..., saved...)``; the backward one takes
``(saved..., tangents...)`` and returns one value for each primal (None where it requires no grad).

PyTorch's counterpart: ``torch/_functorch/aot_autograd.py`` (ViewAndMutationMeta) and ``partitioners.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch.fx as fx

from ..core.artifact import Decision
from ..core.fx import GraphArtifact

State = Literal["joint", "pure", "decomposed"]


@dataclass(frozen=True)
class OutputSpec:
    """One output of the program.

    tensor    a graph output, fresh memory
    input     the input ``base`` itself is returned
    view      a view of input ``base`` after its updates: ``as_strided(size, stride, offset)``, regenerated at run time
    same      the same tensor object as output number ``base``
    constant  the plain value ``constant``
    """

    kind: Literal["tensor", "input", "view", "same", "constant"]
    requires_grad: bool = False
    base: int = -1
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    constant: Any = None


@dataclass(frozen=True)
class JointSpec:
    """The calling convention of a joint graph and of everything made from it."""

    primals: int
    outputs: tuple[OutputSpec, ...]
    mutations: tuple[int, ...] = ()  # primal indices, in the order their updates are returned
    needs_grad: tuple[bool, ...] = ()  # per primal: a gradient is computed for it
    tangents: tuple[int, ...] = ()  # output indices, in the order of the tangents
    grad_enabled: bool = True  # the grad mode the program is entered with; it may switch it on inside
    inference: bool = False  # the program enters inference mode: what it makes are inference tensors

    @property
    def forward_outputs(self) -> int:
        """How many values the forward returns before the saved ones: updates, then one per output."""
        return len(self.mutations) + len(self.outputs)


class JointGraph(GraphArtifact):
    """Forward and backward in one graph; ``stage`` is "aot.joint", "aot.pure" or "aot.decomposed"."""

    def __init__(self, module: fx.GraphModule, spec: JointSpec, state: State = "joint", decisions: tuple[Decision, ...] = ()) -> None:
        super().__init__(module, f"aot.{state}", decisions)
        self.spec, self.state = spec, state


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


INFINITE = float("inf")
