"""The time view: the phases of each compile as a flame chart, two stacks at one scale, and the kernels of a measured call as bars.

In: the plain data of ``compiler_lab.observe.time_data``. Out: an HTML fragment that is complete without script: for each side the chart and every phase as
a row of a table, for two sides what corresponds to what, for each call its kernels beside the bytes they move. With script (``time_view.js``) a phase
that is chosen fills the chart, and keys go from phase to phase.
Always holds: figures are the data's own, exact in ``<data value>``; what a shade says the table says in words; what is too short to draw is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .frame import count, esc, frame, heading, ident_of, more, nbytes, table
from .frame import seconds as long_seconds

Side = Mapping[str, Any]
Phase = Mapping[str, Any]
Call = Mapping[str, Any]
WIDE, ROW, TOP, LETTER = 960, 19, 22, 6.5  # of the chart: its width, the height of a lane, room for the axis, the width of a letter
LEAST = 0.4  # a narrower phase is not drawn
BRIEF = 0.001  # of a side's seconds: shorter phases are left out of the text
SHOWN = 300  # rows of a table, the longest phases
COMPILER = ("compiler run", "compile_file", "async_compile.wait")  # waiting for the C++ compiler
WHY = (
    "A bar is a phase, as wide as the time it took; below it stands what it did in that time. Own time is what no bar below accounts for. "
    "Where two bars of one compile stand below each other over the same stretch, they went on side by side."
)
KEYS = (
    '<p class="clab-keys">Click a bar, or press Enter on it, to give it the whole width; Escape or the button shows everything again. '
    "Arrow keys go to the next bar, into it and out of it; + and - zoom.</p>"
)
CALL = (
    "Every kernel and library call of one call, measured one by one by the wrapper in Python over the same compiled kernels; the whole call is measured as it "
    "is. Bytes: each buffer that it reads or writes once, at full size. What comes out of a cache can move faster than memory does."
)
LEGEND = (("compile", "a compile"), ("step", "a step of ours, or what corresponds to it"), ("", "what a step did"), ("cc", "the C++ compiler"))


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.time_data``."""
    sides: list[Side] = [s for s in data["sides"] if s["phases"]]
    ident = ident_of("time", [data["title"], *(f"{s['name']} {s['seconds']} {len(s['phases'])}" for s in sides), *(str(c["seconds"]) for c in data["calls"])])
    longest = max((s["length"] for s in sides), default=0.0)
    scale = '<label><input type="checkbox" class="clab-own"> Each at its own scale</label>' if len(sides) > 1 else ""
    tools = (
        '<div class="clab-tools"><button type="button" class="clab-all">Show all</button><button type="button" class="clab-in" aria-label="Zoom in">+</button>'
        f'<button type="button" class="clab-out" aria-label="Zoom out">−</button>{scale}</div>{KEYS}'
    )
    legend = "".join(f'<span><i class="clab-key clab-{kind or "inner"}"></i> {esc(said)}</span>' for kind, said in LEGEND)
    charts = "".join(_side(s, k, longest, len(sides) > 1) for k, s in enumerate(sides))
    body = f'<p>{esc(WHY)}</p><p class="clab-legend">{legend}</p>{tools}<p class="clab-picked"></p>{charts}' if sides else ""
    body += _beside(data, [s["name"] for s in sides]) + "".join(map(_call, data["calls"]))
    head = "; ".join([*(_sums(s) for s in sides), *(f"{c['name']}: {took(c['seconds'])}" for c in data["calls"])])
    return frame("time", ident, data["title"], head, body, {"sides": [_packed(s) for s in sides]})


