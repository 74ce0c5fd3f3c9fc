"""The table of programs for test_language.py.

Each takes a tensor and plain arguments; a row holds the sets of arguments it is called with, and whether it must be captured whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Program:
    """``sets`` are the arguments behind the tensor; ``whole``: one graph and no break, for every set."""

    fn: Callable[..., Any]
    sets: tuple[tuple[Any, ...], ...]
    whole: bool


LANGUAGE: dict[str, Program] = {}


def program(*sets: tuple[Any, ...], whole: bool = True) -> Callable[[Any], Any]:
    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        assert fn.__name__ not in LANGUAGE
        LANGUAGE[fn.__name__] = Program(fn, sets or ((),), whole)
        return fn

    return enter


def breaks(*sets: tuple[Any, ...]) -> Callable[[Any], Any]:
    return program(*sets, whole=False)
