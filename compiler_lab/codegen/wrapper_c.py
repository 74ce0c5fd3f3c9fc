"""The wrapper in C: one function that calls kernels and aten's operators in order, over one arena of intermediates.

In: a ``Schedule``, its kernels, a name for each buffer, and how much work each group is. Out: a ``CallCode``, which stands after the kernels in
the same translation unit. What ``call.h`` keeps between calls: a pool of arenas, and the windows through which aten sees memory.
Always holds: what aten computes here it computes from the same tensors as in the wrapper in Python; an operator without a function in C, or
whose function fails, is called through Python, by a function of ``CallCode.python``, so that the error is eager's; results are fresh memory;
one that stands for a list of saved tensors is freed at its last use. Python's lock is given up around what takes long.
PyTorch's counterpart: ``torch/_inductor/codegen/cpp_wrapper_cpu.py``, which is C++ with torch's headers. Left out: sizes that vary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from ..core.artifact import Decision
from ..lowering.ir import BufferSpec, ExternNode, TensorView
from ..lowering.program import views_of
from ..scheduling.artifact import Schedule
from ..scheduling.ir import ExternGroup, LoopGroup
from .emit import Emitter
from .externs import Externs, dying, last_uses, where
from .ir import CallCode, Kernel
from .shims import DTYPE_CODES, NoShim, Shim, gives_memory, shim

LONG = 1 << 20
"""Elementary operations from which on Python's lock is given up: some hundred microseconds; giving it up takes a twentieth of one."""


def write_call(schedule: Schedule, kernels: Sequence[Kernel], names: Mapping[str, str], work: Mapping[str, int], first: int) -> CallCode:
    """``work``: elementary operations of each loop group; ``first``: lines of the unit that stand before."""
    return _Writer(schedule, kernels, names, work, first).write()


