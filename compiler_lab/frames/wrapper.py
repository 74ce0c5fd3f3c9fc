"""The hot path: a generated Python function with the user's signature, which checks guards and calls the compiled code.

In: the user's function, the box that holds the entries, and what to do on a miss or when the function has been changed.
Out: a function that can be called, bound and inspected like the original.
Always holds: arguments are bound by Python itself; nothing is on between calls (no frame hook, no callback); code or defaults that
somebody gives the function later are seen (notebooks reload functions in place), before an argument is taken for a default.
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
MISSING: Any = object()  # in place of every default: an argument that was passed is never taken for one


def parameters(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str, str]:
    """(positional-only, positional, keyword-only, ``*name`` or '', ``**name`` or '') of ``code``."""
    names, at = code.co_varnames, code.co_argcount
    keyword = names[at : at + code.co_kwonlyargcount]
    rest = at + code.co_kwonlyargcount
    star = names[rest] if code.co_flags & VARARGS else ""
    double = names[rest + bool(star)] if code.co_flags & VARKEYWORDS else ""
    return names[: code.co_posonlyargcount], names[code.co_posonlyargcount : at], keyword, star, double


def hot_function(
    fn: FunctionType,
    box: list[Pair],
    miss: Callable[[dict[str, Any], tuple[Any, ...], dict[str, Any]], Any],
    stale: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> FunctionType:
    """``box[0]`` is (check, run) of the entry used last; ``miss(locals, args, kwargs)`` when its check fails; ``stale(args, kwargs)``, with what
    the caller passed, when ``fn`` has got other code or defaults.

    The pair is read in one step, so another thread may change it at any time."""
    code = fn.__code__
    posonly, positional, keyword, star, double = parameters(code)
    taken = {*code.co_varnames, *code.co_freevars, fn.__name__}
    prefix = next(f"_lab{n}_" for n in range(len(taken) + 1) if not any(t.startswith(f"_lab{n}_") for t in taken))
    named = [*posonly, *positional]
    defaults, kwdefaults = fn.__defaults__ or (), fn.__kwdefaults__ or {}
    given = {name: f"{prefix}defaults[{n}]" for n, name in enumerate(named[len(named) - len(defaults) :])}
    given |= {name: f"{prefix}kwdefaults[{name!r}]" for name in keyword if name in kwdefaults}
    parameter = lambda name: f"{name}={prefix}missing" if name in given else name
    signature = [
        *map(parameter, posonly),
        *(["/"] if posonly else []),
        *map(parameter, positional),
        *([f"*{star}"] if star else ["*"] if keyword else []),
        *map(parameter, keyword),
        *([f"**{double}"] if double else []),
    ]
    passed = [*posonly, *positional, *([f"*{star}"] if star else []), *(f"{k}={k}" for k in keyword), *([f"**{double}"] if double else [])]
    arguments = [*posonly, *positional, *([f"*{star}"] if star else [])]
    keywords = [*(f"{k!r}: {k}" for k in keyword), *([f"**{double}"] if double else [])]
    names = [*posonly, *positional, *keyword, *filter(None, (star, double))]
    same = f"{prefix}fn.__code__ is {prefix}code"
    if given:
        same += f" and {prefix}fn.__defaults__ is {prefix}defaults and {prefix}fn.__kwdefaults__ is {prefix}kwdefaults"
    text = f"""
def {prefix}call({", ".join(signature)}):
    if not ({same}): return {prefix}stale(*{prefix}passed(({"".join(n + ", " for n in named)}), {star or "()"}, {{{", ".join(keywords)}}}))
{"".join(f"    if {name} is {prefix}missing: {name} = {value}{chr(10)}" for name, value in given.items())}\
    {prefix}locals = {{{", ".join([f"{GLOBALS!r}: {prefix}globals", *(f"{n!r}: {n}" for n in names)])}}}
{"".join(_read_cell(prefix, n, name) for n, name in enumerate(code.co_freevars))}
    {prefix}check, {prefix}run = {prefix}box[0]
    if {prefix}check({prefix}locals):
        return {prefix}run({", ".join(passed)})
    return {prefix}miss({prefix}locals, ({"".join(a + ", " for a in arguments)}), {{{", ".join(keywords)}}})
"""
    own = {"globals": fn.__globals__, "box": box, "miss": miss, "stale": stale, "missing": MISSING, "fn": fn, "code": code}
    own |= {"defaults": fn.__defaults__, "kwdefaults": fn.__kwdefaults__, "passed": lambda *found: passed_on(named, *found)}
    space: dict[str, Any] = {prefix + name: value for name, value in own.items()}
    space |= {f"{prefix}cell{n}": cell for n, cell in enumerate(fn.__closure__ or ())}
    exec(compile(text, FILE, "exec"), space)
    function: FunctionType = space.pop(f"{prefix}call")
    function = FunctionType(function.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__), space)
    function.__defaults__ = (MISSING,) * len(defaults)
    function.__kwdefaults__ = dict.fromkeys((k for k in keyword if k in kwdefaults), MISSING)
    functools.update_wrapper(function, fn)
    return function


def passed_on(names: list[str], positional: tuple[Any, ...], star: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the caller passed: what comes behind a missing argument was passed by name."""
    count = next((n for n, value in enumerate(positional) if value is MISSING), len(positional))
    late = {name: value for name, value in zip(names[count:], positional[count:], strict=True) if value is not MISSING}
    return (*positional[:count], *star), late | {name: value for name, value in keywords.items() if value is not MISSING}


def _read_cell(prefix: str, n: int, name: str) -> str:
    return f"    try: {prefix}locals[{name!r}] = {prefix}cell{n}.cell_contents\n    except ValueError: pass\n"
