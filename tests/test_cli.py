"""The command line: each command does what it says, and errors are one text and exit status 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .test_trace import example


def cli(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "compiler_lab.cli", *args], capture_output=True, text=True, timeout=300)


def test_demo_writes_one_page_with_every_stage(tmp_path: Path) -> None:
    done = cli("demo", "--steps", "2", "--html", str(tmp_path / "demo.html"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "demo.html").read_text()
    for step in ("capture", "joint", "functionalize", "decompose", "partition", "lower, forward", "schedule, backward", "generate, backward", "build, forward"):
        assert f">{step}" in text, step
    text = text.replace("http://www.w3.org/2000/svg", "")  # the name of a language, which nobody asks for
    assert "http://" not in text and "https://" not in text
    assert "vfmadd" in text or "mulps" in text or "fmla" in text, "the assembly is there"


def test_doctor_reports_and_says_how_to_mend() -> None:
    done = cli("doctor")
    assert done.returncode == 0, done.stderr
    for what in ("Python", "torch", "OpenMP", "Triton", "Graphviz", "Jupyter"):
        assert what in done.stdout


@pytest.mark.parametrize("format", ["text", "json", "html"])
def test_show_opens_a_saved_trace(tmp_path: Path, format: str) -> None:
    example().save(tmp_path / "t.zip")
    done = cli("show", str(tmp_path / "t.zip"), "--stage", "generate", "--format", format)
    assert done.returncode == 0, done.stderr
    assert "float" in done.stdout


def test_errors_are_one_text(tmp_path: Path) -> None:
    (tmp_path / "t.zip").write_text("nothing")
    example().save(tmp_path / "good.zip")
    for args, says in (
        (("show", str(tmp_path / "t.zip")), "not a trace"),
        (("show", str(tmp_path / "good.zip"), "--stage", "lower"), "steps: capture"),
        (("show", str(tmp_path / "good.zip"), "--format", "pdf"), "one of: text"),
        (("demo", "--backend", "labb"), "known backends"),
    ):
        done = cli(*args)
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_cache_is_told_and_cleared(tmp_path: Path) -> None:
    from compiler_lab.runtime.cache import open_cache

    cache = open_cache(str(tmp_path))
    cache.keep("ab" * 32, b"entry")
    cache.publish("ab" * 32, b"library", "source")
    folder = ("--cache-dir", str(tmp_path))
    for command, says in (
        ("info", "1 captured functions, 1 libraries"),
        ("clear", "removed 1 captured functions and 1 libraries"),
        ("info", "0 captured functions"),
    ):
        done = cli("cache", command, *folder)
        assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr
    assert cache.find("ab" * 32) is None and not list(cache.entries("ab" * 32))
