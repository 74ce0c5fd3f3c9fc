"""Generated programs: what is compiled is Python to the last bit that a program can see. ``make fuzz`` runs ten thousand of them."""

from __future__ import annotations

from typing import Any

import pytest

from .program_check import Difference, check, reduced, run
from .programs import WORLD, program

PROGRAMS, BATCH = 300, 20


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_a_generated_program_compiled_is_python(first: int) -> None:
    found = {seed: difference for seed in range(first, first + BATCH) if (difference := run(seed)) is not None}
    assert not found, "\n".join(f"program {seed} (python -m tests.fuzz --first {seed} --programs 1): {d}" for seed, d in found.items())


def test_the_same_seed_is_the_same_program() -> None:
    assert program(11) == program(11) != program(12)
    compile(program(11), "program", "exec")


INPUTS = "\ndef inputs(call):\n    return (torch.arange(4.0),), {}\n"
SEEN: dict[str, tuple[str, str]] = {
    "result": ("def f(x):\n    return x + int(torch.compiler.is_compiling())", "result"),
    "type": ("def f(x):\n    return [x] if torch.compiler.is_compiling() else (x,)", "result"),
    "identity": ("def f(x):\n    return x if torch.compiler.is_compiling() else x.view(4)", "arguments"),
    "memory": ("def f(x):\n    return x.clone() if torch.compiler.is_compiling() else x.view(4)", "arguments"),
    "strides": ("def f(x):\n    y = x.view(2, 2).t()\n    return y.contiguous() if torch.compiler.is_compiling() else y.clone()", "result"),
    "requires grad": ("def f(x):\n    return torch.ones(2, requires_grad=not torch.compiler.is_compiling())", "result"),
    "argument": ("def f(x):\n    x.add_(int(torch.compiler.is_compiling()))", "arguments"),
    "exception": ("def f(x):\n    if not torch.compiler.is_compiling():\n        raise KeyError(1)", "exception"),
    "signed zero": ("def f(x):\n    return -0.0 if torch.compiler.is_compiling() else 0.0", "result"),
}


@pytest.mark.parametrize("name", SEEN)
def test_the_check_sees_a_difference(name: str) -> None:
    """The check is held to programs that are different on purpose: they ask whether they are compiled."""
    text, where = SEEN[name]
    difference = check(f"import torch\n{text}\n{INPUTS}")
    assert isinstance(difference, Difference) and difference.where == where


FOUND: dict[str, str] = {
    "a cell deleted behind a break": "def f(x):\n    y = x + 1\n    g = lambda: y\n    print('')\n    del y\n    return y",
    "a cell deleted by a function": "def f(x):\n    y = x + 1\n    def g():\n        nonlocal y\n        del y\n    print('')\n    g()\n    return y",
    "a cell not bound yet": "def f(x):\n    g = lambda: y\n    print('')\n    if x.numel() > 9:\n        y = 1\n    return y",
    "an exception bound in a cell": "def f(x):\n    print('')\n    try:\n        x.no\n    except AttributeError as e:\n        g = lambda: e\n    return e",
    "globals changed as a dict": "def f(x):\n    globals()['SCALE'] = SCALE + 1\n    return x * SCALE",
    "globals read as a dict": "def f(x):\n    global SCALE\n    d = globals()\n    SCALE = 7\n    return x * d['SCALE']",
    "globals of a module changed": "import sys\ndef f(x):\n    d = vars(sys.modules[__name__])\n    d['SCALE'] = 5\n    return x * SCALE",
    "None from outside": "def f(x, n=None):\n    return list(filter(n, [0, 1])), sorted([2, 1], key=n), max([1, 2], key=n), x + 1",
    "None behind a break": "import contextlib\ndef f(x):\n    with contextlib.suppress(Exception):\n"
    "        y = list(filter(None, x.tolist()))\n    return y, x + 1",
    "another value by the time it is passed on": "def f(x, n=3):\n    n -= 1\n    print(n)\n    return x, n",
    "a length that is none": "class A:\n    def __init__(self, n): self.n = n\n    def __len__(self): return self.n\n"
    "def f(x, *ns):\n    out = []\n    for n in (2.5, None, -1, True, 0):\n        try:\n            out.append((bool(A(n)), len(A(n))))\n"
    "        except (TypeError, ValueError) as e:\n            out.append(str(e))\n    return x + 1, out",
    "a truth that is none": "class A:\n    def __init__(self, n): self.n = n\n    def __bool__(self): return self.n\n"
    "def f(x):\n    out = []\n    for n in (1, None, True):\n        try:\n            out.append(bool(A(n)))\n"
    "        except TypeError as e:\n            out.append(str(e))\n    return x + 1, out",
    "a generator left by an exception": "def steps():\n    try:\n        yield 1\n    finally:\n        print('closed')\n"
    "def f(x):\n    for i in steps():\n        try:\n            print('')\n            {}['no']\n        except KeyError:\n            del nothing",
    "equal elements and keys": "def f(x):\n    one, yes = 1, True\n    return x + 1, {one, yes}, {yes, one}, {one: 2, yes: 3}, dict([(yes, 1), (one, 2)]), "
    "{v for v in (one, yes)}, {v: v for v in (one, yes)}, {one} | {yes}, {yes}.union([one]), set([yes, one]), {**{one: 1}, **{yes: 2}}",
    "an entry replaced while a dict is walked": "def f(x):\n    d = dict(a=1, b=2, c=3)\n    for k, v in d.items():\n        d['c'] = v\n    return x + 1, d",
    "a key replaced while a dict is walked": "def f(x):\n    d, seen = dict(a=1, b=2), []\n    for k in d:\n        seen.append(k)\n"
    "        if k == 'a':\n            del d['b']\n            d['z'] = 1\n    return x + 1, seen",
    "a class attribute inherited, then its own": "class A: made = 0\nclass B(A): pass\n"
    "def f(x):\n    A.made = A.made\n    B.made += 1\n    return x + 1, A.made, B.made",
    "a view that autograd refuses": "def f(x):\n    t = torch.ones(4, requires_grad=True)\n    v = t.reshape(-1)[:2]\n    with torch.no_grad():\n"
    "        v[:1] += 1\n        print('')\n        v[:1] += 1\n    return x + 1",
}


