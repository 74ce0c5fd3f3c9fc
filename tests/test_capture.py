"""Capture: the graph computes what eager computes, nothing is executed or changed on the way, and every refusal says why and where."""

from __future__ import annotations

import ast
import collections
import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import pytest
import torch
import torch.nn as nn
from hypothesis import given, settings

from compiler_lab import frames
from compiler_lab.core.errors import Unsupported
from compiler_lab.core.provenance import own_location
from compiler_lab.frames.attempts import interpret
from compiler_lab.frames.capture import Capture, capture, frame_of, perform
from compiler_lab.frames.guards import GuardTree
from compiler_lab.frames.reasons import REASONS, CaptureUnsupported

from . import capture_programs as programs
from .capture_programs import MODULES, PROGRAMS, REFUSED, Block, Deep
from .conftest import same


def run(c: Capture) -> Any:
    """The generated forward, on the real inputs of the frame that was captured."""
    assert c.specialization is not None, c.text()
    return perform(c.specialization, c.graphs[0].module, c.frame)


def check(fn: Callable[..., Any], args: tuple[Any, ...]) -> Capture:
    """Capture ``fn`` and compare its graph with eager: results, changed arguments, random state, and guards that hold."""
    state = torch.get_rng_state()
    theirs, mine = copy.deepcopy((fn, args)), (fn, args)
    before = copy.deepcopy(args)
    c = capture(mine[0], *mine[1])
    c.check()
    assert torch.equal(torch.get_rng_state(), state)
    same([a for a in args if isinstance(a, torch.Tensor)], [a for a in before if isinstance(a, torch.Tensor)])
    tree = GuardTree(c.guards, c.frame, hooked=False)
    assert tree.explain(c.frame.locals) is None and tree.check(c.frame.locals)
    want = theirs[0](*theirs[1])
    torch.set_rng_state(state)
    same(run(c), want)
    for a, b in zip(theirs[1], args, strict=True):
        if isinstance(a, torch.Tensor):
            same(a, b)
    if isinstance(fn, nn.Module):
        same(dict(fn.state_dict()), dict(cast(nn.Module, theirs[0]).state_dict()))
    return c


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_captured_whole(name: str) -> None:
    fn, args = PROGRAMS[name]
    c = check(fn, args())
    with torch.no_grad():
        check(fn, args())
    assert c.text() == capture(fn, *args()).text()


@pytest.mark.parametrize("mode", ["train", "eval", "eval without grad"])
@pytest.mark.parametrize("name", MODULES)
def test_module_is_captured_whole(name: str, mode: str) -> None:
    make, args = MODULES[name]
    module = make().train(mode == "train")
    with torch.set_grad_enabled("without" not in mode):
        check(module, args())


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_reason_and_line_and_changes_nothing(name: str) -> None:
    fn, args, reason = REFUSED[name]
    values = args()
    before = copy.deepcopy(values)
    scales, count, grad = list(programs.SCALES), programs.counter, torch.is_grad_enabled()
    c = capture(fn, *values)
    c.check()
    (found,) = c.breaks
    assert found.reason == reason, c.text()
    where = own_location(found.stack)
    first = fn.__code__.co_firstlineno
    assert where is not None and where.file == programs.__file__
    assert first <= where.line <= first + 12 or where.function in ("scaled", "not_compiled")
    assert (programs.SCALES, programs.counter, torch.is_grad_enabled()) == (scales, count, grad)
    assert all(torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(before, values, strict=True) if isinstance(a, torch.Tensor))
    with pytest.raises(Unsupported):
        interpret(frame_of(fn, values, {}))


def test_every_refusal_has_a_row() -> None:
    assert {reason for _, _, reason in REFUSED.values()} <= set(REASONS)
    calls = [n for path in Path(frames.__path__[0]).rglob("*.py") for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and n.args]
    named = [n.args[0].value for n in calls if re.search(r"\b(refuse|CaptureUnsupported|Break)$", ast.unparse(n.func)) and isinstance(n.args[0], ast.Constant)]
    assert len(named) > 100 and set(named) <= set(REASONS)
    with pytest.raises(KeyError):
        CaptureUnsupported("no such reason", "")


