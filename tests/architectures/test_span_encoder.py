"""Test the encoders of FLAT and MECT against the equations of the papers.

This includes words in addition to characters, cross-attention of two streams, words without radicals, random attention,
and the removal of words from the output.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lattices import random_lattice, sentences_of
from paper_equations import assert_same, reference_layer, reference_span_attention
from torch import Tensor

from spacy_tener.architectures.flat.flat_config import FlatConfig, MectConfig
from spacy_tener.architectures.flat.flat_torch import SpanEncoder
from spacy_tener.embedders.lattice import Lattice

WIDTH, HEADS = 12, 3
CHARS, RADICALS, WORDS = 6, 4, 5
LENGTHS = [4, 0, 1, 17]
FLAT = partial(FlatConfig, width=WIDTH, heads=HEADS, dropout=0.3)
MECT = partial(MectConfig, width=WIDTH, heads=HEADS, dropout=0.3, random_attention=9)
# FLAT, the ablations in Table 8 of MECT's paper, and other options. Random attention covers some characters of the
# longest sentence (9 positions), some of its words (19), or all of them (60).
CONFIGS = {
    "FLAT": FLAT(),
    "two layers of FLAT": FLAT(layers=2),
    "two layers of FLAT with two distances": FLAT(layers=2, distances=("hh", "tt"), ff_width=20),
    "MECT": MECT(),
    "- RA": MECT(random_attention=0),
    "random attention of many positions": MECT(random_attention=60),
    "random attention that ends within words": MECT(random_attention=19),
    "two layers": MECT(layers=2),
}
parametrize_configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
Config = FlatConfig | MectConfig


def widths_of(config: Config) -> tuple[int, ...]:
    """Return the input widths of characters and, for MECT, of radicals."""
    return (CHARS, RADICALS) if isinstance(config, MectConfig) else (CHARS,)


def make(config: Config) -> SpanEncoder:
    torch.manual_seed(0)
    encoder = SpanEncoder(config, *widths_of(config), WORDS).double().eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("blocks"):
            # The initial values of random attention are too small to have a visible effect.
            torch.nn.init.normal_(parameter)
    return encoder


def inputs(config: Config) -> tuple[list[Tensor], Lattice]:
    """Return embeddings of characters, radicals and words, and the lattice."""
    lattice, generator = random_lattice(LENGTHS), torch.Generator().manual_seed(1)
    sizes = [*((lattice.n_characters, width) for width in widths_of(config)), (lattice.n_words, WORDS)]
    floats = [torch.randn(*size, dtype=torch.float64, generator=generator).requires_grad_() for size in sizes]
    return floats, lattice


def linear(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, getattr(layer, "bias", None))


def reference_sentence(
    encoder: SpanEncoder, characters_of_streams: list[Tensor], words: Tensor, span_positions: Tensor
) -> Tensor:
    """Encode the spans of one sentence pair by pair, and return the rows of its characters."""
    word_rows, n_streams = linear(encoder.word_input, words), encoder.config.n_streams
    first, *radicals = characters_of_streams
    streams = [torch.cat((linear(encoder.inputs[0], first), word_rows))]
    streams += [torch.cat((linear(encoder.inputs[1], x), torch.zeros_like(word_rows))) for x in radicals]
    for layer in encoder.layers if len(span_positions) else []:
        query_streams = streams[::-1]
        mixed = [
            reference_span_attention(stream.attention, positions, x, query_input, span_positions)
            for stream, positions, x, query_input in zip(
                layer.streams, encoder.positions, streams, query_streams, strict=True
            )
        ]
        streams = [reference_layer(*parts) for parts in zip(layer.streams, streams, mixed, strict=True)]
    streams = [x[: len(first)] for x in streams]
    return streams[0] if n_streams == 1 else linear(encoder.fusion, torch.cat(streams, dim=-1))  # equation 14


def reference_batch(encoder: SpanEncoder, floats: list[Tensor], lattice: Lattice) -> Tensor:
    *characters, words = floats
    streams = [list(parts) for parts in zip(*(x.split(lattice.lengths.tolist()) for x in characters), strict=True)]
    words_of_sentences = words.split(lattice.counts.tolist())
    span_positions = [torch.from_numpy(spans) for spans in sentences_of(lattice)]
    return torch.cat(
        [
            reference_sentence(encoder, *sentence)
            for sentence in zip(streams, words_of_sentences, span_positions, strict=True)
        ]
    )


@parametrize_configs
def test_outputs_and_gradients_equal_paper_equations(config: Config) -> None:
    encoder, (floats, lattice) = make(config), inputs(config)
    expected = reference_batch(encoder, floats, lattice)
    assert_same(encoder(*floats, lattice), expected, [*floats, *encoder.parameters()])


def test_mect_parameter_count_equals_paper() -> None:
    encoder = SpanEncoder(MectConfig(), 100, 50, 50)
    width, hidden, n_positions = 128, 384, 320
    inputs_and_fusion = (100 + 1 + 50 + 1 + 50 + 1) * width + (2 * width + 1) * width
    # Queries, values, W_R, and u and v of all heads. Keys have no projection.
    attention = 3 * width * width + 2 * width
    positions = 2 * width * width
    feed_forward = (width + 1) * hidden + (hidden + 1) * width
    stream = attention + positions + feed_forward + 2 * 2 * width + 8 * n_positions**2
    assert sum(p.numel() for p in encoder.parameters()) == inputs_and_fusion + 2 * stream == 2_060_288


def test_no_encoder_parameter_starts_with_radicals() -> None:
    """Optimizers can set a learning rate for the pattern `radicals*`, which must match the radical embedder only."""
    assert not [name for name, _ in make(CONFIGS["MECT"]).named_parameters() if name.startswith("radicals")]
