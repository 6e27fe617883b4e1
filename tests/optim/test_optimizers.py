"""SGD and Adam: dense and sparse steps, learning rates by parameter name, settings and configs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from confection import ConfigValidationError
from numpy.typing import NDArray
from spacy.util import load_config, registry
from thinc.api import Adam as ThincAdam
from thinc.api import Linear, PyTorchWrapper, RAdam, chain

from spacy_tener.optim.optimizers import SGD, Adam
from spacy_tener.optim.updates_torch import apply_row_gradient, is_adam, step_together

Array = NDArray[np.float32]
KEY = (1, "layers.0.weight")


def random_array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(scale=3.0, size=shape).astype("f")


def weights_after_steps(
    optimizer: Any, start: Array, steps: int = 12, key: tuple[int, str] = KEY, scale: float = 1.0
) -> list[Array]:
    """Return the weights after each step with reproducible gradients."""
    weights, path = start.copy(), []
    for step in range(steps):
        weights, gradient = optimizer(key, weights, random_array(*start.shape, seed=step), lr_scale=scale)
        assert not gradient.any()
        optimizer.step_schedules()
        path.append(weights.copy())
    return path


each_optimizer = pytest.mark.parametrize("make", [SGD, Adam])


def weights_after_torch_steps(start: Array, rates: list[float], clip: float | None, **settings: Any) -> list[Array]:
    weights = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = torch.optim.SGD([weights], lr=rates[0], **settings)
    path = []
    for step, rate in enumerate(rates):
        weights.grad = torch.from_numpy(random_array(*start.shape, seed=step))
        if clip is not None:
            torch.nn.utils.clip_grad_value_([weights], clip)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        path.append(weights.detach().numpy().copy())
    return path


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 0.9},
        {"momentum": 0.0},
        {"momentum": 0.5, "L2": 0.1},
        {"momentum": 0.9, "L2": 0.01},
    ],
)
@pytest.mark.parametrize("clip", [None, 2.0, 5.0])
def test_sgd_steps_equal_torch(settings: dict[str, Any], clip: float | None) -> None:
    start, rates = random_array(7, 4, seed=99), [0.1 / (1 + step) for step in range(25)]
    found = weights_after_steps(SGD(iter(rates), clip_value=clip or 0.0, **settings), start, len(rates))
    torch_settings = {("weight_decay" if name == "L2" else name): value for name, value in settings.items()}
    for got, wanted in zip(found, weights_after_torch_steps(start, rates, clip, **torch_settings), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_sgd_clips_gradient_values_to_5_by_default() -> None:
    weights, gradient = np.zeros(4, dtype="f"), np.array([-9.0, 5.5, 0.25, -5.0], dtype="f")
    SGD(1.0, momentum=0.0)(KEY, weights, gradient)
    assert weights.tolist() == [5.0, -5.0, -0.25, 5.0]


def test_sgd_momentum_is_separate_per_parameter() -> None:
    sgd, alone = SGD(0.1), SGD(0.1)
    first, second = np.zeros(3, dtype="f"), np.zeros(3, dtype="f")
    for step in range(5):
        sgd((1, "W"), first, random_array(3, seed=step))
        sgd((2, "W"), np.zeros(5, dtype="f"), random_array(5, seed=step))
        alone((1, "W"), second, random_array(3, seed=step))
    assert np.array_equal(first, second)


def test_sgd_momentum_is_reset_if_parameter_grows() -> None:
    sgd = SGD(1.0, momentum=0.9)
    sgd(KEY, np.zeros((2, 3), dtype="f"), np.ones((2, 3), dtype="f"))
    grown = np.zeros((4, 3), dtype="f")
    sgd(KEY, grown, np.ones((4, 3), dtype="f"))
    assert np.array_equal(grown, np.full((4, 3), -1.0, dtype="f"))


class DeviceArray:
    """A stand-in for a GPU array, which `Ops.asarray` copies to the CPU with `get`."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape

    def get(self) -> Array:
        return self.array


