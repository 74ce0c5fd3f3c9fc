"""The layer of a transformer encoder in evaluation: opened, it computes what aten's own operator computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import compiler_lab
from compiler_lab.observe.trace import Trace

LAYER = "_transformer_encoder_layer_fwd"
ATTENTION = "_native_multi_head_attention"


def layer(norm_first: bool = False, activation: str = "relu", dtype: torch.dtype = torch.float32) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.1, batch_first=True, norm_first=norm_first, activation=activation, dtype=dtype).eval()
    for p in made.parameters():
        p.data += torch.randn_like(p) / 10  # norms and biases begin as ones and zeros, which hide mistakes
    return made


def opened(module: nn.Module, *args: Any, target: str = LAYER, **options: Any) -> tuple[Any, bool]:
    """The result, and whether aten's operator was opened."""
    trace = Trace()
    with torch.no_grad():
        result = compiler_lab.compile(module, fullgraph=True, observe=trace.append)(*args, **options)
    assert target in trace.stage("joint").text()
    return result, target not in trace.stage("decompose").text()


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
def test_a_layer_with_a_mask_is_left_to_aten(masks: dict[str, Any]) -> None:
    module, x = layer(), torch.randn(3, 7, 32)
    with torch.no_grad():
        want = module(x, **masks)
    got, was_opened = opened(module, x, target=LAYER, **masks)
    assert not was_opened
    torch.testing.assert_close(got, want)


def test_attention_of_a_tensor_with_itself_is_opened() -> None:
    """A decoder calls it: its own layer has no operator."""
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(32, 4, batch_first=True).eval(), torch.randn(3, 7, 32)
    with torch.no_grad():
        want = module(x, x, x, need_weights=False)[0]
    got, was_opened = opened(module, x, x, x, need_weights=False, target=ATTENTION)
    assert was_opened
    torch.testing.assert_close(got[0], want, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("needs", [False, True])
def test_attention_with_a_mask_is_called_whole_with_or_without_its_weights(needs: bool) -> None:
    """Without them aten gives nothing in their place."""
    torch.manual_seed(0)
    module, x, mask = nn.MultiheadAttention(32, 4, batch_first=True).eval(), torch.randn(3, 7, 32), torch.arange(21).view(3, 7) % 7 > 4
    with torch.no_grad():
        want = module(x, x, x, key_padding_mask=mask, need_weights=needs)
    got, was_opened = opened(module, x, x, x, key_padding_mask=mask, need_weights=needs, target=ATTENTION)
    assert not was_opened and (got[1] is None) == (want[1] is None) != needs
    torch.testing.assert_close([g for g in got if g is not None], [w for w in want if w is not None])


def test_weights_that_were_not_asked_for_are_none_to_the_program_too() -> None:
    module, x = nn.MultiheadAttention(32, 4, batch_first=True).eval(), torch.randn(3, 7, 32)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        found = module(x, x, x, need_weights=False)
        return found[0] + 1, found[1] is None

    with torch.no_grad():
        assert compiler_lab.compile(program, backend="eager", fullgraph=True)(x)[1] is program(x)[1] is True
