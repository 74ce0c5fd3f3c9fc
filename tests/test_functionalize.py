"""Functionalization: pure graphs compute what eager computes, whatever is written through whatever view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_lab
from compiler_lab.aot.functionalize import REASONS, functionalize
from compiler_lab.aot.ir import JointGraph
from compiler_lab.aot.joint import joint
from compiler_lab.aot.schemas import functional_twin
from compiler_lab.aot.view_rows import WRITE
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.core.fx import graph_text

from .aot_programs import CORPUS, Program, assert_same, call, eager, execute, randn, set_grad, set_item, traced, whole


def pure(module: fx.GraphModule, args: list[Tensor]) -> JointGraph:
    """Functionalized; the graph that went in is as it was, and nothing in the result mutates."""
    before = joint(module, *args)
    text = before.text()
    after = functionalize(before)
    assert before.text() == text
    after.check()
    assert after.spec == before.spec and after.state == "pure"
    assert not [n for n in after.graph.nodes if isinstance(n.target, OpOverload) and n.target._schema.is_mutable]
    ids = {f"aot.joint/{n.name}" for n in before.graph.nodes}
    assert all(set(i.parents) <= ids and i.parents for i in after.items())
    assert {d.reason for d in after.decisions} <= set(REASONS)
    return after


def assert_pure(program: Program, args: list[Tensor], tolerance: float = 1e-12) -> JointGraph:
    graph = pure(whole(program, len(args)), args)
    assert_same(eager(program, args, graph), execute(graph, args), tolerance)
    return graph


@pytest.mark.parametrize("name", CORPUS)
def test_pure_graphs_compute_what_eager_computes(name: str) -> None:
    program, make = CORPUS[name]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        args = make(dtype)
        graph = pure(traced(program), args)
        assert_same(eager(program, args, graph), execute(graph, args), tolerance)


@pytest.mark.parametrize("name", ["in_place", "buffer_update", "conv_train", "sgd", "integers"])
def test_agrees_with_torch_func_functionalize(name: str) -> None:
    program, make = CORPUS[name]
    args = [a.detach() for a in make(torch.float64)]
    graph = pure(traced(program), args)
    oracle = make_fx(torch.func.functionalize(lambda *a: program(*a)))(*(a.clone() for a in args))  # pyright: ignore[reportPrivateImportUsage]
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    expected = oracle(*theirs)
    found = execute(graph, mine)
    assert_same(type(found)(list(expected) if isinstance(expected, tuple) else [expected], [None] * len(args), theirs), found, 1e-12)


# -- programs out of parts ----------------------------------------------------------------------------------------------------

Step = tuple[str, int, int, int]


def view(t: Tensor, kind: str, a: int, b: int) -> Tensor | None:
    """A view of ``t``, with ``a`` and ``b`` made to fit; None where the kind does not apply."""
    d = a % max(t.dim(), 1)
    if kind == "flatten" and t.is_contiguous():
        return t.view(-1)
    if kind == "split_dim" and t.dim() and t.shape[d] % 2 == 0 and t.is_contiguous():
        return t.view(*t.shape[:d], 2, t.shape[d] // 2, *t.shape[d + 1 :])
    if kind == "unsqueeze":
        return t.unsqueeze(d)
    if not t.dim() or not t.numel():
        return None
    size = t.shape[d]
    if kind == "select":
        return t.select(d, b % size)
    if kind == "slice":
        start = b % size
        return t[(slice(None),) * d + (slice(start, None, 1 + b % 2),)]
    if kind == "narrow":
        return t.narrow(d, b % size, 1)
    if kind == "squeeze":
        return t.squeeze()
    if kind == "chunk":
        return t.chunk(2, d)[-1]
    if kind == "unbind":
        return t.unbind(d)[b % size]
    if kind == "split":
        return t.split([size // 2, size - size // 2], d)[b % 2]
    if kind == "flip_dims":
        return t.permute(*reversed(range(t.dim())))
    if kind == "transpose":
        return t.transpose(d, b % t.dim())
    if kind == "unfold":
        return t.unfold(d, 1 + b % min(size, 2), 2)
    if kind == "bits" and t.dtype == torch.float64 and t.is_contiguous():
        return t.view(torch.int64) if b % 2 else t.view(torch.float32)
    if kind == "real" and t.dtype == torch.float64 and t.is_contiguous() and t.numel() % 2 == 0:
        pairs = torch.view_as_complex(t.view(-1, 2))
        return (pairs.conj() if b % 2 else pairs).imag
    if kind == "strided" and t.is_contiguous():
        return t.as_strided((max(t.numel() // 2, 1),), (1,), t.storage_offset() + t.numel() // 4)
    if kind == "diagonal" and t.dim() == 2:
        return t.diagonal(b % 2)
    return t.expand(1, *t.shape) if kind == "expand" else None


def write(t: Tensor, kind: str, other: Tensor, number: float) -> None:
    if kind == "add_":
        t.add_(number)
    elif kind == "mul_":
        t.mul_(number)
    elif kind == "copy_":
        t.copy_(other.sum() * number)
    elif kind == "fill_":
        t.fill_(number)
    elif kind == "zero_":
        t.zero_()
    elif kind == "clamp_":
        t.clamp_(-1, 1)
    elif kind == "masked_fill_":
        t.masked_fill_(t.detach() > 0, number)
    elif kind == "sub_" and other.shape == t.shape:
        t.sub_((other * 2).to(t.dtype))
    elif kind == "out":
        torch.add(t.detach() * 1, number, out=t)
    elif kind == "index_fill_" and t.dim() and t.shape[0]:
        t.index_fill_(0, torch.tensor([0]), number)
    elif kind == "copied_" and t.dim() == 2:
        t.copy_((t.detach() * 2).t().contiguous().t())
    elif kind == "turn_" and t.dim() >= 2:
        t.transpose_(0, 1)
    elif kind == "set_item" and t.dim():
        t[t.shape[0] - 1] = number
    elif kind == "index_put_" and t.dim():
        t.index_put_((torch.tensor([0, 0]),), (other.sum() * 0 + number).to(t.dtype), accumulate=True)


VIEWS = (
    "flatten",
    "split_dim",
    "unsqueeze",
    "select",
    "slice",
    "narrow",
    "squeeze",
    "chunk",
    "unbind",
    "split",
    "flip_dims",
    "transpose",
    "diagonal",
    "expand",
    "unfold",
    "bits",
    "real",
    "strided",
)
WRITES = ("add_", "mul_", "copy_", "fill_", "zero_", "clamp_", "masked_fill_", "sub_", "set_item", "index_put_", "out", "index_fill_", "turn_", "copied_")
SIZE = 120  # programs that are tried
STEPS = st.lists(
    st.tuples(st.sampled_from((*VIEWS, *WRITES, "clone", "double", "detach")), st.integers(0, 30), st.integers(0, 5), st.integers(0, 5)), max_size=10
)


def program_of(steps: list[Step], graded: bool) -> Program:
    """The tensors are the inputs and what the steps add to them; all are returned, each in memory of its own."""

    def program(*inputs: Tensor) -> tuple[Tensor, ...]:
        tensors = [x * 1 for x in inputs] if graded else list(inputs)
        for kind, which, a, b in steps:
            t = tensors[which % len(tensors)]
            if kind in VIEWS:
                made = view(t, kind, a, b)
                tensors += [] if made is None else [made]
            elif kind in WRITES and (kind != "turn_" or (not graded and which % len(tensors) >= len(inputs))):  # the shape of an input stays
                write(t, kind, tensors[a % len(tensors)], b - 2)
            elif kind != "turn_":
                tensors.append({"clone": t.clone, "double": lambda t=t: t * 2, "detach": t.detach}[kind]())
        return tuple(t + 1 for t in tensors)

    return program


def inputs_of(layout: int, graded: bool = False) -> list[Tensor]:
    """Two float inputs and one of integers: contiguous, transposed, or with gaps."""
    x = [torch.arange(24.0, dtype=torch.float64).view(4, 6), torch.arange(24.0, dtype=torch.float64).view(6, 4).t()][layout % 2] / 8 - 1
    y = [torch.ones(2, 3, 2, dtype=torch.float64), torch.arange(24.0, dtype=torch.float64).view(2, 3, 4)[:, :, 1:3]][layout // 2 % 2]
    if graded:
        return [x.requires_grad_(), y.clone().requires_grad_()]
    return [x, y, torch.arange(6).view(2, 3)]


@settings(max_examples=SIZE)
@given(STEPS, st.integers(0, 3))
def test_any_program_of_views_and_writes(steps: list[Step], layout: int) -> None:
    assert_pure(program_of(steps, graded=False), inputs_of(layout))


@settings(max_examples=SIZE // 2)
@given(STEPS, st.integers(0, 3))
def test_gradients_of_any_program_of_views_and_writes(steps: list[Step], layout: int) -> None:
    program, args = program_of(steps, graded=True), inputs_of(layout, graded=True)
    try:
        assert_pure(program, args)
    except Unsupported as refused:
        assert refused.reason in ("backward-failed", "trace-failed")
        with pytest.raises(RuntimeError):  # eager refuses as well
            torch.autograd.backward([o.sum() for o in program(*args) if o.requires_grad])


# -- one by one ---------------------------------------------------------------------------------------------------------------

WRITTEN_THROUGH: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda t: t.view(2, 12),
    "reshape_alias": lambda t: torch.ops.aten._reshape_alias.default(t, [24], [1]),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t.unsqueeze(1).squeeze(),
    "squeeze_dim": lambda t: t.unsqueeze(0).squeeze(0),
    "squeeze_dims": lambda t: t[None, :, None].squeeze((0, 2)),
    "view_dtype": lambda t: t.view(torch.int64),
    "t": lambda t: t.t(),
    "transpose": lambda t: t.transpose(0, 1),
    "permute": lambda t: t.view(2, 3, 4).permute(2, 0, 1),
    "expand": lambda t: t.expand(1, 4, 6),
    "slice": lambda t: t[1:4:2],
    "select": lambda t: t[2],
    "diagonal": lambda t: t.diagonal(1),
    "as_strided": lambda t: t[1:].as_strided((2, 3), (6, 2), 1),
    "split": lambda t: t.split(3, 1)[1],
    "split_with_sizes": lambda t: t.split([1, 5], 1)[1],
    "unbind": lambda t: t.unbind(1)[2],
    "unfold": lambda t: t.unfold(1, 2, 2),
    "unfold_with_gaps": lambda t: t.unfold(0, 1, 3).squeeze(-1),
    "view_as_real": lambda t: torch.view_as_real(torch.view_as_complex(t.view(4, 3, 2))),
    "real": lambda t: torch.view_as_complex(t.view(4, 3, 2)).real,
    "imaginary": lambda t: torch.view_as_complex(t.view(4, 3, 2)).imag[1],
    "of_a_conjugate": lambda t: torch.view_as_complex(t.view(4, 3, 2)).conj().imag,
    "view_dtype_of_other_size": lambda t: t.view(torch.float32).view(2, 24)[:, ::2].view(2, 12),
    "movedim": lambda t: t.view(2, 2, 6).movedim(0, 2),
    "tensor_split": lambda t: t.tensor_split(3, 1)[1],
    "unflatten": lambda t: t.unflatten(1, (2, 3))[..., 0],
    "as_strided_of_a_view": lambda t: t.view(torch.int64).as_strided((2, 3), (6, 2), 1),
}


@pytest.mark.parametrize("name", WRITTEN_THROUGH)
@pytest.mark.parametrize("of_input", [True, False])
def test_a_write_through(name: str, of_input: bool) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        base = x if of_input else x * 2
        other = WRITTEN_THROUGH[name](base)
        WRITTEN_THROUGH[name](base).add_(3)
        base.mul_(2)
        WRITTEN_THROUGH[name](base).mul_(3)
        return base + 1, other + 1

    assert_pure(program, [torch.arange(24.0, dtype=torch.float64).view(4, 6)])


def test_every_row_is_tested() -> None:
    seen: set[Any] = set()
    for make in WRITTEN_THROUGH.values():
        graph = joint(whole(lambda x, make=make: (make(x * 2) + 1,), 1), torch.ones(4, 6, dtype=torch.float64))
        seen |= {n.target for n in graph.graph.nodes}
    assert set(WRITE) - seen <= {torch.ops.aten._unsafe_view.default}


def test_updates_do_not_depend_on_the_order_they_are_copied_back() -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        b.copy_(a)
        a.zero_()
        return b + 1

    def swap(a: Tensor, b: Tensor) -> Tensor:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        return a + b

    assert_pure(program, [randn(3), randn(3)])
    assert_pure(swap, [randn(3), randn(3)])


def test_an_output_filled_from_an_input_has_memory_of_its_own() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = torch.empty_like(x), torch.empty_like(x)
        a.copy_(x)
        b.copy_(x)
        return a, b

    args = [randn(3)]
    graph = assert_pure(program, args)
    found = execute(graph, args)
    assert len({t.untyped_storage().data_ptr() for t in (*found.outputs, args[0])}) == 3


def test_layout_of_an_output_that_was_written_to() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        turned, padded = torch.empty_strided((2, 3, 4), (1, 8, 2), dtype=x.dtype), torch.empty_strided((2, 3, 4), (30, 8, 1), dtype=x.dtype)
        turned.copy_(x)
        padded[:] = x
        return turned, padded

    assert_pure(program, [randn(2, 3, 4)])


def test_out_variants_and_lists_of_written_tensors() -> None:
    def out(x: Tensor) -> tuple[Tensor, ...]:
        y, values, indices = torch.empty(3, 4, dtype=x.dtype), torch.empty(3, dtype=x.dtype), torch.empty(3, dtype=torch.int64)
        torch.mul(x, 2, out=y)
        torch.max(x, 1, out=(values, indices))
        torch.add(x[0], 1, out=y[1])
        return y, values, indices

    def foreach(x: Tensor, y: Tensor) -> Tensor:
        torch.ops.aten._foreach_add_.Scalar([x, y[0]], 1.5)
        torch.ops.aten._foreach_mul_.List([x, y[1]], [x * 2, y[0] * 1])
        return x.sum() + y.sum()

    assert_pure(out, [randn(3, 4)])
    assert_pure(foreach, [randn(3, 4), randn(2, 5)])


def test_in_place_results_keep_dtype_and_shape_of_what_is_written() -> None:
    def program(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        x.eq_(1)
        n.add_(torch.ones((), dtype=torch.int64))
        n[0].copy_(x[0, :2])
        x.mul_(n[1, 0])
        return x * 1, n * 1

    assert_pure(program, [randn(3, 4), torch.arange(4).view(2, 2)])


def test_random_in_place_operators_draw_as_eager_does() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        noise = torch.empty_like(x)
        noise[0].bernoulli_(0.5)
        noise[1].uniform_(-1, 1)
        noise[2].normal_(2.0, 0.5)
        x.exponential_()
        return noise * x, torch.dropout(x, 0.5, True)

    assert_pure(program, [randn(3, 40)])


def test_running_statistics_of_batch_norm() -> None:
    program, make = CORPUS["conv_train"]
    args = make(torch.float64)
    graph = pure(traced(program), args)
    assert graph.spec.mutations == (4, 5)
    twice = execute(graph, execute(graph, args).inputs)
    net = torch.nn.BatchNorm2d(4).double()
    with torch.no_grad():
        net.running_mean, net.running_var = args[4].clone(), args[5].clone()
        for _ in range(2):
            net(torch.nn.functional.conv2d(args[0], args[1], padding=1))
    torch.testing.assert_close(twice.inputs[4], net.running_mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(twice.inputs[5], net.running_var, rtol=1e-12, atol=1e-12)


def test_functional_twins_come_from_schemas() -> None:
    aten = torch.ops.aten
    assert functional_twin(aten.add_.Tensor) is aten.add.Tensor
    assert functional_twin(aten.add.out) is aten.add.Tensor
    assert functional_twin(aten.max.dim_max) is aten.max.dim
    assert functional_twin(aten.polygamma_.default) is aten.polygamma.default
    assert functional_twin(aten._native_batch_norm_legit.default) is aten._native_batch_norm_legit_functional.default
    assert functional_twin(aten.resize_.default) in (None, aten.resize.default)


def expanded(x: Tensor) -> Tensor:
    y = x * 2
    y[0].expand(3, 6).index_put_((torch.tensor([0]),), x[1])
    return y


def overlapping(x: Tensor) -> Tensor:
    y = x * 2
    y.unfold(0, 2, 1).fill_(1)
    return y + 1


def past_the_elements(x: Tensor) -> Tensor:
    x[:, ::2].as_strided((2,), (1,), 1).add_(1)
    return x[:, ::2][0] * x.as_strided((3,), (2,), 24)


def resized(x: Tensor) -> Tensor:
    return (x * 2).resize_(2, 3)


def set_to(x: Tensor) -> Tensor:
    return torch.zeros(3, dtype=x.dtype).set_(x * 2)  # pyright: ignore[reportArgumentType, reportCallIssue]


def sharing(x: Tensor) -> Tensor:
    y = x * 2
    stamp(y, y[0])
    return y + 1


def resized_by_out(x: Tensor) -> Tensor:
    y = torch.empty(3, dtype=x.dtype)
    return torch.mul(x, 2, out=y)


def product_into_itself(x: Tensor) -> Tensor:
    y = x[:, :4] * 1
    return torch.mm(y, y, out=y)


def masked_of_itself(x: Tensor) -> Tensor:
    y = x * 2
    return y.masked_scatter_(y > 0, y)


def crossed(x: Tensor) -> Tensor:
    y, z = x * 2, x * 3
    torch.ops.aten._foreach_add_.List([y, z], [z, y])
    return y + z


REFUSED = {
    expanded: "write-through-view",
    overlapping: "write-through-view",
    resized: "storage-change",
    set_to: "storage-change",
    resized_by_out: "storage-change",
    sharing: "aliased-arguments",
    product_into_itself: "aliased-arguments",
    masked_of_itself: "aliased-arguments",
    crossed: "aliased-arguments",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
@pytest.mark.filterwarnings("ignore")
def test_refuses_what_it_has_no_rule_for(program: Program) -> None:
    program(torch.ones(4, 6, dtype=torch.float64))  # eager runs it
    with pytest.raises(Unsupported) as caught:
        functionalize(joint(whole(program, 1), torch.ones(4, 6, dtype=torch.float64)))
    assert caught.value.reason == REFUSED[program]


def in_step(x: Tensor) -> Any:
    """Arguments on the same memory that are read where they are written, or stand beside what is written."""
    y = x * 2
    y.add_(y).mul_(y)
    torch.where(y > 0, y, x, out=y)
    torch.cumsum(y, 0, out=y)
    y[0].copy_(y[1])
    y[:, 0].add_(y[:, 1])
    stamp(y[:, 2], y[:, 3])
    torch.ops.aten._foreach_mul_.List([y[1], y[2]], [y[1], y[3]])
    y.index_add_(0, torch.tensor([0]), (y * 1)[2:3])
    return y + 0


def test_arguments_that_share_memory_and_may() -> None:
    assert_pure(in_step, [torch.arange(24.0, dtype=torch.float64).view(4, 6) / 8])


def test_memory_past_the_elements_of_what_was_written_is_refused() -> None:
    """An update is copied into an input's elements, not between them."""
    between = torch.arange(24.0, dtype=torch.float64).view(4, 6)[:, ::2]

    def program(x: Tensor) -> Tensor:
        x.as_strided((2,), (1,), 0).add_(1)
        return x * 2

    with pytest.raises(Unsupported, match="past the elements") as caught:
        functionalize(joint(whole(program, 1), between))
    assert caught.value.reason == "as-strided-layout"


