"""What must hold of a ``LoopGroup`` and of a memory plan: the executable form of the rules in ``ir.py``.

In: a group and all buffers, or groups and slots. Out: nothing, or ``InvalidIR`` naming the node or the buffer.
A plan is checked by other means than it is made by: bodies are walked load by load and store by store, and indices compared by their values at points.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping, Sequence

from ..core.errors import InvalidIR
from ..lowering.index import Index, Var
from ..lowering.ir import BufferSpec, LoopNode
from ..lowering.program import check_loop, check_serial
from .ir import FRESH, OUT_VARIANTS, ExternGroup, Group, LoopGroup, Phase, Slot
from .order import group_writes, lifetimes
from .respace import chain, numel, solve

POINTS = 256
"""Points at which indices of a kernel that writes in place are compared, its corners among them."""


def check_group(where: str, group: LoopGroup, buffers: Mapping[str, BufferSpec]) -> None:
    """Raises ``InvalidIR`` where a node has other variables than the group's, reads what is not there, or reads it at another point."""
    if group.serial is not None:
        check_serial(f"{where}/{group.serial.name}", group.serial, buffers)
        return
    if bool(group.inner) != (group.shape != "pointwise") or (group.shape == "flat" and group.outer):
        raise InvalidIR(f"{where} is walked as {group.shape}, which its variables do not fit")
    alive: dict[str, LoopNode] = {}
    for number, phase in enumerate(group.phases):
        here: dict[str, LoopNode] = {}
        for node in phase.nodes:
            name = f"{where}/{node.name}"
            _check_variables(name, group, phase, node)
            check_loop(name, node, buffers)
            for buffer, index in node.reads():
                if buffer in here:
                    if index != here[buffer].store_index():
                        raise InvalidIR(f"{name} reads {buffer} at {index}, where this phase does not make it")
                    if here[buffer].inner:
                        raise InvalidIR(f"{name} reads {buffer}, whose reduction ends with this phase")
                elif buffer in alive:
                    _check_earlier(name, group, alive[buffer], index)
                elif any(n.name == buffer for p in group.phases for n in p.nodes):
                    raise InvalidIR(f"{name} reads {buffer} in phase {number}, which is not made or not kept by then")
            here[node.name] = node
            if not (node.name in group.internal or numel(node.outer) == 0) and chain(node.store_index(), node.outer) is None and node.store_index().is_affine:
                raise InvalidIR(f"{name} stores one element at several points")
        per_row = phase.space == "outer" and bool(group.inner)
        alive.update((n.name, n) for n in phase.nodes if per_row or n.inner or n.name in group.kept or n.name not in group.internal)


def _check_variables(name: str, group: LoopGroup, phase: Phase, node: LoopNode) -> None:
    outer = group.outer if node.inner or (phase.space == "outer" and group.inner) else group.outer + group.inner
    if node.outer != outer or node.inner not in ((), group.inner) or (node.inner and phase.space == "outer"):
        raise InvalidIR(f"{name} runs over other variables than its group")


def _check_earlier(name: str, group: LoopGroup, producer: LoopNode, index: Index) -> None:
    if index == producer.store_index():
        return
    if producer.inner or producer.name in group.internal:
        raise InvalidIR(f"{name} reads {producer.name} at {index}, which is neither its own point nor in memory")
    point = solve(producer.store_index(), producer.outer, index)
    if point is None or any(point[v] != Index.of(v) for v in group.outer):
        raise InvalidIR(f"{name} reads {producer.name} at {index}, which another outer point makes")


# ---- memory ----


