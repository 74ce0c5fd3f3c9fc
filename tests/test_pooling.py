"""Max pooling as loops: values, places, signs of zero, strides and gradients are eager's, whatever the windows and the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab.aot.joint import joint
from compiler_lab.core.modes import below_modes
from compiler_lab.core.options import Options
from compiler_lab.lowering.lower import lower
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.pipeline import JOINT_STEPS, Runner

from .aot_programs import traced

Windows = tuple[Any, Any, Any, Any, bool]  # kernel, stride, padding, dilation, ceil_mode

WINDOWS: dict[str, tuple[tuple[int, ...], Windows]] = {
    "halves": ((2, 3, 8, 6), (2, None, 0, 1, False)),
    "overlapping_padded": ((2, 3, 9, 7), (3, 2, 1, 1, False)),
    "ceil": ((1, 2, 8, 11), (3, 2, 1, 1, True)),
    "uneven": ((2, 2, 7, 10), ((1, 3), (2, 1), (0, 1), 1, False)),
    "dilated": ((1, 3, 9, 12), (2, (1, 3), (1, 0), (2, 3), True)),
    "apart": ((1, 2, 9, 9), (2, 4, 0, 1, False)),
    "whole": ((2, 2, 4, 5), ((4, 5), 1, 0, 1, False)),
    "one_image": ((3, 6, 6), (2, 2, 1, 1, False)),
    "in_pieces": ((1, 4, 70, 66), (3, 2, 1, 1, False)),
}

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "turned": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every_other": lambda x: torch.cat([x, x], -1)[..., ::2],
}


def image(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Many ties; NaN, infinities and both zeros."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-3, 4, shape, generator=generator).to(dtype)
    if dtype.is_floating_point:
        kind = torch.rand(shape, generator=generator)
        for limit, special in ((0.4, float("-inf")), (0.2, -0.0), (0.1, float("nan"))):
            x[kind < limit] = special
    return x


def lowered(fn: Callable[..., Any], *args: Tensor) -> list[LoopProgram]:
    with below_modes():
        part = Runner(Options(), None).passes(JOINT_STEPS, joint(traced(fn), *args))
        return [lower(half) for half in (part.forward, part.backward) if half is not None]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.int32), ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WINDOWS)
def test_values_and_places_are_those_of_aten(name: str, layout: str, dtype: torch.dtype) -> None:
    shape, windows = WINDOWS[name]
    x = LAYOUTS[layout](image(shape, dtype))
    pool = lambda x: F.max_pool2d(x, *windows, return_indices=True)  # type: ignore[misc]
    (program,) = lowered(pool, x)
    assert all(d.outcome != "extern" for d in program.decisions)
    for got, expected in zip(program.run(x), pool(x), strict=True):
        assert got.stride() == expected.stride() and got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
        if dtype.is_floating_point and got.is_floating_point():
            known = ~expected.isnan()
            assert torch.equal(got[known].signbit(), expected[known].signbit())


@pytest.mark.parametrize("layout", ("plain", "channels_last"))
@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_are_those_of_aten(name: str, layout: str) -> None:
    shape, windows = WINDOWS[name]
    pool = lambda x: F.max_pool2d(x, *windows)  # type: ignore[misc]
    x, y = (LAYOUTS[layout](image(shape, torch.float32)).requires_grad_() for _ in range(2))
    compiled = compiler_lab.compile(pool)
    got, expected = compiled(x), pool(y)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    tangent = torch.randn_like(expected)
    got.backward(tangent)
    expected.backward(tangent)
    assert x.grad is not None and y.grad is not None and x.grad.stride() == y.grad.stride()
    torch.testing.assert_close(x.grad, y.grad, rtol=0, atol=0)
    assert all(d.outcome != "extern" for p in lowered(pool, x) for d in p.decisions)


def test_one_program_for_all_sizes() -> None:
    pool = lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)
    compiled = compiler_lab.compile(pool, dynamic=True)
    for n, height, width in ((2, 9, 7), (3, 12, 31), (5, 33, 4)):
        x = image((n, 3, height, width), torch.float32)
        torch.testing.assert_close(compiled(x), pool(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("windows", "size"), [((6, 2, 3, 1, False), 13), ((2, 1, 1, 2, False), 1)], ids=["more elements than are written out", "between the elements of the image"]
)
def test_other_windows_stay_with_aten(windows: Windows, size: int) -> None:
    x = image((1, 2, size, size), torch.float32)
    pool = lambda x: F.max_pool2d(x, *windows, return_indices=True)  # type: ignore[misc]
    (program,) = lowered(pool, x)
    assert [d.reason for d in program.decisions if d.outcome == "extern"] == ["window"]
    torch.testing.assert_close(program.run(x), pool(x), rtol=0, atol=0, equal_nan=True)


def test_a_place_outside_of_the_image_is_an_error() -> None:
    backward = torch.ops.aten.max_pool2d_with_indices_backward
    x, places = torch.randn(1, 2, 4, 4), torch.full((1, 2, 2, 2), 3)
    fn = lambda grad, places: backward(grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    compiled = compiler_lab.compile(fn, options={"decompositions": "none"})
    grad = torch.randn(1, 2, 2, 2)
    torch.testing.assert_close(compiled(grad, places), fn(grad, places))
    with pytest.raises(IndexError):
        compiled(grad, places + 13)
