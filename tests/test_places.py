"""Where an input begins in its memory, and how much memory there is: operators that see it are compiled for it, call after call as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_lab


def in_place(x: Tensor) -> Tensor:
    y = x.detach()
    y.as_strided((2,), (1,), 5).add_(1)
    return y * 2


def behind_a_write(x: Tensor) -> Tensor:
    y = x.detach()
    y.add_(1)
    return y.as_strided((2,), (1,), 5) * 2


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "offset": lambda x: x.as_strided((2, 2), (2, 1), 1) * 2,
    "zero": lambda x: torch.as_strided(x, (2, 2), (2, 1), 0) * 2,
    "keyword": lambda x: x.as_strided(size=(2, 2), stride=(2, 1), storage_offset=5) * 3,
    "overload": lambda x: torch.ops.aten.as_strided.default(x, [2, 2], [2, 1], 5) * 3,
    "from the first element": lambda x: x.as_strided((2, 2), (2, 1)) * 2,
    "past the last element": lambda x: x.as_strided((11,), (1,)) * 2,
    "view": lambda x: x[1:].as_strided((2, 2), (2, 1), 2) * 2,
    "view of a view": lambda x: x.view(2, 4)[1].unsqueeze(0).as_strided((3,), (1,), 3) + 1,
    "output": lambda x: x[1:].as_strided((2, 2), (2, 1), 2),
    "copy": lambda x: torch.as_strided_copy(x, (2, 2), (2, 1), 5),
    "scatter": lambda x: torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (2, 1), 4),
    "number": lambda x: x * torch.ops.aten.sym_storage_offset(x[1:]),
    "wider": lambda x: x.detach().view(torch.float64) * 2,
    "complex": lambda x: torch.view_as_complex(x.view(4, 2)).abs(),
    "in place": in_place,
    "behind a write": behind_a_write,
    "of a result": lambda x: (x * 2).as_strided((2, 2), (2, 1), 1),
}


def call(f: Callable[[Tensor], Tensor], start: int, grad: bool) -> Any:
    """All that a caller can see of ``f`` called with a part of a larger tensor; the kind of error where it raises."""
    base = torch.arange(16.0, requires_grad=grad)
    try:
        out = f(base[start : start + 8])
    except RuntimeError:
        return "RuntimeError"
    if out.requires_grad:
        out.pow(2).sum().backward()
    return out.detach().tolist(), out.stride(), out.storage_offset(), out.requires_grad, base.tolist(), None if base.grad is None else base.grad.tolist()


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp", "lab"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_that_begin_elsewhere(name: str, backend: str, grad: bool) -> None:
    f = PROGRAMS[name]
    compiled = compiler_lab.compile(f, backend=backend)
    for start in (0, 4, 5, 8, 0):
        assert call(compiled, start, grad) == call(f, start, grad), start


def beyond(x: Tensor, y: Tensor) -> Tensor:
    x.as_strided((4,), (1,), 4).add_(1)
    return y * 2


def beyond_read(x: Tensor, y: Tensor) -> Tensor:
    y.add_(1)
    return x.as_strided((4,), (1,), 4) * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("f", [beyond, beyond_read])
def test_what_is_reached_past_the_elements_of_one_input_may_be_anothers(f: Callable[..., Tensor], backend: str) -> None:
    compiled = compiler_lab.compile(f, backend=backend)
    for together in (False, True, False):
        ours, theirs = torch.arange(8.0), torch.arange(8.0)
        got, want = (g(b[:4], b[4:] if together else torch.ones(4)) for g, b in ((compiled, ours), (f, theirs)))
        assert torch.equal(got, want) and torch.equal(ours, theirs)


def test_only_operators_that_see_it_are_compiled_for_it() -> None:
    compiled = compiler_lab.compile(lambda x: x.view(2, 4).diagonal(1) + x.as_strided((2,), (2,)), backend="eager")
    base = torch.arange(16.0)
    for start in range(8):
        compiled(base[start : start + 8])
    assert len(compiled.recompiles) == 0


def test_the_failing_guard_is_told() -> None:
    compiled = compiler_lab.compile(PROGRAMS["offset"], backend="eager")
    base = torch.arange(16.0)
    compiled(base[0:8])
    compiled(base[4:12])
    assert "storage offset" in str(compiled.recompiles[0])
