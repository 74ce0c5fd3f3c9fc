"""The film: every instruction that capture executes, with the stack, the locals, and what it added; nothing when nobody asks."""

from __future__ import annotations

import dis
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab
from compiler_lab.core.errors import InvalidIR
from compiler_lab.frames.film import Film, Filming
from compiler_lab.frames.interpreter import MAX_STEPS, Interpreter

X = torch.arange(6.0).reshape(2, 3)


def scaled(x: Any, k: Any) -> Any:
    return x * k


def program(x: Any, ks: Any) -> Any:
    total = x
    for k in ks:
        total = total + scaled(x, k)
    return total, len(ks)


def broken(x: Any) -> Any:
    y = x + 1
    print(y)
    return y


def generated(x: Any) -> Any:
    return sum(v * 2 for v in (x, x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            y = torch.relu(x)
        return self.fc(y)


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "calls and loops": (program, (X, [1, 2, 3])),
    "a break": (broken, (X,)),
    "a generator": (generated, (X,)),
    "a module": (Net(), (X,)),
    "a tensor and a number": (scaled, (X, 2.5)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_film_answers_the_five_questions(name: str) -> None:
    fn, args = PROGRAMS[name]
    captured = compiler_lab.capture(fn, *args, film=True)
    film = captured.film
    assert isinstance(film, Film)
    film.check()
    again = compiler_lab.capture(fn, *args, film=True).film
    assert again is not None and film.text() == again.text() and film.fingerprint() == again.fingerprint()
    assert " at 0x" not in film.text()
    items = {i.id: i for i in film.items()}
    shots = [i for i in items.values() if i.kind == "instruction"]
    assert len(shots) == len(film.frames) and all(items[i.parents[0]].kind == "line" and i.location is not None for i in shots)
    assert set(film.to_json()) == {"type", "stage", "text", "items", "decisions"}
    assert "frames.film" in film._repr_mimebundle_()["text/html"]
    if captured.graphs:
        torch.testing.assert_close(film.run(*args), fn(*args))
    else:
        with pytest.raises(compiler_lab.core.errors.Unsupported):  # type: ignore[attr-defined]
            film.run(*args)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_film_shows_the_capture_that_is_made_without_it(name: str) -> None:
    """Asking changes nothing: graph, guards and breaks are those of a capture that is not filmed, and all of them are in the film, once."""
    fn, args = PROGRAMS[name]
    plain, filmed = compiler_lab.capture(fn, *args), compiler_lab.capture(fn, *args, film=True)
    assert plain.film is None and filmed.film is not None
    assert plain.text() == filmed.text()
    shots = filmed.film.frames
    if filmed.specialization is not None:
        assert [g for s in shots for g in s.guards] == [g.text() for g in filmed.guards]
        assert len(shots) == filmed.specialization.notes["instructions"]
        nodes = sorted(n.name for n in filmed.graphs[0].graph.nodes if n.op != "output")
        assert sorted(text.split(":")[0] for s in shots for text in s.nodes if not text.startswith("return")) == nodes


def test_what_each_instruction_sees_and_adds() -> None:
    film = compiler_lab.capture(program, X, [1, 2], film=True).film
    assert film is not None
    multiply = [s for s in film.frames if s.instruction == "BINARY_OP *"]
    assert [s.depth for s in multiply] == [1, 1] and [s.location.function for s in multiply] == ["scaled", "scaled"]
    assert multiply[0].stack == ("l_x_: f32[2, 3]", "1")
    assert dict(multiply[0].locals) == {"x": "l_x_: f32[2, 3]", "k": "1"}
    assert multiply[0].nodes == ("mul: f32[2, 3] = operator.mul(l_x_, 1)",)
    loads = [s for s in film.frames if s.instruction == "LOAD_FAST ks"]
    assert loads[0].guards[0] == "L['ks']: type 'list'"
    assert "L['ks']: length 2" in [g for s in film.frames for g in s.guards]
    assert dict(film.frames[0].locals) == {"x": "(L['x'])", "ks": "(L['ks'])"}, "nothing has been looked at"
    first = [s.instruction.split()[0] for s in film.frames if s.depth == 0][:3]
    assert first == [i.opname for i in dis.get_instructions(program)][:3]


def test_a_break_ends_the_film() -> None:
    captured = compiler_lab.capture(broken, X, film=True)
    assert captured.film is not None
    last = captured.film.frames[-1]
    assert last.instruction.split()[0] == "CALL" and last.broke.startswith("output: the program prints")
    assert "builtin print" in last.stack
    assert [d.reason for d in captured.film.decisions] == ["output"]
    assert captured.film.text().splitlines()[-1].strip().startswith("break output")


def test_a_malformed_film_is_found() -> None:
    film = compiler_lab.capture(program, X, [1], film=True).film
    assert film is not None
    deeper = [s for s in film.frames if s.depth == 0][:1] + [replace(s, depth=3) for s in film.frames[:1]]
    with pytest.raises(InvalidIR, match="two calls deeper"):
        Film(tuple(deeper), lambda: None).check()
    ended = [replace(s, broke="x") for s in film.frames[:1]] + list(film.frames[:1])
    with pytest.raises(InvalidIR, match="something follows"):
        Film(tuple(ended), lambda: None).check()


def test_it_costs_nothing_when_nobody_asks() -> None:
    """The interpreter that films is another class; the plain one is not called before an instruction until its limit."""
    assert Interpreter.limit == MAX_STEPS and Filming.limit == 0
    calls: list[int] = []
    original = Interpreter.reached
    try:
        Interpreter.reached = lambda self, frame: calls.append(1)  # type: ignore[method-assign, assignment]
        compiler_lab.capture(program, X, [1, 2, 3])
    finally:
        Interpreter.reached = original  # type: ignore[method-assign]
    assert calls == []
