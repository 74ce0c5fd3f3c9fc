"""The report in a browser, with the network off: tabs by click and by key, an address shows its section, and all of it without script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compiler_lab.observe.page import views_of
from compiler_lab.observe.trace import Trace

from .test_browser import PICTURES, Visit
from .test_every_view import demo, recorded

pytestmark = pytest.mark.browser
WINDOW = 1500, 900


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded("demo", demo)


@pytest.fixture(scope="module")
def file(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    trace.to_html(path, trace)
    return path


def test_links_become_tabs(context: Any, file: Path, trace: Trace, request: pytest.FixtureRequest) -> None:
    visit = Visit(context, file)
    page = visit.page
    tabs, names = page.get_by_role("tab"), list(views_of(trace, trace)[0])
    mine = page.locator(".clab-report [role=tab]")
    assert mine.count() == len(names) and tabs.count() >= len(names)
    shown = lambda: page.locator(".clab-part:visible")
    for k, name in enumerate(names):
        mine.nth(k).click()
        assert shown().count() == 1 and (shown().get_attribute("id") or "").endswith(f"-{name}")
        assert shown().locator(f".clab-{name}.clab-on").count() == 1, "the view runs in its own right"
        page.screenshot(path=PICTURES / f"report_{name}_{request.node.callspec.id}.png")
    mine.nth(len(names) - 1).press("Home")
    assert (shown().get_attribute("id") or "").endswith(f"-{names[0]}") and "Showing" in page.locator(".clab-report .clab-live").inner_text()
    page.goto(f"{file.as_uri()}#{mine.nth(1).get_attribute('href')[1:]}")  # type: ignore[index]
    page.wait_for_selector(f".clab-{names[1]}.clab-on:visible")
    assert visit.asked == [] and visit.said == []


def test_without_script_every_view_can_be_read(chromium: Any, file: Path, trace: Trace) -> None:
    silent = chromium.new_context(java_script_enabled=False)
    page = silent.new_page()
    page.goto(file.as_uri())
    parts = page.locator(".clab-part")
    assert parts.count() == len(views_of(trace, trace)[0]) and all(parts.nth(k).is_visible() for k in range(parts.count()))
    silent.close()
