"""Test pretrained vectors of character embeddings: initialization, training and serialization."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import spacy
from spacy.strings import get_string_id
from thinc.api import SGD

from spacy_tener.embedders.char_embed import BIGRAM, UNIGRAM, build_char_embed
from spacy_tener.embedders.tables import observe
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.shim import torch_shim

NO_DROPOUT = {"dropout": 0.0, "word_dropout": 0.0, "bigram_dropout": 0.0}
CHARACTERS = {"中": [3.0, 0.0, 4.0], "国": [0.0, 2.0, 0.0], "1": [1.0, 1.0, 1.0], "PERSON": [0.0, 0.0, 7.0]}
ONES = [3**-0.5] * 3
BIGRAMS = {"中国": [6.0, 8.0], "国<eos>": [0.0, 5.0], "中": [9.0, 9.0]}


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("zh")


def word2vec(path, rows, header=True):
    lines = [f"{string} {' '.join(map(str, row))}" for string, row in rows.items()]
    if header:
        lines.insert(0, f"{len(rows)} {len(next(iter(rows.values())))}")
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


@pytest.fixture
def characters(tmp_path):
    return word2vec(tmp_path / "characters.vec", CHARACTERS)


@pytest.fixture
def bigrams(tmp_path):
    return word2vec(tmp_path / "bigrams.vec", BIGRAMS)


def embedder(**settings):
    model = build_char_embed(**{"width": 3, "bigram_width": 2, **NO_DROPOUT, **settings})
    model.initialize()
    return model


def embedded(model, nlp, text):
    return model.predict([nlp.make_doc(text)])[0]


def test_initial_rows_are_normalized_vectors(characters, bigrams, nlp):
    model = embedder(vectors=characters, bigram_vectors=str(bigrams))
    np.testing.assert_allclose(embedded(model, nlp, "中国"), [[0.6, 0, 0.8, 0.6, 0.8], [0, 1, 0, 0, 1]], rtol=1e-6)


def test_whiten_vectors_option_whitens_rows(tmp_path, nlp):
    rng = np.random.default_rng(0)
    strings = [chr(0x4E00 + i) for i in range(300)]
    rows = dict(zip(strings, rng.normal((9.0, -4.0, 2.0), size=(300, 3)).tolist(), strict=True))
    path = word2vec(tmp_path / "many.vec", rows)
    model = embedder(vectors=path, bigram_width=0, whiten_vectors=True)
    table = embedded(model, nlp, "".join(strings))
    np.testing.assert_allclose(table.mean(0), np.zeros(3), atol=0.1)
    np.testing.assert_allclose(np.cov(table.T, bias=True), np.eye(3) / 3, atol=0.1)


def test_vector_lookup_normalizes_digits_like_tokens(characters, nlp):
    folded = embedder(vectors=characters, bigram_width=0)
    np.testing.assert_allclose(embedded(folded, nlp, "7９"), [ONES, ONES], rtol=1e-6)
    exact = embedder(vectors=characters, bigram_width=0, digits=False)
    np.testing.assert_allclose(embedded(exact, nlp, "1"), [ONES], rtol=1e-6)
    assert not np.allclose(embedded(exact, nlp, "7"), [ONES])


def test_vectors_are_updated_during_training(characters, nlp):
    model = embedder(vectors=characters, bigram_width=0)
    Y, backprop = model.begin_update([nlp.make_doc("中")])
    backprop([np.ones_like(Y[0])])
    model.finish_update(SGD(0.5, grad_clip=0.0))
    np.testing.assert_allclose(embedded(model, nlp, "中"), [[0.1, -0.5, 0.3]], rtol=1e-5)
    np.testing.assert_array_equal(embedded(model, nlp, "国"), [[0, 1, 0]])


def test_strings_without_vector_get_rows_after_vectors(characters, nlp):
    model = embedder(vectors=characters, bigram_width=0)
    observe(model, [TokenBatch.of([nlp.make_doc("中龘国")])])
    table = model.attrs["vocabulary"].tables[UNIGRAM]
    assert len(table) == len(CHARACTERS) + 2
    assert table.rows(np.array([get_string_id("龘")], dtype=np.uint64)).tolist() == [len(CHARACTERS) + 1]
    assert len(torch_shim(model).module.tables[UNIGRAM]) >= len(table)


def test_vector_coverage_of_training_data_is_logged(characters, bigrams, nlp, caplog):
    model = embedder(vectors=characters, bigram_vectors=bigrams)
    with caplog.at_level(logging.INFO, logger="spacy"):
        observe(model, (TokenBatch.of(map(nlp.make_doc, texts)) for texts in (["中国龘8", "中中中国"], ["国龘"])))
    # Found: 中, 国, the digit, 中国 and 国<eos>. Not found: 龘, 国龘, 龘0, 0<eos>, 中中 and 龘<eos>.
    assert "Pretrained unigram vectors: found 3 of 4 strings of the training data" in caplog.messages
    assert "Pretrained bigram vectors: found 2 of 7 strings of the training data" in caplog.messages


def test_missing_vectors_file_raises_error_on_initialize(tmp_path):
    model = build_char_embed(vectors=tmp_path / "nowhere.vec")
    with pytest.raises(ValueError, match=r"nowhere\.vec"):
        model.initialize()


@pytest.mark.parametrize(("option", "table"), [("vectors", CHARACTERS), ("bigram_vectors", BIGRAMS)])
def test_vectors_of_wrong_width_raise_error(option, table, tmp_path):
    path = word2vec(tmp_path / "other.vec", table)
    with pytest.raises(ValueError, match=r"other\.vec") as error:
        embedder(width=5, bigram_width=5, **{option: path})
    assert "5" in str(error.value)


def test_bigram_vectors_of_invalid_bigrams_are_unused(bigrams, nlp):
    model = embedder(bigram_vectors=bigrams)
    assert not np.isclose(embedded(model, nlp, "中中人"), 0.5**0.5).any()
    assert len(model.attrs["vocabulary"].tables[BIGRAM]) == len(BIGRAMS) + 1


def test_characters_of_bigram_vectors_are_saved_and_reset(bigrams):
    model = embedder(bigram_vectors=bigrams)
    loaded = embedder().from_bytes(model.to_bytes())
    assert set("中国") <= set(loaded.attrs["vocabulary"].pair_characters)
    model.attrs["vocabulary"].pair_characters = ""
    assert b"pair_characters" not in model.to_bytes()
    assert embedder().from_bytes(model.to_bytes()).attrs["vocabulary"].pair_characters == ""
    loaded.initialize()
    assert loaded.attrs["vocabulary"].pair_characters == ""
