"""The demonstration program: a small GPT trained on text that every Python carries.

``TinyGPT`` is written as a user would write it: token and position embedding, causal attention by
``scaled_dot_product_attention``, layer norms, GELU, cross entropy. ``batches`` gives characters of ``pydoc_data.topics``. ``train`` runs
AdamW steps on any callable with the model's signature, compiled or not, and returns the losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class GPTConfig:
    vocabulary: int
    width: int = 128
    heads: int = 4
    blocks: int = 2
    context: int = 64


class Block(nn.Module):
    """Pre-norm transformer block: attention and MLP, each on a residual."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    """Takes tokens and targets, int64 of shape (batch, time); gives the mean cross entropy, a scalar."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.randn(config.context, config.width) * 0.02)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def corpus() -> tuple[Tensor, str]:
    """Every character of Python's own help topics as an int64 tensor, and the alphabet it is written in."""
    from pydoc_data import topics  # type: ignore[import-untyped]

    text = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    alphabet = "".join(sorted(set(text)))
    number = {c: i for i, c in enumerate(alphabet)}
    return torch.tensor([number[c] for c in text]), alphabet


def batches(data: Tensor, batch: int, context: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless (tokens, targets) pairs of shape (batch, context), the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - context - 1, (batch,), generator=generator)
        window = torch.stack([data[s : s + context + 1] for s in starts.tolist()])
        yield window[:, :-1].contiguous(), window[:, 1:].contiguous()


def tiny_gpt(seed: int = 0) -> tuple[TinyGPT, Iterator[tuple[Tensor, Tensor]]]:
    """The model and its data, two blocks of width 128, ready to train."""
    torch.manual_seed(seed)
    data, alphabet = corpus()
    config = GPTConfig(len(alphabet))
    return TinyGPT(config), batches(data, 8, config.context, seed)


def train(
    model: nn.Module,
    step: Callable[[Tensor, Tensor], Tensor],
    data: Iterator[tuple[Tensor, Tensor]],
    steps: int,
    after_backward: Callable[[int, nn.Module], None] | None = None,
) -> list[float]:
    """``steps`` AdamW steps of ``step(tokens, targets) -> loss`` over ``model``'s parameters; the losses in order."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses: list[float] = []
    for number in range(1, steps + 1):
        optimizer.zero_grad(set_to_none=True)
        loss = step(*next(data))
        loss.backward()
        if after_backward is not None:
            after_backward(number, model)
        optimizer.step()
        losses.append(loss.item())
    return losses
