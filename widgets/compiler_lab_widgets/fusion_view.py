"""The fusion view: the scheduler's decisions step by step, groups that grow as boxes, and why two loops are not one kernel.

In: the plain data of ``compiler_lab.observe.fusion_data``. Out: an HTML fragment that is complete without script: for each program a chart of the bytes moved
after each step, the kernels at the end as boxes with their loops, and every decision as a row of a table. With script (``fusion_view.js``) a slider and keys
go through the steps, and two loops that are chosen are answered for.
Always holds: figures are the data's own; what a colour says a word or a border says too; all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import words
from .frame import count, esc, frame, heading, ident_of, more, nbytes, table

Program = Mapping[str, Any]
WIDTH, HEIGHT = 640, 90
HEAD = ["step", "first", "second", "answer", "reason", "saves of the two alone", "bytes moved after it"]
WHY = (
    "Each loop begins as a kernel of its own. The scheduler takes pairs that share data or stand near each other, those that save most bytes first, and joins "
    "their kernels where nothing speaks against it; a refused pair is asked again when others have joined, and stands here with its last answer (lab 14)."
)
MOVED = "Bytes moved: each buffer once for each kernel that reads or writes it, at its full size. A value that never leaves its kernel costs nothing."


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.fusion_data``."""
    programs: list[Program] = list(data["programs"])
    ident = ident_of("fusion", [data["title"], *(f"{p['name']} {p['before']} {[loop['name'] for loop in p['loops']]}" for p in programs)])
    options = "".join(f'<option value="{k}">{esc(p["name"])}</option>' for k, p in enumerate(programs))
    tools = (
        f'<div class="clab-tools"><label>Program <select class="clab-program">{options}</select></label>'
        '<button type="button" class="clab-first">First</button><button type="button" class="clab-prev">Back</button>'
        '<input type="range" class="clab-at" min="0" value="0" aria-label="Step">'
        '<button type="button" class="clab-next">Next</button><button type="button" class="clab-last">Last</button>'
        '<label><input type="checkbox" class="clab-joined"> Only steps that join</label></div>'
        '<div class="clab-now"></div>'
        '<div class="clab-why"><label>Why are <select class="clab-left" aria-label="First loop"></select></label>'
        '<label>and <select class="clab-right" aria-label="Second loop"></select> not one?</label><p class="clab-answer"></p></div>'
        '<div class="clab-boxes" role="group" aria-label="Kernels at this step"></div>'
    )
    body = f"<p>{esc(WHY)}</p>{tools}{''.join(_program(p, k) for k, p in enumerate(programs))}" if programs else "<p>No step here fuses loops.</p>"
    loops, kernels = sum(len(p["loops"]) for p in programs), sum(len(p["kernels"]) for p in programs)
    head = f"{count(loops, 'loop')} and library calls, {count(sum(len(p['steps']) for p in programs), 'pair')} considered, {count(kernels, 'kernel')} and calls"
    return frame("fusion", ident, data["title"], head, body, {"programs": [_packed(p) for p in programs], "reasons": _reasons(programs)})


def text(data: Mapping[str, Any]) -> str:
    """For each program: its sums, the steps that joined with bytes moved after them, and refusals by reason."""
    lines = [str(data["title"])]
    for p in data["programs"]:
        lines += ["", f"== {p['name']}: {_sums(p)}"]
        lines += [
            f"  {_name(p, s['left'])} + {_name(p, s['right'])}: {s['reason']}; {s['kernels']} kernels, {s['moved']:,} bytes moved"
            for s in p["steps"]
            if s["joins"]
        ]
        refused = [s["reason"] for s in p["steps"] if s["outcome"] != "accepted"]
        lines += [f"  refused {refused.count(r)}: {r}: {words.sentence('fuse', r)}".rstrip(": ") for r in dict.fromkeys(refused)]
        lines += [f"  {_name(p, a['loop'])}: {words.sentence('recompute', a['reason'])}" for a in p["again"] if a["outcome"] == "accepted"]
    return "\n".join(lines)


def _name(p: Program, k: int) -> str:
    loop = p["loops"][k]
    return f"{loop['name']} {loop['what']}"


def _answer(s: Mapping[str, Any]) -> str:
    return "refused" if s["outcome"] != "accepted" else "joined" if s["joins"] else "already one"


