"""Large imports, without looking for garbage on the way: nearly all they make lives as long as the process.

In: nothing. Out: a context to import in. The collector is as it was afterwards.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

FROZEN_AT_START = 1_000  # from 3.12 on, Python starts with some hundred objects frozen; more means that the program froze its own


@contextmanager
def importing() -> Generator[None]:
    """What was imported is old at once: the next collection of what is young would walk all of it and find nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
        if gc.get_freeze_count() < FROZEN_AT_START:
            gc.freeze()
            gc.unfreeze()
    finally:
        if collects:
            gc.enable()
