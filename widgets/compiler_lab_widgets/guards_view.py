"""Guards: a tree of the values that are looked at, each check with its line, its reason and its cost; and the timeline of recompiles.

In: the data of ``compiler_lab.observe.guards_data``. Out: an HTML fragment; with script (``guards_view.js``) the trees are trees for keys and screen
readers too, and each recompile points to the check that failed. In a widget, inputs of one's own are tried, and Python says which check fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .frame import count, esc, frame, heading, ident_of, table

Check = Mapping[str, Any]
HEAD = (
    "Compiled code is right only for calls like the one it was made from: these checks run before each call, and where one fails it is compiled anew. Lab 06."
)


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.guards_data``."""
    trees: list[Mapping[str, Any]] = list(data["trees"])
    texts = [c["text"] for t in trees for c in (*t["relations"], *(c for n in t["nodes"] for c in n["checks"]))]
    ident = ident_of("guards", [data["title"], *texts])
    ids = {(k, c["id"]): f"{ident}-{k}-{n}" for k, t in enumerate(trees) for n, c in enumerate(_checks(t))}
    made = [_tree(t, k, data, ids, ident) for k, t in enumerate(trees)]
    body = _timeline(data, ids) + ("".join(made) or "<p>This trace has no guards.</p>")
    slim = {"trees": [{"inputs": t["inputs"], "ids": {c["id"]: ids[k, c["id"]] for c in _checks(t)}} for k, t in enumerate(trees)]}
    return frame("guards", ident, f"{data['title']}: guards", HEAD, body, slim)


def text(data: Mapping[str, Any]) -> str:
    """The recompiles, then each tree."""
    parts = [_point_text(p, data["lines"]) for p in data["recompiles"]]
    for tree in data["trees"]:
        lines = [_title(tree)]
        depth: list[int] = []
        for node in tree["nodes"]:
            depth.append(depth[node["up"]] + 1 if node["up"] >= 0 else 0)
            lines.append(f"{'  ' * depth[-1]}{node['label']}")
            lines += [f"{'  ' * depth[-1]}    {_said(c, data['lines'])}" for c in node["checks"]]
        lines += [_said(c, data["lines"]) for c in tree["relations"]]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "no guards"


def _said(check: Check, lines: Sequence[str]) -> str:
    cost = "" if check["nanoseconds"] is None else f"  [{check['nanoseconds']:.0f} ns]"
    why = f"  ({check['why']})" if check["why"] else ""
    where = f"  at {lines[check['line']]}" if check["line"] >= 0 else ""
    return f"{check['text']}{why}{where}{cost}"


def _point_text(point: Mapping[str, Any], lines: Sequence[str]) -> str:
    rows = [f"  {f['source']}: expected {f['expected']}; got {f['got']}" + (f"  at {lines[f['line']]}" if f["line"] >= 0 else "") for f in point["failures"]]
    return "\n".join([_point_title(point), *rows, *(f"  do: {a}" for a in dict.fromkeys(f["advice"] for f in point["failures"]) if a)])


def _checks(tree: Mapping[str, Any]) -> list[Check]:
    return [*(c for n in tree["nodes"] for c in n["checks"]), *tree["relations"]]


def _title(tree: Mapping[str, Any]) -> str:
    return f"{tree['function'] or 'a frame'}, graph {tree['graph']}: {count(len(_checks(tree)), 'check')} on {count(len(tree['nodes']), 'value')}"


def _point_title(point: Mapping[str, Any]) -> str:
    if not point["number"]:
        return f"The limit is reached: Python runs {point['function']} from here on"
    return f"Compile {point['number']} of {point['function']}"


