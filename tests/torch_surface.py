"""What the tests of torch's own surface have in common: a program run plain and compiled, and everything of it that shows compared."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import compiler_lab

BACKENDS = ("eager", "aot_eager", "lab")
Context = Callable[[], contextlib.AbstractContextManager[Any]]


def modes() -> tuple[Any, ...]:
    """Every mode that a program can leave changed."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    casts = tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda"))
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), depth, torch.is_autocast_cache_enabled(), casts


def tensors(value: Any) -> list[Tensor]:
    """The tensors in a nest, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [t for part in parts for t in tensors(part)]


def seen(value: Any) -> Any:
    """What a program can tell of a result, but for the numbers."""
    if isinstance(value, Tensor):
        return (type(value), value.dtype, tuple(value.shape), value.requires_grad, value.is_leaf, value.is_inference())
    if isinstance(value, dict):
        return {k: seen(v) for k, v in value.items()}
    return type(value)([seen(v) for v in value]) if type(value) in (list, tuple) else value


def outcome(fn: Any, args: tuple[Any, ...], context: Context) -> tuple[Any, list[Tensor], list[Tensor | None]]:
    """(what shows, numbers, gradients) of one call from a fixed random state; an exception is what shows."""
    torch.manual_seed(0)
    shown: list[Any] = []
    with context():
        before = modes()
        try:
            result = fn(*args)
        except Exception as error:  # noqa: BLE001 - compared with the other run's
            return (type(error), str(error).splitlines()[:1], modes() == before), [], []
        shown.append(modes())
    found = tensors(result)
    wanted = [p for a in args for p in (a.parameters() if isinstance(a, torch.nn.Module) else tensors(a)) if p.requires_grad]
    wanted += list(fn.parameters()) if isinstance(fn, torch.nn.Module) else []
    scored = [t for t in found if t.requires_grad]
    grads: list[Tensor | None] = []
    if scored and wanted:
        loss = sum(((t.double() if not t.is_complex() else t.abs().double()) * torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)).sum() for t in scored)
        grads = list(torch.autograd.grad(loss, wanted, allow_unused=True))  # type: ignore[arg-type]
    return (seen(result), shown), [t.detach() for t in (*found, *tensors(args))], grads


def same(fn: Any, args: Callable[[], tuple[Any, ...]], backend: str = "eager", context: Context = contextlib.nullcontext, low: bool = False) -> Any:
    """Calls ``fn`` plain and compiled, twice each, and compares all that shows (``low``: rounded to bfloat16). Gives the counts of the compiled one."""
    compiler_lab.reset()
    torch.manual_seed(1)
    values = args()
    plain = copy.deepcopy(fn)
    compiled: Any = compiler_lab.compile(fn, backend=backend, options={"fallback_random": True} if backend == "lab" else None)
    mine, theirs = copy.deepcopy(values), copy.deepcopy(values)
    for _ in range(2):
        want, got = outcome(plain, theirs, context), outcome(compiled, mine, context)
        assert got[0] == want[0]
        for a, b in zip(got[1] + got[2], want[1] + want[2], strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=3e-2 if low else 1e-4, atol=1e-1 if low else 1e-4)
    return compiler_lab.stats()
