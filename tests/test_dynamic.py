"""Sizes that vary: what becomes symbolic, what is guarded, and that results are Python's at every size."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import compiler_lab
from compiler_lab.core.errors import ConstraintViolated

from . import size_programs
from .conftest import same


class Count:
    """A backend that runs the captured graph and counts."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, args: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


def graphs(fn: Callable[..., Any], calls: Sequence[tuple[Any, ...]], **options: Any) -> int:
    """Compiles ``fn``, holds each call equal to Python, and gives the number of graphs."""
    count = Count()
    compiled = compiler_lab.compile(fn, backend=count, fullgraph=True, **options)
    for args in calls:
        same(compiled(*args), fn(*args))
    return len(count.graphs)


def rows(*sizes: int) -> list[tuple[Tensor]]:
    return [(torch.randn(n, 4),) for n in sizes]


# programs over an (n, 4) tensor, all of which should be one graph for any n of two or more


def shape(x: Tensor) -> Any:
    return x.shape, x.size(), x.size(0), x.size(-1), x.shape[0], x.numel(), len(x), x.stride(), x.stride(0), x.dim(), x.nbytes


def arithmetic(x: Tensor) -> Any:
    n = x.shape[0]
    return n + 1, 2 * n, n - 3, -n, n // 2, n % 3, n**2, n / 2, n * 0.5, 1 / n, float(n), divmod(n, 4), abs(n), +n, n * 0.1 * 10


def rounding(x: Tensor) -> Any:
    n = x.shape[0]
    return int(n / 2), math.floor(n / 2), math.ceil(n / 2), math.trunc(n * 0.5), math.sqrt(n), n**0.5, n**-0.5, int(n), max(n, 3), min(n, 5, n + 1)


def views(x: Tensor) -> Any:
    n = x.shape[0]
    return x.view(-1), x.reshape(n * 2, 2), x.t(), x.unsqueeze(0).expand(3, n, 4), x.view(x.shape), x.flatten(), x.view(n, 2, -1).transpose(1, 2)


