"""The layer of a transformer encoder in evaluation: opened, it computes what aten's own operator computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import compiler_lab
from compiler_lab.observe.trace import Trace

LAYER = "_transformer_encoder_layer_fwd"


def layer(norm_first: bool = False, activation: str = "relu", dtype: torch.dtype = torch.float32) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.1, batch_first=True, norm_first=norm_first, activation=activation, dtype=dtype).eval()
    for p in made.parameters():
        p.data += torch.randn_like(p) / 10  # norms and biases begin as ones and zeros, which hide mistakes
    return made


def opened(module: nn.Module, *args: object, **options: object) -> tuple[object, bool]:
    """The result, and whether aten's operator was opened."""
    trace = Trace()
    with torch.no_grad():
        result = compiler_lab.compile(module, fullgraph=True, observe=trace.append)(*args, **options)
    assert LAYER in trace.stage("joint").text()
    return result, LAYER not in trace.stage("decompose").text()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 4e-2)])
def test_an_opened_layer_computes_what_aten_computes(norm_first: bool, activation: str, dtype: torch.dtype, near: float) -> None:
    module, x = layer(norm_first, activation, dtype), torch.randn(3, 7, 32, dtype=dtype)
    with torch.no_grad():
        want = module(x)
    got, was_opened = opened(module, x)
    assert was_opened
    torch.testing.assert_close(got, want, atol=near, rtol=near)


@pytest.mark.parametrize(
    "masks", [{"src_mask": torch.ones(7, 7).triu(1).bool()}, {"src_key_padding_mask": torch.arange(21).view(3, 7) % 7 > 4}], ids=["of queries", "padding"]
)
def test_a_layer_with_a_mask_is_left_to_aten(masks: dict[str, torch.Tensor]) -> None:
    module, x = layer(), torch.randn(3, 7, 32)
    with torch.no_grad():
        want = module(x, **masks)
    got, was_opened = opened(module, x, **masks)
    assert not was_opened
    torch.testing.assert_close(got, want)
