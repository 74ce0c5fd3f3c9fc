"""What of aten is loops of ours, what is left to a library, what falls back; and what of that Inductor lowers.

usage: python benchmarks/fallbacks.py --suite DIR [--what models,op_db] [--models REGEX] [--ops REGEX] [--json FILE] [--write]

models  every aten call of the forward and backward graphs of a suite's models, evaluated and trained, after our decompositions
op_db   the same for one to three samples of each operator of ``torch.testing``'s database, with gradients where it has them

A call is a row (views, loops, copies), an extern that is meant (a library's kernel), or a fallback, with the reason of the decision.
Inductor lowers an operator that its decomposition table opens, or that ``torch._inductor.lowering.lowerings`` has a row for which is not
``make_fallback``'s. An entry of op_db falls back where one of its calls does: ours judged after our decompositions, Inductor's by the operators
before them, so that fallbacks which its decompositions end in are not held against it.

DIR holds ``models.py`` with ``MODELS`` (name -> size -> (module, keyword arguments)), ``nn_models()`` (name -> () -> (module, arguments)) and
``loss_of``. ``--write`` writes ``fallbacks.md`` beside this file.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.partition import Partition
from compiler_lab.core.errors import LabError
from compiler_lab.lowering.lower import LIBRARY, lower
from compiler_lab.observe.trace import Step

SAMPLES = 3
GROUPS = ("row", "extern", "fallback")


COMPLEX = "complex numbers"


def is_complex(node: fx.Node) -> bool:
    """The call takes or gives complex numbers, which Inductor's kernels do not hold."""
    vals = [v for n in (node, *node.all_input_nodes) for v in tree_leaves(n.meta.get("val"))]
    return any(isinstance(v, Tensor) and v.dtype.is_complex for v in vals)


def inductor_lowers(op: str, reason: str = "") -> bool:
    """Whether Inductor has code of its own for ``aten.name.overload``, or opens it into what it has."""
    if reason == COMPLEX:
        return False
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import fallbacks, lowerings

    namespace, packet, overload = op.split(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    return found in decompositions or (found in lowerings and found not in fallbacks)


@dataclass
class Counts:
    """Calls by (operator, group, reason); what each entry of op_db calls; what could not be judged."""

    calls: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    before: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # operators of the graphs as captured
    fell: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # (operator, reason)
    refused: Counter[str] = field(default_factory=Counter[str])

    def watch(self, step: Step) -> None:
        if step.name == "functionalize" and isinstance(step.after, JointGraph):
            for n in step.after.graph.nodes:
                if isinstance(n.target, torch._ops.OpOverload):
                    self.before.add((str(n.target), COMPLEX if is_complex(n) else ""))
        if step.name == "partition" and isinstance(step.after, Partition):
            for half in (step.after.forward, step.after.backward):
                if half is not None:
                    self.judge(half)

    def judge(self, half: Any) -> None:
        try:
            program = lower(half)
        except LabError as error:
            self.refused[getattr(error, "reason", type(error).__name__)] += 1
            return
        nodes = {half.id(n): n for n in half.graph.nodes}
        for d in program.decisions:
            if d.kind != "lower" or "target" not in d.facts:
                continue
            op, reason = d.facts["target"], d.reason
            if d.outcome == "extern" and is_complex(nodes[d.subject[0]]):
                reason = COMPLEX
            group = "row" if d.outcome != "extern" else "extern" if op in LIBRARY else "fallback"
            self.calls[op, group, reason] += 1
            if group == "fallback":
                self.fell.add((op, reason))

    def add(self, other: Counts) -> None:
        self.calls += other.calls
        self.refused += other.refused


def run(fn: Callable[[], Any], counts: Counts, name: str) -> bool:
    """Whether ``fn``, which compiles and calls, came to its end; what it compiled is counted either way."""
    try:
        fn()
    except Exception as error:  # noqa: BLE001  # the operator refuses its sample, or we do: the figures are of what was compiled
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}", file=sys.stderr)
        return False
    return True


def of_models(suite: Path, wanted: str) -> Counts:
    transformers: Any = importlib.import_module("transformers")  # asked for by the suite: no part of the development environment
    transformers.logging.set_verbosity_error()
    sys.path.insert(0, str(suite))
    module: Any = importlib.import_module("models")
    every = {n: (lambda m=m: (*m("tiny")[:1], (), m("tiny")[1])) for n, m in module.MODELS.items()}
    every |= {n: (lambda n=n: (*module.nn_models()[n](), {})) for n in module.nn_models()}
    total = Counts()
    for name, make in every.items():
        if not re.search(wanted, name):
            continue
        for train in (False, True):
            torch.manual_seed(0)
            model, args, kwargs = make()
            if not train:
                kwargs.pop("return_loss", None)

            def step(model: Any = model, args: Any = args, kwargs: Any = kwargs, train: bool = train, counts: Counts = total) -> None:
                compiled = compiler_lab.compile(model.train(train), backend="aot_eager_decomp", observe=counts.watch)
                with torch.set_grad_enabled(train):
                    out = compiled(*args, **kwargs)
                if train:
                    module.loss_of(out).backward()

            run(step, total, f"{name} {'train' if train else 'infer'}")
            compiler_lab.reset()
    return total


