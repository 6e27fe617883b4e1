from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from spacy.util import load_config, registry
from steps import KEY, Array, follow, numbers
from thinc.api import Adam as ThincAdam
from thinc.api import Linear, PyTorchWrapper, chain

from spacy_tener.optim.optimizers import Adam
from spacy_tener.optim.updates import apply_row_gradient

OPTIONS: list[dict[str, Any]] = [
    {},
    {"L2": 0.1},
    {"L2": 0.1, "L2_is_weight_decay": False},
    {"grad_clip": 0.0},
    {"beta1": 0.8, "beta2": 0.99, "eps": 1e-4},
    {"use_averages": False},
]


def paths(optimizer: Any, **options: Any) -> list[Array]:
    return follow(optimizer, numbers(5, 3, seed=99), **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_without_rates_it_is_thincs_adam(options: dict[str, Any]) -> None:
    rates = [0.1 / (1 + step) for step in range(12)]
    adam, thincs = Adam(iter(rates), **options), ThincAdam(iter(rates), **options)
    np.testing.assert_array_equal(paths(adam), paths(thincs))
    assert (adam.averages is None) == (thincs.averages is None)
    if adam.averages is not None:
        np.testing.assert_array_equal(adam.averages[KEY], thincs.averages[KEY])


@pytest.mark.parametrize("options", OPTIONS)
def test_a_rate_of_its_own_is_that_learning_rate(options: dict[str, Any]) -> None:
    rated = Adam(0.1, rates={"layers.*": 0.3}, **options)
    np.testing.assert_allclose(paths(rated), paths(Adam(0.03, **options)), rtol=1e-6)
    np.testing.assert_array_equal(paths(rated, key=(2, "crf.start")), paths(Adam(0.1, **options), key=(2, "crf.start")))


def test_a_scale_of_the_rate_is_honoured() -> None:
    scaled = paths(Adam(0.03, rates={"*": 2.0}), scale=0.5)
    np.testing.assert_allclose(scaled, paths(Adam(0.03)), rtol=1e-6)


def test_a_rate_of_0_leaves_weights_as_they_are() -> None:
    path = paths(Adam(0.1, L2=0.1, rates={"layers.*": 0.0}))
    assert all(np.array_equal(weights, numbers(5, 3, seed=99)) for weights in path)


def test_rows_of_a_table_have_the_rate_of_its_name() -> None:
    tables = {}
    for rates, learn_rate in (({"radicals.*": 1.3}, 0.1), (None, 0.13)):
        table, adam = torch.from_numpy(numbers(6, 2, seed=9)), Adam(learn_rate, rates=rates, use_averages=False)
        for step in range(3):
            values = torch.from_numpy(numbers(2, 2, seed=step))
            gradient = torch.sparse_coo_tensor(torch.tensor([[1, 4]]), values, (6, 2), check_invariants=True)
            apply_row_gradient(adam, (3, "radicals.tables.radical"), table, gradient.coalesce())
        tables[learn_rate] = table
    torch.testing.assert_close(tables[0.1], tables[0.13])
    assert torch.equal(tables[0.1][[0, 2, 3, 5]], torch.from_numpy(numbers(6, 2, seed=9))[[0, 2, 3, 5]])


def test_modules_in_thincs_own_wrapper_are_known_by_their_parameters_names() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    model: Any = chain(PyTorchWrapper(module), Linear(1, 1))
    model.initialize(X=numbers(6, 3), Y=numbers(6, 1))
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    adam = Adam(0.1, rates={"0.*": 0.0, "*.bias": 0.5})
    outputs, backprop = model.begin_update(numbers(6, 3))
    backprop(np.ones_like(outputs))
    model.finish_update(adam)
    moved = {name: float((value.detach() - before[name]).abs().max()) for name, value in module.named_parameters()}
    assert moved["0.weight"] == moved["0.bias"] == 0.0
    assert moved["1.bias"] == pytest.approx(0.5 * moved["1.weight"], rel=1e-3)


CONFIG = """
[optimizer]
@optimizers = "spacy_tener.Adam.v1"
L2 = 0.01

[optimizer.learn_rate]
@schedules = "spacy_tener.triangular.v1"
max_rate = 0.001
total_steps = 100
warmup = 0.05

[optimizer.rates]
transformer.* = 0.05
radicals.* = 1.3
"""


def test_it_comes_out_of_a_config_file_and_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "config.cfg"
    path.write_text(CONFIG, encoding="utf8")
    config = load_config(path)
    adam = registry.resolve(config)["optimizer"]
    assert isinstance(adam, Adam)
    assert adam.rate_of("transformer.embeddings.weight") == pytest.approx(0.05 * adam.learn_rate)
    first = adam.learn_rate
    adam.step_schedules()
    assert adam.rate_of("radicals.encoder.weight") == pytest.approx(1.3 * adam.learn_rate)
    assert adam.learn_rate > first
    filled = registry.fill(config)
    filled.to_disk(path)
    assert load_config(path) == filled


def test_its_defaults_are_those_of_thincs_adam() -> None:
    filled = registry.fill({"optimizer": {"@optimizers": "spacy_tener.Adam.v1"}})["optimizer"]
    thincs = registry.fill({"optimizer": {"@optimizers": "Adam.v1", "learn_rate": 0.001}})["optimizer"]
    assert {**filled, "@optimizers": "Adam.v1"} == {**thincs, "rates": None}
