"""Frames in pieces: every program gives what Python gives: results, output, mutations, exceptions and their lines; and graphs around the breaks."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import gc
import io
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn as nn
from torch import Tensor

import compiler_lab
from compiler_lab.core.errors import GraphBroken
from compiler_lab.frames.code import read_code
from compiler_lab.frames.hook import surface
from compiler_lab.frames.points import Point, index, ordinal, resumable
from compiler_lab.frames.resume import Next, step

from .conftest import run_threads

X = torch.arange(6.0).reshape(2, 3)
CONTEXT = contextvars.copy_context()


def through_c(fn: Callable[..., Any], *args: Any) -> Any:
    """Calls ``fn`` from C, where capture cannot follow."""
    return CONTEXT.run(fn, *args)


class Count:
    """A backend that counts, and runs the graph as it is."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.calls = 0

    def __call__(self, gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)

        def run(*args: Any) -> Any:
            self.calls += 1
            return gm.forward(*args)

        return run


class Log:
    """A context manager of the user's that writes down what happens to it."""

    def __init__(self, log: list[Any], keeps: bool = False) -> None:
        self.log, self.keeps = log, keeps

    def __enter__(self) -> Log:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, str(value)))
        return self.keeps


def plain(value: Any) -> Any:
    """A value as text and numbers, so that two runs can be compared."""
    if isinstance(value, Tensor):
        return ("tensor", tuple(value.shape), str(value.dtype), value.requires_grad, value.tolist())
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, dict):
        return ("dict", *((k, plain(v)) for k, v in value.items()))
    if isinstance(value, (nn.Module, Log, Base)) or callable(value):
        return type(value).__name__, plain(value.__dict__) if isinstance(value, Base) else None
    return value


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """(result or exception with its line in this file, what was printed, the arguments afterwards, grad mode)."""
    args = copy.deepcopy(args)
    out = io.StringIO()
    torch.manual_seed(0)
    with contextlib.redirect_stdout(out):
        try:
            result: Any = ("returned", plain(fn(*args)))
        except Exception as error:  # noqa: BLE001 - compared with the other run's
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__ and f.name not in ("outcome", "__exit__")]
            result = ("raised", type(error).__name__, str(error), lines[-1], type(error.__context__).__name__)
    return result, out.getvalue(), plain(args), torch.is_grad_enabled()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    compiler_lab.reset()
    yield
    assert surface().ef.get_eval_frame_callback() is None
    compiler_lab.reset()


# programs: (function, arguments, graphs, breaks); None where a number says nothing


def printed(x: Tensor) -> Tensor:
    y = x + 1
    print("sum", y.sum().item())
    return y * 2


def several(x: Tensor) -> Tensor:
    y = x + 1
    print("one")
    y = y * 2
    print("two")
    y = y - 3
    print("three")
    return y / 4


def branched(x: Tensor) -> Tensor:
    y = x + 1
    if y.sum() > 0:
        z = y * 2
    else:
        z = y - 2
    return z + y


def short_circuit(x: Tensor, n: int) -> Tensor:
    y = x * 2
    return (y if (n and y.sum() > 0) or y.max() > 100 else -y) + 1


