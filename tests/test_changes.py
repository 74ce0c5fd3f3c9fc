"""What a program can change between two calls: a compiled function sees every such change, as plain Python does."""

from __future__ import annotations

import builtins
import enum
import types
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_globals

import compiler_lab

X = torch.arange(4.0)
Case = tuple[Callable[..., Any], tuple[Any, ...], Callable[[], Any]]  # program, arguments, change
Change = Callable[[pytest.MonkeyPatch], Case]


class Plain:
    rate = 5

    def __call__(self, x: Any) -> Any:
        return x * 2

    def method(self, x: Any) -> Any:
        return x * 3

    @property
    def half(self) -> int:
        return 4

    @staticmethod
    def fixed(x: Any) -> Any:
        return x + 1

    @classmethod
    def made(cls, x: Any) -> Any:
        return x + 2


class Child(Plain):
    pass


class Grandchild(Child):
    def method(self, x: Any) -> Any:
        return super().method(x) + 1


class Dynamic:
    def __getattr__(self, name: str) -> int:
        return len(name)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LeakyReLU()])
        self.scale = 2
        self.table = {"a": 1.0, "b": 2.0}
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any) -> Any:
        x = self.fc(x) * self.scale + self.shift
        for v in self.table.values():
            x = x * v + 1
        for layer in self.layers:
            x = layer(x)
        return x


def helper(x: Any, k: int = 2, *, extra: int = 1) -> Any:
    return x * k + extra


def other(x: Any, k: int = 2, *, extra: int = 1) -> Any:
    return x - k - extra


TABLE = {"a": 1, "b": 2}
NUMBERS: list[Any] = [1, 2]
ELEMENTS = {1, 2}
COLOUR = Colour.RED
WEIGHT = torch.ones(4)
plain, child, grandchild, dynamic = Plain(), Child(), Grandchild(), Dynamic()


@pytest.fixture(autouse=True)
def same_state() -> Generator[None]:
    """State that has no attribute a monkeypatch could put back."""
    table, numbers, elements, threads = dict(TABLE), list(NUMBERS), set(ELEMENTS), torch.get_num_threads()
    codes = {f: (f.__code__, f.__defaults__, dict(f.__kwdefaults__ or {})) for f in (helper, other)}
    yield
    TABLE.clear()
    TABLE.update(table)
    NUMBERS[:] = numbers
    ELEMENTS.clear()
    ELEMENTS.update(elements)
    for f, (code, defaults, kwdefaults) in codes.items():
        f.__code__, f.__defaults__, f.__kwdefaults__ = code, defaults, kwdefaults  # type: ignore[assignment]
    for thing in (plain, child, dynamic):
        thing.__dict__.clear()
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def own(name: str, value: Any) -> Change:
    """A function whose own ``name`` is replaced."""

    def case(patch: pytest.MonkeyPatch) -> Case:
        def fn(x: Any, k: int = 2, *, extra: int = 1) -> Any:
            return x * k + extra

        return fn, (X,), lambda: setattr(fn, name, value)

    return case


def fn(program: Callable[..., Any], change: Callable[[pytest.MonkeyPatch], Any], *args: Any) -> Change:
    return lambda patch: (program, (X, *args), lambda: change(patch))


def on_class(cls: type, name: str, value: Any, *programs: Callable[..., Any]) -> dict[str, Change]:
    change = lambda patch: patch.setattr(cls, name, value, raising=False)
    return {f"{cls.__name__}.{name} {i}": fn(p, change) for i, p in enumerate(programs)}


def on_module(change: Callable[[Net, pytest.MonkeyPatch], Any], *, whole: bool = True) -> Change:
    """``whole``: the module itself is compiled; otherwise a function that calls it."""

    def case(patch: pytest.MonkeyPatch) -> Case:
        net = Net()
        return net if whole else (lambda x: net(x)), (X,), lambda: change(net, patch)

    return case


