"""An object's ``__dict__`` as a dict value: the same thing as the object's attributes, seen from the other side.

In: an ``ObjectValue``. Out: a dict whose reads and changes are the object's. Always holds: an attribute set through one is read through the
other; slots are not in it. PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py`` (``__dict__`` of ``UserDefinedObjectVariable``).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..ir import Source
from .base import Constant, Lazy, Raised, Slot, Value
from .containers import DictValue, key_of
from .lookup import find_in_class
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..tracer import Tracer


class NamespaceValue(DictValue):
    CHANGES = True

    def __init__(self, t: Tracer, owner: ObjectValue, source: Source | None) -> None:
        self.t, self.owner = t, owner
        super().__init__({}, dict, source)
        self.real = None if owner.real is None else owner.real.__dict__

    @property
    def entries(self) -> dict[Any, tuple[Value, Slot]]:
        owner, own = self.owner, self.owner.attributes
        names = [n for n in self.real or () if n not in owner.removed]
        names += [n for n in (own if self.real is None else owner.written) if n not in names and not self._slot(n)]
        return {n: (Constant(n), own[n] if n in own else Lazy(self.t, (self.real or {})[n], owner.member(n))) for n in names}

    @entries.setter
    def entries(self, entries: dict[Any, tuple[Value, Slot]]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        assert not entries

    def _slot(self, name: str) -> bool:
        found = find_in_class(self.owner.cls, name)
        return found is not None and isinstance(found[1], types.MemberDescriptorType)

    def changing(self, t: Tracer) -> None:
        """Nothing: it is the owner that changes."""

    def look(self) -> None:
        if self.real is not None:
            self.t.guard("dict_keys", self.source, tuple(self.real), why="the program looked at the keys")

    def asked(self, at: Any) -> None:
        if self.real is not None and at not in self.owner.written and at not in self.owner.removed:
            self.t.guard("has_key" if at in self.real else "no_key", self.source, at, why="the program asked for this attribute")

    def find(self, t: Tracer, key: Value) -> Value | None:
        name = self._name(t, key)
        found = None if self._slot(name) else self.owner.instance_attribute(t, name)
        if found is None:
            self.asked(name)
        return found

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        name = self._name(t, key)
        if self._slot(name):
            raise t.refuse("attribute", f"{name!r} in a __dict__, which is a slot too")
        self.owner.store(t, name, value)

    def delete_item(self, t: Tracer, key: Value) -> None:
        name = self._name(t, key)
        if self._slot(name) or not self.owner.remove(t, name):
            raise Raised(t.exception(KeyError, name))

    def clear(self, t: Tracer) -> None:
        self.look()
        for name in list(self.entries):
            self.owner.remove(t, name)

    def _name(self, t: Tracer, key: Value) -> str:
        name = key_of(t, key)
        if type(name) is not str:
            raise t.refuse("attribute", "a key of a __dict__ that is no string")
        return name
