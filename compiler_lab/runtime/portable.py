"""A compiled graph as plain data, and back: what its calls need of what compiling made, without the stages that made it.

In: the calling convention, the loaded programs, the captured graph. Out: atoms and tuples for ``marshal``; from them, the callable again.
Always holds: ``compose`` is the one place that puts a call together, for the pipeline and for what is read back; kernels are loaded from the
cache by their key and the digest of their bytes, with the compiler that is there now being the one that made them.
PyTorch's counterpart: ``torch/_functorch/_aot_autograd/autograd_cache.py`` and ``CompiledFxGraph`` in ``torch/_inductor/output_code.py``.
Left out: what is not of these kernels alone (operators of the user's, which are watched; sizes that vary).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ..aot.ir import JointSpec, OutputSpec, ViewStep
from ..codegen.ir import CallCode
from ..core.errors import CodegenFailed
from ..core.options import Options
from ..core.plain import NotPlain, decode, encode
from .autograd import bind
from .build import Loadable
from .cache import open_cache
from .raising import Raising, in_order
from .toolchain import Toolchain, find_toolchain

if TYPE_CHECKING:
    from .program import Program


@dataclass(frozen=True)
class Compiled:
    """What a call is put together from. ``tangents``: tensors, or ``Layout``s, that the backward expects; ``captured``: the graph as it was
    captured, which runs where ``raising`` says so."""

    spec: JointSpec
    saved: int
    forward: Program
    backward: Program | None
    tangents: Sequence[Any]
    raising: Raising
    captured: fx.GraphModule


def compose(
    spec: JointSpec,
    saved: int,
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None,
    tangents: Sequence[Any],
    raising: Raising,
    captured: Callable[..., Any],
) -> Callable[..., Any]:
    """Two halves as one callable, which raises where the program does."""
    return in_order(raising, bind(spec, saved, forward, backward, tangents), captured)


class Layout:
    """Of a tensor, what the backward asks of a tangent."""

    def __init__(self, size: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device, self._strides = tuple(size), dtype, device, tuple(strides)

    def stride(self) -> tuple[int, ...]:
        return self._strides


def pack(made: Compiled) -> dict[str, Any]:
    """Raises ``NotPlain`` where something has no form as data."""
    programs = [p for p in (made.forward, made.backward) if p is not None]
    return {
        "spec": _spec(made.spec),
        "saved": made.saved,
        "programs": tuple(map(_program, programs)),
        "tangents": tuple(encode((torch.Size(t.shape), tuple(t.stride()), t.dtype, t.device)) for t in made.tangents),
        "raising": made.raising,
        "captured": _graph(made.captured) if made.raising != "never" else None,
    }


def unpack(data: dict[str, Any], options: Options) -> Callable[..., Any] | None:
    """The callable; None where a kernel is gone. Raises ``NotPlain`` where something that was there is not here."""
    calls = [_load(program, options) for program in data["programs"]]
    if None in calls:
        return None
    tangents = [Layout(*decode(t)) for t in data["tangents"]]
    captured = _captured(data["captured"]) if data["captured"] is not None else _never
    return compose(_read_spec(data["spec"]), data["saved"], calls[0], calls[1] if len(calls) > 1 else None, tangents, data["raising"], captured)  # type: ignore[arg-type]


def _never(*args: Any) -> Any:
    raise AssertionError("a graph that cannot raise is not run again")


def _program(program: Program) -> dict[str, Any]:
    parts = Loadable.of(program.kernels)
    path = program.library
    return {
        "stage": parts.stage,
        "wrapper": parts.wrapper,
        "functions": parts.functions,
        "ops": encode(tuple(parts.ops.values())),
        "constants": encode(parts.constants),
        "calls": _calls(parts.calls),
        "library": (path.parent.name, path.stem) if path is not None else None,
        "toolchain": _made_by(program.toolchain),
    }


def _calls(calls: CallCode | None) -> Any:
    """What the wrapper in C is bound to; its text is in the library."""
    return None if calls is None else encode((calls.symbols, calls.constants, calls.layouts, calls.python, calls.boxed))


def _made_by(toolchain: Toolchain | None) -> Any:
    return toolchain and (toolchain.path, toolchain.version, toolchain.flags, toolchain.libraries)


def _load(data: dict[str, Any], options: Options) -> Callable[..., Any] | None:
    ops = {str(op): op for op in decode(data["ops"])}
    calls = None
    if data["calls"] is not None:
        symbols, constants, layouts, python, boxed = decode(data["calls"])
        calls = CallCode("", (), symbols, constants, layouts, python, boxed, ())
    parts = Loadable(data["stage"], data["wrapper"], data["functions"], ops, decode(data["constants"]), calls)
    path: Path | None = None
    try:
        if data["library"] is not None:
            if _made_by(find_toolchain(options.cxx, options.cache_dir, options.sanitize)) != data["toolchain"]:
                return None
            key, digest = data["library"]
            path = open_cache(options.cache_dir).find(key, digest)
            if path is None:
                return None
        return parts.load(path)[0]
    except CodegenFailed:
        return None


def _spec(spec: JointSpec) -> Any:
    rows = {"outputs": tuple(map(_fields, spec.outputs)), "views": tuple(map(_fields, spec.views))}
    return encode({**_fields(spec), **rows})


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _read_spec(data: Any) -> JointSpec:
    read: dict[str, Any] = decode(data)
    read.update(outputs=tuple(OutputSpec(**o) for o in read["outputs"]), views=tuple(ViewStep(**v) for v in read["views"]))
    return JointSpec(**read)


def _graph(module: fx.GraphModule) -> Any:
    """The generated function of a graph, and what its text names."""
    if any(n.op in ("get_attr", "call_module") for n in module.graph.nodes):
        raise NotPlain("value", "a graph that holds other graphs")
    code = module.graph.python_code("self")
    return code.src, tuple((name, encode(value)) for name, value in code.globals.items())


def _captured(data: Any) -> Callable[..., Any]:
    source, names = data
    space = {name: decode(value) for name, value in names}
    exec(compile(source, "<captured graph>", "exec"), space)
    forward = space["forward"]
    return lambda *inputs: forward(None, *inputs)
