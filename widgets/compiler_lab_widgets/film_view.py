"""The film of a capture: every instruction, with what it found on the stack and in the locals, and what it added to graph and guards.

In: the data of ``compiler_lab.observe.film_data``. Out: an HTML fragment: each function with its lines, and every step as a line that says what
changed. With script (``film_view.js``) a slider, buttons and keys go through the steps, and the panes show the state at each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pygments.lexers.python import PythonLexer

from .frame import count, esc, frame, heading, highlight, ident_of

Film = Mapping[str, Any]
LONG = 150  # characters of a step's line
HEAD = "The interpreter executes your bytecode on stand-ins for tensors: what touches tensors becomes a node of the graph, all else is done once, here. Lab 04."


def render(data: Mapping[str, Any]) -> str:
    """The whole view. ``data``: see ``compiler_lab.observe.film_data``."""
    films: list[Film] = list(data["films"])
    ident = ident_of("film", [data["title"], *(text for f in films for text in f["texts"])])
    body = "".join(_film(f, n, ident) for n, f in enumerate(films)) or f'<p class="clab-none">This trace has no film: {esc(data["how"])}.</p>'
    choose = _choose(films) if len(films) > 1 else ""
    if data["left"]:
        choose += f"<p>More films than one page has room for: view('film', graph=N) shows those of graphs {', '.join(map(str, data['left']))}.</p>"
    slim = [{**f, "places": [{"name": p["name"], "function": p["function"], "first": p["first"]} for p in f["places"]]} for f in films]
    return frame("film", ident, f"{data['title']}: the capture as a film", HEAD, choose + body, {"films": slim})


def text(data: Mapping[str, Any]) -> str:
    """Every step in a line."""
    parts = [
        f"{_title(f)}\n" + "\n".join(f"{n + 1:>5}  {_place(f, s)}  {'  ' * s[0]}{f['texts'][s[3]]:<30} {w}".rstrip() for n, (s, w) in enumerate(_steps(f)))
        for f in data["films"]
    ]
    return "\n\n".join(parts) or f"no film: {data['how']}"


def _title(film: Film) -> str:
    broke = f"; it ends with a break: {film['broke']}" if film["broke"] else ""
    return f"{film['function']}, graph {film['graph']}: {count(film['instructions'], 'instruction')}{broke}"


def _place(film: Film, shot: Sequence[Any]) -> str:
    return f"{film['places'][shot[1]]['function']}:{shot[2]}"


def _steps(film: Film) -> Iterator[tuple[Sequence[Any], str]]:
    """Each shot, and what its instruction did in words: what the next one of the same call finds changed, and what was added."""
    shots, texts = film["shots"], film["texts"]
    following: dict[int, int] = {}
    after: list[int | None] = [None] * len(shots)
    for n in range(len(shots) - 1, -1, -1):
        depth = shots[n][0]
        after[n] = following.get(depth)
        following = {d: k for d, k in following.items() if d < depth} | {depth: n}
    heights = _heights(shots)
    for n, shot in enumerate(shots):
        said: list[str] = []
        if (k := after[n]) is not None:
            later = shots[k]
            popped = heights[n] - later[4]
            said += [f"pops {popped}"] if popped else []
            said += [f"pushes {', '.join(texts[t] for t in later[5])}"] if later[5] else []
            said += [f"{texts[name]} is gone" if value < 0 else f"{texts[name]} = {texts[value]}" for name, value in later[6]]
        if n + 1 < len(shots) and shots[n + 1][0] > shot[0]:
            said.append(f"calls {film['places'][shots[n + 1][1]]['function']}, which is opened")
        said += [f"node {texts[t]}" for t in shot[7]] + [f"guard {texts[t]}" for t in shot[8]]
        if n == len(shots) - 1 and film["broke"]:
            said.append(f"break: {film['broke']}")
        line = "; ".join(said)
        yield shot, line if len(line) <= LONG else line[: LONG - 3] + "..."


def _heights(shots: Sequence[Sequence[Any]]) -> list[int]:
    return [shot[4] + len(shot[5]) for shot in shots]


def _choose(films: Sequence[Film]) -> str:
    options = "".join(f'<option value="{n}">{esc(_title(f))}</option>' for n, f in enumerate(films))
    return f'<p class="clab-film-choose"><label>Film <select>{options}</select></label></p>'


def _film(film: Film, number: int, ident: str) -> str:
    last = len(film["shots"]) - 1
    button = lambda name, sign, label: f'<button type="button" data-go="{name}" aria-label="{label}" title="{label}">{sign}</button>'
    bar = (
        f'<div class="clab-film-bar" role="group" aria-label="Go through the steps">{button("first", "|&#9664;&#65038;", "First step (Home)")}'
        f"{button('back', '&#9664;&#65038;', 'One step back (left arrow)')}{button('play', '&#9654;&#65038; Play', 'Play or pause (P)')}"
        f"{button('next', '&#9654;&#65038;', 'One step on (right arrow)')}{button('last', '&#9654;&#65038;|', 'Last step (End)')}"
        f'<input type="range" min="0" max="{last}" value="0" aria-label="Step"><output></output></div>'
    )
    pane = lambda css, title, inner: f'<div class="clab-sec clab-film-{css}">{heading(4, title)}{inner}</div>'
    lists = '<ol class="clab-lines"></ol>'
    note = f"<p>{esc(film['grain'])}</p>" if film["grain"] else ""
    state = (
        f'<div class="clab-film-state">{pane("now", "This instruction", "<p></p><ul></ul>")}{pane("stack", "Operand stack <small>top first</small>", lists)}'
        f"{pane('locals', 'Locals', lists)}{pane('graph', 'Graph so far', lists)}{pane('guards', 'Guards so far', lists)}</div>"
    )
    sources = "".join(_source(p, n) for n, p in enumerate(film["places"]))
    rows = "".join(f'<li data-l="{n + 1}">{esc(_row(film, s, w))}</li>' for n, (s, w) in enumerate(_steps(film)))
    steps = (
        f'<details class="clab-more clab-sec clab-film-all"><summary>All steps, with what each changed</summary><ol class="clab-lines">{rows}</ol></details>'
    )
    return (
        f'<section class="clab-film-one" data-film="{number}" aria-label="{esc(_title(film))}">{heading(3, esc(_title(film)))}{note}{bar}'
        f'<div class="clab-film-panes"><div class="clab-film-source">{sources}</div>{state}</div>{steps}</section>'
    )


def _row(film: Film, shot: Sequence[Any], words: str) -> str:
    return f"{'. ' * shot[0]}{_place(film, shot)}  {film['texts'][shot[3]]}{f'  |  {words}' if words else ''}"


def _source(place: Mapping[str, Any], number: int) -> str:
    said = f"{esc(place['function'])} <small>{esc(place['name'])}, {'your code' if place['lines'] else 'source not in this trace'}</small>"
    painted = highlight("\n".join(place["lines"]), PythonLexer) if place["lines"] else []
    lines = "".join(f'<li data-l="{place["first"] + k}">{line}</li>' for k, line in enumerate(painted))
    return f'<div class="clab-sec" data-place="{number}">{heading(4, said)}<ol class="clab-lines clab-film-lines">{lines}</ol></div>'
