"""The min-cut view: its network is the one that was solved, its page says the same numbers, and what is cut again does what was asked."""

from __future__ import annotations

import copy
import html
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from compiler_lab_widgets import cut_chart, cut_view
from hypothesis import given, settings
from hypothesis import strategies as st

import compiler_lab
from compiler_lab.aot import flow_record
from compiler_lab.aot.bans import is_free
from compiler_lab.aot.ir import INFINITE
from compiler_lab.aot.partition import Partition, budget_curve, partition
from compiler_lab.core.errors import LabError, UnknownOption, Unsupported
from compiler_lab.core.options import Options
from compiler_lab.core.schema import is_random, nbytes
from compiler_lab.observe.cut_data import answer, cut_data
from compiler_lab.observe.trace import Step, Trace

from .partition_programs import DEFAULT, MIN_CUT, TORCH, inputs_for, joint_of, programs, rand

BUDGET = Options(activation_memory_budget=0.4)


def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    h = torch.softmax((x @ w) * 2 + 1, -1)
    return (torch.nn.functional.gelu(h @ v) * h.sin()).sigmoid()


def recorded(title: str, **options: Any) -> Trace:
    trace = Trace(title)
    made = compiler_lab.compile(program, fullgraph=True, backend="aot_eager_decomp", observe=trace.append, options=options)
    made(torch.randn(16, 24), torch.randn(24, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True))
    return trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return recorded("two products & <cuts>")


@pytest.fixture(scope="module")
def weighed() -> Trace:
    return recorded("short of memory", activation_memory_budget=0.3)


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return cut_data(trace)


def part_of(trace: Trace) -> Partition:
    found = trace.stage("partition")
    assert isinstance(found, Partition)
    return found


def facts_of(part: Partition) -> Any:
    (item,) = [i for i in part.items() if i.kind == "network"]
    return item.facts


def of_one(part: Partition) -> Trace:
    return Trace("one", [Step("partition", part.joint, part, 0.0)])


# ------------------------------------------------------------------------------------------------------------- the network


def verify_network(part: Partition, facts: Any) -> None:
    """Maximal by networkx's word; the cut proves it; each path has room in what those before it left, and together they are the flow."""
    edges = [(a, b, INFINITE if c is None else c, flow) for a, b, c, flow in facts["edges"]]
    graph: Any = nx.DiGraph()
    graph.add_nodes_from((0, 1))
    for a, b, capacity, _ in edges:
        graph.add_edge(a, b, **({} if capacity == INFINITE else {"capacity": capacity}))
    assert len({(a, b) for a, b, *_ in edges}) == len(edges)
    assert nx.maximum_flow_value(graph, 0, 1) == facts["value"]
    side = set(facts["source_side"])
    assert 0 in side and 1 not in side
    assert {i for i, (a, b, *_) in enumerate(edges) if a in side and b not in side} == set(facts["cut"])
    assert sum(edges[i][2] for i in facts["cut"]) == facts["value"] == sum(flow for a, _, _, flow in edges if a == 0)
    kept = {2 + 2 * k for k in facts["saved"]}
    counts = sum(c for a, b, c, _ in edges if a in kept and b == a + 1)
    prices = sum(edges[i][2] for i in facts["cut"] if edges[i][0] == 0)
    assert counts + prices == facts["value"], "what is saved counts as much as the cut"
    assert facts["weights"] != [1, 0] or prices == 0
    assert sum(facts["bytes"][k] for k in facts["saved"]) == part.saved_bytes
    room = {(a, b): capacity for a, b, capacity, _ in edges}
    for a, b, *_ in edges:
        room.setdefault((b, a), 0)
    for amount, *inner in facts["paths"]:
        way = list(itertools.pairwise([0, *inner, 1]))
        assert amount > 0 and amount == min(room[arc] for arc in way)
        for a, b in way:
            room[a, b] -= amount
            room[b, a] += amount
    assert facts["left_out"] == [0, 0] and sum(p[0] for p in facts["paths"]) == facts["value"]
    assert all(room[b, a] == flow for a, b, _, flow in edges)
    into: dict[int, float] = {}
    for a, b, capacity, flow in edges:
        assert 0 <= flow <= capacity
        into[b] = into.get(b, 0) + flow
        into[a] = into.get(a, 0) - flow
    assert all(n == 0 for v, n in into.items() if v > 1)


