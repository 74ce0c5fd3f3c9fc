"""What ``nn.Module`` does around forward: hooks, parametrizations, containers, calls and attribute reads of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn as nn
from torch import Tensor
from torch.nn.utils import parametrizations, parametrize

import compiler_lab

from .torch_surface import same

MODULES: dict[str, Callable[[], nn.Module]] = {}


def module(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    MODULES[make.__name__] = make
    return make


def x() -> tuple[Tensor]:
    return (torch.randn(4, 8),)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor, k: float = 1.0) -> Tensor:
        return self.inner(x) * k


class Calls(nn.Module):
    def __init__(self, scaled: Scaled) -> None:
        super().__init__()
        self.scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x, k=2.0) + self.scaled(x)


class Symmetric(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w.triu() + w.triu(1).T


class Own(nn.Linear):
    def __call__(self, x: Tensor) -> Any:
        return super().__call__(x) * 2


class Delegates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.register_buffer("shift", torch.ones(8))
        self.register_buffer("nothing", None)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) + self.weight.sum() + self.shift + (0 if self.nothing is None else 1), hasattr(self, "absent"), self.in_features


class Holds(nn.Module):
    """Parameters and modules in torch's lists and dicts, looked up, iterated, counted and named."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(3)])
        self.d = nn.ParameterDict({"a": nn.Parameter(torch.randn(8))})
        self.md = nn.ModuleDict({"x": nn.Linear(8, 8)})
        self.ml = nn.ModuleList([nn.Linear(8, 8)] * 2)

    def forward(self, x: Tensor) -> Any:
        for p in self.p:
            x = x + p
        for _, v in self.d.items():
            x = x * v
        for v in self.md.values():
            x = v(x)
        for i, layer in enumerate(self.ml):
            x = layer(x) + i
        x = self.ml[0](x) + self.p[1] + self.md["x"](x) + self.d["a"] + len(self.p) + len(self.d)
        for name, p in self.named_parameters():
            x = x + p.sum() * len(name)
        x = x + len(list(self.children())) + sum(len(name) for name, _ in self.named_modules())
        return x, "x" in self.md, list(self.md.keys()), self.p[-1] * 1


@module
def pre_hook_that_replaces() -> nn.Module:
    made = nn.Linear(8, 8)
    made.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return made


@module
def hooks_below() -> nn.Module:
    made = nn.Linear(8, 8)
    made.register_forward_hook(lambda module, args, out: out + args[0].sum())
    made.register_forward_hook(lambda module, args, out: None, always_call=True)
    return nn.Sequential(made, nn.ReLU())


@module
def hooks_with_keywords() -> nn.Module:
    made = Scaled()
    made.register_forward_pre_hook(lambda module, args, kwargs: (args, {"k": 3.0}), with_kwargs=True)
    made.register_forward_hook(lambda module, args, kwargs, out: out * kwargs["k"], with_kwargs=True)
    return Calls(made)


@module
def parametrized() -> nn.Module:
    made = nn.Linear(8, 8)
    parametrize.register_parametrization(made, "weight", Symmetric())
    return nn.Sequential(made)


@module
def weight_norm() -> nn.Module:
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)))


@module
def spectral_norm_in_eval() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 8))).eval()


@module
def orthogonal() -> nn.Module:
    return nn.Sequential(parametrizations.orthogonal(nn.Linear(8, 8)))


@module
def own_call() -> nn.Module:
    return nn.Sequential(Own(8, 8))


@module
def delegates() -> nn.Module:
    return Delegates()


@module
def recurrent() -> nn.Module:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LSTM(8, 8), nn.GRU(8, 8, bidirectional=True)

        def forward(self, x: Tensor) -> Any:
            return self.a(x[None])[0], self.b(x[None])[0]

    return Both()


@module
def compiled_in_place() -> nn.Module:
    made = nn.Linear(8, 8)
    made.compile(backend="eager")
    return nn.Sequential(made)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", MODULES)
def test_captured_whole(name: str, backend: str) -> None:
    counts = same(MODULES[name](), x, backend)
    assert counts["graphs"] == 1 and not counts["breaks"]


def backward_hook() -> nn.Module:
    made = nn.Linear(8, 8)
    made.register_full_backward_hook(lambda module, given, out: (given[0] * 2,))
    return nn.Sequential(nn.Linear(8, 8), made)


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8))


@pytest.mark.parametrize(("make", "reason"), [(backward_hook, "module-hooks"), (lazy, "module-created")])
def test_left_to_python_with_a_reason(make: Callable[[], nn.Module], reason: str) -> None:
    assert reason in same(make(), x)["break_reasons"]


def test_hooks_that_come_and_go() -> None:
    """An entry holds for the hooks that there were: of the module, of one below it, and of all modules."""
    inner = nn.Linear(8, 8)
    plain = nn.Sequential(inner)
    compiled = compiler_lab.compile(plain, backend="eager", fullgraph=True)
    (value,) = x()

    def add(module: Any, args: Any, out: Tensor) -> Any:
        return out + 1

    register: list[Callable[[], Any]] = [
        lambda: inner.register_forward_hook(add),
        lambda: plain.register_forward_hook(add),
        lambda: cast(Any, torch.nn.modules.module).register_module_forward_hook(add),
    ]
    for enter in register:
        assert torch.equal(compiled(value), plain(value))
        handle = enter()
        try:
            assert torch.equal(compiled(value), plain(value))
        finally:
            handle.remove()
        assert torch.equal(compiled(value), plain(value))


def test_training_is_guarded() -> None:
    made = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8))
    compiled = compiler_lab.compile(made, backend="eager", fullgraph=True)
    (value,) = x()
    for mode in (True, False, True):
        made.train(mode)
        torch.manual_seed(0)
        got = compiled(value)
        torch.manual_seed(0)
        assert torch.equal(got, made(value)) and compiled.training == mode
