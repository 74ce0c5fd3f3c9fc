"""Autograd around a partition: two functions of flat tensors become one call that trains.

In: a ``JointSpec``, and the forward and backward of a partition as callables (graphs run by aten, or built programs). Out: a
callable that takes the primals and returns the program's outputs.
Always holds: forward and backward run with grad mode and autocast off (what they meant is already in the graphs); inputs the
program overwrites are written back once the forward has read everything; what is kept goes through ``save_for_backward``, so
that changing it in place, running the backward twice and saved-tensor hooks do what they do in eager, and is freed while the backward
runs; a tangent reaches the backward dense and with the strides it was made for (where sizes are symbols, those of this call), zeros where there is
none; numbers that the backward reads are kept beside the tensors; gradients that nobody asked
for are None; inputs that take a value with a gradient, and outputs that are views, are made after and outside of the function that
autograd sees, by operators that it sees.
Per call there is no loop over a tree and nothing is looked up by name: what the spec decides is decided in ``bind``.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/runtime_wrappers.py``. Left out: double backward (raises when it is
reached), tensor subclasses, functorch transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ..aot.ir import GraphNumber, JointSpec, OutputSpec, ViewStep
from ..core.strides import contiguous_stride, is_dense

Flat = Callable[..., Sequence[Any]]

DOUBLE_BACKWARD = (
    "a compiled program was asked for the gradient of its gradient (create_graph=True), which its backward does not have. "
    "Call the function uncompiled where second derivatives are needed: wrap it in compiler_lab.disable."
)


def bind(spec: JointSpec, n_saved: int, forward: Flat, backward: Flat | None, tangents: Sequence[Tensor] = ()) -> Callable[..., tuple[Any, ...]]:
    """One callable out of ``forward`` (primals -> updates, outputs, saved) and ``backward`` (saved, tangents -> gradients).

    tangents: tensors (fake ones will do) with the shape, strides, dtype and device the backward expects of each tangent; without
    them a tangent is expected laid out as its output is, contiguous where the output's memory has gaps or overlaps.
    A ``backward`` with the mark ``_boxed_call`` takes one list, and empties it.
    The result takes ``spec.primals`` tensors (and numbers, where sizes are symbols) and returns one value per ``spec.outputs``.
    Where grad mode is off, or no input that has a gradient requires one, only the forward runs and nothing is kept; a program that
    is entered with grad mode off and switches it on inside (``spec.grad_enabled`` false, and yet a backward) is differentiated all the same.
    """
    infer = _inference(spec, forward)
    finish = _finisher(spec)
    if backward is None:
        call_forward = infer if finish is None else lambda *primals: finish(primals, infer(*primals))
        return torch.inference_mode()(call_forward) if spec.inference else call_forward
    apply = _function(spec, n_saved, forward, backward, tangents)
    # where autograd has a node and gives no gradient (a count of what is not zero), outputs require grad all the same
    differentiable = tuple(i for i, needed in enumerate(spec.needs_grad) if needed)
    differentiable = differentiable or tuple(i for i in range(spec.primals) if i not in spec.numbers)
    enabled = torch.is_grad_enabled if spec.grad_enabled else lambda: True

    def call(*primals: Any) -> tuple[Any, ...]:
        if enabled():
            for i in differentiable:
                if primals[i].requires_grad:
                    outputs = apply(*primals)
                    return outputs if finish is None else finish(primals, outputs)
        outputs = infer(*primals)
        return outputs if finish is None else finish(primals, outputs)

    return call if spec.grad_enabled else torch.enable_grad()(call)


# ------------------------------------------------------------------------------------------------------------ forward


def _aten_only(function: Flat) -> Flat:
    """``function`` with grad mode and autocast off: its operators must not be recorded or cast a second time."""
    grad_enabled, set_grad_enabled, autocast = torch.is_grad_enabled, torch._C._set_grad_enabled, torch._C._is_any_autocast_enabled

    def run(*args: Any) -> Sequence[Any]:
        if not grad_enabled() and not autocast():
            return function(*args)
        before = grad_enabled()
        set_grad_enabled(False)
        try:
            if not autocast():
                return function(*args)
            with torch._C._DisableAutocast():
                return function(*args)
        finally:
            set_grad_enabled(before)

    return run


def _with_write_back(spec: JointSpec, function: Flat) -> Flat:
    """``function``, and then the new values of the inputs that the program overwrites are copied into them."""
    mutations = tuple(enumerate(spec.mutations))
    if not mutations:
        return function

    def run(*primals: Any) -> Sequence[Any]:
        results = function(*primals)
        for place, primal in mutations:
            primals[primal].copy_(results[place])
        return results

    return run


def _inference(spec: JointSpec, forward: Flat) -> Callable[..., tuple[Any, ...]]:
    """The forward alone: primals -> one value per output (None where ``_finisher`` puts it together)."""
    run, first, last = _aten_only(_with_write_back(spec, forward)), len(spec.mutations), spec.forward_outputs
    memory: _Memory | None = UNSEEN

    def infer(*primals: Any) -> tuple[Any, ...]:
        nonlocal memory
        outputs = tuple(run(*primals)[first:last])
        if memory is UNSEEN and not torch.is_inference_mode_enabled():  # there nothing is a view
            memory = _memory(spec, outputs, ())
        return outputs if memory is None else tuple(memory.own(outputs))

    return infer


@dataclass(frozen=True)
class _Memory:
    """What is to be done so that the graph's results are to autograd what the program's own are; the same at every call.

    tensors: outputs that the compiled code gives as views of its own memory; a caller may detach them or change them in place all the same.
    views: outputs that the program's own function gave as views.
    kept: (saved value, output, size, stride, offset from the output's): values on an output's memory, kept as the output, whose version tells of
    changes in place, and made from it again in the backward. A value that refers to an output would keep it, and so itself, alive.
    """

    tensors: tuple[int, ...]
    views: tuple[int, ...]
    kept: tuple[tuple[int, int, Sequence[int], Sequence[int], int], ...]

    def own(self, outputs: Sequence[Any]) -> list[Any]:
        results = list(outputs)
        for i in self.tensors:
            results[i] = results[i].data
        for i in self.views:
            results[i] = results[i].view_as(results[i])
        return results

    def through_outputs(self, saved: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        result = list(saved)
        for j, i, *_ in self.kept:
            result[j] = outputs[i]
        return result

    def back(self, saved: Sequence[Any]) -> list[Any]:
        result = list(saved)
        for j, _, size, stride, offset in self.kept:
            result[j] = result[j].as_strided(size, stride, result[j].storage_offset() + offset)
        return result


UNSEEN = _Memory((), (), ())
"""Before the first call."""


def _memory(spec: JointSpec, outputs: Sequence[Any], saved: Sequence[Any]) -> _Memory | None:
    """None where there is nothing to do."""
    places = [(i, out.is_view) for i, out in enumerate(spec.outputs) if out.kind == "tensor"]
    tensors = tuple(i for i, view in places if not view and outputs[i]._is_view())
    views = tuple(i for i, view in places if view and not outputs[i]._is_view())
    storage: dict[int, int] = {outputs[i].untyped_storage()._cdata: i for i, view in places if not view}
    kept: list[tuple[int, int, Sequence[int], Sequence[int], int]] = []
    for j, value in enumerate(saved):
        i = storage.get(value.untyped_storage()._cdata)
        if i is not None and (value is not outputs[i] or i in tensors):
            kept.append((j, i, tuple(value.shape), value.stride(), value.storage_offset() - outputs[i].storage_offset()))
    return _Memory(tensors, views, tuple(kept)) if tensors or views or kept else None


# -------------------------------------------------------------------------------------------------------------- outputs


def _input(out: OutputSpec, primals: Sequence[Any], results: Sequence[Any]) -> Any:
    return primals[out.base]


def _same(out: OutputSpec, primals: Sequence[Any], results: Sequence[Any]) -> Any:
    return results[out.base]


def _constant(out: OutputSpec, primals: Sequence[Any], results: Sequence[Any]) -> Any:
    return out.constant


MADE: dict[str, Callable[[OutputSpec, Sequence[Any], Sequence[Any]], Any]] = {"input": _input, "same": _same, "constant": _constant}
"""How an output that the graph does not return and that is no view is put together, given the primals and the outputs before it."""


def _finisher(spec: JointSpec) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]] | None:
    """Overwrites inputs where autograd sees it, makes the views, fills the places of outputs that are no graph outputs, leaves out the hidden
    ones; None where there is nothing to do."""
    if all(out.kind in ("tensor", "number") for out in spec.outputs) and not spec.hidden:
        return None
    rewrites, steps = spec.rewrites, tuple(_step(step, spec) for step in spec.views)
    views = tuple((i, out.base) for i, out in enumerate(spec.outputs) if out.kind == "view")
    places = tuple((i, out, MADE[out.kind]) for i, out in enumerate(spec.outputs) if out.kind in MADE)
    visible = spec.visible

    def finish(primals: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        for primal, place in rewrites:
            target = primals[primal]
            _ = target.grad_fn  # a view whose base has just been given a history is a leaf until it is asked
            target.copy_(outputs[place])
        results, made = list(outputs), list[Any]()
        for step in steps:
            made.append(step(primals, outputs, made))
        for i, step in views:
            results[i] = made[step]
        for i, out, make in places:
            results[i] = make(out, primals, results)
        return tuple(results[:visible])

    return finish


def _step(step: ViewStep, spec: JointSpec) -> Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Any]:
    """A view operator as a function of inputs, outputs and the views before it; in the caller's grad mode where the program kept to that."""
    (kind, index), op, args, kwargs = step.source, step.op, step.args, step.kwargs
    place = {"input": 0, "output": 1, "step": 2}[kind]
    run: Callable[..., Any] = lambda *given: op(given[place][index], *args, **kwargs)
    if _has_numbers((args, kwargs)):
        run = lambda *given: op(given[place][index], *_filled(args, given[1]), **_filled(kwargs, given[1]))
    return run if step.grad_enabled and spec.grad_enabled else torch.set_grad_enabled(step.grad_enabled)(run)


def _has_numbers(a: Any) -> bool:
    if isinstance(a, Mapping):
        return any(map(_has_numbers, cast("Mapping[str, Any]", a).values()))
    return any(map(_has_numbers, a)) if isinstance(a, (tuple, list)) else isinstance(a, GraphNumber)


def _filled(a: Any, outputs: Sequence[Any]) -> Any:
    """Arguments with the numbers that the graph has given in this call."""
    if isinstance(a, GraphNumber):
        return outputs[a.output]
    if isinstance(a, Mapping):
        return {k: _filled(v, outputs) for k, v in cast("Mapping[str, Any]", a).items()}
    return [_filled(v, outputs) for v in a] if isinstance(a, (tuple, list)) else a


# ------------------------------------------------------------------------------------------------------------- backward


def _function(spec: JointSpec, n_saved: int, forward: Flat, backward: Flat, tangents: Sequence[Tensor]) -> Callable[..., Any]:
    """``apply`` of a ``torch.autograd.Function`` made for this spec: primals -> outputs, differentiable."""
    run_forward, run_backward = _with_write_back(spec, forward), _aten_only(_freeing(backward, n_saved + len(spec.tangents)))
    first, last, needs = len(spec.mutations), spec.forward_outputs, spec.needs_grad
    tangent_outputs, symbolic = spec.tangents, spec.symbolic
    constant = tuple(i for i, out in enumerate(spec.outputs) if out.kind == "tensor" and i not in spec.tangents)
    expected = [] if spec.symbolic else [_Layout(t) for t in tangents]
    memory: _Memory | None = UNSEEN
    with_autocast_off = torch._C._DisableAutocast

    class CompiledFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *primals: Any) -> Any:
            if torch._C._is_any_autocast_enabled():
                with with_autocast_off():
                    results = run_forward(*primals)
            else:
                results = run_forward(*primals)
            nonlocal memory
            outputs, saved = results[first:last], results[last : last + n_saved]
            own, layouts = memory, expected
            if symbolic:
                ctx.numbers = [None if isinstance(s, Tensor) else s for s in saved]
                saved = [s for s in saved if isinstance(s, Tensor)]
                layouts = [_Layout(outputs[i]) for i in tangent_outputs]
            if own is UNSEEN:
                own = _memory(spec, outputs, saved)
                memory = memory if symbolic else own
            if own is not None:
                outputs = own.own(outputs)
                saved = own.through_outputs(saved, outputs)
            ctx.save_for_backward(*saved)
            ctx.set_materialize_grads(False)
            if constant:
                ctx.mark_non_differentiable(*[outputs[i] for i in constant])
            if symbolic:
                ctx.memory, ctx.layouts = own, layouts
            elif not layouts:  # the same at every call: the graph is made for fixed sizes
                layouts[:] = [_Layout(outputs[i]) for i in tangent_outputs]
            return tuple(outputs)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return differentiate(ctx, list(grads))

    def differentiate(ctx: Any, grads: list[Any]) -> Any:
        given = [grads[i] for i in tangent_outputs]
        grads.clear()
        if all(g is None for g in given):
            return (None,) * len(needs)
        own, layouts = (ctx.memory, ctx.layouts) if symbolic else (memory, expected)
        arguments = [*(ctx.saved_tensors if own is None else own.back(ctx.saved_tensors))]
        if symbolic:
            kept = iter(arguments)
            arguments = [next(kept) if n is None else n for n in ctx.numbers]
            del kept  # it holds the list, which holds the tensors
        arguments += [layout.of(g) for layout, g in zip(layouts, given, strict=True)]
        given.clear()
        ctx.maybe_clear_saved_tensors()  # but where the graph is retained
        gradients = run_backward(arguments)
        if ctx.needs_input_grad != needs:
            gradients = [g if needed else None for g, needed in zip(gradients, ctx.needs_input_grad, strict=True)]
        return tuple(gradients) if not torch.is_grad_enabled() else _refuse_to_go_on(gradients, ctx)

    # Function.apply first looks for functorch transforms; guards refuse such inputs before they get here
    return getattr(super(torch.autograd.Function, _boxed(CompiledFunction, differentiate)), "apply")  # noqa: B009 (not in torch's annotations)


