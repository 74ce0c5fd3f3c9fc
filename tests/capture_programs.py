"""Programs for capture: those it takes whole, and those it leaves to Python with a reason. Small, one Python feature or habit each."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import random
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils._pytree import tree_map

Args = Callable[[], tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Args]] = {}
REFUSED: dict[str, tuple[Callable[..., Any], Args, str]] = {}
SCALES = [1.0, 2.0, 3.0]
CONFIG: dict[str, Any] = {"a": 2.0, "b": {"c": [1, 2]}}
counter = 0


def rows() -> tuple[torch.Tensor]:
    return (torch.randn(4, 8),)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randn(4, 8)


def leaf() -> tuple[torch.Tensor]:
    return (torch.randn(4, 8, requires_grad=True),)


def program(args: Args = rows) -> Callable[[Any], Any]:
    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = (fn, args)
        return fn

    return enter


def refused(reason: str, args: Args = rows) -> Callable[[Any], Any]:
    def enter(fn: Callable[..., Any]) -> Callable[..., Any]:
        REFUSED[fn.__name__] = (fn, args, reason)
        return fn

    return enter


# tensors


@program()
def tiny(x: Any) -> Any:
    return x + 1


@program(pair)
def chain(x: Any, y: Any) -> Any:
    return torch.tanh(x * y).sum() + x.mean()


@program(leaf)
def requires_grad_as_it_is(x: Any) -> Any:
    y = x.detach().clone().requires_grad_(False)
    y.requires_grad = False
    return x.requires_grad_() * y.requires_grad_(requires_grad=False)


@program(pair)
def operators(x: Any, y: Any) -> Any:
    return x.T, x.mT, -x, ~(x > 0), abs(x), x**2, 2**x, 1 - x, 1 / x, x // 2, x % 2, 3 // y, x @ y.T, x < y, (x == y).any(), x.round(), +x, x == "no"


@program(lambda: (torch.randn(4, 8), torch.tensor([0, 2])))
def indexing(x: Any, i: Any) -> Any:
    return x[0], x[:, 1:3], x[..., None], x[i], x[i, 0], x[None, :, -1], x[[0, 1]], x[torch.tensor([1, 0])], x[:, i], x[1:, ::2]


@program(lambda: (torch.randn(4, 8), torch.tensor([0, 1, 2, 3])))
def lookups(x: Any, i: Any) -> Any:
    return F.embedding(i, x), x.gather(0, i[:, None]), x.index_select(0, i), x.scatter(0, i[:, None], 1.0), x.masked_fill(x > 0, 0)


@program(pair)
def in_place(x: Any, y: Any) -> Any:
    x.add_(1)
    y += x
    z = x.clone()
    z[0] = 5
    z[:, 1] *= 2
    z[z > 1] = 0
    return z, x, torch.relu_(y), torch.add(x, 1, out=y)


@program(leaf)
def writes_into_new(x: Any) -> Any:
    z = torch.zeros(4, 8)
    z[:] = x
    z[torch.tensor([1, 2])] = 5
    return z, z.requires_grad


@program()
def results_with_names(x: Any) -> Any:
    values, indices = x.max(1)
    ordered = torch.sort(x, 1)
    return values, indices, ordered.values, ordered[1], x.topk(2).indices, ordered


@program()
def metadata(x: Any) -> Any:
    first, *rest = x.shape
    flat = x.view(-1, first) if x.dim() == 2 and x.size(0) > 2 else x
    return flat, rest, x.shape, x.numel(), x.stride(), x.dtype, x.device, x.size(), len(x), x.is_contiguous(), x.requires_grad, x.is_leaf


@program(lambda: (torch.arange(3), torch.float64))
def conversions(x: Any, dtype: Any) -> Any:
    return x.to(dtype) / 2, x.float(), x.to(x), x.type(torch.float64), x.new_zeros(3), torch.zeros_like(x), x.new_tensor([1, 2]), x.long()


@program()
def creation(x: Any) -> Any:
    made = torch.tensor([1, 2.5]), torch.tensor(3), torch.arange(0, 10, 2), torch.full((2, 2), 7), torch.eye(3, dtype=torch.int32)
    return *made, torch.linspace(0, 1, 5), torch.ones(2, device=x.device), torch.empty(0).shape


@program()
def pieces(x: Any) -> Any:
    for row in x:
        x = x + row
    a, b, *_ = x
    return a + b, [r.sum() for r in x], x.unbind(1)[0], x.split([3, 5], 1), torch.chunk(x, 2), torch.stack((a, b)), torch.einsum("ij,kj->ik", x, x)


@program()
def random_numbers(x: Any) -> Any:
    return F.dropout(x, 0.5) + torch.randn(8) + torch.rand_like(x)


@program()
def one_object(x: Any) -> Any:
    y = x + 1
    return x, y, (y, x), x.contiguous() is x, y is x, x.float()


@program(leaf)
def grad_modes(x: Any) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    with torch.set_grad_enabled(False):
        c = x * 4
    return a, b, c, x * 5, torch.is_grad_enabled()


@torch.no_grad()
def without_grad(x: Any) -> Any:
    return x * 2


@program(leaf)
def decorated(x: Any) -> Any:
    return without_grad(x) + scaled(x) + scaled(x, by=3)


@program(lambda: (torch.randn(3, requires_grad=True),))
def gradient_of_a_leaf(x: Any) -> Any:
    return x.grad, x * 2


# Python


def scaled(x: Any, by: float = 2) -> Any:
    return x * by


@program(lambda: (torch.randn(3), 1, (2, 3), 4))
def arguments(x: Any, *rest: Any, by: Any = (2,), **more: Any) -> Any:
    a, *b = rest
    (c, d), e = b[0], b[1]
    return x * a + c + d + e, b, more, by


@program()
def closures(x: Any) -> Any:
    seen = [0]

    def step(y: Any) -> Any:
        nonlocal times
        times = times + 1
        seen.append(times)
        return y * times

    times = 1
    late = [lambda: i for i in range(3)]  # noqa: B023 - all see the last one
    bound = [lambda i=i: i for i in range(3)]
    return step(step(x)), seen, times, [f() for f in late], [f() for f in bound]


@program(lambda: (torch.randn(3), ["a", "b", "c"]))
def comprehensions(x: Any, names: Any) -> Any:
    table = {k: x * i for i, k in enumerate(names)}
    grid = [[a * b for b in range(a)] for a in range(4)]
    return [table[k] for k in sorted(names, reverse=True)], grid, {k for k in names if k != "b"} == {"a", "c"}


@program()
def lazy_generator(x: Any) -> Any:
    log: list[Any] = []

    def make() -> Iterator[Any]:
        for i in range(3):
            log.append(("make", i))
            yield x + i

    for i, v in enumerate(make()):
        log.append(("use", i))
        x = x + v
        if i == 1:
            break
    return x, log


@program()
def generators(x: Any) -> Any:
    def inner() -> Any:
        got = yield 1
        yield got
        return 5

    def outer() -> Any:
        got = yield from inner()
        yield got

    it = inner()
    return x, next(it), it.send(9), list(outer()), next(iter(()), 3), sum(x.add(i) for i in range(3))


@program(lambda: (torch.zeros(2),))
def summed_while_changed(x: Any) -> Any:
    return sum(x.add_(1) for _ in range(3))


@program()
def sums(x: Any) -> Any:
    return sum([0.1] * 10), sum([0.1, 0.2, x.sum(), 0.3]), sum([[1], [2]], []), math.fsum([0.1] * 10), math.prod([2, x.sum()])  # noqa: RUF017


@program()
def containers(x: Any) -> Any:
    a, b = 1, 2
    a, b = b, a
    items = list(range(10))[::2]
    items[1:2] = [7, 8]
    del items[0]
    items.sort(reverse=True)
    items += [a]
    items *= 2
    table: dict[str, Any] = {**{"a": 1}, "b": b}
    table |= {"c": 3}
    table.pop("a")
    table.setdefault("z", []).append(1)
    both = {1, 2, 3} & {2, 3, 4}
    return items, (1, 2, 3)[1:], sorted(both), len(both), table, frozenset([1]), x[slice(1, 3)], [*items, *table], max(items, key=lambda v: -v), min(3, 4)


@program(lambda: (torch.randn(3), {"a": torch.randn(3), "b": torch.randn(3)}))
def dict_argument(x: Any, d: Any) -> Any:
    return list(d), [v * 2 for v in d.values()], d.get("q", 5), "a" in d, {**d}["b"], d["a"] + x, [k for k, _ in d.items()]


@program()
def text(x: Any) -> Any:
    return f"{x.shape[0]}-{3.14159:.2f}-{'a'!r}-{x.dtype}", "%s-%d" % ("a", 3), "{:>3}".format(4), "a-b".split("-"), str(None), repr(x.shape), "x".join("ab")  # noqa: UP031, UP032


@program()
def numbers(x: Any) -> Any:
    return int(3.7), round(2.567, 1), divmod(7, 2), math.sqrt(4.0) * x, pow(2, 3), 7 // 2, -7 % 3, 2**-1, bool([]), float("inf"), abs(-3), 1 < 2 <= 2, not 0


@program()
def functional_tools(x: Any) -> Any:
    triple = functools.partial(scaled, by=3)
    product = functools.reduce(lambda a, b: a * b, [x, x, x])
    chained = list(itertools.chain([1], (2,), itertools.islice(itertools.count(5), 2)))
    return (
        triple(x),
        product,
        list(map(lambda v: v + 1, [x, x])),
        list(filter(None, [0, 1])),
        chained,
        list(zip("ab", itertools.count(), strict=False)),
        list(reversed([1, 2])),
    )


@program()
def exceptions(x: Any) -> Any:
    log: list[Any] = []
    for i in range(3):
        try:
            if i == 1:
                raise KeyError("k")
            log.append(i)
        except KeyError as error:
            log.append(str(error))
            continue
        finally:
            log.append("finally")
        log.append("end")
    else:
        log.append("else")
    for broken in (lambda: {}["q"], lambda: [1][5], lambda: int("z"), lambda: (1).foo):  # type: ignore[attr-defined]
        try:
            broken()
        except (LookupError, ValueError, AttributeError) as error:
            log.append((type(error).__name__, str(error)))
    try:
        next(iter([]))
    except StopIteration:
        return x * len(log), log


class Manager:
    def __init__(self, swallow: bool = False) -> None:
        self.swallow = swallow

    def __enter__(self) -> Manager:
        self.k = 3
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.k = 2
        return self.swallow and kind is ValueError


@contextlib.contextmanager
def plus_one(v: int) -> Generator[int]:
    yield v + 1


@program()
def managers(x: Any) -> Any:
    y = x
    with Manager() as m:
        y = y * m.k
    with Manager(True):
        y = y + 1
        raise ValueError
    with plus_one(3) as k, contextlib.nullcontext(5) as n:
        y = y * k + n
    return y * m.k


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    k: int = 3


@dataclasses.dataclass
class Bag:
    items: list[Any] = dataclasses.field(default_factory=list[Any])
    tag: str = "t"


class Named(NamedTuple):
    a: Any
    b: int


@program(lambda: (torch.randn(3), Point(torch.randn(3)), Named(torch.randn(3), 2)))
def records(x: Any, p: Any, n: Any) -> Any:
    q = dataclasses.replace(p, k=p.k + 1)
    bag = Bag()
    bag.items.append(x * 2)
    made = Named(n.a * 2, x)
    return q, bag, q == p if isinstance(p.k, str) else q.k, made, made.a + n.b, made._replace(a=x), bag.tag


class Number:
    """A class with operators of its own."""

    scale = 2

    def __init__(self, v: Any) -> None:
        self.v = v

    def __add__(self, other: Any) -> Number:
        return Number(self.v + (other.v if isinstance(other, Number) else other))

    __radd__ = __add__

    def __getitem__(self, i: int) -> Any:
        return self.v + i

    def __len__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.v == other.v

    def __hash__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])

    def __contains__(self, i: object) -> bool:
        return i == 7

    def __call__(self, x: Any) -> Any:
        return x + self.v

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Number!"

    @property
    def double(self) -> Any:
        return self.v * self.scale

    @classmethod
    def of(cls, v: Any) -> Number:
        return cls(v)


@program()
def user_class(x: Any) -> Any:
    v = Number(2) + Number.of(3) + 1
    w: Any = 1 + v
    w.extra = 5
    return x * w.v, len(v), list(v), 7 in v, v == w, v != w, v(x), 1 if v else 2, str(v), v[2], v.double, hasattr(v, "nope"), getattr(w, "extra", 0)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a
        self.b = 2


@program(lambda: (torch.randn(3), Slotted(2)))
def slots(x: Any, p: Any) -> Any:
    return x * p.a * Slotted(3).a + p.b


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    def twice(self) -> int:
        return self.value * 2


@program(lambda: (torch.randn(3), Color.RED))
def enums(x: Any, c: Any) -> Any:
    return x * c.value * c.twice() + (1 if c is Color.RED else 0), Color(2).name, c == Color.GREEN


@program()
def globals_and_library(x: Any) -> Any:
    from torch.nn import functional as functional

    return functional.relu(x) * SCALES[1] * CONFIG["a"] + CONFIG["b"]["c"][0] + len(CONFIG) + math.pi


@program()
def trees(x: Any) -> Any:
    return tree_map(lambda v: v + 1, {"a": x, "b": [x, x]})


@program()
def matching(x: Any) -> Any:
    match (1, [2, 3]):
        case (a, [b, *c]):
            return x * a * b + c[0]
        case _:
            return x


@program()
def loops(x: Any) -> Any:
    if (n := x.shape[0]) > 2:
        x = x * n
    while n > 0:
        x = x + n
        n -= 1
    assert x.dim() == 2, "never"
    return x if isinstance(x, (int, torch.Tensor)) and type(x) is torch.Tensor and not isinstance(x, nn.Parameter) else None


@program()
def recursion(x: Any) -> Any:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return x * fib(8)


@program(lambda: tuple(torch.randn(2, 2, 8, 4) for _ in range(3)))
def attention_written_out(q: Any, k: Any, v: Any) -> Any:
    s = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5)
    n = s.shape[-1]
    s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=s.device).triu(1), float("-inf"))
    return s.softmax(-1) @ v


@program(lambda: (torch.randn(4, 8), torch.zeros(8), torch.ones(8)))
def functional(x: Any, mean: Any, var: Any) -> Any:
    normed = F.batch_norm(x, mean, var, training=True), F.normalize(x), F.layer_norm(x, x.shape[-1:])
    return *normed, F.pad(x, (1, 1)), F.softmax(x, -1), F.log_softmax(x, 1), F.mse_loss(x, x * 2), F.leaky_relu(x), F.interpolate(x[None], 16)


# modules


class Block(nn.Module):
    """A GPT-2 style block."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.h, self.n1, self.n2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in self.qkv(self.n1(x)).split(d, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 50, d: int = 32, length: int = 16) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, idx: Any, targets: Any = None) -> Any:
        _, t = idx.size()
        x = self.token(idx) + self.position(torch.arange(t, device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(24))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def conv_net() -> nn.Module:
    def stage(i: int, o: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

    return nn.Sequential(stage(3, 8), stage(8, 8), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10), nn.SiLU())


class Base(nn.Module):
    K = 3

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.scale = 2.0
        self.by_name = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])
        self.register_buffer("buf", torch.ones(8))
        self.plain, self.nothing = [nn.Linear(8, 8)], None

    def act(self, x: Any) -> Any:
        return torch.relu(x)

    @property
    def gain(self) -> float:
        return self.scale * 2

    @staticmethod
    def plus(x: Any) -> Any:
        return x + 1

    @classmethod
    def times(cls, x: Any) -> Any:
        return x * cls.K

    def forward(self, x: Any) -> Any:
        return self.act(self.lin(x)) * self.gain


