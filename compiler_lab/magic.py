"""``%compile_inspect`` and ``%%compile_inspect``: any function's way through the compiler, in the notebook.

In: a cell or an expression. Out: the cell's own result, and under it the trace of every compile that happened in it.
A cell that compiles something itself is recorded as it is; in a cell that does not, the last expression's call is compiled.
Errors inside the cell show the cell's own traceback, after what had been recorded up to there.
"""

from __future__ import annotations

import ast
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from . import pipeline
from .core.errors import LabError
from .observe import html
from .observe.trace import Trace


@magics_class
class CompileInspect(Magics):
    """The magics, registered by ``load_ipython_extension``."""

    shell: InteractiveShell

    @magic_arguments()
    @argument("--backend", default="lab", help="the backend for what the magic compiles itself: lab, aot_eager, aot_eager_decomp, eager, or a registered name")
    @argument("--fullgraph", action="store_true", help="what cannot be captured whole is an error that names the line")
    @argument("--stage", action="append", metavar="NAME", help="show this step only (can be given several times), for example --stage generate")
    @argument("--text", action="store_true", help="show text instead of the view")
    @argument("--html", metavar="FILE", help="also write the view to FILE, one page that needs no network")
    @argument("--json", metavar="FILE", help="also save the trace to FILE; Trace.load opens it on any machine")
    @argument("expression", nargs="*", help="(line magic) a call, for example: %%compile_inspect f(x, y)")
    @line_cell_magic
    def compile_inspect(self, line: str, cell: str | None = None) -> Any:
        """Show what the compiler does with a cell, or with one call."""
        options = parse_argstring(self.compile_inspect, line)
        if cell is None and not options.expression:
            raise UsageError("%compile_inspect needs a call, for example: %compile_inspect f(x, y); for a whole cell use %%compile_inspect")
        source = " ".join(options.expression) if cell is None else self.shell.transform_cell(cell)
        trace = Trace(" ".join(options.expression) if cell is None else "cell")
        try:
            value = self._run(source, trace, options)
        finally:
            self._show(trace, options)
        return value

    def _run(self, source: str, trace: Trace, options: Namespace) -> Any:
        """Executes the cell; the value of its last expression, as IPython would show it."""
        name = self.shell.compile.cache(source, self.shell.execution_count, raw_code=source)
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        scope = self.shell.user_ns
        with pipeline.recording(trace.append) as record:
            exec(compile(tree, name, "exec"), scope)
            if not isinstance(last, ast.Expr):
                return None
            if isinstance(last.value, ast.Call) and not trace.steps and not record.compiled:
                return self._call(last.value, name, scope, options)
            return eval(compile(ast.Expression(last.value), name, "eval"), scope)

    def _call(self, call: ast.Call, name: str, scope: dict[str, Any], options: Namespace) -> Any:
        """The call with its function compiled: ``f(x)`` runs as ``compile(f)(x)``."""
        function = eval(compile(ast.Expression(call.func), name, "eval"), scope)
        if isinstance(function, type) or not callable(function):
            return eval(compile(ast.Expression(call), name, "eval"), scope)
        hidden = "__compile_inspect_function__"
        compiled = pipeline.compile(function, backend=options.backend, fullgraph=options.fullgraph)
        renamed = ast.Call(ast.copy_location(ast.Name(hidden, ast.Load()), call.func), call.args, call.keywords)
        try:
            return eval(compile(ast.Expression(ast.copy_location(renamed, call)), name, "eval"), scope | {hidden: compiled})
        finally:
            scope.pop(hidden, None)

    def _show(self, trace: Trace, options: Namespace) -> None:
        if options.json:
            trace.save(options.json)
        if options.html:
            html.save_page(trace, options.html)
        if options.stage:
            trace = _only(trace, options.stage)
        if not trace.steps:
            print("compile_inspect: nothing was compiled in this cell")
        elif options.text:
            print(trace.text())
        else:
            display(html.bundle(trace), raw=True)


def _only(trace: Trace, names: list[str]) -> Trace:
    known = sorted({s.name for s in trace.steps})
    unknown = [n for n in names if n not in known]
    if unknown and trace.steps:
        raise LabError(f"no step {unknown[0]!r} in this trace", hint=f"steps: {', '.join(known)}")
    return Trace(trace.title, [s for s in trace.steps if s.name in names])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext compiler_lab``."""
    shell.register_magics(CompileInspect)
