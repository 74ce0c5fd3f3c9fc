# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: classes of the user."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, ClassVar

from .language import program


class Vec:
    """Operators, reflected and in place."""

    def __init__(self, *v: Any) -> None:
        self.v = list(v)

    def __add__(self, o: Any) -> Any:
        return Vec(*(a + b for a, b in zip(self.v, o.v, strict=True))) if isinstance(o, Vec) else NotImplemented

    def __radd__(self, o: Any) -> Any:
        return ("radd", o)

    def __mul__(self, k: Any) -> Any:
        return Vec(*(a * k for a in self.v))

    __rmul__ = __mul__

    def __iadd__(self, o: Any) -> Any:
        self.v = [a + o for a in self.v]
        return self

    def __neg__(self) -> Any:
        return Vec(*(-a for a in self.v))

    def __abs__(self) -> Any:
        return sum(abs(a) for a in self.v)

    def __invert__(self) -> str:
        return "inverted"

    def __matmul__(self, o: Any) -> Any:
        return sum(a * b for a, b in zip(self.v, o.v, strict=True))

    def __divmod__(self, o: Any) -> Any:
        return "divmod", o

    def __pow__(self, o: Any, m: Any = None) -> Any:
        return "pow", o, m

    def __eq__(self, o: object) -> Any:
        return isinstance(o, Vec) and self.v == o.v

    def __lt__(self, o: Any) -> Any:
        return self.v < o.v

    def __hash__(self) -> int:
        return hash(tuple(self.v))

    def __len__(self) -> int:
        return len(self.v)

    def __getitem__(self, i: Any) -> Any:
        return self.v[i]

    def __setitem__(self, i: Any, value: Any) -> None:
        self.v[i] = value

    def __delitem__(self, i: Any) -> None:
        del self.v[i]

    def __contains__(self, a: Any) -> bool:
        return any(a == b for b in self.v)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.v)

    def __reversed__(self) -> Any:
        return iter(self.v[::-1])

    def __call__(self, *a: Any, **k: Any) -> Any:
        return len(self), a, k

    def __bool__(self) -> bool:
        return bool(self.v) and any(self.v)

    def __repr__(self) -> str:
        return f"Vec{tuple(self.v)}"

    def __format__(self, spec: str) -> str:
        return f"<{spec}:{len(self.v)}>"

    def __int__(self) -> int:
        return 42

    def __float__(self) -> float:
        return 4.5

    def __index__(self) -> int:
        return 1

    def __round__(self, n: Any = None) -> Any:
        return "round", n


class SubVec(Vec):
    def __radd__(self, o: Any) -> Any:
        return ("sub radd", len(o))


@program()
def user_operators(x: Any) -> Any:
    a, b = Vec(1, 2), Vec(3, 4)
    c = a
    c += 1
    return (
        ((a + b).v, 5 + a, (a * 2).v, (2 * a).v, c is a, a.v, (-a).v, abs(a), ~a, a @ b, divmod(a, 3), a**2, pow(a, 2, 5)),
        (a == Vec(2, 3), a != b, a < b, a > b, len(a), a[0], 2 in a, 9 in a, list(a), list(reversed(a)), a(1, k=2), bool(Vec()), bool(a)),
        (
            repr(a),
            str(a),
            f"{a}",
            f"{a:>5}",
            f"{a!r}",
            int(a),
            float(a),
            [10, 20, 30][a],
            round(a),
            round(a, 2),
            operator.index(a),
            range(5)[a],
            Vec(1) + SubVec(1, 2),
        ),
        (x * Vec(2)[0], [*a], sum(a), max(a), sorted([b, a])[0] is a, Vec(x)[0] is x),
    )


@program()
def user_items(x: Any) -> Any:
    a = Vec(1, 2, 3)
    a[0] = x
    del a[1]
    a[-1] += 5
    p, q = a
    return p is x, q, a[0:1][0] is x, len(a), [v is x for v in a]


@program()
def user_operator_errors(x: Any) -> Any:
    out: list[Any] = []
    a: Any = Vec(1)
    n: Any = Bare()
    for f in (
        lambda: a + 5,
        lambda: n + n,
        lambda: n < n,
        lambda: -n,
        lambda: n[0],
        lambda: len(n),
        lambda: n(),
        lambda: 1 in n,
        lambda: [*n],
        lambda: n.q,
        lambda: a <= a,
        lambda: int(n),
        lambda: n @ 3,
        lambda: hash(Unhashable()),
    ):
        try:
            out.append(f())
        except (TypeError, AttributeError) as e:
            out.append(str(e))
    return x, out


class Bare:
    pass


class Unhashable:
    def __eq__(self, other: object) -> bool:
        return True


@program()
def user_keys(x: Any) -> Any:
    a, b = Vec(1, 2), Vec(1, 2)
    d = {a: "first"}
    d[b] = "second"
    bare = Bare()
    e = {bare: 1, Bare: 2, len: 3}
    return (
        len(d),
        d[Vec(1, 2)],
        next(iter(d)) is a,
        Vec(9) in d,
        e[bare],
        e[Bare],
        e[len],
        Bare() in e,
        len({a, b}),
        x,
        a in [b],
        [b].index(a),
        (a,) == (b,),
        hash(a) == hash(b),
    )


