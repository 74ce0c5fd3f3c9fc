"""The magics: what a cell shows, what it records, and that the cell behaves as it would without them."""

from __future__ import annotations

import re
import subprocess
import sys
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
        assert f'aria-level="3">{step}' in text
    assert "relu" in text and "extern" in text


def test_a_cell_that_compiles_nothing_has_its_last_call_compiled(shell: InteractiveShell) -> None:
    result, out = run(shell, "%%compile_inspect\ny = x * 3\nf(y)")
    assert result.result.equal(shell.user_ns["f"](shell.user_ns["y"]))
    assert "schedule" in page(out)


def test_a_trace_has_the_number_of_its_cell(shell: InteractiveShell) -> None:
    result, out = run(shell, "%%compile_inspect --stage capture\nf(x)")
    assert f"cell [{result.execution_count}]" in page(out)


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
    assert Trace.load(tmp_path / "a.zip").steps[0].name == "capture"


def test_a_trace_can_be_kept_under_a_name(shell: InteractiveShell) -> None:
    run(shell, "%%compile_inspect --stage capture --trace kept\nf(x)")
    assert isinstance(shell.user_ns["kept"], Trace) and len(shell.user_ns["kept"].steps) > 5
    result, _ = run(shell, "%compile_inspect --trace 1x f(x)")
    assert "not a name" in str(result.error_in_exec)


