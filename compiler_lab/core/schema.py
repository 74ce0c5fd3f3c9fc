"""What an operator's schema says of a node: does it alias, write, draw random numbers, raise; and a schema's text, in pieces.

In: an FX node, or an operator. Out: plain answers, from ``torch.ops`` schemas and tags; whether an operator looks at its data is in
neither, and its name decides. Whether a schema tells the truth is found out in ``honesty.py``. Always holds: what is not an
``OpOverload`` nor ``operator.getitem`` is not known here (``overload`` gives None), and the answers err to the safe side only where a
function says so.
PyTorch's counterparts: ``torch/_functorch/partitioners.py`` (OpTypes), ``torch/fx/node.py`` (is_impure).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx as fx

from .sizes import SYMBOLIC, hint

INTEGER_DIVISIONS = frozenset("floordiv mod ifloordiv imod floor_divide floor_divide_ remainder remainder_ fmod fmod_ div div_ divide divide_ truediv".split())
DATA_CHECKED = tuple(
    "index gather scatter take embedding put linalg cholesky inverse solve eig svd lu_ qr ormqr multinomial bernoulli poisson binomial normal "
    "bincount histc one_hot nll_loss cross_entropy ctc_loss repeat_interleave unique nonzero tensor_split bucketize max_unpool multi_margin istft".split()
)  # parts of names of operations that look at the values they are given


def overload(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operator a node calls, or None (placeholders, outputs, attributes, Python functions)."""
    return node.target if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) else None


def op_name(node: fx.Node) -> str:
    """``"aten.mm"``: namespace and packet name, without the overload; ``"getitem"``; "" for anything else."""
    if node.op == "call_function" and node.target is operator.getitem:
        return "getitem"
    op = overload(node)
    return op._schema.name.replace("::", ".") if op is not None else ""


def is_number(node: fx.Node) -> bool:
    """The node gives a number that depends on sizes, or on data: an argument of others, no tensor."""
    return isinstance(node.meta.get("val"), SYMBOLIC)


def is_view(node: fx.Node) -> bool:
    """The result shares memory with the first input (``_unsafe_view`` says it does not, and does)."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return is_view(node.args[0])
    op = overload(node)
    if op is None or mutates(node):
        return False
    return op_name(node) == "aten._unsafe_view" or any(r.alias_info is not None for r in op._schema.returns)


def mutates(node: fx.Node) -> bool:
    """The operator writes into one of its arguments."""
    op = overload(node)
    return op is not None and op._schema.is_mutable


def is_random(node: fx.Node) -> bool:
    """The operator draws from the generator: it may neither run twice, nor not at all, nor be merged with its like.

    Attention is tagged so for its dropout: with a probability of 0 it draws nothing."""
    op = overload(node)
    return op is not None and torch.Tag.nondeterministic_seeded in op.tags and _argument(node, op, "dropout_p") != 0


def _argument(node: fx.Node, op: torch._ops.OpOverload, name: str) -> Any:
    """What is given for the parameter ``name``, or its default; None where there is no such parameter."""
    for place, parameter in enumerate(op._schema.arguments):
        if parameter.name == name:
            return node.args[place] if place < len(node.args) else node.kwargs.get(name, parameter.default_value)
    return None


def has_effect(node: fx.Node) -> bool:
    """Running the node is seen even when nobody reads it: it writes, draws, or returns nothing."""
    op = overload(node)
    return op is not None and (op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags or not op._schema.returns)


def may_raise(node: fx.Node) -> bool:
    """The operator raises for some values of its inputs, whatever their shapes and dtypes. On the safe side: the name decides."""
    name, inputs = op_name(node), [n.meta.get("val") for n in node.all_input_nodes]
    if name.rpartition(".")[2] in INTEGER_DIVISIONS:
        return not any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in inputs)
    return name != "aten.rsqrt" and any(part in name for part in DATA_CHECKED)  # which has "qr" in it


def must_run(node: fx.Node) -> bool:
    """Leaving the node out is seen: it has an effect, or may raise."""
    return has_effect(node) or may_raise(node)


def base_of(node: fx.Node) -> fx.Node:
    """The node whose memory ``node`` is a view of: itself unless it is a view."""
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def nbytes(value: Any) -> int:
    """Bytes of a tensor's elements (not of its storage) at the sizes of the first call, summed over tuples and lists; 8 of a number that depends
    on sizes, 0 for plain values."""
    if isinstance(value, torch.Tensor):
        return hint(value.numel()) * value.dtype.itemsize
    if isinstance(value, SYMBOLIC):
        return 8
    return sum(map(nbytes, value)) if isinstance(value, (tuple, list)) else 0


# -- operators ----------------------------------------------------------------------------------------------------------------

TORCHS_OWN = frozenset(
    "aten prim prims inductor_prims debugprims rngprims _test _native quantization quantized _quantized quantized_decomposed inductor _inductor_test "
    "mkldnn mkldnn_prepacked mkl onednn xnnpack prepacked sparse c10d c10d_functional _c10d_functional _c10d_functional_autograd _dtensor fsdp symm_mem "
    "compiler_lab streams profiler static_runtime debug_mode_ops higher_order flex_lib export onnx onnx_symbolic".split()
)
"""Namespaces of operators that come with torch, and our own; of all others the schema is somebody's word."""


def is_custom(op: Any) -> bool:
    """An operator that came neither with torch nor with us."""
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in TORCHS_OWN


def bound(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a call by name, defaults filled in."""
    result: dict[str, Any] = {}
    for i, a in enumerate(op._schema.arguments):
        result[a.name] = args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
    return result


@cache
def written_names(op: torch._ops.OpOverload) -> tuple[str, ...]:
    """The arguments that the schema says are written to."""
    return tuple(a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write)


def pieces_of(schema: Any) -> tuple[str, list[str], list[str]]:
    """A schema's name, the texts of its arguments (``*`` among them) and those of its results: ``"Tensor(a!) x"``, ``"float k=2."``."""
    name, _, rest = str(schema).partition("(")
    arguments, _, results = rest.rpartition(") -> ")
    return name, _split(arguments), _split(results[1:-1] if results.startswith("(") else results)


def _split(text: str) -> list[str]:
    """At the commas outside brackets."""
    found, depth, start = list[str](), 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()] if text.strip() else []


def unannotated(text: str) -> str:
    """``"Tensor(a!) x"`` as ``"Tensor x"``."""
    return re.sub(r"\bTensor\([^)]*\)", "Tensor", text)
