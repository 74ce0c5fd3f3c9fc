"""The min-cut view in a real browser, the network off: paths by keys, nodes, the budget's stops, and, as a widget, wishes that Python answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from compiler_lab.observe.trace import Trace

from .test_browser import PICTURES, Visit
from .test_cut_view import large, part_of, recorded

pytestmark = pytest.mark.browser
WINDOW = 1500, 900
light = pytest.mark.parametrize("context", ["light"], indirect=True)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded("two products")


@pytest.fixture(scope="module")
def file(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cut") / "cut.html"
    trace.view("cut").save(path)
    return path


@pytest.fixture(scope="module")
def net(trace: Trace) -> Any:
    view: Any = trace.view("cut")
    return view.data["programs"][0]


def flows(net: Any, paths: int) -> list[int]:
    number = {(e[0], e[1]): i for i, e in enumerate(net["edges"])}
    flow = [0] * len(net["edges"])
    for amount, *inner in net["paths"][:paths]:
        for a, b in itertools.pairwise([0, *inner, 1]):
            flow[number.get((a, b), number.get((b, a), -1))] += amount if (a, b) in number else -amount
    return flow


def marked(page: Page, css: str) -> set[str]:
    return {t.split(":")[0] for t in page.locator(f".clab-c-n{css} title").all_text_contents()}


def test_paths_are_stepped_by_keys(context: BrowserContext, file: Path, net: Any, request: pytest.FixtureRequest) -> None:
    visit, network = Visit(context, file), net["network"]
    page, nodes = visit.page, network["nodes"]
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"cut_{request.node.callspec.id}.png", full_page=True)
    saved = {v["name"] for v in net["saved"]}
    assert marked(page, ".clab-c-cut") == saved and all(name in page.locator(".clab-c-now").inner_text() for name in saved)
    page.locator(".clab-c-at").focus()
    page.keyboard.press("Home")
    labels = lambda: dict(zip(page.locator(".clab-c-n title").all_text_contents(), page.locator(".clab-c-cap").all_text_contents(), strict=True))
    assert all(label.startswith("0 / ") for label in labels().values()) and marked(page, ".clab-c-hot") == set()
    so_far = 0
    for at, (amount, *inner) in enumerate(network["paths"], 1):
        page.keyboard.press("ArrowRight")
        so_far += amount
        said = page.locator(".clab-c-now").inner_text()
        assert (
            said.startswith(f"Path {at} of {len(network['paths'])} pushes {amount:,} bytes: source → ")
            and f"Flow so far {so_far:,} of {network['value']:,}" in said
        )
        assert said == page.locator(".clab-live").inner_text()
        on = {nodes[v // 2 - 1]["name"] for v in inner}
        assert marked(page, ".clab-c-hot") == on & marked(page, "") and page.locator(".clab-c-edges .clab-c-hot").count() > 0
        flow = flows(network, at)
        own = {e[0] // 2 - 1: i for i, e in enumerate(network["edges"]) if e[0] % 2 == 0 and e[1] == e[0] + 1 and e[0] > 1}
        for title, label in labels().items():
            i = own[next(k for k, n in enumerate(nodes) if n["name"] == title.split(":")[0])]
            room = network["edges"][i][2]
            assert label == f"{flow[i]:,} / {'∞' if room is None else f'{room:,}'}{' full' if room and flow[i] == room else ''}"
    page.keyboard.press("End")
    assert "capacity of the cut" in page.locator(".clab-live").inner_text() and marked(page, ".clab-c-cut") == saved
    page.keyboard.press("ArrowLeft")
    assert page.locator(".clab-c-now").inner_text().startswith(f"Path {len(network['paths'])} of") and marked(page, ".clab-c-cut") == set()
    page.get_by_role("button", name="The cut").click()
    assert page.locator(".clab-c-at").input_value() == str(len(network["paths"]) + 1)
    assert visit.said == [] and visit.asked == []


@light
def test_nodes_are_walked_and_the_page_says_that_python_must_answer(context: BrowserContext, file: Path, net: Any) -> None:
    visit = Visit(context, file)
    page = visit.page
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".clab-c-n").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    name = page.locator(".clab-c-n title").nth(1).text_content().split(":")[0]  # type: ignore[union-attr]
    assert page.locator(".clab-c-picked").inner_text().startswith(f"{name}: ") and page.locator(".clab-c-n[aria-pressed=true]").count() == 1
    kept = next(v["name"] for v in net["saved"] if v["reason"] == "cut" or v["reason"] == "far" or v["reason"] == "matmul")
    page.select_option(".clab-c-node", label=kept)
    page.get_by_role("button", name="Must recompute").press("Enter")
    code = f'trace.stage("partition", graph=0).recut(must_recompute=["{kept}"])'
    assert "Only Python can cut again" in page.locator(".clab-live").inner_text() and page.locator(".clab-c-code").inner_text() == code
    page.get_by_role("button", name="Must save").click()
    assert page.locator(".clab-c-code").inner_text() == code.replace("recompute", "save"), "one wish for a node"
    page.get_by_role("button", name="Copy this code").click()
    page.wait_for_function("document.querySelector('.clab-live').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == code.replace("recompute", "save")
    page.get_by_role("button", name="No wish").click()
    assert page.locator(".clab-c-asked").inner_text() == "No wishes yet."
    page.keyboard.press("Escape")
    assert page.locator(".clab-c-n[aria-pressed=true]").count() == 0
    assert visit.said == [] and visit.asked == []


@light
def test_the_budget_goes_over_its_stops(context: BrowserContext, file: Path, net: Any) -> None:
    visit = Visit(context, file)
    page, stops, nodes = visit.page, net["stops"], net["network"]["nodes"]
    slider = page.locator(".clab-c-budget")
    slider.focus()
    assert slider.input_value() == str(len(stops) - 1), "the greatest budget is at the right, as in the curve"
    for n, stop in enumerate(stops[1:], 1):
        page.keyboard.press("ArrowLeft")
        said = page.locator(".clab-c-said").inner_text()
        assert f"{stop['bytes']:,} bytes ({stop['counted']:,} as counted), {stop['operations']:,} operations more" in said
        assert said == page.locator(".clab-live").inner_text()
        words = page.locator(".clab-c-n").evaluate_all("all => all.map(b => [b.dataset.k, b.querySelector('.clab-c-badge')?.textContent ?? ''])")
        assert {int(k) for k, word in words if word == "kept"} == set(stop["saved"]) and {int(k) for k, word in words if word == "again"} == set(stop["lifted"])
        at = lambda css: [page.locator(css).get_attribute(key) for key in ("cx", "cy")]
        assert at(".clab-c-mark") == at(f'.clab-c-curve [data-stop="{n}"]')
        assert "budget=" in page.locator(".clab-c-code").inner_text()
    assert nodes and visit.said == [] and visit.asked == []


@light
def test_of_a_large_network_each_path_is_drawn(context: BrowserContext, tmp_path: Path) -> None:
    trace = large()
    view: Any = trace.view("cut")
    view.save(tmp_path / "large.html")
    network = view.data["programs"][0]["network"]
    visit, names = Visit(context, tmp_path / "large.html"), [n["name"] for n in network["nodes"]]
    page, own = visit.page, {e[0] // 2 - 1 for e in network["edges"] if e[0] % 2 == 0 and e[1] == e[0] + 1 and e[0] > 1}
    page.locator(".clab-c-at").focus()
    for at in range(len(network["paths"]), len(network["paths"]) - 12, -1):
        page.keyboard.press("ArrowLeft")
        on = {v // 2 - 1 for v in network["paths"][at - 1][1:]}
        assert marked(page, ".clab-c-hot") == {names[k] for k in on & own}
        assert page.locator(".clab-c-now").inner_text().startswith(f"Path {at} ")
    assert len(marked(page, "")) <= 40 and f"Drawn are {len(marked(page, ''))} of the {len(own)} nodes" in page.locator(".clab-c-drawn").inner_text()
    far = next(names[k] for k in own if names[k] not in marked(page, ""))
    page.select_option(".clab-c-node", label=far)
    page.get_by_role("button", name="Draw around it").click()
    assert marked(page, "[aria-pressed=true]") == {far} and 40 < len(marked(page, "")) <= 90
    page.keyboard.press("End")
    page.locator(".clab-c-at").focus()
    page.keyboard.press("End")
    saved = {n["name"] for n in network["nodes"] if n["fate"] == "saved"}
    assert marked(page, ".clab-c-cut") == saved & marked(page, "") and saved & marked(page, "")
    page.locator(".clab-c-n[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert marked(page, "[aria-pressed=true]") != {far}, "what is drawn anew is walked by keys"
    assert visit.said == [] and visit.asked == []


def test_without_script_the_cut_is_there(chromium: Any, file: Path, net: Any) -> None:
    silent = chromium.new_context(java_script_enabled=False)
    page = silent.new_page()
    page.goto(file.as_uri())
    assert marked(page, ".clab-c-cut") == {v["name"] for v in net["saved"]} and page.locator(".clab-c-svg").is_visible()
    page.locator("summary", has_text="The network, node by node").click()
    assert page.locator(".clab-c-nodes tbody tr").first.is_visible() and not page.locator(".clab-c-wish").is_visible()
    silent.close()


# ---------------------------------------------------------------------------------------------------------------- as a widget

MODEL = """
const told = {}, values = VALUES;
const fire = (name, value) => (told[name] ?? []).forEach(f => f(value));
window.model = {
  get: n => values[n], save_changes() {}, on: (n, f) => (told[n] ??= []).push(f),
  set: (n, v) => { values[n] = v; window.changed(n, JSON.stringify(v)); fire(`change:${n}`, v); },
  send: async m => fire("msg:custom", JSON.parse(await window.sent(JSON.stringify(m)))),
};
window.made.render({ model: window.model, el: document.querySelector("main") });
"""


class Live:
    """The widget's own script in a page, its messages and traits carried to the widget in this process: what a notebook does, without its kernel."""

    def __init__(self, context: BrowserContext, trace: Trace) -> None:
        self.widget: Any = trace.view("cut").live()
        self.page: Page = context.new_page()
        self.said: list[str] = []
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.expose_function("sent", self._sent)
        self.page.expose_function("changed", lambda name, value: setattr(self.widget, name, json.loads(value)))
        values = {n: getattr(self.widget, n) for n in ("html", "program", "position", "node", "budget", "must_save", "must_recompute", "around")}
        script = self.widget._esm.replace("export default widget(start);", "window.made = widget(start);")
        assert "window.made" in script
        self.page.set_content("<!doctype html><html lang=en><title>t</title><main></main></html>")
        self.page.add_script_tag(content=script + MODEL.replace("VALUES", json.dumps(values)), type="module")
        self.page.wait_for_selector(".clab-on")

    def _sent(self, message: str) -> str:
        answers: list[Any] = []
        self.widget.send = answers.append
        self.widget._handle_custom_msg(json.loads(message), [])
        return json.dumps(answers[0])

    def wait(self, words: str) -> str:
        self.page.wait_for_function("words => document.querySelector('.clab-live').textContent.includes(words)", arg=words)
        return self.page.locator(".clab-live").inner_text()


