"""One random graph, compiled and eager, and the first thing that differs.

In: the text of a module as ``graph_programs.py`` makes it. It is executed by eager, by eager with every float as float64, and compiled with
all of the graph in one piece (``fullgraph``) by the backend ``lab``; each call is followed by a backward through every result that can have
one. Out: None or a ``Difference``; ``Unsupported`` and ``GraphBroken``, with which the compiler refuses a program, are raised: no differences.
Compared: results with their dtypes, shapes, strides and ``requires_grad``, which of them and of the arguments share memory, arguments
afterwards, gradients, and the type of what is raised. Strides are eager's or those of torch's own
fake kernels, by which compilers go, where these say something else. Left out: strides of single elements and of gradients.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab import pipeline
from compiler_lab.core.errors import GraphBroken, Unsupported
from compiler_lab.core.options import Options
from compiler_lab.lowering.program import LoopProgram
from compiler_lab.runtime.program import Program
from compiler_lab.scheduling.artifact import Schedule
from compiler_lab.scheduling.fusion import schedule

from .graph_programs import HEAD, as_doubles, doubled, program
from .program_check import Difference

CALLS = 2
NORMALIZES = re.compile("norm|var|std|cov|corr|cosine")
"""Where eager may be exact by luck: of a row of equal numbers, whose mean is rounded, 1 / sqrt(eps) of the rounding is left."""


@dataclass
class Seen:
    """What one call left behind."""

    error: BaseException | None
    results: list[Any]
    arguments: list[Tensor]
    gradients: list[Tensor | None] | None  # of the arguments; None where there is no backward, or eager refuses it
    memories: list[int]
    differentiable: list[bool]


def called(f: Callable[..., Any], args: Any) -> Seen:
    """One call, and a backward from all results that have a history, each weighted by numbers of its own."""
    leaves = [a for a in args if a.requires_grad]  # an argument that is written may have a history afterwards, which ends at the compiled call
    try:
        results = tree_leaves(f(*args))
    except (Unsupported, GraphBroken):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises is compared
        return Seen(error, [], [a.detach() for a in args], None, [], [])
    numbers: dict[int, int] = {}
    memories = [numbers.setdefault(t.untyped_storage()._cdata, len(numbers)) for t in (*args, *results) if isinstance(t, Tensor)]
    sources = [r for r in results if isinstance(r, Tensor) and r.requires_grad and r.is_floating_point()]
    requires = [isinstance(t, Tensor) and t.requires_grad for t in (*args, *results)]
    gradients = None
    if leaves and sources:
        g = torch.Generator().manual_seed(1)
        weights = [torch.randn(r.shape, generator=g).to(r.dtype) for r in sources]
        with contextlib.suppress(RuntimeError):  # such as of a value that was changed after it was saved; the caller compares whether it was raised
            found: Any = torch.autograd.grad(sources, leaves, weights, allow_unused=True)
            gradients = [d if d is None else d.detach() for d in found]
    return Seen(None, [r.detach() if isinstance(r, Tensor) else r for r in results], [a.detach() for a in args], gradients, memories, requires)


@contextlib.contextmanager
def thresholds(small: dict[str, int]) -> Generator[None]:
    """Code generation with the thresholds ``small``, by module and name."""
    with contextlib.ExitStack() as stack:
        for name, value in small.items():
            module, _, constant = name.partition(".")
            stack.enter_context(mock.patch.object(importlib.import_module(f"compiler_lab.codegen.{module}"), constant, value))
        yield


@contextlib.contextmanager
def interpreting() -> Generator[None]:
    """Programs whose schedules are interpreted in place of built."""

    def made(kernels: Any, options: Any, clocks: Any) -> Any:
        return tuple(map(interpreted, kernels))

    with mock.patch.object(pipeline, "build_many", made):
        yield


@contextlib.contextmanager
def apart_in_memory() -> Generator[None]:
    """Buffers that share no arena: each is an allocation of its own, so that a sanitizer sees the first byte behind it."""

    def planned(program: LoopProgram, options: Options) -> Schedule:
        made = schedule(program, options)
        return replace(made, plan=replace(made.plan, slots=(), arena_bytes=0))

    with mock.patch.object(pipeline, "schedule", planned):
        yield


class Interpreted(Program):
    """A program that needs no library."""

    def check(self) -> None:
        self.kernels.check()


def interpreted(kernels: Any) -> Program:
    boxed = kernels.calls.boxed if kernels.calls is not None else "_boxed_call" in kernels.wrapper

    def call(*inputs: Any) -> tuple[Any, ...]:
        if not boxed:
            return kernels.schedule.run(*inputs)
        given, inputs[0][:] = [*inputs[0]], []
        return kernels.schedule.run(*given)

    call._boxed_call = boxed  # type: ignore[attr-defined]
    return Interpreted(kernels, None, None, call)


WAYS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "": contextlib.nullcontext, "interpreted": interpreting, "sanitized": apart_in_memory,
}  # fmt: skip


def run(seed: int, text: str | None = None, backend: str = "") -> Difference | None:
    """Program number ``seed`` (or ``text``, made from it); ``backend`` "interpreted" leaves out the C++ compiler, "sanitized" builds with its sanitizers."""
    return check(program(seed) if text is None else text, backend)


def check(text: str, backend: str = "") -> Difference | None:
    """Run ``text`` both ways. Raises ``Unsupported`` or ``GraphBroken`` where the compiler refuses it, and what executing the module itself raises."""
    spaces = [{}, {}]
    for space, source in zip(spaces, (text, doubled(text)), strict=True):
        exec(HEAD + source, space)
    space, precise = spaces
    eager, twin, got = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            args, _ = space["inputs"](call)
            twins = as_doubles(args)
            eager.append(called(space["f"], args))
            twin.append(called(precise["f"], twins))
        options = {**space.get("options", {}), "sanitize": backend == "sanitized"}
        try:
            with WAYS[backend](), thresholds(space.get("small", {})):
                compiled = compiler_lab.compile(space["f"], fullgraph=True, dynamic=space.get("dynamic"), options=options)
                got = [called(compiled, space["inputs"](call)[0]) for call in range(CALLS)]
        finally:
            compiler_lab.reset()
    for call, (a, b, c) in enumerate(zip(eager, got, twin, strict=True)):
        if (found := difference(call, a, b, c, 1.0 if NORMALIZES.search(text) else 0.0)) is not None:
            return found
        if [steps(t) for t in a.results] != [steps(t) for t in b.results]:
            known = called_on_fakes(space["f"], space["inputs"](call)[0])
            for i, (x, y, z) in enumerate(zip(a.results, b.results, known, strict=True)):
                if steps(y) not in (steps(x), steps(z)):
                    return Difference(call, f"strides of result {i}", steps(x), steps(y))
    return None


def called_on_fakes(f: Callable[..., Any], args: Any) -> list[Any]:
    """What torch's fake kernels say of the results."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return tree_leaves(f(*(mode.from_tensor(a) for a in args)))


