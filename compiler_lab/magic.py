"""``%compile_inspect`` and ``%%compile_inspect``: any function's way through the compiler, in the notebook.

In: a cell or an expression. Out: the cell's own result, and above it the trace of every compile that happened while it ran.
A cell that compiles something, or names something compiled, is recorded as it is; of any other cell the last expression's call is compiled.
Always holds: the cell does what it does without the magic (its value, ``_`` and ``Out``, a trailing semicolon, its errors with their own
traceback); what had been recorded up to an error is shown before it. Left out: ``await`` at the top level of the cell.
PyTorch has no counterpart; ``TORCH_LOGS`` prints single stages.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import itertools
import sys
import types
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display
from IPython.utils.process import arg_split  # pyright: ignore[reportPrivateImportUsage]
from torch.utils._pytree import tree_map

from . import pipeline, session
from .backends import list_backends
from .core.errors import LabError, Unsupported
from .frames.entry import CompiledFunction
from .frames.module import OptimizedModule
from .observe import compare_data, html
from .observe.torch_reference import TORCH_BACKENDS, afresh, torch_recording
from .observe.trace import Trace
from .observe.view import VIEWS, beside
from .progress import progress

LINE = "compile_inspect needs a call, for example: %compile_inspect f(x, y); for a whole cell use %%compile_inspect"
CELL = "%%compile_inspect takes options on its first line, and the program below it"
NOTHING = "compile_inspect: nothing was compiled in this cell"
COMPILED_BEFORE = (
    f"{NOTHING}; what it called had been compiled before: compiler_lab.reset() makes it compile again; what torch.compile compiles is shown with --stack torch"
)
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
    @argument("--stack", type=_word, default="lab", metavar="NAME", help="whose compiles are shown: lab, torch (the real torch.compile), or both")
    @argument("--backend", type=_word, default="lab", help="the backend for what the magic compiles itself: lab, aot_eager_decomp, aot_eager, eager, ...")
    @argument("--dynamic", action="store_true", help="what the magic compiles itself has symbolic sizes from the start")
    @argument("--static", action="store_true", help="what the magic compiles itself never has symbolic sizes")
    @argument("--fullgraph", action="store_true", help="what the magic compiles itself and cannot be captured whole is an error that names the line")
    @argument("--device", type=_word, metavar="NAME", help="the call that the magic compiles is made on this device, with copies of its tensors and modules")
    @argument(
        "--stage", type=_step, action="append", metavar="NAME", help="show this step only; can be given several times: --stage capture --stage plan-memory"
    )
    @argument("--view", type=_word, action="append", metavar="NAME", help="show this view instead of all steps; can be given several times")
    @argument("--live", action="store_true", help="show views as widgets, which ask Python and can be linked")
    @argument("--compare", type=_word, metavar="OTHER", help="show what was recorded beside another trace: a name of --trace, or a saved file")
    @argument("--text", action="store_true", help="show text instead of the view")
    @argument("--html", type=_word, metavar="FILE", help="also write every view to FILE, one page that needs no network")
    @argument("--json", type=_word, metavar="FILE", help="also save the trace to FILE; Trace.load opens it on any machine")
    @argument("--trace", metavar="NAME", help="also keep the trace under this name, for the cells below; with --stack both, the pair")
    @argument("--no-progress", action="store_true", help="say nothing while a compile takes long")
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
        title = options.expression.rstrip("; ") if cell is None else f"cell [{_number(self.shell)}]"
        traces = {stack: Trace(title) for stack in (("lab", "torch") if options.stack == "both" else (options.stack,))}
        name = self.shell.compile.cache(source, _number(self.shell), raw_code=source if cell is None else cell)
        try:
            value, used = self._run(source, name, traces, options)
        except BaseException as error:
            if any(trace.steps for trace in traces.values()):
                self._show(traces, options, used=True)
            _own_traceback(error, name, self.shell)
            raise
        self._show(traces, options, used)
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
        if options.dynamic and options.static:
            raise UsageError("--dynamic and --static say the opposite")
        if options.live and options.text:
            raise UsageError("--live shows widgets and --text shows text")
        for given, what, known in ((options.stage, "step", pipeline.STEPS), (options.view, "view", tuple(VIEWS)), ([options.stack], "stack", session.STACKS)):
            unknown = [one for one in given or () if one not in known]
            if unknown:
                raise UsageError(f"no {what} {unknown[0]!r}; {what}s: {', '.join(known)}")
        if "compare" in (options.view or ()) and not options.compare and options.stack != "both":
            raise UsageError("--view compare needs --stack both, or --compare OTHER")
        options.dynamic = True if options.dynamic else False if options.static else None
        options.device = _device(options.device)
        options.other = self._other(options.compare)
        return options

    def _other(self, name: str | None) -> Trace | None:
        """The trace of ``--compare``."""
        if not name:
            return None
        found = self.shell.user_ns.get(name)
        if isinstance(found, Trace):
            return found
        if not Path(name).is_file():
            traces = [n for n, v in self.shell.user_ns.items() if isinstance(v, Trace) and not n.startswith("_")]
            raise UsageError(f"--compare {name}: neither a trace nor a file; traces: {', '.join(traces) or 'none, --trace NAME keeps one'}")
        return Trace.load(name)

    def _run(self, source: str, name: str, traces: dict[str, Trace], options: Namespace) -> tuple[Any, bool]:
        """Executes the cell; the value of its last expression, and whether it used something compiled."""
        tree = self.shell.transform_ast(ast.parse(source, name))
        scope = self.shell.user_ns
        named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.ExitStack() as stack:
            observe = traces["lab"].append if "lab" in traces else Trace().append
            record = stack.enter_context(session.recording(observe if options.no_progress else stack.enter_context(progress(observe))))
            theirs = stack.enter_context(torch_recording(traces["torch"])) if "torch" in traces else None
            compiled = lambda: record.compiled or (theirs is not None and theirs.compiled)
            exec(self.shell.compile(tree, name, "exec"), scope)
            used = compiled() or any(_is_compiled(scope.get(n)) for n in named)
            if not isinstance(last, ast.Expr):
                return None, used
            if isinstance(last.value, ast.Call) and not used:
                return self._call(last.value, name, scope, options), used
            return self._eval(last.value, name, scope), used or compiled()

    def _call(self, call: ast.Call, name: str, scope: dict[str, Any], options: Namespace) -> Any:
        """The call with its function compiled: ``f(x)`` runs as ``compile(f)(x)``; with two stacks, twice, and the first value is given.
        Classes and Python's built-ins are called as they are."""
        function = self._eval(call.func, name, scope)
        if isinstance(function, type) or not callable(function) or getattr(function, "__module__", "") == "builtins":
            return self._eval(call, name, scope)
        function = _moved(function, options.device)
        compiles = []
        if options.stack != "torch":
            compiles.append(session.compile(function, backend=options.backend, fullgraph=options.fullgraph, dynamic=options.dynamic))
        if options.stack != "lab":
            backend = TORCH_BACKENDS.get(str(options.backend), str(options.backend))
            compiles.append(torch.compile(afresh(function), backend=backend, fullgraph=options.fullgraph, dynamic=options.dynamic))
        renamed = ast.copy_location(ast.Call(ast.copy_location(ast.Name(HIDDEN, ast.Load()), call.func), call.args, call.keywords), call)
        alone = options.device is None and len(compiles) == 1
        scope[HIDDEN] = compiles[0] if alone else lambda *args, **kwargs: _each(compiles, *_moved((args, kwargs), options.device))
        try:
            return self._eval(renamed, name, scope)
        finally:
            del scope[HIDDEN]

    def _eval(self, expression: ast.expr, name: str, scope: dict[str, Any]) -> Any:
        return eval(self.shell.compile(ast.Expression(expression), name, "eval"), scope)  # type: ignore[arg-type]

    def _show(self, traces: dict[str, Trace], options: Namespace, used: bool) -> None:
        found = [trace for trace in traces.values() if trace.steps]
        if not found:
            print(COMPILED_BEFORE if used else NOTHING)
            return
        trace = found[0]
        pair = compare_data.Both(*found) if len(found) == 2 else None
        other = options.other or (pair and pair.torch)
        if options.trace:
            self.shell.user_ns[options.trace] = pair or trace
        for one, name in zip(found, _files(options.json), strict=False):
            one.save(name)
        if options.html:
            trace.to_html(options.html, other)
        names = options.view or (["compare"] if other is not None and not options.stage else [])
        if names:
            self._views(trace, names, other, options)
            return
        for one in found:
            self._steps(one, options)

    def _views(self, trace: Trace, names: list[str], other: Trace | None, options: Namespace) -> None:
        for name in names:
            try:
                view = trace.view(name, **beside(name, other))
            except Unsupported as error:
                print(f"compile_inspect: no view {name} of this trace: {error.what}")
                continue
            if options.text:
                print(view.text())
            else:
                display(view.live() if options.live else view)

    def _steps(self, trace: Trace, options: Namespace) -> None:
        wanted = [s for s in trace.steps if not options.stage or s.name in options.stage]
        if not wanted:
            print(f"compile_inspect: this trace has no step {' or '.join(options.stage)}; it has: {', '.join(dict.fromkeys(s.name for s in trace.steps))}")
        elif options.text:
            print(Trace(trace.title, wanted).text())
        elif options.live and not options.stage:
            display(trace.view().live())
        else:
            display(html.bundle(trace, options.stage), raw=True)


