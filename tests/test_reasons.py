"""Every reason of scheduling's catalogue: a smallest program gives it, and the same program with the condition lifted is decided otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler_lab.core.artifact import Decision
from compiler_lab.core.options import Options
from compiler_lab.lowering.ir import ExternNode
from compiler_lab.lowering.lower import lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.scheduling.fusion import schedule
from compiler_lab.scheduling.reasons import REASONS

from .loops import Builder, expanded, permuted
from .lowering_cases import traced

MM, SIN = torch.ops.aten.mm.default, torch.ops.aten.sin.default
F32, I64 = torch.float32, torch.int64
Made = tuple[LoopProgram, Options]
Verdict = tuple[str, str] | None
"""(outcome, reason) of a decision; None where there is none."""


@dataclass(frozen=True)
class Row:
    """``make(lifted)``: the program, and with the condition lifted. ``subject``: places among its nodes of those that the decision is about."""

    kind: str
    subject: tuple[int, ...]
    made: Verdict
    lifted: Verdict
    make: Callable[[bool], LoopProgram | Made]


def two(op: str, size: tuple[int, ...] = (5, 7), turned: bool = False, output: bool = False) -> LoopProgram:
    """A value and its reader, which may read it transposed."""
    b = Builder()
    h = b.loop(op, (b.input(*size),))
    return b.program(b.loop("neg", (permuted(h, (1, 0)) if turned else h,)), *([h] if output else []))


def apart(size: tuple[int, ...], shared: bool = False) -> LoopProgram:
    """Two loops of one size, over two inputs or over one."""
    b = Builder()
    x, y = b.input(*size), b.input(*size)
    return b.program(b.loop("neg", (x,)), b.loop("abs", (x if shared else y,)))


def broadcast(op: str, rows: int, inputs: int = 1, times: int = 1) -> LoopProgram:
    """A row of values that every row of another loop reads, or just as many values."""
    b = Builder()
    x = b.input(5, 7)
    shift = b.loop(op, tuple(b.input(rows, 7) for _ in range(inputs)) * times)
    return b.program(b.loop("neg", (x, expanded(shift, (5, 7)))))


def readers(sizes_differ: bool) -> LoopProgram:
    """Two readers of one input, one of which may read it three times."""
    b = Builder()
    x = b.input(5, 7)
    return b.program(b.loop("neg", (x,)), b.loop("abs", (expanded(x, (3, 5, 7)) if sizes_differ else x,)))


def around(needs: bool) -> LoopProgram:
    """Two loops, and a call that the second needs and that may need the first."""
    b = Builder()
    x = b.input(4, 4)
    h = b.loop("relu", (x,))
    return b.program(b.loop("neg", (b.extern(SIN, (h if needs else x,), (4, 4)), h)))


def read_by(call: bool) -> LoopProgram:
    b = Builder()
    h = b.loop("relu", (b.input(4, 4),))
    return b.program(b.extern(SIN, (h,), (4, 4)) if call else b.loop("sigmoid", (h,)))


def centred(rows: int, columns: int, dim: int = 1, width: int = 1) -> LoopProgram:
    """Sums along a dimension, and a loop that needs them: ``width`` values for each."""
    b = Builder()
    x = b.input(rows, columns)
    total = b.loop("copy", (x,), (dim,))
    if width == 1:
        return b.program(b.loop("neg", (total,)))
    wide = expanded(total, (rows, width) if dim == 1 else (width, columns))
    return b.program(b.loop("neg", (x, wide) if wide.size == x.size else (wide,)))


def distant(between: int) -> LoopProgram:
    """Two readers of an input with calls between them."""
    b = Builder()
    x, other = b.input(8, 8), b.input(8, 8)
    first = b.loop("exp", (x,))
    for _ in range(between):
        other = b.extern(MM, (other, other), (8, 8))
    return b.program(b.loop("exp", (x,)), first, other)


def taken(where: str) -> LoopProgram:
    """Elements picked by an index: of values, or of the input that values are then made of."""
    x, i = torch.empty(5), torch.zeros(5, dtype=I64)
    return lower(traced(lambda x, i: x.exp()[i] if where == "values" else x[i].exp(), x, i))


def scanned(scan: bool) -> LoopProgram:
    return lower(traced(lambda x: x.exp().cumsum(1) if scan else x.exp().sum(1), torch.empty(5, 7)))


def from_call(width: int, again: bool = False) -> LoopProgram:
    """A cheap row of 8 values, of a call's result, which may be wider; every row of a loop reads it, and perhaps the call's result again."""
    b = Builder()
    x = b.input(5, 8)
    made = replace(b.extern(SIN, (b.input(1, width),), (1, width)), size=(1, 8))
    h = b.loop("neg", (made,))
    return b.program(b.loop("neg", (x, *(expanded(v, (5, 8)) for v in ((h, made) if again else (h,))))))


def chain_of(length: int, op: str = "neg") -> LoopProgram:
    """A chain of cheap loops, whose result every row of a loop reads."""
    b = Builder()
    x, h = b.input(5, 7), b.input(1, 7)
    for _ in range(length):
        h = b.loop(op, (h,))
    return b.program(b.loop("neg", (x, expanded(h, (5, 7)))))


def swept_twice(op: str, output: bool = False, length: int = 1) -> LoopProgram:
    """Values that are summed along rows and read again with the sums."""
    b = Builder()
    h = b.input(4, 6)
    for _ in range(length):
        h = b.loop(op, (h,))
    total = b.loop("copy", (h,), (1,))
    return b.program(b.loop("relu", (h, expanded(total, (4, 6)))), *([h] if output else []))


def one_of_each_row(op: str) -> LoopProgram:
    """Values, what is made of their row sums, and one value of each row."""
    b = Builder()
    x, positions = b.input(4, 6), b.input(4, dtype=I64)
    top = expanded(b.loop("copy", (x,), (1,), "max"), (4, 6))
    h = b.loop(op, (x, top))
    total = b.loop("exp", (h,), (1,))
    return b.program(b.loop("copy", (b.gather(h, positions), replace(total, size=(4,), stride=(1,)))))


def unread(output: bool) -> LoopProgram:
    b = Builder()
    x = b.input(4, 4)
    h = b.loop("exp", (x,))
    return b.program(b.loop("neg", (x,)), *([h] if output else []))


def called(first: torch._ops.OpOverload = MM, aliased: bool = False, again: bool = False, output: bool = False, wide: bool = False) -> LoopProgram:
    """Three calls in a row and a loop, which may read the result of the first as well; that may be a result of the program. The loop adds up all, or
    gives as much as it is given."""
    b = Builder()
    x = b.input(8, 8)
    h = b.extern(first, (x, x)[: len(first._schema.arguments)], (8, 8))
    u = b.extern(MM, (h, x), (8, 8))
    v = b.extern(MM, (u, x), (8, 8))
    last = b.loop("neg", (v,)) if wide else b.loop("neg", (v, h if again else x), (0, 1))
    program = b.program(last, *([h] if output else []))
    reader = program.nodes[1]
    assert isinstance(reader, ExternNode)
    return replace(program, nodes=(program.nodes[0], replace(reader, aliases=(h.buffer,) if aliased else ()), *program.nodes[2:]))


def between(turned: bool) -> LoopProgram:
    """A loop between two calls, which reads the first one's result as it lies or across."""
    b = Builder()
    x = b.input(8, 8)
    h = b.extern(MM, (x, x), (8, 8))
    return b.program(b.extern(MM, (b.loop("exp", (permuted(h, (1, 0)) if turned else h,)), x), (8, 8)))


