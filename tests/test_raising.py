"""Operations that raise because of their data, behind changes of objects or under handlers: Python runs the frame again, as if it always had.

Each program is compared with plain Python, call by call: results, what was raised, and what is left of the objects and variables it changed.
"""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from bytecode import Bytecode, Instr

import compiler_lab
from compiler_lab.core.errors import LabError
from compiler_lab.frames.code import body_of
from compiler_lab.frames.points import Point
from compiler_lab.frames.resume import rest, resumed

from .program_check import check, loaded

COMMON = """
import torch

table = torch.arange(12.0).reshape(4, 3)
log = []


class Box:
    count = 0


box = Box()


def inputs(call):
    index = torch.tensor([call, 9 if call in (1, 3) else 2])
    return (torch.ones(2, 3), index), {}
"""
TEXT = """
## a change before
def f(x, i):
    box.count += 1
    log.append(box.count)
    return x + torch.embedding(table, i)

## changes on both sides
def f(x, i):
    box.count += 1
    y = x + torch.embedding(table, i)
    box.done = y
    log.append('after')
    return y

## a handler
def f(x, i):
    try:
        return x + table[i]
    except IndexError as e:
        log.append('caught')
        return x - 1

## finally
def f(x, i):
    box.count = 5
    try:
        box.inside = True
        return x + torch.embedding(table, i)
    finally:
        box.inside = False
        log.append('finally')

## a handler in a callee
def g(x, i):
    try:
        box.at = 'g'
        return x + torch.embedding(table, i)
    except IndexError:
        box.at = 'failed'
        return x
    else:
        box.at = 'else'
def f(x, i):
    return g(x, i) * 2

## a generator that reads
def g(i):
    for k in i:
        box.count += 1
        yield table[k]
def f(x, i):
    return x + sum(g(i.unbind()))

## an input was changed before
def f(x, i):
    x.add_(1)
    box.count += 1
    return x + torch.embedding(table, i)

## an input is changed behind
def f(x, i):
    box.count += 1
    y = torch.embedding(table, i)
    x.add_(1)
    return x + y

## an input is changed between
def f(x, i):
    box.count += 1
    y = torch.embedding(table, i - i)
    x.add_(1)
    return x + y + torch.embedding(table, i)

## an input is changed between a handler and more
def f(x, i):
    try:
        y = torch.embedding(table, i - i)
    except IndexError:
        y = x
    x.add_(1)
    return x + y + torch.embedding(table, i)

## random numbers before
def f(x, i):
    box.count += 1
    y = torch.rand(3)
    return x + y + torch.embedding(table, i)

## random numbers between
def f(x, i):
    box.count += 1
    y = torch.embedding(table, i - i) + torch.nn.functional.dropout(x, 0.5)
    return x + y + torch.embedding(table, i)

## dropout that does nothing
def f(x, i):
    box.count += 1
    y = torch.nn.functional.dropout(x, 0.0) + torch.nn.functional.dropout(x, 0.5, training=False)
    return x + y + torch.embedding(table, i)

## a warning before
import warnings
def f(x, i):
    warnings.warn('once')
    box.count += 1
    return x + torch.embedding(table, i)

## a break behind
def f(x, i):
    box.count += 1
    y = x + torch.embedding(table, i)
    print('seen')
    return y + box.count

## a break before
def f(x, i):
    box.count += 1
    print('seen', box.count)
    box.count += 1
    y = x + torch.embedding(table, i)
    return y + box.count

## in a loop with breaks
def f(x, i):
    for k in range(3):
        box.count += k
        x = x + torch.embedding(table, i)
        print('round', k)
    return x

## an argument that is written over
def f(x, i):
    x = x + 1
    box.x = x
    i = i + 0
    return x + torch.embedding(table, i)

## keywords and packed arguments
def f(*args, **kw):
    log.append(len(args))
    args = [a + 0 for a in args]
    return args[0] + torch.embedding(table, args[1])

## a cell
def f(x, i):
    box.count += 1
    def inner():
        return x + torch.embedding(table, i)
    return inner()

## a method with super
class Base:
    def go(self, x, i):
        self.n = 1
        return x + torch.embedding(table, i)
class Child(Base):
    def go(self, x, i):
        self.m = 2
        return super().go(x, i) + 1
child = Child()
def f(x, i):
    return child.go(x, i)

## the context of what is raised
def f(x, i):
    box.count += 1
    try:
        return x + torch.embedding(table, i)
    except IndexError as e:
        raise KeyError('mine') from e

## an exception under way
def f(x, i):
    try:
        raise ValueError('first')
    except ValueError:
        box.count += 1
        return x + torch.embedding(table, i)

## integers that divide
def f(x, i):
    box.count += 1
    return x + (i // (i - 2 + box.count - box.count)).sum()

## a handler around a break
def f(x, i):
    try:
        print('before')
        box.count += 1
        return x + torch.embedding(table, i)
    except IndexError:
        log.append('caught')
        return x
    finally:
        log.append('finally')

## nested handlers around breaks
def f(x, i):
    total = 0
    for k in range(3):
        try:
            try:
                print(k)
                total = total + torch.embedding(table, i + k)
            finally:
                box.count += 1
        except IndexError as e:
            log.append(str(e))
            print('again')
    return total, box.count

## a tensor was written to before
def f(x, i):
    table[0] = x[0] * 2
    x.add_(1)
    y = torch.embedding(table, i)
    x.mul_(2)
    return x + y

## a tensor was filled with random numbers before
def f(x, i):
    x.uniform_()
    y = torch.embedding(table, i) + torch.rand(3)
    x[0] = torch.rand(3)
    return x + y

## its locals
def f(x, i):
    box.count += 1
    y = torch.embedding(table, i)
    return y + x, sorted(locals())
"""
PROGRAMS = {name: program for name, _, program in (part.partition("\n") for part in TEXT.split("## ")[1:])}


