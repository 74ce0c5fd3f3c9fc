"""Which loops of a program the compiler turned into vector code, and why not the others: its own remarks, by line.

In: a built program. Out: ``LoopReport``: one item for each innermost loop of the generated source, on demand (the source is compiled once more,
for its remarks alone). Always holds: what is said of a loop is what the compiler said of the code that was built, with the same flags; a loop of
which it says nothing is said to be one that was unrolled or removed.
Where PyTorch does this: nowhere. Sources: g++'s ``-fopt-info-vec-optimized-missed``, clang's ``-Rpass`` remarks.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.artifact import Artifact, Item
from ..core.errors import CodegenFailed, InvalidIR
from .toolchain import SOURCE, compile_command, run_compiler, write_sources

if TYPE_CHECKING:
    from ..codegen.artifact import Kernels
    from .program import Program

SILENT = "the compiler says nothing of this loop: it was unrolled or removed"
FLAGS = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"),
}


@dataclass(frozen=True)
class Loop:
    """An innermost loop: ``line`` (1-based) of its head, ``last`` of its end, ``first`` of the pragma before it, or its head's. ``bytes``: width of
    its vectors, 0 where it has none or it is not said; ``why``: the compiler's reason where it is not vectorised."""

    kernel: str
    first: int
    line: int
    last: int
    vectorised: bool = False
    bytes: int = 0
    why: str = SILENT


class LoopReport(Artifact):
    """The innermost loops of a program, in the order of the source."""

    def __init__(self, program: Program, loops: Sequence[Loop]) -> None:
        self.kernels, self.loops, self.stage = program.kernels, tuple(loops), program.stage

    def text(self) -> str:
        return "\n".join(f"{x.kernel} line {x.line}: {_said(x)}" for x in self.loops) or "no loops"

    def items(self) -> tuple[Item, ...]:
        """One a loop: its parent is the line of the generated source that begins it."""
        lines = {n.number: n for n in self.kernels.lines}
        found: list[Item] = []
        for x in self.loops:
            stack = next((lines[n].stack for n in range(x.line, x.last + 1) if lines[n].stack), ())
            facts = {"kernel": x.kernel, "source_line": x.line, "vectorised": x.vectorised, "bytes": x.bytes, "why": x.why}
            found.append(Item(f"{self.stage}/{x.kernel}:loop{x.line}", "loop", _said(x), (self.kernels.line_id(lines[x.line]),), stack, facts))
        return tuple(found)

    def check(self) -> None:
        for x in self.loops:
            if x.vectorised == bool(x.why):
                raise InvalidIR(f"{self.stage}/{x.kernel}: the loop at line {x.line} is vectorised and has a reason why not, or neither")

    def run(self, *args: object) -> tuple[Loop, ...]:
        """The loops: a report computes nothing."""
        return self.loops


def vectorised(program: Program) -> LoopReport:
    """Raises ``CodegenFailed`` where the compiler fails; nothing is run for a program without kernels."""
    toolchain = program.toolchain
    loops = tuple(innermost(program.kernels))
    if toolchain is None or not loops:
        return LoopReport(program, ())
    with tempfile.TemporaryDirectory(prefix="compiler_lab_loops_") as folder:
        write_sources(folder, program.kernels.unit)
        ran = run_compiler(compile_command(toolchain, folder, *FLAGS[toolchain.kind], output="kernels.so"), folder)
    if ran.code != 0:
        raise CodegenFailed("the compiler gave no remarks on its loops", why=ran.reason(toolchain.path))
    return LoopReport(program, judged(loops, REMARKS[toolchain.kind](ran.output)))


