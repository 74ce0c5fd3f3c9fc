"""``compiler-lab inspect``: a script run as it is, with every compile in it recorded.

In: the script's path, its arguments, where the report goes. Out: the script's exit status; the report is written whatever happens.
Always holds: the script is ``__main__`` with its own ``sys.argv`` and ``sys.path[0]``; its output and its errors are its own, with a traceback that
begins in it. PyTorch's counterpart: ``TORCH_TRACE=folder python script.py``, then tlparse.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from . import session
from .core.errors import LabError, UnknownOption
from .observe.trace import Trace
from .progress import progress


def inspect_script(script: Path, arguments: Sequence[str], html: Path, save: Path | None = None, stack: str = "lab") -> int:
    """Runs ``script`` and gives its exit status; what was recorded is written to ``html`` and ``save``. Raises ``UnknownOption`` for another stack."""
    if stack not in session.STACKS:
        raise UnknownOption(f"stack={stack!r}", hint=f"one of: {', '.join(session.STACKS)}")
    ours, theirs = Trace(script.name), Trace(script.name)
    with contextlib.ExitStack() as recording:
        if stack != "torch":
            recording.enter_context(session.recording(recording.enter_context(progress(ours.append))))
        if stack != "lab":
            from .observe.torch_reference import torch_recording

            recording.enter_context(torch_recording(theirs))
        status = _run(script, arguments)
    found = [t for t in (ours, theirs) if t.steps]
    if not found:
        print(f"{script.name} compiled nothing; there is no report", file=sys.stderr)
        return status
    try:
        found[0].to_html(html, *found[1:])
        if save is not None:
            for trace, path in zip(found, (save, save.with_stem(f"{save.stem}.torch")), strict=False):
                trace.save(path)
    except OSError as error:
        raise LabError("the report cannot be written", why=str(error), hint="give another file to --html or --save") from error
    print(f"{', '.join(f'{len(t.graphs)} graphs in {len(t.steps)} steps' for t in found)}: {html}", file=sys.stderr)
    return status


def _run(script: Path, arguments: Sequence[str]) -> int:
    """The exit status of the script, as Python itself would give it; its traceback is printed."""
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = [str(script), *arguments], [str(script.resolve().parent), *sys.path[1:]]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # noqa: BLE001 - whatever ended the script is shown as Python would, and the report is written
        traceback.print_exception(type(error), error, _own(error.__traceback__, str(script)))
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        sys.argv, sys.path[:] = before
    return 0


def _own(trace: TracebackType | None, script: str) -> TracebackType | None:
    """The traceback from the script's first frame on; all of a traceback that never reaches it."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename != script:
        first = first.tb_next
    return first or trace


def open_trace(path: Path) -> Trace:
    """A file of ``Trace.save``, or a folder or log that TORCH_TRACE wrote."""
    if path.is_file() and path.suffix != ".log":
        return Trace.load(path)
    return Trace.from_torch_trace(path)
