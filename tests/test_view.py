"""The pipeline view: its words are the stages' own, its HTML carries what its script needs, and what it says of lost lines is true."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import words
from compiler_lab_widgets.memory_chart import memory_chart
from compiler_lab_widgets.pipeline_view import render

import compiler_lab
from compiler_lab.aot import bans, decompose, functionalize, joint
from compiler_lab.codegen import artifact as codegen
from compiler_lab.core import honesty
from compiler_lab.frames import guards, reasons
from compiler_lab.graph import passes
from compiler_lab.lowering import lower
from compiler_lab.observe import html
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.trace import Trace
from compiler_lab.scheduling import reasons as scheduling

CATALOGUES: dict[str, tuple[tuple[str, ...], Any]] = {
    "frames": (("break",), {k: f"{r.what}: {r.why}" for k, r in reasons.REASONS.items()}),
    "guards": (("guard",), guards.REASONS),
    "joint": (("backward", "mutation", "gradient", "output"), joint.REASONS),
    "functionalize": (("functionalize",), functionalize.REASONS),
    "passes": (("eliminate", "merge", "view", "fold"), passes.REASONS),
    "decompose": (("decompose",), decompose.REASONS),
    "schema": (("schema",), honesty.REASONS),
    "partition": (("save", "ban", "policy", "budget"), bans.REASONS),
    "lowering": (("lower", "size"), lower.REASONS),
    "scheduling": (("fuse", "recompute", "drop", "keep", "reuse"), scheduling.REASONS),
    "codegen": (("parallel", "cut", "wrapper", "call"), codegen.REASONS),
}
GUARDS = re.compile(r"guard_\d+")


def wasteful(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    scale = 3 * 2
    y = torch.relu(x + scale)
    _unused = torch.cos(x)
    again = torch.relu(x + scale)
    z = y.view(-1).view(4, 8) @ w
    return (z + again.sum() + 1).sum()


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("wasteful")
    made = compiler_lab.compile(wasteful, fullgraph=True, observe=trace.append)
    made(torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)).backward()
    return trace


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return html.view_data(trace)


def test_the_view_has_the_sentence_of_every_reason(request: pytest.FixtureRequest) -> None:
    wanted = {name: {"kinds": list(kinds), "reasons": dict(catalogue)} for name, (kinds, catalogue) in CATALOGUES.items()}
    path = Path(words.__file__).with_name("reasons.json")
    if request.config.getoption("--update-golden"):
        path.write_text(json.dumps(wanted, indent=1) + "\n")
    assert json.loads(path.read_text()) == wanted, "run pytest tests/test_view.py --update-golden"


def test_every_decision_of_a_compile_has_its_sentence(data: Any) -> None:
    for step in data["steps"]:
        for d in step["decisions"]:
            guard = d["kind"] == "guard" and step["name"] == "capture"  # named after what is guarded; the guard says why
            assert guard or words.sentence(d["kind"], d["reason"]), (step["name"], d)


def test_every_step_has_its_explanation() -> None:
    from compiler_lab.pipeline import STEPS

    assert set(STEPS) <= set(words.EXPLANATIONS)


class Lists(HTMLParser):
    """The lines of a page by number, and whether tags balance."""

    VOID = ("meta", "br", "img", "line", "rect", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.lines: dict[int, str] = {}
        self.source: dict[int, str] = {}
        self.into: dict[int, str] = self.lines
        self.number = -1

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "ol":
            self.number = int(values["start"]) - 1
            self.into = self.source if "clab-src" in values["class"] else self.lines
        if tag == "li" and "ol" in self.open:
            self.number += 1
            assert self.number not in self.into, "a number stands twice"
            self.into[self.number] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "li" in self.open and "ol" in self.open:
            assert len(data) < 2 or not data.isspace(), "nbconvert's parser would shorten it"
            self.into[self.number] += data


def test_lines_are_numbered_as_items_are(data: Any) -> None:
    page = Lists()
    page.feed(render(data))
    assert page.open == []
    items = {item["n"]: item["text"] for step in data["steps"] for item in step["items"]}
    assert page.lines.keys() == items.keys()
    assert all(text.strip() == items[n].strip() for n, text in page.lines.items())
    assert page.source == {n: line.rstrip() for s in data["sources"] for n, line in zip(s["numbers"], s["lines"], strict=True)}


def test_the_script_gets_the_lineage_of_the_trace(trace: Trace, data: Any) -> None:
    found = re.search(r'<script type="application/json" class="clab-data">(.*?)</script>', render(data), re.DOTALL)
    assert found
    links = json.loads(found[1])
    runs = lambda text: [[*run.split("*"), "1"] for run in text.split(",")]
    decode = lambda text: [list(map(int, run[0].split())) for run in runs(text) for _ in range(int(run[1]))]
    assert decode(links["up"]) == data["up"] and decode(links["src"]) == data["src"]
    ours = lineage(trace)
    keys = list(ours.items)
    assert [[keys[p] for p in up] for up in data["up"]] == [list(ours.parents[k]) for k in keys]


def where(data: Any, text: str) -> int:
    """The source number of the line that holds ``text``."""
    (number,) = [n for s in data["sources"] for n, line in zip(s["numbers"], s["lines"], strict=True) if text in line]
    return number


def lost(data: Any, text: str) -> dict[str, tuple[str, str]]:
    """step -> (the step that lost the line that holds ``text``, why)."""
    number, names = where(data, text), {s["index"]: f"{s['name']} {s['part']}".strip() for s in data["steps"]}
    return {
        f"{s['name']} {s['part']}".strip(): (names[one["step"]], words.why_lost(one["why"])) for s in data["steps"] for one in s["lost"] if one["src"] == number
    }


def test_lost_lines_say_why(data: Any) -> None:
    dead = lost(data, "torch.cos(x)")
    assert dead["eliminate dead code"] == ("eliminate dead code", "removed: nobody reads it, and running it has no effect of its own")
    assert dead["generate forward"] == dead["eliminate dead code"], "it stays lost for the same reason"
    twice = lost(data, "again = ")
    assert twice and all("an earlier node computes the same operator" in why for _, why in twice.values()), "merged into the line that computes the same"
    assert "Python did it once" in lost(data, "scale = 3 * 2")["joint"][1]
    assert "library" in lost(data, "@ w")["build forward"][1]
    assert lost(data, "y = torch.relu").get("generate forward") is None


def test_no_line_is_lost_that_has_an_item(trace: Trace, data: Any) -> None:
    for step in data["steps"]:
        here = {n for item in step["items"] for n in item["src"]}
        assert not here & {one["src"] for one in step["lost"]}, step["name"]


def test_a_pass_shows_its_own_decisions_and_what_it_removed(data: Any) -> None:
    steps = {s["name"]: s for s in data["steps"] if not s["part"]}
    assert {d["kind"] for d in steps["eliminate common subexpressions"]["decisions"]} == {"merge"}
    assert any("relu" in line for line in steps["eliminate common subexpressions"]["removed"])
    assert not any(item["new"] for item in steps["eliminate dead code"]["items"])


def test_steps_can_be_chosen_and_keep_their_links(trace: Trace) -> None:
    some = html.view_data(trace, ["capture", "generate"])
    assert [s["name"] for s in some["steps"]] == ["capture", "generate", "generate"]
    assert some["up"] == html.view_data(trace)["up"]
    assert "Loops and library calls" not in render(some)


def slot(name: str, offset: int, size: int, first: int, last: int) -> dict[str, Any]:
    return {"id": f"scheduling.forward.memory/{name}", "kind": "slot", "text": name, "facts": {"offset": offset, "bytes": size, "first": first, "last": last}}


def test_the_memory_chart_and_its_table_say_the_same() -> None:
    text = memory_chart([slot("buf2", 0, 2048, 1, 2), slot("buf1", 0, 1024, 0, 0)], ["k0", "k1", "e0"])
    bars = re.findall(r'<rect class="clab-m(\d)" x="(\d+)" y="(\d+)" width="(\d+)"', text)
    assert [int(y) for _, _, y, _ in bars] == sorted(int(y) for _, _, y, _ in bars) and len({shade for shade, *_ in bars}) == 1
    assert int(bars[1][3]) > int(bars[0][3]) and int(bars[1][1]) > int(bars[0][1])
    rows = re.findall(r"<tr>((?:<td>[^<]*</td>)+)</tr>", text)
    assert [re.findall(r"<td>([^<]*)</td>", row) for row in rows] == [["buf1", "1,024", "0", "k0", "k0"], ["buf2", "2,048", "0", "k1", "e0"]]
    assert "2 buffers of 3,072 bytes together live in 2,048 bytes" in text


def test_text_in_the_notebook_is_cut_and_says_so(trace: Trace) -> None:
    text = html.bundle(trace)["text/plain"]
    assert re.search(r"\.\.\. \d+ more lines; all of them with --text", text)
    assert len(text) < len(trace.text())
    assert all(f"== {s.name}" in text for s in trace.steps)
