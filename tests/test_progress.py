"""Progress: told as steps begin, shown only of long compiles, gone when they end, one line after an interrupt; what was interrupted is begun again."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
import torch

import compiler_lab
from compiler_lab import pipeline, progress
from compiler_lab.observe.trace import Step, Trace
from compiler_lab.progress import Progress, Surface

from .test_every_view import ATTACK, Page


class Kept(Surface):
    """What was shown, as text; ``seen`` is set at the first."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.last: str | None = None
        self.html = ""
        self.seen = threading.Event()

    def show(self, progress: Progress) -> None:
        self.shown.append(progress.text())
        self.html = progress.html()
        self.seen.set()

    def close(self, last: Progress | None) -> None:
        self.last = last and last.text()


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).sum()


def test_a_long_step_is_shown_while_it_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK", 0.001)
    kept, trace = Kept(), Trace()

    def slow(module: Any, inputs: Any) -> Any:
        assert kept.seen.wait(60), "it is shown while the backend works"
        return module.forward

    with progress.progress(trace.append, after=0, surface=kept) as observe:
        compiler_lab.compile(f, backend=slow, observe=observe)(torch.ones(3))
    assert [s.name for s in trace.steps] == ["capture", "guard"], "the observer is told of every step as without it"
    assert any("backend slow" in text and "compile 1" in text for text in kept.shown) or "capture" in kept.shown[0]
    assert kept.last is None and "<progress" in kept.html
    Page(kept.html)


def test_a_short_compile_shows_nothing() -> None:
    kept = Kept()
    with progress.progress(Trace().append, after=1e9, surface=kept) as observe:
        compiler_lab.compile(f, backend="eager", observe=observe)(torch.ones(3))
    assert kept.shown == [] and kept.last is None


def test_every_step_that_takes_time_is_told_as_it_begins() -> None:
    told: list[str] = []

    class Told(Trace):
        def begin(self, name: str, part: str) -> None:
            told.append(f"{name} {part}".strip())

        def __call__(self, step: Step) -> None:
            self.append(step)

    compiler_lab.compile(f, observe=Told())(torch.ones(5, requires_grad=True))
    assert [t.split()[0] for t in told if t.startswith(("capture", "joint", "build"))] == ["capture", "joint", "build"]
    assert {"lower forward", "schedule backward", "generate forward", "build forward and backward"} <= set(told)
    assert set(pipeline.STEPS) - {t.removesuffix(" forward").removesuffix(" backward").removesuffix(" forward and") for t in told} == {"plan memory", "guard"}


@pytest.mark.parametrize("at", ["capture", "joint", "partition", "generate"])
def test_an_interrupted_compile_says_how_far_it_came_and_is_begun_again(at: str) -> None:
    kept, trace = Kept(), Trace()
    x = torch.arange(6.0, requires_grad=True)
    compiled = compiler_lab.compile(f)

    def interrupt(step: Step) -> None:
        trace.append(step)
        if step.name == at:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), progress.progress(interrupt, after=1e9, surface=kept) as observe:
        with compiler_lab.session.recording(observe):
            compiled(x)
    assert kept.last is not None and "interrupted after" in kept.last and f"after {at}" in kept.last
    assert trace.steps[-1].name == at
    torch.testing.assert_close(compiled(x), f(x))
    again = Trace()
    with compiler_lab.session.recording(again.append):
        compiled(x)
        compiled(x.detach().double())
    assert {s.graph for s in again.steps} == {0}, "the first is compiled by now, the second compiles as ever"


def test_without_a_notebook_and_a_terminal_the_observer_is_handed_on() -> None:
    observe = Trace().append
    with progress.progress(observe) as given:
        assert given is observe


def test_names_in_progress_are_escaped() -> None:
    shown = Progress(Trace().append, Kept(), 1e9)
    shown.begin(ATTACK, ATTACK)
    page = Page(shown.html())
    assert any("alert(" in word for word in page.words)
    shown.close(interrupted=False)
