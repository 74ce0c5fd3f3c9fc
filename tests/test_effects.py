"""Changes of objects outside the frame, and the identity of objects inside and out: compiled equal to plain Python.

Each program of ``effect_programs`` runs three times in plain Python and three times compiled, on states of their own; after every call the
result and all that it can reach, with everything that was watched, must be the same: values, order of keys, and which object is which.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab
from compiler_lab.frames.capture import capture
from tests.effect_programs import CASES, TENSORS

SIMPLE = (int, float, complex, str, bytes, bool, type(None), type, range, torch.dtype, types.BuiltinFunctionType, types.ModuleType)
INNER = ("_backward_hooks", "_forward_hooks", "_backward_pre_hooks", "_forward_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks")


class Shape:
    """Values as plain data in which each object has a number, so that equal data means equal values and equal identities."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.keep: list[Any] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, SIMPLE) or isinstance(value, (types.CodeType, torch.device)):
            return (type(value).__name__, repr(value) if not callable(value) else value.__qualname__)
        if id(value) in self.seen:
            return ("again", self.seen[id(value)])
        number = self.seen[id(value)] = len(self.seen)
        self.keep.append(value)
        return (type(value).__name__, number, *self.parts(value))

    def all(self, values: Iterable[Any]) -> list[Any]:
        return [self.of(v) for v in values]

    def parts(self, value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return [
                value.dtype,
                value.requires_grad,
                value.shape,
                [f"{v:.5f}" for v in value.detach().double().flatten().tolist()],
                self.of(dict(value.__dict__)),
            ]
        if isinstance(value, (defaultdict, OrderedDict, dict)):
            return [self.all(k for k in value), self.all(value.values()), self.of(getattr(value, "default_factory", None))]
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, self.all(value)))
        if isinstance(value, (list, tuple, deque, type({}.keys()), type({}.values()), type({}.items()))):
            return [*self.all(value), getattr(value, "maxlen", None)]
        if isinstance(value, slice):
            return self.all((value.start, value.stop, value.step))
        if isinstance(value, types.FunctionType):
            names = {k: v for k, v in value.__dict__.items()}
            return [
                value.__qualname__,
                self.of(value.__defaults__),
                self.of(value.__kwdefaults__),
                self.of(value.__closure__),
                self.of(names),
                repr(value.__annotations__),
            ]
        if isinstance(value, types.CellType):
            try:
                return [self.of(value.cell_contents)]
            except ValueError:
                return ["empty"]
        if isinstance(value, (types.MethodType, types.MethodWrapperType)):
            return [value.__name__, self.of(value.__self__)]
        if hasattr(value, "func"):
            return self.all((value.func, value.args, value.keywords))
        if isinstance(value, BaseException):
            return [self.of(value.args), self.of(dict(value.__dict__)), self.of(value.__cause__), value.__traceback__ is None]
        slots = {n: getattr(value, n) for n in getattr(type(value), "__slots__", ()) if hasattr(value, n)}
        own = {k: v for k, v in getattr(value, "__dict__", {}).items() if k not in INNER and k not in ("_compile", "_compiled", "_forward_of")}
        return [self.of(own), self.of(slots)]


def watched(things: tuple[Any, ...]) -> list[Any]:
    """A class by its plain attributes, a reader by what it reads."""
    found: list[Any] = []
    for thing in things:
        if isinstance(thing, type):
            found.append({k: v for k, v in vars(thing).items() if not k.startswith("__")})
        else:
            found.append(thing() if isinstance(thing, types.FunctionType) and thing.__name__ in ("watch", "<lambda>") else thing)
    return found


def run(program: Callable[..., Any], args: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
    try:
        result = program(*args)
    except Exception as error:  # noqa: BLE001 - compared
        result = ("raised", type(error).__name__, str(error))
    return Shape().all([result, args, watched(others)])


def assert_as_python(name: str, backend: str, calls: int = 3) -> None:
    torch.manual_seed(0)
    program, args, others = CASES[name]()
    theirs = [run(program, args, others) for _ in range(calls)]
    program, args, others = CASES[name]()
    compiler_lab.reset()
    compiled = compiler_lab.compile(program, backend=backend, fullgraph=True)
    for i, want in enumerate(theirs):
        assert run(compiled, args, others) == want, f"call {i}"
    stats = compiler_lab.stats()
    assert not stats["breaks"], stats
    inner: Any = compiled._compiled if isinstance(compiled, nn.Module) else compiled._compiled_function
    assert inner.entries, "nothing was captured"


@pytest.mark.parametrize("name", CASES)
def test_program_leaves_what_python_leaves(name: str) -> None:
    assert_as_python(name, "eager")


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
@pytest.mark.parametrize("name", TENSORS)
def test_on_other_backends(name: str, backend: str) -> None:
    assert_as_python(name, backend)


@pytest.mark.parametrize("name", CASES)
def test_capture_changes_nothing_and_its_run_makes_the_effects(name: str) -> None:
    program, args, others = CASES[name]()
    want = run(program, args, others)
    program, args, others = CASES[name]()
    if isinstance(program, nn.Module):
        others = (program,)
    first = Shape().all([args, watched(others)])
    seen = capture(program, *args)
    assert first == Shape().all([args, watched(others)])
    seen.check()
    text = seen.text()
    assert seen.specialization is not None, text
    if not isinstance(program, nn.Module):
        assert Shape().all([seen.run(*args), args, watched(others)]) == want
        assert " at 0x" not in text and ("effect: " in text or not seen.specialization.effects)