def check_plan(where: str, groups: Sequence[Group], slots: Sequence[Slot], arena: int, over: Mapping[str, str], results: frozenset[str]) -> None:
    """Raises ``InvalidIR`` where a slot is too small or outlives its host, where two that live at once share bytes and neither is written over
    the other, and where one is written over another that its kernel still needs."""
    spans = lifetimes(groups)
    specs = {s.name: s for g in groups for s in group_writes(g)}
    places = {s.buffer.name: (s.host, s.offset) for s in slots}
    for i, a in enumerate(slots):
        here = f"{where}/{a.buffer.name}"
        room = arena if not a.host else specs[a.host].nbytes if a.host in specs else 0
        if a.offset % 64 or a.offset < 0 or a.offset + a.nbytes > room or a.nbytes < a.buffer.nbytes:
            raise InvalidIR(f"{here} is not a 64-byte aligned part of the memory that holds its buffer")
        if a.buffer.name not in spans or (a.first, a.last) != spans[a.buffer.name]:
            raise InvalidIR(f"{here} lives from group {a.first} to {a.last}, its uses say {spans.get(a.buffer.name)}")
        if a.host:
            _check_host(here, groups, a, spans, over, {*places, *(results if a.first > spans[a.host][0] else ())})
        for b in slots[i + 1 :]:
            apart = a.host != b.host or a.last < b.first or b.last < a.first or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            if not apart and not _follows(a, b, over) and not _follows(b, a, over):
                raise InvalidIR(f"{here} and {b.buffer.name} live at the same time in the same bytes")
    for made, read in over.items():
        at = f"{where}/{made}"
        if made not in specs or read not in specs or places.get(made, (made, 0)) != places.get(read, (read, 0)):
            raise InvalidIR(f"{at} is written over {read}, which lies elsewhere")
        group = groups[spans[made][0]]
        if spans[read][1] != spans[made][0] or not isinstance(group, LoopGroup):
            raise InvalidIR(f"{at} is written over {read}, which is not read for the last time by the kernel that writes it")
        _check_in_place(at, group, specs[read], specs[made])


def _follows(a: Slot, b: Slot, over: Mapping[str, str]) -> bool:
    """``b`` is written over ``a``, when that dies."""
    return over.get(b.buffer.name) == a.buffer.name and a.last == b.first


def _check_host(here: str, groups: Sequence[Group], slot: Slot, spans: Mapping[str, tuple[int, int]], over: Mapping[str, str], taken: Collection[str]) -> None:
    """A host that we allocate is idle until it is written, and any is once it is read for the last time. ``taken``: what cannot be one."""
    made, last = spans[slot.host]
    maker = groups[made]
    if slot.host in taken or any(isinstance(g, ExternGroup) and slot.host in g.node.aliases for g in groups):
        raise InvalidIR(f"{here} lies in {slot.host}, which has no memory of its own")
    target = maker.node.target if isinstance(maker, ExternGroup) else None
    ours = target is None or target in OUT_VARIANTS
    before = ours and (slot.last < made or (slot.last == made and over.get(slot.host) == slot.buffer.name))
    after = last < slot.first or (last == slot.first and over.get(slot.buffer.name) == slot.host)
    if not before and not (after and (ours or target in FRESH)):
        raise InvalidIR(f"{here} lies in {slot.host} while that is in use")


def _check_in_place(at: str, group: LoopGroup, read: BufferSpec, made: BufferSpec) -> None:
    if read.dtype != made.dtype or read.nbytes != made.nbytes or group.serial is not None:
        raise InvalidIR(f"{at} is written over {read.name}, whose elements are not its own one by one")
    points = _points((*group.outer, *group.inner))
    loads: list[Index] = []
    writers: list[LoopNode] = []
    for node in (n for phase in group.phases for n in phase.nodes):
        for n in node.body.nodes:
            if n.op == "call_function" and n.target.__name__ == "load" and n.args[0] == read.name:
                if writers:
                    raise InvalidIR(f"{at} is written over {read.name} before {node.name} reads that")
                loads.append(n.args[1])
        writers += [node] if node.name == made.name else []
    if len(writers) != 1 or writers[0].inner:
        raise InvalidIR(f"{at} is written over {read.name} by other than one sweep")
    if any(v.name.startswith("%") for x in loads for v in x.variables()):
        raise InvalidIR(f"{at} is written over {read.name}, which is read at places known at run time")
    written = [writers[0].store_index().evaluate(p.__getitem__) for p in points]
    once = len(set(written)) == len({tuple(p[v] for v in writers[0].outer) for p in points})
    if not once or any([x.evaluate(p.__getitem__) for p in points] != written for x in loads):
        raise InvalidIR(f"{at} is written over {read.name}, whose elements are read at other points")


def _points(variables: Sequence[Var]) -> list[dict[Var, int]]:
    """Different points of the space: all of a small one, else its corners as far as they go, and others."""
    if numel(variables) <= POINTS:
        return [dict(zip(variables, p, strict=True)) for p in itertools.product(*(range(v.size) for v in variables))]
    choose = random.Random(0)
    corners = itertools.islice(itertools.product(*(dict.fromkeys((0, v.size - 1)) for v in variables)), POINTS // 2)
    found = dict.fromkeys((*corners, *(tuple(choose.randrange(v.size) for v in variables) for _ in range(POINTS // 2))))
    return [dict(zip(variables, p, strict=True)) for p in found]
