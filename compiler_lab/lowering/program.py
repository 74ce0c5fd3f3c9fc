"""``LoopProgram``: loops and extern calls over named buffers, as an artifact.

In: what ``lower`` made of an aten graph. Out: the value that scheduling takes, and that prints, checks and runs by itself.
Always holds after ``check()``: buffers are defined before they are read, every index lies inside its buffer, each body stores
once and last, every body value has a dtype, and operands of an op agree on it.
PyTorch's counterpart: ``torch/_inductor/graph.py`` (GraphLowering.buffers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR, Mismatch
from . import interpret, ops, printer, serial
from .ir import BufferSpec, ExternNode, LoopNode, Node, Output, SerialNode, TensorView
from .sizes import Condition, hint, same
from .symbols import SizeSource, at, numbers_of


@dataclass(frozen=True, repr=False, kw_only=True)
class LoopProgram(Artifact):
    """``inputs``: one spec per placeholder, in order. ``constants``: tensors of the graph's attributes, buffers too.

    ``nodes`` stand in topological order; random externs keep the order of the graph they came from. ``outputs`` are views of
    buffers, or plain values where the graph returned one.

    ``lent``: inputs of a backward in memory that others hold too, parameters for one; of the others it is the last holder.

    Where sizes are symbolic: ``sizes`` says where a call shows each symbol; ``numbers`` are the arguments that are no tensors, by their position
    among all arguments; ``conditions`` are what was decided by the sizes at hand: the program is right where all hold, and ``run`` raises elsewhere.
    """

    stage: str
    inputs: tuple[BufferSpec, ...]
    constants: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    decisions: tuple[Decision, ...] = ()
    numbers: Mapping[int, Any] = field(default_factory=dict[int, Any])
    sizes: tuple[SizeSource, ...] = ()
    conditions: tuple[Condition, ...] = ()
    lent: frozenset[str] = frozenset()

    def at(self, numbers: Mapping[str, int]) -> LoopProgram:
        """The program for these sizes: no symbols, and no arguments but tensors."""
        inputs, nodes, outputs = at((self.inputs, self.nodes, self.outputs), numbers)
        return replace(self, inputs=inputs, nodes=nodes, outputs=outputs, numbers={}, sizes=(), conditions=())

    def hints(self) -> dict[str, int]:
        """The sizes at hand when the program was made."""
        return {s.symbol.name: s.symbol.hint for s in self.sizes}

    def fixed(self, args: Sequence[Any]) -> tuple[LoopProgram, dict[str, int], list[Any]]:
        """The program for the sizes of a call, these sizes, and the call's tensors. Raises Mismatch where the program was not made for them."""
        if len(args) != len(self.inputs) + len(self.numbers):
            raise Mismatch(f"{self.stage} takes {len(self.inputs) + len(self.numbers)} arguments, got {len(args)}")
        values = numbers_of(self.sizes, self.conditions, args, self.stage)
        return self.at(values), values, [a for i, a in enumerate(args) if i not in self.numbers]

    @cached_property
    def buffers(self) -> Mapping[str, BufferSpec]:
        """Every buffer by name: inputs, constants, and what the nodes write, in order of definition."""
        found = {spec.name: spec for spec in self.inputs}
        for name, value in self.constants.items():
            found[name] = BufferSpec(name, tuple(value.shape), value.stride(), value.dtype, value.device)
        for node in self.nodes:
            found.update((spec.name, spec) for spec in written(node))
        return found

    def id(self, node: Node) -> str:
        return f"{self.stage}/{node.name}"

    def text(self) -> str:
        text = printer.program_text(self.inputs, self.constants, self.nodes, self.outputs, self.buffers)
        return "\n".join([*printer.size_lines(self.sizes, self.conditions, self.inputs, self.numbers), text])

    def items(self) -> tuple[Item, ...]:
        """Each node, and after a loop node each statement of its body, as ``.../buf3`` and ``.../buf3:2``."""
        return tuple(item for node in self.nodes for item in self._node_items(node))

    def _node_items(self, node: Node) -> Iterator[Item]:
        facts: dict[str, Any] = {
            "inputs": sorted(reads(node)),
            "outputs": {s.name: printer.spec_text(s) for s in written(node)},
            "bytes": sum(hint(s.nbytes) for s in written(node)),
        }
        if isinstance(node, ExternNode):
            yield Item(self.id(node), "extern", printer.extern_text(node, self.buffers), node.parents, node.stack, {**facts, "origin": str(node.target)})
            return
        if isinstance(node, SerialNode):
            ranges = {"outer": {v.name: v.size for v in node.outer}, "steps": {v.name: v.size for v in node.steps}}
            yield Item(self.id(node), node.kind, printer.serial_head(node), node.parents, node.stack, {**facts, **ranges, "origin": node.origin})
            bodies = (*((node.start.body,) if node.start is not None else ()), node.body)
            for number, (statement, text) in enumerate(s for body in bodies for s in printer.statements(body)):
                yield self._statement(node, number, statement, text)
            return
        kind = "reduction" if node.is_reduction else "pointwise"
        ranges = {"outer": {v.name: hint(v.size) for v in node.outer}, "inner": {v.name: hint(v.size) for v in node.inner}}
        yield Item(self.id(node), kind, printer.loop_head(node), node.parents, node.stack, {**facts, **ranges, "origin": node.origin})
        for number, (statement, text) in enumerate(printer.statements(node.body)):
            yield self._statement(node, number, statement, text)

    def _statement(self, node: Node, number: int, statement: fx.Node, text: str) -> Item:
        meta = statement.meta
        return Item(f"{self.id(node)}:{number}", printer.op_name(statement), text, meta["parents"], meta["stack"], {"node": self.id(node)})

    def check(self) -> None:
        if self.sizes or self.numbers:
            return self.at(self.hints()).check()
        defined = {s.name: s for s in self.inputs} | {n: self.buffers[n] for n in self.constants}
        if len(defined) != len(self.inputs) + len(self.constants):
            raise InvalidIR(f"{self.stage}: two inputs or constants have one name")
        for node in self.nodes:
            where = self.id(node)
            if isinstance(node, LoopNode):
                check_loop(where, node, defined)
            elif isinstance(node, SerialNode):
                check_serial(where, node, defined)
            for view in views_of(node):
                _check_view(where, view, defined)
            for spec in written(node):
                if spec.name in defined:
                    raise InvalidIR(f"{where} writes {spec.name}, which is defined already")
                defined[spec.name] = spec
        for position, output in enumerate(self.outputs):
            if isinstance(output, TensorView):
                _check_view(f"{self.stage}: output {position}", output, defined)

    def run(self, *args: Any) -> tuple[Any, ...]:
        """The outputs, computed node by node with torch. Inputs must have the sizes, strides and dtypes of ``inputs``."""
        if self.sizes or self.numbers:
            program, _, tensors = self.fixed(args)
            return program.run(*tensors)
        if len(args) != len(self.inputs):
            raise Mismatch(f"{self.stage} takes {len(self.inputs)} inputs, got {len(args)}")
        env: dict[str, Tensor] = dict(self.constants)
        for spec, value in zip(self.inputs, args, strict=True):
            if not fits(spec, value):
                raise Mismatch(f"{self.stage}: input {spec.name} is not {printer.spec_text(spec)}")
            env[spec.name] = value
        with torch.no_grad():
            for node in self.nodes:
                if isinstance(node, LoopNode):
                    env[node.name] = interpret.evaluate_node(node, env)
                elif isinstance(node, SerialNode):
                    env[node.name] = serial.evaluate_serial(node, env)
                else:
                    results = interpret.evaluate_extern(node, env)
                    env.update((s.name, r) for s, r in zip(node.outputs, results, strict=True) if s is not None and r is not None)
            return tuple(interpret.view_tensor(o, env) if isinstance(o, TensorView) else o for o in self.outputs)


