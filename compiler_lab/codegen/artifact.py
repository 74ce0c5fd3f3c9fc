"""``Kernels``: C++ source and the wrapper that calls it, as an artifact.

In: what ``generate`` wrote for a ``Schedule``. Out: the value the runtime builds. Its items are the kernels, each line of them and each
line of the wrapper, with the loop nodes they come from. ``run`` interprets the schedule: the built program is the runtime's.
PyTorch's counterpart: ``output_code.py`` as ``TORCH_LOGS=output_code`` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR
from ..lowering.sizes import Condition
from ..scheduling.artifact import Schedule
from .ir import CallCode, Kernel, Line

REASONS: dict[str, str] = {
    "too_little_work": "elements * (1 + 4 * expensive ops) is below what starting the threads costs",
    "many_rows": "threads share the outer loops: there are enough iterations",
    "few_rows": "threads share the sweeps: there are too few outer iterations to go round",
    "one_dimension": "threads share the only loop",
    "in_order": "the steps run one after another, and there is nothing beside them to share",
    "rows_vary": "threads share the outer loops, whose size varies; each call asks whether that pays",
    "one_iteration": "there is one iteration of the outer loops, and its sweeps are short",
    "same_loops": "the loops of an earlier kernel, on other buffers: they are compiled once and called by both",
    "conditions_on_lanes": "where a comparison of places has one outcome for all lanes of a block, neither it nor the other side is computed",
    "conditions_on_place": "a comparison of the place with a constant, or a division of it, has one outcome in each piece",
    # the wrapper, and each extern call in it
    "exported": "torch exports a C function for it",
    "asked for": "the option wrapper is python",
    "sizes vary": "the function in C is made for sizes that are numbers",
    "no kernels": "there is nothing to compile: extern calls alone do not need a compiler",
    "no function": "torch exports no C function for this operator that was looked into",
    "argument": "the operator takes an argument that its C function takes in another way",
    "dtype": "the dtype is not one that a tensor made in C has",
    "number too large": "an int that the C function's double cannot hold",
}
"""Why a kernel's loops are cut and shared between threads as they are, and in which language calls are made."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Kernels(Artifact):
    """``source``: the kernels in C++; they include ``lab_math.h``. ``calls``: the wrapper in C, if there is one; ``unit`` is both together.

    ``wrapper``: the wrapper in Python, which defines ``make(functions, ops, constants, torch)``: what runs where there is none in C, or where
    the torch at hand cannot be called from it.
    """

    stage: str
    schedule: Schedule
    source: str
    lines: tuple[Line, ...]
    kernels: tuple[Kernel, ...]
    wrapper: str
    wrapper_lines: tuple[Line, ...]
    calls: CallCode | None = None
    decisions: tuple[Decision, ...] = ()
    conditions: tuple[Condition, ...] = ()  # of the sizes of a call: the schedule's, and those the code needs besides

    def text(self) -> str:
        return f"{self.unit}\n# ---- {'wrapper' if self.calls is None else 'the same calls in Python'} ----\n{self.wrapper}"

    @property
    def unit(self) -> str:
        """What is compiled."""
        return self.source if self.calls is None else self.source + self.calls.source

    @property
    def unit_lines(self) -> tuple[Line, ...]:
        return self.lines if self.calls is None else (*self.lines, *self.calls.lines)

    def line_id(self, line: Line) -> str:
        """``codegen.forward/k0:L12``; lines outside kernels belong to "source"."""
        owner = next((k.name for k in self.kernels if k.first <= line.number <= k.last), "source")
        return f"{self.stage}/{owner}:L{line.number}"

    def items(self) -> tuple[Item, ...]:
        found: list[Item] = []
        for k in self.kernels:
            parents = tuple(f"{self.schedule.stage}/{n}" for n in (k.name,))
            stack = next((line.stack for line in self.lines[k.first - 1 : k.last] if line.stack), ())
            found.append(
                Item(
                    f"{self.stage}/{k.name}",
                    "kernel",
                    f"int {k.name}({', '.join(k.args)})",
                    parents,
                    stack,
                    {"nodes": list(k.nodes), "first": k.first, "last": k.last},
                )
            )
        found += [Item(self.line_id(n), "line", n.text, n.parents, n.stack, {"number": n.number}) for n in self.lines if n.text]
        calls = self.calls.lines if self.calls is not None else ()
        found += [Item(self.line_id(n), "call", n.text, n.parents, n.stack, {"number": n.number}) for n in calls if n.text]
        found += [Item(f"{self.stage}/wrapper:L{n.number}", "wrapper", n.text, n.parents, n.stack, {"number": n.number}) for n in self.wrapper_lines if n.text]
        return tuple(found)

    def check(self) -> None:
        for lines, text, what in ((self.unit_lines, self.unit, "source"), (self.wrapper_lines, self.wrapper, "wrapper")):
            if "".join(f"{n.text}\n" for n in lines) != text or any(n.number != i for i, n in enumerate(lines, 1)):
                raise InvalidIR(f"{self.stage}: the lines are not those of the {what}")
        names = [k.name for k in self.kernels]
        if len(set(names)) != len(names):
            raise InvalidIR(f"{self.stage}: two kernels have one name", why=", ".join(names))
        for k in self.kernels:
            self._check_kernel(k)

    def _check_kernel(self, k: Kernel) -> None:
        if len(set(k.args)) != len(k.args):
            raise InvalidIR(f"{self.stage}/{k.name} takes one buffer twice", why=", ".join(k.args))
        depth = 0
        for line in self.lines[k.first - 1 : k.last]:
            code = bare(line.text)
            depth += code.count("{") - code.count("}")
            if is_statement(code) and not line.parents:
                raise InvalidIR(f"{self.line_id(line)} comes from nothing: {code}", why="every statement names the nodes it comes from")
        if depth != 0:
            raise InvalidIR(f"{self.stage}/{k.name}: its braces do not match")

    def run(self, *args: Any) -> Any:
        """Interprets the schedule: text cannot run. The built program, ``build(kernels)``, is compared with this."""
        return self.schedule.run(*args)


def bare(text: str) -> str:
    """A line without its comment and indentation."""
    return re.sub(r"//.*$", "", text).strip()


def is_statement(code: str) -> bool:
    """True for what computes or declares; false for braces, loop heads, pragmas and returns of the kernel."""
    return code.endswith(";") and not code.startswith("return ")


def statements(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(n for n in lines if is_statement(bare(n.text)))