class Derived(Base):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        for _, m in self.by_name.items():
            y = m(y)
        for w in self.weights:
            y = y * w
        if self.training:
            y = self.plain[0](y) * 2
        if self.nothing is None and not hasattr(self, "nope") and getattr(self, "other", 1) == 1:
            y = self.plus(self.times(y)) + self.buf
        return y + self.by_name["a"](x) + len(self.by_name) + (1 if "a" in self.by_name else 0)


def replaced_forward() -> nn.Module:
    m = nn.Linear(8, 8)
    m.forward = lambda x: x * 5  # type: ignore[method-assign]
    return nn.Sequential(m)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


MODULES: dict[str, tuple[Callable[[], nn.Module], Args]] = {
    "block": (lambda: Block(32, 4), lambda: (torch.randn(2, 8, 32),)),
    "gpt": (GPT, lambda: (torch.randint(0, 50, (2, 8)),)),
    "gpt with loss": (GPT, lambda: (torch.randint(0, 50, (2, 8)), torch.randint(0, 50, (2, 8)))),
    "24 layers": (Deep, rows),
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), rows),
    "conv net": (conv_net, lambda: (torch.randn(2, 3, 16, 16),)),
    "derived": (Derived, rows),
    "replaced forward": (replaced_forward, rows),
    "encoder": (encoder, lambda: (torch.randn(2, 6, 32),)),
    "attention": (lambda: nn.MultiheadAttention(32, 4, batch_first=True), lambda: tuple(torch.randn(2, 5, 32) for _ in range(3))),
    "lstm": (lambda: nn.LSTM(8, 8), lambda: (torch.randn(3, 2, 8),)),
    "cross entropy": (nn.CrossEntropyLoss, lambda: (torch.randn(4, 8), torch.tensor([1, 2, 3, 4]))),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Identity()), rows),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), rows),
}


