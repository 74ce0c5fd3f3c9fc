"""Runs tests in a copy of the project, in processes that have torch but not the project: what the tests run, and whether they notice a change.

``Copy`` holds the files, with one of them altered at a time. ``forked`` runs pytest in a child that imports the project from there, so a mutant
costs what its tests cost; kernels come from a cache by content that all children share. ``Recorder`` and ``Chosen`` are pytest's plugins:
the first writes down which lines of which file each test runs, and its seconds; the second runs named tests in order, each with a limit.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

HEAVY = (
    "torch", "torch._dynamo", "torch._decomp", "torch._subclasses.fake_tensor", "torch.fx.experimental.proxy_tensor", "torch.testing", "torch._inductor",
    "hypothesis", "hypothesis.strategies", "networkx", "mpmath", "numpy",
)  # fmt: skip
"""What every child needs and no mutant changes."""

PLUGINS = ("-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider")
"""Of pytest: those that are installed beside it take seconds to import."""

SECONDS, TIMES = 20.0, 10
"""A test that takes so many seconds of the processor more than so many times what it should take hangs."""

WAITING = 3600.0
"""So does what takes so many seconds by the clock."""


@dataclass(frozen=True)
class Cost:
    """What a test takes: its seconds, and the lines it runs of each file that is recorded."""

    seconds: float
    lines: dict[str, frozenset[int]] = field(default_factory=dict[str, frozenset[int]])


class Copy:
    """The project in a folder of its own; what an earlier copy there left is written over."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.root, self.package = folder, folder / "compiler_lab"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("compiler_lab", "widgets", "tests", "pyproject.toml"):
            source = project / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
            else:
                shutil.copy2(source, folder / name)

    @contextmanager
    def altered(self, path: str, text: str) -> Generator[None]:
        """The file has another text meanwhile. Its time changes with it: what Python compiled of the old text does not stand for the new."""
        file = self.package / path
        before, stat = file.read_text(), file.stat()
        file.write_text(text)
        os.utime(file, (stat.st_atime, stat.st_mtime + 100))
        try:
            yield
        finally:
            file.write_text(before)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def load() -> None:
    for name in HEAVY:
        importlib.import_module(name)


def forked(copy: Copy, log: Path, work: Callable[[], int], write: bool) -> tuple[int, float]:
    """(exit status or minus signal, seconds) of ``work`` in a child whose project is the copy. ``write``: it may keep compiled Python files."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _move_into(copy, log, write)
            signal.setitimer(signal.ITIMER_REAL, WAITING)
            code = work()
        except BaseException as error:  # noqa: BLE001 - a child never returns into the parent's code
            print(repr(error), file=sys.__stderr__)
            code = 70
        sys.stdout.flush()
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    try:
        os.killpg(child, signal.SIGKILL)  # compilers that it may have started
    except ProcessLookupError:
        pass
    return os.waitstatus_to_exitcode(status), time.monotonic() - start


def _move_into(copy: Copy, log: Path, write: bool) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.chdir(copy.root)
    paths = [str(copy.root), str(copy.root / "widgets")]
    sys.path[:0] = paths
    os.environ.update(PYTHONPATH=os.pathsep.join(paths), COMPILER_LAB_TEST_CACHE=str(copy.root / "cache"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    for name in [n for n in sys.modules if n.partition(".")[0] in ("tests", "compiler_lab", "compiler_lab_widgets")]:
        del sys.modules[name]
    sys.dont_write_bytecode = not write
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Recorder:
    """Which lines of ``package``'s ``paths`` each test runs."""

    def __init__(self, package: Path, paths: Sequence[str], out: Path) -> None:
        self.files = {str(package / p): p for p in paths}
        self.out, self.tests = out, dict[str, Any]()
        self.seen: dict[str, set[int]] = {}

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        path = self.files.get(frame.f_code.co_filename)
        if path is None:
            return None
        lines = self.seen.setdefault(path, set())
        lines.add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return line

        return line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.seen, start = {}, time.process_time()
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.tests[item.nodeid] = {"seconds": time.process_time() - start, "lines": {p: sorted(n) for p, n in self.seen.items()}, "passed": True}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed = {*getattr(self, "failed", ()), report.nodeid}

    def pytest_sessionfinish(self) -> None:
        passed = {name: facts for name, facts in self.tests.items() if name not in getattr(self, "failed", ())}
        self.out.write_text(json.dumps(passed))


class Chosen:
    """Only these tests, in this order; one that does not end in its time ends the process."""

    def __init__(self, costs: Sequence[tuple[str, float]]) -> None:
        self.order = {name: i for i, (name, _) in enumerate(costs)}
        self.seconds = dict(costs)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])
        made: dict[tuple[str, ...], list[pytest.Item]] = {}  # what a module's fixture is made for stands together: it would be made again at each change
        for item in chosen:
            made.setdefault(_made_for(item), []).append(item)
        items[:] = [item for group in made.values() for item in group]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        signal.setitimer(signal.ITIMER_PROF, SECONDS + TIMES * self.seconds[item.nodeid])
        return (yield)


