"""Random numbers by counter: known answers, distributions, one stream for interpreter, C++, forward and backward; eager's own where asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab.aot.decompose import decompose
from compiler_lab.aot.functionalize import functionalize
from compiler_lab.aot.joint import joint
from compiler_lab.aot.partition import Partition
from compiler_lab.codegen.cpp import generate
from compiler_lab.core import philox
from compiler_lab.lowering.lower import lower
from compiler_lab.observe.trace import Step
from compiler_lab.runtime.build import build
from compiler_lab.scheduling.fusion import schedule

from .aot_programs import whole
from .lowering_cases import call_graph

SEED = torch.tensor(0x243F6A8885A308D3)
N = 1 << 18


def test_known_answers() -> None:
    """The published one for key and counter 0; the others with a counter of 64 bits, worked out with Python's own integers."""
    assert [int(w) for w in philox.philox(torch.tensor(0), torch.tensor(0))] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    for seed, position in ((-1, -1), (0x243F6A8885A308D3, 0x13198A2E03707344), (1, 2**40)):
        got = [int(w) for w in philox.philox(torch.tensor(seed), torch.tensor(position))]
        assert got == plain(seed % 2**64, position % 2**64)


def plain(seed: int, position: int) -> list[int]:
    c, k, low = [position % 2**32, position >> 32, 0, 0], [seed % 2**32, seed >> 32], 2**32 - 1
    for _ in range(10):
        p, q = c[0] * philox.MULTIPLIERS[0], c[2] * philox.MULTIPLIERS[1]
        c = [q >> 32 ^ c[1] ^ k[0], q & low, p >> 32 ^ c[3] ^ k[1], p & low]
        k = [(k[0] + philox.WEYL[0]) & low, (k[1] + philox.WEYL[1]) & low]
    return c


POSITIONS = torch.arange(N) + 5 * philox.STREAM


@pytest.mark.parametrize("rand", [philox.rand, philox.rand64], ids=["float32", "float64"])
def test_uniform_numbers(rand: Callable[[Tensor, Tensor], Tensor]) -> None:
    u = rand(SEED, POSITIONS).double()
    assert 0 <= float(u.min()) and float(u.max()) < 1
    assert abs(float(u.mean()) - 0.5) < 4 * math.sqrt(1 / 12 / N) and abs(float(u.var()) - 1 / 12) < 4 * math.sqrt(1 / 180 / N)
    for cells, pairs in ((256, u), (256, (u[0::2] * 16).floor() / 16 + u[1::2] / 16)):  # single numbers, and neighbours against one another
        counts = torch.bincount((pairs * cells).long(), minlength=cells).double()
        expected = pairs.numel() / cells
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert abs(chi - (cells - 1)) < 4 * math.sqrt(2 * (cells - 1)), chi


@pytest.mark.parametrize("randn", [philox.randn, philox.randn64], ids=["float32", "float64"])
def test_normal_numbers(randn: Callable[[Tensor, Tensor], Tensor]) -> None:
    z = randn(SEED, POSITIONS).double()
    assert bool(z.isfinite().all())
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(float((z**power).mean()) - moment) < 4 * math.sqrt(spread / N)
    cells = torch.bincount(((torch.special.ndtr(z) * 64).long()).clamp(0, 63), minlength=64).double()
    assert abs(float(((cells - N / 64) ** 2 / (N / 64)).sum()) - 63) < 4 * math.sqrt(2 * 63)


def test_integers_fill_their_range_evenly() -> None:
    v = philox.randint64(SEED, POSITIONS, torch.tensor(-7), torch.tensor(13))
    counts = torch.bincount(v + 7, minlength=20).double()
    assert counts.numel() == 20 and abs(float(((counts - N / 20) ** 2 / (N / 20)).sum()) - 19) < 4 * math.sqrt(2 * 19)
    huge = philox.randint64(SEED, POSITIONS[:100], torch.tensor(-(2**62)), torch.tensor(2**62 - 1))
    assert bool((huge >= -(2**62)).all()) and bool((huge < 2**62 - 1).all())


def test_kernels_draw_what_the_operators_draw() -> None:
    """Bit for bit; normal numbers to the last bits of logarithm and cosine."""
    op, integers = torch.ops.compiler_lab.random.default, torch.ops.compiler_lab.random_int.default
    calls: list[tuple[Any, tuple[Any, ...], float]] = [
        (op, (SEED, 3, [7, 65], kind, dtype), 0 if kind == "rand" else 2e-2 if dtype == torch.bfloat16 else 3e-6)
        for kind in ("rand", "randn")
        for dtype in (torch.float32, torch.float64, torch.bfloat16)
    ]
    for target, args, tolerance in [*calls, (integers, (SEED, 1, [7, 65], -5, 10**12, torch.int64), 0)]:
        graph, inputs = call_graph(target, *args)
        program, want = lower(graph), target(*args)
        program.check()
        for got in (program.run(*inputs)[0], build(generate(schedule(program)))(*inputs)[0]):
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    assert float(op(SEED, 0, [1 << 16], "rand", torch.bfloat16).max()) < 1


