"""Forward and backward in one graph: the torch-level graph is run once on fake tensors, below autograd, with autograd on.

In: a torch-level FX graph (``frames.CapturedGraph``, any ``GraphArtifact``, or a ``GraphModule``) and, if wanted, its arguments.
Out: a ``JointGraph`` of aten operators, state "joint": in-place operators and views stand as the program wrote them.
Always holds: every node has parents in the torch-level graph and the stack of the line it comes from, backward nodes those of the
forward line whose gradient they compute; the sum of two gradients belongs to the line that made the value they are gradients of.
How: autograd numbers its nodes as it makes them, so the numbers made while a torch-level node runs are that node's; in the
backward, the autograd node being evaluated is asked for its number.
Sizes that the graph has as symbols stay symbols: an input that is a number is a placeholder, a size that an operator is given is a node. What
the operators ask about them is a guard of the graph's ``ShapeEnv``, which capture makes guards of when the compile has ended.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/graph_capture.py`` and ``collect_metadata_analysis.py``. Left out: tensor subclasses,
programs partly in inference mode. Inputs that share memory, and of which one is written, stand for views
of one base in the trace (``bases.py``): whether inputs share memory is seen here, from those given, and checked by nobody when the graph runs:
that it is so at each call is for whoever calls it to see to (capture guards it); inputs of symbolic sizes may not. An input that the
program overwrites with what has a gradient (or that has one itself, and is no leaf) stands for a copy in the trace: what the copy is at the end
is an output, which the run copies into the input where autograd sees it. What each output is, is found in ``outputs.py``.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.artifact import Decision
from ..core.errors import Unsupported
from ..core.fakes import fake_mode, registration, without_kernel
from ..core.fx import GraphArtifact, target_name
from ..core.modes import enter_inference, exit_inference, no_autocast, no_autocast_cache, outside_inference
from ..core.provenance import Stack, own_location, stack_of
from ..core.sizes import SYMBOLIC, composed, depends, plain
from ..core.strides import is_dense
from .bases import BASE_REASONS, OPEN, Group, groups_of, lone
from .ir import JointGraph, JointSpec
from .outputs import OUTPUT_REASONS, Outputs, places_of, seen_through
from .tracer import Tracer, has_overlap, storage_of

REASONS = {
    "written-with-history": "the program writes to this input what has a gradient: the new value is an output, copied into the input under autograd",
    "written": "the program writes to this input, or to a view of it: the new value is returned and copied back",
    **BASE_REASONS,
    **OUTPUT_REASONS,
    "no-grad-mode": "grad mode is off: nothing is differentiated",
    "nothing-requires-grad": "no output requires grad",
    "unused": "the outputs do not depend on this input: it has no gradient",
}


def joint(graph: GraphArtifact | fx.GraphModule, *args: Any, grad_enabled: bool | None = None) -> JointGraph:
    """Traces ``graph`` and its gradient.

    args: one for each placeholder, a tensor (real or fake), or a number where the graph takes one; none: the placeholders' recorded values, which
    go before ``args`` where they have symbolic sizes; for a ``CapturedGraph``, fewer than
    all are the user's own arguments in order, the rest (parameters, globals) being taken as recorded.
    grad_enabled: the grad mode the graph is entered with; by default the present one.
    Arguments that share memory are taken to share it in this way at each call of what is made of the graph, which checks nothing.
    Raises ``Unsupported`` for what the module docstring leaves out and for what fails under fake tensors.
    """
    module = graph if isinstance(graph, fx.GraphModule) else graph.module
    stage = "frames" if isinstance(graph, fx.GraphModule) else graph.stage
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    values = _arguments(graph, placeholders, args)
    recorded = [n.meta.get("val") for n in placeholders]
    samples = [r if depends(r) else v for r, v in zip(recorded, values, strict=True)]
    grad_enabled = torch.is_grad_enabled() if grad_enabled is None else grad_enabled
    groups = tuple(replace(g, refused=g.refused or OPEN) if any(depends(samples[i]) for i in g.members) else g for g in groups_of(values))
    made: JointGraph | tuple[Group, ...] = ()
    while not isinstance(made, JointGraph):
        with outside_inference(), no_autocast_cache(), _recurrent_layers_open():
            torch._C._set_grad_enabled(grad_enabled)
            made = _Joint(module, stage, values, samples, grad_enabled, groups, made).attempt(values)
    return made


@contextmanager
def _recurrent_layers_open() -> Generator[None]:
    """Those of oneDNN look at grad mode when they run, which is off by then; without oneDNN a layer opens into operators that do not."""
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)  # pyright: ignore[reportAttributeAccessIssue]


def _arguments(graph: Any, placeholders: Sequence[fx.Node], args: Sequence[Any]) -> list[Any]:
    recorded = [n.meta.get("val") for n in placeholders]
    if len(args) == len(placeholders):
        return list(args)
    if not args:
        missing = [n.name for n, v in zip(placeholders, recorded, strict=True) if v is None]
        if missing:
            raise Unsupported(f"no value is recorded for {', '.join(missing)}", reason="missing-arguments", hint="pass one tensor for each placeholder")
        return recorded
    inputs = getattr(graph, "inputs", ())
    mine = [i for i, s in enumerate(inputs) if s.kind == "local" and s.base is None]
    if len(mine) != len(args):
        raise Unsupported(
            f"{len(args)} arguments for {len(placeholders)} placeholders", reason="missing-arguments", hint="pass one tensor for each placeholder"
        )
    for i, value in zip(mine, args, strict=True):
        recorded[i] = value
    return recorded


@dataclass(frozen=True)
class Primal:
    """An input under trace: its node in the torch-level graph, the tensor that the program sees, what that was at entry, and the leaf
    that gradients are of: the same tensor, but where the program writes to it what has a gradient. A number is all of it as it is."""

    node: fx.Node
    tensor: Any
    leaf: Any
    requires_grad: bool = False
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.tensor, Tensor)


def _fake_mode(values: Sequence[Any]) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor

    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None) or fake_mode()


class _Joint:
    """One trace: the tracer, the provenance of autograd nodes, and what is known of each input and output."""

    def __init__(
        self,
        module: fx.GraphModule,
        stage: str,
        values: Sequence[Any],
        samples: Sequence[Any],
        grad_enabled: bool,
        groups: tuple[Group, ...],
        based: tuple[Group, ...],
    ) -> None:
        self.module, self.stage, self.grad_enabled, self.groups, self.based = module, stage, grad_enabled, groups, based
        self.symbolic = any(map(depends, samples))
        self.alone = [lone(i, s) if isinstance(s, Tensor) else None for i, s in enumerate(samples)]  # and no sample, which would live on
        self.tracer = Tracer(_fake_mode(samples))
        self.decisions: list[Decision] = []
        self.current: fx.Node = next(iter(module.graph.nodes))
        self.starts: list[int] = []
        self.origins: list[fx.Node] = []
        self.tracer.origin = lambda: self.origin_of(self.current)
        self.inference = self.in_inference()
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.primals = [self.primal(i, *found) for i, found in enumerate(zip(nodes, values, samples, strict=True))]

    def origin_of(self, node: fx.Node) -> tuple[tuple[str, ...], Stack]:
        return (f"{self.stage}/{node.name}",), stack_of(node)

    def decide(self, kind: str, node: fx.Node, outcome: str, reason: str, **facts: Any) -> None:
        self.decisions.append(Decision(kind, (f"{self.stage}/{node.name}",), outcome, reason, facts))

    def unsupported(self, node: fx.Node, what: str, reason: str, why: str = "") -> Unsupported:
        return Unsupported(what, reason=reason, where=own_location(stack_of(node)), why=why)

    def in_inference(self) -> bool:
        """True for a program that is in inference mode from its first operation to its last. Raises ``Unsupported`` where a part of it is."""
        calls = [n for n in self.module.graph.nodes if n.op.startswith("call")]
        changes = [n for n in calls if n.target in (enter_inference, exit_inference)]
        if not changes:
            return False
        first, last = calls[0], calls[-1]
        outer = first.target is enter_inference and last.target is exit_inference and last.args == (first,)
        if not outer or not all(n.args[0] for n in changes if n.target is enter_inference):
            what, why = "a part of the program is in inference mode", "what it makes could not be told from other tensors"
            raise self.unsupported(changes[0], what, "inference-mode", why)
        return True

    # -- inputs -----------------------------------------------------------------------------------------------------------

    def primal(self, index: int, node: fx.Node, value: Any, sample: Any) -> Primal:
        """``sample``: the value that the trace takes, which may have symbolic sizes."""
        if isinstance(sample, torch.SymInt):
            self.current = node
            self.tracer.placeholder(f"primals_{index + 1}", sample)
            return Primal(node, sample, sample)
        if not isinstance(value, Tensor) or not isinstance(sample, Tensor):
            raise self.unsupported(node, f"input {node.name} is a {type(value).__name__}, not a tensor", "non-tensor-input")
        fake = sample if depends(sample) else self.tracer.fake_mode.from_tensor(sample, static_shapes=True)
        if fake.layout != torch.strided:
            raise self.unsupported(node, f"input {node.name} is sparse", "input-layout")
        tensor = self.tracer.snapshot(fake).requires_grad_(value.requires_grad)
        self.current = node
        self.tracer.placeholder(f"primals_{index + 1}", tensor)
        return Primal(node, tensor, tensor, value.requires_grad, tuple(fake.shape), tuple(fake.stride()))

    def tensors(self) -> Iterator[tuple[int, Primal]]:
        return ((i, p) for i, p in enumerate(self.primals) if p.is_tensor)

    def join(self, group: Group) -> Tensor:
        """The program gets views of one base for the inputs of ``group``; the base."""
        first, several = self.primals[group.members[0]].node, len(group.members) > 1
        names = tuple(self.primals[i].node.name for i in group.members)
        if group.refused:
            what = f"{' and '.join(names)} share memory and one of them is written to" if several else f"input {first.name} is written to with history"
            raise self.unsupported(first, what, "aliased-mutation" if several else "mutation-requires-grad", group.refused)
        self.enter(first)
        leaves = [self.primals[i].leaf for i in group.members]
        with self.tracer, torch.enable_grad():
            base, reason = group.base(leaves)
            tensors = group.views(base, leaves)
        self.tracer.written.pop(storage_of(base), None)
        self.decide("base", first, "made", reason, inputs=names)
        for i, tensor in zip(group.members, tensors, strict=True):
            self.tracer.views.pop(id(tensor), None)  # it stands for an input, which is no view of anything here
            self.primals[i] = replace(self.primals[i], tensor=tensor)
        return base

    def to_join(self, error: Unsupported, values: Sequence[Any]) -> tuple[Group, ...]:
        """The groups to trace with next, where ``error`` may come from inputs that are written to with history, or share memory."""
        if error.reason == "mutation-requires-grad":
            suspects = {i for i, p in self.tensors() if p.tensor.requires_grad != p.requires_grad}
        elif "a leaf Variable that requires grad is being used in an in-place operation" in error.why:
            suspects = {i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad and not v.is_leaf}
        elif error.reason in ("trace-failed", "backward-failed"):
            suspects = set[int]()
        else:
            return self.based
        groups = [g for g in self.groups if not g.refused]
        inside = {i for g in groups for i in g.members}
        known = {g.members[0] for g in self.based if len(g.members) == 1}
        alone = (self.alone[i] for i in sorted((suspects | known) - inside))
        return (*groups, *(g for g in alone if g is not None))

    def attempt(self, values: Sequence[Any]) -> JointGraph | tuple[Group, ...]:
        """The trace, or the groups to trace again with: the program writes to other inputs than was thought."""
        try:
            return self.trace()
        except Unsupported as error:
            groups = self.to_join(error, values)
            if set(groups) <= set(self.based):
                raise
            return groups

    # -- the trace --------------------------------------------------------------------------------------------------------

    def trace(self) -> JointGraph | tuple[Group, ...]:
        bases = [self.join(group) for group in self.based]
        histories = [base.grad_fn for base in bases]
        outputs = self.forward()
        output = self.current
        written = self.written()
        lone_ones = (g for g in self.based if len(g.members) == 1)
        needed = tuple(g for g in (*self.groups, *lone_ones) if written & set(g.members))
        if set(needed) != set(self.based):
            return needed
        rewritten: frozenset[int] = frozenset()
        for group, base, before in zip(self.based, bases, histories, strict=True):
            if base.grad_fn is not before:
                self.check_kin(group)
                rewritten |= written & set(group.members)
        shared = self.shared(written)
        mutations = self.mutations(written, rewritten, shared)
        try:
            found = Outputs(self.tracer, [p.tensor for p in self.primals], outputs, places_of(output, len(outputs)), self.decide, self.unsupported)
        except RuntimeError as error:  # one of several views of a tensor, written to by an operator that has no gradient: eager hands it out all the same
            raise self.unsupported(output, "autograd does not tell the history of an output", "trace-failed", str(error)) from error
        rewrites = tuple((i, found.hide(self.primals[i].tensor)) for i in sorted(rewritten))
        specs, outputs = found.specs, found.values
        tangents = tuple(i for i, s in enumerate(specs) if s.kind == "tensor" and s.requires_grad)
        gradients = self.backward([outputs[i] for i in tangents], output) if tangents else [None] * len(self.primals)
        node = self.tracer.node
        returned = [node(self.primals[i].tensor) for i in mutations]
        returned += [
            node(o) if s.kind == "tensor" else self.tracer.numbers.node(o) if s.kind == "number" else None for o, s in zip(outputs, specs, strict=True)
        ]
        returned += [None if g is None else node(g) for g in gradients]
        self.current = output
        out = self.tracer.graph.output(tuple(returned))
        out.meta["parents"], out.meta["stack"] = self.origin_of(output)
        needs_grad = tuple(g is not None for g in gradients)
        if not tangents:
            self.decide("backward", output, "none", "nothing-requires-grad" if self.grad_enabled else "no-grad-mode")
        views, hidden = tuple(found.steps), found.hidden
        spec = JointSpec(len(self.primals), tuple(specs), mutations, needs_grad, tangents, self.grad_enabled, self.inference, views, hidden, rewrites, shared)
        spec = replace(spec, symbolic=self.symbolic, numbers=tuple(i for i, p in enumerate(self.primals) if not p.is_tensor))
        return JointGraph(self.tracer.module(), spec, "joint", tuple(self.decisions))

    def forward(self) -> list[Any]:
        """The program's outputs, flat; afterwards ``current`` is its output node."""
        try:
            with self.tracer, composed(self.symbolic):
                result = _Forward(self).run(*(p.tensor for p in self.primals))
        except (RuntimeError, ArithmeticError) as error:
            if isinstance(error, RuntimeError) and (op := without_kernel(error)) is not None:
                what, why = f"{op} does not say what shape its result has", "it has no fake kernel"
                raise Unsupported(what, reason="no-fake-kernel", where=own_location(stack_of(self.current)), why=why, hint=registration(op)) from error
            raise self.unsupported(self.current, f"{target_name(self.current)} does not run on fake tensors", "trace-failed", str(error)) from error
        return list(result) if isinstance(result, (tuple, list)) else [result]

    def enter(self, node: fx.Node) -> None:
        """From here on, what is recorded and the autograd nodes that are made belong to ``node``."""
        self.current = node
        self.starts.append(torch.autograd._get_sequence_nr())  # pyright: ignore[reportPrivateImportUsage]
        self.origins.append(node)

    def written(self) -> frozenset[int]:
        """The inputs that the program writes to themselves, and not only through memory that they share."""
        on: dict[Any, list[int]] = {}
        for i, p in self.tensors():
            on.setdefault(storage_of(p.tensor), []).append(i)
        found: set[int] = set()
        for storage, members in on.items():
            targets = self.tracer.written.get(storage, frozenset[int]())
            known = {id(self.primals[i].tensor): i for i in members}
            if targets and len(members) == 1:
                found.update(members)
            elif not targets <= known.keys():
                node, why = self.primals[members[0]].node, "the write goes through what is made by other than view operators"
                raise self.unsupported(node, f"input {node.name} or another on its memory is written to", "aliased-mutation", why)
            else:
                found.update(known[t] for t in targets)
        return frozenset(found)

    def check_kin(self, group: Group) -> None:
        if not group.kin:
            node, why = self.primals[group.members[0]].node, "autograd does not know these inputs as views of one tensor that may be written to"
            raise self.unsupported(node, f"memory that {node.name} shares is overwritten with what has a gradient", "aliased-mutation", why)

    def mutations(self, written: frozenset[int], rewritten: frozenset[int], shared: tuple[int, ...]) -> tuple[int, ...]:
        """The inputs whose new values the graph returns, of those ``written``; ``rewritten`` ones get them with their history."""
        followed = rewritten.union(*(g.members for g in self.based if rewritten & set(g.members)))
        for i, p in self.tensors():
            if plain((*p.tensor.shape, *p.tensor.stride())) != plain((*p.shape, *p.stride)):
                raise self.unsupported(p.node, f"the shape of input {p.node.name} is changed in place", "metadata-mutation")
            if p.tensor.requires_grad != p.requires_grad and i not in followed:
                raise self.unsupported(p.node, f"input {p.node.name} is overwritten with a value that requires grad", "mutation-requires-grad")
            if i in written and has_overlap(p.tensor):
                raise self.unsupported(p.node, f"input {p.node.name} is written to, and has elements on the same memory", "overlapping-input")
            moved = p.tensor is not p.leaf or (shared and (i in written or i in shared))
            if moved and seen_through(self.tracer, p.tensor):
                what = f"input {p.node.name}, whose memory is overwritten, is read by as_strided from wherever that memory begins"
                raise self.unsupported(p.node, what, "aliased-mutation" if shared else "mutation-requires-grad")
            if i in written:
                self.decide("mutation", p.node, "copied back", "written-with-history" if i in rewritten else "written")
        return tuple(sorted(written - rewritten))

    def shared(self, written: frozenset[int]) -> tuple[int, ...]:
        """The inputs that are not written to themselves, on memory of one that is."""
        memory = {storage_of(self.primals[i].leaf) for i in written}
        near = {i for g in self.groups if written & set(g.members) for i in g.members}
        return tuple(i for i, p in self.tensors() if i not in written and (i in near or storage_of(p.leaf) in memory))

    def backward(self, outputs: list[Tensor], output: fx.Node) -> list[Tensor | None]:
        """Gradients of ``outputs`` for each primal, None where it requires none or the outputs do not depend on it."""
        places = [self.tracer.node(o) for o in outputs]
        first = next(n for n in self.tracer.graph.nodes if n.op != "placeholder")
        tangents = [self.tangent(i, o, p, first) for i, (o, p) in enumerate(zip(outputs, places, strict=True), start=1)]
        wanted = [p.leaf for p in self.primals if p.requires_grad]
        owners = Owners(self)
        owners.watch(outputs)
        self.tracer.origin = owners.origin
        try:
            with self.tracer, composed(self.symbolic), torch.autograd.set_multithreading_enabled(False), no_autocast():
                found = iter(torch.autograd.grad(outputs, wanted, tangents, allow_unused=True))
        except (RuntimeError, ArithmeticError) as error:  # torch's shape functions divide by numbers of elements
            raise self.unsupported(output, "the gradient does not run on fake tensors", "backward-failed", str(error)) from error
        finally:
            owners.forget()
        gradients = [next(found) if p.requires_grad else None for p in self.primals]
        for p, g in zip(self.primals, gradients, strict=True):
            if p.requires_grad and g is None:
                self.decide("gradient", p.node, "none", "unused")
            if g is not None and g.layout != torch.strided:
                raise self.unsupported(p.node, f"the gradient of input {p.node.name} is sparse", "sparse-gradient")
        return gradients

    def tangent(self, number: int, output: Tensor, place: fx.Node, before: fx.Node) -> Tensor:
        """A gradient laid out as its output is; contiguous where the output's memory has gaps or overlaps."""
        layout = torch.preserve_format if is_dense(output.shape, output.stride()) else torch.contiguous_format
        with self.tracer.fake_mode:
            like = torch.empty_like(output, memory_format=layout, requires_grad=False)
        self.tracer.origin = lambda: (place.meta["parents"], place.meta["stack"])
        with self.tracer.graph.inserting_before(before):
            self.tracer.placeholder(f"tangents_{number}", like)
        return like


