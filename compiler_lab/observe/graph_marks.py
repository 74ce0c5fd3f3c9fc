"""Two graphs as one: which nodes were kept, changed, added and removed between them.

In: the nodes of both, as ``graph_data`` makes them, and of each node of the second the nodes of the first that it was made of. Out: one list of nodes,
each with "mark" ("" kept, "~" changed, "+" added, "-" removed) and "was", the line that a changed one had.
Nodes are one where they have one id; else a node is the one of the first graph that it was made of, if that is the only one and no other node was
made of it; inputs and the output that are left are paired in order. What a node reads is compared by the names of the first graph.
Always holds: every node of both graphs stands once (a kept or changed pair is one node); a graph and itself have no difference.
PyTorch's counterpart: none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Node = dict[str, Any]
WORD = re.compile(r"[A-Za-z_]\w*")


def merged(old: Sequence[Node], new: Sequence[Node], origins: Mapping[str, Sequence[str]]) -> tuple[list[Node], dict[str, int]]:
    """The nodes of both graphs, removed ones before what stands in their place; how many there are of each mark."""
    pairs = _pairs(old, new, origins)
    names = {new[n]["name"]: old[o]["name"] for n, o in pairs.items()}
    stays = set(pairs.values())
    renamed = lambda text: WORD.sub(lambda m: names.get(m[0], m[0]), text)
    now = {o: n for n, o in pairs.items()}
    result: list[Node] = []
    place_new, place_old = dict[int, int](), dict[int, int]()
    inputs: list[list[tuple[str, int]]] = []
    reached = 0

    def removed_before(end: int) -> None:
        nonlocal reached
        for k in range(reached, end):
            if k not in stays:
                place_old[k] = len(result)
                result.append({**old[k], "mark": "-", "was": ""})
                inputs.append([("old", i) for i in old[k]["inputs"]])
        reached = max(reached, end)

    where = {o["id"]: k for k, o in enumerate(old)}
    for n, node in enumerate(new):
        removed_before(max([pairs.get(n, -1), *(where[o] for o in origins.get(node["id"], ()) if o in where and where[o] not in stays)]) + 1)
        place_new[n] = len(result)
        mark, was = "+", ""
        if n in pairs:
            before = old[pairs[n]]
            mark, was = ("", "") if before["text"] == renamed(node["text"]) else ("~", before["text"])
        result.append({**node, "mark": mark, "was": was})
        inputs.append([("new", i) for i in node["inputs"]])
    removed_before(len(old))
    place = lambda kind, i: place_new[i] if kind == "new" else place_new[now[i]] if i in now else place_old[i]
    for node, read in zip(result, inputs, strict=True):
        node["inputs"] = [place(kind, i) for kind, i in read]
    counts = Counter(n["mark"] for n in result)
    return result, {m: counts[m] for m in ("", "~", "+", "-")}


def _pairs(old: Sequence[Node], new: Sequence[Node], origins: Mapping[str, Sequence[str]]) -> dict[int, int]:
    """Place in ``new`` -> place of the same node in ``old``."""
    where = {o["id"]: k for k, o in enumerate(old)}
    same = {n: where[node["id"]] for n, node in enumerate(new) if node["id"] in where and old[where[node["id"]]]["kind"] == node["kind"]}
    taken = set(same.values())
    free = {o["id"]: k for k, o in enumerate(old) if k not in taken}
    of = {n: [free[i] for i in origins.get(node["id"], ()) if i in free] for n, node in enumerate(new) if n not in same}
    asked = Counter(k for ks in of.values() for k in ks)
    same |= {n: ks[0] for n, ks in of.items() if len(ks) == 1 and asked[ks[0]] == 1 and old[ks[0]]["kind"] == new[n]["kind"]}
    taken = set(same.values())
    for kind in ("placeholder", "output"):
        left = [[k for k, n in enumerate(nodes) if n["kind"] == kind and k not in known] for nodes, known in ((new, same), (old, taken))]
        if len(left[0]) == len(left[1]):
            same |= dict(zip(*left, strict=True))
    return same
