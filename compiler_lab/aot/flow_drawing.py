"""A flow network drawn: as text, as DOT, and as SVG where Graphviz is there.

In: a ``FlowNetwork``, solved or not, and how many of its augmenting paths have been pushed. Out: text that is complete by itself; DOT; an SVG
that is readable on light and dark ground. Always holds: nothing is told by colour alone (a cut edge is dashed and says so, what may not
be cut says so, an edge of the last path is bold); the same network gives the same text and the same DOT; what is too large to lay out in
bounded time (``LARGEST`` edges, ``PATIENCE`` seconds) is left to the text.
PyTorch's counterpart: ``visualize_min_cut_graph`` in ``torch/_functorch/partitioners.py``, which needs pydot and draws no flow.
"""

from __future__ import annotations

import html
import itertools
import shutil
import subprocess

from .ir import INFINITE, FlowEdge, FlowNetwork

LARGEST = 400
PATIENCE = 10.0
STYLE = "<style>.clab-flow text{fill:currentColor;stroke:none}.clab-flow .edge text{font-size:11px}.clab-flow{max-width:100%;height:auto}</style>"


def network_text(network: FlowNetwork) -> str:
    """The network in words: its size, the augmenting paths in order, the cut."""
    nodes = {n for e in network.edges for n in (e.source, e.target)}
    lines = [f"{len(nodes)} nodes, {len(network.edges)} edges" + (f", costs {network.facts['cost_model']!r}" if "cost_model" in network.facts else "")]
    if network.solution is None:
        return "\n".join([*lines, "not solved"])
    lines.append(f"flow of {network.solution.value:.0f} bytes")
    for number, (path, amount) in enumerate(network.solution.paths, start=1):
        lines.append(f"path {number}: {amount:.0f} bytes: {' -> '.join(path)}")
    for edge in network.solution.cut:
        lines.append(f"cut: {edge.source} -> {edge.target}: {edge.capacity:.0f} bytes")
    return "\n".join(lines)


def network_dot(network: FlowNetwork, paths: int | None = None) -> str:
    """DOT with "flow / capacity" on each edge after the first ``paths`` augmenting paths (all by default); the cut once all are pushed."""
    solution = network.solution
    pushed = solution.paths[:paths] if solution is not None else ()
    flow: dict[tuple[str, str], float] = {}
    for path, amount in pushed:
        for pair in itertools.pairwise(path):
            back = min(flow.get((pair[1], pair[0]), 0.0), amount)  # what is pushed against a flow takes it back
            flow[pair[1], pair[0]] = flow.get((pair[1], pair[0]), 0.0) - back
            flow[pair] = flow.get(pair, 0.0) + amount - back
    last = set(itertools.pairwise(pushed[-1][0])) if pushed else set[tuple[str, str]]()
    done = solution is not None and len(pushed) == len(solution.paths)
    cut = set(solution.cut) if solution is not None and done else set[FlowEdge]()
    lines = ["digraph flow {", '  graph [rankdir="LR" bgcolor="transparent" class="clab-flow"]', '  node [shape="box" fontname="monospace" height="0.3"]']
    lines += [f"  {_quoted(name)} [shape={_quoted(shape)}]" for name, shape in (("source", "invhouse"), ("sink", "house"))]
    for edge in network.edges:
        lines.append(f"  {_quoted(edge.source)} -> {_quoted(edge.target)} [{_attributes(edge, flow.get((edge.source, edge.target), 0.0), cut, last)}]")
    return "\n".join([*lines, "}"])


def _attributes(edge: FlowEdge, flow: float, cut: set[FlowEdge], last: set[tuple[str, str]]) -> str:
    """Parallel edges show the flow of all of them: the paths do not tell them apart."""
    room = "any" if edge.capacity == INFINITE else f"{edge.capacity:.0f}"
    label = f"{flow:.0f} / {room}" + (" CUT" if edge in cut else "")
    styles = ["dashed"] if edge in cut else []
    styles += ["bold"] if (edge.source, edge.target) in last else []
    return f"label={_quoted(label)}" + (f" style={_quoted(','.join(styles))}" if styles else "")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def network_svg(network: FlowNetwork, paths: int | None = None) -> str | None:
    """An SVG element laid out by Graphviz; None where there is no ``dot``, or the network is too large to be laid out in bounded time."""
    dot = shutil.which("dot")
    if dot is None or len(network.edges) > LARGEST:
        return None
    try:
        done = subprocess.run([dot, "-Tsvg"], input=network_dot(network, paths), capture_output=True, text=True, check=True, timeout=PATIENCE)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    svg = done.stdout[done.stdout.index("<svg") :]
    for painted in ('stroke="black"', 'fill="black"'):
        svg = svg.replace(painted, painted.replace("black", "currentColor"))
    said = html.escape(network_text(network).split("\npath", 1)[0].replace("\n", ", "), quote=True)
    return svg.replace("<svg", f'<svg role="img" aria-label="{said}" class="clab-flow"', 1).replace(">", ">" + STYLE, 1)


def network_html(network: FlowNetwork) -> str:
    """The drawing where there is one, and below it everything as text and tables, without script."""
    drawn = network_svg(network)
    why = f"drawn up to {LARGEST} edges" if shutil.which("dot") else "drawn where Graphviz is installed"
    picture = f'<div style="overflow-x:auto">{drawn}</div>' if drawn is not None else f"<p>{len(network.edges)} edges: {why}.</p>"
    solution = network.solution
    if solution is None:
        return f"<section>{picture}<pre>{html.escape(network_text(network))}</pre></section>"
    paths = [(str(i), f"{amount:.0f}", " → ".join(path)) for i, (path, amount) in enumerate(solution.paths, start=1)]
    cut = [(e.source, e.target, f"{e.capacity:.0f}") for e in solution.cut]
    return (
        f"<section>{picture}<p>Maximum flow, and minimum cut: {solution.value:.0f} bytes.</p>"
        + _table("Augmenting paths, in order", ("number", "bytes", "path"), paths)
        + _table("The cut", ("from", "to", "bytes"), cut)
        + "</section>"
    )


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    row = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
    body = "".join(row(r, "td") for r in rows)
    return f"<details><summary>{title} ({len(rows)})</summary><table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table></details>"
