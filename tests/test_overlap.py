"""Inputs that share memory, of which one is written: to the caller all is as in eager, and how they share it is guarded."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import compiler_lab
from compiler_lab.aot.bases import Group, groups_of
from compiler_lab.aot.functionalize import functionalize
from compiler_lab.aot.joint import joint
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.fakes import fake_mode

from .aot_programs import randn, traced
from .overlap_programs import MAKERS, differences, function_of, program_text, seen

STALE = "a leaf Variable"  # eager takes a view for a leaf until somebody asks for its grad_fn, where its base was given a history: capture asks


def check(seed: int, backend: str, history: str) -> list[str]:
    """One program, called with two ways to share memory, and with the first again; what was left to Python at the first call."""
    r = random.Random(seed)
    count = r.choice((2, 2, 3))
    text = program_text(r, count)
    ways = [[r.choice(list(MAKERS)) for _ in range(count)] for _ in range(2)]
    compiled = compiler_lab.compile(function_of(text), backend=backend, dynamic=False)
    breaks: list[str] = []
    for n, makers in enumerate((*ways, ways[0])):
        expected = seen(function_of(text), makers, history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = seen(compiled, makers, history)
        if STALE not in str(expected.get("raises")):
            assert differences(expected, found) == [], f"{text}{makers} {history}"
        if n == 0 and "raises" not in expected:
            breaks = [b.reason for b in compiled._compiled_function.breaks] or ["none"]
    return breaks


@pytest.mark.parametrize("history", ["none", "w", "all"])
def test_random_programs_are_what_eager_is(history: str) -> None:
    counts = Counter(reason for seed in range(20) for reason in check(seed, "aot_eager", history))
    assert counts["none"] > 0.7 * counts.total(), counts


@pytest.mark.parametrize("history", ["none", "all"])
def test_random_programs_as_kernels(history: str) -> None:
    counts = Counter(reason for seed in range(1000, 1002) for reason in check(seed, "lab", history))
    assert counts["none"] >= 1, counts


# what is shared


def strides() -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(st.integers(0, 8), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4))


@given(st.lists(strides(), min_size=2, max_size=4))
@settings(deadline=None, max_examples=60)
def test_groups_are_what_has_elements_in_common(places: list[tuple[int, ...]]) -> None:
    """Of real tensors by address, of fake ones by storage: as sets of positions say."""
    memory = torch.zeros(40)
    tensors = [memory.as_strided((n, m), (s, t), at) for at, n, m, s, t in places]
    elements = [{at + i * s + j * t for i in range(n) for j in range(m)} for at, n, m, s, t in places]
    parts = [{i} for i in range(len(tensors))]
    for i in range(len(tensors)):
        for j in range(i):
            if elements[i] & elements[j]:
                joined = [p for p in parts if i in p or j in p]
                parts = [*(p for p in parts if p not in joined), set().union(*joined)]
    expected = sorted(tuple(sorted(p)) for p in parts if len(p) > 1)
    mode = fake_mode()
    for made in (tensors, [mode.from_tensor(t, static_shapes=True) for t in tensors]):
        found = groups_of(made)
        assert [g.members for g in found] == expected
        assert all(g.offsets == tuple(min(elements[i]) - min(min(elements[k]) for k in g.members) for i in g.members) for g in found)


def added(a: Any, b: Any) -> Any:
    a.add_(1)
    return b * 2


def halves(a: Any, b: Any) -> Any:
    b.mul_(3)
    a[1:].sub_(b[:1].sum())
    return a * b


def rewritten(a: Any, b: Any, w: Any) -> Any:
    y = b * b
    a.mul_(w)
    return y, b * w


WAYS: dict[str, tuple[Callable[[Tensor], tuple[Tensor, Tensor]], list[str]]] = {
    "one tensor twice": (lambda m: (m, m), ["one-of-them"]),
    "two views of all": (lambda m: (m.view(12), m.view(12)), ["one-of-them"]),
    "all and a part": (lambda m: (m[:4], m.view(3, 4)[0]), ["one-of-them"]),
    "a part and all": (lambda m: (m[2:6], m[:8].view(2, 4)), ["one-of-them"]),
    "halves that meet": (lambda m: (m[:4], m[2:6]), ["made-up"]),
    "halves that do not": (lambda m: (m[:4], m[4:8]), []),
    "columns that meet": (lambda m: (m.view(3, 4)[:, :2], m.view(3, 4)[:, 1:3]), ["made-up"]),
    "columns that do not": (lambda m: (m.view(3, 4)[:, 0], m.view(3, 4)[:, 1]), []),
    "turned": (lambda m: (m[:9].view(3, 3), m[:9].view(3, 3).t()), ["one-of-them"]),
    "expanded": (lambda m: (m[:2], m[1:2].expand(2)), ["one-of-them"]),
}


@pytest.mark.parametrize(("program", "way"), [(p, w) for p in (added, halves, rewritten) for w in WAYS if (p, w) != (halves, "expanded")])  # which raises
def test_a_base_is_made_where_elements_are_shared(program: Callable[..., Any], way: str) -> None:
    """The graph takes the inputs as they are and makes the base; joint, pure and cut it gives the program's values, and writes what the program writes."""
    make, bases = WAYS[way]
    memory = torch.linspace(-1, 2, 12, dtype=torch.float64)
    w = [torch.tensor(1.5, dtype=torch.float64)] if program is rewritten else []
    graph = joint(traced(program), *make(memory), *w)
    assert [d.reason for d in graph.decisions if d.kind == "base"] == bases
    expected = memory.clone()
    results = program(*make(expected), *w)
    for stage in (graph, functionalize(graph)):
        stage.check()
        found = memory.clone()
        inputs = [*make(found), *w]
        returned = stage.run(*inputs)
        for i, update in zip(graph.spec.mutations, returned, strict=False):
            inputs[i].copy_(update)
        torch.testing.assert_close(found, expected)
        outputs = returned[len(graph.spec.mutations) : graph.spec.forward_outputs]
        torch.testing.assert_close(tuple(outputs), results if isinstance(results, tuple) else (results,))


