"""The words of the pipeline view: titles, explanations, and the sentence of every reason.

``reasons.json`` is written by ``tests/test_view.py --update-golden`` from the stages' own catalogues, and held equal to them by it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

SECTIONS: dict[str, str] = {  # kind of an item -> the section it stands in
    "instruction": "Bytecode",
    "replacement": "The bytecode that replaced it",
    "placeholder": "Graph",
    "get_attr": "Graph",
    "call_function": "Graph",
    "call_method": "Graph",
    "call_module": "Graph",
    "output": "Graph",
    "guard": "Guards: what must hold for this code to run",
    "break": "Graph breaks",
    "kernel": "Kernels",
    "line": "C++ source",
    "triton": "Triton source",
    "call": "The wrapper that calls the kernels, in C",
    "wrapper": "The same calls in Python",
    "assembly": "Assembly",
    "figures": "Memory plan",
    "slot": "Memory plan",
    "network": "The flow network of the cut",
}
ORDER: tuple[str, ...] = tuple(dict.fromkeys(SECTIONS.values()))
TYPES: dict[str, str] = {  # type of an artifact -> the section of items of any other kind
    "LoopProgram": "Loops and library calls",
    "Schedule": "Kernels, library calls and what they hold",
    "GuardTree": "Guard tree",
    "Phases": "Phases, each inside the one above it",
    "CallProfile": "Kernels and library calls of the call that was measured",
}
EXPLANATIONS: dict[str, str] = {
    "capture": "The frame's bytecode was run symbolically: tensor operations became nodes, everything else was done once. Guards say when this may be reused.",
    "joint": "Forward and backward, traced together below autograd: every node is one aten operator.",
    "functionalize": "No node writes to a tensor any more: in-place operators became pure ones, and writes through views were put back into their base.",
    "eliminate dead code": "Nodes that no output needs are gone.",
    "decompose": "Large operators are opened into small ones, so that their pieces can fuse with their neighbours.",
    "simplify views": "Views of views became one, views that change nothing are gone.",
    "eliminate common subexpressions": "The same operator on the same operands is computed once.",
    "partition": "The joint graph is cut in two. What crosses the cut is kept in memory until the backward; the rest is recomputed.",
    "post grad passes": "Inductor's own passes on one half: patterns are replaced, what does nothing is gone.",
    "lower": "Every operator is a loop over an index, or a call of a library. Views cost nothing: they are strides.",
    "schedule": "Loops that share data became one kernel, if nothing spoke against it; each pair has its reason.",
    "plan memory": "Buffers that never live at the same time share one place.",
    "generate": "One C++ function for each kernel, and one that calls them in order, in C and again in Python.",
    "build": "What the C++ compiler made of it. Where one line of C++ became many instructions, each knows its line.",
    "guard": "The guards as a tree over the values they look at: the compiled code runs only while all of them hold.",
    "phases": "What torch.compile was doing, as it times itself.",
    "profile": "One call, measured kernel by kernel.",
}
PHASES: dict[str, str] = {
    "capture": "Capture",
    "guard": "Capture",
    "phases": "Time",
    "profile": "Time",
    "forward": "Forward kernels",
    "backward": "Backward kernels",
}
LOST: dict[str, str] = {
    "python": "no tensor operation: Python did it once, while capturing",
    "half": "nothing of it is needed in this half",
    "ends": "here it is only an input or a result",
    "library": "it runs in a library's kernel, whose machine code is not ours",
    "": "nothing here comes from it",
}


@functools.cache
def _reasons() -> Mapping[str, Mapping[str, str]]:
    """kind of a decision -> reason -> sentence."""
    data = json.loads(resources.files(__package__ or __name__).joinpath("reasons.json").read_text(encoding="utf-8"))
    return {kind: catalogue["reasons"] for catalogue in data.values() for kind in catalogue["kinds"]}


def sentence(kind: str, reason: str) -> str:
    """What a reason means, or "" where no catalogue has it."""
    return _reasons().get(kind, {}).get(reason, "")


def phase(step: Mapping[str, Any]) -> str:
    return PHASES.get(step["name"]) or PHASES.get(step["part"]) or "Autograd"


def why_lost(why: str) -> str:
    """The sentence for ``why`` of a lost line: see ``compiler_lab.observe.html.view_data``."""
    if why in LOST:
        return LOST[why]
    kind, outcome, reason = why.split("|")
    said = sentence(kind, reason) or reason
    return f"{outcome}: {said[:1].lower()}{said[1:].rstrip('.')}"
