"""Code generation: C++ against the interpretation of the schedule and against eager, for each loop shape, op, dtype and layout; lineage."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_lab.codegen import cpp, cpp_pieces
from compiler_lab.codegen.artifact import Kernels, bare, is_statement, statements
from compiler_lab.codegen.cpp import generate
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import Location
from compiler_lab.lowering import ops
from compiler_lab.lowering.index import Index, Var
from compiler_lab.lowering.ir import BufferSpec, LoopNode
from compiler_lab.lowering.lower import lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.lowering.rows_product import Choose
from compiler_lab.runtime.build import build
from compiler_lab.scheduling.fusion import schedule

from .conftest import run_threads
from .loops import THRESHOLDS, Builder, random_program, view

SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, -1e30, 88.0]


def lowered(f: Callable[..., Any], *args: Tensor, choose: Choose | None = None) -> LoopProgram:
    """``f`` over aten as torch's own tracer sees it (the oracle's graph: these tests are of what comes after it)."""
    module = make_fx(f, tracing_mode="fake")(*args)
    for i, n in enumerate(module.graph.nodes):
        n.meta["stack"], n.meta["parents"] = (Location("user.py", i + 1, "f"),), ()
    return lower(GraphArtifact(module, "aot.forward"), choose=choose)


def kernels_of(f: Callable[..., Any], *args: Tensor, fusion: bool = True, choose: Choose | None = None) -> Kernels:
    made = generate(schedule(lowered(f, *args, choose=choose), Options(fusion=fusion)))
    made.check()
    return made


def assert_as_eager(f: Callable[..., Any], *args: Tensor, fusion: bool = True, exact: bool = False, empty: bool = False) -> Kernels:
    """Built code against eager, twice (the second call uses the arena again): values, dtypes and strides. ``empty``: there is nothing to loop over."""
    kernels = kernels_of(f, *args, fusion=fusion)
    assert kernels.kernels or empty, "aten would be compared with itself"
    program = build(kernels)
    expected = f(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for _ in range(2):
        for got, want in zip(program(*args), expected, strict=True):
            assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
            torch.testing.assert_close(got, want, equal_nan=True, rtol=0 if exact else None, atol=0 if exact else None)
    return kernels


@pytest.fixture
def threads_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest loops are shared between threads too."""
    monkeypatch.setattr(cpp, "WORTH_THREADS", 1)
    monkeypatch.setattr(cpp, "THREADS", 2)


# ---- programs at random ----


@pytest.mark.parametrize("seed", range(14))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(seed)
    for module, name, values in THRESHOLDS:
        monkeypatch.setattr(module, name, choose.choice(values))
    program, inputs = random_program(seed, length=18)
    kernels = generate(schedule(program, Options(fusion=choose.random() < 0.9)))
    kernels.check()
    built = build(kernels)
    for got, want in zip(built(*inputs), kernels.run(*inputs), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-4, atol=1e-5)


# ---- loop shapes ----


def row_shapes(x: Tensor) -> tuple[Tensor, ...]:
    h = torch.softmax(x, -1)
    return h, x.sum(-1), (x * 2).amax(-1), x.argmax(-1), x.amin(-1), torch.var(x, -1, keepdim=True), x.argmin(-1), (x > 0).any(-1), (x > -9).all(-1)


def column_shapes(x: Tensor) -> tuple[Tensor, ...]:
    return torch.softmax(x, 0), x.sum(0), x.amax(0), x.argmax(0), torch.var(x, 0), (x > 0).any(0), x.argmin(0)


def flat_shapes(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(), x.amax(), x.argmax(), torch.var(x), (x > 9).any(), x.argmin(), x - x.mean()


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 7), (4, 65), (2, 1003), (70, 33)])
@pytest.mark.parametrize("f", [row_shapes, column_shapes, flat_shapes])
def test_shapes(f: Callable[[Tensor], tuple[Tensor, ...]], size: tuple[int, int]) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size[1]))
    if size == (1, 1):
        f = lambda x: (torch.softmax(x, -1), x.sum(0), x.argmax(), x.amax(1), x.sum())
    assert_as_eager(f, x)


