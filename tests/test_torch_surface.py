"""Torch's own surface in capture: modes as context managers and decorators, around the call and inside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import compiler_lab
from compiler_lab.frames.capture import capture

from .torch_surface import BACKENDS, Context, modes, same


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)


def cast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


AROUND: dict[str, Context] = {"plain": contextlib.nullcontext, "inference": torch.inference_mode, "autocast": cast, "no_grad": torch.no_grad}
frozen_mode: Any = torch.inference_mode  # without a call, as torch's annotations do not have it
OUTSIDE: Any = torch.autocast("cpu", dtype=torch.bfloat16)


def autocast_nested(x: Tensor, w: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = x.float() @ w
        q = y @ w
    return y, z, q, x @ w


@cast()
def autocast_decorated(x: Tensor, w: Tensor) -> Any:
    return (x @ w).relu() @ w, torch.is_autocast_enabled("cpu")


def autocast_from_outside(x: Tensor, w: Tensor) -> Any:
    with OUTSIDE as entered:
        inside = entered is OUTSIDE
        y = x @ w
    return y, inside, torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


@torch.inference_mode()
def inference_decorated(x: Tensor, w: Tensor) -> Any:
    return (x @ w).relu(), x.view(-1), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@torch.inference_mode()
def inference_with_grad_inside(x: Tensor, w: Tensor) -> Any:
    with torch.enable_grad():
        y = x @ w
        seen = torch.is_grad_enabled()
    return y * 2, seen


@torch.no_grad()
def inference_off_is_grad_on(x: Tensor, w: Tensor) -> Any:
    with torch.inference_mode(False):
        y = (x @ w, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return y, torch.is_grad_enabled()


def inference_in_part(x: Tensor, w: Tensor) -> Any:
    with torch.inference_mode():
        y = (x @ w).relu()
    return y + 1, y, x * 2


def decorators_inside(x: Tensor, w: Tensor) -> Any:
    @torch.no_grad()
    def quiet(a: Tensor) -> Tensor:
        return a @ w

    @cast()
    def low(a: Tensor) -> Tensor:
        return a @ w

    @frozen_mode
    def frozen(a: Tensor) -> bool:
        return torch.is_inference_mode_enabled()

    grad_off: Any = torch.set_grad_enabled(False)

    @grad_off
    def off(a: Tensor) -> Tensor:
        return a * 2

    return quiet(x), low(x), frozen(x), off(x), torch.is_grad_enabled()


def profiled(x: Tensor, w: Tensor) -> Any:
    with torch.profiler.record_function("product"):
        return x @ w


def state(x: Tensor, w: Tensor) -> Any:
    return (x @ w).relu(), x.view(-1), torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


MODES: list[Callable[..., Any]] = [
    autocast_nested, autocast_decorated, autocast_from_outside, inference_decorated, inference_with_grad_inside, inference_off_is_grad_on,
    inference_in_part, decorators_inside, profiled, state,
]  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", MODES)
def test_modes(fn: Callable[..., Any], backend: str, around: str) -> None:
    counts = same(fn, pair, backend, AROUND[around], low=True)
    part = fn in (inference_in_part, inference_off_is_grad_on) and backend != "eager"
    assert counts["break_reasons"] == (["inference-mode"] if part else [])
    assert part or counts["graphs"] >= 1


def test_a_mode_around_the_call_is_guarded() -> None:
    """One compiled function under each mode in turn, back and forth: an entry for each, and never another's."""
    compiler_lab.reset()
    fn: Any = compiler_lab.compile(state, backend="eager")
    x, w = pair()
    for _ in range(2):
        for around in AROUND.values():
            with around():
                want, got = state(x, w), fn(x, w)
                assert got[2:] == want[2:]
                assert [(t.dtype, t.requires_grad, t.is_inference()) for t in got[:2]] == [(t.dtype, t.requires_grad, t.is_inference()) for t in want[:2]]
    assert compiler_lab.stats()["graphs"] == len(AROUND)


def fails(x: Tensor, index: Tensor) -> Tensor:
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        return x[index] + 1


def fails_with_grad(x: Tensor, index: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            return x[index] + 1


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [fails, fails_with_grad])
def test_a_graph_that_fails_leaves_the_callers_modes(fn: Callable[..., Any], backend: str, around: str) -> None:
    compiler_lab.reset()
    compiled: Any = compiler_lab.compile(fn, backend=backend)
    x = torch.randn(4)
    compiled(x, torch.tensor([1]))
    with AROUND[around]():
        before = modes()
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError)):
                compiled(x, torch.tensor([9]))
            assert modes() == before
    assert modes() == (True, False, 0, True, (("cpu", False, torch.bfloat16), ("cuda", False, torch.float16)))


