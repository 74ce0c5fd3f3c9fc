"""The wrapper: Python that calls kernels and aten operators in order, over one arena of intermediates.

In: a ``Schedule``, its kernels and a Python name for each buffer. Out: the text of ``make(functions, ops, constants, torch)``, which returns a
callable over the graph's inputs. Everything that is the same in each call is done in ``make``. What a call must have for itself (the
arena, views of it for aten calls, an array of pointers for each kernel) is taken from a stack and put back, so calls may overlap.
Always holds: outputs are fresh memory; a result of aten whose strides are not those the kernels were made for is copied into them.
Symbolic sizes are read from the arguments first; a state is then one for these sizes, and made again when they change.
PyTorch's counterpart: ``torch/_inductor/codegen/wrapper.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..lowering.ir import BufferSpec, ExternNode, TensorView
from ..lowering.sizes import is_number
from ..scheduling.artifact import Schedule
from ..scheduling.ir import OUT_VARIANTS, ExternGroup, LoopGroup
from .emit import Emitter
from .externs import FLATTEN, IN_LAYOUT, Externs, dying, last_uses, where
from .ir import Kernel

FAIL = '''\
def fail(code):
    """Raises what aten raises where a kernel found this."""
    if code == 1:
        raise IndexError("index out of range in self")
    if code == 2:
        raise MemoryError("a kernel could not allocate its scratch memory")
    raise RuntimeError("ZeroDivisionError")'''


def write_wrapper(schedule: Schedule, kernels: Sequence[Kernel], names: Mapping[str, str]) -> Emitter:
    """``names``: a Python name for each buffer; ``kernels`` in the order of the schedule's loop groups."""
    return _Wrapper(schedule, kernels, names).write()


