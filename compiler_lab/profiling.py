"""``profile_call``: where the time of one call of compiled code goes, kernel by kernel.

In: a compiled function (or one that is compiled here) and the arguments of a call. Out: ``CallProfile``, an artifact that the time view shows.
How it is measured: the function is compiled once more in the same way, for itself, and called once; what each of its programs is given is kept. Then, in
turns, so that whatever else the machine does meets all alike: the user's function as it is; each program as it is; each program by the wrapper in Python
over the same library, with a clock around each kernel and each operator. For the wrapper in C has no place for a clock, and gets none: a call that is
not measured costs what it always did. Every figure is the median of its times. A kernel called from Python takes longer than one called from C:
what an empty one takes is measured too and taken away from each. An operator of aten's is called by its Python binding here, by a C function there.
PyTorch's counterpart: ``torch.profiler``, ``TORCHINDUCTOR_BENCHMARK_KERNEL``. Left out: programs of backends other than "lab".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .core.artifact import Artifact, Item
from .core.clock import now
from .core.errors import InvalidIR, Unsupported
from .frames.entry import CompiledFunction
from .frames.module import OptimizedModule
from .observe.trace import Step
from .observe.view import View, view
from .runtime.build import Loadable
from .runtime.program import Program
from .scheduling.ir import LoopGroup
from .session import compile

STAGE = "profile"


class CallProfile(Artifact):
    """The seconds of a call (an item of kind "measured call"), of its programs ("program") and of their kernels and library calls ("kernel", "extern"),
    as facts: the items are about them. In a notebook it is the time view; ``trace.append(profile.step())`` puts it into a trace."""

    stage = STAGE

    def __init__(self, items: tuple[Item, ...]) -> None:
        self._items = items

    def text(self) -> str:
        """What was measured; the times, which differ from run to run, are in ``repr``, the view and the facts."""
        depth = {"measured call": 0, "program": 1}
        return "\n".join("  " * depth.get(i.kind, 2) + i.text + (f": {i.facts['bytes']} bytes" if "bytes" in i.facts else "") for i in self._items)

    def items(self) -> tuple[Item, ...]:
        return self._items

    def check(self) -> None:
        for i in self._items:
            if not i.facts["seconds"] >= 0.0:
                raise InvalidIR(f"{i.id} took {i.facts['seconds']} seconds")

    def run(self, *args: Any) -> dict[str, float]:
        """A measurement computes nothing; it answers with its seconds, by item."""
        return {i.id: i.facts["seconds"] for i in self._items}

    def step(self) -> Step:
        return Step(STAGE, None, self, 0.0)

    def view(self) -> View:
        return view(self, "time")

    def __repr__(self) -> str:
        return self.view().text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.view()._repr_mimebundle_()


def profile_call(fn: Callable[..., Any], *args: Any, repeats: int = 20, backward: bool = False, **kwargs: Any) -> CallProfile:
    """Measures one call of ``fn``, kernel by kernel; see the head of this module for how. ``fn``: what ``compile`` gave, or a function, which is compiled.

    backward: the backward of the sum of all results too; gradients are not accumulated. The function runs ``repeats`` times and twice more, and what
    it does to the world it does as often; random numbers are drawn as if it had not run. Raises ``Unsupported`` where the call runs no program of ours."""
    made = fn if _compiled(fn) is not None else compile(fn)
    compiled = _compiled(made)
    assert compiled is not None and compiled.again is not None
    given = _Given()
    with torch.random.fork_rng(devices=[]):
        _once(compiled.again(observe=given.take).function, args, kwargs, backward)
        if not given.calls:
            what = f"{getattr(fn, '__qualname__', type(fn).__name__)} runs no kernels of ours in this call"
            raise Unsupported(what, reason="no-kernels", hint='compile it with backend="lab", and see explain(f, x) for what is left to Python')
        _once(made, args, kwargs, backward)
        timed = [_Timed(call) for call in given.calls]
        whole: list[float] = []
        for _ in range(repeats):
            whole.append(_once(made, args, kwargs, backward))
            for one in timed:
                one.measure()
    name = getattr(compiled.original, "__qualname__", type(compiled.original).__name__)
    timer = _empty(repeats)
    facts = {"seconds": median(whole), "repeats": repeats, "timer": timer, "language": timed[0].call.program.language, "backward": backward}
    return CallProfile((Item(f"{STAGE}/call", "measured call", f"call of {name}", (), (), facts), *_items(timed, timer)))


def _compiled(fn: Any) -> CompiledFunction | None:
    found = fn._compiled_forward if isinstance(fn, OptimizedModule) else getattr(fn, "_compiled_function", None)
    return found if isinstance(found, CompiledFunction) and found.again is not None else None


def _once(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], backward: bool) -> float:
    """Seconds of one call, and of its backward."""
    start = now()
    result = fn(*args, **kwargs)
    seconds = now() - start
    if backward:
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        leaves, ones = _leaves(made), [torch.ones_like(t) for t in made]
        if not leaves:
            raise Unsupported("nothing that this call gives has a gradient", reason="no-gradient", hint="leave backward=True away")
        start = now()
        torch.autograd.grad(made, leaves, ones, allow_unused=True)
        seconds += now() - start
    return seconds


def _leaves(results: Sequence[Tensor]) -> list[Tensor]:
    """What a backward of ``results`` would accumulate gradients in."""
    found: list[Tensor] = []
    left, seen = [t.grad_fn for t in results if t.grad_fn is not None], set[Any]()
    while left:
        node: Any = left.pop()
        if node not in seen:
            seen.add(node)
            found += [node.variable] if hasattr(node, "variable") else []
            left += [above for above, _ in node.next_functions if above is not None]
    return found


@dataclass
class _Call:
    """One call of a program, with what it was given."""

    name: str
    program: Program
    inputs: list[Any]


@dataclass
class _Given:
    """The observer of a compile whose programs are nobody else's: each is given a call that notes what it is called with."""

    calls: list[_Call] = field(default_factory=list[_Call])

    def take(self, step: Step) -> None:
        if isinstance(step.after, Program):
            program, call, name = step.after, step.after.call, f"graph {step.graph}, {step.part}"
            boxed = getattr(call, "_boxed_call", False)

            def noting(*inputs: Any) -> tuple[Any, ...]:
                self.calls.append(_Call(name, program, [*(inputs[0] if boxed else inputs)]))
                return call(*inputs)

            noting._boxed_call = boxed  # type: ignore[attr-defined]
            program.call = noting


