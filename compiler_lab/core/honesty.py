"""Whether an operator does what its schema says: it is run on real tensors, whose memory is compared before and after.

In: an operator and arguments. Out: a ``SchemaReport``, what was found and the schema that would have been true; or ``Watch``, a mode that
looks at every operator that did not come with torch, as it runs.
Always holds: memory is compared bit by bit, elements and what lies between them; ``check_schema`` leaves its arguments and the random
number generator alone; one call is evidence for that call, not a proof for all others.
PyTorch's counterpart: ``torch/_subclasses/schema_check_mode.py`` and ``torch/testing/_internal/optests``; the compiler there trusts schemas.
Left out: tensors of subclasses, arguments that are not strided, what an operator does beside tensors and random numbers (prints, files).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .artifact import Artifact, Decision, Item
from .errors import Mismatch, UnknownOption
from .fakes import fake_mode
from .fx import describe
from .schema import bound, is_custom, pieces_of, unannotated, written_names

REASONS = {
    "undeclared-write": "the operator writes to an argument and its schema does not say so: a compiler moves reads across the call",
    "undeclared-alias": "a result shares memory that the schema does not say it shares: a compiler takes it for memory of its own",
    "alias-not-made": "the schema says that a result shares memory with an argument, and it does not",
    "undeclared-random": "the operator draws random numbers without the tag nondeterministic_seeded: a compiler may run it twice, or not at all",
    "fake-differs": "the fake kernel gives another shape, dtype, device or layout than the operator: what is compiled reads the wrong memory",
    "unwritten": "a note: the schema says that an argument is written to, and this call left it as it was",
    "no-fake-kernel": "a note: without a fake kernel the operator cannot be traced; register one with torch.library.register_fake",
    "as-declared": "the operator did what its schema says",
}

PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Types of tensors whose memory is looked at; a call with others is not judged."""

NOTES = frozenset({"unwritten", "no-fake-kernel", "as-declared"})
"""Reasons that are no lie."""


@dataclass(frozen=True)
class Finding:
    """``subject`` (an argument, or ``result 0``) for ``reason``; ``what`` is one sentence."""

    reason: str
    subject: str
    what: str


class SchemaReport(Artifact):
    """What one call of an operator showed. ``honest`` says whether its schema is true, ``truth`` is the schema it should have had."""

    stage = "core.schema"

    def __init__(self, op: OpOverload, findings: Sequence[Finding], truth: str) -> None:
        self.op, self.findings, self.truth = op, tuple(findings), truth
        told = self.findings or (Finding("as-declared", str(op), "the operator did what its schema says"),)
        self.decisions = tuple(
            Decision("schema", (f"{self.stage}/{f.subject}",), "noted" if f.reason in NOTES else "refused", f.reason, {"what": f.what}) for f in told
        )

    @property
    def lies(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.reason not in NOTES)

    @property
    def honest(self) -> bool:
        return not self.lies

    def text(self) -> str:
        lines = [f"declared   {self.op._schema}"]
        lines += [f"true       {self.truth}"] if self.truth != str(self.op._schema) else []
        return "\n".join([*lines, *(f"{'note' if f.reason in NOTES else 'lie ':<10} {f.what} ({f.reason})" for f in self.findings)])

    def items(self) -> tuple[Item, ...]:
        _, arguments, results = pieces_of(self.op._schema)
        names = iter(self.op._schema.arguments)
        told = [Item(f"{self.stage}/{next(names).name}", "argument", text) for text in arguments if text != "*"]
        return (*told, *(Item(f"{self.stage}/result {i}", "result", text) for i, text in enumerate(results)))

    def check(self) -> None:
        """Raises ``Mismatch`` where the schema is not true."""
        if self.lies:
            raise Mismatch(
                f"{self.op} does not do what its schema says: {'; '.join(f.what for f in self.lies)}",
                why=REASONS[self.lies[0].reason],
                hint=f"declare it as {self.truth}" if self.truth != str(self.op._schema) else "",
            )

    def run(self, *args: Any) -> Any:
        return self.op(*args)


