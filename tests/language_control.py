# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: exceptions, with and match."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import torch

from .language import LANGUAGE, Program, breaks, program


class Custom(Exception):
    def __init__(self, code: int, text: str = "t") -> None:
        super().__init__(code, text)
        self.code = code


class Plain(ValueError):
    pass


class Spoken(Exception):
    def __str__(self) -> str:
        return f"spoken {self.args}"


# exceptions


@program((0,), (1,), (2,), (3,))
def try_paths(x: Any, n: Any) -> Any:
    log: list[Any] = []
    try:
        log.append("body")
        if n == 1:
            raise ValueError("one")
        if n == 2:
            raise KeyError("two")
        if n == 3:
            return x, log
    except ValueError as e:
        log.append(str(e))
    except (KeyError, IndexError) as e:
        log.append((type(e).__name__, e.args))
    else:
        log.append("else")
    finally:
        log.append("finally")
    return x + 1, log


@program((1,), (2,))
def nested_try(x: Any, n: Any) -> Any:
    log: list[Any] = []
    try:
        try:
            raise Plain("inner") if n == 1 else Custom(5)
        except Plain as e:
            log.append(repr(e))
            raise RuntimeError("outer") from e
        finally:
            log.append("inner finally")
    except RuntimeError as e:
        log.append((str(e), str(e.__cause__), e.__cause__ is e.__context__, type(e.__context__).__name__, e.__suppress_context__))
    except Custom as e:
        log.append((e.code, e.args, str(e), e.__cause__, e.__context__))
    return x, log


@program()
def exception_context(x: Any) -> Any:
    try:
        try:
            raise ValueError("a")
        except ValueError:
            {}["k"]
    except KeyError as e:
        first = type(e.__context__), e.__context__.args if e.__context__ else None, e.__cause__
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise TypeError("b") from None
    except TypeError as e:
        second = e.__suppress_context__, e.__cause__, type(e.__context__)
    return x, first, second


@program()
def reraise(x: Any) -> Any:
    log: list[Any] = []
    try:
        try:
            raise Plain("p")
        except ValueError as e:
            log.append(type(e))
            raise
    except Plain as e:
        log.append(str(e))
    return x * 2, log


@program((0,), (1,), (2,), (3,))
def raised_to_the_caller(x: Any, n: Any) -> Any:
    if n == 1:
        raise Plain("text", 2)
    if n == 2:
        raise Custom(7)
    if n == 3:
        return [1][x.dim() + 5]
    return x + n


@program((1,), (-1,))
def assertions(x: Any, n: Any) -> Any:
    try:
        assert n > 0, f"bad {n}"
        assert x.shape[0] == 2
    except AssertionError as e:
        return x, str(e), e.args
    return x


@program((1,), (-1,))
def failing_assertion(x: Any, n: Any) -> Any:
    y = x * 2
    assert n > 0, f"bad {n}"
    return y


@program()
def exception_objects(x: Any) -> Any:
    a, b, c = ValueError("m"), Custom(3), KeyError("k")
    a.note = 5
    return (
        (
            str(a),
            repr(a),
            a.args,
            a.note,
            isinstance(a, Exception),
            type(a).__name__,
            str(c),
            repr(c),
            str(ValueError()),
            str(ValueError(1, 2)),
            repr(ValueError()),
        ),
        (b.code, b.args, str(b), str(Spoken(1)), f"{a}", f"{a!r}", "%s" % a, StopIteration(4).value, issubclass(Custom, Exception)),
        x,
    )


@program()
def finally_order(x: Any) -> Any:
    log: list[Any] = []

    def f(n: Any) -> Any:
        for i in range(5):
            try:
                if i == n:
                    break
                if i == 0:
                    continue
                log.append(i)
            finally:
                log.append(f"f{i}")
        else:
            log.append("else")
        try:
            return log.append("r") or n
        finally:
            log.append("last")

    return x, f(2), f(9), log


@program()
def return_in_finally(x: Any) -> Any:
    def f() -> Any:
        try:
            raise ValueError
        finally:
            return 5

    return x * f()


@program()
def unbound_after_except(x: Any) -> Any:
    e = 1
    out: list[Any] = []
    try:
        raise ValueError("v")
    except ValueError as e:
        out.append(e.args)
    try:
        out.append(e)
    except UnboundLocalError as u:
        out.append((type(u).__name__, str(u)))
    return x, out


@breaks()
def exception_groups(x: Any) -> Any:
    out: list[Any] = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as g:
        out.append([str(e) for e in g.exceptions])
    except* TypeError as g:
        out.append(len(g.exceptions))
    return x + 1, out


