"""What training programs do with autograd around and inside a compiled function: the same as around and inside the function itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import compiler_lab
from compiler_lab.aot.joint import joint

from .aot_programs import conv_args, conv_train, traced

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def ones(*shape: int) -> Tensor:
    return (torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 4 + 0.5).requires_grad_()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.table(tokens)).square().sum()


def tied_weights(c: Compile) -> Any:
    model = Tied()
    c(model)(torch.tensor([1, 2, 1])).backward()
    return [p.grad for p in model.parameters()]


def inputs_on_one_memory(c: Compile) -> Any:
    w = ones(6)
    c(lambda a, b: (a * b).sum())(w[:4], w[2:]).backward()
    return w.grad


def inputs_on_one_memory_of_which_one_is_written(c: Compile) -> Any:
    w = ones(6).detach()

    def program(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    return c(program)(w[:4], w[2:]), c(program)(w[:], w[:]), w


def one_tensor_twice(c: Compile) -> Any:
    w = ones(3)
    x = w * 1

    def program(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(2)
        return a * b

    c(program)(x, x).sum().backward()
    return w.grad, x


def batch_norm(c: Compile) -> Any:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    compiled = c(model)
    x = torch.randn(2, 3, 6, 6)
    for _ in range(2):
        compiled(x).square().mean().backward()
    return list(model.buffers()), [p.grad for p in model.parameters()]


def integer_inputs(c: Compile) -> Any:
    w = ones(5, 2)
    out, index, mask = c(lambda t, w: (w[t].sum(), w.argmax(0), t > 1))(torch.tensor([0, 3]), w)
    out.backward()
    return w.grad, index, mask, index.requires_grad


def detached(c: Compile) -> Any:
    w = ones(3)
    c(lambda w: (w * w.detach()).sum() + w.detach().sum())(w).backward()
    return w.grad


def becomes_a_leaf_inside(c: Compile) -> Any:
    def program(x: Tensor) -> Any:
        y = (x * 2).requires_grad_()
        return y, (y * 3).sum()

    y, out = c(program)(torch.ones(3))
    out.backward()
    return y.grad, y.is_leaf


def requires_grad_is_switched(c: Compile) -> Any:
    x, program, told = ones(3), c(lambda x: (x * 2).sum()), list[Any]()
    for on in (True, False, True):
        out = program(x.requires_grad_(on))
        told.append(out.requires_grad)
    out.backward()
    return told, x.grad


def autocast(c: Compile) -> Any:
    w, x = ones(4, 4), ones(2, 4)

    def inside(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y.float() * y.dtype.itemsize

    c(inside)(x, w).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        out = c(lambda x, w: x @ w)(x, w)
    out.float().sum().backward()
    return out.dtype, w.grad, x.grad


def hooks_of_parameters(c: Compile) -> Any:
    model, seen = nn.Linear(3, 2), list[Any]()
    model.weight.register_hook(lambda g: g * 2)
    model.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    c(model)(torch.ones(2, 3)).sum().backward()
    return model.weight.grad, seen


def hook_of_an_intermediate(c: Compile) -> Any:
    x = ones(3)

    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return (y * 3).sum()

    c(program)(x).backward()
    return x.grad


def hooks_of_outputs(c: Compile) -> Any:
    x = ones(3)
    y, z = c(lambda x: (x * 2, x * 3))(x)
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    (y.sum() + z.sum()).backward()
    return x.grad, y.grad


def in_another_thread(c: Compile) -> Any:
    x = ones(3)
    out = c(lambda x: x.square().sum())(x)
    thread = threading.Thread(target=out.backward)
    thread.start()
    thread.join()
    return x.grad


def one_output_after_the_other(c: Compile) -> Any:
    x = ones(3)
    a, b = c(lambda x: (x.square(), x * 3))(x)
    a.sum().backward(retain_graph=True)
    (b.sum() + a.sum()).backward()
    return x.grad, raised(lambda: a.sum().backward())


def partial(c: Compile) -> Any:
    x, w, v = ones(3), ones(3), ones(3)
    out = c(lambda x, w, v: (x * w * v).sum())(x, w, v)
    (grad,) = torch.autograd.grad(out, [w], retain_graph=True)
    out.backward(inputs=[x])
    return grad, x.grad, w.grad, v.grad


def accumulated(c: Compile) -> Any:
    model = nn.Linear(3, 2)
    compiled = c(model)
    for _ in range(3):
        compiled(torch.ones(2, 3)).square().sum().backward()
    return [p.grad for p in model.parameters()]


def parameters_are_stepped(c: Compile) -> Any:
    """Parameters written under no_grad, and read with gradients in the same program."""
    w = ones(3)

    def program(w: Tensor) -> Tensor:
        y = w * 2
        with torch.no_grad():
            w.sub_(y, alpha=0.1)
        return (w * y.detach()).sum()

    c(program)(w).backward()
    return w.grad, w, w.is_leaf


def no_grad(c: Compile) -> Any:
    x, program = ones(3), c(lambda x: x * 2)
    with torch.no_grad():
        out = program(x)
    return out, out.requires_grad, program(x).requires_grad


def raised(run: Callable[[], Any]) -> str:
    with pytest.raises(RuntimeError) as caught:
        run()
    return str(caught.value)[:60]


SCENES: dict[Callable[[Compile], Any], list[str]] = {
    tied_weights: [],
    inputs_on_one_memory: [],
    inputs_on_one_memory_of_which_one_is_written: [],
    one_tensor_twice: [],
    batch_norm: [],
    integer_inputs: [],
    detached: [],
    becomes_a_leaf_inside: ["metadata-mutation"],
    requires_grad_is_switched: [],
    autocast: [],
    hooks_of_parameters: [],
    hook_of_an_intermediate: ["autograd-api"],
    hooks_of_outputs: [],
    in_another_thread: [],
    one_output_after_the_other: [],
    partial: [],
    accumulated: [],
    parameters_are_stepped: [],
    no_grad: [],
}
"""What happens, and for which reasons a part of it is left to Python."""


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_training_is_what_it_is_in_python(scene: Callable[[Compile], Any], backend: str) -> None:
    told: list[Any] = []
    for c in (lambda f: f, lambda f: compiler_lab.compile(f, backend=backend)):
        compiler_lab.reset()
        torch.manual_seed(0)
        told.append(scene(c))
    torch.testing.assert_close(*map(plain, told), rtol=1e-5, atol=1e-5)
    found = compiler_lab.stats()
    assert sorted(set(found["break_reasons"])) == SCENES[scene] and found["graphs"]


def plain(told: Any) -> Any:
    """Comparable: what is neither tensor nor container as text."""
    if isinstance(told, (list, tuple)):
        return [plain(t) for t in told]
    return told.detach() if isinstance(told, Tensor) else torch.tensor(list(repr(told).encode()))


# ------------------------------------------------------------------------------------------- inputs that take a gradient


def scaled(x: Tensor) -> Any:
    x.mul_(3)
    return x.square()


def returned(x: Tensor) -> Any:
    x.mul_(3)
    return x, x[0], x.unsqueeze(0), x.detach(), x.t()


def through_a_view(x: Tensor) -> Any:
    y = x.sigmoid()
    x.add_(y)
    x[0].mul_(2)
    return y * 2


def both_ways(x: Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        x.mul_(2)
    x.add_(1)
    return y + x


def activation(x: Tensor) -> Any:
    F.relu(x, inplace=True)
    return x * 2


def forgotten(x: Tensor) -> Any:
    x.zero_()
    return x + 1


WRITERS = [scaled, returned, through_a_view, both_ways, activation, forgotten]


def given(kind: str, grad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(leaf, input, memory that the input stands on)."""
    leaf = (ones(3, 4) - 1).detach().requires_grad_(grad)
    whole = leaf * 1.0
    x = {"whole": whole, "view": whole[:], "rows": whole[1:], "leaf": leaf, "columns": whole[:, 1:]}[kind]
    return leaf, x, whole


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
@pytest.mark.parametrize("kind", ["whole", "view", "rows", "leaf", "columns"])
@pytest.mark.parametrize("program", WRITERS, ids=lambda p: p.__name__)
def test_inputs_with_history_that_are_written(program: Callable[..., Any], kind: str, backend: str) -> None:
    """The input, all that shares its memory, the outputs and the gradient; of a leaf torch's own error."""
    compiler_lab.reset()
    told: list[Any] = []
    for fn in (program, compiler_lab.compile(program, backend=backend)):
        leaf, x, memory = given(kind)
        if kind == "leaf":
            told.append([raised(lambda fn=fn, x=x: fn(x)), x.tolist()])
            continue
        outputs = fn(x)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        facts = [[t.requires_grad, t._is_view(), t is x, t.untyped_storage()._cdata == x.untyped_storage()._cdata] for t in (*outputs, x)]
        torch.stack([t.square().sum() for t in (*outputs, x, memory) if t.requires_grad]).sum().backward()
        told.append([facts, list(outputs), x, memory, leaf.grad])
    torch.testing.assert_close(*map(plain, told), rtol=1e-5, atol=1e-5)
    if kind in ("whole", "view", "rows"):
        assert compiler_lab.stats() == {"graphs": 1, "breaks": 0, "break_reasons": []}


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
def test_an_input_without_history_that_is_given_one(backend: str) -> None:
    def program(x: Tensor, w: Tensor, steps: Tensor) -> Tensor:
        steps.add_(1)
        x.mul_(w)
        return x + steps

    compiler_lab.reset()
    told: list[Any] = []
    for fn in (program, compiler_lab.compile(program, backend=backend, fullgraph=True)):
        w, x, steps = ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)
        out = fn(x, w, steps)
        assert x.requires_grad and not x.is_leaf and not steps.requires_grad
        (out.sum() + x.square().sum()).backward()
        told.append([x, steps, out, w.grad])
    torch.testing.assert_close(*map(plain, told))


