"""The machine code of a program, line by line, each with the generated source line it comes from.

In: a built library with a line table (``-g1``). Out: ``AssemblyLine``s in the order of the code, as text without addresses: jump targets
become ``.L0``, ``.L1``, ... within a function, constants become ``.C0``, ... . Instructions of inlined math have the line of the kernel
that calls it, and ``via`` names the line of the header. ``objdump`` disassembles; without one, the compiler is asked for its own
assembly text (``-S``), which is the same code before assembling.
Where PyTorch does this: nowhere; ``TORCH_LOGS=output_code`` ends at the C++.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import CodegenFailed
from .toolchain import SOURCE, Toolchain, compile_command, run_compiler, write_sources


@dataclass(frozen=True)
class AssemblyLine:
    """One instruction, or a label. ``source_line`` is 1-based in the generated source; None where the table has none."""

    text: str
    source_line: int | None
    kernel: str
    function: str
    is_vector: bool
    via: str = ""  # "lab_math.h:12" where the instruction comes from an inlined function


VECTOR = re.compile(
    r"v?(?:add|sub|mul|div|sqrt|max|min|round|cmp\w*|fn?m(?:add|sub|addsub|subadd)\d*|cvt\w*dq2|dp|hadd)p[sd]$"
    r"|v?(?:padd|psub|pmul|pcmp|pmax|pmin|pabs)\w*$"
)
"""x86 instructions on every lane. Moves and bit operations are left out: scalar code uses them too."""

NEON = re.compile(r"\bv\d+\.(?:16b|8h|4s|2d|8b|4h|2s)\b")
SVE = re.compile(r"\bz\d+\.[bhsd]\b")


def is_vector(instruction: str) -> bool:
    """Whether this instruction computes on several elements at once."""
    mnemonic, _, operands = instruction.partition(" ")
    if VECTOR.match(mnemonic):
        return re.search(r"%[xyz]mm\d", operands) is not None
    return bool(NEON.search(operands) or SVE.search(operands)) and not mnemonic.startswith(("mov", "ld", "st", "dup"))


@dataclass(frozen=True)
class Span:
    """A kernel, and its lines in the generated source."""

    name: str
    first: int
    last: int


def disassemble(library: Path, kernels: tuple[Span, ...]) -> tuple[AssemblyLine, ...] | None:
    """By ``objdump``; None where there is none that can read this library."""
    objdump = shutil.which("objdump")
    if objdump is None:
        return None
    command = [objdump, "-dl", "--inlines", "--no-show-raw-insn", "-j", ".text", str(library)]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if ran.returncode != 0:  # older than binutils 2.34
        ran = subprocess.run([c for c in command if c != "--inlines"], capture_output=True, text=True, errors="replace", check=False)
    lines = tuple(_parse_objdump(ran.stdout, kernels)) if ran.returncode == 0 else ()
    return lines or None


def compile_to_assembly(source: str, toolchain: Toolchain, kernels: tuple[Span, ...]) -> tuple[AssemblyLine, ...]:
    """By the compiler's ``-S``. Raises ``CodegenFailed`` where it fails."""
    with tempfile.TemporaryDirectory(prefix="compiler_lab_asm_") as folder:
        write_sources(folder, source)
        ran = run_compiler(compile_command(toolchain, folder, "-S", output="kernels.s"), folder)
        if ran.code != 0:
            raise CodegenFailed("the compiler gave no assembly", why=ran.output.strip()[:200])
        return tuple(_parse_compiler(Path(folder, "kernels.s").read_text(), kernels))


def kernel_of(function: str, line: int | None, kernels: tuple[Span, ...]) -> str:
    """The kernel a function belongs to. Parallel bodies are ``k0._omp_fn.0`` in g++; clang's ``.omp_outlined.`` are found by their line.

    No other function is: the wrapper's own have lines of their own file, which may bear the same name."""
    named = next((k.name for k in kernels if function.removeprefix("_") == k.name or function.startswith(k.name + ".")), "")
    outlined = "omp_outlined" in function and line is not None
    return named or next((k.name for k in kernels if outlined and k.first <= (line or 0) <= k.last), "")


@dataclass(frozen=True)
class _Raw:
    """One instruction or label as found: where it stands, what it says, what it points to."""

    address: str
    text: str
    line: int | None
    via: str
    target: str | None = None
    constant: str | None = None


@dataclass(frozen=True)
class _Place:
    """The current row of the line table, with the chain of inlining, innermost first; ``last`` is the last line of the kernel seen."""

    chain: tuple[tuple[str, int], ...] = ()
    last: int | None = None
    fresh: bool = False  # no instruction since the chain began

    def then(self, file: str, number: int, inlined_by: bool) -> _Place:
        if inlined_by and not self.fresh:  # objdump repeats it before each instruction
            return self
        return _Place((*self.chain, (file, number)) if inlined_by else ((file, number),), number if file == SOURCE else self.last, True)

    def used(self) -> _Place:
        return _Place(self.chain, self.last, False)

    @property
    def line(self) -> int | None:
        return next((n for file, n in self.chain if file == SOURCE), self.last)

    @property
    def via(self) -> str:
        return f"{self.chain[0][0]}:{self.chain[0][1]}" if self.chain and self.chain[0][0] != SOURCE else ""