def slices(x: Tensor) -> Any:
    n = x.shape[0]
    return x[: n // 2], x[n // 2 :], x[n - 1], x[:, 1], x[-1], x[None], x[..., :2], x.narrow(0, 1, n - 1), x[1:]


def arithmetic_on_tensors(x: Tensor) -> Any:
    n = x.shape[0]
    return x * n, x / math.sqrt(n), x + n / 2, x.sum() / x.numel(), (x @ x.t()) * n**-0.5, x.mean(0) - n


def factories(x: Tensor) -> Any:
    n = x.shape[0]
    return torch.zeros(n, 2), x.new_ones(n + 1), torch.arange(n), torch.full((n,), 2.0), torch.empty_like(x).fill_(1), torch.zeros(x.shape), torch.ones_like(x)


def joins(x: Tensor) -> Any:
    return torch.cat([x, x]), torch.stack([x, x + 1], 1), torch.cat([x, x[1:]]), x.repeat(2, 1), torch.nn.functional.pad(x, (1, 1))


def products(x: Tensor) -> Any:
    return x @ x.t(), torch.einsum("nd,md->nm", x, x), torch.bmm(x[None], x.t()[None]), x.softmax(0), torch.nn.functional.layer_norm(x, x.shape[1:])


def containers(x: Tensor) -> Any:
    n = x.shape[0]
    return {"n": n, "twice": [n, n]}, (n, (n, x.shape)), [d + 1 for d in x.shape], math.prod(x.shape), sum(x.shape), x.shape.numel(), tuple(x.shape[1:])


def comparison(x: Tensor) -> Any:
    n: Any = x.shape[0]
    return n == 1, n != 1, n >= 2, isinstance(n, int), type(n) is int, n is None, n == "n"


ONE_GRAPH = [shape, arithmetic, rounding, views, slices, arithmetic_on_tensors, factories, joins, products, containers, comparison]


@pytest.mark.parametrize("fn", ONE_GRAPH, ids=lambda f: f.__name__)
def test_one_graph_serves_all_sizes(fn: Callable[..., Any]) -> None:
    def program(x: Tensor) -> Any:
        return x + 1, fn(x)  # a graph of numbers alone goes to no backend

    assert graphs(program, rows(7, 5, 2, 9, 12, 100, 3), dynamic=True) == 1
    assert graphs(program, rows(7, 5, 2, 9, 12, 100, 3)) == 2


def branch(x: Tensor) -> Any:
    return x * 2 if x.shape[0] > 6 else x + 1


def branch_on_both(x: Tensor) -> Any:
    return x.t() if x.shape[0] == x.shape[1] else x


def unrolled(x: Tensor) -> Any:
    return [x[i] * i for i in range(x.shape[0])]


def text(x: Tensor) -> Any:
    return f"{x.shape[0]} rows", str(x.shape[0]), {x.shape[0]: x}, [0] * x.shape[0], x.shape[0] is x.shape[0]


def bits(x: Tensor) -> Any:
    n = x.shape[0]
    return n & 1, n << 2, ~n, n | 8, 7 % n, 2**n, -7 // n, n > 3.5, round(n / 2), n.bit_length(), math.log(n), n == 2.0, bool(n), not n


@pytest.mark.parametrize(("fn", "most"), [(branch, 3), (branch_on_both, 3), (unrolled, 5), (text, 5), (bits, 5)], ids=lambda v: getattr(v, "__name__", v))
def test_what_is_decided_is_guarded(fn: Callable[..., Any], most: int) -> None:
    for dynamic in (None, True, False):
        assert graphs(fn, rows(7, 5, 4, 9, 5, 4, 9, 7, 3), dynamic=dynamic) <= (most if dynamic is not False else 5)


def test_counts_of_the_real_stack() -> None:
    """As torch.compile: two sizes in turn compile twice, ten sizes twice, 0 and 1 once more each."""
    turn = rows(5, 7, 5, 7, 5, 7)
    assert graphs(arithmetic_on_tensors, turn) == graphs(arithmetic_on_tensors, turn, dynamic=False) == 2
    assert graphs(lambda x: x.relu() + 1, rows(*range(2, 12))) == 2
    assert graphs(lambda x: x.relu() + 1, rows(4, 5, 1, 0, 6, 1, 0, 7)) == 4
    assert graphs(lambda x: x.relu() + 1, rows(1, 4, 0, 6, 1, 0, 7), dynamic=True) == 3
    assert graphs(lambda x: x.relu() + 1, rows(3, 4, 5, 6), dynamic=False) == 4


def test_ints_of_arguments_modules_and_globals() -> None:
    x = torch.randn(3)
    assert graphs(lambda x, n: (x * n, n + 1), [(x, n) for n in (5, 6, 7, 100, -3, 2**40)]) == 2
    assert graphs(lambda x, n: (x * n, n + 1), [(x, n) for n in (5, 6, 0, 1, 7)], dynamic=True) == 1
    assert graphs(lambda x, n: x[: n["k"][0]], [(x, {"k": [n]}) for n in (2, 3)], dynamic=True) == 1
    assert graphs(lambda x, flag: x + 1 if flag else x - 1, [(x, True), (x, False), (x, True)], dynamic=True) == 2

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.at = 2

        def forward(self, x: Tensor) -> Tensor:
            return x * self.at

    count, module = Count(), Step()
    compiled = compiler_lab.compile(module, backend=count)
    for at in (2, 3, 4, 5):
        module.at = at
        same(compiled(x), x * at)
    assert len(count.graphs) == 2


class Sub(int):
    pass


class Holder:
    def __init__(self, n: int) -> None:
        self.n = n


PLACES: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "argument": (lambda x, n: (x * n, n, n + 1), lambda n: n),
    "element": (lambda x, n: (x * n[0], n[0]), lambda n: [n]),
    "entry": (lambda x, n: (x * n["n"], -n["n"]), lambda n: {"n": n}),
    "attribute": (lambda x, n: (x * n.n, n.n), Holder),
    "branch": (lambda x, n: (x * 2, n) if n > 0 else x, lambda n: n),
    "passed on": (lambda x, n: (x * 1, {"n": n}, not n), lambda n: n),
    "filled": (lambda x, n: (torch.full((2,), n), torch.arange(n)), lambda n: n),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_bool_is_no_int_that_varies(place: str, dynamic: bool | None) -> None:
    """``True`` computes as 1 and prints as True: it is never the symbol that an int is."""
    fn, made = PLACES[place]
    x, count = torch.randn(3), Count()
    compiled = compiler_lab.compile(fn, backend=count, dynamic=dynamic)
    for n in (5, 6, 7, True, 1, False, 0, True, 9, *map(Sub, (5, 9))):
        same(compiled(x, made(n)), fn(x, made(n)))
    assert any(isinstance(node.meta["val"], torch.SymInt) for gm in count.graphs for node in gm.graph.nodes if node.op == "placeholder"), "nothing varies"


def test_marks() -> None:
    def fn(x: Tensor) -> Any:
        return x * 2

    for mark, expected in ((compiler_lab.mark_dynamic, 1), (compiler_lab.mark_static, 3)):
        count = Count()
        compiled = compiler_lab.compile(fn, backend=count)
        for n in (4, 5, 6):
            x = torch.randn(n, 3)
            mark(x, 0)
            same(compiled(x), fn(x))
        assert len(count.graphs) == expected

    def only_four(x: Tensor) -> Any:
        y = x + 1
        return y * len(range(x.shape[0]))

    x = torch.randn(4, 3)
    compiler_lab.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolated, match=r"L\['x'\].size\(0\)") as caught:
        compiler_lab.compile(only_four, backend="eager")(x)
    assert caught.value.where is not None and "len(range" in caught.value.where.source
    x = torch.randn(1, 3)
    compiler_lab.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolated, match="size 1"):
        compiler_lab.compile(fn, backend="eager")(x)
    x = torch.randn(4, 3)
    x._dynamo_weak_dynamic_indices = {0}  # type: ignore[attr-defined]  # torch._dynamo.maybe_mark_dynamic
    same(compiler_lab.compile(only_four, backend="eager")(x), only_four(x))


