"""Replacement code: loads the graph's inputs, calls the compiled function, builds the frame's result.

In: a ``Specialization``, the compiled function (a constant of the new code) and the frame. Out: a code object that can stand in for the
frame's own: same arguments and free variables, same first line.
Always holds: argument counts, flags for ``*args`` and ``**kwargs``, and ``co_freevars`` equal the original's (a frame is filled by
position, so anything else reads wrong slots); a source that is read twice is loaded once.
Where PyTorch does this: ``torch/_dynamo/codegen.py`` and ``bytecode_transformation.py``. Left out: resume functions (a frame that
cannot be captured whole is left to Python). What differs between Python versions is in ``_attribute`` and ``_call``.
"""

from __future__ import annotations

import dis
import re
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.flags import CompilerFlags
from bytecode.instr import FreeVar

from ..core.errors import InvalidIR
from .frame import FrameInput
from .ir import Recipe, Source, Specialization
from .sources import canonical, root_name

KEPT_FLAGS = 0x4 | 0x8  # CO_VARARGS, CO_VARKEYWORDS
OPTIMIZED = 0x1 | 0x2  # CO_OPTIMIZED, CO_NEWLOCALS: locals in fast slots


def assemble(specialization: Specialization, compiled: Callable[..., Any] | None, frame: FrameInput) -> CodeType:
    """The code that replaces ``frame.code``. ``compiled(*inputs)`` gives a tuple or list with one value per graph output.

    ``compiled`` is None for a graph without operations, which needs no call. Raises ``InvalidIR`` for a recipe that names an output
    the graph does not have.
    """
    return _Assembler(specialization, compiled, frame).code()


def bytecode_text(code: CodeType) -> str:
    """The bytecode as dis prints it, without addresses and offsets; nested code objects follow."""
    lines = [f"{code.co_qualname}({', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])})"]
    line = 0
    for i in dis.get_instructions(code):
        now = (i.positions.lineno if i.positions else None) or 0
        mark = f"{now:>5}" if now and now != line else " " * 5
        line = now or line
        argument = i.argrepr or ("" if i.arg is None else str(i.arg))
        lines.append(re.sub(r" at 0x[0-9a-fA-F]+", "", f"{mark}  {i.opname} {argument}").rstrip())
    nested = [bytecode_text(c) for c in code.co_consts if isinstance(c, CodeType)]
    return "\n".join(lines) + "".join("\n\n" + n for n in nested)