def check_schema(op: Any, *args: Any, **kwargs: Any) -> SchemaReport:
    """Runs ``op`` once on copies of the arguments and reports what its schema does not say.

    op: an operator of ``torch.ops`` (an overload, or a packet that has only one) or what ``torch.library.custom_op`` gives.
    args, kwargs: real tensors and plain values, as for a call; their copies share memory where they do.
    ``report.honest`` is the answer, ``report.check()`` raises ``Mismatch``. What the operator itself raises is raised.
    Raises ``UnknownOption`` for what is not an operator, or is several, and for tensors of subclasses.
    """
    overload = _overload(op)
    if strange := [type(t).__name__ for t in _tensors((args, kwargs)) if type(t) not in PLAIN]:
        raise UnknownOption(f"an argument is a {strange[0]}", hint="give plain tensors, which have memory to look at")
    memory: dict[int, Tensor] = {}
    copies, named = _copied(args, memory), _copied(kwargs, memory)
    devices = sorted({t.device.index for t in _tensors((args, kwargs)) if t.device.type == "cuda"})
    with torch.random.fork_rng(devices), torch.no_grad():
        return observed(overload, copies, named)[1]


def _overload(op: Any) -> OpOverload:
    op = getattr(op, "_opoverload", op)
    if isinstance(op, OpOverloadPacket):
        names = op.overloads()
        if len(names) > 1:
            raise UnknownOption(f"{op} has several overloads", hint=f"one of: {', '.join(f'{op}.{n}' for n in sorted(names))}")
        op = getattr(op, names[0])
    if not isinstance(op, OpOverload):
        raise UnknownOption(f"{type(op).__name__} is not an operator", hint="give one of torch.ops, or what torch.library.custom_op gives")
    return op


# -- one call -----------------------------------------------------------------------------------------------------------------


def observed(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, SchemaReport, Memory]:
    """Calls ``op``: its result, the report, and the memory as it was before."""
    arguments = bound(op, args, kwargs)
    with _disable_current_modes(), torch.no_grad():
        fakes = _Fakes(args, kwargs)
        before = Memory([(name, t) for name, value in arguments.items() for t in _tensors(value)])
    random = torch.get_rng_state()
    result = op(*args, **kwargs)
    with _disable_current_modes(), torch.no_grad():
        drawn = not torch.equal(random, torch.get_rng_state())
        results = [result] if len(op._schema.returns) == 1 else list(result or ())
        findings = [*_writes(op, before), *_aliases(op, before, results), *fakes.compare(op, results)]
    if drawn and torch.Tag.nondeterministic_seeded not in op.tags:
        findings.append(Finding("undeclared-random", str(op), "it draws random numbers and has no tag that says so (torch.Tag.nondeterministic_seeded)"))
    return result, SchemaReport(op, findings, _truth(op, before, results)), before


