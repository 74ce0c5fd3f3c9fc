"""``compile`` and what it keeps: the callable that is handed out, the session's counts, recordings.

In: a Python callable. Out: a callable that runs it on compiled graphs. Importing this brings no stage: the pipeline, with every stage, is
imported when a frame is captured, which a process that finds its entries on disk never does (``kept.py``).
PyTorch's counterpart: ``torch/__init__.py`` (``compile``) and ``torch/_dynamo/eval_frame.py``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor

from .core.collecting import importing
from .core.errors import UnknownOption
from .core.options import Options
from .frames.entries import Stats
from .frames.entry import CompiledFunction, compile_function
from .frames.module import compile_module
from .kept import Counts, KeptEntries
from .runtime.cache import keeps_entries, open_cache

if TYPE_CHECKING:
    from .observe.compare_data import Both
    from .observe.trace import Step, Trace
    from .pipeline import Capturing, Find

Observer = Callable[["Step"], None]
STACKS = ("lab", "torch", "both")


@dataclass
class Recording:
    """An observer for compiles that have none of their own; ``compiled`` says that something was compiled, or wrapped to be."""

    observe: Observer
    graphs: Iterator[int] = field(default_factory=itertools.count)
    compiled: bool = False


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextlib.contextmanager
def recording(observe: Observer) -> Generator[Recording]:
    """Every compile that happens inside the block and has no observer of its own is recorded by ``observe``."""
    record = Recording(observe)
    trace = _remember(observe)
    token = _recording.set(record)
    try:
        yield record
    finally:
        _recording.reset(token)
        if trace is not None and trace.steps:
            _session.recorded.append(trace)


class Session:
    """What ``stats()`` and ``reset()`` speak of: counts since the last reset, and every compiled function that is alive.

    traces: number -> trace that was told of compiles, while it is alive; recorded: the last ones that recordings filled. A trace holds the functions
    and modules that it shows, so few are kept, until ``reset()``."""

    def __init__(self) -> None:
        self.stats, self.kept = Stats(), Counts()
        self.compiled: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
        self.traces: weakref.WeakValueDictionary[int, Trace] = weakref.WeakValueDictionary()
        self.numbers = itertools.count(1)
        self.recorded: deque[Trace] = deque(maxlen=3)


_session = Session()


def _remember(observe: Observer | None) -> Trace | None:
    """The trace whose ``append`` observes; it is in ``traces()`` from now on."""
    if (owner := getattr(observe, "__self__", None)) is None:
        return None
    from .observe.trace import Trace

    if not isinstance(owner, Trace):
        return None
    if not any(t is owner for t in _session.traces.values()):
        _session.traces[next(_session.numbers)] = owner
    return owner


def traces() -> dict[int, Trace]:
    """number -> trace, of every trace that is alive and has steps, oldest first; what ``%%compile_inspect`` recorded last is among them."""
    return {number: trace for number, trace in sorted(_session.traces.items()) if trace.steps}


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    backend: str | Callable[..., Any] = "lab",
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    observe: Observer | None = None,
) -> Any:
    """``fn`` compiled, with ``torch.compile``'s meaning; without ``fn``, a decorator. Nothing happens before the first call.

    fn: a function, method, callable or ``nn.Module`` (the result is then a module around it).
    backend: "lab" (C++ kernels), "aot_eager_decomp", "aot_eager", "eager", a registered name, or ``(gm, example_inputs) -> callable``.
    mode, options: see ``core.options``.
    dynamic: None, sizes are compiled as they come, and a size or int that differs at a later call is symbolic from then on; True, all sizes
    and int arguments are symbolic from the first call; False, never. 0 and 1 are always compiled by themselves. Where a stage does not model
    a symbolic size, the graph is compiled once for each set of sizes that it meets.
    fullgraph: what cannot be captured whole raises ``GraphBroken`` instead of being left to Python.
    observe: called with a ``Step`` after each step, for example ``Trace().append``.
    Raises ``UnknownOption`` for a backend, mode or option that does not exist.
    """
    settings = Options.of(mode, options)
    find = None if backend == "lab" else _find(backend)
    if dynamic not in (None, True, False):
        raise UnknownOption(f"dynamic={dynamic!r}", hint="one of: None, True, False")
    if fn is None:
        again = dict(backend=backend, mode=mode, dynamic=dynamic, fullgraph=fullgraph, options=options, disable=disable, observe=observe)
        return functools.partial(compile, **again)
    if disable:
        return fn
    if (record := _recording.get()) is not None:
        record.compiled = True
    _remember(observe)
    one = functools.partial(_compile_one, find=find, settings=settings, fullgraph=fullgraph, observe=observe, dynamic=dynamic)
    return compile_module(fn, one) if isinstance(fn, torch.nn.Module) else one(fn).function


def _find(backend: str | Callable[..., Any]) -> Find:
    with importing():
        from .pipeline import find_backend

    return find_backend(backend)


def _compile_one(
    fn: Callable[..., Any], find: Find | None, settings: Options, fullgraph: bool, observe: Observer | None, dynamic: bool | None = None
) -> CompiledFunction:
    """``find``: None for "lab", whose entries are kept on disk."""
    keeping = find is None and settings.entries and not settings.check and keeps_entries()
    kept = KeptEntries(settings, repr(dynamic), _session.kept, lambda: observe is not None or _recording.get() is not None) if keeping else None
    graphs = itertools.count()  # numbers the graphs of this function, unless a recording numbers them
    made: list[Capturing] = []

    def watch() -> tuple[Observer | None, int]:
        """Who is told of a compile, and its number there."""
        record = _recording.get() if observe is None else None
        return (record.observe, next(record.graphs)) if record else (observe, next(graphs))

    def capturing() -> Capturing:
        if not made:
            with importing():
                from .pipeline import Capturing
            made.append(Capturing(find or _find("lab"), settings, fullgraph, dynamic, watch, lambda: compiled.converter.refused, kept and kept.keep))
        return made[0]

    compiled = compile_function(
        fn, lambda graph, args: capturing().backend(graph, args), interpret=lambda frame: capturing().begin(frame), fullgraph=fullgraph, options=settings,
        on_event=lambda kind, payload: made[0].told(kind, payload) if made else None, stats=_session.stats, kept=kept,
    )  # fmt: skip
    compiled.again = functools.partial(_compile_one, fn, find, settings, fullgraph, dynamic=dynamic)
    _session.compiled.add(compiled)
    return compiled


def reset() -> None:
    """Forgets everything compiled and counted; functions compiled before compile again when they are called."""
    for compiled in list(_session.compiled):
        compiled.reset()
    _session.stats.clear()
    _session.kept.clear()
    _session.recorded.clear()


def stats() -> dict[str, Any]:
    """{"graphs": compiled since the last reset, "breaks": places left to Python, each once, "break_reasons": their ids, most frequent first}."""
    found = _session.stats
    reasons = sorted(found.break_reasons, key=lambda r: (-found.break_reasons[r], r))
    return {"graphs": found.graphs, "breaks": found.breaks, "break_reasons": reasons}


def cache_info(cache_dir: str = "") -> dict[str, Any]:
    """What the cache folder holds and what this process has found there since the last ``reset()``.

    {"root", "entries" (captured functions), "libraries" (built kernels), "nbytes", "writable", "found", "missed", "kept", "refused": {why: how often}}."""
    return {**vars(open_cache(cache_dir).info()), **vars(_session.kept), "refused": dict(_session.kept.refused)}


def clear_cache(cache_dir: str = "") -> None:
    """Removes what is kept on disk. What is compiled in this process stays; see ``reset``."""
    open_cache(cache_dir).clear()


@overload
def inspect(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "lab",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    stack: Literal["lab", "torch"] = "lab",
    film: bool = False,
    **kwargs: Any,
) -> Trace: ...
@overload
def inspect(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "lab",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    stack: Literal["both"],
    film: bool = False,
    **kwargs: Any,
) -> Both: ...
def inspect(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "lab",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    stack: str = "lab",
    film: bool = False,
    **kwargs: Any,
) -> Trace | Both:
    """Compiles one call of ``fn``, makes it, and gives the trace of every step.

    stack: "lab", this compiler; "torch", the real ``torch.compile`` (``record_torch``); "both", one after the other, as ``Both``: the call is then made
    twice, once with each. backend: a name of ours, which for torch stands for its own ("lab": "inductor"). Raises ``UnknownOption`` for another stack.
    film: records every instruction of our capture too, for the view "film".
    """
    from .observe.trace import Trace

    if stack not in STACKS:
        raise UnknownOption(f"stack={stack!r}", hint=f"one of: {', '.join(STACKS)}")
    traces: dict[str, Trace] = {}
    if stack != "torch":
        trace = traces["lab"] = Trace(getattr(fn, "__qualname__", type(fn).__name__))
        compile(fn, backend=backend, fullgraph=fullgraph, dynamic=dynamic, options={"film": film}, observe=trace.append)(*args, **kwargs)
    if stack != "lab":
        from .observe.torch_reference import record_torch

        traces["torch"] = record_torch(fn, *args, backend=backend, fullgraph=fullgraph, dynamic=dynamic, **kwargs)
    if len(traces) == 1:
        return traces[stack]
    from .observe.compare_data import Both

    return Both(**traces)


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """``fn``, never captured, nor anything it calls; usable as a decorator. ``torch.compiler.disable``'s meaning."""
    return torch.compiler.disable(fn, recursive=recursive)


def mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Says that these dimensions of ``t`` vary: they are symbolic from the first compile. A program that allows one size only
    raises ``ConstraintViolated`` at its first call, naming the line."""
    _mark(t, "_dynamo_dynamic_indices", index)


def mark_static(t: Tensor, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Says that these dimensions of ``t`` (all, by default) are compiled as they come, even when they are seen to vary."""
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else index)


def _mark(t: Tensor, attribute: str, index: Any) -> None:
    wanted = {index} if isinstance(index, int) else set(index)
    wrong = [i for i in wanted if not 0 <= i < t.dim()]
    if wrong:
        raise UnknownOption(f"dimension {wrong[0]} of a tensor with {t.dim()} dimensions", hint=f"0 to {t.dim() - 1}")
    setattr(t, attribute, getattr(t, attribute, set()) | wanted)