OF_SYMBOLS: dict[Any, Any] = {float: torch.sym_float, int: math.trunc, math.sqrt: getattr(torch, "_sym_sqrt")}  # noqa: B009 (not annotated)
"""Functions of numbers that would give one for the sizes at the first call -> those that give a symbol for a symbol, and a number for a number."""


class _Forward(fx.Interpreter):
    """Runs the torch-level graph; each node is announced before it runs."""

    def __init__(self, trace: _Joint) -> None:
        super().__init__(trace.module)
        self.trace, self.extra_traceback = trace, False

    def run_node(self, n: fx.Node) -> Any:
        self.trace.enter(n)
        if n.target in (enter_inference, exit_inference):
            torch._C._set_grad_enabled(False)  # all of the program is in inference mode: that of the keys is left to the run
            return None
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        target = OF_SYMBOLS.get(n.target, n.target) if n.op == "call_function" and args and isinstance(args[0], SYMBOLIC) else n.target
        result = getattr(self, n.op)(target, args, kwargs)
        if isinstance(result, SYMBOLIC):
            self.number(n, target, args, result)
        return result

    def number(self, n: fx.Node, target: Any, args: Sequence[Any], result: Any) -> None:
        """Arithmetic is recorded as the program wrote it; what is read from a tensor, as it is read."""
        numbers = self.trace.tracer.numbers
        if n.op == "call_function" and all(isinstance(a, (*SYMBOLIC, int, float)) for a in args):
            numbers.result(target, tuple(map(numbers.node, args)), result)
        else:
            numbers.node(result)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = self.fetch_attr(target)
        return self.trace.tracer.constant(value) if isinstance(value, Tensor) else value


