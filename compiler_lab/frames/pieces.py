"""A frame in pieces, at run time: graphs and Python in turn, until one of them gives the frame's result.

In: ``Pause``s, constants of replacement code, which say what Python runs next; the frame's cells and state. Out: the frame's result.
A piece never calls the next one: it returns ``Next``, and ``drive`` goes on with that. So a loop of any length nests no calls, and nothing that
a piece held is held any longer. Python's pieces run under the frame hook, for the calls that they make; graphs run without it.
Always holds: replacement code refers to no ``Piece``, only to code objects and weakly to ``Pieces`` (code objects are invisible to Python's
garbage collector, so a cycle through one would never be freed); when ``Pieces`` are gone or emptied, Python runs the rest of the frame.
Where PyTorch does this: ``torch/_dynamo/resume_execution.py``, whose resume functions call each other.
"""

from __future__ import annotations

import threading
import weakref
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..core.errors import LabError
from .code import read_code
from .frame import FrameInput
from .guards import GLOBALS
from .hook import Callback, frame_hook
from .ir import Recipe, Source, Stop
from .points import Point, index, ordinal, protected
from .resume import Next, Resumed, failing, rest, resumed, step

if TYPE_CHECKING:
    from .convert import Converter, Entry

BARREN = 16  # after so many pieces in a row without a graph, Python runs the rest
THRASHING = 4  # times the limit of recompiles: so often a piece is captured, in vain or with entries that died
NESTED = 32  # so many frames in pieces inside one another; the ones below are Python's, or recursion would meet its limit early

Cells = tuple[CellType, ...]
State = list[Any]


class Pause:
    """Where a graph ends: ``code`` runs the next instruction in Python, and its number n end is gone on with at ``ends[n]``."""

    __slots__ = ("code", "ends", "owner")

    def __init__(self, code: CodeType, ends: tuple[Resumed, ...], owner: weakref.ref[Pieces]) -> None:
        self.code, self.ends, self.owner = code, ends, owner


class Piece:
    """The entries of the frames that go on at one point, most recently used first."""

    def __init__(self, root: CodeType, resumed: Resumed) -> None:
        self.root, self.resumed = root, resumed
        self.entries: tuple[Entry, ...] = ()
        self.plain: CodeType | None = None  # for Python to run
        self.left = False  # to Python, but for the entries it has
        self.compiled = 0

    def find(self, locals: dict[str, Any]) -> Entry | None:
        entries = self.entries
        found = next((e for e in entries if e.tree.root.check(locals)), None)
        if found is not None and found is not entries[0]:
            self.entries = (found, *(e for e in entries if e is not found))
        return found


