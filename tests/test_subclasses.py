"""Instances of users' subclasses of dict, OrderedDict, defaultdict and list: each program is compared with plain Python, call by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_lab

from .program_check import check, loaded

CLASSES = """
import collections
import dataclasses
import torch

log = []


class Plain(dict):
    note = "class"


class Registry(dict):
    def __setitem__(self, key, value):
        super().__setitem__(str(key.__class__), value)

    def get(self, key):
        return super().get(str(key.__class__)) or {}


class Hostile(dict):
    def __getitem__(self, key):
        log.append(("getitem", key))
        return "hostile"

    def __iter__(self):
        log.append("iter")
        return iter(["a", "b"])

    def __len__(self):
        return 77

    def __contains__(self, key):
        return key == "ghost"

    def __setitem__(self, key, value):
        log.append(("setitem", key))
        super().__setitem__(key + "!", value)

    def __delitem__(self, key):
        log.append(("delitem", key))

    def keys(self):
        log.append("keys")
        return ["k1", "k2"]

    def items(self):
        return [("items", 1)]


class Missing(dict):
    def __missing__(self, key):
        log.append(("missing", key))
        return key * 2


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        log.append(key)
        super().__setitem__(key, value)


@dataclasses.dataclass
class Output(collections.OrderedDict):
    loss: object = None
    logits: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if (value := getattr(self, field.name)) is not None:
                self[field.name] = value

    def __setattr__(self, name, value):
        if name in {f.name for f in dataclasses.fields(self)} and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __getitem__(self, k):
        return dict(self.items())[k] if isinstance(k, str) else self.to_tuple()[k]

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


class Counts(collections.defaultdict):
    def __setitem__(self, key, value):
        log.append(("set", key))
        super().__setitem__(key, value)


class Stack(list):
    def push(self, x):
        self.append(x)
        return self

    @property
    def top(self):
        return self[-1]


class Odd(list):
    def __getitem__(self, i):
        log.append(i)
        return "odd"

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(["odd"])

    def append(self, x):
        super().append((x, len(self)))


x = torch.arange(3.0)


def inputs(call):
    return (x + call,), {}
"""

TEXT = """
## made and returned
def f(x):
    d = Plain(a=x + 1)
    d['b'] = x * 2
    d.flag = 3
    return d, type(d).__name__, d.note, d.flag, len(d), list(d), 'a' in d, d.get('zz'), bool(d)

## an existing one, read
d = Plain(a=2, b=[1])
d.extra = 5
def f(x):
    return x * d['a'] + d.extra, d.get('b'), d.get('c', 1), 'b' in d, list(d.items()), d

## an existing one, changed
d = Plain(a=1, b=2)
def f(x):
    d['c'] = x + 1
    d['a'] += 1
    del d['b']
    d['b'] = 9
    d.mark = 'set'
    return d.pop('c') + d['a'], list(d)

## two changes of one
d = Plain()
def f(x):
    d.setdefault('n', []).append(1)
    d.update(x=x, y=2)
    d.popitem()
    return x + len(d['n'])

## a registry by class
class M:
    pass
r = Registry()
r[M()] = {'k': 2}
m = M()
def f(x):
    return x * r.get(m).get('k', 1), r.get(x)

## hostile, read
h = Hostile(a=1)
def f(x):
    out = (h['a'], len(h), 'ghost' in h, 'a' in h, list(h), h.get('a'), dict.__getitem__(h, 'a'), dict.__len__(h), list(dict.keys(h)))
    return x + 1, out, list(log)

## hostile, copied
h = Hostile(a=1)
def f(x):
    return x + 1, dict(h), {**h}, list(h.values()), list(log)

## hostile, changed
h = Hostile(a=1)
def f(x):
    h['b'] = 2
    dict.__setitem__(h, 'raw', x)
    h.update(c=3)
    del h['a']
    h.z = 1
    return x + 1, list(dict.items(h))

## hostile, returned
def f(x):
    h = Hostile(a=x)
    h['b'] = x + 1
    return h

## missing
m = Missing(a=1)
def f(x):
    return m['a'], m['b'], m.get('b'), x + 1, Missing()['cc']

## ordered, updated
def f(x):
    o = Ordered(a=1)
    o.update({'b': x}, c=3)
    o.setdefault('d', 4)
    o.move_to_end('a')
    return o, list(o), o.popitem(), list(log)

## ordered, existing
o = Ordered(a=1, b=2)
def f(x):
    o['c'] = x
    o.move_to_end('a')
    return list(o), o['b'] + x, o

## an output
def f(x):
    o = Output(logits=x + 1)
    o.loss = x.sum()
    return o, o[0], o['logits'], list(o), o.to_tuple(), o.loss

## an output of a call
def g(x):
    return Output(loss=x.sum(), logits=x * 2)
def f(x):
    o = g(x)
    return Output(loss=o.loss + 1, logits=o[1])

