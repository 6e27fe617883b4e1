"""What encoders looked at, as the architectures' own functions have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_systems import examples_of, pipeline

from research.maps import record_maps
from spacy_tener.layers.spans import attend_spans
from spacy_tener.models.shim import torch_shim

TEXT = "吴重阳在中国银行工作。"
WORDS = [(4, 6), (4, 8), (6, 8), (8, 10)]
"""The words of the lexicon in it: 中国, 中国银行, 银行, 工作."""


@pytest.fixture
def started(tok2vecs):
    """Makes a pipeline of an architecture with its initial weights."""

    def make(name):
        nlp = pipeline(tok2vecs[name])
        nlp.initialize(lambda: examples_of(nlp))
        return nlp

    return make


def encoders_of(nlp):
    nodes = nlp.get_pipe("tener_ner").model.walk()
    return [torch_shim(node).module for node in nodes if node.name in {"transformer_encoder", "flat_atssa"}]


def by_kind(nlp):
    return {(heat_map.kind, heat_map.stream): heat_map for heat_map in record_maps(nlp, TEXT)}


@pytest.mark.parametrize("name", ["TENER", "FLAT", "FLAT_ATSSA", "MECT"])
def test_what_a_character_looks_at_adds_up_to_one(name, started):
    n_keys = {"TENER": 11, "FLAT": 11 + 4, "FLAT_ATSSA": 11, "MECT": 11 + 4}[name]
    found = by_kind(started(name))
    maps = [heat_map for (kind, _), heat_map in found.items() if kind == "attention"]
    assert len(maps) == (2 if name == "MECT" else 1)
    assert {heat_map.layer for heat_map in found.values()} == {1}
    for heat_map in maps:
        assert heat_map.weights.shape == (2, 11, n_keys)
        np.testing.assert_allclose(heat_map.weights.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("name", ["TENER", "FLAT_ATSSA"])
def test_values_are_mixed_by_the_maps_of_units(name, started):
    nlp, taken = started(name), []
    (encoder,) = encoders_of(nlp)
    for layer in encoder.layers:
        layer.attention.register_forward_hook(lambda module, inputs, mixed: taken.append((module, inputs, mixed)))
    maps = [heat_map for heat_map in record_maps(nlp, TEXT) if heat_map.kind == "attention"]
    for heat_map, (module, (x, _, *context), mixed) in zip(maps, taken, strict=True):
        with torch.inference_mode():
            values = module.heads(x, *context).v
        expected = torch.einsum("htj,jhd->thd", torch.from_numpy(heat_map.weights), values).flatten(1)
        torch.testing.assert_close(mixed, expected)


@pytest.mark.parametrize("name", ["FLAT", "MECT"])
def test_values_are_mixed_by_the_maps_of_spans(name, started, monkeypatch):
    nlp, taken = started(name), []

    def noted(heads, groups, p):
        taken.append((heads.v, attend_spans(heads, groups, p)))
        return taken[-1][1]

    monkeypatch.setattr("spacy_tener.layers.lattice.attend_spans", noted)
    weights = torch.cat([torch.from_numpy(heat_map.weights) for heat_map in record_maps(nlp, TEXT)])
    ((values, mixed),) = taken
    torch.testing.assert_close(mixed, torch.einsum("htj,jhd->thd", weights, values))


def test_layers_are_told_apart_and_words_are_keys_only(tok2vecs):
    nlp = pipeline({**tok2vecs["MECT"], "layers": 2})
    nlp.initialize(lambda: examples_of(nlp))
    maps = record_maps(nlp, TEXT)
    assert [(heat_map.layer, heat_map.stream) for heat_map in maps] == [
        (n, name) for n in (1, 2) for name in ("lattice", "radicals")
    ]
    assert {heat_map.weights.shape for heat_map in maps} == {(2, 11, 15)}


def test_a_query_of_atssa_looks_only_at_the_keys_that_it_kept(started):
    attention = by_kind(started("FLAT_ATSSA"))["attention", ""]
    assert attention.n_keys is not None
    assert attention.n_keys.min() >= 3
    assert attention.n_keys.min() < 11
    assert ((attention.weights > 0).sum(-1) <= attention.n_keys).all()


def test_characters_read_the_words_that_cover_them_and_no_other(started):
    read = by_kind(started("FLAT_ATSSA"))["words", ""].weights
    assert read.shape == (2, 11, 4)
    covered = np.array([[start <= unit < end for start, end in WORDS] for unit in range(11)])
    assert (read[:, ~covered] == 0).all()
    np.testing.assert_allclose(read.sum(-1)[:, covered.any(1)], 1.0, atol=1e-5)


def test_relations_are_those_of_grn_s_figure(started):
    nlp = started("GRN")
    embed, grn = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").layers
    (embedded,) = embed.predict([nlp.make_doc(TEXT)])
    encoder = torch_shim(grn).module
    with torch.inference_mode():
        x = encoder.context(torch.from_numpy(embedded), np.array([len(TEXT)]))
        pairs = encoder.relation.left(x)[:, None] + encoder.relation.right(x)[None]
    found = by_kind(nlp)["relations", ""]
    np.testing.assert_allclose(found.weights[0], pairs.norm(dim=2), atol=1e-5)
    assert found.layer == 1


def test_a_pipeline_without_these_encoders_has_no_maps(tok2vecs):
    nlp = pipeline(tok2vecs["TENER"]["embed"])
    nlp.initialize(lambda: examples_of(nlp))
    assert record_maps(nlp, TEXT) == []


def test_looking_leaves_nothing_behind(started):
    nlp = started("TENER")
    record_maps(nlp, TEXT)
    encoder = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").layers[1]
    assert "predictor" not in vars(torch_shim(encoder))


def test_a_shared_component_s_encoder_has_maps(tok2vecs):
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    nlp = pipeline(listener)
    nlp.add_pipe("tok2vec", config={"model": tok2vecs["TENER"]}, before="tener_ner")
    nlp.initialize(lambda: examples_of(nlp))
    (found,) = record_maps(nlp, TEXT)
    assert found.weights.shape == (2, 11, 11)
