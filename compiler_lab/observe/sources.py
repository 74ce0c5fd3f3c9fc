"""The text that a file's code was made of, or nothing: a file may be written again behind a program that has imported it.

In: the name of a file. Out: its lines. Always holds: lines are given only if the functions of the file's module, as they are in this process, are what those
lines say, byte for byte and line for line; a wrong line is worse than none. Cells, and what was made by ``exec``, have no module and are taken as they are.
PyTorch's counterpart: none; it shows what is on disk.
"""

from __future__ import annotations

import functools
import linecache
import sys
import types
from collections.abc import Iterator


def lines_of(file: str) -> list[str]:
    lines = linecache.getlines(file)
    return lines if lines and _is_what_runs(file, "".join(lines)) else []


@functools.lru_cache(256)
def _is_what_runs(file: str, text: str) -> bool:
    own = [code for module in list(sys.modules.values()) if getattr(module, "__file__", None) == file for code in _codes(module, file)]
    if not own:
        return True
    try:
        found = {_key(code) for code in _inside(compile(text, file, "exec", dont_inherit=True))}
    except (SyntaxError, ValueError):
        return False
    return all(_key(code) in found for code in own if not _rewritten(code))


def _codes(module: types.ModuleType, file: str) -> Iterator[types.CodeType]:
    """Of the functions and methods that the module defines."""
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if isinstance(value, type) and value.__module__ == module.__name__ else [value]
        for member in members:
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if isinstance(code, types.CodeType) and code.co_filename == file:
                yield code


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _inside(constant)


def _key(code: types.CodeType) -> tuple[object, ...]:
    plain = tuple(c for c in code.co_consts if isinstance(c, (int, float, str, bytes)))
    return code.co_qualname, code.co_firstlineno, code.co_code, code.co_linetable, code.co_names, plain


def _rewritten(code: types.CodeType) -> bool:
    """pytest puts names of its own into functions with assertions."""
    return any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames))