class _Writer:
    def __init__(self, schedule: Schedule, kernels: Sequence[Kernel], names: Mapping[str, str], work: Mapping[str, int], first: int) -> None:
        self.schedule, self.program, self.names, self.work = schedule, schedule.program, names, work
        self.kernels = {k.name: k for k in kernels}
        self.externs = Externs(schedule, names)
        self.slots = {s.buffer.name: s for s in schedule.plan.slots}
        self.inputs = {s.name: i for i, s in enumerate(self.program.inputs)}
        self.constants = {name: i for i, name in enumerate(self.program.constants)}
        self.boxed = schedule.stage.endswith("backward")
        self.owned: dict[str, int] = {}  # buffers that are tensors of the call
        self.windows: dict[TensorView, int] = {}
        self.layouts: dict[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], int] = {}
        self.parts: list[list[str]] = []  # the functions in Python, each as its lines
        self.views: dict[str, int] = {}  # slots that a function in Python is given
        self.pointed: set[str] = set()  # buffers whose address has a name already
        self.symbols: dict[str, Shim] = {}
        self.decisions: list[Decision] = []
        self.last = last_uses(schedule, self.kernels)
        self.dying = dying(self.last)
        self.kept = {o.buffer for o in self.program.outputs if isinstance(o, TensorView)}
        self.body, self.e = Emitter(), Emitter(before=first)
        self.layout((-(-max(schedule.plan.arena_bytes, 1) // 64) * 64,), (1,), torch.uint8)

    # ---- names and numbers ----

    def layout(self, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> int:
        return self.layouts.setdefault((size, stride, dtype), len(self.layouts))

    def window(self, view: TensorView) -> str:
        """The C expression of a tensor for aten; its buffer's address must have a name."""
        index = self.windows.setdefault(view, len(self.windows))
        return f"c.window({index}, {self.pointer(view.buffer)})"

    def own(self, buffer: str) -> int:
        return self.owned.setdefault(buffer, len(self.owned))

    def pointer(self, buffer: str) -> str:
        """The name of the buffer's address, declared where it is first asked for."""
        name = self.names[buffer]
        if buffer in self.pointed:
            return name
        self.pointed.add(buffer)
        if buffer in self.slots:
            slot = self.slots[buffer]
            start = f"(char*){self._host(slot.host)}" if slot.host else "c.s->memory"
            self.body.line(f"void* const {name} = {start} + {slot.offset};")
        elif buffer in self.inputs:
            self.body.line(f"void* const {name} = c.input({self.inputs[buffer]});")
        elif buffer in self.constants:
            self.body.line(f"void* const {name} = c.constant({self.constants[buffer]});")
        return name

    def _host(self, buffer: str) -> str:
        """The name of the address of what holds others; a result that is not there yet is allocated."""
        if buffer not in self.pointed:
            self._fresh(self.program.buffers[buffer], self.externs.origin(buffer))
        return self.names[buffer]

    def object(self, buffer: str) -> str:
        """The C expression of a whole buffer as Python's tensor; of one in the memory of another, that one."""
        if buffer in self.slots and self.slots[buffer].host:
            return self.object(self.slots[buffer].host)
        if buffer in self.slots:
            return f"c.view({self.views.setdefault(buffer, len(self.views))})"
        if buffer in self.inputs:
            return f"c.given[{self.inputs[buffer]}]"
        return f"c.constant_object({self.constants[buffer]})" if buffer in self.constants else f"c.object({self.own(buffer)})"

    # ---- the text ----

    def write(self) -> CallCode:
        b = self.body
        b.depth = 1
        for i, group in enumerate(self.schedule.groups):
            if isinstance(group, LoopGroup):
                self._kernel(group)
            else:
                self._extern(group, i)
            self._release(i)
        self._return()
        return self._unit()

    def _unit(self) -> CallCode:
        e, p = self.e, self.program
        e.line()
        e.line('#include "lab_call.h"')
        for s in self.symbols.values():
            e.line(f"static int32_t (*{s.symbol})({', '.join(s.types)});")
        e.line()
        self._windows()
        arena = self.schedule.plan.arena_bytes
        e.line(f"static const Unit unit = {{{len(p.inputs)}, {int(self.boxed)}, {len(self.owned)}, {len(self.windows)}, {arena}, windows}};")
        e.line()
        with e.block("static PyObject* run(Call& c) {"):
            e.depth -= 1
            for line in self.body.lines:
                e.line(line.text, line.parents, line.stack)
            e.depth += 1
        e.line()
        with e.block("static PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t count) {"):
            e.line("Graph* g = (Graph*)PyCapsule_GetPointer(self, nullptr);")
            e.line("return guarded([&] { Call c(g, args, count); return run(c); });")
        e.line('static PyMethodDef method = {"call", call, 0x80, nullptr};  // METH_FASTCALL')
        e.line()
        with e.block('extern "C" PyObject* lab_attach(PyObject* given, void* const* functions) {'):
            for i, s in enumerate(self.symbols.values()):
                e.line(f"*(void**)&{s.symbol} = functions[sizeof(Torch) / sizeof(void*) + {i}];")
            e.line("return attach(&unit, &method, given, functions);")
        return CallCode(
            source=e.text(),
            lines=tuple(e.lines),
            symbols=tuple(self.symbols),
            constants=tuple(self.constants),
            layouts=tuple(self.layouts),
            python=self._python(),
            boxed=self.boxed,
            decisions=tuple(self.decisions),
        )

    def _windows(self) -> None:
        e, numbers = self.e, list[int]()
        rows: list[str] = []
        for i, view in enumerate(self.windows):
            at, dims = len(numbers), len(view.size)
            numbers += [*view.size, *view.stride]
            what = f"{self.names[view.buffer]}: {view.size}, {view.stride}"
            rows.append(f"  {{{dims}, numbers + {at}, numbers + {at + dims}, {view.offset}, {DTYPE_CODES[view.dtype]}}},  // {i}: {what}")
        e.line(f"static const int64_t numbers[] = {{{', '.join(map(str, [*numbers, 0]))}}};")
        e.line("static const Window windows[] = {  // tensors that aten is given")
        for row in rows:
            e.line(row)
        e.line("  {}};")

    def _kernel(self, group: LoopGroup) -> None:
        b, k = self.body, self.kernels[group.name]
        parents, stack = tuple(f"{self.schedule.stage}/{group.name}/{n.name}" for n in group.nodes), group.nodes[0].stack
        made = {n.name: n.output for n in group.nodes}
        b.line(f"// {', '.join(dict.fromkeys(n.origin or n.name for n in group.nodes))}{where(stack)}", parents, stack)
        for buffer in k.args:
            if buffer in made and buffer not in self.slots and buffer not in self.pointed:
                self._fresh(made[buffer], (f"{self.schedule.stage}/{group.name}/{buffer}",))
        pointers = ", ".join([self.pointer(buffer) for buffer in k.args])
        with b.block("{", parents):
            b.line(f"void* const args[] = {{{pointers}}};", parents)
            if self.work.get(k.name, 0) >= LONG:
                b.line("Unlocked u;", parents)
                b.line(f"const int code = {k.name}(args);", parents, stack)
                b.line("u.lock();", parents)
            else:
                b.line(f"const int code = {k.name}(args);", parents, stack)
            b.line("if (code) fail(code);", parents, stack)

    def _fresh(self, spec: BufferSpec, parents: tuple[str, ...]) -> None:
        index = self.layout(spec.size, spec.stride, spec.dtype)
        self.pointed.add(spec.name)
        self.body.line(f"void* const {self.names[spec.name]} = c.fresh({self.own(spec.name)}, {index});", parents)

    def _extern(self, group: ExternGroup, position: int) -> None:
        node, b = group.node, self.body
        parents = tuple(f"{self.schedule.stage}/{group.name}/{s.name}" for s in node.outputs if s is not None)
        out = gives_memory(node)
        b.line(f"// {node.target}{where(node.stack)}", parents, node.stack)
        try:
            made = shim(node, self.window, out)
        except NoShim as why:
            self.decisions.append(Decision("call", (f"{self.schedule.stage}/{group.name}",), "python", why.reason))
            self._through_python(group, position, parents)
            return
        self.decisions.append(Decision("call", (f"{self.schedule.stage}/{group.name}",), "c", "exported", {"function": made.symbol}))
        self.symbols.setdefault(made.symbol, made)
        (self._written if out else self._allocated)(group, position, made, parents)

    def _call(self, made: Shim, results: Sequence[str], node: ExternNode, parents: tuple[str, ...]) -> None:
        """``bool done``: whether the function in C is there and went well."""
        b = self.body
        args = ", ".join([*results, *made.args] if made.out else [*made.args, *results])
        long = work_of(node) >= LONG
        for line in ["Unlocked u;"] * long + [f"const bool done = {made.symbol} && !{made.symbol}({args});"] + ["u.lock();"] * long:
            b.line(line, parents, node.stack)

    def _written(self, group: ExternGroup, position: int, made: Shim, parents: tuple[str, ...]) -> None:
        """An operator that is given the memory of its result."""
        (spec,) = group.node.outputs
        assert spec is not None
        if spec.name not in self.slots and spec.name not in self.pointed:
            self._fresh(spec, parents)
        out = self.window(TensorView(spec.name, spec.size, spec.stride, 0, spec.dtype))
        with self.body.block("{", parents):
            for declaration in (*made.locals, f"H out = {out};"):
                self.body.line(declaration, parents)
            self._call(made, ["out"], group.node, parents)
            self.body.line(f"if (!done) {self._python_call(group, position)};", parents)

    def _declare(self, node: ExternNode, parents: tuple[str, ...]) -> list[BufferSpec | None]:
        """Names for the addresses of an operator's results; None for each that nobody needs."""
        specs = [s if s is not None and (s.name in self.kept or s.name in self.last) else None for s in node.outputs]
        for s in specs:
            if s is not None:
                self.pointed.add(s.name)
                self.body.line(f"void* {self.names[s.name]};", parents)
        return specs

    def _allocated(self, group: ExternGroup, position: int, made: Shim, parents: tuple[str, ...]) -> None:
        """An operator that allocates its results; those that nobody needs are dropped."""
        b, node = self.body, group.node
        specs = self._declare(node, parents)
        with b.block("{", parents):
            for declaration in (*made.locals, f"H {', '.join(f'r{i} = nullptr' for i in range(len(specs)))};"):
                b.line(declaration, parents)
            self._call(made, [f"&r{i}" for i in range(len(specs))], node, parents)
            for i, s in enumerate(specs):
                if s is not None:
                    index = self.windows.setdefault(TensorView(s.name, s.size, s.stride, 0, s.dtype), len(self.windows))
                    b.line(f"if (done) {self.names[s.name]} = c.keep({self.own(s.name)}, {index}, r{i});", parents)
                else:
                    b.line(f"if (r{i}) torch.drop(r{i});", parents)
            with b.block("if (!done) {", parents):
                b.line(f"auto made = {self._python_call(group, position)};", parents)
                self._take(specs, parents)

    def _through_python(self, group: ExternGroup, position: int, parents: tuple[str, ...]) -> None:
        b, node = self.body, group.node
        if gives_memory(node):
            (spec,) = node.outputs
            assert spec is not None
            if spec.name not in self.slots and spec.name not in self.pointed:
                self._fresh(spec, parents)
            elif spec.name in self.slots:
                self.pointer(spec.name)
            b.line(f"{self._python_call(group, position)};", parents, node.stack)
            return
        specs = self._declare(node, parents)
        with b.block("{", parents):
            b.line(f"auto made = {self._python_call(group, position)};", parents, node.stack)
            self._take(specs, parents)

    def _take(self, specs: Sequence[BufferSpec | None], parents: tuple[str, ...]) -> None:
        for i, s in enumerate(specs):
            if s is not None:
                self.body.line(f"{self.names[s.name]} = c.take({self.own(s.name)}, made, {i});", parents)

    def _python_call(self, group: ExternGroup, position: int) -> str:
        """``c.python(3, ...)``: the same call by a function in Python, which is written here."""
        node = group.node
        buffers = list(dict.fromkeys(v.buffer for v in views_of(node)))
        if gives_memory(node):
            buffers += [s.name for s in node.outputs if s is not None and s.name not in buffers]
        arguments = [self.object(buffer) for buffer in buffers]
        self.parts.append(self.externs.function(group, f"part{len(self.parts) + 1}", buffers))
        return f"c.python({', '.join([str(len(self.parts)), *arguments])})"

    def _release(self, i: int) -> None:
        """Tensors of the call, and what a backward was given, die after their last use."""
        dying = [b for b in self.dying.get(i, ()) if b not in self.kept]
        for k in sorted(self.owned[b] for b in dying if b in self.owned):
            self.body.line(f"c.release({k});")
        for k in sorted(self.inputs[b] for b in dying if b in self.inputs) if self.boxed else ():
            self.body.line(f"c.forget({k});")

    def _return(self) -> None:
        """The tuple of results, in C where each is a whole tensor that is there, else by a function in Python."""
        b, outputs = self.body, self.program.outputs
        seen: set[str] = set()
        texts: list[str] = []
        for o in outputs:
            if o is None:
                texts.append("&_Py_NoneStruct")
            elif isinstance(o, TensorView) and o.buffer not in seen and o.buffer not in self.slots and self.externs.whole(o):
                texts.append(self.object(o.buffer))
                seen.add(o.buffer)
        if len(texts) == len(outputs):
            b.line(f"Answer answer({len(texts)});")
            for i, text in enumerate(texts):
                b.line(f"answer.set({i}, {text});")
            b.line("return answer.give();")
            return
        buffers = list(dict.fromkeys(o.buffer for o in outputs if isinstance(o, TensorView)))
        arguments = [self.object(buffer) for buffer in buffers]
        self.parts.append(self.externs.results(f"part{len(self.parts) + 1}", buffers))
        b.line(f"return c.python({', '.join([str(len(self.parts)), *arguments])}).give();")

    def _python(self) -> str:
        """Part 0 gives the arena's buffers as tensors; the others are calls. Where all of them are empty there is no arena."""
        lines = ["def views(arena=None):"]
        for buffer in self.views:
            spec, offset = self.slots[buffer].buffer, self.slots[buffer].offset
            place = f"{spec.size}, {spec.stride}, {offset // spec.dtype.itemsize}"
            empty = f"torch.empty_strided({spec.size}, {spec.stride}, dtype={spec.dtype})"
            lines.append(f"    {self.names[buffer]} = {f'arena.view({spec.dtype}).as_strided({place})' if spec.numel else empty}")
        lines.append(f"    return ({', '.join(self.names[b] for b in self.views)}{',' if len(self.views) == 1 else ''})")
        return self.externs.module([lines, *self.parts])


def work_of(node: ExternNode) -> int:
    """Elementary operations of a call, near enough to tell what takes long."""
    views = views_of(node)
    largest = max((math.prod(v.size) for v in views), default=0)
    results = sum(s.numel for s in node.outputs if s is not None)
    name = str(node.target)
    if "mm" in name and views:
        return results * views[-1].size[-2] if len(views[-1].size) > 1 else results
    if "convolution" in name or "attention" in name:
        return 64 * (largest + results)
    return 8 * (largest + results)
