"""Opens operators: each one in the table is traced through its row and replaced by what the row computes with.

In: a ``JointGraph`` in state "pure". Out: one in state "decomposed" that computes the same, with the same ``spec``.
Always holds: results keep dtype, shape and strides of what they replace (a copy is added where a row lays them out differently);
outputs keep memory of their own; parents of a new node name the node that was opened.
Tables: "inductor-like" (our rows, and rows of torch's for a list of operators), "core" (all of torch's core table), "none".
PyTorch's counterpart: ``torch/_decomp`` and ``torch/_inductor/decomposition.py``. Left to the graph passes: dead nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch._ops import OpOverload

from ..core.artifact import Decision
from ..core.errors import InvalidIR, UnknownOption
from ..core.fx import target_name
from ..core.options import Decompositions
from ..core.provenance import Stack, marks_of, stack_of
from ..core.schema import base_of, is_number
from ..core.sizes import composed, same
from .decomposition_rows import NEVER, ROWS, TORCH_ROWS
from .encoder_rows import ENCODER
from .ir import JointGraph
from .pooling_rows import POOLS
from .random_rows import Draws, rows_by_counter
from .resampling_rows import RESAMPLING
from .tracer import Table, Tracer, has_overlap, laid_out_alike, restride

aten = torch.ops.aten

REASONS = {
    "own-row": "a row of ours opens it: its parts fuse with their neighbours",
    "counter": "it draws random numbers: they are made from a seed that the graph draws once, and may be made again",
    "torch-row": "torch's decomposition opens it",
    "library": "it is a library call that loops of ours would not beat, or draws random numbers in eager's order",
    "basic": "no row opens it: it is basic, or left to aten",
    "declined": "the row does not apply to these arguments",
    "layout": "the parts lay the result out differently from the operator: a copy restores what was recorded",
    "own-memory": "the result is an input or another output: an output has memory of its own",
}


def decompose(joint: JointGraph, table: Decompositions = "inductor-like", by_counter: bool = False) -> JointGraph:
    """Opens ``joint`` with ``table``; random operators too where numbers are drawn ``by_counter`` (``random_rows.py``).

    Raises ``InvalidIR`` where a row's results do not fit what they replace."""
    if joint.state != "pure":
        raise InvalidIR(f"decompose takes a graph in state 'pure', this one is '{joint.state}'", hint="functionalize it first")
    with torch.inference_mode(False), torch.no_grad():
        return _Decomposer(joint, table, by_counter).run()


@cache
def rows_of(table: Decompositions) -> Mapping[OpOverload, Any]:
    """Operator -> row; loading torch's table imports much, so it is loaded at the first use."""
    if table == "none":
        return {}
    from torch._decomp import core_aten_decompositions, decomposition_table

    if table == "core":
        found = {op: row for op, row in core_aten_decompositions().items() if isinstance(op, OpOverload) and op._opname not in NEVER}
        return {**found, **PRIMS}
    if table != "inductor-like":
        raise UnknownOption(f"unknown table {table!r}", hint="one of: inductor-like, core, none")
    packets = [getattr(aten, name) for name in TORCH_ROWS]
    borrowed = {op: decomposition_table[op] for p in packets for op in (getattr(p, o) for o in p.overloads()) if op in decomposition_table}
    return {**borrowed, **ROWS, **RESAMPLING, **ENCODER, **PRIMS}


def _convert(x: Tensor, dtype: torch.dtype) -> Tensor:
    return aten._to_copy.default(x, dtype=dtype)


PRIMS: Table = {torch.ops.prims.convert_element_type.default: _convert}
"""What torch's rows leave in its own basic operators, in aten's."""


