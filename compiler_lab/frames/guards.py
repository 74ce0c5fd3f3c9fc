"""Guards as a tree with two readings: the C++ check of the hot path, and the explanation in words.

In: the guards of a captured frame and the frame. Out: ``GuardTree``: ``check(locals)`` walks C++ guard managers, ``explain(locals)``
walks the same tree in Python and says which leaf fails first, what it expected, what came, and which line of the user assumed it. For an
entry of an earlier process the check is a Python function (``python_guards.py``), which needs nothing of torch's own compiler.
Always holds: both readings accept the same arguments; the tree accepts the frame it was made from; equal guards are installed once
and common prefixes of sources are read once; the C++ side holds no function, code object, module or namespace of the user (it is
invisible to Python's garbage collector, so a cycle through it would never be freed).
Where PyTorch does this: ``torch/_dynamo/guards.py`` (``CheckFunctionManager``).

How roots are read: arguments and free variables come from the dict (or the frame) that is checked. Globals of the compiled function
come from the same dict, under ``GLOBALS``; in a tree for the frame hook, whose frames have no such entry, through a weak
reference to the module. Constants are weakly referenced where Python allows it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, overload

import torch
from torch.autograd import forward_ad

from ..core.artifact import Artifact, Decision, Item
from ..core.errors import InvalidIR, Unsupported
from ..core.provenance import Location, Stack, own_location
from .failure import Failure
from .frame import FrameInput
from .guard_nodes import Node, Relation, Sharing, extent, first_failure, gained, is_open, nodes_of, overlap, related, relation_failure
from .guard_table import RELATIONS, TYPED, Leaf, exact, make_leaf, show
from .hook import GuardRoot, Root, frame_names
from .ir import Guard, Source
from .shape_guards import checker, holds
from .sources import Step, module_table, read, root_name, step_of

GLOBALS = "<globals>"  # no Python name can be this
STAGE = "frames.guards"
REASONS = {
    "assumed": "the captured code is right only while this holds",
    "same": "the same guard is already in the tree",
    "implied": "another guard on the same value compares its exact type",
}
# the C++ accessors for each step of a path
ACCESSORS: dict[str, tuple[str, ...]] = {
    "attr": ("getattr",), "instance_attr": ("get_generic_dict", "dict_getitem"), "namespace": ("get_generic_dict",),
    "list_item": ("list_getitem",), "tuple_item": ("tuple_getitem",),
    "item": ("getitem",), "dict_item": ("dict_getitem",), "type_attr": ("type", "getattr"),
}  # fmt: skip


class GuardTree(Artifact):
    """The guards of one captured frame. Raises ``InvalidIR`` when one does not hold for the frame it was made from."""

    stage = STAGE

    def __init__(self, guards: tuple[Guard, ...], frame: FrameInput, *, hooked: bool = False, root: Root | None = None) -> None:
        """``hooked``: the tree will be walked by the frame hook, which knows a frame's locals and nothing else. ``root``: what the fast check is
        built in, C++ by default."""
        build = _Build(frame, hooked, root or GuardRoot())
        for guard in guards:
            build.add(guard)
        build.install()
        self.root = build.root  # children do not keep their root alive: the tree does
        self.top, self.relations, self.decisions = build.top, tuple(build.relations), tuple(build.decisions)
        self._globals = None if hooked else frame.globals
        self._anchors = build.anchors

    @property
    def dead(self) -> bool:
        """An object that a guard compares by identity is gone: no call can pass any more."""
        return not self._anchors.get("alive", True)

    @overload
    def check(self) -> None: ...
    @overload
    def check(self, locals: dict[str, Any]) -> bool: ...
    def check(self, locals: dict[str, Any] | None = None) -> bool | None:
        """With ``locals`` (arguments and free variables by name): whether the captured code may run for them; the C++ reading.

        Without: the well-formedness every artifact has (``InvalidIR``)."""
        if locals is None:
            return self._check_form()
        return self.root.check(self._with_globals(locals))

    def explain(self, locals: dict[str, Any]) -> Failure | None:
        """The first failing leaf, in words; None when all hold. The Python reading; same verdict as ``check``."""
        locals = self._with_globals(locals)
        first = [r for r in self.relations if r.kind == "global_state"]
        state = next((f for r in first if (f := relation_failure(r, locals)) is not None), None)
        failure = state or first_failure(self.top, locals)
        return failure or next((f for r in self.relations if r not in first and (f := relation_failure(r, locals)) is not None), None)

    def costs(self, locals: dict[str, Any], *, repeats: int = 200, rounds: int = 7) -> tuple[Item, ...]:
        """``items()`` with what each costs in the C++ check, in nanoseconds, as a fact; see ``guard_costs.costs``. ``locals`` must pass."""
        from .guard_costs import costs

        return costs(self, self._with_globals(locals), repeats, rounds)

    def _with_globals(self, locals: dict[str, Any]) -> dict[str, Any]:
        return locals if self._globals is None else {GLOBALS: self._globals, **locals}

    def run(self, *args: Any) -> Any:
        """``run(locals)`` is ``check(locals)``."""
        return self.check(*args)

    def _check_form(self) -> None:
        for item in self.items():
            if item.kind != "source" and not item.stack:
                raise InvalidIR(f"{item.id} has no stack", why="every guard names the line that assumed it")

    def text(self) -> str:
        lines = [f"{r.kind}: {r.text}" for r in self.relations if not r.nodes]
        lines += _tree_text(self.top, -1)
        return "\n".join(lines + [f"{', '.join(dict.fromkeys(n.text for n in r.nodes))}: {r.kind}: {r.text}" for r in self.relations if r.nodes])

    def items(self) -> tuple[Item, ...]:
        """One item per node ("source") and per check; a check's parents are the nodes it looks at."""
        items: list[Item] = []
        for node in nodes_of(self.top):
            stack = next((leaf.stack for n in nodes_of(node) for leaf in n.leaves), ())
            if node.parent is not None:
                items.append(Item(_id(node), "source", node.text, (_id(node.parent),) if node.parent.parent else (), stack))
            items += [Item(f"{_id(node)}:{n}", leaf.kind, leaf.text, (_id(node),), leaf.stack, {"why": leaf.why}) for n, leaf in enumerate(node.leaves)]
        items += [Item(f"{STAGE}/{r.kind}:{n}", r.kind, r.text, tuple(map(_id, r.nodes)), r.stack) for n, r in enumerate(self.relations)]
        return tuple(items)


