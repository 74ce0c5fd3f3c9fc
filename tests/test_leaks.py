"""Nothing is left: when a compiled function goes, or is reset, all that was made for it goes, and nothing of the program is kept."""

from __future__ import annotations

import gc
import types
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import compiler_lab
from compiler_lab.core.errors import BackendFailed
from compiler_lab.frames.convert import Entry
from compiler_lab.frames.entry import CompiledFunction
from compiler_lab.frames.guards import GuardTree
from compiler_lab.frames.interpreter import Interpreter

KINDS = (fx.GraphModule, fx.Graph, FakeTensor, FakeTensorMode, types.CodeType, types.FunctionType, torch.Tensor, nn.Module, GuardTree, Entry, CompiledFunction,
         Interpreter, types.CellType, type)  # fmt: skip
X = torch.ones(2, 3)


@pytest.fixture(scope="module", autouse=True)
def settled() -> None:
    """What the tests before have left is not looked at: it would be walked hundreds of times."""
    gc.collect()
    gc.freeze()


def alive() -> Counter[str]:
    """How many objects of each kind there are, of those made since."""
    for _ in range(3):
        gc.collect()
    return Counter(kind.__name__ for o in gc.get_objects() for kind in KINDS if issubclass(type(o), kind))


class Program:
    """A program made anew for each round: ``call`` makes a call; the rest is watched."""

    def __init__(self, call: Callable[[], Any], *watched: Any) -> None:
        self.call, self.watched = call, watched


Compile = Callable[[Any], Any]


def a_function(compile: Compile) -> Program:
    def fn(x: Any) -> Any:
        return torch.sin(x) + 1

    compiled = compile(fn)
    return Program(lambda: compiled(X), fn, compiled)


def a_closure(compile: Compile) -> Program:
    weight = torch.ones(3)
    inner = lambda x: x * weight

    def fn(x: Any) -> Any:
        return inner(x) + weight

    compiled = compile(fn)
    return Program(lambda: compiled(X), fn, inner, weight, compiled)


def a_method(compile: Compile) -> Program:
    class Owner:
        def __init__(self) -> None:
            self.weight = torch.ones(3)

        def method(self, x: Any) -> Any:
            return x * self.weight

    owner = Owner()
    compiled = compile(owner.method)
    return Program(lambda: compiled(X), owner, Owner, owner.weight)


def a_decorated_method(compile: Compile) -> Program:
    class Owner:
        @compile
        def method(self, x: Any) -> Any:
            return x * 2

    owner = Owner()
    return Program(lambda: owner.method(X), owner, Owner)


def a_module(compile: Compile) -> Program:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = compile(module)
    return Program(lambda: compiled(X).sum().backward(), module, module[0].weight, compiled)


def a_local_class(compile: Compile) -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(x)

    module = Net()
    compiled = compile(module)
    return Program(lambda: compiled(X), module, Net, compiled)


def a_break(compile: Compile) -> Program:
    def below(x: Any) -> Any:
        return torch.cos(x)

    def fn(x: Any) -> Any:
        y = x + 1
        print(end="")
        return below(y)

    compiled = compile(fn)
    return Program(lambda: compiled(X), fn, below, compiled)


def a_generator(compile: Compile) -> Program:
    def fn(x: Any) -> Any:
        yield x + 1

    compiled = compile(fn)
    return Program(lambda: list(compiled(X)), fn, compiled)


def an_error(compile: Compile) -> Program:
    def fn(x: Any) -> Any:
        raise ValueError(x + 1)

    def call() -> None:
        with pytest.raises(ValueError):
            compiled(X)

    compiled = compile(fn)
    return Program(call, fn, compiled)


def many_entries(compile: Compile) -> Program:
    def fn(x: Any, k: Any) -> Any:
        return x * k

    def call() -> None:
        for k in (1, 2.5, "a", None, X):
            try:
                compiled(X, k)
            except TypeError:
                continue

    compiled = compile(fn)
    return Program(call, fn, compiled)


