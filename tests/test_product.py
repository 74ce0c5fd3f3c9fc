"""Matrix products by a template of ours: values and accuracy, what fuses with one and what must not, and the choice by measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import compiler_lab
from compiler_lab import tuning
from compiler_lab.codegen.artifact import Kernels
from compiler_lab.core.options import Options
from compiler_lab.lowering.ir import TensorView
from compiler_lab.lowering.rows_product import LEAST, Choice, Product, product_of
from compiler_lab.runtime.build import build
from compiler_lab.scheduling.ir import LoopGroup

from . import test_codegen


def kernels_of(f: Callable[..., Any], *args: Tensor) -> Kernels:
    """With every product by the template."""
    return test_codegen.kernels_of(f, *args, choose=lambda product: Choice(True))


def shapes(kernels: Kernels) -> list[str]:
    return [g.shape if isinstance(g, LoopGroup) else "extern" for g in kernels.schedule.groups]


def mlp(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.gelu(F.linear(x, w, b)) * 2


def scaled(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x.flatten(0, 1), w.t(), beta=0.5, alpha=-2.0)


def unbiased(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b * float("nan"), x.flatten(0, 1), w.t(), beta=0)


def heads(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x.flatten(0, 1) @ w.t()).view(3, 50, 10, 13).transpose(1, 2) * 2


def left_turned(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x[0].t() @ x[1]).relu()


def residual(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x.flatten(0, 1)
    return y + (y @ w.t()).relu() @ w


def steps_apart(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x[1, ::2, 3:40] @ w[::3, 1:38].t()


def softmaxed(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x @ w.t()).softmax(-1)


PROGRAMS = [(mlp, 1), (scaled, 1), (unbiased, 1), (heads, 1), (left_turned, 1), (residual, 2), (steps_apart, 1), (softmaxed, 1)]


@pytest.mark.parametrize(("f", "products"), PROGRAMS)
def test_products_are_eagers(f: Callable[..., Tensor], products: int) -> None:
    args = torch.randn(3, 50, 70), torch.randn(130, 70), torch.randn(130)
    kernels = kernels_of(f, *args)
    assert shapes(kernels).count("product") == products and "extern" not in shapes(kernels)
    want, exact, program = f(*args), f(*(a.double() for a in args)), build(kernels)
    for _ in range(2):
        (got,) = program(*args)
        assert got.stride() == want.stride()
        assert (got - exact).abs().max() <= 3 * (want - exact).abs().max() + 1e-6
    torch.testing.assert_close(kernels.run(*args)[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(2, 16, 16), (1, 40, 20), (241, 33, 129), (13, 300, 1000)])
def test_edges_of_blocks(size: tuple[int, int, int]) -> None:
    rows, columns, depth = size
    a, b = torch.randn(rows, depth), torch.randn(depth, columns)
    kernels = kernels_of(lambda a, b: (a @ b).relu(), a, b)
    (got,), exact = build(kernels)(a, b), (a.double() @ b.double()).relu()
    assert (got - exact).abs().max() <= 3 * ((a @ b).relu() - exact).abs().max() + 1e-6


def test_special_values() -> None:
    a, b = torch.randn(20, 40), torch.randn(40, 50)
    a[3, 4], a[7, 8], b[9, 10] = float("nan"), float("inf"), 0.0
    b[8, 11], b[8, 12] = 0.0, -1.0  # inf * 0, -inf
    (got,) = build(kernels_of(lambda a, b: a @ b + 1, a, b))(a, b)
    torch.testing.assert_close(got, a @ b + 1, equal_nan=True)


def test_what_a_template_cannot_take_stays_outside() -> None:
    x, w = torch.randn(40, 70), torch.randn(130, 70)
    made = kernels_of(lambda x, w: x.relu() @ w.t(), x, w)
    assert shapes(made) == ["pointwise", "product"], "computed once for each element, not once for each column"
    assert any(d.kind == "recompute" and d.reason == "broadcast" for d in made.schedule.decisions)
    made = kernels_of(lambda x, w: (x @ w.t(), x @ w.t().flip(1)), x, w)
    assert shapes(made).count("product") == 2
    assert any(d.kind == "fuse" and d.reason == "reduction boundary" for d in made.schedule.decisions)
    made = kernels_of(lambda x, w: (x @ w.t()).softmax(-1), x, w)
    assert shapes(made) == ["product", "row"]


def test_other_products_are_the_librarys() -> None:
    asked: list[Product] = []

    def choose(product: Product) -> Choice:
        asked.append(product)
        return Choice(True)

    def f(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return a @ b, a.double() @ b.double(), a[:, :3] @ b[:3], torch.bmm(a[None], b[None])

    args = torch.randn(20, 30), torch.randn(30, 40)
    program = test_codegen.lowered(f, *args, choose=choose)
    assert [(p.rows, p.columns, p.depth) for p in asked] == [(20, 40, 30)]
    assert [d.outcome for d in program.decisions if d.facts["target"] in ("aten.mm.default", "aten.bmm.default")] == ["loop", "extern", "extern", "extern"]


PRODUCT = Product(24, 32, 40, (40, 1), (1, 40), (0, 1), True)


@pytest.mark.parametrize("product", [PRODUCT, Product(24, 32, 40, (40, 1), (32, 1), None, False)])
def test_both_ways_are_measured_once(product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(cache_dir=str(tmp_path))
    first = tuning.by_measurement(options)(product)
    assert set(first.facts) == {tuning.LIBRARY, tuning.TEMPLATE} and min(first.facts.values()) > 0

    def again(*_: Any) -> dict[str, float]:
        raise AssertionError("measured again")

    monkeypatch.setattr(tuning, "measure", again)
    assert tuning.by_measurement(options)(product) == first, "another process finds what was measured"


@pytest.mark.parametrize(("template", "outcome"), [(1.0, "loop"), (1.97, "extern"), (5.0, "extern")])
def test_max_autotune_takes_what_is_faster(template: float, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "measure", lambda product, options: {tuning.LIBRARY: 2.0, tuning.TEMPLATE: template})
    model, x = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 24)), torch.randn(40, 32, requires_grad=True)
    steps: list[Any] = []
    compiled = compiler_lab.compile(model, mode="max-autotune", observe=steps.append, options={"cache_dir": str(tmp_path)})
    compiled(x).square().sum().backward()
    got = [p.grad for p in (x, *model.parameters())]
    x.grad = None
    model.zero_grad()
    model(x).square().sum().backward()
    for g, p in zip(got, (x, *model.parameters()), strict=True):
        assert g is not None
        torch.testing.assert_close(g, p.grad, rtol=1e-4, atol=1e-4)
    chosen = [d for s in steps if s.name == "lower" for d in s.after.decisions if d.reason.startswith("measured")]
    assert len(chosen) >= 5 and {d.outcome for d in chosen} == {outcome}
    assert all(d.facts[tuning.TEMPLATE] == template for d in chosen)


def test_the_smallest_product_that_loops_are_made_for() -> None:
    def product(rows: int, depth: int, columns: int) -> Product | None:
        left, right = (TensorView("x", size, (size[1], 1), 0, torch.float32) for size in ((rows, depth), (depth, columns)))
        return product_of("aten.mm.default", (left, right), {}, True)

    assert product(1, LEAST, LEAST) == Product(1, LEAST, LEAST, (LEAST, 1), (LEAST, 1), None, True)
    assert product(0, LEAST, LEAST) is product(1, LEAST - 1, LEAST) is product(1, LEAST, LEAST - 1) is None
