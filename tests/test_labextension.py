"""The JupyterLab extension: in the wheel and in an editable install, found by ``jupyter labextension list``; and what it asks a kernel."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import weakref
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler_lab import panel, session
from compiler_lab.core.errors import UnknownOption
from compiler_lab.observe.trace import Trace

from .conftest import require
from .jupyter_server import EXTENSION, ROOT, environment

PLACE = "share/jupyter/labextensions/compiler-lab/"


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_jupyterlab_finds_what_the_wheel_brings(kind: str, tmp_path: Path) -> None:
    if not os.environ.get("COMPILER_LAB_REQUIRE_ALL"):
        pytest.importorskip("hatchling")
    build = f"from hatchling.build import build_{kind} as build; print(build({str(tmp_path)!r}))"
    name = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    with zipfile.ZipFile(tmp_path / name) as wheel:
        data = {n.split(".data/data/")[1]: n for n in wheel.namelist() if ".data/data/" in n}
        for place, inside in data.items():
            target = tmp_path / "prefix" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(inside))
        for line in (wheel.read(n).decode() for n in wheel.namelist() if n.endswith(".pth")):
            assert line.split() == [str(ROOT), str(ROOT / "widgets")], "an editable install finds both packages"
    assert {n.removeprefix(PLACE) for n in data} == {str(f.relative_to(EXTENSION)) for f in EXTENSION.rglob("*") if f.is_file()}
    env = {**environment(tmp_path), "JUPYTER_PATH": str(tmp_path / "prefix" / "share" / "jupyter")}
    listed = subprocess.run([sys.executable, "-m", "jupyter", "labextension", "list"], env=env, capture_output=True, text=True, timeout=60)
    plain = re.sub(r"\x1b\[\d*m", "", listed.stdout + listed.stderr)
    assert re.search(r"^\s*compiler-lab v0\.1\.0 enabled OK \(python, compiler-lab\)$", plain, re.MULTILINE), plain


def test_its_papers_agree() -> None:
    """The version is the package's; what package.json names is there; every command that the settings name is one that the script adds."""
    import compiler_lab

    package = json.loads((EXTENSION / "package.json").read_text())
    schema_of = json.loads((EXTENSION / "schemas" / "compiler-lab" / "package.json.orig").read_text())
    assert package["version"] == schema_of["version"] == compiler_lab.__version__ and package["name"] == schema_of["name"]
    assert (EXTENSION / package["jupyterlab"]["_build"]["load"]).is_file()
    entry = (EXTENSION / "static" / "remoteEntry.js").read_text()
    assert all(f'"{package["jupyterlab"]["_build"][k]}": async' in entry for k in ("extension", "style"))
    schema, script = (EXTENSION / "schemas" / "compiler-lab" / "plugin.json").read_text(), (EXTENSION / "static" / "extension.js").read_text()
    named = set(re.findall(r'"command": "([^"]+)"', schema))
    assert named == {"compiler-lab:inspect-cell"} and all(f'"{n}"' in script for n in named)


def test_its_files_ask_nothing_from_outside() -> None:
    for file in EXTENSION.rglob("*"):
        if file.is_file():
            assert set(re.findall(r"https?://[^\s\"'<>]+", file.read_text())) <= {"http://www.w3.org/2000/svg"}, file


def test_its_scripts_are_scripts() -> None:
    for file in (EXTENSION / "static").glob("*.js"):
        checked = subprocess.run([require("node"), "--check", str(file)], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stderr


# ---- what it asks the kernel ----


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_the_listing_has_what_was_recorded() -> None:
    session.reset()
    trace, other = Trace("double(x)"), Trace("nothing was compiled")
    with session.recording(trace.append):
        session.compile(double, backend="eager")(torch.ones(3))
    session.compile(double, observe=other.append)
    session.compile(double, observe=trace.append)
    listing = panel.listing()
    rows: Any = listing["traces"]
    assert [r["title"] for r in rows if r["title"] in (trace.title, other.title)] == ["double(x)"], "once, and none without steps"
    (row,) = [r for r in rows if r["title"] == "double(x)"]
    assert (row["steps"], row["graphs"], row["seconds"]) == (len(trace.steps), 1, trace.seconds)
    assert listing["stats"] == session.stats()
    assert listing._repr_mimebundle_() == {"application/json": json.loads(json.dumps(listing))}
    assert panel.picture(row["number"]).html() == trace.view().html()
    assert session.traces()[row["number"]] is trace


def test_a_recording_is_kept_and_let_go() -> None:
    session.reset()
    titles = [f"recording {k}" for k in range(5)]
    for title in titles:
        with session.recording(Trace(title).append):
            session.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    gc.collect()
    kept: Any = panel.listing()["traces"]
    assert [r["title"] for r in kept if r["title"] in titles] == titles[:1:-1], "the last three, the last first"
    refs = [weakref.ref(t) for t in session.traces().values() if t.title in titles]
    session.reset()
    gc.collect()
    assert len(refs) == 3 and not any(r() for r in refs)
    with pytest.raises(UnknownOption, match="no longer kept"):
        panel.picture(kept[0]["number"])


def test_an_observed_trace_is_not_kept_alive() -> None:
    trace = Trace("mine")
    session.compile(double, backend="eager", observe=trace.append)(torch.ones(3))
    assert any(t is trace for t in session.traces().values())
    ref = weakref.ref(trace)
    del trace
    gc.collect()
    assert ref() is None and all(t.title != "mine" for t in session.traces().values())
