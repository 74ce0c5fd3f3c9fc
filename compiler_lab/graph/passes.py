"""Clean-up passes over FX graphs: each takes a graph and gives a graph of the same class, with a ``Decision`` for every change.

In: any ``GraphArtifact``. Out: the same class, stage and inputs, a new module; untouched nodes keep their names, stacks and
parents, a node that stands for several has the parents of all of them.
Always holds: ``run`` gives the same values, outputs are as distinct in memory as before, random numbers are drawn as often
and in the same order, and the graph given is not changed. Whatever a pass cannot see into (a Python function that is not torch's, a
submodule) it keeps and does not reorder; all but ``eliminate_dead_code`` leave a graph that writes to tensors alone.
Dead code and common subexpressions work on torch-level graphs as well (``effects.py``), the other two on aten graphs.
PyTorch's counterparts: ``torch/fx/graph.py`` (eliminate_dead_code), ``torch/_functorch/compile_utils.py`` (fx_graph_cse),
``torch/_inductor/constant_folding.py`` and ``torch/_inductor/fx_passes/joint_graph.py`` (no-op views).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_leaves

from ..core.artifact import Decision
from ..core.fx import GraphArtifact, copied
from ..core.provenance import parents_of
from ..core.schema import has_effect, is_number, is_random, is_view, mutates, op_name, overload
from ..core.sizes import depends, plain, same
from ..core.strides import contiguous_stride
from .effects import draws, may_fail, writes
from .values import share_memory

G = TypeVar("G", bound=GraphArtifact)
PURE_KINDS = ("call_function", "call_method", "get_attr")  # calls of modules are kept as they are

REASONS = {
    "unread": "nobody reads it, and running it has no effect of its own",
    "duplicate": "an earlier node computes the same operator on the same operands",
    "both_returned": "both reach an output, and two outputs must not share memory that they did not share",
    "constant": "made from constants alone, and all its elements are equal",
    "same_view": "shows the same elements in the same places as what it is a view of",
    "same_copy": "a copy with the same layout of a value that nobody overwrites",
    "view_of_view": "one view gives what two gave",
    "writes": "the graph writes to tensors, so a value may change between two readings",
}


def to_edit(graph: GraphArtifact) -> fx.Graph:
    """A copy to edit. Unlike ``core.fx.fork`` it keeps parents: ids are the same, since the stage is."""
    new = copied(graph.graph)
    new._codegen, new.owning_module = graph.graph._codegen, graph.module
    return new


def with_graph(graph: G, edited: fx.Graph, decisions: Iterable[Decision]) -> G:
    """``graph`` with another FX graph, everything else it says about itself kept; its code is generated when it is first asked for."""
    made = copy.copy(graph)
    made.module, made.decisions = _LazyGraphModule(graph.module, edited), (*graph.decisions, *decisions)
    return made


def _told(graph: GraphArtifact, kind: str, node: fx.Node, outcome: str, reason: str, **facts: Any) -> Decision:
    return Decision(kind, (graph.id(node),), outcome, reason, facts)


def _is_opaque(node: fx.Node) -> bool:
    """No overload, and it writes, or its effects cannot be told."""
    return overload(node) is None and writes(node)


def _replace(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def _left_alone(graph: G, kind: str) -> G | None:
    """The graph unchanged, with the reason, where it writes to tensors."""
    writer = next((n for n in graph.graph.nodes if mutates(n) or _is_opaque(n)), None)
    return None if writer is None else with_graph(graph, to_edit(graph), (_told(graph, kind, writer, "refused", "writes"),))


def returned_by(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory reaches an output: the outputs and what they are views of."""
    found, queue = set[fx.Node](), list(graph.output_node().all_input_nodes)
    while queue:
        node = queue.pop()
        if node not in found:
            found.add(node)
            queue += _viewed(node)
    return found


def _viewed(node: fx.Node) -> Sequence[fx.Node]:
    """The inputs that ``node`` may show the memory of: below autograd the schema tells, above it the values do, as far as they are known."""
    if overload(node) is not None or op_name(node) == "getitem":
        return node.all_input_nodes[:1] if is_view(node) or op_name(node) == "getitem" else ()
    return [i for i in node.all_input_nodes if _may_share(i.meta.get("val"), node.meta.get("val"))]


def _may_share(a: Any, b: Any) -> bool:
    return a is None or b is None or any(share_memory(x, y) for x in tree_leaves(a) for y in tree_leaves(b))


# ------------------------------------------------------------------------------------------------------------- dead code


def eliminate_dead_code(graph: G) -> G:
    """Drops what no output depends on. Kept: placeholders, what has an effect (writes, draws, returns nothing, is opaque), and what may raise."""
    edited, decisions = to_edit(graph), list[Decision]()
    for node in reversed(edited.nodes):
        if not node.users and node.op in PURE_KINDS and not (has_effect(node) or _is_opaque(node) or draws(node) or may_fail(node)):
            decisions.append(_told(graph, "eliminate", node, "removed", "unread"))
            edited.erase_node(node)
    return with_graph(graph, edited, reversed(decisions))


