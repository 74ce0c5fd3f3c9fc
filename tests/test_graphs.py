"""Random graphs of aten operators: compiled, they are eager's, with gradients. ``make graphs`` runs five thousand.

Two hundred here. All go through every stage up to the generated source, and are compared with eager in results, written arguments, memory
and gradients; of each ten, three are built and run as C++ and seven are run by the evaluator of loops, on the schedules of forward and
backward that the source was made from: a third of the time, and ``make graphs`` builds all.
"""

from __future__ import annotations

import pytest

from compiler_lab.core.errors import GraphBroken, Unsupported

from .graph_check import check, run
from .graph_programs import doubled, program
from .program_check import Difference, reduced

GRAPHS, BATCH = 200, 20


@pytest.mark.parametrize("first", range(0, GRAPHS, BATCH))
def test_a_random_graph_compiled_is_eager(first: int) -> None:
    found: dict[int, Difference] = {}
    refused = 0
    for seed in range(first, first + BATCH):
        try:
            if (difference := run(seed, None, "" if seed % 10 < 3 else "interpreted")) is not None:
                found[seed] = difference
        except (Unsupported, GraphBroken):
            refused += 1
    assert not found, "\n".join(f"graph {seed} (python -m tests.fuzz --kind graphs --first {seed} --programs 1): {d}" for seed, d in found.items())
    assert refused <= BATCH // 2, "most of what is drawn is compiled"


def test_the_same_seed_is_the_same_graph() -> None:
    assert program(11) == program(11) != program(12)
    assert doubled("x.to(torch.bfloat16).float()") == "x.to(torch.float64).double()"


WRITTEN = "def f(a):\n    a.add_(1)\n    b = a * 2\n    c = b.t()\n    return c, a.view(-1)\n"
INPUTS = "def inputs(call):\n    g = torch.Generator().manual_seed(call)\n    return (torch.randn(3, 4, generator=g),), {}\n"
SEEN: dict[str, tuple[str, str]] = {
    "result": ("return c,", "return c + torch.compiler.is_compiling() * 1e-3,"),
    "strides of result": ("b.t()", "b.t().contiguous() if torch.compiler.is_compiling() else b.t()"),
    "argument": ("a.add_(1)", "a.add_(1 + torch.compiler.is_compiling() * 1e-3); a = a - torch.compiler.is_compiling() * 1e-3"),
    "memory": ("a.view(-1)", "(a.clone() if torch.compiler.is_compiling() else a).view(-1)"),
    "exception": ("b = a * 2", "b = a * 2 if not torch.compiler.is_compiling() else a[torch.tensor([9])]"),
    "gradient": ("a.add_(1)", "a = a * 1 if not torch.compiler.is_compiling() else a.detach() * 0.5 + a * 0.5"),
    "requires_grad": ("a.add_(1)", "a = a * 1 if not torch.compiler.is_compiling() else a.detach() * 1"),
}


@pytest.mark.parametrize("where", SEEN)
def test_the_check_sees_a_difference(where: str) -> None:
    """The check is held to graphs that are different on purpose: they ask whether they are compiled."""
    text = WRITTEN.replace(*SEEN[where]) + (INPUTS.replace("g),)", "g).requires_grad_(),)") if where in ("gradient", "requires_grad") else INPUTS)
    difference = check(text, "interpreted")
    assert difference is not None and difference.where.startswith(where), difference


def test_a_failing_graph_is_reduced_to_what_fails() -> None:
    text = (
        "options, dynamic = {'fusion': False}, None\nsmall = {}\n"
        "def f(a, b):\n    t0 = a.sin()\n    t1 = t0 + b\n    t2 = t1 + torch.compiler.is_compiling()\n    t3 = t2.exp()\n    t2.mul_(2)\n"
        "    return t3, t1, t0\n"
        "def inputs(call):\n    return (torch.ones(3), torch.ones(3)), {}\n"
    )
    small = reduced(text, lambda t: _differs(t))
    assert _differs(small) and len(small.splitlines()) <= 7, small


def _differs(text: str) -> bool:
    try:
        return (difference := check(text, "interpreted")) is not None and difference.where.startswith("result")
    except Exception:  # noqa: BLE001 - no program: something that it needs was taken out
        return False


FOUND: dict[str, str] = {
    "a part of another dtype put on the diagonal": "def f(a, b):\n    return torch.diagonal_scatter(a, b[0].half()), torch.diagonal_scatter(a.int(), b[0])",
    "a part of another dtype put at strides": "def f(a, b):\n    return torch.as_strided_scatter(a, b[0].double(), (4,), (5,), 1),",
    "a write to no elements": "options = {'check': True}\ndef f(a, b):\n    a.view(1, 16, 1)[..., 1:][1:].copy_(b[0, :1])\n    return a * 2,",
    "an assertion that returns nothing": "def f(a, b):\n    return F.one_hot(a.long() % 4, 4),",
    "a constant that does not fit": "def f(a, b):\n    big = torch.full((4,), 1e20) + 0\n"
    "    return big.long() + 1, big.int() + 1, big.to(torch.uint8), (-big).long()",
    "numbers that do not fit": "def f(a, b):\n    x = b.double() * 2.0**40 + 5\n    return x.to(torch.uint8), x.int(), x.to(torch.int16), (x * 2**40).long()",
    "a mask that is a constant": "options = {'check': True}\ndef f(a, b):\n    a.add_(a)\n    return a[:1][torch.tensor([True])] * 2,",
    "a total into a wider dtype": "def f(a, b):\n    x = b.bfloat16()\n    out = torch.zeros(4)\n"
    "    torch.sum(x, 0, out=out)\n    torch.cumsum(x, 0, out=a)\n    return out,",
    "windows that leave a rest": "def f(a, b):\n    a[0].unfold(-1, 3, 3).pow_(2)\n    b.unfold(-2, 2, 3).mul_(3)\n    return a + b,",
}  # fmt: skip
MADE = "\ndef inputs(call):\n    g = torch.Generator().manual_seed(call)\n    return (torch.randn(4, 4, generator=g), torch.randn(4, 4, generator=g)), {}\n"


@pytest.mark.parametrize("backend", ["", "interpreted"])
@pytest.mark.parametrize("name", FOUND)
def test_faults_that_random_graphs_found(name: str, backend: str) -> None:
    try:
        difference = check(FOUND[name] + MADE, backend)
    except GraphBroken as error:
        assert name == "a mask that is a constant" and "a size that depends on the data" in str(error)
        return
    assert difference is None, difference
