"""The timeline of recompiles: what failed, for which call, and what would have avoided it; how many compiles a pattern of calls costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab
from compiler_lab.core.errors import InvalidIR
from compiler_lab.frames.guard_table import KINDS
from compiler_lab.frames.recompiles import ADVICE

X = torch.arange(6.0).reshape(2, 3)


def counted(fn: Any, **options: Any) -> tuple[Any, list[int]]:
    """``fn`` compiled, and a list that grows with each graph."""
    graphs: list[int] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    return compiler_lab.compile(fn, backend=backend, options=options), graphs


def scaled(x: Any, k: Any = 2, f: Any = None, flag: bool = True) -> Any:
    x = f(x) if f is not None else x
    return x * k if flag else x - k


def keyed(x: Any, config: Any) -> Any:
    for name in config:
        x = x * len(name)
    return x


def summed(x: Any, xs: Any) -> Any:
    for v in xs:
        x = x + v
    return x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: Any) -> Any:
        return x * self.step


A, B = nn.ReLU(), nn.Tanh()
SAME = lambda x: x + 1
ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str, str]] = {
    "another rank": (scaled, (X,), (X[0],), "size (2, 3); got (3,)", "the same number of dimensions"),
    "dtype": (scaled, (X,), (X.double(),), "dtype torch.float32; got torch.float64", "convert x to one dtype"),
    "stride": (scaled, (X,), (torch.ones(3, 2).t(),), "stride (3, 1); got (1, 2)", "x.contiguous()"),
    "requires_grad": (scaled, (X,), (X.clone().requires_grad_(),), "requires_grad False; got True", "the same requires_grad"),
    "float": (scaled, (X, 0.5), (X, 0.25), "expected 0.5; got 0.25 (float)", "pass k as a tensor: each float"),
    "lambda": (scaled, (X, 2, lambda x: x + 1), (X, 2, lambda x: x + 2), "the code of <lambda>", "define the function in f once"),
    "flag": (scaled, (X, 2, None, True), (X, 2, None, False), "expected True; got False", "compile one function for True and one for False"),
    "none": (scaled, (X, 2, None), (X, 2, SAME), "expected None", "pass f at each call, or never"),
    "keys": (keyed, (X, {"ab": 1}), (X, {"abc": 1}), "the keys 'ab'; got the keys 'abc'", "the same keys"),
    "length": (summed, (X, [1, 2]), (X, [1, 2, 3]), "length 2; got list of length 3", "the same number of elements"),
    "type": (summed, (X, [1, 2]), (X, (1, 2)), "type list; got type tuple", "with the same type"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_recompile_says_what_failed_where_and_what_would_avoid_it(name: str) -> None:
    fn, first, second, failure, advice = ROWS[name]
    compiled, graphs = counted(fn)
    for args in (first, second):
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert len(graphs) == 2
    (found,) = compiled.recompiles
    text = found.text()
    assert failure in text
    assert advice in text
    assert found.number == 2 and found.function == fn.__qualname__
    assert found.caller is not None and "for args in" not in found.caller.source and "compiled(*args)" in found.caller.source
    assert "test_recompiles.py" in text.splitlines()[1], "the user's line that assumed it"
    assert " at 0x" not in text


def test_an_attribute_that_changes_at_each_call() -> None:
    model = Counting()
    compiled, graphs = counted(model)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * model.step)
        model.step += 1
    assert len(graphs) == 3
    timeline = compiler_lab.explain(compiled, X).recompiles
    assert [len(r.failures) for r in timeline] == [1, 2]
    assert "self.step changes between calls: keep it in a tensor" in timeline[-1].text()


def test_a_global_mode() -> None:
    compiled, _ = counted(scaled)
    compiled(X)
    with torch.no_grad():
        compiled(X)
    (found,) = compiled.recompiles
    assert "grad_mode" in found.text() and "the same grad mode" in found.text()


def test_alternating_sizes_compile_twice() -> None:
    compiled, graphs = counted(scaled)
    for n in (3, 4) * 6:
        torch.testing.assert_close(compiled(torch.ones(n)), torch.ones(n) * 2)
    assert len(graphs) == 2


def test_values_within_the_limit_are_compiled_once_each() -> None:
    compiled, graphs = counted(scaled, recompile_limit=5)
    for k in ["a", "bb", "ccc", "dddd", "eeeee"] * 3:
        compiled(X, len(k))
    assert len(graphs) <= 5 and len(compiled.recompiles) == len(graphs) - 1


def test_more_strings_than_the_limit_thrash_once_and_warn_once() -> None:
    compiled, graphs = counted(lambda x, name: x * len(name), recompile_limit=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (*range(1, 9), *range(1, 9)):
            torch.testing.assert_close(compiled(X, "a" * n), X * n)
    assert len(graphs) == 3
    (text,) = [str(w.message) for w in caught]
    assert "compiled 3 times, the limit" in text and "expected 'aaa'; got 'aaaa' (str)" in text and "few different values of name" in text
    assert [r.number for r in compiled.recompiles] == [2, 3, 0]
    assert "is run by Python from now on" in compiled.recompiles[-1].text()
    for n in (1, 2, 3):  # those that are there keep hitting
        compiled(X, "a" * n)
    assert len(graphs) == 3


def test_new_objects_that_die_make_room_but_not_for_ever() -> None:
    compiled, graphs = counted(scaled, recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(80):
            made: dict[str, Any] = {}
            exec(f"f = lambda x: x + {n}", made)
            torch.testing.assert_close(compiled(X, 2, made["f"]), (X + n) * 2)
    assert 2 <= len(graphs) <= 64, "the limit on entries in all"
    assert len(caught) == 1


def test_frames_below_a_break_have_a_limit_and_a_timeline_of_their_own() -> None:
    if not compiler_lab.frames.hook.surface().isolated:  # type: ignore[attr-defined]
        pytest.skip("this torch cannot tell entries of two compilers apart")

    def below(x: Any, k: float) -> Any:
        return x * k

    def broken(x: Any, k: float) -> Any:
        print(end="")
        return below(x, k)

    compiled, graphs = counted(broken, recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in (1.5, 2.5, 3.5, 1.5, 2.5, 3.5):
            torch.testing.assert_close(compiled(X, k), X * k)
    assert len(graphs) == 3, "two of the piece behind print; then Python runs that piece, and what it calls is a frame of its own"
    assert len(caught) == 1 and "compiled 2 times, the limit" in str(caught[0].message)
    assert [r.number for r in compiled.recompiles] == [2, 0]


def test_reset_clears_the_timeline() -> None:
    compiled, graphs = counted(scaled)
    compiled(X)
    compiled(X[:1])
    timeline = compiled.recompiles
    assert len(timeline) == 1
    compiled._compiled_function.reset()
    assert compiled.recompiles is timeline and not timeline
    compiled(X)
    assert len(graphs) == 3 and not timeline


def test_every_kind_of_guard_has_advice() -> None:
    assert set(KINDS) <= set(ADVICE) - {"missing", "alive"}


def test_a_guard_that_does_not_hold_is_an_error_not_a_recompile() -> None:
    from compiler_lab.frames.guard_table import make_leaf
    from compiler_lab.frames.ir import Guard, Source

    with pytest.raises(InvalidIR, match="does not hold"):
        make_leaf(Guard("equals", Source("local", "x"), 2), 3, lambda _: None)
