"""The graph view: its data are the artifact's, its folds and layouts keep every node, its differences agree with ``graph.diff``."""

from __future__ import annotations

import html.parser
import json
import random
import re
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from compiler_lab_widgets import graph_layout, graph_view
from compiler_lab_widgets.graph_layout import Shape, layered
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.partition import Partition
from compiler_lab.core.errors import UnknownOption
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.schema import nbytes
from compiler_lab.graph.diff import diff_graphs
from compiler_lab.lowering.program import LoopProgram, reads
from compiler_lab.observe.graph_data import graph_data
from compiler_lab.observe.graph_fold import MOST, fold
from compiler_lab.observe.trace import LoadedArtifact, Step, Trace
from compiler_lab.observe.view import view
from compiler_lab.scheduling.artifact import Schedule

STAGES = ("joint", "functionalize", "decompose", "simplify views")


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.lin(self.norm(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        x = x * 2
        x.add_(1)
        return x.sum()


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("four layers")
    compiler_lab.compile(Net(), fullgraph=True, backend="aot_eager_decomp", observe=trace.append)(torch.randn(4, 8)).backward()
    return trace


def known(trace: Trace, stage: str) -> JointGraph:
    found = trace.stage(stage)
    assert isinstance(found, JointGraph)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_the_nodes_are_the_graphs(trace: Trace, stage: str) -> None:
    graph, data = known(trace, stage), graph_data(trace, stage)
    nodes = list(graph.graph.nodes)
    place = {n: k for k, n in enumerate(nodes)}
    assert [n["id"] for n in data["nodes"]] == [graph.id(n) for n in nodes]
    assert [n["inputs"] for n in data["nodes"]] == [[place[i] for i in n.all_input_nodes] for n in nodes]
    for node, of in zip(data["nodes"], nodes, strict=True):
        assert of.op == "output" or node["bytes"] == sum(map(nbytes, tree_leaves(of.meta["val"]))), node["text"]


def test_the_captured_graph_comes_first_and_a_stage_without_one_is_named(trace: Trace) -> None:
    assert graph_data(trace)["stage"] == "capture"
    with pytest.raises(UnknownOption, match="steps with graphs: capture, joint"):
        graph_data(trace, "guard")


def test_modules_reach_every_stage_and_equal_layers_fold(trace: Trace) -> None:
    for stage in ("capture", *STAGES):
        data = graph_data(trace, stage)
        modules = {n["module"] for n in data["nodes"]}
        assert {f"layers.{k}.{m}" for k in range(4) for m in ("lin", "norm")} <= modules, stage
        (repeat,) = [g for g in groups(data["tree"]) if g["kind"] == "repeat" and g["label"] == "layers.0"]
        assert repeat["times"] == 4 and [m["label"] for m in repeat["members"]] == [f"layers.{k}" for k in range(4)]


def groups(tree: Any) -> list[Any]:
    return [tree, *(g for m in tree["members"] if not isinstance(m, int) for g in groups(m))]


def test_what_the_partition_saved_and_repeats(trace: Trace) -> None:
    halves = trace.stage("partition")
    assert isinstance(halves, Partition)
    data = graph_data(trace, "simplify views")
    names = lambda fate: {n["name"] for n in data["nodes"] if n["fate"] == fate}
    assert names("saved") & set(halves.saved) and names("saved") <= set(halves.saved)
    assert names("recomputed") <= set(halves.recomputed)
    forward = graph_data(trace, "partition", "forward")["nodes"]
    assert [n["id"] for n in forward] == [halves.forward.id(n) for n in halves.forward.graph.nodes]
    assert {n["name"] for n in forward if n["fate"] == "saved"} >= names("saved") & {n["name"] for n in forward}
    assert any(n["fate"] == "saved" for n in graph_data(trace, "joint")["nodes"])


def test_loops_and_kernels_are_graphs_over_their_buffers(trace: Trace) -> None:
    halves = trace.stage("partition")
    assert isinstance(halves, Partition)
    program = compiler_lab.lower(halves.forward)
    assert isinstance(program, LoopProgram)
    data: Any = view(program, "graph").data
    loops = {n["name"]: n for n in data["nodes"] if n["kind"] != "placeholder"}
    assert list(loops) == [n.name for n in program.nodes]
    for node in program.nodes:
        made: set[str] = set()
        for i in loops[node.name]["inputs"]:
            text = data["nodes"][i]["value"]
            made |= {data["nodes"][i]["name"]} if not text else {part.split(":")[0] for part in re.split(r", (?=\w+:)", text)}
        assert set(reads(node)) <= made
    schedule = compiler_lab.schedule(program)
    assert isinstance(schedule, Schedule)
    shown: Any = view(schedule, "graph").data
    assert [n["name"] for n in shown["nodes"] if n["kind"] != "placeholder"] == [g.name for g in schedule.groups]


# ------------------------------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize("pair", [("joint", "functionalize"), ("functionalize", "decompose"), ("decompose", "simplify views")], ids="-".join)
def test_a_difference_says_what_graph_diff_says(trace: Trace, pair: tuple[str, str]) -> None:
    found = diff_graphs(known(trace, pair[0]), known(trace, pair[1]))
    data = graph_data(trace, pair[1], against=pair[0])
    counts = data["counts"]
    assert counts["-"] == len(found.of("removed")) and counts["+"] == len(found.of("added"))
    assert counts["~"] == len(found.of("changed")) + len(found.of("rewired"))
    assert counts[""] == found.kept
    assert {n["id"] for n in data["nodes"] if n["mark"] == "+"} == {c.id for c in found.of("added")}


def test_over_several_steps_and_with_itself(trace: Trace) -> None:
    assert set(graph_data(trace, "joint", against="joint")["counts"].values()) == {0, len(known(trace, "joint").graph.nodes)}
    data = graph_data(trace, "simplify views", against="joint")
    ids = [n["id"] for n in data["nodes"]]
    assert len(ids) == len(set(ids)) and data["counts"][""] > 20, "what no step touched is the same node"
    assert any(d for n in data["nodes"] if n["mark"] == "-" for d in n["decisions"]), "what went says why"


# ---------------------------------------------------------------------------------------------------------- folds and layouts


def plain(dag: nx.DiGraph[int], modules: list[str] | None = None) -> list[dict[str, Any]]:
    fixed = {"kind": "call_function", "value": "f32[2]"}
    module = lambda k: modules[k] if modules else ""
    return [{**fixed, "name": f"n{k}", "op": f"op{k % 7}", "inputs": sorted(dag.predecessors(k)), "module": module(k)} for k in range(len(dag))]


def random_graph(seed: int, size: int, edges: int) -> nx.DiGraph[int]:
    rng = random.Random(seed)
    dag: nx.DiGraph[int] = nx.DiGraph()
    dag.add_nodes_from(range(size))
    for _ in range(edges):
        a, b = sorted(rng.sample(range(size), 2))
        dag.add_edge(a, b)
    return dag


def leaves(tree: Any) -> list[int]:
    return [k for m in tree["members"] for k in ([m] if isinstance(m, int) else leaves(m))]


def holds(shape: Shape, reads: list[list[int]]) -> None:
    """Every box once, none over another, each edge down, each inside its group."""
    sizes = {k: (40.0 + 7 * (k % 5), 30.0) for k in range(shape.count + len(shape.groups))}
    edges = shape.edges(reads)
    drawn = layered(shape, edges, sizes)
    assert sorted(k for k in drawn.boxes if k not in shape.unfolded) == sorted(shape.visible())
    for a, b in edges:
        assert drawn.boxes[a][1] + drawn.boxes[a][3] < drawn.boxes[b][1], (a, b)
    boxes = list(drawn.boxes.items())
    for i, (a, (ax, ay, aw, ah)) in enumerate(boxes):
        for b, (bx, by, bw, bh) in boxes[i + 1 :]:
            inside = a in shape.chain(b)
            if inside:
                assert ax <= bx and ay < by and bx + bw <= ax + aw + 0.01 and by + bh <= ay + ah, (a, b)
            elif b not in shape.chain(a):
                assert ax + aw <= bx + 0.01 or bx + bw <= ax + 0.01 or ay + ah <= by or by + bh <= ay, (a, b)


def test_many_equal_blocks_are_one_group_of_short_ones() -> None:
    nodes = plain(nx.path_graph(1400, create_using=nx.DiGraph))
    tree = fold(nodes)
    (repeat,) = tree["members"]
    assert repeat["times"] == 200 and sorted(leaves(tree)) == list(range(1400))
    assert all(len(g["members"]) <= MOST for g in groups(tree))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_fold_and_unfold_without_losing_a_node(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 9, 60, 130, 250])
    dag = random_graph(seed, size, rng.randrange(size * 2) if size > 1 else 0)
    nodes = plain(dag, [rng.choice(["", "a", "a.b", "a.c", "d"]) for _ in range(size)] if seed % 2 else None)
    tree = fold(nodes)
    assert sorted(leaves(tree)) == list(range(size))
    assert all(len(g["members"]) <= MOST for g in groups(tree))
    reads = [n["inputs"] for n in nodes]
    shape = Shape.of(tree, size)
    holds(shape, reads)
    for _ in range(6):
        at = rng.choice([k for k in range(size, size + len(shape.groups)) if k != size] or [size])
        shape.unfolded ^= {at} if at != size else set()
        seen = {k: shape.seen(k) for k in range(size)}
        assert set(shape.edges(reads)) == {(seen[a], seen[b]) for a, b in dag.edges if seen[a] != seen[b]}
        holds(shape, reads)
    shape.unfolded = {size + g for g in range(len(shape.groups))}
    holds(shape, reads)
    assert sorted(shape.visible()) == list(range(size))


def synthetic(dag: nx.DiGraph[int], name: str = "n") -> Trace:
    """A trace of one graph as data, as another machine would send it."""
    named = lambda k: f"frames/{name}{k}"
    read = lambda k: [named(i) for i in sorted(dag.predecessors(k))]
    ops = random.Random(3).choices(range(11), k=len(dag))
    facts = lambda k: {"name": f"{name}{k}", "target": f"aten.op{ops[k]}", "value": "f32[4, 4]", "inputs": read(k)}
    fixed: dict[str, Any] = {"kind": "call_function", "parents": [], "stack": []}
    items = [{**fixed, "id": named(k), "text": f"{name}{k} = op()", "facts": facts(k)} for k in range(len(dag))]
    return Trace("synthetic <b>", [Step("capture", None, LoadedArtifact({"type": "G", "stage": "frames", "text": "", "items": items, "decisions": []}), 0.0)])


def test_five_thousand_tangled_nodes_start_folded_and_say_so() -> None:
    made = view(synthetic(random_graph(0, 5000, 15000)), "graph")
    text = made.html()
    assert text.count('class="clab-n ') < 250
    assert "5,000 nodes would not be readable at once" in text and len(text) < 2_000_000
    tree: Any = made.data["tree"]
    assert sorted(leaves(tree)) == list(range(5000))


def test_without_dot_it_says_what_to_install_and_with_a_slow_one_that_it_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made = view(synthetic(random_graph(1, 40, 80)), "graph")
    drawn = re.compile(r'data-k="(\d+)"')
    assert "Laid out in simple layers" not in made.html()
    monkeypatch.setattr(graph_layout, "PATIENCE", 1e-4)
    slow = made.html()
    assert "was ended" in slow
    monkeypatch.setattr(graph_layout.shutil, "which", lambda name: None)
    missing = made.html()
    assert "install graphviz" in missing
    assert [sorted({int(k) for k in drawn.findall(text)} & set(range(40))) for text in (missing, slow)] == [list(range(40))] * 2


# -------------------------------------------------------------------------------------------------------------------- HTML


class Cells(html.parser.HTMLParser):
    """The rows of each table, and whether tags balance."""

    VOID = ("meta", "br", "rect", "path", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data


def twin(text: str) -> list[dict[str, str]]:
    cells = Cells()
    cells.feed(text)
    assert cells.open == []
    head = cells.tables[-1][0]
    rows = [row for first, *rows in cells.tables if first == head for row in rows]  # a long one comes in parts
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("stage", ["capture", "joint", "decompose"])
def test_the_table_says_the_same_numbers(trace: Trace, stage: str) -> None:
    made = view(trace, "graph", stage=stage)
    nodes: Any = made.data["nodes"]
    rows = twin(made.html())
    assert [r["name"] for r in rows] == [n["name"] for n in nodes]
    assert [r["bytes"].replace(",", "") for r in rows] == ["" if n["bytes"] is None else str(n["bytes"]) for n in nodes]
    assert [r["reads"] for r in rows] == [", ".join(nodes[i]["name"] for i in n["inputs"]) for n in nodes]


def test_a_saved_trace_shows_the_same_and_one_wrong_number_another(trace: Trace, tmp_path: Path) -> None:
    trace.save(tmp_path / "t.zip")
    loaded = Trace.load(tmp_path / "t.zip")
    text = view(loaded, "graph", stage="joint").html()
    assert text == view(trace, "graph", stage="joint").html()
    data = json.dumps(loaded.to_json())
    at = data.index('"value": "f32[4, 8]"')
    wrong = Trace.from_json(json.loads(data[:at] + '"value": "f32[4, 9]"' + data[at + len('"value": "f32[4, 8]"') :]))
    assert twin(view(wrong, "graph").html()) != twin(view(trace, "graph").html())


def test_text_is_escaped_and_nothing_is_asked_for(trace: Trace) -> None:
    text = view(synthetic(random_graph(2, 5, 4), '"><script>x</script>'), "graph").html()
    assert "<script>x" not in text and "&lt;script&gt;" in text and "synthetic &lt;b&gt;" in text
    whole = view(trace, "graph", stage="decompose", against="functionalize").html()
    assert not re.search(r"""(?:src|href|url|import)\s*[=(]?\s*["']?\s*(?:https?:)?//""", whole)
    assert set(re.findall(r"https?://[^\"' ]+", whole)) <= {"http://www.w3.org/2000/svg"}


def test_in_a_terminal_equal_layers_stand_once(trace: Trace) -> None:
    text = view(trace, "graph").text()
    assert "[layers.0 ×4]" in text and "[layers.1]" not in text


def test_a_graph_that_a_break_ended_is_drawn_as_far_as_it_came() -> None:
    def stops(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x + 1)
        print(y.sum().item())
        return y * 2

    trace = Trace("stops")
    compiler_lab.compile(stops, backend="eager", observe=trace.append)(torch.randn(3))
    made = view(trace, "graph")
    assert any("relu" in n["op"] for n in made.data["nodes"]) and made.data["stopped"]
    assert "The capture stopped here" in made.html() and "stopped:" in made.text()


def test_times_of_nodes_are_shown(trace: Trace) -> None:
    first = known(trace, "joint")
    assert isinstance(first, GraphArtifact)
    times = {first.id(n): 0.25 for n in first.graph.nodes if n.op == "call_function"}
    rows = twin(view(trace, "graph", stage="joint", times=times, overlay="time").html())
    assert {r["time"] for r in rows} == {"250000.0 µs", ""}
    assert graph_view.render(graph_data(trace, "joint", times=times, overlay="time")).count("250 ms") == len(times)
