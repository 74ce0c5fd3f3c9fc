"""The compiled callable and module: signatures, entries, breaks, errors, threads, limits, resets, leaks."""

from __future__ import annotations

import contextvars
import copy
import functools
import gc
import inspect
import pickle
import random
import sys
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn as nn
from hypothesis import given, settings
from torch import Tensor
from torch._C._dynamo import eval_frame

from compiler_lab.core.errors import BackendFailed, CodegenFailed, GraphBroken, LabError, Unsupported
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import Location
from compiler_lab.frames.assemble import assemble, bytecode_text
from compiler_lab.frames.attempts import interpret, interpret_piece
from compiler_lab.frames.convert import Stats
from compiler_lab.frames.entry import CompiledFunction, compile_function, worth_capturing
from compiler_lab.frames.frame import FrameInput
from compiler_lab.frames.hook import entry_count, surface
from compiler_lab.frames.ir import CapturedGraph, Recipe, Source, Specialization
from compiler_lab.frames.module import OptimizedModule, compile_module
from compiler_lab.frames.signature import signature

from .conftest import run_threads

# older torch has no entries of our own on code that others compile too: frames below a break are Python's there
below_breaks = pytest.mark.skipif(not hasattr(eval_frame, "set_eval_frame_isolate_recompiles_id"), reason="this torch has no isolate ids")


class Lab:
    """A backend that runs the captured graph as it is and counts, and everything that was told about it."""

    def __init__(self) -> None:
        self.graphs: list[CapturedGraph] = []
        self.inputs: list[list[Any]] = []
        self.calls = 0
        self.events: list[tuple[str, Any]] = []
        self.stats = Stats()
        self.made: list[CompiledFunction] = []

    def backend(self, graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        self.inputs.append(inputs)
        forward = graph.module.forward

        def run(*args: Any) -> Any:
            self.calls += 1
            return forward(*args)

        return run

    def compile(self, fn: Callable[..., Any], **options: Any) -> CompiledFunction:
        options.setdefault("backend", self.backend)
        options.setdefault("interpret", interpret_piece)
        backend = options.pop("backend")
        made = compile_function(fn, backend, on_event=lambda kind, payload: self.events.append((kind, payload)), stats=self.stats, **options)
        self.made.append(made)
        return made

    def module(self, module: nn.Module, **options: Any) -> OptimizedModule:
        return compile_module(module, lambda forward: self.compile(forward, **options))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    for compiled in lab.made:  # what it left on code objects that other tests use
        compiled.reset()


X = torch.arange(6.0).reshape(2, 3)


def scaled(x: Tensor, factor: Any = 2) -> Tensor:
    return x * factor + 1


def branching(x: Tensor, factor: Any = 2) -> Tensor:
    if x.sum() > 0:
        return scaled(x, factor) + 1
    return x


# calls and signatures


def test_a_hit_runs_the_compiled_graph_and_nothing_else(lab: Lab) -> None:
    compiled = lab.compile(scaled)
    for n in range(3):
        assert torch.equal(compiled.function(X), scaled(X))
        assert lab.calls == n + 1
    assert lab.kinds() == ["captured"] and lab.stats.graphs == 1 and len(compiled.entries) == 1
    captured = lab.events[0][1]
    assert captured.before == scaled.__code__ and captured.after is compiled.entries[0].code and captured.seconds > 0
    assert lab.inputs[0][0] is X
    assert surface().ef.get_eval_frame_callback() is None


def positional_only(a: Tensor, b: Any = 2, /, c: Any = 3) -> Any:
    return a * b + c


def everything(a: Tensor, b: Any = 2, *rest: Any, k: Any = 3, **more: Any) -> Any:
    return a * b + k + sum(rest) + sum(more.values())


def keyword_only(*, a: Tensor, b: Any = 2) -> Any:
    return a - b


def one_shadowed(_lab0_locals: Tensor, _lab0_box: Any = 1) -> Any:
    return _lab0_locals + _lab0_box


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (positional_only, (X,), {}),
    (positional_only, (X, 5), {"c": X}),
    (everything, (X,), {}),
    (everything, (X, 3, X, 1.5), {"k": X, "z": X, "w": 2}),
    (everything, (), {"a": X, "b": X}),
    (keyword_only, (), {"a": X}),
    (keyword_only, (), {"b": X, "a": X * 2}),
    (one_shadowed, (X,), {}),
    (lambda: torch.ones(2) + 1, (), {}),
]


@pytest.mark.parametrize("case", range(len(CALLS)))
def test_arguments_are_bound_as_python_binds_them(lab: Lab, case: int) -> None:
    fn, args, kwargs = CALLS[case]
    compiled = lab.compile(fn, fullgraph=True).function
    for n in range(2):
        torch.testing.assert_close(compiled(*args, **kwargs), fn(*args, **kwargs), rtol=0, atol=0)
        assert lab.calls == n + 1
    assert inspect.signature(compiled) == inspect.signature(fn)
    assert (compiled.__name__, compiled.__qualname__, compiled.__doc__, compiled.__module__) == (fn.__name__, fn.__qualname__, fn.__doc__, fn.__module__)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((X, 1, 2, 3), {}), ((X,), {"unknown": 1}), ((X,), {"a": X})])
