"""Bad input: the program's own errors stay its own, and ours say what, where, why and what to do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_lab
from compiler_lab.core.errors import BackendFailed, CodegenFailed, GraphBroken, LabError, UnknownOption


def raises_in_the_middle(x: Tensor, n: int) -> Tensor:
    y = x * 2
    if n > 2:
        raise ValueError("n is too large")  # the line the traceback must name
    return y + n


def test_the_programs_exception_comes_with_its_own_traceback() -> None:
    compiled = compiler_lab.compile(raises_in_the_middle)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x, 1), x * 2 + 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="n is too large") as caught:
            compiled(x, 3)
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert frames[-1].name == "raises_in_the_middle" and "raise ValueError" in (frames[-1].line or "")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
def test_wrong_shapes_give_eagers_error(backend: str) -> None:
    f = lambda a, b: torch.relu(a @ b)
    a, b = torch.randn(3, 4), torch.randn(5, 6)
    with pytest.raises(RuntimeError) as want:
        f(a, b)
    with pytest.raises(RuntimeError) as got:
        compiler_lab.compile(f, backend=backend)(a, b)
    assert str(got.value) == str(want.value)


def test_an_index_out_of_range_is_eagers_error() -> None:
    f = lambda x, t: torch.nn.functional.cross_entropy(x, t)
    compiled = compiler_lab.compile(f, fullgraph=True)
    x = torch.randn(4, 5)
    compiled(x, torch.tensor([0, 1, 2, 3]))
    for one in (f, compiled):  # not with the same words: eager's are those of the whole loss, ours of the read inside it
        with pytest.raises(IndexError, match=r"out of (bounds|range)"):
            one(x, torch.tensor([0, 1, 2, 5]))


def test_wrong_arguments_give_pythons_error() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        compiler_lab.compile(f)(torch.randn(2))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: compiler_lab.compile(f, backend="labb"), "known backends: aot_eager, aot_eager_decomp, eager, lab"),
        (lambda f: compiler_lab.compile(f, options={"fuse": True}), "known options: "),
        (lambda f: compiler_lab.compile(f, options={"fusion": 3}), "a value of type bool"),
        (lambda f: compiler_lab.compile(f, options={"partitioner": "max_cut"}), "one of: min_cut, default"),
        (lambda f: compiler_lab.compile(f, mode="fast"), "known modes: "),
    ],
)
def test_unknown_names_list_the_known_ones(call: Any, says: str) -> None:
    with pytest.raises(UnknownOption, match=says):
        call(lambda x: x)


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x - 1


def test_fullgraph_names_the_line_and_what_to_do() -> None:
    with pytest.raises(GraphBroken) as caught:
        compiler_lab.compile(branches, fullgraph=True)(torch.ones(3))
    text = str(caught.value)
    assert "test_errors.py" in text and "if x.sum() > 0" in text and "do:" in text


def test_without_fullgraph_the_frame_is_left_to_python_and_counted_once() -> None:
    compiler_lab.reset()
    compiled = compiler_lab.compile(branches)
    for value in (1.0, -1.0, 1.0):
        torch.testing.assert_close(compiled(torch.full((3,), value)), branches(torch.full((3,), value)))
    stats = compiler_lab.stats()
    assert stats["breaks"] == 1 and len(stats["break_reasons"]) == 1


def test_a_backend_that_fails_says_so_and_leaves_nothing_behind() -> None:
    def broken(gm: Any, args: Any) -> Any:
        raise RuntimeError("no such machine")

    compiled = compiler_lab.compile(lambda x: x + 1, backend=broken)
    for _ in range(2):
        with pytest.raises(BackendFailed, match="no such machine"):
            compiled(torch.ones(2))
    torch.testing.assert_close(compiler_lab.compile(lambda x: x + 1)(torch.ones(2)), torch.full((2,), 2.0))


def test_a_backend_that_gives_no_callable_is_refused() -> None:
    with pytest.raises(BackendFailed, match="cannot be called"):
        compiler_lab.compile(lambda x: x + 1, backend=lambda gm, args: 3)(torch.ones(2))


def test_no_compiler_is_one_clear_sentence(tmp_path: Path) -> None:
    compiled = compiler_lab.compile(lambda x: x + 1, options={"cxx": str(tmp_path / "g++"), "cache_dir": str(tmp_path)})
    with pytest.raises(CodegenFailed, match="C\\+\\+ compiler") as caught:
        compiled(torch.ones(2))
    assert "apt install g++" in str(caught.value)
    eager = compiler_lab.compile(lambda x: x + 1, backend="aot_eager", options={"cxx": str(tmp_path / "g++")})
    torch.testing.assert_close(eager(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$", "echo '>>> error: out of registers' >&2; exit 1"])
def test_a_compiler_that_fails_or_is_killed_is_an_error(tmp_path: Path, script: str) -> None:
    fake = tmp_path / "g++"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo "g++ (fake) 12.2.0"; exit 0;; esac\n{script}\n')
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    compiled = compiler_lab.compile(lambda x: x + 1, options={"cxx": str(fake), "cache_dir": str(tmp_path / "cache")})
    with pytest.raises(LabError):
        compiled(torch.ones(2))


PROGRAM = """
import sys, torch, compiler_lab
x = torch.arange(6.0)
got = compiler_lab.compile(lambda x: x.sin() * 3 + 1, fullgraph=True, options={"cache_dir": sys.argv[1]})(x)
torch.testing.assert_close(got, x.sin() * 3 + 1)
"""


def in_process(cache: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(cache)], capture_output=True, text=True, env={**os.environ, **env}, timeout=120)


def test_a_cache_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    done = in_process(blocked)
    assert done.returncode == 0, done.stderr
    assert "cache" in done.stderr


def test_a_damaged_cache_entry_is_built_again(tmp_path: Path) -> None:
    assert in_process(tmp_path).returncode == 0
    libraries = [p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size > 4000 and p.suffix == ".so"]
    assert libraries
    for path in libraries:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2 : len(raw) // 2 + 512] = bytes(512)
        path.write_bytes(bytes(raw))
        path.write_bytes(path.read_bytes()[: len(raw) - 100])
    done = in_process(tmp_path)
    assert done.returncode == 0, done.stderr


def test_many_processes_share_one_empty_cache(tmp_path: Path) -> None:
    runs = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for run in runs:
        _, err = run.communicate(timeout=200)
        assert run.returncode == 0, err


def test_too_many_sizes_warn_once_and_run_eagerly() -> None:
    compiled = compiler_lab.compile(lambda x: x + 1, options={"recompile_limit": 2}, backend="eager", dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 8):
            torch.testing.assert_close(compiled(torch.ones(n)), torch.full((n,), 2.0))
    assert len([w for w in caught if "recompile" in str(w.message)]) == 1


def test_sizes_alone_do_not_reach_the_limit() -> None:
    compiled: Any = compiler_lab.compile(lambda x: x + 1, options={"recompile_limit": 2}, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(2, 30):
            torch.testing.assert_close(compiled(torch.ones(n)), torch.full((n,), 2.0))
    assert len(compiled._compiled_function.entries) == 2, "the size of the first call, and any"
