"""FX helpers: the graph artifact, forking a graph with its provenance, and printing without addresses.

In: ``torch.fx.GraphModule`` whose nodes carry ``meta["val"]`` (fake tensors or plain values), ``meta["stack"]`` and
``meta["parents"]``. Out: ``GraphArtifact``, which answers the five questions for any such graph.
Always holds: a stage never edits a graph it was given; it calls ``fork`` first. After ``fork`` each node's parents name
the node it was copied from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.graph import CodeGen

from .artifact import Artifact, Decision, Item
from .errors import InvalidIR
from .provenance import inherit, parents_of, stack_of
from .recompiled import HINT, WHY, old_line
from .sizes import SYMBOLIC, written

SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
}  # fmt: skip


def describe(value: Any) -> str:
    """``f32[4, 8]`` for a tensor, with ``{strides}`` where it is not contiguous; repr for plain values."""
    if isinstance(value, torch.Tensor):
        text = f"{SHORT.get(value.dtype, str(value.dtype).removeprefix('torch.'))}[{', '.join(map(written, value.shape))}]"
        dense = value.layout == torch.strided and not _is_contiguous(value)
        return text + (f"{{{', '.join(map(written, value.stride()))}}}" if dense else "")
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(describe, value)) + ")"
    return written(value) if isinstance(value, SYMBOLIC) else repr(value)


def _is_contiguous(value: torch.Tensor) -> bool:
    """Of symbolic sizes by how they are written: nothing is assumed about them for a text."""
    if not any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())):
        return value.is_contiguous()
    dense: list[Any] = [1]
    for n in value.shape[:0:-1]:
        dense.append(dense[-1] * n)
    return [str(n) for n in value.stride()] == [str(n) for n in reversed(dense)]


def target_name(node: fx.Node) -> str:
    """The operator as a reader names it: ``aten.mm.default``, ``torch.relu``, ``operator.add``, or the attribute path."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", None) or ""
    module = {"_operator": "operator", "torch._C._nn": "torch.nn.functional", "torch._VariableFunctions": "torch"}.get(module, module)
    if module.startswith("torch._C") or (isinstance(target, type(torch.relu)) and not module):
        module = "torch"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__name__
    return f"{module}.{name}".removeprefix("builtins.").replace("_VariableFunctionsClass.", "")


def format_arg(arg: Any) -> str:
    """Arguments as code, without addresses."""
    if isinstance(arg, fx.Node):
        return arg.name
    if isinstance(arg, (tuple, list)):
        inner = ", ".join(map(format_arg, arg))
        return f"[{inner}]" if isinstance(arg, list) else f"({inner}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k!r}: {format_arg(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, slice):
        return f"slice({format_arg(arg.start)}, {format_arg(arg.stop)}, {format_arg(arg.step)})"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(arg))


def node_text(node: fx.Node) -> str:
    """One line: ``mul: f32[4, 8] = aten.mul.Tensor(x, 2)``."""
    val = f": {describe(node.meta['val'])}" if "val" in node.meta else ""
    if node.op == "output":
        return f"return {format_arg(node.args[0])}"
    if node.op == "placeholder":
        return f"{node.name}{val} = placeholder"
    args = [format_arg(a) for a in node.args] + [f"{k}={format_arg(v)}" for k, v in node.kwargs.items()]
    prefix = "self." if node.op in ("get_attr", "call_module") else "." if node.op == "call_method" else ""
    call = "" if node.op == "get_attr" else f"({', '.join(args)})"
    return f"{node.name}{val} = {prefix}{target_name(node)}{call}"


def graph_text(graph: fx.Graph, indent: str = "") -> str:
    """The nodes, and below a node those of the graphs that its target holds (``core/higher_order.py``)."""
    lines: list[str] = []
    for node in graph.nodes:
        lines.append(indent + node_text(node))
        held: dict[str, fx.GraphModule] = getattr(node.target, "graphs", {})
        for name, module in held.items():
            lines += [f"{indent}    {name}:", graph_text(module.graph, indent + "        ")]
    return "\n".join(lines)


def copied(graph: fx.Graph) -> fx.Graph:
    """A copy whose nodes keep their names and what is known of them."""
    new, of = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        one = of[node] = new.node_copy(node, of.__getitem__)
        one.name, one.meta = node.name, dict(node.meta)
    return new