def _id(node: Node) -> str:
    return f"{STAGE}/{node.text}"


def _tree_text(node: Node, depth: int) -> list[str]:
    pad = "  " * max(depth, 0)
    head = [pad + node.label] if node.parent is not None else []
    return head + [f"{pad}  {leaf.text}" for leaf in node.leaves] + [line for child in node.children.values() for line in _tree_text(child, depth + 1)]


class _Build:
    """Collects guards as nodes and leaves, then installs them: the leaves of a node in an order that is safe in C++ (types first)."""

    def __init__(self, frame: FrameInput, hooked: bool, root: Root) -> None:
        self.frame, self.hooked, self.root = frame, hooked, root
        self.names = frame_names(frame.code)
        self.top = Node("", "", lambda locals: locals, self.root.manager, None)
        self.relations: list[Relation] = []
        self.decisions: list[Decision] = []
        self.stack: Stack = ()
        self.values: dict[Node, Any] = {self.top: None}  # only while building
        self.places: dict[Source, Node] = {}
        self.anchors: dict[str, Any] = {}
        self.anchor_manager: Any = None
        self.absent: dict[int, tuple[weakref.ref[Any], list[str]]] = {}  # class -> what it must not gain
        anchors = self.anchors  # the weak references call this, and must not keep the frame that is in ``self``
        self._died = lambda _: anchors.update(alive=False)

    def add(self, guard: Guard) -> None:
        self.stack = guard.stack
        if guard.kind in RELATIONS:
            self._relation(guard)
            return
        if guard.source is None:
            raise InvalidIR(f"a {guard.kind!r} guard needs a source")
        node = self._node(guard.source)
        leaf = make_leaf(guard, self.values[node], self._died)
        always_dict = guard.source.kind == "attr" and guard.source.key == "__dict__"
        if leaf.row.needs_type and not always_dict and not any(x.kind in ("type", *TYPED) for x in node.leaves):
            self._put(node, make_leaf(Guard("type", guard.source, type(self.values[node]), guard.stack, guard.why), self.values[node], self._died))
        self._put(node, leaf)

    def _put(self, node: Node, leaf: Leaf) -> None:
        if any(x.text == leaf.text and (x.kind != "equals" or exact(x.facts, leaf.facts)) for x in node.leaves):
            self._decide(node, leaf, "refused", "same")
            return
        node.leaves.append(leaf)

    def _decide(self, node: Node, leaf: Leaf, outcome: str, reason: str) -> None:
        self.decisions.append(Decision("guard", (_id(node),), outcome, reason, {"check": leaf.text}))

    def install(self) -> None:
        for node in nodes_of(self.top):
            if any(leaf.kind in TYPED for leaf in node.leaves):
                for leaf in [x for x in node.leaves if x.kind == "type"]:
                    node.leaves.remove(leaf)
                    self._decide(node, leaf, "refused", "implied")
            node.leaves.sort(key=lambda leaf: leaf.kind not in ("type", *TYPED))
            for leaf in node.leaves:
                leaf.row.install(self.root, node.manager, leaf.facts, f"{node.text}: {leaf.text}", self.values[node])
                self._decide(node, leaf, "accepted", "assumed")
        if any(getattr(leaf.facts, "mortal", False) for node in nodes_of(self.top) for leaf in node.leaves):
            self._alive()
        if self.absent:
            classes = tuple((ref, tuple(names)) for ref, names in self.absent.values())
            self.root.leaf(self.root.manager, "epilogue_lambda", lambda _: gained(classes) is None, text=RELATIONS["absent"])
        if sizes := [(r.facts, r.nodes) for r in self.relations if r.kind == "shape"]:
            self.root.leaf(self.root.manager, "epilogue_lambda", checker(sizes), text=RELATIONS["shape"])
        for relation in self.relations:
            if relation.kind == "global_state":
                self._inference(relation.facts)
        self.values.clear()

    def _alive(self) -> None:
        """One flag for all identities: an id may be used again once its object is gone."""
        anchors = self.anchors
        anchors["alive"] = True
        manager = self._anchor("alive", "the objects compared by identity")
        self.root.leaf(manager, "true_match", text="an object that a guard compares with is gone")
        self.relations.append(Relation("alive", (), anchors, "every object compared by identity still exists", self._first_stack()))

    def _disjoint(self, guard: Guard) -> None:
        """``guard.expected``: (sources that are written, the others, (source, bytes) where what begins there is longer than the tensor). Where sizes
        and strides are guarded, only addresses are read at a call."""
        written, others, lengths = guard.expected
        longer = {self._node(source): length for source, length in lengths}
        places = [(s, s in written) for s in (*written, *others)]
        nodes = [self._node(source) for source, _ in places]
        spans = tuple(
            (node, longer.get(node) or (None if is_open(node) else extent(self.values[node])), written)
            for node, (_, written) in zip(nodes, places, strict=True)
        )
        spans = tuple(span for span in spans if span[1] != 0)
        relation = Relation("disjoint", tuple(node for node, _, _ in spans), spans, RELATIONS["disjoint"], guard.stack or self._definition())
        if overlap(spans, lambda node: self.values[node]) is not None:
            raise InvalidIR("an input that is written shares memory with another", where=own_location(guard.stack))
        # the root's check hands the lambda what it was given, so nodes are read as the explanation reads them
        self.root.leaf(self.root.manager, "epilogue_lambda", lambda locals: overlap(spans, lambda node: node.value(locals)) is None, text=RELATIONS["disjoint"])
        self.relations.append(relation)

    def _shared(self, guard: Guard) -> None:
        """``guard.expected``: (sources, the byte at which each begins, whether they are kin)."""
        sources, starts, kin = guard.expected
        nodes, facts = tuple(map(self._node, sources)), Sharing(starts, kin)
        relation = Relation("shared", nodes, facts, facts.text(), guard.stack or self._definition())
        if not facts.holds([self.values[n] for n in nodes]):
            raise InvalidIR("inputs do not share memory as they should in the frame that the guard was made from", where=own_location(guard.stack))
        self.root.leaf(self.root.manager, "epilogue_lambda", lambda locals: facts.holds([n.value(locals) for n in nodes]), text=RELATIONS["shared"])
        self.relations.append(relation)

    def _sizes(self, guard: Guard) -> None:
        sources = (n.source for n in guard.expected.numbers)
        relation = Relation("shape", tuple(map(self._node, sources)), guard.expected, guard.expected.text(), guard.stack or self._definition())
        if not holds(relation.facts, [self.values[n] for n in relation.nodes]):
            raise InvalidIR(f"{relation.text}: this does not hold for the frame it was made from", where=own_location(guard.stack))
        self.relations.append(relation)

    def _definition(self) -> Stack:
        code = self.frame.code
        return (Location(code.co_filename, code.co_firstlineno, code.co_name),)

    def _first_stack(self) -> Stack:
        return next((leaf.stack for node in nodes_of(self.top) for leaf in node.leaves if getattr(leaf.facts, "mortal", False)), ())

    def _anchor(self, slot: str, text: str) -> Any:
        if self.anchor_manager is None:
            self.anchor_manager = self.root.step(self.root.manager, "globals_dict", self.anchors, "anchors")
        return self.root.step(self.anchor_manager, "dict_getitem", slot, text)

    def _relation(self, guard: Guard) -> None:
        if guard.kind == "global_state":
            if not any(r.kind == "global_state" for r in self.relations):
                self.relations.append(Relation("global_state", (), self._state(), RELATIONS["global_state"], guard.stack or self._definition()))
            return
        if (special := {"shared": self._shared, "disjoint": self._disjoint, "shape": self._sizes, "absent": self._absent}.get(guard.kind)) is not None:
            special(guard)
            return
        expected = (guard.expected,) if isinstance(guard.expected, Source) else tuple(guard.expected)
        sources = [s for s in (guard.source, *expected) if s is not None]
        nodes = tuple(dict.fromkeys(map(self._node, sources)))
        text = f"{' and '.join(n.text for n in nodes)}: {RELATIONS[guard.kind]}"
        relation = Relation(guard.kind, nodes, None, RELATIONS[guard.kind], guard.stack)
        if not related(relation, [self.values[n] for n in nodes]):
            raise InvalidIR(f"{text}: this does not hold for the frame it was made from", where=own_location(guard.stack))
        if any(r.kind == guard.kind and set(r.nodes) >= set(nodes) for r in self.relations):
            return
        if guard.kind == "not_aliased":
            self.root.different_objects([n.manager for n in nodes], [n.text for n in nodes], text)
        else:
            for other in nodes[1:]:
                self.root.same_object(nodes[0].manager, other.manager, text)
        self.relations.append(relation)

    def _absent(self, guard: Guard) -> None:
        """``guard.source`` is a class of the user's, ``guard.expected`` a name it does not have: one Python leaf asks for all of them."""
        assert guard.source is not None
        cls, name = guard.source.key, guard.expected
        ref, names = self.absent.setdefault(id(cls), (weakref.ref(cls, self._died), []))
        if name in names:
            return
        facts = ((ref, (name,)),)
        if gained(facts) is not None:
            raise InvalidIR(f"{show(cls)} has {name}: this does not hold for the frame it was made from", where=own_location(guard.stack))
        names.append(name)
        self.relations.append(Relation("absent", (), facts, f"class {show(cls)} has no {name} of its own", guard.stack or self._definition()))

    def _state(self) -> dict[str, Any]:
        from torch.overrides import _get_current_function_mode_stack
        from torch.utils import _device

        text = RELATIONS["global_state"]
        modes = list(_get_current_function_mode_stack())
        self.root.leaf(self.root.manager, "torch_function_mode_stack", modes, text=text)
        self.root.leaf(self.root.manager, "default_device", text=text)
        module = self.root.step(self.root.manager, "globals_dict", vars(forward_ad), "torch.autograd.forward_ad")
        level = forward_ad._current_level  # the C++ guard made for it costs five times as much
        self.root.leaf(self.root.step(module, "dict_getitem", "_current_level", "level"), "equals_match", level, text=text)
        return {"state": self.root.global_state(text), "modes": [type(m) for m in modes], "device": _device.CURRENT_DEVICE, "level": level}

    def _inference(self, facts: dict[str, Any]) -> None:
        """Inference mode changes the dispatch keys that tensor guards compare; without one it is asked for."""
        if any(leaf.kind == "tensor" for node in nodes_of(self.top) for leaf in node.leaves):
            return
        facts["inference"] = inference = torch.is_inference_mode_enabled()
        self.anchors["inference"] = torch.is_inference_mode_enabled
        flag = self.root.step(self._anchor("inference", "inference mode"), "call_function_no_args", None, "inference mode")
        self.root.leaf(flag, "true_match" if inference else "false_match", text=RELATIONS["global_state"])

    def _node(self, source: Source) -> Node:
        if (node := self.places.get(source)) is None:
            node = self.places[source] = self._root_node(source) if source.base is None else self._below(self._node(source.base), source)
        return node

    def _below(self, base: Node, source: Source) -> Node:
        """The node that ``source`` reads from ``base``; a module's parameters, buffers and submodules through its dicts (``canonical``)."""
        value = self.values[base]
        if source.kind == "attr" and (table := module_table(value, source.key)) is not None:
            return self._below(self._below(base, Source("attr", table, source.base)), Source("dict_item", source.key))
        step = step_of(source, value)
        if (node := base.children.get(step.identity)) is None:
            label = f".{source.key}" if source.kind in ("attr", "type_attr") else f"[{source.key!r}]" if _printable(source.key) else f"[{show(source.key)}]"
            label = f".__class__{label}" if source.kind == "type_attr" else label
            text = base.text + label
            manager = self._access(base, step, text)
            access = tuple((accessor, step.key) for accessor in ACCESSORS[step.kind])
            node = base.children[step.identity] = Node(text, label, lambda v, step=step: read(step, v), manager, base, access)
            try:
                self.values[node] = read(step, value)
            except Exception as error:
                raise InvalidIR(f"{text} cannot be read in the frame it was made from", why=repr(error)) from error
        return node

    def _access(self, base: Node, step: Step, text: str) -> Any:
        manager = base.manager
        for accessor in ACCESSORS[step.kind]:
            if accessor == "get_generic_dict":  # C++ would open it anew for each entry that is read
                base.namespace = manager = base.namespace or self.root.step(manager, accessor, None, text)
            else:
                manager = self.root.step(manager, accessor, step.key, text)
        return manager

    def _root_node(self, source: Source) -> Node:
        kind = source.kind
        if kind == "constant":
            return self._constant(source.key)
        name = root_name(source)
        if kind in ("local", "closure"):
            if name not in self.frame.locals:
                raise InvalidIR(f"{source.text()} is no argument or free variable of the frame")
            at = self.names.index(name) if name in self.names else 0
            return self._child(self.top, ("local", name), source.text(), lambda v: v[name], lambda: ("framelocals", (name, at)), self.frame.locals[name])
        if kind != "global":
            raise InvalidIR(f"source {source.text()} has no base")
        owner = self._globals()
        if name in self.frame.globals:
            return self._child(owner, ("dict_item", name), source.text(), lambda v: v[name], lambda: ("dict_getitem", name), self.frame.globals[name])
        self._put(owner, make_leaf(Guard("no_key", source, name, self.stack, "the built-in of this name is meant"), self.frame.globals, self._died))
        owner = self._anchored("builtins", "the built-ins", self.frame.builtins, weak=False)
        return self._child(owner, ("dict_item", name), source.text(), lambda v: v[name], lambda: ("dict_getitem", name), self.frame.builtins[name])

    def _child(self, parent: Node, key: Any, text: str, read: Callable[[Any], Any], access: Callable[[], tuple[str, Any]], value: Any) -> Node:
        if (node := parent.children.get(key)) is None:
            node = parent.children[key] = Node(text, text, read, self.root.step(parent.manager, *access(), text), parent, (access(),))
            self.values[node] = value
        return node

    def _globals(self) -> Node:
        if not self.hooked:
            return self._child(self.top, "globals", "globals()", lambda v: v[GLOBALS], lambda: ("framelocals", (GLOBALS, 0)), self.frame.globals)
        module = module_of(self.frame.globals)
        if module is None:
            raise Unsupported("the frame's globals belong to no module", reason="no-frame", why="they could only be guarded by a reference that is never freed")
        node = self._anchored("module", "the module", module, weak=True)
        return self._child(node, "globals", "globals()", lambda v: v.__dict__, lambda: ("get_generic_dict", None), self.frame.globals)

    def _constant(self, value: Any) -> Node:
        return self._anchored(f"constant {id(value)}", show(value), value, weak=True)

    def _anchored(self, slot: str, text: str, value: Any, *, weak: bool) -> Node:
        if (node := self.top.children.get(slot)) is not None:
            return node
        reference: Callable[[], Any] = lambda: value
        held = value
        if weak:
            try:
                held = reference = weakref.ref(value)
            except TypeError:
                weak = False
        self.anchors[slot] = held
        manager = self._anchor(slot, text)
        if weak:
            manager = self.root.step(manager, "weakref_call", None, text)
        access = (("globals_dict", self.anchors), ("dict_getitem", slot), *([("weakref_call", None)] if weak else []))
        node = self.top.children[slot] = Node(text, text, lambda _: reference(), manager, self.top, access)
        self.values[node] = value
        return node


def _printable(key: Any) -> bool:
    return isinstance(key, (str, int, float, bool, tuple, type(None)))


def module_of(globals: dict[str, Any]) -> ModuleType | None:
    """The module whose namespace ``globals`` is, if it is still one."""
    module = sys.modules.get(globals.get("__name__", ""))
    return module if isinstance(module, ModuleType) and module.__dict__ is globals else None
