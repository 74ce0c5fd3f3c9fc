"""The wrapper in C: it computes what the wrapper in Python and eager do, raises what they raise, and keeps nothing but its arena."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

import compiler_lab
from compiler_lab.codegen import shims
from compiler_lab.codegen.artifact import REASONS, Kernels
from compiler_lab.lowering.ir import ExternNode
from compiler_lab.runtime import native
from compiler_lab.runtime.build import build
from compiler_lab.runtime.program import Program

from .conftest import same

Made = tuple[Callable[..., Any], list[Program]]


def made(fn: Callable[..., Any], wrapper: str = "c", **options: Any) -> Made:
    """``fn`` compiled, and its programs (forward, then backward), once it has been called."""
    programs: list[Any] = []
    compiled = compiler_lab.compile(
        fn, fullgraph=True, options={"wrapper": wrapper, **options}, observe=lambda s: programs.append(s.after) if s.name == "build" else None
    )
    return compiled, programs


def rand(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1


def convolutions(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.max_pool2d(torch.relu(F.conv2d(x, w, b, padding=1)), 2) * 3


def through_everything(x: Tensor, w: Tensor, b: Tensor) -> tuple[Any, ...]:
    y = torch.relu(x @ w + 1)  # read by calls and kernels
    z = torch.baddbmm(b, y.expand(2, 6, 6), y.t().expand(2, 6, 6), beta=0.5)
    return z, z, y.t()[1:], torch.bmm(z, z).sum(), x, torch.linalg.inv(y + 3 * torch.eye(6)) * 2, torch.cumsum(y + 1, 1).exp(), 3, None


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "one kernel": (lambda x: x + 1, (rand(7),)),
    "a kernel and its argument": (lambda x: (x, x * 2, x), (rand(3, 4),)),
    "layers": (lambda x, w, b: torch.addmm(b, torch.relu(torch.addmm(b, x, w)), w.t()).tanh(), (rand(5, 8), rand(8, 8, grad=True), rand(8, grad=True))),
    "through everything": (through_everything, (rand(6, 6), rand(6, 6), rand(2, 6, 6))),
    "attention": (attention, tuple(rand(2, 2, 8, 16, grad=True) for _ in range(3))),
    "convolutions": (convolutions, (rand(2, 3, 8, 8), rand(4, 3, 3, 3, grad=True), rand(4, grad=True))),
    "channels last": (convolutions, (rand(2, 3, 8, 8).to(memory_format=torch.channels_last), rand(4, 3, 3, 3, grad=True), rand(4, grad=True))),
    "windows of inputs": (lambda x, w: (x[1:, 2:6] * 2) @ w[::2, 1:].t() + x[0, 0], (rand(5, 8), rand(6, 5, grad=True))),
    "sorted": (lambda x: (torch.sort(x + 1, dim=0), torch.topk(x * 2, 2)[0] + 1, torch.sort(x * 3, stable=True)[1] + 1), (rand(5, 4),)),
    "half": (lambda x, w: (x + 1) @ w.t() - 1, (rand(4, 8, dtype=torch.bfloat16), rand(3, 8, dtype=torch.bfloat16))),
    "double": (lambda x, w: ((x * 2) @ w).exp(), (rand(4, 8, dtype=torch.float64), rand(8, 3, dtype=torch.float64, grad=True))),
    "lazy negation": (lambda z: (z.conj().imag * 2, z.conj().imag), (torch.randn(4, dtype=torch.complex64),)),
    "complex": (lambda z: (torch.view_as_real(z @ z) * 2, z.conj() @ z), (torch.randn(4, 4, dtype=torch.complex64),)),
    "no elements": (lambda x, w: ((x + 1) @ w, w + 1, x.sum()), (rand(0, 4), rand(4, 3))),
    "what takes long": (lambda x, w: torch.relu(x @ w).exp(), (0.01 * rand(600, 300), rand(300, 400, grad=True))),
}


def results(fn: Callable[..., Any], args: tuple[Tensor, ...]) -> tuple[list[Any], list[Any]]:
    """What ``fn`` gives, and the gradients of its first tensor that has one."""
    given = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_(a.requires_grad) for a in args]
    out = fn(*given)
    flat: list[Any] = tree_leaves(out)
    target = next((t for t in flat if isinstance(t, Tensor) and t.requires_grad), None)
    if target is not None:
        target.sin().sum().backward()
    return [t.detach() if isinstance(t, Tensor) else t for t in flat], [a.grad for a in given]


@pytest.mark.parametrize("name", PROGRAMS)
def test_c_is_python_is_eager(name: str) -> None:
    fn, args = PROGRAMS[name]
    (in_c, programs), (in_python, others) = made(fn), made(fn, "python")
    got, expected = results(in_c, args), results(in_python, args)
    want = results(fn, args)
    assert {p.language for p in others} == {"Python"} and [p.language for p in programs if p.library] == ["C"] * sum(p.library is not None for p in programs)
    for a, b in ((got, expected), (got, want), (results(in_c, args), got)):
        for x, y in zip(a[0] + a[1], b[0] + b[1], strict=True):
            if not isinstance(x, Tensor):
                assert x == y
                continue
            assert x.shape == y.shape and x.dtype == y.dtype and (0 in x.shape or x.stride() == y.stride())
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4) if x.dtype != torch.bfloat16 else torch.testing.assert_close(x, y, rtol=0.05, atol=0.1)


def kernels_of(fn: Callable[..., Any], *args: Tensor) -> Kernels:
    compiled, programs = made(fn)
    compiled(*args)
    return programs[0].kernels


def test_each_call_has_a_decision() -> None:
    kernels = kernels_of(*(lambda p: (p[0], *p[1]))(PROGRAMS["through everything"]))
    found = {d.subject[0]: (d.outcome, d.reason) for d in kernels.decisions if d.kind == "call"}
    nodes = [n for n in kernels.schedule.program.nodes if isinstance(n, ExternNode)]
    assert len(found) == len(nodes) and {r for _, r in found.values()} <= REASONS.keys()
    assert set(found.values()) == {("c", "exported"), ("python", "no function")}
    assert [(d.outcome, d.reason) for d in kernels.decisions if d.kind == "wrapper"] == [("c", "exported")]


@pytest.mark.parametrize("table", [shims.ATEN, shims.ATEN_OUT], ids=["allocates", "is given memory"])
def test_the_functions_are_there(table: dict[str, str]) -> None:
    """Each row names a function that the torch at hand exports; the prototypes are those of torch's own header."""
    text = next(Path(torch.__file__).parent.rglob("c_shim_cpu.h")).read_text()
    for target, name in table.items():
        assert native._address(f"aoti_torch_cpu_{name}"), name
        packet, overload = target.removeprefix("aten.").split(".")
        schema = getattr(getattr(torch.ops.aten, packet), overload)._schema
        declared = text.split(f"aoti_torch_cpu_{name}(")[1].split(")")[0]
        types = [" ".join(part.split()[:-1]).replace("AtenTensorHandle", "H") for part in declared.split(", ")]
        assert types == list(shims.prototype(schema, out=table is shims.ATEN_OUT)), name


