"""What the tests of lowering share: values with every edge, graphs of one call, comparison with eager, and the calls of each row."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.fx as fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_leaves

from compiler_lab.core import fakes
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.lowering.lower import REASONS, lower
from compiler_lab.lowering.program import LoopProgram

SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 25.0, 1e-30, -1e30, 2.5, -2.5, 1.5]
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
FEW = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
"""One dtype of each kind: what every layout is tried with."""
aten = torch.ops.aten


def values(dtype: torch.dtype, *shape: int, seed: int = 0, special: bool = True) -> Tensor:
    """Random values of ``dtype``; floats begin with the special ones, integers have no zero (aten raises on a zero divisor)."""
    gen = torch.Generator().manual_seed(seed)
    n = math.prod(shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=gen).bool()
    if not dtype.is_floating_point:
        return torch.randint(1, 9, shape, generator=gen).to(dtype) * (torch.randint(0, 2, shape, generator=gen).to(dtype) * 2 - 1)
    flat = torch.randn(n, generator=gen, dtype=torch.float64) * 2
    if special:
        chosen = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randperm(len(SPECIAL), generator=gen)][:n]
        flat[: len(chosen)] = chosen
    return flat.to(dtype).reshape(shape)


@functools.cache
def op_of(name: str) -> torch._ops.OpOverload:
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


@functools.cache
def fake_mode() -> FakeTensorMode:
    return fakes.fake_mode()


def fake(mode: FakeTensorMode, real: Tensor) -> Tensor:
    if real.storage_offset():
        return mode.from_tensor(real, static_shapes=True)
    with mode:  # several times faster
        return torch.empty_strided(real.shape, real.stride(), dtype=real.dtype)


def call_graph(target: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> tuple[GraphArtifact, list[Tensor]]:
    """A graph of one aten call, its tensors as placeholders; outputs are the tensors it returns."""
    graph, mode, inputs = fx.Graph(), fake_mode(), []
    fakes: dict[fx.Node, Tensor] = {}

    def node(arg: Any) -> Any:
        if isinstance(arg, Tensor):
            n = graph.placeholder(f"x{len(inputs)}")
            n.meta["val"] = fakes[n] = fake(mode, arg)
            inputs.append(arg)
            return n
        return type(arg)(map(node, arg)) if isinstance(arg, (list, tuple)) else arg

    args, kwargs = node(args), {k: node(v) for k, v in kwargs.items()}
    call = graph.call_function(target, args, kwargs)
    with mode:
        call.meta["val"] = val = target(*fx.map_arg(args, lambda n: fakes[n]), **fx.map_arg(kwargs, lambda n: fakes[n]))
    if isinstance(val, (list, tuple)):
        outputs = []
        for i, v in enumerate(val):
            outputs.append(graph.call_function(operator.getitem, (call, i)))
            outputs[-1].meta["val"] = v
        graph.output(tuple(outputs))
    else:
        graph.output((call,))
    return artifact(graph), inputs


def artifact(graph: fx.Graph, module: torch.nn.Module | None = None) -> GraphArtifact:
    for n in graph.nodes:
        n.meta.setdefault("stack", ())
        n.meta.setdefault("parents", ())
    return GraphArtifact(_LazyGraphModule(module or torch.nn.Module(), graph), "aot.forward")


def traced(fn: Callable[..., Any], *args: Tensor, decompositions: Any = None, mode: Literal["fake", "real"] = "fake") -> GraphArtifact:
    """The aten graph of a function, by the reference tracer (an oracle here)."""
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(fn, decomposition_table=decompositions, tracing_mode=mode)(*args)
    out = module.graph.output_node()
    out.args = (tuple(tree_leaves(out.args[0])),)
    for n in module.graph.nodes:
        if n.op == "get_attr":
            n.meta["val"] = getattr(module, str(n.target))
    return artifact(module.graph, module)


def assert_same(got: Any, want: Any, what: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    assert isinstance(got, Tensor) and isinstance(want, Tensor), what
    assert (got.shape, got.dtype) == (want.shape, want.dtype), what
    assert all(n <= 1 or s == t for n, s, t in zip(want.shape, got.stride(), want.stride(), strict=True)) or want.numel() == 0, (
        f"{what}: {got.stride()} {want.stride()}"
    )
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")
    if rtol == 0.0 and want.dtype.is_floating_point:
        number = ~want.isnan()
        assert torch.equal(got.signbit()[number], want.signbit()[number]), f"{what}: the sign of a zero"


def assert_as_aten(target: torch._ops.OpOverload, *args: Any, rtol: float = 0.0, atol: float = 0.0, **kwargs: Any) -> LoopProgram:
    """Lowers one call, checks and runs it, compares with eager; gives the program."""
    want = target(*args, **kwargs)
    graph, inputs = call_graph(target, *args, **kwargs)
    whole = all(a.dtype == torch.float32 for a in inputs)  # once for each case is enough
    before = graph.fingerprint() if whole else ""
    program = lower(graph)
    program.check()
    got = program.run(*inputs)
    for i, (g, w) in enumerate(zip(got, tree_leaves(want), strict=True)):
        assert_same(g, w, f"{target} output {i} of {[a.dtype if isinstance(a, Tensor) else a for a in args]} {kwargs}", rtol=rtol, atol=atol)
    if whole:
        assert graph.fingerprint() == before
        assert lower(graph).text() == program.text()
    assert all(d.reason in REASONS for d in program.decisions)
    assert not any(d.reason == "other result" for d in program.decisions), program.text()
    return program


def reasons(program: LoopProgram) -> list[str]:
    return [d.reason for d in program.decisions]


NUMBERS: dict[tuple[str, str], list[Any]] = {
    ("aten.pow.Tensor_Scalar", "exponent"): [0, 1, 2, 3, 0.5, -0.5, -1, -2, 4, 2.5, 1.0, 7],
    ("aten.pow.Scalar", "self"): [2, 1, 0.5],
    ("aten.clamp.default", "min"): [None, -1, 0.5],
    ("aten.clamp.default", "max"): [1, 2.5],
    ("aten.gelu.default", "approximate"): ["none", "tanh"],
    ("aten.gelu_backward.default", "approximate"): ["none", "tanh"],
    ("aten.div.Tensor_mode", "rounding_mode"): [None, "floor", "trunc"],
    ("aten.div.Scalar_mode", "rounding_mode"): [None, "floor", "trunc"],
    ("aten.leaky_relu_backward.default", "self_is_result"): [False],
    ("aten.elu_backward.default", "is_result"): [False, True],
    ("aten.elu_backward.default", "alpha"): [1, 0.75],
    ("aten.elu_backward.default", "scale"): [1.5],
    ("aten.elu_backward.default", "input_scale"): [0.5],
    ("aten.softplus.default", "threshold"): [20, 2],
    ("aten.softplus_backward.default", "threshold"): [20, 2],
    ("aten.nan_to_num.default", "posinf"): [None, 4.0],
    ("aten.bitwise_and.Scalar", "other"): [3, True],
    ("aten.hardtanh_backward.default", "min_val"): [-3.0],
    ("aten.hardtanh_backward.default", "max_val"): [3.0],
    ("aten.lerp.Scalar", "weight"): [0.25, 0.75],
    ("aten.floor_divide.Scalar", "other"): [2, -1, 2.5],
    ("aten.remainder.Scalar", "other"): [3, -1, -2.5],
    ("aten.fmod.Scalar", "other"): [3, -1, -2.5],
}
NAN_BY_PATH = frozenset(f"aten.{n}_backward.default" for n in ("elu", "hardshrink", "softshrink", "hardtanh", "hardswish"))
"""Rows where aten's vector code and its scalar code disagree about NaN: ours follow the vector code."""
MASKS = ("mask", "condition")


