"""MECT's encoder is the paper's: two streams that ask each other, words without radicals, random attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lattices import random_lattice, sentences_of
from paper_forms import assert_same, reference_span_attention
from torch import Tensor

from spacy_tener.batching.lattice import Lattice
from spacy_tener.layers.lattice import MectConfig, SpanEncoder
from spacy_tener.layers.spans import attend_spans

WIDTH, HEADS = 12, 3
CHARS, RADICALS, WORDS = 6, 4, 5
LENGTHS = [4, 0, 1, 17]
# The rows of the paper's Table 8, and what else can be chosen. Random attention ends within the longest sentence in
# most, within its words in one, and behind it in one.
KINDS: dict[str, dict[str, Any]] = {
    "MECT": {},
    "experiment A": {"streams": "single"},
    "experiment B": {"streams": "parallel"},
    "- RA": {"random_attention": 0},
    "A - RA": {"streams": "single", "random_attention": 0},
    "random attention of many places": {"random_attention": 60},
    "random attention that ends within words": {"random_attention": 19},
    "two layers": {"layers": 2},
    "two parallel layers": {"layers": 2, "streams": "parallel"},
    "two layers of a single stream": {"layers": 2, "streams": "single", "ff_width": 20},
}
each_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
Inputs = tuple[Tensor, Tensor, Tensor, Lattice]


def make(**options: Any) -> SpanEncoder:
    torch.manual_seed(0)
    config = MectConfig(**{"width": WIDTH, "heads": HEADS, "random_attention": 9, "dropout": 0.3, **options})
    encoder = SpanEncoder(config, CHARS, RADICALS, WORDS).double().eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("blocks"):
            # As they begin, the numbers of random attention are too small to be seen.
            torch.nn.init.normal_(parameter)
    return encoder


def inputs(lattice: Lattice, *, grad: bool = False) -> Inputs:
    generator = torch.Generator().manual_seed(1)
    n, w = lattice.n_characters, lattice.n_words
    chars, radicals, words = (
        torch.randn(rows, width, dtype=torch.float64, generator=generator).requires_grad_(grad)
        for rows, width in [(n, CHARS), (n, RADICALS), (w, WORDS)]
    )
    return chars, radicals, words, lattice


# --- The paper's form, pair by pair ----------------------------------------------------------------------------------


def linear(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, getattr(layer, "bias", None))


def feed_forward(layer: Any, x: Tensor) -> Tensor:
    return linear(layer.feed_forward.narrow, torch.relu(linear(layer.feed_forward.widen, x)))


def plain_layer(encoder: SpanEncoder, layer: Any, streams: list[Tensor], places: Any) -> list[Tensor]:
    query_input = streams[::-1] if encoder.config.streams == "cross" else streams
    results = []
    for own, positions, x, asked_by in zip(layer.streams, encoder.positions, streams, query_input, strict=True):
        x = own.attention_norm(x + reference_span_attention(own.attention, positions, x, asked_by, places))
        results.append(own.feed_forward_norm(x + feed_forward(own, x)))
    return results


def plain(encoder: SpanEncoder, chars: Tensor, radicals: Tensor, words: Tensor, places: Any) -> Tensor:
    """One sentence: all spans of both streams through all layers, then the characters."""
    of_words = linear(encoder.word_input, words)
    if encoder.config.streams == "single":
        streams = [torch.cat((linear(encoder.inputs[0], torch.cat((chars, radicals), dim=-1)), of_words))]
    else:
        of_radicals = torch.cat((linear(encoder.inputs[1], radicals), torch.zeros_like(of_words)))
        streams = [torch.cat((linear(encoder.inputs[0], chars), of_words)), of_radicals]
    for layer in encoder.layers if len(chars) else []:
        streams = plain_layer(encoder, layer, streams, places)
    streams = [x[: len(chars)] for x in streams]
    return streams[0] if len(streams) == 1 else linear(encoder.fusion, torch.cat(streams, dim=-1))  # eq. 14


def of_sentences(inputs: Inputs) -> list[tuple[Any, ...]]:
    """Characters, radicals, words, and places of the spans of each sentence."""
    chars, radicals, words, lattice = inputs
    lengths, counts = lattice.lengths.tolist(), lattice.counts.tolist()
    parts = chars.split(lengths), radicals.split(lengths), words.split(counts)
    places = map(torch.from_numpy, sentences_of(lattice))
    return list(zip(*parts, places, strict=True))


@each_kind
def test_outputs_and_all_gradients_are_the_paper_s(options: dict[str, Any]) -> None:
    encoder, batch = make(**options), inputs(random_lattice(LENGTHS), grad=True)
    expected = torch.cat([plain(encoder, *sentence) for sentence in of_sentences(batch)])
    assert_same(encoder(*batch), expected, [*batch[:3], *encoder.parameters()])


# --- What the streams do ---------------------------------------------------------------------------------------------


def maps(encoder: SpanEncoder, batch: Inputs) -> list[Tensor]:
    """The attention maps of the first sentence in the first layer, one for each stream."""
    return [of_stream[0] for of_stream in encoder.attention_weights(*batch)[0]]


@pytest.mark.parametrize("streams", ["cross", "parallel"])
def test_in_the_cross_each_stream_is_asked_by_the_other(streams: str) -> None:
    """Radicals make the queries to the lattice there, and only the radicals' own otherwise."""
    encoder = make(streams=streams)
    chars, radicals, words, lattice = inputs(random_lattice([9]))
    lattice_map, radical_map = maps(encoder, (chars, radicals, words, lattice))
    other_lattice_map, other_radical_map = maps(encoder, (chars, radicals + 1.0, words, lattice))
    assert not torch.allclose(radical_map, other_radical_map)
    assert torch.allclose(lattice_map, other_lattice_map) == (streams == "parallel")


