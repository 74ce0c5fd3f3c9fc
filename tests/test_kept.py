"""Entries of earlier processes: found and right where nothing has changed, never used where something has; whatever happens to the files.

Most of it plays two processes in one: a program's text is run twice, in a module that is new each time. What only a process can show
(nothing of torch's own compiler is imported, no compiler is started) is in the last tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_lab
from compiler_lab.core.plain import NotPlain, code_print, decode, encode, print_of
from compiler_lab.runtime.cache import Cache

from .conftest import same

HEAD = "import torch, math\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
PROGRAMS: dict[str, str] = {
    "pointwise": "def make(): return (lambda x: x + 1), (torch.randn(8),), {}",
    "global": "K = 3\nSCALE = 0.5\ndef f(x): return x * K * SCALE\ndef make(): return f, (torch.randn(4, 3),), {}",
    "helper": "def g(x, s=2.0): return torch.tanh(x) * s\ndef f(x): return g(x) + g(x, s=3.0)\ndef make(): return f, (torch.randn(4, 3),), {}",
    "closure": "def make():\n    w, k = torch.ones(3), 2\n    def f(x, *, alpha=1.5): return F.gelu(x) * w * alpha + k\n    return f, (torch.randn(2, 3),), {}",
    "keywords": "def f(x, *rest, flag=True, **more): return (x if flag else -x) + sum(rest) + more['y']\n"
    "def make(): return f, (torch.randn(3), torch.randn(3), torch.randn(3)), dict(y=torch.randn(3))",
    "config": "class Config:\n    rate = 2\n    def __init__(self): self.shift = 0.25\n    def scaled(self, x): return x * self.rate + self.shift\n"
    "cfg = Config()\ndef f(x): return cfg.scaled(x)\ndef make(): return f, (torch.randn(5),), {}",
    "module": "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin, self.scale = nn.Linear(4, 4), 2\n"
    "        self.register_buffer('shift', torch.ones(4))\n    def helper(self, x): return x * self.scale + self.shift\n"
    "    def forward(self, x): return self.helper(torch.relu(self.lin(x)))\n"
    "def make():\n    class Local(Block): pass\n    return Local(), (torch.randn(2, 4),), {}",
    "layers": "def make(): return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), (torch.randn(4, 8, requires_grad=True),), {}",
    "attention": "def make(): return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval(), (torch.randn(2, 3, 8),), {}",
    "statistics": "def make(): return nn.BatchNorm1d(3).train(), (torch.randn(4, 3),), {}",
    "views": "def f(x):\n    y = x * 2\n    return y.t(), y[0], x.view(-1), 5, None\ndef make(): return f, (torch.randn(2, 3, requires_grad=True),), {}",
    "in place": "def f(x, y):\n    x.add_(1)\n    return x * y\ndef make(): return f, (torch.randn(3), torch.randn(3)), {}",
    "structure": "def f(d, pair): return {'sum': d['a'] + pair[0], 'both': [pair[1] * 2, d['n']]}\n"
    "def make(): return f, (dict(a=torch.randn(3), n=4), (torch.randn(3), torch.randn(3))), {}",
    "may raise": "def f(table, at): return F.embedding(at, table).sum(1)\n"
    "def make(): return f, (torch.randn(5, 3, requires_grad=True), torch.tensor([[0, 4]])), {}",
    "tensor constant": "def f(x): return x + torch.tensor([1.0, 2.0, 3.0])\ndef make(): return f, (torch.randn(3),), {}",
    "made object": "class Pair:\n    def __init__(self, a): self.a = a\ndef f(x): return Pair(x + 1).a * 2\ndef make(): return f, (torch.randn(3),), {}",
    "modes": "def f(x):\n    with torch.no_grad(): y = x * 2\n    return y + x\ndef make(): return f, (torch.randn(3, requires_grad=True),), {}",
    "random": "def f(x): return F.dropout(x, 0.5) * 2 + torch.zeros_like(x)\ndef make(): return f, (torch.zeros(64),), {}",
    "no kernels": "def f(a, b): return a @ b\ndef make(): return f, (torch.randn(3, 4), torch.randn(4, 2)), {}",
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Entries are kept, in a folder of this test."""
    monkeypatch.setenv("COMPILER_LAB_ENTRIES", "1")
    compiler_lab.reset()
    yield tmp_path
    sys.modules.pop("kept_program", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests that begin with what others may have kept."""
    return tmp_path_factory.mktemp("kept")


def run_text(text: str) -> types.ModuleType:
    """The module that a process would make of a program."""
    module = types.ModuleType("kept_program")
    module.__file__ = "/nowhere/kept_program.py"
    sys.modules["kept_program"] = module
    exec(compile(HEAD + text, "<kept program>", "exec"), module.__dict__)
    return module


def outcome(fn: Any, args: Any, kwargs: Any) -> Any:
    """Results, what became of the arguments and buffers, and gradients of whatever requires one."""
    result = fn(*args, **kwargs)
    parts = result if isinstance(result, tuple) else tuple(result.values()) if isinstance(result, dict) else (result,)
    total = sum(p.square().sum() for p in parts if isinstance(p, torch.Tensor) and p.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    state = [p.grad for p in fn.parameters()] + list(fn.buffers()) if isinstance(fn, torch.nn.Module) else []
    return result, state, [a.grad for a in args if isinstance(a, torch.Tensor)], args


def call(text: str, folder: Path, before: Callable[[types.ModuleType], None] | None = None) -> dict[str, int]:
    """Runs a program compiled and eager, holds them equal, and gives what this found and kept."""
    found, graphs = compiler_lab.cache_info(str(folder)), compiler_lab.stats()["graphs"]
    outcomes: list[Any] = []
    for compiled in (True, False):
        torch.manual_seed(0)
        module = run_text(text)
        fn, args, kwargs = module.make()
        if before is not None:
            before(module)
        outcomes.append(outcome(compiler_lab.compile(fn, options={"cache_dir": str(folder)}) if compiled else fn, args, kwargs))
    same(*outcomes, rtol=1e-4, atol=1e-5)
    now = compiler_lab.cache_info(str(folder))
    return {"found": now["found"] - found["found"], "kept": now["kept"] - found["kept"], "graphs": compiler_lab.stats()["graphs"] - graphs}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_finds_what_the_first_one_kept(name: str, kept: Path) -> None:
    assert call(PROGRAMS[name], kept) == {"found": 0, "kept": 1, "graphs": 1}, compiler_lab.cache_info(str(kept))["refused"]
    assert call(PROGRAMS[name], kept) == {"found": 1, "kept": 0, "graphs": 0}


CHANGES: dict[str, tuple[str, str, str]] = {
    "body": ("global", "x * K * SCALE", "x * K + SCALE"),
    "global": ("global", "K = 3", "K = 4"),
    "type of a global": ("global", "K = 3", "K = 3.0"),
    "sign of zero": ("global", "SCALE = 0.5", "SCALE = -0.0"),
    "body of a helper": ("helper", "torch.tanh(x) * s", "torch.tanh(x) - s"),
    "default of a helper": ("helper", "s=2.0", "s=2.5"),
    "contents of a cell": ("closure", "torch.ones(3), 2", "torch.ones(3), 3"),
    "keyword default": ("closure", "alpha=1.5", "alpha=2.5"),
    "flag": ("keywords", "flag=True", "flag=False"),
    "attribute of a class": ("config", "rate = 2", "rate = 3"),
    "attribute of an object": ("config", "0.25", "0.5"),
    "body of a method": ("config", "x * self.rate + self.shift", "x * self.rate - self.shift"),
    "size of a parameter": ("module", "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)"),
    "attribute of a module": ("module", "nn.Linear(4, 4), 2", "nn.Linear(4, 4), 3"),
    "method of a subclass": ("module", "class Local(Block): pass", "class Local(Block):\n        def helper(self, x): return x - 1"),
    "body of forward": ("module", "torch.relu(self.lin(x))", "torch.sigmoid(self.lin(x))"),
    "hook": ("module", "return Local(), (", "m = Local()\n    m.lin.register_forward_hook(lambda m, a, out: out * 2)\n    return m, ("),
    "order of layers": ("layers", "nn.GELU(), nn.LayerNorm(8)", "nn.LayerNorm(8), nn.GELU()"),
    "form of a layer": ("layers", "nn.GELU()", "nn.GELU(approximate='tanh')"),
    "training flag": ("statistics", ".train()", ".eval()"),
    "dtype": ("pointwise", "torch.randn(8)", "torch.randn(8).double()"),
    "strides": ("global", "torch.randn(4, 3)", "torch.randn(3, 4).t()"),
    "requires grad": ("pointwise", "torch.randn(8)", "torch.randn(8, requires_grad=True)"),
    "the same tensor twice": ("in place", "f, (torch.randn(3), torch.randn(3))", "f, (torch.randn(3),) * 2"),
    "type of what is passed on": ("structure", "n=4", "n=4.0"),
    "kind of container": ("structure", "(torch.randn(3), torch.randn(3)))", "[torch.randn(3), torch.randn(3)])"),
    "constant": ("tensor constant", "2.0", "2.5"),
    "class of what is made": ("made object", "self.a = a", "self.a = a * 3"),
    "mode": ("modes", "torch.no_grad()", "torch.enable_grad()"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_has_changed_is_compiled_anew(what: str, kept: Path, folder: Path) -> None:
    name, old, new = CHANGES[what]
    text = PROGRAMS[name]
    assert text.count(old) >= 1
    call(text, folder)
    assert call(text.replace(old, new), folder)["found"] == 0
    assert call(text, folder)["found"] == 1, "and the other one is still there"


SURROUNDINGS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], Any]]] = {
    "a function of torch": ("closure", lambda m: m.setattr(torch.nn.functional, "gelu", lambda x: x * 3)),
    "a method of a library's class": ("layers", lambda m: m.setattr(torch.nn.GELU, "forward", lambda self, x: x * 3)),
    "a function that a library calls": ("attention", lambda m: m.setattr(torch.nn.functional, "dropout", lambda x, *a, **k: x * 2)),
    "default dtype": ("tensor constant", lambda m: torch.set_default_dtype(torch.float64)),
    "grad mode": ("layers", lambda m: torch.set_grad_enabled(False)),
    "threads": ("pointwise", lambda m: torch.set_num_threads(1)),
    "determinism": ("pointwise", lambda m: torch.use_deterministic_algorithms(True)),
}


@pytest.mark.parametrize("what", SURROUNDINGS)
def test_in_other_surroundings_it_is_compiled_anew(what: str, kept: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, change = SURROUNDINGS[what]
    call(PROGRAMS[name], folder)
    threads = torch.get_num_threads()
    try:
        change(monkeypatch)
        assert call(PROGRAMS[name], folder)["found"] == 0
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)


def test_under_autocast_it_is_another_program(kept: Path) -> None:
    text = PROGRAMS["no kernels"]
    call(text, kept)
    with torch.autocast("cpu", torch.bfloat16):
        assert call(text, kept) == {"found": 0, "kept": 1, "graphs": 1}
        assert call(text, kept)["found"] == 1


def test_one_function_has_several_entries(kept: Path) -> None:
    texts = [f"def f(x): return x * 2\ndef make(): return f, (torch.randn({size}),), {{}}" for size in ("3", "4, 5", "2, 2, 2")]
    for text in texts:
        assert call(text, kept)["found"] == 0
    assert [call(text, kept)["found"] for text in texts] == [1, 1, 1]


def test_a_call_that_no_entry_fits_goes_the_usual_way(kept: Path) -> None:
    call(PROGRAMS["global"], kept)
    fn, (x,), _ = run_text(PROGRAMS["global"]).make()
    compiled = compiler_lab.compile(fn, options={"cache_dir": str(kept)})
    for value in (x, x.double(), torch.randn(2, 7), x):
        same(compiled(value), fn(value))
    info = compiler_lab.cache_info(str(kept))
    assert info["found"] == 1 and len(compiled.recompiles) == 2
    assert "f64" in compiled.recompiles[0].text() or "float64" in compiled.recompiles[0].text()


def test_what_raises_raises_as_ever(kept: Path) -> None:
    call(PROGRAMS["may raise"], kept)
    fn, (table, at), _ = run_text(PROGRAMS["may raise"]).make()
    compiled = compiler_lab.compile(fn, options={"cache_dir": str(kept)})
    compiled(table, at)
    assert compiler_lab.cache_info(str(kept))["found"] == 1
    with pytest.raises(IndexError, match="index out of range"):
        compiled(table, at + 3)


REFUSED: dict[str, tuple[str, str]] = {
    "a function is handed out": ("def f(x): return (lambda: 3), x + 1\ndef make(): return f, (torch.randn(3),), {}", "functions that are made in the frame"),
    "a frame with a break": ("def f(x):\n    y = x + 1\n    print(end='')\n    return y * 2\ndef make(): return f, (torch.randn(3),), {}", "no kernels"),
    "an object by identity": (
        "import random\ntoken = random.random\ndef f(x, t): return x + 1 if t is token else x\ndef make(): return f, (torch.randn(3), token), {}",
        "a guard that only holds",
    ),
    "a hash": ("def f(x): return x + hash('a') % 7\ndef make(): return f, (torch.randn(3),), {}", "something that may be another thing"),
    "a warning": ("import warnings\ndef f(x):\n    warnings.warn('so')\n    return x + 1\ndef make(): return f, (torch.randn(3),), {}", "warnings"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_kept_is_counted(what: str, kept: Path) -> None:
    text, reason = REFUSED[what]
    fn, args, _ = run_text(text).make()
    compiler_lab.compile(fn, options={"cache_dir": str(kept)})(*args)
    info = compiler_lab.cache_info(str(kept))
    assert info["kept"] == 0 and any(r.startswith(reason) for r in info["refused"]), info["refused"]


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-1] + b"x"], ids=["cut", "emptied", "changed"])
def test_a_damaged_entry_is_compiled_anew(damage: Callable[[bytes], bytes], kept: Path) -> None:
    call(PROGRAMS["global"], kept)
    for path in kept.rglob("*.entry"):
        path.write_bytes(damage(path.read_bytes()))
    assert call(PROGRAMS["global"], kept) == {"found": 0, "kept": 1, "graphs": 1}
    assert call(PROGRAMS["global"], kept)["found"] == 1


def test_an_entry_whose_kernels_are_gone_is_compiled_anew(kept: Path) -> None:
    call(PROGRAMS["global"], kept)
    for path in kept.rglob("*.so"):
        path.unlink()
    assert call(PROGRAMS["global"], kept) == {"found": 0, "kept": 1, "graphs": 1}


def test_a_folder_that_cannot_be_written_keeps_nothing(kept: Path) -> None:
    blocked = kept / "file"
    blocked.write_text("")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert call(PROGRAMS["global"], blocked) == {"found": 0, "kept": 0, "graphs": 1}


def test_no_entries_where_the_option_says_so_or_a_trace_is_wanted(kept: Path) -> None:
    text = PROGRAMS["pointwise"]
    call(text, kept)
    fn, args, _ = run_text(text).make()
    trace = compiler_lab.Trace("one")
    compiler_lab.compile(fn, options={"cache_dir": str(kept)}, observe=trace.append)(*args)
    compiler_lab.compile(fn, options={"cache_dir": str(kept), "entries": False})(*args)
    assert compiler_lab.cache_info(str(kept))["found"] == 0 and trace.steps[0].name == "capture"


def test_the_limit_on_size_takes_what_was_used_least_recently(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)  # three of them
    for n in range(8):
        key = f"{n:02d}" * 32
        assert cache.keep(key, bytes([n]) * 3_000)
        for path, _ in cache.entries(key):
            os.utime(path, (n, n))
    cache.trim()
    assert [n for n in range(8) if list(cache.entries(f"{n:02d}" * 32))] == [5, 6, 7]


# ---------------------------------------------------------------------------------------------------------- plain data


VALUES: tuple[Any, ...] = (
    *(None, True, 3, -0.0, 2j, "text", b"bytes", ..., (1, (2.0, "a")), [1, [2]], {"a": (1,), 2: None}, {1, 2}, frozenset({"x", "y"}), slice(1, None, 2)),
    *(range(1, 9, 3), torch.float32, torch.device("cpu"), torch.strided, torch.channels_last, torch.Size([2, 3]), torch.ops.aten.mm.default),
    *(torch.ops.aten.add, torch.relu, torch.nn.functional.gelu, torch.nn.functional.relu, torch.nn.Linear, dict, dict.get, torch, os.path.join),
    *(type(None), object.__setattr__, open),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_come_back(value: Any) -> None:
    back = decode(encode(value))
    assert type(back) is type(value) and (back is value or repr(back) == repr(value))


def test_tensors_come_back_with_their_layout() -> None:
    for value in (torch.randn(3, 4).t(), torch.arange(5), torch.tensor(True), torch.randn(2, 2).bfloat16(), torch.empty(0, 3)):
        back = decode(encode(value))
        assert back.stride() == value.stride() or value.numel() == 0
        torch.testing.assert_close(back, value, equal_nan=True)


@pytest.mark.parametrize("value", [object(), lambda: 0, torch.randn(3, requires_grad=True), torch.nn.Linear(2, 2)], ids=lambda v: type(v).__name__)
def test_what_has_no_form_is_refused(value: Any) -> None:
    with pytest.raises(NotPlain):
        encode(value)


def test_code_is_told_apart_by_what_it_does() -> None:
    one = compile("def f(x): return x in {'a', 'b', 'c'}", "one.py", "exec")
    two = compile("\n\n\ndef f(x): return x in {'c', 'b', 'a'}", "two.py", "exec")
    other = compile("def f(x): return x in {'a', 'b', 'd'}", "one.py", "exec")
    assert code_print(one) == code_print(two) != code_print(other)
    assert code_print(compile("1", "", "eval")) != code_print(compile("1.0", "", "eval"))
    assert print_of(torch.nn.Linear) != print_of(torch.nn.LayerNorm)


# ----------------------------------------------------------------------------------------------------------- processes

PROCESS = """
import subprocess, sys
import torch, torch.nn as nn, torch.nn.functional as F
import compiler_lab
started = []
real = subprocess.Popen.__init__
subprocess.Popen.__init__ = lambda self, args, *a, **k: (started.append(str(args[0])), real(self, args, *a, **k))[1]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
x = torch.randn(4, 8)
shift = 2
def loss(x): return model(x).square().mean() + shift
compiled = compiler_lab.compile(loss)
compiled(x).backward()
grads = [p.grad.clone() for p in model.parameters()]
model.zero_grad(); loss(x).backward()
right = all(torch.allclose(a, p.grad, rtol=1e-4, atol=1e-6) for a, p in zip(grads, model.parameters()))
print(right, "torch._dynamo" in sys.modules, "compiler_lab.pipeline" in sys.modules, len(started), compiler_lab.cache_info()["found"])
"""


def run_process(folder: Path, program: str = PROCESS) -> list[str]:
    env = {**os.environ, "COMPILER_LAB_CACHE_DIR": str(folder), "COMPILER_LAB_ENTRIES": "1", "PYTHONHASHSEED": str(len(list(folder.rglob("*"))))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_warm_process_imports_no_compiler_and_starts_none(tmp_path: Path) -> None:
    env = {**os.environ, "COMPILER_LAB_CACHE_DIR": str(tmp_path), "COMPILER_LAB_ENTRIES": "1"}
    together = [subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]  # into one folder, at once
    assert all(p.communicate()[0].startswith("True True True") for p in together)
    assert run_process(tmp_path) == ["True", "False", "False", "0", "1"]


WRITER = """
import sys
from pathlib import Path
from compiler_lab.runtime.cache import Cache
cache, n = Cache(Path(sys.argv[1])), 0
print("ready", flush=True)
while True:
    n += 1
    cache.keep(f"{n % 5:02d}" * 32, bytes([n % 251]) * 200_000)
    cache.publish(f"{n % 5:02d}" * 32, bytes([n % 241]) * 200_000, "source")
"""


def test_a_process_killed_while_it_writes_leaves_a_usable_cache(tmp_path: Path) -> None:
    for wait in (0.0, 0.003, 0.01, 0.03):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
        cache = Cache(tmp_path)
        for n in range(5):
            key = f"{n:02d}" * 32
            assert all(len(set(data)) == 1 and len(data) == 200_000 for _, data in cache.entries(key))
            found = cache.find(key)
            assert found is None or len(found.read_bytes()) == 200_000
        assert cache.keep("ff" * 32, b"new") and [data for _, data in cache.entries("ff" * 32)] == [b"new"]
