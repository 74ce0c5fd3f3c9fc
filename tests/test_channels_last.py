"""Convolutions on channels-last memory: where the layout begins and ends, what follows it, and that no program sees it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

import compiler_lab as cl
from compiler_lab.lowering.ir import ExternNode, LoopNode, TensorView
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.lowering.rows_extern import channels_last
from compiler_lab.observe.trace import Step


class Blocks(nn.Module):
    """Two convolutions with batch norm and silu, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(),
            nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def compiled(model: nn.Module) -> tuple[Any, list[Step]]:
    steps: list[Step] = []
    return cl.compile(model, observe=steps.append), steps


def lowered(steps: list[Step], part: str) -> LoopProgram:
    (program,) = (s.after for s in steps if s.name == "lower" and s.part == part)
    assert isinstance(program, LoopProgram)
    return program


def test_a_chain_is_reordered_where_it_begins_and_nowhere_inside() -> None:
    torch.manual_seed(0)
    model = Blocks().eval()
    fast, steps = compiled(model)
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    program = lowered(steps, "forward")
    copies = [n.reads()[0][0] for n in program.nodes if isinstance(n, LoopNode) and n.origin == "channels_last"]
    assert sorted(copies) == ["primals_1", "primals_2", "primals_8"], "the input and the two weights"
    convolutions = [n for n in program.nodes if isinstance(n, ExternNode) and n.target is torch.ops.aten.convolution.default]
    assert len(convolutions) == 2
    for node in convolutions:
        (spec,) = node.outputs
        assert spec is not None and spec.stride == channels_last(spec.size)
    wide = [n for n in program.nodes if isinstance(n, LoopNode) and len(n.output.size) == 4 and n.output.numel > 300]
    assert wide and all(n.output.stride == channels_last(n.output.size) for n in wide)


def test_what_the_backward_keeps_lies_as_the_forward_left_it() -> None:
    torch.manual_seed(0)
    model, x = Blocks(), torch.randn(2, 3, 9, 9)
    other = copy.deepcopy(model)
    fast, steps = compiled(other)
    for m, f in ((model, model), (other, fast)):
        f(x).square().sum().backward()
        assert all(p.grad is not None and p.grad.stride() == p.stride() for p in m.parameters())
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(dict(other.named_buffers()), dict(model.named_buffers()))
    forward, backward = lowered(steps, "forward"), lowered(steps, "backward")
    kept = [s for s in backward.inputs if len(s.size) == 4 and s.numel > 300 and s.stride == channels_last(s.size)]
    assert len(kept) >= 2
    made = [o for o in forward.outputs if isinstance(o, TensorView) and len(o.size) == 4 and o.stride == channels_last(o.size)]
    assert len(made) >= len(kept) - 1, "all but the program's input, which is reordered again"


def conv_then(last: Any) -> Any:
    return lambda x, w: last(F.conv2d(x, w, padding=1).relu())


PROGRAMS = {
    "returned": conv_then(lambda y: y),
    "as_strided": conv_then(lambda y: torch.as_strided(y, (3, 4), (5, 2), 1)),
    "no row": conv_then(lambda y: torch.fft.fft2(y).real),
    "bits": conv_then(lambda y: y.contiguous().view(torch.int16).view(torch.float32)),
    "flattened": conv_then(lambda y: y.flatten(1) * 2),
    "permuted": conv_then(lambda y: y.permute(0, 2, 3, 1) + 1),
    "memory format": conv_then(lambda y: (y.to(memory_format=torch.channels_last), y.bfloat16(), y.clone(memory_format=torch.contiguous_format))),
    "joined": lambda x, w: torch.cat([F.conv2d(x, w, padding=1), x], 1),
    "pooled": conv_then(lambda y: F.max_pool2d(y, 2)),
    "softmax": conv_then(lambda y: y.softmax(1)),
    "strided": lambda x, w: F.conv2d(x, w, stride=2, dilation=2),
    "transposed": lambda x, w: F.conv_transpose2d(x, w[:, :4].transpose(0, 1).contiguous().transpose(0, 1)),
    "added to its input": lambda x, w: F.conv2d(x, w[:, : x.shape[1]], padding=1)[:, : x.shape[1]] + x,
}


def layouts() -> list[tuple[str, Tensor]]:
    return [
        ("row-major", torch.randn(2, 4, 6, 6)),
        ("channels last", torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last)),
        ("sliced", torch.randn(2, 8, 6, 6)[:, ::2]),
        ("one pixel", torch.randn(2, 4, 1, 1).expand(2, 4, 6, 6)),
        ("one image", torch.randn(1, 4, 6, 6)),
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_sees_the_layout(name: str) -> None:
    torch.manual_seed(0)
    fn, w = PROGRAMS[name], torch.randn(4, 4, 3, 3)
    fast = cl.compile(fn)
    for layout, x in layouts():
        want, got = fn(x, w), fast(x, w)
        pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
        for a, b in pairs:
            torch.testing.assert_close(b, a, msg=lambda m, layout=layout: f"{layout}: {m}")
            assert b.stride() == a.stride() or layout != "row-major", layout


@pytest.mark.parametrize(
    "x, w, keywords",
    [
        (torch.randn(2, 1, 5, 5), torch.randn(3, 1, 3, 3), {}),
        (torch.randn(2, 4, 1, 1), torch.randn(3, 4, 1, 1), {}),
        (torch.randn(2, 4, 5, 5), torch.randn(4, 1, 3, 3), {"groups": 4}),
        (torch.randn(0, 4, 5, 5), torch.randn(4, 4, 3, 3), {}),
        (torch.randn(2, 4, 5, 5, dtype=torch.float64), torch.randn(4, 4, 3, 3, dtype=torch.float64), {}),
        (torch.randn(2, 4, 5, 5).bfloat16(), torch.randn(4, 4, 3, 3).bfloat16(), {}),
        (torch.randn(4, 5, 5), torch.randn(4, 4, 3, 3), {}),
        (torch.randn(2, 4, 5), torch.randn(4, 4, 3), {}),
    ],
    ids=["one channel", "one pixel", "depthwise", "no image", "float64", "bfloat16", "no batch", "one dimension"],
)
def test_gradients_of_every_kind_of_convolution(x: Tensor, w: Tensor, keywords: dict[str, Any]) -> None:
    function = F.conv1d if w.dim() == 3 else F.conv2d
    results: list[tuple[Tensor, ...]] = []
    for compile_it in (False, True):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        fn = lambda a, b: function(a, b, **keywords).tanh()
        out = cl.compile(fn)(a, b) if compile_it else fn(a, b)
        grads = torch.autograd.grad(out.sum(), (a, b))
        results.append((out.detach(), *grads))
    rtol, atol = (2e-2, 2e-2) if x.dtype == torch.bfloat16 else (1e-4, 1e-5)
    torch.testing.assert_close(results[1], results[0], rtol=rtol, atol=atol)
    assert [t.stride() for t in results[1]] == [t.stride() for t in results[0]]
