"""Row kernels in cases: masked rows give the bits that they give without cases, what eager gives, and eager's errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import compiler_lab
from compiler_lab.codegen import cpp, cpp_cases, cpp_reduce
from compiler_lab.codegen.artifact import Kernels
from compiler_lab.runtime.build import build

from .test_codegen import assert_as_eager, kernels_of

INF = float("-inf")


def places(x: Tensor) -> tuple[Tensor, Tensor]:
    n, m = x.shape[-2:]
    return torch.arange(n).unsqueeze(1), torch.arange(m)


def causal(x: Tensor) -> Tensor:
    row, column = places(x)
    return (x * 0.5).masked_fill(column > row, INF).softmax(-1)


def anticausal(x: Tensor) -> Tensor:
    row, column = places(x)
    return x.masked_fill(row > 2 * column + 3, INF).softmax(-1)


def banded(x: Tensor) -> Tensor:
    row, column = places(x)
    return torch.where((column <= row) & (column > row - 40), x, INF).softmax(-1)


def prefix(x: Tensor) -> Tensor:
    row, column = places(x)
    return torch.where((column < 37) | (column <= row), x, INF).softmax(-1)


def triangles(x: Tensor) -> Tensor:
    return x.tril(3).sum(-1) + x.triu(-5).amax(-1)


def furthest(x: Tensor) -> Tensor:
    return x.tril(-1).argmax(-1)


def padded(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (7, 30), value=-1.0).softmax(-1)


def centered(x: Tensor) -> Tensor:
    return x.tril() - x.tril().mean(-1, keepdim=True)


def counted(x: Tensor) -> Tensor:
    return (x.tril() > 0).sum(-1)


PROGRAMS = [causal, anticausal, banded, prefix, triangles, furthest, padded, centered, counted]


def cases_of(kernels: Kernels) -> list[str]:
    return [d.outcome for d in kernels.decisions if d.reason == "conditions_on_lanes"]


@pytest.mark.parametrize("f", PROGRAMS)
def test_cases_change_no_bit(f: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 70, 257)
    x[..., ::17] = float("nan")
    x[..., 1::19] = INF
    kernels = assert_as_eager(f, x)
    assert cases_of(kernels), kernels.source
    monkeypatch.setattr(cpp_cases, "MOST_TEXT", 0)
    plain = kernels_of(f, x)
    assert not cases_of(plain)
    for got, want in zip(build(kernels)(x), build(plain)(x), strict=True):
        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))


@pytest.mark.parametrize("f", [causal, banded, furthest])
def test_threads_that_share_a_row(f: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "WORTH_THREADS", 1)
    monkeypatch.setattr(cpp_reduce, "ADDS", 2)
    assert_as_eager(f, torch.randn(3, 517))


def test_a_case_computes_only_its_side() -> None:
    kernels = kernels_of(causal, torch.randn(64, 256))
    masked = kernels.source.partition("sum\n")[0].partition("if (at - x0 - 1 >= 0) {")[2].partition("continue;")[0]
    assert masked and "vm_exp" not in masked and "in_" not in masked, kernels.source


def test_gradients_and_sizes_that_vary() -> None:
    compiled = compiler_lab.compile(causal, dynamic=True)
    for n, m in ((90, 100), (130, 65), (40, 400)):
        x = torch.randn(2, n, m, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        seed = torch.randn(2, n, m)
        got, want = compiled(x), causal(y)
        torch.testing.assert_close(got, want, equal_nan=True)
        got.backward(seed)
        want.backward(seed)
        torch.testing.assert_close(x.grad, y.grad, equal_nan=True)


def test_an_index_of_a_case_is_checked_where_the_case_occurs() -> None:
    def f(x: Tensor, table: Tensor, at: Tensor) -> Tensor:
        row, column = places(x)
        return (x * table[torch.where(column < row, at.unsqueeze(1), 0)]).sum(-1)

    x, table, at = torch.randn(80, 100), torch.randn(9), torch.randint(0, 9, (80,))
    at[0] = 1000  # no column is below 0: nobody reads it
    built = build(kernels_of(f, x, table, at))
    torch.testing.assert_close(built(x, table, at)[0], f(x, table, at))
    at[50] = 1000
    with pytest.raises(IndexError):
        built(x, table, at)
