"""The views of frames in a real browser: the film stepped by keys, the failing guard found, breaks by keys; the network off, both themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from .frame_programs import breaking, recompiled
from .test_browser import PICTURES, Visit

pytestmark = pytest.mark.browser
WINDOW = 1280, 900


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    folder, net, broken = tmp_path_factory.mktemp("frames"), recompiled(), breaking()
    made = {"film": net.view("film"), "guards": net.view("guards"), "breaks": broken.view("breaks")}
    for name, view in made.items():
        view.save(folder / f"{name}.html")
    return {name: (folder / f"{name}.html", view.data) for name, view in made.items()}


def picture(visit: Visit, name: str, request: pytest.FixtureRequest) -> None:
    PICTURES.mkdir(exist_ok=True)
    visit.page.screenshot(path=PICTURES / f"{name}_{request.node.callspec.id}.png", full_page=True)


def test_the_film_is_stepped_by_keys(context: BrowserContext, views: dict[str, tuple[Path, Any]], request: pytest.FixtureRequest) -> None:
    path, data = views["film"]
    visit, film = Visit(context, path), data["films"][0]
    page, texts, shots = visit.page, film["texts"], film["shots"]
    page.locator(".clab-shown input[type=range]").focus()
    page.keyboard.press("End")
    lines = lambda pane: page.locator(f".clab-shown .clab-film-{pane} ol > li:visible")
    assert page.locator(".clab-shown output").inner_text() == f"step {len(shots)} of {len(shots)}"
    for place, pane in ((7, "graph"), (8, "guards")):
        assert lines(pane).all_text_contents() == [texts[t] for shot in shots for t in shot[place]]
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert page.locator(".clab-shown .clab-film-now p").inner_text() == texts[shots[5][3]]
    assert (
        page.locator(".clab-shown .clab-film-source .clab-hot").get_attribute("data-l") == str(shots[5][2])
        and "self.fc(x)" in page.locator(".clab-shown .clab-film-source .clab-hot").inner_text()
    )
    assert lines("stack").count() == shots[5][4] + len(shots[5][5])
    assert page.locator(".clab-live").inner_text().startswith(f"Step 6 of {len(shots)}, line {shots[5][2]}")
    page.keyboard.press("p")
    assert "less motion" in page.locator(".clab-live").inner_text()
    picture(visit, "film", request)
    assert visit.asked == [] and visit.said == []


def test_the_guard_that_failed_is_found(context: BrowserContext, views: dict[str, tuple[Path, Any]], request: pytest.FixtureRequest) -> None:
    path, data = views["guards"]
    visit = Visit(context, path)
    page = visit.page
    page.locator(".clab-guards-to").first.press("Enter")
    focused = lambda: str(page.evaluate("document.activeElement.textContent"))
    assert "Tensor f32[2, 3] on cpu" in focused() and "failed: Compile 2" in focused()
    page.keyboard.press("ArrowLeft")
    assert focused().startswith("L['x']")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "Tensor f32[2, 3]" in focused() and page.locator(".clab-guards-tree").first.locator("[tabindex='0']").count() == 1
    leaves = page.locator(".clab-guards-tree").first.locator("li:not([aria-expanded])").count()
    assert leaves == sum(len(n["checks"]) for n in data["trees"][0]["nodes"]) + len(data["trees"][0]["relations"])
    picture(visit, "guards", request)
    assert visit.asked == [] and visit.said == []


def test_an_answer_marks_the_leaf_in_the_tree(context: BrowserContext, views: dict[str, tuple[Path, Any]]) -> None:
    """The widget's script with an answer of Python's: the leaf is opened and marked, and the sentence stands beside the form."""
    from compiler_lab.observe.guards_data import answer

    found = answer(recompiled(), {"tree": 1, "values": {"x": "torch.randn(4, 5)", "self": ""}})
    assert found["fits"] is False
    path, _ = views["guards"]
    page = Visit(context, path).page
    page.evaluate(
        """found => {
      const old = document.querySelector('.clab'), data = JSON.parse(old.querySelector('.clab-data').textContent);
      const code = old.querySelector('script[type=module]').textContent + '\\nwindow.clabStart = start;';
      const fresh = old.cloneNode(true); fresh.classList.remove('clab-on'); old.replaceWith(fresh);
      const script = document.createElement('script'); script.type = 'module';
      script.textContent = code.replace('mount("guards", start);', '') +
        `\\nstart(document.querySelector('.clab'), ${JSON.stringify(data)}, {get: () => 0, set() {}, on() {}, ask: async () => (${JSON.stringify(found)})});`;
      document.body.append(script);
    }""",
        found,
    )
    page.locator(".clab-guards-try input").first.wait_for()
    page.locator("[data-tree='1'] .clab-guards-try input").first.fill("torch.randn(4, 5)")
    page.locator("[data-tree='1'] .clab-guards-try button").click()
    page.locator(".clab-guards-fails").wait_for()
    assert "fails for your inputs" in page.locator(".clab-guards-fails").inner_text()
    assert found["text"] in page.locator("[data-tree='1'] output").inner_text()


def test_breaks_are_gone_through_by_keys(context: BrowserContext, views: dict[str, tuple[Path, Any]], request: pytest.FixtureRequest) -> None:
    path, data = views["breaks"]
    visit = Visit(context, path)
    page = visit.page
    page.locator("td a").first.focus()
    for number, one in enumerate(data["breaks"], 1):
        page.keyboard.press("n")
        assert page.locator(".clab-live").inner_text() == f"Break {number} of {len(data['breaks'])}: {one['what']}"
        assert page.locator(".clab-hot").nth(number - 1).get_attribute("data-l") == str(one["line"])
    picture(visit, "breaks", request)
    assert visit.asked == [] and visit.said == []