def test_an_open_dimension_has_no_guard_but_zero_and_one() -> None:
    compiled = compiler_lab.compile(lambda x, y: (x + 1, y.shape[1] > 3), backend="eager", dynamic=True)
    compiled(torch.randn(5, 6), torch.randn(7, 8))
    text = compiled._compiled_function.entries[0].tree.text()
    sizes = {line.split("shape: ")[1] for line in text.splitlines() if "shape: " in line}
    assert sizes == {
        "L['x'].size(0) >= 2", "L['x'].size(1) >= 2", "L['y'].size(0) >= 2", "L['y'].size(1) >= 2",
        "L['x'].stride(0) == L['x'].size(1)", "L['y'].stride(0) == L['y'].size(1)",
    }  # fmt: skip


def test_the_explanation_names_the_line() -> None:
    compiled = compiler_lab.compile(branch, backend="eager", dynamic=True)
    compiled(torch.randn(8, 4))
    (entry,) = compiled._compiled_function.entries
    failure = entry.tree.explain({"x": torch.randn(3, 4)})
    assert failure is not None and not entry.tree.check({"x": torch.randn(3, 4)})
    assert failure.expected == "L['x'].size(0) > 6" and failure.got == "L['x'].size(0) = 3" and "x * 2 if" in failure.text()
    assert entry.tree.check({"x": torch.randn(30, 4)}) and entry.tree.explain({"x": torch.randn(30, 4)}) is None
    assert entry.tree.explain({"x": torch.randn(1, 4)}) is not None and not entry.tree.check({"x": torch.randn(1, 4)})


def test_lab_compiles_symbols_once() -> None:
    def fn(x: Tensor, w: Tensor, k: int) -> Any:
        y = (x @ w).softmax(-1)
        return y * x.shape[0] + k, x.shape[0], k * 2, y.sum() / x.numel()

    w, steps = torch.randn(4, 4, requires_grad=True, dtype=torch.float64), list[Any]()
    compiled = compiler_lab.compile(fn, backend="lab", fullgraph=True, observe=steps.append)
    for n, k in [(3, 2), (5, 3), (6, 9), (5, 4), (3, 2), (6, 9), (70, 50), (33, 2)]:
        x = torch.randn(n, 4, requires_grad=True, dtype=torch.float64)
        got, want = compiled(x, w, k), fn(x, w, k)
        same(got[1:3], want[1:3])
        torch.testing.assert_close((got[0], got[3]), (want[0], want[3]))
        gradients = torch.autograd.grad(got[0].square().sum() + got[3], (x, w))
        torch.testing.assert_close(gradients, torch.autograd.grad(want[0].square().sum() + want[3], (x, w)), rtol=1e-4, atol=1e-4)
    assert len(compiled._compiled_function.entries) == 2
    assert [s.part for s in steps if s.name == "build"] == ["forward", "backward"] * 2


