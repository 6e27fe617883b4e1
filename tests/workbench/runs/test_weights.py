"""Weights and momentum by their places: they come back into a pipeline whose layers have other ids."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from made_trainings import MODEL, sentences
from spacy.language import Language
from spacy.training import Example
from thinc.api import Adam, Linear, Model, Optimizer, PyTorchWrapper_v2, RAdam, require_cpu, require_gpu
from thinc.shims import PyTorchGradScaler
from torch import nn

from spacy_tener.optim.sgd import SGD
from spacy_tener.workbench.runs.randomness import full_state, set_full_state
from spacy_tener.workbench.runs.weights import Weights

RATE = 0.01


class Pipe:
    """What a pipeline has of a component."""

    def __init__(self, model: Any) -> None:
        self.model = model


class Pipeline:
    def __init__(self, **models: Any) -> None:
        self.pipeline = [(name, Pipe(model)) for name, model in models.items()]


def tagger(extra: int = 0) -> tuple[Language, list[Example]]:
    """A pipeline, behind so many models that have taken ids."""
    for _ in range(extra):
        Linear(1, 1)
        PyTorchWrapper_v2(nn.Linear(1, 1))
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner", config={"model": MODEL})
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in sentences()]
    spacy.util.fix_random_seed(1)
    nlp.initialize(lambda: examples)
    return nlp, examples


def learn(nlp: Language, examples: list[Example], optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        nlp.update(examples, sgd=optimizer)


def parameters(nlp: Language, optimizer: Optimizer) -> bytes:
    with nlp.use_params(optimizer.averages or {}):
        averaged = nlp.get_pipe("tener_ner").model.to_bytes()
    return bytes(averaged + nlp.get_pipe("tener_ner").model.to_bytes())


@pytest.mark.parametrize("make", [Adam, RAdam, SGD, lambda rate: Adam(rate, use_averages=False)])
def test_another_pipeline_goes_on_with_weights_and_momentum(make: Any) -> None:
    nlp, examples = tagger()
    optimizer, weights = make(RATE), Weights(nlp)
    learn(nlp, examples, optimizer, 3)
    state, moments = weights.state(), weights.optimizer_state(optimizer)
    kept = pickle.dumps((state, moments, full_state()))
    learn(nlp, examples, optimizer, 3)

    other, examples = tagger(extra=7)
    again, others = make(RATE), Weights(other)
    state, moments, random = pickle.loads(kept)
    others.load(state)
    others.load_optimizer(again, moments)
    set_full_state(random)
    learn(other, examples, again, 3)
    assert parameters(other, again) == parameters(nlp, optimizer)


def test_what_is_kept_has_no_ids() -> None:
    states = []
    for extra in (0, 5):
        nlp, examples = tagger(extra)
        optimizer, weights = Adam(RATE), Weights(nlp)
        learn(nlp, examples, optimizer, 2)
        tables = weights.optimizer_state(optimizer)["tables"]
        states.append({name: [each[:2] for each in values] for name, values in tables.items()})
    assert states[0] == states[1]
    assert ["tener_ner/3/0", "tables.unigram.whole"] in states[0]["mom1"]
    assert set(states[0]) >= {"mom1", "mom2", "averages", "nr_update"}


def test_tables_that_grow_in_training_come_back(tmp_path: Path) -> None:
    nlp, examples = tagger()
    optimizer, weights = Adam(RATE), Weights(nlp)
    unseen = Example.from_dict(nlp.make_doc("龘靐齉"), {"entities": []})
    learn(nlp, [*examples, unseen], optimizer, 2)
    other, _ = tagger(extra=3)
    others = Weights(other)
    assert others.structure() == weights.structure()
    others.load(weights.state())
    assert parameters(other, Adam(RATE)) == nlp.get_pipe("tener_ner").model.to_bytes() * 2


def test_the_structure_tells_labels_sizes_and_strings_apart() -> None:
    nlp, examples = tagger()
    found = Weights(nlp).structure()
    assert set(found) == {f"tener_ner/{number}" for number in range(len(found))}
    nlp.initialize(lambda: examples[:1])
    assert Weights(nlp).structure() != found


def test_frozen_components_and_rules_are_left_out() -> None:
    nlp, _ = tagger()
    nlp.add_pipe("sentencizer")
    assert Weights(nlp, ["tener_ner"]).structure() == {}
    assert Weights(nlp, ["tener_ner"]).state() == {"parameters": {}, "attrs": {}, "shims": {}}


def both(number: int) -> tuple[Pipeline, Any, Any]:
    """A layer of Thinc's and a module of torch's, with the same id."""
    layer: Model[Any, Any] = Linear(2, 2)
    wrapped = PyTorchWrapper_v2(nn.Linear(2, 2))
    layer.id = wrapped.shims[0].id = number
    layer.initialize()
    return Pipeline(thincs=layer, torchs=wrapped), layer, wrapped.shims[0]


def test_a_layer_and_a_module_with_the_same_id_are_told_apart() -> None:
    nlp, _, _ = both(1000)
    optimizer = Adam(RATE)
    for number, name in enumerate(("W", "b", "weight", "bias", "weight.whole")):
        optimizer.mom1[(1000, name)] = np.full(2, number, dtype="f")
    optimizer.mom1[(1001, "W")] = np.zeros(2, dtype="f")
    state = Weights(nlp).optimizer_state(optimizer)  # type: ignore[arg-type]
    assert [each[:2] for each in state["tables"]["mom1"]] == [
        ["thincs/0", "W"],
        ["thincs/0", "b"],
        ["torchs/0/0", "weight"],
        ["torchs/0/0", "bias"],
        ["torchs/0/0", "weight.whole"],
    ]
    other, layer, shim = both(2000)
    layer.id = 3000
    again = Adam(RATE)
    Weights(other).load_optimizer(again, state)  # type: ignore[arg-type]
    assert list(again.mom1) == [(3000, "W"), (3000, "b"), (2000, "weight"), (2000, "bias"), (2000, "weight.whole")]
    assert shim.id == 2000


def test_weights_return_to_their_own_memory() -> None:
    nlp, layer, shim = both(1)
    weights = Weights(nlp)  # type: ignore[arg-type]
    kept = pickle.loads(pickle.dumps(weights.state()))
    before = layer.get_param("W").copy()
    memory = layer.get_param("W")
    layer.get_param("W")[...] = 0
    shim._model.weight.data.zero_()
    weights.load(kept)
    assert layer.get_param("W") is memory
    assert np.array_equal(memory, before)
    assert shim._model.weight.abs().sum() > 0


def test_the_scale_of_mixed_precision_comes_back() -> None:
    model = PyTorchWrapper_v2(nn.Linear(2, 2), mixed_precision=False, grad_scaler=PyTorchGradScaler(True))
    nlp = Pipeline(scaled=model)
    weights = Weights(nlp)  # type: ignore[arg-type]
    scaler = model.shims[0]._grad_scaler
    scaler._scale.fill_(8.0)
    scaler._growth_tracker.fill_(5)
    kept = weights.state()
    scaler._scale.fill_(1.0)
    scaler._growth_tracker.fill_(0)
    weights.load(kept)
    assert (scaler._scale.item(), scaler._growth_tracker.item()) == (8.0, 5)


class Armed:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.mkdir, (self.path,)


def test_what_is_pickled_among_torchs_weights_is_not_run(tmp_path: Path) -> None:
    nlp, _, _ = both(1)
    weights = Weights(nlp)  # type: ignore[arg-type]
    file = BytesIO()
    torch.save({"weights": Armed(tmp_path / "run"), "scaler": {}}, file)
    with pytest.raises(pickle.UnpicklingError):
        weights.load({"parameters": {}, "attrs": {}, "shims": {"torchs/0/0": file.getvalue()}})
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
def test_a_training_goes_on_on_a_gpu() -> None:
    require_gpu()
    try:
        test_another_pipeline_goes_on_with_weights_and_momentum(Adam)
    finally:
        require_cpu()