def rebound(inner: bool) -> Change:
    def case(patch: pytest.MonkeyPatch) -> Case:
        factor = 2

        def below(x: Any) -> Any:
            return x * factor

        def change() -> None:
            nonlocal factor
            factor = 7

        return (lambda x: below(x)) if inner else below, (X,), change

    return case


def function_in_a_cell(patch: pytest.MonkeyPatch) -> Case:
    inner = lambda x: x * 2

    def change() -> None:
        nonlocal inner
        inner = lambda x: x - 1

    return (lambda x: inner(x)), (X,), change


def contents_of_a_default(patch: pytest.MonkeyPatch) -> Case:
    def program(x: Any, k: list[int] = [2]) -> Any:  # noqa: B006 - that is the point
        return x * k[0]

    return program, (X,), lambda: program.__defaults__[0].append(1) or program.__defaults__[0].__setitem__(0, 9)  # type: ignore[index]


def normed(layer: nn.Module) -> Any:
    parametrized: Any = nn.utils.parametrizations.weight_norm(layer)
    return parametrized.parametrizations.weight.original0


HOOK = lambda module, args, out: out * 3
FUNCTIONS: dict[str, Change] = {
    "own code": own("__code__", other.__code__), "own defaults": own("__defaults__", (5,)), "own kwdefaults": own("__kwdefaults__", {"extra": 8}),
    "default gone and back": own("__defaults__", (2,)), "contents of a default": contents_of_a_default,
    "callee code": fn(lambda x: helper(x), lambda p: setattr(helper, "__code__", other.__code__)),
    "callee defaults": fn(lambda x: helper(x), lambda p: setattr(helper, "__defaults__", (5,))),
    "callee kwdefaults": fn(lambda x: helper(x), lambda p: setattr(helper, "__kwdefaults__", {"extra": 5})),
    "argument's code": fn(lambda x, f: f(x), lambda p: setattr(helper, "__code__", other.__code__), helper),
    "global function": fn(lambda x: helper(x), lambda p: p.setitem(globals(), "helper", other)),
    "cell": rebound(False), "cell of an inner function": rebound(True), "function in a cell": function_in_a_cell,
    "built-in shadowed": fn(lambda x: x * len([1, 2]), lambda p: p.setitem(globals(), "len", lambda v: 7)),
    "built-in class shadowed": fn(lambda x: x * int(2.5), lambda p: p.setitem(globals(), "int", lambda v: 7)),
    "built-in replaced": fn(lambda x: x * max(1, 2), lambda p: p.setattr(builtins, "max", lambda *a: 99)),
    "torch's function": fn(lambda x: torch.tanh(x), lambda p: p.setattr(torch, "tanh", torch.sin)),
    "torch's Python function": fn(lambda x: nn.functional.relu(x - 2), lambda p: p.setattr(nn.functional, "relu", torch.sin)),
}  # fmt: skip
CLASSES: dict[str, Change] = {
    **on_class(Plain, "__call__", lambda s, x: x - 1, lambda x: plain(x), lambda x: child(x)),
    **on_class(Plain, "method", lambda s, x: x - 1, lambda x: plain.method(x), lambda x: child.method(x), lambda x: grandchild.method(x)),
    **on_class(Plain, "half", property(lambda s: 9), lambda x: x * plain.half),
    **on_class(Plain, "fixed", staticmethod(lambda x: x - 5), lambda x: plain.fixed(x), lambda x: Child.fixed(x)),
    **on_class(Plain, "made", classmethod(lambda c, x: x - 5), lambda x: plain.made(x)),
    **on_class(Plain, "rate", 77, lambda x: x * plain.rate, lambda x: x * Child.rate),
    **on_class(Child, "method", lambda s, x: x - 1, lambda x: child.method(x), lambda x: grandchild.method(x)),
    **on_class(Child, "rate", 1, lambda x: x * child.rate),
    **on_class(Child, "__getattribute__", lambda s, n: 3, lambda x: x * child.rate),
    **on_class(Child, "__bool__", lambda s: False, lambda x: x * (2 if child else 3)),
    **on_class(Child, "__len__", lambda s: 0, lambda x: x * (2 if child else 3)),
    **on_class(Child, "__eq__", lambda s, o: True, lambda x: x * (2 if child == x.dim() else 3)),
    **on_class(Child, "new", 1, lambda x: x * (2 if hasattr(child, "new") else 3)),
    **on_class(Dynamic, "__getattr__", lambda s, n: 9, lambda x: x * dynamic.abc),
    **on_class(Dynamic, "abc", 1, lambda x: x * dynamic.abc),
    "instance attribute before the class's": fn(lambda x: x * child.rate, lambda p: setattr(child, "rate", 1)),
    "instance attribute before a method": fn(lambda x: child.method(x), lambda p: setattr(child, "method", lambda x: x - 1)),
    "instance attribute before __getattr__": fn(lambda x: x * dynamic.abc, lambda p: setattr(dynamic, "abc", 1)),
    "hasattr": fn(lambda x: x * (2 if hasattr(child, "new") else 3), lambda p: setattr(child, "new", 1)),
    "class of an instance": fn(lambda x: child.method(x), lambda p: p.setattr(child, "__class__", Grandchild)),
}  # fmt: skip
VALUES: dict[str, Change] = {
    "dict order": fn(lambda x: x * next(iter(TABLE.values())), lambda p: TABLE.update(a=TABLE.pop("a"))),
    "list length": fn(lambda x: x * sum(NUMBERS), lambda p: NUMBERS.append(4)),
    "list element": fn(lambda x: x * NUMBERS[0], lambda p: NUMBERS.__setitem__(0, 4)),
    "type of an equal element": fn(lambda x: (x, NUMBERS[0]), lambda p: NUMBERS.__setitem__(0, True)),
    "set": fn(lambda x: x * (3 in ELEMENTS), lambda p: ELEMENTS.add(3)),
    "enum": fn(lambda x: x * (2 if COLOUR is Colour.RED else 3), lambda p: p.setitem(globals(), "COLOUR", Colour.BLUE)),
    "global tensor": fn(lambda x: x + WEIGHT, lambda p: p.setitem(globals(), "WEIGHT", torch.ones(4, dtype=torch.float64))),
    "default dtype": fn(lambda x: x + torch.ones(4), lambda p: torch.set_default_dtype(torch.float64)),
    "determinism": fn(lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3), lambda p: torch.use_deterministic_algorithms(True)),
    "threads": fn(lambda x: x * torch.get_num_threads(), lambda p: torch.set_num_threads(torch.get_num_threads() + 1)),
    "a backend's flag": fn(lambda x: x * (2 if torch.backends.mkldnn.enabled else 3), lambda p: p.setattr(torch.backends.mkldnn, "enabled", False)),
}  # fmt: skip
MODULES: dict[str, Callable[[Net, pytest.MonkeyPatch], Any]] = {
    "hook": lambda m, p: m.register_forward_hook(HOOK),
    "hook below": lambda m, p: m.fc.register_forward_hook(HOOK),
    "hook in a list": lambda m, p: m.layers[1].register_forward_hook(HOOK),
    "pre-hook": lambda m, p: m.fc.register_forward_pre_hook(lambda module, args: (args[0] * 3,)),
    "number": lambda m, p: setattr(m, "scale", 5),
    "value in a dict": lambda m, p: m.table.update(a=9.0),
    "order of a dict": lambda m, p: setattr(m, "table", {"b": 2.0, "a": 1.0}),
    "growing dict": lambda m, p: m.table.update(z=1.0),
    "parameter": lambda m, p: setattr(m.fc, "weight", nn.Parameter(torch.zeros(4, 4))),
    "data of a parameter": lambda m, p: m.fc.weight.data.zero_(),
    "buffer": lambda m, p: m.register_buffer("shift", torch.zeros(4, dtype=torch.float64)),
    "appended": lambda m, p: m.layers.append(nn.Sigmoid()),
    "inserted": lambda m, p: m.layers.insert(0, nn.Sigmoid()),
    "submodule": lambda m, p: setattr(m, "fc", nn.Identity()),
    "forward of an instance": lambda m, p: setattr(m.fc, "forward", lambda x: x * 4),
    "forward of the class": lambda m, p: p.setattr(Net, "forward", lambda s, x: x * 9),
    "instance attribute over a submodule": lambda m, p: m.__dict__.update(fc=nn.Identity()),
    "instance attribute over a parameter": lambda m, p: m.fc.__dict__.update(weight=torch.zeros(4, 4)),
    "property over a submodule": lambda m, p: p.setattr(Net, "fc", property(lambda s: nn.Identity()), raising=False),
    "another class": lambda m, p: setattr(m, "__class__", types.new_class("Other", (Net,), {}, lambda d: d.update(forward=lambda s, x: x))),
    "weight norm": lambda m, p: normed(m.fc).data.mul_(2),
}  # fmt: skip
PROGRAMS: dict[str, Change] = {
    **FUNCTIONS, **CLASSES, **VALUES,
    **{f"module: {k}": on_module(v) for k, v in MODULES.items()}, **{f"called module: {k}": on_module(v, whole=False) for k, v in MODULES.items()},
}  # fmt: skip


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*args)
    except Exception as error:  # noqa: BLE001 - whatever Python raises, compiled code raises
        return repr(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    program, args, change = PROGRAMS[name](monkeypatch)
    compiled = compiler_lab.compile(program, backend="eager")
    before = program(*args)
    torch.testing.assert_close(compiled(*args), before, rtol=0, atol=0)
    change()
    expected = outcome(program, args)
    got = outcome(compiled, args)
    if isinstance(expected, str):
        assert got == expected
    else:
        assert repr(got) == repr(expected)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
    if name != "default gone and back":
        assert repr(before) != repr(expected), "the change must be one that can be seen"


def test_a_global_hook_added_later_runs() -> None:
    net, calls = Net(), []
    compiled = compiler_lab.compile(lambda x: net(x), backend="eager")
    compiled(X)
    handle = module_globals.register_module_forward_hook(lambda *a: calls.append(1))
    try:
        compiled(X)
        count = len(calls)
        net(X)
        assert count == len(calls) - count > 0
    finally:
        handle.remove()


def test_a_default_that_was_passed_is_not_taken_for_the_default() -> None:
    """After the defaults have changed, a value equal to the old default, even the same object, is still what the caller passed."""

    def program(x: Any, k: int = 2, m: int = 3) -> Any:
        return x * k + m

    compiled = compiler_lab.compile(program, backend="eager")
    compiled(X)
    program.__defaults__ = (5, 7)
    calls: list[tuple[Any, Any]] = [((X, 2), {}), ((X,), {"m": 3}), ((X,), {}), ((X,), {"k": 2})]
    for args, kwargs in calls:
        torch.testing.assert_close(compiled(*args, **kwargs), program(*args, **kwargs))


def test_a_reloaded_function_keeps_its_compiled_name() -> None:
    """What notebooks do on autoreload: the old function object gets the new code."""

    def program(x: Any) -> Any:
        return x * 2

    def edited(x: Any, k: int = 3) -> Any:
        return x + k

    compiled = compiler_lab.compile(program, backend="eager")
    compiled(X)
    program.__code__, program.__defaults__ = edited.__code__, edited.__defaults__
    compiled(X)
    torch.testing.assert_close(compiled(X), X + 3)
    torch.testing.assert_close(compiled(X, k=4), X + 4)
    assert len(compiled._compiled_function.entries) == 2
