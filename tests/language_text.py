# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: strings and numbers."""

from __future__ import annotations

import cmath
import math
import operator
from typing import Any

from .language import program


# strings


@program((3, 2.5, "ab"), (-12, 1e10, ""), (0, float("nan"), "é"))
def f_strings(x: Any, i: Any, f: Any, s: Any) -> Any:
    w = 8
    return x + 1, f"{i}", f"{i:>5}|{i:05d}|{i:x}|{i:+}|{i:,}", f"{f:.3f}|{f:e}|{f:10.2}|{f!r}", f"{s:<{w}}|{s!r}|{s!a}|{s:^10}", f"{i=}", f"{s}{f}"


@program((), whole=True)
def f_strings_of_containers(x: Any) -> Any:
    return x * 2, f"{[1, 2]} {(1,)} {{}} {None} {True} {x.shape} {x.dtype} {x.ndim:>3}", f"{ {'a': 1} }", f"{x.shape[0] * 2:03d}"


@program(("a-b-c",), ("Hello World",), ("",))
def str_methods(x: Any, s: Any) -> Any:
    return (
        (s.upper(), s.lower(), s.title(), s.swapcase(), s.capitalize(), s.casefold()),
        (s.split("-"), s.split(), s.rsplit("-", 1), s.partition("-"), s.rpartition("-"), s.splitlines()),
        (s.replace("a", "zz"), s.find("b"), s.rfind("b"), s.count("o"), s.startswith("a"), s.endswith(("c", "d"))),
        (s.strip("ad"), s.lstrip("a"), s.rstrip("c"), s.center(15, "*"), s.ljust(5), s.rjust(15), s.zfill(12)),
        (s.isalpha(), s.isdigit(), s.isupper(), s.isidentifier(), s.isspace(), s.removeprefix("a"), s.removesuffix("c")),
        (s.encode(), s.translate({97: "b"}), s.expandtabs(), s + "x", s * 2, s[::-1], len(s), "a" in s, s == "a-b-c", s < "b"),
        x + len(s),
    )


@program(("abc", 1), ("xyz", 2))
def str_formatting(x: Any, s: Any, i: Any) -> Any:
    return "{} {k} {0!r:>6}".format(s, k=i) if i > 5 else "{0} {k}".format(s, k=i), "%s=%05.1f" % (s, i), "%(a)s" % {"a": s}, "{:>{w}}".format(s, w=6), ",".join(sorted(s)), x  # fmt: skip


@program(("abc",), ("a",))
def str_loops(x: Any, s: Any) -> Any:
    out: list[Any] = []
    for i, c in enumerate(s):
        out.append((i, c, ord(c), chr(ord(c) + 1)))
        x = x + ord(c)
    return x, out, list(s), tuple(s), set(s) == {"a"}, max(s), min(s), list(reversed(s)), sorted(s, reverse=True), "".join(reversed(s)), s[0], s[-1:]


@program((b"ab\x00",), (b"",))
def bytes_methods(x: Any, b: Any) -> Any:
    return x, b.hex(), list(b), b + b"c", b[:1], len(b), b.decode("latin1"), b.replace(b"a", b"z"), b"a" in b, bytes([1, 2]), bytes(3), b.split(b"b")


@program(("k",))
def string_errors(x: Any, s: Any) -> Any:
    out: list[Any] = []
    for f in (
        lambda: s.index("q"),
        lambda: int(s),
        lambda: s + 1,
        lambda: s[5],
        lambda: "{}".format(),
        lambda: s.nothing,
        lambda: s * "a",
        lambda: s.join([1]),
    ):
        try:
            out.append(f())
        except (ValueError, TypeError, IndexError, AttributeError) as e:
            out.append((type(e), str(e), e.args))
    return x, out


# numbers


@program((7, 3), (-7, 3), (2**70, 5), (0, -1))
def integers(x: Any, a: Any, b: Any) -> Any:
    return (
        a // b,
        a % b,
        a / b,
        a**2,
        -a,
        ~a,
        a & b,
        a | b,
        a ^ b,
        a << 2,
        a >> 1,
        divmod(a, b),
        pow(a, 3, 7),
        abs(a),
        a.bit_length(),
        int(a),
        float(a),
        bool(a),
        x,
    )


