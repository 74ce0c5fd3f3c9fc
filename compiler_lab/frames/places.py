"""Operators that see where a tensor begins in its memory, and what lies around it: a tensor guard looks at neither.

In: such an operator, its arguments and its result on fakes. Out: "place" guards on the inputs whose memory it sees, or a refusal.
Always holds: what ``as_strided`` reads of an input are elements of this input, at the place that they had at capture, at each call that the
guards let through. What lies past them may be another input's, or nobody's: fakes do not see that it is out of bounds.
Where PyTorch does this: nowhere; ``torch/_dynamo/guards.py`` guards no storage offset. Left out: operators that torch composes of these
with an offset of their own; none is known that counts it from the beginning of the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .values.base import Args, Kwargs
from .values.tensor import TensorValue, span

if TYPE_CHECKING:
    from .tracer import Tracer

OFFSETS = {"as_strided": 3, "as_strided_": 3, "as_strided_copy": 3, "as_strided_scatter": 4, "_reinterpret_tensor": 9}
"""Name -> the position of its offset, which counts from the beginning of the memory; without it, and never for 9, from the first element."""
WIDER = frozenset({"view", "view_as_complex"})
"""They read several elements as one, which has to begin at a multiple of its size."""
SIZED = frozenset({"sym_storage_offset", "storage_offset"})
PLACED = frozenset({*OFFSETS, *WIDER, *SIZED, "_reshape_alias"})


def note(t: Tracer, name: str, args: Args, kwargs: Kwargs, out: Any) -> None:
    """Guards what ``name``, one of ``PLACED``, has seen of inputs. Raises ``CaptureUnsupported`` for a read past their elements, and of an offset."""
    seen = args[0] if args else kwargs.get("self", kwargs.get("input"))
    if not isinstance(seen, TensorValue):
        return
    memory = seen.fake.untyped_storage()._cdata
    inputs = [v for v in t.inputs if isinstance(v, TensorValue) and (t.subgraphs or v.fake.untyped_storage()._cdata == memory)]
    if not inputs:
        return
    if name in SIZED:
        raise t.refuse("op-refused", f".{name}() of an input, which no guard looks at")
    if name in WIDER:
        times = out.element_size() // seen.fake.element_size()
        for value in inputs if times > 1 else ():
            _guard(t, value, times)
        return
    absolute = name in OFFSETS and (len(args) > OFFSETS[name] or "storage_offset" in kwargs)
    for value in inputs:
        if name != "as_strided_scatter" and not (isinstance(out, torch.Tensor) and _within(out, value)):
            raise t.refuse("op-refused", f"{name} past the elements of {value.describe()}")
        if absolute:
            _guard(t, value, 0)


def _guard(t: Tracer, value: TensorValue, step: int) -> None:
    assert value.real_tensor is not None
    offset = int(value.real_tensor.storage_offset())
    t.guard("place", value.source, (offset % step if step else offset, step), why="an operator sees where in its memory this tensor begins")


def _within(part: torch.Tensor, value: TensorValue) -> bool:
    """Does ``part`` keep to the memory from the first to the last element of an input? What its sizes decide is guarded."""
    (first, end), (first_whole, end_whole) = span(part), span(value.fake)
    placed = value.real_tensor is not None and value.real_tensor.storage_offset() == value.fake.storage_offset()  # else it has open sizes
    return placed and bool(first == end or (first_whole <= first and end <= end_whole))
