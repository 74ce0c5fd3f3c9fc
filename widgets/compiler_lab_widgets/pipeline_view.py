"""The pipeline view: every step of a compile, with linked lines from the user's source to the machine code.

In: the plain data of ``compiler_lab.observe.html.view_data``. Out: an HTML fragment that is complete without script: the source, then
each step with its lines, decisions and text. With script (``pipeline_view.js``) the steps become tabs, two of them can stand side by
side, and a line under the pointer or the cursor lights up everything it comes from and everything made of it.
Always holds: all text is escaped, no external address, every rule is prefixed ``clab``; item n is line n - start of its list.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer

from . import words
from .frame import count, esc, frame, heading, highlight, ident_of, more, packed, seconds
from .memory_chart import memory_chart
from .pipeline_far import Far, lines

PAINTS = {"line": "cpp", "call": "cpp", "wrapper": "python", "triton": "python"}  # how the script paints the lines that it draws
LEXERS: dict[str, type[Lexer]] = {"line": CppLexer, "call": CppLexer, "wrapper": PythonLexer, "triton": PythonLexer}
NODE = re.compile(r"^(\w+)(: .*?)? = ([\w.]+)(.*)$", re.DOTALL)
FOLDED = ("guard", "call", "wrapper", "instruction", "replacement")
LONG = 24  # sections of these kinds that have more lines are folded

Item = Mapping[str, Any]
Step = Mapping[str, Any]


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.html.view_data``."""
    steps: list[Step] = list(data["steps"])
    ident = ident_of("pipeline", [data["title"], *(i["text"] for s in steps for i in s["items"])])
    view = Panels(data, ident)
    panels = "".join(map(view.panel, steps))
    sources = source_lists(data["sources"])
    environment = ", ".join(f"{k} {v}" for k, v in data["environment"].items())
    head = f"{count(len({s['graph'] for s in steps}), 'graph')}, {count(len(steps), 'step')}, {seconds(data['seconds'])} to compile; {environment}"
    body = (
        f'<div class="clab-nav" role="group" aria-label="Steps of the compile">{_nav(steps, ident)}</div>'
        f'<div class="clab-panes"><section class="clab-source" aria-label="Your source">{heading(3, "Your source")}{view.far.note()}{sources}</section>'
        f'<div class="clab-steps">{panels}</div></div>'
    )
    linked = links(data, steps)
    return frame("pipeline", ident, data["title"], head, body, {"packed": packed({**linked, "far": view.far.panes})} if view.far.panes else linked)


def text(data: Mapping[str, Any]) -> str:
    """Each step's text under its heading."""
    said = lambda s: s["text"] if s["text"] is not None else "\n".join(i["text"] for i in s["items"])
    return "\n\n".join(f"== {_title(s)}, {seconds(s['seconds'])}\n{said(s)}" for s in data["steps"])


def _nav(steps: Sequence[Step], ident: str) -> str:
    """One list for each phase, in order of their first steps."""
    phases: dict[tuple[int, str], list[Step]] = {}
    for step in steps:
        phases.setdefault((step["graph"], words.phase(step)), []).append(step)
    most = max((step["seconds"] for step in steps), default=0.0) or 1.0
    several = len({graph for graph, _ in phases}) > 1
    parts: list[str] = []
    same = ' class="clab-same" title="this step changed nothing"'
    for (graph, phase), members in phases.items():
        tabs = "".join(
            f'<li><a href="#{ident}-{s["index"]}"{"" if s["changed"] else same} '
            f'style="--clab-w:{s["seconds"] / most:.3f}"><span>{esc(s["name"])}</span> <small>{seconds(s["seconds"])}</small></a></li>'
            for s in members
        )
        parts.append(f"{heading(3, esc(f'Graph {graph}: {phase}' if several else phase))}<ul>{tabs}</ul>")
    return "".join(parts)


