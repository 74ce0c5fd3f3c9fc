"""The built program: a callable that runs the kernels shown, and their machine code.

In: ``Kernels``, the library they were built into and the callable that the wrapper made. Out: results, and ``AssemblyLine``s with parents.
Always holds: what runs is what ``assembly()`` shows, because both are read from one library.
PyTorch's counterpart: ``CompiledFxGraph`` in ``torch/_inductor/output_code.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.artifact import Artifact, Item
from ..core.errors import CodegenFailed, InvalidIR
from ..lowering.ir import ExternNode
from ..lowering.symbols import numbers_of
from .toolchain import Toolchain

if TYPE_CHECKING:
    from ..codegen.artifact import Kernels
    from .assembly import AssemblyLine
    from .vectorized import LoopReport


class Program(Artifact):
    """``program(*inputs)`` takes the graph's inputs and returns the tuple of its outputs. ``library`` is None for extern calls only.

    ``call`` is the wrapper: a backward's takes one list, which it empties, and has the mark ``_boxed_call``. ``language`` says what it is
    written in: "C", "Python", or "Python (why not C)". Between calls the arena is in the pool of all programs in C, or kept by one in Python.
    """

    def __init__(
        self, kernels: Kernels, library: Path | None, toolchain: Toolchain | None, call: Callable[..., tuple[Any, ...]], language: str = "Python"
    ) -> None:
        self.kernels, self.library, self.toolchain, self.call, self.language = kernels, library, toolchain, call, language
        self.stage = f"runtime.{kernels.stage.partition('.')[2]}" if "." in kernels.stage else "runtime"

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Raises Mismatch for sizes that the program was not made for; ``call`` leaves that to guards."""
        if sizes := self.kernels.schedule.program.sizes:
            numbers_of(sizes, self.kernels.conditions, inputs, self.stage)
        return self.call([*inputs]) if getattr(self.call, "_boxed_call", False) else self.call(*inputs)

    def run(self, *args: Any) -> tuple[Any, ...]:
        return self(*args)

    def text(self) -> str:
        """What is called, in order; the machine code is in ``assembly()``, because it depends on the machine."""
        externs = [n for n in self.kernels.schedule.program.nodes if isinstance(n, ExternNode)]
        lines = [f"{self.stage}: {len(self.kernels.kernels)} kernels, {len(externs)} extern calls"]
        lines += [f"  {k.name}({', '.join(k.args)})  # lines {k.first}-{k.last}, computes {', '.join(k.nodes)}" for k in self.kernels.kernels]
        lines += [f"  {n.name} = {n.target}" for n in externs]
        lines.append(f"called by: {self.language}")
        return "\n".join([*lines, "machine code: none" if self.library is None else "machine code: assembly()"])

    def items(self) -> tuple[Item, ...]:
        """The kernels, then each line of their machine code, whose parents are lines of the generated source."""
        return (*self._kernel_items(), *self._assembly_items())

    def assembly(self) -> tuple[AssemblyLine, ...]:
        """Disassembled on first use; empty without kernels. Raises ``CodegenFailed`` where neither objdump nor the compiler can tell."""
        return self._assembly

    def loops(self) -> LoopReport:
        """Which innermost loops were vectorised, and why not the others; the compiler is asked on first use. Raises ``CodegenFailed``."""
        return self._loops

    def check(self) -> None:
        names = [k.name for k in self.kernels.kernels]
        if len(set(names)) != len(names):
            raise InvalidIR(f"{self.stage}: two kernels have one name", why=", ".join(names))
        if names and (self.library is None or not self.library.exists()):
            raise InvalidIR(f"{self.stage}: the library of {names[0]} is gone", hint="build the program again")
        if not callable(self.call):
            raise InvalidIR(f"{self.stage}: the wrapper's make() gave no callable")

    @functools.cached_property
    def _loops(self) -> LoopReport:
        from .vectorized import vectorised

        return vectorised(self)

    @functools.cached_property
    def _assembly(self) -> tuple[AssemblyLine, ...]:
        if self.library is None or self.toolchain is None:
            return ()
        from .assembly import Span, compile_to_assembly, disassemble  # here: its patterns take longer to prepare than a kernel to load

        spans = tuple(Span(k.name, k.first, k.last) for k in self.kernels.kernels)
        return disassemble(self.library, spans) or compile_to_assembly(self.kernels.unit, self.toolchain, spans)

    def _kernel_items(self) -> tuple[Item, ...]:
        def stack(first: int, last: int) -> Any:
            return next((ln.stack for ln in self.kernels.lines if first <= ln.number <= last and ln.stack), ())

        return tuple(
            Item(
                f"{self.stage}/{k.name}",
                "kernel",
                f"{k.name}({', '.join(k.args)})",
                (f"{self.kernels.stage}/{k.name}",),
                stack(k.first, k.last),
                {"nodes": list(k.nodes)},
            )
            for k in self.kernels.kernels
        )

    def _assembly_items(self) -> tuple[Item, ...]:
        lines = {ln.number: ln for ln in self.kernels.unit_lines}
        found: list[Item] = []
        try:
            assembly = self.assembly()
        except CodegenFailed as error:  # what cannot be shown is said in its place
            return (
                Item(
                    f"{self.stage}/assembly", "note", f"{error.what}; install binutils for objdump", (f"{self.kernels.stage}/{self.kernels.kernels[0].name}",)
                ),
            )
        for number, code in enumerate(assembly, 1):
            source = lines.get(code.source_line or 0)
            parents = (self.kernels.line_id(source),) if source else ()
            facts = {"kernel": code.kernel, "source_line": code.source_line, "vector": code.is_vector, "via": code.via}
            found.append(Item(f"{self.stage}/{code.kernel}:A{number}", "assembly", code.text, parents, source.stack if source else (), facts))
        return tuple(found)


def vector_instructions(program: Program, kernel: str) -> tuple[str, ...]:
    """The instructions of ``kernel`` that compute on several elements at once, in order."""
    return tuple(line.text.strip() for line in program.assembly() if line.kernel == kernel and line.is_vector)
