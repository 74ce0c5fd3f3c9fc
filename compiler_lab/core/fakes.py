"""Fake tensors: values with shape, dtype and device and no memory, which every trace here runs on.

In: options of ``FakeTensorMode``. Out: a mode. PyTorch's counterpart: ``torch/_subclasses/fake_tensor.py``, whose first mode imports
``torch._dynamo`` for its settings: nine hundred modules, the larger part of a process's first compile.
Always holds: a fake has the shape that the operator gives; a fake kernel of an older torch that does not say so is in ``CORRECTED``; of an
operator without a fake kernel ``without_kernel`` knows, from the error it ends in, and ``registration`` says how to give it one.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .clock import Clock, spent
from .collecting import importing

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


def bring_dynamo(clock: Clock | None = None) -> None:
    """Imports ``torch._dynamo`` where it is not there, as the first fake tensor would, and tells ``clock`` how long it took."""
    if "torch._dynamo" in sys.modules:
        return
    # in a thread: the import leaves its frames as garbage, and with them it would leave the program's, whose tensors are then not freed
    thread = threading.Thread(target=importlib.import_module, args=("torch._dynamo",))
    with spent(clock, "import torch._dynamo"), importing():
        thread.start()
        thread.join()


def fake_mode(**options: Any) -> FakeTensorMode:
    """A new mode; ``options`` are those of ``FakeTensorMode``."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    bring_dynamo()
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


def without_kernel(error: BaseException) -> torch._ops.OpOverload | None:
    """The operator that has no fake kernel, where that is what ``error`` is about; None otherwise."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    if isinstance(error, UnsupportedOperatorException):
        return error.func
    found = re.search(r"no fake impl registered for <CustomOpDef\((\w+)::(\w+)\)>", str(error))
    return getattr(getattr(torch.ops, found[1]), found[2]).default if found else None


def registration(op: torch._ops.OpOverload) -> str:
    """The lines that register a fake kernel of ``op``: its signature, and a tensor for each that it returns."""
    schema = op._schema
    plain = [a for a in schema.arguments if not a.kwarg_only]
    named = [a for a in schema.arguments if a.kwarg_only]
    written = lambda a: f"{a.name}={a.default_value!r}" if a.has_default_value() else a.name
    arguments = ", ".join([*map(written, plain), *(["*"] if named else []), *map(written, named)])
    like = next((f"{a.name}.new_empty({a.name}.shape)" for a in schema.arguments if str(a.type) == "Tensor"), "torch.empty(())")
    made = {"Tensor": like, "List[Tensor]": f"[{like}]"}
    results = ", ".join(made.get(str(r.type), "...") for r in schema.returns)
    return (
        "register a fake kernel, which gives tensors of the right shape and dtype:\n"
        f'    @torch.library.register_fake("{schema.name}")\n'
        f"    def {schema.name.rpartition('::')[2]}({arguments}):\n"
        f"        return {results or None}"
    )