class Panels:
    """What the panels need of the whole: titles of steps, and the user's line behind each number."""

    def __init__(self, data: Mapping[str, Any], ident: str) -> None:
        self.ident = ident
        self.far = Far(data["steps"])
        self.titles = {s["index"]: _title(s) for s in data["steps"]}
        self.groups = {(s["part"], s["graph"]): _groups(s) for s in data["steps"] if s["name"] == "schedule"}
        self.line: dict[int, int] = {}
        self.where: dict[int, str] = {}
        for source in data["sources"]:
            for k, n in enumerate(source["numbers"]):
                self.line[n] = source["first"] + k
                self.where[n] = f"{source['name']}:{source['first'] + k}"

    def panel(self, step: Step) -> str:
        note = "" if step["changed"] else "<p><em>This step changed nothing.</em></p>"
        slots = [item for item in step["items"] if item["kind"] == "slot"]
        chart = memory_chart(slots, self.groups.get((step["part"], step["graph"]), [])) if slots else ""
        sections = "".join(self.section(step, title, items) for title, items in _sections(step))
        index = step["index"]
        title = f"{esc(self.titles[index])} <small>{seconds(step['seconds'])}</small>"
        return (
            f'<div class="clab-step" id="{self.ident}-{index}" data-step="{index}">{heading(3, title)}'
            f"<p>{esc(words.EXPLANATIONS.get(step['name'], ''))}</p>{note}{chart}{sections}"
            f"{self.removed(step)}{self.lost(step)}{self.decisions(step)}{self.text(step)}</div>"
        )

    def section(self, step: Step, title: str, items: list[Item]) -> str:
        kind = items[0]["kind"]
        if kind == "assembly":
            return heading(4, esc(title)) + "".join(self.assembly(step, name, group) for name, group in _by_kernel(items))
        said = f"{esc(title)} <small>{count(len(items), 'line')}</small>"
        if not self.far.near(len(items)):
            way = PAINTS.get(kind, "node")
            return self.far.pane(said, "clab-sec", step, lines(items, way, _depths(items) if way == "node" else ()))
        lists = self.lists(items, paint(items))
        if kind in FOLDED and len(items) > LONG:
            return more(said, lists, "clab-sec")
        return f'<div class="clab-sec">{heading(4, said)}{lists}</div>'

    def assembly(self, step: Step, name: str, items: list[Item]) -> str:
        vector = sum(bool(item["facts"].get("vector")) for item in items)
        said = f"{esc(name)} <small>{count(len(items), 'line')}, {vector} of vector arithmetic</small>"
        if not self.far.near(len(items)):
            return self.far.pane(said, "clab-sec", step, lines(items, "assembly"))
        return more(said, self.lists(items, [instruction(item) for item in items]), "clab-sec")

    def lists(self, items: list[Item], painted: list[str]) -> str:
        """Ordered lists that count as the items are numbered: a new one where a number is left out. The user's line stands at the edge."""
        parts: list[str] = []
        expected, last = -1, ""
        for item, text in zip(items, painted, strict=True):
            if item["n"] != expected:
                parts.append(f'{"</ol>" if parts else ""}<ol class="clab-lines" start="{item["n"]}">')
                last = ""
            numbers = [self.line[s] for s in item["src"]]
            label = ",".join(map(str, numbers[:2])) + ("+" if len(numbers) > 2 else "")
            shown = f' data-l="{label}"' if label and label != last else ""
            last, expected = label, item["n"] + 1
            parts.append(f"<li{shown}>{f'<ins>{text}</ins>' if item['new'] else text}</li>")
        return "".join(parts) + "</ol>"

    def lost(self, step: Step) -> str:
        """The lines of the user's that nothing in this step comes from, with the reason and the step that has it."""
        if not step["lost"]:
            return ""
        said = lambda one: "" if one["step"] == step["index"] else f" ({self.titles.get(one['step'], 'an earlier step')})"
        rows = "".join(f"<li>{esc(self.where[one['src']])}: {esc(words.why_lost(one['why']))}{esc(said(one))}</li>" for one in step["lost"])
        return more(f"Your lines that nothing here comes from <small>{len(step['lost'])}</small>", f"<ul>{rows}</ul>")

    def removed(self, step: Step) -> str:
        gone = step["removed"]
        said = f"Removed or replaced by this step <small>{count(len(gone), 'line')}</small>"
        return _removed(gone, said) if self.far.near(len(gone)) else self.far.pane(said, "", step, {"kind": "gone", "text": gone})

    def decisions(self, step: Step) -> str:
        """A table with one part for each (kind, outcome, reason), its sentence at the head; complete, however long."""
        found = step["decisions"]
        if not found:
            return ""
        parts = _alike(found)
        saved = sum(d["facts"].get("bytes_saved", 0) for d in found if d["kind"] == "fuse" and d["outcome"] == "accepted")
        traffic = f"; what was fused moves {saved:,} bytes less" if saved else ""
        counts = ", ".join(f"{sum(len(m) for k, m in parts if k[1] == o)} {o}" for o in dict.fromkeys(k[1] for k, _ in parts))
        said = f"Why: {count(len(found), 'decision')} <small>{esc(counts + traffic)}</small>"
        if self.far.near(len(found)):
            return more(said, _decisions(parts), "clab-why")
        rows = [[": ".join((f"{k[0]}, {k[1]}", k[2])), words.sentence(k[0], k[2]), [[_subject(d["subject"]), _facts(d["facts"])] for d in m]] for k, m in parts]
        return self.far.pane(said, "", step, {"kind": "why", "parts": rows})

    def text(self, step: Step) -> str:
        text = step["text"]
        if text is None or self.far.near(text.count("\n") + 1):
            return "" if text is None else more("As text", f'<pre tabindex="0">{esc(text)}</pre>', "clab-sec")
        return self.far.pane(f"As text <small>{count(text.count(chr(10)) + 1, 'line')}</small>", "clab-sec", step, {"kind": "text", "text": text})


