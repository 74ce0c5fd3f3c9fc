"""Random graphs of aten operators as small readable programs: the grammar is the rows of ``graph_rows.py``.

In: a seed. Out: the text of a module with ``f(a, b, ..)``, ``inputs(call)``, and what it is compiled with: ``options``, ``dynamic``, ``small``
(thresholds of code generation at which small loops take the way of large ones; ``loops.THRESHOLDS``).
Always holds: the same seed gives the same text. While a program is made it is run, twice: as it is, and with every float as float64. A
statement that eager refuses, or where the two disagree by more than rounding does, is thrown away; so what a program computes does not hang
on a last bit, and a result of another compiler may be compared with both. Sizes are 0 and 1 often; inputs lie turned, sliced, expanded and at
offsets, some on one memory; one program in eight has NaN, infinities and signed zeros among its numbers.
Left out: random operators (``test_random.py``), complex numbers, sizes that depend on data.
"""

from __future__ import annotations

import math
import random
import re
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .graph_rows import ROWS
from .loops import THRESHOLDS

HOLE = re.compile(r"<(T|F|I|B|N|W)([0-9+]?)(=?)>|<([a-z]+)>")
FLOATS = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.float16")
DTYPES = (*FLOATS, "torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8", "torch.bool")
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 33, 40)
SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"fusion": False}, {"wrapper": "python"}, {"check": True}, {"partitioner": "default"}, {"cost_model": "torch"},
    {"activation_memory_budget": 0.3}, {"decompositions": "core"}, {"max_fused_nodes": 3},
)  # fmt: skip
SPECIALS = "torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -2.5, 300.0])"
HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n"


def doubled(text: str) -> str:
    """The program with every float as float64."""
    text = re.sub(r"torch\.(float32|float16|bfloat16)", "torch.float64", text)
    return re.sub(r"\.(float|half|bfloat16)\(\)", ".double()", text)


@dataclass
class Value:
    """A variable of the program: what it holds, with floats as they are and as float64, and whether a last bit may differ from eager's."""

    name: str
    real: Tensor
    double: Tensor
    rounded: bool
    written: bool = True  # may be written


def program(seed: int) -> str:
    """Program number ``seed``: the text of a module."""
    state = torch.get_rng_state(), torch.is_grad_enabled()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Maker(seed).text()
    finally:
        torch.set_rng_state(state[0])


