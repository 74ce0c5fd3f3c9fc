"""``explain``: the share of operators and of time inside graphs, per call and per line; breaks with their code; recompiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab

from .test_recompiles import Counting

X = torch.arange(6.0).reshape(2, 3)


def lines(found: Any) -> dict[str, tuple[int, int]]:
    return {line.location.source: (line.inside, line.outside) for line in found.lines}


def test_a_whole_graph_holds_all_operators() -> None:
    def program(x: Any) -> Any:
        y = torch.sin(x) + x
        return y * 2

    found = compiler_lab.explain(program, X)
    assert (len(found.graphs), found.breaks, found.operators) == (1, (), (3,))
    assert lines(found) == {"y = torch.sin(x) + x": (2, 0), "return y * 2": (1, 0)}
    assert found.share_of_operators == 1.0 and 0 < found.share_of_time < 1
    assert found.seconds > found.inside_seconds > 0
    assert "inside graphs: 3 of 3 operators that were run (100%; counted by a dispatch mode)" in found.text()
    assert all(line.inside_seconds > 0 and line.outside_seconds == 0 for line in found.lines)


def test_a_function_of_a_library_counts_for_the_line_that_calls_it() -> None:
    def program(x: Any) -> Any:
        return nn.functional.gelu(nn.functional.linear(x, torch.ones(2, 3)))

    found = compiler_lab.explain(program, X)
    (source,) = lines(found)
    assert source == "return nn.functional.gelu(nn.functional.linear(x, torch.ones(2, 3)))" and found.share_of_operators == 1.0


@pytest.mark.parametrize("inside", [True, False])
def test_what_python_runs_is_outside(inside: bool) -> None:
    @torch.compiler.disable
    def left(x: Any) -> Any:
        return x + 1

    def program(x: Any) -> Any:
        return left(x) if not inside else x + 1

    found = compiler_lab.explain(program, X)
    assert lines(found)["return left(x) if not inside else x + 1" if inside else "return x + 1"] == ((1, 0) if inside else (0, 1))
    assert found.share_of_operators == float(inside)


def test_a_break_is_shown_with_the_code_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Any) -> Any:
        y = x + 1
        print("seen")
        return y * 2

    found = compiler_lab.explain(program, X)
    assert capsys.readouterr().out == "seen\n" * 2, "two calls, and capture prints nothing"
    (reason,) = found.breaks
    assert reason.reason == "output"
    text = found.text()
    at = text.splitlines().index(next(line for line in text.splitlines() if line.startswith("break: output")))
    marked = [line for line in text.splitlines()[at:] if line.startswith("  >")]
    assert len(marked) == 1 and marked[0].endswith('print("seen")')
    assert "        y = x + 1" in text and "  do: " + reason.hint in text
    assert sum(inside + outside for inside, outside in lines(found).values()) == 2


def test_recompiles_of_a_compiled_function_and_of_the_second_call() -> None:
    def program(x: Any, k: int) -> Any:
        return x * k

    compiled = compiler_lab.compile(program, backend="eager")
    compiled(X, 2)
    compiled(X, 3)
    found = compiler_lab.explain(compiled, X, 2)
    assert [r.number for r in found.recompiles] == [2] and "expected 2; got 3 (int)" in found.text()

    model = Counting()
    assert compiler_lab.explain(model, X).recompiles == ()
    compiled = compiler_lab.compile(model, backend="eager")
    compiled(X)
    model.step = 1
    compiled(X)
    found = compiler_lab.explain(compiled, X)
    assert len(found.recompiles) == 1 and "self.step changes between calls" in found.text()


def test_the_text_is_the_same_at_each_run_but_for_the_times() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    texts = {"".join(c for c in compiler_lab.explain(model, X).text() if not c.isdigit() and c not in ".e-+") for _ in range(2)}
    assert len(texts) == 1


def test_it_counts_for_nobody_else() -> None:
    compiler_lab.reset()
    found = compiler_lab.explain(lambda x: x + 1, X)
    assert len(found.graphs) == 1 and compiler_lab.stats() == {"graphs": 0, "breaks": 0, "break_reasons": []}
    assert "<pre>1 graphs" in found._repr_html_()


def test_an_error_of_the_call_is_the_callers() -> None:
    def program(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiler_lab.explain(program, X)
    assert torch._C._len_torch_dispatch_stack() == 0