def fork(module: fx.GraphModule, stage: str) -> fx.GraphModule:
    """A copy of ``module`` whose nodes keep names, values and stacks and have the node they came from (of ``stage``) as parent.

    Parameters and submodules are shared, never copied: a fork of a graph computes with the same tensors.
    """
    graph = copied(module.graph)
    for new, node in zip(graph.nodes, module.graph.nodes, strict=True):
        inherit(new, stage, node)
    return fx.GraphModule(module, graph)


class _Boxed(CodeGen):
    """Writes a forward of one list, which is empty once the inputs have names."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **layout: Any) -> str:
        names = [re.match(r"\w+", v) for v in free_vars]
        inputs = "".join(f"{m[0]}, " for m in names if m is not None and m[0] != "self")
        taken = f"\n    {inputs}= arguments" if inputs else ""
        return f"def {self._func_name}(self, arguments){maybe_return_annotation}:{taken}\n    arguments.clear()"


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Sequence[Any]]:
    """``module`` as a function of a list with its inputs, which it empties: each input dies with its last use there, however many there are.

    It has torch's mark of that convention, ``_boxed_call``. Where a Python function takes its inputs one by one, a call with more than
    thirty of them is one with a tuple, which holds all of them to its end.
    """
    graph = copied(module.graph)
    graph.set_codegen(_Boxed())
    forward = fx.GraphModule(module, graph).forward

    def call(arguments: list[Any]) -> Sequence[Any]:
        return forward(arguments)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


VALUES = "propagate_shapes(graph, *example_args) gives every node its value"


class GraphArtifact(Artifact):
    """An FX graph as an artifact. ``stage`` qualifies its item ids ("frames", "aot.joint", "aot.forward", ...).

    The graph takes its placeholders in order and returns a tuple. Every node has meta "val", "stack" and "parents".
    """

    def __init__(self, module: fx.GraphModule, stage: str, decisions: tuple[Decision, ...] = ()) -> None:
        self.module, self.stage, self.decisions = module, stage, decisions

    @property
    def graph(self) -> fx.Graph:
        return self.module.graph

    @property
    def placeholders(self) -> tuple[fx.Node, ...]:
        return tuple(n for n in self.graph.nodes if n.op == "placeholder")

    @property
    def outputs(self) -> tuple[Any, ...]:
        """Arguments of the output node: nodes, or plain values such as None."""
        (out,) = self.graph.output_node().args
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)

    def id(self, node: fx.Node) -> str:
        return f"{self.stage}/{node.name}"

    def text(self) -> str:
        return graph_text(self.graph)

    def items(self) -> tuple[Item, ...]:
        def facts(n: fx.Node) -> dict[str, Any]:
            val = {"value": describe(n.meta["val"])} if "val" in n.meta else {}
            module = {"module": n.meta["module"]} if n.meta.get("module") else {}
            return {"name": n.name, "target": target_name(n), **val, **module, "inputs": [self.id(i) for i in n.all_input_nodes]}

        return tuple(Item(self.id(n), n.op, node_text(n), parents_of(n), stack_of(n), facts(n)) for n in self.graph.nodes)

    def check(self) -> None:
        try:
            self.graph.lint()
        except (RuntimeError, AssertionError) as error:
            raise InvalidIR(f"{self.stage}: the graph is malformed: {error}") from error
        held = [m for node in self.graph.nodes for m in getattr(node.target, "graphs", {}).values()]
        if old := next(filter(None, map(old_line, (self.module, *held))), ""):
            raise InvalidIR(f"{self.stage}: the module was not recompiled after its graph was edited: {old}", why=WHY, hint=HINT)
        for node in self.graph.nodes:
            missing = [k for k in ("stack", "parents") if k not in node.meta]
            if node.op in ("placeholder", "call_function", "get_attr", "call_method") and "val" not in node.meta:
                missing.append("val")
            if missing:
                raise InvalidIR(
                    f"{self.id(node)} has no {', '.join(missing)}",
                    why="every node carries its value, its source lines and its parents",
                    hint=VALUES if "val" in missing else "",
                )

    def run(self, *args: Any) -> Any:
        """Interprets the graph node by node (not the generated forward): an edit without recompile() cannot hide here."""
        return fx.Interpreter(self.module, garbage_collect_values=True).run(*args)
