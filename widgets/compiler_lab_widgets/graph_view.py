"""The graph view: a graph of a trace as boxes and arrows that fold, with search, facts of each node, and a table twin.

In: the plain data of ``compiler_lab.observe.graph_data.graph_data``. Out: an HTML fragment that is complete without script: the picture as SVG, what its
signs mean, and every node in a table. With script (``graph_view.js``) boxes fold and unfold, are found, walked along and shown with their facts.
Always holds: all text is escaped, no external address; the table has every node of the data once, in order; a graph of more than ``LIMIT`` nodes
starts folded, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import words
from .frame import count, esc, frame, heading, ident_of, more, nbytes, seconds, table
from .graph_layout import Picture, Shape, first_unfolded, picture

LIMIT = 150  # visible nodes above which a graph starts folded
START = 64  # boxes that a folded graph starts with, at most
LINES = 200  # of a graph in a terminal
MARKS = {"": "kept", "~": "changed", "+": "added", "-": "removed"}
LIBRARY = ("mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "matmul", "conv", "embedding", "attention", "extern")
VIEWS = ("view", "t", "transpose", "permute", "reshape", "expand", "unsqueeze", "squeeze", "getitem", "slice", "split", "select", "detach", "alias")
OVERLAYS = {"": "their values", "bytes": "bytes of their values", "fate": "saved or recomputed", "time": "time"}
EXPLANATION = (
    "Each box is a node; an arrow, always from above to below, says which values it reads. Modules and equal layers fold into one box. "
    "Labs 01 and 02 work on such graphs, labs 09 and 10 on joint ones and their partition."
)

ALWAYS = ("name", "operator", "value", "bytes", "reads")  # columns of the table

Node = Mapping[str, Any]


def render(data: Mapping[str, Any]) -> str:
    """The whole view."""
    nodes: list[Node] = data["nodes"]
    ident = ident_of("graph", [data["title"], data["stage"], data["part"], data["against"], *(n["text"] for n in nodes)])
    shape = Shape.of(data["tree"], len(nodes))
    whole = first_unfolded(shape, LIMIT, START)
    drawing = picture(shape, [n["inputs"] for n in nodes], _sizes(shape, nodes))
    notes = [EXPLANATION]
    if not whole:
        seen = len(shape.visible())
        notes.append(
            f"{len(nodes):,} nodes would not be readable at once: modules and repeated blocks start folded, in {seen} boxes; unfold what you want to see."
        )
    notes += filter(None, [drawing.why, *(f"The capture stopped here: {what} This is the graph as far as it came." for what, _ in data["stopped"])])
    said = "".join(f"<p>{esc(n)}</p>" for n in notes)
    body = (
        f'<div class="clab-g"><div class="clab-g-notes">{said}</div><div class="clab-g-main">'
        f'<div class="clab-g-view" tabindex="0" role="group" aria-label="Picture of the graph">{_svg(shape, nodes, drawing, data["overlay"])}</div>'
        f'<div class="clab-g-side" role="group" aria-label="Facts" tabindex="0">{_overview(data)}</div></div>'
        f"{_legend(data)}{_table(data)}</div>"
    )
    return frame("graph", ident, data["title"], _head(data), body, _script_data(data, shape))


def text(data: Mapping[str, Any]) -> str:
    """The tree of groups with the nodes in it; of equal blocks the first. Of a difference: the nodes that changed."""
    nodes: list[Node] = data["nodes"]
    lines = [f"{data['title']}: {_head(data)}", *(f"stopped: {what} ({where})" for what, where in data["stopped"]), ""]
    if data["against"]:
        for n in nodes:
            if n["mark"]:
                lines += ([f"- {n['was']}"] if n["was"] else []) + [f"{n['mark']} {n['text']}" + (f"    {'; '.join(_reasons(n))}" if _reasons(n) else "")]
        return "\n".join(lines)
    lines += _told(data["tree"], nodes, 0)
    cut = [f"... {len(lines) - LINES} more lines"] if len(lines) > LINES else []
    return "\n".join([*lines[:LINES], *cut])


def _told(tree: Mapping[str, Any], nodes: Sequence[Node], depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    members: list[Any] = tree["members"]
    for member in members[:1] if tree["kind"] == "repeat" else members:
        if isinstance(member, int):
            lines.append(pad + nodes[member]["text"])
        else:
            lines.append(f"{pad}[{group_title(member)}]")
            lines += _told(member, nodes, depth + 1)
    return lines


def _head(data: Mapping[str, Any]) -> str:
    nodes: list[Node] = data["nodes"]
    stage = f"{data['stage']} {data['part']}".strip()
    edges = sum(len(n["inputs"]) for n in nodes)
    if data["against"]:
        counts = ", ".join(f"{data['counts'][m]:,} {word}" for m, word in MARKS.items())
        return f"graph {data['graph']}, {stage} against {data['against']}: {counts}"
    return f"graph {data['graph']} after the step {stage}: {count(len(nodes), 'node')}, {count(edges, 'edge')}"


# ----------------------------------------------------------------------------------------------------------------- the picture


def short(name: str) -> str:
    """A name that fits in a box."""
    return name if len(name) <= 24 else "…" + name[-22:]


def group_title(group: Mapping[str, Any]) -> str:
    return f"{group['label']} ×{group['times']}" if group.get("times") else str(group["label"])


def label(node: Node) -> str:
    return f"{node['mark']} {short(node['name'])}" if node["mark"] else short(node["name"])


def second(node: Node) -> str:
    value = str(node["value"])
    return value if len(value) <= 30 else value[:29] + "…"


def box_size(first: str, below: str) -> tuple[float, float]:
    """Width and height of a box with these two lines, 12 and 11 pixels high."""
    return min(max(len(first) * 7.2, len(below) * 6.3, 36) + 18, 240), 40.0 if below else 26.0


def _sizes(shape: Shape, nodes: Sequence[Node]) -> dict[int, tuple[float, float]]:
    sizes = {k: box_size(label(n), second(n)) for k, n in enumerate(nodes)}
    for g, group in enumerate(shape.groups):
        sizes[shape.count + g] = box_size("+ " + short(group_title(group)) + " ", count(shape.nodes_in(shape.count + g), "node"))
    return sizes


def kind_of(node: Node) -> str:
    """ "in", "out", "lib" (a call of a library's kernel), "view" (moves no data), or "op"."""
    if node["kind"] in ("placeholder", "get_attr"):
        return "in"
    if node["kind"] == "output":
        return "out"
    word = node["op"].split(".")[1 if node["op"].startswith("aten.") else -1].lstrip("_")
    return "lib" if any(word == w or (len(w) > 4 and w in word) for w in LIBRARY) else "view" if word in VIEWS else "op"


def _svg(shape: Shape, nodes: Sequence[Node], drawing: Picture, overlay: str) -> str:
    paths = "".join(f'<path data-e="{a} {b}" d="{d}"/>' for (a, b), d in drawing.paths.items())
    boxes = [_box(shape, nodes, key, box, overlay) for key, box in drawing.boxes.items()]
    groups = "".join(b for b, key in zip(boxes, drawing.boxes, strict=True) if key in shape.unfolded)
    leaves = "".join(b for b, key in zip(boxes, drawing.boxes, strict=True) if key not in shape.unfolded)
    w, h, boxes_said = max(drawing.width, 40), max(drawing.height, 40), f"{len(shape.visible()):,} boxes"
    return (
        f'<svg class="clab-g-svg" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}" role="group" aria-label="{boxes_said}">'
        f'<g class="clab-g-groups">{groups}</g><g class="clab-g-edges">{paths}</g><g class="clab-g-nodes">{leaves}</g></svg>'
    )


def _box(shape: Shape, nodes: Sequence[Node], key: int, box: tuple[float, float, float, float], overlay: str) -> str:
    x, y, w, h = box
    at = f'data-k="{key}" transform="translate({x:.0f} {y:.0f})" role="button" tabindex="-1"'
    if key >= shape.count:
        return _group_box(shape, key, at, w, h)
    node = nodes[key]
    css = f"clab-n clab-{kind_of(node)}" + (f" clab-mark{'~+-'.index(node['mark'])}" if node["mark"] else "")
    said = f"{MARKS[node['mark']] + ' ' if node['mark'] else ''}{node['name']}: {node['op']} {node['value']}"
    below = _overlaid(node, overlay) if overlay else second(node)
    two = f'<text class="clab-v" x="{w / 2:.0f}" y="32">{esc(below)}</text>' if below else ""
    corner = 12 if kind_of(node) in ("in", "out") else 3
    return (
        f'<g class="{css}" {at} aria-label="{esc(said)}"><rect width="{w:.0f}" height="{h:.0f}" rx="{corner}"/>'
        f'<text x="{w / 2:.0f}" y="17">{esc(label(node))}</text>{two}</g>'
    )


def _group_box(shape: Shape, key: int, at: str, w: float, h: float) -> str:
    group, inside = shape.groups[key - shape.count], count(shape.nodes_in(key), "node")
    title = group_title(group)
    if key in shape.unfolded:
        return (
            f'<g class="clab-box" {at} aria-expanded="true" aria-label="{esc(f"{title}, {inside}")}"><rect width="{w:.0f}" height="{h:.0f}" rx="5"/>'
            f'<text x="9" y="16">− {esc(short(title))}</text></g>'
        )
    stack = f'<rect class="clab-stack" x="4" y="4" width="{w:.0f}" height="{h:.0f}" rx="5"/>' if group.get("times") else ""
    return (
        f'<g class="clab-n clab-fold" {at} aria-expanded="false" aria-label="{esc(f"{title}, {inside}, folded")}">{stack}'
        f'<rect width="{w:.0f}" height="{h:.0f}" rx="5"/><text x="{w / 2:.0f}" y="17">+ {esc(short(title))}</text>'
        f'<text class="clab-v" x="{w / 2:.0f}" y="32">{inside}</text></g>'
    )


def _overlaid(node: Node, overlay: str) -> str:
    if overlay == "bytes":
        return "" if node["bytes"] is None else nbytes(node["bytes"])
    if overlay == "time":
        return "" if node["seconds"] is None else seconds(node["seconds"])
    return str(node["fate"])


# ------------------------------------------------------------------------------------------------------------- beside and below


def _overview(data: Mapping[str, Any]) -> str:
    nodes: list[Node] = data["nodes"]
    ops = Counter(n["op"] for n in nodes if n["kind"] not in ("placeholder", "output"))
    rows = [(esc(op), f"{n:,}") for op, n in ops.most_common(12)]
    rest = f"<p>and {count(len(ops) - 12, 'other operator')}</p>" if len(ops) > 12 else ""
    made = sum(n["bytes"] or 0 for n in nodes if n["kind"] not in ("placeholder", "get_attr", "output"))
    said = f"<p>Its operators make {nbytes(made)}, views counted as if they were copies.</p>"
    return f"{heading(3, 'This graph')}{said}{table('Operators', ('operator', 'times'), rows)}{rest}"


def _legend(data: Mapping[str, Any]) -> str:
    said = {
        "in": "an input: dashed and round",
        "op": "an operator",
        "lib": "a call of a library’s kernel: thick edge",
        "view": "a view, moves no data: dotted",
        "fold": "+ a folded group; another one behind it where it stands for several",
        "out": "what the graph returns: round",
    }
    if any(n["fate"] for n in data["nodes"]):
        said |= {"saved": "saved for the backward (where that is shown): thick edge", "again": "recomputed there: thick dashes"}
    said |= {f"mark{k}": f"{m} {MARKS[m]}" for k, m in enumerate("~+-")} if data["against"] else {}
    box = lambda kind: f'<g class="clab-n clab-{kind}"><rect x="2" y="2" width="26" height="12" rx="{6 if kind in ("in", "out") else 3}"/></g>'
    key = lambda kind: f'<svg class="clab-g-key" width="30" height="16" aria-hidden="true">{box(kind)}</svg>'
    rows = "".join(f"<li>{key(kind)}{esc(words)}</li>" for kind, words in said.items())
    return f'<ul class="clab-g-legend" aria-label="What the boxes mean">{rows}</ul>'


def _table(data: Mapping[str, Any]) -> str:
    """Every node, in order; columns that would be empty are left out."""
    nodes: list[Node] = data["nodes"]
    rows = [_cells(n, nodes) for n in nodes]
    shown = [c for c in (rows[0] if rows else ()) if c in ALWAYS or any(row[c] for row in rows)]
    if not data["against"]:
        shown = [c for c in shown if c not in ("mark", "why")]  # why stands with each node's facts
    listed = table("Nodes", shown, ([esc(row[c]) for c in shown] for row in rows))
    return more(f"All {count(len(nodes), 'node')} as a table", listed, "clab-sec")


def _cells(n: Node, nodes: Sequence[Node]) -> dict[str, str]:
    reads = ", ".join(nodes[i]["name"] for i in n["inputs"])
    return {
        "mark": f"{n['mark']} {MARKS[n['mark']]}",
        "name": n["name"],
        "operator": n["op"],
        "value": n["value"],
        "bytes": "" if n["bytes"] is None else f"{n['bytes']:,}",
        "reads": reads if len(reads) <= 400 else f"{len(n['inputs']):,} nodes",
        "module": n["module"],
        "your line": _where(n),
        "backward": n["fate"],
        "time": "" if n["seconds"] is None else f"{n['seconds'] * 1e6:.1f} µs",
        "why": "; ".join(_reasons(n)),
    }


def _where(node: Node) -> str:
    return f"{node['line'][0]}:{node['line'][1]}" if node["line"] else ""


def _reasons(node: Node) -> list[str]:
    return [f"{kind}, {outcome}: {words.sentence(kind, reason) or reason}" for kind, outcome, reason in node["decisions"]]


# ------------------------------------------------------------------------------------------------------------------ for the script


def _script_data(data: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """What the script needs, short: a word that many nodes have stands once, in ``words``, and they have its number."""
    nodes: list[Node] = data["nodes"]
    known: dict[str, int] = {}
    number = lambda word: known.setdefault(word, len(known))
    numbers = lambda many: [number(w) for w in many]
    line = lambda n: f"{_where(n)}: {n['line'][2]}".removesuffix(": ") if n["line"] else ""
    columns: dict[str, Any] = {
        "name": [n["name"] for n in nodes],
        "op": numbers(n["op"] for n in nodes),
        "kind": numbers(kind_of(n) for n in nodes),
        "value": numbers(n["value"] for n in nodes),
        "module": numbers(n["module"] for n in nodes),
        "line": numbers(line(n) for n in nodes),
        "fate": numbers(n["fate"] for n in nodes),
        "mark": numbers(n["mark"] for n in nodes),
        "bytes": [n["bytes"] for n in nodes],
        "reads": [n["inputs"] for n in nodes],
        "from": [", ".join(n["parents"]) for n in nodes],
        "why": [numbers(_reasons(n)) for n in nodes],
    }
    if any(n["seconds"] is not None for n in nodes):
        columns["seconds"] = [n["seconds"] for n in nodes]
    extra = {"was": {k: n["was"] for k, n in enumerate(nodes) if n["was"]}, "overlay": data["overlay"], "overlays": _overlays(nodes)}
    return {"words": list(known), **columns, "tree": _packed(data["tree"]), "unfolded": sorted(shape.unfolded), **extra}


def _packed(tree: Mapping[str, Any]) -> list[Any]:
    return [tree["label"], tree["kind"], tree.get("times", 0), [m if isinstance(m, int) else _packed(m) for m in tree["members"]]]


def _overlays(nodes: Sequence[Node]) -> dict[str, str]:
    there = {"": True, "bytes": any(n["bytes"] for n in nodes), "fate": any(n["fate"] for n in nodes), "time": any(n["seconds"] is not None for n in nodes)}
    return {k: v for k, v in OVERLAYS.items() if there[k]}
