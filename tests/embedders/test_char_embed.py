"""Test character embeddings: rows for tokens and bigrams, which are added during training."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from model_checks import learn
from spacy.strings import get_string_id
from thinc.api import Model, chain

from spacy_tener.embedders.char_embed import BIGRAM, UNIGRAM, build_char_embed
from spacy_tener.embedders.tables import check_loaded, observe
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.shim import torch_shim

NO_DROPOUT = {"dropout": 0.0, "word_dropout": 0.0, "bigram_dropout": 0.0}


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("zh")


@pytest.fixture
def doc_of(nlp):
    return nlp.make_doc


def embedder(**settings):
    model = build_char_embed(**{"width": 6, "bigram_width": 4, **NO_DROPOUT, **settings})
    model.initialize()
    return model


def n_rows(model):
    return {name: len(table) for name, table in model.attrs["vocabulary"].tables.items()}


def row_of(model, string, name=UNIGRAM):
    return model.attrs["vocabulary"].tables[name].rows(np.array([get_string_id(string)], dtype=np.uint64))[0]


def weights(model, name=UNIGRAM):
    return torch_shim(model).module.tables[name].detach().numpy()


def test_embedding_concatenates_unigram_and_bigram_rows(doc_of):
    model = learn(embedder(), [doc_of("中国人")])
    embedded = model.predict([doc_of("中国人")])[0]
    assert embedded.shape == (3, 10)
    assert model.get_dim("nO") == 10
    np.testing.assert_array_equal(embedded[:, :6], weights(model)[1:4])
    np.testing.assert_array_equal(embedded[:, 6:], weights(model, BIGRAM)[1:4])


def test_simplify_option_normalizes_characters(doc_of):
    simplified, traditional = doc_of("台湾IBM"), doc_of("臺灣ＩＢＭ")
    model = learn(embedder(simplify=True), [traditional])
    assert n_rows(model) == {UNIGRAM: 6, BIGRAM: 6}
    np.testing.assert_array_equal(*model.predict([simplified, traditional]))
    rows, traditional_rows = learn(embedder(), [simplified]).predict([simplified, traditional])
    assert not np.allclose(rows, traditional_rows)


def test_unseen_strings_share_the_unknown_row(doc_of):
    model = learn(embedder(), [doc_of("中国")])
    unknown, unknown_bigram = weights(model)[0], weights(model, BIGRAM)[0]
    for token in model.predict([doc_of("龘"), doc_of("x")]):
        np.testing.assert_array_equal(token[0], np.concatenate([unknown, unknown_bigram]))
    swapped = model.predict([doc_of("国中")])[0]
    np.testing.assert_array_equal(swapped[:, :6], weights(model)[[2, 1]])
    np.testing.assert_array_equal(swapped[:, 6:], np.stack([unknown_bigram, unknown_bigram]), "both bigrams are new")


def test_new_strings_do_not_move_existing_rows(doc_of):
    model = learn(embedder(), [doc_of("中国")])
    learn(model, [doc_of("国中人")])
    assert n_rows(model) == {UNIGRAM: 4, BIGRAM: 6}
    loaded = build_char_embed(width=6, bigram_width=4).from_bytes(model.to_bytes())
    learn(loaded, [doc_of("龘")])
    assert [row_of(loaded, string) for string in "中国人龘"] == [1, 2, 3, 4]
    assert row_of(model, "龘") == 0


def test_tables_that_differ_from_config_raise_error():
    with pytest.raises(ValueError, match=r"has the tables \['unigram'\], but the config requires \['bigram',"):
        build_char_embed(width=6, bigram_width=4).from_bytes(embedder(width=10, bigram_width=0).to_bytes())


def test_digits_option_maps_digits_to_one_row(doc_of):
    texts = [doc_of("1"), doc_of("2"), doc_of("９"), doc_of("٣")]
    same = [y.tolist() for y in learn(embedder(digits=True), texts).predict(texts)]
    assert same == same[:1] * 4
    with_digits = learn(embedder(digits=False), texts)
    assert n_rows(with_digits) == {UNIGRAM: 5, BIGRAM: 5}


def test_lower_option_ignores_case(doc_of):
    texts = [doc_of("A"), doc_of("a")]
    assert n_rows(learn(embedder(lower=True), texts))[UNIGRAM] == 2
    assert n_rows(learn(embedder(lower=False), texts))[UNIGRAM] == 3


def test_word_dropout_trains_unknown_row_only_in_training(doc_of):
    model = embedder(word_dropout=0.5, bigram_dropout=0.0)
    text = doc_of("中" * 100)
    before = [weights(model)[0].copy(), weights(model, BIGRAM)[0].copy()]
    learn(model, [text])
    assert (weights(model)[0] != before[0]).all()
    np.testing.assert_array_equal(weights(model, BIGRAM)[0], before[1])
    np.testing.assert_array_equal(model.predict([text])[0][0, :6], weights(model)[1])


def test_vocabulary_attribute_of_foreign_layer_is_ignored(doc_of):
    foreign = Model("foreign", lambda model, X, is_train: (X, lambda dY: dY), attrs={"vocabulary": ["a"], "size": 1})
    model = chain(embedder(), foreign)
    check_loaded(model)
    observe(model, [TokenBatch.of([doc_of("中国")])])
    assert n_rows(model.layers[0])[UNIGRAM] == 3
