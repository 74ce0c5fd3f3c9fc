"""From kernels to a program: building, loading, failing well, and reading the machine code back."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx as fx
from torch import Tensor

from compiler_lab.codegen.artifact import Kernels
from compiler_lab.codegen.cpp import generate
from compiler_lab.core.errors import CodegenFailed
from compiler_lab.core.fx import GraphArtifact
from compiler_lab.core.options import Options
from compiler_lab.core.provenance import Location
from compiler_lab.lowering.lower import lower
from compiler_lab.runtime import assembly, toolchain
from compiler_lab.runtime.assembly import Span, compile_to_assembly, is_vector
from compiler_lab.runtime.build import build, build_many, openmp_runtimes
from compiler_lab.runtime.program import Program, vector_instructions
from compiler_lab.runtime.toolchain import find_toolchain, run_compiler
from compiler_lab.scheduling.fusion import schedule

from .conftest import run_threads

aten = torch.ops.aten
HERE = Location(__file__, 1, "fn")
Call = Callable[..., fx.Node]


def kernels_of(body: Callable[..., list[fx.Node]], *example: Tensor) -> Kernels:
    """The kernels of an aten graph: ``body(call, *placeholders)`` writes it with ``call(op, *args)``."""
    from torch._subclasses import FakeTensorMode

    graph, mode = fx.Graph(), FakeTensorMode()

    def marked(node: fx.Node, value: Any) -> fx.Node:
        node.meta.update(val=value, stack=(HERE,), parents=("user/line",))
        return node

    def call(op: Any, *args: Any) -> fx.Node:
        with mode:
            value = op(*fx.map_arg(args, lambda n: n.meta["val"]))
        return marked(graph.call_function(op, args), value)

    inputs = [marked(graph.placeholder(f"x{i}"), mode.from_tensor(t)) for i, t in enumerate(example)]
    marked(graph.output(tuple(body(call, *inputs))), None)
    return generate(schedule(lower(GraphArtifact(fx.GraphModule({}, graph), "aot.forward"))))


def gelu_times(call: Call, x: fx.Node, w: fx.Node) -> list[fx.Node]:
    return [call(aten.mul.Tensor, call(aten.gelu.default, x), w)]


def product(call: Call, x: fx.Node, w: fx.Node) -> list[fx.Node]:
    return [call(aten.mm.default, x, w)]


def mixed(call: Call, x: fx.Node, w: fx.Node) -> list[fx.Node]:
    y = call(aten.mm.default, call(aten.tanh.default, x), w)
    return [call(aten.add.Tensor, call(aten.sigmoid.default, y), 1.0), call(aten.sum.dim_IntList, y, [1], False)]


X, W = torch.randn(96, 96, generator=torch.Generator().manual_seed(0)), torch.randn(96, 96, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(cache_dir=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return build(kernels_of(gelu_times, X, W), Options(cache_dir=str(tmp_path_factory.mktemp("cache"))))


def compilers() -> list[str]:
    return [name for name in ("g++", "clang++") if shutil.which(name)]


# ---- what is built runs ----


@pytest.mark.parametrize("cxx", compilers())
def test_a_program_computes_what_eager_does(cxx: str, tmp_path: Path) -> None:
    made = build(kernels_of(mixed, X, W), Options(cxx=cxx, cache_dir=str(tmp_path)))
    made.check()
    y = X.tanh() @ W
    torch.testing.assert_close(made(X, W), (y.sigmoid() + 1, y.sum(1)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.run(X, W), made(X, W))


def test_extern_calls_alone_need_no_compiler(tmp_path: Path) -> None:
    made = build(kernels_of(product, X, W), Options(cxx=str(tmp_path / "none"), cache_dir=str(tmp_path)))
    made.check()
    assert made.library is None and made.assembly() == () and made.items() == ()
    torch.testing.assert_close(made(X, W), (X @ W,))
    assert "aten.mm.default" in made.text() and not list(tmp_path.iterdir())


def test_calls_from_many_threads_do_not_disturb_each_other(options: Options) -> None:
    made = build(kernels_of(mixed, X, W), options)
    inputs = [(X + i, W) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for (x, w), got in zip(inputs, pool.map(lambda a: made(*a), inputs), strict=True):
                torch.testing.assert_close(got[1], (x.tanh() @ w).sum(1), rtol=1e-4, atol=1e-4)


def test_build_many_is_build(options: Options) -> None:
    kernels = [kernels_of(body, X, W) for body in (gelu_times, product, mixed)]
    for together, alone in zip(build_many(kernels, options), [build(k, options) for k in kernels], strict=True):
        assert together.text() == alone.text() and together.library == alone.library
        torch.testing.assert_close(together(X, W), alone(X, W))
    assert build_many([], options) == ()


def test_one_openmp_runtime_in_the_process() -> None:
    """torch is imported first, so the library's OpenMP is torch's: its thread count is the kernels' too."""
    found = openmp_runtimes()
    if not found:
        pytest.skip("this system does not tell what is loaded")
    program_ = """
import tests.test_build as t
t.build(t.kernels_of(t.gelu_times, t.X, t.W))
print(len(t.openmp_runtimes()))
"""
    ran = subprocess.run([sys.executable, "-c", program_], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1" and "two OpenMP" not in ran.stderr


def test_a_traceback_shows_the_wrapper_in_python(options: Options) -> None:
    built = build(dataclasses.replace(kernels_of(gelu_times, X, W), calls=None), options)
    with pytest.raises(TypeError, match="call"):
        built.call()
    with pytest.raises(Exception) as caught:
        built.call(X, "no tensor")
    shown = "".join(traceback.format_exception(caught.value))
    assert "codegen.forward wrapper" in shown
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if "wrapper" in f.filename]
    assert frames and all(f.line for f in frames), "each frame of the wrapper shows its line"


