"""A captured graph with symbolic sizes, for stages that know numbers only: compiled once for each set of sizes it meets.

Which stages those are, they say themselves: by ``Unsupported``.
In: a graph whose sizes are symbols, and inputs. Out: the same graph with every size a number (``concrete``), and a callable that keeps a table
of what was compiled from it (``by_size``). Always holds: the result is that of the symbolic graph, which runs by itself where the table is
full, where a size depends on data, and where a later stage does not model the program at these sizes.
Where PyTorch does this: nowhere; there every stage takes symbolic sizes. Left out: giving table entries back.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch import Tensor

from ..core.artifact import Decision
from ..core.errors import BackendFailed, LabError, Unsupported
from ..core.fakes import fake_mode
from ..core.provenance import inherit
from ..core.sizes import SYMBOLIC, depends

Compile = Callable[[fx.GraphModule, list[Tensor], list[int]], Callable[..., Any]]  # a graph, its tensors, and which inputs of the symbolic one they are


REASONS = {"refused": "a stage does not model symbolic sizes, or not these: the graph is compiled for the numbers of each call"}


def refused(module: fx.GraphModule, error: Unsupported) -> Decision:
    """The decision to compile ``module`` for numbers, since ``error`` says what cannot be done for symbols."""
    subject = tuple(f"frames/{n.name}" for n in module.graph.nodes if n.op == "placeholder" and depends(n.meta.get("val")))
    return Decision("sizes", subject, "compiled by size", "refused", {"reason": error.reason, "what": error.what})


def is_symbolic(module: fx.GraphModule) -> bool:
    """Does any size, or any number, of the graph depend on the call?"""
    return any(depends(node.meta.get("val")) for node in module.graph.nodes)


class _Sizes:
    """The numbers that the symbols of a graph stand for in one call."""

    def __init__(self, placeholders: Sequence[fx.Node], inputs: Sequence[Any]) -> None:
        from torch._subclasses.fake_tensor import FakeTensor

        self.make_fake, self.mode = FakeTensor, fake_mode()
        self.numbers: dict[Any, int] = {}
        for node, value in zip(placeholders, inputs, strict=True):
            val = node.meta["val"]
            pairs = zip((*val.shape, *val.stride()), (*value.shape, *value.stride()), strict=True) if isinstance(val, Tensor) else [(val, value)]
            self.numbers.update({s.node.expr: n for s, n in pairs if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol})

    def knows(self, value: Any) -> bool:
        """Are all sizes in ``value`` numbers in this call? One that depends on data is not."""
        if isinstance(value, Tensor):
            return all(map(self.knows, (*value.shape, *value.stride())))
        if isinstance(value, (tuple, list)):
            return all(map(self.knows, value))
        return not isinstance(value, SYMBOLIC) or set(value.node.expr.free_symbols) <= self.numbers.keys()

    def number(self, value: Any) -> Any:
        if not isinstance(value, SYMBOLIC):
            return value
        kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
        return kind(value.node.expr.xreplace(self.numbers))

    def value(self, value: Any) -> Any:
        """A fake tensor, or a nest of them, of these sizes."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.value, value)) if type(value) in (tuple, list) else value
        if not isinstance(value, Tensor):
            return self.number(value)
        layout = [tuple(map(self.number, numbers)) for numbers in (value.shape, value.stride())]
        meta = torch.empty_strided(*layout, dtype=value.dtype, device="meta", requires_grad=value.requires_grad)
        return self.make_fake(self.mode, meta, value.device)


def concrete(module: fx.GraphModule, inputs: Sequence[Any], stage: str = "frames") -> tuple[fx.GraphModule, list[int]] | None:
    """``module`` for the sizes of ``inputs``, and which inputs are left: those that are tensors. None where a size depends on data.

    Nodes keep their names, and have the node they came from as parent; numbers computed in the graph become arguments."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    sizes = _Sizes(placeholders, inputs)
    given = dict(zip(placeholders, inputs, strict=True))
    graph, mapping = fx.Graph(), dict[fx.Node, Any]()
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if not sizes.knows(val):
            return None
        if isinstance(val, SYMBOLIC):
            mapping[node] = given[node] if node in given else _computed(node, mapping, sizes)
            continue
        new = graph.node_copy(node, lambda n: mapping[n])
        new.name, new.meta = node.name, copy.copy(node.meta)
        if "val" in node.meta:
            new.meta["val"] = sizes.value(val)
        mapping[node] = inherit(new, stage, node)
    kept = [i for i, node in enumerate(placeholders) if isinstance(mapping[node], fx.Node)]
    return fx.GraphModule(module, graph), kept


def _computed(node: fx.Node, mapping: dict[fx.Node, Any], sizes: _Sizes) -> Any:
    """The number at ``node``: computed as the graph would, from numbers; what is read from a tensor follows from its sizes."""
    args = fx.map_arg(node.args, lambda n: mapping[n])
    if callable(node.target) and not any(isinstance(a, fx.Node) for a in args):
        return node.target(*args)
    return sizes.number(node.meta["val"])


def by_size(module: fx.GraphModule, inputs: Sequence[Any], compile: Compile, limit: int, around: Callable[[], Any]) -> Callable[..., Any]:
    """``module`` as a callable that compiles itself for the sizes of each call, ``limit`` times at most; for ``inputs`` at once.

    around: makes the context in which a later compile runs. A later compile raises ``BackendFailed`` where the backend does."""
    symbolic = [i for i, n in enumerate(n for n in module.graph.nodes if n.op == "placeholder") if depends(n.meta["val"])]
    table: dict[Any, Callable[..., Any]] = {}
    lock = threading.RLock()

    def key_of(inputs: Sequence[Any]) -> Any:
        return tuple([(v.shape, v.stride()) if isinstance(v := inputs[i], Tensor) else (type(v), v) for i in symbolic])

    def make(inputs: Sequence[Any]) -> Callable[..., Any]:
        found = concrete(module, inputs)
        if found is None:
            return module.forward
        graph, kept = found
        run = compile(graph, [inputs[i] for i in kept], kept)
        return run if len(kept) == len(inputs) else lambda *inputs: run(*[inputs[i] for i in kept])

    def later(key: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        with lock:
            if key in table:
                return table[key]
            if len(table) == limit:
                warnings.warn(
                    f"one graph was compiled for {limit} sets of sizes, the limit; at other sizes its operators run one by one. "
                    "Pass options={'recompile_limit': N} to allow more.",
                    stacklevel=4,
                )
            if len(table) >= limit:
                table[key] = module.forward
            else:
                try:
                    with around():
                        table[key] = make(inputs)
                except Unsupported:
                    table[key] = module.forward
                except LabError:
                    raise
                except Exception as error:
                    raise BackendFailed(f"the backend raised {type(error).__name__}: {error}", hint="see the exception it came from") from error
            return table[key]

    def call(*inputs: Any) -> Any:
        key = key_of(inputs)
        found = table.get(key)
        return (later(key, inputs) if found is None else found)(*inputs)

    table[key_of(inputs)] = make(inputs)
    return call