def _title(step: Step) -> str:
    return step["name"] + (f", {step['part']}" if step["part"] else "") + (f" (graph {step['graph']})" if step["graph"] else "")


def _groups(schedule: Step) -> list[str]:
    """The names of a schedule's kernels and library calls in order: ids with one level."""
    return [item["id"].split("/")[1] for item in schedule["items"] if item["id"].count("/") == 1]


def _sections(step: Step) -> list[tuple[str, list[Item]]]:
    """(title, items) in the order of ``words.ORDER``; graphs apart by stage; a kind without a section belongs to the artifact's own."""
    own = words.TYPES.get(step["type"])
    stages = {item["id"].split("/", 1)[0] for item in step["items"] if words.SECTIONS.get(item["kind"]) == "Graph"}
    order = {title: k for k, title in enumerate(words.ORDER)}
    found: dict[tuple[int, str], list[Item]] = {}
    for item in step["items"]:
        title = own or words.SECTIONS.get(item["kind"]) or "Items"
        stage = item["id"].split("/", 1)[0]
        name = f"Graph {stage}" if title == "Graph" and len(stages) > 1 else title
        found.setdefault((order.get(title, len(order)), name), []).append(item)
    return [(name, items) for (_, name), items in sorted(found.items(), key=lambda pair: pair[0][0])]


def _by_kernel(items: list[Item]) -> list[tuple[str, list[Item]]]:
    kernels: dict[str, list[Item]] = {}
    for item in items:
        kernels.setdefault(item["facts"].get("kernel", ""), []).append(item)
    return sorted(kernels.items(), key=lambda pair: (len(pair[0]), pair[0]))


def instruction(item: Item) -> str:
    """Labels and vector arithmetic stand out; the rest is plain, since there are thousands of them."""
    text: str = item["text"]
    if text.endswith(":"):
        return f'<i class="k">{esc(text)}</i>'
    if not item["facts"].get("vector"):
        return esc(text)
    name, _, rest = text.strip().partition(" ")
    return f'<i class="f">{text[: len(text) - len(text.lstrip())]}{esc(name)}</i> {esc(rest)}'


def paint(items: list[Item]) -> list[str]:
    """Each item's text as HTML: coloured by the lexer of its kind, else as a node; indented under the item whose id its own begins with."""
    lexer = LEXERS.get(items[0]["kind"])
    if lexer is not None:
        return highlight("\n".join(item["text"] for item in items), lexer)
    return ["  " * depth + _node(item["text"]) for item, depth in zip(items, _depths(items), strict=True)]