def test_bad_calls_raise_the_functions_own_type_error(lab: Lab, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError) as expected:
        positional_only(*args, **kwargs)
    with pytest.raises(TypeError) as got:
        lab.compile(positional_only).function(*args, **kwargs)
    assert str(got.value) == str(expected.value) and not lab.events


def test_methods_bind_and_callable_objects_are_called(lab: Lab) -> None:
    class Scaler:
        def __init__(self, by: float) -> None:
            self.by = by

        def scale(self, x: Tensor) -> Tensor:
            return x * self.by

        def __call__(self, x: Tensor) -> Tensor:
            return x + self.by

    two, three = Scaler(2.0), Scaler(3.0)
    assert torch.equal(lab.compile(two.scale).function(X), X * 2)
    assert torch.equal(lab.compile(three)(X), X + 3)
    assert torch.equal(lab.compile(functools.partial(scaled, factor=4)).function(X), X * 4 + 1)
    assert torch.equal(lab.compile(torch.relu).function(X), X.relu())
    Scaler.scale = lab.compile(Scaler.scale).function  # type: ignore[method-assign]
    assert torch.equal(two.scale(X), X * 2) and torch.equal(three.scale(X), X * 3) and torch.equal(two.scale(X), X * 2)
    with pytest.raises(LabError, match="not callable"):
        lab.compile(3)  # type: ignore[arg-type]


def test_compiling_what_is_compiled_compiles_the_original(lab: Lab) -> None:
    once = lab.compile(scaled).function
    twice = lab.compile(once)
    assert twice._fn is scaled and torch.equal(twice.function(X), scaled(X))
    assert lab.compile(torch.compile(scaled, backend="eager"))._fn is scaled


# entries


def test_each_kind_of_call_has_its_entry_and_none_is_made_twice(lab: Lab) -> None:
    compiled = lab.compile(scaled)
    calls: list[tuple[Any, ...]] = [(X, 2), (X, 3), (X, X), (X.double(), 2), (X[:1], 2), (X.t(), 2), (X, 2.0)]
    for _ in range(3):
        for args in calls:
            assert torch.equal(compiled.function(*args), scaled(*args))
    assert lab.stats.graphs == len(calls) == len(compiled.entries)
    failures = [payload.failures for kind, payload in lab.events if kind == "recompile"]
    assert [f.text().startswith("L['factor']: expected 2; got 3 (int)") for f in failures[0]] == [True]
    assert "test_entry.py" in failures[0][0].text() and len(failures[-1]) == len(calls) - 1


def test_the_entry_used_last_is_first(lab: Lab) -> None:
    compiled = lab.compile(scaled)
    compiled.function(X, 2)
    compiled.function(X, 3)
    newest = compiled.entries[0]
    compiled.function(X, 2)
    assert compiled.entries[1] is newest


def test_state_of_torch_is_guarded(lab: Lab) -> None:
    compiled = lab.compile(scaled).function
    x = X.clone().requires_grad_()
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert lab.stats.graphs == 2
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))  # type: ignore[arg-type]


FACTOR: Any = 2


def with_global(x: Tensor) -> Tensor:
    return x * FACTOR


