"""The progress of a long compile: which steps are done, which is under way, for how long; and, when it is interrupted, how far it came.

In: an observer (``trace.append``), which is told of every step as before. Out: an observer to hand on, whose ``begin`` the runner calls as a step begins.
Always holds: nothing is shown of a compile that takes less than ``AFTER`` seconds; when the block ends nothing stays on the screen but, after an
interrupt, one line; where there is neither a notebook nor a terminal the observer is handed on as it came, and nothing is paid.
PyTorch's counterpart: ``torch/_inductor/compile_worker`` logs; its bar of autotuning. Left out: the real ``torch.compile``, which tells of its steps
when they are over.
"""

from __future__ import annotations

import contextlib
import contextvars
import html
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .observe.trace import Step

LAST = ("build", "guard")  # steps that nothing of the same compile follows, but a guard a build
AFTER, TICK = 1.0, 0.25  # seconds: nothing is shown before, and how often it is renewed
Observer = Callable[["Step"], None]


class Surface(ABC):
    """Where progress is shown."""

    @abstractmethod
    def show(self, progress: Progress) -> None: ...

    @abstractmethod
    def close(self, last: Progress | None) -> None:
        """``last``: what stays, or None."""


class Notebook(Surface):
    """One output of the cell, renewed in place."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, progress: Progress) -> None:
        from IPython.display import display

        bundle = {"text/plain": progress.text(), "text/html": progress.html()}
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def close(self, last: Progress | None) -> None:
        if last is not None:
            self.show(last)
        elif self.handle is not None:
            self.handle.update({"text/plain": "", "text/html": ""}, raw=True)


class Terminal(Surface):
    """One line of stderr, which goes away."""

    def __init__(self) -> None:
        self.live: Any = None

    def show(self, progress: Progress) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self.live is None:
            self.live = Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
            self.live.start()
        self.live.update(Text(progress.text(), overflow="ellipsis", no_wrap=True), refresh=True)

    def close(self, last: Progress | None) -> None:
        if self.live is not None:
            self.live.stop()
        if last is not None:
            print(last.text(), file=sys.stderr)


class Progress:
    """The observer. ``done``: (name, part, seconds) of each step of the compile under way; ``now``: the step that has begun, and when."""

    def __init__(self, observe: Observer, surface: Surface, after: float) -> None:
        self.observe, self.surface, self.after = observe, surface, after
        self.__self__ = getattr(observe, "__self__", None)  # as of ``trace.append``: the session knows by it which trace is recorded
        self.done: list[tuple[str, str, float]] = []
        self.now: tuple[str, str, float] | None = None
        self.compiles, self.started, self.interrupted = 0, 0.0, False
        self.ended = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self, step: Step) -> None:
        self.now = None
        self.done.append((step.name, step.part, step.seconds))
        self.observe(step)

    def begin(self, name: str, part: str) -> None:
        """The step ``name`` begins. A compile begins with its capture, or, for other sizes of a graph, after the last one's end."""
        now = time.perf_counter()
        if name == "capture" or not self.done or self.done[-1][0] in LAST:
            self.done, self.started = [], now
            self.compiles += 1
        self.now = (name, part, now)
        if self.thread is None:
            context = contextvars.copy_context()  # a notebook knows by it whose cell the output belongs to
            self.thread = threading.Thread(target=context.run, args=(self._watch,), name="compiler_lab_progress", daemon=True)
            self.thread.start()

    def _watch(self) -> None:
        while not self.ended.wait(TICK):
            if self.now is not None and time.perf_counter() - self.started > self.after:
                self.surface.show(self)

    def close(self, interrupted: bool) -> None:
        self.ended.set()
        if self.thread is not None:
            self.thread.join()
        self.interrupted = interrupted and self.thread is not None
        self.surface.close(self if self.interrupted else None)

    def under_way(self) -> bool:
        return self.now is not None or (bool(self.done) and self.done[-1][0] not in LAST)

    def share(self) -> float:
        """Of all steps of the pipeline, those that are done."""
        from .pipeline import STEPS

        return len({name for name, _, _ in self.done} & set(STEPS)) / len(STEPS)

    def _words(self) -> tuple[str, str]:
        """What is going on, and what is done."""
        seconds = time.perf_counter() - self.started
        now = self.now
        step = f"{now[0]}{f' ({now[1]})' if now[1] else ''}" if now is not None else "between steps"
        done = ", ".join(f"{name}{f' ({part})' if part else ''} {spent:.1f} s" for name, part, spent in self.done if spent >= 0.1)
        most = f"{len(self.done)} steps done{f', most time in {done}' if done else ''}"
        if not self.interrupted:
            return f"compile {self.compiles}, {seconds:.1f} s: {step}", most
        at = f"in {step}" if now is not None else f"after {self.done[-1][0]}"
        return f"interrupted after {seconds:.1f} s, {at}", f"{most}; what is compiled stays, and the next call begins this graph again"

    def text(self) -> str:
        head, most = self._words()
        return f"{head} ({most})"

    def html(self) -> str:
        """A fragment in the style of the views, without script."""
        from compiler_lab_widgets.frame import style

        head, most = map(html.escape, self._words())
        bar = f'<progress max="1" value="{self.share():.3f}" aria-label="Steps done" style="width:14em;vertical-align:middle"></progress>'
        how = "" if self.interrupted else "<p><small>Interrupt the kernel to cancel.</small></p>"
        body = f'<div style="padding:8px 14px"><p>{bar} <strong>{head}</strong></p><p><small>{most}</small></p>{how}</div>'
        return f'<div class="clab clab-progress" role="status"><style>{style("progress")}</style>{body}</div>'


@contextlib.contextmanager
def progress(observe: Observer, *, after: float = AFTER, surface: Surface | None = None) -> Generator[Observer]:
    """Shows the progress of what is compiled inside the block and observed by the observer that it yields.

    after: seconds of a compile before anything is shown. surface: the notebook or the terminal that is there; with neither, ``observe`` is yielded."""
    surface = surface or _surface()
    if surface is None:
        yield observe
        return
    shown = Progress(observe, surface, after)
    interrupted = False
    try:
        yield shown
    except KeyboardInterrupt:
        interrupted = shown.under_way()
        raise
    finally:
        shown.close(interrupted)


def _surface() -> Surface | None:
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return Notebook()
    return Terminal() if sys.stderr is not None and sys.stderr.isatty() else None
