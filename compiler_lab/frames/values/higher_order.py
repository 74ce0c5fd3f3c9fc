"""Functions of the program that become graphs inside the graph: what a subgraph may use, and the calls that make one.

In: ``torch.utils.checkpoint.checkpoint``, ``torch.cond``, ``torch.while_loop`` with Python functions. Out: one node whose target holds the
graphs (``core/higher_order.py``). Always holds: a tensor from outside becomes an input of the subgraph when it is used there; nothing
outside is changed by what a subgraph does, unless the call runs it once, here and now.
PyTorch's counterpart: ``torch/_dynamo/variables/higher_order_ops.py``. Left out: in-place changes of tensors from outside.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ...core.higher_order import CheckpointCall, CondCall, WhileCall
from .base import NONE, Args, Constant, Kwargs, Lazy, NotConstant, Value, is_none
from .containers import SequenceValue
from .functions import Cell, PartialValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..tracer import Tracer


class Subgraph:
    """A graph inside ``t.graph``, while it is made: ``with`` it, nodes go there. ``lifted``: the values from outside that it takes, in order.

    ``beside``: finished graphs whose values may be used, too. ``strict``: it may run often, never, or later, so that it must not change
    what is there already, which is ``fixed``."""

    def __init__(self, t: Tracer, *beside: Subgraph, strict: bool = False) -> None:
        self.t, self.graph, self.outer = t, fx.Graph(), t.graph
        self.visible = (*beside, *t.subgraphs)
        self.lifted: dict[int, tuple[TensorValue, fx.Node]] = {}
        self.memory: set[int] = set()
        self.fixed = outside(t) if strict else {}

    def __enter__(self) -> Subgraph:
        self.t.subgraphs.append(self)
        self.t.graph = self.graph
        return self

    def __exit__(self, *error: object) -> None:
        self.t.subgraphs.pop()
        self.t.graph = self.outer

    def changing(self, thing: Any) -> None:
        """Raises where ``thing``, a value or cell that is about to change, was there before."""
        strict = [s for s in self.t.subgraphs if s.fixed]
        if any(id(thing) in s.fixed for s in strict) or (strict and getattr(thing, "source", None) is not None):
            raise self.t.refuse("higher-order", f"{thing.describe() if isinstance(thing, Value) else 'a variable'} is changed")

    def argument(self, name: str, fake: torch.Tensor) -> TensorValue:
        """An input that stands for no value from outside."""
        value = TensorValue(self._placeholder(name, fake), fake)
        self.t.by_fake[id(fake)] = value
        return value

    def lift(self, value: TensorValue) -> fx.Node:
        """The input that stands for a value from outside. Raises where the value belongs to a graph that is no part of this one's surroundings."""
        if id(value) not in self.lifted:
            if value.node.graph is not self.t.root and all(value.node.graph is not s.graph for s in self.visible):
                raise self.t.refuse("higher-order", f"{value.describe()}, which was made inside another function that became a graph, is used outside of it")
            self.lifted[id(value)] = (value, self._placeholder(value.node.name, value.fake))
            self.memory.add(value.fake.untyped_storage()._cdata)
        return self.lifted[id(value)][1]

    def _placeholder(self, name: str, fake: torch.Tensor) -> fx.Node:
        taken = {n.target for n in self.graph.nodes if n.op == "placeholder"}
        first = next((n for n in self.graph.nodes if n.op != "placeholder"), self.graph._root)
        with self.graph.inserting_before(first):
            node = self.graph.placeholder(next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken))
        node.meta.update(val=fake, stack=self.t.stack(), parents=())
        return node

    def values(self) -> list[TensorValue]:
        return [value for value, _ in self.lifted.values()]

    def module(self, outputs: list[Any]) -> fx.GraphModule:
        """The finished graph, which gives ``outputs`` (nodes, or None) as a tuple."""
        node = self.graph.output(tuple(outputs))
        node.meta.update(stack=self.t.stack(), parents=())
        return fx.GraphModule(torch.nn.Module(), self.graph)


