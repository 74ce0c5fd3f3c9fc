"""What can be altered in a table: places in a file's text, each with what stands there instead.

In: the text of a Python file or of ``math.h``. Out: ``Site``s, in order of the file. Left alone: annotations, docstrings, messages, what is raised, assertions.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "%"), ast.Mod: ("%", "//"),
}  # fmt: skip
UNORDERED = frozenset({"isinstance", "getattr", "hasattr", "max", "min", "zip", "Decision", "Var", "cast"})
"""Calls whose first two arguments are not exchanged: it changes nothing, or fails wherever it runs."""

GENERAL = frozenset({"aten", "default", "tensor", "torch", "ops", "self"})
"""Words that tell nothing of what a row is about."""

HEADER = re.compile(r"(?<![\w.#])(?P<number>-?(?:0x[0-9a-f]*\.?[0-9a-f]*p[-+]?\d+|\d+\.\d*)f?|\d+u?)(?![\w.])| (?P<sign>[-+]|<|>|<=|>=|==|<<|>>|\?) ")
OPPOSITE = {"+": "-", "-": "+", "<": "<=", ">": ">=", "<=": "<", ">=": ">", "==": "!=", "<<": ">>", ">>": "<<"}


@dataclass(frozen=True)
class Site:
    """One alteration. ``text`` replaces the characters ``start`` to ``end``; ``lines``: those of which one is run where the place is used, or none
    for what is read once, on import; ``words`` say what it is about."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    lines: range
    words: frozenset[str]

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def changes(self, source: str) -> bool:
        """Whether the result is a program, and another one."""
        if self.path.endswith(".h"):
            return self.apply(source) != source
        try:
            return ast.dump(ast.parse(self.apply(source))) != ast.dump(ast.parse(source))
        except SyntaxError:
            return False

    def lines_of(self, source: str) -> tuple[str, str]:
        """The line and the line altered, without the space around them."""
        begin = source.rfind("\n", 0, self.start) + 1
        before, after = (text[begin:].partition("\n")[0].strip() for text in (source, self.apply(source)))
        return before, after

    def diff(self, source: str) -> str:
        """The lines that change, before and after."""
        changed = difflib.unified_diff(source.splitlines(), self.apply(source).splitlines(), n=0, lineterm="")
        return "\n".join(line for line in changed if not line.startswith(("---", "+++", "@@")))


def sites(root: Path, path: str) -> tuple[Site, ...]:
    source = (root / path).read_text()
    return tuple(_header(path, source) if path.endswith(".h") else Finder(path, source).find())


def words(text: str) -> frozenset[str]:
    return frozenset(w.strip("_").removesuffix("_f32").removesuffix("_f64") for w in re.findall(r"[a-z][a-z0-9_]+", text.lower())) - GENERAL