def text(data: Mapping[str, Any]) -> str:
    """Each side's phases, one below the other as they stand in one another; what both stacks did; the kernels of each call."""
    lines = [str(data["title"])]
    for s in data["sides"]:
        if not s["phases"]:
            continue
        shown = [p for p in s["phases"] if p["share"] >= BRIEF]
        lines += ["", f"== {_sums(s)}{'' if s['known'] else '; ' + UNKNOWN}"]
        lines += [f"  {'  ' * p['depth']}{_name(p)}: {took(p['seconds'])}, own {took(p['own'])}, {_percent(p['share'])}" for p in shown]
        if len(shown) < len(s["phases"]):
            lines.append(f"  {count(len(s['phases']) - len(shown), 'phase')} of less than {BRIEF:.1%} left out")
    if data["steps"]:
        names = [s["name"] for s in data["sides"]]
        lines += ["", f"== {' and '.join(names)}, step by step"]
        lines += [f"  {r['name']}: " + ", ".join("none" if v is None else took(v) for v in r["seconds"]) for r in data["steps"]]
    for c in data["calls"]:
        lines += ["", f"== {c['name']}: {took(c['seconds'])}, {_outside(c)}"]
        for p in c["programs"]:
            lines.append(f"  {p['name']}: {took(p['seconds'])}")
            lines += [f"    {k['name']} {k['what']}: {took(k['seconds'])}, {nbytes(k['bytes'])}, {_rate(k)}" for k in p["kernels"]]
    return "\n".join(lines)


UNKNOWN = "this file does not say when a step began, so they stand one after another"


def took(value: float) -> str:
    """A time in three digits: 2.91 s, 45 ms, 12.3 µs."""
    return long_seconds(value) if value >= 0.001 else f"{value * 1e6:.1f} µs" if value < 0.0001 else f"{value * 1e6:.0f} µs"


def _name(p: Phase) -> str:
    return f"{p['name']}, {p['part']}" if p["part"] else str(p["name"])


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _exact(value: float) -> str:
    return f'<data value="{value!r}">{took(value)}</data>'


def _sums(s: Side) -> str:
    compiles = sum(p["parent"] < 0 for p in s["phases"])
    return f"{s['name']}: {took(s['seconds'])} in {count(compiles, 'compile')}"


def kind_of(p: Phase) -> str:
    """How a bar is shaded: see ``LEGEND``."""
    return "compile" if p["step"] == "compile" else "cc" if p["name"] in COMPILER else "step" if p["step"] else ""


# ---- the chart ----


def _side(s: Side, k: int, longest: float, several: bool) -> str:
    title = heading(3, f"{esc(s['name'])} <small>{esc(s['title'])}</small>" if several else esc(_sums(s)))
    notes = [] if s["known"] else [f"{UNKNOWN[:1].upper()}{UNKNOWN[1:]}."]
    if short := sum(WIDE * p["seconds"] / (longest or 1.0) < LEAST for p in s["phases"]):
        notes.append(f"Too short to be drawn, and in the table only: {short} of {count(len(s['phases']), 'phase')}.")
    if s["cuts"]:
        notes.append("Dashed: idle time between compiles, cut out of the axis.")
    return f'<section class="clab-side" data-side="{k}">{title}<p>{esc(" ".join(notes))}</p>{_chart(s, longest)}{_table(s)}</section>'


def _chart(s: Side, longest: float) -> str:
    scale, height = WIDE / (longest or 1.0), TOP + ROW * s["lanes"] + 4
    bars = "".join(_bar(p, n, scale) for n, p in enumerate(s["phases"]) if p["seconds"] * scale >= LEAST)
    ticks = "".join(
        f'<line x1="{t * scale:.1f}" x2="{t * scale:.1f}" y1="{TOP - 6}" y2="{height}"/><text x="{t * scale + 3:.1f}" y="12">{took(t) if t else "0"}</text>'
        for t in _ticks(longest)
    )
    cuts = "".join(
        f'<g class="clab-cut"><title>{esc(_idle(c))}</title><line x1="{c["at"] * scale:.1f}" x2="{c["at"] * scale:.1f}" y1="0" y2="{height}"/></g>'
        for c in s["cuts"]
    )
    said = f"Phases of {_sums(s)}" + "".join(f"; {_idle(c)}" for c in s["cuts"][:3])
    svg = f'<svg class="clab-flame" width="{WIDE}" height="{height}" viewBox="0 0 {WIDE} {height}" role="group" aria-label="{esc(said)}">'
    return (
        f'<div class="clab-scroll" tabindex="0" role="group" aria-label="Flame chart of {esc(s["name"])}">{svg}<g class="clab-axis">{ticks}</g>'
        f'<g class="clab-cuts">{cuts}</g><g class="clab-bars">{bars}</g></svg></div>'
    )


