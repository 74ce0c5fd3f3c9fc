"""Fake tensors say what operators give, also where a version of torch does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._prims_common as prims_utils
from torch._subclasses.fake_tensor import FakeTensorMode

from compiler_lab.core.fakes import corrected_mode, fake_mode

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
