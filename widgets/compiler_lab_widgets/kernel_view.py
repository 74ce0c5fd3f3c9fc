"""The kernel view: one kernel's loops, code and machine code with linked lines, what it touches in memory at each step, and its place under the roofline.

In: the plain data of ``compiler_lab.observe.kernel_data``. Out: an HTML fragment that is complete without script: for each kernel its facts, a picture of its
first access at the first step, all accesses as a table and its panes of code. With script (``kernel_view.js``) one kernel is shown at a time, lines are linked
as in the pipeline view, and sliders go through the steps of any access. Always holds: figures are the data's own; touched elements have a mark besides a
colour; a picture shows at most ``ROWS`` rows of ``ACROSS`` elements and says which; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import words
from .frame import count, esc, frame, heading, ident_of, more, nbytes, table
from .pipeline_view import Panels, instruction, links, paint, source_lists
from .roofline_chart import roofline

Kernel = Mapping[str, Any]
Access = Mapping[str, Any]
ACROSS, ROWS, CELL, LANES = 32, 12, 14, 8
HEAD = ["access", "buffer", "element", "in loop", "a step moves it by", "pattern", "touches"]
WHY = (
    "A kernel is one nest of loops. Point at a line, or move to it by arrow keys, and what it comes from and what is made of it light up in the other panes; "
    "a click or Enter keeps it, Escape lets go (lab 15)."
)
COUNTED = (
    "Operations: each scalar operation and each step of a reduction is one, an exp too. Bytes touched: the elements that the accesses name, each buffer's once "
    "for reads and once for writes; values that stay inside the kernel cost none."
)
PATTERNS = {
    "contiguous": "the fastest loop goes from element to neighbouring element", "strided": "the fastest loop jumps over elements",
    "broadcast": "the fastest loop stays at one element", "gather": "the place is a value loaded at run time: its slider stands for that value",
    "folded": "the index divides or takes a remainder of the fastest loop, so the step varies",
}  # fmt: skip
NOT_RECORDED = "This trace does not record index expressions: loops, accesses, operations and bytes cannot be told, so there is no access picture and no point."
EMPTY = {
    "Loops": "No loops are recorded.",
    "Generated code": "No line here is this kernel's own: an earlier kernel with the same loops is called, or the code was not recorded.",
    "Machine code": "No machine code of this kernel: it is called by way of an earlier one with the same loops, or it was not recorded.",
}


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.kernel_data``."""
    kernels: list[Kernel] = list(data["kernels"])
    ident = ident_of("kernel", [data["title"], *(f"{k['program']} {k['what']} {k['operations']} {len(k['panes'][2]['items'])}" for k in kernels)])
    shown = Panels({**data, "steps": []}, ident)
    options = _options(f"{k['name']} ({k['program']}): {k['shape']}" for k in kernels)
    tools = f'<div class="clab-tools"><label>Kernel <select class="clab-which">{options}</select></label></div>'
    sections = "".join(_kernel(k, n, shown) for n, k in enumerate(kernels))
    roof = f"<div>{heading(3, 'Roofline')}{roofline(kernels, data['ceilings'])}</div>"
    panes = (
        f'<div class="clab-both"><div class="clab-source" role="group" aria-label="Your source">{heading(3, "Your source")}'
        f"{source_lists(data['sources'])}</div>"
        f'<div class="clab-kernels">{sections}</div></div>'
    )
    body = f"<p>{esc(WHY)}</p>{tools}{panes}{roof}" if kernels else "<p>No kernel of loops is in this trace: it has no schedule, or library calls alone.</p>"
    head = (
        f"{count(len(kernels), 'kernel')} of loops, {sum(k['operations'] for k in kernels):,} operations, {nbytes(sum(k['touched'] for k in kernels))} touched"
    )
    return frame("kernel", ident, data["title"], head, body, _packed(data, shown))


