"""Tests of the baselines in plain torch: texts of a batch are independent, and the models can be saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from thinc.api import fix_random_seed

from research.baselines import build_char_bilstm, build_idcnn_encoder

NLP = spacy.blank("en")
DOCS = [NLP.make_doc(text) for text in ("John Smith joined Acme in New York .", "", "It rained", "a 中 b")]


def vectors(lengths: list[int], width: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=(length, width)).astype("f") for length in lengths]


@pytest.mark.parametrize("lengths", [[7, 1, 30, 0, 2], [0]])
def test_an_id_cnn_encodes_a_text_alike_alone_and_among_others(lengths: list[int]) -> None:
    model, texts = build_idcnn_encoder(8, dropout=0.0), vectors(lengths, 8)
    for text, encoded in zip(texts, model.predict(texts), strict=True):
        np.testing.assert_allclose(model.predict([text])[0], encoded, atol=1e-5)
        assert encoded.shape == text.shape


def test_an_untrained_block_returns_what_it_takes() -> None:
    fix_random_seed(0)
    once = build_idcnn_encoder(8, iterations=0)
    fix_random_seed(0)
    thrice = build_idcnn_encoder(8, iterations=3)
    (text,) = vectors([9], 8)
    np.testing.assert_allclose(once.predict([text])[0], thrice.predict([text])[0], atol=1e-6)


def test_characters_encode_a_word_alike_alone_and_among_others() -> None:
    model = build_char_bilstm(hidden=5, char_width=4, width=6)
    encoded = model.predict(DOCS)
    assert [len(rows) for rows in encoded] == [len(doc) for doc in DOCS]
    word = Doc(NLP.vocab, words=["joined"])
    np.testing.assert_allclose(model.predict([word])[0][0], encoded[0][2], atol=1e-6)
    assert model.predict([DOCS[1]])[0].shape == (0, 6)


def test_a_gradient_reaches_the_layer_below() -> None:
    model, texts = build_idcnn_encoder(8, dropout=0.0), vectors([4, 2], 8)
    encoded, backprop = model.begin_update(texts)
    gradients = backprop([np.ones_like(rows) for rows in encoded])
    assert [gradient.shape for gradient in gradients] == [(4, 8), (2, 8)]
    assert all(gradient.any() for gradient in gradients)
