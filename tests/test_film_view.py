"""The view of a film: its data replayed gives the film's own facts, and the HTML says what the data says."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
import torch
from compiler_lab_widgets import film_view

import compiler_lab
from compiler_lab.observe import film_data as module
from compiler_lab.observe.film_data import film_data
from compiler_lab.observe.trace import Trace

from .frame_programs import Net, breaking, recompiled


@pytest.fixture(scope="module", params=[recompiled, breaking], ids=["recompiled", "breaking"])
def trace(request: pytest.FixtureRequest) -> Trace:
    return request.param()


def replayed(film: Any) -> list[dict[str, Any]]:
    """The facts at each shot, by the rule that the data's docstring gives."""
    texts, calls, found = film["texts"], dict[int, tuple[list[str], dict[str, str]]](), list[dict[str, Any]]()
    for depth, place, line, name, kept, pushed, changed, nodes, guards in film["shots"]:
        calls = {d: c for d, c in calls.items() if d <= depth}
        stack, names = calls.get(depth, ([], {}))
        stack = [*stack[:kept], *(texts[t] for t in pushed)]
        names = {**names, **{texts[n]: texts[v] for n, v in changed if v >= 0}}
        for n, v in changed:
            if v < 0:
                del names[texts[n]]
        calls[depth] = stack, names
        said = [[texts[t] for t in one] for one in (nodes, guards)]
        where = (film["places"][place]["function"], line)
        found.append({"text": texts[name], "where": where, "depth": depth, "stack": stack, "locals": names, "nodes": said[0], "guards": said[1]})
    return found


def facts_of(trace: Trace, graph: int) -> list[dict[str, Any]]:
    (film,) = [s.after for s in trace.steps if s.name == "film" and s.graph == graph]
    items = [i for i in film.items() if i.kind == "instruction"]
    where = lambda i: (i.stack[-1].function, i.stack[-1].line)
    return [{"text": i.text, "where": where(i), **{k: i.facts[k] for k in ("depth", "stack", "locals", "nodes", "guards")}} for i in items]


def test_the_data_replayed_is_the_film(trace: Trace) -> None:
    data: Any = film_data(trace)
    assert len(data["films"]) == sum(s.name == "film" for s in trace.steps) > 1
    for film in data["films"]:
        assert replayed(film) == facts_of(trace, film["graph"]) and film["instructions"] == len(film["shots"])
        graph = trace.stage("capture", graph=film["graph"]).items()
        nodes = [n for shot in replayed(film) for n in shot["nodes"]]
        assert len(nodes) >= sum(i.kind in ("placeholder", "call_function", "call_method") for i in graph) > 0


def test_a_saved_trace_gives_the_same_film(trace: Trace) -> None:
    loaded = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert film_data(loaded) == film_data(trace) and loaded.view("film").html() == trace.view("film").html()


def test_the_html_says_each_step(trace: Trace) -> None:
    data: Any = film_data(trace)
    html = film_view.render(data)
    rows = [unescape(r).lstrip(". ") for r in re.findall(r'<li data-l="\d+">([^<]*)</li>', html.partition("clab-film-all")[2])]
    wanted = [(f"{s['where'][0]}:{s['where'][1]}", s["text"]) for f in data["films"] for s in replayed(f)]
    for place, text in wanted:
        assert any(row.startswith(f"{place}  {text}") for row in rows)
    assert sum(len(f["shots"]) for f in data["films"]) <= html.count("<li data-l=")
    assert "<script>alert" not in html and "https://" not in html and "http://" not in html
    assert film_view.text(data).count("\n") >= len(wanted)


def test_a_long_film_has_larger_steps_and_loses_no_node(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = film_data(trace)
    monkeypatch.setattr(module, "MOST", 20)
    monkeypatch.setattr(module, "LEAST", 4)
    short: Any = film_data(trace)
    assert sum(len(f["shots"]) for f in short["films"]) < sum(len(f["shots"]) for f in whole["films"])
    assert any(f["grain"] for f in short["films"]) and film_data(trace, full=True) == whole
    for a, b in zip(short["films"], whole["films"], strict=True):
        assert a["instructions"] == b["instructions"]
        for kind in ("nodes", "guards"):
            assert [x for s in replayed(a) for x in s[kind]] == [x for s in replayed(b) for x in s[kind]]


def test_nothing_is_filmed_unless_asked_and_asking_changes_nothing() -> None:
    traces = {film: compiler_lab.inspect(Net(), torch.randn(2, 3), 2, backend="eager", film=film) for film in (False, True)}
    assert [s.name for s in traces[False].steps] == ["capture", "guard"] and "film" in [s.name for s in traces[True].steps]
    assert traces[False].stage("capture").text() == traces[True].stage("capture").text()
    view = traces[False].view("film")
    assert "options={'film': True}" in view.text() and "no film" in view.html()


def test_the_pipeline_is_that_of_a_compile_without_film(trace: Trace) -> None:
    from compiler_lab.observe.html import view_data

    data: Any = view_data(trace)
    assert {s["name"] for s in data["steps"]} == {"capture", "guard"}
