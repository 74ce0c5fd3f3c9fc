"""Labs from solutions: the only hand-edited notebook of a lab is its solution; the lab is made from it.

In: ``solutions/NN_topic.ipynb``. Out: ``labs/NN_topic.ipynb``, deterministic: no outputs, no counts, no widget state, ids kept.
Cell tags: ``setup``, ``exercise:NAME``, ``check:NAME``, ``points:N``, ``hidden``, ``timeout:SECONDS``, ``solution-only``, ``manual:NAME``.
In an exercise, what stands between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` becomes a stub that raises
``NotImplementedError`` at the same indent; in a check, what stands between ``### BEGIN HIDDEN TESTS`` and ``### END HIDDEN TESTS`` goes,
and so do hidden checks. Always holds: a solution that breaks a rule is refused, naming the cell, and nothing is written.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from ..core.errors import LabError

Cell = Any  # nbformat's NotebookNode
Notebook = Any


@dataclass(frozen=True)
class Marker:
    begin: str
    end: str
    tag: str  # the kind of cell it may stand in


SOLUTION = Marker("### BEGIN SOLUTION", "### END SOLUTION", "exercise")
HIDDEN = Marker("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS", "check")
MARKERS = (SOLUTION, HIDDEN)
ANY_MARKER = re.compile(r"###\s*(BEGIN|END)\s+(SOLUTION|HIDDEN TESTS)")


class BadSolution(LabError):
    """A solution notebook breaks a rule; ``what`` names the notebook and the cell."""


def tag_value(cell: Cell, kind: str) -> str | None:
    """NAME of the cell's tag ``kind:NAME``; "" for a bare ``kind``; None without one."""
    for tag in cell.metadata.get("tags", []):
        name, _, value = tag.partition(":")
        if name == kind:
            return value
    return None


def build_lab(solution: Notebook, name: str = "notebook") -> Notebook:
    """The lab of a solution, a new notebook. Raises ``BadSolution``."""
    _check(solution, name)
    lab = copy.deepcopy(solution)
    lab.cells = [_lab_cell(cell) for cell in lab.cells if tag_value(cell, "solution-only") is None and tag_value(cell, "hidden") is None]
    lab.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    left = [cell.id for cell in lab.cells if ANY_MARKER.search(cell.source)]
    if left:
        raise BadSolution(
            f"{name}, cell {left[0]}: a marker would be left in the lab", hint="write markers exactly as the guide says, each on a line of its own"
        )
    return lab


def _lab_cell(cell: Cell) -> Cell:
    if cell.cell_type != "code":
        return cell
    cell.outputs, cell.execution_count = [], None
    tags = [t for t in cell.metadata.get("tags", []) if t != "raises-exception"]
    if tag_value(cell, "exercise") is not None:
        cell.source = _replace(cell.source, SOLUTION, stub=True)
        tags.append("raises-exception")
    if tag_value(cell, "check") is not None:
        cell.source = _replace(cell.source, HIDDEN, stub=False)
        tags.append("raises-exception")
    cell.metadata = {"tags": tags} if tags else {}
    return cell


def _replace(source: str, marker: Marker, stub: bool) -> str:
    lines: list[str] = []
    inside = False
    for line in source.split("\n"):
        if line.strip() == marker.begin:
            inside = True
            if stub:
                lines.append(line[: len(line) - len(line.lstrip())] + 'raise NotImplementedError("your code here")')
        elif line.strip() == marker.end:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def _check(solution: Notebook, name: str) -> None:
    """Every rule a solution must keep, cell by cell."""
    seen: set[str] = set()
    exercises: set[str] = set()
    checks: set[str] = set()
    for cell in solution.cells:
        where = f"{name}, cell {cell.id}"
        if cell.id in seen:
            raise BadSolution(f"{where}: the id stands twice", hint="give each cell an id of its own")
        seen.add(cell.id)
        _check_markers(cell, where)
        exercises |= {v for v in [tag_value(cell, "exercise")] if v is not None}
        if (check := tag_value(cell, "check")) is not None:
            checks.add(check)
            _check_plain(cell, where)
    unchecked = sorted(exercises - checks)
    if unchecked:
        raise BadSolution(f"{name}: exercise {unchecked[0]!r} has no check", hint=f"tag a cell check:{unchecked[0]}")


def _check_markers(cell: Cell, where: str) -> None:
    opened: Marker | None = None
    for line in cell.source.split("\n"):
        text = line.strip()
        for marker in MARKERS:
            if text not in (marker.begin, marker.end):
                continue
            if tag_value(cell, marker.tag) is None:
                raise BadSolution(f"{where}: {text!r} stands outside of a cell tagged {marker.tag}:NAME")
            if (text == marker.begin) == (opened is not None) or (text == marker.end and opened is not marker):
                raise BadSolution(f"{where}: {text!r} is unbalanced or nested")
            opened = marker if text == marker.begin else None
    if opened is not None:
        raise BadSolution(f"{where}: {opened.begin!r} has no {opened.end!r}")


def _check_plain(cell: Cell, where: str) -> None:
    try:
        ast.parse(cell.source)
    except SyntaxError as error:
        raise BadSolution(f"{where}: a check must be plain Python", why=str(error), hint="no magics, no shell lines in checks") from error


def read(path: Path) -> Notebook:
    try:
        return nbformat.read(path, as_version=4)
    except (ValueError, KeyError, OSError) as error:
        raise BadSolution(f"{path.name} is not a notebook", why=str(error)) from error


def text_of(notebook: Notebook) -> str:
    """The notebook as it is written to disk."""
    return nbformat.writes(notebook) + "\n"


def build(solutions: Path, labs: Path) -> dict[Path, str]:
    """path in ``labs`` -> content, for each ``solutions/*.ipynb``; nothing is written."""
    return {labs / path.name: text_of(build_lab(read(path), path.name)) for path in sorted(solutions.glob("*.ipynb"))}


def write(solutions: Path, labs: Path) -> list[Path]:
    """Writes every lab, all of them or none; the paths that changed."""
    built = build(solutions, labs)
    labs.mkdir(exist_ok=True)
    changed = [path for path, text in built.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        path.write_text(built[path])
    return changed


def stale(solutions: Path, labs: Path) -> list[str]:
    """Names of labs that differ from what their solution gives, that are missing, or that have no solution."""
    built = build(solutions, labs)
    wrong = [path.name for path, text in built.items() if not path.exists() or path.read_text() != text]
    return wrong + [path.name for path in sorted(labs.glob("*.ipynb")) if path not in built]
