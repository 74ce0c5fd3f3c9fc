"""The command line: ``compiler-lab demo``, ``inspect``, ``show``, ``export``, ``doctor``, ``cache``, ``labs``.

Each command is a thin front on a function of the package; errors of the project end with their own text and exit status 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .core.errors import LabError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A PyTorch compiler you can see into.", pretty_exceptions_enable=False)


@app.command()
def demo(
    html: Annotated[Path | None, typer.Option(help="write the whole trace to this file, one page that needs no network")] = None,
    steps: Annotated[int, typer.Option(min=1, help="training steps, compiled and eager side by side")] = 20,
    backend: Annotated[str, typer.Option(help="lab, aot_eager, aot_eager_decomp or eager")] = "lab",
) -> None:
    """Train a small GPT on compiled kernels beside eager, and show every stage of both passes."""
    from . import demo as program
    from . import session
    from .observe.trace import Trace

    trace = Trace("a small GPT, one training step")
    model, data = program.tiny_gpt()
    compiled = program.train(model, session.compile(model, backend=backend, fullgraph=True, observe=trace.append), data, steps)
    model, data = program.tiny_gpt()
    eager = program.train(model, model, data, steps)
    table = Table("step", "loss, compiled", "loss, eager", "difference")
    for number in sorted({1, *range(steps // 5, steps + 1, max(steps // 5, 1)), steps} - {0}):
        c, e = compiled[number - 1], eager[number - 1]
        table.add_row(str(number), f"{c:.6f}", f"{e:.6f}", f"{abs(c - e):.1e}")
    console = Console()
    console.print(table)
    console.print("  ".join(f"{s.name}{f' ({s.part})' if s.part else ''} {s.seconds * 1e3:.0f} ms" for s in trace.steps))
    if html is not None:
        trace.to_html(html)
        console.print(f"Every stage is in {html}")


@app.command()
def doctor() -> None:
    """What was found on this machine, what it means, and how to mend what is missing."""
    from .runtime.doctor import diagnose

    table = Table("", "what", "found", "what it means", "how to mend it")
    for f in diagnose():
        table.add_row("ok" if f.ok else "--", f.name, f.found, f.meaning, "" if f.ok else f.mend)
    Console().print(table)


@app.command()
def inspect(
    script: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="a Python program; its own arguments follow after --")],
    arguments: Annotated[list[str] | None, typer.Argument(help="what the program gets as sys.argv[1:]")] = None,
    html: Annotated[Path, typer.Option(help="the report, one page that needs no network")] = Path("compile-report.html"),
    save: Annotated[Path | None, typer.Option(help="also the trace itself: compiler-lab show opens it")] = None,
    stack: Annotated[str, typer.Option(help="whose compiles are recorded: lab, torch or both")] = "lab",
) -> None:
    """Run a script as it is, record every compile in it, and write the report. Its output, errors and exit status are its own."""
    from .scripts import inspect_script

    raise typer.Exit(inspect_script(script, arguments or [], html, save, stack))


@app.command()
def show(
    file: Annotated[Path, typer.Argument(exists=True, help="a saved trace, or what TORCH_TRACE wrote")],
    stage: Annotated[list[str] | None, typer.Option(help="only this step; can be given several times")] = None,
    view: Annotated[str, typer.Option(help="one view instead of all steps: see the README for their names")] = "",
    format: Annotated[str, typer.Option(help="text, json or html")] = "text",
    compare: Annotated[Path | None, typer.Option(exists=True, help="another saved trace, for --view compare and --view time")] = None,
) -> None:
    """A saved trace as text, JSON or HTML on standard output; html without --view and --stage is the report with every view."""
    from .observe.html import document, page
    from .observe.page import report
    from .scripts import open_trace

    trace = open_trace(file)
    other = None if compare is None else open_trace(compare)
    if stage:
        unknown = sorted(set(stage) - {s.name for s in trace.steps})
        if unknown:
            raise LabError(f"no step {unknown[0]!r} in {file.name}", hint=f"steps: {', '.join(dict.fromkeys(s.name for s in trace.steps))}")
        trace.steps = [s for s in trace.steps if s.name in stage]
    forms: dict[str, Callable[[], str]] = {
        "text": trace.text, "json": lambda: json.dumps(trace.to_json(), indent=1), "html": lambda: page(trace) if stage else report(trace, other),
    }  # fmt: skip
    if format not in forms:
        raise LabError(f"unknown format {format!r}", hint=f"one of: {', '.join(forms)}")
    if view or other is not None:
        shown = trace.view(view or "compare", **({} if other is None else {"other": other}))
        title = str(shown.data.get("title", shown.name))
        forms = {"text": shown.text, "json": lambda: json.dumps(shown.data, indent=1), "html": lambda: document(title, shown.html())}
    print(forms[format]())


@app.command()
def export(
    notebook: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="a notebook")],
    html: Annotated[Path | None, typer.Option(help="the page; beside the notebook by default")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="run its cells first; the notebook's file stays as it is")] = False,
) -> None:
    """A notebook as one page that needs no network, with every view, live ones too."""
    try:
        from .export import export as write
    except ImportError as error:
        raise LabError(f"exporting needs {error.name}", hint="pip install nbconvert ipykernel") from error
    out = html or notebook.with_suffix(".html")
    write(notebook, out, execute)
    print(f"wrote {out}")


cache = typer.Typer(no_args_is_help=True, help="What is kept on disk: built kernels and captured functions.")
app.add_typer(cache, name="cache")
CacheFolder = Annotated[str, typer.Option(help="the folder that the option cache_dir names; the user's cache folder by default")]


@cache.command("info")
def cache_info(cache_dir: CacheFolder = "") -> None:
    """Where it is, and how much is in it."""
    from .runtime.cache import open_cache

    found = open_cache(cache_dir).info()
    print(f"{found.root}{'' if found.writable else ' (cannot be written)'}")
    print(f"{found.entries} captured functions, {found.libraries} libraries of kernels, {found.nbytes / 2**20:.1f} MiB")


@cache.command("clear")
def cache_clear(cache_dir: CacheFolder = "") -> None:
    """Remove all of it. What runs now goes on."""
    from .runtime.cache import open_cache

    found = open_cache(cache_dir)
    count = found.info()
    found.clear()
    print(f"removed {count.entries} captured functions and {count.libraries} libraries of kernels from {count.root}")


labs = typer.Typer(no_args_is_help=True, help="Labs from solutions.")
app.add_typer(labs, name="labs")
Folder = Annotated[Path, typer.Option(exists=True, file_okay=False)]


@labs.command("build")
def labs_build(solutions: Folder = Path("solutions"), out: Annotated[Path, typer.Option(file_okay=False)] = Path("labs")) -> None:
    """Write labs/ from solutions/, without the answers."""
    from .grading.labs import write

    changed = write(solutions, out)
    print("\n".join(f"wrote {path}" for path in changed) or "nothing to change")


@labs.command("check")
def labs_check(solutions: Folder = Path("solutions"), out: Folder = Path("labs")) -> None:
    """Say whether labs/ is what solutions/ gives."""
    from .grading.labs import stale

    wrong = stale(solutions, out)
    if wrong:
        raise LabError(f"these labs are not what their solutions give: {', '.join(wrong)}", hint="run: compiler-lab labs build")
    print("every lab is what its solution gives")


def main() -> None:
    try:
        app()
    except LabError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
