"""Inductor's loops before and after fusion, as it prints them, read back into items like our ``LoopProgram``'s and ``Schedule``'s.

In: the texts of ``ir_pre_fusion`` and ``ir_post_fusion``, and lines of its fusion log. Out: ``Loops`` (nodes and their statements) and the groups of a
schedule. Always holds: ids are ``lowering.forward/op1`` and ``scheduling.forward/op1_op2``; a node's facts name what it reads and writes, in bytes where
sizes are numbers. PyTorch's counterpart: ``torch/_inductor/debug.py`` (``DebugFormatter._write_ir``) and ``scheduler.py`` (``debug_str``) write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.artifact import Decision, Item

NODE = re.compile(r"^(\w+): (\w*)\(?(.*?)\)?$")
MEMBER = re.compile(r"^(\w+)\.snodes\[\d+\] =$")
LAYOUT = re.compile(r"^\s*(\w+)\.layout = \w+\('([^']*)', torch\.(\w+), size=\[(.*?)\], stride=\[(.*?)\]")
DEPENDENCY = re.compile(r"(?:MemoryDep|StarDep|WeakDep)\((?:name=)?'(\w+)'")
STATEMENT = re.compile(r"^\s+(\w+) = ops\.(\w+)\((.*)\)$")
INDEX = re.compile(r"^\s+(\w+) = self\.get_index\('(\w+)'\)$")
ORIGINS = re.compile(r"SchedulerNode\(name='(\w+)'\).*?origins=(?:OrderedSet\(\[|\{)([^\]}]*)")
SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
    "bool": "b8",
}  # fmt: skip
WIDTH = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2}


@dataclass
class Node:
    """One scheduler node as it is printed; ``members`` of a fused one."""

    name: str
    type: str
    inner: str
    lines: list[str] = field(default_factory=list[str])
    members: list[Node] = field(default_factory=list["Node"])

    @property
    def leaves(self) -> list[Node]:
        return [leaf for m in self.members for leaf in m.leaves] if self.members else [self]

    def value(self, name: str) -> str:
        """What stands behind ``NODE.name =``, over its lines."""
        head = f"{self.name}.{name} ="
        for k, line in enumerate(self.lines):
            if line.startswith(head):
                more: list[str] = []
                for follow in self.lines[k + 1 :]:
                    if not follow.startswith(" "):
                        break
                    more.append(follow.strip())
                return " ".join([line[len(head) :].strip(), *more]).strip()
        return ""

    def names(self, *kinds: str) -> list[str]:
        return list(dict.fromkeys(n for kind in kinds for n in DEPENDENCY.findall(self.value(kind))))

    @property
    def reads(self) -> list[str]:
        return self.names("met_dependencies", "unmet_dependencies")

    @property
    def writes(self) -> list[str]:
        return self.names("writes")

    @property
    def outputs(self) -> dict[str, tuple[str, int | None]]:
        """buffer -> (``f32[4, 8]``, bytes where they are a number)."""
        return {m[1]: _spec(m[3], m[4], m[5]) for line in self.lines if (m := LAYOUT.match(line))}

    @property
    def kind(self) -> str:
        if "Extern" in self.type or "Template" in self.type or "Template" in self.inner:
            return "extern"
        if "Nop" in self.type:
            return "nop"
        return "reduction" if self.ranges[1] else "pointwise"

    @property
    def ranges(self) -> tuple[list[str], list[str]]:
        """The sizes of the outer loops and of the reduced ones."""
        found = re.match(r"\(\[(.*?)\], \[(.*?)\]\)", self.value("sizes"))
        split = lambda text: [p.strip() for p in text.split(",") if p.strip()]
        return (split(found[1]), split(found[2])) if found else ([], [])

    @property
    def library(self) -> str:
        """The function that an extern node calls."""
        return self.value("node.kernel") or self.inner

    def users(self) -> set[str]:
        return set(re.findall(r"NodeUser\(node=(?:\w+\(name='(\w+)'\)|OUTPUT)", self.value("outputs")))


def _spec(dtype: str, size: str, stride: str) -> tuple[str, int | None]:
    short = SHORT.get(dtype, dtype)
    sizes, steps = ([p.strip() for p in text.split(",") if p.strip()] for text in (size, stride))
    text = f"{short}[{', '.join(sizes)}]"
    if not all(s.isdigit() for s in (*sizes, *steps)):
        return text, None
    expected, total, dense = 1, 1, True
    for n, step in zip(reversed([int(s) for s in sizes]), reversed([int(s) for s in steps]), strict=True):
        dense = dense and (n == 1 or step == expected)
        expected, total = expected * n, total * n
    return (text if dense else f"{text}{{{', '.join(steps)}}}"), total * WIDTH.get(short, 1)


def read_nodes(text: str) -> list[Node]:
    """The nodes of one printed list, members inside the fused nodes that hold them."""
    top: list[Node] = []
    known: dict[str, Node] = {}
    owner = ""
    current: Node | None = None
    for line in text.split("\n"):
        if found := MEMBER.match(line):
            owner = found[1]
        elif (found := NODE.match(line)) and "Node" in found[2]:
            current = Node(found[1], found[2], found[3])
            holder = known.get(owner)
            (holder.members if holder is not None else top).append(current)
            known[current.name] = current
            owner = ""
        elif current is not None:
            current.lines.append(line)
    return top


def read_origins(lines: Iterable[str]) -> dict[str, list[str]]:
    """op -> the graph nodes it computes, from the candidates that the fusion log lists."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for name, origins in ORIGINS.findall(line):
            found.setdefault(name, [o.strip() for o in origins.split(",") if o.strip()])
    return found