def a_module_as_argument(compile: Compile) -> Program:
    module = nn.Linear(3, 3)

    def fn(m: Any, x: Any) -> Any:
        return m(x)

    compiled = compile(fn)
    return Program(lambda: compiled(module, X), module, module.weight, fn)


PROGRAMS = {
    f.__name__: f
    for f in (a_function, a_closure, a_method, a_decorated_method, a_module, a_local_class, a_break, a_generator, an_error, many_entries, a_module_as_argument)
}


def ours(fn: Any) -> Any:
    return compiler_lab.compile(fn, backend="eager")


def assert_nothing_left(once: Callable[[], list[weakref.ref[Any]]]) -> None:
    """``once`` makes something and lets go of it; it gives references to what must be gone then."""
    once()  # what is imported, read and cached once
    once()
    before = alive()
    watched = once() + once() + once()
    more = alive() - before
    assert watched and [r() for r in watched] == [None] * len(watched)
    assert not more


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_function_that_goes_takes_everything_with_it(name: str) -> None:
    def once() -> list[weakref.ref[Any]]:
        program = PROGRAMS[name](ours)
        program.call()
        program.call()
        return [weakref.ref(w) for w in program.watched]

    assert_nothing_left(once)


@pytest.mark.parametrize("name", PROGRAMS)
def test_reset_gives_back_what_calls_have_made(name: str) -> None:
    program = PROGRAMS[name](ours)
    for _ in range(2):
        program.call()
        compiler_lab.reset()
    before = alive()
    for _ in range(3):
        program.call()
        program.call()
        compiler_lab.reset()
    assert not alive() - before
    program.call()


def test_a_backend_that_fails_keeps_nothing() -> None:
    def once() -> weakref.ref[Any]:
        def fn(x: Any) -> Any:
            return x + 1

        def backend(graph: Any, inputs: Any) -> Any:
            raise RuntimeError("no")

        with pytest.raises(BackendFailed):
            compiler_lab.compile(fn, backend=backend)(X)
        return weakref.ref(fn)

    assert_nothing_left(lambda: [once()])


def test_capture_keeps_nothing() -> None:
    def once() -> weakref.ref[Any]:
        fn = lambda x: x + 1
        captured = compiler_lab.capture(fn, X)
        assert captured.graphs
        return weakref.ref(fn)

    assert_nothing_left(lambda: [once()])


def test_entries_of_modules_that_are_gone_are_dropped() -> None:
    graphs: list[int] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    class Other(nn.Module):
        pass

    def make(n: int) -> nn.Module:
        cls = type(f"Net{n}", (Other,), {"forward": lambda self, x: x * 2})
        return cls()

    compiled = compiler_lab.compile(lambda m, x: m(x), backend=backend, options={"recompile_limit": 3})
    for n in range(12):
        module = make(n)
        torch.testing.assert_close(compiled(module, X), X * 2)
        del module
        gc.collect()
    assert len(graphs) == 12, "entries of dead classes make room"
    assert len(compiled._compiled_function.entries) <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("kind", ["whole", "pieces", "left to Python"])
def test_what_the_compiling_call_was_given_is_freed_at_once(kind: str, backend: str) -> None:
    """Capture's own values hold each other: the tensors of a call are not to wait for a collection because of that."""

    def fn(x: Any, items: list[Any]) -> Any:
        if kind == "pieces":
            items[0].item()
        if kind == "left to Python":
            raise ValueError
        return x * items[0] + 1

    compiled = compiler_lab.compile(fn, backend=backend)
    x, y = torch.ones(3), torch.ones(())
    gone = [weakref.ref(x), weakref.ref(y)]
    gc.collect()
    gc.disable()
    try:
        with suppress(ValueError):
            compiled(x, [y])
        del x, y
        assert [r() for r in gone] == [None, None]
    finally:
        gc.enable()


def test_an_exception_that_the_program_handles_keeps_its_traceback() -> None:
    def fn(x: Any) -> Any:
        raise ValueError

    compiled = compiler_lab.compile(fn, backend="eager")
    try:
        raise KeyError
    except KeyError as error:
        with pytest.raises(ValueError) as caught:
            compiled(X)
        assert caught.value.__context__ is error
        assert error.__traceback__ is not None
