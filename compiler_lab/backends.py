"""Backends by name, backends of the user's own, and ``aot_autograd``, which makes one out of two inner compilers.

A backend is any callable ``(gm, example_inputs) -> callable``. The top one gets a ``torch.fx.GraphModule`` of torch-level nodes, with
parameters as placeholders, and real example tensors; inner compilers get aten graphs and fake tensors and give back a boxed
callable (one list of inputs, which it may empty early) or a plain one. A backend's graph is its own to edit.
PyTorch's counterpart: ``torch/_dynamo/backends/{registry,common}.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torch import Tensor

from .aot.decompose import decompose
from .aot.functionalize import functionalize
from .aot.ir import JointGraph
from .aot.joint import joint
from .aot.partition import Partition, partition
from .core.errors import UnknownOption
from .core.fx import GraphArtifact, fork
from .core.modes import below_modes
from .core.options import Decompositions, Options
from .core.recompiled import handed_back
from .frames.concrete import by_size, is_symbolic
from .frames.convert import unseen
from .graph.passes import eliminate_common_subexpressions, eliminate_dead_code
from .runtime.autograd import bind
from .runtime.trial import calls_custom, on_trial, watched

Backend = Callable[[fx.GraphModule, list[Tensor]], Callable[..., Any]]
InnerCompiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]

_REGISTERED: dict[str, Backend] = {}  # the one registry there is: a name, once registered, is known everywhere
BUILT_IN = ("aot_eager", "aot_eager_decomp", "eager", "lab")


def register_backend(backend: Backend | None = None, name: str | None = None) -> Any:
    """``@register_backend`` or ``register_backend(fn, name="...")``: ``compile(f, backend=name)`` finds it; the default name is the function's."""
    if backend is None:
        return lambda fn: register_backend(fn, name)
    if not callable(backend):
        raise UnknownOption(f"a backend must be callable, not {type(backend).__name__}", hint="give a function (gm, example_inputs) -> callable")
    name = name or str(getattr(backend, "__name__", type(backend).__name__))
    if name in BUILT_IN:
        raise UnknownOption(f"{name!r} is the name of a built-in backend", hint="choose another name")
    _REGISTERED[name] = backend
    return backend


def list_backends() -> list[str]:
    """Every name that ``backend=`` takes, sorted."""
    return sorted([*BUILT_IN, *_REGISTERED])


def registered(name: str) -> Backend:
    """The user's backend of that name. Raises ``UnknownOption`` with the known ones."""
    if name not in _REGISTERED:
        raise UnknownOption(f"unknown backend {name!r}", hint=f"known backends: {', '.join(list_backends())}; or pass a callable (gm, example_inputs)")
    return _REGISTERED[name]


def aot_autograd(
    fw_compiler: InnerCompiler,
    bw_compiler: InnerCompiler | None = None,
    partition_fn: Callable[[JointGraph], Partition] = partition,
    decompositions: Decompositions | None = None,
) -> Backend:
    """A backend that traces forward and backward together, cuts them, and compiles each half.

    fw_compiler, bw_compiler: ``(gm, fake_inputs) -> callable`` for the halves; the backward's is the forward's by default.
    partition_fn: ``JointGraph -> Partition``; ours by default, a learner's own fits.
    decompositions: the name of a table ("inductor-like", "core"); none by default.
    Arguments that share memory are taken to share it in the same way at each call: nothing is checked here, the guards of capture see to it.
    """
    bw_compiler = bw_compiler or fw_compiler

    def backend(gm: fx.GraphModule, args: list[Tensor]) -> Callable[..., Any]:
        if is_symbolic(gm):  # later stages know numbers only
            return by_size(gm, args, lambda module, tensors, kept: backend(module, tensors), Options().recompile_limit, unseen)
        traced = joint(GraphArtifact(gm, "frames"), *args)
        with below_modes():
            traced = eliminate_dead_code(functionalize(traced))
            if decompositions:
                traced = eliminate_dead_code(eliminate_common_subexpressions(decompose(traced, decompositions)))
            part = partition_fn(traced)
            forward = _one_by_one(_inner(fw_compiler, part.forward, "aot.forward"))
            backward = _inner(bw_compiler, part.backward, "aot.backward") if part.backward is not None else None
        custom = [half.graph for half in (part.forward, part.backward) if half is not None and calls_custom(half.graph)]
        if custom and backward is not None:
            backward = watched(backward, always=False)
        compiled = bind(part.spec, len(part.saved), forward, backward)
        return on_trial(compiled, gm.forward, custom, lambda error: warnings.warn(str(error), stacklevel=2)) if custom else compiled

    return backend


def _inner(compiler: InnerCompiler, half: GraphArtifact, stage: str) -> Callable[..., Any]:
    module = fork(half.module, stage)
    return handed_back(compiler(module, [p.meta["val"] for p in half.placeholders]), module)


def _one_by_one(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Called with its inputs one by one, whatever convention ``compiled`` has."""
    if getattr(compiled, "_boxed_call", False):
        return lambda *inputs: tuple(compiled(list(inputs)))
    return compiled
