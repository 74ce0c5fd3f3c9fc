"""Inductor's output code, read back into items like our ``Kernels``'s: kernels in C++ or Triton, and the wrapper that calls them.

In: the text of one ``output_code`` and what provenance tracking says of it. Out: ``OutputCode``. Always holds: item ``codegen.forward/KERNEL:L12`` is line
12 of the text; a kernel's parents are the groups of the schedule that it holds, where torch tells, else the graph's nodes that it computes.
PyTorch's counterpart: ``torch/_inductor/codegen/wrapper.py`` writes it; ``torch/_inductor/debug.py`` keeps the provenance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.artifact import Item
from ..core.provenance import Stack

AOT_ID = re.compile(r"^# AOT ID: \['(\d+)_(forward|backward|inference)'\]", re.MULTILINE)
START = re.compile(r"^(\w+) = async_compile\.(\w+)\((.*)$")
CALL = re.compile(r"^\s+(?:(\w+)\s*=\s*)?(extern_kernels\.\w+|torch\.ops\.[\w.]+|aten\.[\w.]+|\w+?)(?:\.run)?\((.*)\)")
HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+)")
NAMED = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\]")
LANGUAGE = {"cpp_pybinding": "line", "cpp": "line", "triton": "triton", "pallas": "triton", "halide": "triton"}


@dataclass(frozen=True)
class Kernel:
    """``first`` to ``last``: its lines in the text, head and end included. ``line``: the kind of its lines."""

    name: str
    language: str
    line: str
    first: int
    last: int


@dataclass(frozen=True)
class OutputCode:
    """``part``: "forward" (of an inference graph too) or "backward"; ``calls``: (line, called function) of the wrapper, in order."""

    part: str
    text: str
    kernels: tuple[Kernel, ...]
    calls: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Origins:
    """What torch's provenance tracking says: handle ("cpp_fused_0:2") -> graph nodes, and -> stacks."""

    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    stacks: Mapping[str, Stack] = field(default_factory=dict[str, Stack])

    def of(self, name: str) -> tuple[tuple[str, ...], Stack]:
        """Nodes and stack of a kernel or library function, whatever its call."""
        same = lambda handle: handle.rpartition(":")[0] == name or handle == name
        nodes = dict.fromkeys(n for handle, found in self.nodes.items() if same(handle) for n in found)
        return tuple(nodes), next((s for handle, s in self.stacks.items() if same(handle) and s), ())


def read_code(text: str) -> OutputCode:
    """The parts of one output code."""
    found = AOT_ID.search(text)
    part = "backward" if found and found[2] == "backward" else "forward"
    lines = text.split("\n")
    kernels: list[Kernel] = []
    number = 0
    while number < len(lines):
        start = START.match(lines[number])
        number += 1
        if start is None or start[2] not in LANGUAGE:
            continue
        quote = "'''" if "'''" in "\n".join(lines[number - 1 : number + 1]) else '"""'
        last, seen = number, lines[number - 1].count(quote)
        while seen < 2 and last < len(lines):
            seen += lines[last].count(quote)
            last += 1
        kernels.append(Kernel(start[1], start[2], LANGUAGE[start[2]], number, last))
        number = last
    names = {k.name for k in kernels}
    calls: list[tuple[int, str]] = []
    inside = False
    for n, line in enumerate(lines, 1):
        if re.match(r"^\s*def \w+\(", line):
            inside = re.match(r"^\s*def call\(", line) is not None
        if inside and (call := CALL.match(line)) and (call[2] in names or call[2].startswith(("extern_kernels.", "torch.ops.", "aten."))):
            calls.append((n, call[2]))
    return OutputCode(part, text, tuple(kernels), tuple(calls))


def code_items(code: OutputCode, stage: str, origins: Origins, ids: Callable[[Sequence[str], str], tuple[str, ...]]) -> tuple[Item, ...]:
    """``ids(nodes, name)``: the ids behind the graph nodes that the kernel or library function ``name`` computes."""
    lines = code.text.split("\n")
    arguments = {k.name: _arguments(lines, k) for k in code.kernels}
    found: list[Item] = []
    for k in code.kernels:
        nodes, stack = origins.of(k.name)
        facts = {"nodes": list(nodes), "first": k.first, "last": k.last, "language": "Triton" if k.line == "triton" else "C++"}
        parents = ids(nodes, k.name)  # a kernel of several lines has those of its parents, not the first alone
        found.append(Item(f"{stage}/{k.name}", "kernel", f"{k.name}({', '.join(arguments[k.name])})", parents, () if parents else stack, facts))
    owner = {n: k for k in code.kernels for n in range(k.first + 1, k.last)}
    calls = dict(code.calls)
    handle, named = "", list[str]()
    for n, text in enumerate(lines, 1):
        if not text.strip():
            continue
        if n in owner:
            k = owner[n]
            found.append(Item(f"{stage}/{k.name}:L{n}", k.line, text, (f"{stage}/{k.name}",), (), {"number": n}))
            continue
        handle = m[1] if (m := HANDLE.search(text)) else handle
        named = [p.strip() for p in m[1].split(",")] if (m := NAMED.search(text)) else named
        parents, stack = (), ()
        if n in calls:
            if any(k.name == calls[n] for k in code.kernels):
                parents = (f"{stage}/{calls[n]}",)
            else:
                nodes = origins.nodes.get(handle) or named
                parents, stack = ids(nodes, calls[n]), origins.stacks.get(handle, ())
            handle, named = "", []
        found.append(Item(f"{stage}/wrapper:L{n}", "wrapper", text, parents, stack, {"number": n}))
    return tuple(found)


def _arguments(lines: Sequence[str], kernel: Kernel) -> list[str]:
    """The parameters of a kernel as its own source names them."""
    body = "\n".join(lines[kernel.first : kernel.last])
    found = re.search(r'extern "C"\s+void\s+\w+\((.*?)\)', body, re.DOTALL) or re.search(r"^def \w+\((.*?)\):", body, re.DOTALL | re.MULTILINE)
    if found is None:
        return []
    return [re.sub(r"\s*:.*$", "", p.strip()).split(" ")[-1].lstrip("*") for p in found[1].split(",") if p.strip()]


def program_parts(code: OutputCode, stage: str, generated: str) -> tuple[tuple[Item, ...], str]:
    """(items, text) of what was built: each kernel, and each library call, in the order of the wrapper."""
    externs = [name for _, name in code.calls if not any(k.name == name for k in code.kernels)]
    items = tuple(Item(f"{stage}/{k.name}", "kernel", f"{k.name}: {k.language}", (f"{generated}/{k.name}",), (), {"nodes": []}) for k in code.kernels)
    lines = [f"{stage}: {len(code.kernels)} kernels, {len(externs)} extern calls", *(f"  {i.text}" for i in items), *(f"  {name}" for name in externs)]
    return items, "\n".join(lines)
