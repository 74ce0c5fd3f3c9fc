"""Fake tensors: values with shape, dtype and device and no memory, which every trace here runs on.

In: options of ``FakeTensorMode``. Out: a mode. PyTorch's counterpart: ``torch/_subclasses/fake_tensor.py``, whose first mode imports
``torch._dynamo`` for its settings: nine hundred modules, the larger part of a process's first compile.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

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
    return FakeTensorMode(**options)
