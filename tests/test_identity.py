"""What a compiled function knows of an object by identity is compared by identity: functions of one code, keys, elements of sets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import compiler_lab


def named(f: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(f)
    def wrapper(*args: Any) -> Any:
        return f(*args)

    return wrapper


def one(x: Tensor) -> Tensor:
    return x


def another(x: Tensor) -> Tensor:
    return x


def closure() -> Callable[[], int]:
    def f() -> int:
        return 1

    return f


class Plain:
    pass


def assert_told_apart(f: Callable[[Any, Tensor], Any], first: Any, second: Any) -> None:
    """In both orders: which object a function was compiled for must not matter to the next."""
    x = torch.randn(3) + 3

    def result(call: Callable[[Any, Tensor], Any], value: Any) -> Any:
        try:
            return call(value, x)
        except (KeyError, TypeError, ValueError) as error:
            return type(error)

    for values in ((first, second), (second, first)):
        compiled = compiler_lab.compile(f, backend="eager", options={"entries": False})
        for value in values:
            got, want = result(compiled, value), result(f, value)
            assert torch.equal(got, want) if isinstance(want, Tensor) else got == want


DIVIDE, SUBTRACT = torch.Tensor.__rdiv__, torch.Tensor.__rsub__
"""One code object of torch's, around two functions."""

FUNCTIONS: dict[str, tuple[Callable[[Any, Tensor], Any], Any, Any]] = {
    "call": (lambda f, x: f(x, 7.0), DIVIDE, SUBTRACT),
    "map": (lambda f, x: sum(map(lambda v: f(v, 7.0), [x])), DIVIDE, SUBTRACT),
    "partial": (lambda f, x: functools.partial(f, x)(7.0), DIVIDE, SUBTRACT),
    "reduce": (lambda f, x: functools.reduce(f, [x, x, x * 2]), DIVIDE, SUBTRACT),
    "vmap": (lambda f, x: torch.vmap(lambda v: f(v, 7.0))(x), DIVIDE, SUBTRACT),
    "name": (lambda f, x: x + len(f.__name__), named(one), named(another)),
    "qualname": (lambda f, x: x + len(f"{f.__qualname__}"), named(one), named(another)),
    "getattr": (lambda f, x: x + len(getattr(f, "__name__")), named(one), named(another)),  # noqa: B009 - the call is what is tested
    "wrapped": (lambda f, x: x + len(f.__wrapped__.__name__), named(one), named(another)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_code(name: str) -> None:
    assert_told_apart(*FUNCTIONS[name])


def lookups(first: Any, second: Any) -> dict[str, Callable[[Any, Tensor], Any]]:
    table, some = {first: 1.0, second: 2.0}, {first}
    return {
        "item": lambda key, x: x + table[key],
        "get": lambda key, x: x + table.get(key, 7.0),
        "in": lambda key, x: x + (key in some),
        "made dict": lambda key, x: x + {first: 1.0, second: 3.0}[key],
        "made set": lambda key, x: x + len({key, first}),
        "nested": lambda key, x: x + (1 if (1, key) in {(1, first)} else 2),
        "setdefault": lambda key, x: x + dict(table).setdefault(key, 9.0),
        "pop": lambda key, x: x + dict(table).pop(key),
        "index": lambda key, x: x + [first, second].index(key),
        "is": lambda key, x: x + (1 if key is first else 2),
        "equal": lambda key, x: x + (1 if (key,) == (first,) else 2),
    }


KEYS: dict[str, tuple[Any, Any]] = {
    "functions": (closure(), closure()),
    "objects": (Plain(), Plain()),
    "modules": (nn.Linear(3, 3), nn.Linear(3, 3)),
    "exceptions": (ValueError(1), ValueError(1)),
    "generators": (torch.Generator(), torch.Generator()),
    "partials": (functools.partial(int, 1), functools.partial(int, 1)),
    "classes": (int, float),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_that_are_found_by_identity(kind: str) -> None:
    for f in lookups(*KEYS[kind]).values():
        assert_told_apart(f, *KEYS[kind])


def test_tensors_in_a_set() -> None:
    first, second = torch.ones(2), torch.ones(2)
    assert_told_apart(lambda key, x: x + len({key, first}), first, second)
