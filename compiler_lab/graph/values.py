"""Shapes and dtypes of a graph: every node is given its value as a fake tensor, without computing anything.

In: a graph (an artifact, or a bare ``GraphModule``) and example arguments; or one new node whose inputs have values. Out: a graph with
``meta["val"]`` on every node; or that node's value.
Always holds: nothing real is written, neither arguments nor parameters nor buffers; a value is as it was when its node had run, also where
a later node changes its shape in place.
PyTorch's counterpart: ``torch/fx/passes/shape_prop.py`` (which runs on real tensors, and keeps shape, dtype and strides in
``meta["tensor_meta"]``) and ``torch/fx/passes/fake_tensor_prop.py``.
Left out: sizes that depend on data, which raise ``Unsupported``.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import torch
import torch.fx as fx
from torch.utils._pytree import tree_leaves, tree_map

from ..core.errors import Unsupported
from ..core.fakes import fake_mode
from ..core.fx import GraphArtifact, copied
from ..core.provenance import Location, Stack, own_location, stack_of

Graph = GraphArtifact | fx.GraphModule
STAGE = "fx"  # of a graph that no stage of the pipeline made


def module_of(graph: Graph) -> fx.GraphModule:
    return graph.module if isinstance(graph, GraphArtifact) else graph


def reads(node: fx.Node) -> list[fx.Node]:
    """The nodes among the arguments, in order, as often as they stand there."""
    return [a for a in tree_leaves((node.args, dict(node.kwargs))) if isinstance(a, fx.Node)]


def editable(graph: Graph) -> GraphArtifact:
    """A copy whose nodes keep names, values, stacks and parents; of a bare module an artifact of stage "fx"."""
    module = module_of(graph)
    made = copied(module.graph)
    made._codegen = module.graph._codegen
    for node in made.nodes:
        node.meta = {"stack": _told_stack(node), "parents": ()} | node.meta
    stage, decisions = (graph.stage, graph.decisions) if isinstance(graph, GraphArtifact) else (STAGE, ())
    return GraphArtifact(fx.GraphModule(module, made), stage, decisions)


def _told_stack(node: fx.Node) -> Stack:
    """The lines in the text that torch's tracers leave in ``stack_trace``, outermost first."""
    found = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', node.stack_trace or "")
    return tuple(Location(file, int(line), function) for file, line, function in found)


def snapshot(value: Any) -> Any:
    """``value`` with tensors that later changes of shape do not reach; they share its memory."""

    def one(t: Any) -> Any:
        return t.detach().requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t

    return tree_map(one, value)


class ShapePropagation(fx.Interpreter):
    """Runs a graph on fake tensors of ``mode`` and keeps every value in its node."""

    def __init__(self, module: fx.GraphModule, mode: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.mode, self.extra_traceback = mode, False

    def fake(self, value: Any) -> Any:
        return tree_map(lambda t: self.mode.from_tensor(t) if isinstance(t, torch.Tensor) else t, value)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.fake(super().get_attr(target, args, kwargs))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        state = {name: self.fake(t) for name, t in (*module.named_parameters(), *module.named_buffers())}
        return torch.func.functional_call(module, state, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

        try:
            value = super().run_node(n)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            where = own_location(stack_of(n))
            why = "the result depends on the elements of a tensor, and here there are none"
            raise Unsupported(f"{n.name} has no shape before it has run", reason="data-dependent", where=where, why=why) from error
        if n.op != "output":
            n.meta["val"] = snapshot(value)
        return value


def propagate_shapes(graph: Graph, *args: Any) -> GraphArtifact:
    """A copy of ``graph`` in which ``meta["val"]`` of every node is what it gives for ``args``, as a fake tensor (or a plain value).

    graph: an artifact or a ``GraphModule``, for example one that a backend was given or a learner has edited.
    args: one for each argument of the graph; real tensors, or fake ones of one mode.
    Raises ``Unsupported`` where a shape depends on data; what an operator raises for wrong shapes, it raises here.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    made = editable(graph)
    given = [v for a in args for v in tree_leaves(a) if isinstance(v, FakeTensor)]
    run = ShapePropagation(made.module, given[0].fake_mode if given else fake_mode(allow_non_fake_inputs=True))
    with run.mode:
        run.run(*(a if isinstance(a, FakeTensor) else run.fake(a) for a in args))
    return made


def with_values(graph: Graph, *args: Any) -> GraphArtifact:
    """A copy of ``graph`` whose nodes have values: those that they came with (``val``, or ``example_value`` of torch's capture, which may have
    symbolic sizes), or what ``propagate_shapes`` finds for ``args``."""
    made = editable(graph)
    for key in ("val", "example_value"):
        if all(key in n.meta for n in made.graph.nodes if n.op != "output"):
            for node in made.graph.nodes:
                if node.op != "output":
                    node.meta["val"] = snapshot(node.meta[key]) if key != "val" else node.meta[key]
            return made
    return propagate_shapes(graph, *args)


def value_of(node: fx.Node) -> Any:
    """What a new ``node`` gives, from the values of its inputs; ``NotImplemented`` where one of them has none.

    The node must not write: its inputs' values are what it runs on."""
    from torch._subclasses.fake_tensor import FakeTensor

    if any("val" not in i.meta for i in node.all_input_nodes):
        return NotImplemented
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    leaves = tree_leaves((args, kwargs))
    mode = next((v.fake_mode for v in leaves if isinstance(v, FakeTensor)), None) or fake_mode(allow_non_fake_inputs=True)
    with mode:
        target: Any = getattr(args[0], str(node.target)) if node.op == "call_method" else node.target
        return snapshot(target(*(args[1:] if node.op == "call_method" else args), **kwargs))


def tensor_of(node: Any) -> torch.Tensor | None:
    """The tensor that ``node`` gives, as far as is known."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def layout(value: Any) -> Any:
    """All that a reader can tell of a value but its elements, sizes as they are written; of a tuple, of its parts."""
    if isinstance(value, (tuple, list)):
        return tuple(map(layout, value))
    if not isinstance(value, torch.Tensor):
        return type(value)
    return (value.dtype, value.device, *(tuple(map(str, part)) for part in (value.shape, value.stride())), value.is_conj(), value.is_neg())


def share_memory(a: Any, b: Any) -> bool:
    """Two tensors, fake or real, of one storage; of tensors that have none (sparse ones) it is taken that they do."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return True
    return operator.eq(*(t.untyped_storage()._cdata for t in (a, b)))
