"""Fits the polynomials of ``compiler_lab/codegen/math.h``: minimax, by Remez's exchange algorithm, in 50 digits.

``python benchmarks/fit_math.py`` prints the block that stands in the header between its two markers, ``--write`` puts it there, and
``--check`` fails where the two differ. Each row of ``FITS`` says what is approximated, on which interval, and the weight that turns
the polynomial's error into the relative error of the function it serves; the error after rounding the coefficients is printed
beside each, in units of the last place. Nothing in the block comes from anywhere else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpmath import mp

mp.dps = 50
Real = Any  # mpmath.mpf
HEADER = Path(__file__).parent.parent / "compiler_lab" / "codegen" / "math.h"
BEGIN, END = "// ---- fitted by benchmarks/fit_math.py: begin ----", "// ---- fitted by benchmarks/fit_math.py: end ----"
BITS = {"f32": 24, "f64": 53}


@dataclass(frozen=True)
class Fit:
    """``function(t) ~ polynomial(t)`` on [low, high], such that ``weight(t) * error`` is even. ``what`` is the comment in C."""

    name: str
    kind: str
    what: str
    function: Callable[[Real], Real]
    weight: Callable[[Real], Real]
    low: Real
    high: Real
    degree: int


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")  # a little more than rounding to the nearest n leaves
ROOT = mp.sqrt(2)


def _exp(r: Real) -> Real:
    return (mp.expm1(r) - r) / r**2


def _log(f: Real) -> Real:
    return (mp.log1p(f) - f + f**2 / 2) / f**3


def _atanh(z: Real) -> Real:
    """log((1 + s) / (1 - s)) == 2 s + s z g(z), z == s * s."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s) / (s * z)


FITS = (
    Fit("exp", "f32", "e^r = 1 + r + r^2 p(r)", _exp, lambda r: abs(r**2 / mp.expm1(r)), -HALF_LN2, HALF_LN2, 4),
    Fit("log", "f32", "log(1 + f) = f - f^2 / 2 + f^3 p(f)", _log, lambda f: f**3 / mp.log1p(f), 1 / ROOT - 1, ROOT - 1, 7),
    Fit(
        "erf",
        "f32",
        "erf(x) = x + x p(x^2), |x| < 1",
        lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1,
        lambda u: mp.sqrt(u) / mp.erf(mp.sqrt(u)),
        mp.mpf(0),
        mp.mpf(1),
        6,
    ),
    Fit("log2_erfc", "f32", "erf(x) = 1 - 2^p(x), 1 <= x <= 4", lambda x: mp.log(mp.erfc(x), 2), lambda x: mp.erfc(x) / mp.erf(x), mp.mpf(1), mp.mpf(4), 6),
    Fit("exp2", "f32", "2^r, for erf only", lambda r: mp.mpf(2) ** r, lambda r: mp.erfc(1) * mp.mpf(2) ** -r, mp.mpf("-0.5"), mp.mpf("0.5"), 5),
    Fit("exp", "f64", "e^r = 1 + r + r^2 p(r)", _exp, lambda r: abs(r**2 / mp.expm1(r)), -HALF_LN2, HALF_LN2, 9),
    Fit("log", "f64", "log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s^2", _atanh, lambda z: z / 2, mp.mpf(0), ((ROOT - 1) / (ROOT + 1)) ** 2, 6),
)


def remez(fit: Fit, rounds: int = 12) -> list[Real]:
    """Coefficients, lowest first, of the polynomial whose weighted error has degree + 2 equal alternating extremes."""
    n = fit.degree + 2
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    # no grid point may be 0, where the functions are limits
    grid = [middle - half * mp.cos(mp.pi * (i + mp.mpf("0.37")) / 600) for i in range(600)]
    values = [(t, fit.function(t), fit.weight(t)) for t in grid]
    points = [values[round(i * 599 / (n - 1))] for i in range(n)]
    coefficients: list[Real] = []
    for _ in range(rounds):
        system = mp.matrix(n, n)
        right = mp.matrix(n, 1)
        for i, (t, value, weight) in enumerate(points):
            for j in range(n - 1):
                system[i, j] = t**j
            system[i, n - 1] = (-1) ** i / weight
            right[i] = value
        solved = mp.lu_solve(system, right)
        coefficients = [solved[j] for j in range(n - 1)]
        level = abs(solved[n - 1])
        errors = [(weight * (evaluate(coefficients, t) - value), (t, value, weight)) for t, value, weight in values]
        points = _extremes(errors, n)
        if max(abs(e) for e, _ in errors) <= level * mp.mpf("1.0001"):
            break
    return coefficients


