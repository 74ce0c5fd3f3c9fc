"""Nodes that hold graphs: an ``autograd.Function``, activation checkpointing, ``torch.cond`` and ``torch.while_loop``.

In: graphs that capture made of the Python functions which the program passed. Out: callables that stand as a node's target and compute what
the program's own call does, in eager (numbers, gradients, what is saved, when it is computed again) and under the tracer below autograd.
Always holds: a target takes tensors and gives a tensor or a tuple of them; ``graphs`` names what it holds, for those who print.
PyTorch's counterpart: ``torch/_ops.py`` (``HigherOrderOperator``) and ``torch/_higher_order_ops``, whose targets name graphs that are
attributes of the module; here a target carries its own, so that a graph stays one value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, checkpoint, noop_context_fn

from .errors import Unsupported


class HigherOrder:
    """A target with ``graphs``; FX asks of it what a function has."""

    def __init__(self, name: str, graphs: dict[str, fx.GraphModule]) -> None:
        self.__name__ = self.__qualname__ = name
        self.graphs = graphs

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Saved:
    """A tensor that the backward of a function needs: number ``index`` of its ``kind`` (argument, free, extra).

    ``checked``: the program gave it to ``save_for_backward``, so changing it before the backward is an error."""

    kind: str
    index: int
    checked: bool


class FunctionCall(HigherOrder):
    """``Function.apply``. Takes ``count`` arguments, then free tensors, to which no gradient flows.

    forward: (arguments or free, as ``takes`` names them) -> outputs, then extras; backward: (one gradient per output, saved) -> one gradient
    or None per argument; None where nothing is differentiated. ``constant``: outputs that are not differentiable; ``single``: not a tuple."""

    def __init__(
        self,
        name: str,
        forward: fx.GraphModule,
        backward: fx.GraphModule | None,
        *,
        count: int,
        takes: Sequence[int],
        outputs: int,
        single: bool,
        saved: Sequence[Saved] = (),
        constant: Sequence[int] = (),
        once: bool = False,
    ) -> None:
        super().__init__(name, {"forward": forward, **({"backward": backward} if backward is not None else {})})
        self.count, self.takes, self.outputs, self.single = count, tuple(takes), outputs, single
        self.saved, self.constant = tuple(saved), tuple(constant)
        self.function = _Once if once else _Function

    def __call__(self, *args: Tensor) -> Any:
        if "backward" in self.graphs:
            results = self.function.apply(self, args[self.count :], *args[: self.count])
        else:
            with torch.no_grad():
                results = self.graphs["forward"](*[args[i] for i in self.takes])[: self.outputs]
        return results[0] if self.single else tuple(results)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: FunctionCall, free: tuple[Tensor, ...], *args: Tensor) -> Any:
        tensors = (*args, *free)
        results = call.graphs["forward"](*[tensors[i] for i in call.takes])
        places = {"argument": args, "free": free, "output": results, "extra": results[call.outputs :]}
        ctx.call = call
        ctx.save_for_backward(*[places[s.kind][s.index] for s in call.saved if s.checked])
        ctx.kept = [places[s.kind][s.index] for s in call.saved if not s.checked]
        ctx.strides = [torch.empty_like(r, device="meta").stride() for r in results[: call.outputs]]  # what a gradient was captured with
        if call.constant:
            ctx.mark_non_differentiable(*[results[i] for i in call.constant])
        return tuple(results[: call.outputs])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _backward(ctx, *grads)


def _backward(ctx: Any, *grads: Tensor) -> Any:
    call: FunctionCall = ctx.call
    checked, kept = iter(ctx.saved_tensors), iter(ctx.kept)
    saved = [next(checked if s.checked else kept) for s in call.saved]
    laid_out = [
        g if g.stride() == stride else torch.empty_strided(g.shape, stride, dtype=g.dtype, device=g.device).copy_(g)
        for g, stride in zip(grads, ctx.strides, strict=True)
    ]
    return (None, None, *call.graphs["backward"](*laid_out, *saved))


class _Once(_Function):
    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))  # pyright: ignore[reportAssignmentType]


class CheckpointCall(HigherOrder):
    """``torch.utils.checkpoint.checkpoint``: in eager what torch does; under a tracer the body, whose nodes say so, for the partition decides."""

    def __init__(self, body: fx.GraphModule, options: dict[str, Any]) -> None:
        super().__init__("checkpoint", {"body": body})
        self.options = options

    def __call__(self, *args: Tensor) -> Any:
        body = self.graphs["body"]
        if not any(map(is_fake, args)):
            return checkpoint(body, *args, use_reentrant=False, **self.options)
        token = checkpointed.set(Region(self.options.get("context_fn")))
        try:
            return body(*args)
        finally:
            checkpointed.reset(token)


class Region:
    """A checkpointed body while it is traced. ``context_fn``: as for ``checkpoint``; of contexts, those of selective checkpointing are known.

    Raises ``Unsupported`` for other contexts: what they do around the body would be lost."""

    def __init__(self, context_fn: Callable[[], Any] | None) -> None:
        self.wish: Callable[..., Any] | None = None
        if context_fn is not None and context_fn is not noop_context_fn:
            self.wish = getattr(context_fn()[0], "policy_fn", None)
            if self.wish is None:
                why = "create_selective_checkpoint_contexts makes contexts whose meaning is known"
                raise Unsupported("a checkpoint with contexts of the program's own", reason="higher-order-operator", why=why)

    def policy(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> CheckpointPolicy:
        """What the program wants of a call of ``op``: PREFER_RECOMPUTE unless it selects."""
        if self.wish is None:
            return CheckpointPolicy.PREFER_RECOMPUTE
        about = SelectiveCheckpointContext(is_recompute=False, **({"op_output": out} if KNOWS_OUTPUT else {}))
        found = self.wish(about, op, *args, **kwargs)
        if isinstance(found, bool):
            return CheckpointPolicy.MUST_SAVE if found else CheckpointPolicy.PREFER_RECOMPUTE
        return found


checkpointed: ContextVar[Region | None] = ContextVar("checkpointed", default=None)
"""The innermost checkpointed body that is being traced."""

KNOWS_OUTPUT = "op_output" in inspect.signature(SelectiveCheckpointContext).parameters  # torch 2.11 has it not


class CondCall(HigherOrder):
    """``torch.cond``: the predicate, then tensors, of which ``takes`` says by branch which it is given."""

    def __init__(self, true: fx.GraphModule, false: fx.GraphModule, takes: dict[str, tuple[int, ...]]) -> None:
        super().__init__("cond", {"true": true, "false": false})
        self.takes = takes

    def __call__(self, *args: Tensor) -> Any:
        predicate, *tensors = args
        branch = "true" if _decide(predicate, "cond") else "false"
        return self.graphs[branch](*[tensors[i] for i in self.takes[branch]])


class WhileCall(HigherOrder):
    """``torch.while_loop``: ``carried`` tensors that change, then others, of which ``takes`` says by function which it is given besides."""

    def __init__(self, condition: fx.GraphModule, body: fx.GraphModule, carried: int, takes: dict[str, tuple[int, ...]]) -> None:
        super().__init__("while_loop", {"condition": condition, "body": body})
        self.carried, self.takes = carried, takes

    def __call__(self, *args: Tensor) -> Any:
        state, free = tuple(t.clone() for t in args[: self.carried]), args[self.carried :]
        besides = {name: [free[i] for i in indices] for name, indices in self.takes.items()}
        while _decide(self.graphs["condition"](*state, *besides["condition"])[0], "while_loop"):
            state = tuple(self.graphs["body"](*state, *besides["body"]))
        return state


def _decide(predicate: Tensor, name: str) -> bool:
    if is_fake(predicate):
        why = "below the captured graph there is one program for all values"
        raise Unsupported(f"torch.{name} decides by a tensor's value", reason="higher-order-operator", why=why)
    return bool(predicate)


def is_fake(value: Tensor) -> bool:
    """Is this a trace, and no run?"""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)
