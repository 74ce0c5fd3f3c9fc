"""The compare view in a real browser, from a file, with the network off: stages, differences, keys; numbers read back from the page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import BrowserContext

import compiler_lab
from compiler_lab.observe.compare_data import Both, compare_data

from .test_browser import PICTURES, Visit

pytestmark = pytest.mark.browser
WINDOW = 1400, 900


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.gelu(x @ w)
    return (y * torch.cos(x)).sum()


@pytest.fixture(scope="module")
def both() -> Both:
    return compiler_lab.inspect(program, torch.randn(8, 8), torch.randn(8, 8, requires_grad=True), backend="aot_eager", stack="both")


@pytest.fixture(scope="module")
def page_file(both: Both, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "compare.html"
    both.view().save(path)
    return path


def test_stages_differences_and_keys(context: BrowserContext, both: Both, page_file: Path, request: pytest.FixtureRequest) -> None:
    visit = Visit(context, page_file)
    page, data = visit.page, compare_data(both.lab, both.torch)
    tabs, shown = page.locator(".clab-nav a"), page.locator(".clab-stage:visible")
    assert tabs.count() == len(data["stages"]) + 1 and shown.count() == 1 and "Sums" in shown.inner_text()
    place = next(k for k, s in enumerate(data["stages"], 1) if 0 < s["same"] < len(s["rows"]))
    tabs.nth(place).click()
    stage: Any = data["stages"][place - 1]
    numbers = [e.get_attribute("data-value") for e in shown.locator("[data-value]").all()]
    assert [float(n or math.nan) for n in numbers] == [v for c in stage["counts"] for v in c["values"]]
    rows = shown.locator(".clab-two tbody tr:visible")
    differing = [r for r in stage["rows"] if not r["same"]]
    assert rows.count() == len(stage["rows"]) and differing
    page.keyboard.press("n")
    live = page.locator(".clab-live")
    first = (differing[0]["left"] or differing[0]["right"])["text"]
    assert first in live.inner_text() and first in page.locator(".clab-at").inner_text()
    page.keyboard.press("p")
    last = (differing[-1]["left"] or differing[-1]["right"])["text"]
    assert last in page.locator(".clab-at").inner_text(), "before the first comes the last"
    page.keyboard.press("Escape")
    assert page.locator(".clab-at").count() == 0
    page.get_by_label("Differences only").check()
    assert rows.count() == len(differing)
    page.screenshot(path=PICTURES / f"compare_{request.node.callspec.id}.png")
    tabs.nth(place).focus()
    page.keyboard.press("Home")
    assert "Sums" in shown.inner_text() and tabs.nth(0).get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowDown")
    assert "Capture" in shown.inner_text() and "Capture" in live.inner_text()
    assert visit.asked == [] and visit.said == []


def test_without_script_every_stage_can_be_read(chromium: Any, both: Both, page_file: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    stages = page.locator(".clab-stage")
    assert all(stages.nth(k).is_visible() for k in range(stages.count())) and stages.count() == len(compare_data(*both.traces)["stages"]) + 1
    context.close()
