"""A functional twin for any operator that writes: it copies what would be written, runs the operator on the copies and returns them.

In: an operator whose schema says what it writes, and which has no functional form of its own (most operators that users define). Out: an
operator of the namespace ``compiler_lab`` with the same arguments, none of them written; its results are the operator's own and then the
new value of each written argument, in the order of the arguments.
Always holds: the twin is true only if the schema is (``honesty.py`` finds out); it finds its operator by name at each call, so one that is
defined anew with the same schema is meant from then on.
PyTorch's counterpart: ``torch/_higher_order_ops/auto_functionalize.py``. Left out: arguments that may be None.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import torch
from torch._ops import OpOverload

from ..core.schema import bound, pieces_of, unannotated, written_names
from .schemas import call_of

NAMESPACE = "compiler_lab"


def copying_twin(op: OpOverload) -> OpOverload:
    """The twin of ``op``, defined at the first call for its name and schema."""
    return _defined(op.namespace, op._opname, op._overloadname, str(op._schema), torch.Tag.nondeterministic_seeded in op.tags)[0]


@cache
def _defined(namespace: str, name: str, overload: str, schema: str, seeded: bool) -> tuple[OpOverload, torch.library.Library]:
    """The twin, and the library that it lives as long as."""

    def find() -> OpOverload:
        return getattr(getattr(getattr(torch.ops, namespace), name), overload)

    stem = f"{namespace}_{name}" + ("" if overload == "default" else f"_{overload}")
    taken = getattr(torch.ops, NAMESPACE)
    own = next(n for i in count() if not hasattr(taken, n := stem + (f"_{i}" if i else "")))  # taken where the operator had another schema before
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(f"{own}{_signature(find())}", tags=(torch.Tag.nondeterministic_seeded,) if seeded else ())
    kernel = _kernel(find)
    library.impl(own, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{own}", kernel, lib=library)
    return getattr(taken, own).default, library


def _signature(op: OpOverload) -> str:
    """``(Tensor x, int n) -> (Tensor, Tensor)``: nothing is written, and what was is returned."""
    _, arguments, results = pieces_of(op._schema)
    fresh = [text for text, told in zip(results, op._schema.returns, strict=True) if told.alias_info is None]
    written = ["Tensor[]" if str(a.type).startswith("List") else "Tensor" for a in op._schema.arguments if a.name in written_names(op)]
    return f"({', '.join(map(unannotated, arguments))}) -> ({', '.join(fresh + written)})"


def _kernel(find: Callable[[], OpOverload]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        op = find()
        arguments = bound(op, args, kwargs)
        copies = {n: [t.clone() for t in v] if isinstance(v := arguments[n], (list, tuple)) else v.clone() for n in written_names(op)}
        positional, named = call_of(op, {**arguments, **copies})
        result = op(*positional, **named)
        results = (result,) if len(op._schema.returns) == 1 else result or ()
        fresh = [r for r, told in zip(results, op._schema.returns, strict=True) if told.alias_info is None]
        made = (*fresh, *copies.values())
        return made[0] if len(made) == 1 else made

    return kernel
