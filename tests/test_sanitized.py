"""Kernels under the sanitizers of gcc: programs that are right pass, and each kind of fault is found. ``make sanitize`` runs the whole corpus."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from compiler_lab.codegen.artifact import Kernels
from compiler_lab.core.options import Options
from compiler_lab.runtime.build import build

from .conftest import require
from .graph_check import apart_in_memory, check
from .sanitized import environment
from .sanitized import run as run_of_corpus

RIGHT = """
def f(x, w, i, s):
    y = F.layer_norm(x[:, 1:] @ w, (5,)).cumsum(1)
    y[1:].t().mul_(2)
    return F.embedding(i, y), torch.cat([x.t(), w]).amax(0), (x * 1e30).long(), i << s, s >> 64, F.pad(x, (-1, 2)).to(torch.bfloat16).flip(1)

def inputs(call):
    row = torch.linspace(-2, 2, 35)
    return (row[:20].view(5, 4).requires_grad_(), row[20:].view(3, 5), torch.tensor([0, 4, 2, 1]), torch.tensor([-1, 3, 63, 64])), {}
"""


def right() -> None:
    assert (difference := check(RIGHT, "sanitized")) is None, difference
    run_of_corpus(0, "softmax_rows")


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[str], str], str]] = {
    "writes behind a buffer": (lambda x: x * 2, lambda line: line.replace("x0 < 9;", "x0 < 10;"), "heap-buffer-overflow"),
    "reads behind a buffer": (lambda x: x * 2, lambda line: re.sub(r"(in_\w+)\[x0\]", r"\1[x0 + 1]", line), "heap-buffer-overflow"),
    "reads before a buffer": (lambda x: x * 2, lambda line: re.sub(r"(in_\w+)\[x0\]", r"\1[x0 - 1]", line), "heap-buffer-overflow"),
    "shifts too far": (lambda x: x.int() & 3, lambda line: line.replace(" & ", " << 33 + "), "shift exponent"),
    "converts what does not fit": (lambda x: x * 1e30, lambda line: re.sub(r"= (t\d+ \*.*);", r"= (float)(int)(\1);", line), "outside the range"),
}


def wrong(name: str) -> Callable[[], object]:
    from .test_codegen import kernels_of

    f, change, _ = FAULTS[name]
    x = torch.ones(9)
    with apart_in_memory():
        kernels = changed(kernels_of(f, x), change)
    return lambda: build(kernels, Options(sanitize=True))(x)


def changed(kernels: Kernels, change: Callable[[str], str]) -> Kernels:
    lines = tuple(dataclasses.replace(n, text=change(n.text)) for n in kernels.lines)
    assert lines != kernels.lines
    return dataclasses.replace(kernels, lines=lines, source="".join(f"{n.text}\n" for n in lines))


def forked(name: str, run: Callable[[], object]) -> None:
    """Runs in a process that is forked off, torch and all: what it writes goes to the file ``name``, and its exit status to the end of it."""
    if (child := os.fork()) == 0:
        with open(name, "w") as file:
            os.dup2(file.fileno(), 2)
            run()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(name, "a") as file:
        print(f"exit status {status}", file=file)


def every(folder: str) -> None:
    for name in FAULTS:
        forked(f"{folder}/{name}", wrong(name))
    forked(f"{folder}/right", right)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the sanitizers said of each program, and how its process ended. One process is started with their runtime: it takes long to start."""
    require("g++")
    folder = tmp_path_factory.mktemp("said")
    code = f"from tests.test_sanitized import every\nevery({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], env=environment(symbolize=False), cwd=Path(__file__).parent.parent, check=True)
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_right_programs_pass(said: dict[str, str]) -> None:
    assert said["right"] == "exit status 0\n"


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_made_wrong_is_found(name: str, said: dict[str, str]) -> None:
    assert FAULTS[name][2] in said[name] and "exit status 1\n" in said[name], said[name][-3000:]
