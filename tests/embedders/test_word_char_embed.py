"""Test word embeddings with pretrained vectors, concatenated with a character encoder or another embedder."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from model_checks import learn
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import SGD

from spacy_tener.embedders.char_embed import build_word_char_embed
from spacy_tener.embedders.spelling import build_char_cnn
from spacy_tener.embedders.tables import observe
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.shim import torch_shim

NLP = spacy.blank("en")
NO_DROPOUT = {"dropout": 0.0, "word_dropout": 0.0}
CHARS = {"char_width": 8, "filters": 7, "width": 4, "dropout": 0.0, "char_dropout": 0.0}
VECTORS = {"london": [3.0, 0.0, 4.0], "the": [0.0, 2.0, 0.0], "00:00": [1.0, 1.0, 1.0], "PARIS": [0.0, 5.0, 0.0]}


def unit_vectors(words):
    """Return the normalized vectors of words."""
    rows = np.array([VECTORS[word] for word in words])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def doc_of(text):
    return Doc(NLP.vocab, words=text.split())


def build(chars=True, **settings):
    part = build_char_cnn(**CHARS) if chars is True else chars
    return build_word_char_embed(**{"width": 3, **NO_DROPOUT, "chars": part, **settings})


def embedder(*texts, **settings):
    model = build(**settings)
    docs = [doc_of(text) for text in texts] or [doc_of("a sample")]
    model.initialize(docs)
    observe(model, [TokenBatch.of(docs)])
    return model


def embedded(model, text):
    return model.predict([doc_of(text)])[0]


def tables(model):
    """Return the number of rows in use, by the name of the table."""
    nodes = [node for node in model.walk() if "vocabulary" in node.attrs]
    return {name: len(table) for node in nodes for name, table in node.attrs["vocabulary"].tables.items()}


@pytest.fixture
def vectors(tmp_path):
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in VECTORS.items()]
    path = tmp_path / "glove.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


def test_embedding_concatenates_word_row_and_characters():
    chars = build_char_cnn(**CHARS)
    model = embedder("The cat saw the dog", chars=chars)
    assert model.get_dim("nO") == 7
    rows = embedded(model, "The cat saw the dog")
    assert rows.shape == (5, 7)
    np.testing.assert_array_equal(rows[:, 3:], chars.predict([doc_of("The cat saw the dog")])[0])
    np.testing.assert_array_equal(rows[0, :3], rows[3, :3], "one row for The and the")
    assert (rows[0, 3:] != rows[3, 3:]).any(), "different characters"
    assert len({tuple(row[:3]) for row in rows.tolist()}) == 4


def test_lower_and_digits_options_merge_words():
    words = "Aa aA x1 x2"
    assert [tables(embedder(words, chars=None, lower=lower, digits=digits)) for lower, digits in
            ((True, True), (True, False), (False, True), (False, False))] == [
        {"unigram": 3}, {"unigram": 4}, {"unigram": 4}, {"unigram": 5}
    ]  # fmt: skip


def test_unknown_words_differ_only_in_characters():
    model = embedder("the cat")
    rows = embedded(model, "tact hat tact")
    np.testing.assert_array_equal(rows[0, :3], rows[1, :3])
    assert (rows[0, 3:] != rows[1, 3:]).any()
    np.testing.assert_array_equal(rows[0], rows[2])


def test_word_dropout_does_not_affect_characters():
    model = embedder("the cat", word_dropout=0.5)
    (rows,), _ = model.begin_update([doc_of("cat " * 100)])
    assert len({tuple(row) for row in rows[:, :3].tolist()}) == 2
    assert (rows[:, 3:] == rows[0, 3:]).all()


def test_cased_word_uses_lowercase_vector(vectors):
    model = embedder(vectors=vectors, width=3)
    rows = embedded(model, "London LONDON london 12:34 Paris")
    np.testing.assert_allclose(rows[:, :3], unit_vectors(["london"] * 3 + ["00:00", "PARIS"]), rtol=1e-6)


def test_vectors_are_case_sensitive_without_lower(vectors):
    model = embedder(vectors=vectors, lower=False)
    rows = embedded(model, "london London PARIS")
    np.testing.assert_allclose(rows[[0, 2], :3], unit_vectors(["london", "PARIS"]), rtol=1e-6)
    np.testing.assert_array_equal(rows[1, :3], embedded(model, "unheard-of")[0, :3])


def test_projection_sets_output_width():
    model = embedder("The cat", project_to=11)
    assert model.get_dim("nO") == 11
    embed, projection = model.layers
    layer = torch_shim(projection).module.linear
    rows = embed.predict([doc_of("The cat")])[0] @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    np.testing.assert_allclose(embedded(model, "The cat"), rows, atol=1e-6)


def test_gradients_are_split_between_words_and_characters():
    chars = build_char_cnn(**CHARS)
    model = embedder("the cat", chars=chars)
    words = model.layers[0]

    def changed(columns):
        (Y,), backprop = model.begin_update([doc_of("the cat")])
        dY = np.zeros_like(Y)
        dY[:, columns] = 1.0
        before = [node.to_bytes() for node in (words, chars)]
        backprop([dY])
        model.finish_update(SGD(0.1))
        return [node.to_bytes() != data for node, data in zip((words, chars), before, strict=True)]

    assert changed(slice(0, 3)) == [True, False]
    assert changed(slice(3, 7)) == [False, True]
    assert changed(slice(2, 4)) == [True, True]


def test_loaded_embedder_does_not_need_vectors_file(vectors):
    model = embedder("the cat", vectors=vectors)
    vectors.unlink()
    loaded = build(vectors=vectors).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(embedded(loaded, "the London"), embedded(model, "the London"))


@pytest.mark.parametrize(
    ("chars", "width"),
    [
        ({}, 130),
        ({"chars": "cnn"}, 130),
        ({"chars": None}, 100),
        ({"chars": {"@architectures": "spacy_tener.CharTransformer.v1", "adapted": False, "width": 20}}, 120),
    ],
)
def test_character_encoders_can_be_set_in_config(chars, width):
    config = {"model": {"@architectures": "spacy_tener.WordCharEmbed.v1", **chars}}
    assert registry.resolve(config)["model"].get_dim("nO") == width
    text = spacy.util.Config(registry.fill(config)).to_str()
    again = spacy.util.Config().from_str(text)
    assert registry.resolve(again)["model"].get_dim("nO") == width


def test_rare_vectors_are_loaded_only_for_training_words(vectors):
    model = embedder("paris and", vectors=vectors, frequent=2, chars=None)
    # The unknown row, the first two words of the file, "paris" of the text, and "and", which has no vector.
    assert tables(model) == {"unigram": 5}
    np.testing.assert_allclose(embedded(model, "london the paris"), unit_vectors(["london", "the", "PARIS"]), atol=1e-6)
    np.testing.assert_array_equal(embedded(model, "00:00"), embedded(model, "unknown"))
    learn(model, [doc_of("paris and")])
    assert tables(embedder("and", vectors=vectors, frequent=0, chars=None)) == {"unigram": 2}


def test_half_option_saves_rows_as_float16(vectors):
    model, plain = (embedder("the cat", vectors=vectors, half=half, chars=None) for half in (True, False))
    assert len(model.to_bytes()) < len(plain.to_bytes())
    loaded = build(half=True, chars=None).from_bytes(model.to_bytes())
    rows = embedded(model, "the London").astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(embedded(loaded, "the London"), rows)
    learn(loaded, [doc_of("the London")])
