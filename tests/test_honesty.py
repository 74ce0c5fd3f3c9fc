"""Schema honesty: what an operator does to memory beside what it declares is found, and never runs in compiled code that relies on its word."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import compiler_lab
from compiler_lab.core.errors import GraphBroken, Mismatch, UnknownOption
from compiler_lab.core.honesty import NOTES, REASONS, SchemaReport, check_schema

LIBRARY = torch.library.Library("lab_honesty", "FRAGMENT")
RUNS: list[str] = []  # the name of each operator that ran on real tensors, in order


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any] | None = None, tags: tuple[Any, ...] = ()) -> Any:
    name = schema.partition("(")[0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        RUNS.append(name)
        return run(*args, **kwargs)

    LIBRARY.define(schema, tags=tags)
    LIBRARY.impl(name, counted, "CPU")
    if fake is not None:
        torch.library.register_fake(f"lab_honesty::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.lab_honesty, name)


def like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def placed(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def writes(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def writes_among(xs: list[Tensor], k: float = 2.0) -> Tensor:
    xs[1].mul_(k)
    return xs[0] * 1


def writes_beside(x: Tensor) -> Tensor:
    x.as_strided((1,), (1,), 1).fill_(9.0)
    return x * 1


def turns(x: Tensor) -> Tensor:
    x.t_()
    return x.t() * 1


def two_of_one(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[0]


def writes_out(x: Tensor, y: Tensor) -> None:
    y.copy_(x * 2)


lie = define("lie(Tensor x) -> Tensor", writes, like)
honest = define("honest(Tensor x) -> Tensor", lambda x: x * 2, like)
sometimes = define("sometimes(Tensor x) -> Tensor", lambda x: writes(x) if RUNS.count("sometimes") > 1 else x * 2, like)
OPERATORS: dict[str, tuple[Any, list[str], str]] = {
    "lie": (lie, ["undeclared-write"], "lie(Tensor(a!) x) -> Tensor"),
    "honest": (honest, [], "honest(Tensor x) -> Tensor"),
    "beside": (define("beside(Tensor x) -> Tensor", writes_beside, like), ["undeclared-write"], "beside(Tensor(a!) x) -> Tensor"),
    "turns": (define("turns(Tensor x) -> Tensor", turns, like), ["undeclared-write"], "turns(Tensor(a!) x) -> Tensor"),
    "itself": (define("itself(Tensor x) -> Tensor", lambda x: x, placed), ["undeclared-alias"], "itself(Tensor(a) x) -> Tensor(a)"),
    "part": (define("part(Tensor x) -> Tensor", lambda x: x[0], lambda x: placed(x[0])), ["undeclared-alias"], "part(Tensor(a) x) -> Tensor(a)"),
    "view": (define("view(Tensor(a) x) -> Tensor(a)", lambda x: x.t(), lambda x: x.t()), [], "view(Tensor(a) x) -> Tensor(a)"),
    "no_view": (define("no_view(Tensor(a) x) -> Tensor(a)", lambda x: x * 1, like), ["alias-not-made"], "no_view(Tensor x) -> Tensor"),
    "two": (
        define("two(Tensor x) -> (Tensor, Tensor)", two_of_one, lambda x: (like(x), like(x[0]))),
        ["undeclared-alias"],
        "two(Tensor x) -> (Tensor, Tensor)",
    ),
    "never": (define("never(Tensor(a!) x) -> Tensor", lambda x: x * 1, like), ["unwritten"], "never(Tensor(a!) x) -> Tensor"),
    "in_place": (define("in_place(Tensor(a!) x) -> Tensor(a!)", lambda x: x.add_(1), lambda x: x), [], "in_place(Tensor(a!) x) -> Tensor(a!)"),
    "draws": (define("draws(Tensor x) -> Tensor", torch.rand_like, like), ["undeclared-random"], "draws(Tensor x) -> Tensor"),
    "says": (
        define("says(Tensor x) -> Tensor", torch.rand_like, like, (torch.Tag.nondeterministic_seeded,)),
        [],
        "says(Tensor x) -> Tensor",
    ),
    "turned": (define("turned(Tensor x) -> Tensor", lambda x: (x.t() * 1).contiguous().t(), like), ["fake-differs"], "turned(Tensor x) -> Tensor"),
    "no_fake": (define("no_fake(Tensor x) -> Tensor", lambda x: x * 1), ["no-fake-kernel"], "no_fake(Tensor x) -> Tensor"),
}  # fmt: skip


def numbers() -> Tensor:
    return torch.arange(24.0).view(4, 6)[:, ::2]  # with gaps


@pytest.mark.parametrize("name", OPERATORS)
def test_what_one_call_shows(name: str) -> None:
    op, reasons, truth = OPERATORS[name]
    x, state = numbers(), torch.get_rng_state()
    memory = x.untyped_storage().tolist()
    report = check_schema(op, x)
    assert x.untyped_storage().tolist() == memory and torch.equal(state, torch.get_rng_state())
    assert [f.reason for f in report.findings] == reasons and set(reasons) <= set(REASONS)
    assert report.truth == f"lab_honesty::{truth}"
    assert report.honest == (set(reasons) <= NOTES)
    if report.honest:
        report.check()
    else:
        with pytest.raises(Mismatch, match="does not do what its schema says"):
            report.check()


def test_the_report_answers_the_five_questions() -> None:
    report = compiler_lab.check_schema(lie.default, numbers())
    assert report.text().splitlines() == [
        "declared   lab_honesty::lie(Tensor x) -> Tensor",
        "true       lab_honesty::lie(Tensor(a!) x) -> Tensor",
        "lie        it writes to x (its elements), which is not declared: Tensor(a!) x (undeclared-write)",
    ]
    assert [(i.id, i.text) for i in report.items()] == [("core.schema/x", "Tensor x"), ("core.schema/result 0", "Tensor")]
    assert [(d.subject, d.outcome, d.reason) for d in report.decisions] == [(("core.schema/x",), "refused", "undeclared-write")]
    assert torch.equal(report.run(torch.ones(2)), torch.full((2,), 4.0))
    assert "does not do" not in report.to_json()["text"]


def test_lists_optional_arguments_and_shared_memory() -> None:
    among = define(
        "among(Tensor[] xs, float k=2., int[2] s=[1, 2]) -> Tensor", lambda xs, k=2.0, s=None: writes_among(xs, k), lambda xs, k=2.0, s=None: like(xs[0])
    )
    assert check_schema(among, [numbers(), numbers()]).truth == "lab_honesty::among(Tensor(a!)[] xs, float k=2., int[2] s=[1, 2]) -> Tensor"
    assert check_schema(among, [numbers(), torch.zeros(3)]).honest  # nothing changes: one call is evidence for that call
    x = numbers() + 1
    assert check_schema(torch.ops.aten.add_.Tensor, x, x).honest  # the other argument is what the operator may write
    assert check_schema(torch.ops.aten.add_.Tensor, x[0], x[1]).honest
    out = define("out(Tensor x, Tensor(a!) y) -> ()", writes_out, lambda x, y: None)
    y = torch.zeros(4, 3)
    assert check_schema(out, y, y[:]).findings[0].reason == "unwritten"


def test_torchs_own_batch_norm_does_not_tell_the_truth() -> None:
    """``native_batch_norm`` updates its statistics; the tracer writes down the operator that says so."""
    args = (torch.randn(4, 3), None, None, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5)
    report = check_schema(torch.ops.aten.native_batch_norm.default, *args)
    assert [f.subject for f in report.lies] == ["running_mean", "running_var"]
    assert check_schema(torch.ops.aten._native_batch_norm_legit.default, *args).honest


def test_refuses_what_is_no_operator() -> None:
    for wrong in (torch.add, torch.ops.aten.add, 3):
        with pytest.raises(UnknownOption):
            check_schema(wrong, torch.ones(2))
    with FakeTensorMode() as mode, pytest.raises(UnknownOption, match="FakeTensor"):
        check_schema(honest, mode.from_tensor(torch.ones(2)))


# -- compiled -----------------------------------------------------------------------------------------------------------------


def reads_around(x: Tensor, w: Tensor) -> Tensor:
    """The same number is read before and after the operator writes to it."""
    y = x + 1
    before = y * 2
    z = lie(y)
    return (before + y * 2 + z) * w


def trusting(x: Tensor, w: Tensor) -> Tensor:
    return honest(x + 1) * w


@pytest.fixture
def session() -> Generator[None]:
    compiler_lab.reset()
    torch._dynamo.reset()
    RUNS.clear()
    yield
    compiler_lab.reset()


def test_the_real_stack_gives_a_wrong_number_silently(session: None) -> None:
    """Its joint graph has common subexpressions eliminated: the second read is taken for the first. (Under inductor, forward alone is wrong too.)"""
    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    eager = reads_around(x, w)
    assert torch.equal(eager, torch.full((3,), 10.0))
    assert torch.equal(torch.compile(reads_around, backend="eager")(x, w), eager)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(reads_around, backend="aot_eager")(x, w), torch.full((3,), 8.0))


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_decomp", "lab"])
def test_ours_leaves_a_lying_operator_to_eager_and_says_so(backend: str, session: None) -> None:
    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    compiled = compiler_lab.compile(reads_around, backend=backend)
    with pytest.warns(UserWarning, match=r"it writes to x \(its elements\), which is not declared: Tensor\(a!\) x") as said:
        first = compiled(x, w)
    assert len(said) == 1 and "reads_around: z = lie(y)" in str(said[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for result in (first, compiled(x, w), compiled(x, w)):
            assert torch.equal(result, torch.full((3,), 10.0))
    assert RUNS == ["lie"] * 3
    assert compiler_lab.stats()["break_reasons"] == ["undeclared-write"]


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
def test_an_honest_operator_runs_once_a_call_and_is_compiled(backend: str, session: None) -> None:
    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    compiled = compiler_lab.compile(trusting, backend=backend)
    nodes: list[str] = []
    for _ in range(3):
        result = compiled(x, w)
        nodes.append(type(result.grad_fn).__name__)
        assert torch.equal(result, torch.full((3,), 2.0))
    assert RUNS == ["honest"] * 3 and compiler_lab.stats() == {"graphs": 1, "breaks": 0, "break_reasons": []}
    assert nodes == ["MulBackward0", "CompiledFunctionBackward", "CompiledFunctionBackward"]


def test_a_lie_breaks_a_whole_graph(session: None) -> None:
    with pytest.raises(GraphBroken, match=r"declare it as lab_honesty::lie\(Tensor\(a!\) x\) -> Tensor"):
        compiler_lab.compile(reads_around, fullgraph=True)(torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("name", [n for n, (_, reasons, _) in OPERATORS.items() if set(reasons) - NOTES])
def test_every_kind_of_lie_is_refused(name: str, session: None) -> None:
    op, reasons, _ = OPERATORS[name]

    def program(x: Tensor) -> Any:
        y = x + 1
        z = op(y)
        return (z[0] if isinstance(z, tuple) else z) + 1, y + 1

    with pytest.warns(UserWarning, match="does not do what its schema says"):
        torch.manual_seed(0)
        found = compiler_lab.compile(program, backend="aot_eager")(numbers())
    torch.manual_seed(0)
    assert all(map(torch.equal, found, program(numbers())))
    assert compiler_lab.stats()["break_reasons"] == [reasons[0]]


@torch.library.custom_op("lab_honesty::forward_only", mutates_args=())
def forward_only(x: Tensor) -> Tensor:
    return x * 3


forward_only.register_fake(like)
forward_only.register_autograd(lambda ctx, g: lie(g))


def test_a_lie_is_told_once_for_all_sizes(session: None) -> None:
    compiled = compiler_lab.compile(lambda x: lie(x + 1), backend="aot_eager", dynamic=True)
    with pytest.warns(UserWarning) as said:
        for size in (3, 4, 5, 4):
            assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 6.0))
    assert len(said) == 1 and compiler_lab.stats()["breaks"] == 1


def test_a_lie_of_the_backward_raises_and_leaves_what_it_was_given(session: None) -> None:
    x = torch.ones(3, requires_grad=True)
    compiled = compiler_lab.compile(lambda x: forward_only(x) * 2, backend="aot_eager")
    compiled(x).sum().backward()  # the first call is eager's
    grad = torch.ones(3)
    with pytest.raises(Mismatch, match="lie"):
        compiled(x).backward(grad)
    assert torch.equal(grad, torch.ones(3))


def test_debug_mode_watches_every_call(session: None) -> None:
    """An operator that tells the truth once is believed, unless every call is watched."""
    y = torch.zeros(3)
    compiled = compiler_lab.compile(lambda x: sometimes(x) + x, backend="aot_eager", options={"check": True})
    compiled(y)
    with pytest.raises(Mismatch, match="sometimes"):
        compiled(y)
    assert torch.equal(y, torch.zeros(3))


def test_backends_of_the_users_are_protected_too(session: None) -> None:
    backend = compiler_lab.aot_autograd(lambda gm, args: gm.forward)
    x, w = torch.zeros(3), torch.ones(3, requires_grad=True)
    compiled = compiler_lab.compile(reads_around, backend=backend)
    with pytest.warns(UserWarning, match="Tensor\\(a!\\) x"):
        assert torch.equal(compiled(x, w), torch.full((3,), 10.0))
    assert torch.equal(compiled(x, w), torch.full((3,), 10.0))


def test_reports_are_artifacts() -> None:
    assert isinstance(check_schema(honest, numbers()), SchemaReport)
    assert "SchemaReport" in check_schema(honest, numbers())._repr_mimebundle_()["text/html"]
