"""The kinds of guards, as rows: how each is installed in the C++ tree, what it means in Python, and how it is said.

In: a ``Guard`` and the value its source had when the frame was captured. Out: a ``Leaf``, with the facts it checks.
Always holds: ``install`` and ``holds`` of a row accept the same values; tests/test_guards.py looks for a value on which they differ.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``GuardBuilder``: one method per row) and ``torch/csrc/dynamo/guards.cpp``.
Relations between sizes are in ``shape_guards.py``.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import is_
from types import CodeType
from typing import Any

import torch
from torch.utils import _python_dispatch

from ..core.errors import InvalidIR, Unsupported
from ..core.fx import describe
from ..core.provenance import Stack, own_location
from .hook import Root
from .ir import Guard
from .sources import has

# compared by C++ with ==, which for these is exact once the types agree
SIMPLE = (int, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
# their type objects live as long as the process
IMMORTAL = ("builtins", "collections", "torch", "enum", "functools", "types")


Died = Callable[[Any], None]  # weakref callback: an object that a guard compares identities with is gone


@dataclass(frozen=True)
class Row:
    """``prepare`` facts from a guard and its value; ``install`` at a C++ node; ``holds`` for a value; ``expected`` and ``got`` in words.

    ``needs_type``: the C++ check is only safe behind a type check. Facts keep no mutable value of the frame alive."""

    prepare: Callable[[Guard, Any, Died], Any]
    install: Callable[[Root, Any, Any, str, Any], None]
    holds: Callable[[Any, Any], bool]
    expected: Callable[[Any], str]
    got: Callable[[Any], str]
    needs_type: bool = False


@dataclass(frozen=True, eq=False)
class Leaf:
    """One check at one node: ``facts`` is what it compares with, ready to be compared; ``stack`` is the line that assumed it."""

    kind: str
    facts: Any
    text: str
    stack: Stack
    why: str

    @property
    def row(self) -> Row:
        return LEAVES[self.kind]


class Identity:
    """An object by its id. Ids are used again, so the object's end must be known: a weak reference with a callback tells it.

    Objects that cannot be weakly referenced (dicts, lists) are kept; those that live as long as the process need neither.
    """

    def __init__(self, value: Any, died: Died) -> None:
        self.number, self.words, self.mortal = id(value), show(value), False
        self._keep = self._ref = None
        if isinstance(value, (type(None), bool, type(...))) or (isinstance(value, type) and value.__module__.partition(".")[0] in IMMORTAL):
            return
        try:
            self._ref = weakref.ref(value, died)
            self.mortal = True
        except TypeError:
            self._keep = value

    def names(self, value: Any) -> bool:
        return id(value) == self.number and (self._ref is None or self._ref() is value)


def show(value: Any) -> str:
    """A value in a message: short and without addresses."""
    if isinstance(value, torch.Tensor):
        return tensor_words(value)
    if isinstance(value, type):
        return value.__qualname__
    if value is None or isinstance(value, (int, float, complex, str, bytes, torch.dtype, torch.device)):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    if isinstance(value, CodeType):
        return f"the code of {value.co_qualname}"
    name = getattr(value, "__qualname__", getattr(value, "__name__", None))
    return f"{type(value).__name__} {name}" if isinstance(name, str) else f"an object of type {type(value).__qualname__}"


@dataclass(frozen=True, eq=False)
class TensorFacts:
    """What a tensor guard compares: everything but the data, the storage offset and ``grad``. None stands for a size or stride that is open."""

    type: type
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    size: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    keys: int
    words: str

    @staticmethod
    def of(value: torch.Tensor) -> TensorFacts:
        keys = dispatch_keys(value)
        return TensorFacts(type(value), value.dtype, value.device, value.requires_grad, tuple(value.size()), value.stride(), keys, tensor_words(value))


def dispatch_keys(value: torch.Tensor) -> int:
    """The dispatch key set with this thread's included and excluded keys applied, as the C++ check sees it.

    A dispatch mode adds the Python keys to every operation; where it allows compiled code, the check looks past them."""
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    if torch._C._len_torch_dispatch_stack() and not _python_dispatch.is_in_any_mode_without_ignore_compile_internals():
        for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
            included = included - torch._C.DispatchKeySet(key)
    return ((torch._C._dispatch_keys(value) | included) - excluded).raw_repr()


def _tensor_facts(guard: Guard, value: Any, died: Died) -> TensorFacts:
    if not isinstance(value, torch.Tensor):
        raise InvalidIR(f"{guard.text()}: the value is no tensor but {show(value)}")
    if value.layout != torch.strided or value.is_nested:
        raise Unsupported(f"{guard.text()}: only dense strided tensors are guarded", reason="tensor-layout")
    facts = TensorFacts.of(value)
    sizes, strides = guard.expected[4:6] if isinstance(guard.expected, tuple) else (facts.size, facts.stride)
    if None not in sizes and None not in strides:
        return facts
    open_sizes = ", ".join("?" if n is None else str(n) for n in sizes)
    return replace(facts, size=sizes, stride=strides, words=re.sub(r"\[.*?\](\{.*?\})?", lambda _: f"[{open_sizes}]", facts.words, count=1))


def tensor_differences(value: Any, facts: TensorFacts) -> list[tuple[str, str, str]]:
    """(property, expected, came) for each that differs."""
    if type(value) is not facts.type:
        return [("type", facts.type.__qualname__, show(value))]
    now = TensorFacts.of(value)
    rows: list[tuple[str, str, str]] = []
    for name in ("dtype", "device", "requires_grad", "size", "stride"):
        want, have = getattr(facts, name), getattr(now, name)
        if want != have and not (isinstance(want, tuple) and None in want and _fits(want, have)):
            rows.append((name, str(want).replace("None", "?"), str(have)))
    if now.keys != facts.keys:
        rows.append(("dispatch keys", "those at capture", "others (inference mode, functorch, conjugation or a subclass)"))
    return rows


def _fits(want: tuple[int | None, ...], have: tuple[int, ...]) -> bool:
    return len(want) == len(have) and all(w is None or w == h for w, h in zip(want, have, strict=True))


def tensor_words(value: torch.Tensor) -> str:
    return f"{type(value).__name__} {describe(value)} on {value.device}" + (", requires grad" if value.requires_grad else "")


def exact(value: Any, expected: Any) -> bool:
    """Equality that a specialization may rest on: same types all the way down, signed zeros and NaN told apart, order of dicts kept."""
    if value is expected:
        return True
    if type(value) is not type(expected):
        return False
    if isinstance(expected, float):
        return (math.isnan(value) and math.isnan(expected)) or (value == expected and math.copysign(1, value) == math.copysign(1, expected))
    if isinstance(expected, complex):
        return exact(value.real, expected.real) and exact(value.imag, expected.imag)
    if isinstance(expected, (list, tuple)):
        return len(value) == len(expected) and all(map(exact, value, expected))
    if isinstance(expected, dict):
        return len(value) == len(expected) and all(exact(a, b) for p, q in zip(value.items(), expected.items(), strict=True) for a, b in zip(p, q, strict=True))
    if isinstance(expected, (set, frozenset)):
        return exact(tuple(value), tuple(expected))
    if isinstance(expected, (range, slice)):
        return all(exact(getattr(value, part), getattr(expected, part)) for part in ("start", "stop", "step"))
    return isinstance(expected, SIMPLE) and type(expected).__eq__ in _PLAIN_EQUALITY and bool(value == expected)


_PLAIN_EQUALITY = {t.__eq__ for t in SIMPLE}


def _install_equals(root: Root, node: Any, expected: Any, text: str, value: Any) -> None:
    zero_or_nan = isinstance(expected, float) and (expected == 0.0 or math.isnan(expected))
    if type(expected) in SIMPLE or (type(expected) is float and not zero_or_nan):
        root.leaf(node, "equals_match", expected, text=text)
    else:
        root.leaf(node, "lambda", lambda value, expected=expected: exact(value, expected), text=text)


def _install_length(root: Root, node: Any, n: int, text: str, value: Any) -> None:
    if isinstance(value, dict):
        root.leaf(node, "dict_length_check", n, text=text)
    elif isinstance(value, list) and type(value).__len__ is not list.__len__:
        root.leaf(node, "lambda", lambda value, n=n: list.__len__(value) == n, text=text)
    elif hasattr(type(value), "__getitem__"):
        root.leaf(node, "length_check", n, text=text)
    else:  # a set is no sequence: the C++ leaf would raise
        root.leaf(node, "lambda", lambda value, n=n: len(value) == n, text=text)


def keys_of(value: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys in their order, past what its class overrides."""
    return tuple(OrderedDict.__iter__(value) if isinstance(value, OrderedDict) else dict.__iter__(value))


