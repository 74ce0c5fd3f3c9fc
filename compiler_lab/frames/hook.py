"""All contact with torch's private frame hook and C++ guard tree (``torch._C._dynamo``); nothing else in the package touches it.

In: a callback of ours that is shown frames; requests for guard managers. Out: regions in which the hook is on, and ``GuardRoot``,
a C++ guard tree that is built step by step.
Always holds: a callback returns one of the answers made here; the hook is never left on; resets wait until no hooked region is in
flight in any thread (dropping entries under a running lookup is a crash); guard children never outlive their root.
Where PyTorch does this: ``torch/csrc/dynamo/{eval_frame.c,guards.cpp}``, ``torch/_dynamo/{eval_frame.py,guards.py}``.
Left out: Python 3.13 and later (refused by name until someone has run it).

Entries live in a bucket of their own (the isolate id, torch 2.13), so ``torch.compile`` on the same code object is not disturbed.
Where torch has no such ids, frames below the compiled function are left to Python; the compiled function itself is always a
private copy of the user's code object, which no one else can share.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, TracebackType
from typing import Any, Protocol

from ..core.errors import LabError

BUCKET = 0x1AB << 32  # torch hands out 0, 1, 2, ...: far away from them
NEEDED = {
    "eval_frame": ("set_eval_frame", "reset_code", "set_code_exec_strategy", "code_framelocals_names", "_FrameAction", "_FrameExecStrategy"),
    "guards": ("RootGuardManager", "GlobalStateGuard", "install_object_aliasing_guard", "install_no_tensor_aliasing_guard"),
    "RootGuardManager": (
        "framelocals_manager", "globals_dict_manager", "dict_getitem_manager", "getattr_manager", "list_getitem_manager", "tuple_getitem_manager",
        "getitem_manager", "get_generic_dict_manager", "type_manager", "weakref_call_manager", "call_function_no_args_manager",
        "add_tensor_match_guard", "add_type_match_guard", "add_id_match_guard", "add_equals_match_guard", "add_length_check_guard",
        "add_dict_length_check_guard", "add_dict_contains_guard", "add_no_hasattr_guard", "add_none_match_guard", "add_true_match_guard",
        "add_false_match_guard", "add_lambda_guard", "add_global_state_guard", "add_torch_function_mode_stack_guard", "add_default_device_guard",
    ),
}  # fmt: skip


# accessor of a guard manager -> the name of its own argument
ACCESSORS = {
    "framelocals": "key", "globals_dict": "f_globals", "dict_getitem": "key", "getattr": "attr", "list_getitem": "key", "tuple_getitem": "key",
    "getitem": "key", "get_generic_dict": "", "type": "", "weakref_call": "", "call_function_no_args": "",
}  # fmt: skip


class Surface:
    """The private modules after probing: ``ef`` (frame evaluation), ``guards``, and what differs between torch versions."""

    def __init__(self) -> None:
        import torch

        if sys.version_info >= (3, 13):
            raise LabError(f"Python {sys.version_info.major}.{sys.version_info.minor} is not supported yet", hint="use Python 3.11 or 3.12")
        try:
            from torch._C._dynamo import eval_frame, guards
        except ImportError as error:
            raise LabError(f"torch {torch.__version__} has no frame hook", why=str(error), hint="install a CPython build of torch 2.11 to 2.13") from error
        self.ef, self.guards = eval_frame, guards
        owners = {"eval_frame": eval_frame, "guards": guards, "RootGuardManager": getattr(guards, "RootGuardManager", None)}
        missing = [f"{owner}.{name}" for owner, names in NEEDED.items() for name in names if not hasattr(owners[owner], name)]
        if missing:
            raise LabError(f"the frame hook of torch {torch.__version__} lacks {', '.join(missing)}", hint="install torch 2.11 to 2.13")
        arity = (guards.RootGuardManager.add_equals_match_guard.__doc__ or "").count("arg")
        if arity not in (2, 3):
            raise LabError(f"torch {torch.__version__}: add_equals_match_guard takes {arity} arguments, not 2 or 3", hint="install torch 2.11 to 2.13")
        self.user_stack = arity == 3
        self.isolated = hasattr(eval_frame, "set_eval_frame_isolate_recompiles_id")


@functools.cache
def surface() -> Surface:
    """The probed surface; raises ``LabError`` naming what it cannot work with. Probed once: a process has one torch."""
    return Surface()


class _Manager:
    """What the C side asks of a guard manager: its root; it writes the other two back."""

    diff_guard_root = None

    def __init__(self, root: Any, owner: Any) -> None:
        self.root, self.owner = root, owner
        self.cache_entry: Any = None
        self.extra_state: Any = None


class _GuardedCode:
    compile_id = None
    trace_annotation = "compiler_lab"  # must be a str: without it the process aborts

    def __init__(self, code: CodeType, manager: _Manager) -> None:
        self.code, self.guard_manager = code, manager


class Answer:
    """What a callback gives back for one frame. ``apply`` makes the strategy hold for the code object from now on."""

    def __init__(self, strategy: Any, guarded: _GuardedCode | None = None, apply: bool = True) -> None:
        self.frame_exec_strategy, self.guarded_code, self.apply_to_code = strategy, guarded, apply


Callback = Callable[[Any, Any, Any], Answer]  # (frame, cache entry, per-code state)


class FrameHook:
    """The hook as one object per process, because what it switches is per process: the bucket, the resets, the compile lock.

    ``answers``: ``skip`` (never ask about this code again, look below it), ``hide`` (nor below it), ``freeze`` (existing entries
    hit, misses run in Python, nothing below is shown: below a hit that is the compiled code), ``once`` (Python now, ask again next time).
    """

    def __init__(self) -> None:
        ef = surface().ef
        action = ef._FrameAction
        strategy = ef._FrameExecStrategy
        self._ef = ef
        self._whole = strategy(action.DEFAULT, action.SKIP)
        self.skip = Answer(strategy(action.SKIP, action.DEFAULT))
        self.hide = Answer(strategy(action.SKIP, action.SKIP))
        self.freeze = Answer(strategy(action.RUN_ONLY, action.SKIP))
        self.once = Answer(strategy(action.SKIP, action.DEFAULT), apply=False)
        self._uncounted = Answer(strategy(action.SKIP, action.RUN_ONLY), apply=False)  # for ``uncount``
        self.lock = threading.RLock()  # one lock for compiling
        self._counter = threading.Lock()
        self._in_flight = 0
        self._outside = -1
        self._resets: list[weakref.ref[CodeType]] = []

    @property
    def isolated(self) -> bool:
        """Whether entries on code objects that others may compile too stay invisible to them."""
        return surface().isolated

    def whole(self, code: CodeType, root: Root, owner: Any) -> Answer:
        """Run ``code`` in place of the frame, now and whenever ``root`` holds; nothing below it is shown. ``owner`` is kept alive."""
        return Answer(self._whole, _GuardedCode(code, _Manager(root.manager, (root, owner))))

    def region(self, callback: Callback | None) -> Region:
        """A block in which the frames of this thread are shown to ``callback``; to nobody with None."""
        return Region(self, callback)

    def ignore(self, code: CodeType) -> None:
        """Never show frames of ``code``, nor those below it, to any hook: it is ours."""
        self._ef.set_code_exec_strategy(code, self.hide.frame_exec_strategy)

    def leave(self, code: CodeType) -> None:
        """Never show frames of ``code`` to any hook, but those below it."""
        self._ef.set_code_exec_strategy(code, self.skip.frame_exec_strategy)

    def reset(self, codes: Iterable[weakref.ref[CodeType]]) -> None:
        """Drop the entries of ``codes``: now, or when the last hooked region of any thread ends."""
        with self._counter:
            self._resets.extend(codes)
            self._reset_pending()

    def _reset_pending(self) -> None:
        if self._in_flight == 0:
            pending, self._resets = self._resets, []
            for ref in pending:
                if (code := ref()) is not None:
                    self._ef.reset_code(code)

    def uncount(self) -> None:
        """Mends what an exception out of a callback leaves behind (``torch.compile`` leaves it so). The C side then shows this thread's frames to
        nobody, and counts it as one that shows them for good: all Python goes through the hook, slower, and the caller of a function holds its
        arguments to the end of the call. Here it is counted out once more, with nothing shown before and after."""
        self._ef.set_eval_frame(lambda frame, cache_entry, state: self._uncounted)
        _forget(self._ef)
        self._ef.set_eval_frame(None)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(False))  # which stood in the callback's place in ``_forget``, borrowed, and was given back

    def _enter(self) -> None:
        with self._counter:  # the bucket is per process, so only the first region sets it and the last puts it back
            self._in_flight += 1
            if self._in_flight == 1 and self.isolated:
                self._outside = self._ef.set_eval_frame_isolate_recompiles_id(BUCKET)

    def _leave(self) -> None:
        with self._counter:
            self._in_flight -= 1
            if self._in_flight == 0 and self.isolated:
                self._ef.set_eval_frame_isolate_recompiles_id(self._outside)
            self._reset_pending()


def _forget(ef: Any) -> None:
    """Counts out this thread, which shows its frames; once this one ends, the C side puts back what it showed them to, and does not count."""
    ef.set_eval_frame(None)


class _Shown:
    """What the C side holds during one region, in the callback's place: an exception out of a callback makes it lose its reference, for good."""

    __slots__ = ("_callback", "_torchdynamo_orig_backend")

    def __init__(self, callback: Callback) -> None:
        self._callback: Callback | None = callback
        self._torchdynamo_orig_backend: Any = getattr(callback, "_torchdynamo_orig_backend", callback)

    def __call__(self, frame: Any, cache_entry: Any, state: Any) -> Answer:
        assert self._callback is not None
        return self._callback(frame, cache_entry, state)

    def close(self) -> None:
        self._callback = self._torchdynamo_orig_backend = None


