"""Lab 00 in JupyterLab, as a learner has it before them: one server, one browser, one page for the file.

The notebook is the committed lab and, behind it, a scratch cell for each row of ``VIEWS`` that shows the view as a widget. All its cells run once, from the
keyboard. Then every view is driven by mouse and by keys alone, axe looks at them in both themes, a cell is inspected from the toolbar, the saved notebook is
exported and opened without a network, and last the kernel is restarted under the widgets. ``MOUSE`` and ``KEYS`` say what is done in a view; whatever row of
``VIEWS`` they do not name yet is driven by what every view has: sliders are dragged, tabs and buttons are pressed.
With COMPILER_LAB_SCREENSHOTS=FOLDER each view's picture is kept there, light and dark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import field as keep
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from compiler_lab.observe.view import VIEWS

from .conftest import FLAGS, require
from .jupyter_server import ROOT, TOKEN, jupyterlab
from .test_axe_browser import found
from .test_browser import Visit

pytestmark = pytest.mark.browser

LAB = ROOT / "labs" / "00_what_torch_compile_sees.ipynb"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
PROGRAM = """\
class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2)))

    def forward(self, x):
        hidden = self.blocks(x)
        torch._dynamo.graph_break()
        return (torch.softmax(hidden + 1, -1) * hidden).mean()

model = Blocks()
recorded = Trace("scratch")
made = compiler_lab.compile(model, observe=recorded.append, options={"film": True})
made(torch.randn(4, 8)).backward()
with torch.no_grad():
    made(torch.randn(6, 8))
