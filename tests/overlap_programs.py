"""Random programs over inputs on one piece of memory, and what a caller sees of one call: outputs, inputs, aliases, history.

A program is text: statements that write to inputs or to views of them, and read them. ``MAKERS`` are ways to lie on a row of twelve elements.
``seen`` makes one call and looks: a program is right where this is equal to what eager gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

NAMES = "xyz"
SIZE = 12

MAKERS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda m: m,
    "first half": lambda m: m[:6],
    "middle": lambda m: m[3:9],
    "second half": lambda m: m[6:],
    "even": lambda m: m[::2],
    "odd": lambda m: m[1::2],
    "third": lambda m: m[2::3],
    "matrix": lambda m: m.view(3, 4),
    "turned": lambda m: m.view(3, 4).t(),
    "rows": lambda m: m.view(3, 4)[1:],
    "column": lambda m: m.view(3, 4)[:, 1],
    "columns": lambda m: m.view(3, 4)[:, 1:3],
    "one row": lambda m: m[4:8].view(1, 4),
    "repeated": lambda m: m[3:5].expand(3, 2),
    "repeated column": lambda m: m.view(3, 4)[:, 2:3].expand(3, 2),
    "other whole": lambda m: m.view(4, 3),
}

STATEMENTS = (
    "{a}.add_(1)",
    "{a}.mul_(1.5)",
    "{a}.sin_()",
    "{a}[0].sub_(2)",
    "{a}[..., 1:].neg_()",
    "{a}.t()[0].mul_(3)",
    "{a}.unsqueeze(0).add_(0.5)",
    "{a}.add_({b}.sum())",
    "{a}.mul_(w)",
    "{a}[-1].add_(w * {b}.mean())",
    "{a}.copy_({b}.flatten()[0])",
    "{a}.clamp_(-3, 3)",
    "s = s + {a}.sum() * w",
    "s = s * {a}.mean()",
    "r = {a} * w",
    "r = r + {a}.amax()",
    "v = {a}[0]",
    "v.add_(1)",
    "s = s + v.sum()",
)

OUTPUTS = ("s", "r", "{a}", "{a}[0]", "{a}.t()", "{a}.detach()", "v", "{a}.flatten()", "{a}.view(-1)[:1]", "3")


def program_text(r: random.Random, count: int) -> str:
    """A function of ``count`` inputs and ``w``, a scalar."""
    names = NAMES[:count]
    pick = lambda text: text.format(a=r.choice(names), b=r.choice(names))
    body = ["s, r, v = w * 2, w * 3, w.clone()", *(pick(r.choice(STATEMENTS)) for _ in range(r.randint(1, 6)))]
    outputs = ", ".join(pick(r.choice(OUTPUTS)) for _ in range(r.randint(1, 3)))
    return f"def program({', '.join(names)}, w):\n" + "".join(f"    {line}\n" for line in body) + f"    return ({outputs},)\n"


def function_of(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, "<overlap>", "exec"), space)
    return space["program"]


def inputs_of(makers: Sequence[str], history: str) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    """(a leaf, the memory, the inputs on it, ``w``). history: "none", "w" (``w`` requires grad), "all" (the memory is no leaf)."""
    leaf = torch.linspace(-1, 2, SIZE).requires_grad_(history == "all")
    memory = leaf * 1 if history == "all" else leaf.clone()
    return leaf, memory, [MAKERS[m](memory) for m in makers], torch.tensor(0.75).requires_grad_(history != "none")


def seen(program: Callable[..., Any], makers: Sequence[str], history: str) -> dict[str, Any]:
    """What one call does, in order: raises, gives, leaves in memory; then what a change of each output changes, or what the gradients are."""
    leaf, memory, inputs, w = inputs_of(makers, history)
    before = [t._version for t in inputs]
    try:
        outputs = program(*inputs, w)
    except RuntimeError as error:
        return {"raises": str(error).splitlines()[0][:60], "memory": memory.detach().clone()}
    found: dict[str, Any] = {"memory": memory.detach().clone(), "written": [t._version > v for t, v in zip(inputs, before, strict=True)]}
    found["outputs"] = [o.detach().clone() if isinstance(o, Tensor) else o for o in outputs]
    found["facts"] = [_facts(o, memory) for o in outputs] + [_facts(t, memory) for t in inputs]
    found["objects"] = [[o is t for t in (*inputs, *outputs)] for o in outputs]
    if history != "none":
        found |= _gradients([*outputs, *inputs, memory], leaf, w)
    for i, o in enumerate(outputs):
        if isinstance(o, Tensor):
            with torch.no_grad():
                try:
                    o.add_(1)
                except RuntimeError:
                    found[f"output {i} cannot be changed"] = True
            found[f"output {i} changed"] = memory.detach().clone(), [p.detach().clone() for p in outputs if isinstance(p, Tensor)]
    return found


def _facts(value: Any, memory: Tensor) -> Any:
    """Layout, history and place of a tensor; the place only where it is on ``memory``."""
    if not isinstance(value, Tensor):
        return value
    on = value.untyped_storage()._cdata == memory.untyped_storage()._cdata
    return value.shape, value.stride() if value.numel() > 1 else (), value.dtype, value.requires_grad, value.is_leaf, on and value.storage_offset()


def _gradients(values: Sequence[Any], leaf: Tensor, w: Tensor) -> dict[str, Any]:
    wanted = [v for v in (leaf, w) if v.requires_grad]
    try:
        total = sum((v * 1.25).sum() for v in values if isinstance(v, Tensor) and v.requires_grad)
        if not isinstance(total, Tensor):
            return {"gradients": "none"}
        return {"gradients": list(torch.autograd.grad(total, wanted, allow_unused=True))}
    except RuntimeError:
        return {"gradients": "raises"}


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two findings differ; a gradient that raises in eager may be computed."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return [] if a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) else [f"{path}: {a} and {b}"]
    if path.endswith("gradients") and isinstance(a, str) and a == "raises":
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        return [f"{path}: {list(a)} and {list(b)}"] if list(a) != list(b) else [d for k in a for d in differences(a[k], b[k], f"{path}.{k}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}.{i}")]
    return [] if a == b else [f"{path}: {a} and {b}"]
