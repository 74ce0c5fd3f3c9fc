"""Random small programs over shapes, for ``test_dynamic``: statements on a tensor ``x`` of shape (n, m), a tensor ``w`` of shape (m, 3) and an int ``k``.

In: a random source. Out: the text of a function, which Python runs and the compiler captures. Always holds: a program runs at any sizes or raises
the same in both; what it computes depends on nothing but its arguments.
"""

from __future__ import annotations

from typing import Any, Protocol


class Draw(Protocol):
    """Where choices come from: ``hypothesis`` or ``random``."""

    def choice(self, options: list[Any], /) -> Any: ...


NUMBERS = (
    "n|m|k|x.shape[0]|x.size(-1)|len(y)|y.shape[-1]|y.numel()|x.stride(0)|n + m|n * 2|n // 2|max(n, k)|n - 1|m % 3|min(n, m)|int(n / 2)|abs(k - n)|"
    "math.ceil(m / 2)|sum(y.shape)|math.prod(y.shape)|n * m|y.dim()|divmod(n, 3)[1]|-k"
).split("|")
FLOATS = ["n / 2", "1 / m", "m**-0.5", "math.sqrt(n)", "n * 0.1", "float(k)", "0.5", "n / m"]
SHAPES = [
    "y = y.reshape(-1)",
    "y = y.reshape({i}, -1)",
    "y = y.reshape(-1, y.shape[-1])",
    "y = y.view(y.shape)",
    "y = y.flatten()",
    "y = y.unsqueeze(0)",
    "y = y.transpose(0, -1)",
    "y = y.transpose(0, -1).contiguous()",
    "y = y[: {i}]",
    "y = y[{i} :]",
    "y = y[{i}]",
    "y = y[..., : {i}]",
    "y = y.narrow(0, 0, {i})",
    "y = torch.cat([y, y])",
    "y = torch.cat([y, y[:1]])",
    "y = torch.stack([y, y * 2], -1)",
    "y = y.expand({i}, *y.shape)",
    "y = y.repeat(2, *[1] * (y.dim() - 1))",
    "y = y.sum(0)",
    "y = y.mean(-1, keepdim=True)",
    "y = y.softmax(-1)",
    "y = y @ y.transpose(-1, -2)",
    "y = x @ w",
    "y = y @ w",
    "y = y + x",
    "y = y * {i}",
    "y = y * ({f})",
    "y = y + torch.ones({i})",
    "y = y + torch.arange({i})",
    "y = torch.zeros({i}, y.shape[-1]) + y[:1]",
    "y = y.new_full(({i},), 2.0)",
    "y = torch.nn.functional.pad(y, (1, 0))",
    "y = torch.nn.functional.layer_norm(y, y.shape[-1:])",
    "y = y.chunk(2)[0]",
    "y = torch.split(y, {i})[0]",
    "y = y.roll(1, 0).cumsum(0)",
    "y = y.masked_fill(torch.arange(y.shape[-1]) < {i}, 0.0)",
    "y = y.clone(); y[0] = 1.0",
    "y.mul_(2)",
    "n = {i}",
    "m, k = k, {i}",
    "out.append({i})",
    "out.append({f})",
    "out.append(y.shape)",
    "out.append(y.stride())",
    "out.append(f'{{{i}}}')",
    "out.append({i} == {i})",
    "for i in range(min({i}, 4)): y = y + i",
    "out.extend(s + 1 for s in y.shape)",
]
BRANCHES = ("{i} > {i}|{i} == {i}|{i} % 2 == 0|{i}|y.shape[0] == y.shape[-1]|y.shape == x.shape|y.is_contiguous()|{i} < 7 and {i} != 3|{i} in (2, 3, 4)").split(
    "|"
)


def _fill(draw: Draw, text: str) -> str:
    while "{i}" in text:
        text = text.replace("{i}", draw.choice(NUMBERS), 1)
    while "{f}" in text:
        text = text.replace("{f}", draw.choice(FLOATS), 1)
    return text.replace("{{", "{").replace("}}", "}")


def program(draw: Draw, length: int) -> str:
    """A function ``program(x, w, k)`` of ``length`` statements, some of them under a branch on sizes."""
    lines = ["n, m = x.shape", "y, out = x + 0, []"]
    for _ in range(length):
        statement = _fill(draw, draw.choice(SHAPES))
        if draw.choice([True, False, False]):
            lines += [f"if {_fill(draw, draw.choice(BRANCHES))}:", f"    {statement}", "else:", f"    {_fill(draw, draw.choice(SHAPES))}"]
        else:
            lines.append(statement)
    body = "\n".join(f"    {line}" for line in [*lines, "return y, out, n"])
    return f"def program(x, w, k):\n{body}\n"