PADDING = re.compile(r"(?:data16 )*(?:cs )?nop[wl]?\b|xchg %ax,%ax")


def _parse_objdump(output: str, kernels: tuple[Span, ...]) -> Iterator[AssemblyLine]:
    function, body, place = "", list[_Raw](), _Place()
    for text in output.splitlines():
        if head := re.match(r"^[0-9a-f]+ <(.+)>:$", text):
            yield from _function(function, _labelled(body), kernels)
            function, body, place = head[1], [], _Place()
        elif where := re.match(r"^(inlined by )?(\S+):(\d+)(?: \(.*\))?$", text):
            place = place.then(Path(where[2]).name, int(where[3]), inlined_by=bool(where[1]))
        elif code := re.match(r"^\s+([0-9a-f]+):\s+(.+)$", text):
            place = place.used()
            if not PADDING.match(code[2]):
                body.append(_instruction(code[1], code[2], place))
    yield from _function(function, _labelled(body), kernels)


def _instruction(address: str, text: str, place: _Place) -> _Raw:
    """Splits off what names an address: ``jmp 11c0 <k0+0x90>``, ``0xe81(%rip),%ymm2  # 2000 <_fini+0xdc8>``."""
    text, _, comment = (re.sub(r"\s+", " ", part.strip()) for part in text.partition("#"))
    if comment and "(%rip)" in text:
        constant, _, symbol = comment.partition(" ")
        if "+0x" in symbol:
            return _Raw(address, text, place.line, place.via, constant=constant)
        return _Raw(address, re.sub(r"-?0x[0-9a-f]+\(%rip\)", symbol.strip("<>") + "(%rip)", text), place.line, place.via)
    if jump := re.match(r"^(.*?\s)(?:0x)?([0-9a-f]+) <([^>]+)>$", text):
        if "+0x" in jump[3] or not jump[1].startswith("call"):
            return _Raw(address, jump[1].strip(), place.line, place.via, target=jump[2])
        return _Raw(address, f"{jump[1].strip()} {jump[3]}", place.line, place.via)
    return _Raw(address, text, place.line, place.via)


def _labelled(body: list[_Raw]) -> list[_Raw]:
    """Labels in place of addresses, numbered in the order of the code."""
    here = {r.address for r in body}
    targets = sorted({r.target for r in body if r.target in here and r.target}, key=lambda a: int(a, 16))
    labels = {address: f".L{n}" for n, address in enumerate(targets)}
    constants: dict[str, str] = {}
    result: list[_Raw] = []
    for r in body:
        text = r.text
        if r.address in labels:
            result.append(_Raw("", f"{labels[r.address]}:", r.line, ""))
        if r.target is not None:
            text = f"{text} {labels.get(r.target, 'another function')}"
        if r.constant is not None:
            text = re.sub(r"-?0x[0-9a-f]+\(%rip\)", constants.setdefault(r.constant, f".C{len(constants)}") + "(%rip)", text)
        result.append(_Raw("", f"  {text}", r.line, r.via))
    return result


def _function(function: str, body: list[_Raw], kernels: tuple[Span, ...]) -> Iterator[AssemblyLine]:
    """A function's lines; nothing for what belongs to no kernel, such as the C runtime's own functions."""
    first = next((r.line for r in body if r.line is not None), None)
    if kernel := kernel_of(function, first, kernels):
        yield AssemblyLine(f"{function}:", first, kernel, function, False)
        for r in body:
            yield AssemblyLine(r.text, r.line, kernel, function, is_vector(r.text.strip()), r.via)


def _parse_compiler(output: str, kernels: tuple[Span, ...]) -> Iterator[AssemblyLine]:
    """The compiler's own text: ``.file 1 "kernels.cpp"`` and ``.loc 1 12 3`` say where; other directives and data are dropped."""
    files: dict[str, str] = {}
    function, body, place, code = "", list[_Raw](), _Place(), False
    for text in output.splitlines():
        text = re.sub(r"\s+", " ", re.split(r"\s##? |^##? ", text)[0].strip())
        if named := re.match(r'^\.file (\d+) .*?"([^"]+)"(?: "([^"]+)")?', text):
            files[named[1]] = Path(named[3] or named[2]).name
        elif where := re.match(r"^\.loc (\d+) (\d+)", text):
            place = place.then(files.get(where[1], ""), int(where[2]), inlined_by=False)
        elif label := re.match(r"^([\w.$]+):", text):
            if code and not label[1].startswith((".L", "L")):
                yield from _function(function, _without_unused_labels(body), kernels)
                function, body, place = label[1], [], _Place()
            elif code:
                body.append(_Raw("", f"{label[1]}:", place.line, ""))
        elif text.startswith((".text", ".section", ".data", ".bss")):
            code = ".text" in text or "__text" in text
        elif code and text and not text.startswith("."):
            body.append(_Raw("", f"  {text}", place.line, place.via))
    yield from _function(function, _without_unused_labels(body), kernels)


def _without_unused_labels(body: list[_Raw]) -> list[_Raw]:
    """The compiler marks scopes and line changes with labels that nothing jumps to."""
    named = {word for r in body if not r.text.endswith(":") for word in re.findall(r"[.\w$]+", r.text)}
    return [r for r in body if not r.text.endswith(":") or r.text[:-1] in named]