def test_written_back_is_only_what_the_program_writes() -> None:
    """The others see it through their memory; they are in the way of nobody who reads them later all the same."""
    memory = randn(6)
    spec = joint(traced(added), memory[:4], memory[2:]).spec
    assert (spec.mutations, spec.shared, spec.overwritten) == ((0,), (1,), (0, 1))
    assert "input 1 shares memory with one that is written" in spec.text()
    apart = joint(traced(added), memory[:3], memory[3:]).spec
    assert (apart.mutations, apart.shared) == ((0,), (1,))  # one version counter
    assert joint(traced(added), memory[:3], randn(3)).spec.shared == ()


def leaf_and_view() -> list[Tensor]:
    leaf = randn(4, grad=True)
    return [leaf.detach(), leaf]


def under_no_grad(a: Any, b: Any) -> Any:
    y = b * 2
    a.add_(1)
    return y


def through_as_strided(a: Any, b: Any) -> Any:
    a.add_(1)
    return b.as_strided((2,), (1,), 0) * 2


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]], str]] = {
    "two dtypes": (added, lambda: (lambda m: [m, m.view(torch.int64)])(randn(4)), "several dtypes"),
    "a leaf and its values": (under_no_grad, leaf_and_view, "not all views of one tensor"),
    "windows": (added, lambda: (lambda m: [m, m.unfold(0, 2, 1)])(randn(4)), "several elements in one place"),
    "as_strided": (through_as_strided, lambda: (lambda m: [m[:3], m[2:]])(randn(6)), ""),
    "history that only one has": (
        lambda a, b, w: (a.mul_(w), b * 2),
        lambda: (lambda m: [m[:3], m.detach()[2:], randn(1, grad=True)])(randn(6)),
        "does not know",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_autograd_or_the_base_cannot_hold_is_refused(case: str) -> None:
    program, make, why = REFUSED[case]
    with pytest.raises(Unsupported) as caught:
        joint(traced(program), *make())
    assert caught.value.reason == "aliased-mutation" and why in caught.value.why
    results: list[Any] = []
    for run in (program, compiler_lab.compile(program, backend="aot_eager")):
        torch.manual_seed(0)
        arguments = make()
        out = run(*arguments)
        results.append([t.detach().clone() for t in (*(out if isinstance(out, tuple) else (out,)), *arguments)])
    torch.testing.assert_close(results[1], results[0])


# at the call


def test_another_way_to_share_is_another_compile() -> None:
    compiled = compiler_lab.compile(lambda a, b: (a.add_(1), b * 2)[1], backend="aot_eager")
    for n, (first, second) in enumerate([(slice(0, 4), slice(2, 6)), (slice(5, 9), slice(7, 11)), (slice(0, 4), slice(3, 7)), (slice(0, 4), slice(6, 10))]):
        memory, expected = torch.arange(12.0), torch.arange(12.0)
        expected[first] += 1
        assert torch.equal(compiled(memory[first], memory[second]), expected[second] * 2) and torch.equal(memory, expected)
        assert len(compiled.recompiles) == max(n - 1, 0)
    assert [f.kind for f in compiled.recompiles[0].failures] == ["shared"]
    assert "begin at bytes 0 and 8 of memory that they share" in compiled.recompiles[0].text() and not compiled._compiled_function.breaks


def test_arrays_on_one_memory() -> None:
    """Two storages, which are one piece of memory all the same."""
    compiled = compiler_lab.compile(lambda a, b: (a.add_(1), b * 2)[1], backend="aot_eager")
    array = np.arange(6, dtype=np.float32)
    out = compiled(torch.from_numpy(array), torch.from_numpy(array[2:]))
    assert not compiled._compiled_function.breaks
    assert out.tolist() == [6, 8, 10, 12] and array.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_vary(dynamic: bool | None) -> None:
    compiled = compiler_lab.compile(lambda a, b: (a.add_(1), b * 2)[1], backend="aot_eager", dynamic=dynamic)
    for n in (8, 9, 10, 8):
        memory, expected = torch.arange(float(n)), torch.arange(float(n))
        expected[: n - 2] += 1
        assert torch.equal(compiled(memory[:-2], memory[2:]), expected[2:] * 2) and torch.equal(memory, expected)


def test_what_is_kept_for_the_backward_is_what_was_read() -> None:
    """The memory of ``b`` has other values by then."""

    def program(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        y = (b.clone() * w).sum() + (b * 2).sin().sum() * w
        with torch.no_grad():
            a.add_(1)
        return y

    found: list[Any] = []
    for run in (program, compiler_lab.compile(program, backend="aot_eager")):
        memory, w = torch.linspace(0, 1, 6), torch.tensor(2.0, requires_grad=True)
        run(memory[:4], memory[2:], w).backward()
        found.append((w.grad, memory))
    torch.testing.assert_close(found[1], found[0])


def test_an_input_that_repeats_its_elements_is_not_written_back() -> None:
    """Nobody could copy into it; what was copied into another before would be written twice."""

    def program(a: Tensor, x: Tensor) -> Tensor:
        a.add_(1)
        x[0].add_(1)
        return a + x.sum()

    compiled = compiler_lab.compile(program, backend="aot_eager")
    a, x = torch.zeros(2), torch.zeros(4).expand(3, 4)
    assert compiled(a, x).tolist() == [13, 13] and a.tolist() == [1, 1] and x[0].tolist() == [1, 1, 1, 1]


def test_memory_reached_through_data_is_not_changed_by_another_name() -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        y = a.data
        b.add_(1)
        return y * 2

    compiled = compiler_lab.compile(program, backend="aot_eager")
    memory = torch.zeros(4)
    assert compiled(memory, memory[1:]).tolist() == [0, 2, 2, 2]
    assert [b.reason for b in compiled._compiled_function.breaks] == ["autograd-api"]


def strided_writes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.as_strided_scatter(x.sin(), y, (2, 2), (5, 2), 1) * 2, torch.as_strided_scatter(x.cos(), y, (2, 2), (4, 1), 1) + 1


def test_what_counts_from_the_beginning_of_memory_is_no_part_of_an_arena() -> None:
    x, y = torch.randn(4, 4), torch.randn(2, 2)
    torch.testing.assert_close(compiler_lab.compile(strided_writes, backend="lab")(x, y), strided_writes(x, y))


def test_a_group_says_where_its_members_lie() -> None:
    memory = torch.zeros(3, 4)
    assert groups_of([memory[:, 1], memory[1], torch.zeros(2)]) == (Group((0, 1), (0, 3), 9, kin=True),)
