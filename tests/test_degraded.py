"""What is missing or damaged degrades to text and one line that says what to do: packages, Graphviz, trace files; and pages without a kernel or a network.

A child process records one trace and forks for each case: there an import of what is missing fails, as it does where it is not installed, and PATH is empty.
The last part exports one notebook, whose cells show every row of ``VIEWS`` as it is, as a widget, and inside of ``Output`` and ``Tab``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from nbconvert import HTMLExporter
from playwright.sync_api import sync_playwright

import compiler_lab
from compiler_lab import cli
from compiler_lab.core.errors import InvalidIR
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import VIEWS

from .conftest import FLAGS, require
from .test_browser import Visit

# ---- what is not installed ----

CHILD = """\
import importlib.abc, io, json, os, sys, contextlib, tempfile
import torch, compiler_lab
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import VIEWS

class Missing(importlib.abc.MetaPathFinder):
    def __init__(self, names): self.names = names
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name.split('.')[0]!r}", name=name.split(".")[0])

def program(x, w):
    hidden = torch.nn.functional.gelu(x @ w)
    torch._dynamo.graph_break()
    return (torch.softmax(hidden + 1, -1) * hidden).mean()

trace = Trace("recorded")
made = compiler_lab.compile(program, observe=trace.append, options={"film": True})
made(torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)).backward()
view = lambda name: trace.view(name, **({"other": trace} if name == "compare" else {}))

def live():
    found = {}
    for name in VIEWS:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            shown = view(name).live()
        found[name] = [said.getvalue(), sorted(shown._repr_mimebundle_())]
    return found

def graph():
    return [view("graph").text(), view("graph").html()]

def figure():
    from compiler_lab_widgets import memory_view
    with contextlib.redirect_stdout(io.StringIO()) as said:
        made = memory_view.figure(view("memory").data)
    return [said.getvalue(), made is None]

def report():
    with tempfile.TemporaryDirectory() as folder:
        trace.to_html(f"{folder}/report.html")
        trace.save(f"{folder}/t.zip")
        return [{name: len(view(name).text()) for name in VIEWS}, os.path.getsize(f"{folder}/report.html"), len(Trace.load(f"{folder}/t.zip").steps)]

def export():
    from compiler_lab import cli
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
        open(f"{folder}/n.ipynb", "w").write("{}")
        sys.argv = ["compiler-lab", "export", f"{folder}/n.ipynb"]
        try:
            cli.main()
        except SystemExit as end:
            return [end.code, said.getvalue()]

