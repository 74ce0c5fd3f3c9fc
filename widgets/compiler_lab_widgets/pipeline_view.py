"""The pipeline view: every step of a compile, with linked lines from the user's source to the machine code.

In: the plain data of ``compiler_lab.observe.html.view_data``. Out: an HTML fragment that is complete without script: the source, then
one ``<details>`` for each step with its lines, decisions and text. With script (``pipeline_view.js``) the steps become tabs, two
of them can stand side by side, and a line under the pointer or the cursor lights up everything it comes from and
everything made of it. Always holds: all text is escaped, no external address, every rule is prefixed ``clab``.
"""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers.asm import GasLexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String

SECTIONS: dict[str, str] = {
    "instruction": "Bytecode",
    "new_instruction": "Bytecode that replaces it",
    "guard": "Guards: what must hold for this code to run",
    "break": "Graph breaks",
    "placeholder": "Graph",
    "get_attr": "Graph",
    "call_function": "Graph",
    "call_method": "Graph",
    "output": "Graph",
    "line": "C++ source",
    "wrapper": "The wrapper that calls the kernels",
    "assembly": "Assembly",
    "slot": "Memory plan",
}
LEXERS: dict[str, type[Lexer]] = {"line": CppLexer, "wrapper": PythonLexer, "assembly": GasLexer}
COLOURS = ((Comment, "c"), (Keyword, "k"), (String, "s"), (Number, "m"), (Name.Function, "f"), (Name.Builtin, "k"))
EXPLANATIONS: dict[str, str] = {
    "capture": "The frame's bytecode was run symbolically: tensor operations became nodes, everything else was done once. Guards say when this may be reused.",
    "joint": "Forward and backward, traced together below autograd: every node is one aten operator.",
    "functionalize": "No node writes to a tensor any more: in-place operators became pure ones, and writes through views were put back into their base.",
    "eliminate dead code": "Nodes that no output needs are gone.",
    "decompose": "Large operators are opened into small ones, so that their pieces can fuse with their neighbours.",
    "simplify views": "Views of views became one, views that change nothing are gone.",
    "eliminate common subexpressions": "The same operator on the same operands is computed once.",
    "partition": "The joint graph is cut in two. What crosses the cut is kept in memory until the backward; the rest is recomputed.",
    "lower": "Every operator is a loop over an index, or a call of a library. Views cost nothing: they are strides.",
    "schedule": "Loops that share data became one kernel, if nothing spoke against it; each pair has its reason.",
    "plan memory": "Buffers that never live at the same time share one place.",
    "generate": "One C++ function for each kernel, and the Python that calls them in order.",
    "build": "What the C++ compiler made of it.",
}


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.html.view_data``."""
    steps = list(data["steps"])
    titles = [_title(step) for step in steps]
    nav = "".join(f'<li><a href="#" data-step="{i}"{_dim(step)}>{_esc(t)}</a></li>' for i, (t, step) in enumerate(zip(titles, steps, strict=True)))
    graphs = len({step["graph"] for step in steps})
    seconds = sum(step["seconds"] for step in steps)
    environment = ", ".join(f"{k} {v}" for k, v in data["environment"].items())
    head = f"{graphs} graph{'s' if graphs != 1 else ''}, {len(steps)} steps, {seconds:.2f} s to compile; {environment}"
    panels = "".join(_panel(i, t, step) for i, (t, step) in enumerate(zip(titles, steps, strict=True)))
    return (
        f'<div class="clab" data-lm-suppress-shortcuts="true"><style>{_asset("pipeline_view.css")}</style>'
        f'<header class="clab-head"><h2>{_esc(data["title"])}</h2><p>{_esc(head)}</p></header>'
        f'<div class="clab-body"><nav class="clab-nav" aria-label="Steps of the compile"><ol>{nav}</ol></nav>'
        f'<div class="clab-panes"><section class="clab-source" aria-label="Your source"><h3>Your source</h3>{_sources(data["sources"])}</section>'
        f'<div class="clab-steps">{panels}</div></div></div>'
        f'<p class="clab-live" aria-live="polite"></p><script type="module">{_asset("pipeline_view.js")}</script></div>'
    )


def _title(step: Mapping[str, Any]) -> str:
    part = f", {step['part']}" if step["part"] else ""
    return f"{step['name']}{part}" + (f" (graph {step['graph']})" if step["graph"] else "")


def _dim(step: Mapping[str, Any]) -> str:
    return "" if step["changed"] else ' class="clab-same" title="this step changed nothing"'


def _panel(i: int, title: str, step: Mapping[str, Any]) -> str:
    explanation = EXPLANATIONS.get(step["name"], "")
    note = "" if step["changed"] else "<p><em>This step changed nothing.</em></p>"
    body = "".join(
        _section(name, list(items)) for name, items in itertools.groupby(step["items"], key=lambda item: SECTIONS.get(item["kind"], _plural(item["kind"])))
    )
    return (
        f'<details class="clab-step" data-step="{i}"><summary>{_esc(title)} <small>{step["seconds"] * 1e3:.1f} ms</small></summary>'
        f"<p>{_esc(explanation)}</p>{note}{body}{_decisions(step['decisions'])}{_text(step['text'])}</details>"
    )


def _section(name: str, items: list[Mapping[str, Any]]) -> str:
    painted = _paint(items)
    lines = "".join(_line(item, text) for item, text in zip(items, painted, strict=True))
    return f'<h4>{_esc(name)}</h4><div class="clab-lines" role="list">{lines}</div>'


def _line(item: Mapping[str, Any], painted: str) -> str:
    up = f' data-p="{" ".join(map(str, item["up"]))}"' if item["up"] else ""
    src = f' data-s="{" ".join(map(str, item["src"]))}"' if item["src"] else ""
    where = f' title="{_esc(item["where"])}"' if item["where"] else ""
    return f'<div class="clab-l" role="listitem" data-n="{item["n"]}"{up}{src}{where}>{painted or "&nbsp;"}</div>'


def _sources(sources: Iterable[Mapping[str, Any]]) -> str:
    blocks: list[str] = []
    for source in sources:
        painted = _highlight("\n".join(source["lines"]), PythonLexer)
        lines = "".join(
            f'<div class="clab-l" role="listitem" data-src="{n}"><span class="clab-no">{source["first"] + k}</span>{text or "&nbsp;"}</div>'
            for k, (n, text) in enumerate(zip(source["numbers"], painted, strict=True))
        )
        blocks.append(f'<h4>{_esc(source["name"])}</h4><div class="clab-lines" role="list">{lines}</div>')
    return "".join(blocks) or "<p>Source not available.</p>"


def _decisions(decisions: list[Mapping[str, Any]]) -> str:
    if not decisions:
        return ""
    facts: Callable[[Mapping[str, Any]], str] = lambda d: ", ".join(f"{k} {_plain(v)}" for k, v in d["facts"].items())
    cells = [(d["kind"], ", ".join(s.split("/", 1)[-1] for s in d["subject"]), d["outcome"], d["reason"], facts(d)) for d in decisions]
    rows = "".join("<tr>" + "".join(f"<td>{_esc(c)}</td>" for c in row) + "</tr>" for row in cells)
    head = "".join(f'<th scope="col">{h}</th>' for h in ("kind", "subject", "outcome", "reason", "facts"))
    summary = f"Decisions ({len(decisions)})"
    return f'<details class="clab-more"><summary>{summary}</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>'


def _text(text: str) -> str:
    copy = '<button type="button" class="clab-copy">Copy</button>'
    return f'<details class="clab-more"><summary>As text</summary>{copy}<pre tabindex="0">{_esc(text)}</pre></details>'


def _paint(items: list[Mapping[str, Any]]) -> list[str]:
    """Each item's text as HTML, coloured where its kind has a lexer."""
    lexer = LEXERS.get(items[0]["kind"])
    one_line = all("\n" not in item["text"] for item in items)
    if lexer is None or not one_line or any(item["kind"] != items[0]["kind"] for item in items):
        return [_esc(item["text"]) for item in items]
    return _highlight("\n".join(item["text"] for item in items), lexer)


def _highlight(code: str, lexer: type[Lexer]) -> list[str]:
    lines, current = [], list[str]()
    for token, value in lex(code, lexer(stripnl=False, ensurenl=False)):
        css = next((name for kind, name in COLOURS if token in kind), "")
        for k, piece in enumerate(value.split("\n")):
            if k:
                lines.append("".join(current))
                current = []
            if piece:
                current.append(f'<span class="clab-{css}">{_esc(piece)}</span>' if css else _esc(piece))
    return [*lines, "".join(current)]


def _plural(kind: str) -> str:
    words = kind.replace("_", " ")
    return words[:1].upper() + words[1:] + "s"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _esc(text: str) -> str:
    return html.escape(text)


def _asset(name: str) -> str:
    return resources.files(__package__ or __name__).joinpath(name).read_text(encoding="utf-8")
