"""The time view in a real browser, from a file, with the network off: zoom by click, keys and buttons, focus that moves, two charts, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import BrowserContext

import compiler_lab
from compiler_lab.observe.trace import Trace

from .test_axe_browser import found as wrong
from .test_browser import Visit

pytestmark = pytest.mark.browser
WINDOW = 1200, 900
WIDE = 960


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax((x @ w) * 2 + 1, -1).sum()


@pytest.fixture(scope="module")
def traces() -> tuple[Trace, Trace]:
    trace = Trace("one product")
    x, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)
    made = compiler_lab.compile(program, observe=trace.append)
    made(x, w)
    trace.append(compiler_lab.profile_call(made, x, w, repeats=2).step())
    return trace, compiler_lab.record_torch(program, x, w, backend="aot_eager")


def opened(view: Any, context: BrowserContext, folder: Path) -> Visit:
    view.save(folder / "time.html")
    return Visit(context, folder / "time.html")


def bars(visit: Visit, side: int = 0) -> dict[int, tuple[float, float]]:
    """place -> (x, width) of what is drawn."""
    script = "found => found.map(g => [g.dataset.n, ...['x', 'width'].map(a => g.querySelector('rect').getAttribute(a))].map(Number))"
    return {int(n): (x, wide) for n, x, wide in visit.page.locator(f'.clab-side[data-side="{side}"] .clab-bar').evaluate_all(script)}


def focused(visit: Visit) -> int:
    return int(visit.page.evaluate("Number(document.activeElement.dataset.n ?? -1)"))


def test_phases_are_zoomed_and_walked(traces: tuple[Trace, Trace], context: BrowserContext, tmp_path: Path) -> None:
    view: Any = traces[0].view("time")
    side = view.data["sides"][0]
    phases = side["phases"]
    visit = opened(view, context, tmp_path)
    page, live = visit.page, visit.page.locator(".clab-live")
    scale = WIDE / side["length"]
    whole = bars(visit)
    assert whole.keys() == {n for n, p in enumerate(phases) if p["seconds"] * scale >= 0.4}
    assert all(abs(x - phases[n]["at"] * scale) < 0.02 and abs(wide - phases[n]["seconds"] * scale) < 0.02 for n, (x, wide) in whole.items())
    assert page.locator('.clab-bar[tabindex="0"]').count() == 1, "one tab stop"
    build = next(n for n, p in enumerate(phases) if p["name"] == "build")
    page.locator(f'.clab-bar[data-n="{build}"]').click()
    assert bars(visit)[build] == (0.0, WIDE) and live.inner_text().startswith("Zoomed to build, ")
    page.keyboard.press("ArrowDown")  # into it: what is too short to be drawn brings its own picture
    assert focused(visit) == build + 1 and phases[build + 1]["name"] in page.locator(".clab-picked").inner_text()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert focused(visit) == 0 and phases[0]["name"] in live.inner_text()
    page.keyboard.press("Escape")
    assert bars(visit).keys() == whole.keys() and live.inner_text() == "All phases are shown." and focused(visit) == 0
    page.keyboard.press("ArrowDown")
    walked = [focused(visit)]
    for _ in range(4):  # steps too short to be drawn are walked too
        page.keyboard.press("ArrowRight")
        walked.append(focused(visit))
        assert focused(visit) in bars(visit)
    lane = sorted((n for n, p in enumerate(phases) if p["lane"] == 1), key=lambda n: phases[n]["at"])
    assert walked == lane[:5]
    page.keyboard.press("Enter")
    assert bars(visit)[lane[4]] == (0.0, WIDE)
    page.locator(".clab-out").click()
    assert bars(visit)[lane[4]][1] < WIDE
    page.locator(f'.clab-bar[data-n="{lane[4]}"]').focus()
    page.keyboard.press("+")
    assert bars(visit)[lane[4]][1] > WIDE * 0.9
    page.keyboard.press("End")
    assert focused(visit) == len(phases) - 1
    page.locator(".clab-all").click()
    assert bars(visit) == whole
    assert visit.said == [] and visit.asked == []


def test_two_charts_have_one_scale_or_each_its_own(traces: tuple[Trace, Trace], context: BrowserContext, tmp_path: Path) -> None:
    view: Any = traces[0].view("time", other=traces[1])
    sides = view.data["sides"]
    visit = opened(view, context, tmp_path)
    longest = max(s["length"] for s in sides)
    widest = lambda k: max(wide for _, wide in bars(visit, k).values())
    for k, s in enumerate(sides):
        assert abs(widest(k) - WIDE * max(p["seconds"] for p in s["phases"]) / longest) < 0.02
    visit.page.locator(".clab-own").check()
    for k, s in enumerate(sides):
        assert abs(widest(k) - WIDE * max(p["seconds"] for p in s["phases"]) / s["length"]) < 0.02
    last = len(sides[1]["phases"]) - 1
    visit.page.locator('.clab-side[data-side="1"] .clab-bar').first.focus()
    before = bars(visit, 0)
    visit.page.keyboard.press("End")
    assert focused(visit) == last and visit.page.locator(".clab-picked").inner_text().startswith("torch: ")
    visit.page.keyboard.press("Enter")
    assert bars(visit, 1)[last] == (0.0, WIDE) and bars(visit, 0) == before, "the other chart stays"
    assert visit.said == [] and visit.asked == []
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert wrong(visit.page) == [], "with two charts and the kernels of a call, too"
    visit.page.set_viewport_size({"width": 420, "height": 800})
    assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "wide pictures scroll by themselves"
