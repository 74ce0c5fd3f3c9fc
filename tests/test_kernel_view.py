"""The kernel view: its facts are what the loops do when they run, its code is the trace's, its HTML says the same numbers."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from compiler_lab_widgets import kernel_view, roofline_chart
from hypothesis import given, settings
from hypothesis import strategies as st

import compiler_lab
from compiler_lab.lowering.index import Index, Var
from compiler_lab.observe.kernel_data import kernel_data
from compiler_lab.observe.trace import Trace
from compiler_lab.scheduling import facts

from .conftest import require

SCRIPT = Path(kernel_view.__file__).with_suffix(".js")


def program(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> Any:
    y = torch.softmax((x @ w) * 2 + 1, -1)
    return (y.sum(-1) * torch.relu(x).mean(-1)).cumsum(0), x[i].t() + 1, x.sum(0)


@pytest.fixture(scope="module")
def trace() -> Trace:
    trace = Trace("kernels & <loops>")
    compiler_lab.compile(program, fullgraph=True, observe=trace.append)(torch.randn(12, 20), torch.randn(20, 24), torch.arange(3))
    return trace


@pytest.fixture(scope="module")
def data(trace: Trace) -> Any:
    return kernel_data(trace)


def schedule_of(trace: Trace) -> Any:
    return next(s.after for s in trace.steps if s.name == "schedule")


def agrees(trace: Trace, data: Any) -> bool:
    """Loops, places and counts are those of the groups, each access evaluated at every point of its loops by the index's own ``evaluate``."""
    schedule = schedule_of(trace)
    groups = {g.name: g for g in schedule.groups if hasattr(g, "phases")}
    if [k["name"] for k in data["kernels"]] != list(groups):
        return False
    for k in data["kernels"]:
        group = groups[k["name"]]
        if [(v["name"], v["size"]) for v in k["loops"]] != [(v.name, v.size) for v in (*group.outer, *group.inner)]:
            return False
        own = [(n, b) for n in group.nodes for b in n.body.nodes if b.target.__name__ in ("load", "store") and b.args[0] not in group.internal]
        for a, (node, b) in zip(k["accesses"], own, strict=True):
            index: Index = b.args[1]
            loops = (*node.outer, *(node.inner if hasattr(node, "inner") else node.steps))
            points = [dict(zip((v.name for v in loops), at, strict=True)) for at in itertools.product(*(range(v.size) for v in loops))]
            if a["pattern"] != "gather":
                touched = [index.evaluate(lambda v, at=at: at[v.name]) for at in points]
                if touched != [kernel_view.evaluate(a["tree"], at) for at in points] or a["elements"] != len(set(touched)) or not a["exact"]:
                    return False
            if (a["buffer"], a["kind"], a["bytes"]) != (b.args[0], "write" if b.target.__name__ == "store" else "read", a["elements"] * a["item"]):
                return False
    return True


def test_facts_are_what_the_loops_touch(trace: Trace, data: Any) -> None:
    assert agrees(trace, data)
    assert {a["pattern"] for k in data["kernels"] for a in k["accesses"]} >= {"contiguous", "gather"}
    for key, change in (("elements", 1), ("bytes", 1), ("buffer", "x")):
        wrong = copy.deepcopy(data)
        wrong["kernels"][0]["accesses"][0][key] += change
        assert not agrees(trace, wrong)
    wrong = copy.deepcopy(data)
    wrong["kernels"][0]["accesses"][0]["tree"][0] += 1
    assert not agrees(trace, wrong)


def test_operations_are_counted_by_hand() -> None:
    trace = Trace("sums")
    compiler_lab.compile(lambda x: (x * 2 + 1).sum(-1) * 3, fullgraph=True, observe=trace.append)(torch.randn(8, 16))
    (kernel,) = kernel_data(trace)["kernels"]  # type: ignore[misc]
    assert kernel["operations"] == 8 * 16 * 3 + 8 and kernel["touched"] == 8 * 16 * 4 + 8 * 4  # multiply, add, sum; then one product a row
    assert kernel["intensity"] == kernel["operations"] / kernel["touched"]