class Memory:
    """The memory behind some tensors, copied. Tensors that are not strided, or have none, are left out."""

    def __init__(self, named: Sequence[tuple[str, Tensor]]) -> None:
        self.named = [(name, t) for name, t in named if t.layout == torch.strided and t.device.type != "meta"]
        self.places = [(t.untyped_storage(), _place(t)) for _, t in self.named]
        self.now: dict[int, Tensor] = {}  # of each storage, all bytes
        for storage, _ in self.places:
            if storage._cdata not in self.now:
                self.now[storage._cdata] = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # pyright: ignore[reportArgumentType, reportCallIssue]
        self.then = {key: bytes_.clone() for key, bytes_ in self.now.items()}

    def changed(self, told: Sequence[str]) -> dict[str, str]:
        """Argument -> how it was changed: its elements, memory beside them, or its shape. ``told`` may be: the others are not blamed for it."""
        allowed = {key: bytes_.clone() for key, bytes_ in self.then.items()}  # as it was, with the writes that are told of
        for (name, t), (storage, place) in zip(self.named, self.places, strict=True):
            if name in told:
                _elements(allowed[storage._cdata].untyped_storage(), t, place).copy_(_elements(storage, t, place))
        found: dict[str, str] = {}
        blamed: set[int] = set()
        for (name, t), (storage, place) in zip(self.named, self.places, strict=True):
            key, expected = storage._cdata, (self.then if name in told else allowed)[storage._cdata].untyped_storage()
            if (t.untyped_storage()._cdata, _place(t)) != (key, place) or storage.nbytes() != expected.nbytes():
                found[name] = "its shape, or the memory that it stands on"
                blamed.add(key)
            elif not torch.equal(_bits(_elements(storage, t, place)), _bits(_elements(expected, t, place))):
                found.setdefault(name, "its elements")
                blamed.add(key)
        for (name, _), (storage, _) in zip(self.named, self.places, strict=True):
            key = storage._cdata
            if key not in blamed and not torch.equal(self.now[key], allowed[key]):
                found.setdefault(name, "memory beside its elements")
        return found

    def sharing(self, result: Tensor) -> list[str]:
        """The arguments whose memory ``result`` stands on."""
        if result.layout != torch.strided or not result.untyped_storage().nbytes():
            return []
        key = result.untyped_storage()._cdata
        return list(dict.fromkeys(name for (name, _), (storage, _) in zip(self.named, self.places, strict=True) if storage._cdata == key))

    def restore(self) -> None:
        """Every byte as it was."""
        with _disable_current_modes(), torch.no_grad():
            for key, bytes_ in self.now.items():
                bytes_.copy_(self.then[key])


Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # offset, size, strides


def _place(t: Tensor) -> Place:
    return int(t.storage_offset()), tuple(t.shape), t.stride()


def _elements(storage: Any, like: Tensor, place: Place) -> Tensor:
    return torch.empty(0, dtype=like.dtype, device=like.device).set_(storage, *place)


def _bits(elements: Tensor) -> Tensor:
    return elements.contiguous().reshape(-1).view(torch.uint8)


def _writes(op: OpOverload, before: Memory) -> Iterator[Finding]:
    told = written_names(op)
    changed = before.changed(told)
    for name, how in changed.items():
        if name not in told:
            yield Finding("undeclared-write", name, f"it writes to {name} ({how}), which is not declared: {_annotated(op, name, 'a!')}")
    for name in dict.fromkeys(n for n, _ in before.named):
        if name in told and name not in changed:
            yield Finding("unwritten", name, f"{name} is declared as written, and this call left it as it was")


def _aliases(op: OpOverload, before: Memory, results: Sequence[Any]) -> Iterator[Finding]:
    """What results share, with arguments and with each other, beside what is declared."""
    owner: dict[int, int] = {}
    for i, (result, told) in enumerate(zip(results, op._schema.returns, strict=True)):
        sets: set[str] = set() if told.alias_info is None else set(told.alias_info.before_set) | set(told.alias_info.after_set)
        meant = [a.name for a in op._schema.arguments if a.alias_info is not None and sets & set(a.alias_info.before_set)]
        for t in _tensors(result):
            shared = before.sharing(t)
            for name in [] if set(shared) & set(meant) else shared:
                letter = "a!" if name in written_names(op) else "a"
                yield Finding("undeclared-alias", f"result {i}", f"result {i} is memory of {name}: {_annotated(op, name, letter)} -> Tensor({letter})")
            if meant and not shared and t.numel():
                yield Finding("alias-not-made", f"result {i}", f"result {i} is declared as memory of {', '.join(meant)}, and is memory of its own")
            key = t.untyped_storage()._cdata if t.layout == torch.strided and t.numel() else None
            if key is not None and not shared and owner.setdefault(key, i) != i:
                yield Finding("undeclared-alias", f"result {i}", f"result {i} is memory of result {owner[key]}, which no schema can say: return a copy")


