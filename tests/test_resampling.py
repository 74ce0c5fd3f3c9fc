"""Averages of windows, and the backwards of upsampling and padding, opened: against aten's operators."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab.aot.resampling_rows import RESAMPLING

aten = torch.ops.aten


def assert_as_aten(op: Any, *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> None:
    got, want = RESAMPLING[op](*args, **kwargs), op(*args, **kwargs)
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True):
        torch.testing.assert_close(
            a.to(b.dtype), b, rtol=tolerance, atol=tolerance, msg=lambda m: f"{op} {[x for x in args if not isinstance(x, Tensor)]}: {m}"
        )


POOLS = [*itertools.product([(2,), (3, 2)], [(), (1,), (2, 3)], [(0,), (1,)], [False, True], [False, True], [None, 3])]


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_averages_of_windows(pool: Any) -> None:
    for shape in ((2, 3, 7, 8), (3, 7, 9)):
        x = torch.randn(shape)
        assert_as_aten(aten.avg_pool2d.default, x, *pool)
        assert_as_aten(aten.avg_pool2d_backward.default, torch.randn_like(aten.avg_pool2d(x, *pool)), x, *pool)


@pytest.mark.parametrize("pool", [*itertools.product([(2,), (3, 2, 2)], [(), (2, 1, 3)], [(0,), (1,)], [False, True], [False, True])], ids=str)
def test_averages_in_space(pool: Any) -> None:
    x, override = torch.randn(2, 3, 5, 6, 7), None
    assert_as_aten(aten.avg_pool3d.default, x, *pool, override)
    assert_as_aten(aten.avg_pool3d_backward.default, torch.randn_like(aten.avg_pool3d(x, *pool)), x, *pool, override)


SIZES = {1: ((7,), (12,)), 2: ((7, 5), (11, 3)), 3: ((4, 5, 3), (6, 2, 7))}
LINEAR = {1: "linear1d", 2: "bilinear2d", 3: "trilinear3d"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [None, 1.7])
@pytest.mark.parametrize("dims", SIZES)
def test_backwards_of_upsampling(dims: int, scale: float | None, dtype: torch.dtype) -> None:
    before, after = SIZES[dims]
    after = tuple(int(n * scale) for n in before) if scale else after
    grad, sizes, scales = torch.randn(2, 3, *after, dtype=dtype), (after, [2, 3, *before]), (scale,) * dims
    for name in ("upsample_nearest", "_upsample_nearest_exact"):
        assert_as_aten(getattr(aten, f"{name}{dims}d_backward").default, grad, *sizes, *(scales if scale else ()))
    for align in (False, True):
        assert_as_aten(getattr(aten, f"upsample_{LINEAR[dims]}_backward").default, grad, *sizes, align, *scales, tolerance=1e-4)
        if dims == 2:
            assert_as_aten(aten.upsample_bicubic2d_backward.default, grad, *sizes, align, *scales, tolerance=1e-4)


@pytest.mark.parametrize(("shape", "padding"), [((2, 3, 5), (2, 1)), ((2, 3, 5, 4), (1, 2, -1, 3)), ((2, 3, 4, 4, 4), (1, 1, 2, 0, 0, 2))])
def test_backwards_of_replication(shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    x, dims = torch.randn(shape), len(padding) // 2
    grad = torch.randn_like(getattr(aten, f"replication_pad{dims}d")(x, padding))
    assert_as_aten(getattr(aten, f"replication_pad{dims}d_backward").default, grad, x, padding)


def test_places_in_order() -> None:
    x, index = torch.randn(3, 4), torch.tensor([[1, -1], [2, 2]])
    assert_as_aten(aten.put.default, x, index, torch.full((2, 2), 3.0), True)
    assert_as_aten(aten.put.default, x, index[0], torch.randn(2))
    assert_as_aten(aten.masked_scatter.default, x, x > 0, torch.randn(20))
    assert_as_aten(aten.masked_scatter.default, x, torch.tensor([True, False, True, False]), torch.randn(20))
    for reduce, own in itertools.product(("prod", "mean", "amax", "amin"), (True, False)):
        assert_as_aten(aten.index_reduce.default, x, 1, torch.tensor([0, 2, 2]), torch.randn(3, 3), reduce, include_self=own)
    for g, dim in ((torch.rand(3, 1), 0), (torch.rand(1, 4), 1)):
        assert_as_aten(aten._weight_norm_interface_backward.default, torch.randn(3, 4), x, g, aten._weight_norm_interface(x, g, dim)[1], dim)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "pooling": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False) * 2,
    "upsampling": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear").sin(),
    "padding": lambda x: F.pad(F.pad(x, (1, 2, 2, 1), mode="replicate"), (1, 1, 2, 2), mode="reflect") * x.mean(),
    "places": lambda x: torch.cumsum(x, 1).index_add(0, torch.tensor([0, 0, 1]), x.new_ones(3, *x.shape[1:]), alpha=2).flatten().take(torch.tensor([3, 3, -1])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    def run(program: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        x = torch.linspace(-1, 1, 2 * 3 * 6 * 5).view(2, 3, 6, 5).requires_grad_()
        out = program(x)
        return out.detach(), torch.autograd.grad(out.sum(), x)[0]

    torch.testing.assert_close(run(compiler_lab.compile(PROGRAMS[name], fullgraph=True)), run(PROGRAMS[name]), rtol=1e-4, atol=1e-5)


BAD: dict[str, Callable[[Tensor], Tensor]] = {
    "gather": lambda i: torch.arange(12.0).view(3, 4).gather(1, i.view(-1, 1)) * 2,
    "index": lambda i: torch.arange(12.0).view(3, 4)[i, i] + 1,
    "embedding": lambda i: F.embedding(i, torch.ones(3, 4)) + 1,
    "scatter": lambda i: torch.zeros(3, 4).scatter(0, i.view(-1, 1), 1.0) + 1,
    "scatter_add": lambda i: torch.zeros(3).scatter_add(0, i, torch.ones(i.shape)) + 1,
    "index_put": lambda i: torch.zeros(3).index_put((i,), torch.ones(()), accumulate=True) + 1,
    "index_add": lambda i: torch.zeros(3).index_add(0, i, torch.ones(i.shape)) + 1,
    "division": lambda i: 7 // (i - 1),
    "remainder": lambda i: (i * 3) % (i - 1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_eager_refuses_is_refused_in_its_words(name: str) -> None:
    program = BAD[name]
    compiled = compiler_lab.compile(program, fullgraph=True)
    good, bad = (torch.tensor([0, 2]), torch.tensor([2, 1])) if name in ("division", "remainder") else (torch.tensor([0, 2]), torch.tensor([1, 7]))
    torch.testing.assert_close(compiled(good), program(good))
    with pytest.raises((RuntimeError, IndexError)) as wanted:
        program(bad)
    with pytest.raises(type(wanted.value)) as raised:
        compiled(bad)
    assert str(raised.value) == str(wanted.value)
    torch.testing.assert_close(compiled(good), program(good))
