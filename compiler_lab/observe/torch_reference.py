"""The real ``torch.compile``, read while it compiles: its structured log, its bytecode hook, Inductor's loggers, made into a ``Trace`` like ours.

In: a block in which torch compiles, or one call. Out: ``Trace`` (see ``torch_trace``). Always holds: only what torch offers to be read is used (handlers
of its loggers, ``register_bytecode_hook``, ``config.patch``); nothing is replaced; handlers, levels, configuration and hooks are as before afterwards,
also after an error; records are kept as they come and read when the block has ended, so that recording costs the compile next to nothing.
PyTorch's counterpart: ``TORCH_TRACE``, ``TORCH_LOGS="ir_pre_fusion,ir_post_fusion,fusion"``.
"""

from __future__ import annotations

import contextlib
import dis
import logging
import types
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch._guards import CompileContext

from ..core.errors import Unsupported
from .torch_log import Log, Record, record_of
from .torch_trace import BYTECODE, FUSION, IR_AFTER, IR_BEFORE, build_trace
from .trace import Trace

TORCH_BACKENDS = {"lab": "inductor", "aot_eager_decomp": "aot_eager_decomp_partition"}
"""Our backends whose counterpart has another name in torch."""
LOG = "torch.__trace"
LOGGERS = {"torch._inductor.debug.__ir_pre_fusion": IR_BEFORE, "torch._inductor.debug.__ir_post_fusion": IR_AFTER, "torch._inductor.scheduler.__fusion": FUSION}
FIRST_LINE = {IR_BEFORE, IR_AFTER}  # begin with a title


@dataclass
class TorchRecording:
    """What was recorded so far: heads and payloads as torch made them."""

    made: list[tuple[Mapping[str, Any], str | None] | Record] = field(default_factory=list[Any])

    @property
    def compiled(self) -> bool:
        """Something was compiled."""
        return any(not isinstance(one, Record) and "dynamo_start" in one[0] for one in self.made)

    def log(self) -> Log:
        from torch._logging.structured import INTERN_TABLE

        names = {number: name for name, number in INTERN_TABLE.items()}
        records = (one if isinstance(one, Record) else record_of(one[0], one[1] or "") for one in self.made)
        return Log([r for r in records if r is not None and r.kind != "str"], names)


class _Structured(logging.Handler):
    """Keeps each record of the structured log."""

    def __init__(self, recording: TorchRecording) -> None:
        super().__init__()
        self.recording = recording

    def emit(self, record: logging.LogRecord) -> None:
        self.recording.made.append((record.metadata, record.payload))  # type: ignore[attr-defined]


class _Printed(logging.Handler):
    """Keeps what one of Inductor's loggers prints, with the compile it belongs to; of the fusion log pairs, and each list of candidates once."""

    def __init__(self, recording: TorchRecording, kind: str) -> None:
        super().__init__()
        self.recording, self.kind = recording, kind

    def emit(self, record: logging.LogRecord) -> None:
        if self.kind == FUSION and not self._is_wanted(record):
            return
        text = record.getMessage()
        found = CompileContext.current_compile_id()
        self.recording.made.append(Record(self.kind, None, text.partition("\n")[2] if self.kind in FIRST_LINE else text, str(found or "")))

    @staticmethod
    def _is_wanted(record: logging.LogRecord) -> bool:
        """A pair that was fused or not, or a candidate that has not been fused yet: it names the graph nodes it computes."""
        if not isinstance(record.msg, str):
            return True
        listed = record.msg == "  %s" and record.getMessage().startswith(("  SchedulerNode", "  Extern"))
        return listed or record.msg.startswith("fusing ")


