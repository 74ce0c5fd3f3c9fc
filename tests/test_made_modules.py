"""Modules of torch's own that a program makes while it runs, and signatures that it asks for: compared with plain Python, call by call."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab

from .program_check import check, loaded

COMMON = """
import functools
import inspect
import torch
from torch import nn
import torch.nn.functional as F

log = []
layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
for n, layer in enumerate(layers):
    nn.init.constant_(layer.weight, 0.1 * (n + 1))
    nn.init.zeros_(layer.bias)


def plain(a, b=1, *args, c, **kw):
    return a


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs)
    return wrapper


@decorated
def wrapped(u, v):
    return u


class K:
    def method(self, x, y):
        return x


def inputs(call):
    return (torch.ones(2, 3) + call,), {}
"""
TEXT = """
## a slice of a list of modules
def f(x):
    for layer in layers[: 2]:
        x = layer(x)
    return x, len(layers[1:]), bool(layers[:0])

## a slice, used on
def f(x):
    part = layers[1:]
    for n, (a, b) in enumerate(zip(part, layers[:3])):
        x = a(x) + b(x) + n
    return part[0](x) + part[-1](x) + part[1:][0](x)

## a slice that is handed out
def f(x):
    part = layers[:2]
    return part[0](x), len(part), [m.weight for m in part]

## a loss
def f(x):
    loss = nn.CrossEntropyLoss(ignore_index=-100)
    return loss(x, torch.tensor([0, 1])), loss.ignore_index, loss.training

## a loss, handed out
def f(x):
    loss = nn.MSELoss(reduction='sum')
    return loss, loss(x, x * 2)

## losses and activations
def f(x):
    return nn.BCEWithLogitsLoss()(x, torch.ones(2, 3)), nn.GELU()(x), nn.Softmax(dim=-1)(x), nn.Dropout(0.0)(x), nn.Identity()(x)

## modules with parameters
def f(x):
    return nn.Linear(3, 2)(x).shape, nn.PReLU()(x), torch.rand(2)

## a loss with a weight
def f(x):
    return nn.CrossEntropyLoss(weight=torch.ones(3))(x, torch.tensor([0, 1]))

## a module of the user's
class Act(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.keep = torch.ones(3)
    def forward(self, x):
        return F.silu(x) * self.scale + self.keep
def f(x):
    act = Act(2)
    act.extra = 'e'
    return act(x), act.training, act.extra, hasattr(act, 'nothing'), list(act.parameters()), act.eval().training

## a module of the user's, handed out
class Act(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3
    def forward(self, x):
        return x * self.scale
def f(x):
    act = Act()
    return act(x), act

## a module of the user's that holds more
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer('b', torch.ones(3))
    def forward(self, x):
        return self.act(x) * self.w + self.b
def f(x):
    return Net()(x), Net()

## a module without its own init
class Act(nn.Module):
    def forward(self, x):
        return x + 1
def f(x):
    return Act()(x), nn.Sequential(Act(), Act())(x)

## a module whose init is not called
class Act(nn.Module):
    def __init__(self):
        pass
def f(x):
    try:
        Act().x = 1
        Act().y
    except AttributeError as e:
        return x, e.args

## a loss that is wrong
def f(x):
    try:
        nn.CrossEntropyLoss(nonsense=1)
    except TypeError as e:
        return x, 'TypeError'

## a loss that warns
def f(x):
    return nn.MSELoss(size_average=False)(x, x * 2)

## signatures
def f(x):
    k = K()
    return x + 1, list(inspect.signature(plain).parameters), len(inspect.signature(k.method).parameters), 'y' in inspect.signature(K.method).parameters

## a signature behind a wrapper
def f(x):
    return x + 1, list(inspect.signature(wrapped).parameters.keys())

## a cached function that is said to be constant
@functools.lru_cache
@torch.compiler.assume_constant_result
def version(name, dev=False):
    log.append(name)
    return len(name) + dev
def f(x):
    return x + version('abc') + version('abc', dev=True), callable(version), version.__name__

## a cached function
@functools.lru_cache
def seen(n):
    log.append(n)
    return n + 1
def f(x):
    return x + seen(1) + seen(2) + seen(1), list(log)

## a cached method
class C:
    @functools.lru_cache
    def seen(self, n):
        log.append(n)
        return n + 1
c = C()
def f(x):
    return x + c.seen(1) + c.seen(2), list(log)

## what parameters say
def f(x):
    p = inspect.signature(plain).parameters
    return x + 1, p['b'].default, p['c'].kind.name
"""
PROGRAMS = {name: program for name, _, program in (part.partition("\n") for part in TEXT.split("## ")[1:])}
WHOLE = (
    "a slice of a list of modules",
    "a slice, used on",
    "a loss",
    "a loss, handed out",
    "a module of the user's, handed out",
    "losses and activations",
    "signatures",
    "a signature behind a wrapper",
    "a cached function that is said to be constant",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_plain(name: str) -> None:
    found = check(COMMON + PROGRAMS[name], calls=3)
    assert found is None, str(found)


@pytest.mark.parametrize("name", WHOLE)
def test_these_are_whole(name: str, tmp_path: Path) -> None:
    with loaded(COMMON + PROGRAMS[name], tmp_path / "program.py") as module:
        compiled = compiler_lab.compile(module.f, backend="eager", fullgraph=True)
        try:
            compiled(torch.ones(2, 3))
            assert compiler_lab.stats()["breaks"] == 0
        finally:
            compiler_lab.reset()


def test_modules_are_made_in_a_process_that_has_used_torch_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From then on ``nn.Module.__init__`` notes each new module in a dict by identity."""
    from torch._dynamo import mutation_guard

    plain = getattr(nn.Module, "___needs_generation_tag_patch", True)
    monkeypatch.setattr(nn.Module, "__init__", nn.Module.__init__)
    monkeypatch.setattr(nn.Module, "__setstate__", nn.Module.__setstate__)
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", plain, raising=False)
    mutation_guard.install_generation_tagging_init()
    assert "mutation_guard" in nn.Module.__init__.__module__
    for name in WHOLE:
        test_these_are_whole(name, tmp_path)


def test_a_signature_is_guarded() -> None:
    def one(a: Any) -> Any:
        return a

    def two(a: Any, b: Any) -> Any:
        return a

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + len(inspect.signature(one).parameters)

    compiled = compiler_lab.compile(f, backend="eager")
    x = torch.ones(2)
    try:
        assert torch.equal(compiled(x), x + 1)
        one.__code__ = two.__code__
        assert torch.equal(compiled(x), x + 2)
        one.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        assert torch.equal(compiled(x), x)
    finally:
        compiler_lab.reset()


def test_hooks_on_all_modules_see_one_that_is_made() -> None:
    seen: list[str] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        return nn.GELU()(x) + 1

    compiled = compiler_lab.compile(f, backend="eager")
    x = torch.ones(2)
    try:
        compiled(x)
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append(type(module).__name__))
        try:
            compiled(x)
        finally:
            handle.remove()
        assert seen == ["GELU"]
    finally:
        compiler_lab.reset()
