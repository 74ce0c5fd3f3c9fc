"""The frame hook: which frames are shown, what a region leaves behind, when resets happen, and what cannot be worked with."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_lab
from compiler_lab.core.errors import BackendFailed, GraphBroken, LabError
from compiler_lab.frames import hook as hook_module
from compiler_lab.frames.hook import Answer, GuardRoot, Surface, entry_count, frame_hook, frame_names, surface

from .conftest import run_threads, through_the_hook


def inner(x: int) -> int:
    return x + 1


def outer(x: int) -> int:
    return inner(x) * 2


def fresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a code object of its own: marks of other tests are not on it."""
    copy: types.FunctionType = fn  # type: ignore[assignment]
    return types.FunctionType(copy.__code__.replace(), {**copy.__globals__}, copy.__name__, copy.__defaults__, copy.__closure__)


def linked() -> tuple[Any, Any]:
    """Fresh copies of ``outer`` and of the ``inner`` that it calls."""
    low, high = fresh(inner), fresh(outer)
    high.__globals__["inner"] = low
    return high, low


class Watch:
    """A callback that notes the frames of this file and answers by name."""

    def __init__(self, **answers: Answer) -> None:
        self.answers, self.names, self.key = answers, list[str](), object()
        self._torchdynamo_orig_backend = self.key

    def __call__(self, frame: Any, cache_entry: Any, state: dict[Any, Any]) -> Answer:
        if frame.f_code.co_filename != __file__:
            return frame_hook().skip
        self.names.append(frame.f_code.co_name)
        return self.answers.get(frame.f_code.co_name, frame_hook().skip)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        self.names.clear()
        with frame_hook().region(self):
            return fn(*args)


def current_callback() -> Any:
    return surface().ef.get_eval_frame_callback()


def test_skip_is_asked_once_and_looks_below() -> None:
    high, _ = linked()
    watch = Watch()
    assert watch.run(high, 1) == 4 and watch.names == ["outer", "inner"]
    assert watch.run(high, 1) == 4 and watch.names == []


def test_hide_hides_what_is_below() -> None:
    high, low = linked()
    watch = Watch(outer=frame_hook().hide)
    assert watch.run(high, 1) == 4 and watch.names == ["outer"]
    assert watch.run(low, 1) == 2 and watch.names == ["inner"]


def test_once_asks_again() -> None:
    high, _ = linked()
    watch = Watch(outer=frame_hook().once)
    for _ in range(2):
        watch.run(high, 1)
        assert "outer" in watch.names


def test_whole_replaces_the_frame_while_its_guards_hold() -> None:
    high, low = linked()
    root = GuardRoot()
    node = root.step(root.manager, "framelocals", ("x", 0), "x")
    root.leaf(node, "equals_match", 1, text="x is 1")
    watch = Watch(inner=frame_hook().whole(fresh(lambda x: x + 10).__code__, root, None))
    assert watch.run(high, 1) == 22 and watch.names == ["outer", "inner"]
    assert watch.run(high, 1) == 22 and watch.names == []
    watch.answers["inner"] = frame_hook().freeze
    assert watch.run(high, 2) == 6 and watch.names == ["inner"]
    assert watch.run(high, 1) == 22 and watch.run(high, 3) == 8 and watch.names == []
    assert entry_count(low.__code__) == 1
    assert high(1) == 4, "outside a region nothing is replaced"


def test_entries_belong_to_their_key() -> None:
    high, low = linked()
    mine, other = Watch(inner=frame_hook().whole(fresh(lambda x: x + 10).__code__, GuardRoot(), None)), Watch()
    assert mine.run(low, 1) == 11
    assert other.run(low, 1) == 2 and other.names == ["inner"]
    assert high(1) == 4


def test_the_previous_hook_is_back_after_a_region() -> None:
    assert current_callback() is None
    outside, inside = Watch(), Watch()
    with frame_hook().region(outside):
        shown = current_callback()
        with frame_hook().region(inside):
            assert current_callback() not in (None, shown)
        assert current_callback() is shown
    assert current_callback() is None
    with pytest.raises(ZeroDivisionError), frame_hook().region(outside):
        _ = 1 // 0
    assert current_callback() is None
    if surface().isolated:
        assert surface().ef.get_eval_frame_isolate_recompiles_id() != hook_module.BUCKET


def test_an_exception_in_a_callback_reaches_the_caller_and_ends_the_region() -> None:
    def callback(frame: Any, cache_entry: Any, state: Any) -> Answer:
        if frame.f_code.co_filename == __file__:
            raise KeyboardInterrupt
        return frame_hook().skip

    high, _ = linked()
    with pytest.raises(KeyboardInterrupt), frame_hook().region(callback):
        high(1)
    assert current_callback() is None and high(1) == 4


def regions() -> None:
    high, _ = linked()
    with frame_hook().region(Watch()), frame_hook().region(Watch()), frame_hook().region(None), frame_hook().region(Watch()):
        high(1)


