"""The view of guards: trees and recompiles equal what the compile made, and inputs that are tried get the guards' own answer."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from compiler_lab_widgets import guards_view

from compiler_lab.frames.capture import Capture
from compiler_lab.frames.guards import GuardTree
from compiler_lab.observe.guards_data import answer, guards_data
from compiler_lab.observe.trace import Trace

from .frame_programs import breaking, recompiled


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recompiled()


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return guards_data(trace)


def checks(tree: Any) -> list[Any]:
    return [*(c for n in tree["nodes"] for c in n["checks"]), *tree["relations"]]


def test_every_check_stands_where_it_looks(trace: Trace, data: Any) -> None:
    for tree in data["trees"]:
        items = {i.id: i for i in trace.stage("guard", graph=tree["graph"]).items()}
        assert [n["id"] for n in tree["nodes"]] == [i.id for i in items.values() if i.kind == "source"]
        assert sorted(c["id"] for c in checks(tree)) == sorted(i.id for i in items.values() if i.kind != "source")
        for n, node in enumerate(tree["nodes"]):
            assert node["up"] < n and all(items[c["id"]].parents == (node["id"],) for c in node["checks"])
            above = tree["nodes"][node["up"]]["path"] if node["up"] >= 0 else ""
            assert node["path"] in (above + node["label"], node["label"])
        for check in checks(tree):
            item = items[check["id"]]
            assert check["text"] in item.text or check["kind"] == "equals"
            assert item.location is not None and data["lines"][check["line"]] == item.location.text()


def test_a_recompile_names_the_check_that_failed(data: Any) -> None:
    first, second = data["recompiles"]
    (size,) = first["failures"]
    assert (size["source"], size["expected"], size["got"]) == ("L['x']", "size (2, 3)", "(4, 3)") and "mark_dynamic(x, 0)" in size["advice"]
    assert [f["source"] for f in second["failures"]] == ["L['self'].step"] * 2 and sorted(f["tree"] for f in second["failures"]) == [0, 1]
    for number, point in enumerate(data["recompiles"]):
        for failure in point["failures"]:
            (leaf,) = [c for c in checks(data["trees"][failure["tree"]]) if c["id"] == failure["check"]]
            assert number in leaf["missed"] and leaf["kind"] == failure["kind"]
    assert "return y + self.step" in data["lines"][second["failures"][0]["line"]]


def test_a_saved_trace_shows_the_same(trace: Trace, data: Any) -> None:
    loaded = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert guards_data(loaded) == data and guards_data(loaded, costs=True)["measured"] is False
    assert "saved trace" in answer(loaded, {"tree": 0, "values": {}})["error"]


def test_the_html_says_each_check(data: Any) -> None:
    html = guards_view.render(data)
    assert "<script>alert" not in html and "https://" not in html and "http://" not in html
    ids = json.loads(re.findall(r'class="clab-data">(.*?)</script>', html)[0])["trees"]
    for tree, found in zip(data["trees"], ids, strict=True):
        for check in checks(tree):
            (leaf,) = re.findall(rf'<li id="{found["ids"][check["id"]]}"[^>]*><span>(.*?)</span>', html)
            assert unescape(leaf).startswith(check["text"]) and unescape(leaf).count("failed: ") == len(check["missed"])
            assert data["lines"][check["line"]] in unescape(leaf)
    for point in data["recompiles"]:
        for failure in point["failures"]:
            assert f"<del>{failure['expected']}</del>" in html and f"<ins>{failure['got']}</ins>" in html
            assert f'href="#{ids[failure["tree"]]["ids"][failure["check"]]}"' in html
    assert "expected size (2, 3); got (4, 3)" in guards_view.text(data)


@pytest.mark.parametrize(
    ("values", "fits", "words"),
    [
        ({"x": "torch.randn(2, 3)"}, True, "Every guard holds"),
        ({"x": "x * 2", "k": ""}, True, "Every guard holds"),
        ({"x": "torch.randn(4, 3)"}, False, "expected size (2, 3); got (4, 3)"),
        ({"x": "x.double()"}, False, "dtype"),
        ({"k": "7"}, False, "expected 2; got 7"),
    ],
)
def test_inputs_that_are_tried_get_the_answer_of_the_guards(values: dict[str, str], fits: bool, words: str) -> None:
    trace = recompiled_once()
    found = answer(trace, {"tree": 0, "values": values})
    assert found["fits"] is fits and words in found["text"]
    if not fits:
        data: Any = guards_data(trace)
        (leaf,) = [c for c in checks(data["trees"][0]) if c["id"] == found["check"]]
        assert leaf["kind"] in ("tensor", "equals") and found["advice"] and "test" not in found["line"] and "frame_programs.py" in found["line"]


def recompiled_once() -> Trace:
    import torch

    import compiler_lab

    from .frame_programs import Net

    return compiler_lab.inspect(Net(), torch.randn(2, 3), 2, backend="eager")


def test_what_cannot_be_tried_is_said(trace: Trace) -> None:
    assert "SyntaxError" in answer(trace, {"tree": 0, "values": {"x": "torch."}})["error"]
    assert "no argument" in answer(trace, {"tree": 0, "values": {"nothing": "1"}})["error"]


def test_costs_are_those_of_the_tree() -> None:
    trace = breaking()
    data: Any = guards_data(trace, costs=True)
    assert data["measured"] and all(c["nanoseconds"] is not None for c in checks(data["trees"][0])) and data["trees"][0]["nanoseconds"] > 0
    step = next(s for s in trace.steps if s.name == "guard")
    assert isinstance(step.after, GuardTree) and isinstance(step.before, Capture)
    assert " ns</small>" in guards_view.render(data)
