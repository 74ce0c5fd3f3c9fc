"""Which functions become graph nodes, which are folded, which are inlined as Python, and which are refused: tables.

In: a C function, a torch operator or a Python function, with values. Out: a node's value or a constant; ``None`` from ``special`` means:
inline it. Always holds: what is in no table is refused; nothing is called for its effect.
PyTorch's counterpart: ``torch/_dynamo/trace_rules.py`` and ``torch/_dynamo/variables/torch.py``.
"""

from __future__ import annotations

import cmath
import functools
import inspect
import math
import operator
import random
import types
import typing
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._jit_internal
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.jit._trace import is_tracing

from .values import autograd_functions, higher_order, stdlib, subclasses, warned
from .values.base import NONE, Args, Constant, Kwargs, Value, is_none
from .values.builtins import BUILTINS, Handler
from .values.composites import COMPOSITES
from .values.contexts import set_grad_mode, switch
from .values.exceptions import initialize
from .values.functions import PartialValue
from .values.modules import delete_attribute, set_attribute
from .values.modules import initialize as initialize_module
from .values.objects import ExceptionValue, ObjectValue
from .values.signatures import signature
from .values.symbolic import CHECK_IS_SIZE, check, check_is_size, convert
from .values.tensor import METADATA_METHODS, TensorValue, call_method

if TYPE_CHECKING:
    from .tracer import Tracer

OP_MODULES = frozenset({"torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special"})
FACTORIES = frozenset(
    "zeros ones empty full rand randn randint randperm arange range linspace logspace eye tensor scalar_tensor empty_strided empty_permuted "
    "tril_indices triu_indices hann_window hamming_window blackman_window bartlett_window kaiser_window as_tensor fft_fftfreq fft_rfftfreq".split()
)  # fmt: skip
REFUSED_OPS: dict[str, str] = {
    **{name: "tensor-to-python" for name in ("is_nonzero", "equal", "allclose", "is_same_size_")},
    **{name: "numpy" for name in ("from_numpy", "from_file", "frombuffer", "from_dlpack")},
    **{name: "op-refused" for name in ("_sync", "_assert_async", "_make_dep_token", "asarray", "_to_functional_tensor", "_from_functional_tensor")},
    **{name: "metadata-mutation" for name in METADATA_METHODS},
}
FOLDED: frozenset[Any] = frozenset(
    {f for m in (math, cmath) for f in vars(m).values() if isinstance(f, types.BuiltinFunctionType)}
    | {chr, ord, hex, oct, bin, operator.concat, operator.length_hint}
    | {torch._C._get_tracing_state, torch.get_default_dtype, torch.is_autocast_enabled, torch._C._is_any_autocast_enabled}
    | {torch.is_autocast_cache_enabled, torch.get_autocast_dtype, torch._C._get_privateuse1_backend_name, torch._C._is_torch_function_enabled}
    | {torch._C._get_cudnn_enabled, torch._C._get_deterministic_algorithms, torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack}
)  # pure, or state that the global guard covers or that does not change while a process runs
CHANGES: dict[str, Callable[[Args], tuple[int, int] | tuple[()]]] = {
    "batch_norm": lambda args: (3, 4) if isinstance(args[5], Constant) and args[5].value else (),
    "instance_norm": lambda args: (3, 4) if isinstance(args[5], Constant) and args[5].value else (),
}  # positions of arguments that are changed without a word in the schema