def _depths(items: list[Item]) -> list[int]:
    """How many of the items before it each stands in: those whose id its own begins with."""
    above: list[str] = []
    depths: list[int] = []
    for item in items:
        while above and not (item["id"].startswith(above[-1]) and item["id"][len(above[-1])] in "/:.["):
            above.pop()
        depths.append(len(above))
        above.append(item["id"])
    return depths


def _node(text: str) -> str:
    found = NODE.match(text)
    if found is None:
        return esc(text)
    name, value, target, rest = found.groups()
    kind = f'<i class="c">{esc(value)}</i>' if value else ""
    return f'{esc(name)}{kind} = <i class="f">{esc(target)}</i>{esc(rest)}'


def source_lists(sources: Iterable[Mapping[str, Any]]) -> str:
    blocks: list[str] = []
    for source in sources:
        painted = highlight("\n".join(source["lines"]), PythonLexer)
        lines = "".join(f'<li data-l="{source["first"] + k}">{text}</li>' for k, text in enumerate(painted))
        said = f"{esc(source['name'])} <small>lines {source['first']} to {source['first'] + len(painted) - 1}</small>"
        start = f'start="{source["numbers"][0]}" data-file="{esc(source["name"])}" data-first="{source["first"]}"'
        blocks.append(f'<div class="clab-sec">{heading(4, said)}<ol class="clab-lines clab-src" {start}>{lines}</ol></div>')
    return "".join(blocks) or "<p>Source not available.</p>"


Alike = list[tuple[tuple[str, str, str], list[Mapping[str, Any]]]]


def _alike(decisions: list[Mapping[str, Any]]) -> Alike:
    """Those of one (kind, outcome, reason) together, the most first within an outcome."""
    parts: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for d in decisions:
        parts.setdefault((d["kind"], d["outcome"], d["reason"]), []).append(d)
    return sorted(parts.items(), key=lambda pair: (pair[0][0], pair[0][1], -len(pair[1])))


def _decisions(parts: Alike) -> str:
    bodies = ""
    for (kind, outcome, reason), members in parts:
        said = words.sentence(kind, reason)
        bodies += f'<tbody><tr><th colspan="2" scope="rowgroup">{esc(f"{kind}, {outcome}: {reason}")} <small>{len(members)}</small>'
        bodies += f"{f'<br><em>{esc(said)}</em>' if said else ''}</th></tr>"
        bodies += "".join(f"<tr><td>{esc(_subject(d['subject']))}</td><td>{esc(_facts(d['facts']))}</td></tr>" for d in members) + "</tbody>"
    table = f'<table><thead><tr><th scope="col">what</th><th scope="col">facts</th></tr></thead>{bodies}</table>'
    return f'<div class="clab-scroll" tabindex="0" role="group" aria-label="Decisions">{table}</div>'


def _subject(subject: list[str]) -> str:
    return " + ".join(s.split("/", 1)[-1] for s in subject)


def _facts(facts: Mapping[str, Any]) -> str:
    plain = lambda v: v if isinstance(v, str) else f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else json.dumps(v)
    return ", ".join(f"{k.replace('_', ' ')} {plain(v)}" for k, v in facts.items())


def _removed(lines: list[str], said: str) -> str:
    if not lines:
        return ""
    gone = "".join(f"<li><del>{esc(line)}</del></li>" for line in lines)
    return more(said, f'<ul class="clab-gone" tabindex="0">{gone}</ul>')


def links(data: Mapping[str, Any], steps: list[Step]) -> dict[str, Any]:
    """For the script: of every item its parents and source lines, runs of equal ones once ("3 4*7": the next seven); why lines are lost."""
    sentences: dict[str, int] = {}
    lost = {s["index"]: {o["src"]: sentences.setdefault(words.why_lost(o["why"]), len(sentences)) for o in s["lost"]} for s in steps if s["lost"]}
    return {"up": _runs(data["up"]), "src": _runs(data["src"]), "lost": lost, "why": list(sentences)}


def _runs(lists: list[list[int]]) -> str:
    runs = ((" ".join(map(str, key)), len(list(group))) for key, group in itertools.groupby(lists))
    return ",".join(f"{text}*{k}" if k > 1 else text for text, k in runs)
