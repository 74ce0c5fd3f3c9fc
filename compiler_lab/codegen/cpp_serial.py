"""Serial kernels: scans and scatters, whose steps run in order; lanes along a contiguous outer variable where there is one.

In: a ``LoopGroup`` of shape "serial". Out: lines. Always holds: for each outer point the steps run in row-major order, in one thread, so
the result is the same on every run; a position out of range sets the error flag and is replaced by 0, so nothing wild is written.
A scan of float32 carries float64, as aten does on CPU: its rows say so, the loop only carries the dtype it is given.
PyTorch's counterpart: atomics in ``torch/_inductor/codegen/cpp.py`` (``atomic_add``); scans fall back there on CPU.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

import torch
import torch.fx as fx

from ..core.errors import InvalidIR
from ..lowering import ops
from ..lowering.index import Index, Var
from ..lowering.ir import LoopNode, SerialNode
from ..lowering.sizes import is_number
from ..scheduling.ir import LoopGroup, Phase
from .cpp_body import Bodies, NodeCode, Scope, Statement, Value
from .cpp_loops import KernelCode, SerialCode, emit, flags, loop, nest, parents_of, place, plain_sweep
from .cpp_ops import compute_type, literal, rounded
from .cpp_reduce import numel, proper
from .math_table import LOAD, STORE

STRIP = 256
"""Lanes that go through the steps together."""
FEW_LANES = 8
"""A contiguous outer variable shorter than this is a loop like any other."""

HELPERS: dict[str, str] = {
    "log_add": """\
template <class T> static inline T log_add(T a, T b) {  // log(exp(a) + exp(b)); infinities and NaN as aten has them
  const T low = b != b ? b : (b < a ? b : a), high = b != b ? b : (a < b ? b : a);
  return low == high && low - low != 0 ? a : high + (T)vm_log1p_f64(vm_exp_f64((double)(low - high)));
}""",
}

TAKE: dict[str, str] = {
    "sum": "{total} += {value};", "prod": "{total} *= {value};", "logsumexp": "{total} = log_add({value}, {total});",
    "max": "{total} = ({total} != {total}) | ({value} < {total}) ? {total} : {value};",
    "min": "{total} = ({total} != {total}) | ({value} > {total}) ? {total} : {value};",
}  # fmt: skip
"""How a scan takes in a step. Of equals the last counts, and a NaN stays."""

COMBINE: dict[str, str] = {"sum": "{a} + {b}", "prod": "{a} * {b}", "max": "lab_max({a}, {b})", "min": "lab_min({a}, {b})"}


def contiguous(node: SerialNode) -> Var | None:
    """The outer variable along which lanes lie: the last one, where the elements written lie side by side along it."""
    if not node.outer or (is_number(node.outer[-1].size) and node.outer[-1].size < FEW_LANES):
        return None
    index = next(n.args[1] for n in node.body.nodes if n.target in (ops.store, ops.scatter))
    assert isinstance(index, Index)
    return node.outer[-1] if index.coefficient(node.outer[-1]) == 1 else None


def apart(node: SerialNode) -> int:
    """Iterations that threads can share."""
    lanes = contiguous(node)
    return numel(node.outer) if lanes is None else numel(node.outer[:-1]) * -(-lanes.size // STRIP)


class _Step(NodeCode):
    """One step: a scan's value is taken into the running total, a scatter's value goes where it belongs."""

    lanes: Var | None = None
    state: list[str]

    def value(self, n: fx.Node) -> Value:
        if n.target is ops.scan and n not in self.values:
            self.values[n] = self.scan(n)
        return super().value(n)

    def scan(self, n: fx.Node) -> Value:
        kind, source = n.args
        assert isinstance(kind, str) and isinstance(source, fx.Node)
        value, dtype, every = self.value(source), source.meta["dtype"], frozenset(v.name for v in (*self.bodies.group.outer, *self.bodies.group.inner))
        at = f"[{self.lanes.name} - strip]" if self.lanes is not None else ""
        count = f"[{STRIP}]" if self.lanes is not None else ""
        fill = (lambda name, ctype, start: f"{ctype} {name}{count}; fill<{ctype}>({name}, {STRIP}, {start});") if count else "{1} {0} = {2};".format
        arg = kind.removeprefix("arg")
        self.state.append(fill("total", compute_type(dtype), _start(arg, dtype)))
        if kind != arg:
            self.state.append(fill("place", "int64_t", "0"))
            step, _ = self.index(_number(self.bodies.group.inner), (), n)
            stays = f"({value.text} == {value.text}) & ((total{at} != total{at}) | ({value.text} {'<' if arg == 'max' else '>'} total{at}))"
            self.add(f"place{at} = {stays} ? place{at} : {step};", every, n)
            self.add(TAKE[arg].format(total=f"total{at}", value=value.text), every, n)
            return Value(f"place{at}", every)
        self.add(TAKE[kind].format(total=f"total{at}", value=value.text), every, n)
        return Value(f"total{at}", every)

    def scatter(self, n: fx.Node) -> None:
        _, index, source, mode, *positions = n.args
        assert isinstance(index, Index) and isinstance(source, fx.Node) and isinstance(mode, str)
        value, dtype = self.value(source), self.node.output.dtype
        text, variables = self.index(index, [self.value(p) for p in positions if isinstance(p, fx.Node)], n)
        element = f"{self.bodies.names[self.node.name]}[{text}]"
        new = value.text
        if mode != "set":
            old = f"{LOAD[dtype]}({element})" if dtype in LOAD else element
            combined = "{a} | {b}" if dtype == torch.bool and mode in ("sum", "max") else "{a} & {b}" if dtype == torch.bool else COMBINE[mode]
            new = rounded(combined.format(a=old, b=value.text), dtype)
        every = frozenset(v.name for v in (*self.bodies.group.outer, *self.bodies.group.inner))
        self.add(f"{element} = {STORE[dtype]}({new});" if dtype in STORE else f"{element} = {new};", variables | value.variables | every, n)


def _start(kind: str, dtype: torch.dtype) -> str:
    if kind in ("sum", "prod"):
        return f"{compute_type(dtype)}({0 if kind == 'sum' else 1})"
    lowest = kind in ("max", "logsumexp")
    if dtype.is_floating_point:
        return literal(-math.inf if lowest else math.inf, dtype)
    if dtype == torch.bool:
        return "false" if lowest else "true"
    return literal(torch.iinfo(dtype).min if lowest else torch.iinfo(dtype).max, dtype)


def _number(steps: tuple[Var, ...]) -> Index:
    index = Index()
    for v in steps:
        index = index * v.size + Index.of(v)
    return index


def translate(k: KernelCode) -> SerialCode:
    """The statements of a serial kernel, and the declarations of what its steps carry."""
    node, scope = _node(k), Scope()
    first = [] if node.start is None else _first(k, node.start)
    as_loop = LoopNode(node.name, node.output, node.outer + node.steps, (), node.body, node.parents, node.stack, node.origin)
    step = _Step(k.bodies, as_loop, scope, outer=False)
    step.lanes, step.state = contiguous(node), []
    if node.start is None:
        step.store()
    else:
        for unread in (n for n in node.body.nodes if n.target is ops.indirect and not n.users):
            step.value(unread)
        step.scatter(next(n for n in node.body.nodes if n.target is ops.scatter))
    return SerialCode(first, scope.statements, step.state)


def _node(k: KernelCode) -> SerialNode:
    if k.group.serial is None:
        raise InvalidIR(f"{k.group.name} is serial, but has no scan and no scatter")
    return k.group.serial


def _first(k: KernelCode, start: LoopNode) -> list[Statement]:
    """Statements of the pointwise node that fills a scatter's buffer."""
    phase = Phase("outer", (start,))
    bodies = Bodies(LoopGroup(k.group.name, start.outer, (), (phase,), frozenset(), {}, "pointwise"), k.bodies.names, k.bodies.arguments, k.bodies.ids, False)
    code = bodies.phase(phase)
    k.bodies.count, k.bodies.doomed = bodies.count, bodies.doomed
    return [*code.sweep, *code.after]


