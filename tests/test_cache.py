"""The kernel cache: what it hands out is whole, whoever writes to it, and whatever happened to it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler_lab.runtime.cache import Cache, cache_root, is_writable, key_of, open_cache, private_cache, replace_file

from .conftest import run_threads

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _no_private_cache_is_left() -> Iterator[None]:
    """The private cache serves every folder of a process: the next test's must not find this one's libraries in it."""
    yield
    private_cache.cache_clear()


def test_published_is_found(tmp_path: Path) -> None:
    cache = open_cache(str(tmp_path))
    assert cache.find(KEY) is None
    path = cache.publish(KEY, b"library", "source")
    assert cache.find(KEY) == path and path.read_bytes() == b"library"
    assert path.stem == hashlib.sha256(b"library").hexdigest()
    assert (path.parent / "kernels.cpp").read_text() == "source"
    assert open_cache(str(tmp_path)).find(KEY) == path
    info = cache.info()
    assert (info.libraries, info.nbytes, info.writable) == (1, len(b"librarysource"), True)
    cache.clear()
    assert cache.find(KEY) is None and cache.info().libraries == 0


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b"x" + b[1:], lambda b: b + b"x"], ids=["cut", "emptied", "changed", "grown"])
def test_a_damaged_entry_is_never_handed_out(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(KEY, b"library", "source")
    path.write_bytes(damage(b"library"))
    assert cache.find(KEY) is None
    assert not path.exists(), "it is out of the way"
    assert cache.publish(KEY, b"library", "source") == cache.find(KEY)


def test_a_good_entry_beside_a_damaged_one_is_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first, second = sorted((cache.publish(KEY, b"one", ""), cache.publish(KEY, b"two", "")))
    first.write_bytes(b"")
    assert cache.find(KEY) == second


def test_unfinished_files_are_not_entries(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(KEY, b"library", "source")
    os.rename(path, path.parent / ".writing-1234")
    assert cache.find(KEY) is None


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    replace_file(path, b"old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_folder_that_cannot_be_written_warns_once_and_is_replaced(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    cache = Cache(blocked)
    assert not is_writable(blocked)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        paths = [cache.publish(k, k.encode(), "") for k in ("aa" * 32, "bb" * 32)]
    assert len(caught) == 1 and "cannot be written" in str(caught[0].message) and str(blocked) in str(caught[0].message)
    assert all(p.is_relative_to(private_cache().root) and p.exists() for p in paths)
    assert cache.find("aa" * 32) == paths[0], "built once in this process"


def test_a_full_disk_is_like_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import compiler_lab.runtime.cache as module

    real = module.replace_file

    def full(path: Path, data: bytes) -> None:
        if path.is_relative_to(tmp_path):
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(module, "replace_file", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        path = Cache(tmp_path).publish(KEY, b"library", "")
    assert path.read_bytes() == b"library" and not path.is_relative_to(tmp_path)


def test_the_private_folder_goes_with_the_process() -> None:
    program = "from compiler_lab.runtime.cache import private_cache; print(private_cache().publish('ab' * 32, b'x', ''))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    path = Path(ran.stdout.strip())
    assert path.name.endswith(".so") and not path.exists()


def _hammer(root: str, start: int, rounds: int) -> int:
    """Publishes, damages and looks up one key; counts what was handed out broken."""
    cache, broken = Cache(Path(root)), 0
    for i in range(rounds):
        library = b"%d" % ((start + i) % 3) * 4096
        path = cache.publish(KEY, library, "")
        if i % 7 == start % 7:
            replace_file(path, library[:100])  # another process put a damaged file in place
        found = cache.find(KEY)
        if found is not None:
            try:
                broken += hashlib.sha256(found.read_bytes()).hexdigest() != found.stem and i % 7 != start % 7
            except FileNotFoundError:
                pass  # somebody found it damaged meanwhile
    return broken


def test_many_threads(tmp_path: Path) -> None:
    def work(n: int) -> None:
        cache = Cache(tmp_path)
        for i in range(60):
            library = b"%d" % ((n + i) % 5) * 2000
            cache.publish(KEY, library, "s")
            found = cache.find(KEY)
            assert found is not None and hashlib.sha256(found.read_bytes()).hexdigest() == found.stem

    run_threads([partial(work, n) for n in range(8)])


def test_many_processes_with_damage(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        pool.starmap(_hammer, [(str(tmp_path), n, 40) for n in range(4)])
    cache = Cache(tmp_path)
    for library in (b"0" * 4096, b"1" * 4096, b"2" * 4096):
        cache.publish(KEY, library, "")
    found = cache.find(KEY)
    assert found is not None and hashlib.sha256(found.read_bytes()).hexdigest() == found.stem
    assert not [p for p in tmp_path.rglob(".writing-*")], "nothing half-written stays"


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_keys_are_equal_only_for_equal_parts(a: list[str], b: list[str]) -> None:
    assert (key_of(a) == key_of(b)) == (a == b)


def test_where_caches_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "compiler_lab"
    assert cache_root(str(tmp_path / "own")) == tmp_path / "own" / "compiler_lab", "the option goes first"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for system, where in (("Linux", ".cache/compiler_lab"), ("Darwin", "Library/Caches/compiler_lab")):
        monkeypatch.setattr("platform.system", lambda system=system: system)
        assert cache_root() == tmp_path / where