# ------------------------------------------------------------------------------------------------- common subexpressions


def _key(value: Any) -> Any:
    """A hashable stand-in for an argument: equal keys, same meaning (1, 1.0 and True differ, and so do 0.0 and -0.0)."""
    if isinstance(value, fx.Node):
        return ("node", value.name)
    if isinstance(value, (tuple, list)):
        return ("list", *map(_key, value))
    if isinstance(value, dict):
        return ("dict", *((k, _key(v)) for k, v in sorted(value.items())))
    if isinstance(value, slice):
        return ("slice", _key(value.start), _key(value.stop), _key(value.step))
    return (type(value).__name__, repr(value))


def eliminate_common_subexpressions(graph: G) -> G:
    """One node for all that call the same operator on the same operands.

    Never merged: random operators, operators with an effect, and two values that both reach an output, which must stay two.
    """
    if (same := _left_alone(graph, "merge")) is not None:
        return same
    edited, decisions = to_edit(graph), list[Decision]()
    returned = returned_by(edited)
    seen: dict[Any, fx.Node] = {}
    for node in list(edited.nodes):
        if node.op not in PURE_KINDS or (has_effect(node) if overload(node) is not None else draws(node)):
            continue
        key = (node.op, node.target, _key(node.args), _key(node.kwargs), node.meta.get("recompute"))
        first = seen.setdefault(key, node)
        if first is node:
            continue
        if node in returned and first in returned and node.op != "get_attr":
            decisions.append(_told(graph, "merge", node, "kept", "both_returned", into=graph.id(first)))
            continue
        if node in returned:
            returned.add(first)
        decisions.append(_told(graph, "merge", node, "merged", "duplicate", into=graph.id(first)))
        first.meta["parents"] = tuple(dict.fromkeys((*parents_of(first), *parents_of(node))))  # it computes for both lines now
        _replace(node, first)
    return with_graph(graph, edited, decisions)


# ------------------------------------------------------------------------------------------------------------- constants

LARGEST_FOLDED = 4096  # elements: beyond that, computing at compile time costs more than it saves


def fold_constants(graph: G) -> G:
    """What is made from constants alone and turns out to be one number everywhere becomes ``aten.full``.

    Attributes count as inputs, not as constants: a tensor that a module holds may change. Values are computed on the CPU.
    """
    if (same := _left_alone(graph, "fold")) is not None:
        return same
    edited, decisions = to_edit(graph), list[Decision]()
    returned = returned_by(edited)
    values: dict[fx.Node, torch.Tensor] = {}
    for node in list(edited.nodes):
        op, val = overload(node), node.meta.get("val")
        known = op is not None and not is_random(node) and all(i in values for i in node.all_input_nodes)
        if not known or not isinstance(val, torch.Tensor) or val.numel() > LARGEST_FOLDED or val.device.type != "cpu" or "empty" in op_name(node):
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        assert op is not None
        with torch.no_grad():
            value = op(*args, **kwargs)
        values[node] = value
        fresh = value.is_contiguous() and not (is_view(node) and node in returned)
        if node.all_input_nodes and fresh and _is_uniform(value) and (value.dtype, value.shape) == (val.dtype, val.shape):
            full = {"dtype": value.dtype, "layout": torch.strided, "device": value.device, "pin_memory": False}
            node.target, node.args, node.kwargs = torch.ops.aten.full.default, (list(value.shape), value.flatten()[0].item()), full
            decisions.append(_told(graph, "fold", node, "folded", "constant"))
    return with_graph(graph, edited, decisions)


def _is_uniform(value: torch.Tensor) -> bool:
    """All elements alike, the sign of zero included; no NaN (which may carry bits), no complex numbers."""
    if value.numel() == 0 or value.is_complex() or value.dtype not in FOLDED_TYPES:
        return False
    first = value.flatten()[0]
    alike = bool((value == first).all())
    return alike and (not value.is_floating_point() or bool((value.signbit() == first.signbit()).all()))


FOLDED_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


# ----------------------------------------------------------------------------------------------------------------- views

