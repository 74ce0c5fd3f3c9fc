"""A trace of the real ``torch.compile``, made of its structured log: the same steps, kinds of items and ids as ours, so that every view shows it.

In: records (``torch_log``) of a live recording or of a ``TORCH_TRACE`` folder. Out: a ``Trace``, one graph for each compile id.
Always holds: every artifact is plain data; what the log does not say is absent, never guessed; no addresses and no times in an artifact.
A log on disk has no loops (Inductor prints them to another logger) and no bytecode of functions that did not break.
PyTorch's counterpart: tlparse makes pages of the same logs.
"""

from __future__ import annotations

import functools
import json
import linecache
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import Location
from . import torch_code, torch_guards, torch_loops
from .torch_graphs import PrintedGraph, read_graph
from .torch_log import HINT, Log, Record, log_files, read_log
from .torch_phases import Clock, phase_items, phase_text
from .trace import LoadedArtifact, Step, Trace

CHOSEN = "chosen by torch's partitioner"
BYTECODE, IR_BEFORE, IR_AFTER, FUSION = "bytecode", "ir_pre_fusion", "ir_post_fusion", "fusion"  # kinds of what the recorder adds to the log
HALVES = frozenset({"fx_graph_runnable", "before_post_grad_graph", "inductor_post_grad_graph", "inductor_output_code", IR_BEFORE, IR_AFTER, FUSION})


class RecordedArtifact(LoadedArtifact):
    """What torch.compile made, as plain data; ``type`` is our class for it."""

    def __init__(self, type: str, stage: str, text: str, items: tuple[Item, ...], decisions: tuple[Decision, ...] = ()) -> None:
        self.type, self.stage, self._text, self._items, self.decisions = type, stage, text, items, decisions
        self._more = {}

    def run(self, *args: Any) -> Any:
        raise Unsupported(
            "what torch.compile made cannot run here", reason="recorded", why="it was read from torch's log: text and facts, not code", hint="call the function"
        )


@dataclass
class _Half:
    """What Inductor logged of one half, in order."""

    graphs: dict[str, str] = field(default_factory=dict[str, str])
    before: str = ""
    after: str = ""
    fusion: list[str] = field(default_factory=list[str])
    code: torch_code.OutputCode | None = None
    origins: torch_code.Origins = field(default_factory=torch_code.Origins)
    to_captured: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    clock: Clock = field(default_factory=Clock)
    closed: bool = False

    @property
    def part(self) -> str:
        if self.code is not None:
            return self.code.part
        return "backward" if "tangents_" in self.graphs.get("inductor_post_grad_graph", "") else "forward"


