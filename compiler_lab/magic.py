"""``%compile_inspect`` and ``%%compile_inspect``: any function's way through the compiler, in the notebook.

In: a cell or an expression. Out: the cell's own result, and above it the trace of every compile that happened while it ran.
A cell that compiles something, or names something compiled, is recorded as it is; of any other cell the last expression's call is compiled.
Always holds: the cell does what it does without the magic (its value, ``_`` and ``Out``, a trailing semicolon, its errors with their own
traceback); what had been recorded up to an error is shown before it. Left out: ``await`` at the top level of the cell.
PyTorch has no counterpart; ``TORCH_LOGS`` prints single stages.
"""

from __future__ import annotations

import ast
import types
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display
from IPython.utils.process import arg_split  # pyright: ignore[reportPrivateImportUsage]

from . import pipeline, session
from .backends import list_backends
from .core.errors import LabError
from .frames.entry import CompiledFunction
from .frames.module import OptimizedModule
from .observe import html
from .observe.trace import Trace

LINE = "compile_inspect needs a call, for example: %compile_inspect f(x, y); for a whole cell use %%compile_inspect"
CELL = "%%compile_inspect takes options on its first line, and the program below it"
NOTHING = "compile_inspect: nothing was compiled in this cell"
COMPILED_BEFORE = f"{NOTHING}; what it called had been compiled before: compiler_lab.reset() makes it compile again"
HIDDEN = "__compile_inspect_function__"


def _word(text: str) -> str:
    """An option's value without the quotes it may stand in."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _step(text: str) -> str:
    return _word(text).replace("-", " ")


@magics_class
class CompileInspect(Magics):
    """The magics, registered by ``register``."""

    shell: InteractiveShell  # pyright: ignore[reportIncompatibleVariableOverride]

    @magic_arguments()
    @argument("--backend", type=_word, default="lab", help="the backend for what the magic compiles itself: lab, aot_eager_decomp, aot_eager, eager, ...")
    @argument("--fullgraph", action="store_true", help="what the magic compiles itself and cannot be captured whole is an error that names the line")
    @argument(
        "--stage", type=_step, action="append", metavar="NAME", help="show this step only; can be given several times: --stage capture --stage plan-memory"
    )
    @argument("--text", action="store_true", help="show text instead of the view")
    @argument("--html", type=_word, metavar="FILE", help="also write the view to FILE, one page that needs no network")
    @argument("--json", type=_word, metavar="FILE", help="also save the trace to FILE; Trace.load opens it on any machine")
    @argument("--trace", metavar="NAME", help="also keep the trace under this name, for the cells below")
    @argument("expression", nargs="...", help="of the line magic: a call, after all options, for example f(x, y)")  # pyright: ignore[reportUntypedFunctionDecorator]
    @output_can_be_silenced
    @no_var_expand
    @line_cell_magic
    def compile_inspect(self, line: str, cell: str | None = None) -> Any:
        """Show what the compiler does with a cell, or with one call.

        ``%compile_inspect f(x)`` compiles ``f``, calls it, and shows every step. ``%%compile_inspect`` runs the cell below it and shows
        every compile that happens; if the cell compiles nothing and uses nothing compiled, the call in its last line is compiled.
        """
        options = self._parse(line)
        if cell is None and not options.expression:
            raise UsageError(LINE)
        if cell is not None and options.expression:
            raise UsageError(f"{CELL}; {options.expression!r} is no option")
        source = options.expression if cell is None else self.shell.transform_cell(cell)
        trace = Trace(options.expression.rstrip("; ") if cell is None else f"cell [{self.shell.execution_count}]")
        name = self.shell.compile.cache(source, self.shell.execution_count, raw_code=source if cell is None else cell)
        try:
            value, used = self._run(source, name, trace, options)
        except BaseException as error:
            if trace.steps:
                self._show(trace, options, used=True)
            _own_traceback(error, name, self.shell)
            raise
        self._show(trace, options, used)
        return value

    def _parse(self, line: str) -> Namespace:
        """The options, and as ``expression`` the rest of the line as it was written. Raises ``UsageError``."""
        argv = arg_split(line, strict=False)
        options: Namespace = CompileInspect.compile_inspect.parser.parse_args(argv)  # type: ignore[attr-defined]
        position = 0
        for token in argv[: len(argv) - len(options.expression)]:
            position = line.index(token, position) + len(token)
        options.expression = line[position:].strip()
        if options.trace and not options.trace.isidentifier():
            raise UsageError(f"--trace {options.trace}: not a name")
        unknown = [s for s in options.stage or () if s not in pipeline.STEPS]
        if unknown:
            raise UsageError(f"no step {unknown[0]!r}; steps: {', '.join(pipeline.STEPS)}")
        return options

    def _run(self, source: str, name: str, trace: Trace, options: Namespace) -> tuple[Any, bool]:
        """Executes the cell; the value of its last expression, and whether it used something compiled."""
        tree = self.shell.transform_ast(ast.parse(source, name))
        scope = self.shell.user_ns
        named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with session.recording(trace.append) as record:
            exec(self.shell.compile(tree, name, "exec"), scope)
            used = record.compiled or bool(trace.steps) or any(_is_compiled(scope.get(n)) for n in named)
            if not isinstance(last, ast.Expr):
                return None, used
            if isinstance(last.value, ast.Call) and not used:
                return self._call(last.value, name, scope, options), used
            return self._eval(last.value, name, scope), used or record.compiled

    def _call(self, call: ast.Call, name: str, scope: dict[str, Any], options: Namespace) -> Any:
        """The call with its function compiled: ``f(x)`` runs as ``compile(f)(x)``. Classes and Python's built-ins are called as they are."""
        function = self._eval(call.func, name, scope)
        if isinstance(function, type) or not callable(function) or getattr(function, "__module__", "") == "builtins":
            return self._eval(call, name, scope)
        renamed = ast.copy_location(ast.Call(ast.copy_location(ast.Name(HIDDEN, ast.Load()), call.func), call.args, call.keywords), call)
        scope[HIDDEN] = session.compile(function, backend=options.backend, fullgraph=options.fullgraph)
        try:
            return self._eval(renamed, name, scope)
        finally:
            del scope[HIDDEN]

    def _eval(self, expression: ast.expr, name: str, scope: dict[str, Any]) -> Any:
        return eval(self.shell.compile(ast.Expression(expression), name, "eval"), scope)  # type: ignore[arg-type]

    def _show(self, trace: Trace, options: Namespace, used: bool) -> None:
        if not trace.steps:
            print(COMPILED_BEFORE if used else NOTHING)
            return
        if options.trace:
            self.shell.user_ns[options.trace] = trace
        if options.json:
            trace.save(options.json)
        if options.html:
            html.save_page(trace, options.html)
        wanted = [s for s in trace.steps if not options.stage or s.name in options.stage]
        if not wanted:
            print(f"compile_inspect: this trace has no step {' or '.join(options.stage)}; it has: {', '.join(dict.fromkeys(s.name for s in trace.steps))}")
        elif options.text:
            print(Trace(trace.title, wanted).text())
        else:
            display(html.bundle(trace, options.stage), raw=True)


