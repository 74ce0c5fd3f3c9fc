"""The boundary between torch's symbolic sizes and ours: SymInts become ``Size``s once, and symbols are read from the arguments of a call.

In: a graph some of whose placeholders have symbolic sizes, or are numbers. Out: its values as ``SizedTensor``s and ``Size``s
(``Reader``), where each symbol is read from (``sources``), and the static form of anything made of sizes (``at``).
Always holds: symbols are named s0, s1, ... in the order in which placeholders show them, so equal programs print equally; no SymInt is
evaluated here or later, so no guard is added behind capture's back; a size that depends on data raises ``Unsupported``.
Where PyTorch does this: ``torch/_inductor/sizevars.py`` and ``PythonWrapperCodegen.codegen_input_symbol_assignment``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.fx as fx
from torch import Tensor

from ..core.errors import Mismatch, Unsupported
from ..core.fx import copied
from .index import Div, Index, Var
from .reals import Real
from .sizes import INT64, Condition, Size, Symbol, at_most, same, symbol, symbols_of, value_at

Kind = Literal["number", "size", "stride"]
STATIC = "compile with dynamic=False"


def row_major(size: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides. A size that varies counts as it is, also where it is 0 and strides mean nothing."""
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step = step * (max(n, 1) if type(n) is int else n)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class SizedTensor:
    """What lowering knows of a tensor whose sizes are symbolic, with the names a tensor has for it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def numel(self) -> int:
        return math.prod(self.shape)

    def storage_offset(self) -> int:
        return self.offset


def is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, SizedTensor))


def is_symbolic(graph: fx.Graph) -> bool:
    """Does a size of an input, or an input, depend on the call? What is symbolic further down follows from these."""
    return any(_depends(n.meta.get("val")) for n in graph.nodes if n.op == "placeholder")


def _depends(value: Any) -> bool:
    if isinstance(value, Tensor):
        return any(type(n) is torch.SymInt for n in (*value.shape, *value.stride(), value.storage_offset()))
    return isinstance(value, (torch.SymInt, torch.SymFloat))


class Reader:
    """SymInts to sizes. ``hints``: other sizes at hand than those of the capture, by name."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.hints = hints
        self.known: dict[Any, int] = {}

    def value(self, val: Any) -> Any:
        """``val`` with sizes in place of SymInts, nests of values included."""
        if isinstance(val, Tensor):
            if val.layout != torch.strided:
                return val
            sizes = tuple(map(self.number, val.shape)), tuple(map(self.number, val.stride()))
            return SizedTensor(*sizes, self.number(val.storage_offset()), val.dtype, val.device, val.layout)
        if isinstance(val, (tuple, list)):
            return type(val)(map(self.value, val)) if type(val) in (tuple, list) else val
        return self.number(val) if isinstance(val, torch.SymInt) else val

    def read(self, node: fx.Node) -> None:
        """Puts sizes in place of the SymInts of a node (of a graph that is ours to edit)."""
        if "val" in node.meta:
            node.meta["val"] = self.value(node.meta["val"])
        node.args, node.kwargs = fx.node.map_aggregate((node.args, node.kwargs), self.number)  # type: ignore[assignment]

    def number(self, value: Any) -> Any:
        return self._expression(value.node.expr, value.node.shape_env) if isinstance(value, torch.SymInt) else value

    def _expression(self, expr: Any, env: Any) -> int:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if expr not in self.known:
                self.known[expr] = self._symbol(expr, env)
            return self.known[expr]
        row = FUNCTIONS.get(type(expr).__name__)
        if row is None:
            raise Unsupported(f"the size {expr} is none of sums, products, divisions, maxima and minima", reason="dynamic shapes", hint=STATIC)
        return row(*(self._expression(a, env) for a in expr.args))

    def _symbol(self, expr: Any, env: Any) -> int:
        values = getattr(env, "backed_var_to_val", None) or env.var_to_val
        if expr not in values:
            raise Unsupported(f"the size {expr} depends on data", reason="dynamic shapes", hint=STATIC)
        name, limits = f"s{len(self.known)}", env.var_to_range[expr]
        low, high = (int(n) if n.is_Integer else default for n, default in ((limits.lower, -INT64), (limits.upper, INT64 - 1)))
        ratios = [(mod.args[0] / mod.args[1]).as_numer_denom() for mod in env.divisible]  # guarded to be whole, as after ``x.view(n, -1, 4)``
        k = math.lcm(*(int(by) for number, by in ratios if number == expr and by.is_Integer))
        return symbol(name, self.hints.get(name, int(values[expr]) // k), -(-max(low, -INT64) // k), min(high, INT64 - 1) // k) * k


def _power(base: int, exponent: int) -> int:
    if type(exponent) is not int or exponent < 0:
        raise Unsupported(f"the size {base} to the power of {exponent}", reason="dynamic shapes", hint=STATIC)
    return math.prod([base] * exponent)


FUNCTIONS: dict[str, Callable[..., int]] = {
    "Add": lambda *n: sum(n),
    "Mul": lambda *n: math.prod(n),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, by, n: a // by % n,
    "Max": lambda *n: max(n),
    "Min": lambda *n: min(n),
    "Identity": lambda n: n,
}
"""What torch's size expressions are made of, by the name of the sympy class."""


# ---- a call ----


@dataclass(frozen=True)
class SizeSource:
    """Where a call shows a symbol: argument ``position`` is the number, or a tensor with the number as size or stride of ``dim``; the symbol is
    ``(number - shift) / scale``, these being over symbols of sources before this one."""

    symbol: Symbol
    position: int
    kind: Kind
    dim: int = 0
    scale: int = 1
    shift: int = 0

    def number(self, args: Sequence[Any]) -> int:
        arg = args[self.position]
        return arg if self.kind == "number" else arg.shape[self.dim] if self.kind == "size" else arg.stride(self.dim)

    def read(self, args: Sequence[Any], values: Mapping[str, int]) -> int:
        """Raises Mismatch where the argument is not of that form."""
        number = self.number(args)
        if type(number) is float:
            return number  # type: ignore[return-value]
        rest, scale = number - value_at(self.shift, values), value_at(self.scale, values)
        if rest % scale:
            raise Mismatch(f"{self.symbol.name}: {number} is not {self.shift} more than a multiple of {self.scale}")
        return rest // scale

    def text(self, name: str) -> str:
        """As Python, given the argument's name."""
        number = {"number": name, "size": f"{name}.size({self.dim})", "stride": f"{name}.stride({self.dim})"}[self.kind]
        number = number if same(self.shift, 0) else f"({number} - {self.shift})"
        return number if same(self.scale, 1) else f"{number} // {self.scale}"


def sources(values: Sequence[Any], wanted: frozenset[Symbol]) -> tuple[SizeSource, ...]:
    """For each symbol wanted an argument that shows it, as it is rather than in a sum; sources that others are told from stand before them.
    Raises Unsupported for a symbol that none shows."""
    places: list[tuple[Any, int, Any, int]] = []
    for position, val in enumerate(values):
        places += [(n, position, "size", d) for d, n in enumerate(val.shape)] if is_tensor(val) else [(val, position, "number", 0)]
    places += [(n, position, "stride", d) for position, val in enumerate(values) if is_tensor(val) for d, n in enumerate(val.stride())]
    shown: dict[Symbol, SizeSource] = {}
    for plain_only in (True, False, False, False):
        for number, position, kind, dim in places:
            line = _line(number, shown)
            if line is not None and (not plain_only or (same(line[1], 1) and same(line[2], 0))):
                shown[line[0]] = SizeSource(line[0], position, kind, dim, *line[1:])
    if missing := sorted(s.name for s in wanted - shown.keys()):
        raise Unsupported(f"no input shows the size {missing[0]} by itself", reason="dynamic shapes", hint=STATIC)
    needed = wanted | symbols_in([(shown[s].scale, shown[s].shift) for s in wanted])
    needed |= symbols_in([(shown[s].scale, shown[s].shift) for s in needed])
    return tuple(source for s, source in shown.items() if s in needed)


def _line(number: Any, shown: Mapping[Symbol, SizeSource]) -> tuple[Symbol, int, int] | None:
    """(symbol, scale, shift) where ``number`` is ``scale * symbol + shift`` for one symbol that is not shown yet, the others being."""
    if isinstance(number, Real) and number.function == "argument":
        return number.args[0], 1, 0
    if not isinstance(number, Size):
        return None
    unknown = [s for s in symbols_of(number) if s not in shown]
    if len(unknown) != 1:
        return None
    scale: Any = 0
    shift: Any = 0
    for product, c in number.terms:
        times = product.count(unknown[0])
        if times > 1 or any(not isinstance(a, Symbol) and unknown[0] in a.symbols() for a in product):
            return None
        rest = math.prod((_size(a) for a in product if a != unknown[0]), start=c)
        scale, shift = (scale + rest, shift) if times else (scale, shift + rest)
    return (unknown[0], scale, shift) if at_most(1, scale) else None


def _size(atom: Any) -> Any:
    return Size((((atom,), 1),))


def numbers_of(size_sources: Sequence[SizeSource], conditions: Sequence[Condition], args: Sequence[Any], stage: str) -> dict[str, int]:
    """The symbols' values in a call. Raises Mismatch where the program was not made for them."""
    values: dict[str, int] = {}
    for source in size_sources:
        n = values[source.symbol.name] = source.read(args, values)
        if not source.symbol.low <= n <= source.symbol.high:
            raise Mismatch(f"{stage}: {source.symbol.name} is {n}, outside {source.symbol.low} to {source.symbol.high}")
    for condition in conditions:
        if not condition.holds(values):
            raise Mismatch(f"{stage}: made for sizes with {condition.text}, called with {', '.join(f'{k} = {v}' for k, v in values.items())}")
    return values


def at(value: Any, numbers: Mapping[str, int]) -> Any:
    """``value`` (sizes, or anything of the loop IR made of them) with every size a number; what has no sizes in it is given back itself."""
    if isinstance(value, Size):
        return value_at(value, numbers)
    if isinstance(value, Index):
        return _index_at(value, numbers)
    if isinstance(value, Real):
        return value.at(numbers)
    if isinstance(value, fx.Graph):
        new = copied(value)
        for node in new.nodes:
            node.args = tuple(a if isinstance(a, fx.Node) else at(a, numbers) for a in node.args)
        return new
    if isinstance(value, (tuple, list, frozenset)):
        items = [at(v, numbers) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        return {k: at(v, numbers) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: new for f in dataclasses.fields(value) if (new := at(old := getattr(value, f.name), numbers)) is not old}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _index_at(index: Index, numbers: Mapping[str, int]) -> Index:
    result = Index((), at(index.const, numbers))
    for atom, c in index.terms:
        if isinstance(atom, Var):
            new = Index.of(at(atom, numbers))
        else:
            inside, by = _index_at(atom.index, numbers), at(atom.by, numbers)
            if not by:  # a loop over nothing: no point of it is ever computed
                continue
            new = inside // by if isinstance(atom, Div) else inside % by
        result = result + new * at(c, numbers)
    return result


def symbols_in(*values: Any) -> frozenset[Symbol]:
    """Every symbol of sizes in ``values``, nests and the loop IR included."""
    found: set[Symbol] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Symbol):
            found.add(value)
        elif isinstance(value, Size):
            found.update(symbols_of(value))
        elif isinstance(value, (tuple, list, frozenset)):
            for v in value:
                visit(v)
        elif isinstance(value, fx.Graph):
            for node in value.nodes:
                visit(node.args)
        elif isinstance(value, Mapping):
            visit(tuple(value.values()))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for f in dataclasses.fields(value):
                visit(getattr(value, f.name))

    visit(values)
    return frozenset(found)
