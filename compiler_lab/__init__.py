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

from .core.imports import importing

if TYPE_CHECKING:
    from .aot.decompose import decompose as decompose
    from .aot.functionalize import functionalize as functionalize
    from .aot.joint import joint as joint
    from .aot.partition import partition as partition
    from .backends import aot_autograd as aot_autograd
    from .backends import list_backends as list_backends
    from .backends import register_backend as register_backend
    from .codegen.cpp import generate as generate
    from .explanation import explain as explain
    from .extension import load_ipython_extension as load_ipython_extension
    from .frames.capture import capture as capture
    from .lowering.lower import lower as lower
    from .observe.trace import Step as Step
    from .observe.trace import Trace as Trace
    from .pipeline import compile as compile
    from .pipeline import disable as disable
    from .pipeline import inspect as inspect
    from .pipeline import mark_dynamic as mark_dynamic
    from .pipeline import mark_static as mark_static
    from .pipeline import reset as reset
    from .pipeline import stats as stats
    from .runtime.build import build as build
    from .scheduling.fusion import schedule as schedule
    from .scheduling.memory import plan_memory as plan_memory

__version__ = "0.1.0"

_HOMES: dict[str, str] = {
    "Step": "observe.trace",
    "Trace": "observe.trace",
    "aot_autograd": "backends",
    "build": "runtime.build",
    "capture": "frames.capture",
    "compile": "pipeline",
    "decompose": "aot.decompose",
    "disable": "pipeline",
    "explain": "explanation",
    "functionalize": "aot.functionalize",
    "generate": "codegen.cpp",
    "inspect": "pipeline",
    "joint": "aot.joint",
    "list_backends": "backends",
    "load_ipython_extension": "extension",
    "lower": "lowering.lower",
    "mark_dynamic": "pipeline",
    "mark_static": "pipeline",
    "partition": "aot.partition",
    "plan_memory": "scheduling.memory",
    "register_backend": "backends",
    "reset": "pipeline",
    "schedule": "scheduling.fusion",
    "stats": "pipeline",
}

__all__ = [
    "Step",
    "Trace",
    "aot_autograd",
    "build",
    "capture",
    "compile",
    "decompose",
    "disable",
    "explain",
    "functionalize",
    "generate",
    "inspect",
    "joint",
    "list_backends",
    "load_ipython_extension",
    "lower",
    "mark_dynamic",
    "mark_static",
    "partition",
    "plan_memory",
    "register_backend",
    "reset",
    "schedule",
    "stats",
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