# what is left to Python


@refused("data-dependent-branch")
def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


@refused("data-dependent-branch")
def truth(x: Any) -> Any:
    return bool(x.sum())


@refused("tensor-to-python")
def item(x: Any) -> Any:
    return x.sum().item()


@refused("tensor-to-python")
def formatted(x: Any) -> Any:
    return f"{x}"


@refused("tensor-to-python")
def percent(x: Any) -> Any:
    return "%s" % x  # noqa: UP031


@refused("tensor-to-python")
def to_numpy(x: Any) -> Any:
    return x.numpy()


@refused("numpy")
def from_numpy(x: Any) -> Any:
    return x + float(np.float64(1.0))


@refused("dynamic-shape")
def nonzero(x: Any) -> Any:
    return x.nonzero()


@refused("output")
def printed(x: Any) -> Any:
    print(x)


@refused("output")
def warned(x: Any) -> Any:
    y = x + 1
    warnings.warn("careful", UserWarning, stacklevel=1)
    return y


@refused("random")
def drawn(x: Any) -> Any:
    return x * random.random()


@refused("random")
def seeded(x: Any) -> Any:
    torch.manual_seed(0)
    return torch.randn(3)


@refused("side-effect")
def writes_tensor_attribute(x: Any) -> Any:
    x.note = 1
    return x