def _boxed(function: Any, differentiate: Callable[[Any, list[Any]], Any]) -> Any:
    """``function`` for recording: the engine hands its nodes the tangents in a list that ``differentiate`` empties, not in a tuple that holds
    them until the backward returns.

    Whether it does is read off the class whose ``apply`` records (``boxed_grads_call``, of torch 2.13; where torch does not know it, the mark says
    nothing), and the list goes to the node's ``apply_boxed``. Compiled autograd asks the class that the node names as its own, and raises where it
    finds the mark, in the middle of exchanging what nodes hold for fake tensors, which then stay there. So the class with the mark records,
    and its nodes name the one without, whose ``backward`` takes the tangents one by one, as whoever calls a node by hand wants it, too.
    """
    recorded = type(function.__name__, (function,), {"boxed_grads_call": True})
    node = function._backward_cls
    node.apply_boxed = differentiate
    recorded._backward_cls = node  # pyright: ignore[reportAttributeAccessIssue]
    return recorded


def _freeing(function: Flat, count: int) -> Callable[[list[Any]], Sequence[Any]]:
    """``function`` of a list with its ``count`` arguments, which is empty when it begins: each argument dies with its last use there.

    A call with ``*arguments`` would hold the tuple to its end; a call that takes each from the list hands its references over, up to thirty
    of them. What the backends give is boxed, and takes them from the list by itself.
    """
    if getattr(function, "_boxed_call", False):
        return function
    names: dict[str, Any] = {"function": function}
    taken = ", ".join(["pop()"] * count)
    exec(f"def call(arguments):\n    arguments.reverse()\n    pop = arguments.pop\n    return function({taken})\n", names)
    return names["call"]


