"""Each row of lowering against eager: NaN, infinities and signed zeros, broadcast and strided operands, all dtypes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compiler_lab.lowering.ir import LoopNode
from compiler_lab.lowering.lower import ELEMENTWISE, ROWS, lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.lowering.rows_create import UNWRITTEN, apart
from compiler_lab.lowering.rows_pooling import POOLING
from compiler_lab.lowering.rows_scan import SCANS

from .lowering_cases import (
    CREATE_CALLS,
    DTYPES,
    FEW,
    FLOATS,
    INDEXED_CALLS,
    VIEW_CALLS,
    assert_as_aten,
    assert_same,
    aten,
    call_graph,
    combinations,
    op_of,
    reasons,
    traced,
    values,
)  # fmt: skip

# ---- pointwise rows: every one, in every dtype that eager takes -------------------------------------------------------------------

CLOSE = {torch.float32: 2e-6, torch.float64: 2e-14, torch.bfloat16: 2**-7, torch.float16: 2**-10}
INEXACT = frozenset(
    {
        "aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor", "aten.rsub.Scalar", "aten.addcmul.default", "aten.atan2.default", "aten.elu.default",
        "aten.elu_backward.default", "aten.hardsigmoid_backward.default", "aten.lerp.Tensor", "aten.ldexp.Tensor",
        "aten.mish.default", "aten.mish_backward.default", "aten.silu.default", "aten.silu_backward.default", "aten.softplus.default",
        "aten.softplus_backward.default", "aten.softshrink.default",
        "aten.tanh_backward.default", "aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other",
    }
)  # fmt: skip
"""Rows whose formula aten evaluates with fused multiply-adds, in another order, or with a float32 constant."""
CANCELLING = frozenset({"aten.gelu.default", "aten.gelu_backward.default"})
"""Rows whose results are small differences of large numbers."""
NO_FAKE = frozenset({"aten.__lshift__.Scalar", "aten.__rshift__.Scalar"})
"""Operators whose fake kernel refuses bool where the real one takes it."""
FAKE_STRIDES = frozenset({"aten.pow.Scalar"})
"""Operators whose fake kernel gives other strides than the real one for strided arguments."""


def lost(args: list[Any], backward: bool) -> Tensor:
    """How much 1 + erf(x) and 1 + tanh(x), computed in float32, may lose for negative x: eager's kernels differ in this from machine to machine."""
    *grad, x = (a.double().abs() for a in args)
    x = x.clamp(max=10)
    return 8 * torch.finfo(torch.float32).eps * x * ((1 + x * x) * grad[0] if backward else 1)


def assert_as_aten_or_exact(name: str, args: list[Any], kwargs: dict[str, Any]) -> LoopProgram:
    """Eager's result or the exact one, but for a last bit and for what is lost."""
    graph, inputs = call_graph(op_of(name), *args, **kwargs)
    program = lower(graph)
    program.check()
    (got,), eager = program.run(*inputs), op_of(name)(*args, **kwargs)
    exact = op_of(name)(*(a.double() for a in args), **kwargs)
    assert (got.shape, got.dtype) == (eager.shape, eager.dtype)
    slack = lost(args, len(args) > 1) * (1 if eager.dtype != torch.float64 else 2**-29)
    right = torch.zeros(got.shape, dtype=torch.bool)
    for want in (eager.double(), exact):
        near = (got.double() - want).abs() <= slack + 2 * CLOSE[eager.dtype] * want.abs()
        right |= near | (got == want) | (got.isnan() & want.isnan())
    assert right.all(), f"{name} {args} {kwargs}: {got[~right]} is neither eager's {eager[~right]} nor {exact[~right]}"
    return program


def wide(arg: Any) -> Any:
    """Half precision arguments as float64: what a rounded result is judged by."""
    return arg.double() if isinstance(arg, Tensor) and arg.dtype in (torch.bfloat16, torch.float16) else arg