def length_of(value: Any) -> int:
    """The length of a container, past what its class overrides."""
    return list.__len__(value) if isinstance(value, list) else dict.__len__(value) if isinstance(value, dict) else len(value)


def _install_keys(root: Root, node: Any, keys: tuple[Any, ...], text: str, value: Any) -> None:
    root.leaf(node, "dict_length_check", len(keys), text=text)
    if type(value) not in (dict, OrderedDict, defaultdict):
        root.leaf(node, "lambda", lambda value, keys=keys: exact(keys_of(value), keys), text=text)
    elif len(keys) == 1 and type(keys[0]) is str:
        root.leaf(node, "dict_contains", True, keys[0], text=text)
    elif keys:  # order and exact types of keys matter too, which C++ does not look at
        root.leaf(node, "lambda", lambda value, keys=keys: all(map(is_, value, keys)) or exact(tuple(value), keys), text=text)


def _install_elements(root: Root, node: Any, elements: tuple[Any, ...], text: str, value: Any) -> None:
    _install_length(root, node, len(elements), text, value)
    root.leaf(node, "lambda", lambda value: all(map(is_, value, elements)) or exact(tuple(value), elements), text=text)


def _placed(value: Any, facts: tuple[int, int]) -> bool:
    """(storage offset, step): the offset is this one, or leaves it when divided by ``step``."""
    offset, step = facts
    begins = value.storage_offset()
    return (begins % step if step else begins) == offset


