"""Python's cycle collector at rest while a large value is built or read.

Half a million small dictionaries that all stay make the collector look through the whole trace again and again: more than half of the seconds of a view of
a 12-layer model. Nothing here makes garbage in cycles, so nothing is lost. Always holds: the collector is afterwards as it was.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def uncollected(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return fn(*args, **kwargs)
        gc.disable()
        try:
            return fn(*args, **kwargs)
        finally:
            gc.enable()

    return call
