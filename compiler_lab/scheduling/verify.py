"""What must hold of a ``LoopGroup``: the executable form of the rules in ``ir.py``.

In: a group and all buffers. Out: nothing, or ``InvalidIR`` naming the node.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import InvalidIR
from ..lowering.index import Index
from ..lowering.ir import BufferSpec, LoopNode
from ..lowering.program import check_loop, check_serial
from .ir import LoopGroup, Phase
from .respace import chain, numel, solve


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