def test_sgd_momentum_moves_to_device_of_weights() -> None:
    sgd, stayed = SGD(0.1), SGD(0.1)
    weights, expected = np.zeros(3, dtype="f"), np.zeros(3, dtype="f")
    for step in range(3):
        sgd(KEY, weights, random_array(3, seed=step))
        stayed(KEY, expected, random_array(3, seed=step))
        sgd.mom1[KEY] = DeviceArray(sgd.mom1[KEY])  # type: ignore[assignment, arg-type]
    assert np.array_equal(weights, expected)


def test_empty_parameters_are_supported() -> None:
    SGD(0.1)(KEY, np.zeros((0, 3), dtype="f"), np.zeros((0, 3), dtype="f"))


@each_optimizer
def test_rates_use_first_matching_name_pattern(make: Callable[..., Any]) -> None:
    optimizer = make(0.5, rates={"embed.*": 2.0, "*.bias": 0.0, "embed.char": 9.0})
    for name, rate in (("embed.char", 1.0), ("embed.bias", 1.0), ("crf.bias", 0.0), ("crf.start", 0.5)):
        assert optimizer.rate_of(name) == rate


def test_rates_scale_dense_and_sparse_steps() -> None:
    paths = {}
    for factor in (1.0, 3.0):
        sgd = SGD(0.01, rates={"*weight": factor})
        paths[factor] = weights_after_steps(sgd, np.zeros((4, 2), dtype="f"), 5)[-1]
        rows = np.zeros((2, 2), dtype="f")
        sgd.update_rows(KEY, rows, random_array(2, 2))
        paths[-factor] = rows
    np.testing.assert_allclose(paths[3.0], 3.0 * paths[1.0], rtol=1e-5)
    np.testing.assert_allclose(paths[-3.0], 3.0 * paths[-1.0], rtol=1e-5)


def test_sparse_step_equals_accumulated_momentum() -> None:
    gradient = random_array(2, 3) * 4
    rows, dense = np.zeros((2, 3), dtype="f"), np.zeros((9, 3), dtype="f")
    full = np.zeros_like(dense)
    full[[2, 7]] = gradient
    SGD(0.1, momentum=0.9).update_rows(KEY, rows, gradient.copy())
    sgd = SGD(0.1, momentum=0.9)
    for _ in range(300):
        # The first step has a gradient. SGD sets it to zero, so that later steps have only momentum.
        sgd(KEY, dense, full)
    np.testing.assert_allclose(rows, dense[[2, 7]], rtol=1e-4, atol=1e-5)


def test_sparse_gradients_are_clipped_before_momentum() -> None:
    rows = np.zeros((1, 2), dtype="f")
    SGD(1.0, momentum=0.5, clip_value=5.0).update_rows(KEY, rows, np.array([[100.0, -1.0]], dtype="f"))
    assert rows.tolist() == [[-10.0, 2.0]]


def test_weight_decay_applies_to_sparse_rows() -> None:
    rows = np.ones((1, 2), dtype="f")
    SGD(0.5, momentum=0.0, L2=0.1).update_rows(KEY, rows, np.zeros((1, 2), dtype="f"))
    np.testing.assert_allclose(rows, [[0.95, 0.95]], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        *(
            (make, wrong, message)
            for make in (SGD, Adam)
            for wrong, message in [
                ({"learn_rate": -0.1}, rf"spacy_tener.{make.__name__}.v1: learn_rate must be at least 0; got -0.1"),
                ({"L2": -1.0}, "L2 must be at least 0; got -1.0"),
                ({"L2": float("nan")}, "L2 must be at least 0; got nan"),
                ({"rates": {"embed*": -2.0}}, r"rates\['embed\*'\] must be at least 0; got -2.0"),
                ({"learn_rate": object()}, "Invalid schedule for 'learn_rate'"),
            ]
        ),
        (Adam, {"beta1": 1.5}, "beta1 must be at least 0 and below 1; got 1.5"),
        (Adam, {"beta2": float("nan")}, "beta2 must be at least 0 and below 1; got nan"),
        (Adam, {"grad_clip": -1.0}, "grad_clip must be at least 0; got -1.0"),
        (SGD, {"momentum": 1.0}, "momentum must be below 1; got 1.0"),
        (SGD, {"momentum": -0.5}, "momentum must be at least 0; got -0.5"),
        (SGD, {"clip_value": -1.0}, "clip_value must be at least 0"),
    ],
)
def test_invalid_settings_raise_error(make: Callable[..., Any], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**wrong)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [("SGD", "moment", 0.9), ("SGD", "momentum", "much"), ("Adam", "momentum", 0.9), ("Adam", "rate", 0.9)],
)
def test_unknown_or_mistyped_settings_raise_error(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ConfigValidationError, match=setting):
        registry.resolve({"optimizer": {"@optimizers": f"spacy_tener.{name}.v1", setting: value}})