@pytest.fixture
def live(context: BrowserContext, trace: Trace) -> Iterator[Live]:
    made = Live(context, trace)
    yield made
    assert made.said == []


@light
def test_wishes_by_click_are_answered_by_a_new_cut(live: Live, trace: Trace) -> None:
    part, page = part_of(trace), live.page
    first = next(n for n in part.saved if n.startswith("sin"))
    page.locator(f'.clab-c-n:has(title:text-matches("^{first}:"))').click()
    button = page.get_by_role("button", name="Must recompute")
    button.focus()
    page.keyboard.press("Enter")
    said = live.wait("Cut again")
    made = part.recut(must_recompute=[first])
    assert f"{len(made.saved)} values of {made.saved_bytes:,} bytes are saved" in said and f"{first}: honoured" in said
    assert live.widget.must_recompute == [first] and live.widget.node == first
    assert marked(page, ".clab-c-cut") == set(made.saved) and first in marked(page, ".clab-c-redo")
    assert page.locator(".clab-c-sums").inner_text().startswith(f"{len(made.saved)} values saved, {made.saved_bytes:,} bytes")
    assert "Must recompute" in page.evaluate("document.activeElement.textContent"), "the focus stays where it was"
    page.get_by_role("button", name="Must save").click()
    page.wait_for_function("n => document.querySelectorAll('.clab-c-cut').length === n", arg=len(part.recut(must_save=[first]).saved))
    assert marked(page, ".clab-c-cut") == set(part.recut(must_save=[first]).saved) and live.widget.must_recompute == []
    page.locator(".clab-c-at").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.locator(".clab-c-now").inner_text().startswith("Path 1 of"), "the new network is stepped too"


