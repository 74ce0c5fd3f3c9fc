"""``generate``: a schedule becomes one C++ translation unit, kernels and the function that calls them, and the same calls in Python.

In: a ``Schedule``. Out: ``Kernels``. Each ``LoopGroup`` is one function ``int k0(void* const* args)``: pointers once, then loops after the
group's shape, or a call of the function that has the same loops (``cpp_same.py``); it returns 0 or an error code of ``ir.ERRORS``. Extern
groups are calls in the wrapper. Where sizes are symbolic, those the kernel needs follow the pointers, each as a number, loops run to them, and
whether threads are worth starting is asked in each call.
Always holds: no torch header; every statement on a line of its own, with the nodes it comes from; no wild read whatever an index holds.
PyTorch's counterpart: ``CppScheduling`` and ``KernelGroup`` in ``torch/_inductor/codegen/cpp.py``. Left out: devices other than CPU,
vector code for loops whose last variable is short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..core.artifact import Decision
from ..core.errors import InvalidIR, Unsupported
from ..core.options import Options
from ..lowering import ops
from ..lowering.index import Index, Var
from ..lowering.ir import BufferSpec
from ..lowering.program import LoopProgram
from ..lowering.sizes import Conditions, hint, is_number, recorded_by
from ..lowering.symbols import symbols_in
from ..scheduling.artifact import Schedule
from ..scheduling.ir import LoopGroup
from . import cpp_serial, cpp_tiles
from .artifact import Kernels
from .cpp_body import BAD_INDEX, NO_MEMORY, ZERO_DIVISION, Bodies, Statement
from .cpp_cases import in_cases
from .cpp_columns import columns, strip_width, strips
from .cpp_loops import LONG, THREADS, KernelCode, Mode, plain_sweep
from .cpp_ops import compute_type
from .cpp_pieces import Mapped, by_conditions, by_divisions, merged
from .cpp_product import HEADER, product
from .cpp_reduce import HELPERS, numel, proper
from .cpp_rows import on_heap, rows
from .cpp_same import Known
from .cpp_serial import apart, serial, translate
from .cpp_tiles import tiled_sweep, transposed
from .emit import Emitter
from .ir import ERRORS, Kernel
from .math_table import STORAGE
from .wrapper import write_wrapper
from .wrapper_c import write_call

DEFAULTS = Options()

WORTH_THREADS = 32768
"""Below so many elementary operations a kernel stays on the calling thread: starting the others takes 5 to 10 microseconds."""
EXPENSIVE_WEIGHT = 4
FEW_ROWS = 16
CODES = {BAD_INDEX: 1, NO_MEMORY: 2, ZERO_DIVISION: 3}

SCRATCH = """\
template <class T> struct Scratch {  // memory of one call
  T* data;
  explicit Scratch(int64_t n) : data((T*)aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64)) {}
  ~Scratch() { free(data); }
};"""

DIVISION = {
    "floordiv": "static inline int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }  // b > 0",
    "mod": "static inline int64_t mod(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }  // b > 0",
}

REALS = {
    "real": "static inline double real(int64_t a) { return (double)a; }",
    "power": "static inline double power(double a, double b) { return __builtin_pow(a, b); }",
    "root": "static inline double root(double a) { return __builtin_sqrt(a); }",
}

RESERVED = re.compile(r"[a-z]\d*|[a-z]+\d+_at|(lanes|total|parts|best)\d+|at|lane|base|end|strip|count|args")


def generate(schedule: Schedule, options: Options = DEFAULTS) -> Kernels:
    """Reads ``options.wrapper``. Raises ``Unsupported`` for buffers that are not on the CPU, dtypes and ops without a C++ row."""
    part = schedule.stage.partition(".")[2]
    stage = f"codegen.{part}" if part else "codegen"
    buffers = schedule.program.buffers
    for spec in buffers.values():
        if spec.device.type != "cpu":
            raise Unsupported(f"{spec.name} is on {spec.device}", reason="codegen.device", why="kernels are C++ for the CPU")
    names = identifiers(buffers)
    body, decisions, spans = Emitter(), list[Decision](), list[tuple[LoopGroup, tuple[str, ...], int, int]]()
    known = Known(frozenset(names.values()))
    log = Conditions(schedule.conditions, exact=True) if schedule.program.sizes else None
    with recorded_by(log):
        for group in schedule.groups:
            if isinstance(group, LoopGroup):
                first, where = len(body.lines) + 2, f"{stage}/{group.name}"
                args, made = _kernel(own := Emitter(), schedule, group, names, where)
                decisions += made
                if (other := known.add(body, own, group.name)) is not None:
                    decisions.append(Decision("reuse", (where,), other, "same_loops"))
                spans.append((group, args, first, len(body.lines)))
    source = Emitter()
    _prelude(source, stage, len(spans), body.text())
    head = len(source.lines)
    for line in body.lines:
        source.line(line.text, line.parents, line.stack)
    kernels = tuple(Kernel(g.name, args, head + first, head + last, tuple(n.name for n in g.nodes), sizes_of(g)) for g, args, first, last in spans)
    wrapper = write_wrapper(schedule, kernels, names)
    calls, why = None, wrapper_language(schedule.program, kernels, options)
    if why == "exported":
        work = {d.subject[0].rpartition("/")[2]: int(d.facts["work"]) for d in decisions if d.kind == "parallel"}
        calls = write_call(schedule, kernels, names, work, len(source.lines))
        decisions += calls.decisions
    decisions.append(Decision("wrapper", (stage,), "python" if calls is None else "c", why))
    return Kernels(
        stage=stage, schedule=schedule, source=source.text(), lines=tuple(source.lines), kernels=kernels,
        wrapper=wrapper.text(), wrapper_lines=tuple(wrapper.lines), calls=calls, decisions=tuple(decisions),
        conditions=(*schedule.conditions, *(log.recorded if log else ())),
    )  # fmt: skip


def wrapper_language(program: LoopProgram, kernels: Sequence[Kernel], options: Options) -> str:
    """Why the wrapper is in C ("exported") or in Python."""
    if program.sizes or program.numbers:
        return "sizes vary"
    if options.wrapper == "python":
        return "asked for"
    return "exported" if kernels else "no kernels"


def identifiers(buffers: Mapping[str, BufferSpec]) -> dict[str, str]:
    """A name in C++ and in Python for each buffer: its own where nothing else is called so, otherwise ``in_x``."""
    found: dict[str, str] = {}
    for name in buffers:
        plain = re.sub(r"\W", "_", name)
        if not re.fullmatch(r"buf\d+(_\d+)?", plain) or RESERVED.fullmatch(plain):
            plain = f"in_{plain}"
        while plain in found.values():
            plain += "_"
        found[name] = plain
    return found


def _prelude(e: Emitter, stage: str, count: int, body: str) -> None:
    """Includes, and of the helpers those that ``body`` calls."""
    e.line(f"// {stage}: {count} kernel{'' if count == 1 else 's'}")
    for include in ("<cstdint>", "<cstdlib>", '"lab_math.h"', *([f'"{HEADER}"'] if "product_block(" in body else [])):
        e.line(f"#include {include}")
    helpers = {**DIVISION, **REALS, **HELPERS, **cpp_tiles.HELPERS, **cpp_serial.HELPERS, "Scratch": SCRATCH}
    called = body + (helpers["load_tile"] if "load_tile(" in body else "")
    for name, text in helpers.items():
        if re.search(rf"\b{name}\b", called):
            e.line()
            for line in text.split("\n"):
                e.line(line)


def _kernel(e: Emitter, schedule: Schedule, group: LoopGroup, names: Mapping[str, str], where: str) -> tuple[tuple[str, ...], list[Decision]]:
    """Writes one function; gives its arguments and how its loops are cut and shared."""
    ids = {n.name: f"{schedule.stage}/{group.name}/{n.name}" for n in group.nodes}
    reads, writes = arguments(group)
    mode, reason, facts = sharing(group)
    decisions = [Decision("parallel", (where,), mode, reason, facts)]
    bodies = Bodies(group, names, (*reads, *writes), ids, mode == "inner")
    k = KernelCode(e, group, bodies, mode)
    if group.shape == "column":
        bodies.width = strip_width(k)
    if group.shape == "serial":
        k.serial = translate(k)
    elif group.shape == "pointwise" and numel(group.outer):
        k.pieces = _pieces(k)
        if len(k.pieces) > 1:
            decisions.append(Decision("cut", (where,), f"{len(k.pieces)} pieces", "conditions_on_place"))
    elif numel(group.outer):
        k.phases = [in_cases(bodies, p) for p in group.phases]
        if count := sum(len(p.cases) for p in k.phases):
            decisions.append(Decision("cut", (where,), f"{count} cases", "conditions_on_lanes"))
    e.line()
    head = len(e.lines)
    origins = ", ".join(dict.fromkeys(n.origin or n.name for n in group.nodes))
    with e.block(f'extern "C" __attribute__((noinline)) int {group.name}(void* const* args) {{  // {group.shape}: {origins}', k.parents):
        if bodies.doomed:
            e.line("return 1;  // indexes into nothing", k.parents)
        elif numel(group.outer) or group.serial:
            _pointers(e, group, reads, writes, schedule, names, ids)
            for i, name in enumerate(sizes_of(group), len(reads) + len(writes)):
                if any(v.name == name for v in (*group.outer, *group.inner)):
                    raise InvalidIR(f"{where} has a loop variable and a size of one name, {name}")
                real = name.startswith("f")
                e.line(f"double {name}; __builtin_memcpy(&{name}, &args[{i}], 8);" if real else f"const int64_t {name} = (int64_t)args[{i}];", k.parents)
            _with_flags(k)
        e.line("return 0;")
    if (worth := worth_threads(group)) is not None:
        region = "#pragma omp parallel"
        e.lines[head:] = [replace(n, text=f"{n.text} if(parallel: {worth})") if region in n.text else n for n in e.lines[head:]]
    return (*reads, *writes), decisions


def _with_flags(k: KernelCode) -> None:
    """The loops, between the error flags they set and the returns that report them."""
    flags = [f for f in (BAD_INDEX, ZERO_DIVISION) if any(s.flag == f for s in k.statements)]
    if k.bodies.rows and (k.bodies.column or (k.mode == "outer" and on_heap(k))):
        flags.append(NO_MEMORY)
    for flag in flags:
        k.e.line(f"int {flag} = 0;", k.parents)
    SHAPES[k.group.shape](k)
    for flag in flags:
        k.e.line(f"if ({flag}) return {CODES[flag]};  // {ERRORS[CODES[flag]]}", k.parents)


def _pieces(k: KernelCode) -> list[tuple[tuple[Var, ...], list[Statement]]]:
    """The loops of a pointwise kernel and what stands in them, for each piece of its space."""
    whole = k.bodies
    cut = [sub for piece in by_conditions(k.group) for sub in by_divisions(piece, _used(k, piece))]
    found: list[tuple[tuple[Var, ...], list[Statement]]] = []
    for piece in cut:
        if len(cut) > 1:
            fewer = merged(tuple(dict.fromkeys(v for i in piece.values() for v in i.variables())), _used(k, piece))
            piece = {v: i.substitute(fewer) for v, i in piece.items()}
        bodies = whole.piece(piece)
        statements = [s for p in k.group.phases for code in (bodies.phase(p),) for s in (*code.sweep, *code.after)]
        found.append((tuple(dict.fromkeys(v for i in piece.values() for v in i.variables())), statements))
        whole.count, whole.doomed = bodies.count, whole.doomed or bodies.doomed
    return found


def _used(k: KernelCode, piece: Mapped) -> list[Index]:
    """The indices that a piece needs, found by writing it once."""
    trial = k.bodies.piece(piece)
    for p in k.group.phases:
        trial.phase(p)
    return trial.used


def _pointers(
    e: Emitter,
    group: LoopGroup,
    reads: Sequence[str],
    writes: Sequence[str],
    schedule: Schedule,
    names: Mapping[str, str],
    ids: Mapping[str, str],
) -> None:
    """No other pointer reaches what one does, except where a buffer is written in the place of another."""
    together = schedule.plan.together(group)
    for i, buffer in enumerate((*reads, *writes)):
        spec = schedule.program.buffers[buffer]
        compute_type(spec.dtype)
        const = "const " if i < len(reads) else ""
        alone = "" if buffer in together else " __restrict__"
        users = [ids[n.name] for n in group.nodes if n.name == buffer or any(b == buffer for b, _ in n.reads())]
        e.line(f"{const}{STORAGE[spec.dtype]}*{alone} {names[buffer]} = ({const}{STORAGE[spec.dtype]}*)args[{i}];", users)


def arguments(group: LoopGroup) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Buffers the kernel reads and does not make, and buffers it writes, each in order of first use."""
    made = {n.name for n in group.nodes}
    nodes = group.nodes if group.serial is not None else [n for p in group.phases for n in p.nodes]
    reads = dict.fromkeys(b for n in nodes for b, _ in n.reads() if b not in made)
    return tuple(reads), tuple(n.name for n in group.nodes if n.name not in group.internal)


