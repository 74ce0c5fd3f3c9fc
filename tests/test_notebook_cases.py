"""Cases of notebooks and inspectors that are no call of ``compile``: each as a test here, or where it is named.

Rendering. A page without a network, an ``Output``, a ``Tab``: ``test_degraded.py``, its last part. No ipywidgets, a terminal: there, its first part, and
``test_magic.py::test_a_plain_terminal_without_widgets_prints_text``. A function of an earlier cell, a function without source, a class that is written
again: ``test_magic.py``. A live view shown once in JupyterLab: ``test_jupyterlab_browser.py``. Here: every view calls a cell a cell; a source that is
written again.
Inspectors. Here: what is shown of code with jumps, cells and blocks; that an observer changes nothing, whatever happens in the program; observers in
observers; a dtype that is an argument.
Left out, because there is no such tool yet: decompiled code (the bytecode is shown as a disassembly), bisecting, minifying, repro scripts.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import linecache
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_lab
from compiler_lab import session
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.provenance import shown_name
from compiler_lab.frames.hook import frame_hook
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import VIEWS

from .conftest import same, through_the_hook

# ---- rendering ----


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/tmp/ipykernel_4021/3585424257.py", "notebook cell"),
        ("C:\\Temp\\ipykernel_4021\\3585424257.py", "notebook cell"),
        ("<ipython-input-3-0a1b2c>", "notebook cell"),
        ("/tmp/ipython-input-1-99.py", "notebook cell"),
        ("/srv/ipykernel/model.py", "model.py"),
        ("D:\\work\\model.py", "model.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_cell_is_called_a_cell(file: str, name: str) -> None:
    assert shown_name(file) == name


@pytest.fixture(scope="module")
def cell() -> Trace:
    """A program of a notebook's cell, with a break, a recompile and a backward pass."""
    file = "/tmp/ipykernel_4021/3585424257.py"
    lines = [
        "def program(x, w):\n",
        "    hidden = torch.nn.functional.gelu(x @ w)\n",
        "    torch._dynamo.graph_break()\n",
        "    return (torch.softmax(hidden, -1) * hidden).sum()\n",
    ]
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile("".join(lines), file, "exec"), scope)
    trace = Trace("a cell")
    made = compiler_lab.compile(scope["program"], observe=trace.append, options={"film": True})
    for rows in (4, 6):
        made(torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True)).backward()
    return trace


@pytest.mark.parametrize("name", list(VIEWS))
def test_no_view_shows_the_number_that_a_cells_file_has(cell: Trace, name: str) -> None:
    try:
        view = cell.view(name, **({"other": cell} if name == "compare" else {}))
    except Unsupported as error:
        pytest.skip(f"{name} does not apply: {error.what}")
    shown = view.text() + re.sub(r"<script.*?</script>", "", view.html(), flags=re.DOTALL)
    assert "3585424257" not in shown and "ipykernel" not in shown


def test_a_source_that_is_written_again_is_shown_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved with the trace: what another process, or a later cell, does to the file is not seen."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "written_by_a_cell.py"
    file.write_text("import torch\n\ndef h(x):\n    return x.sin() + 11\n")
    trace = Trace("h")
    compiler_lab.compile(importlib.import_module("written_by_a_cell").h, observe=trace.append)(torch.ones(3))
    trace.save(tmp_path / "h.zip")
    file.write_text("import torch\n# another line\ndef h(x):\n    return x.cos() + 22\n")
    linecache.checkcache(str(file))
    plain = lambda text: re.sub(r"<[^>]*>", "", text)
    shown = plain(Trace.load(tmp_path / "h.zip").view().html())
    assert "x.sin() + 11" in shown and "x.cos() + 22" not in shown
    sys.modules.pop("written_by_a_cell")


def test_a_module_that_is_edited_before_the_compile_shows_no_line_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_by_a_cell.py"
    file.write_text("import torch\n\ndef h(x):\n    return x.sin() + 11\n")
    module = importlib.import_module("edited_by_a_cell")
    shown = {}
    for name, text in (("as it is", ""), ("a line above", "\n"), ("another result", "import torch\n\ndef h(x):\n    return x.sin() + 22\n")):
        file.write_text(text if "def" in text else text + file.read_text())
        linecache.checkcache(str(file))
        trace = Trace(name)
        compiler_lab.compile(module.h, observe=trace.append)(torch.ones(3))
        shown[name] = re.sub(r"<[^>]*>", "", trace.view().html())
    assert "return x.sin() + 11" in shown["as it is"]
    for name in ("a line above", "another result"):
        assert "return x.sin() +" not in shown[name] and "Source not available" in shown[name]
    sys.modules.pop("edited_by_a_cell")


# ---- what is shown of code with jumps, cells and blocks ----


class Noted(contextlib.AbstractContextManager["Noted"]):
    left = 0

    def __exit__(self, *args: object) -> None:
        Noted.left += 1


def twice_branching(a: Tensor, b: Tensor) -> Tensor:
    x = a / (a.abs() + 1)
    if b.sum() < 0:
        b = b * -1
    if x.sum() > 0:
        x = x + 1
    return x * b


def looping(a: Tensor, b: Tensor) -> Tensor:
    while a.sum() < 20:
        a = a * 2 + b
    return a - b


def trying(a: Tensor, b: Tensor) -> Tensor:
    try:
        if a.sum() > 0:
            raise ValueError("on purpose")
        return a
    except ValueError:
        b = b + 1
    finally:
        a = a.sin()
    return a + b


