"""``torch.autograd.Function``: ``apply`` is one node; forward and backward are captured into graphs that its target holds.

In: the class and the arguments of ``apply``. Out: the outputs of a ``FunctionCall``. Always holds: the gradient is what the program's own
backward computes; it is captured at the call, on gradients laid out as the outputs are, and gets them so at run time.
PyTorch's counterpart: ``torch/_dynamo/variables/higher_order_ops.py`` (``AutogradFunctionApplyVariable``). Left out: ``mark_dirty``,
gradients that are not materialized, outputs that are lists, forward-mode derivatives, side effects.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx
from torch.autograd.function import BackwardCFunction

from ...core.higher_order import FunctionCall, Saved
from ...core.modes import no_autocast
from .base import NONE, Args, Constant, Kwargs, Raised, Value, is_none
from .classes import ClassValue
from .containers import SequenceValue
from .contexts import follow
from .higher_order import Subgraph
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer


class FunctionContext(Value):
    """``ctx``: what forward leaves for backward."""

    def __init__(self, cls: type[torch.autograd.Function], args: Args) -> None:
        self.cls, self.open = cls, True
        self.saved: list[Value] = []
        self.constant: list[Value] = []
        self.attributes: dict[str, Value] = {}
        self.needed = tuple(isinstance(a, TensorValue) and a.fake.requires_grad for a in args)
        self.METHODS = {"save_for_backward": _save, "save_for_forward": _nothing, "mark_non_differentiable": _mark, "set_materialize_grads": _materialize}

    def python_type(self) -> type[Any]:
        backward: type[BackwardCFunction] = getattr(self.cls, "_backward_cls")  # noqa: B009 - made by the metaclass
        return backward

    def get(self, t: Tracer, name: str) -> Value:
        if name == "needs_input_grad":
            return t.lift(self.needed)
        if name in ("saved_tensors", "saved_variables"):
            for value in self.saved:
                if isinstance(value, TensorValue):
                    t.node_of(value)  # unpacking checks them all
            return SequenceValue(list(self.saved), tuple)
        if name in self.attributes:
            return self.attributes[name]
        if name not in self.METHODS and not hasattr(self.python_type(), name):
            raise Raised(t.exception(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'"))
        return super().get(t, name)

    def set(self, t: Tracer, name: str, value: Value) -> None:
        if not self.open or hasattr(self.python_type(), name):
            raise t.refuse("higher-order", f"setting {name!r} of ctx in the backward")
        self.attributes[name] = value


def _save(t: Tracer, ctx: FunctionContext, args: Args, kwargs: Kwargs) -> Value:
    ctx.saved = list(args)
    return NONE


def _nothing(t: Tracer, ctx: FunctionContext, args: Args, kwargs: Kwargs) -> Value:
    return NONE


def _mark(t: Tracer, ctx: FunctionContext, args: Args, kwargs: Kwargs) -> Value:
    ctx.constant = list(args)
    return NONE


def _materialize(t: Tracer, ctx: FunctionContext, args: Args, kwargs: Kwargs) -> Value:
    if not t.constant(args[0]):
        raise t.refuse("autograd-api", "gradients that are not materialized")
    return NONE


@contextmanager
def without_grad(t: Tracer) -> Generator[None]:
    """Grad mode off, as torch has it off while forward and backward run: no nodes say so."""
    before = t.grad
    follow(t, False, t.inference)
    try:
        yield
    finally:
        follow(t, before, t.inference)


def apply(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``Function.apply``, with the class as the first argument."""
    cls, *given = args
    if not isinstance(cls, ClassValue):
        raise t.refuse("autograd-api", "apply of something that is not a class")
    real = cls.real
    style = real.setup_context is not torch.autograd.Function.setup_context
    if kwargs or getattr(real, "boxed_grads_call", False) or (style and len(inspect.signature(real.forward).parameters) != len(given)):
        raise t.refuse("autograd-api", f"{real.__name__}.apply with keywords or defaults")
    ctx = FunctionContext(real, given)
    with Subgraph(t) as forward, without_grad(t):
        result = cls.get(t, "forward").call(t, given if style else [ctx, *given], {})
        if style:
            cls.get(t, "setup_context").call(t, [ctx, SequenceValue(list(given), tuple), result], {})
    ctx.open = False
    single = not (isinstance(result, SequenceValue) and result.cls is tuple)
    shown = [result] if single else list(result.iterate(t))
    outputs = [v for v in shown if isinstance(v, TensorValue)]
    if not outputs or not all(isinstance(v, (TensorValue, Constant)) for v in shown):
        raise t.refuse("autograd-api", f"{real.__name__}.forward gives {result.describe()}")
    return _finish(t, _Parts(t, cls, ctx, given, forward, shown), single)


