"""What capture and guards do is not seen by the program's own objects: no method of theirs runs that Python would not have run.

Each program is called several times, plain and compiled; what its objects, tensor subclasses and modes wrote down must be equal, entry by entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import compiler_lab

LOG: list[str] = []


def noting(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        LOG.append(name)
        return plain(self, *args)

    return method


ASKED: dict[str, Callable[..., Any]] = {
    "__eq__": lambda self, other: self is other,
    "__ne__": lambda self, other: self is not other,
    "__hash__": lambda self: 7,
    "__bool__": lambda self: True,
    "__len__": lambda self: 2,
    "__iter__": lambda self: iter((1, 2)),
    "__contains__": lambda self, item: False,
    "__str__": lambda self: "watched",
    "__repr__": lambda self: "watched",
    "__getattr__": lambda self, name: len(name),
    "__call__": lambda self, x: x + 1,
    "__getitem__": lambda self, at: at,
    "__index__": lambda self: 1,
}
Watched: Any = type("Watched", (), {name: noting(name, plain) for name, plain in ASKED.items()})


class Own(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(Tensor):
    held: Tensor

    @staticmethod
    def __new__(cls: Any, held: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)  # type: ignore[attr-defined]
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(str(func))
        out = func(*(a.held if isinstance(a, Wrapper) else a for a in args), **(kwargs or {}))
        return Wrapper(out) if isinstance(out, Tensor) else out


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(str(func))
        return func(*args, **(kwargs or {}))


class Holder:
    def __init__(self, value: Any) -> None:
        self.value, self.other = value, None


def passed_on(x: Tensor, w: Any) -> Any:
    return x + 1, w


def kept(x: Tensor, w: Any) -> Any:
    found = {"w": w, "list": [w, (w,)]}
    return found["w"], x * 2


def told_apart(x: Tensor, w: Any) -> Any:
    return x + (1 if w is None else 2), type(w)


def attribute(x: Tensor, w: Any) -> Any:
    h = Holder(None)
    h.value, h.other = w, h.value
    return x.relu(), h.value


def behind_a_break(x: Tensor, w: Any) -> Any:
    y = x + 1
    LOG.append("printed")
    print(end="")
    return y * 2, w


def asked(x: Tensor, w: Any) -> Any:
    return x + (1 if w else 2), len(w), w == w, hash(w), w.name, w(x), w[3]


def a_key(x: Tensor, w: Any) -> Any:
    return x + 1, {w: 1}


def keywords(x: Tensor, w: Any = None, *rest: Any, **more: Any) -> Any:
    return x + len(more), w, rest, more


def tensors(x: Tensor, w: Any) -> Any:
    return (w + 1).relu() * 2, x + 1


def read(x: Tensor, w: Any) -> Any:
    return x * w.dim(), w.shape, w.requires_grad


def without(x: Tensor, w: Any) -> Any:
    return x.sin() + 1


OBJECTS = (passed_on, kept, told_apart, attribute, behind_a_break, asked, a_key, keywords)
TENSORS = (passed_on, kept, told_apart, attribute, behind_a_break, keywords, tensors, read)
MODES: dict[str, Callable[[], Any]] = {"function": Functions, "dispatch": Dispatches, "dual": forward_ad.dual_level}


def written(fn: Callable[..., Any], make: Callable[[], Any], mode: Callable[[], Any] = contextlib.nullcontext) -> list[str]:
    """What is noted in four calls, the second and the last with one object."""
    LOG.clear()
    objects = [make(), make(), make()]
    for one in (objects[0], objects[1], objects[2], objects[1]):
        x = torch.ones(3)
        with mode():
            LOG.append("call")
            fn(x, one)
            LOG.append("end")
    return list(LOG)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", OBJECTS)
def test_an_objects_methods(program: Callable[..., Any], backend: str) -> None:
    assert written(compiler_lab.compile(program, backend=backend), Watched) == written(program, Watched)


@pytest.mark.parametrize("make", [lambda: torch.ones(3).as_subclass(Own), lambda: Wrapper(torch.ones(3))], ids=["function", "dispatch"])
@pytest.mark.parametrize("program", TENSORS)
def test_a_tensor_subclass(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    assert written(compiler_lab.compile(program, backend="eager"), make) == written(program, make)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", [without, passed_on, behind_a_break])
def test_a_mode(program: Callable[..., Any], mode: str) -> None:
    compiled = compiler_lab.compile(program, backend="eager")
    expected = written(program, lambda: 1, MODES[mode])
    assert written(compiled, lambda: 1, MODES[mode]) == expected
    written(compiled, lambda: 1)
    assert written(compiled, lambda: 1, MODES[mode]) == expected  # what was compiled outside is not used inside


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
def test_tangents_of_forward_mode(backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        return x.sin() * x

    compiled = compiler_lab.compile(program, backend=backend)
    for _ in range(2):
        compiled(torch.ones(3))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.arange(3.0), torch.ones(3))
            torch.testing.assert_close(forward_ad.unpack_dual(compiled(dual)), forward_ad.unpack_dual(program(dual)))


def test_forward_mode_inside() -> None:
    def program(x: Tensor) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(dual.sin() * dual)

    torch.testing.assert_close(compiler_lab.compile(program)(torch.arange(3.0)), program(torch.arange(3.0)))


def test_calls_under_a_mode_do_not_spoil_the_others() -> None:
    graphs: list[torch.fx.GraphModule] = []
    compiled = compiler_lab.compile(without, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    with Functions():
        compiled(torch.ones(3), 1)
    before = len(graphs)
    compiled(torch.ones(3), 1)
    assert len(graphs) == before + 1
