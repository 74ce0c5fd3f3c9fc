"""Views of a large trace: bytes of what a notebook keeps and of the report, packed panes, layouts that are ended, few elements touched."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compiler_lab_widgets import graph_layout, graph_view
from playwright.sync_api import sync_playwright

from compiler_lab.core.artifact import Decision, Item
from compiler_lab.core.errors import LabError
from compiler_lab.core.provenance import Location
from compiler_lab.observe.page import report
from compiler_lab.observe.torch_trace import RecordedArtifact
from compiler_lab.observe.trace import Step, Trace
from compiler_lab.observe.view import VIEWS, view

from .conftest import FLAGS, require
from .test_browser import Visit

STEPS = ("capture", "joint", "functionalize", "decompose", "simplify views", "eliminate common subexpressions", "eliminate dead code", "partition")
NODES, CODE = 2600, 9000  # of each graph, and of the generated code: what a training step of a 12-layer GPT-2 has


def made(stage: str, items: list[Item], decisions: tuple[Decision, ...] = ()) -> RecordedArtifact:
    return RecordedArtifact("Made", stage, "\n".join(i.text for i in items), tuple(items), decisions)


def graph(stage: str, nodes: int, above: str = "") -> RecordedArtifact:
    """Twelve blocks of equal operators; of each node the facts and the text that a real one has."""
    items: list[Item] = []
    for k in range(nodes):
        reads = sorted({k * 7 // 8, max(k - 1, 0), max(k - 5, 0)} - {k})
        text = f"n{k}: f32[64, {k % 48 + 16}] = aten.op{k % 60}.default({', '.join(f'n{r}' for r in reads)}, alpha={k % 9})"
        facts = {"name": f"n{k}", "target": f"aten.op{k % 60}.default", "value": f"f32[64, {k % 48 + 16}]", "inputs": [f"{stage}/n{r}" for r in reads]}
        facts |= {"module": f"h.{k * 12 // nodes}.part{k % 3}"} if stage == "capture" else {}
        items.append(
            Item(f"{stage}/n{k}", "call_function", text, (f"{above}/n{k}",) if above else (), (Location(__file__, k % 180 + 1, "graph", 0, 0, 0),), facts)
        )
    decisions = tuple(
        Decision("save", (f"{stage}/n{k}",), ("saved", "recomputed")[k % 2], "cheap to compute again", {"bytes": k * 64}) for k in range(0, nodes, 2)
    )
    return made(stage, items, decisions)


def tangled(nodes: int) -> RecordedArtifact:
    state, items = 12345, list[Item]()
    for k in range(nodes):
        reads: list[int] = []
        for _ in range(min(3, k)):
            state = (1103515245 * state + 12345) % 2**31
            reads.append(state // 7 % k)
        facts = {"name": f"n{k}", "target": f"aten.op{state % 97}.default", "value": f"f32[{state % 61}]", "inputs": [f"capture/n{r}" for r in reads]}
        items.append(Item(f"capture/n{k}", "call_function", f"n{k} = op{state % 97}", facts=facts))
    return made("capture", items)


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace, before = Trace("twelve <layers>"), None
    for k, name in enumerate(STEPS):
        after = graph(f"s{k}" if k else "capture", NODES if k else 1200, (f"s{k - 1}" if k > 1 else "capture") if k else "")
        trace.append(Step(name, before, after, 0.01))
        before = after
    for part in ("forward", "backward"):
        lines = [
            Item(f"{part}/k{k // 60}:L{k}", "line", f"    float tmp{k} = in_ptr{k % 9}[{k}L * x0] * (float)0.5; // {k} & more", (f"s7/n{k % NODES}",))
            for k in range(CODE)
        ]
        machine = [
            Item(
                f"{part}/k{k // 300}/i{k}",
                "assembly",
                f"  vmulps %zmm{k % 30},%zmm1",
                (f"{part}/k{k // 60}:L{k}",),
                (),
                {"kernel": f"k{k // 300}", "vector": True},
            )
            for k in range(CODE)
        ]
        code = made(f"generate.{part}", lines)
        trace.append(Step("generate", before, code, 0.1, part))
        trace.append(Step("build", code, made(f"build.{part}", machine), 0.1, part))
    return trace


@pytest.fixture(scope="module")
def pipeline(trace: Trace) -> tuple[Any, str]:
    shown = view(trace)
    return shown.data, shown.html()


def test_bytes_of_every_view_and_of_the_report(trace: Trace) -> None:
    assert sum(len(a.items()) for a in trace.artifacts()) > 50_000
    sizes: dict[str, int] = {}
    for name in VIEWS:
        try:
            shown = view(trace, name, **({"other": trace} if name == "compare" else {}))
        except LabError:
            continue
        sizes[name] = sum(len(v.encode()) for v in shown._repr_mimebundle_().values())
    assert {"pipeline", "graph", "compare"} <= sizes.keys() and max(sizes.values()) < 3_000_000, sizes
    assert len(report(trace).encode()) < 8_000_000


def unpacked(html: str) -> Any:
    (data,) = re.findall(r'class="clab-data">(.*?)</script>', html)
    return json.loads(zlib.decompress(base64.b64decode(json.loads(data)["packed"])))


def test_what_is_packed_and_what_is_html_are_together_everything(pipeline: tuple[Any, str]) -> None:
    data, html = pipeline
    far = unpacked(html)["far"]
    packed = {n: text for p in far if p["kind"] == "lines" for n, text in zip((f + k for f, c in p["n"] for k in range(c)), p["text"], strict=True)}
    lists = re.findall(r'<ol class="clab-lines" start="(\d+)">(.*?)</ol>', html)
    drawn = {int(start) + k for start, lines in lists for k in range(lines.count("<li"))}
    items = {i["n"]: i["text"] for s in data["steps"] for i in s["items"]}
    assert not drawn & packed.keys() and drawn | packed.keys() == items.keys() and drawn
    assert all(items[n] == text for n, text in packed.items())
    told = sum(len(rows) for p in far if p["kind"] == "why" for _, _, rows in p["parts"]) + html.count("<td>bytes ")
    assert told == sum(len(s["decisions"]) for s in data["steps"]) > 0
    places = re.findall(r'<details data-far="(\d+)".*?</details>', html)
    assert sorted(map(int, places)) == list(range(len(far)))
    assert html.count("Without script: <code>trace.stage(") == len(far) and "compiler-lab show FILE --stage generate --format text" in html


def test_a_trace_of_usual_size_is_all_html() -> None:
    small = Trace("small", [Step("capture", None, graph("capture", 900), 0.0)])
    html = view(small).html()
    assert "<details data-far" not in html and html.count("<li") >= 900


def test_a_layout_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "dot"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(graph_layout, "PATIENCE", 0.2)
    data = view(Trace("g", [Step("capture", None, graph("capture", 60), 0.0)]), "graph").data
    html = graph_view.render(data)
    assert "Graphviz was not done after 0.2 s, and was ended" in html and html.count('class="clab-n ') >= 60


def test_a_tangled_graph_of_5000_nodes_starts_with_few_boxes() -> None:
    html = view(Trace("tangled", [Step("capture", None, tangled(5000), 0.0)]), "graph").html()
    boxes = len(re.findall(r'<g class="clab-n [^>]*data-k', html))
    edges = len(re.findall(r"<path data-e", html))
    assert 0 < boxes <= graph_view.START + graph_layout.ROW and edges <= boxes**2
    assert "5,000 nodes would not be readable at once" in html


# ------------------------------------------------------------------------------------------------------------ in a browser


@pytest.fixture(scope="module")
def page(pipeline: tuple[Any, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from compiler_lab.observe.html import document

    path = tmp_path_factory.mktemp("large") / "large.html"
    path.write_text(document("large", pipeline[1]))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=FLAGS)
        visit = Visit(browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce"), path)
        visit.page.wait_for_selector(".clab-linked")
        yield visit.page
        assert visit.said == [] and visit.asked == []
        browser.close()


TOUCHED = """(act) => new Promise(done => {
  const seen = new Set(), watch = new MutationObserver(rs => rs.forEach(r => { seen.add(r.target); r.addedNodes.forEach(n => seen.add(n)); }));
  watch.observe(document.querySelector('.clab'), {subtree: true, childList: true, attributes: true});
  new Function(act)();
  setTimeout(() => { watch.disconnect(); done(seen.size); }, 300);
})"""


@pytest.mark.browser
def test_a_pane_is_drawn_when_it_is_opened_with_its_lines_linked(page: Any, trace: Trace) -> None:
    page.locator(".clab-nav a", has_text="generate").first.click()
    pane = page.locator(".clab-shown details.clab-far").first
    assert pane.locator("li").count() == 0 and "Without script" in (pane.text_content() or "")
    pane.locator("summary").click()
    page.wait_for_selector(".clab-shown .clab-drawn li")
    code = trace.stage("generate", "forward").items()
    assert pane.locator("li").all_text_contents() == [i.text for i in code]
    line = pane.locator("li").nth(150)
    line.click()
    assert "clab-pin" in (line.get_attribute("class") or "") and page.locator(".clab-src .clab-hot").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".clab-hot").count() == 0
    assert (pane.locator("li i").first.get_attribute("class") or "") in "kmcs"


@pytest.mark.browser
def test_an_event_touches_what_is_shown_only(page: Any) -> None:
    """A step by its tab, and a line of the user's that thousands of lines come of."""
    steps = page.locator(".clab-step").count()
    assert page.evaluate(TOUCHED, "document.querySelectorAll('.clab-nav a')[3].click()") <= 4 * steps
    lines = page.locator(".clab-shown .clab-lines li").count()
    assert page.evaluate(TOUCHED, "document.querySelectorAll('.clab-src li')[40].click()") <= lines + 4 * steps + 40
    page.keyboard.press("Escape")


@pytest.mark.browser
def test_long_tables_of_decisions_are_drawn_in_part_and_searched_whole(page: Any, pipeline: tuple[Any, str]) -> None:
    page.locator(".clab-nav a", has_text="decompose").click()
    why = page.locator(".clab-shown details.clab-far", has_text="Why").first
    why.locator("summary").click()
    rows = why.locator("tbody tr td:first-child")
    rows.first.wait_for()
    assert rows.count() == 300
    why.locator("input").fill(f"n{NODES - 2}")
    assert rows.all_text_contents() == [f"n{NODES - 2}"]