class Maker:
    """Draws one program."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.seed = seed
        c = self.choose
        self.special = c.random() < 0.125
        self.grad = not self.special and c.random() < 0.6
        self.pool = [c.choice(SIZES) for _ in range(3)]
        self.float = c.choice((*FLOATS[:1] * 5, *FLOATS))
        self.inputs: list[tuple[str, str]] = []
        self.statements: list[str] = []
        self.values: list[Value] = []
        self.rounded: set[str] = set()

    # ---- inputs ----

    def shape(self) -> list[int]:
        c = self.choose
        return [c.choice([*self.pool, *self.pool, *self.pool, 1]) for _ in range(c.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)))]

    def numbers(self, shape: list[int]) -> tuple[str, bool]:
        """The text of a tensor of ``shape``, and whether it is floating point."""
        c = self.choose
        size = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        kind = c.choice(("float",) * 5 + ("int", "bool"))
        if kind == "bool":
            return f"torch.rand(({size}), generator=g) < 0.5", False
        if kind == "int":
            dtype = c.choice(DTYPES[4:9])
            wide = c.random() < 0.15 and dtype == "torch.int64"
            ends = "-(2**62), 2**62" if wide else "0, 6" if dtype == "torch.uint8" else "-5, 6"
            return f"torch.randint({ends}, ({size}), generator=g).to({dtype})", False
        dtype = self.float if c.random() < 0.8 else c.choice(FLOATS)
        if self.special and c.random() < 0.6:
            return f"{SPECIALS}[torch.randint(8, ({size}), generator=g)].to({dtype})", True
        return f"torch.randn(({size}), generator=g).to({dtype})", True

    def laid_out(self, shape: list[int]) -> tuple[list[int], str]:
        """A larger shape and the view of it that has ``shape``: turned, sliced, expanded."""
        c, n = self.choose, len(shape)
        way = c.choice(("plain", "plain", "turned", "sliced", "stepped", "expanded", "offset", "channels last")) if n else c.choice(("plain", "offset"))
        if way == "turned" and n > 1:
            i, j = c.sample(range(n), 2)
            turned = [*shape]
            turned[i], turned[j] = turned[j], turned[i]
            return turned, f".transpose({i}, {j})"
        d = c.randrange(n) if n else 0
        before = ":, " * d
        if way == "sliced" and n:
            return [s + 2 * (k == d) for k, s in enumerate(shape)], f"[{before}1:-1]"
        if way == "stepped" and n and shape[d]:
            return [s * 2 - 1 if k == d else s for k, s in enumerate(shape)], f"[{before}::2]"
        if way == "expanded" and n:
            return [1 if k == d else s for k, s in enumerate(shape)], f".expand({', '.join(map(str, shape))})"
        if way == "offset":
            return [3, *shape], "[1]"
        if way == "channels last" and n == 4:
            return shape, ".contiguous(memory_format=torch.channels_last)"
        return shape, ""

    def add_input(self) -> None:
        c, name = self.choose, "abcde"[len(self.inputs)]
        if self.inputs and not self.grad and c.random() < 0.1:
            other = c.choice(self.inputs)[0]
            part = c.choice(("", ".view(-1)[1:]", ".flatten(0)[:1]", "[..., :1]", "[..., 1:]", ".t()", ".unsqueeze(0)", ".detach()"))
            self.inputs.append((name, other + part))
            return
        shape = self.shape()
        larger, view = self.laid_out(shape)
        text, floating = self.numbers(larger)
        text = f"({text}){view}" if view and "<" in text else text + view
        self.inputs.append((name, text + (".detach().requires_grad_()" if self.grad and floating and c.random() < 0.7 else "")))

    def inputs_text(self) -> str:
        lines = "".join(f"    {name} = {text}\n" for name, text in self.inputs)
        names = ", ".join(n for n, _ in self.inputs)
        return f"def inputs(call):\n    g = torch.Generator().manual_seed({self.seed} + call)\n{lines}    return ({names},), {{}}\n"

    # ---- statements ----

    def text(self) -> str:
        c = self.choose
        count = c.choice((1, 2, 2, 3))
        while len(self.inputs) < count:
            self.add_input()
            if (made := self.started()) is None or any(t.numel() > 5000 for t in made[0].values() if isinstance(t, Tensor)):
                self.inputs.pop()
        self.values = self.again([])
        length = c.choice((3, 4, 5, 6, 8, 10, 14))
        for _ in range(40 * length):
            if len(self.statements) >= length:
                break
            self.add_statement()
        dynamic = c.choice((None, None, None, None, None, None, True))
        options = c.choice(SETTINGS)
        small = {f"{m.__name__.rpartition('.')[2]}.{n}": values[0] for m, n, values in THRESHOLDS if c.random() < 0.5} if c.random() < 0.7 else {}
        body = "".join(f"    {s}\n" for s in self.statements)
        head = f"{HEAD}\noptions, dynamic = {options!r}, {dynamic!r}\nsmall = {small!r}\n\n\n"
        return f"{head}def f({', '.join(n for n, _ in self.inputs)}):\n{body}    return {self.results()}\n\n\n{self.inputs_text()}"

    def results(self) -> str:
        c, made = self.choose, [v.name for v in self.values]
        names = made[-1:] + [n for n in made[:-1] if n not in dict(self.inputs) and c.random() < 0.35] + ([c.choice(made)] if c.random() < 0.15 else [])
        return ", ".join(names) + ","

    def started(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The inputs in two namespaces, as they are and with floats as float64; None where they cannot be made."""
        space: dict[str, Any] = {}
        try:
            exec(HEAD + self.inputs_text(), space)
            args, _ = space["inputs"](0)
            doubles = as_doubles(args)
        except (RuntimeError, IndexError, ValueError):
            return None
        real: dict[str, Any] = {}
        exec(HEAD, real)
        double = dict(real)
        real.update(zip((n for n, _ in self.inputs), args, strict=True))
        double.update(zip((n for n, _ in self.inputs), doubles, strict=True))
        return real, double

    def again(self, statements: list[str]) -> list[Value]:
        """The values after ``statements``, which are run from the beginning."""
        spaces = self.started()
        assert spaces is not None
        self.spaces = spaces
        real, double = spaces
        names = [n for n, _ in self.inputs]
        for statement in statements:
            self.execute(statement)
            names += [n for n in re.findall(r"^(t\d+(?:, t\d+)*) = ", statement)[:1] for n in n.split(", ")]
        return [Value(n, real[n], double[n], n in self.rounded) for n in names]

    def execute(self, statement: str) -> None:
        exec(statement, self.spaces[0])
        exec(doubled(statement), self.spaces[1])

    def add_statement(self) -> None:
        c = self.choose
        kind = c.choices(list(ROWS), [often for often, _ in ROWS.values()])[0]
        row = c.choice(ROWS[kind][1])
        rounds, exact = row.startswith("~"), kind == "cuts" or row.startswith("!")
        filled = Filled(self, exact=exact)
        text = filled.fill(row.lstrip("~!"))
        if text is None:
            return
        new = f"t{len(self.values) - len(self.inputs)}"
        rounds = rounds or any(v.rounded for v in filled.used)
        made: list[str] = []
        if kind == "writes":
            statement = text
            if rounds:
                made = [v.name for v in self.values if any(shares(v.real, u.real) for u in filled.used)]
        else:
            made = [new, f"t{len(self.values) - len(self.inputs) + 1}"] if kind == "pairs" else [new]
            statement = f"{', '.join(made)} = {text}"
        try:
            self.execute(statement)
            good = self.agree(statement, made)
        except Exception:  # noqa: BLE001 - eager refuses it, in whatever way
            good = False
        if not good:
            self.values = self.again(self.statements)
            return
        self.statements.append(statement)
        if rounds:
            self.rounded.update(made)
        real, double = self.spaces
        names = [v.name for v in self.values] + [n for n in made if n not in {v.name for v in self.values}]
        self.values = [Value(n, real[n], double[n], n in self.rounded) for n in names]

    def agree(self, statement: str, made: list[str]) -> bool:
        """Whether every variable is a tensor of a modest size whose numbers do not depend on how floats are rounded."""
        real, double = self.spaces
        for name in (*(v.name for v in self.values), *made):
            if not alike(real[name], double[name], self.special):
                return False
        return True