@program((2.5, -1.5), (1e300, 1e-300), (0.0, -0.0), (float("inf"), 1.0))
def floats(x: Any, a: Any, b: Any) -> Any:
    return (
        a + b,
        a * b,
        a - b,
        round(a) if math.isfinite(a) else None,
        round(b, 1),
        a.is_integer(),
        repr(a),
        a.hex(),
        abs(b),
        -a,
        a < b,
        a == b,
        x * 2,
        math.copysign(1, b),
    )


@program((4.0,), (2.0,), (0.5,))
def maths(x: Any, v: Any) -> Any:
    return (
        math.sqrt(v), math.floor(v), math.ceil(v), math.log(v), math.log2(v), math.exp(v), math.pi, math.sin(v), math.hypot(v, 1), math.gcd(12, 18), math.comb(5, 2),
        math.prod([1, 2, v]), math.isclose(v, v + 1e-12), math.trunc(v), math.fsum([0.1] * 10), math.inf, math.isnan(v), math.factorial(5), math.lcm(4, 6), math.dist([0], [v]),
        math.log1p(v), x * math.sqrt(v),
    )  # fmt: skip


@program((1 + 2j,), (0j,))
def complexes(x: Any, c: Any) -> Any:
    return c.real, c.imag, c.conjugate(), abs(c), c * 2, c == 1 + 2j, complex(1, 2), complex("1+2j"), cmath.phase(c), repr(c), x


@program((5, 2), (1, 0), (-3, -1))
def number_methods(x: Any, a: Any, b: Any) -> Any:
    return (
        (a.to_bytes(4, "big", signed=True), int.from_bytes(b"\x01\x02", "little"), a.bit_count(), a.numerator, a.denominator, a.real, a.conjugate(), float(b).as_integer_ratio()),
        (int("ff", 16), int("0b11", 0), int(3.99), int("  7 "), int(), float("1e3"), float(), bool(), str(), round(2.5), round(3.5), round(-2.567, 2), round(1234, -2)),
        (a.__add__(b), a.__index__(), operator.index(a), a.__bool__(), (1.5).__floor__(), (7).__divmod__(2), float.fromhex("0x1p4"), x + a),
    )  # fmt: skip


@program((0,), (3,))
def number_errors(x: Any, n: Any) -> Any:
    out: list[Any] = []
    for f in (
        lambda: 1 // n,
        lambda: 1 / n,
        lambda: 5 % n,
        lambda: int("x"),
        lambda: math.sqrt(-1),
        lambda: 2.0**5000,
        lambda: n << -1,
        lambda: [] + n,
        lambda: pow(2, -1, n),
    ):
        try:
            out.append(f())
        except (ArithmeticError, ValueError, TypeError) as e:
            out.append((type(e), str(e)))
    return x + n, out


@program()
def equal_keys(x: Any) -> Any:
    d: dict[Any, Any] = {1: "a"}
    d[1.0] = "b"
    d[True] = "c"
    d["1"] = "d"
    d[0] = 1
    d[False] = 2
    d[-0.0] = 3
    return d, list(map(type, d)), 1 == True == 1.0, {1, 1.0, True}, x, {True: x}[1], [1, 2.0, True].index(True), [1.0, 1].count(1)


@program()
def nan_in_containers(x: Any) -> Any:
    n = float("nan")
    m = float("nan")
    return n in [n], n in [m], [n].index(n), [n] == [n], [n] == [m], n == n, (n,) == (n,), {n: 1}.get(n), {n: 1}.get(m), [n, m].count(n), n in {n}, n != n, x


@program((1, 5), (5, 1), (3, 3))
def chained_comparison(x: Any, a: Any, b: Any) -> Any:
    log: list[Any] = []

    def see(v: Any) -> Any:
        log.append(v)
        return v

    return see(a) < see(b) < see(4), see(a) == see(a) != see(b), 0 < a < 10 > b, a is a is not None, a in [a] == True, log, x + a


@program((5,), (0,))
def boolean_operators(x: Any, n: Any) -> Any:
    return (
        n and "yes",
        n or "no",
        not n,
        (n and x) is x,
        n if n else -1,
        bool(n) + 1,
        all([]),
        any([]),
        all([n, 1]),
        any((n, 0)),
        (n or [1])[0] if n == 0 else n,
    )
