"""Floats that depend on sizes: ``x.shape[0] ** 0.5``, ``1 / n``, kept as the operations that make them.

In: arithmetic of sizes and floats, as nodes of an aten graph. Out: ``Real``s, which stand where a float stands in a call or a body.
Always holds: the operations and their order are the program's, so the number is the same double that Python computes. A comparison of one
raises ``Unsupported``: nothing is decided by it.
PyTorch's counterpart: ``torch.SymFloat``. Left out: rounding to an int, functions beyond those of ``FUNCTIONS``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from ..core.errors import Unsupported
from .sizes import Size, Symbol, plain, value_at

FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "add": (operator.add, "({} + {})"),
    "sub": (operator.sub, "({} - {})"),
    "mul": (operator.mul, "({} * {})"),
    "truediv": (operator.truediv, "({} / {})"),
    "neg": (operator.neg, "(-{})"),
    "pow": (operator.pow, "power({}, {})"),
    "sqrt": (math.sqrt, "root({})"),
    "float": (float, "{}"),
}
"""Name -> (what it is in Python, its text in Python and C++, where ``real``, ``power`` and ``root`` are functions)."""

TARGETS: dict[Any, str] = {
    **{getattr(operator, name): name for name in ("add", "sub", "mul", "truediv", "neg", "pow")}, torch.sym_float: "float", math.sqrt: "sqrt",
    getattr(torch, "_sym_sqrt"): "sqrt",  # noqa: B009 (not annotated)
}  # fmt: skip
"""What a node calls -> the function."""


@dataclass(frozen=True)
class Real:
    """``function`` of ``args``: ints, sizes, floats and reals. An ``argument`` is a float of the call, named by a symbol."""

    function: str
    args: tuple[Any, ...]

    # fmt: off
    def __add__(self, other: Any) -> Any: return real("add", self, other)
    def __radd__(self, other: Any) -> Any: return real("add", other, self)
    def __sub__(self, other: Any) -> Any: return real("sub", self, other)
    def __rsub__(self, other: Any) -> Any: return real("sub", other, self)
    def __mul__(self, other: Any) -> Any: return real("mul", self, other)
    def __rmul__(self, other: Any) -> Any: return real("mul", other, self)
    def __truediv__(self, other: Any) -> Any: return real("truediv", self, other)
    def __rtruediv__(self, other: Any) -> Any: return real("truediv", other, self)
    def __neg__(self) -> Any: return real("neg", self)
    def __lt__(self, other: Any) -> NoReturn: self._undecided()
    def __le__(self, other: Any) -> NoReturn: self._undecided()
    def __gt__(self, other: Any) -> NoReturn: self._undecided()
    def __ge__(self, other: Any) -> NoReturn: self._undecided()
    def __bool__(self) -> NoReturn: self._undecided()
    def __float__(self) -> NoReturn: self._undecided()
    def __str__(self) -> str: return self.text()
    def __repr__(self) -> str: return self.text()
    # fmt: on

    def _undecided(self) -> NoReturn:
        raise Unsupported(f"something depends on the value of {self.text()}", reason="dynamic shapes", hint="compile with dynamic=False")

    def text(self) -> str:
        if self.function == "argument":
            return self.args[0].name
        return FUNCTIONS[self.function][1].format(*map(_text, self.args))

    def at(self, numbers: Mapping[str, Any]) -> float:
        if self.function == "argument":
            return numbers[self.args[0].name]
        return FUNCTIONS[self.function][0](*(a.at(numbers) if isinstance(a, Real) else value_at(a, numbers) for a in self.args))


def real(function: str, *args: Any) -> Any:
    """The float, or where all ``args`` are numbers the number. NotImplemented for operands of other kinds."""
    if not all(isinstance(a, (int, float, Size, Real)) for a in args):
        return NotImplemented
    return Real(function, args) if any(isinstance(a, (Size, Real)) for a in args) else FUNCTIONS[function][0](*args)


def argument(name: str) -> Real:
    """The float that a call gives under this name."""
    return Real("argument", (Symbol(name, 1),))


def _text(arg: Any) -> str:
    """An operand as a double: integers become one first, as Python's arithmetic of an int and a float does."""
    return arg.text() if isinstance(arg, Real) else repr(arg) if isinstance(arg, float) else f"real({plain(arg)})"
