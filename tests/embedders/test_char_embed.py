"""The embedder: rows for tokens and for pairs of them, that arrive in training and stay."""

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

QUIET = {"dropout": 0.0, "word_dropout": 0.0, "bigram_dropout": 0.0}


@pytest.fixture(scope="module")
def nlp():
    return spacy.blank("zh")


@pytest.fixture
def doc_of(nlp):
    return nlp.make_doc


def embedder(**settings):
    model = build_char_embed(**{"width": 6, "bigram_width": 4, **QUIET, **settings})
    model.initialize()
    return model


def n_rows(model):
    return {name: len(table) for name, table in model.attrs["vocabulary"].tables.items()}


def row_of(model, string, name=UNIGRAM):
    return model.attrs["vocabulary"].tables[name].rows(np.array([get_string_id(string)], dtype=np.uint64))[0]


def weights(model, name=UNIGRAM):
    return torch_shim(model).module.tables[name].detach().numpy()


def test_a_token_has_its_own_row_and_that_of_its_pair(doc_of):
    model = learn(embedder(), [doc_of("中国人")])
    embedded = model.predict([doc_of("中国人")])[0]
    assert embedded.shape == (3, 10)
    assert model.get_dim("nO") == 10
    np.testing.assert_array_equal(embedded[:, :6], weights(model)[1:4])
    np.testing.assert_array_equal(embedded[:, 6:], weights(model, BIGRAM)[1:4])


def test_a_character_is_read_in_its_form_if_wanted(doc_of):
    known, other = doc_of("台湾IBM"), doc_of("臺灣ＩＢＭ")
    model = learn(embedder(simplify=True), [other])
    assert n_rows(model) == {UNIGRAM: 6, BIGRAM: 6}
    np.testing.assert_array_equal(*model.predict([known, other]))
    known_rows, other_rows = learn(embedder(), [known]).predict([known, other])
    assert not np.allclose(known_rows, other_rows)


def test_strings_never_seen_in_training_share_the_unknown_row(doc_of):
    model = learn(embedder(), [doc_of("中国")])
    unknown, pairs = weights(model)[0], weights(model, BIGRAM)[0]
    for token in model.predict([doc_of("龘"), doc_of("x")]):
        np.testing.assert_array_equal(token[0], np.concatenate([unknown, pairs]))
    swapped = model.predict([doc_of("国中")])[0]
    np.testing.assert_array_equal(swapped[:, :6], weights(model)[[2, 1]])
    np.testing.assert_array_equal(swapped[:, 6:], np.stack([pairs, pairs]), "both pairs are new")


def test_rows_stay_in_the_order_in_which_strings_came(doc_of):
    model = learn(embedder(), [doc_of("中国")])
    learn(model, [doc_of("国中人")])
    assert n_rows(model) == {UNIGRAM: 4, BIGRAM: 6}
    loaded = build_char_embed(width=6, bigram_width=4).from_bytes(model.to_bytes())
    learn(loaded, [doc_of("龘")])
    assert [row_of(loaded, string) for string in "中国人龘"] == [1, 2, 3, 4]
    assert row_of(model, "龘") == 0


def test_a_file_with_other_tables_than_the_config_s_is_refused():
    with pytest.raises(ValueError, match=r"has the tables \['unigram'\], but the config requires \['bigram',"):
        build_char_embed(width=6, bigram_width=4).from_bytes(embedder(width=10, bigram_width=0).to_bytes())


def test_digits_are_one_string_or_ten(doc_of):
    texts = [doc_of("1"), doc_of("2"), doc_of("９"), doc_of("٣")]
    same = [y.tolist() for y in learn(embedder(digits=True), texts).predict(texts)]
    assert same == same[:1] * 4
    with_digits = learn(embedder(digits=False), texts)
    assert n_rows(with_digits) == {UNIGRAM: 5, BIGRAM: 5}


def test_case_is_kept_or_not(doc_of):
    texts = [doc_of("A"), doc_of("a")]
    assert n_rows(learn(embedder(lower=True), texts))[UNIGRAM] == 2
    assert n_rows(learn(embedder(lower=False), texts))[UNIGRAM] == 3


def test_word_dropout_trains_the_unknown_row_in_training_only(doc_of):
    model = embedder(word_dropout=0.5, bigram_dropout=0.0)
    text = doc_of("中" * 100)
    before = [weights(model)[0].copy(), weights(model, BIGRAM)[0].copy()]
    learn(model, [text])
    assert (weights(model)[0] != before[0]).all()
    np.testing.assert_array_equal(weights(model, BIGRAM)[0], before[1])
    np.testing.assert_array_equal(model.predict([text])[0][0, :6], weights(model)[1])


def test_another_layer_may_have_a_vocabulary_of_another_kind(doc_of):
    foreign = Model("foreign", lambda model, X, is_train: (X, lambda dY: dY), attrs={"vocabulary": ["a"], "size": 1})
    model = chain(embedder(), foreign)
    check_loaded(model)
    observe(model, [TokenBatch.of([doc_of("中国")])])
    assert n_rows(model.layers[0])[UNIGRAM] == 3
