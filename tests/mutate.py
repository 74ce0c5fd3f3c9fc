"""Mutants: one random row of a table altered, and whether the differential tests notice. ``python -m tests.mutate --mutants 200``, or ``make mutants``.

In: a number of mutants and the first seed; a seed is one mutant of the project as it is. Out: a line for each on standard output, and a table in
``--report``; exit code 1 if one survived that ``mutate_equivalent.py`` has no proof for. Seeds take the groups of ``GROUPS`` in turn; within a group
every alteration (``mutate_sites.py``) comes once before one comes again. First the tests of every group run once, unaltered, and are traced
(``mutate_run.py``): a mutant is then tried on those that run its line, those first that name what was altered, then the fastest; an alteration that is
read on import on all of its group.
Not mutmut: it alters nothing outside of functions, so no tables. Not cosmic-ray: it alters no texts of operators and no C, and starts a process, that
is, torch, for each mutant.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from . import mutate_run as run
from .mutate_equivalent import EQUIVALENT
from .mutate_sites import Site, sites

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Group:
    """Tables of one kind, and the test files that compare what they make with an oracle."""

    name: str
    paths: tuple[str, ...]
    tests: tuple[str, ...]


GROUPS = (
    Group("operators in C++", ("codegen/cpp_ops.py", "codegen/math_table.py"), ("test_codegen.py", "test_lowering_rows.py", "test_math.py")),
    Group("math header", ("codegen/math.h",), ("test_math.py", "test_random.py")),
    Group(
        "rows of lowering",
        tuple(f"lowering/rows_{n}.py" for n in ("pointwise", "activation", "reduction", "view", "create", "indexed", "scan", "random", "extern")),
        ("test_lowering.py", "test_lowering_rows.py", "test_random.py"),
    ),
    Group(
        "decompositions",
        ("aot/decomposition_rows.py", "aot/resampling_rows.py", "aot/pooling_rows.py", "aot/random_rows.py"),
        ("test_decompose.py", "test_resampling.py", "test_random.py"),
    ),
    Group("bans", ("aot/bans.py",), ("test_bans.py", "test_partition.py")),
    Group("guards", ("frames/guard_table.py", "frames/shape_guards.py"), ("test_guards.py", "test_guard_property.py", "test_symbolic_sizes.py")),
    Group(
        "fusion",
        tuple(f"scheduling/{n}.py" for n in ("fusion", "merge", "respace", "phases", "recompute", "repeat", "reach")),
        ("test_reasons.py", "test_scheduling.py", "test_sizes.py"),
    ),
    Group(
        "planner",
        tuple(f"scheduling/{n}.py" for n in ("memory", "order", "in_place", "places")),
        ("test_memory.py", "test_places.py", "test_peak.py", "test_reasons.py", "test_scheduling.py", "test_sizes.py"),
    ),
    Group("index", ("lowering/index.py",), ("test_index.py", "test_reasons.py", "test_scheduling.py", "test_sizes.py", "test_lowering.py")),
    Group("pooling", ("lowering/rows_pooling.py",), ("test_pooling.py", "test_lowering_rows.py")),
    Group("products", ("lowering/rows_product.py", "lowering/product.py", "codegen/cpp_product.py"), ("test_product.py", "test_fusing.py")),
    Group("encoder", ("aot/encoder_rows.py",), ("test_encoder.py", "test_decompose.py")),
)


@dataclass(frozen=True)
class Mutant:
    seed: int
    group: Group
    site: Site

    def tests(self, costs: Mapping[str, run.Cost], most: float = math.inf) -> list[tuple[str, float]]:
        """(test, seconds) of those that can tell, in the order in which they are tried; those within ``most`` seconds altogether, or the first."""
        lines, path = set(self.site.lines), self.site.path
        able = {name: c for name, c in costs.items() if not lines or lines & c.lines.get(path, frozenset())}
        order = sorted(((name, c.seconds) for name, c in able.items()), key=lambda t: (not self.names(t[0]), t[1], t[0]))
        ends = itertools.accumulate(seconds for _, seconds in order)
        return [t for i, (t, end) in enumerate(zip(order, ends, strict=True)) if not i or end <= most]

    def names(self, test: str) -> bool:
        parts = test.lower().replace("[", ".").replace("]", ".").replace("-", ".").replace("::", ".").split(".")
        return not self.site.words.isdisjoint(parts)


def mutants(root: Path, seeds: Sequence[int]) -> list[Mutant]:
    """One for each seed; equal for equal sources."""
    found = {group: [s for path in group.paths for s in sites(root, path)] for group in GROUPS}
    for group in GROUPS:
        random.Random(group.name).shuffle(found[group])
    chosen: list[Mutant] = []
    for seed in seeds:
        group = GROUPS[seed % len(GROUPS)]
        places = found[group]
        at = seed // len(GROUPS)
        site = next(s for s in places[at % len(places) :] + places if s.changes((root / s.path).read_text()))
        chosen.append(Mutant(seed, group, site))
    return chosen


BATCH = 20

app = typer.Typer(add_completion=False)


@app.command()
def main(
    count: Annotated[int, typer.Option("--mutants", help="how many mutants")] = 200,
    first: Annotated[int, typer.Option(help="the first seed")] = 0,
    seeds: Annotated[str, typer.Option(help="these seeds only, with commas between")] = "",
    seconds: Annotated[float, typer.Option(help="of tests for one mutant; a mutant that survives them is one to try again without")] = math.inf,
    show: Annotated[bool, typer.Option(help="say what is altered, and run nothing")] = False,
    report: Annotated[Path | None, typer.Option(help="a Markdown table of the mutants")] = None,
    keep: Annotated[Path | None, typer.Option(help="a folder for the copy of the project and what was recorded, used again where it is there")] = None,
) -> None:
    chosen = mutants(ROOT / "compiler_lab", [int(s) for s in seeds.split(",")] if seeds else range(first, first + count))
    if show:
        for m in chosen:
            print(f"{m.seed} {m.group.name}: {m.site.path}:{m.site.line} {m.site.kind}\n{m.site.diff((ROOT / 'compiler_lab' / m.site.path).read_text())}")
        return
    with tempfile.TemporaryDirectory() as folder:
        results = Trial(keep or Path(folder)).run(chosen, seconds)
    if report is not None:
        report.write_text(table(results))
    survivors = [r for r in results if r.outcome == "survived"]
    print(f"{len(results)} mutants, {len(survivors)} survivors{': ' + ', '.join(str(r.seed) for r in survivors) if survivors else ''}")
    raise typer.Exit(1 if survivors else 0)


@dataclass(frozen=True)
class Result:
    seed: int
    group: str
    place: str
    kind: str
    diff: str
    outcome: str
    by: str
    seconds: float


class Trial:
    """Mutants one after another in one copy of the project."""

    def __init__(self, folder: Path) -> None:
        run.load()
        self.log = folder / "log"
        self.recorded = folder / "recorded.json"
        self.copy = run.Copy(ROOT, folder / "copy")
        kept = json.loads(self.recorded.read_text()) if self.recorded.exists() else {}
        self.known = {f: {n: run.Cost(s, {p: frozenset(x) for p, x in lines.items()}) for n, (s, lines) in tests.items()} for f, tests in kept.items()}

    def costs(self, group: Group) -> dict[str, run.Cost]:
        """What the group's tests cost; recorded when they are first needed."""
        paths = [p for g in GROUPS for p in g.paths]
        for file in group.tests:
            if file not in self.known:
                self.known[file] = run.record(self.copy, file, paths, self.log)
                kept = {f: {n: [c.seconds, {p: sorted(x) for p, x in c.lines.items()}] for n, c in costs.items()} for f, costs in self.known.items()}
                self.recorded.write_text(json.dumps(kept))
                print(f"{file}: {len(self.known[file])} tests, {sum(c.seconds for c in self.known[file].values()):.0f} s", file=sys.stderr, flush=True)
        return {name: cost for file in group.tests for name, cost in self.known[file].items()}

    def run(self, chosen: Sequence[Mutant], most: float = math.inf) -> list[Result]:
        results: list[Result] = []
        for group in dict.fromkeys(m.group for m in chosen):
            results += self.run_group([m for m in chosen if m.group is group], most)
        return results

    def run_group(self, chosen: Sequence[Mutant], most: float) -> list[Result]:
        """Those inside of functions in forks of one process that has collected the tests, ``BATCH`` at a time; the others each in one of its own."""
        results: list[Result] = []
        texts = {path: (self.copy.package / path).read_text() for path in chosen[0].group.paths}
        jobs = {m: run.Job(m.site.path, m.site.apply(texts[m.site.path]), m.tests(self.costs(m.group), most)) for m in chosen}
        inside = [m for m in chosen if m.site.lines and jobs[m].tests]
        found: dict[Mutant, tuple[str, str, float] | None] = {}
        for m in chosen:
            if m in inside and m not in found:
                batch = inside[inside.index(m) : inside.index(m) + BATCH]
                found |= dict(zip(batch, run.verdicts(self.copy, [jobs[b] for b in batch], self.log), strict=True))
            source, tests = texts[m.site.path], jobs[m].tests
            verdict = found.get(m)
            if verdict is None:
                verdict = run.verdict(self.copy, m.site.path, jobs[m].text, tests, self.log) if tests else ("survived", "no test runs it", 0.0)
            outcome, by, seconds = verdict
            if outcome == "survived" and (proof := EQUIVALENT.get((m.site.path, *m.site.lines_of(source)))):
                outcome, by = "equivalent", proof
            results.append(Result(m.seed, m.group.name, f"{m.site.path}:{m.site.line}", m.site.kind, m.site.diff(source), outcome, by, seconds))
            print(json.dumps(asdict(results[-1])), flush=True)
        return results


def table(results: Sequence[Result]) -> str:
    lines = ["| seed | table | place | what | change | outcome |", "| --- | --- | --- | --- | --- | --- |"]
    for r in results:
        change = "<br>".join(f"`{line.strip()[:150]}`" for line in r.diff.replace("|", "\\|").splitlines())
        lines.append(f"| {r.seed} | {r.group} | {r.place} | {r.kind} | {change} | {r.outcome}: {r.by} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    app()
