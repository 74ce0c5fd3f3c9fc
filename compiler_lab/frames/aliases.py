"""Inputs that share memory, where one of them is changed: how they lie to each other, and the guards that it is so at each call.

In: the inputs of a capture, and which of them it changes. Out: guards, or a refusal. Always holds: where an input is changed, at each call that
the guards let through another one reaches its memory only if it did at capture, in the same elements, and with the same ties to it in
autograd. So what later stages see in the example inputs holds for the call.
PyTorch's counterpart: ``install_storage_overlapping_guard`` of ``torch/_dynamo/guards.py``, which asks only whether, not where. Left out: inputs of
open sizes that share memory (captured with the sizes of the call instead).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ..core.memory import are_kin
from ..core.provenance import Stack
from .guard_nodes import extent
from .ir import Guard
from .reasons import CaptureUnsupported
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from .tracer import Tracer


@dataclass(frozen=True)
class Shared:
    """Inputs whose memory is entangled, lowest first; starts: the byte at which each begins; length: to the end of the last, in bytes."""

    members: tuple[TensorValue, ...]
    starts: tuple[int, ...]
    length: int


def shared_memory(t: Tracer) -> list[Shared]:
    """The inputs that share memory with one that is changed."""
    return [s for s in _entangled(t) if any(id(v) in t.mutated for v in s.members)] if t.mutated else []


def _entangled(t: Tracer) -> Iterator[Shared]:
    """One sweep over the addresses in order; inputs between whose first and last elements others begin are together, meet or not."""
    spans: list[tuple[int, int, int, TensorValue]] = []
    for n, value in enumerate(t.inputs):
        if isinstance(value, TensorValue) and (real := value.real_tensor) is not None and real.numel() and real.device.type != "meta":
            spans.append((real.data_ptr(), real.data_ptr() + extent(real), n, value))
    group: list[tuple[int, int, int, TensorValue]] = []
    for span in [*sorted(spans), None]:
        end = max((s[1] for s in group), default=0)
        if group and (span is None or span[0] >= end):
            if len(group) > 1:
                first = group[0][0]
                yield Shared(tuple(v for *_, v in group), tuple(s[0] - first for s in group), end - first)
            group = []
        if span is not None:
            group.append(span)


def check_aliases(t: Tracer, definition: Stack) -> None:
    """Refuses inputs that share memory and are changed, where a guard cannot say how they do, or where their fakes do not do as they do."""
    for shared in shared_memory(t):
        names = " and ".join(v.node.name for v in shared.members)
        if any(v.fake._has_symbolic_sizes_strides for v in shared.members):  # type: ignore[attr-defined]
            raise CaptureUnsupported("aliased-inputs", f"{names}, of sizes that vary", definition)
        gained = any(v.fake.requires_grad != _real(v).requires_grad for v in shared.members)
        if gained and not are_kin([v.fake for v in shared.members]):
            raise CaptureUnsupported("aliased-inputs", f"{names}, and what is written has a gradient", definition)


def memory_guards(t: Tracer) -> tuple[Guard, ...]:
    """For inputs that are changed: how others share their memory, and that no more do."""
    if not t.mutated:
        return ()
    stack = next(iter(t.mutated.values())).node.meta["stack"]
    together, made = shared_memory(t), list[Guard]()
    for s in together:
        facts = (tuple(v.source for v in s.members), s.starts, are_kin([_real(v) for v in s.members]))
        made.append(Guard("shared", None, facts, stack, "inputs that share memory are changed"))
    lengths = tuple((s.members[0].source, s.length) for s in together)
    behind = {id(v) for s in together for v in s.members[1:]}
    tensors = [v for v in t.inputs if isinstance(v, TensorValue) and id(v) not in behind]
    first = {source for source, _ in lengths}
    changed = tuple(v.source for v in tensors if id(v) in t.mutated or v.source in first)
    others = tuple(v.source for v in tensors if v.source not in changed)
    if others or changed[1:]:
        made.append(Guard("disjoint", None, (changed, others, lengths), stack, "inputs are changed"))
    return tuple(made)


def _real(value: TensorValue) -> Tensor:
    assert value.real_tensor is not None
    return value.real_tensor
