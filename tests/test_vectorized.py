"""Which loops were vectorised, in the compiler's own words: by line, with the reason where one was not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compiler_lab.core.options import Options
from compiler_lab.runtime.build import build
from compiler_lab.runtime.vectorized import SILENT, Loop, innermost, judged

from .conftest import require
from .test_codegen import kernels_of

COMPILERS = ("g++", "clang++")
VECTORISED: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "pointwise": (lambda x: torch.exp(x) * 2, (64, 64)),
    "row": (lambda x: torch.softmax(x, 1), (16, 256)),
    "column": (lambda x: x.sum(0), (64, 256)),
}


@pytest.mark.parametrize("cxx", COMPILERS)
@pytest.mark.parametrize("name", VECTORISED)
def test_a_loop_that_was_vectorised_says_so(name: str, cxx: str) -> None:
    f, size = VECTORISED[name]
    require(cxx)
    program = build(kernels_of(f, torch.randn(size)), Options(cxx=cxx))
    report = program.loops()
    report.check()
    assert any(x.vectorised for x in report.loops)
    if cxx == "g++":
        assert max(x.bytes for x in report.loops) in (16, 32, 64), report.text()
        assert any(line.is_vector for line in program.assembly() if line.source_line and report.loops[0].line <= line.source_line <= report.loops[0].last)
    assert program.loops() is report, "asked once"


@pytest.mark.parametrize("cxx", COMPILERS)
def test_a_loop_with_a_call_gives_the_compilers_reason(cxx: str) -> None:
    require(cxx)
    report = build(kernels_of(torch.lgamma, torch.randn(64)), Options(cxx=cxx)).loops()
    (loop,) = report.loops
    assert not loop.vectorised and loop.why != SILENT
    assert "lgamma" in loop.why if cxx == "g++" else "cannot be vectorized" in loop.why
    assert report.text() == f"k0 line {loop.line}: not vectorised: {loop.why}"


def test_items_lead_to_the_line_and_to_the_users() -> None:
    kernels = kernels_of(lambda x: torch.exp(x) * 2, torch.randn(64, 64))
    report = build(kernels).loops()
    (item,) = report.items()
    head = kernels.lines[item.facts["source_line"] - 1]
    assert head.text.strip().startswith("for (") and item.parents == (kernels.line_id(head),)
    assert item.stack[0].file == "user.py" and item.facts["vectorised"] and item.facts["why"] == ""


def test_a_program_without_kernels_has_no_loops() -> None:
    assert build(kernels_of(torch.mm, torch.randn(2, 3), torch.randn(3, 2))).loops().loops == ()


def test_innermost_loops_are_found_with_the_pragma_before_them() -> None:
    kernels = kernels_of(lambda x: torch.softmax(x, 1), torch.randn(16, 256))
    text = [line.text.strip() for line in kernels.lines]
    loops = list(innermost(kernels))
    assert len(loops) >= 2
    for x in loops:
        assert text[x.line - 1].startswith("for (") and (x.first == x.line or text[x.first - 1].startswith("#pragma"))
        assert not any(t.startswith("for (") for t in text[x.line : x.last])


def test_the_vectorised_version_of_a_loop_counts() -> None:
    from compiler_lab.runtime.vectorized import REMARKS

    output = """kernels.cpp:5:10: missed: couldn't vectorize loop
kernels.cpp:6:3: missed: not vectorized: control flow in loop.
lab_math.h:9:1: missed: statement clobbers memory: _3 = call (x_2);
kernels.cpp:5:10: optimized: loop vectorized using 16 byte vectors
kernels.cpp:9:10: optimized: loop vectorized using 32 byte vectors
kernels.cpp:12:10: missed: couldn't vectorize loop
kernels.cpp:13:3: missed: not vectorized: unsupported use in stmt.
"""
    loops = [Loop("k0", 4, 5, 7), Loop("k0", 8, 9, 10), Loop("k0", 12, 12, 14), Loop("k0", 20, 20, 21)]
    found = judged(loops, REMARKS["gcc"](output))
    assert [(x.vectorised, x.bytes, x.why) for x in found] == [(True, 16, ""), (True, 32, ""), (False, 0, "unsupported use in stmt"), (False, 0, SILENT)]
