"""The min-cut view: the flow network of a partition, its augmenting paths step by step, the cut and what it saves, and what a memory budget would change.

In: the plain data of ``compiler_lab.observe.cut_data``. Out: an HTML fragment that is complete without script: for each program the network as it stands at
the end, with flow, capacities and the cut; what is saved and computed again; the curve of the budget; tables that say the same. With script
(``cut_view.js``) paths go step by step, the slider goes over the budget's stops, and in a widget Python cuts again.
Always holds: figures are the data's own; a box is one node, its upper half what goes in, its lower what comes out, and between them what keeping it counts;
the sink stands for all of the backward; no more than ``MOST`` nodes are drawn, those around one saved value, and the rest is counted; the script draws the
neighbourhood of each path, and of any node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import words
from .cut_chart import curve, nearest
from .frame import count, esc, frame, heading, ident_of, more, nbytes, table
from .graph_layout import Picture, Shape, picture

Program = Mapping[str, Any]
Network = Mapping[str, Any]
MOST, SOME, READERS, ENDS = 150, 90, 8, 48  # nodes drawn at most; around one; neighbours of one that is read by many; lines to source and sink at most
HIGH, CHARS = 46, 22
TOLD = 40  # paths of the text
WHY = (
    "The backward needs values of the forward: each is kept in memory, or computed again from something that is kept. As a network: water flows from the "
    "source (what is at hand only in the forward) to the sink (the backward). Cutting a node between its two halves means keeping its value, and costs its "
    "bytes; reading costs nothing and is never cut. The cheapest set of cuts that stops all flow is the cheapest set of values to keep, and it costs exactly "
    "as much as the most that can flow (lab 12)."
)
UNITS = {
    "bytes": "Keeping a value counts its bytes; an output counts nothing and an input that is not overwritten half, because they are in memory anyway.",
    "torch": "Costs as PyTorch guesses them: bytes, times 1.1 for each step to the backward, doubled where nothing writes the value to memory anyway.",
}
NETLESS = {
    "torch": "torch.compile's log holds no network: its partitioner solves one and throws it away. What it saved is known by what its backward takes.",
    "default": "The default partitioner asks no network: it keeps whatever forward value the backward reads.",
    "forward": "This graph has no backward, so nothing is kept for one.",
}
UNKEPT = {
    "view": "a view: made again for nothing", "constant": "a constant: made again for nothing", "several": "several results: each is kept by itself",
    "must_recompute": "must be computed again",
}  # fmt: skip
FATES = {"saved": "saved", "recomputed": "computed again", "": ""}
SAVED_HEAD = ["value", "bytes", "counts", "why", "your line"]
NODE_HEAD = ["node", "what", "bytes", "keeping it counts", "flow through it", "from the source", "read by", "side of the cut", "fate", "your line"]
PATH_HEAD = ["path", "pushes", "flow so far", "through", "full after it"]


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.cut_data``."""
    programs: list[Program] = list(data["programs"])
    ident = ident_of("cut", [data["title"], *(f"{p['name']} {p['saved']} {p['network'] and p['network']['value']}" for p in programs)])
    options = "".join(f'<option value="{k}">{esc(p["name"])}</option>' for k, p in enumerate(programs))
    tools = f'<div class="clab-c-tools"><label>Program <select class="clab-c-program">{options}</select></label></div>' if len(programs) > 1 else ""
    head = "; ".join(f"{p['name']}: {count(len(p['saved']), 'value')} saved, {nbytes(_bytes(p))}" for p in programs)
    body = f"<p>{esc(WHY)}</p>{tools}" + "".join(section(p, k) for k, p in enumerate(programs))
    return frame("cut", ident, data["title"], head, body, {"programs": [packed(p) for p in programs], "words": _words(programs)})