def before_a_call(n: int) -> LoopProgram:
    """A square matrix that is summed before a call allocates as much again."""
    b = Builder()
    x = b.input(n, n)
    total = b.loop("neg", (b.extern(MM, (x, x), (n, n)),), (0, 1))
    return b.program(total, b.loop("neg", (b.extern(SIN, (expanded(total, (n, n)),), (n, n)),), (0, 1)))


PAIR = (0, 1)
ACCEPTED, AGAIN = ("accepted", "same space"), ("accepted", "cheaper than memory")

ROWS: dict[str, list[Row]] = {
    "same space": [Row("fuse", PAIR, ACCEPTED, ("refused", "loop order"), lambda lift: two("exp", turned=lift))],
    "same rows": [Row("fuse", PAIR, ("accepted", "same rows"), ("refused", "reduction boundary"), lambda lift: centred(4, 6, width=3 if lift else 1))],
    "small kernels": [Row("fuse", PAIR, ("accepted", "small kernels"), ("refused", "no shared data"), lambda lift: apart((2048 + lift,)))],
    "no shared data": [Row("fuse", PAIR, ("refused", "no shared data"), ACCEPTED, lambda lift: apart((2049,), shared=lift))],
    "different size": [Row("fuse", PAIR, ("refused", "different size"), ACCEPTED, lambda lift: readers(not lift))],
    "broadcast": [Row("fuse", PAIR, ("refused", "broadcast"), ACCEPTED, lambda lift: broadcast("exp", 5 if lift else 1))],
    "loop order": [
        Row("fuse", PAIR, ("refused", "loop order"), ACCEPTED, lambda lift: two("exp", turned=not lift)),
        Row("fuse", PAIR, ("refused", "loop order"), ACCEPTED, lambda lift: two("neg" if lift else "exp", turned=True)),
    ],
    "would make a cycle": [Row("fuse", (0, 2), ("refused", "would make a cycle"), ACCEPTED, lambda lift: around(needs=not lift))],
    "reduction boundary": [
        Row("fuse", PAIR, ("refused", "reduction boundary"), ACCEPTED, lambda lift: centred(2, 16385 - lift, width=16385 - lift)),
        Row("fuse", PAIR, ("refused", "reduction boundary"), ACCEPTED, lambda lift: centred(7 + lift, 16385, width=16385)),
        Row("fuse", PAIR, ("refused", "reduction boundary"), ACCEPTED, lambda lift: centred(4097 - lift, 8, 0, 4097 - lift)),
        Row("fuse", PAIR, ("refused", "reduction boundary"), ("accepted", "same rows"), lambda lift: centred(4, 6, width=1 if lift else 3)),
    ],
    "extern": [Row("fuse", PAIR, ("refused", "extern"), ACCEPTED, lambda lift: read_by(call=not lift))],
    "in order": [Row("fuse", PAIR, ("refused", "in order"), ACCEPTED, lambda lift: scanned(not lift))],
    "too large": [
        Row("fuse", PAIR, ("refused", "too large"), ACCEPTED, lambda lift: (two("exp"), Options(max_fused_nodes=1 + lift))),
        Row("recompute", (0,), ("refused", "too large"), AGAIN, lambda lift: (broadcast("neg", 1), Options(max_fused_nodes=1 + lift))),
    ],
    "memory would rise": [
        Row("fuse", (0, -1), ("refused", "memory would rise"), ACCEPTED, lambda lift: distant(48 - lift)),
        Row("recompute", (-2,), ("refused", "memory would rise"), AGAIN, lambda lift: from_call(11 - lift)),
        Row("recompute", (-2,), ("refused", "memory would rise"), AGAIN, lambda lift: from_call(11, again=lift)),
    ],
    "indirect access": [Row("fuse", PAIR, ("refused", "indirect access"), ACCEPTED, lambda lift: taken("input" if lift else "values"))],
    "empty": [Row("fuse", PAIR, ("refused", "empty"), ACCEPTED, lambda lift: two("exp", size=(int(lift), 4)))],
    "fusion is off": [Row("fuse", PAIR, ("refused", "fusion is off"), ACCEPTED, lambda lift: (two("exp"), Options(fusion=lift)))],
    "cheaper than memory": [Row("recompute", (0,), AGAIN, ("refused", "expensive"), lambda lift: broadcast("exp" if lift else "neg", 1))],
    "expensive": [
        Row("recompute", (0,), ("refused", "expensive"), AGAIN, lambda lift: broadcast("neg" if lift else "exp", 1)),
        Row("recompute", (-2,), ("refused", "expensive"), AGAIN, lambda lift: chain_of(7 - lift)),
        Row("recompute", (0,), ("refused", "expensive"), AGAIN, lambda lift: broadcast("neg", 1, times=25 - lift)),
    ],
    "more traffic": [Row("recompute", (0,), ("refused", "more traffic"), AGAIN, lambda lift: broadcast("neg", 1, inputs=3 - lift))],
    "no reader": [Row("drop", (0,), ("dropped", "no reader"), None, unread)],
    "stored anyway": [Row("keep", (0,), ("memory", "stored anyway"), ("again", "computed again"), lambda lift: swept_twice("neg", output=not lift))],
    "read at other points": [Row("keep", (1,), ("memory", "read at other points"), None, lambda lift: one_of_each_row("neg" if lift else "exp"))],
    "kept in a row": [
        Row("keep", (0,), ("row", "kept in a row"), ("again", "computed again"), lambda lift: swept_twice("neg" if lift else "exp")),
        Row("keep", (-3,), ("row", "kept in a row"), ("again", "computed again"), lambda lift: swept_twice("neg", length=17 - lift)),
    ],
    "computed again": [Row("keep", (0,), ("again", "computed again"), ("row", "kept in a row"), lambda lift: swept_twice("exp" if lift else "neg"))],
    "bytes of the dead": [Row("reuse", (2,), ("accepted", "bytes of the dead"), ("refused", "first in its bytes"), lambda lift: called(again=lift))],
    "in place": [Row("reuse", (1,), ("accepted", "in place"), ("refused", "first in its bytes"), lambda lift: between(turned=lift))],
    "inside a result": [Row("reuse", (0,), ("accepted", "inside a result"), ("refused", "first in its bytes"), lambda lift: called(wide=not lift))],
    "on its own": [Row("reuse", (0,), ("refused", "on its own"), ("refused", "first in its bytes"), lambda lift: before_a_call(8 if lift else 64))],
    "first in its bytes": [Row("reuse", (2,), ("refused", "first in its bytes"), ("accepted", "bytes of the dead"), lambda lift: called(again=not lift))],
    "output": [Row("reuse", (0,), ("refused", "output"), ("refused", "first in its bytes"), lambda lift: called(output=not lift))],
    "aliased": [Row("reuse", (0,), ("refused", "aliased"), ("refused", "first in its bytes"), lambda lift: called(aliased=not lift))],
    "allocates itself": [Row("reuse", (0,), ("refused", "allocates itself"), ("refused", "first in its bytes"), lambda lift: called(MM if lift else SIN))],
}  # fmt: skip
"""Reason -> programs that give it."""