class _Decomposer:
    def __init__(self, joint: JointGraph, table: Decompositions, by_counter: bool) -> None:
        self.joint, self.table = joint, table
        self.random = rows_by_counter(Draws()) if by_counter else {}
        self.rows = {**rows_of(table), **self.random}
        vals = (n.meta.get("val") for n in joint.graph.nodes)
        within = {op: row for op, row in self.rows.items() if op not in POOLS}  # of what a row computes with
        self.tracer = Tracer(next((v.fake_mode for v in vals if hasattr(v, "fake_mode")), None), within)
        self.tracer.attributes.update(joint.module.named_buffers())
        self.env: dict[fx.Node, Any] = {}
        self.old: fx.Node = joint.graph.output_node()
        self.decisions: list[Decision] = []
        self.tracer.origin = self.origin

    def origin(self) -> tuple[tuple[str, ...], Stack]:
        return (self.joint.id(self.old),), stack_of(self.old)

    def decide(self, outcome: str, reason: str) -> None:
        facts = {"target": target_name(self.old), "table": self.table}
        self.decisions.append(Decision("decompose", (self.joint.id(self.old),), outcome, reason, facts))

    def run(self) -> JointGraph:
        for node in self.joint.graph.nodes:
            self.old = node
            self.tracer.marks = marks_of(node)
            if node.op == "output":
                self.output(node)
            elif is_number(node):
                self.env[node] = self.number(node)
            elif node.op in ("placeholder", "get_attr"):
                new = self.tracer.graph.create_node(node.op, node.target, name=node.name)
                self.env[node] = self.keep(new, node.meta["val"])
            elif node.target is operator.getitem:
                source, index = node.args
                self.env[node] = self.env[source][index]
            else:
                self.env[node] = self.call(node)
        return JointGraph(self.tracer.module(), self.joint.spec, "decomposed", tuple(self.decisions))

    def number(self, old: fx.Node) -> Any:
        """The number itself, which its node stands for wherever it is an argument."""
        args, kwargs = self.numbered((old.args, old.kwargs))
        new = self.tracer.graph.create_node(old.op, old.target, args, kwargs, name=old.name)
        self.tracer.numbers.bind(old.meta["val"], self.tracer.finish(new, old.meta["val"]))
        return old.meta["val"]

    def numbered(self, a: Any) -> Any:
        """Arguments of the old graph as arguments of the new one."""
        return fx.map_arg(a, lambda n: self.tracer.numbers.node(self.env[n]) if is_number(n) else self.tracer.node(self.env[n]))

    def keep(self, new: fx.Node, val: Any) -> Any:
        """``new`` stands for ``val``: a tensor, or several of which each gets a node."""
        self.tracer.finish(new, val)
        if isinstance(val, Tensor):
            return self.handle(new, val)
        return [None if v is None else self.keep(self.element(new, i), v) for i, v in enumerate(val or ())]

    def element(self, source: fx.Node, index: int) -> fx.Node:
        return self.tracer.graph.create_node("call_function", operator.getitem, (source, index), name="getitem")

    def handle(self, node: fx.Node, val: Tensor) -> Tensor:
        """A tensor of its own for each node: two nodes may share one recorded value."""
        tensor = self.tracer.snapshot(val) if self.tracer.knows(val) else val
        self.tracer.bind(tensor, node)
        return tensor

    def now(self, a: Any) -> Any:
        """Arguments as tensors and plain lists: rows of torch's may edit the lists they are given."""
        if isinstance(a, fx.Node):
            return self.env[a]
        if isinstance(a, (list, tuple)):
            return (tuple if isinstance(a, tuple) else list)(map(self.now, a))
        return {k: self.now(v) for k, v in a.items()} if isinstance(a, dict) else a

    def call(self, old: fx.Node) -> Any:
        op: Any = old.target
        row = self.rows.get(op)
        if row is not None:
            own = row in (ROWS.get(op), RESAMPLING.get(op), ENCODER.get(op))
            with self.tracer:
                result = self.opened(row, own, *self.now((old.args, old.kwargs)))
                if result is not NotImplemented:
                    self.decide("opened", "counter" if op in self.random else "own-row" if own else "torch-row")
                    return self.conform(old, result)
        self.decide("kept", "declined" if row is not None else "library" if op._opname in NEVER else "basic")
        args, kwargs = self.numbered((old.args, old.kwargs))
        return self.keep(self.tracer.graph.create_node("call_function", op, args, kwargs, name=old.name), old.meta["val"])

    def opened(self, row: Any, own: bool, args: Any, kwargs: Any) -> Any:
        from torch._subclasses.fake_tensor import DataDependentOutputException
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        try:
            with composed(self.joint.spec.symbolic):
                return row(*args, **kwargs)
        except (DataDependentOutputException, GuardOnDataDependentSymNode):
            if own and not self.joint.spec.symbolic:
                raise
            return NotImplemented  # torch's row looks at numbers: the operator stays, and what the row began is dead
        except RuntimeError:
            if own:
                raise
            return NotImplemented  # torch's row refuses what the operator takes, tensors without elements for one

    def conform(self, old: fx.Node, result: Any) -> Any:
        """The row's results with dtype and layout of what was recorded."""
        val = old.meta["val"]
        if isinstance(val, Tensor):
            return self.fit(result, val)
        if len(result) != len(val):
            raise InvalidIR(f"the decomposition of {old.target} gives {len(result)} results, not {len(val)}")
        return [self.fit(r, v) if isinstance(v, Tensor) and r is not None else None for r, v in zip(result, val, strict=True)]

    def fit(self, result: Tensor, like: Tensor) -> Tensor:
        if not same(result.shape, like.shape) and result.shape != like.shape:
            raise InvalidIR(f"the decomposition of {self.old.target} gives shape {tuple(result.shape)}, not {tuple(like.shape)}")
        if result.dtype != like.dtype:
            result = aten._to_copy.default(result, dtype=like.dtype)
        if not laid_out_alike(result, like) and not has_overlap(like):
            self.decide("copied", "layout")
            result = restride(lambda op, *a, **k: op(*a, **k), result, like)
        return result

    def output(self, old: fx.Node) -> None:
        spec, taken = self.joint.spec, set[fx.Node]()
        returned: list[fx.Node | None] = []
        for i, a in enumerate(self.joint.outputs):
            if not isinstance(a, fx.Node) or is_number(a):
                returned.append(self.numbered(a))
                continue
            self.old, value = a, self.env[a]
            root = base_of(self.tracer.node(value))
            if len(spec.mutations) <= i < spec.forward_outputs:
                if root.op in ("placeholder", "get_attr") or root in taken:
                    self.decide("copied", "own-memory")
                    with self.tracer:
                        value = aten.clone.default(value)
                taken.add(root)
            returned.append(self.tracer.node(value))
        self.old = old
        out = self.tracer.graph.output(tuple(returned))
        out.meta["parents"], out.meta["stack"] = self.origin()
