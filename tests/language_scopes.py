# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: generators, closures, functions, order of evaluation, output."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

from .language import breaks, program


# generators


@program()
def generator_protocol(x: Any) -> Any:
    log: list[Any] = []

    def g(n: Any) -> Any:
        got = None
        try:
            while n:
                got = yield (n, got)
                n -= 1
        finally:
            log.append("closed")
        return "result"

    a = g(2)
    first = next(a), a.send("x")
    try:
        next(a)
    except StopIteration as e:
        first = (*first, e.value)
    b = g(5)
    next(b)
    b.close()
    done = next(b, "done")
    c = g(1)
    c.close()
    return x, first, done, log, list(g(1)), next(c, "never")


@program()
def generator_throw(x: Any) -> Any:
    def g() -> Any:
        while True:
            try:
                yield 1
            except ValueError as e:
                yield f"caught {e}"

    a = g()
    next(a)
    got = a.throw(ValueError("v"))
    again = next(a)
    a.close()
    return x, got, again


@program()
def yield_from(x: Any) -> Any:
    def inner(n: Any) -> Any:
        got = yield n
        return (n, got)

    def outer() -> Any:
        a = yield from inner(1)
        b = yield from [10, 20]
        c = yield from (i for i in range(2))
        yield a, b, c

    g = outer()
    return x, next(g), g.send("s"), list(g)


@program()
def lazy_order(x: Any) -> Any:
    log: list[Any] = []

    def see(v: Any) -> Any:
        log.append(v)
        return v

    m = map(see, [1, 2, 3])
    log.append("made")
    next(m)
    z = zip(map(see, "ab"), map(see, "cd"), strict=True)
    list(z)
    f = filter(lambda v: see(v) % 2, range(4))
    log.append("filter made")
    rest = list(f), list(m)
    gen = (see(v) for v in see([7, 8]))
    log.append("gen made")
    any(v == 7 for v in gen)
    log.append("any done")
    return x, log, rest, list(gen)


@program()
def zip_stops(x: Any) -> Any:
    a, b = iter([1, 2, 3]), iter([1])
    first = list(zip(a, b, strict=False)), list(a)
    c, d = iter([1, 2, 3]), iter([1])
    second = list(zip(d, c, strict=False)), list(c)
    try:
        list(zip([1, 2], [1], strict=True))
    except ValueError as e:
        return x, first, second, str(e)


@program()
def escaping_values(x: Any) -> Any:
    def g() -> Iterator[Any]:
        for i in range(3):
            yield x + i

    return [v * 2 for v in g()], sum(v for v in g()), dict(enumerate(g())), max((v for v in range(3)), default=None), tuple(g())


@breaks()
def escaping_generator(x: Any) -> Any:
    def g() -> Iterator[Any]:
        yield 1
        yield 2

    y = x + 1
    return y, g()


@program()
def generator_errors(x: Any) -> Any:
    def g() -> Any:
        yield 1
        raise ValueError("in generator")

    def h() -> Any:
        yield 1
        raise StopIteration

    out: list[Any] = []
    for made in (g, h):
        try:
            for v in made():
                out.append(v)
        except (ValueError, RuntimeError) as e:
            out.append((type(e), str(e)))
    return x, out


@program()
def iterators(x: Any) -> Any:
    it = iter([1, 2, 3])
    first = next(it)
    rest = list(it)
    empty = next(it, "none")
    count = iter(lambda: len(rest2.append(0) or rest2), 3)
    rest2: list[Any] = []
    got = list(count)
    e = enumerate("ab", start=5)
    r = reversed([1, 2])
    return x, first, rest, empty, got, rest2, list(e), next(r), list(r), iter(it) is it, list(iter({"a": 1})), [*iter((1, 2))], 2 in iter([1, 2, 3])


@breaks()
def generator_dropped_inside_try(x: Any) -> Any:
    log: list[Any] = []

    def g() -> Iterator[Any]:
        try:
            yield 1
            yield 2
        finally:
            log.append("dropped")

    for v in g():
        log.append(v)
        break
    return x + 1, log


class Logged:
    """Writes down each comparison."""

    def __init__(self, v: Any, log: Any) -> None:
        self.v, self.log = v, log

    def __lt__(self, other: Any) -> Any:
        self.log.append(("lt", self.v, other.v))
        return self.v < other.v

    def __gt__(self, other: Any) -> Any:
        self.log.append(("gt", self.v, other.v))
        return self.v > other.v

    def __eq__(self, other: object) -> Any:
        self.log.append(("eq", self.v, getattr(other, "v", None)))
        return isinstance(other, Logged) and self.v == other.v

    def __hash__(self) -> int:
        self.log.append(("hash", self.v))
        return self.v % 2

    def __bool__(self) -> bool:
        self.log.append(("bool", self.v))
        return self.v > 0