def text(data: Mapping[str, Any]) -> str:
    """Each kernel's loops, figures and accesses, then its code."""
    lines = [str(data["title"])]
    for k in data["kernels"]:
        lines += ["", f"== {k['name']}, {k['program']}: {k['what']}", f"  {_figures(k) if k['recorded'] else NOT_RECORDED}", f"  {_vector(k)}"]
        lines += [f"  {a['kind']} {a['buffer']}[{a['index']}] in {a['node']}: {a['pattern']}, {_elements(a)}" for a in k["accesses"]]
        for pane in k["panes"]:
            lines += [f"  -- {pane['title']}", *(f"  {i['text']}" for i in pane["items"])] if pane["items"] else [f"  -- {EMPTY[pane['title']]}"]
    return "\n".join(lines if data["kernels"] else [*lines, "no kernel of loops"])


def _figures(k: Kernel) -> str:
    intensity = "none" if k["intensity"] is None else f"{k['intensity']:.4g}"
    return f"{k['operations']:,} operations, {k['touched']:,} bytes touched, {intensity} operations for a byte; {k['moved']:,} bytes of buffers at full size"


def _vector(k: Kernel) -> str:
    machine = k["panes"][2]["items"]
    told = f"{k['vector']} of {count(len(machine), 'line')} of machine code compute on vectors" if machine else "machine code is not at hand"
    return f"{told}; " + (
        "; ".join(f"line {r['line']}: {r['said']}" for r in k["remarks"]) or f"the compiler's remarks: {k['remarks_why'] or 'none on this kernel'}"
    )


def _elements(a: Access) -> str:
    return f"{'' if a['exact'] else 'at most '}{a['elements']:,} of {a['total']:,} elements, {a['bytes']:,} bytes"


def _kernel(k: Kernel, n: int, shown: Panels) -> str:
    loops = [[f"<code>{esc(v['name'])}</code>", f"{v['size']:,}", esc(v["role"]), "by lanes" if v["name"] == k["lane"] else ""] for v in k["loops"]]
    facts = f"<p>{esc(_figures(k))}. {esc(COUNTED)}</p>" + table(f"Loops of {k['name']} {n}", ["loop", "from 0 to", "role", "lanes"], loops) + _accesses(k, n)
    panes = "".join(_pane(k, p, f"{n}-{j}", shown) for j, p in enumerate(k["panes"]))
    bodies = more("Statements of its loops", f'<pre tabindex="0">{esc(chr(10).join(k["bodies"]))}</pre>') if k["bodies"] else ""
    title = heading(3, f"{esc(k['name'])} <small>{esc(k['program'])}</small>")
    return (
        f'<section class="clab-kern" data-kernel="{n}">{title}<p><code>{esc(k["what"])}</code></p>'
        f"{facts if k['recorded'] else f'<p>{esc(NOT_RECORDED)}</p>'}<p>{esc(_vector(k))}.</p>{panes}{bodies}</section>"
    )


def _pane(k: Kernel, pane: Mapping[str, Any], key: str, shown: Panels) -> str:
    items = pane["items"]
    painted = [instruction(i) for i in items] if pane["title"] == "Machine code" else paint(items) if items else []
    said = f"{esc(pane['title'])} <small>{count(len(items), 'line')}</small>"
    lines = f'<div class="clab-list">{shown.lists(items, painted)}</div>' if items else f"<p>{esc(EMPTY[pane['title']])}</p>"
    gone = [f"<li>{esc(shown.where[one['src']])}: {esc(_lost(one))}</li>" for one in pane["lost"]]
    missing = more(f"Your lines that nothing here comes from <small>{len(gone)}</small>", f"<ul>{''.join(gone)}</ul>") if gone else ""
    name = esc(f"{pane['title']} of {k['name']}")
    inner = f'<div class="clab-sec">{heading(4, said)}{lines}</div>{missing}'
    return f'<div class="clab-pane" data-step="{key}" data-title="{name}">{inner}</div>'


def _lost(one: Mapping[str, Any]) -> str:
    return f"computed in {', '.join(one['names'])}" if one["why"] == "kernel" else words.why_lost(one["why"])


# ---- memory ----