def call_builtin(t: Tracer, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """Call a C function, a method descriptor or an operator."""
    row = BUILTINS.get(real) or TORCH_ROWS.get(real)
    if row is not None:
        return row(t, args, kwargs)
    if real in FOLDED:
        if (found := convert(t, real, args, kwargs)) is not None:
            return found
        return t.fold(real, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
    if isinstance(real, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
        return _descriptor(t, real, args, kwargs)
    if (found := stdlib.class_method(t, real, args, kwargs)) is not None:
        return found
    if is_operation(real):
        return _operation(t, real, args, kwargs)
    owner = getattr(real, "__self__", None)
    if issubclass(type(owner), random.Random):
        raise t.refuse("random", f"random.{real.__name__}")
    raise t.refuse(_reason(real), f"{getattr(real, '__module__', None) or type(owner).__name__}.{getattr(real, '__name__', real)}")


def _reason(real: Any) -> str:
    module = getattr(real, "__module__", None) or ""
    if real in (print, input, open):
        return "output"
    return "numpy" if module.partition(".")[0] == "numpy" else "unknown-callable"


def is_operation(real: Any) -> bool:
    """True for functions on tensors that may stand in a graph."""
    if isinstance(real, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if not isinstance(real, types.BuiltinFunctionType):
        return False
    return real.__module__ in OP_MODULES or (real.__module__ == "torch" and real.__self__ is None)


def _operation(t: Tracer, real: Any, args: Args, kwargs: Kwargs) -> Value:
    name = getattr(real, "__name__", "")
    if (row := COMPOSITES.get(name)) is not None and (found := row(t, args, kwargs)) is not None:
        return found
    if name in REFUSED_OPS:
        raise t.refuse(REFUSED_OPS[name], f"torch.{name}")
    if name in FACTORIES and isinstance(real, types.BuiltinFunctionType) and is_none(kwargs.get("device", NONE)):
        kwargs = {**kwargs, "device": Constant(_device_of(args))}
    if real.__module__ == "torch" and getattr(torch, name, real) is not real:
        raise t.refuse("op-refused", f"torch._VF.{name}, which torch.{name} hides")  # a graph's code calls functions by their public name
    changes = [args[i] for i in CHANGES[name](args)] if name in CHANGES and len(args) > 5 else []
    return t.op(real, args, kwargs, changes)


def _device_of(args: Args) -> torch.device:
    return args[0].fake.device if args and isinstance(args[0], TensorValue) else torch.device("cpu")


def _descriptor(t: Tracer, real: Any, args: Args, kwargs: Kwargs) -> Value:
    """An unbound C method: ``torch.Tensor.add``, ``str.upper``, ``list.append``."""
    first = args[0]
    if isinstance(first, TensorValue):
        return call_method(t, first, real.__name__, args[1:], kwargs)
    if isinstance(first, ExceptionValue) and real.__name__ == "__init__":
        return initialize(t, first, real.__objclass__, args[1:], kwargs)
    if isinstance(first, subclasses.ContainerObject):
        return subclasses.call_held(t, real, first, args[1:], kwargs)
    if isinstance(first, ObjectValue):  # the object's own method of this name is another one
        raise t.refuse("unknown-callable", f"{real.__objclass__.__name__}.{real.__name__} of {first.describe()}")
    if issubclass(first.python_type(), real.__objclass__) and real.__objclass__ is not object:
        return first.get(t, real.__name__).call(t, args[1:], kwargs)
    raise t.refuse("unknown-callable", f"{real.__objclass__.__name__}.{real.__name__}")


def special(t: Tracer, real: types.FunctionType, args: Args, kwargs: Kwargs) -> Value | None:
    """A Python function that is not inlined: folded, a leaf of the graph, or refused; None to inline it."""
    row = FUNCTIONS.get(real)
    if row is not None:
        return row(t, args, kwargs)
    if (found := stdlib.dispatched(t, real, args, kwargs)) is not None:
        return found
    if real in LEAVES or real.__module__ in LEAF_MODULES:
        return t.op(real, args, kwargs)
    if getattr(real, "_torchdynamo_disable", False):
        raise t.refuse("disabled", real.__qualname__)
    module = real.__module__ or ""
    if module == "torch._dynamo.decorators" and real.__name__ in ("graph_break", "skip_frame"):
        raise t.refuse("disabled", f"torch._dynamo.{real.__name__}()")
    if module == "torch._dynamo.mutation_guard" and real.__name__ == "tag":
        return NONE  # once torch.compile was used, each new module is noted for it; a module without the note is as good
    if getattr(real, "_dynamo_marked_constant", False):  # assume_constant_result: its user says that it is the same at each call
        t.process = f"what {real.__qualname__} gives"
        return t.fold(real, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})
    if module == "torch._tensor" and args and isinstance(args[0], TensorValue) and getattr(torch.Tensor, real.__name__, None) is real:
        return call_method(t, args[0], real.__name__, args[1:], kwargs)
    reason = REFUSED_MODULES.get(module) or REFUSED_MODULES.get(module.partition(".")[0])
    if reason is not None:
        raise t.refuse(reason, f"{module}.{real.__qualname__}")
    return None


def _constant(value: Any) -> Handler:
    return lambda t, args, kwargs: Constant(value)


def _fold(function: Callable[..., Any]) -> Handler:
    return lambda t, args, kwargs: t.fold(function, [t.constant(a) for a in args], {k: t.constant(v) for k, v in kwargs.items()})


def _compiling(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The program asks whether it is compiled: it is, and the capture says that it was asked."""
    t.decide("is_compiling", (t.frames[-1].location().text(),), "True", "captured")
    return Constant(True)


def _second(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


def _wraps(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return PartialValue(t.wrap(functools.update_wrapper, None), [], {"wrapped": args[0]})


def _set_grad(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    set_grad_mode(t, switch(t, args))
    return NONE


def _product(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    total = kwargs.get("start", Constant(1))
    for value in args[0].iterate(t):
        total = BUILTINS[operator.mul](t, [total, value], {})
    return total


def _refused(reason: str, name: str) -> Handler:
    def row(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        raise t.refuse(reason, name)

    return row


TORCH_ROWS: dict[Any, Handler] = {
    torch._C._has_torch_function: _constant(False),
    torch._C._has_torch_function_unary: _constant(False),
    torch._C._has_torch_function_variadic: _constant(False),
    torch._C._log_api_usage_once: _constant(None),
    torch._C._set_grad_enabled: _set_grad,
    torch.is_grad_enabled: lambda t, args, kwargs: Constant(t.grad),
    torch.is_inference_mode_enabled: lambda t, args, kwargs: Constant(t.inference),
    math.prod: _product,
    warnings.warn: warned.warn,
    dict.__new__: subclasses.new,
    list.__new__: subclasses.new,
}
SETTINGS = (
    torch.set_default_dtype, torch.set_default_device, torch.set_default_tensor_type, torch.set_float32_matmul_precision, torch.use_deterministic_algorithms,
    torch.set_deterministic_debug_mode, torch.set_warn_always, torch.set_printoptions,
)  # fmt: skip
FUNCTIONS: dict[Any, Handler] = {
    torch.compiler.is_compiling: _compiling,
    torch.compiler.is_dynamo_compiling: _compiling,
    torch.compiler.is_exporting: _constant(False),
    is_tracing: _constant(False),
    torch._jit_internal.is_scripting: _constant(False),
    torch.cuda.is_available: _fold(torch.cuda.is_available),
    torch.functional.broadcast_shapes: _fold(torch.functional.broadcast_shapes),
    torch.nn.Module.__init__: initialize_module,
    torch.nn.Module.__setattr__: set_attribute,
    torch.nn.Module.__delattr__: delete_attribute,
    typing.cast: _second,
    torch._check: check,
    CHECK_IS_SIZE: check_is_size,
    **stdlib.PYTHON,
    inspect.signature: signature,
    functools.wraps: _wraps,
    torch.cond: higher_order.cond,
    torch.while_loop: higher_order.while_loop,
    torch.utils.checkpoint.checkpoint: higher_order.checkpoint,
    torch.autograd.Function.apply.__func__: autograd_functions.apply,  # type: ignore[attr-defined]
    torch.manual_seed: _refused("random", "torch.manual_seed"),
    **{function: _refused("global-state", f"torch.{function.__name__}") for function in SETTINGS},
}
LEAVES: frozenset[Any] = frozenset(
    {F.interpolate, F.grid_sample, F.ctc_loss, F.fractional_max_pool2d_with_indices, F.fractional_max_pool3d_with_indices, F.embedding_bag}
    | {F.local_response_norm}
)  # Python functions of torch that stand in the graph as they are: long, and nothing in them is the user's; so does torch.functional
LEAF_MODULES = frozenset({"torch.functional", "torch.masked._ops"})
REFUSED_MODULES: dict[str, str] = {
    "numpy": "numpy",
    "warnings": "output",
    "logging": "output",
    "random": "random",
    "torch.random": "random",
    "torch.autograd": "autograd-api",
    "torch.autograd.function": "autograd-api",
    "torch.utils.checkpoint": "autograd-api",
    "torch._higher_order_ops": "higher-order",
}
