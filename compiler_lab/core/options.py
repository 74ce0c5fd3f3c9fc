"""Options: one frozen dataclass, made once at the edge and passed down; no stage reads the environment.

``Options.of(mode, options)`` checks names and values and raises ``UnknownOption`` with the known ones.
The table ``MODES`` holds what each ``mode`` means, as rows of option overrides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from .errors import UnknownOption

Partitioner = Literal["min_cut", "default"]
CostModel = Literal["bytes", "torch"]
Decompositions = Literal["inductor-like", "core", "none"]
Wrapper = Literal["c", "python"]


@dataclass(frozen=True)
class Options:
    """Everything a compile can be told. Defaults are what a user gets from ``compile(fn)``."""

    partitioner: Partitioner = "min_cut"
    cost_model: CostModel = "bytes"
    activation_memory_budget: float = 1.0  # 1: what the minimum cut saves; 0: as little as can be, the rest is computed again; min_cut's
    decompositions: Decompositions = "inductor-like"
    fallback_random: bool = False  # eager's own stream of random numbers; otherwise the same distributions by counter, which fuse and are made again
    fusion: bool = True
    max_fused_nodes: int = 64
    max_autotune: bool = False  # matrix products by a template of ours or by the library, whichever is faster: measured at the first compile
    wrapper: Wrapper = "c"  # what calls kernels and aten: C where torch exports what it takes, or Python, to be read and stepped through
    recompile_limit: int = 8
    capture_scalar_outputs: bool = False  # .item() gives a number that depends on data instead of a break
    capture_dynamic_output_shape_ops: bool = False  # nonzero and the like give a size that depends on data instead of a break
    cxx: str = ""  # the C++ compiler; "" finds g++, then clang++
    sanitize: bool = False  # kernels with the C++ compiler's address and undefined-behaviour sanitizers, whose runtime the process must start with
    cache_dir: str = ""  # "" is the user's cache folder
    cache_megabytes: int = 2048  # what was used least recently goes when the folder is larger; 0: no limit
    entries: bool = True  # captured entries are kept in the cache folder, and found there by later processes
    jobs: int = 0  # parallel compile jobs; 0 is the number of CPUs
    film: bool = False  # a recorded compile has the film of each capture too: every instruction, with stack, locals, graph and guards so far
    check: bool = False  # run check() and input fingerprints at every stage boundary

    @staticmethod
    def of(mode: str | None, options: Mapping[str, Any] | None) -> Options:
        mode = mode or "default"
        if mode not in MODES:
            raise UnknownOption(f"unknown mode {mode!r}", hint=f"known modes: {', '.join(sorted(MODES))}")
        known = {f.name: f for f in fields(Options)}
        wanted = {**MODES[mode], **(options or {})}
        for name, value in wanted.items():
            if name not in known:
                raise UnknownOption(f"unknown option {name!r}", hint=f"known options: {', '.join(sorted(known))}")
            _check_value(name, value)
        return replace(Options(), **wanted)


CHOICES: dict[str, tuple[str, ...]] = {
    "partitioner": get_args(Partitioner),
    "cost_model": get_args(CostModel),
    "decompositions": get_args(Decompositions),
    "wrapper": get_args(Wrapper),
}

BETWEEN: dict[str, tuple[float, float]] = {"activation_memory_budget": (0.0, 1.0)}

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {},
    "max-autotune": {"max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}


def _check_value(name: str, value: Any) -> None:
    default = getattr(Options, name)
    if name in CHOICES and value not in CHOICES[name]:
        raise UnknownOption(f"option {name!r} cannot be {value!r}", hint=f"one of: {', '.join(CHOICES[name])}")
    if type(default) is float and type(value) is int:
        value = float(value)
    if name in BETWEEN and type(value) is float and not BETWEEN[name][0] <= value <= BETWEEN[name][1]:
        raise UnknownOption(f"option {name!r} cannot be {value!r}", hint=f"a number from {BETWEEN[name][0]:g} to {BETWEEN[name][1]:g}")
    if type(value) is not type(default):
        raise UnknownOption(f"option {name!r} cannot be {value!r}", hint=f"a value of type {type(default).__name__}")
