"""Operators in terms of others: those whose C++ looks at data where no data decides, those that change sizes of a tensor of the frame's own, and one
whose fake gives a tensor where it gives none.

In: an operator's arguments. Out: a node for each part; ``None`` for arguments with which it cannot be said so: the operator as it is.
Always holds: the same parts in the same order, forward and backward, so that results are eager's bit for bit; tests hold them to that.
Where PyTorch does this: ``aten/src/ATen/native/{Correlation,Combinations,TensorShape,Resize}.cpp``. Left out: weights of ``cov``, which raise and
warn by their values; that a tensor resized in place is no view (``_is_view``, ``_base``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .base import NONE, Args, Constant, Kwargs, NotConstant, Value
from .containers import SequenceValue

if TYPE_CHECKING:
    from ..tracer import Tracer

Row = Callable[["Tracer", Args, Kwargs], "Value | None"]


def covariance(x: Tensor, correction: int = 1) -> Tensor:
    x = x.view((1, -1)) if x.dim() < 2 else x
    count = torch.scalar_tensor(x.size(1), dtype=torch.int64, device=x.device)
    average = x.sum(1).div(count)
    x = x - average.unsqueeze(1)
    return torch.true_divide(torch.mm(x, x.t().conj()), count - correction).squeeze()


def correlation(x: Tensor) -> Tensor:
    c = covariance(x)
    if c.dim() == 0:
        return c / c
    variance = c.diag()
    deviation = torch.sqrt(torch.real(variance) if variance.is_complex() else variance)
    c = c / deviation.view((-1, 1))
    c = c / deviation.view((1, -1))
    return torch.complex(torch.real(c).clip(-1, 1), torch.imag(c).clip(-1, 1)) if c.is_complex() else c.clip(-1, 1)


def combinations(x: Tensor, r: int, with_replacement: bool, count: int) -> Tensor:
    """``count`` is how many there are, which C++ counts in the mask."""
    at = torch.meshgrid([torch.arange(x.size(0), device=x.device)] * r, indexing="ij")
    mask = torch.full(at[0].shape, True, dtype=torch.bool, device=x.device)
    for left, right in itertools.pairwise(at):
        mask = mask & (left <= right if with_replacement else left < right)
    chosen = mask.reshape(-1).logical_not().to(torch.int8).argsort(stable=True)[:count]
    return torch.stack([grid.reshape(-1)[chosen] for grid in torch.meshgrid([x] * r, indexing="ij")], 1)


def _tensor(args: Args) -> Any:
    """The fake of a first argument that is a tensor whose sizes are numbers; None otherwise."""
    fake = getattr(args[0], "fake", None) if args else None
    return fake if fake is not None and all(type(n) is int for n in fake.shape) else None


def _options(t: Tracer, defaults: dict[str, Any], args: Args, kwargs: Kwargs) -> list[Any] | None:
    """The arguments after the first, in the order of ``defaults``; None where one is no constant."""
    given = {**dict(zip(defaults, args[1:], strict=False)), **kwargs}
    if len(args) > 1 + len(defaults) or not given.keys() <= defaults.keys():
        return None
    found = [t.maybe_constant(given[n]) if n in given else d for n, d in defaults.items()]
    return None if any(isinstance(v, NotConstant) for v in found) else found


def _has_freedom(x: Tensor | None, correction: Any) -> bool:
    """May ``x`` have a covariance, and one that C++ does not warn about?"""
    if x is None or x.dim() > 2 or x.dtype == torch.bool or type(correction) is not int:
        return False
    return correction < (x.shape[1] if x.dim() == 2 else x.numel())


def _inlined(t: Tracer, function: Callable[..., Any], args: Args) -> Value:
    return t.wrap(function, None).call(t, args, {})


def cov(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    options = _options(t, {"correction": 1, "fweights": None, "aweights": None}, args, kwargs)
    if options is None or options[1:] != [None, None] or not _has_freedom(_tensor(args), options[0]):
        return None
    return _inlined(t, covariance, [args[0], Constant(options[0])])


def corrcoef(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    return _inlined(t, correlation, args) if len(args) == 1 and not kwargs and _has_freedom(_tensor(args), 1) else None


def combined(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    x, options = _tensor(args), _options(t, {"r": 2, "with_replacement": False}, args, kwargs)
    if x is None or options is None or x.dim() != 1 or type(options[0]) is not int or options[0] < 1 or type(options[1]) is not bool:
        return None
    r, again = options
    size = x.shape[0]
    count = math.comb(size + r - 1 if again and size else size, r)
    return _inlined(t, combinations, [args[0], Constant(r), Constant(again), Constant(count)])


def narrow(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """A start that a tensor holds: the graph reads it, Python never sees it, and the size of the result does not depend on it."""
    start = kwargs.get("start", args[2] if len(args) > 2 else None)
    fake = getattr(start, "fake", None)
    if start is None or fake is None or fake.dim() or fake.dtype == torch.bool or fake.is_floating_point() or fake.is_complex():
        return None
    number = t.element(start)  # type: ignore[arg-type]
    if "start" in kwargs:
        return t.op("narrow", args, {**kwargs, "start": number})
    return t.op("narrow", [*args[:2], number, *args[3:]], kwargs)


def _reshaped(t: Tracer, value: Any, view: str, args: Args, kwargs: Kwargs) -> Value | None:
    """``value``, a tensor that the frame made and has not used yet, becomes its own view: what an operator does that changes sizes and strides only.

    One that was used may have been saved for a backward pass, which would find it changed; one with history changes in autograd's eyes."""
    used = value.node is not value.first or value.node.users
    if value.source is not None or value.fake.requires_grad or used or t.shapes.symbolic or t.subgraphs:
        return None
    return t.become(value, t.op(view, [value, *args], kwargs))


def _changed(view: str) -> Row:
    return lambda t, args, kwargs: _reshaped(t, args[0], view, args[1:], kwargs) if _tensor(args) is not None else None


def resized(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """To as many elements as there are; more would hold what the memory held, fewer would leave some behind."""
    x = _tensor(args)
    sizes = [t.maybe_constant(a) for a in args[1:]]
    shape = list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if x is None or kwargs or not x.is_contiguous() or any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) != x.numel():
        return None
    return _reshaped(t, args[0], "view", [t.lift(tuple(shape))], {})


def resized_as(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    other = _tensor(args[1:])
    return None if other is None or len(args) > 2 else resized(t, [args[0], t.lift(tuple(other.shape))], kwargs)


def requires_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """``x.requires_grad_(flag)`` where ``x`` is so already."""
    flag = _options(t, {"requires_grad": True}, args, kwargs)
    return args[0] if flag == [getattr(getattr(args[0], "fake", None), "requires_grad", None)] else None


def attended(t: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """Attention that was not asked for its weights gives None in their place, where its fake gives a tensor without elements."""
    needs = args[10] if len(args) > 10 else kwargs.get("need_weights")
    if not isinstance(needs, Constant) or needs.value:
        return None
    made = t.op(torch._native_multi_head_attention, args, kwargs)  # pyright: ignore[reportPrivateImportUsage]
    assert isinstance(made, SequenceValue)
    return SequenceValue([made.items[0], NONE], tuple)


COMPOSITES: dict[str, Row] = {
    "_native_multi_head_attention": attended,
    "requires_grad_": requires_grad, "cov": cov, "corrcoef": corrcoef, "combinations": combined, "narrow": narrow, "resize_": resized, "resize_as_": resized_as,
    **{f"{name}_": _changed(name) for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims")},
}  # fmt: skip
"""By name, as methods and as functions of torch."""
