"""The fusion view: its data are the schedule's decisions and figures, its groups are the schedule's, and its HTML says the same numbers."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import fusion_view

import compiler_lab
from compiler_lab.core.options import Options
from compiler_lab.observe.fusion_data import fusion_data
from compiler_lab.observe.trace import Trace
from compiler_lab.scheduling.fusion import Fuser, live_nodes


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.softmax((x @ w) * 2 + 1, -1)
    z = torch.relu(x) + x.mean(0)
    return (y.sum(-1) * z.sum(-1)).cumsum(0).sum()


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("loops & <kernels>")
    made = compiler_lab.compile(program, fullgraph=True, observe=trace.append)
    made(torch.randn(64, 96), torch.randn(96, 80, requires_grad=True)).backward()
    return trace


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return fusion_data(trace)


def schedules(trace: Trace) -> list[Any]:
    return [s.after for s in trace.steps if s.name == "schedule"]


def agrees(trace: Trace, data: Any) -> bool:
    """Every decision of every schedule is one step with its own figures, and the kernels' bytes are the program's buffers'."""
    for p, schedule in zip(data["programs"], schedules(trace), strict=True):
        name = [loop["name"] for loop in p["loops"]]
        steps = sorted((name[s["left"]], name[s["right"]], s["outcome"], s["reason"], s["saved"]) for s in p["steps"])
        own = sorted((*(i.rpartition("/")[2] for i in d.subject), d.outcome, d.reason, d.facts["bytes_saved"]) for d in schedule.decisions if d.kind == "fuse")
        buffers = schedule.program.buffers
        moved = [sum(buffers[b].cost for b in (*i.facts["reads"], *i.facts["writes"])) for i in schedule.items() if i.id.count("/") == 1]
        if steps != own or [k["moved"] for k in p["kernels"]] != moved:
            return False
    return True


def test_steps_are_the_decisions(trace: Trace, data: Any) -> None:
    assert agrees(trace, data) and all(p["steps"] for p in data["programs"])
    wrong = copy.deepcopy(data)
    wrong["programs"][0]["steps"][0]["saved"] += 1
    assert not agrees(trace, wrong)
    wrong = copy.deepcopy(data)
    wrong["programs"][1]["kernels"][0]["moved"] += 1
    assert not agrees(trace, wrong)


def test_groups_grow_into_those_of_the_scheduler(trace: Trace, data: Any) -> None:
    """Joined in the order of the steps, groups are what the greedy search left, before values were computed again in their readers."""
    for p, schedule in zip(data["programs"], schedules(trace), strict=True):
        fuser = Fuser(schedule.program, live_nodes(schedule.program)[0], Options())
        fuser.fuse()
        group = {k: {k} for k in range(len(p["loops"]))}
        for s in p["steps"]:
            assert s["joins"] == (s["outcome"] == "accepted" and group[s["left"]] is not group[s["right"]])
            if s["joins"]:
                both = group[s["left"]] | group[s["right"]]
                group.update(dict.fromkeys(both, both))
        names = {frozenset(p["loops"][k]["name"] for k in g) for g in group.values() if any(p["loops"][k]["kind"] in ("pointwise", "reduction") for k in g)}
        assert names == {frozenset(m.name for m in d.members) for d in fuser.drafts()}
        assert p["steps"][-1]["kernels"] == len({id(g) for g in group.values()})


def test_bytes_moved_end_at_those_of_the_kernels(trace: Trace, data: Any) -> None:
    checked = 0
    for p in data["programs"]:
        moved = [p["before"], *(s["moved"] for s in p["steps"])]
        assert moved[-1] < moved[0]
        assert all(s["joins"] or before == after for s, before, after in zip(p["steps"], moved, moved[1:], strict=False))
        if all(a["outcome"] != "accepted" for a in p["again"]):
            checked += 1
            assert moved[-1] == p["after"]
    assert checked, "no program without recomputation: the end was never compared"


def test_the_page_says_the_numbers_and_escapes_the_rest(data: Any) -> None:
    page = fusion_view.render(data)
    assert "loops &amp; &lt;kernels&gt;" in page and "<kernels>" not in page and not re.search(r"https?://(?!www\.w3\.org)", page)
    for p in data["programs"]:
        (found,) = re.findall(rf'aria-label="Pairs of {p["name"]}">(.*?)</table>', page, re.DOTALL)
        rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", found)[1:]]
        number = lambda cell: int(cell.replace(",", ""))
        assert [(number(r[0]), number(r[5]), number(r[6])) for r in rows] == [(n, s["saved"], s["moved"]) for n, s in enumerate(p["steps"], 1)]
    text = fusion_view.text(data)
    assert all(f"{p['before']:,}" in text and f"{p['steps'][-1]['moved']:,}" in text for p in data["programs"])


def test_a_saved_trace_gives_the_same(trace: Trace, data: Any, tmp_path: Path) -> None:
    trace.save(tmp_path / "t.zip")
    assert fusion_data(Trace.load(tmp_path / "t.zip")) == data
    assert fusion_view.render(fusion_data(Trace("nothing"))).count("No step here fuses loops") == 1
