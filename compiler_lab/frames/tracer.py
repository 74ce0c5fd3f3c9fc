"""The record of one capture: graph, inputs, guards and decisions, and the operations through which the interpreter fills it.

In: symbolic values and what the program does with them. Out: FX nodes on fake tensors, guards, placeholders.
Always holds: no tensor work of the user is executed (operations run on fake tensors under one ``FakeTensorMode``); real tensors are only
described; every node has its value, its line and the call stack that reached it; a guard is there for each fact that was looked at.
PyTorch's counterpart: ``torch/_dynamo/output_graph.py`` and ``torch/_dynamo/variables/builder.py``.
Sizes are constants, but for those that ``shapes`` makes symbols of.
"""

from __future__ import annotations

import operator
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx
from torch._C import _functorch as functorch  # type: ignore[attr-defined]

from ..core.artifact import Decision
from ..core.fakes import fake_mode, registration, without_kernel
from ..core.modes import autocast_state
from ..core.provenance import Stack
from . import places, raising
from .ir import Guard, Number, Recipe, Source
from .raising import name_of
from .reasons import CaptureUnsupported
from .shapes import Shapes
from .values.base import NONE, Args, Kwargs, NotConstant, Opaque, Raised, Unread, Value
from .values.containers import SequenceValue
from .values.functions import Cell, Scope
from .values.lift import lift, raised_from
from .values.objects import ExceptionValue
from .values.symbolic import SYMBOLIC, SymbolicValue, symbolic
from .values.tensor import TensorValue, memory_of, overlaps
from .values.wrap import wrap

if TYPE_CHECKING:
    from .interpreter import Frame
    from .values.functions import FunctionValue, GeneratorRun
    from .values.hashing import UserKey
    from .values.higher_order import Subgraph

