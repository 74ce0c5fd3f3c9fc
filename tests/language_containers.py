# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: containers, unpacking, comprehension."""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch

from .language import breaks, program


# containers


@program(([3, 1, 2],), ([],), ([1, 1.0, True],))
def list_methods(x: Any, items: Any) -> Any:
    a = list(items)
    a.append(5)
    a.extend((6, 7))
    a.insert(1, 8)
    b = a.copy()
    b.sort()
    b.reverse()
    last = a.pop()
    first = a.pop(0)
    a.remove(6)
    c = [*a, *b]
    c[1:2] = [9, 9]
    del c[-1], c[::3]
    c += "xy"
    c *= 2
    return a, b, last, first, c, a.index(8), a.count(5), 8 in a, a + b, a * 2, a == b, a < b, a[::-1], a[-2:], len(a), bool(a), x, items


@program()
def list_errors(x: Any) -> Any:
    out: list[Any] = []
    a: Any = [1, 2]
    for f in (
        lambda: a[5],
        lambda: a.pop(9),
        lambda: a.remove(7),
        lambda: a.index(7),
        lambda: [].pop(),
        lambda: a["k"],
        lambda: a + (1,),
        lambda: a.nope,
        lambda: (1, 2)[3],
        lambda: a < 3,
    ):
        try:
            out.append(f())
        except (LookupError, ValueError, TypeError, AttributeError) as e:
            out.append((type(e), str(e)))
    return x, out, a


@program(([1, 2, 3, 4, 5],))
def slices(x: Any, a: Any) -> Any:
    s = slice(1, None, 2)
    b = list(a)
    b[::2] = [0, 0, 0]
    c = list(a)
    c[1:1] = [7, 8]
    return (
        a[s],
        s.start,
        s.stop,
        s.step,
        s.indices(5),
        s == slice(1, None, 2),
        b,
        c,
        a[-3:-1],
        a[10:],
        a[::-2],
        (1, 2, 3)[:-1],
        "abc"[::-1],
        range(10)[2:5],
        x[s],
        repr(s),
    )


@program()
def slice_errors(x: Any) -> Any:
    out: list[Any] = []

    def assign() -> None:
        a = [1, 2, 3]
        a[::2] = [1]

    for f in (assign, lambda: [1][::0], lambda: [1]["a":], lambda: slice(1, "a").indices(3), lambda: (1,).__setitem__(0, 1)):
        try:
            out.append(f())
        except (ValueError, TypeError, AttributeError) as e:
            out.append((type(e), str(e)))
    return x, out


@program(({"a": 1, "b": 2},), ({},), ({1: "x", (1, 2): "y", None: "z"},))
def dict_methods(x: Any, given: Any) -> Any:
    d = dict(given)
    d["k"] = x
    d.setdefault("l", []).append(1)
    d.update({"m": 1}, n=2)
    d |= {"o": 3}
    e = {**d, "k": 0}
    gone = e.pop("m")
    none = e.pop("zz", None)
    last = e.popitem()
    del e["n"]
    return (
        list(d),
        list(d.keys()),
        list(e.values()),
        list(e.items()),
        gone,
        none,
        last,
        "k" in d,
        d.get("q"),
        d.get("q", 3),
        len(d),
        e | {"p": 1},
        list(reversed(e)),
        given,
    )


@program()
def dict_constructors(x: Any) -> Any:
    keys = ["a", "b"]
    a = dict(zip(keys, range(2), strict=True))
    b = dict([("a", 1)], b=2)
    c = dict.fromkeys(keys, 0)
    d = {k: v for v, k in enumerate(keys)}
    e = dict(a=1, **{"b": 2})
    return (
        a,
        b,
        c,
        d,
        e,
        a == d,
        {"a": 1, "b": 2} == {"b": 2, "a": 1},
        dict(),
        {1: {2: {3: x}}}[1][2],
        d.keys() & {"a"},
        d.keys() | {"z"} == {"a", "b", "z"},
        d.items() >= {("a", 0)},
    )


@program()
def dict_errors(x: Any) -> Any:
    out: list[Any] = []
    d: Any = {"a": 1}
    for f in (
        lambda: d["q"],
        lambda: d.pop("q"),
        lambda: {[]: 1},
        lambda: d[{}],
        lambda: d.nope,
        lambda: {}.popitem(),
        lambda: dict([1]),
        lambda: d < d,
        lambda: d[(1, [])],
        lambda: d + d,
    ):
        try:
            out.append(f())
        except (LookupError, ValueError, TypeError, AttributeError) as e:
            out.append((type(e), str(e)))
    return x, out


@program()
def dict_views(x: Any) -> Any:
    d = {"a": 1, "b": 2}
    keys, items, values = d.keys(), d.items(), d.values()
    before = len(keys), ("a", 1) in items, 2 in values, "a" in keys, list(items)
    d["c"] = 3
    return (
        before,
        len(keys),
        list(values),
        [*items],
        sorted(keys),
        set(keys) == {"a", "b", "c"},
        max(d, key=lambda k: d[k]),
        sum(values),
        x,
        keys == {"a", "b", "c"},
        keys - {"a", "b"},
    )