@program()
def bad_calls(x: Any) -> Any:
    def f(a: Any, b: Any = 1, *, c: Any = 2) -> Any:
        return a, b, c

    def g(a: Any, /, b: Any) -> Any:
        return a, b

    out: list[Any] = []
    for h in (
        lambda: f(),
        lambda: f(1, 2, 3),
        lambda: f(1, q=2),
        lambda: f(1, a=2),
        lambda: g(1, a=2, b=3),
        lambda: g(),
        lambda: f(1, **{"c": 5}),
        lambda: (5)(),
        lambda: f(*[1], **{"b": 2}),
    ):
        try:
            out.append(h())
        except TypeError as e:
            out.append(str(e))
    return x, out


@program()
def loops_with_else(x: Any) -> Any:
    out: list[Any] = []
    for n in range(2, 8):
        for d in range(2, n):
            if n % d == 0:
                break
        else:
            out.append(n)
    i = 0
    while True:
        i += 1
        if i % 2:
            continue
        if i > 6:
            break
    while i < 3:
        pass
    else:
        out.append("w")
    return x * i, out


# with


class Manager:
    def __init__(self, log: Any, name: str, swallow: Any = False) -> None:
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self) -> Any:
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> Any:
        self.log.append((f"exit {self.name}", kind, str(value) if value is not None else None))
        return self.swallow


@contextlib.contextmanager
def managed(log: Any, fail: bool = False) -> Generator[Any]:
    log.append("in")
    try:
        yield len(log)
    except ValueError as e:
        log.append(("caught", str(e)))
        if fail:
            raise
    finally:
        log.append("out")


@program((0,), (1,))
def user_managers(x: Any, n: Any) -> Any:
    log: list[Any] = []
    with Manager(log, "a") as a, Manager(log, "b", swallow=True):
        log.append(a.name)
        if n:
            raise ValueError("inside")
        log.append("end")
    for i in range(3):
        with Manager(log, str(i)):
            if i == 1:
                break
    return x + 1, log


@program((0,), (1,), (2,))
def generator_managers(x: Any, n: Any) -> Any:
    log: list[Any] = []
    try:
        with managed(log, fail=n == 2) as k:
            y = x * k
            if n:
                raise ValueError("v")
            log.append("ok")
    except ValueError:
        log.append("again")
        y = x
    return y, log


@program((0,), (1,))
def library_managers(x: Any, n: Any) -> Any:
    log: list[Any] = []
    with contextlib.suppress(KeyError, ValueError):
        log.append(1)
        if n:
            raise ValueError
        log.append(2)
    with contextlib.nullcontext(3) as k:
        log.append(k)
    with contextlib.ExitStack() as stack:
        for i in range(2):
            stack.enter_context(Manager(log, str(i)))
        stack.callback(log.append, "callback")
        log.append("body")
    with contextlib.closing(Closed(log)) as c:
        log.append(c is not None)
    return x * 2, log


class Closed:
    def __init__(self, log: Any) -> None:
        self.log = log

    def close(self) -> None:
        self.log.append("closed")


@program()
def manager_returns(x: Any) -> Any:
    log: list[Any] = []

    def f() -> Any:
        with Manager(log, "m"):
            return 5

    def g() -> Any:
        with torch.no_grad(), Manager(log, "n"):
            return x * 2

    return f(), g(), log


# match


class Shape:
    __match_args__ = ("w", "h")

    def __init__(self, w: Any, h: Any) -> None:
        self.w, self.h = w, h


@program((1,), ("go",), ([1, 2],), ([1, 2, 3],), ((1, "x"),), ({"k": 5, "z": 6},), ({},))
def match_values(x: Any, v: Any) -> Any:
    match v:
        case 1 | 2:
            return x, "int", v is True
        case "go":
            return x, "str"
        case [a, b] if a == b:
            return x, "same"
        case [a, str(b)]:
            return x, a, b
        case [a, b]:
            return x, a + b
        case [a, *rest]:
            return x, a, rest
        case {"k": k, **rest}:
            return x, k, rest
        case {}:
            return x, "dict"
        case None:
            return x, "none"
        case float(f):
            return x, f
        case _:
            return x, "other"


LANGUAGE["match_other_values"] = Program(match_values, ((None,), (2.5,), (True,), (b"x",), (range(2),), ((1, 1),)), True)


@program()
def match_classes(x: Any) -> Any:
    out: list[Any] = []
    for v in (Shape(1, 2), Shape(None, x), Shape("a", [1, 2]), 5, "s", (1, (2, 3)), {"a": {"b": 1}}):
        match v:
            case Shape(1, h):
                out.append(h)
            case Shape(w=str(w), h=[_, last]):
                out.append((w, last))
            case Shape(w=w):
                out.append((w, v.h is x))
            case int(n) | str(n):
                out.append(n)
            case (1, (a, b)):
                out.append(a + b)
            case {"a": {"b": c}}:
                out.append(c)
    return x, out
