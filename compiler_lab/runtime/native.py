"""The wrapper in C, bound: torch's exported functions found by name, and the callable that the library makes of them.

In: ``CallCode``, the library it was compiled into, and the tensors and operators it needs. Out: a callable, or why this torch cannot be called
from C (then the wrapper in Python is what runs).
Always holds: a function that this torch lacks is null, and what would be called through it is called through Python.
How a tensor's address is found: by the function that Inductor's C++ wrapper uses, handed out as a number by ``torch._C``. It takes 5 ns and
checks nothing, so ``call.h`` looks at the type first. The documented way, DLPack, takes 80 ns a tensor. An ``AtenTensorHandle`` could be had for
nothing, as an address inside the Python object, but its place there differs between versions and is nobody's interface; a window over the
memory, ``aoti_torch_create_tensor_from_blob``, takes 300 ns once and a comparison from then on, for a parameter does not move.
How memory is allocated: ``_empty_strided_cpu``, which takes as long as ``aoti_torch_empty_strided`` and the way from its handle to Python.
PyTorch's counterpart: ``CppWrapperCodeCache`` in ``torch/_inductor/codecache.py``.
"""

from __future__ import annotations

import ctypes
import functools
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .cache import key_of

if TYPE_CHECKING:
    from ..codegen.ir import CallCode

FUNCTIONS = (
    "aoti_torch_create_tensor_from_blob", "aoti_torch_delete_tensor_object", "aoti_torch_get_data_ptr", "aoti_torch_get_strides",
    "aoti_torch_empty_strided", "aoti_torch_copy_",
)  # fmt: skip
"""What ``struct Torch`` of ``call.h`` holds between the function that gives a tensor's address and the pool of arenas."""


def attach(stage: str, calls: CallCode, tensors: Mapping[str, Any], path: Path, ops: Mapping[str, Any]) -> Callable[..., tuple[Any, ...]] | str:
    """The callable of ``calls``, which was compiled into ``path``, or why there is none. ``tensors``: the constants.

    Raises ``OSError`` and ``AttributeError``."""
    private: Any = torch._C
    try:
        data, empty = private._dynamo.guards._torchinductor_pyobject_tensor_data_ptr, private._dynamo.guards._empty_strided_cpu
        steal = private._aoti.alloc_tensors_by_stealing_from_void_ptrs  # its like for one tensor, of torch 2.13, leaves the handle alive
    except AttributeError as error:
        return f"this torch has no {error.name}"
    base = [_address(name) for name in FUNCTIONS]
    if not all(base):
        return f"this torch has no {FUNCTIONS[base.index(0)]}"
    addresses = [int(data), *base, ctypes.addressof(_pool()), *(_address(name) for name in calls.symbols)]
    make = ctypes.PyDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL).lab_attach
    make.argtypes, make.restype = [ctypes.py_object, ctypes.c_void_p], ctypes.py_object
    constants = tuple(tensors[name] for name in calls.constants)
    python = functools.partial(_parts, stage, calls.python, ops)
    given = (torch.Tensor, torch.nn.Parameter, empty, steal, python, constants, calls.layouts)
    call: Callable[..., tuple[Any, ...]] | None = make(given, (ctypes.c_void_p * len(addresses))(*addresses))
    if call is None:
        return "objects of this Python do not begin with a count and a type"
    return _boxed(call) if calls.boxed else call


class _Arena(ctypes.Structure):
    """``struct Arena`` of ``call.h``."""


_Arena._fields_ = [("next", ctypes.POINTER(_Arena)), ("tensor", ctypes.c_void_p), ("memory", ctypes.c_void_p), ("size", ctypes.c_int64)]


class _Pool(ctypes.Structure):
    _fields_ = [("idle", ctypes.POINTER(_Arena))]


@functools.cache
def _pool() -> _Pool:
    """The one pool of the process, which every library is given; it is never freed, for programs reach it while Python ends."""
    pool = _Pool()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))
    return pool


def _idle() -> Iterator[Any]:
    at: Any = _pool().idle
    while at:
        yield at.contents
        at = at.contents.next


def pooled() -> int:
    """Bytes of the arenas that no call uses at the moment and that are kept for the next."""
    return sum(arena.size for arena in _idle())


def release() -> None:
    """Frees the arenas that no call uses; the next call makes its own."""
    for arena in _idle():
        tensor, arena.tensor, arena.size = arena.tensor, None, 0
        if tensor:
            ctypes.pythonapi.Py_DecRef(ctypes.cast(tensor, ctypes.py_object))


def _boxed(call: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """``call`` with a mark, which a function made in C cannot carry by itself."""
    marked: Any = functools.partial(call)
    marked._boxed_call = True
    return marked


@functools.cache
def _library() -> ctypes.CDLL:
    """The library of torch that exports the C functions; it is loaded already."""
    name = {"darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}.get(sys.platform, "libtorch_cpu.so")
    return ctypes.CDLL(str(Path(str(torch.__file__)).with_name("lib") / name))


@functools.cache
def _address(name: str) -> int:
    """Where a function of torch is; 0 where this torch has none of the name."""
    try:
        return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _parts(stage: str, text: str, ops: Mapping[str, Any]) -> tuple[Any, ...]:
    """The functions in Python, compiled when the first of them is called."""
    return make_of(text, f"{stage} calls")(ops, torch)


def make_of(text: str, title: str) -> Callable[..., Any]:
    """``make`` of a generated text. The text is given to ``linecache``, so that tracebacks show its lines."""
    name = f"<{title} {key_of([text])[:16]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "compiler_lab_wrapper"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["make"]