def loop_items(nodes: Sequence[Node], stage: str, parents: Mapping[str, tuple[str, ...]]) -> tuple[Item, ...]:
    """Each node, and after a loop its statements. ``parents``: of each op, the ids of the graph's nodes it computes."""
    return tuple(item for node in nodes for leaf in node.leaves for item in _node_items(leaf, stage, parents.get(leaf.name, ())))


def _node_items(node: Node, stage: str, parents: tuple[str, ...]) -> Iterator[Item]:
    one = f"{stage}/{node.name}"
    specs = node.outputs
    facts: dict[str, Any] = {"inputs": sorted(node.reads), "outputs": {b: text for b, (text, _) in specs.items()}, "type": node.type}
    sizes = [size for _, size in specs.values()]
    if None not in sizes:
        facts["bytes"] = sum(size for size in sizes if size is not None)
    head = ", ".join(f"{b}: {text}" for b, (text, _) in specs.items()) or node.name
    if node.kind in ("extern", "nop"):
        yield Item(one, node.kind, f"{head} = {node.library}({', '.join(node.reads)})", parents, (), {**facts, "origin": node.library})
        return
    outer, inner = node.ranges
    named = lambda sizes, first: {f"p{first + k}": int(n) if n.isdigit() else n for k, n in enumerate(sizes)}
    space = {"outer": named(outer, 0), "inner": named(inner, len(outer))}
    spaces = [f"{word} " + ", ".join(f"{v} in {n}" for v, n in space[name].items()) for word, name in (("for", "outer"), ("over", "inner")) if space[name]]
    statements = list(_body(node.lines))
    _, last, said = next((s for s in reversed(statements) if not s[1].startswith("store")), ("", "copy", ""))
    last = said.split(", ")[2] if last == "reduction" else last
    yield Item(one, node.kind, " ".join([f"{head} = {last}", *spaces]), parents, (), {**facts, **space, "origin": last})
    for number, (name, op, arguments) in enumerate(statements):
        text = f"{op}({arguments})" if op.startswith("store") else f"{name} = {op}({arguments})"
        yield Item(f"{one}:{number}", op, text, (one,), (), {"node": one})