@program()
def comparisons_are_made_once(x: Any) -> Any:
    log: list[Any] = []
    a, b, c, d = (Logged(v, log) for v in (3, 1, 2, 1))
    order = [v.v for v in sorted([a, b, c])], max(a, b, c).v, min(a, b, c).v, [v.v for v in sorted([a, b, c], reverse=True)]
    table = {a: 1, b: 2}
    table[d] = 3
    found = table[d], c in table, d in [a, b], [a, b, c].index(c), [b, d].count(d), (a, b) == (a, d), {b} == {d}, len(table), table.pop(b)
    return x, order, found, any([c, a]), all([a, b]), not a, a and b is b, bool(c), log


# scopes


@program((2,), (3,))
def closures(x: Any, n: Any) -> Any:
    total = 0

    def add(v: Any) -> Any:
        nonlocal total
        total += v
        return total

    def make(k: Any) -> Any:
        def inner(v: Any) -> Any:
            return v * k * n

        return inner

    fs = [make(k) for k in range(3)]
    add(5)
    add(n)
    return x * total, [f(2) for f in fs], total


@program()
def deleted_names(x: Any) -> Any:
    a = 1
    del a
    out: list[Any] = []
    try:
        out.append(a)
    except UnboundLocalError as e:
        out.append(str(e))
    b = 2

    def f() -> Any:
        return b

    del b
    try:
        f()
    except NameError as e:
        out.append((type(e).__name__, str(e)))
    try:
        out.append(b)  # the same cell, here a variable of this frame
    except NameError as e:
        out.append((type(e).__name__, str(e)))
    try:
        out.append(undefined_name)
    except NameError as e:
        out.append(str(e))
    return x, out


@program()
def recursion(x: Any) -> Any:
    def fact(n: Any) -> Any:
        return 1 if n < 2 else n * fact(n - 1)

    def flat(v: Any) -> Any:
        return [w for u in v for w in flat(u)] if isinstance(v, list) else [v]

    return x * fact(5), flat([1, [2, [3, x]], []])


@program()
def function_objects(x: Any) -> Any:
    def f(a: Any, b: Any = 2, *c: Any, d: Any = 4, **e: Any) -> Any:
        """Doc."""
        return a, b, c, d, e

    f.tag = 5
    g = lambda *a, **k: (a, k)
    return (
        (f(1), f(1, 3, 5, 6, d=7, z=8), f(*[1, 2, 3], **{"d": 0, "y": 1}), g(), g(1, k=2), (lambda: 7)(), (lambda a, /, b, *, c: (a, b, c))(1, b=2, c=3)),
        (f.__name__, f.tag, f.__doc__, g.__name__, callable(f), f.__defaults__, f.__kwdefaults__, type(f).__name__, f.__qualname__, f.__module__),
        x,
    )


def twice(fn: Any) -> Any:
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(fn(*args, **kwargs))

    return inner


@program()
def decorators(x: Any) -> Any:
    log: list[Any] = []

    def tagged(name: Any) -> Any:
        def wrap(fn: Any) -> Any:
            log.append(name)

            def inner(v: Any) -> Any:
                log.append((name, fn.__name__))
                return fn(v)

            return inner

        return wrap

    @tagged("a")
    @twice
    def f(v: Any) -> Any:
        return v * 2

    return f(x), log


@program()
def evaluation_order(x: Any) -> Any:
    log: list[Any] = []

    def s(v: Any) -> Any:
        log.append(v)
        return v

    def f(*a: Any, **k: Any) -> Any:
        log.append(("call", a, k))

    d: Any = {}
    d[s("k")] = s("v")
    f(s(1), *[s(2)], k=s(3), **{"m": s(4)})
    _ = s(5) if s(0) else s(6)
    _ = [s(7), s(8)][s(1)]
    _ = {s("a"): s("b"), s("c"): s("d")}
    a: Any = [0, 0]
    i = 0
    i, a[i] = 1, 2
    a[s(0)] += s(10)
    return x, log, a, i, s(1) + s(2) * s(3)


@program()
def augmented_assignment(x: Any) -> Any:
    a = b = [1]
    a += (2,)
    c = d = (1,)
    c += (2,)
    e = f = {1}
    e |= {2}
    g = "a"
    g *= 3
    n = 5
    n **= 2
    n //= 3
    n <<= 1
    n ^= 5
    y = x.clone()
    z = y
    z += 1
    return a is b, b, c is d, d, e is f, f, g, n, z is y, y


# output: a break, whose text appears at each call


@breaks((1,), (2,))
def printing(x: Any, n: Any) -> Any:
    y = x + 1
    print("value", n, y.shape)
    return y * 2


def advised(x: Any) -> Any:
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    return x + 1


@program()
def warning_first(x: Any) -> Any:
    return advised(x) * 2


@breaks()
def warning(x: Any) -> Any:
    y = x + 1
    warnings.warn("careful", UserWarning, stacklevel=1)
    return y * 2


@breaks()
def logged(x: Any) -> Any:
    y = x + 1
    logging.getLogger("language").warning("seen %s", 3)
    return y * 2
