"""The memory view: lifetimes of buffers over the kernels' order, the arena by address and time, and bytes alive beside eager's and the bound.

In: the plain data of ``compiler_lab.observe.memory_data``. Out: an HTML fragment that is complete without script: for each program the figures, bytes alive as
curves, the arena, the lifetimes, and tables that say the same. With script (``memory_view.js``) a buffer lights the kernels that write and read it,
a kernel its buffers. ``figure(data)``: bytes alive as a matplotlib figure.
Always holds: figures are the data's own, exact to the byte in ``data-value``; where a buffer lies is told by border, label and table, never by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import words
from .frame import count, esc, frame, heading, ident_of, more, nbytes, new_figure, table

Program = Mapping[str, Any]
Buffer = Mapping[str, Any]
LEFT, ROW, WIDE, TOP = 76, 17, 880, 20
CURVES = (("eager", "op by op, as eager runs it"), ("ours", "with this plan"), ("bound", "all that lives at once, nothing in place"))
FIGURES = (("peak", "peak with this plan"), ("eager", "peak op by op"), ("bound", "bound without writing in place"), ("arena", "arena"))
PLACES = {"arena": "arena", "inside": "inside another buffer", "own": "memory of its own"}
WHY = (
    "A buffer lives from the kernel that writes it to its last reader; buffers that never live together can have the same bytes. The planner "
    "keeps one arena between calls, writes over a buffer that dies (in place), and uses a result's memory before it is written (lab 15). "
    "Inputs are in no figure, for their memory is the caller's; but what was saved for a backward, and nobody else holds, is in each to its last reader."
)
ABOVE = (
    "It peaks above op by op here: the arena is there from the first kernel to the last, also while nothing in it is used, where op by op asks for each buffer "
    "when it is made. It is taken once and kept for the next call."
)


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.memory_data``."""
    programs: list[Program] = list(data["programs"])
    ident = ident_of("memory", [data["title"], *(f"{p['name']} {p['figures']} {[b['name'] for b in p['buffers']]}" for p in programs)])
    options = "".join(f'<option value="{k}">{esc(p["name"])}</option>' for k, p in enumerate(programs))
    tools = (
        f'<div class="clab-tools"><label>Program <select class="clab-program">{options}</select></label>'
        '<label>Buffer <select class="clab-buffer"></select></label><label>Kernel <select class="clab-kernel"></select></label>'
        '<button type="button" class="clab-none">Let go</button></div><p class="clab-picked"></p>'
    )
    body = f"<p>{esc(WHY)}</p>{tools}{''.join(_program(p, k) for k, p in enumerate(programs))}" if programs else "<p>No step here plans memory.</p>"
    head = "; ".join(f"{p['name']}: peak {nbytes(p['figures']['peak'])}, op by op {nbytes(p['figures']['eager'])}" for p in programs) or "no plan"
    return frame("memory", ident, data["title"], head, body, {"programs": [_packed(p) for p in programs]})


def text(data: Mapping[str, Any]) -> str:
    """For each program its figures, then a line for each buffer: where it lies, between which kernels, why."""
    lines = [str(data["title"])]
    for p in data["programs"]:
        names = [k["name"] for k in p["kernels"]]
        lines += ["", f"== {p['name']}: " + ", ".join(f"{said} {p['figures'][key]:,} bytes" for key, said in FIGURES)]
        lines += [
            f"  {b['name']}: {b['bytes']:,} bytes, {names[b['first']]} to {names[b['last']]}, {_where(b)}{': ' if b['reason'] else ''}{b['reason']}"
            for b in p["buffers"]
        ]
    return "\n".join(lines)