def test_takes_a_joint_graph_only_once() -> None:
    with pytest.raises(InvalidIR):
        functionalize(functionalize(joint(whole(lambda x: (x * 2,), 1), randn(4))))


# -- memory laid out differently from the trace: a functional result need not lie as what an in-place operator wrote to ----------


def strided_read(x: Tensor) -> Any:
    base = torch.empty_strided((4, 6), (1, 4), dtype=x.dtype)
    part = base.as_strided((3,), (1,), 0)
    base.copy_(x)
    return part + 1, base + 1


def strided_write(x: Tensor) -> Any:
    base = torch.empty_strided((4, 6), (1, 4), dtype=x.dtype)
    part = base.as_strided((3,), (1,), 2)
    base.copy_(x)
    part.add_(1)
    return part * 2, base * 2


def aliased_reshape(x: Tensor) -> Any:
    base = torch.empty_strided((4, 6), (1, 4), dtype=x.dtype)
    part = torch.ops.aten._reshape_alias.default(base, [4, 2, 3], [1, 12, 4])
    base.copy_(x)
    part.add_(1)
    return part * 2, base * 2


def other_bits(x: Tensor) -> Any:
    base = torch.empty(4, 6, dtype=x.dtype)
    part = base.view(torch.float32)
    base.copy_(x.t().contiguous().t())
    part[:, 1::2].neg_()
    return part * 2, base * 2


