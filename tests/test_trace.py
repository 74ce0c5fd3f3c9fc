"""Traces: recorded, saved, loaded, damaged; lineage over them; the view's data and HTML."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from compiler_lab.core.artifact import Artifact, Decision, Item
from compiler_lab.core.errors import InvalidIR, Unsupported
from compiler_lab.core.provenance import Location
from compiler_lab.observe import html
from compiler_lab.observe.lineage import lineage
from compiler_lab.observe.trace import Step, Trace

HERE = __file__


class Listing(Artifact):
    """The smallest artifact: lines with parents."""

    def __init__(self, stage: str, items: tuple[Item, ...], decisions: tuple[Decision, ...] = ()) -> None:
        self.stage, self._items, self.decisions = stage, items, decisions

    def text(self) -> str:
        return "\n".join(i.text for i in self._items)

    def items(self) -> tuple[Item, ...]:
        return self._items

    def check(self) -> None: ...

    def run(self, *args: Any) -> Any:
        return args


def at(line: int) -> tuple[Location, ...]:
    return (Location(HERE, line, "f"),)


def example(text: str = "x + y") -> Trace:
    first = Listing("frames", (Item("frames/a", "call_function", text, (), at(3)), Item("frames/b", "call_function", "b", (), at(4))))
    again = Listing("frames", (Item("frames/a", "call_function", text, ("frames/a",)), Item("frames/b", "call_function", "b", ("frames/b",))))
    code = Listing(
        "codegen.forward",
        (Item("codegen.forward/k0:L1", "line", "float t = a + b;", ("frames/a", "frames/b")), Item("codegen.forward/k0:L2", "line", "}", ())),
        (Decision("fuse", ("frames/a", "frames/b"), "accepted", "vertical", {"bytes_saved": 8}),),
    )
    trace = Trace("example")
    trace.append(Step("capture", None, first, 0.1))
    trace.append(Step("clean", first, again, 0.1))
    trace.append(Step("generate", again, code, 0.2, "forward"))
    return trace


def test_lineage_follows_parents_to_lines_and_back() -> None:
    links = lineage(example())
    assert links.lines[(2, "codegen.forward/k0:L1")] == {(HERE, 3), (HERE, 4)}
    assert links.lines[(2, "codegen.forward/k0:L2")] == frozenset()
    assert links.parents[(1, "frames/a")] == ((0, "frames/a"),), "an id that a pass keeps refers to the artifact before it"
    assert set(links.ancestors((2, "codegen.forward/k0:L1"))) == {(1, "frames/a"), (1, "frames/b"), (0, "frames/a"), (0, "frames/b")}
    assert links.items_of(HERE, 3) == ((0, "frames/a"), (1, "frames/a"), (2, "codegen.forward/k0:L1"))


def test_graphs_of_one_recording_are_kept_apart() -> None:
    trace = example()
    other = Listing("frames", (Item("frames/a", "call_function", "a", (), at(9)),))
    use = Listing("codegen.forward", (Item("codegen.forward/k0:L1", "line", "t", ("frames/a",)),))
    trace.append(Step("capture", None, other, 0.1, graph=1))
    trace.append(Step("generate", other, use, 0.1, "forward", graph=1))
    assert lineage(trace).lines[(4, "codegen.forward/k0:L1")] == {(HERE, 9)}


@pytest.mark.parametrize("form", ["zip", "json"])
def test_a_saved_trace_opens_with_the_same_content(tmp_path: Path, form: str) -> None:
    trace, path = example(), tmp_path / "trace"
    trace.save(path) if form == "zip" else path.write_text(json.dumps(trace.to_json()))
    loaded = Trace.load(path)
    assert loaded.to_json() == trace.to_json()
    assert loaded.text() == trace.text()
    assert lineage(loaded).lines == lineage(trace).lines
    assert html.fragment(loaded) == html.fragment(trace)
    with pytest.raises(Unsupported, match="cannot run"):
        loaded.stage("capture").run()


def test_one_wrong_byte_is_seen(tmp_path: Path) -> None:
    data = example().to_json()
    before = html.fragment(Trace.from_json(data))
    data["artifacts"][0]["items"][0]["text"] = "x - y"
    assert html.fragment(Trace.from_json(data)) != before


@pytest.mark.parametrize("content", [b"", b"no trace", b"[1]", b'{"format": "other"}', b'{"format": "compiler-lab-trace", "version": 99}'])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.zip"
    path.write_bytes(content)
    with pytest.raises(InvalidIR):
        Trace.load(path)


def test_a_damaged_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.zip"
    example().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidIR):
        Trace.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(InvalidIR):
        Trace.load(path)
    data = example().to_json()
    del data["steps"][0]["name"]
    with pytest.raises(InvalidIR, match="damaged"):
        Trace.from_json(data)


def test_a_step_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(KeyError, match="capture, clean, generate forward"):
        example().stage("lower")


def test_html_in_names_is_escaped() -> None:
    attack = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    trace = example(attack)
    trace.title = attack
    text = html.page(trace)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;img" in text


def test_the_page_asks_for_nothing_from_outside() -> None:
    text = html.page(example())
    assert "http://" not in text and "https://" not in text and "//cdn" not in text


def test_a_step_that_changed_nothing_says_so() -> None:
    assert html.fragment(example()).count("This step changed nothing") == 1


def test_an_artifact_shows_itself_in_a_notebook() -> None:
    bundle = example().stage("generate", "forward")._repr_mimebundle_()
    assert bundle["text/plain"] == "float t = a + b;\n}"
    assert "<table>" in bundle["text/html"] and "accepted" in bundle["text/html"]