def _names(guard: Guard) -> tuple[str, ...]:
    return (guard.expected,) if isinstance(guard.expected, str) else tuple(guard.expected)


def _install_no_attr(root: Root, node: Any, names: tuple[str, ...], text: str, value: Any) -> None:
    for name in names:
        root.leaf(node, "no_hasattr", name, text=text)


def _leaf(kind: str) -> Callable[[Root, Any, Any, str, Any], None]:
    return lambda root, node, facts, text, value: root.leaf(node, kind, text=text)


def _nothing(guard: Guard, value: Any, died: Died) -> None:
    """No facts: the kind says it all."""


LEAVES: dict[str, Row] = {
    "tensor": Row(
        _tensor_facts,
        lambda root, node, f, text, value: root.tensor(node, value, list(f.size), list(f.stride), text),
        lambda value, f: not tensor_differences(value, f),
        lambda f: f.words,
        show,
    ),
    "place": Row(
        lambda guard, value, died: guard.expected,
        lambda root, node, f, text, value: root.leaf(node, "lambda", lambda value: _placed(value, f), text=text),
        lambda value, f: isinstance(value, torch.Tensor) and _placed(value, f),
        lambda f: f"a storage offset of {f[0]}" + (f" modulo {f[1]}" if f[1] else ""),
        lambda value: str(value.storage_offset()) if isinstance(value, torch.Tensor) else show(value),
        needs_type=True,
    ),
    "type": Row(
        lambda guard, value, died: Identity(type(value), died),
        lambda root, node, t, text, value: root.leaf(node, "type_match", t.number, text=text),
        lambda value, t: t.names(type(value)),
        lambda t: f"type {t.words}",
        lambda value: f"type {show(type(value))}",
    ),
    "id": Row(
        lambda guard, value, died: Identity(value, died),
        lambda root, node, obj, text, value: root.leaf(node, "id_match", obj.number, text=text),
        lambda value, obj: obj.names(value),
        lambda obj: f"the same object as at capture, {obj.words}",
        lambda value: f"another: {show(value)}",
    ),
    "equals": Row(lambda guard, value, died: guard.expected, _install_equals, exact, show, lambda value: f"{show(value)} ({type(value).__qualname__})"),
    "length": Row(
        lambda guard, value, died: guard.expected,
        _install_length,
        lambda value, n: length_of(value) == n,
        lambda n: f"length {n}",
        lambda value: f"{type(value).__qualname__} of length {length_of(value)}",
        needs_type=True,
    ),
    "empty": Row(
        _nothing,
        lambda root, node, _, text, value: root.leaf(node, "dict_length_check", 0, text=text),
        lambda value, _: isinstance(value, dict) and dict.__len__(value) == 0,
        lambda _: "an empty dict",
        lambda value: f"{type(value).__qualname__} with {len(value)} entries" if isinstance(value, dict) else show(value),
    ),
    "dict_keys": Row(
        lambda guard, value, died: tuple(guard.expected),
        _install_keys,
        lambda value, keys: isinstance(value, dict) and exact(keys_of(value), keys),
        lambda keys: f"the keys {', '.join(map(show, keys)) or '(none)'}",
        lambda value: f"the keys {', '.join(map(show, keys_of(value))) or '(none)'}",
        needs_type=True,
    ),
    "elements": Row(  # in the order in which the set gives them, which equal sets need not share
        lambda guard, value, died: tuple(guard.expected),
        _install_elements,
        lambda value, elements: isinstance(value, (set, frozenset)) and exact(tuple(value), elements),
        lambda elements: f"the elements {', '.join(map(show, elements)) or '(none)'}",
        lambda value: f"the elements {', '.join(map(show, value)) or '(none)'}" if isinstance(value, (set, frozenset)) else show(value),
        needs_type=True,
    ),
    "no_attr": Row(
        lambda guard, value, died: _names(guard),
        _install_no_attr,
        lambda value, names: not any(has(value, n) for n in names),
        lambda names: f"no attribute {' or '.join(names)}",
        lambda value: f"{show(value)} with it",
    ),
    "no_key": Row(
        lambda guard, value, died: guard.expected,
        lambda root, node, key, text, value: root.leaf(node, "dict_contains", False, key, text=text),
        lambda value, key: isinstance(value, dict) and not dict.__contains__(value, key),
        lambda key: f"a dict without the key {show(key)}",
        lambda value: "a dict with it" if isinstance(value, dict) else show(value),
        needs_type=True,
    ),
    "has_key": Row(
        lambda guard, value, died: guard.expected,
        lambda root, node, key, text, value: root.leaf(node, "dict_contains", True, key, text=text),
        lambda value, key: isinstance(value, dict) and dict.__contains__(value, key),
        lambda key: f"a dict with the key {show(key)}",
        lambda value: "a dict without it" if isinstance(value, dict) else show(value),
        needs_type=True,
    ),
    "none": Row(_nothing, _leaf("none_match"), lambda value, _: value is None, lambda _: "None", show),
    "true": Row(_nothing, _leaf("true_match"), lambda value, _: value is True, lambda _: "True", show),
    "false": Row(_nothing, _leaf("false_match"), lambda value, _: value is False, lambda _: "False", show),
}

