"""Test the CRF tagger: any tok2vec, emission scores and a CRF, to which labels can be added later."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import spacy
from model_checks import assert_dropout_in_training_only, learn
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import Adam, Model

from spacy_tener.architectures.tagger import build_crf_tagger, resize_output, set_labels, torch_crf
from spacy_tener.architectures.tener.tener import build_tener
from spacy_tener.crf.crf_torch import CRF
from spacy_tener.embedders.char_embed import build_char_embed
from spacy_tener.tagging import TagLayout


def tok2vec():
    return build_tener(embed=build_char_embed(width=6, bigram_width=4, dropout=0.0), width=16, heads=2, dropout=0.0)


def tagger(n_labels=2, **settings):
    return build_crf_tagger(tok2vec(), nO=TagLayout(n_labels).n_tags, **{"dropout": 0.0, **settings})


def test_tagger_output_has_column_per_tag(docs):
    model = tagger().initialize(docs)
    assert [y.shape for y in model.predict(docs)] == [(10, 9), (0, 9), (1, 9), (5, 9)]
    assert model.get_dim("nO") == 9
    assert isinstance(torch_crf(model), CRF)
    assert torch_crf(model).layout.n_labels == 2


def test_dropout_applies_only_in_training(docs):
    assert_dropout_in_training_only(tagger(dropout=0.9).initialize(docs), docs)


def test_number_of_tags_can_be_set_after_construction(docs):
    model = build_crf_tagger(tok2vec())
    assert model.has_dim("nO") is None
    set_labels(model, 3)
    model.initialize(docs)
    assert model.predict(docs)[0].shape == (10, 13)


@pytest.mark.parametrize(("n_labels", "n_more"), [(2, 3), (1, 6), (0, 2)])
def test_added_labels_keep_scores_of_existing_tags(n_labels, n_more, docs):
    model = tagger(n_labels).initialize(docs)
    learn(model, docs, Adam(0.01), steps=3)
    before, crf_before = model.predict(docs), torch_crf(model)
    set_labels(model, n_more)
    tags = TagLayout(n_labels).within(TagLayout(n_more))
    for y, earlier in zip(model.predict(docs), before, strict=True):
        np.testing.assert_allclose(y[:, tags], earlier, rtol=1e-5, atol=1e-6)
    assert torch_crf(model).layout.n_labels == n_more
    assert torch_crf(model) is not crf_before
    assert [node.get_dim("nO") for node in (model, model.get_ref("output_layer"))] == [4 * n_more + 1] * 2


def test_setting_same_labels_keeps_crf(docs):
    model = tagger().initialize(docs)
    before = torch_crf(model)
    set_labels(model, 2)
    assert torch_crf(model) is before


@pytest.mark.parametrize("optimizer", ["Adam.v1", "RAdam.v1", "SGD.v1", "spacy_tener.SGD.v1"])
def test_optimizer_continues_after_labels_are_added(optimizer, docs):
    sgd = registry.optimizers.get(optimizer)(0.01)
    model = tagger().initialize(docs)
    learn(model, docs, sgd, steps=2)
    set_labels(model, 4)
    with model.use_params(sgd.averages or {}):
        assert model.predict(docs)[0].shape == (10, 17)
    before = model.predict(docs)[0]
    learn(model, docs, sgd, steps=2)
    assert np.isfinite(model.predict(docs)[0]).all()
    assert not np.allclose(model.predict(docs)[0], before)


def test_tagger_has_spacy_resize_output_hook(docs):
    model = tagger().initialize(docs)
    assert model.attrs["resize_output"] is resize_output
    assert model.attrs["resize_output"](model, 13) is model
    assert model.predict(docs)[0].shape == (10, 13)


@pytest.mark.parametrize("nO", [0, 2, 3, 4, 8, -3])
def test_invalid_number_of_tags_raises_error(nO, docs):
    with pytest.raises(ValueError, match=f"nO is {nO}, but must be the number of tags"):
        build_crf_tagger(tok2vec(), nO=nO)
    model = tagger().initialize(docs)
    with pytest.raises(ValueError, match=f"nO is {nO}, but must be the number of tags"):
        resize_output(model, nO)
    assert model.predict(docs)[0].shape == (10, 9)


def test_removing_labels_from_trained_model_raises_error(docs):
    model = tagger(2).initialize(docs)
    with pytest.raises(ValueError, match="with 2 entity types cannot be reduced to 1"):
        set_labels(model, 1)
    assert model.get_dim("nO") == 9


def test_model_without_crf_raises_error_with_fix(docs):
    spacy_model = spacy.blank("en").add_pipe("tagger").model
    for model in (spacy_model, tok2vec(), Model("nothing", lambda model, X, is_train: (X, lambda dY: dY))):
        with pytest.raises(ValueError, match=r"needs a model with a CRF on top.*spacy_tener\.CRFTagger\.v1"):
            torch_crf(model)


def test_uninitialized_crf_raises_error():
    with pytest.raises(ValueError, match=r"Call nlp\.initialize"):
        torch_crf(tagger())


def test_unknown_tok2vec_width_is_inferred_from_sample(docs):
    def forward(model: Model, X: list[Doc], is_train: bool):
        return [np.ones((len(doc), 11), dtype="f") for doc in X], lambda dY: X

    tok2vec_without_width = Model("tok2vec_without_width", forward, dims={"nO": None})
    model = build_crf_tagger(tok2vec_without_width, nO=5)
    assert model.get_ref("output_layer").has_dim("nI") is None
    model.initialize(docs)
    assert model.get_ref("output_layer").get_dim("nI") == 11
    assert model.predict(docs)[0].shape == (10, 5)


@pytest.mark.parametrize("save", ["bytes", "pickle", "deepcopy"])
def test_saved_or_copied_tagger_has_same_scores_and_can_grow(save, docs):
    model = tagger().initialize(docs)
    learn(model, docs, Adam(0.01), steps=2)
    if save == "bytes":
        loaded = build_crf_tagger(tok2vec(), dropout=0.0).from_bytes(model.to_bytes())
    else:
        loaded = pickle.loads(pickle.dumps(model)) if save == "pickle" else copy.deepcopy(model)
    expected = model.predict(docs)[0]
    np.testing.assert_array_equal(loaded.predict(docs)[0], expected)
    set_labels(loaded, 3)
    learn(loaded, docs, Adam(0.01))
    assert loaded.predict(docs)[0].shape == (10, 13)
    np.testing.assert_array_equal(model.predict(docs)[0], expected)


def test_parameter_averages_cover_all_dense_weights(train, make_examples):
    nlp = train(steps=0)
    optimizer = Adam(0.02, use_averages=True)
    examples = make_examples(nlp)
    for _ in range(5):
        nlp.update(examples, sgd=optimizer)
    model = nlp.get_pipe("tener_ner").model
    doc = nlp.make_doc("吴重阳在中国")
    names = {
        (shim.id, name) for node in model.walk() for shim in node.shims for name, _ in shim.module.named_parameters()
    }
    dense = {key for key in names if not key[1].startswith("tables.")}
    assert dense == set(optimizer.averages)
    trained, weights = model.predict([doc])[0], model.to_bytes()
    with nlp.use_params(optimizer.averages):
        assert not np.allclose(model.predict([doc])[0], trained)
        assert model.to_bytes() != weights, "the averages are serialized inside the context"
    np.testing.assert_array_equal(model.predict([doc])[0], trained)
    assert model.to_bytes() == weights