first, second = (Trace(title, recorded.steps[:9]) for title in ("one", "the same"))"""
SCRATCH = {
    "program": PROGRAM,
    **{
        f"live-{name}": f'{"first" if name == "compare" else "recorded"}.view("{name}"{", other=second" if name == "compare" else ""}).live()' for name in VIEWS
    },
    "inspected": "model(torch.ones(2, 8))",
    "refused": "%%capture kept\nmodel(torch.ones(2, 8))",
}


@dataclass
class Lab:
    """The notebook on the page. A cell is named by its id, which the file keeps and the page does not show."""

    page: Page
    path: Path
    cells: list[Any]
    said: list[str] = keep(default_factory=list[str])
    asked: list[str] = keep(default_factory=list[str])

    def cell(self, ident: str) -> Locator:
        (number,) = [n for n, c in enumerate(self.cells) if c.id == ident]
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def live(self, name: str) -> Locator:
        """The view that the scratch cell of this row shows, in sight."""
        root = self.cell(f"live-{name}").locator(f".clab-{name}.clab-on")
        root.scroll_into_view_if_needed()
        return root

    def command(self, name: str) -> None:
        """A command by its name in the palette, from the keyboard."""
        chosen = self.page.locator(".lm-CommandPalette-item.lm-mod-active:visible", has_text=re.compile(name, re.IGNORECASE)).first
        for _ in range(5):
            self.page.keyboard.press("Control+Shift+C")
            try:
                expect(self.page.locator(".lm-CommandPalette-input:visible")).to_be_focused(timeout=2000)
                self.page.keyboard.type(name)
                chosen.wait_for(timeout=2000)
                break
            except (AssertionError, PlaywrightTimeout):
                self.page.keyboard.press("Escape")  # the page was not ready for keys
        self.page.keyboard.press("Enter")
        chosen.wait_for(state="hidden")

    def idle(self) -> None:
        self.page.evaluate("jupyterapp.restored.then(() => null)")
        self.page.wait_for_function("jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=120_000)

    def focus(self) -> str:
        return str(self.page.evaluate("document.activeElement.closest('[data-view]')?.dataset.view ?? ''"))

    def tab_into(self, name: str, key: str = "Tab") -> None:
        """From the notebook's cell into its output, by keys alone."""
        for _ in range(12):
            self.page.keyboard.press(key)
            if self.focus() == name:
                return
        pytest.fail(f"{key} does not lead into the view {name}")

    def tab_to(self, name: str, selector: str) -> Locator:
        """On to the element of the view, by Tab alone."""
        for _ in range(60):
            if self.page.evaluate("s => document.activeElement.matches(s)", selector):
                return self.page.locator(":focus")
            self.page.keyboard.press("Tab")
            assert self.focus() == name, f"Tab leaves the view {name} before {selector}"
        pytest.fail(f"Tab does not reach {selector} of {name}")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab with the notebook, all of whose cells have run: from the palette, without the mouse."""
    chromium, folder, notebooks = require("chromium"), tmp_path_factory.mktemp("jupyter"), tmp_path_factory.mktemp("notebooks")
    notebook = nbformat.read(LAB, as_version=4)
    for ident, source in SCRATCH.items():
        cell = nbformat.v4.new_code_cell(source)
        cell.id = ident
        notebook.cells.append(cell)
    path = notebooks / LAB.name
    nbformat.write(notebook, path)
    settings = {"@jupyterlab/apputils-extension:themes": {"theme": THEMES["light"]}}
    with jupyterlab(folder, notebooks, settings) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_context(viewport={"width": 1500, "height": 1000}, reduced_motion="reduce").new_page()
        made = Lab(page, path, notebook.cells)
        page.set_default_timeout(15_000)
        page.on(
            "console", lambda m: made.said.append(m.text) if m.type == "error" and "404" not in m.text else None
        )  # JupyterLab asks for files that need not be
        page.on("pageerror", lambda e: made.said.append(str(e)))
        page.on("request", lambda r: made.asked.append(r.url) if not r.url.startswith((url, url.replace("http", "ws"), "data:", "blob:")) else None)
        page.goto(f"{url}/lab/tree/{LAB.name}?token={TOKEN}")
        page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
        made.idle()
        made.command("Run All Cells")
        last = made.cell("refused").locator(".jp-InputPrompt")
        expect(last).to_have_text(re.compile(r"\[\d+\]"), timeout=240_000)
        yield made
        browser.close()


each = pytest.mark.parametrize("name", list(VIEWS))


def test_all_cells_have_run_and_every_view_is_alive(lab: Lab) -> None:
    """What fails is what a learner has still to write; nothing was asked of the network."""
    code = [c for c in lab.cells if c.cell_type == "code"]
    prompts = lab.page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").all_text_contents()
    assert len(prompts) == len(code) and all(re.fullmatch(r"\[\d+\]:", p) for p in prompts), prompts
    failed = {
        c.id for c in code if lab.cell(c.id).locator("[data-mime-type='application/vnd.jupyter.stderr'], .jp-RenderedText[data-mime-type*=error]").count()
    }
    assert failed and failed <= {c.id for c in code if "raises-exception" in c.metadata.get("tags", [])}
    roots = lab.page.locator(".jp-Notebook .clab[data-view]")
    assert roots.count() == lab.page.locator(".jp-Notebook .clab.clab-on").count()
    for name in VIEWS:
        assert lab.cell(f"live-{name}").locator(f".clab-{name}.clab-on").count() == 1, f"{name}: the widget is there, and runs"
    shown = {c.id: lab.cell(c.id).locator(".clab-on").get_attribute("data-view") for c in code if c.id in VIEWS}
    assert all(name == view for name, view in shown.items())
    terms = lab.page.locator(".jp-Notebook .clab dt").evaluate_all("found => found.map(e => getComputedStyle(e).float)")
    assert terms and set(terms) == {"none"}, "JupyterLab floats the terms of lists in outputs"
    assert lab.said == [] and lab.asked == []


# ---- what is done in a view: a row each, the mouse and the keys ----


def live_text(root: Locator) -> str:
    return root.locator(".clab-live").inner_text()


def mouse_pipeline(page: Page, root: Locator) -> None:
    root.locator(".clab-nav a", has_text="schedule").first.click()
    assert root.locator(".clab-step:visible").count() == 1 and "k0" in root.locator(".clab-shown").inner_text()
    root.locator(".clab-src li", has_text="self.blocks(x)").click()
    assert root.locator(".clab-src .clab-pin").count() == 1 and root.locator(".clab-steps .clab-hot").count() > 0
    page.keyboard.press("Escape")


def mouse_graph(page: Page, root: Locator) -> None:
    boxes = lambda: root.locator(".clab-g-svg .clab-n").count()
    before = boxes()
    root.get_by_label("Fold all groups", exact=True).click()
    folded = boxes()
    assert folded < before
    root.locator(".clab-g-svg .clab-fold").first.click()
    assert boxes() > folded, "a group is unfolded"
    root.get_by_role("searchbox").fill("gelu")
    root.get_by_role("searchbox").press("Enter")
    assert root.locator(".clab-sel").count() == 1 and "gelu" in root.locator(".clab-g-side").inner_text()


def mouse_film(page: Page, root: Locator) -> None:
    root.locator(".clab-film-one.clab-shown [data-go=first]").click()
    for number in (2, 3):
        root.locator(".clab-film-one.clab-shown [data-go=next]").click()
        assert root.locator(".clab-shown output").inner_text().startswith(f"step {number} of ")


def field(root: Locator) -> Locator:
    """Where an input for x is typed."""
    return root.locator(".clab-guards-try label", has=root.page.locator("code", has_text=re.compile(r"^x$"))).locator("input").first


def mouse_guards(page: Page, root: Locator) -> None:
    """A guard fails for the inputs that are typed, which Python tries."""
    field(root).fill("x.double()")
    root.locator(".clab-guards-try button").first.click()
    root.locator(".clab-guards-fails").wait_for()
    assert "torch.float64" in root.locator("output").first.inner_text() and "fails for your inputs" in root.locator(".clab-guards-fails").inner_text()
    branch = root.locator("[role=treeitem][aria-expanded=true]").first
    branch.click(position={"x": 5, "y": 5})
    assert root.locator("[role=treeitem][aria-expanded=false]").count() > 0, "a branch is folded"


def mouse_breaks(page: Page, root: Locator) -> None:
    root.locator("td a").first.click()
    assert "graph_break" in root.locator(".clab-hot").first.inner_text()


def mouse_fusion(page: Page, root: Locator) -> None:
    root.locator(".clab-first").click()
    boxes = root.locator(".clab-box").count()
    root.locator(".clab-last").click()
    assert root.locator(".clab-box").count() < boxes and live_text(root).startswith("Step ")


def mouse_memory(page: Page, root: Locator) -> None:
    root.locator(".clab-shown .clab-life .clab-bar").first.click()
    assert root.locator(".clab-shown .clab-writes").count() > 0 and "bytes" in live_text(root)


def mouse_compare(page: Page, root: Locator) -> None:
    root.locator(".clab-nav a").nth(1).click()
    assert root.locator(".clab-stage:visible").count() == 1 and "Sums" not in root.locator(".clab-stage:visible").inner_text()


MOUSE: dict[str, Callable[[Page, Locator], None]] = {
    "pipeline": mouse_pipeline, "graph": mouse_graph, "film": mouse_film, "guards": mouse_guards, "breaks": mouse_breaks, "fusion": mouse_fusion,
    "memory": mouse_memory, "compare": mouse_compare,
}  # fmt: skip


def keys_pipeline(lab: Lab) -> None:
    lab.tab_to("pipeline", "[role=tab]")
    lab.page.keyboard.press("End")
    assert "build" in lab.page.locator(":focus").inner_text()
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowDown")
    assert lab.page.locator(":focus").get_attribute("aria-selected") == "true"


def keys_graph(lab: Lab) -> None:
    lab.tab_to("graph", "input[type=search]")
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type("gelu")
    lab.page.keyboard.press("Enter")
    root = lab.live("graph")
    assert "gelu" in root.locator(".clab-g-side").inner_text() and "gelu" in live_text(root)
    lab.tab_to("graph", "[data-k]")
    for key in ("ArrowUp", "+", "Escape"):
        lab.page.keyboard.press(key)
    assert root.locator(".clab-sel").count() == 0


def keys_film(lab: Lab) -> None:
    said = lab.live("film").locator(".clab-shown output")
    lab.tab_to("film", "input[type=range]")
    lab.page.keyboard.press("End")
    assert re.fullmatch(r"step (\d+) of \1", said.inner_text())
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowRight")
    assert said.inner_text().startswith("step 2 of ")


def keys_guards(lab: Lab) -> None:
    lab.tab_to("guards", ".clab-guards-try input")
    while "x" not in lab.page.locator("label", has=lab.page.locator(":focus")).locator("code").all_text_contents():
        lab.page.keyboard.press("Tab")
    lab.page.keyboard.press("Control+A")
    lab.page.keyboard.type("x[:, :4]")
    lab.page.keyboard.press("Enter")
    expect(lab.live("guards").locator("output").first).to_contain_text("got (4, 4)")
    lab.tab_to("guards", "[role=treeitem]")
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowLeft")
    assert lab.page.locator(":focus").get_attribute("aria-expanded") == "false"
    lab.page.keyboard.press("ArrowRight")
    assert lab.page.locator(":focus").get_attribute("aria-expanded") == "true"


def keys_breaks(lab: Lab) -> None:
    lab.tab_to("breaks", "a")
    lab.page.keyboard.press("n")
    assert live_text(lab.live("breaks")).startswith("Break 1 of 1")


def keys_fusion(lab: Lab) -> None:
    lab.tab_to("fusion", ".clab-at")
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowRight")
    assert live_text(lab.live("fusion")).startswith("Step 1 of ")


def keys_memory(lab: Lab) -> None:
    lab.tab_to("memory", ".clab-bar")
    lab.page.keyboard.press("Enter")
    lab.page.keyboard.press("ArrowDown")
    assert "bytes" in live_text(lab.live("memory"))
    lab.page.keyboard.press("Escape")
    assert lab.live("memory").locator(".clab-lit").count() == 0


def keys_compare(lab: Lab) -> None:
    lab.tab_to("compare", "[role=tab]")
    lab.page.keyboard.press("Home")
    lab.page.keyboard.press("ArrowDown")
    assert lab.page.locator(":focus").get_attribute("aria-selected") == "true" and live_text(lab.live("compare"))


KEYS: dict[str, Callable[[Lab], None]] = {
    "pipeline": keys_pipeline, "graph": keys_graph, "film": keys_film, "guards": keys_guards, "breaks": keys_breaks, "fusion": keys_fusion,
    "memory": keys_memory, "compare": keys_compare,
}  # fmt: skip


@each
def test_a_view_answers_the_mouse(lab: Lab, name: str) -> None:
    root = lab.live(name)
    if name in MOUSE:
        MOUSE[name](lab.page, root)
    for slider in root.locator("input[type=range]:visible").all():
        drag(lab, root, slider)
    assert lab.said == []


def drag(lab: Lab, root: Locator, slider: Locator) -> None:
    """From one end to the other: its value follows, and so does what is shown (the budget of the cut, the steps of a film, the programs of a kernel)."""
    if slider.get_attribute("max") in ("0", slider.get_attribute("min")):
        return
    page, shown = lab.page, set[str]()
    for start, end in ((0.5, -0.2), (0.02, 1.2)):
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()  # again: a longer sentence beside it moves it
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + start * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + end * box["width"], middle, steps=4)
        page.mouse.up()
        page.wait_for_timeout(150)  # Python may have been asked, and may draw the slider anew
        lab.idle()
        page.wait_for_timeout(150)
        shown.add(f"{slider.input_value()} {root.inner_text()}")
    assert len(shown) == 2, "both ends show the same"
    assert slider.input_value() == slider.get_attribute("max")


@each
def test_a_view_answers_keys_alone_and_keeps_them(lab: Lab, name: str) -> None:
    """From the cell into its output and about in it without the mouse; no key reaches the notebook, where d d deletes a cell; Shift Tab leads out."""
    page, before = lab.page, lab.page.locator(".jp-Notebook .jp-Cell").count()
    select(lab, f"live-{name}")
    lab.tab_into(name)
    if name in KEYS:
        KEYS[name](lab)
    else:
        lab.tab_to(name, "button, a, select, input, [role=tab], [role=treeitem], [tabindex='0']")
        for key in ("ArrowDown", "ArrowRight", "End", "Home"):
            page.keyboard.press(key)
    if not page.evaluate("document.activeElement.matches('input:not([type=range])')"):
        for key in ("d", "d", "x", "b", "a", "m"):
            page.keyboard.press(key)
    assert page.locator(".jp-Notebook .jp-Cell").count() == before and lab.cell(f"live-{name}").locator(".jp-InputPrompt").inner_text().startswith("[")
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        if lab.focus() != name:
            break
    assert lab.focus() != name, "the view lets go of the focus"
    assert lab.said == []


def select(lab: Lab, ident: str) -> None:
    """The cell is the active one, in command mode: arrow keys from wherever the notebook was."""
    page = lab.page
    lab.cell(ident).scroll_into_view_if_needed()
    (number,) = [n for n, c in enumerate(lab.cells) if c.id == ident]
    active = "const notebook = jupyterapp.shell.currentWidget.content; notebook.activeCellIndex = n - 1; notebook.mode = 'command'"
    page.evaluate(f"n => {{ {active}; document.activeElement.blur(); notebook.activate(); }}", number)
    page.keyboard.press("ArrowDown")
    page.wait_for_function("n => jupyterapp.shell.currentWidget.content.activeCellIndex === n", arg=number)


# ---- the saved notebook ----


def test_the_exported_notebook_shows_every_view_without_a_network(lab: Lab, tmp_path: Path) -> None:
    lab.page.evaluate("jupyterapp.commands.execute('docmanager:save').then(() => null)")
    saved = nbformat.read(lab.path, as_version=4)
    outputs = [o for c in saved.cells for o in c.get("outputs", [])]
    text = "\n".join(t for o in outputs for t in [o.get("text", ""), *(v for v in o.get("data", {}).values() if isinstance(v, str))])
    addresses = set(re.findall(r"\b(?:https?|wss?|ftp)://[^\s\"'<>\\)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, "no output holds an external address"
    empty = [f"--HTMLExporter.{name}_url=data:,//" for name in ("require_js", "mathjax", "mermaid_js", "mermaid_layout_elk_js", "jupyter_widgets_base")]
    ran = subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(tmp_path), *empty, str(lab.path)], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    browser: Any = lab.page.context.browser
    context = browser.new_context(reduced_motion="reduce")
    visit = Visit(context, tmp_path / f"{LAB.stem}.html")
    shown = visit.page.locator(".clab[data-view]").evaluate_all(
        "found => found.map(e => [e.dataset.view, e.classList.contains('clab-on'), e.offsetHeight > 40])"
    )
    assert {name for name, *_ in shown} == set(VIEWS) and all(on and seen for _, on, seen in shown), shown
    assert len(shown) == sum("text/html" in o.get("data", {}) and 'class="clab' in o["data"]["text/html"] for o in outputs)
    assert "Loading widget" not in visit.page.content() and visit.asked == [] and visit.said == []
    context.close()


# ---- light and dark ----


@pytest.fixture(scope="module")
def alone(lab: Lab) -> Lab:
    """The scratch cells without the lab before them, from here on: the GPT's thousands of lines take axe half a minute, and have been exported above."""
    first = next(n for n, c in enumerate(lab.cells) if c.id == "program")
    lab.page.evaluate("n => jupyterapp.shell.currentWidget.content.model.sharedModel.deleteCellRange(0, n)", first)
    lab.cells = lab.cells[first:]
    expect(lab.page.locator(".jp-Notebook .jp-Cell")).to_have_count(len(lab.cells))
    return lab