@program()
def dict_changed_while_iterated(x: Any) -> Any:
    d = {"a": 1, "b": 2}
    out: list[Any] = []
    try:
        for k in d:
            d[k + "x"] = 1
            out.append(k)
    except RuntimeError as e:
        out.append(str(e))
    for k in list(d):
        del d[k]
    e = {1: 1, 2: 2}
    for k in e:
        e[k] = k * 10
    return x, out, d, e


@program()
def list_changed_while_iterated(x: Any) -> Any:
    a = [1, 2, 3, 4]
    seen: list[Any] = []
    for v in a:
        seen.append(v)
        if v % 2:
            a.remove(v)
    b = [1]
    for v in b:
        if v < 5:
            b.append(v + 1)
    return x, a, seen, b


@program()
def set_methods(x: Any) -> Any:
    a, b = {1, 2, 3}, {3, 4}
    c = a.copy()
    c.add(9)
    c.discard(1)
    c.discard(77)
    c.remove(2)
    d = set(a)
    d |= b
    d -= {1}
    d &= {2, 3, 4}
    d ^= {2, 8}
    f = frozenset(a)
    return a | b, a & b, a - b, a ^ b, c, d, f | b, a <= {1, 2, 3, 4}, a < a, a >= {1}, a.isdisjoint({7}), a.union([5], (6,)), a.intersection(b), a.difference(b), a.symmetric_difference(b), a == {3, 2, 1}, f == a, len(a), 2 in a, sorted(a), x, bool(set()), sum(a), max(b), {x} == {x}  # fmt: skip


@program()
def set_errors(x: Any) -> Any:
    out: list[Any] = []
    for f in (lambda: {1}.remove(2), lambda: {[]}, lambda: {1} + {2}, lambda: set(5), lambda: set().pop(), lambda: {1} | [2], lambda: frozenset().add(1)):
        try:
            out.append(f())
        except (KeyError, TypeError, AttributeError) as e:
            out.append((type(e), str(e)))
    return x, out


@program(((1, 2, 3),), ((),))
def tuple_methods(x: Any, t: Any) -> Any:
    return (
        t + (4,),
        t * 2,
        t[1:],
        t.count(1),
        t == (1, 2, 3),
        t < (2,),
        len(t),
        bool(t),
        (1, 2) in [(1, 2)],
        {t: 1}[t],
        hash(t) == hash(t),
        (*t, *t),
        tuple(t) is t,
        x,
        tuple(v for v in t),
        (t, [t]),
    )


@program(([1, 2, 3, 4],), ((1, 2),))
def unpacking(x: Any, items: Any) -> Any:
    a, *b = items
    *c, d = items
    e, f, *g = items
    (h, i), j = (a, d), b
    [k, [l]] = [1, [2]]
    for m, (n, o) in [(1, (2, 3)), (4, (5, 6))]:
        a += m + n + o
    p = q = [a]
    first, second = second, first = 1, 2
    return a, b, c, d, e, f, g, h, i, j, k, l, p is q, first, second, [*items, *"ab"], {**{"a": 1}, "a": 2}, x * a


@program((1,), ([1, 2, 3],), ([1],), ("ab",), (None,))
def unpacking_errors(x: Any, v: Any) -> Any:
    out: list[Any] = []
    for f in (lambda: [a for a, b in [v]], lambda: (lambda p, *q: (p, q))(*v), lambda: [*v]):
        try:
            out.append(f())
        except (ValueError, TypeError) as e:
            out.append((type(e), str(e)))
    return x, out


@program((4,), (0,))
def walrus(x: Any, n: Any) -> Any:
    out = [y for i in range(n) if (y := i * 2) > 2]
    if (m := len(out)) > 1:
        x = x * m
    while (n := n - 1) > 0:
        out.append(n)
    return x, out, m, n


@program()
def comprehensions(x: Any) -> Any:
    i = "kept"
    a = [i for i in range(3)]
    b = {i: j for i in range(2) for j in range(3) if i != j}
    c = {i % 2 for i in range(5)}
    d = [[i * j for i in range(2)] for j in range(2)]
    e = tuple(i for i in a if i)
    f = [(lambda: i)() for i in range(2)]
    g = [x * i for i in range(2)]
    return i, a, b, c, d, e, f, g, [k for k in "ab" for _ in range(2)], [i for i in [i for i in range(3)]], list({**{str(i): i for i in a}})


