"""What autograd knows of tensors on one piece of memory.

In: tensors, real or fake. Out: whether a write to one of them is, for autograd, a write to the others.
PyTorch's counterpart: ``torch/csrc/autograd/variable.h`` (DifferentiableViewMeta).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def are_kin(tensors: Sequence[Tensor]) -> bool:
    """They are views of one tensor, or that tensor itself, and a program may write to each of them with grad mode on."""
    first = tensors[0] if tensors[0]._base is None else tensors[0]._base
    if first.requires_grad and first.is_leaf:
        return False
    return all(t is first or (t._base is first and _is_writable(t)) for t in tensors)


def _is_writable(view: Tensor) -> bool:
    """One view of its own, made with grad mode on."""
    meta: Any = getattr(torch._C, "_autograd")  # noqa: B009 - not in torch's annotations
    return meta._get_creation_meta(view) == meta.CreationMeta.DEFAULT
