# pyright: basic, reportAttributeAccessIssue=false, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false, reportGeneralTypeIssues=false, reportUnsupportedDunderAll=false, reportAbstractUsage=false
# pyright: reportPossiblyUnboundVariable=false, reportUnhashable=false, reportUnboundVariable=false, reportUndefinedVariable=false, reportOptionalIterable=false, reportRedeclaration=false
# ruff: noqa - programs as users write them, in every style and with every mistake
"""Programs for test_language.py: dataclasses, enums, typing."""

from __future__ import annotations

import abc
import dataclasses
import enum
import typing
from typing import Any, Generic, NamedTuple, TypeVar, cast

from .language import breaks, program

T = TypeVar("T")


@dataclasses.dataclass
class Point:
    x: Any
    y: int = 2
    tags: list[Any] = dataclasses.field(default_factory=list[Any])
    hidden: int = dataclasses.field(default=0, repr=False, compare=False)

    def norm(self) -> Any:
        return self.y**2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: Any = dataclasses.field(default=1, kw_only=True)


@dataclasses.dataclass(slots=True)
class Slim:
    a: Any
    b: dataclasses.InitVar[int] = 3
    c: int = dataclasses.field(init=False)

    def __post_init__(self, b: int) -> None:
        self.c = b * 2


@dataclasses.dataclass
class Deeper(Point):
    z: int = 5


@program()
def dataclass_objects(x: Any) -> Any:
    p, q = Point(1), Point(1, 2, [])
    p.tags.append(5)
    r = dataclasses.replace(p, y=7)
    return (
        (p == q, p != q, p.tags is r.tags, r.y, p.norm(), repr(q), q.tags, Point(x).x is x, Deeper(1).z, Deeper(1) == Point(1), isinstance(Deeper(0), Point)),
        ([f.name for f in dataclasses.fields(p)], dataclasses.asdict(p), dataclasses.astuple(q), dataclasses.is_dataclass(p), dataclasses.is_dataclass(3)),
        x,
    )


@program()
def dataclass_kinds(x: Any) -> Any:
    f = Frozen(1, b=2)
    out: list[Any] = []
    try:
        f.a = 5
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    s = Slim(x, b=4)
    return (
        out,
        f < Frozen(2),
        f == Frozen(1, b=2),
        hash(f) == hash(Frozen(1, b=2)),
        {f: 1}[Frozen(1, b=2)],
        s.c,
        s.a is x,
        sorted([Frozen(3), f])[0] is f,
        dataclasses.replace(f, a=9),
        f,
    )


@program()
def returned_dataclasses(x: Any) -> Any:
    return Point(x + 1, tags=[x]), Frozen(1, b=x), Slim(x)


class Color(enum.Enum):
    RED = 1
    GREEN = "g"
    ALIAS = 1

    @property
    def lower(self) -> str:
        return self.name.lower()

    @classmethod
    def default(cls) -> Color:
        return cls.GREEN

    def plus(self, n: Any) -> Any:
        return (self.value, n)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()


class Word(str, enum.Enum):
    A = "a"


@program((Color.RED,), (Color.GREEN,))
def enums(x: Any, c: Any) -> Any:
    out: list[Any] = []
    try:
        Color("zzz")
    except ValueError as e:
        out.append(str(e))
    try:
        Color["NOPE"]
    except KeyError as e:
        out.append(str(e))
    return (
        (
            c.name,
            c.value,
            c is Color.RED,
            c == Color.RED,
            Color(1),
            Color["GREEN"],
            Color.ALIAS is Color.RED,
            list(Color),
            len(Color),
            c in Color,
            c.lower,
            c.plus(2),
        ),
        (Color.default(), isinstance(c, Color), repr(c), str(c), f"{c}", {Color.RED: 1}.get(c), type(c) is Color, hash(c) == hash(c)),
        (out, x * 2),
    )


@program((Level.LOW, Perm.R), (Level.HIGH, Perm.R | Perm.X))
def enum_kinds(x: Any, n: Any, p: Any) -> Any:
    return (
        (n + 1, n < Level.HIGH, n == 1, x * n, int(n), max(Level), f"{n}", [10, 20, 30, 40, 50, 60][n], sorted(Level), {1: "a"}.get(n), isinstance(n, int)),
        (p | Perm.W, Perm.R in p, bool(p & Perm.X), p.value, ~p, p ^ Perm.R, list(Perm), Perm(3), len(Perm), p == Perm.R),
        (Word.A == "a", Word.A.upper(), Word("a") is Word.A, "x" + Word.A),
    )


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self) -> Any: ...


class Concrete(Abstract):
    def f(self) -> Any:
        return "concrete"


class Box(Generic[T]):
    def __init__(self, v: T) -> None:
        self.v = v


class Item:
    def __class_getitem__(cls, k: Any) -> Any:
        return f"item {k}"


class Row(NamedTuple):
    a: Any
    b: int = 3

    def total(self) -> Any:
        return self.b + 1


@program()
def typing_tools(x: Any) -> Any:
    out: list[Any] = []
    try:
        Abstract()
    except TypeError as e:
        out.append(type(e))
    v = cast(int, 5)
    ann: list[int] = [v]
    return (
        Concrete().f(),
        Box[int](3).v,
        Box(x).v is x,
        Item[3],
        Row(1),
        Row(x, 5).total(),
        ann,
        out,
        isinstance([], typing.Sized),
        typing.TYPE_CHECKING,
        list[int]([1]),
        x,
    )


@breaks()
def local_classes(x: Any) -> Any:
    class Local:
        k = 3

        def f(self, v: Any) -> Any:
            return v * self.k

    return Local().f(x), Local.__name__


@program((3,), (4,))
def type_functions(x: Any, v: Any) -> Any:
    return type(v), type(v) is int, type(x).__name__, isinstance(v, (int, float)), isinstance(True, int), issubclass(bool, int), isinstance(x, object), type([]) == list, type(v)(7), type({})(), int.__name__, type(None) is type(None), hash("a") == hash("a"), isinstance(None, type(None)), callable(3)  # fmt: skip
