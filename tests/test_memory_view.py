"""The memory view: its places, lifetimes and curves are the plan's, to the byte, in the data, in the HTML and in the figure."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import memory_view

import compiler_lab
from compiler_lab.observe.memory_data import memory_data
from compiler_lab.observe.trace import Trace
from compiler_lab.scheduling.order import lifetimes


def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    h = torch.tanh(x @ w)
    h = torch.nn.functional.gelu(h @ w) @ w
    return (torch.softmax(h, -1) @ v).sigmoid()


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("buffers & <bytes>")
    made = compiler_lab.compile(program, fullgraph=True, observe=trace.append)
    made(torch.randn(64, 64), torch.randn(64, 64, requires_grad=True), torch.randn(64, 48)).sum().backward()
    return trace


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return memory_data(trace)


def plans(trace: Trace) -> list[Any]:
    return [s.after for s in trace.steps if s.name == "plan memory"]


def agrees(trace: Trace, data: Any) -> bool:
    """Figures, places, lifetimes and the greatest values of the curves are those of the plans."""
    for p, plan in zip(data["programs"], plans(trace), strict=True):
        found = {b["name"]: b for b in p["buffers"]}
        places = {n: (b["offset"], b["reserved"], b["first"], b["last"], b["host"]) for n, b in found.items() if b["place"] != "own"}
        slots = {s.buffer.name: (s.offset, s.nbytes, *lifetimes(plan.groups)[s.buffer.name], s.host) for s in plan.slots}
        figures = {"peak": plan.peak_bytes, "bound": plan.bound_bytes, "eager": plan.eager_bytes, "arena": plan.arena_bytes}
        tops = {"ours": plan.peak_bytes, "bound": plan.bound_bytes, "eager": plan.eager_bytes}
        over = {n: b["over"] for n, b in found.items() if b["over"]}
        held = {i["name"]: i["bytes"] for i in p["inputs"] if i["bytes"]}
        if (places, p["figures"], {k: max(v) for k, v in p["curves"].items()}, over, held) != (slots, figures, tops, dict(plan.over), dict(plan.held)):
            return False
    return True


def test_the_data_are_the_plans(trace: Trace, data: Any) -> None:
    assert agrees(trace, data)
    assert {b["place"] for p in data["programs"] for b in p["buffers"]} >= {"own", "inside"} and any(b["over"] for p in data["programs"] for b in p["buffers"])
    held = next(k for k, b in enumerate(data["programs"][0]["buffers"]) if b["place"] != "own")
    for change in (
        lambda d: d["programs"][0]["figures"].update(peak=d["programs"][0]["figures"]["peak"] + 1),
        lambda d: d["programs"][0]["buffers"][held].update(offset=d["programs"][0]["buffers"][held]["offset"] + 64),
        lambda d: d["programs"][1]["curves"].update(ours=[n + 1 for n in d["programs"][1]["curves"]["ours"]]),
    ):
        wrong = copy.deepcopy(data)
        change(wrong)
        assert not agrees(trace, wrong)


def test_a_backward_counts_what_it_alone_holds_in_every_figure(trace: Trace, data: Any) -> None:
    """What was saved, but nothing that its caller has: with it the curves begin, and each is above it until the last reader has run."""
    forward, backward = plans(trace)
    spec: Any = trace.stage("lower", "backward")
    own = {s.name: s.cost for s in spec.inputs if s.name not in spec.lent}
    assert not forward.held and backward.held == own and 0 < sum(own.values()) < min(backward.peak_bytes, backward.bound_bytes, backward.eager_bytes)
    for curve in ("ours", "bound", "eager"):
        values = data["programs"][1]["curves"][curve]
        assert values[0] >= sum(own.values()) > values[-1] - data["programs"][1]["figures"]["arena"]


def test_figures_are_facts_and_older_files_have_those_of_the_curves(trace: Trace, data: Any) -> None:
    saved = json.loads(json.dumps(trace.to_json()))
    for artifact in saved["artifacts"]:
        if artifact["type"] == "MemoryPlan":
            artifact["text"] = "none of it is read"
    assert memory_data(Trace.from_json(saved)) == data
    for artifact in saved["artifacts"]:
        artifact["items"] = [i for i in artifact["items"] if i["kind"] != "figures"]
    old = memory_data(Trace.from_json(saved))["programs"]
    assert old[0]["figures"] == data["programs"][0]["figures"], "a forward's"
    assert old[1]["figures"]["arena"] == data["programs"][1]["figures"]["arena"]


def test_the_page_says_why_a_plan_peaks_above_op_by_op(data: Any) -> None:
    higher = copy.deepcopy(data)
    for p in higher["programs"]:
        p["figures"]["eager"] = p["figures"]["peak"] - 1
    assert memory_view.render(higher).count("It peaks above op by op here") == 2
    for p in higher["programs"]:
        p["figures"]["eager"] = p["figures"]["peak"]
    assert "It peaks above" not in memory_view.render(higher)


def test_inputs_are_told_by_their_readers(trace: Trace, data: Any) -> None:
    for p in data["programs"]:
        made = {b["name"] for b in p["buffers"]}
        assert {i["name"] for i in p["inputs"]} == {name for k in p["kernels"] for name in k["reads"]} - made
        assert all(i["name"] in p["kernels"][i["last"]]["reads"] for i in p["inputs"])


def test_the_page_says_the_numbers_and_escapes_the_rest(data: Any) -> None:
    page = memory_view.render(data)
    assert "buffers &amp; &lt;bytes&gt;" in page and "<bytes>" not in page and not re.search(r"https?://(?!www\.w3\.org)", page)
    sections = page.split('<section class="clab-mprogram"')[1:]
    for p, section in zip(data["programs"], sections, strict=True):
        assert {k: int(v) for k, v in re.findall(r'data-figure="(\w+)" data-value="(\d+)"', section)} == p["figures"]
        (found,) = re.findall(rf'aria-label="Buffers of {p["name"]}">(.*?)</table>', section, re.DOTALL)
        rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", found)[1:]]
        said = [(r[0], int(r[2].replace(",", "")), r[6], int(r[7].replace(",", "") or 0), r[8]) for r in rows]
        assert said == [(b["name"], b["bytes"], b["host"], b["offset"], b["over"]) for b in p["buffers"]]
        assert len(re.findall(r'<g class="clab-bar', section)) == len(p["buffers"]) + sum(b["place"] == "arena" for b in p["buffers"])
    text = memory_view.text(data)
    assert all(f"{n:,} bytes" in text for p in data["programs"] for n in p["figures"].values())


def test_the_figure_draws_the_curves(data: Any) -> None:
    (axes,) = memory_view.figure(data, 1).axes
    lines = [line for line in axes.lines if len(line.get_ydata()) > 1]
    assert [list(line.get_ydata()) for line in lines] == [data["programs"][1]["curves"][key] for key, _ in memory_view.CURVES]


def test_a_saved_trace_gives_the_same(trace: Trace, data: Any, tmp_path: Path) -> None:
    trace.save(tmp_path / "t.zip")
    assert memory_data(Trace.load(tmp_path / "t.zip")) == data
    assert memory_view.render(memory_data(Trace("nothing"))).count("No step here plans memory") == 1