def assert_pointwise(name: str, dtype: torch.dtype, layout: str, args: list[Any], kwargs: dict[str, Any]) -> LoopProgram:
    """As ``assert_as_aten``; half precision may equal eager or, to the last bit but one, the exact result rounded once."""
    if name in CANCELLING and dtype.is_floating_point:
        return assert_as_aten_or_exact(name, args, kwargs)
    if dtype not in (torch.bfloat16, torch.float16):
        if name in FAKE_STRIDES and layout == "strided":
            args = [a.contiguous() if isinstance(a, Tensor) else a for a in args]
        tolerance = (1e-7 if name == "aten.hardsigmoid_backward.default" else CLOSE.get(dtype, 2e-6)) if name in INEXACT else 0.0
        return assert_as_aten(op_of(name), *args, **kwargs, rtol=tolerance, atol=tolerance / 2)
    graph, inputs = call_graph(op_of(name), *args, **kwargs)
    program = lower(graph)
    program.check()
    (got,), eager = program.run(*inputs), op_of(name)(*args, **kwargs)
    assert (got.shape, got.dtype) == (eager.shape, eager.dtype)
    exact = op_of(name)(*map(wide, args), **{k: wide(v) for k, v in kwargs.items()}).to(eager.dtype)
    right = (
        got.isclose(exact, rtol=CLOSE[dtype], atol=0.0, equal_nan=True) | got.isclose(eager, rtol=CLOSE[dtype], atol=0.0, equal_nan=True)
        if got.is_floating_point()
        else got == eager
    )
    assert right.all(), f"{name} {args} {kwargs}: {got[~right]} is neither eager's {eager[~right]} nor {exact[~right]}"
    return program


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_pointwise_row_equals_eager(name: str) -> None:
    looped = 0
    for dtype in DTYPES if name not in NO_FAKE else DTYPES[:-1]:
        for layout in ("same", "broadcast", "strided", "scalar") if dtype in FEW else ("same",):
            for args, kwargs in combinations(name, dtype, layout):
                try:
                    op_of(name)(*args, **kwargs)
                except (RuntimeError, IndexError):
                    continue  # eager refuses this dtype or shape
                program = assert_pointwise(name, dtype, layout, args, kwargs)
                looped += any(isinstance(n, LoopNode) for n in program.nodes)
    assert looped, "no dtype of this row became a loop"


# ---- reductions -------------------------------------------------------------------------------------------------------------------


def X(dtype: torch.dtype = torch.float32, special: bool = False, shape: tuple[int, ...] = (4, 5, 6)) -> Tensor:
    return values(dtype, *shape, special=special)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1),
    "strided": lambda x: x[..., ::2],
    "expanded": lambda x: x[:, :1].expand(x.shape),
    "scalar": lambda x: x[0, 0, 0],
    "unit": lambda x: x[:1, :, :1],
}
DIMS = [None, [0], [1], [-1], [0, 2], [0, 1, 2], []]
SUMS = ("aten.sum.dim_IntList", "aten.mean.dim", "aten.linalg_vector_norm.default", "aten.logsumexp.default")