## an output as argument
def g(o):
    return o.loss + o['logits'] + len(o)
def f(x):
    return g(o)
o = Output(loss=x.sum(), logits=x)

## shared
def f(x):
    d = Plain(a=x)
    return d, d, [d]

## holds itself
def f(x):
    d = Plain(a=x + 1)
    d['me'] = d
    d.me = d
    log.append(d)
    return d['a']

## counts
def f(x):
    c = Counts(int, a=1)
    c['a'] += 1
    c['b'] += 2
    return x + c['b'], c, c.default_factory, list(log)

## counts, existing
c = Counts(list)
def f(x):
    c['k'].append(x)
    return x + 1, c, list(log)

## counts, no factory
def f(x):
    c = Counts()
    try:
        c['z']
    except KeyError as e:
        return x + 1, e.args, c

## a list, made
def f(x):
    s = Stack([1, 2])
    s.push(x).push(x + 1)
    s.name = 'n'
    s += [5]
    return s, s.top, s[1:], len(s), s[0], 2 in s, s.index(2), s + [1], s * 2, s.copy(), s.name

## a list, existing
s = Stack([1, 2, 3])
def f(x):
    s.push(4)
    s[0] = 'first'
    s.tag = 1
    return x * s[1], s, s.top

## a list, emptied
s = Stack([3, 1, 2])
def f(x):
    s.sort()
    y = s.pop() if s else 0
    return x + y, s

## an odd list
o = Odd([1, 2])
def f(x):
    o.append(3)
    return x + 1, o[0], len(o), list(o), list.__len__(o), list.__getitem__(o, 0), bool(o), list(log)

## an odd list, set
o = Odd([1, 2])
def f(x):
    o[1] = x
    return list.__getitem__(o, 1) + 1

## extended by one
o = Odd([1])
def f(x):
    a = [0]
    a.extend(o)
    a += o
    return x + 1, a, [*o], tuple(o)

## equality
def f(x):
    return x + 1, Plain(a=1) == {'a': 1}, {'a': 1} == Plain(a=1), Plain() != {}, Stack([1]) == [1], [1] == Stack([1]), Plain() == []

## equality of ordered ones
def f(x):
    return x + 1, Ordered(a=1, b=2) == Ordered(b=2, a=1), Ordered(a=1, b=2) == {'b': 2, 'a': 1}

## text
def f(x):
    return x + 1, repr(Plain(a=[1])), str(Stack([1, 'b'])), f'{Plain()}'

## no key
d = Plain(a=1)
def f(x):
    try:
        d['b']
    except KeyError as e:
        return x + 1, e.args

## unhashable
def f(x):
    try:
        {Plain(): 1}
    except TypeError as e:
        return x + 1, e.args

## keywords
def g(**k):
    return k
d = Plain(a=1)
h = Hostile(a=1)
def f(x):
    return x + 1, g(**d), g(**h), list(log)

## new by hand
class Made(dict):
    def __new__(cls, *args):
        made = super().__new__(cls, *args)
        made.count = len(args)
        return made
def f(x):
    return Made([('a', x + 1)]), Made().count

## an init of its own
class Named(list):
    def __init__(self, name, *items):
        super().__init__(items)
        self.name = name
def f(x):
    n = Named('me', x, 2)
    return n, n.name, len(n)

## a metaclass
class Meta(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value)
class A(dict, metaclass=Meta):
    pass
def f(x):
    return A(k=x + 1)

## a metaclass that is called
class Meta(type):
    def __call__(cls, *args):
        log.append(cls.__name__)
        return super().__call__(*args)
class A(metaclass=Meta):
    pass
def f(x):
    return x + 1, type(A()).__name__, list(log)

## slots and a property
class S(dict):
    __slots__ = ('v',)
    @property
    def twice(self):
        return self.v * 2
def f(x):
    s = S(a=1)
    s.v = x
    return s.twice, s

## views
d = Plain(a=1)
def f(x):
    e = Plain(b=x)
    return d.keys(), e.values(), e.items(), e

## reversed
d = Plain(a=1, b=2)
def f(x):
    return x + 1, list(reversed(d)), list(reversed(Stack([1, 2])))

## across a break
d = Plain(a=1)
def f(x):
    e = Plain(b=x)
    e.k = 1
    s = Stack([x])
    print('here')
    e['c'] = d['a']
    s.push(2)
    return e, s, e.k, d

## iter once
class It:
    def __iter__(self):
        log.append('iter')
        return iter([1, 2])
def f(x):
    return x + 1, list(It()), next(iter(It())), list(zip(It(), [5, 6])), list(log)

## iter of a generator
class It:
    def __iter__(self):
        yield from (1, 2)
def f(x):
    it = iter(It())
    return x + next(it), type(it).__name__, iter(it) is it, list(it)