def figure(data: Mapping[str, Any], program: int = 0) -> Any:
    """Bytes alive over the time of one program as a ``matplotlib.figure.Figure``: ours, op by op, the bound; peaks marked. Without matplotlib the numbers
    are printed, and None is given."""
    made: Any = new_figure(figsize=(8, 3.2), layout="constrained")
    if made is None:
        return print(text(data))
    axes = made.subplots()
    chosen = data["programs"][program]
    for (key, said), style in zip(CURVES, ("--", "-", ":"), strict=True):
        values: list[int] = chosen["curves"][key]
        if values:
            at = [(i + 0.5) / len(values) for i in range(len(values))]
            axes.step(at, values, style, where="mid", label=f"{said}: {nbytes(max(values))}")
            axes.plot(at[values.index(max(values))], max(values), "o", color=axes.lines[-1].get_color())
    axes.set(title=f"{data['title']}, {chosen['name']}", xlabel="share of the program that has run", ylabel="bytes alive", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    axes.legend()
    return made


def _where(b: Buffer) -> str:
    inside = f"inside {b['host']} at {b['offset']:,}" if b["place"] == "inside" else "memory of its own"
    return (f"arena at {b['offset']:,}" if b["place"] == "arena" else inside) + (f", over {b['over']}" if b["over"] else "")


def _program(p: Program, k: int) -> str:
    figures = "".join(
        f'<div><dt>{esc(said)}</dt><dd data-figure="{key}" data-value="{p["figures"][key]}">{nbytes(p["figures"][key])} '
        f"<small>{p['figures'][key]:,} bytes</small></dd></div>"
        for key, said in FIGURES
    )
    above = f"<p>{esc(ABOVE)}</p>" if p["figures"]["peak"] > p["figures"]["eager"] else ""
    return (
        f'<section class="clab-mprogram" data-program="{k}">{heading(3, esc(p["name"]))}<dl class="clab-figures">{figures}</dl>{above}'
        f"{heading(4, 'Bytes alive while the program runs')}{_curves(p)}"
        f"{heading(4, 'The arena: bytes from top to bottom, kernels from left to right')}{_arena(p)}"
        f"{heading(4, 'Lifetimes: a bar from the kernel that writes a buffer to the last that reads it')}"
        "<p><small>Full border: in the arena. Dashed: inside another buffer's memory. Thin and pale: memory of its own. A result lives to the end.</small></p>"
        f"{_lifetimes(p)}{_tables(p)}</section>"
    )


def _step(p: Program) -> float:
    return min(max((WIDE - LEFT) / max(len(p["kernels"]), 1), 9.0), 60.0)


def _scroll(label: str, svg: str) -> str:
    return f'<div class="clab-scroll" tabindex="0" role="group" aria-label="{esc(label)}">{svg}</div>'


def _curves(p: Program) -> str:
    """Steps for each curve, all as wide as the whole program; the peak of ours has a mark and its kernel's name."""
    high, wide = 130, WIDE - LEFT
    top = max((max(values) for values in p["curves"].values() if values), default=0) or 1
    parts: list[str] = []
    for key, said in CURVES:
        values: list[int] = p["curves"][key]
        x = [LEFT + wide * i / len(values) for i in range(len(values) + 1)] if values else []
        points = "".join(f"{'L' if i else 'M'}{x[i]:.1f},{_y(v, top, high)}H{x[i + 1]:.1f}" for i, v in enumerate(values))
        parts.append(f'<path class="clab-{key}" d="{points}"><title>{esc(said)}</title></path>')
    ours: list[int] = p["curves"]["ours"]
    if ours:
        at = ours.index(max(ours))
        middle, y, (shift, anchor) = LEFT + wide * (at + 0.5) / len(ours), _y(ours[at], top, high), (-8, "end") if at > len(ours) / 2 else (8, "start")
        name = f'<text x="{middle + shift:.1f}" y="{y + 16:.1f}" text-anchor="{anchor}">peak at {esc(p["kernels"][at]["name"])}</text>'
        parts.append(f'<circle cx="{middle:.1f}" cy="{y}" r="4"/>{name}')
    axis = f'<text x="{LEFT - 6}" y="16" text-anchor="end">{nbytes(top)}</text><text x="{LEFT - 6}" y="{high + 12}" text-anchor="end">0</text>'
    legend = "".join(
        f'<span><svg width="34" height="10" aria-hidden="true"><path class="clab-{key}" d="M0,5H34"/></svg> '
        f"{esc(said)}: at most {nbytes(max(p['curves'][key], default=0))}</span>"
        for key, said in CURVES
    )
    label = "Bytes alive over time: " + ", ".join(f"{said} at most {max(p['curves'][key], default=0):,}" for key, said in CURVES)
    svg = f'<svg class="clab-mem clab-alive" viewBox="0 0 {WIDE} {high + 18}" role="img" aria-label="{esc(label)}">{axis}{"".join(parts)}</svg>'
    return f'{svg}<p class="clab-legend">{legend}</p>'


def _y(value: float, top: float, high: float) -> float:
    return round(12 + high - high * value / top, 1)


def _arena(p: Program) -> str:
    """Address by time: two buffers in one place stand beside each other in one row of bytes."""
    held = [(k, b) for k, b in enumerate(p["buffers"]) if b["place"] == "arena"]
    size, high, step = p["figures"]["arena"], 170, _step(p)
    if not held or not size:
        return "<p>Nothing lies in an arena here.</p>"
    width = LEFT + step * len(p["kernels"]) + 8
    scale = high / size
    ticks = "".join(
        f'<line x1="{LEFT - 4}" x2="{width - 8:.1f}" y1="{TOP + high * i / 4:.1f}" y2="{TOP + high * i / 4:.1f}"/>'
        f'<text x="{LEFT - 8}" y="{TOP + high * i / 4 + 4:.1f}" text-anchor="end">{nbytes(size * i / 4)}</text>'
        for i in range(5)
    )
    bars = "".join(_rect(k, b, TOP + b["offset"] * scale, max(b["reserved"] * scale, 2), step) for k, b in held)
    said = f"{len(held)} buffers share the {size:,} bytes of the arena"
    inner = _ticks(p, step, TOP + high) + ticks + bars
    return _scroll("The arena", f'<svg class="clab-mem" width="{width:.0f}" height="{TOP + high + 8}" role="img" aria-label="{said}">{inner}</svg>')


def _lifetimes(p: Program) -> str:
    step, buffers = _step(p), p["buffers"]
    height, width = TOP + ROW * len(buffers) + 4, LEFT + step * len(p["kernels"]) + 8
    bars = "".join(
        f'<text x="{LEFT - 6}" y="{TOP + ROW * k + 12}" text-anchor="end">{esc(b["name"])}</text>' + _rect(k, b, TOP + ROW * k + 2, ROW - 4, step)
        for k, b in enumerate(buffers)
    )
    size = f'width="{width:.0f}" height="{height}"'
    svg = f'<svg class="clab-mem clab-life" {size} role="group" aria-label="{count(len(buffers), "buffer")}">{_ticks(p, step, height)}{bars}</svg>'
    return _scroll("Lifetimes of buffers", svg)


def _ticks(p: Program, step: float, height: float) -> str:
    """A column for each kernel; names where they have room."""
    every = max(1, round(26 / step + 0.49))
    return "".join(
        f'<rect class="clab-col" data-k="{i}" x="{LEFT + step * i:.1f}" y="0" width="{step:.1f}" height="{height:.0f}">'
        f"<title>{esc(kernel['name'])}</title></rect>"
        + (f'<text x="{LEFT + step * (i + 0.5):.1f}" y="13" text-anchor="middle">{esc(kernel["name"])}</text>' if i % every == 0 else "")
        for i, kernel in enumerate(p["kernels"])
    )


def _rect(k: int, b: Buffer, y: float, height: float, step: float) -> str:
    x, wide = LEFT + step * b["first"], step * (b["last"] - b["first"] + 1)
    label = f"{b['name']} {nbytes(b['bytes'])}" + (f" over {b['over']}" if b["over"] else f" in {b['host']}" if b["place"] == "inside" else "")
    shown = f'<text x="{x + 5:.1f}" y="{y + min(height / 2 + 4, 14):.1f}">{esc(label)}</text>' if wide > 7 * len(label) and height >= 11 else ""
    said = f"{b['name']}: {b['bytes']:,} bytes, {_where(b)}"
    bar = f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{height:.1f}"/>{shown}'
    return f'<g class="clab-bar clab-{b["place"]}" data-b="{k}"><title>{esc(said)}</title>{bar}</g>'


def _tables(p: Program) -> str:
    names = [k["name"] for k in p["kernels"]]
    rows = [
        [
            esc(b["name"]), esc(b["what"]), f"{b['bytes']:,}", names[b["first"]], "the end, a result" if b["result"] else names[b["last"]],
            esc(PLACES[b["place"]]), esc(b["host"]), f"{b['offset']:,}" if b["place"] != "own" else "",
            esc(b["over"]), esc(", ".join(b["after"])), esc(b["reason"]), esc(b["line"]),
        ]
        for b in p["buffers"]
    ]  # fmt: skip
    head = ["buffer", "made by", "bytes", "written by", "lives to", "place", "of", "from byte", "written over", "bytes were of", "reason", "your line"]
    meanings = "".join(f"<dt>{esc(r)}</dt><dd>{esc(words.sentence('reuse', r))}</dd>" for r in dict.fromkeys(b["reason"] for b in p["buffers"] if b["reason"]))
    held = lambda i: f"{i['bytes']:,}" if i["bytes"] else "the caller's"
    inputs = [[esc(i["name"]), held(i), esc(", ".join(names[r] for r in i["readers"])), names[i["last"]]] for i in p["inputs"]]
    kernels = [[esc(k["name"]), esc(k["what"]), esc(", ".join(k["reads"])), esc(", ".join(k["writes"])), esc(k["line"])] for k in p["kernels"]]
    alive = [[names[i], f"{p['curves']['ours'][i]:,}", f"{p['curves']['bound'][i]:,}"] for i in range(len(names))]
    given = "Inputs, saved tensors among them in a backward: after the last reader nobody here needs them, and a tensor that only autograd held is freed."
    return (
        more(f"Buffers <small>{len(rows)}</small>", f'<dl class="clab-dl">{meanings}</dl>' + table(f"Buffers of {p['name']}", head, rows), "clab-tbuffers")
        + more(f"Kernels and calls <small>{len(kernels)}</small>", table("Kernels", ["kernel", "loop or call", "reads", "writes", "your line"], kernels))
        + more(f"Inputs <small>{len(inputs)}</small>", f"<p>{esc(given)}</p>" + table("Inputs", ["input", "bytes that count", "read by", "last"], inputs))
        + more("Bytes alive at each kernel", table("Bytes alive", ["kernel", "with this plan", "bound"], alive), "clab-talive")
    )


def _packed(p: Program) -> dict[str, Any]:
    kernels: Sequence[Mapping[str, Any]] = p["kernels"]
    return {
        "kernels": [[k["name"], k["reads"], k["writes"], k["line"]] for k in kernels],
        "buffers": [[b["name"], b["what"], b["bytes"], _where(b), words.sentence("reuse", b["reason"]), int(b["result"]), b["line"]] for b in p["buffers"]],
    }
