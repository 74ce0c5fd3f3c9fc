"""Where the boxes of a graph stand: Graphviz's dot where it is there and quick, layers of our own otherwise.

In: a ``Shape`` (what is visible of a tree of groups, and the edges between) and the size of each box. Out: a ``Picture``: a box for every visible
node and group, a path for every edge, and how it was laid out, with one sentence where that was not dot.
Always holds: boxes do not overlap, but for a group and what stands in it; dot is ended after ``PATIENCE`` seconds. Of the layers: an edge from an
earlier to a later member goes down; the same graph gives the same picture. ``graph_view.js`` has the same layers, for what is unfolded in the browser.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 1.5  # seconds for dot
TANGLED = 700  # edges: above, dot is not asked, it would take longer
ROW = 14  # boxes beside each other: a wider layer becomes several
DUMMIES = 800  # bends of long edges, above which edges go straight
ACROSS, DOWN, PAD, BAR = 14, 34, 10, 22

Pair = tuple[int, int]
Box = tuple[float, float, float, float]
Point = tuple[float, float]


@dataclass
class Shape:
    """Keys: node k is k, group g is ``count`` + g, in the order of the tree; the root is ``count``.

    members: of each group, keys; parent: of each key; unfolded: groups whose members are shown, the root always."""

    count: int
    members: list[list[int]] = field(default_factory=list[list[int]])
    groups: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    parent: dict[int, int] = field(default_factory=dict[int, int])
    unfolded: set[int] = field(default_factory=set[int])

    @staticmethod
    def of(tree: Mapping[str, Any], count: int) -> Shape:
        shape = Shape(count)
        shape._add(tree, -1)
        shape.unfolded.add(count)
        return shape

    def _add(self, tree: Mapping[str, Any], parent: int) -> int:
        key = self.count + len(self.groups)
        self.groups.append(tree)
        self.parent[key] = parent
        own: list[int] = []
        self.members.append(own)
        for member in tree["members"]:
            if isinstance(member, int):
                self.parent[member] = key
                own.append(member)
            else:
                own.append(self._add(member, key))
        return key

    def nodes_in(self, key: int) -> int:
        return 1 if key < self.count else sum(map(self.nodes_in, self.members[key - self.count]))

    def chain(self, key: int) -> list[int]:
        """The groups around ``key``, outermost first, and itself."""
        found = [key]
        while (key := self.parent[key]) >= 0:
            found.append(key)
        return found[::-1]

    def seen(self, node: int) -> int:
        """The box that stands for a node: itself, or the outermost folded group around it."""
        return next((k for k in self.chain(node) if k not in self.unfolded), node)

    def visible(self) -> list[int]:
        """Nodes and folded groups, in order."""
        found: list[int] = []
        queue = [self.count]
        while queue:
            key = queue.pop()
            if key in self.unfolded:
                queue += reversed(self.members[key - self.count])
            else:
                found.append(key)
        return found

    def edges(self, reads: Sequence[Sequence[int]]) -> list[Pair]:
        """Between visible boxes, each once."""
        seen = [self.seen(k) for k in range(self.count)]
        return list(dict.fromkeys((seen[i], seen[k]) for k, inputs in enumerate(reads) for i in inputs if seen[i] != seen[k]))

    def level(self, a: int, b: int) -> Pair:
        """The two members of one group that ``a`` and ``b`` stand in."""
        up, down = self.chain(a), self.chain(b)
        at = next(k for k, (x, y) in enumerate(zip(up, down, strict=False)) if x != y)
        return up[at], down[at]


def first_unfolded(shape: Shape, limit: int, start: int) -> bool:
    """Unfolds all where that shows up to ``limit`` nodes; else modules from the outside while there are no more than ``start`` boxes. True if all."""
    if shape.count <= limit:
        shape.unfolded |= {shape.count + g for g in range(len(shape.groups))}
        return True
    queue, boxes = list(shape.members[0]), len(shape.members[0])
    for key in queue:
        if key >= shape.count and shape.groups[key - shape.count]["kind"] == "module":
            inner = shape.members[key - shape.count]
            if boxes + len(inner) - 1 <= start:
                boxes += len(inner) - 1
                shape.unfolded.add(key)
                queue += inner
    return False


@dataclass
class Picture:
    """boxes: key -> (x, y, width, height), groups before what is in them; paths: an SVG path for each edge; ``why``: why not dot, or ""."""

    boxes: dict[int, Box]
    paths: dict[Pair, str]
    width: float
    height: float
    how: str = "layers"
    why: str = ""


def picture(shape: Shape, reads: Sequence[Sequence[int]], sizes: Mapping[int, tuple[float, float]]) -> Picture:
    """By dot, or by layers with the sentence that says why."""
    edges = shape.edges(reads)
    program = shutil.which("dot")
    if program is None:
        why = "Laid out in simple layers, because Graphviz is not installed: install graphviz (apt, brew, conda) for fewer crossings."
    elif len(edges) > TANGLED:
        why = f"Laid out in simple layers: {len(edges):,} edges are too many for Graphviz."
    else:
        drawn = _dot(program, shape, edges, sizes)
        if drawn is not None:
            return drawn
        why = f"Laid out in simple layers: Graphviz was not done after {PATIENCE} s, and was ended."
    made = layered(shape, edges, sizes)
    made.why = why
    return made


# ------------------------------------------------------------------------------------------------------------------ layers


Sizes = Mapping[int, tuple[float, float]]
Level = tuple[dict[int, Box], dict[Pair, list[Point]], float, float]  # (centre, top, top and bottom of its layer) of each, bends, width, height


def layered(shape: Shape, edges: Iterable[Pair], sizes: Sizes) -> Picture:
    """Each unfolded group is laid out by itself and stands as one box among its neighbours."""
    edges = list(edges)
    at_level: dict[int, dict[Pair, None]] = {}
    levels = {(a, b): shape.level(a, b) for a, b in edges}
    for a, b in levels.values():
        at_level.setdefault(shape.parent[a], {})[a, b] = None
    inner: dict[int, Level] = {}
    grown = dict(sizes)

    def place(group: int) -> None:
        for member in shape.members[group - shape.count]:
            if member in shape.unfolded:
                place(member)
        inner[group] = level = _layers(shape.members[group - shape.count], list(at_level.get(group, ())), grown)
        grown[group] = (max(level[2] + 2 * PAD, sizes.get(group, (0, 0))[0]), level[3] + 2 * PAD + BAR)

    place(shape.count)
    boxes: dict[int, Box] = {}
    layer: dict[int, Point] = {}  # top and bottom of the layer that a box stands in
    bends: dict[Pair, list[Point]] = {}
    queue: list[tuple[int, float, float]] = [(shape.count, PAD, PAD)]
    while queue:
        group, x, y = queue.pop(0)
        centres, bent, width, _ = inner[group]
        x += (grown[group][0] - width) / 2 - PAD if group != shape.count else 0
        for member, (cx, top, ceiling, floor) in centres.items():
            w, h = grown[member]
            layer[member] = (y + ceiling, y + floor)
            boxes[member] = (x + cx - w / 2, y + top, w, h)
            if member in shape.unfolded:
                queue.append((member, x + cx - w / 2 + PAD, y + top + PAD + BAR))
        bends |= {pair: [(x + bx, y + by) for bx, by in points] for pair, points in bent.items()}
    paths = {(a, b): curve(_route(shape, boxes, layer, (a, b), levels[a, b], bends.get(levels[a, b], []))) for a, b in edges}
    return Picture(boxes, paths, inner[shape.count][2] + 2 * PAD, inner[shape.count][3] + 2 * PAD)


def _layers(members: Sequence[int], edges: Sequence[Pair], sizes: Sizes) -> Level:
    """Longest path gives layers, neighbours' mean the order in them, and then the place."""
    rank = {m: k for k, m in enumerate(members)}
    down = [(rank[a], rank[b]) for a, b in edges if rank[a] < rank[b]]
    rows = _rows(len(members), down)
    layer = {k: n for n, row in enumerate(rows) for k in row}
    bends: dict[Pair, list[int]] = {}
    total = sum(layer[b] - layer[a] - 1 for a, b in down)
    width = [sizes[m][0] for m in members]
    above: list[list[int]] = [[] for _ in members]
    below: list[list[int]] = [[] for _ in members]
    for a, b in down:
        chain = [a]
        if total <= DUMMIES:
            for n in range(layer[a] + 1, layer[b]):
                rows[n].append(len(width))
                chain.append(len(width))
                width.append(4.0)
                above.append([])
                below.append([])
        chain.append(b)
        bends[a, b] = chain[1:-1]
        for u, v in itertools.pairwise(chain):
            above[v].append(u)
            below[u].append(v)
    _sort(rows, above, below)
    centre = _columns(rows, above, below, width)
    left = min((centre[k] - width[k] / 2 for row in rows for k in row), default=0.0)
    right = max((centre[k] + width[k] / 2 for row in rows for k in row), default=0.0)
    tops, heights, y = list[float](), list[float](), 0.0
    for row in rows:
        heights.append(max((sizes[members[k]][1] for k in row if k < len(members)), default=0.0))
        tops.append(y)
        y += heights[-1] + DOWN
    span = lambda n: (tops[n], tops[n] + heights[n])
    centres = {m: (centre[k] - left, tops[layer[k]] + (heights[layer[k]] - sizes[m][1]) / 2, *span(layer[k])) for k, m in enumerate(members)}
    place = {k: n for n, row in enumerate(rows) for k in row}
    points = {
        (members[a], members[b]): [p for k in chain for p in ((centre[k] - left, tops[place[k]]), (centre[k] - left, tops[place[k]] + heights[place[k]]))]
        for (a, b), chain in bends.items()
    }
    return centres, points, right - left, max(y - DOWN, 0.0)


