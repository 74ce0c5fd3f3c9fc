"""Random Python programs over tensors, as source text: the grammar is tables of rows, one line each.

In: a seed. Out: the text of a module: ``program_world.py``, then helpers, a function ``f`` and ``inputs(call)``, which makes the arguments of
call number ``call``. Always holds: the same seed gives the same text; loops and recursion are bounded; numbers stay small enough that
every operation is exact, so that results can be compared to the bit.

A row is text with holes: ``<K>`` an expression of kind K, ``<K!>`` a variable, ``<K*>`` one that may be assigned,
``<K=>`` a variable that is assigned, ``<BLOCK>`` statements.
A row that begins with ``~`` breaks graphs or is seen from outside: each program draws how many of them it has, since one is often enough to
end a capture. ``v:K w:L | ...`` names variables that exist in the row and the blocks in it. Kinds: T tensor, I int, F float, S string, B bool, LT and LI
lists, DT and DI dicts, SI set of ints, O object, FN function of a tensor, P pair of tensor and int, N one that may be None, X anything.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

WORLD = (Path(__file__).parent / "program_world.py").read_text()
HOLE = re.compile(r"<([A-Za-z]+)([=!*]?)>")
LITERALS: dict[str, tuple[str, ...]] = {
    "T": ("torch.ones(4)", "torch.tensor(2.0)", "~WEIGHT", "torch.tensor([1, 2, 3, 4])", "rows(1)"),
    "I": ("0", "1", "2", "3", "-1", "True"),
    "F": ("0.5", "-2.0", "1.5", "-0.0"),
    "S": ("'a'", "'b'", "'key'", "''"),
    "B": ("True", "False"),
    "LT": ("[torch.ones(4)]", "[]"),
    "LI": ("[1, 2, 3]", "[2, 0]", "[]"),
    "DT": ("{'a': torch.ones(4), 'b': torch.tensor(1.0)}",),
    "DI": ("{'n': 1, 'm': 2}",),
    "SI": ("{1, 2}", "set()"),
    "O": ("~STATE", "Box(torch.ones(4))"),
    "FN": ("twice", "torch.relu", "Box.shift"),
    "P": ("(torch.ones(4), 1)",),
    "N": ("None",),
}
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "T": (
        "<T> + <T>", "<T> - <T>", "<T> * <I>", "<T> * <F>", "<T> + <I>", "torch.relu(<T>)", "<T>.sum()", "<T>.clamp(-9, 9)", "-<T>", "<T>.clone()",
        "<T>.detach()", "<T>.reshape(-1)[:4]", "<T>.reshape(-1)[<k>]", "<T>[..., :1]", "<T>[:1]", "<T>[0]", "<T>.max()", "torch.where(<T> > <I>, <T>, <T>)",
        "(<T> > <T>).float()", "torch.stack([<T>, <T>]).sum(0)", "torch.cat([<T>.reshape(-1), <T>.reshape(-1)]).sum()", "torch.zeros_like(<T>)",
        "torch.full((4,), <F>)", "<T>.double()", "torch.arange(<I>).sum()", "torch.tensor([<I>, <I>, 1, 0])", "torch.tensor(<F>)", "<T>.int()",
        "(<T> * WEIGHT).sum(-1, keepdim=True)", "torch.add(<T>, <T>, alpha=2)", "<LT>[<k>]", "<LT>[-1]", "<DT>['a']", "<DT>['b']", "<DT>.get('c', <T>)",
        "<O>.a", "<O>.double", "<O>.scale(<T>)", "<O>.scale(<T>, by=<I>)", "<FN>(<T>)", "<P>[0]", "recurse(<T>, <k>)", "twice(<T>)", "~MODEL(<T>)",
        "sum(<LT>, <T>)", "~decorated(<T>)", "spread(<T>, <I>, by=<I>)", "spread(*<LI>, <T>, q=<I>)", "~disabled(<T>)", "next(iter(<LT>), <T>)",
        "functools.reduce(lambda a, b: a + b, <LT>, <T>)", "<T> if <B> else <T>", "(lambda v, w=<I>: v + w)(<T>)", "Box.shift(<T>)", "Sub(<T>)(<T>)",
        "Sub(<T>) + <I>", "Point(<T>, <I>).x", "dataclasses.replace(Point(<T>), y=<I>).x", "<T>.view(<T!>.shape)",
        "<T>.transpose(0, -1).sum(-1, keepdim=True)", "~torch.rand(4).round()", "helper(<T>, <I>)", "helper(<I>, x=<T>)[0] if False else <T>",
        "sum(v.sum() for v in <LT>) + <T>", "getattr(<O>, 'a')", "getattr(<O>, 'q', <T>)", "operator.add(<T>, <T>)", "<T>.add(1).mul(2)",
        "torch.nn.functional.relu(<T>)", "~<T>.reshape(-1)[torch.tensor([<I>, 0])].sum()", "~torch.gather(<T>.reshape(-1), 0, torch.tensor([<I>]))",
        "max(<LT>, key=lambda v: v.numel(), default=<T>)", "<N> if <N!> is not None else <T>", "-(<T>).abs()", "<T>.expand(2, *<T!>.shape)[0]",
    ),
    "I": (
        "(<I> + <I>) % 7", "(<I> * <I>) % 5", "len(<LT>)", "len(<LI>)", "<T>.dim()", "<T>.numel()", "<T!>.shape[0]", "<LI>[<k>]", "<DI>['n']", "<O>.n",
        "int(<F>)", "~int(<T>.sum().item()) % 5", "<I> if <B> else <I>", "abs(<I>)", "max(<I>, <I>)", "sum(<LI>) % 9", "~STEP()", "~STEP(<I>)",
        "~careful(<I>)", "COUNT", "SCALE", "~remember(<T>)", "len(<S>)", "-<I>", "<I> // 2", "<I> % 3", "len(<SI>)", "CONFIG['a']", "len(<O>.items)",
        "~zlib.crc32(b'a') % 5", "~bisect.bisect(<LI>, <I>)", "math.gcd(<I>, <I>)", "round(<F>)", "divmod(<I>, 3)[1]", "~random.randint(0, 3)",
        "<DI>.get('q', <I>)", "Mode.SLOW.value", "Box.made", "len(Sub(<T>))", "Sub(<T>).x_long", "<P>[1]", "min([<I>, <I>])", "operator.index(<I>)",
        "next(v for v in [<I>, <I>])", "counter(<I>)()", "(<I> << 1) & 7", "<I> ^ 3", "int(<B>)", "<T>.size(-1)", "<T>.stride(0)", "Point(1).y",
        "<LI>.count(<I>)", "sum(v for v in <LI> if v > 0)", "ord('a') % 5",
    ),
    "F": (
        "<F> + <F>", "<F> * 0.5", "float(<I>)", "~<T>.sum().item()", "round(<F>, 1)", "<I> / 2", "math.floor(<I>) + 0.5", "abs(<F>)", "-<F>",
        "min(<F>, <F>)", "math.copysign(1.0, <F>)", "<I> * <F>",
    ),
    "S": (
        "(<S> + <S>)[:9]", "f'{<I!>}-{<S!>!r}'", "str(<I>)", "<S>.upper()", "'-'.join([<S>, <S>])[:9]", "repr(<LI>)[:9]", "str(<T>.dtype)",
        "str(tuple(<T>.shape))", "'%s' % <I>", "type(<T>).__name__", "<O>.kind", "~json.dumps(<LI>)[:9]", "sorted(<DT>)[0]", "<S>[:3]",
        "<S> * 2 if <B> else <S>", "f'{<F!>:.2f}'", "type(<O>).__name__", "<S>.replace('a', 'c')", "CONFIG['name']", "'{}:{}'.format(<I>, <S>)",
        "Mode(1).name", "<S>.split('-')[0]", "f'{<T!>.shape[-1]}'", "~str(<T!>)[:6]",
    ),
    "B": (
        "<I> > <I>", "<I> == <I>", "~<T>.sum() > 0", "not <B>", "(<B> and <B>)", "(<B> or <B>)", "<T> is <T>", "<T>.numel() > 6", "isinstance(<O>, Sub)",
        "<I> in <LI>", "<S> in <DT>", "<N> is None", "hasattr(<O>, 'extra')", "<LI> == <LI>", "<S> < <S>", "~bool(<T>.max() > 1)", "<T>.requires_grad",
        "torch.is_grad_enabled()", "all(<LI>)", "any(v > 2 for v in <LI>)", "len(<LT>) > 1", "<O> == <O>", "<FN> is twice", "~torch.equal(<T>, <T>)",
        "~(<T> > 0).any()", "bool(<LI>)", "<S>", "<I>", "0 < <I> < 3", "<SI> <= {1, 2, 3}", "<O> is <O>", "<LT> is <LT>", "<T>.is_contiguous()",
        "callable(<FN>)", "isinstance(<N>, (int, torch.Tensor))", "Mode.FAST is Mode(1)", "<I> in Sub(<T>)", "'n' in <DI>", "type(<O>) is Box",
        "<T>.dtype == torch.float32", "bool(Sub(<T>, <I>))", "<F> == <I>",
    ),
    "LT": (
        "[<T>, <T>]", "list(<DT>.values())", "[<T>] * 2", "(<LT> + <LT>)[:3]", "<LT>[::-1]", "v:I | [<T> for <v> in <LI>]", "~list(steps(<T>, <k>))",
        "list(map(<FN>, <LT>))", "<LT>.copy()", "list(<LT>)", "sorted(<LT>, key=lambda t: t.numel())", "[v for v in <LT> if v.dim()]", "[*<LT>[:2], <T>]",
        "list(<T>.reshape(-1)[:2].unbind())", "list(torch.split(<T>.reshape(-1), 2))", "v:T | [<T> for <v> in <LT> if <B>]",
        "list(filter(lambda t: t.numel() > 1, <LT>))", "[a + b for a, b in zip(<LT>, <LT>)]", "list(reversed(<LT>))", "<LT> if <B> else []",
        "list(Point(<T>, tags=[<T>]).tags)", "list(itertools.chain(<LT>[:1], [<T>]))",
    ),
    "LI": (
        "[<I>, <I>]", "list(range(<k>))", "[v + 1 for v in <LI>]", "sorted(<LI>)", "<LI>[1:]", "list(<T>.shape)", "sorted(<SI>)", "(<LI> + [<I>])[-4:]",
        "list(<DI>.values())", "[i for i, v in enumerate(<LI>)]", "[a * b % 9 for a, b in zip(<LI>, <LI>)]", "list(itertools.accumulate(<LI>))[:3]",
        "list(filter(None, <LI>))", "~[int(v) for v in <T>.reshape(-1)[:2].tolist()]", "v:I | [<I> for <v> in range(<k>)]",
        "[i for i in range(3) for j in range(i)]", "[len(v) for v in ('a', 'bc')]", "list(dict.fromkeys(<LI>))", "sorted(<LI>, key=lambda v: -v)",
        "list(itertools.islice(itertools.count(<I>), 2))", "[*<LI>, <I>][:4]", "CONFIG['b']", "list(Sub(<T>))[:1]", "[v % 5 for v in (1, 7, <I>)]",
    ),
    "DT": (
        "{'a': <T>, 'b': <T>}", "dict(a=<T>, b=<T>)", "v:S | {<v>: <T> for <v> in 'ab'}", "{**<DT>, 'a': <T>}", "dict(<DT>)", "dict(zip('ab', [<T>, <T>]))",
        "<DT> | {'b': <T>}", "collections.OrderedDict(b=<T>, a=<T>)",
    ),
    "DI": (
        "{'n': <I>, 'm': <I>}", "dict.fromkeys(['n', 'm'], <I>)", "{**<DI>, 'n': <I>}", "collections.OrderedDict(n=<I>, m=<I>)",
        "collections.defaultdict(int, n=<I>)", "{k: v for k, v in <DI>.items()}", "collections.Counter(n=2)",
    ),
    "SI": ("{<I>, <I>}", "set(<LI>)", "<SI> | <SI>", "<SI> & {1, 2, 3}", "{v % 2 for v in <LI>}", "<SI> - {<I>}", "set()", "frozenset(<LI>) | <SI>"),
    "O": ("Box(<T>, <I>)", "Sub(<T>)", "~Box.of(<T>)", "~Sub.of(<T>)", "~<O>.bump()", "~<O>.bump(<I>)", "<O> if <B> else <O>", "Sub(<T>, n=<I>)"),
    "FN": (
        "v:T | (lambda <v>: <T>)", "functools.partial(spread, by=<I>)", "<O>.scale", "functools.partial(spread, <T>)", "<FN> if <B> else <FN>",
        "functools.partial(recurse, n=<k>)", "~logged(<FN>) if False else <FN>",
    ),
    "P": ("(<T>, <I>)", "Pair(<T>, <I>)", "Pair(left=<T>, right=<I>)", "[<T>, <I>]", "Pair(<T>, <I>)._replace(right=<I>)"),
    "N": ("<T>", "<I>", "None", "<T> if <B> else None"),
}  # fmt: skip
RAISES: tuple[str, ...] = (
    "raise Oops(<I>)", "raise ValueError(<S>)", "[][1]", "{}['k']", "int('z')", "careful(2)", "torch.zeros(2) + torch.zeros(3)", "1 // (<I> - <I>)",
    "assert <B>, <S>", "raise Oops", "raise KeyError(<I>) from None", "<T> + torch.zeros(3)", "next(iter([]))", "getattr(None, 'foo')", "Sub(1).missing",
    "if <B>:\n    raise RuntimeError(f'{<I!>}')", "<LI>[9]", "<DT>['none']", "torch.zeros(2).view(3)", "twice()", "twice(1, b=2)", "unknown_name",
    "raise Exception('e', <T>)", "<S> + 1", "~careful(<I>)", "a, b = <LI>", "del <DI!>['zz']", "super_missing.x",
)  # fmt: skip
SIMPLE: tuple[str, ...] = (
    *["<T=> = <T>"] * 8, *["<I=> = <I>"] * 3, "<F=> = <F>", "<S=> = <S>", "<B=> = <B>", *["<LT=> = <LT>"] * 2, "<LI=> = <LI>", "<LI=> = <LI>",
    "<DT=> = <DT>", "<DI=> = <DI>", "<SI=> = <SI>", "<O=> = <O>", "<O=> = <O>", "<FN=> = <FN>", "<P=> = <P>", "<N=> = <N>", "<T=>, <I=> = <P>",
    "<T=> = <T!>", "<T=>, <T=> = <T>, <T>", "<LT=> = <LT=> = <LT>", "<LI=> = <LI!>", "<T=>, *<LT=> = <LT>", "(<I=>, <I=>), <T=> = (<I>, <I>), <T>",
    "<T*> += <I>", "<T*> += <T>", "<T*> *= <I>", "<I*> = (<I!> + <I>) % 9", "<I*> %= 5", "<I*> -= 1", "<S*> += 'x' if len(<S!>) < 9 else ''",
    "<T!>.add_(<I>)", "<T!>.mul_(<I>)", "<T!>[0] = <I>", "<T!>[..., :2] = <I>", "<T!>.zero_()", "<T!>.copy_(<T>)", "<T!>.clamp_(max=<I>)", "<T!>[:1] += 1",
    "<T!>.detach().add_(1)", "<LT!>.append(<T>)", "<LT!>[0] = <T>", "<LT!>.extend(<LT>[:2])", "<LI!>.append(<I>)", "<LI!>.insert(0, <I>)", "<LI!>.sort()",
    "<LI!>.reverse()", "<I=> = <LI!>.pop()", "del <LI!>[0]", "<LI*> += [<I>]", "<LI!>[1:2] = [<I>]", "<DT!>['a'] = <T>", "<DT!>['c'] = <T>",
    "<DT!>.update(b=<T>)", "<DT!>.pop('a', None)", "<T=> = <DT!>.setdefault('z', <T>)", "del <DT!>['b']", "<DI!>['n'] = <I>", "<DI!>['n'] += 1",
    "<DI!>[<S>] = <I>", "<T=> = <DT!>.pop('b')", "<SI!>.add(<I>)", "<SI!>.discard(<I>)", "<SI*> |= {<I>}", "~heapq.heappush(<LI!>, <I>)",
    "~bisect.insort(<LI!>, <I>)", "<LT!>.clear()", "<LI!>.extend(v for v in (1, <I>))", "<DT!>['a'] += 1", "<LT!>[-1].add_(1)", "<LT!>[0] += 1",
    "<O!>.a = <T>", "<O!>.n = <I>", "<O!>.bump(<I>)", "<O!>.keep(<X>)", "<O!>.double = <T>", "<O!>.items.append(<X>)", "<O!>.new = <X>", "~del <O!>.a",
    "setattr(<O!>, 'n', <I>)", "<O!>.a.add_(1)", "<O!>.n += 1", "<O!>.a += 1", "~delattr(<O!>, 'n')", "~LOG.append(<X>)", "~LOG.append(<S>)",
    "~CONFIG['a'] = <I>", "~CONFIG.setdefault(<S>, <I>)", "~WEIGHT.add_(1)", "~Box.made = <I>", "~Box.made += 1", "~MODEL.calls = <I>",
    "~MODEL.seen.add_(1)", "~STATE.n += 1", "~STATE.keep(<X>)", "~STATE.a = <T>", "~Watched(<I>).n = <I>", "~MODEL.seen = <T>", "~CONFIG['b'].append(<I>)",
    "~globals()['SCALE'] = <I>", "~MODEL.train(<B>)", "~print(<X>)", "~print(<S>, <I>)", "~print(<I>, end='')", "~warnings.warn('careful')",
    "~random.random()", "~torch.manual_seed(<I>)", "<FN!>(<T>)", "assert <B> or True, <S>", "del <X!>", "pass", "if <B>:\n    <JUMP>",
    "if <B>:\n    <RETURN>", "~if <B>:\n    <RAISE>", "<T=> = helper(<T>, <I>)", "~helper(<T>, n=<I>)", "import math as m",
    "v:I | <LI=> = [<I> for <v> in <LI> if <v>]", "v:I | <T=> = sum(<T> for <v> in range(<k>))", "<I=> = collections.deque(<LI>, 2).pop() if <LI!> else 0",
    "<S=> = ''.join(sorted({'b', 'a'}))", "it = iter(<LT>); <T=> = next(it, <T>); <LT=> = list(it)", "~gen = steps(<T>, 2); <T=> = next(gen); gen.close()",
    "<I=> = (lambda *a, **k: len(a) + len(k))(*<LI>, **<DI>)", "~Local = type('Local', (Box,), {'kind': <S>}); <O=> = Local(<T>)",
    "<T=> = (tmp := <T>) + tmp", "~x0, LOG[:] = <T>, [<I>]",
)  # fmt: skip
COMPOUND: tuple[str, ...] = (
    "if <B>:\n    <BLOCK>", "if <B>:\n    <BLOCK>\nelse:\n    <BLOCK>", "if <B>:\n    <BLOCK>\nelif <B>:\n    <BLOCK>\nelse:\n    <BLOCK>",
    "~if <T>.sum() > 0:\n    <BLOCK>\nelse:\n    <BLOCK>", "v:I | for <v> in range(<k>):\n    <BLOCK>", "v:I | for <v> in <LI>[:3]:\n    <BLOCK>",
    "v:T | for <v> in <LT>[:3]:\n    <BLOCK>\nelse:\n    <BLOCK>", "v:S w:T | for <v>, <w> in <DT>.items():\n    <BLOCK>",
    "v:I w:T | for <v>, <w> in enumerate(<LT>[:3]):\n    <BLOCK>", "~v:T | for <v> in steps(<T>, <k>):\n    <BLOCK>",
    "v:T | for <v> in <T>.reshape(-1)[:2]:\n    <BLOCK>", "v:I w:I | for <v>, <w> in zip(<LI>[:3], <LI>[:3]):\n    <BLOCK>",
    "v:I | <v> = 0\nwhile <v> < <k>:\n    <v> += 1\n    <BLOCK>\nelse:\n    <BLOCK>", "v:I | <v> = 3\nwhile <v> and <B>:\n    <v> -= 1\n    <BLOCK>",
    "v:I | for <v> in (1, 2):\n    <BLOCK>\n    if <B>:\n        <JUMP>\n    <BLOCK>",
    "try:\n    <BLOCK>\n    <RAISE>\nexcept (Oops, ValueError) as e:\n    LOG.append(str(e))\n    <BLOCK>",
    "try:\n    <BLOCK>\n    <RAISE>\nexcept Exception as e:\n    <S=> = type(e).__name__\n    <BLOCK>\nfinally:\n    <BLOCK>",
    "try:\n    <RAISE>\nexcept (LookupError, ArithmeticError):\n    <BLOCK>\nexcept Exception as e:\n    LOG.append(e.args)\nelse:\n    <BLOCK>",
    "try:\n    <BLOCK>\nfinally:\n    <BLOCK>", "try:\n    <T=> = <T>.reshape(-1)[torch.tensor([<I>, 0])]\nfinally:\n    <BLOCK>",
    "try:\n    try:\n        <BLOCK>\n        <RAISE>\n    except Exception:\n        LOG.append('again')\n        raise\nexcept Exception as e:\n    <BLOCK>",
    "try:\n    <RAISE>\nexcept Exception as e:\n    try:\n        raise Oops from e\n    except Oops as o:\n        LOG.append(repr(o.__cause__))\n    <BLOCK>",
    "~with Logged('a'):\n    <BLOCK>", "~with Logged('s', True):\n    <BLOCK>\n    <RAISE>", "with torch.no_grad():\n    <BLOCK>",
    "~v:S | with scope('c') as <v>:\n    <BLOCK>", "with torch.enable_grad():\n    <BLOCK>",
    "with contextlib.suppress(Exception):\n    <BLOCK>\n    <RAISE>", "~with Logged('a'), Logged('b', True) as lg:\n    <BLOCK>\n    LOG.append(lg.name)",
    "with torch.set_grad_enabled(<B>):\n    <BLOCK>", "match <I>:\n    case 1:\n        <BLOCK>\n    case _:\n        <BLOCK>",
    "match <P>:\n    case (first, 1):\n        <BLOCK>\n    case [first, *_]:\n        <BLOCK>",
    "~class Local:\n    k = <I>\n    def m(self, v):\n        return v + self.k\n<T=> = Local().m(<T>)",
    "try:\n    <BLOCK>\nexcept Exception:\n    <RETURN>",
)  # fmt: skip
INPUTS: dict[str, tuple[str, ...]] = {
    "T": (
        "rows(3)", "rows(2)", "rows(3, 2.0)", "rows(1)", "rows(3, grad=True)", "rows(2, grad=True)", "rows(3).t().contiguous().t()", "rows(5)[1:4]",
        "torch.ones(4)", "rows(3, dtype=torch.float64)", "WEIGHT", "torch.tensor(3.0)",
    ),
    "I": ("0", "1", "2", "3", "5", "True", "2.5"),
    "F": ("0.5", "1.5", "-0.0", "0.0", "2"),
    "S": ("'a'", "'b'", "'long-key'"),
    "B": ("True", "False", "0", "None"),
    "LT": ("[rows(3), rows(3, 2.0)]", "[rows(2)]", "[]", "[rows(3), torch.ones(4), rows(3)]", "[rows(3, grad=True)]"),
    "LI": ("[1, 2, 3]", "[2]", "[]", "[3, 1, 2, 0]", "CONFIG['b']"),
    "DT": (
        "{'a': rows(3), 'b': torch.ones(4)}", "{'b': rows(3), 'a': rows(3)}", "{'a': rows(2), 'b': rows(2), 'c': rows(2)}",
        "collections.OrderedDict(a=rows(3), b=rows(3))",
    ),
    "DI": ("{'n': 1, 'm': 2}", "{'n': 3}", "{'m': 0, 'n': 1}"),
    "SI": ("{1, 2}", "{3}", "set()"),
    "O": ("Box(rows(3), 2)", "Sub(rows(3))", "STATE", "Sub(torch.ones(4), 3)", "Box(torch.ones(4), 0)"),
    "FN": ("twice", "torch.relu", "decorated", "lambda v: v + 1", "STATE.scale", "functools.partial(spread, by=2)", "MODEL"),
    "P": ("(rows(3), 2)", "Pair(rows(3), 1)", "[rows(2), 0]"),
    "N": ("None", "rows(3)", "2"),
}  # fmt: skip
GLOBALS = {"COUNT": "I", "WEIGHT": "T", "STATE": "O", "SCALE": "I"}
TAME = ("T", "T", "T", "I", "F", "S", "B", "FN", "P", "N")
MIXED = ("T", "T", "I", "I", "F", "S", "B", "LT", "LI", "DT", "DI", "SI", "O", "O", "FN", "P", "N")


class Writer:
    """Writes one program. ``names`` are the variables in sight with their kinds; ``free`` are those that may be assigned here."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        wild = self.r.choice((0.0, 0.05, 0.2, 1.0))
        self.read = {name: kind for name, kind in GLOBALS.items() if self.r.random() < max(wild, 0.2)}
        self.globals = tuple(name for name in self.read if self.r.random() < wild)  # those that are assigned
        self.kinds = TAME if wild < 0.1 and self.r.random() < 0.7 else MIXED  # of parameters: without mutable ones, what is changed is local
        self.expressions = {kind: self.chosen(table, wild) for kind, table in EXPRESSIONS.items()}
        self.literals = {kind: self.chosen(table, wild) for kind, table in LITERALS.items()}
        self.simple, self.compound = self.chosen(SIMPLE, wild), self.chosen(COMPOUND, wild)
        self.names: dict[str, str] = {}
        self.free: set[str] = set()
        self.count = self.level = self.fuel = self.loops = 0
        self.helped = False  # whether there is a function ``helper`` to call
        self.result = "tuple"  # what the function being written returns

    def chosen(self, rows: tuple[str, ...], wild: float) -> tuple[str, ...]:
        return tuple(row.removeprefix("~") for row in rows if row[0] != "~" or self.r.random() < wild)

    # names

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind.lower()}{self.count}"

    def variable(self, kind: str, mark: str = "!") -> str | None:
        found = [n for n, k in self.names.items() if (k == kind and (mark == "!" or n in self.free)) or (kind == "X" and n in self.free and n not in GLOBALS)]
        return self.r.choice(found[-6:]) if found else None

    def target(self, kind: str) -> str:
        found = [n for n in self.names if self.names[n] == kind and n in self.free]
        return self.r.choice(found) if found and self.r.random() < 0.4 else self.fresh(kind)

    # rows

    def expression(self, kind: str, depth: int) -> str:
        if kind == "X":
            kind = self.r.choice("TTIISFLI" if depth else "TIS").replace("L", "LT")
            kind = kind if kind in EXPRESSIONS else "T"
        known = self.variable(kind)
        if known is not None and (depth <= 0 or self.r.random() < 0.55):
            return known
        if depth <= 0 or self.r.random() < 0.2:
            return self.r.choice(self.literals[kind])
        return self.fill(self.r.choice(self.expressions[kind]), depth - 1) or known or self.r.choice(self.literals[kind])

    def fill(self, row: str, depth: int) -> str | None:
        """The row with its holes filled; None when it needs a variable of a kind that is not in sight."""
        declared, _, text = row.partition(" | ")
        bound = {pair.partition(":")[0]: pair.partition(":")[2] for pair in declared.split()} if re.fullmatch(r"(\w:\w+ ?)+", declared) else {}
        text = text if bound else row
        if any(self.variable(m[1], m[2]) is None for m in HOLE.finditer(text) if m[2] in ("!", "*")) or ("helper(" in text and not self.helped):
            return None
        before, free = dict(self.names), set(self.free)
        local = {v: self.fresh(kind) for v, kind in bound.items()}
        made: dict[str, str] = {}
        self.names.update((local[v], kind) for v, kind in bound.items())
        lines = [self.line(line, depth, local, made) for line in text.split("\n")]
        new = {n: k for n, k in self.names.items() if n not in before and n not in local.values()}
        keep = ("\n" not in text or text.startswith("with")) or self.r.random() < 0.04
        self.names = {**before, **(new if keep else {}), **made}
        self.free = free | set(made) | (self.free & set(new) if keep else set[str]())
        if text.startswith("del ") and lines[0].split()[-1] in self.names and self.r.random() < 0.9:
            self.names.pop(lines[0].split()[-1])
        return "\n".join(lines)

    def line(self, line: str, depth: int, local: dict[str, str], made: dict[str, str]) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        parts: dict[str, Callable[[], str]] = {"BLOCK": self.block, "RAISE": self.raising, "JUMP": self.jump, "RETURN": self.returning}

        def hole(m: re.Match[str]) -> str:
            name, mark = m[1], m[2]
            if name in local:
                return local[name]
            if name == "k":
                return str(self.r.randrange(4))
            if name in parts:
                return textwrap.indent(parts[name](), indent).lstrip()
            if mark in ("!", "*"):
                return self.variable(name, mark) or self.r.choice(self.literals[name])
            if mark == "=":
                target = self.target(name)
                made[target] = name
                return target
            text = self.expression(name, depth)
            return text if re.fullmatch(r"[\w.]+(\([^()]*\))?|'[^']*'", text) or line.endswith(f"= {m[0]}") else f"({text})"

        if re.match(r"\s*(for|while) ", line):
            self.loops += 1
        if line == "else:" and local:  # of a loop: no longer in it
            self.loops -= 1
        return HOLE.sub(hole, line)

    def raising(self) -> str:
        return self.fill(self.r.choice(RAISES), 1) or "raise Oops(3)"

    def jump(self) -> str:
        return self.r.choice(("break", "continue")) if self.loops else "pass"

    def returning(self) -> str:
        if self.result == "T":
            return f"return {self.expression('T', 1)}"
        return f"return {self.expression('T', 1)}, {self.expression('I', 1)}" if self.result == "tuple" else "return"

    # statements

    def block(self) -> str:
        loops = self.loops
        made = [self.statement() for _ in range(self.r.choice((1, 1, 2, 3)))]
        self.loops = loops
        return "\n".join(made)

    def statement(self) -> str:
        self.fuel -= 1
        depth = 2 if self.r.random() < 0.7 else 3
        if self.level < 3 and self.fuel > 0 and self.r.random() < 0.4:
            self.level += 1
            loops = self.loops
            made = self.function() if self.r.random() < 0.15 else self.fill(self.r.choice(self.compound), 1)
            self.loops = loops
            self.level -= 1
            return made or "pass"
        return next(text for _ in range(99) if (text := self.fill(self.r.choice(self.simple), depth)) is not None)

    def function(self) -> str:
        """A nested function or generator: reads what is around it, writes what it declares."""
        name, argument, other = self.fresh("fn"), self.fresh("t"), self.fresh("i")
        around, free, result, loops = dict(self.names), set(self.free), self.result, self.loops
        written = [n for n in self.names if n in self.free and n not in GLOBALS and self.r.random() < 0.25]
        generator = self.r.random() < 0.2
        head = f"def {name}({argument}, {other}={self.expression('I', 0)}, *rest, **more):" if self.r.random() < 0.5 else f"def {name}({argument}, {other}=2):"
        self.free, self.loops, self.result = {argument, *written}, 0, "none" if generator else "T"
        self.names.update({argument: "T", other: "I"})
        body = [f"nonlocal {', '.join(written)}"] if written else []
        body += [self.block(), f"{'yield' if generator else 'return'} {self.expression('T', 2)}"]
        body += [self.block()] if generator else []
        self.names, self.free, self.result, self.loops = around, free, result, loops
        text = "\n".join([head, textwrap.indent("\n".join(body), "    ")])
        if generator:
            target = self.target("LT")
            text += f"\n{target} = list({name}({self.expression('T', 1)}))"
            self.names[target] = "LT"
            self.free.add(target)
        else:
            self.names[name] = "FN"
        return text

    def body(self, parameters: dict[str, str], statements: int, result: str) -> str:
        """The statements of a function at the top of the module."""
        self.names, self.free, self.result = {**self.read, **parameters}, {*parameters, *self.globals}, result
        self.fuel, self.level, self.loops = statements, 0, 0
        lines = [f"global {', '.join(self.globals)}"] if self.globals else []
        while self.fuel > 0:
            lines.append(self.statement())
        if result == "T":
            lines.append(f"return {self.expression('T', 2)}")
        else:
            held = [n for n in self.names if n not in GLOBALS and self.r.random() < 0.6]
            lines.append(f"return {', '.join([self.expression('T', 2), *held])},")
        return textwrap.indent("\n".join(lines), "    ")

    # the module

    def parameters(self) -> dict[str, str]:
        kinds = ["T", *(self.r.choice(self.kinds) for _ in range(self.r.randrange(5)))]
        return {self.fresh(k): k for k in kinds}

    def arguments(self, parameters: dict[str, str]) -> list[str]:
        """The body of ``inputs``: four calls, each mostly like the one before."""
        values = {n: self.r.choice(INPUTS[k]) for n, k in parameters.items()}
        lines: list[str] = []
        for call in range(4):
            for n, k in parameters.items():
                if call and self.r.random() < 0.25:
                    same = [m for m, other in parameters.items() if other == k and m != n and list(parameters).index(m) < list(parameters).index(n)]
                    alias = self.r.choice(same) if same and self.r.random() < 0.4 else None
                    values[n] = (alias if k != "T" or self.r.random() < 0.6 else f"{alias}.reshape(-1)[:4]") if alias else self.r.choice(INPUTS[k])
            lines += [f"if call == {call}:", *(f"    {n} = {v}" for n, v in values.items())]
            names = list(parameters)
            positional, keyword = (names, []) if self.r.random() < 0.7 else (names[:1], names[1:])
            lines.append(f"    return ({''.join(n + ', ' for n in positional)}), {{{', '.join(f'{n!r}: {n}' for n in keyword)}}}")
        return lines

    def program(self) -> str:
        helper = self.body({"x": "T", "n": "I"}, self.r.randrange(1, 5), "T")
        self.helped = True
        parameters = self.parameters()
        body = self.body(parameters, self.r.randrange(4, 14), "tuple")
        inputs = textwrap.indent("\n".join(self.arguments(parameters)), "    ")
        signature = ", ".join(parameters)
        if self.r.random() < 0.15:  # f is a closure that counts its calls
            inner = textwrap.indent(f"def f({signature}):\n    nonlocal calls\n    calls += 1\n{body}", "    ")
            f = f"def make(calls):\n{inner}\n    return f\n\n\nf = make(0)"
        else:
            f = f"def f({signature}):\n{body}"
        return "\n\n\n".join([WORLD.rstrip(), f"def helper(x, n=1):\n{helper}", f, f"def inputs(call):\n{inputs}"]) + "\n"


def program(seed: int) -> str:
    """The text of program number ``seed``."""
    return Writer(seed).program()