def _made_for(item: pytest.Item) -> tuple[str, ...]:
    """The parameters of fixtures that live longer than a test."""
    spec = getattr(item, "callspec", None)
    return () if spec is None else tuple(f"{name}={spec.params[name]}" for name, scope in sorted(spec._arg2scope.items()) if scope.value != "function")


def record(copy: Copy, file: str, paths: Sequence[str], log: Path) -> dict[str, Cost]:
    """What each passing test of ``tests/FILE`` costs, in the project as it is."""
    out = copy.root / f"{file}.json"

    def work() -> int:
        pytest.main([*PLUGINS, "-q", f"tests/{file}"], plugins=[Recorder(copy.package, paths, out)])
        return 0

    code, _ = forked(copy, log, work, True)
    assert code == 0 and out.exists(), f"the tests of {file} could not be recorded: see {log}"
    return {name: Cost(t["seconds"], {p: frozenset(n) for p, n in t["lines"].items()}) for name, t in json.loads(out.read_text()).items()}


@dataclass(frozen=True)
class Job:
    """A mutant: a file of the copy with another text, and the tests to try, in order, with their seconds."""

    path: str
    text: str
    tests: Sequence[tuple[str, float]]


class Forks:
    """Runs each job in a fork of a process that has imported the project and collected the tests: functions get the code that their other text has."""

    def __init__(self, copy: Copy, jobs: Sequence[Job], out: Path) -> None:
        self.copy, self.jobs, self.out, self.failed = copy, jobs, out, ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for number, job in enumerate(self.jobs):
            start, said = time.monotonic(), self.out.with_suffix(".said")
            said.write_text("")
            child = os.fork()
            if child == 0:
                os.setsid()
                os._exit(self._try(job, [(items[name], seconds) for name, seconds in job.tests], said))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with self.out.open("a") as file:
                print(json.dumps([number, code, said.read_text(), time.monotonic() - start]), file=file)
        return True

    def _try(self, job: Job, tests: Sequence[tuple[pytest.Item, float]], said: Path) -> int:
        if not recoded(self.copy.package / job.path, job.text):
            return NOT_RECODED
        for (item, seconds), (following, _) in zip(tests, [*tests[1:], (None, 0.0)], strict=True):
            signal.setitimer(signal.ITIMER_PROF, SECONDS + TIMES * seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                said.write_text(self.failed)
                return 1
        return 0


NOT_RECODED = 71


def recoded(path: Path, text: str) -> bool:
    """Gives every function of the file the code it has in ``text``; False where one cannot have it, for it reaches other variables."""
    before, after = (codes(compile(source, str(path), "exec")) for source in (path.read_text(), text))
    changed = {key for key, code in after.items() if key in before and before[key] != code}
    found = 0
    for f in gc.get_objects():
        if isinstance(f, FunctionType) and f.__code__.co_filename == str(path):
            key = (f.__code__.co_qualname, f.__code__.co_firstlineno)
            if key in changed:
                if f.__code__.co_freevars != after[key].co_freevars:
                    return False
                f.__code__ = after[key]
                found += 1
    return found > 0


def codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """(name, line) -> code, of all that is defined in it."""
    found = {(code.co_qualname, code.co_firstlineno): code}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= codes(inner)
    return found


def verdicts(copy: Copy, jobs: Sequence[Job], log: Path) -> list[tuple[str, str, float] | None]:
    """For each job what ``verdict`` says; None where functions cannot have the code."""
    out = copy.root / "verdicts.jsonl"
    out.unlink(missing_ok=True)
    files = list(dict.fromkeys(name.partition("::")[0] for job in jobs for name, _ in job.tests))

    def work() -> int:
        return pytest.main([*PLUGINS, "-q", *files], plugins=[Forks(copy, jobs, out)])

    forked(copy, log, work, False)
    found: list[tuple[str, str, float] | None] = []
    for _, code, said, seconds in map(json.loads, out.read_text().splitlines()):
        found.append(None if code == NOT_RECODED else _outcome(code, said, len(jobs[len(found)].tests), seconds))
    return found


def _outcome(code: int, by: str, count: int, seconds: float) -> tuple[str, str, float]:
    if code == 0:
        return "survived", f"{count} tests", seconds
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        return "hung", "a test did not end", seconds
    return "killed", by.removeprefix("tests/") or (f"the process died: {signal.Signals(-code).name}" if code < 0 else f"pytest ended with {code}"), seconds


def verdict(copy: Copy, path: str, text: str, tests: Sequence[tuple[str, float]], log: Path) -> tuple[str, str, float]:
    """("killed" | "hung" | "survived", by which test or how, seconds) of the project with another text of a file. ``tests`` with their seconds, in order."""
    files = list(dict.fromkeys(name.partition("::")[0] for name, _ in tests))

    def work() -> int:
        return pytest.main([*PLUGINS, "-x", "-q", "--tb=line", *files], plugins=[Chosen(tests)])

    with copy.altered(path, text):
        code, seconds = forked(copy, log, work, False)
    said = log.read_text(errors="replace")
    first = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    by = first.split(" - ")[0].removeprefix("FAILED ").removeprefix("ERROR ").removeprefix("tests/")
    return _outcome(code, by, len(tests), seconds)
