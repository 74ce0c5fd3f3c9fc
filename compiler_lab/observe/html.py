"""A trace as HTML: what the views need, and the one-file page.

In: a ``Trace``. Out: ``view_data`` (plain data: every item numbered, with its line of the user's source), ``fragment`` (what a notebook
shows) and ``page`` (a file of its own). Always holds: no external address, complete without script, the same for a loaded trace.
The drawing itself is in ``compiler_lab_widgets``, which sees plain data only.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.artifact import Artifact, Decision, Item, Plain
from ..core.collecting import uncollected
from ..core.provenance import shown_name
from .lineage import Key, Lineage, SourceLine, lineage
from .trace import ABOUT_FRAMES, Step, Trace, source_files

GAP = 12  # lines of a file that nothing maps to and that are left out of the view
AROUND = 3
BRIEF = 40  # lines of each step in text/plain


@uncollected()
def view_data(trace: Trace, only: Sequence[str] | None = None) -> dict[str, Plain]:
    """The trace, or its steps named ``only``, as JSON-able data; lineage goes through all steps in any case.

    sources: [{"name", "first", "lines": [text], "numbers": [source line number]}], the stretches of files that the trace uses.
    steps:   [{"name", "part", "graph", "seconds", "stage", "type", "changed", "text", "removed", "items", "decisions", "lost"}]
    items:   [{"n", "id", "kind", "text", "src": [source line number], "new", "facts"}]; text None: the items say it all
    lost:    [{"src", "step", "why"}]: lines of the user's that no item comes from any more, since ``step``; see ``_why``
    up, src: of item n, the numbers of its parents and of its source lines
    """
    trace = replace(trace, steps=[s for s in trace.steps if s.name not in ABOUT_FRAMES])
    links = lineage(trace)
    number = {key: n for n, key in enumerate(links.items)}
    files = trace._sources or source_files(links.items.values())
    sources, line_number = _sources(links, files)
    src = [sorted(line_number[line] for line in links.lines[key] if line in line_number) for key in links.items]
    artifacts = {id(a): i for i, a in enumerate(trace.artifacts())}
    keys: dict[int, list[Key]] = {}
    for key in links.items:
        keys.setdefault(key[0], []).append(key)
    lost = _lost(trace, links, artifacts, keys)
    steps: list[dict[str, Plain]] = []
    for index, step in enumerate(trace.steps):
        if only and step.name not in only:
            continue
        items = [links.items[k] for k in keys.get(artifacts[id(step.after)], [])]
        before = [] if step.before is None else [links.items[k] for k in keys.get(artifacts[id(step.before)], [])]
        numbers = [number[k] for k in keys.get(artifacts[id(step.after)], [])]
        gone = [{"src": line_number[line], "step": since, "why": why} for line, (since, why) in sorted(lost[index].items()) if line in line_number]
        steps.append({**_step(step, items, before), "items": _items(step, items, before, numbers, src), "lost": gone, "index": index})
    up = [[number[p] for p in links.parents[key]] for key in links.items]
    seconds = trace.seconds
    return {"title": trace.title, "environment": trace.environment, "seconds": seconds, "sources": sources, "steps": steps, "up": up, "src": src}


def _step(step: Step, items: list[Item], before: list[Item]) -> dict[str, Plain]:
    after = step.after
    pass_ = _is_pass(step)
    texts = {i.text for i in items}
    text = after.text()
    decisions = [{"kind": d.kind, "subject": list(d.subject), "outcome": d.outcome, "reason": d.reason, "facts": dict(d.facts)} for d in _new_decisions(step)]
    return {
        "name": step.name,
        "part": step.part,
        "graph": step.graph,
        "seconds": step.seconds,
        "stage": after.stage,
        "type": type_of(after),
        "changed": not pass_ or step.before is None or step.before.text() != text,
        "text": None if text == "\n".join(i.text for i in items) else text,
        "removed": [i.text for i in before if i.text not in texts] if pass_ else [],
        "decisions": decisions,
    }


def _items(step: Step, items: list[Item], before: list[Item], numbers: list[int], src: list[list[int]]) -> list[dict[str, Plain]]:
    pass_ = _is_pass(step)
    known = {i.text for i in before} if pass_ else set[str]()
    return [
        {"n": n, "id": i.id, "kind": i.kind, "text": i.text, "src": src[n], "new": pass_ and i.text not in known, "facts": dict(i.facts)}
        for n, i in zip(numbers, items, strict=True)
    ]


def type_of(artifact: Artifact) -> str:
    """The class an artifact was made as; a loaded one remembers it."""
    return str(getattr(artifact, "type", type(artifact).__name__))


def _is_pass(step: Step) -> bool:
    """The step gives the kind of artifact that it was given: a difference can be shown."""
    return step.before is not None and type_of(step.before) == type_of(step.after)


def _new_decisions(step: Step) -> tuple[Decision, ...]:
    """A pass keeps the decisions of those before it: only what was added is this step's."""
    old = step.before.decisions if step.before is not None and _is_pass(step) else ()
    return step.after.decisions[len(old) :] if step.after.decisions[: len(old)] == old else step.after.decisions


