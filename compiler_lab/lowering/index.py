"""Index expressions: integers made of iteration variables, affine where they are affine.

An ``Index`` is ``const + sum(coefficient * atom)``; an atom is a variable, or a floor division or remainder of an ``Index`` by a
positive constant. Always holds: terms are sorted, have distinct atoms and no zero coefficient, so equal expressions are equal
values; every variable knows its size (``0 <= v < size``), so ranges are known and divisions disappear where they can.
Coefficients, constants, divisors and sizes of variables may be ``Size``s (``sizes.py``): what simplifies is what is known of the polynomials,
so no comparison here is recorded but the sign of a coefficient. Where it is not known that what is divided is not negative, the
division is a floor division in every language (``floordiv``, ``mod``).
PyTorch's counterpart: sympy expressions simplified by ``torch/_inductor/sizevars.py``; sympy in this path is what makes
compilers of this kind slow, hence no sympy here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .sizes import at_most, is_number, plain, same


@dataclass(frozen=True, order=True)
class Var:
    """An iteration variable ``0 <= name < size``. Names that begin with ``%`` stand for values loaded at run time."""

    name: str
    size: int


@dataclass(frozen=True)
class Div:
    """``index // by`` (floor)."""

    index: Index
    by: int


@dataclass(frozen=True)
class Mod:
    """``index % by``, in ``[0, by)``."""

    index: Index
    by: int


Atom = Var | Div | Mod


def _key(atom: Atom) -> tuple[str, str]:
    return (type(atom).__name__ if not isinstance(atom, Var) else "", atom.name if isinstance(atom, Var) else f"{atom.index}:{atom.by}")


