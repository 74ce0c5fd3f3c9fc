# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: the standard library's tools and the built-in functions."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from typing import Any

from .language import breaks, program
from .language_classes import Vec
from .language_records import Point


# functools, itertools, operator


def scaled(a: Any, b: Any = 2, *, c: Any = 3) -> Any:
    return a * b + c


def wrapper(fn: Any) -> Any:
    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


@wrapper
def wrapped(v: Any) -> Any:
    """Doc of wrapped."""
    return v + 1


@functools.lru_cache(maxsize=None)
def remembered(n: Any) -> Any:
    return n * 2


@functools.singledispatch
def shown(v: Any) -> Any:
    return "object"


@shown.register
def _(v: int) -> Any:
    return "int"


@shown.register(list)
def _(v: Any) -> Any:
    return "list"


@program()
def partials(x: Any) -> Any:
    p = functools.partial(scaled, b=5)
    q = functools.partial(p, x, c=1)
    r = functools.partial(max, 3)
    return (
        p(1),
        q(),
        q.args[0] is x,
        q.keywords,
        q.func is scaled,
        r(5),
        p(2, c=0),
        functools.reduce(operator.add, [[1], [2]], []),
        functools.reduce(lambda a, b: a * b, [1, 2, 3]),
        callable(p),
        list(map(functools.partial(pow, 2), range(3))),
    )


@program()
def wraps(x: Any) -> Any:
    @wrapper
    def local(v: Any) -> Any:
        """Local doc."""
        return v * 3

    return wrapped(x), wrapped.__name__, wrapped.__doc__, local(x), local.__name__, local.__doc__, wrapped.__wrapped__(1), local.__wrapped__(2)


@program((2,), (3,), whole=False)
def lru_caches(x: Any, n: Any) -> Any:
    return x * remembered(n), remembered(n)


@program()
def dispatch(x: Any) -> Any:
    return shown(1), shown([]), shown("s"), shown(True), x + 1


@functools.total_ordering
class Ranked:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, o: object) -> Any:
        return isinstance(o, Ranked) and self.n == o.n

    def __lt__(self, o: Any) -> Any:
        return self.n < o.n

    def __hash__(self) -> int:
        return 1


@program()
def orderings(x: Any) -> Any:
    a, b = Ranked(1), Ranked(2)
    return a <= b, a > b, a >= b, max(a, b).n, min([b, a]).n, [v.n for v in sorted([b, a])], sorted([3, 1], key=functools.cmp_to_key(lambda p, q: q - p)), x


