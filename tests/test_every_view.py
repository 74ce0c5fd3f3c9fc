"""Every row of ``VIEWS``: useful text, well-formed HTML of its own, plain data; hostile names and strings stay text, in a live trace and in a loaded one."""

from __future__ import annotations

import json
import linecache
import re
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets.frame import asset

import compiler_lab
from compiler_lab.core.errors import Unsupported
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import PLAIN, VIEWS, View

VOID = ("area", "br", "col", "hr", "img", "input", "link", "meta", "wbr")
ATTACK = "</script><script>alert(1)</script>'\"><img src=x onerror=alert(2)><!--"
MARK = "alert("
each = pytest.mark.parametrize("name", list(VIEWS))


class Page(HTMLParser):
    """Balances tags and notes whatever could run or fetch something."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        assert tag not in ("img", "iframe", "object", "embed", "link", "base"), tag
        values = {k: v or "" for k, v in attrs}
        assert len(values) == len(attrs), f"an attribute stands twice: {tag} {attrs}"
        self.ids += [values["id"]] if "id" in values else []
        if tag == "script":
            self.scripts.append(values.get("type", ""))
        for key, value in values.items():
            assert re.fullmatch(r"[a-zA-Z][\w:-]*", key) and not key.startswith("on"), f"{tag} {key}={value}"
            if key in ("src", "href", "xlink:href", "action", "data", "poster"):
                assert value.startswith(("#", "data:")), f"{tag} {key}={value}"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID and self.open and self.open.pop() == tag, f"</{tag}> after {self.open[-3:]}"

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)


def demo(x: torch.Tensor, w: torch.Tensor, scale: float = 0.5, mode: str = "mean") -> torch.Tensor:
    hidden = torch.nn.functional.gelu(x @ w) * scale
    torch._dynamo.graph_break()
    unused = hidden.cos()
    y = torch.softmax(hidden.view(-1, 8) + 1, -1)
    return (y * hidden).mean() if mode == "mean" else unused.sum()


def recorded(title: str, fn: Any, **options: Any) -> Trace:
    trace = Trace(title)
    compiled = compiler_lab.compile(fn, observe=trace.append)
    for rows in (4, 6):
        compiled(torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True), **options).backward()
    return trace


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    live = recorded("demo", demo)
    return {"live": live, "loaded": Trace.from_json(json.loads(json.dumps(live.to_json())))}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """A program whose function, file, constants and arguments are hostile; and the demo with an attack in every text of its saved form."""
    file = f"{tmp_path_factory.mktemp('h')}/{ATTACK.replace('/', '_')}.py"
    source = f"import torch\n# {ATTACK}\ndef attack(x, w, mode={ATTACK!r}):\n    return ((x @ w).relu() * len(mode)).sum()  # {ATTACK}\n"
    lines = [str(line) for line in source.splitlines(keepends=True)]
    linecache.cache[file] = (len(source), None, lines, file)
    scope: dict[str, Any] = {"__name__": "hostile"}
    exec(compile(source, file, "exec"), scope)
    made: types.FunctionType = scope["attack"]
    made.__code__ = made.__code__.replace(co_name=ATTACK, co_qualname=ATTACK)
    made.__name__ = made.__qualname__ = ATTACK
    trace = recorded(ATTACK, made)
    data = json.loads(json.dumps(recorded("demo", demo).to_json()))
    data["title"] = ATTACK
    data["environment"] = {ATTACK: ATTACK}
    data["sources"] = {file: [line + ATTACK for line in lines] for file, lines in data["sources"].items()}
    for artifact in data["artifacts"]:
        artifact["text"] += ATTACK
        for item in artifact["items"]:
            item["text"] += ATTACK
            item["stack"] = [{**at, "function": at["function"] + ATTACK} for at in item["stack"]]
            item["facts"][ATTACK] = ATTACK
        for decision in artifact["decisions"]:
            decision["reason"] += ATTACK
            decision["facts"][ATTACK] = ATTACK
    return {"compiled": trace, "loaded": Trace.from_json(data)}


def opened(trace: Trace, name: str) -> View:
    """The view; views of two traces get the same one twice. Skips only where the view says itself that it has nothing to show of this trace."""
    try:
        return trace.view(name, **({"other": trace} if name == "compare" else {}))
    except Unsupported as error:
        pytest.skip(f"{name} does not apply: {error.what}")


def checked(view: View) -> Page:
    text = view.html()
    page = Page(text)
    assert page.scripts.count("module") == 1 and set(page.scripts) <= {"module", "application/json"}, page.scripts
    assert len(page.ids) == len(set(page.ids)), [i for i in page.ids if page.ids.count(i) > 1]
    addresses = set(re.findall(r"\w+://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not addresses and "@import" not in text and "url(//" not in text, addresses
    return page


@each
@pytest.mark.parametrize("form", ["live", "loaded"])
def test_a_view_is_whole(traces: dict[str, Trace], name: str, form: str) -> None:
    view = opened(traces[form], name)
    json.dumps(view.data, allow_nan=False)
    assert view.data["title"]
    page = checked(view)
    assert len(" ".join(page.words).split()) > 20, "there is something to read without script"
    text = view.text()
    assert len(text.split()) > 5 and "<div" not in text, "text/plain is useful by itself"
    assert not re.search(r" at 0x[0-9a-f]{6,}", text)
    bundle = view._repr_mimebundle_()
    kept, _, said = bundle["text/plain"].rpartition("\n... ")
    cut = len(text) > PLAIN
    assert (text.startswith(kept) and 0.9 * PLAIN < len(kept) <= PLAIN and "more lines; all of them" in said) if cut else bundle["text/plain"] == text
    assert bundle["text/html"].startswith("<div")
    assert view.html() == view.html(), "the same view twice is the same text"


@each
def test_a_loaded_trace_shows_what_the_live_one_shows(traces: dict[str, Trace], name: str) -> None:
    live, loaded = (json.loads(json.dumps(opened(traces[form], name).data)) for form in ("live", "loaded"))
    assert live == loaded


@each
@pytest.mark.parametrize("form", ["compiled", "loaded"])
def test_hostile_text_stays_text(hostile: dict[str, Trace], name: str, form: str) -> None:
    view = opened(hostile[form], name)
    page = checked(view)  # a tag or an attribute out of the attack would be seen by its name, or by tags that do not balance
    assert any(MARK in word for word in page.words), "the attack is shown, as text"
    assert "<script>alert" not in view.html()


@each
def test_a_view_is_a_page_of_its_own(traces: dict[str, Trace], name: str, tmp_path: Path) -> None:
    opened(traces["loaded"], name).save(tmp_path / "view.html")
    text = (tmp_path / "view.html").read_text()
    assert text.startswith("<!doctype html>") and text.count("</html>") == 1


@each
def test_a_views_style_leaves_the_frame_of_other_views_alone(name: str) -> None:
    """A page holds several, each with its own style element, which applies to the whole page."""
    rules = re.sub(r"\{[^{}]*\}", "{}", asset(f"{name}_view.css"))
    selectors = [s.strip() for part in re.findall(r"[^{}]+(?=\{)", rules) for s in part.split(",")]
    assert not [s for s in selectors if re.search(r"\.clab-(body|head|live)\b", s) and f".clab-{name}" not in s]
