"""The embedder of words: word embeddings, pretrained vectors, and an encoder of characters or another embedder."""

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
QUIET = {"dropout": 0.0, "word_dropout": 0.0}
CHARS = {"char_width": 8, "filters": 7, "width": 4, "dropout": 0.0, "char_dropout": 0.0}
VECTORS = {"london": [3.0, 0.0, 4.0], "the": [0.0, 2.0, 0.0], "00:00": [1.0, 1.0, 1.0], "PARIS": [0.0, 5.0, 0.0]}


def units(words):
    """The vectors of words, of unit length."""
    rows = np.array([VECTORS[word] for word in words])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def doc_of(text):
    return Doc(NLP.vocab, words=text.split())


def build(chars=True, **settings):
    part = build_char_cnn(**CHARS) if chars is True else chars
    return build_word_char_embed(**{"width": 3, **QUIET, "chars": part, **settings})


def embedder(*texts, **settings):
    model = build(**settings)
    docs = [doc_of(text) for text in texts] or [doc_of("a sample")]
    model.initialize(docs)
    observe(model, [TokenBatch.of(docs)])
    return model


def embedded(model, text):
    return model.predict([doc_of(text)])[0]


def tables(model):
    """The rows that each table of the model has given, by the table's name."""
    nodes = [node for node in model.walk() if "vocabulary" in node.attrs]
    return {name: len(table) for node in nodes for name, table in node.attrs["vocabulary"].tables.items()}


@pytest.fixture
def vectors(tmp_path):
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in VECTORS.items()]
    path = tmp_path / "glove.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


def test_a_token_is_its_row_and_its_characters():
    chars = build_char_cnn(**CHARS)
    model = embedder("The cat saw the dog", chars=chars)
    assert model.get_dim("nO") == 7
    rows = embedded(model, "The cat saw the dog")
    assert rows.shape == (5, 7)
    np.testing.assert_array_equal(rows[:, 3:], chars.predict([doc_of("The cat saw the dog")])[0])
    np.testing.assert_array_equal(rows[0, :3], rows[3, :3], "one row for The and the")
    assert (rows[0, 3:] != rows[3, 3:]).any(), "but not the same characters"
    assert len({tuple(row[:3]) for row in rows.tolist()}) == 4


def test_case_and_digits_of_words_are_options():
    words = "Aa aA x1 x2"
    assert [tables(embedder(words, chars=None, lower=lower, digits=digits)) for lower, digits in
            ((True, True), (True, False), (False, True), (False, False))] == [
        {"unigram": 3}, {"unigram": 4}, {"unigram": 4}, {"unigram": 5}
    ]  # fmt: skip


def test_an_unknown_word_has_the_unknown_row_and_its_own_characters():
    model = embedder("the cat")
    rows = embedded(model, "tact hat tact")
    np.testing.assert_array_equal(rows[0, :3], rows[1, :3])
    assert (rows[0, 3:] != rows[1, 3:]).any()
    np.testing.assert_array_equal(rows[0], rows[2])


def test_word_dropout_leaves_the_characters_alone():
    model = embedder("the cat", word_dropout=0.5)
    (rows,), _ = model.begin_update([doc_of("cat " * 100)])
    assert len({tuple(row) for row in rows[:, :3].tolist()}) == 2
    assert (rows[:, 3:] == rows[0, 3:]).all()


def test_a_cased_word_finds_the_vector_of_its_lower_form(vectors):
    model = embedder(vectors=vectors, width=3)
    rows = embedded(model, "London LONDON london 12:34 Paris")
    np.testing.assert_allclose(rows[:, :3], units(["london"] * 3 + ["00:00", "PARIS"]), rtol=1e-6)


def test_case_of_vectors_can_be_kept(vectors):
    model = embedder(vectors=vectors, lower=False)
    rows = embedded(model, "london London PARIS")
    np.testing.assert_allclose(rows[[0, 2], :3], units(["london", "PARIS"]), rtol=1e-6)
    np.testing.assert_array_equal(rows[1, :3], embedded(model, "unheard-of")[0, :3])


def test_a_projection_brings_the_result_to_any_width():
    model = embedder("The cat", project_to=11)
    assert model.get_dim("nO") == 11
    embed, projection = model.layers
    layer = torch_shim(projection).module.linear
    rows = embed.predict([doc_of("The cat")])[0] @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    np.testing.assert_allclose(embedded(model, "The cat"), rows, atol=1e-6)


def test_gradients_reach_words_characters_and_projection_by_their_own_columns():
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


def test_a_loaded_embedder_needs_no_vectors_file(vectors):
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
def test_every_choice_of_characters_can_be_written_in_a_config(chars, width):
    config = {"model": {"@architectures": "spacy_tener.WordCharEmbed.v1", **chars}}
    assert registry.resolve(config)["model"].get_dim("nO") == width
    text = spacy.util.Config(registry.fill(config)).to_str()
    again = spacy.util.Config().from_str(text)
    assert registry.resolve(again)["model"].get_dim("nO") == width


def test_pretrained_rows_of_rare_words_stay_if_the_training_text_has_them(vectors):
    model = embedder("paris and", vectors=vectors, frequent=2, chars=None)
    # The unknown row, the first two of the file, one of the text, and "and", which has no vector.
    assert tables(model) == {"unigram": 5}
    np.testing.assert_allclose(embedded(model, "london the paris"), units(["london", "the", "PARIS"]), atol=1e-6)
    np.testing.assert_array_equal(embedded(model, "00:00"), embedded(model, "unknown"))
    learn(model, [doc_of("paris and")])
    assert tables(embedder("and", vectors=vectors, frequent=0, chars=None)) == {"unigram": 2}


def test_rows_are_saved_as_16_bit_floats(vectors):
    model, plain = (embedder("the cat", vectors=vectors, half=half, chars=None) for half in (True, False))
    assert len(model.to_bytes()) < len(plain.to_bytes())
    loaded = build(half=True, chars=None).from_bytes(model.to_bytes())
    rows = embedded(model, "the London").astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(embedded(loaded, "the London"), rows)
    learn(loaded, [doc_of("the London")])