def shares(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def as_doubles(args: Any) -> list[Tensor]:
    """Tensors with floats as float64, in the same places of memories that are shared in the same way."""
    memories: dict[int, Tensor] = {}
    made: list[Tensor] = []
    for t in args:
        if t.is_floating_point():
            key = t.untyped_storage()._cdata
            if key not in memories:
                memories[key] = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()).to(torch.float64, copy=True)
            twin = memories[key].as_strided(t.shape, t.stride(), t.storage_offset()).detach().requires_grad_(t.requires_grad)
        else:
            twin = t
        made.append(twin)
    ints: dict[int, Tensor] = {}
    for i, t in enumerate(args):  # copies, so that a write to one side is not seen by the other
        if not t.is_floating_point():
            key = t.untyped_storage()._cdata
            if key not in ints:
                ints[key] = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()).clone()
            made[i] = ints[key].as_strided(t.shape, t.stride(), t.storage_offset())
    return made


def rough(dtype: torch.dtype) -> float:
    """Of what part of the largest number of a tensor results may differ."""
    return {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]


def alike(a: Any, b: Any, special: bool) -> bool:
    if not isinstance(a, Tensor) or a.numel() > 20_000 or a.shape != b.shape or a.is_complex() or a.layout != torch.strided:
        return False
    if not a.is_floating_point():
        return a.dtype == b.dtype and torch.equal(a, b)
    x, y = a.detach().double(), b.detach()
    if y.dtype != torch.float64 or not torch.equal(x.isnan(), y.isnan()) or not torch.equal(x.isinf(), y.isinf()):
        return False
    if not special and bool(x.isnan().any() | x.isinf().any()):
        return False
    x, y = x.nan_to_num(0.0, 0.0, 0.0), y.nan_to_num(0.0, 0.0, 0.0)
    largest = float(y.abs().max()) if y.numel() else 0.0
    if largest > 1e4 and not special:
        return False
    return bool(((x - y).abs() <= 0.1 * rough(a.dtype) * (1e-2 + largest)).all())


