"""The table of operations: which calls mean the same, what their arguments are called, and which operands may change places.

In: a node of a torch-level or an aten graph. Out: a ``Call``: the operation and its arguments by name, defaults filled in. So ``x * y``,
``torch.mul(x, y)``, ``x.mul(other=y)`` and ``aten.mul.Tensor(x, y)`` are one call, and ``F.batch_norm`` and ``torch.batch_norm``, whose
arguments come in another order, are another one. A call of anything else is itself, with the arguments as its signature names them.
Always holds: spellings of one row give the same result for the same arguments, and a commuting row gives it whichever operand comes first,
bit for bit but for the bits of a NaN and, of ``maximum`` and its kin, the sign of a zero. Calls that write (``mul_``, ``out=``,
``inplace=True``) are nobody's spelling.
PyTorch's counterparts: ``torch/fx/operator_schemas.py`` (normalize_function), ``torch/_inductor/pattern_matcher.py`` (where a pattern lists the overloads).
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..core.schema import overload

aten = torch.ops.aten
Target = Any  # a function, an aten overload, or ".name" for a method


@dataclass(frozen=True)
class Operation:
    """A row. ``params``: the arguments in order; ``defaults`` of those that may be left out; ``spellings``: targets that take them in this order;
    ``others``: targets that take them in another order, with that order. ``commutes`` says of a call whether its first two arguments may
    change places."""

    name: str
    params: tuple[str, ...]
    spellings: tuple[Target, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    others: tuple[tuple[Target, tuple[str, ...]], ...] = ()
    commutes: Callable[[Call], bool] | None = None

    def overloads(self) -> tuple[torch._ops.OpOverload, ...]:
        """What spells this operation below autograd."""
        return tuple(t for t in (*self.spellings, *(t for t, _ in self.others)) if isinstance(t, torch._ops.OpOverload))


@dataclass(frozen=True)
class Call:
    """A node read: ``operation`` is the row's, or None for a call without one, which is then known by ``target``."""

    operation: Operation | None
    target: Target
    arguments: Mapping[str, Any]

    @property
    def key(self) -> Any:
        """Calls of one key may be the same call."""
        return self.target if self.operation is None else self.operation.name

    def orders(self) -> tuple[tuple[Any, ...], ...]:
        """The arguments as they stand, and with the first two exchanged where the operation commutes."""
        as_written = tuple(self.arguments.values())
        if self.operation is None or self.operation.commutes is None or not self.operation.commutes(self):
            return (as_written,)
        first, second, *rest = as_written
        return (as_written, (second, first, *rest))


# ------------------------------------------------------------------------------------------------------------ commutation


def _is_number(value: Any) -> bool:
    """A tensor or a number: not a list, whose ``+`` puts one behind the other."""
    if isinstance(value, fx.Node):
        value = value.meta.get("val")
    return isinstance(value, (torch.Tensor, int, float, complex, torch.SymInt, torch.SymFloat))


def on_numbers(call: Call) -> bool:
    """Both operands are known to be tensors or numbers."""
    return all(map(_is_number, tuple(call.arguments.values())[:2]))


def unscaled(call: Call) -> bool:
    """As ``on_numbers``, and nothing multiplies one side only (``alpha``)."""
    return call.arguments["alpha"] == 1 and on_numbers(call)


# ------------------------------------------------------------------------------------------------------------------ rows

BINARY = ("input", "other")
COMMUTING = ("maximum", "minimum", "fmax", "fmin", "logaddexp", "logical_and", "logical_or", "logical_xor")
ALIASES = {"self": "input", "tensor1": "input", "tensor2": "other"}  # what overloads and methods call an argument -> what the table does


def _binary(name: str, *spellings: Target, commutes: Callable[[Call], bool] | None = None) -> Operation:
    return Operation(name, BINARY, spellings, {}, (), commutes)


def _unary(name: str, *spellings: Target) -> Operation:
    return Operation(name, ("input",), (getattr(torch, name), f".{name}", *spellings, getattr(aten, name).default))


CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
CONV_DEFAULTS = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}
TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
NORM_BUILT_IN = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps", "cudnn_enabled")


def _convolutions() -> tuple[Operation, ...]:
    # torch.conv1d takes the padding as a word too, and F.conv1d is the same object
    plain = (Operation(n, CONV, (getattr(torch, n), getattr(aten, n).default), CONV_DEFAULTS) for n in ("conv1d", "conv2d", "conv3d"))
    overloads = {
        "conv_transpose1d": aten.conv_transpose1d.default,
        "conv_transpose2d": aten.conv_transpose2d.input,
        "conv_transpose3d": aten.conv_transpose3d.input,
    }
    transposed = (Operation(n, TRANSPOSED, (getattr(torch, n), o), CONV_DEFAULTS | {"output_padding": 0}) for n, o in overloads.items())
    return (*plain, *transposed)


