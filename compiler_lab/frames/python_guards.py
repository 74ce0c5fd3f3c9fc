"""The fast check of a guard tree as one generated Python function, for entries that an earlier process left.

In: the calls that build a C++ tree (``hook.GuardRoot``): steps and leaves. Out: ``PythonRoot``, whose ``check(locals)`` gives the verdict of
that tree. What is checked without a path (torch's state) is a C++ root that has leaves only, and tensors are compared by torch's
``TensorGuards``: neither imports anything, where the first C++ accessor imports ``torch._dynamo`` (seconds).
Always holds: a row for each accessor and each leaf that guards install, with the meaning of the C++ one: containers are read past what
their class overrides, an exception on the way is a failed check, lambdas at the root come last. A tree with two equal tensors fails.
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``build_guard_function``), before guards were C++.
"""

from __future__ import annotations

import itertools
import keyword
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .hook import GuardRoot, surface
from .sources import has

IMMORTAL = ("builtins", "collections", "torch")
"""Modules whose classes live as long as the process."""

MISSING: Any = object()
SPACE: dict[str, Any] = {
    "missing": MISSING, "dict_get": dict.get, "dict_has": dict.__contains__, "dict_len": dict.__len__, "list_get": list.__getitem__,
    "tuple_get": tuple.__getitem__, "Dict": dict, "OrderedDict": OrderedDict,
}  # fmt: skip
EXACT: dict[type[Any], str] = {dict: "Dict", OrderedDict: "OrderedDict"}
"""Of these a value's own syntax is the C function, once its type has been compared; it costs half."""

# accessor -> (the expression that reads ``{key}`` from ``{value}``, the function that does)
STEPS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "framelocals": ("{value}[{key}]", operator.getitem),
    "globals_dict": ("{key}", lambda value, key: key),
    "dict_getitem": ("dict_get({value}, {key}, missing)", dict.get),
    "getattr": ("getattr({value}, {key})", getattr),
    "list_getitem": ("list_get({value}, {key})", list.__getitem__),
    "tuple_getitem": ("tuple_get({value}, {key})", tuple.__getitem__),
    "getitem": ("{value}[{key}]", operator.getitem),
    "get_generic_dict": ("{value}.__dict__", lambda value, key: value.__dict__),
    "type": ("type({value})", lambda value, key: type(value)),
    "weakref_call": ("{value}()", lambda value, key: value()),
    "call_function_no_args": ("{value}()", lambda value, key: value()),
}

# leaf -> the expression that is true where it fails; ``{0}``, ``{1}`` are its arguments
LEAVES: dict[str, str] = {
    "type_match": "id(type({value})) != {0}", "id_match": "id({value}) != {0}", "length_check": "len({value}) != {0}",
    "dict_length_check": "dict_len({value}) != {0}", "dict_contains": "dict_has({value}, {1}) is not {0}", "no_hasattr": "has({value}, {0})",
    "equals_match": "type({value}) is not {1} or {value} != {0}", "none_match": "{value} is not None", "true_match": "{value} is not True",
    "false_match": "{value} is not False", "lambda": "not {0}({value})",
}  # fmt: skip
ON_EXACT: dict[str, str] = {"dict_length_check": "len({value}) != {0}", "dict_contains": "({1} in {value}) is not {0}"}
TELLING = ("type_match", "id_match", "equals_match", "none_match", "true_match", "false_match")  # these also fail where a key is missing
STATE = ("global_state", "torch_function_mode_stack", "default_device")


@dataclass(eq=False)
class Place:
    """A value on the way: the accessor that reads it from its parent, the leaves that look at it, what is read from it."""

    kind: str
    key: Any
    leaves: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list[tuple[str, tuple[Any, ...]]])
    children: list[Place] = field(default_factory=list["Place"])
    name: str = ""


