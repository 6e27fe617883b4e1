"""Tables that lost rows: what they still know reads as before, all else as unknown, and they can go on learning."""

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
    """The heights of the first embedder's tables."""
    return table_embedders(nlp.get_pipe("tener_ner").model)[0].vocabulary.heights()


def trim(nlp, texts, **settings):
    """Trim a pipeline."""
    model = nlp.get_pipe("tener_ner").model
    counts = count_rows(model, [TokenBatch.of([nlp.make_doc(text) for text in texts])])
    trim_tables(model, counts, **{"min_count": 1, "half": False} | settings)


def sizes(nlp):
    """The bytes of all tables."""
    embedders = table_embedders(nlp.get_pipe("tener_ner").model)
    return [
        embedder.shim.weights[embedder.vocabulary.weight_of(name)].nbytes
        for embedder in embedders
        for name in embedder.vocabulary.tables
    ]


def test_texts_whose_strings_stay_read_as_before(nlp):
    before, whole, unknown = emissions(nlp, FEW), sizes(nlp), emissions(nlp, ["鸟虫鱼"])
    trim(nlp, FEW)
    assert all(after <= size for after, size in zip(sizes(nlp), whole, strict=True))
    assert heights(nlp)["unigram"] == 1 + len(set("".join(FEW)))
    np.testing.assert_array_equal(emissions(nlp, FEW), before)
    # Characters that are not in these texts have become like those of no text.
    np.testing.assert_allclose(emissions(nlp, ["学李华"]), unknown, atol=1e-6)
    again = spacy.blank("zh").from_config(nlp.config)
    np.testing.assert_array_equal(emissions(again.from_bytes(nlp.to_bytes()), FEW), before)


def test_strings_stay_that_come_often_enough(nlp):
    counts = Counter("".join(FEW + MORE))
    trim(nlp, FEW + MORE, min_count=3)
    assert heights(nlp)["unigram"] == 1 + sum(count >= 3 for count in counts.values())


def test_half_the_bytes_are_nearly_the_same_numbers(nlp):
    before, whole = emissions(nlp, FEW + MORE), sizes(nlp)
    trim(nlp, FEW + MORE, half=True)
    assert all(after <= size / 2 for after, size in zip(sizes(nlp), whole, strict=True))
    after = emissions(nlp, FEW + MORE)
    assert after.dtype == np.float32
    np.testing.assert_allclose(after, before, atol=5e-3)
    loaded = spacy.blank("zh").from_config(nlp.config).from_bytes(nlp.to_bytes())
    np.testing.assert_array_equal(emissions(loaded, FEW + MORE), after)


def test_what_was_trimmed_goes_on_learning(nlp):
    trim(nlp, FEW, half=True)
    optimizer = nlp.resume_training()
    losses = [nlp.update(examples_of(nlp), sgd=optimizer)["tener_ner"] for _ in range(10)]
    assert losses[-1] < losses[0]
    assert heights(nlp)["unigram"] == 1 + len(set("".join(FEW + MORE)))


@pytest.mark.parametrize("fewer", [0, 1])
def test_tables_of_at_most_so_many_rows_stay_whole(nlp, monkeypatch, fewer):
    before = heights(nlp)["unigram"]
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", before - fewer)
    trim(nlp, FEW)
    assert (heights(nlp)["unigram"] == before) == (fewer == 0)