@each_kind
def test_maps_are_of_each_layer_stream_and_sentence(options: dict[str, Any]) -> None:
    encoder, batch = make(**options), inputs(random_lattice(LENGTHS))
    found = encoder.attention_weights(*batch)
    assert [len(layer) for layer in found] == [encoder.config.n_streams] * encoder.config.layers
    spans = (batch[3].lengths + batch[3].counts).tolist()
    for of_stream in (stream for layer in found for stream in layer):
        assert [tuple(weights.shape) for weights in of_stream] == [(HEADS, n, n) for n in spans]
        for weights in of_stream:
            assert torch.allclose(weights.sum(-1), weights.new_ones(weights.shape[:-1]))


def test_the_maps_are_those_that_outputs_are_made_with() -> None:
    encoder, batch = make(), inputs(random_lattice([8]))
    streams, words, plan = encoder._read(*batch)
    rows = encoder._rows(streams, words, plan)
    relative = [positions(plan) for positions in encoder.positions]
    for i, (own, weights) in enumerate(zip(encoder.layers[0].streams, maps(encoder, batch), strict=True)):
        values = own.attention.value(rows[i]).view(len(rows[i]), HEADS, -1)
        expected = torch.einsum("hij,jhd->ihd", weights[:, :8], values).flatten(1)
        heads = own.attention.heads(plan.by_characters, rows[1 - i][:8], rows[i], relative[i])
        assert torch.allclose(attend_spans(heads, plan.by_characters.groups, 0.0).flatten(1), expected)


# --- Random attention ------------------------------------------------------------------------------------------------


# --- Sizes and refusals ----------------------------------------------------------------------------------------------


def test_the_number_of_weights_is_that_of_the_paper_s_equations() -> None:
    encoder = SpanEncoder(MectConfig(), 100, 50, 50)
    width, hidden, places = 128, 384, 320
    inputs_and_fusion = (100 + 1 + 50 + 1 + 50 + 1) * width + (2 * width + 1) * width
    attention = 3 * width * width + 2 * width  # queries, values, W_R; u and v of all heads. Keys have none.
    positions = 2 * width * width
    feed_forward = (width + 1) * hidden + (hidden + 1) * width
    stream = attention + positions + feed_forward + 2 * 2 * width + 8 * places**2
    assert sum(p.numel() for p in encoder.parameters()) == inputs_and_fusion + 2 * stream == 2_060_288


def test_no_weight_is_taken_for_one_of_the_radical_embedder() -> None:
    """An optimizer gives `radicals*` a rate of its own."""
    assert not [name for name, _ in make().named_parameters() if name.startswith("radicals")]
