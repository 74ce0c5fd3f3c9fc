"""Lowering: from an aten graph to loops over buffers.

In: a functional aten graph, every node with its fake value. Out: a ``LoopProgram`` that computes the same.
Always holds: each aten call becomes views, loops or one extern call, and a decision says which and why; results have the size and
dtype of the fake value, and outputs its strides. A call without a row, or that its row declines, stays with aten, visibly.
Sizes may be symbolic: each becomes a ``Size`` (``sizes.py``), and what is decided by the sizes at hand is a condition of the program, with a
decision that names the call. PyTorch does this in ``torch/_inductor/graph.py`` (GraphLowering.call_function) and ``lowering.py``. Left out: sizes
that depend on data, higher-order operators, tensors that are not strided.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.artifact import Decision
from ..core.errors import InvalidIR, Unsupported
from ..core.fx import GraphArtifact, copied, target_name
from ..core.provenance import own_location, stack_of
from ..core.schema import may_raise, must_run
from .body import Body, Value
from .builder import Builder, Decline, broadcast, known_size, whole
from .index import Index
from .ir import BufferSpec, Output, TensorView
from .program import LoopProgram
from .reals import TARGETS, Real, argument, real
from .rows_activation import ACTIVATIONS
from .rows_create import CREATE, apart, spread
from .rows_extern import EXTERNS
from .rows_indexed import INDEXED
from .rows_pointwise import POINTWISE, Pointwise
from .rows_pooling import POOLING
from .rows_product import PRODUCTS, Choice, Choose, product_of
from .rows_random import RANDOM
from .rows_reduction import REDUCTIONS
from .rows_scan import SCANS
from .rows_view import VIEWS
from .sizes import Condition, Conditions, Size, is_number, recorded_by, same
from .symbols import Reader, is_symbolic, is_tensor, sources, symbols_in
from .types import LOOP_DTYPES, REDUCED, floating, opmath, result_type, round_number

REASONS = {
    "view": "strides and an offset over a buffer that is there already",
    "loop": "each element is computed from a few others: loops of our own",
    "layout": "the shape or the output's strides cannot be had as a view, so elements are copied",
    "channels last": "a library's convolution, on memory in which the channels of a pixel lie side by side, as it works fastest",
    "measured faster": "measured here: a template of ours, with what follows it in the same loops, is faster than the library's call",
    "measured slower": "measured here: the library's call, with what follows it, is faster than a template of ours",
    "library call": "a library has kernels for this that loops would not reach, sorting among them",
    "no row": "no row of ours covers this operator",
    "dtype": "the dtype is none that loops are made for",
    "empty": "a tensor without elements: nothing to loop over",
    "device": "the result lives on another device",
    "integer division": "aten raises on this divisor, or on bool",
    "integer power": "aten raises on a negative exponent, or the power of a bool is asked for",
    "where of numbers": "both branches are numbers",
    "bool": "this reduction of bool has rules of its own",
    "no dimensions": "an empty list of dimensions means something else here",
    "bit cast": "the bits are read as another dtype",
    "unfold of a scalar": "a scalar has no windows",
    "as_strided of another layout": "the strides asked for assume another layout of the source",
    "number out of range": "a number that the tensor's integers cannot hold",
    "mask": "indexed by a mask: how many elements it chooses is known only at run time",
    "not a number": "an infinity or NaN as an integer",
    "fractional range": "a range of integers with a fractional step",
    "check": "nobody reads the result: the call is made for the error that it raises on some values",
    "window": "windows of more elements than are written out, or such that lie between the elements of the image",
    "other result": "the row's result would differ from aten's in size or dtype",
    "other sizes": "the conditions of what was made before did not hold in a call, so it is made again for the sizes of that call",
    "size": "the answer depends on the sizes of the call: what was made is right wherever this holds",
}
"""Why a call was lowered as it was."""

LIBRARY = frozenset(
    {
        "aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default", "aten.convolution.default",
        "aten.convolution_backward.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default", "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
        "aten.sort.default", "aten.sort.stable", "aten.topk.default", "aten.kthvalue.default", "aten.median.default", "aten.median.dim", "aten.mode.default",
        "aten.mv.default", "aten.dot.default", "aten.vdot.default", "aten.addmv.default", "aten.addbmm.default",
    }
)  # fmt: skip
"""Calls that are meant to stay with aten."""

HIDDEN_MUTATION = frozenset({"aten.native_batch_norm.default", "aten.cudnn_batch_norm.default", "aten.miopen_batch_norm.default"})
"""Operators that write running statistics although their schema does not say so."""

ROWS = {**VIEWS, **CREATE, **INDEXED, **POOLING, **REDUCTIONS, **SCANS, **RANDOM}
ELEMENTWISE = {**POINTWISE, **ACTIVATIONS}


SIZES_ONLY = ("operator", "math", "torch.sym_", "aten.sym_")
"""What computes a size from sizes begins so: it is arithmetic that was done when values were propagated."""


def lower(
    graph: GraphArtifact,
    hints: Mapping[str, int] | None = None,
    *,
    free: Collection[int] = (),
    layouts: Mapping[str, Sequence[int]] = MappingProxyType({}),
    choose: Choose | None = None,
    lent: Collection[str] = (),
) -> LoopProgram:
    """The loops of ``graph``. Raises Unsupported for what has no functional form (see the module's docstring).

    hints: sizes at hand other than those of the capture, by symbol: what cannot be decided for all sizes is decided for these.
    free: positions of outputs whose strides nobody but a backward sees: they come as they lie, where sizes are fixed.
    layouts: strides of placeholders, by name, that are not the fake value's: what ``free`` made of them in the forward.
    choose: says of each matrix product whether loops of ours compute it; without it the library does.
    lent: see ``LoopProgram``."""
    stage = "lowering." + graph.stage.split(".")[-1]
    if not is_symbolic(graph.graph):
        return replace(_Lowering(graph, stage, free=free, layouts=layouts, choose=choose).program(), lent=frozenset(lent))
    log = Conditions()
    own = GraphArtifact(fx.GraphModule(graph.module, copied(graph.graph)), graph.stage)  # whose values the reader replaces
    lowering = _Lowering(own, stage, Reader(hints or {}), log)
    log.told = lowering.size_decided
    if hints is not None:
        at_hand = ", ".join(f"{name} = {n}" for name, n in hints.items())
        lowering.decisions.append(Decision("size", (stage,), at_hand, "other sizes"))
    with recorded_by(log):
        return replace(lowering.program(), lent=frozenset(lent))


class _Lowering:
    def __init__(
        self,
        graph: GraphArtifact,
        stage: str,
        reader: Reader | None = None,
        log: Conditions | None = None,
        free: Collection[int] = (),
        layouts: Mapping[str, Sequence[int]] = MappingProxyType({}),
        choose: Choose | None = None,
    ) -> None:
        self.graph, self.stage, self.reader, self.log, self.free, self.layouts, self.choose = graph, stage, reader, log, free, layouts, choose
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[BufferSpec] = []
        self.numbers: dict[int, Any] = {}  # position of an argument that is a number -> its size, or a real
        self.constants: dict[str, Tensor] = {}
        self.attributes: dict[str, str] = {}  # path of an attribute -> the buffer that holds it
        self.outputs: list[Output] = []
        self.decisions: list[Decision] = []
        self.builder = Builder(graph.stage, frozenset(n.name for n in graph.graph.nodes if n.op in ("placeholder", "get_attr")))

    def program(self) -> LoopProgram:
        handlers = {"placeholder": self.placeholder, "get_attr": self.attribute, "call_function": self.call, "output": self.output}
        for node in self.graph.graph.nodes:
            if node.op not in handlers:
                raise InvalidIR(f"{self.graph.id(node)} is a {node.op}; lowering takes aten calls only")
            self.current = node
            if self.reader:
                self.reader.read(node)
            handlers[node.op](node)
        inputs, nodes, outputs = tuple(self.inputs), tuple(self.builder.nodes), tuple(self.outputs)
        conditions = tuple(self.log.recorded) if self.log else ()
        shown = [n.meta["val"] for n in self.graph.placeholders]
        return LoopProgram(
            stage=self.stage,
            inputs=inputs,
            constants=self.constants,
            nodes=nodes,
            outputs=outputs,
            decisions=tuple(self.decisions),
            numbers=self.numbers,
            sizes=sources(shown, symbols_in(inputs, nodes, outputs, conditions, self.numbers)) if self.log else (),
            conditions=conditions,
        )

    def decide(self, node: fx.Node, outcome: str, reason: str, facts: Mapping[str, float] = MappingProxyType({})) -> None:
        self.decisions.append(Decision("lower", (self.graph.id(node),), outcome, reason, {"target": target_name(node), **facts}))

    def size_decided(self, condition: Condition) -> None:
        self.decisions.append(Decision("size", (self.graph.id(self.current),), condition.text, "size", {"target": target_name(self.current)}))

    def placeholder(self, node: fx.Node) -> None:
        val: Any = node.meta["val"]
        if self.log and isinstance(val, (int, Size)):
            number: Any = val
            self.numbers[len(self.inputs) + len(self.numbers)] = self.values[node] = number
            return
        if self.log and isinstance(val, torch.SymFloat):
            number = node.meta["val"] = argument(f"f{len(self.numbers)}")
            self.numbers[len(self.inputs) + len(self.numbers)] = self.values[node] = number
            return
        if not is_tensor(val) or val.layout != torch.strided:
            raise Unsupported(f"input {node.name} is a {type(val).__name__}, not a strided tensor", reason="input kind", where=own_location(stack_of(node)))
        size, stride = known_size(val.shape, node), known_size(val.stride(), node)
        given = tuple(self.layouts.get(node.name, stride))
        spec = BufferSpec(node.name, size, given, val.dtype, val.device)
        if given != stride:
            self.builder.relaid.add(node.name)
        self.inputs.append(spec)
        if not same(val.storage_offset(), 0):
            self.builder.bases[node.name] = val.storage_offset()
        self.values[node] = whole(spec)

    def attribute(self, node: fx.Node) -> None:
        value: Any = self.graph.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, Tensor):
            raise Unsupported(f"{node.name} is a {type(value).__name__}, not a tensor", reason="higher-order operator", where=own_location(stack_of(node)))
        name = self.attributes.setdefault(str(node.target), node.name)
        self.constants[name] = value.detach()
        if value.storage_offset():
            self.builder.bases[name] = int(value.storage_offset())
        self.values[node] = TensorView(name, tuple(value.shape), value.stride(), 0, value.dtype)

    def output(self, node: fx.Node) -> None:
        for position, value in enumerate(self.graph.outputs):
            if not isinstance(value, fx.Node):
                self.outputs.append(value)
                continue
            view = self.values[value]
            if position in self.free and isinstance(view, TensorView) and view.buffer in self.builder.relaid:
                self.outputs.append(view)
                continue
            if isinstance(view, TensorView) and view.size and 0 not in view.size:
                val = value.meta["val"]
                stride = known_size(val.stride(), value)
                if all(same(n, 1) or s == t for n, s, t in zip(view.size, view.stride, stride, strict=True)):
                    view = replace(view, stride=stride)  # those of single elements can be seen as well
                else:
                    self.builder.enter(value)
                    view = self.laid_out(view, stride, val)
                    self.decide(value, "copy", "layout")
            self.outputs.append(view)

    def laid_out(self, view: TensorView, stride: tuple[int, ...], val: Tensor) -> TensorView:
        """A copy with the strides of ``val``, also where those leave gaps."""
        like = self.builder.like(val)
        gaps = like.stride != stride and is_number(*view.size, *stride) and apart(view.size, stride)
        return spread(self.builder, view, stride) if gaps else self.builder.copy(view, like, "copy")

    def call(self, node: fx.Node) -> None:
        target = node.target
        if target is operator.getitem:
            source, position = node.args
            self.values[node] = self.values[source][position]  # type: ignore[index]
            return
        if isinstance(val := node.meta.get("val"), (int, Size)) and target_name(node).startswith(SIZES_ONLY):
            self.values[node] = val
            return
        if isinstance(val, torch.SymFloat) and (function := TARGETS.get(target)) is not None:
            self.values[node] = real(function, *fx.map_arg(node.args, lambda n: self.values[n]))
            return
        if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise Unsupported(
                f"{node.name} is {val}, which is neither an integer nor arithmetic of some", reason="dynamic shapes", where=own_location(stack_of(node))
            )
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported(f"{node.name} calls {target_name(node)}, which is not an aten operator", reason="not aten", where=own_location(stack_of(node)))
        if target._schema.is_mutable or str(target) in HIDDEN_MUTATION:
            raise Unsupported(
                f"{node.name} calls {target}, which writes its argument", reason="mutation", where=own_location(stack_of(node)), hint="functionalize first"
            )
        args = fx.map_arg(node.args, lambda n: self.values[n])
        kwargs = fx.map_arg(node.kwargs, lambda n: self.values[n])
        self.builder.enter(node)
        self.values[node] = self.lowered(node, target, args, kwargs)

    def in_own_layout(self, node: fx.Node) -> Any:
        """The value of ``node`` as aten's calls get it: with the strides it has in the program, for some calls depend on them."""
        view = self.values[node]
        if not isinstance(view, TensorView) or view.buffer not in self.builder.relaid:
            return view
        val: Tensor = node.meta["val"]
        return view if view.stride == tuple(val.stride()) else self.builder.copy(view, self.builder.like(val), "layout")

    def lowered(self, node: fx.Node, target: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
        """The row's result, or the extern call's where there is no row, the row declines, or its result is not aten's."""
        name, before = str(target), len(self.builder.nodes)
        choice = self.chosen(node, name, args, kwargs)
        try:
            if choice is not None and not choice.ours:
                raise Decline("measured slower")
            if choice is not None:
                result = PRODUCTS[name](self.builder, *args, **kwargs)
                self.decide(node, "loop", "measured faster", choice.facts)
                return result
            if name in VIEWS:
                result = VIEWS[name](self.builder, *args, **kwargs)
            elif name in EXTERNS:
                result = EXTERNS[name](self.builder, *args, **kwargs)
            else:
                result = self.nothing(node, target) or self.loops(node, name, args, kwargs)
            if not _agrees(result, node.meta["val"]):
                raise Decline("other result")
        except Decline as declined:
            self.builder.rewind(before)
            self.decide(node, "extern", declined.reason, choice.facts if choice else {})
            args, kwargs = fx.map_arg((node.args, node.kwargs), self.in_own_layout)
            return self.builder.extern(target, args, kwargs)
        if name in EXTERNS:
            self.decide(node, "extern", "channels last")
            return result
        made = len(self.builder.nodes) > before
        self.decide(node, "loop" if name not in VIEWS else "copy" if made else "view", "loop" if name not in VIEWS else "layout" if made else "view")
        return result

    def chosen(self, node: fx.Node, name: str, args: Any, kwargs: Any) -> Choice | None:
        """Whose a matrix product is, the library's or ours; None where there is no choice."""
        followers = read_by(node) & ELEMENTWISE.keys()
        product = product_of(name, args, kwargs, bool(followers)) if self.choose is not None and name in PRODUCTS else None
        return self.choose(product) if self.choose is not None and product is not None else None

    def loops(self, node: fx.Node, name: str, args: Any, kwargs: Any) -> Any:
        _require_loops(node, args, kwargs, name)
        row = ELEMENTWISE.get(name)
        return pointwise(self.builder, row, args, kwargs) if row else ROWS[name](self.builder, *args, **kwargs)

    def nothing(self, node: fx.Node, target: torch._ops.OpOverload) -> Any:
        """Buffers without elements, where the call gives only such: whatever it computes, there is nothing to loop over. None otherwise."""
        val = node.meta["val"]
        results = list(val) if isinstance(val, (tuple, list)) else [val]
        empty = bool(results) and all(is_tensor(v) and v.layout == torch.strided and same(v.numel(), 0) and v.dtype in LOOP_DTYPES for v in results)
        if not empty or target.namespace not in ("aten", "prims") or must_run(node) or any(v.device.type != "cpu" for v in results):
            return None
        made = [self.builder.loop(self.builder.like(v), lambda body, _, dtype=v.dtype: body.constant(0, dtype)) for v in results]
        return tuple(made) if isinstance(val, (tuple, list)) else made[0]


def read_by(node: fx.Node) -> set[str]:
    """Names of the operators that read the result, or a view of it."""
    found: set[str] = set()
    for user in node.users:
        found |= read_by(user) if str(user.target) in VIEWS else {str(user.target)}
    return found


def _require_loops(node: fx.Node, args: Any, kwargs: Any, name: str) -> None:
    """Raises Decline where the call is not one that loops are made for."""
    if name not in ELEMENTWISE and name not in ROWS:
        raise Decline("library call" if name in LIBRARY else "no row")
    if not node.users and may_raise(node):
        raise Decline("check")
    val = node.meta["val"]
    tensors = [v for v in (val if isinstance(val, (tuple, list)) else (val,)) if is_tensor(v)]
    views = [v for a in (*args, *kwargs.values()) for v in (a if isinstance(a, (tuple, list)) else (a,)) if isinstance(v, TensorView)]
    if any(t.dtype not in LOOP_DTYPES or t.layout != torch.strided for t in tensors) or any(v.dtype not in LOOP_DTYPES for v in views):
        raise Decline("dtype")
    if any(isinstance(a, complex) for a in args):
        raise Decline("dtype")


def _agrees(result: Any, val: Any) -> bool:
    """Whether views have the sizes and dtypes of the fake values they stand for."""
    if isinstance(result, TensorView):
        return is_tensor(val) and result.size == tuple(val.shape) and result.dtype == val.dtype
    if result is None:
        return val is None
    return isinstance(val, (tuple, list)) and len(result) == len(val) and all(map(_agrees, result, val))


def pointwise(b: Builder, row: Pointwise, args: Sequence[Any], kwargs: dict[str, Any]) -> TensorView:
    """One loop node that computes ``row.fn`` for each element of the node's value, in the dtype that ``row.rule`` says."""
    size = tuple(b.val.shape)
    named = {k: v for k, v in kwargs.items() if k in ("min", "max", "self", "other", "exponent")}
    operands = [v for i, v in enumerate(args) if i not in row.raw] + list(named.values())
    tensors = [v for v in operands if isinstance(v, TensorView)]
    if not tensors:
        raise Decline("where of numbers")
    numbers: list[Any] = [v for v in operands if isinstance(v, (bool, int, float, Size, Real))]
    common = torch.bool if row.rule == "bool" else tensors[0].dtype if row.rule == "self" else result_type([*tensors, *numbers])
    common = floating(common) if row.rule == "float" else common
    compute = opmath(common)
    if common in REDUCED and any(isinstance(v, Real) for v in numbers):
        raise Decline("dtype")  # aten rounds the number to the tensor's dtype first

    def build(body: Body, point: tuple[Index, ...]) -> Value:
        def operand(value: Any, raw: bool) -> Any:
            if isinstance(value, TensorView):
                loaded = body.load(broadcast(value, size), point)
                return loaded if raw else loaded.to(common).to(compute)
            return round_number(value, common) if isinstance(value, float) and not row.exact else value

        values = [operand(v, i in row.raw) for i, v in enumerate(args)]
        return row.fn(*values, **{k: operand(v, False) for k, v in kwargs.items()})

    return b.loop(b.following(b.val, tensors), build)


__all__ = ["REASONS", "lower"]
