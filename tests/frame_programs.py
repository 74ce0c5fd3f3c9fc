"""Programs whose captures, guards and breaks the views are shown on, and their traces."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import compiler_lab
from compiler_lab.observe.trace import Trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.step = 2

    def forward(self, x: Any, k: Any) -> Any:
        y = self.fc(x)
        for _ in range(2):
            y = torch.relu(y) * k
        return y + self.step


def helper(x: Any) -> Any:
    if x.sum() > 0:
        return x * 2
    return x - 1


def broken(x: Any) -> Any:
    y = x + 1
    print("<b>value</b>", y.shape)
    for _ in range(2):
        y = helper(y)
    return y.relu()


def recompiled() -> Trace:
    """Three compiles of one module: a size that varies, then an attribute that does."""
    trace, net = Trace("Net <script>alert(1)</script>"), Net()
    compiled = compiler_lab.compile(net, backend="eager", options={"film": True}, observe=trace.append)
    compiled(torch.randn(2, 3), 2)
    compiled(torch.randn(4, 3), 2)
    net.step = 3
    compiled(torch.randn(5, 3), 2)
    return trace


def breaking() -> Trace:
    trace = Trace("broken")
    compiler_lab.compile(broken, backend="eager", options={"film": True}, observe=trace.append)(torch.ones(3))
    return trace