class Finder:
    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source
        self.begins = [0]
        for line in source.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The character of a position of ``ast``, whose columns are bytes."""
        begin = self.begins[line - 1]
        return begin + len(self.source[begin : self.begins[line]].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def find(self) -> list[Site]:
        found = [s for statement in ast.parse(self.source).body for s in self.walk(statement, range(0), frozenset())]
        return sorted(found, key=lambda s: (s.start, s.kind, s.text))

    def walk(self, node: ast.AST, lines: range, about: frozenset[str]) -> Iterator[Site]:
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            return
        inside = isinstance(node, (ast.FunctionDef, ast.Lambda))
        if isinstance(node, ast.FunctionDef):
            about = words(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not lines:
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if "REASONS" in name or name == "__all__":
                return
            about = words(name)
        if isinstance(node, ast.expr):
            yield from self.here(node, lines, about)
        if isinstance(node, (ast.If, ast.While)) and lines:
            start, end = self.span(node.test)
            for always in ("True", "False") if isinstance(node, ast.If) else ("False",):
                yield Site(self.path, node.test.lineno, "condition", start, end, always, lines, about)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "slice") and not (name == "slice" and lines):
                continue
            children = [c for c in (value if isinstance(value, list) else [value]) if isinstance(c, ast.AST)]
            for number, child in enumerate(children):
                deeper, further = lines, about
                if isinstance(child, ast.expr) and ((isinstance(node, ast.stmt) and lines) or isinstance(node, ast.Lambda)):
                    deeper = range(child.lineno, (child.end_lineno or child.lineno) + 1)
                elif isinstance(child, ast.stmt) and inside:
                    deeper = range(child.lineno, child.lineno + 1)
                if isinstance(node, ast.Dict) and name == "values" and (key := node.keys[number]) is not None:
                    further = words(self.text(key))
                yield from self.walk(child, deeper, further)

    def here(self, node: ast.expr, lines: range, about: frozenset[str]) -> Iterator[Site]:
        """What can be altered of this expression itself."""

        def site(kind: str, start: int, end: int, text: str, more: frozenset[str] = about) -> Site:
            return Site(self.path, self.source.count("\n", 0, start) + 1, kind, start, end, text, lines, more)

        if isinstance(node, ast.Compare):
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                yield from self.between(site, "comparison", left, right, *COMPARED[type(op)])
        elif isinstance(node, ast.BoolOp):
            both = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in pairwise(node.values):
                yield from self.between(site, "and, or", left, right, *both)
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            yield from self.between(site, "operator", node.left, node.right, *COMPUTED[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield site("not", *self.span(node), self.text(node.operand))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield site("constant", *self.span(node), repr(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(number := node.value, (int, float)):
            yield from (site("constant", *self.span(node), f"{number + step!r}") for step in (1, -1))
        elif isinstance(node, ast.IfExp):
            yield from (site("condition", *self.span(node.test), always) for always in ("True", "False"))
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            yield from (site("condition", *self.span(test), "True") for g in node.generators for test in g.ifs)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            (first, second), called = node.args[:2], ast.unparse(node.func)
            if called.rpartition(".")[2] not in UNORDERED and self.text(first) != self.text(second):
                yield site("arguments", self.span(first)[0], self.span(second)[1], f"{self.text(second)}, {self.text(first)}")
        elif isinstance(node, ast.Dict) and len(node.keys) > 1 and not lines:
            yield from self.rows(site, node)
        elif isinstance(node, (ast.Set, ast.Tuple, ast.List)) and len(node.elts) > 2 and not lines:
            for a, b in pairwise(node.elts):
                if isinstance(a, ast.Constant):
                    yield site("row left out", self.span(a)[0], self.span(b)[0], "", words(self.text(a)))

    def between(self, site: Callable[..., Site], kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Site]:
        start, end = self.span(left)[1], self.span(right)[0]
        at = self.source.find(f" {old} ", start - 1, end + 1)
        if at >= 0:
            yield site(kind, at + 1, at + 1 + len(old), new)

    def rows(self, site: Callable[..., Site], node: ast.Dict) -> Iterator[Site]:
        rows = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None]
        for (key, value), (other, following) in pairwise(rows):
            names, (start, end), (_, last) = words(self.text(key)), self.span(value), self.span(following)
            yield site("row left out", self.span(key)[0], self.span(other)[0], "", names)
            if self.text(value) != self.text(following):
                yield site("text of the next row", start, end, self.text(following), names)
                between = self.source[end : self.span(following)[0]]
                yield site("rows exchanged", start, last, f"{self.text(following)}{between}{self.text(value)}", names | words(self.text(other)))


def _header(path: str, source: str) -> Iterator[Site]:
    """Numbers and operators of C functions."""
    begin, about = 0, frozenset[str]()
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.partition("//")[0]
        if names := re.findall(r"\b(?:vm|lab)_([a-z0-9_]+)\(", code.partition("{")[0]):
            about = words(names[0])
        if not code.lstrip().startswith(("#", "*", "/*", "template", "extern")):
            for m in HEADER.finditer(code):
                group = "number" if m["number"] is not None else "sign"
                if group == "sign" and m["sign"] == "?":
                    continue
                text = _nearby(m["number"]) if group == "number" else OPPOSITE[m["sign"]]
                yield Site(path, number, "constant" if group == "number" else "operator", begin + m.start(group), begin + m.end(group), text, range(0), about)
        begin += len(line)


def _nearby(number: str) -> str:
    """A number that is one off where it is an integer, a thousandth elsewhere."""
    if re.fullmatch(r"\d+u?", number):
        return f"{int(number.rstrip('u')) + 1}{'u' * number.endswith('u')}"
    digits = number.rstrip("f") if "p" in number or not number.startswith("0x") else number
    value = float.fromhex(digits) if "0x" in digits else float(digits)
    return f"{value * 1.001 or 0.001!r}{'f' * number.endswith('f')}"