def indices() -> st.SearchStrategy[Index]:
    variables = [Var("x0", 5), Var("x1", 7), Var("r0", 3)]
    base = st.builds(lambda c, k: Index.affine(variables, c, k), st.lists(st.integers(0, 9), min_size=3, max_size=3), st.integers(0, 20))
    step = lambda inner: st.builds(lambda a, b, n, div: a + (b // n if div else b % n) * 3, inner, inner, st.integers(2, 9), st.booleans())
    return st.recursive(base, step, max_leaves=3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(indices())
def test_counts_and_places_of_any_index(index: Index) -> None:
    own = sorted(index.variables())
    points = [dict(zip((v.name for v in own), at, strict=True)) for at in itertools.product(*(range(v.size) for v in own))]
    places = [index.evaluate(lambda v, at=at: at[v.name]) for at in points]
    assert [kernel_view.evaluate(facts.tree(index), at) for at in points] == places
    assert facts.distinct(index, own) == (len(set(places)), True)


def test_the_script_evaluates_as_python_does() -> None:
    """Index expressions at random points, negative numbers divided among them, by ``kernel_view.js`` under node."""
    node = require("node")
    generator = torch.Generator().manual_seed(0)
    number = lambda low, high: int(torch.randint(low, high, (), generator=generator))

    def tree(depth: int) -> Any:
        atom = lambda: f"x{number(0, 3)}" if depth == 0 or number(0, 2) else [("div", "mod")[number(0, 2)], tree(depth - 1), number(1, 9)]
        return [number(-20, 20), [[number(-9, 9), atom()] for _ in range(number(1, 4))]]

    cases = [(tree(3), {f"x{k}": number(0, 50) for k in range(3)}) for _ in range(300)]
    code = "const {evaluateIndex} = await import(process.argv[1]); let t = ''; for await (const c of process.stdin) t += c; "
    code += "console.log(JSON.stringify(JSON.parse(t).map(([tree, at]) => evaluateIndex(tree, at))));"
    ran = subprocess.run(
        [node, "--input-type=module", "-e", code, str(SCRIPT)], input=json.dumps(cases), capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(ran.stdout) == [kernel_view.evaluate(t, at) for t, at in cases]


def test_code_is_the_traces(trace: Trace, data: Any) -> None:
    made = {s.name: [i for i in s.after.items()] for s in trace.steps}
    for k in data["kernels"]:
        loops, code, machine = ([i["text"] for i in p["items"]] for p in k["panes"])
        assert loops == [i.text for i in made["schedule"] if i.id.split("/")[1] == k["name"]]
        assert code == [i.text for i in made["generate"] if i.kind == "line" and i.id.split("/")[1].startswith(f"{k['name']}:L")]
        assert machine == [i.text for i in made["build"] if i.kind == "assembly" and i.facts["kernel"] == k["name"]]
        assert code and k["vector"] == sum(i.facts["vector"] for i in made["build"] if i.kind == "assembly" and i.facts["kernel"] == k["name"])


def test_machine_code_is_the_kernels_own(trace: Trace) -> None:
    """Functions of the wrapper, whose lines are numbered too, are no kernel's."""
    built: Any = next(s.after for s in trace.steps if s.name == "build")
    for line in built.assembly():
        assert line.function.removeprefix("_") == line.kernel or line.function.startswith(f"{line.kernel}.") or "omp_outlined" in line.function, line


def test_the_page_says_the_numbers(data: Any) -> None:
    page = kernel_view.render(data)
    assert "kernels &amp; &lt;loops&gt;" in page and "<loops>" not in page
    found = re.findall(r'<section class="clab-kern".*?</section>', page, re.DOTALL)
    for n, (section, k) in enumerate(zip(found, data["kernels"], strict=True)):
        assert f"{k['operations']:,} operations, {k['touched']:,} bytes touched" in section
        (rows,) = re.findall(rf'aria-label="Accesses of {k["name"]} {n}">(.*?)</table>', section, re.DOTALL)
        cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", rows)[1:]]
        assert [int(re.findall(r"([\d,]+) bytes", c[6])[0].replace(",", "")) for c in cells] == [a["bytes"] for a in k["accesses"]]
        a = k["accesses"][0]
        places = kernel_view.touched(a, k["lane"], {})
        assert section.count('class="clab-hit"') == len(set(places)) and f"marked x: {', '.join(map(str, places))}</p>" in section
        assert section.count("<rect") == math.prod(reversed((1, a["total"]))) or "a part: the buffer is larger" in section


def test_roofline_only_where_asked_for(trace: Trace, data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data["ceilings"] is None and roofline_chart.NOT_MEASURED.split(":")[0] in kernel_view.render(data)
    known = {"bytes_per_second": 1e10, "operations_per_second": 1e11}
    monkeypatch.setattr("compiler_lab.observe.kernel_data.ceilings", lambda: known)
    asked = kernel_data(trace, roofline=True)
    page = kernel_view.render(asked)
    assert asked["ceilings"] == known and page.count("<circle") == len(data["kernels"]) and "not measured" in page
    assert roofline_chart.allowed(1.0, known) == 1e10 and roofline_chart.allowed(100.0, known) == 1e11
    assert len(roofline_chart.figure(asked).axes[0].lines) == 2


def test_remarks_are_the_compilers(trace: Trace) -> None:
    built: Any = next(s.after for s in trace.steps if s.name == "build")
    asked: Any = kernel_data(trace, remarks=True)
    assert [(r["line"], r["said"]) for k in asked["kernels"] for r in k["remarks"]] == [(i.facts["source_line"], i.text) for i in built.loops().items()]
    loaded: Any = kernel_data(Trace.from_json(json.loads(json.dumps(trace.to_json()))), remarks=True)
    assert "not recorded" in loaded["kernels"][0]["remarks_why"]


def test_sizes_that_vary_stand_at_those_at_hand() -> None:
    trace = Trace("varies")
    made = compiler_lab.compile(lambda x: (x * 2).sum(-1), fullgraph=True, dynamic=True, observe=trace.append)
    made(torch.randn(6, 10))
    found: Any = kernel_data(trace)
    assert [v["size"] for v in found["kernels"][0]["loops"]] == [6, 10] and json.dumps(found, allow_nan=False)


def test_the_real_stack_shows_its_code_and_says_what_is_not_recorded() -> None:
    trace: Any = compiler_lab.inspect(lambda x: torch.softmax(x * 2, -1), torch.randn(8, 16), stack="torch")
    found: Any = kernel_data(trace)
    page = kernel_view.render(found)
    assert found["kernels"] and all(not k["recorded"] for k in found["kernels"])
    assert any(k["panes"][1]["items"] for k in found["kernels"]) and kernel_view.NOT_RECORDED.split(":")[0] in page