def legal(dims: Any, x: Tensor) -> bool:
    return dims is None or all(-max(x.dim(), 1) <= d < max(x.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_equal_eager(name: str, layout: str) -> None:
    compared = 0
    for dtype in DTYPES if layout == "contiguous" else FEW:
        for dims in DIMS:
            for keepdim in (False, True):
                x = LAYOUTS[layout](X(dtype))
                args = (2, dims) if "norm" in name else (dims,)
                try:
                    op_of(name)(x, *args, keepdim)
                except (RuntimeError, IndexError):
                    continue
                tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-14}.get(dtype, 1e-6) if dtype.is_floating_point else 0.0
                program = assert_as_aten(op_of(name), x, *args, keepdim, rtol=tolerance, atol=tolerance)
                assert reasons(program) == ["loop"] or (name == SUMS[3] and not dtype.is_floating_point)
                compared += 1
    assert compared >= 2 * len(FEW), "eager refuses some of it only"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name",
    ["amax.default", "amin.default", "any.dims", "all.dims", "any.dim", "all.dim", "max.dim", "min.dim", "argmax.default", "argmin.default", "prod.dim_int"],
)
def test_selections_equal_eager(name: str, layout: str) -> None:
    target = op_of(f"aten.{name}")
    listed = name.split(".")[0] in ("amax", "amin") or name.endswith("dims")
    compared = 0
    for dtype in DTYPES if layout == "contiguous" else FEW:
        # dims=[] of any and all keeps every dimension; its fake kernel gives other strides than the real one
        for dims in (DIMS if layout == "contiguous" or name[:2] == "am" else DIMS[:-1]) if listed else [None, 0, 1, -1]:
            for special in (False, True) if dtype.is_floating_point and "prod" not in name else (False,):
                x = LAYOUTS[layout](X(dtype, special))
                dims = [] if listed and dims is None and name[:4] in ("amax", "amin") else dims
                try:
                    target(x, dims)
                except (RuntimeError, IndexError, TypeError):
                    continue
                for keepdim in (False, True):
                    tolerance = (
                        {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2, torch.float16: 3e-3}.get(dtype, 0.0) if "prod" in name else 0.0
                    )
                    assert_as_aten(target, x, dims, keepdim, rtol=tolerance)
                    compared += 1
    assert compared >= 2 * len(FEW), "eager refuses some of it only"


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin", "count_nonzero"])
def test_full_reductions_equal_eager(name: str) -> None:
    target = op_of(f"aten.{name}.default")
    compared = 0
    for dtype in DTYPES:
        for layout in LAYOUTS.values():
            x = layout(X(dtype, shape=(2, 3, 4)))
            try:
                target(x)
            except (RuntimeError, IndexError):
                continue
            tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-14, torch.float32: 1e-6}.get(dtype, 0.0)
            assert_as_aten(target, x, rtol=tolerance, atol=tolerance)
            compared += 1
    assert compared >= len(FEW) * len(LAYOUTS), "eager refuses some dtypes only"


def test_extremes_take_the_first_of_equals_and_nan_over_all() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, -2.0], [math.nan, 5.0, math.nan, 1.0], [-math.inf, -math.inf, -math.inf, -math.inf]])
    for name in ("max.dim", "min.dim", "argmax.default", "argmin.default"):
        assert_as_aten(op_of(f"aten.{name}"), x, 1)
        assert_as_aten(op_of(f"aten.{name}"), x.t().contiguous().t(), 1)
        assert_as_aten(op_of(f"aten.{name}"), x, 0)
    assert_as_aten(aten.argmax.default, x[:1].t())  # counted in logical order, whatever the memory's


@pytest.mark.parametrize("name", ["var.correction", "std.correction", "var_mean.correction", "std_mean.correction"])
def test_variances_equal_eager(name: str) -> None:
    for dtype in FLOATS:
        tolerance = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-13, torch.float32: 2e-6}[dtype]
        for layout in LAYOUTS.values() if dtype in FEW else (LAYOUTS["contiguous"],):
            for dims in DIMS:
                x = layout(X(dtype))
                if not legal(dims, x):
                    continue
                # what is constant has deviations of 0 in one formula and of rounding errors in the other: no dividing by 0 then
                for correction in (None, 0) if layout is not LAYOUTS["contiguous"] else (None, 0, 1, 2, 1000):
                    assert_as_aten(op_of(f"aten.{name}"), x, dims, correction=correction, keepdim=correction == 0, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_and_its_backward_equal_eager(name: str) -> None:
    for dtype in FLOATS:
        tolerance = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float64: 1e-13, torch.float32: 2e-6}[dtype]
        for layout in LAYOUTS.values() if dtype in FEW else (LAYOUTS["contiguous"],):
            x = layout(X(dtype))
            for dim in (0, -1):
                assert_as_aten(op_of(f"aten.{name}.default"), x, dim, False, rtol=tolerance, atol=tolerance)
                out = torch.softmax(x, dim) if name == "_softmax" else torch.log_softmax(x, dim)
                grad = values(dtype, *x.shape, seed=3, special=False)
                want = op_of(f"aten.{name}_backward_data.default")(grad, out, dim, dtype)
                graph, inputs = call_graph(op_of(f"aten.{name}_backward_data.default"), grad, out, dim, dtype)
                program = lower(graph)
                program.check()
                torch.testing.assert_close(program.run(*inputs)[0], want, rtol=tolerance, atol=tolerance)
                assert reasons(program) == ["loop"]
    masked = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf] * 3, [math.nan, 0.0, 1.0], [math.inf, 0.0, 1.0]])
    assert_as_aten(op_of(f"aten.{name}.default"), masked, 1, False, rtol=1e-6)
    assert_as_aten(aten.logsumexp.default, masked, [1], rtol=1e-6)


