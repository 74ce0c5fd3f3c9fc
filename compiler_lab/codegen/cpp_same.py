"""Equal kernels of one graph, compiled once: a repeated block of a model costs the C++ compiler what one block costs.

In: the text of a kernel. Out: its lines, or a call of an earlier kernel whose text differs in the names of buffers only.
Always holds: a kernel reads its arguments by position, so equal text on other arguments is that kernel; each line of a shared kernel names the
nodes of every group it computes.
Where PyTorch does this: ``torch/_inductor/codegen/wrapper.py`` keeps one definition for equal kernel source (``src_to_kernel``); regional
compilation there is the user's (``torch.compile`` of the repeated block). Left out: equal kernels of forward and backward, and of other graphs.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .artifact import bare
from .emit import Emitter

WORD = re.compile(r"\b(row_|keep_)?([A-Za-z_]\w*)\b")
HEAD = 2
"""Lines before what counts: an empty one, and the one that names the function."""


class Known:
    """The kernels that were written. ``names``: what buffers are called in C++."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.written: dict[str, tuple[str, int]] = {}  # text without names -> (kernel, its first line in the body)

    def add(self, body: Emitter, kernel: Emitter, name: str) -> str | None:
        """Writes ``kernel``, called ``name``, to ``body``; gives the name of the earlier one that it calls, if there is one."""
        other, first = self.written.setdefault(self.text(kernel), (name, len(body.lines)))
        if other == name:
            for line in kernel.lines:
                body.line(line.text, line.parents, line.stack)
            return None
        for at, line in enumerate(kernel.lines, first):
            body.lines[at] = replace(body.lines[at], parents=tuple(dict.fromkeys((*body.lines[at].parents, *line.parents))))
        head = kernel.lines[1]
        body.line()
        with body.block(f"{head.text.partition('//')[0].rstrip()}  // the loops of {other}: {head.text.partition(': ')[2]}", head.parents):
            body.line(f"return {other}(args);", head.parents)
        return other

    def text(self, kernel: Emitter) -> str:
        """Without comments, and with buffers by the order in which they appear."""
        order: dict[str, int] = {}

        def numbered(word: re.Match[str]) -> str:
            return f"{word[1] or ''}${order.setdefault(word[2], len(order))}" if word[2] in self.names else word[0]

        return "\n".join(WORD.sub(numbered, bare(line.text)) for line in kernel.lines[HEAD:])
