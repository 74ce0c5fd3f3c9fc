"""Joint graphs for the tests of the partitioner, made by make_fx, and what must hold of every partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from compiler_lab.aot.bans import REASONS
from compiler_lab.aot.ir import JointGraph, JointSpec, OutputSpec
from compiler_lab.aot.partition import Partition, partition
from compiler_lab.aot.policy import Policy
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import Location, parents_of, stack_of

HERE = (Location(__file__, 1, "f"),)
MIN_CUT, TORCH, DEFAULT = Options(), Options(cost_model="torch"), Options(partitioner="default")


def joint_of(f: Callable[..., Any], *primals: Tensor, updates: Sequence[int] = (), table: Any = None) -> JointGraph:
    """The joint graph of ``f`` by make_fx: ``f`` returns (new values of the inputs in ``updates``..., outputs...)."""
    flat: Callable[[Any], tuple[Any, ...]] = lambda r: r if isinstance(r, tuple) else (r,)
    count = len(updates)
    example = flat(f(*primals))[count:]
    differentiable = [i for i, o in enumerate(example) if o.requires_grad]
    needs = tuple(p.requires_grad for p in primals)

    def both(*args: Tensor) -> tuple[Any, ...]:
        ins, tangents = args[: len(primals)], args[len(primals) :]
        outs = flat(f(*ins))
        if not tangents:
            return outs
        wanted = [p for p, n in zip(ins, needs, strict=True) if n]
        grads = iter(torch.autograd.grad([outs[count + i] for i in differentiable], wanted, tangents, allow_unused=True))
        return (*outs, *(next(grads) if n else None for n in needs))

    tangents = [torch.ones_like(example[i]) for i in differentiable]
    module = make_fx(both, decomposition_table=table, tracing_mode="fake")(*primals, *tangents)
    names = [f"primals_{i + 1}" for i in range(len(primals))] + [f"tangents_{i + 1}" for i in range(len(tangents))]
    graph = fx.Graph()
    mapping: dict[fx.Node, fx.Node] = {}
    named = iter(names)
    for node in module.graph.nodes:
        new = graph.placeholder(next(named)) if node.op == "placeholder" else graph.node_copy(node, mapping.__getitem__)
        mapping[node] = new
        new.meta = ({} if node.op == "output" else {"val": node.meta.get("val")}) | {"stack": HERE, "parents": (f"frames/{node.name}",)}
    spec = JointSpec(len(primals), tuple(OutputSpec("tensor", i in differentiable) for i in range(len(example))), tuple(updates), needs, tuple(differentiable))
    joint = JointGraph(fx.GraphModule(module, graph), spec)
    joint.check()
    return joint


def rand(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def outcome(part: Partition, name: str) -> tuple[str, str]:
    (found,) = [d for d in part.decisions if d.kind == "save" and d.subject == (f"{part.joint.stage}/{name}",)]
    return found.outcome, found.reason


def names(graph: GraphArtifact | None) -> list[str]:
    return [n.name for n in graph.graph.nodes] if graph is not None else []


def assert_partition(joint: JointGraph, options: Options, inputs: Sequence[Tensor] = (), policy: Policy | None = None) -> Partition:
    """Whatever the program: the invariants of the module docstring, and bitwise the same numbers as the joint graph."""
    text = joint.text()
    part = partition(joint, options, policy)
    part.check()
    assert joint.text() == text and partition(joint, options, policy).text() == part.text()
    results: list[tuple[Tensor | None, ...]] = []
    for run in (joint.run, part.run):
        torch.manual_seed(0)
        results.append(tuple(run(*(inputs or inputs_for(joint)))))
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
    known = {joint.id(n) for n in joint.graph.nodes}
    for graph in (part.forward, part.backward):
        for node in graph.graph.nodes if graph is not None else ():
            assert set(parents_of(node)) <= known and parents_of(node) and stack_of(node) == HERE
    assert all(d.reason in REASONS for d in part.decisions)
    return part


def inputs_for(joint: JointGraph) -> list[Tensor]:
    torch.manual_seed(1)
    made = []
    for p in joint.placeholders:
        val = p.meta["val"]
        made.append(torch.empty_strided(val.shape, val.stride(), dtype=val.dtype).normal_())
    return made


def gelu_sum(a: Tensor, w: Tensor) -> Tensor:
    return (F.gelu(a) * w).sum()


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v


def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b).sigmoid()


def conv(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, w)).mean((2, 3))


def two_outputs(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    c = (a * b).exp()
    return c.sum(0), (c @ b.t()).tanh()


def chain(a: Tensor) -> Tensor:
    for _ in range(6):
        a = a.cos()
    return a


def cross_entropy(x: Tensor, w: Tensor) -> Tensor:
    return F.cross_entropy(x @ w, torch.arange(5) % 3)


def linear_in_one(a: Tensor, b: Tensor) -> Tensor:
    return a.sum() + b.exp().sum()


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).relu()


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "gelu_sum": (gelu_sum, [(8, 16), (8, 16)]),
    "softmax_attention": (softmax_attention, [(2, 4, 8), (2, 4, 8), (2, 4, 8)]),
    "norm": (norm, [(4, 8), (8,), (8,)]),
    "conv": (conv, [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "two_outputs": (two_outputs, [(4, 8), (4, 8)]),
    "chain": (chain, [(16,)]),
    "cross_entropy": (cross_entropy, [(5, 4), (4, 3)]),
    "linear_in_one": (linear_in_one, [(4,), (3,)]),
    "attention": (attention, [(1, 2, 4, 8)] * 3),
    "dropout": (lambda x, w: torch.native_dropout(x @ w, 0.5, True)[0].relu() * 2, [(4, 4), (4, 4)]),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 2, 1]), w).exp(), [(4, 8)]),
    "mask": (lambda x: torch.where(x > 0, x, x * 0.1), [(32,)]),
    "max_pool": (lambda x: F.max_pool2d(x.exp(), 2), [(1, 1, 4, 4)]),
}  # fmt: skip


# Operators of two square matrices: pointwise, products, reductions, views, random numbers.
STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a.sin(),
    lambda a, b: a.exp(),
    lambda a, b: b.sigmoid(),
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: torch.tanh(a @ b),
    lambda a, b: a.t() - b,
    lambda a, b: a.mean(0, keepdim=True).expand(4, 4) * b,
    lambda a, b: torch.softmax(a, 1),
    lambda a, b: a * (torch.rand(4, 4) > 0.5),
    lambda a, b: torch.where(a > b, a, b.detach()),
)


@st.composite
def programs(draw: st.DrawFn) -> Callable[..., Any]:
    """A random straight-line program over three square matrices."""
    steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
    returned = draw(st.lists(st.integers(0, 30), min_size=1, max_size=3, unique=True))

    def f(*inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        for step, i, j in steps:
            values.append(step(values[i % len(values)], values[j % len(values)]))
        made = values[len(inputs) :]
        return tuple(made[i % len(made)] * 1.5 for i in returned)

    return f