class _Wrapper(Externs):
    def __init__(self, schedule: Schedule, kernels: Sequence[Kernel], names: Mapping[str, str]) -> None:
        super().__init__(schedule, names)
        self.kernels = {k.name: k for k in kernels}
        self.e = Emitter("    ")
        self.slots = {s.buffer.name: s for s in schedule.plan.slots}
        self.inputs = {s.name for s in self.program.inputs}
        self.handed_over = self.inputs if schedule.stage.endswith("backward") else set[str]()  # nobody else holds what was kept for the backward
        self.views: dict[str, tuple[TensorView, str]] = {}  # state views for aten calls: Python name -> view of an arena buffer
        self.symbols = [s.symbol.name for s in self.program.sizes]
        self.outputs = [o for o in self.program.outputs if isinstance(o, TensorView)]
        self.kept = {o.buffer for o in self.outputs}
        self.last_use = last_uses(schedule, self.kernels)
        self.dying = dying(self.last_use)
        self.own = self.handed_over | {s.name for g in schedule.groups if isinstance(g, ExternGroup) for s in g.node.outputs if s is not None}
        self.own |= {n.name for g in schedule.groups if isinstance(g, LoopGroup) for n in g.nodes if n.name not in g.internal}
        self.early = {s.host for s in self.hosted.values()} & {o.buffer for o in self.outputs}  # results that hold other buffers first
        self.there: set[str] = set()  # of these, those that the text has allocated so far
        self.prepared = [self._prepared(g.node) if isinstance(g, ExternGroup) else None for g in schedule.groups]

    def static(self, buffer: str) -> bool:
        """True where the buffer's address is the same in every call with one state."""
        return (buffer in self.slots and buffer not in self.hosted) or buffer in self.program.constants

    # ---- the text ----

    def write(self) -> Emitter:
        e = self.e
        e.line('"""Calls the kernels and aten operators of one graph, in order."""')
        e.line()
        e.line("from ctypes import addressof, c_void_p")
        if self.symbols:
            e.line("from math import sqrt")
        if any(name.startswith("f") for name in self.symbols):
            e.line("from struct import pack, unpack")
        calls = [c for c in self.prepared if c]
        flatten = any(c.startswith("flatten") for _, c in calls)
        for text in (FAIL, IN_LAYOUT, *([FLATTEN] if flatten else [])):
            e.line()
            e.line()
            for line in text.split("\n"):
                e.line(line)
        e.line()
        e.line()
        with e.block("def make(functions, ops, constants, torch):", end=""):
            self._bindings()
            self._state()
            self._call()
            if self.handed_over:
                e.line("call._boxed_call = True")
            e.line("return call")
        return e

    def _bindings(self) -> None:
        e = self.e
        e.line("empty_strided, as_strided = torch._C._dynamo.guards._empty_strided_cpu, torch.as_strided")
        for k in self.kernels.values():
            e.line(f'{k.name} = functions["{k.name}"]')
        for target in dict.fromkeys(self._target(g) for g in self.schedule.groups if isinstance(g, ExternGroup)):
            e.line(self.binding(target))
        for name in self.program.constants:
            e.line(f'{self.names[name]} = constants["{name}"]')
        e.line()

    def _target(self, group: ExternGroup) -> torch._ops.OpOverload:
        target = group.node.target
        return OUT_VARIANTS[target] if self._given(group.node) else target

    def _given(self, node: ExternNode) -> bool:
        """Whether the call is given the memory of its result."""
        return node.target in OUT_VARIANTS and any(s is not None and (s.name in self.slots or s.name in self.early) for s in node.outputs)

    def _host(self, buffer: str) -> str:
        """The name of the tensor in whose memory the buffer lies, or its own; a result that holds others is allocated before the first of them."""
        host = self.hosted[buffer].host if buffer in self.hosted else buffer
        if host in self.early and host not in self.there:
            self.there.add(host)
            self.e.line(f"{self.names[host]} = {self._fresh(self.program.buffers[host])}", self.origin(host))
        return self.names[host]

    def _state(self) -> None:
        """What one call has for itself: ``state()`` makes it, in the order in which ``call`` unpacks it."""
        e, size = self.e, self.schedule.plan.arena_bytes
        size = max(size, 64) if is_number(size) else size
        with e.block(f"def state({', '.join(self.symbols)}):", end=""):
            e.line('"""Memory of one call: the arena, views of it, and the pointers of each kernel."""')
            e.line(f'arena = torch.empty({-(-size // 64) * 64}, dtype=torch.uint8, device="cpu")')
            e.line("start = arena.data_ptr()")
            for name, (view, origin) in self.views.items():
                slot = self.slots[view.buffer]
                offset = slot.offset // view.dtype.itemsize + view.offset
                e.line(f"{name} = as_strided(arena.view({view.dtype}), {view.size}, {view.stride}, {offset})" + (f"  # {origin}" if name != origin else ""))
            for k in self.kernels.values():
                sizes = (f'unpack("q", pack("d", {n}))[0]' if n.startswith("f") else n for n in k.sizes)
                addresses = ", ".join([*map(self._address, k.args), *sizes])
                e.line(f"{k.name}_args = (c_void_p * {len(k.args) + len(k.sizes)})({addresses})")
            e.line(f"return {', '.join(self._members())}")
        e.line()
        e.line("free = []")
        if self.symbols:
            e.line("floordiv, mod, real, power, root = (lambda a, b: a // b), (lambda a, b: a % b), float, pow, sqrt  # what the text of a size may call")
        e.line()

    def _members(self) -> list[str]:
        return ["arena", *self.views, *(f"{k}_args" for k in self.kernels), *(f"addressof({k}_args)" for k in self.kernels)]

    def _address(self, buffer: str) -> str:
        if buffer in self.slots and buffer not in self.hosted:
            return f"start + {self.slots[buffer].offset}" if self.slots[buffer].offset else "start"
        return f"{self.names[buffer]}.data_ptr()" if buffer in self.program.constants else "0"

    def _call(self) -> None:
        e = self.e
        names = self._arguments()
        inputs, sizes = ", ".join(names), ", ".join(self.symbols)
        with e.block(f"def call({'arguments' if self.handed_over else inputs}):", end=""):
            if self.handed_over:  # boxed: the list is emptied, for a call that passes many arguments one by one holds them to its end
                e.line(f"{inputs}{',' if len(names) == 1 else ''} = arguments")
                e.line("arguments.clear()")
            for source in self.program.sizes:
                e.line(f"{source.symbol.name} = {source.text(names[source.position])}")
            with e.block("try:", end=""):
                e.line("of, mine = free.pop()" if sizes else "mine = free.pop()")
            with e.block("except IndexError:", end=""):
                e.line("of = None" if sizes else "mine = state()")
            if sizes:
                with e.block(f"if of != ({sizes},):", end=""):
                    e.line(f"mine = state({sizes})")
            with e.block("try:", end=""):
                e.line(f"{', '.join([*self._members()[: 1 + len(self.views) + len(self.kernels)], *(f'{k}_at' for k in self.kernels)])} = mine")
                for i, group in enumerate(self.schedule.groups):
                    if isinstance(group, LoopGroup):
                        self._kernel(group)
                    else:
                        self._aten(group, i)
                    self._release(i, group)
                e.line(f"return {self.answer()}")
            with e.block("finally:", end=""):
                e.line(f"free.append((({sizes},), mine))" if sizes else "free.append(mine)")
        e.line()

    def _arguments(self) -> list[str]:
        """A name for each argument of the call."""
        names = [self.names[s.name] for s in self.program.inputs]
        for position in sorted(self.program.numbers):
            names.insert(position, f"number{position}")
        return names

    def _kernel(self, group: LoopGroup) -> None:
        e, k = self.e, self.kernels[group.name]
        parents, stack = tuple(f"{self.schedule.stage}/{group.name}/{n.name}" for n in group.nodes), group.nodes[0].stack
        e.line(f"# {', '.join(dict.fromkeys(n.origin or n.name for n in group.nodes))}{where(stack)}", parents, stack)
        made = {n.name: n.output for n in group.nodes}
        for i, buffer in enumerate(k.args):
            name = self._host(buffer)
            if buffer in made and not self.static(buffer) and buffer not in self.hosted and buffer not in self.early:
                e.line(f"{name} = {self._fresh(made[buffer])}", (f"{self.schedule.stage}/{group.name}/{buffer}",), stack)
            if not self.static(buffer):
                offset = self.hosted[buffer].offset if buffer in self.hosted else 0
                e.line(f"{group.name}_args[{i}] = {name}.data_ptr(){f' + {offset}' if offset else ''}", parents, stack)
        with e.block(f"if code := {group.name}({group.name}_at):", parents, end=""):
            e.line("fail(code)", parents, stack)

    def _fresh(self, spec: BufferSpec) -> str:
        return f"empty_strided({spec.size}, {spec.stride}, {spec.dtype})"

    def _aten(self, group: ExternGroup, i: int) -> None:
        prepared = self.prepared[i]
        assert prepared is not None
        (left, call), node, e = prepared, group.node, self.e
        parents = tuple(f"{self.schedule.stage}/{group.name}/{s.name}" for s in node.outputs if s is not None)
        for s in node.outputs if self._given(node) else ():
            if s is not None:
                self._host(s.name)
        e.line(f"# {node.target}{where(node.stack)}", parents, node.stack)
        e.line(f"{left}{call}", parents, node.stack)
        if self._given(node):
            return
        for spec in node.outputs:
            if spec is not None and (spec.name in self.kept or spec.name in self.last_use):
                condition, statement = self.laid_out(spec)
                with e.block(f"if {condition}:", parents, end=""):
                    e.line(statement, parents, node.stack)

    def _prepared(self, node: ExternNode) -> tuple[str, str]:
        if not self._given(node):
            return self.call(node)
        (spec,) = node.outputs
        assert spec is not None
        return self.call(node, out=self.view(TensorView(spec.name, spec.size, spec.stride, 0, spec.dtype)))

    def view(self, view: TensorView) -> str:
        """As ``Externs.view``, but a tensor of the arena has a name of its own, which ``state`` makes."""
        if view.buffer in self.hosted:
            host = self.names[self.hosted[view.buffer].host]
            if self.whole(view):
                return self.inside(view.buffer, host)
            offset = self.hosted[view.buffer].offset // view.dtype.itemsize + view.offset
            return f"as_strided({host}, {view.size}, {view.stride}, {host}.storage_offset() + {offset})"
        if view.buffer not in self.slots:
            return super().view(view)
        name = self.names[view.buffer]
        key = name if self.whole(view) else next((n for n, (v, _) in self.views.items() if v == view), f"{name}_view{len(self.views)}")
        self.views.setdefault(key, (view, view.buffer))
        return key

    def _release(self, i: int, group: Any) -> None:
        """Results of aten calls, and inputs of a backward, die after their last use: they are memory outside the arena."""
        if isinstance(group, ExternGroup) and not self._given(group.node):
            unused = [s.name for s in group.node.outputs if s is not None and s.name not in self.last_use and s.name not in self.kept]
        else:
            unused = []
        dead = unused + sorted(b for b in self.dying.get(i, ()) if b in self.own and b not in self.slots and b not in self.kept)
        if dead:
            self.e.line(f"del {', '.join(self.names[b] for b in dead)}")