@light
def test_the_budget_and_what_cannot_be_are_answered(live: Live, trace: Trace, net: Any) -> None:
    part, page = part_of(trace), live.page
    page.locator(".clab-c-budget").focus()
    page.keyboard.press("ArrowLeft")
    live.wait("Cut again")
    made = part.recut(budget=net["stops"][1]["budget"])
    assert live.widget.budget == net["stops"][1]["budget"] and marked(page, ".clab-c-cut") == set(made.saved)
    assert "capacities are not bytes" in page.locator(".clab-c-one").inner_text()
    later = next(n["name"] for n in net["network"]["nodes"] if n["unkept"] == "view")
    before = page.locator(".clab-c-sums").inner_text()
    page.select_option(".clab-c-node", label=later)
    page.get_by_role("button", name="Must save").click()
    assert f"{later}: a policy for what does not run in the forward" in live.wait("a policy for")
    assert page.locator(".clab-c-sums").inner_text() == before, "what cannot be leaves the picture as it was"
    page.evaluate("name => { window.model.set('must_save', []); window.model.set('must_recompute', [name]); }", next(iter(part.saved[2:])))
    live.wait("Cut again")
    assert page.locator(".clab-c-asked").inner_text().startswith("Wishes: must recompute"), "Python may set the wishes too"