class PythonRoot:
    """A guard tree in the place of ``hook.GuardRoot``, with its methods. ``example``: a call's locals that pass; their types choose the syntax."""

    def __init__(self, example: dict[str, Any]) -> None:
        self._state, self._numbers = GuardRoot(), itertools.count()
        self._example = example
        self._check: Callable[[dict[str, Any]], bool] | None = None
        self.manager = Place("", None, name="L")
        self._space: dict[str, Any] = {**SPACE, "state": self._state.manager.check, "has": has}
        self._relations: list[tuple[str, list[Place]]] = []
        self._last: list[str] = []
        self._tensors: list[tuple[Place, Any, list[int], list[int]]] = []

    def step(self, parent: Place, kind: str, key: Any, text: str) -> Place:
        """As ``GuardRoot.step``."""
        parent.children.append(place := Place(kind, key[0] if kind == "framelocals" else key))
        return place

    def leaf(self, node: Place, kind: str, *args: Any, text: str) -> None:
        if kind in STATE:
            self._state.leaf(self._state.manager, kind, *args, text=text)
        elif kind == "epilogue_lambda":
            self._last.append(f"not {self._constant(args[0])}(L)")
        else:
            node.leaves.append((kind, (*args, type(args[0])) if kind == "equals_match" else args))

    def tensor(self, node: Place, value: Any, size: list[int], stride: list[int], text: str) -> None:
        self._tensors.append((node, value, size, stride))

    def same_object(self, one: Place, other: Place, text: str) -> None:
        self._relations.append(("{0} is not {1}", [one, other]))

    def different_objects(self, nodes: list[Place], names: list[str], text: str) -> None:
        different = ", ".join(f"id({{{n}}})" for n in range(len(nodes)))
        self._relations.append((f"len({{{{{different}}}}}) != {len(nodes)}", nodes))

    def global_state(self, text: str) -> Any:
        return self._state.global_state(text)

    @property
    def check(self) -> Callable[[dict[str, Any]], bool]:
        """The function; asked for when the tree is complete."""
        if self._check is None:
            self._check = self._made()
        return self._check

    def _made(self) -> Callable[[dict[str, Any]], bool]:
        lines = ["if not state(None): return False", *self._place(self.manager, self._example), *self._ends(), "return True"]
        text = "\n".join(["def check(L):", "    try:", *(f"        {line}" for line in lines), "    except Exception:", "        return False"])
        exec(compile(text, "<guards>", "exec"), self._space)
        self._example.clear()
        self._tensors.clear()
        return self._space.pop("check")

    def _constant(self, value: Any) -> str:
        if value is None or (type(value) in (str, int, bool) and len(repr(value)) < 100):
            return repr(value)
        name = f"c{len(self._space)}"
        self._space[name] = value
        return name

    def _place(self, place: Place, value: Any) -> Iterator[str]:
        """Its leaves, then its children, as in the tree."""
        exact = EXACT.get(type(value))
        if exact and place.name != "L":
            yield f"if type({place.name}) is not {exact}: return False"
        for kind, args in place.leaves:
            if kind == "type_match" and exact:
                continue
            if kind == "type_match" and type(value).__module__.partition(".")[0] in IMMORTAL:
                yield f"if type({place.name}) is not {self._constant(type(value))}: return False"
                continue
            if kind == "dict_length_check" and exact and args == (0,):
                yield f"if {place.name}: return False"
                continue
            text = ON_EXACT.get(kind, LEAVES[kind]) if exact else LEAVES[kind]
            yield f"if {text.format(*map(self._constant, args), value=place.name)}: return False"
        for child in place.children:
            yield from self._child(child, place, value, exact)

    def _child(self, child: Place, parent: Place, value: Any, exact: str | None) -> Iterator[str]:
        text, read = STEPS[child.kind]
        child.name = f"v{next(self._numbers)}"
        known = exact is not None and child.kind == "dict_getitem"
        if child.kind == "getattr" and child.key.isidentifier() and child.key.isascii() and not keyword.iskeyword(child.key):
            text = f"{{value}}.{child.key}"
        yield f"{child.name} = {('{value}[{key}]' if known else text).format(value=parent.name, key=self._constant(child.key))}"
        if child.kind == "dict_getitem" and not known and not (child.leaves and child.leaves[0][0] in TELLING):
            yield f"if {child.name} is missing: return False"
        yield from self._place(child, read(value, child.key))

    def _ends(self) -> Iterator[str]:
        if self._tensors:
            sizes, strides = ([t[i] for t in self._tensors] for i in (2, 3))
            self._space["tensors"] = surface().guards.TensorGuards(*[t[1] for t in self._tensors], dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
            yield f"if not tensors({', '.join(node.name for node, *_ in self._tensors)}): return False"
        for text, places in self._relations:
            yield f"if {text.format(*(p.name for p in places))}: return False"
        yield from (f"if {text}: return False" for text in self._last)
