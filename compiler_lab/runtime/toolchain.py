"""The C++ compiler: which one, what it can do, and the flags generated code is built with.

In: ``Options.cxx``, or what is installed. Out: a ``Toolchain``. It is probed by compiling one small library; the answer is kept on
disk by compiler, its modification time and the processor, so that a warm start runs no process at all.
Always holds: a flag in ``Toolchain.flags`` has been accepted by this compiler in a build that linked.
PyTorch's counterpart: ``torch/_inductor/cpp_builder.py`` and ``cpu_vec_isa.py``.

Why these flags: ``-fno-trapping-math`` lets comparisons become selects and ``-fno-math-errno`` lets square roots stay inline; both
keep every value as it is. ``-ffp-contract=off`` rounds as eager does and ``-fwrapv`` makes integer overflow wrap as in eager.
Never -ffast-math: NaN, infinities, signed zeros and the order of sums are the program's. ``-g1`` is the line table that leads
from assembly back to the source; it costs no time worth measuring. Loops carry ``omp simd``, so ``-O2`` vectorises them too;
compile seconds with -O2 / -O3: TIMES
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ..core.errors import CodegenFailed
from .cache import cache_root, replace_file

SOURCE, HEADER = "kernels.cpp", "lab_math.h"

PLAIN = ("-std=c++17", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared", "-g1")
NATIVE = ("-march=native",)
OPENMP = ("-fopenmp",)

COMPILE_SECONDS = 300.0
"""After this long a compiler counts as hung."""

PROBE = """\
#include <stdint.h>
#ifdef _OPENMP
extern "C" int omp_get_max_threads(void) noexcept;
#endif
extern "C" int probe(float* x, int64_t n) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) x[i] += 1.0f;
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}
"""

EXTENSIONS: dict[str, str] = {
    "__SSE2__": "SSE2", "__SSE4_1__": "SSE4.1", "__AVX__": "AVX", "__AVX2__": "AVX2", "__FMA__": "FMA", "__F16C__": "F16C",
    "__AVX512F__": "AVX-512F", "__ARM_NEON": "NEON", "__ARM_FEATURE_SVE": "SVE",
}  # fmt: skip
"""Predefined macros, and the vector extension each stands for."""

INSTALL = (
    "install a C++ compiler: `apt install g++` (Debian, Ubuntu), `dnf install gcc-c++` (Fedora), `xcode-select --install` (macOS), "
    "`conda install -c conda-forge cxx-compiler` (conda), or name one with the option cxx"
)


@dataclass(frozen=True)
class Toolchain:
    """``flags`` before the source file, ``libraries`` after it. ``notes``: what had to be left out, in words."""

    path: str
    kind: Literal["gcc", "clang"]
    version: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    extensions: tuple[str, ...]
    openmp: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """How a process ended: ``code`` is negative for the signal that killed it, None when it ran out of time."""

    code: int | None
    output: str


def find_toolchain(cxx: str = "", cache_dir: str = "") -> Toolchain:
    """The compiler named ``cxx``, else g++, else clang++. Raises ``CodegenFailed`` with what to install when there is none."""
    path = _find(cxx)
    if path is None:
        what = f"the C++ compiler {cxx!r} was not found" if cxx else "no C++ compiler was found (looked for g++ and clang++ on PATH)"
        raise CodegenFailed(what, why="kernels are C++ that is compiled on this machine", hint=INSTALL)
    stat = os.stat(path)
    return _probed(path, stat.st_mtime_ns, stat.st_size, cache_root(cache_dir))


def run_compiler(command: Sequence[str], cwd: Path | str, seconds: float = COMPILE_SECONDS) -> Ran:
    """Runs a compiler in ``cwd``; stdout and stderr together. A compiler out of time is killed with all its children."""
    # messages in English, whatever the user's language: they are parsed
    with subprocess.Popen(
        list(command), cwd=cwd, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            return Ran(None, output)
    return Ran(process.returncode, output)


def compile_command(toolchain: Toolchain, folder: str, *extra: str, output: str) -> list[str]:
    """The command that builds ``kernels.cpp`` in ``folder``; the folder's name stays out of the debug information."""
    return [toolchain.path, *toolchain.flags, f"-fdebug-prefix-map={folder}=.", *extra, SOURCE, "-o", output, *toolchain.libraries]


def write_sources(folder: str, source: str, header: str) -> None:
    """``kernels.cpp`` and ``lab_math.h`` in ``folder``. Raises ``OSError``."""
    Path(folder, SOURCE).write_text(source, encoding="utf-8")
    Path(folder, HEADER).write_text(header, encoding="utf-8")