@program()
def itertools_all(x: Any) -> Any:
    i = itertools
    return (
        (
            list(i.chain([1], (2,), "a")),
            list(i.chain.from_iterable([[1], [2]])),
            list(i.islice(range(10), 2, 8, 3)),
            list(i.islice(i.count(5, 2), 3)),
            list(i.repeat(1, 2)),
        ),
        (
            list(i.product("ab", [1, 2])),
            list(i.product([0, 1], repeat=2)),
            list(i.permutations([1, 2, 3], 2)),
            list(i.combinations("abc", 2)),
            list(i.combinations_with_replacement("ab", 2)),
        ),
        (
            list(i.accumulate([1, 2, 3])),
            list(i.accumulate([1, 2, 3], operator.mul, initial=1)),
            list(i.starmap(pow, [(2, 3)])),
            list(i.zip_longest("ab", [1], fillvalue=0)),
            list(i.pairwise([1, 2, 3])),
        ),
        (
            list(i.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(i.dropwhile(lambda v: v < 3, [1, 2, 3, 1])),
            list(i.filterfalse(lambda v: v % 2, range(5))),
            list(i.compress("abc", [1, 0, 1])),
        ),
        (
            [(k, list(g)) for k, g in i.groupby("aabbb")],
            [(k, sorted(g)) for k, g in i.groupby([1, 3, 2], key=lambda v: v % 2)],
            [next(c) for c in [i.cycle("ab")] for _ in range(3)],
        ),
        [list(t) for t in i.tee([1, 2], 2)],
        x,
    )


@program(([3, -1, 2],), (["b", "a"],), ([(1, "z"), (1, "a"), (0, "q")],))
def ordering_functions(x: Any, v: Any) -> Any:
    return (
        sorted(v),
        sorted(v, reverse=True),
        sorted(v, key=str),
        max(v),
        min(v),
        max(v, key=lambda a: str(a)),
        min(*v),
        max([], default="d"),
        sorted([(1, "b"), (0, "c"), (1, "a")], key=lambda p: p[0], reverse=True),
        sorted([2, 1.5, True]),
        x,
    )


@program()
def ordering_errors(x: Any) -> Any:
    out: list[Any] = []
    for f in (
        lambda: max([]),
        lambda: min(()),
        lambda: sorted([1, "a"]),
        lambda: max(1, "a"),
        lambda: sum(["a"]),
        lambda: sum("ab"),
        lambda: next(iter([])),
        lambda: iter(5),
        lambda: len(5),
        lambda: reversed({1}),
    ):
        try:
            out.append(f())
        except (ValueError, TypeError, StopIteration) as e:
            out.append((type(e), str(e)))
    return x, out


@program()
def sums(x: Any) -> Any:
    return (
        sum([1, 2], 3),
        sum([1.5, 2]),
        sum([[1], [2]], []),
        sum(range(5)),
        sum([True, True]),
        sum([], x) is x,
        sum([x, x]),
        sum((v for v in (0.1, 0.2, 0.3)), start=0.0),
        sum([1, x]),
    )


@program()
def operator_module(x: Any) -> Any:
    o = operator
    return (
        (
            o.add(1, 2),
            o.sub(3, 1),
            o.mul(2, 3),
            o.truediv(1, 2),
            o.floordiv(7, 2),
            o.mod(7, 3),
            o.neg(1),
            o.not_(0),
            o.and_(6, 3),
            o.xor(6, 3),
            o.lshift(1, 3),
            o.inv(5),
            o.pow(2, 3),
        ),
        (
            o.eq(1, 1.0),
            o.lt(1, 2),
            o.is_(None, None),
            o.contains([1], 1),
            o.getitem([1, 2], 1),
            o.concat([1], [2]),
            o.countOf([1, 1], 1),
            o.indexOf([1, 2], 2),
            o.length_hint([1, 2]),
        ),
        (
            o.itemgetter(1)([1, 2]),
            o.itemgetter(0, 2)("abc"),
            o.attrgetter("y")(Point(1)),
            o.attrgetter("y", "x")(Point(1)),
            o.methodcaller("norm")(Point(1)),
            o.iadd([1], [2]),
            o.matmul(Vec(1), Vec(2)),
        ),
        (o.add(x, 1), o.attrgetter("shape")(x), sorted([(1, 2), (0, 3)], key=o.itemgetter(1)), o.methodcaller("sum")(x), o.truth([]), o.call(len, [1])),
    )


@program()
def builtin_functions(x: Any) -> Any:
    return (
        (
            abs(-3),
            all([1, x.dim()]),
            any([0, ""]),
            bin(5),
            oct(8),
            hex(255),
            chr(97),
            ord("a"),
            divmod(-7, 2),
            pow(2, 10),
            round(3.14159, 2),
            repr([1, "a"]),
            ascii("é"),
            format(3.5, ".2f"),
        ),
        (
            len("abc"),
            list(map(str, range(3))),
            list(map(lambda a, b: a + b, [1, 2], [3, 4])),
            list(filter(None, [0, 1, "", "a"])),
            list(enumerate("ab", 1)),
            list(zip("ab", [1, 2], strict=True)),
        ),
        (
            int("12"),
            float("1.5"),
            str(12),
            str(b"a", "ascii"),
            bool("x"),
            list("ab"),
            tuple([1]),
            set([1]) == {1},
            dict(a=1),
            frozenset([1]),
            bytes(2),
            complex(1),
            slice(3),
            range(3),
            object is object,
        ),
        (isinstance(x, type(x)), hash(3), hash((1, 2)) == hash((1, 2)), sorted("ba"), reversed([1, 2]).__next__(), type(print).__name__),
    )


@breaks()
def signatures(x: Any) -> Any:
    return x + 1, list(inspect.signature(scaled).parameters)


@program((3, 1), (1, 3))
def properties_of_conditions(x: Any, a: Any, b: Any) -> Any:
    y = x if a > b else -x
    z = y * 2 if x.dim() == 2 and x.shape[0] > 1 else y
    while a != b:
        a, b = min(a, b), max(a, b) - 1
    return z, a, b


class Steps:
    """An iterator that starts anew for each loop."""

    def __init__(self, log: Any) -> None:
        self.log = log

    def __iter__(self) -> Any:
        self.log.append("iter")
        self.at = 0
        return self

    def __next__(self) -> Any:
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at


class Items:
    """Iterated the old way."""

    def __getitem__(self, i: Any) -> Any:
        if i > 2:
            raise IndexError
        return i * 10


@program()
def user_iterators(x: Any) -> Any:
    log: list[Any] = []
    s = Steps(log)
    out = [v for v in s], list(s), next(s, "end"), [v for v in Items()], 20 in Items(), list(zip(s, Items()))
    for v in iter(s):
        x = x + v
    it = iter(s)
    return x, out, log, next(it), next(it), it is s, (lambda *a: a)(*s), {*s} == {1, 2, 3}, max(s), sum(s)
