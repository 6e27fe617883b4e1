"""Tests of the variants in variants.py: they implement their equations, and can be trained, saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
import torch.nn.functional as F
from lattices import random_lattice, sentences_of
from paper_equations import assert_same, reference_layer, reference_scores, reference_span_attention
from small_systems import examples_of, pipeline
from spacy.cli._util import import_code
from thinc.api import get_current_ops
from torch import Tensor, nn

from research.variants import (
    DirectFusion,
    FixedThreshold,
    GatedAttention,
    LargestKeys,
    ParallelStreams,
    SingleStream,
)
from spacy_tener.architectures.flat import selection_torch
from spacy_tener.architectures.flat.flat_config import MectConfig
from spacy_tener.architectures.flat.selection_torch import Selection, SelectiveAttention
from spacy_tener.architectures.tener.tener_torch import RelativePositions
from spacy_tener.errors import UserError
from spacy_tener.export.onnx_model import export_model
from spacy_tener.nn.ragged_torch import Ragged, Segments
from spacy_tener.nn.shim import torch_shims

LENGTHS = [7, 1, 0, 12]
WIDTH, HEADS = 12, 3
CODE = Path(__file__).parents[1] / "variants.py"
# Architecture -> the argument for variants, and the names of the variants.
VARIANTS = {
    "GRN": ("relation", ["DFN", "GAttN"]),
    "FLAT_ATSSA": ("selection", ["FixedThreshold", "LargestKeys"]),
    "MECT": ("streams", ["SingleStream", "ParallelStreams"]),
}


def rows(width: int = WIDTH, lengths: list[int] = LENGTHS) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=generator).requires_grad_()


# GRN


def pair_scores(relation: Any, x: Tensor) -> Tensor:
    """Return r_ij (equation 4), or the argument of the sigmoid in equation 7, for one text. *Shape:* (tokens, tokens, d
    or 1)"""
    weight = torch.cat((relation.left.weight, relation.right.weight), dim=1)
    pairs = [F.linear(torch.cat((x_i, x_j)), weight, relation.left.bias) for x_i in x for x_j in x]
    return torch.stack(pairs).view(len(x), len(x), -1)


def direct_fusion(relation: DirectFusion, x: Tensor) -> Tensor:
    return torch.tanh(pair_scores(relation, x).sum(1) / len(x))  # equations 5 and 8


def gated_attention(relation: GatedAttention, x: Tensor) -> Tensor:
    alpha = torch.sigmoid(pair_scores(relation, x))
    return torch.tanh(torch.stack([(alpha[i] * x).sum(0) for i in range(len(x))]) / len(x))  # equations 7 and 8


@pytest.mark.parametrize(("variant", "plain"), [(DirectFusion, direct_fusion), (GatedAttention, gated_attention)])
def test_a_relation_is_the_papers_pair_by_pair(
    variant: Callable[..., nn.Module], plain: Callable[[Any, Tensor], Tensor]
) -> None:
    torch.manual_seed(0)
    relation, x = variant(width=WIDTH).double(), rows()
    nn.init.normal_(relation.left.bias)
    expected = torch.cat([plain(relation, text) for text in x.split(LENGTHS) if len(text)])
    assert_same(relation(x, LENGTHS), expected, [x, *relation.parameters()], within=1e-12)


def test_a_gate_of_gattn_is_one_number_for_all_channels() -> None:
    assert GatedAttention(width=WIDTH).left.weight.shape == (1, WIDTH)
    assert DirectFusion(width=WIDTH).left.weight.shape == (WIDTH, WIDTH)


# FLAT-ATSSA


def attention(variant: Callable[..., SelectiveAttention], **selection: Any) -> SelectiveAttention:
    torch.manual_seed(0)
    return variant(width=WIDTH, n_heads=HEADS, selection=Selection(**selection)).double()


def attend(module: SelectiveAttention, x: Tensor, lengths: list[int]) -> Tensor:
    ragged = Ragged.of(lengths, heads=HEADS)
    relative = RelativePositions.of(ragged, WIDTH // HEADS, x)
    mixed: Tensor = module(x, ragged, relative, Segments.of_sequences(ragged.lengths))
    return mixed


def fixed_threshold(module: SelectiveAttention, scores: Tensor, *, trains: bool) -> Tensor:
    """Return z of a query for a threshold of 0 (equations 8 and 9).

    scores: *Shape:* (keys,)
    """
    k = module.selection.k
    largest = scores.sort(descending=True).values
    bound = torch.zeros(()).double()
    if k:
        bound = torch.minimum(largest[k - 1], bound) if len(scores) >= k else torch.full_like(bound, -1e9)
    return torch.sigmoid(module.selection.alpha * (scores - bound)) if trains else (scores >= bound).double()


def largest_keys(module: SelectiveAttention, scores: Tensor, *, trains: bool) -> Tensor:
    """Return z of a query: 1 for the k keys with the largest scores."""
    z = torch.zeros_like(scores)
    z[scores.argsort(descending=True)[: module.selection.k]] = 1.0
    return z


def selected(module: SelectiveAttention, x: Tensor, z_of: Callable[..., Tensor], *, trains: bool) -> Tensor:
    """Compute equations 11 and 12 for one text, query by query."""
    scores, values = reference_scores(module, x), module.project(x)[2]
    mixed = torch.zeros(HEADS, len(x), WIDTH // HEADS).double()
    for head, query in np.ndindex(scores.shape[:2]):
        z = z_of(module, scores[head, query], trains=trains)
        weights = z * scores[head, query].exp()
        mixed[head, query] = (weights / weights.sum().clamp_min(1e-300)) @ values[:, head]
    return mixed.transpose(0, 1).flatten(1)


@pytest.mark.parametrize(
    ("variant", "z_of", "options"),
    [
        (FixedThreshold, fixed_threshold, {}),
        (FixedThreshold, fixed_threshold, {"k": 0, "alpha": 2.0}),
        (LargestKeys, largest_keys, {}),
        (LargestKeys, largest_keys, {"k": 5}),
    ],
)
@pytest.mark.parametrize("trains", [True, False])
def test_a_selection_is_the_papers_query_by_query(
    variant: Callable[..., SelectiveAttention],
    z_of: Callable[..., Tensor],
    options: dict[str, Any],
    trains: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In training, the noise is set to 0."""
    monkeypatch.setattr(selection_torch, "logistic_noise", torch.zeros_like)
    module, x = attention(variant, **options).train(trains), rows()
    texts = [selected(module, text, z_of, trains=trains) for text in x.split(LENGTHS) if len(text)]
    assert_same(attend(module, x, LENGTHS), torch.cat(texts), [x, *module.parameters()], within=1e-8)