def test_nothing_is_executed() -> None:
    def enormous(x: Any) -> Any:
        y = x.new_zeros(10**6, 10**6) @ torch.ones(10**6, 10**6)
        return y.sum()

    assert len(capture(enormous, torch.ones(1)).graphs[0].graph.nodes) == 6  # terabytes, were it run


def test_program_sees_its_own_lines() -> None:
    def helper(v: Any) -> Any:
        return v * 3

    def outer(x: Any) -> Any:
        y = x + 1
        return helper(y) - torch.nn.functional.relu(y)

    line = outer.__code__.co_firstlineno
    nodes = {n.name: n for n in capture(outer, torch.ones(2)).graphs[0].graph.nodes}
    lines = {name: [s.line - line for s in n.meta["stack"] if s.file == __file__] for name, n in nodes.items()}
    assert lines["add"] == [1]
    assert lines["mul"] == [2, helper.__code__.co_firstlineno + 1 - line]
    assert lines["relu"] == lines["sub"] == [2]
    assert lines["l_x_"] == [1]
    own = own_location(nodes["relu"].meta["stack"])
    assert own is not None and own.function == "outer" and own.source[own.column - 8 : own.end_column - 8] == "torch.nn.functional.relu(y)"


def test_same_tensor_is_one_input() -> None:
    x = torch.randn(3)
    c = capture(lambda a, b: (a + b, a is b), x, x)
    assert len(c.graphs[0].inputs) == 1 and [g.kind for g in c.guards if g.kind == "aliased"] == ["aliased"]
    tree = GuardTree(c.guards, c.frame, hooked=False)
    assert tree.check({"a": x, "b": x}) and not tree.check({"a": x, "b": x.clone()})


def test_how_changed_inputs_share_memory_is_guarded() -> None:
    def change(a: Any, b: Any) -> Any:
        a.add_(1)
        return a + b

    base = torch.ones(12)
    c = capture(change, base[:4], base[2:6])
    tree = GuardTree(c.guards, c.frame, hooked=False)
    assert "L['a'], L['b']: shared: begin at bytes 0 and 8 of memory that they share, as views of one tensor" in tree.text()
    assert tree.check({"a": base[5:9], "b": base[7:11]})
    for a, b, got in [
        (base[:4], base[3:7], "begin at bytes 0 and 12 of"),
        (base[2:6], base[:4], "begin at bytes 8 and 0 of"),
        (base[:4], base.detach()[2:6], "not as views of one tensor"),
        (base[:4], torch.ones(4), "memory of their own"),
    ]:
        failure = tree.explain({"a": a, "b": b})
        assert not tree.check({"a": a, "b": b}) and failure is not None and failure.kind == "shared" and got in failure.text()
    assert [g.kind for g in capture(lambda a, b: a + b, base[:4], base[2:6]).guards if g.kind in ("shared", "disjoint")] == []
    c = check(change, (torch.ones(4), torch.ones(4)))
    assert c.specialization is not None and c.specialization.notes["mutated_inputs"] == (0,)
    x = torch.ones(4)
    assert not GuardTree(c.guards, c.frame, hooked=False).check({"a": x, "b": x})


def test_names_are_torchs() -> None:
    c = capture(nn.Sequential(nn.Linear(2, 2)), torch.ones(2, 2))
    assert [n.name for n in c.graphs[0].placeholders] == ["l_input_", "l_self_modules_0_parameters_weight_", "l_self_modules_0_parameters_bias_"]


def test_a_call_that_gives_its_argument_back_is_a_node_and_the_same_object() -> None:
    x = torch.ones(3)
    c = capture(lambda x: (nn.functional.dropout(x, 0.5, training=False).contiguous(), x.float() + 1), x)
    assert [n.name for n in c.graphs[0].graph.nodes] == ["l_x_", "dropout", "contiguous", "float_1", "add", "output"]
    assert run(c)[0] is x


class Config:
    def __init__(self) -> None:
        self.gain, self.items, self.table = 2.0, [1, 2], {"k": 3}

    def bias(self) -> float:
        return 1.0