@functools.cache
def cpu_features() -> str:
    """What ``-march=native`` depends on, as text: code built for one processor must not be loaded on another."""
    features = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            features = next((line.split(":", 1)[1].strip() for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = platform.processor()
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} {features}"


def _find(cxx: str) -> str | None:
    found = next((p for name in ((cxx,) if cxx else ("g++", "clang++")) if (p := shutil.which(name))), None)
    return os.path.abspath(found) if found else None


@functools.cache
def _probed(path: str, mtime: int, size: int, root: Path) -> Toolchain:
    """Probed once in a process and, by way of ``root``, once on a machine. The record's name holds all it depends on."""
    depends = json.dumps([path, mtime, size, cpu_features(), PLAIN, PROBE, _torch_lib()])
    record = root / f"toolchain-{hashlib.sha256(depends.encode()).hexdigest()[:32]}.json"
    try:
        toolchain = _from_json(record.read_text())
    except (OSError, ValueError, TypeError):  # none yet, or not one that we wrote
        toolchain = _probe(path)
        try:
            replace_file(record, json.dumps(asdict(toolchain), indent=1).encode())
        except OSError:
            pass  # the kernels' cache says so, once, when it meets the same folder
    for note in toolchain.notes:
        warnings.warn(f"compiler_lab: {note}", RuntimeWarning, stacklevel=2)
    return toolchain


def _from_json(text: str) -> Toolchain:
    """Raises ``ValueError`` or ``TypeError`` for anything that is not a record."""
    read: dict[str, Any] = json.loads(text)
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in read.items()}
    return Toolchain(**fields)


def _torch_lib() -> str:
    return os.path.join(os.path.dirname(str(torch.__file__)), "lib")


def _attempts(kind: str) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """(flags, libraries, notes), best first."""
    vector_math = ("-lmvec", "-lm") if kind == "gcc" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc" else ("-lm",)
    slower = "the C++ compiler does not know -march=native: kernels use the baseline vector instructions"
    serial = "the C++ compiler cannot link OpenMP: kernels run on one thread"
    openmp = [(OPENMP, ())]
    if platform.system() == "Darwin":  # Apple's clang has no runtime of its own; torch brings one
        openmp = [(("-Xclang", *OPENMP), (f"-L{_torch_lib()}", "-lomp", f"-Wl,-rpath,{_torch_lib()}"))]
    rows: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = []
    for native, native_note in ((NATIVE, ()), ((), (slower,))):
        rows += [((*PLAIN, *native, *omp), (*link, *vector_math), native_note) for omp, link in openmp]
        rows += [((*PLAIN, *native, "-fopenmp-simd"), vector_math, (*native_note, serial))]
    return [*rows, (PLAIN, ("-lm",), (slower, serial))]


def _probe(path: str) -> Toolchain:
    with tempfile.TemporaryDirectory(prefix="compiler_lab_probe_") as folder:
        Path(folder, "probe.cpp").write_text(PROBE)
        macros = _macros(path, (), folder)
        kind: Literal["gcc", "clang"] = "clang" if "__clang__" in macros else "gcc"
        output = ""
        for flags, libraries, notes in _attempts(kind):
            ran = run_compiler([path, *flags, "probe.cpp", "-o", "probe.so", *libraries], folder)
            if ran.code == 0:
                macros = _macros(path, flags, folder)
                extensions = tuple(name for macro, name in EXTENSIONS.items() if macro in macros)
                version = f"{'clang' if kind == 'clang' else 'g++'} {macros.get('__VERSION__', '').strip(chr(34))}"
                return Toolchain(path, kind, version, flags, libraries, extensions, "_OPENMP" in macros, notes)
            output = ran.output or output
    why = next((line for line in output.splitlines() if "error" in line), output.strip()[:200]) or "it printed nothing"
    raise CodegenFailed(f"the C++ compiler {path} cannot build a shared library", why=why, hint=INSTALL)


def _macros(path: str, flags: tuple[str, ...], folder: str) -> dict[str, str]:
    wanted = [f for f in flags if f != "-shared"]
    ran = run_compiler([path, *wanted, "-dM", "-E", "-x", "c++", "probe.cpp"], folder)
    return dict(re.findall(r"^#define (\w+) ?(.*)$", ran.output, re.MULTILINE)) if ran.code == 0 else {}
