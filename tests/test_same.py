"""Equal kernels of one graph are written and compiled once, and called from every place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from compiler_lab.codegen.artifact import Kernels
from compiler_lab.runtime.build import build

from .conftest import same
from .test_codegen import kernels_of


def blocks(count: int, step: Callable[[Tensor, Tensor, int], Tensor]) -> tuple[Callable[..., Any], list[Tensor]]:
    """``count`` blocks, each with weights of its own and a product in front, which keeps them apart."""

    def f(x: Tensor, *weights: Tensor) -> Tensor:
        for n, w in enumerate(weights):
            x = step(torch.mm(x, w), w, n)
        return x

    return f, [torch.randn(6, 8), *(torch.randn(8, 8) for _ in range(count))]


def norm(x: Tensor, w: Tensor, n: int) -> Tensor:
    return torch.softmax(x, 1) + w[0] * x.mean(1, keepdim=True)


def own(kernels: Kernels) -> int:
    return len(kernels.kernels) - sum(d.kind == "reuse" for d in kernels.decisions)


@pytest.mark.parametrize("count", [1, 4, 12])
def test_equal_blocks_cost_one(count: int) -> None:
    f, args = blocks(count, norm)
    kernels = kernels_of(f, *args)
    assert len(kernels.kernels) == count and own(kernels) == 1
    assert len(re.findall(r"for \(", kernels.source)) == len(re.findall(r"for \(", kernels_of(*_one()).source)), "the loops stand there once"
    same(build(kernels)(*args), (f(*args),), rtol=1e-5, atol=1e-6)


def _one() -> tuple[Any, ...]:
    f, args = blocks(1, norm)
    return f, *args


DIFFERENT: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "constant": lambda x, w, n: torch.tanh(x) * (n + 1.5),
    "operation": lambda x, w, n: torch.tanh(x) if n % 2 else torch.sigmoid(x),
    "which argument": lambda x, w, n: x / (x + w[0]) if n % 2 else w[0] / (x + w[0]),
    "index": lambda x, w, n: torch.relu(x) + w[n],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_kernels_that_differ_in_more_than_buffers_are_written_by_themselves(what: str) -> None:
    f, args = blocks(2, DIFFERENT[what])
    kernels = kernels_of(f, *args)
    assert own(kernels) == len(kernels.kernels) == 2
    same(build(kernels)(*args), (f(*args),), rtol=1e-5, atol=1e-6)


def test_lines_of_a_shared_kernel_name_every_group_that_they_compute() -> None:
    f, args = blocks(3, norm)
    kernels = kernels_of(f, *args)
    shared = [line for line in kernels.lines if line.parents and kernels.kernels[0].first < line.number <= kernels.kernels[0].last]
    assert shared and all({p.split("/")[1] for p in line.parents} == {"k0", "k1", "k2"} for line in shared)
    for kernel in kernels.kernels[1:]:
        body = kernels.lines[kernel.first - 1 : kernel.last]
        assert [line.text.strip() for line in body[1:-1]] == ["return k0(args);"]
        assert {p.split("/")[1] for line in body for p in line.parents} == {kernel.name}


def test_an_error_in_a_shared_kernel_is_raised_from_the_place_that_has_it() -> None:
    def f(table: Tensor, first: Tensor, second: Tensor) -> Tensor:
        return torch.mm(torch.mm(table, table)[first], table)[second]

    table, good, bad = torch.randn(4, 4), torch.tensor([0, 3, 2, 1]), torch.tensor([0, 4, 2, 1])
    kernels = kernels_of(f, table, good, good.clone())
    program = build(kernels)
    assert len(kernels.kernels) == 2 and own(kernels) == 1
    same(program(table, good, good), (f(table, good, good),), rtol=1e-5, atol=1e-6)
    for wrong in ((table, good, bad), (table, bad, good)):
        with pytest.raises(IndexError, match="out of range"):
            program(*wrong)
