"""Reductions in C++: for each kind how it starts, steps, and folds lanes, blocks and parts into one value.

A reduction runs in three layers. Lanes: an array of accumulators, so that a loop over them is vector code without any license to
reorder. Blocks: after at most ``ADDS`` steps a lane the lanes are folded as a tree into the running total, which for float sums and
products is a double: the error stays at that of aten's cascade, however long the sum. Parts: where threads share one reduction,
each block's value is stored and all are added in order, so the result does not depend on the number of threads.

In: a kind of ``lowering/ir.py`` and a dtype. Out: lines of C++. Always holds: NaN goes through max and min, and wins argmax; of equal
elements argmax takes the first. PyTorch's counterpart: ``reduction_init``/``reduction_combine`` in ``torch/_inductor/codegen/cpp.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ..core.provenance import Stack
from ..lowering.index import Var
from ..lowering.sizes import is_number
from .cpp_ops import compute_type, literal

ADDS = 64
"""How many elements a lane takes before it is folded."""

WIDTHS = (32, 16)
"""Lanes along the last variable: enough accumulators to hide the latency of an addition."""
UNCUT = 2**62
"""As the most elements of a block: there is one block."""
SMALL = 64
"""A last variable up to this long has a lane for each of its elements."""

COMBINE: dict[str, str] = {
    "sum": "{a} + {b}", "prod": "{a} * {b}", "max": "lab_max({a}, {b})", "min": "lab_min({a}, {b})", "any": "{a} | {b}", "all": "{a} & {b}",
}  # fmt: skip
BETTER: dict[str, str] = {"argmax": ">", "argmin": "<"}

STEP: dict[str, str] = {
    "sum": "{lane} += {value};", "prod": "{lane} *= {value};", "any": "{lane} |= {value};", "all": "{lane} &= {value};",
    "max": "{lane} = lab_max({lane}, {value});", "min": "{lane} = lab_min({lane}, {value});",
}  # fmt: skip

HELPERS: dict[str, str] = {
    "round_bf16": """\