def evaluate(tree: Sequence[Any], values: Mapping[str, int]) -> int:
    """The number that an index gives; the script's ``evaluateIndex`` is the same."""
    total: int = tree[0]
    for c, atom in tree[1]:
        if isinstance(atom, str):
            total += c * values.get(atom, 0)
        else:
            inner = evaluate(atom[1], values)
            total += c * (inner // atom[2] if atom[0] == "div" else inner % atom[2])
    return total


def touched(a: Access, lane: str, values: Mapping[str, int]) -> list[int]:
    """The places that a block of neighbouring steps of ``lane`` touches, from ``values`` on."""
    size = a["variables"].get(lane, 1)
    first = values.get(lane, 0) if lane in a["variables"] else 0
    return [evaluate(a["tree"], {**values, lane: first + k}) for k in range(min(LANES, size - first))]


def window(a: Access, places: Sequence[int]) -> tuple[int, int, int]:
    """(elements in a row, first element shown, past the last): whole rows, the first touched one in the second row or above."""
    near = [n for n, s in zip(a["size"], a["stride"], strict=True) if s == 1 and 1 < n <= ACROSS]
    across = near[-1] if near else ACROSS
    row = max(0, min(min(places) // across - 1, (a["total"] - 1) // across - ROWS + 1))
    return across, row * across, min(a["total"], (row + ROWS) * across)


def _accesses(k: Kernel, n: int) -> str:
    if not k["accesses"]:
        return "<p>It touches no memory outside.</p>"
    rows = [
        [
            esc(a["kind"]), f"<code>{esc(a['buffer'])}</code>", f"<code>{esc(a['index'])}</code>", esc(a["node"]),
            esc(", ".join(f"{v} {'varies' if step is None else step}" for v, step in a["strides"].items())),
            f"{esc(a['pattern'])}: {esc(PATTERNS.get(a['pattern'], ''))}", _elements(a),
        ]
        for a in k["accesses"]
    ]  # fmt: skip
    options = _options(f"{a['kind']} {a['buffer']}[{a['index']}]" for a in k["accesses"])
    tools = f'<div class="clab-tools"><label>Access <select class="clab-access">{options}</select></label><span class="clab-sliders"></span></div>'
    shown = f'<div class="clab-memory">{tools}{picture(k["accesses"][0], k["lane"])}</div>'
    return shown + table(f"Accesses of {k['name']} {n}", HEAD, rows)


def _options(names: Iterable[str]) -> str:
    return "".join(f'<option value="{n}">{esc(name)}</option>' for n, name in enumerate(names))


def picture(a: Access, lane: str) -> str:
    """The access at its first step, and its twin: the sentence that names the elements touched."""
    places = touched(a, lane, {})
    across, first, past = window(a, places)
    marks = set(places)
    cells = "".join(
        f'<rect x="{(e - first) % across * CELL}" y="{(e - first) // across * CELL}" width="{CELL - 2}" height="{CELL - 2}"'
        + (' class="clab-hit"/>' if e in marks else "/>")
        + (f'<text x="{(e - first) % across * CELL + 3}" y="{(e - first) // across * CELL + 10}">x</text>' if e in marks else "")
        for e in range(first, past)
    )
    said = f"{a['buffer']}: elements {first:,} to {past - 1:,} of {a['total']:,}, {across} in a row"
    part = "" if (first, past) == (0, a["total"]) else " (a part: the buffer is larger)"
    return (
        f'<svg class="clab-cells" role="img" aria-label="{esc(said)}" width="{across * CELL}" viewBox="0 0 {across * CELL} {ROWS * CELL}">{cells}</svg>'
        f'<p class="clab-hits">{esc(said + part)}. Touched, marked x: {", ".join(map(str, places))}</p>'
    )


def _packed(data: Mapping[str, Any], shown: Panels) -> dict[str, Any]:
    """What the script needs: links of lines, why lines are lost in a pane, and the accesses."""
    sentences: dict[str, int] = {}
    lost = {
        f"{n}-{j}": {one["src"]: sentences.setdefault(_lost(one), len(sentences)) for one in pane["lost"]}
        for n, k in enumerate(data["kernels"])
        for j, pane in enumerate(k["panes"])
    }
    keys = ("buffer", "tree", "variables", "size", "stride", "total")
    kernels = [{"name": k["name"], "lane": k["lane"], "accesses": [{key: a[key] for key in keys} for a in k["accesses"]]} for k in data["kernels"]]
    return {**links(data, []), "lost": lost, "why": list(sentences), "kernels": kernels}
