"""Programs for the tests of ``aot``: plain functions of tensors, a tracer that makes torch-level graphs of them, and the oracle.

``traced`` gives what capture gives: a torch-level FX graph whose nodes know their line. ``agree`` runs eager autograd and an
artifact on the same numbers and compares outputs, gradients and what became of the inputs.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch import Tensor

from compiler_lab.aot.ir import JointGraph, JointSpec
from compiler_lab.aot.tracer import laid_out_alike
from compiler_lab.core.provenance import Location, is_library

Program = Callable[..., Any]


class _Tracer(fx.Tracer):
    """Records the line of the program, in whatever file, that each node comes from."""

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        frame, calls = sys._getframe(), list[Location]()
        while frame is not None and "traced" != frame.f_code.co_name:
            if not is_library(frame.f_code.co_filename) and frame.f_code.co_name not in ("create_node", "call", "set_item", "set_grad"):
                calls.append(Location(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        node.meta["stack"], node.meta["parents"] = tuple(reversed(calls)), ()
        return node


def traced(program: Program) -> fx.GraphModule:
    graph = _Tracer().trace(program)
    line = Location(program.__code__.co_filename, program.__code__.co_firstlineno, program.__name__)
    for node in graph.nodes:
        node.meta["stack"] = node.meta.get("stack") or (line,)
    return fx.GraphModule(torch.nn.Module(), graph)


def whole(program: Program, count: int) -> fx.GraphModule:
    """A graph of one node, which runs all of ``program``: for programs that look at shapes."""
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(count)]
    graph.output(graph.call_function(program, tuple(inputs)))
    for node in graph.nodes:
        node.meta.update(stack=(), parents=())
    return fx.GraphModule(torch.nn.Module(), graph)


def call(near: Any, function: Callable[..., Any], *args: Any) -> Any:
    """``function(*args)`` where ``near`` is a tensor; a node of the graph where it is a proxy."""
    return near.tracer.create_proxy("call_function", function, args, {}) if isinstance(near, fx.Proxy) else function(*args)


def set_item(x: Any, index: Any, value: Any) -> None:
    call(x, operator.setitem, x, index, value)


def set_grad(near: Any, on: bool) -> None:
    call(near, torch._C._set_grad_enabled, on)


@dataclass
class Result:
    outputs: list[Any]
    gradients: list[Tensor | None]
    inputs: list[Tensor]


def copies(args: Sequence[Tensor]) -> list[Tensor]:
    """The same numbers, layout and ``requires_grad``, in other memory."""
    made: list[Tensor] = []
    for a in args:
        memory = a.detach().as_strided((a.untyped_storage().size() // a.element_size(),), (1,), 0).clone()
        made.append(memory.as_strided(a.shape, a.stride(), a.storage_offset()).requires_grad_(a.requires_grad))
    return made


def tangents_of(graph: JointGraph) -> list[Tensor]:
    vals = [p.meta["val"] for p in graph.placeholders[graph.spec.primals :]]
    made = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) for v in vals]
    for i, t in enumerate(made):
        t.copy_(torch.randn(t.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(i)))
    return made


def eager(program: Program, args: Sequence[Tensor], graph: JointGraph, seed: int = 0) -> Result:
    """What eager does: the program, then autograd with the tangents that the artifact is given as well."""
    inputs = copies(args)
    torch.manual_seed(seed)
    outputs = program(*inputs)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    of = memory_of(graph.spec, outputs)
    wanted = [i for i, a in enumerate(inputs) if a.requires_grad]
    found = torch.autograd.grad(of, [inputs[i] for i in wanted], tangents_of(graph), allow_unused=True) if of else [None] * len(wanted)
    gradients: list[Tensor | None] = [None] * len(inputs)
    for i, g in zip(wanted, found, strict=True):
        gradients[i] = g
    return Result(outputs, gradients, [a.detach() for a in inputs])


def memory_of(spec: JointSpec, outputs: Sequence[Any]) -> list[Any]:
    """The program's tensors that the tangents are of; hidden ones are what a view among the outputs is a view of."""
    seen = {i: outputs[i] for i in spec.tangents if i < spec.visible}
    for i, out in enumerate(spec.outputs):
        if out.kind == "view":
            kind, at = spec.views[out.base].source
            while kind == "step":
                kind, at = spec.views[at].source
            if kind == "output" and at >= spec.visible and outputs[i].requires_grad:
                seen[at] = outputs[i]._base
    return [seen[i] for i in spec.tangents]


def execute(graph: JointGraph, args: Sequence[Tensor], seed: int = 0) -> Result:
    """Runs a joint graph and does what a runtime does with its results: copies updates back, makes views again."""
    inputs = [a.detach() for a in copies(args)]
    torch.manual_seed(seed)
    spec = graph.spec
    with torch.no_grad():
        returned = list(graph.run(*inputs, *tangents_of(graph)))
        for i, update in zip(spec.mutations, returned, strict=False):
            inputs[i].copy_(update)
        values = returned[len(spec.mutations) : spec.forward_outputs]
        for i, place in spec.rewrites:
            inputs[i].copy_(values[place])
    views: list[Any] = []
    for step in spec.views:
        kind, index = step.source
        views.append(step.op({"input": inputs, "output": values, "step": views}[kind][index], *step.args, **step.kwargs))
    outputs: list[Any] = []
    for value, s in zip(values[: spec.visible], spec.outputs, strict=False):
        made: dict[str, Sequence[Any]] = {"input": inputs, "view": views, "same": outputs}
        outputs.append(value if s.kind == "tensor" else s.constant if s.kind == "constant" else made[s.kind][s.base])
    return Result(outputs, returned[spec.forward_outputs :], inputs)