@dataclass
class _Compile:
    """Everything of one compile id."""

    names: Mapping[int, str]
    kinds: dict[str, Record] = field(default_factory=dict[str, Record])  # the last record of each kind: earlier attempts are superseded
    breaks: list[str] = field(default_factory=list[str])
    halves: list[_Half] = field(default_factory=list[_Half])
    clock: Clock = field(default_factory=Clock)
    code: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])

    def take(self, record: Record) -> None:
        if record.kind == "chromium_event":
            self.clock.take(record.data)
            if record.data["name"] == "inductor_compile" and record.data["ph"] == "B":
                self.halves.append(_Half())
            if self.halves and not self.halves[-1].closed:
                self.halves[-1].clock.take(record.data)
                self.halves[-1].closed = record.data["name"] == "inductor_compile" and record.data["ph"] == "E"
        elif record.kind == "dynamo_graph_break_reason":
            if record.payload not in self.breaks:
                self.breaks.append(record.payload)
        elif record.kind in HALVES:
            self._half(record)
        elif record.kind.startswith("inductor_provenance_tracking"):
            self._provenance(record)
        else:
            self.kinds[record.kind] = record

    def _half(self, record: Record) -> None:
        again = record.kind in ("before_post_grad_graph", "inductor_post_grad_graph") and bool(self.halves) and record.kind in self.halves[-1].graphs
        if not self.halves or self.halves[-1].closed or again:
            self.halves.append(_Half())
        half = self.halves[-1]
        if record.kind == "inductor_output_code":
            half.code = torch_code.read_code(record.payload)
        elif record.kind == IR_BEFORE:
            half.before = record.payload
        elif record.kind == IR_AFTER:
            half.after = record.payload
        elif record.kind == FUSION:
            half.fusion.append(record.payload)
        else:
            half.graphs[record.kind] = record.payload

    def _provenance(self, record: Record) -> None:
        if not self.halves:
            return
        half, data = self.halves[-1], json.loads(record.payload or "{}")
        nodes, stacks = half.origins.nodes, half.origins.stacks
        if record.kind.endswith("kernel_stack_traces"):
            stacks = {handle: torch_guards.read_stack(found[0]) for handle, found in data.items() if found}
        else:
            nodes, half.to_captured = data.get("cppCodeToPost", {}), data.get("postToPre", {})
        half.origins = torch_code.Origins(nodes, stacks)

    # ---- steps ----

    def graph(self, payload: str, stage: str, parents: Callable[[str], tuple[str, ...]] = lambda name: ()) -> PrintedGraph:
        found = read_graph(payload, stage)
        self.code.update(found.code)
        return found.with_parents(parents)

    def payload(self, *kinds: str) -> str:
        return next((self.kinds[k].payload for k in kinds if k in self.kinds), "")

    @property
    def function(self) -> tuple[str, Location | None]:
        """The frame that was compiled: its name, and where it begins."""
        record = self.kinds.get("dynamo_start")
        frames = record.data.get("stack", ()) if record is not None and isinstance(record.data, dict) else ()
        if not frames:
            return "", None
        last = frames[-1]
        return str(last["name"]), Location(self.names.get(last.get("filename"), ""), int(last["line"]), str(last["name"]))

    def steps(self, number: int) -> list[Step]:
        made: list[Step] = []

        def add(name: str, before: Artifact | None, after: Artifact, time: tuple[float | None, float], part: str = "") -> Artifact:
            made.append(Step(name, before, after, time[1], part, number, time[0], str(number)))
            return after

        captured = self.graph(self.payload("dynamo_output_graph", "compiled_autograd_graph"), "frames")
        capture = self.capture(captured)
        if capture is None:
            return []
        add("capture", None, capture, self.clock.spent("capture"))
        inputs: dict[str, Artifact] = {}
        graphs: dict[str, PrintedGraph] = {}
        if traced := self.payload("aot_joint_graph", "aot_inference_graph"):
            joint = self.from_captured(captured, self.graph(traced, "aot.joint"))
            before: Artifact = add("joint", capture, RecordedArtifact("JointGraph", "aot.joint", joint.text(), joint.items), self.clock.spent("joint"))
            graphs = self.split(joint)
            cut = _partition(joint, graphs)
            add("partition", before, cut, self.clock.spent("partition"))
            inputs = {part: RecordedArtifact("GraphArtifact", f"aot.{part}", g.text(), g.items) for part, g in graphs.items()}
        for half in self.halves:
            self.half_steps(half, graphs, inputs, capture, add)
        items, text = self.guards
        if items:
            subject = lambda i: i.parents or (i.id,)
            why = tuple(Decision("guard", subject(i), "accepted", "assumed", {"check": i.text}) for i in items if i.kind != "source")
            add("guard", capture, RecordedArtifact("GuardTree", torch_guards.TREE, text, items, why), self.clock.spent("guard"))
        if phases := phase_items(self.clock):
            add("phases", None, RecordedArtifact("Phases", "torch.phases", phase_text(phases), phases), (self.clock.zero, 0.0))
        return made

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.names.values(), *(file for file, _ in self.code))))

    @functools.cached_property
    def guards(self) -> tuple[tuple[Item, ...], str]:
        """(items, text) of the guard tree; asked for once the captured graph has named its files."""
        return torch_guards.read_guards(self.payload("dynamo_cpp_guards_str"), self.files)

    def capture(self, graph: PrintedGraph) -> RecordedArtifact | None:
        """None where nothing was captured and nothing broke."""
        name, place = self.function
        guards = torch_guards.guard_items(self.guards[0])
        breaks = [torch_guards.break_parts(text, name, n) for n, text in enumerate(self.breaks)]
        old, new = self.bytecode(name, place)
        items = (*old, *new, *guards, *(item for item, _ in breaks), *graph.items)
        if not (graph.items or breaks or old):
            return None
        decisions = [
            Decision("guard", (g.id.rpartition("/")[2],), "installed", str(g.facts["kind"]), {"text": g.text, "why": str(g.facts["why"])}) for g in guards
        ]
        decisions += [decision for _, decision in breaks]
        decisions += [
            Decision("recompile", (name,), "compiled again", reason.partition(": ")[2], {"entry": reason.partition(":")[0]}) for reason in self.recompiles
        ]
        parts = [f"bytecode of {name}:", *(i.text for i in old)] if old else []
        parts += ["", "replaced by:", *(i.text for i in new)] if new else []
        parts += ["", "guards:", *(f"  {g.text}" for g in guards)] if guards else []
        parts += ["", "graph:", graph.text()] if graph.items else []
        parts += ["", *(i.text for i, _ in breaks)] if breaks else []
        parts += ["", *(f"compiled again: {reason}" for reason in self.recompiles)] if self.recompiles else []
        return RecordedArtifact("Capture", "frames", "\n".join(parts).strip("\n"), items, tuple(decisions))

    @property
    def recompiles(self) -> list[str]:
        """ "entry: failing guard" of each entry that did not fit."""
        said = self.payload("recompile_reasons")
        if not said:
            return []
        try:
            found = json.loads(said)
        except ValueError:
            found = said
        return [str(f) for f in found] if isinstance(found, list) else [str(found)]

    def bytecode(self, name: str, place: Location | None) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """(what the frame was, what replaced it)."""
        if BYTECODE in self.kinds:
            data = self.kinds[BYTECODE].data
            made = lambda which, kind: torch_guards.instruction_items(data[which], data["file"], data["name"], kind)
            return made("before", "instruction"), made("after", "replacement")
        file = place.file if place is not None else ""
        rows = [torch_guards.read_bytecode(self.payload(f"{name}_{which}_BYTECODE")) for which in ("ORIGINAL", "MODIFIED")]
        return torch_guards.instruction_items(rows[0], file, name), torch_guards.instruction_items(rows[1], file, name, "replacement")

    def from_captured(self, captured: PrintedGraph, joint: PrintedGraph) -> PrintedGraph:
        """A traced node's parents: the captured nodes that provenance tracking names; of inputs those at the same place."""
        to = {post: pre for half in self.halves for post, pre in half.to_captured.items()}
        inputs = [i.facts["name"] for i in captured.items if i.kind == "placeholder"]
        primals = [n for n, i in joint.by_name.items() if i.kind == "placeholder" and not n.startswith("tangents")]
        if len(inputs) == len(primals):
            to |= {p: [n] for p, n in zip(primals, inputs, strict=True)}
        return joint.with_parents(lambda name: tuple(f"frames/{n}" for n in to.get(name, ()) if n in captured.by_name))

    def split(self, joint: PrintedGraph) -> dict[str, PrintedGraph]:
        """Forward and backward; of an inference graph the forward alone."""
        same = lambda name: (f"aot.joint/{name}",) if name in joint.by_name else ()
        texts = {"forward": self.payload("aot_forward_graph", "aot_inference_graph"), "backward": self.payload("aot_backward_graph")}
        return {part: self.graph(text, f"aot.{part}", same) for part, text in texts.items() if text}

    def half_steps(
        self, half: _Half, graphs: Mapping[str, PrintedGraph], inputs: Mapping[str, Artifact], capture: Artifact, add: Callable[..., Artifact]
    ) -> None:
        part = half.part
        before = inputs.get(part, capture)
        graph = graphs.get(part, PrintedGraph(()))
        if text := half.graphs.get("inductor_post_grad_graph", ""):
            kept = graph.by_name
            graph = self.graph(text, f"aot.{part}", lambda name: kept[name].parents if name in kept else ())
            before = add(
                "post grad passes",
                before,
                RecordedArtifact("GraphArtifact", f"aot.{part}", graph.text(), graph.items),
                half.clock.spent("post grad"),
                part,
            )
        loops, groups = torch_loops.read_nodes(half.before), torch_loops.read_nodes(half.after)
        origins = torch_loops.read_origins(half.fusion)
        links = _Links(part, graph, origins, loops, groups, half)
        if loops:
            items = torch_loops.loop_items(loops, f"lowering.{part}", links.op_parents())
            before = add(
                "lower",
                before,
                RecordedArtifact("LoopProgram", f"lowering.{part}", torch_loops.loop_text(items), items),
                half.clock.spent("lower"),
                part,
            )
        if groups:
            items = torch_loops.group_items(groups, f"scheduling.{part}", f"lowering.{part}")
            why = torch_loops.fusion_decisions(half.fusion, groups, f"lowering.{part}")
            after = RecordedArtifact("Schedule", f"scheduling.{part}", torch_loops.group_text(items), items, why)
            before = add("schedule", before, after, half.clock.spent("schedule"), part)
        if half.code is not None:
            items = torch_code.code_items(half.code, f"codegen.{part}", half.origins, links.of_call)
            before = add("generate", before, RecordedArtifact("Kernels", f"codegen.{part}", half.code.text, items), half.clock.spent("generate"), part)
            items, text = torch_code.program_parts(half.code, f"runtime.{part}", f"codegen.{part}")
            add("build", before, RecordedArtifact("Program", f"runtime.{part}", text, items), half.clock.spent("build"), part)


