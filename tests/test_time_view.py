"""The time view: its phases are the trace's steps and the real stack's log, its kernels are the call's, and its page says the same numbers; recording
costs nothing where nobody records, and a call that is not measured has no place for a clock."""

from __future__ import annotations

import cProfile
import itertools
import json
import pstats
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import time_view

import compiler_lab
from compiler_lab import pipeline
from compiler_lab.core import clock
from compiler_lab.core.artifact import Artifact
from compiler_lab.core.clock import Clock, Span, spent
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.observe import time_data as making
from compiler_lab.observe.time_data import Phase, time_data
from compiler_lab.observe.trace import LoadedArtifact, Step, Trace, seconds_of
from compiler_lab.profiling import CallProfile, profile_call


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.nn.functional.gelu(x @ w)
    torch._dynamo.graph_break()
    return (torch.softmax(h, -1) * h).sum()


def whole(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(torch.relu(x) @ w, -1) * 2).sum(-1)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Two pieces of a frame, compiled again for another size, and a measured call."""
    trace = Trace("pieces & <phases>")
    made = compiler_lab.compile(program, observe=trace.append)
    w = torch.randn(16, 16, requires_grad=True)
    for rows in (8, 9):
        made(torch.randn(rows, 16), w)
    trace.append(profile_call(made, torch.randn(9, 16), w, repeats=3).step())
    return trace


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return time_data(trace)


@pytest.fixture(scope="module")
def torchs() -> Trace:
    return compiler_lab.record_torch(program, torch.randn(8, 16), torch.randn(16, 16, requires_grad=True), backend="aot_eager")


# ---- what steps know ----


def began(step: Step) -> Any:
    return step.start


def test_steps_know_when_they_began_and_what_they_belong_to(trace: Trace) -> None:
    steps = [s for s in trace.steps if s.name != "profile"]
    starts = {s.parent: [began(t) for t in steps if t.parent == s.parent and t.name != "build"] for s in steps}
    assert list(starts) == ["0.1", "1.1", "2.1", "3.1"] and all(s.parent.startswith(f"{s.graph}.") for s in steps)
    assert all(times == sorted(times) for times in starts.values())
    ends = [max(began(s) + s.seconds for s in steps if s.parent == name) for name in starts]
    assert all(end <= start[0] for end, start in zip(ends, list(starts.values())[1:], strict=False)), "one compile after the other"
    for s in steps:
        assert all(0.0 <= p.start and p.start + p.seconds <= s.seconds + 1e-9 for p in s.spans), s.name
    builds = [s for s in steps if s.name == "build"]
    assert all([p.name for p in s.spans][-1] == "load" for s in builds) and {s.part for s in builds} == {"forward", "backward"}
    first, second = builds[:2]
    assert began(first) + first.seconds > began(second), "side by side"
    assert trace.seconds < sum(s.seconds for s in trace.steps), "which counts once"


def test_a_graph_compiled_for_other_sizes_is_another_compile() -> None:
    trace = Trace()
    made = compiler_lab.compile(lambda x: torch.fft.fft(x).real.sum(), dynamic=True, fullgraph=True, observe=trace.append)
    for size in (8, 12):
        made(torch.randn(size))
    parents = [s.parent for s in trace.steps]
    assert {s.graph for s in trace.steps} == {0} and parents == sorted(parents)
    if len(set(parents)) > 1:
        assert [p["name"] for p in time_data(trace)["sides"][0]["phases"] if p["parent"] < 0][-1].endswith("for other sizes")


def test_seconds_of_steps_that_overlap_count_once() -> None:
    nothing = LoadedArtifact({"type": "G", "stage": "g", "text": "", "items": [], "decisions": []})
    step = lambda start, seconds: Step("s", None, nothing, seconds, start=start)
    assert seconds_of([step(0.0, 2.0), step(1.0, 2.0), step(5.0, 1.0), step(1.5, 0.5)]) == 4.0
    assert seconds_of([step(None, 2.0), step(None, 3.0)]) == 5.0 and seconds_of([]) == 0.0


def test_a_clock_tells_the_whole_and_what_was_inside() -> None:
    told = Clock()
    with spent(told, "whole"), spent(told, "inside"), spent(told, "deeper"):
        pass
    start, seconds, spans = told.told()
    assert [s.name for s in spans] == ["inside", "deeper"] and start > 0 and all(0 <= s.start and s.start + s.seconds <= seconds for s in spans)
    with pytest.raises(ZeroDivisionError), spent(told, "fails"):
        _ = 1 / 0
    assert "fails" in [s.name for s in told.told()[2]]
    with spent(None, "nobody looks"):
        pass


# ---- the view's data ----


def agrees(trace: Trace, data: Any) -> bool:
    """Every step that took time is one phase, with its seconds and its beginning, inside the compile it belongs to; its spans are inside it."""
    (side,) = data["sides"]
    phases = side["phases"]
    first = min(s.start for s in trace.steps if s.start is not None)
    steps = [s for s in trace.steps if s.seconds > 0.0]
    want = sorted((s.name, s.part, s.start - first, s.seconds, len(s.spans)) for s in steps)  # type: ignore[operator]
    inner = lambda n: sum(p["parent"] == n for p in phases)
    got = sorted((p["name"], p["part"], p["start"], p["seconds"], inner(n)) for n, p in enumerate(phases) if p["depth"] == 1)
    spans = sorted((p.name, p.seconds) for s in steps for p in s.spans)
    return want == got and spans == sorted((p["name"], p["seconds"]) for p in phases if p["depth"] == 2)


def test_phases_are_the_steps(trace: Trace, data: Any) -> None:
    assert agrees(trace, data) and data["sides"][0]["known"]
    for key in ("seconds", "start"):
        wrong = json.loads(json.dumps(data))
        wrong["sides"][0]["phases"][3][key] += 0.001
        assert not agrees(trace, wrong)


def test_a_compile_is_named_and_holds_its_time(trace: Trace, data: Any) -> None:
    (side,) = data["sides"]
    roots = [p for p in side["phases"] if p["parent"] < 0]
    assert [p["name"] for p in roots] == [f"compile of program, graph {n}{', compiled again' if n > 1 else ''}" for n in range(4)]
    assert side["seconds"] == pytest.approx(sum(p["seconds"] for p in roots)) and sum(p["share"] for p in roots) == pytest.approx(1.0)
    for n, p in enumerate(side["phases"]):
        inside = [q for q in side["phases"] if q["parent"] == n]
        covered = making._covered([Phase("", q["start"], q["seconds"]) for q in inside])
        assert p["own"] == pytest.approx(p["seconds"] - covered, abs=1e-6) and p["own"] >= 0.0
        assert all(p["start"] - 1e-6 <= q["start"] and q["start"] + q["seconds"] <= p["start"] + p["seconds"] + 1e-6 for q in inside)


def test_no_two_bars_lie_over_each_other(data: Any, torchs: Trace) -> None:
    for side in (*data["sides"], *time_data(torchs)["sides"]):
        for lane in range(side["lanes"]):
            bars = sorted((p["at"], p["at"] + p["seconds"]) for p in side["phases"] if p["lane"] == lane)
            assert all(b <= c + 2e-6 for (_, b), (c, _) in itertools.pairwise(bars))
        assert all(p["lane"] > side["phases"][p["parent"]]["lane"] for p in side["phases"] if p["parent"] >= 0)


def synthetic(*spans: tuple[float, float]) -> Trace:
    nothing = LoadedArtifact({"type": "G", "stage": "g", "text": "", "items": [], "decisions": []})
    return Trace("idle", [Step("capture", None, nothing, seconds, "", n, start, f"{n}.1") for n, (start, seconds) in enumerate(spans)])


def test_idle_time_between_compiles_is_cut_out_of_the_axis() -> None:
    data = time_data(synthetic((5.0, 1.0), (106.0, 1.0), (107.001, 2.0)))
    (side,) = data["sides"]
    (cut,) = side["cuts"]
    assert side["seconds"] == 4.0 and cut["seconds"] == pytest.approx(100 - 0.08) and cut["at"] == pytest.approx(1.08)
    roots = [p for p in side["phases"] if p["parent"] < 0]
    assert [p["at"] for p in roots] == pytest.approx([0.0, 1.08, 2.081]) and side["length"] == pytest.approx(4.081)
    assert "99.92 s idle are left out here" in time_view.render(data)


def test_what_goes_on_side_by_side_stands_below_each_other() -> None:
    nothing = LoadedArtifact({"type": "G", "stage": "g", "text": "", "items": [], "decisions": []})
    builds = [Step("build", None, nothing, 4.0 - n, part, 0, 1.0, "0.1", (Span("compiler run", 0.5, 2.0),)) for n, part in enumerate(("forward", "backward"))]
    (side,) = time_data(Trace("t", [Step("capture", None, nothing, 1.0, "", 0, 0.0, "0.1"), *builds]))["sides"]
    assert [(p["name"], p["part"], p["lane"], p["own"]) for p in side["phases"]] == [
        ("compile, graph 0", "", 0, 0.0), ("capture", "", 1, 1.0), ("build", "forward", 1, 2.0), ("compiler run", "forward", 2, 2.0),
        ("build", "backward", 3, 1.0), ("compiler run", "backward", 4, 2.0),
    ]  # fmt: skip


# ---- files ----


def test_a_saved_trace_gives_the_same(trace: Trace, data: Any, tmp_path: Path) -> None:
    trace.save(tmp_path / "t.zip")
    loaded = Trace.load(tmp_path / "t.zip")
    assert time_data(loaded) == json.loads(json.dumps(data)) and loaded.zero == 0.0
    assert json.dumps(loaded.to_json()) == json.dumps(trace.to_json())


def test_an_older_file_opens_and_the_view_says_what_it_lacks(trace: Trace) -> None:
    saved = json.loads(json.dumps(trace.to_json()))
    for step in saved["steps"]:
        del step["start"], step["parent"], step["spans"]
    old = Trace.from_json(saved)
    (side,) = time_data(old)["sides"]
    assert not side["known"] and old.seconds == pytest.approx(sum(s.seconds for s in trace.steps))
    assert [p["name"] for p in side["phases"] if p["depth"] == 1] == [s.name for s in trace.steps if s.seconds > 0.0]
    for said in (old.view("time").text(), old.view("time").html()):
        assert "does not say when a step began" in said.replace("This file", "this file")
    assert "does not say" not in trace.view("time").text()


@pytest.mark.parametrize("wrong", [{"start": "soon"}, {"spans": [["a", "b", "c"]]}, {"spans": [[1, 0.0, 0.0]]}, {"parent": 3}, {"spans": 5}])
def test_damaged_times_are_refused(trace: Trace, wrong: dict[str, Any]) -> None:
    saved = json.loads(json.dumps(trace.to_json()))
    saved["steps"][0].update(wrong)
    with pytest.raises(InvalidIR, match="damaged"):
        Trace.from_json(saved)


# ---- the page ----


def read_back(page: str) -> tuple[list[list[float]], list[list[float]]]:
    """(began, took, own) of each phase in the table, (seconds, bytes) of each kernel."""
    rows = lambda label: re.findall(r"<tr>(.*?)</tr>", re.findall(rf'aria-label="{label}">(.*?)</table>', page, re.DOTALL)[0])[1:]
    exact = lambda row: [float(v) for v in re.findall(r'<data value="([^"]+)">', row)]
    kernels = [[*exact(row), float(re.findall(r"<td>([\d,]+)</td>", row)[0].replace(",", ""))] for row in rows("Kernels of call of program")]
    return [exact(row) for row in rows("Phases of lab")], kernels


def expected(trace: Trace) -> tuple[list[list[float]], list[list[float]]]:
    """The same, from the artifacts alone. Own time of a compile is in no artifact: of steps and spans only."""
    (profile,) = (s.after for s in trace.steps if s.name == "profile")
    kernels = [[i.facts["seconds"], i.facts["bytes"]] for i in profile.items() if i.kind in ("kernel", "extern")]
    zero = trace.zero
    found = [[s.start - zero, s.seconds, None] for s in trace.steps if s.seconds > 0.0 and s.start is not None]
    found += [[s.start - zero + p.start, p.seconds, None] for s in trace.steps for p in s.spans if s.start is not None]
    return sorted(found), kernels  # type: ignore[return-value]


def page_agrees(page: str, trace: Trace, compiles: int) -> bool:
    phases, kernels = read_back(page)
    want, wanted = expected(trace)
    mine = sorted(row[:2] for row in phases)
    return all(row[:2] in mine for row in want) and len(mine) == len(want) + compiles and kernels == wanted


def test_the_page_says_the_numbers_and_a_wrong_byte_shows(trace: Trace, data: Any) -> None:
    page = time_view.render(data)
    assert page_agrees(page, trace, 4)
    assert "pieces &amp; &lt;phases&gt;" in page and "<phases>" not in page
    saved = json.dumps(trace.to_json())
    assert page_agrees(time_view.render(time_data(Trace.from_json(json.loads(saved)))), trace, 4)
    step = next(s for s in trace.to_json()["steps"] if s["name"] == "partition")
    (profile,) = (s.after for s in trace.steps if s.name == "profile")
    kernel = next(i for i in profile.items() if i.kind == "kernel")
    for number in (repr(step["seconds"]), repr(step["start"]), repr(kernel.facts["seconds"])):
        assert saved.count(number) >= 1
        digit = next(n for n, c in enumerate(number) if c in "123456789")
        wrong = saved.replace(number, number[:digit] + str(10 - int(number[digit]) if number[digit] != "5" else 6) + number[digit + 1 :])
        assert len(wrong) == len(saved)
        assert not page_agrees(time_view.render(time_data(Trace.from_json(json.loads(wrong)))), trace, 4), number


def test_the_text_says_all_of_it(trace: Trace, data: Any) -> None:
    text = time_view.text(data)
    for p in data["sides"][0]["phases"]:
        if p["share"] >= time_view.BRIEF:
            assert f"{p['name']}{', ' + p['part'] if p['part'] else ''}: {time_view.took(p['seconds'])}, own {time_view.took(p['own'])}" in text
    for k in (k for p in data["calls"][0]["programs"] for k in p["kernels"]):
        assert f"{k['name']} {k['what']}: {time_view.took(k['seconds'])}" in text


def test_times_have_three_digits() -> None:
    assert [time_view.took(v) for v in (2.912, 0.045, 0.0045, 0.00045, 0.0000123, 0.0)] == ["2.91 s", "45 ms", "4.5 ms", "450 µs", "12.3 µs", "0.0 µs"]
    assert time_view._ticks(10.0) == [0, 2, 4, 6, 8, 10] and time_view._ticks(0.0) == []


def test_a_trace_without_times_says_so() -> None:
    with pytest.raises(Unsupported, match="nothing in this trace took time"):
        time_data(Trace("nothing"))
    with pytest.raises(Unsupported):
        compiler_lab.view(compiler_lab.capture(whole, torch.randn(2, 2), torch.randn(2, 2)), "time")


# ---- the real stack ----


def test_torchs_phases_stand_in_one_another(torchs: Trace) -> None:
    (side,) = time_data(torchs)["sides"]
    items = [i for s in torchs.steps if s.name == "phases" for i in s.after.items()]
    assert side["name"] == "torch" and sorted(p["seconds"] for p in side["phases"]) == sorted(i.facts["seconds"] for i in items)
    names = {p["name"]: p for p in reversed(side["phases"])}
    assert names["bytecode_tracing"]["step"] == "capture" and names["backend_compile"]["depth"] > names["entire_frame_compile"]["depth"]
    assert sum(p["parent"] < 0 for p in side["phases"]) == len(torchs.graphs) == 2
    capture = next(s for s in torchs.steps if s.name == "capture")
    assert capture.start is not None and capture.start - torchs.zero == pytest.approx(names["bytecode_tracing"]["start"], abs=1e-5) and torchs.zero > 1e9


def test_torchs_phases_survive_saving(torchs: Trace) -> None:
    assert time_data(Trace.from_json(json.loads(json.dumps(torchs.to_json())))) == json.loads(json.dumps(time_data(torchs)))


def test_two_stacks_stand_side_by_side(trace: Trace, torchs: Trace) -> None:
    data = time_data(trace, torchs)
    assert [s["name"] for s in data["sides"]] == ["lab", "torch"]
    rows = {r["name"]: r["seconds"] for r in data["steps"]}
    steps = [s for s in trace.steps if s.name == "joint"]
    assert rows["joint"][0] == pytest.approx(seconds_of(steps)) and rows["joint"][1] > 0 and rows["functionalize"][1] is None
    page = time_view.render(data)
    assert page.count('class="clab-flame"') == 2 and "Each at its own scale" in page and "Step by step" in page
    charts = re.findall(r'<svg class="clab-flame".*?</svg>', page, re.DOTALL)
    widths = [[float(w) for w in re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', chart)] for chart in charts]
    scale = time_view.WIDE / max(s["length"] for s in data["sides"])
    for k, side in enumerate(data["sides"]):
        assert max(widths[k]) == pytest.approx(max(p["seconds"] for p in side["phases"]) * scale, abs=0.01), "one scale for both"
    both = compiler_lab.Both(trace, torchs)
    assert both.view("time").data == data and both.view().name == "compare"
    assert [s["name"] for s in time_data(trace, trace)["sides"]] == ["lab, first", "lab, second"]


# ---- kernels of a call ----


def kernels(profile: CallProfile) -> list[Any]:
    return [i for i in profile.items() if i.kind in ("kernel", "extern")]


def test_every_kernel_of_a_call_is_measured() -> None:
    trace = Trace()
    x, w = torch.randn(64, 32), torch.randn(32, 48)
    compiled = compiler_lab.compile(whole, fullgraph=True, observe=trace.append)
    compiled(x, w)
    before = len(trace.steps)
    profile = profile_call(compiled, x, w, repeats=3)
    assert len(trace.steps) == before, "its own compile is not the user's to watch"
    profile.check()
    schedule: Any = trace.stage("schedule", "forward")
    of = {i.id: i for i in schedule.items() if i.id.count("/") == 1}
    assert [i.parents[1] for i in kernels(profile)] == list(of)
    for i in kernels(profile):
        assert i.facts["bytes"] == sum(of[i.parents[1]].facts["bytes"].values()) and i.facts["seconds"] >= 0.0
        assert (i.kind == "extern") == (of[i.parents[1]].kind == "extern") and i.location == of[i.parents[1]].location is not None
    call, part = profile.items()[:2]
    assert call.facts["seconds"] > 0 and part.facts["seconds"] > 0 and call.facts["repeats"] == 3 and call.facts["language"] == "C"
    assert profile.run()["profile/call"] == call.facts["seconds"]
    (one,) = time_data(Trace("t", [profile.step()]))["calls"]
    assert one["kernels"] == sum(i.facts["seconds"] for i in kernels(profile)) and one["outside"] == one["seconds"] - one["kernels"]
    for k in one["programs"][0]["kernels"]:
        assert k["rate"] is None or k["rate"] == pytest.approx(k["bytes"] / k["seconds"] / 1e9)
    assert "µs" in repr(profile) and "µs" not in profile.text() and profile._repr_mimebundle_()["text/html"].startswith("<div")


def test_a_call_with_its_backward() -> None:
    x, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)
    state = torch.random.get_rng_state()
    profile = profile_call(program, x, w, repeats=2, backward=True)
    assert [i.text for i in profile.items() if i.kind == "program"] == ["graph 0, forward", "graph 1, forward", "graph 1, backward", "graph 0, backward"]
    assert w.grad is None and torch.equal(state, torch.random.get_rng_state())
    with pytest.raises(Unsupported, match="has a gradient"):
        profile_call(program, x, w.detach(), repeats=1, backward=True)


@pytest.mark.parametrize("layer", [torch.nn.Linear(8, 8), torch.nn.Conv2d(3, 4, 3), torch.nn.Dropout()], ids=["linear", "convolution", "dropout"])
def test_a_module_is_measured_compiled_or_not(layer: torch.nn.Module) -> None:
    x = torch.randn(2, 3, 8, 8)
    for one in (layer, compiler_lab.compile(layer, dynamic=False)):
        profile = profile_call(one, x, repeats=2)
        profile.check()
        assert kernels(profile) and profile.items()[0].text.startswith("call of ")


def test_what_has_no_kernels_is_refused() -> None:
    with pytest.raises(Unsupported, match="runs no kernels of ours"):
        profile_call(compiler_lab.compile(whole, backend="eager"), torch.randn(2, 2), torch.randn(2, 2))


def test_symbolic_sizes_are_measured_at_those_of_the_call() -> None:
    profile = profile_call(compiler_lab.compile(whole, dynamic=True), torch.randn(12, 8), torch.randn(8, 8), repeats=2)
    product = next(i for i in kernels(profile) if i.kind == "extern")
    assert product.facts["bytes"] == 4 * (12 * 8 + 8 * 8 + 12 * 8)


# ---- nothing where nobody looks ----


def subclasses(of: type) -> Iterator[type]:
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What artifacts are asked from now on, and clocks that are made."""
    found: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (found.append(name), function(*args, **kwargs))[1]

    for kind in {Artifact, *subclasses(Artifact)}:
        for name in ("items", "text", "to_json", "fingerprint"):
            if name in vars(kind):
                monkeypatch.setattr(kind, name, noting(f"{kind.__name__}.{name}", vars(kind)[name]))
    for where in (clock, pipeline):
        monkeypatch.setattr(where, "Clock", lambda: found.append("Clock") or Clock())
        monkeypatch.setattr(where, "now", noting("now", clock.now))
    return found


