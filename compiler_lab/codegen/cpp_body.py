"""From loop bodies to C++ statements: one op, one statement, with the loop variables each depends on.

In: a ``LoopGroup``. Out: for each phase a ``PhaseCode``: statements of the sweep, its reductions, and statements once per outer point.
Where a statement goes (inside which loops) is the loop shapes' business (``cpp_loops.py``); they place it by ``variables``.
Always holds: a value made in the phase is used by name; one from an earlier phase is a scalar of the outer point, or is read back from
memory or from its scratch row; a load written twice in one phase is done once, with both users as parents.
PyTorch's counterpart: ``CppKernel.load/store/reduction`` and ``CSE`` in ``torch/_inductor/codegen``. Left out: common subexpressions
beyond loads and indices: one op of the program stays one statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx as fx

from ..core.errors import InvalidIR
from ..core.provenance import Stack, stack_of
from ..lowering import ops
from ..lowering.index import Div, Index, Mod, Var, may_be_negative
from ..lowering.ir import LoopNode
from ..lowering.reals import Real
from ..lowering.sizes import Size, plain, same
from ..scheduling.ir import LoopGroup, Phase
from .cpp_ops import DIVISIONS, compute_type, conversion, expression, literal, rounded
from .cpp_pieces import COMPARISONS, PLACES, Mapped, difference, outcome, sum_of_places, within
from .cpp_reduce import BETTER, UNCUT, Reduction, Tile, lanes_for, numel, proper, tile
from .math_table import LOAD, STORAGE, STORE

BAD_INDEX, ZERO_DIVISION, NO_MEMORY = "bad_index", "zero_division", "no_memory"


@dataclass(frozen=True)
class Value:
    """A C++ expression without side effects (a name or a literal) and the loop variables it changes with; or an ``array`` over lanes.

    ``place``: what it is, where it is an integer that follows from the place."""

    text: str
    variables: frozenset[str] = frozenset()
    array: bool = False
    place: Index | None = None


@dataclass(frozen=True)
class Load:
    """What a statement reads: ``element`` is its text, ``pointer[index]`` its meaning, ``ctype`` how it lies in memory."""

    element: str
    pointer: str
    index: Index
    ctype: str


@dataclass
class Statement:
    """One line. ``flag`` is the error flag it sets, ``defines`` the name it declares, if any; ``parents`` grows as users share it."""

    text: str
    variables: frozenset[str]
    parents: tuple[str, ...]
    stack: Stack
    flag: str = ""
    load: Load | None = None
    defines: str = ""


@dataclass
class Scope:
    """Statements that stand together, and what is known by name among them."""

    statements: list[Statement] = field(default_factory=list[Statement])
    made: dict[Any, tuple[Value, Statement]] = field(default_factory=dict[Any, tuple[Value, Statement]])  # loads and indices, by what they are
    buffers: dict[str, tuple[Index, Value]] = field(default_factory=dict[str, tuple[Index, Value]])


@dataclass
class Case:
    """A sweep over lanes in all of which conditions on the place come out one way: ``when`` tells of the lanes from ``at``."""

    when: str
    sweep: list[Statement]
    values: list[str]  # what each reduction of the phase takes


@dataclass
class PhaseCode:
    """``sweep``: over the full space. ``after``: once for each outer point, after it (all there is in an "outer" phase)."""

    space: str
    sweep: list[Statement]
    reductions: list[Reduction]
    after: list[Statement]
    tile: Tile = field(default_factory=lambda: tile((), 1))
    """How a sweep with reductions is cut into blocks."""
    cases: list[Case] = field(default_factory=list[Case])


class Bodies:
    """Translates the phases of one group, in order.

    ``names``: buffer -> its name in C++. ``arguments``: buffers the kernel has pointers to. ``ids``: node -> item id. ``shared``: threads share
    the sweeps. ``column``: values of an outer point live in arrays over ``lane``, because the contiguous outer variable is walked inside the
    sweeps. ``mapping``: the group's variables over those of the piece that is being written. ``used``: the indices that were needed.
    """

    def __init__(
        self, group: LoopGroup, names: Mapping[str, str], arguments: Iterable[str], ids: Mapping[str, str], shared: bool, mapping: Mapped | None = None
    ) -> None:
        self.group, self.names, self.arguments, self.ids, self.shared = group, names, frozenset(arguments), ids, shared
        self.column = group.shape == "column"
        self.mapping: Mapped = mapping or {}
        self.used: list[Index] = []
        self.outer: dict[str, tuple[Index, Value]] = {}  # values of the outer point, from earlier phases
        self.crossing = _crossing(group) if self.column else frozenset[str]()
        self.outer_scope = Scope()
        self.count = 0
        self.reductions = 0
        self.rows: dict[str, str] = {b: f"row_{self.names[b]}" for b in sorted(group.kept) if group.kept[b] == "row"}
        """Scratch of one outer point: buffer -> C++ name; elements in row-major order of ``inner``."""
        self.width = 1  # column: how many lanes a scratch row has for each of its elements
        self.stored: dict[str, Index] = {}
        self.doomed = False  # it indexes into nothing: every run is an error
        self.open: dict[fx.Node, Index] = {}  # comparisons of places that come out in both ways: ``a - b``
        self.decided: Mapping[fx.Node, bool] = {}  # what they give in the case that is being written

    def piece(self, mapping: Mapped) -> Bodies:
        """The same group over one piece of its space; temporaries go on being numbered."""
        made = Bodies(self.group, self.names, self.arguments, self.ids, self.shared, mapping)
        made.count = self.count
        return made

    def phase(self, phase: Phase) -> PhaseCode:
        sweep, reductions = Scope(), list[Reduction]()
        if self.column:
            self.outer_scope = Scope()
        self.outer_scope.statements = []
        cut = self.tile(phase)
        for node in phase.nodes:
            if phase.space == "outer":
                NodeCode(self, node, self.outer_scope, outer=True).store()
            elif (reduce := next((n for n in node.body.nodes if n.target is ops.reduce), None)) is None:
                NodeCode(self, node, sweep, outer=False).store()
            else:
                made = self._reduction(node, reduce, sweep, cut)
                reductions.append(made)
                after = NodeCode(self, node, self.outer_scope, outer=True)
                after.values[reduce] = after.reduced(made)
                after.store()
        self.outer.update(self.outer_scope.buffers)
        if self.column:
            self.outer = {b: (i, Value(self.array(b), array=True)) for b, (i, _) in self.outer.items() if b in self.crossing}
        return PhaseCode(phase.space, sweep.statements, reductions, self.outer_scope.statements, cut)

    def tile(self, phase: Phase) -> Tile:
        """Blocks where lanes must be folded to stay exact, and where threads take a block each; otherwise one."""
        kinds = [(n.args[0], n.meta["dtype"]) for node in phase.nodes for n in node.body.nodes if n.target is ops.reduce]
        inner = proper(self.group.inner)
        width = lanes_for(inner[-1].size) if inner and not self.column else 1
        return tile(inner, width) if self.shared or any(Reduction.rounds(str(k), d) for k, d in kinds) else tile(inner, width, UNCUT)

    def _reduction(self, node: LoopNode, reduce: fx.Node, sweep: Scope, cut: Tile) -> Reduction:
        kind, value = reduce.args
        assert isinstance(kind, str) and isinstance(value, fx.Node)
        text = NodeCode(self, node, sweep, outer=False).value(value).text
        size = numel(self.group.inner)
        self.reductions += 1
        return Reduction(
            kind, self.reductions - 1, value.meta["dtype"], reduce.meta["dtype"], text, (self.ids[node.name],), stack_of(reduce) or node.stack,
            f"  // {node.origin}" if node.origin else "", "int32_t" if kind in BETTER and size < 2**31 else "int64_t", cut.single and not same(size, 0),
        )  # fmt: skip

    def array(self, buffer: str) -> str:
        """Column: the array that carries an outer point's value to later phases."""
        return f"keep_{self.names[buffer]}"

    def name(self) -> str:
        self.count += 1
        return f"t{self.count - 1}"

    def row_index(self) -> Index:
        """The place of the current element in a scratch row."""
        index = Index()
        for v in self.group.inner:
            index = index * v.size + Index.of(v)
        return index