def _number(shell: InteractiveShell) -> int:
    """The number of the cell that runs: IPython 9 has counted on to the next one by then, older ones have not."""
    kept = getattr(shell.history_manager, "input_hist_parsed", ())
    return len(kept) - 1 if len(kept) > 1 else shell.execution_count


def _device(name: str | None) -> torch.device | None:
    """Raises ``UsageError`` where torch has no such device, or none here."""
    if not name:
        return None
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"--device {name}: torch cannot use such a device here: {str(error).splitlines()[0]}") from error
    return device


def _moved(value: Any, device: torch.device | None) -> Any:
    """``value`` with copies of its tensors and modules on ``device``; itself where they are there already."""
    if device is None:
        return value
    there = lambda v: isinstance(v, torch.nn.Module) and any(t.device != device for t in itertools.chain(v.parameters(), v.buffers()))
    move = lambda v: copy.deepcopy(v).to(device) if there(v) else v.to(device) if isinstance(v, torch.Tensor) else v
    return tree_map(move, value)


def _each(functions: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls all of them and gives what the first gave."""
    first, *_ = [function(*args, **kwargs) for function in functions]
    return first


def _files(name: str | None) -> tuple[Path, ...]:
    """Where the trace is saved, and where the one of torch beside it."""
    return (Path(name), Path(name).with_stem(f"{Path(name).stem}.torch")) if name else ()


def _is_compiled(value: Any) -> bool:
    """``value`` is what ``compile`` gave, ours or torch's: a module around a module, or a function that carries its cache of entries."""
    if isinstance(value, _torch_module()) or hasattr(value, "_torchdynamo_orig_callable"):
        return True
    function = getattr(value, "__func__", value)
    carried = vars(function).values() if isinstance(function, types.FunctionType) else ()
    return isinstance(value, OptimizedModule) or any(isinstance(v, CompiledFunction) for v in (value, *carried))


def _torch_module() -> type:
    """The class of what ``torch.compile`` makes of a module; where nothing has imported it, there is none."""
    frame = sys.modules.get("torch._dynamo.eval_frame")
    return frame.OptimizedModule if frame is not None else OptimizedModule


def _own_traceback(error: BaseException, name: str, shell: InteractiveShell) -> None:
    """Lets IPython show ``error`` from the cell's first frame on: how the magic ran the cell is nobody's business."""
    trace: types.TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    if trace is not None and not isinstance(error, (SyntaxError, LabError)):
        error._render_traceback_ = lambda: shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)  # type: ignore[attr-defined]


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "--stack": lambda: session.STACKS,
    "--view": lambda: VIEWS,
    "--device": lambda: ("cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count())), *(("cuda",) if torch.cuda.is_available() else ())),
}


def complete(shell: InteractiveShell, event: Any) -> list[str]:
    """What can follow on the line of the magic: options, steps after ``--stage``, backends after ``--backend``; "" asks IPython."""
    words = event.line.split()
    before = words[-1] if event.line.endswith(" ") or len(words) < 2 else words[-2]
    if before == "--stage":
        return [s.replace(" ", "-") for s in pipeline.STEPS]
    if before == "--backend":
        return list(list_backends())
    if before in CHOICES:
        return list(CHOICES[before]())
    if before == "--compare":
        return [name for name, value in shell.user_ns.items() if isinstance(value, Trace) and not name.startswith("_")]
    if before in ("--html", "--json"):
        return []
    if event.symbol.startswith("-"):
        actions = CompileInspect.compile_inspect.parser._actions  # type: ignore[attr-defined]
        return [option for action in actions for option in action.option_strings]
    return []


def register(shell: InteractiveShell) -> None:
    """What ``%load_ext compiler_lab`` does."""
    shell.register_magics(CompileInspect)
    for key in ("%compile_inspect", "%%compile_inspect"):
        shell.set_hook("complete_command", complete, str_key=key)
