"""Bytecode that puts values together after the graph has run: sources, recipes, shared objects, effects.

In: sources and recipes, and the frame they belong to. Out: instructions, in ``Writer.body``, that leave one value on the stack per
``load`` or ``build``. Always holds: a source that is read twice is loaded once; every source is read before the first effect, so that it
gives what it held when the frame began; ``shared`` objects are built once, into locals of their own.
Where PyTorch does this: ``torch/_dynamo/codegen.py``. What differs between Python versions is in ``attribute`` and ``call``.

A ``Writer`` is used in this order: ``plan`` with every recipe and source that will be read, then ``load`` for the graph's inputs, ``outputs``
once the compiled function's result lies on the stack, ``change`` for shared objects and effects, and ``build`` for each value that is needed.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FunctionType
from typing import Any

from bytecode import Instr
from bytecode.instr import FreeVar

from ..core.errors import InvalidIR
from .frame import FrameInput
from .ir import Effect, Recipe, Source, Specialization
from .sources import canonical, inner_item, root_name

BUILD = {"tuple": "BUILD_TUPLE", "list": "BUILD_LIST", "set": "BUILD_SET", "slice": "BUILD_SLICE"}


class Writer:
    """Collects instructions, all at one line. ``prefix`` begins the names of the locals that it makes."""

    def __init__(self, frame: FrameInput, line: int) -> None:
        self.frame, self.line = frame, line
        self.body: list[Instr] = []
        self.count = 0  # outputs of the graph
        self.shared = 0  # shared objects built so far
        self.slots: dict[Any, str] = {}  # key of a source -> local variable that holds its value
        self.reads: Counter[Any] = Counter()
        taken = {*frame.code.co_varnames, *frame.code.co_freevars, *frame.code.co_cellvars}
        self.prefix = next(f"_lab{n}_" for n in range(len(taken) + 1) if not any(t.startswith(f"_lab{n}_") for t in taken))

    def plan(self, sources: Iterable[Source], recipes: Iterable[Recipe] = ()) -> None:
        """Counts how often each source is read, when every shared prefix is read once."""
        for source in [*sources, *(s for r in recipes for s in sources_of(r))]:
            self._count(self.plain(source))

    def plain(self, source: Source) -> Source:
        return canonical(source, self.frame.locals, self.frame.globals, self.frame.builtins)

    def _count(self, source: Source) -> None:
        key = _key(source)
        self.reads[key] += 1
        if self.reads[key] == 1 and source.base is not None:
            self._count(source.base)

    # instructions

    def emit(self, name: str, *arg: Any) -> None:
        self.body.append(Instr(name, *arg, lineno=self.line))

    def constant(self, value: Any) -> None:
        self.emit("LOAD_CONST", value)

    def attribute(self, name: str) -> None:
        self.emit("LOAD_ATTR", name if sys.version_info < (3, 12) else (False, name))

    def call(self, callable: Any, arguments: list[Callable[[], None]]) -> None:
        self.emit("PUSH_NULL")
        self.constant(callable)
        for argument in arguments:
            argument()
        if sys.version_info < (3, 12):
            self.emit("PRECALL", len(arguments))
        self.emit("CALL", len(arguments))

    def outputs(self, count: int) -> None:
        """The result of the compiled function lies on the stack: its ``count`` parts go to locals."""
        self.count = count
        if count:
            self.emit("UNPACK_SEQUENCE", count)
        else:
            self.emit("POP_TOP")
        for n in range(count):
            self.emit("STORE_FAST", f"{self.prefix}out{n}")

    # sources

    def load(self, source: Source) -> None:
        """Push the value at ``source``; values read more than once are kept in a local."""
        self._load(self.plain(source))

    def _load(self, source: Source) -> None:
        if (slot := self.slots.get(key := _key(source))) is not None:
            self.emit("LOAD_FAST", slot)
            return
        base = source.base
        if base is None:
            self._load_root(source)
            return
        if source.kind == "type_attr":
            self.call(type, [lambda: self._load(base)])
            self.attribute(source.key)
        elif source.kind == "attr":
            self._load(base)
            self.attribute(source.key)
        elif source.kind == "inner_item":
            self.call(inner_item, [lambda: self._load(base), lambda: self.constant(source.key)])
        else:
            self._load(base)
            self.constant(source.key)
            self.emit("BINARY_SUBSCR")
        if self.reads[key] > 1:
            self._keep(key)
            self.emit("LOAD_FAST", self.slots[key])

    def _keep(self, key: Any) -> None:
        slot = self.slots[key] = f"{self.prefix}value{len(self.slots)}"
        self.emit("STORE_FAST", slot)

    def _load_root(self, source: Source) -> None:
        if source.kind == "constant":
            self.constant(source.key)
            return
        name = root_name(source)
        if source.kind == "global":
            self.emit("LOAD_GLOBAL", (False, name))
        elif name in self.frame.code.co_freevars:
            self.emit("LOAD_DEREF", FreeVar(name))
        else:
            self.emit("LOAD_FAST", name)

    # recipes

    def value(self, effect: Effect) -> None:
        assert effect.value is not None
        self.build(effect.value)

    def build(self, recipe: Recipe) -> None:
        """Push the value that ``recipe`` describes. Raises ``InvalidIR`` for an output the graph does not have."""
        kind = recipe.kind
        if kind == "output":
            if not 0 <= recipe.value < self.count:
                raise InvalidIR(f"the result names graph output {recipe.value}", why=f"the graph has {self.count}")
            self.emit("LOAD_FAST", f"{self.prefix}out{recipe.value}")
        elif kind == "source":
            self.load(recipe.value)
        elif kind == "constant":
            self.constant(recipe.value)
        elif kind == "call":
            self.call(recipe.value, [lambda p=p: self.build(p) for p in recipe.parts])
        elif kind == "shared":
            if not 0 <= recipe.value < self.shared:
                raise InvalidIR(f"a recipe names shared object {recipe.value}", why=f"{self.shared} are built so far")
            self.emit("LOAD_FAST", f"{self.prefix}shared{recipe.value}")
        elif kind == "function":
            self.call(FunctionType, [lambda: self.constant(recipe.value), *(lambda p=p: self.build(p) for p in recipe.parts)])
        elif kind == "cell" and recipe.value is not None:
            self.emit("LOAD_CLOSURE", FreeVar(recipe.value))
        elif kind == "cell":
            self.call(CellType, [lambda p=p: self.build(p) for p in recipe.parts])
        elif kind == "dict":
            for key, part in zip(recipe.value or (), recipe.parts, strict=True):
                self.constant(key)
                self.build(part)
            self.emit("BUILD_MAP", len(recipe.parts))
        else:
            for part in recipe.parts:
                self.build(part)
            self.emit(BUILD[kind], len(recipe.parts))

    def change(self, shared: tuple[Recipe, ...], effects: tuple[Effect, ...], kept: Iterable[Recipe] = ()) -> None:
        """Build the shared objects and make the effects; ``kept`` are recipes that are built afterwards.

        With effects, all sources are read first: afterwards they may lead elsewhere."""
        if effects:
            parts = [r for e in effects for r in (e.target, e.key, e.value) if isinstance(r, Recipe)]
            for source in [s for r in (*shared, *parts, *kept) for s in sources_of(r)]:
                self._hold(self.plain(source))
        for recipe in shared:
            self.build(recipe)
            self.emit("STORE_FAST", f"{self.prefix}shared{self.shared}")
            self.shared += 1
        for effect in effects:
            EFFECTS[effect.kind](self, effect)

    def _hold(self, source: Source) -> None:
        """Read ``source`` into a local now, unless it is one."""
        fixed = source.base is None and (source.kind == "constant" or (source.kind == "local" and root_name(source) not in self.frame.code.co_freevars))
        if (key := _key(source)) not in self.slots and not fixed:
            self.reads[key] = 1
            self._load(source)
            self._keep(key)


def _attribute(w: Writer, e: Effect) -> None:
    w.call(object.__setattr__, [lambda: w.build(e.target), lambda: w.constant(e.key), lambda: w.value(e)])
    w.emit("POP_TOP")


def _delete_attribute(w: Writer, e: Effect) -> None:
    w.call(object.__delattr__, [lambda: w.build(e.target), lambda: w.constant(e.key)])
    w.emit("POP_TOP")


def _item(w: Writer, e: Effect) -> None:
    w.value(e)
    w.build(e.target)
    w.build(e.key)
    w.emit("STORE_SUBSCR")


def _delete_item(w: Writer, e: Effect) -> None:
    w.build(e.target)
    w.build(e.key)
    w.emit("DELETE_SUBSCR")


def _contents(w: Writer, e: Effect) -> None:
    w.call(refill, [lambda: w.build(e.target), lambda: w.value(e)])
    w.emit("POP_TOP")


def refill(target: Any, value: Any) -> None:
    """Make the contents of a container those of ``value``, by its built-in type's own methods."""
    if isinstance(target, list):
        list.__setitem__(target, slice(None), value)
    elif isinstance(target, deque):
        deque.clear(target)
        deque.extend(target, value)
    else:
        kind: Any = OrderedDict if isinstance(target, OrderedDict) else dict
        kind.clear(target)
        for key, part in value.items() if isinstance(value, dict) else value:
            kind.__setitem__(target, key, part)  # ``update`` would ask a subclass