Lost = dict[SourceLine, tuple[int, str]]  # line -> (index of the step that lost it, why)
ENDS = {("eliminate", "removed"), ("merge", "merged"), ("view", "removed"), ("view", "merged"), ("fold", "folded"), ("lower", "view"), ("drop", "dropped")}
ASIDE = ("guard", "plan memory")  # steps that look at some lines only: what they leave out is not lost


def _lost(trace: Trace, links: Lineage, artifacts: dict[int, int], keys: dict[int, list[Key]]) -> list[Lost]:
    """Of each step, the lines that an earlier step of its chain (same graph, same half) had items for and that it has none for."""
    kinds: list[dict[SourceLine, set[str]]] = [{} for _ in artifacts]
    by_id: dict[str, set[SourceLine]] = {}
    for (artifact, name), found in links.lines.items():
        by_id.setdefault(name, set()).update(found)
        for line in found:
            kinds[artifact].setdefault(line, set()).add(links.items[(artifact, name)].kind)
    of: Callable[[Artifact | None], dict[SourceLine, set[str]]] = lambda a: {} if a is None else kinds[artifacts[id(a)]]
    ends = {id(a): _ends(a, by_id) for a in {id(s.after): s.after for s in trace.steps}.values()}
    place = {id(s): k for k, s in reversed([*enumerate(trace.steps)])}
    result: list[Lost] = []
    for index, step in enumerate(trace.steps):
        chain = [s for s in trace.steps[:index] if s.graph == step.graph and s.part in ("", step.part) and s.name not in ASIDE]
        if not chain or step.name in ASIDE:
            result.append({})
            continue
        last, here = chain[-1], of(step.after)
        now: Lost = {line: origin for line, origin in result[place[id(last)]].items() if line not in here}
        for line in of(last.after).keys() - here.keys():
            end = next((found[line] for s in (step, *reversed(chain)) if line in (found := ends[id(s.after)])), None)
            now[line] = (index, _why(end, of(last.after)[line], of(step.before).get(line, set()), last.part != step.part))
        result.append(now)
    return result


def _ends(artifact: Artifact, by_id: Mapping[str, set[SourceLine]]) -> dict[SourceLine, Decision]:
    """Of each line the first decision that ended something of it."""
    found: dict[SourceLine, Decision] = {}
    for decision in artifact.decisions:
        if (decision.kind, decision.outcome) in ENDS:
            for line in (line for i in decision.subject for line in by_id.get(i, ())):
                found.setdefault(line, decision)
    return found