def _extremes(errors: list[tuple[Real, tuple[Real, Real, Real]]], n: int) -> list[tuple[Real, Real, Real]]:
    """The largest error of each run of one sign; where there are more than ``n`` runs, without the smaller end."""
    runs: list[tuple[Real, tuple[Real, Real, Real]]] = []
    for error, point in errors:
        if runs and (runs[-1][0] > 0) == (error > 0):
            runs[-1] = max(runs[-1], (error, point), key=lambda r: abs(r[0]))
        else:
            runs.append((error, point))
    while len(runs) > n:
        runs.pop(0 if abs(runs[0][0]) < abs(runs[-1][0]) else -1)
    if len(runs) < n:
        raise ArithmeticError(f"{len(runs)} alternations where {n} are needed: the degree is too high for the precision")
    return [point for _, point in runs]


def evaluate(coefficients: list[Real], t: Real) -> Real:
    return mp.polyval(coefficients[::-1], t)


def rounded(value: Real, kind: str, bits: int = 0) -> Real:
    """To the nearest number of the type, or to ``bits`` bits."""
    mantissa, exponent = mp.frexp(value)
    scale = mp.mpf(2) ** (bits or BITS[kind])
    return mp.nint(mantissa * scale) / scale * mp.mpf(2) ** exponent


def literal(value: Real, kind: str) -> str:
    """A hexadecimal literal: exact, and the same on every machine."""
    text = float(value).hex()
    mantissa, exponent = text.split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}" + ("f" if kind == "f32" else "")


def constants(kind: str) -> list[str]:
    """ln 2 in two parts, the first so short that ``n * LN2_HI`` is exact for every exponent ``n``, and 1 / ln 2."""
    ctype, ln2 = {"f32": "float", "f64": "double"}[kind], mp.log(2)
    high = rounded(ln2, kind, BITS[kind] - (9 if kind == "f32" else 12))
    rows = {"LN2": ln2, "LN2_HI": high, "LN2_LO": ln2 - high, "LOG2E": 1 / ln2}
    return [f"static constexpr {ctype} VM_{name}_{kind.upper()} = {literal(rounded(value, kind), kind)};" for name, value in rows.items()]


def function(fit: Fit) -> list[str]:
    ctype = {"f32": "float", "f64": "double"}[fit.kind]
    coefficients = [rounded(c, fit.kind) for c in remez(fit)]
    width = fit.high - fit.low
    sample = [fit.low + width * (i + mp.mpf("0.5")) / 997 for i in range(997)]
    worst = max(abs(fit.weight(t) * (evaluate(coefficients, t) - fit.function(t))) for t in sample)
    lines = [f"// {fit.what}; off by at most {float(worst * mp.mpf(2) ** BITS[fit.kind]):.2g} units in the last place, evaluated exactly"]
    lines += [f"LAB_INLINE {ctype} vm_poly_{fit.name}_{fit.kind}({ctype} t) {{", f"  {ctype} p = {literal(coefficients[-1], fit.kind)};"]
    lines += [f"  p = vm_fma_{fit.kind}(p, t, {literal(c, fit.kind)});" for c in coefficients[-2::-1]]
    return [*lines, "  return p;", "}"]


def block() -> str:
    lines = [BEGIN, *constants("f32"), *constants("f64")]
    for fit in FITS:
        lines += function(fit)
    return "\n".join([*lines, END])


def main() -> int:
    parser = argparse.ArgumentParser(description="Fit the polynomials of the kernels' math header.")
    parser.add_argument("--write", action="store_true", help="put the block into the header")
    parser.add_argument("--check", action="store_true", help="fail where the header differs")
    wanted = parser.parse_args()
    fitted, text = block(), HEADER.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[-1]
    if wanted.write:
        HEADER.write_text(before + fitted + after)
    elif not wanted.check:
        print(fitted)
    return int(wanted.check and text != before + fitted + after)


if __name__ == "__main__":
    sys.exit(main())
