"""Generated programs: what is compiled is Python to the last bit that a program can see. ``make fuzz`` runs ten thousand of them."""

from __future__ import annotations

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