class _Fakes:
    """Fake copies of the arguments, made before the call; afterwards, what the fake kernel gives for them."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.mode = fake_mode()
        with torch._C._DisableFuncTorch():
            self.args, self.kwargs = _mapped(args, self.mode.from_tensor), _mapped(kwargs, self.mode.from_tensor)

    def compare(self, op: OpOverload, results: Sequence[Any]) -> Iterator[Finding]:
        from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException

        try:
            with self.mode:
                fake = op(*self.args, **self.kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return
        except (UnsupportedOperatorException, NotImplementedError) as error:
            if not isinstance(error, UnsupportedOperatorException) and "fake" not in str(error).lower():
                raise
            yield Finding("no-fake-kernel", str(op), "it has no fake kernel")
            return
        fakes = [fake] if len(op._schema.returns) == 1 else list(fake or ())
        for i, (real, told) in enumerate(zip(results, fakes, strict=True)):
            for a, b in zip(_tensors(real), _tensors(told), strict=True):
                if not _alike(a, b):
                    yield Finding("fake-differs", f"result {i}", f"result {i} is {_described(a)}, and the fake kernel says {_described(b)}")


def _alike(a: Tensor, b: Tensor) -> bool:
    same = a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and a.layout == b.layout
    return same and (a.layout != torch.strided or not a.numel() or all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True)))


def _described(value: Tensor) -> str:
    return f"{describe(value)} on {value.device}"


# -- the schema that would have been true ---------------------------------------------------------------------------------------


def _truth(op: OpOverload, before: Memory, results: Sequence[Any]) -> str:
    """The schema with the annotations that the call showed, beside those it has."""
    name, arguments, returns = pieces_of(op._schema)
    written = {*before.changed(written_names(op)), *written_names(op)}
    shared = [sorted((n for t in _tensors(r) for n in before.sharing(t)), key=lambda n: n not in written_names(op)) for r in results]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    marks = {a.name: next(letters) for a in op._schema.arguments if a.name in written or any(a.name in names[:1] for names in shared)}
    names = iter(op._schema.arguments)
    told = [t if t == "*" else _marked(t, (marks[n] + "!" * (n in written)) if (n := next(names).name) in marks else "") for t in arguments]
    given = [_marked(t, marks[names[0]] + "!" * (names[0] in written) if names else "") for t, names in zip(returns, shared, strict=True)]
    return f"{name}({', '.join(told)}) -> {given[0] if len(given) == 1 else '(' + ', '.join(given) + ')'}"


def _marked(text: str, mark: str) -> str:
    plain = unannotated(text)
    return plain.replace("Tensor", f"Tensor({mark})", 1) if mark else plain


def _annotated(op: OpOverload, name: str, mark: str) -> str:
    """One argument's text with an annotation: ``Tensor(a!) x``."""
    _, arguments, _ = pieces_of(op._schema)
    names = [a.name for a in op._schema.arguments]
    return _marked([t for t in arguments if t != "*"][names.index(name)], mark)


# -- values -------------------------------------------------------------------------------------------------------------------


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, change) for v in value)
    return {k: _mapped(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def _copied(value: Any, memory: dict[int, Tensor]) -> Any:
    """The same numbers in other memory, shared where it was."""

    def copy(t: Tensor) -> Tensor:
        if t.layout != torch.strided:
            return t.clone()
        storage = t.untyped_storage()
        held = memory.setdefault(storage._cdata, torch.empty(0, dtype=torch.uint8, device=t.device).set_(storage).clone())  # pyright: ignore[reportArgumentType, reportCallIssue]
        return torch.empty(0, dtype=t.dtype, device=t.device).set_(held.untyped_storage(), t.storage_offset(), t.shape, t.stride())

    with torch.no_grad():
        return _mapped(value, copy)


# -- all calls ----------------------------------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Looks at each call of an operator that did not come with torch; ``found`` holds a report for each that lied.

    strict: the first lie raises ``Mismatch``, and what was written is as it was before.
    """

    def __init__(self, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.found: dict[OpOverload, SchemaReport] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_custom(func) or not all(type(t) in PLAIN for t in _tensors((args, kwargs or {}))):
            return func(*args, **(kwargs or {}))
        result, report, before = observed(func, args, kwargs or {})
        if not report.honest:
            if self.strict:
                before.restore()
                report.check()
            self.found.setdefault(func, report)
        return result
