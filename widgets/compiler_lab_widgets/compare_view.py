"""The compare view: two compiles stage by stage, in two columns, with the differences in words.

In: the plain data of ``compiler_lab.observe.compare_data``. Out: an HTML fragment that is complete without script: the sums, then each stage with its counts
and its lines, those of both sides that correspond in one row. With script (``compare_view.js``) stages become tabs, equal rows can be hidden, keys go from
difference to difference. Always holds: the sentence of a count follows from its two numbers; a mark and a word say what the colour says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .frame import count, esc, frame, heading, ident_of, nbytes, seconds, table

Stage = Mapping[str, Any]
MARKS = {"same": ("=", "the same on both sides"), "other": ("~", "another line on each side"), "left": ("-", "left only"), "right": ("+", "right only")}
EXPLANATIONS: dict[str, str] = {
    "capture": "The function's bytecode, run symbolically. Operators stand in one row where both captured the same one, with the same sizes (lab 04).",
    "guard": "What must hold for the compiled code to run again, ordered by the value that is looked at (lab 06).",
    "joint": "Forward and backward below autograd, after decomposition: one aten operator in each line (labs 09 to 11).",
    "partition": "The forward and the backward half, and what is kept in memory between them (lab 12).",
    "lower": "Operators as loops over an index (lab 13).",
    "schedule": "Loops and library calls after fusion: what stands indented is made by the kernel above it (lab 14).",
    "generate": "The source of the kernels, without the code that calls them (labs 16 and 17).",
    "build": "What the compiler of the machine made of it.",
}
APART: dict[str, str] = {  # what the two compilers do differently by design, said where both are shown
    "guard": "torch.compile has one check of all that a tensor is, and one for each mark that could make a dimension dynamic.",
    "joint": "torch.compile's joint graph comes functionalized and decomposed in one go; the lab's is the end of several passes.",
    "lower": "Inductor inlines chains of pointwise operators while it lowers; the lab keeps each as a loop, so that the scheduler decides and says why.",
    "schedule": "So the lab fuses more pairs for the same kernels: those that Inductor never saw apart are decisions here.",
    "build": "The log of torch.compile holds no machine code.",
}


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.compare_data``."""
    stages: list[Stage] = list(data["stages"])
    names = [side["name"] for side in data["sides"]]
    ident = ident_of("compare", [data["title"], *(str(s["counts"]) for s in stages), *(str(r["left"]) + str(r["right"]) for s in stages for r in s["rows"])])
    several = len({s["graph"] for s in stages}) > 1
    tabs = "".join(f'<li><a href="#{ident}-{k}"><span>{esc(_title(s, several))}</span> <small>{_differs(s)}</small></a></li>' for k, s in enumerate(stages, 1))
    first = f'<li><a href="#{ident}-0"><span>Sums</span></a></li>'
    panels = _sums(data, names, ident) + "".join(_panel(s, names, f"{ident}-{k}", k, several, bool(data["lab_and_torch"])) for k, s in enumerate(stages, 1))
    tools = (
        '<div class="clab-tools"><label><input type="checkbox" class="clab-only"> Differences only</label>'
        '<button type="button" class="clab-back">Difference before</button><button type="button" class="clab-on-to">Next difference</button></div>'
    )
    body = f'<div class="clab-nav" role="group" aria-label="Stages"><ul>{first}{tabs}</ul></div><div class="clab-pair">{tools}{panels}</div>'
    head = "; ".join(f"{s['name']}: {s['title']}, {count(s['graphs'], 'graph')}, {seconds(s['seconds'])} in its steps" for s in data["sides"])
    shown = [{"title": _title(s, several), "left_out": s["left_out"]} for s in stages]
    return frame("compare", ident, data["title"], head, body, {"names": names, "stages": shown})


def text(data: Mapping[str, Any]) -> str:
    """Each stage's counts with their differences in words, then its rows that differ."""
    names = [side["name"] for side in data["sides"]]
    several = len({s["graph"] for s in data["stages"]}) > 1
    lines = [data["title"], "", *(f"  {said(c, names)}" for c in data["totals"])]
    for stage in data["stages"]:
        lines += ["", f"== {_title(stage, several)}", *(f"  {said(c, names)}" for c in stage["counts"])]
        for row in stage["rows"]:
            if not row["same"]:
                lines += [f"  {mark} {row[side]['text'].strip()}" for mark, side in (("-", "left"), ("+", "right")) if row[side] is not None]
        lines += [f"  ... {count(stage['left_out'], 'more row')}"] if stage["left_out"] else []
    return "\n".join(lines)


