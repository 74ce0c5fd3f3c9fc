"""Tensors: a graph node and the fake tensor that stands for its result.

In: attribute reads, methods and operators on tensors. Out: constants for what the metadata says, nodes for the rest.
Always holds: nothing here reads a tensor's data; what would need it is refused.
PyTorch's counterpart: ``torch/_dynamo/variables/tensor.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Leaf, Value, is_none
from .composites import COMPOSITES
from .containers import SequenceValue
from .symbolic import SymbolicValue, size_of, sizes_of

if TYPE_CHECKING:
    from ..tracer import Tracer

METADATA = frozenset(
    "shape dtype device ndim requires_grad is_leaf layout itemsize nbytes is_cuda is_cpu is_mps is_xpu is_meta is_sparse is_sparse_csr is_mkldnn "
    "is_quantized is_nested is_vulkan is_ipu is_mtia is_xla is_maia names retains_grad".split()
)  # fmt: skip
HISTORY = frozenset({"is_leaf", "retains_grad"})
COMPUTED = frozenset({"T", "mT", "H", "mH", "real", "imag"})
DATA_METHODS = frozenset("item tolist numpy __bool__ __int__ __float__ __index__ __complex__ __array__ __contains__ is_nonzero equal allclose".split())
METADATA_METHODS = frozenset(
    "resize_ resize_as_ set_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ detach_ requires_grad_ as_strided_ rename_ "
    "__setstate__ share_memory_ retain_grad resize resize_as_sparse_ sparse_resize_ _coalesced_ apply_ map_ map2_ is_shared pin_memory".split()
)  # fmt: skip
AUTOGRAD_METHODS = frozenset("backward register_hook register_post_accumulate_grad_hook retain_grad _backward_hooks grad_fn _grad_fn grad_dtype".split())
REFUSED_METHODS = frozenset(
    "data_ptr storage_offset _is_view is_set_to is_pinned storage untyped_storage storage_type "
    "__reduce__ __reduce_ex__ __deepcopy__ __dlpack__ __cuda_array_interface__ data _version __dir__ "
    "__hash__ __repr__ __str__ __format__ record_stream dlpack unique_consecutive nonzero_static_ module_load stft istft to_sparse".split()
)  # fmt: skip
UNGUARDED = frozenset({"storage_offset", "_is_view"})

REFUSED: dict[str, frozenset[str]] = {
    "tensor-to-python": DATA_METHODS,
    "metadata-mutation": METADATA_METHODS,
    "autograd-api": AUTOGRAD_METHODS,
    "op-refused": REFUSED_METHODS,
}


class TensorValue(Value):
    """``node`` is the newest node whose value is this tensor object; ``first`` the one that made it. ``real`` only for inputs."""

    def __init__(self, node: fx.Node, fake: torch.Tensor, source: Source | None = None, real: torch.Tensor | None = None) -> None:
        self.node = self.first = node
        self.fake, self.source, self.real_tensor = fake, source, real

    def python_type(self) -> type[Any]:
        return torch.Tensor if self.real_tensor is None else type(self.real_tensor)

    def describe(self) -> str:
        return f"tensor {self.node.name}"

    def plain(self, leaf: Leaf) -> Any:
        return leaf(self)

    def get(self, t: Tracer, name: str) -> Value:
        if name == "shape" and t.shapes.symbolic:
            return SequenceValue(sizes_of(t, self, "size"), torch.Size)
        if name == "nbytes" and t.shapes.symbolic:
            return t.op(operator.mul, [t.op("numel", [self]), Constant(self.fake.itemsize)])
        if name in METADATA:
            self._history(t, name)
            return t.lift(getattr(self.fake, name))
        if name in COMPUTED:
            return t.op(getattr, [self, Constant(name)])
        if name == "__class__":
            return t.lift(self.python_type())
        if name == "grad":
            return self._grad(t)
        if name == "data":
            return self._data(t)
        if name in AUTOGRAD_METHODS:
            raise t.refuse("autograd-api", f".{name}")
        if self.has_extra(name) and self.real_tensor is not None and self.source is not None:
            return t.wrap(self.real_tensor.__dict__[name], Source("attr", name, self.source))
        if callable(getattr(torch.Tensor, name, None)):
            return TensorMethod(self, name)
        raise t.refuse("attribute", f"{name!r} of a tensor")

    def _history(self, t: Tracer, name: str) -> None:
        """What autograd knows of an input: a tensor guard does not look at it."""
        if name in HISTORY and self.real_tensor is not None and self.source is not None and self.real_tensor.requires_grad:
            t.wrap(getattr(self.real_tensor, name), Source("attr", name, self.source))

    def _grad(self, t: Tracer) -> Value:
        self._history(t, "is_leaf")
        if self.real_tensor is not None and self.source is not None and self.real_tensor.is_leaf:
            return t.wrap(self.real_tensor.grad, Source("attr", "grad", self.source))
        raise t.refuse("autograd-api", ".grad of a tensor that is not a leaf given from outside")

    def _data(self, t: Tracer) -> Value:
        """The same memory without history. A change through it would go unnoticed by autograd, unlike one through ``detach``: it is refused."""
        t.frozen.add(memory_of(t, self.fake))
        return t.op("detach", [self])

    def has_extra(self, name: str) -> bool:
        """An attribute that the program put on an input tensor itself."""
        return self.real_tensor is not None and name in self.real_tensor.__dict__

    def set(self, t: Tracer, name: str, value: Value) -> None:
        if name == "requires_grad" and t.maybe_constant(value) is self.fake.requires_grad:
            return
        raise t.refuse("side-effect" if name not in ("data", "requires_grad") else "metadata-mutation", f"setting .{name} of a tensor")

    def item(self, t: Tracer, key: Value) -> Value:
        if isinstance(key, SymbolicValue) and key.python_type() is int:
            return t.op("select", [self, Constant(0), key])  # a subscript would take the number of this call
        return t.op(operator.getitem, [self, key])

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        t.op(operator.setitem, [self, key, value])

    def iterate(self, t: Tracer) -> Iterator[Value]:
        if not self.fake.dim():
            raise t.refuse("op-error", "iteration over a 0-d tensor")
        return t.op("unbind", [self, Constant(0)]).iterate(t)

    def length(self, t: Tracer) -> int:
        return t.constant(self.size(t))

    def size(self, t: Tracer) -> Value:
        """``len(x)``, which may depend on sizes."""
        if not self.fake.dim():
            raise t.refuse("op-error", "len() of a 0-d tensor")
        return size_of(t, self, "size", 0)

    def truth(self, t: Tracer) -> bool:
        raise t.refuse("data-dependent-branch", f"the truth of {self.describe()} decides")


class TensorMethod(Value):
    """``x.name`` as a bound method."""

    def __init__(self, owner: TensorValue, name: str) -> None:
        self.owner, self.name = owner, name

    def describe(self) -> str:
        return f"method {self.name} of a tensor"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return call_method(t, self.owner, self.name, args, kwargs)


def call_method(t: Tracer, owner: TensorValue, name: str, args: Args, kwargs: Kwargs) -> Value:
    """A Tensor method: refused, folded to a constant, or a ``call_method`` node."""
    if name == "item" and t.shapes.history.scalars and not args and owner.fake.dtype != torch.bool and not owner.fake.is_complex():
        return t.op(name, [owner])
    if name in UNGUARDED and owner.real_tensor is not None:
        raise t.refuse("op-refused", f".{name}() of an input, which no guard looks at")
    if (row := COMPOSITES.get(name)) is not None and (found := row(t, [owner, *args], kwargs)) is not None:
        return found
    for reason, names in REFUSED.items():
        if name in names:
            raise t.refuse(reason, f".{name}()")
    if name == "__len__":
        return owner.size(t)
    if name in ("size", "stride") and t.shapes.symbolic and not kwargs:
        return _numbers(t, owner, name, args)
    if name in ("__getitem__", "__setitem__"):
        return owner.item(t, args[0]) if name == "__getitem__" else (owner.set_item(t, args[0], args[1]) or NONE)
    if name.startswith("new_") and "device" not in kwargs:
        kwargs = {**kwargs, "device": Constant(owner.fake.device)}
    return t.op(name, [owner, *args], kwargs)


def _numbers(t: Tracer, owner: TensorValue, name: str, args: Args) -> Value:
    """``size()`` and ``stride()``, of all dimensions or of one."""
    if not args or is_none(args[0]):
        return SequenceValue(sizes_of(t, owner, name), torch.Size if name == "size" else tuple)
    dim = t.constant(args[0])
    if type(dim) is not int or not -owner.fake.dim() <= dim < owner.fake.dim():
        return t.op(name, [owner, *args])
    return size_of(t, owner, name, dim)


def memory_of(t: Tracer, fake: torch.Tensor) -> int:
    """The memory of a tensor: for an input that of the real one, since inputs that share memory may have fakes that do not."""
    storage: int = fake.untyped_storage()._cdata
    return t.memory[storage] if storage in t.memory else storage


def overlaps(written: torch.Tensor, others: Iterable[torch.Tensor], key: Any = None) -> bool:
    """Does an operator that writes ``written`` (with ``key``: a part of it) meet its memory twice? Eager refuses that when it runs, fakes never do."""
    memory = written.untyped_storage()._cdata
    sharing = [o for o in others if o is not written and o.untyped_storage()._cdata == memory]
    if key is not None and sharing:
        part = written[key]
        written = part if part.untyped_storage()._cdata == memory else written
    overlapping = torch._debug_has_internal_overlap(written) == 1  # pyright: ignore[reportPrivateImportUsage]
    return overlapping or any(_place(o) != _place(written) and _meets(o, written) for o in sharing)


def _place(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.storage_offset(), fake.shape, fake.stride()


def _meets(one: torch.Tensor, other: torch.Tensor) -> bool:
    (first, end), (first_other, end_other) = span(one), span(other)
    return bool(first < end_other and first_other < end)


def span(fake: torch.Tensor) -> tuple[Any, Any]:
    """First element in memory, and the one behind the last."""
    first = fake.storage_offset()
    return first, first + (1 + sum((n - 1) * s for n, s in zip(fake.shape, fake.stride(), strict=True)) if fake.numel() else 0)
