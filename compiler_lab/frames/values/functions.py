"""Python functions, bound methods, cells, partials and generators: everything that is called by running bytecode.

In: a function that exists, or code with defaults and cells made in the frame. Out: arguments bound to names; calls are inlined.
Always holds: cells and globals from outside that are written are noted, read back, and written after the graph has run; a function reached
from outside is guarded by identity, or by its code where it was passed in (two closures of one ``def`` are told apart by what their cells hold).
PyTorch's counterpart: ``torch/_dynamo/variables/functions.py``.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Lazy, Raised, Slot, Value, force, is_none
from .containers import DictValue, SequenceValue
from .exceptions import misfit
from .lookup import is_library_module
from .objects import ExceptionValue

if TYPE_CHECKING:
    from ..interpreter import Frame
    from ..tracer import Tracer

GENERATOR, COROUTINES = 0x20, 0x80 | 0x100 | 0x200


class Cell:
    """A closure cell: ``slot`` is None while it is empty. One from outside has a ``name``, where it is a free variable of the captured frame,
    or a ``source`` that gives the cell itself; ``real`` is that cell."""

    def __init__(self, slot: Slot | None = None) -> None:
        self.slot = slot
        self.name: str | None = None
        self.source: Source | None = None
        self.real: types.CellType | None = None

    @staticmethod
    def existing(t: Tracer, real: types.CellType, content: Source, name: str | None, source: Source | None) -> Cell:
        """The cell ``real``, whose contents are at ``content``; the same cell is one ``Cell`` however often it is reached."""
        if id(real) not in t.cells:
            cell = t.cells[id(real)] = Cell(Lazy(t, real.cell_contents, content) if _filled(real) else None)
            cell.real, cell.name, cell.source = real, name, source
        return t.cells[id(real)]

    def describe(self) -> str:
        return "a closure cell"

    def write(self, t: Tracer, value: Value | None) -> None:
        """Give it contents, or take them away."""
        if t.subgraphs:
            t.subgraphs[-1].changing(self)
        if self.real is not None:
            t.change(self)
        self.slot = value


class CellValue(Value):
    """A cell on the stack, on its way into a function."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell


class Scope:
    """The globals of a function. ``base`` is how to reach them; None for the frame's own."""

    def __init__(self, t: Tracer, names: dict[str, Any], base: Source | None, builtins: dict[str, Any]) -> None:
        self.t, self.names, self.base, self.builtins = t, names, base, builtins
        self.library = is_library_module(str(names.get("__name__")))
        self.read: dict[str, Value] = {}
        self.written: dict[str, Value] = {}
        self.removed: dict[str, None] = {}

    def store(self, name: str, value: Value) -> None:
        """Set a global. A library's own are left to it."""
        if self.library:
            raise self.t.refuse("side-effect", f"the global {name} of a library is written")
        self.t.change(self)
        self.read[name] = self.written[name] = value

    def delete(self, name: str, missing: type[Exception] = NameError) -> None:
        if name not in self.written and (name in self.removed or name not in self.names):
            raise Raised(self.t.exception(missing, f"name '{name}' is not defined"))
        if name not in self.written:
            self.load(name)  # that it is there is guarded with its value
        elif name not in self.removed:  # what is to be deleted depends on whether it was there before it was set
            if name not in self.names:
                raise self.t.refuse("side-effect", f"the global {name} is set and deleted")
            self.t.wrap(self.names[name], self._source(name))
        if self.library:
            raise self.t.refuse("side-effect", f"the global {name} of a library is deleted")
        self.t.change(self)
        self.read.pop(name, None)
        self.written.pop(name, None)
        if name in self.names:
            self.removed[name] = None

    def load(self, name: str) -> Value:
        if name not in self.read:
            self.read[name] = self._load(name)
        return self.read[name]

    def _load(self, name: str) -> Value:
        if name in self.names and name not in self.removed:
            real = self.names[name]
            fixed = self.library and isinstance(real, (type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType))
            if fixed:
                module = sys.modules.get(str(self.names.get("__name__")))
                self.t.trust(module if module is not None and module.__dict__ is self.names else self.names, name, real)
            return self.t.wrap(real, None if fixed else self._source(name))
        if name in self.builtins:
            if not self.library:
                self._builtin(name)
            return self.t.wrap(self.builtins[name], None)
        raise Raised(self.t.exception(NameError, f"name '{name}' is not defined"))

    def _builtin(self, name: str) -> None:
        """A built-in stays what it is while no global takes its name and nobody puts another one in its place."""
        if self.base is None:  # the tree knows that such a root needs both
            self.t.guard("id", Source("global", name), None, why="the built-in of this name was meant")
            return
        namespace = Source("attr", "__dict__", self.base) if isinstance(self.base.key, types.ModuleType) else self.base
        self.t.guard("no_key", namespace, name, why="the built-in of this name was meant")
        if self.builtins is builtins.__dict__:
            self.t.guard("id", Source("attr", name, Source("constant", builtins)), None, why="the built-in of this name was meant")

    def _source(self, name: str) -> Source:
        if self.base is None:
            return Source("global", name)
        return Source("attr" if isinstance(self.base.key, types.ModuleType) else "dict_item", name, self.base)