@pytest.mark.parametrize("f", [row_shapes, column_shapes, flat_shapes])
@pytest.mark.usefixtures("threads_everywhere")
def test_shapes_with_threads(f: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    for size in ((3, 900), (40, 97)):
        kernels = assert_as_eager(f, torch.randn(size))
        assert {d.outcome for d in kernels.decisions if d.kind == "parallel"} <= {"outer", "inner", "serial"}
        assert "#pragma omp parallel" in kernels.source


def test_large_enough_for_threads() -> None:
    f = lambda x, y: (torch.softmax(x, -1), (x * 2).sum(0), x.sum(), x.argmax(), torch.relu(y) + 1)
    kernels = kernels_of(f, torch.randn(700, 1007), torch.randn(3, 20000))
    built = build(kernels)
    x, y = torch.randn(700, 1007), torch.randn(3, 20000)
    for got, want in zip(built(x, y), f(x, y), strict=True):
        torch.testing.assert_close(got, want, atol=2e-3 if got.dim() <= 1 and got.is_floating_point() else 1e-5, rtol=1e-4)
    assert {d.outcome for d in kernels.decisions if d.kind == "parallel"} == {"outer", "inner"}


def test_results_do_not_depend_on_threads() -> None:
    x = torch.randn(300, 1007)
    built = build(kernels_of(lambda x: (x.sum(), x.sum(0), torch.var(x), torch.softmax(x, 0)), x))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = built(x)
        torch.set_num_threads(2)
        two = built(x)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("width", [3, 40, 1003])
def test_special_values_in_reductions(width: int) -> None:
    """NaN, infinities and signed zeros, in every position of the lanes; the first of equal elements is argmax."""
    x = torch.randn(len(SPECIAL) * 3, width)
    for i, v in enumerate(SPECIAL):
        x[3 * i, i % width], x[3 * i + 1], x[3 * i + 2, -1] = v, v, v
    assert_as_eager(lambda x: (x.amax(1), x.argmax(1), x.amin(1), x.argmin(1), x.isnan().any(1), x.amax(0), x.argmax(0), x.amax(), x.argmin()), x, exact=True)


def test_several_inner_variables() -> None:
    """Reductions over dimensions that do not merge."""
    x = torch.randn(6, 5, 130, 3)
    assert_as_eager(lambda x: (x.sum((0, 2)), x.amax((0, 2)), x.mean((1, 3)), x.argmax(2), torch.var(x, (0, 3)), x.sum((0, 1, 2))), x)
    assert_as_eager(lambda x: (x.sum((0, 2)), x[:, 1:3].amax((1, 3))), torch.randn(200, 3, 49, 2))


def test_integers_in_reductions() -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (9, 77))
    assert_as_eager(
        lambda x: (x.sum(1), x.amax(1), x.argmin(0), x.prod(1), x.to(torch.int32).sum(0), x.to(torch.int8).amax(), (x > 0).sum(1), x.to(torch.uint8).amin(1)),
        x,
        exact=True,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats(dtype: torch.dtype) -> None:
    x = torch.randn(17, 70).to(dtype)
    kernels = kernels_of(lambda x: (x * 2 + 1, torch.softmax(x, -1), x.sum(0), x.amax(1), x.argmax(1), x.float() + x.double()), x)
    got = build(kernels)(x)
    for a, b in zip(got, kernels.run(x), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)


def accuracy(got: Tensor, x: Tensor, dims: tuple[int, ...]) -> float:
    exact = (
        x.double().sum(dims)
        if x.dtype == torch.float32
        else torch.tensor([math.fsum(r) for r in x.movedim(dims[0], -1).reshape(-1, x.shape[dims[0]]).tolist()])
    )
    return float((got.double().reshape(-1) - exact.reshape(-1)).abs().max())


@pytest.mark.parametrize(("size", "dims"), [((3, 100_000), (1,)), ((40_000, 9), (0,)), ((1000, 300), (0, 1)), ((40, 3, 4000), (0, 2))])
def test_sums_are_as_accurate_as_eager(size: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = torch.rand(size) + 1
    got = build(kernels_of(lambda x: x.sum(dims), x))(x)[0]
    assert accuracy(got, x, dims) <= 3 * accuracy(x.sum(dims), x, dims) + 1e-12 * x.numel()


def test_double_sums_are_as_accurate_as_eager() -> None:
    x = torch.rand(3, 60_000, dtype=torch.float64) + 1
    got = build(kernels_of(lambda x: x.sum(1), x))(x)[0]
    assert accuracy(got, x, (1,)) <= 3 * max(accuracy(x.sum(1), x, (1,)), 1e-11)


# ---- layouts ----


def test_layouts() -> None:
    base = torch.randn(12, 10, 8)
    f = lambda a, b, c: (a + b, (a * c).sum(1), torch.softmax(a.transpose(0, 1) + 1, -1), b.expand(12, 5, 4).amax(0), a.reshape(-1)[3:50] * 2)
    assert_as_eager(f, base[:, ::2, 1:5], base.permute(2, 1, 0)[1, 2:7, :4], base.transpose(1, 2)[:, 2:6, 3:8].transpose(1, 2))


def test_channels_last() -> None:
    x = torch.randn(4, 6, 5, 7).to(memory_format=torch.channels_last)
    assert_as_eager(lambda x: (torch.relu(x) + 1, x.mean((2, 3)), torch.var(x, (0, 2, 3)), torch.softmax(x, 1)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool])
def test_transposed_reads(dtype: torch.dtype) -> None:
    """Tiles, whole ones and those at the edges."""
    wide = lambda *size: torch.randint(-9, 9, size).to(dtype)
    f = lambda x, y, z: (x.t() * y, x.t().contiguous(), z.permute(2, 0, 1).contiguous(), (z.transpose(1, 2) > 0) & (z.permute(0, 2, 1) != 3))
    kernels = assert_as_eager(f, wide(80, 128), wide(128, 80), wide(5, 70, 45), exact=True)
    assert kernels.source.count("load_tile(tile0") >= 3
    assert_as_eager(lambda x, y: x.t() + y + y.sum(0), wide(63, 81).float(), wide(81, 63).float())


@pytest.mark.parametrize("cut_from", [1, 10**9])
def test_pieces_of_memory(cut_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """cat, pad, roll, slices and masks: conditions on the place and divisions in the index, in loops cut by them and in whole loops."""
    monkeypatch.setattr(cpp_pieces, "WORTH_CUTTING", cut_from)
    x, y = torch.randn(9, 14), torch.randn(9, 5)

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        cats = torch.cat([x, y, x], 1) * 2, torch.cat([x, -x]), torch.cat([y.t(), x.t(), y.t()])
        pads = F.pad(x, (3, 2, 1, 0)), F.pad(y, (-1, 4), value=3.0), F.pad(x[:, 2:5], (0, 2, 2, 2)) + 1
        return *cats, *pads, torch.tril(x) + 1, torch.roll(x, 3, 1) + 1, x.repeat(2, 3) + 1, x.flip(1) * 2

    kernels = assert_as_eager(f, x, y, exact=True)
    assert ("pieces" in " ".join(d.outcome for d in kernels.decisions)) == (cut_from == 1)
    assert_as_eager(lambda x, y: torch.softmax(torch.cat([x, y], 1), 1), x, y)


def test_cat_is_cut_into_plain_loops() -> None:
    kernels = assert_as_eager(lambda x, y, z: F.silu(torch.cat([x, y, z], 1)), torch.randn(80, 70), torch.randn(80, 90), torch.randn(80, 44))
    assert not re.search(r"[%?]", kernels.source.partition('extern "C"')[2])
    assert [d.outcome for d in kernels.decisions if d.kind == "cut"] == ["3 pieces"]


@pytest.mark.parametrize("size", [(0,), (0, 4), (4, 0), ()])
def test_nothing_and_scalars(size: tuple[int, ...]) -> None:
    assert_as_eager(lambda x: (x + 1, x.sum(), (x > 0).all()), torch.randn(size), empty=0 in size)
    if size:
        assert_as_eager(lambda x: (x.sum(0), x.relu() * 2), torch.randn(size), empty=0 in size)


# ---- every op, every dtype ----


def op_program(dtype: torch.dtype) -> tuple[LoopProgram, list[str]]:
    """One loop for each scalar op that torch has for ``dtype``: operands are columns of two inputs."""
    b = Builder()
    left, right = b.input(len(PAIRS), dtype=dtype), b.input(len(PAIRS), dtype=dtype)
    mask = b.input(len(PAIRS), dtype=torch.bool)
    i = Var("i0", len(PAIRS))
    names: list[str] = []
    for name, spec in ops.SCALAR.items():
        if name in ops.RANDOM:  # their operands are a seed and a counter, of another dtype than the result
            continue
        operands = {"where": (mask, left, right)}.get(name, (left, right)[: 1 + _binary(name)])
        example = [torch.ones(1, dtype=o.dtype) for o in operands]
        try:
            result = spec(*example).dtype
        except (RuntimeError, NotImplementedError):
            continue
        if result not in (dtype, torch.bool) or (dtype == torch.bool and name in ("pow", "remainder", "fmod")):
            continue
        body, out = fx.Graph(), BufferSpec(f"buf{len(names)}", (len(PAIRS),), (1,), result)
        call = lambda target, *args, dtype=dtype, body=body: _call(body, target, dtype, *args)
        value = call(ops.SCALAR[name], *(call(ops.load, o.buffer, Index.of(i), dtype=o.dtype) for o in operands), dtype=result)
        call(ops.store, out.name, Index.of(i), value, dtype=result)
        b.nodes.append(LoopNode(out.name, out, (i,), (), body, (f"aot.forward/{name}",), (Location("user.py", len(names) + 1),), name))
        names.append(name)
    made = LoopProgram(
        stage="lowering.forward",
        inputs=tuple(b.inputs),
        constants={},
        nodes=tuple(b.nodes),
        outputs=tuple(view(n.output) for n in b.nodes if isinstance(n, LoopNode)),
    )
    made.check()
    return made, names


def _call(body: fx.Graph, target: Any, dtype: torch.dtype, *args: Any) -> fx.Node:
    node = body.call_function(target, args)
    node.meta = {"dtype": dtype, "stack": (), "parents": ("aot.forward/f",)}
    return node


def _binary(name: str) -> int:
    return ops.SCALAR[name].__code__.co_argcount - 1


NUMBERS = [*SPECIAL, 2.0, -3.0, 7.0, 0.1, 1e-3, 20.0, -20.0, 1e10]
PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]
INTEGERS = [-128, -100, -7, -3, -2, -1, 1, 2, 3, 5, 7, 100, 127]


def op_values(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    n = len(PAIRS)
    mask = torch.arange(n) % 3 == 0
    if dtype == torch.bool:
        return torch.arange(n) % 2 == 0, torch.arange(n) % 5 < 2, mask
    if dtype.is_floating_point:
        return torch.tensor([a for a, _ in PAIRS], dtype=dtype), torch.tensor([b for _, b in PAIRS], dtype=dtype), mask
    pairs = [(a, b) for a in INTEGERS for b in INTEGERS]
    pairs = (pairs * (n // len(pairs) + 1))[:n]
    if dtype == torch.uint8:
        pairs = [(abs(a), abs(b)) for a, b in pairs]
    return torch.tensor([a for a, _ in pairs]).to(dtype), torch.tensor([b for _, b in pairs]).to(dtype), mask


ALL_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=lambda d: str(d).removeprefix("torch."))
def test_every_op(dtype: torch.dtype) -> None:
    program, names = op_program(dtype)
    left, right, mask = op_values(dtype)
    kernels = generate(schedule(program))
    kernels.check()
    results = build(kernels)(left, right, mask)
    wrong: list[str] = []
    for name, got in zip(names, results, strict=True):
        operands = {"where": (mask, left, right)}.get(name, (left, right)[: 1 + _binary(name)])
        want = ops.SCALAR[name](*operands)
        assert got.dtype == want.dtype, name
        # aten's vector code differs from its scalar code in places (fmod of huge by tiny, erf of tiny): the op in double serves as well
        exact = ops.SCALAR[name](*(o.double() if o.dtype.is_floating_point else o for o in operands)).to(want.dtype)
        tolerance = {torch.float32: 5e-7, torch.float64: 1e-15, torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(dtype, 0)
        close = torch.isclose(got, want, equal_nan=True, rtol=tolerance, atol=0) | torch.isclose(got, exact, equal_nan=True, rtol=tolerance, atol=0)
        if got.is_floating_point() and name not in ("maximum", "minimum"):  # of 0.0 and -0.0 aten takes either
            close &= (got != 0) | (torch.signbit(got) == torch.signbit(want))
        if not close.all():
            k = int((~close).nonzero()[0])
            wrong.append(f"{name}({', '.join(str(o[k].item()) for o in operands)}) = {got[k].item()}, not {want[k].item()}")
    assert not wrong, "\n".join(wrong)
    assert len(names) > {torch.bool: 15}.get(dtype, 25)


def test_constant_powers() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor([0.0, -0.0, 0.3, 1.5, -2.5, 7.0, math.inf, -math.inf, math.nan], dtype=dtype)
        assert_as_eager(lambda x: tuple(x**e for e in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 4.0)), x)


def test_conversions() -> None:
    targets = ALL_DTYPES
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 127.0, 100.3, 0.1, 65504.0])
    assert_as_eager(lambda x: tuple(x.to(t).clone() + (not t.is_floating_point and t != torch.bool) for t in targets), x)
    n = torch.tensor([-(2**40), -300, -1, 0, 1, 127, 128, 255, 256, 2**40 + 3])
    assert_as_eager(lambda n: tuple((n + 1).to(t) for t in targets), n)
    assert_as_eager(lambda b: tuple((~b).to(t) for t in targets), torch.tensor([True, False, True]))


def test_constants() -> None:
    x = torch.tensor([1.0, -2.0])
    f = lambda x: (
        x * 0.1,
        x + 1e-20,
        x * math.inf,
        x + math.nan,
        x * -0.5,
        x.double() * 0.1,
        x.to(torch.int64) + 2**62,
        x - -3.0,
        x.pow(3),
        x.pow(-2),
        x.pow(0.5),
        x.pow(2.5),
    )
    assert_as_eager(f, x)


# ---- errors that kernels find ----


def test_index_errors() -> None:
    x, good = torch.randn(5, 4), torch.tensor([0, 4, -1])
    built = build(kernels_of(lambda x, i: x[i] * 2, x, good))
    torch.testing.assert_close(built(x, good)[0], x[good] * 2)
    for bad in (5, -6, 2**62, -(2**62)):
        with pytest.raises(IndexError):
            built(x, torch.tensor([0, bad, 1]))
    torch.testing.assert_close(built(x, good)[0], x[good] * 2)


def test_an_embedding_has_no_row_for_other_indices() -> None:
    weight, good = torch.randn(5, 4), torch.tensor([0, 4])
    built = build(kernels_of(lambda w, i: torch.nn.functional.embedding(i, w) * 2, weight, good))
    torch.testing.assert_close(built(weight, good)[0], weight[good] * 2)
    for bad in (5, -1):
        with pytest.raises(IndexError):
            built(weight, torch.tensor([0, bad]))


@pytest.mark.parametrize("size", [1, 5])
def test_index_errors_of_a_buffer_that_holds_one_number(size: int) -> None:
    """Nothing is read at the position, which may still be out of range."""
    for f in (lambda x, i: torch.full((size,), 1.5)[i], lambda x, i: ((x + x) * 0).reshape(-1)[i] if size == 1 else torch.zeros(size)[i] + x):
        built = build(kernels_of(f, torch.tensor(3.0), torch.tensor([0])))
        assert built(torch.tensor(3.0), torch.tensor([size - 1]))[0].shape == (1,)
        with pytest.raises(IndexError):
            built(torch.tensor(3.0), torch.tensor([size]))


def test_indexing_nothing() -> None:
    built = build(kernels_of(lambda x, i: x[i] * 2, torch.randn(0, 4), torch.tensor([0])))
    with pytest.raises(IndexError):
        built(torch.randn(0, 4), torch.tensor([0]))


def test_integer_division_by_zero() -> None:
    a, b = torch.tensor([7, -7, 7]), torch.tensor([2, 2, -2])
    f = lambda a, b: (a // b, torch.remainder(a, b), a // 3)
    assert_as_eager(f, a, b, exact=True)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        build(kernels_of(f, a, b))(a, torch.tensor([1, 0, 1]))


# ---- the wrapper ----


def test_extern_calls_and_arena() -> None:
    x, w, v = torch.randn(6, 8), torch.randn(8, 5), torch.randn(5, 7)
    kernels = assert_as_eager(lambda x, w, v: (torch.relu(torch.relu(x + 1) @ w) @ v, (x @ w).t() @ (x * 2), torch.cumsum(x * 2, 1) + 1), x, w, v)
    assert "out=" in kernels.wrapper and kernels.schedule.plan.slots


def test_views_of_inputs_go_to_extern_calls() -> None:
    base = torch.randn(3, 20, 8)
    x = base[1, 2:14]  # a window with a storage offset of its own
    assert_as_eager(lambda x, y: (x[2:6, :] @ y.t(), x[1:].sum()), x, torch.randn(5, 8))


def test_outputs() -> None:
    """Views of results, inputs handed through, plain values, one buffer twice."""
    x = torch.randn(4, 6)

    def f(x: Tensor) -> tuple[Any, ...]:
        y = x + 1
        return y, y.t(), y[1:, 2], x, x.view(24)[5:]

    kernels = kernels_of(f, x)
    got = build(kernels)(x)
    for a, b in zip(got, f(x), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert got[1].data_ptr() == got[0].data_ptr() and got[3] is x
    again = build(kernels)(x)
    assert again[0].data_ptr() != got[0].data_ptr()


def test_calls_may_overlap() -> None:
    """Threads share one program; each call has an arena of its own."""
    x, w = torch.randn(64, 32), torch.randn(32, 32)
    f = lambda x, w: torch.softmax(torch.relu(x @ w) @ w, -1)
    built = build(kernels_of(f, x, w))

    def work(seed: int) -> None:
        mine = torch.randn(64, 32, generator=torch.Generator().manual_seed(seed))
        for _ in range(50):
            torch.testing.assert_close(built(mine, w)[0], f(mine, w))

    run_threads([partial(work, i) for i in range(4)])


def test_names_that_clash() -> None:
    """Inputs called like C++ keywords, like our variables, like functions."""
    b = Builder()
    x = b.input(4, 5)
    b.loop("exp", [x])
    clash = replace(b.inputs[0], name="double")
    node = b.nodes[0]
    assert isinstance(node, LoopNode)
    for n in node.body.nodes:
        if n.target is ops.load:
            n.args = ("double", *n.args[1:])
    program = LoopProgram(stage="lowering.forward", inputs=(clash,), constants={}, nodes=(node,), outputs=(view(node.output),))
    value = torch.randn(4, 5)
    torch.testing.assert_close(build(generate(schedule(program)))(value)[0], value.exp())


def test_other_devices_are_refused() -> None:
    program = LoopProgram(
        stage="lowering.forward", inputs=(BufferSpec("x", (2,), (1,), torch.float32, torch.device("meta")),), constants={}, nodes=(), outputs=()
    )
    with pytest.raises(Unsupported, match="meta"):
        generate(schedule(program))


# ---- text and lineage ----


def example() -> LoopProgram:
    x, w = torch.randn(6, 40), torch.randn(40)
    return lowered(lambda x, w: torch.softmax(F.gelu(x) * w, -1).sum(0) + 1, x, w)


def test_text(golden: Callable[[str, str], None]) -> None:
    kernels = generate(schedule(example()))
    golden("codegen_softmax.txt", kernels.text().rstrip("\n"))
    assert kernels.text() == generate(schedule(example())).text()
    assert set(re.findall(r"#include (\S+)", kernels.source)) == {"<cstdint>", "<cstdlib>", '"lab_math.h"'}


def test_generate_leaves_the_schedule_alone() -> None:
    made = schedule(example())
    before = made.fingerprint()
    generate(made)
    assert made.fingerprint() == before


def test_every_statement_has_one_origin() -> None:
    """A statement comes from one node; only loads, indices, pointers and what frames a loop are shared."""
    kernels = generate(schedule(example()))
    known = {i.id for i in kernels.schedule.items()}
    for k in kernels.kernels:
        for line in statements(kernels.lines[k.first - 1 : k.last]):
            assert set(line.parents) <= known and line.parents
            if re.match(r"\s*(float|double|bool) t\d+ = [^\[]*;", line.text) or re.match(r"\s*buf\d+\[", line.text):
                assert len(line.parents) == 1, line.text
    items = kernels.items()
    assert len({i.id for i in items}) == len(items)
    assert all(i.id.startswith("codegen.forward/") for i in items)


def test_deleting_an_op_deletes_its_lines() -> None:
    """Without one op of a fused chain exactly the statements that are only its own are gone, up to the numbers of temporaries."""
    steps: list[Callable[[Tensor], Tensor]] = [lambda x: x * 2, torch.exp, lambda x: x + 3, torch.sigmoid, lambda x: x - 1, torch.relu]

    def made(skip: int | None) -> list[tuple[str, tuple[int, ...]]]:
        def f(x: Tensor) -> Tensor:
            for i, step in enumerate(steps):
                x = step(x) if i != skip else x
            return x

        module = make_fx(f, tracing_mode="fake")(torch.randn(5, 9))
        lines = [i for i in range(len(steps)) if i != skip]
        calls = [n for n in module.graph.nodes if n.op == "call_function"]
        for n in module.graph.nodes:
            n.meta["stack"], n.meta["parents"] = (Location("user.py", lines[calls.index(n)] + 1),) if n in calls else (), ()
        kernels = generate(schedule(lower(GraphArtifact(module, "aot.forward"))))
        (k,) = kernels.kernels
        found = statements(kernels.lines[k.first - 1 : k.last])
        return [(re.sub(r"\b(t|buf)\d+", r"\1", bare(n.text)), tuple(s.line for s in n.stack)) for n in found]

    whole = made(None)
    ends = {1, len(steps)}  # the first op carries the load, the last one the store
    for skip in range(1, len(steps) - 1):
        assert made(skip) == [line for line in whole if line[1] != (skip + 1,)]
        assert any(line[1] == (skip + 1,) for line in whole)
    assert {line[1] for line in whole if line[1]} == {(i + 1,) for i in range(len(steps))} and ends


def test_check_finds_what_is_wrong() -> None:
    kernels = generate(schedule(example()))
    kernels.check()
    k = kernels.kernels[0]
    number = next(n.number for n in kernels.lines[k.first : k.last] if is_statement(bare(n.text)))
    orphan = tuple(replace(n, parents=()) if n.number == number else n for n in kernels.lines)
    with pytest.raises(InvalidIR, match="comes from nothing"):
        replace(kernels, lines=orphan).check()
    with pytest.raises(InvalidIR, match="one name"):
        replace(kernels, kernels=(k, k)).check()
    with pytest.raises(InvalidIR, match="lines are not"):
        replace(kernels, source=kernels.source + "\n").check()
    closing = tuple(replace(n, text="") if n.text.strip() == "}" and n.number == k.last - 2 else n for n in kernels.lines)
    if closing != kernels.lines:
        with pytest.raises(InvalidIR, match="braces"):
            replace(kernels, lines=closing, source="".join(f"{n.text}\n" for n in closing)).check()