@pytest.mark.parametrize("name", FOUND)
def test_faults_that_generated_programs_found(name: str) -> None:
    assert (difference := check(f"import torch\nSCALE = 2\n{FOUND[name]}\n{INPUTS}")) is None, difference


def test_a_view_of_a_leaf_that_autograd_refuses_to_change() -> None:
    """The graph raised, for its fake was no view; and what the frame had set before was lost."""
    text = (
        "import torch\ndef make():\n    calls = 0\n    def f(x):\n        nonlocal calls\n        calls += 1\n        x.add_(1)\n    return f\nf = make()\n"
        "def inputs(call):\n    return (torch.ones(call + 2, 3, requires_grad=True).reshape(-1)[:4],), {}"
    )
    assert (difference := check(text)) is None, difference


UNREAD: dict[str, str] = {
    "an index": "y = x[n]",
    "an index that an index reads": "y = x.reshape(-1)[n][n]",
    "a gather": "y = x.gather(0, n)",
    "a selection": "y = torch.index_select(x, 0, n)",
    "an integer division": "y = n // (n - 3)",
    "an embedding": "y = torch.nn.functional.embedding(n, x[:, None])",
    "a factorization": "y = torch.linalg.cholesky(-torch.eye(2) * x[0])",
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "lab"])
@pytest.mark.parametrize("name", UNREAD)
def test_what_nobody_reads_raises_all_the_same(name: str, backend: str) -> None:
    text = f"import torch\ndef f(x, n):\n    {UNREAD[name]}\n    return x * 2\ndef inputs(call):\n    return (torch.ones(3), torch.tensor([3 * call])), {{}}"
    difference = check(text, backend, calls=2)
    same_type = difference is not None and difference.where == "exception" and difference.expected[0] == difference.got[0]
    assert difference is None or (backend == "lab" and same_type), difference  # a kernel does not say which index it was
    with pytest.raises((IndexError, RuntimeError)):  # it is the kind of program that it is meant to be
        namespace: dict[str, Any] = {}
        exec(text, namespace)
        for call in range(2):
            args, _ = namespace["inputs"](call)
            namespace["f"](*args)


ABSENT_OR_NOT: dict[str, str] = {
    "an attribute": "class Box: pass\ndef f(x, o):\n    o.a = 5\n    del o.a\n    return x + 1\n"
    "def inputs(call):\n    o = Box()\n    if call % 2 == {there}:\n        o.a = 1\n    return (torch.ones(2), o), {{}}",
    "a slot": "class Box: __slots__ = ('a',)\ndef f(x, o):\n    o.a = 5\n    del o.a\n    return x + 1, hasattr(o, 'a')\n"
    "def inputs(call):\n    o = Box()\n    if call % 2 == {there}:\n        o.a = 1\n    return (torch.ones(2), o), {{}}",
    "a key": "def f(x, d):\n    d['k'] = 3\n    del d['k']\n    return x + 1\n"
    "def inputs(call):\n    return (torch.ones(2), {{'k': 1}} if call % 2 == {there} else {{}}), {{}}",
    "a key that is popped": "def f(x, d):\n    d[(1, 2)] = 3\n    d.pop((1, 2))\n    return x + 1\n"
    "def inputs(call):\n    return (torch.ones(2), {{(1, 2): 1}} if call % 2 == {there} else {{}}), {{}}",
    "a global": "def f(x):\n    global SCALE\n    SCALE = 7\n    del SCALE\n    return x + 1\n"
    "def inputs(call):\n    globals().pop('SCALE', None)\n    if call % 2 == {there}:\n        globals()['SCALE'] = 1\n    return (torch.ones(2),), {{}}",
}


@pytest.mark.parametrize("there", [0, 1], ids=["first there", "first absent"])
@pytest.mark.parametrize("name", ABSENT_OR_NOT)
def test_what_is_set_and_deleted_was_there_before_or_not(name: str, there: int) -> None:
    """What is left to delete when the frame ends depends on it, though the frame never asks."""
    assert (difference := check("import torch\n" + ABSENT_OR_NOT[name].format(there=there))) is None, difference


def test_a_failing_program_is_reduced_to_what_fails() -> None:
    text = (
        WORLD
        + "\ndef f(x):\n    y = twice(x)\n    for i in range(3):\n        y = y + i\n    if torch.compiler.is_compiling():\n        y = y + 1\n    return y\n"
        + INPUTS
    )
    small = reduced(text, lambda t: _fails(t))
    assert check(small) is not None
    assert len(small.splitlines()) < 20 and "for i" not in small


def _fails(text: str) -> bool:
    try:
        return check(text) is not None
    except Exception:  # noqa: BLE001 - no program: something that it needs was taken out
        return False