class Region:
    """``with hook.region(callback): f()`` shows the frames of this thread to ``callback``; the previous hook is back after it."""

    __slots__ = ("_callback", "_hook", "_previous", "_shown")

    def __init__(self, hook: FrameHook, callback: Callback | None) -> None:
        self._hook, self._callback = hook, callback

    def __enter__(self) -> None:
        self._hook._enter()
        self._shown = None if self._callback is None else _Shown(self._callback)
        self._previous = self._hook._ef.set_eval_frame(None)  # one callback right after another would be counted as two threads
        if self._shown is not None:
            self._hook._ef.set_eval_frame(self._shown)

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        ef, shown = self._hook._ef, self._shown
        if ef.set_eval_frame(None) is None and shown is not None:
            self._hook.uncount()
        if self._previous is not None:
            ef.set_eval_frame(self._previous)
        if shown is not None:
            shown.close()
        self._hook._leave()


@functools.cache
def frame_hook() -> FrameHook:
    """The process's hook: made at the first compile, for torch itself has only one."""
    return FrameHook()


class Root(Protocol):
    """What a guard tree's fast check is built in: ``GuardRoot`` in C++, ``python_guards.PythonRoot`` as one Python function."""

    manager: Any

    @property
    def check(self) -> Callable[[dict[str, Any]], bool]: ...
    def step(self, parent: Any, kind: str, key: Any, text: str) -> Any: ...
    def leaf(self, node: Any, kind: str, *args: Any, text: str) -> None: ...
    def tensor(self, node: Any, value: Any, size: list[int], stride: list[int], text: str) -> None: ...
    def same_object(self, one: Any, other: Any, text: str) -> None: ...
    def different_objects(self, nodes: list[Any], names: list[str], text: str) -> None: ...
    def global_state(self, text: str) -> Any: ...