def _sums(p: Program) -> str:
    last = p["steps"][-1]["moved"] if p["steps"] else p["before"]
    joined = sum(s["joins"] for s in p["steps"])
    return (
        f"{count(len(p['loops']), 'loop')} and calls become {count(len(p['kernels']), 'kernel')} and calls in {count(joined, 'join')} of "
        f"{count(len(p['steps']), 'pair')} considered; bytes moved fall from {p['before']:,} to {last:,}"
    )


def _program(p: Program, k: int) -> str:
    loops: list[Mapping[str, Any]] = p["loops"]
    members: dict[str, list[Mapping[str, Any]]] = {}
    for loop in loops:
        members.setdefault(loop["kernel"], []).append(loop)
    cells = lambda found: " ".join(f"<code>{esc(loop['name'])} {esc(loop['what'])}</code>" for loop in found)
    kernels = [[esc(g["name"]), esc(g["what"]), cells(members.get(g["name"], ())), f"{g['moved']:,}"] for g in p["kernels"]]
    rows = [
        [
            str(n), esc(_name(p, s["left"])), esc(_name(p, s["right"])), _answer(s), esc(s["reason"]), f"{s['saved']:,}", f"{s['moved']:,}",
        ]
        for n, s in enumerate(p["steps"], 1)
    ]  # fmt: skip
    again = [[esc(_name(p, a["loop"])), esc(a["outcome"]), esc(words.sentence("recompute", a["reason"])), f"{a['saved']:,}"] for a in p["again"]]
    extra = (
        more(f"Computed again in the readers <small>{len(again)}</small>", table("Values computed again", ["loop", "answer", "why", "bytes saved"], again))
        if again else ""
    )  # fmt: skip
    meanings = "".join(
        f"<dt>{esc(r)}</dt><dd>{esc(words.sentence('fuse', r))}</dd>" for r in dict.fromkeys(s["reason"] for s in p["steps"]) if words.sentence("fuse", r)
    )
    return (
        f'<section class="clab-fprogram" data-program="{k}">{heading(3, esc(p["name"]))}<p>{esc(_sums(p))}. {esc(MOVED)}</p>{_curve(p)}'
        + more(f"Kernels at the end <small>{len(kernels)}</small>", table("Kernels at the end", ["kernel", "loop", "holds", "bytes moved"], kernels))
        + more(f"Every pair considered <small>{len(rows)}</small>", f'<dl class="clab-dl">{meanings}</dl>' + table(f"Pairs of {p['name']}", HEAD, rows))
        + f"{extra}</section>"
    )


def _curve(p: Program) -> str:
    """Bytes moved after each step, as a line; its twin is the last column of the table."""
    values: list[int] = [p["before"], *(s["moved"] for s in p["steps"])]
    top, wide = max(values) or 1, max(len(values) - 1, 1)
    points = " ".join(f"{WIDTH * i / wide:.1f},{HEIGHT - HEIGHT * v / top:.1f}" for i, v in enumerate(values) if not i or v != values[i - 1] or i == wide)
    said = f"Bytes moved by all kernels, from {nbytes(values[0])} to {nbytes(values[-1])} over {count(len(values) - 1, 'step')}"
    return (
        f'<svg class="clab-curve" viewBox="0 -4 {WIDTH} {HEIGHT + 8}" role="img" preserveAspectRatio="none" aria-label="{esc(said)}"><title>{esc(said)}</title>'
        f'<path d="M0,{HEIGHT} L{points} L{WIDTH},{HEIGHT} Z"/><line class="clab-mark" x1="0" x2="0" y1="-4" y2="{HEIGHT + 4}"/></svg>'
    )


def _packed(p: Program) -> dict[str, Any]:
    """What the script needs of a program: rows in place of mappings, reasons by number."""
    reasons = {r: k for k, r in enumerate(_reasons([p]))}
    return {
        "name": p["name"], "before": p["before"], "reasons": list(reasons),
        "loops": [[loop["name"], loop["what"], loop["kind"], loop["line"], loop["kernel"], loop["reads"], loop["makes"]] for loop in p["loops"]],
        "steps": [
            [s["left"], s["right"], int(s["outcome"] == "accepted"), reasons[s["reason"]], s["saved"], int(s["joins"]), s["moved"], s["kernels"]]
            for s in p["steps"]
        ],
    }  # fmt: skip


def _reasons(programs: Iterable[Program] | Sequence[Program]) -> dict[str, str]:
    found = dict.fromkeys(s["reason"] for p in programs for s in p["steps"])
    return {r: words.sentence("fuse", r) or r for r in found}
