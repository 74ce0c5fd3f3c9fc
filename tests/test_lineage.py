"""Lineage is exact: each statement of a kernel maps to its own lines of the user's file, and deleting a line removes
exactly the statements that map to it and to nothing else."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_lab
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.trace import Trace

# The first and the last line stay: reading the arguments and storing the result are theirs.
CHAIN = """\
def f(x, y):
    z = x * y
    x = z * 2.5
    x = x.sin()
    x = x + y
    x = torch.relu(x)
    x = x - 0.125
    x = x.abs()
    x = torch.maximum(x, y)
    x = x.exp()
    out = x / 7.0 + z
    return out
"""

FAN = """\
def f(x, y):
    out = []
    out.append(x * 2.5)
    out.append(x.cos())
    out.append((x + y).sum(1))
    out.append(torch.sigmoid(y))
    out.append(x.amax(1))
    out.append(x.mul(y).tanh())
    out.append(y.sqrt())
    out.append(x.neg())
    return out
"""


def statements(folder: Path, text: str) -> tuple[list[tuple[str, frozenset[int]]], Any]:
    """(statement with its numbers taken out, the lines of the file it maps to) of every kernel statement, and the result."""
    path = folder / f"program_{abs(hash(text))}.py"
    path.write_text("import torch\n" + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = torch.rand(64, 96) + 0.5, torch.rand(64, 96) + 0.5
    trace = Trace("lineage")
    with torch.no_grad():
        got = compiler_lab.compile(module.f, fullgraph=True, observe=trace.append)(x, y)
        torch.testing.assert_close(got, module.f(x, y), rtol=1e-5, atol=1e-6)
    links = lineage(trace)
    kernels = trace.stage("generate", "forward")
    number = trace.artifacts().index(kernels)
    found = [
        (_shape_of(item.text), frozenset(line - 2 for file, line in links.lines[(number, item.id)] if file == str(path)))
        for item in kernels.items()
        if item.kind == "line" and not item.text.lstrip().startswith("#")  # includes and pragmas
    ]
    return [s for s in found if s[1]], got


def _shape_of(statement: str) -> str:
    """The statement without the numbers of names and arguments, so that two programs can be compared."""
    return re.sub(r"args\[\d+\]", "args[]", re.sub(r"\b([a-z_]+)\d+(_\d+)*\b", r"\1", statement.split("//")[0]).strip())


@pytest.mark.parametrize("text", [CHAIN, FAN], ids=["a chain", "a fan"])
def test_deleting_a_line_removes_exactly_its_statements(tmp_path: Path, text: str) -> None:
    whole, _ = statements(tmp_path, text)
    lines = text.splitlines()
    deletable = [i for i, line in enumerate(lines) if line.startswith("    x = x") or line.startswith("    x = torch") or "append" in line]
    mapped = {line for _, own in whole for line in own}
    assert set(deletable) <= mapped, f"lines without a statement: {sorted(set(deletable) - mapped)}"
    for i in deletable:
        expected = Counter(shape for shape, own in whole if own - {i})
        left, _ = statements(tmp_path, "\n".join(lines[:i] + lines[i + 1 :]) + "\n")
        found = Counter(shape for shape, _ in left)
        assert found == expected, f"deleting {lines[i].strip()!r}: gone {expected - found}, new {found - expected}"


def test_every_statement_between_braces_has_a_line(tmp_path: Path) -> None:
    """Only braces, includes, pragmas, loop headers, pointer casts and returns may come from nowhere."""
    path = tmp_path / "p.py"
    path.write_text("import torch\n" + CHAIN)
    statements(tmp_path, CHAIN)
    trace = Trace("lineage")
    x = torch.rand(64, 96) + 0.5
    compiler_lab.compile(lambda a, b: torch.relu(a + b) * 2, fullgraph=True, observe=trace.append)(x, x + 1)
    kernels = trace.stage("generate", "forward")
    loose = [item.text for item in kernels.items() if item.kind == "line" and "=" in item.text and not item.parents]
    exempt = re.compile(r"#|for \(|args\[|static_cast|extern|const (int64_t|float|double)\s*\*")
    assert [t for t in loose if not exempt.search(t)] == []