@dataclass
class _Links:
    """How the things of one half hang together: graph nodes, ops, groups, calls."""

    part: str
    graph: PrintedGraph
    origins: Mapping[str, Sequence[str]]
    loops: Sequence[torch_loops.Node]
    groups: Sequence[torch_loops.Node]
    half: _Half

    def op_parents(self) -> dict[str, tuple[str, ...]]:
        return {leaf.name: self.ids(self.nodes_of(leaf)) for node in self.loops for leaf in node.leaves}

    def nodes_of(self, op: torch_loops.Node) -> Sequence[str]:
        if op.name in self.origins:
            return self.origins[op.name]
        if op.kind != "extern":
            return ()
        nodes, _ = self.half.origins.of(op.library)
        same = [leaf.name for n in self.loops for leaf in n.leaves if leaf.kind == "extern" and leaf.library == op.library]
        named = nodes or [str(i.facts["name"]) for i in self.graph.items if _calls(i, op.library)]
        return [named[same.index(op.name)]] if len(named) == len(same) else named

    def ids(self, nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"aot.{self.part}/{n}" for n in nodes if n in self.graph.by_name)

    def of_call(self, nodes: Sequence[str], name: str) -> tuple[str, ...]:
        """The groups of the schedule behind a call; where there is no schedule, the graph's nodes."""
        if groups := self.by_order().get(name, ()):
            return tuple(f"scheduling.{self.part}/{g}" for g in groups)
        fitting = [n for n in nodes if n in self.graph.by_name and _calls(self.graph.by_name[n], name)]
        return self.ids(fitting or nodes)

    def by_order(self) -> dict[str, list[str]]:
        """Called function -> groups: library calls stand in the wrapper as they stand in the schedule, and kernels between them."""
        code = self.half.code
        if code is None or not self.groups:
            return {}
        is_kernel = {k.name for k in code.kernels}.__contains__
        groups = [g for g in self.groups if g.kind != "nop"]
        found: dict[str, list[str]] = {}
        runs: list[tuple[list[torch_loops.Node], torch_loops.Node | None]] = _runs(groups, lambda g: g.kind == "extern")
        calls: list[tuple[list[str], str | None]] = _runs([name for _, name in code.calls], lambda name: not is_kernel(name))
        if len(runs) != len(calls):
            return {}
        for (between, extern), (kernels, library) in zip(runs, calls, strict=True):
            if len(kernels) == 1:
                found.setdefault(kernels[0], []).extend(g.name for g in between)
            elif len(kernels) == len(between):
                for kernel, group in zip(kernels, between, strict=True):
                    found.setdefault(kernel, []).append(group.name)
            if extern is not None and library is not None:
                found.setdefault(library, []).append(extern.name)
        return found