def fits(spec: BufferSpec, value: Any) -> bool:
    """Whether ``value`` is a tensor laid out as ``spec`` says (strides of dimensions of size 1 do not matter)."""
    if not isinstance(value, Tensor) or tuple(value.shape) != spec.size or value.dtype != spec.dtype:
        return False
    return spec.numel == 0 or all(n == 1 or s == t for n, s, t in zip(spec.size, spec.stride, value.stride(), strict=True))


def written(node: Node) -> tuple[BufferSpec, ...]:
    """The buffers a node writes."""
    return (node.output,) if not isinstance(node, ExternNode) else tuple(s for s in node.outputs if s is not None)


def views_of(node: Node) -> tuple[TensorView, ...]:
    """The tensor arguments of an extern call, in order; none for a loop."""
    if not isinstance(node, ExternNode):
        return ()
    found: list[TensorView] = []

    def visit(value: Any) -> None:
        if isinstance(value, TensorView):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            for v in value:
                visit(v)

    visit([*node.args, *node.kwargs.values()])
    return tuple(found)


def reads(node: Node) -> frozenset[str]:
    """Names of the buffers a node reads."""
    return frozenset(v.buffer for v in views_of(node)) if isinstance(node, ExternNode) else frozenset(b for b, _ in node.reads())