# ---- the cache ----


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(command: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"a process was started: {command}")

    monkeypatch.setattr(subprocess, "Popen", started)


def test_a_warm_start_runs_no_process(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = kernels_of(gelu_times, X, W)
    first = build(kernels, options)
    toolchain._probed.cache_clear()
    forbid(monkeypatch)
    second = build(kernels, options)
    assert second.library == first.library
    torch.testing.assert_close(second(X, W), first(X, W))
    with pytest.raises(AssertionError, match="a process was started"):
        build(kernels_of(mixed, X, W), options)


@pytest.mark.parametrize("size", [0, 100, -8])
def test_a_damaged_library_is_built_again(options: Options, size: int) -> None:
    kernels = kernels_of(gelu_times, X, W)
    first = build(kernels, options).library
    assert first is not None
    whole = first.read_bytes()
    first.unlink()  # a new file: the one that this process has mapped must keep its bytes
    first.write_bytes(whole[:size])
    again = build(kernels, options)
    assert again.library is not None and again.library.read_bytes() == whole, "the same source gives the same bytes"
    torch.testing.assert_close(again(X, W), (torch.nn.functional.gelu(X) * W,))


def test_a_damaged_record_of_the_compiler_is_probed_again(options: Options) -> None:
    first = find_toolchain("", options.cache_dir)
    (record,) = Path(options.cache_dir).rglob("toolchain-*.json")
    for text in ("", "{}", "[]", '{"path": 3', '{"unknown": 1}'):
        record.write_text(text)
        toolchain._probed.cache_clear()
        assert find_toolchain("", options.cache_dir) == first
        toolchain._probed.cache_clear()


def test_the_key_depends_on_everything_that_matters(options: Options) -> None:
    kernels = kernels_of(gelu_times, X, W)
    other = dataclasses.replace(kernels, source=kernels.source + "// a remark\n")
    found = {build(k, options).library for k in (kernels, other)}
    for cxx in compilers()[1:]:
        found.add(build(kernels, dataclasses.replace(options, cxx=cxx)).library)
    assert len(found) == 1 + len(compilers())


# ---- failing well ----


def with_source(kernels: Kernels, change: Callable[[str], str]) -> Kernels:
    lines = tuple(dataclasses.replace(n, text=change(n.text)) for n in kernels.lines)
    return dataclasses.replace(kernels, lines=lines, source="".join(f"{n.text}\n" for n in lines))


def test_rejected_source_names_both_lines_and_is_kept(options: Options) -> None:
    kernels = kernels_of(gelu_times, X, W)
    broken = with_source(kernels, lambda text: text.replace("vm_erf_f32", "no_such_function"))
    assert broken.source != kernels.source
    with pytest.raises(CodegenFailed) as caught:
        build(broken, options)
    message = str(caught.value)
    assert "no_such_function" in message and re.search(r"kernels\.cpp:\d+: ", message)
    assert caught.value.where == HERE, "the user's line"
    kept = Path(message.rsplit(" ", 1)[1])
    assert (kept / "kernels.cpp").read_text() == broken.unit and (kept / "lab_math.h").exists()
    shutil.rmtree(kept)
    assert not list(Path(options.cache_dir).rglob("*.so")), "nothing half-built is kept"
    torch.testing.assert_close(build(kernels, options)(X, W), (torch.nn.functional.gelu(X) * W,))


def fake_compiler(folder: Path, script: str) -> str:
    """Passes the probe on to the real compiler, and does ``script`` with kernels."""
    path = folder / "g++"
    path.write_text(f'#!/bin/sh\ncase "$*" in *probe.cpp*) exec {shutil.which("g++")} "$@";; esac\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", "Killed signal terminated"),
        ("echo nothing of use; exit 1", "nothing of use"),
    ],
)
def test_a_compiler_that_fails_or_is_killed(tmp_path: Path, script: str, says: str) -> None:
    options = Options(cxx=fake_compiler(tmp_path, script), cache_dir=str(tmp_path))
    with pytest.raises(CodegenFailed, match=re.escape(says)) as caught:
        build(kernels_of(gelu_times, X, W), options)
    shutil.rmtree(str(caught.value).rsplit(" ", 1)[1])
    with pytest.raises(CodegenFailed):
        build_many([kernels_of(gelu_times, X, W), kernels_of(mixed, X, W)], options)


