"""The view in a real browser, from a file, with the network off: tabs, links, keys, themes; the demo page and the exported lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import BrowserContext, Page, Route

import compiler_lab
from compiler_lab import demo
from compiler_lab.codegen.artifact import Kernels
from compiler_lab.observe import html
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.trace import Trace

pytestmark = pytest.mark.browser
WINDOW = 1500, 900

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "test-results"
LAB = ROOT / "solutions" / "00_what_torch_compile_sees.ipynb"
STAGES = {  # of a training step: step -> the kind of thing that its panel must show
    "capture": "placeholder", "guard": "tensor", "joint": "aten.", "functionalize": "aten.", "eliminate dead code": "aten.", "decompose": "aten.",
    "simplify views": "aten.", "eliminate common subexpressions": "aten.", "partition": "tangents", "lower, forward": "load(", "schedule, forward": "k0",
    "plan memory, forward": "at", "generate, forward": 'extern "C"', "build, forward": "mov", "lower, backward": "load(", "schedule, backward": "k0",
    "plan memory, backward": "at", "generate, backward": 'extern "C"', "build, backward": "mov",
}  # fmt: skip


class Visit:
    """A page opened from disk. What it asked the network for and what its console said are kept."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.asked: list[str] = []
        self.said: list[str] = []
        context.set_offline(True)
        context.route("**/*", self._route)
        self.page: Page = context.new_page()
        self.page.on("console", lambda m: self.said.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".clab-on")

    def _route(self, route: Route) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            self.asked.append(route.request.url)
            route.abort()

    def numbers(self, selector: str, view: str = ".clab") -> set[int]:
        """The numbers of the lines that match, by their place in the lists."""
        script = "(root, s) => [...root.querySelectorAll(s)].map(e => e.parentElement.start + [...e.parentElement.children].indexOf(e))"
        return set(self.page.locator(view).last.evaluate(script, selector))


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("a small GPT, one training step")
    model, data = demo.tiny_gpt()
    demo.train(model, compiler_lab.compile(model, fullgraph=True, observe=trace.append), data, 1)
    return trace


