"""Models on a GPU have the same outputs, gradients and optimizer steps as on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import spacy
import torch
from small_systems import TEXTS
from spacy.util import registry
from thinc import optimizers
from thinc.api import get_current_ops, use_ops
from tiny_transformer import save_tiny_transformer

from spacy_tener.nn.backends import join_rows
from spacy_tener.nn.compose import ragged_layer
from spacy_tener.nn.shim import TorchShim, torch_shim
from spacy_tener.optim.optimizers import SGD, Adam

pytestmark = pytest.mark.integration

# FLAT-ATSSA without random selection, which differs between devices.
WITHOUT_SELECTION = {"selection": "none"}
ENCODERS = [
    ("TENER", {}),
    ("TENER", {"adapted": False}),
    ("FLAT", {"layers": 2}),
    ("FLAT_ATSSA", WITHOUT_SELECTION),
    ("MECT", {}),
    ("GRN", {}),
]
each_encoder = pytest.mark.parametrize(
    ("name", "settings"), ENCODERS, ids=["-".join([name, *map(str, options.values())]) for name, options in ENCODERS]
)


def sample_docs():
    nlp = spacy.blank("zh")
    return [nlp.make_doc(text) for text in [TEXTS[0][0], "", *(text for text, _ in TEXTS[1:]), TEXTS[4][0] * 3]]


def config_of(name, tok2vecs, settings):
    return {**tok2vecs[name], **settings}


def build(config, docs=None, data=None) -> Any:
    """Return a model that is initialized with Docs or loaded from bytes."""
    model = registry.resolve({"model": config})["model"]
    if docs is not None:
        model.initialize(docs)
    return model if data is None else model.from_bytes(data)


def parameters(model):
    shims = [shim for node in model.walk() for shim in node.shims if isinstance(shim, TorchShim)]
    return [(index, name, value) for index, shim in enumerate(shims) for name, value in shim.module.named_parameters()]


def host_arrays(model, which="grad"):
    """Return the parameters or their gradients on the CPU. Keys are the index of the module and the parameter name."""
    found = {(index, name): value if which == "data" else value.grad for index, name, value in parameters(model)}
    dense = {key: value.to_dense() if value.is_sparse else value for key, value in found.items() if value is not None}
    return {key: value.detach().cpu().numpy() for key, value in dense.items()}


def learn(model, docs):
    """Backpropagate random gradients, and return the outputs on the CPU."""
    random, ops = np.random.default_rng(0), model.ops
    outputs, backprop = model.begin_update(docs)
    arrays = [random.normal(size=(len(doc), model.get_dim("nO"))).astype("f") for doc in docs]
    backprop([ops.asarray(part) for part in arrays])
    return [ops.to_numpy(rows) for rows in outputs]


def assert_near(found, expected, tolerance=2e-4):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        # Some gradients are zero except for rounding errors.
        scale = max(np.abs(value).max(initial=0.0), 2e-2)
        np.testing.assert_allclose(found[key], value, atol=tolerance * scale, err_msg=str(key))


@each_encoder
def test_features_and_gradients_equal_cpu(name, settings, tok2vecs, device):
    docs, config = sample_docs(), config_of(name, tok2vecs, settings)
    with use_ops("numpy"):
        on_cpu = build(config, docs)
        expected = learn(on_cpu, docs)
    on_device = build(config, data=on_cpu.to_bytes())
    found = learn(on_device, docs)
    assert {value.device for *_, value in parameters(on_device)} == {device}
    for rows, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(rows, reference, atol=1e-4)
    assert_near(host_arrays(on_device), host_arrays(on_cpu))
    for rows, reference in zip(on_device.predict(docs), expected, strict=True):
        np.testing.assert_allclose(on_device.ops.to_numpy(rows), reference, atol=1e-4)


OPTIMIZERS = {
    "Thinc's Adam": lambda: optimizers.Adam(0.01),
    "Thinc's RAdam": lambda: optimizers.RAdam(0.01),
    "Thinc's SGD": lambda: optimizers.SGD(0.01),
    "Adam": lambda: Adam(0.01, L2=0.1, rates={"layers.*": 0.5}),
    "SGD": lambda: SGD(0.01, rates={"*tables*": 2.0}),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer_steps_and_averages_equal_cpu(make, tok2vecs, device):
    docs, config = sample_docs(), tok2vecs["TENER"]

    def trained(model):
        optimizer = make()
        for _ in range(3):
            learn(model, docs)
            model.finish_update(optimizer)
        order = {shim.id: place for place, shim in enumerate(shim for node in model.walk() for shim in node.shims)}
        averages = {(order[owner], name): value for (owner, name), value in (optimizer.averages or {}).items()}
        return {key: get_current_ops().to_numpy(value) for key, value in averages.items()}

    with use_ops("numpy"):
        first = build(config, docs)
        # Embedding tables grow in training. Both models start with the same rows.
        learn(first, docs)
        data = first.to_bytes()
        on_cpu = build(config, data=data)
        expected = trained(on_cpu)
    on_device = build(config, data=data)
    found = trained(on_device)
    # The size of Adam's first steps hardly depends on the gradient, so that rounding errors of small gradients matter.
    assert_near(host_arrays(on_device, "data"), host_arrays(on_cpu, "data"), 2e-2)
    assert_near(found, expected, 2e-2)
    assert {value.device for *_, value in parameters(on_device)} == {device}


def _linear(*, nI, nO):
    return _Linear(nI, nO)


class _Linear(torch.nn.Linear):
    def forward(self, x, lengths):
        return super().forward(x)


CHANGES = {
    "as they are": lambda x: x,
    "empty": lambda x: x[:0],
    "every other row": lambda x: x[::2],
    "slice of columns": lambda x: x[:, 1:4],
    "columns first": lambda x: x.T.copy().T,
    "no texts with words": lambda x: x[0:0, 1:4],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_array_views_are_converted_between_thinc_and_torch(change, device):
    host = [np.random.default_rng(seed).normal(size=(rows, 5)).astype("f") for seed, rows in enumerate((4, 0, 7))]
    width = change(host[0]).shape[1]
    with use_ops("numpy"):
        on_cpu = ragged_layer("linear", _linear, width_in=width, width_out=3)
        on_cpu.initialize()
        expected, backprop = on_cpu.begin_update([change(part) for part in host])
        wanted = backprop([part + 1 for part in expected])
    on_device = ragged_layer("linear", _linear, width_in=width, width_out=3)
    on_device.from_bytes(on_cpu.to_bytes())
    arrays = [change(on_device.ops.asarray(part)) for part in host]
    found, backprop = on_device.begin_update(arrays)
    gradient = backprop([part + 1 for part in found])
    assert torch_shim(on_device).device == device
    for rows, reference in ((found, expected), (gradient, wanted)):
        assert [part.shape for part in rows] == [part.shape for part in reference]
        np.testing.assert_allclose(
            on_device.ops.to_numpy(join_rows(on_device.ops, rows)), np.concatenate(reference), atol=1e-5
        )


@pytest.mark.parametrize("frozen", [True, False])
def test_transformer_features_and_gradients_equal_cpu(frozen, tmp_path, device):
    name = save_tiny_transformer(tmp_path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    docs = sample_docs()
    config = {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": str(name), "frozen": frozen, "dropout": 0.0}
    with use_ops("numpy"):
        on_cpu = build(config, docs)
        expected = learn(on_cpu, docs)
    on_device = build(config, data=on_cpu.to_bytes())
    for _ in range(2):
        # Frozen features are cached in the first update and reused in the second.
        for rows, reference in zip(learn(on_device, docs), expected, strict=True):
            np.testing.assert_allclose(rows, reference, atol=1e-4)
    twice = {key: 2 * value for key, value in host_arrays(on_cpu).items()}
    assert bool(twice) != frozen
    assert_near(host_arrays(on_device), twice, 2e-3)
