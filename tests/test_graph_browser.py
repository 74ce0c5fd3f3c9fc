"""The graph view in a real browser, from a file, with the network off: fold and unfold, search, walk by keys, read the facts back, both themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import BrowserContext, Page

import compiler_lab
from compiler_lab import demo
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import View

pytestmark = pytest.mark.browser
WINDOW = 1500, 950

PICTURES = Path(__file__).parent.parent / "test-results"


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[View, Path]]:
    trace = Trace("a small GPT, one training step")
    model, data = demo.tiny_gpt()
    demo.train(model, compiler_lab.compile(model, fullgraph=True, backend="aot_eager_decomp", observe=trace.append), data, 1)
    made = {"joint": trace.view("graph", stage="joint"), "difference": trace.view("graph", stage="decompose", against="functionalize")}
    small = Trace("small")
    compiler_lab.compile(lambda x: torch.relu(x + 1) * x, backend="eager", observe=small.append)(torch.ones(3))
    made["small"] = small.view("graph")
    folder = tmp_path_factory.mktemp("graphs")
    for name, one in made.items():
        one.save(folder / f"{name}.html")
    return {name: (one, folder / f"{name}.html") for name, one in made.items()}


class Visit:
    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.said: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("request", lambda r: self.said.append(r.url) if not r.url.startswith("file:") else None)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".clab-on")

    def keys(self) -> list[int]:
        """The boxes that are seen, but for open groups."""
        return sorted(int(k) for k in self.page.eval_on_selector_all(".clab-n[data-k]", "es => es.map(e => e.dataset.k)"))

    def focused(self) -> str:
        return self.page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''")

    def fact(self, name: str) -> str:
        return self.page.locator(".clab-g-side dt", has_text=name).locator("xpath=following-sibling::dd[1]").inner_text()


def test_folds_unfolds_finds_and_says_the_artifacts_numbers(
    context: BrowserContext, views: dict[str, tuple[View, Path]], request: pytest.FixtureRequest
) -> None:
    made, path = views["joint"]
    nodes: Any = made.data["nodes"]
    visit = Visit(context, path)
    page = visit.page
    start = visit.keys()
    assert len(start) < 150 < len(nodes) and page.get_by_text("start folded").is_visible()
    folded = page.locator(".clab-fold").first
    key, title = folded.get_attribute("data-k"), folded.get_attribute("aria-label")
    folded.press("Enter")
    assert len(visit.keys()) > len(start) and page.locator(f".clab-box[data-k='{key}']").get_attribute("aria-expanded") == "true"
    page.keyboard.press("Enter")
    assert visit.keys() == start and visit.focused() == title, "Enter folds it again, and the focus stays"
    page.get_by_role("searchbox").fill("aten.addmm")
    found = [k for k, n in enumerate(nodes) if "aten.addmm" in n["op"]]
    assert page.locator(".clab-g-bar small").inner_text() == f"{len(found)} nodes"
    for k in found[:3]:
        page.keyboard.press("Enter")
        assert page.locator(f".clab-sel[data-k='{k}']").count() == 1, "a hit inside of folded groups is unfolded and chosen"
        assert visit.fact("bytes") == f"{nodes[k]['bytes']:,}" and visit.fact("operator") == nodes[k]["op"]
        reads = page.locator(".clab-g-side dt", has_text="reads").locator("xpath=following-sibling::dd[1]//button")
        assert reads.all_text_contents() == [nodes[i]["name"] for i in nodes[k]["inputs"]]
        assert visit.fact("module") == nodes[k]["module"]
    page.locator("select").select_option("bytes")
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"graph_{request.node.callspec.id}.png")
    page.get_by_label("Fold all groups", exact=True).click()
    assert len(visit.keys()) == len(made.data["tree"]["members"])
    assert visit.said == []


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_keys_walk_along_edges_and_do_not_leave(context: BrowserContext, views: dict[str, tuple[View, Path]]) -> None:
    made, path = views["small"]
    nodes: Any = made.data["nodes"]
    visit = Visit(context, path)
    page = visit.page
    page.evaluate("document.addEventListener('keydown', e => { window.leaked = (window.leaked ?? '') + e.key; })")
    page.locator("[data-k='0']").focus()
    names = [visit.focused().split(":")[0]]
    for _ in range(3):
        page.keyboard.press("ArrowDown")
        names.append(visit.focused().split(":")[0])
    assert names == [n["name"] for n in nodes[:4]], "x, x + 1, relu, their product"
    page.keyboard.press("ArrowUp")
    assert visit.focused().split(":")[0] in (nodes[0]["name"], nodes[2]["name"])
    page.keyboard.press("+")
    assert "Zoom" in page.locator(".clab-live").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".clab-sel").count() == 0 and page.evaluate("window.leaked ?? ''") == ""
    assert visit.said == []


def test_a_difference_shows_its_marks_and_reasons(context: BrowserContext, views: dict[str, tuple[View, Path]]) -> None:
    made, path = views["difference"]
    nodes: Any = made.data["nodes"]
    visit = Visit(context, path)
    gone = next(n for n in nodes if n["mark"] == "-" and n["decisions"])
    visit.page.get_by_role("searchbox").fill(f"{gone['name']} {gone['op']}")
    visit.page.keyboard.press("Enter")
    assert visit.fact("difference") == "removed" and visit.page.locator(".clab-g-side li").count() == len(gone["decisions"])
    for mark, css in (("~", 0), ("+", 1), ("-", 2)):
        shown = visit.page.locator(f".clab-n.clab-mark{css}[data-k]")
        assert all((t or "").startswith(mark) for t in shown.all_text_contents())
    assert visit.said == []


def test_without_script_the_picture_and_every_node_are_there(chromium: Any, views: dict[str, tuple[View, Path]]) -> None:
    made, path = views["joint"]
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator(".clab-g-svg").is_visible()
    assert page.locator("details tbody tr").count() == len(made.data["nodes"])
    context.close()
