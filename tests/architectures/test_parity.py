"""Test that the NumPy implementation computes the same as the torch modules, for all architectures and options."""

from itertools import product

import numpy as np
import pytest
import torch
from lattices import lattice_of, random_lattice

from spacy_tener.architectures.flat import atssa_numpy, flat_numpy
from spacy_tener.architectures.flat.atssa_numpy import kth_largest
from spacy_tener.architectures.flat.atssa_torch import AtssaEncoder
from spacy_tener.architectures.flat.flat_config import AtssaConfig, FlatConfig, MectConfig
from spacy_tener.architectures.flat.flat_torch import SpanEncoder
from spacy_tener.architectures.grn import grn_numpy
from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.grn.grn_torch import GRNEncoder
from spacy_tener.architectures.tener import tener_numpy
from spacy_tener.architectures.tener.tener import make_char_transformer
from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.architectures.tener.tener_torch import TransformerEncoder
from spacy_tener.embedders import spelling_numpy as characters
from spacy_tener.embedders.spelling_torch import CharacterFeatures, char_cnn
from spacy_tener.nn import attention_numpy as attention
from spacy_tener.nn import layers_numpy as dense
from spacy_tener.nn.attention_numpy import compute_in_buckets
from spacy_tener.nn.layers_numpy import Weights
from spacy_tener.nn.layers_torch import EmbeddingTables

TOLERANCE = 1e-4
CHARACTERS, RADICALS, WORDS = 10, 7, 5
SENTENCES = [
    [(7, [(0, 2), (1, 2), (0, 6)]), (0, []), (1, [(0, 0)]), (12, []), (3, [(0, 1), (0, 1)])],
    [(4, [])],
    [(90, [(i, i + 2) for i in range(80)]), (60, [(0, 59)])],
    [(length, []) for length in (5, 0, 9, 9, 1, 30)],
    [(700, []), (3, [(0, 1)])],
    [(4, [(0, 1)])] * 3,
    [],
]


def options(**choices):
    """Return settings that change a single option, for all values of all options."""
    return [{name: value} for name, values in choices.items() for value in values]


