"""Time of the joint trace over that of make_fx, on the same captured graphs in one process, taking turns.

usage: python benchmarks/joint.py [--rounds 9] [--only NAME] [--profile NAME]

A model is captured once. One round traces the captured graph and its gradient with each: ``compiler_lab.joint``, which also says what each
output and input is, and make_fx on fake tensors over a function that runs the graph and ``torch.autograd.grad``. The first two rounds are not
counted. Below 0.5 is the aim. ``--profile NAME`` prints where our time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

import capture
import torch
import torch.fx as fx
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import compiler_lab
from compiler_lab.core.fakes import fake_mode


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, n, width = x.shape
        q, k, v = (t.view(b, n, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(self.norms[0](x)).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(96, 64), nn.Embedding(32, 64)
        self.blocks, self.norm = nn.ModuleList(GPTBlock(64, 4) for _ in range(depth)), nn.LayerNorm(64)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.table.weight.t()
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def training(make: Callable[[], tuple[nn.Module, tuple[Any, ...]]]) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    def made() -> tuple[nn.Module, tuple[Any, ...]]:
        model, args = make()
        return model.train(), args

    return made


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "mlp": training(capture.mlp),
    "conv net": training(capture.residual),
    "transformer": training(capture.transformer),
    "gpt, 4 blocks": lambda: (GPT(4), (torch.randint(0, 96, (2, 16)),)),
    "gpt, 12 blocks": lambda: (GPT(12), (torch.randint(0, 96, (2, 16)),)),
}


def captured(model: nn.Module, args: tuple[Any, ...]) -> tuple[fx.GraphModule, list[Tensor]]:
    """The one graph of the model and its inputs, parameters among them."""
    found: list[tuple[fx.GraphModule, list[Tensor]]] = []
    compiler_lab.compile(model, backend=lambda gm, inputs: (found.append((gm, list(inputs))), gm.forward)[1], fullgraph=True)(*args)
    ((module, inputs),) = found
    return module, inputs


def ours(module: fx.GraphModule, inputs: list[Tensor]) -> int:
    return len(compiler_lab.joint(module, *inputs).graph.nodes)


def theirs(module: fx.GraphModule, inputs: list[Tensor]) -> int:
    """Outputs and gradients in one graph, as ``torch._functorch`` has them."""
    mode = fake_mode()
    fakes = [mode.from_tensor(t) for t in inputs]

    def both(*given: Any) -> Any:
        outputs = module(*given)
        outputs = [o for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs]) if isinstance(o, Tensor)]
        of = [o for o in outputs if o.requires_grad]
        tangents = [torch.ones_like(o) for o in of]
        return outputs, torch.autograd.grad(of, [t for t in given if t.requires_grad], tangents, allow_unused=True)

    with mode:
        return len(make_fx(both)(*fakes).graph.nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--profile", choices=list(MODELS))
    options = parser.parse_args()
    if options.profile:
        module, inputs = captured(*MODELS[options.profile]())
        ours(module, inputs)
        profile = cProfile.Profile()
        profile.runcall(ours, module, inputs)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return
    print(f"{'model':16}{'nodes':>8}{'ours ms':>10}{'make_fx ms':>12}{'ratio':>8}")
    for name, make in MODELS.items():
        if options.only not in (None, name):
            continue
        torch.manual_seed(0)
        module, inputs = captured(*make())
        times: dict[Callable[..., int], list[float]] = {ours: [], theirs: []}
        count = 0
        for _ in range(options.rounds + 2):
            for trace, seconds in times.items():
                start = time.perf_counter()
                nodes = trace(module, inputs)
                seconds.append(time.perf_counter() - start)
                count = nodes if trace is ours else count
        mine, other = (statistics.median(seconds[2:]) for seconds in times.values())
        print(f"{name:16}{count:8}{mine * 1e3:10.1f}{other * 1e3:12.1f}{mine / other:8.2f}")


if __name__ == "__main__":
    main()
