"""The view of breaks: each place once, with its line, its reason and the graphs it cost; and the catalogue's programs do what it says of them."""

from __future__ import annotations

import json
import random
import re
import time
from html import unescape
from typing import Any

import numpy as np
import pytest
import torch
from compiler_lab_widgets import breaks_view

import compiler_lab
from compiler_lab.frames.reasons import REASONS, REWRITES
from compiler_lab.observe.breaks_data import breaks_data
from compiler_lab.observe.trace import Trace

from .frame_programs import breaking, recompiled


@pytest.fixture(scope="module")
def trace() -> Trace:
    return breaking()


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return breaks_data(trace)


def test_each_break_stands_once(trace: Trace, data: Any) -> None:
    met = [b for s in trace.steps if s.name == "capture" for b in s.after.items() if b.kind == "break"]
    assert [b["reason"] for b in data["breaks"]] == ["output", "data-dependent-branch"] and sum(b["met"] for b in data["breaks"]) == len(met) > 2
    assert data["graphs"] == len(trace.graphs)
    assert sum(len([p for p in b["cut"] if p[1] is not None]) for b in data["breaks"]) <= data["graphs"] - 1
    for one in data["breaks"]:
        line = one["lines"][one["line"] - one["first"]]
        assert ("print(" if one["reason"] == "output" else "if x.sum() > 0") in line
        assert one["why"] == REASONS[one["reason"]].why and one["hint"] and (one["before"], one["after"]) == REWRITES[one["reason"]]
    assert [("broken" in data["breaks"][1]["stack"][0]), ("helper" in data["breaks"][1]["stack"][1])] == [True, True]


def test_a_frame_that_is_left_whole_is_told() -> None:
    trace = Trace("drawn")

    def drawn(x: Any) -> Any:
        return [random.random() for _ in range(2)], x.item()

    compiler_lab.compile(drawn, backend="eager", observe=trace.append)(torch.ones(()))
    data: Any = breaks_data(trace)
    assert data["breaks"] and all(b["whole"] for b in data["breaks"] if not b["cut"]) and data["graphs"] == len(trace.graphs)


def test_a_saved_trace_shows_the_same(trace: Trace, data: Any) -> None:
    loaded = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert breaks_data(loaded) == data


def test_the_html_marks_the_line(data: Any) -> None:
    html = breaks_view.render(data)
    assert "<b>value" not in html and "https://" not in html and "http://" not in html
    marked = re.findall(r'<li data-l="(\d+)" class="clab-hot" data-here="the graph ends here">(.*?)</li>', html)
    assert [int(n) for n, _ in marked] == [b["line"] for b in data["breaks"]]
    for (_, line), one in zip(marked, data["breaks"], strict=True):
        assert unescape(re.sub(r"<[^>]*>", "", line)) == one["lines"][one["line"] - one["first"]]
        assert breaks_view.cost(one) in unescape(html)
    assert "No graph breaks" in breaks_view.render(breaks_data(recompiled()))
    assert "print outside the compiled function" in breaks_view.text(data)


@pytest.mark.parametrize("reason", REWRITES)
def test_the_program_beside_a_reason_breaks_for_it_and_its_rewrite_does_not(reason: str) -> None:
    before, after = REWRITES[reason]
    world: dict[str, Any] = {"torch": torch, "np": np, "random": random, "time": time}
    for source, wanted in ((before, [reason]), (after, [])):
        space = dict(world)
        exec(compile(source, f"<{reason}>", "exec"), space)
        extra = (1,) if reason == "identity" and source is after else ()
        captured = compiler_lab.capture(space["f"], torch.randn(2, 3).requires_grad_(reason == "autograd-api"), *extra)
        assert [b.reason for b in captured.breaks] == wanted