def test_a_reduction_has_one_loop_over_what_it_reduces() -> None:
    (node,) = assert_as_aten(aten.sum.dim_IntList, torch.randn(3, 5, 7), [0, 2], rtol=1e-6, atol=1e-6).nodes
    assert isinstance(node, LoopNode) and node.is_reduction
    assert ([v.size for v in node.outer], [v.size for v in node.inner]) == ([5], [3, 7])
    (node,) = assert_as_aten(aten.sum.dim_IntList, torch.randn(7, 3).t(), [0, 1], rtol=1e-6, atol=1e-6).nodes
    assert isinstance(node, LoopNode)
    assert [v.size for v in node.inner] == [7, 3]  # in the order of memory
    (node,) = assert_as_aten(aten.sum.dim_IntList, torch.randn(4, 1), [1]).nodes
    assert isinstance(node, LoopNode) and not node.is_reduction


# ---- views ------------------------------------------------------------------------------------------------------------------------


@st.composite
def view_chains(draw: st.DrawFn) -> Callable[[Tensor], Tensor]:
    """A chain of aten views, chosen by what each shape allows."""
    seeds = draw(st.lists(st.tuples(st.integers(0, 13), st.integers(0, 1000)), min_size=1, max_size=6))

    def run(x: Tensor) -> Tensor:
        for kind, seed in seeds:
            x = one_view(x, kind, seed)
        return x

    return run


def one_view(x: Tensor, kind: int, seed: int) -> Tensor:
    d = seed % max(x.dim(), 1)
    if kind == 0:
        return x.unsqueeze(seed % (x.dim() + 1))
    if kind == 1 or not x.dim():
        return x.squeeze()
    n = x.shape[d]
    if kind == 2:
        return x.transpose(d, (d + 1) % x.dim())
    if kind == 3:
        return x.permute([(i + seed) % x.dim() for i in range(x.dim())])
    if kind == 4:
        return x[(slice(None),) * d + (slice(seed % n, None, 1 + seed % 3),)]
    if kind == 5:
        return x.select(d, seed % n) if x.dim() > 1 else x
    if kind == 6:
        return x.split(1 + seed % n, d)[0]
    if kind == 7:
        return x.unbind(d)[-1] if x.dim() > 1 else x
    if kind == 8:
        return x.expand(2, *x.shape) if x.dim() < 5 else x
    if kind == 9:
        return x.reshape(-1)
    if kind == 10:
        return x.reshape(n, -1)
    if kind == 11:
        return x.diagonal(seed % 2, d, (d + 1) % x.dim()) if x.dim() > 1 and min(x.shape) > 1 else x
    if kind == 12:
        return x.unfold(d, 1 + seed % n, 1 + seed % 2)
    return aten.alias.default(x.detach())


