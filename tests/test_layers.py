"""Imports go leftward only, and a stage sees of the stages to its left nothing but their artifact types."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import compiler_lab

ROOT = Path(compiler_lab.__file__).parent
ORDER = ("core", "frames", "graph", "aot", "lowering", "scheduling", "codegen", "runtime")
# Modules of a stage that hold its artifact types, the vocabulary of its IR, or the meaning of its nodes.
TYPES = {
    "frames": {"ir", "frame"},
    "graph": set[str](),
    "aot": {"ir"},
    "lowering": {"ir", "index", "ops", "product", "program", "interpret", "printer", "reals", "serial", "sizes", "symbols"},
    "scheduling": {"ir", "artifact"},
    "codegen": {"ir", "artifact"},
}


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Absolute dotted names, inside the package, of what ``path`` imports anywhere."""
    here = ("compiler_lab", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = (*here[: len(here) - node.level + 1],) if node.level else ()
            full = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*full, alias.name) for alias in node.names) if len(full) < 3 else [full]
        elif isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_leftward(path: Path) -> None:
    stage = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        if name[:1] != ("compiler_lab",) or len(name) < 2:
            continue
        target, module = name[1], name[2] if len(name) > 2 else ""
        if stage in ORDER:
            assert target in ORDER and ORDER.index(target) <= ORDER.index(stage), f"{path.name} imports {'.'.join(name)}, to its right"
            if target not in (stage, "core"):
                assert module in TYPES[target], f"{path.name} imports {'.'.join(name)}: of another stage only its artifact types"
        elif stage == "observe":
            assert target in ("core", "observe"), f"observe imports {'.'.join(name)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_stage_uses_the_real_compiler(path: Path) -> None:
    """The frame hook needs one enum of torch._dynamo; beyond that, and beyond observing it, the real stack is nobody's tool."""
    if path.name == "torch_reference.py":
        return
    text = path.read_text()
    forbidden = [w for w in ("torch._inductor", "make_fx", "torch.compile(", "functorch.compile") if any(_code(line, w) for line in text.splitlines())]
    assert not forbidden, f"{path.name} uses {forbidden}"
    for line in text.splitlines():
        if "torch._dynamo" in line and line.lstrip().startswith(("import ", "from ")):
            assert path.name == "hook.py" and "GuardManagerType" in line, line


def _code(line: str, word: str) -> bool:
    return word in line and line.lstrip().startswith(("import ", "from "))


def test_none_is_compared_by_value() -> None:
    """A None that came from outside is not ``NONE``, the value: what compares with that takes it for something else."""
    lines = [line for path in (ROOT / "frames").rglob("*.py") for line in path.read_text().splitlines()]
    assert not [line for line in lines if re.search(r"\bis (not )?NONE\b", line)]


def test_widgets_know_no_stage() -> None:
    import compiler_lab_widgets

    for path in Path(compiler_lab_widgets.__file__).parent.rglob("*.py"):
        assert not [line for line in path.read_text().splitlines() if re.match(r"\s*(import|from)\s+compiler_lab\b", line)], path.name


def test_importing_the_package_stays_light() -> None:
    """No compiler of torch's and no stage is imported before the first compile."""
    code = "import torch, sys; before = set(sys.modules); import compiler_lab; print(*sorted(set(sys.modules) - before))"
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in new if m.startswith(("torch._dynamo", "sympy", "IPython", "compiler_lab.pipeline"))], new
    assert len(new) < 20, new


def test_public_names_survive_the_import_of_every_submodule() -> None:
    code = """
import importlib, pkgutil, compiler_lab
before = {n: getattr(compiler_lab, n) for n in compiler_lab.__all__}
assert list(compiler_lab.__all__) == sorted(compiler_lab.__all__)
for m in pkgutil.walk_packages(compiler_lab.__path__, "compiler_lab."):
    try:
        importlib.import_module(m.name)
    except ModuleNotFoundError as error:  # an extra, or the command line's, that is not installed here
        assert error.name.partition(".")[0] in ("IPython", "nbformat", "nbconvert", "typer", "rich"), error
after = {n: getattr(compiler_lab, n) for n in compiler_lab.__all__}
assert before == after, [n for n in before if before[n] is not after[n]]
assert all(callable(v) for v in after.values())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