@refused("side-effect")
def leaves_grad_off(x: Any) -> Any:
    torch._C._set_grad_enabled(False)
    return x * 2


@refused("raise")
def raises(x: Any) -> Any:
    raise ValueError(f"bad {x.shape[0]}")


@refused("op-error")
def wrong_shape(x: Any) -> Any:
    return x.view(3, 3)


@refused("raise")
def wrong_call(x: Any) -> Any:
    return scaled(x, nothing=1)  # type: ignore[call-arg]


@refused("exception", lambda: (torch.tensor([0]),))
def handles_what_data_raises(x: Any) -> Any:
    x.add_(1)  # Python cannot run the frame again
    try:
        return 12 // x
    except RuntimeError:
        return x + 2


@refused("metadata-mutation")
def transposes_in_place(x: Any) -> Any:
    return x.t_()


@refused("metadata-mutation")
def makes_a_leaf(x: Any) -> Any:
    return (x * 2).requires_grad_()


@refused("autograd-api", leaf)
def hook(x: Any) -> Any:
    y = x * 3
    y.register_hook(lambda g: g * 10)
    return y


@refused("autograd-api", leaf)
def backward_inside(x: Any) -> Any:
    x.sum().backward()
    return x.grad


@refused("context-manager")
def default_device(x: Any) -> Any:
    with torch.device("cpu"):
        return x @ x.T


@refused("identity")
def address(x: Any) -> Any:
    return id(x)


@refused("unknown-value")
def set_order(x: Any) -> Any:
    return [k for k in {"a", "b"}], x


@refused("unsupported-instruction")
def local_class(x: Any) -> Any:
    class Inner:
        pass

    return x, Inner


@refused("recursion")
def endless(x: Any) -> Any:
    return endless(x)


@refused("disabled")
def calls_disabled(x: Any) -> Any:
    return not_compiled(x)


@torch.compiler.disable
def not_compiled(x: Any) -> Any:
    return x + 1


@refused("tensor-layout", lambda: (torch.eye(3).to_sparse(),))
def sparse(x: Any) -> Any:
    return x * 2