def test_every_reason_has_a_program() -> None:
    assert list(ROWS) == list(REASONS)
    assert all(row.made is not None and row.made[1] == reason and row.lifted != row.made for reason, rows in ROWS.items() for row in rows)


def verdict(row: Row, lifted: bool) -> Verdict:
    """What is decided of the row's subject; the schedule is well formed and computes what its program does."""
    made = row.make(lifted)
    program, options = made if isinstance(made, tuple) else (made, Options())
    s = schedule(program, options)
    s.check()
    args = [rand(i.size, i.dtype) for i in program.inputs]
    torch.testing.assert_close(s.run(*args), program.run(*args))
    subject = [program.nodes[i].name for i in row.subject]
    found: list[Decision] = [d for d in s.decisions if d.kind == row.kind and [x.rpartition("/")[2] for x in d.subject] == subject]
    assert len(found) <= 1
    return (found[0].outcome, found[0].reason) if found else None


def rand(size: Any, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(size, generator=generator) if dtype == F32 else torch.randint(0, 4, size, generator=generator)


@pytest.mark.parametrize(("reason", "row"), [(reason, i) for reason, rows in ROWS.items() for i in range(len(rows))])
def test_a_smallest_program_gives_the_reason_and_lifting_the_condition_flips_it(reason: str, row: int) -> None:
    found = ROWS[reason][row]
    assert verdict(found, False) == found.made
    assert verdict(found, True) == found.lifted


@pytest.mark.parametrize(("program", "saved"), [
    (two("exp"), 35 * 4 * 2), (two("exp", output=True), 35 * 4), (apart((35,), shared=True), 35 * 4), (apart((35,)), 0), (read_by(call=True), 16 * 4),
])  # fmt: skip
def test_bytes_that_a_fusion_saves(program: LoopProgram, saved: int) -> None:
    """What both read is read once; what one makes for the other is not read again, and not stored where nobody else wants it."""
    (pair,) = [d for d in schedule(program).decisions if d.kind == "fuse"]
    assert pair.facts["bytes_saved"] == saved


def test_a_value_per_row_is_read_by_a_loop_of_other_dimensions() -> None:
    """Its row is what the value's index is over; the rest runs along the row, in order."""
    b = Builder()
    total = b.loop("copy", (b.input(4, 6),), (1,))
    wide = replace(total, size=(4, 2, 3), stride=(1, 0, 0))
    program = b.program(b.loop("neg", (wide, b.input(4, 2, 3, stride=(6, 1, 2)))))
    s = schedule(program)
    s.check()
    (pair,) = [d for d in s.decisions if d.kind == "fuse"]
    assert (pair.outcome, pair.reason) == ACCEPTED
    args = (torch.randn(4, 6), torch.randn(24).as_strided((4, 2, 3), (6, 1, 2)))
    torch.testing.assert_close(s.run(*args), program.run(*args))