@program()
def comprehension_scopes(x: Any) -> Any:
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    try:
        [1 // j for j in (1, 0)]
    except ZeroDivisionError:
        j = "error"
    return x, [f() for f in fs], [g() for g in gs], j, [[k, fs[0]()] for k in range(2)]


@program()
def identity(x: Any) -> Any:
    a: list[Any] = []
    b: list[Any] = []
    y = x + 1
    return a is a, a is b, a == b, x is x, y is x, [y][0] is y, None is None, (a, a), [b] * 2, {"a": a}["a"] is a, y in [y], type(a) is list, int is int, ... is ...  # fmt: skip


@program()
def shared_and_nested(x: Any) -> Any:
    row = [0] * 2
    grid = [row] * 2
    grid[0][1] = x
    other = [[0] * 2 for _ in range(2)]
    other[0][1] = 5
    return grid[1][1] is x, other, grid[0] is grid[1]


@program(([1, [2, 3]], {"a": [1]}))
def copies(x: Any, items: Any, d: Any) -> Any:
    a = copy.copy(items)
    b = copy.deepcopy(items)
    c = copy.copy(d)
    e = copy.deepcopy(d)
    b[1].append(4)
    e["a"].append(2)
    both = [b, b]
    deep = copy.deepcopy(both)
    return (
        a,
        b,
        c,
        e,
        a[1] is items[1],
        b[1] is items[1],
        c["a"] is d["a"],
        deep[0] is deep[1],
        items,
        d,
        copy.copy((1, 2)),
        copy.deepcopy("s"),
        copy.copy({1}),
        x,
    )


Pair = collections.namedtuple("Pair", ["left", "right"], defaults=[7])


@program()
def named_tuples(x: Any) -> Any:
    p = Pair(1)
    q = Pair(left=x, right=2)
    r = p._replace(right=3)
    left, right = p
    return p, q.left is x, q, r, p[0], p.right, left + right, p._asdict(), Pair._fields, Pair._make([1, 2]), p == (1, 7), p < r, len(p), p + (1,), p[::-1], isinstance(p, tuple), type(p) is Pair, repr(p), hash(p) == hash((1, 7)), {p: 1}[(1, 7)], 7 in p, Pair(*[1, 2]), p.count(1), [v for v in p]  # fmt: skip


@program()
def deques(x: Any) -> Any:
    d = collections.deque([1, 2, 3], maxlen=4)
    d.append(4)
    d.append(5)
    d.appendleft(0)
    a = list(d)
    d.rotate(1)
    b = d.pop()
    c = d.popleft()
    d.extend([x])
    e = collections.deque("abc")
    e.extendleft("xy")
    e.reverse()
    e.insert(1, "q")
    e.remove("a")
    return (
        a,
        list(d),
        b,
        c,
        list(e),
        len(d),
        d.maxlen,
        e[0],
        e[-1],
        "q" in e,
        e.index("q"),
        e.count("b"),
        bool(collections.deque()),
        d[2] is x,
        e == collections.deque("abc"),
        e.maxlen,
    )


@program()
def default_dicts(x: Any) -> Any:
    d: Any = collections.defaultdict(list)
    d["a"].append(1)
    d["b"] += [2, 3]
    c: Any = collections.defaultdict(int)
    for k in "abca":
        c[k] += 1
    n: Any = collections.defaultdict(lambda: collections.defaultdict(int))
    n["x"]["y"] += 1
    return (
        dict(d),
        dict(c),
        c["zz"],
        "q" in d,
        d.get("q"),
        len(d),
        list(d),
        {k: dict(v) for k, v in n.items()},
        d.default_factory is list,
        x,
        isinstance(d, dict),
    )


@program()
def returned_default_dict(x: Any) -> Any:
    d: Any = collections.defaultdict(list)
    d["a"].append(x)
    return d, collections.OrderedDict(a=1)


@program()
def ordered_dicts(x: Any) -> Any:
    d = collections.OrderedDict([("a", 1), ("b", 2)])
    d["c"] = x
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    order = list(d)
    last = d.popitem()
    first = d.popitem(last=False)
    e = collections.OrderedDict(b=1, a=2)
    f = collections.OrderedDict(a=2, b=1)
    return order, last, first, d, e == f, e == {"a": 2, "b": 1}, list(reversed(e)), list(e.items())


@breaks((["a", "b", "a"],), ("hello",))
def counters(x: Any, items: Any) -> Any:
    c = collections.Counter(items)
    c.update("a")
    c["z"] += 2
    return (
        dict(c),
        c["missing"],
        c.most_common(1),
        sum(c.values()),
        c.total(),
        sorted(c.elements()),
        dict(c + collections.Counter("a")),
        dict(c - collections.Counter("a")),
        len(c),
        x,
    )


@program()
def chain_maps(x: Any) -> Any:
    c: Any = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return c["a"], c["b"], "b" in c, dict(c), len(c), c.get("q", 5), x, c.new_child({"b": 9})["b"], c.maps


@program((range(5),), (range(10, 0, -3),), (range(0),))
def ranges(x: Any, r: Any) -> Any:
    return (
        list(r),
        len(r),
        r[:2],
        4 in r,
        r.start,
        r.step,
        sum(r),
        list(reversed(r)),
        r == range(5),
        r.count(1),
        bool(r),
        [x + i for i in r],
        max(r, default=None),
        tuple(r),
        2.0 in r,
    )


@program((), whole=True)
def tensors_in_containers(x: Any) -> Any:
    d = {"x": x, x: "by tensor"}
    d[x] = "again"
    items = [x, x + 1]
    return d["x"] is x, d[x], x in d, items.index(x), len({x, x}), items[0] is x, tuple(items), {"y": items[1]}, torch.stack(items)