@given(programs(), st.sampled_from((MIN_CUT, TORCH, BUDGET)))
@settings(max_examples=16)
def test_the_network_is_solved_and_whole(f: Callable[..., Any], options: Options) -> None:
    joint = joint_of(f, rand(4, 4), rand(4, 4), rand(4, 4, grad=False))
    if joint.spec.tangents:
        part = partition(joint, options)
        facts = facts_of(part)
        verify_network(part, json.loads(json.dumps(facts)))
        names = [joint.id(n) for n in joint.graph.nodes]
        assert {f"{joint.stage}/{name}" for name in facts["nodes"]} <= set(names)


def test_the_network_is_the_partitions_own(trace: Trace) -> None:
    part = part_of(trace)
    facts, network = facts_of(part), part.network
    assert network is not None and network.solution is not None
    vertex = ["source", "sink", *(f"{name}_{half}" for name in facts["nodes"] for half in ("in", "out"))]
    own = [(e.source, e.target, None if e.capacity == INFINITE else e.capacity) for e in network.edges]
    assert [(vertex[a], vertex[b], c) for a, b, c, _ in facts["edges"]] == own
    assert [(["source", *(vertex[v] for v in p[1:]), "sink"], p[0]) for p in facts["paths"]] == [(list(w), n) for w, n in network.solution.paths]
    assert {vertex[v] for v in facts["source_side"]} == set(network.solution.source_side)


def test_long_paths_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_record, "MOST_STEPS", 14)
    part = partition(joint_of(program, rand(4, 6), rand(6, 4), rand(4, 4)))
    facts = facts_of(part)
    solution = part.network.solution if part.network is not None else None
    assert solution is not None and facts["paths"] and len(facts["paths"]) + facts["left_out"][0] == len(solution.paths)
    assert sum(p[0] for p in facts["paths"]) + facts["left_out"][1] == facts["value"] and facts["left_out"][0] > 0
    view = of_one(part).view("cut")
    assert f"{facts['left_out'][0]} paths more" in view.text() and f"which push {facts['left_out'][1]:,} together" in view.html()


def test_the_stops_are_those_of_the_budget(trace: Trace, data: Any) -> None:
    part = part_of(trace)
    curve, names = budget_curve(part.joint), [n["name"] for n in data["programs"][0]["network"]["nodes"]]
    assert len(curve) > 2
    for stop, point in zip(data["programs"][0]["stops"], curve, strict=True):
        assert (stop["budget"], stop["counted"], stop["operations"]) == (point.budget, point.bytes, point.flops)
        assert [names[k] for k in stop["saved"]] == list(point.saved) and [names[k] for k in stop["lifted"]] == list(point.lifted)
        assert stop["bytes"] == part.recut(budget=point.budget).saved_bytes


# ------------------------------------------------------------------------------------------------------- the data and the page


def agrees(trace: Trace, data: Any) -> bool:
    """What the view is given is what the partition decided and solved."""
    (p,), part = data["programs"], part_of(trace)
    values = {n.name: nbytes(n.meta["val"]) for n in part.joint.graph.nodes if "val" in n.meta}
    told = [(d.outcome, d.subject[0].rpartition("/")[2], d.reason) for d in part.decisions if d.kind == "save"]
    shown = [(o, v["name"], v["reason"]) for o in ("saved", "recomputed") for v in p[o]]
    facts = facts_of(part)
    same = all(p["network"][key] == facts[key] for key in ("edges", "paths", "cut", "source_side", "value", "budget", "weights"))
    sized = all(n["bytes"] == values[n["name"]] for n in [*p["network"]["nodes"], *p["saved"], *p["recomputed"]])
    stops = [[s["budget"], s["counted"], s["operations"], s["saved"], s["lifted"]] for s in p["stops"]] == part.more()["stops"]
    return shown == told and same and sized and stops and [v["name"] for v in p["saved"]] == list(part.saved)