def uses_config(x: Any, c: Any) -> Any:
    y = x * c.gain + c.items[0] + c.table["k"] + len(c.items) + c.bias()
    return y if not hasattr(c, "flag") else y * 2


CHANGES: dict[str, Callable[[Config], Any]] = {
    "a float": lambda c: setattr(c, "gain", 3.0),
    "an int for a float": lambda c: setattr(c, "gain", 2),
    "a list element": lambda c: c.items.__setitem__(0, 5),
    "a list's length": lambda c: c.items.append(1),
    "a dict value": lambda c: c.table.__setitem__("k", 4),
    "a new attribute": lambda c: setattr(c, "flag", None),
    "a method on the instance": lambda c: setattr(c, "bias", lambda: 2.0),
    "another class": lambda c: setattr(c, "__class__", type("Other", (Config,), {})),
}


@pytest.mark.parametrize("name", CHANGES)
def test_guards_notice(name: str) -> None:
    x, config = torch.ones(2), Config()
    c = check(uses_config, (x, config))
    tree = GuardTree(c.guards, c.frame, hooked=False)
    CHANGES[name](config)
    assert not tree.check(c.frame.locals) and tree.explain(c.frame.locals) is not None


def test_guards_notice_a_patched_class(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config()
    c = check(uses_config, (torch.ones(2), config))
    tree = GuardTree(c.guards, c.frame, hooked=False)
    monkeypatch.setattr(Config, "bias", lambda self: 9.0)
    assert not tree.check(c.frame.locals)


MODULE_CHANGES: dict[str, Callable[[nn.Sequential], Any]] = {
    "mode": lambda m: m[1].train(False),
    "a hook": lambda m: m[0].register_forward_hook(lambda *_: None),
    "a shape": lambda m: setattr(m[0], "weight", nn.Parameter(torch.ones(3, 8))),
    "no bias": lambda m: setattr(m[0], "bias", None),
    "frozen": lambda m: m[0].weight.requires_grad_(False),
    "another forward": lambda m: setattr(m[0], "forward", lambda x: x),
    "another module": lambda m: m.__setitem__(0, nn.Identity()),
    "one more module": lambda m: m.append(nn.ReLU()),
    "another rate": lambda m: setattr(m[1], "p", 0.1),
}


@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_module_guards_notice(name: str) -> None:
    m = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    c = capture(m, torch.ones(2, 8))
    tree = GuardTree(c.guards, c.frame, hooked=False)
    assert tree.check(c.frame.locals)
    MODULE_CHANGES[name](m)
    assert not tree.check(c.frame.locals)


def test_unused_arguments_are_not_looked_at() -> None:
    c = capture(lambda x, y, z: z + 2, torch.ones(0), [1], torch.ones(2))
    assert [g.text().split(":")[0] for g in c.guards] == ["the process", "L['z']"]


def test_forward_hooks_are_followed_and_hooks_of_the_backward_are_a_break() -> None:
    m = nn.Linear(2, 2)
    m.register_forward_pre_hook(lambda *_: None)
    assert capture(m, torch.ones(2, 2)).graphs and capture(nn.Sequential(m), torch.ones(2, 2)).graphs
    m.register_full_backward_hook(lambda *_: None)
    assert capture(m, torch.ones(2, 2)).breaks[0].reason in ("module-hooks", "autograd-api")
    assert capture(nn.Sequential(m), torch.ones(2, 2)).breaks[0].reason == "module-hooks"


def test_users_modes_are_left_to_python() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode():
        assert capture(lambda x: x + 1, torch.ones(2)).breaks[0].reason == "mode"


def test_artifact(golden: Callable[[str, str], None]) -> None:
    c = capture(PROGRAMS["chain"][0], *PROGRAMS["chain"][1]())
    golden("capture_chain.txt", c.text().partition("guards:")[2].strip())  # bytecode differs between versions of Python
    assert "LOAD_FAST" in c.bytecode() and "0x" not in c.text()
    assert {i.kind for i in c.items()} >= {"guard", "placeholder", "call_function", "call_method", "output"}
    assert c.to_json()["stage"] == "frames" and "<table>" in c._repr_mimebundle_()["text/html"]
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    torch.testing.assert_close(c.run(x, y), programs.chain(x, y))


def test_a_run_takes_new_arguments() -> None:
    m = Block(32, 4)
    c = capture(m, torch.randn(2, 8, 32))
    x = torch.randn(2, 8, 32)
    torch.testing.assert_close(c.run(x), m(x))


def test_capture_is_quick() -> None:
    """Instructions per node, not seconds: what a loaded machine cannot blur."""
    c = capture(Deep(), torch.randn(2, 8))
    assert c.specialization is not None
    assert c.specialization.notes["instructions"] <= 20 * c.specialization.notes["operations"]
    assert collections.Counter(g.kind for g in c.guards if "['7']" in g.text()) == {"type": 1, "empty": 4, "no_key": 3, "tensor": 2}
    assert len(c.guards) == 24 * 10 + 4 + 12  # for each Linear, for hooks of all modules, for the rest


LEAVES = st.sampled_from(["x", "y", "2", "3.5", "x.sum()", "y.T.T", "len(x)", "x.shape[1]", "c"])
BINARY = st.sampled_from(
    [
        "{} + {}",
        "{} * {}",
        "{} - {}",
        "min({}, {})",
        "[{}, {}][1]",
        "f({}, {})",
        "dict(a={}, b={})['b']",
        "({} if len(y) > 2 else {})",
        "(lambda a, b: a)({}, {})",
    ]
)


def expressions() -> st.SearchStrategy[str]:
    return st.recursive(LEAVES, lambda inner: st.builds(lambda form, a, b: "(" + form.format(a, b) + ")", BINARY, inner, inner), max_leaves=12)


@settings(max_examples=60)
@given(expressions())
def test_expressions(expression: str) -> None:
    """Random expressions over tensors, numbers and containers: captured and equal, or refused for a reason Python shares."""
    space: dict[str, Any] = {"torch": torch}
    exec(f"def f(a, b, *, k=2):\n    return a * k + b\nc = 7\ndef program(x, y):\n    return torch.as_tensor({expression})", space)
    args = (torch.randn(3, 3), torch.randn(3, 3))
    c = capture(space["program"], *args)
    if c.breaks:
        assert c.breaks[0].reason == "data-dependent-branch", c.text()  # min() of tensors
        return
    same(run(c), space["program"](*args))


STATEMENTS = st.sampled_from(
    [
        "s.append({})", "s.extend([{}, 1])", "s.insert(0, {})", "s[-1] = {}", "s[1:] = [{}]", "s.reverse()", "s.sort()", "s = s + [{}]", "s *= 2",
        "del s[0]", "s.append(s.pop(0))", "s = s[::-1]", "t = tuple(s)", "d[{}] = len(s)", "d.setdefault({}, s.copy())", "s = list(d)",
        "d.pop({}, 0)", "s = [v + {} for v in s]", "s = sorted(s, key=lambda v: -v)", "a, *s = [{}, *s]", "s = list(dict.fromkeys(s))",
        "s = [k for k, v in enumerate(s) if v != {}]", "s += t", "s = [max(s, default={})]", "s.append(sum(s))", "s = list(zip(s, s))[0] and s",
        "s.append(s.count({}))",
    ]
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.tuples(STATEMENTS, st.integers(-3, 3)), max_size=10))
def test_container_statements(lines: list[tuple[str, int]]) -> None:
    """Random statements on a list, a dict and a tuple give what Python gives, or raise as Python does."""
    body = "".join(f"    {form.format(value)}\n" for form, value in lines)
    space: dict[str, Any] = {}
    exec(f"def program(x):\n    s, t, d, a = [2, 1], (), {{}}, 0\n{body}    return x + 1, s, t, d, a", space)
    x = torch.zeros(2)
    c = capture(space["program"], x)
    try:
        want = space["program"](x)
    except Exception:  # noqa: BLE001 - whatever Python raises
        assert c.breaks and c.breaks[0].reason == "raise", c.text()
        return
    if c.breaks:
        assert c.breaks[0].reason == "return-value", c.text()  # one list at two places of the result
        return
    same(run(c), want)
