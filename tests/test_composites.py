"""Operators that C++ composes and that look at data on the way: whole graphs, and eager's own results bit for bit."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_lab

from .conftest import same

Outcome = tuple[Any, ...]
assert_exact = functools.partial(same, rtol=0, atol=0)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    """The result, or the error; gradients of all floating arguments; the arguments afterwards."""
    args = tuple(a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, Tensor) else a for a in args)
    leaves = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    try:
        out = fn(*args)
    except Exception as error:  # noqa: BLE001 - what a program raises is a result
        return type(error), str(error), args
    grads = torch.autograd.grad(out.sum() if not out.is_complex() else out.abs().sum(), leaves, allow_unused=True) if leaves and out.requires_grad else ()
    return out, grads, args


def assert_whole(fn: Callable[..., Any], calls: list[tuple[Any, ...]], near: float = 0.0) -> None:
    """One graph for each call, and what eager gives."""
    for args in calls:
        compiled = compiler_lab.compile(fn, backend="eager", fullgraph=True)
        same(outcome(compiled, args), outcome(fn, args), rtol=near, atol=near)


TABLES = [(2, 3), (3, 2), (4, 7), (5,), (1, 9), (0, 3), (3, 3)]
KINDS = [torch.float32, torch.float64, torch.complex64, torch.int64]


def table(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    made = torch.randn(shape, dtype=dtype) if dtype.is_floating_point or dtype.is_complex else torch.randint(-4, 5, shape)
    return made.requires_grad_(dtype.is_floating_point)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_covariance_and_correlation(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    tables = [(table(shape, dtype),) for shape in TABLES]
    near = 1e-6 if dtype.is_complex else 0.0  # a product with a conjugate that is written out is another call of BLAS
    assert_whole(torch.cov, tables, near)
    assert_whole(lambda x: x.cov(correction=0), tables, near)
    assert_whole(lambda x: x.corrcoef(), tables, near)
    assert_whole(torch.corrcoef, [(torch.full((2, 3), 2.0),), (torch.tensor([1.0, float("nan"), 2.0]),), *tables], near)


def test_data_that_decides_stays_with_python() -> None:
    """Weights are checked by their values, and too few observations are warned about."""
    x = torch.randn(3, 4)
    weights = torch.tensor([1, 2, 0, 3])
    for fn, args in [
        (lambda x, w: torch.cov(x, fweights=w), (x, weights)),
        (lambda x, w: torch.cov(x, aweights=w.float()) + 1, (x, weights)),
        (lambda x, w: torch.cov(x, fweights=w), (x, -weights)),
        (lambda x, w: torch.cov(x, correction=4), (x, weights)),
        (lambda x, w: torch.corrcoef(x[:, :1]), (x, weights)),
        (lambda x, w: torch.cov(x[None]), (x, weights)),
    ]:
        compiled = compiler_lab.compile(fn, backend="eager")
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            found = outcome(compiled, args)
        with warnings.catch_warnings(record=True) as want:
            warnings.simplefilter("always")
            assert_exact(found, outcome(fn, args))
        assert [str(w.message) for w in got] == [str(w.message) for w in want]
        assert compiled._compiled_function.breaks


def test_combinations() -> None:
    torch.manual_seed(0)
    for r, again in itertools.product((1, 2, 3, 4), (False, True)):
        vectors = [(torch.randn(n, requires_grad=True),) for n in (0, 1, 2, 4, 5)]
        assert_whole(lambda x: torch.combinations(x, r, again), vectors)  # noqa: B023 - run in this round
    assert_whole(lambda x: torch.combinations(x) * 2, [(torch.arange(6),), (torch.randn(3, dtype=torch.complex64),)])
    broken = compiler_lab.compile(lambda x: torch.combinations(x, 0), backend="eager")
    assert_exact(broken(torch.ones(3)), torch.combinations(torch.ones(3), 0))


def test_local_response_norm() -> None:
    assert_whole(
        lambda x: torch.nn.functional.local_response_norm(x, 2),
        [(torch.randn(1, 6, 3, requires_grad=True),), (torch.zeros(0, 1, 2),), (torch.randn(2, 4, 3, 3),)],
    )


def at_tensor(x: Tensor, s: Tensor) -> Tensor:
    return x.narrow(0, s, 2) * 2


def by_name(x: Tensor, s: Tensor) -> Tensor:
    return torch.narrow(x, dim=-1, start=s, length=1) + 1


def changed(x: Tensor, s: Tensor) -> Tensor:
    y = x * 1
    y.narrow(0, s, 2).mul_(10)
    s.add_(1)
    return y + y.narrow(0, s, 1)


STARTS = [torch.tensor(n) for n in (0, 1, 2, 3, -1, -2, 4, -5, 7)] + [torch.tensor(1, dtype=torch.uint8), torch.tensor([1]), torch.tensor(1.0)]


@pytest.mark.parametrize("fn", [at_tensor, by_name, changed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
def test_narrow_from_where_a_tensor_says(fn: Callable[..., Any], backend: str) -> None:
    for needs in (False, True):
        compiled = compiler_lab.compile(fn, backend=backend)
        for start in STARTS:
            args = torch.randn(4, 3, requires_grad=needs), start
            assert_exact(outcome(compiled, args), outcome(fn, args))
        assert {b.reason for b in compiled._compiled_function.breaks} <= {"op-error"}
        compiled = compiler_lab.compile(fn, backend=backend, fullgraph=True)
        compiled(torch.randn(4, 3, requires_grad=needs), torch.tensor(1))


def test_narrow_raises_where_python_would() -> None:
    """A start out of range is data: what the program did before is done, and a handler of its own is entered."""
    seen: list[int] = []

    def noted(x: Tensor, s: Tensor) -> Tensor:
        seen.append(x.shape[0])
        return x.narrow(0, s, 2)

    def handled(x: Tensor, s: Tensor) -> Any:
        try:
            return x.narrow(0, s, 2)
        except IndexError as error:
            return str(error)

    x = torch.randn(4)
    compiled = compiler_lab.compile(noted, backend="eager")
    assert_exact(outcome(compiled, (x, torch.tensor(9))), outcome(noted, (x, torch.tensor(9))))
    assert seen == [4, 4]
    compiled = compiler_lab.compile(handled, backend="eager")
    for start in (1, 9):
        assert_exact(compiled(x, torch.tensor(start)), handled(x, torch.tensor(start)))


def own(x: Tensor) -> Any:
    y = x * 2
    z = y.unsqueeze_(1)
    return y, z is y, y.shape, (y + 1).squeeze_(), y.stride()


def turned(x: Tensor) -> Any:
    y = (x > 0).t_()
    return y, torch.zeros(2, 3, 1).squeeze_(-1).transpose_(0, 1).swapdims_(0, 1), [torch.ones(2, 2).swapaxes_(0, 1)]


def resized(x: Tensor) -> Any:
    y = x.clone().resize_(x.numel())
    z = x.clone().resize_((x.shape[1], x.shape[0]))
    y.add_(1)
    return y, z, torch.resize_as_(torch.zeros(12), x), x.clone().resize_(3, 4), {"y": y}


def broken_after(x: Tensor) -> Any:
    y = x.clone().unsqueeze_(0)
    held = [y]
    torch._dynamo.graph_break()
    return held[0] is y, held[0].shape, y * 2


def of_others(x: Tensor) -> Any:
    x.unsqueeze_(0)
    return x * 2


def with_history(x: Tensor) -> Any:
    y = x.exp()
    y.unsqueeze_(0)
    return y * 2


def used(x: Tensor) -> Any:
    y = x + 1
    z = y * 2
    y.unsqueeze_(0)
    return y, z, y + z


def grown(x: Tensor) -> Any:
    return x.clone().resize_(2).shape, x.clone().resize_(40).shape, x.t().clone().t().resize_(12).shape, x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("fn", [own, turned, resized], ids=lambda f: f.__name__)
def test_a_tensor_of_the_frames_own_changes_its_sizes(fn: Callable[..., Any], backend: str) -> None:
    for x in (torch.randn(3, 4), torch.randn(4, 3), torch.randn(6, 2)):
        compiled = compiler_lab.compile(fn, backend=backend, fullgraph=True, dynamic=False)
        kept = x.clone()
        assert_exact(compiled(x), fn(x))
        assert_exact(x, kept)


def result(fn: Callable[..., Any], x: Tensor) -> Any:
    try:
        return fn(x)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("fn", [broken_after, of_others, with_history, used, grown], ids=lambda f: f.__name__)
def test_others_see_a_change_of_sizes(fn: Callable[..., Any]) -> None:
    """An input, a tensor with history, one that was used, other numbers of elements: Python does it."""
    for needs in (False, True):
        x = torch.randn(3, 4, requires_grad=needs)
        if needs:
            x = x * 1
        compiled = compiler_lab.compile(fn, backend="eager")
        one, other = x.clone(), x.clone()
        assert_exact(result(compiled, one), result(fn, other))
        assert one.shape == other.shape
        assert compiled._compiled_function.breaks or (fn is with_history and not needs)