def nested() -> None:
    """The inner region ends by an exception; the outer one goes on showing frames."""
    high, _ = linked()
    outside = Watch()
    with frame_hook().region(outside):
        with pytest.raises(ZeroDivisionError), frame_hook().region(lambda frame, cache_entry, state: 1 // 0):  # type: ignore[arg-type, return-value]
            high(1)
        outside.names.clear()
        assert high(1) == 4 and outside.names == ["outer", "inner"]


def caught_below() -> None:
    """The program catches what comes out of the callback, and its other frames run in Python."""
    _, low = linked()

    def top() -> int:
        with pytest.raises(ZeroDivisionError):
            low(1)
        return low(1)

    def callback(frame: Any, cache_entry: Any, state: Any) -> Answer:
        return frame_hook().skip if frame.f_code is not low.__code__ else 1 // 0  # type: ignore[return-value]

    with frame_hook().region(callback):
        assert top() == 2


def printing(x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return below(x)


def below(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def raising(gm: Any, inputs: Any) -> Any:
    raise ValueError("no")


def compiled(fn: Callable[..., Any], fullgraph: bool, error: type[LabError]) -> Callable[[], None]:
    def run() -> None:
        with pytest.raises(error):
            compiler_lab.compile(fn, backend=raising, fullgraph=fullgraph)(torch.ones(3))

    return run


REGIONS: dict[str, Callable[[], None]] = {
    "in a callback": test_an_exception_in_a_callback_reaches_the_caller_and_ends_the_region,
    "nested": nested,
    "nested, without an exception": regions,
    "caught below": caught_below,
    "backend": compiled(below, False, BackendFailed),
    "backend, below a break": compiled(printing, False, BackendFailed),
    "break": compiled(printing, True, GraphBroken),
}


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("name", REGIONS)
def test_python_does_not_go_through_the_hook_after_a_region(name: str) -> None:
    REGIONS[name]()
    assert not through_the_hook()


@pytest.mark.usefixtures("unhooked")
def test_an_exception_in_a_callback_gives_no_reference_away() -> None:
    """In a process of its own, where nothing else makes and drops references to False."""
    found = subprocess.run([sys.executable, "-c", LOSSES], capture_output=True, text=True, check=True)
    assert abs(int(found.stdout)) < 20


LOSSES = """
import sys
from compiler_lab.frames.hook import frame_hook

def low(x):
    return x + 1

def loss():
    try:
        with frame_hook().region(lambda frame, cache_entry, state: 1 // 0):
            low(1)
    except ZeroDivisionError:
        return
    raise AssertionError("the exception did not come out")

loss()
before = sys.getrefcount(False)
for _ in range(1000):
    loss()
print(sys.getrefcount(False) - before)
"""


def test_other_threads_do_not_see_the_hook() -> None:
    high, _ = linked()
    watch, results = Watch(), list[int]()
    with frame_hook().region(watch):
        run_threads([lambda: results.append(high(1))])
    assert results == [4] and "outer" not in watch.names


def test_resets_wait_for_the_last_region_of_any_thread() -> None:
    _, low = linked()
    watch = Watch(inner=frame_hook().whole(low.__code__.replace(), GuardRoot(), None))
    watch.run(low, 1)
    assert entry_count(low.__code__) == 1
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with frame_hook().region(Watch()):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait(10)
    frame_hook().reset([weakref.ref(low.__code__)])
    assert entry_count(low.__code__) == 1, "a region is in flight"
    leave.set()
    thread.join()
    assert entry_count(low.__code__) == 0
    assert watch.run(low, 1) == 2 and watch.names == ["inner"]


def test_a_reset_of_a_code_that_is_gone() -> None:
    _, low = linked()
    gone = weakref.ref(low.__code__)
    del low, _
    assert gone() is None
    other, _ = linked()
    frame_hook().reset([gone])
    assert entry_count(other.__code__) == 0


def test_ignored_code_is_hidden_from_other_hooks() -> None:
    high, _ = linked()
    frame_hook().ignore(high.__code__)
    seen: list[str] = []

    def callback(frame: Any, cache_entry: Any, state: Any) -> Answer:
        seen.append(frame.f_code.co_name)
        return frame_hook().skip

    previous = surface().ef.set_eval_frame(callback)  # as torch.compile does it, in the shared bucket
    try:
        high(1)
    finally:
        surface().ef.set_eval_frame(previous)
    assert "outer" not in seen and "inner" not in seen


def test_frame_names_are_arguments_then_cells_then_free() -> None:
    free = 1

    def f(a: int, *rest: int, k: int = 2, **more: int) -> Any:
        own = a
        return lambda: (own, free, k)

    assert frame_names(f.__code__)[:4] == ("a", "k", "rest", "more")
    assert set(frame_names(f.__code__)) == {"a", "k", "rest", "more", "own", "free"}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hook_module.NEEDED, "guards", ("RootGuardManager", "not_there"))
    with pytest.raises(LabError, match=r"lacks guards\.not_there") as error:
        Surface()
    assert "install torch" in str(error.value)


def test_an_unknown_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", _Version((3, 13, 0)))
    with pytest.raises(LabError, match=r"Python 3\.13 is not supported"):
        Surface()


class _Version(tuple[int, ...]):
    major, minor = 3, 13


def test_importing_the_stage_loads_neither_dynamo_nor_the_hook() -> None:
    text = "import sys, compiler_lab.frames.entry, compiler_lab.frames.module; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_the_guard_root_shows_values_of_globals() -> None:
    root = GuardRoot()
    names = {"a": 1}
    node = root.step(root.step(root.manager, "globals_dict", names, "G"), "dict_getitem", "a", "G['a']")
    root.leaf(node, "equals_match", 1, text="a is 1")
    assert root.check({})
    names["a"] = 2
    assert not root.check({})
