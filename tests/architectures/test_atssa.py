"""Test the encoder of FLAT-ATSSA against the equations of the paper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lattices import random_lattice
from paper_equations import reference_attention, reference_layer, reference_selection
from torch import Tensor

from spacy_tener.architectures.flat.atssa_torch import AtssaEncoder, CoverSegments
from spacy_tener.architectures.flat.flat_config import AtssaConfig
from spacy_tener.architectures.flat.selection_torch import Selection, SelectiveAttention
from spacy_tener.architectures.tener.tener_torch import AdaptedAttention
from spacy_tener.embedders.lattice import Lattice

CHARS, WORDS = 10, 6
LENGTHS = [9, 2, 0, 30, 1]
# The ablations in Table 4 of the paper, and other options.
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "- Selective SA": {"selection": "none"},
    "- top-k": {"k": 0},
    "- AF": {"alpha": 1.0},
    "two layers": {"layers": 2},
}
parametrize_variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def make(**options: Any) -> AtssaEncoder:
    torch.manual_seed(0)
    config = AtssaConfig(**{"width": 16, "heads": 4, "dropout": 0.0, "penalty": 0.0, **options})
    return AtssaEncoder(config, char_width=CHARS, word_width=WORDS).double()


def batch(lengths: list[int]) -> tuple[Tensor, Tensor, Lattice]:
    """Return random embeddings and a lattice with two words per three characters."""
    lattice = random_lattice(lengths, density=0.67)
    torch.manual_seed(1)
    chars = torch.randn(lattice.n_characters, CHARS, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(lattice.n_words, WORDS, dtype=torch.float64, requires_grad=True)
    return chars, rows, lattice


def reference_context_layer(x: Tensor, layer: Any) -> Tensor:
    """Compute a context layer for one sentence without dropout, equation by equation."""
    attention = layer.attention
    selects = isinstance(attention, SelectiveAttention)
    mixed = reference_selection(attention, x)[0] if selects else reference_attention(attention, x)
    return reference_layer(layer, x, mixed)


@parametrize_variants
def test_encoder_prediction_equals_paper_equations(options: dict[str, Any]) -> None:
    encoder = make(**options).eval()
    chars, words, lattice = batch(LENGTHS)
    fused = encoder.fusion(chars, words, CoverSegments(lattice))
    rows = []
    for x in encoder.input(torch.cat((chars, fused), dim=-1)).split(LENGTHS):
        encoded = x
        if len(x):
            for layer in encoder.layers:
                encoded = reference_context_layer(encoded, layer)
        rows.append(encoded)
    assert torch.allclose(encoder(chars, words, lattice), torch.cat(rows), atol=1e-10)


def test_config_settings_are_passed_to_attention() -> None:
    attention = make(k=5, alpha=2.0, tau=0.5, penalty=0.25).layers[0].attention
    assert attention.selection == Selection(k=5, alpha=2.0, tau=0.5)
    assert attention.penalty.weight == 0.25


def test_penalty_gives_gradients_to_thresholds() -> None:
    inputs, gradients = batch([20]), []
    for penalty in (0.0, 1.0):
        encoder = make(penalty=penalty, alpha=1.0, k=0)
        torch.manual_seed(2)
        (encoder(*inputs) * 0.0).sum().backward()
        gradients.append(encoder.layers[0].attention.threshold.weight.grad)
    assert not gradients[0].any()
    assert gradients[1].any()


def test_default_settings_equal_the_paper() -> None:
    config = AtssaConfig()
    assert (config.selection, config.k, config.alpha, config.tau, config.penalty) == ("adaptive", 3, 50.0, 1.0, 4e-6)
    encoder = AtssaEncoder(config, char_width=CHARS, word_width=WORDS)
    layer = encoder.layers[0]
    assert layer.feed_forward.widen.out_features == 4 * 128
    assert isinstance(layer.attention, SelectiveAttention)
    assert isinstance(layer.attention.key, torch.nn.Linear)
    assert encoder.fusion.width == 128


def test_encoder_without_selection_uses_adapted_attention() -> None:
    attention = make(selection="none").layers[0].attention
    assert type(attention) is AdaptedAttention
    assert isinstance(attention.key, torch.nn.Linear)