class FunctionValue(Value):
    """A Python function. ``real`` is set when it existed before the frame."""

    CHANGES = True

    def __init__(self, code: types.CodeType, scope: Scope, name: str, defaults: list[Slot], kwdefaults: dict[str, Slot], cells: list[Cell]) -> None:
        self.code, self.scope, self.name, self.defaults, self.kwdefaults, self.cells = code, scope, name, defaults, kwdefaults, cells
        self.real: types.FunctionType | None = None
        self.attributes: dict[str, Value] = {}
        self.annotations: Value | None = None

    @staticmethod
    def existing(t: Tracer, real: types.FunctionType, source: Source | None) -> FunctionValue:
        at = source or Source("constant", real)
        inside: list[Cell] = []
        for i, c in enumerate(real.__closure__ or ()):
            place = _chain(at, ("attr", "__closure__"), ("item", i))
            inside.append(Cell.existing(t, c, Source("attr", "cell_contents", place), None, place))
        defaults: list[Slot] = [Lazy(t, v, _chain(at, ("attr", "__defaults__"), ("item", i))) for i, v in enumerate(real.__defaults__ or ())]
        kwdefaults: dict[str, Slot] = {k: Lazy(t, v, _chain(at, ("attr", "__kwdefaults__"), ("dict_item", k))) for k, v in (real.__kwdefaults__ or {}).items()}
        self = FunctionValue(real.__code__, t.scope(real, at), real.__name__, defaults, kwdefaults, inside)
        self.real, self.source = real, source
        return self

    def python_type(self) -> type[Any]:
        return types.FunctionType

    def describe(self) -> str:
        return f"function {self.name}"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if self.real is not None:
            from ..torch_calls import special

            try:
                found = special(t, self.real, args, kwargs)
            except BaseException:
                self._is_this_one(t)
                raise
            if found is not None:
                self._is_this_one(t)
                return found
        if self.real is not None and self.source is not None:
            t.guard("id", Source("attr", "__code__", self.source), None, why="this code was inlined")
        if self.code.co_flags & COROUTINES:
            raise t.refuse("generator", f"{self.describe()} is a coroutine")
        return t.inline(self, args, kwargs)

    def _is_this_one(self, t: Tracer) -> None:
        """Another function of the same code would not do: it is known by itself."""
        t.guard("id", self.source, None, why="this function is called as it is")

    def get(self, t: Tracer, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name in ("__name__", "__qualname__"):
            if self.real is not None:
                return t.wrap(getattr(self.real, name), self.source and Source("attr", name, self.source))
            return Constant(self.name if name == "__name__" else self.code.co_qualname)
        if self.real is None and name in MADE:
            return MADE[name](t, self)
        if name == "__class__":
            return t.wrap(types.FunctionType, None)
        if name == "__code__":
            return Constant(self.code)
        if self.real is not None and (name in self.real.__dict__ or name in ("__doc__", "__module__", "__defaults__", "__kwdefaults__")):
            return t.wrap(getattr(self.real, name), Source("attr", name, self.source or Source("constant", self.real)))
        if name == "__get__":
            return FunctionGet(self)
        if not hasattr(types.FunctionType, name):
            raise Raised(t.exception(AttributeError, f"'function' object has no attribute '{name}'"))
        raise t.refuse("attribute", f"{name!r} of {self.describe()}")

    def set(self, t: Tracer, name: str, value: Value) -> None:
        if hasattr(types.FunctionType, name) or (self.real is not None and is_library_module(str(self.real.__module__))):
            raise t.refuse("attribute", f"setting {name!r} of {self.describe()}")
        if self.real is not None:
            t.change(self)
        self.attributes[name] = value

    def extra(self, t: Tracer) -> dict[str, Value]:
        """What its ``__dict__`` holds."""
        own = {} if self.real is None else {k: self.get(t, k) for k in self.real.__dict__}
        return {k: v for k, v in {**own, **self.attributes}.items() if not hasattr(types.FunctionType, k)}


def _doc(t: Tracer, f: FunctionValue) -> Value:
    first = f.code.co_consts[0] if f.code.co_consts else None
    return Constant(first if isinstance(first, str) else None)


MADE: dict[str, Callable[[Tracer, FunctionValue], Value]] = {
    "__doc__": _doc,
    "__module__": lambda t, f: t.lift(f.scope.names.get("__name__")),
    "__defaults__": lambda t, f: SequenceValue(list(f.defaults), tuple) if f.defaults else NONE,
    "__kwdefaults__": lambda t, f: DictValue({k: (Constant(k), v) for k, v in f.kwdefaults.items()}) if f.kwdefaults else NONE,
}  # of a function made in the frame


class FunctionGet(Value):
    """``function.__get__``."""

    def __init__(self, function: FunctionValue) -> None:
        self.function = function

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return MethodValue(self.function, args[0])


def _filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # an empty cell
        return False
    return True


def _chain(source: Source, *steps: tuple[Any, Any]) -> Source:
    for kind, key in steps:
        source = Source(kind, key, source)
    return source


class MethodValue(Value):
    """``function`` bound to ``owner``."""

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.function, self.owner, self.source = function, owner, source

    def python_type(self) -> type[Any]:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(t, [self.owner, *args], kwargs)

    def get(self, t: Tracer, name: str) -> Value:
        return {"__func__": self.function, "__self__": self.owner}.get(name) or self.function.get(t, name)


class PartialValue(Value):
    """``functools.partial``."""

    def __init__(self, function: Value, args: list[Value], kwargs: dict[str, Value], source: Source | None = None) -> None:
        self.function, self.args, self.kwargs, self.source = function, args, kwargs, source

    def python_type(self) -> type[Any]:
        import functools

        return functools.partial

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(t, [*self.args, *args], {**self.kwargs, **kwargs})

    def get(self, t: Tracer, name: str) -> Value:
        if name == "func":
            return self.function
        if name == "args":
            return SequenceValue(list(self.args), tuple)
        if name == "keywords":
            return DictValue({k: (Constant(k), v) for k, v in self.kwargs.items()}, dict, self.source)
        return super().get(t, name)


class GeneratorRun:
    """A suspended frame as a Python iterator of values; ``result`` is what it returned."""

    def __init__(self, t: Tracer, frame: Frame) -> None:
        self.t, self.frame = t, frame
        self.result: Value = NONE
        self.running = self.finished = False
        t.generators.append(self)

    def __iter__(self) -> Iterator[Value]:
        return self

    def __next__(self) -> Value:
        return self.send(NONE)

    def send(self, value: Value) -> Value:
        if self.running:
            raise self.t.refuse("generator", "a generator that runs already")
        if self.finished:
            raise StopIteration
        if not self.frame.started and not is_none(value):
            raise Raised(self.t.exception(TypeError, "can't send non-None value to a just-started generator"))
        return self._advance(value, None)

    def throw(self, error: ExceptionValue) -> Value:
        """Raise an exception where the generator is suspended."""
        if self.running:
            raise self.t.refuse("generator", "a generator that runs already")
        if self.finished or not self.frame.started:
            self.finished = True
            raise Raised(error)
        return self._advance(NONE, error)

    def close(self) -> None:
        """``generator.close()``: GeneratorExit where it is suspended, unless it has not begun or is over."""
        if self.finished or not self.frame.started:
            self.finished = True
            return
        error = ExceptionValue(GeneratorExit, [])
        try:
            self.throw(error)
        except StopIteration:
            return
        except Raised as raised:
            if isinstance(raised.exception, ExceptionValue) and issubclass(raised.exception.cls, GeneratorExit):
                return
            raise
        raise Raised(self.t.exception(RuntimeError, "generator ignored GeneratorExit"))

    def suspended_inside(self) -> bool:
        """Would Python run code of it when it is dropped?"""
        return self.frame.started and not self.finished and self.frame.protected()

    def _advance(self, value: Value, error: ExceptionValue | None) -> Value:
        self.running = True
        try:
            yielded, result = self.frame.resume(value, error)
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
        if yielded:
            return result
        self.result, self.finished = result, True
        raise StopIteration


def bind_arguments(t: Tracer, f: FunctionValue, args: Args, kwargs: Kwargs) -> dict[str, Slot]:
    """Arguments by parameter name, as a call binds them. Raises TypeError in the program where they do not fit."""
    code = f.code
    names = code.co_varnames
    count, only = code.co_argcount, code.co_kwonlyargcount
    bound: dict[str, Slot] = dict(zip(names[:count], args, strict=False))
    at = count + only
    if code.co_flags & 0x04:
        bound[names[at]] = SequenceValue(list(args[count:]), tuple)
        at += 1
    elif len(args) > count:
        raise misfit(t, f, args, kwargs)
    extra: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name in names[code.co_posonlyargcount : count + only]:
            if name in bound:
                raise misfit(t, f, args, kwargs)
            bound[name] = value
        elif code.co_flags & 0x08:
            extra[name] = value
        else:
            raise misfit(t, f, args, kwargs)
    if code.co_flags & 0x08:
        bound[names[at]] = DictValue({k: (Constant(k), v) for k, v in extra.items()})
    first = count - len(f.defaults)
    for i, name in enumerate(names[: count + only]):
        if name not in bound:
            default = f.defaults[i - first] if first <= i < count else f.kwdefaults.get(name) if i >= count else None
            if default is None:
                raise misfit(t, f, args, kwargs)
            bound[name] = force(default)
    return bound