def _idle(c: Mapping[str, Any]) -> str:
    return f"{took(c['seconds'])} idle are left out here"


def _bar(p: Phase, n: int, scale: float) -> str:
    x, wide, y = p["at"] * scale, p["seconds"] * scale, TOP + ROW * p["lane"]
    letters = int((wide - 6) / LETTER)
    name = _name(p)
    label = name if len(name) <= letters else f"{name[: letters - 1]}…" if letters >= 4 else ""
    shown = f'<text x="{x + 3:.1f}" y="{y + 13}">{esc(label)}</text>' if label else ""
    kind = kind_of(p)
    return (
        f'<g class="clab-bar{f" clab-{kind}" if kind else ""}" data-n="{n}"><title>{esc(said_of(p))}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(wide, LEAST):.2f}" height="{ROW - 1}"/>{shown}</g>'
    )


def said_of(p: Phase) -> str:
    return f"{_name(p)}: {took(p['seconds'])}, own {took(p['own'])}, {_percent(p['share'])}"


def _ticks(length: float) -> list[float]:
    """Some five round times from 0 on."""
    if not length:
        return []
    raw = length / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * f for f in (1, 2, 5, 10) if size * f >= raw)
    return [step * i for i in range(int(length / step) + 1)]


def _table(s: Side) -> str:
    chosen = sorted(sorted(range(len(s["phases"])), key=lambda n: -s["phases"][n]["seconds"])[:SHOWN])
    rows = [
        [
            f'<span style="padding-left:{p["depth"]}em">{esc(_name(p))}</span>', esc(p["step"]), _exact(p["start"]), _exact(p["seconds"]), _exact(p["own"]),
            _percent(p["share"]),
        ]
        for p in (s["phases"][n] for n in chosen)
    ]  # fmt: skip
    rest = len(s["phases"]) - len(chosen)
    note = f"<p>The {count(len(chosen), 'longest phase')}; {rest} shorter ones are left out.</p>" if rest else ""
    head = ["phase", "step of ours", "began at", "took", "own time", "of all"]
    return more(f"Every phase <small>{len(s['phases'])}</small>", note + table(f"Phases of {s['name']}", head, rows), "clab-tphases")


def _beside(data: Mapping[str, Any], names: Sequence[str]) -> str:
    if not data["steps"]:
        return ""
    rows = [[esc(r["name"]), *("none" if v is None else _exact(v) for v in r["seconds"])] for r in data["steps"]]
    said = "Steps that both have, and those of one alone. What the other stack calls it stands in its table of phases."
    return f"{heading(3, 'Step by step')}<p>{said}</p>" + table("Seconds of each step", ["step", *names], rows)


# ---- calls ----


def _call(c: Call) -> str:
    inside = math.fsum(p["seconds"] for p in c["programs"])
    figures = (
        ("the whole call", c["seconds"]), ("its programs as they are", inside), ("kernels and library calls", c["kernels"]), ("outside them", c["outside"]),
    )  # fmt: skip
    cells = "".join(f"<div><dt>{esc(said)}</dt><dd>{_exact(v) if v >= 0 else esc(f'−{took(-v)}')}</dd></div>" for said, v in figures)
    rows = [
        [
            esc(p["name"]), esc(k["name"]), esc(k["what"]), _exact(k["seconds"]), f"{k['bytes']:,}", _rate(k), _percent(k["seconds"] / (c["kernels"] or 1.0)),
            esc(k["line"]),
        ]
        for p in c["programs"]
        for k in p["kernels"]
    ]  # fmt: skip
    head = ["program", "kernel", "what it computes", "took", "bytes", "GB/s", "of all kernels", "your line"]
    programs = [[esc(p["name"]), _exact(p["seconds"]), _exact(sum(k["seconds"] for k in p["kernels"]))] for p in c["programs"]]
    return (
        f'<section class="clab-call">{heading(3, esc(c["name"]))}<p>{esc(CALL)} {esc(_how(c))}</p>'
        f'<dl class="clab-figures">{cells}</dl><p>{esc(_outside(c))}.</p>{_kernel_bars(c)}'
        + more(f"Kernels and library calls <small>{len(rows)}</small>", table(f"Kernels of {c['name']}", head, rows), "clab-tkernels")
        + more("Programs", table(f"Programs of {c['name']}", ["program", "as it is", "its kernels one by one"], programs))
        + "</section>"
    )