# ---- errors ----


def test_an_index_out_of_range_is_eagers_error() -> None:
    compiled, programs = made(lambda x, i: (x * 2)[i] + 1)
    x, i = torch.randn(5), torch.tensor([0, 4])
    same(compiled(x, i), (x * 2)[i] + 1)
    for _ in range(3):
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([0, 5]))
        with pytest.raises(IndexError, match="index out of range in self"):
            programs[0](x, torch.tensor([0, 5]))
    same(compiled(x, i), (x * 2)[i] + 1)


def test_what_is_no_tensor_is_refused() -> None:
    compiled, programs = made(lambda x, y: x + y)
    x = torch.randn(3)
    compiled(x, x.clone())
    for wrong in ((x,), (x, x, x), (x, "no tensor"), (None, x), ()):
        with pytest.raises(TypeError, match="call"):
            programs[0].call(*wrong)

    class Own(Tensor):
        pass

    same(programs[0].call(x, x.as_subclass(Own))[0], x + x)
    same(programs[0].call(torch.nn.Parameter(x), x)[0], x + x)


def test_a_function_that_torch_lacks_is_called_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function of an operator's is found: each is called by its part in Python, and the results are the same."""
    whole = native._address
    monkeypatch.setattr(native, "_address", lambda name: 0 if name.startswith("aoti_torch_cpu_") else whole(name))
    for name in ("through everything", "attention", "convolutions", "layers"):
        fn, args = PROGRAMS[name]
        compiled, programs = made(fn)
        got, want = results(compiled, args), results(fn, args)
        assert programs[0].language == "C"
        for x, y in zip(got[0] + got[1], want[0] + want[1], strict=True):
            same(x, y, rtol=1e-4, atol=1e-4) if isinstance(x, Tensor) else None