def _why(end: Decision | None, had: set[str], given: set[str], halved: bool) -> str:
    """ "KIND|OUTCOME|REASON" of the decision that ended a line; else "python", "half", "ends", "library", or "" where nothing says it.

    had, given: the kinds of the items that the step before and the step's own input have for it."""
    if not given and halved:
        return "half"
    if had and had <= {"call", "wrapper"}:
        return "library"
    if end is not None:
        return f"{end.kind}|{end.outcome}|{end.reason}"
    if given and given <= {"placeholder", "output"}:
        return "ends"
    return "python" if had <= {"instruction", "guard"} else ""


def _sources(links: Lineage, files: dict[str, list[str]]) -> tuple[list[dict[str, Plain]], dict[SourceLine, int]]:
    """The stretches of files around the lines used, in order of file and line; their lines numbered across all."""
    used: dict[str, set[int]] = {}
    for file, line in frozenset[SourceLine]().union(*links.lines.values()):
        used.setdefault(file, set()).add(line)
    sources: list[dict[str, Plain]] = []
    numbers: dict[SourceLine, int] = {}
    for file in sorted(f for f in used if f in files):
        for first, last in _stretches(used[file], len(files[file])):
            for line in range(first, last + 1):
                numbers[(file, line)] = len(numbers)
            span = [numbers[(file, line)] for line in range(first, last + 1)]
            sources.append({"name": shown_name(file), "first": first, "lines": files[file][first - 1 : last], "numbers": span})
    return sources, numbers


def _stretches(lines: Iterable[int], length: int) -> list[tuple[int, int]]:
    """(first, last) of each run of lines, with ``AROUND`` lines on both sides, runs nearer than ``GAP`` joined."""
    found: list[tuple[int, int]] = []
    for line in sorted(lines):
        first, last = max(line - AROUND, 1), min(line + AROUND, length)
        if found and first - found[-1][1] <= GAP:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


@uncollected()
def fragment(trace: Trace, only: Sequence[str] | None = None) -> str:
    """The pipeline view of ``trace`` (or of its steps named ``only``) as self-contained HTML, for a notebook's output cell."""
    from compiler_lab_widgets.pipeline_view import render

    return render(view_data(trace, only))


def page(trace: Trace) -> str:
    """``fragment`` as a whole document."""
    return document(trace.title, fragment(trace))


def document(title: str, body: str) -> str:
    """A fragment as a page of its own."""
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
    head = f"{meta}<title>{html.escape(title)}</title>"
    style = "margin:0;--clab-height:calc(100vh - 8.5em)"
    unseen = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);margin:0"  # the view shows it; whoever hears the page starts here
    main = f'<main><h1 style="{unseen}">{html.escape(title)}</h1>{body}</main>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body style="{style}">{main}</body></html>\n'


def save_page(trace: Trace, path: str | os.PathLike[str]) -> None:
    write_whole(path, page(trace))


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """A file that is there is replaced only when the new one is whole."""
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)


def brief(trace: Trace, only: Sequence[str] | None = None) -> str:
    """Each step's text under a heading, long ones cut, which they say."""
    parts: list[str] = []
    for step in trace.steps:
        if only and step.name not in only:
            continue
        lines = step.after.text().split("\n")
        cut = [f"... {len(lines) - BRIEF} more lines; all of them with --text"] if len(lines) > BRIEF else []
        parts.append("\n".join([heading(step), *lines[:BRIEF], *cut]))
    return "\n\n".join(parts)


def heading(step: Step) -> str:
    return f"== {step.name}{f' ({step.part})' if step.part else ''}, graph {step.graph}, {step.seconds * 1e3:.1f} ms"


def bundle(artifact: Artifact | Trace, only: Sequence[str] | None = None) -> dict[str, str]:
    """text/plain and text/html, for ``display(..., raw=True)``."""
    if isinstance(artifact, Trace):
        return {"text/plain": brief(artifact, only), "text/html": fragment(artifact, only)}
    return artifact._repr_mimebundle_()
