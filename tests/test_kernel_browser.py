"""A line of the user's in a fused kernel, followed to its instructions and back, in the pipeline view and in the kernel view; sliders of an access; by keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import kernel_view

import compiler_lab
from compiler_lab.observe.trace import Trace

from .test_browser import Visit

pytestmark = pytest.mark.browser


def program(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    shifted = doubled + 1
    return torch.softmax(shifted, -1)


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("one fused kernel")
    compiler_lab.compile(program, fullgraph=True, observe=trace.append)(torch.randn(64, 96))
    return trace


@pytest.fixture
def visit(chromium: Any, trace: Trace, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Visit]:
    made = chromium.new_context(reduced_motion="reduce", viewport={"width": 1200, "height": 900})
    view: Any = trace.view(request.param)
    view.save(tmp_path / "view.html")
    yield Visit(made, tmp_path / "view.html")
    made.close()


@pytest.mark.parametrize("visit", ["pipeline", "kernel"], indirect=True)
def test_a_line_is_followed_to_its_instructions_and_back(visit: Visit, trace: Trace) -> None:
    data: Any = trace.view("pipeline").data
    line = next(n for s in data["sources"] for n, text in zip(s["numbers"], s["lines"], strict=True) if "doubled + 1" in text)
    steps = {s["name"]: s for s in data["steps"]}
    machine = {i["n"] for i in steps["build"]["items"] if i["kind"] == "assembly" and line in i["src"]}
    assert machine, "the fused line has instructions of its own"
    page = visit.page
    lines = page.locator(".clab-src > li")
    lines.filter(has_text="doubled + 1").click()
    hot = visit.numbers("ol.clab-lines:not(.clab-src) > li.clab-hot")
    assert machine <= hot and all(line in data["src"][n] for n in hot)
    seen = "e => { const a = e.getBoundingClientRect(), l = e.closest('.clab-list').getBoundingClientRect(); return a.top >= l.top && a.bottom <= l.bottom; }"
    for pane in page.locator(".clab-shown .clab-list:has(li.clab-hot)").all():
        assert pane.locator("li.clab-hot").first.evaluate(seen), "the first linked line is brought into sight"
    page.keyboard.press("Escape")
    assert page.locator("li.clab-hot").count() == 0
    script = "(root, n) => { for (const l of root.querySelectorAll('ol.clab-lines:not(.clab-src)')) if (n >= l.start && n < l.start + l.children.length) { "
    script += "const e = l.children[n - l.start]; for (let d = e.closest('details'); d; d = null) d.open = true; e.tabIndex = 0; e.focus(); "
    script += "e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})); } }"
    page.locator(".clab").first.evaluate(script, min(machine))
    assert visit.numbers("ol.clab-src > li.clab-hot") == set(data["src"][min(machine)]) and line in visit.numbers("ol.clab-src > li.clab-hot")
    assert visit.said == [] and visit.asked == []


@pytest.mark.parametrize("visit", ["kernel"], indirect=True)
def test_sliders_move_the_access(visit: Visit, trace: Trace) -> None:
    page, data = visit.page, trace.view("kernel").data
    kernel: Any = data["kernels"][0]  # type: ignore[index, call-overload]
    for k, a in enumerate(kernel["accesses"]):
        page.select_option(".clab-shown .clab-access", str(k))
        values: dict[str, int] = {}
        for name in a["variables"]:
            slider = page.locator(f'.clab-shown input[data-variable="{name}"]')
            slider.focus()
            for _ in range(3):
                page.keyboard.press("ArrowRight")
            values[name] = int(slider.input_value())
        assert all(v >= 3 for v in values.values())
        places = kernel_view.touched(a, kernel["lane"], values)
        across, first, past = kernel_view.window(a, places)
        said = page.locator(".clab-shown .clab-hits").inner_text()
        assert f"elements {first:,} to {past - 1:,} of {a['total']:,}, {across} in a row" in said and said.endswith(", ".join(map(str, places)))
        assert page.locator(".clab-shown .clab-hit").count() == len({p for p in places if first <= p < past})
    assert visit.said == [] and visit.asked == []