@dataclass(frozen=True)
class Index:
    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(value: Index | Var | int) -> Index:
        if isinstance(value, Index):
            return value
        if isinstance(value, Var):
            return Index() if same(value.size, 1) else Index(((value, 1),))
        return Index((), value)

    @staticmethod
    def affine(variables: Iterable[Var | Index | int], strides: Iterable[int], offset: int = 0) -> Index:
        """``offset + sum(v * stride)``: the address of an element of a strided tensor."""
        result = Index((), offset)
        for v, stride in zip(variables, strides, strict=True):
            result = result + Index.of(v) * stride
        return result

    def __add__(self, other: Index | Var | int) -> Index:
        other = Index.of(other)
        total = dict(self.terms)
        for atom, c in other.terms:
            total[atom] = total.get(atom, 0) + c
        return _normal(total, self.const + other.const)

    def __sub__(self, other: Index | Var | int) -> Index:
        return self + Index.of(other) * -1

    def __mul__(self, factor: int) -> Index:
        if same(factor, 0):
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def __floordiv__(self, by: int) -> Index:
        if same(by, 1):
            return self
        whole, rest = self._split(by)
        if (quotient := rest._quotient(by)) is not None:
            return whole + quotient
        if factored := rest._factor(by):
            coarse, _, g = factored
            return whole + coarse // (by // g)
        return whole + Index(((Div(rest, by), 1),))

    def __mod__(self, by: int) -> Index:
        if same(by, 1):
            return Index()
        _, rest = self._split(by)
        if (quotient := rest._quotient(by)) is not None:
            return rest - quotient * by
        if factored := rest._factor(by):
            coarse, fine, g = factored
            return (coarse % (by // g)) * g + fine
        return Index(((Mod(rest, by), 1),))

    def _quotient(self, by: int) -> int | None:
        """``self // by`` where it is one number over the whole range."""
        low, high = self.range()
        if not is_number(low, high, by):
            return 0 if at_most(0, low) and at_most(high + 1, by) else None
        return low // by if low // by == high // by else None

    def _split(self, by: int) -> tuple[Index, Index]:
        """(whole, rest) with ``self == by * whole + rest``, every coefficient of rest not a multiple of ``by``, and where all are numbers ``rest >= 0``."""
        multiples = [same(c % by, 0) for _, c in self.terms]
        number = is_number(self.const, by) or same(self.const % by, 0)
        whole = Index(tuple((a, c // by) for (a, c), m in zip(self.terms, multiples, strict=True) if m), self.const // by if number else 0)
        rest = Index(tuple(t for t, m in zip(self.terms, multiples, strict=True) if not m), self.const % by if number else self.const)
        low = rest.range()[0]
        if not is_number(low, by):
            return whole, rest
        below = min(low // by, 0)
        return whole + below, rest + -below * by

    def _factor(self, by: int) -> tuple[Index, Index, int] | None:
        """(coarse, fine, g) with ``self == g * coarse + fine``, ``0 <= fine < g`` and ``g`` a divisor of ``by``, where there is one."""
        coefficients = [c for _, c in self.terms]
        if is_number(self.const, by, *coefficients):
            candidates = sorted({math.gcd(c, by) for c in coefficients} - {1, by}, reverse=True)
        else:
            candidates = [c for c in dict.fromkeys(coefficients) if not same(c, 1) and at_most(1, c) and same(by % c, 0)]
        for g in candidates:
            multiples = [same(c % g, 0) for c in coefficients]
            number = is_number(self.const, g)
            coarse = Index(tuple((a, c // g) for (a, c), m in zip(self.terms, multiples, strict=True) if m), self.const // g if number else 0)
            fine = Index(tuple(t for t, m in zip(self.terms, multiples, strict=True) if not m), self.const % g if number else self.const)
            low, high = fine.range()
            if at_most(0, low) and at_most(high + 1, g):
                return coarse, fine, g
        return None

    def range(self) -> tuple[int, int]:
        """Smallest and largest value, both possible bounds (inclusive)."""
        low = high = self.const
        for atom, c in self.terms:
            a, b = atom_range(atom)
            if c < 0:
                a, b = b, a
            low, high = low + c * a, high + c * b
        return low, high

    def variables(self) -> frozenset[Var]:
        found: set[Var] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, Var) else atom.index.variables()
        return frozenset(found)

    @property
    def is_affine(self) -> bool:
        return all(isinstance(a, Var) for a, _ in self.terms)

    def coefficient(self, var: Var) -> int | None:
        """The stride of ``var``; None where the expression is not affine in it."""
        if any(not isinstance(a, Var) and var in a.index.variables() for a, _ in self.terms):
            return None
        return dict(self.terms).get(var, 0)

    def substitute(self, mapping: Mapping[Var, Index]) -> Index:
        result = Index((), self.const)
        for atom, c in self.terms:
            if isinstance(atom, Var):
                new = mapping.get(atom, Index.of(atom))
            else:
                inner = atom.index.substitute(mapping)
                new = inner // atom.by if isinstance(atom, Div) else inner % atom.by
            result = result + new * c
        return result

    def evaluate(self, values: Callable[[Var], int]) -> int:
        """The number, given each variable's value (works for tensors of ints as well)."""
        total = self.const
        for atom, c in self.terms:
            if isinstance(atom, Var):
                total = total + values(atom) * c
            else:
                inner = atom.index.evaluate(values)
                total = total + (inner // atom.by if isinstance(atom, Div) else inner % atom.by) * c
        return total

    def __str__(self) -> str:
        return self.text(lambda v: v.name)

    def text(self, name: Callable[[Var], str], div: str = "//") -> str:
        """As an expression; ``div`` is the division operator of the language."""

        def one(atom: Atom) -> str:
            if isinstance(atom, Var):
                return name(atom)
            inside = atom.index.text(name, div)
            if may_be_negative(atom):
                return f"{'floordiv' if isinstance(atom, Div) else 'mod'}({inside}, {plain(atom.by)})"
            return f"({inside}) {div if isinstance(atom, Div) else '%'} {atom.by}"

        def scaled(atom: Atom, c: int) -> str:
            inner = one(atom) if isinstance(atom, Var) else f"({one(atom)})"
            return inner if c == 1 else f"{c}*{inner}"

        parts = [scaled(a, c) for a, c in self.terms]
        if not same(self.const, 0) or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def atom_range(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Var):
        return 0, max(atom.size - 1, 0) if type(atom.size) is int else atom.size - 1
    low, high = atom.index.range()
    return (low // atom.by, high // atom.by) if isinstance(atom, Div) else (0, atom.by - 1)


def may_be_negative(atom: Div | Mod) -> bool:
    """Is it not known that what is divided is zero or more? Never so where all sizes are numbers."""
    low = atom.index.range()[0]
    return not at_most(0, low)


def _normal(total: dict[Atom, int], const: int) -> Index:
    """Sorted terms, after ``by * (e // by) + e % by`` has become ``e`` wherever it stands."""
    for atom in [a for a in total if isinstance(a, Div)]:
        mod, c = Mod(atom.index, atom.by), total.get(atom, 0)
        k = total.get(mod, 0)
        if not same(k, 0) and same(c, k * atom.by):
            del total[atom], total[mod]
            return Index(_sorted(total), const) + atom.index * k
    return Index(_sorted(total), const)


def _sorted(total: dict[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    return tuple(sorted(((a, n) for a, n in total.items() if not same(n, 0)), key=lambda t: _key(t[0])))
