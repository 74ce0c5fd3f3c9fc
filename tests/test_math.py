"""The math header: every function against float64 or mpmath and against eager, on samples, specials and (own polynomials) a sweep of all bits.

``python tests/test_math.py`` sweeps all 2^32 float32 values through each polynomial; the suite takes every 1009th.
"""

from __future__ import annotations

import ctypes
import functools
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from compiler_lab.codegen.math_table import ANY, COMPUTE, FLOAT, FUNCTIONS, LOAD, STORAGE, STORE, VECTOR_CALLS, function
from compiler_lab.lowering import ops
from compiler_lab.runtime.toolchain import PLAIN, compile_command, find_toolchain, headers, run_compiler, write_sources

ROOT = Path(__file__).parent.parent
CTYPES = {c: d for d, c in COMPUTE.items() if d not in LOAD and c != "bool"}
BINARY = {"pow", "atan2", "hypot", "copysign", "maximum", "minimum", "floordiv", "remainder", "trunc_div", "fmod", "nextafter", "shift_left", "shift_right"}
OWN = ("exp", "exp2", "expm1", "log", "log1p", "tanh", "sigmoid", "erf")

SWEEP = r"""
extern "C" { double exp(double) noexcept; double exp2(double) noexcept; double expm1(double) noexcept; double log(double) noexcept;
double log1p(double) noexcept; double tanh(double) noexcept; double erf(double) noexcept; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
// the distance of `got` from the exact value in units of the float nearest to it; 1e30 where one is NaN, or zeros differ in sign
static double ulps(float got, double want) {
  float near = (float)want;
  if (want != want || got != got) return (want != want) == (got != got) ? 0 : 1e30;
  if (got == near) return want == 0 && !__builtin_signbit(got) != !__builtin_signbit(want) ? 1e30 : 0;
  if (__builtin_isinf(want)) return 1e30;
  int e = (int)((lab_bits_f32(near) >> 23) & 255);
  double value = __builtin_isinf(got) ? __builtin_copysign(0x1p128, got) : got;
  return __builtin_fabs(value - want) / __builtin_ldexp(1.0, (e < 1 ? 1 : e > 254 ? 254 : e) - 150);
}
#define SWEEP(f) extern "C" double sweep_##f(uint64_t step, uint32_t* at) { \
  double worst = 0; \
  _Pragma("omp parallel for schedule(dynamic, 16)") \
  for (uint64_t b = 0; b < (1ull << 32); b += step * 4096) { \
    float x[4096], y[4096]; double most = 0; uint32_t where = 0; \
    for (int i = 0; i < 4096; i++) x[i] = lab_f32_bits((uint32_t)(b + i * step)); \
    _Pragma("omp simd") \
    for (int i = 0; i < 4096; i++) y[i] = vm_##f##_f32(x[i]); \
    for (int i = 0; i < 4096 && b + i * step < (1ull << 32); i++) { double e = ulps(y[i], f(x[i])); if (e > most) { most = e; where = lab_bits_f32(x[i]); } } \
    _Pragma("omp critical") \
    if (most > worst) { worst = most; *at = where; } \
  } \
  return worst; }
"""


def _source() -> str:
    """One loop ``y[i] = f(x[i], z[i])`` for every row of the table, the half conversions, and the sweeps."""
    lines = ['#include "lab_math.h"']

    def loop(name: str, source: str, result: str, call: str) -> None:
        lines.append(f'extern "C" void {name}(const {source}* x, const {source}* z, {result}* y, int64_t n) {{\n#pragma omp simd')
        lines.append(f"  for (int64_t i = 0; i < n; i++) y[i] = {call};\n}}")

    for (op, ctype), name in FUNCTIONS.items():
        if ctype != "bool" and op not in ops.RANDOM:  # those are compared in test_random.py
            loop(f"t_{op}_{ctype}", ctype, "bool" if op in ops.BOOLEAN else ctype, f"{name}(x[i]{', z[i]' if op in BINARY else ''})")
    for dtype in LOAD:
        loop(LOAD[dtype] + "_", STORAGE[dtype], "float", f"{LOAD[dtype]}(x[i])")
        loop(STORE[dtype] + "_", "float", STORAGE[dtype], f"{STORE[dtype]}(x[i])")
    for ctype in CTYPES:
        loop(f"t_bool_{ctype}", ctype, "bool", "lab_cast<bool>(x[i])")
    return "\n".join([*lines, SWEEP, *(f"SWEEP({f})" for f in OWN), ""])


def _library(folder: str, native: bool) -> ctypes.CDLL:
    toolchain = find_toolchain(cache_dir=folder)
    write_sources(folder, _source())
    command = compile_command(toolchain, folder, output="math.so")
    ran = run_compiler([c for c in command if native or not c.startswith("-march")], folder)
    assert ran.code == 0, ran.output
    return ctypes.CDLL(str(Path(folder, "math.so")))