MAX_DEPTH, MAX_STEPS = 80, 1_000_000
FLOAT_OPERANDS = frozenset("add sub mul truediv iadd isub imul itruediv add_ sub_ mul_ div div_ true_divide multiply subtract".split())  # any float will do
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Tracer:
    """State of one capture. ``inline`` is the interpreter's."""

    def __init__(self, shapes: Shapes | None = None) -> None:
        from torch._subclasses.fake_tensor import FakeTensor

        self.make_fake: Callable[..., Any] = FakeTensor
        self.mode = fake_mode(allow_non_fake_inputs=False, static_shapes=True)
        self.shapes = shapes or Shapes()
        self.dispatcher: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.graph = self.root = fx.Graph()
        self.subgraphs: list[Subgraph] = []  # graphs inside the graph that are being made, innermost last; ``graph`` is the last one's
        self.frames: list[Frame] = []
        self.steps = 0
        self.last: tuple[Stack, str] = ((), "")  # where the last exception was raised
        self.guards: dict[Any, Guard] = {}
        self.unread: list[Unread] = []  # constants that may be any of their type so far
        self.decisions: list[Decision] = []
        self.inputs: list[TensorValue | SymbolicValue] = []
        self.mutated: dict[int, TensorValue] = {}  # placeholders that a node changes, by id of the value
        self.memory: dict[int, int] = {}  # storage of an input's fake -> where the storage of the real one begins
        self.frozen: set[int] = set()  # memory that the program has reached through ``.data``
        self.by_real: dict[int, TensorValue] = {}
        self.by_fake: dict[int, TensorValue] = {}
        self.known: dict[int, Value] = {}  # existing objects that can be changed, by id: one value however often they are reached
        self.changed: dict[int, tuple[Value | Cell | Scope, Stack]] = {}  # by id of the value, in order of the first change
        self.changes = 0  # how often something that existed was changed
        self.cells: dict[int, Cell] = {}  # existing ones, by id
        self.classes: dict[type, dict[str, Value]] = {}  # class attributes that the frame has set
        self.scopes: dict[int, Scope] = {}
        self.grad, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()  # where the program is; see values/contexts.py
        self.generators: list[GeneratorRun] = []  # all of them; one that is left suspended may have more to do
        self.keys: dict[int, UserKey] | None = None  # inside a method that takes one key: it is hashed once
        self.once = False  # the graph draws random numbers, or does what cannot be seen: it cannot be tried and given up
        self.retried = False  # Python runs the frame again when the graph raises
        self.module = ""  # path of the ``nn.Module`` whose call is followed
        self.visited: dict[type[Any], Stack] = {}  # types of modules that a library put into a set, by identity: they are different ones
        self.trusted: dict[tuple[int, str], tuple[Any, str, Any]] = {}  # what libraries define, by (id of class or module, name): no guard, see ``trust``
        self.process = ""  # what was computed that may be another thing in another process
        self.warned: list[Recipe] = []  # what is shown before the graph runs
        self.exceptions: list[Value] = []  # what ``raise`` without argument raises again, innermost last
        if self.shapes.history.scalars or self.shapes.history.data_sizes:
            self._symbols_on()
        self.guard("global_state", None, None, why="grad mode, default dtype and determinism decide what operations do")

    def scope(self, function: types.FunctionType, source: Source) -> Scope:
        """The globals of an existing function, the same object for all functions of one module."""
        names = function.__globals__
        module = sys.modules.get(str(names.get("__name__")))
        return self._scope(names, Source("constant", module) if getattr(module, "__dict__", None) is names else Source("attr", "__globals__", source))

    def _scope(self, names: dict[str, Any], base: Source) -> Scope:
        if id(names) not in self.scopes:
            builtins: Any = names.get("__builtins__", {})
            self.scopes[id(names)] = Scope(self, names, base, builtins if isinstance(builtins, dict) else vars(builtins))
        return self.scopes[id(names)]

    def top_scope(self, names: dict[str, Any], builtins: dict[str, Any]) -> Scope:
        self.scopes[id(names)] = Scope(self, names, None, builtins)
        return self.scopes[id(names)]

    def module_scope(self, module: types.ModuleType) -> Scope:
        """The attributes of a module, which are the globals of its functions."""
        return self._scope(module.__dict__, Source("constant", module))

    def exception(self, cls: type[BaseException], *args: Any) -> ExceptionValue:
        """An exception that an operation of the program raises; it is left at the line that asks for it."""
        self.last = (self.stack(), self.frames[-1].instruction() if self.frames else "")
        return ExceptionValue(cls, [a if isinstance(a, Value) else NONE if isinstance(a, NotConstant) else self.lift(a) for a in args])

    def inline(self, function: FunctionValue, args: Args, kwargs: Kwargs) -> Value:
        raise NotImplementedError

    # where we are

    def stack(self) -> Stack:
        return self.frames[-1].call_stack() if self.frames else ()

    def modes(self) -> tuple[Any, ...]:
        """Grad mode, inference mode and autocast, where the program is."""
        return self.grad, self.inference, autocast_state()

    def in_library(self) -> bool:
        """The code that runs is a library's, which nobody patches while a program runs, unlike the names that the user's code reads from it."""
        return not self.frames or self.frames[-1].scope.library

    def note_guards(self) -> None:
        """What ``ShapeEnv`` was asked since the last time, this line asked."""
        if self.shapes.env is not None:
            self.shapes.note(self.stack())

    def refuse(self, reason: str, detail: str = "") -> CaptureUnsupported:
        return CaptureUnsupported(reason, detail, self.stack(), self.frames[-1].instruction() if self.frames else "")

    def decide(self, kind: str, subject: tuple[str, ...], outcome: str, reason: str, **facts: Any) -> None:
        self.decisions.append(Decision(kind, subject, outcome, reason, facts))

    # what was looked at

    def guard(self, kind: str, source: Source | None, expected: Any, why: str = "") -> None:
        """Assume a fact about what existed before the frame; a value made inside (no source) needs none."""
        if source is None and kind != "global_state":
            return
        key = (kind, source, expected if kind in ("no_attr", "no_key", "has_key", "absent", "aliased", "not_aliased", "place") else None)
        if key not in self.guards:
            self.guards[key] = Guard(kind, source, expected, self.stack(), why)

    def trust(self, owner: Any, name: str, real: Any) -> None:
        """``owner``, a library's class or module, defines ``name``, or does not (``sources.ABSENT``): fixed while the process runs. Another
        process compares (``portable``)."""
        self.trusted[id(owner), name] = (owner, name, real)

    def forget(self, source: Source) -> None:
        """Takes back the guards on what is at ``source`` itself: nothing depends on it."""
        for key in [k for k in self.guards if k[1] == source]:
            del self.guards[key]
        self.unread = [v for v in self.unread if v.source != source]

    def wrap(self, real: Any, source: Source | None) -> Value:
        known = self.known.get(id(real))
        if known is None:
            value = wrap(self, real, source)
            if value.CHANGES and getattr(value, "real", None) is real:
                self.known[id(real)] = value
            return value
        if source is not None and source != known.source:
            if known.source is None:
                wrap(self, real, source)  # for its guards
                self.guard("id", source, None, why="the same object was reached before")
            else:
                self.guard("aliased", source, known.source, why="the same object was reached before")
        return known

    def change(self, value: Value | Cell | Scope) -> None:
        """Something that existed before the frame is changed: the effect is made after the graph has run."""
        if self.subgraphs:
            self.subgraphs[-1].changing(value)
        self.changes += 1
        if id(value) not in self.changed:
            self.changed[id(value)] = (value, self.stack())

    def lift(self, value: Any) -> Value:
        return lift(self, value)

    # constants

    def constant(self, value: Value) -> Any:
        """The plain Python value, which must be known; what depends on sizes is settled."""
        found = self.maybe_constant(value, settle=True)
        if isinstance(found, NotConstant):
            numpy = isinstance(value, Opaque) and type(value.real).__module__ == "numpy"
            raise self.refuse(
                "tensor-to-python" if isinstance(value, TensorValue) else "numpy" if numpy else "unknown-value", f"a constant is needed, not {value.describe()}"
            )
        return found

    def maybe_constant(self, value: Value, *, settle: bool = False) -> Any:
        """The plain Python value, or a ``NotConstant``; ``settle`` what depends on sizes."""

        def leaf(part: Value) -> Any:
            if isinstance(part, SymbolicValue) and (known := part.settle(self) if settle else part.constant(self)) is not None:
                return known.value
            raise NotConstant

        try:
            return value.plain(leaf)
        except NotConstant as error:
            return error

    def is_constant(self, *values: Value) -> bool:
        return not any(isinstance(self.maybe_constant(v), NotConstant) for v in values)

    def constant_items(self, value: Any) -> Iterable[Any]:
        try:
            return list(value)
        except TypeError as error:
            raise Raised(raised_from(self, error)) from error

    def fold(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Value:
        """Run a pure function on plain values now; what it raises, the program raises."""
        if function is hash or any(issubclass(type(a), (set, frozenset)) for a in args):
            self.process = "a hash, or the order of a set"
        try:
            result = function(*args, **(kwargs or {}))
        except (CaptureUnsupported, Raised):
            raise
        except Exception as error:
            raise Raised(raised_from(self, error)) from error
        return self.lift(result)

    # inputs

    def placeholder(self, real: torch.Tensor, source: Source) -> TensorValue:
        """The graph input for a real tensor; the same object is one input however often it is reached."""
        known = self.by_real.get(id(real))
        if known is not None:
            if known.source != source:
                self.guard("aliased", source, known.source, why="the same tensor was reached before")
            return known
        self._check_input(real)
        which = self.shapes.dimensions(real, source)
        if any(map(any, which)):
            fake, sizes, strides = self._symbolic_input(real, source, which)
        else:
            fake, sizes, strides = self._fake_input(real), tuple(real.shape), real.stride()
        self.guard("tensor", source, tensor_facts(real, sizes, strides), why="operations were chosen for this kind of tensor")
        node = self._placeholder_node(fake, source)
        value = TensorValue(node, fake, source, real)
        self.inputs.append(value)
        self.by_real[id(real)] = self.by_fake[id(fake)] = value
        if start := real.untyped_storage().data_ptr():
            self.memory[fake.untyped_storage()._cdata] = start
        return value

    def _placeholder_node(self, val: Any, source: Source) -> fx.Node:
        name = re.sub(r"[^0-9A-Za-z]+", "_", source.text())
        with self.root.inserting_after(self.inputs[-1].first) if self.inputs else self.root.inserting_before(_first(self.root)):
            node = self.root.placeholder(name[0].lower() + name[1:])
        node.meta.update(val=val, stack=self.stack(), parents=(), module=source.module if re.search(r"\._(parameters|buffers)\[", source.text()) else "")
        return node

    def integer(self, real: int, source: Source) -> Value:
        """An int from outside that varies: an input of the graph."""
        self.guard("type", source, "int", why="it is computed with as an int")
        sym = self.shapes.symbol(real, Number("", source, "value"), self.stack(), positive=False)
        self._symbols_on()
        node = self._placeholder_node(sym, source)
        value = SymbolicValue(sym, lambda t: node, source)
        value.first = node
        self.inputs.append(value)
        return value

    def element(self, tensor: TensorValue) -> Value:
        """The integer that a tensor of one element holds, for an operator that takes a number: read by the graph, never seen by Python."""
        sym = self.shapes.make_env().create_unbacked_symint()
        self._symbols_on()
        node = self.append("call_method", "item", (self.node_of(tensor),), sym)
        return symbolic(self, sym, lambda t: node)

    def _symbols_on(self) -> None:
        """Operations on fakes ask this capture's ``ShapeEnv`` from here on."""
        if self.mode.shape_env is None:
            from torch._dispatch.python import enable_python_dispatcher

            self.mode.shape_env, self.mode.static_shapes = self.shapes.make_env(), False
            self.dispatcher = enable_python_dispatcher  # operators that C++ composes for plain sizes only are composed in Python

    def _symbolic_input(self, real: torch.Tensor, source: Source, which: Any) -> tuple[torch.Tensor, tuple[Any, ...], tuple[Any, ...]]:
        """A fake whose sizes depend on the call, and the sizes and strides that a guard compares, None for those that are open."""
        sizes, strides = self.shapes.layout(real, source, which, self.stack())
        self._symbols_on()

        def make(requires_grad: bool) -> torch.Tensor:
            meta = torch.empty_strided(sizes, strides, dtype=real.dtype, device="meta", requires_grad=requires_grad)
            return self.make_fake(self.mode, meta, real.device)

        fake = make(real.requires_grad) if real.is_leaf else computed(make)
        if isinstance(real, torch.nn.Parameter):
            fake._is_param = True  # type: ignore[attr-defined]
        opened = [tuple(n if isinstance(n, int) else None for n in numbers) for numbers in (sizes, strides)]
        return fake, opened[0], opened[1]

    def _fake_input(self, real: torch.Tensor) -> torch.Tensor:
        """A fake of the same kind. A plain leaf is made directly, which is ten times cheaper; what views and autograd add is torch's to copy."""
        if not real.is_leaf or real._is_view() or real.storage_offset():
            return self.mode.from_tensor(real, static_shapes=True)
        meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta", requires_grad=real.requires_grad)
        fake = self.make_fake(self.mode, meta, real.device)
        if isinstance(real, torch.nn.Parameter):
            fake._is_param = True
        return fake

    def _check_input(self, real: torch.Tensor) -> None:
        if type(real) not in PLAIN_TENSORS:
            raise self.refuse("tensor-subclass", type(real).__qualname__)
        odd = real.layout != torch.strided or real.is_quantized or real.is_nested or real.is_conj() or real.is_neg()
        if odd or functorch.is_functorch_wrapped_tensor(real):
            raise self.refuse("tensor-layout", str(real.layout))
        if real.is_inference() and not self.inference:
            raise self.refuse("mode", "a tensor made under inference_mode reaches a program that is not in it")
        try:
            _ = real.grad_fn  # made anew where the base of a view was changed, which may be forbidden
        except RuntimeError as error:
            raise self.refuse("autograd-api", f"a view that autograd refuses: {error}") from error

    # operations

    def op(self, target: Callable[..., Any] | str, args: Args, kwargs: Kwargs | None = None, changes: Sequence[Value] = ()) -> Value:
        """Run ``target`` (a function, or the name of a method of args[0]) on fakes and record it as a node.

        ``changes``: inputs that the operation changes without saying so in its schema.
        """
        kwargs = kwargs or {}
        if raising.looks_at_data(self, name_of(target), [*args, *kwargs.values()]):
            raising.check(self, name_of(target))
        leaf = self._fake_or_float if name_of(target) in FLOAT_OPERANDS else self._fake
        fakes = [a.plain(leaf) for a in args]
        fake_kwargs = {k: v.plain(leaf) for k, v in kwargs.items()}
        touched = list({id(v): v for v in _tensors(self, [*args, *kwargs.values()])}.values())
        before = [(v.fake._version, v.fake.shape, v.fake.stride()) for v in touched]
        try:
            out = self._run(getattr(fakes[0], target) if isinstance(target, str) else target, fakes[isinstance(target, str) :], fake_kwargs)
        except (CaptureUnsupported, Raised):
            raise
        except Exception as error:
            if (unregistered := without_kernel(error)) is not None:
                refused = self.refuse("no-fake-kernel", str(unregistered))
                refused.hint = registration(unregistered)
                raise refused from error
            reason = "dynamic-shape" if type(error).__module__.startswith(("torch._subclasses", "torch.fx.experimental")) else "op-error"
            text = str(error).splitlines()[0] if str(error) else ""
            raise self.refuse(reason, f"{name_of(target)}: {type(error).__name__}: {text}") from error
        finally:
            self.note_guards()
        if any((v.fake.shape, v.fake.stride()) != old[1:] for v, old in zip(touched, before, strict=True)):
            raise self.refuse("metadata-mutation", name_of(target))
        if (name := name_of(target).partition(".")[0]) in places.PLACED:
            places.note(self, name, args, kwargs, out)
        changed = [v for v, old in zip(touched, before, strict=True) if v.fake._version != old[0]]
        written = next((v for v in (kwargs.get("out"), *args[:1]) if v in changed), None)
        if isinstance(written, TensorValue):
            with self.mode:
                twice = overlaps(written.fake, [v.fake for v in touched], fakes[1] if target is operator.setitem else None)
            if twice:
                raise self.refuse("op-error", f"{name_of(target)}: the memory that is written overlaps itself or what is read")
        return self._record(target, args, kwargs, out, [*changed, *(v for v in changes if isinstance(v, TensorValue))])

    def _run(self, function: Callable[..., Any], fakes: list[Any], kwargs: dict[str, Any]) -> Any:
        """The operation on fakes. Where its C++ parts look at data, torch's Python forms of them may not."""
        from torch._dispatch.python import enable_python_dispatcher
        from torch._subclasses.fake_tensor import DataDependentOutputException

        try:
            with self.mode, self.dispatcher():
                return function(*fakes, **kwargs)
        except DataDependentOutputException:
            with self.mode, enable_python_dispatcher():
                return function(*fakes, **kwargs)

    def _record(self, target: Callable[..., Any] | str, args: Args, kwargs: Kwargs, out: Any, changed: Sequence[TensorValue]) -> Value:
        known = self.by_fake.get(id(out)) if isinstance(out, torch.Tensor) else None
        if out is not None and not changed and not _has_tensor(out):
            return self._numbers(target, args, kwargs, out) if self.shapes.symbolic and _has_symbol(out) else self.lift(out)
        if out is None and not changed:
            raise self.refuse("op-refused", f"{name_of(target)} gives nothing back and changes no tensor")
        node = self.node("call_method" if isinstance(target, str) else "call_function", target, args, kwargs, out)
        for value in changed:
            self._change(value)
        if known is not None:  # the same object: changed in place, or an operation that has nothing to do, such as ``contiguous``
            known.node = node
            return known
        return self.result(node, out)

    def _numbers(self, target: Callable[..., Any] | str, args: Args, kwargs: Kwargs, out: Any) -> Value:
        """What an operation says about sizes: numbers, whose nodes are made when they are needed."""
        made: list[fx.Node] = []

        def node(t: Tracer) -> fx.Node:
            made[:] = made or [self.node("call_method" if isinstance(target, str) else "call_function", target, args, kwargs, out)]
            return made[0]

        if self.shapes.of_data(out):
            node(self)  # read now: the data may be another later
        if not isinstance(out, (tuple, list)):
            return symbolic(self, out, node)
        return SequenceValue(
            [symbolic(self, p, lambda t, i=i, p=p: t.append("call_function", operator.getitem, (node(t), i), p)) for i, p in enumerate(out)], type(out)
        )

    def node(self, kind: str, target: Any, args: Args, kwargs: Kwargs, val: Any) -> fx.Node:
        """Append one node with its value and the line that asks for it."""
        return self.append(kind, target, tuple(a.plain(self._node) for a in args), val, {k: v.plain(self._node) for k, v in kwargs.items()})

    def append(self, kind: str, target: Any, args: tuple[Any, ...], val: Any, kwargs: dict[str, Any] | None = None) -> fx.Node:
        self.once = self.once or raising.once(target, args, kwargs or {})
        node = self.graph.create_node(kind, target, args, kwargs or {})
        node.meta.update(val=val, stack=self.stack(), parents=(), module=self.module)
        return node

    def result(self, node: fx.Node, out: Any) -> Value:
        """The value of a node: a tensor, or a tuple or list whose tensors become ``getitem`` nodes."""
        if isinstance(out, torch.Tensor):
            value = self.by_fake[id(out)] = TensorValue(node, out)
            return value
        if out is None:
            return NONE
        if not isinstance(out, (tuple, list)):
            raise self.refuse("op-refused", f"a result of type {type(out).__name__}")
        return SequenceValue([self._element(node, i, part) for i, part in enumerate(out)], type(out))

    def become(self, value: Any, other: Any) -> Value:
        """``value``, a tensor made in this capture, is from now on what ``other`` is, and stays the same object of the program."""
        self.by_fake.pop(id(value.fake), None)
        value.node = value.first = other.node
        value.fake = other.fake
        self.by_fake[id(value.fake)] = value
        return value

    def _element(self, node: fx.Node, index: int, part: Any) -> Value:
        if isinstance(part, SYMBOLIC):
            return symbolic(self, part, lambda t: t.append("call_function", operator.getitem, (node, index), part))
        if not _has_tensor(part):
            return self.lift(part)
        if isinstance(part, torch.Tensor) and id(part) in self.by_fake:
            return self.by_fake[id(part)]
        item = self.graph.call_function(operator.getitem, (node, index))
        item.meta.update(val=part, stack=self.stack(), parents=(), module=self.module)
        return self.result(item, part)

    def _change(self, value: TensorValue) -> None:
        """Note which inputs a change of ``value`` reaches: itself, or the inputs that it is a view of."""
        storage = value.fake.untyped_storage()._cdata
        if memory_of(self, value.fake) in self.frozen:
            raise self.refuse("autograd-api", f"{value.describe()} is changed, and was reached through .data")
        if any(storage in s.memory for s in self.subgraphs):
            raise self.refuse("higher-order", f"{value.describe()}, from outside, is changed inside a function that becomes a graph")
        for source in self.inputs:
            if isinstance(source, TensorValue) and (source is value or source.fake.untyped_storage()._cdata == storage):
                self.mutated[id(source)] = source

    def node_of(self, value: TensorValue) -> fx.Node:
        """Its node in the graph that is being made; inside a subgraph, what stands for a value from outside."""
        if value.node.graph is self.graph:
            return value.node
        if not self.subgraphs:
            raise self.refuse("higher-order", f"{value.describe()}, made inside a function that became a graph, is used outside of it")
        return self.subgraphs[-1].lift(value)

    def _node(self, value: Value) -> Any:
        if isinstance(value, SymbolicValue):
            return value.settle(self).value if self.subgraphs else value.node(self)  # a graph inside the graph is for these sizes
        return self.node_of(value) if isinstance(value, TensorValue) else self._as_argument(value)

    def _fake(self, value: Value) -> Any:
        if isinstance(value, SymbolicValue):
            return value.sym if isinstance(value.sym, torch.SymInt) else value.settle(self).value
        return value.fake if isinstance(value, TensorValue) else self._as_argument(value)

    def _fake_or_float(self, value: Value) -> Any:
        return value.sym if isinstance(value, SymbolicValue) and isinstance(value.sym, torch.SymFloat) else self._fake(value)

    def _as_argument(self, value: Value) -> Any:
        real = getattr(value, "real", None)
        if isinstance(real, type) and real in (int, float, bool, complex):
            return real
        raise self.refuse("op-argument", value.describe())


def tensor_facts(real: torch.Tensor, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, ...]:
    """(type, dtype, device, requires_grad, sizes, strides): what a tensor guard checks, as plain data; None for a size that is open."""
    return (type(real).__name__, str(real.dtype), str(real.device), real.requires_grad, sizes, strides)


class _Computed(torch.autograd.Function):
    """Makes a tensor that is no leaf and no view, as the result of an operation is."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, make: Callable[[bool], torch.Tensor]) -> torch.Tensor:
        return make(False)


def computed(make: Callable[[bool], torch.Tensor]) -> torch.Tensor:
    with torch.enable_grad():
        found: torch.Tensor = _Computed.apply(torch.zeros((), requires_grad=True), make)  # type: ignore[assignment]
    return found


def _first(graph: fx.Graph) -> fx.Node:
    return next(iter(graph.nodes), graph._root)


def _has_tensor(out: Any) -> bool:
    if isinstance(out, (tuple, list)):
        return any(_has_tensor(o) for o in out)
    return isinstance(out, torch.Tensor)


def _has_symbol(out: Any) -> bool:
    return any(map(_has_symbol, out)) if isinstance(out, (tuple, list)) else isinstance(out, SYMBOLIC)


def _tensors(t: Tracer, values: Iterable[Value]) -> list[TensorValue]:
    found: list[TensorValue] = []

    def leaf(part: Value) -> Any:
        if isinstance(part, TensorValue):
            found.append(part)

    for value in values:
        value.plain(leaf)
    return found
