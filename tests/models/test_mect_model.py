"""MECT as a Thinc model: three embedders below, the paper's ablations, and steps that cost what a batch uses."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
import torch
from thinc.api import Adam

from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.radicals import Structures
from spacy_tener.layers.lattice import MectEncoder
from spacy_tener.layers.spans import BLOCK
from spacy_tener.models.bridge import torch_shim
from spacy_tener.models.embed.char import build_char_embed
from spacy_tener.models.embed.lexicon import build_lexicon_embed
from spacy_tener.models.embed.radical import build_radical_embed
from spacy_tener.models.lattice import build_mect
from spacy_tener.optim.optimizers import SGD

TEXTS = ["吴重阳在中国银行工作", "", "京", "江河湖12"]
PARTS = {"江": ("氵", "工"), "河": ("氵", "可"), "湖": ("氵", "胡"), "银": ("钅", "艮"), "吴": ("口", "天")}
# The rows of the paper's Table 8, and what else can be chosen.
OPTIONS = {
    "MECT": {},
    "experiment A": {"streams": "single"},
    "experiment B": {"streams": "parallel"},
    "- RA": {"random_attention": 0},
    "few places": {"random_attention": 3},
    "before each part": {"norm": "pre"},
    "two layers": {"layers": 2, "ff_width": 24, "attention_dropout": 0.2},
}
each_choice = pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS.keys())


@pytest.fixture(scope="module")
def docs():
    nlp = spacy.blank("zh")
    return [nlp.make_doc(text) for text in TEXTS]


def few_words():
    return Lexicon(["中国", "银行", "中国银行", "重阳", "工作", "江河", "河湖"])


def few_parts():
    return Structures(PARTS, "made up")


def mect(**settings):
    parts = {
        "embed": build_char_embed(width=6, bigram_width=4, dropout=0.0),
        "words": build_lexicon_embed(few_words, width=5, dropout=0.0),
        "radicals": build_radical_embed(7, radical_width=6, dropout=0.0, radical_dropout=0.0, source=few_parts),
    }
    return build_mect(**{**parts, "width": 16, "heads": 2, "dropout": 0.0, "random_attention": 40, **settings})


def encoder_of(model) -> MectEncoder:
    return torch_shim(model).module


def loss_of_steps(model, docs, n_steps, optimizer=None):
    """Teach the model one random vector per token."""
    rng = np.random.default_rng(0)
    wanted = [rng.normal(size=(len(doc), 16)).astype("f") for doc in docs]
    optimizer, losses = optimizer or Adam(0.01), []
    for _ in range(n_steps):
        Y, backprop = model.begin_update(docs)
        d_outputs = [y - target for y, target in zip(Y, wanted, strict=True)]
        losses.append(sum(float((d**2).sum()) for d in d_outputs))
        backprop(d_outputs)
        model.finish_update(optimizer)
    return losses


@each_choice
def test_every_choice_has_the_right_shape_and_learns(settings, docs):
    model = mect(**settings).initialize(docs)
    assert [y.shape for y in model.predict(docs)] == [(len(doc), 16) for doc in docs]
    losses = loss_of_steps(model, docs, 15)
    assert losses[-1] < 0.8 * losses[0]


@each_choice
def test_a_choice_reaches_the_torch_module(settings, docs):
    config = encoder_of(mect(**settings).initialize(docs)).config
    assert {name: getattr(config, name) for name in settings} == settings


@each_choice
def test_output_is_the_torch_module_s_for_what_is_embedded(settings, docs):
    model = mect(**settings).initialize(docs)
    chars, radicals = (torch.from_numpy(np.concatenate(layer.predict(docs))) for layer in model.layers[:2])
    found = model.layers[2].predict(docs)
    with torch.no_grad():
        expected = encoder_of(model)(chars, radicals, torch.from_numpy(found.floats), found.lattice).numpy()
    assert found.lattice.counts.tolist() == [5, 0, 0, 2]
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), expected, atol=1e-5)


@each_choice
def test_a_text_is_encoded_alike_alone_and_among_others(settings, docs):
    model = mect(**settings).initialize(docs)
    loss_of_steps(model, docs, 2)
    for doc, together in zip(docs, model.predict(docs), strict=True):
        np.testing.assert_allclose(model.predict([doc])[0], together, rtol=1e-4, atol=1e-5)


def weights_of(node):
    return {name: value.detach().clone() for name, value in torch_shim(node).module.named_parameters()}


@each_choice
def test_every_embedder_learns(settings, docs):
    model = mect(**settings).initialize(docs)
    loss_of_steps(model, docs, 1)
    before = [weights_of(node) for node in model.layers]
    loss_of_steps(model, docs, 1)
    for node, weights in zip(model.layers, before, strict=True):
        moved = [name for name, value in weights_of(node).items() if not torch.equal(value, weights[name])]
        assert moved == list(weights), node.name


def test_the_radical_embedder_has_a_rate_of_its_own(docs):
    model = mect().initialize(docs)
    loss_of_steps(model, docs, 1)
    before = [weights_of(node) for node in (model, *model.layers)]
    loss_of_steps(model, docs, 1, SGD(0.01, rates={"radicals*": 0.0}))
    moved = {
        node.name: any(not torch.equal(value, weights[name]) for name, value in weights_of(node).items())
        for node, weights in zip((model, *model.layers), before, strict=True)
    }
    assert moved == {"mect": True, "char_embed": True, "radical_embed": False, "lexicon_embed": True}


@pytest.mark.parametrize("optimizer", [Adam(0.01, L2=0.1), SGD(0.01, L2=0.1)], ids=["Adam", "SGD"])
def test_a_step_changes_no_more_of_random_attention_than_the_batch_reaches(docs, optimizer):
    model = mect(random_attention=5 * BLOCK).initialize(docs)
    before = weights_of(model)
    loss_of_steps(model, docs, 2, optimizer)
    tables = {name: value for name, value in weights_of(model).items() if name.endswith("random.blocks")}
    assert len(tables) == 2
    for name, value in tables.items():
        changed = (value != before[name]).any(dim=1).nonzero().flatten().tolist()
        assert changed == [0]  # The longest text has 10 characters and 5 words.


def test_a_text_with_more_places_than_random_attention_is_read(docs):
    model = mect(random_attention=4).initialize(docs)
    long = spacy.blank("zh").make_doc(TEXTS[0] * 30)
    (y,) = model.predict([long])
    assert y.shape == (300, 16)
    assert np.isfinite(y).all()
    losses = loss_of_steps(model, [long], 15)
    assert losses[-1] < 0.95 * losses[0]


def test_prediction_is_deterministic_and_training_has_dropout(docs):
    model = mect(dropout=0.5).initialize(docs)
    first, second = (model.predict(docs)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(model.begin_update(docs)[0][0], first)


def test_no_text_at_all_is_read(docs):
    model = mect().initialize(docs)
    assert model.predict([]) == []
    assert [y.shape for y in model.predict([docs[1]])] == [(0, 16)]
    assert loss_of_steps(model, [docs[1]], 2) == [0.0, 0.0]


def test_without_parts_it_has_its_own_and_needs_no_sample():
    model = build_mect()
    assert [layer.name for layer in model.layers] == ["char_embed", "radical_embed", "lexicon_embed"]
    assert model.get_dim("nO") == 128
    model.initialize()
    assert model.predict([spacy.blank("zh").make_doc("南京市长江大桥")])[0].shape == (7, 128)


def test_an_embedder_s_width_may_be_known_late(docs):
    late = build_char_embed(width=6, bigram_width=0)
    late._dims["nO"] = None
    model = mect(embed=late)
    model.initialize()
    with pytest.raises(ValueError, match="no weights yet"):
        model.predict(docs)
    model.initialize(docs)
    assert torch_shim(model).sizes == {"nI0": 6, "nI1": 7, "nW": 5, "nO": 16}
    assert model.predict(docs)[0].shape == (10, 16)


def test_weights_come_back(docs):
    model = mect().initialize(docs)
    loss_of_steps(model, docs, 3)
    copy = mect().from_bytes(model.to_bytes())
    for y, expected in zip(copy.predict(docs), model.predict(docs), strict=True):
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 15}, "spacy_tener.MECT.v1: width must be a multiple of heads"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"norm": "middle"}, "norm must be one of"),
        ({"streams": "both"}, "streams must be one of"),
        ({"random_attention": -3}, "random_attention must be at least 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        mect(**settings)