@pytest.fixture(scope="module", params=["native", "baseline"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return _library(str(tmp_path_factory.mktemp(str(request.param))), request.param == "native")


def _call(library: ctypes.CDLL, name: str, x: Tensor, z: Tensor | None = None, out: torch.dtype | None = None) -> Tensor:
    y = torch.empty(x.shape, dtype=out or x.dtype)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, x if z is None else z, y)]
    getattr(library, name)(*pointers, ctypes.c_int64(x.numel()))
    return y


def sweep(library: ctypes.CDLL, name: str, step: int) -> tuple[float, float]:
    """(worst error in ulp, where) over every ``step``-th float32."""
    run, at = getattr(library, f"sweep_{name}"), ctypes.c_uint32()
    run.restype, run.argtypes = ctypes.c_double, [ctypes.c_uint64, ctypes.c_void_p]
    worst = run(step, ctypes.byref(at))
    return worst, ctypes.cast(ctypes.byref(at), ctypes.POINTER(ctypes.c_float)).contents.value


SPECIALS = [
    0.0, 1, 0.5, 2, math.inf, 1e-45, 1e-40, 1.1754942e-38, 1.17549435e-38, 3.4e38, 88.72, 88.73, 87.4, 103.9, 104.5, 127.9, 128, 126.5, 149.5, 1e-8,
    0.99999994, 1.0000001, 10, 20, 1e10, 5e-324, 1e-310, 2.2250738585072014e-308, 709.7, 709.79, 745.1, 745.2, 1023.9, 1e300, 1.7e308,
]  # fmt: skip


def specials(dtype: torch.dtype) -> Tensor:
    values = torch.tensor(SPECIALS, dtype=torch.float64).to(dtype)
    return torch.cat([values, -values, torch.tensor([math.nan], dtype=dtype)])


def samples(dtype: torch.dtype, n: int) -> Tensor:
    """Specials, ``n`` uniform over all bit patterns and ``n`` of the sizes that programs use."""
    draw = torch.Generator().manual_seed(0)
    ints = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    bits = torch.randint(torch.iinfo(ints).min, torch.iinfo(ints).max, (n,), dtype=ints, generator=draw).view(dtype)
    size = torch.tensor([0.1, 1, 3, 30], dtype=torch.float64)[torch.randint(0, 4, (n,), generator=draw)]
    return torch.cat([specials(dtype), bits, (torch.randn(n, dtype=torch.float64, generator=draw) * size).to(dtype)])


