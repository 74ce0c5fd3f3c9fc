"""Bytes kept against work done again: the curve of a memory budget, as SVG with its table, and as a matplotlib figure.

In: the stops of a program of ``compiler_lab.observe.cut_data``, from the minimum cut to the fewest bytes. Out: HTML, or a ``Figure``. Always holds: each
stop is a point and a row; the figures are the data's own. Between two stops a budget keeps what the stop with fewer bytes keeps, or something between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .frame import count, esc, more, nbytes, new_figure, table

Stop = Mapping[str, Any]
WIDE, HIGH, LEFT, TOP = 620, 190, 84, 16
HEAD = ["budget", "bytes counted", "bytes in memory", "operations more", "values kept", "computed again though a rule spares them"]


def curve(stops: Sequence[Stop], names: Sequence[str], unit: str) -> str:
    """The SVG and its table; ``unit`` says what is counted. A point has its number in ``data-stop``."""
    if len(stops) < 2:
        return "<p>No memory budget keeps fewer: what is kept here is the fewest bytes already, or must be kept.</p>"
    low, high, work = stops[-1]["counted"], stops[0]["counted"], stops[-1]["operations"] or 1
    x = lambda s: LEFT + (WIDE - LEFT - 20) * (s["counted"] - low) / ((high - low) or 1)
    y = lambda s: TOP + HIGH - HIGH * s["operations"] / work
    line = "".join(f"{'L' if i else 'M'}{x(s):.1f},{y(s):.1f}" for i, s in enumerate(stops))
    points = "".join(
        f'<circle data-stop="{i}" cx="{x(s):.1f}" cy="{y(s):.1f}" r="4"><title>budget {s["budget"]:.3g}: {s["counted"]:,} bytes counted, '
        f"{s['operations']:,} operations more</title></circle>"
        for i, s in enumerate(stops)
    )
    text: Callable[[float, float, str, str], str] = lambda at, top, said, anchor: f'<text x="{at}" y="{top}" text-anchor="{anchor}">{said}</text>'
    most, floor = f"{work:,}" if work < 1e7 else f"{work:.3g}", TOP + HIGH + 18
    labels = text(LEFT - 8, TOP + 4, most, "end") + text(LEFT - 8, TOP + HIGH, "0", "end") + text(LEFT + 6, TOP + 4, "operations computed again", "start")
    labels += text(LEFT, floor, nbytes(low), "start") + text(WIDE - 20, floor, nbytes(high), "end")
    labels += text((LEFT + WIDE) / 2, floor, "bytes kept, as counted", "middle")
    axes = f'<path class="clab-c-axis" d="M{LEFT},{TOP}V{TOP + HIGH}H{WIDE - 20}"/>'
    said = f"From {high:,} bytes and no operation more to {low:,} bytes and {work:,} operations more, over {count(len(stops), 'stop')}"
    mark = f'<circle class="clab-c-mark" cx="{x(stops[0]):.1f}" cy="{y(stops[0]):.1f}" r="8"/>'
    size = f'viewBox="0 0 {WIDE} {TOP + HIGH + 26}"'
    svg = f'<svg class="clab-c-curve" {size} role="img" aria-label="{esc(said)}">{axes}<path class="clab-c-line" d="{line}"/>{mark}{points}{labels}</svg>'
    rows = [
        [
            f"{s['budget']:.4g}", f"{s['counted']:,}", f"{s['bytes']:,}", f"{s['operations']:,}", str(len(s["saved"])),
            " ".join(f"<code>{esc(names[int(k)])}</code>" for k in s["lifted"]) or "nothing",
        ]
        for s in stops
    ]  # fmt: skip
    return f"<p><small>{esc(unit)}</small></p>{svg}" + more("The same as a table", table("Stops of the budget", HEAD, rows), "clab-c-stops")


def figure(data: Mapping[str, Any], program: int = 0) -> Any:
    """The curve of one program as a ``matplotlib.figure.Figure``; the recorded budget has a mark."""
    if (made := new_figure(figsize=(6, 3.4), layout="constrained")) is None:
        return None
    axes = made.subplots()
    chosen = data["programs"][program]
    stops: Sequence[Stop] = chosen["stops"]
    axes.plot([s["counted"] for s in stops], [s["operations"] for s in stops], "o-", label="least work for these bytes")
    if stops:
        own = nearest(stops, chosen["network"]["budget"])
        axes.plot(stops[own]["counted"], stops[own]["operations"], "s", markersize=10, fillstyle="none", label=f"budget {chosen['network']['budget']:g}")
        axes.legend()
    axes.set(title=f"{data['title']}, {chosen['name']}", xlabel="bytes kept, as counted", ylabel="operations computed again")
    return made


def nearest(stops: Sequence[Stop], budget: float) -> int:
    """The first stop that the budget allows."""
    return next((i for i, s in enumerate(stops) if s["budget"] <= budget), len(stops) - 1)
