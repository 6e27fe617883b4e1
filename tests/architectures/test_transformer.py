"""Test the transformer encoder: layers, positions, dropout, and default settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paper_equations import reference_attention, reference_layer
from torch import Tensor

from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.architectures.tener.tener_torch import (
    AdaptedAttention,
    TransformerEncoder,
    VanillaAttention,
    transformer_attention,
)
from spacy_tener.nn.attention_torch import interleave, sinusoids
from spacy_tener.nn.ragged_torch import Ragged

LENGTHS = [4, 0, 11, 1, 35]


def make(input_width: int | None = 10, **options: Any) -> TransformerEncoder:
    torch.manual_seed(0)
    config = TransformerConfig(**{"width": 24, "heads": 3, "layers": 2, "dropout": 0.3, **options})
    return TransformerEncoder(config, input_width=input_width).double().eval()


def tokens(lengths: list[int] = LENGTHS, width: int = 10) -> Tensor:
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_layer_equals_paper_equations() -> None:
    encoder = make(input_width=None, layers=1)
    (layer,) = encoder.layers
    x = tokens([9], 24)
    expected = reference_layer(layer, x, reference_attention(layer.attention, x))
    assert torch.allclose(encoder(x, [9]), expected, atol=1e-11)


def test_vanilla_encoder_adds_absolute_positions_to_input() -> None:
    encoder = make(adapted=False, layers=1)
    x = tokens([5, 8])
    table = interleave(*sinusoids(8, 24, x))
    q_position = encoder.input(x) + torch.cat([table[:5], table[:8]])
    assert torch.allclose(encoder(x, [5, 8]), encoder.layers[0](q_position, Ragged.of([5, 8], heads=3)), atol=1e-12)


def test_input_layer_and_attention_have_no_output_dropout() -> None:
    encoder, x = make(dropout=0.9, attention_dropout=0.0), tokens()
    for layer in encoder.layers:
        torch.nn.init.zeros_(layer.feed_forward.narrow.weight)
        torch.nn.init.zeros_(layer.feed_forward.narrow.bias)
    expected = encoder(x, LENGTHS)
    assert torch.allclose(encoder.train()(x, LENGTHS), expected, atol=1e-12)


@pytest.mark.parametrize("zeroed", ["widen", "narrow"])
def test_feed_forward_has_dropout_after_both_layers(zeroed: str) -> None:
    """The weights of a layer are zero and its biases are one, so that only dropout can cause variation."""
    feed_forward = make(dropout=0.5, layers=1).layers[0].feed_forward.train()
    torch.nn.init.zeros_(getattr(feed_forward, zeroed).weight)
    torch.nn.init.ones_(getattr(feed_forward, zeroed).bias)
    rows = feed_forward(torch.zeros(200, 24, dtype=torch.float64))
    if zeroed == "narrow":
        assert set(rows.flatten().tolist()) == {0.0, rows.max().item()}
    else:
        remaining = rows[rows != 0]
        assert 0.4 < remaining.numel() / rows.numel() < 0.6
        assert remaining.unique().numel() > 1000


def test_position_tables_are_not_in_state_dict() -> None:
    encoder = make()
    before = set(encoder.state_dict())
    encoder(tokens(), LENGTHS)
    assert set(encoder.state_dict()) == before
    assert not list(encoder.buffers())


def test_float32_is_close_to_float64_for_long_sequence() -> None:
    encoder, x = make(layers=1), tokens([3000])
    expected = encoder(x, [3000])
    assert (encoder.float()(x.float(), [3000]) - expected).abs().max() < 1e-4


def test_config_selects_attention_type_and_scale() -> None:
    assert isinstance(transformer_attention(TransformerConfig()), AdaptedAttention)
    vanilla = transformer_attention(TransformerConfig(adapted=False))
    assert isinstance(vanilla, VanillaAttention)
    assert vanilla.scale == pytest.approx(32**-0.5)
    assert transformer_attention(TransformerConfig()).scale == 1.0
    assert transformer_attention(TransformerConfig(scaled=True)).scale == pytest.approx(32**-0.5)
    assert transformer_attention(TransformerConfig(adapted=False, scaled=False)).scale == 1.0


def test_attention_dropout_defaults_to_dropout() -> None:
    assert transformer_attention(TransformerConfig(dropout=0.2)).dropout == 0.2
    assert transformer_attention(TransformerConfig(dropout=0.2, attention_dropout=0.0)).dropout == 0.0


def test_feed_forward_width_defaults_to_twice_the_width() -> None:
    assert make().layers[0].feed_forward.widen.out_features == 48
    assert make(ff_width=7).layers[0].feed_forward.widen.out_features == 7