@pytest.mark.parametrize("rate", [[0.4, 0.2], iter([0.4, 0.2])])
def test_learn_rate_schedule_repeats_last_value(rate: Any) -> None:
    sgd = SGD(rate)
    learn_rates = []
    for _ in range(4):
        learn_rates.append(sgd.learn_rate)
        sgd.step_schedules()
    assert learn_rates == [0.4, 0.2, 0.2, 0.2]


@each_optimizer
def test_optimizer_with_constant_rate_is_picklable(make: Callable[..., Any]) -> None:
    optimizer = make(0.1, rates={"a": 2.0})
    optimizer(KEY, np.zeros(3, dtype="f"), np.ones(3, dtype="f"))
    again = pickle.loads(pickle.dumps(optimizer))
    assert (again.rates, again.learn_rate) == ({"a": 2.0}, 0.1)
    assert np.array_equal(again.mom1[KEY], optimizer.mom1[KEY])


def test_optimizer_without_averages_returns_none() -> None:
    assert SGD(0.1).averages is None
    assert Adam(0.1, use_averages=False).averages is None
    nlp = spacy.blank("en")
    with nlp.use_params(SGD(0.1).averages):
        assert nlp.pipe_names == []


def test_sgd_has_attributes_required_by_spacy_rehearsal() -> None:
    sgd = SGD(0.1)
    assert (sgd.learn_rate, sgd.b1, sgd.b2) == (0.1, 0.0, 0.0)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"L2": 0.1},
    {"L2": 0.1, "L2_is_weight_decay": False},
    {"grad_clip": 0.0},
    {"beta1": 0.8, "beta2": 0.99, "eps": 1e-4},
    {"use_averages": False},
]


