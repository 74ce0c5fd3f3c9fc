"""``warnings.warn``: shown at each call, before the graph runs, where nothing of the program could tell the difference.

In: the arguments of the call and the symbolic call stack. Out: a recipe that the replacement code runs first. Always holds: the place, the
module and the registry are those that Python would take, so filters and "once per place" work as ever; where the filter makes an error of
it, nothing of the graph has run. PyTorch's counterpart: none, its graphs drop the warnings of torch's own code.
Left out (a break): a warning behind an operation, inside ``try``, or for a frame above the captured one.
"""

from __future__ import annotations

import types
import warnings
from typing import TYPE_CHECKING, Any

from ..ir import Recipe, Source
from .base import NONE, Args, Kwargs, Value, is_none
from .classes import ClassValue

if TYPE_CHECKING:
    from ..tracer import Tracer
    from .functions import Scope

NAMES = ("message", "category", "stacklevel")


def warn(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """``warnings.warn(message, category, stacklevel)``."""
    given = {**dict(zip(NAMES, args, strict=False)), **kwargs}
    if len(args) > len(NAMES) or set(given) - set(NAMES):
        raise t.refuse("output", "warnings.warn with a source")
    message, level = t.maybe_constant(given["message"]), t.constant(given["stacklevel"]) if "stacklevel" in given else 1
    category = given.get("category", NONE)
    cls = category.real if isinstance(category, ClassValue) else UserWarning if is_none(category) else None
    if not isinstance(message, str) or cls is None or not issubclass(cls, Warning) or not 1 <= level <= len(t.frames):
        raise t.refuse("output", "warnings.warn")
    busy = any(n.op.startswith("call") for n in t.graph.nodes) or any(f.info.handlers and f.catches() for f in t.frames)
    if busy or t.exceptions:
        raise t.refuse("output", "warnings.warn behind an operation, or where an error would be caught")
    frame = t.frames[-level]
    place = (frame.code.co_filename, frame.location().line, str(frame.scope.names.get("__name__", "<string>")))
    t.warned.append(Recipe("call", show, (*(Recipe("constant", v) for v in (message, cls, *place)), _names(frame.scope))))
    return NONE


def _names(scope: Scope) -> Recipe:
    """The namespace in which Python notes what was shown."""
    if scope.base is None:
        return Recipe("call", globals)
    return Recipe("source", Source("attr", "__dict__", scope.base) if isinstance(scope.base.key, types.ModuleType) else scope.base)


def show(message: str, category: type[Warning], file: str, line: int, module: str, names: dict[str, Any]) -> None:
    warnings.warn_explicit(message, category, file, line, module, names.setdefault("__warningregistry__", {}))