def test_a_compiler_that_does_not_work_at_all(tmp_path: Path) -> None:
    for script, says in (("exit 3", "exit status 3"), ("kill -9 $$", "SIGKILL"), ("exit 0", "exit status 0")):
        path = tmp_path / f"g++{len(script)}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        with pytest.raises(CodegenFailed, match="cannot build a shared library") as caught:
            find_toolchain(str(path), str(tmp_path))
        assert says in str(caught.value) and "apt install g++" in str(caught.value)


def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    path = fake_compiler(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; wait")
    start = time.perf_counter()
    ran = run_compiler([path, "kernels.cpp"], tmp_path, seconds=1.0)
    assert ran.code is None and "did not finish in time" in ran.reason("g++") and time.perf_counter() - start < 20
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("the compiler's child is still running")


def test_no_compiler_is_one_sentence_about_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CodegenFailed, match="no C\\+\\+ compiler was found") as caught:
        build(kernels_of(gelu_times, X, W), Options(cache_dir=str(tmp_path)))
    for way in ("apt install g++", "dnf install gcc-c++", "xcode-select --install", "cxx-compiler"):
        assert way in str(caught.value)


def test_a_library_without_its_function_is_refused(options: Options) -> None:
    kernels = kernels_of(gelu_times, X, W)
    assert kernels.calls is not None
    unnamed = dataclasses.replace(kernels, calls=dataclasses.replace(kernels.calls, source=kernels.calls.source.replace("lab_attach", "other")))
    wrong = dataclasses.replace(kernels, calls=None, kernels=tuple(dataclasses.replace(k, name="k99") for k in kernels.kernels))
    for broken, name in ((unnamed, "lab_attach"), (wrong, "k99")):
        with pytest.raises(CodegenFailed, match="could not be loaded") as caught:
            build(broken, options)
        assert name in str(caught.value)


