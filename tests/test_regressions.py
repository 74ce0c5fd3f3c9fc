"""Faults that were found, each with its whole kind. The name says what went wrong."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import compiler_lab

BACKENDS = ("eager", "aot_eager", "lab")


def writes(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


def windows(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """(base, x, y): two windows of four elements onto one memory, or onto two."""
    base = torch.arange(1.0, 17.0)
    starts = {"overlap": (0, 2), "overlap the other way": (2, 0), "the same elements": (0, 0), "side by side": (0, 4)}[kind]
    return base, base[starts[0] : starts[0] + 4], base[starts[1] : starts[1] + 4]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["overlap", "overlap the other way", "the same elements", "side by side"])
def test_a_written_input_that_shares_memory_only_in_a_later_call(kind: str, backend: str) -> None:
    """The guard compared objects; what capture assumes is that nobody else reaches the memory."""
    compiled = compiler_lab.compile(writes, backend=backend)
    compiled(torch.ones(4), torch.ones(4))
    base, x, y = windows(kind)
    want_base, want_x, want_y = windows(kind)
    torch.testing.assert_close(compiled(x, y), writes(want_x, want_y), rtol=0, atol=0)
    torch.testing.assert_close(base, want_base, rtol=0, atol=0)
    torch.testing.assert_close(compiled(torch.ones(4), torch.ones(4)), torch.full((4,), 3.0))


def test_windows_that_do_not_meet_are_no_reason_to_compile_again() -> None:
    graphs: list[Any] = []
    compiled = compiler_lab.compile(writes, backend=lambda gm, args: graphs.append(gm) or gm.forward)
    for _ in range(3):
        _, x, y = windows("side by side")
        compiled(x, y)
    assert len(graphs) == 1


FAMILY: dict[str, Callable[[Tensor, Any], Any]] = {
    "var": lambda x, dim: torch.var(x, dim),
    "std": lambda x, dim: torch.std(x, dim),
    "var_mean": lambda x, dim: torch.var_mean(x, dim),
    "std_mean": lambda x, dim: torch.std_mean(x, dim),
}


@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("dim", [-1, 0, None], ids=["rows", "columns", "all"])
@pytest.mark.parametrize("name", FAMILY)
def test_squares_that_leave_the_range_of_float32(name: str, dim: int | None, scale: float) -> None:
    """std of numbers near 1e30 was inf and of numbers near 1e-30 zero; aten accumulates the squares in double."""
    x = torch.randn(5, 300) * scale
    f = lambda x: FAMILY[name](x, dim)
    torch.testing.assert_close(compiler_lab.compile(f, fullgraph=True)(x), f(x), rtol=1e-5, atol=0)


def test_batch_norm_of_large_numbers_is_eagers() -> None:
    make = lambda: torch.nn.BatchNorm1d(3)
    x = torch.randn(50, 3) * 1e18
    ours, plain = make(), make()
    torch.testing.assert_close(compiler_lab.compile(ours, fullgraph=True)(x), plain(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_var, plain.running_var, rtol=1e-5, atol=0)


def switches_on(x: Tensor) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        a = x * 2
        view = x[1:]
    return a, x + 1, view, x


def switches_off(x: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x.sin()
    return a, b, x.exp()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("outside", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("program", [switches_on, switches_off])
def test_grad_mode_is_the_programs_own(program: Callable[..., tuple[Tensor, ...]], outside: bool, backend: str) -> None:
    """What an output is to autograd was decided by the mode of the call; it is decided where the output is made."""

    def outcome(fn: Callable[..., tuple[Tensor, ...]]) -> tuple[list[bool], Tensor | None]:
        x = torch.linspace(0, 1, 4).requires_grad_()
        with torch.set_grad_enabled(outside):
            outputs = fn(x)
            assert torch.is_grad_enabled() is outside
        kinds = [o.requires_grad for o in outputs]
        torch.stack([o.sum() for o, needs in zip(outputs, kinds, strict=True) if needs and o is not x]).sum().backward()
        return kinds, x.grad

    kinds, grad = outcome(compiler_lab.compile(program, backend=backend, fullgraph=True))
    want_kinds, want_grad = outcome(program)
    assert kinds == want_kinds
    torch.testing.assert_close(grad, want_grad)


def fails_inside(x: Tensor, index: Tensor) -> Tensor:
    with torch.no_grad():
        return x.gather(0, index)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_between_two_modes_leaves_the_callers_mode(backend: str) -> None:
    compiled = compiler_lab.compile(fails_inside, backend=backend)
    compiled(torch.ones(3), torch.tensor([0]))
    with pytest.raises((RuntimeError, IndexError)):
        compiled(torch.ones(3), torch.tensor([7]))
    assert torch.is_grad_enabled()


def one_cell(x: Tensor) -> Any:
    i = 5
    return (lambda: i)(), x


def three_cells(x: Tensor, y: Tensor) -> Any:
    i, j, k = 1, 2, 3
    return (lambda: (i, j, k))(), y, x


def argument_in_a_cell(x: Tensor, y: Tensor) -> Any:
    i = 5
    return (lambda: (x, i))(), y


@pytest.mark.parametrize("program", [one_cell, three_cells, argument_in_a_cell])
def test_cells_that_the_replacement_does_not_need(program: Callable[..., Any]) -> None:
    """The hook copied cells behind the last slot of the replacement's frame: arguments were lost, or the process."""
    args = [torch.ones(2), torch.zeros(2)][: program.__code__.co_argcount]
    compiled = compiler_lab.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        for got, want in zip(compiled(*args), program(*args), strict=True):
            assert got is want if isinstance(want, Tensor) else got == want


