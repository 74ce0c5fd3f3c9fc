"""The cache on disk: built kernels and captured entries, found by what they were made from, verified by what they hold.

In: a key (the hash of source, header, compiler, flags and processor; of a function and all that decides what is made of it). Out: the path of
a library, the bytes of entries. What is kept is the file ``KEY/DIGEST.so`` or ``KEY/DIGEST.entry`` whose name is the SHA-256 of its own
bytes, so one atomic rename publishes it and one hash verifies it. No locks: two processes that make the same both publish a good file, and
the last one wins or stands beside the other. Use is noted in a file's time; what was used least recently goes when the folder is over its limit.
Always holds: what is handed out has just been read and had the right digest; what does not is removed and made again; nothing is
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
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST = 16
"""Entries that are kept for one key: a function with this many sets of guards is compiled anew for others."""
PART, DAY = 16, 86400.0


@dataclass(frozen=True)
class Info:
    """What a cache folder holds."""

    root: str
    entries: int  # captured entries of functions
    libraries: int  # built kernels
    nbytes: int  # of all files
    writable: bool


@dataclass(frozen=True)
class Cache:
    root: Path
    limit: int = 0  # bytes; 0: none

    def find(self, key: str, digest: str = "") -> Path | None:
        """The library for ``key``, here or among those this process had to keep to itself; None when there is none that is whole.

        With a ``digest``, that very library."""
        for path in self._candidates(key, ".so"):
            if digest and path.stem != digest:
                continue
            if _digest(path) == path.stem:
                self.used(path)
                return path
            self.discard(path)
        fell_back = private_cache.cache_info().currsize > 0 and private_cache().root != self.root
        return private_cache().find(key, digest) if fell_back else None

    def entries(self, key: str) -> Iterator[tuple[Path, bytes]]:
        """What ``keep`` was given for ``key``, whole, used last first; ``used`` tells which one was wanted."""
        for path in sorted(self._candidates(key, ".entry"), key=_time, reverse=True):
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if hashlib.sha256(data).hexdigest() == path.stem:
                yield path, data
            else:
                self.discard(path)

    def keep(self, key: str, data: bytes) -> bool:
        """Stores an entry; False where this folder cannot be written: an entry is for other processes."""
        path = self._folder(key) / f"{hashlib.sha256(data).hexdigest()}.entry"
        try:
            replace_file(path, data)
        except OSError:
            return False
        for old in sorted(self._candidates(key, ".entry"), key=_time)[:-MOST]:
            self.discard(old)
        self.trim(len(data))
        return True

    def _candidates(self, key: str, suffix: str) -> list[Path]:
        try:
            return sorted(p for p in self._folder(key).iterdir() if p.suffix == suffix)
        except OSError:
            return []

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
        self.trim(len(library) + len(source))
        return path

    def trim(self, written: int = 0) -> None:
        """Removes what was used least recently while the folder is over ``limit`` bytes. With ``written``, the bytes that this process has just
        added: looks only once they are a part of the limit, or nobody has looked for a day."""
        stamp = self.root / ".trimmed"
        pending = _pending(self.root)
        pending[0] += written
        if not self.limit or (written and pending[0] < self.limit // PART and time.time() - _time(stamp) < DAY):
            return
        pending[0] = 0
        files = [(_time(p), _size(p), p) for p in _files(self.root) if p.suffix in (".so", ".entry", ".cpp")]
        total = sum(size for _, size, _ in files)
        try:
            for _, size, path in sorted(files):
                if total <= self.limit:
                    break
                path.unlink(missing_ok=True)
                total -= size
            replace_file(stamp, b"")
        except OSError as error:
            warn_unwritable(str(self.root), error.strerror or str(error))

    def used(self, path: Path) -> None:
        """Notes the use, for the order in which things go."""
        try:
            os.utime(path)
        except OSError:  # somebody else's folder, or gone by now
            return

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
        files = list(_files(self.root))
        count = {suffix: sum(p.suffix == suffix for p in files) for suffix in (".entry", ".so")}
        return Info(str(self.root), count[".entry"], count[".so"], sum(map(_size, files)), is_writable(self.root))

    def _folder(self, key: str) -> Path:
        return self.root / key[:2] / key


def open_cache(cache_dir: str = "", megabytes: int = 0) -> Cache:
    """The cache in ``cache_dir``, else in the user's cache folder; it is kept below ``megabytes`` (2**20 bytes; 0: no limit)."""
    return Cache(cache_root(cache_dir), megabytes << 20)


@functools.cache
def private_cache() -> Cache:
    """A cache for this process alone, removed at its end."""
    root = tempfile.mkdtemp(prefix="compiler_lab_")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return Cache(Path(root))


def cache_root(cache_dir: str = "") -> Path:
    """The one place that reads where the user keeps caches: the option, then the environment, then the platform's custom."""
    if base := cache_dir or os.environ.get("COMPILER_LAB_CACHE_DIR", ""):
        return Path(base) / "compiler_lab"
    home = Path(os.path.expanduser("~"))
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "compiler_lab"
    if platform.system() == "Darwin":
        return home / "Library" / "Caches" / "compiler_lab"
    if base := os.environ.get("LOCALAPPDATA"):
        return Path(base) / "compiler_lab"
    return home / ".cache" / "compiler_lab"


def keeps_entries() -> bool:
    """Whether captured entries are kept and looked for where no option says so: yes, unless COMPILER_LAB_ENTRIES is 0."""
    return os.environ.get("COMPILER_LAB_ENTRIES", "") != "0"


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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _time(path: Path) -> float:
    """When it was used last; 0 for what is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@functools.cache
def _pending(root: Path) -> list[int]:
    """Bytes that this process has added to ``root`` since it looked at the size last."""
    return [0]


def _files(root: Path) -> list[Path]:
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]