class Descriptor:
    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, cls: Any = None) -> Any:
        return self if obj is None else getattr(obj, self.name, "unset")

    def __set__(self, obj: Any, value: Any) -> None:
        setattr(obj, self.name, value * 2)

    def __delete__(self, obj: Any) -> None:
        delattr(obj, self.name)


class NonData:
    def __get__(self, obj: Any, cls: Any) -> Any:
        return "non-data", obj is None, cls.__name__


class Owner:
    d = Descriptor()
    n = NonData()
    count: ClassVar[int] = 3

    def __init__(self, v: Any) -> None:
        self._p = v

    @property
    def p(self) -> Any:
        return self._p

    @p.setter
    def p(self, v: Any) -> None:
        self._p = v + 1

    @p.deleter
    def p(self) -> None:
        self._p = "deleted"

    @property
    def readonly(self) -> Any:
        return self._p

    @classmethod
    def make(cls, v: Any) -> Any:
        return cls(v)

    @staticmethod
    def double(v: Any) -> Any:
        return v * 2

    @functools.cached_property
    def cached(self) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return [self._p]


@program()
def descriptors(x: Any) -> Any:
    o = Owner(1)
    unset = o.d
    o.d = 4
    o.p = 5
    first = o.p
    del o.p
    q = Owner.make(x)
    plain = o.n
    o.n = "own"
    missing: list[Any] = []
    for f in (lambda: o.nope, lambda: setattr(o, "readonly", 1), lambda: delattr(o, "readonly"), lambda: Owner.nope):
        try:
            f()
        except AttributeError as e:
            missing.append(str(e))
    del o.d
    return (
        unset,
        o.d,
        first,
        o.p,
        q.p is x,
        plain,
        o.n,
        Owner.n,
        Owner.double(3),
        o.double(4),
        o.count,
        missing,
        isinstance(Owner.d, Descriptor),
        o.cached is o.cached,
        o.calls,
        x + 1,
    )


class Dynamic:
    def __init__(self) -> None:
        self.__dict__["log"] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"no {name}")
        return f"got {name}"

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append((name, value))
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self.log.append(("del", name))
        super().__delattr__(name)


class Every:
    def __init__(self, v: Any) -> None:
        self.v = v

    def __getattribute__(self, name: str) -> Any:
        return ("every", object.__getattribute__(self, name)) if name == "v" else object.__getattribute__(self, name)


@program()
def attribute_hooks(x: Any) -> Any:
    d = Dynamic()
    d.a = 1
    d.b = d.c
    del d.a
    return d.a, d.b, d.log, hasattr(d, "_x"), hasattr(d, "y"), getattr(d, "_x", 5), Every(3).v, d.__dict__["b"], x * 2


class Base:
    registry: ClassVar[list[Any]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Base.registry.append(cls.__name__)

    def __init__(self, a: Any) -> None:
        self.a = a

    def who(self) -> Any:
        return ["base"]

    @property
    def size(self) -> Any:
        return 1

    @classmethod
    def kind(cls) -> Any:
        return cls.__name__


class Left(Base):
    def __init__(self, a: Any, b: Any = 2) -> None:
        super().__init__(a)
        self.b = b

    def who(self) -> Any:
        return ["left", *super().who()]

    @property
    def size(self) -> Any:
        return super().size + 1

    @classmethod
    def kind(cls) -> Any:
        return "left " + super().kind()


class Right(Base):
    def who(self) -> Any:
        return ["right", *super().who()]


class Both(Left, Right):
    def who(self) -> Any:
        return ["both", *super().who(), *Base.who(self), *super(Left, self).who()]


@program()
def inheritance(x: Any) -> Any:
    b = Both(x, b=5)
    f = b.who
    return (
        (b.who(), b.size, b.kind(), Both.kind(), b.a is x, b.b, f(), Left.who(b), Base.registry, isinstance(b, Right), issubclass(Both, Base), type(b) is Both),
        (
            [c.__name__ for c in Both.__mro__],
            Both.__bases__ == (Left, Right),
            Both.__name__,
            b.__class__ is Both,
            isinstance(b, (int, Left)),
            isinstance(3, int | str),
            f.__self__ is b,
        ),
        x,
    )


@program()
def attribute_functions(x: Any) -> Any:
    o: Any = Bare()
    setattr(o, "a" + "b", x)
    o.c = 1
    before = hasattr(o, "c"), getattr(o, "c"), getattr(o, "zz", 9), vars(o), o.__dict__ is vars(o), sorted(vars(o))
    delattr(o, "c")
    return (
        before[:4],
        before[5],
        hasattr(o, "c"),
        callable(o),
        callable(Bare),
        callable(len),
        o.ab is x,
        type(o).__name__,
        isinstance(o, object),
        len(o.__dict__),
    )


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


@program()
def slots(x: Any) -> Any:
    s: Any = Slotted(x)
    out: list[Any] = [hasattr(s, "b"), s.a is x]
    s.b = 2
    for f in (lambda: setattr(s, "c", 1), lambda: s.c, lambda: s.__dict__, lambda: delattr(s, "b"), lambda: s.b, lambda: delattr(s, "b")):
        try:
            out.append(f())
        except AttributeError as e:
            out.append(str(e))
    return x, out


@program((), whole=True)
def returned_objects(x: Any) -> Any:
    s = Slotted(x)
    b = Left(x + 1)
    b.me = [b.a, s]
    return b, s