def choices(name: str, argument: Any) -> list[Any]:
    if (name, argument.name) in NUMBERS:
        return NUMBERS[name, argument.name]
    kind = str(argument.type)
    if argument.has_default_value() and argument.name not in ("alpha", "value"):
        return [argument.default_value]
    return {"number": [2, -0.75, True], "Scalar": [2, -0.75, True], "float": [0.75], "bool": [False], "int": [2]}[kind]


def combinations(name: str, dtype: torch.dtype, layout: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Argument lists for a pointwise operator, out of its schema."""
    target, result = op_of(name), [([], {})]
    shapes = {"same": [(8, 6)] * 4, "broadcast": [(3, 5, 6), (5, 1), (1,), (6,)], "strided": [(8, 6)] * 4, "scalar": [(8, 6), (), (), ()]}[layout]
    tensors = 0
    for argument in target._schema.arguments:
        if "Tensor" in str(argument.type) and "Optional" not in str(argument.type):
            kind = torch.bool if argument.name in MASKS else dtype
            shape = shapes[tensors] if name not in ("aten.masked_fill.Tensor",) or argument.name != "value" else ()
            value = values(kind, *shape, seed=tensors, special=name not in NAN_BY_PATH or layout == "same")
            if layout == "strided" and len(shape) == 2:
                value = values(kind, shape[1], shape[0] * 2, seed=tensors, special=name not in NAN_BY_PATH)[:, ::2].t()
            options, tensors = [value], tensors + 1
        elif "Tensor" in str(argument.type):
            options, tensors = [None, values(dtype, *shapes[tensors], seed=tensors)], tensors + 1
        else:
            options = choices(name, argument)
        if argument.kwarg_only:
            result = [(a, {**k, argument.name: o}) for a, k in result for o in options]
        else:
            result = [([*a, o], k) for a, k in result for o in options]
    return result


VIEW_CALLS: dict[str, list[tuple[Any, ...]]] = {
    "aten.view.default": [([24],), ([2, -1, 3],), ([4, 1, 6],)],
    "aten.view.dtype": [(torch.float32,), (torch.int32,)],
    "aten._unsafe_view.default": [([6, 4],)],
    "aten.reshape.default": [([6, 4],)],
    "aten._reshape_alias.default": [([6, 4], [4, 1])],
    "aten.alias.default": [()],
    "aten.detach.default": [()],
    "aten.lift.default": [()],
    "aten.expand.default": [([3, 4, 6],), ([-1, -1],)],
    "aten.permute.default": [([1, 0],), ([-1, 0],)],
    "aten.transpose.int": [(0, -1)],
    "aten.t.default": [()],
    "aten.unsqueeze.default": [(0,), (-1,), (1,)],
    "aten.squeeze.default": [()],
    "aten.squeeze.dim": [(0,), (-1,)],
    "aten.squeeze.dims": [([0, 1],)],
    "aten.slice.Tensor": [(0, 1, 3), (1, -3, 2**63 - 1), (1, 0, 6, 4), (0,), (1, 1, 100, 2), (1, 3, 2)],
    "aten.select.int": [(0, 2), (-1, -1)],
    "aten.split.Tensor": [(4, 1), (3,)],
    "aten.unsafe_split.Tensor": [(4, 1)],
    "aten.split_with_sizes.default": [([1, 2, 3], 1)],
    "aten.unsafe_split_with_sizes.default": [([1, 2, 3], -1)],
    "aten.unbind.int": [(), (1,)],
    "aten.diagonal.default": [(), (1,), (-2, 1, 0), (9,)],
    "aten.unfold.default": [(1, 3, 2), (0, 2, 1)],
    "aten.as_strided.default": [([3, 2], [2, 5]), ([4], [3], 2)],
}


B, C = torch.int64, torch.float32


def A(*shape: int, seed: int = 0, special: bool = True) -> Tensor:
    return values(torch.float32, *(shape or (4, 6)), seed=seed, special=special)


INDEX = torch.tensor([[0, 3, 1], [2, 2, 0]])

CREATE_CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "aten.cat.default": [
        (([A(), A(seed=1)], 0), {}),
        (([A(4, 2), A(4, 4, seed=1), A(4, 6, seed=2)], 1), {}),
        (([A(4, 3), A(4, 2, seed=1).t().t(), A(4, 1)], -1), {}),
        (([A(), torch.arange(24).view(4, 6)], 1), {}),
        (([A(2, 3, 4).permute(2, 0, 1), A(4, 2, 5)], 2), {}),
        (([A()],), {}),
        (([A(), torch.empty(0)],), {}),
        (([torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)] * 2, 1), {}),
    ],
    "aten.stack.default": [(([A(), A(seed=1), A(seed=2)], 0), {}), (([A(), A(seed=1)], -1), {}), (([A()], 1), {})],
    "aten.constant_pad_nd.default": [
        ((A(), [1, 2], 0.5), {}),
        ((A(), [2, 2, 1, 0]), {}),
        ((A(), [-1, 2]), {}),
        ((A(), [0, -2, 3, 0], 1), {}),
        ((A(), [-1, -1]), {}),
        ((A(), [0, 0]), {}),
        ((torch.ones(3).bool(), [1, 1], True), {}),
        ((A(), [2, 4, 2, 2], -math.inf), {}),
    ],
    "aten.slice_scatter.default": [
        ((A(), A(2, 6), 0, 1, 3), {}),
        ((A(), A(4, 2), 1, 1, 5, 2), {}),
        ((A(), A(4, 6), 1), {}),
        ((A(), A(4, 2), -1, -2), {}),
        ((A(), torch.ones(4, 3, dtype=B), 1, 0, 6, 2), {}),
    ],
    "aten.slice_backward.default": [((A(2, 6), [4, 6], 0, 1, 3, 1), {}), ((A(4, 2), [4, 6], 1, 1, 5, 2), {}), ((A(4, 2), [4, 6], 1, 4, 2**63 - 1, 1), {})],
    "aten.select_scatter.default": [((A(), A(6), 0, 2), {}), ((A(), A(4), 1, -1), {}), ((A(), A(4), 1, 0), {})],
    "aten.select_backward.default": [((A(6), [4, 6], 0, 2), {}), ((A(4), [4, 6], 1, -1), {})],
    "aten.repeat.default": [((A(), [2, 3]), {}), ((A(), [3, 1, 2]), {}), ((A(4, 1), [1, 5]), {}), ((A(), [1, 1]), {})],
    "aten.flip.default": [((A(), [0]), {}), ((A(), [0, -1]), {}), ((A(1, 6), [0, 1]), {})],
    "aten.roll.default": [((A(), [2], [1]), {}), ((A(), [-1], [0]), {}), ((A(), [6], [1]), {}), ((A(), [1, 2], [0, 1]), {}), ((A(), [3]), {})],
    "aten.diagonal_scatter.default": [((A(), A(4), 1), {}), ((A(4, 6, 3), A(6, 3), -1, 0, 2), {}), ((A(), A(0), 9), {})],
    "aten.diagonal_backward.default": [((A(4), [4, 6], 1, 0, 1), {}), ((A(3, 4), [4, 3, 5], 0, 0, -1), {})],
    "aten.as_strided_scatter.default": [
        ((A(), A(3, 2), [3, 2], [2, 5], 1), {}),
        ((A().t(), A(3, 2), [3, 2], [2, 7]), {}),
    ],
    "aten.tril.default": [((A(),), {}), ((A(), 2), {}), ((A(2, 5, 5), -1), {}), ((torch.ones(4, 4).bool(),), {})],
    "aten.triu.default": [((A(),), {}), ((A(), -2), {}), ((torch.arange(9).view(3, 3), 1), {})],
    "aten.full.default": [(([2, 3], 1.5), {}), (([2, 3], 7), {}), (([], True), {}), (([2], math.inf), {"dtype": torch.float16}), (([2], 3.7), {"dtype": B})],
    "aten.full_like.default": [((A(), 2), {}), ((A().t(), -0.0), {}), ((A(), 1), {"dtype": torch.bool})],
    "aten.new_full.default": [((A(), [2, 2], 3), {})],
    "aten.scalar_tensor.default": [((2.5,), {}), ((3,), {"dtype": B}), ((-math.inf,), {"dtype": C})],
    "aten.zeros.default": [(([2, 3],), {}), (([2],), {"dtype": B})],
    "aten.zeros_like.default": [((A().t(),), {}), ((A(),), {"dtype": torch.bool})],
    "aten.new_zeros.default": [((A(), [3]), {})],
    "aten.ones.default": [(([2, 3],), {})],
    "aten.ones_like.default": [((A()[:, ::2],), {}), ((A().t(),), {"memory_format": torch.contiguous_format})],
    "aten.new_ones.default": [((A(), [3]), {})],
    "aten.fill.Scalar": [((A(), 2), {}), ((torch.ones(3, dtype=B), 2.0), {})],
    "aten.fill.Tensor": [((A(), torch.tensor(2.5)), {})],
    "aten.arange.default": [((7,), {}), ((3.5,), {}), ((5,), {"dtype": torch.float32})],
    "aten.arange.start": [((2, 9), {}), ((0.5, 4), {})],
    "aten.arange.start_step": [((1, 20, 3), {}), ((0, 1, 0.1), {}), ((10, 0, -2), {}), ((0.5, 5), {"dtype": B})],
    "aten.eye.default": [((4,), {}), ((3,), {"dtype": torch.bool})],
    "aten.eye.m": [((3, 5), {})],
    "aten.nan_to_num.default": [((values(d, 5, 6), *a), {}) for d in DTYPES for a in ((), (1.0, 2.0, -3.0))],
    "aten.clone.default": [
        ((A().t(),), {}),
        ((A()[:, ::2],), {}),
        ((A().t(),), {"memory_format": torch.contiguous_format}),
        ((torch.randn(2, 4, 3, 3),), {"memory_format": torch.channels_last}),
    ],
    "aten._to_copy.default": [((values(torch.float32, 4, 6, special=False) * 3,), {"dtype": d}) for d in DTYPES[:-2]]
    + [((A(),), {"dtype": torch.bool}), ((A(),), {"dtype": torch.complex64}), ((torch.tensor([3.7, -2.2]),), {"dtype": B})],
    "aten.lift_fresh_copy.default": [((A(),), {})],
    "aten.copy.default": [
        ((A(), A(6, seed=1)), {}),
        ((A(), torch.ones(4, 1, dtype=B)), {}),
        ((torch.ones(4, 6, dtype=torch.int32), torch.full((6,), 2.7)), {}),
    ],
    "prims.iota.default": [((5,), {"start": 2, "step": 3, "dtype": B, "device": torch.device("cpu"), "requires_grad": False})],
    "prims.convert_element_type.default": [((A(), torch.float64), {}), ((torch.arange(6), torch.float16), {})],
}

HALF = torch.bfloat16
ROW = torch.tensor([1, 1, -2, 0])

INDEXED_CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "aten.gather.default": [
        ((A(), 1, INDEX), {}), ((A(), 0, INDEX), {}), ((A().t(), -1, INDEX), {}), ((A(5), 0, INDEX[0]), {}), ((A(5)[2], 0, torch.tensor(0)), {}),
        ((A(5)[2], 0, torch.tensor([0, 0])), {}), ((A(5), 0, torch.tensor(3)), {}), ((A(5), 0, torch.empty(0, dtype=B)), {}),
    ],
    "aten.index.Tensor": [
        ((A(), [INDEX]), {}), ((A(), [None, INDEX]), {}), ((A(), [torch.tensor([-1, 0, -4])]), {}), ((A(2, 4, 3), [None, torch.tensor([1, 3])]), {}),
        ((A(), [torch.tensor(2)]), {}), ((A(), [torch.tensor([1, 0]).int()]), {}), ((A(), [INDEX, INDEX]), {}), ((A(4, 5, 6), [INDEX, None, INDEX]), {}),
        ((A(4, 5, 6), [None, INDEX, ROW[:3]]), {}), ((A(4, 5, 6).transpose(0, 2), [INDEX, ROW[:1]]), {}),
        ((A(4, 3, 2, 5), [None, ROW, None, ROW]), {}),
    ],
    "aten._unsafe_index.Tensor": [((A(), [None, INDEX]), {}), ((A(4, 5, 6), [None, INDEX, ROW[:3]]), {})],
    "aten._unsafe_masked_index.default": [((A(), torch.tensor([[True], [False], [True], [True]]), [ROW * 4], -1.0), {}),
        ((A(), INDEX > 0, [None, INDEX], 7), {})],
    "aten.index_put.default": [
        ((A(), [INDEX], A(2, 3, 6), True), {}), ((A(), [None, INDEX], A(2, 3), True), {}), ((A(4, 5, 6), [INDEX, None, INDEX], A(5), True), {}),
        ((A(), [torch.tensor([1, 3])], A(2, 6), False), {}), ((A(), [INDEX[0], INDEX[1]], A(1)), {}), ((A().to(HALF), [ROW], A(4, 6).to(HALF), True), {}),
        ((torch.arange(24).view(4, 6), [ROW], torch.arange(24).view(4, 6), True), {}), ((A(), [A() > 0], torch.tensor(3.0)), {}),
        ((A(), [None, A(6) > 0], torch.tensor(3.0)), {}), ((A(), [A(4) > 0], torch.tensor([3.0]), True), {}),
        ((A(), [torch.zeros(4, 6).bool()], torch.ones(0)), {}),
        ((A(), [torch.empty(0, dtype=B)], torch.ones(0, 6), True), {}), ((A().t(), [ROW], A(4, 4), True), {}),
        ((torch.zeros(4, dtype=torch.bool), [ROW], torch.ones(4, dtype=torch.bool), True), {}),
    ],
    "aten._unsafe_index_put.default": [((A(), [None, INDEX], A(2, 3), True), {})],
    "aten._unsafe_masked_index_put_accumulate.default": [((A(), torch.tensor([[True], [False], [True], [True]]), [ROW * 4], A(4, 6)), {})],
    "aten.scatter.value": [
        ((A(), 1, torch.tensor([[0], [5], [2], [2]]), -1.0), {}), ((A(), 0, torch.tensor([[3, 0, 1, 2, 3, 0]]), 2), {}), ((A(), 1, INDEX, 0.5), {}),
        ((A().t(), -1, INDEX, 0.5), {}), ((A(5)[2], 0, torch.tensor(0), 2), {}),
    ],
    "aten.scatter.src": [
        ((A(), 1, torch.tensor([[0], [5], [2], [2]]), A(4, 6, seed=4)), {}), ((A(), 0, INDEX, A(3, 5)), {}), ((A(5)[2], 0, torch.tensor(0), A(5)[1]), {}),
    ],
    "aten.scatter_add.default": [
        ((A(), 1, INDEX, A(2, 3)), {}), ((A(), 0, INDEX, A(2, 3)), {}), ((A().to(HALF), 0, INDEX, A(2, 3).to(HALF)), {}),
        ((A(5)[2], 0, torch.tensor(0), A(5)[1]), {}),
        ((torch.arange(24).view(4, 6), 0, INDEX, INDEX), {}), ((A(3, 4, 5), 1, torch.randint(0, 4, (2, 6, 5)), A(3, 6, 5)), {}),
        ((A(), 0, torch.empty(0, 6, dtype=B), A(2, 6)), {}),
    ],
    "aten.scatter.reduce": [((A(), 1, INDEX, A(2, 3)), {"reduce": r}) for r in ("add", "multiply")],
    "aten.scatter.value_reduce": [((A(), 1, INDEX, 2.5), {"reduce": r}) for r in ("add", "multiply")],
    "aten.scatter_reduce.two": [
        ((f(), 1, INDEX, f(), r), {"include_self": own})
        for f in (lambda: A(special=False), lambda: torch.arange(-12, 12).view(4, 6), lambda: A(4, 6, special=False).to(HALF))
        for r in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
    "aten.embedding.default": [((A(7, 16), INDEX), {}), ((A(16, 7).t(), INDEX, 2), {}), ((A(5, 16).to(HALF), torch.tensor(3)), {})],
    "aten.embedding_dense_backward.default": [
        ((A(2, 3, 16), INDEX, 7, 2, False), {}), ((A(2, 3, 5), INDEX, 4, -1, False), {}), ((A(16), torch.tensor(3), 5, -1, False), {}),
        ((A(2, 3, 5).to(HALF), INDEX, 4, -1, False), {}),
    ],
}  # fmt: skip
