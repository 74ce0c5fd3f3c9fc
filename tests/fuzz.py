"""Thousands of generated programs, compiled and compared with Python: ``python -m tests.fuzz --programs 10000 --jobs 2``, or ``make fuzz``.

``--kind language`` (the default) is programs of Python's language (``programs.py``), ``--kind graphs`` graphs of aten operators
(``graph_programs.py``; ``make graphs``), which ``--backend interpreted`` runs without the C++ compiler and ``--backend sanitized`` with its sanitizers.

Each worker is a process of its own, so that a crash or a program that never ends costs one program; its seed is a failure too.
Each failing program is reduced and written to the folder of failures with what differs at its top, ready to become a test in
``regressions/``; ``seeds.txt`` there has one line per failure. Exit code 1 if there was any.
"""

from __future__ import annotations

import collections
import importlib
import logging
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

SECONDS = 60.0  # for one program
REFUSED = "refused: "
KINDS = {"language": ".program_check", "graphs": ".graph_check", "corpus": ".sanitized"}
"""Kinds of programs, and the module with ``program(seed)`` and ``run(seed, text, backend)``."""

app = typer.Typer(add_completion=False)


@app.command()
def main(
    programs: Annotated[int, typer.Option(help="how many programs")] = 10_000,
    first: Annotated[int, typer.Option(help="the first seed")] = 0,
    jobs: Annotated[int, typer.Option(help="processes")] = 2,
    failures: Annotated[Path, typer.Option(help="where failing programs are written")] = Path("fuzz_failures"),
    backend: Annotated[str, typer.Option(help="of all programs; by default eager's for most, the later stages' for one in ten")] = "",
    kind: Annotated[str, typer.Option(help=f"one of {', '.join(KINDS)}")] = "language",
    worker: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    if worker:
        work(range(first, first + programs), failures, backend, kind)
        return
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    batch = max(1, min(500, programs // jobs))
    for start in range(first, first + programs, batch):
        left.put(start)
    run = Run(first + programs, batch, left, failures, backend, kind)
    threads = [threading.Thread(target=run.serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if run.refused:
        print(f"\n{sum(run.refused.values())} refused:", *(f"{count:6} {why}" for why, count in run.refused.most_common()), sep="\n")
    print(f"\n{run.done} programs, {len(run.failed)} failures{': ' + ', '.join(map(str, sorted(run.failed))) if run.failed else ''}")
    raise typer.Exit(1 if run.failed else 0)


def sanitizing() -> dict[str, str]:
    from .sanitized import environment

    return environment()


class Run:
    """What the workers have in common: the batches that are left, and what was found."""

    def __init__(self, end: int, batch: int, left: queue.SimpleQueue[int], failures: Path, backend: str, kind: str) -> None:
        self.end, self.batch, self.left, self.failures, self.backend, self.kind = end, batch, left, failures, backend, kind
        self.done, self.failed, self.start = 0, set[int](), time.monotonic()
        self.refused = collections.Counter[str]()
        self.lock = threading.Lock()

    def serve(self) -> None:
        while True:
            try:
                first = self.left.get_nowait()
            except queue.Empty:
                return
            last = min(first + self.batch, self.end)
            while first < last:  # a worker that dies is started again behind the program that it died of
                first = self.worker(first, last)

    def worker(self, first: int, last: int) -> int:
        given = {"--first": first, "--programs": last - first, "--failures": self.failures, "--backend": self.backend, "--kind": self.kind}
        command = [sys.executable, "-m", "tests.fuzz", "--worker", *(str(part) for option in given.items() for part in option)]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=sanitizing() if self.backend == "sanitized" else None)
            assert process.stdout is not None
            for line in process.stdout:
                seed, _, words = line.rstrip("\n").partition(" ")
                self.tell(int(seed), words)
                first = int(seed) + 1
            if process.wait() != 0 and first < last:
                code = process.returncode
                self.tell(first, f"the process died: {signal.Signals(-code).name if code < 0 else code}")
                errors.seek(0)
                (self.failures / f"{first}.log").write_text(errors.read()[:20_000])
                first += 1
        return first

    def tell(self, seed: int, words: str) -> None:
        with self.lock:
            self.done += 1
            if words.startswith(REFUSED):
                self.refused[words.removeprefix(REFUSED)] += 1
            elif words:
                self.failed.add(seed)
                self.failures.mkdir(parents=True, exist_ok=True)
                with (self.failures / "seeds.txt").open("a") as file:
                    print(seed, words, file=file)
                print(f"\r{seed}: {words}")
            print(f"\r{self.done} programs, {len(self.failed)} failures, {self.done / (time.monotonic() - self.start):.1f} a second", end="", flush=True)


def work(seeds: range, failures: Path, backend: str, kind: str) -> None:
    """One line per program on standard output: its seed, and what differs."""
    from compiler_lab.core.errors import GraphBroken, Unsupported

    from .program_check import reduced, same_failure

    run, program = (getattr(importlib.import_module(KINDS[kind], __package__), name) for name in ("run", "program"))
    logging.disable(logging.ERROR)
    out = sys.stdout
    for seed in seeds:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)  # nothing catches it: the process ends, and the parent says which program it was
        try:
            difference = run(seed, None, backend)
            words = "" if difference is None else " ".join(str(difference).split())[:300]
        except Unsupported as error:  # no difference: the compiler says that it does not do this
            difference, words = None, f"{REFUSED}{error.reason}"
        except GraphBroken as error:
            difference, words = None, f"{REFUSED}{error.why}"
        except Exception as error:  # noqa: BLE001 - a fault of the check itself: it is told as a failure
            difference, words = None, f"{type(error).__name__}: {error}"[:300]
        signal.setitimer(signal.ITIMER_REAL, 0)
        if difference is not None:
            text = reduced(program(seed), same_failure(seed, difference, backend, run))
            failures.mkdir(parents=True, exist_ok=True)
            said = "\n".join(f"# {line}" for line in str(difference).splitlines())
            (failures / f"{seed}.py").write_text(f"# program {seed}\n{said}\n{text}\n")
        print(seed, " ".join(words.split()), file=out, flush=True)


if __name__ == "__main__":
    app()
