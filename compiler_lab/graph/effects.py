"""What a torch-level node does beside giving a value: does it write to memory that others read, draw random numbers, raise on its data.

In: a node of any graph. Out: yes or no, on the safe side: of a function that is not torch's own, of a method of what is not known to be a tensor,
and of a module with state, it is said that it writes.
Aten overloads are told by their schema (``core/schema.py``); torch's functions and methods have none, and are told by PyTorch's own
conventions: a trailing underscore, ``out=``, ``inplace=True``, in-place operators; the rest are rows in ``WRITERS``.
PyTorch's counterpart: ``torch/fx/node.py`` (is_impure), which knows fewer of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..core.schema import DATA_CHECKED, INTEGER_DIVISIONS, is_number, is_random, may_raise, mutates, overload
from .values import tensor_of

IN_PLACE = frozenset("iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift iand ior ixor setitem delitem iconcat".split())
METHODS = frozenset(("backward", "retain_grad", "register_hook", "record_stream", *(f"__{n}__" for n in IN_PLACE)))
RANDOM = frozenset(
    "rand rand_like randn randn_like randint randint_like randperm normal bernoulli multinomial poisson binomial dropout dropout1d dropout2d dropout3d "
    "alpha_dropout feature_dropout feature_alpha_dropout native_dropout rrelu gumbel_softmax scaled_dot_product_attention multi_head_attention_forward "
    "fractional_max_pool2d fractional_max_pool3d".split()
)  # by name: the functions that may draw


def _trains(args: Mapping[str, Any]) -> bool:
    return args.get("training", args.get("use_input_stats", True)) is not False and args.get("running_mean") is not None


def _renormalizes(args: Mapping[str, Any]) -> bool:
    return args.get("max_norm") is not None


WRITERS: dict[Callable[..., Any], Callable[[Mapping[str, Any]], bool]] = {
    F.batch_norm: _trains, F.instance_norm: _trains, F.embedding: _renormalizes, F.embedding_bag: _renormalizes,
}  # fmt: skip
"""Functions that write without a name for it: bound arguments -> do they."""
BUILT_IN_WRITERS = {"batch_norm": 5, "instance_norm": 5}  # of torch: the position of the argument that says so


@functools.cache
def _torchs_own() -> frozenset[Any]:
    """The functions whose meaning is PyTorch's: ``torch``, ``torch.nn.functional``, ``torch.linalg``, ``torch.special``, ``torch.fft``."""
    built_in: Any = torch._C
    homes = (built_in._VariableFunctions, built_in._nn, F, torch.functional, torch.linalg, torch.special, torch.fft)
    found = [v for home in homes for n in dir(home) if not n.startswith("__") and callable(v := getattr(home, n))]
    return frozenset(v for v in found if not isinstance(v, type))


def _arguments(node: fx.Node) -> Mapping[str, Any]:
    """Arguments by name; of a function that has no signature only those that were given by name."""
    try:
        return inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return node.kwargs


def _function_writes(node: fx.Node) -> bool:
    target: Any = node.target
    if is_number(node) and all(map(is_number, node.all_input_nodes)):
        return False
    name = getattr(target, "__name__", "")
    if getattr(target, "__module__", "") == "_operator":
        return name in IN_PLACE
    if target is getattr:
        return False
    if target not in _torchs_own() or (name.endswith("_") and not name.endswith("__")) or node.kwargs.get("out") is not None:
        return True
    args = _arguments(node)
    if args.get("inplace", False) is not False:
        return True
    if target in WRITERS:
        return WRITERS[target](args)
    at = BUILT_IN_WRITERS.get(name)
    return at is not None and (len(node.args) <= at or node.args[at] is not False)


def _module_writes(node: fx.Node) -> bool:
    owner = node.graph.owning_module
    module = owner.get_submodule(str(node.target)) if owner is not None else None
    if module is None or not type(module).__module__.startswith("torch.nn.modules.") or module._forward_hooks or module._forward_pre_hooks:
        return True
    stateful = any(True for _ in module.buffers()) and module.training
    return stateful or any(getattr(m, "inplace", False) or getattr(m, "max_norm", None) is not None for m in module.modules())


def writes(node: fx.Node) -> bool:
    """The node may write to memory that it did not make."""
    if node.op == "call_module":
        return _module_writes(node)
    if node.op == "call_method":
        name = str(node.target)
        return tensor_of(node.args[0]) is None or name in METHODS or (name.endswith("_") and not name.endswith("__"))
    if node.op != "call_function":
        return False
    return mutates(node) if overload(node) is not None else _function_writes(node)


def draws(node: fx.Node) -> bool:
    """The node may draw random numbers."""
    if overload(node) is not None:
        return is_random(node)
    return node.op == "call_module" or (node.op.startswith("call") and (getattr(node.target, "__name__", None) or str(node.target)) in RANDOM)


def may_fail(node: fx.Node) -> bool:
    """The node may raise for some elements of its inputs, whatever their shapes: as ``schema.may_raise``, of torch's functions and methods too."""
    if overload(node) is not None or not node.op.startswith("call"):
        return may_raise(node)
    if is_number(node) and all(map(is_number, node.all_input_nodes)):
        return False  # guards hold what arithmetic on sizes needs
    name = getattr(node.target, "__name__", None) or str(node.target)
    inputs = [tensor_of(i) for i in node.all_input_nodes]
    if name == "getitem":
        return any(isinstance(i, torch.Tensor) for i in inputs[1:])
    if name in INTEGER_DIVISIONS:
        return not any(i is not None and i.is_floating_point() for i in inputs)
    return node.op == "call_module" or any(part in name for part in DATA_CHECKED)
