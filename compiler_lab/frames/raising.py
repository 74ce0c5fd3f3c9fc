"""Operations that may raise because of the data that they are given, and the frames that Python can run again when one does.

In: an operation and its arguments; the state of a capture. Out: whether the operation may raise, and whether all would be as in plain Python
if the whole frame were then run by Python. Always holds: what the graph has done before such an operation can be done twice without a trace:
no input is changed, no random number drawn, nothing called that is not torch's own; so Python raises, in its own order, what the program's
handlers and whoever looks at its objects afterwards shall see.
PyTorch's counterpart: none; ``torch/_dynamo`` makes side effects after the graph and leaves out those before an operator that raises.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.node import _side_effectful_functions

from ..core.schema import DATA_CHECKED, INTEGER_DIVISIONS
from .points import LOOKS_AT_LOCALS
from .values.base import Args, Value
from .values.symbolic import SymbolicValue
from .values.tensor import TensorValue

if TYPE_CHECKING:
    from .tracer import Tracer

DRAWS = tuple("rand bernoulli multinomial normal_ poisson binomial uniform exponential cauchy geometric rrelu gumbel lstm gru rnn fractional attention".split())


def name_of(target: Callable[..., Any] | str) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)


def may_raise(name: str, args: Args) -> bool:
    """Can the operation raise because of the data, on arguments whose kinds and sizes are right?"""
    if name in INTEGER_DIVISIONS:
        return not any(isinstance(a, TensorValue) and a.fake.is_floating_point() for a in args)
    if name in ("getitem", "setitem"):
        return len(_indices(args[1])) > 0
    return any(part in name for part in DATA_CHECKED)


def looks_at_data(t: Tracer, name: str, args: Args) -> bool:
    """Can the operation raise because of what tensors hold, a number read from one included?"""
    return may_raise(name, args) or any(isinstance(a, SymbolicValue) and t.shapes.of_data(a.sym) for a in args)


def _indices(key: Value) -> list[TensorValue]:
    """The tensors of a subscript that hold positions: out of range, they raise."""
    found: list[TensorValue] = []

    def leaf(part: Value) -> Any:
        if isinstance(part, TensorValue) and part.fake.dtype != torch.bool:
            found.append(part)

    key.plain(leaf)
    return found


def check(t: Tracer, name: str) -> None:
    """An operation that may raise comes next. Raises where the program would see that the graph raised, and Python cannot run the frame again."""
    caught = any(f.info.handlers and f.catches() for f in t.frames)
    if not (t.changed or caught or t.retried):
        return
    if not runs_again(t):
        if t.changed or t.retried:
            raise t.refuse("side-effect", f"{name} may raise when the graph runs, and the changes of objects before it would be lost")
        raise t.refuse("exception", f"{name} may raise when the graph runs, and the program would handle that")
    t.retried = True


def runs_again(t: Tracer) -> bool:
    """Whether Python could run the frame from its start now, with nothing left of what the graph has done so far."""
    code = t.frames[0].code
    if code.co_cellvars or LOOKS_AT_LOCALS & set(code.co_names) or t.subgraphs or t.mutated or t.warned:
        return False
    return not t.once


def once(target: Callable[..., Any] | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does the operation draw random numbers, or do what cannot be seen here?"""
    name = name_of(target)
    if "dropout" in name:
        rest = [*args[1:3], kwargs.get("p"), kwargs.get("train", kwargs.get("training"))]
        return not any(v is False or (isinstance(v, (int, float)) and v == 0) for v in rest)
    if name == "scaled_dot_product_attention":
        return (args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)) != 0
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(once(getattr(target, overload), args, kwargs) for overload in target.overloads())
    if isinstance(target, torch._ops.OpOverload):
        pure = not target._schema.is_mutable and target not in _side_effectful_functions  # which is also what a custom operator promises
        return not pure or torch.Tag.nondeterministic_seeded in target.tags
    known = isinstance(target, (str, types.BuiltinFunctionType)) or (isinstance(target, types.FunctionType) and str(target.__module__).startswith("torch."))
    return not known or (any(part in name for part in DRAWS) and target is not operator.getitem)