def text(data: Mapping[str, Any]) -> str:
    """For each program: its sums, the paths, the cut with what it saves, and the stops of the budget."""
    lines = [str(data["title"])]
    for p in data["programs"]:
        lines += ["", f"== {p['name']}: {_sums(p)}"]
        net = p["network"]
        if net is not None:
            lines += [f"  {_unit(net)}"]
            told = steps(net)
            lines += [f"  path {i}: {s['amount']:,}, {s['so_far']:,} so far: {s['way']}" for i, s in enumerate(told[:TOLD], 1)]
            lines += [f"  and {count(len(told) - TOLD, 'path')} more, which the page has"] if len(told) > TOLD else []
            lines += [f"  {_left_out(net)}"] if net["left_out"][0] else []
        lines += [f"  saved: {v['name']}: {_size(v)}: {_reason(v)}" for v in p["saved"]]
        lines += [f"  computed again: {line}" for line in _again(p)]
        lines += [
            f"  budget {s['budget']:.4g}: {s['counted']:,} bytes counted, {s['bytes']:,} in memory, {s['operations']:,} operations more" for s in p["stops"]
        ]
    return "\n".join(lines)


def section(p: Program, k: int, around: str = "") -> str:
    """One program. ``around``: the node whose neighbourhood is drawn where not all can be."""
    net = p["network"]
    start = f'<section class="clab-c-one" data-program="{k}">{heading(3, esc(p["name"]))}<p class="clab-c-sums">{esc(_sums(p))}</p>'
    if net is None:
        return f"{start}<p>{esc(NETLESS[p['why']])}</p>{_fates(p)}</section>"
    tools = (
        '<div class="clab-c-tools"><button type="button" class="clab-c-first">First</button><button type="button" class="clab-c-prev">Back</button>'
        f'<input type="range" class="clab-c-at" min="0" max="{len(net["paths"]) + 1}" value="{len(net["paths"]) + 1}" aria-label="Augmenting path">'
        '<button type="button" class="clab-c-next">Next</button><button type="button" class="clab-c-last">The cut</button></div><div class="clab-c-now"></div>'
    )
    wishes = (
        '<div class="clab-c-wish"><p class="clab-c-picked">Choose a node in the picture or in the list.</p>'
        f'<div class="clab-c-tools"><label>Node <select class="clab-c-node"><option value="">none</option>{_options(net)}</select></label>'
        '<button type="button" class="clab-c-keep">Must save</button><button type="button" class="clab-c-again">Must recompute</button>'
        '<button type="button" class="clab-c-free">No wish</button><button type="button" class="clab-c-around">Draw around it</button></div>'
        '<p class="clab-c-asked"></p><pre class="clab-c-code"></pre><button type="button" class="clab-c-copy">Copy this code</button></div>'
    )
    own = nearest(p["stops"], net["budget"]) if p["stops"] else 0
    slider = (
        f'<div class="clab-c-tools"><label>Memory budget <input type="range" class="clab-c-budget" min="0" max="{len(p["stops"]) - 1}" '
        f'value="{len(p["stops"]) - 1 - own}"></label><output class="clab-c-said"></output></div>'
        if len(p["stops"]) > 1 else ""
    )  # fmt: skip
    drawn, notes = _svg(net, around)
    return (
        f"{start}<p><small>{esc(_unit(net))}</small></p>{tools}{''.join(map(_note, notes))}{drawn}{_legend()}{wishes}"
        f"{_fates(p)}{heading(4, 'Bytes kept against work done again')}{slider}{curve(p['stops'], [n['name'] for n in net['nodes']], _stops_said(net))}"
        f"{_tables(net)}</section>"
    )


# ------------------------------------------------------------------------------------------------------------------- words


def _bytes(p: Program) -> int:
    return sum(v["bytes"] or 0 for v in p["saved"])


def _sums(p: Program) -> str:
    net = p["network"]
    unknown = sum(v["bytes"] is None for v in p["saved"])
    kept = f"{count(len(p['saved']), 'value')} saved, {_bytes(p):,} bytes in memory" + (f" and {unknown} of unknown size" if unknown else "")
    kept += f"; {count(len(p['recomputed']), 'node')} computed again."
    if net is None:
        return kept
    told = f" The most that can flow is {net['value']:,}"
    if net["weights"] != [1, 0]:
        return f"{kept}{told}, and that is the capacity of the cut: bytes kept and work done again, weighed together."
    return f"{kept}{told}: saved bytes as counted = capacity of the cut = {net['value']:,}."


def _unit(net: Network) -> str:
    by, work = net["weights"]
    if [by, work] == [1, 0]:
        return UNITS.get(net["cost_model"], "")
    return (
        f"This plan has a memory budget of {net['budget']:.4g}, so capacities are not bytes: a byte kept weighs {by:,}, an operation done again "
        f"{work:,}, and an edge from the source that may be cut is the price of computing the node again. {UNITS.get(net['cost_model'], '')}"
    )