# Views that only rename places: equal shape, strides and offset mean equal elements (``view.dtype`` and ``_conj`` are not of the kind).
RESHAPES = ("aten.view", "aten._unsafe_view", "aten.reshape", "aten._reshape_alias")
IDENTITIES = frozenset(
    (*RESHAPES, *(f"aten.{n}" for n in ("expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "slice", "alias", "detach", "narrow")))
)
COPIES = frozenset({"aten.clone", "aten._to_copy"})
BY_STORAGE = frozenset(f"aten.{n}" for n in ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"))


def _layout(node: fx.Node) -> tuple[Any, ...]:
    """Everything a reader can tell of a tensor but its values."""
    val = node.meta["val"]
    return (val.dtype, val.device, plain(val.shape), plain(val.stride()), val.requires_grad, val.is_conj(), val.is_neg())


def _is_same_view(node: fx.Node, base: fx.Node) -> bool:
    return op_name(node) in IDENTITIES and isinstance(base.meta.get("val"), torch.Tensor) and _layout(node) == _layout(base)


def _is_same_copy(node: fx.Node, base: fx.Node) -> bool:
    alike = isinstance(base.meta.get("val"), torch.Tensor) and _layout(node) == _layout(base)
    if not alike or op_name(node) not in COPIES or node.kwargs.get("pin_memory"):
        return False
    return same(node.meta["val"].storage_offset(), base.meta["val"].storage_offset()) or not _counts_from_storage(node)


def _counts_from_storage(node: fx.Node) -> bool:
    """Whether somebody reads it, or a view of it, by places in its storage: a copy begins at 0 there, what it copies may not."""
    return any(op_name(u) in BY_STORAGE or (is_view(u) and _counts_from_storage(u)) for u in node.users)


def _dims(node: fx.Node) -> tuple[int, ...] | None:
    """The permutation that ``permute``, ``transpose`` or ``t`` makes, or None for other nodes."""
    name, rank = op_name(node), node.meta["val"].dim() if isinstance(node.meta.get("val"), torch.Tensor) else 0
    if name == "aten.permute":
        return tuple(d % rank for d in node.args[1]) if rank else ()  # type: ignore[union-attr]
    if name == "aten.t":
        return tuple(reversed(range(rank)))
    if overload(node) is torch.ops.aten.transpose.int:
        order = list(range(rank))
        if rank:
            a, b = (int(d) % rank for d in node.args[1:3])  # type: ignore[arg-type]
            order[a], order[b] = order[b], order[a]
        return tuple(order)
    return None


def _merge_permutes(node: fx.Node, inner: fx.Node) -> tuple[Any, ...] | None:
    outer_dims, inner_dims = _dims(node), _dims(inner)
    if outer_dims is None or inner_dims is None:
        return None
    return (torch.ops.aten.permute.default, [inner_dims[d] for d in outer_dims])


def _merge_reshapes(node: fx.Node, inner: fx.Node) -> tuple[Any, ...] | None:
    """A view of a view is a view of the first tensor where that one is contiguous: it can be viewed as anything."""
    if op_name(node) not in RESHAPES or op_name(inner) not in RESHAPES or not isinstance(node.args[1], (list, tuple)):
        return None
    source = inner.args[0].meta.get("val") if isinstance(inner.args[0], fx.Node) else None
    if not isinstance(source, torch.Tensor) or source.dtype != node.meta["val"].dtype:  # view.dtype is called a view, too
        return None
    if not _is_contiguous(source) or not _is_contiguous(node.meta["val"]):
        return None
    return (torch.ops.aten.view.default, _sizes(node))


def _is_contiguous(value: torch.Tensor) -> bool:
    """Of symbolic sizes: whatever they are."""
    return same(value.stride(), contiguous_stride(value.shape)) if depends(value) else value.is_contiguous()


def _sizes(node: fx.Node) -> Any:
    """The sizes of a ``view`` or ``expand``: as numbers, or as it is told them where they are symbols."""
    return node.args[1] if depends(node.meta["val"]) else list(node.meta["val"].shape)


def _merge_expands(node: fx.Node, inner: fx.Node) -> tuple[Any, ...] | None:
    if op_name(node) != "aten.expand" or op_name(inner) != "aten.expand" or -1 in (sizes := _sizes(node)):
        return None
    return (torch.ops.aten.expand.default, sizes)


MERGES: tuple[Callable[[fx.Node, fx.Node], tuple[Any, ...] | None], ...] = (_merge_permutes, _merge_reshapes, _merge_expands)
"""For a view ``node`` of a view ``inner``: the operator and arguments that make it from what ``inner`` views, or None."""


def simplify_views(graph: G) -> G:
    """Drops views and copies that change nothing, and makes views of views views of the first tensor.

    Outputs themselves stay as they are; a copy is dropped only where its memory does not reach an output.
    """
    if (same := _left_alone(graph, "view")) is not None:
        return same
    edited, decisions = to_edit(graph), list[Decision]()
    outputs, returned = set(edited.output_node().all_input_nodes), returned_by(edited)
    for node in list(edited.nodes):
        inputs = [i for i in node.all_input_nodes if not is_number(i)]
        if node in outputs or len(inputs) != 1 or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        (base,) = inputs
        if is_view(base) and (merged := next((m for rule in MERGES if (m := rule(node, base))), None)) is not None:
            node.target, node.args, node.kwargs = merged[0], (base.args[0], *merged[1:]), {}
            decisions.append(_told(graph, "view", node, "merged", "view_of_view"))
            base = next(i for i in node.all_input_nodes if not is_number(i))
        if _is_same_view(node, base):
            decisions.append(_told(graph, "view", node, "removed", "same_view"))
            _replace(node, base)
        elif node not in returned and _is_same_copy(node, base):
            decisions.append(_told(graph, "view", node, "removed", "same_copy"))
            _replace(node, base)
    return with_graph(graph, edited, decisions)
