"""The corpus: small programs of every kind, on which each stage's differential test runs.

Each row is a name and a function that makes (callable, arguments). Modules are made fresh each time, from the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from compiler_lab.demo import Block, GPTConfig, TinyGPT

Program = tuple[Callable[..., Any], tuple[Any, ...]]
CORPUS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    CORPUS[make.__name__] = make
    return make


def rand(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(*shape).requires_grad_(grad)


@program
def bias_relu_scale() -> Program:
    return lambda x, b, s: torch.relu(x + b) * s, (rand(33, 40), rand(40), rand(40))


@program
def pointwise_chain() -> Program:
    def chain(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x * 1.1) + y * 0.5
            x = x - x.sigmoid()
        return x

    return chain, (rand(20, 31, grad=True), rand(20, 31))


@program
def gelu_weighted_sum() -> Program:
    return lambda x, w: (F.gelu(x) * w).sum(), (rand(40, 37, grad=True), rand(40, 37, grad=True))


@program
def softmax_rows() -> Program:
    return lambda x: torch.softmax(x, -1), (rand(19, 71, grad=True),)


@program
def layer_norm_residual() -> Program:
    return lambda x, r, w, b: F.layer_norm(x + r, (48,), w, b), (rand(6, 5, 48, grad=True), rand(6, 5, 48), rand(48, grad=True), rand(48, grad=True))


@program
def rms_norm() -> Program:
    return lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (rand(12, 40, grad=True), rand(40, grad=True))


@program
def cross_entropy() -> Program:
    return lambda x, t: F.cross_entropy(x, t), (rand(9, 53, grad=True), torch.randint(0, 53, (9,)))


@program
def column_sums() -> Program:
    return lambda x: (x * 2).sum(0), (rand(45, 33, grad=True),)


@program
def var_mean_all() -> Program:
    return lambda x: torch.var_mean(x), (rand(17, 29),)


@program
def transpose_then_pointwise() -> Program:
    return lambda x, y: x.t() * y + 1, (rand(21, 34), rand(34, 21))


@program
def cat_then_silu() -> Program:
    return lambda x, y, z: F.silu(torch.cat([x, y, z], 1)), (rand(11, 7, grad=True), rand(11, 9), rand(11, 4))


@program
def embedding_norm() -> Program:
    def embed(i: Tensor, e: Tensor, p: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(F.embedding(i, e) + p, (24,), w, b)

    return embed, (torch.randint(0, 50, (4, 10)), rand(50, 24, grad=True), rand(10, 24, grad=True), rand(24), rand(24))


@program
def rotary() -> Program:
    def rotate(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s

    return rotate, (rand(2, 3, 10, 16, grad=True), rand(10, 16), rand(10, 16))


@program
def linear_gelu() -> Program:
    return lambda x, w, b: F.gelu(F.linear(x, w, b)), (rand(10, 24), rand(32, 24, grad=True), rand(32, grad=True))


@program
def skinny_linear() -> Program:
    return lambda x, w: F.linear(x, w), (rand(4, 40), rand(60, 40))


@program
def attention_written_out() -> Program:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5)
        n = s.shape[-1]
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=s.device).triu(1), float("-inf"))
        return s.softmax(-1) @ v

    return attend, tuple(rand(2, 3, 12, 8, grad=True) for _ in range(3))


@program
def gpt_block() -> Program:
    return Block(GPTConfig(vocabulary=11, width=32, heads=4)), (rand(2, 9, 32, grad=True),)


@program
def tiny_gpt() -> Program:
    tokens = torch.randint(0, 23, (2, 17))
    return TinyGPT(GPTConfig(vocabulary=23, width=32, heads=4, blocks=2, context=16)), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


def _conv_net() -> nn.Module:
    layer = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.SiLU())
    return nn.Sequential(layer(3, 8), layer(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


@program
def conv_net_training() -> Program:
    return _conv_net(), (rand(4, 3, 8, 8, grad=True),)


@program
def conv_net_evaluation() -> Program:
    return _conv_net().eval(), (rand(4, 3, 8, 8),)


@program
def gelu_mlp() -> Program:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)), (rand(10, 16),)


@program
def deep_relu() -> Program:
    return nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(8, 8), nn.ReLU()))), (rand(2, 8),)


@program
def tied_weights() -> Program:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8, bias=False)
            self.b = nn.Linear(8, 8, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.tanh(self.a(x)))

    return Tied(), (rand(3, 8),)


@program
def in_place_on_intermediate() -> Program:
    def f(x: Tensor) -> Tensor:
        y = x.clone()
        y.add_(1)
        y[1:3] = 0.5
        y.t().mul_(2)
        return y.sin()

    return f, (rand(6, 4, grad=True),)


@program
def in_place_on_input() -> Program:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        x[0].add_(y)
        return x + 1

    return f, (rand(3, 4), rand(4))


@program
def keyword_and_containers() -> Program:
    def f(x: Tensor, *, scale: float = 2.0, parts: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
        pieces = [x * scale + p for p in parts]
        total = sum(pieces[1:], pieces[0])
        return {"total": total, "pieces": pieces, "count": len(pieces)}

    return f, (rand(5),)


@program
def no_grad_inside() -> Program:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().amax()
        return x / scale

    return f, (rand(4, 5, grad=True),)


@program
def views_out() -> Program:
    return lambda x: (x.view(-1), x[1:], x), (rand(4, 6),)


@program
def integers_and_bools() -> Program:
    return lambda a, b: (a // b, a % b, a > b, (a > b) & (b != 2), a.sum(), a.float() / b), (torch.arange(-9, 9).view(3, 6), torch.randint(1, 5, (3, 6)))


@program
def doubles() -> Program:
    return lambda x: torch.log_softmax(x * 3, 0).exp().mean(1), (torch.randn(9, 13, dtype=torch.float64, requires_grad=True),)


@program
def specials() -> Program:
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-42, -1e38, 3.0])
    return lambda x: (x.relu(), x.sigmoid(), x.exp(), x.tanh(), x.amax(), torch.maximum(x, -x), x.sqrt(), x.abs().log(), x.softmax(0)), (x,)


@program
def empty() -> Program:
    return lambda x: (x * 2).sum(1), (rand(0, 3),)


@program
def reductions() -> Program:
    return lambda x: (x.amax(1), x.argmax(0), x.prod(1), x.any(), (x > 0).all(1), x.std(0), x.mean((0, 1)), x.norm()), (rand(7, 9),)