# These look at more than one value, or at none: ``guards.GuardTree`` installs them.
RELATIONS: dict[str, str] = {
    "aliased": "the same object",
    "not_aliased": "different objects",
    "absent": "classes that have not gained what was looked for in vain",
    "shape": "sizes for which the program goes the same way",
    "shared": "memory that is shared as at capture, by inputs of which one is written",
    "disjoint": "memory that no other input reaches, for each input that is written",
    "global_state": "torch's state as at capture",
}
KINDS = (*LEAVES, *RELATIONS)
TYPED = ("tensor", "equals", "none", "true", "false")  # these compare the exact type themselves


def make_leaf(guard: Guard, value: Any, died: Died) -> Leaf:
    """A leaf for ``guard``, whose source had ``value`` at capture. Raises InvalidIR for a kind without a row, or when it does not hold."""
    row = LEAVES.get(guard.kind)
    if row is None:
        raise InvalidIR(f"there is no guard of kind {guard.kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    facts = row.prepare(guard, value, died)
    if not row.holds(value, facts):
        where = own_location(guard.stack)
        raise InvalidIR(
            f"{guard.text()} does not hold for the frame it was made from", where=where, why=f"expected {row.expected(facts)}, got {row.got(value)}"
        )
    return Leaf(guard.kind, facts, f"{guard.kind}: {row.expected(facts)}", guard.stack, guard.why)
