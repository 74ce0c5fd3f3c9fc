"""Graph breaks: each with the code around it, why Python goes on there, what to write instead, and the graphs that it cost.

In: the data of ``compiler_lab.observe.breaks_data``. Out: an HTML fragment that needs no script; with script (``breaks_view.js``) panes can be copied
and keys go from break to break.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pygments.lexers.python import PythonLexer

from .frame import count, esc, frame, heading, highlight, ident_of, more, table

Break = Mapping[str, Any]
HEAD = "Where capture meets what it cannot model, the graph ends, Python goes on, and what follows becomes a graph of its own: nothing fuses across. Lab 05."

HERE = ' class="clab-hot" data-here="the graph ends here"'


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.breaks_data``."""
    breaks: list[Break] = list(data["breaks"])
    ident = ident_of("breaks", [data["title"], *(b["what"] + b["place"] for b in breaks)])
    if not breaks:
        body = f"<p>No graph breaks: all of it was captured, in {count(data['graphs'], 'graph')}.</p>"
    else:
        rows = [[f'<a href="#{ident}-{n}">{esc(b["place"])}</a>', esc(b["reason"]), str(b["met"]), esc(cost(b))] for n, b in enumerate(breaks)]
        body = table("All breaks", ("where", "reason", "met", "what it cost"), rows)
        body += "".join(_one(b, f"{ident}-{n}") for n, b in enumerate(breaks))
    head = f"{count(len(breaks), 'break')}, {count(data['graphs'], 'graph')}. {HEAD}"
    return frame("breaks", ident, f"{data['title']}: graph breaks", head, body, None)


def text(data: Mapping[str, Any]) -> str:
    """Each break in some lines."""
    parts: list[str] = []
    for b in data["breaks"]:
        lines = [f"{b['place']}: {b['what']}", f"  why: {b['why']}" if b["why"] else ""]
        lines += [f"  {'>' if b['first'] + k == b['line'] else ' '} {b['first'] + k:4d}  {line}".rstrip() for k, line in enumerate(b["lines"])]
        lines += [f"  do: {b['hint']}" if b["hint"] else "", f"  cost: {cost(b)}"]
        parts.append("\n".join(line for line in lines if line))
    return "\n\n".join(parts) or "no graph breaks"


def cost(one: Break) -> str:
    """In graphs."""
    if one["whole"]:
        return "Python runs all of this frame, or graph"
    after = [pair for pair in one["cut"] if pair[1] is not None]
    if not after:
        return "no graph follows it: what is left is Python's"
    pairs = ", ".join(f"graph {a} ends here and graph {b} goes on" for a, b in after[:3]) + (" and so on" if len(after) > 3 else "")
    return f"{count(len(after), 'graph')} more: {pairs}"


def _one(one: Break, ident: str) -> str:
    inside = f" in {esc(one['function'])}" if one["function"] else ""
    title = heading(3, f"{esc(one['what'])} <small>{esc(one['place'])}{inside}</small>")
    why = f"<p><strong>Why:</strong> {esc(one['why'])}.</p>" if one["why"] else ""
    met = f" It was met {one['met']} times." if one["met"] > 1 else ""
    said = f"<p><strong>What it cost:</strong> {esc(cost(one))}.{met}</p>"
    hint = f"<p><strong>What to write instead:</strong> {esc(one['hint'].splitlines()[0])}.</p>" if one["hint"] else ""
    hint += f'<div class="clab-sec">{heading(4, "Add this")}<pre tabindex="0">{esc(one["hint"])}</pre></div>' if "\n" in one["hint"] else ""
    stack = "".join(f"<li>{esc(s)}</li>" for s in one["stack"])
    nested = more(f"The calls that led here <small>{len(one['stack'])}</small>", f"<ol>{stack}</ol>") if len(one["stack"]) > 1 else ""
    at = f"<p><small>instruction {esc(one['instruction'])}, reason {esc(one['reason'])}</small></p>" if one["instruction"] else ""
    label = esc(one["what"])
    inner = f"{title}{_code(one)}{why}{said}{hint}{_rewrite(one)}{nested}{at}"
    return f'<section class="clab-breaks-one" id="{ident}" aria-label="{label}" tabindex="-1">{inner}</section>'


def _code(one: Break) -> str:
    if not one["lines"]:
        return "<p>The source of this line is not in the trace.</p>"
    rows = "".join(
        f'<li data-l="{n}"{HERE if n == one["line"] else ""}>{line}</li>'
        for n, line in enumerate(highlight("\n".join(one["lines"]), PythonLexer), one["first"])
    )
    return f'<div class="clab-sec"><ol class="clab-lines">{rows}</ol></div>'


def _rewrite(one: Break) -> str:
    """A small program that breaks for the same reason, and one that says the same and does not."""
    if not one["before"]:
        return ""
    pane = lambda title, code: (
        f'<div class="clab-sec">{heading(4, title)}<ol class="clab-lines">{"".join(map("<li>{}</li>".format, highlight(code, PythonLexer)))}</ol></div>'
    )
    return f'<div class="clab-breaks-pair">{pane("Breaks, for example", one["before"])}{pane("Is captured whole", one["after"])}</div>'
