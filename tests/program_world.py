"""What generated programs find around them: classes, helpers and globals. Its text is the first part of every program.

Plain Python habits, one of each: properties, operators, class attributes, ``super()``, ``__getattr__``, a mutable default, context
managers that log, a generator, an enum, a dataclass, a module, a function that is not to be compiled.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import random
import warnings
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import torch

COUNT = 0
SCALE = 2
LOG: list[Any] = []
CONFIG: dict[str, Any] = {"a": 1, "b": [1, 2], "name": "cfg"}
WEIGHT = torch.tensor([1.0, -1.0, 2.0, 0.0])


class Oops(Exception):
    def __init__(self, code: int = 0) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Box:
    kind = "box"
    made = 0

    def __init__(self, a: Any, n: int = 1) -> None:
        self.a = a
        self.n = n
        self.items: list[Any] = []

    def scale(self, x: Any, by: Any = 1) -> Any:
        return x * self.n + by

    def bump(self, by: int = 1) -> Any:
        self.n += by
        return self

    def keep(self, x: Any) -> int:
        self.items.append(x)
        return len(self.items)

    @property
    def double(self) -> Any:
        return self.a * 2

    @double.setter
    def double(self, value: Any) -> None:
        self.a = value
        self.n += 1

    @classmethod
    def of(cls, a: Any) -> Any:
        cls.made += 1
        return cls(a, cls.made)

    @staticmethod
    def shift(x: Any, by: int = 3) -> Any:
        return x + by


class Sub(Box):
    kind = "sub"

    def __init__(self, a: Any, n: int = 2) -> None:
        super().__init__(a, n)
        self.extra = "e"

    def bump(self, by: int = 1) -> Any:
        LOG.append(("bump", by))
        return super().bump(by + 1)

    def __len__(self) -> int:
        return self.n % 4

    def __getitem__(self, i: Any) -> Any:
        return self.items[i]

    def __add__(self, other: Any) -> Any:
        return self.a + other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sub) and self.n == other.n

    def __hash__(self) -> int:
        return 7

    def __call__(self, x: Any) -> Any:
        return x - self.n

    def __iter__(self) -> Iterator[Any]:
        yield self.n
        yield self.extra

    def __contains__(self, value: object) -> bool:
        return value == self.n

    def __getattr__(self, name: str) -> Any:
        if name.startswith("x_"):
            return len(name)
        raise AttributeError(name)


class Watched:
    """Every write is logged."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __setattr__(self, name: str, value: Any) -> None:
        LOG.append(("set", name))
        object.__setattr__(self, name, value)


class Logged:
    """A context manager that logs, and may swallow an exception."""

    def __init__(self, name: str, swallow: bool = False) -> None:
        self.name, self.swallow = name, swallow

    def __enter__(self) -> Any:
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        LOG.append(("exit", self.name, kind.__name__ if kind is not None else None))
        return self.swallow


@contextlib.contextmanager
def scope(name: str) -> Generator[str]:
    LOG.append(("begin", name))
    try:
        yield name
    finally:
        LOG.append(("end", name))


Pair = collections.namedtuple("Pair", ["left", "right"])  # pyright: ignore[reportUntypedNamedTuple] - as programs write it


@dataclasses.dataclass
class Point:
    x: Any
    y: int = 1
    tags: list[Any] = dataclasses.field(default_factory=list[Any])


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, -1.0, 0.0]))
        self.calls = 0
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.weight


STATE = Box(torch.ones(4), 1)
MODEL = Net()


def rows(n: int, k: float = 1.0, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = (torch.arange(4 * n, dtype=torch.float64).reshape(n, 4) % 5 - 2) * k
    return made.to(dtype).requires_grad_(grad)


def twice(x: Any) -> Any:
    return x + x


def recurse(x: Any, n: int) -> Any:
    if n <= 0:
        return x
    return recurse(x + n, n - 1) * 1


@torch.compiler.disable
def disabled(x: Any) -> Any:
    LOG.append("disabled")
    return x + 1


def careful(n: Any) -> Any:
    if n == 2:
        raise Oops(n)
    return n


def spread(*args: Any, by: Any = 1, **more: Any) -> Any:
    return sum(args) * by + len(more)


def remember(x: Any, seen: list[Any] = []) -> int:  # noqa: B006 - on purpose
    seen.append(1)
    return len(seen)


def steps(x: Any, n: int) -> Iterator[Any]:
    LOG.append("steps begin")
    try:
        for i in range(n):
            yield x + i
    finally:
        LOG.append("steps end")


def counter(start: int) -> Any:
    def step(by: int = 1) -> int:
        nonlocal start
        start += by
        return start

    return step


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        LOG.append(function.__name__)
        return function(*args, **kwargs)

    return wrapper


@logged
def decorated(x: Any) -> Any:
    return x * 3


STEP = counter(0)
USED = (bisect, heapq, itertools, json, math, operator, random, warnings, zlib)