class Owners:
    """Which torch-level node an autograd node belongs to, and which one the sum of two gradients belongs to.

    The engine adds gradients to a node's input in the order in which the node that has just run returned them, so the sums to
    come are known when it ends: one for each edge whose end has already been given a gradient.
    """

    def __init__(self, trace: _Joint) -> None:
        self.trace = trace
        self.of: dict[Any, fx.Node] = {}
        self.received: set[tuple[Any, int]] = set()
        self.sums: deque[fx.Node] = deque()
        self.done: Any = None
        self.handles: list[Any] = []
        self.primal = {id(p.leaf): p.node for p in trace.primals if p.is_tensor}

    def watch(self, outputs: Sequence[Tensor]) -> None:
        """Names the owner of every autograd node behind ``outputs`` and hooks its end; two outputs of one node are a sum, too."""
        stack: list[Any] = []
        for output in outputs:
            stack.append(output.grad_fn)
            self.received.add((output.grad_fn, output.output_nr))
        while stack:
            function = stack.pop()
            if function in self.of:
                continue
            self.of[function] = self.owner(function)
            self.handles.append(function.register_hook(partial(self.finished, function)))
            stack += [f for f, _ in function.next_functions if f is not None]

    def owner(self, function: Any) -> fx.Node:
        variable = getattr(function, "variable", None)
        if variable is not None and id(variable) in self.primal:
            return self.primal[id(variable)]
        at = bisect.bisect_right(self.trace.starts, function._sequence_nr()) - 1
        return self.trace.origins[max(at, 0)]

    def finished(self, function: Any, given: tuple[Any, ...], _: Any) -> None:
        self.sums.clear()
        for edge, gradient in zip(function.next_functions, given, strict=True):
            if edge[0] is None or gradient is None:
                continue
            if edge in self.received:
                self.sums.append(self.of[edge[0]])
            self.received.add(edge)
        self.done = function

    def origin(self) -> tuple[tuple[str, ...], Stack]:
        running = torch._C._current_autograd_node()
        if running is self.done and self.sums:
            return self.trace.origin_of(self.sums.popleft())
        return self.trace.origin_of(self.of.get(running, self.trace.current))

    def forget(self) -> None:
        """Unhooks: a hook is a reference from the autograd graph to this object, which refers to the graph."""
        for handle in self.handles:
            handle.remove()
        self.of.clear()
