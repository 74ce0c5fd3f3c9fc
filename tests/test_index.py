"""Index expressions compute what Python's // and % compute, whatever they were simplified to."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_lab.lowering.index import Div, Index, Mod, Var, may_be_negative

SIZES = (1, 2, 3, 4, 6, 7)
VARIABLES = tuple(Var(name, size) for name, size in zip("abc", (4, 6, 3), strict=True))
Steps = list[tuple[str, int, int]]

STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(st.sampled_from(["var", "const", "mul", "div", "mod", "sub", "rest", "whole"]), st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=9
)


def build(steps: Steps, values: dict[str, int]) -> tuple[Index, int]:
    """The same random expression twice: as an Index, and as the number Python computes."""
    index, number = Index(), 0
    for kind, which, n in steps:
        var = VARIABLES[which]
        if kind == "var":
            index, number = index + Index.of(var) * n, number + values[var.name] * n
        elif kind == "sub":
            index, number = index - Index.of(var) * n, number - values[var.name] * n
        elif kind == "const":
            index, number = index + n - 6, number + n - 6
        elif kind == "mul":
            index, number = index * n, number * n
        elif kind == "div":
            index, number = index // n, number // n
        elif kind == "rest":
            index, number = index - index // n * n, number - number // n * n
        elif kind == "whole":
            index, number = index - index % n, number - number % n
        else:
            index, number = index % n, number % n
    return index, number


def points() -> list[dict[str, int]]:
    return [dict(zip("abc", p, strict=True)) for p in product(*(range(v.size) for v in VARIABLES))]


def operands(index: Index) -> list[Index]:
    inner = [a.index for a, _ in index.terms if isinstance(a, (Div, Mod))]
    return inner + [o for i in inner for o in operands(i)]


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_simplified_expressions_equal_pythons(steps: Steps) -> None:
    for values in points():
        index, number = build(steps, values)
        assert index.evaluate(lambda v, values=values: values[v.name]) == number
        low, high = index.range()
        assert low <= number <= high
        # C's / and % truncate: they are floor division only where nothing is negative
        assert all(o.range()[0] >= 0 for o in operands(index))
        text = index.text(lambda v: v.name)
        assert eval(text, {}, dict(values)) == number


@settings(max_examples=200, deadline=None)
@given(STEPS, STEPS)
def test_substitution_is_evaluation(outer: Steps, inner: Steps) -> None:
    index, _ = build(outer, {"a": 0, "b": 0, "c": 0})
    replacement, _ = build(inner, {"a": 0, "b": 0, "c": 0})
    a = VARIABLES[0]
    bounded = replacement % a.size
    substituted = index.substitute({a: bounded})
    for values in points():
        whole = bounded.evaluate(lambda v, values=values: values[v.name])
        expected = index.evaluate(lambda v, values=values, whole=whole: whole if v == a else values[v.name])
        assert substituted.evaluate(lambda v, values=values: values[v.name]) == expected


def test_equal_expressions_are_equal_values() -> None:
    i, j = Var("i", 8), Var("j", 4)
    flat = Index.of(i) * 4 + j
    assert flat // 4 == Index.of(i)
    assert flat % 4 == Index.of(j)
    assert (flat // 4) * 4 + flat % 4 == flat
    assert (flat // 2) * 2 + flat % 2 == flat
    assert Index.of(i) + j == Index.of(j) + i
    assert (flat * 3 + 1) // 3 == flat
    k = Var("k", 2)
    pair = Index.of(i) * 2 + k
    assert (pair // 4, pair % 4) == (Index.of(i) // 2, (Index.of(i) % 2) * 2 + k)
    assert ((pair + 8) // 4, (pair + 8) % 4) == (pair // 4 + 2, pair % 4)
    assert (pair + 2) // 4 == (Index.of(i) + 1) // 2
    last, odd = Index.of(i) + 5, (Index.of(i) + 5) // 3
    assert odd * 6 + last % 3 * 2 == last * 2
    assert len((odd * 6 + last % 3).terms) == 2
    assert str(flat + 2) == "4*i + j + 2"


@pytest.mark.parametrize("size", SIZES)
def test_variables_of_one_value_vanish(size: int) -> None:
    index = Index.of(Var("i", size)) * 5 + 2
    assert index.is_affine
    assert (index == Index((), 2)) == (size == 1)
    assert index.coefficient(Var("i", size)) == (0 if size == 1 else 5)


def test_what_may_be_negative_is_divided_by_a_function_that_rounds_down() -> None:
    i = Index.of(Var("i", 8))
    assert may_be_negative(Div(i - 1, 2)) and not may_be_negative(Mod(i, 2))
    assert str(Index(((Div(i - 1, 2), 3),)) + 1) == "3*(floordiv(i + -1, 2)) + 1"
    assert Index.of(Var("none", 0)).range() == (0, 0)


def test_coefficient_of_a_variable_inside_a_division_is_unknown() -> None:
    i = Var("i", 9)
    index = (Index.of(i) + 1) // 2 + i
    assert index.coefficient(i) is None
    assert not index.is_affine


def test_evaluates_on_tensors() -> None:
    i = Var("i", 6)
    index = (Index.of(i) * 5 + 3) % 4
    values = index.evaluate(lambda _: torch.arange(6))  # type: ignore[arg-type,return-value]
    assert list(values) == [(n * 5 + 3) % 4 for n in range(6)]  # type: ignore[call-overload]
