"""``editing``: FX's own way to edit a graph (insertion points, ``replace_all_uses_with``, ``erase_node``), on a copy that is made whole afterwards.

In: a graph, and a ``with`` block in which somebody edits the copy. Out: ``Edit.result``: linted, recompiled, every node with its value, lines and
parents, and a decision for each node that was added or erased.
Always holds: the graph given is not changed; a new node comes from the nodes whose place it took, and from those that went with them.
PyTorch leaves ``lint`` and ``recompile`` to the author (``torch/fx/graph.py``, ``torch/fx/graph_module.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch.fx as fx

from ..core.artifact import Decision
from ..core.errors import InvalidIR
from ..core.fx import GraphArtifact, node_text
from ..core.provenance import stack_of
from .values import Graph, editable, propagate_shapes, reads

REASONS = {"by_hand": "whoever edited the graph did it"}


class Edit:
    """A copy to edit: ``graph`` and ``module`` are FX's; ``result`` is there after the block."""

    def __init__(self, before: GraphArtifact) -> None:
        self.before, self.module = before, before.module
        self.old = {n: (tuple(reads(n)), node_text(n), before.id(n)) for n in before.graph.nodes}
        self.result: GraphArtifact

    @property
    def graph(self) -> fx.Graph:
        return self.module.graph

    def finish(self) -> None:
        """Lints, recompiles, and gives new nodes what every node has. Raises ``InvalidIR`` for a graph that is not well formed."""
        try:
            self.graph.lint()
        except (RuntimeError, AssertionError) as error:
            raise InvalidIR(f"the edited graph is malformed: {error}", hint="a node stands before its users, and what is read is not erased") from error
        origins = self._origins()
        for node in self.graph.nodes:
            if node not in self.old:
                came = origins.get(node, ())
                stacks = (stack_of(n) for n in (*came, *node.all_input_nodes))
                node.meta |= {"parents": tuple(self.old[n][2] for n in came), "stack": next((s for s in stacks if s), ())}
        self.module.recompile()
        made = GraphArtifact(self.module, self.before.stage, (*self.before.decisions, *self._decisions()))
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.result = propagate_shapes(made, *(n.meta["val"] for n in inputs)) if all("val" in n.meta for n in inputs) else made

    def _origins(self) -> dict[fx.Node, tuple[fx.Node, ...]]:
        """New nodes -> the erased ones whose place they took at some reader, and what was erased with these."""
        erased = self.old.keys() - set(self.graph.nodes)
        found: dict[fx.Node, dict[fx.Node, None]] = {}
        for reader in self.graph.nodes:
            for was, now in zip(self.old[reader][0] if reader in self.old else (), reads(reader), strict=False):
                if was in erased and now not in self.old:
                    self._with_inputs(was, erased, found.setdefault(now, {}))
        return {new: tuple(n for n in self.old if n in came) for new, came in found.items()}

    def _with_inputs(self, node: fx.Node, erased: set[fx.Node], found: dict[fx.Node, None]) -> None:
        if node in erased and node not in found:
            found[node] = None
            for one in self.old[node][0]:
                self._with_inputs(one, erased, found)

    def _decisions(self) -> list[Decision]:
        nodes = set(self.graph.nodes)
        gone = [Decision("edit", (i,), "erased", "by_hand", {"node": text}) for n, (_, text, i) in self.old.items() if n not in nodes]
        new = [Decision("edit", (self.before.id(n),), "added", "by_hand", {}) for n in self.graph.nodes if n not in self.old]
        return [*gone, *new]


@contextlib.contextmanager
def editing(graph: Graph) -> Generator[Edit]:
    """A copy of ``graph`` to edit by hand::

        with editing(graph) as edit:
            for node in list(edit.graph.nodes):
                if node.target is torch.relu:
                    with edit.graph.inserting_after(node):
                        new = edit.graph.call_function(F.gelu, node.args)
                    node.replace_all_uses_with(new)
                    edit.graph.erase_node(node)
        after = edit.result

    Where the graph's inputs have values, all values are computed anew. Raises ``InvalidIR`` at the end of the block for a malformed graph.
    """
    edit = Edit(editable(graph))
    yield edit
    edit.finish()