def _stops_said(net: Network) -> str:
    return (
        "Budget 1 keeps what the minimum cut keeps; 0 keeps the fewest bytes there are. Each point is the least work for its bytes; an operation is one of "
        f"floating point in a product, an element touched elsewhere. {UNITS.get(net['cost_model'], '')}"
    )


def _left_out(net: Network) -> str:
    paths, flow = net["left_out"]
    return f"{count(paths, 'path')} more, which push {flow:,} together, are left out."


def _size(v: Mapping[str, Any]) -> str:
    return "size unknown" if v["bytes"] is None else f"{v['bytes']:,} bytes"


def _again(p: Program) -> list[str]:
    """What is computed again, by reason."""
    found: dict[str, list[str]] = {}
    for v in p["recomputed"]:
        found.setdefault(_reason(v), []).append(v["name"])
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _reason(v: Mapping[str, Any]) -> str:
    return words.sentence("save", v["reason"]) or str(v["reason"])


def _words(programs: Iterable[Program]) -> dict[str, str]:
    """Sentences of the bans, for the script."""
    found = dict.fromkeys(n["ban"] for p in programs if p["network"] for n in p["network"]["nodes"] if n["ban"])
    return {r: words.sentence("ban", r) or r for r in found} | UNKEPT


def amount(value: float | None) -> str:
    """A capacity as a label: exact while it is short; what may not be cut is infinite."""
    return "∞" if value is None else f"{value:,}" if value < 1e7 else f"{value:.3g}"


def steps(net: Network) -> list[dict[str, Any]]:
    """For each path: what it pushes, the flow so far, the way in words, and the edges that are full after it and were not before."""
    edges: list[list[Any]] = net["edges"]
    number = {(e[0], e[1]): i for i, e in enumerate(edges)}
    flow = [0] * len(edges)
    found: list[dict[str, Any]] = []
    total = 0
    for pushed, *inner in net["paths"]:
        way = [0, *inner, 1]
        full: list[str] = []
        for a, b in itertools.pairwise(way):
            if (a, b) in number:
                i = number[a, b]
                flow[i] += pushed
                full += [_edge(net, i)] if flow[i] == edges[i][2] else []
            else:
                flow[number[b, a]] -= pushed
        total += pushed
        found.append({"amount": pushed, "so_far": total, "way": _way(net, way, number), "full": full})
    return found


