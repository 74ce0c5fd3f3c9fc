"""Entries of earlier processes: found before a frame is captured, and kept once it has been.

In: a frame of the function that is called; what capture and the backend made of it. Out: an ``Entry`` that holds for the frame, without any
stage having been imported; a file in the cache. Always holds: the key names this package's files, torch, Python, the processor, the options and
torch's state; the rest is compared by the entry's guards. What cannot be kept or read back is compiled as ever, and counted with its reason.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/autograd_cache.py`` and ``torch/_dynamo/package.py``; there a warm start traces anew.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .core.errors import LabError
from .core.options import Options
from .core.plain import NotPlain
from .frames import portable
from .frames.entries import Entry
from .frames.frame import FrameInput
from .runtime.cache import Cache, key_of, open_cache
from .runtime.toolchain import cpu_features

if TYPE_CHECKING:
    from .frames.convert import Captured
    from .runtime.portable import Compiled

FORMAT = "1"
NOT_IN_KEY = ("cache_dir", "cache_megabytes", "jobs", "recompile_limit", "entries", "film", "check", "cxx")
"""Options that change nothing of what is made; which compiler it is, a kernel's own key says."""


@dataclass
class Counts:
    """What happened since the last reset: entries found and kept, calls for which none was found, and why some were not kept."""

    found: int = 0
    missed: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])

    def clear(self) -> None:
        self.found = self.missed = self.kept = 0
        self.refused.clear()


class KeptEntries:
    """``find`` and ``keep`` for one compiled function. ``settings``: what else decides what is made of it, as text; ``watched``: is it recorded?"""

    def __init__(self, options: Options, settings: str, counts: Counts, watched: Callable[[], bool]) -> None:
        self.options, self.settings, self.counts, self.watched = options, settings, counts, watched

    def find(self, frame: FrameInput) -> Entry | None:
        """An entry for ``frame``; None where there is none, or none that still holds, or where somebody wants to see the stages run."""
        if self.watched():
            return None
        try:
            found = self._find(frame)
        except NotPlain:
            found = None
        self.counts.found += found is not None
        self.counts.missed += found is None
        return found

    def _find(self, frame: FrameInput) -> Entry | None:
        cache = self._cache()
        for path, data in cache.entries(self._key(frame)):
            if (entry := self._read(data, frame)) is not None:
                cache.used(path)
                return entry
        return None

    def _read(self, data: bytes, frame: FrameInput) -> Entry | None:
        """The bytes are whole, and of this very package: what fails is that something is another thing in this process."""
        from .runtime.portable import unpack

        record: dict[str, Any] = marshal.loads(data)
        try:
            return portable.unpack(record["frame"], frame, lambda: _callable(unpack(record["graph"], self.options)))
        except (NotPlain, LabError):
            return None
        except Exception:  # noqa: BLE001 - reading what guards look at raises whatever the program's objects raise: the guard does not hold
            return None

    def keep(self, captured: Captured, made: Compiled | None) -> None:
        """Keeps what was captured, for later processes; or counts why not."""
        try:
            if made is None or captured.compiled is None:
                raise NotPlain("backend", captured.before.co_qualname)
            from .runtime.portable import pack

            frame, graph = portable.pack(captured.specialization, captured.frame, captured.after, captured.compiled), pack(made)
            kept = self._cache().keep(self._key(captured.frame), marshal.dumps({"frame": frame, "graph": graph}))
        except Exception as error:  # noqa: BLE001 - the call that was compiled goes on; what went wrong is counted under its own words
            why = str(error) if isinstance(error, NotPlain) else f"{type(error).__name__}: {error}"
            self.counts.refused[why] = self.counts.refused.get(why, 0) + 1
            return
        self.counts.kept += kept

    def _cache(self) -> Cache:
        return open_cache(self.options.cache_dir, self.options.cache_megabytes)

    def _key(self, frame: FrameInput) -> str:
        module = str(frame.globals.get("__name__", ""))
        return key_of([portable.key_of_code(frame.code), module, repr(portable.state_of()), self.settings, _options(self.options), *_process()])


def _callable(found: Any) -> Any:
    if found is None:
        raise NotPlain("moved", "a kernel")
    return found


def _options(options: Options) -> str:
    return repr([(f.name, getattr(options, f.name)) for f in fields(options) if f.name not in NOT_IN_KEY])


@functools.cache
def _process() -> tuple[str, ...]:
    """What is the same for all functions of this process."""
    cuda = torch.version.cuda is not None and torch.cuda.is_available()
    return (FORMAT, own_files(), str(torch.__version__), str(torch.version.git_version), sys.version, sys.platform, cpu_features(), str(cuda))


@functools.cache
def own_files() -> str:
    """A hash over the files of this package: their names, sizes and times of change."""
    root = Path(__file__).parent
    return key_of(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}" for path in sorted(_sources(root)) for stat in [path.stat()])


def _sources(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder, name) for name in names if name.endswith((".py", ".h", ".c")))
