"""Random numbers by counter: Philox 4x32-10, and the two operators by which a graph draws them.

In: a seed and a position, both int64. Out: numbers that depend on nothing else, so a forward and the backward that computes it again
agree, and so do the interpreter and every kernel. A graph draws one seed from torch's default generator each time it runs
(``torch.manual_seed`` is honoured); its operators are numbered, and an element's position is ``number * 2**40`` plus its place in the result.
Always holds: uniform numbers lie in [0, 1), at 24 bits (float32) or 53 (float64); normal ones are Box and Muller's transform of two of those.
Method: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). PyTorch's counterpart:
``torch/_inductor/inductor_prims.py`` and ``aten/src/ATen/core/PhiloxRNGEngine.h``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

STREAM = 2**40
"""Positions that one operator of a graph has for itself."""
LOW = 0xFFFFFFFF
MULTIPLIERS, WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def _product(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """(high, low) 32 bits of a product of 32-bit numbers, all held in int64."""
    low, middle = a * (b & 0xFFFF), a * (b >> 16)
    total = low + ((middle & 0xFFFF) << 16)
    return (middle >> 16) + (total >> 32), total & LOW


def philox(seed: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit words for each position."""
    seed, position = torch.broadcast_tensors(seed, position)
    zero = torch.zeros_like(position)
    words, keys = (position & LOW, (position >> 32) & LOW, zero, zero), (seed & LOW, (seed >> 32) & LOW)
    for _ in range(10):
        (high0, low0), (high1, low1) = _product(words[0], MULTIPLIERS[0]), _product(words[2], MULTIPLIERS[1])
        words = (high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0)
        keys = ((keys[0] + WEYL[0]) & LOW, (keys[1] + WEYL[1]) & LOW)
    return words


def _short(word: Tensor) -> Tensor:
    return (word >> 8).to(torch.float32) * 2.0**-24


def _long(high: Tensor, low: Tensor) -> Tensor:
    return ((high << 21) | (low >> 11)).to(torch.float64) * 2.0**-53


def rand(seed: Tensor, position: Tensor) -> Tensor:
    """float32 in [0, 1)."""
    return _short(philox(seed, position)[0])


def rand64(seed: Tensor, position: Tensor) -> Tensor:
    """float64 in [0, 1)."""
    return _long(*philox(seed, position)[:2])


def _normal(u: Tensor, v: Tensor) -> Tensor:
    return torch.sqrt(torch.log(1 - u) * -2) * torch.cos(v * (2 * math.pi))


def randn(seed: Tensor, position: Tensor) -> Tensor:
    """float32 of mean 0 and variance 1."""
    a, b, _, _ = philox(seed, position)
    return _normal(_short(a), _short(b))


def randn64(seed: Tensor, position: Tensor) -> Tensor:
    """float64 of mean 0 and variance 1."""
    a, b, c, d = philox(seed, position)
    return _normal(_long(a, b), _long(c, d))


def randint64(seed: Tensor, position: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """int64 in [low, high): 63 bits, and the remainder."""
    a, b, _, _ = philox(seed, position)
    return low + (((b & 0x7FFFFFFF) << 32) | a) % (high - low)


KINDS = {"rand": (rand, rand64), "randn": (randn, randn64)}
KEPT_BITS = {torch.float16: 11, torch.bfloat16: 8}
"""Bits of a uniform number that half precision holds: with more it could round up to 1."""

torch.library.define("compiler_lab::random", "(Tensor seed, int number, SymInt[] size, str kind, ScalarType dtype) -> Tensor", tags=(torch.Tag.pointwise,))
torch.library.define(
    "compiler_lab::random_int", "(Tensor seed, int number, SymInt[] size, int low, int high, ScalarType dtype) -> Tensor", tags=(torch.Tag.pointwise,)
)


def _positions(seed: Tensor, number: int, size: Sequence[int]) -> Tensor:
    return torch.arange(math.prod(size), device=seed.device).reshape(tuple(size)) + number * STREAM


@torch.library.impl("compiler_lab::random", "CPU")
def _random(seed: Tensor, number: int, size: Sequence[int], kind: str, dtype: torch.dtype) -> Tensor:
    value = KINDS[kind][dtype == torch.float64](seed, _positions(seed, number, size))
    if kind == "rand" and dtype in KEPT_BITS:
        value = torch.floor(value * 2 ** KEPT_BITS[dtype]) * 2.0 ** -KEPT_BITS[dtype]
    return value.to(dtype)


@torch.library.impl("compiler_lab::random_int", "CPU")
def _random_int(seed: Tensor, number: int, size: Sequence[int], low: int, high: int, dtype: torch.dtype) -> Tensor:
    limits = (torch.tensor(n, device=seed.device) for n in (low, high))
    return randint64(seed, _positions(seed, number, size), *limits).to(dtype)


@torch.library.impl("compiler_lab::random", "Meta")
def _random_meta(seed: Tensor, number: int, size: Sequence[int], kind: str, dtype: torch.dtype) -> Tensor:
    return seed.new_empty(tuple(size), dtype=dtype)


@torch.library.impl("compiler_lab::random_int", "Meta")
def _random_int_meta(seed: Tensor, number: int, size: Sequence[int], low: int, high: int, dtype: torch.dtype) -> Tensor:
    return seed.new_empty(tuple(size), dtype=dtype)


RANDOM, RANDOM_INT = torch.ops.compiler_lab.random.default, torch.ops.compiler_lab.random_int.default
