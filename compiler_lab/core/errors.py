"""The error tree: every error says what happened, where (the user's line), why, and what to do.

``LabError`` is the root. A stage raises the subclass that names its kind of failure:

* ``Unsupported``   this program is outside what a stage models; the pipeline falls back visibly
* ``GraphBroken``   ``fullgraph=True`` and capture had to leave the frame to Python
* ``InvalidIR``     an artifact is malformed; the message names the item
* ``BackendFailed`` a backend callable raised or returned something that cannot be called
* ``CodegenFailed`` generated code could not be built or loaded
* ``Mismatch``      two runs that must agree do not
* ``ConstraintViolated`` a dimension marked dynamic is compiled as a constant
* ``UnknownOption`` an option or backend that does not exist; lists the known ones

PyTorch's counterpart is ``torch/_dynamo/exc.py``.
"""

from __future__ import annotations

from .provenance import Location


class LabError(Exception):
    """what: one sentence. where: the user's line, if known. why: the cause. hint: what to do about it."""

    def __init__(self, what: str, *, where: Location | None = None, why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        if self.where is not None:
            parts.append(f"  where: {self.where.text()}")
        if self.why:
            parts.append(f"  why:   {self.why}")
        if self.hint:
            parts.append(f"  do:    {self.hint}")
        return "\n".join(parts)


class Unsupported(LabError):
    """A stage does not model this program. ``reason`` is a short stable id, counted by ``stats()``."""

    def __init__(self, what: str, *, reason: str = "unsupported", where: Location | None = None, why: str = "", hint: str = "") -> None:
        self.reason = reason
        super().__init__(what, where=where, why=why, hint=hint)


class GraphBroken(LabError):
    """``fullgraph=True`` was asked for and the frame could not be captured whole."""


class InvalidIR(LabError):
    """An artifact is not well formed; ``what`` names the item."""


class BackendFailed(LabError):
    """A backend raised, or gave back something that is not callable."""


class CodegenFailed(LabError):
    """Generated code could not be compiled, loaded or launched."""


class Mismatch(LabError):
    """Two runs that must agree gave different results."""


class ConstraintViolated(LabError):
    """A dimension was marked dynamic, and the program or its size allows one size only."""


class UnknownOption(LabError, ValueError):
    """An option, mode, backend or stage that does not exist."""
