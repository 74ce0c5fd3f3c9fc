"""Labs from solutions: what is stripped, what is refused, and that the committed labs are what their solutions give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from compiler_lab.grading import labs

ROOT = Path(__file__).parent.parent


def notebook(*cells: tuple[str, list[str]]) -> Any:
    made = nbformat.v4.new_notebook()
    for number, (source, tags) in enumerate(cells):
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": tags} if tags else {})
        cell.id = f"c{number}"
        cell.outputs, cell.execution_count = [nbformat.v4.new_output("stream", text="x")], number + 1
        made.cells.append(cell)
    return made


EXERCISE = "def f(x):\n    ### BEGIN SOLUTION\n    y = x\n    return y + 1\n    ### END SOLUTION"
CHECK = "assert f(1) == 2\n### BEGIN HIDDEN TESTS\nassert f(2) == 3\n### END HIDDEN TESTS"


def test_answers_hidden_tests_and_outputs_are_gone() -> None:
    solution = notebook((EXERCISE, ["exercise:a"]), (CHECK, ["check:a", "points:2"]), ("secret = 1", ["check:a", "hidden"]), ("how = 1", ["solution-only"]))
    before = labs.text_of(solution)
    lab = labs.build_lab(solution)
    assert [c.source for c in lab.cells] == ['def f(x):\n    raise NotImplementedError("your code here")', "assert f(1) == 2"]
    assert all(c.outputs == [] and c.execution_count is None for c in lab.cells)
    assert [c.metadata["tags"] for c in lab.cells] == [["exercise:a", "raises-exception"], ["check:a", "points:2", "raises-exception"]]
    assert [c.id for c in lab.cells] == ["c0", "c1"]
    assert labs.text_of(solution) == before, "the solution was changed"


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([(EXERCISE, ["exercise:a"])], "no check"),
        ([(EXERCISE, [])], "outside"),
        ([("### BEGIN SOLUTION", ["exercise:a"]), ("1", ["check:a"])], "has no"),
        ([("### END SOLUTION", ["exercise:a"]), ("1", ["check:a"])], "unbalanced"),
        ([("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", ["exercise:a"]), ("1", ["check:a"])], "nested"),
        ([("### BEGIN  SOLUTION", ["exercise:a"]), ("1", ["check:a"])], "marker would be left"),
        ([("1", ["exercise:a"]), ("%time 1", ["check:a"])], "plain Python"),
    ],
)
def test_a_solution_that_breaks_a_rule_is_refused(cells: list[tuple[str, list[str]]], says: str) -> None:
    with pytest.raises(labs.BadSolution, match=says):
        labs.build_lab(notebook(*cells))


def test_an_id_that_stands_twice_is_refused() -> None:
    solution = notebook(("1", []), ("2", []))
    solution.cells[1].id = "c0"
    with pytest.raises(labs.BadSolution, match="twice"):
        labs.build_lab(solution)


def test_what_is_no_notebook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00_x.ipynb").write_text("{")
    with pytest.raises(labs.BadSolution, match="00_x"):
        labs.write(tmp_path, tmp_path / "labs")


def test_the_committed_labs_are_what_their_solutions_give() -> None:
    assert (ROOT / "solutions").exists() and list((ROOT / "solutions").glob("*.ipynb"))
    assert labs.stale(ROOT / "solutions", ROOT / "labs") == []


def test_solutions_are_committed_executed() -> None:
    """nbval compares nothing in a cell without an execution count."""
    for path in (ROOT / "solutions").glob("*.ipynb"):
        for cell in labs.read(path).cells:
            if cell.cell_type == "code" and cell.source.strip():
                assert cell.execution_count is not None, f"{path.name}, cell {cell.id}"