def outside(t: Tracer) -> dict[int, Any]:
    """Everything that the frames can reach now, by id, kept alive so that the ids stay theirs."""
    found: dict[int, Any] = {}
    todo: list[Any] = [part for f in t.frames for part in (f.locals, f.stack, f.cells)]
    while todo:
        thing = todo.pop()
        if isinstance(thing, (list, tuple)):
            todo += thing
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, (Value, Lazy, Cell)) and id(thing) not in found:
            found[id(thing)] = thing
            todo += [v for k, v in vars(thing).items() if k not in ("t", "real", "METHODS")] if hasattr(thing, "__dict__") else []
    return found


def flat(t: Tracer, value: Value, into: list[TensorValue]) -> Any:
    """``value`` as a nest of lists, tuples, constants and tensors; the tensors, in order, go to ``into``."""
    if isinstance(value, TensorValue):
        into.append(value)
        return value
    if isinstance(value, SequenceValue) and value.cls in (list, tuple) and value.source is None:
        return value.cls(flat(t, v, into) for v in value.values())
    found = t.maybe_constant(value)
    if isinstance(found, NotConstant):
        raise t.refuse("higher-order", f"the function gives {value.describe()}, neither tensors nor plain data")
    return Constant(found)


def rebuilt(nest: Any, tensors: list[Value]) -> Value:
    """The nest with new tensors in the places of its own."""
    if isinstance(nest, (list, tuple)):
        return SequenceValue([rebuilt(part, tensors) for part in nest], type(nest))
    return tensors.pop(0) if isinstance(nest, TensorValue) else nest


def call_graph(t: Tracer, target: Any, args: list[Any], nest: Any) -> Value:
    """The node of a call that gives a tuple of tensors, as the nest that the program's function gave."""
    out = t.op(target, args)
    return rebuilt(nest, list(out.iterate(t)))


def _real(t: Tracer, value: Value) -> Any:
    """The object that a value stands for, a partial or a sequence of such objects built anew; None where there is none."""
    found = t.maybe_constant(value)
    if not isinstance(found, NotConstant):
        return found
    if isinstance(value, PartialValue):
        parts = [_real(t, v) for v in (value.function, *value.args, *value.kwargs.values())]
        function, args = parts[0], parts[1 : len(value.args) + 1]
        return None if None in parts else functools.partial(function, *args, **dict(zip(value.kwargs, parts[len(args) + 1 :], strict=True)))
    if isinstance(value, SequenceValue) and value.cls in (list, tuple):
        parts = [_real(t, v) for v in value.values()]
        return None if None in parts else value.cls(parts)
    return getattr(value, "real", None)


CHECKPOINT_OPTIONS = ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")


def checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``checkpoint(function, *args, use_reentrant=False)``."""
    given = dict(kwargs)
    reentrant = given.pop("use_reentrant", NONE)
    if is_none(reentrant) or t.constant(reentrant) is not False:
        raise t.refuse("autograd-api", "activation checkpointing without use_reentrant=False")
    options: dict[str, Any] = {}
    for name in CHECKPOINT_OPTIONS:
        if name in given:
            value = given.pop(name)
            options[name] = _real(t, value)
            if options[name] is None:
                raise t.refuse("higher-order", f"checkpoint with {name}={value.describe()}")
    tensors: list[TensorValue] = []
    with Subgraph(t, strict=True) as body:
        nest = flat(t, args[0].call(t, args[1:], given), tensors)
        module = body.module([t.node_of(v) for v in tensors])
    if not tensors:
        raise t.refuse("higher-order", "a checkpointed function that gives no tensor")
    return call_graph(t, CheckpointCall(module, options), body.values(), nest)


def cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``torch.cond(pred, true_fn, false_fn, operands)`` with a tensor as predicate."""
    predicate, true_fn, false_fn, *rest = _bound(t, ("pred", "true_fn", "false_fn", "operands"), args, kwargs)
    if not isinstance(predicate, TensorValue):
        raise t.refuse("higher-order", "torch.cond with a predicate that is no tensor")
    operands = list(rest[0].iterate(t)) if rest else []
    branches = [_branch(t, fn, operands, ()) for fn in (true_fn, false_fn)]
    (true, nest, outs), (false, other, others) = branches
    if _shape(nest) != _shape(other) or [_facts(v.fake) for v in outs] != [_facts(v.fake) for v in others]:
        raise t.refuse("higher-order", "the branches of torch.cond give results of different kinds")
    free = list({id(v): v for v in (*true.values(), *false.values())}.values())
    grad = t.grad and any(v.fake.requires_grad for v in free)
    if any(v.fake.requires_grad != (grad and v.fake.is_floating_point()) for v in (*outs, *others)):
        raise t.refuse("higher-order", "a branch of torch.cond gives a result that does not depend on the tensors that are differentiated")
    takes = {name: tuple(next(i for i, f in enumerate(free) if f is v) for v in graph.values()) for name, graph in (("true", true), ("false", false))}
    call = CondCall(true.module([v.node for v in outs]), false.module([v.node for v in others]), takes)
    return _called(t, call, [predicate, *free], nest, outs)