class _Parts:
    """What the node is made of: the graphs, and which tensor is which."""

    def __init__(self, t: Tracer, cls: ClassValue, ctx: FunctionContext, given: list[Value], forward: Subgraph, shown: list[Value]) -> None:
        self.t, self.cls, self.ctx, self.given, self.forward = t, cls, ctx, given, forward
        self.outputs = [v for v in shown if isinstance(v, TensorValue)]
        self.arguments = [a for a in given if isinstance(a, TensorValue)]
        self.shown = shown
        self.nodes: list[fx.Node | None] = []
        self.free: list[TensorValue] = []
        self.extras: list[TensorValue] = []

    def place(self, value: TensorValue) -> tuple[str, int]:
        """Where the run finds a value: among the arguments, the outputs, or in a list that it is added to."""
        outside = value.node.graph is not self.forward.graph
        kinds = (("argument", self.arguments), ("free", self.free)) if outside else (("output", self.outputs), ("extra", self.extras))
        for kind, values in kinds:
            for i, other in enumerate(values):
                if other is value:
                    return kind, i
        kind, values = kinds[-1]
        values.append(value)
        return kind, len(values) - 1

    def backward(self) -> Subgraph:
        """Its graph, and in ``nodes`` one gradient for each tensor argument, or None."""
        t, name = self.t, self.cls.real.__name__
        with Subgraph(t, self.forward, strict=True) as graph, without_grad(t), no_autocast():
            with t.mode:
                fakes = [torch.empty_like(v.fake, requires_grad=False) for v in self.outputs]
            grads = [graph.argument("grad", fake) for fake in fakes]
            own = self.cls.real.vjp is not torch.autograd.Function.vjp
            found = self.cls.get(t, "vjp" if own else "backward").call(t, [self.ctx, *self.for_all(grads)], {})
            results = list(found.iterate(t)) if isinstance(found, SequenceValue) and found.cls is tuple else [found]
            if len(results) != len(self.given) or not all(is_none(v) or isinstance(v, TensorValue) for v in results):
                raise t.refuse("autograd-api", f"{name}.backward gives {found.describe()} for {len(self.given)} inputs")
            if any(not is_none(v) and not isinstance(a, TensorValue) for v, a in zip(results, self.given, strict=True)):
                raise t.refuse("autograd-api", f"{name}.backward gives a gradient for what is no tensor")
            pairs = zip(results, self.given, strict=True)
            self.nodes = [t.node_of(v) if isinstance(v, TensorValue) else None for v, a in pairs if isinstance(a, TensorValue)]
        return graph

    def for_all(self, grads: list[TensorValue]) -> list[Value]:
        """What backward takes: one for each output of forward, None for those that are no tensors."""
        left = iter(grads)
        return [next(left) if isinstance(v, TensorValue) else NONE for v in self.shown]


def _finish(t: Tracer, parts: _Parts, single: bool) -> Value:
    real, checked = parts.cls.real, {id(v) for v in parts.ctx.saved}
    needed = t.grad and not t.inference and any(v.fake.requires_grad for v in parts.arguments)
    backward = None
    saved: list[Saved] = []
    if needed:
        graph = parts.backward()
        saved = [Saved(*parts.place(v), id(v) in checked) for v in graph.values()]
        backward = graph.module(parts.nodes)
    with parts.forward:
        nodes = [t.node_of(v) for v in (*parts.outputs, *parts.extras)]
    kinds = [parts.place(v) for v in parts.forward.values()]
    takes = [i if kind == "argument" else len(parts.arguments) + i for kind, i in kinds]
    call = FunctionCall(
        real.__name__,
        parts.forward.module(nodes),
        backward,
        count=len(parts.arguments),
        takes=takes,
        outputs=len(parts.outputs),
        single=single,
        saved=saved,
        constant=[i for i, v in enumerate(parts.outputs) if any(v is c for c in parts.ctx.constant)],
        once=_is_once(real.backward),
    )
    out = t.op(call, [*parts.arguments, *parts.free])
    if single:
        return out
    made = out.iterate(t)
    return SequenceValue([next(made) if isinstance(v, TensorValue) else v for v in parts.shown], tuple)


def _is_once(backward: Any) -> bool:
    """Made by ``once_differentiable``."""
    code = getattr(backward, "__code__", None)
    return code is not None and code.co_filename == torch.autograd.function.__file__ and hasattr(backward, "__wrapped__")
