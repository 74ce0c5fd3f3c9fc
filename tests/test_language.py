"""The Python language and its standard library inside a captured frame: every program gives what plain Python gives.

Each row of LANGUAGE is called with each of its argument sets, twice, compiled and plain: results with their types and with the identities inside
them, exceptions with their text and context, what was printed, and what was done to the arguments. Rows marked whole must be one graph.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import math
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import compiler_lab

from . import language_classes, language_containers, language_control, language_records, language_scopes, language_text, language_tools
from .language import LANGUAGE

PARTS = (
    language_classes,
    language_containers,
    language_control,
    language_records,
    language_scopes,
    language_text,
    language_tools,
)  # their rows are in the table
Outcome = tuple[str, Any, str]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    compiler_lab.reset()
    yield
    compiler_lab.reset()


def parts(value: Any) -> list[Any]:
    """What is inside a value, in a fixed order."""
    if isinstance(value, dict):
        return [p for pair in value.items() for p in pair]
    if isinstance(value, (list, tuple, collections.deque)):
        return list(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, BaseException):
        return [*value.args, value.__dict__]
    if isinstance(value, (type, types.FunctionType, types.ModuleType, torch.Tensor)) or type(value).__module__ in ("builtins", "torch"):
        return []
    slots = [getattr(value, s) for s in getattr(type(value), "__slots__", ()) if hasattr(value, s)]
    return [*slots, vars(value)] if hasattr(value, "__dict__") else slots


def same(want: Any, got: Any, seen: dict[int, int]) -> None:
    """Equal types and values all the way down, and one object where plain Python has one object."""
    assert type(want) is type(got), (want, got)
    shared = isinstance(want, (list, dict, set, collections.deque, torch.Tensor)) or hasattr(want, "__dict__")
    if shared and not isinstance(want, (type, types.FunctionType)):
        assert seen.setdefault(id(want), id(got)) == id(got), (want, got)
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, equal_nan=True)
        assert got.requires_grad == want.requires_grad
        return
    if isinstance(want, types.GeneratorType):
        want, got = list(want), list(got)
    mine, theirs = parts(want), parts(got)
    if mine or isinstance(want, (list, tuple, dict, set)):
        assert len(mine) == len(theirs), (want, got)
        for a, b in zip(mine, theirs, strict=True):
            same(a, b, seen)
    elif isinstance(want, float) and math.isnan(want):
        assert math.isnan(got)
    elif not hasattr(want, "__dict__"):
        assert want == got and repr(want) == repr(got), (want, got)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """(result or exception, printed text, warnings) of one call."""
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result: Any = ("returned", fn(*args))
        except Exception as error:  # noqa: BLE001 - whatever the program raises is its outcome
            result = ("raised", type(error), error.args, str(error))
    return result, out.getvalue(), [str(w.message) for w in caught]


@pytest.mark.parametrize("name", LANGUAGE)
def test_compiled_is_plain(name: str, caplog: pytest.LogCaptureFixture) -> None:
    row = LANGUAGE[name]
    compiled = compiler_lab.compile(row.fn, backend="eager")
    for plain in row.sets:
        for _ in range(2):
            args = (torch.arange(6.0).reshape(2, 3), *plain)
            mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
            caplog.clear()
            want = outcome(row.fn, mine)
            logged = [r.getMessage() for r in caplog.records if r.name == "language"]
            caplog.clear()
            got = outcome(compiled, theirs)
            same((want, mine), (got, theirs), {})
            assert [r.getMessage() for r in caplog.records if r.name == "language"] == logged
    stats = compiler_lab.stats()
    assert not row.whole or compiled._compiled_function.entries, "nothing was captured"
    if row.whole:  # what the program itself raises is Python's to do
        assert not [r for r in stats["break_reasons"] if r != "raise"], stats


def test_the_table_is_mostly_whole() -> None:
    assert PARTS and sum(r.whole for r in LANGUAGE.values()) >= 0.9 * len(LANGUAGE)