def operands(op: str, dtype: torch.dtype, n: int) -> tuple[Tensor, ...]:
    x = samples(dtype, n)
    if op not in BINARY:
        return (x,)
    s = specials(dtype)
    return torch.cat([s.repeat_interleave(len(s)), x]), torch.cat([s.repeat(len(s)), x.roll(len(x) // 3)])


def ulp_error(got: Tensor, want: Tensor, rest: Tensor) -> Tensor:
    """Distance from ``want + rest`` in units of the number nearest to it; huge where one is NaN or infinite and the other is not."""
    near = want.to(got.dtype)
    unit = torch.nextafter(near.abs(), torch.tensor(math.inf, dtype=got.dtype)).double() - near.abs().double()
    error = ((got.double() - want) - rest).abs() / unit
    same = (got == near) & ~torch.isfinite(near) | torch.isnan(got) & torch.isnan(want)
    return torch.where(same, 0.0, torch.nan_to_num(error, nan=1e30, posinf=1e30))


EXACT: dict[str, Callable[..., Any]] = {
    "log2": lambda v: mpmath.log(v) / mpmath.log(2), "exp2": lambda v: mpmath.mpf(2) ** v, "rsqrt": lambda v: 1 / mpmath.sqrt(v),
    "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)), "pow": mpmath.power,
}  # fmt: skip


@functools.cache
def exact_f64(op: str) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]:
    """(operands, eager, nearest double, what is left) by mpmath; eager's value where the exact one is zero or not finite."""
    args = operands(op, torch.float64, 300)
    eager = ops.SCALAR[op](*args)
    compute = EXACT.get(op) or getattr(mpmath, op, None)
    want, rest = eager.clone(), torch.zeros_like(eager)
    with mpmath.workprec(160):
        for i, values in enumerate(zip(*(t.tolist() for t in args), strict=True)):
            pole = math.isinf(eager[i]) and min(map(abs, values)) <= 1
            if compute is None or pole or not all(map(math.isfinite, values)) or torch.isnan(eager[i]):
                continue
            # beyond this even the exponent of the answer would not fit in memory
            huge = any(abs(v) > 1e5 for v in values) and op in ("exp", "expm1", "sinh", "cosh", "exp2", "pow", "erfc")
            value = mpmath.inf if huge else compute(*map(mpmath.mpf, values))
            if mpmath.isfinite(value) and 0 < abs(value) < 1.79e308:
                want[i] = float(value)
                rest[i] = float(value - mpmath.mpf(want[i].item()))
    return args, eager, want, rest


@pytest.mark.parametrize("op", FLOAT)
@pytest.mark.parametrize("ctype", ["float", "double"])
def test_within_four_ulp_and_as_eager_at_the_edges(library: ctypes.CDLL, op: str, ctype: str) -> None:
    if ctype == "float":
        args = operands(op, torch.float32, 200_000)
        eager, want = ops.SCALAR[op](*args), ops.SCALAR[op](*(a.double() for a in args))
        rest = torch.zeros_like(want, dtype=torch.float64)
    else:
        args, eager, want, rest = exact_f64(op)
    got = _call(library, f"t_{op}_{ctype}", *args, out=eager.dtype)
    if op in ("signbit", "isnan", "isinf", "nextafter", "floor", "ceil", "trunc", "round", "copysign"):
        same = (got == eager) & (torch.signbit(got) == torch.signbit(eager)) | torch.isnan(got) & torch.isnan(eager)
        assert same.all(), [t[~same][:5] for t in (*args, got, eager)]
        return
    ours, theirs = ulp_error(got, want, rest), ulp_error(eager, want, rest)
    bad = ours > torch.clamp(theirs, min=4.0)
    assert not bad.any(), [t[bad][:5] for t in (*args, got, eager, want, ours)]
    signs = (got == 0) & (eager == 0) & (torch.signbit(got) != torch.signbit(eager))
    assert not signs.any(), [t[signs][:5] for t in (*args, got, eager)]


@pytest.mark.parametrize("op", OWN)
def test_sweep_of_float32(library: ctypes.CDLL, op: str) -> None:
    worst, at = sweep(library, op, 1009)
    assert worst <= 2.6, f"{op} is {worst} ulp off at {at!r}"


def _fmod(op: str, x: Tensor, z: Tensor) -> Tensor:
    """By Python's floats."""
    defined = torch.isfinite(x) & (z != 0) & ~torch.isnan(z)
    pairs = zip(x.tolist(), z.tolist(), defined.tolist(), strict=True)
    rest = torch.tensor([math.fmod(a, b) if d else math.nan for a, b, d in pairs], dtype=torch.float64).to(x.dtype)
    return torch.where((rest != 0) & ((rest < 0) != (z < 0)), rest + z, rest) if op == "remainder" else rest


@pytest.mark.parametrize(("op", "ctype"), [(op, c) for (op, c), name in FUNCTIONS.items() if name.startswith("lab_") and c in CTYPES and op not in ops.RANDOM])
def test_arithmetic_helpers_are_eager(library: ctypes.CDLL, op: str, ctype: str) -> None:
    dtype = CTYPES[ctype]
    if dtype.is_floating_point:
        args = operands(op, dtype, 3000)
    else:
        info = torch.iinfo(dtype)
        edge = torch.tensor(sorted({info.min, max(info.min, -3), 0, 1, 2, 3, 7, info.max}), dtype=dtype)
        draw = torch.Generator().manual_seed(1)
        x = torch.cat([edge.repeat_interleave(len(edge)), torch.randint(info.min, info.max, (500,), dtype=dtype, generator=draw)])
        z = torch.cat([edge.repeat(len(edge)), torch.randint(max(info.min, -9), 9, (500,), dtype=dtype, generator=draw)])
        if op in ("floordiv", "remainder", "trunc_div", "fmod"):  # eager raises for 0; the least number by -1 traps in it
            keep = (z != 0) & ~((z == -1) & (x == info.min) if info.min < 0 else torch.zeros_like(x, dtype=torch.bool))
            x, z = x[keep], z[keep]
        if op == "pow":
            z = z.clamp(-3 if info.min < 0 else 0, 9)
        args = (x, z) if op in BINARY else (x,)
    eager = ops.SCALAR[op](*args)
    got = _call(library, f"t_{op}_{ctype}", args[0], args[-1])
    same = got == eager
    if dtype.is_floating_point:
        same = same & (torch.signbit(got) == torch.signbit(eager)) | torch.isnan(got) & torch.isnan(eager)
        if op in ("maximum", "minimum"):  # eager itself gives either zero, by position
            same |= (got == 0) & (eager == 0)
        if op in ("fmod", "remainder"):  # eager's vectors give NaN where the quotient overflows; C's fmod is exact
            same |= torch.isnan(eager) & (got == _fmod(op, *args))
    assert same.all(), [t[~same][:5] for t in (*args, got, eager)]


@pytest.mark.parametrize("ctype", [c for c in CTYPES if c not in ("float", "double")])
def test_integer_division_never_traps(library: ctypes.CDLL, ctype: str) -> None:
    dtype = CTYPES[ctype]
    x = torch.tensor([torch.iinfo(dtype).min, 5, torch.iinfo(dtype).min], dtype=dtype)
    z = torch.tensor([0, 0, -1 if dtype.is_signed else 0], dtype=dtype)
    for op in ("floordiv", "remainder", "trunc_div", "fmod"):
        got = _call(library, f"t_{op}_{ctype}", x, z)
        assert got[:2].tolist() == [0, 0]
        assert got[2].item() in (0, torch.iinfo(dtype).min)


@pytest.mark.parametrize("dtype", list(LOAD))
def test_half_conversions_are_eager_for_every_value(library: ctypes.CDLL, dtype: torch.dtype) -> None:
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    wide = _call(library, LOAD[dtype] + "_", bits, out=torch.float32)
    eager = bits.view(dtype).float()
    assert ((wide == eager) & (torch.signbit(wide) == torch.signbit(eager)) | torch.isnan(wide) & torch.isnan(eager)).all()
    middle = (eager[:-1].double() + eager[1:].double()).div(2).float()  # ties go to even
    for x in (
        eager,
        middle,
        torch.nextafter(middle, torch.tensor(math.inf)),
        torch.nextafter(middle, torch.tensor(-math.inf)),
        samples(torch.float32, 200_000),
    ):
        narrow, wanted = _call(library, STORE[dtype] + "_", x.contiguous(), out=torch.int16), x.to(dtype)
        assert ((narrow == wanted.view(torch.int16)) | torch.isnan(narrow.view(dtype)) & torch.isnan(wanted)).all()


@pytest.mark.parametrize("ctype", CTYPES)
def test_cast_to_bool(library: ctypes.CDLL, ctype: str) -> None:
    x = specials(CTYPES[ctype]) if CTYPES[ctype].is_floating_point else torch.arange(-2, 3).to(CTYPES[ctype])
    assert torch.equal(_call(library, f"t_bool_{ctype}", x, out=torch.bool), x.to(torch.bool))


def test_every_scalar_op_is_a_row_or_an_expression() -> None:
    """An op without a row is written as a C++ expression: exactly these."""
    without = {op for op in ops.SCALAR if op not in (*ops.RANDOM, "shift_left", "shift_right") and function(op, torch.float32) is None}
    assert without == {
        "add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "where", "neg", "reciprocal",
    }  # fmt: skip
    assert set(FLOAT) | set(ANY) <= set(ops.SCALAR) and set(VECTOR_CALLS) <= set(FLOAT)


def test_float_loops_are_vectorised(tmp_path: Path) -> None:
    """gcc says of each loop whether it is; floating point division and its kin are not, since libm has no vector fmod, lgamma, erfc or nextafter."""
    toolchain = find_toolchain(cache_dir=str(tmp_path))
    if toolchain.kind != "gcc" or "AVX2" not in toolchain.extensions:
        pytest.skip("asks gcc about AVX2")
    write_sources(str(tmp_path), _source())
    ran = run_compiler([*compile_command(toolchain, str(tmp_path), "-fopt-info-vec-optimized", output="math.so")], tmp_path)
    lines = _source().splitlines()
    vectorised = {int(text.split(":")[1]) for text in ran.output.splitlines() if "loop vectorized" in text}
    scalar = {lines[n - 3].split("void ")[1].split("(")[0] for n in range(1, len(lines) + 1) if "for (int64_t i" in lines[n - 1] and n not in vectorised}
    assert not [
        name
        for name in scalar
        if name.endswith(("_float", "_double")) and not any(op in name for op in ("floordiv", "remainder", "fmod", "lgamma", "erfinv", "nextafter"))
    ]


def test_the_polynomials_are_what_the_script_fits() -> None:
    ran = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "fit_math.py"), "--check"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr or "run benchmarks/fit_math.py --write"


def test_no_standard_header_but_two() -> None:
    """<cmath> alone costs more compile time than a kernel; fast-math would change results."""
    includes = [line for line in headers()["lab_math.h"].splitlines() if line.startswith("#include")]
    assert includes == ["#include <stddef.h>", "#include <stdint.h>"]
    assert not any("fast-math" in flag or "finite" in flag for flag in PLAIN)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        library_ = _library(folder, native=True)
        for name_ in OWN:
            print(name_, "worst {:.3f} ulp at {!r}".format(*sweep(library_, name_, 1)), flush=True)
