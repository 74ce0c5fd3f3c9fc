"""axe-core on the page of every view, in light and dark: nothing is found, and nothing is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

import compiler_lab
from compiler_lab.observe.trace import Trace
from compiler_lab.observe.view import VIEWS, view

from .conftest import FLAGS, require

pytestmark = pytest.mark.browser


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = torch.nn.functional.gelu(x @ w)
    torch._dynamo.graph_break()
    unused = hidden.cos()
    del unused
    return (torch.softmax(hidden.view(-1, 8) + 1, -1) * hidden).mean()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The page of each view of a trace with a break, a recompile and a backward pass."""
    trace = Trace("a program with a break")
    compiled = compiler_lab.compile(program, observe=trace.append)
    for rows in (4, 6):
        compiled(torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True)).backward()
    other = Trace.from_json(trace.to_json())
    folder = tmp_path_factory.mktemp("pages")
    for name in VIEWS:
        view(trace, name, **({"other": other} if name == "compare" else {})).save(folder / f"{name}.html")
    yield {name: folder / f"{name}.html" for name in VIEWS}


@pytest.fixture(scope="module")
def themes() -> Iterator[dict[str, Page]]:
    path = require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield {theme: browser.new_context(color_scheme=theme, reduced_motion="reduce").new_page() for theme in ("light", "dark")}
        browser.close()


def found(page: Page, where: Any = None, rules: list[str] | None = None) -> list[str]:
    """What axe's rules say is wrong, each with the elements. where: axe's context, the whole page by default; rules: only these."""
    if not os.environ.get("COMPILER_LAB_REQUIRE_ALL"):
        pytest.importorskip("axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe

    response: Any = Axe().run(page, context=where, options=None if rules is None else {"runOnly": rules}).response
    assert response["passes"], "the rules were run"
    return [f"{v['id']}: {v['help']}: " + "; ".join(n["html"][:160] for n in v["nodes"][:4]) + f" ({len(v['nodes'])})" for v in response["violations"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", list(VIEWS))
def test_axe_finds_nothing(name: str, theme: str, pages: dict[str, Path], themes: dict[str, Page]) -> None:
    page = themes[theme]
    page.goto(pages[name].as_uri())
    page.wait_for_selector(".clab-on")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    wrong = "\n".join(found(page))
    assert not wrong, wrong


def test_axe_would_find_something(themes: dict[str, Page]) -> None:
    page = themes["light"]
    body = "<h1>h</h1><button></button><p style='color:#ccc;background:#fff'>pale</p>"
    page.set_content(f"<!doctype html><html lang=en><title>t</title><main>{body}</main></html>")
    assert [v.split(":")[0] for v in found(page)] == ["button-name", "color-contrast"]
