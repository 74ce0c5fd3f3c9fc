"""The real torch.compile as a trace: what was read equals what torch itself has, and everything is put back."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_lab
from compiler_lab.core.errors import InvalidIR, LabError, Unsupported
from compiler_lab.core.fx import describe, target_name
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.torch_graphs import read_graph
from compiler_lab.observe.torch_reference import LOG, LOGGERS, afresh, record_torch, torch_recording
from compiler_lab.observe.torch_trace import open_torch_trace
from compiler_lab.observe.trace import Trace
from compiler_lab.pipeline import STEPS

EXTRA = ("post grad passes", "phases")  # steps that only torch has


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


def normal(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = F.gelu(helper(x @ w))
    return (y * 2).softmax(1).sum(), y


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return torch.sin(y)


def grown(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[0] = 1
    y[1:, 0] += 2
    a, b = torch.split(-y, 2)
    return torch.where(a > 0, a, b[:, None, :].sum(1)) / 3


def args() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)


def state() -> tuple[object, ...]:
    """Everything of torch and logging that a recording touches."""
    import torch._dynamo.convert_frame as convert_frame
    import torch._functorch.config
    import torch._inductor.config

    loggers = [logging.getLogger(n) for n in (LOG, *LOGGERS)]
    said = [(g.name, g.level, g.propagate, list(g.handlers)) for g in loggers]
    configs = torch._inductor.config.get_config_copy(), torch._functorch.config.get_config_copy(), torch._dynamo.config.get_config_copy()
    return said, configs, dict(convert_frame._bytecode_hooks), dict(os.environ)


# ---- graphs as they are printed ----


@pytest.mark.parametrize("program", [normal, written, broken, grown])
def test_a_printed_graph_is_read_back(program: Callable[..., Any]) -> None:
    seen: list[torch.fx.GraphModule] = []
    torch.compile(afresh(program), backend=lambda gm, inputs: seen.append(gm) or gm.forward)(*(args() if program is normal else (torch.randn(4, 8),)))
    assert seen
    for module in seen:
        text = module.print_readable(print_output=False, include_stride=True, include_device=True)
        nodes = list(module.graph.nodes)
        found = read_graph(text, "frames")
        assert [i.facts["name"] for i in found.items] == [n.name for n in nodes]
        for item, node in zip(found.items, nodes, strict=True):
            assert item.kind == node.op
            assert [i.removeprefix("frames/") for i in item.facts["inputs"]] == [n.name for n in node.all_input_nodes], item.text
            if node.op == "call_function":
                assert item.facts["target"] in (target_name(node), target_name(node).removeprefix("_operator.")), item.text
            value = node.meta.get("example_value")
            if isinstance(value, torch.Tensor) and "value" in item.facts:
                assert (item.facts["value"], item.facts["bytes"]) == (describe(value), value.numel() * value.element_size())


def test_an_aten_graph_reads_as_ours_prints() -> None:
    module = make_fx(lambda x: torch.sin(x.t()) + 1)(torch.randn(3, 4))
    found = read_graph(module.print_readable(print_output=False, include_stride=True, include_device=True), "aot.joint")
    assert found.text().split("\n")[1:3] == ["t: f32[4, 3]{1, 4} = aten.t.default(x_1)", "sin: f32[4, 3]{1, 4} = aten.sin.default(t)"]
    assert found.items[2].location is None and found.nodes == 3


# ---- recording ----


@pytest.mark.parametrize(("backend", "steps"), [("eager", ["capture", "guard"]), ("aot_eager", ["capture", "joint", "partition", "guard"])])
def test_a_recording_has_our_steps(backend: str, steps: list[str]) -> None:
    trace = record_torch(normal, *args(), backend=backend)
    assert [s.name for s in trace.steps if s.name != "phases"] == steps and trace.graphs == (0,)
    assert {s.name for s in trace.steps} <= {*STEPS, *EXTRA}
    for artifact in trace.artifacts():
        artifact.check()
        assert not re.search(r"0x[0-9a-f]{6,}|\b\d{13,}\b", artifact.text()), "no addresses"
    capture = trace.stage("capture")
    kinds = [i.kind for i in capture.items()]
    assert kinds.count("instruction") > 10 and kinds.count("replacement") > 10
    (bread,) = [i for i in capture.items() if i.text.startswith("softmax")]
    assert bread.location is not None and bread.location.source.startswith("return (y * 2).softmax(1)")
    guards = trace.stage("guard").items()
    assert any(i.kind == "tensor_match" and i.parents == ("frames.guards/L['w']",) and "size=[8, 8]" in i.text for i in guards)
    with pytest.raises(Unsupported, match="cannot run"):
        capture.run()


def test_what_is_saved_is_what_autograd_keeps() -> None:
    x, w = args()
    trace = Trace()
    with torch_recording(trace):
        out = torch.compile(afresh(normal), backend="aot_eager")(x, w)
    kept = out[0].grad_fn.saved_tensors
    saved = [d for d in trace.stage("partition").decisions if d.outcome == "saved"]
    assert sorted(int(d.facts["bytes"]) for d in saved) == sorted(t.numel() * t.element_size() for t in kept) and kept


def test_breaks_and_recompiles_say_why() -> None:
    trace = record_torch(broken, torch.randn(4), backend="eager")
    assert len(trace.graphs) == 2
    capture = trace.stage("capture", graph=0)
    (found,) = [i for i in capture.items() if i.kind == "break"]
    assert found.location is not None and found.location.source == "if y.sum() > 0:" and "branch" in str(found.facts["reason"]).lower()
    (why,) = [d for d in capture.decisions if d.kind == "break"]
    assert why.subject == ("broken",) and why.facts["hint"]
    again = Trace()
    with torch_recording(again) as record:
        made = torch.compile(afresh(grown), backend="eager")
        assert not record.compiled
        made(torch.randn(4))
        made(torch.randn(4).double())
        assert record.compiled
    (reason,) = [d for d in again.stage("capture", graph=1).decisions if d.kind == "recompile"]
    assert "dtype mismatch" in reason.reason and again.graphs == (0, 1)
    assert not [d for d in again.stage("capture", graph=0).decisions if d.kind == "recompile"]


def test_everything_is_put_back_also_after_an_error() -> None:
    import torch._inductor.scheduler  # pyright: ignore[reportUnusedImport] - the loggers exist

    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # torch's own handler takes itself off at the first compile
    before, trace = state(), Trace()
    with pytest.raises(ZeroDivisionError), torch_recording(trace):
        torch.compile(afresh(grown), backend="eager")(torch.randn(3))
        raise ZeroDivisionError
    assert state() == before
    assert trace.stage("capture").items(), "what had been recorded is there"
    with torch_recording(Trace()), pytest.raises(Unsupported, match="recorded already"), torch_recording(Trace()):
        raise AssertionError("not reached")
    assert state() == before


def test_a_recording_neither_uses_nor_loses_what_was_compiled() -> None:
    compiles: list[int] = []
    counting = lambda gm, inputs: compiles.append(1) or gm.forward
    mine = torch.compile(grown, backend=counting)
    x = torch.randn(7)
    expected = mine(x)
    for _ in range(2):
        assert record_torch(grown, x, backend="eager").stage("capture").items()
    assert torch.equal(mine(x), expected) and len(compiles) == 1
    layer = torch.nn.Linear(3, 2)
    assert "linear" in record_torch(layer, torch.randn(1, 3), backend="eager").stage("capture").text()


def test_inspect_takes_either_stack_or_both() -> None:
    both = compiler_lab.inspect(grown, torch.randn(6), backend="eager", stack="both")
    assert isinstance(both, compiler_lab.Both) and [t.environment.get("stack") for t in both.traces] == [None, "torch.compile"]
    assert compiler_lab.inspect(grown, torch.randn(6), backend="aot_eager", stack="torch").stage("joint").stage == "aot.joint"
    with pytest.raises(LabError, match="stack"):
        compiler_lab.inspect(grown, torch.randn(6), stack="tensorflow")  # type: ignore[call-overload]


# ---- one compile by Inductor, recorded twice: as it runs, and in the log that TORCH_TRACE writes ----


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trace, Path]]:
    from torch._logging._internal import TorchLogsFormatter

    folder = tmp_path_factory.mktemp("torch_trace")
    written_log = io.StringIO()
    handler = logging.StreamHandler(written_log)
    handler.setFormatter(TorchLogsFormatter(trace=True))
    logging.getLogger(LOG).addHandler(handler)
    try:
        trace = record_torch(normal, *args())
    finally:
        logging.getLogger(LOG).removeHandler(handler)
    path = folder / "dedicated_log_torch_trace_x.log"
    path.write_text(written_log.getvalue())
    yield trace, path


def test_loops_fusion_and_kernels_of_inductor(recorded: tuple[Trace, Path]) -> None:
    trace, _ = recorded
    for part in ("forward", "backward"):
        names = [s.name for s in trace.steps if s.part == part]
        assert names == ["post grad passes", "lower", "schedule", "generate", "build"]
        loops, groups, code = (trace.stage(n, part) for n in ("lower", "schedule", "generate"))
        ops = {i.id for i in loops.items() if ":" not in i.id}
        held = [p for i in groups.items() if i.id.count("/") == 1 for p in i.parents]
        assert set(held) == ops and len(held) == len(ops), "every op is in one group"
        kernels = [i for i in code.items() if i.kind == "kernel"]
        assert kernels and all(p.startswith(f"scheduling.{part}/") for k in kernels for p in k.parents) and all(k.parents for k in kernels)
        assert all(str(i.facts["number"]) == i.id.rpartition(":L")[2] for i in code.items() if i.kind in ("line", "wrapper"))
        lines = code.text().split("\n")
        assert all(lines[int(i.facts["number"]) - 1] == i.text for i in code.items() if i.kind in ("line", "wrapper"))
    assert {d.outcome for d in trace.stage("schedule", "forward").decisions} == {"accepted", "refused"}
    assert any(i.kind == "reduction" and i.facts["bytes"] for i in trace.stage("lower", "forward").items())
    assert all(s.seconds > 0 for s in trace.steps if s.name in ("capture", "joint", "lower", "schedule", "generate"))


def test_a_users_line_is_followed_to_the_kernel_and_back(recorded: tuple[Trace, Path]) -> None:
    trace, _ = recorded
    links = lineage(trace)
    line = normal.__code__.co_firstlineno + 1
    made = [links.items[k] for k in links.items_of(__file__, line)]
    kinds = {(i.id.partition("/")[0], i.kind) for i in made}
    assert {("frames", "call_function"), ("aot.forward", "call_function"), ("lowering.forward", "erf"), ("codegen.forward", "line")} <= kinds
    assert ("runtime.forward", "kernel") in kinds and ("codegen.backward", "line") in kinds


def test_the_log_on_disk_gives_the_same_trace(recorded: tuple[Trace, Path]) -> None:
    live, path = recorded
    found = open_torch_trace(path.parent)
    shared = [s for s in live.steps if s.name in ("joint", "partition", "post grad passes", "generate", "guard")]
    assert shared
    for step in shared:
        other = found.stage(step.name, step.part)
        assert other.text() == step.after.text()
        assert [(i.id, i.kind, i.text, i.facts) for i in other.items()] == [(i.id, i.kind, i.text, i.facts) for i in step.after.items()]
    assert found.environment["stack"] == "torch.compile" and "note" not in found.environment
    assert Trace.from_torch_trace(path).text() == found.text()


def test_a_damaged_log_gives_its_whole_part_or_an_error(recorded: tuple[Trace, Path], tmp_path: Path) -> None:
    _, path = recorded
    text = path.read_text()
    cut = tmp_path / "cut.log"
    cut.write_text(text[: text.index("aot_backward_graph") + 400])
    with pytest.warns(UserWarning, match="cut off or changed"):
        trace = open_torch_trace(cut)
    assert trace.stage("joint").items() and "1 record was cut off" in trace.environment["note"]
    assert "backward:" not in trace.stage("partition").text()
    changed = tmp_path / "changed.log"
    changed.write_text(text.replace("aten.erf.default", "aten.sin.default"))
    with pytest.warns(UserWarning, match="left out"):
        assert "aten.sin" not in open_torch_trace(changed).text()
    for name, content, why in (("empty.log", "", "empty"), ("foreign.log", "hello\n", "no line of it"), ("zip.log", "PK\x03\x04\x00", "no line of it")):
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidIR, match=re.escape(name)) as caught:
            open_torch_trace(tmp_path / name)
        assert why in caught.value.why and "TORCH_TRACE" in caught.value.hint
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidIR, match="holds no log"):
        open_torch_trace(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        open_torch_trace(tmp_path / "nothing")


def test_a_log_of_another_machine_shows_the_lines_that_it_quotes(recorded: tuple[Trace, Path], tmp_path: Path) -> None:
    _, path = recorded
    text = path.read_text().replace(__file__, "/elsewhere/model.py")
    heads = re.sub(r', "has_payload": "[0-9a-f]{32}"', "", text)  # the payloads are other ones now
    (tmp_path / "away.log").write_text(heads)
    trace = open_torch_trace(tmp_path / "away.log")
    line = normal.__code__.co_firstlineno + 1
    assert trace.to_json()["sources"]["/elsewhere/model.py"][line - 1].strip() == "y = F.gelu(helper(x @ w))"
    assert "model.py" in trace.view().html()


def test_it_is_saved_and_loaded_as_ours_is(recorded: tuple[Trace, Path], tmp_path: Path) -> None:
    trace, _ = recorded
    trace.save(tmp_path / "x.zip")
    loaded = Trace.load(tmp_path / "x.zip")
    assert loaded.text() == trace.text() and loaded.to_json() == trace.to_json()
    assert "cpp_fused" in loaded.view().html()