@settings(max_examples=40)
@given(view_chains())
def test_chains_of_views_equal_eager(chain: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(4, 6, 5)
    graph = traced(lambda a: chain(a) * 2, x)
    program = lower(graph)
    program.check()
    assert_same(program.run(x)[0], chain(x) * 2, program.text())
    want = chain(x)
    pure = lower(traced(chain, x))
    pure.check()
    assert_same(pure.run(x)[0], want, pure.text())


@pytest.mark.parametrize("name", sorted(VIEW_CALLS))
def test_view_row_equals_eager_and_costs_nothing(name: str) -> None:
    for args in VIEW_CALLS[name]:
        program = assert_as_aten(op_of(name), torch.randn(4, 6), *args)
        if args != (torch.int32,):
            assert not program.nodes and reasons(program) == ["view"]
    if name not in ("aten.view.default", "aten.view.dtype", "aten._unsafe_view.default", "aten._reshape_alias.default"):
        assert_as_aten(op_of(name), torch.randn(6, 4).t(), *VIEW_CALLS[name][0])


def test_a_shape_without_strides_is_copied() -> None:
    program = lower(traced(lambda x: x.t().reshape(-1) + 1, torch.randn(3, 4)))
    assert [n.origin for n in program.nodes if isinstance(n, LoopNode)] == ["clone", "add"]
    x = torch.randn(3, 4)
    assert torch.equal(program.run(x)[0], x.t().reshape(-1) + 1)


def test_as_strided_counts_from_the_storage() -> None:
    base = torch.arange(40.0)
    x = base[7:31].view(4, 6)
    graph, inputs = call_graph(aten.as_strided.default, x, [3], [2], 9)
    program = lower(graph)
    program.check()
    assert torch.equal(program.run(*inputs)[0], torch.as_strided(x, [3], [2], 9))


# ---- rows that make tensors -------------------------------------------------------------------------------------------------------

STAYS = {"mask", "dtype", "fractional range", "empty", "not a number"}


@pytest.mark.parametrize("name", sorted(CREATE_CALLS))
def test_creation_row_equals_eager(name: str) -> None:
    loops = 0
    for args, kwargs in CREATE_CALLS[name]:
        tolerance = 2e-7 if name.startswith("aten.arange") else 0.0
        program = assert_as_aten(op_of(name), *args, rtol=tolerance, **kwargs)
        loops += reasons(program) == ["loop"]
        assert reasons(program) == ["loop"] or reasons(program)[0] in STAYS, program.decisions
    assert loops


@pytest.mark.parametrize("name", sorted(INDEXED_CALLS))
def test_indexed_row_equals_eager(name: str) -> None:
    loops = 0
    for args, kwargs in INDEXED_CALLS[name]:
        half = any(isinstance(a, Tensor) and a.dtype == torch.bfloat16 for a in args)
        tolerance = 2e-2 if half else 2e-6 if any(n in name for n in ("add", "put", "reduce", "backward")) else 0.0
        program = assert_as_aten(op_of(name), *args, rtol=tolerance, atol=tolerance, **kwargs)
        loops += reasons(program) == ["loop"]
        assert reasons(program) == ["loop"] or reasons(program)[0] in STAYS, program.decisions
    assert loops


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", sorted(SCANS))
def test_scan_equals_eager(name: str, layout: str) -> None:
    compared = 0
    for dtype in DTYPES if layout == "contiguous" else FEW:
        for dim in (0, 1, -1):
            for special in (False, True) if dtype.is_floating_point and "prod" not in name else (False,):
                x = LAYOUTS[layout](X(dtype, special))
                try:
                    op_of(name)(x, dim)
                except (RuntimeError, IndexError):
                    continue
                tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-6, torch.float64: 1e-13}.get(dtype, 0.0) if "max" not in name else 0.0
                assert reasons(assert_as_aten(op_of(name), x, dim, rtol=tolerance, atol=tolerance)) == ["loop"]
                compared += 1
    assert compared >= len(FEW), "eager refuses some of it only"


@pytest.mark.parametrize("shape", [(3, 1), ()], ids=str)
@pytest.mark.parametrize("name", sorted(SCANS))
def test_a_scan_of_one_element_is_an_ordinary_loop(name: str, shape: tuple[int, ...]) -> None:
    program = assert_as_aten(op_of(name), values(torch.float32, *shape, special=False), -1)
    assert all(isinstance(n, LoopNode) for n in program.nodes)


