"""The cache of built kernels: libraries on disk, found by what they were made from, verified by what they hold.

In: a key (the hash of source, header, compiler, flags and processor). Out: the path of a library. An entry is the file
``KEY/DIGEST.so`` whose name is the SHA-256 of its own bytes, so one atomic rename publishes it and one hash verifies it. No locks: two
processes that build the same key both publish a good file, and the last one wins or stands beside the other.
Always holds: a path handed out has just been read and had the right digest; what does not is removed and rebuilt; nothing is
ever written in place. A folder that cannot be written is replaced by a private one for this process, with one warning.
PyTorch's counterpart: ``torch/_inductor/codecache.py``.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Info:
    """What a cache folder holds."""

    root: str
    entries: int
    nbytes: int
    writable: bool


@dataclass(frozen=True)
class Cache:
    root: Path

    def find(self, key: str) -> Path | None:
        """The library for ``key``, here or among those this process had to keep to itself; None when there is none that is whole."""
        try:
            candidates = sorted(p for p in self._folder(key).iterdir() if p.suffix == ".so")
        except OSError:
            candidates = []
        for path in candidates:
            if _digest(path) == path.stem:
                return path
            self.discard(path)
        fell_back = private_cache.cache_info().currsize > 0 and private_cache().root != self.root
        return private_cache().find(key) if fell_back else None

    def publish(self, key: str, library: bytes, source: str) -> Path:
        """Stores a built library, with its source beside it for readers. Falls back to a private folder when this one cannot be written."""
        folder = self._folder(key)
        path = folder / f"{hashlib.sha256(library).hexdigest()}.so"
        try:
            replace_file(folder / "kernels.cpp", source.encode())
            replace_file(path, library)
        except OSError as error:
            private = private_cache()
            if private.root == self.root:
                raise
            warn_unwritable(str(self.root), error.strerror or str(error))
            return private.publish(key, library, source)
        return path

    def discard(self, path: Path) -> None:
        """Removes an entry that is damaged. One that cannot be removed is harmless: its digest keeps it out."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            warn_unwritable(str(self.root), error.strerror or str(error))

    def clear(self) -> None:
        """Removes everything this package has stored here."""
        shutil.rmtree(self.root, ignore_errors=True)

    def info(self) -> Info:
        files = [p for p in _files(self.root) if p.suffix == ".so"]
        return Info(str(self.root), len(files), sum(p.stat().st_size for p in files), is_writable(self.root))

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


def open_cache(cache_dir: str = "") -> Cache:
    """The cache in ``cache_dir``, else in the user's cache folder."""
    return Cache(cache_root(cache_dir))


@functools.cache
def private_cache() -> Cache:
    """A cache for this process alone, removed at its end."""
    root = tempfile.mkdtemp(prefix="compiler_lab_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return Cache(Path(root))


def cache_root(cache_dir: str = "") -> Path:
    """The one place that reads where the user keeps caches: the option, then the environment, then the platform's custom."""
    if cache_dir:
        return Path(cache_dir) / "compiler_lab"
    home = Path(os.path.expanduser("~"))
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "compiler_lab"
    if platform.system() == "Darwin":
        return home / "Library" / "Caches" / "compiler_lab"
    if base := os.environ.get("LOCALAPPDATA"):
        return Path(base) / "compiler_lab"
    return home / ".cache" / "compiler_lab"


def key_of(parts: Iterable[str]) -> str:
    """SHA-256 over ``parts``, each with its length, so that no two lists of parts run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def replace_file(path: Path, data: bytes) -> None:
    """Writes ``path`` atomically: a reader sees the old file, or the whole new one. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def is_writable(root: Path) -> bool:
    """Whether files can be made in ``root``: tried, because permission bits do not tell of a full or read-only disk."""
    probe = root / f".probe-{os.getpid()}"
    try:
        replace_file(probe, b"x")
        probe.unlink()
    except OSError:
        return False
    return True


@functools.cache
def warn_unwritable(root: str, why: str) -> None:
    """Once for each folder and cause."""
    warnings.warn(f"compiler_lab: the cache folder {root} cannot be written ({why}); kernels are built anew in every process", RuntimeWarning, stacklevel=2)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _files(root: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
