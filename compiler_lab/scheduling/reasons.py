"""The closed catalogue of reasons: every ``Decision`` of scheduling has one of these ids, and the sentence says what it means."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    # fuse, accepted
    "same space": "Both loops can run over one iteration space, each value read where it is made.",
    "same rows": "Both loops run over the same rows: one computes per row what the other needs or makes.",
    "small kernels": "Both loops are so small that a kernel of its own costs more than the work.",
    # fuse, refused
    "no shared data": "Neither reads what the other makes or reads, so one kernel would move as many bytes as two.",
    "different size": "The loops have different numbers of points.",
    "broadcast": "The consumer reads each value many times; inside its loop the value would be computed as often.",
    "loop order": "No common order of the loops lets each value be read at the point where it is made.",
    "would make a cycle": "Another kernel must run between the two.",
    "reduction boundary": "A reduction is complete only after its whole loop, and what is left to do would sweep too much memory again or another space.",
    "extern": "The other side is an aten call, not a loop.",
    "in order": "One of the two is a scan or a scatter: its steps run one after another, in a loop of its own.",
    "too large": "The kernel would hold more nodes than the option max_fused_nodes allows.",
    "memory would rise": "Running the two together would keep more bytes alive than it saves in traffic.",
    "indirect access": "The element that is read is known only at run time, and another point may have made it.",
    "empty": "A loop without points runs alone.",
    "fusion is off": "The option fusion is False: every loop is a kernel of its own.",
    # recompute
    "cheaper than memory": "Computing the value again in each reader moves no more bytes than storing and loading it.",
    "expensive": "The value takes expensive operations or long chains; it is stored once and loaded.",
    "more traffic": "Computing the value again would read more bytes than storing and loading it.",
    # drop
    "no reader": "No loop, call or output reads this buffer.",
    # kept inside a kernel
    "stored anyway": "Another kernel or an output needs the buffer, so a later sweep reads it back from memory.",
    "read at other points": "A later sweep reads other elements of the row, so the buffer is stored although only this kernel reads it.",
    "kept in a row": "The value is expensive and a later sweep needs it: it waits in a scratch row.",
    "computed again": "The value is cheap and a later sweep needs it: it is computed again there.",
    # reuse
    "bytes of the dead": "The buffer lies in bytes of the arena whose earlier buffers nobody reads any more.",
    "in place": "The kernel reads the buffer before it for the last time, each element at the point where it writes the one that takes its bytes.",
    "inside a result": "The buffer lies in the memory of a result of the program, which is written when nobody needs the buffer any more.",
    "on its own": "The buffer is allocated by itself and freed after its last reader: in the arena, which is kept, it would raise the peak.",
    "first in its bytes": "No buffer lay before it in its bytes of the arena.",
    "output": "The buffer is a result of the program: it is fresh memory, owned by the caller.",
    "aliased": "An aten call's result may share memory with the buffer, so its lifetime is not known.",
    "allocates itself": "The aten call that makes the buffer allocates it.",
}
"""Reason id -> sentence."""