class GuardRoot:
    """A C++ guard tree. ``manager`` arguments are nodes of this tree; text ends up in torch's own messages.

    The first accessor makes torch import ``torch._dynamo.guards`` (seconds); building an empty root does not.
    """

    def __init__(self) -> None:
        self._surface = surface()
        self.manager = self._surface.guards.RootGuardManager()
        self.check: Callable[[dict[str, Any]], bool] = self.manager.check

    def step(self, parent: Any, kind: str, key: Any, text: str) -> Any:
        """The child of ``parent`` that reads ``key`` through the accessor ``kind`` (a row of ACCESSORS)."""
        keyword = ACCESSORS[kind]
        own = {keyword: key} if keyword else {}
        # without an example value the C side makes a plain node, and the kind of node asked for is not looked at
        return getattr(parent, f"{kind}_manager")(**own, source=text, example_value=None, guard_manager_enum=None)

    def leaf(self, node: Any, kind: str, *args: Any, text: str) -> None:
        """``node.add_<kind>_guard(*args, ...)``."""
        getattr(node, f"add_{kind}_guard")(*args, [text], *self._stack)

    def tensor(self, node: Any, value: Any, size: list[int], stride: list[int], text: str) -> None:
        """Exact type, dispatch keys, dtype, device, requires_grad, sizes and strides."""
        import torch

        keys = torch._C._dispatch_keys(value)
        node.add_tensor_match_guard(value, size, stride, text, [text], *self._stack, type(value), keys)

    def same_object(self, one: Any, other: Any, text: str) -> None:
        self._surface.guards.install_object_aliasing_guard(one, other, [text], *self._stack)

    def different_objects(self, nodes: list[Any], names: list[str], text: str) -> None:
        self._surface.guards.install_no_tensor_aliasing_guard(nodes, names, [text], *self._stack)

    def global_state(self, text: str) -> Any:
        """Guards grad mode, autocast, default dtype, threads, determinism...; gives the state object, which has check() and reason()."""
        state = self._surface.guards.GlobalStateGuard()
        self.leaf(self.manager, "global_state", state, text=text)
        return state

    @property
    def _stack(self) -> tuple[None, ...]:
        return (None,) if self._surface.user_stack else ()


def frame_names(code: CodeType) -> tuple[str, ...]:
    """Arguments, locals, cells and free variables of ``code``: the order in which a frame holds them."""
    return tuple(surface().ef.code_framelocals_names(code))


def entry_count(code: CodeType) -> int:
    """How many compiled entries ``code`` carries, whoever made them."""
    return len(surface().ef._debug_get_cache_entry_list(code))