def test_flags_that_a_compiler_lacks_are_left_out_and_said_once(tmp_path: Path) -> None:
    path = tmp_path / "g++"
    real = shutil.which("g++")
    path.write_text(f'#!/bin/sh\nfor a in "$@"; do case "$a" in -fopenmp|-march=native) echo "error: $a unknown"; exit 1;; esac; done\nexec {real} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    with pytest.warns(RuntimeWarning) as caught:
        found = find_toolchain(str(path), str(tmp_path))
        assert find_toolchain(str(path), str(tmp_path)) == found
    assert sorted(str(w.message) for w in caught) == sorted(f"compiler_lab: {note}" for note in found.notes)
    assert not found.openmp and len(found.notes) == 2 and "-fopenmp" not in found.flags
    made = build(kernels_of(mixed, X, W), Options(cxx=str(path), cache_dir=str(tmp_path)))
    torch.testing.assert_close(made(X, W)[1], (X.tanh() @ W).sum(1), rtol=1e-4, atol=1e-4)


# ---- the machine code ----


@pytest.fixture(params=["objdump", "compiler"])
def code(request: pytest.FixtureRequest, built: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[assembly.AssemblyLine, ...]]:
    if request.param == "compiler":
        monkeypatch.setattr(assembly, "disassemble", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    elif shutil.which("objdump") is None:
        pytest.skip("objdump is not installed")
    fresh = Program(built.kernels, built.library, built.toolchain, built.call)
    yield fresh.assembly()


def test_assembly_leads_to_the_source(code: tuple[assembly.AssemblyLine, ...], built: Program) -> None:
    (kernel,) = built.kernels.kernels
    assert {line.kernel for line in code} == {kernel.name}
    mapped = [line for line in code if line.source_line is not None]
    assert len(mapped) > 0.9 * len(code)
    inside = [line for line in mapped if kernel.first <= (line.source_line or 0) <= kernel.last]
    assert len(inside) == len(mapped)
    inlined = [line for line in code if line.is_vector and line.via]
    assert len(inlined) > 10 and all(re.fullmatch(r"lab_math\.h:\d+", line.via) for line in inlined)


def test_inlined_math_leads_to_the_line_that_calls_it(built: Program) -> None:
    if shutil.which("objdump") is None or built.toolchain is None or built.toolchain.kind != "gcc":
        pytest.skip("asks objdump about g++'s inlining")
    erf = [n.number for n in built.kernels.lines if "vm_erf_f32" in n.text]
    found = [line for line in built.assembly() if line.via and "fmadd" in line.text]
    assert found and {line.source_line for line in found} <= set(erf)


def test_assembly_has_no_addresses(code: tuple[assembly.AssemblyLine, ...]) -> None:
    text = "\n".join(line.text for line in code)
    assert not re.search(r"<\w+\+0x|\b[0-9a-f]{4,} <|-?0x[0-9a-f]+\(%rip\)|#", text)
    labels = {line.text[:-1] for line in code if line.text.endswith(":")}
    for target in re.findall(r"^  j\w+ (\S+)$", text, re.MULTILINE):
        assert target in labels, "each jump goes to a label that is there"


def test_assembly_is_the_same_in_another_folder(built: Program, tmp_path: Path) -> None:
    again = build(built.kernels, Options(cache_dir=str(tmp_path)))
    assert again.library != built.library
    assert again.assembly() == built.assembly() and again.text() == built.text()


def test_items_have_parents_in_the_source(built: Program) -> None:
    known = {i.id for i in built.kernels.items()}
    items = built.items()
    assert len({i.id for i in items}) == len(items)
    assert items[0].id == "runtime.forward/k0" and items[0].kind == "kernel" and items[0].location == HERE
    lines = [i for i in items if i.kind == "assembly"]
    assert len(lines) == len(built.assembly())
    for item in items:
        assert set(item.parents) <= known, item
    assert any(i.location == HERE for i in lines)
    built.to_json()


def test_assembly_that_cannot_be_had_is_a_note(built: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "disassemble", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    assert built.toolchain is not None
    gone = Program(built.kernels, built.library, dataclasses.replace(built.toolchain, path="/bin/false"), built.call)
    with pytest.raises(CodegenFailed, match="no assembly"):
        gone.assembly()
    note = gone.items()[-1]
    assert note.kind == "note" and "objdump" in note.text
    torch.testing.assert_close(gone(X, W), built(X, W))


def test_text_depends_on_no_machine(built: Program) -> None:
    text = built.text()
    assert str(built.library) not in text and "g++" not in text and "k0(" in text


@pytest.mark.parametrize("cxx", compilers())
def test_pointwise_kernels_use_vector_instructions(cxx: str, tmp_path: Path) -> None:
    made = build(kernels_of(gelu_times, X, W), Options(cxx=cxx, cache_dir=str(tmp_path)))
    found = vector_instructions(made, "k0")
    assert len(found) > 20 and any(i.startswith(("vfmadd", "mulps", "fmla")) for i in found)
    assert vector_instructions(made, "k1") == ()
    assert made.toolchain is not None
    spans = tuple(Span(k.name, k.first, k.last) for k in made.kernels.kernels)
    text = compile_to_assembly(made.kernels.unit, made.toolchain, spans)
    assert any(line.is_vector for line in text) and {line.kernel for line in text} == {"k0"}


@pytest.mark.parametrize(
    ("instruction", "vector"),
    [
        ("vfmadd213ps %ymm1,%ymm2,%ymm0", True), ("vaddpd %ymm1,%ymm2,%ymm0", True), ("mulps %xmm1,%xmm0", True), ("vmaxps (%rax),%zmm1,%zmm0", True),
        ("vpaddd %ymm1,%ymm2,%ymm0", True), ("vcmpltps %ymm1,%ymm2,%ymm0", True), ("fmla v0.4s, v1.4s, v2.4s", True), ("fadd z0.s, z1.s, z2.s", True),
        ("vaddss %xmm1,%xmm2,%xmm0", False), ("vxorps %xmm1,%xmm1,%xmm1", False), ("vmovups (%rax),%ymm0", False), ("add $0x20,%rax", False),
        ("fadd s0, s1, s2", False), ("ld1 {v0.4s}, [x0]", False), ("mov v0.16b, v1.16b", False), ("vzeroupper", False), ("call expf@plt", False),
    ],
)  # fmt: skip
def test_what_counts_as_a_vector_instruction(instruction: str, vector: bool) -> None:
    assert is_vector(instruction) == vector


# ---- many at once ----


def test_processes_share_one_empty_cache(tmp_path: Path) -> None:
    kernels, options = kernels_of(gelu_times, X, W), Options(cache_dir=str(tmp_path))
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        libraries = [job.result(timeout=60) for job in [pool.submit(_library_of, kernels, options) for _ in range(3)]]
    assert len(set(libraries)) == 1 and len(list(tmp_path.rglob("*.so"))) == 1, "equal source gives equal bytes, so there is one entry"
    torch.testing.assert_close(build(kernels, options)(X, W), (torch.nn.functional.gelu(X) * W,))


def _library_of(kernels: Kernels, options: Options) -> str:
    return str(build(kernels, options).library)


def test_threads_share_one_empty_cache(options: Options) -> None:
    kernels = kernels_of(gelu_times, X, W)
    run_threads([lambda: torch.testing.assert_close(build(kernels, options)(X, W), (torch.nn.functional.gelu(X) * W,))] * 4)


def test_no_folder_is_left_behind(options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    build(kernels_of(gelu_times, X, W), options).assembly()
    assert os.listdir(tmp_path / "tmp") == []


def test_an_unbuildable_temporary_folder_is_said(options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find_toolchain("", options.cache_dir)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(CodegenFailed, match="temporary folder"):
        build(kernels_of(gelu_times, X, W), options)
