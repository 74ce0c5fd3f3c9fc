"""FX graphs as the real compiler prints them, read back into items like our own.

In: the text of ``GraphModule.print_readable`` with strides and devices, as the structured log has it. Out: ``PrintedGraph``: one ``Item`` for each node,
with the name, target, value, inputs and the user's line that the text gives. Always holds: the text of a node is what ``core.fx.node_text`` would print of
it as far as the print says it (``mm: f32[4, 8] = aten.mm.default(x, w)``), so that lines of both compilers can be compared.
PyTorch's counterpart: ``torch/fx/graph.py`` (``CodeGen._gen_python_code``) writes it. Left out: nodes of nested graphs keep their names under the graph's.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.artifact import Item
from ..core.provenance import Location, Stack

FILE = re.compile(r"^# File: (.*):(\d+) in (.*?), code: (.*)$")
CLASS = re.compile(r"^class (\S+?)\(.*\):$")
ASSIGN = re.compile(r'^(\w+)(?:\s*:\s*"([^"]*)")?\s*=\s(.*)$', re.DOTALL)
ARGUMENT = re.compile(r'(\w+)\s*:\s*"([^"]*)"')
IN_PLACE = re.compile(r'^(\w+) (\S{1,3})= (.*?);\s+(\w+)(?:\s*:\s*"([^"]*)")? = \1(?:;|$)', re.DOTALL)
STORED = re.compile(r"^(\w+)\[(.*)\] = (.*?);\s+(\w+) = \1(?:;|$)", re.DOTALL)
VALUE = re.compile(r"^(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?(.*)$")
DELETED = re.compile(r";\s+[\w\s=]*= None$")
WORD = re.compile(r"(?<![\w.'\"])([A-Za-z_]\w*)(?!\s*=(?!=)|\w|['\"])")
STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
CALL = re.compile(r"^([A-Za-z_][\w.]*)\((.*)\)$", re.DOTALL)
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "@": operator.matmul, "%": operator.mod,
    "**": operator.pow, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "is": operator.is_,
}  # fmt: skip
SIZES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "b8": 1, "c64": 8, "c128": 16}


@dataclass(frozen=True)
class PrintedGraph:
    """``items`` of one graph; ``code`` is the user's text of each line that the print quotes."""

    items: tuple[Item, ...]
    code: Mapping[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    @property
    def nodes(self) -> int:
        """Nodes that compute."""
        return sum(i.kind not in ("placeholder", "output", "get_attr") for i in self.items)

    @functools.cached_property
    def by_name(self) -> dict[str, Item]:
        return {str(i.facts["name"]): i for i in self.items}

    def text(self) -> str:
        return "\n".join(i.text for i in self.items)

    def with_parents(self, parents: Callable[[str], tuple[str, ...]]) -> PrintedGraph:
        """``parents`` gives the ids that the node of a name comes from."""
        return replace(self, items=tuple(replace(i, parents=parents(str(i.facts["name"]))) for i in self.items))


@dataclass
class _Reading:
    stage: str
    items: list[Item] = field(default_factory=list[Item])
    known: dict[str, str] = field(default_factory=dict[str, str])  # name in the text -> item id
    code: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    prefix: str = ""
    stack: Stack = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])  # argument of the signature -> its annotation, until the body names it


def read_graph(text: str, stage: str) -> PrintedGraph:
    """``text``: one printed module, nested graphs after its own. Statements that are not understood are items of kind "text"."""
    reading = _Reading(stage)
    path: list[tuple[int, str]] = []
    for indent, statement in _statements(text):
        if found := CLASS.match(statement):
            path = [(i, n) for i, n in path if i < indent] + [(indent, found[1])]
            reading.prefix, reading.known, reading.aliases, reading.stack = "".join(f"{name}/" for _, name in path[1:]), {}, {}, ()
        elif statement.startswith("def "):
            _signature(reading, statement)
        elif found := FILE.match(statement):
            line = int(found[2])
            reading.stack = (Location(found[1], line, found[3]),)
            reading.code[(found[1], line)] = found[4]
        elif statement.startswith("#"):
            reading.stack = ()
        else:
            _statement(reading, statement)
    return PrintedGraph(tuple(reading.items), reading.code)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """(indent, statement): lines of one bracketed expression joined, comments at their ends left out."""
    whole, depth, indent = "", 0, 0
    for line in text.split("\n"):
        bare = line.strip()
        if not bare:
            continue
        if not depth and bare.startswith("#"):
            yield len(line) - len(line.lstrip()), bare
            continue
        bare = re.sub(r"(^|\s+)#\s.*$", "", bare) if "#" in bare else bare
        if not depth:
            whole, indent = bare, len(line) - len(line.lstrip())
        else:
            whole += (" " if bare else "") + bare
        depth = _depth(whole)
        if depth <= 0:
            depth = 0
            yield indent, whole


