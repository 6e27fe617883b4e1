"""TENER as a Thinc model: alone, over other embedders, and as the tok2vec of spaCy's own components."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from spacy.util import registry
from teaching import (
    HASH_EMBED,
    assert_dropout_in_training_only,
    assert_each_is_alike_alone_and_among_others,
    embedder,
    losses_of_steps,
)

from spacy_tener.layers.transformer import TransformerEncoder
from spacy_tener.models.bridge import torch_shim
from spacy_tener.models.encoders import build_adapted_transformer_encoder, build_tener, build_transformer_encoder

OPTIONS = {
    "the paper's": {},
    "scaled": {"scaled": True},
    "before each part": {"norm": "pre"},
    "key projection": {"key_projection": True},
    "key position": {"key_position": True},
    "both of the released code's": {"key_projection": True, "key_position": True},
    "vanilla": {"adapted": False},
    "vanilla, not scaled": {"adapted": False, "scaled": False},
    "vanilla, before each part": {"adapted": False, "norm": "pre"},
    "two layers": {"layers": 2, "ff_width": 24, "attention_dropout": 0.2},
}


def tener(**settings):
    return build_tener(**{"embed": embedder(), "width": 16, "heads": 2, "dropout": 0.0, **settings})


def encoder_of(model) -> TransformerEncoder:
    return torch_shim(model.layers[1]).module


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_choice_has_the_right_shape_and_learns(settings, docs):
    model = tener(**settings).initialize(docs)
    assert [y.shape for y in model.predict(docs)] == [(len(doc), 16) for doc in docs]
    losses = losses_of_steps(model, docs, 15)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_choice_reaches_the_torch_module(settings, docs):
    config = encoder_of(tener(**settings).initialize(docs)).config
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_output_is_the_torch_module_s_for_the_embedded_tokens(settings, docs):
    model = tener(**settings).initialize(docs)
    embedded = torch.from_numpy(np.concatenate(model.layers[0].predict(docs)))
    with torch.no_grad():
        expected = encoder_of(model)(embedded, [len(doc) for doc in docs]).numpy()
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), expected, atol=1e-5)


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_text_is_encoded_alike_alone_and_among_others(settings, docs):
    model = tener(**settings).initialize(docs)
    losses_of_steps(model, docs, 2)
    assert_each_is_alike_alone_and_among_others(model, docs)


def test_the_encoders_are_those_inside_tener(docs):
    X = [np.random.default_rng(0).normal(size=(len(doc), 10)).astype("f") for doc in docs]
    common = {"width": 16, "heads": 2, "dropout": 0.0}
    for alone, whole in (
        (build_adapted_transformer_encoder(**common, key_position=True), tener(key_position=True)),
        (build_transformer_encoder(**common), tener(adapted=False)),
    ):
        alone.initialize(X)
        whole.initialize(docs)
        whole.layers[1].from_bytes(alone.to_bytes())
        for y, expected in zip(whole.layers[1].predict(X), alone.predict(X), strict=True):
            np.testing.assert_array_equal(y, expected)


def test_the_vanilla_transformer_s_scores_are_scaled_and_the_adapted_one_s_are_not(docs):
    encoders = [build(width=16, heads=4) for build in (build_adapted_transformer_encoder, build_transformer_encoder)]
    for encoder in encoders:
        encoder.initialize([np.ones((2, 10), dtype="f")])
    wholes = [tener(adapted=adapted, heads=4).initialize(docs).layers[1] for adapted in (True, False)]
    scales = [torch_shim(model).module.layers[0].attention.scale for model in encoders + wholes]
    assert scales == [1.0, 0.5, 1.0, 0.5]


def test_the_number_of_weights_is_that_of_the_paper_s_equations():
    model = build_tener(embed=None, width=128, layers=1, heads=4)
    model.initialize()
    width, input_width, hidden = 128, 50 + 50, 256
    linear = input_width * width + width
    attention = 2 * width * width + 2 * width  # queries and values; u and v of all heads
    feed_forward = width * hidden + hidden + hidden * width + width
    norms = 2 * 2 * width
    n_weights = sum(parameter.numel() for parameter in encoder_of(model).parameters())
    assert n_weights == linear + attention + feed_forward + norms == 112_384


def test_dropout_is_for_training(docs):
    model = tener(dropout=0.5).initialize(docs)
    assert_dropout_in_training_only(model, docs)


def test_without_an_embedder_it_has_its_own_and_needs_no_sample(docs):
    model = build_tener()
    assert model.layers[0].name == "char_embed"
    assert model.get_dim("nO") == 128
    model.initialize()
    assert model.predict(docs)[0].shape == (10, 128)


def test_another_embedder_s_width_may_be_known_late(docs):
    late = embedder()
    late._dims["nO"] = None
    model = tener(embed=late)
    model.initialize()
    with pytest.raises(ValueError, match="no weights yet"):
        model.predict(docs)
    model.initialize(docs)
    assert model.layers[1].get_dim("nI") == 10
    assert model.predict(docs)[0].shape == (10, 16)


def test_spacy_s_embedder_serves_as_well(docs):
    config = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "dropout": 0.0, "embed": HASH_EMBED}
    model = registry.resolve({"model": config})["model"].initialize(docs)
    losses = losses_of_steps(model, docs, 15)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["AdaptedTransformerEncoder", "TransformerEncoder"])
def test_an_encoder_serves_spacy_s_tagger(name):
    nlp = spacy.blank("en")
    encode = {"@architectures": f"spacy_tener.{name}.v1", "width": 16, "heads": 2, "dropout": 0.0}
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": HASH_EMBED, "encode": encode}
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}})
    assert tags_after_training(nlp) == ["A", "B", "A", "B"]


def test_tener_serves_spacy_s_tagger(tiny_model):
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy.Tagger.v2", "tok2vec": tiny_model["tok2vec"]}
    nlp.add_pipe("tagger", config={"model": model})
    assert tags_after_training(nlp) == ["A", "B", "A", "B"]


def test_tener_serves_as_the_shared_tok2vec_of_several_components(tiny_model):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": tiny_model["tok2vec"]})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    for name in ("tagger", "other"):
        nlp.add_pipe("tagger", name=name, config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    assert tags_after_training(nlp) == ["A", "B", "A", "B"]


def test_a_listener_s_copy_and_the_shared_model_learn_apart(tiny_model):
    """After `replace_listeners` one optimizer trains both: their momentum must not mix."""
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": tiny_model["tok2vec"]})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    for name in ("tagger", "other"):
        nlp.add_pipe("tagger", name=name, config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    tags_after_training(nlp, steps=2)
    nlp.replace_listeners("tok2vec", "tagger", ["model.tok2vec"])
    shared, own = nlp.get_pipe("tok2vec").model, nlp.get_pipe("tagger").model.get_ref("tok2vec")
    ids = [{shim.id for node in model.walk() for shim in node.shims} for model in (shared, own)]
    assert [len(found) for found in ids] == [2, 2]
    assert not ids[0] & ids[1]


def tags_after_training(nlp, steps=30):
    doc = nlp.make_doc("red fox blue dog")
    example = Example.from_dict(doc, {"tags": ["A", "B", "A", "B"]})
    optimizer = nlp.initialize(lambda: [example])
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        nlp.update([example], sgd=optimizer)
    return [token.tag_ for token in nlp("red fox blue dog")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 15}, "width must be a multiple of heads"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"norm": "middle"}, "norm must be one of 'post', 'pre'"),
        ({"adapted": False, "key_position": True}, "key_position must be False"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        tener(**settings)
