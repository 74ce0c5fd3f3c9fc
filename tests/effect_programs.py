"""Programs that change what lives outside them, or whose results share objects: each is a function that makes (program, arguments, what else to watch).

``programs`` are captured whole; the calls go on with the state that the call before has left.
"""

# pyright: basic, reportAttributeAccessIssue=false, reportFunctionMemberAccess=false, reportArgumentType=false
from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Case = Callable[[], tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]]
CASES: dict[str, Case] = {}
TENSORS: list[str] = []  # those that also run on the other backends


def case(tensors: bool = False) -> Callable[[Case], Case]:
    def enter(make: Case) -> Case:
        CASES[make.__name__] = make
        if tensors:
            TENSORS.append(make.__name__)
        return make

    return enter


def ramp(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 7 - 0.3


class Plain:
    kind = "plain"
    count = 0

    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


class Slots:
    __slots__ = ("a", "b")


class Loud:
    """Sets through a ``__setattr__`` of its own, which keeps a log."""

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self.log.append("del " + name)
        object.__delattr__(self, name)


class WithProperty:
    def __init__(self) -> None:
        self._value: Any = 1

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, new: Any) -> None:
        self._value = (self._value, new)

    @value.deleter
    def value(self) -> None:
        self._value = None


class Typed:
    """A descriptor that keeps values in the instance's ``__dict__`` under its own name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return obj.__dict__[self.name]

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__[self.name] = [value]

    def __delete__(self, obj: Any) -> None:
        del obj.__dict__[self.name]


class Described:
    field = Typed()


@dataclasses.dataclass
class Record:
    x: Any
    y: int = 2
    tags: list[Any] = dataclasses.field(default_factory=list)


Point = collections.namedtuple("Point", "x y")


# attributes


@case(tensors=True)
def attributes_set() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.last, o.name, o.n = x * 2, "new", 7
        o.first = o.last + 1
        return o.first, o.name

    return program, (ramp(2, 3), Plain(name="old", z=1)), ()


@case()
def attribute_read_then_written() -> Any:
    def program(x: Any, o: Any) -> Any:
        before = o.held
        o.held = x + before
        return before, o.held

    return program, (ramp(3), Plain(held=ramp(3))), ()


@case()
def attribute_deleted() -> Any:
    def program(x: Any, o: Any) -> Any:
        del o.a
        try:
            _ = o.a
        except AttributeError:
            o.c = 1
        o.b = 2
        o.a = x
        return hasattr(o, "a"), x + 1

    return program, (ramp(2), Plain(a=1, b=1)), ()


@case()
def new_attribute_deleted_again() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.t = 1
        o.u = 2
        del o.t
        o.t = 3
        del o.u
        return x + 1

    return program, (ramp(2), Plain(a=1)), ()


@case()
def class_attribute_stays_under_instance() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.kind = "own"
        kinds = [o.kind]
        del o.kind
        return x + len(kinds[0]), o.kind

    return program, (ramp(2), Plain()), ()


@case()
def slots() -> Any:
    o = Slots()
    o.a = 1

    def program(x: Any, o: Any) -> Any:
        o.b = x + o.a
        o.a = 5
        return o.b

    return program, (ramp(2), o), ()


@case(tensors=True)
def own_setattr() -> Any:
    log: list[Any] = []

    def program(x: Any, o: Any, p: Any) -> Any:
        o.a = x + 1
        p.b = o.a
        o.c = 2
        del o.c
        return p.b * 2

    return program, (ramp(2), Loud(log), Loud(log)), (log,)


@case()
def properties() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.value = x + 1
        seen = o.value
        if isinstance(seen[0], tuple):
            del o.value
        return seen

    return program, (ramp(2), WithProperty()), ()


@case()
def descriptors() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.field = x + 1
        return o.field[0] * 2, o.field

    return program, (ramp(2), Described()), ()


@case()
def through_dict() -> Any:
    def program(x: Any, o: Any) -> Any:
        d = o.__dict__
        d["a"] = x + 1
        o.b = 3
        del d["z"]
        return d["b"], o.a, "a" in d, list(d), d is o.__dict__

    def again(x: Any, o: Any) -> Any:
        o.z = 0
        return program(x, o)

    return again, (ramp(2), Plain(z=1)), ()


@case()
def setattr_and_update() -> Any:
    def program(x: Any, o: Any) -> Any:
        for name in ("a", "b"):
            setattr(o, name, x + len(o.__dict__))
        delattr(o, "b")
        o.__dict__.update(q=1, r=[2])
        return o.r

    return program, (ramp(2), Plain()), ()


@case()
def counter() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.n += 1
        return x * o.n

    return program, (ramp(2), Plain(n=0)), ()


@case()
def class_attributes() -> Any:
    class Base:
        total = 0
        seen: list[Any] = []

    class Derived(Base):
        pass

    def program(x: Any) -> Any:
        Base.total = 3
        Base.seen.append(1)
        Derived.fresh = x + Derived.total
        return Derived().fresh, Derived().total

    return program, (ramp(2),), (Base, Derived)


@case()
def function_attributes() -> Any:
    def helper(x: Any) -> Any:
        helper.last = x
        return x + 1

    def program(x: Any) -> Any:
        y = helper(x)
        helper.name = "h"
        return y + helper.last

    return program, (ramp(2),), (helper,)


# containers


@case(tensors=True)
def list_changes() -> Any:
    def program(x: Any, items: Any) -> Any:
        items.append(x + 1)
        items[0] = x
        last = items.pop()
        items.insert(1, last)
        items.extend([1, (2, last)])
        items.reverse()
        return last

    return program, (ramp(2), [1, 2, 3]), ()


@case()
def list_only_grows() -> Any:
    def program(x: Any, items: Any) -> Any:
        items.append(x)
        items += [len("ab")]
        return x + 1

    return program, (ramp(2), [1]), ()


@case()
def list_item_set() -> Any:
    def program(x: Any, items: Any) -> Any:
        items[-1] = [x, items[0]]
        return items[0], len(items)

    return program, (ramp(2), [[1], 2, 3]), ()


@case()
def list_sorted_and_cleared() -> Any:
    def program(x: Any, a: Any, b: Any) -> Any:
        a.sort()
        b.clear()
        del a[1:]
        a *= 2
        return x + sum(a), not b

    return program, (ramp(2), [3, 1, 2], [x for x in "abc"]), ()


@case(tensors=True)
def dict_changes() -> Any:
    def program(x: Any, d: Any) -> Any:
        d["new"] = x + 1
        d["a"] = d["new"] * 2
        old = d.pop("b", None)
        d["b"] = old
        d.setdefault("c", [])
        d.update(e=5, a=6)
        del d["new"]
        d["new"] = 1
        return list(d), old, len(d)

    return program, (ramp(2), {"a": 1, "b": [2]}), ()


@case()
def dict_keys_of_all_kinds() -> Any:
    def program(x: Any, d: Any) -> Any:
        d[1] = x
        d[(1, "a")] = 2
        d[None] = 3
        d[x] = 4
        d[Plain] = 5
        return d[None], x in d

    return program, (ramp(2), {}), ()


@case()
def dict_cleared_and_filled() -> Any:
    def program(x: Any, d: Any) -> Any:
        d.clear()
        d["z"], d["a"] = x, 1
        return d.popitem(), d

    return program, (ramp(2), {"a": 0, "b": 1}), ()


@case()
def ordered_dict_moves() -> Any:
    def program(x: Any, d: Any) -> Any:
        d.move_to_end("a")
        d["n"] = x
        d.move_to_end("n", last=False)
        return list(d.items())

    return program, (ramp(2), OrderedDict(a=1, b=2)), ()


@case()
def default_dicts() -> Any:
    def program(x: Any, d: Any) -> Any:
        d["a"].append(x + 1)
        d["b"].append(2)
        made = defaultdict(int, c=1)
        made["k"] += 2
        return d["b"], made

    return program, (ramp(2), defaultdict(list, a=[0])), ()


@case()
def sets() -> Any:
    def program(x: Any, s: Any) -> Any:
        s.add(5)
        s.discard(1)
        return x + 1, 5 in s, len(s)

    return program, (ramp(2), {1, 2}), ()


@case()
def sets_only_grow() -> Any:
    def program(x: Any, s: Any) -> Any:
        s.add("seen")
        s.update(["x", "y"])
        return x + 1

    return program, (ramp(2), {"first"}), ()


@case(tensors=True)
def deques() -> Any:
    def program(x: Any, window: Any, queue: Any) -> Any:
        window.append(x + 1)
        queue.appendleft(x)
        queue.rotate(1)
        old = window.popleft() if len(window) > 2 else None
        made = deque([1, x], maxlen=2)
        made.append(3)
        return old, made, window[-1]

    return program, (ramp(2), deque([1, 2], maxlen=3), deque([7])), ()


@case()
def nested() -> Any:
    def program(x: Any, o: Any) -> Any:
        o.d["list"][0].append(x + 1)
        o.d["list"].append(o)
        return o.d["list"][0]

    return program, (ramp(2), Plain(d={"list": [[1]]})), ()


# closures and globals


@case(tensors=True)
def nonlocals() -> Any:
    count, seen = 0, None

    def program(x: Any) -> Any:
        nonlocal count, seen
        count += 1
        seen = x + count
        return seen * 2

    def watch() -> Any:
        return count, seen

    return program, (ramp(2),), (watch,)


@case()
def nonlocal_of_a_helper() -> Any:
    state = 1

    def bump(by: Any) -> Any:
        nonlocal state
        state = state + by
        return state

    def program(x: Any) -> Any:
        a = bump(2)
        return x * a + state

    return program, (ramp(2),), (bump.__closure__,)


@case()
def cell_deleted_and_set() -> Any:
    value: Any = 1

    def program(x: Any) -> Any:
        nonlocal value
        old = value
        del value
        value = [x, old]
        return value

    return program, (ramp(2),), (program.__closure__,)


@case(tensors=True)
def global_variables() -> Any:
    module = types.ModuleType("effect_programs_module")
    exec("total = 0\ndef add(x):\n    global total, fresh\n    total = total + 1\n    fresh = x * total\n    return fresh\n", module.__dict__)
    module.__file__, module.unused = __file__, 3
    sys.modules[module.__name__] = module

    def program(x: Any) -> Any:
        y = module.add(x)
        module.extra = [y]
        if hasattr(module, "unused"):
            del module.unused
        return y + module.total + len(module.extra)

    return program, (ramp(2),), (dict_without_builtins(module),)


def dict_without_builtins(module: Any) -> Any:
    return lambda: {k: v for k, v in vars(module).items() if not k.startswith("__") and k != "add"}


GLOBAL: Any = 1


def own_global(x: Any) -> Any:
    global GLOBAL, FRESH
    FRESH = [x]
    GLOBAL = x + 1
    return GLOBAL, FRESH


@case()
def own_globals() -> Any:
    names: dict[str, Any] = {"__name__": "nowhere", "GLOBAL": 1}
    return types.FunctionType(own_global.__code__, names), (ramp(2),), (lambda: {k: names[k] for k in names if k.isupper()},)


# the same object by two ways, and results that share


@case(tensors=True)
def argument_returned() -> Any:
    def program(x: Any, items: Any) -> Any:
        items.append(x + 1)
        return items, x, items[-1]

    return program, (ramp(2), [1]), ()


@case(tensors=True)
def made_once_seen_often() -> Any:
    def program(x: Any, o: Any) -> Any:
        made = [x + 1]
        pair = (made, x)
        o.held, o.pair = made, pair
        made.append(made[0])
        return made, pair, {"again": made, "t": made[0]}, pair

    return program, (ramp(2), Plain()), ()


@case()
def cycles() -> Any:
    def program(x: Any, o: Any) -> Any:
        loop: list[Any] = [x]
        loop.append(loop)
        box = {"loop": loop}
        box["self"] = (box, 1)
        thing = Plain()
        thing.me, thing.you = thing, o
        o.thing = thing
        return loop, box

    return program, (ramp(2), Plain()), ()


@case()
def results_are_what_came() -> Any:
    def program(x: Any, s: Any, f: Any, o: Any, t: Any) -> Any:
        return s, f, o.name, t, (t, s), x + 1

    return program, (ramp(2), "a text", 3.25, Plain(name="some name"), (1, [2])), ()


@case()
def same_list_twice() -> Any:
    items = [1, 2]

    def program(x: Any, a: Any, b: Any) -> Any:
        a.append(3)
        return x + len(b), a is b

    return program, (ramp(2), items, items), ()


@case()
def module_tree_shares() -> Any:
    class Config:
        def __init__(self) -> None:
            self.scale, self.log = 2.0, []

    config = Config()

    class Leaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config, self.calls = config, 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.config.log.append(self.calls)
            self.config.scale = self.config.scale + 1
            return x * self.config.scale

    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Leaf(), Leaf()])
            self.again = self.parts[0]

        def forward(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return self.again(x)

    tree = Tree()
    return tree, (ramp(2),), (config, tree)


# modules


@case(tensors=True)
def buffers_and_caches() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("running", torch.zeros(3))
            self.register_buffer("quiet", torch.zeros(1), persistent=False)
            self.weight = nn.Parameter(ramp(3))
            self.cache: Any = None
            self.history: list[Any] = []

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                self.running = self.running * 0.5 + x.mean(0)
                self.quiet = self.quiet + 1
            self.cache = x.detach() * self.running
            self.history.append(self.quiet)
            return (self.cache * self.weight).sum(), self.running

    net = Net()
    return net, (ramp(4, 3),), (net,)


@case()
def parameter_replaced() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(ramp(2)), nn.Parameter(ramp(2) + 1)
            self.flag = False

        def forward(self, x: Any) -> Any:
            self.a = self.b
            self.flag = not self.flag
            self.training = self.flag
            return x * self.a

    net = Net()
    return net, (ramp(2),), (net,)


@case()
def attribute_of_submodule() -> Any:
    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            self.seen = x
            return x + 1

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            del self.inner.seen
            self.inner.other = [y]
            return y

    net = Net()
    return net, (ramp(2),), (net,)


# what can be made in a frame


@case()
def containers_made() -> Any:
    def program(x: Any) -> Any:
        y = x + 1
        d = {"a": y, 1: [y]}
        return d, OrderedDict(d), d.keys(), d.values(), {y}, frozenset([1]), slice(1, y.shape[0]), range(3), Point(y, 2), Record(y), {x: 1, (1, 2): y}

    return program, (ramp(2),), ()


@case()
def functions_made() -> Any:
    def program(x: Any, k: Any) -> Any:
        y = x * 2
        shared = [y]

        def first(a: int, b: Any = k, *, c: Any = shared) -> Any:
            return a + y + len(c)

        def second() -> Any:
            nonlocal y
            y = y + 1
            return first, y

        first.note = "hello"
        return first, second, shared, functools.partial(first, 1, b=shared), shared.append, y.add, "-".join

    return program, (ramp(2), 3), ()


@case()
def recursive_function_made() -> Any:
    def program(x: Any) -> Any:
        def fact(n: Any) -> Any:
            return x if n == 0 else n * fact(n - 1)

        return fact, x + 1

    return program, (ramp(2),), ()


@case()
def methods_made() -> Any:
    def program(x: Any, o: Any) -> Any:
        r = Record(x + 1)
        r.tags.append(r)
        e = ValueError("text", x)
        e.extra = 1
        return r.__eq__, e, o.__init__, [r.__repr__]

    return program, (ramp(2), Plain()), ()


@case()
def a_list_that_was_copied_and_reversed():
    """Two ways to one list, two copies of it, and then it changes: three lists, each with the items of its own time."""

    def program(x, box, items):
        first = list(items)
        items.append(x + 1)
        second = list(box.items)
        box.items.reverse()
        first.reverse()
        third = [*items]
        return first, second, third, items is box.items, first is not second

    items = [ramp(2), "s", 3]
    return program, (ramp(2), Plain(items=items), items), ()