def _depth(text: str) -> int:
    """Open brackets outside strings."""
    bare = STRING.sub("", text) if "'" in text or '"' in text else text
    return sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))


def _signature(reading: _Reading, statement: str) -> None:
    """Placeholders; in a captured graph the body gives them their names (``l_x_ = L_x_``)."""
    for name, value in ARGUMENT.findall(statement):
        if name[:2] in ("L_", "G_") or name != name.lower():
            reading.aliases[name] = value
        else:
            _placeholder(reading, name, value)


def _placeholder(reading: _Reading, name: str, value: str) -> None:
    said = describe(value)
    _add(reading, name, "placeholder", f"{name}: {said} = placeholder", {"target": name, "inputs": [], **_facts(value)})


def _statement(reading: _Reading, statement: str) -> None:
    if statement.startswith("return"):
        said = statement[len("return") :].strip()
        said = re.sub(r"^pytree\.tree_unflatten\(\[(.*)\], self\._out_spec\)$", r"(\1)", said, flags=re.DOTALL)
        said = re.sub(r"^\(\s*(.*?),?\s*\)$", lambda m: f"({m[1]}{',' if _single(m[1]) else ''})", said, flags=re.DOTALL)
        reading.stack = ()
        return _add(reading, "output", "output", f"return {said}", {"target": "output", "inputs": _inputs(reading, said)})
    if "fx_pytree.tree_flatten_spec" in statement:
        return
    if found := IN_PLACE.match(statement):  # y += 2;  iadd = y
        owner, sign, given, name, value = found.groups()
        target = f"operator.i{BINARY[sign].__name__.rstrip('_')}"
        typed = f": {describe(value)}" if value else ""
        facts = {"target": target, "inputs": _inputs(reading, f"{owner}, {given}"), **_facts(value or "")}
        return _add(reading, name, "call_function", f"{name}{typed} = {target}({owner}, {given})", facts)
    if found := STORED.match(statement):  # x[0] = 1;  setitem = x
        owner, place, given, name = found.groups()
        target = "operator.setitem"
        facts = {"target": target, "inputs": _inputs(reading, f"{owner}, {place}, {given}")}
        return _add(reading, name, "call_function", f"{name} = {target}({owner}, {place}, {given})", facts)
    body = DELETED.sub("", statement)
    declared = ARGUMENT.findall(body) if re.fullmatch(r'(\w+\s*:\s*"[^"]*";?\s*)+', body) else []
    for name, value in declared:  # a joint graph names its inputs one by one
        _placeholder(reading, name, value)
    if declared:
        return
    found = ASSIGN.match(body)
    if found is None:
        name = f"text_{len(reading.items)}"
        return _add(reading, name, "text", f"{name} = {body}", {"target": "", "inputs": _inputs(reading, body)})
    name, value, said = found[1], found[2] or "", found[3].strip()
    if said in reading.aliases:
        return _placeholder(reading, name, reading.aliases.pop(said))
    _node(reading, name, value, said)


def _node(reading: _Reading, name: str, value: str, said: str) -> None:
    kind, target, call = _call(reading, said)
    typed = f": {describe(value)}" if value else ""
    _add(reading, name, kind, f"{name}{typed} = {call}", {"target": target, "inputs": _inputs(reading, said), **_facts(value)})


