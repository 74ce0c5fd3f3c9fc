"""Batch norm folded in the graph, never stale; the fusing backend of a small CNN on our stack and on torch's, in evaluation and in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

import compiler_lab
from compiler_lab import FusionBackend, Halves, PostGradPass, fold_batch_norm, fuse_silu, run_passes, symbolic_trace
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.graph.fusions import POST_GRAD_FOLDS
from compiler_lab.graph.rewrite import REASONS

aten: Any = torch.ops.aten
STACKS: dict[str, Callable[..., Any]] = {"ours": compiler_lab.compile, "torch": torch.compile}


@pytest.fixture(autouse=True)
def clean() -> Any:
    yield
    torch._dynamo.reset()


def trained(module: nn.Module) -> nn.Module:
    """``module`` in evaluation, as if it had been trained: statistics, scales and shifts of its own."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for m in module.modules():
            if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                for t, low in ((m.running_mean, -1.0), (m.running_var, 0.5), (m.weight, 0.5), (m.bias, -1.0)):
                    if isinstance(t, Tensor):
                        t.copy_(torch.rand(t.shape, generator=generator) + low)
    return module.eval()


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x))
        return x * torch.sigmoid(x)


class Cnn(nn.Module):
    """The small CNN: (conv 3->8, bn, x * sigmoid(x)), (conv 8->8, bn, x * sigmoid(x)), global average pool, Linear(8, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = Block(3, 8), Block(8, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.b(self.a(x)), 1).flatten(1))


def image(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*(shape or (4, 3, 8, 8))).to(dtype)


def captured(model: Callable[..., Any], *args: Any) -> GraphArtifact:
    return compiler_lab.capture(model, *args).graphs[0]


def outcomes(graph: GraphArtifact) -> list[tuple[str, str, Any]]:
    found = [d for d in graph.decisions if d.kind == "rewrite"]
    assert all(d.reason in REASONS for d in found)
    return [(d.outcome, d.reason, d.facts.get("condition")) for d in found]


def folding(model: nn.Module, *passes: Any) -> tuple[Any, list[GraphArtifact]]:
    """``model`` compiled with passes on its captured graph, and the graphs that they gave."""
    seen: list[GraphArtifact] = []

    def backend(gm: fx.GraphModule, args: Any) -> Any:
        seen.append(run_passes(GraphArtifact(gm, "frames"), passes or (fold_batch_norm,)).after)
        seen[-1].check()
        return seen[-1].module.forward

    return compiler_lab.compile(model, backend=backend, fullgraph=True), seen


# ---------------------------------------------------------------------------------------------------------------- folding

PAIRS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "2d": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (2, 3, 8, 8)),
    "no bias": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)), (2, 3, 8, 8)),
    "no scale": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False)), (2, 3, 8, 8)),
    "neither": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8, affine=False, eps=0.1)), (2, 3, 8, 8)),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)), (2, 4, 8, 8)),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4)), (2, 4, 8, 8)),
    "same, dilated": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding="same", dilation=2), nn.BatchNorm2d(8)), (2, 3, 8, 8)),
    "strided, reflected": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, padding_mode="reflect"), nn.BatchNorm2d(8)), (2, 3, 8, 8)),
    "1d": (lambda: nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8)), (2, 3, 8)),
    "3d": (lambda: nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8)), (2, 3, 5, 5, 5)),
    "transposed 1d": (lambda: nn.Sequential(nn.ConvTranspose1d(3, 8, 3), nn.BatchNorm1d(8)), (2, 3, 8)),
    "transposed 2d": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 8, 3, 2, 1, 1), nn.BatchNorm2d(8)), (2, 3, 8, 8)),
    "transposed 3d": (lambda: nn.Sequential(nn.ConvTranspose3d(3, 8, 3, bias=False), nn.BatchNorm3d(8)), (2, 3, 4, 4, 4)),
    "transposed, groups": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
    "channels last": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(memory_format=torch.channels_last), (2, 3, 8, 8)),  # pyright: ignore
    "one image": (lambda: nn.Sequential(nn.Conv2d(3, 1, 1), nn.BatchNorm2d(1)), (1, 3, 1, 1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_folding_gives_what_the_pair_gave(name: str) -> None:
    make, shape = PAIRS[name]
    model = trained(make()).double()
    compiled, seen = folding(model)
    for _ in range(2):
        x = image(*shape, dtype=torch.float64).requires_grad_()
        got, want = compiled(x), model(x)
        torch.testing.assert_close(got, want, check_stride=True)
        wanted = [x, *model.parameters()]
        for a, b in zip(torch.autograd.grad(got.square().sum(), wanted), torch.autograd.grad(want.square().sum(), wanted), strict=True):
            torch.testing.assert_close(a, b)
    assert len(seen) == 1 and outcomes(seen[0]) == [("replaced", "match", None)]
    assert not any("batch_norm" in str(n.target) for n in seen[0].graph.nodes)


def test_the_fold_is_the_algebra() -> None:
    """W' = W gamma / sigma, b' = (b - mean) gamma / sigma + beta: what the graph computes for the convolution."""
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    conv, bn = (m for m in model.children())
    x = image(2, 3, 8, 8)
    graph = fold_batch_norm(captured(model, x))
    (call,) = (n for n in graph.graph.nodes if n.target is torch.conv2d)
    seen: dict[fx.Node, Any] = {}

    class Watch(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            seen[n] = super().run_node(n)
            return seen[n]

    args = [x, conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.weight, bn.bias]
    Watch(graph.module).run(*args)
    scale = bn.weight / torch.sqrt(bn.running_var + bn.eps)  # pyright: ignore
    torch.testing.assert_close(seen[call.args[1]], conv.weight * scale.reshape(-1, 1, 1, 1))  # pyright: ignore
    torch.testing.assert_close(seen[call.args[2]], (conv.bias - bn.running_mean) * scale + bn.bias)  # pyright: ignore


def test_nothing_in_the_graph_is_stale() -> None:
    model = trained(Cnn())
    backend = FusionBackend()
    compiled = compiler_lab.compile(model, backend=backend)
    x = image()

    def holds() -> None:
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)

    holds()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled(x).square().sum().backward()
    optimizer.step()
    holds()
    with torch.no_grad():
        model.a.bn.weight.mul_(2)  # pyright: ignore
        model.b.bn.running_var.add_(1)  # pyright: ignore
    holds()
    model.load_state_dict(trained(Cnn()).state_dict())
    holds()
    assert len(backend.reports) == 1


def _used(model: nn.Module, x: Tensor) -> Tensor:
    conv, bn = model.children()
    y = conv(x)
    return bn(y) + y


def _moved(model: nn.Module, x: Tensor) -> Tensor:
    conv, bn = model.children()
    y = conv(x)
    bn.running_mean.add_(1)  # pyright: ignore
    return bn(y)


def _across(model: nn.Module, x: Tensor) -> Tensor:
    """Batch norm along another dimension than the channels."""
    conv, bn = model.children()
    return bn(conv(x).transpose(1, 2))


def _autocast(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(x)


def _plain(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


def pair(outputs: int = 8, **options: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, outputs, 3), nn.BatchNorm2d(outputs, **options))


REFUSED: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], tuple[int, ...], list[tuple[str, str, Any]]]] = {
    "training": (lambda: trained(pair()).train(), _plain, (2, 3, 8, 8), [("refused", "condition", "evaluation")]),
    "no statistics": (lambda: trained(pair(track_running_stats=False)), _plain, (2, 3, 8, 8), [("refused", "condition", "evaluation")]),
    "used elsewhere": (lambda: trained(pair()), _used, (2, 3, 8, 8), [("refused", "used_elsewhere", None)]),
    "written between": (lambda: trained(pair()), _moved, (2, 3, 8, 8), [("refused", "write_between", None)]),
    "another dimension": (lambda: trained(pair(outputs=6)), _across, (2, 3, 8, 8), []),
    "autocast": (lambda: trained(pair()), _autocast, (2, 3, 8, 8), [("refused", "condition", "one dtype")]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_folding_is_refused(name: str) -> None:
    make, f, shape, expected = REFUSED[name]
    model, other = make(), make()
    other.load_state_dict(model.state_dict())
    x = image(*shape)
    seen: list[GraphArtifact] = []
    run = compiler_lab.compile(lambda x: f(model, x), backend=_folder(seen))
    torch.testing.assert_close(run(x), f(other, x))
    assert [o for g in seen for o in outcomes(g)] == expected
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def _folder(seen: list[GraphArtifact]) -> Callable[..., Any]:
    def backend(gm: fx.GraphModule, args: Any) -> Any:
        seen.append(fold_batch_norm(GraphArtifact(gm, "frames")))
        return seen[-1].module.forward

    return backend


def test_a_convolution_without_a_batch_is_refused() -> None:
    """Its output has one dimension less, and batch norm would take the rows for channels."""

    def f(x: Tensor, w: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return F.batch_norm(F.conv2d(x, w), mean, var)

    x, w, mean, var = image(3, 6, 6), image(4, 3, 3, 3), image(4), image(4).abs()
    graph = captured(f, x, w, mean, var)
    after = fold_batch_norm(graph)
    assert outcomes(after) == [("refused", "condition", "batched")]
    torch.testing.assert_close(after.run(x, w, mean, var), graph.run(x, w, mean, var), rtol=0, atol=0)


LOW = [(torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)]


@pytest.mark.parametrize(("low", "norm"), LOW)
def test_reduced_precision_is_folded_in_float32(low: torch.dtype, norm: torch.dtype) -> None:
    """As near to the exact result as the pair was: W' and b' are computed in float32 and rounded once."""
    model = trained(nn.Sequential(nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32)))
    conv, bn = model.children()
    conv.to(low)
    bn.to(norm)
    compiled, seen = folding(model)
    x = image(4, 16, 10, 10, dtype=low)
    got, want = compiled(x), model(x)
    assert outcomes(seen[0]) == [("replaced", "match", None)] and got.dtype == want.dtype == low
    exact = model.double()(x.double())
    errors = [(t.double() - exact).abs().mean().item() for t in (got, want)]
    assert errors[0] <= 2 * errors[1], errors


# ----------------------------------------------------------------------------------------------------- below autograd


def below(model: nn.Module, x: Tensor, table: Any = None) -> tuple[GraphArtifact, list[Any]]:
    """The aten graph of ``model``, whose parameters need no gradient, and its inputs."""
    model.requires_grad_(False)
    inputs: list[Any] = []

    def backend(gm: fx.GraphModule, args: list[Tensor]) -> Any:
        joint = compiler_lab.functionalize(compiler_lab.joint(GraphArtifact(gm, "frames"), *args))
        inputs[:] = [compiler_lab.decompose(joint, table) if table else joint, *args]
        return gm.forward

    compiler_lab.compile(model, backend=backend)(x)
    return inputs[0], inputs[1:]


@pytest.mark.parametrize("table", [None, "core", "inductor-like"])
@pytest.mark.parametrize("name", ["2d", "no bias", "no scale", "groups", "1d", "3d", "transposed 2d"])
def test_folding_an_aten_graph(name: str, table: str | None) -> None:
    make, shape = PAIRS[name]
    model = trained(make())
    x = image(*shape)
    graph, args = below(model, x, table)
    after = fold_batch_norm(graph)
    after.check()
    assert outcomes(after) == [("replaced", "match", None)]
    torch.testing.assert_close(after.run(*args)[0], model(x), rtol=1e-5, atol=1e-5)
    assert {n.target for n in after.graph.nodes if n.op == "call_function"} >= {aten.convolution.default, aten.rsqrt.default}


def test_groups_of_a_transposed_convolution_are_refused_below_autograd() -> None:
    make, shape = PAIRS["transposed, groups"]
    graph, _ = below(trained(make()), image(*shape))
    assert outcomes(fold_batch_norm(graph)) == [("refused", "condition", "spelled in aten")]


def test_a_backward_that_reads_the_convolution_keeps_it() -> None:
    def f(x: Tensor, w: Tensor, mean: Tensor, var: Tensor, gamma: Tensor) -> Tensor:
        return F.batch_norm(F.conv2d(x, w), mean, var, gamma)

    args = [image(), image(4, 3, 3, 3).requires_grad_(), image(4), image(4).abs(), image(4).requires_grad_()]
    graph = captured(f, *args)
    joint = compiler_lab.functionalize(compiler_lab.joint(graph, *args))
    assert outcomes(fold_batch_norm(joint)) == [("refused", "used_elsewhere", None)]
    assert outcomes(fold_batch_norm(graph)) == [("replaced", "match", None)]


def test_inductor_runs_the_fold_as_a_pass_of_its_own() -> None:
    import torch._inductor.config as config
    from torch._inductor.utils import run_and_get_code

    model = trained(Cnn()).requires_grad_(False)
    fold = PostGradPass(*POST_GRAD_FOLDS)
    x = image()
    with config.patch(post_grad_custom_post_pass=fold):
        got, (code,) = run_and_get_code(torch.compile(model), x)
    assert config.post_grad_custom_post_pass is None
    assert [(d.outcome, d.facts["pattern"]) for d in fold.decisions] == [("replaced", "convolution + opened batch_norm, 2d")] * 2
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-5)
    # the statistics are read by small kernels that make W' and b', and no longer by those that sweep the images
    assert "cpp_fused" in code and code.count("extern_kernels.convolution") == 2


# ------------------------------------------------------------------------------------------------------------ the backend


@pytest.mark.parametrize("stack", STACKS)
def test_the_small_cnn_in_evaluation(stack: str) -> None:
    model = trained(Cnn())
    backend = FusionBackend()
    compiled = STACKS[stack](model, backend=backend)
    for _ in range(2):
        x = image()
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    (report,) = backend.reports
    assert report.rewrites == Counter({"conv2d + batch_norm": 2, "silu": 2}) and report.refused == ()
    before, after = (calls.operators for calls in report.operators)
    norm = "torch.batch_norm" if stack == "ours" else "torch.nn.functional.batch_norm"
    assert before == Counter(
        {
            "torch.conv2d": 2,
            norm: 2,
            "torch.sigmoid": 2,
            "operator.mul": 2,
            "torch.nn.functional.adaptive_avg_pool2d": 1,
            "flatten": 1,
            "torch.nn.functional.linear": 1,
        }
    )
    assert after["torch.nn.functional.silu"] == after["torch.conv2d"] == 2 and not {norm, "torch.sigmoid"} & set(after)
    shapes = [shape for _, shape in report.shapes]
    assert shapes == ["f32[4, 8, 8, 8]"] * 8 + ["f32[4, 8, 1, 1]", "f32[4, 8]", "f32[4, 10]"]
    assert [name for name, _ in report.diffs] == ["fold_batch_norm", "fuse_silu"]
    assert [len(d.of("removed")) for _, d in report.diffs] == [4, 4] and [len(d.of("added")) for _, d in report.diffs] == [22, 2]
    assert report.text().startswith("rewrites:\n2 x conv2d + batch_norm\n2 x silu\n\nbefore: 11 calls\n    2  operator.mul\n")
    assert all(i.location is not None for i in report.after.items() if i.kind == "call_function")


@pytest.mark.parametrize("stack", STACKS)
def test_training_leaves_batch_norm_alone(stack: str) -> None:
    model, other = Cnn().train(), Cnn().train()
    other.load_state_dict(model.state_dict())
    backend = FusionBackend()
    compiled = STACKS[stack](model, backend=backend)
    x = image()
    got, want = compiled(x), other(x)
    got.sum().backward()
    want.sum().backward()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in other.parameters()], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.state_dict(), other.state_dict())
    (report,) = backend.reports
    assert report.rewrites == Counter({"silu": 2})
    assert [(d.reason, d.facts["condition"]) for d in report.refused] == [("condition", "evaluation")] * 2
    assert "refused at" in report.text() and "in training the statistics are those of the batch" in report.text()


@pytest.mark.parametrize("stack", STACKS)
def test_sizes_that_vary(stack: str) -> None:
    model = trained(Cnn())
    backend = FusionBackend()
    compiled = STACKS[stack](model, backend=backend, dynamic=True)
    for shape in ((4, 3, 8, 9), (5, 3, 10, 7)):
        x = image(*shape)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert [r.rewrites["silu"] for r in backend.reports] == [2] and backend.reports[0].rewrites["conv2d + batch_norm"] == 2


def test_the_fused_graph_through_our_kernels() -> None:
    model, x = trained(Cnn()), image()
    backend = FusionBackend(inner=lambda gm, args: compiler_lab.compile(gm, fullgraph=True))
    compiled = compiler_lab.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert [sum(r.rewrites.values()) for r in backend.reports] == [4]


def test_a_registered_name() -> None:
    from compiler_lab import backends

    compiler_lab.register_backend(FusionBackend(), name="fuse")
    try:
        model, x = trained(Cnn()), image()
        torch.testing.assert_close(compiler_lab.compile(model, backend="fuse")(x), model(x), rtol=1e-5, atol=1e-5)
    finally:
        backends._REGISTERED.pop("fuse")


def test_any_function_on_graphs_is_a_pass() -> None:
    graph = symbolic_trace(lambda x: x.sigmoid() * x, image())
    report = run_passes(graph, (fuse_silu, lambda g: g))
    assert report.rewrites == Counter({"silu": 1}) and [bool(d) for _, d in report.diffs] == [True, False]


# ------------------------------------------------------------------------------------------------- forward and backward


def halves(stack: str, fused: bool = False, **options: Any) -> Halves:
    from torch._dynamo.backends.common import aot_autograd as torchs

    seen = Halves()
    if stack == "ours":
        inner = compiler_lab.aot_autograd(seen.forward, seen.backward, **options)
    else:
        inner = torchs(fw_compiler=seen.forward, bw_compiler=seen.backward, **options)
    STACKS[stack](Cnn().train(), backend=FusionBackend(inner) if fused else inner)(image()).sum().backward()
    torch._dynamo.reset()
    return seen


@pytest.fixture(scope="module")
def theirs() -> dict[str, Halves]:
    """torch's partitioners on the CNN in training; "opened" with Inductor's decompositions."""
    from functorch.compile import default_partition, min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    return {
        "default": halves("torch", partition_fn=default_partition),
        "min-cut": halves("torch", partition_fn=min_cut_rematerialization_partition),
        "opened": halves("torch", partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table()),
        "fused": halves("torch", fused=True, partition_fn=default_partition),
    }


def test_what_training_saves_on_torchs_stack(theirs: dict[str, Halves]) -> None:
    default, cut, opened = theirs["default"], theirs["min-cut"], theirs["opened"]
    assert default.counts == (26, 36)
    assert {"sigmoid", "detach", "mul", "sigmoid_1", "detach_1"} <= set(default.saved)  # the detach is an alias of the sigmoid
    assert cut.counts == (24, 39) and {"sigmoid", "sigmoid_1", "mul"} <= set(cut.saved) and "detach" not in cut.saved
    assert opened.counts == (56, 109) and not any("sigmoid" in name for name in opened.saved)
    assert opened.saved_bytes < cut.saved_bytes < default.saved_bytes
    assert theirs["fused"].counts == (22, 28) and not any("sigmoid" in name for name in theirs["fused"].saved)


def test_what_training_saves_on_ours(theirs: dict[str, Halves]) -> None:
    plain, opened, fused = halves("ours"), halves("ours", decompositions="inductor-like"), halves("ours", fused=True)
    for seen in (plain, opened, fused):
        forward, backward = (seen.graphs[k][0].module.graph for k in ("forward", "backward"))
        assert not any(isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable for g in (forward, backward) for n in g.nodes)
        assert seen.saved and not any("sigmoid" in name for name in seen.saved)
        assert set(seen.saved) <= {n.name for n in forward.nodes}
    assert opened.saved_bytes < plain.saved_bytes == fused.saved_bytes
    assert plain.saved_bytes <= theirs["min-cut"].saved_bytes and opened.saved_bytes <= theirs["opened"].saved_bytes
    assert opened.text().startswith(f"{opened.counts[0]} calls forward, {opened.counts[1]} backward; {opened.saved_bytes} bytes saved\n  primals_1")


def test_a_forward_alone_has_no_backward() -> None:
    seen = Halves()
    model = trained(Cnn())
    with torch.no_grad():
        compiler_lab.compile(model, backend=compiler_lab.aot_autograd(seen.forward, seen.backward))(image())
    assert seen.counts[0] > 0 and seen.counts[1] == 0 and seen.saved == () and seen.saved_bytes == 0
    seen.clear()
    assert seen.counts == (0, 0)


@pytest.mark.parametrize("stack", STACKS)
def test_halves_are_aten_with_eagers_gradients(stack: str) -> None:
    """Linear and GELU through an inner compiler: both halves are aten overloads, the gradients eager's."""
    from torch._dynamo.backends.common import aot_autograd as torchs

    seen = Halves()
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.randn(3, 4)
    make = compiler_lab.aot_autograd if stack == "ours" else torchs
    STACKS[stack](model, backend=make(fw_compiler=seen.forward, bw_compiler=seen.backward))(x).sum().backward()
    got = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(got, [p.grad for p in model.parameters()], rtol=1e-6, atol=1e-6)
    for graphs in seen.graphs.values():
        assert all(isinstance(n.target, torch._ops.OpOverload) for n in graphs[0].module.graph.nodes if n.op == "call_function")
    assert seen.counts == (3, 7)
