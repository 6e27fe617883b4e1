"""The encoders of FLAT and MECT equal the equations of the papers: words in addition to characters, cross-attention of
two streams, words without radicals, random attention, and words that are cut off."""

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
# FLAT, the rows of Table 8 in MECT's paper, and what else can be chosen. Random attention ends within the longest
# sentence in most, within its words in one, and behind it in one.
KINDS = {
    "FLAT": FLAT(),
    "two layers of FLAT": FLAT(layers=2),
    "two layers of FLAT with two distances": FLAT(layers=2, distances=("hh", "tt"), ff_width=20),
    "MECT": MECT(),
    "- RA": MECT(random_attention=0),
    "random attention of many places": MECT(random_attention=60),
    "random attention that ends within words": MECT(random_attention=19),
    "two layers": MECT(layers=2),
}
each_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
Config = FlatConfig | MectConfig


def widths_of(config: Config) -> tuple[int, ...]:
    """Those of characters, and of their radicals."""
    return (CHARS, RADICALS) if isinstance(config, MectConfig) else (CHARS,)


def make(config: Config) -> SpanEncoder:
    torch.manual_seed(0)
    encoder = SpanEncoder(config, *widths_of(config), WORDS).double().eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("blocks"):
            # As they begin, the numbers of random attention are too small to be seen.
            torch.nn.init.normal_(parameter)
    return encoder


def inputs(config: Config) -> tuple[list[Tensor], Lattice]:
    """Floats of characters, radicals and words, and the lattice."""
    lattice, generator = random_lattice(LENGTHS), torch.Generator().manual_seed(1)
    sizes = [*((lattice.n_characters, width) for width in widths_of(config)), (lattice.n_words, WORDS)]
    floats = [torch.randn(*size, dtype=torch.float64, generator=generator).requires_grad_() for size in sizes]
    return floats, lattice


def linear(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, getattr(layer, "bias", None))


def plain(encoder: SpanEncoder, characters_of_streams: list[Tensor], words: Tensor, places: Tensor) -> Tensor:
    """One sentence: all spans of each stream through all layers, pair by pair, then the characters."""
    of_words, n_streams = linear(encoder.word_input, words), encoder.config.n_streams
    first, *radicals = characters_of_streams
    streams = [torch.cat((linear(encoder.inputs[0], first), of_words))]
    streams += [torch.cat((linear(encoder.inputs[1], x), torch.zeros_like(of_words))) for x in radicals]
    for layer in encoder.layers if len(places) else []:
        asking = streams[::-1]
        mixed = [
            reference_span_attention(stream.attention, positions, x, asked_by, places)
            for stream, positions, x, asked_by in zip(layer.streams, encoder.positions, streams, asking, strict=True)
        ]
        streams = [reference_layer(*parts) for parts in zip(layer.streams, streams, mixed, strict=True)]
    streams = [x[: len(first)] for x in streams]
    return streams[0] if n_streams == 1 else linear(encoder.fusion, torch.cat(streams, dim=-1))  # eq. 14


def plain_batch(encoder: SpanEncoder, floats: list[Tensor], lattice: Lattice) -> Tensor:
    *characters, words = floats
    streams = [list(parts) for parts in zip(*(x.split(lattice.lengths.tolist()) for x in characters), strict=True)]
    words_of_sentences = words.split(lattice.counts.tolist())
    places = [torch.from_numpy(spans) for spans in sentences_of(lattice)]
    return torch.cat([plain(encoder, *sentence) for sentence in zip(streams, words_of_sentences, places, strict=True)])


@each_kind
def test_outputs_and_gradients_equal_paper_equations(config: Config) -> None:
    encoder, (floats, lattice) = make(config), inputs(config)
    expected = plain_batch(encoder, floats, lattice)
    assert_same(encoder(*floats, lattice), expected, [*floats, *encoder.parameters()])


def test_mect_parameter_count_equals_paper() -> None:
    encoder = SpanEncoder(MectConfig(), 100, 50, 50)
    width, hidden, places = 128, 384, 320
    inputs_and_fusion = (100 + 1 + 50 + 1 + 50 + 1) * width + (2 * width + 1) * width
    attention = 3 * width * width + 2 * width  # queries, values, W_R; u and v of all heads. Keys have none.
    positions = 2 * width * width
    feed_forward = (width + 1) * hidden + (hidden + 1) * width
    stream = attention + positions + feed_forward + 2 * 2 * width + 8 * places**2
    assert sum(p.numel() for p in encoder.parameters()) == inputs_and_fusion + 2 * stream == 2_060_288


def test_no_encoder_parameter_starts_with_radicals() -> None:
    """An optimizer gives `radicals*` a rate of its own."""
    assert not [name for name, _ in make(KINDS["MECT"]).named_parameters() if name.startswith("radicals")]