def _call(reading: _Reading, said: str) -> tuple[str, str, str]:
    """(kind, target, text) of an expression, in the words of ``core.fx``."""
    if found := CALL.match(said):
        function, arguments = found[1], re.sub(r"(\w) = ", r"\1=", found[2])
        owner, _, method = function.rpartition(".")
        if function.startswith("self."):
            return "call_module", function[len("self.") :], f"self.{function[len('self.') :]}({arguments})"
        if owner in reading.known:
            return "call_method", method, f".{method}({', '.join(filter(None, [owner, arguments]))})"
        target = function.removeprefix("torch.ops.")
        target = re.sub(r"^torch\._C\._nn\.", "torch.nn.functional.", target)
        return "call_function", target, f"{target}({arguments})"
    if said.startswith("self."):
        return "get_attr", said[len("self.") :], said
    for sign, function in BINARY.items():
        left, found_sign, right = said.partition(f" {sign} ")
        if found_sign:
            name = f"operator.{function.__name__}"
            return "call_function", name, f"{name}({left}, {right})"
    if found := re.match(r"^(\w+)\[(.*)\]$", said, re.DOTALL):
        return "call_function", "operator.getitem", f"operator.getitem({found[1]}, {found[2]})"
    if said.startswith(("-", "~")):
        name = "operator.neg" if said[0] == "-" else "operator.invert"
        return "call_function", name, f"{name}({said[1:]})"
    if found := re.match(r"^(\w+)\.(\w+)$", said):
        return "call_function", "getattr", f"getattr({found[1]}, {found[2]!r})"
    return "call_function", said.split("(")[0], said


def _add(reading: _Reading, name: str, kind: str, text: str, facts: dict[str, Any]) -> None:
    full = reading.prefix + name
    taken = {i.id for i in reading.items[-1:]} if name == "output" else set[str]()
    one = f"{reading.stage}/{full}"
    if one in taken or (full in reading.known):
        full = f"{full}_{len(reading.items)}"
        one = f"{reading.stage}/{full}"
    reading.known[name] = one
    stack = reading.stack if kind not in ("placeholder", "output") else ()
    indent = "    " * reading.prefix.count("/")
    reading.items.append(Item(one, kind, indent + text, (), stack, {"name": full, **facts}))


def _inputs(reading: _Reading, said: str) -> list[str]:
    bare = STRING.sub("''", said) if "'" in said or '"' in said else said
    return list(dict.fromkeys(reading.known[w] for w in WORD.findall(bare) if w in reading.known))


def _single(inside: str) -> bool:
    return bool(inside) and "," not in inside


@functools.lru_cache(4096)
def describe(value: str) -> str:
    """``f32[4, 8]`` of ``f32[4, 8][8, 1]cpu``, with strides where it does not lie in order."""
    found = VALUE.match(value)
    if found is None:
        return value.removeprefix("Sym(").removesuffix(")") if value.startswith("Sym(") else value
    dtype, shape, strides, _ = found.groups()
    if strides is None or _in_order(shape, strides):
        return f"{dtype}[{shape}]"
    return f"{dtype}[{shape}]{{{strides}}}"


def _in_order(shape: str, strides: str) -> bool:
    sizes, steps = _numbers(shape), _numbers(strides)
    if sizes is None or steps is None:
        return True
    expected = 1
    for size, step in zip(reversed(sizes), reversed(steps), strict=False):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _numbers(text: str) -> list[int] | None:
    parts = [p.strip() for p in text.split(",") if p.strip()]
    return [int(p) for p in parts] if all(p.isdigit() for p in parts) else None


def _facts(value: str) -> dict[str, Any]:
    return dict(_known(value)) if value else {}


@functools.lru_cache(4096)
def _known(value: str) -> tuple[tuple[str, Any], ...]:
    """What an annotation says of a value: a graph has few different ones."""
    found = VALUE.match(value)
    facts: dict[str, Any] = {"value": describe(value)}
    if found is not None:
        facts["device"] = found[4]
        sizes = _numbers(found[2])
        if sizes is not None and found[1] in SIZES:
            facts["bytes"] = math.prod(sizes) * SIZES[found[1]]
    return tuple(facts.items())
