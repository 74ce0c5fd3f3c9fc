"""The C++ compiler: which one, what it can do, and the flags generated code is built with.

In: ``Options.cxx``, or what is installed. Out: a ``Toolchain``. It is probed by compiling one small library; the answer is kept on
disk by compiler, its modification time and the processor, so that a warm start runs no process at all.
Always holds: a flag in ``Toolchain.flags`` has been accepted by this compiler in a build that linked.
PyTorch's counterpart: ``torch/_inductor/cpp_builder.py`` and ``cpu_vec_isa.py``.

Why these flags: ``-fno-trapping-math`` lets comparisons become selects and ``-fno-math-errno`` lets square roots stay inline; both
keep every value as it is. ``-ffp-contract=off`` rounds as eager does and ``-fwrapv`` makes integer overflow wrap as in eager.
Never -ffast-math: NaN, infinities, signed zeros and the order of sums are the program's. ``-g1`` is the line table that leads
from assembly back to the source; it costs no time worth measuring.

-fno-thread-jumps: gcc turns the two comparisons of a clamp into four paths, each with the function's constants folded, before it makes
selects of them again; without that an exponential takes 0.51 ns instead of 0.61 (two clamped ends, AVX2). 512-bit vectors where a
processor has them: by default gcc uses half of them.

Loops carry ``omp simd``, so -O2 vectorises them as -O3 does; what it lacks is unrolling of the short accumulator loops, which
``-fpeel-loops`` brings. Measured on one kernel, 512 x 1024 on one thread, as compile seconds and run time with g++ 12:

             -O2              -O2 -fpeel-loops   -O3
    gelu     0.10 s, 507 us                      0.11 s, 497 us
    softmax  0.19 s, 547 us   0.19 s, 505 us     0.21 s, 536 us
    norm     0.15 s, 204 us   0.16 s, 119 us     0.13 s, 147 us
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..core.errors import CodegenFailed
from .cache import cache_root, replace_file

SOURCE = "kernels.cpp"
HEADERS = {"lab_math.h": "math.h", "lab_call.h": "call.h", "lab_product.h": "product.h"}
"""What generated source includes, and the file of ``codegen`` that it is."""

PLAIN = ("-std=c++17", "-O2", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared", "-g1")
GCC = ("-fpeel-loops", "-fno-thread-jumps")
NATIVE = ("-march=native", *(("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()))
OPENMP = ("-fopenmp",)

SANITIZERS = (
    "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1",
)  # fmt: skip
"""What ``Options.sanitize`` adds: kernels stop at the first byte out of bounds and the first undefined operation. Overflow of integers is neither:
-fwrapv defines it."""

COMPILE_SECONDS = 300.0
"""After this long a compiler counts as hung."""

EXTENSIONS: dict[str, str] = {
    "__SSE2__": "SSE2", "__SSE4_1__": "SSE4.1", "__AVX__": "AVX", "__AVX2__": "AVX2", "__FMA__": "FMA", "__F16C__": "F16C",
    "__AVX512F__": "AVX-512F", "__ARM_NEON": "NEON", "__ARM_FEATURE_SVE": "SVE",
}  # fmt: skip
"""Predefined macros, and the vector extension each stands for."""

PROBE = (
    """\
#include <stdint.h>
extern "C" const char probe_facts[];
const char probe_facts[] = "compiler_lab|" __VERSION__ "|"
#ifdef __clang__
  "clang|"
#else
  "gcc|"
#endif
"""
    + "".join(f'#ifdef {macro}\n  "{name},"\n#endif\n' for macro, name in EXTENSIONS.items())
    + """\
#ifdef _OPENMP
  "|OpenMP";
extern "C" int omp_get_max_threads(void) noexcept;
#else
  "|";