def test_refused_modes_say_why() -> None:
    def seeded(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return x + torch.rand(2)

    def default(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return x + torch.rand(2, dtype=torch.get_default_dtype())

    for fn, reason in ((seeded, "random"), (default, "global-state")):
        before = torch.get_default_dtype()
        try:
            counts = same(fn, lambda: (torch.zeros(2, dtype=torch.float64),))
        finally:
            torch.set_default_dtype(before)
        assert reason in counts["break_reasons"]


@torch.library.custom_op("lab_surface::scale", mutates_args=())
def scale(x: Tensor, k: float) -> Tensor:
    return x * k


@scale.register_fake
def _(x: Tensor, k: float) -> Tensor:
    return torch.empty_like(x)


scale.register_autograd(lambda ctx, g: (g * ctx.k * 2, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]))


@torch.library.custom_op("lab_surface::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    x.add_(1)


def own_operator(x: Tensor, w: Tensor) -> Any:
    return scale(x, 3.0) + torch.ops.lab_surface.scale(w, 2.0) + torch.ops.lab_surface.scale.default(w, 2.0)


def own_operator_that_writes(x: Tensor, w: Tensor) -> Any:
    y = w.detach().clone()
    bump(y)
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [own_operator, own_operator_that_writes])
def test_custom_operators_are_nodes(fn: Callable[..., Any], backend: str) -> None:
    assert same(fn, pair, backend)["break_reasons"] == []


def tripled(x: Tensor) -> Tensor:
    return x * 3


disabled: Any = torch.compiler.disable(tripled)


@torch.compiler.assume_constant_result
def settled() -> int:
    return 5


def calls_disabled(x: Tensor, w: Tensor) -> Any:
    return disabled(x) + 1


def breaks_by_hand(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    torch._dynamo.graph_break()  # pyright: ignore[reportPrivateImportUsage]
    return y + w


def takes_a_constant(x: Tensor, w: Tensor) -> Any:
    return x * settled(), w


@pytest.mark.parametrize(("fn", "reasons"), [(calls_disabled, ["disabled"]), (breaks_by_hand, ["disabled"]), (takes_a_constant, [])])
def test_marks_of_torch_compiler(fn: Callable[..., Any], reasons: list[str]) -> None:

    assert same(fn, pair)["break_reasons"] == reasons


def test_is_compiling_is_recorded() -> None:
    c = capture(lambda x: x + (1 if torch.compiler.is_compiling() else 2), torch.zeros(2))
    assert [d.outcome for d in c.graphs[0].decisions if d.kind == "is_compiling"] == ["True"]
    assert torch.equal(c.run(torch.zeros(2)), torch.ones(2))


def tensor_data(x: Tensor, y: Tensor) -> Any:
    return x.data * 2, x.data.requires_grad, y.data + 1, x.retains_grad


def legacy_types(x: Tensor, y: Tensor) -> Any:
    return isinstance(x, torch.FloatTensor), isinstance(y.long(), torch.LongTensor), isinstance(x, torch.HalfTensor), x.type(), y.type("torch.LongTensor")


def kinds(x: Tensor, y: Tensor) -> Any:
    made = x.to(torch.float64), x.to(y), x.to(device="cpu", dtype=torch.bfloat16), x.cpu(), x.double().float().half()
    asked = x.is_floating_point(), torch.is_complex(x), x.dtype.is_signed, torch.finfo(x.dtype).min, x.get_device(), x.size().numel(), x.stride(), x.dim_order()
    return made, asked, torch.result_type(x, y.long()), torch.promote_types(torch.int8, torch.float16), x.shape[1:].numel(), f"{x.dtype} {x.shape}"


def parts(x: Tensor, y: Tensor) -> Any:
    z = torch.complex(x, y)
    return x.T, x.mT, x.H, z.real, z.imag, x[..., None], x[:, [0, 2]], x[1:3, ::2], x[None], torch.view_as_real(z)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [tensor_data, legacy_types, kinds, parts])
def test_attributes_and_predicates_of_tensors(fn: Callable[..., Any], backend: str) -> None:
    counts = same(fn, pair, backend, low=True)
    assert (counts["graphs"], counts["break_reasons"]) == (1, [])


def writes_data(x: Tensor, y: Tensor) -> Any:
    z = y * 1
    z.data.add_(1)
    return z


def hooks_a_result(x: Tensor, y: Tensor) -> Any:
    z = x * 2
    z.register_hook(lambda g: g * 3)
    return z


def runs_backward(x: Tensor, y: Tensor) -> Any:
    (x * 2).sum().backward()
    return y * 2


def takes_numbers(x: Tensor, y: Tensor) -> Any:
    return y.tolist(), y.sum().item(), x * 2


def goes_through_numpy(x: Tensor, y: Tensor) -> Any:
    return torch.from_numpy(y.detach().numpy() * 2) + 1


REFUSED = [(writes_data, "autograd-api"), (hooks_a_result, "autograd-api"), (runs_backward, "autograd-api"), (takes_numbers, "tensor-to-python")]


@pytest.mark.parametrize(("fn", "reason"), [*REFUSED, (goes_through_numpy, "tensor-to-python")])
def test_what_python_must_do_has_a_reason(fn: Callable[..., Any], reason: str) -> None:
    assert reason in same(fn, pair)["break_reasons"]


def test_the_dict_of_keywords_is_the_frames_own() -> None:
    """It may change, also before a break, and its keys are what the call passed."""

    def fn(x: Tensor, **kwargs: Any) -> Any:
        scale = kwargs.pop("scale", 3.0)
        kwargs["more"] = 1
        y = disabled(x * scale)
        return y + len(kwargs), kwargs

    compiled: Any = compiler_lab.compile(fn, backend="eager")
    x = torch.ones(2)
    for given in ({}, {"scale": 1.0}, {"scale": 2.0, "other": 1}, {}):
        want, got = fn(x, **given), compiled(x, **given)
        assert torch.equal(want[0], got[0]) and want[1] == got[1] and list(want[1]) == list(got[1])
    assert {b.reason for b in compiled._compiled_function.breaks} == {"disabled"}


class Renamed:
    names: dict[str, str] = {"old": "new"}

    def __init__(self) -> None:
        self.new = 2.0

    def __getattribute__(self, name: str) -> Any:
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))

    def __getattr__(self, name: str) -> float:
        if name == "made":
            return 7.0
        raise AttributeError(name)


def test_a_class_reads_attributes_in_its_own_way() -> None:
    value: Any = Renamed()

    def fn(x: Tensor) -> Any:
        return x * value.old + value.made + getattr(value, "absent", 1.0)

    compiled: Any = compiler_lab.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for name, new in (("new", 2.0), ("new", 5.0), ("absent", 9.0)):
        setattr(value, name, new)
        assert torch.equal(compiled(x), fn(x))
