"""Inputs that are unusual or wrong, through all of ``lab``: what eager gives, or the error that it raises; and a process killed while it writes the cache."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab

from .conftest import same


def unaligned(dtype: torch.dtype, count: int) -> Tensor:
    """Numbers that begin one byte behind a multiple of their size."""
    memory = bytearray(torch.linspace(-2, 2, count + 1).to(dtype).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=1)


BASE = torch.linspace(-3, 3, 7 * 9)
LAID_OUT: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: BASE.view(7, 9).t(),
    "stepped": lambda: BASE.view(7, 9)[::2, 1::3],
    "at an offset": lambda: BASE.view(7, 9)[3:, 5:],
    "windows that overlap": lambda: BASE.unfold(0, 5, 2),
    "one element everywhere": lambda: BASE[4].expand(6, 40),
    "a row everywhere": lambda: BASE[:40].expand(6, 40),
    "overlapping by hand": lambda: BASE.as_strided((6, 40), (1, 1)),
    "flipped": lambda: BASE.view(7, 9).flip(1),
    "empty": lambda: BASE[:0].view(0, 9),
    "empty inside": lambda: BASE[:0].view(7, 0),
    "without dimensions": lambda: BASE[3],
    "unaligned": lambda: unaligned(torch.float32, 63).view(7, 9),
    "unaligned doubles": lambda: unaligned(torch.float64, 63).view(7, 9),
}


def program(x: Tensor) -> tuple[Tensor, ...]:
    y = x.clamp(-2, 2).nan_to_num() * 2 + 1
    return y, y.sum(-1) if x.dim() else y, y.sum(), torch.cat([y.reshape(-1), y.reshape(-1)]), y.relu().mT if x.dim() > 1 else y


@pytest.mark.parametrize("name", LAID_OUT)
def test_memory_of_every_kind(name: str) -> None:
    x = LAID_OUT[name]()
    got, want = compiler_lab.compile(program, fullgraph=True)(x), program(x)
    same(tuple(t.contiguous() for t in got), tuple(t.contiguous() for t in want), rtol=1e-5, atol=1e-5)


INDEXED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, i: x[i] * 2,
    "two indices": lambda x, i: x[i, i] * 2,
    "gather": lambda x, i: x.gather(0, i.view(-1, 1)) * 2,
    "embedding": lambda x, i: F.embedding(i, x) * 2,
    "index_select": lambda x, i: x.index_select(0, i) * 2,
    "take": lambda x, i: x.take(i) * 2,
    "scatter": lambda x, i: x.scatter(0, i.view(-1, 1), 1.0) * 2,
    "index_add": lambda x, i: x.index_add(0, i, x[: len(i)]) * 2,
    "index_copy": lambda x, i: x.index_copy(0, i, x[: len(i)]) * 2,
    "index_fill": lambda x, i: x.index_fill(0, i, 3.0) * 2,
    "index_put": lambda x, i: x.index_put((i,), x[0]) * 2,
    "index_put, accumulated": lambda x, i: x.index_put((i,), x[0], accumulate=True) * 2,
    "negative log likelihood": lambda x, i: F.nll_loss(x[: len(i)], i),
}


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_below_zero_counts_from_the_end_only_where_it_does_in_eager(name: str) -> None:
    f, x, index = INDEXED[name], torch.linspace(0, 1, 20).view(5, 4), torch.tensor([0, -1, 1])
    compiled = compiler_lab.compile(f, fullgraph=True)
    try:
        want = f(x, index)
    except (IndexError, RuntimeError):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, index)
    else:
        torch.testing.assert_close(compiled(x, index), want)


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range_raises_and_the_next_call_is_right(name: str) -> None:
    """The error is an ``IndexError`` where eager's is; some of eager's are RuntimeErrors, and a kernel knows only that an index was wrong."""
    f, x = INDEXED[name], torch.linspace(0, 1, 20).view(5, 4)
    good = torch.tensor([0, 2, 3]) if name == "negative log likelihood" else torch.tensor([0, 3, 4])
    good = torch.tensor([0, 2, 3]) if name == "two indices" else good
    compiled = compiler_lab.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(x, good), f(x, good))
    for wrong in (1000, -1000, 2**62, -(2**62)):
        bad = torch.tensor([0, wrong, 1])
        with pytest.raises((IndexError, RuntimeError)) as raised:
            f(x, bad)
        with pytest.raises((IndexError, RuntimeError)) as found:
            compiled(x, bad)
        assert found.type is raised.type or found.type is IndexError
    torch.testing.assert_close(compiled(x, good), f(x, good))


OVERFLOWING: dict[str, Callable[[Tensor], Tensor]] = {
    "too many elements": lambda x: x.new_zeros(2**40, 2**40) + x,
    "too many bytes": lambda x: torch.full((2**61,), 1.0) + x,
    "expanded, then copied": lambda x: x.expand(2**31, 2**31).clone(),
    "repeated": lambda x: x.repeat(2**31, 2**31),
    "a negative size": lambda x: x.view(-2),
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_sizes_that_overflow_are_eagers_error(name: str) -> None:
    f, x = OVERFLOWING[name], torch.ones(1)
    with pytest.raises(RuntimeError):
        f(x)
    with pytest.raises((RuntimeError, MemoryError)):
        compiler_lab.compile(f)(x)


WRITER = """
import compiler_lab, torch
print("started", flush=True)
for n in range(100):
    compiler_lab.compile(eval(f"lambda x: (x * {n} + 1).sum()"), options={"cache_dir": %r})(torch.ones(4))
    print(n, flush=True)
"""


def test_a_process_killed_while_it_writes_the_cache(tmp_path: Path) -> None:
    """Whatever it was doing: what is left is used or made again, and never wrong."""
    for moment in (0.0, 0.15):
        command = [sys.executable, "-c", WRITER % str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COMPILER_LAB_ENTRIES": "1"}, start_new_session=True) as process:
            assert process.stdout is not None
            while process.stdout.readline() not in ("1\n", ""):
                pass
            time.sleep(moment)
            os.killpg(process.pid, signal.SIGKILL)
    for n in range(4):
        f: Callable[[Tensor], Tensor] = eval(f"lambda x: (x * {n} + 1).sum()")
        assert compiler_lab.compile(f, options={"cache_dir": str(tmp_path)})(torch.ones(4)).item() == 4 * (n + 1)