for missing, question in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        for name in [n for n in sys.modules if n.split(".")[0] in missing]:
            del sys.modules[name]
        sys.meta_path.insert(0, Missing(missing))
        if "PATH" in missing:
            os.environ["PATH"] = ""
        with os.fdopen(writing, "w") as out:
            json.dump(globals()[question](), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        print(answer.read(), flush=True)
    os.waitpid(child, 0)
"""
LAB_PACKAGES = ["IPython", "ipykernel", "jupyterlab", "nbformat", "nbconvert", "anywidget", "ipywidgets", "matplotlib", "graphviz", "traitlets"]
CASES: dict[str, tuple[list[str], str]] = {
    "anywidget": (["anywidget"], "live"),
    "ipywidgets": (["ipywidgets", "anywidget"], "live"),
    "graphviz": (["PATH"], "graph"),
    "matplotlib": (["matplotlib"], "figure"),
    "nbconvert": (["nbconvert"], "export"),
    "everything": ([*LAB_PACKAGES, "PATH"], "report"),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What the child said in each case."""
    ran = subprocess.run([sys.executable, "-c", CHILD, json.dumps(list(CASES.values()))], capture_output=True, text=True, timeout=300)
    lines = ran.stdout.splitlines()
    assert len(lines) == len(CASES) and "Traceback" not in ran.stderr, ran.stderr[-3000:]
    return dict(zip(CASES, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("package", ["anywidget", "ipywidgets"])
def test_without_widgets_a_live_view_is_the_static_one_and_a_line_says_what_to_install(answers: dict[str, Any], package: str) -> None:
    assert set(answers[package]) == set(VIEWS)
    for said, kinds in answers[package].values():
        assert re.fullmatch(r"live views need \w+: pip install anywidget; this is the static one\n", said), said
        assert kinds == ["text/html", "text/plain"]


def test_without_graphviz_the_graph_is_laid_out_and_a_line_says_what_to_install(answers: dict[str, Any]) -> None:
    text, html = answers["graphviz"]
    assert "placeholder" in text, "the text needs no layout"
    assert html.count("Graphviz is not installed: install graphviz") == 1 and html.count("<rect") > 3


def test_without_matplotlib_a_figure_is_its_numbers_and_a_line_says_what_to_install(answers: dict[str, Any]) -> None:
    said, nothing = answers["matplotlib"]
    first, *rest = said.splitlines()
    assert first == "figures need matplotlib: pip install matplotlib; here are the numbers"
    assert nothing and any(re.search(r"peak with this plan [\d,]+ bytes", line) for line in rest)


def test_without_nbconvert_a_notebook_is_not_exported_and_a_line_says_what_to_install(answers: dict[str, Any]) -> None:
    status, said = answers["nbconvert"]
    assert status == 1 and "exporting needs nbconvert" in said and "pip install nbconvert" in said and "Traceback" not in said


def test_with_the_compiler_alone_there_are_reports_texts_and_traces(answers: dict[str, Any]) -> None:
    """Nothing of the extra ``lab``: no IPython, no Jupyter, no widgets, no figures, no Graphviz."""
    texts, size, steps = answers["everything"]
    assert set(texts) == set(VIEWS) and min(texts.values()) > 10 and size > 100_000 and steps > 10


# ---- trace files that are none ----


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace, path = Trace("saved"), tmp_path_factory.mktemp("saved") / "trace.zip"
    compiler_lab.compile(lambda x: torch.relu(x + 1) * 2, backend="eager", observe=trace.append)(torch.ones(3))
    trace.save(path)
    return path


def changed(saved: Path, **values: Any) -> bytes:
    return json.dumps({**Trace.load(saved).to_json(), **values}).encode()


BROKEN: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "truncated in the middle": (lambda p: p.read_bytes()[: p.stat().st_size // 2], "is not a trace"),
    "truncated at the end": (lambda p: p.read_bytes()[:-9], "is not a trace"),
    "empty": (lambda p: b"", "is not a trace"),
    "JSON cut short": (lambda p: changed(p)[:-40], "is not a trace"),
    "of a later version": (lambda p: changed(p, version=99), "has version 99"),
    "of no version": (lambda p: changed(p, version=None), "has version None"),
    "a notebook": (lambda p: nbformat.writes(nbformat.v4.new_notebook()).encode(), "not a trace of compiler_lab"),
    "a picture": (lambda p: b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is not a trace"),
    "a list": (lambda p: b"[1, 2]", "is not a trace"),
    "a program": (lambda p: b"print('hello')\n", "is not a trace"),
    "steps of the wrong kind": (lambda p: changed(p, steps=[3]), "is damaged"),
    "artifacts of the wrong kind": (lambda p: changed(p, artifacts={"a": 1}), "is damaged"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_trace_is_refused_in_words(
    saved: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, says = BROKEN[kind]
    path = tmp_path / "trace.zip"
    path.write_bytes(make(saved))
    with pytest.raises(InvalidIR, match=says) as raised:
        Trace.load(path)
    assert raised.value.hint, "what to do"
    monkeypatch.setattr(sys, "argv", ["compiler-lab", "show", str(path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    assert end.value.code == 1 and says in said.err and said.out == "" and "Traceback" not in said.err


def test_a_trace_cut_anywhere_is_refused_or_whole(saved: Path, tmp_path: Path) -> None:
    whole, path = saved.read_bytes(), tmp_path / "trace.zip"
    for length in range(0, len(whole), max(len(whole) // 60, 1)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidIR):
            Trace.load(path)


# ---- pages without a kernel ----

NOTEBOOK = {
    "record": """\
import ipywidgets, torch, compiler_lab
%load_ext compiler_lab
def program(x, w):
    hidden = torch.nn.functional.gelu(x @ w)
    torch._dynamo.graph_break()
    return (torch.softmax(hidden + 1, -1) * hidden).mean()

trace = compiler_lab.Trace("recorded")
made = compiler_lab.compile(program, observe=trace.append, options={"film": True})
made(torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)).backward()
view = lambda name: trace.view(name, **({"other": trace} if name == "compare" else {}))""",
    "magic": "%%compile_inspect --no-progress\ncompiler_lab.compile(lambda x: (x.sin() + 41).sum())(torch.ones(3, requires_grad=True)).backward()",
    **{f"static-{name}": f'view("{name}")' for name in VIEWS},
    **{f"live-{name}": f'view("{name}").live()' for name in VIEWS},
    "caught": "caught = ipywidgets.Output()\nwith caught:\n    display(view('guards').live())\n    print('printed once')\ncaught",
    "tabs": """\
first, second = ipywidgets.Output(), ipywidgets.Output()
with first:
    display(view("film"))
with second:
    display(view("breaks").live())
ipywidgets.Tab([first, second], titles=["The film <b>", "The breaks"])""",
    "box": "ipywidgets.VBox([ipywidgets.HBox([view('memory').live()]), ipywidgets.IntSlider()])",
    "slider": "ipywidgets.IntSlider(description='a widget of another')",
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook as ``nbconvert --execute`` leaves it, in a process of its own: with the state of its widgets."""
    notebook = nbformat.v4.new_notebook()
    for ident, source in NOTEBOOK.items():
        cell = nbformat.v4.new_code_cell(source)
        cell.id = ident
        notebook.cells.append(cell)
    path = tmp_path_factory.mktemp("executed") / "views.ipynb"
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "--ExecutePreprocessor.timeout=120", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    assert ran.returncode == 0, ran.stderr[-3000:]
    return path


def test_each_output_carries_its_text_and_its_html(executed: Path) -> None:
    cells = {c.id: c for c in nbformat.read(executed, as_version=4).cells}
    for ident in NOTEBOOK:
        for output in cells[ident].outputs:
            data = output.get("data", {})
            if ident.startswith(("static-", "live-")) or (ident == "magic" and "text/html" in data):
                assert "<div" in data["text/html"] and len(data["text/plain"].split()) > 1, ident
                assert ("application/vnd.jupyter.widget-view+json" in data) == ident.startswith("live-")
                assert "Box(children" not in data["text/plain"] and "Live" not in data["text/plain"], "a widget's repr says nothing"
    assert any("text/html" in o.get("data", {}) for o in cells["magic"].outputs)


@pytest.fixture(scope="module")
def pages(executed: Path) -> dict[str, Path]:
    """Three ways to a page: the project's command, nbconvert with the setting, and nbconvert as it is."""
    folder = executed.parent
    cli.app(["export", str(executed), "--html", str(folder / "exported.html")], standalone_mode=False)
    nothing: dict[str, Any] = {f"{name}_url": "data:,//" for name in ("require_js", "mathjax", "mermaid_js", "mermaid_layout_elk_js", "jupyter_widgets_base")}
    for name, preprocessors in (("setting", ["compiler_lab.export.StaticViews"]), ("plain", list[str]())):
        page, _ = HTMLExporter(preprocessors=preprocessors, **nothing).from_filename(str(executed))
        (folder / f"{name}.html").write_text(page)
    return {name: folder / f"{name}.html" for name in ("exported", "setting", "plain")}


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    path = require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser.new_context(reduced_motion="reduce")
        browser.close()


@pytest.mark.browser
@pytest.mark.parametrize("way", ["exported", "setting"])
def test_every_view_static_or_live_is_on_the_page_with_its_pictures(pages: dict[str, Path], context: Any, way: str) -> None:
    """In a browser without a network: each view of the notebook once, alive, with as many pictures as its own HTML has."""
    visit = Visit(context, pages[way])
    script = "found => found.map(e => [e.dataset.view, e.classList.contains('clab-on'), e.offsetHeight > 40, e.querySelectorAll('svg').length])"
    shown = visit.page.locator(".clab[data-view]").evaluate_all(script)
    inside = ["guards", "film", "breaks", "memory"]  # in Output, in the two tabs, in boxes
    assert sorted(name for name, *_ in shown) == sorted(["pipeline", *VIEWS, *VIEWS, *inside])
    assert all(on and seen for _, on, seen, _ in shown)
    pictures = {name: {n for shape, _, _, n in shown if shape == name} for name in ("graph", "memory", "fusion")}
    assert all(len(counts) == 1 and counts.pop() > 0 for counts in pictures.values()), "live as static"
    text = visit.page.locator("body").inner_text()
    assert text.count("printed once") == 2, "in the cell's source, and once in its output"
    assert "The film <b>" in text and "The breaks" in text, "tabs keep their titles, as text"
    assert "Loading widget" not in text and "HBox(children" not in text
    assert visit.asked == [] and visit.said == []
    visit.page.close()


@pytest.mark.browser
def test_nbconvert_as_it_is_shows_what_is_static(pages: dict[str, Path], context: Any) -> None:
    """The state of widgets is in the notebook: nbconvert prefers it to the HTML beside it and would draw it with a script from the network."""
    visit = Visit(context, pages["plain"])
    names = visit.page.locator(".clab.clab-on").evaluate_all("found => found.map(e => e.dataset.view)")
    assert sorted(names) == sorted(["pipeline", *VIEWS])
    steps = visit.page.locator(".clab").first.locator(".clab-nav").inner_text()
    assert all(step in steps for step in ("capture", "joint", "partition", "lower", "schedule", "generate"))
    visit.page.close()


def test_widgets_of_others_stay(executed: Path) -> None:
    from compiler_lab.export import static

    before = nbformat.read(executed, as_version=4)
    text = nbformat.writes(before)
    after = static(before)
    assert nbformat.writes(before) == text, "the notebook itself is left alone"
    kept = {c.id for c in after.cells if any("application/vnd.jupyter.widget-view+json" in o.get("data", {}) for o in c.outputs)}
    assert kept == {"slider"} and "widgets" in after.metadata