def assert_same(expected: Result, found: Result, tolerance: float = 1e-6) -> None:
    assert len(expected.outputs) == len(found.outputs)
    pairs = [
        *zip(expected.outputs, found.outputs, strict=True),
        *zip(expected.gradients, found.gradients, strict=True),
        *zip(expected.inputs, found.inputs, strict=True),
    ]
    for a, b in pairs:
        if not isinstance(a, Tensor):
            assert a == b
            continue
        assert isinstance(b, Tensor) and a.shape == b.shape and a.dtype == b.dtype
        scale = max(1.0, a.detach().abs().max().item()) if a.is_floating_point() and a.numel() else 1.0
        torch.testing.assert_close(b, a.detach(), rtol=tolerance, atol=tolerance * scale, equal_nan=True, check_stride=False)
    for a, b in zip(expected.outputs, found.outputs, strict=True):
        if isinstance(a, Tensor):
            assert laid_out_alike(a, b), "an output is visible to the user, and so is its layout"


def randn(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


# -- the corpus ---------------------------------------------------------------------------------------------------------------


def mlp(x: Any, w1: Any, b1: Any, g: Any, b: Any, w2: Any, b2: Any) -> Any:
    h = F.gelu(F.linear(x, w1, b1))
    h = F.layer_norm(h, (16,), g, b)
    h = h + torch.relu(h) * 2
    return F.linear(h, w2, b2).sum()


def mlp_args(dtype: torch.dtype) -> list[Tensor]:
    shapes = [(16, 8), (16,), (16,), (16,), (3, 16), (3,)]
    return [randn(4, 8, dtype=dtype), *(randn(*s, grad=True, dtype=dtype) for s in shapes)]


def attention(x: Any, norm_w: Any, norm_b: Any, qkv_w: Any, out_w: Any) -> Any:
    h = F.layer_norm(x, (16,), norm_w, norm_b)
    q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in (F.linear(h, qkv_w)[:, :, i * 16 : i * 16 + 16] for i in range(3)))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + F.linear(o.transpose(1, 2).reshape(2, 6, 16), out_w)


def gpt(tokens: Any, targets: Any, table: Any, places: Any, n1w: Any, n1b: Any, qkv: Any, out: Any, n2w: Any, n2b: Any, up: Any, down: Any) -> Any:
    """One block; the table is tied: embedding and output projection."""
    x = F.embedding(tokens, table) + F.embedding(call(tokens, torch.arange, 6), places)
    x = attention(x, n1w, n1b, qkv, out)
    h = F.layer_norm(x, (16,), n2w, n2b)
    x = x + F.linear(F.gelu(F.linear(h, up), approximate="tanh"), down)
    logits = F.linear(x, table)
    return F.cross_entropy(logits.view(12, 11), targets.view(12)), logits


def gpt_args(dtype: torch.dtype) -> list[Tensor]:
    shapes = [(11, 16), (6, 16), (16,), (16,), (48, 16), (16, 16), (16,), (16,), (32, 16), (16, 32)]
    targets = torch.randint(0, 11, (2, 6))
    targets[0, 2] = -100
    return [torch.randint(0, 11, (2, 6)), targets, *((randn(*s, dtype=dtype) * 0.3).requires_grad_() for s in shapes)]


def conv_train(x: Any, w: Any, g: Any, b: Any, mean: Any, var: Any, w2: Any) -> Any:
    h = F.batch_norm(F.conv2d(x, w, padding=1), mean, var, g, b, True, 0.1, 1e-5)
    h = F.max_pool2d(F.silu(h), 2)
    return F.conv2d(h, w2).mean((2, 3))


def conv_eval(x: Any, w: Any, g: Any, b: Any, mean: Any, var: Any, w2: Any) -> Any:
    h = F.batch_norm(F.conv2d(x, w, padding=1), mean, var, g, b, False, 0.1, 1e-5)
    return F.conv2d(F.avg_pool2d(torch.sigmoid(h), 2), w2).tanh()


def conv_no_stats(x: Any, w: Any, g: Any, b: Any, mean: Any, var: Any, w2: Any) -> Any:
    return F.conv2d(F.batch_norm(F.conv2d(x, w), None, None, g, b, True), w2)


def conv_args(dtype: torch.dtype) -> list[Tensor]:
    d = dtype
    return [randn(2, 3, 8, 8, dtype=d), randn(4, 3, 3, 3, grad=True, dtype=d), randn(4, grad=True, dtype=d), randn(4, grad=True, dtype=d),
            randn(4, dtype=d), randn(4, dtype=d).abs() + 0.5, randn(2, 4, 1, 1, grad=True, dtype=d)]  # fmt: skip


