"""Two traces beside each other: every number is the artifacts' own, rows stand beside what they correspond to, the words follow from the numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets.compare_view import render, said, text

import compiler_lab
from compiler_lab.core.artifact import Decision, Item
from compiler_lab.core.errors import UnknownOption
from compiler_lab.observe import compare_data as compare
from compiler_lab.observe.compare_data import Both, compare_data
from compiler_lab.observe.torch_trace import RecordedArtifact
from compiler_lab.observe.trace import Step, Trace


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x @ w) * torch.cos(x)
    return y.sum()


@pytest.fixture(scope="module")
def both() -> Both:
    return compiler_lab.inspect(program, torch.randn(8, 8), torch.randn(8, 8, requires_grad=True), backend="aot_eager", stack="both")


@pytest.fixture(scope="module")
def data(both: Both) -> Any:
    return compare_data(both.lab, both.torch)


def stage_of(data: Any, name: str, part: str = "") -> Any:
    (found,) = [s for s in data["stages"] if (s["name"], s["part"]) == (name, part)]
    return found


def count_of(data: Any, name: str, what: str) -> list[Any]:
    (found,) = [c["values"] for c in stage_of(data, name)["counts"] if c["what"] == what]
    return found


def test_the_numbers_are_the_artifacts_own(both: Both, data: Any) -> None:
    calls = lambda artifact, of="": sum(i.kind.startswith("call_") and i.id.startswith(of) for i in artifact.items())
    assert count_of(data, "capture", "nodes captured") == [calls(t.stage("capture")) for t in both.traces] == [5, 5]
    joints = [both.lab.stage("eliminate dead code"), both.torch.stage("joint")]
    assert count_of(data, "joint", "nodes") == [calls(j) for j in joints]
    cuts = [t.stage("partition") for t in both.traces]
    assert count_of(data, "partition", "nodes in the backward") == [calls(c, "aot.backward/") for c in cuts]
    saved = [[d for d in c.decisions if (d.kind, d.outcome) == ("save", "saved")] for c in cuts]
    assert count_of(data, "partition", "tensors saved") == list(map(len, saved))
    assert count_of(data, "partition", "bytes saved") == [sum(d.facts["bytes"] for d in one) for one in saved]
    ours: Any = cuts[0]
    assert ours.saved_bytes == count_of(data, "partition", "bytes saved")[0]
    assert count_of(data, "guard", "checks") == [sum(i.kind != "source" for i in t.stage("guard").items()) for t in both.traces]
    assert count_of(data, "capture", "seconds") == [t.steps[0].seconds for t in both.traces]
    totals = {c["what"]: c["values"] for c in data["totals"]}
    assert totals["bytes saved"] == count_of(data, "partition", "bytes saved") and totals["graph breaks"] == [0, 0]


def test_a_changed_number_shows(both: Both, data: Any) -> None:
    cut = both.torch.stage("partition")
    wrong = tuple(Decision(d.kind, d.subject, d.outcome, d.reason, {"bytes": d.facts["bytes"] + 1}) if d.outcome == "saved" else d for d in cut.decisions)
    changed = RecordedArtifact("Partition", cut.stage, cut.text(), cut.items(), wrong)
    steps = [Step(s.name, s.before, changed, s.seconds, s.part, s.graph) if s.name == "partition" else s for s in both.torch.steps]
    other = compare_data(both.lab, Trace("program", steps, {}, both.torch.environment))
    assert count_of(other, "partition", "bytes saved")[1] == count_of(data, "partition", "bytes saved")[1] + sum(d.outcome == "saved" for d in cut.decisions)
    assert render(other) != render(data)


def test_rows_stand_beside_what_they_correspond_to(data: Any) -> None:
    capture = stage_of(data, "capture")
    assert capture["same"] == len(capture["rows"]) == 8, "both captured the same"
    assert all(r["left"]["text"].split(" = ")[1].split("(")[0] == r["right"]["text"].split(" = ")[1].split("(")[0] for r in capture["rows"][2:-1])
    (sin,) = [r for r in capture["rows"] if "torch.sin" in r["left"]["text"]]
    line = f"{Path(__file__).name}:{program.__code__.co_firstlineno + 1}"
    assert sin["left"]["line"] == sin["right"]["line"] == line
    for stage in data["stages"]:
        for row in stage["rows"]:
            assert row["left"] is not None or row["right"] is not None
            assert not row["same"] or (row["left"] is not None and row["right"] is not None)


def test_two_compiles_of_one_stack_and_traces_of_other_length(both: Both, tmp_path: Path) -> None:
    second = compiler_lab.inspect(program, torch.randn(8, 8), torch.randn(8, 8), backend="aot_eager")
    found = compare_data(both.lab, second)
    assert [s["name"] for s in found["sides"]] == ["lab, first", "lab, second"] and not found["lab_and_torch"]
    assert stage_of(found, "joint")["same"] < len(stage_of(found, "joint")["rows"]), "no gradient is asked for the second time"
    eager = compare_data(both.lab, compiler_lab.inspect(program, torch.randn(8, 8), torch.randn(8, 8), backend="eager"))
    assert stage_of(eager, "joint")["present"] == [True, False] and "lab, second has not got this stage" in render(eager)
    both.torch.save(tmp_path / "torch.zip")
    both.lab.save(tmp_path / "lab.zip")
    loaded = compiler_lab.view(Trace.load(tmp_path / "lab.zip"), "compare", other=Trace.load(tmp_path / "torch.zip"))
    assert loaded.html() == both.view().html()
    with pytest.raises(UnknownOption, match="second trace"):
        compiler_lab.view(both.lab, "compare")


def test_the_page_says_the_datas_numbers(both: Both, data: Any) -> None:
    page = render(data)
    shown = [None if v == "" else float(v) for v in re.findall(r'data-value="([^"]*)"', page)]
    counts = [*data["totals"], *(c for s in data["stages"] for c in s["counts"])]
    assert shown == [v for c in counts for v in c["values"]]
    rows = re.findall(r'<tr class="clab-(same|left|right|other)">', page)
    assert len(rows) == sum(len(s["rows"]) for s in data["stages"]) and rows.count("same") == sum(s["same"] for s in data["stages"])
    assert not re.search(r"https?://", re.sub(r'xmlns="[^"]*"', "", page))
    assert both._repr_mimebundle_()["text/html"] == page and both.text() == text(data)
    for c in counts:
        assert said(c, ["lab", "torch"]) in text(data)


@pytest.mark.parametrize(
    ("what", "unit", "values", "words"),
    [
        ("kernels", "", [3, 3], "kernels: 3 in both"),
        ("kernels", "", [3, 1], "kernels: 3 in lab, 1 in torch; torch has 2 fewer than lab"),
        ("bytes saved", "bytes", [512, 2560], "bytes saved: 512 bytes in lab, 2.56 kB in torch; lab has 2.05 kB less than torch"),
        ("seconds", "seconds", [0.5, 2.0], "seconds: 500 ms in lab, 2.00 s in torch; lab takes 4.0 times less"),
        ("seconds", "seconds", [0.0, 2.0], "seconds: 0.0 ms in lab, 2.00 s in torch"),
        ("loops", "", [None, 7], "loops: 7 in torch; lab has not got this stage"),
        ("loops", "", [None, None], "loops: in neither"),
    ],
)
def test_words_follow_from_the_numbers(what: str, unit: str, values: list[Any], words: str) -> None:
    assert said({"what": what, "unit": unit, "values": values}, ["lab", "torch"]) == words


def recorded(texts: list[str], title: str = "t") -> Trace:
    items = tuple(Item(f"frames/n{k}", "call_function", t, (), (), {"name": f"n{k}", "target": t.split("(")[0]}) for k, t in enumerate(texts))
    return Trace(title, [Step("capture", None, RecordedArtifact("Capture", "frames", "", items), 0.0)])


def test_what_is_left_out_is_counted_and_text_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    data = compare_data(recorded([f"op{k}()" for k in range(compare.LIMITS[0] + 20)], evil), recorded([evil]))
    (stage,) = data["stages"]
    assert len(stage["rows"]) == compare.LIMITS[0] and stage["left_out"] == 20 and "the first 300 are shown" in render(data)
    assert evil not in render(data).replace("<script type", "") and "&lt;script&gt;alert" in render(data)
    long = [f"op{k}()" for k in range(4100)]
    (stage,) = compare_data(recorded(long), recorded([*long[:5], "other()", *long[6:]]))["stages"]
    assert stage["same"] == 4099