def _global(w: Writer, e: Effect) -> None:
    w.value(e)
    w.emit("STORE_GLOBAL", e.key)


def _cell(w: Writer, e: Effect) -> None:
    w.value(e)
    w.build(e.target)
    w.emit("STORE_ATTR", "cell_contents")


def _delete_cell(w: Writer, e: Effect) -> None:
    w.build(e.target)
    w.emit("DELETE_ATTR", "cell_contents")


def _call(w: Writer, e: Effect) -> None:
    assert e.value is not None and e.target.kind == "constant"
    w.call(e.target.value, [lambda p=p: w.build(p) for p in e.value.parts])
    w.emit("POP_TOP")


EFFECTS: dict[str, Callable[[Writer, Effect], None]] = {
    "attribute": _attribute,
    "delete_attribute": _delete_attribute,
    "item": _item,
    "delete_item": _delete_item,
    "contents": _contents,
    "global": _global,
    "delete_global": lambda w, e: w.emit("DELETE_GLOBAL", e.key),
    "cell": _cell,
    "delete_cell": _delete_cell,
    "call": _call,
}


def _key(source: Source) -> Any:
    """Equal for sources that read the same; keys by identity unless they are names or indices."""
    plain = isinstance(source.key, (str, int)) and source.kind != "constant"
    own = (source.kind, type(source.key), source.key) if plain else (source.kind, root_name(source) if source.kind == "global" else id(source.key))
    return (*own, None if source.base is None else _key(source.base))


def sources_of(recipe: Recipe) -> Iterator[Source]:
    if recipe.kind == "source":
        yield recipe.value
    for part in recipe.parts:
        yield from sources_of(part)


def results_of(specialization: Specialization) -> list[Recipe]:
    """What the replacement code builds last: the result, or the state that the frame goes on with."""
    if (stop := specialization.stop) is None:
        return [specialization.result]
    return [*(r for r in stop.stack if r is not None), *(r for _, r in (*stop.locals, *stop.cells))]


def recipes_of(specialization: Specialization) -> list[Recipe]:
    """Every recipe that the replacement code builds."""
    effects = [r for e in specialization.effects for r in (e.target, e.key, e.value) if isinstance(r, Recipe)]
    return [*specialization.before, *specialization.shared, *effects, *results_of(specialization)]
