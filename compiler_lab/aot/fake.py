"""Runs operators on fake tensors, the common ones without detour.

In: an operator and fake arguments. Out: its fake result.
A fake tensor is a meta tensor that claims a device. ``FakeTensorMode.dispatch`` looks every call up in a cache whose key costs more to
build than many a result is worth. Two kinds of calls go round it: operators in ``DIRECT``, whose meta kernels are compiled, run that
kernel at once; operators in ``ALIKE`` work element by element, so on operands of one dense layout and one float type the result is
one more of these. Both need all tensors on one device; constants known by value, and everything else, go through the mode.
PyTorch's counterpart: ``torch/_subclasses/fake_tensor.py``; a test holds that both ways give the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from ..core.strides import contiguous_stride, is_dense

aten = torch.ops.aten

DIRECT: frozenset[OpOverload] = frozenset(
    (aten.t.default, aten.transpose.int, aten.permute.default, aten.view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.expand.default,
     aten.slice.Tensor, aten.select.int, aten.clone.default, aten.mm.default, aten.bmm.default, aten.embedding.default)
)  # fmt: skip

ALIKE: frozenset[OpOverload] = frozenset(
    (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.pow.Tensor_Scalar, aten.neg.default, aten.exp.default, aten.log.default,
     aten.sqrt.default, aten.rsqrt.default, aten.reciprocal.default, aten.erf.default, aten.sin.default, aten.cos.default, aten.tanh.default,
     aten.tanh_backward.default, aten.sigmoid.default, aten.sigmoid_backward.default, aten.relu.default, aten.threshold_backward.default,
     aten.gelu.default, aten.gelu_backward.default, aten.silu.default, aten.silu_backward.default)
)  # fmt: skip


class Fakes:
    """A ``FakeTensorMode`` and the parts of torch that are too heavy to import before there is one."""

    def __init__(self, mode: Any) -> None:
        from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

        self.mode, self.type, self.in_kernel = mode, FakeTensor, in_kernel_invocation_manager

    def run(self, func: OpOverload, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.mode.shape_env is not None:  # compiled kernels know numbers only
            return self.mode.dispatch(func, types, args, kwargs)
        if func in ALIKE:
            like = self.alike(args)
            if like is not None:
                with self.in_kernel(self.mode):
                    bare = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta")
                return self.wrap(bare, like.fake_device)
        elif func in DIRECT and not kwargs:
            device = self.one_device(args)
            if device is not None:
                with self.in_kernel(self.mode):
                    bare = func(*args)
                return self.wrap(bare, device)
        return self.mode.dispatch(func, types, args, kwargs)

    def wrap(self, bare: Tensor, device: torch.device) -> Tensor:
        return self.type(self.mode, bare, device)

    def one_device(self, args: Sequence[Any]) -> torch.device | None:
        """The device of all tensors among the arguments; None where they differ, or where the mode has to see them."""
        found: torch.device | None = None
        for a in args:
            if isinstance(a, Tensor):
                if type(a) is not self.type or a.constant is not None or found not in (None, a.fake_device):
                    return None
                found = a.fake_device
        return found

    def alike(self, args: Sequence[Any]) -> Any:
        """The first tensor, where all are of its float type and dense layout and every number is real; else None."""
        first = args[0]
        if (
            self.one_device(args) is None
            or not isinstance(first, Tensor)
            or first.dtype not in (torch.float32, torch.float64)
            or not is_dense(first.shape, first.stride())
        ):
            return None
        shape, stride = first.shape, first.stride()
        if 1 in shape and stride != contiguous_stride(shape):
            return None  # the stride of a dimension of size one says nothing about memory, and the result has one of its own
        for a in args[1:]:
            if isinstance(a, Tensor):
                if a.dtype != first.dtype or a.shape != shape or a.stride() != stride:
                    return None
            elif type(a) not in (int, float):
                return None
        return first

    def snapshot(self, value: Tensor) -> Tensor:
        """The same metadata without history, and with no tie to later in-place changes of shape."""
        with self.in_kernel(self.mode):
            bare = aten.detach.default(value)
        return self.wrap(bare, value.device)
