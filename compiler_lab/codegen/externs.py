"""Calls of aten operators as Python text: what both wrappers have in common.

In: a ``Schedule`` and a Python name for each buffer. Out: expressions, statements, and the functions that the wrapper in C asks of Python.
Always holds: a result of aten whose strides are not those the kernels were made for, or that is negated lazily, is copied into them.
PyTorch's counterpart: ``ExternKernel.codegen_args`` and ``FallbackKernel`` in ``torch/_inductor/ir.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..core.errors import Unsupported
from ..core.provenance import Stack, own_location, shown_name
from ..lowering.ir import BufferSpec, ExternNode, TensorView
from ..lowering.program import reads, views_of
from ..lowering.reals import Real
from ..lowering.sizes import Size
from ..scheduling.artifact import Schedule
from ..scheduling.ir import OUT_VARIANTS, ExternGroup, LoopGroup
from .ir import Kernel

IN_LAYOUT = '''\
def in_layout(value, size, stride, torch):
    """A copy with the strides that the kernels were made for, and with the values that its elements stand for."""
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).copy_(value)'''

FLATTEN = '''\
def flatten(results):
    """The tensors of a call whose results are lists."""
    return [t for r in results for t in (r if isinstance(r, (tuple, list)) else (r,))]'''

BOUND = frozenset({*OUT_VARIANTS, *OUT_VARIANTS.values()})
"""Called as ``torch.mm`` and so on: the same operators by a binding that costs half as much as ``torch.ops``."""


def last_uses(schedule: Schedule, kernels: Mapping[str, Kernel]) -> dict[str, int]:
    """Buffer -> the number of the last group that reads or writes it, or what lies in its memory."""
    hosts = {s.buffer.name: s.host for s in schedule.plan.slots if s.host}
    found: dict[str, int] = {}
    for i, group in enumerate(schedule.groups):
        used = kernels[group.name].args if isinstance(group, LoopGroup) else [v.buffer for v in views_of(group.node)]
        found.update(dict.fromkeys((*used, *(hosts[b] for b in used if b in hosts)), i))
    return found


def dying(last: Mapping[str, int]) -> dict[int, list[str]]:
    """``last_uses`` the other way round: the number of a group -> the buffers that it is the last to use."""
    found: dict[int, list[str]] = {}
    for buffer, i in last.items():
        found.setdefault(i, []).append(buffer)
    return found


def op_name(target: torch._ops.OpOverload) -> str:
    return str(target).replace(".default", "").replace(".", "_").replace("::", "_")


def where(stack: Stack) -> str:
    location = own_location(stack)
    return f"  {shown_name(location.file)}:{location.line}" if location else ""


class Externs:
    """Extern calls of one schedule. In a function of ``module`` every buffer is a tensor under its own name."""

    def __init__(self, schedule: Schedule, names: Mapping[str, str]) -> None:
        self.schedule, self.program, self.names = schedule, schedule.program, names
        self.hosted = {s.buffer.name: s for s in schedule.plan.slots if s.host}
        self.read = frozenset(b for node in self.program.nodes for b in reads(node))

    def origin(self, buffer: str) -> tuple[str, ...]:
        """The id of what writes the buffer."""
        made = {g.name: g.nodes if isinstance(g, LoopGroup) else [s for s in g.node.outputs if s is not None] for g in self.schedule.groups}
        return tuple(f"{self.schedule.stage}/{name}/{buffer}" for name, parts in made.items() if any(part.name == buffer for part in parts))

    def whole(self, view: TensorView) -> bool:
        """Whether the view is all of its buffer, as it is."""
        spec = self.program.buffers[view.buffer]
        return view.size == spec.size and view.stride == spec.stride and view.offset == 0 and view.dtype == spec.dtype

    def view(self, view: TensorView) -> str:
        """An expression for the tensor: the buffer itself where the view is all of it."""
        spec, name = self.program.buffers[view.buffer], self.names[view.buffer]
        if view.dtype != spec.dtype:
            raise Unsupported(f"{view.buffer} is {spec.dtype} and is read as {view.dtype}", reason="codegen.view_dtype")
        if self.whole(view):
            return name
        offset = f"{name}.storage_offset() + {view.offset}" if view.offset else f"{name}.storage_offset()"
        return f"as_strided({name}, {view.size}, {view.stride}, {offset})"

    def argument(self, arg: Any, node: ExternNode) -> str:
        if isinstance(arg, TensorView):
            return self.view(arg)
        if isinstance(arg, (tuple, list)):
            inner = ", ".join(self.argument(a, node) for a in arg)
            return f"[{inner}]" if isinstance(arg, list) else f"({inner}{',' if len(arg) == 1 else ''})"
        if arg is None or isinstance(arg, (bool, int, float, str, complex, Size, Real)):
            return literal(arg)
        if isinstance(arg, torch.device):
            return f'torch.device("{arg}")'
        if isinstance(arg, (torch.dtype, torch.layout, torch.memory_format)):
            return repr(arg)
        raise Unsupported(
            f"{node.target} takes a {type(arg).__name__}, which the wrapper cannot write", reason="codegen.argument", where=own_location(node.stack)
        )

    def call(self, node: ExternNode, out: str = "") -> tuple[str, str]:
        """("buf3, _ = ", "aten_op(x, 1.0)"): what is assigned and the call; nothing is assigned where the result is written into ``out``."""
        args = [self.argument(a, node) for a in node.args] + [f"{k}={self.argument(v, node)}" for k, v in node.kwargs.items()]
        if out:
            return "", f"{op_name(OUT_VARIANTS[node.target])}({', '.join([*args, f'out={out}'])})"
        call = f"{op_name(node.target)}({', '.join(args)})"
        left = [self.names[s.name] if s is not None else "_" for s in node.outputs]
        if node.single:
            return f"{left[0]} = ", call
        lists = any("[]" in str(r.type) or "List" in str(r.type) for r in node.target._schema.returns)
        call = f"flatten({call})" if lists and len(node.target._schema.returns) > 1 else call
        return (f"{', '.join(left)}{',' if len(left) == 1 else ''} = " if left else ""), call

    def laid_out(self, spec: BufferSpec) -> tuple[str, str]:
        """(condition, statement) that bring a result of aten into the layout of ``spec``."""
        name = self.names[spec.name]
        negated = f" or {name}.is_neg()" if spec.name in self.read else ""  # a result that is only returned stays what eager returns
        return f"{name}.stride() != {spec.stride}{negated}", f"{name} = in_layout({name}, {spec.size}, {spec.stride}, torch)"

    def binding(self, target: torch._ops.OpOverload) -> str:
        function = f"torch.{target._schema.name.removeprefix('aten::')}" if target in BOUND else f'ops["{target}"]'
        return f"{op_name(target)} = {function}"

    def inside(self, buffer: str, host: str) -> str:
        """An expression for a tensor in the memory of another one, which has its dtype; ``host``: the text of that one."""
        slot = self.hosted[buffer]
        offset = f" + {slot.offset // slot.buffer.dtype.itemsize}" if slot.offset else ""
        return f"as_strided({host}, {slot.buffer.size}, {slot.buffer.stride}, {host}.storage_offset(){offset})"

    # ---- functions for the wrapper in C ----

    def function(self, group: ExternGroup, name: str, buffers: Sequence[str]) -> list[str]:
        """``def name(buffers)``: makes the call and gives its tensors, or fills the last of ``buffers`` where the operator takes it.

        For a buffer in the memory of another one it is given that one."""
        node = group.node
        lines = [f"def {name}({', '.join(self.names[b] for b in buffers)}):"]
        lines += [f"    {self.names[b]} = {self.inside(b, self.names[b])}" for b in buffers if b in self.hosted]
        if node.target in OUT_VARIANTS:
            left, call = self.call(node, out=self.names[buffers[-1]])
            return [*lines, f"    {left}{call}", "    return ()"]
        left, call = self.call(node)
        lines.append(f"    {left}{call}")
        needed = self.read | {o.buffer for o in self.program.outputs if isinstance(o, TensorView)}
        for spec in node.outputs:
            if spec is not None and spec.name in needed:  # an operator may leave out what it was not asked for
                condition, statement = self.laid_out(spec)
                lines += [f"    if {condition}:", f"        {statement}"]
        results = [self.names[s.name] if s is not None else "None" for s in node.outputs]
        return [*lines, f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})"]

    def results(self, name: str, buffers: Sequence[str]) -> list[str]:
        """``def name(buffers)``: the tuple that the program returns."""
        return [f"def {name}({', '.join(self.names[b] for b in buffers)}):", f"    return {self.answer()}"]

    def answer(self) -> str:
        """The program's results; a tensor that stands twice is a tensor of its own the second time."""
        seen: set[TensorView] = set()
        texts: list[str] = []
        for o in self.program.outputs:
            if not isinstance(o, TensorView):
                texts.append(literal(o))
                continue
            text = self.view(o)
            again = o in seen and text == self.names[o.buffer]
            texts.append(f"as_strided({text}, {o.size}, {o.stride}, {text}.storage_offset())" if again else text)
            seen.add(o)
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def module(self, functions: Sequence[Sequence[str]]) -> str:
        """The text of ``make(ops, torch)``, which gives the functions as a tuple."""
        targets = dict.fromkeys(g.node.target for g in self.schedule.groups if isinstance(g, ExternGroup))
        names = [function[0].split("(")[0].removeprefix("def ") for function in functions]
        body = ["as_strided = torch.as_strided", *(self.binding(OUT_VARIANTS.get(t, t)) for t in targets)]
        for function in functions:
            body += ["", *function]
        body += ["", f"return ({', '.join(names)},)"]
        lines = ['"""What the wrapper in C asks of Python: views of the arena, and operators that it cannot call."""', "", "", *FLATTEN.split("\n")]
        lines += ["", "", *IN_LAYOUT.split("\n"), "", "", "def make(ops, torch):", *(f"    {line}".rstrip() for line in body)]
        return "\n".join(lines) + "\n"


def literal(value: float | str | complex | Size | Real | None) -> str:
    """A plain value as Python text."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
