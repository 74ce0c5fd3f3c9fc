"""Functions of torch with a C interface: which operator has one, and how its arguments are written.

In: an extern call. Out: the C text of the call of ``aoti_torch_cpu_NAME``, or the reason why it is left to Python.
Always holds: the C prototype follows from the operator's schema, by the rows of ``C_TYPES``: an optional argument is a pointer to the value or
null, a list a pointer and a length, a bool an ``int32_t``, a number a ``double``; where a tensor of ours is given, results stand first.
PyTorch's counterpart: ``torchgen/gen_aoti_c_shim.py``, which writes these functions, and ``torch/_inductor/codegen/cpp_wrapper_cpu.py``.
Left out: tensors with lazy conjugation or negation (no complex dtype is let in), generators, functions that return numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..lowering.ir import ExternNode, TensorView
from ..lowering.program import views_of
from ..scheduling.ir import OUT_VARIANTS

ATEN_OUT: Mapping[str, str] = {
    "aten.mm.default": "mm_out",
    "aten.addmm.default": "addmm_out",
    "aten.bmm.default": "bmm_out",
    "aten.baddbmm.default": "baddbmm_out",
}
"""Operators that write a result whose memory they are given."""

ATEN: Mapping[str, str] = {
    "aten._adaptive_avg_pool2d.default": "_adaptive_avg_pool2d",
    "aten._adaptive_avg_pool2d_backward.default": "_adaptive_avg_pool2d_backward",
    "aten._scaled_dot_product_flash_attention_for_cpu.default": "_scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": "_scaled_dot_product_flash_attention_for_cpu_backward",
    "aten.avg_pool2d.default": "avg_pool2d",
    "aten.avg_pool2d_backward.default": "avg_pool2d_backward",
    "aten.convolution.default": "convolution",
    "aten.convolution_backward.default": "convolution_backward",
    "aten.cumsum.default": "cumsum",
    "aten.max_pool2d_with_indices.default": "max_pool2d_with_indices",
    "aten.max_pool2d_with_indices_backward.default": "max_pool2d_with_indices_backward",
    "aten.sort.default": "sort",
    "aten.sort.stable": "sort_stable",
    "aten.topk.default": "topk",
}
"""Operators that allocate their results."""

DTYPE_CODES: Mapping[torch.dtype, int] = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6, torch.float64: 7,
    torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
"""``c10::ScalarType``: written into files by ``torch.save`` of old, so they do not change."""

Write = Callable[["CallText", Any], tuple[str, ...]]
"""Writes one argument: what it needs declared, and the expressions that are passed."""

EXACT = 2**53
"""Up to here an int is a double."""


class NoShim(Exception):
    """Why an operator is called through Python: an id of ``codegen.artifact.REASONS``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass
class CallText:
    """``tensor`` writes a tensor; ``locals``: declarations before the call."""

    tensor: Callable[[TensorView], str]
    locals: list[str] = field(default_factory=list[str])

    def local(self, declaration: str, value: str) -> str:
        """Its name, which stands in ``declaration`` as ``NAME``."""
        name = f"a{len(self.locals)}"
        self.locals.append(f"{declaration.replace('NAME', name)} = {value};")
        return name


def number(value: float) -> str:
    """A double in C."""
    if isinstance(value, int) and not -EXACT <= value <= EXACT:
        raise NoShim("number too large")
    if math.isnan(value):
        return '__builtin_nan("")'
    return f"{'-' if value < 0 else ''}__builtin_inf()" if math.isinf(value) else repr(float(value))


def integer(value: int) -> str:
    return str(int(value))


def dtype(value: torch.dtype) -> str:
    if value not in DTYPE_CODES:
        raise NoShim("dtype")
    return str(DTYPE_CODES[value])


def _array(t: CallText, c: str, values: Sequence[Any]) -> str:
    return t.local(f"static const {c} NAME[]", "{" + ", ".join(map(integer, values)) + "}") if values else "nullptr"