class NodeCode:
    """One node's body in one scope: demand-driven from the store, so what stands before a reduction is translated where it is used."""

    def __init__(self, bodies: Bodies, node: LoopNode, scope: Scope, outer: bool) -> None:
        self.bodies, self.node, self.scope, self.outer = bodies, node, scope, outer
        self.values: dict[fx.Node, Value] = {}
        self.id = bodies.ids[node.name]
        self.comment = f"  // {node.origin}" if node.origin else ""

    def stack(self, n: fx.Node) -> Stack:
        return stack_of(n) or self.node.stack

    def add(self, text: str, variables: frozenset[str], n: fx.Node, flag: str = "") -> Statement:
        statement = Statement(text + self.comment, variables, (self.id,), self.stack(n), flag)
        self.scope.statements.append(statement)
        return statement

    def define(self, text: str, variables: frozenset[str], n: fx.Node, dtype: torch.dtype) -> Value:
        value = Value(self.bodies.name(), variables)
        self.add(f"{compute_type(dtype)} {value.text} = {text};", variables, n).defines = value.text
        return value

    def once(self, key: Any, ctype: str, text: str, variables: frozenset[str], n: fx.Node) -> Value:
        """A load or an index: the same one in this scope is shared, and names this node as a parent too."""
        if found := self.scope.made.get(key):
            found[1].parents = tuple(dict.fromkeys((*found[1].parents, self.id)))
            return found[0]
        value = Value(self.bodies.name(), variables)
        self.scope.made[key] = value, (statement := self.add(f"{ctype} {value.text} = {text};", variables, n))
        statement.defines = value.text
        return value

    def store(self) -> None:
        n = next(n for n in self.node.body.nodes if n.target is ops.store)
        _, index, source = n.args
        assert isinstance(index, Index) and isinstance(source, fx.Node)
        for unread in self.node.body.nodes:  # a position in a buffer that holds one number: it may still be out of range
            if unread.target is ops.indirect and not unread.users:
                self.value(unread)
        value, name, b = self.value(source), self.node.name, self.bodies
        self.scope.buffers[name] = index, value
        again, b.stored[name] = name in b.stored, index  # a node that is recomputed in a later phase stores once
        if again:
            return
        if name not in b.group.internal:
            text, variables = self.index(index, (), n)
            dtype = self.node.output.dtype
            stored = f"{STORE[dtype]}({value.text})" if dtype in STORE else value.text
            self.add(f"{b.names[name]}[{text}] = {stored};", variables | value.variables, n)
        if name in b.rows and not self.outer:
            text, variables = self.row_place(n)
            self.add(f"{b.rows[name]}[{text}] = {value.text};", variables | value.variables, n)
        if b.column and self.outer and name in b.crossing:
            self.add(f"{b.array(name)}[lane] = {value.text};", frozenset({b.group.outer[-1].name}), n)

    def row_place(self, n: fx.Node) -> tuple[str, frozenset[str]]:
        text, variables = self.index(self.bodies.row_index(), (), n)
        if self.bodies.column:
            return f"({text}) * {self.bodies.width} + lane", variables | {self.bodies.group.outer[-1].name}
        return text, variables

    def reduced(self, r: Reduction) -> Value:
        text, ctype = r.result_text(self.bodies.column), compute_type(r.result)
        variables = frozenset({self.bodies.group.outer[-1].name} if self.bodies.column else ())
        if not self.bodies.column and not r.is_arg and r.total_type == ctype and rounded("", r.result) == "":
            return Value(text)
        name = self.bodies.name()
        statement = Statement(f"{ctype} {name} = {rounded(f'({ctype}){text}', r.result)};{r.comment}", variables, r.parents, r.stack)
        self.scope.statements.append(statement)
        return Value(name, variables)

    def value(self, n: fx.Node) -> Value:
        if n not in self.values:
            row = STRUCTURAL.get(n.target)
            self.values[n] = row(self, n) if row else self.scalar(n)
        return self.values[n]

    def scalar(self, n: fx.Node) -> Value:
        if (known := self.known_outcome(n)) is not None:
            return known
        op, operands = n.target.__name__, [a for a in n.args if isinstance(a, fx.Node)]  # type: ignore[union-attr]
        values = [self.value(a) for a in operands]
        variables = frozenset[str]().union(*(v.variables for v in values))
        dtype: torch.dtype = operands[-1].meta["dtype"]
        if op in DIVISIONS and not dtype.is_floating_point and not _nonzero(operands[1]):
            self.add(f"{ZERO_DIVISION} |= {values[1].text} == 0;", variables, n, ZERO_DIVISION)
        texts = [f"({v.text})" if v.text.startswith("-") else v.text for v in values]
        value = self.define(expression(op, dtype, n.meta["dtype"], texts), variables, n, n.meta["dtype"])
        return replace(value, place=sum_of_places(op, [v.place for v in values], dtype))

    def known_outcome(self, n: fx.Node) -> Value | None:
        """What a condition on the place has decided: a comparison, what is made of it, the branch that ``where`` takes."""
        if (index := self.difference(n)) is not None:
            decided = outcome(n.target.__name__, *index.range())  # type: ignore[union-attr]
            if decided is None:
                self.bodies.open[n], decided = index, self.bodies.decided.get(n)
            return None if decided is None else Value("true" if decided else "false")
        if n.target is ops.where:
            condition, yes, no = n.args
            text = self.value(condition).text  # type: ignore[arg-type]
            return self.value(yes if text == "true" else no) if text in ("true", "false") else None  # type: ignore[arg-type]
        if n.meta["dtype"] == torch.bool and n.target in ABSORBING:
            absorbs = ABSORBING[n.target]
            for a, b in (n.args, tuple(reversed(n.args))):
                if isinstance(a, fx.Node) and isinstance(b, fx.Node) and a.meta["dtype"] == torch.bool and (text := self.value(a).text) in ("true", "false"):
                    return Value(text) if text == absorbs else self.value(b)
        return None

    def difference(self, n: fx.Node) -> Index | None:
        """``a - b`` of a comparison of two places, over the variables of the piece."""
        if n.target not in COMPARISONS:
            return None
        if (index := difference(n)) is not None:
            return index.substitute(self.bodies.mapping)
        a, b = (self.value(side).place for side in n.args)  # type: ignore[arg-type]
        return None if a is None or b is None else a - b

    def load(self, n: fx.Node) -> Value:
        buffer, index, *indirect = n.args
        assert isinstance(buffer, str) and isinstance(index, Index)
        b = self.bodies
        values = [self.value(a) for a in indirect if isinstance(a, fx.Node)]  # checked, also where the buffer is one number and no index is written
        for known in (self.scope.buffers, b.outer):
            if buffer in known:
                return self.known(n, buffer, index, *known[buffer])
        if buffer in b.rows:
            if index != b.stored.get(buffer):
                raise InvalidIR(f"{self.id} reads element {index} of {buffer}, which is a scratch row", why="only the element at hand is there")
            text, variables = self.row_place(n)
            return self.once(("row", buffer), compute_type(n.meta["dtype"]), f"{b.rows[buffer]}[{text}]", variables, n)
        if buffer not in b.arguments:
            raise InvalidIR(f"{self.id} reads {buffer}, which is neither an argument of {b.group.name} nor made before it there")
        text, variables = self.index(index, values, n)
        element = f"{b.names[buffer]}[{text}]"
        dtype: torch.dtype = n.meta["dtype"]
        value = self.once(("load", buffer, text), compute_type(dtype), f"{LOAD[dtype]}({element})" if dtype in LOAD else element, variables, n)
        self.scope.made["load", buffer, text][1].load = Load(element, b.names[buffer], index.substitute(b.mapping), STORAGE[dtype])
        return value

    def known(self, n: fx.Node, buffer: str, index: Index, stored: Index, value: Value) -> Value:
        """A value made earlier for the same point: by name, or out of the array that carries it (column)."""
        if index != stored:
            raise InvalidIR(f"{self.id} reads {buffer} at {index}, but the value at hand is the one at {stored}")
        if value.array:
            return self.once(value.text, compute_type(n.meta["dtype"]), f"{value.text}[lane]", frozenset({self.bodies.group.outer[-1].name}), n)
        return value

    def constant(self, n: fx.Node) -> Value:
        number, dtype = n.args
        if isinstance(number, Real):
            return self.once(("real", number), "double", number.text(), frozenset(), n)
        return Value(literal(number, dtype), place=Index.of(int(number)) if dtype in PLACES else None)  # type: ignore[arg-type]

    def to_dtype(self, n: fx.Node) -> Value:
        source, target = n.args
        assert isinstance(source, fx.Node) and isinstance(target, torch.dtype)
        value = self.value(source)
        if source.meta["dtype"] == target:
            return value
        made = self.define(conversion(value.text, source.meta["dtype"], target), value.variables, n, target)
        return replace(made, place=within(value.place, target))

    def index_value(self, n: fx.Node) -> Value:
        index, dtype, *indirect = n.args
        assert isinstance(index, Index) and isinstance(dtype, torch.dtype)
        text, variables = self.index(index, [self.value(a) for a in indirect if isinstance(a, fx.Node)], n)
        made = self.define(conversion(f"int64_t({text})", torch.int64, dtype), variables, n, dtype)
        return made if indirect else replace(made, place=within(index.substitute(self.bodies.mapping), dtype))

    def indirect(self, n: fx.Node) -> Value:
        source, size, wrap = n.args
        assert isinstance(source, fx.Node) and isinstance(size, (int, Size))
        value = self.value(source)
        self.bodies.doomed |= size == 0 and not same(numel(self.node.outer + self.node.inner), 0)
        if wrap:
            value = self.define(f"{value.text} < 0 ? {value.text} + {size} : {value.text}", value.variables, n, torch.int64)
        self.add(f"{BAD_INDEX} |= ({value.text} < 0) | ({value.text} >= {size});", value.variables, n, BAD_INDEX)
        # an index that is wrong reads element 0 instead of wild memory; the kernel's result is discarded
        return self.define(f"({value.text} < 0) | ({value.text} >= {size}) ? 0 : {value.text}", value.variables, n, torch.int64)

    def reduce(self, n: fx.Node) -> Value:
        raise InvalidIR(f"{self.id} reduces outside a full phase")

    def index(self, index: Index, indirect: list[Value] | tuple[Value, ...], n: fx.Node) -> tuple[str, frozenset[str]]:
        """The expression, and the loop variables in it. Divisions get statements of their own, so that they stand outside what loops they can."""
        index = index.substitute(self.bodies.mapping)
        self.bodies.used.append(index)
        return self.index_text(index, indirect, n)

    def index_text(self, index: Index, indirect: list[Value] | tuple[Value, ...], n: fx.Node) -> tuple[str, frozenset[str]]:
        parts: list[str] = []
        variables: frozenset[str] = frozenset()
        for atom, c in index.terms:
            if isinstance(atom, Var):
                value = indirect[int(atom.name[1:])] if atom.name.startswith("%") else Value(atom.name, frozenset({atom.name}))
            else:
                value = self.division(atom, indirect, n)
            variables |= value.variables
            parts.append(value.text if c == 1 else f"{c}*{value.text}")
        if not same(index.const, 0) or not parts:
            parts.append(str(index.const))
        return " + ".join(parts).replace("+ -", "- "), variables

    def division(self, atom: Div | Mod, indirect: list[Value] | tuple[Value, ...], n: fx.Node) -> Value:
        text, variables = self.index_text(atom.index, indirect, n)
        if may_be_negative(atom):
            whole = f"{'floordiv' if isinstance(atom, Div) else 'mod'}({text}, {plain(atom.by)})"
        else:
            whole = f"({text}) {'/' if isinstance(atom, Div) else '%'} {atom.by}"
        return self.once(("index", whole), "int64_t", whole, variables, n)


ABSORBING: dict[Any, str] = {ops.logical_and: "false", ops.bitwise_and: "false", ops.logical_or: "true", ops.bitwise_or: "true"}
"""The operand that decides the result alone; the other one leaves it to the other operand."""

STRUCTURAL: dict[Any, Any] = {
    ops.load: NodeCode.load, ops.constant: NodeCode.constant, ops.to_dtype: NodeCode.to_dtype, ops.index_value: NodeCode.index_value,
    ops.indirect: NodeCode.indirect, ops.reduce: NodeCode.reduce,
}  # fmt: skip


def _nonzero(n: fx.Node) -> bool:
    return n.target is ops.constant and bool(n.args[0] != 0)


def _crossing(group: LoopGroup) -> frozenset[str]:
    """Buffers made once per outer point in one phase and read in a later one."""
    made: set[str] = set()
    found: set[str] = set()
    for phase in group.phases:
        reads = {b for node in phase.nodes for b, _ in node.reads()}
        found |= reads & made
        made |= {n.name for n in phase.nodes if phase.space == "outer" or n.is_reduction}
    return frozenset(found)
