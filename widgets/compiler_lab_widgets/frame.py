"""The frame that every view stands in, and the pieces of HTML that they share.

In: a view's name, heading, body and data. Out: one HTML fragment that needs nothing else: style, body, data as JSON, script.
Always holds: complete without script; no external address; every rule prefixed ``clab``; ``data`` cannot end its script element; keys stay inside.
A view ``NAME`` is ``NAME_view.py`` (``render(data)``, ``text(data)``), ``NAME_view.js`` and, where it needs rules of its own, ``NAME_view.css``. Its script
calls ``mount("NAME", start)`` of ``base.js``, which stands before it; ``start`` gets the root element and the data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from pygments import lex
from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, String

COLOURS = ((Comment, "c"), (Keyword, "k"), (String, "s"), (Number, "m"), (Name.Function, "f"), (Name.Builtin, "k"))
LINES = 'from "./lines.js"'
LONG_TABLE = 100  # rows of one part of a long table
IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)


def frame(name: str, ident: str, title: str, head: str, body: str, data: Any = None) -> str:
    """The whole view. ``title`` and ``head`` are plain text, ``body`` is HTML; ``data`` is what the script is given."""
    return (
        f'<div class="clab clab-{name}" id="{ident}" data-view="{name}" data-lm-suppress-shortcuts="true"><style>{style(name)}</style>'
        f'<div class="clab-head"><div>{heading(2, esc(title))}<p>{esc(head)}</p></div></div>'
        f'<div class="clab-body">{body}</div><p class="clab-live" role="status"></p>'
        f'<script type="application/json" class="clab-data">{as_json(data)}</script><script type="module">{script(name)}</script></div>'
    )


def ident_of(name: str, parts: Iterable[str]) -> str:
    """An id for the root that is the same for the same content."""
    return f"clab-{hashlib.sha256(chr(10).join([name, *parts]).encode()).hexdigest()[:8]}"


def as_json(data: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or opens a comment."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def packed(data: Any) -> str:
    """JSON, compressed, as text: what a script gets by ``unpack`` of ``base.js``. For data that would make an output too large."""
    return base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 6)).decode()


def style(name: str) -> str:
    return asset("base.css") + asset(f"{name}_view.css")


def script(name: str) -> str:
    """The text of ``base.js``, of ``lines.js`` where the view links lines, and after them the view's; their imports of each other are left out."""
    own = asset(f"{name}_view.js")
    lines = IMPORT.sub("", asset("lines.js")) if LINES in own else ""
    return asset("base.js") + lines + IMPORT.sub("", own)


def asset(name: str) -> str:
    file = resources.files(__package__ or __name__).joinpath(name)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


# ---- pieces ----


def highlight(code: str, lexer: type[Lexer]) -> list[str]:
    """Lines as HTML. Spaces join what follows them: parsers of HTML, nbconvert's among them, shorten text that is nothing but spaces."""
    lines, current, spaces = [], list[str](), ""
    for token, value in lex(code, lexer(stripnl=False, ensurenl=False)):
        css = next((name for kind, name in COLOURS if token in kind), "")
        for k, piece in enumerate(value.split("\n")):
            if k:
                lines.append("".join(current))
                current, spaces = [], ""
            if not piece or piece.isspace():
                spaces += piece
                continue
            current.append(f'<i class="{css}">{spaces}{esc(piece)}</i>' if css else spaces + esc(piece))
            spaces = ""
    return [*lines, "".join(current)]


def heading(level: int, markup: str) -> str:
    """A heading that a notebook's table of contents does not take for one of its own."""
    return f'<div class="clab-h{level}" role="heading" aria-level="{level}">{markup}</div>'


def more(summary: str, markup: str, css: str = "") -> str:
    return f'<details class="clab-more {css}"><summary>{summary}</summary>{markup}</details>'.replace(' "', '"')


def table(label: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself; cells are HTML. The twin of every picture. A long one is several, one after the other under equal heads, so that
    the browser lays out those in sight only. A group and no landmark: a notebook holds many views, and so many of one name."""
    top = "".join(f'<th scope="col">{esc(h)}</th>' if h else "<td></td>" for h in head)
    lines = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows]
    some = LONG_TABLE if 2 * len(lines) > 3 * LONG_TABLE else max(len(lines), 1)
    parts = [lines[k : k + some] for k in range(0, max(len(lines), 1), some)]
    size = lambda part: f' class="clab-apart" style="contain-intrinsic-size:auto {len(part) * 24}px"' if len(parts) > 1 else ""
    markup = "".join(f"<div{size(part)}><table><thead><tr>{top}</tr></thead><tbody>{''.join(part)}</tbody></table></div>" for part in parts)
    markup = markup if len(parts) > 1 else markup[len("<div>") : -len("</div>")]
    return f'<div class="clab-scroll" tabindex="0" role="group" aria-label="{esc(label)}">{markup}</div>'


def new_figure(**options: Any) -> Any:
    """An empty ``matplotlib.figure.Figure``; where matplotlib is not installed None, after a line that says what to install."""
    try:
        return importlib.import_module("matplotlib.figure").Figure(**options)
    except ImportError as error:
        print(f"figures need {error.name}: pip install matplotlib; here are the numbers")
        return None


def count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.0f} ms" if value >= 0.01 else f"{value * 1e3:.1f} ms"


def nbytes(value: float) -> str:
    """Bytes with three digits: 512 bytes, 3.25 kB, 1.20 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} bytes"


def esc(text: str) -> str:
    return html.escape(text)
