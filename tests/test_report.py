"""The report has every view that applies; a trace file that is not whole, or not ours, or not of this version, is refused with a reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler_lab.core.errors import InvalidIR
from compiler_lab.observe.page import report, views_of
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import VIEWS
from compiler_lab.scripts import inspect_script

from .test_every_view import ATTACK, Page, demo, recorded
from .test_trace import example


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded("demo", demo)


def test_the_report_has_every_view_that_applies(trace: Trace, tmp_path: Path) -> None:
    found, missing = views_of(trace, trace)
    assert len(found) + len(missing) == len(VIEWS) and "compare" in found
    trace.to_html(tmp_path / "x.html", trace)
    text = (tmp_path / "x.html").read_text()
    page = Page(re.sub("<!doctype html>", "", text))
    assert len(page.ids) == len(set(page.ids)), "ids of different views are different"
    for name, view in found.items():
        assert any(i.endswith(f"-{name}") for i in page.ids) and view.html() in text
    targets = re.findall(r'<li><a href="#([^"]+)" id', text)
    assert len(targets) == len(found) and set(targets) <= set(page.ids), "the links lead to sections"
    assert VIEWS["compare"].title not in report(trace).split('<div class="clab-parts">')[0].split("Not in this report")[0], (
        "what needs another trace is named at the end"
    )


def test_the_report_of_a_loaded_trace_is_the_same(trace: Trace) -> None:
    assert report(Trace.from_json(json.loads(json.dumps(trace.to_json())))) == report(trace)


def test_names_in_the_report_are_escaped() -> None:
    trace = example(ATTACK)
    trace.title = ATTACK
    page = Page(re.sub("<!doctype html>", "", report(trace)))
    assert ATTACK in "".join(page.words)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "t.zip"
    example().save(path)
    return path.read_bytes()


def test_a_truncated_file_is_refused_wherever_it_ends(whole: bytes, tmp_path: Path) -> None:
    for end in range(0, len(whole) - 1, 7):
        (tmp_path / "t.zip").write_bytes(whole[:end])
        with pytest.raises(InvalidIR, match=r"t\.zip is not a trace"):
            Trace.load(tmp_path / "t.zip")


def test_a_wrong_byte_is_refused_or_leaves_the_trace_as_it_was(whole: bytes, tmp_path: Path) -> None:
    refused, want, places = 0, json.dumps(example().to_json()), range(0, len(whole), 3)
    for at in places:
        (tmp_path / "t.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert json.dumps(Trace.load(tmp_path / "t.zip").to_json()) == want, at
        except InvalidIR:
            refused += 1
    assert refused > len(places) // 2


def test_another_version_and_foreign_archives_say_so(tmp_path: Path) -> None:
    data = example().to_json()
    for version in (0, 2, "1", None):
        (tmp_path / "t").write_text(json.dumps({**data, "version": version}))
        with pytest.raises(InvalidIR, match=r"version .*, this is version 1"):
            Trace.load(tmp_path / "t")
    with zipfile.ZipFile(tmp_path / "foreign.zip", "w") as archive:
        archive.writestr("trace.json", '{"traceEvents": []}')
    with pytest.raises(InvalidIR, match="not a trace of compiler_lab"):
        Trace.load(tmp_path / "foreign.zip")
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr("trace.json", "[" * 200_000)
    with pytest.raises(InvalidIR):
        Trace.load(tmp_path / "deep.zip")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of the saved form whose kind is fixed; facts are the stage's own."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key != "facts":
            yield (*path, key)
            yield from places(inner, (*path, key))


def test_a_field_of_another_kind_is_refused(tmp_path: Path) -> None:
    text = json.dumps(example().to_json())
    free = {"before", "start"}  # may be none
    for path in places(json.loads(text)):
        data = json.loads(text)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        if path[-1] in free:
            continue
        holder[path[-1]] = None
        (tmp_path / "t").write_text(json.dumps(data))
        with pytest.raises(InvalidIR):
            Trace.load(tmp_path / "t")
            pytest.fail(f"{path} may be none")


SCRIPT = """import sys, torch, compiler_lab
from beside import double
print(__name__, sys.argv[1:])
@compiler_lab.compile(backend="eager")
def f(x):
    return double(x).sin()
f(torch.ones(3))
{end}
"""


@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no more')", 1, "no more\n"),
        ("f(1 / 0)", 1, "ZeroDivisionError: division by zero\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_a_script_is_recorded_and_behaves_as_it_does_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str], end: str, status: int, says: str) -> None:
    (tmp_path / "beside.py").write_text("def double(x):\n    return x + x\n")
    (tmp_path / "s.py").write_text(SCRIPT.format(end=end))
    before = sys.argv, list(sys.path)
    assert inspect_script(tmp_path / "s.py", ["-a", "b"], tmp_path / "r.html", tmp_path / "r.zip") == status
    sys.modules.pop("beside")
    assert (sys.argv, sys.path) == before
    out, err = capfd.readouterr()
    assert out == "__main__ ['-a', 'b']\n"
    assert says in err and "runpy" not in err and "scripts.py" not in err and ("Traceback" in err) == (status in (130,) or "Error" in says)
    assert [s.name for s in Trace.load(tmp_path / "r.zip").steps] == ["capture", "guard"]
    assert "return double(x).sin()" in re.sub("<[^>]*>", "", (tmp_path / "r.html").read_text())


def test_the_command_line_runs_it_and_shows_any_view(tmp_path: Path) -> None:
    """Both commands in one process: starting Python is what takes long."""
    (tmp_path / "s.py").write_text(
        "import sys, torch, compiler_lab\ncompiler_lab.compile(torch.sin, backend='eager')(torch.ones(3))\nsys.exit(len(sys.argv))\n"
    )
    program = f"""
import json, subprocess, sys, contextlib, io
from typer.testing import CliRunner
from compiler_lab.cli import app
run = lambda *args: CliRunner().invoke(app, args)
done = run("inspect", "--html", r"{tmp_path}/r.html", "--save", r"{tmp_path}/r.zip", r"{tmp_path}/s.py", "--", "--html", "x")
assert done.exit_code == 3, done
for format, holds in (("text", "sin"), ("json", '"title"'), ("html", "<!doctype html>")):
    done = run("show", r"{tmp_path}/r.zip", "--view", "pipeline", "--format", format)
    assert done.exit_code == 0 and holds in done.output, done
assert json.loads(run("show", r"{tmp_path}/r.zip", "--view", "pipeline", "--format", "json").output)["steps"][0]["name"] == "capture"
assert "clab-parts" in run("show", r"{tmp_path}/r.zip", "--format", "html").output
assert "views: pipeline" in str(run("show", r"{tmp_path}/r.zip", "--view", "nothing").exception)
assert "lab, first" in run("show", r"{tmp_path}/r.zip", "--compare", r"{tmp_path}/r.zip").output
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