def _body(lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(name, op, arguments) of each statement; places are written out instead of named."""
    places: dict[str, str] = {}
    names: dict[str, str] = {}
    for line in lines:
        if found := re.match(r"^    (index\d+) = (.*)$", line):
            places[found[1]] = found[2]
        elif found := INDEX.match(line):
            names[found[1]] = places.get(found[2], found[2])
        elif found := STATEMENT.match(line):
            arguments = re.sub(r"\bget_index\w*", lambda m: names.get(m[0], m[0]), found[3])
            yield found[1], found[2], re.sub(r"'(\w+)'", r"\1", arguments.removesuffix(", None"))


def loop_text(items: Iterable[Item]) -> str:
    return "\n".join(("  " if ":" in i.id.rpartition("/")[2] else "") + i.text for i in items)


def group_items(nodes: Sequence[Node], stage: str, loops: str) -> tuple[Item, ...]:
    """The kernels and library calls after fusion, and what they hold. ``loops``: the stage of the nodes they are made of."""
    found: list[Item] = []
    for node in nodes:
        leaves = node.leaves
        where = f"{stage}/{node.name}"
        names = {leaf.name for leaf in leaves}
        writes = {b: leaf for leaf in leaves for b in leaf.writes}
        internal = sorted(b for b, leaf in writes.items() if leaf.users() and leaf.users() <= names)
        reads = sorted({r for leaf in leaves for r in leaf.reads} - set(writes))
        shape = "extern" if node.kind == "extern" else node.type
        facts = {"shape": shape, "internal": internal, "reads": reads, "writes": sorted(set(writes) - set(internal))}
        kind = node.kind if not node.members else "fused"
        head = f"{node.name} = {leaves[0].library}" if kind == "extern" else f"{node.name} = {node.type} of {', '.join(leaf.name for leaf in leaves)}"
        found.append(Item(where, kind, head, tuple(f"{loops}/{leaf.name}" for leaf in leaves), (), facts))
        for leaf in leaves:
            for buffer, (text, _) in leaf.outputs.items():
                place = "internal" if buffer in internal else "stored"
                origin = {"origin": leaf.library if leaf.kind == "extern" else leaf.kind, "op": leaf.name}
                found.append(Item(f"{where}/{buffer}", leaf.kind, f"{buffer}: {text} = {leaf.name}  # {place}", (f"{loops}/{leaf.name}",), (), origin))
    return tuple(found)


def group_text(items: Iterable[Item]) -> str:
    return "\n".join(("  " if i.id.count("/") > 1 else "") + i.text for i in items)


def fusion_decisions(lines: Iterable[str], nodes: Sequence[Node], loops: str) -> tuple[Decision, ...]:
    """Every pair that the fusion log names: fused, or why not. The subject is the first op of each side; the sides are facts."""
    first = {node.name: node.leaves[0].name for node in nodes}
    known = {leaf.name for node in nodes for leaf in node.leaves}

    def subject(name: str) -> str:
        op = first.get(name) or next((k for k in sorted(known, key=len, reverse=True) if name == k or name.startswith(f"{k}_")), name)
        return f"{loops}/{op}"

    found: dict[tuple[str, str, str], Decision] = {}
    for line in lines:
        if m := re.match(r"^fusing (\w+) with (\w+)$", line):
            sides, outcome, reason = (m[1], m[2]), "accepted", "fused"
        elif m := re.match(r"^cannot fuse (\w+) with (\w+): (.*)$", line, re.DOTALL):
            sides, outcome, reason = (m[1], m[2]), "refused", m[3].strip()
        else:
            continue
        facts = {"left": sides[0], "right": sides[1]}
        found.setdefault((*sides, outcome + reason), Decision("fuse", (subject(sides[0]), subject(sides[1])), outcome, reason, facts))
    return tuple(found.values())