def within(a: Tensor, b: Tensor) -> Tensor:
    with Noted():
        a = a + 1
        print("inside")
        a = a * b
    return a.cos()


def closing(a: Tensor, b: Tensor) -> Tensor:
    scale = a.abs().sum()
    inner = lambda t: t * scale + a
    print("between")
    parts = [inner(t) + b.sum() for t in (a, b)]
    scale = scale + 1
    return parts[0] + parts[1] * scale + inner(b)


JUMPING: dict[str, tuple[Callable[..., Tensor], str]] = {
    "two branches": (twice_branching, "POP_JUMP_FORWARD_IF_FALSE|POP_JUMP_IF_FALSE"),
    "a loop": (looping, "JUMP_BACKWARD"),
    "try and finally": (trying, "PUSH_EXC_INFO"),
    "with": (within, "BEFORE_WITH"),
    "cells": (closing, r"(STORE|LOAD)_DEREF .*\(scale\)"),
}


@pytest.mark.parametrize("name", JUMPING)
def test_code_with_jumps_cells_and_blocks_is_shown_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The bytecode with its targets and names; each part of a function that broke has its own; and the results are Python's."""
    program, holds = JUMPING[name]
    args = lambda: (torch.arange(3.0) + 1, torch.arange(3.0) - 2)
    want = program(*args())
    said = capsys.readouterr().out
    trace = Trace(name)
    compiled = compiler_lab.compile(program, backend="eager", observe=trace.append)
    same(compiled(*args()), want)
    assert capsys.readouterr().out == said
    captures = [s.after.text() for s in trace.steps if s.name == "capture"]
    assert captures and all("bytecode of " in text and re.search(r"\d+ RESUME", text) for text in captures), captures
    assert re.search(holds, captures[0])
    loaded = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert [s.after.text() for s in loaded.steps if s.name == "capture"] == captures


# ---- an observer changes nothing ----

STATE: dict[str, Any] = {"calls": 0}


def printing(x: Tensor) -> Tensor:
    print("rows", x.shape[0])
    return x.relu() + 1


def counting(x: Tensor) -> Tensor:
    STATE["calls"] += 1
    return x * STATE["calls"]


def writing(x: Tensor) -> Tensor:
    x.add_(1)
    return x.t()


def drawing(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def raising(x: Tensor) -> Tensor:
    y = x + 1
    if y.sum() > -1e9:
        raise ArithmeticError("the program's own")
    return y


OBSERVED: dict[str, Callable[[Tensor], Tensor]] = {f.__name__: f for f in (printing, counting, writing, drawing, raising)}


def outcome(program: Callable[[Tensor], Tensor], observe: Any) -> tuple[Any, ...]:
    """All that a caller can see of three calls: results, errors, what was written into the argument, printed text, counts."""
    session.reset()
    STATE["calls"] = 0
    torch.manual_seed(3)
    compiled = compiler_lab.compile(program, observe=observe)
    seen: list[Any] = []
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for rows in (2, 2, 5):
            x = torch.arange(rows * 3.0).view(rows, 3)
            try:
                seen.append(compiled(x))
            except ArithmeticError as error:
                seen.append((type(error).__name__, str(error)))
            seen.append(x)
    stats = session.stats()
    return seen, said.getvalue(), stats["graphs"], stats["breaks"], STATE["calls"], torch.random.get_rng_state()


@pytest.mark.parametrize("name", OBSERVED)
@pytest.mark.parametrize("way", ["a trace", "nested recordings"])
def test_a_program_does_the_same_when_it_is_watched(name: str, way: str, unhooked: None) -> None:
    plain = outcome(OBSERVED[name], None)
    trace, outer, inner = Trace(name), Trace("outer"), Trace("inner")
    if way == "a trace":
        watched = outcome(OBSERVED[name], trace.append)
        assert trace.steps
    else:
        with session.recording(outer.append), session.recording(inner.append):
            watched = outcome(OBSERVED[name], None)
        assert inner.steps and not outer.steps, "the inner one has it"
    same(list(watched), list(plain))
    assert not through_the_hook(), "the frame hook is off again, after errors too"


def test_an_observer_that_raises_leaves_no_hook(unhooked: None) -> None:
    def wrong(step: Any) -> None:
        raise ZeroDivisionError("the observer's own")

    with pytest.raises(ZeroDivisionError):
        compiler_lab.compile(printing, backend="eager", observe=wrong)(torch.ones(2, 3))
    assert not through_the_hook() and frame_hook() is not None
    same(compiler_lab.compile(drawing, backend="eager")(torch.ones(2)).shape, torch.Size([2]))


# ---- a dtype that is an argument ----


def test_each_dtype_is_shown_with_its_own_graph() -> None:
    trace = Trace("dtypes")
    compiled = compiler_lab.compile(lambda x, dtype: x.to(dtype) / 2, backend="eager", observe=trace.append)
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.float32)
    for dtype in dtypes:
        same(compiled(torch.arange(3), dtype), torch.arange(3).to(dtype) / 2)
    texts = [s.after.text() for s in trace.steps if s.name == "capture"]
    assert len(texts) == 4, "the first is found again"
    for text, shown in zip(texts, ("f32[3]", "f64[3]", "bf16[3]", "i64[3]"), strict=True):
        assert re.search(rf"^to\w*: {re.escape(shown)} = ", text, re.MULTILINE), text