class Filled:
    """A row whose holes are being filled; ``used``: the tensors in it."""

    def __init__(self, maker: Maker, exact: bool) -> None:
        self.maker, self.choose, self.exact = maker, maker.choose, exact
        self.used: list[Value] = []

    def fill(self, row: str) -> str | None:
        try:
            return HOLE.sub(self.hole, row)
        except LookupError:
            return None

    def hole(self, match: re.Match[str]) -> str:
        kind, dims, equal, other = match.groups()
        return self.tensor(kind, dims, bool(equal)) if kind else str(getattr(self, f"an_{other}")())

    @property
    def first(self) -> Tensor:
        return self.used[0].real

    def tensor(self, kind: str, dims: str, equal: bool) -> str:
        candidates = [v for v in self.maker.values if self.fits(v, kind, dims, equal)]
        if not candidates:
            raise LookupError(kind)
        weights = [1 + 2 * (i >= len(candidates) - 3) for i in range(len(candidates))]
        value = self.choose.choices(candidates, weights)[0]
        self.used.append(value)
        return value.name

    def fits(self, v: Value, kind: str, dims: str, equal: bool) -> bool:
        t = v.real
        if self.exact and v.rounded:
            return False
        boolean, floating = t.dtype == torch.bool, t.is_floating_point()
        if not {"T": True, "W": True, "F": floating, "I": not floating and not boolean, "B": boolean, "N": not boolean}[kind]:
            return False
        if dims and (t.dim() < 1 if dims == "+" else t.dim() != int(dims)):
            return False
        if not self.used or (dims and not equal):
            return True
        if equal:
            return t.shape == self.first.shape
        return broadcasts(t.shape, self.first.shape)

    # ---- holes that are no tensors ----

    def dims(self) -> int:
        if self.first.dim() == 0:
            raise LookupError("a dimension")
        return self.first.dim()

    def an_d(self) -> int:
        if not hasattr(self, "dim"):
            self.dim = self.choose.randrange(-self.dims(), self.dims())
        return self.dim

    def an_dd(self) -> str:
        a, b = sorted((self.choose.randrange(self.dims()), self.choose.randrange(self.dims())))
        return f"{a}, {b}"

    def an_dims(self) -> str:
        found = sorted(self.choose.sample(range(self.dims()), self.choose.randint(1, self.dims())))
        return f"({', '.join(map(str, found))},)"

    def an_perm(self) -> str:
        return ", ".join(map(str, self.choose.sample(range(self.dims()), self.dims())))

    def an_shape(self) -> str:
        return f"{self.used[0].name}.shape"

    def an_view(self) -> str:
        """Neighbours joined or cut, or one size left open."""
        sizes, c = [*self.first.shape], self.choose
        for _ in range(2):
            if len(sizes) > 1 and c.random() < 0.5:
                i = c.randrange(len(sizes) - 1)
                sizes[i : i + 2] = [sizes[i] * sizes[i + 1]]
            elif sizes:
                i = c.randrange(len(sizes))
                k = c.choice([k for k in range(1, max(sizes[i], 1) + 1) if sizes[i] % k == 0])
                sizes[i : i + 1] = [k, sizes[i] // k]
        if 0 not in sizes and sizes and c.random() < 0.3:
            sizes[c.randrange(len(sizes))] = -1
        return f"({', '.join(map(str, sizes))},)" if sizes else "()"

    def an_wide(self) -> str:
        c = self.choose
        sizes = [c.choice([s, *self.maker.pool]) if s == 1 else s for s in self.first.shape]
        return f"({', '.join(map(str, [*([c.choice(self.maker.pool)] if c.random() < 0.4 else []), *sizes]))},)"

    def an_at(self) -> str:
        c = self.choose
        parts: list[str] = []
        for size in self.first.shape[: c.randint(1, self.dims())]:
            low, one = c.randint(0, max(size // 2, 0)), c.randint(0, max(size - 1, 0))
            parts.append(c.choice((":", ":", f"{low}:", f":{size - low}", "::2", f"{low}::3", "-1:", "1:-1", "0", "-1", "None, :", f"{one}")))
        return ", ".join(parts if c.random() < 0.85 else ["...", *parts[:1]])

    def an_index(self) -> str:
        """A row of places along the dimension, some of them more than once."""
        size = self.first.shape[self.an_d()]
        return self.places(size, self.choose.choice((1, 2, 3, max(size, 1))), negative=False)

    def an_first(self) -> str:
        return self.places(self.first.shape[0] if self.dims() else 0, self.choose.choice((1, 2, 3, 5)), negative=self.choose.random() < 0.3)

    def an_place(self) -> str:
        """Places along the dimension, in the shape of the tensor."""
        size, c = self.first.shape[self.an_d()], self.choose
        return f"((torch.arange({self.first.numel()}) * {c.randint(1, 9)} + {c.randint(0, 5)}) % {max(size, 1)}).view({self.an_shape()})"

    def places(self, size: int, count: int, negative: bool) -> str:
        if size == 0:
            count = 0
        found = [self.choose.randrange(-size if negative else 0, size) for _ in range(count)]
        return f"torch.tensor({found}{', dtype=torch.int64' if not found else ''})"

    def an_i(self) -> int:
        return self.choose.choice((-2, -1, 0, 1, 2, 3))

    def an_n(self) -> int:
        return self.choose.randint(1, 3)

    def an_x(self) -> float:
        return self.choose.choice((-1.5, -0.5, 0.25, 0.5, 1.0, 2.0, 0.1, math.pi))

    def an_u(self) -> float:
        return self.choose.choice((0.1, 0.25, 0.5, 0.9))

    def an_dtype(self) -> str:
        return self.choose.choice(DTYPES if not (self.used and self.used[0].rounded) else FLOATS)

    def an_float(self) -> str:
        return self.choose.choice(FLOATS)


def broadcasts(a: torch.Size, b: torch.Size) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))