def test_a_scatter_is_the_same_on_every_run_and_the_last_value_stays() -> None:
    index = torch.tensor([[0, 0, 0, 2]])
    got = assert_as_aten(aten.scatter.src, torch.zeros(1, 4), 1, index, torch.tensor([[1.0, 2.0, 3.0, 4.0]])).run(
        torch.zeros(1, 4), index, torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    )
    assert got[0].tolist() == [[3.0, 0.0, 4.0, 0.0]]


def test_every_row_names_an_operator_and_has_a_test() -> None:
    reduced = {n for n in ROWS if n.startswith("aten.")} - set(VIEW_CALLS) - set(CREATE_CALLS) - set(INDEXED_CALLS) - set(SCANS)
    reduced -= set(POOLING)  # in test_pooling.py
    reduced -= {f"aten.{n}" for n in UNWRITTEN}  # what eager leaves there is nothing to compare with
    covered = {
        *SUMS, *(f"aten.{n}.default" for n in ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin", "count_nonzero", "amax", "amin")),
        *(f"aten.{n}.default" for n in ("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")),
        *(f"aten.{n}" for n in ("any.dim", "all.dim", "any.dims", "all.dims", "max.dim", "min.dim", "prod.dim_int", "count_nonzero.dim_IntList")),
        *(f"aten.{n}.correction" for n in ("var", "std", "var_mean", "std_mean")),
    }  # fmt: skip
    assert reduced == covered
    for name in (*ROWS, *ELEMENTWISE):
        assert str(op_of(name)) == name


def test_indices_out_of_range_raise_as_in_eager() -> None:
    for target, args in (
        (aten.gather.default, (torch.randn(3, 4), 1, torch.tensor([[4]]))),
        (aten.index.Tensor, (torch.randn(3), [torch.tensor([-4])])),
        (aten.gather.default, (torch.randn(3), 0, torch.tensor([-1]))),
        (aten.index.Tensor, (torch.randn(3, 4), [torch.tensor([0, 1]), torch.tensor([0, 4])])),
        (aten.index.Tensor, (torch.randn(0, 4), [torch.tensor([0])])),
        (aten.index_put.default, (torch.randn(3), [torch.tensor([3])], torch.randn(1), True)),
        (aten.index_put.default, (torch.randn(3), [torch.tensor([-4])], torch.randn(1))),
        (aten.scatter_add.default, (torch.randn(3), 0, torch.tensor([0, 3]), torch.randn(2))),
        (aten.scatter.src, (torch.randn(3, 4), 1, torch.tensor([[0, -1]]), torch.randn(1, 2))),
        (aten.scatter_reduce.two, (torch.randn(3), 0, torch.tensor([0, 3]), torch.randn(2), "amax")),
    ):
        graph, inputs = call_graph(target, *args)
        with pytest.raises((IndexError, RuntimeError)):
            target(*args)
        with pytest.raises(IndexError, match="out of range"):
            lower(graph).run(*inputs)


def test_the_parts_of_a_cat_are_read_without_division() -> None:
    """Blocks of equal length need no remainder: three gradients of a fused projection go back side by side."""
    (node,) = assert_as_aten(aten.cat.default, [torch.randn(4, 8) for _ in range(3)], 1).nodes
    assert isinstance(node, LoopNode)
    assert all(index.is_affine for _, index in node.reads())
    assert [v.size for v in node.outer] == [4, 3, 8]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=3))
def test_points_that_are_said_to_lie_apart_do(dims: list[tuple[int, int]]) -> None:
    """What is written at such strides has no two values for one place; the plain steps of a dense tensor lie apart."""
    size, stride = zip(*dims, strict=True)
    places = [sum(i * s for i, s in zip(point, stride, strict=True)) for point in itertools.product(*map(range, size))]
    assert len(set(places)) == len(places) or not apart(size, stride)
    assert apart(size, torch.empty(size).stride())