def weights_of(module, scale=0.3):
    """Randomize all weights of a module, also those initialized with zeros or ones, and return them for NumPy."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * scale)
    module.eval()
    return Weights({name: value.numpy() for name, value in module.state_dict().items()})


def check(module, predictor, *inputs, tolerance=TOLERANCE):
    with torch.inference_mode():
        expected = module(*(torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in inputs)).numpy()
    got = predictor(*inputs)
    assert (got.dtype, got.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(got, expected, atol=tolerance, rtol=tolerance)


def rows(n, width):
    return torch.randn(n, width).numpy()


ENCODERS = {
    TransformerConfig: [
        {},
        *options(layers=[3], heads=[1], ff_width=[20], adapted=[False], scaled=[True, False]),
        {"adapted": False, "scaled": False},
        {"scaled": True, "layers": 2},
    ],
    GRNConfig: [
        {},
        *options(branches=[[1], [3], [], [1, 5]], relation=["gated", None]),
        {"branches": [], "width": CHARACTERS},
    ],
    FlatConfig: [{}, *options(layers=[2, 3], distances=[["hh", "tt"], ["th"]], ff_width=[9])],
    AtssaConfig: [
        {},
        *options(layers=[2], selection=["none"], k=[0, 1, 4, 9], ff_width=[9]),
    ],
    MectConfig: [
        {},
        *options(layers=[2], random_attention=[0, 20, 64]),
        {"layers": 2, "random_attention": 7},
    ],
}


IMPLEMENTATIONS = {
    TransformerConfig: (TransformerEncoder, tener_numpy.TransformerEncoder),
    GRNConfig: (GRNEncoder, grn_numpy.GRNEncoder),
    FlatConfig: (SpanEncoder, flat_numpy.SpanEncoder),
    MectConfig: (SpanEncoder, flat_numpy.SpanEncoder),
    AtssaConfig: (AtssaEncoder, atssa_numpy.AtssaEncoder),
}


def build(kind, **settings):
    """Return a torch module, its NumPy counterpart, and the widths of their inputs."""
    config = kind(**{"width": 24, **({} if kind is GRNConfig else {"heads": 3}), **settings})
    module_kind, predictor_kind = IMPLEMENTATIONS[kind]
    widths = [CHARACTERS]
    if kind not in (TransformerConfig, GRNConfig):
        widths += [*([RADICALS] if kind is MectConfig else []), WORDS]
    module = module_kind(config, *widths) if WORDS in widths else module_kind(config, input_width=CHARACTERS)
    return module, predictor_kind(config, weights_of(module)), widths


@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, settings) for kind, choices in ENCODERS.items() for settings in choices], ids=str
)
def test_numpy_encoder_matches_torch(kind, settings, monkeypatch):
    monkeypatch.setattr(grn_numpy, "TILE", 1000)
    module, predictor, widths = build(kind, **settings)
    for sentences in SENTENCES:
        lattice = lattice_of(*sentences)
        floats = [rows(lattice.n_words if width == WORDS else lattice.n_characters, width) for width in widths]
        check(module, predictor, *floats, lattice if WORDS in widths else lattice.lengths.tolist())


def test_transformer_without_input_layer_matches_torch():
    config = TransformerConfig(width=8, heads=2)
    module = TransformerEncoder(config)
    check(module, tener_numpy.TransformerEncoder(config, weights_of(module)), rows(9, 8), [4, 5])


@pytest.mark.parametrize("scale_of_queries", [1, 30, 3000])
def test_attention_with_large_scores_matches_torch(scale_of_queries):
    config = TransformerConfig(width=16, heads=2)
    module = TransformerEncoder(config, input_width=16)
    with torch.no_grad():
        module.layers[0].attention.query.weight *= scale_of_queries
    predictor = tener_numpy.TransformerEncoder(config, weights_of(module, scale=0.0))
    check(module, predictor, rows(60, 16) * 3, [20, 40])


def test_chunked_attention_scores_match_torch(monkeypatch):
    config = TransformerConfig(width=16, heads=2)
    module = TransformerEncoder(config, input_width=16)
    predictor = tener_numpy.TransformerEncoder(config, weights_of(module))
    monkeypatch.setattr(attention, "SCORES_IN_CACHE", 1 << 9)
    check(module, predictor, rows(206, 16), [100, 50, 50, 5, 1])


VANILLA = TransformerConfig(width=8, heads=2, adapted=False)
ADAPTED = TransformerConfig(width=8, heads=2)
CHARACTER_ENCODERS = {
    "cnn": (char_cnn(char_width=8, filters=7, window=3, width=5), lambda w: characters.CNN(3, 7, w)),
    "wide cnn": (char_cnn(char_width=8, filters=7, window=1, width=5), lambda w: characters.CNN(1, 7, w)),
    "adapted": (make_char_transformer(ADAPTED, width=5), lambda w: tener_numpy.TransformerEncoder(ADAPTED, w)),
    "vanilla": (make_char_transformer(VANILLA, width=5), lambda w: tener_numpy.TransformerEncoder(VANILLA, w)),
}


@pytest.mark.parametrize("kind", CHARACTER_ENCODERS)
def test_character_features_match_torch(kind):
    encoder, encode = CHARACTER_ENCODERS[kind]
    tables = EmbeddingTables(rows={"a": 20}, widths={"a": 8}, word_dropout={"a": 0.0}, dropout=0.0)
    module = CharacterFeatures(tables, encoder, dropout=0.2)
    predictor = characters.CharacterFeatures({"a": 8}, encode, 5, weights_of(module))
    for lengths in ([3, 0, 1, 12, 3], [0, 0], [2]):
        ids, words = np.arange(sum(lengths)) % 20, np.arange(9) % len(lengths)
        check(module, predictor, ids, np.array(lengths), words)


def test_concatenated_embedding_tables_match_torch():
    names = {"b": 5, "a": 3}
    module = EmbeddingTables(rows=names, widths={"b": 4, "a": 2}, word_dropout={"a": 0.5, "b": 0.5}, dropout=0.5)
    predictor = dense.EmbeddingTables({"b": 4, "a": 2}, weights_of(module))
    check(module, predictor, np.array([0, 4, 4]), np.array([1, 2, 0]))


@pytest.mark.parametrize(("length", "k"), product([1, 2, 5, 16, 33], [1, 2, 3, 7]))
def test_kth_largest_matches_sorting(length, k):
    x = np.random.default_rng(length * k).integers(0, 9, (2, 4, length)).astype(np.float32)
    expected_values = np.sort(x)[..., -k, None] if k <= length else np.full((2, 4, 1), -np.inf)
    np.testing.assert_array_equal(kth_largest(x, k), expected_values)


def test_compute_in_buckets_removes_padding():
    lengths, x = [3, 0, 9, 8, 1], rows(21, 2)
    np.testing.assert_array_equal(compute_in_buckets(lengths, x, 2, lambda padded, _: padded.copy()), x)


def test_long_lattice_matches_torch():
    lattice = random_lattice([130, 70])
    config = FlatConfig(width=8, heads=2, layers=2)
    module = SpanEncoder(config, 4, 4)
    predictor = flat_numpy.SpanEncoder(config, weights_of(module))
    check(module, predictor, rows(lattice.n_characters, 4), rows(lattice.n_words, 4), lattice)
