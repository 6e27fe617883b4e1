"""The ID-CNN as a Thinc encoder, over embedders of ours and of spaCy's."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from spacy_parts import spacy_s_ner
from teaching import (
    HASH_EMBED,
    assert_dropout_in_training_only,
    assert_each_is_alike_alone_and_among_others,
    assert_saying_the_same,
    embedder,
    losses_of_steps,
)
from thinc.api import chain

from spacy_tener.models.bridge import torch_shim
from spacy_tener.models.encoders import build_idcnn_encoder

OPTIONS = {
    "the released code's": {},
    "one iteration": {"iterations": 1},
    "other distances": {"dilations": [1, 2, 4], "window": 5},
}


def embedded_idcnn(**settings):
    return chain(embedder(), build_idcnn_encoder(**{"width": 16, "dropout": 0.0, **settings}))


# Within what the model's last function can say.
loss_of_steps = partial(losses_of_steps, within=np.abs)


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_choice_has_the_right_shape_and_learns(settings, docs):
    model = embedded_idcnn(**settings).initialize(docs)
    assert [y.shape for y in model.predict(docs)] == [(len(doc), 16) for doc in docs]
    losses = loss_of_steps(model, docs, 30)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_choice_reaches_the_torch_module(settings, docs):
    config = torch_shim(embedded_idcnn(**settings).initialize(docs).layers[1]).module.config
    got = {name: getattr(config, name) for name in settings}
    assert {name: list(value) if name == "dilations" else value for name, value in got.items()} == settings


@pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())
def test_output_is_the_torch_module_s_for_the_embedded_tokens(settings, docs):
    model = embedded_idcnn(**settings).initialize(docs)
    loss_of_steps(model, docs, 2)
    rows = torch.from_numpy(np.concatenate(model.layers[0].predict(docs)))
    with torch.no_grad():
        expected = torch_shim(model.layers[1]).module(rows, [len(doc) for doc in docs]).numpy()
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), expected, rtol=1e-4, atol=1e-5)


def test_a_text_is_encoded_alike_alone_and_among_others(docs):
    model = embedded_idcnn().initialize(docs)
    loss_of_steps(model, docs, 2)
    assert_each_is_alike_alone_and_among_others(model, docs)


def test_a_saved_model_computes_the_same(docs):
    model = embedded_idcnn().initialize(docs)
    loss_of_steps(model, docs, 2)
    assert_saying_the_same(model, embedded_idcnn().from_bytes(model.to_bytes()), docs)


def test_the_defaults_are_the_released_codes():
    encoder = build_idcnn_encoder().initialize([np.ones((2, 130), dtype="f")])
    config = torch_shim(encoder).module.config
    assert (config.width, config.window, config.dilations, config.iterations) == (300, 3, (1, 2, 1), 3)


def test_dropout_is_for_training(docs):
    model = embedded_idcnn(dropout=0.5).initialize(docs)
    assert_dropout_in_training_only(model, docs)


def tok2vec():
    encode = {"@architectures": "spacy_tener.IDCNNEncoder.v1", "width": 24, "dropout": 0.0}
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": HASH_EMBED, "encode": encode}


def trained(nlp, annotation):
    example = Example.from_dict(nlp.make_doc("red fox saw blue dog"), annotation)
    optimizer = nlp.initialize(lambda: [example])
    optimizer.learn_rate = 0.01
    for _ in range(40):
        nlp.update([example], sgd=optimizer)
    return nlp("red fox saw blue dog")


def test_it_serves_spacy_s_tagger():
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec()}})
    doc = trained(nlp, {"tags": ["A", "B", "C", "A", "B"]})
    assert [token.tag_ for token in doc] == ["A", "B", "C", "A", "B"]


def test_it_serves_spacy_s_ner():
    nlp = spacy.blank("en")
    nlp.add_pipe("ner", config={"model": spacy_s_ner(tok2vec())})
    doc = trained(nlp, {"entities": [(0, 7, "X"), (12, 20, "Y")]})
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("red fox", "X"), ("blue dog", "Y")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"window": 2}, "window must be an odd number"),
        ({"dilations": []}, "dilations must be numbers of at least 1"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        build_idcnn_encoder(**settings)