def _timeline(data: Mapping[str, Any], ids: Mapping[tuple[int, str], str]) -> str:
    """Each recompile as a table: what was expected beside what came, for each entry that did not fit."""
    points: list[Mapping[str, Any]] = list(data["recompiles"])
    if not points:
        return f"{heading(3, 'Recompiles')}<p>None: every call fitted what was compiled for an earlier one.</p>"
    parts: list[str] = []
    for n, point in enumerate(points):
        rows: list[list[str]] = []
        for failure in point["failures"]:
            target = ids.get((failure["tree"], failure["check"]))
            source = f"<code>{esc(failure['source'])}</code>"
            place = esc(data["lines"][failure["line"]]) if failure["line"] >= 0 else ""
            number = data["trees"][failure["tree"]]["graph"] if target else -1
            link = f'<a class="clab-guards-to" href="#{target}">graph {number}</a>' if target else ""
            rows.append([source, f"<del>{esc(str(failure['expected']))}</del>", f"<ins>{esc(str(failure['got']))}</ins>", place, link])
        advice = "".join(f"<li>{esc(a)}</li>" for a in dict.fromkeys(str(f["advice"]) for f in point["failures"]) if a)
        called = f"<p>called at <code>{esc(point['caller'])}</code></p>" if point["caller"] else ""
        grid = table(
            _point_title(point), ("what was looked at", "the compiled code expects", "this call brought", "the line that assumed it", "in the tree"), rows
        )
        do = f'<div class="clab-guards-do"><strong>What would have avoided it</strong><ul>{advice}</ul></div>' if advice else ""
        parts.append(f'<li id="{_anchor(ids, n)}">{heading(4, esc(_point_title(point)))}{called}{grid}{do}</li>')
    return f'{heading(3, f"Recompiles <small>{len(points)}</small>")}<ol class="clab-guards-points">{"".join(parts)}</ol>'


def _anchor(ids: Mapping[tuple[int, str], str], n: int) -> str:
    root = next(iter(ids.values()), "clab").rsplit("-", 2)[0]
    return f"{root}-point{n}"


def _tree(tree: Mapping[str, Any], number: int, data: Mapping[str, Any], ids: Mapping[tuple[int, str], str], ident: str) -> str:
    nodes: list[Mapping[str, Any]] = list(tree["nodes"])
    children: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        children.setdefault(node["up"], []).append(k)

    def branch(k: int) -> str:
        node = nodes[k]
        inner = "".join(_leaf(c, data, ids[number, c["id"]]) for c in node["checks"]) + "".join(map(branch, children.get(k, [])))
        return f"<li><span><code>{esc(node['label'])}</code></span>{f'<ul>{inner}</ul>' if inner else ''}</li>"

    branches = "".join(map(branch, children.get(-1, [])))
    between = "".join(_leaf(c, data, ids[number, c["id"]]) for c in tree["relations"])
    together = f"<li><span>between values, and of torch itself</span><ul>{between}</ul></li>" if between else ""
    whole = tree["nanoseconds"]
    cost = f"the whole check takes {whole:,.0f} ns" if whole is not None else "costs not measured: view('guards', costs=True) of a live trace"
    title = heading(3, f"{esc(_title(tree))} <small>{cost}</small>")
    label = esc(_title(tree))
    return (
        f'<section class="clab-guards-one" data-tree="{number}" aria-label="{label}">{title}<div class="clab-guards-try"></div>'
        f'<ul class="clab-guards-tree" id="{ident}-tree{number}" aria-label="{label}">{branches}{together}</ul></section>'
    )


def _leaf(check: Check, data: Mapping[str, Any], ident: str) -> str:
    why = f"<small>{esc(check['why'])}</small>" if check["why"] else ""
    line = f"<small>{esc(data['lines'][check['line']])}</small>" if check["line"] >= 0 else ""
    cost = f'<small class="clab-guards-ns">{check["nanoseconds"]:,.0f} ns</small>' if check["nanoseconds"] is not None else ""
    missed = "".join(f"<b>failed: {esc(_point_title(data['recompiles'][n]))}</b>" for n in check["missed"])
    css = ' class="clab-guards-missed"' if missed else ""
    return f'<li id="{ident}"{css}><span>{esc(check["text"])} {cost}{missed}{why}{line}</span></li>'
