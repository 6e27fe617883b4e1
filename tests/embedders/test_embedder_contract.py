"""Test the common behaviour of all token embedders."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import spacy
from model_checks import (
    assert_dropout_in_training_only,
    assert_independent_of_batch,
    assert_same_predictions,
    learn,
    training_losses,
)
from spacy.tokens import Doc
from thinc.api import SGD, Adam

from spacy_tener.architectures.tener.tener import build_char_transformer
from spacy_tener.embedders.char_embed import build_char_embed, build_word_char_embed
from spacy_tener.embedders.radical_embed import Structures, build_radical_embed
from spacy_tener.embedders.segment_embed import build_segment_embed
from spacy_tener.embedders.spelling import build_char_cnn
from spacy_tener.embedders.tables import observe
from spacy_tener.features.tokens import TokenBatch

CHARS = {"char_width": 8, "width": 6, "dropout": 0.0, "char_dropout": 0.0}
TRANSFORMER = {**CHARS, "heads": 2, "inner_dropout": 0.0}
NO_DROPOUT = {"dropout": 0.0, "word_dropout": 0.0}
PARTS = {"江": ("氵", "工"), "河": ("氵", "可"), "银": ("钅", "艮"), "桥": ("木", "乔")}


def few_structures() -> Structures:
    return Structures(PARTS, "made up")


EMBEDDERS: dict[str, Callable] = {
    "characters": lambda **s: build_char_embed(
        **{"width": 6, "bigram_width": 4, **NO_DROPOUT, "bigram_dropout": 0.0, **s}
    ),
    "characters alone": lambda **s: build_char_embed(**{"width": 6, "bigram_width": 0, **NO_DROPOUT, **s}),
    "words and characters": lambda **s: build_word_char_embed(
        **{"width": 3, "chars": build_char_cnn(**CHARS, filters=7), **NO_DROPOUT, **s}
    ),
    "words, projected": lambda **s: build_word_char_embed(
        **{"width": 3, "chars": None, "project_to": 5, **NO_DROPOUT, **s}
    ),
    "segmenter": lambda **s: build_segment_embed(**{"width": 8, **NO_DROPOUT, **s}),
    "radicals": lambda **s: build_radical_embed(
        **{
            "width": 8,
            "radical_width": 6,
            "filters": 5,
            "dropout": 0.0,
            "radical_dropout": 0.0,
            "source": few_structures,
            **s,
        }
    ),
    "CNN": lambda **s: build_char_cnn(**{**CHARS, "filters": 7, **s}),
    "transformer": lambda **s: build_char_transformer(**{**TRANSFORMER, "adapted": False, **s}),
    "adapted transformer": lambda **s: build_char_transformer(**{**TRANSFORMER, "ff_width": 9, **s}),
}
ZH, EN = spacy.blank("zh"), spacy.blank("en")
EMPTY_DOCS: list[Doc] = [ZH.make_doc(""), ZH.make_doc("")]
TRAINING_DOCS = [ZH.make_doc("南京市长江大桥"), EN.make_doc("the cat  saw 12 \n Cats")]
DOCS = [EN.make_doc("Cats 33 😀龘"), ZH.make_doc(""), ZH.make_doc("银河x1大桥江"), TRAINING_DOCS[0]]


@pytest.fixture(params=EMBEDDERS)
def build(request) -> Callable:
    return EMBEDDERS[request.param]


@pytest.fixture
def model(build):
    """Return a trained embedder."""
    model = build()
    model.initialize(TRAINING_DOCS)
    observe(model, [TokenBatch.of(TRAINING_DOCS)])
    return learn(model, TRAINING_DOCS, Adam(0.01), steps=2)


def heights(model) -> list[dict[str, int]]:
    return [node.attrs["vocabulary"].heights() for node in model.walk() if "vocabulary" in node.attrs]


def test_output_has_one_row_per_token(model):
    for doc, rows in zip(DOCS, model.predict(DOCS), strict=True):
        assert rows.shape == (len(doc), model.get_dim("nO"))
        assert rows.dtype == np.float32
        assert np.isfinite(rows).all()


def test_embeddings_are_independent_of_batch_and_vocab(model):
    assert_independent_of_batch(model, DOCS)


def test_empty_batches_and_docs_are_supported(model):
    Y, backprop = model.begin_update([])
    assert (Y, backprop([]), model.predict([])) == ([], [], [])
    before = heights(model)
    learn(model, EMPTY_DOCS)
    assert [y.shape for y in model.predict(EMPTY_DOCS)] == [(0, model.get_dim("nO"))] * 2
    assert heights(model) == before
    Y, backprop = model.begin_update(DOCS)
    assert backprop(Y) == DOCS


def test_rows_are_added_only_in_training(model):
    before = model.to_bytes()
    model.predict(DOCS)
    assert model.to_bytes() == before
    before = heights(model)
    learn(model, DOCS)
    assert heights(model) != before


def test_observe_adds_rows_without_training(model):
    heights_before, before = heights(model), model.predict(TRAINING_DOCS)
    observe(model, map(TokenBatch.of, (DOCS[:2], DOCS[2:], [])))
    assert heights(model) != heights_before
    for rows, expected in zip(model.predict(TRAINING_DOCS), before, strict=True):
        np.testing.assert_array_equal(rows, expected)


def test_unseen_strings_share_a_row(model):
    (rows,) = model.predict([ZH.make_doc("龘鱻龘鱻")])
    np.testing.assert_allclose(rows[0], rows[2], atol=1e-6)


def test_training_reduces_loss(build):
    model = build()
    model.initialize(TRAINING_DOCS)
    losses = training_losses(model, [ZH.make_doc("北京x来")], 60, optimizer=Adam(0.05))
    assert losses[-1] < 0.5 * losses[0]


def test_dropout_applies_only_in_training(build):
    model = build(dropout=0.5)
    model.initialize(TRAINING_DOCS)
    assert_dropout_in_training_only(learn(model, TRAINING_DOCS), TRAINING_DOCS)


@pytest.mark.parametrize("save", ["bytes", "disk", "pickle", "deepcopy", "copy"])
def test_copy_predicts_equally_and_trains_independently(build, model, save, tmp_path):
    if save == "bytes":
        copied = build().from_bytes(model.to_bytes())
        assert copied.to_bytes() == model.to_bytes()
    elif save == "disk":
        model.to_disk(tmp_path / "model")
        copied = build().from_disk(tmp_path / "model")
    elif save == "pickle":
        copied = pickle.loads(pickle.dumps(model))
    else:
        copied = copy.deepcopy(model) if save == "deepcopy" else model.copy()
    assert_same_predictions(model, copied, DOCS)
    before, heights_before = model.to_bytes(), heights(model)
    learn(copied, DOCS)
    assert heights(copied) != heights_before
    assert model.to_bytes() == before


def test_second_initialization_resets_rows(model):
    before = model.predict(TRAINING_DOCS)
    model.initialize(TRAINING_DOCS)
    assert all(height == 1 for tables in heights(model) for height in tables.values())
    for rows, old in zip(model.predict(TRAINING_DOCS), before, strict=True):
        assert not np.allclose(rows, old)


def test_uninitialized_embedder_raises_error(build):
    with pytest.raises(ValueError, match=r"Call nlp.initialize"):
        build().predict(DOCS)


def test_gradients_accumulate_over_batches(model):
    in_parts = model.copy()
    at_once = learn(model, [*TRAINING_DOCS, *TRAINING_DOCS], SGD(0.1, grad_clip=0.0))
    for _ in range(2):
        Y, backprop = in_parts.begin_update(TRAINING_DOCS)
        backprop([np.ones_like(y) for y in Y])
    in_parts.finish_update(SGD(0.1, grad_clip=0.0))
    for rows, expected in zip(in_parts.predict(TRAINING_DOCS), at_once.predict(TRAINING_DOCS), strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-4)