@pytest.mark.parametrize("theme", list(THEMES))
def test_axe_finds_nothing(alone: Lab, theme: str) -> None:
    """In every view, each as a widget, and in the side panel."""
    lab, page = alone, alone.page
    page.evaluate("theme => void jupyterapp.commands.execute('apputils:change-theme', { theme })", THEMES[theme])
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=str(theme == "light").lower())
    page.evaluate("void jupyterapp.shell.activateById('compiler-lab-panel')")
    page.locator(".clabx-panel:visible").wait_for()
    for name in VIEWS:
        lab.live(name).evaluate("e => e.classList.add('axe-here')")
    rules = ["color-contrast"] if theme == "dark" else None  # the others see no colours
    wrong = "\n".join(found(page, {"include": [[".axe-here"], [".clabx-panel"]]}, rules))
    folder = os.environ.get("COMPILER_LAB_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"jupyterlab_{theme}.png")
        for name in VIEWS:
            lab.live(name).screenshot(path=Path(folder) / f"jupyterlab_{name}_{theme}.png")
    assert not wrong, wrong


# ---- the toolbar's button ----


def test_the_toolbars_button_inspects_a_cell_and_so_do_keys(alone: Lab) -> None:
    cell = alone.cell("inspected")
    cell.scroll_into_view_if_needed()
    prompt, view = cell.locator(".jp-InputPrompt"), cell.locator(".clab-pipeline.clab-on")
    cell.locator(".jp-InputArea-editor").click()
    alone.page.locator("[data-jp-item-name=compiler-lab-inspect]").click()
    view.wait_for(timeout=60_000)
    assert "%%compile_inspect" not in cell.locator(".jp-InputArea-editor").inner_text(), "the cell's own text stays as it was"
    assert "capture" in view.locator(".clab-nav").inner_text()
    expect(prompt).to_have_text(re.compile(r"\[\d+\]"))
    number = int(re.sub(r"\D", "", prompt.inner_text()))
    alone.page.keyboard.press("Escape")
    alone.page.keyboard.press("Alt+Shift+Enter")
    expect(prompt).to_have_text(f"[{number + 1}]:", timeout=60_000)
    expect(view).to_have_count(1)


def test_a_cell_that_cannot_be_inspected_is_refused_in_words(alone: Lab) -> None:
    cell = alone.cell("refused")
    cell.scroll_into_view_if_needed()
    before = cell.locator(".jp-InputPrompt").inner_text()
    cell.locator(".jp-InputArea-editor").click()
    alone.page.locator("[data-jp-item-name=compiler-lab-inspect]").click()
    toast = alone.page.get_by_text("%%capture must be a cell's first line, and so must %%compile_inspect: take one of them away.")
    toast.wait_for()
    assert cell.locator(".jp-InputPrompt").inner_text() == before, "it was not run"
    assert alone.page.locator("[data-jp-item-name=compiler-lab-inspect]").get_by_role("button").count() == 1


# ---- the end of the kernel: last, for nothing answers after it ----


def test_a_kernel_restarted_under_the_views_leaves_their_pictures_and_says_so(lab: Lab) -> None:
    page = lab.page
    select(lab, "live-guards")
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.locator(".jp-Dialog").wait_for()
    page.keyboard.press("Enter")
    root = lab.live("guards")
    expect(root.locator(".clab-live")).to_contain_text("the kernel was restarted or ended", timeout=30_000)
    field(root).fill("x.double()")
    root.locator(".clab-guards-try button").first.click()
    expect(root.locator("output").first).to_contain_text("run the cell again")
    mouse_film(page, lab.live("film"))
    mouse_fusion(page, lab.live("fusion"))
    assert lab.said == []


def test_a_notebook_that_is_opened_again_shows_the_pictures_of_its_live_views(alone: Lab) -> None:
    """With a kernel that never had the widgets; JupyterLab itself writes "model not found"."""
    page = alone.page
    page.evaluate("jupyterapp.commands.execute('docmanager:save').then(() => null)")
    page.reload()
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    alone.idle()
    for name in VIEWS:
        alone.live(name).wait_for(timeout=60_000)
        assert "model not found" not in alone.cell(f"live-{name}").inner_text()
    mouse_fusion(page, alone.live("fusion"))