def said(c: Mapping[str, Any], names: Sequence[str]) -> str:
    """What the two numbers of a count say, in words."""
    what, (left, right) = c["what"], c["values"]
    show = {"bytes": nbytes, "seconds": seconds}.get(c["unit"], lambda n: f"{n:,}")
    if left is None or right is None:
        missing, there, value = (names[0], names[1], right) if left is None else (names[1], names[0], left)
        return f"{what}: {show(value)} in {there}; {missing} has not got this stage" if value is not None else f"{what}: in neither"
    if left == right:
        return f"{what}: {show(left)} in both"
    fewer, more, low, high = (names[0], names[1], left, right) if left < right else (names[1], names[0], right, left)
    if c["unit"] == "seconds":
        return f"{what}: {show(left)} in {names[0]}, {show(right)} in {names[1]}" + (f"; {fewer} takes {high / low:.1f} times less" if low else "")
    word = "less" if c["unit"] == "bytes" else "fewer"
    return f"{what}: {show(left)} in {names[0]}, {show(right)} in {names[1]}; {fewer} has {show(high - low)} {word} than {more}"


def _title(stage: Stage, several: bool) -> str:
    return stage["title"] + (f", {stage['part']}" if stage["part"] else "") + (f" (graph {stage['graph']})" if several else "")


def _differs(stage: Stage) -> str:
    """The mark of a stage in the list: how many of its rows differ."""
    if not all(stage["present"]):
        return "one side"
    return f"{differences} differ" if (differences := len(stage["rows"]) + stage["left_out"] - stage["same"]) else "equal"


def _counts(counts: Sequence[Mapping[str, Any]], names: Sequence[str], label: str) -> str:
    show = lambda c, v: "-" if v is None else {"bytes": nbytes, "seconds": seconds}.get(c["unit"], lambda n: f"{n:,}")(v)
    sentence = lambda c: said(c, names).partition(": ")[2]
    cells = [
        [esc(c["what"]), *(f'<span data-value="{"" if v is None else v}">{esc(show(c, v))}</span>' for v in c["values"]), _bars(c["values"]), esc(sentence(c))]
        for c in counts
    ]
    return table(label, ["", *names, "beside each other", "in words"], cells)


def _bars(values: Sequence[float | None]) -> str:
    """Two bars as long as the numbers: a picture of what the cells say."""
    most = max((v for v in values if v is not None), default=0) or 1
    bars = "".join(f'<rect class="clab-v{k}" x="0" y="{k * 7}" width="{0 if v is None else 100 * v / most:.1f}" height="5"/>' for k, v in enumerate(values))
    return f'<svg class="clab-bars" viewBox="0 0 100 13" aria-hidden="true">{bars}</svg>'


def _sums(data: Mapping[str, Any], names: Sequence[str], ident: str) -> str:
    environment = [
        [esc(k), *(esc(str(s["environment"].get(k, "-"))) for s in data["sides"])] for k in dict.fromkeys(k for s in data["sides"] for k in s["environment"])
    ]
    why = "<p>The same function through both compilers: every stage of one beside the same stage of the other.</p>" if data["lab_and_torch"] else ""
    both = _counts(data["totals"], names, "Sums over all stages") + heading(4, "Recorded with") + table("Recorded with", ["", *names], environment)
    return f'<section class="clab-stage" id="{ident}-0" data-stage="0">{heading(3, "Sums")}{why}{both}</section>'


def _panel(stage: Stage, names: Sequence[str], ident: str, number: int, several: bool, apart: bool) -> str:
    title = _title(stage, several)
    why = EXPLANATIONS.get(stage["name"], "") + (f" {APART[stage['name']]}" if apart and stage["name"] in APART else "")
    missing = "".join(f"<p><strong>{esc(names[k])} has not got this stage.</strong></p>" for k in (0, 1) if not stage["present"][k])
    rows = "".join(map(_row, stage["rows"]))
    head = f'<th scope="col">{esc(names[0])}</th><td></td><th scope="col">{esc(names[1])}</th>'
    lines = (
        f'<table class="clab-two"><caption>{esc(_rows_said(stage))}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        if rows else "<p>No lines are comparable here: the counts are.</p>"
    )  # fmt: skip
    counts = _counts(stage["counts"], names, f"Counts of {title}")
    return f'<section class="clab-stage" id="{ident}" data-stage="{number}">{heading(3, esc(title))}<p>{esc(why)}</p>{missing}{counts}{lines}</section>'


def _rows_said(stage: Stage) -> str:
    rows = len(stage["rows"]) + stage["left_out"]
    cut = f"; the first {len(stage['rows'])} are shown" if stage["left_out"] else ""
    return f"{count(stage['same'], 'row')} of {rows:,} the same on both sides{cut}"


def _row(row: Mapping[str, Any]) -> str:
    kind = "same" if row["same"] else "left" if row["right"] is None else "right" if row["left"] is None else "other"
    mark, word = MARKS[kind]
    cells = "".join(_line(row[side]) + (f'<td><abbr title="{word}">{mark}</abbr></td>' if side == "left" else "") for side in ("left", "right"))
    return f'<tr class="clab-{kind}">{cells}</tr>'


def _line(one: Mapping[str, str] | None) -> str:
    if one is None:
        return "<td></td>"
    place = f" <small>{esc(one['line'])}</small>" if one["line"] else ""
    return f"<td><code>{esc(one['text'])}</code>{place}</td>"