def serial(k: KernelCode) -> None:
    """The whole kernel's loops: what the buffer holds first, then the steps."""
    node, code, e, parallel = _node(k), k.serial, k.e, k.mode == "outer"
    if node.start is not None:
        plain_sweep(e, code.first, node.start.outer, parallel)
    lanes = contiguous(node)
    rest = proper(node.outer if lanes is None else node.outer[:-1])
    steps, parents = proper(node.steps), k.parents
    order = (*rest, *steps, *((lanes,) if lanes is not None else ()))
    deep = len(rest) + len(steps)
    levels = place(code.steps, order, range(len(rest) if parallel else 0, len(order) + 1))
    with ExitStack() as stack:
        if parallel:
            shared = len(rest) + (lanes is not None)
            e.line(f"#pragma omp parallel for{f' collapse({shared})' if shared > 1 else ''}{flags(code.steps)}", parents)
        else:
            emit(e, levels[0])
        nest(e, stack, rest, [[] for _ in rest] if parallel else levels[1 : len(rest) + 1], parents)
        if lanes is not None:
            stack.enter_context(e.block(loop("strip", lanes.size, step=STRIP), parents))
            e.line(f"const int64_t end = strip + {STRIP} < {lanes.size} ? strip + {STRIP} : {lanes.size};", parents)
        for declaration in code.state:
            e.line(declaration, parents)
        if parallel:
            emit(e, levels[len(rest)])
        nest(e, stack, steps, levels[len(rest) + 1 : deep + 1], parents)
        if lanes is not None:
            e.line(f"#pragma omp simd{flags(levels[-1])}", parents_of(levels[-1]))
            stack.enter_context(e.block(loop(lanes.name, "end", "strip"), parents_of(levels[-1])))
            emit(e, levels[-1])
