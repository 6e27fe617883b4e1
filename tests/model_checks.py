"""Helpers for tests of whole models: embedders, training on random targets, and checks that apply to all models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from thinc.api import SGD, Adam

from spacy_tener.embedders.char_embed import build_char_embed

HASH_EMBED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 12,
    "attrs": ["NORM", "SHAPE"],
    "rows": [50, 50],
    "include_static_vectors": False,
}


def embedder(**settings):
    return build_char_embed(**{"width": 6, "bigram_width": 4, "dropout": 0.0, **settings})


def learn(model, docs, optimizer=None, steps=1):
    """Train with an output gradient of ones."""
    optimizer = optimizer or SGD(0.1)
    for _ in range(steps):
        Y, backprop = model.begin_update(docs)
        backprop([np.ones_like(y) for y in Y])
        model.finish_update(optimizer)
    return model


def training_losses(model, docs, n_steps: int, within: Callable = np.asarray, optimizer=None) -> list[float]:
    """Train a model to predict one random vector per token, and return the loss of each step.

    within: Function that maps random numbers to the range of the model's output.
    """
    rng = np.random.default_rng(0)
    wanted = [within(rng.normal(size=(len(doc), model.get_dim("nO")))).astype("f") for doc in docs]
    optimizer, losses = optimizer or Adam(0.01), []
    for _ in range(n_steps):
        Y, backprop = model.begin_update(docs)
        d_outputs = [y - target for y, target in zip(Y, wanted, strict=True)]
        losses.append(sum(float((d**2).sum()) for d in d_outputs))
        backprop(d_outputs)
        model.finish_update(optimizer)
    return losses


def assert_independent_of_batch(model, docs) -> None:
    for doc, together in zip(docs, model.predict(docs), strict=True):
        np.testing.assert_allclose(model.predict([doc])[0], together, rtol=1e-4, atol=1e-5)


def assert_same_predictions(model, loaded, docs) -> None:
    for y, expected in zip(loaded.predict(docs), model.predict(docs), strict=True):
        np.testing.assert_array_equal(y, expected)


def assert_dropout_in_training_only(model, docs) -> None:
    model.begin_update(docs)
    first, second = (model.predict(docs)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(model.begin_update(docs)[0][0], first)
