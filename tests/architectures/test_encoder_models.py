"""Test TENER, GRN and MECT as Thinc models, with embedders of this package and of spaCy, and in spaCy components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import spacy
import torch
from model_checks import (
    HASH_EMBED,
    assert_independent_of_batch,
    assert_same_predictions,
    embedder,
    training_losses,
)
from small_systems import learn as learn_examples
from spacy.training import Example
from spacy.util import registry
from thinc.api import Adam

from spacy_tener.architectures.flat.flat import build_flat, build_flat_atssa, build_mect
from spacy_tener.architectures.flat.flat_torch import BLOCK
from spacy_tener.architectures.grn.grn import build_gated_relation_encoder, build_grn
from spacy_tener.architectures.tener.tener import build_tener, build_transformer_encoder
from spacy_tener.embedders.lexicon_embed import build_lexicon_embed
from spacy_tener.embedders.radical_embed import Structures, build_radical_embed
from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.run import predict
from spacy_tener.nn.shim import torch_shim
from spacy_tener.optim.optimizers import SGD


def tener(**settings):
    return build_tener(**{"embed": embedder(), "width": 16, "heads": 2, "dropout": 0.0, **settings})


def grn(**settings):
    return build_grn(**{"embed": embedder(), "width": 16, "dropout": 0.0, **settings})


def make_lexicon():
    return Lexicon(["中国", "银行", "中国银行", "重阳", "工作", "江河", "河湖"])


def make_radicals():
    parts = {"江": ("氵", "工"), "河": ("氵", "可"), "湖": ("氵", "胡"), "银": ("钅", "艮"), "吴": ("口", "天")}
    return Structures(parts, "made up")


def mect(**settings):
    parts = {
        "embed": embedder(),
        "words": build_lexicon_embed(make_lexicon, width=5, dropout=0.0),
        "radicals": build_radical_embed(
            width=7, radical_width=6, dropout=0.0, radical_dropout=0.0, source=make_radicals
        ),
    }
    return build_mect(**{**parts, "width": 16, "heads": 2, "dropout": 0.0, "random_attention": 40, **settings})


class System(NamedTuple):
    build: Callable[..., Any]
    # Maps random numbers to the range of the activation of the model's last layer.
    to_output_range: Callable[..., Any]
    steps: int


SYSTEMS = {
    "TENER": System(tener, np.asarray, 15),
    "GRN": System(grn, np.tanh, 60),
    "MECT": System(mect, np.asarray, 15),
}
parametrize_systems = pytest.mark.parametrize("name", SYSTEMS)


def encoder_node(model):
    """Return the layer that contains the torch module of the encoder."""
    return model if model.shims else model.layers[1]


def learn(name, model, docs, n_steps, **options):
    return training_losses(model, docs, n_steps, SYSTEMS[name].to_output_range, **options)


def weights_of(node):
    return {name: value.detach().clone() for name, value in torch_shim(node).module.named_parameters()}


@parametrize_systems
def test_model_output_equals_torch_module_on_embeddings(name, docs):
    model = SYSTEMS[name].build().initialize(docs)
    learn(name, model, docs, 2)
    streams, inputs = model.layers[: 2 if name == "MECT" else 1], [[len(doc) for doc in docs]]
    if name == "MECT":
        found = predict(model.layers[2], TokenBatch.of(docs))
        assert found.lattice.counts.tolist() == [5, 0, 0, 2]
        inputs = [torch.from_numpy(found.floats), found.lattice]
    rows = [torch.from_numpy(np.concatenate(stream.predict(docs))) for stream in streams]
    with torch.no_grad():
        expected = torch_shim(encoder_node(model)).module(*rows, *inputs).numpy()
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), expected, rtol=1e-4, atol=1e-5)


@parametrize_systems
def test_output_is_independent_of_batch_and_serialization(name, docs):
    settings = {"branches": [3]} if name == "GRN" else {"layers": 2}
    model = SYSTEMS[name].build(**settings).initialize(docs)
    learn(name, model, docs, 2)
    assert_independent_of_batch(model, docs)
    assert_same_predictions(model, SYSTEMS[name].build(**settings).from_bytes(model.to_bytes()), docs)


@parametrize_systems
def test_empty_batch_and_empty_doc_are_accepted(name, docs):
    model = SYSTEMS[name].build().initialize(docs)
    assert model.predict([]) == []
    Y, backprop = model.begin_update([])
    assert (Y, backprop([])) == ([], [])
    assert [y.shape for y in model.predict([docs[1]])] == [(0, 16)]
    assert learn(name, model, [docs[1]], 2) == [0.0, 0.0]


@parametrize_systems
def test_embedder_width_is_inferred_at_initialization(name, docs):
    embed_without_width = embedder()
    embed_without_width._dims["nO"] = None
    model = SYSTEMS[name].build(embed=embed_without_width)
    model.initialize()
    with pytest.raises(ValueError, match="no weights yet"):
        model.predict(docs)
    model.initialize(docs)
    sizes = torch_shim(encoder_node(model)).sizes
    assert sizes == ({"nI0": 10, "nI1": 7, "nW": 5, "nO": 16} if name == "MECT" else {"nI": 10, "nO": 16})
    assert model.predict(docs)[0].shape == (10, 16)


@pytest.mark.parametrize("name", ["TENER", "GRN"])
def test_encoder_learns_with_spacy_embedder(name, docs):
    config = {"@architectures": f"spacy_tener.{name}.v1", "width": 16, "dropout": 0.0, "embed": HASH_EMBED}
    config |= {"heads": 2} if name == "TENER" else {}
    model = registry.resolve({"model": config})["model"].initialize(docs)
    losses = learn(name, model, docs, SYSTEMS[name].steps)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("encoder", "system"),
    [
        (build_transformer_encoder(16, heads=2), tener()),
        (build_transformer_encoder(16, heads=2, adapted=False), tener(adapted=False)),
        (build_gated_relation_encoder(16, branches=[3]), grn(branches=[3], dropout=0.5)),
    ],
    ids=["TENER", "vanilla", "GRN"],
)
def test_standalone_encoder_equals_encoder_inside_system(encoder, system, docs):
    X = [np.random.default_rng(0).normal(size=(len(doc), 10)).astype("f") for doc in docs]
    encoder.initialize(X)
    system.initialize(docs)
    system.layers[1].from_bytes(encoder.to_bytes())
    for y, expected in zip(system.layers[1].predict(X), encoder.predict(X), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("build", "layers", "width"),
    [
        (build_tener, ["char_embed", "transformer_encoder"], 128),
        (build_grn, ["char_embed|char_encoder", "gated_relation_encoder"], 400),
        (build_flat, ["char_embed", "lexicon_embed"], 128),
        (build_flat_atssa, ["char_embed", "lexicon_embed"], 128),
        (build_mect, ["char_embed", "radical_embed", "lexicon_embed"], 128),
    ],
)
def test_default_layers_initialize_without_sample(build, layers, width, docs):
    model = build()
    assert [layer.name for layer in model.layers] == layers
    assert model.get_dim("nO") == width
    model.initialize()
    assert [y.shape for y in model.predict(docs)] == [(len(doc), width) for doc in docs]


def test_mect_trains_all_embedders(docs):
    model = mect().initialize(docs)
    learn("MECT", model, docs, 1)
    before = [weights_of(node) for node in model.layers]
    learn("MECT", model, docs, 1)
    for node, weights in zip(model.layers, before, strict=True):
        moved = [name for name, value in weights_of(node).items() if not torch.equal(value, weights[name])]
        assert moved == list(weights), node.name


@pytest.mark.parametrize("optimizer", [Adam(0.01, L2=0.1), SGD(0.01, L2=0.1)], ids=["Adam", "SGD"])
def test_update_changes_only_random_attention_blocks_of_batch(docs, optimizer):
    model = mect(random_attention=5 * BLOCK).initialize(docs)
    before = weights_of(model)
    learn("MECT", model, docs, 2, optimizer=optimizer)
    tables = {name: value for name, value in weights_of(model).items() if name.endswith("random.blocks")}
    assert len(tables) == 2
    for name, value in tables.items():
        changed = (value != before[name]).any(dim=1).nonzero().flatten().tolist()
        assert changed == [0]  # The longest text has 10 characters and 5 words.


def trained(nlp, text="red fox saw blue dog", steps=80, **annotation):
    example = Example.from_dict(nlp.make_doc(text), annotation)
    learn_examples(nlp, [example], steps=steps)
    return nlp(text)


TAGS = ["A", "B", "C", "A", "B"]
ENCODERS = {
    "TENER": {"@architectures": "spacy_tener.TransformerEncoder.v1", "heads": 2},
    "GRN": {"@architectures": "spacy_tener.GatedRelationEncoder.v1"},
}


def tok2vec(encoder):
    encode = {"width": 24, "dropout": 0.0, **ENCODERS[encoder]}
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": HASH_EMBED, "encode": encode}


@pytest.mark.parametrize("encoder", ENCODERS)
def test_encoder_works_in_spacy_tagger(encoder):
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec(encoder)}})
    assert [token.tag_ for token in trained(nlp, tags=TAGS)] == TAGS


def shared(tiny_model):
    """Return a pipeline in which two taggers share TENER as tok2vec."""
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": tiny_model["tok2vec"]})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    for name in ("tagger", "other"):
        nlp.add_pipe("tagger", name=name, config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    return nlp


def test_tener_works_as_shared_tok2vec(tiny_model):
    assert [token.tag_ for token in trained(shared(tiny_model), tags=TAGS)] == TAGS


def test_replaced_listener_has_separate_parameter_ids(tiny_model):
    """After `replace_listeners`, one optimizer trains both models. Distinct IDs keep their momentum separate."""
    nlp = shared(tiny_model)
    trained(nlp, steps=2, tags=TAGS)
    nlp.replace_listeners("tok2vec", "tagger", ["model.tok2vec"])
    models = nlp.get_pipe("tok2vec").model, nlp.get_pipe("tagger").model.get_ref("tok2vec")
    ids = [{shim.id for node in model.walk() for shim in node.shims} for model in models]
    assert [len(found) for found in ids] == [2, 2]
    assert not ids[0] & ids[1]
