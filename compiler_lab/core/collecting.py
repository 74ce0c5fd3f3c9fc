"""Python's cycle collector at rest while much is made that stays: it would look through all of it again and again, and find nothing.

In: nothing. Out: contexts, which decorate functions as well: for large values (``uncollected``: more than half of the seconds of a view of a 12-layer model)
and for large imports. Always holds: the collector is as it was afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

FROZEN_AT_START = 1_000  # from 3.12 on, Python starts with some hundred objects frozen; more means that the program froze its own


@contextmanager
def uncollected() -> Generator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def importing() -> Generator[None]:
    """What was imported is old at once: the next collection of what is young would walk all of it."""
    with uncollected():
        yield
        if gc.get_freeze_count() < FROZEN_AT_START:
            gc.freeze()
            gc.unfreeze()
