"""Rows of random operators: numbers by counter, from a seed that a graph draws once each time it runs.

In: an operator's arguments; a ``Draws``, which holds the seed's tensor while one graph is opened. Out: its results. ``NotImplemented``
where a generator is given or an argument is refused by aten: those calls stay with aten, and so does all that looks at probabilities.
Always holds: an operator is numbered by its place in the graph, so no two share a position of the stream; only the seed is random, everything
made from it may be computed again. PyTorch's counterpart: ``torch/_inductor/fx_passes/replace_random.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..core.philox import RANDOM, RANDOM_INT

aten = torch.ops.aten

LARGEST = 2**63 - 1


TINY = {torch.float16: 2.0**-12, torch.bfloat16: 2.0**-9, torch.float32: 2.0**-25, torch.float64: 2.0**-54}
"""Half of the smallest uniform number above 0: what 0 counts as where 0 may not come out."""


class Draws:
    """The random operators of one graph: ``seed`` once there is one, ``count`` of them so far."""

    def __init__(self) -> None:
        self.seed: Tensor | None = None
        self.count = 0

    def next(self) -> tuple[Tensor, int]:
        seed = self.seed
        if seed is None:
            seed = self.seed = aten.randint.low(0, LARGEST, [], dtype=torch.int64, device=torch.device("cpu"), pin_memory=False)
        self.count += 1
        return seed, self.count - 1

    def numbers(self, kind: str, size: Sequence[int], dtype: torch.dtype | None, device: Any = None, layout: Any = None) -> Any:
        dtype = torch.get_default_dtype() if dtype is None else dtype
        plain = layout in (None, torch.strided) and (device is None or torch.device(device).type == "cpu")
        if not plain or not dtype.is_floating_point or dtype.itemsize < 2:
            return NotImplemented
        seed, number = self.next()
        return RANDOM(seed, number, list(size), kind, dtype)

    def integers(self, low: int, high: int, size: Sequence[int], dtype: torch.dtype | None, device: Any = None, layout: Any = None) -> Any:
        plain = layout in (None, torch.strided) and (device is None or torch.device(device).type == "cpu")
        dtype = torch.int64 if dtype is None else dtype
        if not plain or not low < high <= LARGEST or high - low > LARGEST or dtype == torch.bool:
            return NotImplemented
        seed, number = self.next()
        return RANDOM_INT(seed, number, list(size), low, high, dtype)


def rows_by_counter(draws: Draws) -> Mapping[OpOverload, Callable[..., Any]]:
    """Operator -> row, for one graph."""

    def filled(kind: str) -> Callable[..., Any]:
        return lambda size, *, dtype=None, layout=None, device=None, pin_memory=None: draws.numbers(kind, size, dtype, device, layout)

    def like(kind: str) -> Callable[..., Any]:
        def row(x: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None) -> Any:
            return draws.numbers(kind, x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device, layout)

        return row

    def bernoulli(x: Tensor, p: float = 0.5, *, generator: Any = None) -> Any:
        if generator is not None or not 0 <= p <= 1:
            return NotImplemented
        uniform = draws.numbers("rand", x.shape, torch.float64 if x.dtype == torch.float64 else torch.float32, x.device)
        return NotImplemented if uniform is NotImplemented else (uniform < p).to(x.dtype)

    def dropout(x: Tensor, p: float, train: bool | None) -> Any:
        if train is False or not 0 <= p <= 1:
            return NotImplemented
        uniform = draws.numbers("rand", x.shape, torch.float32, x.device)
        if uniform is NotImplemented:
            return NotImplemented
        mask = uniform >= p
        return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask

    def randint(high: int, size: Sequence[int], *, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        return draws.integers(0, high, size, dtype, device, layout)

    def randint_low(
        low: int, high: int, size: Sequence[int], *, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: Any = None
    ) -> Any:
        if draws.seed is None and not size and (low, high) == (0, LARGEST):
            return NotImplemented  # the seed itself
        return draws.integers(low, high, size, dtype, device, layout)

    def randint_like(
        x: Tensor, *limits: int, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
    ) -> Any:
        low, high = limits if len(limits) == 2 else (0, *limits)
        return draws.integers(low, high, x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device, layout)

    def spread(kind: str, formula: Callable[..., Tensor], allowed: Callable[..., bool]) -> Callable[..., Any]:
        """A distribution made of uniform or normal numbers: ``formula(number, *parameters)``."""

        def row(x: Tensor, first: float, second: float = 0.0, *, generator: Any = None) -> Any:
            if generator is not None or not allowed(first, second):
                return NotImplemented
            number = draws.numbers(kind, x.shape, x.dtype, x.device)
            return NotImplemented if number is NotImplemented else formula(number, first, second)

        return row

    first_positive, second_positive = (lambda a, b: a > 0), (lambda a, b: b > 0)
    return {
        aten.uniform.default: _defaulted(spread("rand", lambda u, low, high: u * (high - low) + low, lambda low, high: low <= high), 0.0, 1.0),
        aten.normal_functional.default: _defaulted(spread("randn", lambda z, mean, std: z * std + mean, lambda mean, std: std >= 0), 0.0, 1.0),
        aten.log_normal.default: _defaulted(spread("randn", lambda z, mean, std: torch.exp(z * std + mean), second_positive), 1.0, 2.0),
        aten.cauchy.default: _defaulted(spread("rand", lambda u, median, sigma: torch.tan((u - 0.5) * math.pi) * sigma + median, second_positive), 0.0, 1.0),
        aten.exponential.default: _defaulted(
            spread("rand", lambda u, rate, _: -torch.log1p(-torch.clamp(u, min=TINY[u.dtype])) / rate, first_positive), 1.0, 0.0
        ),
        aten.geometric.default: spread("rand", lambda u, p, _: torch.floor(torch.log1p(-u) / math.log1p(-p)) + 1, lambda p, _: 0 < p < 1),
        aten.rand.default: filled("rand"),
        aten.randn.default: filled("randn"),
        aten.rand_like.default: like("rand"),
        aten.randn_like.default: like("randn"),
        aten.randint.default: randint,
        aten.randint.low: randint_low,
        aten.randint_like.default: randint_like,
        aten.randint_like.low_dtype: randint_like,
        aten.bernoulli.p: bernoulli,
        aten.native_dropout.default: dropout,
    }


def _defaulted(row: Callable[..., Any], first: float, second: float) -> Callable[..., Any]:
    return lambda x, a=first, b=second, *, generator=None: row(x, a, b, generator=generator)
