"""The differential test of every stage: on each program of the corpus, every artifact checks, computes what eager computes,
leaves its input alone, prints the same twice, and reaches a line of the program's own file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn as nn
from torch import Tensor
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab.core.artifact import Artifact
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.trace import Trace

from .corpus import CORPUS

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp", "lab")


def fresh(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    return CORPUS[name]()


def run(fn: Callable[..., Any], compiled: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Outputs, gradients of everything that can have one, buffers, and the arguments afterwards."""
    leaves = [*(a for a in args if isinstance(a, Tensor)), *(fn.parameters() if isinstance(fn, nn.Module) else ())]
    out = compiled(*args)
    tensors = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    sources = [t for t in tensors if t.requires_grad]
    grads: Any = ()
    if sources and wanted:
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in sources]
        grads = torch.autograd.grad(sources, wanted, weights, allow_unused=True)
    buffers = dict(fn.named_buffers()) if isinstance(fn, nn.Module) else {}
    return {"out": out, "grads": grads, "buffers": buffers, "args": args}


def same(got: dict[str, Any], want: dict[str, Any]) -> None:
    torch.testing.assert_close(got, want, equal_nan=True, rtol=2e-5, atol=2e-6)
    for g, w in zip(tree_leaves(got["out"]), tree_leaves(want["out"]), strict=True):
        if isinstance(w, Tensor):
            assert (g.stride(), g.requires_grad) == (w.stride(), w.requires_grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CORPUS)
def test_compiled_equals_eager(name: str, backend: str) -> None:
    fn, args = fresh(name)
    want = run(fn, fn, args)
    fn, args = fresh(name)
    got = run(fn, compiler_lab.compile(fn, backend=backend, fullgraph=True), args)
    same(got, want)


def artifacts(name: str) -> tuple[Trace, list[tuple[str, Artifact]]]:
    fn, args = fresh(name)
    trace = Trace(name)
    compiler_lab.compile(fn, fullgraph=True, observe=trace.append, options={"check": True})(*args)
    return trace, [(f"{s.name} {s.part}".strip(), s.after) for s in trace.steps]


@pytest.mark.parametrize("name", CORPUS)
def test_every_artifact_answers(name: str) -> None:
    trace, found = artifacts(name)
    _, again = artifacts(name)
    links = lineage(trace)
    for (step, artifact), (_, second) in zip(found, again, strict=True):
        artifact.check()
        assert artifact.text() == second.text(), f"{step} printed differently the second time"
        assert len({i.id for i in artifact.items()}) == len(artifact.items()), f"{step} names an item twice"
    for number, artifact in enumerate(trace.artifacts()):
        for item in artifact.items():
            if item.kind in ("call_function", "call_method", "loop", "reduction", "pointwise", "extern", "statement"):
                assert links.lines[(number, item.id)], f"{item.id} reaches no line of the program"


@pytest.mark.parametrize("name", CORPUS)
def test_every_artifact_computes(name: str) -> None:
    """Forward artifacts of one compile, given the same primals, give the same values."""
    trace, _ = artifacts(name)
    fn, args = fresh(name)
    values = lambda out: [t.detach().clone() for t in tree_leaves(out) if isinstance(t, Tensor)]
    part = trace.stage("partition")
    primals = _primals(trace, fn, args)
    with torch.no_grad():
        want = values(part.forward.run(*copy.deepcopy(primals)))  # type: ignore[attr-defined]
        for step in ("lower", "schedule", "generate", "build"):
            got = values(trace.stage(step, "forward").run(*copy.deepcopy(primals)))
            for g, w in zip(got, want, strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape) and torch.equal(g.isnan(), w.isnan()), step
                apart = float((g.double() - w.double()).nan_to_num().norm() / max(float(w.double().nan_to_num().norm()), 1e-6))
                assert apart < 1e-4, f"{step}: a relative distance of {apart:.1e}"


def _primals(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...]) -> list[Tensor]:
    """Real tensors for the forward's placeholders: of the same kind, positive and small (a running variance is one of them, a divisor too)."""
    generator = torch.Generator().manual_seed(3)
    part = trace.stage("partition")

    def make(val: Tensor) -> Tensor:
        flat = torch.empty_strided(val.shape, val.stride(), dtype=val.dtype)
        data = torch.rand(val.shape, generator=generator) * 0.4 + 0.1 if val.is_floating_point() else torch.randint(1, 3, val.shape, generator=generator)
        return flat.copy_(data)

    return [make(p.meta["val"]) for p in part.forward.placeholders]  # type: ignore[attr-defined]