def loop_for(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        x = x + i
        print(i)
    else:
        x = x * 2
        print("done")
    return x - 1


def loop_over_list(x: Tensor, items: list[int]) -> Tensor:
    for i in items:
        x = x * i
        print("item", i)
        if i == 3:
            items.append(7)
            continue
        if i == 7:
            break
        x = x + 1
    return x


def loop_while(x: Tensor) -> Tensor:
    steps = 0
    while x.sum() < 100:
        x = x + 3
        steps += 1
        if steps > 50:
            break
    else:
        x = x - 1
    return x * steps


def nested_loops(x: Tensor) -> Tensor:
    for i in (1, 2):
        for name, w in {"a": 2, "b": 3}.items():
            x = x * w + i
            print(name, i)
        x = x - 1
    return x


def zipped(x: Tensor) -> Tensor:
    for i, (a, b) in enumerate(zip([1, 2, 3], [4, 5, 6], strict=True)):
        x = x + a * b
        print(i, x.sum().item())
    return x


def in_comprehension(x: Tensor) -> Any:
    y = x + 1
    values = [print("c", v) or y * v for v in range(3)]
    table = {k: (y + k).sum().item() for k in (1, 2)}
    return values, table, y * 2


def with_log(x: Tensor, log: list[Any], keeps: bool, bad: bool) -> Any:
    y = x + 1
    with Log(log, keeps) as entered:
        y = y * 2
        print("inside", entered.keeps)
        y = y + 1
        if bad:
            print("bad")
            raise ValueError("of the program")
        y = y - 2
    log.append("after")
    return y * 3


def with_two(x: Tensor, log: list[Any]) -> Any:
    with Log(log), Log(log) as inner:
        x = x * 2
        print(len(inner.log))
        x = x + 1
        with contextlib.suppress(KeyError):
            print("third")
            {}["missing"]
            x = x * 1000
        print("out")
        x = x - 1
    return x


def no_grad(x: Tensor) -> Any:
    w = (x + 1).requires_grad_(True) if not x.requires_grad else x * 1
    a = w * 2
    with torch.no_grad():
        b = w * 3
        print(b.requires_grad, torch.is_grad_enabled())
        c = w * 4
        with torch.enable_grad():
            d = w * 5
            print(d.requires_grad, torch.is_grad_enabled())
            d = d + 1
        print(c.requires_grad, torch.is_grad_enabled())
        c = c + w
    print(torch.is_grad_enabled())
    return a, b, c, d, w * 6


def no_grad_raises(x: Tensor, caught: bool) -> Any:
    y = x
    try:
        with torch.no_grad():
            y = x * 2
            print("in no_grad")
            y = y + 1
            print("raising", [1, 2][int(y.sum().item()) * 0 + 5])
            y = y * 100
    except IndexError:
        if not caught:
            raise
        print("caught", torch.is_grad_enabled())
        y = x + 1
    return y * 2


def grad_off(x: Tensor) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    print(torch.is_grad_enabled())
    y = y + 1
    torch.set_grad_enabled(True)
    z = x * 2
    print(torch.is_grad_enabled())
    return y, z + 1


def autocast(x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.T
        print(y.dtype, torch.is_autocast_enabled("cpu"))
        z = y @ x
    print(z.dtype, torch.is_autocast_enabled("cpu"))
    return y, z, x @ x.T


def inference(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        print(torch.is_inference_mode_enabled())
        z = y + 1
    print(torch.is_inference_mode_enabled(), z.is_inference())
    return z * 1.0, x * 2


def tries(x: Tensor, what: str) -> Any:
    y = x + 1
    try:
        y = y * 2
        print("before", int(what))
        y = y - 1
    except ValueError as error:
        print("caught", error)
        y = y * 10
    else:
        print("else")
        y = y + 5
    finally:
        print("finally")
        y = y + 100
    return y * 2


def tries_in_loop(x: Tensor, items: list[Any]) -> Any:
    total = x * 0
    for item in items:
        try:
            total = total + int(item)
            print("good", item)
        except ValueError:
            total = total - 1
            print("bad", item)
            continue
        finally:
            total = total * 2
    return total


def finally_returns(x: Tensor) -> Any:
    y = x
    try:
        y = x * 2
        print("try")
        raise KeyError("lost")
    finally:
        print("finally")
        return y + 1  # noqa: B012


def re_raises(x: Tensor) -> Any:
    y = x + 1
    try:
        print("first")
        y = y / 2
        raise ValueError("one")
    except ValueError as error:
        print("second")
        raise RuntimeError("two") from error


def raises_later(x: Tensor) -> Any:
    y = x * 2
    print("before")
    y = y + 1
    z = y.sum()
    return z.reshape(2, 3)


def helper_breaks(x: Tensor, n: int) -> Tensor:
    y = x * n
    print("helper", n)
    return y + 1


def calls_helper(x: Tensor) -> Tensor:
    y = x + 1
    for n in range(3):
        y = helper_breaks(y, n + 1)
        y = y * 2
    return helper_breaks(y, 9) - 1


def recursive(x: Tensor, n: int) -> Tensor:
    if n == 0:
        return x
    y = x + n
    print("level", n)
    return recursive(y, n - 1) * 2


def star_calls(x: Tensor, *args: Any, key: int = 2, **more: Any) -> Any:
    y = x * key
    options: dict[str, Any] = {"end": "!\n"}
    print(*args, sep="-", **options)
    return y + sum(args), args, key, sorted(more), (lambda *a, **k: (a, sorted(k)))(*args, **more)


def deletes(x: Tensor) -> Any:
    y = x + 1
    z = y * 2
    print("before")
    del y
    print("after")
    try:
        return y  # type: ignore[possibly-unbound]  # noqa: F821
    except UnboundLocalError as error:
        return z * 3, str(error)


def unbound(x: Tensor, define: bool) -> Any:
    y = x + 1
    if define:
        late = y * 2
    print("between")
    return late + y  # type: ignore[possibly-unbound]


def unpacks(x: Tensor) -> Any:
    a, *b = through_c(lambda: [1, 2, 3])
    (c, d), e = x.tolist(), x * a
    print(c, b)
    return e + sum(b), c, d


def closes_over(x: Tensor) -> Any:
    k = 1

    def add(v: Tensor) -> Tensor:
        nonlocal k
        k += 1
        return v + k

    y = add(x)
    print("k", k)
    y = add(y)
    k = k * 10
    print("k", k)
    return add(y), k, add.__closure__ is not None


def argument_in_cell(x: Tensor, n: int) -> Any:
    get = lambda: x * n
    print("cell")
    n = n + 1
    x = x + 1
    print("again")
    return get() + 1


class Base:
    scale = 2

    def apply(self, x: Tensor) -> Tensor:
        print("base")
        return x * self.scale


class Derived(Base):
    def __init__(self) -> None:
        self.calls = 0

    def apply(self, x: Tensor) -> Tensor:
        y = super().apply(x) + 1
        self.calls += 1
        print("derived", self.calls)
        y = super().apply(y) * 2
        return y - self.calls


def method(x: Tensor, owner: Derived) -> Any:
    return owner.apply(x), owner.calls


def stores(x: Tensor, box: dict[str, Any], items: list[Any]) -> Any:
    y = x + 1
    box["y"] = 5
    print("stored", box["y"])
    items.append(2)
    box["z"] = len(items)
    print("stored", items)
    del box["z"]
    items[0] = 9
    return y * box["y"]


def in_place(x: Tensor) -> Any:
    y = x + 1
    x.add_(1)
    print(x.sum().item())
    x.mul_(2)
    view = x[0]
    print(view.sum().item())
    view.zero_()
    return y, x


def middle_of_expression(x: Tensor) -> Any:
    return (x + 1, [x * 2, print("middle") or x * 3], {"k": (x - 1).sum().item(), "l": f"{x.sum().item():.1f}"}, x[0] + 1)


def in_slice(x: Tensor, n: int) -> Any:
    y = x * 2
    return y[: int(x[0, 1].item()) + n], y[0, int(x[0, 2].item())]


def imports(x: Tensor) -> Any:
    y = x + 1
    import colorsys

    return y * len(colorsys.__name__)


def calls_c(x: Tensor) -> Any:
    y = x + 1
    z = through_c(torch.mul, y, 2)
    return through_c(lambda: z - 1) * 3


def random_numbers(x: Tensor) -> Any:
    a = x + torch.rand(3)
    print("rand")
    return a + torch.rand(3)


def global_written(x: Tensor) -> Any:
    global written
    y = x + 1
    written = 3
    print(written)
    written = written + 1
    return y * written


written = 0


def looks_at_locals(x: Tensor) -> Any:
    a = 1
    y = x + a
    b = 2
    print(sorted(locals()))
    return y * b


def lambda_default(x: Tensor) -> Any:
    fn = lambda v, k=3, *, m=x: v * k + m
    print("made")
    return fn(x) + fn(x, 4, m=x * 2)


def match_statement(x: Tensor, value: Any) -> Any:
    y = x + 1
    print("match")
    match value:
        case [a, b]:
            y = y * a + b
        case {"k": k}:
            y = y - k
        case _:
            y = y * 0
    print("matched")
    return y


def ternary_walrus(x: Tensor) -> Any:
    if (n := int(x.sum().item())) > 3 and (m := n * 2):
        x = x + m
    return x * n


def asserts(x: Tensor, limit: float) -> Any:
    y = x * 2
    if not y.sum() < limit:
        raise AssertionError("too large")
    return y + 1


def pending_then_raises(x: Tensor, at: int, log: list[Any], table: dict[str, Any]) -> Any:
    """The changes before the operator that may raise are made whether it raises or not."""
    log.append(at)
    table["seen"] = len(log)
    try:
        y = x.gather(0, torch.full((1, 3), at))
    except (IndexError, RuntimeError) as error:
        table["error"] = str(error)
        y = x
    log.insert(0, "after")
    return y + 1, log, table


def pending_then_leaves(x: Tensor, at: int, log: list[Any]) -> Any:
    log.append(at)
    y = x[:2].index_select(0, torch.tensor([at]))
    log.append("not reached where it raises")
    return y


def cells_at_a_stop(x: Tensor, n: int) -> Any:
    """What inner functions share is one cell on both sides of a break: written before it, after it, and by the functions themselves."""
    total = n
    y = x + n

    def add(k: int) -> int:
        nonlocal total, y
        total += k
        y = y * k
        return total

    def read() -> Any:
        return total, y.sum() > 0, later  # pyright: ignore

    add(2)
    print("total", total)
    total *= 10
    first = add(3)
    later = "bound after the break"
    print("first", first, read()[0])
    y = y - 1
    return first, read(), add.__closure__[0] is read.__closure__[1] if add.__closure__ and read.__closure__ else None, y


def empty_cell_at_a_stop(x: Tensor, late: bool) -> Any:
    def read() -> Any:
        return name  # pyright: ignore

    y = x - 1
    print("empty")
    if late:
        name = y * 2
    try:
        return read() * 2
    except NameError as error:
        return y, str(error)


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (printed, (X,)),
    (several, (X,)),
    (branched, (X,)),
    (branched, (-X * 9,)),
    *((short_circuit, (X * s, n)) for s in (1, -1, 100) for n in (0, 1)),
    (loop_for, (X, 4)),
    (loop_for, (X, 0)),
    (loop_over_list, (X, [1, 2, 3, 4])),
    (loop_while, (X,)),
    (loop_while, (X * 0 - 60,)),
    (nested_loops, (X,)),
    (zipped, (X,)),
    *((with_log, (X, [], keeps, bad)) for keeps in (False, True) for bad in (False, True)),
    (with_two, (X, [])),
    (no_grad, (X,)),
    (no_grad, (X.clone().requires_grad_(),)),
    (no_grad_raises, (X, True)),
    (no_grad_raises, (X, False)),
    (grad_off, (X.clone().requires_grad_(),)),
    (autocast, (X,)),
    (inference, (X,)),
    (tries, (X, "1")),
    (tries, (X, "x")),
    (tries, (X, None)),
    (tries_in_loop, (X, ["1", "x", "3", 4])),
    (finally_returns, (X,)),
    (re_raises, (X,)),
    (raises_later, (X,)),
    (calls_helper, (X,)),
    (recursive, (X, 3)),
    (star_calls, (X, 1, 2)),
    (deletes, (X,)),
    (unbound, (X, True)),
    (unbound, (X, False)),
    (unpacks, (X,)),
    (closes_over, (X,)),
    (argument_in_cell, (X, 2)),
    (method, (X, Derived())),
    (stores, (X, {}, [1])),
    (in_place, (X,)),
    (middle_of_expression, (X,)),
    (in_slice, (X, 0)),
    (imports, (X,)),
    (calls_c, (X,)),
    (random_numbers, (X,)),
    (global_written, (X,)),
    (looks_at_locals, (X,)),
    (lambda_default, (X,)),
    (match_statement, (X, [1, 2])),
    (match_statement, (X, {"k": 3})),
    (match_statement, (X, 5)),
    (ternary_walrus, (X,)),
    (asserts, (X, 100.0)),
    (asserts, (X, 1.0)),
    (in_comprehension, (X,)),
    *((pending_then_raises, (X, at, [], {})) for at in (0, 1, 99)),
    *((pending_then_leaves, (X, at, ["there"])) for at in (1, 99)),
    (cells_at_a_stop, (X, 1)),
    (cells_at_a_stop, (X, -2)),
    (empty_cell_at_a_stop, (X, True)),
    (empty_cell_at_a_stop, (X, False)),
]


@pytest.mark.parametrize("case", range(len(PROGRAMS)), ids=lambda n: f"{n}-{PROGRAMS[n][0].__name__}")
def test_programs_in_pieces_are_pythons(case: int) -> None:
    fn, args = PROGRAMS[case]
    count = Count()
    compiled = compiler_lab.compile(fn, backend=count)
    expected = outcome(fn, args)
    for _ in range(3):
        assert outcome(compiled, args) == expected
    assert count.graphs or (fn in BELOW and not surface().isolated), "nothing was captured"
    assert compiler_lab.stats()["graphs"] == len(count.graphs)


@pytest.mark.parametrize("case", range(len(PROGRAMS)), ids=lambda n: f"{n}-{PROGRAMS[n][0].__name__}")
def test_every_instruction_of_a_program_can_be_a_piece(case: int) -> None:
    """Each instruction is run by a function of its own: any of them may be where a graph breaks."""
    fn, args = PROGRAMS[case]
    code = fn.__code__
    if not resumable(code):
        pytest.skip("not resumable")
    assert outcome(lambda *args: one_by_one(fn, args), args) == outcome(fn, args)


def one_by_one(fn: Any, args: tuple[Any, ...]) -> Any:
    code: types.CodeType = fn.__code__
    info = read_code(code)
    bound = dict(zip(code.co_varnames, args, strict=False))
    if code.co_flags & 0x4:
        star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        bound = {**{k: v for k, v in bound.items() if k in code.co_varnames[: code.co_argcount]}, star: args[code.co_argcount :]}
    bound |= fn.__kwdefaults__ or {}
    if code.co_flags & 0x8:
        bound[code.co_varnames[code.co_argcount + code.co_kwonlyargcount + 1]] = {}
    start = next(n for n, i in enumerate(info.instructions) if i.name == "RESUME") + 1
    names = tuple(n for n in code.co_varnames if n in bound and n not in code.co_cellvars)
    state: Any = [bound[n] for n in names]
    cells = (*(types.CellType(bound[c]) if c in bound else types.CellType() for c in code.co_cellvars), *(fn.__closure__ or ()))
    del bound
    point = Point(ordinal(info, start), names, ())
    while True:
        python, ends = step(code, point)
        assert index(info, point.at) >= start
        result = types.FunctionType(python, fn.__globals__, fn.__name__, None, cells)(state)
        if type(result) is not Next:
            return result
        number, state = result
        point = ends[number]


class Interrupted:
    """A backend whose graph number ``at`` raises ``error`` when it runs."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.made = at, error, 0

    def __call__(self, gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        number, self.made = self.made, self.made + 1

        def run(*args: Any) -> Any:
            if number == self.at:
                raise self.error
            return gm.forward(*args)

        return run


def guarded(x: Tensor, log: list[Any], keeps: bool) -> Any:
    y = x + 1
    with Log(log, keeps):
        print("in", end="")
        y = y * 2
        log.append("not reached")
        print("out", end="")
    log.append("after")
    return y + 1


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), MemoryError("no room")])
def test_a_graph_that_is_interrupted_leaves_the_blocks_it_is_in(keeps: bool, error: BaseException) -> None:
    log: list[Any] = []
    compiled = compiler_lab.compile(guarded, backend=Interrupted(1, error))
    leaves = ("exit", type(error).__name__, str(error))
    if keeps:
        assert torch.equal(compiled(X, log, True), X + 2)
        assert log == ["enter", leaves, "after"]
        return
    with pytest.raises(type(error)) as raised:
        compiled(X, log, False)
    assert log == ["enter", leaves] and raised.value is error
    lines = [f.lineno for f in traceback.extract_tb(raised.value.__traceback__) if f.name == "guarded"]
    assert (lines[-1] or 0) - guarded.__code__.co_firstlineno in (3, 4)


def long_loop(x: Tensor, n: int) -> Tensor:
    for i in range(n):
        x = x + 1
        print(i)
    return x * 2


def long_while(x: Tensor, n: int) -> Any:
    steps = 0
    while steps < n:
        x = x + 1
        if x.sum() < 0:
            break
        steps += 1
    return x, steps


def long_loop_of_calls(x: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = helper_in_loop(x)
    return x * 2


def helper_in_loop(x: Tensor) -> Tensor:
    y = x + 1
    print(end=".")
    return y + 1


BELOW = (method, long_loop_of_calls)  # all their graphs are in frames below a break, which are looked at where entries can be kept apart


@pytest.mark.parametrize("fn", [long_loop, long_while, long_loop_of_calls])
def test_a_break_in_a_long_loop_nests_nothing(fn: Callable[..., Any]) -> None:
    count = Count()
    compiled = compiler_lab.compile(fn, backend=count)
    assert outcome(compiled, (X, 5000)) == outcome(fn, (X, 5000))
    assert len(count.graphs) <= 5 and (count.calls >= 5000 or (fn in BELOW and not surface().isolated))
    assert compiler_lab.stats()["breaks"] == 1


def deep(x: Tensor, n: int) -> Tensor:
    y = x + 1
    print(end="")
    return y if n == 0 else deep(y, n - 1)


def test_recursion_as_deep_as_pythons() -> None:
    compiled = compiler_lab.compile(deep, backend=Count())
    assert torch.equal(compiled(X, 500), X + 501)


def test_threads_in_a_broken_function_at_once() -> None:
    count, results = Count(), list[Any]()
    compiled = compiler_lab.compile(several, backend=count)
    inputs = [X + n for n in range(4)]

    def work(n: int) -> None:
        results.append((n, [compiled(inputs[n]) for _ in range(20)]))

    with contextlib.redirect_stdout(io.StringIO()):
        run_threads([partial(work, n) for n in range(4)])
        expected = {n: several(inputs[n]) for n in range(4)}
    assert len(results) == 4 and all(torch.equal(y, expected[n]) for n, found in results for y in found)
    assert len(count.graphs) == 4 and count.calls == 4 * 20 * 4


def test_a_break_is_counted_once_with_its_reason_and_line() -> None:
    compiled = compiler_lab.compile(several, backend=Count())
    with contextlib.redirect_stdout(io.StringIO()):
        for n in range(1, 4):
            compiled(torch.ones(n))
    assert compiler_lab.stats()["breaks"] == 3 and compiler_lab.stats()["break_reasons"] == ["output"]
    first = several.__code__.co_firstlineno
    found = compiled._compiled_function.breaks
    assert [(b.reason, b.stack[-1].line - first, b.stack[-1].function) for b in found] == [("output", n, "several") for n in (2, 4, 6)]


@pytest.mark.parametrize("kind", ["dropped", "reset"])
def test_nothing_of_a_broken_function_stays(kind: str) -> None:
    def make() -> list[weakref.ref[Any]]:
        module, log = nn.Linear(3, 3), Log([])

        def function(x: Tensor) -> Tensor:
            y = module(x)
            with log:
                print(end="")
                y = module(y)
            print(end="")
            return y + 1

        function.itself = function  # type: ignore[attr-defined]  # a cycle
        compiled = compiler_lab.compile(function, backend=Count())
        for _ in range(2):
            compiled(X)
        if kind == "reset":
            compiled._compiled_function.reset()
        return [weakref.ref(o) for o in (module, log, function, compiled._compiled_function)]

    gone = make()
    for _ in range(3):
        gc.collect()
    assert [r() for r in gone] == [None] * len(gone)


def test_what_a_frame_no_longer_needs_is_freed() -> None:
    alive: list[Any] = []

    def look() -> None:
        gone.append(alive[-1]() is None)

    def function(x: Tensor) -> Tensor:
        y = x + 1
        alive.append(weakref.ref(y))
        z = y * 2
        y = z + 1
        through_c(look)
        del z
        return y * 2

    gone: list[bool] = []
    compiled = compiler_lab.compile(function, backend=Count())
    for _ in range(2):
        compiled(X)
    assert gone == [True, True]


def test_a_reset_in_the_middle_of_a_frame() -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        compiler_lab.reset()
        y = y * 2
        print(end="")
        return y - 1

    compiled = compiler_lab.compile(function, backend=Count())
    for _ in range(3):
        assert torch.equal(compiled(X), X * 2 + 1)


def test_fullgraph_refuses_every_break() -> None:
    compiled = compiler_lab.compile(printed, backend=Count(), fullgraph=True)
    with pytest.raises(GraphBroken, match="tensor-to-python"):
        compiled(X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_flow_through_pieces(backend: str) -> None:
    x, twin = (X.clone().requires_grad_() for _ in range(2))
    with contextlib.redirect_stdout(io.StringIO()):
        compiler_lab.compile(several, backend=backend)(x).pow(2).sum().backward()
        several(twin).pow(2).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, twin.grad)  # type: ignore[arg-type]