class Pieces:
    """The pieces of all frames of one compiled function."""

    def __init__(self, converter: Converter) -> None:
        self.converter = converter
        self.callback: Callback | None = None  # what sees the frames that Python's pieces call
        self.pauses: dict[Any, Pause] = {}
        self.resumed: dict[Any, Resumed] = {}
        self.pieces: dict[int, Piece] = {}  # by id of the code that resumes
        self._depth = threading.local()

    def clear(self) -> None:
        self.pauses.clear()
        self.resumed.clear()
        self.pieces.clear()

    def root(self, code: CodeType) -> CodeType:
        """The user's own code for the code of a piece."""
        piece = self.pieces.get(id(code))
        return code if piece is None else piece.root

    def begun(self, code: CodeType, stop: Stop) -> Stop:
        """``stop``; for a piece that stops before it has put its own stack in place, where it begins."""
        piece = self.pieces.get(id(code))
        if piece is None or ordinal(read_code(code), stop.at) >= piece.resumed.shift:
            return stop
        given = lambda name: Recipe("source", Source("local", name))
        point = piece.resumed.point
        stack = tuple(None if null else given(f".stack{n}") for n, null in enumerate(point.nulls))
        return Stop(index(read_code(code), point.at + piece.resumed.shift), stack, tuple((n, given(n)) for n in point.locals), (), stop.found)

    def pause(self, code: CodeType, stop: Stop) -> Pause:
        """The pause for a frame of ``code``, user's code or a piece's, that stops at ``stop``."""
        at, piece = ordinal(read_code(code), stop.at), self.pieces.get(id(code))
        root = code if piece is None else piece.root
        point = Point(at - (piece.resumed.shift if piece else 0), tuple(n for n, _ in stop.locals), tuple(r is None for r in stop.stack))
        key = (root.co_filename, root, point)
        if key not in self.pauses:
            python, points = step(root, point)
            frame_hook().leave(python)
            ends = tuple(self._resumed(root, p) for p in points)
            self.pauses[key] = Pause(python, ends, weakref.ref(self))
        return self.pauses[key]

    def _resumed(self, root: CodeType, point: Point) -> Resumed:
        key = (root.co_filename, root, point)
        if key not in self.resumed:
            made = self.resumed[key] = resumed(root, point)
            self.pieces[id(made.code)] = Piece(root, made)
        return self.resumed[key]

    # at run time

    def drive(self, pause: Pause, globals: dict[str, Any], cells: Cells, state: State) -> Any:
        """Runs what comes after ``pause``, up to the frame's result."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        try:
            barren = 0
            while True:
                result = self._python(pause.code, globals, cells, state, hooked=depth < NESTED)
                if type(result) is not Next:
                    return result
                number, state = result
                del result
                end = pause.ends[number]
                entry = self._entry(end, globals, cells, state) if depth < NESTED and barren < BARREN else None
                if entry is None:
                    return self._rest(end, globals, cells, state, hooked=depth < NESTED)
                barren = 0 if entry.graph else barren + 1
                result = self._graph(entry, end, globals, cells, state)
                if type(result) is not Next:
                    return result
                pause, state = result
                del result
        finally:
            self._depth.value = depth

    def _graph(self, entry: Entry, end: Resumed, globals: dict[str, Any], cells: Cells, state: State) -> Any:
        """Runs an entry. An interrupt, or an error that capture did not foresee, is the frame's own: it is raised where the entry began, so that
        ``with`` blocks that the frame is in are left and ``finally`` clauses run. Where that cannot be told from what the program would see,
        Python runs the rest of the frame (``raising.py``)."""
        try:
            return FunctionType(entry.code, globals, entry.code.co_name, None, cells)(*state)
        except BaseException as error:
            piece = self.pieces.get(id(end.code))
            again = entry.retried and isinstance(error, Exception) and not isinstance(error, LabError)
            if piece is None or not (again or protected(piece.root, end.point)):
                raise
            failure = None if again else error
        if failure is None:
            return self._rest(end, globals, cells, state, hooked=True)
        code = failing(piece.root, end.point)
        frame_hook().leave(code)
        state.append(failure)
        del failure
        return self._python(code, globals, cells, state, hooked=True)

    def _python(self, code: CodeType, globals: dict[str, Any], cells: Cells, state: State, hooked: bool) -> Any:
        function = FunctionType(code, globals, code.co_name, None, cells)
        hook = frame_hook()
        if self.callback is None or not hook.isolated:  # entries on shared code objects would be in torch.compile's way
            return function(state)
        with hook.region(self.callback if hooked else None):
            return function(state)

    def _rest(self, end: Resumed, globals: dict[str, Any], cells: Cells, state: State, hooked: bool) -> Any:
        piece = self.pieces.get(id(end.code))
        if piece is None:
            return FunctionType(end.code, globals, end.code.co_name, None, cells)(*state)
        if piece.plain is None:
            piece.plain = rest(piece.root, end.point)
            frame_hook().leave(piece.plain)
        return self._python(piece.plain, globals, cells, state, hooked)

    def _entry(self, end: Resumed, globals: dict[str, Any], cells: Cells, state: State) -> Entry | None:
        """The entry that holds for this state, made if there is none; None where Python is to run the rest."""
        piece = self.pieces.get(id(end.code))
        if piece is None:
            return None
        locals: dict[str, Any] = {GLOBALS: globals, **dict(zip(end.names, state, strict=True)), **contents(end.code, cells)}
        if (found := piece.find(locals)) is not None or piece.left:
            return found
        with frame_hook().lock:
            return piece.find(locals) or self._made(piece, globals, cells, locals)

    def _made(self, piece: Piece, globals: dict[str, Any], cells: Cells, locals: dict[str, Any]) -> Entry | None:
        code = piece.resumed.code
        piece.entries = tuple(e for e in piece.entries if not e.tree.dead)
        piece.compiled += 1
        limit = self.converter.options.recompile_limit
        if len(piece.entries) >= limit or piece.compiled > limit * THRASHING:
            piece.left = True
            self.converter.timeline.limit(code, len(piece.entries), piece.entries, locals)
            return None
        del locals[GLOBALS]
        if piece.entries:
            self.converter.timeline.recompiled(code, len(piece.entries) + 1, piece.entries, locals)
        builtins = FunctionType(code, globals, None, None, cells).__builtins__  # type: ignore[attr-defined]
        entry = self.converter.frame(FrameInput(code, locals, globals, builtins, cells), hooked=False)
        if entry is not None:
            piece.entries = (entry, *piece.entries)
        elif not piece.entries:
            piece.left = True
        return entry


def contents(code: CodeType, cells: Cells) -> dict[str, Any]:
    """What the cells of ``code``'s free variables hold, by name; an empty one is not there."""
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return found


def go_on(pause: Pause, globals: dict[str, Any], cells: Cells, state: State) -> Any:
    """What the replacement code of a frame ends with: runs the rest of it in pieces."""
    pieces = pause.owner()
    if pieces is not None:
        return pieces.drive(pause, globals, cells, state)
    result = FunctionType(pause.code, globals, pause.code.co_name, None, cells)(state)
    if type(result) is not Next:
        return result
    number, state = result
    return FunctionType(pause.ends[number].code, globals, pause.code.co_name, None, cells)(*state)
