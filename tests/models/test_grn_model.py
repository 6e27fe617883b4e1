"""GRN as a Thinc model: alone, over other embedders, and as the tok2vec of spaCy's own components."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from spacy.util import registry
from spacy_parts import spacy_s_ner
from teaching import (
    HASH_EMBED,
    assert_dropout_in_training_only,
    assert_each_is_alike_alone_and_among_others,
    assert_saying_the_same,
    embedder,
    losses_of_steps,
)

from spacy_tener.layers.convolution import GRNEncoder
from spacy_tener.models.bridge import torch_shim
from spacy_tener.models.encoders import build_gated_relation_encoder, build_grn

OPTIONS = {
    "the paper's": {},
    "DFN": {"relation": "mean"},
    "GAttN": {"relation": "attention"},
    "without relation": {"relation": None},
    "without context": {"branches": []},
    "without context, as wide as its input": {"branches": [], "width": 10},
    "branch 3": {"branches": [3]},
}


def grn(**settings):
    return build_grn(**{"embed": embedder(), "width": 16, "dropout": 0.0, **settings})


def encoder_of(model) -> GRNEncoder:
    return torch_shim(model.layers[1]).module


# Within what the model's last function can say.
loss_of_steps = partial(losses_of_steps, within=np.tanh)


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_choice_has_the_right_shape_and_learns(settings, docs):
    model = grn(**settings).initialize(docs)
    width = settings.get("width", 16)
    assert model.get_dim("nO") == width
    assert [y.shape for y in model.predict(docs)] == [(len(doc), width) for doc in docs]
    losses = loss_of_steps(model, docs, 60)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_choice_reaches_the_torch_module(settings, docs):
    config = encoder_of(grn(**settings).initialize(docs)).config
    got = {name: getattr(config, name) for name in settings}
    assert {name: list(value) if name == "branches" else value for name, value in got.items()} == settings


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_output_is_the_torch_module_s_for_the_embedded_tokens(settings, docs):
    model = grn(**settings).initialize(docs)
    embedded = torch.from_numpy(np.concatenate(model.layers[0].predict(docs)))
    with torch.no_grad():
        expected = encoder_of(model)(embedded, [len(doc) for doc in docs]).numpy()
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), expected, atol=1e-5)


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_text_is_encoded_alike_alone_and_among_others(settings, docs):
    model = grn(**settings).initialize(docs)
    loss_of_steps(model, docs, 2)
    assert_each_is_alike_alone_and_among_others(model, docs)


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_saved_model_computes_the_same(settings, docs):
    model = grn(**settings).initialize(docs)
    loss_of_steps(model, docs, 2)
    assert_saying_the_same(model, grn(**settings).from_bytes(model.to_bytes()), docs)


def test_the_encoder_is_the_one_inside_grn(docs):
    X = [np.random.default_rng(0).normal(size=(len(doc), 10)).astype("f") for doc in docs]
    alone = build_gated_relation_encoder(width=16, relation="mean").initialize(X)
    whole = grn(relation="mean", dropout=0.5).initialize(docs)
    whole.layers[1].from_bytes(alone.to_bytes())
    for y, expected in zip(whole.layers[1].predict(X), alone.predict(X), strict=True):
        np.testing.assert_array_equal(y, expected)


def test_the_defaults_are_the_papers(docs):
    encoder = build_gated_relation_encoder().initialize([np.ones((2, 130), dtype="f")])
    config = torch_shim(encoder).module.config
    assert (config.width, config.branches, config.relation, config.dropout) == (400, (1, 3, 5), "gated", 0.5)


def test_dropout_is_for_training(docs):
    model = grn(dropout=0.5).initialize(docs)
    assert_dropout_in_training_only(model, docs)


def test_without_an_embedder_words_and_their_characters_are_embedded():
    docs = [spacy.blank("en").make_doc("Sun and Sidek won"), spacy.blank("en").make_doc("")]
    model = build_grn()
    assert model.get_dim("nO") == 400
    model.initialize(docs)
    assert [y.shape for y in model.predict(docs)] == [(4, 400), (0, 400)]
    assert model.layers[1].get_dim("nI") == 130


def test_another_embedder_s_width_may_be_known_late(docs):
    late = embedder()
    late._dims["nO"] = None
    model = grn(embed=late)
    model.initialize()
    with pytest.raises(ValueError, match="no weights yet"):
        model.predict(docs)
    model.initialize(docs)
    assert model.layers[1].get_dim("nI") == 10
    assert model.predict(docs)[0].shape == (10, 16)


def test_a_batch_without_texts_is_legal(docs):
    model = grn().initialize(docs)
    assert model.predict([]) == []
    _, backprop = model.begin_update([])
    assert backprop([]) == []


def test_spacy_s_embedder_serves_as_well(docs):
    config = {"@architectures": "spacy_tener.GRN.v1", "width": 16, "dropout": 0.0, "embed": HASH_EMBED}
    model = registry.resolve({"model": config})["model"].initialize(docs)
    losses = loss_of_steps(model, docs, 60)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_choice_serves_spacy_s_tagger(settings):
    nlp = spacy.blank("en")
    encode = {"@architectures": "spacy_tener.GatedRelationEncoder.v1", "width": 24, "dropout": 0.0, **settings}
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": HASH_EMBED, "encode": encode}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}})
    doc = nlp.make_doc("red fox blue dog")
    example = Example.from_dict(doc, {"tags": ["A", "B", "A", "B"]})
    optimizer = nlp.initialize(lambda: [example])
    optimizer.learn_rate = 0.01
    for _ in range(80):
        nlp.update([example], sgd=optimizer)
    assert [token.tag_ for token in nlp("red fox blue dog")] == ["A", "B", "A", "B"]


def test_grn_serves_spacy_s_ner():
    nlp = spacy.blank("zh")
    embed = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 16, "bigram_width": 8, "dropout": 0.0}
    tok2vec = {"@architectures": "spacy_tener.GRN.v1", "width": 24, "dropout": 0.0, "embed": embed}
    nlp.add_pipe("ner", config={"model": spacy_s_ner(tok2vec)})
    text, entities = "吴重阳在中国银行工作", [(0, 3, "PER"), (4, 8, "ORG")]
    example = Example.from_dict(nlp.make_doc(text), {"entities": entities})
    optimizer = nlp.initialize(lambda: [example])
    optimizer.learn_rate = 0.03
    for _ in range(100):
        nlp.update([example], sgd=optimizer)
    assert [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents] == entities


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"branches": [2]}, "branches must be odd numbers of tokens"),
        ({"relation": "sum"}, "relation must be one of 'gated', 'mean', 'attention'"),
        ({"relation": None, "branches": []}, "where there are no branches"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        grn(**settings)