def test_the_data_are_the_partitions(trace: Trace, data: Any) -> None:
    assert agrees(trace, data)
    for place in ("saved", 0, "bytes"), ("network", "nodes", 1, "bytes"), ("network", "edges", 3, 3), ("network", "paths", 0, 0), ("stops", 1, "counted"):
        wrong = copy.deepcopy(data)
        at = wrong["programs"][0]
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] += 1
        assert not agrees(trace, wrong), place


def rows(page: str, label: str) -> list[list[str]]:
    (found,) = re.findall(rf'aria-label="{re.escape(label)}">(.*?)</table>(?!</div><div class="clab-apart")', page, re.DOTALL)  # a long table comes in parts
    return [
        [html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", found)
        if "<th" not in row
    ]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def reads_back(page: str, data: Any) -> bool:
    """The tables and the picture hold the data's numbers."""
    (p,) = data["programs"]
    net = p["network"]
    inner = {e[0] // 2 - 1: e for e in net["edges"] if e[0] > 1 and e[0] % 2 == 0 and e[1] == e[0] + 1}
    so_far = itertools.accumulate(path[0] for path in net["paths"])
    paths = [(number(r[1]), number(r[2])) for r in rows(page, "Augmenting paths")] == [(path[0], n) for path, n in zip(net["paths"], so_far, strict=True)]
    told = [(r[0], number(r[2]), r[3], number(r[4])) for r in rows(page, "The network")]
    counts = lambda c, k: f"{c:,}" if c is not None else f"not kept: {cut_view.UNKEPT[net['nodes'][k]['unkept']]}"
    nodes = told == [(net["nodes"][k]["name"], net["nodes"][k]["bytes"], counts(e[2], k), e[3]) for k, e in inner.items()]
    saved = [(r[0], number(r[1])) for r in rows(page, f"Saved by {p['name']}")] == [(v["name"], v["bytes"]) for v in p["saved"]]
    stops = [[number(c) for c in r[1:5]] for r in rows(page, "Stops of the budget")] == [
        [s["counted"], s["bytes"], s["operations"], len(s["saved"])] for s in p["stops"]
    ]
    labels = {int(k): text for k, text in re.findall(r'data-k="(\d+)".*?class="clab-c-cap".*?>(.*?)</text>', page)}
    drawn = labels == {k: f"{cut_view.amount(e[3])} / {cut_view.amount(e[2])}" for k, e in inner.items()}
    return paths and nodes and saved and stops and drawn and f"capacity of the cut = {net['value']:,}" in page


def test_the_page_says_the_numbers_and_escapes_the_rest(data: Any) -> None:
    page = cut_view.render(data)
    assert "two products &amp; &lt;cuts&gt;" in page and "<cuts>" not in page and reads_back(page, data)
    for place in (
        ("saved", 0, "bytes"),
        ("network", "nodes", 1, "bytes"),
        ("network", "edges", 1, 3),
        ("network", "paths", 0, 0),
        ("stops", 1, "operations"),
        ("network", "value"),
    ):
        wrong = copy.deepcopy(data)
        at = wrong["programs"][0]
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] += 1
        assert not reads_back(page, wrong), place
    text = cut_view.text(data)
    (p,) = data["programs"]
    assert all(f"{v['name']}: {v['bytes']:,} bytes" in text for v in p["saved"]) and f"capacity of the cut = {p['network']['value']:,}" in text
    assert all(f"path {i}: {path[0]:,}, " in text for i, path in enumerate(p["network"]["paths"], 1))


def test_a_saved_trace_gives_the_same(trace: Trace, data: Any, tmp_path: Path) -> None:
    trace.save(tmp_path / "t.zip")
    loaded = Trace.load(tmp_path / "t.zip")
    assert cut_data(loaded) == data and loaded.view("cut").html() == trace.view("cut").html()
    assert Trace.from_json(json.loads(json.dumps(loaded.to_json()))).stage("partition").more() == part_of(trace).more(), "and keeps it when it is saved again"
    assert "compile the function again" in answer(loaded, {"program": 0})["error"]


def test_capacities_under_a_budget_are_not_called_bytes(weighed: Trace) -> None:
    found: Any = cut_data(weighed)
    (p,) = found["programs"]
    by, work = p["network"]["weights"]
    page = cut_view.render(found)
    assert work > 0 and f"a byte kept weighs {by:,}, an operation done again {work:,}" in page and "saved bytes as counted = capacity" not in page
    verify_network(part_of(weighed), facts_of(part_of(weighed)))


def test_what_has_no_network_says_why() -> None:
    plain = of_one(partition(joint_of(program, rand(4, 6), rand(6, 4), rand(4, 4)), DEFAULT)).view("cut")
    assert "whatever forward value the backward reads" in plain.html() and "primals_1" in plain.text()
    alone = of_one(partition(joint_of(torch.sin, rand(3, grad=False)))).view("cut")
    assert "no backward" in alone.html()
    with pytest.raises(Unsupported, match="cut in two"):
        Trace("nothing").view("cut")


def test_the_real_stack_tells_what_it_saved() -> None:
    trace = compiler_lab.inspect(program, rand(8, 8), rand(8, 8), rand(8, 8), stack="torch", backend="aot_eager_decomp")
    data: Any = cut_data(trace)
    (p,) = data["programs"]
    page = cut_view.render(data)
    assert p["why"] == "torch" and p["saved"] and all(v["bytes"] == 256 for v in p["saved"])
    assert "log holds no network" in page and [r[0] for r in rows(page, "Saved by the joint graph")] == [v["name"] for v in p["saved"]]


def large() -> Trace:
    def deep(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = torch.tanh(x @ w) * 0.5 + x
        return x

    return of_one(partition(joint_of(deep, rand(4, 4), rand(4, 4))))


def test_large_networks_show_the_neighbourhood_of_what_is_saved() -> None:
    trace = large()
    data: Any = cut_data(trace)
    net, page = data["programs"][0]["network"], cut_view.render(data)
    boxes = [net["nodes"][int(k)] for k in re.findall(r'class="clab-c-n[^"]*" data-k="(\d+)"', page)]
    assert len(boxes) <= cut_view.MOST < len(cut_view._inner(net)) and sum(n["fate"] == "saved" for n in boxes) > 10
    assert f"Drawn are {len(boxes)} of the {len(cut_view._inner(net)):,} nodes" in page and len(rows(page, "The network")) == len(cut_view._inner(net))
    far = next(n["name"] for k, n in enumerate(net["nodes"]) if n not in boxes and k in cut_view._inner(net))
    again = answer(trace, {"program": 0, "around": far})["html"]
    assert f"<title>{far}: " in again and f"those around {far}" in again


def test_the_curve_is_a_figure_too(data: Any) -> None:
    (axes,) = cut_chart.figure(data).axes
    stops = data["programs"][0]["stops"]
    assert [list(map(float, xy)) for xy in axes.lines[0].get_xydata()] == [[s["counted"], s["operations"]] for s in stops]
    assert list(axes.lines[1].get_xydata()[0]) == [stops[0]["counted"], stops[0]["operations"]]


# ------------------------------------------------------------------------------------------------------------ cutting again


@given(programs(), st.data())
@settings(max_examples=16)
def test_cut_again_obeys_and_computes_the_same(f: Callable[..., Any], draw: st.DataObject) -> None:
    joint = joint_of(f, rand(4, 4), rand(4, 4), rand(4, 4))
    first = partition(joint)
    free = [n for n in joint.graph.nodes if n.op == "call_function" and n.name in {m.name for m in first.forward.graph.nodes} and not is_free(n)]
    chosen = draw.draw(st.lists(st.tuples(st.sampled_from(free), st.booleans()), max_size=4, unique_by=lambda c: c[0])) if free else []
    save, again = [n.name for n, s in chosen if s], [n.name for n, s in chosen if not s and not is_random(n)]
    made = first.recut(draw.draw(st.sampled_from((None, 0.0, 0.5))), save, again)
    made.check()
    assert not set(save) & set(made.recomputed) and not set(again) & set(made.saved)
    results: list[Any] = []
    for run in (joint.run, made.run):
        torch.manual_seed(0)
        results.append(run(*inputs_for(joint)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    if made.options.activation_memory_budget == 1:
        verify_network(made, facts_of(made))


def test_wishes_add_up_and_go_before_those_of_before() -> None:
    joint = joint_of(program, rand(4, 6), rand(6, 4), rand(4, 4))
    first = partition(joint)
    assert "mm_1" in first.saved and "mm_1" not in first.recut(must_recompute="mm_1").saved, "one name is a name"
    assert "sin" in first.recomputed
    second = first.recut(must_save=["aot.joint/sin"])
    assert "sin" in second.saved and "sin" in second.recut(must_recompute=["mm_1"]).saved, "a wish of before holds"
    assert "sin" in second.recut(must_recompute=["sin"]).recomputed, "until there is another"
    assert first.text() == partition(joint).text(), "the first is as it was"
    least = first.recut(budget=0)
    assert least.saved_bytes < first.saved_bytes and least.recut(budget=1).text() == first.text()


def random_program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    kept, _ = torch.native_dropout(x @ w, 0.5, True)
    return (kept * torch.rand(4, 4)).t().exp()


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"must_save": ["nothing"]}, Unsupported, "nothing, which is no node"),
        ({"must_save": ["mm"], "must_recompute": ["mm"]}, Unsupported, "mm is to be saved and to be computed again"),
        ({"must_recompute": ["rand"]}, Unsupported, "draws random numbers"),
        ({"must_recompute": ["getitem"]}, Unsupported, "draws random numbers"),
        ({"must_recompute": ["primals_1"]}, Unsupported, "is an input"),
        ({"must_save": ["tangents_1"]}, Unsupported, "is an input"),
        ({"must_save": ["mul_1"]}, Unsupported, "does not run in the forward"),
        ({"must_save": ["t"]}, Unsupported, "made again for nothing"),
        ({"budget": 1.5}, UnknownOption, "memory budget of 1.5"),
        ({"budget": float("nan")}, UnknownOption, "memory budget"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_reason(asked: Any, error: type[LabError], words: str) -> None:
    part = partition(joint_of(random_program, rand(4, 4), rand(4, 4)))
    with pytest.raises(error, match=words):
        part.recut(**asked)
    if "budget" not in asked:
        assert words in answer(of_one(part), {"program": 0, "budget": -1, **asked})["error"]


def test_what_is_not_trained_is_not_cut_again() -> None:
    with pytest.raises(Unsupported, match="no backward"):
        partition(joint_of(torch.sin, rand(3, grad=False))).recut(budget=0)


def test_the_answer_is_the_view_of_the_new_cut(trace: Trace) -> None:
    part = part_of(trace)
    name = next(n for n in part.saved if n.startswith("sin"))
    found = answer(trace, {"program": 0, "budget": -1, "must_save": [], "must_recompute": [name]})
    made = part.recut(must_recompute=[name])
    assert [r[0] for r in rows(found["html"], "Saved by the joint graph")] == list(made.saved) and name not in made.saved
    assert f"{len(made.saved)} values of {made.saved_bytes:,} bytes are saved, {part.saved_bytes:,} bytes before" in found["said"]
    assert f"{name}: honoured" in found["said"] and found["program"]["saved"] == made.saved_bytes
    json.dumps(found)