def difference(call: int, want: Seen, got: Seen, twin: Seen, least: float) -> Difference | None:
    if type(want.error) is not type(got.error):
        return Difference(call, "exception", said(want.error), said(got.error))
    if len(want.results) != len(got.results):
        return Difference(call, "results", len(want.results), len(got.results))
    if want.error is None and want.memories != got.memories:
        return Difference(call, "memory", want.memories, got.memories)
    if want.differentiable != got.differentiable:
        return Difference(call, "requires_grad", want.differentiable, got.differentiable)
    parts = [("result", want.results, got.results, twin.results), ("argument", want.arguments, got.arguments, twin.arguments)]
    if want.gradients is not None:
        if got.gradients is None:
            return Difference(call, "gradients", "a backward", "an error in the backward")
        parts.append(("gradient", want.gradients, got.gradients, twin.gradients or [None] * len(want.gradients)))
    for where, a, b, c in parts:
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            z = c[i] if i < len(c) else None
            if (found := apart(x, y, z, least)) is not None:
                return Difference(call, f"{where} {i}", *found)
    return None


def said(error: BaseException | None) -> str:
    return "nothing raised" if error is None else f"{type(error).__name__}: {error}"


def steps(t: Any) -> tuple[int, ...]:
    """Strides of dimensions that have any."""
    return tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1) if isinstance(t, Tensor) and t.numel() else ()


def apart(want: Any, got: Any, twin: Any, least: float) -> tuple[Any, Any] | None:
    """What differs of two results, as texts; ``twin``: the same computed with float64 throughout; ``least``: 1000 units of it are always allowed."""
    if not isinstance(want, Tensor) or not isinstance(got, Tensor):
        return None if type(want) is type(got) and want == got else (want, got)
    facts = [(str(t.dtype), tuple(t.shape)) for t in (want, got)]
    if facts[0] != facts[1]:
        return facts[0], facts[1]
    if torch.equal(want, got):
        return None
    if not want.is_floating_point():
        return f"{want.tolist()}"[:500], f"{got.tolist()}"[:500]
    a, b = want.double(), got.double()
    if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a.isinf(), b.isinf()) or not torch.equal(a[a.isinf()], b[b.isinf()]):
        return shown(want, got, twin)
    a, b = a.nan_to_num(0.0, 0.0, 0.0), b.nan_to_num(0.0, 0.0, 0.0)
    exact = twin.nan_to_num(0.0, 0.0, 0.0) if isinstance(twin, Tensor) and twin.shape == want.shape else a
    unit = torch.finfo(want.dtype).eps
    scale = float(a.abs().max())
    allowed = (8 * unit) * a.abs() + unit * scale * 4
    if bool(((a - b).abs() <= allowed).all()):
        return None
    worst = float((a - exact).abs().max())
    if float((b - exact).abs().max()) <= 3 * worst + 32 * unit * scale + 1000 * unit * least:
        return None
    return shown(want, got, twin)


def shown(want: Tensor, got: Tensor, twin: Any) -> tuple[str, str]:
    return f"{want.tolist()}"[:400] + f" (in float64 {twin.tolist() if isinstance(twin, Tensor) else twin})"[:400], f"{got.tolist()}"[:400]