class _Layout:
    """What the backward expects of a tangent, and how to give it that."""

    __slots__ = ("device", "dtype", "size", "stride")

    def __init__(self, like: Tensor) -> None:
        self.size, self.dtype, self.device = tuple(like.shape), like.dtype, like.device
        self.stride = like.stride() if is_dense(self.size, like.stride()) else contiguous_stride(self.size)

    def of(self, grad: Tensor | None) -> Tensor:
        if grad is not None and grad.layout is torch.strided and grad.stride() == self.stride and not grad.is_neg() and not grad.is_conj():
            return grad
        with torch.no_grad():
            made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)
            return made.zero_() if grad is None else made.copy_(grad if grad.layout is torch.strided else grad.to_dense())


def _refuse_to_go_on(gradients: Sequence[Any], node: Any) -> tuple[Any, ...]:
    """The gradients, tied to an autograd node that raises: right as numbers, an error when differentiated, for any leaf behind ``node``."""
    tied = [i for i, g in enumerate(gradients) if g is not None]
    inputs = [*(gradients[i].detach().requires_grad_() for i in tied), *_leaves(node)]
    error = getattr(torch._C, "_functions").DelayedError(DOUBLE_BACKWARD, len(inputs))  # noqa: B009
    made = error(*inputs)
    results: list[Any] = list(gradients)
    for i, g in zip(tied, made if isinstance(made, tuple) else (made,), strict=False):
        results[i] = g
    return tuple(results)


def _leaves(node: Any) -> list[Tensor]:
    """The leaves that ``node`` leads to: autograd looks for a way to what it was asked for, and without one says that there is no gradient."""
    found, seen, stack = list[Tensor](), {node}, [node]
    while stack:
        for function, _ in stack.pop().next_functions:
            if function is not None and function not in seen:
                seen.add(function)
                stack.append(function)
                if (leaf := getattr(function, "variable", None)) is not None:
                    found.append(leaf)
    return found