def test_a_selection_has_no_threshold_to_learn() -> None:
    assert {name.partition(".")[0] for name, _ in attention(FixedThreshold).named_parameters()} == {
        name.partition(".")[0] for name, _ in attention(SelectiveAttention).named_parameters()
    } - {"threshold"}


def test_no_largest_key_is_refused() -> None:
    with pytest.raises(UserError, match="k must be at least 1"):
        attention(LargestKeys, k=0)


# MECT


def linear(layer: Any, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight, getattr(layer, "bias", None))


def self_attention(encoder: Any, stream: int, x: Tensor, places: Tensor) -> Tensor:
    """Compute all layers of one stream for one text. The queries of each layer are computed from the stream itself."""
    for layer in encoder.layers:
        part = layer.streams[stream]
        mixed = reference_span_attention(part.attention, encoder.positions[stream], x, x, places)
        x = reference_layer(part, x, mixed)
    return x


def single_stream(encoder: Any, characters: Tensor, radicals: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """Compute experiment A: concatenated characters and radicals, followed by words."""
    joined = torch.cat((characters, radicals), dim=1)
    spans = torch.cat((linear(encoder.inputs[0], joined), linear(encoder.word_input, words)))
    return self_attention(encoder, 0, spans, places)[: len(characters)]


def parallel_streams(encoder: Any, characters: Tensor, radicals: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """Compute experiment B: two streams with self-attention, and MECT's fusion."""
    of_words = linear(encoder.word_input, words)
    lattice = torch.cat((linear(encoder.inputs[0], characters), of_words))
    glyphs = torch.cat((linear(encoder.inputs[1], radicals), torch.zeros_like(of_words)))
    outputs = [self_attention(encoder, i, x, places)[: len(characters)] for i, x in enumerate((lattice, glyphs))]
    return linear(encoder.fusion, torch.cat(outputs, dim=1))  # equation 14


@pytest.mark.parametrize(("variant", "plain"), [(SingleStream, single_stream), (ParallelStreams, parallel_streams)])
@pytest.mark.parametrize("options", [{}, {"layers": 2}, {"random_attention": 0}], ids=str)
def test_streams_are_the_papers_pair_by_pair(
    variant: Callable[..., nn.Module], plain: Callable[..., Tensor], options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    config = MectConfig(**{"width": WIDTH, "heads": HEADS, "random_attention": 9, **options})
    encoder: Any = variant(config, 6, 4, 5).double().eval()
    for name, parameter in encoder.named_parameters():
        if name.endswith("blocks"):
            nn.init.normal_(parameter)
    lattice = random_lattice(LENGTHS)
    lengths, counts = lattice.lengths.tolist(), lattice.counts.tolist()
    characters, radicals, words = rows(6, lengths), rows(4, lengths), rows(5, counts)
    parts = (characters.split(lengths), radicals.split(lengths), words.split(counts), sentences_of(lattice))
    texts = [
        plain(encoder, *inputs, torch.from_numpy(places)) for *inputs, places in zip(*parts, strict=True) if len(places)
    ]
    got = encoder(characters, radicals, words, lattice)
    assert_same(got, torch.cat(texts), [characters, radicals, words, *encoder.parameters()])


def test_experiment_a_has_one_set_of_weights_and_b_those_of_mect() -> None:
    config = MectConfig(width=WIDTH, heads=HEADS)
    assert len(SingleStream(config, 6, 4, 5).layers[0].streams) == 1
    assert len(ParallelStreams(config, 6, 4, 5).layers[0].streams) == 2


# All of them in pipelines


@pytest.mark.parametrize(
    ("architecture", "name"), [(found, name) for found, (_, names) in VARIANTS.items() for name in names]
)
def test_a_variant_learns_and_is_the_same_once_saved_and_loaded(
    architecture: str, name: str, tok2vecs: dict[str, Any], tmp_path: Path
) -> None:
    import_code(CODE)
    setting = VARIANTS[architecture][0]
    nlp = pipeline({**tok2vecs[architecture], setting: {"@misc": f"research.{name}.v1"}})
    examples = examples_of(nlp)
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.03
    losses = [nlp.update(examples, sgd=optimizer)["tener_ner"] for _ in range(10)]
    assert losses[-1] < losses[0] / 2
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    assert loaded.config["components"]["tener_ner"]["model"]["tok2vec"][setting] == {"@misc": f"research.{name}.v1"}
    assert loaded.evaluate(examples_of(loaded))["ents_f"] == nlp.evaluate(examples)["ents_f"] > 0.0
    shims = torch_shims(loaded.get_pipe("tener_ner").model)
    assert not all(shim.predicts_with_numpy(get_current_ops()) for shim in shims)
    if architecture == "GRN":
        with pytest.raises(UserError, match="has no NumPy implementation, and cannot be exported"):
            export_model(loaded)