def complex_of_turned(x: Tensor) -> Any:
    base = torch.empty(4, 6, dtype=x.dtype)
    part = torch.view_as_complex(base.view(4, 3, 2))
    base.copy_(x.t().contiguous().t())
    part.mul_(2j)
    return torch.view_as_real(part) * 2, base * 2


def strided_of_a_slice(x: Tensor) -> Any:
    part = x[1:].as_strided((2, 3), (3, 1))
    x.mul_(2)
    part.add_(1)
    return part * 1, x[2:].as_strided((2,), (1,), 0) * 1


def value_that_is_a_slice(x: Tensor) -> Any:
    base = torch.empty(3, 6, dtype=x.dtype)
    part = base.view(torch.int64)
    base.copy_(x[1:])
    return part.as_strided((4,), (1,), 2) * 1, base.as_strided((4,), (1,), 2) * 1


@pytest.mark.parametrize("program", [strided_read, strided_write, aliased_reshape, other_bits, complex_of_turned, strided_of_a_slice, value_that_is_a_slice])
def test_views_of_memory_see_it_as_it_lay_in_the_trace(program: Program) -> None:
    whole_of = torch.arange(24.0, dtype=torch.float64).view(4, 6)
    for x in (whole_of, torch.arange(24.0, dtype=torch.float64).view(6, 4).t(), torch.arange(30.0, dtype=torch.float64)[6:].view(4, 6)):
        if program is not strided_of_a_slice or (x.is_contiguous() and not x.storage_offset()):
            assert_pure(program, [x])