def steps_from_fixed_start(optimizer: Any, **options: Any) -> list[Array]:
    return weights_after_steps(optimizer, random_array(5, 3, seed=99), **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_adam_without_rates_equals_thinc_adam(options: dict[str, Any]) -> None:
    rates = [0.1 / (1 + step) for step in range(12)]
    adam, thincs = Adam(iter(rates), **options), ThincAdam(iter(rates), **options)
    np.testing.assert_array_equal(steps_from_fixed_start(adam), steps_from_fixed_start(thincs))
    assert (adam.averages is None) == (thincs.averages is None)
    if adam.averages is not None:
        np.testing.assert_array_equal(adam.averages[KEY], thincs.averages[KEY])


@pytest.mark.parametrize("options", OPTIONS)
def test_adam_rate_factor_scales_learn_rate(options: dict[str, Any]) -> None:
    rated = Adam(0.1, rates={"layers.*": 0.3}, **options)
    np.testing.assert_allclose(steps_from_fixed_start(rated), steps_from_fixed_start(Adam(0.03, **options)), rtol=1e-6)
    np.testing.assert_array_equal(
        steps_from_fixed_start(rated, key=(2, "crf.start")),
        steps_from_fixed_start(Adam(0.1, **options), key=(2, "crf.start")),
    )


def test_adam_applies_lr_scale() -> None:
    scaled = steps_from_fixed_start(Adam(0.03, rates={"*": 2.0}), scale=0.5)
    np.testing.assert_allclose(scaled, steps_from_fixed_start(Adam(0.03)), rtol=1e-6)


def test_adam_rate_applies_to_sparse_table_updates() -> None:
    tables = {}
    for rates, learn_rate in (({"radicals.*": 1.3}, 0.1), (None, 0.13)):
        table, adam = torch.from_numpy(random_array(6, 2, seed=9)), Adam(learn_rate, rates=rates, use_averages=False)
        for step in range(3):
            values = torch.from_numpy(random_array(2, 2, seed=step))
            gradient = torch.sparse_coo_tensor(torch.tensor([[1, 4]]), values, (6, 2), check_invariants=True)
            apply_row_gradient(adam, (3, "radicals.tables.radical"), table, gradient.coalesce())
        tables[learn_rate] = table
    torch.testing.assert_close(tables[0.1], tables[0.13])
    assert torch.equal(tables[0.1][[0, 2, 3, 5]], torch.from_numpy(random_array(6, 2, seed=9))[[0, 2, 3, 5]])


def test_rates_match_parameter_names_in_pytorch_wrapper() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    model: Any = chain(PyTorchWrapper(module), Linear(1, 1))
    model.initialize(X=random_array(6, 3), Y=random_array(6, 1))
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    adam = Adam(0.1, rates={"0.*": 0.0, "*.bias": 0.5})
    outputs, backprop = model.begin_update(random_array(6, 3))
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


def test_adam_config_round_trips_through_file(tmp_path: Path) -> None:
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


def test_adam_defaults_equal_thinc_adam() -> None:
    filled = registry.fill({"optimizer": {"@optimizers": "spacy_tener.Adam.v1"}})["optimizer"]
    thincs = registry.fill({"optimizer": {"@optimizers": "Adam.v1", "learn_rate": 0.001}})["optimizer"]
    assert {**filled, "@optimizers": "Adam.v1"} == {**thincs, "rates": None}


@pytest.mark.parametrize("make", [ThincAdam, Adam])
@pytest.mark.parametrize("settings", [{}, {"L2": 0.1}, {"use_averages": False}, {"grad_clip": 0.0}, {"grad_clip": 2.0}])
def test_joint_step_equals_separate_steps(make, settings):
    settings = {"L2": 0.0, "grad_clip": 1.0, **settings}
    rates = {"rates": {"slow.*": 0.1}} if make is Adam else {}
    alone, together = (make([0.01, 0.02, 0.005, 0.01], **settings, **rates) for _ in range(2))
    shapes = {(3, "slow.weight"): (5, 3), (3, "bias"): (1,), (4, "late"): (2, 2, 2)}
    expected = {key: random_array(*shape, seed=len(shape)) for key, shape in shapes.items()}
    found = {key: torch.from_numpy(weights.copy()) for key, weights in expected.items()}
    assert is_adam(together)
    for step in range(6):
        # The last parameter is not updated in the first step.
        keys = [key for key in shapes if step or key[1] != "late"]
        gradients = {key: random_array(*shapes[key], seed=10 * step + key[0]) for key in keys}
        for key in keys:
            expected[key], _ = alone(key, expected[key], gradients[key].copy())
        step_together(together, keys, [found[key] for key in keys], [torch.from_numpy(gradients[key]) for key in keys])
        alone.step_schedules()
        together.step_schedules()
    for key in shapes:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)
        for name in ("mom1", "mom2", *(["averages"] if settings.get("use_averages", True) else [])):
            values, wanted = getattr(together, name)[key], getattr(alone, name)[key]
            np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-6)


def test_joint_step_excludes_other_optimizers():
    others = [SGD(), RAdam(0.1), ThincAdam(0.1, L2=0.1, L2_is_weight_decay=False), lambda key, weights, gradient: None]
    assert not any(map(is_adam, others))