def test_the_graph_says_which_inputs_take_a_gradient() -> None:
    def program(x: Any, w: Any, state: Any) -> Any:
        state.add_(1)
        x.mul_(w)
        return x * 2, x[0]

    args = [torch.ones(2, 3), ones(2, 3), torch.ones(2)]
    graph = joint(traced(program), *args)
    graph.check()
    spec = graph.spec
    assert (spec.mutations, spec.rewrites, spec.overwritten, spec.hidden, spec.tangents) == ((2,), ((0, 2),), (2, 0), 1, (0, 2))
    assert spec.text().startswith("input 0 = output 2\nview 0 = aten.select.int(input 0, 0, 0)\n")
    assert [(d.subject[0], d.reason) for d in graph.decisions if d.kind == "mutation"] == [("frames/x", "written-with-history"), ("frames/state", "written")]


def test_updated_buffers_lead_the_outputs() -> None:
    """Batch norm: new running statistics first, then the program's own output."""
    args = conv_args(torch.float64)
    graph = joint(traced(conv_train), *args)
    assert graph.spec.mutations == (4, 5)
    x, w, g, b, mean, var, w2 = args
    running = mean.clone(), var.clone()
    found = graph.run(*[a.detach().clone() for a in args], torch.ones(2, 2, dtype=torch.float64))[:3]
    expected = conv_train(x, w, g, b, *running, w2)
    torch.testing.assert_close(found, (*running, expected))