def _rows(count: int, down: Sequence[Pair]) -> list[list[int]]:
    """Layers by longest path; what reads nothing stands right above its first reader; a layer wider than ``ROW`` becomes several."""
    layer = [0] * count
    for a, b in sorted(down, key=lambda e: e[1]):
        layer[b] = max(layer[b], layer[a] + 1)
    read = {b for _, b in down}
    first: dict[int, int] = {}
    for a, b in down:
        first[a] = min(first.get(a, layer[b]), layer[b])
    for k, n in first.items():
        if k not in read:
            layer[k] = n - 1
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for k, n in enumerate(layer):
        rows[n].append(k)
    return [row[k : k + ROW] for row in rows for k in range(0, len(row), ROW)]


def _sort(rows: list[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> None:
    """Four sweeps; in each a box goes to the mean of the places of its neighbours in the layer before."""
    place = {k: float(i) for row in rows for i, k in enumerate(row)}
    for sweep in range(4):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            mean = {k: sum(place[n] for n in near[k]) / len(near[k]) if near[k] else place[k] for k in row}
            row.sort(key=lambda k: (mean[k], place[k], k))
            for i, k in enumerate(row):
                place[k] = float(i)


def _columns(rows: Sequence[Sequence[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]], width: Sequence[float]) -> list[float]:
    """Centres: near those of the neighbours, in the order of the row, ``ACROSS`` apart."""
    centre = [0.0] * len(width)
    for row in rows:
        x = 0.0
        for k in row:
            centre[k] = x + width[k] / 2
            x += width[k] + ACROSS
        for k in row:
            centre[k] -= (x - ACROSS) / 2
    for sweep in range(6):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            want = [sum(centre[n] for n in near[k]) / len(near[k]) if near[k] else centre[k] for k in row]
            gap = [(width[a] + width[b]) / 2 + ACROSS for a, b in itertools.pairwise(row)]
            right, left = list(want), list(want)
            for i in range(1, len(row)):
                right[i] = max(right[i], right[i - 1] + gap[i - 1])
            for i in range(len(row) - 2, -1, -1):
                left[i] = min(left[i], left[i + 1] - gap[i])
            for i, k in enumerate(row):
                centre[k] = (right[i] + left[i]) / 2
    return centre


def _route(shape: Shape, boxes: Mapping[int, Box], layer: Mapping[int, Point], edge: Pair, level: Pair, bends: Sequence[Point]) -> list[Point]:
    """From below the first box to the top of the second. An edge turns between layers only, and passes what else a group holds at its margin: the
    right one on the way out, the left one on the way in."""
    (a, b), (out, into) = edge, level
    x, y, w, h = boxes[a]
    points = [(x := x + w / 2, y + h)]
    at = a
    while at != out:
        at, floor = shape.parent[at], layer[at][1]
        gx, gy, gw, gh = boxes[at]
        if floor < gy + gh - PAD - 1:
            points += [(x, floor), (x := gx + gw - PAD / 2, floor + DOWN * 0.8)]
        points.append((x, gy + gh))
    points.append((x, layer[out][1]))
    x, y, w, _ = boxes[b]
    tail = [(x := x + w / 2, y)]
    at = b
    while at != into:
        at, ceiling = shape.parent[at], layer[at][0]
        gx, gy, _, _ = boxes[at]
        if ceiling > gy + PAD + BAR + 1:
            tail += [(x, ceiling), (x := gx + PAD / 2, ceiling - DOWN * 0.8)]
        tail.append((x, gy))
    tail.append((x, layer[into][0]))
    return [*points, *bends, *reversed(tail)]


def curve(points: Sequence[Point]) -> str:
    """An SVG path through the points that leaves and reaches each of them vertically."""
    (x, y), *rest = points
    text = f"M{x:.0f} {y:.0f}"
    for nx, ny in rest:
        if (nx, ny) == (x, y):
            continue
        middle = (y + ny) / 2
        text += f"V{ny:.0f}" if abs(nx - x) < 1 else f"C{x:.0f} {middle:.0f} {nx:.0f} {middle:.0f} {nx:.0f} {ny:.0f}"
        x, y = nx, ny
    return text


# --------------------------------------------------------------------------------------------------------------------- dot


def _dot(program: str, shape: Shape, edges: Sequence[Pair], sizes: Sizes) -> Picture | None:
    """None where dot takes longer than ``PATIENCE`` or fails."""
    text = dot_text(shape, edges, sizes)
    try:
        done = subprocess.run([program, "-Tjson"], input=text, capture_output=True, text=True, check=True, timeout=PATIENCE)
        found = json.loads(done.stdout)
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
    _, _, width, height = map(float, found["bb"].split(","))
    boxes: dict[int, Box] = {}
    for one in found.get("objects", ()):
        if "bb" in one:
            x, y, right, top = map(float, one["bb"].split(","))
            boxes[int(one["name"].removeprefix("cluster_"))] = (x, height - top, right - x, top - y)
        elif "pos" in one:
            x, y = map(float, one["pos"].split(","))
            w, h = sizes[int(one["name"])]
            boxes[int(one["name"])] = (x - w / 2, height - y - h / 2, w, h)
    name = {one["_gvid"]: int(one["name"].removeprefix("cluster_")) for one in found.get("objects", ())}
    paths = {(name[e["tail"]], name[e["head"]]): _spline(e["pos"], height) for e in found.get("edges", ())}
    order = {k: i for i, k in enumerate(sorted(boxes, key=lambda k: (len(shape.chain(k)), k)))}
    return Picture(dict(sorted(boxes.items(), key=lambda b: order[b[0]])), {e: paths[e] for e in edges}, width, height, "dot")


def dot_text(shape: Shape, edges: Sequence[Pair], sizes: Sizes) -> str:
    lines = ["digraph g {", "graph [ranksep=0.4 nodesep=0.18]", 'node [shape=box fixedsize=true label=""]', "edge [arrowhead=none tailport=s headport=n]"]

    def inside(group: int) -> None:
        for member in shape.members[group - shape.count]:
            if member in shape.unfolded:
                label = "X" * max(int(sizes[member][0] / 9), 1)
                lines.append(f'subgraph cluster_{member} {{ label="{label}" margin=10')
                inside(member)
                lines.append("}")
            else:
                w, h = sizes[member]
                lines.append(f"{member} [width={w / 72:.3f} height={h / 72:.3f}]")

    inside(shape.count)
    return "\n".join([*lines, *(f"{a} -> {b}" for a, b in edges), "}"])


def _spline(pos: str, height: float) -> str:
    """Graphviz's B-spline as an SVG path; it counts from below."""
    points = [tuple(map(float, p.split(","))) for p in pos.split() if not p.startswith(("s,", "e,"))]
    flipped = [f"{x:.0f} {height - y:.0f}" for x, y in points]
    return f"M{flipped[0]}C{' '.join(flipped[1:])}"
