"""The fusion and memory views in a real browser, from a file, with the network off: steps, keys, questions, links, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import BrowserContext

import compiler_lab
from compiler_lab.observe.trace import Trace

from .test_browser import Visit

pytestmark = pytest.mark.browser
WINDOW = 1200, 900


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.softmax((x @ w) * 2 + 1, -1)
    return (torch.nn.functional.gelu(h @ w) @ w).sigmoid()


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("two products")
    made = compiler_lab.compile(program, fullgraph=True, observe=trace.append)
    made(torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)).sum().backward()
    return trace


def opened(trace: Trace, name: str, context: BrowserContext, folder: Path) -> tuple[Visit, Any]:
    view: Any = trace.view(name)
    view.save(folder / f"{name}.html")
    return Visit(context, folder / f"{name}.html"), view.data["programs"]


def test_fusion_is_stepped_and_asked(trace: Trace, context: BrowserContext, tmp_path: Path) -> None:
    visit, programs = opened(trace, "fusion", context, tmp_path)
    page, p = visit.page, programs[0]
    boxes = lambda: page.locator(".clab-box").count()
    assert boxes() == len(p["loops"])
    page.locator(".clab-at").focus()
    for at, step in enumerate(p["steps"], 1):
        page.keyboard.press("ArrowRight")
        assert boxes() == step["kernels"] and f"{step['moved']:,} bytes; saved so far {p['before'] - step['moved']:,}" in page.locator(".clab-now").inner_text()
        assert page.locator(".clab-live").inner_text().startswith(f"Step {at} of {len(p['steps'])}: ")
    page.keyboard.press("Home")
    assert boxes() == len(p["loops"])
    page.locator(".clab-joined").check()
    page.locator(".clab-next").click()
    first = next(n for n, s in enumerate(p["steps"], 1) if s["joins"])
    assert page.locator(".clab-at").input_value() == str(first)
    refused = next(s for s in p["steps"] if s["outcome"] == "refused")
    page.select_option(".clab-left", str(refused["left"]))
    page.select_option(".clab-right", str(refused["right"]))
    assert f"refused. {sentence(refused['reason'])}" in page.locator(".clab-answer").inner_text()
    page.locator(f'.clab-box button[data-k="{p["steps"][0]["left"]}"]').click()
    page.locator(f'.clab-box button[data-k="{p["steps"][0]["right"]}"]').click()
    assert f"{p['steps'][0]['saved']:,} bytes" in page.locator(".clab-answer").inner_text()
    page.select_option(".clab-program", "1")
    assert boxes() == len(programs[1]["loops"])
    assert visit.said == [] and visit.asked == []


def test_memory_goes_from_buffer_to_kernels_and_back(trace: Trace, context: BrowserContext, tmp_path: Path) -> None:
    visit, programs = opened(trace, "memory", context, tmp_path)
    page, p = visit.page, programs[0]
    numbers = lambda css, key: {int(n) for n in page.locator(f".clab-shown {css}").evaluate_all(f"found => found.map(e => e.dataset.{key})")}
    page.locator(".clab-shown .clab-life .clab-bar").first.focus()
    for k, b in enumerate(p["buffers"]):
        page.keyboard.press("ArrowDown" if k else "Enter")
        reads = {i for i, kernel in enumerate(p["kernels"]) if b["name"] in kernel["reads"]}
        assert numbers(".clab-writes", "k") == {b["first"]} and numbers(".clab-reads", "k") == reads and numbers(".clab-bar.clab-lit", "b") == {k}
        assert f"{b['bytes']:,} bytes" in page.locator(".clab-live").inner_text()
    for kernel in p["kernels"]:
        page.select_option(".clab-kernel", kernel["name"])
        own = {k for k, b in enumerate(p["buffers"]) if b["name"] in (*kernel["reads"], *kernel["writes"])}
        assert numbers(".clab-bar.clab-lit", "b") == own
    page.keyboard.press("Escape")
    assert numbers(".clab-bar.clab-lit", "b") == set()
    page.select_option(".clab-program", "1")
    figures = page.locator(".clab-shown [data-figure]").evaluate_all("found => Object.fromEntries(found.map(e => [e.dataset.figure, Number(e.dataset.value)]))")
    assert figures == programs[1]["figures"]
    assert visit.said == [] and visit.asked == []


def sentence(reason: str) -> str:
    from compiler_lab_widgets import words

    return words.sentence("fuse", reason)
