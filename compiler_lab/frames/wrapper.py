"""The hot path: a generated Python function with the user's signature, which checks guards and calls the compiled code.

In: the user's function, the box that holds the entries, and what to do on a miss. Out: a function that can be called, bound and
inspected like the original.
Always holds: arguments are bound by Python itself; nothing is on between calls (no frame hook, no callback).
PyTorch's counterpart: ``torch/_dynamo/eval_frame.py`` (``_TorchDynamoContext``), which turns the frame hook on around every call;
a direct call of the guard tree costs about a fifth of that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from .guards import GLOBALS

FILE = "<compiled function>"
Pair = tuple[Callable[[dict[str, Any]], bool], Callable[..., Any]]
VARARGS, VARKEYWORDS = 0x4, 0x8


def parameters(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str, str]:
    """(positional-only, positional, keyword-only, ``*name`` or '', ``**name`` or '') of ``code``."""
    names, at = code.co_varnames, code.co_argcount
    keyword = names[at : at + code.co_kwonlyargcount]
    rest = at + code.co_kwonlyargcount
    star = names[rest] if code.co_flags & VARARGS else ""
    double = names[rest + bool(star)] if code.co_flags & VARKEYWORDS else ""
    return names[: code.co_posonlyargcount], names[code.co_posonlyargcount : at], keyword, star, double


def hot_function(fn: FunctionType, box: list[Pair], miss: Callable[[dict[str, Any], tuple[Any, ...], dict[str, Any]], Any]) -> FunctionType:
    """``box[0]`` is (check, run) of the entry used last; ``miss(locals, args, kwargs)`` when its check fails.

    The pair is read in one step, so another thread may change it at any time."""
    code = fn.__code__
    posonly, positional, keyword, star, double = parameters(code)
    taken = {*code.co_varnames, *code.co_freevars, fn.__name__}
    prefix = next(f"_lab{n}_" for n in range(len(taken) + 1) if not any(t.startswith(f"_lab{n}_") for t in taken))
    signature = [
        *posonly,
        *(["/"] if posonly else []),
        *positional,
        *([f"*{star}"] if star else ["*"] if keyword else []),
        *keyword,
        *([f"**{double}"] if double else []),
    ]
    passed = [*posonly, *positional, *([f"*{star}"] if star else []), *(f"{k}={k}" for k in keyword), *([f"**{double}"] if double else [])]
    arguments = [*posonly, *positional, *([f"*{star}"] if star else [])]
    keywords = [*(f"{k!r}: {k}" for k in keyword), *([f"**{double}"] if double else [])]
    names = [*posonly, *positional, *keyword, *filter(None, (star, double))]
    text = f"""
def {prefix}call({", ".join(signature)}):
    {prefix}locals = {{{", ".join([f"{GLOBALS!r}: {prefix}globals", *(f"{n!r}: {n}" for n in names)])}}}
{"".join(_read_cell(prefix, n, name) for n, name in enumerate(code.co_freevars))}
    {prefix}check, {prefix}run = {prefix}box[0]
    if {prefix}check({prefix}locals):
        return {prefix}run({", ".join(passed)})
    return {prefix}miss({prefix}locals, ({"".join(a + ", " for a in arguments)}), {{{", ".join(keywords)}}})
"""
    space: dict[str, Any] = {f"{prefix}globals": fn.__globals__, f"{prefix}box": box, f"{prefix}miss": miss}
    space |= {f"{prefix}cell{n}": cell for n, cell in enumerate(fn.__closure__ or ())}
    exec(compile(text, FILE, "exec"), space)
    function: FunctionType = space.pop(f"{prefix}call")
    function = FunctionType(function.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__), space)
    function.__defaults__, function.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
    functools.update_wrapper(function, fn)
    return function


def _read_cell(prefix: str, n: int, name: str) -> str:
    return f"    try: {prefix}locals[{name!r}] = {prefix}cell{n}.cell_contents\n    except ValueError: pass\n"
