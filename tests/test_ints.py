"""Arithmetic of symbolic ints: what the program computes and decides with them is Python's, and every relation that is guarded can be computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import compiler_lab

PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda x, n: torch.where(torch.tensor(2.0) > n, x, -x),
    lambda x, n: torch.where(torch.tensor(2.0) > n % 3, x, -x),
    lambda x, n: x * (1 if n == int(n * 0.5) else 2),
    lambda x, n: x * max(n, 3.5),
    lambda x, n: x * min(n, 3),
    lambda x, n: x if n / 2 > 1.5 else -x,
    lambda x, n: x if 2.5 > float(n) else -x,
    lambda x, n: x if n == 5.0 else -x,
    lambda x, n: x if n in (2.0, 7) else -x,
    lambda x, n: x if math.sqrt(n * n + 1) > 2 else -x,
    lambda x, n: x if n**2 > 10 else -x,
    lambda x, n: x * round(n * 1.5),
    lambda x, n: x * (n**0.5),
    lambda x, n: x * (n % 2.5),
    lambda x, n: x * (n // 2.5),
    lambda x, n: x * math.floor(n / 3),
    lambda x, n: x * math.ceil(n / 3),
    lambda x, n: x * math.trunc(n * -1.5),
    lambda x, n: x * (1 << n),
    lambda x, n: x * (n >> 1),
    lambda x, n: x * (n ^ 3),
    lambda x, n: x * ~n,
    lambda x, n: x * abs(-n),
    lambda x, n: x * divmod(n, 3)[0] + divmod(n, 3)[1],
    lambda x, n: x * pow(2.0, n),
    lambda x, n: x * (2**-n),
    lambda x, n: x * math.gcd(n, 4),
    lambda x, n: x * math.log(n + 1),
    lambda x, n: x * math.isclose(n, 5.0),
    lambda x, n: x * int(str(n)),
    lambda x, n: x * sum(range(n)),
    lambda x, n: x * (not n),
    lambda x, n: x * n.bit_length(),
    lambda x, n: x * (n if n < 3 or n > 6.5 else 1),
    lambda x, n: x if (0.5, 5)[1] == int(n * 0.5) else -x,
]


def outcome(fn: Callable[..., Any], n: Any) -> Any:
    try:
        made = fn(torch.ones(2), n)
    except (ArithmeticError, ValueError, RuntimeError) as error:
        return type(error), str(error)
    return made.dtype, made.tolist()


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_ints_compute_as_in_python(program: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = compiler_lab.compile(program, backend="eager", dynamic=dynamic, options={"recompile_limit": 16})
    for n in (5, 2, 7, 0, 1, True, -4, 12, 5):
        assert outcome(compiled, n) == outcome(program, n)
    assert "internal-error" not in [b.reason for b in compiled._compiled_function.breaks]