class _Assembler:
    def __init__(self, specialization: Specialization, compiled: Callable[..., Any] | None, frame: FrameInput) -> None:
        self.frame, self.compiled, self.line = frame, compiled, frame.code.co_firstlineno
        self.inputs = [self._plain(s) for s in specialization.graph.inputs] if compiled else []
        self.result = specialization.result
        self.outputs = len(specialization.graph.outputs) if compiled else 0
        self.body: list[Instr] = []
        self.slots: dict[Any, str] = {}  # key of a source -> local variable that holds its value
        taken = {*frame.code.co_varnames, *frame.code.co_freevars}
        self.prefix = next(f"_lab{n}_" for n in range(len(taken) + 1) if not any(t.startswith(f"_lab{n}_") for t in taken))
        self.reads: Counter[Any] = Counter()
        for source in [*self.inputs, *map(self._plain, _sources(self.result))]:
            self._count(source)

    def _plain(self, source: Source) -> Source:
        return canonical(source, self.frame.locals, self.frame.globals, self.frame.builtins)

    def _count(self, source: Source) -> None:
        """Counts how often each source is read, when every shared prefix is read once."""
        key = _key(source)
        self.reads[key] += 1
        if self.reads[key] == 1 and source.base is not None:
            self._count(source.base)

    def code(self) -> CodeType:
        original = self.frame.code
        if self.compiled is not None:
            self._call(self.compiled, [lambda s=s: self._load(s) for s in self.inputs])
            if self.outputs:
                self._emit("UNPACK_SEQUENCE", self.outputs)
            else:
                self._emit("POP_TOP")
            for n in range(self.outputs):
                self._emit("STORE_FAST", f"{self.prefix}out{n}")
        self._build(self.result)
        self._emit("RETURN_VALUE")
        prologue = [Instr("COPY_FREE_VARS", len(original.co_freevars), lineno=self.line)] if original.co_freevars else []
        new = Bytecode([*prologue, Instr("RESUME", 0, lineno=self.line), *self.body])
        new.name, new.qualname, new.filename, new.first_lineno = original.co_name, original.co_qualname, original.co_filename, self.line
        new.argcount, new.posonlyargcount, new.kwonlyargcount = original.co_argcount, original.co_posonlyargcount, original.co_kwonlyargcount
        flags = original.co_flags & KEPT_FLAGS
        count = original.co_argcount + original.co_kwonlyargcount + bool(flags & 0x4) + bool(flags & 0x8)
        new.argnames = list(original.co_varnames[:count])
        new.freevars = list(original.co_freevars)
        new.flags = CompilerFlags(OPTIMIZED | flags)
        code = new.to_code()
        if code.co_freevars != original.co_freevars or code.co_varnames[:count] != original.co_varnames[:count]:
            raise InvalidIR(f"replacement code of {original.co_qualname} has another layout", why="frames are filled by position")
        return code

    def _emit(self, name: str, *arg: Any) -> None:
        self.body.append(Instr(name, *arg, lineno=self.line))

    def _constant(self, value: Any) -> None:
        self._emit("LOAD_CONST", value)

    def _attribute(self, name: str) -> None:
        self._emit("LOAD_ATTR", name if sys.version_info < (3, 12) else (False, name))

    def _call(self, callable: Any, arguments: list[Callable[[], None]]) -> None:
        self._emit("PUSH_NULL")
        self._constant(callable)
        for argument in arguments:
            argument()
        if sys.version_info < (3, 12):
            self._emit("PRECALL", len(arguments))
        self._emit("CALL", len(arguments))

    def _load(self, source: Source) -> None:
        """Push the value at ``source``; values read more than once are kept in a local."""
        if (slot := self.slots.get(key := _key(source))) is not None:
            self._emit("LOAD_FAST", slot)
            return
        base = source.base
        if base is None:
            self._load_root(source)
            return
        if source.kind == "type_attr":
            self._call(type, [lambda: self._load(base)])
            self._attribute(source.key)
        elif source.kind == "attr":
            self._load(base)
            self._attribute(source.key)
        else:
            self._load(base)
            self._constant(source.key)
            self._emit("BINARY_SUBSCR")
        if self.reads[key] > 1:
            slot = self.slots[key] = f"{self.prefix}value{len(self.slots)}"
            self._emit("STORE_FAST", slot)
            self._emit("LOAD_FAST", slot)

    def _load_root(self, source: Source) -> None:
        if source.kind == "constant":
            self._constant(source.key)
            return
        name = root_name(source)
        if source.kind == "global":
            self._emit("LOAD_GLOBAL", (False, name))
        elif name in self.frame.code.co_freevars:
            self._emit("LOAD_DEREF", FreeVar(name))
        else:
            self._emit("LOAD_FAST", name)

    def _build(self, recipe: Recipe) -> None:
        kind = recipe.kind
        if kind == "output":
            if not 0 <= recipe.value < self.outputs:
                raise InvalidIR(f"the result names graph output {recipe.value}", why=f"the graph has {self.outputs}")
            self._emit("LOAD_FAST", f"{self.prefix}out{recipe.value}")
        elif kind == "source":
            self._load(self._plain(recipe.value))
        elif kind == "constant":
            self._constant(recipe.value)
        elif kind == "call":
            self._call(recipe.value, [lambda p=p: self._build(p) for p in recipe.parts])
        elif kind == "dict":
            for key, part in zip(recipe.value, recipe.parts, strict=True):
                self._constant(key)
                self._build(part)
            self._emit("BUILD_MAP", len(recipe.parts))
        else:
            for part in recipe.parts:
                self._build(part)
            self._emit({"tuple": "BUILD_TUPLE", "list": "BUILD_LIST", "set": "BUILD_SET", "slice": "BUILD_SLICE"}[kind], len(recipe.parts))


def _key(source: Source) -> Any:
    """Equal for sources that read the same; keys by identity unless they are names or indices."""
    plain = isinstance(source.key, (str, int)) and source.kind != "constant"
    own = (source.kind, type(source.key), source.key) if plain else (source.kind, root_name(source) if source.kind == "global" else id(source.key))
    return (*own, None if source.base is None else _key(source.base))


def _sources(recipe: Recipe) -> list[Source]:
    own = [recipe.value] if recipe.kind == "source" else []
    return own + [s for part in recipe.parts for s in _sources(part)]
