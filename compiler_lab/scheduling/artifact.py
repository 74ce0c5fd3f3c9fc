"""``Schedule`` and ``MemoryPlan``: what scheduling decided, as artifacts that print, check and run.

In: groups over a ``LoopProgram``, slots over the groups. Out: values for code generation and for the reader.
Always holds after ``check()``: each value is written before it is read and read where it is made; each buffer that anybody needs is
stored once; no two slots that live at the same time overlap.
PyTorch's counterpart: ``torch/_inductor/scheduler.py`` (Scheduler.nodes) and ``codegen/memory_planning.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR, Mismatch
from ..lowering import interpret, ops, printer, serial
from ..lowering.index import Index, Var
from ..lowering.ir import BufferSpec, ExternNode, LoopNode, SerialNode, TensorView
from ..lowering.program import LoopProgram, fits
from ..lowering.sizes import Condition, hint
from ..lowering.symbols import at, symbols_in
from .facts import kernel_facts
from .ir import ExternGroup, Group, LoopGroup, Slot
from .order import group_reads, group_writes
from .respace import chain, numel
from .verify import check_group, check_plan


@dataclass(frozen=True, repr=False, kw_only=True)
class MemoryPlan(Artifact):
    """Where intermediates live. All figures in bytes, over one run. Inputs are in none of them, for their memory is the caller's; but for ``held``, what
    nobody but a backward holds, which counts in peak, bound and eager alike from the start to its last reader.
    Where sizes are symbolic, ``arena_bytes`` is exact and the others are at the sizes at hand.

    arena_bytes  size of the arena, in which lie all slots without a host
    peak_bytes   most bytes at once: the arena, results of the program, results that aten calls allocate for themselves
    bound_bytes  the largest sum of what must live at once: everything that groups write, to its last reader, results to the end
    eager_bytes  the same if every node ran by itself, unfused

    ``over``: buffer -> the one in whose bytes it is written, element by element, by the kernel that reads that for the last time.
    """

    stage: str
    slots: tuple[Slot, ...]
    arena_bytes: int
    peak_bytes: int
    bound_bytes: int
    eager_bytes: int
    groups: tuple[Group, ...]
    over: Mapping[str, str] = field(default_factory=dict[str, str])
    results: frozenset[str] = frozenset()  # of the program: their memory is there to the end
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    decisions: tuple[Decision, ...] = ()

    def text(self) -> str:
        head = f"memory: peak {self.peak_bytes} bytes, bound {self.bound_bytes}, op by op {self.eager_bytes}, arena {self.arena_bytes}"
        rows = (f"  {s.buffer.name}: {printer.spec_text(s.buffer)} at {_bytes(s)} groups {s.first}..{s.last}{self._note(s.buffer.name)}" for s in self.slots)
        results = (f"  {made}: a result{self._note(made)}" for made in self.over if all(s.buffer.name != made for s in self.slots))
        return "\n".join([head, *rows, *results])

    def _note(self, name: str) -> str:
        return f" over {self.over[name]}" if name in self.over else ""

    def together(self, group: Group) -> frozenset[str]:
        """Buffers that a kernel finds in one place with another one: those it writes in place, and what they are written over."""
        made = [s.name for s in group_writes(group) if s.name in self.over]
        return frozenset([*made, *(self.over[name] for name in made)])

    def items(self) -> tuple[Item, ...]:
        """The figures, then each slot."""
        group = self.stage.rpartition(".")[0]
        facts = {
            "peak": self.peak_bytes, "bound": self.bound_bytes, "eager": self.eager_bytes, "arena": hint(self.arena_bytes),
            "held": dict(sorted(self.held.items())),
        }  # fmt: skip
        figures = Item(self.stage, "figures", self.text().partition("\n")[0], tuple(f"{group}/{g.name}" for g in self.groups), (), facts)
        slots = (
            Item(
                f"{self.stage}/{s.buffer.name}",
                "slot",
                f"{s.buffer.name}: {_bytes(s)}",
                (f"{group}/{self.groups[s.first].name}/{s.buffer.name}",),
                facts={"offset": hint(s.offset), "bytes": hint(s.nbytes), "first": s.first, "last": s.last, "host": s.host},
            )
            for s in self.slots
        )
        return (figures, *slots)

    def at(self, numbers: Mapping[str, int]) -> MemoryPlan:
        """The plan for these sizes."""
        slots, arena, groups = at((self.slots, self.arena_bytes, self.groups), numbers)
        return replace(self, slots=slots, arena_bytes=arena, groups=groups)

    def check(self) -> None:
        """Raises where two slots overlap or one is too small; where sizes are symbolic, at the sizes at hand, at the least ones, and at larger ones."""
        if symbols := symbols_in(self.slots, self.groups):
            for choose in (lambda s: s.hint, lambda s: s.low, lambda s: min(7 * s.hint + 5, s.high)):
                self.at({s.name: choose(s) for s in symbols}).check()
            return
        check_plan(self.stage, self.groups, self.slots, self.arena_bytes, self.over, self.results)

    def run(self, *args: Any) -> tuple[Slot, ...]:
        """A plan computes nothing; it answers with its slots."""
        return self.slots


@dataclass(frozen=True, repr=False, kw_only=True)
class Schedule(Artifact):
    """``groups`` in the order they run. Item ids: ``scheduling.forward/k0``, ``scheduling.forward/k0/buf3``. ``decisions`` end with the plan's."""

    stage: str
    program: LoopProgram
    groups: tuple[Group, ...]
    plan: MemoryPlan = field(repr=False)
    decisions: tuple[Decision, ...] = ()
    conditions: tuple[Condition, ...] = ()  # the program's, and those under which the groups are right

    def at(self, numbers: Mapping[str, int]) -> Schedule:
        """The schedule for these sizes."""
        return replace(self, program=self.program.at(numbers), groups=at(self.groups, numbers), plan=self.plan.at(numbers), conditions=())

    def text(self) -> str:
        p = self.program
        head = printer.size_lines(p.sizes, self.conditions, p.inputs, p.numbers)
        return "\n".join([*head, *(line for group in self.groups for line in group_lines(group, p)), self.plan.text()])

    def items(self) -> tuple[Item, ...]:
        return tuple(item for group in self.groups for item in self._group_items(group))

    def _group_items(self, group: Group) -> Iterator[Item]:
        where = f"{self.stage}/{group.name}"
        reads, writes, known = sorted(group_reads(group)), [s.name for s in group_writes(group)], self.program.buffers
        bytes_moved = {
            "reads": reads,
            "writes": writes,
            "results": [name for name in writes if name in self.plan.results],
            "bytes": {name: known[name].cost for name in (*reads, *writes)},
        }
        if isinstance(group, ExternGroup):
            node = group.node
            yield Item(where, "extern", printer.extern_text(node, self.program.buffers), (self.program.id(node),), node.stack, bytes_moved)
            for spec in group_writes(group):
                yield Item(f"{where}/{spec.name}", "buffer", f"{spec.name}: {printer.spec_text(spec)}", (self.program.id(node),), node.stack)
            return
        parents = tuple(self.program.id(n) for n in group.nodes)
        facts = {
            "shape": group.shape,
            "kept": dict(sorted(group.kept.items())),
            "internal": sorted(group.internal),
            **bytes_moved,
            **kernel_facts(group, known),
        }
        yield Item(where, group.shape, group_head(group), parents, group.nodes[0].stack, facts)
        for n in group.nodes:
            phases = [i for i, p in enumerate(group.phases) if any(m.name == n.name for m in p.nodes)]
            kind = n.kind if isinstance(n, SerialNode) else "reduction" if n.is_reduction else "pointwise"
            head = printer.serial_head(n) if isinstance(n, SerialNode) else printer.loop_head(n)
            yield Item(f"{where}/{n.name}", kind, head, (self.program.id(n),), n.stack, {"phases": phases, "origin": n.origin})

    def check(self) -> None:
        if self.program.sizes:
            self.plan.check()
            return self.at(self.program.hints()).check()
        program = self.program
        known = {s.name for s in program.inputs} | set(program.constants)
        for group in self.groups:
            where = f"{self.stage}/{group.name}"
            for buffer in sorted(group_reads(group) - known):
                raise InvalidIR(f"{where} reads {buffer}, which no group before it stores")
            if isinstance(group, LoopGroup):
                check_group(where, group, program.buffers)
            for spec in group_writes(group):
                if spec.name in known:
                    raise InvalidIR(f"{where} writes {spec.name}, which is written already")
                known.add(spec.name)
        for position, output in enumerate(program.outputs):
            if isinstance(output, TensorView) and output.buffer not in known:
                raise InvalidIR(f"{self.stage}: output {position} is {output.buffer}, which no group stores")
        self.plan.check()

    def run(self, *args: Any) -> tuple[Any, ...]:
        """The outputs, group by group and phase by phase over the re-expressed bodies; between phases only what is kept survives."""
        program = self.program
        if program.sizes or program.numbers:
            _, numbers, tensors = replace(program, conditions=self.conditions).fixed(args)
            return self.at(numbers).run(*tensors)
        if len(args) != len(program.inputs) or not all(fits(s, a) for s, a in zip(program.inputs, args, strict=True)):
            raise Mismatch(f"{self.stage}: the inputs are not {', '.join(printer.spec_text(s) for s in program.inputs)}")
        env: dict[str, Tensor] = {**program.constants, **{s.name: a for s, a in zip(program.inputs, args, strict=True)}}
        with torch.no_grad():
            for group in self.groups:
                if isinstance(group, LoopGroup):
                    env.update(run_group(group, env))
                else:
                    results = interpret.evaluate_extern(group.node, env)
                    env.update((s.name, r) for s, r in zip(group.node.outputs, results, strict=True) if s is not None and r is not None)
            return tuple(interpret.view_tensor(o, env) if isinstance(o, TensorView) else o for o in program.outputs)


