"""How quick the views are: a training step of a 12-layer GPT-2, a tangled graph of 5,000 nodes, and the real stack's trace of two layers.

usage: python benchmarks/views.py [--folder DIR] [--only REGEX] [--rounds N] [--write]

Traces are made once, into DIR. Of each row of ``VIEWS``, and of the report with all of them:
 data, html   seconds until the view's data are there, and from there to its HTML (of the report: both)
 MB           bytes of the mimebundle, which is what a notebook grows by; of the report: of the file
 first, load  seconds in chromium from opening the file to the first picture (first-contentful-paint), and until its scripts are at work
 clicks       milliseconds from an event to the next frame that is painted: the median of each kind of click or key, the dearest named; and the longest
``--write`` writes ``views.md`` beside this file. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import re
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

import compiler_lab
from compiler_lab.core.artifact import Item
from compiler_lab.core.errors import LabError
from compiler_lab.observe.html import document
from compiler_lab.observe.page import report
from compiler_lab.observe.torch_reference import record_torch
from compiler_lab.observe.torch_trace import RecordedArtifact
from compiler_lab.observe.trace import Step, Trace
from compiler_lab.observe.view import VIEWS, view

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
TARGETS = "Targets: data, html and first together below 2 s, each click below 100 ms, a mimebundle below 3 MB, the report below 8 MB."

# ------------------------------------------------------------------------------------------------------------- the traces


def gpt2(layers: int) -> tuple[Any, Any]:
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=512, n_embd=64, n_layer=layers, n_head=4, n_positions=64)
    return transformers.GPT2LMHeadModel(config).train(), torch.randint(0, 512, (2, 32))


def ours() -> Trace:
    trace = Trace("GPT-2, 12 layers, a training step")
    model, ids = gpt2(12)
    compiler_lab.compile(model, observe=trace.append)(input_ids=ids, use_cache=False).logits.sum().backward()
    return trace


def real() -> Trace:
    model, ids = gpt2(2)

    def step(ids: torch.Tensor) -> None:
        model(input_ids=ids, use_cache=False).logits.sum().backward()

    trace = record_torch(step, ids)
    trace.title = "GPT-2, 2 layers, by torch.compile"
    return trace


def tangled(nodes: int = 5000) -> Trace:
    """Each node reads three of those before it, near and far, by a generator of its own: no modules, no repetition, no order to be found."""
    state, items = 12345, list[Item]()
    for k in range(nodes):
        reads: list[int] = []
        for _ in range(min(3, k)):
            state = (1103515245 * state + 12345) % 2**31
            reads.append(state // 7 % k)
        facts = {"name": f"n{k}", "target": f"aten.op{state % 97}.default", "value": f"f32[{state % 61}, 64]", "inputs": [f"capture/n{r}" for r in reads]}
        items.append(Item(f"capture/n{k}", "call_function", f"n{k} = op{state % 97}({', '.join(f'n{r}' for r in reads)})", facts=facts))
    graph = RecordedArtifact("Nodes", "capture", "\n".join(i.text for i in items), tuple(items))
    return Trace(f"a tangled graph of {nodes:,} nodes", [Step("capture", None, graph, 0.0)])


TRACES: dict[str, Callable[[], Trace]] = {"gpt2": ours, "tangled": tangled, "torch": real}


def cached(name: str, folder: Path) -> Trace:
    path = folder / f"{name}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        TRACES[name]().save(path)
    return Trace.load(path)


# ------------------------------------------------------------------------------------------------------------ what is done


@dataclass(frozen=True)
class Act:
    """``find``: what is acted on, the one in the middle of them; ``do``: "click", or the key that is pressed on it, or "=text" that is filled in."""

    what: str
    find: str
    do: str = "click"


ACTS: Mapping[str, Sequence[Act]] = {
    "pipeline": (
        Act("a step", ".clab-nav a"), Act("a step by key", ".clab-nav a[tabindex='0']", "ArrowDown"), Act("a line of yours", ".clab-src li"),
        Act("a line of a step", ".clab-shown .clab-lines li"), Act("a pane opens", ".clab-shown details > summary"), Act("let go", ".clab-src li", "Escape"),
    ),
    "graph": (
        Act("a box", ".clab-n:not(.clab-fold)"), Act("unfold", ".clab-fold"), Act("fold", ".clab-box"),
        Act("along an edge", ".clab-n[tabindex='0']", "ArrowDown"),
        Act("search", "input[type=search]", "=view"), Act("next hit", "input[type=search]", "Enter"), Act("zoom", "button[aria-label='Zoom in']"),
        Act("unfold one level", "button[aria-label='Unfold all groups that are seen']"), Act("fold all", "button[aria-label='Fold all groups']"),
    ),
    "film": (Act("next", "button.clab-next"),),
    "guards": (Act("a check", ".clab-guards-tree li li > span"), Act("next check", ".clab-guards-tree li[tabindex='0']", "ArrowDown")),
    "breaks": (),
    "fusion": (
        Act("next", ".clab-next"), Act("last", ".clab-last"), Act("next by key", ".clab-at", "ArrowLeft"), Act("a loop", ".clab-boxes button"),
        Act("a table opens", ".clab-shown details > summary"),
    ),
    "memory": (
        Act("a buffer", ".clab-mprogram.clab-shown .clab-life .clab-bar"), Act("next buffer", ".clab-mprogram.clab-shown .clab-bar[tabindex='0']", "ArrowDown"),
        Act("a table opens", ".clab-shown details > summary"),
    ),
    "compare": (Act("next", "button"), Act("a line", "summary")),
    "report": (Act("a view", ".clab-tabs a"),),
}  # fmt: skip
PAINTED = """([find, round, kind]) => new Promise(done => {
  const seen = [...document.querySelectorAll(find)].filter(e => e.getClientRects().length), e = seen[(Math.floor(seen.length / 2) + round) % seen.length];
  if (!e) return done(-1);
  setTimeout(() => {
    const began = performance.now(), channel = new MessageChannel(), told = () => requestAnimationFrame(() => channel.port2.postMessage(0));
    channel.port1.onmessage = () => done(performance.now() - began);
    if (kind === 'click') e.dispatchEvent(new PointerEvent('click', {bubbles: true, cancelable: true}));
    else if (kind[0] === '=') { e.value = kind.slice(1); e.dispatchEvent(new Event('input', {bubbles: true})); }
    else { e.focus(); e.dispatchEvent(new KeyboardEvent('keydown', {key: kind, bubbles: true, cancelable: true})); }
    if (e.tagName === 'SUMMARY') setTimeout(told, 0); else told();
  }, 60);
})"""


def times(page: Page, act: Act, rounds: int) -> list[float]:
    """Milliseconds of each round; elements are asked for anew each time, from the middle of them on."""
    return [ms for k in range(rounds) if (ms := page.evaluate(PAINTED, [act.find, k, act.do])) >= 0]


def opened(browser: Any, path: Path) -> tuple[Any, float, float]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    began = time.perf_counter()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector(".clab-on", state="attached", timeout=120_000)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
    seconds = time.perf_counter() - began
    page.wait_for_timeout(700)
    return page, page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1e3, seconds


def measured(name: str, html: str, browser: Any, folder: Path, rounds: int) -> str:
    path = folder / f"{name}.html"
    path.write_text(html, encoding="utf-8")
    loads: list[tuple[float, float]] = []
    for _ in range(2):
        page, *seconds = opened(browser, path)
        loads.append((seconds[0], seconds[1]))
        page.close()
    page, *seconds = opened(browser, path)
    loads.append((seconds[0], seconds[1]))
    each = {act.what: t for act in ACTS.get(name, ()) if (t := times(page, act, rounds))}
    page.close()
    medians = {what: statistics.median(t) for what, t in each.items()}
    said = "; ".join(f"{what} {ms:.0f}" for what, ms in sorted(medians.items(), key=lambda p: -p[1]))
    longest = max((max(t) for t in each.values()), default=0.0)
    first, work = (statistics.median(t[k] for t in loads) for k in (0, 1))
    return f"{first:.2f} | {work:.2f} | {said or 'none'} | {longest:.0f}"


def rows(name: str, trace: Trace, browser: Any, folder: Path, only: str, rounds: int) -> list[str]:
    lines: list[str] = []
    for row in VIEWS:
        if not re.search(only, f"{name} {row}") or (name == "tangled" and row != "graph"):
            continue
        gc.collect()
        began = time.perf_counter()
        try:
            shown = view(trace, row, **({"other": trace} if row == "compare" else {}))
        except LabError as error:
            lines.append(f"| {row} | {error.what} | | | | | | |")
            continue
        ready = time.perf_counter()
        html = shown.html()
        done = time.perf_counter()
        size = sum(len(v.encode()) for v in shown._repr_mimebundle_().values())
        page = document(trace.title, html)
        lines.append(f"| {row} | {ready - began:.2f} | {done - ready:.2f} | {size / 1e6:.2f} | {measured(row, page, browser, folder, rounds)} |")
        print(lines[-1], flush=True)
    if re.search(only, f"{name} report") and name != "tangled":
        began = time.perf_counter()
        html = report(trace)
        seconds = time.perf_counter() - began
        lines.append(f"| report | {seconds:.2f} | | {len(html.encode()) / 1e6:.2f} | {measured('report', html, browser, folder, rounds)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/views"))
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = f"# Speed of the views\n\n`python benchmarks/views.py`; what the columns are is told there. {TARGETS}\n"
    traces = {name: cached(name, given.folder) for name in TRACES if re.search(given.only.split(" ")[0], f"{name} ") or not given.only}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, trace in traces.items():
            text += f"\n## {trace.title}: {sum(len(a.items()) for a in trace.artifacts()):,} items\n\n"
            text += "| view | data s | html s | MB | first s | load s | clicks ms | longest ms |\n|---|---|---|---|---|---|---|---|\n"
            text += "\n".join(rows(name, trace, browser, given.folder, given.only, given.rounds)) + "\n"
        browser.close()
    if given.write:
        Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