def sizes_of(group: LoopGroup) -> tuple[str, ...]:
    """Names of the symbolic sizes, and of the floats of the call, that the kernel needs."""
    return tuple(sorted((s.name for s in symbols_in(group.outer, group.inner, group.nodes)), key=lambda name: (name[0], int(name[1:]))))


def _weight(group: LoopGroup) -> tuple[int, int]:
    """(expensive operations, elementary operations that one element counts for)."""
    nodes = group.nodes if group.serial is not None else [n for p in group.phases for n in p.nodes]
    names = [n.target.__name__ for node in nodes for n in node.body.nodes if n.op == "call_function"]  # type: ignore[union-attr]
    expensive = sum(name in ops.EXPENSIVE for name in names)
    return expensive, 1 + EXPENSIVE_WEIGHT * expensive


def worth_threads(group: LoopGroup) -> str | None:
    """The condition, in C++, under which threads pay in a call; None where that is known now."""
    elements = numel((*group.outer, *group.inner))
    return None if is_number(elements) else f"{elements} >= {-(-WORTH_THREADS // _weight(group)[1])}"


def sharing(group: LoopGroup) -> tuple[Mode, str, dict[str, int]]:
    """Which loops threads share, why, and the numbers it was decided on. With symbolic sizes threads may always pay, and rows that vary are many."""
    outer, inner = hint(numel(group.outer)), hint(numel(group.inner))
    expensive, weight = _weight(group)
    work = outer * inner * weight
    facts = {"elements": outer * inner, "expensive": expensive, "work": work}
    if work < WORTH_THREADS and is_number(numel((*group.outer, *group.inner))):
        return "serial", "too_little_work", facts
    if group.serial is not None:
        return ("outer", "many_rows", facts) if hint(apart(group.serial)) > 1 else ("serial", "in_order", facts)
    if group.shape == "pointwise":
        return "outer", "one_dimension" if len(proper(group.outer)) == 1 else "many_rows", facts
    column = group.shape == "column"
    shares = outer // hint(group.outer[-1].size) * strips(group) if column else outer
    if not is_number(numel(group.outer)):
        return "outer", "rows_vary", facts
    if shares < FEW_ROWS and inner >= THREADS and (not column or group.outer[-1].size <= LONG):
        return "inner", "few_rows", facts
    return ("outer", "many_rows", facts) if shares > 1 else ("serial", "one_iteration", facts)


def _pointwise(k: KernelCode) -> None:
    for variables, statements in k.pieces:
        if (across := transposed(variables, statements)) is not None:
            tiled_sweep(k.e, statements, variables, across, k.mode == "outer")
        else:
            plain_sweep(k.e, statements, variables, k.mode == "outer")


SHAPES: dict[str, Callable[[KernelCode], None]] = {"pointwise": _pointwise, "row": rows, "column": columns, "flat": rows, "product": product, "serial": serial}