static inline float round_bf16(float x) {  // to the nearest bfloat16, ties to even
  uint32_t u = lab_bits_f32(x);
  return x != x ? x : lab_f32_bits((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}""",
    "fill": "template <class T> static inline void fill(T* lanes, int64_t n, T value) { for (int64_t k = 0; k < n; k++) lanes[k] = value; }",
    **{
        f"fold_{kind}": f"""\
template <int N, class T> static inline T fold_{kind}(T* a) {{  // lanes as a tree
  if constexpr (N == 1) return a[0];
  else {{
    constexpr int H = N / 2, K = N - H;
#pragma omp simd
    for (int k = 0; k < H; k++) a[k] = {combine.format(a="a[k]", b="a[K + k]")};
    return fold_{kind}<K>(a);
  }}
}}"""
        for kind, combine in COMBINE.items()
    },
    "pairwise_sum": """\
template <class T> static T pairwise_sum(const T* a, int64_t n) {
  if (n > 8) return pairwise_sum(a, n / 2) + pairwise_sum(a + n / 2, n - n / 2);
  T s = a[0];
  for (int64_t k = 1; k < n; k++) s += a[k];
  return s;
}""",
    **{
        name: text
        for kind, sign in BETTER.items()
        for name, text in (
            (
                f"step_{kind}",
                f"""\
template <class T, class I> static inline void step_{kind}(T& best, I& at, T value, I index) {{  // later elements win only when better; at < 0: none yet
  bool wins = (value {sign} best) | ((value != value) & (best == best)) | (at < 0);
  best = wins ? value : best;
  at = wins ? index : at;
}}""",
            ),
            (
                f"merge_{kind}",
                f"""\
template <class T, class I, class J> static inline void merge_{kind}(T& best, J& at, const T* lanes, const I* places, int64_t n) {{
  for (int64_t k = 0; k < n; k++) {{
    bool nan = lanes[k] != lanes[k], same = lanes[k] == best || (nan && best != best);
    if (places[k] >= 0 && (at < 0 || lanes[k] {sign} best || (nan && best == best) || (same && places[k] < at))) best = lanes[k], at = J(places[k]);
  }}
}}""",
            ),
        )
    },
}  # fmt: skip
"""C++ text of each helper that generated lines call; only those that are called are written."""


def numel(variables: Iterable[Var]) -> int:
    return math.prod(v.size for v in variables)


def proper(variables: Iterable[Var]) -> tuple[Var, ...]:
    """Without those of size 1, which no index mentions."""
    return tuple(v for v in variables if v.size != 1)


def lanes_for(size: int) -> int:
    """How many lanes suit a loop of ``size``: four leftover elements cost as much as a step of eight lanes (measured on rows of 1007)."""
    if not is_number(size):
        return WIDTHS[0]
    return size if size <= SMALL else min(WIDTHS, key=lambda w: (size // w) * (w // 8) + size % w / 4)


@dataclass(frozen=True)
class Tile:
    """How a reduced space is cut: loops over ``outside``, blocks of ``step`` along ``split``, and whole loops over ``inside`` in a block.

    A block adds at most ``ADDS`` elements to each lane. ``width`` lanes lie along the last variable.
    """

    outside: tuple[Var, ...]
    split: Var | None
    step: int
    inside: tuple[Var, ...]
    width: int

    @property
    def single(self) -> bool:
        return not self.outside and self.split is None

    @property
    def blocks(self) -> int:
        return numel(self.outside) * (-(-self.split.size // self.step) if self.split else 1)

    def block_index(self) -> str:
        """The number of the block at hand, from the loop variables."""
        text = "0"
        for v in self.outside:
            text = v.name if text == "0" else f"({text}) * {v.size} + {v.name}"
        if self.split:
            count = -(-self.split.size // self.step)
            text = f"base / {self.step}" if text == "0" else f"({text}) * {count} + base / {self.step}"
        return text


def tile(inner: Sequence[Var], width: int, most: int = ADDS) -> Tile:
    """Cuts ``inner`` (sizes above 1) into blocks of at most ``most`` elements a lane; ``width`` 1 means that lanes lie elsewhere."""
    adds, k = 1, len(inner)
    while k > 0:
        v = inner[k - 1]
        each = -(-v.size // width) if k == len(inner) else v.size
        if adds * each > most if is_number(adds, each) else most < UNCUT:
            step = max(1, most // adds) * (width if k == len(inner) else 1)
            if step == 1:
                return Tile(tuple(inner[:k]), None, 1, tuple(inner[k:]), width)
            return Tile(tuple(inner[: k - 1]), inner[k - 1], step, tuple(inner[k:]), width)
        adds, k = adds * each, k - 1
    return Tile((), None, 1, tuple(inner), width)


@dataclass(frozen=True)
class Reduction:
    """One reduction of a kernel: ``number`` tells its variables apart, ``value`` is the C++ text of the reduced element."""

    kind: str
    number: int
    dtype: torch.dtype  # of the value
    result: torch.dtype
    value: str
    parents: tuple[str, ...]
    stack: Stack
    comment: str
    places: str  # the integer type of an index within the reduced space
    single: bool  # one block: there is nothing to add up after the lanes

    @staticmethod
    def rounds(kind: str, dtype: torch.dtype) -> bool:
        """Whether lanes must be folded now and then to stay exact."""
        return kind in ("sum", "prod") and dtype.is_floating_point

    @property
    def is_arg(self) -> bool:
        return self.kind in BETTER

    @property
    def lane_type(self) -> str:
        return compute_type(self.dtype)

    @property
    def total_type(self) -> str:
        return "double" if self.rounds(self.kind, self.dtype) and not self.single else self.lane_type

    @property
    def lanes(self) -> str:
        return f"lanes{self.number}"

    @property
    def total(self) -> str:
        return f"total{self.number}"

    def start(self, ctype: str) -> str:
        if self.kind in ("sum", "prod"):
            return f"{ctype}({0 if self.kind == 'sum' else 1})"
        if self.kind in ("any", "all"):
            return "false" if self.kind == "any" else "true"
        lowest = self.kind in ("max", "argmax")
        if self.dtype.is_floating_point:
            return f"{ctype}({'-' if lowest else ''}LAB_INF)"
        if self.dtype == torch.bool:
            return "false" if lowest else "true"
        info = torch.iinfo(self.dtype)
        return literal(info.min if lowest else info.max, self.dtype)

    def declare(self, name: str, ctype: str, n: int) -> tuple[str, ...]:
        """An array ``name`` of ``n`` accumulators at their start, and the places beside it for argmax."""
        lines = (f"alignas(64) {ctype} {name}[{n}];", f"fill<{ctype}>({name}, {n}, {self.start(ctype)});")
        return (*lines, f"alignas(64) {self.places} {name}_at[{n}];", f"fill<{self.places}>({name}_at, {n}, -1);") if self.is_arg else lines

    def declare_total(self) -> tuple[str, ...]:
        if self.single and not self.is_arg:
            return ()  # ``merge`` declares it
        lines = (f"{self.total_type} {self.total} = {self.start(self.total_type)};",)
        return (*lines, f"int64_t {self.total}_at = -1;") if self.is_arg else lines

    def step(self, lane: str, place: str, value: str) -> str:
        """Takes the element ``value`` into lane ``lane``; ``place`` is its index within the reduced space."""
        if self.is_arg:
            return f"step_{self.kind}({self.lanes}[{lane}], {self.lanes}_at[{lane}], {value}, {self.places}({place}));"
        return STEP[self.kind].format(lane=f"{self.lanes}[{lane}]", value=value)

    def combine(self, total: str, value: str) -> str:
        return STEP[self.kind].format(lane=total, value=value)

    def merge(self, n: int) -> str:
        """Folds ``n`` lanes into the total."""
        if self.is_arg:
            return f"merge_{self.kind}({self.total}, {self.total}_at, {self.lanes}, {self.lanes}_at, {n});"
        folded = f"fold_{self.kind}<{n}>({self.lanes})"
        return f"{self.total_type} {self.total} = {folded};" if self.single else self.combine(self.total, folded)

    def result_text(self, column: bool) -> str:
        """The reduced value; in a column kernel totals are an array, and the lanes themselves where there is one block."""
        name = (self.lanes if self.single and column else self.total) + ("_at" if self.is_arg else "")
        return f"{name}[lane]" if column else name