def _runs(things: Sequence[Any], ends: Callable[[Any], bool]) -> list[tuple[list[Any], Any]]:
    """(those before, the one that ends them) of each stretch; the last one has no end."""
    found: list[tuple[list[Any], Any]] = [([], None)]
    for thing in things:
        if ends(thing):
            found[-1] = (found[-1][0], thing)
            found.append(([], None))
        else:
            found[-1][0].append(thing)
    return found


def _calls(item: Item, function: str) -> bool:
    """Whether the graph node calls the library function: ``extern_kernels.mm`` is ``aten.mm.default``."""
    target = str(item.facts.get("target", "")).split(".")
    return item.kind == "call_function" and len(target) > 1 and (target[1] == function.rpartition(".")[2] or ".".join(target) in function)


def _partition(joint: PrintedGraph, graphs: Mapping[str, PrintedGraph]) -> RecordedArtifact:
    """Both halves, with what the backward takes from the forward."""
    forward, backward = graphs["forward"], graphs.get("backward")
    decisions: list[Decision] = []
    saved: dict[str, Any] = {}
    again: dict[str, Any] = {}
    if backward is not None:
        size = lambda i: i.facts.get("bytes")
        saved = {str(i.facts["name"]): size(i) for i in backward.items if i.kind == "placeholder" and not str(i.facts["name"]).startswith("tangents_")}
        computed = {n for n, i in forward.by_name.items() if i.kind not in ("placeholder", "output")}
        again = {n: size(i) for n, i in backward.by_name.items() if n in computed and i.kind not in ("placeholder", "output")}
        for outcome, found in (("saved", saved), ("recomputed", again)):
            decisions += [
                Decision("save", (f"aot.joint/{n}",), outcome, CHOSEN, {} if b is None else {"bytes": b}) for n, b in found.items() if n in joint.by_name
            ]
    listed = lambda names: ", ".join(n if b is None else f"{n} ({b} bytes)" for n, b in names.items()) or "nothing"
    lines = ["forward:", *("  " + line for line in forward.text().split("\n"))]
    if backward is not None:
        lines += ["backward:", *("  " + line for line in backward.text().split("\n"))]
    lines += [f"saved: {listed(saved)}", f"recomputed: {listed(again)}"]
    items = forward.items + (backward.items if backward is not None else ())
    return RecordedArtifact("Partition", "aot.partition", "\n".join(lines), items, tuple(decisions))


