"""The mutator: what it alters, and that seeds are stable. ``make mutants`` runs it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .mutate import GROUPS, ROOT, Mutant, mutants
from .mutate_run import Copy, Cost, verdict
from .mutate_sites import Site, sites

PACKAGE = ROOT / "compiler_lab"

CASES = {
    # text, what it may become
    "def f(a, b):\n    return a < b and a + 1": {
        "def f(a, b):\n    return a <= b and a + 1", "def f(a, b):\n    return a < b or a + 1", "def f(a, b):\n    return a < b and a - 1",
        "def f(a, b):\n    return a < b and a + 2", "def f(a, b):\n    return a < b and a + 0",
    },
    "def f(a):\n    if not a:\n        g(a, 'b')": {
        "def f(a):\n    if a:\n        g(a, 'b')", "def f(a):\n    if True:\n        g(a, 'b')", "def f(a):\n    if False:\n        g(a, 'b')",
        "def f(a):\n    if not a:\n        g('b', a)",
    },
    "T = {'a': 'x', 'b': 'y'}": {"T = {'b': 'y'}", "T = {'a': 'y', 'b': 'y'}", "T = {'a': 'y', 'b': 'x'}"},
    "T = frozenset(('a', 'b', 'c'))": {"T = frozenset(('b', 'c'))", "T = frozenset(('a', 'c'))"},
    "def f(x: int = True):\n    raise E(1 + 2)": {"def f(x: int = False):\n    raise E(1 + 2)"},
    "def f(é, x):\n    return [y for y in é if y]": {"def f(é, x):\n    return [y for y in é if True]"},
}  # fmt: skip

HEADER = {
    "LAB_INLINE float vm_f_f32(float x) { return x < 2.0f ? x + 0x1p1f : -x; }  // 1.0 + 2": {
        "x <= 2.0f ? x + 0x1p1f", "x < 2.002f ? x + 0x1p1f", "x < 2.0f ? x - 0x1p1f", "x < 2.0f ? x + 2.002f",
    },
}  # fmt: skip


def altered(tmp_path: Path, name: str, text: str) -> dict[str, Site]:
    (tmp_path / name).write_text(text)
    return {s.apply(text): s for s in sites(tmp_path, name)}


@pytest.mark.parametrize("text", CASES)
def test_what_is_altered_in_a_table(tmp_path: Path, text: str) -> None:
    found = altered(tmp_path, "t.py", text)
    assert found.keys() == CASES[text]
    assert all(s.changes(text) and s.diff(text).startswith("-") for s in found.values())


@pytest.mark.parametrize("text", HEADER)
def test_what_is_altered_in_the_header(tmp_path: Path, text: str) -> None:
    found = altered(tmp_path, "t.h", text)
    assert {after[after.index("x <") : after.index(" :")] for after in found} == {*HEADER[text]}
    assert all(s.words == {"f"} and s.changes(text) for s in found.values())


def test_seeds_are_mutants_of_every_group_each_once() -> None:
    chosen = mutants(PACKAGE, range(4 * len(GROUPS)))
    assert chosen == mutants(PACKAGE, range(4 * len(GROUPS)))
    assert [m.group for m in chosen] == [*GROUPS] * 4
    assert len({m.site for m in chosen}) == len(chosen)
    for m in chosen:
        source = (PACKAGE / m.site.path).read_text()
        after = m.site.apply(source)
        assert after != source
        if m.site.path.endswith(".py"):
            ast.parse(after)
    assert all((ROOT / "tests" / name).exists() for g in GROUPS for name in g.tests)


def test_tests_that_run_the_line_are_tried_those_that_name_it_first() -> None:
    group = GROUPS[0]
    inside = Mutant(0, group, Site(group.paths[0], 5, "constant", 0, 1, "2", range(5, 7), frozenset({"exp"})))
    on_import = Mutant(0, group, Site(group.paths[0], 5, "constant", 0, 1, "2", range(0), frozenset({"exp"})))
    path = group.paths[0]
    costs = {
        "tests/t.py::slow": Cost(3.0, {path: frozenset({6, 9})}),
        "tests/t.py::fast": Cost(1.0, {path: frozenset({5})}),
        "tests/t.py::other": Cost(0.1, {path: frozenset({7}), "x.py": frozenset({5})}),
        "tests/t.py::named[exp-float32]": Cost(9.0, {path: frozenset({5})}),
    }
    assert [name.partition("::")[2] for name, _ in inside.tests(costs)] == ["named[exp-float32]", "fast", "slow"]
    assert [name.partition("::")[2] for name, _ in on_import.tests(costs)] == ["named[exp-float32]", "other", "fast", "slow"]


REASON = "tests/test_reasons.py::test_a_smallest_program_gives_the_reason_and_lifting_the_condition_flips_it[{}]"
KNOWN = (
    # file, what stands there, what is put there, a test, what comes of it
    ("scheduling/merge.py", "if rows < FEW_ROWS and", "if rows < FEW_ROWS or", REASON.format("reduction boundary-1"), "killed"),
    ("scheduling/memory.py", 'yield from ((buffer, "aliased")', 'yield from ((buffer, "output")', REASON.format("aliased-0"), "killed"),
    ("scheduling/fusion.py", "changed |= joined", "changed = True", REASON.format("empty-0"), "hung"),
    ("scheduling/fusion.py", "changed |= joined", "changed |= joined", REASON.format("empty-0"), "survived"),
)


def tried(folder: Path) -> None:
    """Prints what comes of the known mutants."""
    from . import mutate_run

    mutate_run.SECONDS = 3.0
    copy = Copy(ROOT, folder / "copy")
    for path, old, new, test, _ in KNOWN:
        text = (copy.package / path).read_text()
        assert text.count(old) == 1
        print(json.dumps(verdict(copy, path, text.replace(old, new), [(test, 0.0)], folder / "log")[:2]))


def test_known_mutants_are_killed_or_hang(tmp_path: Path) -> None:
    """In a process of its own: one that has threads cannot be forked."""
    command = [sys.executable, "-c", "import sys, pathlib, torch; from tests.test_mutate import tried; tried(pathlib.Path(sys.argv[1]))", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [outcome for outcome, _ in found] == [expected for *_, expected in KNOWN], (found, (tmp_path / "log").read_text())
    assert all(by == test.removeprefix("tests/") for (outcome, by), (*_, test, _) in zip(found, KNOWN, strict=True) if outcome == "killed")