def test_what_a_stage_does_not_model_is_compiled_by_size() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * math.floor(x.shape[0] * 0.3) + 1

    steps: list[Any] = []
    compiled = compiler_lab.compile(fn, backend="lab", dynamic=True, observe=steps.append, options={"recompile_limit": 2})
    with pytest.warns(UserWarning, match="the limit"):
        for n in (10, 14, 15, 22):
            x = torch.randn(n, 4)
            same(compiled(x), fn(x))
    assert len(compiled._compiled_function.entries) == 1 and sum(s.name == "build" for s in steps) == 2


def test_conditions_of_the_sizes_at_hand_are_checked_in_the_call() -> None:
    """One capture; the backward is made again where its condition does not hold, as often as the limit says."""

    def fn(x: Tensor) -> Tensor:
        return x[:, :16].sum(1) + x.mean(1)

    steps: list[Any] = []
    compiled = compiler_lab.compile(fn, backend="lab", dynamic=True, observe=steps.append)
    for n, m in [(8, 20), (5, 40), (6, 16), (3, 17), (2, 16), (4, 90)]:
        x = torch.randn(n, m, requires_grad=True)
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
    assert [s.part for s in steps if s.name == "build"] == ["forward", "backward", "backward"]
    again = [d for s in steps if s.name == "lower" for d in s.after.decisions if d.reason == "other sizes"]
    assert [d.outcome for d in again] == ["s0 = 6, s1 = 16"]