def test_globals_and_free_variables_are_read_at_each_call(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = lab.compile(with_global, fullgraph=True).function
    assert torch.equal(compiled(X), X * 2)
    monkeypatch.setitem(globals(), "FACTOR", X)
    assert torch.equal(compiled(X), X * X)
    shift: Any = 1
    late: Any

    def shifted(x: Tensor, early: bool = True) -> Tensor:
        return x + shift if early else x + late

    compiled = lab.compile(shifted, fullgraph=True).function
    assert torch.equal(compiled(X), X + 1)
    shift = X * 2
    assert torch.equal(compiled(X), X * 3)
    before = lab.stats.graphs
    shift = X * 3
    assert torch.equal(compiled(X), X * 4) and lab.stats.graphs == before
    late = 5
    assert torch.equal(compiled(X, False), X + 5)


def test_globals_of_a_namespace_that_is_no_module(lab: Lab) -> None:
    space: dict[str, Any] = {"k": 2}
    exec("def f(x):\n    return x * k", space)
    compiled = lab.compile(space["f"], fullgraph=True).function
    assert torch.equal(compiled(X), X * 2)
    space["k"] = 3
    assert torch.equal(compiled(X), X * 3) and lab.stats.graphs == 2


def test_an_entry_whose_object_is_gone_makes_room(lab: Lab) -> None:
    compiled = lab.compile(lambda module, x: module(x), options=Options(recompile_limit=1))
    for _ in range(3):

        class Local(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x + 1

        assert torch.equal(compiled.function(Local(), X), X + 1)
        del Local
        lab.events.clear()
        collect()
    assert lab.stats.graphs == 3 and len(compiled.entries) == 1


def test_the_limit_warns_once_and_says_why(lab: Lab) -> None:
    compiled = lab.compile(scaled, options=Options(recompile_limit=2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for factor in range(5):
            assert torch.equal(compiled.function(X, factor), scaled(X, factor))
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert "compiled 2 times" in text and "expected 1; got 2 (int)" in text and "expected 0; got 2 (int)" in text and "recompile_limit" in text
    calls = lab.calls
    compiled.function(X, 0)
    assert lab.calls == calls + 1 and lab.stats.graphs == 2


ARGUMENTS = st.sampled_from(
    [X, X.double(), X[:1], X[0], X.t(), torch.ones(2, 3, dtype=torch.int64), 0, 1, 2, True, 0.0, -0.0, 1.5, None, "a", [X, 1], (X, X), {"p": X}]
)


def combine(a: Any, b: Any = 2, *rest: Any, k: Any = None, **more: Any) -> Any:
    y = a * b if not isinstance(a, (list, tuple, dict)) else a
    if k is not None:
        y = y + k
    if isinstance(y, Tensor) and y.dim() > 1:
        y = y.relu() / (1 + y.abs())
    return {"y": y, "rest": [r + 1 if isinstance(r, Tensor) else r for r in rest], "more": sorted(more), "b": b}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(ARGUMENTS, min_size=1, max_size=4), st.fixed_dictionaries({}, optional={"k": ARGUMENTS, "extra": ARGUMENTS})), min_size=1, max_size=4
    )
)
def test_any_calls_in_any_order_agree_with_python(calls: list[tuple[list[Any], dict[str, Any]]]) -> None:
    lab = Lab()
    compiled = lab.compile(combine)
    try:
        for args, kwargs in calls * 2:
            assert outcome(compiled.function, args, kwargs) == outcome(combine, args, kwargs)
    finally:
        compiled.reset()


def outcome(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> str:
    """The result or the exception, as text that tells values, types, dtypes and signs of zero apart."""
    try:
        return repr(fn(*args, **kwargs))
    except (TypeError, RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


# frames that are left to Python


CONTEXT = contextvars.copy_context()


def through_c(fn: Callable[..., Tensor], *args: Any) -> Tensor:
    """Calls ``fn`` from C, where capture cannot follow."""
    return CONTEXT.run(fn, *args)


def calling_below(x: Tensor, factor: Any = 2) -> Tensor:
    return through_c(scaled, x, factor)


def test_a_break_splits_the_frame(lab: Lab) -> None:
    compiled = lab.compile(branching)
    before = entry_count(scaled.__code__)
    for n in range(4):
        assert torch.equal(compiled.function(X), branching(X))
        assert lab.calls == 2 * (n + 1)
    assert lab.stats.graphs == 2 and entry_count(scaled.__code__) == before
    assert lab.stats.breaks == 1 and lab.stats.break_reasons == {"data-dependent-branch": 1}
    (found,) = compiled.breaks
    line = branching.__code__.co_firstlineno + 1
    assert found.reason == "data-dependent-branch" and found.instruction.startswith("POP_JUMP") and found.stack[-1].line == line
    assert ("break", found) in lab.events


@below_breaks
def test_what_a_broken_instruction_calls_is_captured(lab: Lab) -> None:
    compiled = lab.compile(calling_below)
    before = entry_count(scaled.__code__)
    for n in range(4):
        assert torch.equal(compiled.function(X), scaled(X))
        assert lab.calls == n + 1
    assert lab.stats.graphs == 1
    compiled.reset()
    assert entry_count(scaled.__code__) == before


def test_a_break_is_counted_once_however_often_it_is_met(lab: Lab) -> None:
    compiled = lab.compile(branching)
    for size in range(1, 5):
        compiled.function(torch.ones(size))
    assert lab.stats.breaks == 1 and lab.kinds().count("break") == 1
    other = lab.compile(branching)
    other.function(X)
    assert len(other.breaks) == 1 and lab.stats.breaks == 1


def sometimes(x: Tensor, check: bool) -> Tensor:
    if check and x.sum() > 0:
        return x
    return x * 2


def test_a_break_for_some_arguments_leaves_the_others_whole(lab: Lab) -> None:
    compiled = lab.compile(sometimes)
    assert torch.equal(compiled.function(X, True), X) and len(compiled.entries) == 1
    assert torch.equal(compiled.function(X, False), X * 2) and len(compiled.entries) == 2
    assert torch.equal(compiled.function(X, True), X)
    assert lab.stats.graphs == 2 and lab.stats.breaks == 1


def test_a_frame_that_always_breaks_is_not_tried_for_ever(lab: Lab) -> None:
    tries: list[FrameInput] = []

    def counting(frame: FrameInput) -> Specialization:
        tries.append(frame)
        raise Unsupported("never", reason="unknown-value")

    compiled = lab.compile(sometimes, interpret=counting, options=Options(recompile_limit=3))
    for size in range(1, 9):
        for _ in range(2):
            compiled.function(torch.ones(size), False)
    assert len(tries) == 3


def test_fullgraph_names_reason_line_and_remedy(lab: Lab) -> None:
    compiled = lab.compile(branching, fullgraph=True)
    for _ in range(2):
        with pytest.raises(GraphBroken) as error:
            compiled.function(X)
        assert isinstance(error.value.__cause__, Unsupported)
        text = str(error.value)
        assert "branching cannot be captured as one graph" in text and "data-dependent-branch" in text
        assert f"test_entry.py:{branching.__code__.co_firstlineno + 1}" in text and "if x.sum() > 0" in text and "fullgraph=False" in text
    assert not compiled.entries and surface().ef.get_eval_frame_callback() is None


class Tower(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            print(end="")
            x = layer(x).relu()
        return x


@below_breaks
def test_forwards_of_modules_below_a_break_are_captured(lab: Lab) -> None:
    module = Tower(2)
    compiled = lab.compile(lambda x: through_c(module, x))
    for n in range(3):
        torch.testing.assert_close(compiled.function(X), module(X), rtol=0, atol=0)
        assert lab.calls == 2 * (n + 1)
    assert lab.stats.graphs == 2 and "output" in lab.stats.break_reasons


@below_breaks
def test_below_a_break_only_frames_with_tensor_work_are_captured(lab: Lab) -> None:
    seen: list[str] = []

    def watching(frame: FrameInput) -> Specialization:
        seen.append(frame.code.co_name)
        return interpret_piece(frame)

    def no_tensors(a: int) -> int:
        return a + 1

    def passes_on(x: Tensor) -> Tensor:
        return x

    def numbers(x: Tensor) -> Any:
        yield x

    def top(x: Tensor) -> Tensor:
        return through_c(lambda: scaled(passes_on(x), no_tensors(1)) + sum(list(numbers(x))) + max([v for v in (1, 2)]))

    compiled = lab.compile(top, interpret=watching)
    for n in range(3):
        assert torch.equal(compiled.function(X), top(X)) and lab.calls == n + 1
    assert seen == ["top", "<lambda>"] and lab.stats.graphs == 1


@below_breaks
def test_entries_below_a_break_are_specialized_and_limited(lab: Lab) -> None:
    compiled = lab.compile(calling_below, options=Options(recompile_limit=2))
    for factor in (1, 2, 3, 4, 1, 2):
        assert torch.equal(compiled.function(X, factor), scaled(X, factor))
    assert lab.stats.graphs == 2 and entry_count(scaled.__code__) == 2


def test_without_isolated_entries_frames_below_are_left_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older torch, without isolate ids, gives: the function itself is compiled, and nothing is put on shared code."""
    monkeypatch.setattr(surface(), "isolated", False)
    before = entry_count(scaled.__code__)
    below, broken, whole = lab.compile(calling_below), lab.compile(branching), lab.compile(scaled)
    for _ in range(2):
        assert torch.equal(below.function(X), scaled(X))
    assert lab.calls == 0
    for n in range(2):
        assert torch.equal(broken.function(X), branching(X)) and torch.equal(whole.function(X), scaled(X))
        assert lab.calls == 3 * (n + 1)
    assert entry_count(scaled.__code__) == before and lab.stats.graphs == 3


def test_generators_and_coroutines_are_pythons(lab: Lab) -> None:
    def values(x: Tensor) -> Any:
        yield x * 2
        yield x * 3

    compiled = lab.compile(values)
    for _ in range(2):
        assert [torch.equal(a, b) for a, b in zip(compiled.function(X), values(X), strict=True)] == [True, True]
    assert [b.reason for b in compiled.breaks] == ["generator"]
    with pytest.raises(GraphBroken):
        lab.compile(values, fullgraph=True).function(X)


def test_recursion_through_the_compiled_function(lab: Lab) -> None:
    def power(x: Tensor, n: int) -> Tensor:
        print(end="")
        return x if n == 0 else x * compiled.function(x, n - 1)

    compiled = lab.compile(power)
    assert torch.equal(compiled.function(X, 4), X**5)


def test_compiled_functions_call_each_other(lab: Lab) -> None:
    low = lab.compile(scaled).function

    def high(x: Tensor) -> Tensor:
        print(end="")
        return low(x) + 1

    compiled = lab.compile(high)
    for n in range(3):
        assert torch.equal(compiled.function(X), scaled(X) + 1) and lab.calls == n + 1
    assert lab.stats.graphs == 1


def test_a_compiled_function_is_part_of_the_graph_that_calls_it(lab: Lab) -> None:
    low = lab.compile(scaled).function
    compiled = lab.compile(lambda x: low(x) + 1, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled.function(X), scaled(X) + 1)
    assert lab.stats.graphs == 1 and lab.calls == 2


# errors


def raising(x: Tensor, bad: bool = True) -> Tensor:
    y = x * 2
    if bad:
        raise ValueError("of the program")
    return y


def shapes(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(("fn", "args"), [(raising, (X,)), (shapes, (X, X))])
def test_the_programs_own_exception_with_its_own_traceback(lab: Lab, fn: Callable[..., Any], args: Any, fullgraph: bool) -> None:
    with pytest.raises(Exception) as expected:
        fn(*args)
    compiled = lab.compile(fn, fullgraph=fullgraph)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as got:
            compiled.function(*args)
        assert str(got.value) == str(expected.value)
        last = traceback.extract_tb(got.value.__traceback__)[-1]
        assert (last.filename, last.lineno) == (__file__, traceback.extract_tb(expected.value.__traceback__)[-1].lineno)
    assert surface().ef.get_eval_frame_callback() is None
    if fn is raising:
        assert torch.equal(compiled.function(X, False), X * 2)


def test_a_frame_expected_to_raise_that_does_not_is_a_break_under_fullgraph(lab: Lab) -> None:
    def wrong(frame: FrameInput) -> Specialization:
        raise Unsupported("it will raise", reason="op-error")

    with pytest.raises(GraphBroken, match="it will raise"):
        lab.compile(scaled, interpret=wrong, fullgraph=True).function(X)


def test_a_fault_of_capture_leaves_the_frame_to_python(lab: Lab) -> None:
    def faulty(frame: FrameInput) -> Specialization:
        raise ZeroDivisionError("in the interpreter")

    compiled = lab.compile(scaled, interpret=faulty)
    for _ in range(2):
        assert torch.equal(compiled.function(X), scaled(X))
    (found,) = compiled.breaks
    assert found.reason == "internal-error" and "ZeroDivisionError: in the interpreter" in found.what
    with pytest.raises(GraphBroken, match="in the interpreter"):
        lab.compile(scaled, interpret=faulty, fullgraph=True).function(X)


def test_guards_that_reject_their_own_frame_are_a_fault(lab: Lab) -> None:
    def wrong(frame: FrameInput) -> Specialization:
        made = interpret(frame)
        guards = tuple(g for g in made.guards if g.kind != "equals")
        stack = made.guards[0].stack
        guard = type(made.guards[0])("equals", Source("local", "factor"), 99, stack)
        return Specialization(made.graph, (*guards, guard), made.result)

    compiled = lab.compile(scaled, interpret=wrong)
    assert torch.equal(compiled.function(X), scaled(X))
    assert compiled.breaks[0].reason == "internal-error" and "does not hold" in compiled.breaks[0].what and not compiled.entries


@pytest.mark.parametrize("error", [RuntimeError("no kernels today"), BackendFailed("its own words"), CodegenFailed("no compiler")])
def test_a_failing_backend_is_the_users_to_see(lab: Lab, error: Exception) -> None:
    failing = True

    def backend(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        if failing:
            raise error
        return lab.backend(graph, inputs)

    compiled = lab.compile(scaled, backend=backend)
    for _ in range(2):
        with pytest.raises(LabError) as got:
            compiled.function(X)
        if isinstance(error, LabError):
            assert got.value is error
        else:
            assert isinstance(got.value, BackendFailed) and got.value.__cause__ is error and "no kernels today" in str(got.value)
        assert not compiled.entries and not compiled.breaks and surface().ef.get_eval_frame_callback() is None
    failing = False
    assert torch.equal(compiled.function(X), scaled(X)) and len(compiled.entries) == 1


@below_breaks
def test_a_failing_backend_below_a_break(lab: Lab) -> None:
    def backend(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        raise RuntimeError("no kernels today")

    compiled = lab.compile(branching, backend=backend)
    for _ in range(2):
        with pytest.raises(BackendFailed):
            compiled.function(X)
    assert surface().ef.get_eval_frame_callback() is None


def test_a_backend_must_return_something_to_call(lab: Lab) -> None:
    with pytest.raises(BackendFailed, match="returned NoneType"):
        lab.compile(scaled, backend=lambda graph, inputs: None).function(X)


def test_a_backend_may_refuse_a_graph(lab: Lab) -> None:
    def backend(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        raise Unsupported("not this one", reason="op-refused")

    compiled = lab.compile(scaled, backend=backend)
    assert torch.equal(compiled.function(X), scaled(X)) and compiled.breaks[0].reason == "op-refused"


def test_an_interrupt_while_compiling_leaves_nothing_behind(lab: Lab) -> None:
    def backend(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        raise KeyboardInterrupt

    compiled = lab.compile(scaled, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled.function(X)
    assert not compiled.entries and not compiled.breaks and surface().ef.get_eval_frame_callback() is None
    assert torch.equal(scaled(X), X * 2 + 1)


def test_capture_draws_no_random_numbers(lab: Lab) -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand(3)

    def backend(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        torch.rand(5)
        random.random()
        return lab.backend(graph, inputs)

    compiled = lab.compile(noisy, backend=backend, fullgraph=True).function
    random.seed(0)
    expected = random.random()
    random.seed(0)
    for _ in range(2):
        torch.manual_seed(3)
        got = compiled(X)
        torch.manual_seed(3)
        assert torch.equal(got, noisy(X))
    assert random.random() == expected


# threads, resets, leaks


def test_first_calls_at_once_compile_once(lab: Lab) -> None:
    def slow(graph: CapturedGraph, inputs: list[Any]) -> Callable[..., Any]:
        time.sleep(0.2)
        return lab.backend(graph, inputs)

    compiled = lab.compile(scaled, backend=slow)
    results: list[Tensor] = []
    run_threads([lambda: results.append(compiled.function(X))] * 4)
    assert len(results) == 4 and all(torch.equal(r, scaled(X)) for r in results)
    assert len(lab.graphs) == 1 == len(compiled.entries) and lab.calls == 4


def test_threads_resets_and_other_kinds_at_once(lab: Lab) -> None:
    whole, broken = lab.compile(scaled), lab.compile(branching)
    inputs = [torch.full((n + 1,), float(n + 1)) for n in range(3)]

    def work(seed: int) -> None:
        for n in range(60):
            x = inputs[(n + seed) % 3]
            for fn, plain in ((whole.function, scaled), (broken.function, branching)):
                assert torch.equal(fn(x), plain(x)), (seed, n, plain)
            if n % 20 == seed:
                whole.reset()
                broken.reset()

    run_threads([partial(work, n) for n in range(4)])
    broken.reset()


def test_reset_drops_entries_and_compiles_again(lab: Lab) -> None:
    compiled = lab.compile(scaled)
    compiled.function(X)
    entry = weakref.ref(compiled.entries[0])
    compiled.reset()
    lab.events.clear()
    collect()
    assert entry() is None and not compiled.entries
    assert torch.equal(compiled.function(X), scaled(X)) and lab.stats.graphs == 2


def test_reset_forgets_breaks(lab: Lab) -> None:
    compiled = lab.compile(branching)
    compiled.function(X)
    compiled.reset()
    lab.stats.clear()
    assert not compiled.breaks and lab.stats == Stats()
    compiled.function(X)
    assert len(compiled.breaks) == lab.stats.breaks == 1 and lab.stats.graphs == 2


def test_reset_from_inside_a_call(lab: Lab) -> None:
    def resetting(x: Tensor) -> Tensor:
        y = scaled(x)
        compiled.reset()
        return scaled(y)

    compiled = lab.compile(resetting)
    for _ in range(3):
        assert torch.equal(compiled.function(X), scaled(scaled(X)))


def collect() -> None:
    for _ in range(3):  # code objects are no objects of the collector: what hangs on one falls in a later round
        gc.collect()


@pytest.mark.parametrize("kind", ["whole", pytest.param("broken", marks=below_breaks), "reset"])
def test_nothing_of_a_dropped_function_stays(kind: str) -> None:
    lab = Lab()

    def make() -> list[weakref.ref[Any]]:
        weight, module = torch.ones(3), nn.Linear(3, 3)

        def below(x: Tensor) -> Tensor:
            return module(x) * weight

        def function(x: Tensor) -> Tensor:
            if kind == "broken":
                print(end="")
            return below(x) + weight

        compiled = lab.compile(function)
        holder = {"compiled": compiled, "function": function}
        function.holder = holder  # type: ignore[attr-defined]  # a cycle through the function itself
        compiled.function(X)
        compiled.function(X)
        assert lab.calls == 2
        if kind == "reset":
            compiled.reset()
        return [weakref.ref(o) for o in (weight, module, function, function.__code__ if False else below, compiled)]

    gone = make()
    lab.made.clear()
    lab.events.clear()
    lab.graphs.clear()
    lab.inputs.clear()
    collect()
    assert [r() for r in gone] == [None] * len(gone)


def test_inputs_are_not_kept_alive(lab: Lab) -> None:
    compiled = lab.compile(scaled)
    x = torch.ones(4)
    compiled.function(x)
    gone = weakref.ref(x)
    lab.inputs.clear()
    lab.events.clear()
    del x
    collect()
    assert gone() is None


def test_torch_compile_on_the_same_functions_is_not_disturbed(lab: Lab) -> None:
    captured: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        captured.append(gm)
        return gm.forward

    torch._dynamo.reset()
    ours, theirs = lab.compile(branching), torch.compile(branching, backend=backend)
    whole, their_whole = lab.compile(scaled), torch.compile(scaled, backend=backend)
    for _ in range(3):
        for fn in (ours.function, theirs):
            assert torch.equal(fn(X), branching(X))
        for fn in (whole.function, their_whole):
            assert torch.equal(fn(X), scaled(X))
    theirs_before = len(captured)
    assert theirs_before >= 2 and lab.stats.graphs == 3
    assert torch.equal(their_whole(X[:1]), scaled(X[:1])) and len(captured) > theirs_before
    inside = torch.compile(lambda x: whole.function(x) + 1, backend=backend)
    for _ in range(2):
        assert torch.equal(inside(X), scaled(X) + 1)
    around = lab.compile(lambda x: their_whole(x) + 1)
    for _ in range(2):
        assert torch.equal(around.function(X), scaled(X) + 1)
    for compiled in (ours, around):
        compiled.reset()
    torch._dynamo.reset()


# modules


def scale_output(module: nn.Module, args: Any, out: Any) -> Any:
    return out * 10


def shift_output(module: nn.Module, args: Any, out: Any) -> Any:
    return out + 5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.gain = 2.0

    def forward(self, x: Tensor, *, bias: Tensor | None = None) -> Tensor:
        y = self.drop(self.norm(self.fc(x))) * self.gain
        return y if bias is None else y + bias


def test_a_compiled_module_looks_like_the_module(lab: Lab) -> None:
    module = Net().eval()
    compiled = lab.module(module, fullgraph=True)
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    assert lab.calls == 1 and compiled._orig_mod is module and isinstance(compiled, nn.Module)
    assert compiled.gain == 2.0 and compiled.fc is module.fc and not compiled.training
    assert [n for n, _ in compiled.named_parameters()] == [f"_orig_mod.{n}" for n, _ in module.named_parameters()]
    assert list(compiled.state_dict()) == [f"_orig_mod.{n}" for n in module.state_dict()]
    assert list(map(id, compiled.parameters())) == list(map(id, module.parameters()))
    assert repr(compiled).startswith("OptimizedModule(\n  (_orig_mod): Net(") and "fc" in dir(compiled)
    compiled.gain = 3.0
    assert module.gain == 3.0 and "gain" not in compiled.__dict__
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    compiled.train()
    assert module.training and module.fc.training and compiled.training
    del compiled.gain
    assert not hasattr(module, "gain")
    with pytest.raises(AttributeError):
        _ = compiled.absent
    assert lab.stats.graphs == 2


def test_training_modules_update_their_buffers(lab: Lab) -> None:
    torch.manual_seed(0)
    module = Net()
    module.drop.p = 0.0
    twin = copy.deepcopy(module)
    compiled = lab.module(module)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), twin(X), rtol=0, atol=0)
    assert torch.equal(module.norm.running_mean, twin.norm.running_mean) and int(module.norm.num_batches_tracked) == 3  # type: ignore[arg-type]


def test_parameters_may_be_replaced_and_trained(lab: Lab) -> None:
    module = Net().eval()
    compiled = lab.module(module)
    compiled(X)
    with torch.no_grad():
        module.fc.weight.mul_(2)
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    module.fc.weight = nn.Parameter(torch.randn(4, 3))
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    assert lab.stats.graphs == 1
    compiled(X).sum().backward()
    assert module.fc.weight.grad is not None
    module.fc.weight.requires_grad_(False)
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    assert lab.stats.graphs == 2


def test_hooks_of_the_module_are_compiled_with_it(lab: Lab) -> None:
    module = Net().eval()
    compiled = lab.module(module)
    handle = module.register_forward_hook(scale_output)
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    assert lab.calls == 1 and not compiled._compiled_around.breaks
    handle.remove()
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
    assert lab.calls == 2
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1)
    try:
        torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)
        assert lab.calls == 3
    finally:
        everywhere.remove()
    own = compiled.register_forward_hook(shift_output)
    torch.testing.assert_close(compiled(X), module(X) + 5, rtol=0, atol=0)
    assert lab.calls == 4
    own.remove()
    module.register_full_backward_hook(lambda m, given, out: None)
    with pytest.raises(GraphBroken):
        lab.module(module, fullgraph=True)(X)


def test_a_new_forward_is_compiled_anew(lab: Lab) -> None:
    module = Net().eval()
    compiled = lab.module(module)
    compiled(X)
    module.forward = lambda x: x * 7  # type: ignore[method-assign]
    assert torch.equal(compiled(X), X * 7)
    del module.forward  # type: ignore[attr-defined]
    torch.testing.assert_close(compiled(X), module(X), rtol=0, atol=0)


def test_compiled_modules_inside_compiled_functions(lab: Lab) -> None:
    inner = lab.module(Net().eval())
    around = lab.compile(lambda x: inner(x) + 1, fullgraph=True)
    for n in range(2):
        torch.testing.assert_close(around.function(X), inner._orig_mod(X) + 1, rtol=0, atol=0)
        assert lab.calls == n + 1
    torchs = torch.compile(Net().eval(), backend="eager")
    assert type(lab.module(torchs)._orig_mod) is Net  # type: ignore[arg-type]


def test_copies_and_pickles_of_compiled_modules(lab: Lab) -> None:
    module = Net().eval()
    compiled = lab.module(module)
    compiled(X)
    twin = copy.deepcopy(compiled)
    assert isinstance(twin, OptimizedModule) and twin._orig_mod is not module
    torch.testing.assert_close(twin(X), module(X), rtol=0, atol=0)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert type(loaded) is Net
    torch.testing.assert_close(loaded(X), module(X), rtol=0, atol=0)
    assert lab.module(compiled)._orig_mod is module


def test_containers_stay_containers(lab: Lab) -> None:
    compiled = lab.module(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    assert len(compiled) == 2 and isinstance(compiled[1], nn.ReLU) and [type(m) for m in compiled] == [nn.Linear, nn.ReLU]
    assert bool(compiled) and bool(lab.module(Net()))


# replacement code


def code_for(fn: Callable[..., Any], recipe: Recipe, compiled: Callable[..., Any] | None = None, inputs: tuple[Source, ...] = (), **locals: Any) -> Any:
    function: types.FunctionType = fn  # type: ignore[assignment]
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"p{n}") for n in range(len(inputs))]
    graph.output(tuple(nodes))
    made = CapturedGraph(torch.fx.GraphModule({}, graph), inputs)
    frame = FrameInput(
        function.__code__, locals, function.__globals__, __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__), function.__closure__ or ()
    )
    code = assemble(Specialization(made, (), recipe), compiled, frame)
    return types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


def test_every_recipe_builds_its_value() -> None:
    free = "free"

    def original(a: Any, *rest: Any, k: int = 1, **more: Any) -> Any:
        inner = lambda: (a, free)
        return inner

    source = lambda s: Recipe("source", s)
    a, rest = Source("local", "a"), Source("local", "rest")
    parts = (
        Recipe("output", 1), Recipe("output", 0), source(Source("closure", "free")), source(Source("item", 1, rest)), source(Source("local", "k")),
        source(Source("dict_item", "z", Source("local", "more"))), source(Source("global", ("FACTOR",))), source(Source("attr", "real", a)),
        source(Source("type_attr", "__add__", a)), Recipe("constant", None), Recipe("list", None, (Recipe("constant", 1), Recipe("constant", 2))),
        Recipe("set", None, (Recipe("constant", 1),)), Recipe("dict", ("p", 3), (source(a), Recipe("constant", -0.0))),
        Recipe("slice", None, (Recipe("constant", None), source(a), Recipe("constant", 2))), Recipe("call", max, (source(a), Recipe("constant", 9))),
        source(Source("attr", "pi", Source("constant", sys.modules["math"]))), source(Source("global", ("len",))),
    )  # fmt: skip
    seen: list[Any] = []

    def compiled(*args: Any) -> list[str]:
        seen.append(args)
        return ["first", "second"]

    run = code_for(original, Recipe("tuple", None, parts), compiled, (a, Source("item", 0, rest)), a=5, rest=(1, 2), k=1, more={"z": 3}, free=free)
    expected = (
        "second",
        "first",
        "free",
        20,
        1,
        30,
        FACTOR,
        5,
        int.__add__,
        None,
        [1, 2],
        {1},
        {"p": 5, 3: -0.0},
        slice(None, 5, 2),
        9,
        sys.modules["math"].pi,
        len,
    )
    assert run(5, 10, 20, k=1, z=30) == expected and seen == [(5, 10)]
    assert run.__code__.co_firstlineno == original.__code__.co_firstlineno and run.__code__.co_freevars == original.__code__.co_freevars
    assert {p[2] for p in run.__code__.co_lines()} == {original.__code__.co_firstlineno}


def test_shared_prefixes_are_read_once_and_texts_have_no_addresses() -> None:
    class Counting:
        reads = 0

        @property
        def part(self) -> list[int]:
            type(self).reads += 1
            return [1, 2, 3]

    part = Source("attr", "part", Source("local", "a"))
    run = code_for(lambda a: a, Recipe("tuple", None, tuple(Recipe("source", Source("item", n, part)) for n in range(3))), a=Counting())
    Counting.reads = 0
    assert run(Counting()) == (1, 2, 3) and Counting.reads == 1
    text = bytecode_text(run.__code__)
    assert "LOAD_ATTR part" in text and "0x" not in text and text == bytecode_text(run.__code__)
    assert "<function" in bytecode_text(code_for(lambda a: a, Recipe("output", 0), lambda *a: a, (Source("local", "a"),), a=1).__code__)


def test_a_graph_without_outputs_is_called_for_its_effects() -> None:
    calls: list[Any] = []
    graph = torch.fx.Graph()
    graph.output(())
    frame = FrameInput((lambda a: None).__code__, {"a": 1}, globals(), {})
    code = assemble(
        Specialization(CapturedGraph(torch.fx.GraphModule({}, graph), (Source("local", "a"),)), (), Recipe("constant", None)), lambda *a: calls.append(a), frame
    )
    assert types.FunctionType(code, globals())(7) is None and calls == [(7,)]


def test_a_recipe_that_names_no_output_is_refused() -> None:
    with pytest.raises(LabError, match="graph output 3"):
        code_for(lambda a: a, Recipe("output", 3), lambda *a: a, (Source("local", "a"),), a=1)


# small things


def test_signatures_tell_calls_apart() -> None:
    values: list[Any] = [
        X,
        X.double(),
        X[:1],
        X.clone().requires_grad_(),
        1,
        True,
        1.0,
        "a",
        None,
        [1],
        (1,),
        [2],
        {"a": 1},
        {"a": 2},
        nn.Linear(1, 1),
        nn.Linear(1, 1).eval(),
        object(),
    ]
    seen = [signature({"x": v}) for v in values]
    assert len(set(seen)) == len(seen)
    assert signature({"<globals>": 1, "x": X}) == signature({"<globals>": 2, "x": torch.zeros(2, 3)})


def test_which_frames_below_a_break_are_looked_at() -> None:
    assert worth_capturing(scaled.__code__) and worth_capturing(nn.Linear.forward.__code__)
    assert not worth_capturing(nn.Module.__call__.__code__) and not worth_capturing(inspect.signature.__code__)
    assert not worth_capturing(compile("x = 1", "f.py", "exec"))
    assert not worth_capturing(next(c for c in compile("class A:\n    x = 1", "f.py", "exec").co_consts if isinstance(c, types.CodeType)))
    assert Location("f.py", 1).file == "f.py"
