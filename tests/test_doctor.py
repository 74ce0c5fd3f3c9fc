"""The doctor finds what is there, and says what to do about what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compiler_lab.runtime import doctor
from compiler_lab.runtime.doctor import Finding, diagnose

NAMES = ["Python", "torch", "C++ compiler", "vector extensions", "OpenMP", "objdump", "cache folder", "GPU", "Triton", "Graphviz", "Jupyter"]


def by_name(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {f.name: f for f in findings}


def test_everything_is_named_explained_and_mendable(tmp_path: Path) -> None:
    findings = diagnose(cache_dir=str(tmp_path))
    assert [f.name for f in findings] == NAMES
    for f in findings:
        assert f.found and f.meaning, f
        assert f.ok or f.mend, f
    found = by_name(findings)
    assert found["torch"].found == torch.__version__ and found["torch"].ok and found["Python"].ok
    assert found["cache folder"].found.startswith(str(tmp_path)) and found["cache folder"].ok


def test_no_compiler_is_a_finding_not_an_error(tmp_path: Path) -> None:
    found = by_name(diagnose(cxx=str(tmp_path / "g++"), cache_dir=str(tmp_path)))
    for name in ("C++ compiler", "vector extensions", "OpenMP"):
        assert not found[name].ok
    assert "apt install g++" in found["C++ compiler"].mend and "was not found" in found["C++ compiler"].found


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    found = by_name(diagnose(cache_dir=str(tmp_path / "file")))["cache folder"]
    assert not found.ok and "XDG_CACHE_HOME" in found.mend


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_version", lambda name: None if name != "jupyterlab" else "4.0")  # pyright: ignore[reportUnknownLambdaType]
    found = by_name(diagnose(cache_dir=str(tmp_path)))
    for name in ("C++ compiler", "objdump", "Triton", "Graphviz", "Jupyter"):
        assert not found[name].ok, name
    assert found["Jupyter"].mend == "pip install ipywidgets anywidget"


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    program = f"""
import sys
from compiler_lab.runtime.doctor import diagnose
diagnose(cache_dir={str(tmp_path)!r})
print([m for m in ("triton", "torch._dynamo", "torch._inductor", "jupyterlab", "ipywidgets", "pygraphviz") if m in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
