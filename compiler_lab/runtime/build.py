"""Building and loading: from C++ text to a callable program.

In: ``Kernels`` (source, line map, wrapper). Out: a ``Program``. A cache hit reads and verifies one file and runs no process. A program
without kernels (extern calls only) needs no compiler and has no library.
Always holds: a library that is loaded was built whole; a failed build raises ``CodegenFailed`` with the compiler's first error, the
generated line, and the user's line it comes from, and leaves the source where the message says.
PyTorch's counterpart: ``torch/_inductor/codecache.py`` (CppCodeCache, PyCodeCache) and ``async_compile.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.clock import Clock, spent
from ..core.errors import CodegenFailed
from ..core.options import Options
from ..core.provenance import own_location
from ..lowering.ir import ExternNode
from .cache import Cache, key_of, open_cache
from .native import attach, make_of
from .program import Program
from .toolchain import SOURCE, Ran, Toolchain, compile_command, cpu_features, find_toolchain, headers, run_compiler, write_sources

if TYPE_CHECKING:
    from ..codegen.artifact import Kernels
    from ..codegen.ir import CallCode

DEFAULTS = Options()
BOUND = ("mm", "addmm", "bmm", "baddbmm")  # what the wrapper in Python calls as ``torch.mm`` and so on: ``codegen/externs.py``


def build(kernels: Kernels, options: Options = DEFAULTS, clock: Clock | None = None) -> Program:
    """Compiles (or finds) and loads ``kernels``. Raises ``CodegenFailed`` when there is no compiler or it fails. ``clock``: is told what takes long."""
    with spent(clock, "build"):
        if not kernels.kernels:
            return _assemble(kernels, None, None, clock)
        with spent(clock, "find the compiler"):
            toolchain = find_toolchain(options.cxx, options.cache_dir, options.sanitize)
        path = _library(kernels, toolchain, open_cache(options.cache_dir), clock)
        return _assemble(kernels, path, toolchain, clock)


def build_many(kernels: Sequence[Kernels], options: Options = DEFAULTS, clocks: Sequence[Clock] = ()) -> tuple[Program, ...]:
    """Several programs, compiled side by side on ``options.jobs`` threads (0: one for each CPU). The first failure is raised. ``clocks``: of each."""
    jobs = min(options.jobs or os.cpu_count() or 1, len(kernels))
    timed = list(itertools.zip_longest(kernels, clocks))
    if jobs <= 1:
        return tuple(build(k, options, clock) for k, clock in timed)
    if any(k.kernels for k in kernels):
        find_toolchain(options.cxx, options.cache_dir, options.sanitize)  # probed once, before the threads would each do it
    with ThreadPoolExecutor(jobs, thread_name_prefix="compiler_lab_build") as pool:
        return tuple(pool.map(lambda one: build(one[0], options, one[1]), timed))


def _library(kernels: Kernels, toolchain: Toolchain, cache: Cache, clock: Clock | None) -> Path:
    parts = (kernels.unit, *headers().values(), toolchain.path, toolchain.version, *toolchain.flags, *toolchain.libraries, cpu_features())
    key = key_of(parts)
    with spent(clock, "look in the cache"):
        path = cache.find(key)
    if path is not None:
        return path
    with spent(clock, "compiler run"):
        library = _compile(kernels, toolchain)
    return cache.publish(key, library, kernels.unit)


def _compile(kernels: Kernels, toolchain: Toolchain) -> bytes:
    """The bytes of the library. The compiler works in a folder of its own, which stays only when it fails."""
    try:
        folder = tempfile.mkdtemp(prefix="compiler_lab_build_")
        write_sources(folder, kernels.unit)
    except OSError as error:
        raise CodegenFailed("the generated source could not be written to a temporary folder", why=str(error), hint="free some space, or set TMPDIR") from error
    ran = run_compiler(compile_command(toolchain, folder, output="kernels.so"), folder)
    if ran.code != 0:
        raise _failure(kernels, toolchain, folder, ran)
    library = Path(folder, "kernels.so").read_bytes()
    shutil.rmtree(folder, ignore_errors=True)
    return library


def _failure(kernels: Kernels, toolchain: Toolchain, folder: str, ran: Ran) -> CodegenFailed:
    """What the compiler said first, the generated line it said it about, and whose line that is."""
    name = os.path.basename(toolchain.path)
    hint = f"the generated source and what it includes are kept in {folder}"
    error = re.search(rf"^(?:\S*/)?({'|'.join(map(re.escape, (SOURCE, *headers())))}):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", ran.output, re.MULTILINE)
    if error is None:
        return CodegenFailed("the generated source could not be compiled", why=ran.reason(name), hint=hint)
    file, number, message = error[1], int(error[2]), error[3]
    line = next((ln for ln in kernels.unit_lines if ln.number == number), None) if file == SOURCE else None
    why = f"{file}:{number}: {message}" + (f"\n         {line.text.strip()}" if line else "")
    return CodegenFailed(f"{name} rejected the generated source", where=own_location(line.stack) if line else None, why=why, hint=hint)


@dataclass(frozen=True)
class Loadable:
    """What a program is loaded from: the wrapper in Python and, if there is one, what that in C is bound to; the exported functions; operators and
    constants by the names that the wrappers have for them."""

    stage: str
    wrapper: str
    functions: tuple[str, ...]
    ops: dict[str, Any]
    constants: dict[str, Any]
    calls: CallCode | None

    @staticmethod
    def of(kernels: Kernels) -> Loadable:
        program = kernels.schedule.program
        ops = {str(n.target): n.target for n in program.nodes if isinstance(n, ExternNode)}
        return Loadable(kernels.stage, kernels.wrapper, tuple(k.name for k in kernels.kernels), ops, dict(program.constants), kernels.calls)

    def load(self, path: Path | None) -> tuple[Callable[..., tuple[Any, ...]], str]:
        """The callable, and the language its calls are made in. Raises ``CodegenFailed`` for a library that cannot be loaded."""
        why = ""
        if path is not None and self.calls is not None:
            with _loading(path):
                call = attach(self.stage, self.calls, self.constants, path, self.ops)
            _warn_of_two_runtimes()
            if not isinstance(call, str):
                return call, "C"
            why = call
        functions = _load(self.functions, path) if path else {}
        make = make_of(self.wrapper, f"{self.stage} wrapper")
        return make(functions, self.ops, self.constants, torch), f"Python ({why})" if why else "Python"

    def one_by_one(self, path: Path | None, around: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
        """The wrapper in Python, with ``around(name, function)`` in place of each kernel and of each operator: what measures them one by one."""
        functions = {name: around(name, function) for name, function in (_load(self.functions, path) if path else {}).items()}
        ops = {name: around(name, op) for name, op in self.ops.items()}
        return make_of(self.wrapper, f"{self.stage} wrapper")(functions, ops, self.constants, _Torch(around))


class _Torch:
    """``torch`` as the wrapper in Python sees it: what it calls by way of a binding is given to ``around``."""

    def __init__(self, around: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        self._around = around

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        return self._around(name, found) if name in BOUND else found


def _assemble(kernels: Kernels, path: Path | None, toolchain: Toolchain | None, clock: Clock | None) -> Program:
    with spent(clock, "load"):
        call, language = Loadable.of(kernels).load(path)
    return Program(kernels, path, toolchain, call, language)


@contextlib.contextmanager
def _loading(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, AttributeError) as error:
        raise CodegenFailed("the built library could not be loaded", why=str(error), hint=f"it is {path}; clearing the cache rebuilds it") from error


def _load(names: Sequence[str], path: Path) -> dict[str, Callable[[Any], int]]:
    """The kernels, bound. torch is loaded already, so the library's OpenMP is torch's."""
    with _loading(path):
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        functions = {name: getattr(library, name) for name in names}
    for function in functions.values():
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
    _warn_of_two_runtimes()
    return functions


def openmp_runtimes() -> tuple[str, ...]:
    """The OpenMP libraries in this process, by file, sorted. Empty where the system does not tell."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ()
    return tuple(sorted({line.split()[-1] for line in maps.splitlines() if re.search(r"/lib(gomp|omp|iomp5)[-.\w]*\.so", line)}))


@functools.cache
def _warn_of_two_runtimes() -> None:
    found = openmp_runtimes()
    if len(found) > 1:
        what = f"compiler_lab: two OpenMP runtimes in one process ({', '.join(map(os.path.basename, found))}); each has its own threads"
        warnings.warn(f"{what}: import torch first, and prefer g++ where torch brings libgomp", RuntimeWarning, stacklevel=2)
