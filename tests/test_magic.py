"""The magics: what a cell shows, what it records, and that the cell behaves as it would without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output

from compiler_lab.observe.trace import Trace

SETUP = "import torch, compiler_lab\nx = torch.randn(4, 8)\ndef f(x):\n    return torch.relu(x + 1) * 2\n"


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    made: Any = InteractiveShell.instance()
    made.run_cell("%load_ext compiler_lab")
    yield made
    InteractiveShell.clear_instance()


def run(shell: InteractiveShell, cell: str) -> tuple[Any, CapturedIO]:
    shell.run_cell(SETUP)
    with capture_output() as out:
        result = shell.run_cell(cell, store_history=True)
    return result, out


def page(out: CapturedIO) -> str:
    pages = [o.data["text/html"] for o in out.outputs if "text/html" in o.data]
    assert len(pages) == 1, out.stdout
    return pages[0]


def test_a_line_shows_every_stage_and_gives_the_value(shell: InteractiveShell) -> None:
    result, out = run(shell, "%compile_inspect f(x)")
    assert result.error_in_exec is None and result.result.shape == (4, 8)
    text = page(out)
    for step in ("capture", "joint", "partition", "lower", "schedule", "generate", "build"):
        assert f">{step}" in text
    assert "relu" in text and "extern" in text


def test_a_cell_that_compiles_nothing_has_its_last_call_compiled(shell: InteractiveShell) -> None:
    result, out = run(shell, "%%compile_inspect\ny = x * 3\nf(y)")
    assert result.result.equal(shell.user_ns["f"](shell.user_ns["y"]))
    assert "schedule" in page(out)


def test_a_cell_that_compiles_itself_is_recorded_as_it_is(shell: InteractiveShell) -> None:
    result, out = run(
        shell,
        "%%compile_inspect\nw = torch.randn(8, requires_grad=True)\ng = compiler_lab.compile(lambda x, w: (f(x) * w).sum())\ng(x, w).backward()\nlen('done')",
    )
    assert result.result == 4
    assert "generate, backward" in page(out)
    assert shell.user_ns["w"].grad is not None


def test_text_stage_html_and_json(shell: InteractiveShell, tmp_path: Path) -> None:
    _, out = run(shell, f"%compile_inspect --text --stage generate --html {tmp_path / 'a.html'} --json {tmp_path / 'a.zip'} f(x)")
    assert "== generate" in out.stdout and "== joint" not in out.stdout
    assert "<!doctype html>" in (tmp_path / "a.html").read_text()
    assert [s.name for s in Trace.load(tmp_path / "a.zip").steps][0] == "capture"


def test_an_error_in_the_cell_is_the_cells_and_what_was_recorded_is_shown(shell: InteractiveShell) -> None:
    result, out = run(shell, "%%compile_inspect\ng = compiler_lab.compile(f)\ng(x)\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "schedule" in page(out)


def test_a_cell_without_a_compile_says_so(shell: InteractiveShell) -> None:
    _, out = run(shell, "%%compile_inspect\nz = 3")
    assert "nothing was compiled" in out.stdout


def test_unknown_options_and_stages_name_the_known_ones(shell: InteractiveShell) -> None:
    result, _ = run(shell, "%compile_inspect --stage fuse f(x)")
    assert "steps: " in str(result.error_in_exec)
    result, _ = run(shell, "%compile_inspect --backend labb f(x)")
    assert "known backends" in str(result.error_in_exec)
    result, out = run(shell, "%compile_inspect --nonsense f(x)")
    assert result.error_in_exec is not None or "unrecognized" in out.stderr + out.stdout
    result, _ = run(shell, "%compile_inspect")
    assert "needs a call" in str(result.error_in_exec)


def test_the_magic_has_help(shell: InteractiveShell) -> None:
    magic = shell.find_magic("compile_inspect")
    assert magic is not None and "--backend" in (magic.__doc__ or "")


def test_a_function_from_another_cell_shows_its_own_source(shell: InteractiveShell) -> None:
    shell.run_cell("def h(x):\n    return x.cos() + 41")
    _, out = run(shell, "%compile_inspect h(x)")
    assert ("41" in page(out) and "notebook cell" in page(out)) or "ipython" in page(out)


def test_a_function_without_source_is_shown_all_the_same(shell: InteractiveShell) -> None:
    run(shell, "exec('def k(x): return x.sin() + 5')")
    result, out = run(shell, "exec('def k(x): return x.sin() + 5')\n")
    result, out = run(shell, "%compile_inspect k(x)")
    assert result.error_in_exec is None
    assert "Source not available" in page(out)