def test_a_function_that_fails_is_called_again_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window says float64 where there is float32, so that torch's function refuses; Python's call is right."""
    fn, args = PROGRAMS["layers"]
    compiled, programs = made(fn)
    asked: list[str] = []
    parts = native._parts
    monkeypatch.setattr(native, "_parts", lambda stage, *rest: asked.append(stage) or parts(stage, *rest))
    with torch.no_grad():
        compiled(*args)
        kernels = programs[0].kernels
        assert kernels.calls is not None
        row = next(line for line in kernels.calls.source.split("\n") if line.startswith("  {2, numbers") and "buf" in line)
        source = kernels.calls.source.replace(row, row.replace(", 6},", ", 7},"))
        program = build(dataclasses.replace(kernels, calls=dataclasses.replace(kernels.calls, source=source)))
        given = [torch.as_strided(torch.randn(64), s.size, s.stride) for s in kernels.schedule.program.inputs]
        want = build(kernels)(*given)[0]
        assert not asked
        same(program(*given)[0], want)
    assert program.language == "C" and asked == ["codegen.forward"]


def test_without_the_functions_the_wrapper_is_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_address", lambda name: 0)
    compiled, programs = made(lambda x: torch.tanh(x) + 1)
    x = torch.randn(5)
    same(compiled(x), torch.tanh(x) + 1)
    assert programs[0].language.startswith("Python (this torch has no aoti_torch") and programs[0].language in programs[0].text()


# ---- threads and memory ----


def test_calls_from_many_threads() -> None:
    fn, args = PROGRAMS["through everything"]
    compiled, programs = made(fn)
    with torch.no_grad():
        compiled(*args)
    inputs = [tuple(a + i for a in args) for i in range(4)]
    want = [fn(*given) for given in inputs]
    wrong: list[Any] = []

    def run(i: int) -> None:
        for _ in range(50):
            got = programs[0](*inputs[i])
            if not torch.allclose(got[0], want[i][0], rtol=1e-4, atol=1e-3):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_another_thread_runs_during_a_long_kernel() -> None:
    """A kernel that takes long gives up Python's lock: it is in the text, and the result is right."""
    kernels = kernels_of(lambda x: torch.exp(torch.sin(x) * 2).sum(), torch.randn(1 << 20))
    assert kernels.calls is not None and "Unlocked" in kernels.calls.source
    small = kernels_of(lambda x: torch.exp(torch.sin(x) * 2).sum(), torch.randn(64))
    assert small.calls is not None and "Unlocked" not in small.calls.source


class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def allocated() -> int:
    """Bytes that malloc has given out and not got back."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not count its bytes")
    libc.mallinfo2.restype = Info
    gc.collect()
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


@pytest.mark.parametrize(("name", "count"), [("layers", 10_000), ("through everything", 5_000), ("attention", 1_000)])
def test_thousands_of_calls_keep_nothing(name: str, count: int) -> None:
    fn, args = PROGRAMS[name]
    compiled, programs = made(fn)
    compiled(*args)
    given = [torch.as_strided(torch.randn(4096), s.size, s.stride) for s in programs[0].kernels.schedule.program.inputs]
    programs[0](*given)
    counts = [sys.getrefcount(t) for t in given[1:]]

    def calls(n: int) -> int:
        for i in range(n):
            given[0] = given[0] if i % 2 else given[0].clone(memory_format=torch.preserve_format)  # moves, as what a program is called with does
            programs[0](*given)
        return allocated()

    before = calls(200)
    assert calls(count) - before < 2 * count
    assert [sys.getrefcount(t) for t in given[1:]] == counts


def test_a_backward_frees_what_it_is_given() -> None:
    """The list is emptied, and a tensor in it dies at its last use: at most what the call still needs is alive when it ends."""
    compiled, programs = made(lambda x, w: torch.relu(x @ w) @ w)
    w = rand(8, 8, grad=True)
    compiled(torch.randn(4, 8), w).sum().backward()
    backward = programs[1]
    given = [torch.as_strided(torch.randn(256), s.size, s.stride) for s in backward.kernels.schedule.program.inputs]
    alive = [weakref.ref(t) for t in given]
    got = backward.call(given)
    assert given == [] and [r() for r in alive if r() is not None and not any(r() is t for t in got)] == []
    with pytest.raises(TypeError, match="in one list"):
        backward.call([])
    with pytest.raises((TypeError, SystemError)):
        backward.call(torch.randn(3))


def memory_events(step: Callable[[], Any]) -> list[int]:
    """Bytes that torch's allocator gives out (and takes back, below 0) during ``step``, in order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events: Any = profiler.profiler
    return [e.nbytes() for e in sorted((e for e in events.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())]


def test_the_arena_is_freed_with_the_program() -> None:
    x = torch.randn(512, 512)
    kernels = kernels_of(lambda x, w: torch.relu(torch.relu(x @ w) @ w) + 1, x, x.clone())
    programs = [build(kernels)]
    arena, result = kernels.schedule.plan.arena_bytes, x.nbytes
    native.release()  # what calls of other programs left
    assert memory_events(lambda: programs[0](x, x)) == [arena, result, -result], "between calls it keeps its arena"
    assert memory_events(lambda: programs[0](x, x)) == [result, -result]
    assert memory_events(programs.clear) == [-arena]


def test_a_call_through_python_of_buffers_without_elements() -> None:
    """All of the arena's buffers are empty, so that there is no arena to take them from."""
    a = torch.eye(3).expand(0, 3, 3)
    f = lambda a: torch.linalg.cholesky_ex(a * 2 + 1)[0]
    torch.testing.assert_close(compiler_lab.compile(f)(a), f(a))