def in_place(x: Any, w: Any) -> Any:
    h = x * w
    h.add_(1).mul_(w)
    row = h[0]
    row.copy_(w * 2)
    set_item(h, (slice(None), 1), 3.0)
    h.view(-1)[2:5].relu_()
    return h.t() * 2, h.sum()


def in_place_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(3, 4, dtype=dtype), randn(4, grad=True, dtype=dtype)]


def buffer_update(x: Any, buffer: Any, w: Any) -> Any:
    """A buffer written through a view, and read before and after."""
    before = buffer * 2
    set_grad(x, False)
    buffer[1:].add_(x[1:])
    buffer.t().mul_(0.5)
    set_grad(x, True)
    return (x * w).sum() + before.sum() + buffer.sum(), buffer[0]


def buffer_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(3, 4, dtype=dtype), randn(3, 4, dtype=dtype), randn(3, 4, grad=True, dtype=dtype)]


def sgd(w: Any, b: Any, gw: Any, gb: Any) -> Any:
    """Parameters that require grad, updated without grad mode."""
    set_grad(w, False)
    w.add_(gw, alpha=-0.1)
    b.sub_(gb * 0.1)
    set_grad(w, True)
    return (w * 2).sum().detach()


def sgd_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(3, 4, grad=True, dtype=dtype), randn(4, grad=True, dtype=dtype), randn(3, 4, dtype=dtype), randn(4, dtype=dtype)]


def views(x: Any, w: Any) -> Any:
    a, b = torch.chunk(x * w, 2, dim=1)
    c = torch.stack([a.t(), b.t()]).permute(2, 0, 1)
    return c.flatten(1).unsqueeze(0).expand(2, -1, -1), x, x[:, 1], 7, None, x.detach()


def view_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(3, 4, dtype=dtype), randn(3, 4, grad=True, dtype=dtype)]


def integers(tokens: Any, w: Any) -> Any:
    one_hot = (tokens.unsqueeze(-1) == call(tokens, torch.arange, 5)).to(w.dtype)
    tokens.add_(1)
    return one_hot @ w, tokens * 2, tokens.float().mean()


def integer_args(dtype: torch.dtype) -> list[Tensor]:
    return [torch.randint(0, 5, (3, 4)), randn(5, 2, grad=True, dtype=dtype)]


def losses(x: Any, y: Any, labels: Any, class_weight: Any) -> Any:
    a = F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
    b = F.cross_entropy(x, labels, class_weight, label_smoothing=0.1) + F.nll_loss(F.log_softmax(x, 1), labels, class_weight, reduction="sum")
    return a + b + F.softmax(x, 0).pow(2).sum(), F.cross_entropy(x, labels, reduction="none", ignore_index=1)


def loss_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(4, 5, grad=True, dtype=dtype), randn(4, 5, dtype=dtype), torch.tensor([0, 1, 4, 1]), randn(5, dtype=dtype).abs()]


def activations(x: Any) -> Any:
    parts = [F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x), F.leaky_relu(x, 0.1), F.hardswish(x), F.hardtanh(x),
             F.softplus(x), F.logsigmoid(x), torch.tanh(x), torch.sigmoid(x), F.relu6(x), F.selu(x), F.celu(x), F.softsign(x)]  # fmt: skip
    return torch.stack(parts).sum(0)


def activation_args(dtype: torch.dtype) -> list[Tensor]:
    return [(randn(4, 6, dtype=dtype) * 3).requires_grad_()]


def norms(x: Any, g: Any, b: Any) -> Any:
    a = F.group_norm(x, 2, g, b)
    c = F.instance_norm(x)
    d = F.layer_norm(x.transpose(1, 2), (4,), None, None)
    e = F.rms_norm(x, (6,))
    return a + c + d.transpose(1, 2) + e, F.normalize(x, dim=1)


def norm_args(dtype: torch.dtype) -> list[Tensor]:
    return [randn(3, 4, 6, grad=True, dtype=dtype), randn(4, grad=True, dtype=dtype), randn(4, grad=True, dtype=dtype)]


def dropout(x: Any, w: Any) -> Any:
    return F.dropout(x * w, 0.5, training=True).sum() + F.dropout(x, 0.3, training=False).mean()


CORPUS: dict[str, tuple[Program, Callable[[torch.dtype], list[Tensor]]]] = {
    "mlp": (mlp, mlp_args),
    "gpt": (gpt, gpt_args),
    "conv_train": (conv_train, conv_args),
    "conv_eval": (conv_eval, conv_args),
    "conv_no_stats": (conv_no_stats, conv_args),
    "in_place": (in_place, in_place_args),
    "buffer_update": (buffer_update, buffer_args),
    "sgd": (sgd, sgd_args),
    "views": (views, view_args),
    "integers": (integers, integer_args),
    "losses": (losses, loss_args),
    "activations": (activations, activation_args),
    "norms": (norms, norm_args),
    "dropout": (dropout, view_args),
}
