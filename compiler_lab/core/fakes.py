"""Fake tensors: values with shape, dtype and device and no memory, which every trace here runs on.

In: options of ``FakeTensorMode``. Out: a mode. PyTorch's counterpart: ``torch/_subclasses/fake_tensor.py``, whose first mode imports
``torch._dynamo`` for its settings: nine hundred modules, the larger part of a process's first compile.
Always holds: a fake has the shape that the operator gives; a fake kernel of an older torch that does not say so is in ``CORRECTED``.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .imports import importing

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


def fake_mode(**options: Any) -> FakeTensorMode:
    """A new mode; ``options`` are those of ``FakeTensorMode``."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if "torch._dynamo" not in sys.modules:
        # in a thread: the import leaves its frames as garbage, and with them it would leave the program's, whose tensors are then not freed
        thread = threading.Thread(target=importlib.import_module, args=("torch._dynamo",))
        with importing():
            thread.start()
            thread.join()
    return (FakeTensorMode if torch.__version__ >= (2, 13) else corrected_mode())(**options)  # pyright: ignore[reportOperatorIssue] - a TorchVersion


def _from_the_front(x: Any, ord: Any = 2, dim: Any = None, *rest: Any) -> tuple[Any, ...]:
    """Dimensions counted from the front: counted from the end, those of size one were left in the result's shape."""
    return (x, ord, dim if dim is None else [d % max(x.dim(), 1) if d < 0 else d for d in dim], *rest)


CORRECTED: dict[Any, Callable[..., tuple[Any, ...]]] = {torch.ops.aten.linalg_vector_norm.default: _from_the_front}
"""Operator -> what its fake kernel must be given instead of its arguments."""


@functools.cache
def corrected_mode() -> type[FakeTensorMode]:
    """``FakeTensorMode`` for versions of torch before 2.13."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class CorrectedMode(FakeTensorMode):
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            correct = CORRECTED.get(func)
            return super().dispatch(func, types, args if correct is None else correct(*args), kwargs or {})

    return CorrectedMode
