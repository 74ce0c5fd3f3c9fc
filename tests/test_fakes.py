"""Fake tensors say what operators give, also where a version of torch does not."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
import torch._prims_common as prims_utils
from torch._subclasses.fake_tensor import FakeTensorMode

import compiler_lab
from compiler_lab.aot.joint import joint
from compiler_lab.core.errors import GraphBroken, Unsupported
from compiler_lab.core.fakes import corrected_mode, fake_mode, registration

from .aot_programs import whole

CALLS: list[tuple[Any, ...]] = [(2, [-1]), (2, [-1], True), (1, [-1, 0]), (2, [-2, 2]), (2, [1]), (2, None), (2, []), (3.0, [-3])]


@pytest.mark.parametrize("shape", [(1, 5, 1), (1, 1, 1), (3, 5, 1)])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_norms_over_dimensions_of_size_one(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], call: tuple[Any, ...]) -> None:
    """Dimensions counted from the end, which the fake kernel did not see before 2.13: ``broken`` is that one."""
    real = torch.ones(shape)
    want = torch.ops.aten.linalg_vector_norm.default(real, *call)

    def faked(mode: FakeTensorMode) -> tuple[Any, Any]:
        FakeTensorMode.cache_clear()
        with mode:
            found = torch.ops.aten.linalg_vector_norm.default(torch.ones(shape), *call)
        return found.shape, found.stride()

    assert faked(fake_mode()) == (want.shape, want.stride())
    canonical = prims_utils.canonicalize_dims
    monkeypatch.setattr(prims_utils, "canonicalize_dims", lambda rank, dims, *rest: dims if isinstance(dims, list) else canonical(rank, dims, *rest))
    assert faked(corrected_mode()()) == (want.shape, want.stride())
    dims = call[1] or []
    broken = len(call) < 3 and any(d < 0 for d in dims) and all(shape[d] == 1 for d in dims)
    assert (faked(FakeTensorMode())[0] != want.shape) == broken


LIBRARY = torch.library.Library("lab_fakes", "DEF")
LIBRARY.define("scaled(Tensor x, float k=2.0, *, Tensor? bias=None) -> (Tensor, Tensor[])")
LIBRARY.impl("scaled", lambda x, k=2.0, *, bias=None: (x * k, [x + k]), "CPU")


@torch.library.custom_op("lab_fakes::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def calls_scaled(x: torch.Tensor) -> Any:
    return torch.ops.lab_fakes.scaled(x + 1, 3.0)[0] + 1


def calls_twice(x: torch.Tensor) -> Any:
    return twice(x + 1) + 1


LINES = {
    calls_scaled: '@torch.library.register_fake("lab_fakes::scaled")\n    def scaled(x, k=2.0, *, bias=None):\n'
    "        return x.new_empty(x.shape), [x.new_empty(x.shape)]",
    calls_twice: '@torch.library.register_fake("lab_fakes::twice")\n    def twice(x):\n        return x.new_empty(x.shape)',
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("program", LINES)
def test_an_operator_without_a_fake_kernel_runs_in_python_and_the_error_says_how_to_register_one(program: Any, backend: str) -> None:
    compiler_lab.reset()
    x = torch.arange(3.0)
    assert torch.equal(compiler_lab.compile(program, backend=backend)(x), program(x))
    assert compiler_lab.stats()["break_reasons"] == ["no-fake-kernel"]
    with pytest.raises(GraphBroken) as caught:
        compiler_lab.compile(program, backend=backend, fullgraph=True)(x)
    assert str(caught.value).endswith(LINES[program]) and caught.value.where is not None
    with pytest.raises(Unsupported) as refused:
        joint(whole(program, 1), x)
    assert refused.value.reason == "no-fake-kernel" and refused.value.hint.endswith(LINES[program])


def test_the_lines_register_a_kernel() -> None:
    """As they stand: what they say is true of this operator."""
    LIBRARY.define("tripled(Tensor x) -> Tensor")
    LIBRARY.impl("tripled", lambda x: x * 3, "CPU")
    program = lambda x: torch.ops.lab_fakes.tripled(x) + 1
    text = registration(torch.ops.lab_fakes.tripled.default).partition("\n")[2]
    exec(textwrap.dedent(text), {"torch": torch})
    compiler_lab.reset()
    x = torch.arange(3.0)
    for backend in ("aot_eager", "lab"):
        assert torch.equal(compiler_lab.compile(program, backend=backend, fullgraph=True)(x), x * 3 + 1)