def _way(net: Network, way: Sequence[int], number: Mapping[tuple[int, int], int]) -> str:
    """Names in order, a node once where the path goes through both its halves; an edge that is taken back says so."""
    said = ["source"]
    for a, b in itertools.pairwise(way):
        back = "" if (a, b) in number else "(takes back) "
        if b == 1:
            said.append("sink")
        elif back or a < 2 or a // 2 != b // 2:
            said.append(back + net["nodes"][b // 2 - 1]["name"])
    return " → ".join(said)


def _edge(net: Network, i: int) -> str:
    tail, head = net["edges"][i][:2]
    return f"computing {net['nodes'][head // 2 - 1]['name']} again" if tail == 0 else f"keeping {net['nodes'][tail // 2 - 1]['name']}"


# ----------------------------------------------------------------------------------------------------------------- picture


def _inner(net: Network) -> dict[int, int]:
    """node -> its own edge, between its halves; a node of the backward has none, it hangs on the sink."""
    return {e[0] // 2 - 1: i for i, e in enumerate(net["edges"]) if e[0] > 1 and e[1] == e[0] + 1 and e[0] % 2 == 0}


def _drawn(net: Network, around: str) -> list[int]:
    """Every node that needs no tangent, or those around one of them."""
    own = _inner(net)
    if len(own) <= MOST:
        return list(own)
    near: dict[int, list[int]] = {k: [] for k in own}
    for tail, head, *_ in net["edges"]:
        a, b = tail // 2 - 1, head // 2 - 1
        if tail > 1 and head > 1 and a != b and a in near and b in near:
            near[a].append(b)
            near[b].append(a)
    start = next(k for k in own if net["nodes"][k]["name"] == _middle(net, around))
    found = {start: None}
    queue = [start]
    for k in queue:
        new = [n for n in near[k][:READERS] if n not in found][: SOME - len(found)]
        found |= dict.fromkeys(new)
        queue += new
    return sorted(found)


def _middle(net: Network, around: str) -> str:
    """The node that is asked for, or the largest value that is computed and saved."""
    known = {net["nodes"][k]["name"]: net["nodes"][k] for k in _inner(net)}
    computed = [n for n in known.values() if n["fate"] == "saved" and not n["input"]] or list(known.values())
    return around if around in known else str(max(computed, key=lambda n: n["bytes"])["name"])


def _pairs(net: Network, drawn: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """Lines between boxes -> the edges that each stands for. Boxes: 0 the source, 1... the drawn nodes, and the sink after them."""
    box = {k: i for i, k in enumerate(drawn, 1)}
    sink, own = len(drawn) + 1, _inner(net)
    found: dict[tuple[int, int], list[int]] = {}
    for i, (tail, head, *_) in enumerate(net["edges"]):
        a = 0 if tail == 0 else box.get(tail // 2 - 1)
        b = sink if head == 1 or head // 2 - 1 not in own else box.get(head // 2 - 1)
        if a is not None and b is not None and a != b:
            found.setdefault((a, b), []).append(i)
    return found


def _svg(net: Network, around: str) -> tuple[str, list[str]]:
    """The network as it stands after the last path, and what is to be said about the drawing."""
    drawn = _drawn(net, around)
    sink, own = len(drawn) + 1, _inner(net)
    pairs = _pairs(net, drawn)
    ends = [p for p in pairs if p[0] == 0 or p[1] == sink]
    lines = {p: edges for p, edges in pairs.items() if len(ends) <= ENDS or p not in ends}
    touch: dict[int, list[str]] = {}
    for a, b in ends if len(lines) < len(pairs) else ():
        touch.setdefault(b if a == 0 else a, []).append("source" if a == 0 else "sink")
    shown = range(1, sink) if touch else range(sink + 1)
    shape = Shape.of({"members": list(shown), "kind": "root", "label": ""}, sink + 1)
    shape.parent |= dict.fromkeys({0, sink} - set(shown), shape.count)
    reads: list[list[int]] = [[] for _ in range(sink + 1)]
    for a, b in lines:
        reads[b].append(a)
    room = lambda k: len(amount(net["edges"][own[k]][2]))
    sizes = {0: (120.0, 30.0), sink: (190.0, 30.0)} | {i: (_width(len(net["nodes"][k]["name"]), room(k)), float(HIGH)) for i, k in enumerate(drawn, 1)}
    made: Picture = picture(shape, reads, sizes)
    backward = len(net["nodes"]) - len(own)
    notes = [f"The sink stands for the backward: {count(backward, 'node')} that need a tangent.", *([made.why] if made.why else [])]
    if len(drawn) < len(own):
        middle = _middle(net, around)
        near = f"those around {middle}" if around == middle else f"those around {middle}, the largest value that is computed and saved"
        notes.append(
            f"Drawn are {len(drawn)} of the {len(own):,} nodes that need no tangent, {near}. Paths through others are told in words; the table has every node."
        )
    if len(lines) < len(pairs):
        notes.append("Too many edges touch source and sink to be drawn: a box says “source” or “sink” where it has one.")
    paths = "".join(f'<path d="{made.paths[p]}" data-e="{",".join(map(str, edges))}"/>' for p, edges in lines.items())
    side = set(net["source_side"])
    cut = set(net["cut"])
    boxes = "".join(
        _end(made.boxes[i], "source" if i == 0 else f"sink: the backward ({backward})")
        if i in (0, sink) else _box(net, drawn[i - 1], own[drawn[i - 1]], made.boxes[i], side, cut, touch.get(i, ()))
        for i in shown
    )  # fmt: skip
    size = f'viewBox="0 0 {made.width:.0f} {made.height:.0f}" width="{made.width:.0f}" height="{made.height:.0f}"'
    label = f'role="group" aria-label="The flow network, {count(len(drawn), "node")}"'
    svg = f'<svg class="clab-c-svg" {size} {label}><g class="clab-c-edges">{paths}</g>{boxes}</svg>'
    return f'<div class="clab-scroll clab-c-view" tabindex="0" role="group" aria-label="Picture of the network">{svg}</div>', notes


def _note(said: str) -> str:
    """The sentence about what is drawn has a name, for the script that draws another part."""
    mark = ' class="clab-c-drawn"' if said.startswith("Drawn") else ""
    return f"<p><small{mark}>{esc(said)}</small></p>"


def _width(name: int, room: int) -> float:
    """For so many characters: of the name and the side; of flow, capacity and "full"."""
    return max(7.2 * min(name, CHARS) + 36, 6.4 * (2 * room + 8) + 28, 104.0)


def _end(box: tuple[float, float, float, float], label: str) -> str:
    x, y, w, h = box
    return (
        f'<g class="clab-c-end"><rect x="{x:.0f}" y="{y:.0f}" width="{w:.0f}" height="{h:.0f}" rx="14"/>'
        f'<text x="{x + w / 2:.0f}" y="{y + h / 2 + 4:.0f}">{esc(label)}</text></g>'
    )


def _box(net: Network, k: int, inner: int, box: tuple[float, float, float, float], side: set[int], cut: set[int], touch: Sequence[str]) -> str:
    x, y, w, h = box
    node, (_, _, capacity, flow) = net["nodes"][k], net["edges"][inner]
    name = node["name"] if len(node["name"]) <= CHARS else node["name"][: CHARS - 1] + "…"
    halves = [2 + 2 * k in side, 3 + 2 * k in side]
    crossed = inner in cut and node["fate"] == "saved"
    rects = "".join(
        f'<rect class="clab-c-half{" clab-c-s" if s else ""}" x="{x:.0f}" y="{y + h / 2 * i:.0f}" width="{w:.0f}" height="{h / 2:.0f}"/>'
        f'<text class="clab-c-side" x="{x + w - 4:.0f}" y="{y + h / 2 * i + 15:.0f}">{"S" if s else "T"}</text>'
        for i, s in enumerate(halves)
    )
    said = f"{node['name']}: {node['what']}, {node['bytes']:,} bytes; flow {amount(flow)} of {amount(capacity)}" + (", cut: saved" if crossed else "")
    ends = f'<text class="clab-c-touch" x="{x:.0f}" y="{y - 3:.0f}">{" and ".join(touch)}</text>' if touch else ""
    label = f"{amount(flow)} / {amount(capacity)}"
    state = f"{' clab-c-cut' if crossed else ''}{' clab-c-redo' if node['fate'] == 'recomputed' else ''}"
    return (
        f'<g class="clab-c-n{state}" data-k="{k}" data-i="{inner}"><title>{esc(said)}</title>{rects}<text class="clab-c-name" x="{x + 7:.0f}" '
        f'y="{y + 15:.0f}">{esc(name)}</text><text class="clab-c-cap" x="{x + 7:.0f}" y="{y + h - 7:.0f}">{label}</text>{ends}</g>'
    )


def _legend() -> str:
    return (
        '<ul class="clab-c-legend"><li>A box: above, the node as it goes in; below, as it comes out; “flow / capacity” of keeping it</li>'
        "<li>S, tinted: the source's side; T: the sink's side</li><li>Thick dashed border: cut there, so the value is saved</li>"
        "<li>Underlined name: computed again in the backward</li><li>Thick line: on the path of this step</li></ul>"
    )


def _options(net: Network) -> str:
    return "".join(f'<option value="{k}">{esc(net["nodes"][k]["name"])}</option>' for k in _inner(net))


# ------------------------------------------------------------------------------------------------------------------ tables


def _fates(p: Program) -> str:
    net = p["network"]
    counts = {} if net is None else {net["nodes"][k]["name"]: net["edges"][i][2] for k, i in _inner(net).items()}
    row = lambda v: [f"<code>{esc(v['name'])}</code>", "unknown" if v["bytes"] is None else f"{v['bytes']:,}", esc(_reason(v)), esc(_place(v["line"]))]
    saved = [[*row(v)[:2], f"{counts[v['name']]:,}" if counts.get(v["name"]) is not None else "", *row(v)[2:]] for v in p["saved"]]
    kept = more(f"Saved <small>{len(saved)}</small>", table(f"Saved by {p['name']}", SAVED_HEAD, saved), "clab-c-saved")
    again = table(f"Computed again by {p['name']}", ["value", "bytes", "why", "your line"], map(row, p["recomputed"]))
    return kept + more(f"Computed again in the backward <small>{len(p['recomputed'])}</small>", again, "clab-c-redone")


def _place(line: str) -> str:
    """File and number; the text of the line is said where one node is."""
    return line.partition(" in ")[0]


def _tables(net: Network) -> str:
    nodes, edges, own = net["nodes"], net["edges"], _inner(net)
    side = set(net["source_side"])
    readers: dict[int, list[str]] = {}
    entered: dict[int, tuple[Any, Any]] = {}
    for tail, head, capacity, flow in edges:
        if tail == 0:
            entered[head // 2 - 1] = (capacity, flow)
        elif tail % 2 and tail > 1:
            readers.setdefault(tail // 2 - 1, []).append("sink" if head == 1 else nodes[head // 2 - 1]["name"])

    def where(k: int) -> str:
        upper, lower = 2 + 2 * k in side, 3 + 2 * k in side
        return ("source" if upper else "sink") if upper == lower else "cut" if upper else "sink, then source"

    def enters(k: int) -> str:
        if k not in entered:
            return ""
        ban, (capacity, flow) = nodes[k]["ban"], entered[k]
        why = "an input" if nodes[k]["input"] else ban
        return f"{amount(flow)} of {amount(capacity)}: {why}"

    rows: list[list[str]] = []
    for k, i in own.items():
        n, (_, _, capacity, flow) = nodes[k], edges[i]
        counts = f"{capacity:,}" if capacity is not None else f"not kept: {UNKEPT.get(n['unkept'], '')}"
        read = ", ".join(readers.get(k, ()))
        rows.append([n["name"], n["what"], f"{n['bytes']:,}", counts, f"{flow:,}", enters(k), read, where(k), FATES[n["fate"]], _place(n["line"])])
    backward = " ".join(f"<code>{esc(n['name'])}</code>" for k, n in enumerate(nodes) if k not in own)
    ways = [[str(i), f"{s['amount']:,}", f"{s['so_far']:,}", esc(s["way"]), esc(", ".join(s["full"]) or "none")] for i, s in enumerate(steps(net), 1)]
    rest = f"<p>{esc(_left_out(net))}</p>" if net["left_out"][0] else ""
    cells = ([esc(cell) for cell in row] for row in rows)
    bans = dict.fromkeys(n["ban"] for n in nodes if n["ban"])
    meanings = "".join(f"<dt>{esc(b)}</dt><dd>{esc(words.sentence('ban', b) or b)}</dd>" for b in bans)
    return (
        more(f"The augmenting paths in order <small>{len(ways)}</small>", table("Augmenting paths", PATH_HEAD, ways) + rest, "clab-c-paths")
        + more(
            f"The network, node by node <small>{len(rows)}</small>",
            f'<dl class="clab-c-bans">{meanings}</dl>' + table("The network", NODE_HEAD, cells),
            "clab-c-nodes",
        )
        + more(f"The backward: what hangs on the sink <small>{len(nodes) - len(own)}</small>", f"<p>{backward or 'nothing'}</p>")
    )


# ------------------------------------------------------------------------------------------------------------------ script


def packed(p: Program, around: str = "") -> dict[str, Any]:
    """What the script needs of a program: rows in place of mappings."""
    net = p["network"]
    if net is None:
        return {"name": p["name"], "graph": p["graph"], "net": None}
    told = steps(net)
    lines = {line: i for i, line in enumerate(dict.fromkeys(n["line"] for n in net["nodes"]))}
    return {
        "name": p["name"],
        "graph": p["graph"],
        "net": {
            "nodes": [[n["name"], n["what"], n["bytes"], n["ban"], n["unkept"], lines[n["line"]], n["fate"], int(n["input"])] for n in net["nodes"]],
            "lines": list(lines),
            "edges": net["edges"],
            "paths": net["paths"],
            "told": [[f"{s['amount']:,}", f"{s['so_far']:,}", s["way"], s["full"]] for s in told],
            "rest": _left_out(net) if net["left_out"][0] else "",
            "value": f"{net['value']:,}",
            "side": net["source_side"],
            "cut": net["cut"],
            "budget": net["budget"],
            "weighed": net["weights"] != [1, 0],
        },
        "stops": [[s["budget"], s["counted"], s["bytes"], s["operations"], s["saved"], s["lifted"]] for s in p["stops"]],
        "saved": _bytes(p),
        "around": around,
    }