@contextlib.contextmanager
def torch_recording(trace: Trace, *, backward: bool = True) -> Generator[TorchRecording]:
    """Every ``torch.compile`` that compiles inside the block is appended to ``trace`` when the block ends, also after an error in it.

    backward: both halves are compiled at the first call, as ours are, instead of the backward at its first run. Kept results of earlier compiles are not
    used, since they hide the way there. Raises ``Unsupported`` inside another recording of the same kind."""
    import torch._dynamo.convert_frame as convert_frame
    import torch._functorch.config
    import torch._inductor.config
    import torch._inductor.scheduler  # pyright: ignore[reportUnusedImport] - brings the loggers with their levels

    log = logging.getLogger(LOG)
    if any(isinstance(h, _Structured) for h in log.handlers):
        raise Unsupported("torch.compile is being recorded already", reason="nested-recording", hint="leave the outer recording first")
    recording = TorchRecording()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: build_trace([recording.log()], trace))  # last
        stack.enter_context(torch._inductor.config.patch({"fx_graph_cache": False, "trace.provenance_tracking_level": 1}))
        stack.enter_context(torch._functorch.config.patch({"enable_autograd_cache": False, "force_non_lazy_backward_lowering": backward}))
        for name, kind in LOGGERS.items():
            stack.enter_context(_listening(name, _Printed(recording, kind), logging.DEBUG if kind == FUSION else logging.INFO))
        stack.callback(convert_frame.register_bytecode_hook(_bytecode_hook(recording)).remove)
        stack.enter_context(_listening(LOG, _Structured(recording), logging.DEBUG))
        trace._environment = trace.environment | {"stack": "torch.compile"}
        yield recording


@contextlib.contextmanager
def _listening(name: str, handler: logging.Handler, level: int) -> Generator[None]:
    """``handler`` hears the logger; where nobody else was to hear it, nobody does."""
    logger = logging.getLogger(name)
    before, propagate = logger.level, logger.propagate
    if name == LOG or not logger.isEnabledFor(level):
        logger.propagate = False
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagate


def _bytecode_hook(recording: TorchRecording) -> Any:
    def hook(code: CodeType, new_code: CodeType) -> None:
        data = {"file": code.co_filename, "name": code.co_name, "before": _rows(code), "after": _rows(new_code)}
        recording.made.append(Record(BYTECODE, data, "", str(CompileContext.current_compile_id() or "")))

    return hook


def _rows(code: CodeType) -> list[dict[str, Any]]:
    """Rows of ``torch_guards.instruction_items``."""
    line = lambda one: (one.positions.lineno if one.positions else None) or code.co_firstlineno
    return [{"offset": i.offset, "name": i.opname, "argument": i.argrepr, "line": line(i)} for i in dis.get_instructions(code)]


def record_torch(
    fn: Callable[..., Any], *args: Any, backend: str | Callable[..., Any] = "inductor", dynamic: bool | None = None, fullgraph: bool = False, **kwargs: Any
) -> Trace:
    """Compiles one call of ``fn`` with the real ``torch.compile``, makes it, and gives the trace of every step.

    ``fn`` is compiled afresh: what torch has compiled of it before is neither used nor lost. ``backend``: torch's names, and ours for the same."""
    trace = Trace(getattr(fn, "__qualname__", type(fn).__name__))
    chosen = TORCH_BACKENDS.get(backend, backend) if isinstance(backend, str) else backend
    with torch_recording(trace):
        torch.compile(afresh(fn), backend=chosen, dynamic=dynamic, fullgraph=fullgraph)(*args, **kwargs)
    return trace


def afresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` on code of its own, which torch has not seen: its compiled entries belong to code objects. A module without hooks: its ``forward``."""
    fn = getattr(fn, "_torchdynamo_orig_callable", getattr(fn, "_orig_mod", fn))
    if isinstance(fn, torch.nn.Module):
        hooked = fn._forward_hooks or fn._forward_pre_hooks or fn._backward_hooks or fn._backward_pre_hooks
        return fn if hooked else afresh(fn.forward)
    if isinstance(fn, types.MethodType):
        return types.MethodType(afresh(fn.__func__), fn.__self__)
    if not isinstance(fn, types.FunctionType):
        return fn
    copy = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__, copy.__qualname__, copy.__module__, copy.__dict__ = fn.__kwdefaults__, fn.__qualname__, fn.__module__, dict(fn.__dict__)
    return copy
