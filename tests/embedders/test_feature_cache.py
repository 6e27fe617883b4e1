"""Test the cache for features of a frozen transformer during training."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_transformer import characters

from spacy_tener.embedders.transformer_embed import build_transformer_embed
from spacy_tener.nn.shim import torch_shim

TEXTS = ["吴重阳在中国", "2023 去", "", "王小明iPhones。", " "]
DOCS = [characters(text) for text in TEXTS]


def embedder(name, **settings):
    model = build_transformer_embed(name, **{"dropout": 0.0, "frozen": True} | settings)
    model.initialize()
    return model


@pytest.fixture
def record_batches(monkeypatch):
    """Return a function that records the batches of texts that a model encodes."""
    batches = []

    def record(model):
        module = torch_shim(model).module
        tokenizer = module.subword_tokenizer

        def tokenize(docs):
            batches.append([doc.text for doc in docs])
            return tokenizer(docs)

        monkeypatch.setattr(module, "subword_tokenizer", tokenize)
        return batches

    return record


def assert_same(found, expected_rows):
    for rows, expected in zip(found, expected_rows, strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_cached_features_equal_computed_features(tiny):
    cached, uncached = embedder(tiny), embedder(tiny, cache=0)
    cached.begin_update(DOCS)
    assert_same(cached.begin_update(DOCS[::-1])[0], uncached.begin_update(DOCS[::-1])[0])


def test_predictions_and_trainable_features_are_not_cached(tiny, record_batches):
    for model in (embedder(tiny), embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = record_batches(model)
        size = len(batches)
        model.predict(DOCS)
        model.predict(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]
        assert torch_shim(model).module.cache.size == 0
    for model in (embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = record_batches(model)
        size = len(batches)
        model.begin_update(DOCS)
        model.begin_update(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]
