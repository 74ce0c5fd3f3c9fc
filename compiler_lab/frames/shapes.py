"""Sizes that vary: which dimensions and ints of a frame become symbols, what earlier captures saw of them, and the symbols of one capture.

In: input tensors and ints with their sources, marks (``mark_dynamic``, ``mark_static``), and a ``SizeHistory`` that lives as long as the
compiled function. Out: fake inputs whose sizes are ``SymInt``s over one ``ShapeEnv`` of torch's, and the guards that were needed.
Always holds: a capture without a symbol makes no ``ShapeEnv`` and imports nothing for it; sizes 0 and 1 are constants, since broadcasting and
emptiness mean something else for them; a symbol is guarded by what was decided with it and by nothing more, each with the user's line.
Where PyTorch does this: ``torch/_dynamo/variables/builder.py`` (``_automatic_dynamic``), ``torch/_dynamo/pgo.py`` and
``torch/fx/experimental/symbolic_shapes.py`` (``create_symbolic_sizes_strides_storage_offset``, ``produce_guards_verbose``).
Differently from there: two dimensions of one size get two symbols (no duck shaping), so that they are only held equal where the program needs
it; strides follow from sizes where they do so at capture, and are constants elsewhere until they are seen to vary.
Left out: ranges given with a mark, hints other than the sizes of the call, nested sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import ConstraintViolated
from ..core.provenance import Stack, own_location
from ..core.sizes import SYMBOLIC, note
from .ir import Guard, Number, SizeRelation, Source

if TYPE_CHECKING:
    from torch import SymInt
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from .tracer import Tracer

SIZE_MARKS = {"_dynamo_dynamic_indices": True, "_dynamo_weak_dynamic_indices": True, "_dynamo_static_indices": False}
# it may be the symbols that failed
SYMBOLIC_REASONS = ("op-error", "dynamic-shape", "op-argument", "op-refused", "unknown-value", "internal-error", "aliased-inputs")
INT64 = range(-(2**63), 2**63)


@dataclass
class Seen:
    """Sizes and strides of a tensor at earlier captures; None where they differed."""

    sizes: list[int | None]
    strides: list[int | None]

    def meet(self, sizes: Sequence[int], strides: Sequence[int]) -> None:
        self.sizes = [old if old == new else None for old, new in zip(self.sizes, sizes, strict=True)]
        self.strides = [old if old == new else None for old, new in zip(self.strides, strides, strict=True)]


@dataclass
class SizeHistory:
    """What the captures of one compiled function saw, by place (frame and source). ``dynamic``: None, what varied becomes symbolic; True,
    all sizes and int arguments are from the start; False, none ever is. ``scalars``, ``data_sizes``: may an element of a tensor, may a size
    that depends on data become a symbol. ``static`` holds frames that could not be captured symbolically."""

    dynamic: bool | None = None
    scalars: bool = False
    data_sizes: bool = False
    tensors: dict[Any, Seen] = field(default_factory=dict[Any, Seen])
    numbers: dict[Any, int | None] = field(default_factory=dict[Any, "int | None"])
    static: set[Any] = field(default_factory=set[Any])

    def tensor(self, place: Any, real: torch.Tensor) -> Seen:
        """Notes the tensor and gives what is known now; a tensor of another rank is a new one."""
        seen = self.tensors.get(place)
        if seen is None or len(seen.sizes) != real.dim():
            seen = self.tensors[place] = Seen(list(real.shape), list(real.stride()))
        else:
            seen.meet(real.shape, real.stride())
        return seen

    def varies(self, place: Any, value: int) -> bool:
        """Notes an int and says whether it was ever another."""
        if self.numbers.setdefault(place, value) != value:
            self.numbers[place] = None
        return self.numbers[place] is None

    def clear(self) -> None:
        self.tensors.clear()
        self.numbers.clear()
        self.static.clear()


@dataclass(frozen=True)
class Marked:
    """A dimension that the program marked dynamic, and the symbol it has."""

    source: Source
    dim: int
    symbol: Any


class Shapes:
    """The symbols of one capture. ``numbers`` says where each is read from; ``stacks[i]`` is the line that led to guard i of ``env``."""

    def __init__(self, history: SizeHistory | None = None, frame: Any = None) -> None:
        self.history, self.frame = history or SizeHistory(), frame
        self.env: ShapeEnv | None = None
        self.numbers: dict[Any, Number] = {}  # by sympy symbol
        self.stacks: list[Stack] = []
        self.marked: dict[Any, Marked] = {}
        self.lost: list[tuple[Marked, Stack]] = []  # marked dimensions that became constants, and where
        self.implied: list[tuple[SymInt, Number, Stack]] = []  # strides that follow from sizes
        self.first: dict[Any, Stack] = {}  # where each symbol was made
        self.read: dict[Any, Any] = {}  # (tensor, "size" or "stride", dimension) -> its value

    @property
    def symbolic(self) -> bool:
        """May there be symbols?"""
        return self.env is not None

    @property
    def optional(self) -> bool:
        """There are symbols, and nobody insisted on one."""
        return self.symbolic and not self.marked and not self.lost

    @property
    def frozen(self) -> bool:
        """No symbols unless the program marks them: sizes are compiled as they come."""
        return self.history.dynamic is False or self.frame in self.history.static

    def make_env(self) -> ShapeEnv:
        if self.env is None:
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            scalars, sizes = self.history.scalars, self.history.data_sizes
            self.env = ShapeEnv(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=sizes, duck_shape=False)
            self.env.lines = self.stacks  # type: ignore[attr-defined]  # where stages to the right write theirs (``core.sizes.note``)
        return self.env

    # which

    def dimensions(self, real: torch.Tensor, source: Source) -> tuple[list[bool], list[bool]]:
        """(which sizes, which strides) of an input are to be symbols; all False for most tensors of most programs."""
        marks = {i: dynamic for name, dynamic in SIZE_MARKS.items() for i in getattr(real, name, ())}
        watched = real.requires_grad and real._is_view()  # what autograd says of changing it depends on its base, which no fake of open size has
        if (isinstance(real, torch.nn.Parameter) or watched) and not marks:
            return [], []
        if self.frozen:
            return [marks.get(i, False) for i in range(real.dim())], [False] * real.dim()
        seen = self.history.tensor((self.frame, source.text()), real)
        always = self.history.dynamic is True and not _of_module(source)
        sizes = [marks.get(i, always or seen.sizes[i] is None) for i in range(real.dim())]
        return sizes, [always or seen.strides[i] is None for i in range(real.dim())]

    def number(self, value: int, source: Source) -> bool:
        """Is this int to be a symbol? 0 and 1 never are: they are flags as often as not."""
        if self.frozen or value not in INT64 or _root(source).kind == "constant":
            return False
        varies = self.history.varies((self.frame, source.text()), value)
        return value not in (0, 1) and (varies or (self.history.dynamic is True and _is_argument(source)))

    # symbols

    def symbol(self, value: int, number: Number, stack: Stack, *, positive: bool = True) -> Any:
        """A ``SymInt`` for a number that is read from the inputs; 0 and 1 stay ints where ``positive`` (sizes and strides)."""
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        env, kind = self.make_env(), DimDynamic.DYNAMIC
        source = _torch_source(number.text())
        made = env.create_symbol(value, source, kind) if positive else env.create_unspecified_symbol(value, source, kind)
        if made.is_Symbol:
            self.numbers[made], self.first[made] = number, stack
        return env.create_symintnode(made, hint=value, source=source)

    def layout(self, real: torch.Tensor, source: Source, which: tuple[list[bool], list[bool]], stack: Stack) -> tuple[list[Any], list[Any]]:
        """Sizes and strides of the fake for ``real``: ints, or ``SymInt``s where ``which`` asks for symbols."""
        sizes = [self._size(real, source, i, stack) if which[0][i] else n for i, n in enumerate(real.shape)]
        strides: list[Any] = list(real.stride())
        follows: dict[int, Any] = {}  # a stride that another dimension's size and stride explain
        for i in sorted(range(real.dim()), key=lambda i: (real.stride(i), real.size(i))):
            have = real.stride(i)
            if have in follows:
                strides[i] = follows[have]
                if not isinstance(strides[i], int):
                    self.implied.append((strides[i], Number("", source, "stride", i), stack))
            elif which[1][i]:
                strides[i] = self.symbol(have, Number("", source, "stride", i), stack)
            if have:
                follows.setdefault(have * real.size(i), strides[i] * sizes[i])
        return sizes, strides

    def _size(self, real: torch.Tensor, source: Source, dim: int, stack: Stack) -> Any:
        made = self.symbol(real.size(dim), Number("", source, "size", dim), stack)
        if dim in getattr(real, "_dynamo_dynamic_indices", ()):
            if isinstance(made, int):
                raise self._violated(Marked(source, dim, None), stack, f"size {made} is compiled by itself: it broadcasts, or holds nothing")
            self.marked[made.node.expr] = Marked(source, dim, made.node.expr)
        return made

    # what was decided

    def note(self, stack: Stack) -> None:
        """Guards that came up since the last time are this line's."""
        if self.env is not None and len(self.env.guards) > len(self.stacks):
            note(self.env, stack)
            self._lose(stack)

    def _lose(self, stack: Stack) -> None:
        """Marked dimensions that have become constants did so at this line."""
        for symbol in [s for s in self.marked if self.env is not None and self.env.replace(s).is_number]:
            self.lost.append((self.marked.pop(symbol), stack))

    def known(self, value: Any) -> Any:
        """The plain int or bool that a symbolic one has been found to be; None while it may vary, and for floats."""
        expr = value.node.expr
        if isinstance(value, torch.SymBool):
            return bool(expr) if expr in (True, False) else None
        return int(expr) if isinstance(value, torch.SymInt) and expr.is_number else None

    def of_data(self, value: Any) -> bool:
        """Does a number depend on more than sizes and ints: on what a tensor holds?"""
        parts = value if isinstance(value, (tuple, list)) else [value]
        return any(isinstance(p, SYMBOLIC) and not p.node.expr.free_symbols <= self.numbers.keys() for p in parts)

    def decide(self, t: Tracer, condition: Any) -> bool:
        """Which way the program goes for the sizes at capture; that later calls go the same way becomes a guard with this line."""
        return condition if isinstance(condition, bool) else bool(self._evaluate(t, bool, condition))

    def settle(self, t: Tracer, value: Any) -> Any:
        """The value at capture, which becomes a guard. Of a float the ints under it are settled: two different ones may give the same float."""
        if not isinstance(value, torch.SymFloat):
            return self._evaluate(t, int if isinstance(value, torch.SymInt) else bool, value)
        self._evaluate(t, lambda v: [v.node.shape_env.evaluate_expr(s) for s in sorted(v.node.expr.free_symbols, key=str)], value)
        return value.node.hint

    def _evaluate(self, t: Tracer, function: Callable[[Any], Any], value: Any) -> Any:
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        try:
            return function(value)
        except GuardOnDataDependentSymNode as error:
            raise t.refuse("data-dependent-branch", f"{value} comes from a tensor's data") from error
        finally:
            t.note_guards()

    def guards(self) -> tuple[Guard, ...]:
        """Everything that was assumed about the symbols so far: by capture, and afterwards by what compiles the graph. Raises
        ``ConstraintViolated`` where a dimension marked dynamic became a constant."""
        env = self.env
        if env is None:
            return ()
        last = self.stacks[-1] if self.stacks else next(iter(self.first.values()), ())
        self.note(last)
        self._lose(last)
        for mark, stack in self.lost:
            raise self._violated(mark, stack, "this line holds only for the size at capture")
        names = {symbol: f"s{n}" for n, symbol in enumerate(self.numbers)}
        made: list[tuple[str, tuple[Any, ...], Stack, str]] = []
        for symbol, number in self.numbers.items():
            if number.what != "value" and not env.replace(symbol).is_number:
                made.append((f"{names[symbol]} >= 2", (symbol,), self.first[symbol], f"{number.what}s 0 and 1 are compiled by themselves"))
        for guard, stack in zip(env.guards, self.stacks, strict=True):
            symbols = sorted((s for s in guard.expr.free_symbols if s in self.numbers), key=list(self.numbers).index)
            if len(symbols) == len(guard.expr.free_symbols):  # what depends on data is checked in the graph
                made.append((python_text(guard.expr, names), tuple(symbols), stack, "the program went this way for these sizes"))
        found = [Guard("shape", None, SizeRelation(text, self._numbers(symbols, names)), stack, why) for text, symbols, stack, why in made]
        for value, number, stack in self.implied:
            symbols = tuple(s for s in self.numbers if s in value.node._expr.free_symbols)
            own = Number("stride", number.source, number.what, number.dim)
            relation = SizeRelation(f"stride == {python_text(value.node._expr, names)}", (own, *self._numbers(symbols, names)))
            found.append(Guard("shape", None, relation, stack, "the layout follows from the sizes"))
        return tuple({(g.expected): g for g in reversed(found)}.values())[::-1]

    def _numbers(self, symbols: tuple[Any, ...], names: dict[Any, str]) -> tuple[Number, ...]:
        return tuple(Number(names[s], self.numbers[s].source, self.numbers[s].what, self.numbers[s].dim) for s in symbols)

    def _violated(self, mark: Marked, stack: Stack, why: str) -> ConstraintViolated:
        return ConstraintViolated(
            f"{mark.source.text()}.size({mark.dim}) is marked dynamic but is compiled as a constant",
            where=own_location(stack),
            why=why,
            hint="write the line for any size, or take the mark away (maybe_mark_dynamic asks without insisting)",
        )


def python_text(expr: Any, names: dict[Any, str]) -> str:
    """A sympy expression over symbols as Python over ``names``. Floats are written whole, so that the text computes what was decided."""
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):
        def _print_Symbol(self, expr: Any) -> str:
            return names.get(expr) or str(expr)

        def _print_Float(self, expr: Any) -> str:
            return repr(float(expr))

    return Printer().doprint(expr)


def _torch_source(text: str) -> Any:
    """What ``ShapeEnv`` asks of a source: a name."""
    from torch._guards import Source as TorchSource

    class Named(TorchSource):
        name = text  # pyright: ignore[reportAssignmentType]

        def is_ephemeral(self) -> bool:
            return False

    return Named()


def _root(source: Source) -> Source:
    while source.base is not None:
        source = source.base
    return source


def _is_argument(source: Source) -> bool:
    """An argument of the call, or an element of one."""
    while source.base is not None:
        if source.kind not in ("item", "dict_item", "inner_item"):
            return False
        source = source.base
    return source.kind == "local"


def _of_module(source: Source) -> bool:
    """A buffer: it has the size that its module was made with."""
    return source.base is not None and source.base.kind == "attr" and source.base.key in ("_parameters", "_buffers")
