"""Sizes that are not numbers yet: integers that are polynomials over named sizes.

A ``Size`` stands where an int stands in the loop IR (fields are annotated ``int``). It is ``sum(coefficient * product of atoms)``; an atom is a
``Symbol``, or a floor division or remainder of one size by another. Arithmetic is exact. A result without atoms is a plain int, so a program
whose sizes are numbers never meets this class. Each size has a ``hint``, its value at the sizes at hand, and a range.

Always holds: equal polynomials are equal values with equal hashes. A comparison that follows from polynomial and ranges is answered by that
alone. Any other is a choice: under a ``Conditions`` log it is answered by the hint and recorded, so what was made is right wherever the recorded
conditions hold; without a log an order raises, and an equality means equal polynomials. ``int(size)``, ``range(size)`` and the like record an
equality, a specialisation: nothing escapes silently.
PyTorch's counterpart: ``torch.SymInt`` over sympy, guarded by ``ShapeEnv.evaluate_expr``. Left out: floats, bitwise operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from ..core.errors import Unsupported

Int = Any  # an int, or a Size; elsewhere written int, for which it stands
INT64 = 2**63
Relation = Literal["==", "!=", "<", ">="]
OPPOSITE: Mapping[Relation, Relation] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


@dataclass(frozen=True)
class Symbol:
    """A named integer of the call: ``low <= name <= high``."""

    name: str
    hint: int
    low: int = 2
    high: int = INT64 - 1

    @property
    def text(self) -> str:
        return self.name

    def range(self) -> tuple[int, int]:
        return self.low, self.high

    def at(self, values: Mapping[str, int]) -> int:
        return values[self.name]

    def symbols(self) -> frozenset[Symbol]:
        return frozenset({self})


@dataclass(frozen=True)
class Division:
    """``number // by`` (floor) or ``number % by``, where it is no polynomial; ``by`` is positive."""

    kind: Literal["floordiv", "mod"]
    number: Int
    by: Int

    @property
    def text(self) -> str:
        return f"{self.kind}({plain(self.number)}, {plain(self.by)})"

    @property
    def hint(self) -> int:
        return hint(self.number) // hint(self.by) if self.kind == "floordiv" else hint(self.number) % hint(self.by)

    def range(self) -> tuple[int, int]:
        (low, high), (least, most) = range_of(self.number), range_of(self.by)
        least, most = max(least, 1), max(most, 1)
        if self.kind == "floordiv":
            return low // (most if low >= 0 else least), high // (least if high >= 0 else most)
        return 0, min(most - 1, high) if low >= 0 else most - 1

    def at(self, values: Mapping[str, int]) -> int:
        number, by = value_at(self.number, values), value_at(self.by, values)
        return number // by if self.kind == "floordiv" else number % by

    def symbols(self) -> frozenset[Symbol]:
        return symbols_of(self.number) | symbols_of(self.by)


Atom = Symbol | Division
Product = tuple[Atom, ...]  # sorted by text; empty for the constant


