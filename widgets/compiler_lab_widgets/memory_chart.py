"""The memory plan as a picture: which buffer holds which bytes of the arena while which kernels run.

In: the items of kind "slot" of a ``MemoryPlan`` (facts offset, bytes, first, last) and the names of the groups in order. Out: an SVG, one
row for each slot from the first group that needs it to the last, and the same as a table. Always holds: slots that begin at the same
byte have the same pattern, and their offset is written too, so nothing is told by colour alone.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

ROW, LEFT, PATTERNS = 20, 72, 6
NARROW, WIDE, FIT = 28, 40, 640  # a group's width: what fits, within bounds


def memory_chart(slots: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> str:
    """``slots`` by time of their first group. ``groups`` may be empty: then groups go by number."""
    end = max([s["facts"]["last"] for s in slots], default=0) + 1
    names = [groups[i] if i < len(groups) else str(i) for i in range(end)]
    ordered = sorted(slots, key=lambda s: (s["facts"]["first"], s["facts"]["offset"]))
    offsets = sorted({s["facts"]["offset"] for s in ordered})
    step = min(max(FIT // max(end, 1), NARROW), WIDE)
    width, height = LEFT + step * end + 10, ROW * (len(ordered) + 1) + 6
    ticks = "".join(_tick(i, name, height, step) for i, name in enumerate(names))
    bars = "".join(_bar(row, slot, offsets.index(slot["facts"]["offset"]) % PATTERNS, step) for row, slot in enumerate(ordered))
    rows = "".join(_row(slot, names) for slot in ordered)
    arena = max((s["facts"]["offset"] + s["facts"]["bytes"] for s in ordered), default=0)
    total = sum(s["facts"]["bytes"] for s in ordered)
    said = f"{len(ordered)} buffers of {total:,} bytes together live in {arena:,} bytes"
    head = "".join(f'<th scope="col">{h}</th>' for h in ("buffer", "bytes", "from byte", "written by", "last read by"))
    return (
        f"<p>{said}: each bar is a buffer, from the kernel that writes it to the last that reads it; equal shades begin at the same byte.</p>"
        f'<div class="clab-scroll" tabindex="0" role="group" aria-label="Lifetimes of buffers">'
        f'<svg class="clab-chart" role="img" aria-label="{said}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{ticks}{bars}</svg></div>'
        f'<details class="clab-more"><summary>The same as a table</summary><div class="clab-scroll" tabindex="0" role="group" aria-label="Memory plan">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _tick(i: int, name: str, height: int, step: int) -> str:
    x = LEFT + step * i
    return f'<line x1="{x}" x2="{x}" y1="{ROW}" y2="{height}"/><text x="{x + step // 2}" y="14" text-anchor="middle">{html.escape(name)}</text>'


def _bar(row: int, slot: Mapping[str, Any], shade: int, step: int) -> str:
    facts, y = slot["facts"], ROW * (row + 1) + 2
    x, length = LEFT + step * facts["first"], step * (facts["last"] - facts["first"] + 1)
    name, size = html.escape(_name(slot)), f"{facts['bytes'] / 1024:,.0f}K at {facts['offset'] / 1024:,.0f}K"
    inside = f'<text x="{x + 6}" y="{y + 12}">{size}</text>' if length > 7 * len(size) else ""
    return (
        f'<g><title>{name}: {facts["bytes"]:,} bytes at {facts["offset"]:,}</title><text x="{LEFT - 6}" y="{y + 12}" text-anchor="end">{name}</text>'
        f'<rect class="clab-m{shade}" x="{x + 1}" y="{y}" width="{length - 2}" height="{ROW - 4}" rx="3"/>'
        f"{inside}</g>"
    )


def _row(slot: Mapping[str, Any], names: Sequence[str]) -> str:
    facts = slot["facts"]
    cells = (_name(slot), f"{facts['bytes']:,}", f"{facts['offset']:,}", str(names[facts["first"]]), str(names[facts["last"]]))
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _name(slot: Mapping[str, Any]) -> str:
    return str(slot["id"]).rsplit("/", 1)[-1]
