"""Generated code under gcc's address and undefined-behaviour sanitizers.

A sanitizer's runtime has to be in a process from its start, so what is built with it runs in processes of its own: ``environment`` is what
they are started with. ``python -m tests.fuzz --kind graphs --backend sanitized`` runs random graphs so, ``--kind corpus`` the programs of
``corpus.py``, one after another; ``make sanitize`` does both. A fault ends the process, and what the sanitizer said of it is
kept beside the failures. Each buffer is an allocation of its own (``graph_check.apart_in_memory``): in an arena the byte behind a buffer is another's.
Leaks are not looked for: Python and torch keep much to the end of the process. Vector code is not seen as such: checks at each access leave loops scalar.
"""

from __future__ import annotations

import os
import subprocess

import torch
from torch.utils._pytree import tree_leaves

import compiler_lab

from .corpus import CORPUS
from .graph_check import apart_in_memory
from .program_check import Difference


def _library(name: str) -> str:
    """Where g++ has it. The sanitizer looks for what throws exceptions when it starts, and Python, a C program, has not loaded it by then."""
    return subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def environment(symbolize: bool = True) -> dict[str, str]:
    """The variables of a process whose kernels are built with sanitizers. ``symbolize``: reports name functions, which takes a minute for torch's."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so.6')}",
        "ASAN_OPTIONS": f"detect_leaks=0:handle_segv=0:symbolize={symbolize:d}",
    }


def program(seed: int) -> str:
    """The name of program number ``seed`` of the corpus."""
    return list(CORPUS)[seed % len(CORPUS)]


def run(seed: int, text: str | None = None, backend: str = "sanitized") -> Difference | None:
    """Forward and backward of a program of the corpus (``text``: its name), built with sanitizers. What it computes is looked at elsewhere."""
    torch.manual_seed(0)
    fn, args = CORPUS[text or program(seed)]()
    with apart_in_memory():
        compiled = compiler_lab.compile(fn, fullgraph=True, options={"sanitize": backend == "sanitized"})
        for _ in range(2):
            results = tree_leaves(compiled(*args))
            if history := [r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]:
                torch.stack([h.double() for h in history]).sum().backward()
    compiler_lab.reset()
    return None