@pytest.fixture(scope="module")
def demo_page(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.html"
    html.save_page(trace, path)
    return path


def convert(notebook: Path, folder: Path, to: str, *options: str) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to", to, "--output-dir", str(folder), *options, str(notebook)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.fixture(scope="module")
def lab_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Lab 00, executed once, and exported in nbconvert's two themes; the addresses that its own template asks for are emptied."""
    folder = tmp_path_factory.mktemp("lab")
    convert(LAB, folder, "notebook", "--execute")
    empty = [f"--HTMLExporter.{name}_url=data:," for name in ("require_js", "mathjax", "mermaid_js", "mermaid_layout_elk_js")]
    for theme in ("light", "dark"):
        convert(folder / LAB.name, folder, "html", f"--HTMLExporter.theme={theme}", f"--output={theme}", *empty)
    return {theme: folder / f"{theme}.html" for theme in ("light", "dark")}


def every_stage(visit: Visit, view: str) -> None:
    """Each step has a tab; a click shows its panel, and only that."""
    root = visit.page.locator(view).last
    titles = {p.evaluate("e => e.querySelector('.clab-h3').firstChild.textContent.trim()"): p for p in root.locator(".clab-step").all()}
    assert set(STAGES) <= set(titles)
    for title, holds in STAGES.items():
        panel = titles[title]
        root.locator(f'.clab-nav a[href="#{panel.get_attribute("id")}"]').click()
        assert panel.is_visible() and root.locator(".clab-step:visible").count() == 1
        assert holds in (panel.text_content() or ""), title


def test_the_demo_page_shows_every_stage(context: BrowserContext, demo_page: Path, request: pytest.FixtureRequest) -> None:
    visit = Visit(context, demo_page)
    every_stage(visit, ".clab")
    PICTURES.mkdir(exist_ok=True)
    visit.page.locator(".clab-src li", has_text="F.gelu").click()
    visit.page.screenshot(path=PICTURES / f"demo_{request.node.callspec.id}.png")
    assert visit.asked == [] and visit.said == []


def test_the_page_is_bounded(demo_page: Path) -> None:
    assert demo_page.stat().st_size < 3_000_000


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_exactly_the_related_lines_light_up(context: BrowserContext, demo_page: Path, trace: Trace) -> None:
    visit = Visit(context, demo_page)
    data, links = html.view_data(trace), lineage(trace)
    keys = list(links.items)
    shown = {item["n"] for step in data["steps"] for item in step["items"]}
    for text in ("F.gelu(self.up", "F.scaled_dot_product_attention", "F.cross_entropy"):
        line = visit.page.locator(".clab-src li", has_text=text)
        line.hover()
        number = demo_line(text)
        expected = {n for n in shown if (demo.__file__, number) in links.lines[keys[n]]}
        assert expected and visit.numbers(".clab-steps .clab-hot") == expected
        assert visit.page.locator(".clab-live").inner_text().startswith(f"demo.py:{number}: ")
    visit.page.locator(".clab-nav a", has_text="generate").first.click()
    kernel = visit.page.locator(".clab-shown .clab-lines li", has_text="int k0(void").first
    kernel.hover()
    (own,) = visit.numbers(".clab-shown .clab-lines li:hover")
    expected = {own, *map(keys.index, links.ancestors(keys[own]))}
    below = {n for n in shown if keys[own] in links.ancestors(keys[n])}
    assert below and visit.numbers(".clab-steps .clab-hot") == (expected | below) & shown
    assert visit.said == []


def demo_line(text: str) -> int:
    (number,) = [k for k, line in enumerate(Path(demo.__file__).read_text().split("\n"), 1) if text in line]
    return number


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_a_line_that_is_kept_stays_lit_from_step_to_step(context: BrowserContext, demo_page: Path) -> None:
    page = Visit(context, demo_page).page
    page.locator(".clab-src li", has_text="F.gelu").click()
    for step in ("decompose", "schedule", "generate"):
        page.locator(".clab-nav a", has_text=step).first.click()
        assert page.locator(".clab-shown .clab-hot").count() > 0, step
        box = page.locator(".clab-shown .clab-hot").first.bounding_box()
        assert box is not None and 0 <= box["y"] <= 900, "the first of them is in sight"
    page.keyboard.press("Escape")
    page.locator(".clab-src li", has_text="F.gelu").hover()
    page.locator(".clab-nav a", has_text="joint").click()
    assert page.locator(".clab-hot").count() == 0, "what is only pointed at is not kept"


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_copying_gives_the_lines_as_they_stand(context: BrowserContext, demo_page: Path, trace: Trace) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = Visit(context, demo_page).page
    page.locator(".clab-nav a", has_text="generate").first.click()
    page.locator(".clab-shown .clab-sec", has_text="C++ source").get_by_role("button", name="Copy").click()
    page.wait_for_function("document.querySelector('.clab-live').textContent.startsWith('Copied')")
    lines = [item.text for item in trace.stage("generate", "forward").items() if item.kind == "line"]
    assert page.evaluate("navigator.clipboard.readText()") == "\n".join(lines)
    wrapper = page.locator(".clab-shown .clab-sec", has_text="The wrapper")
    wrapper.locator("summary").click()
    wrapper.get_by_role("button", name="Copy").click()
    text = page.evaluate("navigator.clipboard.readText()")
    kernels = trace.stage("generate", "forward")
    assert isinstance(kernels, Kernels)
    program = {line.strip() for line in kernels.unit.splitlines()}
    assert "aoti_torch" in text and {line.strip() for line in text.splitlines()} - program <= {""}, "what is copied is a part of the program"


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_a_line_that_is_gone_says_why(context: BrowserContext, demo_page: Path) -> None:
    visit = Visit(context, demo_page)
    visit.page.locator(".clab-nav a", has_text="build").first.click()
    visit.page.locator(".clab-src li", has_text="F.scaled_dot_product_attention").hover()
    assert "none in build, forward (it runs in a library's kernel" in visit.page.locator(".clab-live").inner_text()


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_everything_can_be_done_with_keys(context: BrowserContext, demo_page: Path) -> None:
    page = Visit(context, demo_page).page
    focused = lambda: str(page.evaluate("document.activeElement.textContent"))
    page.keyboard.press("Tab")  # "Beside it"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "tab"
    assert page.locator("[role=tab][tabindex='0']").count() == 1
    page.keyboard.press("ArrowDown")
    assert "guard" in focused() and "Guard tree" in page.locator(".clab-shown").inner_text()
    page.keyboard.press("End")
    assert "build" in focused() and page.locator("[role=tab][aria-selected=true]").inner_text().startswith("build")
    page.keyboard.press("Home")
    page.locator(".clab-src").first.locator("li").first.focus()
    while "F.gelu" not in focused():
        page.keyboard.press("ArrowDown")
    assert page.locator(".clab-shown .clab-hot").count() > 0
    page.keyboard.press("Enter")
    assert page.locator(".clab-pin").count() == 1
    page.keyboard.press("ArrowDown")
    assert "F.gelu" in page.locator(".clab-src .clab-hot").inner_text(), "what is kept stays lit"
    page.keyboard.press("Escape")
    assert page.locator(".clab-hot").count() == 0
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_roles_are_whole(context: BrowserContext, demo_page: Path) -> None:
    page = Visit(context, demo_page).page
    wrong = page.evaluate("""() => {
      const all = s => [...document.querySelectorAll(s)], of = (e, name) => document.getElementById(e.getAttribute(name))?.getAttribute('role');
      return [
        ...all('[role=tab]').filter(t => of(t, 'aria-controls') !== 'tabpanel'),
        ...all('[role=tabpanel]').filter(p => of(p, 'aria-labelledby') !== 'tab'),
        ...all('[role=tablist]').filter(l => !l.getAttribute('aria-label') || l.querySelector(':scope > :not([role=presentation])')),
        ...all('button,select,input').filter(b => !(b.textContent.trim() || b.labels?.length)),
      ].map(e => e.outerHTML.slice(0, 100));
    }""")
    assert wrong == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("context", ["light"], indirect=True)
def test_decisions_can_be_filtered_and_two_steps_stand_side_by_side(context: BrowserContext, demo_page: Path, trace: Trace) -> None:
    page = Visit(context, demo_page).page
    page.locator(".clab-nav a", has_text="schedule").first.click()
    page.get_by_label("Beside it").select_option(label="generate, forward")
    assert page.locator(".clab-step:visible").count() == 2
    page.locator(".clab-shown .clab-why summary").first.click()
    rows = page.locator(".clab-shown .clab-why").first.locator("tbody tr:visible td:first-child")
    decisions = trace.stage("schedule", "forward").decisions
    assert rows.count() == len(decisions), "complete"
    page.locator(".clab-shown").get_by_label("Only rows with").first.fill("would make a cycle")
    assert rows.count() == sum(d.reason == "would make a cycle" for d in decisions) > 0


def test_without_script_everything_can_be_read(chromium: Any, demo_page: Path, trace: Trace) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(demo_page.as_uri())
    steps = page.locator(".clab-step")
    assert steps.count() == len(trace.steps) and all(steps.nth(k).is_visible() for k in range(steps.count()))
    assert "F.gelu" in page.locator(".clab-src").first.inner_text()
    context.close()


def test_the_exported_lab_shows_every_stage(context: BrowserContext, lab_pages: dict[str, Path], request: pytest.FixtureRequest) -> None:
    visit = Visit(context, lab_pages[request.node.callspec.id])
    assert visit.asked == [] and visit.said == []
    every_stage(visit, ".clab")
    line = visit.page.locator(".clab").last.locator(".clab-src li", has_text="scaled_dot_product_attention")
    line.hover()
    assert visit.numbers(".clab-steps .clab-hot"), "lines of a notebook cell are linked too"
    assert (line.text_content() or "").startswith("        attended"), "indentation survives the export"
    visit.page.screenshot(path=PICTURES / f"lab00_{request.node.callspec.id}.png")
    assert visit.asked == [] and visit.said == []


def test_every_view_of_the_lab_runs_in_its_own_right(chromium: Any, lab_pages: dict[str, Path]) -> None:
    context = chromium.new_context()
    visit = Visit(context, lab_pages["light"])
    views = visit.page.locator(".clab").count()
    assert views >= 2 and visit.page.locator(".clab.clab-on").count() == views
    lines = visit.page.locator(".clab-pipeline")
    assert 2 <= lines.count() < views and all(lines.nth(k).locator(".clab-step:visible").count() == 1 for k in range(lines.count()))
    context.close()


def test_the_lab_shows_no_stage_that_it_did_not_compute() -> None:
    """A view in the committed solution carries text/plain too, and no widget state."""
    notebook: Any = nbformat.read(LAB, as_version=4)
    bundles = [o.data for c in notebook.cells for o in c.get("outputs", []) if "data" in o and "text/html" in o.data]
    assert bundles and all("text/plain" in data and "application/vnd.jupyter.widget-view+json" not in data for data in bundles)
