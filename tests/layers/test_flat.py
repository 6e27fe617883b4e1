"""encoder is the paper's: two projections, layers with residuals over characters and words, words cut off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lattices import lattice_of, random_lattice, sentences_of
from paper_forms import assert_same, reference_span_attention
from torch import Tensor

from spacy_tener.batching.lattice import Lattice
from spacy_tener.layers.lattice import FlatConfig, SpanEncoder

LENGTHS = [4, 0, 11, 1, 35]
KINDS: list[dict[str, Any]] = [
    {},
    {"layers": 1},
    {"distances": ("hh", "tt"), "ff_width": 20},
]


def make(**options: Any) -> SpanEncoder:
    torch.manual_seed(0)
    config = FlatConfig(**{"width": 24, "heads": 3, "layers": 2, "dropout": 0.3, **options})
    return SpanEncoder(config, 10, 7).double().eval()


def inputs(lattice: Lattice, *, grad: bool = False) -> tuple[Tensor, Tensor, Lattice]:
    generator = torch.Generator().manual_seed(1)
    chars, words = (
        torch.randn(n, width, dtype=torch.float64, generator=generator).requires_grad_(grad)
        for n, width in [(lattice.n_characters, 10), (lattice.n_words, 7)]
    )
    return chars, words, lattice


def of_sentences(lattice: Lattice, chars: Tensor, words: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Characters, words, and places of the spans of each sentence."""
    parts = chars.split(lattice.lengths.tolist()), words.split(lattice.counts.tolist())
    return list(zip(*parts, map(torch.from_numpy, sentences_of(lattice)), strict=True))


def feed_forward(layer: Any, x: Tensor) -> Tensor:
    widen, narrow = layer.feed_forward.widen, layer.feed_forward.narrow
    return F.linear(torch.relu(F.linear(x, widen.weight, widen.bias)), narrow.weight, narrow.bias)


def rows_of(encoder: SpanEncoder, chars: Tensor, words: Tensor) -> Tensor:
    return torch.cat((encoder.inputs[0](chars), encoder.word_input(words)))


def plain(encoder: SpanEncoder, chars: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """One sentence as the paper has it: all spans through all layers, then the characters."""
    x = rows_of(encoder, chars, words)
    for (layer,) in (each.streams for each in encoder.layers):
        mixed = reference_span_attention(layer.attention, encoder.positions[0], x, x, places)
        x = layer.attention_norm(x + mixed)
        x = layer.feed_forward_norm(x + feed_forward(layer, x))
    return x[: len(chars)]


@pytest.mark.parametrize("options", KINDS)
def test_outputs_and_all_gradients_are_the_papers(options: dict[str, Any]) -> None:
    encoder = make(**options)
    chars, words, lattice = inputs(random_lattice(LENGTHS), grad=True)
    expected = torch.cat([plain(encoder, *sentence) for sentence in of_sentences(lattice, chars, words)])
    assert_same(encoder(chars, words, lattice), expected, [chars, words, *encoder.parameters()])


def test_maps_are_those_that_the_encoder_used() -> None:
    encoder = make(layers=1)
    chars, words, lattice = inputs(lattice_of((5, [(2, 4)])))
    (((weights,),),) = encoder.attention_weights(chars, words, lattice)
    (layer,) = encoder.layers[0].streams
    rows = rows_of(encoder, chars, words)
    mixed = torch.einsum("hij,jhd->ihd", weights, layer.attention.value(rows).view(6, 3, 8)).flatten(1)
    summed = layer.attention_norm(rows + mixed)
    expected = layer.feed_forward_norm(summed + feed_forward(layer, summed))[:5]
    assert torch.allclose(encoder(chars, words, lattice), expected, atol=1e-11)