def _how(c: Call) -> str:
    back = " and of the backward of its results" if c["backward"] else ""
    return (
        f"Medians of {count(c['repeats'], 'run')} of the call{back}; its programs are called by {c['language']}. "
        f"Calling an empty kernel this way takes {took(c['timer'])}, which is taken away from each kernel."
    )


def _outside(c: Call) -> str:
    if c["outside"] >= 0:
        share = c["outside"] / c["seconds"] if c["seconds"] else 0.0
        return f"{took(c['outside'])} of it ({_percent(share)}) outside kernels: guards, autograd, allocation, calls"
    return f"one by one its kernels take {took(-c['outside'])} more than the whole call: operators are called by Python here, and each waits for the one before"


def _rate(k: Mapping[str, Any]) -> str:
    return "too fast to tell" if k["rate"] is None else f"{k['rate']:.3g} GB/s"


def _kernel_bars(c: Call) -> str:
    """A row for each kernel, below its program's name: its time above, its bytes below, each beside the greatest of all."""
    left, wide, y = 270, 420, 4
    kernels = [k for p in c["programs"] for k in p["kernels"]]
    most = max((k["seconds"] for k in kernels), default=0.0) or 1.0
    size = max((k["bytes"] for k in kernels), default=0) or 1
    parts: list[str] = []
    for p in c["programs"]:
        parts.append(f'<text x="4" y="{y + 12}">{esc(p["name"])}</text>')
        y += 20
        for k in p["kernels"]:
            name, values = f"{k['name']} {k['what']}", f"{took(k['seconds'])}, {nbytes(k['bytes'])}, {_rate(k)}"
            label = name if len(name) <= 42 else f"{name[:41]}…"
            parts.append(
                f'<g class="clab-kernel clab-{k["kind"]}"><title>{esc(f"{name}: {values}")}</title>'
                f'<text x="{left - 6}" y="{y + 15}" text-anchor="end">{esc(label)}</text>'
                f'<rect x="{left}" y="{y}" width="{max(wide * k["seconds"] / most, 1):.1f}" height="13"/>'
                f'<rect class="clab-bytes" x="{left}" y="{y + 15}" width="{max(wide * k["bytes"] / size, 1):.1f}" height="7"/>'
                f'<text x="{left + wide + 8}" y="{y + 15}">{esc(values)}</text></g>'
            )
            y += 30
    said = f"{count(len(kernels), 'kernel')} and library calls of {c['name']}, from {took(min((k['seconds'] for k in kernels), default=0.0))} to {took(most)}"
    svg = f'<svg class="clab-kernels" width="{WIDE - 40}" height="{y + 4}" role="img" aria-label="{esc(said)}">{"".join(parts)}</svg>'
    note = "<p><small>Above: time. Below, thin: bytes. Dashed border: a library call.</small></p>"
    return f'{note}<div class="clab-scroll" tabindex="0" role="group" aria-label="Kernels as bars">{svg}</div>'


def _packed(s: Side) -> dict[str, Any]:
    """What the script needs of a side: rows in place of mappings, times to the nanosecond."""
    ns = lambda value: round(value, 9)
    return {
        "name": s["name"], "length": ns(s["length"]), "lanes": s["lanes"], "cuts": [[ns(c["at"]), _idle(c)] for c in s["cuts"]],
        "phases": [[_name(p), ns(p["at"]), ns(p["seconds"]), p["lane"], p["parent"], kind_of(p), said_of(p)] for p in s["phases"]],
    }  # fmt: skip
