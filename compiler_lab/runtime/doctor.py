"""What is on this machine: each thing the package uses, what it means, and how to mend it where it is missing.

In: the machine. Out: ``Finding``s in a fixed order. Nothing is imported to learn its version, nothing but an
empty cache folder is made, and no finding raises: a thing that is missing or broken is a finding with ``ok`` false.
PyTorch's counterpart: ``python -m torch.utils.collect_env``, which lists and does not advise.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from dataclasses import dataclass

import torch

from ..core.errors import CodegenFailed
from .build import openmp_runtimes
from .cache import cache_root, is_writable
from .toolchain import Toolchain, find_toolchain

PYTHONS = ((3, 11), (3, 12))
"""Versions whose bytecode the capture has been run on."""

TORCH_FIRST, TORCH_BEYOND = (2, 11), (2, 14)
"""torch versions that have been run: from the first up to, but without, the second."""


@dataclass(frozen=True)
class Finding:
    """``found`` is what is there; ``meaning`` what that is good for; ``mend`` what to do when ``ok`` is false."""

    name: str
    found: str
    ok: bool
    meaning: str
    mend: str


def diagnose(cxx: str = "", cache_dir: str = "") -> tuple[Finding, ...]:
    """Every finding, in order. ``cxx`` and ``cache_dir`` as in ``Options``."""
    try:
        toolchain, trouble = find_toolchain(cxx, cache_dir), None
    except CodegenFailed as error:
        toolchain, trouble = None, error
    return (
        _python(), _torch(), _compiler(toolchain, trouble), _extensions(toolchain), _openmp(toolchain), _objdump(), _cache(cache_dir),
        _gpu(), _triton(), _graphviz(), _jupyter(),
    )  # fmt: skip


def _python() -> Finding:
    ok = sys.version_info[:2] in PYTHONS
    known = " and ".join(f"{a}.{b}" for a, b in PYTHONS)
    meaning = f"capture reads and writes bytecode, which differs between versions; {known} are supported"
    return Finding("Python", platform.python_version(), ok, meaning, f"make an environment with Python {PYTHONS[-1][0]}.{PYTHONS[-1][1]}")


def _torch() -> Finding:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    first, last = ".".join(map(str, TORCH_FIRST)), f"{TORCH_BEYOND[0]}.{TORCH_BEYOND[1] - 1}"
    meaning = f"operators, fake tensors and guards are torch's own; {first} to {last} have been run"
    return Finding(
        "torch", torch.__version__, TORCH_FIRST <= (major, minor) < TORCH_BEYOND, meaning, f"pip install 'torch>={first},<{'.'.join(map(str, TORCH_BEYOND))}'"
    )


def _compiler(toolchain: Toolchain | None, trouble: CodegenFailed | None) -> Finding:
    meaning = "kernels are C++ that is compiled here; without a compiler every backend but 'lab' still works"
    if toolchain is None:
        return Finding("C++ compiler", trouble.what if trouble else "none", False, meaning, trouble.hint if trouble else "")
    return Finding("C++ compiler", f"{toolchain.version} ({toolchain.path})", True, meaning, "")


def _extensions(toolchain: Toolchain | None) -> Finding:
    found = toolchain.extensions if toolchain else ()
    wide = bool({"AVX2", "NEON", "SVE", "AVX-512F"} & set(found))
    meaning = "how many elements one instruction of a kernel computes: 4 floats with SSE2 and NEON, 8 with AVX2, 16 with AVX-512"
    mend = "a newer compiler that knows -march=native, or a newer processor; kernels are right without, only slower"
    return Finding("vector extensions", ", ".join(found) or "none", wide, meaning, mend)


def _openmp(toolchain: Toolchain | None) -> Finding:
    meaning = "kernels run on several threads, on the same ones as torch's operators when both share one OpenMP library"
    loaded = openmp_runtimes()
    names = ", ".join(loaded) or "not known on this system"
    if toolchain is None or not toolchain.openmp:
        return Finding("OpenMP", f"none in kernels; in this process: {names}", False, meaning, "g++ brings it; for clang on Linux `apt install libomp-dev`")
    if toolchain.kind == "clang" and any("libgomp" in path for path in loaded):
        mend = "prefer g++: torch brings libgomp here, and two libraries keep two sets of threads"
        return Finding("OpenMP", f"clang's libomp beside {names}", False, meaning, mend)
    return Finding("OpenMP", names, len(loaded) <= 1, meaning, "import torch before anything else that brings an OpenMP library")


def _objdump() -> Finding:
    path = shutil.which("objdump")
    meaning = "machine code is shown as it is in the library; without it, as the compiler writes it before assembling"
    return Finding("objdump", path or "none", path is not None, meaning, "apt install binutils, dnf install binutils, or conda install binutils")


def _cache(cache_dir: str) -> Finding:
    root = cache_root(cache_dir)
    meaning = "built kernels are kept here, so that the next process need not compile them"
    mend = "make the folder writable, free some space, or set the option cache_dir or XDG_CACHE_HOME"
    return Finding("cache folder", str(root), is_writable(root), meaning, mend)


def _gpu() -> Finding:
    meaning = "everything here runs on the processor; a GPU is needed to run Triton kernels, not to generate and read them"
    if not torch.cuda.is_available():
        return Finding("GPU", "none", True, meaning, "")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("GPU", ", ".join(names), True, meaning, "")


def _triton() -> Finding:
    version = _version("triton")
    meaning = "the language of GPU kernels; its interpreter runs them without a GPU"
    return Finding("Triton", version or "none", version is not None, meaning, "pip install triton (Linux)")


def _graphviz() -> Finding:
    path, wheel = shutil.which("dot"), _version("pygraphviz")
    found = path or (f"pygraphviz {wheel}" if wheel else None)
    meaning = "lays out graphs; without it they are shown as text"
    return Finding("Graphviz", found or "none", found is not None, meaning, "apt install graphviz, or pip install pygraphviz")


def _jupyter() -> Finding:
    versions = {name: _version(name) for name in ("jupyterlab", "ipywidgets", "anywidget")}
    missing = [name for name, version in versions.items() if version is None]
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version) or "none"
    meaning = "the labs are notebooks, and sliders and steppers are widgets; `compiler-lab demo --html` needs none of it"
    return Finding("Jupyter", found, not missing, meaning, f"pip install {' '.join(missing)}")


def _version(distribution: str) -> str | None:
    """The installed version, without importing anything."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version" if importlib.util.find_spec(distribution) is not None else None
