"""Classes, Python modules and weak references that exist before the frame.

In: one of them, and a name. Out: the attribute, as a value. Always holds: what a user's class or module gives is guarded; what is set on one
is noted, read back by everything that asks later, and made after the graph has run.
PyTorch's counterpart: ``torch/_dynamo/variables/user_defined.py`` (``UserDefinedClassVariable``) and ``misc.py`` (``PythonModuleVariable``).
"""

from __future__ import annotations

import enum
import types
import weakref
from abc import ABCMeta
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..ir import Source
from .base import NONE, Args, Constant, Kwargs, Raised, Value
from .lookup import C_METHODS, KNOWN_METACLASSES, attribute_source, bind, class_written, find_in_class, is_library_module, lookup

if TYPE_CHECKING:
    from ..tracer import Tracer
    from .functions import Scope


class ClassValue(Value):
    """A class, existing before the frame."""

    CHANGES = True

    def __init__(self, real: type[Any], source: Source | None = None) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type[Any]:
        return type(self.real)

    def describe(self) -> str:
        return f"class {self.real.__qualname__}"

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        from .construct import construct

        return construct(t, self, args, kwargs)

    def get(self, t: Tracer, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return t.lift(getattr(self.real, name))
        if name in ("__mro__", "__bases__"):
            return t.lift(getattr(self.real, name))
        if name == "__class__":
            return t.wrap(type(self.real), None)
        if type(self.real) not in KNOWN_METACLASSES and find_in_class(type(self.real), name) is not None:
            raise t.refuse("attribute", f"{name!r} of {self.describe()}, which has a metaclass")
        if t.classes and (written := class_written(t, self.real, name)) is not None:
            return written
        found = lookup(t, self.real, name)
        if found is None:
            return self._meta(t, name)
        return self._unbound(t, found[0], name, found[1])

    def set(self, t: Tracer, name: str, value: Value) -> None:
        """``type.__setattr__`` of plain data: what changes how instances behave is left to Python."""
        from .containers import DictValue, SequenceValue, SetValue
        from .tensor import TensorValue

        plain = isinstance(value, (Constant, TensorValue, SequenceValue, DictValue, SetValue))
        found = find_in_class(self.real, name)
        fixed = is_library_module(self.real.__module__) or type(self.real) not in (type, ABCMeta) or name.startswith("__")
        if fixed or not plain or (found is not None and hasattr(type(found[1]), "__get__")):
            raise t.refuse("side-effect", f"setting {name!r} of {self.describe()}")
        t.change(self)
        t.classes.setdefault(self.real, {})[name] = value

    def _meta(self, t: Tracer, name: str) -> Value:
        if find_in_class(type(self.real), name) is not None:
            raise t.refuse("attribute", f"{name!r} of {self.describe()}, which its metaclass has")
        raise Raised(t.exception(AttributeError, f"type object '{self.real.__name__}' has no attribute '{name}'"))

    def _unbound(self, t: Tracer, owner: type[Any], name: str, attribute: Any) -> Value:
        from .functions import MethodValue

        source = attribute_source(self.real, owner, name, attribute)
        if isinstance(method := getattr(type(attribute), "__get__", None), types.FunctionType):
            return MethodValue(t.wrap(method, None), t.wrap(attribute, source)).call(t, [NONE, self], {})
        if isinstance(attribute, enum.Enum):
            return Constant(attribute)
        if isinstance(attribute, types.BuiltinFunctionType) or isinstance(attribute, types.ClassMethodDescriptorType):
            return t.wrap(getattr(self.real, name), source)
        if isinstance(attribute, (types.FunctionType, *C_METHODS)):
            return t.wrap(attribute, source)
        if isinstance(attribute, (staticmethod, classmethod)):
            return bind(t, self, self.real, owner, name, attribute)
        if hasattr(type(attribute), "__get__"):
            raise t.refuse("attribute", f"{name!r} of {self.describe()} is a {type(attribute).__name__}")
        return t.wrap(attribute, source)

    def item(self, t: Tracer, key: Value) -> Value:
        if isinstance(self.real, enum.EnumMeta):
            return t.fold(self.real.__getitem__, [t.constant(key)])
        found = find_in_class(self.real, "__class_getitem__")
        if found is None and type(self.real) in KNOWN_METACLASSES:
            raise Raised(t.exception(TypeError, f"type '{self.real.__name__}' is not subscriptable"))
        if found is not None and isinstance(found[1], classmethod) and not is_library_module(found[0].__module__):
            return bind(t, self, self.real, found[0], "__class_getitem__", found[1]).call(t, [key], {})
        return self  # Generic[T]: only annotations look at the difference

    def length(self, t: Tracer) -> int:
        return len(self.real) if isinstance(self.real, enum.EnumMeta) else super().length(t)

    def contains(self, t: Tracer, value: Value) -> bool:
        if isinstance(self.real, enum.EnumMeta):
            return bool(t.constant(t.fold(self.real.__contains__, [t.constant(value)])))
        return super().contains(t, value)

    def iterate(self, t: Tracer) -> Iterator[Value]:
        if isinstance(self.real, enum.EnumMeta):
            return iter([Constant(m) for m in self.real])
        return super().iterate(t)


class ModuleValue(Value):
    """A Python module: its attributes are read as they are, and guarded unless a library's."""

    def __init__(self, real: types.ModuleType, source: Source | None = None) -> None:
        self.real, self.source = real, source
        self.read: dict[str, Value] = {}

    def python_type(self) -> type[Any]:
        return type(self.real)

    def describe(self) -> str:
        return f"module {self.real.__name__}"

    def get(self, t: Tracer, name: str) -> Value:
        scope = t.scopes.get(id(self.real.__dict__))
        if scope is not None and name in scope.written:
            return scope.written[name]
        if scope is not None and name in scope.removed:
            raise Raised(t.exception(AttributeError, f"module '{self.real.__name__}' has no attribute '{name}'"))
        if name not in self.read:
            self.read[name] = self._read(t, name)
        found = self.read[name]
        if found.source is None and isinstance(getattr(found, "real", None), (types.FunctionType, types.BuiltinFunctionType)) and not t.in_library():
            t.guard("id", Source("attr", name, self.source or Source("constant", self.real)), None, why="this function of a library was named")
        return found

    def _read(self, t: Tracer, name: str) -> Value:
        source = Source("attr", name, self.source or Source("constant", self.real))
        library = is_library_module(self.real.__name__)
        if name not in self.real.__dict__ and not library and hasattr(self.real, "__getattr__"):
            raise t.refuse("attribute", f"{name!r} of {self.describe()}, which computes its attributes")
        try:
            real = getattr(self.real, name)  # a library may load parts of itself on first use; that is not the program's doing
        except AttributeError:
            t.guard("no_attr", self.source or Source("constant", self.real), name)
            raise Raised(t.exception(AttributeError, f"module '{self.real.__name__}' has no attribute '{name}'")) from None
        fixed = library and isinstance(real, (type, types.FunctionType, types.ModuleType, *C_METHODS))
        if fixed:
            t.trust(self.real, name, real)
        return t.wrap(real, None if fixed else source)

    def set(self, t: Tracer, name: str, value: Value) -> None:
        self._scope(t, name).store(name, value)

    def delete(self, t: Tracer, name: str) -> None:
        self._scope(t, name).delete(name, AttributeError)

    def _scope(self, t: Tracer, name: str) -> Scope:
        """Attributes of a module are globals of its functions."""
        if type(self.real) is not types.ModuleType or is_library_module(self.real.__name__):
            raise t.refuse("side-effect", f"setting {name!r} of {self.describe()}")
        return t.module_scope(self.real)


class WeakReference(Value):
    """An existing ``weakref.ref`` to a tensor that is an input: it and the tensor must stay the same objects."""

    def __init__(self, real: weakref.ref[Any], source: Source) -> None:
        self.real, self.source = real, source

    def python_type(self) -> type[Any]:
        return type(self.real)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = t.by_real.get(id(self.real()))
        if found is None:
            raise t.refuse("unknown-callable", "a weak reference to something that was not reached otherwise")
        if found.source is None or found.source.base is None:
            raise t.refuse("unknown-callable", "a weak reference to something that may live no longer than a variable")
        t.guard("id", self.source, None, why="the reference was followed")
        t.guard("id", found.source, None, why="a reference to it was followed")
        return found
