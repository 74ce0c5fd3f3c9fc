"""What the real capture says of a frame, read back: the guard tree, graph breaks, bytecode.

In: the texts and lists of the structured log and of the recorder. Out: items like our ``Capture``'s and ``GuardTree``'s.
Always holds: no addresses and no times; a file that a text cuts short is named in full where one known file ends so.
PyTorch's counterpart: ``torch/_dynamo/guards.py`` (``format_user_code`` and ``__str__`` of the guard managers) writes the tree.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ..core.artifact import Decision, Item
from ..core.provenance import Location, Stack

TREE = "frames.guards"
ROW = re.compile(r"^((?:\| )*)\+- (.*)$")
MANAGER = re.compile(r"^(?:KeyManager: |ValueManager: )?\w*GuardManager\w*: source=(.*), accessed_by=(.*?)(?:, type=.*)?$")
CHECK = re.compile(r"^([A-Z][A-Z_0-9]+)(?:: (.*))?$")
WHERE = re.compile(r"^(.*?)(?:\s+# (.*?))?\s+# (\S.*?):(\d+) in (\S+)\s*$")
OBJECT = re.compile(r"(___check_(?:obj|type)_id\(.*?), \d+(?:, type=<class '([^']*)'>)?\)(?:, type=<class '([^']*)'>)?")
FRAME = re.compile(r'^\s*File "(.*)", line (\d+), in (.*)$')


def read_guards(text: str, files: Collection[str]) -> tuple[tuple[Item, ...], str]:
    """(items, text) of a guard tree: a "source" for each value that is looked at, and each check below it. ``files``: those that may be meant."""
    items: list[Item] = []
    lines: list[str] = []
    above: list[tuple[int, str]] = []  # (depth, id of the source)
    seen: dict[str, int] = {}
    for raw in text.split("\n"):
        row = ROW.match(raw)
        if row is None:
            continue
        depth, said = len(row[1]) // 2, row[2]
        above = [(d, i) for d, i in above if d < depth]
        parents = (above[-1][1],) if above else ()
        if found := MANAGER.match(said):
            one = _unique(f"{TREE}/{found[1]}", seen)
            items.append(Item(one, "source", found[1], parents, (), {"accessed by": found[2]}))
            above.append((depth, one))
            lines.append("  " * (len(above) - 1) + found[1])
            continue
        body, code, stack = _where(said, files)
        check = CHECK.match(body)
        if check is None:
            continue
        kind, what = check[1].lower(), _plain(check[2] or "")
        owner = parents[0] if parents else f"{TREE}/{kind}"
        count = seen.get(f"{owner}:", -1) + 1
        seen[f"{owner}:"] = count
        what = what or kind.replace("_", " ")
        items.append(Item(f"{owner}:{count}", kind, f"{kind}: {what}", parents, stack, {"why": code}))
        lines.append("  " * len(above) + f"{kind}: {what}")
    return tuple(items), "\n".join(lines)


def _unique(one: str, seen: dict[str, int]) -> str:
    seen[one] = seen.get(one, 0) + 1
    return one if seen[one] == 1 else f"{one}#{seen[one]}"


def _where(said: str, files: Collection[str]) -> tuple[str, str, Stack]:
    """(check, the user's code, its place): what stands behind the last two "#"."""
    found = WHERE.match(said)
    if found is None:
        return said.strip(), "", ()
    body, code, file, line, function = found.groups()
    return body.strip(), code or "", (Location(_whole(file, tuple(files)), int(line), function),)


@functools.lru_cache(1024)
def _whole(file: str, files: tuple[str, ...]) -> str:
    """The one known file, or file of torch, whose name ends so; else ``file`` as it is."""
    own = os.path.join(os.path.dirname(torch.__file__), file)
    found = [f for f in files if f.endswith(file)] or [own] * os.path.exists(own)
    return found[0] if len(found) == 1 else file


def _plain(what: str) -> str:
    """Without addresses of objects, whose type stays, and without what is different in each process."""
    if not any(map(str.isdigit, what)):
        return what
    what = OBJECT.sub(lambda m: f"{m[1]})" + (f", {m[2] or m[3]}" if m[2] or m[3] else ""), what)
    what = re.sub(r"\b(__compiled_fn_\d+)_[0-9a-f_]{30,}\b", r"\1", what)
    what = re.sub(r"\b0x[0-9a-f]+\b", "...", what)
    return re.sub(r"\b\d{12,}\b", "...", what)


def guard_items(tree: Sequence[Item]) -> tuple[Item, ...]:
    """The checks of a tree as items of a capture: ``frames/guard_3``."""
    owner = {i.id: i.text for i in tree if i.kind == "source"}
    checks = [i for i in tree if i.kind != "source"]
    subject = lambda i: owner[i.parents[0]] if i.parents else "the process"
    return tuple(
        Item(f"frames/guard_{n}", "guard", f"{subject(i)}: {i.text}", (), i.stack, {"kind": i.kind, "why": str(i.facts["why"])}) for n, i in enumerate(checks)
    )


def read_stack(text: str) -> Stack:
    """The locations of a printed traceback, outermost first."""
    return tuple(Location(m[1], int(m[2]), m[3]) for line in text.split("\n") if (m := FRAME.match(line)))


def read_break(text: str) -> dict[str, Any]:
    """{"reason", "what", "hints", "context", "stack"} of a graph break as it is logged."""
    head, _, trace = text.partition("User code traceback:")
    first = re.search(r"^(?:Graph Break )?Reason: (.*)$", head, re.MULTILINE) or re.search(r"Graph Break Reason: (.*)", head)
    place = re.search(r"Graph break in user code at (.*):(\d+)", head)
    stack = read_stack(trace) or ((Location(place[1], int(place[2])),) if place else ())
    field = lambda name: [
        re.sub(r"\s+", " ", m).strip()
        for m in re.findall(rf"^\s*{name}: (.*?)(?=^\s*(?:Hint|Explanation|Developer debug context):|\n\s*\n|\Z)", head, re.M | re.S)
    ]
    reason = first[1].strip() if first else next((line for line in head.strip().split("\n") if line), "")
    context = [c for c in field("Developer debug context") if c]
    return {
        "reason": reason,
        "what": " ".join(field("Explanation")) or reason,
        "hints": field("Hint"),
        "context": context[0] if context else "",
        "stack": stack,
    }


def break_parts(text: str, name: str, number: int) -> tuple[Item, Decision]:
    """A graph break as an item of kind "break", and as the decision to leave the frame to Python."""
    found = read_break(text)
    facts = {"reason": found["reason"], "what": found["what"], "hint": " ".join(found["hints"]), "instruction": found["context"]}
    item = Item(f"frames/break_{number}", "break", f"break: {found['reason']}: {found['what']}", (), found["stack"], facts)
    return item, Decision("break", (name,), "left to Python", found["reason"], {"instruction": found["context"], "what": found["what"], "hint": facts["hint"]})


def instruction_items(rows: Sequence[Mapping[str, Any]], file: str, function: str, kind: str = "instruction") -> tuple[Item, ...]:
    """``rows``: {"offset", "name", "argument", "line"} of each instruction."""
    return tuple(
        Item(
            f"frames/{kind.replace(' ', '_')}_{r['offset']}", kind, f"{r['offset']:>4} {r['name']:<24} {_plain(r['argument'])}".rstrip(), (),
            (Location(file, r["line"], function),) if r["line"] else (),
        )
        for r in rows
    )  # fmt: skip


DIS = re.compile(r"^(?:\s*(\d+)\s+|\s+)(?:-->|>>)?\s*(\d+) ([A-Z][A-Z_0-9]+)(?:\s+\d+)?(?:\s+\((.*)\))?\s*$")


def read_bytecode(text: str) -> list[dict[str, Any]]:
    """Rows of ``instruction_items`` out of what ``dis`` printed."""
    rows: list[dict[str, Any]] = []
    line = 0
    for raw in text.split("\n"):
        if found := DIS.match(raw):
            line = int(found[1]) if found[1] else line
            rows.append({"offset": int(found[2]), "name": found[3], "argument": found[4] or "", "line": line})
    return rows
