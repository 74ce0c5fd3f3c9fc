"""The roofline: operations for a byte against operations a second, and which of the machine's two ceilings holds a kernel back.

In: kernels with ``name``, ``program``, ``intensity``; ceilings as ``observe.kernel_data.ceilings`` measured them, or None. Out: an SVG with its twin as a
table, and the same with matplotlib (``figure``). Always holds: a point without a time stands at the height that the ceilings allow, and is said to be a bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .frame import esc, more, nbytes, new_figure, table

WIDTH, HEIGHT, LEFT, FOOT = 560, 220, 56, 30
NOT_MEASURED = "The ceilings of this machine are not measured: ask with trace.view('kernel', roofline=True). The trace holds no time of a single kernel."
BOUND = "No time of a single kernel is recorded (not measured): each point is the most that the ceilings allow, not what was reached."
Ceilings = Mapping[str, float]


def allowed(intensity: float, ceilings: Ceilings) -> float:
    """Operations a second at most."""
    return min(intensity * ceilings["bytes_per_second"], ceilings["operations_per_second"])


def roofline(kernels: Sequence[Mapping[str, Any]], ceilings: Ceilings | None) -> str:
    """HTML: the picture where the ceilings are known, and the table in any case."""
    found = [k for k in kernels if k["intensity"]]
    rows = [[esc(f"{k['name']} ({k['program']})"), f"{k['operations']:,}", f"{k['touched']:,}", f"{k['intensity']:.4g}", *_answer(k, ceilings)] for k in found]
    head = ["kernel", "operations", "bytes touched", "operations for a byte", "held back by", "at most", "time"]
    twin = table("Roofline", head, rows)
    if ceilings is None:
        return f"<p>{esc(NOT_MEASURED)}</p>{twin}"
    most = f"{ceilings['operations_per_second'] / 1e9:.3g} billion operations a second"
    said = f"A copy moves {nbytes(ceilings['bytes_per_second'])} a second; a product reaches {most}."
    return f"<p>{esc(said)} {esc(BOUND)}</p>{_picture(found, ceilings)}{more('The same as a table', twin)}"


def _answer(kernel: Mapping[str, Any], ceilings: Ceilings | None) -> list[str]:
    if ceilings is None:
        return ["not measured", "not measured", "not measured"]
    memory = kernel["intensity"] * ceilings["bytes_per_second"] < ceilings["operations_per_second"]
    return ["memory" if memory else "arithmetic", f"{allowed(kernel['intensity'], ceilings) / 1e9:.4g} billion operations a second", "not measured"]


def _picture(kernels: Sequence[Mapping[str, Any]], ceilings: Ceilings) -> str:
    ridge = ceilings["operations_per_second"] / ceilings["bytes_per_second"]
    values = [ridge, *(k["intensity"] for k in kernels)]
    low, high = math.log10(min(values)) - 0.5, math.log10(max(values)) + 0.5
    top = math.log10(ceilings["operations_per_second"]) + 0.3
    bottom = math.log10(allowed(10**low, ceilings)) - 0.2
    x = lambda v: LEFT + (WIDTH - LEFT) * (math.log10(v) - low) / (high - low)
    y = lambda v: (HEIGHT - FOOT) * (top - math.log10(v)) / (top - bottom)
    line = " ".join(f"{x(v):.1f},{y(allowed(v, ceilings)):.1f}" for v in (10**low, ridge, 10**high))
    points = "".join(
        f"<g><title>{esc(k['name'])}: {k['intensity']:.4g}</title>"
        f'<circle cx="{x(k["intensity"]):.1f}" cy="{y(allowed(k["intensity"], ceilings)):.1f}" r="4"/>'
        f'<text x="{x(k["intensity"]) + 6:.1f}" y="{y(allowed(k["intensity"], ceilings)) + 14 + 12 * (n % 3):.1f}">{esc(k["name"])}</text></g>'
        for n, k in enumerate(kernels)
    )
    said = f"Roofline of {len(kernels)} kernels; the ceilings meet at {ridge:.3g} operations for a byte"
    axis = f"operations for a byte, from {10**low:.2g} to {10**high:.2g} (logarithmic)"
    return (
        f'<svg class="clab-roof" role="img" aria-label="{esc(said)}" viewBox="0 0 {WIDTH} {HEIGHT}"><title>{esc(said)}</title>'
        f'<polyline points="{line}"/>{points}<text x="{LEFT}" y="{HEIGHT - 8}">{axis}</text></svg>'
    )


def figure(data: Mapping[str, Any]) -> Any:
    """The same with matplotlib. Raises ``ValueError`` where the ceilings were not measured."""
    ceilings = data["ceilings"]
    if ceilings is None:
        raise ValueError(NOT_MEASURED)
    if (made := new_figure(figsize=(6.4, 3.6), layout="constrained")) is None:
        return None
    axes = made.subplots()
    found = [k for k in data["kernels"] if k["intensity"]]
    ridge = ceilings["operations_per_second"] / ceilings["bytes_per_second"]
    values = [ridge, *(k["intensity"] for k in found)]
    ends = [min(values) / 3, ridge, max(values) * 3]
    axes.loglog(ends, [allowed(v, ceilings) for v in ends], label="ceilings, measured")
    axes.loglog([k["intensity"] for k in found], [allowed(k["intensity"], ceilings) for k in found], "o", label="kernels, at most (time not measured)")
    for k in found:
        axes.annotate(k["name"], (k["intensity"], allowed(k["intensity"], ceilings)), textcoords="offset points", xytext=(4, -10))
    axes.set(xlabel="operations for a byte", ylabel="operations a second", title=data["title"])
    axes.legend()
    return made