class _Timed:
    """A call of a program, to be made again as it is, and kernel by kernel."""

    def __init__(self, call: _Call) -> None:
        self.call, parts, path = call, Loadable.of(call.program.kernels), call.program.library
        self.plain, self.parted = parts.load(path)[0], parts.one_by_one(path, self._around)
        self.whole: list[float] = []
        self.seconds: list[list[float]] = []
        self.run: list[float] = []
        for way in (self.plain, self.parted):  # the first call of each makes its memory
            self._made(way)

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = now()
            result = function(*args, **kwargs)
            self.run.append(now() - start)
            return result

        return timed

    def _made(self, call: Callable[..., Any]) -> float:
        boxed = getattr(call, "_boxed_call", False)
        inputs = [[*self.call.inputs]] if boxed else self.call.inputs
        start = now()
        with torch.no_grad():
            call(*inputs)
        return now() - start

    def measure(self) -> None:
        self.whole.append(self._made(self.plain))
        self.run.clear()
        self._made(self.parted)
        self.seconds.append([*self.run])


def _empty(repeats: int) -> float:
    """Seconds of a kernel that does nothing, called and timed as the others are."""
    function = ctypes.CDLL(None).abs
    function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int
    times: list[float] = []
    for _ in range(20 * repeats):
        start = now()
        function(0)
        times.append(now() - start)
    return median(times)


def _items(timed: Sequence[_Timed], timer: float) -> list[Item]:
    made: list[Item] = []
    for n, one in enumerate(timed):
        schedule = one.call.program.kernels.schedule
        ident = f"{STAGE}/{n}"
        made.append(Item(ident, "program", one.call.name, (f"{STAGE}/call",), (), {"seconds": median(one.whole)}))
        of = {i.id: i for i in schedule.items()}
        for group, seconds in zip(schedule.groups, zip(*one.seconds, strict=True), strict=True):
            item, took = of[f"{schedule.stage}/{group.name}"], median(seconds)
            if isinstance(group, LoopGroup):
                kind, what, took = "kernel", ", ".join(dict.fromkeys(m.origin or m.name for m in group.nodes)), max(took - timer, 0.0)
            else:
                kind, what = "extern", str(group.node.target)
            facts = {"seconds": took, "bytes": int(sum(item.facts["bytes"].values()))}
            made.append(Item(f"{ident}/{group.name}", kind, what, (ident, item.id), item.stack, facts))
    return made