# -- out=, and operators of the user's -------------------------------------------------------------------------------------------


def out_without_elements(x: Tensor) -> Any:
    y, values, indices = torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=torch.int64)
    z = torch.mul(x, 2, out=y)
    z.add_(1)
    torch.max(x, 1, out=(values, indices))
    return y + 0, z[0] + values.sum(), indices * 2


def factories(x: Tensor) -> Any:
    def made(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    return (
        torch.arange(6, out=made(x.dtype, 6)) + x[0], torch.arange(1, 7, 2, out=made(torch.float32, 3)) * 1,
        torch.full((2, 3), 4.5, out=made(torch.float32, 2, 3)) * 1,
        torch.linspace(0, 1, 5, out=made(torch.float64, 5)) * 1, torch.eye(3, out=made(torch.int64, 3, 3)) * 1, torch.zeros(3, out=made(torch.int32, 3)) + 1,
        torch.ones(2, 2, out=made(torch.bool, 2, 2)) & True, torch.logspace(0, 1, 3, out=made(torch.float64, 3)) * 1,
    )  # fmt: skip


def random_factories(x: Tensor) -> Any:
    torch.rand(6, out=(a := torch.empty(6, dtype=x.dtype)))
    torch.randperm(5, out=(b := torch.empty(5, dtype=torch.int64)))
    torch.randint(0, 9, (4,), out=(c := torch.empty(4, dtype=torch.int64)))
    torch.normal(0.0, 1.0, (4,), out=(d := torch.empty(4)))
    return a + x[0], b * 1, c * 1, d * 1


@torch.library.custom_op("lab_functionalize::stamp", mutates_args=("x",))
def stamp(x: Tensor, w: Tensor) -> None:
    x.mul_(2).add_(w.sum())


@torch.library.custom_op("lab_functionalize::both", mutates_args=("x", "ys"))
def both(x: Tensor, k: float, ys: list[Tensor], w: Tensor) -> Tensor:
    x.mul_(k)
    for y in ys:
        y.add_(w)
    return x + w


@both.register_fake
def _(x: Tensor, k: float, ys: list[Tensor], w: Tensor) -> Tensor:
    return torch.empty_like(x)


def own_operators(x: Tensor) -> Any:
    y, other = x * 2, x * 3
    stamp(y[0], x[1])
    result = both(y[1:3], 3.0, [other[:2], x.t()[:3, :2].t()], torch.ones(2, 6, dtype=x.dtype)[:, :1])
    return y + 0, other + 0, result


@pytest.mark.parametrize("program", [out_without_elements, factories, random_factories, own_operators])
def test_out_and_operators_without_a_functional_form(program: Program) -> None:
    assert_pure(program, [torch.arange(24.0, dtype=torch.float64).view(4, 6) / 8])


def test_an_operator_of_the_users_is_run_on_copies() -> None:
    graph = pure(whole(lambda x: (stamp(x, x[0] * 1), x * 1)[1], 1), [randn(2, 3)])
    (twin,) = (n for n in graph.graph.nodes if "stamp" in n.name)
    assert str(twin.target._schema) == "compiler_lab::lab_functionalize_stamp(Tensor x, Tensor w) -> Tensor"
    assert [d.facts for d in graph.decisions if d.reason == "copied-arguments"] == [{"twin": "compiler_lab.lab_functionalize_stamp.default"}]


def test_before_and_after_can_be_read_side_by_side() -> None:
    def program(x: Any, buffer: Any) -> Any:
        set_grad(x, False)
        row = buffer[0]
        row.add_(x)
        set_item(buffer, (slice(None), 1), 0.5)
        return call(x, torch.relu, row)

    before = joint(traced(program), randn(3), randn(2, 3))
    after = functionalize(before)
    assert [str(n.target) for n in before.graph.nodes if "_." in str(n.target)] == ["aten.add_.Tensor", "aten.fill_.Tensor"]
    assert [str(n.target).removeprefix("aten.") for n in after.graph.nodes if n.op == "call_function"] == [
        "select.int", "add.Tensor", "select_scatter.default", "full.default", "select.int", "expand.default", "select_scatter.default",
        "select.int", "relu.default",
    ]  # fmt: skip
    assert [d.reason for d in after.decisions] == ["scattered", "in-place", "scattered", "in-place", "replayed"]


def test_side_by_side_is_two_aligned_columns() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y[0].add_(1)
        return y.sum()

    before = joint(traced(program), torch.ones(2, 3))
    after = functionalize(before)
    beside = compiler_lab.side_by_side(before, after)
    assert [(r.mark, r.left.partition(":")[0], r.right.partition(":")[0], r.why) for r in beside.rows] == [
        (" ", "primals_1", "primals_1", ()),
        (" ", "mul", "mul", ()),
        (" ", "select", "select", ()),
        ("~", "add_", "add", ("scattered", "in-place")),
        ("+", "", "select_scatter", ()),
        ("~", "sum_1", "sum_1", ()),
        (" ", "return (sum_1, None)", "return (sum_1, None)", ()),
    ]
    lines = beside.text(40).splitlines()
    assert {line.index("|") for line in lines if "|" in line} == {lines[0].index("|")} and all(
        node.name in repr(beside) for node in after.graph.nodes if node.op != "output"
    )
    assert "<table>" in beside._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("name", CORPUS)
def test_every_node_stands_in_one_row(name: str) -> None:
    program, make = CORPUS[name]
    before = joint(traced(program), *make(torch.float32))
    after = functionalize(before)
    rows = compiler_lab.side_by_side(before, after).rows
    assert [r.left for r in rows if r.left] == graph_text(before.graph).splitlines()
    assert [r.right for r in rows if r.right] == graph_text(after.graph).splitlines()