def while_loop(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``torch.while_loop(cond_fn, body_fn, carried_inputs)`` over tensors that are not differentiated."""
    cond_fn, body_fn, inputs = _bound(t, ("cond_fn", "body_fn", "carried_inputs"), args, kwargs)
    carried = [v for v in inputs.iterate(t) if isinstance(v, TensorValue)]
    if len(carried) != inputs.length(t) or (t.grad and any(v.fake.requires_grad for v in carried)):
        raise t.refuse("higher-order", "torch.while_loop over what is no tensor, or is differentiated")
    condition, _, (decided, *more) = _branch(t, cond_fn, [], carried)
    body, nest, outs = _branch(t, body_fn, [], carried)
    if more or decided.fake.dtype is not torch.bool or decided.fake.numel() != 1 or [_facts(v.fake) for v in outs] != [_facts(v.fake) for v in carried]:
        raise t.refuse("higher-order", "the functions of torch.while_loop do not give what goes in")
    free = list({id(v): v for v in (*condition.values(), *body.values())}.values())
    if t.grad and any(v.fake.requires_grad for v in free):
        raise t.refuse("higher-order", "torch.while_loop with tensors that are differentiated")
    parts = {"condition": condition, "body": body}
    takes = {name: tuple(next(i for i, f in enumerate(free) if f is v) for v in graph.values()) for name, graph in parts.items()}
    call = WhileCall(condition.module([decided.node]), body.module([v.node for v in outs]), len(carried), takes)
    return _called(t, call, [*carried, *free], nest, outs)


def _bound(t: Tracer, names: tuple[str, ...], args: Args, kwargs: Kwargs) -> list[Value]:
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if set(given) - set(names):
        raise t.refuse("bad-call", f"unexpected {', '.join(sorted(set(given) - set(names)))}")
    return [given[n] for n in names if n in given]


def _branch(t: Tracer, function: Value, operands: list[Value], carried: Sequence[TensorValue]) -> tuple[Subgraph, Any, list[TensorValue]]:
    """(graph, what the function gives as a nest, its tensors): fresh ones, made inside."""
    found: list[TensorValue] = []
    with Subgraph(t, strict=True) as graph:
        with t.mode, torch.no_grad():
            fakes = [torch.empty_like(v.fake) for v in carried]
        inputs = [graph.argument("carried", fake) for fake in fakes]
        nest = flat(t, function.call(t, [*operands, *inputs], {}), found)
    own = {f.untyped_storage()._cdata for f in fakes}
    memory = [v.fake.untyped_storage()._cdata for v in found]
    if any(v.node.graph is not graph.graph for v in found) or len(set(memory)) < len(memory) or any(m in graph.memory or m in own for m in memory):
        raise t.refuse("higher-order", f"{function.describe()} gives back what it was given, or one tensor twice")
    return graph, nest, found


def _facts(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.dtype, fake.device, tuple(fake.shape), fake.stride()


def _shape(nest: Any) -> Any:
    """A nest without its tensors, to be compared."""
    if isinstance(nest, (list, tuple)):
        return type(nest)(map(_shape, nest))
    return Ellipsis if isinstance(nest, TensorValue) else (type(nest.value), nest.value)


def _called(t: Tracer, target: Any, args: list[TensorValue], nest: Any, like: list[TensorValue]) -> Value:
    """The node of a call that cannot run on fakes, and results that are like those of a branch."""
    with t.mode:
        made = [torch.empty_strided(v.fake.shape, v.fake.stride(), dtype=v.fake.dtype, device=v.fake.device, requires_grad=v.fake.requires_grad) for v in like]
        fakes = tuple(f.clone() if f.requires_grad else f for f in made)
    node = t.node("call_function", target, args, {}, fakes)
    return rebuilt(nest, list(t.result(node, fakes).iterate(t)))
