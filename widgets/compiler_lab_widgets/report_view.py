"""The report: all views of a trace under one head, as sections that links lead to; with script (``report_view.js``) they are tabs.

In: {"title", "head", "sections": [{"name", "title", "html"}], "missing": {title: why}}. Out: HTML for the body of a page of its own.
Always holds: without script every section can be read and every link works; the sections' own HTML is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .frame import esc, frame, ident_of


def render(data: Mapping[str, Any]) -> str:
    sections = data["sections"]
    ident = ident_of("report", [data["title"], *(s["name"] for s in sections)])
    links = "".join(f'<li><a href="#{ident}-{s["name"]}" id="{ident}-tab-{s["name"]}">{esc(s["title"])}</a></li>' for s in sections)
    missing = "".join(f"<li>{esc(title)}: {esc(why)}</li>" for title, why in data["missing"].items())
    left_out = f"<details><summary>Not in this report</summary><ul>{missing}</ul></details>" if missing else ""
    body = f'<nav class="clab-tabs" aria-label="Views"><ul>{links}</ul></nav>{left_out}'
    parts = ""
    for s in sections:
        at = f"{ident}-{s['name']}"
        parts += f'<section class="clab-part" id="{at}" aria-labelledby="{ident}-tab-{s["name"]}">{s["html"]}</section>'
    return f'{frame("report", ident, data["title"], data["head"], body)}<div class="clab-parts">{parts}</div>'