def sets_grad(x: Tensor, mode: Any) -> Tensor:
    with torch.set_grad_enabled(mode):
        return x * 2


def sets_grad_by_name(x: Tensor, mode: Any) -> Tensor:
    torch._C._set_grad_enabled(mode)
    return x * 2


@pytest.mark.parametrize("mode", [None, 0, 1, "yes"])
@pytest.mark.parametrize("program", [sets_grad, sets_grad_by_name])
def test_a_mode_that_is_no_bool_is_torchs_type_error(program: Callable[..., Tensor], mode: Any) -> None:
    """What is merely true or false was taken for a bool."""
    compiled = compiler_lab.compile(program, backend="eager")
    for fn in (program, compiled, compiled):
        with pytest.raises(TypeError, match="must be bool"):
            fn(torch.ones(2), mode)


def finally_writes(x: Tensor, index: Tensor) -> Tensor:
    try:
        return x.gather(0, index)
    finally:
        x.add_(1)


def finally_holds_a_block(x: Tensor, index: Tensor) -> Tensor:
    try:
        y = x.gather(0, index)
    finally:
        with torch.no_grad():
            x.add_(1)
    return y


def except_around_a_mode(x: Tensor, index: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            return x.gather(0, index)
    except (RuntimeError, IndexError):
        x.add_(1)
        return x


def raises_in_a_handler(x: Tensor, index: Tensor) -> Tensor:
    try:
        try:
            raise ValueError
        except ValueError:
            return x.gather(0, index)
    finally:
        x.add_(1)


@pytest.mark.parametrize("program", [finally_writes, finally_holds_a_block, except_around_a_mode, raises_in_a_handler])
def test_what_a_program_does_about_an_error_of_the_graph(program: Callable[..., Tensor]) -> None:
    """Finally clauses were taken for code that an error passes by, and a mode hid the clause around it."""

    def outcome(fn: Callable[..., Tensor], index: int) -> tuple[Any, list[float]]:
        x = torch.arange(3.0)
        try:
            result: Any = fn(x, torch.tensor([index])).tolist()
        except (RuntimeError, IndexError) as error:
            result = type(error)
        return result, x.tolist()

    compiled = compiler_lab.compile(program, backend="eager")
    for index in (0, 7, 1):
        assert outcome(compiled, index) == outcome(program, index)


def adds_its_own_row(x: Tensor) -> Any:
    try:
        x += x[:1]
    except RuntimeError as error:
        return str(error)
    return x


def shifts_rows(x: Tensor) -> Any:
    try:
        x[1:] = x[:-1]
    except RuntimeError as error:
        return str(error)
    return x


def writes_an_expanded(x: Tensor) -> Any:
    try:
        x[0].expand(3, 4).add_(1)
    except RuntimeError as error:
        return str(error)
    return x


def writes_into_what_it_reads(x: Tensor) -> Any:
    try:
        return torch.add(x[:2], 1, out=x[1:])
    except RuntimeError as error:
        return str(error)


def rows_that_do_not_meet(x: Tensor) -> Any:
    x[0] += 1
    x[:, 1] *= 2
    x[0] = x[1]
    x.view(-1).add_(x.view(-1))
    return x


@pytest.mark.parametrize("program", [adds_its_own_row, shifts_rows, writes_an_expanded, writes_into_what_it_reads, rows_that_do_not_meet])
def test_memory_that_an_operator_meets_twice(program: Callable[..., Any]) -> None:
    """Eager refuses to write memory that it reads elsewhere; a fake does not, so the error came from the graph, past the program's except."""

    def outcome(fn: Callable[..., Any]) -> tuple[Any, list[Any]]:
        x = torch.arange(12.0).view(3, 4)
        result = fn(x)
        return (result.tolist() if isinstance(result, Tensor) else result), x.tolist()

    compiled = compiler_lab.compile(program, backend="eager")
    for _ in range(2):
        assert outcome(compiled) == outcome(program)
    assert bool(compiled._compiled_function.breaks) is (program is not rows_that_do_not_meet)


def handles_a_shape_error(x: Tensor) -> Any:
    try:
        return x + torch.ones(3)
    except RuntimeError as error:
        return str(error)


def test_an_error_that_the_program_handles_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Torch logs with a traceback what raises on fakes, although the program expects it."""
    assert compiler_lab.compile(handles_a_shape_error, backend="eager")(torch.ones(2)) == handles_a_shape_error(torch.ones(2))
    assert not caplog.records


def changes_frozen(x: Tensor) -> tuple[Any, ...]:
    items = frozenset([1, 2])
    kept = items
    items |= {3}
    try:
        items.add(4)  # type: ignore[attr-defined]
    except AttributeError as error:
        return x + 1, items, kept, str(error)
    return x, items, kept


def follows_dead(x: Tensor) -> Tensor:
    made = x + 1
    reference = weakref.ref(made)
    print("a break")
    total = made.sum()
    del made
    return total + (reference() is None)


@pytest.mark.parametrize("program", [changes_frozen, follows_dead])
def test_what_a_value_cannot_do(program: Callable[..., Any]) -> None:
    """A frozenset had the methods of a set; a weak reference gave a tensor that the frame had let go."""
    x = torch.ones(2)
    compiled = compiler_lab.compile(program, backend="eager")
    compiled(x)  # capture itself keeps what it looks at until it is collected
    assert repr(compiled(x)) == repr(program(x))


def shows(n: Any) -> None:
    print(n)


@pytest.mark.parametrize("pick", [lambda i: max(1, i), lambda i: i or 1, lambda i: min(i, 5)], ids=["max", "or", "min"])
def test_a_value_that_came_through_an_operation_is_guarded(pick: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]) -> None:
    """It was on the stack once and read once, and so was taken for one that is only passed on."""

    def program(x: Tensor, i: Any) -> Tensor:
        y = x + 1
        shows(pick(i))
        return y * 2

    compiled = compiler_lab.compile(program, backend="eager", dynamic=False)
    for i in (True, 5, True, 0, 7):
        compiled(torch.ones(1), i)
    got = capsys.readouterr().out
    for i in (True, 5, True, 0, 7):
        program(torch.ones(1), i)
    assert got == capsys.readouterr().out


INTO: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "mean": lambda x, out: torch.mean(x, 1, out=out),
    "prod": lambda x, out: torch.prod(x, 1, out=out),
    "nansum": lambda x, out: torch.nansum(x, 1, out=out),
    "nanmean": lambda x, out: torch.nanmean(x, 1, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "cumprod": lambda x, out: torch.cumprod(x, 1, out=out),
    "logsumexp": lambda x, out: torch.logsumexp(x, 1, out=out),
    "var": lambda x, out: torch.var(x, 1, out=out),
    "std": lambda x, out: torch.std(x, 1, out=out),
    "all": lambda x, out: torch.all(x, 1, out=out),
    "add": lambda x, out: torch.add(x, x * 0.3, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
}


@pytest.mark.parametrize("backend", ["aot_eager", "lab"])
@pytest.mark.parametrize("name", INTO)
def test_out_of_another_dtype(name: str, backend: str) -> None:
    """Eager computes reductions and scans in the dtype of ``out``; the functional form had computed them in its own, and converted the result."""
    shape = {"cumsum": (5, 40), "cumprod": (5, 40), "add": (5, 40), "exp": (5, 40), "cat": (10, 40)}.get(name, (5,))
    cases = [(torch.bfloat16, torch.float32), (torch.float32, torch.int64), (torch.float32, torch.bfloat16), (torch.float32, torch.uint8)]
    compiled = compiler_lab.compile(INTO[name], backend=backend)
    tried = 0
    for dtype, into in cases:
        x = (torch.rand(5, 40, generator=torch.Generator().manual_seed(2)) + 0.6).to(dtype)
        want, got = torch.zeros(shape, dtype=into), torch.zeros(shape, dtype=into)
        try:
            INTO[name](x, want)
        except (RuntimeError, TypeError):  # eager refuses the pair
            with pytest.raises((RuntimeError, TypeError)):
                compiled(x, got)
            continue
        tried += 1
        compiled(x, got)
        torch.testing.assert_close(got, want, rtol=0.1 if into == torch.bfloat16 else 1e-5, atol=0)  # rounded at each step
    assert tried


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_of_several_views_written_by_an_operator_without_a_gradient(backend: str) -> None:
    """Eager hands the view out, and autograd raises when its history is asked for: such a program is left to Python."""

    def f(x: Tensor) -> Tensor:
        first, _ = (x * 2).t()
        first.logical_not_()
        return first

    x = torch.tensor([[0.0, 2.0]], requires_grad=True)
    assert compiler_lab.compile(f, backend=backend)(x).tolist() == f(x).tolist() == [1.0]


GAPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "slice_scatter": lambda a: torch.slice_scatter(a, a[:1], 0, 0, 1),
    "select_scatter": lambda a: torch.select_scatter(a, a[0], 0, 1),
    "diagonal_scatter": lambda a: torch.diagonal_scatter(a, a.diagonal() * 2),
    "a diagonal": lambda a: torch.slice_scatter(a.diagonal(), a[0, :1], 0, 0, 1),
    "turned": lambda a: torch.select_scatter(a.t(), a[0], 0, 1),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", GAPPED)
def test_a_result_keeps_the_gaps_of_what_it_copies(name: str, backend: str) -> None:
    """A buffer of ours was dense, and so was the result that a caller saw."""
    x = torch.arange(64.0).reshape(8, 8)[::2, ::2]
    got, want = compiler_lab.compile(GAPPED[name], backend=backend)(x), GAPPED[name](x)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_torchs_decomposition_refuses_stays_an_operator(dynamic: bool) -> None:
    """It asks for more than the operator: here for channels."""
    area = lambda a: F.interpolate(a, size=(2, 3), mode="area")
    x = torch.ones(1, 0, 40, 9)
    assert compiler_lab.compile(area, dynamic=dynamic)(x).shape == area(x).shape


def test_a_size_that_is_learned_later_does_not_change_a_recorded_graph() -> None:
    """The backward of cumprod looks at its input's size, which was a symbol in the captured graph."""
    x = torch.rand(9, requires_grad=True)
    product = compiler_lab.compile(lambda a: a.cumprod(0), options={"check": True}, dynamic=True)(x)
    torch.testing.assert_close(product, x.cumprod(0))


@pytest.mark.parametrize("read", ["as_strided", "of a view", "scatter"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_that_is_read_by_places_in_its_memory_stays(read: str, backend: str) -> None:
    """It begins at place 0 of its memory; what it copies began elsewhere, and was read instead."""
    reads: dict[str, Callable[[Tensor], Tensor]] = {
        "as_strided": lambda x: x.clone().as_strided((2, 2), (4, 1), 1) + 1,
        "of a view": lambda x: x.clone().t().as_strided((2, 2), (4, 1), 1) + 1,
        "scatter": lambda x: torch.as_strided_scatter(x.clone(), x[:2, :2] * 2, (2, 2), (4, 1), 1),
    }
    x = torch.arange(24.0).reshape(6, 4)[1:-1]
    torch.testing.assert_close(compiler_lab.compile(reads[read], backend=backend)(x), reads[read](x), rtol=0, atol=0)


def test_a_view_of_an_input_that_is_written_through_another() -> None:
    def f(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        kept = b.squeeze(-1)
        torch.mul(b.sign(), 2, out=b)
        return a.atan(), kept

    def inputs() -> tuple[Tensor, Tensor]:
        a = torch.arange(-12.0, 12.0).reshape(6, 4)[1:-1]
        return a, a[..., 1:]

    torch.testing.assert_close(compiler_lab.compile(f)(*inputs()), f(*inputs()))


def test_a_total_of_one_number_begins_with_zero() -> None:
    x = torch.tensor([[-0.0], [0.0], [-1.0]])
    for f in (lambda a: 1 / a.cumsum(-1), lambda a: 1 / a.cumsum(0), lambda a: 1 / a.cumprod(-1), lambda a: 1 / a[0, 0].cumsum(0)):
        torch.testing.assert_close(compiler_lab.compile(f)(x), f(x), rtol=0, atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_what_has_no_elements(backend: str) -> None:
    """A scatter of no steps was an error at once; torch's shape function of the norm's backward divides by their number."""

    def chosen(a: Tensor) -> Tensor:
        return a.index_select(-1, torch.tensor([], dtype=torch.int64))

    for f, x in ((chosen, torch.randn(3, 3, 0)), (lambda a: F.group_norm(a, 2), torch.randn(4, 2, 0)), (lambda a: F.group_norm(a, 2), torch.randn(0, 2, 4))):
        a = x.clone().requires_grad_()
        result = compiler_lab.compile(f, backend=backend)(a)
        assert result.shape == f(x).shape
        (grad,) = torch.autograd.grad(result.sum(), a)
        assert grad.shape == x.shape