def trained(observe: Any) -> Any:
    made = compiler_lab.compile(program, observe=observe)
    made(torch.randn(8, 16), torch.randn(16, 16, requires_grad=True)).backward()
    return made


def test_nobody_who_does_not_record_pays(asked: list[str]) -> None:
    made = trained(None)
    assert set(asked) <= {"now"} and "Clock" not in asked, "no item and no text is made, and no clock, where nobody records"
    x, w = torch.randn(8, 16), torch.randn(16, 16, requires_grad=True)
    asked.clear()
    made(x, w).backward()
    assert asked == [], "and a call that compiles nothing asks no time"
    trace = Trace()
    trained(trace.append)
    assert "Clock" in asked and set(asked) <= {"now", "Clock"}, "recording keeps artifacts as they are, too: they are asked when they are looked at"
    _ = trace.to_json()
    assert {"Schedule.items", "Kernels.text", "Program.items"} <= set(asked)


def test_recording_adds_next_to_no_work() -> None:
    """Functions that are called, not seconds: what a loaded machine cannot blur. ``benchmarks/recording.py`` has the seconds."""

    def called(observe: Any) -> int:
        profile = cProfile.Profile()
        with profile:
            trained(observe)
        stats: Any = pstats.Stats(profile)
        return stats.total_calls

    trained(None)
    assert called(Trace().append) / called(None) < 1.01


def test_the_code_of_a_call_is_the_same_with_and_without_a_recording() -> None:
    trace = Trace()
    plain, recorded = trained(None), trained(trace.append)
    code = lambda made: (made.__code__.co_code, made.__code__.co_names, made.__code__.co_freevars)
    assert code(plain) == code(recorded)
    entry = lambda made: [(e.code.co_code, e.code.co_names) for e in made._compiled_function.entries]
    assert entry(plain) == entry(recorded) and entry(plain)
    built: list[Any] = [s.after for s in trace.steps if s.name == "build"]
    calls = [type(program.call).__name__ for program in built]
    assert calls.count("builtin_function_or_method") == 2, "the forward's is C, with nothing around it"
