"""Test embedders that encode tokens from their characters: characters seen in training, and repeated words."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from model_checks import learn
from spacy.tokens import Doc
from thinc.api import SGD

from spacy_tener.architectures.tener.tener import build_char_transformer
from spacy_tener.embedders import spelling_numpy as characters
from spacy_tener.embedders import spelling_torch as torch_characters
from spacy_tener.embedders.spelling import build_char_cnn
from spacy_tener.embedders.tables import observe
from spacy_tener.features.characters import MAX_AT_EACH_END
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.shim import torch_shim

BUILDERS = {
    "cnn": (build_char_cnn, {"filters": 7}),
    "transformer": (build_char_transformer, {"adapted": False, "heads": 2, "inner_dropout": 0.0}),
    "adapted": (build_char_transformer, {"heads": 2, "ff_width": 9, "inner_dropout": 0.0}),
}
for_all_variants = pytest.mark.parametrize("variant", BUILDERS)
NLP = spacy.blank("en")
SMALL = {"char_width": 8, "width": 6, "dropout": 0.0, "char_dropout": 0.0}


def doc_of(text):
    return Doc(NLP.vocab, words=text.split())


def build(variant, **settings):
    builder, defaults = BUILDERS[variant]
    return builder(**{**SMALL, **defaults, **settings})


def make_encoder(variant="cnn", *texts, **settings):
    """Return an encoder whose vocabulary contains the characters of the texts."""
    model = build(variant, **settings)
    model.initialize()
    observe(model, [TokenBatch.of([doc_of(text)]) for text in texts])
    return model


def weights(model):
    return {name: value.detach().clone() for name, value in torch_shim(model).module.named_parameters()}


@pytest.fixture
def encoded_words(monkeypatch):
    """Record the number of encoded words and characters of each call, in training and prediction."""
    calls = []
    for module in (characters, torch_characters):

        def counted(rows, lengths, pool=module.max_pool_relu):
            calls.append((len(lengths), len(rows)))
            return pool(rows, lengths)

        monkeypatch.setattr(module, "max_pool_relu", counted)
    return calls


@for_all_variants
def test_distinct_words_of_batch_are_encoded_once(variant, encoded_words):
    model = make_encoder(variant)
    encoded_words.clear()
    docs = [doc_of("the cat saw the cat"), doc_of(""), doc_of("the The saw")]
    model.predict(docs)
    learn(model, docs)
    assert encoded_words == [(4, len("thecatsawThe"))] * 2


@for_all_variants
def test_gradients_of_repeated_words_accumulate(variant):
    once, thrice = (make_encoder(variant, "cat dog") for _ in range(2))
    thrice.from_bytes(once.to_bytes())
    for model, text, weight in ((once, "cat", 3.0), (thrice, "cat cat cat", 1.0)):
        Y, backprop = model.begin_update([doc_of(text)])
        backprop([np.full_like(Y[0], weight)])
        model.finish_update(SGD(0.1, grad_clip=0.0))
    for name, value in weights(once).items():
        np.testing.assert_allclose(value, weights(thrice)[name], atol=1e-5, err_msg=name)


def test_character_dropout_trains_unknown_row():
    model = make_encoder("cnn", "aaaa", char_dropout=0.5)
    before = weights(model)["tables.tables.character"][0]
    learn(model, [doc_of("a" * 40)])
    assert (weights(model)["tables.tables.character"][0] != before).any()
    learned = model.predict([doc_of("aaaa")])[0]
    np.testing.assert_array_equal(learned, model.predict([doc_of("aaaa")])[0])


def test_case_is_preserved_and_digits_option_is_applied():
    texts = [doc_of("A4"), doc_of("A7"), doc_of("a4")]
    same = learn(make_encoder(), texts).predict(texts)
    np.testing.assert_array_equal(same[0], same[1])
    assert not np.array_equal(same[0], same[2])
    with_digits = learn(make_encoder(digits=False), texts).predict(texts)
    assert not np.array_equal(with_digits[0], with_digits[1])


@for_all_variants
def test_long_tokens_are_truncated_in_the_middle(variant, encoded_words):
    model = make_encoder(variant, "abcdefgh")
    encoded_words.clear()
    start, end = "ab" * (MAX_AT_EACH_END // 2), "gh" * (MAX_AT_EACH_END // 2)
    texts = [doc_of(start + middle * 1000 + end) for middle in "cd"]
    same = model.predict(texts)
    np.testing.assert_allclose(same[0], same[1], atol=1e-6)
    assert encoded_words == [(2, 4 * MAX_AT_EACH_END)]