def training(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(F.gelu(F.dropout(x @ w, 0.25)), 0.5).sum()


def test_forward_and_backward_agree_and_only_the_seed_is_kept() -> None:
    found: list[Partition] = []

    def watch(step: Step) -> None:
        if isinstance(step.after, Partition):
            found.append(step.after)

    compiled = compiler_lab.compile(training, observe=watch, fullgraph=True)
    x, w = torch.ones(64, 32), torch.eye(32, requires_grad=True)

    def once(seed: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(seed)
        w.grad = None
        out = compiled(x, w)
        out.backward()
        assert w.grad is not None
        return out.detach(), w.grad.clone()

    (out, grad), again, other = once(3), once(3), once(4)
    assert torch.equal(out, again[0]) and torch.equal(grad, again[1]) and not torch.equal(out, other[0])
    # x is all ones, so each element of the product is one: the gradient is that of the mask, and the masks are those of the forward
    torch.testing.assert_close(grad.diagonal().sum() * F.gelu(torch.tensor(1 / 0.75)), out * gelu_slope(1 / 0.75) / 0.75, rtol=1e-4, atol=1e-4)
    (part,) = found
    assert part.backward is not None
    names = [str(n.target) for n in part.backward.graph.nodes]
    assert names.count("compiler_lab.random.default") == 2 and "aten.randint.low" not in names


def gelu_slope(v: float) -> float:
    x = torch.tensor(v, requires_grad=True)
    return float(torch.autograd.grad(F.gelu(x), x)[0])


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand_like": lambda x: torch.rand_like(x),
    "randn_like": lambda x: torch.randn_like(x),
    "randint_like": lambda x: torch.randint_like(x, -3, 9),
    "randint": lambda x: torch.randint(5, x.shape) + x * 0,
    "bernoulli": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "uniform": lambda x: x.clone().uniform_(-2, 5),
    "normal": lambda x: x.clone().normal_(1, 3),
    "standard normal": lambda x: x.clone().normal_(),
    "exponential": lambda x: x.clone().exponential_(2),
    "log_normal": lambda x: x.clone().log_normal_(0.5, 0.25),
    "geometric": lambda x: x.clone().geometric_(0.4),
    "cauchy": lambda x: x.clone().cauchy_(1, 2).atan(),
    "dropout": lambda x: F.dropout(x + 1, 0.3),
    "alpha_dropout": lambda x: F.alpha_dropout(x + 1, 0.3, True),
}


def test_every_distribution_is_eagers() -> None:
    """Means, deviations and quantiles beside eager's, of all in one graph: each operator has a stream of its own."""
    x = torch.zeros(N // 4)

    def every(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(draw(x) for draw in DRAWS.values())

    torch.manual_seed(0)
    got, want = compiler_lab.compile(every, fullgraph=True)(x), every(x)
    at = torch.linspace(0.02, 0.98, 25)
    for name, a, b in zip(DRAWS, got, want, strict=True):
        scale = float(b.std())
        assert a.dtype == b.dtype and not torch.equal(a, b), name
        assert abs(float(a.mean() - b.mean())) < 6 * scale / math.sqrt(x.numel()), name
        if name in ("rand_like", "randn_like", "uniform", "normal", "exponential", "log_normal", "cauchy"):
            assert float((a.quantile(at) - b.quantile(at)).abs().max()) < 0.05 * scale, name
    together = torch.stack([t.float() for t in got[:2]])
    assert abs(float(torch.corrcoef(together)[0, 1])) < 5 / math.sqrt(x.numel())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_where_a_logarithm_is_taken_no_zero_is_drawn(dtype: torch.dtype) -> None:
    """A uniform number of half precision is 0 once in a few hundred or thousand draws."""
    drawn = compiler_lab.compile(lambda x: x.clone().exponential_())(torch.zeros(N // 4, dtype=dtype))
    assert bool((drawn > 0).all()) and bool(drawn.isfinite().all())


@pytest.mark.parametrize("backend", ["lab", "aot_eager_decomp"])
def test_eagers_own_stream(backend: str) -> None:
    compiled = compiler_lab.compile(training, backend=backend, options={"fallback_random": True} if backend == "lab" else None, fullgraph=True)
    x, w = torch.randn(64, 32), torch.randn(32, 32)
    torch.manual_seed(5)
    got = compiled(x, w)
    torch.manual_seed(5)
    torch.testing.assert_close(got, training(x, w))


def test_what_stays_eagers() -> None:
    """A generator of the program's own, and probabilities that may be wrong."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.bernoulli(x), torch.multinomial(x, 3)

    compiled, x = compiler_lab.compile(program, fullgraph=True), torch.rand(16)
    torch.manual_seed(1)
    got = compiled(x)
    torch.manual_seed(1)
    assert all(map(torch.equal, got, program(x)))
    with pytest.raises(RuntimeError):
        compiled(x + 2)


def test_decompose_alone_keeps_random_operators() -> None:
    args = [torch.ones(4, 4), torch.ones(4, 4)]
    pure = functionalize(joint(whole(training, 2), *args))
    assert "compiler_lab.random" not in decompose(pure).text()
    counted = decompose(pure, by_counter=True)
    counted.check()
    assert counted.text().count("compiler_lab.random.default") == 2 and counted.text().count("aten.randint.low") == 1
    assert {d.reason for d in counted.decisions if d.outcome == "opened"} >= {"counter"}