def run_group(group: LoopGroup, env: dict[str, Tensor]) -> dict[str, Tensor]:
    """The buffers the group stores."""
    made: dict[str, Tensor] = {}
    if group.serial is not None:
        return {group.serial.name: serial.evaluate_serial(group.serial, env)}
    for phase in group.phases:
        for node in phase.nodes:
            made[node.name] = evaluate_at(node, {**env, **made})
        per_row = phase.space == "outer" and bool(group.inner)
        passing = [n.name for n in phase.nodes if not (per_row or n.inner or n.name in group.kept or n.name not in group.internal)]
        for name in passing:
            del made[name]
    return {name: value for name, value in made.items() if name not in group.internal}


def evaluate_at(node: LoopNode, env: dict[str, Tensor]) -> Tensor:
    """As ``evaluate_node``; where the store names one element at many points, they all hold one value and any of them will do."""
    if chain(node.store_index(), node.outer) is not None or not numel(node.outer):
        return interpret.evaluate_node(node, env)
    index, step = Index(), 1
    for v in reversed(node.outer):
        index, step = index + Index.of(v) * step, step * v.size
    points = BufferSpec(node.name, (step,), (1,), node.output.dtype, node.output.device)
    body = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for n in node.body.nodes:
        args = tuple(made[a] if isinstance(a, fx.Node) else a for a in n.args)
        made[n] = body.call_function(n.target, (args[0], index, args[2]) if n.target is ops.store else args)
        made[n].meta = dict(n.meta)
    values = interpret.evaluate_node(replace(node, output=points, body=body), env)
    result = torch.zeros(node.output.nbytes // node.output.dtype.itemsize, dtype=node.output.dtype, device=node.output.device)
    address: Any = node.store_index().evaluate(lambda v: _grid(v, node.outer))  # type: ignore[arg-type,return-value]
    result[torch.as_tensor(address).expand([v.size for v in node.outer]).reshape(-1)] = values
    return result.as_strided(node.output.size, node.output.stride)


def _grid(var: Var, variables: tuple[Var, ...]) -> Tensor:
    dim = variables.index(var)
    return torch.arange(var.size).reshape([-1 if d == dim else 1 for d in range(len(variables))])


def _bytes(slot: Slot) -> str:
    return f"[{slot.offset}, {slot.offset + slot.nbytes})" + (f" of {slot.host}" if slot.host else "")


def group_head(group: LoopGroup) -> str:
    """``k0 = row for x0 in 8, over r0 in 128``."""
    outer = ", ".join(f"{v.name} in {v.size}" for v in group.outer)
    inner = ", ".join(f"{v.name} in {v.size}" for v in group.inner)
    return f"{group.name} = {group.shape}" + (f" for {outer}" if outer else "") + (f" over {inner}" if inner else "")


def group_lines(group: Group, program: LoopProgram) -> Iterator[str]:
    if isinstance(group, ExternGroup):
        yield f"{group.name} = {extern(group.node, program)}"
        return
    yield f"{group_head(group)}:"
    if group.serial is not None:
        yield f"  {printer.serial_head(group.serial)}:"
        yield from (f"    {text}" for text in printer.serial_lines(group.serial))
    for phase in group.phases:
        yield f"  {phase.space}:"
        for node in phase.nodes:
            note = f", kept in {group.kept[node.name]}" if node.name in group.kept else ""
            place = "stored" if node.name not in group.internal else "internal"
            yield f"    {node.name}: {printer.spec_text(node.output)} = {node.origin or 'loop'}  # {place}{note}"
            for _, text in printer.statements(node.body):
                yield f"      {text}"


def extern(node: ExternNode, program: LoopProgram) -> str:
    return printer.extern_text(node, program.buffers)
