"""Test trimmed embedding tables: predictions for remaining and removed strings, sizes, and further training."""

from collections import Counter

import numpy as np
import pytest
import spacy
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs

from spacy_tener.embedders.tables import table_embedders
from spacy_tener.export import trimming
from spacy_tener.export.trimming import count_rows, trim_tables
from spacy_tener.features.tokens import TokenBatch

FEW, MORE = [text for text, _ in TEXTS[:4]], [text for text, _ in TEXTS[4:]]


@pytest.fixture(autouse=True)
def _all_tables_are_large(monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)


@pytest.fixture(params=["TENER", "FLAT", "MECT", "GRN"])
def nlp(request, tmp_path):
    nlp = pipeline(small_tok2vecs(tmp_path)[request.param])
    nlp.initialize(lambda: examples_of(nlp))
    for _ in range(3):
        nlp.update(examples_of(nlp))
    return nlp


def emissions(nlp, texts):
    return np.concatenate(nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(text) for text in texts]))


def heights(nlp):
    """Return the number of rows of the tables in the first embedder."""
    return table_embedders(nlp.get_pipe("tener_ner").model)[0].vocabulary.heights()


def trim(nlp, texts, **settings):
    """Trim the tables of a pipeline to the strings of the texts."""
    model = nlp.get_pipe("tener_ner").model
    counts = count_rows(model, [TokenBatch.of([nlp.make_doc(text) for text in texts])])
    trim_tables(model, counts, **{"min_count": 1, "half": False} | settings)


def sizes(nlp):
    """Return the size of all tables in bytes."""
    embedders = table_embedders(nlp.get_pipe("tener_ner").model)
    return [
        embedder.shim.weights[embedder.vocabulary.weight_of(name)].nbytes
        for embedder in embedders
        for name in embedder.vocabulary.tables
    ]


def test_trimming_preserves_predictions_for_remaining_strings(nlp):
    before, original_sizes, unknown = emissions(nlp, FEW), sizes(nlp), emissions(nlp, ["鸟虫鱼"])
    trim(nlp, FEW)
    assert all(after <= size for after, size in zip(sizes(nlp), original_sizes, strict=True))
    assert heights(nlp)["unigram"] == 1 + len(set("".join(FEW)))
    np.testing.assert_array_equal(emissions(nlp, FEW), before)
    # Characters that do not occur in these texts have become unknown.
    np.testing.assert_allclose(emissions(nlp, ["学李华"]), unknown, atol=1e-6)
    again = spacy.blank("zh").from_config(nlp.config)
    np.testing.assert_array_equal(emissions(again.from_bytes(nlp.to_bytes()), FEW), before)


def test_min_count_removes_rare_strings(nlp):
    counts = Counter("".join(FEW + MORE))
    trim(nlp, FEW + MORE, min_count=3)
    assert heights(nlp)["unigram"] == 1 + sum(count >= 3 for count in counts.values())


def test_half_option_approximately_preserves_predictions(nlp):
    before, original_sizes = emissions(nlp, FEW + MORE), sizes(nlp)
    trim(nlp, FEW + MORE, half=True)
    assert all(after <= size / 2 for after, size in zip(sizes(nlp), original_sizes, strict=True))
    after = emissions(nlp, FEW + MORE)
    assert after.dtype == np.float32
    np.testing.assert_allclose(after, before, atol=5e-3)
    loaded = spacy.blank("zh").from_config(nlp.config).from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(emissions(loaded, FEW + MORE), after)


def test_trimmed_pipeline_can_be_trained_further(nlp):
    trim(nlp, FEW, half=True)
    optimizer = nlp.resume_training()
    losses = [nlp.update(examples_of(nlp), sgd=optimizer)["tener_ner"] for _ in range(10)]
    assert losses[-1] < losses[0]
    assert heights(nlp)["unigram"] == 1 + len(set("".join(FEW + MORE)))


@pytest.mark.parametrize("fewer", [0, 1])
def test_small_tables_are_not_trimmed(nlp, monkeypatch, fewer):
    before = heights(nlp)["unigram"]
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", before - fewer)
    trim(nlp, FEW)
    assert (heights(nlp)["unigram"] == before) == (fewer == 0)
