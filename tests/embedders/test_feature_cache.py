"""Features of a frozen transformer that are kept while training: what is read, how often, and with what result."""

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
def read(monkeypatch):
    """The texts that transformers have read, in batches."""
    batches = []

    def listen(model):
        module = torch_shim(model).module
        tokenizer = module.subword_tokenizer

        def note(docs):
            batches.append([doc.text for doc in docs])
            return tokenizer(docs)

        monkeypatch.setattr(module, "subword_tokenizer", note)
        return batches

    return listen


def assert_same(found, wanted):
    for rows, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_what_is_kept_is_what_would_be_computed(tiny):
    keeping, computing = embedder(tiny), embedder(tiny, cache=0)
    keeping.begin_update(DOCS)
    assert_same(keeping.begin_update(DOCS[::-1])[0], computing.begin_update(DOCS[::-1])[0])


def test_nothing_is_kept_before_training_nor_of_a_transformer_that_learns(tiny, read):
    for model in (embedder(tiny), embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = read(model)
        size = len(batches)
        model.predict(DOCS)
        model.predict(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]
        assert torch_shim(model).module.cache.size == 0
    for model in (embedder(tiny, cache=0), embedder(tiny, frozen=False)):
        batches = read(model)
        size = len(batches)
        model.begin_update(DOCS)
        model.begin_update(DOCS)
        assert batches[size:] == [TEXTS, TEXTS]