class Size:
    """A polynomial over atoms that is not a constant. Made by ``symbol`` and by arithmetic; never changed."""

    __slots__ = ("_hash", "_range", "hint", "terms")

    def __init__(self, terms: tuple[tuple[Product, int], ...]) -> None:
        self.terms = terms
        self.hint: int = sum(c * math.prod(a.hint for a in product) for product, c in terms)
        self._hash = hash(terms)
        self._range: tuple[int, int] | None = None

    # fmt: off
    def __add__(self, other: Any) -> Any: return _arithmetic(self, other, _add, lambda a, b: a + b)
    def __radd__(self, other: Any) -> Any: return _arithmetic(other, self, _add, lambda a, b: a + b)
    def __sub__(self, other: Any) -> Any: return _arithmetic(self, other, _sub, lambda a, b: a - b)
    def __rsub__(self, other: Any) -> Any: return _arithmetic(other, self, _sub, lambda a, b: a - b)
    def __mul__(self, other: Any) -> Any: return _arithmetic(self, other, _mul, lambda a, b: a * b)
    def __rmul__(self, other: Any) -> Any: return _arithmetic(other, self, _mul, lambda a, b: a * b)
    def __floordiv__(self, other: Any) -> Any: return _arithmetic(self, other, _floordiv, lambda a, b: a // b)
    def __rfloordiv__(self, other: Any) -> Any: return _arithmetic(other, self, _floordiv, lambda a, b: a // b)
    def __mod__(self, other: Any) -> Any: return _arithmetic(self, other, _mod, lambda a, b: a % b)
    def __rmod__(self, other: Any) -> Any: return _arithmetic(other, self, _mod, lambda a, b: a % b)
    def __truediv__(self, other: Any) -> Any: return int(self) / other
    def __rtruediv__(self, other: Any) -> Any: return other / int(self)
    def __neg__(self) -> Any: return _mul(self, -1)
    def __pos__(self) -> Size: return self
    def __abs__(self) -> Any: return self if self >= 0 else -self
    def __lt__(self, other: Any) -> bool: return _compare(self, other, "<")
    def __ge__(self, other: Any) -> bool: return _compare(self, other, ">=")
    def __gt__(self, other: Any) -> bool: return _compare(other, self, "<")
    def __le__(self, other: Any) -> bool: return _compare(other, self, ">=")
    def __hash__(self) -> int: return self._hash
    def __bool__(self) -> bool: return _compare(self, 0, "!=")
    def __str__(self) -> str: return plain(self) if self._single else f"({plain(self)})"
    def __repr__(self) -> str: return str(self)
    # fmt: on

    def __eq__(self, other: object) -> bool:
        if self is other or (isinstance(other, Size) and self._hash == other._hash and self.terms == other.terms):
            return True
        if (log := _log.get()) is None or log.exact:
            return False
        return isinstance(other, (int, float, Size)) and _compare(self, other, "==")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __index__(self) -> int:
        _compare(self, self.hint, "==")
        return self.hint

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())

    @property
    def _single(self) -> bool:
        """Is the text one name or one call?"""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1


def symbol(name: str, hint: int, low: int = 2, high: int = INT64 - 1) -> int:
    """The size ``name``; typed as the int it stands for."""
    return _made({(Symbol(name, hint, low, high),): 1})


def hint(n: Int) -> int:
    """The number at the sizes at hand: what costs are weighed by. Nothing is recorded."""
    return n if type(n) is int else n.hint if isinstance(n, Size) else int(n)


def is_number(*numbers: Int) -> bool:
    """Are all of them the same in every call?"""
    for n in numbers:
        if isinstance(n, Size):
            return False
    return True


def same(a: Int, b: Int) -> bool:
    """Are they known to be equal, as polynomials? Nothing is recorded."""
    if type(a) is type(b) is int:
        return a == b
    return a is b or (isinstance(a, Size) and isinstance(b, Size) and a.terms == b.terms)


def at_most(a: Int, b: Int) -> bool:
    """Is ``a <= b`` known to hold? Nothing is recorded."""
    return a <= b if type(a) is type(b) is int else range_of(b - a)[0] >= 0


def range_of(n: Int) -> tuple[int, int]:
    """Bounds that hold in every call (inclusive)."""
    if not isinstance(n, Size):
        return n, n
    if n._range is None:
        n._range = _bounds(n)
    return n._range


def value_at(n: Int, values: Mapping[str, int]) -> int:
    """The number when the symbols have these values."""
    return sum(c * math.prod(a.at(values) for a in product) for product, c in n.terms) if isinstance(n, Size) else n


def common_block(*lengths: Int) -> int:
    """The greatest number that divides all of them in every call; 0 where all are 0."""
    return math.gcd(*(c for n in lengths for c in _terms(n).values()))


def symbols_of(n: Int) -> frozenset[Symbol]:
    return frozenset[Symbol]().union(*(a.symbols() for product, _ in n.terms for a in product)) if isinstance(n, Size) else frozenset()


def plain(n: Int) -> str:
    """The text without brackets around it. It is C++ and Python alike, given functions ``floordiv`` and ``mod``."""
    if not isinstance(n, Size):
        return str(n)
    text = ""
    for product, c in sorted(n.terms, key=lambda t: (t[1] < 0, not t[0])):  # what is added before what is taken off
        parts = ([str(abs(c))] if abs(c) != 1 or not product else []) + [a.text for a in product]
        sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
        text += sign + "*".join(parts)
    return text


# ---- arithmetic ----


def _terms(n: Int) -> dict[Product, int]:
    return dict(n.terms) if isinstance(n, Size) else {(): n} if n else {}


def _made(total: Mapping[Product, int]) -> Any:
    """The size with these terms, zeros dropped; an int where it is constant. ``b * (n // b)`` becomes ``n - n % b``."""
    for product, c in total.items():
        for k, atom in enumerate(product):
            if c and isinstance(atom, Division) and atom.kind == "floordiv" and type(atom.by) is int and c % atom.by == 0:
                rest = dict(total)
                del rest[product]
                whole = _made({(*product[:k], *product[k + 1 :]): c // atom.by})
                return _add(_made(rest), _mul(whole, _sub(atom.number, _mod(atom.number, atom.by))))
    terms = tuple(sorted(((p, c) for p, c in total.items() if c), key=lambda t: (-len(t[0]), tuple(a.text for a in t[0]))))
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and not terms[0][0] else Size(terms)


def _arithmetic(a: Any, b: Any, exact: Callable[[Any, Any], Any], inexact: Callable[[Any, Any], Any]) -> Any:
    if isinstance(a, (int, Size)) and isinstance(b, (int, Size)):
        return exact(a, b)
    if isinstance(a, float) or isinstance(b, float):
        return inexact(*(int(n) if isinstance(n, Size) else n for n in (a, b)))
    return NotImplemented


def _add(a: Int, b: Int) -> Any:
    total = _terms(a)
    for product, c in _terms(b).items():
        total[product] = total.get(product, 0) + c
    return _made(total)


def _sub(a: Int, b: Int) -> Any:
    return _add(a, _mul(b, -1))


def _mul(a: Int, b: Int) -> Any:
    total: dict[Product, int] = {}
    for left, c in _terms(a).items():
        for right, d in _terms(b).items():
            product = tuple(sorted((*left, *right), key=lambda atom: atom.text))
            total[product] = total.get(product, 0) + c * d
    return _made(total)


def _quotient(n: Int, by: Int) -> tuple[Any, Any]:
    """(k, rest) with ``n == k * by + rest``: as much of ``n`` as is a multiple of ``by`` term by term."""
    if type(by) is int:
        terms = _terms(n)
        return _made({p: c // by for p, c in terms.items()}), _made({p: c % by for p, c in terms.items()})
    k: Any = 0
    rest: Any = n
    lead, factor = by.terms[0]
    for _ in range(8):
        step = next(((p, c) for p, c in _terms(rest).items() if c % factor == 0 and _without(p, lead) is not None), None)
        if step is None:
            break
        part = _made({_without(step[0], lead) or (): step[1] // factor})
        k, rest = k + part, rest - part * by
    return k, rest


def _without(product: Product, part: Product) -> Product | None:
    """``product`` without the factors of ``part``; None where it has not all of them."""
    left = list(product)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _floordiv(n: Int, by: Int) -> Any:
    if type(n) is type(by) is int:
        return n // by
    if not by > 0:
        raise Unsupported(f"{n} is divided by {by}, which may be zero or less", reason="dynamic shapes", hint="compile with dynamic=False")
    k, rest = _quotient(n, by)
    for shift in (0, -1, 1):
        left = rest - shift * by
        if range_of(left)[0] >= 0 and range_of(by - left)[0] > 0:
            return k + shift
    low, high = range_of(rest)
    if type(by) is int and low // by == high // by:
        return k + low // by
    g = _common(rest, by)
    return k + _made({(Division("floordiv", _quotient(rest, g)[0], by // g),): 1})


def _mod(n: Int, by: Int) -> Any:
    rest = _quotient(n, by)[1]
    whole = _floordiv(rest, by)
    if not isinstance(whole, Size) or not any(isinstance(a, Division) for p, _ in whole.terms for a in p):
        return rest - whole * by
    g = _common(rest, by)
    return _made({(Division("mod", _quotient(rest, g)[0], by // g),): g})


def _common(n: Int, by: Int) -> int:
    """What divides ``by`` and every coefficient of ``n``."""
    return math.gcd(by, *_terms(n).values()) if type(by) is int else 1


def _bounds(n: Size) -> tuple[int, int]:
    """Each atom is its least value and a rest that is not negative; expanded, the coefficients say which way each term pulls."""
    low, high = _expanded(n)
    for product, c in n.terms:  # n % b is at most n where n is not negative
        if c < 0 and len(product) == 1 and isinstance(atom := product[0], Division) and atom.kind == "mod" and range_of(atom.number)[0] >= 0:
            low = max(low, range_of(_add(n, _mul(_sub(_made({product: 1}), atom.number), -c)))[0])
    return low, high


def _expanded(n: Size) -> tuple[int, int]:
    total: dict[Product, int] = {}
    for product, c in n.terms:
        parts: dict[Product, int] = {(): c}
        for atom in product:
            least = atom.range()[0]
            grown: dict[Product, int] = {}
            for p, d in parts.items():
                grown[p] = grown.get(p, 0) + d * least
                grown[*p, atom] = grown.get((*p, atom), 0) + d
            parts = grown
        for p, d in parts.items():
            total[p] = total.get(p, 0) + d
    low = high = total.pop((), 0)
    for p, c in total.items():
        most = c * math.prod(a.range()[1] - a.range()[0] for a in p)
        low, high = low + min(most, 0), high + max(most, 0)
    return low, high


# ---- what was decided ----


@dataclass(frozen=True)
class Condition:
    """``size relation 0``."""

    size: Int
    relation: Relation

    @property
    def text(self) -> str:
        """As one writes it: ``s0 >= 16``."""
        terms = _terms(self.size)
        left = _made({p: c for p, c in terms.items() if c > 0 and p}) + max(terms.get((), 0), 0)
        right = left - self.size
        if type(left) is int and self.relation == ">=":
            return f"{plain(right)} <= {left}"
        return f"{plain(left)} {self.relation} {plain(right)}"

    def holds(self, values: Mapping[str, int]) -> bool:
        return _holds(value_at(self.size, values), self.relation)


def _holds(number: int, relation: Relation) -> bool:
    return {"==": number == 0, "!=": number != 0, "<": number < 0, ">=": number >= 0}[relation]


class Conditions:
    """The log of what was decided by hints. ``known``: conditions that hold already.

    ``exact``: an equality that does not follow is answered with False and not recorded, for code that is right without it ("not known to be
    equal"); orders are recorded. ``told`` hears of each condition when it is recorded.
    """

    def __init__(self, known: Iterable[Condition] = (), exact: bool = False, told: Callable[[Condition], None] = lambda condition: None) -> None:
        self.exact, self.told = exact, told
        self.known = {(c.size, c.relation): None for c in known}
        self.recorded: list[Condition] = []

    def decide(self, size: Size, relation: Relation) -> bool:
        if self.exact and relation in ("==", "!="):
            return relation == "!="
        answer = _holds(size.hint, relation)
        condition = _oriented(size, relation if answer else OPPOSITE[relation])
        if not self._follows(condition):
            self.recorded.append(condition)
            self.known[condition.size, condition.relation] = None
            self.told(condition)
        return answer

    def _follows(self, condition: Condition) -> bool:
        if (condition.size, condition.relation) in self.known:
            return True
        at_least = [size for size, relation in self.known if relation == ">="]
        least = 0 if condition.relation == ">=" else 1
        return condition.relation in (">=", "!=") and any(range_of(condition.size - size)[0] >= least for size in at_least)


def _oriented(size: Int, relation: Relation) -> Condition:
    """One form for one meaning: ``n < 0`` is ``-n - 1 >= 0``, and an equality begins with a positive coefficient."""
    if relation == "<":
        return Condition(-size - 1, ">=")
    return Condition(-size if relation != ">=" and isinstance(size, Size) and size.terms[0][1] < 0 else size, relation)


_log: ContextVar[Conditions | None] = ContextVar("sizes_log", default=None)


@contextmanager
def recorded_by(log: Conditions | None) -> Generator[None]:
    """Comparisons inside the block that do not follow are decided by ``log``; None decides nothing, for programs whose sizes are numbers."""
    token = _log.set(log)
    try:
        yield
    finally:
        _log.reset(token)


def _compare(a: Any, b: Any, relation: Relation) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        a, b = (int(n) if isinstance(n, Size) else n for n in (a, b))
        return a == b if relation == "==" else a != b if relation == "!=" else a < b if relation == "<" else a >= b
    if not (isinstance(a, (int, Size)) and isinstance(b, (int, Size))):
        return NotImplemented
    difference = _sub(a, b)
    if not isinstance(difference, Size):
        return _holds(difference, relation)
    low, high = range_of(difference)
    if relation in ("==", "!="):
        if low > 0 or high < 0 or _never_zero(difference):
            return relation == "!="
    elif high < 0 or low >= 0:
        return (high < 0) == (relation == "<")
    log = _log.get()
    if log is not None:
        return log.decide(difference, relation)
    if relation in ("==", "!="):
        return relation == "!="
    raise Unsupported(f"whether {Condition(difference, relation).text} depends on the call", reason="dynamic shapes", hint="compile with dynamic=False")


def _never_zero(n: Size) -> bool:
    """A constant that is no multiple of what divides all other coefficients."""
    constant = dict(n.terms).get((), 0)
    return constant % math.gcd(*(c for product, c in n.terms if product)) != 0