def innermost(kernels: Kernels) -> Iterator[Loop]:
    """The loops that hold no other: their head ends in ``{``, or the one statement that they repeat follows."""
    for kernel in kernels.kernels:
        opened: list[tuple[int, bool]] = []  # (line that opened a brace, is it a loop)
        inner = 0  # the line of the loop that was begun last, until it ends
        above = lambda number: number - kernels.lines[number - 2].text.lstrip().startswith("#pragma")
        for line in kernels.lines[kernel.first - 1 : kernel.last]:
            code = re.sub(r"//.*$", "", line.text).strip()
            loop = code.startswith(("for (", "while ("))
            if loop:
                inner = line.number
                if not code.endswith("{"):
                    yield Loop(kernel.name, above(line.number), line.number, line.number + (not code.endswith(";")))
                    inner = 0
            for brace in re.findall(r"[{}]", code):
                if brace == "{":
                    opened.append((line.number, loop))
                    loop = False
                elif opened:
                    first, was_loop = opened.pop()
                    if was_loop and first == inner:
                        yield Loop(kernel.name, above(first), first, line.number)
                        inner = 0


@dataclass(frozen=True)
class Remark:
    """What the compiler said of the loop around ``line``: that it is vectorised (``bytes`` 0 where it gives no width), or why not."""

    line: int
    vectorised: bool
    bytes: int = 0
    why: str = ""


def judged(loops: Sequence[Loop], remarks: Sequence[Remark]) -> list[Loop]:
    """Each loop with what was said of it: that one version of it is vectorised counts more than that another is not."""
    found: list[Loop] = []
    for x in loops:
        own = [r for r in remarks if x.first <= r.line <= x.last]
        best = max((r for r in own if r.vectorised), key=lambda r: r.bytes, default=None)
        why = next((r.why for r in own if r.why), SILENT)
        found.append(Loop(x.kernel, x.first, x.line, x.last, best is not None, best.bytes if best else 0, "" if best else why))
    return found


def _gcc(output: str) -> list[Remark]:
    """``kernels.cpp:11:26: optimized: loop vectorized using 32 byte vectors``; after ``missed: couldn't vectorize loop`` stand its reasons."""
    found: list[Remark] = []
    failing, reasons = 0, list[str]()
    for file, line, kind, text in [*re.findall(r"^(\S+):(\d+):\d+: (optimized|missed): +(.*)$", output, re.MULTILINE), ("", "0", "", "")]:
        if kind == "missed" and failing and not text.startswith("couldn't vectorize loop"):
            reasons.append(re.sub(r"(?<=\w)_\d+\b", "", text.removeprefix("not vectorized: ").rstrip(".;")))  # without the compiler's numbers
            continue
        if failing:
            found.append(Remark(failing, False, why=min(reasons, key=_rank, default="")))
            failing, reasons = 0, []
        if not file.endswith(SOURCE):
            continue
        if width := re.search(r"loop vectorized using (?:variable length|(\d+) byte) vectors", text):
            found.append(Remark(int(line), True, int(width[1] or 0)))
        elif kind == "missed":
            failing = int(line)
    return found


def _rank(reason: str) -> int:
    """A call says more than what it leads to; that a type has no vector of four bytes, the last size g++ tries, says least."""
    return 0 if "clobbers memory" in reason else 2 if reason.startswith("no vectype") else 1


def _clang(output: str) -> list[Remark]:
    """``remark: vectorized loop (vectorization width: 8, interleaved count: 1)``, in elements; ``remark: loop not vectorized: why``."""
    found: list[Remark] = []
    for line, text in re.findall(rf"^(?:\S*/)?{re.escape(SOURCE)}:(\d+):\d+: remark: (.*?)(?: \[-R.*)?$", output, re.MULTILINE):
        if text.startswith("vectorized loop"):
            found.append(Remark(int(line), True))
        elif text.startswith("loop not vectorized: "):
            found.append(Remark(int(line), False, why=text.removeprefix("loop not vectorized: ")))
    return found


REMARKS: dict[str, Callable[[str], list[Remark]]] = {"gcc": _gcc, "clang": _clang}


def _said(loop: Loop) -> str:
    if not loop.vectorised:
        return f"not vectorised: {loop.why}"
    return f"vectorised, {loop.bytes} bytes at once" if loop.bytes else "vectorised"
