"""What running a node costs: floating point operations where a formula is known, elements touched elsewhere.

In: a node with its value. Out: numbers. Source of the formulas: ``torch.utils.flop_counter`` (a multiply and an add are two operations).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..core.schema import is_view, op_name, overload
from ..core.sizes import depends, hint

SAME_FORMULA = {"aten._scaled_dot_product_flash_attention_for_cpu": torch.ops.aten._scaled_dot_product_flash_attention}
"""Operators that torch has no formula for, and one of the same shapes that has one."""


def flops(node: fx.Node) -> int:
    """Of matrix products, convolutions and attention; 0 for everything else."""
    from torch.utils.flop_counter import flop_registry

    op = overload(node)
    formula = flop_registry.get(SAME_FORMULA.get(op_name(node), op.overloadpacket)) if op is not None else None
    if formula is None:
        return 0
    value: Any = lambda n: of_numbers(n.meta["val"])
    args, kwargs = fx.map_arg(node.args, value), fx.map_arg(node.kwargs, value)
    return int(formula(*args, **kwargs, out_val=of_numbers(node.meta["val"])))


def of_numbers(value: Any) -> Any:
    """``value`` with the sizes of the first call."""
    if isinstance(value, (tuple, list)):
        return tuple(map(of_numbers, value))
    if not isinstance(value, torch.Tensor):
        return hint(value)
    return torch.empty([hint(n) for n in value.shape], dtype=value.dtype, device="meta") if depends(value) else value


def element_ops(node: fx.Node) -> int:
    """Elements written, or read where that is more (a reduction); 0 for what touches none: views, inputs, results picked out of several."""
    if node.op != "call_function" or is_view(node) or op_name(node) == "getitem":
        return 0
    return max(_elements(node.meta["val"]), *(_elements(i.meta["val"]) for i in node.all_input_nodes), 0)


def _elements(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return hint(value.numel())
    return sum(map(_elements, value)) if isinstance(value, (tuple, list)) else 0


def price(node: fx.Node) -> int:
    """One number for both: what running the node once more costs, at least 1."""
    return max(flops(node), element_ops(node), 1)