def _is_compiled(value: Any) -> bool:
    """``value`` is what ``compile`` gave: a module around a module, or a function that carries its cache of entries."""
    function = getattr(value, "__func__", value)
    carried = vars(function).values() if isinstance(function, types.FunctionType) else ()
    return isinstance(value, OptimizedModule) or any(isinstance(v, CompiledFunction) for v in (value, *carried))


def _own_traceback(error: BaseException, name: str, shell: InteractiveShell) -> None:
    """Lets IPython show ``error`` from the cell's first frame on: how the magic ran the cell is nobody's business."""
    trace: types.TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    if trace is not None and not isinstance(error, (SyntaxError, LabError)):
        error._render_traceback_ = lambda: shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)  # type: ignore[attr-defined]


def complete(shell: InteractiveShell, event: Any) -> list[str]:
    """What can follow on the line of the magic: options, steps after ``--stage``, backends after ``--backend``; "" asks IPython."""
    words = event.line.split()
    before = words[-1] if event.line.endswith(" ") or len(words) < 2 else words[-2]
    if before == "--stage":
        return [s.replace(" ", "-") for s in pipeline.STEPS]
    if before == "--backend":
        return list(list_backends())
    if event.symbol.startswith("-"):
        actions = CompileInspect.compile_inspect.parser._actions  # type: ignore[attr-defined]
        return [option for action in actions for option in action.option_strings]
    return []


def register(shell: InteractiveShell) -> None:
    """What ``%load_ext compiler_lab`` does."""
    shell.register_magics(CompileInspect)
    for key in ("%compile_inspect", "%%compile_inspect"):
        shell.set_hook("complete_command", complete, str_key=key)