def test_an_error_in_the_cell_is_the_cells_and_what_was_recorded_is_shown(shell: InteractiveShell) -> None:
    result, out = run(shell, "%%compile_inspect\ng = compiler_lab.compile(f)\ng(x)\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "schedule" in page(out)


def test_the_traceback_begins_in_the_cell(shell: InteractiveShell) -> None:
    _, out = run(shell, "%%compile_inspect\ndef broken(n):\n    return 1 / n\nbroken(0)")
    shown = re.sub(r"\x1b\[[\d;]*m", "", out.stdout)
    assert "ZeroDivisionError" in shown and "return 1 / n" in shown
    assert "magic.py" not in shown and "run_cell_magic" not in shown


def test_a_function_compiled_in_an_earlier_cell_is_recorded_in_a_loop(shell: InteractiveShell) -> None:
    run(shell, "w = torch.randn(8, requires_grad=True)\nstep = compiler_lab.compile(lambda x, w: (f(x) * w).sum())\nopt = torch.optim.SGD([w], 0.1)")
    shell.run_cell("losses = []")
    train = "for i in range(3):\n    opt.zero_grad()\n    loss = step(x, w)\n    loss.backward()\n    opt.step()\n    losses.append(loss.item())\n"
    cell = f"%%compile_inspect\n{train}"
    with capture_output() as out:
        result = shell.run_cell(cell + "len(losses)", store_history=True)
    assert result.result == 3
    assert page(out).count('role="heading" aria-level="3">build, backward') == 1, "one compile, however many steps"
    with capture_output() as out:
        shell.run_cell(cell, store_history=True)
    assert "compiler_lab.reset()" in out.stdout, "nothing was compiled the second time, and it says what to do"


def test_a_call_of_something_compiled_earlier_is_not_compiled_again(shell: InteractiveShell) -> None:
    run(shell, "g = compiler_lab.compile(f)\ndef caller(g, x):\n    return g(x)")
    with capture_output() as out:
        result: Any = shell.run_cell("%%compile_inspect --stage capture\ncaller(g, x)")
    assert result.result.equal(shell.user_ns["f"](shell.user_ns["x"]))
    assert page(out).count('class="clab-step"') == 1


def test_out_and_underscore_are_as_without_the_magic(shell: InteractiveShell) -> None:
    run(shell, "%%compile_inspect --stage capture\nf(x)")
    number = shell.execution_count - 1
    assert shell.user_ns["_"] is shell.user_ns["Out"][number]
    assert shell.user_ns["_"].equal(shell.user_ns["f"](shell.user_ns["x"]))


@pytest.mark.parametrize("cell", ["%%compile_inspect --stage capture\nf(x);", "%compile_inspect --stage capture f(x);"])
def test_a_semicolon_silences_the_value_and_not_the_view(shell: InteractiveShell, cell: str) -> None:
    result, out = run(shell, cell)
    assert result.result is None and "tensor(" not in out.stdout
    assert "clab-step" in page(out)


def test_the_expression_reaches_python_as_it_was_written(shell: InteractiveShell) -> None:
    shell.run_cell("def keep(x, scale, **names):\n    return x * scale, names")
    result, _ = run(shell, "%compile_inspect --stage capture keep(x, -1, a=  'two  spaces', b={'k': \"it's\"})")
    assert result.error_in_exec is None
    value, names = result.result
    assert value.equal(-shell.user_ns["x"]) and names == {"a": "two  spaces", "b": {"k": "it's"}}


def test_names_bound_in_the_cell_stay_and_nothing_else(shell: InteractiveShell) -> None:
    before = set(shell.user_ns)
    run(shell, "%%compile_inspect --stage capture\nbound_here = x + 1\nf(bound_here)")
    assert {n for n in set(shell.user_ns) - before if not n.startswith("_")} == {"bound_here"}
    assert "__compile_inspect_function__" not in shell.user_ns


def test_print_and_classes_are_called_as_they_are(shell: InteractiveShell) -> None:
    _, out = run(shell, "%%compile_inspect\nprint('hello')")
    assert "hello" in out.stdout and "nothing was compiled" in out.stdout


def test_options_complete(shell: InteractiveShell) -> None:
    complete = lambda text, line: set(shell.complete(text, line, len(line))[1])
    assert {"--backend", "--stage", "--html"} <= complete("--", "%compile_inspect --")
    assert {"--backend", "--stage", "--html"} <= complete("--", "%%compile_inspect --")
    assert "plan-memory" in complete("pl", "%compile_inspect --stage pl")
    assert {"aot_eager", "lab"} <= complete("", "%compile_inspect --backend ")
    assert {"lab", "torch", "both"} <= complete("", "%compile_inspect --stack ")
    assert "pipeline" in complete("pi", "%%compile_inspect --view pi")


def test_the_steps_a_trace_has_are_those_that_are_offered(shell: InteractiveShell, tmp_path: Path) -> None:
    from compiler_lab.pipeline import STEPS

    run(shell, f"%compile_inspect --text --json {tmp_path / 't'} (lambda w: (f(x) * w).sum())(torch.ones(8, requires_grad=True))")
    names = [s.name for s in Trace.load(tmp_path / "t").steps]
    assert tuple(dict.fromkeys(n for n in names)) == STEPS


def test_a_class_that_is_written_again_shows_its_own_code(shell: InteractiveShell) -> None:
    define = "class M(torch.nn.Module):\n    def forward(self, x):\n        return {}\nm{} = M()"
    shell.run_cell(define.format("x.sin() + 11", 1))
    shell.run_cell(define.format("x.cos() + 22", 2))
    first, second = (page(run(shell, f"%compile_inspect --stage capture m{n}(x)")[1]) for n in (1, 2))
    strip = lambda text: re.sub(r"<[^>]*>", "", text)
    assert "x.sin() + 11" in strip(first) and "x.cos() + 22" not in strip(first)
    assert "x.cos() + 22" in strip(second) and "x.sin() + 11" not in strip(second)


def test_a_plain_terminal_without_widgets_prints_text(tmp_path: Path) -> None:
    program = tmp_path / "session.ipy"
    program.write_text(
        "import sys\nsys.modules['ipywidgets'] = None\nimport torch\n%load_ext compiler_lab\ndef f(x):\n    return x.sin() + 1\n"
        "y = %compile_inspect --backend eager f(torch.ones(3))\nprint('shape', tuple(y.shape))\n"
    )
    ran = subprocess.run([sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(program)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "== capture, graph 0" in ran.stdout and "sin" in ran.stdout and "shape (3,)" in ran.stdout
    assert "<div" not in ran.stdout and "Traceback" not in ran.stdout + ran.stderr


def test_a_cell_without_a_compile_says_so(shell: InteractiveShell) -> None:
    _, out = run(shell, "%%compile_inspect\nz = 3")
    assert "nothing was compiled" in out.stdout


def test_unknown_options_and_stages_name_the_known_ones(shell: InteractiveShell) -> None:
    result, _ = run(shell, "%compile_inspect --stage fuse f(x)")
    assert "steps: capture, joint" in str(result.error_in_exec)
    result, _ = run(shell, "%%compile_inspect f(x)\nf(x)")
    assert "no option" in str(result.error_in_exec)
    result, _ = run(shell, "%compile_inspect --backend labb f(x)")
    assert "known backends" in str(result.error_in_exec)
    result, out = run(shell, "%compile_inspect --nonsense f(x)")
    assert "unrecognized arguments: --nonsense" in str(result.error_in_exec) + out.stderr
    result, _ = run(shell, "%compile_inspect")
    assert "needs a call" in str(result.error_in_exec)


def test_the_magic_has_help(shell: InteractiveShell) -> None:
    magic = shell.find_magic("compile_inspect")
    assert magic is not None and "--backend" in (magic.__doc__ or "")


def test_a_function_from_another_cell_shows_its_own_source(shell: InteractiveShell) -> None:
    shell.run_cell("def h(x):\n    return x.cos() + 41")
    _, out = run(shell, "%compile_inspect h(x)")
    assert "41" in page(out) and "notebook cell" in page(out)


def test_a_function_without_source_is_shown_all_the_same(shell: InteractiveShell) -> None:
    shell.run_cell("exec('def k(x): return x.sin() + 5')")
    result, out = run(shell, "%compile_inspect k(x)")
    assert result.error_in_exec is None
    assert "Source not available" in page(out)


def test_both_stacks_are_shown_beside_each_other_and_kept(shell: InteractiveShell, tmp_path: Path) -> None:
    result, out = run(shell, f"%compile_inspect --stack both --backend aot_eager --no-progress --json {tmp_path / 'a.zip'} --trace pair f(x)")
    assert result.error_in_exec is None and result.result.equal(shell.user_ns["f"](shell.user_ns["x"]))
    assert 'data-view="compare"' in page(out)
    pair = shell.user_ns["pair"]
    assert (pair.lab.title, len(pair.torch.steps) > 0) == ("f(x)", True)
    assert Trace.load(tmp_path / "a.torch.zip").steps[0].name == pair.torch.steps[0].name


def test_a_cell_that_calls_torch_compile_is_recorded_as_it_is(shell: InteractiveShell) -> None:
    _, out = run(shell, "%%compile_inspect --stack torch --stage capture\ntorch.compile(f, backend='eager')(x)")
    assert "relu" in page(out)


def test_views_are_chosen_compared_and_live(shell: InteractiveShell) -> None:
    run(shell, "%compile_inspect --backend eager --trace first f(x)")
    _, out = run(shell, "%compile_inspect --backend eager --compare first f(x)")
    assert 'data-view="compare"' in page(out)
    _, out = run(shell, "%compile_inspect --backend eager --view pipeline --live f(x)")
    (data,) = [o.data for o in out.outputs if "text/html" in o.data]
    assert "application/vnd.jupyter.widget-view+json" in data and 'data-view="pipeline"' in data["text/html"], "the static form stands beside the widget"
    assert "relu" in data["text/plain"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--dynamic --static", "say the opposite"),
        ("--stack tinygrad", "stacks: lab, torch, both"),
        ("--view nothing", "views: pipeline"),
        ("--view compare", "needs --stack both"),
        ("--compare nothing_there", "neither a trace nor a file"),
        ("--device nowhere", "--device nowhere"),
        ("--live --text", "--live shows widgets"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(shell: InteractiveShell, options: str, says: str) -> None:
    result, out = run(shell, f"%compile_inspect {options} f(x)")
    assert type(result.error_in_exec).__name__ == "UsageError" and says in str(result.error_in_exec)
    assert not out.outputs


def test_sizes_are_symbolic_when_asked(shell: InteractiveShell) -> None:
    run(shell, "%compile_inspect --backend eager --dynamic --trace moving f(x)")
    run(shell, "%compile_inspect --backend eager --static --trace fixed f(x)")
    texts = [shell.user_ns[name].stage("capture").text() for name in ("moving", "fixed")]
    assert "[4, 8]" in texts[1] and "[4, 8]" not in texts[0]