def test_strides_and_kinds_of_inputs() -> None:
    def fn(x: Tensor) -> Any:
        return x * 2, x.stride(), x.sum(0)

    base = torch.randn(40, 40)
    assert graphs(fn, [(base[:n, : n + 1].t(),) for n in (5, 6, 7, 9)]) == 2
    assert graphs(fn, [(torch.randn(n, n + 2),) for n in (5, 6, 7, 9)]) == 2
    assert graphs(fn, [(torch.randn(n, 3).t(),) for n in (5, 6, 7, 9)]) == 2
    wide = [torch.randn(10, n)[:, :3] for n in (5, 6, 7, 9)]  # only a stride varies
    assert graphs(fn, [(x,) for x in wide]) == 2
    leaf = torch.randn(9, 3, requires_grad=True)

    def add(x: Tensor) -> Any:
        return x.mul(2).add_(1), x.is_leaf

    assert graphs(add, [((leaf * 2)[:n].clone(),) for n in (4, 5, 6)]) == 2

    def change(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x * x.shape[0] + y

    compiled = compiler_lab.compile(change, backend="eager")
    for n in (4, 5, 6):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        other = x.clone()
        same(compiled(x, y), change(other, y))
        same(x, other)
    pool = torch.randn(20, 3)
    for rows_of_x, rows_of_y in [(slice(0, 5), slice(5, 10)), (slice(0, 5), slice(4, 9)), (slice(0, 7), slice(3, 10))]:
        one, two = pool.clone(), pool.clone()
        same(compiled(one[rows_of_x], one[rows_of_y]), change(two[rows_of_x], two[rows_of_y]))
        same(one, two)


def test_what_a_tensor_guard_leaves_out_is_guarded_or_left_to_python() -> None:
    def leaf(x: Tensor) -> Any:
        return x + 1, x.is_leaf

    def offset(x: Tensor) -> Any:
        return x + 1, x.storage_offset()

    a, base = torch.randn(3, requires_grad=True), torch.randn(9)
    for fn, inputs in ((leaf, [a, a * 2, a]), (offset, [base[:3], base[3:6], base[1:4]])):
        compiled = compiler_lab.compile(fn, backend="eager")
        for x in inputs:
            same(compiled(x), fn(x))


def test_reset_forgets_what_was_seen() -> None:
    count = Count()
    compiled = compiler_lab.compile(lambda x: x + 1, backend=count)
    compiled(torch.randn(3))
    compiled(torch.randn(4))
    compiler_lab.reset()
    compiled(torch.randn(5))
    assert [n.meta["val"].shape[0] for gm in count.graphs for n in gm.graph.nodes if n.op == "placeholder"][::2] == [3, 5]


# numbers that come from data


def narrowed(x: Tensor, i: Tensor) -> Any:
    n: Any = i.item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x.narrow(0, 0, n) * 2, n + 1, torch.zeros(n)


def found(x: Tensor, i: Tensor) -> Any:
    at = (x + i).nonzero()
    return at, at.shape[0], x[x > 0] * 2


def scaled(x: Tensor, i: Tensor) -> Any:
    return x * int(i) + float(x[0, 0]), x * i.item()


@pytest.mark.parametrize("backend", ["eager", "lab"])
@pytest.mark.parametrize("fn", [narrowed, found, scaled], ids=lambda f: f.__name__)
def test_numbers_from_data(fn: Callable[..., Any], backend: str) -> None:
    options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    compiled = compiler_lab.compile(fn, backend=backend, fullgraph=True, options=options)
    for n, k in [(5, 2), (5, 3), (6, 4), (7, 0)]:
        x, i = torch.randn(n, 3), torch.tensor(k)
        same(compiled(x, i), fn(x, i))
    assert len(compiled._compiled_function.entries) == 2
    plain = compiler_lab.compile(fn, backend=backend)
    same(plain(x, i), fn(x, i))
    assert {b.reason for b in plain._compiled_function.breaks} <= {"tensor-to-python", "dynamic-shape", "unknown-callable"}


def test_what_data_decides_is_a_break_and_what_is_checked_raises() -> None:
    def decides(x: Tensor, i: Tensor) -> Tensor:
        return x + 1 if i.item() > 2 else x - 1

    options = {"capture_scalar_outputs": True}
    compiled = compiler_lab.compile(decides, backend="eager", options=options)
    for k in (1, 3, 2, 9):
        x = torch.randn(2)
        same(compiled(x, torch.tensor(k)), decides(x, torch.tensor(k)))
    assert {b.reason for b in compiled._compiled_function.breaks} == {"data-dependent-branch"}
    checked = compiler_lab.compile(narrowed, backend="eager", fullgraph=True, options=options)
    checked(torch.randn(5, 3), torch.tensor(2))
    for function in (checked, narrowed):
        with pytest.raises(RuntimeError, match="Expected cond to be True"):
            function(torch.randn(5, 3), torch.tensor(9))


# random programs


class Draws:
    """``hypothesis`` as a source of choices, so that a failing program shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def choice(self, options: list[Any], /) -> Any:
        return self.data.draw(st.sampled_from(options))


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        return fn(*[a.clone() if isinstance(a, Tensor) else a for a in args])
    except Exception as error:  # noqa: BLE001 - what a program raises is a result
        return type(error)


SIZES = st.lists(st.tuples(st.sampled_from([2, 3, 4, 5, 6, 9, 1, 0]), st.sampled_from([4, 4, 5, 3, 1]), st.integers(0, 9)), min_size=3, max_size=5)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), SIZES, st.sampled_from([None, True]))
def test_programs_over_shapes(data: st.DataObject, sizes: list[tuple[int, int, int]], dynamic: bool | None) -> None:
    """Equal to Python at each size; and an entry that accepts a call computes what a capture for that call alone computes."""
    text = size_programs.program(Draws(data), data.draw(st.integers(1, 4)))
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(text, space)
    fn = space["program"]
    compiled = compiler_lab.compile(fn, backend="eager", dynamic=dynamic)
    for n, m, k in sizes:
        args = (torch.randn(n, m), torch.randn(m, 3), k)
        want = outcome(fn, args)
        same(outcome(compiled, args), want)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = compiler_lab.compile(fn, backend="eager", dynamic=False)
            same(outcome(alone, args), want)
        locals = dict(zip("xwk", args, strict=True))
        for entry in compiled._compiled_function.entries:
            assert entry.tree.check(locals) == (entry.tree.explain(locals) is None), text
            if entry.tree.check(locals):
                same(outcome(entry.function(fn), args), want)