def build_trace(logs: Iterable[Log], trace: Trace) -> Trace:
    """Appends the steps of every compile in ``logs`` to ``trace``; graphs are numbered in order of their first record."""
    number = max(trace.graphs, default=-1) + 1
    for log in logs:
        compiles: dict[str, _Compile] = {}
        for record in log.records:
            if record.compile:
                compiles.setdefault(record.compile, _Compile(log.names)).take(record)
        for one in compiles.values():
            if steps := one.steps(number):
                trace.steps.extend(steps)
                number += 1
            _remember(trace, one.code)
    return trace


def _remember(trace: Trace, code: Mapping[tuple[str, int], str]) -> None:
    """Source lines that the log quotes, of files that are not here, or not any more as they were."""
    for file in {f for f, _ in code}:
        lines = {n: text for (f, n), text in code.items() if f == file}
        here = [line.rstrip("\n") for line in linecache.getlines(file)]
        if any(n > len(here) or here[n - 1].strip() != text.strip() for n, text in lines.items()):
            here = trace._sources.get(file, [])
            here += [""] * (max(lines) - len(here))
            for n, text in lines.items():
                here[n - 1] = text
        trace._sources[file] = here


def open_torch_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace of a job that ran with ``TORCH_TRACE`` set: its folder (all processes in it) or one of its logs, from any machine.

    What is cut off or changed is left out, and ``environment["note"]`` and a warning say so. Raises ``InvalidIR`` for what is no such log, holds no
    whole record, or holds no compile; ``FileNotFoundError`` for nothing."""
    files = log_files(path)
    logs: list[Log] = []
    notes: list[str] = []
    for file in files:
        try:
            logs.append(read_log(file))
        except InvalidIR as error:
            if len(files) == 1:
                raise
            notes.append(f"{file.name} is left out: {error.why}")
    if not logs:
        raise InvalidIR(f"{os.path.basename(path)} holds no log that can be read", why="; ".join(notes), hint=HINT)
    lost = sum(log.lost for log in logs)
    if lost:
        notes.append(f"{lost} {'record was' if lost == 1 else 'records were'} cut off or changed, and left out: the trace shows what is whole")
    version = next((json.loads(r.payload).get("pytorch_version", "") for log in logs for r in log.records if r.kind == "torch_version"), "")
    trace = build_trace(logs, Trace(f"torch.compile: {os.path.basename(path)}", _environment={"stack": "torch.compile", "torch": str(version) or "unknown"}))
    if not trace.steps:
        raise InvalidIR(f"{os.path.basename(path)} holds no compile", why="no function was captured while it was written", hint=HINT)
    if notes:
        trace._environment["note"] = "; ".join(notes)
        warnings.warn(f"{os.path.basename(path)}: {trace._environment['note']}", stacklevel=2)
    return trace