## iter of none
class It:
    def __iter__(self):
        return [1]
def f(x):
    try:
        iter(It())
    except TypeError as e:
        return x + 1, e.args

## the subclass compares first
class A:
    def __eq__(self, o):
        log.append('A')
        return True
    def __lt__(self, o):
        log.append('A<')
        return True
class B(A):
    def __eq__(self, o):
        log.append('B')
        return False
    def __gt__(self, o):
        log.append('B>')
        return False
def f(x):
    return x + 1, A() == B(), A() < B(), B() == A(), list(log)

## a named tuple with overrides
class P(collections.namedtuple('P', 'a b')):
    def __getitem__(self, i):
        return 'item'
    def __iter__(self):
        return iter(['iter'])
p = P(1, 2)
def f(x):
    return x + 1, p[0], list(p), p.a, P(3, 4)[1]

## a named tuple with a field of its own
class P(collections.namedtuple('P', 'a b')):
    @property
    def a(self):
        return 'own'
p = P(1, 2)
def f(x):
    return x + 1, p.a, p.b, P(3, 4).a

## a named tuple with methods
class P(collections.namedtuple('P', 'a b')):
    def total(self):
        return self.a + self.b
p = P(1, 2)
def f(x):
    return x + p.total(), P(x, 4).total(), p

## whoever watches its attributes
class P(Plain):
    def __getattribute__(self, n):
        log.append(n)
        return super().__getattribute__(n)
p = P(a=1)
def f(x):
    return x + p.get('a'), list(log)

## whoever watches the attributes of an object
class P:
    def __getattribute__(self, n):
        log.append(n)
        return super().__getattribute__(n)
p = P()
def f(x):
    p.b = 2
    return x + p.b, list(log)

## assorted
import copy
def f(x):
    d = Plain(a=[1])
    d.k = 1
    s = Stack([2, 1])
    both = [1] + s, {'a': 1} | Plain(b=2), Plain(a=1) | {'b': 2}, Stack([1]) < s
    return x + 1, copy.copy(d), copy.deepcopy(d), sorted(s), sum(s), max(s), dict(Ordered(a=1)), list(Ordered(b=1).items()), both

## text of one that holds itself
def f(x):
    d = Plain(a=1)
    d['me'] = d
    s = Stack()
    s.append(s)
    return x + 1, repr(d), repr(s)

## a pattern
def f(x):
    match Plain(a=1):
        case {'a': n}:
            return x + n
    return x

## one object, two ways
d = Plain(a=1)
boxed = [d]
def f(x):
    boxed[0]['n'] = x
    d['m'] = boxed[0]['n'] + 1
    return boxed[0] is d, d

## attributes that are items
class P(Plain):
    def __getattr__(self, n):
        return self[n]
    def __setattr__(self, n, v):
        self[n] = v
p = P(a=1)
def f(x):
    p.b = x
    q = P()
    q.z = 3
    return p.a + p.b, p, q, q.z

## a tuple subclass
class T(tuple):
    def __new__(cls, *items):
        log.append(len(items))
        return super().__new__(cls, items)
def f(x):
    return T(x, 2), list(log)
"""
PROGRAMS = {name: program for name, _, program in (part.partition("\n") for part in TEXT.split("## ")[1:])}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_plain(name: str) -> None:
    found = check(CLASSES + PROGRAMS[name], calls=3)
    assert found is None, str(found)


class Settings(dict[str, Any]):
    def __getitem__(self, key: str) -> float:
        raise AssertionError("guards and inputs go past it")

    def __len__(self) -> int:
        raise AssertionError("guards and inputs go past it")

    def __iter__(self):  # type: ignore[no-untyped-def]
        raise AssertionError("guards and inputs go past it")


def test_items_are_guarded_and_read_past_overrides() -> None:
    settings = Settings(rate=2.0, w=torch.ones(3))

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * settings.get("rate", 1.0) + dict.__getitem__(settings, "w") + len(settings.items())

    compiled = compiler_lab.compile(f, backend="eager", fullgraph=True)
    x = torch.arange(3.0)
    try:
        for change in (lambda: None, lambda: settings.update(rate=3.0), lambda: settings.update(w=torch.zeros(3)), lambda: settings.update(more=1)):
            change()
            assert torch.equal(compiled(x), f(x))
    finally:
        compiler_lab.reset()


@pytest.mark.parametrize("name", ["made and returned", "an existing one, read", "an existing one, changed", "a registry by class", "an output", "a list, made"])
def test_these_are_whole(name: str, tmp_path: Path) -> None:
    with loaded(CLASSES + PROGRAMS[name], tmp_path / "program.py") as module:
        compiled = compiler_lab.compile(module.f, backend="eager", fullgraph=True)
        try:
            compiled(torch.arange(3.0))
            assert compiler_lab.stats()["breaks"] == 0
        finally:
            compiler_lab.reset()
