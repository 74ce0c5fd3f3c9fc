"""compiler_lab: a complete small compiler for PyTorch programs, in which every stage shows itself.

``compile(fn)`` has ``torch.compile``'s meaning. Each stage is a function from one inspectable value to the next::

    g = capture(f, x).graphs[0]
    part = partition(functionalize(joint(g, x)))
    kernels = generate(schedule(lower(part.forward)))
    program = build(kernels)

Importing this is light: a name brings its module when it is first used, and torch's own compiler is imported at the first compile.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .core.collecting import importing

if TYPE_CHECKING:
    from .aot.decompose import decompose as decompose
    from .aot.functionalize import functionalize as functionalize
    from .aot.joint import joint as joint
    from .aot.openings import openings as openings
    from .aot.partition import partition as partition
    from .backends import aot_autograd as aot_autograd
    from .backends import list_backends as list_backends
    from .backends import register_backend as register_backend
    from .codegen.cpp import generate as generate
    from .core.honesty import check_schema as check_schema
    from .explanation import explain as explain
    from .extension import load_ipython_extension as load_ipython_extension
    from .frames.capture import capture as capture
    from .graph.diff import diff_graphs as diff_graphs
    from .graph.editing import editing as editing
    from .graph.fusing import FusionBackend as FusionBackend
    from .graph.fusing import Halves as Halves
    from .graph.fusing import run_passes as run_passes
    from .graph.fusions import fold_batch_norm as fold_batch_norm
    from .graph.fusions import fuse_silu as fuse_silu
    from .graph.interpreters import count_calls as count_calls
    from .graph.interpreters import find_nonfinite as find_nonfinite
    from .graph.interpreters import op_histogram as op_histogram
    from .graph.interpreters import time_nodes as time_nodes
    from .graph.interpreters import transform as transform
    from .graph.patterns import Condition as Condition
    from .graph.patterns import Pattern as Pattern
    from .graph.patterns import find_pattern as find_pattern
    from .graph.rewrite import PostGradPass as PostGradPass
    from .graph.rewrite import replace_pattern as replace_pattern
    from .graph.symbolic import symbolic_trace as symbolic_trace
    from .graph.values import propagate_shapes as propagate_shapes
    from .lowering.lower import lower as lower
    from .lowering.table import lowering_table as lowering_table
    from .observe.compare_data import Both as Both
    from .observe.side_by_side import side_by_side as side_by_side
    from .observe.torch_reference import record_torch as record_torch
    from .observe.torch_reference import torch_recording as torch_recording
    from .observe.torch_trace import open_torch_trace as open_torch_trace
    from .observe.trace import Step as Step
    from .observe.trace import Trace as Trace
    from .observe.view import View as View
    from .observe.view import view as view
    from .profiling import CallProfile as CallProfile
    from .profiling import profile_call as profile_call
    from .runtime.build import build as build
    from .scheduling.fusion import schedule as schedule
    from .scheduling.memory import plan_memory as plan_memory
    from .session import cache_info as cache_info
    from .session import clear_cache as clear_cache
    from .session import compile as compile
    from .session import disable as disable
    from .session import inspect as inspect
    from .session import mark_dynamic as mark_dynamic
    from .session import mark_static as mark_static
    from .session import reset as reset
    from .session import stats as stats

__version__ = "0.1.0"

_HOMES: dict[str, str] = {
    "Both": "observe.compare_data",
    "CallProfile": "profiling",
    "Condition": "graph.patterns",
    "FusionBackend": "graph.fusing",
    "Halves": "graph.fusing",
    "Pattern": "graph.patterns",
    "PostGradPass": "graph.rewrite",
    "Step": "observe.trace",
    "Trace": "observe.trace",
    "View": "observe.view",
    "aot_autograd": "backends",
    "build": "runtime.build",
    "cache_info": "session",
    "capture": "frames.capture",
    "check_schema": "core.honesty",
    "clear_cache": "session",
    "compile": "session",
    "count_calls": "graph.interpreters",
    "decompose": "aot.decompose",
    "diff_graphs": "graph.diff",
    "disable": "session",
    "editing": "graph.editing",
    "explain": "explanation",
    "find_nonfinite": "graph.interpreters",
    "find_pattern": "graph.patterns",
    "fold_batch_norm": "graph.fusions",
    "functionalize": "aot.functionalize",
    "fuse_silu": "graph.fusions",
    "generate": "codegen.cpp",
    "inspect": "session",
    "joint": "aot.joint",
    "list_backends": "backends",
    "load_ipython_extension": "extension",
    "lower": "lowering.lower",
    "lowering_table": "lowering.table",
    "mark_dynamic": "session",
    "mark_static": "session",
    "op_histogram": "graph.interpreters",
    "open_torch_trace": "observe.torch_trace",
    "openings": "aot.openings",
    "partition": "aot.partition",
    "plan_memory": "scheduling.memory",
    "profile_call": "profiling",
    "propagate_shapes": "graph.values",
    "record_torch": "observe.torch_reference",
    "register_backend": "backends",
    "replace_pattern": "graph.rewrite",
    "reset": "session",
    "run_passes": "graph.fusing",
    "schedule": "scheduling.fusion",
    "side_by_side": "observe.side_by_side",
    "stats": "session",
    "symbolic_trace": "graph.symbolic",
    "time_nodes": "graph.interpreters",
    "torch_recording": "observe.torch_reference",
    "transform": "graph.interpreters",
    "view": "observe.view",
}

__all__ = [
    "Both",
    "CallProfile",
    "Condition",
    "FusionBackend",
    "Halves",
    "Pattern",
    "PostGradPass",
    "Step",
    "Trace",
    "aot_autograd",
    "build",
    "cache_info",
    "capture",
    "check_schema",
    "clear_cache",
    "compile",
    "count_calls",
    "decompose",
    "diff_graphs",
    "disable",
    "editing",
    "explain",
    "find_nonfinite",
    "find_pattern",
    "fold_batch_norm",
    "functionalize",
    "fuse_silu",
    "generate",
    "inspect",
    "joint",
    "list_backends",
    "load_ipython_extension",
    "lower",
    "lowering_table",
    "mark_dynamic",
    "mark_static",
    "op_histogram",
    "open_torch_trace",
    "openings",
    "partition",
    "plan_memory",
    "profile_call",
    "propagate_shapes",
    "record_torch",
    "register_backend",
    "replace_pattern",
    "reset",
    "run_passes",
    "schedule",
    "side_by_side",
    "stats",
    "symbolic_trace",
    "time_nodes",
    "torch_recording",
    "transform",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'compiler_lab' has no attribute {name!r}")
    with importing():
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