def _check_view(where: str, view: TensorView, defined: Mapping[str, BufferSpec]) -> None:
    if view.buffer not in defined:
        raise InvalidIR(f"{where} reads {view.buffer}, which is not defined before it")
    spec = defined[view.buffer]
    if view.dtype != spec.dtype:
        raise InvalidIR(f"{where} reads {view.buffer} as {view.dtype}, but it holds {spec.dtype}")
    if 0 in view.size:
        return
    last = view.offset + sum((n - 1) * s for n, s in zip(view.size, view.stride, strict=True))
    if view.offset < 0 or last * spec.dtype.itemsize >= spec.nbytes:
        raise InvalidIR(f"{where} reads {view.buffer} from {view.offset} to {last}, outside its {spec.nbytes // spec.dtype.itemsize} elements")


def check_loop(where: str, node: LoopNode, defined: Mapping[str, BufferSpec]) -> None:
    """Raises ``InvalidIR`` unless the loop is well formed; ``defined`` are the buffers it may read."""
    calls = [n for n in node.body.nodes if n.op == "call_function"]
    names = [printer.op_name(n) for n in calls]
    if names.count("store") != 1 or names[-1] != "store":
        raise InvalidIR(f"{where} has {names.count('store')} stores; a body stores once, last")
    if names.count("reduce") != (1 if node.inner else 0):
        raise InvalidIR(f"{where} has {names.count('reduce')} reductions over {len(node.inner)} inner variables")
    variables = frozenset(node.outer + node.inner)
    for n in calls:
        for key in ("dtype", "stack", "parents"):
            if key not in n.meta:
                raise InvalidIR(f"{where}: {n.name} has no {key}")
        name = printer.op_name(n)
        if name in ("load", "store"):
            _check_access(where, n, {**defined, node.name: node.output} if name == "store" else defined, variables)
        elif name in ops.SCALAR:
            _check_operands(where, n)
    if calls[-1].args[0] != node.name:
        raise InvalidIR(f"{where} stores to {calls[-1].args[0]}, not to its own buffer")


def check_serial(where: str, node: SerialNode, defined: Mapping[str, BufferSpec]) -> None:
    """Raises ``InvalidIR`` unless the scan or scatter is well formed."""
    names = [printer.op_name(n) for n in node.body.nodes if n.op == "call_function"]
    ends = ("scan", "store") if node.start is None else ("scatter",)
    if any(names.count(name) != (name in ends) for name in ("scan", "store", "scatter", "reduce")) or names[-1] != ends[-1]:
        raise InvalidIR(f"{where} is a {node.kind}, but its body has {', '.join(names)}")
    if node.start is not None:
        check_loop(where, node.start, defined)
        if node.start.name != node.name or node.start.inner:
            raise InvalidIR(f"{where} fills {node.start.name} first, not its own buffer")
    variables = frozenset(node.outer + node.steps)
    for n in (n for n in node.body.nodes if n.op == "call_function"):
        name = printer.op_name(n)
        if name in ("load", "store", "scatter"):
            _check_access(where, n, defined if name == "load" else {**defined, node.name: node.output}, variables)
        elif name in ops.SCALAR:
            _check_operands(where, n)


def _check_access(where: str, n: fx.Node, defined: Mapping[str, BufferSpec], variables: frozenset[Any]) -> None:
    buffer, index = n.args[0], n.args[1]
    spec = defined.get(str(buffer))
    if spec is None:
        raise InvalidIR(f"{where} reads {buffer}, which is not defined before it")
    unknown = [v for v in index.variables() if v not in variables and not v.name.startswith("%")]  # type: ignore[union-attr]
    if unknown:
        raise InvalidIR(f"{where}: index {index} has {unknown[0].name}, which is not a variable of the loop")
    low, high = index.range()  # type: ignore[union-attr]
    if spec.numel and not any(same(v.size, 0) for v in variables) and (low < 0 or high * spec.dtype.itemsize >= spec.nbytes):
        raise InvalidIR(f"{where}: index {index} of {buffer} runs from {low} to {high}, outside its {spec.nbytes // spec.dtype.itemsize} elements")
    dtype = n.meta["dtype"] if n.target is ops.load else n.args[2].meta["dtype"]  # type: ignore[union-attr]
    if dtype != spec.dtype:
        raise InvalidIR(f"{where}: {n.name} has {dtype}, but {buffer} holds {spec.dtype}")


def _check_operands(where: str, n: fx.Node) -> None:
    operands = list(n.args)
    if n.target is ops.where:
        condition = operands.pop(0)
        if not isinstance(condition, fx.Node) or condition.meta["dtype"] != torch.bool:
            raise InvalidIR(f"{where}: the condition of {n.name} is not bool")
    if not all(isinstance(a, fx.Node) for a in operands):
        raise InvalidIR(f"{where}: {n.name} has an operand that is not a value of the body")
    dtypes = {a.meta["dtype"] for a in operands if isinstance(a, fx.Node)}
    if len(dtypes) != 1:
        raise InvalidIR(f"{where}: operands of {n.name} differ in dtype: {', '.join(sorted(map(str, dtypes)))}")