@dataclass
class Entries:
    """Entries of op_db: how many were compiled, and which fall back, ours and with Inductor."""

    compiled: int = 0
    ours: list[str] = field(default_factory=list[str])
    inductor: list[str] = field(default_factory=list[str])
    closeable: Counter[str] = field(default_factory=Counter[str])  # operator -> entries that fall back for it, though Inductor lowers it


def of_op_db(wanted: str) -> tuple[Counts, Entries]:
    common: Any = importlib.import_module("torch.testing._internal.common_methods_invocations")
    common.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    total, entries = Counts(), Entries()
    for op in common.op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        have = op.supported_dtypes("cpu")
        dtype = next((d for d in (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bool, torch.uint8) if d in have), None)
        if not re.search(wanted, name) or dtype is None:
            continue
        counts = Counts()
        run(lambda op=op, dtype=dtype, counts=counts: _samples(op, dtype, counts), counts, name)
        total.add(counts)
        if not counts.before:
            continue
        entries.compiled += 1
        if counts.fell or counts.refused:
            entries.ours.append(name)
            entries.closeable.update(o for o, why in counts.fell if inductor_lowers(o, why))
        if not all(inductor_lowers(o, why) for o, why in counts.before if o.split(".")[0] in ("aten", "prims")):
            entries.inductor.append(name)
    return total, entries


def _samples(op: Any, dtype: torch.dtype, counts: Counts) -> None:
    torch.manual_seed(0)
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 400))
    step = max(1, (len(samples) - 1) // max(SAMPLES - 1, 1))
    for sample in samples[::step][:SAMPLES]:
        compiler_lab.reset()
        compiled = compiler_lab.compile(op.get_op(), backend="aot_eager_decomp", observe=counts.watch)
        run(lambda s=sample, c=compiled: c(s.input, *s.args, **s.kwargs), counts, op.name)


def table(counts: Counts, group: str) -> list[tuple[str, str, int]]:
    """(operator, reason, calls) of a group, most frequent first."""
    return sorted(((op, why, n) for (op, g, why), n in counts.calls.items() if g == group), key=lambda r: (-r[2], r))


def report(counts: Counts, title: str, entries: Entries | None) -> list[str]:
    lines = [f"## {title}", "", "| | operators | calls |", "|---|---|---|"]
    for group in GROUPS:
        rows = table(counts, group)
        lines.append(f"| {group} | {len({op for op, _, _ in rows})} | {sum(n for _, _, n in rows):,} |")
    falls = table(counts, "fallback")
    closeable = [(op, why, n) for op, why, n in falls if inductor_lowers(op, why)]
    lines.append(f"| of the fallbacks, Inductor lowers | {len({op for op, _, _ in closeable})} | {sum(n for _, _, n in closeable):,} |")
    if entries is not None:
        of = lambda found: f"{len(found)} ({100 * len(found) / max(entries.compiled, 1):.1f} %)"
        lines += ["", f"Entries compiled: {entries.compiled}. With a fallback: ours {of(entries.ours)}, Inductor {of(entries.inductor)}."]
    if counts.refused:
        lines += ["", "Graphs refused: " + ", ".join(f"{n} ({why})" for why, n in sorted(counts.refused.items()))]
    for head, rows in (("Fallbacks that Inductor lowers", closeable), ("Other fallbacks", [r for r in falls if r not in closeable])):
        lines += ["", f"{head}:", "", "| operator | reason | calls |", "|---|---|---|"] if rows else []
        lines += [f"| `{op}` | {why} | {n:,} |" for op, why, n in rows]
    lines += ["", "Externs: " + ", ".join(f"`{op}` {n:,}" for op, _, n in table(counts, "extern")) + "."]
    rows = Counter[str]()
    for op, _, n in table(counts, "row"):
        rows[op] += n
    return [*lines, "", "Rows: " + ", ".join(f"`{op.removeprefix('aten.')}` {n:,}" for op, n in rows.most_common()) + ".", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, default=Path("../shared/conformance"))
    parser.add_argument("--what", default="models,op_db")
    parser.add_argument("--models", default=".")
    parser.add_argument("--ops", default=".")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = ["# Rows, externs and fallbacks", "", "`python benchmarks/fallbacks.py --write`: see the script for what counts as what.", ""]
    found: dict[str, Any] = {}
    if "models" in args.what:
        counts = of_models(args.suite, args.models)
        found["models"] = [[*k, n] for k, n in counts.calls.items()]
        lines += report(counts, "Graphs of the models", None)
    if "op_db" in args.what:
        counts, entries = of_op_db(args.ops)
        found["op_db"] = {"calls": [[*k, n] for k, n in counts.calls.items()], "ours": entries.ours, "inductor": entries.inductor}
        found["closeable"] = entries.closeable.most_common()
        lines += report(counts, "op_db", entries)
    text = "\n".join(lines)
    print(text)
    if args.write:
        Path(__file__).with_suffix(".md").write_text(text)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