OPERATIONS: tuple[Operation, ...] = (
    _binary("mul", operator.mul, torch.mul, torch.multiply, ".mul", ".multiply", aten.mul.Tensor, aten.mul.Scalar, commutes=on_numbers),
    Operation("add", (*BINARY, "alpha"), (operator.add, torch.add, ".add", aten.add.Tensor, aten.add.Scalar), {"alpha": 1}, (), unscaled),
    Operation("sub", (*BINARY, "alpha"), (operator.sub, torch.sub, torch.subtract, ".sub", aten.sub.Tensor, aten.sub.Scalar), {"alpha": 1}),
    Operation("div", (*BINARY, "rounding_mode"), (operator.truediv, torch.div, torch.divide, ".div", aten.div.Tensor), {"rounding_mode": None}),
    _binary("pow", operator.pow, torch.pow, ".pow", aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor),
    _binary("matmul", operator.matmul, torch.matmul, ".matmul", aten.matmul.default),
    *(_binary(n, getattr(torch, n), f".{n}", getattr(aten, n).default, commutes=on_numbers) for n in COMMUTING),
    _binary("bitwise_and", operator.and_, torch.bitwise_and, ".bitwise_and", aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, commutes=on_numbers),
    _binary("bitwise_or", operator.or_, torch.bitwise_or, ".bitwise_or", aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, commutes=on_numbers),
    _binary("bitwise_xor", operator.xor, torch.bitwise_xor, ".bitwise_xor", aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, commutes=on_numbers),
    _binary("eq", operator.eq, torch.eq, ".eq", aten.eq.Tensor, aten.eq.Scalar, commutes=on_numbers),
    _binary("ne", operator.ne, torch.ne, torch.not_equal, ".ne", aten.ne.Tensor, aten.ne.Scalar, commutes=on_numbers),
    _unary("neg", operator.neg, torch.negative),
    _unary("abs", operator.abs, torch.absolute),
    *(_unary(n) for n in ("exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "erf", "square")),
    _unary("sigmoid", F.sigmoid, torch.special.expit),
    _unary("tanh", F.tanh),
    Operation("relu", ("input", "inplace"), (F.relu, torch.relu, ".relu", aten.relu.default), {"inplace": False}),
    Operation("silu", ("input", "inplace"), (F.silu, aten.silu.default), {"inplace": False}),
    Operation("gelu", ("input", "approximate"), (F.gelu, aten.gelu.default), {"approximate": "none"}),
    Operation("unsqueeze", ("input", "dim"), (torch.unsqueeze, ".unsqueeze", aten.unsqueeze.default)),
    *_convolutions(),
    Operation(
        "batch_norm", NORM, (F.batch_norm,), {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": True},
        ((torch.batch_norm, NORM_BUILT_IN), (aten.batch_norm.default, NORM_BUILT_IN)),
    ),
)  # fmt: skip
"""Every operation that has more than one spelling, or that commutes. To add one, add a row."""


@functools.cache
def _table() -> Mapping[Target, tuple[Operation, tuple[str, ...]]]:
    found: dict[Target, tuple[Operation, tuple[str, ...]]] = {}
    for row in OPERATIONS:
        found |= {target: (row, row.params) for target in row.spellings} | {target: (row, order) for target, order in row.others}
    return found


# --------------------------------------------------------------------------------------------------------------- reading


def _target(node: fx.Node) -> Target:
    return f".{node.target}" if node.op == "call_method" else f"self.{node.target}" if node.op == "call_module" else node.target


def key_of(node: fx.Node) -> Any:
    """What ``read(node).key`` would be, without reading; None of what is no call."""
    if not node.op.startswith("call"):
        return None
    target = _target(node)
    row = _table().get(target)
    return target if row is None else row[0].name


def read(node: fx.Node) -> Call | None:
    """The call that ``node`` makes; None for placeholders, attributes, outputs and calls that a row cannot read (``out=``)."""
    if not node.op.startswith("call"):
        return None
    target = _target(node)
    row = _table().get(target)
    if row is None:
        return Call(None, target, _by_signature(node))
    operation, order = row
    if len(node.args) > len(order):
        return None
    given = dict(zip(order, node.args, strict=False)) | {ALIASES.get(k, k): v for k, v in node.kwargs.items()}
    if given.get("inplace", False) is not False or len(given) < len(node.args) + len(node.kwargs):
        return None
    known = dict.fromkeys((*operation.params, *order))
    if any(k not in known for k in given) or any(k not in given and k not in operation.defaults for k in operation.params):
        return None
    return Call(operation, target, {k: given.get(k, operation.defaults.get(k)) for k in operation.params})


def _by_signature(node: fx.Node) -> Mapping[str, Any]:
    """Arguments of a call without a row: by the names of its schema or signature where it has one, by position elsewhere."""
    op = overload(node)
    if op is not None:
        schema = op._schema.arguments
        given = dict(zip((a.name for a in schema), node.args, strict=False)) | node.kwargs
        return {a.name: given.get(a.name, a.default_value) for a in schema}
    by_position = {str(i): a for i, a in enumerate(node.args)} | node.kwargs
    if node.op != "call_function":
        return by_position
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return by_position
    bound.apply_defaults()
    return bound.arguments


def respell(node: fx.Node) -> bool:
    """``node``, a torch-level call, as an aten overload of its row, in place; False where none takes its arguments."""
    if overload(node) is not None or node.target is operator.getitem:
        return True
    call = read(node)
    if call is None or call.operation is None:
        return False
    for order in call.orders():
        for target in call.operation.overloads():
            if (spelled := _arguments_of(target, dict(zip(call.arguments, order, strict=True)))) is not None:
                node.op, node.target, (node.args, node.kwargs) = "call_function", target, spelled
                return True
    return False


def _arguments_of(target: torch._ops.OpOverload, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """``values`` as ``target`` takes them; None where it has no place for one of them."""
    schema = {ALIASES.get(a.name, a.name): a for a in target._schema.arguments}
    tensors = [k for k, a in schema.items() if str(a.type) == "Tensor"]
    if not isinstance(values.get(tensors[0]), fx.Node) or any(isinstance(values.get(k), fx.Node) for k, a in schema.items() if str(a.type) == "number"):
        return None
    if any(k not in schema and v not in (None, False) for k, v in values.items()):
        return None
    kwargs = {a.name: values[k] for k, a in schema.items() if a.kwarg_only and values.get(k, a.default_value) != a.default_value}
    return tuple(values.get(k, a.default_value) for k, a in schema.items() if not a.kwarg_only), kwargs
