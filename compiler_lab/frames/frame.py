"""The frame that is captured, as plain data: what the hook saw, without the frame object itself.

In: the hook's frame (``compiler_lab/frames/hook.py``) or a function with its bound arguments. Out: ``FrameInput``, read by the
interpreter, the guards and the assembler. Always holds: nothing here keeps the Python frame alive.
PyTorch's counterpart: ``torch/_dynamo/types.py`` (``DynamoFrameType``).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType, CodeType
from typing import Any


@dataclass(frozen=True)
class FrameInput:
    """One call of a function. ``locals`` holds arguments and free variables by name, cells already opened; ``*args`` as a tuple
    and ``**kwargs`` as a dict under their own names. ``closure`` are the cells of ``code.co_freevars``, in order."""

    code: CodeType
    locals: dict[str, Any]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[CellType, ...] = ()
