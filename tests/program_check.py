"""One program, run by Python and compiled, and every difference that a program could see.

In: the text of a module with a function ``f`` and ``inputs(call)``, which gives ``(args, kwargs)``. The module is executed twice, so
that each side has globals of its own. Out: None, or what differs: results with their types, values, dtypes, strides,
``requires_grad`` and gradients, what is one object or one memory, arguments, objects and globals afterwards, the exception with its
text and lines, warnings, and what was printed. A fault inside capture that Python made good counts as a difference as well.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import io
import random
import re
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import compiler_lab

from .programs import program

CALLS = 4
MODULE = "generated_program"
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.Size, range, slice)


@dataclass(frozen=True)
class Difference:
    """The first thing that differs: in which call, where, and both sides of it."""

    call: int
    where: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"call {self.call}, {self.where}:\n    Python    {self.expected}\n    compiled  {self.got}"


class Describer:
    """Objects as nested tuples that compare equal when a program could not tell them apart; one object is one number."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.numbers: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []  # an id means an object only while it lives

    def __call__(self, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return (type(value).__name__, repr(value))
        if isinstance(value, type):
            return ("class", value.__qualname__)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if type(value) is tuple:  # which tuples of constants are one object is the bytecode compiler's choice
            return ("tuple", *map(self, value))
        if id(value) in self.numbers:
            return ("object", self.numbers[id(value)])
        number = self.numbers[id(value)] = len(self.numbers)
        self.alive.append(value)
        return (f"{type(value).__qualname__} {number}", *self.parts(value))

    def parts(self, value: Any) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield from self.tensor(value)
        elif isinstance(value, types.FunctionType):
            yield value.__qualname__
            yield from (self(cell.cell_contents) for cell in value.__closure__ or () if holds(cell))
            yield self(value.__defaults__)
        elif isinstance(value, types.MethodType):
            yield from (value.__func__.__qualname__, self(value.__self__))
        elif isinstance(value, types.GeneratorType):
            yield self.drained(value)
        elif isinstance(value, dict):
            yield from ((self(k), self(v)) for k, v in value.items())
        elif isinstance(value, (list, tuple, collections.deque)):
            yield from map(self, value)
        elif isinstance(value, (set, frozenset)):  # Python promises no order, and it follows from how a set came about
            yield from map(self, sorted(value, key=repr) if all(isinstance(v, PLAIN) for v in value) else value)
        elif isinstance(value, BaseException):
            yield self(value.args)
        if hasattr(value, "__dict__") and not isinstance(value, (torch.Tensor, types.FunctionType, types.MethodType)):
            yield from ((k, self(v)) for k, v in vars(value).items())

    def tensor(self, value: torch.Tensor) -> Iterator[Any]:
        yield (str(value.dtype), tuple(value.shape), value.stride(), value.storage_offset())
        yield asked(lambda: ("requires grad" if value.requires_grad else "", "leaf" if value.is_leaf else ""))
        yield f"memory {self.storages.setdefault(value.untyped_storage()._cdata, len(self.storages))}"
        if value.is_meta:
            return
        data = value.detach()
        near = value.is_floating_point() and not self.exact
        yield repr(torch.round(data.double(), decimals=3).add(0.0).tolist() if near else data.tolist())
        if asked(lambda: value.is_leaf) is True and value.grad is not None:
            yield ("grad", self(value.grad))

    def drained(self, generator: Any) -> Any:
        """What a generator that was handed out still gives: resuming it is something the program's caller can do."""
        given: list[Any] = []
        try:
            given += (self(v) for v in generator)
        except Exception as error:  # noqa: BLE001 - whatever it raises is compared
            given.append(self(error))
        return tuple(given)


def asked(question: Callable[[], Any]) -> Any:
    """The answer, or the error: autograd refuses to speak of some views that were changed."""
    try:
        return question()
    except RuntimeError as error:
        return str(error)


def holds(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


@dataclass
class Outcome:
    """What one call left behind, each part described."""

    parts: dict[str, Any]


def lines_of(error: BaseException | None, path: str) -> list[tuple[int | None, str]] | None:
    """The program's own lines. A frame in pieces is several calls of one name, as recursion is: the last of them counts.

    CPython's fused instructions give the line before for an unbound variable, once they are warm: no line then. None, for any lines, where
    the graph itself raised: it knows the lines of its operators, but runs as one call."""
    if error is None:
        return []
    frames = traceback.extract_tb(error.__traceback__)
    if any(f.filename.startswith("<eval_with_key>") or " wrapper " in f.filename for f in frames):
        return None
    fused = isinstance(error, UnboundLocalError)
    lines = [(None if fused else f.lineno, f.name) for f in frames if f.filename == path]
    return [line for line, following in zip(lines, [*lines[1:], (0, "")], strict=True) if line[1] != following[1]]


def raised(error: BaseException | None, describe: Describer) -> Any:
    if error is None:
        return None
    context = error.__cause__ or error.__context__
    return (type(error).__qualname__, str(error), describe(error.args), type(context).__qualname__)


def differentiable(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from differentiable(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from differentiable(v)


def outcome(call: Callable[[], Any], given: Any, module: types.ModuleType, exact: bool) -> Outcome:
    """Make one call and describe everything that it may have touched."""
    describe = Describer(exact)
    printed, result, error = io.StringIO(), None, None
    torch.manual_seed(7)
    random.seed(7)
    with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as e:  # noqa: BLE001 - whatever it raises is compared
            error = e
    parts = {
        "printed": printed.getvalue(),
        "exception": raised(error, describe),
        "lines": lines_of(error, module.__file__ or ""),
        "result": describe(result),
        "arguments": describe(given),
        "globals": tuple((k, describe(v)) for k, v in vars(module).items() if not k.startswith("__") and not isinstance(v, (types.ModuleType, type))),
        "classes": tuple((k, tuple((n, describe(a)) for n, a in vars(v).items() if isinstance(a, PLAIN))) for k, v in own_classes(module)),
        "warnings": [(str(w.message), w.lineno) for w in warned if w.filename == module.__file__ and "the limit; calls that fit" not in str(w.message)],
        "torch": (torch.is_grad_enabled(), torch.get_default_dtype(), zlib_of(torch.get_rng_state()), hash(random.getstate())),
    }
    if found := list(differentiable(result)):
        with contextlib.suppress(RuntimeError):  # a tensor that was changed after autograd saved it: eager says so too, or the next line differs
            torch.stack([t.sum().double() for t in found]).sum().backward()
        parts["gradients"] = Describer(exact)(given)
    return Outcome(parts)


def zlib_of(state: torch.Tensor) -> int:
    return hash(bytes(state.tolist()))


def own_classes(module: types.ModuleType) -> Iterator[tuple[str, type]]:
    return ((k, v) for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__)


@contextlib.contextmanager
def loaded(text: str, path: Path) -> Generator[types.ModuleType]:
    """The program as a module that is imported, as long as the block lasts."""
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    before = sys.modules.get(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
        yield module
    finally:
        sys.modules.pop(MODULE)
        if before is not None:
            sys.modules[MODULE] = before


def outcomes(text: str, path: Path, wrap: Callable[[Any], Any], calls: int, exact: bool) -> list[Outcome]:
    found: list[Outcome] = []
    with loaded(text, path) as module:
        function = wrap(module.f)
        for n in range(calls):
            try:
                args, kwargs = module.inputs(n)
            except Exception:  # noqa: BLE001 - made from a global that the calls before have changed: there are no more calls
                break
            found.append(outcome(lambda a=args, k=kwargs: function(*a, **k), (args, kwargs), module, exact))
    return found


def run(seed: int, text: str | None = None, backend: str = "") -> Difference | None:
    """Program number ``seed`` (or ``text``, made from it) as it is compiled: mostly the captured graph alone, now and then the later stages."""
    backend = backend or ("lab" if seed % 100 == 99 else "aot_eager" if seed % 10 == 9 else "eager")
    return check(program(seed) if text is None else text, backend, dynamic=(None, None, None, True, False)[seed % 5])


def same_failure(seed: int, found: Difference, backend: str = "", run: Callable[[int, str, str], Difference | None] = run) -> Callable[[str], bool]:
    """Whether a smaller text still differs in the same place; a text that is no program any more does not. ``run``: of the kind of program."""

    def fails(text: str) -> bool:
        try:
            difference = run(seed, text, backend)
        except Exception:  # noqa: BLE001 - something that the module needs was taken out
            return False
        return difference is not None and difference.where.split()[0] == found.where.split()[0]

    return fails


def check(text: str, backend: str = "eager", *, calls: int = CALLS, dynamic: bool | None = None) -> Difference | None:
    """Run ``text`` both ways, several calls in a row, and compare. Raises what executing the module itself raises."""
    exact = backend != "lab"  # C++ kernels may add in another order
    compiled: list[Any] = []

    def wrap(function: Any) -> Any:
        compiled.append(compiler_lab.compile(function, backend=backend, dynamic=dynamic, options={"fallback_random": True}))
        return compiled[0]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(text)
        want = outcomes(text, path, lambda f: f, calls, exact)
        try:
            got = outcomes(text, path, wrap, calls, exact)
            faults = [b.what for c in compiled for b in c._compiled_function.breaks if b.reason == "internal-error"]
        finally:
            compiler_lab.reset()
    for n, (a, b) in enumerate(zip(want, got, strict=True)):
        for where, value in a.parts.items():
            if named(value, backend) != named(b.parts.get(where), backend) and (where, b.parts.get(where)) != ("lines", None):
                return Difference(n, where, *first_difference(value, b.parts.get(where)))
    return Difference(0, "inside capture", "no fault", faults[0]) if faults else None


def named(part: Any, backend: str) -> Any:
    """After joint tracing one autograd node stands for the graph: what is printed of a tensor shows its name, as under ``torch.compile``."""
    if backend == "eager" or not isinstance(part, (str, tuple)):
        return part
    return re.sub(r"grad_fn=<\w+>", "grad_fn=<...>", part) if isinstance(part, str) else tuple(named(p, backend) for p in part)


def first_difference(a: Any, b: Any) -> tuple[Any, Any]:
    """The smallest part in which two descriptions differ."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            if x != y:
                found = first_difference(x, y)
                named = isinstance(a[0], str) and (found == (x, y))
                return ((a[0], found[0]), (b[0], found[1])) if named and x is not a[0] else found
    return a, b


def reduced(text: str, fails: Callable[[str], bool], tries: int = 400) -> str:
    """The program with every statement taken out, or replaced by its body, that is not needed for the failure."""
    left = tries
    changed = True
    while changed and left > 0:
        changed = False
        at = 0
        while left > 0:
            candidate = without(text, at)
            if candidate is None:
                break
            left -= 1
            if candidate != text and fails(candidate):
                text, changed = candidate, True
            else:
                at += 1
    return text


def without(text: str, at: int) -> str | None:
    """``text`` without edit number ``at``: a statement removed (bodies last first), a compound one replaced by one of its bodies, a value that is assigned
    replaced by a part of it, an element of a returned tuple left out. None past the last."""
    tree = ast.parse(text)
    edits: list[Callable[[], None]] = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for index in reversed(range(len(block))):
                    edits += edits_of(block, index, node)
    if at >= len(edits):
        return None
    edits[at]()
    try:
        new = ast.unparse(ast.fix_missing_locations(tree))
        compile(new, "program", "exec")
    except (SyntaxError, ValueError):  # such as a break outside its loop: no program
        return text
    return new


def edits_of(block: list[Any], index: int, owner: ast.AST) -> list[Callable[[], None]]:
    statement = block[index]
    if isinstance(statement, ast.Pass) and len(block) == 1:
        return []

    def remove() -> None:
        del block[index]
        if not block and block is getattr(owner, "body", None):
            block.append(ast.Pass())

    def unwrap(inner: list[Any]) -> Callable[[], None]:
        def edit() -> None:
            block[index : index + 1] = copy.copy(inner)

        return edit

    def become(holder: ast.AST, value: ast.expr) -> Callable[[], None]:
        return lambda: setattr(holder, "value", value)

    def drop(elements: list[ast.expr], at: int) -> Callable[[], None]:
        return lambda: elements.pop(at) and None

    inner = [b for name in ("body", "orelse") if (b := getattr(statement, name, None)) and not isinstance(statement, (ast.FunctionDef, ast.ClassDef))]
    edits = [remove, *map(unwrap, inner)]
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Return) and isinstance(value, ast.Tuple):
        edits += [drop(value.elts, i) for i in range(len(value.elts)) if len(value.elts) > 1]
    if isinstance(statement, ast.Assign) and isinstance(value, (ast.Call, ast.BinOp, ast.Subscript)):
        parts = [part for part in ast.walk(value) if part is not value and isinstance(part, (ast.Name, ast.Call, ast.BinOp, ast.Subscript))]
        edits += [become(statement, part) for part in parts]
    return edits