def _tensor(t: CallText, v: TensorView) -> tuple[str, ...]:
    return (t.local("H NAME", t.tensor(v)),)


def _optional_tensor(t: CallText, v: TensorView | None) -> tuple[str, ...]:
    return ("nullptr" if v is None else f"&{t.local('H NAME', t.tensor(v))}",)


def _optional_ints(t: CallText, v: Sequence[int] | None) -> tuple[str, ...]:
    return ("nullptr", "0") if v is None else (f"&{t.local('const int64_t* NAME', _array(t, 'int64_t', v))}", str(len(v)))


def _plain(text: Callable[[Any], str]) -> Write:
    return lambda t, v: (text(v),)


def _optional(c: str, text: Callable[[Any], str]) -> Write:
    return lambda t, v: ("nullptr" if v is None else f"&{t.local(f'{c} NAME', text(v))}",)


def _list(c: str) -> Write:
    return lambda t, v: (_array(t, c, v), str(len(v)))


C_TYPES: Mapping[str, tuple[tuple[str, ...], Write]] = {
    "Tensor": (("H",), _tensor),
    "Optional[Tensor]": (("H*",), _optional_tensor),
    "int": (("int64_t",), _plain(integer)),
    "bool": (("int32_t",), _plain(integer)),
    "float": (("double",), _plain(number)),
    "number": (("double",), _plain(number)),
    "List[int]": (("const int64_t*", "int64_t"), _list("int64_t")),
    "List[bool]": (("const int32_t*", "int64_t"), _list("int32_t")),
    "Optional[List[int]]": (("const int64_t**", "int64_t"), _optional_ints),
    "Optional[int]": (("int64_t*",), _optional("int64_t", integer)),
    "Optional[bool]": (("int32_t*",), _optional("int32_t", integer)),
    "Optional[float]": (("double*",), _optional("double", number)),
    "Optional[ScalarType]": (("int32_t*",), _optional("int32_t", dtype)),
}
"""A schema's type, its types in C, and how a value of it is passed; a type that is not here is passed by Python."""


@dataclass(frozen=True)
class Shim:
    """One call in C: ``symbol(results first or last as ``out`` says)``. ``types``: of all its arguments."""

    symbol: str
    out: bool
    locals: tuple[str, ...]
    args: tuple[str, ...]
    types: tuple[str, ...]


def prototype(schema: torch.FunctionSchema, out: bool) -> tuple[str, ...]:
    """The C types of the function's arguments. Raises ``NoShim``."""
    if any(str(arg.real_type) not in C_TYPES for arg in schema.arguments) or any(str(r.type) != "Tensor" for r in schema.returns):
        raise NoShim("argument")
    types = tuple(c for arg in schema.arguments for c in C_TYPES[str(arg.real_type)][0])
    return ("H", *types) if out else (*types, *("H*" for _ in schema.returns))


def shim(node: ExternNode, tensor: Callable[[TensorView], str], out: bool) -> Shim:
    """``tensor`` writes a tensor argument; ``out``: the result's memory is given. Raises ``NoShim``."""
    name, schema = str(node.target), node.target._schema
    table = ATEN_OUT if out else ATEN
    if name not in table:
        raise NoShim("no function")
    tensors = (*views_of(node), *(s for s in node.outputs if s is not None))
    if any(t.dtype not in DTYPE_CODES for t in tensors):
        raise NoShim("dtype")
    types, text, args = prototype(schema, out), CallText(tensor), list[str]()
    for i, arg in enumerate(schema.arguments):
        value = node.args[i] if i < len(node.args) else node.kwargs.get(arg.name, arg.default_value)
        args += C_TYPES[str(arg.real_type)][1](text, value)
    return Shim(f"aoti_torch_cpu_{table[name]}", out, tuple(text.locals), tuple(args), types)


def gives_memory(node: ExternNode) -> bool:
    """Whether the operator writes where it is told to, in Python or in C."""
    return node.target in OUT_VARIANTS