static inline int omp_get_max_threads() { return 1; }
#endif
extern "C" int probe(float* x, int64_t n) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; i++) x[i] += 1.0f;
  return omp_get_max_threads();
}
"""
)
"""Says in its bytes what it was compiled with: one process tells all."""

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

    def reason(self, name: str) -> str:
        """In words: what the compiler ``name`` said first, or what ended it."""
        if self.code is None:
            return f"{name} did not finish in time and was stopped"
        if self.code < 0:
            return f"{name} was killed by {signal.Signals(-self.code).name}"
        lines = [line for line in self.output.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower() or "killed" in line.lower()), lines[0] if lines else "nothing")
        return f"{name} ended with exit status {self.code} and said: {said.strip()[:300]}"


def find_toolchain(cxx: str = "", cache_dir: str = "", sanitize: bool = False) -> Toolchain:
    """The compiler named ``cxx``, else g++, else clang++; with its sanitizers. Raises ``CodegenFailed`` with what to install when there is none."""
    path = _find(cxx)
    if path is None:
        what = f"the C++ compiler {cxx!r} was not found" if cxx else "no C++ compiler was found (looked for g++ and clang++ on PATH)"
        raise CodegenFailed(what, why="kernels are C++ that is compiled on this machine", hint=INSTALL)
    stat = os.stat(path)
    found = _probed(path, stat.st_mtime_ns, stat.st_size, cache_root(cache_dir))
    return replace(found, flags=(*found.flags, *SANITIZERS)) if sanitize else found


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


@functools.cache
def headers() -> dict[str, str]:
    """The texts of ``HEADERS``."""
    folder = Path(__file__).parent.parent / "codegen"
    return {name: (folder / file).read_text(encoding="utf-8") for name, file in HEADERS.items()}


def write_sources(folder: str, source: str) -> None:
    """``kernels.cpp`` and what it includes in ``folder``. Raises ``OSError``."""
    for name, text in {SOURCE: source, **headers()}.items():
        Path(folder, name).write_text(text, encoding="utf-8")


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
    depends = json.dumps([path, mtime, size, cpu_features(), _attempts("gcc"), _attempts("clang"), PROBE])
    record = root / f"toolchain-{hashlib.sha256(depends.encode()).hexdigest()[:32]}.json"
    try:
        toolchain = _from_record(record.read_text())
    except (OSError, ValueError):  # none yet, or a damaged one
        toolchain = _probe(path)
        try:
            replace_file(record, _to_record(toolchain).encode())
        except OSError:
            pass  # the kernels' cache says so, once, when it meets the same folder
    for note in toolchain.notes:
        warnings.warn(f"compiler_lab: {note}", RuntimeWarning, stacklevel=2)
    return toolchain


def _to_record(toolchain: Toolchain) -> str:
    text = json.dumps(asdict(toolchain))
    return f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def _from_record(record: str) -> Toolchain:
    """Raises ``ValueError`` for anything that is not a whole record."""
    digest, _, text = record.partition("\n")
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise ValueError("the record is damaged")
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(text).items()}
    return Toolchain(**fields)


def _torch_lib() -> str:
    return os.path.join(os.path.dirname(str(torch.__file__)), "lib")


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # not known to this system
        return False


def _attempts(kind: str) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """(flags, libraries, notes), best first."""
    vector_math = ("-lmvec", "-lm") if kind == "gcc" and platform.machine() == "x86_64" and _glibc() else ("-lm",)
    slower = "the C++ compiler does not know -march=native: kernels use the baseline vector instructions"
    serial = "the C++ compiler cannot link OpenMP: kernels run on one thread"
    openmp = [(OPENMP, ())]
    if platform.system() == "Darwin":  # Apple's clang has no runtime of its own; torch brings one
        openmp = [(("-Xclang", *OPENMP), (f"-L{_torch_lib()}", "-lomp", f"-Wl,-rpath,{_torch_lib()}"))]
    plain = (*PLAIN, *(GCC if kind == "gcc" else ()))
    rows: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = []
    for native, native_note in ((NATIVE, ()), ((), (slower,))):
        rows += [((*plain, *native, *omp), (*link, *vector_math), native_note) for omp, link in openmp]
        rows += [((*plain, *native, "-fopenmp-simd"), vector_math, (*native_note, serial))]
    return [*rows, (PLAIN, ("-lm",), (slower, serial))]


def _probe(path: str) -> Toolchain:
    """Tries the flags until something builds. The compiler's name is a first guess at its kind; what it builds says the truth."""
    kind = "clang" if "clang" in os.path.basename(path) or platform.system() == "Darwin" else "gcc"
    facts, why = None, ""
    with tempfile.TemporaryDirectory(prefix="compiler_lab_probe_") as folder:
        Path(folder, "probe.cpp").write_text(PROBE)
        for flags, libraries, notes in _attempts(kind):
            facts, ended = _try(path, flags, libraries, folder)
            if facts is not None and facts[2] != kind:
                return _probe_as(path, facts[2], folder) or _toolchain(path, flags, libraries, notes, facts)
            if facts is not None:
                return _toolchain(path, flags, libraries, notes, facts)
            why = why or ended
    raise CodegenFailed(f"the C++ compiler {path} cannot build a shared library", why=why, hint=INSTALL)


def _probe_as(path: str, kind: str, folder: str) -> Toolchain | None:
    for flags, libraries, notes in _attempts(kind):
        facts, _ = _try(path, flags, libraries, folder)
        if facts is not None:
            return _toolchain(path, flags, libraries, notes, facts)
    return None


def _try(path: str, flags: tuple[str, ...], libraries: tuple[str, ...], folder: str) -> tuple[list[str] | None, str]:
    """The fields of ``probe_facts``, or None and how the compiler ended."""
    ran = run_compiler([path, *flags, "probe.cpp", "-o", "probe.so", *libraries], folder)
    built = Path(folder, "probe.so")
    if ran.code != 0 or not built.exists():
        return None, ran.reason(os.path.basename(path))
    found = re.search(rb"compiler_lab\|[^\0]*", built.read_bytes())
    built.unlink()
    return (found[0].decode().split("|"), "") if found else (None, "what it built is not the program it was given")


def _toolchain(path: str, flags: tuple[str, ...], libraries: tuple[str, ...], notes: tuple[str, ...], facts: list[str]) -> Toolchain:
    _, version, kind, extensions, openmp = facts
    known: Literal["gcc", "clang"] = "clang" if kind == "clang" else "gcc"
    text = version if known == "clang" else f"g++ {version}"
    return Toolchain(path, known, text, flags, libraries, tuple(extensions.strip(",").split(",")) if extensions else (), openmp == "OpenMP", notes)
