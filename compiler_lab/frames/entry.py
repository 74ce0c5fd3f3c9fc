"""The compiled callable: its cache of entries, what happens on a miss, and the frame hook's callback.

In: a user's function, an interpreter and a backend. Out: ``CompiledFunction``, whose ``function`` has the user's signature.
On a hit (``wrapper.hot_function``) guards are checked and the replacement code is called: no hook. On a miss a private copy of the
function runs once under the hook; the callback captures its frame, or leaves it to Python and goes on to look below it. A function
that was left to Python runs under the hook on later calls too, for the frames below it that were captured. A frame that was captured up
to a break is an entry like any other; its replacement code goes on in ``pieces.py``, which turns the hook on for Python's part alone.
Before a frame is captured, entries that an earlier process left are looked for (``Kept``); capture is imported when it is first needed.
Always holds: one lock for compiling, entries checked again under it; nothing reachable only from C++ refers to the user's function;
entries are complete before anyone sees them.
Where PyTorch does this: ``torch/_dynamo/eval_frame.py``, ``convert_frame.py``, ``cache_size.py``.
Left out: frames whose globals belong to no module (below a frame with breaks), generators, coroutines, class bodies.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..core.errors import LabError
from ..core.modes import active_modes
from ..core.options import Options
from ..core.provenance import Location, is_library
from .entries import Entry, Stats
from .frame import FrameInput
from .guards import GLOBALS
from .hook import Answer, FrameHook, GuardRoot, frame_hook
from .ir import Break
from .recompiles import Recompile, Timeline
from .signature import signature
from .wrapper import FILE, Pair, hot_function

if TYPE_CHECKING:
    from .convert import Backend, Converter, Interpret, OnEvent

GENERATORS = 0x20 | 0x80 | 0x200  # generator, coroutine, async generator
OPTIMIZED = 0x1  # clear for modules and class bodies
MODULES = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "")
ACCUMULATED = 32  # times the limit: compiles of one function in all, for entries of objects that are gone make room
TRIES = 8  # how often a frame without tensors is looked at before it is taken for one that never has any


def _never(locals: dict[str, Any]) -> bool:
    return False


EMPTY: Pair = (_never, _never)


class Kept(Protocol):
    """Entries of earlier processes."""

    def find(self, frame: FrameInput) -> Entry | None:
        """One that holds for a call of the function, ready to run; None where there is none."""
        ...


def compile_function(
    fn: Callable[..., Any],
    backend: Backend,
    *,
    interpret: Interpret,
    fullgraph: bool = False,
    options: Options | None = None,
    on_event: OnEvent | None = None,
    stats: Stats | None = None,
    kept: Kept | None = None,
) -> CompiledFunction:
    """``fn`` compiled: a function, method, callable object or built-in. Nothing happens before the first call.

    ``on_event(kind, payload)``: ("captured", convert.Captured), ("break", Break), ("recompile", Recompile), ("reset", None)."""
    timeline, settings, counts = Timeline(on_event or (lambda kind, payload: None)), options or Options(), stats or Stats()

    def converter() -> Converter:
        from .convert import Converter

        return Converter(interpret, backend, fullgraph=fullgraph, options=settings, timeline=timeline, stats=counts)

    return CompiledFunction(fn, converter, timeline, settings, fullgraph, kept)


class CompiledFunction:
    """A callable with a cache of compiled entries. ``function`` is what to hand out: it has the user's signature and binds as a method."""

    def __init__(
        self, fn: Callable[..., Any], make: Callable[[], Converter], timeline: Timeline, options: Options, fullgraph: bool, kept: Kept | None = None
    ) -> None:
        self.original = fn
        self.timeline, self.options, self.fullgraph, self.kept = timeline, options, fullgraph, kept
        self.again: Callable[..., CompiledFunction] | None = None  # makes another one of the same function in the same way, for an observer
        self._make = make
        self._converter: Converter | None = None
        self._fn, self._self = _plain_function(fn)
        self._box: list[Pair] = [EMPTY]  # what the hot path tries: the entry used last
        self._entries: tuple[tuple[Pair, Entry], ...] = ()  # all, most recently used first
        self._key = object()  # entries below a frame with breaks belong to this compile
        self._python: FunctionType | None = None  # a copy whose code is marked: the hook leaves it to Python and looks below
        self._failed: set[Any] = set()  # signatures of arguments for which capture failed
        self._limited = False
        self._compiles = 0  # entries that were made, those that are gone included
        self._touched: dict[int, weakref.ref[CodeType]] = {}
        hot = hot_function(self._fn, self._box, self._miss, self._stale)
        self._hot_code, self._code = hot.__code__, self._fn.__code__
        weakref.finalize(self, _drop, self._touched).atexit = False
        hot.__dict__.update(_compiled_function=self, recompiles=self.recompiles)
        hot.__dict__.update(_torchdynamo_orig_callable=self._fn, _torchdynamo_inline=self._fn)  # traced through, by us and by torch
        self.function: Callable[..., Any] = MethodType(hot, self._self) if self._self is not None else hot

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def converter(self) -> Converter:
        """What captures frames: made, and imported, when it is first asked for."""
        if self._converter is None:
            with frame_hook().lock:
                self._converter = self._converter or self._make()
        return self._converter

    @property
    def breaks(self) -> tuple[Break, ...]:
        """What was left to Python, here and in frames below, each place once."""
        return () if self._converter is None else tuple(self._converter.breaks)

    @property
    def recompiles(self) -> list[Recompile]:
        """The timeline, here and in frames below: one list, which grows."""
        return self.timeline.points

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The compiled entries of the function itself, most recently used first."""
        return tuple(e for _, e in self._entries)

    def reset(self) -> None:
        """Drops every entry, here and on frames below; those below wait until no hooked call is in flight."""
        hook = frame_hook()
        with hook.lock:
            self._use(())
            self._failed.clear()
            if self._converter is not None:
                self._converter.reset()
            self.timeline.points.clear()
            self.timeline.on_event("reset", None)
            self._python, self._limited, self._compiles = None, False, 0
            hook.reset(self._touched.values())
            self._touched.clear()

    def _use(self, entries: tuple[tuple[Pair, Entry], ...]) -> None:
        self._entries = entries
        self._box[0] = entries[0][0] if entries else EMPTY

    def _find(self, locals: dict[str, Any]) -> tuple[Pair, Entry] | None:
        """The entry that holds for a call (``locals`` with the globals), moved to the front."""
        entries = self._entries
        found = next((e for e in entries if e[0][0](locals)), None)
        if found is not None and found is not entries[0]:
            self._use((found, *(e for e in entries if e is not found)))
        return found

    def _miss(self, locals: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Not the entry used last: another one; else capture, or run in Python what is known to be left to it."""
        if (found := self._find(locals)) is not None:
            return found[0][1](*args, **kwargs)
        options, fullgraph = self.options, self.fullgraph
        if self._limited:
            return self._fn(*args, **kwargs)
        hook = frame_hook()
        self._drop_dead(hook)
        if len(self._entries) >= options.recompile_limit or self._compiles >= ACCUMULATED * options.recompile_limit:
            self._limited = True
            self.timeline.limit(self._fn.__code__, max(len(self._entries), self._compiles), self.entries, locals)
            return self._fn(*args, **kwargs)
        if self._python is not None and not fullgraph and (len(self._failed) >= options.recompile_limit or signature(locals) in self._failed):
            return self._under_hook(hook, self._python, args, kwargs)
        if self.kept is not None and (known := self._known(self.kept, hook, locals)) is not None:
            return known(*args, **kwargs)
        return self._attempt(hook, locals, args, kwargs)

    def _known(self, kept: Kept, hook: FrameHook, locals: dict[str, Any]) -> Callable[..., Any] | None:
        """The replacement of an earlier process that holds for a call; it is an entry from now on."""
        if active_modes():
            return None
        with hook.lock:
            if (found := self._find(locals)) is not None:  # another thread's
                return found[0][1]
            fn = self._fn
            entry = kept.find(FrameInput(fn.__code__, {k: v for k, v in locals.items() if k != GLOBALS}, fn.__globals__, fn.__builtins__, fn.__closure__ or ()))
            if entry is None:
                return None
            self._compiles += 1
            function = entry.function(fn)
            self._use((((entry.tree.root.check, function), entry), *self._entries))
            return function

    def _stale(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function was given other code or defaults: the hot path is made anew, in the same function object, and the call too."""
        hot: FunctionType = self.function.__func__ if isinstance(self.function, MethodType) else self.function  # type: ignore[assignment]
        with frame_hook().lock:
            fresh = hot_function(self._fn, self._box, self._miss, self._stale)
            if self._code is not self._fn.__code__:
                self.reset()
                self._code = self._fn.__code__
            hot.__globals__.update(fresh.__globals__)
            hot.__code__, hot.__defaults__, hot.__kwdefaults__ = fresh.__code__, fresh.__defaults__, fresh.__kwdefaults__
            self._hot_code = hot.__code__
        return hot(*args, **kwargs)

    def _drop_dead(self, hook: FrameHook) -> None:
        """Entries that no call can hit any more, because an object they compare with is gone, make room."""
        if any(e.tree.dead for _, e in self._entries):
            with hook.lock:
                self._use(tuple(e for e in self._entries if not e[1].tree.dead))

    def _under_hook(self, hook: FrameHook, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not hook.isolated:  # entries on shared code objects would be in torch.compile's way
            return fn(*args, **kwargs)
        with hook.region(_Callback(self, hook, None)):
            return fn(*args, **kwargs)

    def _attempt(self, hook: FrameHook, locals: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a copy of the function under the hook: its code object is nobody else's, so the hook is sure to show its frame."""
        hook.ignore(self._hot_code)
        if self.converter.pieces.callback is None:
            self.converter.pieces.callback = _Callback(self, hook, None)
        fn = self._fn
        copy = FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        copy.__kwdefaults__ = fn.__kwdefaults__
        callback = _Callback(self, hook, copy.__code__)
        with hook.region(callback):
            result = copy(*args, **kwargs)
        if callback.left:
            with hook.lock:
                self._python = copy
                self._failed.add(signature(locals))
            if self.fullgraph and self.converter.last is not None:  # the program was expected to raise and did not
                from .convert import graph_broken

                raise graph_broken(self.converter.last, fn.__code__)
        return result

    def top_frame(self, hook: FrameHook, frame: FrameInput) -> Entry | None:
        """The entry for the function's own frame: another thread's, or a new one; None when it is left to Python."""
        with hook.lock:
            if (found := self._find({GLOBALS: frame.globals, **frame.locals})) is not None:
                return found[1]
            self._compiles += 1
            if self._entries:
                self.timeline.recompiled(self._fn.__code__, self._compiles, self.entries, frame.locals)
            if frame.code.co_flags & GENERATORS:
                self.converter.broken(_generator(frame.code), frame.code)
                return None
            entry = self.converter.frame(frame, hooked=False)
            if entry is not None:
                self._use((((entry.tree.root.check, entry.function(self._fn)), entry), *self._entries))
            return entry

    def lower_frame(self, hook: FrameHook, frame: FrameInput, state: dict[Any, Any]) -> Entry | None:
        """The entry for a frame below one that was left to Python. ``state`` lives as long as its code object."""
        with hook.lock:
            mine: list[Entry] = state.setdefault(self._key, [])
            entry = next((e for e in mine if e.tree.check(frame.locals)), None)
            if entry is not None:
                return entry
            if len(mine) >= self.converter.options.recompile_limit:
                if any(e.graph for e in mine):  # nobody misses more entries of a frame that has no tensor work
                    self.timeline.limit(frame.code, len(mine), mine, frame.locals)
                return None
            if mine:
                self.timeline.recompiled(frame.code, len(mine) + 1, mine, frame.locals)
            entry = self.converter.frame(frame, hooked=True)
            if entry is not None:
                mine.insert(0, entry)
            return entry

    def touch(self, code: CodeType) -> None:
        """Remembers a code object below a break that carries entries or marks, for ``reset``."""
        self._touched[id(code)] = weakref.ref(code)


class _Callback:
    """What the frame hook calls. ``top`` is the code object of the call's own frame; ``left`` says that it was left to Python.

    ``_torchdynamo_orig_backend`` is what the C side files entries under: the same for all calls of one compiled function."""

    def __init__(self, compiled: CompiledFunction, hook: FrameHook, top: CodeType | None) -> None:
        self.compiled, self.hook, self.top, self.left = compiled, hook, top, False
        self._torchdynamo_orig_backend = compiled._key

    def __call__(self, frame: Any, cache_entry: Any, state: dict[Any, Any]) -> Answer:
        if frame.f_code is self.top:
            entry = self.compiled.top_frame(self.hook, _input(frame))
            if entry is None:
                self.left = True
                return self.hook.skip if self.hook.isolated else self.hook.hide  # no marks on code that others compile too
            return self.hook.whole(entry.code, GuardRoot(), entry)
        return self._below(frame, state)

    def _below(self, frame: Any, state: dict[Any, Any]) -> Answer:
        hook, code = self.hook, frame.f_code
        if code.co_filename == FILE:  # another compiled function: what is below it is compiled already, or turns the hook on itself
            return hook.hide
        if not hook.isolated or not worth_capturing(code) or frame.f_lasti != -1:
            return hook.skip
        self.compiled.touch(code)
        if not any(map(_has_tensor, frame.f_locals.values())):
            state["tries"] = state.get("tries", 0) + 1
            return hook.once if state["tries"] < TRIES else self._settle(state)
        entry = self.compiled.lower_frame(hook, _input(frame), state)
        return self._settle(state) if entry is None else hook.whole(entry.code, entry.tree.root, entry)

    def _settle(self, state: dict[Any, Any]) -> Answer:
        """Left to Python from now on; the entries it has, of any compiled function, keep hitting."""
        return self.hook.freeze if any(isinstance(v, list) and v for v in state.values()) else self.hook.skip


def worth_capturing(code: CodeType) -> bool:
    """Frames below a break that are looked at: functions of the user's, and forwards of torch's own modules."""
    if code.co_flags & GENERATORS or not code.co_flags & OPTIMIZED:
        return False
    if code.co_varnames[:1] == (".0",):  # a comprehension: its iterator is already running
        return False
    if is_library(code.co_filename):
        return code.co_name == "forward" and code.co_filename.startswith(MODULES)
    return True


def _has_tensor(value: Any, depth: int = 3) -> bool:
    if issubclass(type(value), (torch.Tensor, torch.nn.Module)):  # ``isinstance`` would read ``__class__``, which the program may see
        return True
    for base, parts in PARTS:
        if depth and issubclass(type(value), base):
            return any(_has_tensor(v, depth - 1) for v in itertools.islice(parts(value), 32))
    return False


PARTS: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = ((list, list.__iter__), (tuple, tuple.__iter__), (dict, dict.values))  # past a subclass's own


def _input(frame: Any) -> FrameInput:
    return FrameInput(frame.f_code, dict(frame.f_locals), frame.f_globals, frame.f_builtins, frame.closure)


def _generator(code: CodeType) -> Break:
    stack = (Location(code.co_filename, code.co_firstlineno, code.co_name),)
    return Break(
        "generator", f"{code.co_qualname} is a generator or coroutine: its frame stays suspended between values", "", stack, "compile the functions it calls"
    )


def _plain_function(fn: Any) -> tuple[FunctionType, Any]:
    """(function, object it is bound to or None) for anything callable; a callable without Python code is called from a function of ours."""
    if not callable(fn):
        raise LabError(f"{fn!r} cannot be compiled", why="it is not callable")
    bound = fn.__self__ if isinstance(fn, MethodType) else None
    plain = fn.__func__ if isinstance(fn, MethodType) else fn
    while (inner := getattr(plain, "__dict__", {}).get("_torchdynamo_orig_callable")) is not None:  # compiled already, by us or by torch
        plain = inner
    if isinstance(plain, FunctionType):
        return plain, bound
    call = inspect.getattr_static(type(fn), "__call__", None)
    if isinstance(call, FunctionType):
        return call, fn

    def function(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    functools.update_wrapper(function, fn, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    return function, None


def _drop(touched: dict[int, weakref.ref[CodeType]]) -> None:
    frame_hook().reset(touched.values())