WRITES = tuple(name for name in PROGRAMS if name.startswith(("a tensor was", "a handler", "integers")))


@pytest.mark.parametrize(("name", "backend"), [*itertools.product(PROGRAMS, ["eager", "aot_eager"]), *itertools.product(WRITES, ["lab"])])
def test_compiled_is_plain(name: str, backend: str) -> None:
    found = check(COMMON + PROGRAMS[name], backend)
    assert found is None, str(found)


WHOLE = ("a change before", "changes on both sides", "finally", "a handler", "dropout that does nothing", "an input is changed behind")


@pytest.mark.parametrize("name", WHOLE)
def test_these_are_whole(name: str, tmp_path: Path) -> None:
    with loaded(COMMON + PROGRAMS[name], tmp_path / "program.py") as module:
        compiled = compiler_lab.compile(module.f, backend="eager", fullgraph=True)
        try:
            compiled(torch.ones(2, 3), torch.tensor([0, 1]))
            assert compiler_lab.stats()["breaks"] == 0
        finally:
            compiler_lab.reset()


class Box:
    n = 0


class Interrupted(BaseException):
    pass


class Own(LabError):
    pass


@pytest.mark.parametrize("error", [Interrupted("stop"), Own("of ours")])
def test_only_errors_of_the_program_are_given_to_python(error: BaseException) -> None:
    """What is no error, or says that a stage failed, leaves the frame; and no exception is left under way."""
    runs: list[str] = []
    box = Box()
    table = torch.ones(4, 3)

    def backend(gm: torch.fx.GraphModule, inputs: list[object]) -> object:
        def run(*args: object) -> object:
            runs.append("graph")
            raise error

        return run

    def f(i: torch.Tensor) -> torch.Tensor:
        box.n += 1
        return torch.embedding(table, i) + 1

    try:
        compiled = compiler_lab.compile(f, backend=backend)
        with pytest.raises(type(error)):
            compiled(torch.tensor([0]))
        assert runs == ["graph"] and box.n == 0 and sys.exc_info() == (None, None, None)
    finally:
        compiler_lab.reset()


def covered(code: types.CodeType) -> int:
    """How many code units the table of lines speaks of: each entry begins with a byte that has the high bit, whose low bits are a length."""
    return sum((byte & 7) + 1 for byte in code.co_linetable if byte & 128)


@pytest.mark.parametrize("width", [100, 126, 130, 200, 254, 300])
def test_very_wide_lines_fit_their_code(width: int) -> None:
    """CPython writes past an array when a table of lines is longer than its code and the program is traced or profiled."""
    space: dict[str, Any] = {}
    exec(f"def f(x, y):\n    y = x\n    {'_' * (width - 10)}, x = x + 1, y.append(x)\n    return [\n        x]\n", space)  # columns as wide as the line
    code: types.CodeType = space["f"].__code__
    for made in (resumed(code, Point(3, ("x", "y"), ())).code, rest(code, Point(3, ("x", "y"), ()))):
        assert covered(made) == len(made.co_code) // 2
    assert covered(code) == len(code.co_code) // 2
    new = Bytecode([Instr("RESUME", 0, lineno=1), *body_of(code)])
    new.argnames, new.argcount = ["x", "y"], 2
    assert covered(made := new.to_code()) == len(made.co_code) // 2
